#!/usr/bin/env python3
"""Tools of others against a server with its default limits: curl, wrk, h2load, slowhttptest.

    bench/tools.py -- target/release/ringmain run --listen '127.0.0.1:$PORT'
    bench/tools.py --secs 60 --connections 2000 -- target/release/ringmain run --listen '127.0.0.1:$PORT'

The server must answer /plaintext, /json, / and POST /echo as `ringmain run` does. Debian and Ubuntu have the tools:
`apt-get install curl wrk nghttp2-client slowhttptest`. One that is not there is an error, unless `--skip-missing`.

slowhttptest attacks in each of its modes while ordinary clients go on asking, one on a connection that it keeps
and one that connects anew each time: each answer must come, within `--deadline`. Under one minute with the
default `--secs`. A longer attack shows the limits' effect: see `connections left`.

Exit code: 0 all is well, 1 something is not, 2 could not be run.
"""

import argparse
import os
import pathlib
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import server as servers

TOOLS = ("curl", "wrk", "h2load", "slowhttptest")
PAUSE_SECONDS = 0.02  # between two questions of a probe
TOOL_SECONDS = 30.0  # for a tool to end beyond its own time
UPLOAD_BYTES = 900_000  # below the server's default limit of a collected body
OWN_DESCRIPTORS = 100
ASK_SECONDS = 10.0
REQUEST = b"GET /plaintext HTTP/1.1\r\nHost: localhost\r\n\r\n"
HELLO = b"Hello, World!"

ATTACKS = {
    "slow headers": ["-H", "-i", "1", "-x", "24"],
    "slow body": ["-B", "-i", "1", "-x", "10", "-s", "8192", "-t", "POST"],
    "ranges": ["-R", "-a", "1", "-b", "3000", "-t", "GET"],
    "slow read": ["-X", "-k", "10", "-n", "1", "-w", "8", "-y", "16", "-z", "4"],
}
TARGETS = {"slow body": "/echo"}


class Failed(Exception):
    """A tool was not content, or the server was not there; the text says which and how."""


def run(words, seconds=TOOL_SECONDS, **kwargs):
    """Runs a tool to its end; returns what it wrote to standard output and error."""
    done = subprocess.run(words, capture_output=True, timeout=seconds, check=False, **kwargs)
    text = (done.stdout + done.stderr).decode(errors="replace")
    if done.returncode != 0:
        raise Failed(f"{' '.join(words)}: exit code {done.returncode}: {text.strip()[-500:]}")
    return text


def expect(what, right, found):
    if not right:
        raise Failed(f"expected {what}, found {found.strip()[-500:]!r}")


def curl(port):
    """Keep-alive, HEAD, HTTP/1.0, uploads of known and unknown length, Expect."""
    base = f"http://127.0.0.1:{port}"
    tool = ["curl", "-sS", "--max-time", "20"]
    text = run([*tool, "-v", *[f"{base}/plaintext"] * 5])
    expect("five answers", text.count("Hello, World!") == 5, text)
    expect("one connection for all", len(re.findall(r"Re-using existing connection", text)) == 4, text)
    text = run([*tool, "-I", f"{base}/json"])
    expect("a head", text.startswith("HTTP/1.1 200 OK\r\n") and "Content-Length: 27" in text, text)
    text = run([*tool, "-v", "--http1.0", f"{base}/plaintext", f"{base}/plaintext"])
    expect("two answers", text.count("Hello, World!") == 2, text)
    expect("the end after each", text.count("Closing connection") == 2, text)
    with tempfile.TemporaryDirectory(prefix="tools-") as folder:
        sent, back = pathlib.Path(folder, "sent"), pathlib.Path(folder, "back")
        sent.write_bytes(os.urandom(UPLOAD_BYTES))
        body = ["--data-binary", f"@{sent}", "-H", "Content-Type: application/octet-stream", "-o", str(back)]
        for name, more in [
            ("a known length", ["-H", "Expect:"]),
            ("chunks", ["-H", "Transfer-Encoding: chunked", "-H", "Expect:"]),
            ("Expect", ["-H", "Expect: 100-continue"]),
            ("chunks and Expect", ["-H", "Transfer-Encoding: chunked", "-H", "Expect: 100-continue"]),
        ]:
            back.unlink(missing_ok=True)
            text = run([*tool, "-v", *body, *more, f"{base}/echo"])
            expect(f"{UPLOAD_BYTES} bytes back, sent with {name}", back.read_bytes() == sent.read_bytes(), text)
            expect("100 Continue", ("< HTTP/1.1 100 Continue" in text) == ("Expect" in name), text)
    print("curl: keep-alive, HEAD, HTTP/1.0, uploads of known length and in chunks, with and without Expect: ok")


def wrk(port, connections):
    """Two seconds of load: no error and no answer that is not 2xx."""
    words = ["wrk", "-t1", f"-c{connections}", "-d2s", "--latency", f"http://127.0.0.1:{port}/json"]
    text = run(words)
    expect("no errors", "Socket errors" not in text and "Non-2xx" not in text, text)
    rate = re.search(r"Requests/sec:\s+([\d.]+)", text).group(1)
    late = re.search(r"99%\s+(\S+)", text).group(1)
    print(f"wrk: {connections} connections, {rate} requests a second, p99 {late}, no errors")


def h2load(port, connections):
    """HTTP/1.1 by h2load: every request succeeds."""
    count = 50_000
    text = run(["h2load", "--h1", f"-n{count}", f"-c{connections}", f"http://127.0.0.1:{port}/plaintext"])
    summary = re.search(r"requests: .*", text).group(0)
    expect("all to succeed", f"{count} succeeded, 0 failed, 0 errored" in summary, text)
    print(f"h2load --h1: {connections} connections, {summary}")


class Probe(threading.Thread):
    """An ordinary client that asks again and again, over TLS with a context, and notes how long each answer took."""

    def __init__(self, port, keep, tls=None):
        super().__init__(daemon=True)
        self.port, self.keep, self.tls = port, keep, tls
        self.spans, self.faults = [], []
        self._over = threading.Event()

    def run(self):
        connection = None
        while not self._over.wait(PAUSE_SECONDS):
            begun = time.monotonic()
            try:
                connection = connection or self._connect()
                connection.sendall(REQUEST)
                answer = b""
                while not answer.endswith(HELLO):
                    more = connection.recv(4096)
                    if not more:
                        raise ConnectionError(f"the end after {answer!r}")
                    answer += more
                if not answer.startswith(b"HTTP/1.1 200 "):
                    self.faults.append(repr(answer))
                self.spans.append(time.monotonic() - begun)
            except OSError as e:
                self.faults.append(repr(e))
                connection = None
            if connection and not self.keep:
                connection.close()
                connection = None
        if connection:
            connection.close()

    def _connect(self):
        s = socket.create_connection(("127.0.0.1", self.port), ASK_SECONDS)
        return self.tls.wrap_socket(s, server_hostname="localhost") if self.tls else s

    def end(self):
        self._over.set()
        self.join()


def connections_left(port):
    """Connections that the server holds at that port, as the kernel tells."""
    text = pathlib.Path("/proc/net/tcp").read_text()
    local = f"0100007F:{port:04X}"
    return sum(1 for line in text.splitlines() if line.split()[1] == local and line.split()[3] == "01")


def attack(name, arguments, server, secs, connections):
    """One mode of slowhttptest, with ordinary clients beside it."""
    url = f"http://127.0.0.1:{arguments.port}{TARGETS.get(name, '/')}"
    words = ["slowhttptest", *ATTACKS[name], "-c", str(connections), "-r", str(connections), "-l", str(secs),
             "-p", "3", "-v", "1", "-u", url]
    probes = [Probe(arguments.port, keep) for keep in (True, False)]
    before, _, _ = server.cpu()
    for probe in probes:
        probe.start()
    begun = time.monotonic()
    tool = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    held = left = 0
    try:
        while tool.poll() is None:
            left = connections_left(arguments.port)
            held = max(held, left)
            if time.monotonic() - begun > secs + TOOL_SECONDS:
                raise Failed(f"{name}: slowhttptest did not end")
            time.sleep(0.2)
    finally:
        tool.kill()
        text = tool.communicate()[0].decode(errors="replace")
        for probe in probes:
            probe.end()
    spent = server.cpu()[0] - before
    if not server.alive():
        raise Failed(f"{name}: the server has ended: {server.last_output()}")
    spans = sorted(span for probe in probes for span in probe.spans)
    faults = [fault for probe in probes for fault in probe.faults]
    expect(f"{name}: ordinary clients answered", len(spans) >= 10 and not faults, f"{len(spans)} answers, {faults[:3]}")
    said = re.findall(r"service available:\s*(YES|NO)", re.sub(r"\x1b\[[0-9;]*m", "", text))
    expect(f"{name}: slowhttptest to find the service available", said and "NO" not in said, text)
    p99 = spans[len(spans) * 99 // 100]
    print(f"slowhttptest, {name}: {connections} connections for {secs} s, most held {held}, at its end {left}; "
          f"{len(spans)} ordinary answers, median {statistics.median(spans) * 1000:.1f} ms, "
          f"p99 {p99 * 1000:.1f} ms, most {spans[-1] * 1000:.1f} ms; {spent:.2f} s of CPU")
    expect(f"{name}: each answer within {arguments.deadline:g} s", spans[-1] <= arguments.deadline, f"{spans[-1]:.3f} s")


def answers(port):
    """Whether the server is ready."""
    with socket.create_connection(("127.0.0.1", port), 1) as s:
        s.sendall(b"GET /plaintext HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        return s.recv(64).startswith(b"HTTP/1.1 200")


def parse_arguments():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--secs", type=int, default=8, help="of each attack (8)")
    ap.add_argument("--connections", type=int, default=800, help="of each attack (800)")
    ap.add_argument("--deadline", type=float, default=1.0, help="seconds in which an ordinary answer must come (1)")
    ap.add_argument("--only", choices=TOOLS, action="append", help="not all of the tools")
    ap.add_argument("--skip-missing", action="store_true", help="leave out, with a word, what is not installed")
    ap.add_argument("command", nargs="+", help="the server; $PORT is replaced by the port")
    return ap.parse_args()


def check(arguments, server, tools):
    arguments.port = server.port
    if "curl" in tools:
        curl(server.port)
    if "wrk" in tools:
        wrk(server.port, 64)
    if "h2load" in tools:
        h2load(server.port, 64)
    if "slowhttptest" in tools:
        for name in ATTACKS:
            attack(name, arguments, server, arguments.secs, arguments.connections)


def main():
    arguments = parse_arguments()
    servers.end_on_signals()
    tools = [tool for tool in TOOLS if not arguments.only or tool in arguments.only]
    missing = [tool for tool in tools if not shutil.which(tool)]
    if missing and not arguments.skip_missing:
        print(f"not installed: {', '.join(missing)}; see --help", file=sys.stderr)
        return 2
    for tool in missing:
        print(f"{tool}: SKIPPED, not installed")
        tools.remove(tool)
    try:
        descriptors = 2 * arguments.connections + OWN_DESCRIPTORS
        with servers.Server(arguments.command, descriptors=max(descriptors, 4096), ready=answers) as server:
            check(arguments, server, tools)
    except servers.ServerError as e:
        print(f"could not be run: {e}", file=sys.stderr)
        return 2
    except (Failed, subprocess.TimeoutExpired) as e:
        print(f"FAILED: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
