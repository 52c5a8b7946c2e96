# SPDX-License-Identifier: GPL-2.0
"""The lines of one view, and the part of them that fits the screen."""

import textwrap

from .details import details, listener_details, served_details
from .overview import SORTS, listener_overview, overview, served_overview
from .text import fit, safe, width

NOTHING = "nothing is mounted or exported over RDMA"


def folded(line, room):
    """A line of the details, or several."""
    line = safe(line)
    if width(line) <= room:
        return [line]
    return [fit(part, room) for part in textwrap.wrap(line, room, subsequent_indent="    ", break_on_hyphens=False)]


def render(look, seconds, room, with_details=False, sort="trouble"):
    """The lines of one view, of at most `room` columns."""
    if not any(look.values()):
        yield NOTHING
        return
    if with_details:
        views = [[part for line in describe(number, one) for part in folded(line, room)]
                 for kind, describe in (("transports", details), ("listeners", listener_details),
                                        ("connections", served_details))
                 for number, one in look[kind].items()]
    else:
        views = [list(overview(look["transports"], seconds, room, sort)) if look["transports"] else [],
                 list(served_overview(look["connections"], seconds, room, sort)) if look["connections"] else [],
                 list(listener_overview(look["listeners"], room)) if look["listeners"] else []]
    for index, view in enumerate(view for view in views if view):
        if index:
            yield ""
        yield from view


class Window:
    """What a user has chosen with keys: where the screen begins, the order, and how much is shown."""

    def __init__(self, with_details=False):
        self.top = 0
        self.sort = SORTS[0]
        self.with_details = with_details
        self.is_over = False
        self.height = 1
        self.count = 0

    def press(self, key):
        """Handles a key by its name."""
        page = max(1, self.height - 1)
        steps = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -page, "page down": page, " ": page,
                 "home": -self.count, "end": self.count}
        if key == "q":
            self.is_over = True
        elif key == "s":
            self.sort = SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)]
            self.top = 0
        elif key == "d":
            self.with_details = not self.with_details
            self.top = 0
        self.top += steps.get(key, 0)

    def visible(self, lines, height):
        """The lines that fit, of which the last says how many there are above and below if some do not."""
        self.count, self.height = len(lines), max(1, height)
        if len(lines) <= self.height:
            self.top = 0
            return lines
        self.top = max(0, min(self.top, len(lines) - self.height + 1))
        shown = lines[self.top:self.top + self.height - 1]
        below = len(lines) - self.top - len(shown)
        parts = [f"{below} more" if below else "the end", f"{self.top} above" if self.top else ""]
        return [*shown, "-- " + ", ".join(part for part in parts if part) + " (arrows, Page Up, Page Down)"]
