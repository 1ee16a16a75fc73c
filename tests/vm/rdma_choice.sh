#!/bin/bash
# sheaf bench transfer over RDMA: our choice of a mover against the best forced one. It ends within minutes, by RDMA, with
# all ratios; they are printed and not judged, since they are times of an emulated processor. 9 rounds with --long.
set -u
. "$SHEAF_SOURCE/tests/system/session.inc"
patience=300

expect 0 init fs --servers 2 --listen 10.9.0.1
export SHEAF_CONF=$work/fs/sheaf.conf
confs+=("$SHEAF_CONF")
sed -i 's/^timeout = .*/timeout = 200/; s/^lease = .*/lease = 400/; s|^\[cluster\]$|&\ntrust = 10.9.0.0/24|' "$SHEAF_CONF"
sed 's/^address = 10.9.0.1:/address = server0:/' "$SHEAF_CONF" >fs/client.conf
printf '\n[rdma]\ndevice = rxe0\n' >>"$SHEAF_CONF"
printf '\n[rdma]\ndevice = rxe1\n' >>fs/client.conf
echo "10.9.0.1 server0" >>/etc/hosts
start_servers

rounds=1
[ -z "${SHEAF_TEST_LONG-}" ] || rounds=9
SHEAF_NET=rdma expect 0 --conf fs/client.conf bench transfer --sizes 64,512,2048 --pieces 128 --rounds $rounds --json
python3 - out <<'END' || fail "not all ratios"
import json, sys

d = json.load(open(sys.argv[1], encoding="utf-8"))
ratios = {r["case"]: r for r in d["rows"] if r["case"].startswith("choice_")}
for name, r in ratios.items():
    best = r["of"].split(":")[1].split(",")[0].strip()
    print(f"{name}: {r['median']:.2f} of {best}, {r['min']:.2f} to {r['max']:.2f}")
print(f"transfer_choice: {d['bars']['transfer_choice']['value']:.2f}")
assert d["conditions"]["backend"] == "rdma" and len(ratios) == 12
END
