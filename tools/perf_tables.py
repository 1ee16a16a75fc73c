#!/usr/bin/env python3
"""Turns runs of `sheaf bench all` into docs/figures.md.

    perf_tables.py DIR [--doc FILE]   writes FILE (docs/figures.md) from DIR/memory/bench.json and
                                      DIR/disk/bench.json (what `make bench` writes)
    perf_tables.py --index DIR        writes DIR/index.html, which links the two reports

FILE is overwritten as a whole: text about the figures belongs in docs/performance.md.
"""
import argparse
import json
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RUNS = (("memory", "in memory"), ("disk", "on disk"))
SENSE = {"higher": "at least", "lower": "at most", "exact": "exactly"}
UNITS = {"us": "µs", "1/s": "/s"}


def number(v):
    if v >= 1000:
        return f"{v:,.0f}"
    return f"{v:.{1 if v >= 100 else 2 if v >= 1 else 3}f}"


def size(n):
    for unit, text in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if n >= unit and n % unit == 0:
            return f"{n // unit} {text}"
    return f"{n} B"


def table(head, rows):
    yield "| " + " | ".join(head) + " |"
    yield "|" + "|".join("---" for _ in head) + "|"
    for r in rows:
        yield "| " + " | ".join(r) + " |"


def row_name(r):
    parts = [r["case"]]
    if "pieces" in r:
        parts.append(f'{r["pieces"]:,} × {size(r["bytes"])}')
    elif "bytes" in r:
        parts.append(size(r["bytes"]))
    if "clients" in r:
        parts.append(f'{r["clients"]} client{"" if r["clients"] == 1 else "s"}')
    return ", ".join(parts)


def hosts(c):
    if c.get("hosts", 1) == 1:
        return ""
    return f' between {c["hosts"]} network namespaces' + "".join(f", {k} {c[k]}" for k in ("rate", "delay") if c[k])


def conditions(runs):
    c = runs[0][1]["conditions"]
    m = c["machine"]
    yield (f'{m["cpu"] or m["arch"]}, {m["cores"]} cores, {m["memory_bytes"] / 2**30:.0f} GiB, Linux {m["kernel"]}; '
           f'{c["servers"]} servers and all clients on this machine, over {c["backend"]}{hosts(c)}; {c["rounds"]} rounds; '
           f'{c["date"][:10]}. Storage: '
           + "; ".join(f'{name}: {r["conditions"]["storage"]["filesystem"]}' for name, r in runs) + ".")


def bars(runs):
    names = []
    for _, r in runs:
        names += [n for n in r["bars"] if n not in names]
    rows = []
    for n in names:
        need, cells = "", []
        for _, r in runs:
            bar = r["bars"].get(n)
            row = next((x for x in r["rows"] if x["case"] == n), None)
            if not bar or not row:
                cells.append("–")
                continue
            need = f'{SENSE[row["better"]]} {bar["need"]:g}'
            mark = "" if bar["ok"] else " ✗"
            cells.append(f'{number(bar["value"])} ({number(row["min"])} – {number(row["max"])}){mark}')
        rows.append([f"`{n}`", need] + cells)
    yield from table(["figure", "needed"] + [name for name, _ in runs], rows)


def is_mover(r):
    return r["bench"] == "transfer" and "of" not in r and r["unit"] == "GB/s"


def movers(runs):
    """A line a point, a column an alternative; the ideal has no pattern and stands beside each."""
    for name, run in runs:
        points, ideal, ways = {}, {}, []
        for r in filter(is_mover, run["rows"]):
            what, way = r["case"].split(": ")
            point = (what, r["pieces"], r["bytes"], r["clients"])
            if " " not in what:
                ideal[point] = r["median"]
                continue
            points.setdefault(point, {})[way] = r["median"]
            ways += [way] if way not in ways else []
        rows = [[f"{what}, {n:,} × {size(b)}" + (f", {c} clients" if c > 1 else "")] + [number(v[w]) for w in ways]
                + [number(ideal[what.split()[0], n, b, c])] for (what, n, b, c), v in sorted(points.items())]
        yield f"GB/s, {name}:"
        yield ""
        yield from table(["segments"] + ways + ["contiguous"], rows)
        yield ""


def figures(runs):
    """One table a benchmark: what was measured, not what was derived."""
    first = runs[0][1]["rows"]
    for bench in dict.fromkeys(r["bench"] for r in first):
        yield f"**{bench}**"
        yield ""
        if bench == "transfer":
            yield from movers(runs)
        keys = dict.fromkeys((row_name(r), r["unit"]) for _, run in runs for r in run["rows"]
                             if r["bench"] == bench and "of" not in r and not is_mover(r))
        rows = []
        for key in keys:
            cells = []
            for _, run in runs:
                r = next((x for x in run["rows"] if x["bench"] == bench and (row_name(x), x["unit"]) == key), None)
                cells.append(number(r["median"]) if r else "–")
            rows.append([key[0]] + cells + [UNITS.get(key[1], key[1])])
        yield from table(["case"] + [name for name, _ in runs] + ["unit"], rows)
        yield ""


def page(of_conditions, of_bars, of_figures):
    """The whole file, from the texts of its three parts."""
    return f"""# Figures

Generated by `tools/perf_tables.py` from a run of `make bench`: do not edit. [performance.md](performance.md) says how
the figures are measured, what each of them is, and which of them to read with care.

{of_conditions}

## Bars

Median over the rounds (lowest – highest); ✗ marks what misses its bar.

{of_bars}

## All cases

Medians. A dash: does not apply to this storage.

{of_figures}
"""


def write_index(folder):
    links = "".join(f'<li><a href="{run}/index.html">Storage {name}</a></li>\n' for run, name in RUNS
                    if os.path.exists(os.path.join(folder, run, "index.html")))
    path = os.path.join(folder, "index.html")
    with open(path, "w", encoding="utf-8") as f:
        f.write('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
                '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
                "<title>Sheaf benchmarks</title>\n<style>body{font:18px/1.6 system-ui,sans-serif;"
                "max-width:40rem;margin:1rem auto;padding:0 1rem}</style></head>\n"
                f"<body><h1>Sheaf benchmarks</h1>\n<ul>\n{links}</ul></body></html>\n")
    print(f"the reports are linked from {path}")


def main():
    ap = argparse.ArgumentParser(description="benchmark runs -> markdown tables")
    ap.add_argument("dir", help="folder with memory/bench.json and disk/bench.json")
    ap.add_argument("--doc", default=os.path.join(ROOT, "docs", "figures.md"))
    ap.add_argument("--index", action="store_true", help="write DIR/index.html instead")
    args = ap.parse_args()
    if args.index:
        return write_index(args.dir)
    runs = []
    for run, name in RUNS:
        path = os.path.join(args.dir, run, "bench.json")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                runs.append((name, json.load(f)))
    if not runs:
        sys.exit(f"perf_tables.py: no bench.json below {args.dir}; run make bench")
    parts = ("\n".join(make(runs)).strip("\n") for make in (conditions, bars, figures))
    with open(args.doc, "w", encoding="utf-8") as f:
        f.write(page(*parts))


if __name__ == "__main__":
    main()
