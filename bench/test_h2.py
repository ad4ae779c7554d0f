"""Tests of the HTTP/2 part of the harness: what it takes h2load's report for. Starts nothing. bench/smoke.sh runs it."""

import unittest

import h2
import server as servers

REPORT = """
finished in 1.31s, 128000.00 req/s, 6.35MB/s
requests: 128000 total, 131200 started, 128000 done, 127990 succeeded, 10 failed, 0 errored, 0 timeout
status codes: 127995 2xx, 0 3xx, 4 4xx, 6 5xx
traffic: 6.35MB (6656000) total, 1.22MB (1280000) headers (space savings 95.00%), 3.30MB (3456000) data
                     min         max         mean         sd        +/- sd
time for request:     1.20ms     45.10ms    13640us      3.90ms    70.00%
time for connect:        0us         0us        0us        0us     0.00%
"""


class Figures(unittest.TestCase):
    def test_a_report_is_read(self):
        found = h2.h2load_figures(REPORT, 1.0)
        self.assertEqual({"n": 128000, "secs": 1.0, "rps": 128000.0, "errs": 10, "max_us": 45100.0, "mean_us": 13640.0}, found)

    def test_what_is_no_report_is_an_error(self):
        for text in ("", "--warm-up-time: value error", REPORT.replace("127990 succeeded", "0 succeeded")):
            with self.assertRaises(servers.ServerError):
                h2.h2load_figures(text, 1.0)


if __name__ == "__main__":
    unittest.main()
