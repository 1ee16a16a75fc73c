#!/usr/bin/env python3
"""The tools refuse what they are there to refuse, and say why."""
import os
import subprocess
import sys

TOOLS = os.path.join(os.environ["SHEAF_SOURCE"], "tools")


def run(tool, *args):
    p = subprocess.run([sys.executable, "-B", os.path.join(TOOLS, tool), *args], capture_output=True, text=True)
    return p.returncode, p.stdout + p.stderr


def put(path, text):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def expect(what, result, status, *texts):
    code, out = result
    if code != status or not all(t in out for t in texts):
        sys.exit(f"{what}: exit status {code}, expected {status} and {texts}\n{out}")
    print(what)


REFUSED = {
    "struct s { int while; };": "'while' is a C keyword",
    "struct bool { int a; };": "'bool' is a C keyword",
    "struct s { opaque a<>; };": "unbounded",
    "struct s { string a; };": "needs a bound",
    "struct s { int a<0>; };": "bound 0 is not within",
    "struct s { int a<N>; };": "'N' is not a number or a constant",
    "struct s { t a; };": "'t' is not a type",
    "struct s { int a; int a; };": "two members 'a'",
    "struct s { int n_a; int a<4>; };": "two members 'n_a'",
    "struct s { };": "has no members",
    "struct s { int a; }; struct s { int a; };": "'s' is defined twice",
    "const A = 1; const A = 2;": "'A' is defined twice",
    "const A = 0x10000000000000000;": "does not fit 64 bits",
    "enum e { A = 1, B = 1 };": "used twice",
    "enum e { A = -1 };": "not within",
    "struct s { int a; }": "the file ends",
    "program p { int a; };": "expected const, enum, struct, union or typedef",
    "union u { int a; };": "needs a switch",
    "union u switch (bool a) { case 1: int b; };": "must be an enum or unsigned int",
    "union u switch (unsigned int a) { case 1: int b; case 1: int c; };": "there twice",
    "union u switch (unsigned int a) { case 1: int b; case 2: int b; };": "two members of one name",
    "union u switch (unsigned int a) { default: void; };": "has no cases",
    "enum e { A = 1 }; union u switch (e a) { case 2: void; };": "not a value of enum e",
    "struct s { list int a; };": "expected '<'",
    "typedef opaque b<4>; struct s { list b a<4>; };": "needs a struct around it",
    "typedef int t; typedef int t;": "'t' is defined twice",
    "struct s { int a; };\n$": "t.x:2: cannot read",
}


def xdrgen():
    for text, why in REFUSED.items():
        put("t.x", text)
        expect(f"xdrgen refuses {text!r}", run("xdrgen.py", "--out", "gen", "t.x"), 1, "t.x:", why)
    put("t.x", "enum e { A = 0, B = 7 }; typedef opaque b<4>; typedef hyper h;\n"
               "union u switch (e tag) { case A: h x; case B: int y<2>; };\n"
               "struct w { u one; e two; b three; int *four; list u five<9>; };\n"
               "struct s { w a<3>; };\n")
    expect("xdrgen takes unions, typedefs, optional members and lists", run("xdrgen.py", "--out", "gen", "t.x"), 0)
    with open("gen/t.h", encoding="utf-8") as f:
        header = f.read()
    for line in ("uint32_t tag;", "int64_t x;", "uint32_t two;", "struct wire_bytes three;", "int32_t *four;",
                 "struct wire_u *five;"):
        if line not in header:
            sys.exit(f"missing in the generated header: {line}\n{header}")
    with open("gen/t.c", encoding="utf-8") as f:
        if "&items, 3, 24, sizeof" not in f.read():
            sys.exit("the smallest size of struct w is 4 + 4 + 4 + 4 + 4 + 4 = 24")
    put("t.x", "const BIG = 0x80000000; const HUGE = 0xffffffffffffffff; const N = 2;\n"
               "struct s { int a[N]; unsigned hyper b<3>; opaque c[5]; };\nstruct t { s d<N>; s e[N]; };\n")
    expect("xdrgen takes every form", run("xdrgen.py", "--out", "gen", "t.x"), 0)
    with open("gen/t.h", encoding="utf-8") as f:
        header = f.read()
    for line in ("#define BIG UINT32_C(0x80000000)", "#define HUGE UINT64_C(0xffffffffffffffff)",
                 "int32_t a[2];", "uint64_t *b;", "uint8_t c[5];", "struct wire_s *d;", "struct wire_s e[2];"):
        if line not in header:
            sys.exit(f"missing in the generated header: {line}\n{header}")
    with open("gen/t.c", encoding="utf-8") as f:
        if "xdr_array(x, &v->n_d, &items, 2, 20, sizeof(*v->d))" not in f.read():
            sys.exit("the smallest size of struct s is 2*4 + 4 + 8 = 20")


def includes():
    put("tree/include/sheaf.h", "#include <stdint.h>\n")
    put("tree/src/base/base.h", "#include <errno.h>\n")
    put("tree/src/core/core.h", '#include "base/base.h"\n#include "core/inner.h"\n')
    put("tree/src/core/inner.h", '/* #include "net/net.h" */\n')
    put("tree/src/net/net.h", '#include "core/core.h"\n')
    put("tree/src/net/peer.h", '#include "net/net.h"\n#include "net/backend.h"\n')
    put("tree/src/net/backend.h", "")
    put("tree/src/client/file.c", '#include "sheaf.h"\n#include "net/net.h"\n#include "net/peer.h"\n')
    expect("a good tree passes", run("check_includes.py", "tree"), 0, "0 violations")
    for text, why in (('#include "net/net.h"\n', "core may include only: base"),
                      ('\n#include "base/other.h"\n', "bad.c:2"),
                      ('#include "../net/net.h"\n', "relative to src/"),
                      ('#include <sheaf.h>\n', "may not use the public headers"),
                      ('#include "xdr/gen/sheaf.h"\n', "xdr offers only xdr/xdr.h"),
                      ('#include "net/backend.h"\n', "net offers only net/net.h"),
                      ('#include "nowhere.h"\n', "no such file")):
        put("tree/src/core/bad.c", text)
        expect(f"{text.strip()} in core is refused", run("check_includes.py", "tree"), 1, "bad.c", why)
    os.unlink("tree/src/core/bad.c")
    put("tree/examples/e.c", '#include "base/base.h"\n')
    expect("examples are held to public headers", run("check_includes.py", "tree"), 1, "public headers only")
    os.unlink("tree/examples/e.c")
    put("tree/tests/unit/file.c", "")
    expect("two files of one name are refused", run("check_includes.py", "tree"), 1, "names are unique")


def functions():
    put("long/a.c", "static int f(int a,\n\t     int b)\n{\n" + "\ta++;\n" * 117 + "}\n")
    expect("121 lines are too long", run("check_funcs.py", "long"), 1, "a.c:1 f: 121 lines")
    put("long/a.c", "int f(int a)\n{\n" + "\ta++;\n" * 117 + "}\n")
    expect("120 lines pass", run("check_funcs.py", "long"), 0)
    put("long/a.c", "\n" * 801)
    expect("801 lines of file are too long", run("check_funcs.py", "long"), 1, "a.c: 801 lines")
    put("long/a.c", "/* " + "x" * 96 + " */\n")
    expect("a comment of 102 columns is too wide", run("check_funcs.py", "long"), 1, "a.c:1: 102 columns")
    put("long/a.c", "/* " + "x" * 94 + " */\n")
    expect("a comment of 100 columns passes", run("check_funcs.py", "long"), 0)
    for i in range(15):
        put(f"wide/{i}.c", "\n" * 770)
    expect("11,550 lines of folder are too many", run("check_funcs.py", "wide"), 1, "wide: 11550 lines")
    os.unlink("wide/14.c")
    expect("10,780 lines of folder pass", run("check_funcs.py", "wide"), 0)


def documents():
    put("page/proto/sheaf.x", "const SHEAF_VERSION = 3;\n")
    put("page/src/base/base.c", "static int first_one(int a,\n\t\t     int b)\n{\n}\n")
    put("page/src/base/README.md", "| file | what |\n|---|---|\n| `base.c` | it |\n")
    put("page/docs/protocol.md", "# Wire\n\nVersion 3.\n")
    put("page/docs/figures.md", "| figure | needed | in memory | on disk |\n|---|---|---|---|\n"
                                "| `read1` | at least 1 | 1.18 (1.16 – 1.39) ✗ | – |\n")
    result = "| figure | needed | in memory | on disk |\n|---|---|---|---|\n| `read1` | at least 1 | 1.18 ✗ | – |\n"
    put("page/README.md", result)
    check = ("check_docs.py", "--build", os.environ["SHEAF_BUILD"], "page")
    good = ("[a](protocol.md) [b](protocol.md#wire) `base.c`, `ba*.c`, `first_one`, `sheaf ls /`\n\n"
            "```\n$ sheaf --conf x status\n```\n\n| function | file |\n|---|---|\n| `first_one` | base.c |\n")
    put("page/docs/a.md", good)
    expect("true documents pass", run(*check), 0, "0 false statements")
    for text, why in (("[a](gone.md)", "gone.md leads nowhere"),
                      ("[a](protocol.md#gone)", "no heading #gone"),
                      ("`gone.c`", "no file gone.c"),
                      ("`first_two`", "no source has the name first_two"),
                      ("`sheaf fly`", "'sheaf fly' is not a command"),
                      ("```\n$ sheaf --conf x fly | wc\n```", "'sheaf fly' is not a command"),
                      ("| function | file |\n|---|---|\n| `first_one` | a.c |", "not defined in a.c; it is in base.c")):
        put("page/docs/a.md", good + "\n" + text + "\n")
        expect(f"{text!r} in a page is refused", run(*check), 1, "docs/a.md:", why, "1 false statements")
    put("page/docs/a.md", good.replace("| base.c |", "| a.c |"))
    expect("the file of a function that has moved is written", run(*check, "--fix"), 0, "1 functions", "0 false")
    with open("page/docs/a.md", encoding="utf-8") as f:
        if f.read() != good:
            sys.exit("--fix has changed something else")
    put("page/docs/a.md", good.replace("`first_one`,", "`first_ones`,"))
    expect("a renamed name is guessed", run(*check), 1, "no source has the name first_ones; perhaps first_one")
    put("page/docs/a.md", good)
    for path, text, why in (("src/base/new.c", "", "new.c is missing in the table of files"),
                            ("docs/protocol.md", "# Wire\n\nVersion 2.\n", "states version 2; proto/sheaf.x has 3"),
                            ("README.md", result.replace("1.18", "1.19"), "docs/figures.md has 1.18 ✗"),
                            ("README.md", result + "\n" * 100, "more than 100 lines"),
                            ("README.md", result + "x" * 101, "101 columns")):
        old = open(f"page/{path}", encoding="utf-8").read() if os.path.exists(f"page/{path}") else None
        put(f"page/{path}", text)
        expect(f"a wrong {path} is refused", run(*check), 1, why)
        if old is None:
            os.unlink(f"page/{path}")
        else:
            put(f"page/{path}", old)


xdrgen()
includes()
functions()
documents()
