#!/bin/bash
# `sheaf ckpt run`: a program without calls for checkpoints is killed with all its processes and continues. With a
# stand-in for criu, which saves a file of the program, everywhere; with CRIU itself where it works.
set -u
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$tree/tests/system/session.inc"
patience=${SHEAF_PATIENCE:-$patience}
expect 0 init fs --servers 2 --port "$(free_ports 2)"
sed -i 's/^lease = .*/lease = 1/' fs/sheaf.conf
confs+=("$work/fs/sheaf.conf")
export SHEAF_CONF=$work/fs/sheaf.conf
start_servers
# a job has a session of its own: what a failed test leaves is ended here
end_jobs() {
	local f
	for f in "$work"/*/pid; do
		[ -s "$f" ] && kill -9 -- -"$(cat "$f")"
	done
}
trap 'end_jobs 2>/dev/null; cleanup' EXIT
mkdir spool
export TMPDIR=$work/spool

# A tree of processes that counts. With `state` it begins there; `hold` lets it wait before a step, `fast` not after one.
cat >app.sh <<'END'
echo $$ >pid
i=$(cat state 2>/dev/null || echo 0)
sleep 100000 & # one that does nothing
while [ $i -lt ${STEPS:-100} ]; do
	while [ -e hold ]; do sleep 0.05; done
	[ -e app.sh ] || exit 1 # the test has been ended
	i=$((i + 1))
	[ -e state ] && echo $i >state
	echo "step $i" | cat
	[ -e fast ] || sleep 0.1
done
echo "to stderr" >&2
kill $!
exit 3
END

# criu: `check`, `dump`, `restore`, as far as the command uses them; files named refuse and fails make it do so
mkdir stand-in
cat >stand-in/criu <<'END'
#!/bin/bash
cd "$STAND_IN" || exit 1
what=$1 fds=
while [ $# -gt 0 ]; do
	case $1 in
	-D) images=$2 ;;
	-t) pid=$2 ;;
	--pidfile) pidfile=$2 ;;
	--inherit-fd) n=${2#fd[}; fds="$fds ${n%%]*}" ;;
	esac
	shift
done
case $what in
check)
	[ ! -e refuse ] || { echo "Error (x.c:1): what a strange kernel" >&2; exit 1; } ;;
dump)
	[ ! -e fails ] || { echo "(00.1) Error (sk.c:2): what a strange socket" >"$images/dump.log"; exit 1; }
	kill -STOP -- -"$pid"
	cp state "$images/core.img"
	: >"$images/empty.img"
	kill -CONT -- -"$pid" ;;
restore)
	set -- $fds
	[ -e "$images/empty.img" ] || exit 1
	cp "$images/core.img" state
	eval "setsid sh app.sh </dev/null >&$1 2>&$2 $1>&- $2>&- &"
	echo $! >"$pidfile" ;;
esac
END
chmod +x stand-in/criu

# run OPTIONS...: in the background, in this directory; its process is $run
run() {
	"$sheaf" ckpt run "$@" >out.run 2>err.run &
	run=$!
	helpers+=($run)
}

step_of() {
	tail -n 1 "$1" | sed -n 's/^step //p'
}

is_at() {
	[ "$(step_of out.run)" -ge "$1" ] 2>/dev/null
}

# saved JOB: a checkpoint is requested, and complete
saved() {
	"$sheaf" ckpt now "$1" --wait $patience >out 2>err && return
	cat err.run >>err
	fail "no checkpoint of $1"
}

is_gone() {
	! kill -0 -- -"$1" 2>/dev/null || ! ps -o stat= -g "$1" | grep -qv '^Z'
}

# In the present directory: it is killed, with all its processes, and continues.
killed_and_continued() {
	local job=$1 last n
	run --job "$job" --keep 2 -- sh app.sh
	within is_at 3
	saved "$job"
	saved "$job"
	within is_at 6
	saved "$job"
	: >hold
	kill -9 $run
	kill -9 -- -"$(cat pid)"
	wait $run 2>/dev/null
	within is_gone "$(cat pid)"
	rm hold
	: >fast
	last=$(step_of out.run)
	expect 0 ckpt verify "$job"
	expect 0 ckpt list "$job" --json
	python3 -c "import json; v = json.load(open('out'))['jobs'][0]['checkpoints']; assert sum(c['complete'] for c in v) == 2, v" ||
		fail "not two complete checkpoints"
	expect 3 ckpt run --restart --job "$job"
	n=$(sed -n '1s/^step //p' out)
	[ "${n:-0}" -ge 6 ] && [ "$n" -le $((last + 1)) ] || fail "it was killed at step $last and continued at step ${n:-none}"
	says "^step 100$"
	[ "$(grep -c ^step out)" = $((101 - n)) ] || fail "steps are missing"
	grep -q "^to stderr$" err || fail "standard error is lost"
	grep -q "$job continues from checkpoint" err || fail "no message"
	[ -z "$(ls "$TMPDIR" | grep -v "^sheaf-ckpt-")" ] || fail "the spool has other files"
	rm -rf fast "$TMPDIR"/* # of the one that was killed
}

with_stand_in() {
	echo "the stand-in"
	mkdir a && cd a && cp ../app.sh . || fail "no directory"
	echo 0 >state
	export STAND_IN=$PWD
	PATH=$work/stand-in:$PATH
	killed_and_continued app

	echo "exit statuses, and nothing to restart from"
	expect 5 ckpt run --job five -- sh -c 'exit 5'
	expect 127 ckpt run --job none -- ./there-is-none
	expect 0 ckpt run --restart --job fresh -- echo from the beginning
	says "from the beginning"
	expect 1 ckpt run --restart --job fresh
	one_line "job 'fresh' has no complete checkpoint"
	expect 2 ckpt run
	expect 2 ckpt run --restart
	expect 2 ckpt run --interval soon -- true
	expect 2 ckpt list a b c d
	[ -z "$(ls "$TMPDIR")" ] || fail "files stay in the spool: $(ls "$TMPDIR")"

	echo "a name is for one job at a time"
	echo 0 >state
	run --job twice -- sh app.sh
	within is_at 1
	expect 1 ckpt run --job twice -- true
	one_line "a job 'twice' is running"

	echo "CRIU that refuses: the job goes on, with a message"
	: >fails
	expect 0 ckpt now twice
	within grep -q "what a strange socket" err.run
	rm fails
	saved twice

	echo "the batch system's warning: a checkpoint, and the end"
	: >hold
	kill -USR2 $run
	within is_gone "$(cat pid)"
	wait $run && fail "the job has ended by a signal"
	rm hold
	expect 0 ckpt list twice --json
	python3 -c "import json; v = json.load(open('out'))['jobs'][0]['checkpoints']; assert len(v) == 2 and v[0]['complete'], v" ||
		fail "no second checkpoint"

	echo "by time"
	echo 0 >state
	STEPS=100000 run --job often --interval 1 -- sh app.sh
	has_two() {
		"$sheaf" ckpt list often --json >out 2>err && grep -q '"number":[2-9]' out
	}
	within has_two
	kill $run # is told to the job
	wait $run
	within is_gone "$(cat pid)"

	echo "a kernel that CRIU does not know"
	: >refuse
	expect 1 ckpt run -- true
	grep -q "CRIU cannot work here" err && grep -q "what a strange kernel" err || fail "no clear message"
}

# Two processes and their launcher, which talk over memory and TCP.
mpi_job() {
	local mpi=$1 n options=
	[ "$mpi" = mpich ] || options="--allow-run-as-root --oversubscribe"
	echo "an MPI job of $mpi"
	cat >steps.c <<'END'
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	int rank, sum;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	for (int i = 1; i <= 200; i++) {
		MPI_Allreduce(&i, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
		if (sum != 2 * i)
			MPI_Abort(MPI_COMM_WORLD, 9);
		if (!rank)
			printf("step %d\n", i);
		fflush(stdout);
		usleep(access("go", F_OK) ? 100000 : 1000);
	}
	return MPI_Finalize();
}
END
	"mpicc.$mpi" -o "steps.$mpi" steps.c || fail "steps.c does not compile"
	rm -f go
	export UCX_TLS=posix,self OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader
	run --job "$mpi" --keep 1 -- "mpiexec.$mpi" $options -n 2 "./steps.$mpi"
	within is_at 3
	saved "$mpi"
	n=$(step_of out.run)
	kill -9 $run
	pkill -9 -f "steps.$mpi"
	within eval "! pgrep -f steps.$mpi >/dev/null"
	: >go
	expect 0 ckpt run --restart --job "$mpi"
	says "^step 200$"
	n=$(sed -n '1s/^step //p' out)
	[ "${n:-0}" -ge 3 ] || fail "it continued at step ${n:-none}"
}

real=$PATH
[ "${SHEAF_CRIU-}" = only ] || with_stand_in

echo "CRIU itself"
PATH=$real
cd "$work" && mkdir b && cd b && cp ../app.sh . || exit 1
if ! PATH=$PATH:/usr/sbin command -v criu >/dev/null; then
	expect 1 ckpt run -- true
	one_line "CRIU is not installed on this host: apt-get install criu"
	echo "left out: CRIU is not installed"
elif ! PATH=$PATH:/usr/sbin criu check >criu.log 2>&1; then
	expect 1 ckpt run -- true
	grep -q "CRIU cannot work here" err || fail "no clear message"
	echo "left out: CRIU does not work here: $(grep -m1 Error criu.log)"
else
	killed_and_continued app-of-criu
	for mpi in openmpi mpich; do
		command -v "mpicc.$mpi" >/dev/null && command -v "mpiexec.$mpi" >/dev/null || continue
		mpi_job $mpi
	done
fi
exit 0
