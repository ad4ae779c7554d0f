#!/usr/bin/env python3
"""Overload: an HTTP server at three times the load that it can carry, and what comes after.

    bench/overload.py -- target/dist/ringmain run --listen '127.0.0.1:$PORT' --workers 1
    bench/overload.py --share 1 --path /slow -- my-server '$PORT'

Finds the knee first: the highest rate at which 99 % of the requests are answered by a 200
within the deadline. Then offers half of it, three times it, and half of it again, by a schedule
that waits for no answer (client/surge.c). Goodput counts the answers within the deadline.

One client core cannot offer three times what a server core carries, so the server gets
less of its CPU: `--share` of it, by a control group, which needs root. `--share 1` leaves it
the whole CPU, for a path that is slow by itself. See README.md.

Exit code: 0 goodput and recovery are within the bars, 1 they are not, 2 could not be run.
"""

import argparse
import contextlib
import os
import subprocess
import sys

import answers
import quota
import server as servers

GOOD_SHARE = 0.99
GOODPUT_BAR = 0.90
RECOVERY_BAR = 1.0
SLOT_SECONDS = 0.1
SETTLE_SECONDS = 2.0  # before the overload
PROBES = 6
PROBE_SECONDS = 3.0
CLOSED_CONNECTIONS = 64
# A server that keeps up has few requests under way; one that does not shows in what is unsent.
PROBE_CONNECTIONS = 1000
OWN_DESCRIPTORS = 100
SOURCES = "-s127.0.0.2-127.0.0.9"
# Above this share of its CPU the client, not the server, may have been the limit.
CLIENT_FULL = 0.9
COUNTS = ("due", "prompt", "good", "late", "refused", "failed", "unsent")


def parse_arguments():
    cpus = sorted(os.sched_getaffinity(0))
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--path", default="/json", help="what is asked for (/json)")
    ap.add_argument("--share", type=float, default=0.04, help="of its CPU that the server may use (0.04)")
    ap.add_argument("--factor", type=float, default=3.0, help="overload, in knees (3)")
    ap.add_argument("--secs", type=float, default=5.0, help="of overload (5)")
    ap.add_argument("--after", type=float, default=5.0, help="seconds watched after it (5)")
    ap.add_argument("--deadline", type=float, default=1.0, help="seconds in which an answer is of use (1)")
    ap.add_argument("--prompt", type=float, default=0.25, help="seconds in which a recovered server answers (0.25)")
    ap.add_argument("--knee", type=float, help="requests a second; looked for if not given")
    ap.add_argument("--connections", type=int, help="of the overload; as many as an open loop needs if not given")
    ap.add_argument("--descriptors", type=int, default=20_000, help="RLIMIT_NOFILE of server and client")
    ap.add_argument("--server-cpu", type=int, default=cpus[0])
    ap.add_argument("--load-cpu", type=int, default=cpus[-1])
    ap.add_argument("command", nargs="+", help="the server; $PORT is replaced by the port")
    args = ap.parse_args()
    if not 0.001 <= args.share <= 1 or args.factor <= 0 or args.secs < 1 or args.after < 1 or args.deadline <= 0:
        ap.error("expected --share from 0.001 to 1, --secs and --after of at least 1, --factor and --deadline above 0")
    return args


@contextlib.contextmanager
def under_test(args):
    """The server, held to its share of the CPU."""

    def ready(port):
        try:
            return answers.responds(port, args.path)
        except answers.WrongAnswer:
            return False

    with servers.Server(args.command, cpu=args.server_cpu, descriptors=args.descriptors, ready=ready) as server:
        with quota.cpu_share(server.pids(), args.share) if args.share < 1 else contextlib.nullcontext():
            yield server


def client(args, name, *options):
    """Runs one of the clients. Returns its lines as dictionaries."""
    command = [str(servers.PEERS / "bin" / name), *options]
    r = subprocess.run(command, capture_output=True, text=True,
                       preexec_fn=servers.prepare_child(cpu=args.load_cpu, descriptors=args.descriptors))
    if r.returncode:
        raise servers.ServerError(f"{name}: {r.stderr.strip()}")
    return [{k: float(v) for k, v in (pair.split("=") for pair in line.split())}
            for line in r.stdout.splitlines() if "=" in line]


def connections(args, rate):
    """As many as an open loop needs: each may wait for a whole deadline."""
    return args.connections or max(CLOSED_CONNECTIONS, min(int(rate * args.deadline) + 1, args.descriptors - OWN_DESCRIPTORS))


def surge(args, server, count, *phases):
    """Offers the phases, (rate, seconds) each. Returns the slots, and the client's own figures."""
    schedule = ",".join(f"{rate:.0f}:{seconds:g}" for rate, seconds in phases)
    *slots, own = client(args, "surge", f"-p{server.port}", f"-r{args.path}", f"-c{count}", f"-D{args.deadline:g}",
                         f"-H{args.prompt:g}", SOURCES, f"-S{schedule}")
    if not server.alive():
        raise servers.ServerError(f"the server ended: {server.last_output()}")
    return slots, own


def total(slots):
    """The slots' counts, summed."""
    return {key: sum(s[key] for s in slots) for key in COUNTS}


def find_knee(args, server):
    """(rate, goodput there): by halving, between nothing and a little more than a closed loop reached."""
    closed = client(args, "lg", f"-p{server.port}", f"-r{args.path}", f"-c{CLOSED_CONNECTIONS}", "-w1", "-d3")[-1]["rps"]
    print(f"closed loop   {closed:,.0f}/s with {CLOSED_CONNECTIONS} connections", flush=True)
    low, high, goodput = 0.0, 1.3 * closed, 0.0
    for _ in range(PROBES):
        rate = max(1.0, (low + high) / 2)
        found = total(surge(args, server, PROBE_CONNECTIONS, (rate, PROBE_SECONDS))[0])
        carried = found["good"] >= GOOD_SHARE * found["due"]
        print(f"probe         {rate:,.0f}/s: {found['good'] / found['due']:.1%} within {args.deadline:g} s", flush=True)
        if carried:
            low, goodput = rate, found["good"] / PROBE_SECONDS
        else:
            high = rate
    if not low:
        raise servers.ServerError(f"no knee: even {high:,.0f} requests a second are not answered within the deadline")
    return low, goodput


def recovery(slots, ended):
    """Seconds after `ended` until all slots are healthy: 99 % of what came due was answered promptly."""
    unhealthy = [s["at"] + SLOT_SECONDS for s in slots if s["at"] >= ended - 1e-6 and s["prompt"] < GOOD_SHARE * s["due"]]
    return max(unhealthy) - ended if unhealthy else 0.0


def overload(args, knee, goodput):
    """Runs the overload on a new server and prints what was found. Returns whether the bars are met."""
    rate = args.factor * knee
    with under_test(args) as server:
        phases = (knee / 2, SETTLE_SECONDS), (rate, args.secs), (knee / 2, args.after)
        slots, own = surge(args, server, connections(args, rate), *phases)
        peak = server.memory()["VmHWM"]
    begun, ended = SETTLE_SECONDS, SETTLE_SECONDS + args.secs
    found = total([s for s in slots if begun - 1e-6 <= s["at"] < ended - 1e-6])
    share = found["good"] / args.secs / goodput
    wait = recovery(slots, ended)
    within = wait <= args.after - SLOT_SECONDS
    print(f"overload      {rate:,.0f}/s for {args.secs:g} s over {connections(args, rate):,} connections:"
          f" good {found['good'] / args.secs:,.0f}/s, late {found['late']:,.0f}, refused {found['refused']:,.0f},"
          f" failed {found['failed']:,.0f}, unsent {found['unsent']:,.0f}")
    if connections(args, rate) < rate * args.deadline:
        print(f"              an open loop at that rate needs {rate * args.deadline:,.0f} connections: what found none"
              " idle is unsent, and the server saw less than the rate")
    if own["cpu"] > CLIENT_FULL * own["seconds"] or own["behind_ms"] > 1e3 * args.prompt:
        print(f"              the client may have been the limit: {own['cpu'] / own['seconds']:.0%} of its CPU,"
              f" once {own['behind_ms']:.0f} ms behind its schedule")
    print(f"memory        {peak / 1e6:.1f} MB at most (VmHWM)")
    print(f"goodput       {share:.1%} of the knee's, bar {GOODPUT_BAR:.0%}: {'met' if share >= GOODPUT_BAR else 'MISSED'}")
    print(f"recovery      {f'{wait:.1f} s' if within else f'not within {args.after:g} s'} until 99 % are answered within"
          f" {args.prompt:g} s, bar {RECOVERY_BAR:g} s: {'met' if wait < RECOVERY_BAR else 'MISSED'}")
    return share >= GOODPUT_BAR and wait < RECOVERY_BAR


def main():
    args = parse_arguments()
    servers.end_on_signals()
    for name in ("lg", "surge"):
        if not os.access(servers.PEERS / "bin" / name, os.X_OK):
            print(f"overload.py: no {name} in {servers.PEERS}/bin: run bench/build.sh client first", file=sys.stderr)
            return 2
    try:
        if args.knee:
            knee = goodput = args.knee
        else:
            with under_test(args) as server:
                knee, goodput = find_knee(args, server)
        print(f"knee          {knee:,.0f}/s, goodput {goodput:,.0f}/s", flush=True)
        return 0 if overload(args, knee, goodput) else 1
    except (servers.ServerError, quota.QuotaError, OSError, subprocess.SubprocessError) as e:
        print(f"overload.py: {e}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
