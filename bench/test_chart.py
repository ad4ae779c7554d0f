"""The chart of the README has the values of the results file.

Reads files only. bench/smoke.sh runs it.
"""

import unittest
import xml.etree.ElementTree as ET

import chart

TEXT = """# Figures

## Reverse proxies compared: nginx 1.2.3 and HAProxy 4.5

2026-01-02, profile `dist` of abc123 with a feature.

| connections | server | **CPU us each** | more |
| --- | --- | --- | --- |
| 64 | relay-uring | **10.00** | |
| 64 | ours-uring | **11.50** | 1.0 |
| 64 | haproxy | **16.00** | |
| 64 | nginx | **20.00** | |

## Reverse proxies compared: nginx 1.0 and HAProxy 1.0

2025-01-02, profile `dist` of 0.

| 64 | nginx | **99.00** | |
"""


class Chart(unittest.TestCase):
    def test_the_first_section_is_read(self):
        found = chart.Comparison(TEXT)
        self.assertEqual((found.date, found.build, found.nginx, found.haproxy), ("2026-01-02", "abc123", "1.2.3", "4.5"))
        self.assertEqual(found.cpu, {64: {"relay-uring": 10.0, "ours-uring": 11.5, "haproxy": 16.0, "nginx": 20.0}})

    def test_bars_are_proportional(self):
        root = ET.fromstring(chart.draw(chart.Comparison(TEXT)))
        bars = {
            bar.get("class"): float(bar.get("width"))
            for bar in root.iter("{http://www.w3.org/2000/svg}rect")
            if bar.get("class") != "page"
        }
        # The last bar of a class counts: of the peers, nginx.
        self.assertAlmostEqual(bars["ours"] / bars["peer"], 11.5 / 20, places=3)
        self.assertAlmostEqual(bars["floor"] / bars["peer"], 0.5, places=3)

    def test_results_without_a_comparison_are_an_error(self):
        for text in ["# Figures\n", TEXT.replace("2026-01-02,", "then,", 1), TEXT.split("| 64")[0]]:
            with self.assertRaises(ValueError):
                chart.Comparison(text)

    def test_the_committed_chart_is_of_the_results(self):
        drawn = chart.draw(chart.Comparison(chart.RESULTS.read_text()))
        self.assertEqual(chart.CHART.read_text(), drawn, "run bench/chart.py")


if __name__ == "__main__":
    unittest.main()
