#!/bin/bash
# An administrator's session: add a server, find what it holds, back up, restore; wrong usage, wrong moments, and
# commands that were broken off and run again.
set -u
. "$(dirname "${BASH_SOURCE[0]}")/session.inc"

echo "wrong usage is one line with a hint and exit status 2"
for args in "add-server" "add-server a b" "backup" "backup a b" "restore" "restore a b" "find --on" \
	"find --on a --jobs 0" "find -size x"; do
	expect 2 $args
	one_line "help"
done

echo "a file system inside the command has no servers to add or restore"
expect 0 --conf "local:$work/inside" mkdir /d
expect 1 --conf "local:$work/inside" add-server server2
one_line "sheaf --conf $work/inside/sheaf.conf start"
expect 0 --conf "local:$work/inside" backup inside.backup
expect 0 --conf "local:$work/inside" find --on server0 --json
expect 1 --conf "local:$work/inside" restore inside.backup
one_line "inside"
expect 1 --conf "$work/inside/sheaf.conf" restore inside.backup
one_line "changed at .*--force"
expect 0 --conf "$work/inside/sheaf.conf" restore inside.backup --force
expect 0 --conf "local:$work/inside" ls /
says d

port=$(free_ports 6)
expect 0 init fs --servers 2 --meta 2 --port "$port" --stripe-unit 64K
confs+=("$work/fs/sheaf.conf")
export SHEAF_CONF=$work/fs/sheaf.conf
sed -i 's/^timeout = .*/timeout = 8/; 1i # a comment of ours' fs/sheaf.conf
echo "# the last line, without an end" | tr -d '\n' >>fs/sheaf.conf
expect 1 add-server server2
one_line "all metadata servers must be up"
expect 0 start
head -c 300000 /dev/urandom >data
expect 0 cp data sheaf:/before

echo "a server is added with one command, and is there"
chmod 640 fs/sheaf.conf
echo "[what somebody left who was killed" >fs/sheaf.conf.new
expect 0 add-server server2
says "server2 (127.0.0.1:$((port + 2))) is server 2"
[ -e fs/server2/sheaf.id ] || fail "no storage"
grep -q "^storage = server2$" fs/sheaf.conf || fail "storage is not beside the others"
grep -q "^# a comment of ours" fs/sheaf.conf || fail "a comment is lost"
grep -q "^# the last line, without an end$" fs/sheaf.conf || fail "the last line is damaged"
[ "$(stat -c %a fs/sheaf.conf)" = 640 ] || fail "the mode of the cluster file changed"
[ -e fs/sheaf.conf.new ] && fail "a temporary file is left"
expect 0 status
says "server2 .* up .* data"
expect 0 cp data sheaf:/after
expect 0 getfattr -n sheaf.layout /after
says "server2"
expect 0 find --on server2
[ "$(cat out)" = /after ] || fail "find"
expect 0 find --on server2 --on server0 --json /
python3 -c '
import json
d = json.load(open("out"))
assert d["on"] == ["server0", "server2"], d
assert sorted(f["path"] for f in d["files"]) == ["/after", "/before"], d
assert all(f["size"] == 300000 and not f["growing"] for f in d["files"])
' || fail "find --json"
expect 1 find --on server2 /nothere
one_line "/nothere"
expect 1 find --on server9
one_line "no server 'server9'"

echo "the same again is fine, something else is not"
expect 0 add-server server2 --json
python3 -c 'import json; assert json.load(open("out"))["id"] == 2' || fail "add-server --json"
expect 1 add-server server2 --address "127.0.0.1:$((port + 4))"
one_line "already, with address"
expect 1 add-server server0
one_line "metadata server"
expect 1 add-server server3 --address 192.0.2.1:7430
one_line "run this on that host"
expect 1 add-server "bad/name" --address "127.0.0.1:$((port + 3))"
one_line "name"
expect 1 add-server server3 --address "127.0.0.1:$((port + 3))" --storage "$work/fs/server0"
one_line "storage"
expect 1 add-server server3 --address "127.0.0.1:$((port))"
one_line "address"
[ "$(grep -c '^\[server' fs/sheaf.conf)" = 3 ] || fail "what was refused is in the cluster file"

echo "broken off at any step, the command goes on where it was"
expect 1 add-server server3 --storage "$work/elsewhere/deep"
one_line "elsewhere"
grep -q elsewhere fs/sheaf.conf && fail "what was refused is in the cluster file"
mkdir elsewhere
expect 1 add-server server3 --storage "$work/elsewhere/deep" --no-start
one_line "does not run yet"
expect 0 add-server server3
expect 0 stop
expect 0 start
[ "$(grep -c 'is up' out)" = 4 ] || fail "not four servers"
expect 0 cp data sheaf:/four
expect 0 getfattr -n sheaf.layout /four
says "server3"
"$sheaf" cat /four | cmp - data || fail "four"

echo "files of a server that is gone are listed"
pid=$(cat elsewhere/deep/sheafd.pid)
kill -9 "$pid"
within eval '! kill -0 '"$pid"' 2>/dev/null'
expect 0 find --on server3
[ "$(cat out)" = /four ] || fail "find with a dead server"
expect 0 start

echo "backups"
mkdir backups
expect 0 backup backups
ls backups | grep -q '^sheaf-[0-9]*-[0-9]*\.backup$' || fail "no name"
[ "$(stat -c %a backups/*)" = 600 ] || fail "a backup that others may read"
expect 0 backup one --json
python3 -c '
import json, os
d = json.load(open("out"))
assert d["servers"] == 2 and d["bytes"] == os.path.getsize("one") and d["time_ns"] > 0, d
' || fail "backup --json"
expect 1 backup one
one_line "choose another name"
expect 1 backup nothere/x
one_line "nothere"
expect 0 rm /before
expect 1 restore one
one_line "server0 runs"
expect 0 stop
expect 1 backup two
one_line "server0"
[ -e two ] && fail "half a backup is left"
expect 1 restore data
one_line "no backup"
expect 1 restore nothere
one_line "nothere"
expect 1 restore one --server server3
one_line "server3"
expect 1 restore one
one_line "--force"
expect 0 restore one --force --json
python3 -c 'import json; assert json.load(open("out"))["restored"] == ["server0", "server1"]' ||
	fail "restore --json"
expect 0 start
expect 0 ls /
says before
"$sheaf" cat /after | cmp - data || fail "after"
expect 0 stop
exit 0
