"""Tests of the policies part of the harness: what is counted, what is one request's, the tokens, the bar.

Starts no gateway. Asserts nothing about time. bench/smoke.sh runs it.
"""

import base64
import hashlib
import hmac
import json
import re
import types
import unittest
import unittest.mock

import asking
import loads
import policies
import server as servers


class Counts(unittest.TestCase):
    def test_what_callgrind_says(self):
        said = "==1== \n==1== Events    : Ir\n==1== Collected : 58617182\n==1== \n"
        self.assertEqual(policies.instructions(said), 58617182)

    def test_nothing_counted_is_an_error_that_names_the_function(self):
        for said in ("==1== Collected : 0\n", "valgrind: no such program"):
            with self.assertRaisesRegex(servers.ServerError, re.escape(policies.COUNTED)):
                policies.instructions(said)

    def test_what_happens_once_falls_out(self):
        first, second = {"instructions": 9000 + 70 * 100, "allocations": 5}, {"instructions": 9000 + 70 * 200, "allocations": 5}
        self.assertEqual(policies.each(first, second, 100), {"instructions": 70, "allocations": 0})

    def test_what_the_bare_request_costs_is_taken_away(self):
        args = types.SimpleNamespace(requests=10, first=3)
        asked = []

        def count(_, name, requests, bare):
            asked.append(requests)
            return {"instructions": requests * (100 if bare else 175) + 1, "allocations": requests * (2 if bare else 3) + 7}

        with unittest.mock.patch.object(policies, "count", count):
            self.assertEqual(policies.counts(args, "addresses"),
                             ({"instructions": 75, "allocations": 1}, {"instructions": 100, "allocations": 2}))
            self.assertEqual(asked, [10, 20, 10, 20])
            del asked[:]
            policies.counts(args, "jwt_first_rs256")
            self.assertEqual(asked, [3, 6, 3, 6])

    def test_cpu_is_paired_by_round(self):
        spent = iter([1_000, 4_000, 3_000, 1_000])  # the bare one goes first in every other round
        args = types.SimpleNamespace(program="p", pairs=2, first=1, cpu_requests=2)
        with unittest.mock.patch.object(policies, "run", lambda _: (json.dumps({"cpu_ns": next(spent)}), "")):
            self.assertEqual(policies.cpu(args, "addresses"), [1.5, 1.0])


class Sockets(unittest.TestCase):
    def test_added_is_by_round_and_failed_runs_are_left_out(self):
        cell = policies.Cell("closed-64", 64)
        figures = {"bare-uring": {0: 10, 1: 12, 2: 9}, "three-uring": {0: 11, 2: 11.5}}
        results = {name: {cell: {number: {"us_per_message": value} for number, value in found.items()}} for name, found in figures.items()}
        self.assertEqual(policies.added(results, "uring", cell), [1, 2.5])
        self.assertEqual(policies.added(results, "epoll", cell), [])

    def test_the_bar(self):
        self.assertEqual(policies.judged(1.5), "<= 1.5 us: met")
        self.assertEqual(policies.judged(1.51), "<= 1.5 us: **missed**")

    def test_settings_are_there_and_name_the_ports(self):
        for name, subject in policies.subjects("ringmain", 4242, 4343).items():
            text = subject.options["settings"].read_text()
            self.assertIn("$UPSTREAM", text, name)
            self.assertEqual("$KEYS" in text, name.startswith("three"), name)

    def test_requests_of_the_load_have_the_headers(self):
        load = loads.Load("/", headers=[("X-A", "1"), ("X-B", "2")])
        command = loads.bench_command("ringmain", load, 80, 1, 0, 0)
        self.assertEqual(command[-5:], ["-H", "X-A: 1", "-H", "X-B: 2", "http://127.0.0.1:80/"])


class Tokens(unittest.TestCase):
    def test_signed_by_the_key_that_is_served(self):
        with policies.Keys() as keys:
            (key,) = asking.ask(keys.port, "GET", "/jwks", "localhost").json()["keys"]
        decode = lambda text: base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        head, claims, signature = policies.token().split(".")
        expected = hmac.digest(decode(key["k"]), f"{head}.{claims}".encode(), hashlib.sha256)
        self.assertEqual(decode(signature), expected)
        self.assertEqual(json.loads(decode(head))["kid"], key["kid"])
        self.assertIn("staff", json.loads(decode(claims))["realm_access"]["roles"])


if __name__ == "__main__":
    unittest.main()
