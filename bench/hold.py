#!/usr/bin/env python3
"""Holds many connections against an echo or HTTP server, and proves that each of them is answered.

    bench/hold.py --connections 80000 -- target/dist/ringmain run --echo --listen '127.0.0.1:$PORT'
    bench/hold.py --connections 15000 -- target/peers/bin/floor uring
    bench/hold.py --http /json --connections 80000 -- target/dist/ringmain run --listen '127.0.0.1:$PORT'

The server and every client process run under a limit of 20,000 descriptors. The clients
(client/hold.c) dial from several addresses of 127.0.0.0/8, one message per connection is
sent, distinct for each, all under way together. Prints what stood, what was answered, and
the server's resident memory before the connections, while they idle, and after the answers.

With --http the message is a GET, and after a second of idling all are asked once more. The
memory of a connection that idles after one request is judged: at most 2,048 bytes.

Exit code: 0 all answered (and the memory is within its bar), 1 not, 2 could not be run.
"""

import argparse
import functools
import os
import select
import subprocess
import sys
import time

import answers
import server as servers

OWN_DESCRIPTORS = 100  # what a client process keeps for itself
ADDRESSES_EACH = 2  # source addresses of one client process
LAST_ADDRESS = 254
IDLE_SECONDS = 1.0  # after the answers, before memory is read: what is still given back counts as given back
CONNECTION_BYTES = 2048  # the bar on an idle HTTP connection after one request


class Clients:
    """The client processes, led step by step."""

    def __init__(self, args, port):
        self.deadline = time.monotonic() + args.seconds
        self.processes = []
        each = args.descriptors - OWN_DESCRIPTORS
        starts = range(0, args.connections, each)
        if 1 + ADDRESSES_EACH * len(starts) > LAST_ADDRESS:
            sys.exit(f"hold.py: {args.connections} connections need too many client processes")
        for i, first in enumerate(starts):
            low = 2 + ADDRESSES_EACH * i
            command = [
                str(servers.PEERS / "bin" / "hold"),
                f"-p{port}",
                f"-c{min(each, args.connections - first)}",
                f"-r{args.http}" if args.http else f"-e{args.bytes}",
                f"-i{first}",
                f"-s127.0.0.{low}-127.0.0.{low + ADDRESSES_EACH - 1}",
                f"-t{args.seconds / 3:g}",
            ]
            self.processes.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    preexec_fn=servers.prepare_child(descriptors=args.descriptors),
                )
            )

    def step(self, order=None):
        """Sends `order` to all, and returns their figures: sums, but the longest time."""
        for p in self.processes if order else []:
            p.stdin.write(order)
            p.stdin.flush()
        total = {}
        for p in self.processes:
            if not select.select([p.stdout], [], [], max(0, self.deadline - time.monotonic()))[0]:
                raise servers.ServerError("a client process did not end its step in time")
            line = p.stdout.readline().decode()
            if not line:
                raise servers.ServerError("a client process ended early")
            for key, value in (pair.split("=") for pair in line.split()):
                joined = max if key == "seconds" else lambda a, b: a + b
                total[key] = joined(total.get(key, 0), float(value))
        return total

    def end(self):
        """Ends all, whatever they are doing."""
        for p in self.processes:
            p.kill()
        for p in self.processes:
            p.wait()
            p.stdin.close()
            p.stdout.close()


def parse_arguments():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--connections", type=int, default=80_000)
    ap.add_argument("--bytes", type=int, default=64, help="size of the message on each connection")
    ap.add_argument("--http", metavar="PATH", help="GET PATH instead of an echo")
    ap.add_argument("--descriptors", type=int, default=20_000, help="RLIMIT_NOFILE of each process")
    ap.add_argument("--seconds", type=float, default=180, help="bound for all steps together")
    ap.add_argument("command", nargs="+", help="the server; $PORT is replaced by the port")
    args = ap.parse_args()
    if args.connections < 1 or args.descriptors <= OWN_DESCRIPTORS:
        ap.error(f"expected at least 1 connection and more than {OWN_DESCRIPTORS} descriptors")
    return args


def answered(figures, args):
    """Whether every connection was answered."""
    return figures["answered"] == args.connections


def print_answers(label, figures):
    """What became of one message on each connection."""
    print(
        f"{label:11s} {figures['answered']:,.0f} in {figures['seconds']:.1f} s (wrong {figures['wrong']:,.0f},"
        f" closed {figures['closed']:,.0f}, silent {figures['silent']:,.0f})"
    )


def print_memory(before, idle, after, stood, found):
    """Resident memory at three times, and its growth by connections."""
    for key in ("VmRSS", "RssAnon"):
        print(
            f"{key:11s} {before[key] / 2**20:.1f} MiB before, {idle[key] / 2**20:.1f} MiB idle,"
            f" {after[key] / 2**20:.1f} MiB after the answers:"
            f" {(idle[key] - before[key]) / max(stood['connected'], 1):.0f} bytes a connection idle,"
            f" {(after[key] - before[key]) / max(found['answered'], 1):.0f} after its answer"
        )


def within_bar(before, after, found):
    """Judges the memory of an HTTP connection that idles after one request."""
    each = (after["VmRSS"] - before["VmRSS"]) / max(found["answered"], 1)
    met = each <= CONNECTION_BYTES
    print(f"bar         {each:.0f} of {CONNECTION_BYTES} bytes a connection: {'met' if met else 'MISSED'}")
    return met


def hold(args, server):
    """Runs the steps and prints what was found. Returns whether all is as it should be."""
    clients = None
    before = server.memory()
    try:
        clients = Clients(args, server.port)
        stood = clients.step()
        idle = server.memory()
        found = clients.step(b"send\n")
        if args.http:
            time.sleep(IDLE_SECONDS)
        after = server.memory()
        again = clients.step(b"send\n") if args.http else found
    finally:
        if clients:
            clients.end()
    print(
        f"connected   {stood['connected']:,.0f} of {args.connections:,} in {stood['seconds']:.1f} s"
        f" (failed {stood['failed']:,.0f}, closed {stood['closed']:,.0f};"
        f" {len(clients.processes)} client processes, limit {args.descriptors:,} descriptors each)"
    )
    print_answers("answered", found)
    if args.http:
        print_answers("again", again)
    print(f"server      {'alive' if server.alive() else 'ENDED'}; its last words: {server.last_output()}")
    if not server.alive():
        return False
    print_memory(before, idle, after, stood, found)
    met = within_bar(before, after, found) if args.http else True
    return answered(found, args) and answered(again, args) and met


def main():
    args = parse_arguments()
    servers.end_on_signals()
    client = servers.PEERS / "bin" / "hold"
    if not os.access(client, os.X_OK):
        print(f"hold.py: no client at {client}: run bench/build.sh client first", file=sys.stderr)
        return 2
    ready = functools.partial(answers.responds, path=args.http) if args.http else servers.echoes
    try:
        with servers.Server(args.command, descriptors=args.descriptors, ready=ready) as server:
            return 0 if hold(args, server) else 1
    except (servers.ServerError, answers.WrongAnswer, OSError, subprocess.SubprocessError) as e:
        print(f"hold.py: {e}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
