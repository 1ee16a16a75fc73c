#!/usr/bin/env python3
"""Compares what the documents say with the tree: a style test.

    check_docs.py [--build DIR] [--fix] [ROOT]

Pages are README.md, docs/*.md and the README.md of each folder. Checked:
  links        a link to another file or heading resolves
  files        a file named in `code` exists; `cmd_*.c` and the like name at least one
  names        a name_with_underscores in `code` occurs in the sources
  functions    in a table with the columns `function` and `file`, each function is defined in that file
  folders      a folder's README with a table of files names every .c and .h of the folder, and `tests/system` and `tests/vm` every test
  commands     `sheaf COMMAND` is a command of DIR/bin/sheaf
  version      docs/protocol.md states the version of proto/sheaf.x
  README       at most 100 lines of 100 columns; its results are those of docs/figures.md

A complaint is one line, page:line: what is wrong, with the place or the name that is probably meant. --fix writes the
file of functions that have moved into the tables.
"""
import argparse
import difflib
import fnmatch
import glob
import os
import re
import subprocess
import sys

SOURCES = ("src", "include", "proto", "tests", "bench", "examples", "tools", "cmake", "dist")
TEXT = (".c", ".h", ".x", ".py", ".sh", ".inc", ".map", ".txt", ".cmake", ".in", ".service")
NAMED = r"[\w*./-]+\.(?:c|h|x|py|sh|inc|map|md)"
README_LINES, README_COLUMNS = 100, 100


class Page:
    def __init__(self, root, path):
        self.root, self.path = root, path
        with open(os.path.join(root, path), encoding="utf-8") as f:
            self.lines = f.read().split("\n")

    def text(self):
        """(number, line, is it in a code block) of every line that is not a fence."""
        inside = False
        for number, line in enumerate(self.lines, 1):
            if line.lstrip().startswith("```"):
                inside = not inside
            else:
                yield number, line, inside

    def code(self):
        """(number, text) of every `code` outside of code blocks."""
        for number, line, inside in self.text():
            if not inside:
                for span in re.findall(r"`([^`]+)`", line):
                    yield number, span

    def say(self, number, what):
        return f"{self.path}:{number}: {what}"


def pages(root):
    for pattern in ("README.md", "docs/*.md", "src/*/README.md", "tests/*/README.md", "tools/README.md"):
        for path in sorted(glob.glob(os.path.join(root, pattern))):
            yield Page(root, os.path.relpath(path, root))


def tree_files(root):
    """Relative paths of all files but those of builds."""
    found = []
    for folder, names, files in os.walk(root):
        names[:] = [n for n in names if not n.startswith((".git", "build"))]
        found += [os.path.relpath(os.path.join(folder, f), root) for f in files]
    return found


def anchor(heading):
    """A heading as the part of a link behind #, as renderers make it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def check_links(page):
    for number, line, inside in page.text():
        for target in [] if inside else re.findall(r"\]\(([^)\s]+)\)", line):
            file, _, part = target.partition("#")
            path = os.path.join(page.root, os.path.dirname(page.path), file) if file else os.path.join(page.root, page.path)
            if re.match(r"\w+:", target):
                continue
            if not os.path.exists(path):
                yield page.say(number, f"the link to {target} leads nowhere")
            elif part and path.endswith(".md"):
                with open(path, encoding="utf-8") as f:
                    if part not in map(anchor, re.findall(r"(?m)^#+ (.*)$", f.read())):
                        yield page.say(number, f"{file or page.path} has no heading #{part}")


def check_files(page, files):
    """By the end of the path: pages name most files without their folder."""
    for number, span in page.code():
        for name in re.findall(rf"(?<![\w/.*-]){NAMED}(?![\w*])", span):
            name = re.sub(r"[A-Z]{2,}", "*", name)  # op_NAME.c
            if name.startswith("/") or "gen/" in name:
                continue
            if not any(fnmatch.fnmatch(f, name) or fnmatch.fnmatch(f, "*/" + name) for f in files):
                yield page.say(number, f"there is no file {name}")


def similar(name, words):
    """Names that may be the new ones of a name that is gone, as the end of a complaint."""
    found = difflib.get_close_matches(name, words, 2, 0.75)
    return f"; perhaps {' or '.join(found)}" if found else ""


def check_names(page, words):
    for number, span in page.code():
        if re.fullmatch(r"[a-z]\w*_\w+\*?(\(.*\))?(: .*)?|\w+: [a-z]\w*_\w+", span):
            for name in re.findall(r"\b[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b(?!\*)", span):
                metric = re.sub(r"^sheaf_", "", name)
                if not {name, metric} & words:
                    yield page.say(number, f"no source has the name {name}{similar(name, words)}")


def definitions(root):
    """name -> files that define a function of that name (its first line begins in the first column)."""
    found = {}
    for path in glob.glob(os.path.join(root, "src", "*", "*.[ch]")):
        with open(path, encoding="utf-8") as f:
            for name in re.findall(r"(?m)^[a-z][\w \t*]*?\**(\w+)\([^;{]*?\)(?: /\*.*\*/)?\n\{", f.read()):
                found.setdefault(name, set()).add(os.path.basename(path))
    return found


def rows(page):
    """(number, {column: cell}) of each row of each table."""
    head = None
    for number, line, inside in page.text():
        cells = [c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]] if not inside and line.startswith("|") else []
        if not cells:
            head = None
        elif head is None:
            head = cells
        elif not set("".join(cells)) <= set("-: "):
            yield number, dict(zip(head, cells))


def fix_functions(page, defined):
    """Functions that are defined in one file, which is not the one of their row: writes that file into the row."""
    moved = 0
    for number, row in rows(page):
        names = re.findall(r"`(\w+)`", row.get("function", ""))
        places = defined.get(names[0], set()) if len(names) == 1 else set()
        if len(places) == 1 and re.fullmatch(r"\w+\.[ch]", row.get("file", "")) and row["file"] not in places:
            page.lines[number - 1] = page.lines[number - 1].replace(f"| {row['file']} |", f"| {min(places)} |", 1)
            moved += 1
    if moved:
        with open(os.path.join(page.root, page.path), "w", encoding="utf-8") as f:
            f.write("\n".join(page.lines))
    return moved


def check_functions(page, defined):
    for number, row in rows(page):
        files = re.findall(r"\w+\.[ch]", row.get("file", ""))
        if "function" not in row or not files:
            continue
        for name in re.findall(r"`(\w+)`", row["function"]):
            places = defined.get(name, set())
            if not places & set(files):
                where = ", ".join(sorted(places)) or "no file of src/" + similar(name, defined)
                yield page.say(number, f"{name} is not defined in {row['file']}; it is in {where}")


def check_folder(page):
    """Every source of the folder is in the README, if that has a table of files at all."""
    folder = os.path.dirname(page.path)
    text = "\n".join(page.lines)
    named = re.findall(NAMED, "\n".join(line for line in page.lines if line.startswith("|")))
    kinds = (".c", ".h", ".sh", ".py", ".inc") if folder in ("tests/system", "tests/vm") else (".c", ".h")
    if not folder or not re.search(r"(?m)^\| file", text):
        return
    for name in sorted(os.listdir(os.path.join(page.root, folder))):
        if name.endswith(kinds) and not any(fnmatch.fnmatch(name, n) for n in named):
            yield page.say(1, f"{name} is missing in the table of files")


def commands_of(build):
    exe = os.path.join(build, "bin", "sheaf")
    p = subprocess.run([exe, "help"], capture_output=True, text=True, check=True)
    return set(re.findall(r"(?m)^  ([a-z-]+) ", p.stdout)) | {"help"}


def check_commands(page, commands):
    call = r"(?:^|[\s;(/]|\$ )sheaf (?:--conf \S+ )?([a-z][a-z-]+)(?=$|[\s;|'\]),>])"
    for number, line, inside in page.text():
        for span in [line] if inside else re.findall(r"`([^`]+)`", line):
            if "apt install" in span or re.search("[─│]", span):
                continue
            for name in re.findall(call, span.split(" #")[0]):
                if name not in commands:
                    yield page.say(number, f"'sheaf {name}' is not a command; 'sheaf help' lists them")


def check_version(root):
    with open(os.path.join(root, "proto", "sheaf.x"), encoding="utf-8") as f:
        real = re.search(r"const SHEAF_VERSION = (\d+);", f.read()).group(1)
    page = Page(root, os.path.join("docs", "protocol.md"))
    said = re.findall(r"\bVersion (\d+)\b", "\n".join(page.lines))
    if said != [real]:
        yield page.say(1, f"it states version {' and '.join(said) or 'none'}; proto/sheaf.x has {real}")


def check_readme(root):
    page = Page(root, "README.md")
    if len(page.lines) - 1 > README_LINES:
        yield page.say(len(page.lines), f"more than {README_LINES} lines: move details to docs/start.md")
    for number, line in enumerate(page.lines, 1):
        if len(line) > README_COLUMNS:
            yield page.say(number, f"{len(line)} columns, more than {README_COLUMNS}")
    measured = {row["figure"]: row for _, row in rows(Page(root, os.path.join("docs", "figures.md"))) if "figure" in row}
    for number, row in rows(page):
        real = measured.get(row.get("figure"), {})
        for column in ("needed", "in memory", "on disk") if "figure" in row else ():
            value = re.sub(r" \([^)]*\)", "", real.get(column, "nothing"))  # the spread is left out
            if row[column] != value:
                yield page.say(number, f"{row['figure']}, {column}: docs/figures.md has {value}")


def complaints(root, build):
    files, words = tree_files(root), set()
    for path in files:
        if path.split(os.sep)[0] in SOURCES and path.endswith(TEXT) or path in ("CMakeLists.txt", "Makefile"):
            with open(os.path.join(root, path), encoding="utf-8", errors="replace") as f:
                words |= set(re.findall(r"\w+", f.read()))
    words |= {re.sub(r"\.\w+$", "", os.path.basename(f)) for f in files}
    defined, commands = definitions(root), commands_of(build)
    for page in pages(root):
        yield from check_links(page)
        yield from check_files(page, files)
        yield from check_names(page, words)
        yield from check_functions(page, defined)
        yield from check_folder(page)
        yield from check_commands(page, commands)
    yield from check_version(root)
    yield from check_readme(root)


def main():
    ap = argparse.ArgumentParser(description="documents against the tree")
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    ap.add_argument("root", nargs="?", default=here)
    ap.add_argument("--build", default=os.path.join(here, "build"))
    ap.add_argument("--fix", action="store_true", help="write the files of functions that have moved into the tables")
    args = ap.parse_args()
    if args.fix:
        defined = definitions(args.root)
        print(f"{sum(fix_functions(page, defined) for page in pages(args.root))} functions have moved")
    found = list(complaints(args.root, args.build))
    print("\n".join(found + [f"{len(found)} false statements"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
