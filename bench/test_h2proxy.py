"""Tests of the part of the harness that compares proxies of HTTP/2: who is compared where. Starts nothing. bench/smoke.sh runs it."""

import unittest

import h2proxy


class Subjects(unittest.TestCase):
    def test_settings_are_there_and_all_names_in_them_are_replaced(self):
        for scenario in h2proxy.SCENARIOS:
            for name, subject in h2proxy.subjects("ringmain", 4242, scenario, (1, 30, 0)).items():
                with self.subTest(scenario=scenario, name=name):
                    text = subject.options["settings"].read_text()
                    self.assertIn("$PORT", text)
                    self.assertEqual(subject.options["names"]["$UPSTREAM"], "4242")
                    for known in subject.options["names"]:
                        self.assertIn(known, text)

    def test_who_speaks_no_http2_to_upstreams_is_not_compared_there(self):
        self.assertIn("nginx", h2proxy.subjects("ringmain", 1, "h2-h1"))
        self.assertNotIn("nginx", h2proxy.subjects("ringmain", 1, "h2-h2", (1, 29, 3)))
        self.assertIn("nginx", h2proxy.subjects("ringmain", 1, "h2-h2", (1, 29, 4)))
        self.assertNotIn("h2o", h2proxy.subjects("ringmain", 1, "h2-h2"))

    def test_the_bars_are_of_those_that_are_compared(self):
        for bar in h2proxy.BARS:
            known = h2proxy.subjects("ringmain", 1, bar.scenario.split()[0])
            self.assertLessEqual({bar.ours, bar.other}, set(known))


class Versions(unittest.TestCase):
    def test_what_nginx_says(self):
        self.assertEqual(h2proxy.nginx_version("nginx version: nginx/1.22.1\n"), (1, 22, 1))
        self.assertEqual(h2proxy.nginx_version("freenginx"), ())


if __name__ == "__main__":
    unittest.main()
