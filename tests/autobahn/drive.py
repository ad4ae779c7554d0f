#!/usr/bin/env python3
"""Runs Autobahn's suite against a program and judges its report; `run.sh` prepares what it needs.

Every case must be OK or INFORMATIONAL, and close so: not even NON-STRICT is taken.
"""

import argparse
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

AGENT = "ringmain"
RUNNER = "import site, sys; site.addsitedir(sys.argv.pop(1)); from autobahntestsuite.wstest import run; run()"
SECONDS = 3600
START_SECONDS = 60

FINE = ("OK", "INFORMATIONAL")

class Failed(Exception):
    """The suite could not be run; the text says why."""


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def wait_for(process, port):
    """Waits until a program listens."""
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except ConnectionRefusedError:
            time.sleep(0.05)
    raise Failed(f"expected the suite to listen on port {port} within {START_SECONDS} s: it does not")


def wstest(args, mode, spec, directory, said):
    path = directory / f"{mode}.json"
    path.write_text(json.dumps(spec))
    # Unbuffered, so that what it says arrives.
    words = [args.python, "-u", "-c", RUNNER, args.packages, "-m", mode, "-s", str(path), "-u", "0"]
    # It leaves a file of its own where it runs.
    return subprocess.Popen(words, cwd=directory, stdout=said, stderr=subprocess.STDOUT)


def spec_of(args, reports):
    return {
        "outdir": str(reports),
        "cases": args.cases or ["*"],
        "exclude-cases": [],
        "exclude-agent-cases": {},
    }


def as_server(args, directory, reports):
    """The program serves, the suite asks."""
    binary = str(pathlib.Path(args.binary).resolve())
    server = subprocess.Popen(
        [binary, "127.0.0.1:0"], text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        address = None
        for line in server.stderr:
            if "listening on " in line:
                address = line.rsplit("listening on ", 1)[1].split()[0]
                break
        if address is None:
            raise Failed(f"expected `listening on ADDRESS` from {binary}, found its end with code {server.wait()}")
        servers = [{"agent": AGENT, "url": f"ws://{address}"}]
        said = directory / "said"
        with said.open("w") as out:
            suite = wstest(args, "fuzzingclient", spec_of(args, reports) | {"servers": servers}, directory, out)
            suite.wait(timeout=SECONDS)
        if suite.returncode != 0:
            raise Failed(f"the suite ended with code {suite.returncode}: {said.read_text().strip()[-800:]}")
    finally:
        server.terminate()
        server.wait()


def as_client(args, directory, reports):
    """The suite serves, the program asks."""
    port = free_port()
    spec = spec_of(args, reports) | {"url": f"ws://127.0.0.1:{port}"}
    suite = wstest(args, "fuzzingserver", spec, directory, subprocess.DEVNULL)
    try:
        wait_for(suite, port)
        subprocess.run([str(pathlib.Path(args.binary).resolve()), f"127.0.0.1:{port}"], timeout=SECONDS, check=True)
    except subprocess.CalledProcessError as error:
        raise Failed(f"{error}") from error
    finally:
        suite.terminate()
        suite.wait()


def judge(reports):
    """Prints what is not plainly OK; whether all is as it must be."""
    index = reports / "index.json"
    if not index.exists():
        raise Failed(f"expected a report in {index}, found none")
    cases = json.loads(index.read_text())[AGENT]
    counts = {}
    wrong = 0
    for case in sorted(cases, key=lambda name: [int(part) for part in name.split(".")]):
        result = cases[case]
        behavior, close = result["behavior"], result["behaviorClose"]
        counts[behavior] = counts.get(behavior, 0) + 1
        fine = behavior in FINE and close in FINE
        wrong += not fine
        if not fine or behavior != "OK":
            print(f"  {case:<10} {behavior:<14} close {close:<14} {'' if fine else 'WRONG'}".rstrip())
    total = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    print(f"{len(cases)} cases: {total}; report: {reports}/index.html")
    if not cases:
        raise Failed("no case was run")
    return wrong == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True)
    parser.add_argument("--packages", required=True)
    parser.add_argument("--reports", required=True, type=pathlib.Path)
    parser.add_argument("role", choices=("server", "client"))
    parser.add_argument("binary")
    parser.add_argument("cases", nargs="*")
    args = parser.parse_args()
    reports = args.reports / args.role
    try:
        (reports / "index.json").unlink(missing_ok=True)
        with tempfile.TemporaryDirectory() as directory:
            run = as_server if args.role == "server" else as_client
            run(args, pathlib.Path(directory), reports)
        print(f"as a {args.role}:")
        return 0 if judge(reports) else 1
    except (Failed, OSError, subprocess.TimeoutExpired) as error:
        print(f"autobahn: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
