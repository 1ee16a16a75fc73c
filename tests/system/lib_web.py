"""For the tests of the status page: a file system, `sheaf web` over it, requests as bytes, a client that waits for a lock."""
import json
import os
import signal
import socket
import subprocess
import sys
import time

from lib_ports import free_ports

SHEAF = os.path.join(os.environ["SHEAF_BUILD"], "bin", "sheaf")
PATIENCE = 60

# Holds a lock in one thread and waits for it in another one, until standard input ends.
WAITER = """
import ctypes, socket, sys, threading, os
name, lib, conf = sys.argv[1:]
if name: socket.sethostname(name)
s = ctypes.CDLL(lib)
fs, f = ctypes.c_void_p(), ctypes.c_void_p()
assert s.sheaf_connect(conf.encode(), ctypes.byref(fs)) == 0
assert s.sheaf_open(fs, b"/locked", os.O_RDWR | os.O_CREAT, 0o600, None, ctypes.byref(f)) == 0
assert s.sheaf_flock(f, 2, ctypes.c_uint64(1)) == 0
threading.Thread(target=lambda: s.sheaf_flock(f, 2, ctypes.c_uint64(2)), daemon=True).start()
print("waiting", flush=True)
sys.stdin.read()
os._exit(0)
"""


def check(ok, what):
    if not ok:
        raise AssertionError(what)


def within(what, condition):
    """The first true value of condition(); the patience is for busy machines."""
    end = time.monotonic() + PATIENCE
    while True:
        value = condition()
        if value:
            return value
        check(time.monotonic() < end, f"not within {PATIENCE} s: {what}")
        time.sleep(0.05)


def sheaf(*args, status=0, data=None):
    p = subprocess.run([SHEAF, *args], capture_output=True, text=True, timeout=120, input=data)
    check(p.returncode == status, f"sheaf {' '.join(args)}: exit status {p.returncode}\n{p.stdout}{p.stderr}")
    return p.stdout if status == 0 else p.stderr


class Answer:
    def __init__(self, data):
        head, _, self.body = data.partition(b"\r\n\r\n")
        lines = head.decode("latin1").split("\r\n")
        self.status = int(lines[0].split()[1]) if lines[0].startswith("HTTP/1.") else 0
        self.headers = {}
        for line in lines[1:]:
            key, _, value = line.partition(":")
            self.headers[key.lower()] = value.strip()


class Page:
    """`sheaf web` and its address; ends with the `with` block."""

    def __init__(self, conf, *args, host="127.0.0.1"):
        self.log = open("web.log", "a+")
        self.process = subprocess.Popen([SHEAF, "--conf", conf, "web", "--listen", f"{host}:0", *args],
                                        stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.url = self.process.stdout.readline().strip()
        check(self.url.startswith("http://"), "sheaf web printed no address: " + open("web.log").read())
        self.port = int(self.url.split("/")[2].rsplit(":", 1)[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()

    def connect(self, source="127.0.0.1"):
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE, (source, 0))

    def bytes(self, data, source="127.0.0.1"):
        """What comes back until the connection ends; b"" also if it was reset."""
        got = b""
        with self.connect(source) as s:
            try:
                s.sendall(data)
                while True:
                    more = s.recv(65536)
                    if not more:
                        return got
                    got += more
            except (ConnectionResetError, BrokenPipeError):
                return got

    def ask(self, path="/", method="GET", headers=(), host="localhost", **more):
        lines = [f"{method} {path} HTTP/1.1"] + ([f"Host: {host}"] if host is not None else []) + list(headers)
        return Answer(self.bytes("\r\n".join(lines).encode() + b"\r\n\r\n", **more))

    def api(self, path, headers=()):
        answer = self.ask("/api/" + path, headers=headers)
        check(answer.status == 200, f"/api/{path}: {answer.status} {answer.body[:200]}")
        return json.loads(answer.body)

    def servers(self):
        return {s["name"]: s for s in self.api("status")["servers"]}

    def memory(self):
        with open(f"/proc/{self.process.pid}/status") as f:
            return next(int(line.split()[1]) << 10 for line in f if line.startswith("VmRSS"))


class System:
    """Servers in the directory fs; ends with the `with` block."""

    def __init__(self, n):
        self.conf = os.path.abspath("fs/sheaf.conf")
        sheaf("init", "fs", "--servers", str(n), "--port", str(free_ports(n)))

    def __enter__(self):
        sheaf("--conf", self.conf, "start")
        return self

    def __exit__(self, *_):
        for s in self.status():
            if s["pid"]:
                os.kill(s["pid"], signal.SIGCONT)
        subprocess.run([SHEAF, "--conf", self.conf, "stop"], capture_output=True, timeout=120)

    def status(self):
        p = subprocess.run([SHEAF, "--conf", self.conf, "status", "--json"], capture_output=True, text=True, timeout=120)
        return json.loads(p.stdout)["servers"]

    def pids(self):
        """By name, when all have answered: on a busy machine one may be late."""
        return within("all servers up", lambda: all((s := {s["name"]: s["pid"] for s in self.status()}).values()) and s)

    def waiter(self, name=""):
        """A client that waits for a lock; with a name only where this process may set the name of its host."""
        command = [sys.executable, "-c", WAITER, name, os.path.join(os.environ["SHEAF_BUILD"], "lib", "libsheaf.so"), self.conf]
        if name:
            command = ["unshare", "--uts"] + command
        p = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        check(p.stdout.readline() == "waiting\n", "no client that waits")
        return p


def may_name_hosts():
    return subprocess.run(["unshare", "--uts", "true"], capture_output=True).returncode == 0
