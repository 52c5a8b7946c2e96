# SPDX-License-Identifier: GPL-2.0
"""One line for each transport, listener and connection."""

from .counts import (
    BYTES_IN,
    BYTES_OUT,
    CALLS,
    ERRORS,
    SERVED_BYTES_IN,
    SERVED_BYTES_OUT,
    SERVED_ERRORS,
    all_forms,
    percentile,
    total,
)
from .table import Column, table
from .text import show_age, show_class, show_megabytes
from .trouble import last_cause, of_served, of_transport

SORTS = ("trouble", "number", "oldest", "rate")


def sorted_by(sort, items, level, names):
    """The items of a kind in the order that the user wants."""
    def key(item):
        number, one = item
        if sort == "trouble":
            return -level(one)[0], number
        if sort == "oldest":
            return -one["connection"].number("oldest_call_ms"), number
        if sort == "rate":
            return -total(one["stats"], names), number
        return 0, number

    return sorted(items.items(), key=key)


def oldest(connection):
    """The age of the oldest Call without a Reply, and how many there are."""
    count = connection.number("calls_outstanding")
    return f"{show_age(connection.number('oldest_call_ms'))} of {count}" if count else "-"


def classes(counts, percents=(50, 99)):
    """Percentiles of a latency."""
    has_any = any(counts.values())
    return [show_class(percentile(counts, percent)) if has_any else "-" for percent in percents]


def rates(stats, names, seconds):
    """Bytes a second, or all of them."""
    return show_megabytes(total(stats, names) / (seconds or 1))


def count(calls, seconds):
    """Calls a second, or all of them."""
    return f"{calls / seconds:.0f}" if seconds else str(calls)


def cause(connection):
    """What ended a connection last, or an attempt, and how long ago."""
    last = last_cause(connection)
    return f"{last[0]} {show_age(last[1])}" if last else "-"


def end_of(values, what):
    """Why a connection ended last, or an attempt failed, and how long ago."""
    if f"last_{what}" not in values:
        return "-"
    return f"{values.word(f'last_{what}')} {show_age(values.number(f'last_{what}_age_ms', None))} ago"


def in_use(values, used, all_of_them):
    """Two numbers of a connection, if there is one."""
    return f"{values.number(used)}/{values.number(all_of_them)}" if all_of_them in values else "-"


def regions(connection):
    """Memory regions that Calls use, and all."""
    if "regions_idle" not in connection:
        return "-"
    used = connection.number("regions_offered") + connection.number("regions_invalidating")
    return f"{used}/{used + connection.number('regions_idle')}"


def overview(transports, seconds, room, sort="trouble"):
    """One line for each transport."""
    items = sorted_by(sort, transports, of_transport, BYTES_IN + BYTES_OUT)
    ones = [one for _, one in items]
    connections, stats = [one["connection"] for one in ones], [one["stats"] for one in ones]
    p50, p99 = zip(*(classes(all_forms(one["latency"])) for one in ones))
    rate, per_second = ("MB/s IN", "/s") if seconds else ("MB IN", "")
    return table([
        Column("XPRT", [str(number) for number, _ in items]),
        Column("SERVER", [one.word("peer") for one in connections], is_text=True, least=15),
        Column("STATE", [one.word("state") for one in connections], is_text=True),
        Column("OLDEST", map(oldest, connections)),
        Column(rate, [rates(one, BYTES_IN, seconds) for one in stats]),
        Column("OUT", [rates(one, BYTES_OUT, seconds) for one in stats]),
        Column("P50", p50),
        Column("P99", p99),
        Column("LAST END", map(cause, connections), is_text=True, least=8),
        Column("MOUNTS", [", ".join(one["mounts"]) or "-" for one in ones], rank=1, is_text=True, least=12),
        Column(f"CALLS{per_second}", [count(total(one, CALLS), seconds) for one in stats], rank=2),
        Column("CREDITS", [in_use(one, "credits_in_use", "credits_granted") for one in connections], rank=3),
        Column("FOR", [show_age(one.number("age_ms", None)) for one in connections], rank=4),
        Column("CONNECTS", [str(one.number("connects")) for one in connections], rank=5),
        Column("ERRORS", [str(total(one, ERRORS)) for one in stats], rank=6),
        Column("DEVICE", [str(one.get("device", "-")) for one in connections], rank=7, is_text=True),
        Column("REGIONS", map(regions, connections), rank=8),
    ], room)


def listener_overview(listeners, room):
    """One line for each listener."""
    values = [one["listener"] for one in listeners.values()]
    return table([
        Column("LISTENER", map(str, listeners)),
        Column("ADDRESS", [str(one.get("address", "-")) for one in values], is_text=True, least=15),
        Column("PORT", [str(one.get("port", "-")) for one in values]),
        Column("CONNS", [str(one.number("connections")) for one in values]),
        Column("ACCEPTED", [str(one.number("accepted")) for one in values]),
        Column("REFUSED", [str(one.number("rejected") + one.number("accept_failures")) for one in values]),
        Column("LAST END", [end_of(one, "end") for one in values], is_text=True, least=9),
    ], room)


def served_overview(served, seconds, room, sort="trouble"):
    """One line for each connection of the server."""
    items = sorted_by(sort, served, of_served, SERVED_BYTES_IN + SERVED_BYTES_OUT)
    ones = [one for _, one in items]
    connections, stats = [one["connection"] for one in ones], [one["stats"] for one in ones]
    p50, p99 = zip(*(classes(one["latency"].get(("executing",), {})) for one in ones))
    rate, per_second = ("MB/s IN", "/s") if seconds else ("MB IN", "")
    return table([
        Column("CONN", [str(number) for number, _ in items]),
        Column("CLIENT", [one.word("peer") for one in connections], is_text=True, least=15),
        Column("STATE", [one.word("state") for one in connections], is_text=True),
        Column("OLDEST", map(oldest, connections)),
        Column(rate, [rates(one, SERVED_BYTES_IN, seconds) for one in stats]),
        Column("OUT", [rates(one, SERVED_BYTES_OUT, seconds) for one in stats]),
        Column("P50", p50),
        Column("P99", p99),
        Column("ERRORS", [str(total(one, SERVED_ERRORS)) for one in stats]),
        Column(f"CALLS{per_second}", [count(one.number("answered_calls"), seconds) for one in stats], rank=1),
        Column("CREDITS", [in_use(one, "calls_outstanding", "credits_granted") for one in connections], rank=2),
        Column("FOR", [show_age(one.number("age_ms")) for one in connections], rank=3),
        Column("RECEIVES", [in_use(one, "receives_posted", "receive_buffers") for one in connections], rank=4),
        Column("SENDS", [in_use(one, "send_queue_used", "send_queue_size") for one in connections], rank=5),
        Column("DEVICE", [str(one.get("device", "-")) for one in connections], rank=6, is_text=True),
    ], room)
