#!/usr/bin/env python3
"""Does the simulation find what it is there for? Builds Sheaf with one mistake at a time and lets it look.

    mutants.py [--build DIR] [--seeds N] [--jobs N] [-k SUBSTR] [--list] [--check] [--markdown]

Each file of tests/sim/mutants is a mistake: why it must be caught, then edits

    === path/of/file
    text that is there exactly once
    --->
    text in its place

The sources are copied to DIR (default: build-mutants) and built there once; a mistake costs one compilation and
the link of sheaf-sim. Prints a line for each; exit status 1 when one survives the scenarios and N seeds (default: 3000).
With --check nothing is built: does each edit still fit the sources?
"""
import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PARTS = ("CMakeLists.txt", "cmake", "src", "include", "proto", "tools", "dist", "docs/man", "tests/lib", "tests/sim",
         "tests/posix", "bench")
LIMIT = 900  # seconds for the seeds of one mutant


class Mutant:
    def __init__(self, path):
        self.name = os.path.basename(path)[:-len(".txt")]
        with open(path, encoding="utf-8") as f:
            why, *edits = re.split(r"^=== (\S+)\n", f.read(), flags=re.M)
        self.why = " ".join(why.split())
        self.edits = []
        for file, text in zip(edits[::2], edits[1::2]):
            old, new = re.split(r"^--->\n", text, flags=re.M)
            self.edits.append((file, old, new))

    def texts(self, tree):
        """The files that it changes: path -> (text as it is, text with the mistake)."""
        texts = {}
        for file, old, new in self.edits:
            path = os.path.join(tree, file)
            if path not in texts:
                with open(path, encoding="utf-8") as f:
                    text = f.read()
                texts[path] = (text, text)
            before, text = texts[path]
            if text.count(old) != 1:
                raise ValueError(f"{self.name}: {file} has the text {text.count(old)} times, not once:\n{old}")
            texts[path] = (before, text.replace(old, new))
        return texts

    def apply(self, tree):
        """Returns the texts as they were."""
        texts = self.texts(tree)
        for path, (_, text) in texts.items():
            write(path, text)
        return {path: before for path, (before, _) in texts.items()}


def write(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def restore(before):
    for path, text in before.items():
        write(path, text)


def run(argv, **kw):
    return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **kw)


def copy_tree(tree):
    """Files that are the same stay as they are, so that little is built again."""
    for part in PARTS:
        top = os.path.join(ROOT, part)
        walk = os.walk(top) if os.path.isdir(top) else [(ROOT, [], [part])]
        for folder, _, names in walk:
            for name in names:
                source = os.path.join(folder, name)
                target = os.path.join(tree, os.path.relpath(source, ROOT))
                os.makedirs(os.path.dirname(target), exist_ok=True)
                with open(source, "rb") as f:
                    data = f.read()
                if os.path.exists(target):
                    with open(target, "rb") as f:
                        if f.read() == data:
                            continue
                shutil.copy(source, target)


def build(tree, out):
    if not os.path.exists(os.path.join(out, "build.ninja")):
        argv = ["cmake", "-G", "Ninja", "-S", tree, "-B", out, "-DCMAKE_BUILD_TYPE=Release",
                "-DCMAKE_C_FLAGS=-w", "-DSHEAF_WERROR=OFF"]
        if shutil.which("ccache"):
            argv.append("-DCMAKE_C_COMPILER_LAUNCHER=ccache")
        p = run(argv)
        if p.returncode:
            return p
    return run(["cmake", "--build", out, "--target", "sheaf-sim"],
               env=dict(os.environ, CCACHE_BASEDIR=tree, CCACHE_NOHASHDIR="1"))


def fails_without(out, seed):
    """Does the seed fail without the mistake, too? Then it says nothing about it."""
    return run([os.path.join(out, "sheaf-sim-right"), "--seed", str(seed)]).returncode != 0


def last(p):
    return (p.stdout.splitlines() or [f"ended with status {p.returncode}"])[-1]


def try_mutant(m, tree, out, seeds, jobs):
    """(caught by: a seed, a scenario or None, seconds, what was said)"""
    before = m.apply(tree)
    try:
        p = build(tree, out)
    finally:
        restore(before)
    if p.returncode:
        raise ValueError(f"{m.name} does not build:\n{p.stdout}")
    start = time.monotonic()
    exe = os.path.join(out, "bin", "sheaf-sim")
    p = run(["timeout", str(LIMIT), exe, "--scenarios"])
    if p.returncode:
        said = re.search(r"^scenario (\S+), seed \d+ failed at \S+ (.*)$", p.stdout, re.M)
        return said.group(1) if said else "scenarios", time.monotonic() - start, said.group(2) if said else last(p)
    p = run(["timeout", str(LIMIT), exe, "--seeds", str(seeds), "--jobs", str(jobs)])
    took = time.monotonic() - start
    if p.returncode == 0:
        return None, took, "survived"
    said = re.search(r"^seed (\d+) failed at \S+ (.*)$", p.stdout, re.M)
    if said and fails_without(out, int(said.group(1))):
        raise ValueError(f"seed {said.group(1)} fails without a mistake: {said.group(2)}")
    if said:
        return int(said.group(1)), took, said.group(2)
    words = [line for line in p.stdout.splitlines() if "ssertion" in line or "signal" in line or "seed" in line]
    return -1, took, words[0] if words else f"ended with status {p.returncode}"


def check(mutants):
    """Does every edit fit the sources?"""
    wrong = 0
    for m in mutants:
        try:
            if not m.why or not m.edits:
                raise ValueError(f"{m.name}: no reason, or no edit")
            m.texts(ROOT)
        except (ValueError, OSError) as e:
            print(e)
            wrong += 1
    print(f"{len(mutants)} mistakes, {wrong} of them do not fit the sources")
    return 1 if wrong else 0


def report(m, result, markdown):
    seed, took, said = result
    caught = seed or "survived" if not isinstance(seed, int) else "seed %d" % seed if seed >= 0 else "crashed"
    if markdown:
        print(f"| {m.name} | {caught} | {took:.0f} s | {said[:110]} |", flush=True)
    else:
        print(f"{m.name:<24} {caught:<24} {took:7.1f} s  {said[:110]}", flush=True)


def main():
    ap = argparse.ArgumentParser(description="builds Sheaf with one mistake at a time and lets the simulation look")
    ap.add_argument("--build", default=os.path.join(ROOT, "build-mutants"), help="scratch directory")
    ap.add_argument("--seeds", type=int, default=3000, help="seeds to try for each")
    ap.add_argument("--jobs", type=int, default=os.cpu_count() or 2, help="processes side by side")
    ap.add_argument("-k", default="", metavar="SUBSTR", help="only those whose name holds one of these (a,b)")
    ap.add_argument("--list", action="store_true", help="name them and say why, run nothing")
    ap.add_argument("--check", action="store_true", help="only whether each edit fits the sources")
    ap.add_argument("--markdown", action="store_true", help="print the results as a table")
    args = ap.parse_args()
    mutants = [Mutant(p) for p in sorted(glob.glob(os.path.join(ROOT, "tests", "sim", "mutants", "*.txt")))]
    mutants = [m for m in mutants if any(k in m.name for k in args.k.split(","))]
    if args.list:
        for m in mutants:
            print(f"{m.name}\n    {m.why}")
        return 0
    if args.check:
        return check(mutants)
    tree, out = os.path.join(os.path.abspath(args.build), "tree"), os.path.join(os.path.abspath(args.build), "build")
    copy_tree(tree)
    p = build(tree, out)
    if p.returncode:
        print(p.stdout)
        return 1
    shutil.copy(os.path.join(out, "bin", "sheaf-sim"), os.path.join(out, "sheaf-sim-right"))
    p = run([os.path.join(out, "sheaf-sim-right"), "--scenarios"])
    if p.returncode:
        print("a scenario fails without a mistake:\n" + p.stdout)
        return 1
    if args.markdown:
        print("| mistake | caught by | after | what was said |\n|---|---|---|---|")
    survived = 0
    for m in mutants:
        result = try_mutant(m, tree, out, args.seeds, args.jobs)
        report(m, result, args.markdown)
        survived += result[0] is None
    print(f"{len(mutants) - survived} of {len(mutants)} mistakes were caught")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
