# SPDX-License-Identifier: GPL-2.0
"""Tests of rpcrdma-top, on files that were recorded in the machines of the kselftests: python3 -m unittest here."""

import contextlib
import io
import os
import pathlib
import tempfile
import unittest
from unittest import mock

from rpcrdma_top.main import main

HERE = pathlib.Path(__file__).resolve().parent


def unpack(name, root):
    """Makes a copy of /sys and /proc of a recording: "== FILE", "-> LINK TARGET" and "// FOLDER"."""
    files = {}
    for line in (HERE / "recorded" / f"{name}.txt").read_text().splitlines()[1:]:
        kind, path, *target = line.split(" ") if line[:3] in ("== ", "-> ", "// ") else ("", "")
        if not kind:
            files[path_of_file].append(line + "\n")
            continue
        path = root / path
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "==":
            path_of_file = path
            files[path] = []
        elif kind == "->":
            path.symlink_to(target[0])
        else:
            path.mkdir()
    for path, lines in files.items():
        path.write_text("".join(lines))


class Case(unittest.TestCase):
    """A test with a copy, and a screen of 80 columns."""

    recording = "client"

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        unpack(self.recording, self.root)
        self.debugfs = self.root / "sys/kernel/debug/rpcrdma"
        environment = mock.patch.dict(os.environ, {"COLUMNS": "80", "LINES": "24"})
        environment.start()
        self.addCleanup(environment.stop)

    def run_top(self, *words, columns=80):
        """The exit status, the output and the errors of a command."""
        os.environ["COLUMNS"] = str(columns)
        output = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()) as errors:
            status = main(["--root", str(self.root), *words])
        return status, output.buffer.getvalue().decode(), errors.getvalue()

    def shown(self, *words, columns=80):
        """The output of a command that succeeds."""
        status, output, errors = self.run_top(*words, columns=columns)
        self.assertEqual((status, errors), (0, ""))
        return output

    def change(self, path, *changes):
        """Replaces the values of lines of a file below the module's folder, or adds lines."""
        file = self.debugfs / path
        lines = dict(line.split(" ", 1) for line in file.read_text().splitlines())
        lines.update(change.split(" ", 1) for change in changes)
        file.write_text("".join(f"{name} {value}\n" for name, value in lines.items()))
