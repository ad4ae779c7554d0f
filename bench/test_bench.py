"""Tests of the harness itself: what it counts, what it compares, and that it notices faults.

Needs `bench/build.sh client floor` and `cargo build`; asserts nothing about time. bench/smoke.sh runs it.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import runs
import server as servers
import stats

BENCH = pathlib.Path(__file__).resolve().parent
BIN = servers.PEERS / "bin"
RINGMAIN = servers.TARGET / "debug/ringmain"
FLOOR = [str(BIN / "floor"), "epoll"]

# An echo server on $PORT that answers the harness's short readiness probe as it should, and
# everything longer with the fault named by its argument.
FAULTY = r"""
import os, select, socket, sys
fault, count, held = sys.argv[1], 0, None
listener = socket.create_server(("127.0.0.1", int(os.environ["PORT"])), backlog=4096)
peers, poll = {}, select.poll()
poll.register(listener, select.POLLIN)
def hang_up(fd):
    poll.unregister(fd)
    peers.pop(fd).close()
def receive(peer):
    try:
        return peer.recv(65536)
    except OSError:
        return b""  # a client that gives up resets
def send(peer, data):
    try:
        peer.sendall(data)
    except OSError:
        pass  # it will be found by receiving
while True:
    for fd, _ in poll.poll():
        if fd == listener.fileno():
            peer, _ = listener.accept()
            peers[peer.fileno()] = peer
            poll.register(peer, select.POLLIN)
            continue
        data = receive(peers[fd])
        if not data:
            hang_up(fd)
            continue
        count += len(data) > 6
        to = peers[fd]
        if len(data) > 6 and count % 20 == 0:
            if fault == "flip":
                data = data[:40] + bytes([data[40] ^ 1]) + data[41:]
            elif fault == "close":
                hang_up(fd)
                continue
            elif fault == "more":
                data += b"x"
            elif fault == "silent":
                continue
        if fault == "cross" and len(data) > 6:
            if held is None:
                held = (to, data)
                continue
            send(held[0], data)
            to, data, held = to, held[1], None
        send(to, data)
"""


def faulty(fault):
    """The command of an echo server with one fault."""
    return [sys.executable, "-c", FAULTY, fault]


def client(command, *options):
    """The load client's figures against a server: 20 connections, 64 bytes, all verified."""
    with servers.Server(command) as server:
        arguments = [BIN / "lg", f"-p{server.port}", "-e64", "-c20", "-k1", "-w0.1", "-d0.4", *options]
        out = subprocess.run(arguments, check=True, capture_output=True, text=True, timeout=60).stdout
    return {k: float(v) for k, v in (pair.split("=") for pair in out.splitlines()[-1].split())}


def script(name, *arguments):
    """Runs one of the programs beside this file."""
    command = [sys.executable, BENCH / name, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


class Comparison(unittest.TestCase):
    def test_a_constant_ratio_has_no_width(self):
        ours = {c: {r: 3.0 * (r + 1) for r in range(10)} for c in "abcd"}
        other = {c: {r: 4.0 * (r + 1) for r in range(10)} for c in "abcd"}
        ratios = stats.paired_ratios(ours, other)
        self.assertEqual(stats.median_over_cells(ratios, range(10)), 0.75)
        self.assertEqual(stats.interval(ratios), (0.75, 0.75))

    def test_the_median_is_over_cells_of_medians_over_rounds(self):
        ratios = {"a": {0: 1.0, 1: 2.0, 2: 9.0}, "b": {0: 4.0, 1: 4.0, 2: 4.0}, "c": {0: 0.0, 1: 3.0, 2: 3.0}}
        self.assertEqual(stats.median_over_cells(ratios, [0, 1, 2]), 3.0)

    def test_the_interval_encloses_the_median_and_is_reproducible(self):
        ratios = {c: {r: 1.0 + 0.01 * ((r * 7 + i * 3) % 10) for r in range(10)} for i, c in enumerate("abcd")}
        low, high = stats.interval(ratios)
        self.assertTrue(1.0 <= low < stats.median_over_cells(ratios, range(10)) < high <= 1.09, (low, high))
        self.assertEqual((low, high), stats.interval(ratios))

    def test_a_round_that_failed_anywhere_is_left_out_everywhere(self):
        ours = {"a": {0: 1.0, 1: 1.0}, "b": {0: 1.0, 1: 1.0}}
        other = {"a": {0: 2.0}, "b": {0: 2.0, 1: 2.0}}
        self.assertEqual(stats.paired_ratios(ours, other), {"a": {0: 0.5}, "b": {0: 0.5}})
        self.assertEqual(stats.paired_ratios(ours, {"a": {}, "b": {}}), {})

    def test_verdicts(self):
        self.assertEqual(runs.verdict(1.0, 0.9, 1.05, 1.1), "met")
        self.assertIn("met, but", runs.verdict(1.0, 0.9, 1.2, 1.1))
        self.assertEqual(runs.verdict(1.2, 1.15, 1.3, 1.1), "**missed**")
        self.assertIn("missed**, but", runs.verdict(1.2, 1.0, 1.3, 1.1))


class LoadClient(unittest.TestCase):
    def test_closed_loop(self):
        f = client(FLOOR)
        self.assertGreater(f["n"], 0)
        self.assertEqual((f["errs"], f["live"]), (0, 20), f)

    def test_reconnects_after_k_messages(self):
        f = client(FLOOR, "-n5", "-s127.0.0.2-127.0.0.4")
        self.assertEqual(f["errs"], 0, f)
        # Each TCP connection carries five; those open at either end of the window, fewer.
        self.assertLessEqual(abs(f["n"] - 5 * f["reconnects"]), 5 * 20, f)
        self.assertGreater(f["reconnects"], 20, f)

    def test_a_fixed_rate_is_not_exceeded(self):
        f = client(FLOOR, "-R1000")
        self.assertEqual(f["errs"], 0, f)
        self.assertTrue(0 < f["n"] <= 1000 * (f["secs"] + 0.1) + 20, f)

    def test_a_rate_beyond_the_server_shows_as_missed_schedule(self):
        f = client(FLOOR, "-R10000000")
        self.assertGreater(f["missed"], 0, f)
        self.assertGreater(f["unsent"], 0, f)
        self.assertGreater(f["sched_p50_us"], f["p50_us"], f)

    def test_wrong_content_counts(self):
        for fault in ("flip", "cross", "more"):
            with self.subTest(fault):
                self.assertGreater(client(faulty(fault))["mismatched"], 0)

    def test_lost_connections_count_and_are_redialled(self):
        f = client(faulty("close"))
        self.assertGreater(f["lost"], 0, f)
        self.assertEqual(f["errs"], f["lost"], f)
        self.assertGreater(f["n"], 0, f)

    def test_nobody_listening_is_one_line_and_code_2(self):
        r = subprocess.run([BIN / "lg", f"-p{servers.free_port()}", "-e64"], capture_output=True, text=True, timeout=60)
        self.assertEqual(r.returncode, 2)
        self.assertRegex(r.stderr, r"^set-up: 0 of 64 .*refused\n$")


class Hold(unittest.TestCase):
    def test_several_processes_hold_more_than_one_may(self):
        # A client process takes 700 of these, so there are two; the floor just has room for all.
        r = script("hold.py", "--connections", 750, "--descriptors", 800, "--", *FLOOR)
        self.assertEqual(r.returncode, 0, r.stdout + r.stderr)
        self.assertIn("answered    750 ", r.stdout)
        self.assertIn("2 client processes", r.stdout)

    def test_a_server_at_its_limit_is_told(self):
        r = script("hold.py", "--connections", 300, "--descriptors", 250, "--seconds", 6, "--", *FLOOR)
        self.assertEqual(r.returncode, 1, r.stdout + r.stderr)
        self.assertRegex(r.stdout, r"answered    2[34]\d in .*silent [56]\d\)")
        self.assertIn("alive", r.stdout)

    def test_faults_are_told(self):
        for fault, text in (("flip", "wrong 2,"), ("close", "closed 2,")):
            with self.subTest(fault):
                r = script("hold.py", "--connections", 40, "--seconds", 30, "--", *faulty(fault))
                self.assertEqual(r.returncode, 1, r.stdout + r.stderr)
                self.assertIn(text, r.stdout)
                self.assertIn("answered    38 ", r.stdout)

    def test_a_silent_server_ends_in_time(self):
        r = script("hold.py", "--connections", 40, "--seconds", 3, "--", *faulty("silent"))
        self.assertEqual(r.returncode, 1, r.stdout + r.stderr)
        self.assertIn("silent 2)", r.stdout)

    def test_a_server_that_does_not_start_is_code_2(self):
        r = script("hold.py", "--connections", 40, "--", "false")
        self.assertEqual(r.returncode, 2, r.stdout)
        self.assertIn("exited with 1 at start", r.stderr)


class Echo(unittest.TestCase):
    def test_a_short_cell_of_everything(self):
        for kind in ("bench", "lg"):
            with self.subTest(kind):
                self.short_cell(kind)

    def short_cell(self, kind):
        with tempfile.TemporaryDirectory() as folder:
            # Stands in for the product: the floor behind its command line.
            ours, raw = pathlib.Path(folder, "ours"), pathlib.Path(folder, "raw.jsonl")
            ours.write_text(f'#!/bin/sh\nfor engine; do :; done\nexec "{FLOOR[0]}" "$engine"\n')
            ours.chmod(0o755)
            names = ["floor-uring", "floor-epoll", "ours-uring", "ours-epoll"]
            r = script("echo.py", "--ours", ours, "--only", *names, "--cells", "512x50", "--pairs", 1,
                       "--client", RINGMAIN, "--client-kind", kind, "--secs", 0.5, "--warm", 0.2, "--raw", raw)
            self.assertIn(r.returncode, (0, 1), r.stderr)  # one pair may miss a bar
            runs = [json.loads(line) for line in raw.read_text().splitlines()]
            self.assertEqual(sorted(x["server"] for x in runs), sorted(names), r.stderr)
            for x in runs:
                self.assertEqual(x["errs"], 0, x)
                self.assertGreater(x["us_per_message"], 0, x)
            self.assertIn("| ours-uring / floor-uring |", r.stdout)
            self.assertIn("| ours-epoll / floor-epoll |", r.stdout)

    def test_a_missing_binary_says_what_to_do(self):
        r = script("echo.py", "--ours", "/nonexistent/ringmain")
        self.assertEqual(r.returncode, 2)
        self.assertRegex(r.stderr, r"ours-uring: no program at /nonexistent/ringmain: run cargo build|gnet: no program")


if __name__ == "__main__":
    unittest.main()
