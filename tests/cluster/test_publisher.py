"""The publisher sends again what it must, and its errors are summed. No sockets: the replies are scripted."""

import unittest

from publisher import Publisher, errors_of


class Scripted(Publisher):
    """One that receives these outcomes, an acknowledgement after them."""

    TICK_SECONDS = 0.001

    def __init__(self, outcomes, **options):
        super().__init__("p", [1], ["c"], 500, **options)
        self.outcomes, self.commands = list(outcomes), []

    def request(self, commands):
        self.commands.append(commands[0]["publish"])
        outcome = self.outcomes.pop(0) if self.outcomes else "ok"
        if not self.outcomes:
            self.stopping.set()
        if outcome == "ok":
            return [{"publish": {"offset": len(self.commands), "epoch": "e"}}]
        if outcome == "lost":
            self.errors["TimeoutError"] += 1
            return None
        return [{"error": {"code": 100}}]

    def numbers_sent(self):
        return [command["data"]["s"] for command in self.commands]


class PublisherTest(unittest.TestCase):
    def test_a_refused_number_is_replaced_by_the_next_one(self):
        publisher = Scripted(["ok", "refused", "lost", "ok"])
        publisher.run()
        self.assertEqual(publisher.numbers_sent()[:4], [1, 2, 3, 4])
        self.assertEqual(publisher.unacknowledged, {"c": {2, 3}})
        self.assertTrue(publisher.excuses("c", 2, 3))
        self.assertFalse(publisher.excuses("c", 1, 2))
        self.assertEqual(publisher.errors, {"error 100": 1, "TimeoutError": 1})

    def test_a_repeated_number_keeps_its_key(self):
        publisher = Scripted(["ok", "refused", "lost", "ok"], repeat_seconds=60)
        results = []
        publisher.on_acknowledged = lambda channel, result: results.append((channel, result["offset"]))
        publisher.run()
        self.assertEqual(publisher.numbers_sent()[:4], [1, 2, 2, 2])
        self.assertEqual([command["idempotency_key"] for command in publisher.commands[1:4]], ["p-2"] * 3)
        self.assertEqual(results[:2], [("c", 1), ("c", 4)])
        self.assertEqual((publisher.unacknowledged, publisher.finals()), ({}, publisher.numbers))

    def test_a_number_that_is_never_acknowledged_is_a_failure(self):
        publisher = Scripted(["refused"] * 3, repeat_seconds=-1)
        with self.assertRaisesRegex(AssertionError, "c 1 is refused"):
            publisher.publish()

    def test_errors_are_summed_over_publishers_since_a_time(self):
        publishers = [Scripted([]), Scripted([])]
        for publisher in publishers:
            publisher.errors["503"] += 2
        before = errors_of(publishers)
        publishers[0].errors["503"] += 1
        publishers[1].errors.update({"503": 2, "error 100": 1})
        self.assertEqual(errors_of(publishers), {"503": 7, "error 100": 1})
        self.assertEqual(errors_of(publishers, before), {"503": 3, "error 100": 1})


if __name__ == "__main__":
    unittest.main()
