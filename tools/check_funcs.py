#!/usr/bin/env python3
"""Shows the longest functions and files of src/, and fails when one, a folder, or a line of a comment is beyond
the limit. Comments are measured in all C files of the tree.

Works on the text: a function body opens with a brace alone in the first column and ends with one.
"""
import argparse
import os
import re
import sys

MAX_FUNCTION = 120
MAX_FILE = 800
MAX_FOLDER = 11500  # lines of its files
MAX_COLUMNS = 100  # of a line with a comment; clang-format holds code to it
OTHERS = ("include", "tests", "bench", "examples")  # beside src/


def functions(lines):
    """Yields (name, first line number, length) of every function, signature included."""
    start = None
    for i, line in enumerate(lines):
        if line.rstrip() == "{":
            start = i
        elif line.startswith("}") and start is not None:
            head = start
            while head > 0 and lines[head - 1].strip() and not re.match(r"[}#/ ]|\t?\*", lines[head - 1]):
                head -= 1
            signature = re.sub(r"__attribute__\s*\(\(.*?\)\)\s", " ", " ".join(lines[head:start]))
            names = re.findall(r"(\w+)\s*\(", signature)
            yield names[0] if names else "?", head + 1, i - head + 1
            start = None


def wide_comments(shown, lines):
    for i, line in enumerate(lines, 1):
        columns = len(line.expandtabs(8))
        if columns > MAX_COLUMNS and re.search(r"/\*|^\s*\* ", line):
            yield f"{shown}:{i}: {columns} columns, the limit of a comment is {MAX_COLUMNS}"


def c_files(top):
    """Yields (path, lines) of every C file."""
    for folder, _, names in os.walk(top):
        for name in names:
            if name.endswith((".c", ".h")):
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8", errors="replace") as f:
                    yield path, f.read().splitlines()


def main():
    ap = argparse.ArgumentParser(description="longest functions and files of src/")
    ap.add_argument("-n", type=int, default=10, help="how many of them to show")
    ap.add_argument("folder", nargs="?", help="default: src/ of this tree")
    args = ap.parse_args()
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    found, files, folders, wrong = [], [], {}, []
    for path, lines in c_files(args.folder or os.path.join(root, "src")):
        shown = os.path.relpath(path, root)
        files.append((len(lines), shown))
        parent = os.path.dirname(shown)
        folders[parent] = folders.get(parent, 0) + len(lines)
        found += [(length, f"{shown}:{at}", fn) for fn, at, length in functions(lines)]
        wrong += wide_comments(shown, lines)
    for other in () if args.folder else OTHERS:
        for path, lines in c_files(os.path.join(root, other)):
            wrong += wide_comments(os.path.relpath(path, root), lines)
    found.sort(reverse=True)
    files.sort(reverse=True)
    if found:
        lengths = sorted(length for length, _, _ in found)
        print(f"{len(found)} functions, median {lengths[len(lengths) // 2]} lines, "
              f"99 % within {lengths[min(len(lengths) - 1, len(lengths) * 99 // 100)]}")
    for length, where, fn in found[:args.n]:
        print(f"{length:6} {where} {fn}")
    for length, path in files[:3]:
        print(f"{length:6} {path}")
    wrong += [f"{where} {fn}: {length} lines, the limit is {MAX_FUNCTION}"
              for length, where, fn in found if length > MAX_FUNCTION]
    wrong += [f"{path}: {length} lines, the limit is {MAX_FILE}"
              for length, path in files if length > MAX_FILE]
    wrong += [f"{path}: {length} lines, the limit of a folder is {MAX_FOLDER}"
              for path, length in folders.items() if length > MAX_FOLDER]
    for w in wrong:
        print("too long:", w)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
