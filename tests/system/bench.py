#!/usr/bin/env python3
"""sheaf bench: every benchmark runs, says what it measured in the promised form, and leaves nothing behind."""
import contextlib
import html.parser
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
import xml.dom.minidom

SHEAF = os.path.join(os.environ["SHEAF_BUILD"], "bin", "sheaf")
BARS = {
    "net": {"net_ping": 1.4},
    "contig": {"read1": 0.75, "write1": 0.55, "read1_stream": 0.8, "write1_stream": 0.6, "read4": 0.9, "write4": 0.9},
    "latency": {"read_1B_1": 1.6, "read_1B_4": 2.8},
    "meta": {},  # depends on the storage
    "lists": {"read_128x2K": 10, "list_128x2k": 8, "list_128x128": 4, "list_1024x64": 8, "list_vs_single": 10,
              "requests_per_server": 1},
    "transfer": {"transfer_choice": 1.15, "transfer_multiple": 15, "transfer_ideal_512": 0.6, "transfer_ideal_4k": 0.85,
                 "typed_first": 1, "typed_request": 1023},
    "blockcolumn": {},  # depends on the storage
    "tile": {"tile_read_3": 8, "tile_read": 8, "tile_write_3": 5, "tile_write": 5},
    "wan": {"wan_read_1ms": 0.8, "wan_write_1ms": 0.8, "wan_latency_1ms": 1.2},
    "registration": {"registration_groups": 1, "registration_holes": 11, "registration_holes_failed": 12,
                     "registration_speed": 0.75, "registration_speed_holes": 0.65, "registration_overhead": 0.33333,
                     "registration_cached": 1},
}
BLOCKCOLUMN = {"blockcolumn_choice": 0.87, "blockcolumn_write_small": 3.5, "blockcolumn_write_large": 2,
               "column_vs_lists": 20, "column_vs_copy": 0.3}
MOUNT = {"mount_read1": 0.7, "mount_read4": 0.7, "mount_write1": 0.5, "mount_write4": 0.5,
         "mount_read1_spliced": 0.7, "mount_read4_spliced": 0.7, "mount_random1": 0.35,
         "mount_random4": 0.35, "mount_create4": 0.3, "mount_stat4": 0.27, "mount_unlink4": 0.14, "mount_compile": 2}
MPI = {"mpi_tile_write_vs_mount": 5, "mpi_tile_read_vs_mount": 5, "mpi_contig_write_vs_local": 0.25,
       "mpi_contig_read_vs_local": 0.25, "mpi_contig_write_vs_mount": 0.9, "mpi_contig_read_vs_mount": 0.9,
       "mpi_bt_twophase": 1.6, "mpi_bt_multiple": 5}
NFS = {f"nfs_{what}{n}_vs_{side}": need for n in (1, 4) for side, needs in (
           ("mount", {"getattr": 2, "lookup": 2, "create": 2, "read4k": 2, "read": 1.5, "write": 1.5}),
           ("local", {"getattr": 0.7, "lookup": 0.7, "create": 1, "read": 0.6, "write": 0.8}))
       for what, need in needs.items()}
NFS_MEMORY = {"nfs_memory": 96}  # the memory of calls, and 32 MiB
CHECKPOINT = {"checkpoint_rate": 0.8, "checkpoint_restore": 0.8}
CHECKPOINT_ASYNC = {"checkpoint_async_overhead": 0.5, "checkpoint_async_blocked": 0.1}
CHECKPOINT_INCREMENTAL = {"checkpoint_incremental_bytes": 0.25, "checkpoint_incremental_time": 0.25}
NAMES = {"create_requests": 1, "open_read_requests": 2, "listed": 200000, "stat_p99": 3}
MEMORY = {"meta": {**NAMES, "stat4": 0.33, "create4": 0.15, "create4_one_directory": 0.15},
          "blockcolumn": {**BLOCKCOLUMN, "blockcolumn_stream": 0.3}}
DISK = {"meta": {**NAMES, "durable_create4": 0.8, "durable_create16": 1.3},
        "blockcolumn": {**BLOCKCOLUMN, "blockcolumn_stream": 0.2, "blockcolumn_cold_choice": 0.87,
                        "blockcolumn_accesses": 0.0625}}
AT_MOST = {"net_ping", "read_1B_1", "read_1B_4", "read_128x2K", "open_read_requests", "stat_p99",
           "mount_compile", "list_128x2k", "list_128x128", "list_1024x64", "transfer_choice", "typed_first", "typed_request",
           "blockcolumn_accesses", "wan_latency_1ms", "registration_holes", "registration_holes_failed",
           "registration_overhead", "nfs_memory", *CHECKPOINT_ASYNC, *CHECKPOINT_INCREMENTAL}
EXACT = {"requests_per_server", "create_requests", "registration_groups", "registration_cached"}


PROGRAMS = (b"sheafd", b"sheaf-mount", b"passthrough", b"sheaf-nfsd", b"ganesha.nfsd")


def check(ok, what):
    if not ok:
        sys.exit(f"FAILED: {what}")


def sheaf(*args, status=0):
    p = subprocess.run([SHEAF, *args], capture_output=True, text=True, timeout=1500)
    check(p.returncode == status, f"sheaf {' '.join(args)}: exit status {p.returncode}\n{p.stdout}{p.stderr}")
    return p


def servers_of(folder):
    """Processes that serve something below this directory, or mount it there."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                line = f.read().split(b"\0")
        except OSError:
            continue
        if os.path.basename(line[0]) in PROGRAMS and any(folder.encode() in a for a in line):
            found.append(int(pid))
    return found


def nothing_left(folder):
    check(mounts_of(folder) == [], f"still mounted: {mounts_of(folder)}")
    check(os.listdir(folder) == [], f"left behind: {os.listdir(folder)}")
    check(servers_of(os.path.realpath(folder)) == [], "servers still run")


def check_rows(d):
    check(set(d) == {"bench", "conditions", "rows", "bars"}, f"keys: {list(d)}")
    for key in ("machine", "backend", "hosts", "rate", "delay", "servers", "clients", "storage"):
        check(key in d["conditions"], f"conditions lack {key}")
    for r in d["rows"]:
        for key in ("case", "unit", "median", "min", "max", "runs", "values"):
            check(key in r, f"a row lacks {key}: {r}")
        check(r["runs"] == len(r["values"]) == d["conditions"]["rounds"], f"runs: {r}")
        check(r["min"] <= r["median"] <= r["max"], f"order: {r}")
        if " - " in r.get("of", ""):  # a difference
            continue
        check(r["median"] > 0, f"nothing was measured: {r}")
        check(abs(statistics.median(r["values"]) / r["median"] - 1) < 1e-3, f"median: {r}")


def check_bars(d, want):
    check({n: b["need"] for n, b in d["bars"].items()} == want, f"bars: {d['bars']}, expected {want}")
    for n, b in d["bars"].items():
        check(set(b) == {"value", "need", "ok"}, f"bar {n}: {b}")
        row = [r for r in d["rows"] if r["case"] == n]
        check(len(row) == 1 and row[0]["median"] == b["value"], f"bar {n} is not the median of its row")
        ok = b["value"] <= b["need"] if n in AT_MOST else b["value"] >= b["need"]
        if n in EXACT:
            ok = b["value"] == b["need"]
        check(b["ok"] == ok, f"bar {n}: {b}")


def check_ways(d):
    """Without sieving a server makes at least one system call for each cached piece that it reads; with sieving, few."""
    calls = {r["case"]: r["syscalls_per_op"]["servers"] for r in d["rows"]
             if r.get("pieces") == 512 and r["unit"] == "GB/s" and r.get("syscalls_per_op")}
    if d["conditions"]["storage"]["filesystem"] in ("tmpfs", "ext4", "xfs", "btrfs"):  # else threads read, not counted
        check(calls["read: list"] >= 512 > 2 * calls["read: list + sieving"], f"the switch of sieving: {calls}")
    check(any("paper" in r for r in d["rows"]), "the papers' ratios are missing")


def check_together(d):
    rows = {(r["case"], r.get("clients")): r for r in d["rows"]}
    for what in ("create together", "resize together"):
        for how in ("one asks", "each asks"):
            for clients in range(1, 7):
                check((f"{what}, {how}", clients) in rows, f"no row for {what}, {how}, {clients} clients")
    requests = [rows[f"requests of resize together, {how}", 6]["median"] for how in ("one asks", "each asks")]
    check(requests[0] < requests[1], f"one that asks for all sends as many requests: {requests}")
    check(rows["together_create", None]["paper"] == "1.05", "the paper's growth of creates")


def check_delays(d):
    """Nothing is faster than its delay, and all connections pass through the proxy."""
    check(d["conditions"]["backend"] == "tcp", f"past the proxy: {d['conditions']}")
    rows = {(r["case"], r.get("bytes")): r["median"] for r in d["rows"]}
    for text, us in (("0.01 ms", 10), ("0.1 ms", 100), ("1 ms", 1000), ("10 ms", 10000)):
        for case, size in (("raw ping-pong", 64), ("read", 1)):
            check(rows[f"{case}, {text}", size] >= us, f"{case} within {text}: {rows}")


def each_one(folder):
    for name, bars in BARS.items():
        d = json.loads(sheaf("bench", name, "--dir", folder, "--servers", "2", "--rounds", "1", "--json").stdout)
        check(d["bench"] == name and d["conditions"]["servers"] == 2, "which benchmark, how many servers")
        check_rows(d)
        storage = MEMORY if d["conditions"]["storage"]["in_memory"] else DISK
        check_bars(d, bars or storage[name])
        if name == "meta":
            check_together(d)
        if name == "blockcolumn":
            check_ways(d)
        if name == "wan":
            check_delays(d)
        nothing_left(folder)
        print(name)


def common(folder):
    """As many rows as servers and clients give, and the paper's figure beside a ratio."""
    d = json.loads(sheaf("bench", "common", "--dir", folder, "--rounds", "1", "--clients", "1,3", "--json").stdout)
    check(d["bench"] == "common" and d["conditions"]["servers"] == 4, "which benchmark, how many servers")
    check_rows(d)
    check_bars(d, {})
    rows = {(r["case"], r.get("clients")): r for r in d["rows"]}
    for step in ("create", "write", "flush", "read", "remove"):
        for servers in ("1 server", "2 servers", "4 servers"):
            for clients in (1, 3):
                check((f"{step}, {servers}", clients) in rows, f"no row for {step}, {servers}, {clients} clients")
    r = rows["read_4s_stream", None]
    check(r["paper"] == "below 1.65", f"the paper's figure: {r}")
    for name in ("read_4s_servers", "read_4s_clients", "write_4s_servers", "write_4s_clients"):
        check((name, None) in rows, f"no ratio {name}")
    check(r["values"][0] > 0 and "paper" not in rows["read_1s_stream", None], "the paper's figures")
    nothing_left(folder)
    print("common")


def transfer_of_clients(folder):
    """Two clients, each in a range of its own; the bars judge one client only."""
    d = json.loads(sheaf("bench", "transfer", "--dir", folder, "--servers", "2", "--rounds", "1", "--clients", "2",
                         "--json").stdout)
    check_rows(d)
    check_bars(d, {})
    rows = {r["case"]: r for r in d["rows"]}
    check({r["clients"] for r in d["rows"] if "of" not in r} == {2}, "a row that is not of two clients")
    check(rows["transfer_gather_read_2c"]["paper"] == "up to 1.89", "the paper's gain of reads")
    check(rows["transfer_gather_write_2c"]["paper"] == "up to 1.52", "the paper's gain of writes")
    nothing_left(folder)
    print("transfer of two clients")
    d = json.loads(sheaf("bench", "transfer", "--dir", folder, "--servers", "1", "--rounds", "1", "--sizes", "2048,64",
                         "--json").stdout)
    check({r["bytes"] for r in d["rows"] if "bytes" in r} == {64, 2048}, "sizes of segments")
    check("transfer_choice" in d["bars"] and "typed_first" not in d["bars"], f"bars of some sizes: {d['bars']}")
    print("transfer of some sizes")
    d = json.loads(sheaf("bench", "transfer", "--dir", folder, "--servers", "1", "--rounds", "1", "--sizes", "64",
                         "--pieces", "128", "--json").stdout)
    check({r["pieces"] for r in d["rows"] if "pieces" in r} == {128}, "numbers of segments")
    check("transfer_choice" in d["bars"] and "typed_first" not in d["bars"], f"bars of some numbers: {d['bars']}")
    print("transfer of one number of segments")


def ratio_is_of_one_round(folder):
    d = json.loads(sheaf("bench", "contig", "--dir", folder, "--servers", "1", "--rounds", "3", "--clients", "1",
                         "--json").stdout)
    rows = {r["case"]: r["values"] for r in d["rows"]}
    check(set(d["bars"]) == {"read1", "write1", "read1_stream", "write1_stream"}, f"bars of one client: {list(d['bars'])}")
    for ratio, a, b in zip(rows["read1"], rows["read"], rows["raw stream"]):
        check(abs(ratio / (a / b) - 1) < 1e-3, "a ratio is not that of its round")
    print("ratios")


def report(folder):
    sheaf("bench", "latency", "--dir", folder, "--servers", "1", "--rounds", "2", "--clients", "1", "--report",
          "out/report")
    names = os.listdir("out/report")
    check({"index.html", "bench.json", "latency.svg"} <= set(names), f"report: {names}")
    for n in names:
        if n.endswith(".svg"):
            xml.dom.minidom.parse(os.path.join("out/report", n))
    with open("out/report/index.html", encoding="utf-8") as f:
        page = f.read()
    html.parser.HTMLParser().feed(page)
    check("<svg" in page and not re.search(r'(src|href)="(?!#)', page), "the page is not self-contained")
    with open("out/report/bench.json", encoding="utf-8") as f:
        check_rows(json.load(f))
    nothing_left(folder)
    print("report")


def mounts_of(folder):
    with open("/proc/self/mounts", encoding="utf-8") as f:
        return [line for line in f if os.path.realpath(folder) in line.split()[1]]


def interrupt(name, folder, sig, there, later, *options):
    """A signal, `later` seconds after there() was true."""
    p = subprocess.Popen([SHEAF, "bench", name, "--dir", folder, "--rounds", "9", *options], stdout=subprocess.DEVNULL,
                         stderr=subprocess.PIPE, start_new_session=True)
    end = time.monotonic() + 60
    while not there() and time.monotonic() < end:
        time.sleep(0.02)
    time.sleep(later)
    os.killpg(p.pid, sig)  # as a terminal does: to all of them
    check(p.wait(60) == -sig, f"ended by {sig}: {p.returncode}, {p.stderr.read()}")
    p.stderr.close()
    nothing_left(folder)


def interrupted(folder):
    def there():
        return servers_of(os.path.realpath(folder))

    interrupt("all", folder, signal.SIGINT, there, 0.5)  # in the middle
    interrupt("all", folder, signal.SIGTERM, there, 0)  # at the beginning
    print("interrupted")


def running_file_system():
    conf = "fs/sheaf.conf"
    for first in range(21000, 31000, 97):  # somebody may have that port
        p = subprocess.run([SHEAF, "init", "fs", "--servers", "2", "--port", str(first)], capture_output=True, text=True)
        check(p.returncode == 0, p.stderr)
        if subprocess.run([SHEAF, "--conf", conf, "start"], capture_output=True).returncode == 0:
            break
        subprocess.run([SHEAF, "--conf", conf, "stop"], capture_output=True)
        shutil.rmtree("fs")
    try:
        sheaf("--conf", conf, "mkdir", "/mine")
        for name in ("net", "meta", "tile", "common"):
            d = json.loads(sheaf("--conf", conf, "bench", name, "--rounds", "1", "--clients", "2", "--json").stdout)
            check_rows(d)
        check(sheaf("--conf", conf, "ls", "/").stdout.split() == ["mine"], "the scratch directory is still there")
    finally:
        subprocess.run([SHEAF, "--conf", conf, "stop"], capture_output=True)
    with open(conf, encoding="utf-8") as f:
        text = f.read()
    with open(conf, "w", encoding="utf-8") as f:  # no server answers: how long the command waits
        f.write(text.replace("timeout = 30\n", "timeout = 2\n"))
    sheaf("--conf", conf, "bench", "net", "--rounds", "1", status=1)
    print("running file system")


def mount(folder):
    p = sheaf("bench", "mount", status=1)
    check(p.stderr.startswith("sheaf bench: mount: it needs --dir"), p.stderr)
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        check("/dev/fuse" in sheaf("bench", "mount", "--dir", folder, status=1).stderr, "it does not say what is missing")
        print("mount: there is no /dev/fuse, and it says so")
        return
    d = json.loads(sheaf("bench", "mount", "--dir", folder, "--servers", "2", "--rounds", "1", "--json").stdout)
    check_rows(d)
    check_bars(d, MOUNT if d["conditions"]["storage"]["in_memory"] else {})
    rows = {(r["case"], r.get("clients")) for r in d["rows"]}
    for side in ("mount", "passthrough"):
        for case in ("read", "write", "random read", "create", "stat, one directory"):
            check({(f"{side}: {case}", 1), (f"{side}: {case}", 4)} <= rows, f"no row for {side}: {case}: {rows}")
    check({("spliced: read", 1), ("spliced: read", 4)} <= rows, f"no row for the one that does not copy: {rows}")
    nothing_left(folder)
    interrupt("mount", folder, signal.SIGINT, lambda: len(mounts_of(folder)) == 3, 1)
    print("mount")


def ranks_of(folder):
    """Processes whose command line names both a program of bench/mpi and this directory."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                line = f.read()
        except OSError:
            continue
        if b"/bench/mpi/" in line and folder.encode() in line:
            found.append(int(pid))
    return found


def describe(pid):
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/cmdline", "rb") as f, open(f"/proc/{pid}/stat", encoding="ascii") as g:
            return f.read(), g.read()
    return pid


def mpi(folder):
    p = sheaf("bench", "mpi", status=1)
    check(p.stderr.startswith("sheaf bench: mpi: it needs --dir"), p.stderr)
    small = ("--dir", folder, "--servers", "2", "--rounds", "1", "--json")
    p = subprocess.run([SHEAF, "bench", "mpi", *small], capture_output=True, text=True, timeout=1500)
    if p.returncode == 1 and re.match("sheaf bench: mpi: (there is no /dev/fuse|mpiexec)", p.stderr):
        print("mpi: left out:", p.stderr.strip())
        return
    check(p.returncode == 0, f"mpi: exit status {p.returncode}: {p.stderr}")
    d = json.loads(p.stdout)
    check_rows(d)
    check_bars(d, MPI if d["conditions"]["storage"]["in_memory"] else {})
    rows = {r["case"]: r["median"] for r in d["rows"]}
    pieces = 2 * 4 * 2 * 4 * 32 * 32  # both ways, dumps, cells and rows of 4 processes
    check(rows["bt multiple: requests"] >= pieces > 100 * rows["bt typed: requests"], f"requests: {rows}")
    check(rows["bt two-phase: exchanged"] > 0, "nothing was exchanged between processes")
    nothing_left(folder)
    interrupt("mpi", folder, signal.SIGTERM, lambda: ranks_of(os.path.realpath(folder)), 0)
    left = [describe(pid) for pid in ranks_of(os.path.realpath(folder))]
    check(left == [], f"ranks still run: {left}")
    print("mpi")


def nfs(folder):
    """Without NFS-Ganesha the gateway is measured alone, and the message says what to install."""
    p = sheaf("bench", "nfs", status=1)
    check(p.stderr.startswith("sheaf bench: nfs: it needs --dir"), p.stderr)
    p = sheaf("bench", "nfs", "--dir", folder, "--servers", "2", "--rounds", "1", "--json")
    alone = "compared with nothing" in p.stderr
    check(not alone or "apt install" in p.stderr or "/dev/fuse" in p.stderr or os.geteuid(), p.stderr)
    d = json.loads(p.stdout)
    check_rows(d)
    check_bars(d, NFS_MEMORY if alone else {**NFS, **NFS_MEMORY})
    rows = {(r["case"], r.get("clients")) for r in d["rows"]}
    for side in ("gateway",) if alone else ("gateway", "ganesha on mount", "ganesha local"):
        for case in ("getattr", "lookup", "create", "remove", "random read", "read", "write"):
            check({(f"{side}: {case}", 1), (f"{side}: {case}", 4)} <= rows, f"no row for {side}: {case}: {rows}")
    nothing_left(folder)

    def gateway_runs():
        return len(servers_of(os.path.realpath(folder))) > 2

    interrupt("nfs", folder, signal.SIGINT, gateway_runs, 0.5, "--servers", "2")
    print("nfs, alone" if alone else "nfs")


def bank(folder):
    if not shutil.which("memcached"):
        print("bank: memcached is not installed")
        return
    p = sheaf("bench", "bank", "--dir", folder, "--servers", "2", "--rounds", "1", "--clients", "2", "--json")
    d = json.loads(p.stdout)
    check_rows(d)
    check({"bank_idle", "served after a write, bank always"} <= set(d["bars"]), f"bars: {d['bars']}")
    check("control group" in p.stderr or "bank_limited, 2 KiB, 2 clients" in d["bars"], f"bars: {d['bars']}")
    rows = {(r["case"], r.get("bytes")) for r in d["rows"]}
    for how in ("off", "on", "always"):
        for size in (512, 2048, 16384, 65536):
            check((f"read, bank {how}", size) in rows, f"no row for {how}, {size}: {rows}")
    nothing_left(folder)
    print("bank")


def checkpoint(folder):
    """The modes that the library lacks are named; the others have their rows and bars."""
    p = sheaf("bench", "checkpoint", status=1)
    check(p.stderr.startswith("sheaf bench: checkpoint: it needs --dir"), p.stderr)
    p = sheaf("bench", "checkpoint", "--dir", folder, "--servers", "2", "--rounds", "1", "--clients", "1,2", "--json")
    d = json.loads(p.stdout)
    check_rows(d)
    wanted = dict(CHECKPOINT)
    for mode, bars in (("asynchronous", CHECKPOINT_ASYNC), ("incremental", CHECKPOINT_INCREMENTAL)):
        wanted.update({} if f"no rows of {mode} checkpoints" in p.stderr else bars)
    check_bars(d, wanted)
    rows = {(r["case"], r.get("clients")) for r in d["rows"]}
    counts = {r["clients"] for r in d["rows"] if "clients" in r}
    check(counts in ({1}, {1, 2}), f"numbers of processes: {counts}")
    for storage in ("sheaf", "1 server", "mount", "local", "nfs"):
        if f"no rows of '{storage}'" in p.stderr:
            continue
        for n in counts if storage == "sheaf" else {max(counts)}:
            for what in ("run time", "time blocked", "images", "plain writes"):
                check((f"{storage}, every 2 steps: {what}", n) in rows, f"no row for {storage}: {what}, {n}: {rows}")
    nothing_left(folder)
    interrupt("checkpoint", folder, signal.SIGTERM, lambda: len(servers_of(os.path.realpath(folder))) > 4, 0.5,
              "--servers", "2", "--clients", "1,2")
    print("checkpoint")


def links():
    with open("/proc/net/dev", encoding="utf-8") as f:
        return [line.split(":")[0] for line in f if ":" in line]


def hosts(folder):
    """Servers and clients in network namespaces; nothing of it can be seen from outside, and nothing stays."""
    small = ("--dir", folder, "--rounds", "1", "--clients", "1", "--hosts")
    p = subprocess.run([SHEAF, "bench", "latency", *small, "--servers", "2", "--rate", "1gbit", "--json"],
                       capture_output=True, text=True, timeout=600)
    why = re.match(r"sheaf bench: latency: (hosts need .*|the kernel .*)\n", p.stderr)
    if p.returncode == 1 and why:
        print(f"hosts: left out: {why[1]}")
        return
    check(p.returncode == 0, f"hosts: exit status {p.returncode}: {p.stderr}")
    d = json.loads(p.stdout)
    check_rows(d)
    c = d["conditions"]
    check((c["hosts"], c["rate"], c["delay"], c["backend"]) == (3, "1gbit", None, "tcp"), f"conditions: {c}")
    nothing_left(folder)
    p = subprocess.run([SHEAF, "bench", "latency", *small, "--servers", "1", "--delay", "1ms", "--json"],
                       capture_output=True, text=True, timeout=600)
    if p.returncode:
        check("load the module sch_netem" in p.stderr, f"it does not say what is missing: {p.stderr}")
    else:
        check(all(r["median"] >= 1000 for r in json.loads(p.stdout)["rows"] if r["unit"] == "us"), "no delay")
    d = json.loads(sheaf("bench", "incast", "--dir", folder, "--rounds", "1", "--servers", "8", "--json").stdout)
    check_rows(d)
    check_bars(d, {"incast_8": 0.9})
    check((d["conditions"]["hosts"], d["conditions"]["rate"]) == (9, "1gbit"), f"conditions: {d['conditions']}")
    nothing_left(folder)
    before = links()
    interrupt("contig", folder, signal.SIGTERM, lambda: servers_of(os.path.realpath(folder)), 0.5, "--hosts")
    check(links() == before, f"interfaces: {before}, then {links()}")
    print("hosts")


def usage(folder):
    for args in (["bench"], ["bench", "nothing"], ["bench", "net", "--rounds", "0"], ["bench", "net", "--servers", "2"],
                 ["bench", "net", "--clients", "1,x"], ["bench", "net", "--clients", ""], ["bench", "net", "lists"],
                 ["bench", "transfer", "--sizes", "64,x"], ["bench", "transfer", "--pieces", "0"],
                 ["bench", "tile", "--mover", "cart"], ["bench", "mpi", "--mpi", "lam"], ["bench", "net", "--hosts"],
                 ["bench", "net", "--dir", folder, "--rate", "1gbit"],
                 ["bench", "net", "--dir", folder, "--hosts", "--rate", "fast"],
                 ["bench", "net", "--dir", folder, "--hosts", "--delay", "1"]):
        p = sheaf(*args, status=2)
        check(p.stderr.count("\n") == 1 and p.stderr.startswith("sheaf bench: "), f"{args}: {p.stderr}")
    p = sheaf("bench", "net", "--dir", "not-there", status=1)
    check(p.stderr.startswith("sheaf bench: not-there: "), p.stderr)
    check(sheaf("bench", "net", "--dir", folder, "--rounds", "1", "--servers", "1").stdout.count("net_ping") == 2, "table")
    nothing_left(folder)
    print("usage")


os.mkdir("place")
usage("place")
each_one("place")
common("place")
transfer_of_clients("place")
ratio_is_of_one_round("place")
report("place")
interrupted("place")
mount("place")
mpi("place")
nfs("place")
bank("place")
checkpoint("place")
hosts("place")
running_file_system()
