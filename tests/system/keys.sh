#!/bin/bash
# sheaf key: a key is made, named in the cluster file, read by running servers, used, and taken back; what goes
# wrong is one line and leaves everything as it was.
set -u
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$tree/tests/system/session.inc"
unset SHEAF_CONF SHEAF_KEY
port=$(free_ports 2) || fail "no free ports"

echo "keys are made, with the servers down and up"
expect 0 init fs --servers 2 --meta 2 --port "$port"
export SHEAF_CONF=$work/fs/sheaf.conf
confs+=("$SHEAF_CONF")
expect 0 key early
says "SHEAF_KEY=early"
[ "$(stat -c %a fs/early.key)" = 600 ] || fail "early.key is not private"
grep -A2 '^\[key.early\]' fs/sheaf.conf | grep -qx 'role = any' || fail "no section of early"
expect 0 start
SHEAF_KEY=early expect 0 ls /
head -c 3000000 /dev/urandom >data # striped: a copy inside goes from server to server
SHEAF_KEY=early expect 0 cp data sheaf:/data
SHEAF_KEY=early expect 0 cp sheaf:/data sheaf:/twin
expect 0 cat /twin
cmp -s data out || fail "the copy is another"
expect 0 key me --uid "$(id -u)"
says "server0 reads the keys"
says "server1 reads the keys"
grep -q "^role = uid $(id -u) gid $(id -g)" fs/sheaf.conf || fail "no role of me"
works() { SHEAF_KEY=$1 timeout 20 "$sheaf" ls / >/dev/null 2>err; }
within works me
expect 0 key other --uid $(($(id -u) + 1)) --gid 7,8
grep -qx "role = uid $(($(id -u) + 1)) gid 7 8" fs/sheaf.conf || fail "no role of other"
refused() { ! works other && grep -q "not allowed for this user" err; }
within refused

echo "without the default key a client takes the one it can read"
mkdir client
sed "s,^storage = ,&$work/fs/," fs/sheaf.conf >client/sheaf.conf
cp fs/me.key client/
expect 0 --conf client/sheaf.conf ls /
chmod 644 client/me.key
SHEAF_KEY=me expect 1 --conf client/sheaf.conf ls /
one_line "run: chmod 600 .*client/me.key"

echo "taken back"
sed -i '/^\[key.me\]/,/^role/d' fs/sheaf.conf
expect 0 key
gone() { chmod 600 client/me.key && ! "$sheaf" --conf client/sheaf.conf ls / >/dev/null 2>err; }
within gone
grep -q "the key was refused" err || fail "no word about the key"

echo "what is wrong changes nothing"
cp fs/sheaf.conf before
expect 1 key early
one_line "has a \[key.early\] already"
expect 2 key 'a b'
one_line "is not 1 to 31 letters"
expect 2 key x --uid root
one_line "not a number of a user"
expect 2 key x --uid 1 --gid 3,x
one_line "--gid 3,x"
expect 2 key x --gid 3
one_line "goes with --uid"
expect 2 key x --uid 4000000000
one_line "--gid LIST"
expect 2 key --uid 1
one_line "give a NAME"
: >fs/taken.key
expect 1 key taken
one_line "taken.key: cannot create the key file"
exec 5>fs/sheaf.conf.new
flock 5
expect 1 key late
one_line "sheaf.conf.new: another command"
[ -e fs/late.key ] && fail "a key stays behind"
exec 5>&-
expect 1 --conf local:"$work/fs" key late
one_line "has no servers of its own"
cmp -s before fs/sheaf.conf || fail "the cluster file changed"
expect 0 stop
echo "done"
