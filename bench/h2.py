#!/usr/bin/env python3
"""HTTP/2 compared: Ringmain on io_uring and on epoll, h2o, nginx, hyper; by prior knowledge and over TLS. And unary calls of
gRPC, with tonic and grpc-go.

    bench/build.sh h2 && cargo build --profile dist && cargo build --profile dist -p ringmain-web --example grpc_unary && bench/h2.py
    bench/h2.py --only h2o hyper --pairs 2          peers alone
    bench/h2.py --scenario h2c --load 32x100        one cell

Rounds are interleaved: the servers take turns in an order that rotates, each alone on the first CPU, the client (h2load, of
nghttp2-client) on the last. The figure is CPU seconds per million requests, user and system of the server's process tree
over the middle of the measuring window; ratios are taken within a round, and their 95 % interval comes from resampling
rounds. h2load counts answers that are no 2xx as errors and reads neither bodies nor trailers; each server's answer is read once by
curl before the load and once after it. See README.md.

Exit code: 0 measured and every bar that could be judged is met, 1 a bar is missed, a run failed or h2load counted
errors of ours, 2 could not be run.
"""

import collections
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import certificates
import comparison
import programs
import runs
import server as servers
import tls
from comparison import Bar, Subject
from programs import program

SETTINGS = tls.SETTINGS
EXAMPLE = servers.TARGET / "dist/examples/grpc_unary"
PATH = "/json"
BODY = b'{"message":"Hello, World!"}'
METHOD = "/demo.Greeter/Greet"


def framed(text):
    """A message with one string, field 1, as gRPC has it on the wire."""
    message = b"\x0a" + bytes([len(text)]) + text.encode()
    return b"\0" + len(message).to_bytes(4, "big") + message


CALL, GREETING = framed("World"), framed("Hello, World!")
ASK_SECONDS = 3

Cell = collections.namedtuple("Cell", "scenario connections streams")

SCENARIOS = {"h2c": "JSON by prior knowledge.", "h2": "JSON over TLS 1.3.", "grpc": "A unary call of gRPC, by prior knowledge."}
LOADS = {"h2c": ["32x100", "256x10"], "h2": ["32x100"], "grpc": ["32x100"]}
PEERS = ["h2o", "nginx", "hyper", "tonic", "grpc-go"]
BESIDE = {"h2c": "h2o", "h2": "h2o", "grpc": "tonic"}  # whom the table divides by
BARS = [
    Bar("h2c 32x100", "ours-uring", "h2o", 0.75),
    Bar("h2c 256x10", "ours-uring", "h2o", 0.85),
    Bar("h2 32x100", "ours-uring", "h2o", 0.85),
    Bar("grpc 32x100", "ours-uring", "tonic", 0.6),
]
UNITS_US = {"us": 1.0, "ms": 1e3, "s": 1e6}


def subjects(ours, made):
    """Every server that can be compared, by the scenario that it serves: {scenario: {name: Subject}}."""
    cert, key = str(made.cert), str(made.key)
    run = [ours, "run", "--listen", "127.0.0.1:$PORT", "--workers", "1", "--engine"]
    plain = {f"ours-{engine}": Subject("ours", [*run, engine]) for engine in ("uring", "epoll")}
    secure = {f"ours-{engine}": Subject("ours", [*run, engine, "--cert", cert, "--key", key]) for engine in ("uring", "epoll")}
    names = {"$CERT": cert, "$KEY": key}
    for found, suffix in ((plain, "h2"), (secure, "h2-tls")):
        for name, words in (("h2o", ["-c", "$SETTINGS"]), ("nginx", ["-c", "$SETTINGS"])):
            found[name] = Subject("peer", [program(name), *words],
                                  {"settings": SETTINGS / f"{name}-{suffix}.conf", "names": names})
    plain["hyper"] = Subject("peer", [str(servers.PEERS / "bin" / "peer-hyper"), "h2c"])
    secure["hyper"] = Subject("peer", [str(servers.PEERS / "bin" / "peer-hyper-rustls"), cert, key, "h2"])
    calls = {f"ours-{engine}": Subject("ours", [str(EXAMPLE), "127.0.0.1:$PORT", engine]) for engine in ("uring", "epoll")}
    calls["tonic"] = Subject("peer", [str(servers.PEERS / "bin" / "peer-tonic")])
    calls["grpc-go"] = Subject("peer", [str(servers.PEERS / "bin" / "gogrpc")])
    return {"h2c": plain, "h2": secure, "grpc": calls}


def is_secure(cell):
    """Over TLS; all others are by prior knowledge."""
    return cell.scenario == "h2"


def url(cell, port):
    scheme = "https" if is_secure(cell) else "http"
    return f"{scheme}://127.0.0.1:{port}{METHOD if cell.scenario == 'grpc' else PATH}"


def headers(cell):
    """Options of curl and of h2load."""
    return ["-H", "content-type: application/grpc", "-H", "te: trailers"] if cell.scenario == "grpc" else []


def ask(cell, port):
    """The body and, behind a line break, version and status (of gRPC, its trailer) of what curl is answered over HTTP/2;
    OSError if it is nothing."""
    how = ["--http2", "-k"] if is_secure(cell) else ["--http2-prior-knowledge"]
    said = "%{http_version} %{http_code}"
    body = b""
    if cell.scenario == "grpc":
        how += [*headers(cell), "--data-binary", "@-", "-D", "/dev/stderr"]
        body = CALL
    asked = subprocess.run(["curl", "-s", "-m", str(ASK_SECONDS), *how, "-w", "\n" + said, url(cell, port)],
                           input=body, capture_output=True)
    if asked.returncode:
        raise OSError(f"curl: exit code {asked.returncode}")
    trailer = re.search(rb"(?im)^grpc-status: *(\d+)", asked.stderr)
    return asked.stdout + (b" " + trailer[1] if trailer else b"")


def check(server, cell):
    """ServerError unless the answer is the right one."""
    said = ask(cell, server.port)
    body, _, status = said.rpartition(b"\n")
    expected = (GREETING, b"2 200 0") if cell.scenario == "grpc" else (BODY, b"2 200")
    if (body.strip(b"\n") if cell.scenario != "grpc" else body, status) != expected:
        raise servers.ServerError(f"expected {expected} by HTTP/2, found {said!r}")


def h2load(server, cell, args):
    """Runs h2load; the server's CPU time is that of the middle of its window."""
    command = ["h2load", "-t1", f"-c{cell.connections}", f"-m{cell.streams}", f"-D{args.secs * 1000:.0f}ms",
               f"--warm-up-time={args.warm * 1000:.0f}ms", *headers(cell)]
    if cell.scenario == "grpc":
        command += ["-d", args.call]
    command.append(url(cell, server.port))
    started, samples = time.monotonic(), []
    with runs.start(command, args) as client:
        try:
            for share in (runs.MARGIN, 1 - runs.MARGIN):
                time.sleep(max(0.0, started + args.warm + share * args.secs - time.monotonic()))
                samples.append(runs.sample(server, args))
            text, error = client.communicate(timeout=60)
        except BaseException:
            client.kill()
            raise
    figures = h2load_figures(text, args.secs, error)
    figures.update(runs.used(*samples))
    figures["us_per_message"] = figures["server_cpu"] * figures["secs"] / figures["n"] * 1e6
    return figures


def h2load_figures(text, secs, error=""):
    """The figures of h2load's report. It has the mean and the largest latency and no percentiles."""
    counts = re.search(r"requests: (\d+) total, (\d+) started, (\d+) done, (\d+) succeeded, (\d+) failed, (\d+) errored", text)
    latency = re.search(r"time for request:\s+\S+\s+([\d.]+)(us|ms|s)\s+([\d.]+)(us|ms|s)", text)
    if not counts or not latency or not int(counts[4]):
        raise servers.ServerError(f"expected h2load's report, found {(text + error)[-300:]!r}")
    done, failed, errored = int(counts[3]), int(counts[5]), int(counts[6])
    # Its streams that are under way at the end count as failed and as errored, both.
    wrong = re.search(r"status codes: \d+ 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", text)
    errs = sum(map(int, wrong.groups())) if wrong else failed + errored
    return {"n": done, "secs": secs, "rps": done / secs, "errs": errs,
            "max_us": float(latency[1]) * UNITS_US[latency[2]], "mean_us": float(latency[3]) * UNITS_US[latency[4]]}


def one_run(subject, cell, args):
    """One measured run of one server in one cell."""

    def ready(port):
        ask(cell, port)
        return True

    with servers.Server(subject.command, cpu=args.server_cpu, ready=ready, **subject.options) as server:
        check(server, cell)
        figures = h2load(server, cell, args)
        figures["peak_bytes"] = server.memory()["VmHWM"]
        if not server.alive():
            raise servers.ServerError(f"the server ended: {server.last_output()}")
        check(server, cell)
    return figures


def parse_arguments():
    ap = runs.arguments(__doc__, pairs=8)
    ap.add_argument("--only", nargs="+", metavar="SERVER", help="of: ours-uring ours-epoll h2o nginx hyper, tonic grpc-go")
    ap.add_argument("--scenario", nargs="+", choices=list(SCENARIOS), default=list(SCENARIOS), help="(all)")
    ap.add_argument("--load", nargs="+", metavar="CxS", help="connections x streams of each (32x100 256x10; over TLS 32x100)")
    ap.add_argument("--peer-pairs", type=int, default=8, help="rounds in which peers run too (8)")
    args = runs.parse(ap)
    known = ["ours-uring", "ours-epoll", *PEERS]
    for name in args.only or []:
        if name not in known:
            ap.error(f"--only: expected some of {' '.join(known)}, found {name}")
    for load in args.load or []:
        if not re.fullmatch(r"[1-9]\d*x[1-9]\d*", load):
            ap.error(f"--load: expected CONNECTIONSxSTREAMS such as 32x100, found {load}")
    return args


def cells(args, scenario):
    """The cells of a scenario in the order of the report."""
    loads = args.load or LOADS[scenario]
    return [Cell(scenario, *map(int, load.split("x"))) for load in loads]


def title(cell):
    return f"{cell.scenario} {cell.connections}x{cell.streams}"


def table(cell, results, about=SCENARIOS, base=None):
    """One cell: every server's medians, the least CPU first, each beside `base`."""
    beside = base or BESIDE[cell.scenario]
    lines = [f"### {title(cell)}", "", f"{about[cell.scenario]} {cell.connections} connections, {cell.streams} streams on each.", "",
             f"| server | **CPU us each** | by {beside} (95 %) | of it user | a second | mean us | peak MB | server CPU | client CPU | errors | runs |",
             "| --- |" + " --- |" * 10]
    rows = []
    for name, by_cell in results.items():
        found = list(by_cell.get(cell, {}).values())
        if found:
            m = runs.medians(found)
            rows.append((m["us_per_message"], f"| {name} | **{m['us_per_message']:.2f}** | {comparison.ratio_text(results, name, beside, cell)} |"
                         f" {m['user_share']:.0%} | {m['rps']:,.0f} | {m['mean_us']:,.0f} | {m['peak_bytes'] / 1e6:.1f} |"
                         f" {m['server_core']:.0%} | {m['load_core']:.0%} | {sum(f['errs'] for f in found):.0f} | {len(found)} |"))
    return lines + [row for _, row in sorted(rows)] + [""]


def bars(results, wanted=tuple(BARS)):
    """What is judged: lines, and whether a bar is missed."""
    lines = ["### Bars", "", "| CPU each | cell | ratio | 95 % interval | pairs | bar | |", "| --- |" + " --- |" * 6]
    missed = False
    for bar in wanted:
        pick = lambda name: {c: r for c, r in results.get(name, {}).items() if title(c) == bar.scenario}
        ours, other = pick(bar.ours), pick(bar.other)
        found = runs.compare(ours, other) if ours and other else None
        if not found:
            continue
        pairs = min(len(r) for r in (*ours.values(), *other.values()))
        said = runs.verdict(found[1], found[2], found[3], bar.at_most)
        missed |= found[1] > bar.at_most
        lines.append(f"| {bar.ours} / {bar.other} | {bar.scenario} | **{found[1]:.3f}** | {found[2]:.3f} to {found[3]:.3f} |"
                     f" {pairs} | <= {bar.at_most:.2f} | {said} |")
    return lines + [""], missed


def versions():
    """The versions that were compared, of the lock file, of go.mod and of the programs themselves."""
    found = comparison.locked_versions({"hyper", "rustls", "tonic"}) + comparison.go_versions({"google.golang.org/grpc"})
    return "; ".join(found + programs.versions("nginx", "h2o", "h2load", "go"))


def main():
    args = parse_arguments()
    for tool in ("h2load", "curl"):
        if not shutil.which(tool):
            print(f"h2.py: no {tool} here: install nghttp2-client and curl", file=sys.stderr)
            return 2
    with tempfile.TemporaryDirectory(prefix="bench-h2-") as folder:
        try:
            made = certificates.make(folder)
        except certificates.CertificateError as e:
            print(f"h2.py: {e}", file=sys.stderr)
            return 2
        args.call = os.path.join(folder, "call")
        with open(args.call, "wb") as file:
            file.write(CALL)
        remedies = {"ours": "cargo build --profile dist (or name it with --ours), for grpc its example grpc_unary", "peer": "bench/build.sh h2, and install nginx and h2o"}
        runs.take_places(args)
        results, planned = {}, 0
        for scenario in args.scenario:
            there = subjects(args.ours, made)[scenario]
            only = args.only and [name for name in args.only if name in there]
            if only == []:
                continue
            chosen, _ = comparison.choose("h2.py", there, only, remedies)
            found, count = comparison.run_rounds(chosen, cells(args, scenario), lambda *_: True,
                                                 functools.partial(lambda subject, cell, args: one_run(subject, cell, args)), args)
            planned += count
            for name, by_cell in found.items():
                results.setdefault(name, {}).update(by_cell)
        lines = [f"## HTTP/2: {args.pairs} interleaved rounds of {args.secs:g} s, server on CPU {args.server_cpu},"
                 f" client on CPU {args.load_cpu}", "", f"Linux {os.uname().release}, {os.cpu_count()} CPUs, {time.strftime('%Y-%m-%d')}. {versions()}.", ""]
        for scenario in args.scenario:
            for cell in cells(args, scenario):
                lines += table(cell, results)
        judged, missed = bars(results)
        runs.publish(lines + judged, args)
        sound = runs.all_sound(results, planned, PEERS)
    return 0 if sound and not missed else 1


if __name__ == "__main__":
    sys.exit(main())
