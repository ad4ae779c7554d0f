#!/usr/bin/env python3
"""A server of gRPC behind the gateway, for the runner of connectrpc.com/conformance: `behind.py RINGMAIN SERVER`.

What the runner wants is read here and passed on to the server, which has to speak HTTP/2 without TLS; a gateway is put before it, and
the runner is told the gateway's port in place of the server's. Calls of gRPC-Web are translated, so the server is asked by gRPC alone.
"""

import contextlib
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

GATEWAY = """
listen: 127.0.0.1:{port}
routes:
  calls:
    rules:
      - to: h2c://127.0.0.1:{upstream}
        grpc_web: true
"""
SECONDS = 20


def framed(stream):
    """The next message of the runner's: its length in four bytes, and it."""
    (length,) = struct.unpack(">I", stream.read(4))
    return stream.read(length)


def fields(message):
    """The fields of a message of Protobuf that has texts, bytes and whole numbers: {number: value}."""
    found, at = {}, 0

    def number():
        nonlocal at
        value, shift = 0, 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        tag = number()
        if tag & 7 == 0:
            found[tag >> 3] = number()
        elif tag & 7 == 2:
            length = number()
            found[tag >> 3] = message[at : at + length]
            at += length
        else:
            raise ValueError(f"expected fields of kinds 0 and 2, found {tag & 7}")
    return found


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def answer(port):
    """Where the runner's clients are to go: host and port."""
    host = b"127.0.0.1"
    message = b"\x0a" + varint(len(host)) + host + b"\x10" + varint(port)
    return struct.pack(">I", len(message)) + message


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def wait_for(port, running):
    until = time.monotonic() + SECONDS
    while time.monotonic() < until and running.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.02)
    raise SystemExit("behind.py: the gateway does not take connections")


def main():
    if len(sys.argv) != 3:
        raise SystemExit("usage: behind.py RINGMAIN SERVER")
    wanted = framed(sys.stdin.buffer)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ending:
        server = subprocess.Popen([sys.argv[2]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        ending.callback(end, server)
        server.stdin.write(struct.pack(">I", len(wanted)) + wanted)
        server.stdin.flush()
        upstream = fields(framed(server.stdout))[2]
        port = free_port()
        config = pathlib.Path(folder, "gateway.yaml")
        config.write_text(GATEWAY.format(port=port, upstream=upstream))
        gateway = subprocess.Popen([sys.argv[1], "run", str(config)], stdin=subprocess.DEVNULL, stdout=sys.stderr)
        ending.callback(end, gateway)
        wait_for(port, gateway)
        sys.stdout.buffer.write(answer(port))
        sys.stdout.buffer.flush()
        # The runner ends this by a signal.
        signal.pause()


def end(running):
    running.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        running.wait(5)
        return
    running.kill()
    running.wait()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    main()
