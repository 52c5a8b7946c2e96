# SPDX-License-Identifier: GPL-2.0
"""What the counters mean: sums, differences, and percentiles."""

CALLS = ("inline_calls", "read_chunk_calls", "position_zero_calls")
# Data in and out of this machine.
BYTES_IN = ("delivered_bytes", "fixup_bytes")
BYTES_OUT = ("call_bytes",)
SERVED_BYTES_IN = ("read_bytes",)
SERVED_BYTES_OUT = ("write_bytes", "inline_reply_bytes")
ERRORS = (
    "bad_replies",
    "dropped_messages",
    "failed_requests",
    "backward_overflows",
    "vers_errors_sent",
    "chunk_errors_sent",
    "option_errors_sent",
    "vers_errors_received",
    "chunk_errors_received",
    "option_errors_received",
    "unknown_errors_received",
)
WAITS = ("failed_marshals", "send_queue_full", "regions_exhausted")
SERVED_ERRORS = (
    "excess_calls",
    "refused_messages",
    "vers_errors_sent",
    "chunk_errors_sent",
    "option_errors_sent",
    "garbage_args_sent",
    "failed_requests",
)
SERVED_WAITS = ("send_queue_full",)


def total(stats, names):
    """The sum of some counters."""
    return sum(stats.number(name) for name in names)


def counted_since(now, before):
    """What a transport or connection has counted since an earlier look at it."""
    # Another one may have its number by now.
    if any(count < before["stats"].number(name) for name, count in now["stats"].items()):
        return now
    stats = type(now["stats"])(now["stats"].path, {
        name: count - before["stats"].number(name) for name, count in now["stats"].items()})
    latency = {
        form: {limit: count - before["latency"].get(form, {}).get(limit, 0) for limit, count in counts.items()}
        for form, counts in now["latency"].items()
    }
    return {**now, "stats": stats, "latency": latency}


def changes_since(now, before):
    """A look, with what was counted since an earlier one."""
    def since(kind):
        return {number: counted_since(one, before[kind][number]) if number in before[kind] else one
                for number, one in now[kind].items()}

    return {**now, "transports": since("transports"), "connections": since("connections")}


def by_limit(counts):
    """Classes of latency in order, the one without a limit last."""
    return sorted(counts.items(), key=lambda item: float("inf") if item[0] is None else item[0])


def percentile(counts, percent):
    """The limit of the class, in nanoseconds or `None`, that so many percent of the RPCs do not exceed."""
    rest = sum(counts.values()) * percent
    for limit, count in by_limit(counts):
        rest -= count * 100
        if count and rest <= 0:
            return limit
    return None


def all_forms(latency):
    """The latency of RPCs of every form."""
    sums = {}
    for counts in latency.values():
        for limit, count in counts.items():
            sums[limit] = sums.get(limit, 0) + count
    return sums
