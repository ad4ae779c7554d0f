"""What a server of the HTTP, HTTPS and WebSocket comparisons must answer: asked once, and judged.

The rules are TechEmpower's: status 200, `Server`, a `Date` that is valid and not older than
three seconds, the right `Content-Type` and body. A `Content-Length` is wanted besides, since
the load client counts bytes. Must not know of processes or of load.
"""

import email.utils
import json
import os
import re
import socket
import ssl
import struct
import time

DATE_SECONDS = 3.0
ASK_SECONDS = 2.0
HELLO = "Hello, World!"
# The form that RFC 9110 5.6.7 prefers; email.utils takes many others.
DATE = re.compile(r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT")


class WrongAnswer(Exception):
    """An answer came that breaks the rules; the text says what was expected and found."""


def tls_context(ca):
    """For `ask`: TLS 1.3, http/1.1, a certificate for localhost by the authority in the PEM file `ca`."""
    context = ssl.create_default_context(cafile=str(ca))
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["http/1.1"])
    return context


def _connect(port, tls):
    s = socket.create_connection(("127.0.0.1", port), ASK_SECONDS)
    if not tls:
        return s
    try:
        return tls.wrap_socket(s, server_hostname="localhost")
    except BaseException:
        s.close()
        raise


def ask(port, path, tls=None):
    """One GET on a connection of its own, over TLS with a context. Returns (status line, {lower-case name: value}, body)."""
    with _connect(port, tls) as s:
        s.settimeout(ASK_SECONDS)
        s.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\nAccept: */*\r\n\r\n".encode())
        data = b""
        while b"\r\n\r\n" not in data:
            data += _more(s)
        head, _, body = data.partition(b"\r\n\r\n")
        status, *lines = head.decode("latin-1").split("\r\n")
        fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = fields.get("content-length", "")
        if not length.isdigit():
            raise WrongAnswer(f"{path}: expected a Content-Length, found {fields}")
        while len(body) < int(length):
            body += _more(s)
    return status, fields, body


def _more(s):
    data = s.recv(65536)
    if not data:
        raise ConnectionError("the server closed before the answer was whole")
    return data


def judge(path, status, fields, body, now, date_moves=True):
    """Raises WrongAnswer unless this is the right answer to a GET of `path` at `now` (Unix time)."""

    def expect(what, right, found):
        if not right:
            raise WrongAnswer(f"{path}: expected {what}, found {found!r}")

    expect("status 200", status.startswith("HTTP/1.1 200 "), status)
    expect("a Server field", fields.get("server"), fields)
    date = fields.get("date", "")
    expect("a Date such as Sun, 06 Nov 1994 08:49:37 GMT", DATE.fullmatch(date), date)
    age = now - email.utils.parsedate_to_datetime(date).timestamp()
    # A date has whole seconds, and the server may have read its clock a little earlier.
    expect(f"a Date within {DATE_SECONDS:g} s", not date_moves or -1 <= age <= DATE_SECONDS + 1, date)
    kind = {"/json": "application/json", "/plaintext": "text/plain"}[path]
    expect(f"Content-Type {kind}", fields.get("content-type", "").partition(";")[0] == kind, fields)
    if path == "/json":
        try:
            found = json.loads(body)
        except ValueError:
            found = body
        expect('the object {"message": "Hello, World!"}', found == {"message": HELLO}, body)
    else:
        expect(HELLO, body == HELLO.encode(), body)


def check(port, path, date_moves=True, tls=None):
    """Asks and judges. OSError when nobody answers, WrongAnswer for what is wrong."""
    judge(path, *ask(port, path, tls), time.time(), date_moves)


def responds(port, path, tls=None):
    """Whether an HTTP server answers `path` at all; OSError while nobody listens."""
    return ask(port, path, tls)[0].startswith("HTTP/1.1 200 ")


def check_websocket(port, path):
    """Upgrades and has a short text and a long binary message echoed. OSError, or WrongAnswer for what is wrong."""
    with socket.create_connection(("127.0.0.1", port), ASK_SECONDS) as s:
        s.settimeout(ASK_SECONDS)
        # RFC 6455 1.3: the key of the example and what answers it.
        s.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                  "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())
        data = b""
        while b"\r\n\r\n" not in data:
            data += _more(s)
        head, _, data = data.partition(b"\r\n\r\n")
        accepted = re.search(rb"(?m)^(?i:sec-websocket-accept): s3pPLMBiTxaQ9kYGzzhZRbK\+xOo=\r?$", head)
        if not head.startswith(b"HTTP/1.1 101 ") or not accepted:
            raise WrongAnswer(f"{path}: expected 101 and the right Sec-WebSocket-Accept, found {head!r}")
        for opcode, payload in ((1, b"ready?"), (2, os.urandom(1000))):
            wanted = _frame(opcode, payload, b"")
            s.sendall(_frame(opcode, payload, os.urandom(4)))
            while len(data) < len(wanted):
                data += _more(s)
            if data != wanted:
                raise WrongAnswer(f"{path}: expected the message of {len(payload)} bytes back, found {data[:40]!r}")
            data = b""


def _frame(opcode, payload, key):
    """One whole message as a frame, masked if there is a key."""
    size, mask = len(payload), 0x80 if key else 0
    length = bytes([mask | size]) if size < 126 else bytes([mask | 126]) + struct.pack(">H", size)
    masked = bytes(b ^ key[i % 4] for i, b in enumerate(payload)) if key else payload
    return bytes([0x80 | opcode]) + length + key + masked
