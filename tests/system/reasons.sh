#!/bin/bash
# Why a server is not up: each reason is produced, and each command names the server, the reason and the remedy.
# stop and start find servers without their pid files. friendly.sh holds other troubles of new users.
set -u
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$tree/tests/system/session.inc"
unset SHEAF_CONF

port=$(free_ports 4)
expect 0 init fs --servers 3 --meta 1 --port "$port"
confs+=("$work/fs/sheaf.conf")
sed -i 's/^timeout = .*/timeout = 5/' fs/sheaf.conf
export SHEAF_CONF=$work/fs/sheaf.conf
expect 0 start
seq 1000 >numbers
expect 0 cp numbers sheaf:/numbers

# down NAME WORD PATTERN: sheaf status tells both, in the table, on stderr and with --json
down() {
	expect 1 status
	says "^$1 .* down: $2 "
	one_line "^sheaf status: $1 .*down: .*$3"
	expect 1 status --json
	python3 - "$@" <<'END' || fail "status --json"
import json, re, sys
name, word, why = sys.argv[1:]
for s in json.load(open("out"))["servers"]:
    if s["name"] == name:
        assert s["up"] is False and s["down"] == word and re.search(why, s["why"]), s
    else:
        assert s["up"] is True and s["down"] is None and s["why"] is None, s
END
}

# with NAME=ADDRESS: a cluster file whose server has another address, in fs/other.conf
with_address() {
	python3 - "$1" "$2" >fs/other.conf <<'END'
import re, sys
text = open("fs/sheaf.conf").read()
head, tail = text.split("name = %s\n" % sys.argv[1])
print(head + "name = " + sys.argv[1] + "\n" + re.sub("address = .*", "address = " + sys.argv[2], tail, count=1))
END
	export SHEAF_CONF=$work/fs/other.conf
}

# impostor MODE: a process that answers HELLO as MODE says; its port is $other
impostor() {
	rm -f listens
	python3 - "$1" "$((port + 3))" <<'END' &
import os, socket, struct, sys
mode, port = sys.argv[1], int(sys.argv[2])
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", port))
s.listen(64)
open("listens", "w").close()

def welcome(status, reason):
    body = struct.pack(">iQIIQI", status, 0, 0, 0, 0, len(reason)) + reason + bytes(-len(reason) % 4)
    head = bytearray(first)
    struct.pack_into(">II", head, 4, 4, len(body))
    return bytes(head) + body

while True:
    c, _ = s.accept()
    first = c.recv(4096)[:40] # the head of HELLO
    if len(first) < 40:
        pass
    elif mode == "version":
        c.sendall(welcome(93, b"no protocol version in common: upgrade the older side"))
    elif mode == "stranger":
        c.sendall(b"220 mail.example.org ESMTP\r\n" * 4)
    c.close()
END
	helpers+=($!)
	within test -e listens
	other=127.0.0.1:$((port + 3))
}

echo "connection refused"
kill -9 "$(cat fs/server2/sheafd.pid)"
down server2 refused "connection refused.*'sheaf start'"

echo "a command says for which server it waits, and until when"
kill -9 "$(cat fs/server0/sheafd.pid)"
expect 1 ls /
grep -q "^sheaf ls: waiting for server0 (127.0.0.1:$port) for up to [0-9]* s, until ..:..:..: connection refused" err ||
	fail "it waited in silence"
one_line "^sheaf ls: /: server0 .*does not answer: connection refused.*'sheaf start'"
expect 0 start

echo "no answer: the process is stopped"
pid=$(cat fs/server1/sheafd.pid)
kill -STOP "$pid"
helpers+=("$pid")
down server1 "no answer" "hangs or is stopped.*sheafd.log"
kill -CONT "$pid"
helpers=()
within "$sheaf" status >/dev/null 2>&1

echo "unreachable: packets to its host are dropped, or there is no route"
if unshare -n true 2>/dev/null; then
	unshare -n sh -c "ip link set lo up; '$sheaf' status" >out 2>err && fail "status without a network"
	says "^server0 .* down: refused"
	ip link add use0 type dummy 2>/dev/null && ip addr add 10.99.0.1/24 dev use0 && ip link set use0 up &&
		ip neigh add 10.99.0.7 lladdr 02:00:00:00:00:07 dev use0 && {
		with_address server2 10.99.0.7:7430
		down server2 unreachable "host cannot be reached"
		ip link del use0
	}
	export SHEAF_CONF=$work/fs/sheaf.conf
fi

echo "wrong key"
cp fs/key key.saved
cp fs/server.key fs/key.other
chmod 600 fs/key.other
sed 's/^key = .*/key = key.other/' fs/sheaf.conf >fs/otherkey.conf
SHEAF_CONF=$work/fs/otherkey.conf expect 1 status
says "^server0 .* down: wrong key "
one_line "server0 .* and 2 more are down: wrong key: .*key.other is not the key of this server"
SHEAF_CONF=$work/fs/otherkey.conf expect 1 ls /
one_line "^sheaf ls: /: server0 .*cannot be used: wrong key: .*key.other"

echo "wrong server, and a wrong file system"
with_address server2 "localhost:$((port + 1))"
down server2 "wrong server" "another target of the file system.*addresses"
export SHEAF_CONF=$work/fs/sheaf.conf
sed -E 's/^id = (.)/id = \1/; s/^(id = )[0-9a-f]{8}/\100000000/' fs/sheaf.conf >fs/foreign.conf
SHEAF_CONF=$work/fs/foreign.conf expect 1 ls /
one_line "belongs to another file system: check the cluster file's id and address"
SHEAF_CONF=$work/fs/foreign.conf expect 1 status
one_line "and 2 more are down: this server belongs to another file system"

echo "a name that does not exist, at once, without a resolver, too"
with_address server0 "no_such_host..invalid:7430"
start=$SECONDS
expect 1 ls /
one_line "^sheaf ls: /: server0 .*cannot be used: the name of its host cannot be resolved"
at_most 4 $start
with_address server2 no-such-host.invalid:7430
down server2 "unknown host" "cannot be resolved"

echo "an incompatible version, and no Sheaf server"
impostor version
with_address server2 "$other"
down server2 "other version" "no protocol version in common: upgrade"
kill "${helpers[@]}"
helpers=()
impostor stranger
down server2 "no Sheaf server" "no Sheaf server: correct the address"
kill "${helpers[@]}"
helpers=()
export SHEAF_CONF=$work/fs/sheaf.conf

echo "stop and start ask the servers where pid files are missing or of other cluster files"
pid=$(cat fs/server1/sheafd.pid)
rm fs/server1/sheafd.pid
expect 0 start
says "server1 .*is already running, pid $pid"
kill -STOP "$pid"
helpers+=("$pid")
expect 1 stop
grep -q "^sheaf stop: not stopped: server1 .*does not answer" err || fail "a hung server is not told"
kill -CONT "$pid"
helpers=()
expect 0 start
cp fs/sheaf.conf fs/copy.conf
SHEAF_CONF=$work/fs/copy.conf expect 0 stop
[ "$(grep -c 'has stopped' out)" = 3 ] || fail "not all servers have stopped"
expect 0 stop
[ "$(grep -c 'is not running' out)" = 3 ] || fail "stopped servers are not told"

echo "a cluster file that is older than the servers' map"
expect 0 start
cp fs/sheaf.conf fs/old.conf
expect 0 add-server server3 --address "127.0.0.1:$((port + 3))"
export SHEAF_CONF=$work/fs/old.conf
for args in "status" "df" "requests"; do
	expect 0 $args
	one_line "^sheaf $args: the cluster file is outdated: the servers' map has 1 more server.*'sheaf map --update'"
done
expect 0 df
says "^server3 "
expect 0 status --json
python3 -c 'import json; assert json.load(open("out"))["servers"][3]["up"]' || fail "status --json without server3"
expect 0 ls /
one_line "outdated"
expect 0 map
says "^ *3  server3 .* missing"
expect 0 map --update
[ -s err ] && fail "map --update says that the file is outdated"
says "^ *3  server3 .* yes"
expect 0 map --json
python3 -c 'import json; assert json.load(open("out"))["servers"][3]["in_cluster_file"]' || fail "map --json"
expect 0 status
[ -s err ] && fail "the file is still outdated"
export SHEAF_CONF=$work/fs/sheaf.conf

echo "done"
