# SPDX-License-Identifier: GPL-2.0
"""All that is known of one transport, listener or connection."""

from .counts import ERRORS, SERVED_ERRORS, SERVED_WAITS, WAITS
from .overview import classes, end_of
from .table import of_rows
from .text import show_age

PERCENTS = (50, 90, 99, 100)


def indented(names, rows, words):
    """A table of which the first `words` columns are texts; nothing without rows."""
    if rows:
        yield from (f"  {line}" for line in of_rows(names, rows, words, 78))


def waiting(connection):
    """The Calls without a Reply."""
    return (f"{connection.number('calls_outstanding')} Calls without a Reply, "
            f"the oldest for {connection.number('oldest_call_ms')} ms")


def latencies(one):
    """The rows of a table of latency, in the kernel's order."""
    return [(*names, str(sum(counts.values())), *classes(counts, PERCENTS))
            for names, counts in one["latency"].items() if sum(counts.values())]


def counted(title, stats, names):
    """Some counters that are not zero."""
    found = [f"{stats[name]} {name}" for name in names if stats.get(name)]
    return f"  {title}: {', '.join(found) or 'none'}"


def by_cause(title, values, prefix):
    """Counters of ends that are not zero."""
    found = [f"{count} {name.removeprefix(prefix)}" for name, count in values.items()
             if name.startswith(prefix) and count]
    return f"  {title}: {', '.join(found) or 'none'}"


def announced(connection, peer):
    """The sizes of messages, and remote invalidation, by what both ends have announced."""
    def get(name):
        return connection.get(name, "-")

    for way, theirs in (("send", "receive"), ("receive", "send")):
        yield (f"  inline {way} {get(f'inline_{way}')}: own {get(f'own_{way}')}, "
               f"{peer}'s {theirs} {get(f'peer_{theirs}')}")
    yield (f"  remote invalidation: own {get('own_remote_invalidation')}, "
           f"{peer} {get('peer_remote_invalidation')}")


def details(number, transport):
    """All that is known of a transport."""
    connection, stats = transport["connection"], transport["stats"]

    def get(name):
        return connection.get(name, "-")

    yield f"transport {number}: {connection.word('peer')} port {get('peer_port')}"
    yield f"  mounts: {', '.join(transport['mounts']) or 'none'}"
    yield f"  {connection.word('state')}; connections so far: {get('connects')}; {waiting(connection)}"
    yield f"  last end: {end_of(connection, 'end')}; last failure: {end_of(connection, 'failure')}"
    if "device" in connection:
        yield (f"  for {show_age(connection.number('age_ms', None))} by {get('device')}/{get('device_port')} from {get('source')} "
               f"port {get('source_port')}, queue pair {get('queue_pair')}, completion queue {get('completion_queue')}")
        yield f"  version {get('version')} ({get('dialect')})"
        yield from announced(connection, "server")
        yield (f"  credits {get('credits_in_use')} in use, {get('credits_granted')} granted, "
               f"{get('credits_requested')} asked for")
        yield (f"  regions of {get('region_pages')} pages ({get('region_type')}): {get('regions_idle')} idle, "
               f"{get('regions_offered')} offered, {get('regions_invalidating')} invalidating")
        yield (f"  posted {get('receives_posted')} of {get('receive_buffers')} Receives, "
               f"{get('sends_posted')} of {get('send_buffers')} Sends")
    yield from indented(("CALL", "REPLY", "RPCS", "P50", "P90", "P99", "MAX"), latencies(transport), 2)
    yield counted("waits", stats, WAITS)
    yield counted("errors", stats, ERRORS)
    yield by_cause("connections ended", stats, "ended_")
    yield by_cause("attempts failed", stats, "connect_failed_")


def served_details(number, one):
    """All that is known of a connection of the server."""
    connection, stats = one["connection"], one["stats"]

    def get(name):
        return connection.get(name, "-")

    yield f"connection {number}: client {get('peer')} port {get('peer_port')}, through listener {get('listener')}"
    yield (f"  {get('state')} for {show_age(connection.number('age_ms', None))} by {get('device')}/{get('device_port')} at "
           f"{get('source')} port {get('source_port')}, queue pair {get('queue_pair')}, "
           f"completion queue {get('completion_queue')}")
    yield f"  version {get('version')} ({get('dialect')}); {waiting(connection)}"
    yield from announced(connection, "client")
    yield (f"  credits {get('calls_outstanding')} in use, {get('credits_granted')} granted of "
           f"{get('credits_requested')} asked for; up to {get('credits_limit')} now, {get('credits_max')} ever")
    yield (f"  posted {get('receives_posted')} of {get('receive_buffers')} Receives; send queue "
           f"{get('send_queue_used')} of {get('send_queue_size')}, {get('send_queue_most')} at most")
    yield (f"  contexts in use: {get('send_contexts_used')} of {get('send_contexts')}, "
           f"{get('send_queue_pending')} chains wait for room; {get('read_pages')} of {get('read_pages_limit')} "
           f"pages under Read, {get('reply_pages')} in Replies")
    rows = []
    for name, count in stats.items():
        if name.endswith("_reply") and "_call_" in name and count:
            rows.append((*name.removesuffix("_reply").split("_call_"), str(count)))
    yield from indented(("CALL", "REPLY", "RPCS"), rows, 2)
    yield from indented(("STEP", "TIMES", "P50", "P90", "P99", "MAX"), latencies(one), 1)
    yield counted("waits", stats, SERVED_WAITS)
    yield counted("errors", stats, SERVED_ERRORS)


def listener_details(number, one):
    """All that is known of a listener."""
    values = one["listener"]
    yield f"listener {number}: {values.get('address', '-')} port {values.get('port', '-')}"
    yield (f"  {values.number('connections')} connections, {values.number('accepted')} accepted, "
           f"{values.number('rejected')} rejected, {values.number('accept_failures')} could not be accepted")
    yield by_cause("connections ended", values, "ended_")
    if "last_end" in values:
        yield f"  last end: {end_of(values, 'end')}"
