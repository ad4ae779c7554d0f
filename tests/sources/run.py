#!/usr/bin/env python3
"""Runs the cases of sources with real brokers against a release binary with all brokers' clients, and prints a table.

usage: run.py [--binary PATH] [--records N] [CASE ...]
"""

import argparse
import json
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "field"))

import cases  # noqa: E402
import cases_dead  # noqa: E402
import cases_full  # noqa: E402
import cases_network  # noqa: E402
import cases_reload  # noqa: E402
import cases_size  # noqa: E402
import cases_takeover  # noqa: E402
import publishing  # noqa: E402
import rig  # noqa: E402
import tutorials  # noqa: E402

CASES = [
    *cases.CASES,
    *cases_dead.CASES,
    *cases_network.CASES,
    *cases_full.CASES,
    *cases_reload.CASES,
    *cases_size.CASES,
    *cases_takeover.CASES,
    *publishing.CASES,
    *tutorials.CASES,
]


def run(case, resources, records):
    """Runs a case; where it fails, prints what its nodes have logged."""
    cases.LOGS.clear()
    try:
        return case(resources, records)
    except rig.Failed:
        for name, process in cases.LOGS:
            code = process.child.poll()
            lines = [f"pid {process.pid} {'runs' if code is None else f'ended with {code}'}"]
            lines += process.log.read_text(errors="replace").splitlines()[-30:]
            print("\n".join(f"    {name}: {line}" for line in lines), flush=True)
        raise


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=rig.REPO / "target/release/ringmain", help="the program under test")
    parser.add_argument("--records", type=int, default=100_000, help="records of each case (default: 100000)")
    parser.add_argument("cases", nargs="*", help="cases to run (default: all)")
    arguments = parser.parse_args()
    known = {case.__name__: case for case in CASES}
    unknown = set(arguments.cases) - set(known)
    if unknown:
        parser.error(f"expected cases of {', '.join(known)}; found {', '.join(sorted(unknown))}")
    failed = 0
    for name, case in known.items():
        if arguments.cases and name not in arguments.cases:
            continue
        began = time.monotonic()
        try:
            with rig.Rig(pathlib.Path(arguments.binary).resolve()) as resources:
                outcome, text = "ok", json.dumps(run(case, resources, arguments.records))
        except rig.Skipped as why:
            outcome, text = "SKIPPED", str(why)
        except (rig.Failed, OSError) as why:
            outcome, text = "FAILED", f"{type(why).__name__}: {why}"
            failed += 1
        print(f"{outcome:8} {name:20} {time.monotonic() - began:6.1f} s  {text}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
