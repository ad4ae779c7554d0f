"""The client of push.py against the floor, and how its lines are read.

Needs `bench/build.sh client floor`; asserts nothing about time. bench/smoke.sh runs it.
"""

import re
import subprocess
import unittest

import push
import server as servers

CONNECTED = "connected clients=10 subscribed=10 failed=0 seconds=0.01 cpu_us=7.5 memory_bytes=120\n"
RATE = ("rate={rate} published=4 expected=40 received=40 missed={missed} doubled=0 lost=0 p50_ms=0.500 p90_ms=0.600 p99_ms={p99}"
        " p999_ms=1.000 max_ms=1.000 cpu_us=6.250 late_ms=0.0 tail_ms=1{more}\n")


def line(rate=1000, missed=0, p99="0.700", more=""):
    return RATE.format(rate=rate, missed=missed, p99=p99, more=more)


class Lines(unittest.TestCase):
    def test_figures_of_a_rate(self):
        found = push.figures_of("ours", "fan", CONNECTED + line(more=" last_ms=2.25 last_least_ms=1.00 whole=4/4"))
        self.assertEqual(found, {"memory_bytes": 120, "p50_ms": 0.5, "p99_ms": 0.7, "cpu_us": 6.25, "last_ms": 2.25, "missed": 0, "lost": 0})

    def test_no_rate_is_an_error(self):
        with self.assertRaisesRegex(servers.ServerError, "ours in fan gave no figures"):
            push.figures_of("ours", "fan", CONNECTED)

    def test_the_knee_is_the_highest_rate_kept(self):
        text = CONNECTED + line(30_000) + line(35_000, missed=1) + line(38_000) + line(41_000, p99="100.100")
        self.assertEqual(push.knee("ours", text), {"knee": 38_000})
        with self.assertRaisesRegex(servers.ServerError, "keeps none"):
            push.knee("ours", CONNECTED + line(missed=2))


class Floor(unittest.TestCase):
    """Every publication reaches every subscriber of its channel, on one ring and on several."""

    def run_client(self, rings, *words):
        publish = str(servers.free_port())
        command = ["/usr/bin/env", f"PUBLISH={publish}", str(push.BIN / "floor"), "uring-push", rings]
        try:
            server = servers.Server(command, descriptors=1000, ready=push.listens)
            with server:
                done = subprocess.run([str(push.BIN / "fanout"), "-m", "raw", "-p", str(server.port), "-P", publish, "-c", "90", "-k", "3",
                                       "-i", "0", "-w", "0.1", "-d", "1", "-S", str(server.process.pid), *words],
                                      capture_output=True, text=True, timeout=60, check=False)
        except servers.ServerError as e:
            if "set up the ring" in str(e):
                self.skipTest("no io_uring here")
            raise
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_one_channel(self):
        text = self.run_client("1", "-r", "4")
        self.assertRegex(text, "expected=360 received=360 missed=0 doubled=0 lost=0")
        self.assertRegex(text, "whole=4/4")

    def test_channels_over_several_rings(self):
        text = self.run_client("3", "-C", "9", "-r", "900,1800")
        found = re.findall(r"published=(\d+) expected=(\d+) received=(\d+) missed=0 doubled=0 lost=0", text)
        self.assertEqual(found, [("90", "900", "900"), ("180", "1800", "1800")])


if __name__ == "__main__":
    unittest.main()
