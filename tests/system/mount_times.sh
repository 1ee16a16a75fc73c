#!/bin/bash
# Times and close-to-open through two mounts: an overwrite in place has the time of the write, also after a time in the
# future, and is seen by an open on the other mount while the clock of a server is wrong or goes back.
#
# Runs in mount and process namespaces of its own: nothing it mounts is seen outside, and all of it ends with it.
set -u
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

skip() {
	echo "$*"
	exit 77
}

if [ -z "${MOUNT_INSIDE-}" ]; then
	[ -e /dev/fuse ] || skip "there is no /dev/fuse"
	[ "$(id -u)" = 0 ] || skip "namespaces of its own need root"
	unshare --mount --pid --fork true 2>/dev/null || skip "may not make namespaces here"
	MOUNT_INSIDE=1 exec unshare --mount --pid --fork --kill-child --mount-proc --propagation private \
		bash "${BASH_SOURCE[0]}"
fi
mount -t tmpfs -o mode=755 none /mnt || exit 1
export TMPDIR=/mnt
. "$tree/tests/system/session.inc"
tidy() {
	"$sheaf" umount --lazy "$work/a" 2>/dev/null
	"$sheaf" umount --lazy "$work/b" 2>/dev/null
	cleanup
}
trap tidy EXIT

# shift_clock SECONDS: of all servers
shift_clock() {
	python3 -c 'import struct, sys
with open(sys.argv[1], "r+b") as f: f.write(struct.pack("=q", int(sys.argv[2]) * 10**9))' clock "$1"
}

# is_now FILE FORMAT: a time of it is about now
is_now() {
	local t now
	t=$(stat -c "$2" "$1") now=$(date +%s)
	[ $((t - now)) -ge -60 ] && [ $((t - now)) -le 60 ]
}

conf=$work/fs/sheaf.conf
confs=("$conf")
cc -shared -fPIC -O2 -o clock.so "$tree/tests/system/clock_shift.c" || skip "there is no compiler"
truncate -s 8 clock
expect 0 init fs --meta 2 --port "$(free_ports 2)"
CLOCK_SHIFT_FILE=$work/clock LD_PRELOAD=$work/clock.so expect 0 --conf "$conf" start
mkdir a b
expect 0 --conf "$conf" mount a
expect 0 --conf "$conf" mount b

echo "an overwrite after touch -d '+1 hour'"
head -c 200000 /dev/zero >a/f
touch -d '+1 hour' a/f
is_now a/f %Y && fail "touch set no time"
printf x | dd of=a/f bs=1 seek=70000 conv=notrunc status=none
is_now a/f %Y || fail "mtime is not that of the write"
is_now a/f %Z || fail "ctime is not that of the write"
touch -d '+1 hour' a/f
exec 5<>a/f
printf y | dd of=a/f bs=1 seek=70001 conv=notrunc,fsync status=none
is_now a/f %Y || fail "mtime of an open file is not that of the write"
exec 5>&-
sleep 1.1 # as long as attributes of the other mount may be old
is_now b/f %Y || fail "the other mount has another mtime"

for step in -20 -20 0 -1200 1200 -1200 0; do
	echo "clocks of servers are $step s off"
	cat b/f >/dev/null # its pages are cached
	shift_clock $step
	printf '%6d' $step | dd of=a/f bs=1 seek=70000 conv=notrunc status=none
	got=$(dd if=b/f bs=1 skip=70000 count=6 status=none)
	[ "$got" = "$(printf '%6d' $step)" ] || fail "the other mount reads '$got' after a close"
done
shift_clock 0

expect 0 umount a
expect 0 umount b
