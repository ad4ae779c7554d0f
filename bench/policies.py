#!/usr/bin/env python3
"""What each policy costs a request: instructions, allocations, CPU; and three of them together over real sockets.

    cargo build --profile dist -p ringmain-gateway --example policy_cost && bench/policies.py --scenario counts
    bench/build.sh client floor && cargo build --profile dist && bench/policies.py --scenario sockets
    bench/policies.py --scenario counts --only jwt_cached rate_limit --requests 200

`counts` runs the example `policy_cost`, which is a gateway in a simulated world without system calls, with a policy and
without it, on the same requests. Instructions are those of the worker that callgrind (of valgrind) counts, without the
simulated network, the client and the origin; allocations are those of the process. Each is taken of N and of 2N requests,
and the difference by N is one request's, so that what happens once falls out. CPU is the thread's own clock, in
interleaved rounds without valgrind. What the same requests cost without the policy is taken away. valgrind has no
instructions for SHA and none of AVX-512: there the crypto library takes those that it has, as on an older machine, so
that its part (API keys, certificates, first tokens) is counted too high.

`sockets` has the gateway forward requests with a token to the floor, over io_uring and over epoll, without policies and
with a cached token, a rate limit and changes of headers, as policies-ringmain.yaml has them. The gateway is alone on the
first CPU; rounds are interleaved as in proxy.py. The figure is its CPU a request, with less without in the same round.

Exit code: 0 measured and the bar of 1.5 us for the three together is met, 1 it is missed or a run failed, 2 could not be run.
"""

import base64
import collections
import hashlib
import hmac
import json
import os
import re
import shutil
import socketserver
import statistics
import subprocess
import sys
import threading
import time

import answers
import asking
import loads
import runs
import server as servers
from comparison import Subject

SETTINGS = servers.REPO / "bench" / "peers" / "settings"
BIN = servers.PEERS / "bin"
PATH = "/json"
THREE = "three_together"
BAR_US = 1.5
# The function that is looked at: a worker's turn.
COUNTED = "ringmain_engine::worker::Worker*::work"
# Signatures are made for each request, which takes longer than they do.
FIRST = re.compile("^jwt_first")
SECRET = bytes(range(64))

Cell = collections.namedtuple("Cell", "scenario connections")


def encoded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def key_set():
    """The set of keys that tokens are checked by."""
    return json.dumps({"keys": [{"kty": "oct", "kid": "one", "alg": "HS256", "k": encoded(SECRET)}]}).encode()


def token():
    """A token that holds for a long time, of about the size of Keycloak's."""
    head = {"alg": "HS256", "kid": "one", "typ": "JWT"}
    claims = {"iss": "https://id.example/realms/shop", "aud": ["shop-api", "account"], "sub": "f:528950e6:ada", "exp": 4_000_000_000,
              "iat": 1_700_000_000, "jti": "0cd6ee1c-6f1b-4d6e-9c3a-2f9b8f1f6f1e", "azp": "shop-web", "scope": "openid profile orders",
              "preferred_username": "ada", "realm_access": {"roles": ["staff", "offline_access", "uma_authorization"]}}
    message = ".".join(encoded(json.dumps(part, separators=(",", ":")).encode()) for part in (head, claims))
    return f"{message}.{encoded(hmac.digest(SECRET, message.encode(), hashlib.sha256))}"


class Keys:
    """Serves the set of keys, running within a `with` block."""

    def __enter__(self):
        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                while self.rfile.readline().strip():
                    pass
                body = key_set()
                self.wfile.write(f"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)

        # Python's own server is out of reach: bench/http.py has its name.
        self.server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def run(command):
    """Its standard output and standard error."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise servers.ServerError(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr.strip()[-400:]}")
    return done.stdout, done.stderr


def instructions(error):
    """What callgrind says that it has counted."""
    found = re.search(r"Collected : (\d+)", error)
    if not found or found.group(1) == "0":
        raise servers.ServerError(f"expected callgrind to have counted {COUNTED}, found: {error.strip()[-400:]}")
    return int(found.group(1))


def count(args, name, requests, bare):
    """One run: {"instructions", "allocations"} of so many requests and those before them."""
    command = [args.program, name, str(requests)] + (["--bare"] if bare else [])
    _, error = run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", f"--toggle-collect={COUNTED}", *command])
    out, _ = run(command)
    return {"instructions": instructions(error), "allocations": json.loads(out)["allocations"]}


def each(first, second, requests):
    """What one request takes, of the counts of so many and of twice as many."""
    return {key: (second[key] - first[key]) / requests for key in first}


def counts(args, name):
    """What a policy adds to a request: {"instructions", "allocations"}, and the same of the bare request."""
    requests = args.first if FIRST.match(name) else args.requests
    bare, full = (each(*(count(args, name, n, bare) for n in (requests, 2 * requests)), requests) for bare in (True, False))
    return {key: full[key] - bare[key] for key in full}, bare


def cpu(args, name):
    """Microseconds of CPU that a policy adds to a request, round by round."""
    requests = 10 * args.first if FIRST.match(name) else args.cpu_requests
    found = []
    for number in range(args.pairs):
        spent = {}
        for bare in (number % 2 == 0, number % 2 == 1):
            out, _ = run([args.program, name, str(requests), "--cpu"] + (["--bare"] if bare else []))
            spent[bare] = json.loads(out)["cpu_ns"]
        found.append((spent[False] - spent[True]) / requests / 1e3)
    return found


def spread(values):
    """The median and the quartiles of figures."""
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return middle, low, high


def judged(value):
    return f"<= {BAR_US} us: " + ("met" if value <= BAR_US else "**missed**")


def counts_report(args, names):
    """The table of all policies: (lines, whether the bar is missed)."""
    lines = ["### Each policy alone, without system calls", "",
             f"N of {args.requests:,} requests (tokens of their own: {args.first:,}); CPU: medians of {args.pairs} interleaved rounds, and quartiles.", "",
             "| policy | instructions | allocations | CPU us (quartiles) | |", "| --- |" + " --- |" * 4]
    missed, bare = 0, {}
    for name in names:
        print(f"{name} ...", file=sys.stderr, flush=True)
        more, bare = counts(args, name)
        middle, low, high = spread(cpu(args, name))
        verdict = judged(middle) if name == THREE else ""
        missed += name == THREE and middle > BAR_US
        lines.append(f"| {name} | {more['instructions']:,.0f} | {more['allocations']:.2f} | {middle:.2f} ({low:.2f} to {high:.2f}) | {verdict} |")
    lines += ["", f"The last one's requests without it take {bare['instructions']:,.0f} instructions of the worker.", ""]
    return lines, missed


def subjects(ours, upstream, keys):
    """The gateway without and with the three: {name: Subject}."""
    known = {}
    for engine in ("uring", "epoll"):
        for kind, settings in (("bare", "proxy-ringmain.yaml"), ("three", "policies-ringmain.yaml")):
            command = [ours, "run", "$SETTINGS", "--workers", "1", "--engine", engine]
            options = {"settings": SETTINGS / settings, "names": {"$UPSTREAM": str(upstream), "$KEYS": str(keys)}}
            known[f"{kind}-{engine}"] = Subject("ours", command, options)
    return known


def headers():
    return [("Authorization", f"Bearer {token()}"), ("X-Debug", "1")]


def answer(port):
    return asking.ask(port, "GET", PATH, "localhost", headers())


def check(server):
    """Raises ServerError unless a request with a token is answered."""
    try:
        found = answer(server.port)
    except (asking.Broken, OSError) as e:
        raise servers.ServerError(f"{e}; the server: {server.last_output()}") from e
    if found.status != 200 or answers.HELLO.encode() not in found.body:
        raise servers.ServerError(f"expected the origin's answer, found {found.status} {found.body[:200]!r}")


def ready(port):
    """Whether it answers: the first token may still wait for its keys."""
    return answer(port).status == 200


def one_run(subject, cell, args):
    load = loads.Load(PATH, connections=cell.connections, expect=answers.HELLO, headers=headers())
    return runs.measure(subject.command, load, args, check=check, ready=ready, **subject.options)


def added(results, engine, cell):
    """Microseconds that the three add to a request, round by round."""
    bare, three = (results.get(f"{kind}-{engine}", {}).get(cell, {}) for kind in ("bare", "three"))
    return [three[number]["us_per_message"] - bare[number]["us_per_message"] for number in three if number in bare]


def sockets_report(args, upstream, keys):
    """The table of the gateway over real sockets: (lines, whether a bar is missed or a run failed)."""
    chosen = subjects(args.ours, upstream.port, keys.port)
    cells = [Cell(f"closed-{n}", n) for n in args.conns]
    results = runs.rounds(lambda _: {cell: list(chosen) for cell in cells}, lambda name, cell: one_run(chosen[name], cell, args), args)
    lines = ["### Three together over real sockets", "",
             "A cached token, a rate limit and changes of headers; CPU us of the gateway a request.", "",
             "| | connections | without | with | added, median (quartiles) | |", "| --- |" + " --- |" * 5]
    missed = 0
    for engine in ("uring", "epoll"):
        for cell in cells:
            more = added(results, engine, cell)
            if not more:
                missed += 1
                continue
            middle, low, high = spread(more)
            missed += middle > BAR_US
            bare, three = (statistics.median(f["us_per_message"] for f in results[f"{kind}-{engine}"][cell].values()) for kind in ("bare", "three"))
            lines.append(f"| {engine} | {cell.connections} | {bare:.2f} | {three:.2f} | **{middle:.2f}** ({low:.2f} to {high:.2f}) | {judged(middle)} |")
    return lines + [""] + runs.doubts(results), missed + (not runs.all_sound(results, args.pairs * len(cells) * len(chosen)))


def parse_arguments():
    ap = runs.arguments(__doc__, pairs=10, secs=2)
    ap.add_argument("--program", default=str(servers.TARGET / "dist/examples/policy_cost"), help="the example of ringmain-gateway")
    ap.add_argument("--scenario", nargs="+", choices=("counts", "sockets"), default=["counts", "sockets"], help="(both)")
    ap.add_argument("--only", nargs="+", metavar="CASE", help="of those that the example lists")
    ap.add_argument("--requests", type=int, default=500, help="N of counts (500)")
    ap.add_argument("--first", type=int, default=50, help="N of counts where each request has a token of its own (50)")
    ap.add_argument("--cpu-requests", type=int, default=20_000, help="requests of a round of CPU (20000)")
    ap.add_argument("--conns", nargs="+", type=int, metavar="N", default=[64], help="connections of sockets (64)")
    args = runs.parse(ap)
    if min(args.requests, args.first, args.cpu_requests, *args.conns) < 1:
        ap.error("expected numbers of at least 1")
    return args


def missing(args):
    """What has to be there and is not, with what makes it."""
    found = []
    if "counts" in args.scenario:
        if not shutil.which("valgrind"):
            found.append("no valgrind: apt-get install valgrind")
        if not os.access(args.program, os.X_OK):
            found.append(f"no program at {args.program}: run cargo build --profile dist -p ringmain-gateway --example policy_cost")
    if "sockets" in args.scenario:
        if not os.access(BIN / "floor", os.X_OK):
            found.append("no upstream: run bench/build.sh floor")
        if not os.access(args.ours, os.X_OK):
            found.append(f"no program at {args.ours}: run cargo build --profile dist (or name it with --ours)")
    return found


def named(args):
    """The cases to count."""
    known = run([args.program, "--list"])[0].split()
    unknown = [name for name in args.only or [] if name not in known]
    if unknown:
        raise servers.ServerError(f"--only: expected some of {' '.join(known)}, found {' '.join(unknown)}")
    return [name for name in known if not args.only or name in args.only]


def report(args):
    """Measures and prints. Returns the exit code."""
    lines = ["## What policies cost", "", f"Linux {os.uname().release}, {os.cpu_count()} CPUs, {processor()}, {time.strftime('%Y-%m-%d')}.", ""]
    missed = 0
    if "counts" in args.scenario:
        found, more = counts_report(args, named(args))
        lines, missed = lines + found, missed + more
    if "sockets" in args.scenario:
        runs.require_client("policies.py", args)
        runs.take_places(args)
        with Keys() as keys, servers.Server([str(BIN / "floor"), "epoll-http"], cpu=args.load_cpu, ready=answers_at_all) as upstream:
            found, more = sockets_report(args, upstream, keys)
        lines, missed = lines + found, missed + more
    runs.publish(lines, args)
    return 1 if missed else 0


def answers_at_all(port):
    """Whether the upstream answers; the check of the gateway's answers says what is wrong."""
    try:
        return answers.responds(port, PATH)
    except answers.WrongAnswer:
        return True


def processor():
    """What the processor calls itself."""
    with open("/proc/cpuinfo") as f:
        found = re.search(r"model name\s*: (.*)", f.read())
    return found.group(1) if found else os.uname().machine


def main():
    args = parse_arguments()
    for what in missing(args):
        print(f"policies.py: {what}", file=sys.stderr)
    if missing(args):
        return 2
    try:
        return report(args)
    except servers.ServerError as e:
        print(f"policies.py: could not be run: {e}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
