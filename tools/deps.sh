#!/bin/sh
# Installs the Debian packages that are missing; silent when none is.
#   tools/deps.sh            what building needs
#   tools/deps.sh --check    and what the tests need
#   tools/deps.sh --web      and what the browser test of the status page needs
#   tools/deps.sh --deb      and what building Debian packages needs
set -eu

want="gcc libc6-dev cmake ninja-build pkg-config python3
	liburing-dev liblmdb-dev libssl-dev libinih-dev libjson-c-dev
	libmicrohttpd-dev libfuse3-dev fuse3 libibverbs-dev libmemcached-dev"
case "${1-}" in
"") ;;
--check) want="$want clang libclang-rt-14-dev clang-format iproute2 procps util-linux
	git make sqlite3 rsync fio acl attr
	mpich libmpich-dev openmpi-bin libopenmpi-dev gfortran libhdf5-mpich-dev libhdf5-openmpi-dev
	libpnetcdf-dev libnetcdf-mpi-dev python3-h5py-mpi memcached" ;;
--web) want="$want chromium chromium-driver fonts-dejavu-core" ;;
--deb) want="$want build-essential debhelper dpkg-dev fakeroot libmpich-dev libopenmpi-dev" ;;
*)
	echo "usage: tools/deps.sh [--check|--web|--deb]" >&2
	exit 2
	;;
esac

if ! command -v dpkg-query >/dev/null 2>&1; then
	echo "deps: not a Debian system; make sure that the like of these is installed:" $want >&2
	exit 0
fi

# of use where it can be had: without it, its tests are left out
case "${1-}" in
--check) nice_to_have="criu" ;;
*) nice_to_have= ;;
esac
for p in $nice_to_have; do
	[ -z "$(apt-cache show "$p" 2>/dev/null)" ] || want="$want $p"
done

missing=
for p in $want; do
	status=$(dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null || true)
	[ "$status" = installed ] || missing="$missing $p"
done
[ -n "$missing" ] || exit 0

sudo=
if [ "$(id -u)" != 0 ]; then
	if ! command -v sudo >/dev/null 2>&1; then
		echo "deps: missing packages, and no sudo to install them; as root run:" >&2
		echo "    apt-get install --no-install-recommends$missing" >&2
		exit 1
	fi
	sudo="sudo env"
else
	sudo=env
fi

echo "deps: installing$missing"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
run() {
	if ! $sudo DEBIAN_FRONTEND=noninteractive apt-get -q -y \
		-o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 "$@" >"$log" 2>&1 </dev/null; then
		cat "$log" >&2
		echo "deps: apt-get $1 failed; is the network there?" >&2
		exit 1
	fi
}
run update
run install --no-install-recommends $missing
