#!/usr/bin/env python3
"""Holds idle HTTPS or secure WebSocket connections, and says what one of them costs the server in resident memory.

    bench/hold_tls.py --connections 4000
    bench/hold_tls.py --connections 4000 --websocket /ws

Each connection makes a full TLS 1.3 handshake with its certificate checked, asks once (or opens a WebSocket), and idles.
A tenth of them goes first, so that what a process needs once is not counted; the rest is judged: at most 10,240 bytes
each. At the end every connection is used once more.

Exit code: 0 all were answered and the memory is within its bar, 1 not, 2 could not be run.
"""

import argparse
import functools
import os
import socket
import sys
import tempfile
import time

import answers
import certificates
import server as servers

CONNECTION_BYTES = 10_240  # the bar on an idle TLS connection
IDLE_SECONDS = 1.0  # before memory is read: what is still given back counts as given back
UPGRADE = (
    "GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
# A ping of one byte, with a mask of zeros; its answer is three bytes.
PING, PONG = b"\x89\x81\0\0\0\0x", b"\x8a\x01x"


class Held:
    """One connection, opened and used once."""

    def __init__(self, port, tls, args):
        plain = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.path = args.websocket
        self.socket = tls.wrap_socket(plain, server_hostname="localhost")
        if self.path:
            self.socket.sendall(UPGRADE.format(path=self.path).encode())
            self.expect(b"HTTP/1.1 101", b"\r\n\r\n")
        else:
            self.use()

    def use(self):
        """Asks once, and waits for the answer."""
        if self.path:
            self.socket.sendall(PING)
            self.expect(PONG, PONG)
        else:
            self.socket.sendall(b"GET /json HTTP/1.1\r\nHost: localhost\r\n\r\n")
            self.expect(b"HTTP/1.1 200", b"}")

    def expect(self, first, last):
        """Reads until `last`; what comes must begin with `first`."""
        found = b""
        while not found.endswith(last):
            more = self.socket.recv(4096)
            if not more:
                raise answers.WrongAnswer(f"the connection ended after {found!r}")
            found += more
        if not found.startswith(first):
            raise answers.WrongAnswer(f"expected {first!r} first, found {found!r}")


def each(before, after, count):
    """Bytes of resident memory for each of `count` connections."""
    return (after["VmRSS"] - before["VmRSS"]) / count


def hold(args, server, tls):
    """Runs the steps and prints what was found. Returns whether the memory is within its bar."""
    first = max(args.connections // 10, 1)
    held = [Held(server.port, tls, args) for _ in range(first)]
    time.sleep(IDLE_SECONDS)
    before = server.memory()
    start = time.monotonic()
    held += [Held(server.port, tls, args) for _ in range(args.connections)]
    seconds = time.monotonic() - start
    time.sleep(IDLE_SECONDS)
    after = server.memory()
    for connection in held:
        connection.use()
    cost = each(before, after, args.connections)
    met = cost <= CONNECTION_BYTES
    print(f"connected   {len(held):,}, each used twice; {args.connections:,} of them in {seconds:.1f} s")
    print(f"VmRSS       {before['VmRSS'] / 2**20:.1f} MiB with {first:,}, {after['VmRSS'] / 2**20:.1f} MiB with all")
    print(f"bar         {cost:.0f} of {CONNECTION_BYTES} bytes a connection: {'met' if met else 'MISSED'}")
    return met


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--connections", type=int, default=4000)
    ap.add_argument("--websocket", metavar="PATH", help="open a WebSocket there, where nothing is asked")
    ap.add_argument("--ours", default=str(servers.TARGET / "dist" / "ringmain"), help="the binary")
    args = ap.parse_args()
    servers.end_on_signals()
    if not os.access(args.ours, os.X_OK):
        print(f"hold_tls.py: no binary at {args.ours}: cargo build --profile dist", file=sys.stderr)
        return 2
    try:
        with tempfile.TemporaryDirectory() as folder:
            made = certificates.make(folder)
            tls = answers.tls_context(made.ca)
            command = [args.ours, "run", "--workers", "1", "--listen", "127.0.0.1:$PORT", "--cert", str(made.cert),
                       "--key", str(made.key)]
            ready = functools.partial(answers.responds, path="/json", tls=tls)
            with servers.Server(command, ready=ready) as server:
                return 0 if hold(args, server, tls) else 1
    except (servers.ServerError, certificates.CertificateError, answers.WrongAnswer, OSError) as e:
        print(f"hold_tls.py: {e}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
