#!/bin/bash
# What RDMA needs and does not have: memory that may be locked, a device, a port. Clients use TCP then, and say why;
# with SHEAF_NET=rdma they fail.
set -u
. "$SHEAF_SOURCE/tests/system/session.inc"
. "$SHEAF_SOURCE/tests/vm/rdma.inc"
timeout=240

serve 10.9.0.1 "device = rxe0"
client "device = rxe1"
goes rdma
for limit in 0 64; do
	echo "the client may lock $limit KiB"
	(
		ulimit -l $limit
		as=weak goes tcp "raise the limit of locked memory (ulimit -l)" &&
			as=weak refuses "raise the limit of locked memory (ulimit -l)"
	) || exit 1
done
for limit in 1024 4096; do
	echo "the client may lock $limit KiB" # messages, and some of the data
	(
		ulimit -l $limit
		as=weak goes rdma
	) || exit 1
done
unserve

echo "the server may lock 64 KiB"
serve 10.9.0.1 "device = rxe0"
client "device = rxe1"
expect 0 stop
(
	ulimit -l 64
	as=weak start_servers
) || exit 1
grep -q "warn net no RDMA: .*raise the limit of locked memory" fs/server0/sheafd.log || fail "the log does not say it"
goes tcp "the server: cannot register 64 MiB of buffers: raise the limit of locked memory"
unserve

echo "the server's port is down"
serve 10.9.0.1 "device = rxe0"
client "device = rxe1"
expect 0 stop
# the other end of the cable loses its carrier, and with it what it sends: TCP is to stay in the host
linkdown=/proc/sys/net/ipv4/conf/v1/ignore_routes_with_linkdown
echo 1 >$linkdown
ip link set v0 down
start_servers
grep -q "warn net no RDMA: port 1 of rxe0 is down" fs/server0/sheafd.log || fail "the log does not say it"
goes tcp "is down" # both ports are, at the ends of one cable
ip link set v0 up
echo 0 >$linkdown
unserve

echo "no device"
rdma link delete rxe1 || fail "rdma link delete"
serve 10.9.0.1 "device = rxe0"
client "device = rxe1"
goes tcp "no RDMA device rxe1 on this host"
refuses "no RDMA device rxe1 on this host"
client
goes rdma
unserve # Soft-RoCE waits for all that have a device open
rdma link delete rxe0 || fail "rdma link delete"
serve 10.9.0.1
client
goes tcp
unserve
rmmod rdma_rxe || fail "rmmod"
serve 10.9.0.1
client
goes tcp
refuses "the server has no RDMA"
unserve
