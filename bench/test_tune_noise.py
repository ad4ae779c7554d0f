"""Tests of tune_noise.py: what it reads of a run, and when it says that chance does not explain it.

Needs no root and no ringmain; asserts nothing about time.
"""

import argparse
import unittest

import tune_noise

LOOK = "without, round 1 of 5: 9\nwith, round 1 of 5: 9\nwith, round 2 of 5: 9\nwithout, round 2 of 5: 9\n"
TALK = (
    f"rps: packets moved\n{LOOK}rps: it seems to help; once more\n{LOOK}rps: noise, reverted\n"
    f"xps: which queue\n{LOOK}xps: worse, reverted\n"
)


class Noise(unittest.TestCase):
    def report(self, rungs):
        args = argparse.Namespace(load="-c 1", profiles=["latency"])
        return tune_noise.report(args, {("latency", "xps"): rungs})

    def test_looks_are_counted_step_by_step(self):
        self.assertEqual(tune_noise.looks(TALK, "rps", "noise"), 2)
        self.assertEqual(tune_noise.looks(TALK, "xps", "worse"), 1)

    def test_chances_are_those_of_the_binomial_distribution(self):
        self.assertAlmostEqual(tune_noise.at_least(0, 9, 0.3), 1)
        self.assertAlmostEqual(tune_noise.at_least(2, 3, 0.5), 0.5)
        self.assertAlmostEqual(tune_noise.at_least(3, 3, 1 / 16), 16**-3)

    def test_what_chance_explains_is_told_from_what_it_does_not(self):
        noise = [(1, "noise")] * 90
        for more, explained in [
            ([(1, "worse")] * 6 + [(2, "noise")] * 4, True),
            ([(1, "worse")] * 20, False),
            ([(2, "noise")] * 20, False),
            ([(2, "kept")], True),
            ([(2, "kept")] * 3, False),
        ]:
            text, found = self.report(noise + more)
            self.assertEqual(found, explained, text)
        self.assertIn("| xps, latency | 93 | 3 | 0 | 3.2 % | 3 |", text)


if __name__ == "__main__":
    unittest.main()
