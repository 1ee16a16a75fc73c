#!/bin/bash
# sheaf mount and sheaf umount as people and mount(8) use them: words when it cannot be, foreground and background,
# busy and dead mounts, options, two mounts, users without privileges, fstab. What programs see inside is tested elsewhere.
#
# Runs in mount and process namespaces of its own: nothing it mounts is seen outside, and all of it ends with it.
set -u
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

skip() {
	echo "$*"
	exit 77
}

if [ -z "${MOUNT_CLI_INSIDE-}" ]; then
	[ -e /dev/fuse ] || skip "there is no /dev/fuse"
	[ "$(id -u)" = 0 ] || skip "namespaces of its own need root"
	unshare --mount --pid --fork true 2>/dev/null || skip "may not make namespaces here"
	MOUNT_CLI_INSIDE=1 exec unshare --mount --pid --fork --kill-child --mount-proc --propagation private \
		bash "${BASH_SOURCE[0]}"
fi
# a place that other users can reach
mount -t tmpfs -o mode=755 none /mnt || exit 1
if [ ! -e /etc/mtab ]; then # a bare system, and fusermount3 looks for it
	{ cp -a /etc /mnt/etc && ln -s /proc/self/mounts /mnt/etc/mtab && mount --bind /mnt/etc /etc; } || exit 1
fi
export TMPDIR=/mnt
. "$tree/tests/system/session.inc"
unset SHEAF_CONF
tidy() {
	local d
	while read -r _ d _; do
		[[ $d == "$work"/* || $d == /sbin || $d == /usr/sbin ]] && umount -l "$d"
	done < <(tac /proc/mounts)
	cleanup
}
trap tidy EXIT
chmod 755 .

is_mounted() {
	grep -q " $work/$1 fuse.sheaf " /proc/mounts
}
not_mounted() {
	! is_mounted "$1"
}
has_option() {
	grep -Eq " $work/$1 fuse.sheaf ([^ ]*,)?$2[, ]" /proc/mounts
}
no_daemon() {
	[ -z "$(pgrep -x -r S,R,D sheaf-mount)" ]
}
ms() {
	echo $(($(date +%s%N) / 1000000))
}
# takes MIN MAX ARGS...: sheaf fails within so many seconds
takes() {
	local min=$1 max=$2 from took
	shift 2
	from=$(ms)
	expect "$@"
	took=$(($(ms) - from))
	((took >= min * 1000 - 100 && took <= max * 1000)) || fail "sheaf $* took $took ms, not $min to $max s"
}
as() { # as UID COMMAND...
	local uid=$1
	shift
	setpriv --reuid="$uid" --regid="$uid" --clear-groups env HOME="$work" "$@"
}

mkdir mnt two user
touch file
port=$(free_ports 4)
expect 0 init fs --servers 2 --meta 2 --port "$port"
confs+=("$work/fs/sheaf.conf")
sed -i "s/^timeout = .*/timeout = 3/; s/^\\(metrics = .*:\\)$((port + 1000))$/\\1$((port + 2))/
	s/^\\(metrics = .*:\\)$((port + 1001))$/\\1$((port + 3))/" fs/sheaf.conf
sed 's/^timeout = .*/timeout = 60/' fs/sheaf.conf >fs/patient.conf
conf=$work/fs/sheaf.conf

echo "wrong usage and wrong options: one line, exit status 2, and nobody is waited for"
for args in "mount" "mount a b" "mount --nonsense mnt" "umount" "umount a b" "umount -x mnt"; do
	expect 2 $args
	one_line "help"
done
for o in nonsense ro,nonsense=3 entry=x entry=-1 attr= attr=1e9 memory=1M memory=x; do
	takes 0 50 2 --conf fs/patient.conf mount -o "$o" mnt
	one_line "${o##*,}"
done
expect 0 mount --help
says "usage: sheaf mount \[-f\] \[-o OPTIONS\] DIR"
says "sheaf-mount(8)"
expect 0 umount --help
says "usage: sheaf umount"

echo "what cannot be is one line with the reason, exit status 1"
expect 1 --conf "$conf" mount nodir
one_line "nodir: no such file or directory"
expect 1 --conf "$conf" mount file
one_line "$work/file is not a directory"
expect 1 --conf nowhere.conf mount mnt
one_line "nowhere.conf: no such cluster file"
expect 1 mount mnt
one_line "sheaf init"
expect 1 --conf file mount mnt
one_line "file"
expect 1 umount mnt
one_line "$work/mnt is not a mounted Sheaf file system"
expect 1 umount nodir
one_line "nodir: no such file or directory"
expect 1 mount --takeover mnt
one_line "$work/mnt is not a mounted sheaf file system"

echo "servers that are down are waited for as long as timeout says; Ctrl-C ends the wait"
takes 3 50 1 --conf "$conf" mount mnt
one_line "$conf: .*'sheaf status' shows which servers are up"
for how in "" -f; do
	env --default-signal=INT "$sheaf" --conf fs/patient.conf mount $how mnt 2>err &
	helper=$!
	helpers=($helper)
	within pgrep -x sheaf-mount >/dev/null
	kill -INT $helper
	wait $helper
	[ $? = 130 ] || fail "mount $how after Ctrl-C"
	helpers=()
	within no_daemon
	is_mounted mnt && fail "mounted all the same"
done

echo "in the background: it is there when the command returns, and gone after umount"
expect 0 --conf "$conf" start
expect 0 --conf "$conf" mount mnt
[ -s out ] || [ -s err ] && fail "mount has something to say"
grep -q "^$conf $work/mnt fuse.sheaf rw,nosuid,nodev,.*allow_other" /proc/mounts || fail "how it is mounted"

echo "cp -r does not copy a directory into itself through the mount"
for args in "sheaf:/own mnt/own/sub" "mnt/own sheaf:/own/sub"; do
	mkdir -p mnt/own/sub
	echo x >mnt/own/file
	expect 1 --conf "$conf" cp -r $args
	one_line "/own/sub/own: cannot be copied into itself"
	[ "$(ls -A mnt/own/sub/own | tr '\n' ' ')" = "file sub " ] && [ -z "$(ls -A mnt/own/sub/own/sub)" ] ||
		fail "not what was there before"
	rm -r mnt/own
done

echo "a mount that waits for a server says so in its log and in sheaf status"
# What requests wait for as long as `timeout`, so look while one waits.
status_tells_waits() {
	timeout 20 stat -c %s "mnt/none$((++tries))" >/dev/null 2>&1 &
	"$sheaf" --conf "$conf" status >out 2>err
	"$sheaf" --conf "$conf" status --json >out.json 2>err
	wait $!
	grep -q "^mount $work/mnt waits for server0 (127.0.0.1:$port): [0-9]* s so far, [0-9]* s left: .*hangs" out &&
		python3 -c 'import json
w = json.load(open("out.json"))["mount_waits"][0]
assert w["server"] == "server0" and w["waited_s"] >= 1 and "hangs" in w["why"], w'
}
tries=0
"$sheaf" --conf "$conf" umount mnt
"$sheaf" --conf "$conf" mount -o log="$work/waits.log" mnt || fail "mount with a log"
kill -STOP "$(cat fs/server0/sheafd.pid)"
helpers=("$(cat fs/server0/sheafd.pid)")
within status_tells_waits
kill -CONT "${helpers[0]}"
helpers=()
within "$sheaf" --conf "$conf" status >out
grep -q "requests wait for server0 (127.0.0.1:$port), until .*hangs" waits.log || fail "the log of the mount"
within grep -q "no request waits for server0 any more" waits.log
"$sheaf" --conf "$conf" umount mnt
"$sheaf" --conf "$conf" mount mnt || fail "mount again"
head -c 3000000 /dev/urandom >data
cp data mnt/data || fail cp
expect 0 --conf "$conf" cat /data
cmp out data || fail "what was written through the mount"
daemon=$(pgrep -o -x sheaf-mount)
[ "$(readlink "/proc/$daemon/cwd")" = / ] || fail "the daemon keeps a directory busy"
for fd in 0 1 2; do
	[ "$(readlink "/proc/$daemon/fd/$fd")" = /dev/null ] || fail "the daemon keeps descriptor $fd"
done
expect 1 --conf "$conf" mount mnt
one_line "$work/mnt: it is a mounted Sheaf file system already"
expect 0 umount mnt
not_mounted mnt || fail "still mounted"
within no_daemon # nor its watcher

echo "in the foreground: Ctrl-C and SIGTERM unmount"
for sig in INT TERM; do
	env --default-signal=INT "$sheaf" --conf "$conf" mount -f mnt 2>err &
	helper=$!
	helpers=($helper)
	within is_mounted mnt
	within grep -q "$work/mnt is mounted; Ctrl-C unmounts it" err
	cmp mnt/data data || fail "data"
	kill -$sig $helper
	wait $helper || fail "the end by SIG$sig"
	helpers=()
	not_mounted mnt || fail "SIG$sig left the mount"
	within no_daemon
done

echo "a busy mount stays, --lazy takes it away, who uses it goes on"
expect 0 --conf "$conf" mount mnt
exec 5<mnt/data
expect 1 umount mnt
one_line "$work/mnt is in use ('fuser -vm $work/mnt' .*--lazy"
cmp mnt/data data || fail "a umount that failed hurt"
expect 0 umount --lazy mnt
not_mounted mnt || fail "still mounted"
cmp - data <&5 || fail "who uses it is cut off"
no_daemon && fail "the daemon did not wait"
exec 5<&-
within no_daemon

echo "a daemon that is killed: the mount is gone within a second"
expect 0 --conf "$conf" mount mnt
start=$SECONDS
kill -9 "$(pgrep -o -x sheaf-mount)"
within not_mounted mnt
at_most 1 $start
ls mnt >/dev/null || fail "the directory is dead"
within no_daemon
expect 0 --conf "$conf" mount mnt
read -r daemon watcher < <(pgrep -x sheaf-mount | paste -s -d ' ')
kill -9 "$watcher" "$daemon"
within no_daemon
expect 1 --conf "$conf" mount mnt
one_line "$work/mnt: .*its daemon has died: 'sheaf umount' removes the mount"
expect 0 umount mnt
not_mounted mnt || fail "a dead mount stays"

echo "two mounts of one file system"
expect 0 --conf "$conf" mount mnt
expect 0 --conf "$conf" mount two
mkdir mnt/dir && cp data mnt/dir/one || fail "writing"
cmp two/dir/one data || fail "the other mount reads something else"
echo short >two/dir/one
[ "$(cat mnt/dir/one)" = short ] || fail "an old content"
mv two/dir/one two/dir/other
[ -e mnt/dir/one ] && fail "a name that is gone"
[ "$(cat mnt/dir/other)" = short ] || fail "a new name"
exec 5>>two/log 6>>mnt/log
for i in 1 2 3; do
	echo a$i >&5
	echo b$i >&6
done
exec 5>&- 6>&-
[ "$(cat mnt/log | paste -s -d,)" = a1,b1,a2,b2,a3,b3 ] || fail "appends"
flock mnt/log true || fail flock
flock mnt/log flock -n two/log true && fail "both have the lock"
expect 0 umount two
expect 0 umount mnt

echo "what a directory has comes with the answers to changes in it: nobody asks; others' changes are seen within attr="
getattrs() { # that the servers were asked so far
	sed -n 's/^metrics = //p' fs/sheaf.conf | no_proxy='*' python3 -c '
import re, sys, urllib.request
text = "".join(urllib.request.urlopen(f"http://{a.strip()}/metrics").read().decode() for a in sys.stdin)
print(sum(int(n) for n in re.findall(r"request_seconds_count.op=\"getattr\". (\d+)", text)))'
}
makes() { # makes N: so many files come and go
	python3 -c '
import os, sys
for i in range(int(sys.argv[1])):
    os.close(os.open(f"mnt/dir/deep/{i}", os.O_CREAT | os.O_EXCL | os.O_RDWR))
for i in range(int(sys.argv[1])):
    os.unlink(f"mnt/dir/deep/{i}")' "$1" || fail "making files"
}
expect 0 --conf "$conf" mount -o attr=3,entry=3 mnt
expect 0 --conf "$conf" mount two
mkdir mnt/dir/deep
was=$(getattrs)
makes 1000
now=$(getattrs)
((now - was < 50)) || fail "$((now - was)) requests for attributes, 2,000 changes"
was=$(stat -c %y two/dir/deep)
touch mnt/dir/deep/here
[ "$(stat -c %y mnt/dir/deep)" = "$(stat --cached=never -c %y mnt/dir/deep)" ] || fail "two answers"
[ "$(stat -c %y mnt/dir/deep)" = "$was" ] && fail "its own change is not seen"
start=$SECONDS
touch two/dir/deep/there
sleep 2
stat --cached=never mnt/dir/deep >/dev/null # what is remembered does not become younger by it
until [ "$(stat -c %y mnt/dir/deep)" = "$(stat -c %y two/dir/deep)" ]; do
	at_most 60 $start
	sleep 0.05
done
at_most 4 $start # attr=3
expect 0 umount two
expect 0 umount mnt
expect 0 --conf "$conf" mount -o attr=0,nodirect mnt
was=$(getattrs)
makes 100
now=$(getattrs)
((now - was >= 200)) || fail "attr=0: $((now - was)) requests for attributes, 200 changes"
rm -r mnt/dir/deep
expect 0 umount mnt

echo "options: ro, access times, suid and dev"
expect 0 --conf "$conf" mount -o ro -o noatime,_netdev,x-whatever=1 mnt
has_option mnt ro || fail "not read only"
touch mnt/new 2>err && fail "a read-only mount was written"
grep -q "Read-only file system" err || fail "what touch says"
read_at() { # how long ago a file was read
	"$sheaf" --conf "$conf" stat --json "$1" | python3 -c 'import json, sys; print(json.load(sys.stdin)["atime"])'
}
cat mnt/data >/dev/null
was=$(read_at /data)
expect 0 umount mnt
for mode in noatime:same strictatime:other; do
	expect 0 --conf "$conf" mount -o "${mode%:*}" mnt
	cat mnt/data >/dev/null
	expect 0 umount mnt
	now=$(read_at /data)
	case $mode:$([ "$now" = "$was" ] && echo same) in
	noatime:same:same | strictatime:other:) ;;
	*) fail "${mode%:*}: $was, then $now" ;;
	esac
done
was=$(read_at /data)
expect 0 --conf "$conf" mount mnt # relatime: it was read since it was written
cat mnt/data >/dev/null
expect 0 umount mnt
[ "$(read_at /data)" = "$was" ] || fail "relatime set a time for nothing"
expect 0 --conf "$conf" mount -o strictatime,lazytime mnt # each read that is passed on, and each listing
python3 - <<'END' || fail "strictatime"
import mmap, os, time

def reads(flags):
    """How many access times three reads through one open make."""
    buf, seen = mmap.mmap(-1, 4096), []
    fd = os.open("mnt/data", os.O_RDONLY | os.O_DIRECT | flags)
    for i in range(3):
        time.sleep(0.02)
        os.preadv(fd, [buf], 0)
        seen.append(os.stat(fd).st_atime_ns)
    os.close(fd)
    return len(set(seen))

def lists():
    fd, seen = os.open("mnt/dir", os.O_RDONLY | os.O_DIRECTORY), []
    for i in range(3):
        time.sleep(0.02)
        os.lseek(fd, 0, os.SEEK_SET)
        os.listdir(fd)
        seen.append(os.stat(fd).st_atime_ns)
    os.close(fd)
    return len(set(seen))

assert reads(0) == 3, "each read sets the time"
assert reads(os.O_NOATIME) == 1, "O_NOATIME"
assert lists() == 3, "each listing sets the time"
END
expect 0 umount mnt
expect 0 --conf "$conf" mount -o strictatime,nodiratime mnt
was=$(read_at /dir)
ls mnt/dir >/dev/null
[ "$(read_at /dir)" = "$was" ] || fail "nodiratime"
was=$(read_at /data)
dd if=mnt/data of=/dev/null bs=4096 count=1 iflag=direct 2>/dev/null
[ "$(read_at /data)" = "$was" ] && fail "nodiratime is not noatime"
expect 0 umount mnt
expect 0 --conf "$conf" mount -o ro,strictatime mnt
was=$(read_at /data)
cat mnt/data >/dev/null
[ "$(read_at /data)" = "$was" ] || fail "a read-only mount sets a time"
expect 0 umount mnt
expect 0 --conf "$conf" mount -o suid,dev,entry=0,attr=0.5,memory=8M mnt
has_option mnt nosuid && fail "suid"
has_option mnt nodev && fail "dev"
cmp mnt/data data || fail "data with little memory"

echo "other users in root's mount: as the modes say"
mkdir mnt/theirs && chown 65534:65534 mnt/theirs || fail chown
as 65534 sh -c 'echo mine >mnt/theirs/file && cat mnt/theirs/file && cat mnt/data >/dev/null' >out || fail "another user"
[ "$(stat -c %u:%g:%a mnt/theirs/file)" = 65534:65534:644 ] || fail "whose file it is"
as 65534 sh -c 'echo x >mnt/dir/file' 2>/dev/null && fail "another user writes where he may not"
chmod 600 mnt/data
as 65534 cat mnt/data 2>/dev/null && fail "another user reads what he may not"
expect 0 umount mnt

echo "writeback: nobody gets more than the servers give him; who may only write, writes"
expect 0 --conf "$conf" mount -o writeback,attr=60,entry=60 mnt
expect 0 --conf "$conf" mount two
python3 - <<'END' || fail "permissions with writeback"
import os, sys

os.mkdir("mnt/wb")
os.chmod("mnt/wb", 0o777)
TEXT = b"0123456789" * 1000

def make(name, mode, uid=0):
    with open(f"mnt/wb/{name}", "wb") as f:
        f.write(TEXT)
    os.chown(f"mnt/wb/{name}", uid, uid)
    os.chmod(f"mnt/wb/{name}", mode)

def content(name):
    with open(f"two/wb/{name}", "rb") as f:
        return f.read()

def as_user(what):
    """In a process of user 65534; its exit status says whether all went as expected."""
    pid = os.fork()
    if not pid:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        try:
            what()
        except BaseException as e:
            print(e, file=sys.stderr)
            os._exit(1)
        os._exit(0)
    if os.waitpid(pid, 0)[1]:
        sys.exit(f"{what.__name__}: another user")

def refused(path, flags, name=""):
    try:
        os.close(os.open(path, flags, 0o600))
    except PermissionError:
        return
    raise AssertionError(f"{name or path}: opened with {flags:#o}")

WAYS = [os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC, os.O_WRONLY | os.O_APPEND, os.O_WRONLY | os.O_CREAT]

make("closed", 0o600)
make("readable", 0o644)
make("drop", 0o222)
make("mine", 0o200, 65534)

def modes():
    for flags in WAYS:
        refused("mnt/wb/closed", flags)
        if flags != os.O_RDONLY:
            refused("mnt/wb/readable", flags)
    assert open("mnt/wb/readable", "rb").read() == TEXT
    for name in "drop", "mine":
        refused(f"mnt/wb/{name}", os.O_RDONLY)
        refused(f"mnt/wb/{name}", os.O_RDWR)
        fd = os.open(f"mnt/wb/{name}", os.O_WRONLY)
        assert os.pwrite(fd, b"abc", 5001) == 3
        try:
            os.read(fd, 1)
            raise AssertionError("a write-only file was read")
        except OSError:
            pass
        os.close(fd)
        fd = os.open(f"mnt/wb/{name}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        assert os.write(fd, b"end") == 3
        os.close(fd)
    fd = os.open("mnt/wb/new", os.O_WRONLY | os.O_CREAT, 0o200)
    os.pwrite(fd, b"x", 3)
    os.pwrite(fd, b"y", 1)
    os.close(fd)

as_user(modes)
for name in "drop", "mine":
    assert content(name) == TEXT[:5001] + b"abc" + TEXT[5004:] + b"end", name
assert content("closed") == TEXT and content("readable") == TEXT
assert content("new") == b"\0y\0x"

# the kernel of this mount still believes the old mode: an O_PATH descriptor is opened without another lookup
for name in "revoked", "shared":
    make(name, 0o666)

fds = {name: os.open(f"mnt/wb/{name}", os.O_PATH) for name in ("revoked", "shared")}
for fd in fds.values():
    os.stat(fd)
os.chmod("two/wb/revoked", 0o600)
os.chmod("two/wb/shared", 0o222)

def revoked():
    for flags in WAYS[:5]:
        refused(f"/proc/self/fd/{fds['revoked']}", flags, "revoked")
    for flags in os.O_RDONLY, os.O_RDWR:
        refused(f"/proc/self/fd/{fds['shared']}", flags, "shared")
    fd = os.open(f"/proc/self/fd/{fds['shared']}", os.O_WRONLY)
    os.pwrite(fd, b"abc", 5001)
    os.close(fd)

as_user(revoked)
assert content("revoked") == TEXT
assert content("shared") == TEXT[:5001] + b"abc" + TEXT[5004:]
END
rm -r mnt/wb
expect 0 umount two
expect 0 umount mnt

echo "no /dev/fuse"
unshare --mount bash -c 'mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && mknod -m 666 /dev/urandom c 1 9 &&
	"$0" --conf "$1" mount mnt 2>err' "$sheaf" "$conf"
[ $? = 1 ] || fail "exit status without /dev/fuse"
one_line "$work/mnt could not be mounted: there is no /dev/fuse here; 'modprobe fuse'"

echo "local:DIR: one process at a time; umount(8) and at once a mount again"
for i in 1 2 3; do
	expect 0 --conf "local:$work/own" mount mnt
	echo $i >>mnt/file
	umount mnt || fail "umount(8)"
done
expect 0 --conf "local:own" mount mnt # relative to where we are
[ "$(paste -s -d, mnt/file)" = 1,2,3 ] || fail "local:DIR"
expect 1 --conf "local:$work/own" ls /
one_line "in use by another process"
expect 0 umount mnt
expect 0 --conf "local:$work/own" cat /file

echo "mount -t fuse.sheaf, fstab"
mkdir -p prefix/sbin sbin
cp "$tree/dist/mount.fuse.sheaf" prefix/sbin/
ln -s "$bin" prefix/bin
ln -s "$work/prefix/sbin/mount.fuse.sheaf" sbin/
mount --bind sbin /sbin || fail "bind /sbin"
mount -t fuse.sheaf "$conf" mnt -o ro,attr=5 || fail "mount -t fuse.sheaf"
has_option mnt ro || fail "its options"
cmp mnt/data data || fail "data"
umount mnt || fail "umount(8)"
mount -t fuse.sheaf "local:$work/own" mnt || fail "mount -t fuse.sheaf local:"
umount mnt || fail "umount(8)"
mount -t fuse.sheaf "$work/no.conf" mnt 2>err && fail "no cluster file"
one_line "no.conf: no such cluster file"
mount -t fuse.sheaf "$conf" mnt -o nonsense 2>err && fail "a wrong option"
one_line "nonsense"
cat >fstab <<END
$conf $work/mnt fuse.sheaf noauto,noatime,_netdev,nofail,x-systemd.automount 0 0
local:$work/theirs $work/user fuse.sheaf noauto,user 0 0
END
mount -T fstab "$work/mnt" || fail "mount by fstab"
is_mounted mnt || fail "not mounted"

echo "remount: read only and back, by mount(8), by fstab and by sheaf mount"
exec 5>mnt/writing
mount -o remount,ro "$work/mnt" 2>err && fail "remounted under a writer"
grep -q "$work/mnt has files that are open for writing ('fuser -vm $work/mnt' lists the processes)" err || fail "why not"
echo "$LINENO" >&5 || fail "the writer is hurt"
exec 5>&-
for how in "mount -o remount,ro $work/mnt" "mount -T fstab -o remount,ro $work/mnt" "$sheaf mount -o remount,ro mnt"; do
	$how || fail "$how"
	has_option mnt ro && has_option mnt nosuid && has_option mnt nodev || fail "its options after $how"
	touch mnt/new 2>/dev/null && fail "written after $how"
	cmp mnt/data data || fail "data after $how"
	${how/,ro/,rw} || fail "${how/,ro/,rw}"
	has_option mnt rw && has_option mnt nosuid && has_option mnt nodev || fail "its options after ${how/,ro/,rw}"
	touch mnt/new && rm mnt/new || fail "not written after ${how/,ro/,rw}"
done
expect 0 mount -o remount,ro,attr=5 mnt
one_line "a remount does not change 'attr=5'; unmount and mount for that"
expect 0 mount --takeover mnt
has_option mnt ro || fail "writable after a takeover"
expect 0 mount -o remount,rw,noexec mnt
has_option mnt noexec || fail "noexec"
as 65534 "$sheaf" mount -o remount,ro mnt 2>err && fail "anybody may remount"
one_line "$work/mnt can be remounted by root only; 'sheaf umount' and 'sheaf mount -o ro' do the same"
expect 1 mount -o remount,ro two
one_line "$work/two is not a mounted Sheaf file system"
umount mnt || fail "umount(8)"
expect 0 --conf "$conf" mount -o strictatime mnt # no times while it is read only
expect 0 mount -o remount,ro mnt
was=$(read_at /data)
dd if=mnt/data of=/dev/null bs=4096 count=1 iflag=direct 2>/dev/null
[ "$(read_at /data)" = "$was" ] || fail "a time was set on a read-only mount"
expect 0 mount -o remount,rw mnt
dd if=mnt/data of=/dev/null bs=4096 count=1 iflag=direct 2>/dev/null
[ "$(read_at /data)" = "$was" ] && fail "no time was set on a writable mount"
umount mnt || fail "umount(8)"

fusermount=$(command -v fusermount3) && [ -u "$fusermount" ] && [ -e /etc/fuse.conf ] || {
	echo "(fusermount3 is not set-uid here: users without privileges were not tried)"
	exit 0
}
echo "users without privileges: a device that is closed to them, and one that is open"
mkdir dev theirs
chown 65534:65534 user theirs
mount -t tmpfs none dev
mknod -m 600 dev/fuse c 10 229
mount --bind dev/fuse /dev/fuse
: >fuse.conf
mount --bind fuse.conf /etc/fuse.conf
nobody() { # nobody STATUS ARGS...: as expect
	local want=$1 got
	shift
	as 65534 "$sheaf" "$@" >out 2>err
	got=$?
	[ $got = "$want" ] || fail "nobody's sheaf $*: exit status $got, expected $want"
}
nobody 1 --conf "local:$work/theirs" mount user
grep -q "^sheaf mount: $work/user could not be mounted: this user may not open /dev/fuse" err || fail "the reason"
chmod 666 dev/fuse
nobody 0 --conf "local:$work/theirs" mount -o suid,dev user
has_option user nosuid && has_option user nodev || fail "suid and dev for somebody without privileges"
as 65534 sh -c 'cp data user/data && cmp user/data data && mkdir user/d && cp /bin/true user/d/ && chmod 111 user/d/true &&
	user/d/true' || fail "a mount of one's own"
cat user/data 2>/dev/null && fail "root looks into it"
nobody 1 --conf "local:$work/theirs" mount user
one_line "already"
nobody 0 umount user
not_mounted user || fail "still mounted"
within no_daemon
nobody 1 --conf "local:$work/theirs" mount -o allow_other user
grep -q user_allow_other err || fail "why allow_other is refused"
echo user_allow_other >fuse.conf
nobody 0 --conf "local:$work/theirs" mount -o allow_other user
cmp user/data data || fail "allow_other"
nobody 0 umount user
nobody 1 --conf "local:$work/theirs" mount mnt
grep -q "$work/mnt could not be mounted" err || fail "a directory of somebody else"
nobody 0 --conf "local:$work/theirs" mount user
start=$SECONDS
kill -9 "$(pgrep -o -x sheaf-mount)"
within not_mounted user
at_most 1 $start

echo "a key for one user"
expect 0 --conf "$conf" key nobody --uid 65534 --gid 65534
chown 65534 fs/nobody.key
chmod 755 fs
nobody 0 --conf "$conf" mount user
as 65534 sh -c 'cat user/theirs/file && echo more >>user/theirs/file && ls -l user/theirs && rm user/theirs/file' >out ||
	fail "with a key for one user"
says mine
nobody 0 umount user
grep "refused (credential)" fs/server?/sheafd.log && fail "it spoke for somebody else"

if [ -u "$(command -v mount)" ] && [ -e /etc/fstab ]; then
	echo "a user's line in fstab"
	mount --bind fstab /etc/fstab
	as 65534 mount user 2>err || fail "mount as a user"
	has_option user noexec || fail "what mount(8) adds for users"
	cmp <(as 65534 cat user/data) data || fail "data"
	as 65534 umount user 2>err || fail "umount as a user"
	not_mounted user || fail "still mounted"
fi
expect 0 --conf "$conf" check
echo "done"
