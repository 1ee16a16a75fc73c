#!/bin/bash
# Tests of data once more with direct reads: on disk, and where the servers have their storage in memory.
set -u
memory=/dev/shm

export SHEAF_DIRECT=on
for name in sys_races sys_ranges sys_locks; do
	echo "$name"
	"$SHEAF_BUILD/tests/$name" || exit 1
done
if [ ! -w "$memory" ] || [ "$(stat -f -c %T "$memory")" != tmpfs ]; then
	echo "$memory is no tmpfs that may be written to: not in memory"
	exit 0
fi
unset SHEAF_DIRECT
echo "sys_direct, in memory"
TMPDIR=$memory "$SHEAF_BUILD/tests/sys_direct" || exit 1
echo "sys_ranges, in memory"
SHEAF_DIRECT=on TMPDIR=$memory "$SHEAF_BUILD/tests/sys_ranges" || exit 1
