#!/usr/bin/env python3
"""Fan-out beside the bare floor and a server on the Go library centrifuge: same client, same run, in turns.

    bench/build.sh push && cargo build --release -p ringmain-push --example bench_server
    bench/push.py                                  10,000 clients: one channel, and 1,000 of them at 80,000 deliveries/s
    bench/push.py --rounds 5 --cell fan
    bench/push.py --rounds 3 --cell knee --secs 2
    bench/push.py --cell symbols --rate 80000 --clients 80000 --workers 5     beside the floor with five rings

The client (`pl`), the floor and the library's server are those of ../shared/bench/push, whose notes say what they do: one
connection a client, 200 bytes of JSON a publication, the server on CPU 0, clients and publisher on CPU 1. CPU of a delivery is the
server's run time by its scheduler, the reading of publications included. Ratios are taken within a round, the interval is of
their median (95 %, rounds drawn again). The cells:

    fan      one channel, one publication a second: time to the last of all, CPU of a delivery
    symbols  1,000 channels, each client on one: CPU of a delivery, p50 and p99 in the report
    knee     the same at one rate after the other, each a twelfth above the last: the highest whose p99 stays
             below 100 ms with nothing lost, in deliveries a second

Exit code: 0 all bars met, 1 not, 2 could not be run.
"""

import argparse
import os
import re
import socket
import subprocess
import sys
import time

import server as servers
import stats

BIN = servers.PEERS / "bin"
OURS = servers.REPO / "target/release/examples/bench_server"
FLOOR_RING = 20_000  # direct descriptors of one ring of the floor
PER_PROCESS = 16_000  # clients of one process of the client
BARS = {  # (cell, figure, against): at most
    ("fan", "last", "floor"): 1.3,
    ("fan", "last", "library"): 0.65,
    ("fan", "cpu", "floor"): 1.2,
    ("fan", "cpu", "library"): 0.6,
    ("symbols", "cpu", "floor"): 1.2,
    ("symbols", "cpu", "library"): 0.6,
    ("fan", "memory", "library"): 0.05,
}
AT_LEAST = {("knee", "knee", "library"): 1.8}
KNEE_RATES = [round(30_000 * (13 / 12) ** step, -2) for step in range(24)]  # to 189,000 deliveries a second
KNEE_P99 = 100  # ms
FIGURES = {
    "memory": r"= (\d+) B/conn",
    "connect": r"server-cpu/conn=([\d.]+)us",
    "p50": r"p50=([\d.]+)",
    "p99": r"p99=([\d.]+)",
    "cpu": r"server task=([\d.]+)s/M",
    "last": r"time to last of \d+: median=([\d.]+)ms",
    "lost": r"lost=(\d+)",
}


def main():
    args = parse()
    found = {}
    for turn in range(args.rounds):
        for cell in args.cell:
            for name in args.server:
                figures = measure(name, cell, args)
                print(f"round {turn + 1} {cell} {name}: " + " ".join(f"{k}={v:g}" for k, v in figures.items()), flush=True)
                for figure, value in figures.items():
                    found.setdefault((cell, figure), {}).setdefault(name, {})[turn] = value
    sys.exit(report(found))


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cell", nargs="+", choices=("fan", "symbols", "knee"), default=["fan", "symbols"])
    parser.add_argument("--server", nargs="+", choices=("ours", "floor", "library"), default=["ours", "floor", "library"])
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--rate", type=int, default=80_000, help="deliveries a second of the cell symbols")
    parser.add_argument("--secs", type=int, default=5)
    parser.add_argument("--workers", type=int, default=1, help="of ours, and rings of the floor")
    args = parser.parse_args()
    needed = [BIN / "pl", BIN / "push-floor", BIN / "centrifuge-srv", OURS]
    if missing := [str(path) for path in needed if not path.exists()]:
        sys.stderr.write(f"push.py: expected {', '.join(missing)}; see the commands in --help\n")
        sys.exit(2)
    return args


def measure(name, cell, args):
    """One server with its clients, ended after it."""
    port = {"ours": 20300, "floor": 21000, "library": 20204}[name]
    command = {
        "ours": [OURS, f"127.0.0.1:{port}", "K", f"--workers={args.workers}"],
        "floor": [BIN / "push-floor", "uring", port, args.workers, FLOOR_RING],
        "library": [BIN / "centrifuge-srv"],
    }[name]
    processes = -(-args.clients // PER_PROCESS)
    load = ["-m", "raw" if name == "floor" else "lib", "-n", args.clients, "-k", processes, "-z", 100, "-d", args.secs]
    load += {
        "fan": ["-w", 2, "-i", 2, "-r", 1],
        "symbols": ["-s", 1000, "-w", 2, "-i", 0, "-r", args.rate],
        "knee": ["-s", 1000, "-w", 2, "-i", 0, "-r", ",".join(f"{rate:.0f}" for rate in KNEE_RATES)],
    }[cell]
    if name == "floor" and args.workers > 1:
        load += ["-R", args.workers, "-k", args.workers]
    server = start(0, command, subprocess.DEVNULL)
    try:
        await_port(port, server)
        client = start(1, [BIN / "pl", "-P", server.pid, "-p", port, "-l", name, *load], subprocess.PIPE)
        told, _ = client.communicate(timeout=300)
    finally:
        server.terminate()
        server.wait()
    if cell == "knee":
        return {"knee": knee(name, told)}
    matches = {figure: re.search(pattern, told) for figure, pattern in FIGURES.items()}
    if not matches["cpu"]:
        raise SystemExit(f"push.py: {name} in {cell} gave no figures:\n{told}")
    return {figure: float(match[1]) for figure, match in matches.items() if match}


def knee(name, told):
    """The highest rate kept: the client gives rates up by itself once one is far from being kept."""
    line = r"rate (\d+) deliveries/s: .* lost=(\d+) .* p99=([\d.]+)"
    kept = [int(rate) for rate, lost, p99 in re.findall(line, told) if lost == "0" and float(p99) <= KNEE_P99]
    if not kept:
        raise SystemExit(f"push.py: {name} keeps none of the rates of the cell knee:\n{told}")
    return max(kept)


def start(cpu, command, out):
    return subprocess.Popen(
        [str(word) for word in command],
        stdout=out,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "GOMAXPROCS": "1"},
        preexec_fn=servers.prepare_child(cpu=cpu, descriptors=20_000),
    )


def await_port(port, server):
    until = time.monotonic() + 10
    while time.monotonic() < until and server.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                time.sleep(0.5)  # the floor's rings listen one after the other
                return
        time.sleep(0.1)
    raise SystemExit(f"push.py: nothing listens on port {port}")


def report(found):
    missed = 0
    print()
    for (cell, figure, against), bar in {**BARS, **AT_LEAST}.items():
        by_name = found.get((cell, figure), {})
        if "ours" not in by_name or against not in by_name:
            continue
        ratios = stats.paired_ratios({cell: by_name["ours"]}, {cell: by_name[against]})
        middle = stats.median_over_cells(ratios, list(ratios[cell]))
        low, high = stats.interval(ratios)
        at_least = (cell, figure, against) in AT_LEAST
        met = middle >= bar if at_least else middle <= bar
        missed += not met
        which = "at least " if at_least else ""
        print(f"{cell} {figure} / {against}: {middle:.3f} ({low:.3f} to {high:.3f}), bar {which}{bar}: {'met' if met else 'missed'}")
    return 1 if missed else 0


if __name__ == "__main__":
    main()
