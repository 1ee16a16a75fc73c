#!/bin/bash
# The Debian packages install, work and go away again. Changes the system: only with SHEAF_TEST_DEB=1, as
# root, after `make deb` (SHEAF_DEBS names another directory of packages).
set -u

skip() {
	echo "$*"
	exit 77
}

fail() {
	echo "FAILED line ${BASH_LINENO[0]}: $*" >&2
	exit 1
}

[ "${SHEAF_TEST_DEB-}" = 1 ] || skip "installs packages on this system; SHEAF_TEST_DEB=1 as root runs it"
[ "$(id -u)" = 0 ] || skip "installing packages needs root"
source=${SHEAF_SOURCE:-$(cd "$(dirname "$0")/../.." && pwd)}
debs=${SHEAF_DEBS:-$source/build-deb}
packages="libsheaf1 libsheaf-dev sheaf sheaf-mount sheaf-nfs sheaf-server"
mpis=()
for mpi in mpich openmpi; do
	command -v "mpicc.$mpi" >/dev/null && command -v "mpiexec.$mpi" >/dev/null || continue
	mpis+=("$mpi")
	packages+=" libsheaf-mpiio-$mpi libsheaf-ckpt-$mpi"
done
files=()
for p in $packages; do
	f=$(ls "$debs/$p"_*.deb 2>/dev/null) || fail "no package $p in $debs; run: make deb"
	files+=("$f")
done
for p in $packages; do
	dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null | grep -qx installed &&
		fail "$p is installed already; this test would remove it"
done
[ -e /etc/sheaf/sheaf.conf ] && fail "/etc/sheaf/sheaf.conf is there; this test would replace it"
had_home=
[ -e /var/lib/sheaf ] && had_home=1

work=$(mktemp -d "${TMPDIR:-/tmp}/deb.XXXXXX") || exit 1
fs=/var/lib/sheaf/deb-test-$$
chmod 755 "$work"
cd "$work" || exit 1
cleanup() {
	umount -l mnt 2>/dev/null
	[ -e /etc/sheaf/sheaf.conf ] && sheaf stop >/dev/null 2>&1
	apt-get -q -y purge $packages >/dev/null 2>&1
	rm -rf "$fs" /etc/sheaf/sheaf.conf /etc/sheaf/sheaf-nfsd.log
	rmdir /etc/sheaf 2>/dev/null
	[ -n "$had_home" ] || rmdir /var/lib/sheaf 2>/dev/null
	cd / && rm -rf "$work"
}
trap cleanup EXIT
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
unset SHEAF_CONF

echo "install"
apt-get -q -y install --no-install-recommends "${files[@]}" >log 2>&1 || { cat log; fail "apt-get install"; }
getent passwd sheaf >/dev/null || fail "no user sheaf"
sheaf --version || fail "sheaf --version"
[ -e "/lib/systemd/system/sheaf@.service" ] || fail "no unit"

# Without systemd nothing is started here, so look at what the scripts would do.
echo "sheaf-web and sheaf-nfsd are neither enabled nor started"
for unit in sheaf-server:sheaf-web sheaf-nfs:sheaf-nfsd; do
	script=$work/${unit%:*}/postinst
	unit=${unit#*:}.service
	[ -e "/lib/systemd/system/$unit" ] || fail "no unit $unit"
	[ -z "$(find /etc/systemd/system -name "$unit" 2>/dev/null)" ] || fail "$unit is enabled"
	dpkg-deb -e "$(echo "$debs/$(basename "${script%/*}")"_*.deb)" "${script%/*}" || fail "dpkg-deb -e"
	[ -e "$script" ] || continue
	# what --no-enable leaves enables only what was enabled before, and asks debian-installed for that
	grep -q "deb-systemd-helper enable '$unit'" "$script" &&
		! grep -q "deb-systemd-helper debian-installed '$unit'" "$script" && fail "$unit would be enabled"
	grep -B 3 "deb-systemd-invoke .*'$unit'" "$script" | grep -q "_dh_action=start\|invoke start" &&
		fail "$unit would be started"
done

echo "a program against libsheaf-dev"
command -v cc >/dev/null && command -v pkg-config >/dev/null || fail "no compiler and pkg-config"
cc -Wall -o matrix /usr/share/doc/libsheaf-dev/examples/matrix.c $(pkg-config --cflags --libs sheaf) ||
	fail "matrix.c does not compile"
./matrix "local:$work/fs" || fail "matrix"

echo "servers as the unit runs them: as the user sheaf, from /etc/sheaf/sheaf.conf"
sheaf init "$fs" --servers 2 --meta 2 --port "${SHEAF_TEST_PORT:-28930}" || fail "sheaf init"
sed -E "s,^(key|server_key|storage) = ,&$fs/," "$fs/sheaf.conf" >/etc/sheaf/sheaf.conf
chown -R sheaf:sheaf "$fs"
line=$(sed -n 's/^ExecStart=//p' /lib/systemd/system/sheaf@.service)
for server in server0 server1; do
	setpriv --reuid=sheaf --regid=sheaf --clear-groups --no-new-privs ${line//%i/$server} >>log 2>&1 &
done
for _ in $(seq 600); do
	sheaf status >/dev/null 2>&1 && break
	sleep 0.1
done
sheaf status || { cat log; fail "not all servers are up"; }
./matrix || fail "matrix over servers"
cc -O2 -o heat /usr/share/doc/libsheaf-dev/examples/ckpt/heat.c $(pkg-config --cflags --libs sheaf) ||
	fail "heat.c does not compile"
./heat 40 >log 2>&1 || { cat log; fail "heat"; }
cat >wave.c <<'END'
#include <stdio.h>
#include "sheaf_ckpt.h"

int main(int argc, char **argv)
{
	struct sheaf_ckpt_options o = { .size = sizeof(o) };
	struct sheaf_ckpt *c;
	struct sheaf *fs;
	int rank;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (sheaf_connect(NULL, &fs) || sheaf_ckpt_open_mpi(fs, argv[1], MPI_COMM_WORLD, &o, &c) ||
	    sheaf_ckpt_add(c, "rank", &rank, NULL, sizeof(rank)) || sheaf_ckpt_take(c))
		MPI_Abort(MPI_COMM_WORLD, 1);
	sheaf_ckpt_close(c);
	sheaf_disconnect(fs);
	return MPI_Finalize();
}
END
sheaf ls -l / | grep -q matrix || fail "no matrix in the root"
for mpi in "${mpis[@]}"; do
	echo "an MPI program with libsheaf-mpiio-$mpi"
	options=
	[ "$mpi" = openmpi ] && options="--allow-run-as-root --oversubscribe"
	"mpicc.$mpi" -o columns "$source/examples/mpi/columns.c" || fail "columns.c does not compile with $mpi"
	sheaf mpirun --mpiexec "mpiexec.$mpi $options" -n 2 ./columns "sheaf:/$mpi" >log 2>&1 &&
		grep -q "as written" log || { cat log; fail "columns with $mpi"; }
	sheaf ls -l / | grep -q "$mpi" || fail "no file of $mpi in the root"
	"mpicc.$mpi" -include mpi.h -o wave wave.c "-lsheaf-ckpt-$mpi" -lsheaf || fail "wave.c does not compile with $mpi"
	"mpiexec.$mpi" $options -n 2 ./wave "wave-$mpi" >log 2>&1 || { cat log; fail "a checkpoint with $mpi"; }
	sheaf ckpt verify "wave-$mpi" || fail "the checkpoint of wave"
done
sheaf stop || fail "sheaf stop"
sheaf start || fail "sheaf start does not find sheafd"
sheaf stop || fail "sheaf stop"

if [ -e /dev/fuse ]; then
	echo "mount(8) mounts what /etc/sheaf/sheaf.conf describes"
	sheaf start >/dev/null || fail "sheaf start"
	mkdir mnt
	mount -t fuse.sheaf /etc/sheaf/sheaf.conf "$work/mnt" || fail "mount -t fuse.sheaf"
	cmp mnt/matrix <(sheaf cat /matrix) || fail "matrix through the mount"
	umount mnt || fail umount
	sheaf stop >/dev/null || fail "sheaf stop"
fi

echo "the gateway that the package brings"
port=$((${SHEAF_TEST_PORT:-28930} + 50))
cat >>/etc/sheaf/sheaf.conf <<END

[nfs]
address = 127.0.0.1:$port

[export.data]
path = /
END
sheaf start >/dev/null || fail "sheaf start"
sheaf nfs start || fail "sheaf nfs start"
sheaf nfs status || fail "sheaf nfs status"
sheaf nfs stop && sheaf stop >/dev/null || fail "sheaf nfs stop"

echo "remove: programs go, data stay"
apt-get -q -y purge $packages >log 2>&1 || { cat log; fail "apt-get purge"; }
[ -e /usr/bin/sheaf ] || [ -e /usr/bin/sheaf-mount ] && fail "sheaf is still there"
[ -e "$fs/server0/sheaf.id" ] || fail "purging removed data"
exit 0
