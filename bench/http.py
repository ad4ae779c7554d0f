#!/usr/bin/env python3
"""HTTP compared: Ringmain on io_uring and on epoll, bare loops, frameworks and servers.

    bench/build.sh http && cargo build --profile dist && bench/http.py
    bench/http.py --only floor-uring hyper nginx --pairs 2       peers alone
    bench/http.py --scenario json --conns 256                    one cell

Rounds are interleaved: the servers take turns in an order that rotates, each alone on the
first CPU, the client (`ringmain bench`) on the last. The figure is CPU seconds per million requests, user and
system of the server's process tree over the measuring window; ratios are taken within a
round, and their 95 % interval comes from resampling rounds. Before and after its load each
server is asked once, and a wrong answer fails the run. After the rounds wrk gives a second
opinion on ours and the peers. See README.md.

Exit code: 0 measured and every bar that could be judged is met, 1 a bar is missed, a run
failed or a client counted errors of a floor or of ours, 2 could not be run.
"""

import argparse
import collections
import os
import re
import shutil
import statistics
import sys
import time

import answers
import comparison
import loads
import programs
import runs
import server as servers
from programs import program

PEERS_SOURCE = servers.REPO / "bench" / "peers"
# Dialled from, since one address has some 28,000 ports and each is kept a while after its end.
SOURCES = "127.0.0.2-127.0.0.9"
RATE = 60_000
CONNECTIONS = 256  # where a scenario has one number of them
RESIDENT_BYTES = 32_000_000
RESIDENT_CONNECTIONS = 512

Cell = collections.namedtuple("Cell", "scenario connections")
OPINION = Cell("json", CONNECTIONS)  # where wrk is asked too
# kind: floor (neither parses nor builds), bare (parses), loop (a raw loop on a runtime), peer, ours.
Subject = collections.namedtuple("Subject", "kind command settings warm", defaults=(None, 0.0))
Bar = collections.namedtuple("Bar", "scenario ours other at_most")

SCENARIOS = {
    "json": "JSON, each connection sends as soon as it has its answer",
    "json-rate": f"JSON at a fixed {RATE:,} requests a second, open loop (latency from the schedule)",
    "plaintext": "plain text, 16 requests in flight on each connection",
    "reconnect": "JSON, a new connection after ten requests",
}
BARS = [
    Bar("json", "ours-uring", "floor-uring", 1.08),
    Bar("json", "ours-epoll", "floor-epoll", 1.08),
    Bar("json-rate", "ours-uring", "floor-uring", 1.08),
    Bar("json-rate", "ours-epoll", "floor-epoll", 1.08),
    Bar("plaintext", "ours-uring", "bare-uring", 1.30),
    Bar("plaintext", "ours-epoll", "bare-epoll", 1.30),
    Bar("plaintext", "ours-uring", "may_minihttp", 1.00),
    Bar("reconnect", "ours-uring", "floor-uring", 1.10),
    Bar("reconnect", "ours-epoll", "floor-epoll", 1.10),
]


def subjects(ours):
    """Every server that can be compared: {name: Subject}."""
    built, settings = servers.PEERS / "bin", PEERS_SOURCE / "settings"
    known = {}

    def add(name, kind, command, *arguments, **more):
        known[name] = Subject(kind, [str(command), *arguments], **more)

    for kind, mode in (("floor", "http"), ("bare", "bare")):
        for engine in ("uring", "epoll"):
            add(f"{kind}-{engine}", kind, built / "floor", f"{engine}-{mode}")
    for engine in ("uring", "epoll"):
        add(f"ours-{engine}", "ours", ours, "run", "--listen", "127.0.0.1:$PORT", "--workers", "1", "--engine", engine)
    for engine in ("uring", "epoll"):
        add(f"monoio-{engine}", "loop", built / "peer-monoio", engine)
    for runtime in ("neon-uring", "tokio"):
        for name in ("ntex-codec", "ntex-web"):
            add(f"{name}-{runtime}", "peer", built / f"{name}-{runtime}")
    for name, binary in (("xitca-http", "peer-xitca"), ("may_minihttp", "peer-may"), ("hyper", "peer-hyper"),
                         ("axum", "peer-axum"), ("actix-web", "peer-actix"), ("fasthttp", "fasthttp"),
                         ("gnet", "gnethttp"), ("go-net-http", "gohttp")):
        add(name, "peer", built / binary)
    add("nginx", "peer", program("nginx"), "-c", "$SETTINGS", settings=settings / "nginx.conf")
    add("haproxy", "peer", program("haproxy"), "-db", "-f", "$SETTINGS", settings=settings / "haproxy.cfg")
    add("h2o", "peer", program("h2o"), "-c", "$SETTINGS", settings=settings / "h2o.conf")
    add("node", "peer", program("node"), str(PEERS_SOURCE / "node" / "server.js"), warm=2.0)
    return known


def parse_arguments():
    ap = runs.arguments(__doc__, pairs=10)
    ap.add_argument("--only", nargs="+", metavar="SERVER", help="of: " + " ".join(subjects("")))
    ap.add_argument("--scenario", nargs="+", choices=list(SCENARIOS), default=list(SCENARIOS), help="(all)")
    ap.add_argument("--conns", nargs="+", type=int, metavar="N", default=[64, 256, 512],
                    help="connections of json and json-rate (64 256 512)")
    ap.add_argument("--peer-pairs", type=int, default=5, help="rounds in which peers and loops run too (5)")
    args = runs.parse(ap)
    if not 1 <= min(args.conns) <= max(args.conns) <= 15_000:
        ap.error("--conns: expected numbers from 1 to 15,000")
    if args.peer_pairs < 1:
        ap.error("--peer-pairs: expected at least 1")
    return args


def choose(args):
    """The servers to run and the names of those left out, or an error that says what to do."""
    build = "bench/build.sh http"
    remedies = {"ours": "cargo build --profile dist (or name it with --ours)",
                **{kind: build for kind in ("floor", "bare", *comparison.OTHERS)}}
    chosen, left_out = comparison.choose("http.py", subjects(args.ours), args.only, remedies)
    runs.require_client("http.py", args)
    return chosen, left_out


def cells(args):
    """The cells in the order of the report."""
    found = []
    for scenario in args.scenario:
        several = scenario in ("json", "json-rate")
        found += [Cell(scenario, n) for n in (args.conns if several else [CONNECTIONS])]
    return found


def fits(_, subject, cell):
    """Whether a server can run a cell: the floor answers blocks, so it cannot tell pipelined requests apart."""
    return subject.kind != "floor" or cell.scenario != "plaintext"


def load(cell):
    """What is asked of a server in a cell."""
    more = {"json": {}, "json-rate": {"rate": RATE}, "plaintext": {"pipeline": 16},
            "reconnect": {"reconnect_every": 10, "sources": SOURCES}}
    path = "/plaintext" if cell.scenario == "plaintext" else "/json"
    return loads.Load(path, connections=cell.connections, expect=answers.HELLO, **more[cell.scenario])


def ready(path):
    """Whether a server answers at all, as a function of its port; the check of its answers says what is wrong."""

    def probe(port):
        try:
            return answers.responds(port, path)
        except answers.WrongAnswer:
            return True

    return probe


def one_run(subject, cell, args):
    """One measured run of one server in one cell."""
    path = load(cell).path

    def check(server):
        try:
            answers.check(server.port, path, date_moves=subject.kind != "floor")
        except (answers.WrongAnswer, OSError) as e:
            raise servers.ServerError(f"{e}; the server: {server.last_output()}") from e

    args = argparse.Namespace(**{**vars(args), "warm": max(args.warm, subject.warm)})
    return runs.measure(subject.command, load(cell), args, check=check, ready=ready(path), settings=subject.settings)


def second_opinions(chosen, args):
    """One run of wrk for ours and each peer in one cell: {name: figures}; none if there is no wrk."""
    if OPINION not in cells(args) or not shutil.which("wrk"):
        return {}
    found, wanted = {}, load(OPINION)
    for name, subject in chosen.items():
        if subject.kind not in ("ours", "peer"):
            continue
        try:
            with servers.Server(subject.command, cpu=args.server_cpu, ready=ready(wanted.path),
                                settings=subject.settings) as server:
                found[name] = runs.run_wrk(server, wanted, args)
        except (servers.ServerError, OSError) as e:
            print(f"second opinion of {name}: FAILED: {e}", file=sys.stderr, flush=True)
    return found


def cell_table(cell, results, chosen):
    """One cell: every server's medians, the least CPU first."""
    base = "bare-uring" if cell.scenario == "plaintext" else "floor-uring"
    lines = [f"### {cell.scenario}, {cell.connections} connections", "", SCENARIOS[cell.scenario] + ".", "",
             f"| server | kind | **CPU s/M requests** | least | by {base} (95 %) | of it user | req/s | p50 us | p99 us | p99.9 us |"
             " peak MB | server CPU | client CPU | errors | runs |", "| --- |" + " --- |" * 14]
    rows = []
    for name, by_cell in results.items():
        found = list(by_cell.get(cell, {}).values())
        if found:
            rows.append((runs.medians(found)["us_per_message"], name, found))
        elif cell in by_cell:
            lines.append(f"| {name} | {chosen[name].kind} | failed |" + " |" * 11 + " 0 |")
    for cost, name, found in sorted(rows, key=lambda row: row[:2]):
        m = runs.medians(found)
        latency = "sched_" if "sched_p50_us" in m else ""
        lines.append(
            f"| {name} | {chosen[name].kind} | **{cost:.2f}** | {min(r['us_per_message'] for r in found):.2f} |"
            f" {comparison.ratio_text(results, name, base, cell)} | {m['user_share']:.0%} | {m['rps']:,.0f} | {m[latency + 'p50_us']:,.0f} |"
            f" {m[latency + 'p99_us']:,.0f} | {m[latency + 'p999_us']:,.0f} | {m['peak_bytes'] / 1e6:.1f} | {m['server_cpu']:.0%} |"
            f" {m['load_core']:.0%} | {sum(r['errs'] for r in found):.0f} | {len(found)} |")
    return lines + [""]


def opinion_table(results, opinions):
    """What wrk says beside what the client said; no bar."""
    if not opinions:
        return []
    lines = ["### A second opinion", "",
             f"One run of wrk for each, {OPINION.scenario}, {OPINION.connections} connections, beside the medians above. wrk has no"
             " warm-up and checks no bodies; where the client was the limit, wrk, which spends more CPU on a request, finds less.", "",
             "| server | wrk req/s | client req/s | wrk/client | wrk p50 us | wrk p99 us | wrk errors |", "| --- |" + " --- |" * 6]
    for name, said in opinions.items():
        found = list(results.get(name, {}).get(OPINION, {}).values())
        ours = runs.medians(found)["rps"] if found else None
        beside = f"{ours:,.0f} | {said['rps'] / ours:.3f}" if ours else "failed | "
        lines.append(f"| {name} | {said['rps']:,.0f} | {beside} | {said['p50_us']:,.0f} | {said['p99_us']:,.0f} | {said['errs']} |")
    return lines + [""]


def bars(chosen):
    """All bars on CPU: the fixed ones, and ours below each peer."""
    return BARS + [Bar("json", "ours-uring", name, 1.00) for name, s in chosen.items() if s.kind == "peer"]


def compare(results, chosen, left_out):
    """The bars on CPU: (lines of the report, number of bars missed)."""
    lines = ["### Bars", "", "| CPU per request | scenario | by connections | median over them | 95 % interval | pairs | bar | |",
             "| --- |" + " --- |" * 7]
    judged = missed = 0
    for bar in bars(chosen):
        pair = [comparison.within(results.get(name, {}), bar.scenario) for name in (bar.ours, bar.other)]
        found = runs.compare(*pair) if all(pair) else None
        if not found:
            continue
        ratios, value, low, high = found
        judged += 1
        missed += value > bar.at_most
        by_cell = ", ".join(f"{c.connections}: {statistics.median(r.values()):.3f}" for c, r in ratios.items())
        lines.append(f"| {bar.ours} / {bar.other} | {bar.scenario} | {by_cell} | **{value:.3f}** | {low:.3f} to {high:.3f} |"
                     f" {len(next(iter(ratios.values())))} | <= {bar.at_most:.2f} | {runs.verdict(value, low, high, bar.at_most)} |")
    if not judged:
        lines = ["### Bars", "", "No bar on CPU judged: none of the pairs was measured."]
    if left_out:
        lines += ["", f"Not here, so not compared: {', '.join(left_out)}."]
    return lines + [""], missed


def resident(results):
    """The bar on memory: (lines of the report, number of bars missed)."""
    lines, missed = [], 0
    for name in ("ours-uring", "ours-epoll"):
        found = results.get(name, {}).get(Cell("json", RESIDENT_CONNECTIONS), {})
        if found:
            most = max(f["peak_bytes"] for f in found.values())
            missed += most > RESIDENT_BYTES
            lines.append(f"{name}: at most {most / 1e6:.1f} MB resident (VmHWM) at {RESIDENT_CONNECTIONS} connections, bar"
                         f" {RESIDENT_BYTES / 1e6:.0f}: {'**missed**' if most > RESIDENT_BYTES else 'met'}.")
    return lines + [""] if lines else [], missed


def versions(chosen):
    """What was compared: from the lock files and from the programs themselves."""
    found = []
    lock = (PEERS_SOURCE / "rust" / "Cargo.lock").read_text()
    for name in ("actix-web", "axum", "hyper", "may_minihttp", "monoio", "ntex", "tokio", "xitca-http"):
        m = re.search(rf'name = "{name}"\nversion = "([^"]+)"', lock)
        found.append(f"{name} {m.group(1)}")
    found += comparison.go_versions({"github.com/panjf2000/gnet/v2", "github.com/valyala/fasthttp"})
    named = [name for name in ("nginx", "haproxy", "h2o", "node") if name in chosen]
    return "; ".join(found + programs.versions(*named, "go"))


def report(results, planned, opinions, chosen, left_out, args):
    """Prints the report. Returns the exit code."""
    lines = [f"## HTTP: {args.pairs} interleaved rounds of {args.secs:g} s, server on CPU {args.server_cpu},"
             f" client on CPU {args.load_cpu}", "",
             f"Linux {os.uname().release}, {os.cpu_count()} CPUs, {time.strftime('%Y-%m-%d')}. {versions(chosen)}.", ""]
    for cell in cells(args):
        lines += cell_table(cell, results, chosen)
    on_cpu, missed = compare(results, chosen, left_out)
    on_memory, missed_memory = resident(results)
    lines += opinion_table(results, opinions) + runs.doubts(results)
    runs.publish(lines + on_cpu + on_memory, args)
    excused = [name for name, s in chosen.items() if s.kind in comparison.OTHERS]  # theirs are in the tables
    return 0 if runs.all_sound(results, planned, excused) and not missed + missed_memory else 1


def main():
    args = parse_arguments()
    chosen, left_out = choose(args)
    runs.take_places(args)
    results, planned = comparison.run_rounds(chosen, cells(args), fits, one_run, args)
    return report(results, planned, second_opinions(chosen, args), chosen, left_out, args)


if __name__ == "__main__":
    sys.exit(main())
