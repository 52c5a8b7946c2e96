#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Plots of what scripts/bench.sh has measured, as SVG.

Usage: bench-plot.py JSON FOLDER

The same JSON makes the same files, byte for byte, with one version of matplotlib.
"""

import argparse
import json
import pathlib
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

matplotlib.rcParams.update(
    {
        "svg.hashsalt": "rpcrdma",
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "figure.constrained_layout.use": True,
    }
)

C, RUST, NOISE = "#4c72b0", "#c44e52", "#d9d9d9"
COMMENT = "<!-- SPDX-License-Identifier: GPL-2.0 -->\n"

TITLES = {
    "null": "NULL",
    "getattr": "GETATTR",
    "create": "create",
    "stat": "stat",
    "unlink": "unlink",
    "randread_1": "read 4 KiB, depth 1",
    "randread_16": "read 4 KiB, depth 16",
    "randwrite_1": "write 4 KiB, depth 1",
    "randwrite_16": "write 4 KiB, depth 16",
    "mixed": "70/30, 32 KiB",
    "seqread": "sequential read",
    "seqwrite": "sequential write",
    "krb5p_read": "sequential read, krb5p",
    "krb5p_write": "sequential write, krb5p",
    "readdir": "readdir",
    "tree": "source tree",
    "mount": "mount",
    "reconnect": "reconnect, idle",
    "reconnect_busy": "reconnect, 100 calls",
    "memory": "memory",
}


def save(figure, path):
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    plt.close(figure)
    # The licence is told behind the XML declaration, which must come first.
    head, newline, rest = path.read_text().partition("\n")
    path.write_text(head + newline + COMMENT + "\n".join(line.rstrip() for line in rest.splitlines()) + "\n")


def rows_of(result, *metrics):
    return [row for row in result["summary"] if row["metric"] in metrics]


def ratios(result, path):
    """Ratios of Rust to C: median and quartiles, on the noise of C against itself."""
    panels = [("rate", "rate (more is better)"), ("p99_us", "p99 latency (less is better)"), ("cpu_s", f"{result['role']} CPU per RPC (less is better)")]
    names = [n for n in TITLES if any(r["workload"] == n for r in rows_of(result, *(m for m, _ in panels)))]
    figure, axes = plt.subplots(1, len(panels), figsize=(10, 0.32 * len(names) + 1.2), sharey=True)
    for axis, (metric, title) in zip(axes, panels):
        axis.axvline(1, color="black", linewidth=0.8)
        for row in rows_of(result, metric):
            y = names.index(row["workload"])
            _, low, high = row["noise"]
            axis.barh(y, high - low, left=low, height=0.7, color=NOISE)
            median, low, high = row["ratio"]
            axis.plot([low, high], [y, y], color=RUST)
            axis.plot(median, y, "o", color=RUST, markersize=4)
        axis.set_title(title, fontsize=9)
        axis.set_xlabel("Rust / C")
    axes[0].set_yticks(range(len(names)), [TITLES[n] for n in names])
    axes[0].invert_yaxis()
    save(figure, path)


def pairs(axis, rows, labels, unit):
    """Two bars for each row, C's and Rust's."""
    for offset, module, colour, name in ((-0.2, "c", C, "C"), (0.2, "rust", RUST, "Rust")):
        axis.bar([i + offset for i in range(len(rows))], [row[module] for row in rows], 0.4, color=colour, label=name)
    axis.set_xticks(range(len(rows)), labels, rotation=35, ha="right", rotation_mode="anchor")
    axis.set_ylabel(unit)


def latency(result, path):
    metrics = {"p50_us": "p50, µs", "p99_us": "p99, µs", "p999_us": "p99.9, µs"}
    names = [n for n in TITLES if any(r["workload"] == n for r in rows_of(result, *metrics))]
    figure, axes = plt.subplots(1, 3, figsize=(10, 0.32 * len(names) + 1.2), sharex=True, sharey=True)
    for axis, (metric, title) in zip(axes, metrics.items()):
        rows = rows_of(result, metric)
        for module, colour, label in (("c", C, "C"), ("rust", RUST, "Rust")):
            places = [names.index(row["workload"]) for row in rows]
            axis.plot([row[module] for row in rows], places, "o", color=colour, markersize=5, alpha=0.7, label=label)
        axis.set_xscale("log")
        axis.set_title(title, fontsize=9)
        axis.grid(axis="x", color=NOISE)
    axes[0].set_yticks(range(len(names)), [TITLES[n] for n in names])
    axes[0].invert_yaxis()
    axes[0].legend(frameon=False)
    save(figure, path)


def throughput(result, path):
    """Sequential I/O and NULL, with what the link carries without RPC."""
    beside = {"null": ("messages", "RPCs/s"), "seqread": ("send", "MiB/s"), "seqwrite": ("read", "MiB/s")}
    figure, axes = plt.subplots(1, len(beside), figsize=(8, 3))
    for axis, (workload, (link, unit)) in zip(axes, beside.items()):
        rows = [row for row in rows_of(result, "rate") if row["workload"] == workload]
        pairs(axis, rows, [TITLES[workload]] * len(rows), unit)
        for offset, module in ((-0.2, "c"), (0.2, "rust")):
            samples = [s["rate"] for s in result["samples"] if s["workload"] == workload and s["module"] == module]
            axis.plot([offset] * len(samples), samples, "o", color="black", markersize=2)
        values = sorted(result["links"].get(link, []))
        if values:
            axis.axhline(values[len(values) // 2], color="black", linestyle="--", linewidth=0.8, label="link without RPC")
        axis.set_ylim(bottom=0)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False)
    save(figure, path)


def rest(result, path):
    """What a mount takes, and how long it takes."""
    panels = [
        (rows_of(result, "time_ms"), [TITLES[row["workload"]] for row in rows_of(result, "time_ms")], "ms"),
        (rows_of(result, "idle_kib", "busy_kib"), ["idle", "after I/O"], "KiB for a mount"),
    ]
    panels = [panel for panel in panels if panel[0]]
    figure, axes = plt.subplots(1, len(panels), figsize=(4 * len(panels), 3.2), squeeze=False)
    for axis, (rows, labels, unit) in zip(axes[0], panels):
        pairs(axis, rows, labels[: len(rows)], unit)
    axes[0][-1].legend(frameon=False)
    save(figure, path)


def scale(result, path):
    """Figures of both modules against the number that changes."""
    panels = {
        "mounts": ("rate", "IOPS, 4 KiB, depth 64", "mounts"),
        "nconnect": ("rate", "IOPS, 4 KiB, depth 64", "connections"),
        "tasks": ("rate", "IOPS, 4 KiB", "calls at the same time"),
        "slots": ("rate", "IOPS, 4 KiB, depth 256", "slots"),
        "memory": ("idle_kib", "KiB for an idle mount", "mounts"),
    }
    rows_by_name = {name: [row for row in rows_of(result, panels[name][0]) if row["workload"].startswith(name + "-")] for name in panels}
    panels = {name: panel for name, panel in panels.items() if rows_by_name[name]}
    figure, axes = plt.subplots(1, len(panels), figsize=(2.6 * len(panels), 3), squeeze=False)
    axes = axes[0]
    for axis, (name, (metric, unit, number)) in zip(axes, panels.items()):
        rows = rows_by_name[name]
        for module, colour, label in (("c", C, "C"), ("rust", RUST, "Rust")):
            numbers = [int(row["workload"].partition("-")[2]) for row in rows]
            axis.plot(numbers, [row[module] for row in rows], "o-", color=colour, markersize=3, label=label)
        axis.set_xscale("log", base=2)
        axis.set_xlabel(number)
        axis.set_ylabel(unit)
        axis.set_ylim(bottom=0)
    axes[0].legend(frameon=False)
    save(figure, path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("json", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    options = parser.parse_args()
    result = json.loads(options.json.read_text())
    options.folder.mkdir(parents=True, exist_ok=True)
    scaled = any("-" in row["workload"] for row in result["summary"])
    for plot in (scale,) if scaled else (ratios, latency, throughput, rest):
        plot(result, options.folder / f"{plot.__name__}.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
