#!/usr/bin/env python3
"""Holds who may include whom (docs: the level table), and fails on anything else.

Includes go downwards only. A folder of src/ offers x/x.h to others, and the headers that OFFERED
lists for it; its other headers are private. Generated headers come through xdr/xdr.h. Names of source files are unique in the whole tree. Tests and
benchmarks may include anything, examples only the public headers.
"""
import os
import re
import sys

PUBLIC = "include"
ALLOWED = {  # folder -> what it may include beside itself and base
    "base": "",
    "xdr": "", "core": "", "layout": "", "sieve": "",
    "reg": "core", "disk": "core layout sieve", "meta": "core xdr", "cache": "core",
    "net": "core xdr reg layout",
    "direct": "net core layout",
    "client": "direct net reg xdr core layout sieve cache include",
    "server": "net disk meta sieve layout xdr core cache",
    "embed": "client server core include",
    "nfs": "include net xdr core",
    "mount": "include", "mpiio": "include", "ckpt": "include", "ckptmpi": "include",
    "cli": "include", "nfsc": "xdr", "bench": "cli include nfsc", "check": "cli include", "explain": "cli sieve include",
    "web": "cli include",
    "commands": "cli bench check explain web include",
    "cmd": None,  # anything
}
OFFERED = {  # folder -> the headers that it offers to others; without a row: x.h
    "base": "base.h mac.h",
    "core": "core.h fabric.h bank.h",
    "meta": "meta.h locks.h",
    "xdr": "xdr.h sunrpc.h",
    "net": "net.h link.h bulk.h session.h peer.h msg.h costs.h limits.h refusal.h http.h tally.h",
}
GENERATED = [os.path.join("src", "xdr", name) for name in OFFERED["xdr"].split()]  # these include generated headers
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)
FREE = ("tests", "bench")


def sources(root, top):
    for folder, dirs, files in os.walk(os.path.join(root, top)):
        dirs.sort()
        for name in sorted(files):
            if name.endswith((".c", ".h")):
                yield os.path.relpath(os.path.join(folder, name), root)


def includes(root, path):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as f:
        text = f.read()
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), text, flags=re.S)
    for m in INCLUDE.finditer(text):
        yield text.count("\n", 0, m.start(2)) + 1, m.group(1), m.group(2)


def offered(folder):
    return OFFERED.get(folder, f"{folder}.h").split()


def check_src(root, path, public):
    """Yields what is wrong with the includes of one file of src/."""
    parts = path.split(os.sep)
    folder = parts[1]
    if len(parts) != 3:
        yield f"{path}: source files live in src/FOLDER/, not deeper or higher"
        return
    if folder not in ALLOWED:
        yield f"{path}: folder '{folder}' has no row in tools/check_includes.py"
        return
    allowed = ALLOWED[folder]
    for line, quote, name in includes(root, path):
        where = f"{path}:{line}: includes \"{name}\""
        target = name.split("/")[0] if "/" in name else None
        if name in public:
            if allowed is not None and PUBLIC not in allowed.split():
                yield f"{where}: {folder} may not use the public headers"
        elif quote == "<":
            continue
        elif ".." in name.split("/") or name.startswith("/"):
            yield f"{where}: write folder/name.h, relative to src/"
        elif name == "proto/ops.def":
            if folder not in ("xdr", "server"):
                yield f"{where}: the list of operations comes through xdr/xdr.h"
        elif target is None or target == folder:
            own = name if target is None else name.split("/", 1)[1]
            if own.startswith("gen/"):
                if path not in GENERATED:
                    yield f"{where}: generated headers come through xdr/xdr.h or xdr/sunrpc.h"
            elif not os.path.exists(os.path.join(root, "src", folder, own)):
                yield f"{where}: there is no such file in src/{folder}"
        elif target not in ALLOWED:
            yield f"{where}: there is no folder '{target}'"
        elif name.split("/", 1)[1] not in offered(target):
            yield f"{where}: {target} offers only {target}/{' '.join(offered(target))} to others"
        elif allowed is not None and target != "base" and target not in allowed.split():
            yield f"{where}: {folder} may include only: base {allowed}".rstrip()


def check_example(root, path, public):
    for line, quote, name in includes(root, path):
        if name not in public and quote == '"':
            yield f"{path}:{line}: includes \"{name}\": examples use the public headers only"


def main():
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    root = sys.argv[1] if len(sys.argv) > 1 else here  # another tree: for the tests
    public = {os.path.basename(p) for p in sources(root, PUBLIC)}
    wrong, seen, n = [], {}, 0
    for top in ("src", PUBLIC, "examples") + FREE:
        for path in sources(root, top):
            n += 1
            name = os.path.basename(path)
            if name in seen:
                wrong.append(f"{path}: {seen[name]} has the same name; names are unique")
            seen.setdefault(name, path)
            if top == "src":
                wrong += check_src(root, path, public)
            elif top == "examples":
                wrong += check_example(root, path, public)
            elif top == PUBLIC:
                wrong += [f"{path}:{line}: a public header includes \"{inc}\""
                          for line, quote, inc in includes(root, path)
                          if quote == '"' and inc not in public]
    for w in wrong:
        print(w)
    print(f"{n} files, {len(wrong)} violations")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
