#!/bin/bash
# The walk-through of docs/hosts.md, as it is written, on three hosts made of namespaces (hosts.inc). Then the same commands
# with a host that cannot be reached.
set -u
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$tree/tests/system/hosts.inc"

echo "the walk-through, as written"
run_block ""
[ "$commands" -ge 10 ] && [ "$commands" -le 15 ] || fail "the walk-through has $commands commands; at most 15 are promised"
grep -qx "types.h" out || fail "the last command lists the files that node2 has copied"
[ "$(on node2 ls /srv/sheaf)" = server1 ] || fail "node2 has other storage than its own"
on node3 sheaf status >out 2>err || fail "status on node3"
[ "$(grep -c ' up ' out)" = 3 ] || fail "not all are up"
says "node1:7430 .* tcp"
on node2 touch /mnt/by-root-of-node2 || fail "root of another host is not trusted"
[ "$(on node1 stat -c %u /mnt/by-root-of-node2)" = 0 ] || fail "root of another host is squashed"
on node1 sheaf umount /mnt
on node2 sheaf umount /mnt

echo "one host unreachable: it is named, the others start"
on node1 sheaf stop --all-hosts >out 2>err || fail "stop --all-hosts"
[ "$(grep -c 'has stopped' out)" = 3 ] || fail "not all have stopped"
ip link set v3 down
touch node3.down
on node1 sheaf start --all-hosts >out 2>err && fail "success, with a host down"
grep -q "^sheaf start: node3 cannot be reached, or .* is not known; run 'sheaf start' there" err || fail "node3 is not named"
[ "$(grep -c ' is up, pid' out)" = 2 ] || fail "the others were not started"
on node1 sheaf status >out 2>err && fail "status: all are up"
says "^server2 .* down: unreachable"
one_line "^sheaf status: server2 (node3:7430) is down: its host cannot be reached"
ip link set v3 up
rm node3.down
on node1 sheaf start --all-hosts --ssh "$work/shims/ssh" >out 2>err || fail "start again, with --ssh"
[ "$(grep -c 'is already running' out)" = 2 ] && [ "$(grep -c ' is up, pid' out)" = 1 ] || fail "the second start"
within on node1 sheaf status >/dev/null 2>&1
on node1 sheaf format --all-hosts >out 2>err || fail "format again"
[ "$(grep -c 'has its storage already' out)" = 3 ] || fail "format again"
on node1 sheaf stop --all-hosts >out 2>err || fail "stop"

echo "hosts that cannot be resolved are refused at once, and nothing is left"
expect 1 init new --hosts node1,no-such-host.invalid
one_line "name of host no"
[ -e new ] && fail "something is left"

for pid in "${helpers[@]}"; do kill -9 "$pid"; done
echo "done"
