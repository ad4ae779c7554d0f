#!/usr/bin/env python3
"""Is a change of configuration felt? 1,000 of them under load, with WebSockets and uploads open; then certificates.

    cargo build --release && bench/reload.py
    bench/reload.py --ours target/debug/ringmain --changes 100 --certificates 20

The gateway stands before the shop's servers in Go and Node. All through the changes `ringmain bench` asks, WebSockets
echo, uploads trickle in, and clients with a cookie look who answers them. Then certificates are replaced, half of the
times with SIGHUP, under `ringmain bench https://`. A change counts when the gateway answers by it.

The bars: no error and no status but 200, no WebSocket and no upload that ends, each client always at its own server,
and memory after all changes within --growth MiB of what it was after the first tenth.

Exit code: 0 all is well, 1 something is not, 2 could not be run.
"""

import argparse
import contextlib
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import asking
import certificates
import loads
import server as servers
from shop_stage import EXAMPLES, Failed, connects, expect, free_ports, until

HOST = "gateway.example"
BENCH_SECONDS = 5
# Two servers that a client may belong to, and one for WebSockets.
GO, NODE = ("one", "other"), "live"

FILE = """\
listeners:
  plain: {{address: 127.0.0.1:{plain}}}
  secure: {{address: 127.0.0.1:{secure}, tls: {{certificates: own}}}}
certificates:
  own: {{chain: own.crt, key: own.key}}
upstreams:
  account:
    endpoints: [{endpoints}]
    balance: {balance}
  live: http://127.0.0.1:{live}
routes:
  all:
    rules:
      - {{match: {{path: {{exact: /version}}}}, respond: {{body: "{version}"}}}}
      - {{match: /live, to: live, timeouts: {{idle: 1h}}}}
      - match: /upload
        to: account
        body: {{request: off}}
        timeouts: {{request: off}}
      - match: /stay
        to: account
        affinity: {{cookie: mine}}
      - to: account
        response_headers: {{set: {{x-version: "{version}"}}}}
{more}admin: {{address: 127.0.0.1:{admin}}}
"""
BALANCES = ("round_robin", "least_request", "{peak_ewma: {half_life: 5s}}", "random", "{maglev: path}")


def text_of(version, ports):
    """The file's version: listeners stay, all else is another way to say the same."""
    endpoints = [f"{{at: 127.0.0.1:{ports[name]}, weight: {1 + version % 3}}}" for name in GO]
    more = "".join(f"  extra-{version}-{number}: {{hosts: h{number}.example, to: live}}\n" for number in range(version % 7))
    return FILE.format(version=version, endpoints=", ".join(endpoints[::-1] if version % 2 else endpoints), more=more,
                       balance=BALANCES[version % len(BALANCES)], **ports)


class Held(threading.Thread):
    """Something that goes on in a thread until it is told to stop; `error` says what was wrong with it."""

    def __init__(self):
        super().__init__(daemon=True)
        self.over, self.error, self.count = threading.Event(), None, 0

    def run(self):
        try:
            self.hold()
        except Exception as e:  # whatever it is, it is told
            self.error = f"{type(self).__name__}: {type(e).__name__}: {e}"

    def hold(self):
        raise NotImplementedError

    def finish(self):
        """Has it end; Failed if something was wrong."""
        self.over.set()
        self.join(4 * asking.SECONDS)
        if self.error or self.is_alive():
            raise Failed(self.error or f"{type(self).__name__} does not end")


class Socket(Held):
    """A WebSocket that echoes."""

    def __init__(self, port):
        super().__init__()
        self.connection = asking.Connection(port)
        expect("101", 101, self.connection.upgrade("/live", HOST).status)
        self.connection.message()

    def hold(self):
        with self.connection:
            while not self.over.wait(0.2):
                payload = f"message {self.count}".encode()
                self.connection.send_message(payload)
                expect("the message back", (1, payload), self.connection.message())
                self.count += 1


class Upload(Held):
    """A body that trickles in."""

    def __init__(self, port):
        super().__init__()
        self.port = port

    def chunks(self):
        while not self.over.wait(0.05):
            self.count += 1000
            yield b"x" * 1000

    def hold(self):
        answer = asking.ask(self.port, "POST", "/upload", HOST, body=self.chunks())
        expect("all of it at the server", (200, self.count), (answer.status, answer.json().get("bytes")))


class Client(Held):
    """A client with a cookie, on a new connection each time."""

    def __init__(self, port):
        super().__init__()
        self.port = port
        first = asking.ask(port, "GET", "/stay", HOST)
        self.server, self.cookie = first.json()["server"], first.field("set-cookie").partition(";")[0]

    def hold(self):
        while not self.over.wait(0.1):
            answer = asking.ask(self.port, "GET", "/stay", HOST, [("Cookie", self.cookie)])
            expect("the same server", (200, self.server), (answer.status, answer.json().get("server")))
            self.count += 1


class Bench(Held):
    """`ringmain bench`, again and again."""

    def __init__(self, program, url, more=()):
        super().__init__()
        self.command = [program, "bench", "--json", "-q", "--rounds", "1", "-d", f"{BENCH_SECONDS}s", "-w", "100ms", "-c", "16",
                        "--threads", "1", "--timeout", "30s", "--expect-status", "200", *more, url]

    def hold(self):
        while True:
            done = subprocess.run(self.command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise Failed(f"ringmain bench: exit code {done.returncode}: {done.stderr.strip()[-300:]}")
            figures = loads.bench_figures(done.stdout)
            expect("no errors", 0, figures["errs"])
            self.count += figures["n"]
            if self.over.is_set():
                return


class Stage:
    """The gateway and the servers behind it, running within a `with` block."""

    def __init__(self, args, folder):
        self.args, self.folder = args, pathlib.Path(folder)
        self.ports = free_ports(["plain", "secure", "admin", *GO, NODE])
        self.file = self.folder / "gateway.yaml"
        self.version, self.times, self.running = 0, [], contextlib.ExitStack()

    def __enter__(self):
        with contextlib.ExitStack() as running:
            backend, sources = self.folder / "backend", EXAMPLES / "shop" / "backends"
            done = subprocess.run(["go", "build", "-o", backend, sources / "backend.go"], capture_output=True, text=True, check=False)
            if done.returncode:
                raise servers.ServerError(f"go build: {done.stderr.strip()[-300:]}")
            commands = {name: [str(backend), "http", name, f"127.0.0.1:{self.ports[name]}"] for name in GO}
            commands[NODE] = ["node", str(sources / "cart.js"), NODE, "127.0.0.1", str(self.ports[NODE])]
            for name, command in commands.items():
                address = ("127.0.0.1", self.ports[name])
                running.enter_context(servers.Server(command, ready=lambda _, address=address: connects(address)))
            self.certify(0)
            self.write()
            # Under whatever load, nobody is turned away for having waited.
            command = [self.args.ours, "run", str(self.file), "--max-queue-delay", "1h", "--engine", self.args.engine]
            self.gateway = running.enter_context(servers.Server(command, ready=lambda _: self.served() == self.version))
            self.running = running.pop_all()
        return self

    def __exit__(self, *_):
        self.running.close()

    def served(self):
        """The version that a new connection meets."""
        return int(asking.ask(self.ports["plain"], "GET", "/version", HOST).body)

    def write(self):
        """Puts the file in its place at once, as an editor does."""
        new = self.folder / "new"
        new.write_text(text_of(self.version, self.ports))
        new.replace(self.file)

    def change(self):
        """One change, and how long it took to be live."""
        self.version += 1
        self.write()
        saved = time.monotonic()
        until(f"version {self.version}", lambda: self.served() == self.version)
        self.times.append(time.monotonic() - saved)

    def certify(self, number):
        """Another certificate by the same authority; the key goes first, so that between the two they do not fit."""
        made = certificates.make(self.folder, name=f"leaf{number}")
        for source, name in ((made.key, "own.key"), (made.cert, "own.crt")):
            shutil.copy(source, self.folder / "new")
            (self.folder / "new").replace(self.folder / name)

    def shown(self):
        """The certificate that a new connection sees."""
        with asking.Connection(self.ports["secure"], (asking.trusting(self.folder / "ca.pem"), "localhost")) as connection:
            return connection.socket.getpeercert(True)

    def under_way(self, upstream):
        """Requests that count at an upstream."""
        found = asking.ask(self.ports["admin"], "GET", "/upstreams", "localhost").json()["upstreams"]
        return next(each["requests"] for each in found if each["name"] == upstream)

    def memory(self):
        """Resident bytes once nothing is open any more."""
        def is_idle():
            metrics = asking.ask(self.ports["admin"], "GET", "/metrics", "localhost").body.decode()
            return sum(float(line.split()[1]) for line in metrics.splitlines() if line.startswith("ringmain_connections{")) <= 1 + 64
        until("few connections", is_idle)
        return self.gateway.memory()["VmRSS"]


@contextlib.contextmanager
def all_of(held):
    """Within the block all of these go on; behind it, all must have been well."""
    for one in held:
        one.start()
    try:
        yield
    finally:
        for one in held:
            one.over.set()
    for one in held:
        one.finish()


def under_load(stage, changes):
    """So many changes while everything is open. Returns how much was done meanwhile, by kind."""
    plain = stage.ports["plain"]
    held = [Bench(stage.args.client, f"http://127.0.0.1:{plain}/load")]
    held += [kind(plain) for kind in (Socket, Upload, Client) for _ in range(stage.args.each)]
    with all_of(held):
        for _ in range(changes):
            stage.change()
            broken = [one.error for one in held if one.error]
            if broken:
                raise Failed(f"after {stage.version} changes: {'; '.join(broken)}")
        # What began long ago still counts, so that limits hold.
        expect("all uploads among the requests under way", True, stage.under_way("account") >= stage.args.each)
    return {kind.__name__.lower(): sum(one.count for one in held if isinstance(one, kind)) for kind in (Bench, Socket, Upload, Client)}


def changes(stage):
    """The changes, and memory before and after most of them."""
    tenth = max(1, stage.args.changes // 10)
    under_load(stage, tenth)
    before = stage.memory()
    done = under_load(stage, stage.args.changes - tenth)
    after = stage.memory()
    times = sorted(stage.times)
    print(f"{len(times)} changes, live after a median of {statistics.median(times) * 1e3:.0f} ms, at most {times[-1] * 1e3:.0f} ms")
    print(f"meanwhile {done['bench']:,.0f} requests, {done['socket']:,} messages, {done['upload']:,} bytes uploaded,"
          f" {done['client']:,} requests with a cookie: all well")
    print(f"resident {before / 2**20:.1f} MiB after {tenth} changes, {after / 2**20:.1f} MiB after {stage.args.changes}")
    if after > before + stage.args.growth * 2**20:
        raise Failed(f"expected at most {stage.args.growth:g} MiB more than {before / 2**20:.1f} MiB, found {after / 2**20:.1f} MiB")


def certificates_replaced(stage):
    """Certificates replaced under HTTPS load, each shown before the next one; every second time SIGHUP asks for it."""
    url = f"https://127.0.0.1:{stage.ports['secure']}/load"
    held = [Bench(stage.args.client, url, ["--ca", str(stage.folder / "ca.pem")]),
            Bench(stage.args.client, url, ["--ca", str(stage.folder / "ca.pem"), "--reconnect-every", "20"])]
    with all_of(held):
        for number in range(1, stage.args.certificates + 1):
            before = stage.shown()
            stage.certify(number)
            if number % 2:
                stage.gateway.process.send_signal(signal.SIGHUP)
            until(f"certificate {number}", lambda: stage.shown() != before)
            broken = [one.error for one in held if one.error]
            if broken:
                raise Failed(f"after {number} certificates: {'; '.join(broken)}")
    print(f"{stage.args.certificates} certificates replaced under {sum(one.count for one in held):,.0f} requests over TLS, without an error")


def parse_arguments():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ours = str(servers.TARGET / "release/ringmain")
    ap.add_argument("--ours", default=ours, help="the ringmain binary")
    ap.add_argument("--client", default=ours, help="the ringmain binary whose `bench` makes the load")
    ap.add_argument("--engine", default="auto", help="of the gateway (auto)")
    ap.add_argument("--changes", type=int, default=1000, help="of the configuration (1000)")
    ap.add_argument("--certificates", type=int, default=100, help="replaced (100)")
    ap.add_argument("--each", type=int, default=16, help="WebSockets, uploads, clients with a cookie (16 of each)")
    ap.add_argument("--growth", type=float, default=2.0, help="MiB of memory that may be more at the end (2)")
    args = ap.parse_args()
    if min(args.changes, args.certificates, args.each) < 1 or args.changes < 2:
        ap.error("expected at least two changes and one of all else")
    return args


def main():
    args = parse_arguments()
    servers.end_on_signals()
    missing = [name for name in ("go", "node", "openssl", args.ours, args.client) if not shutil.which(name)]
    if missing:
        print(f"reload.py: not here: {', '.join(missing)}: run bench/install.sh shop, cargo build --release", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="reload-") as folder:
        try:
            with Stage(args, folder) as stage:
                try:
                    changes(stage)
                    certificates_replaced(stage)
                    expect("a gateway that lives", True, stage.gateway.alive())
                except (Failed, asking.Broken, OSError) as e:
                    print(f"FAILED: {type(e).__name__}: {e}; the gateway: {stage.gateway.last_output()}")
                    return 1
        except (servers.ServerError, certificates.CertificateError) as e:
            print(f"reload.py: could not be run: {e}", file=sys.stderr)
            return 2
    print("no change was felt")
    return 0


if __name__ == "__main__":
    sys.exit(main())
