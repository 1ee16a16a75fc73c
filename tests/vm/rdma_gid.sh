#!/bin/bash
# The address (GID) of a card goes while a client works, and comes back: all copies complete by TCP, with the right data,
# and later ones use RDMA again.
set -u
. "$SHEAF_SOURCE/tests/system/session.inc"
. "$SHEAF_SOURCE/tests/vm/rdma.inc"

# The number of an address of rxe0
gid_index() {
	grep -l "$1" /sys/class/infiniband/rxe0/ports/1/gids/* | sed 's|.*/||'
}

# Copies and compares until there is a file `enough`.
work_on() {
	until [ -e enough ]; do
		"$sheaf" --conf fs/client.conf cp data sheaf:/load 2>cp.err &&
			"$sheaf" --conf fs/client.conf cat /load 2>cp.err | cmp - data || return 1
		echo >>rounds
	done
}

# has_rounds N: the background work has been done so often
has_rounds() {
	[ "$(wc -l <rounds)" -ge "$1" ]
}

ip -6 address add fd09::1/128 dev v0 nodad || fail "no IPv6"
within gid_index fd09:0000
lines=("device = rxe0" "gid_index = $(gid_index fd09:0000)")
serve 10.9.0.1 "${lines[@]}"
client "${lines[@]}"
goes rdma
: >rounds
work_on &
helpers+=($!)
within has_rounds 1
ip -6 address delete fd09::1/128 dev v0
within grep -q "warn net no RDMA: .* lost its address" fs/server0/sheafd.log
within has_rounds $(($(wc -l <rounds) + 2))
goes tcp
ip -6 address add fd09::1/128 dev v0 nodad
within gid_index fd09:0000
within has_rounds $(($(wc -l <rounds) + 2))
touch enough
wait "${helpers[0]}" || fail "a client has failed: $(cat cp.err)"
helpers=()
goes rdma
unserve
