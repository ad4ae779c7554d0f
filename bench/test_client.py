"""Tests of the load clients' side of the harness: what they are told, what is taken from what they
say, and what client.py concludes.

Needs `bench/build.sh client floor` and `cargo build`; asserts nothing about time. wrk is played by a
script. bench/smoke.sh runs it.
"""

import argparse
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import time
import unittest

import client
import loads
import runs
import server as servers
import test_bench
from test_bench import BENCH, BIN, RINGMAIN, script
from test_http import HTTP, faulty

# The document that the product's own tests hold it to.
GOLDEN = (servers.REPO / "crates/load/src/report/json/golden/run.json").read_text()
WRK = """Running 2s test @ http://127.0.0.1:8080/json
  1 threads and 256 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   593.37us    1.77ms  17.11ms   91.73%
    Req/Sec    55.43k     3.90k   57.88k    90.00%
  Latency Distribution
     50%   40.00us
     75%   63.00us
     90%    1.83ms
     99%    9.90ms
  109980 requests in 2.00s, 16.04MB read
Requests/sec:  54973.45
Transfer/sec:      8.02MB
"""
BAD_WRK = WRK.replace("Requests/sec", "  Socket errors: connect 1, read 2, write 3, timeout 4\n"
                      "  Non-2xx or 3xx responses: 50\nRequests/sec")


def golden(change=lambda run: None):
    """The golden document, its run changed by a function of it."""
    document = json.loads(GOLDEN)
    change(document["run"])
    return json.dumps(document)


class Told(unittest.TestCase):
    """What each client is told of a load."""

    def bench(self, load, **more):
        return shlex.join(loads.bench_command("ringmain", load, 8080, 1.5, 0.25, 3, **more))

    def test_a_closed_loop(self):
        load = loads.Load("/json", connections=256, expect="Hello, World!")
        self.assertEqual(
            self.bench(load, server_pid=77, engine="epoll"),
            "ringmain bench --json -q --rounds 1 -d 1500ms -w 250ms -c 256 --cpus 3 --threads 1 --engine epoll --timeout 1s"
            " --server-pid 77 --expect-status 200 --expect-body 'Hello, World!' http://127.0.0.1:8080/json")
        self.assertEqual(shlex.join(loads.lg_command("lg", load, 8080, 1.5, 0.25)), "lg -p8080 -d1.5 -w0.25 -c256 -r/json")
        self.assertEqual(shlex.join(loads.wrk_command("wrk", load, 8080, 1.5)),
                         "wrk -t1 -c256 -d2s --latency http://127.0.0.1:8080/json")

    def test_each_option(self):
        cases = [
            (loads.Load("/a", rate=60_000), "-r 60000", "-R60000"),
            (loads.Load("/a", pipeline=16), "-p 16", "-P16"),
            (loads.Load("/a", reconnect_every=10), "--reconnect-every 10", "-n10"),
            (loads.Load("/a", sources="127.0.0.2-127.0.0.9"), "--source 127.0.0.2-127.0.0.9", "-s127.0.0.2-127.0.0.9"),
            (loads.Load(bytes=512), "--echo 512 tcp://127.0.0.1:8080", "-e512"),
        ]
        for load, bench, lg in cases:
            with self.subTest(load):
                self.assertIn(f" {bench}", self.bench(load))
                self.assertIn(f" {lg}", shlex.join(loads.lg_command("lg", load, 8080, 1, 1)))


class Figures(unittest.TestCase):
    """What is taken from what a client says."""

    def test_an_open_loop(self):
        f = loads.bench_figures(GOLDEN)
        self.assertEqual((f["rps"], f["n"], f["secs"]), (2000.0, 20000, 10.0))
        self.assertEqual((f["p50_us"], f["p99_us"], f["p999_us"]), (5001.215, 5980.159, 6000.639))
        self.assertEqual((f["sched_p50_us"], f["sched_p99_us"], f["sched_max_us"]), (5500.927, 6578.175, 6602.751))
        self.assertEqual((f["missed"], f["unsent"], f["lag_p99_us"]), (0, 0, 23.919))
        self.assertEqual((f["mismatched"], f["lost"], f["connect_errs"], f["silent"], f["errs"]), (10, 2, 3, 0, 15))
        self.assertEqual((f["server_us_per_message"], f["server_cpu_secs"], f["cpu"]), (500.0, 10.0, 8.0))
        self.assertEqual(f["doubts"], ["broken", "connect_errors", "statuses"])

    def test_a_closed_loop_without_a_server_has_no_schedule(self):
        f = loads.bench_figures(golden(lambda run: run["rounds"][0].update(response=None, lag=None, server=None)))
        self.assertFalse([key for key in f if key.startswith(("sched_", "server_", "lag_")) or key in ("missed", "unsent")])

    def test_counts_become_figures(self):
        def change(run):
            run["rounds"][0]["counts"].update(timeouts=7, late=8, dropped=9, broken={"reset": 2, "protocol": 4})

        f = loads.bench_figures(golden(change))
        self.assertEqual((f["silent"], f["missed"], f["unsent"], f["lost"], f["errs"]), (7, 8, 9, 6, 26))

    def test_what_is_no_measurement(self):
        cases = {
            "nothing was answered: ": golden(lambda run: run["rounds"][0].update(service=None)),
            "expected one round, found 2": golden(lambda run: run["rounds"].append(run["rounds"][0])),
            "version 1, found run, version 2": GOLDEN.replace('"version": 1', '"version": 2'),
            "found merged": GOLDEN.replace('"kind": "run"', '"kind": "merged"'),
            "found 'no json'": "no json",
            "KeyError('throughput_per_s')": golden(lambda run: run["rounds"][0].pop("throughput_per_s")),
        }
        for expected, text in cases.items():
            with self.subTest(expected), self.assertRaises(loads.ClientError) as caught:
                loads.bench_figures(text)
            self.assertIn(expected, str(caught.exception))

    def test_wrk(self):
        f = loads.wrk_figures(WRK)
        self.assertEqual((f["n"], f["secs"], f["rps"], f["errs"]), (109_980, 2.0, 54_973.45, 0))
        self.assertEqual((f["p50_us"], f["p99_us"], f["max_us"]), (40.0, 9900.0, 17_110.0))
        self.assertEqual(loads.wrk_figures(BAD_WRK)["errs"], 60)
        self.assertEqual(loads.wrk_figures(WRK.replace("in 2.00s", "in 1.00m"))["secs"], 60.0)
        for text in ("", WRK.replace("     99%", "     98%"), WRK.replace("109980", "0")):
            with self.assertRaises(loads.ClientError):
                loads.wrk_figures(text)

    def test_lg(self):
        self.assertEqual(loads.lg_figures("rps=5 n=10 secs=2.000"), {"rps": 5.0, "n": 10.0, "secs": 2.0})
        for line in ("rps=0 n=0 secs=2.000", "BEGIN", ""):
            with self.assertRaises(loads.ClientError):
                loads.lg_figures(line)


class Bench(unittest.TestCase):
    """The real client, within a run."""

    @staticmethod
    def run_against(command, load, secs=0.4, ready=HTTP.ready("/json")):
        cpus = sorted(os.sched_getaffinity(0))
        args = argparse.Namespace(client=str(RINGMAIN), client_kind="bench", secs=secs, warm=0.1, server_cpu=cpus[0],
                                  load_cpu=cpus[-1])
        return runs.measure(command, load, args, ready=ready)

    def test_figures_of_client_and_server(self):
        floor = [str(BIN / "floor"), "epoll-http"]
        f = self.run_against(floor, loads.Load("/json", connections=20, expect="Hello, World!"))
        self.assertEqual(f["errs"], 0, f)
        for key in ("n", "rps", "p50_us", "us_per_message", "server_cpu", "server_core", "load_core", "peak_bytes", "cpu"):
            self.assertGreater(f[key], 0, key)
        # The server's CPU time is of the client's window, however the samples around it fell.
        self.assertAlmostEqual(f["us_per_message"], f["server_cpu"] * f["secs"] / f["n"] * 1e6, places=3)
        f = self.run_against(floor, loads.Load("/json", connections=20, rate=500, expect="Hello, World!"))
        self.assertEqual(f["errs"], 0, f)
        self.assertGreaterEqual(f["sched_p99_us"], f["p50_us"], f)

    def test_faults_count(self):
        for fault, key in (("status", "mismatched"), ("flip", "mismatched"), ("refuse", "mismatched"), ("close", "lost")):
            with self.subTest(fault):
                f = self.run_against(faulty(fault), loads.Load("/json", connections=20, expect="Hello, World!"))
                self.assertGreater(f[key], 0, f)
                self.assertGreaterEqual(f["errs"], f[key], f)

    def test_faults_of_an_echo_count(self):
        for fault, secs in (("flip", 0.4), ("more", 0.4), ("close", 0.4), ("silent", 1.6)):
            with self.subTest(fault):
                f = self.run_against(test_bench.faulty(fault), loads.Load(bytes=64, connections=20), secs, servers.echoes)
                self.assertGreater(f["errs"], 0, f)

    def test_a_run_without_any_right_answer_is_told_why(self):
        with self.assertRaises(servers.ServerError) as caught:
            self.run_against(test_bench.faulty("cross"), loads.Load(bytes=64, connections=20), ready=servers.echoes)
        self.assertRegex(str(caught.exception), "no response to any of .*echoed other bytes")

    def test_a_client_that_fails_is_told_with_its_words(self):
        with self.assertRaises(servers.ServerError) as caught:
            self.run_against(faulty("status"), loads.Load("/json", connections=20, sources="192.0.2.1"))
        self.assertRegex(str(caught.exception), r"the load client: .*cannot connect to 127\.0\.0\.1:\d+: .*; the server: ")


class Doubts(unittest.TestCase):
    def test_those_of_the_client_are_counted_by_cell(self):
        cell = client.Cell("cost", "floor", 64, 0)
        results = {"a": {cell: {0: {"doubts": ["client_busy", "late"]}, 1: {"doubts": ["client_busy"]}}},
                   "b": {cell: {0: {"doubts": []}, 1: {}}}}
        lines = runs.doubts(results)
        self.assertEqual(len(lines), 2)
        self.assertRegex(lines[0], r"`client_busy` in 2 of 4 runs \(.*\): cost floor 64 0 a 2\.$")
        self.assertEqual(runs.doubts({"b": results["b"]}), [])

    def test_figures_that_are_no_numbers_have_no_median(self):
        self.assertEqual(runs.medians([{"a": 1, "doubts": []}, {"a": 3, "doubts": ["x"]}]), {"a": 2})


class SecondOpinion(unittest.TestCase):
    def test_it_stands_beside_the_median(self):
        cell = HTTP.OPINION
        results = {"hyper": {cell: {0: {"rps": 100.0}, 1: {"rps": 200.0}}}, "axum": {cell: {}}}
        said = {"rps": 75.0, "p50_us": 1.0, "p99_us": 2.0, "errs": 0}
        lines = HTTP.opinion_table(results, {"hyper": said, "axum": said})
        self.assertIn("| hyper | 75 | 150 | 0.500 | 1 | 2 | 0 |", lines)
        self.assertIn("| axum | 75 | failed |  | 1 | 2 | 0 |", lines)
        self.assertEqual(HTTP.opinion_table(results, {}), [])


class Concluded(unittest.TestCase):
    """What client.py says of figures."""

    @staticmethod
    def of(part, target, figures):
        """The results of three rounds with these figures: {client: {figure: value}}."""
        cell = client.Cell(part, target, 64, 0)
        return {name: {cell: {r: dict(f) for r in range(3)}} for name, f in figures.items()}

    def test_a_bar_with_two_ends(self):
        bar = client.Bar("throughput", "go", "a", "b", "rps", 0.97, 1.03)
        self.assertEqual(client.verdict(1.0, 0.98, 1.02, bar), "met")
        self.assertIn("met, but", client.verdict(1.0, 0.98, 1.04, bar))
        self.assertIn("met, but", client.verdict(1.0, 0.96, 1.0, bar))
        self.assertEqual(client.verdict(1.1, 1.05, 1.2, bar), "**missed**")
        self.assertEqual(client.verdict(0.9, 0.8, 0.95, bar), "**missed**")
        self.assertIn("missed**, but", client.verdict(0.9, 0.8, 1.0, bar))

    def test_throughput_is_held_from_both_sides(self):
        for ours, misses in ((100.0, 0), (96.0, 1), (104.0, 1)):
            lines, missed = client.judge_ratios(self.of("throughput", "go", {"bench-uring": {"rps": ours}, "wrk": {"rps": 100.0}}))
            self.assertEqual(missed, misses, lines)
            self.assertEqual(sum("| bench-uring / wrk | throughput | go |" in line for line in lines), 1)

    def test_cost_is_held_from_above(self):
        figures = {"bench-uring": {"client_us": 1.5}, "wrk": {"client_us": 2.1}, "lg": {"client_us": 1.2}}
        lines, missed = client.judge_ratios(self.of("cost", "floor", figures))
        self.assertEqual(missed, 1)
        self.assertIn("| bench-uring / wrk | client CPU per request | floor | **0.714** | 0.714 to 0.714 | 3 | <= 0.75 | met |", lines)
        self.assertIn("| bench-uring / lg | client CPU per request | floor | **1.250** | 1.250 to 1.250 | 3 | <= 1.15 | **missed** |",
                      lines)

    def test_what_was_not_run_has_no_bar(self):
        self.assertEqual(client.judge_ratios(self.of("cost", "floor", {"lg": {"client_us": 1.2}})), ([], 0))

    def test_a_stall_must_show_at_a_rate(self):
        base = {"rps": 200.0, "p50_us": 300.0, "p99_us": 900.0, "max_us": 2e5, "stalls": 10, "stall_secs": 0.2, "errs": 0}
        closed, paced = client.Cell("stall", "go", 16, 0), client.Cell("stall", "go", 16, 200)
        for response, misses in ((190_000.0, 0), (99_000.0, 1), (None, 1)):
            ours = base if response is None else {**base, "sched_p99_us": response, "sched_max_us": 2e5}
            results = {"bench-uring": {closed: {0: base}, paced: {0: ours}}, "wrk": {closed: {0: base}}, "lg": {paced: {}}}
            lines, missed = client.judge_stalls(results)
            self.assertEqual(missed, misses, lines)
            rows = [line for line in lines if line.startswith(("| 200", "| closed"))]
            self.assertEqual([row.split(" | ")[:2] for row in rows],
                             [["| 200", "bench-uring"], ["| 200", "lg"], ["| closed loop", "bench-uring"], ["| closed loop", "lg"],
                              ["| closed loop", "wrk"]])
            self.assertIn("| wrk | 200 | 0.30 | 0.90 | none |", rows[4])

    def test_a_rate_beyond_the_knee_must_be_told_and_one_below_must_not(self):
        base = {"closed_rps": 1000.0, "below_rps": 300.0, "rps": 990.0}
        for beyond, below, misses in ((["late", "rate_missed"], ["late"], 0), (["late"], [], 1), (["rate_missed"], ["rate_missed"], 1)):
            results = self.of("knee", "go", {"bench-uring": {**base, "doubts": beyond, "below_doubts": below}})
            found = {name: {cell: {0: by_round[0]} for cell, by_round in cells.items()} for name, cells in results.items()}
            lines, missed = client.judge_knee(found)
            self.assertEqual(missed, misses, lines)

    def test_the_first_round_alone_has_what_has_no_ratio(self):
        args = argparse.Namespace(part=list(client.CLIENTS), conns=64)
        self.assertEqual({c.part for c in client.plan(0, args)}, set(client.CLIENTS))
        self.assertEqual({c.part for c in client.plan(1, args)}, {"throughput", "cost", "rate"})
        stalls = {c.rate: names for c, names in client.plan(0, args).items() if c.part == "stall"}
        self.assertEqual(list(stalls), [200, 1000, 5000, 0])
        self.assertEqual(("wrk" in stalls[0], "wrk" in stalls[200]), (True, False))


class Stalls(unittest.TestCase):
    @staticmethod
    def state(process):
        return pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2][0]

    def test_a_process_stands_and_goes_on(self):
        with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
            try:
                seen, deadline = set(), time.monotonic() + 30
                with client.Stalls(process.pid) as stalls:
                    while ("T" not in seen or not stalls.lengths) and time.monotonic() < deadline:
                        seen.add(self.state(process))
                self.assertIn("T", seen)
                self.assertGreaterEqual(min(stalls.lengths), client.STALL_SECONDS)
                self.assertNotEqual(self.state(process), "T")
            finally:
                process.kill()

    def test_a_process_that_ended_ends_the_thread(self):
        process = subprocess.Popen(["true"])
        process.wait()
        with client.Stalls(process.pid) as stalls:
            stalls.join(30)
            self.assertFalse(stalls.is_alive())


class Programs(unittest.TestCase):
    """The programs beside this file, with the floor in place of the product and a script in place of wrk."""

    def run_program(self, name, *arguments, wrk=WRK, mode="http"):
        with tempfile.TemporaryDirectory() as folder:
            ours, fake = pathlib.Path(folder, "ours"), pathlib.Path(folder, "wrk")
            ours.write_text(f'#!/bin/sh\nfor engine; do :; done\nexec "{BIN}/floor" "$engine-{mode}"\n')
            fake.write_text(f"#!/bin/sh\ncat <<'END'\n{wrk}END\n")
            for path in (ours, fake):
                path.chmod(0o755)
            raw, environment = pathlib.Path(folder, "raw.jsonl"), dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}")
            command = [sys.executable, BENCH / name, "--ours", ours, "--client", RINGMAIN, "--pairs", "1", "--raw", raw, *arguments]
            r = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
            return r, [json.loads(line) for line in raw.read_text().splitlines()] if raw.exists() else []

    def test_client(self):
        r, found = self.run_program("client.py", "--part", "cost", "--secs", "1", "--warm", "0.1", "--conns", "20")
        self.assertIn(r.returncode, (0, 1), r.stderr)  # a pair may miss a bar
        self.assertEqual(sorted((x["target"], x["server"]) for x in found),
                         sorted((target, name) for target in ("floor", "ours") for name in client.ALL), r.stderr)
        for x in found:
            self.assertEqual(x["errs"], 0, x)
            self.assertGreaterEqual(x["client_us"], 0, x)
        for text in ("| bench-uring / wrk | client CPU per request | floor |", "| bench-uring / lg | client CPU per request | ours |",
                     "### cost: a fast server (ours), 20 connections"):
            self.assertIn(text, r.stdout)

    def test_client_counts_errors(self):
        r, found = self.run_program("client.py", "--part", "cost", "--secs", "1", "--warm", "0.1", "--conns", "20", wrk=BAD_WRK)
        self.assertEqual(r.returncode, 1, r.stderr)
        self.assertEqual({x["errs"] for x in found if x["server"] == "wrk"}, {60})

    def test_client_says_what_is_missing(self):
        for arguments, text in ((["--client", "/nonexistent/ringmain"], "no load client at /nonexistent/ringmain: run cargo build"),
                                (["--ours", "/nonexistent/ringmain"], "ours: no program at /nonexistent/ringmain: run cargo build"),
                                (["--secs", "0.5"], "expected whole seconds"), (["--client-kind", "lg"], "all kinds are compared")):
            with self.subTest(arguments):
                r, _ = self.run_program("client.py", "--part", "cost", *arguments)
                self.assertEqual(r.returncode, 2, r.stderr)
                self.assertIn(text, r.stderr)

    def test_http_has_a_second_opinion(self):
        r, found = self.run_program("http.py", "--only", "floor-epoll", "ours-epoll", "--scenario", "json", "--conns", "256",
                                    "--secs", "0.3", "--warm", "0.1")
        self.assertIn(r.returncode, (0, 1), r.stderr)
        self.assertEqual(sorted(x["server"] for x in found), ["floor-epoll", "ours-epoll"], r.stderr)
        self.assertEqual([x["errs"] for x in found], [0, 0], found)
        self.assertIn("### A second opinion", r.stdout)
        self.assertRegex(r.stdout, r"\| ours-epoll \| 54,973 \| [\d,]+ \| [\d.]+ \| 40 \| 9,900 \| 0 \|")
        self.assertNotRegex(r.stdout, r"\| floor-epoll \| 54,973")

    def test_a_missing_client_says_what_to_do(self):
        for name in ("http.py", "echo.py"):
            with self.subTest(name):
                r = script(name, "--ours", BIN / "floor", "--only", "floor-epoll", "--client", "/nonexistent/ringmain")
                self.assertEqual(r.returncode, 2)
                self.assertIn(f"{name}: no load client at /nonexistent/ringmain: run cargo build", r.stderr)


if __name__ == "__main__":
    unittest.main()
