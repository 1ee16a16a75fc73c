#!/usr/bin/env python3
"""A mount lives through restarts, crashes and losses of servers, full disks, and the change of its own daemon."""
import errno
import fcntl
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

SHEAF = os.path.join(os.environ["SHEAF_BUILD"], "bin", "sheaf")
TIMEOUT = 5  # of the cluster file, seconds
UNITS = 4 * 256 * 1024  # a piece on each server


def check(ok, what):
    if not ok:
        raise AssertionError(what)


def run(*args, status=0, limit=120):
    p = subprocess.run([SHEAF, *args], capture_output=True, text=True, timeout=limit)
    check(p.returncode == status, f"sheaf {' '.join(args)}: exit status {p.returncode}\n{p.stdout}{p.stderr}")
    return p.stdout


def free_ports(n):
    while True:
        first = random.randrange(20000, 50000)
        held = []
        try:
            for p in range(first, first + n):
                s = socket.socket()
                held.append(s)
                s.bind(("127.0.0.1", p))
            return first
        except OSError:
            continue
        finally:
            for s in held:
                s.close()


class System:
    """Four servers in a directory, mounted once or twice."""

    def __init__(self, root):
        self.root, self.mounts = root, []
        self.conf = os.path.join(root, "fs", "sheaf.conf")
        run("init", os.path.join(root, "fs"), "--port", str(free_ports(4)))
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


class Load(threading.Thread):
    """Writes, syncs and reads back until told to stop; remembers the first thing that went wrong."""

    def __init__(self, folder):
        super().__init__()
        self.folder, self.stop, self.error, self.rounds = folder, False, None, 0
        os.makedirs(folder, exist_ok=True)
        self.start()

    def run(self):
        try:
            while not self.stop:
                self.round()
                self.rounds += 1
        except (OSError, AssertionError) as e:
            self.error = e

    def round(self):
        path = os.path.join(self.folder, f"f{self.rounds % 7}")
        data = (b"%08d" % self.rounds) * 1024
        fd = os.open(path + ".new", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            for at in range(0, UNITS, UNITS // 4):
                check(os.pwrite(fd, data, at) == len(data), "short write")
            os.fsync(fd)
            check(os.pread(fd, len(data), UNITS // 2) == data, "what was written is not read")
        finally:
            os.close(fd)
        os.rename(path + ".new", path)

    def end(self):
        self.stop = True
        self.join(60)
        check(not self.is_alive(), "the load hangs")
        check(self.error is None, f"the load noticed: {self.error}")
        check(self.rounds > 0, "the load did nothing")


def restart(s):
    """A planned restart of all servers under load: nothing is noticed."""
    m = s.mount("restart")
    load = Load(os.path.join(m, "load"))
    held = os.open(os.path.join(m, "held"), os.O_RDWR | os.O_CREAT)
    os.write(held, b"not synced")
    fcntl.lockf(held, fcntl.LOCK_EX)
    time.sleep(0.5)
    s.sheaf("stop")
    time.sleep(0.5)
    s.sheaf("start")
    time.sleep(0.5)
    load.end()
    os.fsync(held)
    check(os.pread(held, 10, 0) == b"not synced", "the file that was open")
    os.close(held)


def crash(s):
    """kill -9 of servers under load that syncs: operations wait and go on."""
    m = s.mount("crash")
    load = Load(os.path.join(m, "load"))
    time.sleep(0.5)
    for server in (1, 3, 0):
        check(load.error is None, f"the load noticed: {load.error}")
        s.kill(server)
        time.sleep(0.3)
        s.sheaf("start")
        time.sleep(0.3)
    load.stop = True
    load.join(60)
    # a round in which a server died between write and fsync is told so, and nothing else is
    check(load.error is None or load.error.errno == errno.EIO, f"the load noticed: {load.error}")


def unsynced(s):
    """Data that a crashed server had not synced: fsync says EIO once, and close of another file too."""
    m = s.mount("unsynced")
    a = os.open(os.path.join(m, "a"), os.O_RDWR | os.O_CREAT)
    b = os.open(os.path.join(m, "b"), os.O_RDWR | os.O_CREAT)
    for fd in (a, b):
        for at in range(0, UNITS, UNITS // 4):
            os.pwrite(fd, b"x" * 1000, at)
    s.kill(2)
    s.sheaf("start")
    for what in (lambda: os.fsync(a), lambda: os.close(b)):
        try:
            what()
            check(False, "nobody was told that unsynced data may be lost")
        except OSError as e:
            check(e.errno == errno.EIO, f"EIO, not {e}")
    os.fsync(a)
    os.close(a)


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
        p.wait(TIMEOUT)
        check(time.monotonic() - start < 1, f"{sig} took {time.monotonic() - start:.1f} s")
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


def main():
    if not os.path.exists("/dev/fuse") or os.geteuid() != 0:
        print("needs /dev/fuse and root")
        sys.exit(77)
    root = tempfile.mkdtemp(prefix="sheaf.")
    s = System(root)
    try:
        for part in (restart, crash, unsynced, loss):
            start = time.monotonic()
            part(s)
            print(f"{part.__name__}: {time.monotonic() - start:.1f} s", flush=True)
        full(s, root)
    except AssertionError as e:
        sys.exit(f"FAILED: {e}")
    finally:
        s.close()


main()
