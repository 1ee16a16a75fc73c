#!/bin/bash
# Faults of servers and of their administration: each is told where an administrator looks (the message of the command,
# the log of the server, its metrics), with the remedy. reasons.sh holds servers that are not up.
set -u
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$tree/tests/system/session.inc"
unset SHEAF_CONF

port=$(free_ports 4)
expect 0 init made/with/parents/fs --servers 3 --meta 1 --port "$port"
mv made/with/parents/fs fs
confs+=("$work/fs/sheaf.conf")
sed -i 's/^timeout = .*/timeout = 5/' fs/sheaf.conf
export SHEAF_CONF=$work/fs/sheaf.conf

# metric SERVER NAME: its value
metric() {
	python3 - "$((port + 1000 + $1))" "$2" <<'END'
import sys, urllib.request
for line in urllib.request.urlopen("http://127.0.0.1:%s/metrics" % sys.argv[1]).read().decode().splitlines():
    if line.startswith("sheaf_%s " % sys.argv[2]):
        print(line.split()[1])
END
}

echo "a disk is not mounted: no advice to make a new file system"
mv fs/server1 elsewhere
expect 1 start
one_line "server1: storage directory .*/server1 does not exist: is a disk not mounted?.*sheaf format"
mkdir fs/server1
expect 1 start
one_line "server1: .*/server1 is not a Sheaf storage directory: is a disk not mounted?"
rm -r fs/server1
mv elsewhere fs/server1
expect 0 start

echo "sheaf format makes no new storage for a server that was in service"
within "$sheaf" status >/dev/null 2>&1
kill "$(cat fs/server1/sheafd.pid)"
within [ ! -e fs/server1/sheafd.pid ]
mv fs/server1 elsewhere
expect 1 format
one_line "server1 .*was in service.*is a disk not mounted?.*--emptied server1"
[ ! -e fs/server1 ] || fail "a directory was made"
mv elsewhere fs/server1
expect 0 stop
mv fs/server0 elsewhere
expect 1 format server0
one_line "server0 has no storage.*server[12] of this host was in service.*sheaf restore FILE --server server0"
[ ! -e fs/server0 ] || fail "a directory was made"
mv elsewhere fs/server0
expect 0 format server0
expect 0 start

echo "a crash is in the log and the metrics, a clean restart is not"
[ "$(metric 1 unclean_start)" = 0 ] || fail "the first start is no crash"
kill -9 "$(cat fs/server1/sheafd.pid)"
expect 0 start
grep -q "the last stop of server1 was not clean: it crashed.*no fsync covered" fs/server1/sheafd.log || fail "the log"
[ "$(metric 1 unclean_start)" = 1 ] || fail "the metric"
expect 0 stop
expect 0 start
[ "$(metric 1 unclean_start)" = 0 ] || fail "a clean restart"
[ "$(grep -c "was not clean" fs/server1/sheafd.log)" = 1 ] || fail "the log after a clean restart"

echo "attributes that exceed the limit of a file are no full disk"
expect 0 mkdir /attributes
big=$(head -c 65000 /dev/zero | tr '\0' x)
for i in {1..16}; do
	expect 0 setfattr -n user.$i -v "$big" /attributes
done
expect 1 setfattr -n user.17 -v "$big" /attributes
one_line "/attributes: no room for this attribute: .*64 KiB of names and 1 MiB in all"
grep -q "no space left in" fs/server0/sheafd.log && fail "the log tells of a full disk"
[ "$(metric 0 no_space_total)" = 0 ] || fail "the metric counts a full disk"
expect 0 rm -r /attributes

if [ "$(id -u)" = 0 ] && mkdir small && mount -t tmpfs -o size=6m none small 2>/dev/null; then
	echo "a full server is named, in its log, and counted"
	mounts+=("$work/small")
	expect 0 stop
	cp -a fs/server2/. small/
	mv fs/server2 elsewhere
	ln -s "$work/small" fs/server2
	expect 0 start
	head -c 40000000 /dev/zero >big
	expect 1 cp big sheaf:/big
	one_line "^sheaf cp: sheaf:/big: no space left on server2 (127.0.0.1:$((port + 2))): remove files or add a server, then repeat"
	grep -q "no space left in .*/server2: refused a .*sheaf add-server" fs/server2/sheafd.log || fail "the log"
	[ "$(grep -c "no space left in" fs/server2/sheafd.log)" = 1 ] || fail "the log has many lines"
	[ "$(metric 2 no_space_total)" -ge 1 ] || fail "the metric"
	[ "$(metric 1 no_space_total)" = 0 ] || fail "the metric of another server"
	expect 0 ls /
	[ -s out ] && fail "half a file is left"
	expect 0 stop
	rm fs/server2
	mv elsewhere fs/server2
	expect 0 start
else
	echo "full servers: skipped, this needs root and mounts"
fi

echo "squashed root is told about trust"
if [ "$(id -u)" = 0 ]; then
	sed '/^\[cluster\]/a squash = 127.0.0.0/8' fs/sheaf.conf >fs/squash.conf
	expect 0 mkdir /closed
	expect 0 chmod 700 /closed
	expect 0 stop
	SHEAF_CONF=$work/fs/squash.conf expect 0 start
	expect 1 ls /closed
	one_line "permission denied: the servers do not treat root of this host as root.*'trust'"
	cp fs/squash.conf before.conf
	SHEAF_CONF=$work/fs/squash.conf expect 1 add-server refused --address "127.0.0.1:$((port + 3))"
	cmp fs/squash.conf before.conf || fail "a refused server is in the cluster file"
	[ ! -e fs/refused ] || fail "a refused server has storage"
	expect 0 stop
	expect 0 start
fi

echo "a key file that others may read, and one that this user may not"
chmod o+x "${TMPDIR:-/tmp}" # of the tests, where this user looks, too
chmod 644 fs/key
expect 1 ls /
one_line "fs/key: the key is open to others (mode 644); run: chmod 600 .*fs/key"
chmod 600 fs/key
if [ "$(id -u)" = 0 ]; then
	chmod 755 "$work"
	setpriv --reuid 65534 --regid 65534 --clear-groups "$sheaf" ls / >out 2>err && fail "the key of another user"
	one_line "fs/key: .*permission denied; only its owner may read it: run this as that user, or use a key of your own"
fi

echo "an add-server that is refused leaves nothing"
cp fs/sheaf.conf before.conf
python3 - "$((port + 3))" <<'END' &
import socket, sys, time
s = socket.socket()
s.bind(("127.0.0.1", int(sys.argv[1])))
s.listen()
open("listening", "w").close()
time.sleep(300)
END
helpers=($!)
within test -e listening
expect 1 add-server server3 --address "127.0.0.1:$((port + 3))"
grep -q "already in use" err || fail "the reason"
cmp fs/sheaf.conf before.conf || fail "the cluster file has changed"
[ -e fs/server3 ] && fail "its storage is left"
mkdir fs/mine
expect 1 add-server server3 --address "127.0.0.1:$((port + 3))" --storage "$work/fs/mine"
[ -d fs/mine ] && [ -z "$(ls -A fs/mine)" ] || fail "a directory that was there is gone or not empty"
expect 1 add-server server3 --address "no-such-host.invalid:7430"
one_line "no-such-host.invalid"
cmp fs/sheaf.conf before.conf || fail "the cluster file has changed"
kill "${helpers[0]}"
helpers=()
expect 0 status
expect 0 add-server server3 --address "127.0.0.1:$((port + 3))"
expect 0 status

echo "a server in service is known to the metadata servers"
kill "$(cat fs/server3/sheafd.pid)"
within [ ! -e fs/server3/sheafd.pid ]
mv fs/server3 elsewhere
expect 1 format --force
one_line "server3 was in service, but its storage .*/server3 is gone or empty: is a disk not mounted?.*--emptied server3"
[ ! -e fs/server3 ] || fail "a directory was made"
mv elsewhere fs/server3

echo "a server that the metadata servers do not have gets storage beside others that run"
cp fs/sheaf.conf before.conf
printf '\n[server.4]\naddress = 127.0.0.1:%d\nstorage = server4\nroles = data\n' "$((port + 4))" >>fs/sheaf.conf
expect 0 format server4
says "server4: made the storage"
rm -r fs/server4
cp before.conf fs/sheaf.conf

echo "sheaf format makes what is missing and touches nothing else"
expect 0 stop
find fs/server0 -type f -exec cksum {} + | sort >before
rm -r fs/server3
expect 0 format
says "server0: has its storage already"
says "server3: made the storage"
find fs/server0 -type f -exec cksum {} + | sort | cmp - before || fail "storage that existed was touched"
[ -e fs/server3/sheaf.id ] || fail "no storage"
expect 0 format server0 --json
python3 -c 'import json; r = json.load(open("out")); assert r[0]["name"] == "server0" and not r[0]["made"], r' || fail json
expect 2 format --all-hosts --json
expect 2 format server0 --all-hosts
expect 1 format nosuch
one_line "has no server 'nosuch'"

echo "make up with another number of servers says that it changes nothing"
expect 0 --conf "$work/fs/sheaf.conf" start
had=$(grep -c "^.server" fs/sheaf.conf)
cp fs/sheaf.conf before.conf
BUILD=${bin%/bin} "$tree/tools/up.sh" "$work/fs" 8 >out 2>err
says "found the file system in .*/fs: it has $had servers, and SERVERS=8 changes nothing; .*add-server"
cmp fs/sheaf.conf before.conf || fail "it has changed something"
[ -d fs/mnt ] && "$sheaf" umount "$work/fs/mnt" 2>/dev/null

echo "done"
