#!/usr/bin/env python3
"""Generates what the tests of the XDR filters need: takes the arguments of xdrgen.py, writes
DIR/FILE_test.h with, for each struct s of FILE.x,

    fill_s(struct fill *, struct wire_s *)     random content within the bounds
    same_s(const struct wire_s *, ...)         whether two hold the same

a table of all structs, and a table of all bounded members with their place in an empty message.
The header expects tests/unit/xdr_fill.h before it.
"""
import os
import sys

import xdrgen

FILL = {"int": "(int32_t)fill_u64(f)", "unsigned int": "(uint32_t)fill_u64(f)",
        "hyper": "(int64_t)fill_u64(f)", "unsigned hyper": "fill_u64(f)", "bool": "fill_u64(f) & 1"}


def fill_one(type_name, place):
    """`place` is an lvalue; an enum has a fill function, since its values are few."""
    if type_name in FILL:
        return f"{place} = {FILL[type_name]};"
    return f"fill_{type_name}(f, &{place});"


def same_one(m, type_name, place):
    if type_name in FILL or type_name in m.enums:
        return f"a->{place} == b->{place}"
    return f"same_{type_name}(&a->{place}, &b->{place})"


def fill_member(mb):
    name = f"v->{mb.name}"
    if mb.kind == "one":
        return [fill_one(mb.type, name)]
    if mb.kind == "vector":
        return [f"for (uint32_t i = 0; i < {mb.bound}; i++)", "\t" + fill_one(mb.type, name + "[i]")]
    if mb.kind == "optional":
        return [f"{name} = fill_u64(f) & 1 ? fill_alloc(f, sizeof(*{name})) : NULL;", f"if ({name})",
                "\t" + fill_one(mb.type, f"(*{name})")]
    if mb.kind == "void":
        return []
    if mb.kind in ("array", "list"):
        return [f"v->n_{mb.name} = fill_len(f, {mb.bound});",
                f"{name} = fill_alloc(f, v->n_{mb.name} * sizeof(*{name}));",
                f"for (uint32_t i = 0; i < v->n_{mb.name}; i++)", "\t" + fill_one(mb.type, name + "[i]")]
    if mb.kind == "fixed":
        return [f"fill_raw(f, {name}, {mb.bound});"]
    return [f"fill_{mb.kind}(f, &{name}, {mb.bound});"]


def same_member(m, mb):
    if mb.kind == "one":
        return [f"if (!({same_one(m, mb.type, mb.name)}))", "\treturn false;"]
    if mb.kind == "optional":
        return [f"if (!a->{mb.name} != !b->{mb.name})", "\treturn false;", f"if (a->{mb.name} &&",
                f"    !({same_one(m, mb.type, mb.name + '[0]')}))", "\treturn false;"]
    if mb.kind == "void":
        return []
    if mb.kind in ("vector", "array", "list"):
        n = mb.bound if mb.kind == "vector" else f"a->n_{mb.name}"
        head = [] if mb.kind == "vector" else [f"if (a->n_{mb.name} != b->n_{mb.name})", "\treturn false;"]
        return head + [f"for (uint32_t i = 0; i < {n}; i++)",
                       f"\tif (!({same_one(m, mb.type, mb.name + '[i]')}))", "\t\treturn false;"]
    if mb.kind == "fixed":
        return [f"if (memcmp(a->{mb.name}, b->{mb.name}, {mb.bound}) != 0)", "\treturn false;"]
    return [f"if (!same_bytes(&a->{mb.name}, &b->{mb.name}))", "\treturn false;"]


def union_lines(u, of):
    """A switch over the arms of a union; of(member) are the lines of one."""
    out = [f"switch (v->{u.tag.name}) {{"]
    for cases, mb in u.arms:
        out += ["default:"] if cases is None else [f"case {text}:" for text, _ in cases]
        out += ["\t" + line for line in of(mb)] + ["\tbreak;"]
    return out + ["}"]


def fill_lines(m, kind, what):
    if kind == "struct":
        return [line for mb in what for line in fill_member(mb)]
    known = m.enums.get(what.tag.type) or [value for cases, _ in what.arms for _, value in cases or []]
    if all(cases is not None for cases, _ in what.arms):
        known = [value for cases, _ in what.arms for _, value in cases]
    values = ", ".join(str(value) for value in known)
    return [f"static const uint32_t tags[] = {{ {values} }};", "",
            f"v->{what.tag.name} = tags[fill_u64(f) % ARRAY_LEN(tags)];"] + union_lines(what, fill_member)


def same_lines(m, kind, what):
    if kind == "struct":
        return [line for mb in what for line in same_member(m, mb)]
    return ["const __typeof__(*a) *v = a;", ""] + same_member(m, what.tag) + \
        union_lines(what, lambda mb: same_member(m, mb))


def functions(m, kind, name, what):
    out = [f"static inline void fill_{name}(struct fill *f, struct wire_{name} *v)", "{"]
    out += ["\t" + line for line in fill_lines(m, kind, what)]
    out += ["}", "", f"static inline bool same_{name}(const struct wire_{name} *a, const struct wire_{name} *b)",
            "{"]
    out += ["\t" + line for line in same_lines(m, kind, what)]
    return out + ["\treturn true;", "}", "",
                  f"WIRE_CASE({name})", ""]


def fill_enum(name, rows):
    values = ", ".join(row for row, _ in rows)
    return [f"static inline void fill_{name}(struct fill *f, uint32_t *v)", "{",
            f"\tstatic const uint32_t values[] = {{ {values} }};", "",
            "\t*v = values[fill_u64(f) % ARRAY_LEN(values)];", "}", ""]


def bounds(m, name, members):
    """Rows of the table of bounds: where the count stands when all before it is empty."""
    at = 0
    if name in m.switched:
        return  # zeros need not be a message
    for mb in members:
        if mb.kind in ("array", "bytes", "text"):
            size = xdrgen.element_size(m, mb.type) if mb.kind == "array" else 1
            yield (f"\t{{ \"{name}.{mb.name}\", case_xdr_{name}, sizeof(struct wire_{name}), {at}, "
                   f"{m.structs[name]}, {mb.bound}, {size}, {str(mb.kind == 'text').lower()} }},")
        at += xdrgen.min_size(m, mb)


def main():
    args = xdrgen.arguments("generates what the tests of the XDR filters need")
    try:
        m = xdrgen.load(args.imports, args.file)
    except (xdrgen.Bad, OSError) as e:
        print(f"xdrgen_test: {e}", file=sys.stderr)
        return 1
    stem = xdrgen.stem_of(args.file)
    structs = [(kind, name, what) for kind, name, what in m.items if kind in ("struct", "union")]
    out = [f"/* Generated by tools/xdrgen_test.py from {stem}.x; do not edit. */",
           f"#ifndef SHEAF_GEN_{stem.upper()}_TEST_H", f"#define SHEAF_GEN_{stem.upper()}_TEST_H", ""]
    out += [f"#include \"xdr/gen/{xdrgen.stem_of(i)}_test.h\"" for i in args.imports]
    for kind, name, what in m.items:
        if kind == "enum":
            out += fill_enum(name, what)
        elif kind != "const":
            out += functions(m, kind, name, what)
    out += [f"static const struct wire_case cases_{stem}[] = {{"]
    out += [f"\t{{ \"{name}\", sizeof(struct wire_{name}), {m.structs[name]}, case_xdr_{name}, case_fill_{name}, "
            f"case_same_{name} }}," for _, name, _ in structs]
    out += ["};", "", f"static const struct wire_bound bounds_{stem}[] = {{"]
    out += [row for kind, name, what in structs if kind == "struct" for row in bounds(m, name, what)]
    out += ["};", "", "#endif", ""]
    os.makedirs(args.out, exist_ok=True)
    xdrgen.write(os.path.join(args.out, stem + "_test.h"), "\n".join(out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
