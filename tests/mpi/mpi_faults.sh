#!/bin/bash
# Collective accesses while processes and servers are killed and disks are full (mpi_faults.c).
#
# Runs in a mount namespace of its own where it may: full disks are small tmpfs mounts.
set -u
if [ "$(id -u)" = 0 ] && [ -z "${MOUNT_INSIDE-}" ] && unshare --mount true 2>/dev/null; then
	MOUNT_INSIDE=1 exec unshare --mount --propagation private bash "${BASH_SOURCE[0]}"
fi
. "$(dirname "${BASH_SOURCE[0]}")/mpi.inc"
start_servers

# rounds_done N: the program in the background has done so many
rounds_done() {
	[ "$(wc -l <log 2>/dev/null || echo 0)" -ge "$1" ] || ! kill -0 "$job" 2>/dev/null
}

# more_rounds: two more rounds begin and end
more_rounds() {
	within rounds_done $(($(wc -l <log) + 3))
	kill -0 "$job" 2>/dev/null || { wait "$job"; fail "the program has ended: $?"; }
}

echo "a server that is killed and restarted in collective accesses: no error, and all data are right"
for mpi in "${mpis[@]}"; do
	for method in auto twophase sieve; do
		rm -f log log.stop
		: >log
		launch "$mpi" 4 "$programs/$mpi/mpi_faults" --method $method --log "$work/log" sheaf:/killed &
		job=$!
		for server in server3 server0 server3; do # server0 has the names, and data like the others
			more_rounds
			kill -9 "$(cat "$work/fs/$server/sheafd.pid")"
			"$sheaf" start >started 2>&1 || fail "start: $(cat started)"
		done
		more_rounds
		: >log.stop
		wait $job || fail "$mpi, $method: exit status $?"
		echo "    $mpi, $method: $(cat out)"
		expect 0 rm /killed
	done
done

echo "nonblocking and split accesses go on after the call: it ends while a server is stopped"
pid=$(cat "$work/fs/server3/sheafd.pid")
helpers+=("$pid") # it may be left stopped
for mpi in "${mpis[@]}"; do
	passes "$mpi" 1 mpi_faults --stop "$pid" sheaf:/overlap
done

# servers that forget a dead client soon, because its locks block the next program until then
expect 0 stop
sed -i 's/^lease = .*/lease = 5/' "$SHEAF_CONF"
expect 0 start

echo "a process that is killed in a collective access: the others end, and the file is usable"
for mpi in "${mpis[@]}"; do
	for method in auto twophase sieve; do
		for when in before in; do
			launch "$mpi" 4 "$programs/$mpi/mpi_faults" --method $method --die $when sheaf:/died
			status=$?
			[ $status != 0 ] && [ $status != 124 ] || fail "$mpi, $method, $when: exit status $status"
			passes "$mpi" 4 mpi_faults --method $method --rounds 4 sheaf:/died >/dev/null
		done
		echo "    $mpi, $method"
		expect 0 rm /died
	done
done

echo "all servers run, and nothing is left behind"
expect 0 start
[ "$(grep -c "already running" out)" = 4 ] || fail "a server has ended"
expect 0 ls -l /
[ ! -s out ] || fail "files are left"
expect 0 check

if [ -z "${MOUNT_INSIDE-}" ]; then
	echo "full disks are left out: they need root and mount namespaces"
	exit 0
fi
echo "a full disk: all processes of a collective access get MPI_ERR_NO_SPACE, and data can be written when there is space"
expect 0 stop
for server in server1 server2 server3; do
	mkdir small
	mount -t tmpfs -o size=20m tmpfs small
	cp -a "fs/$server/." small && mount --move small "fs/$server" && rmdir small || fail "mount"
	mounts+=("$work/fs/$server")
done
expect 0 start
for mpi in "${mpis[@]}"; do
	for method in auto twophase; do
		passes "$mpi" 2 mpi_faults --method $method --fill sheaf:/full
	done
done
expect 0 check
