"""What a server of the HTTP comparison must answer: asked once, and judged.

The rules are TechEmpower's: status 200, `Server`, a `Date` that is valid and not older than
three seconds, the right `Content-Type` and body. A `Content-Length` is wanted besides, since
the load client counts bytes. Must not know of processes or of load.
"""

import email.utils
import json
import re
import socket
import time

DATE_SECONDS = 3.0
ASK_SECONDS = 2.0
HELLO = "Hello, World!"
# The form that RFC 9110 5.6.7 prefers; email.utils takes many others.
DATE = re.compile(r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT")


class WrongAnswer(Exception):
    """An answer came that breaks the rules; the text says what was expected and found."""


def ask(port, path):
    """One GET on a connection of its own. Returns (status line, {lower-case name: value}, body)."""
    with socket.create_connection(("127.0.0.1", port), ASK_SECONDS) as s:
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


def check(port, path, date_moves=True):
    """Asks and judges. OSError when nobody answers, WrongAnswer for what is wrong."""
    judge(path, *ask(port, path), time.time(), date_moves)


def responds(port, path):
    """Whether an HTTP server answers `path` at all; OSError while nobody listens."""
    return ask(port, path)[0].startswith("HTTP/1.1 200 ")
