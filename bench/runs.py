"""Measured runs: one server under one load, and interleaved rounds of them.

Must not know what protocol is spoken nor what is concluded: what a cell is, and the load in it,
is the caller's. A cell is a named tuple; figures are plain dictionaries.
"""

import argparse
import collections
import json
import os
import statistics
import subprocess
import sys
import time

import loads
import server as servers
import stats

# The samples around the measuring window are taken this part of it after its begin and before its
# end: the client's own start and end are outside.
MARGIN = 0.1
# Warnings of `ringmain bench` about its own part, and what they leave of the figures.
CLIENT_DOUBTS = {
    "client_busy": "the client's CPU was full, so throughput and latency are its limits; CPU per request stands",
    "send_lag": "the client sent late by itself, so latencies from the schedule have its own lateness in them",
    "shared_cpu": "client and server shared a CPU, so no figure stands",
}


def arguments(description, pairs, secs=1.5):
    """The options that every comparison has, with its own defaults of rounds and of their length."""
    cpus = sorted(os.sched_getaffinity(0))
    ap = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--ours", default=str(servers.TARGET / "dist/ringmain"), help="the ringmain binary")
    ap.add_argument("--client", metavar="PATH", default=str(servers.TARGET / "dist/ringmain"),
                    help="the ringmain binary whose `bench` makes the load (target/dist/ringmain)")
    ap.add_argument("--client-kind", choices=("bench", "lg"), default="bench",
                    help="`ringmain bench`, or the lean client/lg.c, for HTTPS client/tls (bench)")
    ap.add_argument("--pairs", type=int, default=pairs, help=f"rounds ({pairs})")
    ap.add_argument("--secs", type=float, default=secs, help=f"measuring window of one run ({secs:g})")
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


def require_client(name, args):
    """Ends the program `name` with what to do if there is no load client."""
    if args.client_kind == "bench" and not os.access(args.client, os.X_OK):
        print(f"{name}: no load client at {args.client}: run cargo build --profile dist (or name it with --client,"
              " or take the lean one: --client-kind lg)", file=sys.stderr)
        raise SystemExit(2)
    if args.client_kind == "lg":
        require_lean(name, "lg", "client")


def require_lean(name, client, part):
    """Ends the program `name` with what to build if this lean client is not there."""
    if not os.access(servers.PEERS / "bin" / client, os.X_OK):
        print(f"{name}: no load client {client} in {servers.PEERS}/bin: run bench/build.sh {part}", file=sys.stderr)
        raise SystemExit(2)


def start(command, args):
    """A load client on its CPU, its output to be read."""
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            preexec_fn=servers.prepare_child(cpu=args.load_cpu))


def used(begin, end):
    """What the server and both CPUs did between two samples: shares of the time between, and of the CPU time."""
    exact, user, system = (b - a for a, b in zip(begin["cpu"], end["cpu"]))
    found = {"server_cpu": exact / (end["at"] - begin["at"]),
             "user_share": user / (user + system) if user + system else 0.0}
    for core in ("server_core", "load_core"):
        busy, stolen, total = (b - a for a, b in zip(begin[core], end[core]))
        found[core] = busy / total if total else 0.0
        found[core + "_stolen"] = stolen / total if total else 0.0
    return found


def run_lean(server, load, args):
    """Runs the lean client, which tells when its window begins; the server's CPU time is sampled at both its ends."""
    samples, line = [], ""
    name, command = loads.lean(load)
    with start(command(str(servers.PEERS / "bin" / name), load, server.port, args.secs, args.warm), args) as client:
        try:
            for line in client.stdout:
                samples.append(sample(server, args))  # at BEGIN, and at the figures
            error = client.stderr.read().strip()
        except BaseException:
            client.kill()
            raise
    if len(samples) != 2:
        raise loads.ClientError(error or "no answers")
    figures = loads.lg_figures(line)
    figures.update(used(*samples))
    # The samples bracket the client's own window by a little; scaled to the same stretch of time.
    figures["us_per_message"] = figures["server_cpu"] * figures["secs"] / figures["n"] * 1e6
    return figures


def run_bench(server, load, args, engine):
    """Runs `ringmain bench`, which measures the server's CPU time itself, over exactly its window."""
    command = loads.bench_command(args.client, load, server.port, args.secs, args.warm, args.load_cpu,
                                  server.process.pid, engine)
    started, samples, said = time.monotonic(), [], None
    with start(command, args) as client:
        try:
            for share in (MARGIN, 1 - MARGIN):
                said = said or output_by(client, started + args.warm + share * args.secs)
                samples.append(sample(server, args))
            said = said or client.communicate()
        except BaseException:
            client.kill()
            raise
    text, error = said
    if client.returncode:
        raise loads.ClientError(error.strip() or f"exit code {client.returncode}")
    figures = loads.bench_figures(text)
    figures.update(used(*samples))
    figures["us_per_message"] = figures.pop("server_us_per_message")
    figures["server_cpu"] = figures.pop("server_cpu_secs") / figures["secs"]
    return figures


def output_by(client, deadline):
    """What a client has written, all of it, if it has ended by then; else None."""
    try:
        return client.communicate(timeout=max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None


def run_client(server, load, args, engine="auto"):
    """Runs the load client, `ringmain bench` on the engine named. Returns its figures and the server's."""
    try:
        is_lean = args.client_kind == "lg" or loads.only_lean(load)
        return run_lean(server, load, args) if is_lean else run_bench(server, load, args, engine)
    except loads.ClientError as e:
        raise servers.ServerError(f"the load client: {e}; the server: {server.last_output()}") from e


def measure(command, load, args, check=None, **options):
    """One run: figures of the client and of the server.

    `load`: a `loads.Load`. `check`: called with the server before and after the load; raises
    ServerError if its answers are wrong. `options`: of `servers.Server`.
    """
    with servers.Server(command, cpu=args.server_cpu, **options) as server:
        if check:
            check(server)
        figures = run_client(server, load, args)
        figures["peak_bytes"] = server.memory()["VmHWM"]
        if not server.alive():
            raise servers.ServerError(f"the server ended: {server.last_output()}")
        if check:
            check(server)
    return figures


def run_wrk(server, load, args):
    """Runs wrk for --secs, rounded up, as a second opinion. Returns its figures."""
    with start(loads.wrk_command("wrk", load, server.port, args.secs), args) as client:
        try:
            text, error = client.communicate()
        except BaseException:
            client.kill()
            raise
    if client.returncode:
        raise servers.ServerError(f"wrk: exit code {client.returncode}: {(text + error).strip()[-300:]}")
    try:
        return loads.wrk_figures(text)
    except loads.ClientError as e:
        raise servers.ServerError(f"wrk: {e}; the server: {server.last_output()}") from e


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


def one_figure(cells, key):
    """{cell: {round: figure}} of one server, such as its CPU us per message."""
    return {c: {r: f[key] for r, f in by_round.items()} for c, by_round in cells.items()}


def medians(runs):
    """The median of each figure that all of these runs have as a number."""
    return {k: statistics.median(r[k] for r in runs) for k in runs[0]
            if all(isinstance(r.get(k), (int, float)) for r in runs)}


def verdict(value, low, high, bar):
    """What the median and its interval say of the bar."""
    if value > bar:
        return "**missed**" if low > bar else "**missed**, but the interval reaches below the bar"
    return "met" if high <= bar else "met, but the interval reaches above the bar"


def compare(ours, other, key="us_per_message"):
    """Ratios of a figure in the cells of both: ({cell: {round: ratio}}, median, low, high); None without a pair."""
    ratios = stats.paired_ratios(one_figure(ours, key), one_figure(other, key))
    if not ratios:
        return None
    value = stats.median_over_cells(ratios, list(next(iter(ratios.values()))))
    return (ratios, value, *stats.interval(ratios))


def doubts(results):
    """What the client said against its own part: lines of the report, none if it said nothing."""
    found, total = {}, 0
    for name, cells in results.items():
        for cell, by_round in cells.items():
            for figures in by_round.values():
                total += 1
                for kind in CLIENT_DOUBTS.keys() & set(figures.get("doubts", ())):
                    found.setdefault(kind, collections.Counter())[f"{' '.join(map(str, cell))} {name}"] += 1
    lines = []
    for kind, meaning in CLIENT_DOUBTS.items():
        if kind in found:
            where = ", ".join(f"{at} {n}" for at, n in found[kind].items())
            lines.append(f"The client's doubts: `{kind}` in {sum(found[kind].values())} of {total} runs ({meaning}): {where}.")
    return lines + [""] if lines else []


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
