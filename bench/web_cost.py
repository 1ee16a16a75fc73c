#!/usr/bin/env python3
"""What the status page costs the servers: their processor time with `sheaf web` and without, in turn.

    bench/web_cost.py [--build DIR] [--servers N] [--seconds S] [--rounds N] [--interval S] [--json]

Starts servers of its own in a new directory of TMPDIR, which nothing else uses. A figure is the processor time of all
threads of one server, as a share of one CPU: the mean of the servers, of each round; then the median of the rounds.
"""
import argparse
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "system"))
from lib_ports import free_ports


def cpu_ns(pid):
    total = 0
    for path in glob.glob(f"/proc/{pid}/task/*/schedstat"):
        with open(path) as f:
            total += int(f.read().split()[0])
    return total


def process_ns(pid):
    """Also of threads that have ended, to a tick."""
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * 10**9 // os.sysconf("SC_CLK_TCK")


def share(pids, seconds):
    """Percent of a CPU, of one server."""
    before, start = [cpu_ns(p) for p in pids], time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - start
    return sum(cpu_ns(p) - b for p, b in zip(pids, before)) / len(pids) / took / 1e7


def main():
    ap = argparse.ArgumentParser(description="what the status page costs the servers")
    ap.add_argument("--build", default="build")
    ap.add_argument("--servers", type=int, default=4)
    ap.add_argument("--seconds", type=float, default=60)
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--interval", default="1")
    ap.add_argument("--json", action="store_true")
    args = ap.parse_args()
    sheaf = os.path.abspath(os.path.join(args.build, "bin", "sheaf"))
    result = {"without_percent": [], "with_percent": [], "page_percent": []}
    with tempfile.TemporaryDirectory() as folder:
        conf = os.path.join(folder, "fs", "sheaf.conf")
        run = [sheaf, "--conf", conf]
        subprocess.run([sheaf, "init", os.path.join(folder, "fs"), "--servers", str(args.servers), "--port", str(free_ports(args.servers))],
                       check=True, stdout=subprocess.DEVNULL)
        subprocess.run(run + ["start"], check=True, stdout=subprocess.DEVNULL)
        try:
            pids = [None]
            while not all(pids):  # on a busy machine an answer may be late
                status = subprocess.run(run + ["status", "--json"], capture_output=True).stdout
                pids = [s["pid"] for s in json.loads(status)["servers"]]
            for _ in range(args.rounds):
                result["without_percent"].append(share(pids, args.seconds))
                page = subprocess.Popen(run + ["web", "--listen", "127.0.0.1:0", "--interval", args.interval], stdout=subprocess.PIPE)
                page.stdout.readline()
                time.sleep(2)  # connecting is not what is measured
                own = process_ns(page.pid)
                result["with_percent"].append(share(pids, args.seconds))
                result["page_percent"].append((process_ns(page.pid) - own) / args.seconds / 1e7)
                page.terminate()
                page.wait()
        finally:
            subprocess.run(run + ["stop"], stdout=subprocess.DEVNULL)
    medians = {k: statistics.median(v) for k, v in result.items()}
    cost = medians["with_percent"] - medians["without_percent"]
    if args.json:
        print(json.dumps({"servers": args.servers, "seconds": args.seconds, "rounds": result, "median": medians, "cost_percent": cost}))
    else:
        print(f"{args.servers} servers, a look every {args.interval} s, {args.rounds} rounds of {args.seconds:g} s; percent of one CPU")
        print(f"a server without the page  {medians['without_percent']:.3f}")
        print(f"a server with the page     {medians['with_percent']:.3f}")
        print(f"the page costs a server    {cost:.3f}")
        print(f"the page itself takes      {medians['page_percent']:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
