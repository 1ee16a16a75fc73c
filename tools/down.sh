#!/bin/bash
# Unmounts and stops the servers of the file system in DIR; behind `make down`. The data stay.
set -u

dir=${1-}
build=${BUILD:-build}
sheaf=$build/bin/sheaf

if [ -z "$dir" ]; then
	echo "usage: tools/down.sh DIR" >&2
	exit 2
fi
while [ "${dir#./}" != "$dir" ]; do dir=${dir#./}; done
if [ ! -e "$dir/sheaf.conf" ]; then
	echo "down: there is no file system in $dir: nothing to stop"
	exit 0
fi
if [ ! -x "$sheaf" ]; then
	sheaf=$(command -v sheaf) || {
		echo "down: $build/bin/sheaf is not there; run 'make' first" >&2
		exit 1
	}
fi
if grep -qF " $(realpath "$dir")/mnt " <(grep ' - fuse.sheaf ' /proc/self/mountinfo); then
	"$sheaf" umount "$dir/mnt" || exit 1
fi
"$sheaf" --conf "$dir/sheaf.conf" stop || exit 1
echo "The data stay in $dir; 'make up' goes on with them."
