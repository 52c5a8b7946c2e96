#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Sums up what scripts/bench-rounds.sh has measured: one JSON file, and a table.

Usage: report.py client|server FOLDER JSON [--document FILE --table NAME]

FOLDER has the samples. --document puts the table into FILE, between the comments that name it.

A round of the Rust module stands between two of C, and its ratio is to their mean, so that a
steady change of the machine's speed cancels out. The ratio of each round of C to the one before
shows what the machine alone does to such a figure.
"""

import argparse
import json
import os
import pathlib
import platform
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "lib"))
import rst  # noqa: E402

# Name, and what is counted for its rate.
WORKLOADS = {
    "null": ("NULL", "RPCs/s"),
    "getattr": ("GETATTR", "RPCs/s"),
    "create": ("create files", "files/s"),
    "stat": ("stat files", "files/s"),
    "unlink": ("unlink files", "files/s"),
    "randread_1": ("random read, 4 KiB, depth 1", "IOPS"),
    "randread_16": ("random read, 4 KiB, depth 16", "IOPS"),
    "randwrite_1": ("random write, 4 KiB, depth 1", "IOPS"),
    "randwrite_16": ("random write, 4 KiB, depth 16", "IOPS"),
    "mixed": ("70 % read, 30 % write, 32 KiB, depth 16", "IOPS"),
    "seqread": ("sequential read, 1 MiB, depth 2", "MiB/s"),
    "seqwrite": ("sequential write, 1 MiB, depth 2", "MiB/s"),
    "krb5p_read": ("sequential read, 1 MiB, depth 2, krb5p", "MiB/s"),
    "krb5p_write": ("sequential write, 1 MiB, depth 2, krb5p", "MiB/s"),
    "readdir": ("readdir, 5 times 10,000 entries", "entries/s"),
    "tree": ("unpack a source tree", "files/s"),
    "mount": ("mount", None),
    "reconnect": ("reconnect, idle", None),
    "reconnect_busy": ("reconnect, 100 calls outstanding", None),
    "memory": ("memory of a mount", None),
}

# These have a number behind a hyphen.
SCALES = {
    "mounts": ("random read, 4 KiB, depth 64, {} mounts", "IOPS"),
    "nconnect": ("random read, 4 KiB, depth 64, nconnect={}", "IOPS"),
    "tasks": ("random read, 4 KiB, depth {}", "IOPS"),
    "slots": ("random read, 4 KiB, depth 256, {} slots", "IOPS"),
    "memory": ("memory of each of {} mounts", None),
}


def described(workload):
    """The title, and what is counted."""
    if workload in WORKLOADS:
        return WORKLOADS[workload]
    scale, _, number = workload.partition("-")
    title, unit = SCALES[scale]
    return title.format(number), unit


# What each figure is, and whether more of it is better.
METRICS = {
    "rate": ("", True),
    "p50_us": ("p50, µs", False),
    "p99_us": ("p99, µs", False),
    "p999_us": ("p99.9, µs", False),
    "write_p50_us": ("writes: p50, µs", False),
    "write_p99_us": ("writes: p99, µs", False),
    "write_p999_us": ("writes: p99.9, µs", False),
    "cpu_s": ("CPU, s per 1,000 RPCs", False),
    "time_ms": ("time, ms", False),
    "idle_kib": ("idle, KiB", False),
    "busy_kib": ("after I/O, KiB", False),
}

LINKS = {
    "messages": ("messages of 128 bytes, there and back", "per second"),
    "send": ("Send by the server, 1 MiB", "MiB/s"),
    "read": ("RDMA Read by the server, 1 MiB", "MiB/s"),
}

def parse(text):
    """The lines "NAME NUMBER..." of a sample, and what fio said."""
    head, _, fio = text.partition("\nfio\n")
    rows = {}
    for line in head.splitlines():
        name, *numbers = line.split() or [""]
        try:
            rows[name] = [int(number) for number in numbers]
        except ValueError:
            continue
    # Warnings may stand before it.
    return rows, json.loads(fio[fio.index("{") :]) if fio else None


def fio_figures(fio, workload):
    job = fio["jobs"][0]
    if job["error"]:
        raise SystemExit(f"report.py: fio failed in {workload}: error {job['error']}")
    sides = [job[side] for side in ("read", "write") if job[side]["total_ios"]]
    figures = {"rate": sum(side["iops"] for side in sides)}
    if workload.startswith(("seq", "krb5p")):
        figures["rate"] = sum(side["bw_bytes"] for side in sides) / 2**20
    # Of mixed I/O the latencies of reads and of writes are apart: what is outstanding at once is so many of
    # both, so that reads wait longer where writes wait less.
    for prefix, side in zip(("", "write_"), sides):
        shares = side["clat_ns"]["percentile"]
        for name, percentile in (("p50_us", "50"), ("p99_us", "99"), ("p999_us", "99.9")):
            figures[prefix + name] = shares[f"{float(percentile):f}"] / 1000
    return figures


def figures_of(workload, text, idle_cpu):
    rows, fio = parse(text)
    figures = {}
    if "microseconds_each" in rows:
        figures["time_ms"] = statistics.median(rows["microseconds_each"]) / 1000
        return figures
    if workload.startswith("memory"):
        return {name: rows[name][0] for name in ("idle_kib", "busy_kib")}
    rpcs = rows["rpcs"][0]
    if fio:
        figures = fio_figures(fio, workload)
    elif "calls" in rows:
        calls = rows["calls"][0]
        total, *times = rows["nanoseconds"]
        figures["rate"] = calls * 1e9 / total
        for name, nanoseconds in zip(("p50_us", "p99_us", "p999_us"), times):
            figures[name] = nanoseconds / 1000
        # As many have come before the timed ones. Those of NULL are no mount's.
        rpcs = max(rpcs, 2 * calls)
    elif "items" in rows:
        figures["rate"] = rows["items"][0] * 1e6 / rows["microseconds"][0]
        for name, nanoseconds in zip(("p50_us", "p99_us", "p999_us"), rows.get("latency_nanoseconds", [])):
            figures[name] = nanoseconds / 1000
    figures["rpcs"] = rpcs
    if rpcs:
        figures["cpu_s"] = (rows["cpu_nanoseconds"][0] - idle_cpu) / rpcs / 1e6
        figures["ticks_s"] = rows["ticks"][0] * 10 / rpcs
    return figures


def load(folder):
    """Every sample, one for each round and workload."""
    texts = {}
    for path in folder.glob("*.*.*"):
        number, kind, workload = path.name.split(".")
        texts[int(number), kind, workload] = path.read_text()
    # What it costs to have a command run in the machine is no part of the workload.
    nothing = [parse(t)[0]["cpu_nanoseconds"][0] for (_, _, w), t in texts.items() if w == "nothing"]
    idle_cpu = statistics.median(nothing) if nothing else 0
    samples = []
    for (number, kind, workload), text in sorted(texts.items()):
        if workload != "nothing":
            figures = figures_of(workload, text, idle_cpu)
            samples.append({"round": number, "module": kind, "workload": workload, **figures})
    return samples


def spread(values):
    """Median and both quartiles."""
    if len(values) < 2:
        return values * 3
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return [median, low, high]


def summarize(samples):
    rows = []
    order = list(WORKLOADS) + list(SCALES)

    def place(workload):
        scale, _, number = workload.partition("-")
        return order.index(scale), int(number or 0)

    for workload in sorted({s["workload"] for s in samples}, key=place):
        for metric, (_, more_is_better) in METRICS.items():
            by_round = {s["round"]: s[metric] for s in samples if s["workload"] == workload and metric in s}
            c = {n: v for n, v in by_round.items() if n % 2 == 0}
            # Of a run that was cut short the last rounds are missing.
            rust = {n: v for n, v in by_round.items() if n % 2 and n - 1 in by_round and n + 1 in by_round}
            if not rust or min(c.values()) <= 0:
                continue
            ratios = [v / ((by_round[n - 1] + by_round[n + 1]) / 2) for n, v in rust.items()]
            noise = [c[n + 2] / v for n, v in c.items() if n + 2 in c]
            row = {
                "workload": workload,
                "metric": metric,
                "c": statistics.median(c.values()),
                "rust": statistics.median(rust.values()),
                "ratio": spread(ratios),
                "noise": spread(noise),
            }
            # Further from one than the far quartile of the noise is from it, and both quartiles on the
            # same side of it.
            beyond = max(abs(row["noise"][1] - 1), abs(row["noise"][2] - 1))
            median, low, high = row["ratio"]
            is_same = abs(median - 1) <= beyond or low <= 1 <= high
            row["verdict"] = "same" if is_same else "better" if (median > 1) == more_is_better else "worse"
            row["pairs"] = len(ratios)
            rows.append(row)
    return rows


def links_of(folder):
    """What perftest carried: counts in microseconds."""
    rates = {}
    path = folder / "links"
    for line in path.read_text().splitlines() if path.exists() else []:
        name, count, us = line.split()
        rates.setdefault(name, []).append(int(count) * 1e6 / int(us))
    return rates


def number(value):
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def about(m, pairs):
    """What was measured on which kind of machine, in a few lines."""
    return [
        f"{m['processor']}, {m['cpus']} CPUs, {m['memory_gib']} GiB, Linux {m['host_kernel']}; both nodes Linux {m['kernel']}",
        f"({m['kind']}), NFS v{m['nfs']}. Pairs: {' or '.join(map(str, pairs))}. The load of the machine was "
        f"{m['load'][0]} to {m['load'][2]}, in",
        f"the median {m['load'][1]}; the run itself is about 2 of it.",
        "",
    ]


def tables(result):
    rows, last = [], None
    for row in result["summary"]:
        title, unit = described(row["workload"])
        what = METRICS[row["metric"]][0] or unit
        median, low, high = row["ratio"]
        rows.append(
            [
                title if title != last else "",
                what,
                number(row["c"]),
                number(row["rust"]),
                f"{median:.3f}",
                f"{low:.2f}-{high:.2f}",
                "{1:.2f}-{2:.2f}".format(*row["noise"]),
                row["verdict"],
            ]
        )
        last = title
    lines = rst.simple_table(["workload", "figure", "C", "Rust", "Rust/C", "quartiles", "C/C", "Rust is"], rows)
    rates = result["links"]
    if rates:
        medians = {s["workload"]: s for s in result["summary"] if s["metric"] == "rate"}
        against = {"messages": "null", "send": "seqread", "read": "seqwrite"}
        rows = []
        for name, values in rates.items():
            title, unit = LINKS[name]
            limit = statistics.median(values)
            row = medians.get(against[name])
            shares = [f"{row[k] / limit:.2f}" for k in ("c", "rust")] if row else ["", ""]
            rows.append([title, unit, number(limit), WORKLOADS[against[name]][0], *shares])
        lines += ["", *rst.simple_table(["without RPC", "unit", "link", "beside it", "C/link", "Rust/link"], rows)]
    pairs = sorted({row["pairs"] for row in result["summary"]})
    return about(result["machine"], pairs) + lines


def machine(kernel, loads):
    """What kind of machine it was, with the nodes' kernel, and how busy at times."""
    model = "unknown"
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "processor": model,
        "cpus": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30),
        "host_kernel": platform.release().partition("-")[0],
        "kernel": kernel,
        "kind": os.environ.get("KERNEL", "um"),
        "nfs": os.environ.get("VERS", "4.2"),
        "load": [min(loads), round(statistics.median(loads), 2), max(loads)],
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=("client", "server"))
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("json", type=pathlib.Path)
    parser.add_argument("--document", type=pathlib.Path)
    parser.add_argument("--table", default="bench")
    options = parser.parse_args()
    samples = load(options.folder)
    kernel = (options.folder / "release").read_text().strip()
    loads = [float(line.split()[2]) for line in (options.folder / "rounds").read_text().splitlines()]
    result = {
        # JSON has no comments.
        "licence": "SPDX-License-Identifier: GPL-2.0",
        "role": options.role,
        "machine": machine(kernel, loads),
        "links": links_of(options.folder),
        "summary": summarize(samples),
        "samples": samples,
    }
    if not result["summary"]:
        raise SystemExit(f"report.py: {options.folder} has no samples of both modules")
    options.json.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    lines = tables(result)
    print("\n".join(lines))
    if options.document:
        rst.put(options.document, options.table, lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
