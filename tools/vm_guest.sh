#!/bin/sh
# Runs in a guest of vm.py, before the command: what a system has beside its files, and a network.
#   tools/vm_guest.sh MODULES COMMAND [ARGUMENT...]
# v0 (10.9.0.1) and v1 (10.9.0.2) are the ends of one cable, with the Soft-RoCE devices rxe0 and rxe1. rxe works
# in the first network namespace only, so both ends are in it, and rules keep the traffic between the two
# addresses on the cable: a host otherwise delivers what is sent to its own address without any device.
#
# One of two guests (SHEAF_GUEST is 0 or 1) has its end of the cable between them instead: eth0 with rxe0.
modules=$1
shift

die() {
	echo "vm_guest: $*" >&2
	exit 125
}

command_path=$PATH
PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t tmpfs run /run && mkdir -p /dev/pts /dev/shm /lib/modules "$TMPDIR" &&
	mount -t devpts devpts /dev/pts -o ptmxmode=666 && mount -t tmpfs shm /dev/shm -o mode=1777 &&
	mount -t tmpfs tmp "$TMPDIR" -o mode=1777 || die "cannot mount file systems in memory"
ln -s /proc/self/fd /dev/fd
ln -s fd/0 /dev/stdin
ln -s fd/1 /dev/stdout
ln -s fd/2 /dev/stderr
ln -sfn "$modules" "/lib/modules/$(uname -r)" || die "cannot show the kernel's modules"

own_cable() {
	ip link add v0 mtu 9000 type veth peer name v1 mtu 9000 || die "cannot make a cable"
	for i in 0 1; do
		sysctl -qw net.ipv4.conf.v$i.accept_local=1 net.ipv4.conf.v$i.rp_filter=0 &&
			ip address add 10.9.0.$((i + 1))/32 dev v$i && ip link set v$i up || die "cannot set up v$i"
	done
	sysctl -qw net.ipv4.conf.all.rp_filter=0
	# The local table comes after the rules of the cable.
	ip rule add pref 100 lookup local && ip rule del pref 0 || die "cannot change the rules of routing"
	for i in 0 1; do
		far=10.9.0.$((2 - i))
		ip neigh replace $far lladdr "$(cat /sys/class/net/v$((1 - i))/address)" dev v$i nud permanent &&
			ip route add $far dev v$i src 10.9.0.$((i + 1)) table 1000$i &&
			ip rule add pref 1$i iif lo to $far lookup 1000$i &&
			rdma link add rxe$i type rxe netdev v$i || die "cannot connect v$i"
	done
}

cable_to_other() {
	mkdir -p /run/shared && mount -t 9p shared /run/shared -o trans=virtio,version=9p2000.L,cache=none ||
		die "cannot mount the folder of both guests"
	modprobe virtio_net || die "cannot load virtio_net"
	ip address add "10.9.0.$((SHEAF_GUEST + 1))/24" dev eth0 && ip link set eth0 up &&
		rdma link add rxe0 type rxe netdev eth0 || die "cannot connect eth0"
}

modprobe -a veth rdma_rxe ib_uverbs fuse || die "cannot load modules"
ip link set lo up
if [ -n "${SHEAF_GUEST-}" ]; then cable_to_other; else own_cable; fi
PATH=$command_path:$PATH exec "$@"
