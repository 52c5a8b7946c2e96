#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Prints the table of what scripts/bench-rounds.sh has measured.

Usage: bench-table.py client|server FILE [--document FILE]

A ratio is that of a module's figure to the mean of C's before and after it; that of C, to C's before. Shown are the
medians, and within which distance they are with a probability of 95 % (McGill, Tukey and Larsen 1978).
"""

import argparse
import collections
import os
import pathlib
import platform
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "selftests/lib"))
import rst  # noqa: E402


def ratios(figures, kind):
    """The ratio of each round, of figures by round and kind."""
    for (number, of), figure in figures.items():
        before, after = figures.get((number - 1, "c")), figures.get((number, "c"))
        if of == kind and before and after:
            yield figure / before if kind == "c" else 2 * figure / (before + after)


def cells(values):
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return [f"{median:.3f}", f"{1.57 * (high - low) / len(values) ** 0.5:.3f}"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=("client", "server"))
    parser.add_argument("samples", type=pathlib.Path)
    parser.add_argument("--document", type=pathlib.Path)
    options = parser.parse_args()
    operations, kinds, loads = collections.defaultdict(dict), {}, []
    for line in options.samples.read_text().splitlines():
        number, kind, time, cpu, load, operation = line.split(maxsplit=5)
        kinds[kind] = None
        loads.append(float(load))
        for what, figure in ("time, µs", time), (f"{options.role} CPU, µs", cpu):
            operations[operation, what][int(number), kind] = int(figure) / 1000
    # C first when it is measured, last when it is shown.
    kinds = [*list(kinds)[1:], "c"]
    rows, shown = [], ""
    for (operation, what), figures in operations.items():
        of_c = statistics.median(figure for (_, kind), figure in figures.items() if kind == "c")
        compared = [cell for kind in kinds for cell in cells(list(ratios(figures, kind)))]
        rows.append([operation if operation != shown else "", what, f"{of_c:,.1f}", *compared])
        shown = operation
    head = [cell for kind in kinds for cell in (f"{kind.capitalize()}/C", "±")]
    model = next((l for l in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if l.startswith("model name")), ":")
    lines = [
        f"{model.split(':')[1].strip()}, {os.cpu_count()} CPUs, Linux {platform.release().partition('-')[0]};",
        f"{max(number for number, _ in figures)} rounds, load of the machine {min(loads)} to {max(loads)}, "
        f"in the median {statistics.median(loads):.1f}.",
        "",
        *rst.simple_table(["RPC", "figure", "C", *head], rows),
    ]
    print("\n".join([f"The {options.role}:", *lines]))
    if options.document:
        rst.put(options.document, f"bench-{options.role}", lines)


if __name__ == "__main__":
    main()
