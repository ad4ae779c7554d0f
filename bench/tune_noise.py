#!/usr/bin/env python3
"""How often `ringmain tune measure` keeps a step that can have no effect: its false positives.

    bench/tune_noise.py --out noise.md                  # as root, with unshare and ip; half an hour
    bench/tune_noise.py --runs 3 --profiles throughput  # a look

In a network namespace of its own the server is asked over loopback, and the steps are those of a
pair of veth that no packet comes by: rps, xps and, for latency, deferred-irqs. Whatever is found
of them is chance, and what else the machine does meanwhile. A step is looked at, and once more if
that look is in its favour: first looks are counted, too, since they say more of a few runs.

Exit code: 0 chance explains how many were kept and how many first looks found a difference (it
does one time in a hundred at least), 1 it does not, 2 could not be run.
"""

import argparse
import collections
import datetime
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import answers
import server as servers

CARD = pathlib.Path("/sys/class/net/v0")
QUEUES = 4
INSIDE = "RINGMAIN_TUNE_NOISE"
# Before each run, so that there is something to change.
BEFORE = {
    **{f"queues/rx-{n}/rps_cpus": "3" for n in range(QUEUES)},
    **{f"queues/tx-{n}/xps_cpus": "0" for n in range(QUEUES)},
    "napi_defer_hard_irqs": "10",
    "gro_flush_timeout": "20000",
}
STEPS = {"throughput": ["rps", "xps"], "latency": ["rps", "xps", "deferred-irqs"]}
# What docs/tune.md says: how often chance alone makes a look find a difference, and how often it has a step kept.
DIFFERENT = 1 / 16
KEPT = (DIFFERENT / 2) ** 2
UNLIKELY = 0.01


class Unable(Exception):
    """It could not be run; the text says why and what to do."""


def main():
    args = arguments()
    if not os.environ.get(INSIDE):
        return again_in_namespaces()
    servers.end_on_signals()
    prepare()
    seen = collections.defaultdict(list)
    command = [args.ringmain, "run", "--listen", "127.0.0.1:$PORT", *args.server]
    with servers.Server(command, ready=lambda port: answers.responds(port, "/json")) as server:
        for number in range(args.runs):
            for profile in args.profiles:
                for step, rung in measured(args, profile, server.port).items():
                    seen[profile, step].append(rung)
            print(f"{number + 1} of {args.runs}", file=sys.stderr, flush=True)
            text, explained = report(args, seen)
            if args.out:
                args.out.write_text(text)  # each time: what is ended early has shown something, too
    print(text)
    return 0 if explained else 1


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ringmain", default=str(servers.TARGET / "dist/ringmain"))
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--profiles", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--load", default="-c 32 -d 400ms -w 100ms --rounds 5", help="as ringmain bench takes it (%(default)s)")
    parser.add_argument("--server", nargs="*", default=[], help="more arguments of ringmain run")
    parser.add_argument("--out", type=pathlib.Path, help="a file for the report, besides standard output")
    return parser.parse_args()


def again_in_namespaces():
    if os.geteuid() != 0:
        raise Unable("needs root, for a network namespace of its own")
    command = ["unshare", "-n", "-m", "--", sys.executable, __file__, *sys.argv[1:]]
    try:
        return subprocess.call(command, env={**os.environ, INSIDE: "1"})
    except OSError as e:
        raise Unable(f"cannot start unshare (of util-linux): {e}") from e


def prepare():
    queues = ["numtxqueues", str(QUEUES), "numrxqueues", str(QUEUES)]
    for command in (
        ["mount", "-t", "sysfs", "none", "/sys"],
        ["ip", "link", "set", "lo", "up"],
        ["ip", "link", "add", CARD.name, *queues, "type", "veth", "peer", "name", "v1", *queues],
        ["ip", "link", "set", CARD.name, "up"],
        ["ip", "link", "set", "v1", "up"],
    ):
        try:
            subprocess.run(command, check=True)
        except (OSError, subprocess.CalledProcessError) as e:
            raise Unable(f"cannot prepare the namespace: {e}") from e


def measured(args, profile, port):
    """{step: (looks, verdict)} of one run."""
    for path, value in BEFORE.items():
        (CARD / path).write_text(value)
    steps = [word for step in STEPS[profile] for word in ("--step", step)]
    with tempfile.TemporaryDirectory(prefix="bench-") as state:
        command = [
            *(args.ringmain, "tune", "measure", f"http://127.0.0.1:{port}/json", "--interface", CARD.name, "--json"),
            *("--state", state, "--profile", profile, *steps, *args.load.split()),
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise Unable(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr.strip()[-500:]}")
        # What was kept is taken back by the next run's values; its journal goes with the directory.
    ladder = json.loads(done.stdout)
    found = {rung["step"]: (0, rung["verdict"]) for rung in ladder["rungs"]}
    if sorted(found) != sorted(STEPS[profile]) or "failed" in (verdict for _, verdict in found.values()):
        raise Unable(f"expected {', '.join(STEPS[profile])} to be measured, found {ladder['rungs']}")
    for step, (_, verdict) in found.items():
        count = looks(done.stderr, step, verdict)
        if count not in (1, 2):
            raise Unable(f"expected one look at {step} or two, found {count}: {done.stderr}")
        found[step] = (count, verdict)
    return found


def looks(talk, step, verdict):
    """How often a step was looked at: the talk names it, then each of its rounds, then what came of it."""
    rounds = talk.split(f"\n{step}: {verdict}")[0].split(f"{step}: ", 1)[-1]
    return len(re.findall(r"^without, round 1 of ", rounds, re.M))


def report(args, seen):
    """Text, and whether chance explains all of it."""
    rows = []
    for what in [*seen, "all"]:
        rungs = [rung for key, some in seen.items() if what in (key, "all") for rung in some]
        total = len(rungs)
        second = sum(looks > 1 for looks, _ in rungs)
        worse = sum(rung == (1, "worse") for rung in rungs)
        kept = sum(verdict == "kept" for _, verdict in rungs)
        name = what if what == "all" else f"{what[1]}, {what[0]}"
        rows.append(f"| {name} | {total} | {second} | {worse} | {100 * (second + worse) / total:.1f} % | {kept} |")
    chances = at_least(second + worse, total, DIFFERENT), at_least(kept, total, KEPT)
    explained = min(chances) >= UNLIKELY
    return "\n".join([
        f"`ringmain tune measure ... {args.load}`, {' and '.join(args.profiles)}, {datetime.date.today()}, Linux {os.uname().release},"
        f" {os.cpu_count()} CPUs",
        "",
        "| step, profile | measured | first look: better | worse | together | kept |",
        "|---|---|---|---|---|---|",
        *rows,
        "",
        f"Chance alone lets a first look find a difference {100 * DIFFERENT:.2f} % of the time, and has {100 * KEPT:.2f} % kept: so many or more"
        f" first looks one time in {1 / chances[0]:.3g}, so many or more kept one time in {1 / chances[1]:.3g}.",
        "",
    ]), explained


def at_least(count, of, chance):
    """The probability of `count` or more of `of` that each have this chance."""
    return sum(math.comb(of, n) * chance**n * (1 - chance) ** (of - n) for n in range(count, of + 1))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Unable, servers.ServerError) as error:
        print(f"tune_noise.py: {error}", file=sys.stderr)
        sys.exit(2)
