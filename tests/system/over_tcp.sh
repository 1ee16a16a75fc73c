#!/bin/bash
# Clients and servers of one host talk by Unix sockets; those of a cluster by TCP. The tests that move data and break
# things once more, over TCP. The others go the way that a host's own clients go.
set -u
export SHEAF_NET=tcp

for name in sys_api sys_names sys_list sys_movers sys_typed sys_fair sys_kill_client sys_kill_server; do
	echo "$name"
	"$SHEAF_BUILD/tests/$name" || exit 1
done
