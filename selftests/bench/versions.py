#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The table of what selftests/long/versions.sh has counted.

Usage: versions.py OUTPUT [--document FILE]

--document puts the table into FILE, in the place of the table of versions.
"""

import argparse
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "lib"))
import rst  # noqa: E402

DIALECTS = {"one-1024": "One, 1024", "one-4096": "One, 4096", "two-4096": "Two, 4096"}
WORKLOADS = {
    "create_files": "create 1,000 files",
    "open_files": "open 1,000 files",
    "stat_files": "stat 1,000 files",
    "read_folder": "readdir, 3,000 entries",
    "link_files": "make 100 links, 2,000 bytes",
    "follow_links": "read 100 links",
    "unlink_files": "unlink all of them",
}
HEAD = ["workload", "version, bytes", "RPCs", "Read chunks", "long Calls", "Reply chunks", "used"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--document", type=pathlib.Path)
    options = parser.parse_args()
    samples = {}
    for line in options.output.read_text().splitlines():
        words = line.removeprefix("# ").split()
        if words[:1] == ["figures"]:
            samples.setdefault((words[2], words[1]), []).append([int(word) for word in words[3:]])
    rows = []
    for workload, title in WORKLOADS.items():
        for dialect, name in DIALECTS.items():
            runs = samples.get((workload, dialect))
            if not runs:
                raise SystemExit(f"versions.py: {options.output} has no {workload} with {dialect}")
            inline, read, long_calls, reply, used = map(statistics.mean, zip(*runs))
            counts = (inline + read + long_calls, read, long_calls, reply, used)
            rows.append([title, name, *(f"{count:,.0f}" for count in counts)])
            title = ""
    lines = rst.simple_table(HEAD, rows)
    print("\n".join(lines))
    if options.document:
        rst.put(options.document, "versions", lines)


if __name__ == "__main__":
    main()
