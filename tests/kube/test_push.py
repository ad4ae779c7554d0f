"""The judge of push.py finds gateways that cut their clients off: `python3 -m unittest discover -s tests/kube`."""

import unittest

import push


def pod(samples, ends_at=10.0):
    """Returns a Pod with these samples: (time, clients, sent away, disconnected)."""
    made = push.Pod("gateway")
    made.samples, made.ends_at = samples, ends_at
    return made


def drained(seconds=push.SPREAD_S, clients=400, moved=0):
    """Returns a Pod that sends its clients away evenly, some of which were moved to others before."""
    steps = 80
    samples = [(9.0, clients + moved, 0, 0), (10.0, clients + moved, 0, 0), (15.0, clients, 0, moved)]
    for step in range(1, steps + 1):
        sent = clients * step // steps
        samples.append((15.0 + seconds * step / steps, clients - sent, sent, moved + sent))
    return pod(samples)


class DrainTest(unittest.TestCase):
    def failure(self, made):
        with self.assertRaises(AssertionError) as failed:
            push.Drain(made).check("step")
        return str(failed.exception)

    def test_clients_that_are_sent_away(self):
        for made in (drained(), drained(moved=50), drained(clients=40), pod([(9.0, 0, 0, 0), (12.0, 0, 0, 0)]), pod([])):
            push.Drain(made).check("step")

    def test_clients_that_are_cut_off(self):
        self.assertIn("cut off", self.failure(pod([(9.0, 400, 0, 7), (18.0, 400, 0, 7), (18.1, 0, 0, 7)])))
        self.assertIn("cut off", self.failure(pod([(9.0, 50, 0, 0), (18.0, 0, 0, 0)])))
        self.assertIn("cut off", self.failure(pod([(9.0, 400, 0, 0), (18.0, 200, 200, 200), (18.1, 0, 200, 200)])))

    def test_clients_that_are_sent_away_at_once(self):
        self.assertIn("sent away over", self.failure(drained(seconds=1)))

    def test_figures_of_a_page(self):
        page = ('ringmain_push_clients 12\nringmain_push_disconnects_total{code="3001"} 5\n'
                'ringmain_push_disconnects_total{code="3011"} 2\n')
        self.assertEqual(push.read_figures(page), (12, 5, 7))
        self.assertEqual(push.read_figures(""), (0, 0, 0))


if __name__ == "__main__":
    unittest.main()
