#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Prints the table of what scripts/bench-rounds.sh has measured.

Usage: bench_table.py client|server FILE

A ratio is that of a module's figure to the mean of C's before and after it; that of C, to C's before. Shown are the
medians, and within which distance they are with a probability of 95 % (McGill, Tukey and Larsen 1978).
"""

import argparse
import collections
import os
import pathlib
import platform
import statistics


def ratios(figures, kind):
    """The ratio of each round, of figures by round and kind."""
    for (number, of), figure in figures.items():
        before, after = figures.get((number - 1, "c")), figures.get((number, "c"))
        if of == kind and before and after:
            yield figure / before if kind == "c" else 2 * figure / (before + after)


def cells(values):
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return [f"{median:.3f}", f"{1.57 * (high - low) / len(values) ** 0.5:.3f}"]


def measured(role, samples):
    """A sentence about the machine, the names of the columns, and the rows."""
    operations, kinds, loads = collections.defaultdict(dict), {}, []
    for line in samples.read_text().splitlines():
        number, kind, time, cpu, load, operation = line.split(maxsplit=5)
        kinds[kind] = None
        loads.append(float(load))
        for what, figure in ("time, µs", time), (f"{role} CPU, µs", cpu):
            operations[operation, what][int(number), kind] = int(figure) / 1000
    # C first when it is measured, last when it is shown.
    kinds = [*list(kinds)[1:], "c"]
    rows, shown = [], ""
    for (operation, what), figures in operations.items():
        of_c = statistics.median(figure for (_, kind), figure in figures.items() if kind == "c")
        compared = [cell for kind in kinds for cell in cells(list(ratios(figures, kind)))]
        rows.append([operation if operation != shown else "", what, f"{of_c:,.1f}", *compared])
        shown = operation
    head = ["RPC", "figure", "C", *(cell for kind in kinds for cell in (f"{kind.capitalize()}/C", "±"))]
    model = next((l for l in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if l.startswith("model name")), ":")
    return (
        f"{model.split(':')[1].strip()}, {os.cpu_count()} CPUs, Linux {platform.release().partition('-')[0]}; "
        f"{max(number for number, _ in figures)} rounds, load of the machine {min(loads)} to {max(loads)}, "
        f"in the median {statistics.median(loads):.1f}.",
        head,
        rows,
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=("client", "server"))
    parser.add_argument("samples", type=pathlib.Path)
    options = parser.parse_args()
    machine, head, rows = measured(options.role, options.samples)
    print(f"The {options.role}: {machine}")
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    for row in [head, *rows]:
        aligned = [c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))]
        print(" ".join(aligned).rstrip())


if __name__ == "__main__":
    main()
