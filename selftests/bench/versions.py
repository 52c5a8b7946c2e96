#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The table of what selftests/long/versions.sh has counted and timed.

Usage: versions.py OUTPUT [--document FILE]

--document puts the table into FILE, in the place of the table of versions.

A ratio of rates is that of each round to the round of Version One with the same size of messages
beside it, and for that one itself, to its round before: what the machine alone does to a rate.
"""

import argparse
import pathlib
import statistics
import sys

import report

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "lib"))
import rst  # noqa: E402

DIALECTS = {"one-1024": "One, 1024", "one-4096": "One, 4096", "two-4096": "Two, 4096"}
BASE = "one-4096"
WORKLOADS = {
    "create_files": "create 1,000 files",
    "open_files": "open 1,000 files",
    "stat_files": "stat 1,000 files",
    "read_folder": "readdir, 3,000 entries",
    "link_files": "make 500 links, 2,000 bytes",
    "follow_links": "read 500 links",
    "unlink_files": "unlink all of them",
}
HEAD = [
    "workload",
    "version, bytes",
    "RPCs",
    "Read chunks",
    "long Calls",
    "Reply chunks",
    "used",
    "RPCs/s",
    "ratio",
    "quartiles",
]


def counts_of(runs):
    """RPCs and what they took, means of the rounds."""
    _, inline, read, long_calls, reply, used = map(statistics.mean, zip(*runs))
    return inline + read + long_calls, read, long_calls, reply, used


def rates_of(runs):
    """RPCs in a second, of each round."""
    return [sum(counts[:3]) * 1e6 / microseconds for microseconds, *counts in runs]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--document", type=pathlib.Path)
    options = parser.parse_args()
    samples, loads, kernel = {}, [], ""
    for line in options.output.read_text().splitlines():
        match line.removeprefix("# ").split():
            case ["figures", dialect, workload, *figures]:
                samples.setdefault((workload, dialect), []).append([int(figure) for figure in figures])
            case ["load", load]:
                loads.append(float(load))
            case ["release", kernel]:
                pass
    rows = []
    for workload, title in WORKLOADS.items():
        missing = [dialect for dialect in DIALECTS if (workload, dialect) not in samples]
        if missing:
            raise SystemExit(f"versions.py: {options.output} has no {workload} with {', '.join(missing)}")
        base = rates_of(samples[workload, BASE])
        for dialect, name in DIALECTS.items():
            runs = samples[workload, dialect]
            rates = rates_of(runs)
            if dialect == BASE:
                ratios = [rate / before for before, rate in zip(base, base[1:])]
            else:
                ratios = [rate / beside for rate, beside in zip(rates, base)]
            median, low, high = report.spread(ratios)
            rows.append(
                [
                    title,
                    name,
                    *(f"{count:,.0f}" for count in counts_of(runs)),
                    report.number(statistics.median(rates)),
                    f"{median:.3f}",
                    f"{low:.2f}-{high:.2f}",
                ]
            )
            title = ""
    pairs = len(samples[next(iter(WORKLOADS)), BASE])
    lines = report.about(report.machine(kernel, loads), [pairs]) + rst.simple_table(HEAD, rows)
    print("\n".join(lines))
    if options.document:
        rst.put(options.document, "versions", lines)


if __name__ == "__main__":
    main()
