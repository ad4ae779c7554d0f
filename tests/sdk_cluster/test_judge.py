"""The judges of kill.py and own.py find what they are for: `python3 -m unittest discover -s tests/sdk_cluster`."""

import collections
import pathlib
import sys
import unittest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent.parent / folder) for folder in ("field", "cluster")]

import kill  # noqa: E402
import own  # noqa: E402
import rig  # noqa: E402


class Received:
    """Clients that have received these numbers."""

    name, clients = "js", []

    def __init__(self, subscriptions, numbers, faults=()):
        self.subscriptions, self.numbers, self.faults = subscriptions, numbers, list(faults)

    def call(self, _):
        return {"faults": self.faults, "counts": {}, "numbers": self.numbers}


class Published:
    errors, slowest = collections.Counter(), 0.0


class KillTest(unittest.TestCase):
    def judge(self, subscription, numbers, last, faults=()):
        return kill.judge([Received([subscription], [numbers], faults)], {subscription[0]: last}, [Published])

    def test_each_publication_once(self):
        figures = self.judge(["plain:0", "plain", -1], [1, 2, 3], 3)
        self.assertEqual((figures["lost"], figures["doubled"], figures["delivered"]), (0, 0, 3))
        self.judge(["tags:0", "tags", 0], [3, 6], 8)

    def test_lost_doubled_reordered_or_foreign(self):
        for numbers, text in (([1, 3], "'lost': 1"), ([1, 2, 3, 3], "'doubled': 1"), ([1, 3, 2], "lacks []"), ([1, 2, 3, 4], "[4]")):
            with self.subTest(numbers), self.assertRaises(rig.Failed) as failed:
                self.judge(["plain:0", "plain", -1], numbers, 3)
            self.assertIn(text, str(failed.exception))
        with self.assertRaises(rig.Failed):
            self.judge(["tags:0", "tags", 0], [3, 4, 6], 8)
        with self.assertRaises(rig.Failed):
            self.judge(["plain:0", "plain", -1], [1, 2, 3], 3, ["the data of 2 is wrong"])

    def test_last_match(self):
        self.assertEqual(kill.last_match(["c", "tags", 0], {"c": 8}), 6)
        self.assertEqual(kill.last_match(["c", "plain", -1], {"c": 8}), 8)
        self.assertEqual(kill.last_match(["c", "tags", 0], {"c": 2}), 0)

    def test_little_differs_between_publications(self):
        one, two = (kill.publication("delta:0", number)["text"].split("\n") for number in (7, 8))
        self.assertEqual(sum(before != after for before, after in zip(one, two)), kill.ROWS // 10)

    def test_every_kind_of_client(self):
        everyone = kill.clients_of("js") + kill.clients_of("go")
        self.assertGreater(len(everyone), 300)
        kinds = {(client["format"], namespace) for client in everyone for _, namespace, _ in client["subscriptions"]}
        self.assertEqual(kinds, {(encoding, namespace) for encoding in ("json", "protobuf") for namespace in kill.CHANNELS})


class OwnTest(unittest.TestCase):
    def judge(self, **outcomes):
        own.REQUIRED["few"] = {"a"}
        outcomes = {("file", title): status for title, status in outcomes.items()}
        return own.judge("few", outcomes, dict.fromkeys(outcomes, "why"))

    def test_expected_outcomes(self):
        self.assertEqual(self.judge(a="passed")["passed"], 1)
        self.assertEqual(self.judge(a="passed", **{"map: x": "pending"}), {"passed": 1, "maps": 1, "skipped": 1})

    def test_unexpected_outcomes(self):
        for outcomes in ({"a": "failed"}, {"a": "passed", "b": "failed"}, {"a": "passed", "b": "pending"}, {"b": "passed"}):
            with self.subTest(outcomes), self.assertRaises(rig.Failed):
                self.judge(**outcomes)

    def test_a_failure_counts_in_spite_of_a_later_pass(self):
        def file(name, *outcomes):
            tests = [{"title": title, "status": status, "failureMessages": [status] if status == "failed" else []} for title, status in outcomes]
            return {"name": f"/tests/{name}", "message": "", "assertionResults": tests}

        same_title = [file("a.test.ts", ("x", "failed")), file("b.test.ts", ("x", "passed"))]
        same_file = [file("a.test.ts", ("x", "failed"), ("x", "passed"))]
        skipped = [file("a.test.ts", ("x", "pending"), ("x", "passed"))]
        for results, worst in ((same_title, "failed"), (same_file, "failed"), (skipped, "pending")):
            with self.subTest(results):
                outcomes, messages = own.read_jest({"testResults": results})
                self.assertEqual(outcomes["a.test.ts", "x"], worst)
                self.assertEqual(messages.keys(), outcomes.keys())
        with self.assertRaises(rig.Failed):
            own.read_jest({"testResults": [file("a.test.ts")]})

    def test_tokens_are_signed_again(self):
        text = "token = 'eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpYXQiOjE3MzgwNzg4MjR9.MTb3higWfFW04E9'"
        again = own.sign_again(text)
        self.assertNotEqual(again, text)
        self.assertTrue(again.startswith(text[:60]))
        self.assertEqual(again, own.sign_again(again))


if __name__ == "__main__":
    unittest.main()
