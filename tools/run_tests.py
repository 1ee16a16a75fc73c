#!/usr/bin/env python3
"""Runs the tests of a build and sums them up.

    run_tests.py [--build DIR] [--only unit,fuzz,style,sim,system,mpi,vm,web] [-k SUBSTR] [--list] [--jobs N] [--long]

A test is a program: exit 0 is passed, 77 skipped (its last line of output is the reason), anything
else failed. Each runs with a time limit, in an empty directory of its own (also its TMPDIR), which is
removed afterwards unless a directory in it holds a file KEEP, and with SHEAF_BUILD naming the build.
--long sets SHEAF_TEST_LONG=1: tests run their full counts. The last line printed is
`N passed, N failed` or `N passed, N failed, N skipped`.

Tests run side by side. Each system test has its own network namespace, so that no other test takes the
port of a server that it has stopped; without the right to create one, system tests run one at a time.
Tests of the group mpi run one at a time, because idle processes of MPICH use a core each.
Tests of the group vm run in a guest (tools/vm.py), those called pair_* in two guests at once. They run one at a time, and
only when --only names the group. So do those of the group web, which need a browser.
"""
import argparse
import concurrent.futures
import glob
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GROUPS = ("style", "unit", "fuzz", "sim", "system", "mpi", "vm", "web")
USUAL = GROUPS[:-2]
SKIP = 77
SOURCES = ("src", "include", "tests", "bench", "examples")
# Seconds, for a machine that is busy; a unit takes ten times as long under a sanitizer.
LIMIT = {"style": 600, "unit": 600, "fuzz": 300, "sim": 1800, "system": 1800, "mpi": 1800, "vm": 1800, "web": 600}
LONG_LIMIT = 8  # times as long with --long
SHOWN = 20000  # characters of a failure's output


class Test:
    """`run` is a command line, or a function that returns (exit status, output). `env` is added to the environment."""

    def __init__(self, group, name, run, env=None):
        self.group, self.name, self.run, self.env = group, name, run, env or {}


def environment(build, folder, long, more):
    env = dict(os.environ, SHEAF_BUILD=build, SHEAF_SOURCE=ROOT, TMPDIR=folder, **more)
    if long:
        env["SHEAF_TEST_LONG"] = "1"
    for name in ("SHEAF_CONF", "SHEAF_NET"):
        env.pop(name, None)
    env.setdefault("UBSAN_OPTIONS", "print_stacktrace=1")
    # On aarch64 gcc 12 never gives a frame of this check back: soon there are none, it finds nothing any more,
    # and looking for one takes ten times as long as the tests.
    after_return = int(platform.machine() != "aarch64")
    env.setdefault("ASAN_OPTIONS", f"detect_stack_use_after_return={after_return}:strict_string_checks=1")
    env.setdefault("TSAN_OPTIONS", "second_deadlock_stack=1")
    return env


def default_signals():
    """What nohup or a CI runner made us ignore is not ignored by tests that send it."""
    for s in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(s, signal.SIG_DFL)


# A command in a network namespace with a loopback interface and nothing else.
OWN_NETWORK = ("unshare", "--net", "--", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")


def may_unshare():
    try:
        return subprocess.run([*OWN_NETWORK, "true"], capture_output=True).returncode == 0
    except OSError:
        return False


def run_command(argv, limit, build, long, env):
    """Runs it in a session of its own, so that what a dying test leaves behind dies with it."""
    folder = tempfile.mkdtemp(prefix="sheaf-test-")
    try:
        with tempfile.TemporaryFile() as out:
            p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=folder,
                                 env=environment(build, folder, long, env), start_new_session=True,
                                 preexec_fn=default_signals)
            try:
                status = p.wait(limit)
            except subprocess.TimeoutExpired:
                status = None
            try:
                os.killpg(p.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            p.wait()
            out.seek(0)
            text = out.read().decode("utf-8", "replace")
        if status is None:
            return 1, text + f"\nstopped: still running after {limit} s"
        if status < 0:
            return 1, text + f"\nended by {signal.Signals(-status).name}"
        return status, text
    finally:
        if not glob.glob(os.path.join(folder, "*", "KEEP")):
            shutil.rmtree(folder, ignore_errors=True)


# ---- style ----

def source_files():
    for top in SOURCES:
        for folder, _, names in os.walk(os.path.join(ROOT, top)):
            for name in sorted(names):
                if name.endswith((".c", ".h")):
                    yield os.path.relpath(os.path.join(folder, name), ROOT)


def check_format():
    exe = shutil.which("clang-format-14") or shutil.which("clang-format")
    if not exe:
        return SKIP, "clang-format is not installed"
    version = subprocess.run([exe, "--version"], capture_output=True, text=True).stdout.strip()
    if "version 14." not in version:
        return SKIP, f"the format is pinned to clang-format 14; this is {version}"
    files = sorted(source_files())
    if not files:
        return 0, ""
    p = subprocess.run([exe, "--dry-run", "-Werror"] + files, cwd=ROOT, capture_output=True, text=True)
    wrong = sorted(set(re.findall(r"^(\S+?):\d+:\d+: error", p.stderr, re.M)))
    if p.returncode and wrong:
        return 1, "\n".join(wrong + ["run: make format"])
    return p.returncode, p.stdout + p.stderr


def check_headers(build):
    """Every public header and every header that a folder offers compiles alone."""
    headers = sorted(glob.glob(os.path.join(ROOT, "include", "*.h")))
    headers += [h for h in sorted(glob.glob(os.path.join(ROOT, "src", "*", "*.h")))
                if os.path.basename(h)[:-2] == os.path.basename(os.path.dirname(h))]
    compilers = [c for c in ("gcc", "clang") if shutil.which(c)]
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wstrict-prototypes", "-Werror",
             "-fsyntax-only", "-x", "c", "-"]
    inside = [f"-I{ROOT}", f"-I{ROOT}/src", f"-I{build}/gen"]
    failed = []
    for header in headers:
        public = os.path.dirname(header) == os.path.join(ROOT, "include")
        name = os.path.basename(header) if public else os.path.relpath(header, os.path.join(ROOT, "src"))
        for cc in compilers:
            argv = [cc, f"-I{ROOT}/include"] + ([] if public else inside) + flags
            p = subprocess.run(argv, input=f'#include "{name}"\n', capture_output=True, text=True)
            if p.returncode:
                failed.append(f"{cc}: {name}\n{p.stderr}")
    if failed:
        return 1, "\n".join(failed)
    return 0, ""


def check_excerpts():
    """The C code of the tutorials is code of the examples, line by line; it may be indented less."""
    blocks = []
    for page in ("scattered.md", "mpi.md"):
        with open(os.path.join(ROOT, "docs", page), encoding="utf-8") as f:
            blocks += re.findall(r"^```c\n(.*?)^```$", f.read(), re.M | re.S)
    sources = []
    for path in sorted(glob.glob(os.path.join(ROOT, "examples", "**", "*.c"), recursive=True)):
        with open(path, encoding="utf-8") as f:
            sources.append("\n" + f.read())
    lost = [b for b in blocks
            if not any("\n" + textwrap.indent(b, "\t" * depth) in s for s in sources for depth in range(4))]
    if not blocks:
        return 1, "the tutorials have no C code at all"
    return (1, "in a tutorial, but in no example:\n" + "\n".join(lost)) if lost else (0, "")


# ---- collecting ----

def style_tests(build, _long):
    yield Test("style", "includes follow the levels", [sys.executable, f"{ROOT}/tools/check_includes.py"])
    yield Test("style", "functions and files are short", [sys.executable, f"{ROOT}/tools/check_funcs.py"])
    yield Test("style", "mutants fit the sources", [sys.executable, f"{ROOT}/tools/mutants.py", "--check"])
    yield Test("style", "headers compile alone", lambda: check_headers(build))
    yield Test("style", "excerpts are code of the examples", check_excerpts)
    yield Test("style", "documents are true", [sys.executable, f"{ROOT}/tools/check_docs.py", "--build", build])
    yield Test("style", "clang-format", check_format)


def programs(build, pattern):
    return [p for p in sorted(glob.glob(os.path.join(build, "tests", pattern)))
            if os.path.isfile(p) and os.access(p, os.X_OK)]


def source_of(exe, folder):
    return os.path.exists(os.path.join(ROOT, "tests", folder, os.path.basename(exe) + ".c"))


def unit_tests(build, _long):
    for exe in programs(build, "test_*"):
        name = os.path.basename(exe)
        if source_of(exe, "unit"):
            yield Test("unit", name, [exe])
        if source_of(exe, "unit") and name.startswith("test_meta_"):
            yield Test("unit", f"{name} mapped", [exe], {"SHEAF_TEST_META_MAPPED": "1"})


def fuzz_tests(build, _long):
    for exe in programs(build, "fuzz_*"):
        if source_of(exe, "fuzz"):
            corpus = os.path.join(ROOT, "tests", "fuzz", "corpus", os.path.basename(exe)[len("fuzz_"):])
            if os.path.isdir(corpus):
                yield Test("fuzz", os.path.basename(exe) + " corpus", [exe, corpus])
            else:
                yield Test("fuzz", os.path.basename(exe) + " corpus",
                           lambda c=corpus: (SKIP, f"no corpus at {os.path.relpath(c, ROOT)}"))


def sanitized(build):
    """Is this a build with a sanitizer? It is many times slower."""
    try:
        with open(os.path.join(build, "CMakeCache.txt"), encoding="utf-8") as f:
            return re.search(r"^SHEAF_SAN:\w+=\w", f.read(), re.M) is not None
    except OSError:
        return False


FOUND = ("4235", "4687", "5217", "5223", "10784", "14934", "16082", "16140", "21486")  # seeds of longer runs that found something


def sim_tests(build, long):
    exe = os.path.join(build, "bin", "sheaf-sim")
    if os.access(exe, os.X_OK):
        seeds = "300" if sanitized(build) else "1500" if long else "750"
        yield Test("sim", "sheaf-sim selftest", [exe, "--selftest"])
        yield Test("sim", "sheaf-sim scenarios", [exe, "--scenarios"])
        yield Test("sim", f"sheaf-sim {seeds} seeds",
                   [exe, "--seeds", seeds, "--jobs", str(min(os.cpu_count() or 2, 16)), "--stats", "--require"])
        for seed in FOUND:
            yield Test("sim", f"sheaf-sim seed {seed}", [exe, "--seed", seed])


def system_tests(build, _long):
    for exe in programs(build, "sys_*"):
        if source_of(exe, "system"):
            yield Test("system", os.path.basename(exe), [exe])
    for script in sorted(glob.glob(os.path.join(ROOT, "tests", "system", "*"))):
        name = os.path.basename(script)
        if name.startswith(("_", "lib")):  # helpers that tests include
            continue
        if name.endswith(".sh"):
            yield Test("system", name, ["bash", script])
        elif name.endswith(".py"):
            yield Test("system", name, [sys.executable, script])


def mpi_tests(build, _long):
    for script in sorted(glob.glob(os.path.join(ROOT, "tests", "mpi", "*.sh"))):
        yield Test("mpi", os.path.basename(script), ["bash", script])


def vm_tests(build, long):
    limit = LIMIT["vm"] * (LONG_LIMIT if long else 1) - 60  # vm.py says why the guest did not end
    for script in sorted(glob.glob(os.path.join(ROOT, "tests", "vm", "*.sh"))):
        name = os.path.basename(script)
        pair = ["--pair"] if name.startswith("pair_") else []
        yield Test("vm", name, [sys.executable, f"{ROOT}/tools/vm.py", "--build", build, *pair,
                                "--timeout", str(limit), "--", "bash", script])


def web_tests(build, _long):
    for script in sorted(glob.glob(os.path.join(ROOT, "tests", "web", "[!l]*.py"))):  # lib_* are helpers
        yield Test("web", os.path.basename(script), [sys.executable, script])


COLLECT = {"style": style_tests, "unit": unit_tests, "fuzz": fuzz_tests, "sim": sim_tests,
           "system": system_tests, "mpi": mpi_tests, "vm": vm_tests, "web": web_tests}


# ---- running ----

# From the slowest on; a test that is not here takes its turn after these.
SLOW = ("mount_posix.sh", "mount_bank.sh", "sys_bank", "past_servers.sh", "sheaf-sim 750 seeds", "bench.py", "over_tcp.sh",
        "cp.sh", "in_memory.sh", "sys_locks", "mount_survive.py", "sys_takeover", "sys_races", "sys_shares")


def run(test, build, long=False, prefix=()):
    start = time.monotonic()
    try:
        if callable(test.run):
            status, text = test.run()
        else:
            limit = LIMIT[test.group] * (LONG_LIMIT if long else 1)
            status, text = run_command([*prefix, *test.run], limit, build, long, test.env)
    except OSError as e:
        status, text = 1, str(e)
    return status, text, time.monotonic() - start


def in_order(tests):
    """Style tests first, they are quick; then the slowest, so that none of them ends long after all others."""
    def key(test):
        return test.group != "style", SLOW.index(test.name) if test.name in SLOW else len(SLOW)
    return sorted(tests, key=key)


def run_all(tests, build, long, jobs):
    """Runs the tests side by side; yields (test, status, output, seconds) as they end."""
    apart = may_unshare()
    alone = [t for t in tests if t.group in ("mpi", "vm") or t.group == "system" and not apart]
    for workers, part in ((jobs, [t for t in tests if t not in alone]), (1, alone)):
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            running = {}
            for t in in_order(part):
                prefix = OWN_NETWORK if apart and t.group in ("system", "mpi") else ()
                running[pool.submit(run, t, build, long, prefix)] = t
            for done in concurrent.futures.as_completed(running):
                yield running[done], *done.result()


def report(test, status, text, seconds):
    """Prints one line, and what a failure said; returns the column it counts in."""
    word = {0: "ok", SKIP: "skip"}.get(status, "FAIL")
    reason = ""
    if status == SKIP:
        lines = text.strip().splitlines()
        reason = ": " + (lines[-1] if lines else "no reason given")
    print(f"{word:<5}{seconds:7.2f} s  {test.group:<7}{test.name}{reason}", flush=True)
    if word == "FAIL":
        if len(text) > SHOWN:
            text = f"[... {len(text) - SHOWN} characters ...]\n" + text[-SHOWN:]
        print("".join(f"    | {line}\n" for line in text.rstrip().splitlines()), end="")
        print(f"    = exit status {status}", flush=True)
    return word


def main():
    ap = argparse.ArgumentParser(description="runs the tests of a build")
    ap.add_argument("--build", default=os.path.join(ROOT, "build"), help="build directory")
    ap.add_argument("--only", default=",".join(USUAL), help="groups: " + ",".join(GROUPS))
    ap.add_argument("-k", default="", metavar="SUBSTR", help="only tests whose name holds this")
    ap.add_argument("--jobs", type=int, default=2 * (os.cpu_count() or 1), metavar="N",
                    help="tests that run side by side; default: two per core, as most of them wait")
    ap.add_argument("--long", action="store_true", help="the full counts of every test (make check-long)")
    ap.add_argument("--list", action="store_true", help="name the tests, run nothing")
    args = ap.parse_args()
    build = os.path.abspath(args.build)
    groups = [g for g in args.only.split(",") if g]
    for g in groups:
        if g not in GROUPS:
            ap.error(f"unknown group '{g}'; there are: {', '.join(GROUPS)}")
    if not os.path.isdir(build):
        ap.error(f"no build at {args.build}; run make")
    tests = [t for g in GROUPS if g in groups for t in COLLECT[g](build, args.long) if args.k in t.name]
    if args.list:
        for t in tests:
            print(f"{t.group:<7}{t.name}")
        return 0
    count = {"ok": 0, "FAIL": 0, "skip": 0}
    for result in run_all(tests, build, args.long, args.jobs):
        count[report(*result)] += 1
    skipped = f", {count['skip']} skipped" if count["skip"] else ""
    print(f"{count['ok']} passed, {count['FAIL']} failed{skipped}")
    return 1 if count["FAIL"] else 0


if __name__ == "__main__":
    sys.exit(main())
