#!/bin/bash
# A newcomer's session with the sheaf command: make, start, look, copy in and out, stop, start again;
# the same without servers (local:DIR); wrong usage; servers that cannot start; a server that is gone.
set -u
. "$(dirname "${BASH_SOURCE[0]}")/session.inc"

echo "wrong usage is one line with a hint and exit status 2"
for args in "--nonsense" "nonsense" "ls --nonsense" "ls -x" "init" "init a b" "init x --servers 0" \
	"init x --servers 1000" "init x --port 70000" "init x --stripe-unit 5000" "cp sheaf:/a" "cp a b" \
	"rm" "mkdir" "cat" "mv /a" "stat" "status x" "start x" "selfcheck --seconds x" "ls --conf" \
	"ln /a" "chmod 644" "chmod zz /a" "chown : /a" "getfattr" "setfattr /a" "setfattr -n a -x b /c" \
	"setfattr -n user.a -v 0xzz /c" "df x"; do
	expect 2 $args
	one_line "help"
done
[ -e x ] && fail "wrong usage made something"
expect 2
"$bin/sheafd" >out 2>err
[ $? = 2 ] || fail "sheafd without arguments"
one_line "conf"
"$bin/sheafd" --conf x --server 0 --log-level loud >out 2>err
[ $? = 2 ] || fail "sheafd with a wrong level"
one_line "log-level"

echo "every command has help, and there are versions"
expect 0 --help
for cmd in $(sed -n 's/^  \([a-z]*\)  *[a-z].*/\1/p' out); do
	expect 0 "$cmd" --help
	says "usage: sheaf $cmd"
done
for args in --version -V version "ls -V" "df --version"; do
	expect 0 $args
	says "^sheaf [0-9]"
done
expect 0 -h
says "usage: sheaf "
expect 0 stat -h
says "usage: sheaf stat"

echo "a command that is misspelt is found"
for words in "lss ls" "statsu status" "mout mount" "bak bank"; do
	expect 2 ${words% *}
	one_line "did you mean '${words#* }'"
done
expect 2 nothing-like-it
one_line "there is no command 'nothing-like-it'; "
"$bin/sheafd" --version | grep -q "^sheafd [0-9]" || fail "sheafd --version"
"$bin/sheafd" --help | grep -q "usage: sheafd" || fail "sheafd --help"

echo "without a cluster file there is advice"
expect 1 ls
one_line "sheaf init"
expect 1 --conf nothere.conf ls
one_line "nothere.conf"
expect 1 status --json
python3 -c 'import json,sys; assert json.load(open("out"))["servers"] == []' || fail "status --json"

echo "of two init --hosts at once, one makes the cluster file, and the other removes nothing"
for i in {1..50}; do
	"$sheaf" init race --hosts 127.0.0.1 >/dev/null 2>&1 &
	one=$!
	"$sheaf" init race --hosts 127.0.0.1 >/dev/null 2>&1 &
	wait $one
	failed=$?
	wait $!
	failed=$((failed + $?))
	for f in sheaf.conf key server.key; do
		[ -s race/$f ] || fail "race/$f is missing"
	done
	[ $failed = 1 ] || fail "not one of two has failed, but $failed"
	rm -r race
done
expect 1 init race --hosts no-such-host.invalid
[ -e race ] && fail "a failed init left something"

echo "init, start, status"
port=$(free_ports 3)
expect 0 init fs --servers 3 --meta 3 --port "$port" --stripe-unit 64K
confs+=("$work/fs/sheaf.conf")
for f in sheaf.conf key server.key server0 server2; do
	[ -e "fs/$f" ] || fail "init did not make $f"
done
sed -i 's/^timeout = .*/timeout = 8/' fs/sheaf.conf
expect 1 init fs
one_line "fs"
export SHEAF_CONF=$work/fs/sheaf.conf
expect 1 status
says "server2 .* down"
expect 0 stop
says "server0 .*not running"
expect 0 start
[ "$(grep -c 'is up' out)" = 3 ] || fail "not one line per server"
expect 0 start
[ "$(grep -c 'already running' out)" = 3 ] || fail "a second start does not find them running"
expect 0 status
says "server1  *127.0.0.1:$((port + 1))  *up"
expect 0 status --json
python3 - "$port" "$SHEAF_CONF" <<'END' || fail "status --json"
import json, os, sys
d = json.load(open("out"))
assert d["conf"] == sys.argv[2], d["conf"]
assert len(d["servers"]) == 3
for i, s in enumerate(d["servers"]):
    assert s["name"] == f"server{i}" and s["up"] is True
    assert s["address"] == f"127.0.0.1:{int(sys.argv[1]) + i}"
    assert s["roles"] == ["meta", "data"]
    assert os.path.exists(f"/proc/{s['pid']}") and s["uptime_s"] >= 0
    assert s["pid"] == int(open(f"fs/server{i}/sheafd.pid").read())
    for key in ("rss_bytes", "anon_bytes", "requests", "space_total", "space_avail"):
        assert s[key] > 0, key
    assert s["route"] == "unix" and s["routes"] == [
        {"name": "unix", "used": True, "reason": None}, {"name": "tcp", "used": False, "reason": None}], s["routes"]
    assert s["links_unix"] >= 1, s
    for net in (s["net"], s["net_own"]):
        assert net["messages_sent"] >= 2 and net["messages_received"] >= 2 and net["calls"] > 0, net
        assert net["frames"] >= net["messages_sent"] + net["messages_received"], net
        assert net["work_requests"] == net["registrations"] == 0, net
    for key in ("links_tcp", "clients", "sessions", "accesses_requested", "accesses_performed", "accesses_merged", "vain_bytes",
                "read_modify_writes"):
        assert s[key] >= 0, key
END

echo "status tells the route, and why no better one is used"
expect 0 status
says "REQUESTS .* ROUTE"
says "server1  .* unix$"
SHEAF_NET=tcp expect 0 status
says "server1  .* tcp (unix: switched off)"
SHEAF_NET=tcp expect 0 status --json
python3 -c '
import json
for s in json.load(open("out"))["servers"]:
    assert s["route"] == "tcp" and s["links_tcp"] >= 1, s
    assert s["routes"] == [{"name": "unix", "used": False, "reason": "switched off"},
                           {"name": "tcp", "used": True, "reason": None}], s
' || fail "the routes with SHEAF_NET=tcp"
python3 - fs/sheaf.conf <<'END' || fail "the network in the metrics"
import re, sys, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
at = re.search(r"^metrics = (\S+)", open(sys.argv[1]).read(), re.M).group(1)
text = opener.open(f"http://{at}/metrics").read().decode()
value = {k: int(v) for k, v in re.findall(r"^(sheaf_(?:net|links)\S*) (\d+)$", text, re.M)}
assert {f'sheaf_links{{route="{r}"}}' for r in ("unix", "tcp", "loop")} <= value.keys(), text
assert value['sheaf_net_messages_total{direction="sent"}'] > 0 and value["sheaf_net_frames_total"] > 0, value
assert value["sheaf_net_calls_total"] > 0 and value["sheaf_net_work_requests_total"] == 0, value
assert "sheaf_net_copied_bytes_total" in value and "sheaf_net_registrations_total" in value, value
END
# an address that no server has a Unix socket for
sed "s/127\.0\.0\.1/127.0.0.01/" fs/sheaf.conf >fs/other.conf
expect 0 --conf fs/other.conf status
says "server1  .* tcp (unix: connection refused)"
rm fs/other.conf

expect 0 requests
says "OPERATION"
expect 0 requests --json
python3 -c 'import json; assert isinstance(json.load(open("out"))["requests"], list)' || fail "requests"
expect 0 selfcheck --seconds 1
says "every byte"
expect 0 status --json
python3 -c '
import json
for s in json.load(open("out"))["servers"]:
    assert s["accesses_requested"] > 0 and s["accesses_performed"] > 0, s
' || fail "the accesses are not counted"
expect 0 ls -a
[ -s out ] && fail "selfcheck left something"

mkdir -p tree/sub/deep tree/empty
head -c 10000000 /dev/urandom >tree/large
head -c 4194304 /dev/urandom >tree/block
printf 'hello\n' >tree/hello
printf '#!/bin/sh\n' >tree/sub/script
chmod 755 tree/sub/script
chmod 640 tree/hello
: >tree/sub/deep/nothing
printf x >"tree/sub/a name with spaces"

mkdir -p links/dir
printf 'linked\n' >links/dir/file
ln -s dir/file links/rel
ln -s nowhere/at/all links/dangling
ln -s .. links/dir/up

# Links, modes, owners, attributes, room.
names_session() {
	expect 0 cp -r links sheaf:/links
	expect 0 cat /links/rel /links/dir/up/rel
	printf 'linked\nlinked\n' | cmp - out || fail "cat through symbolic links"
	expect 0 ls -l /links
	says " rel -> dir/file$"
	says " dangling -> nowhere/at/all$"
	expect 0 cp -r sheaf:/links sheaf:/links2
	expect 0 cp -r sheaf:/links2 out-links
	diff -r --no-dereference links out-links || fail "symbolic links came back different"
	expect 0 cp sheaf:/links/rel followed
	cmp followed links/dir/file || fail "cp without -r follows"
	expect 0 cp tree/hello sheaf:/links/rel # what it points to
	expect 0 stat /links/rel
	says "symbolic link"
	expect 0 cat /links/dir/file
	cmp out tree/hello || fail "cp onto a symbolic link"
	expect 0 rm /links2/dir/up
	expect 0 rm -r /links2
	expect 0 ls /links/dir
	[ "$(tr '\n' ' ' <out)" = "file up " ] || fail "rm followed a symbolic link"

	expect 0 ln /links/dir/file /links/hard
	expect 0 stat --json /links/hard
	python3 -c 'import json; assert json.load(open("out"))["nlink"] == 2' || fail "nlink"
	expect 1 ln /links/dir/file /links/hard
	one_line "exists"
	expect 0 ln -f /links/dangling /links/hard
	expect 0 ls -l /links/hard
	says "-> nowhere"
	expect 1 ln /links/dir /links/x
	one_line "ln -s"
	expect 1 ln /nope /links/x
	one_line "/nope: no such"
	expect 0 ln -s ../tree/hello /links
	expect 0 cat /links/hello
	expect 0 ln -sf dir /links/hello
	expect 0 ls /links/hello
	[ "$(tr '\n' ' ' <out)" = "file up " ] || fail "ls of a link to a directory"

	expect 0 chmod 600 /links/dir/file
	expect 0 chmod u+x,g=u /links/rel
	expect 0 ls -l /links/dir/file
	says "^-rwxrwx--- 1"
	expect 0 chmod -R go-rwx,a+X /links
	expect 0 ls -l /links/dir/file
	says "^-rwx--x--x 1"
	expect 1 chmod 600 /nope
	one_line "/nope"
	if [ "$(id -u)" = 0 ]; then
		expect 0 chown -R 1234:5678 /links
		expect 0 ls -l /links
		[ "$(grep -c ' 1234 *5678 ' out)" = "$(wc -l <out)" ] || fail "chown -R"
		expect 0 stat --json /tree/hello # what the links point to is left alone
		python3 -c 'import json; assert json.load(open("out"))["uid"] == 0' || fail "chown -R followed"
		expect 0 chown root: /links/dir
		expect 0 stat --json /links/dir
		python3 -c 'import json; d = json.load(open("out")); assert (d["uid"], d["gid"]) == (0, 0)' ||
			fail "chown USER:"
		expect 1 chown no-such-user /links
		one_line "no-such-user"
	fi

	expect 0 setfattr -n user.origin -v "a \"b\"" /links/dir/file
	expect 0 setfattr -n user.bytes -v 0x00ff10 /links/rel
	expect 0 getfattr /links/dir/file
	says "^user.origin$"
	expect 0 getfattr -d /links/rel
	says '^user.origin="a \\"b\\""$'
	says "^user.bytes=0x00ff10$"
	expect 0 setfattr -x user.bytes /links/rel
	expect 1 getfattr -n user.bytes /links/rel
	one_line "no such attribute"
	expect 1 setfattr -n nonsense -v x /links/rel
	one_line "user"
	# owner rw-, user 1001 r--, group ---, mask r--, others ---
	acl=0x0200000001000600ffffffff02000400e903000004000000ffffffff10000400ffffffff20000000ffffffff
	expect 0 setfattr -n system.posix_acl_access -v $acl /links/dir/file
	expect 0 getfattr -n system.posix_acl_access /links/dir/file
	says "^system.posix_acl_access=$acl$"
	expect 0 ls -l /links/dir
	says "^-rw-r-----+ "
	expect 0 ls -l /links/dir/file
	says "^-rw-r-----+ "
	expect 0 setfattr -n system.posix_acl_default -v $acl /links/dir
	expect 0 ls -l /links
	says "^d.........+ 2"
	says "^l.........  1"
	expect 0 mkdir /links/dir/heir
	expect 0 getfattr -n system.posix_acl_default /links/dir/heir
	says "^system.posix_acl_default=$acl$"
	expect 0 rm -r /links/dir/heir
	expect 1 setfattr -n system.posix_acl_access -v 0x0200000001 /links/dir/file
	one_line "valid"
	expect 0 setfattr -x system.posix_acl_access /links/dir/file
	expect 0 setfattr -x system.posix_acl_default /links/dir

	expect 0 df
	says "^server1 .*%"
	says "^total .*%"
	expect 0 df -h
	says "iB"
	expect 0 df --json
	python3 - <<'END' || fail "df --json"
import json
d = json.load(open("out"))
assert len(d["servers"]) >= 1 and all(s["up"] and s["avail_bytes"] > 0 for s in d["servers"])
assert all(s["total_bytes"] == d["total"]["total_bytes"] for s in d["servers"])  # one disk has them all
END
	expect 0 rm -r /links
	rm -rf out-links followed
}

# The file commands, the same with servers and without.
session() {
	echo "file commands: $1"
	expect 0 cp tree/large sheaf:/large
	expect 0 cp sheaf:/large back
	cmp tree/large back || fail "a file came back different"
	expect 0 cp -r tree sheaf:/
	expect 0 cp -r sheaf:/tree out-tree
	diff -r tree out-tree || fail "a tree came back different"
	[ "$(stat -c %a out-tree/hello)" = 640 ] || fail "the mode of a file"
	[ "$(stat -c %a out-tree/sub/script)" = 755 ] || fail "the mode of a script"
	expect 0 cp -r sheaf:/tree sheaf:/copy
	expect 0 cp -r sheaf:/copy out-copy
	diff -r tree out-copy || fail "a copy inside came back different"
	expect 0 cp sheaf:/tree/hello sheaf:/tree/block .
	cmp hello tree/hello && cmp block tree/block || fail "several files into a directory"
	expect 0 cp tree/hello sheaf:/large # replaces it
	expect 0 cat /large /tree/hello sheaf:/tree/sub/script
	printf 'hello\nhello\n#!/bin/sh\n' | cmp - out || fail "cat"
	"$sheaf" cat /tree/large | cmp - tree/large || fail "cat of a large file into a pipe"
	"$sheaf" cat /tree/large | head -c 10 >/dev/null # a reader that leaves is no trouble
	printf 'from a pipe' | "$sheaf" cp /dev/stdin sheaf:/piped || fail "cp from a pipe"
	expect 0 cat /piped
	[ "$(cat out)" = "from a pipe" ] || fail "what came from a pipe"
	expect 0 cp sheaf:/piped /dev/null
	[ -c /dev/null ] || fail "cp replaced a device"

	expect 0 ls -a
	[ "$(tr '\n' ' ' <out)" = "copy large piped tree " ] || fail "ls"
	expect 0 ls -aR /tree
	(cd tree && find . -mindepth 1 -printf '%f\n' | sort) >want
	grep -v -e ':$' -e '^$' out | sort | cmp - want || fail "ls -R"
	expect 0 ls -l /tree
	says "^-rw-r----- 1 .* 6 .* hello$"
	says "^drwx.* sub$"
	expect 0 ls -l /tree/hello
	says "^-rw-r----- 1 .* /tree/hello$"

	expect 0 stat --json /tree/large
	python3 - <<'END' || fail "stat --json"
import json, time
d = json.load(open("out"))
assert d["size"] == 10000000 and d["type"] == "regular file" and d["path"] == "/tree/large"
assert abs(d["mtime"] - time.time()) < 300
END
	expect 0 stat /tree
	says "directory"
	expect 0 mkdir /new
	expect 1 mkdir /new
	one_line "/new: it exists"
	expect 0 mkdir -p /new/a/b/c /new
	expect 1 mkdir /x/y
	one_line "/x/y: no such"
	expect 0 mv /large /new/renamed
	expect 0 mv /new/renamed /piped /new/a
	expect 0 ls /new/a
	[ "$(tr '\n' ' ' <out)" = "b piped renamed " ] || fail "mv"
	expect 1 mv /nope /new
	one_line "/nope: no such"

	names_session

	expect 1 ls /nope
	one_line "^sheaf ls: /nope: no such file or directory"
	expect 1 cat /tree
	one_line "directory"
	expect 1 cat /nope /tree/hello
	one_line "/nope"
	cmp out tree/hello || fail "cat did not go on after an error"
	expect 1 cp sheaf:/nope .
	one_line "sheaf:/nope: no such"
	expect 1 cp nope sheaf:/
	one_line "nope: no such"
	expect 1 cp tree sheaf:/x
	one_line "cp -r"
	expect 1 cp -r sheaf:/tree sheaf:/tree/sub
	one_line "into itself"
	expect 1 cp sheaf:/tree/hello sheaf:/tree/hello
	one_line "same file"
	expect 1 rm /tree
	one_line "rm -r"
	expect 1 rm /nope
	one_line "/nope"
	expect 0 rm -f /nope
	expect 1 rm -r /
	expect 0 rm /tree/hello
	expect 0 rm -r /copy /new
	expect 0 ls -a
	[ "$(tr '\n' ' ' <out)" = "tree " ] || fail "rm"
	rm -rf out-tree out-copy back hello block
}
session "with servers"

one_temp() {
	"$sheaf" ls -a / | grep -q sheaf-cp
}

echo "an interrupted copy leaves nothing behind"
mkfifo pipe
"$sheaf" cp pipe sheaf:/never >out 2>err &
helper=$!
helpers=($helper)
exec 9>pipe
head -c 5000000 /dev/zero >&9
within one_temp
kill -INT $helper
wait $helper
[ $? = 130 ] || fail "not ended by the signal"
helpers=()
exec 9>&-
one_line "interrupted"
expect 0 ls -a
[ "$(tr '\n' ' ' <out)" = "tree " ] || fail "something is left"

echo "data survive a restart"
expect 0 stop
[ "$(grep -c 'has stopped' out)" = 3 ] || fail "not one line per server"
[ -e fs/server0/sheafd.pid ] && fail "the pid file is left"
expect 0 stop
[ "$(grep -c 'not running' out)" = 3 ] || fail "stop of stopped servers"
expect 0 start
cp tree/hello sheaf-hello
expect 0 cp sheaf-hello sheaf:/tree/hello
chmod 640 tree/hello
expect 0 cp -r sheaf:/tree after
diff -r tree after || fail "the tree changed over a restart"

echo "a server that is gone is named, with the cure"
pid=$(cat fs/server1/sheafd.pid)
kill -9 "$pid"
expect 1 cat /tree/large
one_line "server1 (127.0.0.1:$((port + 1))) does not answer.*sheaf start"
expect 1 status --json
python3 - <<'END' || fail "status --json of a dead server"
import json
servers = json.load(open("out"))["servers"]
assert [s["up"] for s in servers] == [True, False, True], servers
assert servers[1]["route"] is None and servers[1]["links_unix"] is servers[1]["net"] is None, servers[1]
assert [r["reason"] for r in servers[1]["routes"]] == ["connection refused"] * 2, servers[1]
END
expect 1 df
one_line "server1 .*does not answer"
says "(down)"
expect 0 start
[ "$(grep -c 'already running' out)" = 2 ] && says "server1 .* is up" || fail "start of the dead one"
"$sheaf" cat /tree/large | cmp - tree/large || fail "data after kill -9"
for _ in 1 2 3 4 5 6 7 8 9 10; do # a start finds the process while it ends
	kill -9 "$(cat fs/server1/sheafd.pid)"
	expect 0 start
	says "server1 .* is up" || fail "start at once after a kill"
done
expect 0 stop

echo "local:DIR needs no servers"
export SHEAF_CONF=local:$work/embedded
session "local:DIR"
expect 1 start
one_line "embedded/sheaf.conf start"
expect 0 --conf "local:$work/embedded" status --json
python3 -c 'import json; assert all(s["up"] for s in json.load(open("out"))["servers"])' || fail "status"
export SHEAF_CONF=

echo "servers that cannot start say why in one line"
port=$(free_ports 2)
conf=bad/sheaf.conf
expect 0 init bad --servers 1 --port "$port"
expect 0 init other --servers 1 --port $((port + 1))
confs+=("$work/bad/sheaf.conf" "$work/other/sheaf.conf")
cp $conf good.conf
expect_no_start() {
	expect 1 --conf $conf start
	one_line "$1"
	"$bin/sheafd" --conf $conf --server 0 >out 2>err
	[ $? = 1 ] || fail "sheafd's exit status"
	one_line "^sheafd: .*$1"
}
python3 - "$port" <<'END' &
import socket, sys, time
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", int(sys.argv[1])))
s.listen()
open("listening", "w").close()
time.sleep(60)
END
helper=$!
helpers=($helper)
while [ ! -e listening ]; do sleep 0.05; done
expect_no_start "127.0.0.1:$port"
kill $helper
wait $helper 2>/dev/null
helpers=()
sed -i "s|^storage = .*|storage = $work/other/server0|" $conf
expect_no_start "other/server0"
sed -i "s|^storage = .*|storage = nothere|" $conf
expect_no_start "nothere"
cp good.conf $conf
cp bad/server0/sheaf.id id
printf 'garbage' | dd of=bad/server0/sheaf.id bs=1 seek=3 conv=notrunc status=none
expect_no_start "sheaf.id"
cp id bad/server0/sheaf.id
for key in key server.key; do
	mv bad/$key saved
	expect_no_start "bad/$key"
	mv saved bad/$key
done
echo "nonsense = 1" >>$conf
expect_no_start "sheaf.conf:[0-9]*: .*nonsense"
cp good.conf $conf
"$bin/sheafd" --conf $conf --server server7 >out 2>err
[ $? = 1 ] || fail "an unknown server"
one_line "server7"
expect 0 --conf $conf start # nothing was harmed
expect 0 --conf $conf stop

echo "done"
