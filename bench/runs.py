"""Measured runs: one server under one load, and interleaved rounds of them.

Must not know what protocol is spoken nor what is concluded: what a cell is, and how the load
client is told of it, is the caller's. A cell is a named tuple; figures are plain dictionaries.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import server as servers
import stats


def arguments(description, pairs):
    """The options that every comparison has."""
    cpus = sorted(os.sched_getaffinity(0))
    ap = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--ours", default=str(servers.REPO / "target/release/ringmain"), help="the ringmain binary")
    ap.add_argument("--pairs", type=int, default=pairs, help=f"rounds ({pairs})")
    ap.add_argument("--secs", type=float, default=1.5, help="measuring window of one run (1.5)")
    ap.add_argument("--warm", type=float, default=0.5, help="warm-up before it (0.5)")
    ap.add_argument("--server-cpu", type=int, default=cpus[0])
    ap.add_argument("--load-cpu", type=int, default=cpus[-1])
    ap.add_argument("--raw", metavar="FILE.jsonl", help="append every run as a line of JSON")
    ap.add_argument("--out", metavar="FILE.md", help="write the report here too")
    return ap


def parse(ap):
    """The arguments, checked as far as all comparisons have them in common."""
    args = ap.parse_args()
    if args.pairs < 1 or args.secs <= 0:
        ap.error("expected at least one pair and a window above 0 s")
    return args


def take_places(args):
    """Prepares this process: ends cleanly on signals, and leaves the server's CPU to the server."""
    servers.end_on_signals()
    if args.server_cpu == args.load_cpu:
        print("server and client share one CPU: the figures say little", file=sys.stderr)
    os.sched_setaffinity(0, {args.load_cpu})


def sample(server, args):
    """What is read at both ends of the measuring window."""
    return {
        "at": time.monotonic(),
        "cpu": server.cpu(),
        "server_core": servers.core_use(args.server_cpu),
        "load_core": servers.core_use(args.load_cpu),
    }


def run_client(server, load, args):
    """Runs the load client. Returns its figures and the samples at both ends of its window."""
    command = [str(servers.PEERS / "bin" / "lg"), f"-p{server.port}", f"-d{args.secs}", f"-w{args.warm}", *load]
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


def measure(command, load, args, check=None, **options):
    """One run: figures of the client and of the server.

    `load`: the load client's own options. `check`: called with the server before and after the
    load; raises ServerError if its answers are wrong. `options`: of `servers.Server`.
    """
    with servers.Server(command, cpu=args.server_cpu, **options) as server:
        if check:
            check(server)
        figures, begin, end = run_client(server, load, args)
        figures["peak_bytes"] = server.memory()["VmHWM"]
        if not server.alive():
            raise servers.ServerError(f"the server ended: {server.last_output()}")
        if check:
            check(server)
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


def evenly(number, some, every):
    """Whether round `number` is one of `some` rounds that are spread over `every` rounds, the first among them."""
    return number * some % every < some


def rounds(plan, one_run, args):
    """Runs every cell of every round. Returns {server: {cell: {round: figures}}}.

    `plan`: a function of the round's number: {cell: [servers]}. `one_run`: a function of server
    and cell. The servers' order rotates with round and cell; a failed run is told and left out.
    """
    results = {}
    for number in range(args.pairs):
        for index, (cell, names) in enumerate(plan(number).items()):
            shift = (number + index) % len(names)
            for name in names[shift:] + names[:shift]:
                found = results.setdefault(name, {}).setdefault(cell, {})
                try:
                    figures = one_run(name, cell)
                except (servers.ServerError, OSError) as e:
                    print(f"{number} {' '.join(map(str, cell))} {name}: FAILED: {e}", file=sys.stderr, flush=True)
                    continue
                found[number] = figures
                print(f"{number} {' '.join(map(str, cell))} {name:22s} {figures['us_per_message']:.3f} us"
                      f"  {figures['rps']:,.0f}/s  errors {figures['errs']:.0f}", file=sys.stderr, flush=True)
                if args.raw:
                    with open(args.raw, "a") as f:
                        f.write(json.dumps({"server": name, **cell._asdict(), "round": number, **figures}) + "\n")
    return results


def cost(cells):
    """{cell: {round: CPU us per message}} of one server."""
    return {c: {r: f["us_per_message"] for r, f in by_round.items()} for c, by_round in cells.items()}


def medians(runs):
    """The median of each figure that all of these runs have."""
    return {k: statistics.median(r[k] for r in runs) for k in runs[0] if all(k in r for r in runs)}


def verdict(value, low, high, bar):
    """What the median and its interval say of the bar."""
    if value > bar:
        return "**missed**" if low > bar else "**missed**, but the interval reaches below the bar"
    return "met" if high <= bar else "met, but the interval reaches above the bar"


def compare(ours, other):
    """Ratios of the cost in the cells of both: ({cell: {round: ratio}}, median, low, high); None without a pair."""
    ratios = stats.paired_ratios(cost(ours), cost(other))
    if not ratios:
        return None
    value = stats.median_over_cells(ratios, list(next(iter(ratios.values()))))
    return (ratios, value, *stats.interval(ratios))


def publish(lines, args):
    """Prints the report, and writes it where --out says."""
    text = "\n".join(lines)
    print(text)
    if args.out:
        with open(args.out, "w") as f:
            f.write(text + "\n")


def all_sound(results, expected, excused=()):
    """Whether `expected` runs were made and none, but for the `excused` servers', counted an error."""
    found = [(name, f) for name, cells in results.items() for by_round in cells.values() for f in by_round.values()]
    return len(found) == expected and not any(f["errs"] for name, f in found if name not in excused)
