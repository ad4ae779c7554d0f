#!/usr/bin/env python3
"""Builds of Ringmain compared: CPU per request of each, as server and as gateway, in interleaved rounds.

    bench/builds.py OLD NEW                         does a change make requests dearer?
    bench/builds.py OLD NEW --pairs 20 --engine epoll

Every binary answers JSON over 64 kept connections, and passes the same on to one upstream. The first binary makes the load and is the
upstream. The figure is CPU microseconds per request of the server's process; ratios to the first binary are taken within a round, with a
95 % interval over rounds.

Exit code: 0 measured, 1 a run failed, 2 could not be run.
"""

import collections
import os
import statistics
import sys
import time

import answers
import loads
import proxy
import runs
import server as servers

CONNECTIONS = 64

Cell = collections.namedtuple("Cell", "scenario connections")
CELLS = [Cell("server", CONNECTIONS), Cell("gateway", CONNECTIONS)]


def one_run(program, cell, upstream, args):
    """One measured run of a binary as server, or as gateway in front of `upstream`."""
    load = loads.Load(proxy.PATH, connections=cell.connections, expect=answers.HELLO)
    run = [str(program), "run"]
    if cell.scenario == "server":
        command = [*run, "--listen", "127.0.0.1:$PORT", "--workers", "1", "--engine", args.engine]
        return runs.measure(command, load, args, ready=proxy.ready)
    command = [*run, "$SETTINGS", "--workers", "1", "--engine", args.engine]
    return runs.measure(command, load, args, check=proxy.check, ready=proxy.ready,
                        settings=proxy.SETTINGS / "proxy-ringmain.yaml", names={"$UPSTREAM": str(upstream.port)})


def columns(results, name, base):
    """The columns of a table: for each cell the median, and the ratio to `base` with its interval."""
    row = []
    for cell in CELLS:
        found = results.get(name, {}).get(cell, {})
        row.append(f"{statistics.median(f['us_per_message'] for f in found.values()):.3f}" if found else "failed")
        pair = runs.compare({cell: found}, {cell: results.get(base, {}).get(cell, {})}) if name != base and found else None
        row.append(f"{pair[1]:.3f} ({pair[2]:.3f} to {pair[3]:.3f})" if pair else "")
    return row


def headings(base):
    """The headings of these columns."""
    return [text for cell in CELLS for text in (f"{cell.scenario} us", f"by {base} (95 %)")]


def main():
    ap = runs.arguments(__doc__, pairs=12)
    ap.add_argument("binaries", nargs="+", metavar="BINARY", help="two or more")
    ap.add_argument("--engine", choices=("uring", "epoll"), default="uring", help="of the server (uring)")
    args = runs.parse(ap)
    binaries = [os.path.abspath(path) for path in args.binaries]
    args.client = binaries[0]
    try:
        runs.take_places(args)
        with servers.Server([args.client, "run", "--listen", "127.0.0.1:$PORT"], cpu=args.load_cpu, ready=proxy.ready) as upstream:
            results = runs.rounds(lambda _: {cell: list(binaries) for cell in CELLS},
                                  lambda name, cell: one_run(name, cell, upstream, args), args)
    except (OSError, servers.ServerError) as e:
        print(f"builds.py: could not be run: {e}", file=sys.stderr)
        return 2
    lines = [f"## Builds: {args.pairs} interleaved rounds of {args.secs:g} s, engine {args.engine}", "",
             f"Linux {os.uname().release}, {os.cpu_count()} CPUs, {time.strftime('%Y-%m-%d')}.", "",
             "| " + " | ".join(["binary", *headings("the first")]) + " |", "| --- |" + " --- |" * (2 * len(CELLS))]
    for path, name in zip(args.binaries, binaries):
        lines.append("| " + " | ".join([path, *columns(results, name, binaries[0])]) + " |")
    runs.publish(lines + runs.doubts(results), args)
    return 0 if runs.all_sound(results, len(binaries) * len(CELLS) * args.pairs) else 1


if __name__ == "__main__":
    sys.exit(main())
