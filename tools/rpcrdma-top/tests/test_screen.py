# SPDX-License-Identifier: GPL-2.0
"""The program on a terminal."""

import fcntl
import os
import pty
import select
import shutil
import signal
import struct
import sys
import termios
from unittest import mock

from rpcrdma_top.main import main
from rpcrdma_top.read import read_all
from rpcrdma_top.screen import Watch
from rpcrdma_top.view import Window

from . import Case


class Terminal(Case):
    def start(self, term, *words):
        """Starts the program on a terminal of 80 columns and 24 lines."""
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            for name in ("COLUMNS", "LINES"):
                os.environ.pop(name, None)
            os.environ["TERM"] = term
            sys.stdout = open(1, "w")
            # A shell that runs the tests in the background has it ignored.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            # What the parent has to do first.
            os.read(0, 1)
            os._exit(main(["--root", str(self.root), *words]))
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.output = b""
        os.write(self.terminal, b"\n")

    def until(self, text):
        """Reads until this was written."""
        while text not in self.output:
            ready, _, _ = select.select([self.terminal], [], [], 60)
            self.assertTrue(ready, self.output)
            try:
                self.output += os.read(self.terminal, 65536)
            except OSError:
                self.fail(f"it ended after {self.output}")
        seen, self.output = self.output, b""
        return seen

    def ends(self):
        """Reads the rest, and returns the exit status."""
        try:
            while data := os.read(self.terminal, 65536):
                self.output += data
        except OSError:
            pass
        status = os.waitpid(self.pid, 0)[1]
        os.close(self.terminal)
        return os.waitstatus_to_exitcode(status)

    def test_keys(self):
        for number in range(4, 40):
            shutil.copytree(self.debugfs / "0", self.debugfs / str(number))
        self.start("xterm", "-i", "60")
        seen = self.until(b"20 more (arrows")
        self.assertIn(b"q: quit  s: sort  d: details", seen)
        # The last page.
        os.write(self.terminal, b" \x1b[6~\x1bOF")
        self.until(b"the end, 20 above")
        os.write(self.terminal, b"s")
        self.until(b"number")
        os.write(self.terminal, b"d")
        self.until(b"invalidation: own 1")
        os.write(self.terminal, b"q")
        self.assertEqual(self.ends(), 0)

    def test_each_interval_shows_what_happened_in_it(self):
        with mock.patch("time.monotonic", side_effect=(10.0, 12.0)):
            watch = Watch(lambda: read_all(self.root, [3]), 2)
            self.change("3/stats", "delivered_bytes 126214400", "call_bytes 25243720", "inline_calls 146")
            (self.debugfs / "3/latency").write_text("inline inline 262144 103\ninline write 67108864 19\n")
            watch.look()
        lines = watch.lines(Window(), 100)
        self.assertEqual(lines[0].split()[:8], ["XPRT", "SERVER", "STATE", "OLDEST", "MB/s", "IN", "OUT", "P50"])
        self.assertEqual(lines[1].split()[4:8], ["50", "10", "<262us", "<262us"])
        self.assertEqual(lines[1].split()[-3:-1], ["/mnt/b", "50"])

    def test_another_transport_with_the_same_number_is_shown_from_its_start(self):
        with mock.patch("time.monotonic", side_effect=(10.0, 12.0)):
            watch = Watch(lambda: read_all(self.root, [3]), 2)
            self.change("3/stats", "delivered_bytes 2000000", "call_bytes 4000000")
            watch.look()
        lines = watch.lines(Window(), 100)
        self.assertEqual(lines[1].split()[4:6], ["1.0", "2.0"])

    def test_a_terminal_that_can_do_nothing_gets_lines(self):
        for term in ("dumb", "no-such-terminal"):
            self.start(term, "-i", "0.1")
            seen = self.until(b"rpcrdma-top ") + self.until(b"/mnt/b") + self.until(b"rpcrdma-top ")
            self.assertNotIn(b"\x1b", seen)
            self.assertNotIn(b"q: quit", seen)
            os.kill(self.pid, signal.SIGINT)
            self.assertEqual(self.ends(), 0)

    def test_a_sentence_is_seen_after_the_screen_is_gone(self):
        self.start("xterm", "-i", "0.1", "2")
        self.until(b"LAST END")
        shutil.rmtree(self.debugfs / "2")
        self.assertEqual(self.ends(), 1)
        self.assertTrue(self.output.endswith(b"rpcrdma-top: there is no transport 2\r\n"), self.output)
