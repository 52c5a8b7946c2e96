# SPDX-License-Identifier: GPL-2.0
"""What is said where there is nothing to read, or nothing good."""

import pathlib
import shutil
from unittest import mock

from rpcrdma_top import VERSION

from . import HERE, Case


class States(Case):
    def why(self, *words):
        status, output, errors = self.run_top(*words)
        self.assertEqual((status, output), (1, ""))
        return errors

    def test_the_modules_own_folder_is_missing(self):
        shutil.rmtree(self.debugfs)
        self.assertEqual(self.shown(), "nothing is mounted or exported over RDMA\n")
        mounts = self.root / "proc/self/mounts"
        mounts.write_text(mounts.read_text().replace(" debugfs ", " tmpfs "))
        self.assertIn("debugfs is not mounted: mount -t debugfs none", self.why())
        (self.root / "sys/module/rpcrdma/version").unlink()
        self.assertIn("the kernel's own module rpcrdma is loaded", self.why())
        (self.root / "sys/module/rpcrdma").rmdir()
        self.assertIn("the module rpcrdma is not loaded", self.why())
        (self.root / "sys/module").rmdir()
        self.assertIn("sys/kernel/debug/rpcrdma is missing", self.why())

    def test_files_that_nobody_may_read(self):
        with mock.patch.object(pathlib.Path, "iterdir", side_effect=PermissionError):
            self.assertIn("can be read by root only", self.why())
            lockdown = self.root / "sys/kernel/security/lockdown"
            lockdown.parent.mkdir()
            lockdown.write_text("none integrity [confidentiality]\n")
            self.assertIn("the kernel is locked down", self.why())

    def test_a_transport_that_is_not_there(self):
        self.assertEqual(self.why("99"), "rpcrdma-top: there is no transport 99\n")
        self.assertEqual(self.why("0", "99"), "rpcrdma-top: there is no transport 99\n")

    def test_one_that_goes_meanwhile_is_left_out(self):
        (self.debugfs / "2/latency").unlink()
        self.assertEqual(len(self.shown().splitlines()), 4)

    def test_damaged_files_give_a_sentence(self):
        for recording, kind in (("client", "0"), ("server", "connection-1"), ("server", "listener-1")):
            self.recording = recording
            self.setUp()
            for file in sorted(path.name for path in (self.debugfs / kind).iterdir()):
                good = (self.debugfs / kind / file).read_bytes()
                for content in (b"", b"\x00", b"state", b"state 5 6\n", b"\xff\xfe x\n", b"inline inline x 1\n",
                                b"executing 1024 -1\n", b"192.0.2.1 closed 1 2 x\n",
                                b"last_end timed_out\n", b"last_end timed_out\nlast_end_age_ms soon\n",
                                "received_messages \u0663\n".encode(), b"credits_granted many\n",
                                b"age_ms " + b"9" * 5000 + b"\n", None):
                    with self.subTest(kind=kind, file=file, content=content and content[:20]):
                        path = self.debugfs / kind / file
                        if content is None:
                            path.unlink()
                            path.mkdir()
                        else:
                            path.write_bytes(content)
                        for words in ((), ("-d",), ("-j",), ("-p",), ("-c",)):
                            status, _, errors = self.run_top(*words)
                            self.assertIn(status, (0, 1, 2))
                            if status == 1:
                                self.assertRegex(errors, r"^rpcrdma-top: .* is damaged: [^\n]*\n$")
                path.rmdir()
                path.write_bytes(good)

    def test_a_damaged_line_is_named(self):
        (self.debugfs / "1/stats").write_text("inline_calls \x1b[2J\n")
        self.assertRegex(self.why(), r"1/stats is damaged: inline_calls is '\\x1b\[2J'\n$")
        (self.debugfs / "1/connection").write_text("peer 192.0.2.1\n")
        (self.debugfs / "1/stats").write_text("")
        self.assertRegex(self.why(), r"1/connection is damaged: it has no line for state\n$")

    def test_the_version_is_that_of_the_package(self):
        changelog = HERE.parents[2] / "debian/changelog"
        self.assertEqual(changelog.read_text().split(")")[0], f"rpcrdma-rust ({VERSION}")
