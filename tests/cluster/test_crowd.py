"""The clients of the suite notice what a server does wrong, and the owner of a channel is that of crates/cluster/src/member.rs.

No sockets: messages are handed to a client as if they had arrived.
"""

import collections
import pathlib
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "field"))

import nodes  # noqa: E402
import rig  # noqa: E402
from crowd import Crowd  # noqa: E402


class Publisher:
    """The outcome of one that is over."""

    def __init__(self, unacknowledged=()):
        self.name_, self.acknowledged, self.errors = "p", 1, collections.Counter()
        self.unacknowledged = {"c": set(unacknowledged)} if unacknowledged else {}

    excuses = nodes.Publisher.excuses


class Server:
    """Hands messages to one client with one subscription."""

    def __init__(self, **result):
        self.crowd = Crowd([1], [(["c"], None, 1)])
        self.client = self.crowd.clients[0]
        # Nothing is sent.
        self.crowd.frame = lambda *_: None
        self.client.socket, self.client.state = object(), "greeting"
        self.receive({"id": 1, "connect": {"client": "x"}})
        self.subscribe(**{"epoch": "e", "offset": 0, **result})

    def receive(self, message):
        self.crowd.message(self.client, message, time.monotonic())

    def subscribe(self, **result):
        """Answers the subscription that was requested last."""
        (number,) = self.client.requests
        self.receive({"id": number, "subscribe": result})

    def publish(self, *numbers, offset=None):
        for number in numbers:
            self.receive({"push": {"channel": "c", "pub": publication(number, offset)}})

    def lost_place(self, **result):
        """Unsubscribes the client with 2500, and answers that it has not recovered."""
        self.receive({"push": {"channel": "c", "unsubscribe": {"code": 2500}}})
        self.crowd.subscribe(self.client, self.client.life, self.client.subscriptions["c"])
        self.subscribe(**result)

    def judge(self, **publisher):
        return nodes.judge([self.crowd], [Publisher(**publisher)])


def publication(number, offset=None):
    return {"data": {"p": "p", "s": number, "t": time.monotonic()}, "offset": number if offset is None else offset}


class Faults(unittest.TestCase):
    def check(self, server, text, **publisher):
        with self.assertRaisesRegex(rig.Failed, text):
            server.judge(**publisher)

    def test_all_in_order_is_right(self):
        server = Server()
        server.publish(1, 2, 3)
        self.assertEqual(server.judge()["delivered"], 3)

    def test_a_missing_offset_is_a_fault(self):
        server = Server()
        server.publish(1, 3)
        self.check(server, "the offset 3 after 1")

    def test_a_missing_number_behind_consecutive_offsets_is_lost(self):
        server = Server()
        server.publish(1, offset=1)
        server.publish(3, offset=2)
        self.check(server, r"lost.*\('c', 'p', 2, 2\)")

    def test_numbers_without_an_acknowledgement_may_be_missing(self):
        server = Server()
        server.publish(1, offset=1)
        server.publish(3, offset=2)
        self.assertEqual(server.judge(unacknowledged=[2])["lost"], 0)

    def test_a_repeat_is_a_fault(self):
        server = Server()
        server.publish(1, offset=1)
        server.publish(1, offset=2)
        self.check(server, r"doubled: \[\('c', 'p', 1, 1\)")

    def test_a_gap_after_a_notice_is_not(self):
        server = Server()
        server.publish(1)
        server.lost_place(epoch="f", offset=0)
        server.publish(4, offset=1)
        found = server.judge()
        self.assertEqual((found["unrecovered"], found["missed_with_notice"], found["lost"]), (1, 2, 0))

    def test_a_gap_after_a_false_recovery_is(self):
        server = Server()
        server.publish(1)
        server.lost_place(epoch="e", offset=1, recovered=True)
        server.publish(3)
        self.check(server, "the offset 3 after 1")

    def test_a_recovery_in_another_epoch_is_a_fault(self):
        server = Server()
        server.publish(1)
        server.lost_place(epoch="f", offset=1, recovered=True)
        self.check(server, "recovered, but in the epoch f instead of e")

    def test_a_recovery_that_leaves_out_publications_is_a_fault(self):
        server = Server()
        server.publish(1)
        server.lost_place(epoch="e", offset=3, recovered=True, publications=[publication(3)])
        self.check(server, "the offset 3 after 1")

    def test_a_recovery_to_a_later_position_without_publications_is_a_fault(self):
        server = Server()
        server.publish(1)
        server.lost_place(epoch="e", offset=3, recovered=True)
        self.check(server, "recovered at 3 without the publications after 1")

    def test_the_position_of_a_log_grows_by_other_channels(self):
        server = Server()
        server.crowd.has_holes = True
        server.publish(1)
        server.lost_place(epoch="e", offset=3, recovered=True)
        server.publish(2, offset=7)
        self.assertEqual(server.judge()["lost"], 0)

    def test_a_missing_number_behind_a_position_of_a_log_is_lost(self):
        server = Server()
        server.crowd.has_holes = True
        server.publish(1)
        server.lost_place(epoch="e", offset=3, recovered=True)
        server.publish(3, offset=7)
        self.check(server, r"lost.*\('c', 'p', 2, 2\)")

    def test_two_publications_at_one_position_are_a_fault(self):
        server = Server()
        server.publish(1)
        server.crowd.by_position["c", "e", 2] = ("p", 7)
        server.publish(2)
        self.check(server, "two publications at the offset 2")

    def test_a_publication_after_the_end_of_a_subscription_is_a_fault(self):
        server = Server()
        server.receive({"push": {"channel": "c", "unsubscribe": {"code": 2000}}})
        server.publish(1)
        self.check(server, "without a subscription")

    def test_a_repeat_after_a_notice_is_a_fault(self):
        server = Server()
        server.publish(1, 2)
        server.lost_place(epoch="e", offset=0)
        server.publish(1, 2, 3)
        self.check(server, "'repeated_with_notice': 2")


class Owners(unittest.TestCase):
    def test_each_node_owns_its_share(self):
        uids = {"a": 0x0FA5B7DFDB92E622, "b": 0x2305DC4B1453E82C, "c": 0xEAB1CD91D71D427A}
        owners = [nodes.owner(f"c{number}", uids) for number in range(3000)]
        for name in uids:
            self.assertTrue(900 < owners.count(name) < 1100, f"{name}: {owners.count(name)}")

    def test_a_node_that_ends_changes_the_owners_of_its_own_channels_only(self):
        uids = {"a": 1, "b": 2, "c": 3}
        for number in range(500):
            before = nodes.owner(f"c{number}", uids)
            if before != "c":
                self.assertEqual(nodes.owner(f"c{number}", {"a": 1, "b": 2}), before)


if __name__ == "__main__":
    unittest.main()
