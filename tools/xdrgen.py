#!/usr/bin/env python3
"""Generates C structs and bounded two-way XDR filters from a .x file.

    xdrgen.py [--import OTHER.x]... --out DIR FILE.x     writes DIR/FILE.h and DIR/FILE.c

The language is the part of XDR (RFC 4506) that proto/*.x uses: const, enum, struct, union, typedef;
members of type int, unsigned int, hyper, unsigned hyper, bool or a type defined earlier, each also as
T name<N>, T name[N] and, if it may be missing, T *name; opaque name[N], opaque name<N>, string
name<N>; C comments. `list T name<N>` is what RFC 4506 calls a linked list: each element follows a bool,
and a false bool ends it. Every variable length needs a bound, and the filters hold it on encoding and on
decoding. A union is switched by an enum or an unsigned int; a value without an arm is refused.

struct s becomes struct wire_s and bool xdr_wire_s(struct xdr *, struct wire_s *), and so does a
union, with its arms in an anonymous union; enum e becomes enum wire_e, const char *wire_e_name(uint32_t)
and bool xdr_wire_e(struct xdr *, uint32_t *), which refuses other values. Types of imported files may
be used; the header of this file then includes theirs.
"""
import argparse
import os
import re
import sys

SCALARS = {  # XDR type -> (C type, filter, bytes on the wire)
    "int": ("int32_t", "xdr_i32", 4),
    "unsigned int": ("uint32_t", "xdr_u32", 4),
    "hyper": ("int64_t", "xdr_i64", 8),
    "unsigned hyper": ("uint64_t", "xdr_u64", 8),
    "bool": ("bool", "xdr_bool", 4),
}

OF_TYPE = ("one", "vector", "array", "optional", "list")  # kinds of members that have elements of a type

C_KEYWORDS = frozenset("""
    auto break case char const continue default do double else enum extern float for goto if inline
    int long register restrict return short signed sizeof static struct switch typedef union unsigned
    void volatile while _Alignas _Alignof _Atomic _Bool _Complex _Generic _Imaginary _Noreturn
    _Static_assert _Thread_local asm typeof bool true false""".split())

TOKEN = re.compile(r"""
      (?P<space>\s+|/\*.*?\*/|//[^\n]*)
    | (?P<number>-?0[xX][0-9a-fA-F]+|-?[0-9]+)
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<mark>[{}()\[\]<>;:=,*])
""", re.S | re.X)


class Bad(Exception):
    """What is wrong with the input; the message names file and line."""


class Member:
    """One member of a struct: `kind` is one, vector (T[N]), array (T<N>), optional (T *), list, fixed, bytes or
    text; void is an arm of a union without data."""

    def __init__(self, kind, type_name, name, bound):
        self.kind, self.type, self.name, self.bound = kind, type_name, name, bound


class Union:
    """`tag` is a Member; `arms` are pairs of values and a Member, those of the default None."""

    def __init__(self, tag, arms):
        self.tag, self.arms = tag, arms


class Module:
    """What one .x file and the files it imports define."""

    def __init__(self):
        self.consts = {}  # name -> value, imported and enum ones too
        self.structs = {}  # name of a struct or union -> smallest size on the wire
        self.switched = set()  # structs that hold a union or an enum: zeros need not be a valid message
        self.enums = {}  # name -> values
        self.typedefs = {}  # name -> Member
        self.names = set()  # of all of these
        self.items = []  # of this file only: ("const"|"enum"|"struct"|"union", name, what)


def tokenize(text, path):
    out, at, line = [], 0, 1
    while at < len(text):
        m = TOKEN.match(text, at)
        if not m:
            raise Bad(f"{path}:{line}: cannot read {text[at:at + 10]!r}")
        if m.lastgroup != "space":
            out.append((m.group(), m.lastgroup, line))
        line += m.group().count("\n")
        at = m.end()
    return out


class Parser:
    def __init__(self, path, module):
        with open(path, encoding="utf-8") as f:
            self.tokens = tokenize(f.read(), path)
        self.path, self.m, self.at, self.line = path, module, 0, 1

    def fail(self, text):
        raise Bad(f"{self.path}:{self.line}: {text}")

    def peek(self):
        return self.tokens[self.at][0] if self.at < len(self.tokens) else ""

    def next(self, kind=None):
        if self.at == len(self.tokens):
            self.fail("the file ends in the middle of a definition")
        text, what, self.line = self.tokens[self.at]
        self.at += 1
        if kind and what != kind:
            self.fail(f"expected a {kind}, found '{text}'")
        return text

    def expect(self, text):
        got = self.next()
        if got != text:
            self.fail(f"expected '{text}', found '{got}'")

    def accept(self, text):
        if self.peek() != text:
            return False
        self.next()
        return True

    def identifier(self, what):
        name = self.next("word")
        if name in C_KEYWORDS:
            self.fail(f"'{name}' is a C keyword and cannot name a {what}: choose another name")
        return name

    def value(self):
        text = self.next()
        if re.match(r"-?[0-9]", text):
            return int(text, 0)
        if text not in self.m.consts:
            self.fail(f"'{text}' is not a number or a constant defined above")
        return self.m.consts[text]

    def define_const(self, name, value):
        if name in self.m.consts:
            self.fail(f"'{name}' is defined twice")
        if not -(1 << 31) <= value < 1 << 64:
            self.fail(f"'{name}' does not fit 64 bits")
        self.m.consts[name] = value

    def define_name(self, what):
        name = self.identifier(what)
        if name in self.m.names or name in SCALARS:
            self.fail(f"'{name}' is defined twice")
        self.m.names.add(name)
        return name

    def parse(self):
        while self.at < len(self.tokens):
            word = self.next("word")
            if word == "const":
                self.const()
            elif word == "enum":
                self.enum()
            elif word == "struct":
                self.struct()
            elif word == "union":
                self.union()
            elif word == "typedef":
                self.typedef()
            else:
                self.fail(f"expected const, enum, struct, union or typedef, found '{word}'")

    def const(self):
        name = self.identifier("constant")
        self.expect("=")
        self.define_const(name, self.value())
        self.expect(";")
        self.m.items.append(("const", name, self.m.consts[name]))

    def enum(self):
        name, rows, seen = self.define_name("enum"), [], set()
        self.expect("{")
        while not self.accept("}"):
            row = self.identifier("constant")
            self.expect("=")
            value = self.value()
            if not 0 <= value < 1 << 31:
                self.fail(f"the value of '{row}' is not within 0..2^31-1")
            if value in seen:
                self.fail(f"the value of '{row}' is used twice in enum {name}")
            self.define_const(row, value)
            seen.add(value)
            rows.append((row, value))
            if not self.accept(","):
                self.expect("}")
                break
        self.expect(";")
        if not rows:
            self.fail(f"enum {name} has no constants")
        self.m.enums[name] = sorted(seen)
        self.m.items.append(("enum", name, rows))

    def typedef(self):
        mb = self.member()
        if mb.name in self.m.names or mb.name in SCALARS:
            self.fail(f"'{mb.name}' is defined twice")
        self.m.names.add(mb.name)
        self.m.typedefs[mb.name] = mb

    def union(self):
        name, arms, seen = self.define_name("union"), [], set()
        if self.next() != "switch":
            self.fail(f"union {name} needs a switch")
        self.expect("(")
        tag = Member("one", self.type_name(), self.identifier("member"), 0)
        if tag.type != "unsigned int" and tag.type not in self.m.enums:
            self.fail(f"union {name} is switched by '{tag.type}'; it must be an enum or unsigned int")
        self.expect(")")
        self.expect("{")
        while not self.accept("}"):
            arms.append(self.arm(tag, seen))
        self.expect(";")
        names = [c for _, mb in arms if mb.kind != "void" for c in c_names(mb)] + [tag.name]
        if len(set(names)) < len(names):
            self.fail(f"union {name} has two members of one name")
        if not seen:
            self.fail(f"union {name} has no cases")
        self.m.structs[name] = 4 + min(min_size(self.m, mb) for _, mb in arms)
        self.m.switched.add(name)
        self.m.items.append(("union", name, Union(tag, arms)))

    def arm(self, tag, seen):
        """case A: case B: MEMBER, or default: MEMBER"""
        cases = []
        if self.accept("default"):
            self.expect(":")
            cases = None
        while cases is not None and self.accept("case"):
            text = self.peek()
            value = self.value()
            if value in seen:
                self.fail(f"case {text} is there twice")
            if tag.type in self.m.enums and value not in self.m.enums[tag.type]:
                self.fail(f"case {text} is not a value of enum {tag.type}")
            seen.add(value)
            cases.append((text, value))
            self.expect(":")
        if cases == []:
            self.fail(f"expected case or default, found '{self.peek()}'")
        if self.accept("void"):
            self.expect(";")
            return cases, Member("void", None, None, 0)
        return cases, self.member()

    def struct(self):
        name, members = self.define_name("struct"), []
        self.expect("{")
        while not self.accept("}"):
            members.append(self.member())
        self.expect(";")
        names = [c for mb in members for c in c_names(mb)]
        for c in names:
            if names.count(c) > 1:
                self.fail(f"struct {name} has two members '{c}'")
        if not members:
            self.fail(f"struct {name} has no members")
        self.m.structs[name] = sum(min_size(self.m, mb) for mb in members)
        if any(mb.kind in ("one", "vector") and is_switched(self.m, mb.type) for mb in members):
            self.m.switched.add(name)
        self.m.items.append(("struct", name, members))

    def type_name(self):
        name = self.next("word")
        return name + " " + self.next("word") if name == "unsigned" else name

    def member(self):
        type_name = self.type_name()
        if type_name in ("opaque", "string"):
            return self.blob(type_name)
        is_list = type_name == "list"
        if is_list:
            type_name = self.type_name()
        alias = self.m.typedefs.get(type_name)
        if alias and alias.kind != "one":
            if is_list:
                self.fail(f"a list of '{type_name}' needs a struct around it")
            name = self.identifier("member")
            self.expect(";")
            return Member(alias.kind, alias.type, name, alias.bound)
        type_name = alias.type if alias else type_name
        if type_name not in SCALARS and type_name not in self.m.structs and type_name not in self.m.enums:
            self.fail(f"'{type_name}' is not a type; types must be defined before their use")
        kind, bound = ("optional" if self.accept("*") else "one"), 0
        name = self.identifier("member")
        if is_list:
            self.expect("<")
            kind, bound = "list", self.bound(">")
        elif kind == "one" and self.accept("<"):
            kind, bound = "array", self.bound(">")
        elif kind == "one" and self.accept("["):
            kind, bound = "vector", self.bound("]")
        self.expect(";")
        return Member(kind, type_name, name, bound)

    def blob(self, type_name):
        name = self.identifier("member")
        if type_name == "opaque" and self.accept("["):
            kind, bound = "fixed", self.bound("]")
        elif self.accept("<"):
            kind, bound = ("bytes" if type_name == "opaque" else "text"), self.bound(">")
        else:
            self.fail(f"{type_name} {name} needs a bound: {type_name} {name}<N>")
        self.expect(";")
        return Member(kind, type_name, name, bound)

    def bound(self, close):
        if self.peek() == close:
            self.fail("a bound is missing: unbounded lengths are not allowed")
        n = self.value()
        if not 0 < n < 1 << 31:
            self.fail(f"bound {n} is not within 1..2^31-1")
        self.expect(close)
        return n


def c_names(mb):
    return [mb.name, "n_" + mb.name] if mb.kind in ("array", "list") else [mb.name]


def is_switched(m, type_name):
    return type_name in m.switched or type_name in m.enums


def element_size(m, type_name):
    if type_name in m.enums:
        return 4
    return SCALARS[type_name][2] if type_name in SCALARS else m.structs[type_name]


def min_size(m, mb):
    """Fewest bytes that a member takes on the wire."""
    if mb.kind == "one":
        return element_size(m, mb.type)
    if mb.kind == "vector":
        return element_size(m, mb.type) * mb.bound
    if mb.kind == "fixed":
        return (mb.bound + 3) // 4 * 4
    return 0 if mb.kind == "void" else 4  # a count of zero


def c_type(m, type_name):
    if type_name in m.enums:
        return "uint32_t"
    return SCALARS[type_name][0] if type_name in SCALARS else f"struct wire_{type_name}"


def filter_of(type_name):
    return SCALARS[type_name][1] if type_name in SCALARS else f"xdr_wire_{type_name}"


def c_const(name, value):
    if -(1 << 31) <= value < 1 << 31:
        return f"enum {{ {name} = {value} }};"
    macro = "UINT32_C" if value < 1 << 32 else "UINT64_C"
    return f"#define {name} {macro}({value:#x})"


def c_member(m, mb):
    if mb.kind == "one":
        return f"{c_type(m, mb.type)} {mb.name};"
    if mb.kind == "optional":
        return f"{c_type(m, mb.type)} *{mb.name}; /* or NULL */"
    if mb.kind == "vector":
        return f"{c_type(m, mb.type)} {mb.name}[{mb.bound}];"
    if mb.kind in ("array", "list"):
        return f"uint32_t n_{mb.name}; /* at most {mb.bound} */\n\t{c_type(m, mb.type)} *{mb.name};"
    if mb.kind == "fixed":
        return f"uint8_t {mb.name}[{mb.bound}];"
    return f"struct wire_bytes {mb.name}; /* at most {mb.bound} */"


def c_union(m, u):
    arms = [mb for _, mb in u.arms if mb.kind != "void"]
    out = f"\t{c_member(m, u.tag)}\n"
    if arms:
        out += "\tunion {\n"
        for mb in arms:
            text = c_member(m, mb)
            out += f"\tstruct {{\n\t{text}\n\t}};\n" if mb.kind in ("array", "list") else f"\t{text}\n"
        out += "\t};\n"
    return out


def header(m, stem, source, imports):
    guard = f"SHEAF_GEN_{stem.upper()}_H"
    out = [f"/* Generated by tools/xdrgen.py from {source}; do not edit. Include \"xdr/xdr.h\". */",
           f"#ifndef {guard}", f"#define {guard}", ""]
    out += [f"#include \"xdr/gen/{i}.h\"" for i in imports]
    for kind, name, what in m.items:
        if kind == "const":
            out += [c_const(name, what)]
        elif kind == "enum":
            rows = "".join(f"\t{row} = {value},\n" for row, value in what)
            out += ["", f"enum wire_{name} {{\n{rows}}};", f"const char *wire_{name}_name(uint32_t v);",
                    f"bool xdr_wire_{name}(struct xdr *x, uint32_t *v);", ""]
        else:
            rows = c_union(m, what) if kind == "union" else "".join(f"\t{c_member(m, mb)}\n" for mb in what)
            out += ["", f"struct wire_{name} {{\n{rows}}};",
                    f"bool xdr_wire_{name}(struct xdr *x, struct wire_{name} *v);", ""]
    return "\n".join(out + ["", "#endif", ""])


def filter_lines(m, mb):
    """The statements that move one member."""
    f, name = filter_of(mb.type) if mb.kind in OF_TYPE else "", f"v->{mb.name}"
    if mb.kind == "one":
        return [f"if (!{f}(x, &{name}))", "\treturn false;"]
    if mb.kind == "vector":
        return [f"for (uint32_t i = 0; i < {mb.bound}; i++)", f"\tif (!{f}(x, &{name}[i]))",
                "\t\treturn false;"]
    if mb.kind == "array":
        return [f"items = {name};",
                f"if (!xdr_array(x, &v->n_{mb.name}, &items, {mb.bound}, {element_size(m, mb.type)},"
                f" sizeof(*{name})))", "\treturn false;", f"{name} = items;",
                f"for (uint32_t i = 0; i < v->n_{mb.name}; i++)", f"\tif (!{f}(x, &{name}[i]))",
                "\t\treturn false;"]
    if mb.kind == "optional":
        return [f"items = {name};", f"if (!xdr_optional(x, &items, sizeof(*{name})))", "\treturn false;",
                f"{name} = items;", f"if (items && !{f}(x, {name}))", "\treturn false;"]
    if mb.kind == "list":
        return [f"items = {name};",
                f"for (uint32_t i = 0; xdr_list(x, i, &v->n_{mb.name}, &items, {mb.bound}, sizeof(*{name}));"
                " i++) {", f"\t{name} = items;", f"\tif (!{f}(x, &{name}[i]))", "\t\treturn false;", "}",
                "if (x->failed)", "\treturn false;"]
    if mb.kind == "void":
        return []
    call = {"fixed": f"xdr_fixed(x, {name}, {mb.bound})", "bytes": f"xdr_bytes(x, &{name}, {mb.bound})",
            "text": f"xdr_text(x, &{name}, {mb.bound})"}[mb.kind]
    return [f"if (!{call})", "\treturn false;"]


def needs_items(members):
    return any(mb.kind in ("array", "optional", "list") for mb in members)


def source_struct(m, name, members):
    out = [f"bool xdr_wire_{name}(struct xdr *x, struct wire_{name} *v)", "{"]
    if needs_items(members):
        out += ["\tvoid *items;", ""]
    for mb in members:
        out += ["\t" + line for line in filter_lines(m, mb)]
    return out + ["\treturn true;", "}", ""]


def source_union(m, name, u):
    out = [f"bool xdr_wire_{name}(struct xdr *x, struct wire_{name} *v)", "{"]
    if needs_items([mb for _, mb in u.arms]):
        out += ["\tvoid *items;", ""]
    out += ["\t" + line for line in filter_lines(m, u.tag)] + [f"\tswitch (v->{u.tag.name}) {{"]
    for cases, mb in u.arms:
        out += ["\tdefault:"] if cases is None else [f"\tcase {text}:" for text, _ in cases]
        out += ["\t\t" + line for line in filter_lines(m, mb)] + ["\t\treturn true;"]
    if all(cases is not None for cases, _ in u.arms):
        out += ["\tdefault:", "\t\treturn false;"]
    return out + ["\t}", "}", ""]


def source_enum(name, rows):
    out = [f"const char *wire_{name}_name(uint32_t v)", "{", "\tswitch (v) {"]
    for row, _ in rows:
        text = (row.split("_", 1)[1] if "_" in row else row).lower()
        out += [f"\tcase {row}:", f"\t\treturn \"{text}\";"]
    out += ["\tdefault:", "\t\treturn \"?\";", "\t}", "}", ""]
    out += [f"bool xdr_wire_{name}(struct xdr *x, uint32_t *v)", "{", "\tif (!xdr_u32(x, v))",
            "\t\treturn false;", "\tswitch (*v) {"]
    return out + [f"\tcase {row}:" for row, _ in rows] + ["\t\treturn true;", "\tdefault:", "\t\treturn false;",
                                                          "\t}", "}", ""]


def source(m, source_name):
    out = [f"/* Generated by tools/xdrgen.py from {source_name}; do not edit. */",
           "#include \"xdr/xdr.h\"", "", f"#include \"xdr/gen/{stem_of(source_name)}.h\"", ""]
    for kind, name, what in m.items:
        if kind == "struct":
            out += source_struct(m, name, what)
        elif kind == "union":
            out += source_union(m, name, what)
        elif kind == "enum":
            out += source_enum(name, what)
    return "\n".join(out)


def stem_of(path):
    return os.path.splitext(os.path.basename(path))[0]


def write(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def load(imports, path):
    """Parses a file and what it imports; raises Bad or OSError."""
    m = Module()
    for i in imports:
        Parser(i, m).parse()
    m.items = []
    Parser(path, m).parse()
    return m


def arguments(description):
    ap = argparse.ArgumentParser(description=description)
    ap.add_argument("--import", dest="imports", action="append", default=[], metavar="FILE.x",
                    help="a file whose types may be used")
    ap.add_argument("--out", required=True, metavar="DIR", help="where the generated files go")
    ap.add_argument("file", metavar="FILE.x")
    return ap.parse_args()


def main():
    args = arguments("generates bounded XDR filters in C from a .x file")
    try:
        m = load(args.imports, args.file)
    except (Bad, OSError) as e:
        print(f"xdrgen: {e}", file=sys.stderr)
        return 1
    os.makedirs(args.out, exist_ok=True)
    stem, name = stem_of(args.file), os.path.basename(args.file)
    write(os.path.join(args.out, stem + ".h"), header(m, stem, name, [stem_of(i) for i in args.imports]))
    write(os.path.join(args.out, stem + ".c"), source(m, name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
