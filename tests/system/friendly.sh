#!/bin/bash
# What a newcomer runs into: output that does not arrive, files that are not what they should be, servers that are
# down, odd names, and sheaf status --watch. Each trouble is one line that names the thing, with the right exit
# status, and leaves nothing half-made. cli.sh holds the session in which all goes well.
set -u
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$tree/tests/system/session.inc"
unset SHEAF_CONF

# full ARGS...: with a full standard output it fails and says so
full() {
	"$sheaf" "$@" >/dev/full 2>err
	[ $? = 1 ] || fail "sheaf $* > /dev/full: not exit status 1"
	one_line "standard output: no space left"
}

echo "the command itself"
expect 2 help nosuch
one_line "no command 'nosuch'"
expect 0 help cp
says "usage: sheaf cp"
full --help
full help cp
full --version
for cmd in $("$sheaf" --help | sed -n 's/^  \([a-z]*\)  *[a-z].*/\1/p'); do
	expect 0 "$cmd" --help
	says "^Exit status: 0 done"
	grep -q "^  sheaf " out || fail "no example for $cmd"
done
(. "$tree/dist/sheaf.bash" && _sheaf_options status) >out
says "^--watch *$"
says "^--json *$"

echo "empty arguments and cluster files that are none"
for args in "ls" "stat" "cat" "mkdir" "rm" "init"; do
	expect 2 $args ""
	one_line "argument 1 is empty"
done
expect 2 --conf "" ls
one_line "conf"
expect 2 --conf local: ls
one_line "local:DIR"
mkdir dir
: >empty
printf 'a\0b' >binary
printf '[cluster]\nid = 12' >half
for f in dir empty binary half empty/x; do
	for cmd in ls start status; do
		expect 1 --conf $f $cmd
		one_line "$f"
		[ -s out ] && fail "there is more to say than the error"
	done
	SHEAF_CONF=$f expect 1 ls
	one_line "$f"
done

echo "init where it cannot be leaves nothing"
expect 1 init /dev/null/x
one_line "/dev/null/x"
expect 1 init empty
one_line "empty"
[ -f empty ] || fail "init took a file away"
# A file may not grow at all: the disk is full, as far as init can see.
(trap '' XFSZ; ulimit -f 0; "$sheaf" init nofit 2>&1) | cat >err
one_line "nofit/key"
[ -e nofit ] && fail "init left something behind"
(trap '' XFSZ; ulimit -f 0; "$sheaf" init dir 2>&1) | cat >err
one_line "dir/key"
[ -d dir ] && [ -z "$(ls -A dir)" ] || fail "an empty directory is no longer empty or gone"

echo "no servers are running"
port=$(free_ports 4)
expect 0 init fs --servers 4 --meta 2 --port "$port"
confs+=("$work/fs/sheaf.conf")
sed -i 's/^timeout = .*/timeout = 4/' fs/sheaf.conf
export SHEAF_CONF=$work/fs/sheaf.conf
for args in "ls" "df" "requests" "status"; do
	expect 1 $args
	one_line "sheaf start"
done
echo x >fs/server0/mine
expect 1 init fs
one_line "not empty"
[ -e fs/server0/mine ] && [ -e fs/key ] || fail "init harmed what was there"

echo "two starts at once, and who may start"
"$sheaf" start >out1 2>err1 &
helper=$!
helpers+=($helper)
expect 0 start
[ -s err ] && fail "the other start hurt"
wait $helper || fail "one of two starts failed"
helpers=()
[ "$(cat out out1 | grep -c 'is up')" = 4 ] || fail "not each server started once"
[ "$(cat out out1 | grep -c 'already running')" = 4 ] || fail "the second did not find them running"
# Root may do what modes forbid; without two capabilities it is like any user.
as_user() {
	local plain=()
	[ "$(id -u)" = 0 ] && plain=(setpriv --bounding-set=-dac_override,-dac_read_search)
	"${plain[@]}" "$sheaf" "$@" >out 2>err
	[ $? = 1 ] || fail "$* without the right to"
}
chmod 0 fs/key fs/server?
as_user start
one_line "server0 and 3 more: .*storage directory.*owner"
as_user stop
one_line "server0 and 3 more: .*may not read"
as_user ls
one_line "fs/key: .*permission denied"
as_user status
one_line "fs/key"
says "server0 .* ? "
chmod 700 fs/server?
as_user start # what runs still runs
one_line "fs/key"
chmod 600 fs/key
expect 0 status
sed 's/^key = .*/key = nokey/' fs/sheaf.conf >fs/nokey.conf
expect 1 --conf fs/nokey.conf ls
one_line "nokey: .*no such file"

echo "output that does not arrive"
seq 2000 >numbers
expect 0 cp numbers sheaf:/numbers
for i in 1 2 3; do
	expect 0 mkdir -p /many/dir$i
done
for args in "ls -R /" "ls -l /" "cat /numbers" "stat /" "stat --json /" "df" "requests" "status" \
	"status --json" "status --watch" "status --watch --json"; do
	full $args
done
"$sheaf" ls >&- 2>err
[ $? = 1 ] || fail "ls without standard output"
one_line "standard output"
for args in "ls -R /" "cat /numbers" "status" "status --watch=60" "status --watch=60 --json"; do
	"$sheaf" $args 2>err | head -1 >out
	[ -s out ] && [ ! -s err ] || fail "sheaf $args | head -1"
done

echo "names of all kinds"
long=$(printf '%255s' | tr ' ' n)
names=("a b" $'new\nline' $'control\x01\x1b[31m' $'bad\xff\xc3' $'surrogate\xed\xa0\x80' "ümlaut" "$long")
paths=()
for name in "${names[@]}"; do
	paths+=("/many/$name")
done
expect 0 mkdir "${paths[@]}"
expect 0 ls /many
for name in "${names[@]}"; do
	[[ $'\n'$(cat out)$'\n' == *$'\n'"$name"$'\n'* ]] || fail "ls lacks $name"
done
expect 0 ls -l /many
expect 0 stat "${paths[@]}"
expect 0 stat --json "${paths[@]}"
python3 - "${paths[@]}" <<'END' || fail "stat --json"
import json, os, sys
rows = [json.loads(line) for line in open("out", encoding="utf-8", errors="strict")]
assert len(rows) == len(sys.argv) - 1
for row, arg in zip(rows, sys.argv[1:]):
    want = os.fsencode(arg)
    try:
        assert row["path"] == want.decode()
    except UnicodeDecodeError:
        assert "\ufffd" in row["path"]
END
expect 1 stat $'/no\nsuch\x1b[31m'
one_line "^sheaf stat: /no?such?\[31m: no such file"
expect 1 mkdir "/${long}n"
one_line "255 bytes"
expect 1 ls "$(printf '/part%.0s' $(seq 1000))"
one_line "(5000 bytes): the name is too long"
[ "$(wc -c <err)" -lt 300 ] || fail "a path too long is shown whole"

echo "status: the memory that is a server's own, and a cluster file of any name"
expect 0 status
mv out table
cp fs/sheaf.conf fs/$'\xff.conf'
expect 0 --conf fs/$'\xff.conf' status --json
python3 - <<'END' || fail "status --json"
import json
d = json.load(open("out", encoding="utf-8", errors="strict"))
assert d["conf"].endswith("fs/\ufffd.conf"), d["conf"]
rows = [line.split() for line in open("table")][1:]
for row, s in zip(rows, d["servers"]):
    at = row.index(",".join(s["roles"])) + 1
    while not row[at].endswith("iB"): # behind the time it is up
        at += 1
    shown = float(row[at - 1]) * {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[row[at]]
    assert abs(shown - s["anon_bytes"]) < abs(shown - s["rss_bytes"]), (row, s)
END

echo "status --watch"
expect 2 status --watch=0
one_line "watch=0"
expect 2 status --watch=x
expect 2 status --watch 5
python3 - "$sheaf" "$work/fs/server1/sheafd.pid" <<'END' || fail "status --watch --json"
import json, os, signal, subprocess, sys, time
sheaf, pid_file = sys.argv[1:]
p = subprocess.Popen([sheaf, "status", "--watch=0.2", "--json"], stdout=subprocess.PIPE)

def look():
    return json.loads(p.stdout.readline())["servers"]

def look_until(up):
    for _ in range(300):
        s = look()
        if s[1]["up"] == up:
            return s
    sys.exit("server1 never became " + ("up" if up else "down"))

first, second = look(), look()
assert all(s["up"] and s["requests_per_s"] is None for s in first), first
assert all(s["requests_per_s"] >= 0 for s in second), second
assert all(s["bytes_read_per_s"] == 0 and s["bytes_written_per_s"] == 0 for s in second), second
written = sum(s["bytes_written"] for s in second)
subprocess.run([sheaf, "cp", "/dev/stdin", "sheaf:/rates"], check=True, input=bytes(3000000))
subprocess.run([sheaf, "cp", "sheaf:/rates", "/dev/null"], check=True)
for _ in range(300):
    s = look()
    if sum(x["bytes_written"] for x in s) - written == 3000000 and sum(x["bytes_read"] for x in s) >= 3000000:
        break
else:
    sys.exit("what was written and read is not counted: %s" % s)
subprocess.run([sheaf, "rm", "/rates"], check=True)
for key in ("uptime_s", "roles", "space_total", "space_avail", "requests", "rss_bytes", "clients"):
    assert second[0][key] is not None, key
os.kill(int(open(pid_file).read()), signal.SIGKILL)
down = look_until(False)
assert down[0]["up"] and down[1]["uptime_s"] is None and down[1]["requests_per_s"] is None
subprocess.run([sheaf, "start"], check=True, stdout=subprocess.DEVNULL)
back = look_until(True)
assert back[1]["requests_per_s"] is None and back[1]["pid"] != first[1]["pid"]
p.send_signal(signal.SIGINT)
assert p.wait(60) == 0, p.returncode
p = subprocess.Popen([sheaf, "status", "--watch=600", "--json"], stdout=subprocess.PIPE)
look()
p.send_signal(signal.SIGINT) # also just before it sleeps
assert p.wait(60) == 0, p.returncode
END
python3 - "$sheaf" <<'END' || fail "status --watch on a terminal"
import os, pty, select, signal, sys, termios, time

def run(interval):
    pid, fd = pty.fork()
    if pid == 0:
        os.execv(sys.argv[1], [sys.argv[1], "status", "--watch=" + interval])
    return pid, fd

def read(fd, enough):
    out, end = b"", time.monotonic() + 60
    while not enough(out) and time.monotonic() < end:
        if select.select([fd], [], [], 0.1)[0]:
            out += os.read(fd, 65536)
    assert enough(out), out
    return out

pid, fd = run("0.2")
before = termios.tcgetattr(fd)
out = read(fd, lambda o: o.count(b"\033[J") >= 3)
assert out.count(b"\033[H") >= 3 and b"\033[2J" not in out and b"4 of 4 servers are up" in out, out
assert out.startswith(b"\033[H") and b"REQ/S" in out and b"WRITE/S" in out, out
shown = [line.replace(b"\033[K", b"").replace(b"\033[H", b"").replace(b"\033[J", b"") for line in out.split(b"\r\n")]
assert all(len(line) <= 80 for line in shown), shown # nothing is cut at 80 columns
assert all(line.split()[0:2][1:] == [b"up"] for line in shown if line.startswith(b"server")), shown
os.write(fd, b"\003")
read(fd, lambda o: b"^C\r\n" in o)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
pid, fd = run("600") # the terminal goes away while it sleeps
read(fd, lambda o: b"\033[J" in o)
def ticks():
    return sum(map(int, open(f"/proc/{pid}/stat").read().split()[13:15]))

def rests():
    spent = ticks()
    time.sleep(0.5)
    return ticks() <= spent + 1

assert any(rests() for _ in range(20)), "it works while it waits" # it may not have been asleep yet
os.close(fd)
for _ in range(1200):
    done, status = os.waitpid(pid, os.WNOHANG)
    if done:
        break
    time.sleep(0.05)
assert done, "it outlived its terminal"
END

echo "one of four is down, which keeps no names: what works must work"
kill -9 "$(cat fs/server2/sheafd.pid)"
expect 0 ls -l /many
expect 0 stat /numbers
expect 0 mkdir /still
for args in "df" "requests"; do
	expect 1 $args
	one_line "server2 .*does not answer.*1 of 4 are down.*sheaf start"
done
expect 1 status
one_line "^sheaf status: server2 .* is down: connection refused.*'sheaf start'"
says "server2 .* down: refused "
[ "$(grep -c ' up ' out)" = 3 ] || fail "not three are up"

echo "stop, twice"
expect 0 stop
expect 0 stop
[ "$(grep -c 'not running' out)" = 4 ] || fail "the second stop"

echo "done"
