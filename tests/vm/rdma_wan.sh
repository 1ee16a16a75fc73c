#!/bin/bash
# 64 MiB in one call over TCP and over RDMA, with 200 ms of delay by netem. The time of a call in delays bounds the round
# trips that it waits for. The driver of Soft-RoCE lets a queue pair have 128 packets of 4 KiB unacknowledged: 32 round
# trips for the 16 MiB of each of four servers. This test fails when RDMA needs more than TCP and these together. It
# cannot show that RDMA needs no more than TCP: on this device it does (docs/performance.md).
set -u
. "$SHEAF_SOURCE/tests/system/session.inc"

expect 0 init fs --servers 4 --listen 10.9.0.1
export SHEAF_CONF=$work/fs/sheaf.conf
confs+=("$SHEAF_CONF")
sed -i 's|^\[cluster\]$|&\ntrust = 10.9.0.0/24|' "$SHEAF_CONF"
sed 's/^address = 10.9.0.1:/address = server0:/' "$SHEAF_CONF" >fs/client.conf
printf '\n[rdma]\ndevice = rxe0\n' >>"$SHEAF_CONF"
printf '\n[rdma]\ndevice = rxe1\n' >>fs/client.conf
echo "10.9.0.1 server0" >>/etc/hosts
start_servers

cat >measure.py <<'END'
import ctypes, json, os, sys, time

BYTES, ROUNDS = 64 << 20, 3
medium, delay = sys.argv[1], float(sys.argv[2])
lib = ctypes.CDLL(os.environ["SHEAF_BUILD"] + "/lib/libsheaf.so")
calls = {"write": lib.sheaf_pwrite, "read": lib.sheaf_pread}
for call in calls.values():
    call.restype = ctypes.c_ssize_t
    call.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64]


def must(result, wanted):
    if result != wanted:
        sys.exit(f"{medium}: {result}, expected {wanted}")


fs, f = ctypes.c_void_p(), ctypes.c_void_p()
must(lib.sheaf_connect(b"fs/client.conf", ctypes.byref(fs)), 0)
must(lib.sheaf_open(fs, f"/{medium}".encode(), os.O_CREAT | os.O_RDWR, 0o644, None, ctypes.byref(f)), 0)
memory = bytearray(os.urandom(1 << 20) * (BYTES >> 20))
buf = (ctypes.c_char * BYTES).from_buffer(memory)
best = {}
for what, call in calls.items():
    must(call(f, buf, BYTES, 0), BYTES)  # the pages of the file, the registration, the windows
    for _ in range(ROUNDS):
        start = time.monotonic()
        must(call(f, buf, BYTES, 0), BYTES)
        took = time.monotonic() - start
        best[what] = min(took, best.get(what, took))
    print(f"{medium}: {what} in {best[what] / delay:.1f} delays", flush=True)
with open(medium + ".json", "w", encoding="utf-8") as out:
    json.dump({what: took / delay for what, took in best.items()}, out)
END
for end in v0 v1; do
	tc qdisc replace dev $end root netem delay 100ms limit 1000000 || fail "netem"
done
for medium in tcp rdma; do
	SHEAF_NET=$medium python3 measure.py $medium 0.2 2>err || fail "$medium"
done
python3 - <<'END' || fail "more round trips over RDMA than over TCP and the window of the card"
import json

tcp, rdma = (json.load(open(name + ".json", encoding="utf-8")) for name in ("tcp", "rdma"))
window = (64 << 20) / 4 / (128 * 4096)
for what in tcp:
    print(f"{what}: TCP {tcp[what]:.1f}, RDMA {rdma[what]:.1f}; allowed: TCP and {window:.0f}")
    assert rdma[what] <= tcp[what] + window
END
