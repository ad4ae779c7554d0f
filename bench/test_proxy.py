"""Tests of the proxy part of the harness: what is compared, the rate that follows, what a proxy adds, the bars.

The bare relay is asked if `bench/build.sh client floor` has built it. Asserts nothing about time. bench/smoke.sh runs it.
"""

import os
import subprocess
import unittest

import answers
import loads
import proxy
import server as servers
from comparison import Subject
from test_bench import BIN

LATENCY = proxy.Cell("latency", 64, 1000)


def of_rounds(cell, key, values, **more):
    """Results of one server: these values of a figure, round by round."""
    return {cell: {number: {key: value, "errs": 0, **more} for number, value in enumerate(values)}}


class Rates(unittest.TestCase):
    def test_half_of_what_the_slowest_carries(self):
        cell = proxy.Cell("closed-64", 64)
        results = {name: of_rounds(cell, "rps", values)
                   for name, values in (("ours-uring", [50_000, 52_000, 9]), ("caddy", [8000, 8200, 7000]), ("relay-uring", [1, 1, 1]))}
        chosen = {"ours-uring": Subject("ours", []), "caddy": Subject("peer", []), "relay-uring": Subject("floor", [])}
        self.assertEqual(proxy.half_knee(results, chosen), (4000, "caddy"))

    def test_no_rate_without_figures(self):
        with self.assertRaises(servers.ServerError):
            proxy.half_knee({}, {})


class Latency(unittest.TestCase):
    def setUp(self):
        more = {"sched_p50_us": 1, "sched_p999_us": 3, "us_per_message": 4}
        self.results = {name: of_rounds(LATENCY, "sched_p99_us", values, **more)
                        for name, values in (("direct", [100, 110, 90]), ("ours-uring", [200, 230, 180]), ("nginx", [300, 310, 290]))}
        self.chosen = {"direct": Subject("direct", []), "ours-uring": Subject("ours", []), "nginx": Subject("peer", [])}

    def test_added_is_by_round(self):
        self.assertEqual(proxy.added(self.results, "ours-uring", LATENCY), {0: 100, 1: 120, 2: 90})

    def test_lowest_of_all(self):
        lines, missed = proxy.latency_table(LATENCY, self.results, self.chosen)
        self.assertEqual(missed, 0)
        self.assertIn("| ours-uring | ours | **100** |", "\n".join(lines))
        self.results["nginx"] = of_rounds(LATENCY, "sched_p99_us", [150, 150, 150], sched_p50_us=1, sched_p999_us=1, us_per_message=1)
        lines, missed = proxy.latency_table(LATENCY, self.results, self.chosen)
        self.assertEqual(missed, 1)
        self.assertIn("**missed**", "\n".join(lines))


class Subjects(unittest.TestCase):
    def test_settings_are_there_and_name_the_ports(self):
        for name, subject in proxy.subjects("ringmain", 4242).items():
            settings = subject.options.get("settings")
            if settings:
                with self.subTest(name):
                    self.assertIn("$PORT", settings.read_text())
                    self.assertIn("$UPSTREAM", settings.read_text())
                    self.assertEqual(subject.options["names"]["$UPSTREAM"], "4242")

    def test_the_bars_are_of_those_that_are_compared(self):
        known = proxy.subjects("ringmain", 1)
        self.assertEqual([bar for bar in proxy.BARS if {bar.ours, bar.other} - set(known)], [])


@unittest.skipUnless((BIN / "floor").exists() and (BIN / "lg").exists(), "no floor and lg: bench/build.sh client floor")
class Relay(unittest.TestCase):
    def test_both_relays_pass_answers_on(self):
        with servers.Server([str(BIN / "floor"), "epoll-http"], ready=proxy.ready) as upstream:
            os.environ["UPSTREAM"] = str(upstream.port)
            for engine in ("uring", "epoll"):
                with self.subTest(engine), servers.Server([str(BIN / "floor"), f"{engine}-relay"], ready=proxy.ready) as relay:
                    answers.check(relay.port, proxy.PATH, date_moves=False)
                    load = loads.Load(proxy.PATH, connections=20)
                    out = subprocess.run(loads.lg_command(str(BIN / "lg"), load, relay.port, 0.3, 0.1), check=True,
                                         capture_output=True, text=True, timeout=60).stdout
                    found = loads.lg_figures(out.splitlines()[-1])
                    self.assertEqual(found["errs"], 0, found)
                    answers.check(relay.port, proxy.PATH, date_moves=False)


if __name__ == "__main__":
    unittest.main()
