#!/usr/bin/env python3
"""Load generators compared: `ringmain bench` on io_uring and on epoll, wrk, and the lean client.

    bench/build.sh client floor go && cargo build --profile dist && bench/client.py
    bench/client.py --part cost --pairs 20                       one part

    throughput   a server that is the limit (Go net/http): every client must find the same
    cost         a fast server: CPU of the client for a request
    stall        a server that stands still for 200 ms of every second: who shows it
    knee         a rate beyond the server: the doubt that says so
    rate         a moderate fixed rate: the latencies side by side

Rounds are interleaved: the clients take turns in an order that rotates, each on the last CPU
against a server of its own on the first. Ratios are taken within a round, and their 95 %
interval comes from resampling rounds. See README.md.

Exit code: 0 measured and every bar that could be judged is met, 1 a bar is missed, a run
failed or a client counted errors, 2 could not be run.
"""

import argparse
import collections
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time

import answers
import loads
import runs
import server as servers

PATH = "/json"
PERIOD_SECONDS, STALL_SECONDS = 1.0, 0.2
STALL_RATES = (200, 1000, 5000)
# Few, as closed loops mostly have them: each connection sees a stall once.
STALL_CONNECTIONS = 16
# Requests that come due while the server stands wait 0 to 200 ms, all alike often: they are a fifth
# of all, so one in a hundred of all waits longer than this.
STALL_P99_MS = 1e3 * (STALL_SECONDS - 0.01 * PERIOD_SECONDS)
BEYOND, BELOW = 1.5, 0.3  # of what a closed loop reaches
MODERATE_RATE = 20_000
# Above this share of its CPU the client, not the server, may have been the limit.
CLIENT_FULL = 0.9

Cell = collections.namedtuple("Cell", "part target connections rate")
# A ratio of two clients' figures: `least` to `most` is met.
Bar = collections.namedtuple("Bar", "part target ours other figure least most")

ALL = ["bench-uring", "bench-epoll", "wrk", "lg"]
CLIENTS = {  # of each part; wrk knows no rate, so in closed loops only
    "throughput": ALL,
    "cost": ALL,
    "stall": ["bench-uring", "lg", "wrk"],
    "knee": ["bench-uring"],
    "rate": ["bench-uring", "bench-epoll", "lg"],
}
TARGETS = {"throughput": ["go"], "cost": ["floor", "ours"], "stall": ["go"], "knee": ["go"], "rate": ["ours"]}
BARS = [
    Bar("throughput", "go", "bench-uring", "wrk", "rps", 0.97, 1.03),
    Bar("throughput", "go", "bench-epoll", "wrk", "rps", 0.97, 1.03),
    *(Bar("cost", target, "bench-uring", other, "client_us", 0.0, most)
      for target in TARGETS["cost"] for other, most in (("wrk", 0.75), ("lg", 1.15))),
]
STALL_BAR_MS = 100.0
SAID = {"throughput": "a server that is the limit", "cost": "a fast server", "rate": f"{MODERATE_RATE:,} requests a second"}


def commands(ours):
    """The servers that are asked: {name: command}."""
    built = servers.PEERS / "bin"
    return {
        "go": [str(built / "gohttp")],
        "floor": [str(built / "floor"), "uring-http"],
        "ours": [ours, "run", "--listen", "127.0.0.1:$PORT", "--workers", "1", "--engine", "uring"],
    }


def parse_arguments():
    ap = runs.arguments(__doc__, pairs=10, secs=3)
    ap.add_argument("--part", nargs="+", choices=list(CLIENTS), default=list(CLIENTS), help="(all)")
    ap.add_argument("--conns", type=int, default=64, help="connections (64)")
    ap.add_argument("--stall-secs", type=float, default=10.0, help="window of each run of the part `stall` (10)")
    args = runs.parse(ap)
    if args.client_kind != "bench":
        ap.error("--client-kind: here all kinds are compared")
    # wrk takes only whole seconds, and all are to have the same.
    if args.secs != int(args.secs) or args.stall_secs != int(args.stall_secs) or args.stall_secs < 1:
        ap.error("--secs and --stall-secs: expected whole seconds, from 1 on")
    if not 1 <= args.conns <= 15_000:
        ap.error("--conns: expected a number from 1 to 15,000")
    return args


def require(args):
    """Ends the program with what to do if something that is needed is not here."""
    runs.require_client("client.py", args)
    needed = {"lg": (str(servers.PEERS / "bin" / "lg"), "bench/build.sh client"),
              "wrk": (shutil.which("wrk") or "wrk", "apt-get install wrk (on Debian)")}
    for name, command in commands(args.ours).items():
        if any(name in TARGETS[part] for part in args.part):
            remedy = "cargo build --profile dist (or name it with --ours)" if name == "ours" else f"bench/build.sh {name}"
            needed[name] = (command[0], remedy)
    for name, (path, remedy) in needed.items():
        if not os.access(path, os.X_OK):
            print(f"client.py: {name}: no program at {path}: run {remedy}", file=sys.stderr)
            raise SystemExit(2)


def plan(number, args):
    """The cells of a round, with their clients. What has no ratio is run in the first one alone."""
    found = {}
    for part in args.part:
        if number and part in ("stall", "knee"):
            continue
        rates = {"stall": (*STALL_RATES, 0), "rate": (MODERATE_RATE,)}.get(part, (0,))
        for target in TARGETS[part]:
            connections = min(args.conns, STALL_CONNECTIONS) if part == "stall" else args.conns
            found.update({cell: clients(cell) for cell in (Cell(part, target, connections, rate) for rate in rates)})
    return found


def clients(cell):
    """Who runs a cell; without a rate it is a closed loop."""
    return [name for name in CLIENTS[cell.part] if name != "wrk" or not cell.rate]


# ---- one run ----


class Stalls(threading.Thread):
    """Within a `with` block a process stands still for STALL_SECONDS of every PERIOD_SECONDS."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid = pid
        self.lengths = []
        self._over = threading.Event()

    def run(self):
        try:
            while not self._over.wait(PERIOD_SECONDS - STALL_SECONDS):
                begun = time.monotonic()
                os.kill(self.pid, signal.SIGSTOP)
                self._over.wait(STALL_SECONDS)
                os.kill(self.pid, signal.SIGCONT)
                self.lengths.append(time.monotonic() - begun)
        except ProcessLookupError:
            pass  # the server has ended: its run fails by itself

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self.join()


def ask(client, server, load, args):
    """Runs one of the clients without a warm-up. Returns its figures, the server's, and its whole process's CPU time.

    The CPU time of the client counts from its first instruction to its last, for all alike: what it
    says of itself (`cpu`) is beside it.
    """
    begun, spent, served = time.monotonic(), children_cpu(), server.cpu()[0]
    args = argparse.Namespace(**{**vars(args), "warm": 0.0, "client_kind": client.partition("-")[0]})
    if client == "wrk":
        figures = runs.run_wrk(server, load, args)
    elif client == "lg":
        figures = runs.run_client(server, load, args)
    else:
        figures = runs.run_client(server, load, args, engine=client.partition("-")[2])
    elapsed, spent, served = time.monotonic() - begun, children_cpu() - spent, server.cpu()[0] - served
    figures.update(client_us=spent / figures["n"] * 1e6, client_share=spent / elapsed,
                   us_per_message=served / figures["n"] * 1e6, server_share=served / elapsed)
    return figures


def children_cpu():
    """CPU seconds of all children that have ended and were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def settle(server, load, args):
    """Load before the first figure, the same for all clients."""
    args = argparse.Namespace(**{**vars(args), "secs": max(args.warm, 0.1), "warm": 0.0, "client_kind": "lg"})
    return runs.run_client(server, load._replace(rate=None), args)


def one_run(client, cell, args):
    """One measured run of one client in one cell."""
    load = loads.Load(PATH, connections=cell.connections, rate=cell.rate or None)
    command = commands(args.ours)[cell.target]
    with servers.Server(command, cpu=args.server_cpu, ready=lambda port: answers.responds(port, PATH)) as server:
        closed = settle(server, load, args)["rps"]
        if cell.part == "stall":
            figures = stalled(client, server, load, args)
        elif cell.part == "knee":
            figures = around_the_knee(client, server, load, closed, args)
        else:
            figures = ask(client, server, load, args)
        if not server.alive():
            raise servers.ServerError(f"the server ended: {server.last_output()}")
    return figures


def stalled(client, server, load, args):
    """A run against a server that stands still now and then."""
    args = argparse.Namespace(**{**vars(args), "secs": args.stall_secs})
    with Stalls(server.process.pid) as stalls:
        figures = ask(client, server, load, args)
    if not stalls.lengths:
        raise servers.ServerError("the server did not stand still once: measure longer")
    figures["stalls"], figures["stall_secs"] = len(stalls.lengths), statistics.mean(stalls.lengths)
    return figures


def around_the_knee(client, server, load, closed, args):
    """A run well below and one beyond what a closed loop has reached; the figures are of the latter."""
    below = ask(client, server, load._replace(rate=BELOW * closed), args)
    figures = ask(client, server, load._replace(rate=BEYOND * closed), args)
    return {**figures, "closed_rps": closed, "below_rps": below["rps"], "below_doubts": below["doubts"],
            "errs": figures["errs"] + below["errs"]}


# ---- the report ----


def cells_of(results, part):
    """The part's cells, in order."""
    return sorted({cell for by_cell in results.values() for cell in by_cell if cell.part == part},
                  key=lambda cell: (TARGETS[part].index(cell.target), not cell.rate, cell.rate))


def rows(results, cell):
    """(client, its runs) in a cell, in the order of CLIENTS."""
    return [(name, list(results.get(name, {}).get(cell, {}).values())) for name in clients(cell)]


def pair_table(cell, results):
    """Parts `throughput` and `cost`: the clients' medians."""
    lines = [f"### {cell.part}: {SAID[cell.part]} ({cell.target}), {cell.connections} connections", "",
             "| client | req/s | by wrk's | **client CPU us/request** | least | by wrk's | says itself | p50 us | p99 us |"
             " client CPU | server CPU | server us/request | errors | runs |", "| --- |" + " --- |" * 13]
    full = []
    for name, found in rows(results, cell):
        if not found:
            lines.append(f"| {name} | failed |" + " |" * 11 + " 0 |")
            continue
        m = runs.medians(found)
        own = f"{m['cpu'] / m['n'] * 1e6:.2f}" if "cpu" in m else ""
        by_wrk = [ratio_text(results, name, cell, figure) for figure in ("rps", "client_us")]
        lines.append(
            f"| {name} | {m['rps']:,.0f} | {by_wrk[0]} | **{m['client_us']:.2f}** | {min(r['client_us'] for r in found):.2f} |"
            f" {by_wrk[1]} | {own} | {m['p50_us']:,.0f} | {m['p99_us']:,.0f} | {m['client_share']:.0%} | {m['server_share']:.0%} |"
            f" {m['us_per_message']:.2f} | {sum(r['errs'] for r in found):.0f} | {len(found)} |")
        if cell.part == "throughput" and m["client_share"] > CLIENT_FULL:
            full.append(name)
    if full:
        lines += ["", f"The client's CPU was full, so that the server was not the limit: {', '.join(full)}."]
    return lines + [""]


def ratio_text(results, name, cell, figure):
    """A client's figure by wrk's in one cell, with the interval."""
    if name == "wrk" or "wrk" not in results:
        return ""
    found = runs.compare({cell: results[name].get(cell, {})}, {cell: results["wrk"].get(cell, {})}, figure)
    return f"{found[1]:.3f} ({found[2]:.3f} to {found[3]:.3f})" if found else ""


def verdict(value, low, high, bar):
    """What a median and its interval say of a bar with two ends."""
    outside = not bar.least <= value <= bar.most
    within = bar.least <= low and high <= bar.most
    if outside:
        return "**missed**" if low > bar.most or high < bar.least else "**missed**, but the interval reaches into the bar"
    return "met" if within else "met, but the interval reaches out of the bar"


def judge_ratios(results):
    """The bars on ratios: (lines of the report, number of bars missed)."""
    lines = ["### Bars", "", "| ratio | of | server | median | 95 % interval | pairs | bar | |", "| --- |" + " --- |" * 7]
    what = {"rps": "throughput", "client_us": "client CPU per request"}
    judged = missed = 0
    for bar in BARS:
        pair = [{c: f for c, f in results.get(name, {}).items() if (c.part, c.target) == (bar.part, bar.target)}
                for name in (bar.ours, bar.other)]
        found = runs.compare(*pair, bar.figure) if all(pair) else None
        if not found:
            continue
        ratios, value, low, high = found
        judged += 1
        missed += not bar.least <= value <= bar.most
        wanted = f"{bar.least:.2f} to {bar.most:.2f}" if bar.least else f"<= {bar.most:.2f}"
        lines.append(f"| {bar.ours} / {bar.other} | {what[bar.figure]} | {bar.target} | **{value:.3f}** | {low:.3f} to {high:.3f} |"
                     f" {len(next(iter(ratios.values())))} | {wanted} | {verdict(value, low, high, bar)} |")
    return (lines + [""] if judged else []), missed


def judge_stalls(results):
    """Who shows a server that stands still: (lines of the report, number of bars missed)."""
    cells, missed = cells_of(results, "stall"), 0
    if not cells:
        return [], 0
    lines = [f"### stall: {cells[0].target} stands still for {1e3 * STALL_SECONDS:.0f} ms of every"
             f" {PERIOD_SECONDS:g} s, {cells[0].connections} connections", "",
             f"By a schedule one request in a hundred waits {STALL_P99_MS:.0f} ms or longer. A closed loop sends nothing while the server"
             " stands, so it sees one slow answer a connection. wrk makes up for them: at its end it adds answers as late as those that it"
             " reckons were not asked for, at the pace of its loop and not at a rate of yours.", "",
             "| req/s asked for | client | answered/s | service p50 ms | service p99 ms | **response p99 ms** | longest ms | stalls |"
             " stall ms | errors | bar | |", "| --- |" + " --- |" * 11]
    for cell in cells:
        for name, found in rows(results, cell):
            if not found:
                lines.append(f"| {cell.rate or 'closed loop'} | {name} | failed |" + " |" * 9)
                continue
            m = runs.medians(found)
            response = m.get("sched_p99_us")
            judged = ""
            if name.startswith("bench") and cell.rate:
                met = response is not None and response / 1e3 >= STALL_BAR_MS
                missed += not met
                judged = f">= {STALL_BAR_MS:.0f} | {'met' if met else '**missed**'}"
            lines.append(
                f"| {cell.rate or 'closed loop'} | {name} | {m['rps']:,.0f} | {m['p50_us'] / 1e3:.2f} |"
                f" {m['p99_us'] / 1e3:.2f} | {'none' if response is None else f'**{response / 1e3:.1f}**'} |"
                f" {max(m.get('sched_max_us', 0), m.get('max_us', 0)) / 1e3:.0f} | {m['stalls']:.0f} | {1e3 * m['stall_secs']:.0f} |"
                f" {m['errs']:.0f} | {judged or ' | '} |")
    return lines + [""], missed


def judge_knee(results):
    """Whether a rate beyond the server is told, and one below is not: (lines of the report, number of bars missed)."""
    lines, missed = [], 0
    for cell in cells_of(results, "knee"):
        for name, found in rows(results, cell):
            for f in found:
                told, quiet = "rate_missed" in f["doubts"], "rate_missed" not in f["below_doubts"]
                missed += (not told) + (not quiet)
                lines += [
                    f"### knee: {cell.target}, {cell.connections} connections, {name}", "",
                    f"A closed loop reaches {f['closed_rps']:,.0f}/s.", "",
                    "| rate | asked for | answered/s | doubts (warnings) | bar | |", "| --- |" + " --- |" * 5,
                    f"| below | {BELOW * f['closed_rps']:,.0f} | {f['below_rps']:,.0f} | {', '.join(f['below_doubts']) or 'none'} |"
                    f" no `rate_missed` | {'met' if quiet else '**missed**'} |",
                    f"| beyond | {BEYOND * f['closed_rps']:,.0f} | {f['rps']:,.0f} | {', '.join(f['doubts']) or 'none'} |"
                    f" `rate_missed` | {'met' if told else '**missed**'} |", ""]
    return lines, missed


def rate_table(cell, results):
    """Part `rate`: latencies side by side, no bar."""
    lines = [f"### rate: {SAID['rate']} ({cell.target}), {cell.connections} connections", "",
             "Service times count from the sending, response times from the schedule, as wrk2's do. Below the knee both are the same"
             " but for the client's own lateness (lag).", "",
             "| client | answered/s | service p50 us | service p99 us | response p50 us | response p99 us | lag p99 us | late | client CPU |"
             " errors | runs |", "| --- |" + " --- |" * 10]
    for name, found in rows(results, cell):
        if not found:
            lines.append(f"| {name} | failed |" + " |" * 8 + " 0 |")
            continue
        m = runs.medians(found)
        lag = f"{m['lag_p99_us']:,.0f}" if "lag_p99_us" in m else ""
        lines.append(f"| {name} | {m['rps']:,.0f} | {m['p50_us']:,.0f} | {m['p99_us']:,.0f} | {m['sched_p50_us']:,.0f} |"
                     f" {m['sched_p99_us']:,.0f} | {lag} | {m['missed']:,.0f} | {m['client_share']:.0%} |"
                     f" {sum(r['errs'] for r in found):.0f} | {len(found)} |")
    return lines + [""]


def versions(args):
    """What was compared."""
    said = [subprocess.run(command, capture_output=True, text=True, timeout=10).stdout.splitlines()[:1]
            for command in ([args.client, "--version"], ["wrk", "--version"])]
    return "; ".join(line for lines in said for line in lines)


def report(results, planned, args):
    """Prints the report. Returns the exit code."""
    lines = [f"## Load generators: {args.pairs} interleaved rounds of {args.secs:g} s, server on CPU {args.server_cpu},"
             f" client on CPU {args.load_cpu}", "",
             f"Linux {os.uname().release}, {os.cpu_count()} CPUs, {time.strftime('%Y-%m-%d')}. {versions(args)}.", ""]
    for part in ("throughput", "cost"):
        for cell in cells_of(results, part):
            lines += pair_table(cell, results)
    for cell in cells_of(results, "rate"):
        lines += rate_table(cell, results)
    missed = 0
    for judge in (judge_stalls, judge_knee, judge_ratios):
        more, count = judge(results)
        lines, missed = lines + more, missed + count
    runs.publish(lines + runs.doubts(results), args)
    return 0 if runs.all_sound(results, planned) and not missed else 1


def main():
    args = parse_arguments()
    require(args)
    runs.take_places(args)
    planned = sum(len(names) for number in range(args.pairs) for names in plan(number, args).values())
    results = runs.rounds(lambda number: plan(number, args), lambda client, cell: one_run(client, cell, args), args)
    return report(results, planned, args)


if __name__ == "__main__":
    sys.exit(main())
