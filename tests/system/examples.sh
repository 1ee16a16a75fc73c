#!/bin/bash
# The examples, as the build made them: inside the process and over servers. They check their results themselves;
# what they print is what docs/scattered.md shows. (install.sh compiles and runs them as a user would.)
set -u
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$tree/tests/system/session.inc"
examples=$SHEAF_BUILD/examples
tutorial=$tree/docs/scattered.md

# shown NAME: every line it printed stands in the tutorial
shown() {
	local line
	while read -r line; do
		grep -qxF -- "$line" "$tutorial" || fail "docs/scattered.md does not show what $1 says: $line"
	done <out
}

# counted NAME SERVERS: a loop costs a request for each piece, list and type a request for each server (and a few
# of the connection's own)
counted() {
	awk -v n="$2" '
		/^a column of 2048 x 2048 doubles/ { ok += $(NF - 1) == n }
		/^a loop of sheaf_pread / { ok += $5 >= 2048 && $5 < 2048 + 20 }
		/^sheaf_read_(list|typed) / { ok += $2 >= n && $2 < n + 20 }
		END { exit ok != 4 }' out || fail "$1 counts otherwise on $2 servers"
}

# each CLUSTER SERVERS: all of them there
each() {
	local source name
	for source in "$tree"/examples/*.c; do
		name=$(basename "$source" .c)
		timeout 60 "$examples/$name" "$1" >out 2>err || fail "$name $1"
		[ -s err ] && fail "$name $1 complains"
		if [ "$name" = cost ]; then
			counted "$name" "$2"
		else
			shown "$name"
		fi
		grep -q "examples/$name.c" "$tutorial" || fail "docs/scattered.md does not name $name.c"
	done
}

echo "inside the process"
each "local:$work/mine" 2

echo "over servers"
expect 0 init fs --servers 3 --meta 3 --port "$(free_ports 3)" --stripe-unit 64K
confs+=("$work/fs/sheaf.conf")
expect 0 --conf fs/sheaf.conf start
each fs/sheaf.conf 3
each fs/sheaf.conf 3 # over what the first round has left

echo "by \$SHEAF_CONF, and where there is nothing"
SHEAF_CONF=$work/fs/sheaf.conf "$examples/checkpoint" >out 2>err || fail "checkpoint by \$SHEAF_CONF"
shown checkpoint
for name in matrix checkpoint; do
	"$examples/$name" fs/no.conf >out 2>err && fail "$name without a cluster file"
	grep -q "^cannot connect: fs/no.conf: " err || fail "$name does not say why"
done
expect 0 --conf fs/sheaf.conf check
exit 0
