#!/bin/bash
# Three clients and two servers on hosts of their own. Of all packets that leave a host one in a hundred is lost. Large
# and small files arrive whole at the other clients; nobody sees an error, and no connection is given up.
set -u
. "$SHEAF_SOURCE/tests/system/session.inc"
. "$SHEAF_SOURCE/tests/vm/hosts.inc"

clients=(c0 c1 c2)
servers s0=10.8.0.1 s1=10.8.0.2
for i in 0 1 2; do host c$i 10.8.0.1$i; done
for h in s0 s1 "${clients[@]}"; do queue "$h" netem loss 1% limit 100000; done

# together COMMAND...: on all clients at the same time, with the name of the client as last argument
together() {
	local c pids=()
	for c in "${clients[@]}"; do
		"$@" "$c" &
		pids+=($!)
	done
	for c in "${pids[@]}"; do wait "$c" || fail "$*: exit status $?"; done
}

make() {
	mkdir "$1" "$1/small"
	head -c 12345678 /dev/urandom >"$1/large"
	split -n 60 -a 3 "$1/large" "$1/small/"
}

write() {
	timeout 400 ip netns exec "$1" "$sheaf" cp -r "$1" "sheaf:/$1"
}

# Reads what another client has written.
read_other() {
	local i=${1#c} from
	from=c$(((i + 1) % 3))
	timeout 400 ip netns exec "$1" "$sheaf" cp -r "sheaf:/$from" "read.$1" && diff -r "$from" "read.$1"
}

for c in "${clients[@]}"; do make "$c"; done
for round in 1 2 3; do
	together write
	echo "round $round: written"
	together read_other
	echo "round $round: read"
	rm -r read.*
	for c in "${clients[@]}"; do
		on "$c" "$sheaf" rm -r "/$c" || fail "cannot remove /$c"
		rm -r "$c"
		make "$c"
	done
done
for h in s0 s1 "${clients[@]}"; do
	lost=$(tc -n "$h" -s qdisc show dev eth0 | sed -n 's/.*dropped \([0-9]*\),.*/\1/p')
	echo "$h lost $lost packets"
	[ "$lost" -gt 0 ] || fail "no packet of $h was lost"
done
nothing_broke
