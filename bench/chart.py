#!/usr/bin/env python3
"""Draws the chart of the README from bench/results-proxy.md.

    bench/chart.py            # writes docs/images/proxy-cpu.svg
    bench/chart.py --check    # fails if that file differs

Reads the section of the newest comparison with nginx and HAProxy; draws CPU time per request of each proxy. The image has colours for light and
dark pages.
"""

import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results-proxy.md"
CHART = ROOT / "docs" / "images" / "proxy-cpu.svg"

# The heading of the section, with the versions of the peers.
SECTION = re.compile(r"^## Reverse proxies compared: nginx (\S+) and HAProxy (\S+)$", re.M)
ROW = re.compile(r"^\| (\d+) \| (\S+) \| \*\*([\d.]+)\*\* \|", re.M)
DATE = re.compile(r"^(\d{4}-\d\d-\d\d), profile `dist` of (\w+)", re.M)

WIDTH, LEFT, RIGHT, BAR, GAP = 760, 190, 70, 22, 6

STYLE = """
.page { fill: #ffffff } .text { fill: #1f2328 } .note { fill: #57606a } .axis { stroke: #d0d7de }
.ours { fill: #2f6fde } .peer { fill: #9aa4b2 } .floor { fill: #d0d7de }
@media (prefers-color-scheme: dark) {
.page { fill: #0d1117 } .text { fill: #e6edf3 } .note { fill: #9198a1 } .axis { stroke: #3d444d }
.ours { fill: #6ea8fe } .peer { fill: #6e7681 } .floor { fill: #3d444d }
}
text { font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; font-size: 14px }
.title { font-size: 17px; font-weight: 600 } .small { font-size: 12px }
""".strip()


class Comparison:
    """The newest comparison of the results: the first section of its kind."""

    def __init__(self, text):
        match = SECTION.search(text)
        if not match:
            raise ValueError(f"{RESULTS.name} has no section that compares nginx and HAProxy")
        self.nginx, self.haproxy = match.groups()
        section = text[match.end():].split("\n## ", 1)[0]
        date = DATE.search(section)
        if not date:
            raise ValueError(f"the section does not begin with its date and build: {section[:80]!r}")
        self.date, self.build = date.groups()
        # CPU time by connections and server.
        self.cpu = {}
        for connections, server, cpu in ROW.findall(section):
            self.cpu.setdefault(int(connections), {})[server] = float(cpu)
        if not self.cpu:
            raise ValueError("the section has no rows")

    def names(self):
        """Servers in the order of the chart: name in the results, label, class."""
        return [
            ("ours-uring", "Ringmain", "ours"),
            ("haproxy", f"HAProxy {self.haproxy}", "peer"),
            ("nginx", f"nginx {self.nginx}", "peer"),
            ("relay-uring", "relay without parsing", "floor"),
        ]


def draw(comparison):
    """Returns the chart as SVG."""
    longest = max(max(group.values()) for group in comparison.cpu.values())
    scale = (WIDTH - LEFT - RIGHT) / longest
    parts, y = [], 92
    for connections, group in comparison.cpu.items():
        parts.append(f'<text class="text" x="24" y="{y}" font-weight="600">{connections} connections</text>')
        y += 10
        for server, label, kind in comparison.names():
            width = group[server] * scale
            middle = y + BAR / 2 + 5
            parts.append(f'<text class="text" x="{LEFT - 10}" y="{middle:.0f}" text-anchor="end">{label}</text>')
            parts.append(f'<rect class="{kind}" x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}" rx="3"/>')
            parts.append(f'<text class="text" x="{LEFT + width + 8:.1f}" y="{middle:.0f}">{group[server]:.2f}</text>')
            y += BAR + GAP
        y += 24
    height = y + 22
    axis = f'<line class="axis" x1="{LEFT}" y1="76" x2="{LEFT}" y2="{y - 18}"/>'
    note = (
        f"{comparison.date}, build {comparison.build}, Linux 6.18, two shared virtual CPUs, loopback. "
        "bench/results-proxy.md has all figures."
    )
    description = "; ".join(
        f"{connections} connections: "
        + ", ".join(f"{label} {group[server]:.2f}" for server, label, _ in comparison.names())
        for connections, group in comparison.cpu.items()
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img" aria-labelledby="t d">',
            '<title id="t">CPU time of a reverse proxy for one request</title>',
            f'<desc id="d">Microseconds. {description}.</desc>',
            f"<style>{STYLE}</style>",
            f'<rect class="page" width="{WIDTH}" height="{height}" rx="8"/>',
            '<text class="text title" x="24" y="36">CPU time of a reverse proxy for one request</text>',
            '<text class="note small" x="24" y="58">µs, user and kernel; a JSON response; shorter is better</text>',
            axis,
            *parts,
            f'<text class="note small" x="24" y="{height - 18}">{note}</text>',
            "</svg>",
            "",
        ]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the file instead of writing it")
    args = parser.parse_args()
    chart = draw(Comparison(RESULTS.read_text()))
    if not args.check:
        CHART.write_text(chart)
        return 0
    if CHART.read_text() == chart:
        return 0
    print(f"{CHART.relative_to(ROOT)} differs from {RESULTS.relative_to(ROOT)}; run bench/chart.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
