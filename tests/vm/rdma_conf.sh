#!/bin/bash
# The section [rdma] of the cluster file, of clients and of servers: which device, port and address is used, what is said
# about wrong ones, and IPv6.
set -u
. "$SHEAF_SOURCE/tests/system/session.inc"
. "$SHEAF_SOURCE/tests/vm/rdma.inc"
timeout=240

# row LINE ROUTE [REASON]
row() {
	echo "$1"
	client "$1"
	goes "${@:2}"
}

serve 10.9.0.1 "device = rxe0"
grep -q "RDMA: rxe0 port 1, RoCE v2 10.9.0.1" fs/server0/sheafd.log || fail "the server's log does not name the device"
client
goes rdma
row "device = rxe1" rdma
row "device = none" tcp
row "device = mlx9" tcp "no RDMA device mlx9 on this host: correct it in the cluster file"
row "port = 2" tcp "has no port 2: correct it in the cluster file"
row "gid_index = 1" rdma
row "gid_index = 99" tcp "has no GID with index 99: correct it in the cluster file"
row "traffic_class = 32" rdma
row "pkey = 0xffff" rdma
row "pkey = 0x8001" tcp "is not in the partition 0x8001: correct pkey in the cluster file"
client "device = mlx9"
refuses "no RDMA device mlx9 on this host"
client "device = none"
refuses "the cluster file switches it off"
unserve

serve 10.9.0.1 "device = rxe1"
client "device = rxe0"
goes rdma
unserve

serve 10.9.0.1 "device = mlx9"
grep -q "warn net no RDMA, although the cluster file names mlx9: no RDMA device mlx9" fs/server0/sheafd.log ||
	fail "the server's log does not say that it has no device"
client
goes tcp "the server: no RDMA device mlx9"
unserve

serve 10.9.0.1 "device = none"
client
goes tcp
unserve

# The number of an address of rxe0
gid_index() {
	grep -l "$1" /sys/class/infiniband/rxe0/ports/1/gids/* | sed 's|.*/||'
}

ip -6 address add fd09::1/128 dev v0 nodad || fail "no IPv6"
echo "fd09::1 server6" >>/etc/hosts
within gid_index fd09:0000
index=$(gid_index fd09:0000)
for line in "device = rxe0" "gid_index = $index"; do
	serve "[fd09::1]" "$line"
	client "$line"
	sed -i 's/^address = \[fd09::1\]:/address = server6:/' fs/client.conf
	goes rdma
	unserve
done
