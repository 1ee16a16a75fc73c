#!/usr/bin/env python3
"""The transcripts of README.md and docs/start.md show what happens.

The lines of a code block that begin with `$ ` are run by one bash for each page, in a directory like that of
`make up`: build/ is the build, run/ a new file system of four servers. The output of each command must be the
lines below it in the page. Parts that vary from run to run are replaced by a word on both sides (VARIES).
A difference is printed as a diff; copy the right lines into the page.
"""
import difflib
import os
import re
import subprocess
import sys

from lib_ports import free_ports

SOURCE, BUILD = os.environ["SHEAF_SOURCE"], os.environ["SHEAF_BUILD"]
PAGES = ("README.md", os.path.join("docs", "start.md"))
SERVERS = 4
SHEAF = os.path.join(BUILD, "bin", "sheaf")
CONF = os.path.join("run", "sheaf.conf")
MARK = "--- command"

# What may differ, and the word that replaces it; sizes of files and names stay as they are.
VARIES = (
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ [+-]\d{4}", "TIME"),
    (r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d", "TIME"),
    (r"for up to \d+ s, until \d\d:\d\d:\d\d", "UNTIL"),
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (r"(?<=^    owner: )uid \d+, gid \d+", "OWNER"),
    (r"(?<=^    inode: )\d+", "INODE"),
    (r"(?<=^[-dl][-rwxst]{9} )(\d+) \S+ \S+", r"\1 OWNER"),
    (r"(?<= up )( *)\d+(  \S+ +)\d+ \w+ +[\d.]+ \w+ +\d+ +\d+ +[\d.]+ \w+ of [\d.]+ \w+(?=  \w+$)", r"\1PID\2NUMBERS"),
    (r" +", " "),
)


def transcript(path):
    """[(line number, command, [lines of output])] of a page."""
    commands, inside, shows = [], False, False
    with open(path, encoding="utf-8") as f:
        for number, line in enumerate(f.read().split("\n"), 1):
            if line.startswith("```"):
                inside, shows = not inside, False
            elif inside and line.startswith("$ "):
                commands.append((number, line[2:], []))
                shows = True
            elif shows:
                commands[-1][2].append(line)
    return commands


def plain(line):
    for pattern, word in VARIES:
        line = re.sub(pattern, word, line)
    return line.rstrip()


def outputs(commands):
    """What each command prints; all of a page share one shell."""
    script = "".join(f"echo '{MARK}'\n{command}\n" for _, command, _ in commands)
    p = subprocess.run(["bash"], input=script, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300,
                       check=False)
    return [part.strip("\n").split("\n") if part.strip("\n") else [] for part in p.stdout.split(MARK + "\n")[1:]]


def differences(path):
    commands = transcript(os.path.join(SOURCE, path))
    if not commands:
        return [f"{path} has no transcript"]
    wrong = []
    for (number, command, shown), got in zip(commands, outputs(commands), strict=True):
        if [plain(x) for x in shown] != [plain(x) for x in got]:
            wrong += [f"{path}:{number}: $ {command}"]
            wrong += difflib.unified_diff(shown, got, "the page", "this run", lineterm="", n=20)
    print(f"{path}: {len(commands)} commands")
    return wrong


def sheaf(*args):
    subprocess.run([SHEAF, *args], check=True, stdout=subprocess.DEVNULL)


def make_file_system():
    """As `make up` does on two processors, with free ports; a command ends soon when no server answers."""
    sheaf("init", "run", "--servers", str(SERVERS), "--meta", "1", "--port", str(free_ports(SERVERS)))
    with open(CONF, encoding="utf-8") as f:
        text = f.read()
    with open(CONF, "w", encoding="utf-8") as f:
        f.write(re.sub(r"(?m)^timeout = .*", "timeout = 5", text))


def main():
    wrong = []
    for path in PAGES:
        folder = path.replace(os.sep, "_")
        os.mkdir(folder)
        os.chdir(folder)
        os.symlink(BUILD, "build")
        make_file_system()
        try:
            sheaf("--conf", CONF, "start")
            wrong += differences(path)
        finally:
            sheaf("--conf", CONF, "stop")
        os.chdir("..")
    if wrong:
        sys.exit("\n".join(wrong))


main()
