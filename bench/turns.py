#!/usr/bin/env python3
"""What a proxy's thread does while an open loop is passed through it: how long each of its turns runs, and how long it waits for
its CPU once it is woken.

    bench/turns.py ours-uring nginx h2o haproxy relay-uring
    bench/turns.py --rate 4000 --secs 2.5 ours-uring

The set-up is that of `proxy.py --scenario latency`, under `perf record` of the scheduler's events, which themselves cost some. It
tells a tail that is the proxy's own from one that comes of the client, the upstream and whoever else uses the CPUs: those are named
with the time that they took on the proxy's CPU. Needs perf, and the right to see these events (root).

Exit code: 0 measured, 2 could not be run.
"""

import collections
import os
import re
import subprocess
import sys
import tempfile

import proxy
import runs
import server as servers

EVENT = re.compile(r"\[(\d+)\]\s+([\d.]+):\s+sched:(\w+):\s+(.*)$")
SWITCH = re.compile(r"prev_comm=(.*?) prev_pid=(\d+) .* ==> next_comm=(.*?) next_pid=(\d+) ")
WAKING = re.compile(r"comm=(.*?) pid=(\d+) ")


def parse_arguments():
    ap = runs.arguments(__doc__, pairs=1, secs=2.5)
    ap.add_argument("proxies", nargs="+", metavar="PROXY", help="of: " + " ".join(proxy.subjects("", 0)))
    ap.add_argument("--rate", type=float, default=4000, metavar="N", help="requests a second (4000)")
    return runs.parse(ap)


def read(text, cpu):
    """Turns on a CPU by program, and waits for it once woken: ({name: [us]}, {name: [us]})."""
    running, woken = None, {}
    turns, waits = collections.defaultdict(list), collections.defaultdict(list)
    for line in text.splitlines():
        found = EVENT.search(line)
        if not found:
            continue
        on, at, event, rest = int(found[1]), float(found[2]) * 1e6, found[3], found[4]
        if event == "sched_waking" and (who := WAKING.match(rest)):
            woken.setdefault(who[2], at)
        elif event == "sched_switch" and on == cpu and (switch := SWITCH.match(rest)):
            if running and running[0] == switch[2]:
                turns[switch[1].strip()].append(at - running[1])
            running = (switch[4], at)
            if switch[4] in woken:
                waits[switch[3].strip()].append(at - woken.pop(switch[4]))
    return turns, waits


def quantile(values, part):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else 0.0


def trace(subject, cell, args):
    """Runs one proxy under its load. Returns what perf has seen."""
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, "perf.data")
        with servers.Server(subject.command, cpu=args.server_cpu, ready=proxy.ready, **subject.options) as server:
            record = ["perf", "record", "-q", "-a", "-e", "sched:sched_switch,sched:sched_waking", "-o", data]
            with subprocess.Popen(record, stderr=subprocess.DEVNULL) as perf:
                try:
                    runs.run_client(server, proxy.load(cell), args)
                finally:
                    perf.terminate()
        script = ["perf", "script", "-i", data, "-F", "cpu,time,event,trace"]
        return subprocess.run(script, capture_output=True, text=True, timeout=300, check=True).stdout


def report(name, turns, waits):
    print(f"{name}:")
    for who in sorted(turns, key=lambda who: -sum(turns[who]))[:6]:
        if who.startswith("swapper"):
            continue
        mine, waited = turns[who], waits[who]
        print(f"  {who:18} {len(mine):6} turns of p50 {quantile(mine, .5):.0f}, p99 {quantile(mine, .99):.0f}, at most"
              f" {max(mine):.0f} us, together {sum(mine) / 1e3:.0f} ms; waited p50 {quantile(waited, .5):.0f},"
              f" p99 {quantile(waited, .99):.0f}, at most {max(waited, default=0):.0f} us")


def main():
    args = parse_arguments()
    runs.require_client("turns.py", args)
    runs.take_places(args)
    cell = proxy.Cell("latency", proxy.LATENCY_CONNECTIONS, args.rate)
    try:
        with servers.Server([str(proxy.BIN / "floor"), "epoll-http"], cpu=args.load_cpu, ready=proxy.ready) as upstream:
            os.environ["UPSTREAM"] = str(upstream.port)
            known = proxy.subjects(args.ours, upstream.port)
            for name in args.proxies:
                if name not in known:
                    raise servers.ServerError(f"no proxy `{name}`; there are {', '.join(sorted(known))}")
                report(name, *read(trace(known[name], cell, args), args.server_cpu))
        return 0
    except (servers.ServerError, subprocess.SubprocessError, OSError) as e:
        print(f"turns.py: could not be run: {e}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
