#!/usr/bin/env python3
"""Builds of Ringmain compared: CPU per request of each, in several roles, in interleaved rounds.

    bench/builds.py OLD NEW                         does a change cost CPU time?
    bench/builds.py OLD NEW --pairs 20 --engine epoll --cells server gateway

Cells, each with 64 connections kept open:

    server         JSON over HTTP/1.1
    https          the same over TLS 1.3
    websocket      echoed messages of 512 bytes
    gateway        JSON from one upstream, through the fast path
    gateway-tasks  the same with a hedge, so that each request runs in a task
    client         the binary makes the load, the first binary is the server

The first binary makes the load and is the upstream. The figure is CPU microseconds per request of the server's process, in the cell
`client` of the load generator's; ratios to the first binary are taken within a round, with a 95 % interval over rounds.

Exit code: 0 measured, 1 a run failed, 2 could not be run.
"""

import argparse
import collections
import functools
import os
import statistics
import sys
import tempfile
import time

import answers
import certificates
import loads
import proxy
import runs
import server as servers
import tls
import ws

CONNECTIONS = 64
MESSAGE_BYTES = 512
SETTINGS = {"gateway": "proxy-ringmain.yaml", "gateway-tasks": "proxy-ringmain-hedge.yaml"}

Cell = collections.namedtuple("Cell", "scenario connections")
CELLS = [Cell(scenario, CONNECTIONS) for scenario in ("server", "https", "websocket", *SETTINGS, "client")]


def check_https(server, context):
    """Raises ServerError unless the server answers JSON over TLS."""
    try:
        answers.check(server.port, proxy.PATH, tls=context)
    except (answers.WrongAnswer, OSError) as e:
        raise servers.ServerError(f"{e}; the server: {server.last_output()}") from e


def one_run(program, cell, upstream, made, args):
    """One measured run of a binary in a cell, as a gateway in front of `upstream`."""
    load = loads.Load(proxy.PATH, connections=cell.connections, expect=answers.HELLO)
    engine = ["--workers", "1", "--engine", args.engine]
    command = [str(program), "run", "--listen", "127.0.0.1:$PORT", *engine]
    if cell.scenario == "server":
        return runs.measure(command, load, args, ready=proxy.ready)
    if cell.scenario == "https":
        context = answers.tls_context(made.ca)
        return runs.measure([*command, "--cert", str(made.cert), "--key", str(made.key)], load._replace(tls=loads.Tls("keep", made.ca)),
                            args, check=functools.partial(check_https, context=context), ready=functools.partial(tls.ready, tls=context))
    if cell.scenario == "websocket":
        return runs.measure(command, loads.Load(ws.PATH, bytes=MESSAGE_BYTES, connections=cell.connections, websocket=True), args,
                            ready=ws.ready)
    if cell.scenario == "client":
        with servers.Server([args.client, *command[1:]], cpu=args.server_cpu, ready=proxy.ready) as server:
            figures = runs.run_bench(server, load, argparse.Namespace(**{**vars(args), "client": str(program)}), args.engine)
        return {**figures, "us_per_message": figures["cpu"] / figures["n"] * 1e6}
    return runs.measure([str(program), "run", "$SETTINGS", *engine], load, args, check=proxy.check, ready=proxy.ready,
                        settings=proxy.SETTINGS / SETTINGS[cell.scenario], names={"$UPSTREAM": str(upstream.port)})


def columns(results, name, cell, base):
    """A binary's columns of a cell: the median, and unless it is `base` the ratio to it with its interval."""
    found = results.get(name, {}).get(cell, {})
    row = [f"{statistics.median(f['us_per_message'] for f in found.values()):.3f}" if found else "failed"]
    if name != base:
        pair = runs.compare({cell: found}, {cell: results.get(base, {}).get(cell, {})}) if found else None
        row.append(f"{pair[1]:.3f} ({pair[2]:.3f} to {pair[3]:.3f})" if pair else "")
    return row


def table(results, names, cells):
    """A row for each cell, the columns of each binary in it. `names`: {path as given: name in the results}."""
    base = next(iter(names.values()))
    head = ["cell"]
    for path, name in names.items():
        head += [f"{path} us"] if name == base else [f"{path} us", "ratio (95 %)"]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for cell in cells:
        row = [text for name in names.values() for text in columns(results, name, cell, base)]
        lines.append("| " + " | ".join([cell.scenario, *row]) + " |")
    return lines


def main():
    ap = runs.arguments(__doc__, pairs=12)
    ap.add_argument("binaries", nargs="+", metavar="BINARY", help="two or more")
    ap.add_argument("--engine", choices=("uring", "epoll"), default="uring", help="of the measured process (uring)")
    names = [cell.scenario for cell in CELLS]
    ap.add_argument("--cells", nargs="+", choices=names, default=names, help="(all)")
    args = runs.parse(ap)
    cells = [cell for cell in CELLS if cell.scenario in args.cells]
    binaries = [os.path.abspath(path) for path in args.binaries]
    args.client = binaries[0]
    try:
        runs.take_places(args)
        upstream_command = [args.client, "run", "--listen", "127.0.0.1:$PORT"]
        with tempfile.TemporaryDirectory(prefix="bench-builds-") as folder, \
                servers.Server(upstream_command, cpu=args.load_cpu, ready=proxy.ready) as upstream:
            made = certificates.make(folder)
            results = runs.rounds(lambda _: {cell: list(binaries) for cell in cells},
                                  lambda name, cell: one_run(name, cell, upstream, made, args), args)
    except (OSError, servers.ServerError, certificates.CertificateError) as e:
        print(f"builds.py: could not be run: {e}", file=sys.stderr)
        return 2
    lines = [f"## Builds: {args.pairs} interleaved rounds of {args.secs:g} s, engine {args.engine}", "",
             f"Linux {os.uname().release}, {os.cpu_count()} CPUs, {time.strftime('%Y-%m-%d')}.", "",
             *table(results, dict(zip(args.binaries, binaries)), cells)]
    runs.publish(lines + runs.doubts(results), args)
    return 0 if runs.all_sound(results, len(binaries) * len(cells) * args.pairs) else 1


if __name__ == "__main__":
    sys.exit(main())
