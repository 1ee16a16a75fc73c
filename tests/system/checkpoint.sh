#!/bin/bash
# The tutorial of docs/checkpoint.md: its commands, as they stand there; and the command `sheaf ckpt`.
set -u
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$tree/tests/system/session.inc"
command -v cc >/dev/null || { echo "there is no C compiler"; exit 77; }
expect 0 init fs --servers 2 --port "$(free_ports 2)"
sed -i 's/^\(\[cluster\].*\)/\1\nlease = 2/; /^lease = 30/d' fs/sheaf.conf
confs+=("$work/fs/sheaf.conf")
export SHEAF_CONF=$work/fs/sheaf.conf
expect 0 start

echo "the C code of the page is code of its programs"
python3 - "$tree" <<'END' || fail "docs/checkpoint.md"
import re, sys
tree = sys.argv[1]
page = open(tree + "/docs/checkpoint.md").read()
sources = "".join(open(tree + p).read() for p in ("/examples/ckpt/heat.c", "/tests/mpi/mpi_ckpt.c"))
sys.exit(not all(b in sources for b in re.findall(r"^```c\n(.*?)^```$", page, re.M | re.S)))
END

echo "the commands of the tutorial"
cp "$tree/examples/ckpt/heat.c" .
export CPATH=$tree/include LIBRARY_PATH=$SHEAF_BUILD/lib LD_LIBRARY_PATH=$SHEAF_BUILD/lib PATH=$bin:$PATH
sed -n '/^```sh$/,/^```$/{/^```/!p}' "$tree/docs/checkpoint.md" >commands
[ "$(wc -l <commands)" -ge 6 ] || fail "the page has no commands"
sed -i 's/heat 4000/heat 300/; s/-O2/& -fsanitize=address/' commands
[ -n "$(nm "$SHEAF_BUILD/lib/libsheaf.so" 2>/dev/null | grep __asan_init)" ] || sed -i 's/ -fsanitize=address//' commands
# slower steps, so that it is killed in the middle
sed -i 's/^\tfor (long i = 1; i < CELLS - 1; i++)$/\tusleep(20000);\n&/' heat.c
bash -e commands >out 2>err || fail "the tutorial: exit status $?"
says "all checksums are right"
says "^continues at step [1-9]"
result=$(grep "^step 300: " out) || fail "it has not ended"

echo "the result is that of a run that was not killed"
expect 0 rm -r /ckpt/heat
./heat 300 >out 2>err || fail "heat"
grep -q "^continues" out && fail "it found a checkpoint"
says "^$result$"

echo "the command"
expect 0 ckpt list
says "^heat "
expect 0 ckpt list heat --json
python3 -c "import json, sys; c = json.load(open('out'))['jobs'][0]['checkpoints']
sys.exit(not (1 <= len(c) <= 2 and c[0]['complete'] and c[0]['bytes'] == 8000008))" || fail "ckpt list --json"
number=$(python3 -c "import json; print(json.load(open('out'))['jobs'][0]['checkpoints'][0]['number'])")
expect 0 ckpt show heat
says "^now  *8000000  *0$"
expect 1 ckpt show heat --process 1
one_line "the checkpoint has 1 processes"
expect 0 ckpt keep heat 1
expect 0 ckpt verify heat --json
says "\"verified\":$number"
expect 1 ckpt verify heat 77
expect 1 ckpt now nothing
expect 1 ckpt list nothing
one_line "there is no job 'nothing' in /ckpt"
expect 2 ckpt rm heat
expect 2 ckpt bake
expect 1 ckpt now heat --wait 1
one_line "has taken no checkpoint within 1 s"
expect 0 ckpt rm heat "$number"
expect 1 ckpt show heat
one_line "no complete checkpoint"
expect 0 check
exit 0
