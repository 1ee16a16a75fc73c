#!/bin/bash
# Storage that lost a part is refused by its server with a line that names the part and the cure; each cure works:
# objects/ or all of a server's storage is gone (add-server --emptied), meta/ is gone, older or another server's (restore).
set -u
. "$(dirname "${BASH_SOURCE[0]}")/session.inc"

# refuses SERVER PATTERN: it does not start, and says why
refuses() {
	expect 1 start
	grep -q -- "$1.*$2" out err || fail "start of $1 does not say: $2"
}

# inode PATH
inode() {
	"$sheaf" stat "$1" | sed -n 's/.*inode[: ]*\([0-9]*\).*/\1/p' | head -n 1
}

# ready N: N servers are up, and status says nothing else
ready() {
	expect 0 status
	[ "$(grep -c ' up ' out)" = "$1" ] || fail "not $1 servers"
}

port=$(free_ports 6)
expect 0 init fs --servers 3 --meta 2 --port "$port" --stripe-unit 64K
confs+=("$work/fs/sheaf.conf")
export SHEAF_CONF=$work/fs/sheaf.conf
sed -i 's/^timeout = .*/timeout = 10/; s/^lease = .*/lease = 2/' fs/sheaf.conf
expect 0 start
head -c 300000 /dev/urandom >data
expect 0 cp data sheaf:/before
expect 0 mkdir /d
expect 0 cp data sheaf:/d/file
expect 0 cp data sheaf:/gone
expect 0 rm /gone # so that the metadata servers have spoken with all data servers
expect 0 cp data sheaf:/removed
expect 0 backup copy
expect 0 rm /removed
expect 0 stop
cp -a fs/server0/meta old-meta
expect 0 start
expect 0 cp data sheaf:/later
ready 3

echo "a server without objects does not start"
expect 0 stop
mv fs/server2/objects kept
refuses server2 "objects is missing.*--emptied"
mkdir -m 700 fs/server2/objects # the mount point of a disk that is not mounted
refuses server2 "objects has lost its contents.*--emptied"
rmdir fs/server2/objects
mv kept fs/server2/objects
expect 0 start
"$sheaf" cat /before | cmp - data || fail "before"

echo "a server with metadata that are gone, older, or another server's does not start"
expect 0 stop
mv fs/server0/meta kept
refuses server0 "meta.*the database is gone.*sheaf restore"
rm -rf fs/server0/meta
cp -a old-meta fs/server0/meta
refuses server0 "meta is older than the rest.*sheaf restore"
rm -r fs/server0/meta
cp -a fs/server1/meta fs/server0/meta
refuses server0 "meta"
rm -r fs/server0/meta
mv kept fs/server0/meta
expect 0 start
ready 3

echo "a restore brings metadata back, and new inodes are far from all that were given"
before=$(inode /later)
[ "$((before >> 48))" = 0 ] || fail "a file of the root directory is not kept by server0"
expect 0 stop
rm -r fs/server0/meta
refuses server0 "the database is gone"
expect 0 stop
expect 0 restore copy --server server0
expect 0 start
"$sheaf" cat /before | cmp - data || fail "before, restored"
expect 0 cp data sheaf:/new
after=$(inode /new)
[ "$after" -ge $((before + (1 << 32))) ] || fail "inode $after is not 2^32 above $before"
within eval '"$sheaf" check --repair >out; grep -q "^damaged: /removed" out'
expect 1 cat /removed
one_line "could not read"
expect 0 rm /removed
expect 0 find --damaged
[ -s out ] && fail "a restore of names damages no file that was not removed"

echo "a server whose storage is gone is not added again by mistake"
expect 0 cp data sheaf:/after
expect 0 stop
mv fs/server2 lost
refuses server2 "storage directory .*server2 does not exist"
expect 1 add-server server2
one_line "its storage .*server2 is gone or empty.*find --on server2.*--emptied"
[ -e fs/server2 ] && fail "it was made all the same"
expect 1 add-server server7 --emptied
one_line "not in the map"
[ "$(grep -c '^\[server' fs/sheaf.conf)" = 3 ] || fail "server7 is in the cluster file"
expect 1 find --damaged
one_line "server2.*does not answer"

echo "an emptied server returns: what it had is an error, and is listed"
expect 0 add-server server2 --emptied
says "find --damaged"
ready 3
expect 1 cat /before
one_line "could not read"
expect 0 find --damaged
for f in /before /d/file /after /new; do
	says "^$f  server2  [0-9]* bytes lost"
done
expect 1 check
says "^damaged: /before "
expect 1 add-server server2 --emptied
one_line "the storage that the map knows"
expect 0 add-server server2
expect 0 cp data sheaf:/before # restored from elsewhere
"$sheaf" cat /before | cmp - data || fail "before, copied back"
expect 0 rm -r /d /after /new /lost+found
expect 0 cp data sheaf:/fresh
"$sheaf" cat /fresh | cmp - data || fail "fresh"
within eval '"$sheaf" check >out 2>err'
expect 0 find --damaged
[ -s out ] && fail "files are damaged that were restored"

echo "the old storage of a server is noticed when it comes back"
expect 0 stop
mv fs/server2 emptied
mv lost fs/server2
expect 0 start
expect 1 status
grep -q "server2 has other storage than the map knows" err || fail "status is silent"
says "other storage"
expect 1 status --json
python3 -c '
import json
d = json.load(open("out"))
assert [s["other_storage"] for s in d["servers"]] == [False, False, True], d
' || fail "status --json"
expect 1 add-server server2
one_line "other storage than the map knows"
expect 0 cp data sheaf:/x
expect 0 rm /x
within grep -q "server2 has other storage than the map knows" fs/server0/sheafd.log fs/server1/sheafd.log
expect 0 stop
mv fs/server2 lost
mv emptied fs/server2
expect 0 start
ready 3

echo "only the objects of a server are lost: its metadata stay"
expect 0 stop
rm -r fs/server1/objects
refuses server1 "objects is missing"
expect 0 add-server server1 --emptied
ready 3
expect 0 find --damaged
says "^/fresh  server1"
expect 0 rm /fresh
expect 0 cp data sheaf:/before
within eval '"$sheaf" check >out 2>err'

echo "all storage of a metadata server is lost"
expect 0 backup again
expect 0 stop
rm -r fs/server1
expect 1 start
expect 1 add-server server1 --emptied
one_line "keeps metadata.*sheaf restore"
expect 0 stop
expect 0 restore again --server server1
expect 0 start
expect 1 status
grep -q "server1 has other storage than the map knows" err || fail "status is silent"
expect 0 add-server server1 --emptied
ready 3
expect 0 find --damaged
says "^/before  server1"
expect 0 stop
exit 0
