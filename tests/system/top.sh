#!/bin/bash
# sheaf top and the counts by client, user and job: two jobs are told apart, hostile names are harmless, a server that dies is
# shown, the terminal is restored, and without any server there is one clear message.
set -u
. "$(dirname "${BASH_SOURCE[0]}")/session.inc"
unset SHEAF_CONF SHEAF_JOB "${!SLURM@}" "${!PBS_@}" "${!LSB_@}" JOB_ID
export SHEAF_NET=tcp # direct reads of files of this host would not be counted

port=$(free_ports 2)
expect 0 init fs --servers 2 --meta 1 --port "$port"
confs+=("$work/fs/sheaf.conf")
export SHEAF_CONF=$work/fs/sheaf.conf
start_servers
head -c 3000000 /dev/zero >three
head -c 1000000 /dev/zero >one

# rows WHAT CODE: Python that gets the rows of `sheaf top --by WHAT` as a table of sums by name
rows() {
	expect 0 top --by "$1" --once --json --interval 0.1
	python3 - "$2" <<'END' || fail "rows by $1"
import json, sys
lines = open("out").read().splitlines()
assert len(lines) == 1, lines
top = json.loads(lines[0])
assert len(top["servers"]) == 2 and all(s["up"] and s["has_rates"] and s["why"] is None for s in top["servers"]), top
rows = {r["name"]: r for r in top["rows"]}
assert len(rows) == len(top["rows"])
exec(sys.argv[1])
END
}

echo "two jobs, of two clients"
SHEAF_JOB=alpha expect 0 cp three sheaf:/a
SHEAF_JOB=alpha expect 0 cp one sheaf:/a2
SLURM_JOB_ID=77 SLURM_STEP_ID=1 SLURM_JOB_NAME=wave expect 0 cp one sheaf:/b
SLURM_JOB_ID=77 SLURM_STEP_ID=1 SLURM_JOB_NAME=wave SHEAF_JOB='' expect 0 cp one sheaf:/c
SHEAF_JOB=beta expect 0 cp sheaf:/a back
rows job '
a, b, s, none = rows["alpha"], rows["beta"], rows["slurm 77.1 wave"], rows["(none)"]
assert (a["bytes_written"], a["bytes_read"]) == (4000000, 0), a
assert (b["bytes_written"], b["bytes_read"]) == (0, 3000000), b
assert (s["bytes_written"], s["bytes_read"]) == (1000000, 0), s
assert none["bytes_written"] == 1000000, none
assert a["requests"] > s["requests"] > 3 and b["requests"] > 3, rows
assert rows["(other)"]["requests"] == 0, rows
'
rows user '
import os
u = rows[str(os.getuid() or 65534)] # root is nobody over TCP
assert (u["bytes_written"], u["bytes_read"]) == (6000000, 3000000), rows'
rows client '
assert sum(r["bytes_written"] for r in rows.values()) == 6000000, rows
assert sum(r["bytes_read"] for r in rows.values()) == 3000000, rows'
expect 0 status --json
python3 - <<'END' || fail "jobs and users in status --json"
import json
servers = json.load(open("out"))["servers"]
assert sum(j["bytes_written"] for s in servers for j in s["jobs"] if j["name"] == "alpha") == 4000000
assert sum(u["bytes_written"] for s in servers for u in s["users"]) == 6000000
END

echo "the table, its order and its width"
expect 0 top --by job --once --interval 0.1 --sort write
says "2 of 2 servers are up"
says "^JOB  *OPS/S  *READ/S  *WRITE/S  *READ  *WRITTEN$"
sed -n 3p out | grep -q "^alpha  .*3.8 MiB$" || fail "alpha, which wrote most, is not the first"
expect 0 top --by job --once --interval 0.1 --sort read -n 1
sed -n 3p out | grep -q "^beta  .* 2.8 MiB  *0 B$" || fail "beta, which read most, is not the first"
[ "$(wc -l <out)" = 3 ] || fail "-n 1 shows more"

echo "hostile names"
long=$(printf '%0200d' 0)
n=0
for job in $'\e[2J\e]0;x\a' $'line\nsheaf_job_requests_total{name="forged"} 1e9' '"} 7 \' '(other)' $'t\tab' $'\xff\xfe' "$long"; do
	SHEAF_JOB=$job expect 0 ls /
	n=$((n + 1))
done
rows job "
own = [r for r in rows if r not in ('alpha', 'beta', 'slurm 77.1 wave', '(none)', '(other)')]
assert len(own) == $n, own
assert all(0x20 <= ord(c) <= 0x7e for r in rows for c in r) and max(map(len, rows)) == 63, own
assert rows['(other)']['requests'] == 0 and rows['_other)']['requests'] > 0, rows"
expect 0 top --by job --once --interval 0.1
python3 - <<'END' || fail "the table with hostile names"
text = open("out", "rb").read()
assert all(c == 10 or 32 <= c <= 126 for c in text)
assert max(map(len, text.split(b"\n"))) <= 80
END
python3 - "$((port + 1000))" <<'END' || fail "metrics with hostile names"
import re, sys, urllib.request
text = urllib.request.urlopen("http://127.0.0.1:%s/metrics" % sys.argv[1]).read().decode()
lines = [l for l in text.split("\n") if re.match("sheaf_(job|user)_", l)]
form = re.compile(r'(sheaf_(?:job|user)_(?:requests|read_bytes|written_bytes)_total)\{(name|uid)="((?:[^"\\]|\\["\\])*)"\} (\d+)$')
rows = [form.match(l) for l in lines]
assert lines and all(rows), [l for l, r in zip(lines, rows) if not r]
series = [r.group(1, 3) for r in rows]
assert len(series) == len(set(series)), "a series twice: Prometheus would refuse all of them"
assert ("sheaf_job_requests_total", "forged") not in series and ("sheaf_job_requests_total", "alpha") in series
END

if [ -c /dev/fuse ] && [ "$(id -u)" = 0 ]; then
	echo "a mount belongs to no job"
	mkdir mnt
	SHEAF_JOB=gamma expect 0 mount mnt
	mounts+=("$work/mnt")
	cp one mnt/by_mount && sync mnt/by_mount || fail "a file through the mount"
	rows job '
assert "gamma" not in rows, rows
assert rows["(none)"]["bytes_written"] == 2000000 and rows["(none)"]["sessions"] > 0, rows'
	expect 0 umount mnt
	mounts=()
fi

echo "wrong options"
for bad in "--by nobody" "--sort size" "-n 0" "--interval 0" "--interval x"; do
	expect 2 top $bad
	one_line "${bad% *}"
done

cat >terminal.py <<'END'
# sheaf top on a terminal of 80 columns: a server dies meanwhile; q or Ctrl-C ends it and the terminal is as before
import fcntl, os, pty, re, select, signal, struct, subprocess, sys, termios, time
sheaf, key, pid, patience = sys.argv[1], sys.argv[2].encode().decode("unicode_escape").encode(), int(sys.argv[3]), int(sys.argv[4])
master, slave = pty.openpty()
fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
before = termios.tcgetattr(slave)
p = subprocess.Popen([sheaf, "top", "--by", "job", "--interval", "0.2"], stdin=slave, stdout=slave, stderr=slave,
                     start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
seen = b""
def until(pattern):
    global seen
    end = time.time() + patience
    while not re.search(pattern, seen):
        assert time.time() < end, (pattern, seen[-3000:])
        if select.select([master], [], [], 0.2)[0]:
            seen += os.read(master, 65536)
    seen = seen[re.search(pattern, seen).end():]
until(rb"2 of 2 servers are up.*q: quit(?s:.*?)JOB +OPS/S(?s:.*?)alpha(?s:.*?)\x1b\[J")
assert not termios.tcgetattr(slave)[3] & (termios.ICANON | termios.ECHO), "keys are not taken at once"
if pid:
    os.kill(pid, signal.SIGKILL)
    until(rb"1 of 2 servers are up(?s:.*?)server1 is down: (?s:.*?)alpha(?s:.*?)\x1b\[J")
    until(rb"1 of 2 servers are up(?s:.*?)\x1b\[J") # it goes on
until(rb"servers are up(?s:.*?)\x1b\[J")
os.write(master, b"x") # does nothing
until(rb"servers are up(?s:.*?)\x1b\[J")
os.write(master, key)
end = time.time() + patience
while p.poll() is None:
    assert time.time() < end, "the key does not end it"
    if select.select([master], [], [], 0.1)[0]:
        seen += os.read(master, 65536)
assert p.returncode == 0, p.returncode
assert termios.tcgetattr(slave) == before, "the terminal is not restored"
for line in re.sub(rb"\x1b\[[HKJ]", b"", seen).split(b"\r\n"):
    assert len(line) < 80, line
END

echo "on a terminal, a server dies; q and Ctrl-C"
python3 terminal.py "$sheaf" '\x03' 0 "$patience" || fail "Ctrl-C"
pid=$("$sheaf" status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["servers"][1]["pid"])')
python3 terminal.py "$sheaf" q "$pid" "$patience" || fail "a server that dies, and q"

echo "with one server, and with none"
expect 1 top --once --interval 0.1 --by job
one_line "server1 (.*) is down: "
says "1 of 2 servers are up"
says "^server1 is down: "
says "^alpha "
expect 1 top --once --interval 0.1 --json
python3 -c 'import json; s = json.load(open("out"))["servers"]; assert [x["up"] for x in s] == [True, False] and s[1]["why"], s' ||
	fail "--json with a server down"
expect 0 stop
expect 1 top --once --interval 0.1
says "0 of 2 servers are up"
grep -q "server0 (.*) is down: " err || fail "no message about server0"
SHEAF_CONF=$work/nosuch expect 1 top --once
one_line "nosuch"
expect 0 top --help
says "usage: sheaf top "
echo "done"
