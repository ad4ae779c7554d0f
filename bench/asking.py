"""HTTP/1.1 as a script of requests speaks it: connections over TCP, TLS and with a PROXY protocol header; answers as they came.

Python's own client is out of reach (bench/http.py has its name), and follows, joins and repairs too much for a test. Must
not know what a right answer is. Nothing waits longer than SECONDS.
"""

import collections
import json
import os
import socket
import ssl
import struct

SECONDS = 30.0
MOST_BYTES = 64 << 20


class Broken(Exception):
    """The connection ended, or said what is no HTTP; the text says what was found."""


class Answer(collections.namedtuple("Answer", "status fields body")):
    """`fields`: [(lower-case name, value)] in their order; `body`: bytes."""

    def field(self, name):
        """The values of a field with commas between them; None if there is none."""
        values = [value for found, value in self.fields if found == name]
        return ", ".join(values) if values else None

    def json(self):
        try:
            return json.loads(self.body)
        except ValueError as e:
            raise Broken(f"expected JSON, found {self.status} {self.body[:200]!r}") from e


def trusting(authority, client=None):
    """TLS that takes the authority in a PEM file for right, and shows the certificate of `client`, (chain, key), if there is one."""
    context = ssl.create_default_context(cafile=str(authority))
    context.set_alpn_protocols(["http/1.1"])
    if client:
        context.load_cert_chain(*map(str, client))
    return context


class Connection:
    """One connection. `tls`: (context, server name). `first`: bytes before all else, such as a PROXY protocol header."""

    def __init__(self, port, tls=None, first=b""):
        self.kept = b""
        self.socket = socket.create_connection(("127.0.0.1", port), SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if first:
                self.socket.sendall(first)
            if tls:
                self.socket = tls[0].wrap_socket(self.socket, server_hostname=tls[1])
        except BaseException:
            self.socket.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def ask(self, method, target, host, headers=(), body=None):
        """One request and its answer. `headers`: [(name, value)]; `body`: bytes, or an iterable of chunks."""
        self.begin(method, target, host, headers, body)
        return self.answer(method)

    def begin(self, method, target, host, headers=(), body=None):
        """Sends a request, all of it. A server that answers before it has the body may close: that is no error here."""
        lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", *(f"{name}: {value}" for name, value in headers)]
        if isinstance(body, bytes):
            lines.append(f"Content-Length: {len(body)}")
        elif body is not None:
            lines.append("Transfer-Encoding: chunked")
        self.send("\r\n".join([*lines, "\r\n"]).encode("latin-1"))
        try:
            if isinstance(body, bytes):
                self.send(body)
            elif body is not None:
                for chunk in body:
                    self.send(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                self.send(b"0\r\n\r\n")
        except OSError:
            pass  # what it has answered is there to be read, or what is read says how it ended

    def answer(self, method="GET"):
        """The next final answer; interim ones are passed over."""
        while True:
            status, fields = self.head()
            if status == 101 or status >= 200:
                break
        if method == "HEAD" or status in (101, 204, 304):
            return Answer(status, fields, b"")
        return Answer(status, fields, self._body(dict(fields)))

    def head(self):
        """(status, fields) of the next answer."""
        lines = self.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        version, _, rest = lines[0].partition(" ")
        if version not in ("HTTP/1.1", "HTTP/1.0") or not rest[:3].isdigit():
            raise Broken(f"expected an answer of HTTP/1.1, found {lines[0]!r}")
        fields = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines[1:])]
        return int(rest[:3]), fields

    def _body(self, fields):
        if fields.get("transfer-encoding", "").lower() == "chunked":
            body = b""
            while size := int(self.until(b"\r\n").partition(b";")[0], 16):
                body += self.take(size)
                self.take(2)
            while self.until(b"\r\n"):
                pass  # trailers
            return body
        if "content-length" in fields:
            return self.take(int(fields["content-length"]))
        return self.rest()

    def until(self, end):
        """What comes before `end`, which is dropped."""
        while end not in self.kept:
            self._more()
        found, _, self.kept = self.kept.partition(end)
        return found

    def take(self, count):
        """So many bytes."""
        while len(self.kept) < count:
            self._more()
        found, self.kept = self.kept[:count], self.kept[count:]
        return found

    def rest(self):
        """All that comes before the connection ends."""
        try:
            while True:
                self._more()
        except Broken:
            found, self.kept = self.kept, b""
            return found

    def _more(self):
        try:
            data = self.socket.recv(1 << 16)
        except OSError as e:
            raise Broken(f"the connection broke: {e}; before it came {self.kept[-200:]!r}") from e
        if not data:
            raise Broken(f"the connection ended; before it came {self.kept[-200:]!r}")
        self.kept += data
        if len(self.kept) > MOST_BYTES:
            raise Broken(f"more than {MOST_BYTES} bytes")

    def upgrade(self, target, host, headers=()):
        """Opens a WebSocket; returns the answer to the request for it."""
        # RFC 6455 1.3: the key of the example and what answers it.
        return self.ask("GET", target, host, [("Upgrade", "websocket"), ("Connection", "Upgrade"), *headers,
                                              ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
                                              ("Sec-WebSocket-Version", "13")])

    def send_message(self, payload, opcode=1):
        """Sends a WebSocket message of at most 65,535 bytes as one frame."""
        size, key = len(payload), os.urandom(4)
        length = bytes([0x80 | size]) if size < 126 else bytes([0x80 | 126]) + struct.pack(">H", size)
        masked = bytes(byte ^ key[at % 4] for at, byte in enumerate(payload))
        self.send(bytes([0x80 | opcode]) + length + key + masked)

    def message(self):
        """The next message of a WebSocket, which must be one frame: (opcode, payload)."""
        first, size = self.take(2)
        if size == 126:
            size, = struct.unpack(">H", self.take(2))
        elif size > 126 or not first & 0x80:
            raise Broken(f"expected a whole unmasked message below 65,536 bytes, found {bytes([first, size])!r}")
        return first & 0x0F, self.take(size)


def ask(port, method, target, host, headers=(), body=None, tls=None, first=b""):
    """One request on a connection of its own."""
    with Connection(port, tls, first) as connection:
        return connection.ask(method, target, host, headers, body)
