#!/bin/bash
# Servers whose storage is in memory (a tmpfs) read and write small pieces through mappings: the tests of lists, types,
# movers and ranges of bytes once more, there. The others have a disk.
set -u
where=/dev/shm

if [ ! -w "$where" ] || [ "$(stat -f -c %T "$where")" != tmpfs ]; then
	echo "skip: $where is no tmpfs that may be written to"
	exit 77
fi
for name in sys_list sys_movers sys_ranges sys_typed sys_cut sys_kill_client; do
	echo "$name"
	TMPDIR=$where "$SHEAF_BUILD/tests/$name" || exit 1
done
