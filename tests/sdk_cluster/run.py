#!/usr/bin/env python3
"""Runs Centrifuge's SDKs against a cluster of push nodes with Redis as their log, behind a gateway: their own tests, and nodes that are killed.

usage: run.py [BINARY] [CASE ...]

Needs Go, Node, git, redis-server and the package registries; what is fetched stays in $SDK_CACHE (a folder of the user's cache). The binary
must have the feature `brokers`.
"""

import argparse
import functools
import json
import pathlib
import sys
import time

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent.parent / folder) for folder in ("field", "cluster")]

import kill  # noqa: E402
import own  # noqa: E402
import rig  # noqa: E402
import tools  # noqa: E402

LOG_LINES = 30
CASES = {
    **{f"{suite}_{name}": functools.partial(run, roles=roles, has_log=has_log)
       for name, (roles, has_log) in own.TOPOLOGIES.items() for suite, run in (("javascript", own.javascript), ("go", own.go))},
    "kill_nodes": kill.nodes,
    "kill_roles": kill.roles,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary", nargs="?", default=rig.REPO / "target/release/ringmain", help="the program under test")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="cases to run (default: all)")
    arguments = parser.parse_args()
    unknown = set(arguments.cases) - set(CASES)
    if unknown:
        parser.error(f"expected cases of {', '.join(CASES)}; found {', '.join(sorted(unknown))}")
    try:
        fetched = tools.Tools()
    except rig.Skipped as why:
        parser.exit(2, f"{why}; install it and run this again\n")
    failed = 0
    for name in arguments.cases or CASES:
        began = time.monotonic()
        with rig.Rig(pathlib.Path(arguments.binary).resolve()) as case:
            case.nodes, case.processes, case.tools = [], {}, fetched
            try:
                outcome, text = "ok", json.dumps(CASES[name](case))
            except Exception as why:  # noqa: BLE001 the other cases follow
                outcome, text = "FAILED", f"{type(why).__name__}: {why}"
                failed += 1
            print(f"{outcome:8} {name:23} {time.monotonic() - began:6.1f} s  {text}", flush=True)
            if outcome == "FAILED":
                print_logs(case)
    return 1 if failed else 0


def print_logs(case):
    """Prints the ends of the logs of a case's processes."""
    for name, process in [*((node.name, node.process) for node in case.nodes), *case.processes.items()]:
        code = process.child.poll()
        lines = [f"pid {process.pid} {'runs' if code is None else f'ended with {code}'}", *process.output().splitlines()[-LOG_LINES:]]
        print("\n".join(f"    {name}: {line}" for line in lines), flush=True)


if __name__ == "__main__":
    sys.exit(main())
