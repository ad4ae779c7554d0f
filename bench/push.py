#!/usr/bin/env python3
"""Fan-out beside the bare floor and a server on the Go library centrifuge: same client, same run, in turns.

    bench/build.sh push && cargo build --profile dist -p ringmain-push --example bench_server
    bench/push.py                                  10,000 clients: one channel, and 1,000 of them at 80,000 deliveries/s
    bench/push.py --rounds 5 --cell fan
    bench/push.py --rounds 3 --cell knee --secs 2
    bench/push.py --cell symbols --rate 80000 --clients 80000 --workers 5     beside the floor with five rings
    bench/push.py --server ours before --before OLD                           two builds of the example bench_server

The client is client/fanout.c, the floor `floor uring-push`, the library's server peers/gopush. One connection a client, 200 bytes
of JSON a publication, the server on the first CPU, clients and publisher on the last. CPU of a delivery is the server's CPU time,
reading the publications included. Ratios are taken within a round, the interval is of their median (95 %, rounds drawn
again). The cells:

    fan      one channel, one publication a second: time to the last of all, CPU of a delivery
    symbols  1,000 channels, each client on one: CPU of a delivery, p50 and p99 in the report
    knee     the same at one rate after the other, each a twelfth above the last: the highest whose p99 stays
             below 100 ms with nothing lost, in deliveries a second

Exit code: 0 all bars met, 1 not, 2 could not be run.
"""

import argparse
import collections
import os
import re
import subprocess
import sys
import time

import comparison
import programs
import server as servers
import stats

BIN = servers.PEERS / "bin"
OURS = servers.TARGET / "dist/examples/bench_server"
DESCRIPTORS = 20_000  # of each process; also the largest table of a ring
PER_PROCESS = 16_000  # clients of one process of the client
CLIENT_SECONDS = 300
BARS = {  # (cell, figure, against): at most
    ("fan", "last_ms", "floor"): 1.3,
    ("fan", "last_ms", "library"): 0.65,
    ("fan", "cpu_us", "floor"): 1.2,
    ("fan", "cpu_us", "library"): 0.6,
    ("symbols", "cpu_us", "floor"): 1.2,
    ("symbols", "cpu_us", "library"): 0.6,
    ("fan", "memory_bytes", "library"): 0.05,
}
AT_LEAST = {("knee", "knee", "library"): 1.8}
KNEE_RATES = [round(30_000 * (13 / 12) ** step, -2) for step in range(24)]  # to 189,000 deliveries a second
KNEE_P99_MS = 100
SERVERS = ("ours", "floor", "library", "before")


def main():
    args = parse()
    servers.end_on_signals()
    go = comparison.go_versions({"github.com/centrifugal/centrifuge"}) + programs.versions("go")
    print(f"Linux {os.uname().release}, {os.cpu_count()} CPUs, {time.strftime('%Y-%m-%d')}. {'; '.join(go)}.", flush=True)
    found = {}
    try:
        for turn in range(args.rounds):
            for cell in args.cell:
                for name in args.server:
                    figures = measure(name, cell, args)
                    print(f"round {turn + 1} {cell} {name}: " + " ".join(f"{k}={v:g}" for k, v in figures.items()), flush=True)
                    for figure, value in figures.items():
                        found.setdefault((cell, figure), {}).setdefault(name, {})[turn] = value
    except (servers.ServerError, OSError, subprocess.TimeoutExpired) as e:
        print(f"push.py: could not be run: {e}", file=sys.stderr)
        return 2
    return report(found)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cell", nargs="+", choices=("fan", "symbols", "knee"), default=["fan", "symbols"])
    parser.add_argument("--server", nargs="+", choices=SERVERS, default=[name for name in SERVERS if name != "before"])
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--rate", type=int, default=80_000, help="deliveries a second of the cell symbols")
    parser.add_argument("--secs", type=int, default=5)
    parser.add_argument("--workers", type=int, default=1, help="of ours, and rings of the floor")
    parser.add_argument("--ours", default=str(OURS), help="the example bench_server of ringmain-push")
    parser.add_argument("--before", metavar="OLD", help="the example bench_server of an earlier build, for the server `before`")
    args = parser.parse_args()
    if "before" in args.server and not args.before:
        parser.error("--server before: expected --before OLD")
    needed = {"floor": BIN / "floor", "library": BIN / "gopush", "ours": args.ours, "before": args.before}
    wanted = [BIN / "fanout", *(needed[name] for name in args.server)]
    if missing := [str(path) for path in wanted if not os.access(path, os.X_OK)]:
        print(f"push.py: expected {', '.join(missing)}; see the commands in --help", file=sys.stderr)
        sys.exit(2)
    return args


def load(name, cell, args):
    """The client's words for one cell, without ports."""
    channels = ["-C", 1000]
    return ["-m", "raw" if name == "floor" else "ws", "-c", args.clients, "-k", -(-args.clients // PER_PROCESS), "-d", args.secs, *{
        "fan": ["-i", 2, "-r", 1],
        "symbols": [*channels, "-i", 0, "-r", args.rate],
        "knee": [*channels, "-i", 0, "-r", ",".join(f"{rate:.0f}" for rate in KNEE_RATES)],
    }[cell]]


def measure(name, cell, args):
    """The figures of one server with its clients; it is ended after them."""
    cpus = sorted(os.sched_getaffinity(0))
    publish = str(servers.free_port())
    command = {
        **{ours: [binary, "127.0.0.1:$PORT", "K", f"--workers={args.workers}"] for ours, binary in (("ours", args.ours), ("before", args.before))},
        "floor": [str(BIN / "floor"), "uring-push", str(args.workers)],
        "library": [str(BIN / "gopush")],
    }[name]
    os.environ.update(PUBLISH=publish, GOMAXPROCS="1")
    with servers.Server(command, cpu=cpus[0], descriptors=DESCRIPTORS, ready=listens) as server:
        words = [BIN / "fanout", "-p", server.port, "-P", publish, "-S", server.process.pid, *load(name, cell, args)]
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=CLIENT_SECONDS, check=False,
                              preexec_fn=servers.prepare_child(cpu=cpus[-1], descriptors=DESCRIPTORS))
        if done.returncode:
            raise servers.ServerError(f"{name} in {cell}: {done.stdout} {done.stderr}; the server: {server.last_output()}")
    return knee(name, done.stdout) if cell == "knee" else figures_of(name, cell, done.stdout)


def figures_of(name, cell, text):
    """The figures of the client's lines."""
    found = dict(re.findall(r"(\w+)=([\d.]+)", text))
    if "rate" not in found:
        raise servers.ServerError(f"{name} in {cell} gave no figures: {text}")
    wanted = ("memory_bytes", "p50_ms", "p99_ms", "cpu_us", "last_ms", "missed", "lost")
    # The line of the clients' connections has a figure of the same name.
    found["cpu_us"] = re.search(r"^rate=.* cpu_us=([\d.]+)", text, re.M)[1]
    return {figure: float(found[figure]) for figure in wanted if figure in found}


def knee(name, text):
    """The highest rate kept; the client ends at the first that is far from being kept."""
    line = r"^rate=(\d+) .* missed=(\d+) .* lost=(\d+) .* p99_ms=([\d.]+)"
    kept = [int(rate) for rate, missed, lost, p99 in re.findall(line, text, re.M)
            if missed == lost == "0" and float(p99) <= KNEE_P99_MS]
    if not kept:
        raise servers.ServerError(f"{name} keeps none of the rates of the cell knee: {text}")
    return {"knee": max(kept)}


def listens(port):
    """Whether a connection to `port` is accepted, before any client's."""
    with servers.socket.create_connection(("127.0.0.1", port), 1):
        return True


class Ratio(collections.namedtuple("Ratio", "median low high")):
    """A ratio of two servers' figures over rounds, with its 95 % interval."""

    def __str__(self):
        return f"{self.median:.3f} ({self.low:.3f} to {self.high:.3f})"


def ratio(cell, by_name, against):
    """The ratio of ours to another server."""
    ratios = stats.paired_ratios({cell: by_name["ours"]}, {cell: by_name[against]})
    return Ratio(stats.median_over_cells(ratios, list(ratios[cell])), *stats.interval(ratios))


def report(found):
    missed = 0
    print()
    for (cell, figure), by_name in found.items():
        if "ours" in by_name and "before" in by_name and all(by_name["before"].values()):
            print(f"{cell} {figure} / before: {ratio(cell, by_name, 'before')}")
    for (cell, figure, against), bar in {**BARS, **AT_LEAST}.items():
        by_name = found.get((cell, figure), {})
        if "ours" not in by_name or against not in by_name:
            continue
        found_ratio = ratio(cell, by_name, against)
        middle = found_ratio.median
        at_least = (cell, figure, against) in AT_LEAST
        met = middle >= bar if at_least else middle <= bar
        missed += not met
        which = "at least " if at_least else ""
        print(f"{cell} {figure} / {against}: {found_ratio}, bar {which}{bar}: {'met' if met else 'missed'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
