#!/usr/bin/env python3
"""The same seeds give the same traces with gcc and with clang.

Compares sheaf-sim of build/ with that of build-clang/ (`make clang`); skips when one is missing.
"""
import os
import subprocess
import sys

SEEDS = "5"
ROOT = os.environ.get("SHEAF_SOURCE") or os.path.dirname(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def hashes(folder):
    exe = os.path.join(ROOT, folder, "bin", "sheaf-sim")
    if not os.access(exe, os.X_OK):
        print(f"no {folder}/bin/sheaf-sim; run: make {'clang' if 'clang' in folder else ''}".rstrip())
        sys.exit(77)
    p = subprocess.run([exe, "--seeds", SEEDS, "--hash"], capture_output=True, text=True)
    if p.returncode:
        print(p.stdout + p.stderr)
        sys.exit(1)
    return [line for line in p.stdout.splitlines() if " hash " in line]


def main():
    ours, theirs = hashes("build"), hashes("build-clang")
    for a, b in zip(ours, theirs):
        if a != b:
            print(f"gcc:   {a}\nclang: {b}")
    if ours != theirs or len(ours) != int(SEEDS):
        return 1
    print(f"{SEEDS} seeds, equal traces")
    return 0


if __name__ == "__main__":
    sys.exit(main())
