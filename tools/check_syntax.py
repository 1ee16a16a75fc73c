#!/usr/bin/env python3
"""Reports the warnings of a build's compiler in sources that the build has not compiled.

    check_syntax.py BUILD TARGET [--jobs N]

TARGET of the build directory BUILD (ninja) has been built, so its sources have no warnings. All other
sources go through the front end of the compiler (-fsyntax-only) with the flags of the build: that is
where clang finds its warnings, in a fraction of the time that code and programs would take.
"""
import argparse
import concurrent.futures
import json
import os
import shlex
import subprocess
import sys


def built_sources(build, target):
    p = subprocess.run(["ninja", "-C", build, "-t", "inputs", target], check=True, capture_output=True, text=True)
    return {os.path.join(build, line.strip()) for line in p.stdout.splitlines()}


def command(entry):
    """The entry's command line without its output file."""
    argv = shlex.split(entry["command"])
    at = argv.index("-o")
    return argv[:at] + argv[at + 2:] + ["-fsyntax-only"]


def check(entry):
    p = subprocess.run(command(entry), cwd=entry["directory"], capture_output=True, text=True)
    return p.returncode, p.stdout + p.stderr


def main():
    ap = argparse.ArgumentParser(description="warnings in sources that were not compiled")
    ap.add_argument("build")
    ap.add_argument("target")
    ap.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    args = ap.parse_args()
    build = os.path.abspath(args.build)
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as f:
        entries = json.load(f)
    done = built_sources(build, args.target)
    left = {tuple(command(e)): e for e in entries if e["file"] not in done}
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for status, text in pool.map(check, left.values()):
            failed += status != 0
            print(text, end="")
    if failed:
        print(f"{failed} of {len(left)} sources have errors or warnings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
