"""Servers, raw peers and small helpers for the cases of `cargo xtask suite field`.

Owns every process and socket that a case starts and ends them when the case is over. Knows no entry and no right value.
Standard library only; loopback only; every wait has a bound.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request

REPO = pathlib.Path(__file__).resolve().parent.parent.parent
GUARD_SECONDS = 20.0


class Failed(Exception):
    """The server did not behave as the entry requires; the text has the expected and the found value."""


class Skipped(Exception):
    """The machine lacks a tool that the case needs; the text names it."""


def expect(subject, wanted, found):
    """Raises Failed unless `found` equals `wanted`."""
    if found != wanted:
        raise Failed(f"{subject}: expected {wanted!r}, found {found!r}")


def check(condition, text):
    """Raises Failed with `text` unless the condition holds."""
    if not condition:
        raise Failed(text)


def need(command):
    """Returns the path of an installed command; raises Skipped without it."""
    path = shutil.which(command)
    if path is None:
        raise Skipped(f"needs `{command}`")
    return path


def until(subject, probe, seconds=GUARD_SECONDS, interval=0.02):
    """Returns the first true value of `probe()`; raises Failed after `seconds`. Connection errors count as false."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError):
            if value := probe():
                return value
        if time.monotonic() > deadline:
            raise Failed(f"{subject}: not within {seconds} s")
        time.sleep(interval)


RESERVED = []


def free_port():
    """Returns a port of 127.0.0.1 that no other socket is given as long as this process lives: it stays bound, but does not listen.

    Servers that set SO_REUSEADDR, as they all do, listen there all the same.
    """
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("127.0.0.1", 0))
    RESERVED.append(s)
    return s.getsockname()[1]


class Rig:
    """The resources of one case: a directory, processes, origins. Use as a context manager; `binary` is the program under test."""

    def __init__(self, binary):
        self.binary = str(binary)
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        self.stack.__enter__()
        self.dir = pathlib.Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="field-")))
        return self

    def __exit__(self, *error):
        return self.stack.__exit__(*error)

    def file(self, name, text):
        """Writes a file into the case's directory and returns its path."""
        path = self.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def replace(self, path, text):
        """Replaces a file by rename, as editors and configuration management do."""
        fresh = path.with_name(path.name + ".new")
        fresh.write_bytes(text if isinstance(text, bytes) else text.encode())
        os.rename(fresh, path)

    def run(self, *args, env=None, seconds=GUARD_SECONDS, stdin=None):
        """Runs the binary to its end; returns CompletedProcess with text output."""
        return subprocess.run([self.binary, *map(str, args)], capture_output=True, text=True, timeout=seconds,
                              cwd=self.dir, env={**os.environ, **(env or {})}, input=stdin)

    def start(self, *args, env=None, command=None):
        """Starts the binary (or `command`) with its output in a file; returns a Process that ends with the case."""
        process = Process([*([command] if command else [self.binary]), *map(str, args)], self.dir, env)
        self.stack.callback(process.end)
        return process

    def gateway(self, config, *flags, port=None, env=None, name="gateway.yaml"):
        """Writes a configuration and starts `ringmain run FILE` on it; with `port`, waits until that port accepts connections."""
        path = self.file(name, config)
        process = self.start("run", path, *flags, env=env)
        process.config = path
        if port is not None:
            process.wait_port(port)
        return process

    def origin(self, handle, port=None):
        """Starts a raw TCP origin: `handle(socket)` runs in a thread for each connection. Returns its port."""
        listener = socket.create_server(("127.0.0.1", port or 0), backlog=512)
        self.stack.callback(listener.close)
        over = threading.Event()
        self.stack.callback(over.set)

        def serve(s):
            with contextlib.suppress(OSError), s:
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                handle(s)

        def accept():
            while not over.is_set():
                try:
                    s, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(s,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        return listener.getsockname()[1]

    def http_origin(self, answer=lambda head, body: response(200, b"ok"), port=None):
        """Starts an origin that reads whole HTTP/1.1 requests and sends `answer(head, body)`, raw bytes, for each. Returns its port."""

        def handle(s):
            buffer = b""
            while True:
                head, buffer = read_head(s, buffer)
                if head is None:
                    return
                body, buffer = read_body(s, head, buffer)
                out = answer(head, body)
                if out is None:
                    return
                s.sendall(out)

        return self.origin(handle, port)


class Process:
    """A child process with its output in a file."""

    def __init__(self, argv, cwd, env=None):
        self.log = pathlib.Path(tempfile.mkstemp(prefix="log-", dir=cwd)[1])
        with open(self.log, "wb") as out:
            self.child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, cwd=cwd,
                                          env={**os.environ, **(env or {})})
        self.pid = self.child.pid

    def output(self):
        """Returns everything printed so far, as text."""
        return self.log.read_text(errors="replace")

    def wait_output(self, pattern, seconds=GUARD_SECONDS):
        """Waits until the output matches a regular expression; returns the match."""
        return until(f"output matching {pattern!r}", lambda: re.search(pattern, self.output()), seconds)

    def wait_port(self, port, seconds=GUARD_SECONDS):
        """Waits until 127.0.0.1:port accepts connections; fails at once if the process exits before."""

        def probe():
            if self.child.poll() is not None:
                raise Failed(f"the server exited with {self.child.returncode}:\n{self.output()[-2000:]}")
            with socket.create_connection(("127.0.0.1", port), 1):
                return True

        until(f"port {port} accepts", probe, seconds)

    def wait(self, seconds=GUARD_SECONDS):
        """Waits for the exit and returns its code."""
        return self.child.wait(seconds)

    def signal(self, number):
        """Sends a signal to the process."""
        self.child.send_signal(number)

    def rss(self):
        """Returns the resident memory, in bytes."""
        text = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) << 10

    def end(self):
        """Ends the process: SIGTERM, then SIGKILL after three seconds."""
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
            try:
                self.child.wait(3)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()


def response(status, body=b"", *fields):
    """Returns the bytes of an HTTP/1.1 response with Content-Length. `fields`: "Name: value" texts."""
    lines = [f"HTTP/1.1 {status} x", f"Content-Length: {len(body)}", *fields]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def read_head(s, buffer=b""):
    """Reads up to the end of an HTTP/1.1 head; returns (head with its empty line, rest), or (None, b"") at EOF."""
    while b"\r\n\r\n" not in buffer:
        piece = s.recv(65536)
        if not piece:
            return None, b""
        buffer += piece
    head, rest = buffer.split(b"\r\n\r\n", 1)
    return head + b"\r\n\r\n", rest


def field(head, name):
    """Returns the first value of a field of a raw head, or None."""
    found = re.search(rb"(?im)^" + re.escape(name.encode()) + rb":[ \t]*(.*?)[ \t]*\r$", head)
    return found[1].decode("latin-1") if found else None


def read_body(s, head, buffer=b"", until_close=False):
    """Reads a body framed by Content-Length or chunks (or by EOF); returns (content, rest)."""
    if (field(head, "transfer-encoding") or "").lower() == "chunked":
        return read_chunks(s, buffer)
    length = field(head, "content-length")
    if length is None and not until_close:
        return b"", buffer
    while length is None or len(buffer) < int(length):
        piece = s.recv(1 << 20)
        if not piece:
            return buffer, b""
        buffer += piece
    return buffer[: int(length)], buffer[int(length):]


def read_chunks(s, buffer):
    """Reads chunks to the last one and its trailer section; returns (content, rest)."""
    content = b""

    def more():
        nonlocal buffer
        piece = s.recv(1 << 20)
        if not piece:
            raise Failed(f"the connection ended within a chunked body, after {len(content)} bytes")
        buffer += piece

    while True:
        while b"\r\n" not in buffer:
            more()
        line, buffer = buffer.split(b"\r\n", 1)
        size = int(line.split(b";")[0], 16)
        if size == 0:
            while b"\r\n" not in buffer:
                more()
            while not buffer.startswith(b"\r\n"):
                while b"\r\n" not in buffer:
                    more()
                buffer = buffer.split(b"\r\n", 1)[1]
                while b"\r\n" not in buffer:
                    more()
            return content, buffer[2:]
        while len(buffer) < size + 2:
            more()
        content, buffer = content + buffer[:size], buffer[size + 2:]


class Answer:
    """A response as it arrived: `status`, raw `head`, `body`, and the seconds it took."""

    def __init__(self, head, body, seconds):
        self.head, self.body, self.seconds = head, body, seconds
        self.status = int(head.split(b" ", 2)[1])

    def field(self, name):
        return field(self.head, name)

    def json(self):
        return json.loads(self.body)


def connect(port, seconds=GUARD_SECONDS, receive_buffer=None):
    """Opens a TCP connection to 127.0.0.1:port."""
    s = socket.socket()
    if receive_buffer:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    s.settimeout(seconds)
    s.connect(("127.0.0.1", port))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def exchange(s, raw, method="GET"):
    """Sends raw bytes on a connection and reads one final response (interim ones are skipped)."""
    begun = time.monotonic()
    s.sendall(raw)
    head, rest = read_head(s)
    while head is not None and head.split(b" ", 2)[1].startswith(b"1") and not head.startswith(b"HTTP/1.1 101"):
        head, rest = read_head(s, rest)
    if head is None:
        raise Failed("the connection ended without a response")
    status = head.split(b" ", 2)[1]
    if method == "HEAD" or status in (b"204", b"304", b"101"):
        body = b""
    else:
        body, _ = read_body(s, head, rest, until_close=True)
    return Answer(head, body, time.monotonic() - begun)


def get(port, target="/", *fields, method="GET", body=b"", host="localhost"):
    """Sends one request on a connection of its own and returns the Answer. `fields`: "Name: value" texts."""
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", "Connection: close", *fields]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    with connect(port) as s:
        return exchange(s, "\r\n".join(lines).encode() + b"\r\n\r\n" + body, method)


def get_json(url):
    """Returns the JSON at a URL."""
    with urllib.request.urlopen(url, timeout=GUARD_SECONDS) as reply:
        return json.load(reply)
