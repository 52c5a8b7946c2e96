# SPDX-License-Identifier: GPL-2.0
"""What was read, for programs: JSON, and the text format of Prometheus."""

import datetime
import json
import os

from . import VERSION
from .counts import by_limit
from .read import module_version


def as_json(look, root, indent):
    """All values under the names of the files, and when, where and by which versions they were read."""
    def latency(one, names):
        return [{**dict(zip(names, words)), "below_ns": limit, "count": count}
                for words, counts in one["latency"].items() for limit, count in counts.items()]

    return json.dumps({
        "time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds"),
        "host": os.uname().nodename,
        "version": VERSION,
        "module_version": module_version(root),
        "listeners": [{"number": number, **one} for number, one in look["listeners"].items()],
        "connections": [
            {"number": number, "connection": one["connection"], "stats": one["stats"],
             "latency": latency(one, ("step",))}
            for number, one in look["connections"].items()
        ],
        "transports": [
            {"xprt": number, "mounts": one["mounts"], "connection": one["connection"], "stats": one["stats"],
             "latency": latency(one, ("call", "reply"))}
            for number, one in look["transports"].items()
        ],
    }, indent=indent)


class Metrics:
    """Samples by metric, as all of one have to come together."""

    def __init__(self):
        self.types, self.samples = {}, {}

    def add(self, name, kind, value, labels, suffix=""):
        """One sample."""
        name = "rpcrdma_" + name
        self.types[name] = kind
        words = ",".join(f'{label}="{escaped(str(text))}"' for label, text in labels.items())
        self.samples.setdefault(name, []).append(f"{name}{suffix}{{{words}}} {value}" if words else f"{name} {value}")

    def lines(self):
        """The text."""
        for name, kind in self.types.items():
            yield f"# TYPE {name} {kind}"
            yield from self.samples[name]

    def counters(self, role, stats, labels):
        """Counters by name, and ends by cause."""
        for name, count in stats.items():
            for prefix, metric in (("ended_", "ends"), ("connect_failed_", "failed_attempts")):
                if name.startswith(prefix):
                    cause = {**labels, "cause": name.removeprefix(prefix)}
                    self.add(f"{role}_{metric}_total", "counter", count, cause)
                    break
            else:
                self.add(f"{role}_{name}_total", "counter", count, labels)

    def gauges(self, role, values, names, labels):
        """Numbers that go up and down, those that are there."""
        for name in names:
            if name in values:
                self.add(f"{role}_{name}", "gauge", values.number(name), labels)

    def state(self, role, connection, labels):
        """Whether it is connected, and how long its oldest Call has waited."""
        self.add(f"{role}_connected", "gauge", int(connection.word("state") == "connected"), labels)
        seconds = connection.number("oldest_call_ms") / 1000
        self.add(f"{role}_oldest_call_seconds", "gauge", seconds, labels)
        self.gauges(role, connection, ("calls_outstanding", "credits_in_use", "credits_granted"), labels)

    def latency(self, role, latency, names, labels):
        """Histograms, whose buckets are cumulative."""
        for words, counts in latency.items():
            sum_so_far, words = 0, {**labels, **dict(zip(names, words))}
            for limit, count in by_limit(counts):
                sum_so_far += count
                if limit is not None:
                    self.add(f"{role}_latency_seconds", "histogram", sum_so_far, {**words, "le": limit / 1e9}, "_bucket")
            self.add(f"{role}_latency_seconds", "histogram", sum_so_far, {**words, "le": "+Inf"}, "_bucket")
            self.add(f"{role}_latency_seconds", "histogram", sum_so_far, words, "_count")


def escaped(text):
    """A label's value."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def as_metrics(look, root):
    """The lines of the text format; a look of `None` could not be taken."""
    metrics = Metrics()
    metrics.add("up", "gauge", int(look is not None), {})
    metrics.add("info", "gauge", 1, {"version": VERSION, "module_version": module_version(root) or ""})
    for number, one in (look["transports"] if look else {}).items():
        connection = one["connection"]
        labels = {"xprt": number, "server": connection.word("peer")}
        metrics.state("client", connection, labels)
        metrics.add("client_connects_total", "counter", connection.number("connects"), labels)
        metrics.counters("client", one["stats"], labels)
        metrics.latency("client", one["latency"], ("call", "reply"), labels)
        for point in one["mounts"]:
            metrics.add("client_mount", "gauge", 1, {**labels, "mount": point})
    for number, one in (look["connections"] if look else {}).items():
        labels = {"connection": number, "client": one["connection"].word("peer")}
        metrics.state("server", one["connection"], labels)
        metrics.counters("server", one["stats"], labels)
        metrics.latency("server", one["latency"], ("step",), labels)
    for number, one in (look["listeners"] if look else {}).items():
        values = one["listener"]
        labels = {"listener": number, "address": values.get("address", ""), "port": values.get("port", "")}
        metrics.gauges("listener", values, ("connections", "read_pages", "reply_pages"), labels)
        counts = {name: values.number(name) for name in values if name.startswith("ended_") or
                  name in ("accepted", "accept_failures", "rejected", "moves", "starved_grants")}
        metrics.counters("listener", counts, labels)
    return metrics.lines()
