#!/bin/bash
# mount_posix.sh through a cache bank that is always asked: two mounts see what they must.
command -v memcached >/dev/null || {
	echo "memcached is not installed"
	exit 77
}
export MOUNT_BANK=1 MOUNT_OPS=${MOUNT_OPS:-5000}
exec bash "$(dirname "${BASH_SOURCE[0]}")/mount_posix.sh"
