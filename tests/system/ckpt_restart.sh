#!/bin/bash
# A computation that is killed and continues from its newest checkpoint has the result of one that nothing
# disturbed, bit for bit: the solver of bench/ckpt, as one process, and by each MPI that is installed, also with
# another number of processes.
set -u
. "$(dirname "${BASH_SOURCE[0]}")/session.inc"
solver=$SHEAF_BUILD/bench/blocktri

# a launcher that finds itself in a job of another one does not start
unset "${!OMPI_@}" "${!PMIX_@}" "${!PMI_@}"

# solve MPI N ARGS...: MPI is mpich, openmpi or alone
solve() {
	local mpi=$1 n=$2 args=() preload=
	shift 2
	if [ "$mpi" = alone ]; then
		timeout 300 "$solver" --grid 20 "$@" >out 2>err
		return
	fi
	[ "$mpi" = openmpi ] && args=(--allow-run-as-root --oversubscribe --mca mpi_yield_when_idle 1)
	[ "$mpi" = mpich ] && preload=$SHEAF_BUILD/bench/mpi/mpich/libmpi-idle-yield.so # idle processes use no processor
	timeout 300 "mpiexec.$mpi" "${args[@]}" -n "$n" env LD_PRELOAD="$preload" \
		"$SHEAF_BUILD/bench/mpi/$mpi/blocktri" --grid 20 "$@" >out 2>err </dev/null
}

# value KEY: of the JSON in the file out
value() {
	sed -n "s/.*\"$1\": \"\{0,1\}\([0-9a-f]*\).*/\1/p" out
}

# steps: of the checkpoints that the solver has reported
steps() {
	sed -n 's/^step //p' "${1:-err}"
}

# undisturbed STEPS OPTIONS...: sets $want
undisturbed() {
	solve alone 1 --steps "$1" --every 3 "${@:2}" job none || fail "the undisturbed run: exit status $?"
	want=$(value result)
	[ ${#want} = 16 ] || fail "no result"
}

# continues MPI N JOB STEPS OPTIONS...: from a checkpoint, with the result $want
continues() {
	solve "$1" "$2" --steps "$4" --every 3 "${@:5}" "$3" sheaf || fail "$1, $2 processes: exit status $?"
	[ "$(value restored)" -gt 0 ] || fail "it did not continue from a checkpoint"
	[ "$(value result)" = "$want" ] || fail "$1, $2 processes: the result is $(value result), not $want"
}

# gone JOB: the process 0 of that job has ended; a launcher may end before the processes that it kills
gone() {
	! kill -0 "$("$sheaf" cat "/ckpt/$1/lock" | awk '{ print $2 }')" 2>/dev/null
}

expect 0 init "$work/fs" --servers 2 --port "$(free_ports 2)"
sed -i 's/^lease = .*/lease = 2/' fs/sheaf.conf # the lock of a killed job stays for so long
export SHEAF_CONF=$work/fs/sheaf.conf
confs+=("$SHEAF_CONF")
expect 0 start

reached() {
	[ "$(steps killed | wc -l)" -ge 12 ] || ! kill -0 "$job" 2>/dev/null
}

for how in "" "--async 1" "--incremental 1 --active 10 --chain 3" "--async 1 --incremental 1 --active 10"; do
	echo "killed at any moment of many checkpoints${how:+, $how}"
	rm -f killed
	# shellcheck disable=SC2086 # words
	"$solver" --grid 20 --steps 1000000 --every 3 $how "killed${how//[^a-z]/}" sheaf >/dev/null 2>killed &
	job=$!
	helpers+=("$job")
	within reached
	kill -9 "$job" || fail "it has ended: $(cat killed)"
	wait "$job" 2>/dev/null
	helpers=()
	last=$(($(steps killed | tail -n 1) + 10)) # one more checkpoint may be complete
	undisturbed "$last" $how
	continues alone 1 "killed${how//[^a-z]/}" "$last" $how
done

undisturbed 11
for mpi in mpich openmpi; do
	[ -x "$SHEAF_BUILD/bench/mpi/$mpi/blocktri" ] && command -v "mpiexec.$mpi" >/dev/null || continue
	echo "$mpi: killed between two checkpoints, continued by as many processes and by others"
	for n in 4 3; do
		modes=() # by others: asynchronous and incremental
		[ $n = 3 ] && modes=(--async 1 --incremental 1)
		solve "$mpi" 4 --steps 11 --every 3 --die 8 "${modes[@]}" "$mpi$n" sheaf && fail "it was not killed"
		[ "$(steps | tail -n 1)" = 6 ] || fail "checkpoints before the kill: $(steps)"
		within gone "$mpi$n"
		continues "$mpi" "$n" "$mpi$n" 11 "${modes[@]}"
	done
	continues alone 1 "${mpi}3" 11
done
expect 0 check
