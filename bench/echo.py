#!/usr/bin/env python3
"""Echo compared: Ringmain on io_uring and on epoll, the bare floors, gnet and Go net.

    bench/build.sh && cargo build --profile dist && bench/echo.py
    bench/echo.py --only floor-uring gnet go-net --pairs 2       peers alone

Rounds are interleaved: in each round every server runs every cell once, in an order that
rotates. The server has one CPU, the client (`ringmain bench`) another. The figure is CPU time per message,
user and system of the server's process tree over the measuring window; ratios are taken
within a round, and their 95 % interval comes from resampling rounds. See README.md.

Exit code: 0 measured and every bar that could be judged is met, 1 a bar is missed or a
client counted errors, 2 could not be run.
"""

import argparse
import collections
import os
import statistics
import sys
import time

import comparison
import loads
import programs
import runs
import server as servers

OURS = ["run", "--echo", "--listen", "127.0.0.1:$PORT", "--workers", "1", "--engine"]
# (ours, other, the ratio of CPU per message that is at most allowed)
BARS = [
    ("ours-uring", "floor-uring", 1.10),
    ("ours-uring", "gnet", 0.70),
    ("ours-uring", "go-net", 0.75),
    ("ours-epoll", "floor-epoll", 1.10),
]
Cell = collections.namedtuple("Cell", "bytes connections")


def commands(ours):
    """Every server that can be compared: {name: command}."""
    peers = servers.PEERS / "bin"
    return {
        "floor-uring": [str(peers / "floor"), "uring"],
        "floor-epoll": [str(peers / "floor"), "epoll"],
        "gnet": [str(peers / "gnet")],
        "go-net": [str(peers / "gonet")],
        "ours-uring": [ours, *OURS, "uring"],
        "ours-epoll": [ours, *OURS, "epoll"],
    }


def cell(text):
    """BYTESxCONNECTIONS."""
    size, _, connections = text.partition("x")
    if not (size.isdigit() and connections.isdigit()):
        raise argparse.ArgumentTypeError(f'expected BYTESxCONNECTIONS, such as 512x1000, found "{text}"')
    return Cell(int(size), int(connections))


def parse_arguments():
    ap = runs.arguments(__doc__, pairs=10)
    ap.add_argument("--only", nargs="+", metavar="SERVER", help="of: " + " ".join(commands("")))
    ap.add_argument("--cells", nargs="+", type=cell, metavar="BYTESxCONNS",
                    default=[Cell(b, c) for b in (512, 1024) for c in (500, 1000)])
    return runs.parse(ap)


def choose(args):
    """The servers to run, or an error that says what is missing and how to make it."""
    known = commands(args.ours)
    chosen = args.only or list(known)
    for name in chosen:
        if name not in known:
            sys.exit(f"echo.py: --only: expected some of {' '.join(known)}, found {name}")
        if not os.access(known[name][0], os.X_OK):
            remedy = "cargo build --profile dist (or name it with --ours)" if name.startswith("ours") else "bench/build.sh"
            others = " ".join(n for n in chosen if os.access(known[n][0], os.X_OK))
            print(f"echo.py: {name}: no program at {known[name][0]}: run {remedy};"
                  f" or leave it out: --only {others}", file=sys.stderr)
            raise SystemExit(2)
    runs.require_client("echo.py", args)
    return {name: known[name] for name in chosen}


def run_rounds(chosen, args):
    """Every server in every cell, in every round."""

    def one_run(name, where):
        return runs.measure(chosen[name], loads.Load(bytes=where.bytes, connections=where.connections), args)

    return runs.rounds(lambda _: {where: list(chosen) for where in args.cells}, one_run, args)


def cell_table(where, results):
    """One cell: every server's medians."""
    lines = [f"### {where.bytes} bytes, {where.connections} connections", "",
             "| server | **CPU us/message** | least | of it user | req/s | p50 us | p99 us | server CPU | client CPU | errors | runs |",
             "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for name, cells in results.items():
        found = list(cells[where].values())
        if not found:
            lines.append(f"| {name} | failed | | | | | | | | | 0 |")
            continue
        m = runs.medians(found)
        lines.append(
            f"| {name} | **{m['us_per_message']:.3f}** | {min(r['us_per_message'] for r in found):.3f} | {m['user_share']:.0%} |"
            f" {m['rps']:,.0f} | {m['p50_us']:,.0f} | {m['p99_us']:,.0f} | {m['server_cpu']:.0%} | {m['load_core']:.0%} |"
            f" {sum(r['errs'] for r in found):.0f} | {len(found)} |")
    return lines + [""]


def compare(results):
    """The bars: (lines of the report, number of bars missed)."""
    heading = " | ".join(f"{c.bytes}x{c.connections}" for c in next(iter(results.values())))
    lines = ["### Bars", "", f"| CPU per message | {heading} | median over cells | 95 % interval | pairs | bar | |",
             "| --- |" + " --- |" * (heading.count("|") + 6)]
    missed = judged = 0
    for ours, other, bar in BARS:
        found = runs.compare(results[ours], results[other]) if {ours, other} <= set(results) else None
        if not found:
            continue
        ratios, value, low, high = found
        judged += 1
        missed += value > bar
        cells = " | ".join(f"{statistics.median(r.values()):.3f}" for r in ratios.values())
        lines.append(f"| {ours} / {other} | {cells} | **{value:.3f}** | {low:.3f} to {high:.3f} |"
                     f" {len(next(iter(ratios.values())))} | <= {bar:.2f} | {runs.verdict(value, low, high, bar)} |")
    return (lines if judged else ["No bar judged: none of the pairs was measured."]) + [""], missed


def report(results, args):
    """Prints the report. Returns the exit code."""
    lines = [f"## Echo: {args.pairs} interleaved rounds of {args.secs:g} s, server on CPU {args.server_cpu},"
             f" client on CPU {args.load_cpu}", "",
             f"Linux {os.uname().release}, {os.cpu_count()} CPUs, {time.strftime('%Y-%m-%d')}."
             f" {'; '.join(comparison.go_versions({'github.com/panjf2000/gnet/v2'}) + programs.versions('go'))}.", ""]
    for where in args.cells:
        lines += cell_table(where, results)
    bars, missed = compare(results)
    runs.publish(lines + runs.doubts(results) + bars, args)
    whole = runs.all_sound(results, len(results) * len(args.cells) * args.pairs)
    return 0 if whole and not missed else 1


def main():
    args = parse_arguments()
    chosen = choose(args)
    runs.take_places(args)
    return report(run_rounds(chosen, args), args)


if __name__ == "__main__":
    sys.exit(main())
