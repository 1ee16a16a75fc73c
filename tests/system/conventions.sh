#!/bin/bash
# Commands do what the commands of the same names do elsewhere: ls -a -d -h, du, df, find, cp from and to pipes and with
# times, nanoseconds in JSON. cli.sh holds a first session, cp.sh the faults of copies.
set -u
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$tree/tests/system/session.inc"
unset SHEAF_CONF

port=$(free_ports 2)
expect 0 init fs --servers 2 --meta 1 --port "$port"
confs+=("$work/fs/sheaf.conf")
export SHEAF_CONF=$work/fs/sheaf.conf
expect 0 start

echo "cp from and to pipes"
seq 300000 >numbers
seq 300000 | "$sheaf" cp - sheaf:/piped 2>err || fail "cp - sheaf:/piped"
"$sheaf" cp sheaf:/piped - 2>err | cmp - numbers || fail "cp sheaf:/piped -"
"$sheaf" cp - sheaf:/from-file <numbers 2>err || fail "cp - < file"
echo first >appended
"$sheaf" cp sheaf:/piped - >>appended || fail "cp to a file that standard output appends to"
{ echo first; cat numbers; } | cmp - appended || fail "what standard output appends"
(umask 027; echo x | "$sheaf" cp - sheaf:/masked)
expect 0 stat --json /masked
python3 -c 'import json; assert json.load(open("out"))["mode"] == "0640"' || fail "the mode of what came through a pipe"
expect 0 mkdir /dir
expect 1 cp - sheaf:/dir </dev/null
one_line "sheaf:/dir: it is a directory; give what standard input holds a name"
expect 2 cp -r - sheaf:/x
one_line "without -r"
expect 2 cp - numbers sheaf:/dir
expect 1 cp sheaf:/nosuch -
one_line "sheaf:/nosuch: no such file"
yes | "$sheaf" cp - sheaf:/endless 2>err & # a signal leaves nothing
helper=$!
one_temp() {
	"$sheaf" ls -a / | grep -q sheaf-cp
}
within one_temp
kill -TERM $helper # the last of the pipeline: sheaf
wait $helper
expect 0 ls -a /
grep -q "endless\|sheaf-cp" out && fail "an interrupted copy from a pipe left something"

echo "cp --preserve keeps times and modes"
mkdir -p tree/sub
echo a >tree/a
echo b >tree/sub/b
chmod 640 tree/a
chmod 1777 tree/sub
ln -s a tree/link
touch -d "2001-02-03 04:05:06.123456789" tree/a tree/sub/b
touch -d "2002-02-03 04:05:06.5" tree/sub
touch -h -d "2003-02-03 04:05:06.5" tree/link
touch -d "2004-02-03 04:05:06.25" tree
expect 0 cp -r -p tree sheaf:/kept
expect 0 cp -r --preserve sheaf:/kept back
for f in . a sub sub/b; do
	[ "$(stat -c '%a %y' "tree/$f")" = "$(stat -c '%a %y' "back/$f")" ] || fail "$f: $(stat -c '%a %y' "back/$f")"
done
expect 0 cp -r -p sheaf:/kept sheaf:/again
expect 0 stat --json /again/a /kept/a
python3 - <<'END' || fail "nanoseconds in stat --json"
import json
a, b = [json.loads(line) for line in open("out")]
assert a["mtime_ns"] == b["mtime_ns"] and a["mtime_ns"] % 10**9 == 123456789, a
assert abs(a["mtime"] * 1e9 - a["mtime_ns"]) < 1000 and a["mode"] == "0640", a
assert isinstance(a["atime_ns"], int) and isinstance(a["ctime_ns"], int)
END
expect 0 cp tree/a sheaf:/now
expect 0 find -newer /kept/a -name now
says "^/now$"

echo "ls -a -d -h --json"
echo hidden | "$sheaf" cp - sheaf:/kept/.dot
expect 0 ls /kept
[ "$(tr '\n' ' ' <out)" = "a link sub " ] || fail "ls lists hidden names, or lacks others"
expect 0 ls -a /kept
[ "$(tr '\n' ' ' <out)" = ".dot a link sub " ] || fail "ls -a"
expect 0 ls -d /kept /kept/.dot
[ "$(tr '\n' ' ' <out)" = "/kept /kept/.dot " ] || fail "ls -d"
expect 0 ls -ld /kept
says "^drwxr-xr-x .* /kept$"
expect 0 ls -lh /piped
says " 1.[89] MiB .*piped"
expect 0 ls -a --json /kept
python3 - <<'END' || fail "ls --json"
import json
rows = [json.loads(line) for line in open("out")]
assert [r["path"] for r in rows] == ["/kept/.dot", "/kept/a", "/kept/link", "/kept/sub"], rows
assert rows[1]["size"] == 2 and rows[1]["mode"] == "0640" and rows[1]["type"] == "regular file", rows[1]
assert rows[2]["target"] == "a" and rows[3]["mode"] == "1777", rows
END
expect 0 ls --json -R /kept
grep -q '"/kept/sub/b"' out || fail "ls --json -R"

echo "find -name -type -size -mtime -newer"
# found ARGS... = NAMES
found() {
	local want=${*##*= } args=()
	while [ "$1" != = ]; do args+=("$1"); shift; done
	shift
	expect 0 find "${args[@]}"
	[ "$(sort out | tr '\n' ' ')" = "$* " ] || fail "find ${args[*]}: not $*"
}
found /kept -name 'a' = /kept/a
found /kept -name '[ab]' -type f = /kept/a /kept/sub/b
found /kept -type d = /kept /kept/sub
found --type l /kept = /kept/link
found / -size +1M -name 'piped' = /piped
found /kept -size 2c -type f = /kept/a /kept/sub/b
found /kept -size -3c -type f = /kept/a /kept/sub/b
found /kept -type f -mtime +1000 = /kept/a /kept/sub/b
found /kept -type f -mtime -1 = /kept/.dot
found /kept -type f -newer /kept/a = /kept/.dot
found /kept/sub = /kept/sub /kept/sub/b
expect 0 find --json -name a /kept
python3 -c 'import json; f = json.load(open("out"))["files"]; assert [x["path"] for x in f] == ["/kept/a"] and f[0]["size"] == 2' ||
	fail "find --json"
expect 0 find --on server0 --on server1 -name 'pip*'
[ "$(cat out)" = /piped ] || fail "find --on with -name"
for bad in "-size 5x" "-size +" "-mtime x" "-type q"; do
	expect 2 find $bad
	one_line "${bad% *} "
done
expect 1 find -newer /nosuch
one_line "/nosuch: no such file"

echo "du"
expect 0 du -s /kept --json
python3 - <<'END' || fail "du --json"
import json
row = json.load(open("out"))
assert row["path"] == "/kept" and row["bytes"] % 512 == 0, row
END
head -c 1000000 /dev/zero | "$sheaf" cp - sheaf:/dir/one
expect 0 ln /dir/one /dir/two
expect 0 du /dir
kib=$(cut -f1 out)
[ "$kib" -ge 976 ] && [ "$kib" -lt 1500 ] || fail "du counts two names of one file twice, or not at all"
expect 0 du -sh /dir
says "[0-9.]* [KM]iB	/dir$"
expect 0 du -a /dir
[ "$(wc -l <out)" = 3 ] || fail "du -a"
expect 0 du /kept
[ "$(tail -n 1 out | cut -f2)" = /kept ] && grep -q "	/kept/sub$" out || fail "du of a tree"

echo "cp -r does not write through symbolic links in its target"
mkdir -p user/dir user/plain
echo mine >user/dir/file
echo mine >user/plain/file
expect 0 mkdir -p /foreign/sub /night/user/plain
echo foreign | "$sheaf" cp - sheaf:/foreign/file
expect 0 ln -s /foreign /night/user/dir
expect 0 ln -s /foreign/file /night/user/plain/file
expect 1 cp -r user sheaf:/night
one_line "^sheaf cp: sheaf:/night/user/dir: a symbolic link"
expect 0 cat /foreign/file /night/user/plain/file
[ "$(tr '\n' ' ' <out)" = "foreign mine " ] || fail "cp -r wrote through a link inside"
mkdir -p foreign night/user/plain
echo foreign >foreign/file
ln -s "$work/foreign" night/user/dir
ln -s "$work/foreign/file" night/user/plain/file
expect 0 cp -r user sheaf:/
expect 1 cp -r sheaf:/user night
one_line "^sheaf cp: night/user/dir: a symbolic link"
[ "$(cat foreign/file night/user/plain/file | tr '\n' ' ')" = "foreign mine " ] || fail "cp -r wrote through a link outside"
# a name of an argument is no different
expect 0 ln -s /foreign/file /night/file
expect 0 ln -s /foreign /night/dir
expect 1 cp -r user/dir user/plain/file sheaf:/night
one_line "^sheaf cp: sheaf:/night/dir: a symbolic link"
expect 0 cat /foreign/file /night/file
[ "$(tr '\n' ' ' <out)" = "foreign mine " ] || fail "cp -r wrote through the link of an argument's name"
expect 0 ln -s /night /last # the last argument may be a link
expect 0 cp -r user/plain sheaf:/last
expect 0 cat /night/plain/file
expect 0 cp user/plain/file sheaf:/last
expect 0 ln -sf /foreign/file /night/file # without -r as cp(1)
expect 0 cp user/plain/file sheaf:/night
expect 0 cat /foreign/file
[ "$(cat out)" = mine ] || fail "cp without -r does not follow a link in the target directory"

echo "cp -r does not copy a directory into itself, whatever its path"
expect 0 mkdir -p /self/sub
expect 0 cp user/plain/file sheaf:/self/sub
expect 0 ln -s /self /to-self
expect 1 cp -r sheaf:/self sheaf:/to-self/copy
one_line "^sheaf cp: sheaf:/self/copy: cannot be copied into itself"
expect 0 ls -R /self/copy
[ "$(tr '\n' ' ' <out)" = "/self/copy: sub  /self/copy/sub: file " ] || fail "not what was there before"
expect 1 cp -r sheaf:/self sheaf:/self/sub sheaf:/to-self/copy # the targets of other arguments count, too
expect 1 cp -r sheaf:/self sheaf:/to-self/copy/..
one_line "into itself"
expect 0 rm -r /self

echo "deep trees do not need a deep stack"
deep=$(printf '/d%.0s' {1..600})
expect 0 mkdir -p "$deep"
echo x | "$sheaf" cp - "sheaf:$deep/file"
(
	ulimit -s 1024
	expect 0 du -s /d
	expect 0 ls -R /d
	grep -qx "$deep:" out || fail "ls -R does not list the last directory"
	expect 0 ls -lR /d
	expect 0 chmod -R go-w /d
	[ "$(id -u)" != 0 ] || expect 0 chown -R 1234 /d
	expect 0 find /d -name file
	expect 0 cp -r sheaf:/d deep
	cmp <(echo x) "deep${deep#/d}/file" || fail "a deep copy"
	expect 0 rm -r /d
) || exit 1
rm -rf deep
echo "names whose path is too long are reported"
name=/$(printf 'n%.0s' {1..200})
long=$(printf "$name%.0s" {1..15})
expect 0 mkdir -p "/long$long" "/more$long"
expect 0 mv /more "/long$long"
for command in "du" "du -s" "ls -R" "ls -lR" "ls --json -R" "chmod -R u+w"; do
	expect 1 $command /long
	one_line "the name is too long"
done
expect 0 mv "/long$long/more" /
expect 0 rm -r /long /more

echo "mv does not let one argument replace another"
expect 0 mkdir -p /m1 /m2 /old
echo 1 | "$sheaf" cp - sheaf:/m1/log
echo 2 | "$sheaf" cp - sheaf:/m2/log
expect 1 mv /m1/log /dir/one /m2/log /old
one_line "^sheaf mv: log: .*nothing was moved"
expect 0 cat /m1/log /m2/log
[ "$(tr '\n' ' ' <out)" = "1 2 " ] || fail "mv moved one of two files with one name"
expect 0 ls /old
[ -s out ] && fail "mv moved before it refused"
expect 0 mv /m1/log /old
expect 0 mv /m2/log /old # what was there before is replaced, as elsewhere
expect 0 cat /old/log
[ "$(cat out)" = 2 ] || fail "mv over an existing file"

echo "df counts like df(1)"
expect 0 df --json
# Other programs use the disk meanwhile: 1 % and 64 MiB of difference are theirs.
python3 - "$work/fs/server0" <<'END' || fail "df"
import json, os, sys
row = json.load(open("out"))["servers"][0]
v = os.statvfs(sys.argv[1])
used = (v.f_blocks - v.f_bfree) * v.f_frsize
avail = v.f_bavail * v.f_frsize
near = lambda a, b: abs(a - b) < max(a, b) / 100 + (64 << 20)
assert near(row["used_bytes"], used) and near(row["avail_bytes"], avail), (row, used, avail)
assert row["used_bytes"] + row["avail_bytes"] == row["total_bytes"], row
END

echo "local: says when it makes a file system, and only then"
expect 0 --conf "local:$work/new" ls
grep -q "^sheaf ls: made a new file system in $work/new$" err || fail "it does not say so"
expect 0 --conf "local:$work/new" ls
[ -s err ] && fail "it says so again"

echo "done"
