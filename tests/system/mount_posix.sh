#!/bin/bash
# Two mounts of one file system, and programs on them: a conformance test as root and as somebody else, a random tester
# against a model, appenders, and what people do all day. MOUNT_OPS is how many operations of the random tester.
# SHEAF_TEST_LONG=1 (make check-long) adds PostgreSQL where it is installed, 100,000 entries, the limit of links and
# 300,000 operations; MOUNT_LONG=1 does the same and fails where a tool is missing. MOUNT_BANK=1: through a cache bank
# that is always asked (mount_bank.sh).
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
mount -t tmpfs -o mode=755 none /mnt || exit 1 # a place that other users can reach
export TMPDIR=/mnt
. "$tree/tests/system/session.inc"
chmod 755 .
tidy() {
	"$sheaf" umount --lazy "$work/a" 2>/dev/null
	"$sheaf" umount --lazy "$work/b" 2>/dev/null
	[ -z "${MOUNT_BANK-}" ] || "$sheaf" --conf "$conf" bank stop >/dev/null
	cleanup
}
trap tidy EXIT

long=${MOUNT_LONG-${SHEAF_TEST_LONG-}}
ops=${MOUNT_OPS:-$([ -n "$long" ] && echo 300000 || echo 20000)}
lacks=tmpfile,collapse,whiteout,btime
conf=$work/fs/sheaf.conf
confs=("$conf")
expect 0 init fs --meta 4 --port "$(free_ports 4)"
if [ -n "${MOUNT_BANK-}" ]; then
	printf '\n[bank]\nservers = 127.0.0.1:%s\n' "$(free_ports 1)" >>"$conf"
	expect 0 --conf "$conf" bank start
	export SHEAF_BANK=always
fi
expect 0 --conf "$conf" start
mkdir a b
expect 0 --conf "$conf" mount a
expect 0 --conf "$conf" mount b

# passes WHAT COMMAND...: its last lines when it does not
passes() {
	local what=$1 began=$SECONDS
	shift
	"$@" >out 2>err || {
		sed -i '/^not run: /d' out
		fail "$what"
	}
	echo "$what: $(tail -n 1 out) ($((SECONDS - began)) s)"
}

cp "$SHEAF_BUILD"/tests/{conform,fsrandom,appenders} . && chmod 755 conform
mkdir a/root a/user
chown 777:777 a/user
passes "as root" ./conform a/root --dir2 b/root --lacks $lacks ${long:+--long}
passes "as a user" setpriv --reuid 777 --regid 777 --clear-groups ./conform a/user --dir2 b/user --lacks $lacks
passes "random, one mount" ./fsrandom a/root --ops $((ops / 2)) --seed $RANDOM
passes "random, two mounts" ./fsrandom a/root --dir2 b/root --ops $((ops / 2)) --seed $RANDOM
passes "appenders" ./appenders a/root b/root
mkdir a/work
TMPDIR=/tmp passes "workloads" "$tree/tests/posix/workloads.sh" a/work --dir2 b/work ${long:+--long --seconds 60}
cat out
[ -z "${MOUNT_LONG-}" ] || [ "$(grep -c skipped out)" = 0 ] || fail "a tool is missing"
expect 0 umount a
expect 0 umount b
expect 0 --conf "$conf" check
