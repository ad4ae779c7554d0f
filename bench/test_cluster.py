"""How cluster.py reads its figures and compares them, with planted faults. Needs nothing that is built."""

import contextlib
import io
import os
import threading
import time
import unittest

import cluster


class Payloads(unittest.TestCase):
    def test_a_payload_is_what_bench_push_expects(self):
        text = cluster.payload(3, 17)
        self.assertEqual(len(text), cluster.SIZE)
        self.assertTrue(text.startswith('{"b":"000000070000000300000011'), text)

    def test_a_request_has_every_publication(self):
        system = cluster.Ours.__new__(cluster.Ours)
        path, body = system.request([("s1", cluster.payload(1, 1)), ("s2", cluster.payload(2, 1))])
        self.assertEqual(path, "/api/batch")
        self.assertEqual([each["publish"]["channel"] for each in cluster.json.loads(body)["commands"]], ["s1", "s2"])

    def test_a_batch_with_an_error_is_not_accepted(self):
        system = cluster.Ours.__new__(cluster.Ours)
        self.assertEqual(system.accepted(b'{"replies":[{"publish":{}},{"publish":{}}]}'), 2)
        self.assertEqual(system.accepted(b'{"replies":[{"publish":{}},{"error":{"code":100}}]}'), 0)


class Cpu(unittest.TestCase):
    def test_time_is_counted_by_thread(self):
        before = cluster.threads(os.getpid())
        thread = threading.Thread(target=lambda: sum(number * number for number in range(2_000_000)))
        thread.start()
        thread.join()
        # The time of a thread that is over is not in /proc any more: of living ones only.
        busy = time.process_time() + 0.1
        while time.process_time() < busy:
            pass
        after = cluster.threads(os.getpid())
        self.assertGreater(sum(after.values()) - sum(before.values()), 0.09)


class Ratios(unittest.TestCase):
    def results(self, turns):
        results = cluster.Results()
        with contextlib.redirect_stdout(io.StringIO()):
            for cell, name, value in turns:
                results.add(cell, name, {"a ringmain": value * 0.75, "b ringmain": value * 0.25})
        return results

    def report(self, turns):
        out = io.StringIO()
        results = self.results(turns)
        with contextlib.redirect_stdout(out):
            missed = cluster.report(results)
        return missed, out.getvalue()

    def test_ratios_are_of_the_same_round(self):
        # Of medians it would be 20 / 50.
        turns = [("crossing", "ringmain", value) for value in (10, 20, 30)] + [("crossing", "centrifuge", value) for value in (50, 40, 120)]
        self.assertEqual(self.results(turns).ratio("crossing", "ringmain", "centrifuge"), (0.25, 0.2, 0.5))

    def test_a_bar_that_is_met(self):
        missed, text = self.report([("crossing", "ringmain", 10), ("crossing", "centrifuge", 40)])
        self.assertEqual(missed, 0)
        self.assertIn("crossing, of the peer: 0.250 (0.250 to 0.250), bar 0.4: met", text)

    def test_a_bar_that_is_missed(self):
        missed, text = self.report([("hop x1", "near", 10), ("hop x1", "far", 12)])
        self.assertEqual(missed, 1)
        self.assertIn("hop x1, far of near: 1.200 (1.200 to 1.200), bar 1.15: missed", text)

    def test_what_has_no_bar_misses_none(self):
        missed, text = self.report([("crossing kept", "ringmain", 40), ("crossing kept", "centrifuge", 40)])
        self.assertEqual(missed, 0)
        self.assertIn("crossing kept, of the peer: 1.000 (1.000 to 1.000)\n", text)

    def test_rounds_alternate(self):
        self.assertEqual([cluster.turn_order(turn, [1, 2, 3]) for turn in range(2)], [[1, 2, 3], [3, 2, 1]])


if __name__ == "__main__":
    unittest.main()
