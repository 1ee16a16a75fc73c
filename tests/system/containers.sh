#!/bin/bash
# The recipe for containers of docs/hosts.md, as it is written: the image, two servers and two clients in containers, on hosts
# made of namespaces (hosts.inc). Only with SHEAF_TEST_LONG=1, as root, where podman and debootstrap are, after `make deb`.
# What this machine may lack is set for podman, not written in the recipe: cgroups, limits. Needs the network of apt.
set -u
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

if [ -z "${HOSTS_INSIDE-}" ]; then
	no() {
		echo "$*"
		exit 77
	}
	[ -n "${SHEAF_TEST_LONG-}" ] || no "minutes long: make check-long runs it"
	[ "$(id -u)" = 0 ] || no "needs root"
	command -v podman >/dev/null && command -v debootstrap >/dev/null || no "needs podman and debootstrap"
	ls "$tree"/build-deb/sheaf-server_*.deb >/dev/null 2>&1 || no "needs the packages of make deb"
	[ -e /dev/fuse ] || no "needs /dev/fuse"
	CONTAINERS=$(mktemp -d "${TMPDIR:-/tmp}/containers.XXXXXX") || exit 1
	trap 'rm -rf --one-file-system "$CONTAINERS"' EXIT
	trap 'exit 1' TERM INT
	export CONTAINERS CONTAINERS_CONF=$CONTAINERS/containers.conf CONTAINERS_STORAGE_CONF=$CONTAINERS/storage.conf
	mkdir "$CONTAINERS"/node{1,2,3}
	cat >"$CONTAINERS_CONF" <<END
[containers]
cgroups = "disabled"
default_ulimits = ["nofile=$(ulimit -Hn):$(ulimit -Hn)", "nproc=$(ulimit -Hu | sed s/unlimited/-1/):$(ulimit -Hu | sed s/unlimited/-1/)"]
[engine]
cgroup_manager = "cgroupfs"
END
	storage() { # GRAPHROOT RUNROOT
		printf '[storage]\ndriver = "overlay"\ngraphroot = "%s"\nrunroot = "%s"\n' "$1" "$2" >"$CONTAINERS_STORAGE_CONF"
	}
	echo "the image"
	storage "$CONTAINERS/node1" "$CONTAINERS/run"
	# the runner has put this test into a network of its own, and has itself that of the machine
	nsenter -t $PPID -n bash "$tree/tools/container.sh" sheaf-image >"$CONTAINERS/log" 2>&1 || {
		tail -n 20 "$CONTAINERS/log"
		exit 1
	}
	umount "$CONTAINERS"/node1/overlay 2>/dev/null
	storage /var/lib/containers/storage /run/containers/storage
fi
in_host='mount -t tmpfs none /run && mount -t tmpfs none /dev/shm && mkdir -p /var/lib/containers/storage &&
	mount --bind $CONTAINERS/$node /var/lib/containers/storage &&
	{ [ "$(stat -fc %T /sys/fs/cgroup)" = cgroup2fs ] || { umount -R -l /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup; }; }'
. "$tree/tests/system/hosts.inc"

stand_in() { # it has been done, with the network of this machine
	case $1 in
	*"make deb" | *container.sh*) true ;;
	*) false ;;
	esac
}

echo "the recipe, as written"
run_block "In containers"
says "^doc$"
says "^today$"
on node1 podman run --rm --network host -v /etc/sheaf:/etc/sheaf:ro sheaf-image sheaf status >out 2>err || fail "status"
[ "$(grep -c ' up ' out)" = 2 ] || fail "not all are up"

echo "what one container wrote, others read"
on node2 podman run --rm --network host -v /etc/sheaf:/etc/sheaf:ro sheaf-image sh -c \
	'sheaf cp -r sheaf:/doc /tmp/doc && diff -r --no-dereference /tmp/doc /usr/share/doc && sheaf cat /today' >out 2>err || fail "read"

echo "sheaf stop does not stop a server of a container; podman stop does, cleanly"
on node1 sheaf --conf /etc/sheaf/sheaf.conf stop >out 2>err && fail "sheaf stop has stopped it"
grep -q "which is no sheafd of this host: stop it in its container" err || fail "sheaf stop"
on node1 podman stop server0 >out 2>err || fail "podman stop"
on node1 test -e /srv/sheaf/server0/clean || fail "the stop was not clean"
on node1 podman start server0 >out 2>err || fail "podman start"
within on node1 sheaf --conf /etc/sheaf/sheaf.conf status >out
on node2 podman run --rm --network host -v /etc/sheaf:/etc/sheaf:ro sheaf-image sheaf ls / >out 2>err || fail "after a restart"
says "^doc$"
for node in node1 node2; do on $node podman stop --all >out 2>err || fail "stop on $node"; done

for pid in "${helpers[@]}"; do kill -9 "$pid"; done
echo "done"
