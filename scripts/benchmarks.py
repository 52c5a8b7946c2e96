#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Makes a page of what make cost and make bench have measured last.

Usage: benchmarks.py BUILD PAGE

BUILD is the folder in which these have left their samples. A bar shows each ratio; the line is C.
"""

import html
import pathlib
import sys

import bench_table

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "selftests/cost"))
import report  # noqa: E402

STYLE = """body { font-family: sans-serif; max-width: 64em; margin: 2em auto }
table { border-collapse: collapse } td, th { padding: .1em .6em; text-align: right }
td:first-child, td:nth-child(2), th { text-align: left }
svg { vertical-align: middle } rect { fill: #48c } .more { fill: #c64 } line { stroke: black }"""

# Functions that are shown of each RPC.
SHOWN = 12


def bar(ratio):
    """A ratio as a bar, up to twice that of C."""
    width = min(ratio, 2) * 60
    kind = "more" if ratio > 1.02 else "less"
    return (
        f'<svg width="120" height="10"><rect class="{kind}" width="{width:.0f}" height="10"/>'
        '<line x1="60" x2="60" y2="10"/></svg>'
    )


def table(head, rows):
    """The cells of a row are text, but for those that begin with <svg."""
    yield "<table><tr>" + "".join(f"<th>{html.escape(cell)}</th>" for cell in head) + "</tr>"
    for row in rows:
        cells = (cell if cell.startswith("<svg") else html.escape(cell) for cell in row)
        yield "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
    yield "</table>"


def bench(role, samples):
    machine, head, rows = bench_table.measured(role, samples)
    yield f"<h2>Time and CPU, {role}</h2><p>{html.escape(machine)}</p>"
    yield from table([*head, ""], [[*row, bar(float(row[3]))] for row in rows])


def cost(role, folder):
    kinds = {path.parent.name: report.load(path.parent) for path in sorted(folder.glob("*/names"))}
    rows, lists = [], []
    for name in next(iter(kinds.values())):
        columns = [report.rows_of(role, stretches[name]) for stretches in kinds.values()]
        label = name
        for what in columns[0]:
            row = [column[what] for column in columns]
            if max(row) >= 0.005:
                ratio = report.ratio_of(row)
                figures = (f"{figure:,.2f}" for figure in row)
                rows.append([label, what, *figures, ratio, bar(float(ratio)) if ratio else ""])
                label = ""
        for kind, stretches in kinds.items():
            functions = report.functions(stretches[name], role, SHOWN)
            lists.append([name, report.title(kind), ", ".join(f"{n} {count:.0f}" for n, count in functions)])
    yield f"<h2>What RPCs cost, {folder.name.partition('-cost-')[2]}</h2>"
    yield from table(["RPC", "for one RPC", *map(report.title, kinds), "ratio", ""], rows)
    yield "<details><summary>The functions that run most instructions of the transport</summary>"
    yield from table(["RPC", "", "instructions"], lists)
    yield "</details>"


def main():
    build, page = map(pathlib.Path, sys.argv[1:])
    parts = []
    for role in ("client", "server"):
        for samples in build.glob(f"*-bench/{role}"):
            parts += bench(role, samples)
    for role in ("client", "server"):
        for folder in sorted(build.glob(f"*-cost-{role}*")):
            parts += cost(role, folder)
    if not parts:
        raise SystemExit(f"nothing was measured yet: {build} has no samples. Run make bench or make cost first.")
    head = f'<!DOCTYPE html><meta charset="utf-8"><title>rpcrdma benchmarks</title><style>{STYLE}</style>'
    page.write_text("\n".join([head, "<h1>This module beside the kernel's own</h1>", *parts, ""]))
    print(page)


if __name__ == "__main__":
    main()
