#!/usr/bin/env python3
"""Echo compared: Ringmain on io_uring and on epoll, the bare floors, gnet and Go net.

    bench/build.sh && cargo build --release && bench/echo.py
    bench/echo.py --only floor-uring gnet go-net --pairs 2       peers alone

Rounds are interleaved: in each round every server runs every cell once, in an order that
rotates. The server has one CPU, the client another. The figure is CPU time per message,
user and system of the server's process tree over the measuring window; ratios are taken
within a round, and their 95 % interval comes from resampling rounds. See README.md.

Exit code: 0 measured and every bar that could be judged is met, 1 a bar is missed or a
client counted errors, 2 could not be run.
"""

import argparse
import collections
import json
import os
import statistics
import subprocess
import sys
import time

import server as servers
import stats

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
    cpus = sorted(os.sched_getaffinity(0))
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--ours", default=str(servers.REPO / "target/release/ringmain"), help="the ringmain binary")
    ap.add_argument("--only", nargs="+", metavar="SERVER", help="of: " + " ".join(commands("")))
    ap.add_argument("--cells", nargs="+", type=cell, metavar="BYTESxCONNS",
                    default=[Cell(b, c) for b in (512, 1024) for c in (500, 1000)])
    ap.add_argument("--pairs", type=int, default=10, help="rounds (10)")
    ap.add_argument("--secs", type=float, default=1.5, help="measuring window of one run (1.5)")
    ap.add_argument("--warm", type=float, default=0.5, help="warm-up before it (0.5)")
    ap.add_argument("--server-cpu", type=int, default=cpus[0])
    ap.add_argument("--load-cpu", type=int, default=cpus[-1])
    ap.add_argument("--raw", metavar="FILE.jsonl", help="append every run as a line of JSON")
    ap.add_argument("--out", metavar="FILE.md", help="write the report here too")
    args = ap.parse_args()
    if args.pairs < 1 or args.secs <= 0:
        ap.error("expected at least one pair and a window above 0 s")
    return args


def choose(args):
    """The servers to run, or an error that says what is missing and how to make it."""
    known = commands(args.ours)
    chosen = args.only or list(known)
    for name in chosen:
        if name not in known:
            sys.exit(f"echo.py: --only: expected some of {' '.join(known)}, found {name}")
        if not os.access(known[name][0], os.X_OK):
            remedy = "cargo build --release (or name it with --ours)" if name.startswith("ours") else "bench/build.sh"
            others = " ".join(n for n in chosen if os.access(known[n][0], os.X_OK))
            print(f"echo.py: {name}: no program at {known[name][0]}: run {remedy};"
                  f" or leave it out: --only {others}", file=sys.stderr)
            raise SystemExit(2)
    if not os.access(servers.PEERS / "bin" / "lg", os.X_OK):
        print(f"echo.py: no load client in {servers.PEERS}/bin: run bench/build.sh client", file=sys.stderr)
        raise SystemExit(2)
    return {name: known[name] for name in chosen}


def sample(server, args):
    """What is read at both ends of the measuring window."""
    return {
        "at": time.monotonic(),
        "cpu": server.cpu(),
        "server_core": servers.core_use(args.server_cpu),
        "load_core": servers.core_use(args.load_cpu),
    }


def run_client(server, where, args):
    """Runs the load client. Returns its figures and the samples at both ends of its window."""
    command = [str(servers.PEERS / "bin" / "lg"), f"-p{server.port}", f"-e{where.bytes}",
               f"-c{where.connections}", f"-d{args.secs}", f"-w{args.warm}"]
    begin = end = figures = None
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          preexec_fn=servers.prepare_child(cpu=args.load_cpu)) as client:
        try:
            for line in client.stdout:
                if line.startswith("BEGIN"):
                    begin = sample(server, args)
                else:
                    end = sample(server, args)
                    figures = {k: float(v) for k, v in (pair.split("=") for pair in line.split())}
            error = client.stderr.read().strip()
        except BaseException:
            client.kill()
            raise
    if not begin or not figures or not figures["n"]:
        raise servers.ServerError(f"the load client: {error or 'no answers'}; the server: {server.last_output()}")
    return figures, begin, end


def measure(command, where, args):
    """One run: figures of the client and of the server."""
    with servers.Server(command, cpu=args.server_cpu) as server:
        figures, begin, end = run_client(server, where, args)
        if not server.alive():
            raise servers.ServerError(f"the server ended: {server.last_output()}")
    # The samples bracket the client's own window by a little; scale to the same stretch of time.
    window = figures["secs"] / (end["at"] - begin["at"])
    exact, user, system = (b - a for a, b in zip(begin["cpu"], end["cpu"]))
    figures["us_per_message"] = exact * window / figures["n"] * 1e6
    figures["user_share"] = user / (user + system) if user + system else 0.0
    figures["server_cpu"] = exact / (end["at"] - begin["at"])
    for core in ("server_core", "load_core"):
        busy, stolen, total = (b - a for a, b in zip(begin[core], end[core]))
        figures[core] = busy / total if total else 0.0
        figures[core + "_stolen"] = stolen / total if total else 0.0
    return figures


def run_rounds(chosen, args):
    """{server: {cell: {round: figures}}}; a failed run is told and left out."""
    results = {name: {c: {} for c in args.cells} for name in chosen}
    names = list(chosen)
    for number in range(args.pairs):
        for index, where in enumerate(args.cells):
            shift = (number + index) % len(names)
            for name in names[shift:] + names[:shift]:
                try:
                    figures = measure(chosen[name], where, args)
                except (servers.ServerError, OSError) as e:
                    print(f"{number} {where.bytes}x{where.connections} {name}: FAILED: {e}", file=sys.stderr)
                    continue
                results[name][where][number] = figures
                print(f"{number} {where.bytes}x{where.connections} {name:12s} {figures['us_per_message']:.3f} us"
                      f"  {figures['rps']:,.0f}/s  errors {figures['errs']:.0f}", file=sys.stderr, flush=True)
                if args.raw:
                    with open(args.raw, "a") as f:
                        f.write(json.dumps({"server": name, **where._asdict(), "round": number, **figures}) + "\n")
    return results


def cost(cells):
    """{cell: {round: CPU us per message}} of one server."""
    return {c: {r: f["us_per_message"] for r, f in rounds.items()} for c, rounds in cells.items()}


def cell_table(where, results):
    """One cell: every server's medians."""
    lines = [f"### {where.bytes} bytes, {where.connections} connections", "",
             "| server | **CPU us/message** | least | of it user | req/s | p50 us | p99 us | server CPU | client CPU | errors | runs |",
             "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for name, cells in results.items():
        runs = list(cells[where].values())
        if not runs:
            lines.append(f"| {name} | failed | | | | | | | | | 0 |")
            continue
        m = {k: statistics.median(r[k] for r in runs) for k in runs[0]}
        lines.append(
            f"| {name} | **{m['us_per_message']:.3f}** | {min(r['us_per_message'] for r in runs):.3f} | {m['user_share']:.0%} |"
            f" {m['rps']:,.0f} | {m['p50_us']:,.0f} | {m['p99_us']:,.0f} | {m['server_cpu']:.0%} | {m['load_core']:.0%} |"
            f" {sum(r['errs'] for r in runs):.0f} | {len(runs)} |")
    return lines + [""]


def verdict(value, low, high, bar):
    """What the median and its interval say of the bar."""
    if value > bar:
        return "**missed**" if low > bar else "**missed**, but the interval reaches below the bar"
    return "met" if high <= bar else "met, but the interval reaches above the bar"


def compare(results):
    """The bars: (lines of the report, number of bars missed)."""
    heading = " | ".join(f"{c.bytes}x{c.connections}" for c in next(iter(results.values())))
    lines = ["### Bars", "", f"| CPU per message | {heading} | median over cells | 95 % interval | pairs | bar | |",
             "| --- |" + " --- |" * (heading.count("|") + 6)]
    missed = judged = 0
    for ours, other, bar in BARS:
        ratios = stats.paired_ratios(cost(results[ours]), cost(results[other])) if {ours, other} <= set(results) else {}
        if not ratios:
            continue
        rounds = list(next(iter(ratios.values())))
        value = stats.median_over_cells(ratios, rounds)
        low, high = stats.interval(ratios)
        judged += 1
        missed += value > bar
        cells = " | ".join(f"{statistics.median(r.values()):.3f}" for r in ratios.values())
        lines.append(f"| {ours} / {other} | {cells} | **{value:.3f}** | {low:.3f} to {high:.3f} | {len(rounds)} |"
                     f" <= {bar:.2f} | {verdict(value, low, high, bar)} |")
    return (lines if judged else ["No bar judged: none of the pairs was measured."]) + [""], missed


def report(results, args):
    """Prints the report. Returns the exit code."""
    lines = [f"## Echo: {args.pairs} interleaved rounds of {args.secs:g} s, server on CPU {args.server_cpu},"
             f" client on CPU {args.load_cpu}", "",
             f"Linux {os.uname().release}, {os.cpu_count()} CPUs, {time.strftime('%Y-%m-%d')}.", ""]
    for where in args.cells:
        lines += cell_table(where, results)
    bars, missed = compare(results)
    text = "\n".join(lines + bars)
    print(text)
    if args.out:
        with open(args.out, "w") as f:
            f.write(text)
    runs = [f for cells in results.values() for rounds in cells.values() for f in rounds.values()]
    whole = len(runs) == len(results) * len(args.cells) * args.pairs
    return 0 if whole and not missed and not any(f["errs"] for f in runs) else 1


def main():
    args = parse_arguments()
    chosen = choose(args)
    servers.end_on_signals()
    if args.server_cpu == args.load_cpu:
        print("echo.py: server and client share one CPU: the figures say little", file=sys.stderr)
    os.sched_setaffinity(0, {args.load_cpu})  # the server's CPU is the server's
    return report(run_rounds(chosen, args), args)


if __name__ == "__main__":
    sys.exit(main())
