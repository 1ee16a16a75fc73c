#!/usr/bin/env python3
"""A mount lives through restarts, crashes and losses of servers, full disks, and the change of its own daemon."""
import errno
import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time

from lib_ports import free_ports

SHEAF = os.path.join(os.environ["SHEAF_BUILD"], "bin", "sheaf")
TIMEOUT = 20  # of the cluster file, seconds
UNITS = 4 * 256 * 1024  # a piece on each server


def check(ok, what):
    if not ok:
        raise AssertionError(what)


def run(*args, status=0, limit=120):
    p = subprocess.run([SHEAF, *args], capture_output=True, text=True, timeout=limit)
    check(p.returncode == status, f"sheaf {' '.join(args)}: exit status {p.returncode}\n{p.stdout}{p.stderr}")
    return p.stdout


class System:
    """Four servers in a directory, mounted once or twice."""

    def __init__(self, root):
        self.root, self.mounts = root, []
        self.conf = os.path.join(root, "fs", "sheaf.conf")
        run("init", os.path.join(root, "fs"), "--meta", "4", "--port", str(free_ports(4)))
        with open(self.conf) as f:
            text = f.read().replace("timeout = 30", f"timeout = {TIMEOUT}")
        with open(self.conf, "w") as f:
            f.write(text)
        self.sheaf("start")

    def sheaf(self, *args, **more):
        return run("--conf", self.conf, *args, **more)

    def mount(self, name):
        path = os.path.join(self.root, name)
        os.mkdir(path)
        self.sheaf("mount", path)
        self.mounts.append(path)
        return path

    def pid(self, server):
        return json.loads(self.sheaf("status", "--json"))["servers"][server]["pid"]

    def kill(self, server):
        os.kill(self.pid(server), signal.SIGKILL)

    def close(self):
        for m in self.mounts:
            subprocess.run([SHEAF, "umount", "--lazy", m], capture_output=True)
        subprocess.run([SHEAF, "--conf", self.conf, "stop"], capture_output=True)


class Other:
    """A part of this file in a process of its own: a fork of ours would close, and so flush, what it has open."""

    def __init__(self, part, *args):
        self.p = subprocess.Popen([sys.executable, __file__, part.__name__, *args], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        check(self.p.stdout.readline() == "begun\n", f"{part.__name__} did not begin")

    def end(self):
        """What it says in the end: nothing, or what went wrong."""
        return self.p.communicate("end\n", timeout=120)[0].strip()


def told_to_end():
    return select.select([sys.stdin], [], [], 0)[0]


def load_round(path, number):
    data = (b"%08d" % number) * 1024
    fd = os.open(path + ".new", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        for at in range(0, UNITS, UNITS // 4):
            check(os.pwrite(fd, data, at) == len(data), "short write")
        os.fsync(fd)
        check(os.pread(fd, len(data), UNITS // 2) == data, "what was written is not read")
    finally:
        os.close(fd)
    os.rename(path + ".new", path)


def load(folder):
    """Writes, syncs and reads back until told to stop."""
    os.makedirs(folder, exist_ok=True)
    number = 0
    while number == 0 or not told_to_end():
        load_round(os.path.join(folder, f"f{number % 7}"), number)
        number += 1
        if number == 1:
            print("begun", flush=True)


def held(path):
    """An open file with a lock and data that nobody has synced."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.write(fd, b"not synced")
    fcntl.lockf(fd, fcntl.LOCK_EX)
    print("begun", flush=True)
    sys.stdin.readline()
    os.fsync(fd)
    check(os.pread(fd, 10, 0) == b"not synced", "the file that was open")
    os.close(fd)


def restart(s):
    """A planned restart of all servers under load: nothing is noticed."""
    m = s.mount("restart")
    others = [Other(load, os.path.join(m, "load")), Other(held, os.path.join(m, "held"))]
    time.sleep(0.5)
    s.sheaf("stop")
    time.sleep(0.5)
    s.sheaf("start")
    time.sleep(0.5)
    for o in others:
        said = o.end()
        check(not said, said)


def crash(s):
    """kill -9 of servers under load that syncs: operations wait and go on."""
    m = s.mount("crash")
    other = Other(load, os.path.join(m, "load"))
    for server in (1, 3, 0):
        s.kill(server)
        time.sleep(0.3)
        s.sheaf("start")
        time.sleep(0.3)
    said = other.end()
    # a server that dies between a write and its fsync: that is told, and nothing else is
    check(not said or "os.fsync" in said or "os.close" in said, said)


def loser(folder):
    """Writes that a crashed server had not synced: fsync says EIO once, and close of another file too."""
    a, b = (os.open(os.path.join(folder, x), os.O_RDWR | os.O_CREAT) for x in "ab")
    for fd in (a, b):
        for at in range(0, UNITS, UNITS // 4):
            os.pwrite(fd, b"x" * 1000, at)
    print("begun", flush=True)
    sys.stdin.readline()
    for what in (lambda: os.fsync(a), lambda: os.close(b)):
        try:
            what()
            check(False, "nobody was told that unsynced data may be lost")
        except OSError as e:
            check(e.errno == errno.EIO, f"EIO, not {e}")
    os.fsync(a)
    os.close(a)


def unsynced(s):
    other = Other(loser, s.mount("unsynced"))
    s.kill(2)
    s.sheaf("start")
    said = other.end()
    check(not said, said)


def loss(s):
    """A server that does not come back: EIO after the timeout, and signals work at once."""
    m = s.mount("loss")
    path = os.path.join(m, "f")
    with open(path, "wb") as f:
        f.write(os.urandom(UNITS))
    s.kill(2)
    for i, sig in enumerate((signal.SIGINT, signal.SIGKILL)):
        p = subprocess.Popen(["cat", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.7)
        check(p.poll() is None, "cat did not wait")
        start = time.monotonic()
        p.send_signal(sig)
        p.wait(120)
        check(time.monotonic() - start < TIMEOUT / 2, f"{sig} took {time.monotonic() - start:.1f} s")
    fd = os.open(path, os.O_RDONLY)
    start = time.monotonic()
    try:
        while os.read(fd, UNITS // 8):
            pass
        check(False, "read from a server that is dead")
    except OSError as e:
        check(e.errno == errno.EIO, f"EIO, not {e}")
    took = time.monotonic() - start
    check(took < 2 * TIMEOUT, f"it took {took:.1f} s")
    os.close(fd)
    s.sheaf("start")
    with open(path, "rb") as f:
        check(len(f.read()) == UNITS, "after its return")


WRITER = """import os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
os.pwrite(fd, sys.argv[2].encode() * 1000, int(sys.argv[3]))
"""


def abandoned(s):
    """What a killed program had asked for comes before what is asked for later, never after it."""
    m = s.mount("abandoned")
    path = os.path.join(m, "f")
    with open(path, "wb") as f:
        f.write(bytes(UNITS))

    def writer(text):
        return subprocess.Popen([sys.executable, "-c", WRITER, path, text, str(UNITS // 2)])

    for _ in range(3):
        s.kill(2)
        old = [writer("old") for _ in range(3)]
        time.sleep(0.5)
        for p in old: # all of them: the kernel lets one at a time write, and we do not know which
            p.kill()
        for p in old:
            p.wait(60)
        new = writer("new")
        time.sleep(0.2)
        s.sheaf("start")
        check(new.wait(60) == 0, "the second writer failed")
        time.sleep(0.2)
        with open(path, "rb") as f:
            f.seek(UNITS // 2)
            check(f.read(3000) == b"new" * 1000, "a killed writer's data came back")


def full(s, root):
    """A full disk is ENOSPC at write or fsync, and what was written before stays."""
    small = os.path.join(root, "small")
    os.mkdir(small)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "none", small]).returncode:
        return
    try:
        t = System(small)
        try:
            m = t.mount("m")
            with open(os.path.join(m, "kept"), "wb") as f:
                f.write(b"kept" * 1000)
            fd, said = os.open(os.path.join(m, "large"), os.O_WRONLY | os.O_CREAT), None
            try:
                for _ in range(100):
                    os.write(fd, b"x" * 1000000)
                os.fsync(fd)
            except OSError as e:
                said = e.errno
            check(said == errno.ENOSPC, f"ENOSPC, not {said}")
            try:
                os.close(fd)
            except OSError as e:
                check(e.errno == errno.ENOSPC, f"close: {e}")
            with open(os.path.join(m, "kept"), "rb") as f:
                check(f.read() == b"kept" * 1000, "what was there before")
            os.unlink(os.path.join(m, "large"))
        finally:
            t.close()
    finally:
        subprocess.run(["umount", "-l", small])


def daemon_of(m):
    """The pid of who serves a mount: it has threads, its watcher has none."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline") as f:
                words = f.read().split("\0")
            if words[0].endswith("sheaf-mount") and m in words and len(os.listdir(f"/proc/{pid}/task")) > 1:
                return int(pid)
        except OSError:
            continue
    raise AssertionError(f"nobody serves {m}")


def locked(path):
    """Does somebody else hold it?"""
    with open(path, "r+b") as f:
        try:
            fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
        except OSError as e:
            check(e.errno in (errno.EAGAIN, errno.EACCES), f"lockf: {e}")
            return True


WAITER = """import fcntl, sys
f = open(sys.argv[1], "r+b")
print("waits", flush=True)
fcntl.lockf(f, fcntl.LOCK_EX)
print("has it", flush=True)
"""


def waiter(path):
    """A process that waits for the lock."""
    p = subprocess.Popen([sys.executable, "-c", WAITER, path], stdout=subprocess.PIPE, text=True)
    p.stdout.readline()
    time.sleep(0.3)
    return p


def refuse(m):
    """A successor that takes everything and dies."""
    with open("/proc/self/mountinfo") as f:
        dev = [w[2] for w in map(str.split, f) if w[4] == m][-1]
    c = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    c.settimeout(60)
    c.connect(f"\0sheaf-mount:{dev}")
    c.send(b"takeover")
    text, fds, _, _ = socket.recv_fds(c, 16, 4)
    check(text == b"here" and len(fds) == 4, f"the daemon says {text}")
    for fd in fds:
        os.close(fd)
    c.close()


def takeover(s):
    """A new daemon takes the mount over: open files, locks, listings and programs go on."""
    m, other = s.mount("takeover"), s.mount("other")
    f = os.open(os.path.join(m, "taken"), os.O_RDWR | os.O_CREAT)
    gone = os.open(os.path.join(m, "gone"), os.O_RDWR | os.O_CREAT)
    log = os.open(os.path.join(m, "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(f, b"before")
    os.write(gone, b"unlinked")
    os.unlink(os.path.join(m, "gone"))
    fcntl.lockf(f, fcntl.LOCK_EX)
    os.mkdir(os.path.join(m, "many"))
    for i in range(1000):
        os.mknod(os.path.join(m, "many", str(i)))
    listing = os.scandir(os.path.join(m, "many"))
    seen = [next(listing).name for _ in range(10)]
    busy = Other(load, os.path.join(m, "load"))
    waiters = [waiter(os.path.join(x, "taken")) for x in (m, other)]
    refuse(m)
    for i in range(3):
        old = daemon_of(m)
        run("mount", "--takeover", m)
        for _ in range(1200):
            if daemon_of(m) != old:
                break
            time.sleep(0.05)
        check(daemon_of(m) != old, "the old daemon still serves")
        check(locked(os.path.join(other, "taken")), "the lock is free")
        check(all(w.poll() is None for w in waiters), "a waiter got the lock")
        check(os.pread(f, 6, 0) == b"before", "the open file")
        check(os.pread(gone, 8, 0) == b"unlinked", "the unlinked file")
        os.write(log, b"line %d\n" % i)
    os.pwrite(f, b"AFTER.", 0)
    os.fsync(f)
    seen += [e.name for e in listing]
    check(sorted(seen, key=int) == [str(i) for i in range(1000)], f"{len(seen)} names of 1000")
    said = busy.end()
    check(not said, said)
    with open(os.path.join(other, "log")) as r:
        check(r.read() == "line 0\nline 1\nline 2\n", "appends")
    os.close(f)
    for w in waiters:
        check("has it" in w.communicate(timeout=60)[0], "a waiter never got the lock")
    os.close(gone)
    os.close(log)
    with open(os.path.join(other, "taken"), "rb") as r:
        text = r.read()
        check(text == b"AFTER.", f"what was written after: {text[:20]}")
    run("umount", m)
    s.mounts.remove(m)


PARTS = (restart, crash, unsynced, loss, abandoned, takeover)


def main():
    if not os.path.exists("/dev/fuse") or os.geteuid() != 0:
        print("needs /dev/fuse and root")
        sys.exit(77)
    root = tempfile.mkdtemp(prefix="sheaf.")
    s = System(root)
    try:
        for part in PARTS:
            start = time.monotonic()
            part(s)
            print(f"{part.__name__}: {time.monotonic() - start:.1f} s", flush=True)
        full(s, root)
    except AssertionError as e:
        sys.exit(f"FAILED: {e}")
    finally:
        s.close()


if len(sys.argv) > 1:
    {"load": load, "held": held, "loser": loser}[sys.argv[1]](*sys.argv[2:])
else:
    main()
