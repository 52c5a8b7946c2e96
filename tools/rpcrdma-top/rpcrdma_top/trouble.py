# SPDX-License-Identifier: GPL-2.0
"""What is in trouble: for --check, and to have it at the top of the screen."""

from .text import show_age

OK, WARNING, CRITICAL = range(3)
NAMES = ("OK", "WARNING", "CRITICAL")

# How long a Call may wait for its Reply.
SLOW_MS = 5_000
HANGS_MS = 30_000
# For how long the end of a connection matters.
RECENT_MS = 300_000
# Ends that somebody wanted.
WANTED = ("closed",)


def of_waiting(connection):
    """The trouble of Calls that wait for their Replies, at either end."""
    count, age = connection.number("calls_outstanding"), connection.number("oldest_call_ms")
    if not count or age < SLOW_MS:
        return OK, ""
    level = CRITICAL if age >= HANGS_MS else WARNING
    return level, f"a Call has waited for {show_age(age)}, of {count} without a Reply"


def of_transport(one):
    """How bad the state of a transport is, and why."""
    connection = one["connection"]
    state = connection.word("state")
    level, why = of_waiting(connection)
    last = last_cause(connection)
    cause = f"; {last[0]} {show_age(last[1])} ago" if last else ""
    if level:
        return level, f"{why}; {state}{cause}"
    if state != "connected" and connection.number("calls_outstanding"):
        return WARNING, f"{state} while Calls wait{cause}"
    if last and last[0] not in WANTED and last[1] < RECENT_MS:
        return WARNING, f"{state}{cause}"
    return OK, ""


def of_served(one):
    """The same of a connection of the server."""
    return of_waiting(one["connection"])


def last_cause(connection):
    """Why the last connection ended, or the last attempt failed, whichever was later, and how long ago."""
    found = []
    for what in ("end", "failure"):
        if f"last_{what}" in connection:
            found.append((connection.word(f"last_{what}"), connection.number(f"last_{what}_age_ms")))
    return min(found, key=lambda cause: cause[1], default=None)


def check(look):
    """The level of the worst that is found, and one line that says why."""
    found = [(*of_transport(one), f"transport {number} to {one['connection'].word('peer')}")
             for number, one in look["transports"].items()]
    found += [(*of_served(one), f"connection {number} from {one['connection'].word('peer')}")
              for number, one in look["connections"].items()]
    bad = sorted((one for one in found if one[0] != OK), key=lambda one: -one[0])
    if not bad:
        counts = f"{len(look['transports'])} transports, {len(look['connections'])} connections of clients"
        return OK, f"OK: {counts}, and no Call has waited for {SLOW_MS // 1000} s"
    level, why, what = bad[0]
    more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
    return level, f"{NAMES[level]}: {what}: {why}{more}"
