#!/bin/bash
# MPI-IO on a running file system, with each MPI that is installed and 1, 2 and 4 processes.
set -u
. "$(dirname "${BASH_SOURCE[0]}")/mpi.inc"
start_servers
programs_of=(25 40 10) # with 1, 2 and 4 processes
[ "${SHEAF_TEST_LONG-}" = 1 ] && programs_of=(700 900 400) limit=7200

if [ "${mpis[0]}" = mpich ]; then
	echo "the library that lets idle processes of MPICH sleep takes the place of UCX's function"
	python3 -c "import ctypes, sys; ctypes.CDLL(sys.argv[1]).ucp_worker_progress" "$bin/../bench/mpi/mpich/libmpi-idle-yield.so" ||
		fail "it does not"
fi

echo "random programs have the results that the standard and the MPI library's own MPI-IO give"
for mpi in "${mpis[@]}"; do
	reference=
	# Open MPI's own MPI-IO dies or hangs in such programs
	[ "$mpi" = mpich ] && reference=$work/reference
	passes "$mpi" 1 mpi_random "sheaf:/random" $reference --programs ${programs_of[0]} --seed 1
	passes "$mpi" 2 mpi_random "sheaf:/random" $reference --programs ${programs_of[1]} --seed 10001
	passes "$mpi" 4 mpi_random "sheaf:/random" $reference --programs ${programs_of[2]} --seed 20001
	# external32, and a part whose bounds are those of the whole, or not
	passes "$mpi" 2 mpi_random "sheaf:/random" $reference --programs 1 --seed 10843
done

echo "errors have the classes of the standard"
for mpi in "${mpis[@]}"; do
	for n in 1 2 4; do
		passes "$mpi" $n mpi_bad_input sheaf:/errors
	done
done

echo "collective accesses by typed requests come first; then two-phase is tried, by all processes"
for mpi in "${mpis[@]}"; do
	SHEAF_MPIIO_STATS=1 passes "$mpi" 4 mpi_faults --method auto --rounds 5 sheaf:/chosen
	for how in "typed *write *16 " "twophase *write *4 " "typed *read *16 " "twophase *read *4 "; do
		grep -q "^$how" err || fail "not chosen by $mpi: $how"
	done
	expect 0 rm /chosen
done

echo "Fortran programs: mpif.h, the module mpi and the module mpi_f08"
for mpi in "${mpis[@]}"; do
	if ! command -v "mpif90.$mpi" >/dev/null; then
		echo "    $mpi: its compiler for Fortran is not installed"
		continue
	fi
	for form in MPIF_H MPI MPI_F08; do
		"mpif90.$mpi" -cpp -DUSE_$form -ffree-line-length-none -o fortran "$SHEAF_SOURCE/tests/mpi/mpi_fortran.f90" \
			>out 2>err || fail "mpi_fortran.f90 with $form does not compile with $mpi"
		for n in 1 2; do
			launch "$mpi" $n "$work/fortran" sheaf:/fortran || fail "Fortran ($form) with $mpi: exit status $?"
			says "^passed"
		done
	done
done

echo "a cluster file that is not there: one clear message, not one for each process"
for mpi in "${mpis[@]}"; do
	SHEAF_CONF=$work/nothere.conf launch "$mpi" 4 "$programs/$mpi/mpi_bad_input" --open sheaf:/file
	[ $? = 3 ] || fail "the open did not fail with MPI_ERR_IO"
	[ "$(grep -c "nothere.conf" err)" = 1 ] || fail "not one message about the cluster file"
	launch "$mpi" 4 sh -c '[ ${PMI_RANK-$OMPI_COMM_WORLD_RANK} -ge 2 ] && SHEAF_CONF=nothere.conf; exec "$0" "$@"' \
		"$programs/$mpi/mpi_bad_input" --open sheaf:/file
	[ $? = 3 ] || fail "the open did not fail with MPI_ERR_IO in all processes"
	[ "$(grep "nothere.conf" err | cut -d " " -f 2-5)" = "process 2 cannot open" ] ||
		fail "not one message about the cluster file, of the first process that has none"
	expect 0 rm /file
done

echo "sheaf mpirun: the library of the program's MPI, from a build and from where packages put it"
libdir=usr/$(sed -n 's/^CMAKE_INSTALL_LIBDIR:[A-Z]*=//p' "$SHEAF_BUILD/CMakeCache.txt")
mkdir -p usr/bin "$libdir"
cp "$sheaf" usr/bin && cp -P "$bin"/../lib/libsheaf.so* "$bin"/../lib/libsheaf-mpiio-* "$libdir" || fail "no copy"
for mpi in "${mpis[@]}"; do
	options=
	[ "$mpi" = openmpi ] && options="--allow-run-as-root --oversubscribe"
	"mpicc.$mpi" -o "columns.$mpi" "$SHEAF_SOURCE/examples/mpi/columns.c" || fail "columns.c does not compile"
	for command in "$sheaf" usr/bin/sheaf; do
		"$command" mpirun --mpiexec "mpiexec.$mpi $options" -n 2 "./columns.$mpi" sheaf:/columns >out 2>err </dev/null ||
			fail "$command mpirun with $mpi"
		says "as written"
	done
	expect 0 rm /columns
	rm "$libdir/libsheaf-mpiio-$mpi.so.1"
	usr/bin/sheaf mpirun "./columns.$mpi" >out 2>err && fail "mpirun without the library"
	one_line "libsheaf-mpiio-$mpi is not installed: install the package of that name"
done

echo "nothing is left behind"
expect 0 ls -l /
[ ! -s out ] || fail "files are left"
expect 0 check
