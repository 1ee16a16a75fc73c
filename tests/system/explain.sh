#!/bin/bash
# sheaf explain: an access as numbers, as JSON, and recorded from a program; its tables, JSON and pictures; what is wrong
# with a file is said with its place. sys_explain.c holds that plans and traces are true.
set -u
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$tree/tests/system/session.inc"
unset SHEAF_CONF SHEAF_TRACE SHEAF_MOVER
export LC_ALL=C.UTF-8

"$sheaf" init fs --servers 3 --meta 3 --port "$(free_ports 3)" --stripe-unit 64K >/dev/null || fail "init"
sed -i 's/^timeout = .*/timeout = 8/' fs/sheaf.conf
confs+=("$work/fs/sheaf.conf")
export SHEAF_CONF=$work/fs/sheaf.conf
"$sheaf" start >/dev/null || fail "start"

# holds EXPRESSION: about d, the JSON in out
holds() {
	python3 -c '
import json, sys
d = json.load(open("out"))
ways = {w["way"]: w for w in d["ways"]}
if not eval(sys.argv[1]):
    sys.exit(json.dumps(d["ways"][0])[:600])' "$1" || fail "not so: $1"
}

echo "numbers"
expect 0 explain --vector 1024,64,4096
says "^read of 64 KiB: .* 1024 pieces of objects; stripes of 64 KiB over 3 servers"
says "^WAY  *SERVER  *MOVER  *STRATEGY  *BYTES  *SEGMENTS  *REQUESTS  *MESSAGES  *CALLS  *COPIED  *PREDICTED  *MEASURED"
for way in auto inline pack gather; do says "^$way  *all "; done
says "  server[0-2]  .*░.*│.*  1.6 %"
says "· nothing"
[ -s err ] && fail "something on stderr"
for op in --read --write; do
	expect 0 explain --vector 5000,64,200 --mem-stride 100 $op --json
	holds "d['op'] == '${op#--}' and d['bytes'] == 320000 and d['begin'] == 0 and d['end'] == 4999 * 200 + 64"
	holds "d['rounds'] >= 3 and d['unit'] == 65536 and d['width'] == 3"
	holds "list(ways) == ['auto', 'inline', 'pack', 'gather']"
	# a request and a reply for each server, of however many segments; nothing is copied where it is gathered
	holds "all(s['requests'] == s['planned_requests'] == 1 for w in ('pack', 'gather') for s in ways[w]['servers'])"
	holds "all(s['copied'] == 0 and s['mover'] == 'gather' for s in ways['gather']['servers'])"
	holds "all(s['copied'] == s['bytes'] and s['mover'] == 'pack' for s in ways['pack']['servers'])"
	holds "ways['inline']['requests'] == ways['inline']['planned_requests'] > 3"
	holds "ways['inline']['messages'] == 2 * ways['inline']['requests']"
	holds "all(w['messages_sent'] == w['messages_received'] == w['requests'] for w in d['ways'])"
	holds "all(w['work_requests'] == w['registrations'] == 0 for w in d['ways'])"
	# what the servers count in their metrics; nothing of it moves through windows inside messages
	holds "all(w['strategy'] for w in d['ways']) and ways['gather']['strategy'] != 'message'"
	[ $op = --read ] && holds "all(s['strategy'] == 'message' for s in ways['inline']['servers'])"
	holds "len(d['links']) == d['width'] and all(l['route'] in ('unix', 'tcp', 'loop') and l['round_ns'] > 0 and l['call_ns'] > 0 and l['work_request_ns'] == l['registration_ns'] == 0 for l in d['links'])"
	holds "all(w['measured_ns'] > 0 and w['predicted_ns'] > 0 and w['calls'] > 0 for w in d['ways'])"
	holds "all(s['measured_ns'] > 0 and s['predicted_ns'] > 0 for w in d['ways'] for s in w['servers'])"
	holds "all(sum(s[k] for s in w['servers']) == w[k] for w in d['ways'] for k in ('bytes', 'segments', 'copied', 'requests'))"
	holds "len(d['picture']['rows']) == 3 and max(max(r['cells']) for r in d['picture']['rows']) <= 1"
done
expect 0 explain --vector 10,4K,-8K --offset 1M --unit 4K --width 2 --json
holds "d['unit'] == 4096 and d['width'] == 2 and d['begin'] == 2**20 - 9 * 8192 and d['end'] == 2**20 + 4096"
expect 0 explain --vector 3,8,64 --width 9
says "asks for 9 servers, but there are 3"
expect 0 explain --vector 1000000,8,64 --plan --json
holds "ways['auto']['extents'] == 1000000 and ways['gather']['planned_requests'] == 3"
expect 0 ls -R /
[ "$(cat out)" = "" ] || [ "$(cat out)" = "/:" ] || fail "something is left"

echo "how servers access their files"
expect 0 explain --vector 20000,8,100 --read
says "^Accesses of the servers to their files"
says "^SERVER  *DATA  *PIECES  *ACCESSES  *RANGES  *COVERED  *USEFUL  *PREDICTED  *SEPARATE  *MEASURED$"
says "^server0  *cached  *[0-9]"
says "^  *on disk  *[0-9]"
says "^server[0-2], .* to .*: \(covering read of\|separate reads of\) [0-9]* pieces: .* s"
for op in --read --write; do
	expect 0 explain --vector 20000,8,100 $op --plan --json
	holds "[s['server'] for s in d['sieve']] == [s['server'] for s in ways['auto']['servers']]"
	holds "sum(s['pieces'] for s in d['sieve']) == ways['auto']['extents']"
	holds "all(s['measured_ns'] is None and s['windows'] >= 1 for s in d['sieve'])"
	plans="[p for s in d['sieve'] for p in (s['cached'], s['cold'])]"
	holds "all(0 < p['predicted_ns'] <= 1.01 * p['separate_ns'] + 1 and 0 < p['useful'] <= 1 for p in $plans)"
	holds "all(len(p['parts']) == min(p['n_parts'], 8) >= 1 for p in $plans)"
	parts="[x for p in $plans for x in p['parts']]"
	holds "all(x['begin'] < x['end'] and x['predicted_ns'] > 0 and 0 < x['useful'] <= 1 for x in $parts)"
	holds "all(x['reason'].startswith('covering ${op#--} of' if x['covering'] else 'separate ${op#--}s of') for x in $parts)"
	# pieces of 8 bytes in 100 on a disk: no disk reads each of them by itself as quickly
	holds "all(s['cold']['ranges'] >= 1 and s['cold']['accesses'] < s['pieces'] for s in d['sieve'])"
done
expect 0 explain --vector 4,256K,1M --plan --json # too far apart, and too large
holds "all(s['cached']['ranges'] == 0 and s['cached']['accesses'] == s['pieces'] for s in d['sieve'])"
expect 0 explain --vector 3,8,64 --plan --json # in the replies
holds "d['sieve'] == []"

echo "planned only"
expect 0 explain --vector 4,1G,2G --plan
says "^WAY  *SERVER  *MOVER  *BYTES  *SEGMENTS  *REQUESTS  *PREDICTED$"
expect 0 explain --vector 4,1G,2G --plan --json
holds "d['rounds'] == 0 and ways['auto']['measured_ns'] is None and ways['auto']['predicted_ns'] > 0"
holds "all(s['calls'] is None and s['copied'] is None for s in ways['pack']['servers'])"
expect 1 explain --vector 4,1G,2G
one_line "4 GiB of memory.*--plan.*--force"
expect 1 explain --vector 100000000000,8,64 --plan
one_line "more than 64 million pieces"

echo "JSON"
cat >a.json <<'END'
{
	"op": "write", "unit": 4096, "width": 3,
	"file": [[0, 100], [5000, 28], [20000, 8, 16, 64]],
	"mem": [[0, 128], [4096, 128]]
}
END
expect 0 explain a.json --json
holds "d['op'] == 'write' and d['bytes'] == 256 and d['end'] == 20000 + 15 * 64 + 8 and d['unit'] == 4096"
expect 0 explain a.json --read --unit 8K --json
holds "d['op'] == 'read' and d['unit'] == 8192"
for type in '{"bytes": 512}' \
	'{"vector": {"count": 64, "block": 8, "stride": 100}}' \
	'{"vector": {"count": 8, "stride": 4096, "of": {"vector": {"count": 8, "stride": 64, "of": {"bytes": 8}}}}}' \
	'{"indexed": {"blocks": [8, 8, 16], "displ": [0, 1000, 500], "of": {"bytes": 16}}}' \
	'{"subarray": {"sizes": [64, 64], "subsizes": [8, 8], "starts": [3, 5], "of": {"bytes": 8}}}' \
	'{"struct": [[0, {"bytes": 256}], [1000, {"bytes": 128}, 2]]}'; do
	echo "{\"file\": {\"type\": $type, \"offset\": 4000}}" >t.json
	expect 0 explain t.json --json
	holds "d['bytes'] == 512 and d['begin'] >= 4000"
	echo "{\"file\": [[0, 512]], \"mem\": {\"type\": $type}}" >t.json
	expect 0 explain t.json --plan --json
	holds "d['bytes'] == 512 and d['end'] == 512"
done
echo '{"file": {"type": {"bytes": 8}, "count": 64}, "mem": [[0, 500], [1000, 12]]}' >t.json
expect 0 explain t.json --json
holds "d['bytes'] == 512 and d['end'] == 512"

# wrong TEXT PATTERN: what is said of such a file
wrong() {
	printf '%s' "$1" >bad.json
	expect 1 explain bad.json --plan
	one_line "^sheaf explain: bad.json: $2"
	[ -s out ] && fail "there is more to say than the error"
}
wrong '' "it is empty"
wrong '
{"file": [[0, 8]],
 "op": read}' "line 3: this is no JSON"
wrong '{"file": [[0, 8]]' "line 1: this is no JSON: it ends too early"
wrong '{"file": [[0, 8]]} and more' "line 1: this is no JSON: something follows"
wrong '[1, 2]' "an access is an object"
wrong '{"op": "read"}' "\"file\" is missing"
wrong '{"op": "seek", "file": [[0, 8]]}' "op must be"
wrong '{"file": 8}' "file must be"
wrong '{"file": [[0, 8], [16]]}' "file\[1\] must be \[offset, length\]"
wrong '{"file": [[0, -8]]}' "file\[0\] is -8, but must be from 0"
wrong '{"file": [[0, 1.5]]}' "file\[0\] must be a whole number"
wrong '{"file": [[0, "8"]]}' "file\[0\] must be a whole number"
wrong '{"file": [[9223372036854775800, 100]]}' "file\[0\] reaches below 0 or beyond"
wrong '{"file": [[99999999999999999999999, 100]]}' "file\[0\] is too large"
wrong '{"file": [[0, 8, 10, -64]]}' "file\[0\] reaches below 0"
wrong '{"file": [[0, 8, 10000000000, 64]]}' "file\[0\]: more than .* describe them by a type"
wrong '{"file": [[0, 8]], "mem": [[0, 9]]}' "file has 8 bytes and mem 9"
wrong '{"file": [[0, 0]]}' "there is nothing to move"
wrong '{"file": [[0, 8]], "unit": 1000}' "unit must be a multiple of 4096"
wrong '{"file": [[0, 8]], "width": 1000}' "width must be at most 256"
wrong '{"file": {"type": {"vector": {"count": 3}}}}' "vector.stride is missing"
wrong '{"file": {"type": {"vector": {"count": -3, "stride": 8}}}}' "vector.count is -3"
wrong '{"file": {"type": {"vector": {"count": 9000000000000000000, "stride": 1000}}}}' "the vector reaches beyond"
wrong '{"file": {"type": {"helix": {"count": 3}}}}' "there is no type"
wrong '{"file": {"type": {"subarray": {"sizes": [4], "subsizes": [8], "starts": [0]}}}}' "the subarray reaches"
wrong '{"file": {"type": {"subarray": {"sizes": [4], "subsizes": [8]}}}}' "subarray needs \"starts\""
wrong '{"file": {"type": {"indexed": {"blocks": [4], "displ": [8, 9]}}}}' "indexed has 1 blocks and 2 displ"
wrong "$(python3 -c 'print("{\"file\": {\"type\": " + "{\"vector\": {\"count\": 2, \"stride\": 3, \"of\": " * 40 + "{\"bytes\": 1}" + "}}" * 40 + "}}")')" "the vector \(is nested\|reaches\)"
wrong "$(python3 -c 'print("[" * 5000)')" "line 1: this is no JSON: nesting too deep"
expect 1 explain missing.json
one_line "missing.json: no such file"
expect 1 explain .
one_line "is a directory"
expect 1 explain a.json --nth 2
one_line "it has 1 transfers"

echo "wrong usage"
for args in "" "--vector 1,2" "--vector 1,2,3,4" "--vector a,b,c" "--vector 0,1,2" "--vector 1,0,2" \
	"--vector 9223372036854775807,9223372036854775806,1" "a.json --vector 1,2,3" "a.json --offset 3" \
	"--vector 1,2,3 --nth 1" "--vector 1,2,3 --read --write" "--vector 1,2,3 --unit 1000" "--vector 1,2,3 --width 257" \
	"a.json --nth 0" "--vector 1,2,3 --offset -1"; do
	expect 2 explain $args
	one_line "sheaf explain: "
done
expect 1 explain --vector 10,8,-64
one_line "reaches below 0 or beyond"

echo "a program"
SHEAF_TRACE=$work/trace "$SHEAF_BUILD/examples/matrix" >/dev/null || fail "matrix"
[ "$(wc -l <trace)" = 3 ] || fail "not a line for each transfer"
SHEAF_TRACE=$work/trace expect 0 explain trace --nth 2 # which is not written down itself
says "^transfer 2 of 3 in trace"
says "^read of 4 KiB: .* 512 pieces of objects; stripes of 64 KiB over 3 servers"
says "^in the program that was recorded it took "
expect 0 explain trace --plan --json # the last one: all columns
holds "d['op'] == 'read' and d['bytes'] == 2**21 and ways['auto']['extents'] == 512 * 512 and d['recorded_ns'] > 0"
expect 0 explain trace --nth 1 --json
holds "d['op'] == 'write' and ways['auto']['segments'] == 32"
expect 1 explain trace --nth 4
one_line "it has 3 transfers, so there is no number 4"
head -c -20 trace >half # as after a full disk
expect 1 explain half
one_line "half: line 3: this is no JSON: it ends too early"
expect 0 explain half --nth 2
SHEAF_TRACE=$work/none/trace expect 1 ls
one_line "SHEAF_TRACE: cannot write to"
# a list without an order, too long to be recorded whole
python3 - >cut.json <<'END'
print('{"op":"read","file":[[0,8],[100,9],[300,8]],"mem":[[0,5],[9,5]],"cut":50000}')
END
expect 0 explain cut.json
says "^recorded in part: the first 10 bytes of 50000 pieces"

echo "pictures"
expect 0 explain --vector 3,1000,3000 --unit 4K --svg pic.svg --plan
says "  ███████▓···············▒███████░  49 %"
says "  ··············░███████▓·········  24 %"
python3 -c 'import xml.dom.minidom as x; d = x.parse("pic.svg"); assert len(d.getElementsByTagName("rect")) > 5' || fail "svg"
LC_ALL=C expect 0 explain --vector 3,1000,3000 --unit 4K --plan
says "  #######%...............+#######-  49 %"
LC_ALL=C grep -q '[^ -~]' out && fail "not ASCII"
expect 0 explain --vector 1000,70000,140000 --plan # more stripes than columns
says "50 %$"
says "832 KiB a cell"
python3 -c 'assert all(len(l) <= 81 for l in open("out", encoding="utf-8") if "%" in l)' || fail "too wide"
expect 1 explain --vector 3,1000,3000 --plan --svg none/pic.svg
one_line "none/pic.svg: no such file"
"$sheaf" explain --vector 3,8,64 --plan >/dev/full 2>err && fail "a full disk"

echo "without servers, and with servers that are down"
expect 0 --conf "local:$work/local" explain --vector 100,64,4096 --write
says "^gather  *all  *[a-z]*  *- " # no metrics, so the strategy is not known
"$sheaf" stop >/dev/null || fail "stop"
expect 1 explain --vector 3,8,64 --plan
one_line "does not answer"
echo "all as it should be"
