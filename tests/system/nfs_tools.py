#!/usr/bin/env python3
"""The NFS gateway by the command line: what `sheaf nfs status`, the metrics and `sheaf requests` say of its clients;
and by stock clients where they are installed (libnfs-utils, showmount of nfs-common): with the gateway as portmapper,
with rpcbind, and with ports given."""
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import time
import urllib.request

from lib_ports import METRICS_OFFSET, free_ports

SHEAF = os.path.join(os.environ["SHEAF_BUILD"], "bin", "sheaf")
NFS, MOUNT, PORTMAP = 100003, 100005, 100000
MIB = 1 << 20


def check(ok, what):
    if not ok:
        raise AssertionError(what)


def sheaf(*args, status=0):
    p = subprocess.run([SHEAF, "--conf", "fs/sheaf.conf", *args], capture_output=True, text=True, timeout=120)
    check(p.returncode == status, f"sheaf {' '.join(args)}: exit status {p.returncode}\n{p.stdout}{p.stderr}")
    return p.stdout


# ---- a client of NFS over TCP ----

def opaque(b):
    return struct.pack(">I", len(b)) + b + b"\0" * (-len(b) % 4)


class Client:
    def __init__(self, port):
        self.s = socket.create_connection(("127.0.0.1", port), 60)
        self.xid = 100

    def send(self, program, procedure, args, version=3):
        self.xid += 1
        sys_auth = struct.pack(">I", 0) + opaque(b"test") + struct.pack(">III", 0, 0, 0)
        head = struct.pack(">6I", self.xid, 0, 2, program, version, procedure)
        message = head + struct.pack(">I", 1) + opaque(sys_auth) + struct.pack(">II", 0, 0) + args
        self.s.sendall(struct.pack(">I", len(message) | 1 << 31) + message)

    def receive(self, n):
        data = b""
        while len(data) < n:
            more = self.s.recv(n - len(data))
            check(more, "the gateway has closed the connection")
            data += more
        return data

    def call(self, *args, **more):
        """The result behind the head of the reply, which has the status of the call first."""
        self.send(*args, **more)
        reply = self.receive(struct.unpack(">I", self.receive(4))[0] & 0x7fffffff)
        check(struct.unpack(">6I", reply[:24]) == (self.xid, 1, 0, 0, 0, 0), "the call was not executed")
        return reply[24:]

    def handle(self, result):
        check(result[:4] == b"\0" * 4, f"status {result[:4]}")
        n = struct.unpack(">I", result[4:8])[0]
        return result[8:8 + n]

    def mount(self, path):
        return self.handle(self.call(MOUNT, 1, opaque(path)))

    def lookup(self, directory, name):
        return self.handle(self.call(NFS, 3, opaque(directory) + opaque(name)))

    def getattr(self, handle):
        return struct.unpack(">I", self.call(NFS, 1, opaque(handle))[:4])[0]


def status():
    return json.loads(sheaf("nfs", "status", "--json"))


# ---- what the gateway tells ----

def counts(port, metrics):
    c = Client(port)
    root = c.mount(b"/data")
    for _ in range(5):
        check(c.getattr(root) == 0, "getattr")
    check(c.getattr(b"\0" * 40) != 0, "a forged handle")
    s = status()
    row = [p for p in s["procedures"] if (p["program"], p["name"]) == ("nfs", "getattr")][0]
    check((row["calls"], row["errors"]) == (6, 1), f"getattr: {row}")
    row = s["clients"][-1]
    check(row["client"] in ("127.0.0.1", "this host"), f"client: {row}")
    check((row["calls"], row["errors"]) == (7, 1) and row["received"] > 0 < row["sent"], f"client: {row}")
    check(row["client"] in sheaf("nfs", "status"), "the table of clients")
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics", timeout=60) as f:
        page = f.read().decode().splitlines()
    check('sheaf_nfs_calls_total{program="nfs",procedure="getattr"} 6' in page, page)
    check('sheaf_nfs_errors_total{program="nfs",procedure="getattr"} 1' in page, page)
    check(f'sheaf_nfs_client_calls_total{{client="{row["client"]}"}} 7' in page, page)
    print("counters by procedure and client")


def requests(port):
    """Replies to a client that does not read them stay, and `sheaf requests` shows their calls."""
    with open("large", "wb") as f:
        f.write(b"x" * 8 * MIB)
    sheaf("cp", "large", "sheaf:/large")
    c = Client(port)
    h = c.lookup(c.mount(b"/data"), b"large")
    for _ in range(32):
        c.send(NFS, 6, opaque(h) + struct.pack(">QI", 0, MIB))
    end = time.monotonic() + 60
    rows = []
    while not rows and time.monotonic() < end:
        rows = [r for r in json.loads(sheaf("requests", "--json"))["requests"]
                if r["server"] == "nfs" and r["op"] == "read" and r["state"] == "reply"]
    check(rows and rows[0]["uid"] == 0 and rows[0]["ino"] > 0, f"requests: {rows}")
    check(any(line.split()[:3] == ["nfs", "read", "reply"] for line in sheaf("requests").splitlines()), "the table")
    jobs = json.loads(sheaf("top", "--by", "job", "--once", "--interval", "0.1", "--json"))["rows"]
    check(any(r["name"].startswith("nfs ") and r["requests"] and r["sessions"] for r in jobs), f"sheaf top: {jobs}")
    c.s.close()
    print("calls in progress")


# ---- stock clients ----

def tool(*args, fails=False):
    p = subprocess.run(args, capture_output=True, text=True, timeout=120)
    check((p.returncode != 0) == fails, f"{args}: exit status {p.returncode}\n{p.stdout}{p.stderr}")
    return p.stdout


def copies(name, more=""):
    """A file goes there and comes back by libnfs."""
    if not shutil.which("nfs-cp"):
        print(f"{name}: without nfs-cp, which libnfs-utils has")
        return
    url = f"nfs://127.0.0.1/data/{name}{more}"
    tool("nfs-cp", "large", url)
    tool("nfs-cp", url, f"back-{name}")
    with open("large", "rb") as f, open(f"back-{name}", "rb") as g:
        check(f.read() == g.read(), f"{name}: the copy differs")
    check(tool("nfs-cat", url) == "x" * 8 * MIB, f"{name}: nfs-cat")
    check(name in tool("nfs-ls", f"nfs://127.0.0.1/data{more}"), f"{name}: nfs-ls")
    tool("nfs-ls", f"nfs://127.0.0.1/nothing{more}", fails=True)
    print(name)


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as s:
            s.bind(("::1", 0))
        return True
    except OSError:
        return False


def shows_exports(name, host="127.0.0.1"):
    if ":" in host and not has_ipv6():
        print(f"{name}: without IPv6")
        return
    if not shutil.which("showmount"):
        print(f"{name}: without showmount, which nfs-common has")
        return
    check("/data (everyone)" in tool("showmount", "-e", host), f"{name}: exports")
    print(f"{name}: showmount {host}")


def asks_portmapper(program, protocol):
    """The port, or 0."""
    try:
        c = Client(111)
    except OSError:
        return 0
    return struct.unpack(">I", c.call(PORTMAP, 3, struct.pack(">4I", program, 3, protocol, 0), version=2))[0]


class Rpcbind:
    """A portmapper in this network; its socket is where other processes do not see it."""

    def __enter__(self):
        self.p = subprocess.Popen(["unshare", "-m", "sh", "-c", "mount -t tmpfs tmpfs /run && exec rpcbind -f"])
        end = time.monotonic() + 60
        while time.monotonic() < end and self.p.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", 111), 5).close()
                return self
            except OSError:
                time.sleep(0.02)
        raise AssertionError("rpcbind does not start")

    def __exit__(self, *_):
        self.p.kill()
        self.p.wait()


def with_rpcbind(port):
    if not shutil.which("rpcbind") or os.geteuid() or subprocess.run(["unshare", "-m", "true"]).returncode:
        print("rpcbind: left out; it is not installed, or not permitted")
        return
    with Rpcbind():
        sheaf("nfs", "start")
        end = time.monotonic() + 60
        while asks_portmapper(MOUNT, 17) != port and time.monotonic() < end:
            time.sleep(0.02)
        check(asks_portmapper(NFS, 6) == asks_portmapper(MOUNT, 6) == port, "ports over TCP")
        check(asks_portmapper(NFS, 17) == 0, "NFS is not served over UDP")
        copies("rpcbind")
        shows_exports("rpcbind")
        shows_exports("rpcbind", "::1")
        sheaf("nfs", "stop")
        sheaf("nfs", "start")
        sheaf("nfs", "stop")


def main():
    first = free_ports(3)
    port, metrics = first + 2, first + 2 + METRICS_OFFSET
    p = subprocess.run([SHEAF, "init", "fs", "--servers", "2", "--port", str(first)], capture_output=True, text=True)
    check(p.returncode == 0, p.stderr)
    with open("fs/sheaf.conf", "a", encoding="utf-8") as f:
        f.write(f"\n[nfs]\naddress = [::]:{port}\nmetrics = 127.0.0.1:{metrics}\n"
                "[export.data]\npath = /\nsquash = none\ninsecure = yes\n")
    sheaf("start")
    try:
        sheaf("nfs", "start")
        counts(port, metrics)
        requests(port)
        copies("ports", f"?nfsport={port}&mountport={port}")
        if asks_portmapper(NFS, 6) == port:
            copies("portmapper")
            shows_exports("portmapper")
            shows_exports("portmapper", "::1")
        else:
            print("portmapper: left out, since port 111 is not free or not permitted")
        sheaf("nfs", "stop")
        with_rpcbind(port)
    finally:
        subprocess.run([SHEAF, "--conf", "fs/sheaf.conf", "nfs", "stop"], capture_output=True)
        subprocess.run([SHEAF, "--conf", "fs/sheaf.conf", "stop"], capture_output=True)


if __name__ == "__main__":
    sys.exit(main())
