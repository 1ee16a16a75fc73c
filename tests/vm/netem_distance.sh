#!/bin/bash
# A client 20 ms away beside two near ones, all of them writing and reading large files until each has done so three
# times. Nobody waits for ever, all data are right, and the distant client's part of the servers' windows is not that
# of a client that has only two in flight.
set -u
. "$SHEAF_SOURCE/tests/system/session.inc"
. "$SHEAF_SOURCE/tests/vm/hosts.inc"

clients=(far near0 near1)
bytes=$((16 << 20))
rounds=3   # at least, of each client
least=30   # the distant client has at least one window in so many

servers s0=10.8.0.1 s1=10.8.0.2
host far 10.8.0.11
host near0 10.8.0.12
host near1 10.8.0.13
queue far netem delay 20ms limit 100000

# Writes and reads until there is a file `enough`; the file rounds.NAME has a line for each time.
work_on() {
	local i=0
	until [ -e enough ]; do
		head -c $bytes /dev/urandom >"data.$1"
		on "$1" "$sheaf" cp "data.$1" "sheaf:/$1" && on "$1" "$sheaf" cat "/$1" | cmp - "data.$1" || return 1
		echo $((i++)) >>"rounds.$1"
	done
}

done_by() {
	wc -l <"rounds.$1"
}

pids=()
for c in "${clients[@]}"; do
	: >"rounds.$c"
	work_on "$c" &
	pids+=($!)
done
helpers+=("${pids[@]}")
while sleep 5; do
	printf 'rounds of the distant client %d, of the near ones %d and %d\n' \
		"$(done_by far)" "$(done_by near0)" "$(done_by near1)"
	for p in "${pids[@]}"; do kill -0 "$p" || fail "a client has failed"; done
	for c in "${clients[@]}"; do [ "$(done_by "$c")" -ge $rounds ] || continue 2; done
	break
done
touch enough
for p in "${pids[@]}"; do wait "$p" || fail "a client has failed"; done

total=$(counter windows_total)
part=$(($(done_by far) * 2 * bytes / (256 << 10)))
echo "of $total windows the distant client had $part"
[ $((part * least)) -ge "$total" ] || fail "too few windows for the distant client"
nothing_broke
