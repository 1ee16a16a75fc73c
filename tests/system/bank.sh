#!/bin/bash
# sheaf bank and sheaf status: the state of the cache bank as people and programs see it.
set -u
command -v memcached >/dev/null || {
	echo "memcached is not installed"
	exit 77
}
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$tree/tests/system/session.inc"
unset SHEAF_CONF SHEAF_BANK
export LC_ALL=C.UTF-8

"$sheaf" init fs --servers 2 --meta 1 --port "$(free_ports 3)" >/dev/null || fail "init"
confs+=("$work/fs/sheaf.conf")
export SHEAF_CONF=$work/fs/sheaf.conf
printf '\n[bank]\nservers = 127.0.0.1:%s\ntimeout_ms = 200\n' "$(free_ports 1)" >>fs/sheaf.conf
"$sheaf" start >/dev/null || fail "start"

# holds EXPRESSION: about d, the JSON in out
holds() {
	python3 -c '
import json, sys
d = json.load(open("out"))
if not eval(sys.argv[1]):
    sys.exit(json.dumps(d)[:600])' "$1" || fail "not so: $1"
}

echo "a bank that does not run"
expect 0 status --json
holds "d['bank']['daemons'][0]['up'] is False and d['bank']['daemons'][0]['why']"
expect 0 status
says "^cache bank: 0 of 1 daemons are up"
says "^cache bank: server0 sets no notices of changes" # there was no key when it began
expect 1 bank status

echo "a bank that runs"
expect 0 bank start # the servers read [bank] again, soon
says "reads .bank. again"
for ((i = 0; i < 100; i++)); do
	expect 0 status
	grep -q "sets no notices" out || break
	sleep 0.1
done
head -c 5000 /dev/urandom >data
expect 0 cp data sheaf:/data
# a stat asks the bank when the server has changed nothing for a second
found() {
	SHEAF_BANK=always expect 0 stat /data /data /data
	expect 0 bank status --json
	python3 -c 'import json, sys; sys.exit(json.load(open("out"))["hits"] == 0)'
}
for ((i = 0; i < 100; i++)); do
	found && break
	sleep 0.1
done
expect 0 status
says "^cache bank: 1 of 1 daemons are up, .* answers in"
grep -q "sets no notices" out && fail "the server sets notices"
expect 0 status --json
holds "d['bank']['hits'] > 0 and d['bank']['misses'] > 0 and d['bank']['bytes'] >= 0"
holds "d['bank']['errors'] >= 0 and d['bank']['answer_ns'] > 0 and d['bank']['gateway'] is None"
holds "[s['sets_notices'] for s in d['bank']['servers']] == [True]"
expect 0 bank status --json
holds "d['daemons'][0]['up'] and d['hits'] == d['daemons'][0]['get_hits'] and len(d['servers']) == 1"
expect 0 bank status
grep -q outdated err && fail "the cluster file is not outdated"
says "^DAEMON .*HITS"
says "^cache bank: 1 of 1"

echo "what a directory's files have there"
expect 0 mkdir /quiet
expect 0 setfattr -n sheaf.cache -v none /quiet
expect 1 setfattr -n sheaf.cache -v some /quiet
expect 0 cp data sheaf:/quiet/data
expect 0 getfattr -n sheaf.cache /quiet/data
says "none"
expect 0 setfattr -x sheaf.cache /quiet/data
expect 1 getfattr -n sheaf.cache /quiet/data

expect 0 bank stop
echo "all is as it should be"
