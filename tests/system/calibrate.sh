#!/bin/bash
# sheaf calibrate: running servers measure what accesses to their files cost, use and store it; who may not, servers that
# are down, and wrong names are told.
set -u
. "$(dirname "${BASH_SOURCE[0]}")/session.inc"
unset SHEAF_CONF SHEAF_KEY

expect 0 init fs --servers 3 --meta 1 --port "$(free_ports 3)"
confs+=("$work/fs/sheaf.conf")
export SHEAF_CONF=$work/fs/sheaf.conf
sed -i 's/^timeout = .*/timeout = 8/' fs/sheaf.conf

echo "a start measures the costs once"
expect 0 start
for i in 0 1 2; do
	[ -s "fs/server$i/costs" ] || fail "server$i has no costs"
	[ -e "fs/server$i/costs.scratch" ] && fail "server$i has left its scratch file"
	cp "fs/server$i/costs" "first$i"
done
expect 0 stop
: >fs/server1/costs.scratch # as after a crash
expect 0 start
cmp -s first0 fs/server0/costs || fail "a second start has measured again"
[ -e fs/server1/costs.scratch ] && fail "the scratch file of a crash is left"

echo "the table"
expect 0 calibrate
[ -s err ] && fail "something on stderr, without a terminal"
says "^SERVER  *SIZE  *CACHED READ  *CACHED WRITE  *COLD READ$"
for i in 0 1 2; do
	says "^server$i  *64 B  *[0-9.]* [um]*s  *[0-9.]* [um]*s  *[0-9.]* [um]*s$"
	says "^server$i: [0-9.]* cold reads at a time; a copy takes "
done
[ "$(grep -c '256 KiB' out)" = 3 ] || fail "not a row for each size"
cmp -s first0 fs/server0/costs && fail "nothing new is stored"

echo "JSON, of one server; the others keep what they have"
cp fs/server2/costs second2
expect 0 calibrate server0 server1 server0 --json
cmp -s second2 fs/server2/costs || fail "server2 was measured"
cp out before
python3 -c '
import json
d = json.load(open("out"))["servers"]
assert [s["name"] for s in d] == ["server0", "server1"], d
for s in d:
    assert s["sizes"] == [64, 1024, 4096, 16384, 65536, 262144, 1048576] and s["stored"], s
    for k in ("read_ns", "write_ns", "cold_read_ns"):
        assert len(s[k]) == 7 and s[k] == sorted(s[k]) and s[k][0] > 0, s
    assert 1 <= s["parallel"] <= 32 and s["copy_ns_per_byte"] > 0 and s["copy_ns_per_piece"] > 0, s
' || fail "JSON"

echo "stored: a restart does not measure again"
cp fs/server0/costs kept
expect 0 stop
expect 0 start
cmp -s kept fs/server0/costs || fail "the costs changed with a restart"
expect 0 stop
printf 'damaged' | dd of=fs/server0/costs bs=1 seek=40 conv=notrunc status=none
expect 0 start
cmp -s kept fs/server0/costs && fail "a damaged file is still there"
python3 -c 'import os, sys; sys.exit(os.path.getsize("fs/server0/costs") != 208)' || fail "a file of another size"

echo "servers work meanwhile, and several commands share a measurement"
head -c 3000000 /dev/urandom >data
for i in 1 2 3; do "$sheaf" calibrate server0 >"out$i" 2>&1 & helpers+=($!); done
expect 0 cp data sheaf:/data
expect 0 cat /data
cmp -s data out || fail "the data are others"
for p in "${helpers[@]}"; do wait "$p" || fail "one of several"; done
helpers=()

echo "only for root of the file system"
cp fs/server0/costs kept
sed -i '/^timeout = /a squash = 127.0.0.0/8 ::1' fs/sheaf.conf # root of this host is no root there
expect 0 stop
expect 0 start
expect 1 calibrate server0
one_line "server0 (.*) has not measured the costs of accesses: not allowed for this user"
cmp -s kept fs/server0/costs || fail "it has measured nevertheless"
sed -i '/^squash = /d' fs/sheaf.conf
expect 0 stop
expect 0 start
expect 0 calibrate server0

echo "wrong names and servers that are down"
expect 1 calibrate server9
one_line "no server 'server9'; 'sheaf status' lists them"
expect 2 calibrate --now
one_line "help"
pid=$(cat fs/server1/sheafd.pid)
kill -9 "$pid"
within eval '! kill -0 '"$pid"' 2>/dev/null'
expect 1 calibrate --json
one_line "server1 (127.0.0.1:[0-9]*) does not answer and is not measured"
python3 -c 'import json; assert [s["name"] for s in json.load(open("out"))["servers"]] == ["server0", "server2"]' || fail "not the others"
expect 1 calibrate server1
one_line "server1 .*does not answer"
[ -s out ] && fail "a table without servers"

echo "a file system inside the command"
expect 0 --conf "local:$work/inside" calibrate
says "^server0  *64 B "
exit 0
