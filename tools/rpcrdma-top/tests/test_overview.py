# SPDX-License-Identifier: GPL-2.0
"""The overview: what fits, in which order, and what is escaped."""

import shutil

from rpcrdma_top.text import show_class, show_megabytes, width
from rpcrdma_top.view import Window

from . import Case


class Overview(Case):
    def outage(self, number, age_ms=43_000):
        self.change(f"{number}/connection", "state disconnected", "peer 192.168.100.200", "calls_outstanding 12",
                    f"oldest_call_ms {age_ms}", "last_end no_common_version", "last_end_age_ms 40000")

    def test_80_columns_have_what_an_outage_needs(self):
        self.outage(3)
        lines = self.shown().splitlines()
        self.assertEqual(lines[0].split(), "XPRT SERVER STATE OLDEST MB IN OUT P50 P99 LAST END".split())
        self.assertTrue(all(width(line) <= 80 for line in lines))
        self.assertRegex(lines[1], r"^ +3 192\.168\.100\.200 disconnected +43s of 12 +26 +5\.2 +<34ms <134ms no_common_v\w*~$")

    def test_wider_screens_show_more(self):
        self.outage(3)
        for columns in (70, 75, 79, 80, 81, 90, 100, 110, 120, 132, 160, 200, 250):
            lines = self.shown(columns=columns).splitlines()
            self.assertLessEqual(max(map(width, lines)), max(columns, 72))
        self.assertIn("no_common_version 40s", lines[1])
        for name in ("MOUNTS", "CALLS", "CREDITS", "CONNECTS", "ERRORS", "DEVICE", "REGIONS"):
            self.assertIn(name, lines[0])

    def test_troubled_transports_come_first(self):
        for number in range(4, 40):
            shutil.copytree(self.debugfs / "0", self.debugfs / str(number))
        self.outage(37, 31_000)
        self.outage(38, 6_000)
        lines = self.shown().splitlines()
        self.assertEqual([line.split()[0] for line in lines[1:5]], ["37", "38", "0", "1"])

    def test_classes_are_shown_as_classes(self):
        shown = [show_class(1 << bits) for bits in (10, 20, 22, 27, 30, 34)]
        self.assertEqual(shown, ["<1us", "<1ms", "<4ms", "<134ms", "<1s", "<17s"])
        self.assertEqual(show_class(None), ">17s")
        (self.debugfs / "0/latency").write_text("inline inline inf 1\n")
        self.assertIn(">17s", self.shown("0"))
        (self.debugfs / "0/latency").write_text("")
        self.assertRegex(self.shown("0"), r" - +- +-")

    def test_megabytes(self):
        shown = [show_megabytes(count) for count in (0, 1000, 5_200_000, 9_960_000, 117_000_000, 12_345_000_000)]
        self.assertEqual(shown, ["0", "0.0", "5.2", "10", "117", "12345"])

    def test_each_transport_names_its_own_mounts(self):
        lines = self.shown(columns=120).splitlines()
        for line, point in zip(lines[1:], ("/mnt/nfs", "/mnt/nfs", "/mnt/with space", "/mnt/b")):
            self.assertIn(f"  {point}  ", line)

    def test_mounts_are_found_by_the_server_where_sysfs_is_off(self):
        shutil.rmtree(self.root / "sys/kernel/sunrpc")
        self.assertIn("  mounts: /mnt/nfs, /mnt/b, /mnt/with space\n", self.shown("-d", "0"))

    def test_mount_points_cannot_write_to_the_terminal(self):
        path = self.root / "proc/self/mountinfo"
        evil = rb"/mnt/a\040b\134\012" + b"\x1b[31m\xff\xe2\x80\xae"
        path.write_bytes(path.read_bytes().replace(b"/mnt/b ", evil + b" "))
        self.assertIn("  mounts: /mnt/a b\\\\n\\x1b[31m\\xff\\u202e\n", self.shown("-d", "3"))

    def test_details_fit(self):
        self.outage(3)
        lines = self.shown("-d").splitlines()
        self.assertLessEqual(max(map(width, lines)), 80)
        self.assertIn("  disconnected; connections so far: 1; 12 Calls without a Reply, the oldest for", lines)


class Server(Case):
    recording = "server"

    def test_connections_and_listeners(self):
        self.change("connection-3/connection", "calls_outstanding 4", "oldest_call_ms 7000")
        self.change("listener-1/listener", "last_end timed_out", "last_end_age_ms 65000")
        lines = self.shown().splitlines()
        self.assertTrue(all(width(line) <= 80 for line in lines))
        self.assertRegex(lines[1], r"^ +3 +192\.0\.2\.2 +connected +7s of 4 +5\.2 +26 +<131us +<34ms +0")
        self.assertEqual(lines[5], "")
        self.assertTrue(lines[7].endswith("timed_out 1m ago"))


class Keys(Case):
    def test_lines_that_do_not_fit_are_counted(self):
        window, lines = Window(), [str(number) for number in range(40)]
        self.assertEqual(window.visible(lines, 40), lines)
        self.assertEqual(window.visible(lines, 10)[-1], "-- 31 more (arrows, Page Up, Page Down)")
        for key, first in (("down", "1"), ("page down", "10"), ("k", "9"), ("up", "8"), ("end", "31"), ("j", "31"),
                           ("page up", "22"), ("home", "0"), ("k", "0")):
            window.press(key)
            self.assertEqual(window.visible(lines, 10)[0], first, key)
        window.press("end")
        self.assertEqual(window.visible(lines, 10)[-2:], ["39", "-- the end, 31 above (arrows, Page Up, Page Down)"])

    def test_s_sorts_d_shows_details_and_q_quits(self):
        window, sorts = Window(), []
        for _ in range(5):
            sorts.append(window.sort)
            window.press("s")
        self.assertEqual(sorts, ["trouble", "number", "oldest", "rate", "trouble"])
        window.press("d")
        window.press("x")
        self.assertEqual((window.with_details, window.is_over), (True, False))
        window.press("q")
        self.assertTrue(window.is_over)
