#!/bin/bash
# A cable that is pulled for 5 s while clients copy files: all copies complete, with the right data. Clients that may use
# any route, and clients that must use RDMA.
set -u
. "$SHEAF_SOURCE/tests/system/session.inc"
. "$SHEAF_SOURCE/tests/vm/rdma.inc"

pull_cable() {
	ip link set v0 down
}

# A port that comes up has neither the routes nor the neighbour that vm_guest.sh gave it.
plug_cable() {
	ip link set v0 up &&
		ip neigh replace 10.9.0.2 lladdr "$(cat /sys/class/net/v1/address)" dev v0 nud permanent &&
		ip route replace 10.9.0.2 dev v0 src 10.9.0.1 table 10000 || fail "the cable cannot be plugged in"
}

# Copies and compares until there is a file `enough`; the file rounds.N has a line for each time. A client that must use
# RDMA and begins while its port is down fails at once; one that works waits.
work_on() {
	local name=/load$1
	until [ -e enough ]; do
		if "$sheaf" --conf fs/client.conf cp data "sheaf:$name" 2>"cp.$1" &&
			"$sheaf" --conf fs/client.conf cat "$name" 2>"cp.$1" >"data.$1"; then
			cmp "data.$1" data || return 1
			echo >>"rounds.$1"
		elif ! grep -q "RDMA is required (SHEAF_NET=rdma): port 1 of rxe1 is down" "cp.$1"; then
			cat "cp.$1"
			return 1
		fi
	done
}

# all_worked N: each has done so N times more than before
all_worked() {
	local i
	for i in 0 1 2; do [ "$(wc -l <"rounds.$i")" -ge $((before[i] + $1)) ] || return 1; done
}

look() {
	local i
	for i in 0 1 2; do before[i]=$(wc -l <"rounds.$i"); done
}

# cut: pulls the cable while three clients work
cut() {
	local i pids=()
	before=()
	rm -f enough
	for i in 0 1 2; do
		: >"rounds.$i"
		work_on $i &
		pids+=($!)
	done
	helpers+=("${pids[@]}")
	for i in 1 2; do
		look
		within all_worked 1
		pull_cable
		sleep 5
		plug_cable
		look
		within all_worked 2
		echo "the cable was pulled $i times"
	done
	touch enough
	for i in "${pids[@]}"; do wait "$i" || fail "a client has failed"; done
}

serve 10.9.0.1 "device = rxe0"
client "device = rxe1"
cut
goes rdma
SHEAF_NET=rdma cut
unserve
