#!/usr/bin/env python3
"""WebSocket echo compared: Ringmain on io_uring and on epoll, its own echo of raw bytes, fastwebsockets.

    bench/build.sh https && cargo build --profile dist && bench/ws.py
    bench/ws.py --only fastwebsockets --client-kind lg --pairs 2       a peer alone

Rounds are interleaved as in echo.py. Messages are masked and binary, one in flight on a connection. The raw echo gets
as many bytes as a WebSocket message has on its way back, header and all, so that what is compared with it is the
protocol. The figure is CPU time per message of the server's process tree. See README.md.

Exit code: 0 measured and every bar that could be judged is met, 1 a bar is missed, a run failed or a client counted
errors of ours, 2 could not be run.
"""

import argparse
import collections
import os
import sys
import time

import answers
import comparison
import loads
import runs
import server as servers
from comparison import Bar, Subject

PATH = "/ws"
HEADER_BYTES = 4  # of a message of 126 to 65,535 bytes on its way back

Cell = collections.namedtuple("Cell", "scenario bytes connections")

BARS = [
    Bar("ws", "ours-uring", "echo-uring", 1.10),
    Bar("ws", "ours-epoll", "echo-epoll", 1.10),
    Bar("ws", "ours-uring", "fastwebsockets", 1.00),
]


def subjects(ours):
    """Every server that can be compared: {name: Subject}."""
    known = {}
    for name, more in (("ours", []), ("echo", ["--echo"])):
        for engine in ("uring", "epoll"):
            command = [ours, "run", *more, "--listen", "127.0.0.1:$PORT", "--workers", "1", "--engine", engine]
            known[f"{name}-{engine}"] = Subject("ours", command)
    known["fastwebsockets"] = Subject("peer", [str(servers.PEERS / "bin" / "peer-fastwebsockets")])
    return known


def cell(text):
    """BYTESxCONNECTIONS."""
    size, _, connections = text.partition("x")
    if not (size.isdigit() and connections.isdigit() and 126 <= int(size) <= 65_535):
        raise argparse.ArgumentTypeError(
            f'expected BYTESxCONNECTIONS with 126 to 65,535 bytes, such as 512x500, found "{text}"')
    return Cell("ws", int(size), int(connections))


def parse_arguments():
    ap = runs.arguments(__doc__, pairs=10)
    ap.add_argument("--only", nargs="+", metavar="SERVER", help="of: " + " ".join(subjects("")))
    ap.add_argument("--cells", nargs="+", type=cell, metavar="BYTESxCONNS", default=[Cell("ws", 512, 500)],
                    help="(512x500)")
    ap.add_argument("--peer-pairs", type=int, default=10, help="rounds in which peers run too (10)")
    args = runs.parse(ap)
    if args.peer_pairs < 1:
        ap.error("--peer-pairs: expected at least 1")
    return args


def is_raw(subject):
    return "--echo" in subject.command


def load(subject, cell):
    """What is sent to a server in a cell."""
    if is_raw(subject):
        return loads.Load(bytes=cell.bytes + HEADER_BYTES, connections=cell.connections)
    return loads.Load(PATH, bytes=cell.bytes, connections=cell.connections, websocket=True)


def ready(port):
    """Whether a WebSocket server answers at all; the check of its answers says what is wrong."""
    try:
        answers.check_websocket(port, PATH)
    except answers.WrongAnswer:
        pass
    return True


def one_run(subject, cell, args):
    """One measured run of one server in one cell."""

    def check(server):
        try:
            answers.check_websocket(server.port, PATH)
        except (answers.WrongAnswer, OSError) as e:
            raise servers.ServerError(f"{e}; the server: {server.last_output()}") from e

    more = {} if is_raw(subject) else {"check": check, "ready": ready}
    return runs.measure(subject.command, load(subject, cell), args, **more, **subject.options)


def report(results, planned, chosen, left_out, args):
    """Prints the report. Returns the exit code."""
    found = comparison.locked_versions({"fastwebsockets", "hyper", "tokio"})
    lines = [f"## WebSocket echo: {args.pairs} interleaved rounds of {args.secs:g} s, server on CPU {args.server_cpu},"
             f" client on CPU {args.load_cpu}", "",
             f"Linux {os.uname().release}, {os.cpu_count()} CPUs, {time.strftime('%Y-%m-%d')}. {'; '.join(found)}.", ""]
    for cell in args.cells:
        title = f"{cell.bytes} bytes, {cell.connections} connections"
        about = (f"Masked binary messages of {cell.bytes} bytes; echo-* without a protocol, {cell.bytes + HEADER_BYTES}"
                 " bytes.")
        lines += comparison.cell_table(title, about, cell, results, chosen, "echo-uring")
    judged, missed = comparison.bar_table(BARS, results, left_out)
    runs.publish(lines + runs.doubts(results) + judged, args)
    peers = [name for name, s in chosen.items() if s.kind == "peer"]  # their errors are in the tables
    return 0 if runs.all_sound(results, planned, peers) and not missed else 1


def main():
    args = parse_arguments()
    remedies = {"ours": "cargo build --profile dist (or name it with --ours)", "peer": "bench/build.sh https"}
    chosen, left_out = comparison.choose("ws.py", subjects(args.ours), args.only, remedies)
    runs.require_client("ws.py", args)
    runs.take_places(args)
    results, planned = comparison.run_rounds(chosen, args.cells, lambda *_: True, one_run, args)
    return report(results, planned, chosen, left_out, args)


if __name__ == "__main__":
    sys.exit(main())
