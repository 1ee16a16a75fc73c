#!/bin/bash
# Checkpoints of MPI programs (mpi_ckpt.c), in C and Fortran, with each MPI that is installed.
set -u
. "$(dirname "${BASH_SOURCE[0]}")/mpi.inc"
start_servers

echo "a checkpoint of n processes is restored by n and by others"
for mpi in "${mpis[@]}"; do
	for n in 1 2 4; do
		passes "$mpi" $n mpi_ckpt "$mpi$n" first 10
		for m in 1 2 3 4; do
			passes "$mpi" $m mpi_ckpt "$mpi$n" again 10
		done
	done
done

echo "in the background, and only changes"
for mpi in "${mpis[@]}"; do
	for flags in 1 2 3 64 66; do
		passes "$mpi" 2 mpi_ckpt "flags$flags-$mpi" first 10 $flags
		passes "$mpi" 2 mpi_ckpt "flags$flags-$mpi" again 10 $flags
		expect 0 ckpt verify "flags$flags-$mpi"
	done
done

echo "a process that comes too late is named, and the next checkpoint is complete"
for mpi in "${mpis[@]}"; do
	for late in 0 2; do
		passes "$mpi" 3 mpi_ckpt "late-$mpi-$late" late $late
	done
	says "process 2 did not come to the checkpoint"
done

echo "Fortran"
for mpi in "${mpis[@]}"; do
	command -v "mpif90.$mpi" >/dev/null || { echo "    $mpi: its compiler for Fortran is not installed"; continue; }
	"mpif90.$mpi" -ffree-line-length-none -o "fortran.$mpi" "$SHEAF_SOURCE/include/sheaf_ckpt.f90" \
		"$SHEAF_SOURCE/tests/mpi/mpi_ckpt_fortran.f90" -L"$SHEAF_BUILD/lib" "-lsheaf-ckpt-$mpi" -lsheaf \
		"-Wl,-rpath,$SHEAF_BUILD/lib" >out 2>err || fail "the module does not compile with $mpi"
	for run in first again; do
		launch "$mpi" 2 "$work/fortran.$mpi" "fortran-$mpi" $run || fail "Fortran with $mpi, $run: exit status $?"
		says "^passed"
	done
done
expect 0 check
