# SPDX-License-Identifier: GPL-2.0
"""Shows what happens in each interval: on the whole screen, or where the terminal cannot do that line after line."""

import locale
import os
import shutil
import time

from .counts import changes_since
from .text import fit
from .view import Window, render


class Watch:
    """Looks again and again, and keeps what has changed between the last two looks."""

    def __init__(self, read, interval):
        self.read, self.interval = read, interval
        self.before, self.then = read(), time.monotonic()
        self.changes, self.seconds = self.before, 0

    def wait_ms(self):
        """How long until the next look."""
        return max(0, int((self.then + self.interval - time.monotonic()) * 1000))

    def look(self):
        """The next look."""
        look, now = self.read(), time.monotonic()
        self.changes, self.seconds = changes_since(look, self.before), now - self.then
        self.before, self.then = look, now

    def lines(self, window, room):
        """The lines of the view."""
        return list(render(self.changes, self.seconds, room, window.with_details, window.sort))

    def head(self, window):
        """The first line."""
        return (f"rpcrdma-top {time.strftime('%H:%M:%S')}, every {self.interval:g} s, by {window.sort}   "
                "q: quit  s: sort  d: details")


def has_screen():
    """Whether the terminal can be written to anywhere."""
    if os.environ.get("TERM", "dumb") in ("", "dumb", "unknown"):
        return False
    try:
        import curses
        curses.setupterm()
    except Exception:  # pylint: disable=broad-except # curses.error cannot be named if there is no curses.
        return False
    return True


def watch_lines(watch, window):
    """Prints each view below the last one, until interrupted."""
    while True:
        time.sleep(watch.wait_ms() / 1000)
        watch.look()
        room = shutil.get_terminal_size().columns
        for line in (fit(watch.head(window).split("   ")[0], room), *watch.lines(window, room), ""):
            print(line, flush=True)


def watch_screen(watch, window):
    """Has the whole screen, until the user quits."""
    import curses

    names = {curses.KEY_UP: "up", curses.KEY_DOWN: "down", curses.KEY_PPAGE: "page up", curses.KEY_NPAGE: "page down",
             curses.KEY_HOME: "home", curses.KEY_END: "end"}

    def draw(screen):
        rows, columns = screen.getmaxyx()
        lines = [watch.head(window), "", *window.visible(watch.lines(window, columns), rows - 2)]
        screen.erase()
        for row, line in enumerate(lines[:rows]):
            try:
                screen.addstr(row, 0, fit(line, columns), curses.A_BOLD if row == 0 else curses.A_NORMAL)
            except curses.error:
                # The cursor cannot go behind the last column of the last row.
                pass
        screen.refresh()

    def run(screen):
        curses.use_default_colors()
        try:
            curses.curs_set(0)
        except curses.error:
            pass
        while not window.is_over:
            draw(screen)
            screen.timeout(watch.wait_ms())
            key = screen.getch()
            if key == -1 and watch.wait_ms() == 0:
                watch.look()
            elif key != -1:
                window.press(names.get(key) or (chr(key) if 0 <= key < 128 else ""))

    try:
        locale.setlocale(locale.LC_ALL, "")
    except locale.Error:
        pass
    curses.wrapper(run)


def watch(read, interval, with_details):
    """Shows what happened in each interval, until the user has enough."""
    window = Window(with_details)
    (watch_screen if has_screen() else watch_lines)(Watch(read, interval), window)
