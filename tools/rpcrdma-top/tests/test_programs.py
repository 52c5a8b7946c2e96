# SPDX-License-Identifier: GPL-2.0
"""What programs read: JSON, Prometheus' text format, --check and --report."""

import datetime
import json
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
from unittest import mock

from rpcrdma_top import VERSION

from . import HERE, Case

SAMPLE = re.compile(r'(rpcrdma_[a-z0-9_]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\.)*",?)+)\})? ([0-9.]+)')


class Json(Case):
    def test_one_look_has_time_host_and_versions(self):
        look = json.loads(self.shown("-j"))
        self.assertEqual((look["host"], look["version"]), (os.uname().nodename, VERSION))
        self.assertEqual(look["module_version"], (self.root / "sys/module/rpcrdma/version").read_text().strip())
        self.assertIsNotNone(datetime.datetime.fromisoformat(look["time"]).tzinfo)
        self.assertEqual([one["mounts"] for one in look["transports"]],
                         [["/mnt/nfs"], ["/mnt/nfs"], ["/mnt/with space"], ["/mnt/b"]])
        for one in look["transports"]:
            folder = self.debugfs / str(one["xprt"])
            for name in ("connection", "stats"):
                lines = [f"{key} {value}" for key, value in one[name].items()]
                self.assertEqual(lines, (folder / name).read_text().splitlines())

    def test_with_an_interval_each_look_is_a_line(self):
        waits = [None, None, KeyboardInterrupt]
        with mock.patch("time.sleep", side_effect=waits) as sleep:
            lines = self.shown("-j", "-i", "7").splitlines()
        self.assertEqual([json.loads(line)["transports"][0]["xprt"] for line in lines], [0, 0, 0])
        sleep.assert_called_with(7.0)


class Prometheus(Case):
    def samples(self):
        types, samples = {}, {}
        for line in self.shown("--prometheus").splitlines():
            if line.startswith("# TYPE "):
                name, kind = line.split()[2:]
                # All samples of a metric come together.
                self.assertNotIn(name, types)
                types[name] = kind
                continue
            found = SAMPLE.fullmatch(line)
            self.assertTrue(found and (found[1] == name or kind == "histogram"), line)
            self.assertNotIn(line.rsplit(" ", 1)[0], samples)
            samples[line.rsplit(" ", 1)[0]] = float(found[3])
        return samples

    def test_the_text_is_well_formed(self):
        path = self.root / "proc/self/mountinfo"
        path.write_text(path.read_text().replace("/mnt/b ", '/mnt/"a\\134\\012b" '))
        self.change("3/connection", "state connecting", "calls_outstanding 2", "oldest_call_ms 1500")
        self.change("3/stats", "ended_rpc_timeout 4")
        samples = self.samples()
        labels = 'xprt="3",server="192.0.2.1"'
        for name, value in ((f"client_connected{{{labels}}}", 0), (f"client_oldest_call_seconds{{{labels}}}", 1.5),
                            (f"client_calls_outstanding{{{labels}}}", 2), ("up", 1),
                            (f'client_ends_total{{{labels},cause="rpc_timeout"}}', 4),
                            (f'client_mount{{{labels},mount="/mnt/\\"a\\\\\\nb\\""}}', 1)):
            self.assertEqual(samples["rpcrdma_" + name], value)

    def test_buckets_are_cumulative(self):
        (self.debugfs / "0/latency").write_text("inline inline 1024 3\ninline inline 4096 2\ninline inline inf 1\n")
        samples = self.samples()
        words = 'xprt="0",server="192.0.2.1",call="inline",reply="inline"'
        name = "rpcrdma_client_latency_seconds"
        buckets = [samples[f'{name}_bucket{{{words},le="{limit}"}}'] for limit in ("1.024e-06", "4.096e-06", "+Inf")]
        self.assertEqual((buckets, samples[f"{name}_count{{{words}}}"]), ([3, 5, 6], 6))

    def test_a_module_that_cannot_be_read_is_down(self):
        shutil.rmtree(self.debugfs)
        self.assertIn("rpcrdma_up 1\n", self.shown("-p"))
        (self.root / "sys/module/rpcrdma/version").unlink()
        status, output, errors = self.run_top("-p")
        self.assertEqual((status, output.splitlines()[1]), (0, "rpcrdma_up 0"))
        self.assertIn("the kernel's own module", errors)


class PrometheusOfServer(Prometheus):
    recording = "server"

    def test_the_text_is_well_formed(self):
        samples = self.samples()
        self.assertEqual(samples['rpcrdma_listener_connections{listener="1",address="0.0.0.0",port="20049"}'], 4)
        self.assertEqual(samples['rpcrdma_server_calls_outstanding{connection="3",client="192.0.2.2"}'], 0)

    test_buckets_are_cumulative = None


class Check(Case):
    def check(self, status, line):
        found = self.run_top("--check")
        self.assertEqual(found, (status, line + "\n", ""))

    def test_all_is_well(self):
        self.check(0, "OK: 4 transports, 0 connections of clients, and no Call has waited for 5 s")
        self.change("0/connection", "state disconnected", "last_end closed", "last_end_age_ms 9000")
        self.check(0, "OK: 4 transports, 0 connections of clients, and no Call has waited for 5 s")

    def test_a_call_that_waits(self):
        self.change("1/connection", "calls_outstanding 3", "oldest_call_ms 5000")
        self.check(1, "WARNING: transport 1 to 192.0.2.1: a Call has waited for 5s, of 3 without a Reply; connected")
        self.change("2/connection", "calls_outstanding 1", "oldest_call_ms 90000", "state connecting",
                    "last_failure unreachable", "last_failure_age_ms 3000")
        self.check(2, "CRITICAL: transport 2 to 192.0.2.1: a Call has waited for 1m, of 1 without a Reply; connecting; "
                   "unreachable 3s ago (and 1 more)")

    def test_a_connection_that_ended(self):
        self.change("0/connection", "last_end disconnected", "last_end_age_ms 299000")
        self.check(1, "WARNING: transport 0 to 192.0.2.1: connected; disconnected 4m ago")
        self.change("0/connection", "last_end_age_ms 300000")
        self.check(0, "OK: 4 transports, 0 connections of clients, and no Call has waited for 5 s")
        self.change("0/connection", "state connecting", "calls_outstanding 1")
        self.check(1, "WARNING: transport 0 to 192.0.2.1: connecting while Calls wait; disconnected 5m ago")

    def test_what_cannot_be_told(self):
        shutil.rmtree(self.root / "sys")
        self.check(2, f"CRITICAL: {self.debugfs} is missing")


class CheckOfServer(Case):
    recording = "server"

    def test_a_call_that_waits(self):
        self.change("connection-4/connection", "calls_outstanding 3", "oldest_call_ms 30000")
        line = "CRITICAL: connection 4 from 192.0.2.2: a Call has waited for 30s, of 3 without a Reply\n"
        self.assertEqual(self.run_top("-c"), (2, line, ""))


class Report(Case):
    def test_it_has_what_a_bug_report_needs(self):
        path = self.root / "report.tar.gz"
        mounts = self.root / "proc/self/mounts"
        mounts.write_text(mounts.read_text() + "secret /home/somebody fuse rw 0 0\n")
        printed = b"rpcrdma: one\nsshd: a secret\n"
        with mock.patch("subprocess.run", return_value=subprocess.CompletedProcess((), 0, stdout=printed)):
            self.assertIn(f"{path}: ", self.shown("--report", str(path)))
        self.assertEqual(path.stat().st_mode & 0o777, 0o600)
        unpacked = self.root / "unpacked"
        with tarfile.open(path) as tar:
            tar.extractall(unpacked, filter="tar")
        (copy,) = unpacked.iterdir()
        self.assertTrue(copy.name.startswith(f"rpcrdma-report-{os.uname().nodename}-"))
        look = self.shown("-d")
        self.root = copy
        self.assertEqual(self.shown("-d"), look)
        self.assertEqual((copy / "commands/kernel-log").read_bytes(), b"rpcrdma: one\n")
        for name in ("rdma-link", "rdma-device", "rdma-resource", "modinfo"):
            self.assertEqual((copy / "commands" / name).read_bytes(), printed)
        self.assertIn(os.uname().release, (copy / "about").read_text())
        self.assertEqual(len(json.loads((copy / "rpcrdma-top.json").read_text())["transports"]), 4)
        for file in ("mounts", "mountinfo"):
            text = (copy / "proc/self" / file).read_text()
            self.assertTrue("proto=rdma" in text and "secret" not in text)

    def test_nothing_is_overwritten(self):
        path = self.root / "report.tar.gz"
        path.write_text("mine")
        status, _, errors = self.run_top("-r", str(path))
        self.assertEqual((status, path.read_text()), (1, "mine"))
        self.assertIn("File exists", errors)

    def test_where_nothing_can_be_read_the_report_says_why(self):
        shutil.rmtree(self.root / "sys")
        path = self.root / "report.tar.gz"
        self.shown("-r", str(path))
        with tarfile.open(path) as tar:
            (name,) = [name for name in tar.getnames() if name.endswith("rpcrdma-top.json")]
            self.assertIn(b"is missing", tar.extractfile(name).read())


class Command(Case):
    def command(self, *words, **options):
        program = HERE.parent / "rpcrdma-top"
        return subprocess.run([str(program), *words], capture_output=True, text=True, timeout=60, check=False, **options)

    def test_it_runs_through_a_link_and_leaves_no_files(self):
        link = self.root / "rpcrdma-top"
        link.symlink_to(HERE.parent / "rpcrdma-top")
        done = subprocess.run([str(link), "--version"], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((done.stdout, done.stderr, done.returncode), (f"rpcrdma-top {VERSION}\n", "", 0))

    def test_options_that_exclude_each_other(self):
        self.assertEqual(self.command("-j", "-c").returncode, 2)
        self.assertEqual(self.command("-i", "0").returncode, 2)
        self.assertEqual(self.command("x").returncode, 2)

    def test_a_reader_that_has_enough(self):
        program = pathlib.Path(HERE.parent / "rpcrdma-top")
        done = subprocess.run(f"{program} --root {self.root} -j -i 0.1 | head -n 1 | wc -l", shell=True, text=True,
                              capture_output=True, timeout=60, check=False)
        self.assertEqual((done.stdout.strip(), done.stderr), ("1", ""))
