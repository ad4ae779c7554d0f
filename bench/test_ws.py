"""Tests of the WebSocket part of the harness: what it takes for an answer, counts and judges.

Needs `bench/build.sh client`; asserts nothing about time. bench/smoke.sh runs it.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import answers
import comparison
import loads
import runs
import server as servers
import ws
from comparison import Bar
from test_bench import BIN, script

# A WebSocket echo on $PORT, for whole frames below 65,536 bytes. Each 20th message longer than readiness and check
# have is answered with the fault named by its first argument. With --echo it echoes bytes.
FAULTY = r"""
import base64, hashlib, os, selectors, socket, sys
fault, raw, count = sys.argv[1], "--echo" in sys.argv, 0
listener = socket.create_server(("127.0.0.1", int(os.environ["PORT"])), backlog=4096)
peers, poll = {}, selectors.DefaultSelector()
poll.register(listener, selectors.EVENT_READ)
def header(op, size):
    return bytes([op, size]) if size < 126 else bytes([op, 126, size >> 8, size & 255])
def hang_up(s):
    poll.unregister(s)
    del peers[s]
    s.close()
def upgraded(s, data):
    key = [l.split()[1] for l in data.split(b"\r\n") if l.lower().startswith(b"sec-websocket-key:")][0]
    accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    if fault == "accept":
        accept = accept.lower()
    status = b"403 Forbidden" if fault == "refuse" else b"101 Switching Protocols"
    s.sendall(b"HTTP/1.1 " + status + b"\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + accept + b"\r\n\r\n")
def message(data):
    "(first byte, payload, bytes of the frame), None while it is not whole"
    if len(data) < 2:
        return None
    size, at = data[1] & 127, 2
    if size == 126:
        size, at = int.from_bytes(data[2:4], "big"), 4
    if len(data) < at + 4 + size:
        return None
    key, body = data[at:at + 4], data[at + 4:at + 4 + size]
    whole = int.from_bytes(body, "big") ^ int.from_bytes((key * (size // 4 + 1))[:size], "big")
    return data[0], whole.to_bytes(size, "big"), at + 4 + size
while True:
    for chosen, _ in poll.select():
        s = chosen.fileobj
        if s is listener:
            s, _ = listener.accept()
            peers[s] = None
            poll.register(s, selectors.EVENT_READ)
            continue
        try:
            data = s.recv(65536)
            if not data:
                hang_up(s)
                continue
            if raw:
                s.sendall(data)
                continue
            if peers[s] is None:
                upgraded(s, data)
                peers[s] = b""
                continue
            peers[s] += data
            while found := message(peers[s]):
                op, body, taken = found
                peers[s] = peers[s][taken:]
                count += len(body) == 512
                out = header(op, len(body)) + body
                if len(body) == 512 and count % 20 == 0:
                    if fault == "flip":
                        out = out[:40] + bytes([out[40] ^ 1]) + out[41:]
                    elif fault == "text":
                        out = bytes([0x81]) + out[1:]
                    elif fault == "more":
                        out += header(0x89, 0)
                    elif fault == "silent":
                        continue
                    elif fault == "close":
                        hang_up(s)
                        break
                s.sendall(out)
        except OSError:
            if s in peers:
                hang_up(s)
"""


def faulty(fault):
    """The command of a WebSocket echo with one fault."""
    return [sys.executable, "-c", FAULTY, fault]


def client(fault, *options):
    """The lean client's figures: 20 connections, 512 bytes, every message verified."""
    with servers.Server(faulty(fault), ready=ws.ready) as server:
        arguments = [BIN / "lg", f"-p{server.port}", "-W512", "-r/ws", "-c20", "-k1", "-w0.1", "-d0.4", *options]
        out = subprocess.run(arguments, check=True, capture_output=True, text=True, timeout=60).stdout
    return loads.lg_figures(out.splitlines()[-1])


class Answers(unittest.TestCase):
    def test_a_right_echo(self):
        with servers.Server(faulty("none"), ready=ws.ready) as server:
            answers.check_websocket(server.port, "/ws")

    def test_wrong_upgrades(self):
        for fault in ("accept", "refuse"):
            with self.subTest(fault), servers.Server(faulty(fault), ready=ws.ready) as server:
                with self.assertRaisesRegex(answers.WrongAnswer, "expected 101"):
                    answers.check_websocket(server.port, "/ws")

    def test_an_echo_that_is_none(self):
        with servers.Server([str(BIN / "floor"), "epoll"]) as server, self.assertRaises(answers.WrongAnswer):
            answers.check_websocket(server.port, "/ws")


class LoadClient(unittest.TestCase):
    def test_closed_loop(self):
        f = client("none")
        self.assertGreater(f["n"], 0)
        self.assertEqual((f["errs"], f["live"]), (0, 20), f)

    def test_reconnects_upgrade_again(self):
        f = client("none", "-n5", "-s127.0.0.2-127.0.0.4")
        self.assertEqual(f["errs"], 0, f)
        self.assertGreater(f["reconnects"], 20, f)

    def test_wrong_messages_count(self):
        for fault in ("flip", "text", "more"):
            with self.subTest(fault):
                self.assertGreater(client(fault)["mismatched"], 0)

    def test_lost_and_silent_connections_count(self):
        for fault, key, options in (("close", "lost", ()), ("silent", "silent", ("-w0", "-d1.5"))):
            with self.subTest(fault):
                f = client(fault, *options)
                self.assertGreater(f[key], 0, f)
                self.assertEqual(f["errs"], f[key], f)

    def test_a_refused_upgrade_is_code_2(self):
        for fault in ("refuse", "accept"):
            with self.subTest(fault), servers.Server(faulty(fault), ready=ws.ready) as server:
                arguments = [BIN / "lg", f"-p{server.port}", "-W512", "-c2"]
                r = subprocess.run(arguments, capture_output=True, text=True, timeout=60)
                self.assertEqual(r.returncode, 2, r.stdout)
                self.assertRegex(r.stderr, r"^set-up: 0 of 2 .*Protocol error\n$")

    def test_options_that_exclude_each_other(self):
        r = subprocess.run([BIN / "lg", "-p1", "-W512", "-P2"], capture_output=True, text=True, timeout=60)
        self.assertEqual((r.returncode, r.stdout), (2, ""))
        self.assertIn("-W excludes", r.stderr)


class Loads(unittest.TestCase):
    LOAD = loads.Load("/ws", bytes=512, connections=500, websocket=True)

    def test_each_client_is_told(self):
        self.assertEqual(loads.lg_command("lg", self.LOAD, 80, 1.0, 0.5), ["lg", "-p80", "-d1.0", "-w0.5", "-c500", "-W512", "-r/ws"])
        self.assertEqual(loads.bench_command("r", self.LOAD, 80, 1, 1, 0)[-3:], ["--echo", "512", "ws://127.0.0.1:80/ws"])


class Bars(unittest.TestCase):
    """Tables and verdicts from figures made up."""

    CELL = ws.Cell("ws", 512, 500)

    def results(self, **figures):
        return {name.replace("_", "-"): {self.CELL: {n: {"us_per_message": us} for n, us in enumerate(found)}}
                for name, found in figures.items()}

    def test_met_missed_and_not_judged(self):
        results = self.results(a=[1.0, 1.1, 1.0], b=[1.0, 1.0, 1.0])
        bars = [Bar("ws", "a", "b", 1.10), Bar("ws", "b", "a", 0.5), Bar("ws", "a", "c", 1.0)]
        lines, missed = comparison.bar_table(bars, results, ["c"])
        text = "\n".join(lines)
        self.assertEqual(missed, 1, text)
        self.assertRegex(text, r"a / b \| ws \| 500: 1\.000 \| \*\*1\.000\*\* .* <= 1\.10 \| met")
        self.assertRegex(text, r"b / a .* <= 0\.50 \| \*\*missed\*\*")
        self.assertIn("Not judged, since not both were measured: a / c (ws).", text)
        self.assertIn("Not here, so not compared: c.", text)

    def test_unchanged_means_that_the_interval_reaches_one(self):
        unchanged = Bar("plain", "a", "b", None)
        for value, low, high, met, said in ((1.02, 0.99, 1.05, True, "met"), (1.02, 1.01, 1.05, False, "**missed**"),
                                            (0.9, 0.8, 0.95, True, "met: it has become less")):
            self.assertEqual(comparison.judge(unchanged, value, low, high), (met, said))

    def test_versions_are_those_of_the_lock_file(self):
        self.assertRegex(" ".join(comparison.locked_versions({"fastwebsockets"})), r"^fastwebsockets \d+\.\d+\.\d+$")


class Comparison(unittest.TestCase):
    def test_a_short_cell_of_everything_that_is_ours(self):
        with tempfile.TemporaryDirectory() as folder:
            # Stands in for the product, behind its command line.
            ours, code, raw = (pathlib.Path(folder, name) for name in ("ours", "code.py", "raw.jsonl"))
            code.write_text(FAULTY)
            ours.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{code}" none "$@"\n')
            ours.chmod(0o755)
            names = ["ours-uring", "ours-epoll", "echo-uring", "echo-epoll"]
            r = script("ws.py", "--ours", ours, "--only", *names, "--cells", "512x20", "--pairs", 1, "--client-kind", "lg",
                       "--secs", 0.4, "--warm", 0.1, "--raw", raw)
            self.assertIn(r.returncode, (0, 1), r.stderr)  # one pair may miss a bar
            found = [json.loads(line) for line in raw.read_text().splitlines()]
        self.assertEqual(sorted(x["server"] for x in found), sorted(names), r.stderr)
        for x in found:
            self.assertEqual(x["errs"], 0, x)
            self.assertGreater(x["us_per_message"], 0, x)
        self.assertIn("| ours-uring / echo-uring | ws |", r.stdout)
        self.assertIn("Not judged, since not both were measured: ours-uring / fastwebsockets (ws).", r.stdout)

    def test_a_missing_binary_says_what_to_do(self):
        r = script("ws.py", "--ours", "/nonexistent/ringmain", "--only", "ours-uring")
        self.assertEqual(r.returncode, 2)
        self.assertIn("ours-uring: no program at /nonexistent/ringmain: run cargo build", r.stderr)


if __name__ == "__main__":
    unittest.main()
