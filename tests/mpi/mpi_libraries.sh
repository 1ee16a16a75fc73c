#!/bin/bash
# Libraries above MPI-IO on Sheaf, by the examples of docs/mpi.md: HDF5, NetCDF-4, PnetCDF, h5py, and plain MPI-IO. Each
# example is compiled as a user does, run with 4 processes, and prints what the page shows. What is not installed is
# left out with a message.
#
# Runs in mount and process namespaces of its own where it may: there it also mounts Sheaf, for PnetCDF.
set -u
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
examples=$tree/examples/mpi
page=$tree/docs/mpi.md

skip() {
	echo "$*"
	exit 77
}

command -v mpiexec.mpich mpiexec.openmpi >/dev/null || skip "there is no MPI"
ls "${SHEAF_BUILD:?}"/lib/libsheaf-mpiio-*.so >/dev/null 2>&1 || skip "the MPI-IO library is not built"
mountable=
if [ -e /dev/fuse ] && [ "$(id -u)" = 0 ]; then
	if [ -z "${MOUNT_INSIDE-}" ] && unshare --mount --pid --fork true 2>/dev/null; then
		MOUNT_INSIDE=1 exec unshare --mount --pid --fork --kill-child --mount-proc --propagation private \
			bash "${BASH_SOURCE[0]}"
	fi
	mountable=${MOUNT_INSIDE-}
fi
. "$tree/tests/system/session.inc"
tidy() {
	[ -d "$work/mnt" ] && "$sheaf" umount --lazy "$work/mnt" 2>/dev/null
	cleanup
}
trap tidy EXIT
ran=0

# compile MPI NAME COMMAND...: the example to NAME.MPI, if its library is there
compile() {
	local mpi=$1 name=$2
	shift 2
	command -v "$1" >/dev/null || { echo "$name with $mpi is left out: there is no $1"; return 1; }
	"$@" -o "$name.$mpi" "$examples/$name.c" ${libs-} >out 2>err ||
		{ grep -q "fatal error: .*: No such file\|cannot find -l" err || fail "$name does not compile with $mpi"
		  echo "$name with $mpi is left out: $(grep -m 1 "fatal error\|cannot find" err)"; return 1; }
}

# run MPI PROGRAM...: with 4 processes and the library
run() {
	local mpi=$1 flags=() preload
	shift
	preload=$SHEAF_BUILD/lib/libsheaf-mpiio-$mpi.so
	if [ "$mpi" = openmpi ]; then
		flags=(--oversubscribe --mca mpi_yield_when_idle 1)
		[ "$(id -u)" = 0 ] && flags+=(--allow-run-as-root)
	else
		preload+=" $SHEAF_BUILD/bench/mpi/mpich/libmpi-idle-yield.so"
	fi
	SHEAF_CONF=$conf timeout 300 "mpiexec.$mpi" "${flags[@]}" -n 4 env "LD_PRELOAD=$preload" SHEAF_MPIIO_STATS=1 "$@" \
		>out 2>err || fail "$* with $mpi"
	grep -qxFf out "$page" || fail "docs/mpi.md does not show what $1 says"
	says ": as written"
	grep -q "^typed  *write " err || fail "$1 with $mpi: the data did not go by the library"
	ran=$((ran + 1))
}

conf=$work/fs/sheaf.conf
confs=("$conf")
expect 0 init fs --servers 3 --port "$(free_ports 3)" --stripe-unit 64K
expect 0 --conf "$conf" start
if [ -n "$mountable" ]; then
	mkdir mnt
	expect 0 --conf "$conf" mount mnt
fi

for mpi in mpich openmpi; do
	command -v "mpiexec.$mpi" >/dev/null && [ -e "$SHEAF_BUILD/lib/libsheaf-mpiio-$mpi.so" ] || continue
	echo "$mpi"
	compile $mpi columns "mpicc.$mpi" && run $mpi ./columns.$mpi "sheaf:/matrix.$mpi"
	compile $mpi hdf5_chunks "h5pcc.$mpi" && run $mpi ./hdf5_chunks.$mpi "sheaf:/$mpi.h5"
	if [ -n "$mountable" ]; then
		[ -e columns.$mpi ] && run $mpi ./columns.$mpi "$work/mnt/matrix.$mpi"
		[ -e hdf5_chunks.$mpi ] && run $mpi ./hdf5_chunks.$mpi "$work/mnt/$mpi.h5"
	fi
done

if [ -e "$SHEAF_BUILD/lib/libsheaf-mpiio-openmpi.so" ]; then # Debian has these for Open MPI alone
	libdir=$(pkg-config --variable=libdir netcdf-mpi 2>/dev/null)
	libs="$(pkg-config --libs netcdf-mpi 2>/dev/null)"
	compile openmpi netcdf_grid mpicc.openmpi -I"$libdir/netcdf/mpi/include" &&
		run openmpi ./netcdf_grid.openmpi sheaf:/grid.nc
	libs=-lpnetcdf
	if [ -z "$mountable" ]; then
		echo "PnetCDF is left out: it needs a mount, which needs /dev/fuse, root and namespaces"
	elif compile openmpi pnetcdf_steps mpicc.openmpi; then
		run openmpi ./pnetcdf_steps.openmpi "$work/mnt/steps.nc"
	fi
	if /usr/bin/python3 -c 'import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, ("h5py", "mpi4py"))))'; then
		run openmpi /usr/bin/python3 "$examples/h5py_table.py" sheaf:/table.h5
	else
		echo "h5py is left out: python3-h5py-mpi is not installed"
	fi
fi
[ $ran -gt 0 ] || skip "no library above MPI-IO is installed"
expect 0 --conf "$conf" check
echo "$ran programs"
exit 0
