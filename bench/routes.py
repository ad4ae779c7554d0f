#!/usr/bin/env python3
"""Many routes in one file: how soon a change of one is live on every worker, and how much memory they take.

    cargo build --profile dist && bench/routes.py
    bench/routes.py --ours target/debug/ringmain --routes 500 --changes 3

The file has each route on a host of its own, with two rules. One route is changed again and again by putting another
file in its place; it counts as live when every one of --connections kept connections, which are spread over all workers,
is answered by it. Then requests for hosts all over the file must find their own routes.

The bars, for 5,000 routes: 250 ms from the file's save for each change, 10 ms from the model's change (which the gateway
logs itself), and 40 MB resident. 50,000 are only to work.

Exit code: 0 all is well, 1 a bar is missed or an answer is wrong, 2 could not be run.
"""

import argparse
import os
import pathlib
import re
import statistics
import sys
import tempfile
import time

import asking
import server as servers
from shop_stage import Failed, expect, free_ports, until

LIVE_SECONDS = 0.250
MODEL_SECONDS = 0.010
RESIDENT_BYTES = 40e6
# A file of 50,000 routes is 8 MB of YAML.
LOAD_SECONDS = 120.0
LIVE = re.compile(r"configuration reloaded in ([\d.]+)(\S*s)\b")
UNITS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
# More routes than that are only to work.
BARS_UP_TO = 5000
ASKED = 500


def text_of(routes, version, ports):
    """The file: all the same but for the version in the route in the middle."""
    lines = [f"listen: 127.0.0.1:{ports['plain']}", f"admin: {{address: 127.0.0.1:{ports['admin']}}}",
             f"upstreams: {{up: http://127.0.0.1:{ports['nobody']}}}", "routes:"]
    for number in range(routes):
        changed = version if number == routes // 2 else 0
        lines += [f"  route-{number}:", f"    hosts: shop{number}.example", "    rules:",
                  f"      - {{match: /service{number}, to: up}}",
                  f"      - {{match: {{path: {{exact: /status}}}}, respond: {{body: \"{number}.{changed}\"}}}}"]
    return "\n".join(lines) + "\n"


class Many:
    """The gateway with so many routes, running within a `with` block."""

    def __init__(self, args, routes, folder):
        self.args, self.routes, self.folder = args, routes, pathlib.Path(folder)
        self.ports = free_ports(["plain", "admin", "nobody"])
        self.file = self.folder / "gateway.yaml"
        self.host = f"shop{routes // 2}.example"
        self.write(0)
        self.started = time.monotonic()
        command = [args.ours, "run", str(self.file), "--workers", str(args.workers), "--max-queue-delay", "1h"]
        self.gateway = servers.Server(command, ready=lambda _: self.status(asking.ask, self.ports["plain"]) == b"0",
                                      ready_seconds=LOAD_SECONDS)

    def __enter__(self):
        self.gateway.__enter__()
        self.loaded = time.monotonic() - self.started
        return self

    def __exit__(self, *_):
        self.gateway.end()

    def write(self, version):
        """Puts a file in its place at once; returns when."""
        new = self.folder / "new"
        new.write_text(text_of(self.routes, version, self.ports))
        new.replace(self.file)
        return time.monotonic()

    def status(self, ask, *where):
        """The version that is served."""
        return ask(*where, "GET", "/status", self.host).body.partition(b".")[2]

    def every_worker(self, connections):
        """Whether each worker has one of the connections at least."""
        metrics = asking.ask(self.ports["admin"], "GET", "/metrics", "localhost").body.decode()
        counts = [int(line.split()[1]) for line in metrics.splitlines() if line.startswith("ringmain_connections{")]
        # The administration's own worker may be among them.
        return sum(count > 0 for count in counts) >= self.args.workers and sum(counts) >= len(connections)

    def change(self, version, connections):
        """Seconds from the save of a version until all connections are answered by it."""
        wanted = str(version).encode()
        saved, left = self.write(version), list(connections)
        while left:
            left = [connection for connection in left if self.status(connection.ask) != wanted]
            if time.monotonic() - saved > asking.SECONDS:
                raise Failed(f"expected version {version} on every connection within {asking.SECONDS:g} s")
        return time.monotonic() - saved

    def replaced(self):
        """Seconds that the last change took from the model on, by the gateway's own log."""
        # Written behind the change, by a thread of its own.
        end, found = time.monotonic() + asking.SECONDS, []
        while not found and time.monotonic() < end:
            found = LIVE.findall(self.gateway.last_output(50))
            time.sleep(0.01)
        if not found:
            raise Failed(f"expected a line of the log that says how soon the change was live, found {self.gateway.last_output()}")
        value, unit = found[-1]
        return float(value) * UNITS[unit]

    def ask_all_over(self):
        """Hosts all over the file have their own routes."""
        with asking.Connection(self.ports["plain"]) as connection:
            for at in range(ASKED):
                number = at * (self.routes - 1) // max(1, ASKED - 1)
                answer = connection.ask("GET", "/status", f"shop{number}.example")
                expect(f"route {number}", (200, str(number).encode()), (answer.status, answer.body.partition(b".")[0]))


def measure(args, routes, folder):
    """Prints the figures of so many routes. Returns the bars missed."""
    with Many(args, routes, folder) as many:
        resident = many.gateway.memory()["VmRSS"]
        connections = [asking.Connection(many.ports["plain"]) for _ in range(args.connections)]
        for connection in connections:
            many.status(connection.ask)
        until("connections on every worker", lambda: many.every_worker(connections))
        times, models = [], []
        for version in range(1, args.changes + 1):
            times.append(many.change(version, connections))
            models.append(many.replaced())
        many.ask_all_over()
        after = many.gateway.memory()["VmRSS"]
        for connection in connections:
            connection.__exit__()
    resident = max(resident, after)
    print(f"{routes:,} routes: served {many.loaded:.2f} s after the start of the process; one changed, live on {args.workers} workers"
          f" after a median of {statistics.median(times) * 1e3:.0f} ms, at most {max(times) * 1e3:.0f} ms, from the model's change a"
          f" median of {statistics.median(models) * 1e3:.1f} ms; at most {resident / 1e6:.1f} MB resident")
    if routes > BARS_UP_TO:
        return 0
    bars = ((f"{LIVE_SECONDS * 1e3:.0f} ms for each change", max(times) < LIVE_SECONDS),
            (f"{MODEL_SECONDS * 1e3:.0f} ms from the model's change", statistics.median(models) < MODEL_SECONDS),
            (f"{RESIDENT_BYTES / 1e6:.0f} MB resident", resident < RESIDENT_BYTES))
    missed = [text for text, is_met in bars if not is_met]
    for text in missed:
        print(f"missed: {text}")
    return len(missed)


def parse_arguments():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--ours", default=str(servers.TARGET / "dist/ringmain"), help="the ringmain binary")
    ap.add_argument("--routes", nargs="+", type=int, default=[5000, 50_000], help="(5000 50000)")
    ap.add_argument("--changes", type=int, default=20, help="of one route (20)")
    ap.add_argument("--workers", type=int, default=2, help="of the gateway (2)")
    ap.add_argument("--connections", type=int, default=16, help="that each must see a change (16)")
    args = ap.parse_args()
    if min(*args.routes, args.changes, args.workers, args.connections) < 1:
        ap.error("expected numbers of at least 1")
    return args


def main():
    args = parse_arguments()
    servers.end_on_signals()
    if not os.access(args.ours, os.X_OK):
        print(f"routes.py: no program at {args.ours}: run cargo build --profile dist", file=sys.stderr)
        return 2
    missed = 0
    for routes in args.routes:
        with tempfile.TemporaryDirectory(prefix="routes-") as folder:
            try:
                missed += measure(args, routes, folder)
            except (Failed, asking.Broken, OSError) as e:
                print(f"FAILED: {routes:,} routes: {e}")
                missed += 1
            except servers.ServerError as e:
                print(f"routes.py: could not be run: {e}", file=sys.stderr)
                return 2
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
