#!/usr/bin/env python3
"""HTTPS compared: Ringmain on io_uring and on epoll, hyper + rustls, nginx; and plain HTTP against a binary from before.

    bench/build.sh https && cargo build --profile dist && bench/tls.py --before /tmp/ringmain-before
    bench/tls.py --only hyper-rustls nginx --client-kind lg --pairs 2      peers alone
    bench/tls.py --scenario resumed                                        one kind of load

Rounds are interleaved: the servers take turns in an order that rotates, each alone on the first CPU, the client on
the last. The figure is CPU seconds per million requests, or handshakes with one request each, user and system of the
server's process tree over the measuring window; ratios are taken within a round, and their 95 % interval comes from
resampling rounds. Before and after its load each server is asked once, with its certificate checked, and a wrong
answer fails the run. See README.md.

Exit code: 0 measured and every bar that could be judged is met, 1 a bar is missed, a run failed or a client counted
errors of ours, 2 could not be run.
"""

import argparse
import collections
import functools
import os
import sys
import tempfile
import time

import answers
import certificates
import comparison
import loads
import programs
import runs
import server as servers
from comparison import Bar, Subject
from programs import program

SETTINGS = servers.REPO / "bench" / "peers" / "settings"
# Dialled from, since one address has some 28,000 ports and each is kept a while after its end.
SOURCES = "127.0.0.2-127.0.0.9"
PATH = "/json"
HANDSHAKES_AT_ONCE = 4

Cell = collections.namedtuple("Cell", "scenario connections")

SCENARIOS = {
    "keep-alive": "JSON over TLS 1.3, each connection sends as soon as it has its answer.",
    "full": f"One GET a connection, each with a full TLS 1.3 handshake (P-256), {HANDSHAKES_AT_ONCE} at a time.",
    "resumed": f"One GET a connection, each on a resumed TLS 1.3 session, {HANDSHAKES_AT_ONCE} at a time.",
    "plain": "JSON without TLS, this binary and the one from before (--before).",
}
MODES = {"keep-alive": "keep", "full": "full", "resumed": "resumed"}
BASES = {"plain": "before-uring"}
BARS = [
    # The better of both: so at most this times either.
    Bar("keep-alive", "ours-uring", "hyper-rustls", 0.85),
    Bar("keep-alive", "ours-uring", "nginx", 0.85),
    Bar("full", "ours-uring", "hyper-rustls", 0.90),
    Bar("full", "ours-uring", "nginx", 0.50),
    Bar("resumed", "ours-uring", "hyper-rustls", 0.90),
    Bar("resumed", "ours-uring", "nginx", 0.50),
    Bar("plain", "plain-uring", "before-uring", None),
    Bar("plain", "plain-epoll", "before-epoll", None),
]


def subjects(ours, before, made):
    """Every server that can be compared: {name: Subject}."""
    cert, key = str(made.cert), str(made.key)
    run = ["run", "--listen", "127.0.0.1:$PORT", "--workers", "1", "--engine"]
    known = {}
    for engine in ("uring", "epoll"):
        known[f"ours-{engine}"] = Subject("ours", [ours, *run, engine, "--cert", cert, "--key", key])
    known["hyper-rustls"] = Subject("peer", [str(servers.PEERS / "bin" / "peer-hyper-rustls"), cert, key])
    known["nginx"] = Subject("peer", [program("nginx"), "-c", "$SETTINGS"],
                             {"settings": SETTINGS / "nginx-tls.conf", "names": {"$CERT": cert, "$KEY": key}})
    for name, binary, kind in (("plain", ours, "ours"), ("before", before, "before")):
        for engine in ("uring", "epoll") if binary else ():
            known[f"{name}-{engine}"] = Subject(kind, [binary, *run, engine])
    return known


def is_plain(name):
    return name.startswith(("plain-", "before-"))


def fits(name, _, cell):
    """Servers without TLS run the cells without it, and no others."""
    return is_plain(name) == (cell.scenario == "plain")


def parse_arguments():
    ap = runs.arguments(__doc__, pairs=10)
    nothing = certificates.Made("", "", "")
    ap.add_argument("--only", nargs="+", metavar="SERVER", help="of: " + " ".join(subjects("", "before", nothing)))
    ap.add_argument("--scenario", nargs="+", choices=list(SCENARIOS), default=list(SCENARIOS), help="(all)")
    ap.add_argument("--conns", nargs="+", type=int, metavar="N", default=[64, 256],
                    help="connections of keep-alive and plain (64 256)")
    ap.add_argument("--before", metavar="BINARY", help="the ringmain binary that plain HTTP is held against")
    ap.add_argument("--peer-pairs", type=int, default=10, help="rounds in which peers run too (10)")
    args = runs.parse(ap)
    if not 1 <= min(args.conns) <= max(args.conns) <= 15_000:
        ap.error("--conns: expected numbers from 1 to 15,000")
    if args.peer_pairs < 1:
        ap.error("--peer-pairs: expected at least 1")
    if "plain" in args.scenario and not args.before:
        args.scenario.remove("plain")
        print("tls.py: no --before BINARY: plain HTTP is not measured", file=sys.stderr)
    return args


def cells(args):
    """The cells in the order of the report."""
    found = []
    for scenario in args.scenario:
        several = scenario in ("keep-alive", "plain")
        found += [Cell(scenario, n) for n in (args.conns if several else [HANDSHAKES_AT_ONCE])]
    return found


def load(cell, ca):
    """What is asked of a server in a cell."""
    tls = loads.Tls(MODES[cell.scenario], ca) if cell.scenario in MODES else None
    return loads.Load(PATH, connections=cell.connections, expect=answers.HELLO, tls=tls,
                      sources=SOURCES if cell.scenario in ("full", "resumed") else None)


def ready(port, tls):
    """Whether a server answers at all; the check of its answers says what is wrong."""
    try:
        return answers.responds(port, PATH, tls)
    except answers.WrongAnswer:
        return True


def one_run(made, subject, cell, args):
    """One measured run of one server in one cell."""
    tls = answers.tls_context(made.ca) if cell.scenario in MODES else None

    def check(server):
        try:
            answers.check(server.port, PATH, tls=tls)
        except (answers.WrongAnswer, OSError) as e:
            raise servers.ServerError(f"{e}; the server: {server.last_output()}") from e

    figures = runs.measure(subject.command, load(cell, made.ca), args, check=check,
                           ready=functools.partial(ready, tls=tls), **subject.options)
    resumed = figures.get("resumed", 0)
    if cell.scenario in ("full", "resumed") and resumed != (figures["n"] if cell.scenario == "resumed" else 0):
        raise servers.ServerError(f"expected {cell.scenario} handshakes, found {resumed:.0f} of {figures['n']:.0f} resumed")
    return figures


def versions():
    """What was compared: from the lock file and from the programs themselves."""
    found = comparison.locked_versions({"hyper", "rustls", "tokio-rustls", "aws-lc-rs", "tokio"})
    return "; ".join(found + programs.versions("nginx", "openssl"))


def report(results, planned, chosen, left_out, args):
    """Prints the report. Returns the exit code."""
    lines = [f"## HTTPS: {args.pairs} interleaved rounds of {args.secs:g} s, server on CPU {args.server_cpu},"
             f" client on CPU {args.load_cpu}", "",
             f"Linux {os.uname().release}, {os.cpu_count()} CPUs, {time.strftime('%Y-%m-%d')}. {versions()}.", ""]
    for cell in cells(args):
        title = f"{cell.scenario}, {cell.connections} connections"
        base = BASES.get(cell.scenario, "hyper-rustls")
        lines += comparison.cell_table(title, SCENARIOS[cell.scenario], cell, results, chosen, base)
    wanted = [bar for bar in BARS if bar.scenario in args.scenario]
    judged, missed = comparison.bar_table(wanted, results, left_out)
    runs.publish(lines + runs.doubts(results) + judged, args)
    peers = [name for name, s in chosen.items() if s.kind == "peer"]  # their errors are in the tables
    return 0 if runs.all_sound(results, planned, peers) and not missed else 1


def main():
    args = parse_arguments()
    with tempfile.TemporaryDirectory(prefix="bench-tls-") as folder:
        try:
            made = certificates.make(folder)
        except certificates.CertificateError as e:
            print(f"tls.py: {e}", file=sys.stderr)
            return 2
        remedies = {"ours": "cargo build --profile dist (or name it with --ours)", "before": "a build of the commit before",
                    "peer": "bench/build.sh https, and install nginx"}
        chosen, left_out = comparison.choose("tls.py", subjects(args.ours, args.before, made), args.only, remedies)
        if any(cell.scenario != "plain" for cell in cells(args)) and (
                args.client_kind == "lg" or any(loads.only_lean(load(cell, made.ca)) for cell in cells(args))):
            runs.require_lean("tls.py", "tl", "tls")
        if args.client_kind == "bench" or "plain" in args.scenario:
            runs.require_client("tls.py", args)
        runs.take_places(args)
        results, planned = comparison.run_rounds(chosen, cells(args), fits, functools.partial(one_run, made), args)
        return report(results, planned, chosen, left_out, args)


if __name__ == "__main__":
    sys.exit(main())
