#!/usr/bin/env python3
"""Runs the cases of clusters with processes of a binary on loopback, and prints a table of what was measured. As root in a network namespace of its own.

usage: run.py [--full | --quick] [--clients N] [--previous BINARY] [--crowd PROGRAM] [--log none|redis|jetstream|kafka] [BINARY] [CASE ...]
"""

import argparse
import json
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "field"))

import cases_api  # noqa: E402
import cases_chaos  # noqa: E402
import cases_failures  # noqa: E402
import cases_links  # noqa: E402
import cases_log  # noqa: E402
import cases_planned  # noqa: E402
import cases_scale  # noqa: E402
import rig  # noqa: E402

CASES = [*cases_api.CASES, *cases_failures.CASES, *cases_links.CASES, *cases_planned.CASES, *cases_chaos.CASES,
         *cases_scale.CASES]
LOG_LINES = 30
# 20,000 clients, and as many connections of the gateway in front of the nodes, to few addresses: with the usual 28,000 ports of an address
# the kernel searches for a free one longer than all of the rest takes.
PORTS = "10000 65000"


def enter_namespace():
    """Runs this program again in a network namespace of its own, with more ports."""
    script = f'ip link set lo up && echo {PORTS} > /proc/sys/net/ipv4/ip_local_port_range && exec "$@"'
    os.environ["RINGMAIN_OWN_NETWORK"] = "yes"
    os.execvp("unshare", ["unshare", "--net", "sh", "-ec", script, "sh", sys.executable, *sys.argv])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary", nargs="?", default=rig.REPO / "target/release/ringmain", help="the program under test")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="cases to run (default: all)")
    parser.add_argument("--full", action="store_true", help="20,000 clients in the cases of scale (default for a release build)")
    parser.add_argument("--quick", action="store_true", help="2,000 clients in the cases of scale (default for a debug build)")
    parser.add_argument("--clients", type=int, help="clients in the cases of scale, a multiple of 80")
    parser.add_argument("--log", choices=("none", *cases_log.CASES), default="none",
                        help="run the cases with this log behind the channels in place of those without")
    parser.add_argument("--previous", metavar="BINARY", help="an earlier build, for the case of a rolling upgrade")
    parser.add_argument("--crowd", default=rig.REPO / "target/release/crowd", help="the program of the clients in the cases of scale")
    arguments = parser.parse_intermixed_args()
    if os.geteuid() == 0 and "RINGMAIN_OWN_NETWORK" not in os.environ:
        enter_namespace()
    binary = pathlib.Path(arguments.binary).resolve()
    is_full = arguments.full or not arguments.quick and "debug" not in binary.parts
    cases = CASES if arguments.log == "none" else cases_log.CASES[arguments.log]
    known = {case.__name__: case for case in cases}
    unknown = set(arguments.cases) - set(known)
    if unknown:
        parser.error(f"expected cases of {', '.join(known)}; found {', '.join(sorted(unknown))}")
    failed = 0
    for name in arguments.cases or known:
        began = time.monotonic()
        with rig.Rig(binary) as resources:
            resources.clients = arguments.clients or (20_000 if is_full else 2_000)
            resources.crowd = arguments.crowd
            resources.nodes, resources.is_full, resources.previous = [], is_full, arguments.previous
            try:
                outcome, text = "ok", json.dumps(known[name](resources))
            except rig.Skipped as why:
                outcome, text = "SKIPPED", str(why)
            except Exception as why:  # noqa: BLE001 the other cases follow
                outcome, text = "FAILED", f"{type(why).__name__}: {why}"
                failed += 1
            print(f"{outcome:8} {name:22} {time.monotonic() - began:6.1f} s  {text}", flush=True)
            if outcome == "FAILED":
                print_logs(resources.nodes)
    return 1 if failed else 0


def print_logs(nodes):
    """Prints the ends of the logs of a case's processes."""
    for node in nodes:
        code = node.process.child.poll()
        lines = [f"pid {node.process.pid} {'runs' if code is None else f'ended with {code}'}", *node.process.output().splitlines()[-LOG_LINES:]]
        print("\n".join(f"    {node.name}: {line}" for line in lines), flush=True)


if __name__ == "__main__":
    sys.exit(main())
