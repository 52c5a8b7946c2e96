#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Tables of what RPCs cost a client or a server, from what count.rs has written.

Usage: report.py client|server FOLDER [--functions N] [--ratios FILE [--keep]]

FOLDER has a folder for each kind of transport, c/ and rust/, or one-1024/, one-4096/ and two-4096/
for the versions of the protocol, with the files "names" (one counted stretch a line), "symbols"
(/proc/kallsyms) and those of the plugin. A ratio is of the last kind to the one before.
--functions adds the N functions of each module that run most instructions of the transport.
--ratios compares the ratios with those in FILE, and fails when one has grown by more than 3 % or is no longer
measured, or when a figure exceeds what a rule allows; --keep writes them there. Both fail when a function that
is counted is not among the symbols.
"""

import argparse
import bisect
import collections
import pathlib
import re
import subprocess
import sys

TOLERANCE = 1.03

# The figures whose ratios are kept, where C has any. Completions are not among them: which of its
# Sends C has signalled depends on all that were posted before.
KEPT = (
    "instructions, transport",
    "work requests, send queue",
    "doorbells, send queue",
    "registrations",
    "packets sent",
)

# What fewer than every other RPC has was made once, or is chance.
ONCE = 0.5

# Figures of which there may not be more than C has. How many completions one run of the handler finds
# is chance.
NEVER_MORE = {
    "client": (),
    "server": ("completion handler runs", "completions", "threads woken"),
}

# The same of all RPCs together. Receives are posted some at a time, so that for a few RPCs one time more
# or less is chance.
NEVER_MORE_IN_ALL = {
    "client": (),
    "server": ("doorbells, receive queue", "work requests, receive queue"),
}

# What one RPC may take at most, whatever C takes: a figure, how much of it, and the RPCs.
WRITES = ("WRITE 4 KiB", "WRITE 1 MiB")
RULES = {
    "client": (),
    "server": (
        # One thread executes a Call; what comes in Read chunks is fetched by one before.
        ("threads woken", 1, ("NULL", "GETATTR", "READ 4 KiB", "READ 1 MiB", "READDIRPLUS", "OPEN, CLOSE")),
        ("threads woken", 2, WRITES),
        # For more than a page the RDMA core allocates. The pages of RDMA Reads are in an array.
        ("allocations", ONCE, ("NULL", "GETATTR", "READ 4 KiB", "OPEN, CLOSE")),
        ("allocations", 1, ("WRITE 4 KiB",)),
    ),
}

# Runs of these functions are RPCs.
RPCS = {"client": "xprt_complete_rqst", "server": "svc_process"}

# Crates' hashes in demangled names of Rust.
HASH = r"\[[0-9a-f]+\]"

# What a device driver is no part of, though the transport calls into it.
PROVIDERS = {"rdma_rxe", "siw"}

# Runs of these functions are operations. In the stock kernel none of them is inlined in its callers.
OPERATIONS = {
    "work requests, send queue": ["do_complete"],
    "doorbells, send queue": ["rxe_post_send"],
    "doorbells, receive queue": ["rxe_post_recv"],
    "work requests, receive queue": ["post_one_recv"],
    "completion handler runs": ["ib_cq_poll_work"],
    "completions": ["rxe_cq_post"],
    "registrations": ["ib_map_mr_sg"],
    "MRs invalidated": ["rxe_invalidate_mr"],
    "DMA mappings of lists": ["ib_dma_virt_map_sg"],
    "packets sent": ["rxe_xmit_packet"],
    "tasks woken": ["try_to_wake_up"],
    "work items queued": ["__queue_work"],
}

# Calls of the second by the first are "threads woken" of the server.
WAKING = ("svc_pool_wake_idle_thread", "wake_up_process")

# What allocates, and what only leads there, in so many calls at most: with a size of zero some of these
# free. Rust's own functions, whose names begin with _R, and its helpers are between a module and all
# of them.
ALLOCATORS = (
    "__kmalloc",
    "__kvmalloc",
    "kmem_cache_alloc",
    "mempool_alloc",
    "alloc_pages",
    "get_free_pages",
    "folio_alloc",
)
DEPTH = 8
TOWARDS_ALLOCATORS = ("krealloc", "kvrealloc", "vrealloc", "__do_krealloc", "rust_helper_", "_R")


class Symbols:
    """Functions by address."""

    def __init__(self, path):
        rows = {}
        for line in path.read_text().splitlines():
            fields = line.split()
            if fields[1] not in "tTwW":
                continue
            module = fields[3].strip("[]") if len(fields) > 3 else "kernel"
            rows.setdefault(int(fields[0], 16), (fields[2], module))
        self.rows = sorted((address, *row) for address, row in rows.items())
        self.starts = [row[0] for row in self.rows]

    def at(self, address):
        """The function that has the address: its start, its name, its module."""
        index = bisect.bisect_right(self.starts, address) - 1
        return self.rows[index] if index >= 0 else (0, "?", "?")


class Stretch:
    """What ran between two marks."""

    def __init__(self, path, symbols):
        self.own = collections.Counter()
        self.entries = collections.Counter()
        self.calls = collections.Counter()
        for line in path.read_text().splitlines():
            address, instructions, runs, *nexts = line.split()
            address = int(address, 16)
            function = symbols.at(address)
            self.own[function] += int(instructions) * int(runs)
            if address == function[0]:
                self.entries[function] += int(runs)
            for item in nexts:
                target, times = item.split(":")
                target = int(target, 16)
                callee = symbols.at(target)
                if target == callee[0] and callee != function:
                    self.calls[function, callee] += int(times)

    def runs_of(self, names):
        return sum(n for (_, name, _), n in self.entries.items() if name in names)

    def rpcs(self, role):
        return self.runs_of([RPCS[role]])

    def kernel(self):
        """All instructions of the kernel."""
        return sum(self.own.values())

    def transport(self):
        """Instructions of the module, and of what it calls directly, by function.

        A function that others call too counts in proportion to the calls.
        """
        share = collections.Counter()
        for function, instructions in self.own.items():
            if function[2] == "rpcrdma":
                share[function] = instructions
        for (caller, callee), times in self.calls.items():
            if caller[2] != "rpcrdma" or callee[2] in PROVIDERS | {"rpcrdma"}:
                continue
            if self.entries[callee]:
                share[callee] += self.own[callee] * times / self.entries[callee]
        return share

    def calls_between(self, caller, callee):
        return sum(
            times
            for (from_, to), times in self.calls.items()
            if (from_[1], to[1]) == (caller, callee)
        )

    def module(self):
        return sum(n for function, n in self.own.items() if function[2] == "rpcrdma")

    def allocations(self):
        """Those of the module, and of the RDMA core on its behalf, which counts as in transport()."""
        count = 0
        # For each function, which part of its runs the module has led to.
        reached = {caller: 1 for caller, _ in self.calls if caller[2] == "rpcrdma"}
        for _ in range(DEPTH):
            found = collections.Counter()
            for (caller, callee), times in self.calls.items():
                part = reached.get(caller, 0) * times
                if callee[1].startswith(ALLOCATORS):
                    count += part
                elif part and self.leads_on(callee):
                    found[callee] += part / self.entries[callee]
            reached = found
        return count

    def leads_on(self, function):
        _, name, module = function
        towards = module == "kernel" and name.startswith(TOWARDS_ALLOCATORS)
        return (towards or module == "ib_core") and self.entries[function]


def load(folder):
    symbols = Symbols(folder / "symbols")
    names = (folder / "names").read_text().splitlines()
    return {name: Stretch(folder / str(n), symbols) for n, name in enumerate(names)}


def missing(role, folder):
    """Functions that are counted, and that a kind's symbols do not have: they would seem to run never."""
    counted = {name for names in OPERATIONS.values() for name in names} | set(WAKING if role == "server" else ())
    return sorted(counted - {name for _, name, _ in Symbols(folder / "symbols").rows})


def rows_of(role, stretch):
    """Each figure of a stretch for one RPC."""
    rpcs = stretch.rpcs(role)
    figures = {
        "instructions, kernel": stretch.kernel(),
        "instructions, transport": sum(stretch.transport().values()),
        "instructions, module": stretch.module(),
        "allocations": stretch.allocations(),
    }
    for what, names in OPERATIONS.items():
        figures[what] = stretch.runs_of(names)
    if role == "server":
        figures["threads woken"] = stretch.calls_between(*WAKING)
    return {what: figure / rpcs for what, figure in figures.items()}


def in_all(role, stretches, what):
    """A figure for one RPC of all stretches together."""
    stretches = list(stretches)
    runs = sum(stretch.runs_of(OPERATIONS[what]) for stretch in stretches)
    return runs / sum(stretch.rpcs(role) for stretch in stretches)


def functions(stretch, role, count):
    """The names and instructions for one RPC of the functions that have most."""
    rows = stretch.transport().most_common(count)
    names = "\n".join(name for (_, name, _), _ in rows)
    names = subprocess.run(["c++filt"], input=names, stdout=subprocess.PIPE, text=True, check=True)
    return [
        (f"{re.sub(HASH, '', name)} [{module}]", instructions / stretch.rpcs(role))
        for ((_, _, module), instructions), name in zip(rows, names.stdout.splitlines())
    ]


def title(kind):
    """What a kind is called: c is C, one-1024 is One, 1024."""
    return kind.replace("-", ", ").capitalize()


def ratio_of(row):
    """The last column to the one before, to be shown."""
    return f"{row[-1] / row[-2]:.3f}" if row[-2] else ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=RPCS)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--functions", type=int, default=0)
    parser.add_argument("--ratios", type=pathlib.Path)
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    role = options.role
    # In the order of their names, which is that of the columns.
    kinds = {path.parent.name: load(path.parent) for path in sorted(options.folder.glob("*/names"))}
    ratios, ruled = {}, []
    before = title(list(kinds)[-2])
    for name in next(iter(kinds.values())):
        stretches = {kind: stretch[name] for kind, stretch in kinds.items()}
        rows = [rows_of(role, stretch) for stretch in stretches.values()]
        figures = {what: [row[what] for row in rows] for what in rows[0]}
        print(f"{name} ({' and '.join(str(s.rpcs(role)) for s in stretches.values())} RPCs)")
        print(f"    {'for one RPC':28} {' '.join(f'{title(kind):>10}' for kind in kinds)} {'ratio':>7}")
        for what, row in figures.items():
            print(f"    {what:28} {' '.join(f'{figure:10.2f}' for figure in row)} {ratio_of(row):>7}".rstrip())
        ratios |= {f"{name}, {what}": figures[what][-1] / figures[what][-2] for what in KEPT if figures[what][-2]}
        ruled += [
            (f"{name}, {what}, of {before}", figures[what][-1], figures[what][-2])
            for what in NEVER_MORE[role]
            if figures[what][-2] >= ONCE
        ]
        ruled += [(f"{name}, {what}", figures[what][-1], most) for what, most, names in RULES[role] if name in names]
        if options.functions:
            for kind, stretch in stretches.items():
                print(f"  {kind}")
                for function, instructions in functions(stretch, role, options.functions):
                    print(f"    {instructions:9.1f}  {function}")
    for what in NEVER_MORE_IN_ALL[role]:
        *_, of_before, of_last = (in_all(role, stretches.values(), what) for stretches in kinds.values())
        ruled.append((f"all RPCs, {what}, of {before}", of_last, of_before))
    if not options.ratios:
        return 0
    for kind in kinds:
        if names := missing(role, options.folder / kind):
            sys.exit(f"report.py: these are counted, but are no symbols of {title(kind)}: {' '.join(names)}")
    if options.keep:
        lines = [f"{ratio:.3f}\t{name}\n" for name, ratio in ratios.items()]
        options.ratios.write_text("".join(["# SPDX-License-Identifier: GPL-2.0\n", *lines]))
        return 0
    status = 0
    lines = options.ratios.read_text().splitlines()[1:]
    kept = dict(reversed(line.split("\t")) for line in lines)
    gone = sorted(kept.keys() - ratios.keys())
    print(f"1..{len(ratios) + len(gone) + len(ruled)}")
    for name in gone:
        status = 1
        print(f"not ok - cost: {role}: {name}: no longer measured")
    for name, ratio in ratios.items():
        # What is not kept yet fails.
        allowed = float(kept.get(name, 0)) * TOLERANCE
        result = "ok" if ratio <= allowed else "not ok"
        status |= result != "ok"
        print(f"{result} - cost: {role}: {name}: {ratio:.3f} of {before}, {allowed:.3f} allowed")
    for name, figure, most in ruled:
        allowed = most * TOLERANCE
        result = "ok" if figure <= allowed else "not ok"
        status |= result != "ok"
        print(f"{result} - cost: {role}: {name}: {figure:.3f}, {allowed:.3f} allowed")
    return status


if __name__ == "__main__":
    sys.exit(main())
