"""A WebSocket client of the Centrifuge protocol in JSON, and the calls of the HTTP API, for the cases of push. Standard library only."""

import base64
import hashlib
import hmac
import json
import os
import struct
import time

import rig
from rig import Failed

KEY = "field-key"
SECRET = "a secret of two and thirty bytes."


class Closed(Exception):
    """The connection has ended: `code` of its close frame, 1006 without one."""

    def __init__(self, code):
        super().__init__(f"closed with {code}")
        self.code = code


class Client:
    """A client on a WebSocket. Replies and pushes are in the order in which they arrive; pings are answered."""

    def __init__(self, port, connect=None, protobuf=False, path="/connection/websocket"):
        self.socket = rig.connect(port)
        protocol = "centrifuge-protobuf" if protobuf else "centrifuge-json"
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall((f"GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                             f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
                             f"Sec-WebSocket-Protocol: {protocol}\r\n\r\n").encode())
        head, self.buffer = rig.read_head(self.socket)
        if head is None or not head.startswith(b"HTTP/1.1 101"):
            raise Failed(f"no WebSocket: {head!r}")
        self.lines = []
        self.number = 0
        if connect is not None:
            self.connected = self.ask({"connect": connect})

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def frame(self, opcode, payload):
        mask = os.urandom(4)
        length = len(payload)
        head = bytes([0x80 | opcode])
        if length < 126:
            head += bytes([0x80 | length])
        elif length < 65536:
            head += bytes([0x80 | 126]) + struct.pack(">H", length)
        else:
            head += bytes([0x80 | 127]) + struct.pack(">Q", length)
        # A mask of zeros would do as well; the library's own masks are random.
        self.socket.sendall(head + mask + bytes(b ^ mask[i & 3] for i, b in enumerate(payload)))

    def send(self, *commands):
        """Sends commands (dicts or texts) in one message."""
        lines = [c if isinstance(c, str) else json.dumps(c) for c in commands]
        self.frame(1, "\n".join(lines).encode())

    def send_binary(self, payload):
        self.frame(2, payload)

    def read(self, count):
        while len(self.buffer) < count:
            try:
                piece = self.socket.recv(1 << 16)
            except ConnectionError:
                piece = b""
            if not piece:
                raise Closed(1006)
            self.buffer += piece
        piece, self.buffer = self.buffer[:count], self.buffer[count:]
        return piece

    def message(self):
        """Returns the next message's payload."""
        while True:
            first, second = self.read(2)
            length = second & 0x7F
            if length == 126:
                length = struct.unpack(">H", self.read(2))[0]
            elif length == 127:
                length = struct.unpack(">Q", self.read(8))[0]
            payload = self.read(length)
            opcode = first & 15
            if opcode == 8:
                raise Closed(struct.unpack(">H", payload[:2])[0] if len(payload) >= 2 else 1005)
            if opcode == 9:
                self.frame(10, payload)
            elif opcode in (1, 2):
                return payload

    def next(self, seconds=rig.GUARD_SECONDS):
        """Returns the next reply or push."""
        self.socket.settimeout(seconds)
        while True:
            if not self.lines:
                text = self.message().decode()
                self.lines = [json.loads(line) for line in text.split("\n") if line]
            line = self.lines.pop(0)
            if line:
                return line
            self.send("{}")

    def reply(self, number):
        """Returns the reply of this number; pushes and other replies before it are dropped."""
        deadline = time.monotonic() + rig.GUARD_SECONDS
        while time.monotonic() < deadline:
            line = self.next()
            if line.get("id") == number:
                return line
        raise Failed(f"no reply {number}")

    def ask(self, command):
        self.number += 1
        self.send({"id": self.number, **command})
        return self.reply(self.number)


def sign(claims):
    """Returns a token (HS256) as an application signs it."""

    def encode(raw):
        return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()

    message = encode(b'{"alg":"HS256","typ":"JWT"}') + "." + encode(json.dumps(claims).encode())
    return message + "." + encode(hmac.new(SECRET.encode(), message.encode(), hashlib.sha256).digest())


def api(port, method, body):
    """Calls a method of the HTTP API; returns its JSON."""
    raw = json.dumps(body).encode()
    reply = rig.get(port, f"/api/{method}", f"X-API-Key: {KEY}", "Content-Type: application/json", method="POST", body=raw)
    if reply.status != 200:
        raise Failed(f"/api/{method}: {reply.status} {reply.body!r}")
    return reply.json()


def publish(port, channel, data):
    found = api(port, "publish", {"channel": channel, "data": data})
    if "result" not in found:
        raise Failed(f"publish in {channel}: {found}")
    return found["result"]


def serve(r, push, port=None):
    """Starts the server with these keys of `push`; returns its port."""
    port = port or rig.free_port()
    config = {"listen": f"127.0.0.1:{port}",
              "push": {"anonymous": True, "api_key": KEY, **push},
              "routes": {"live": {"rules": [{"push": True}]}}}
    r.gateway(json.dumps(config), port=port, name="gateway.yaml")
    return port
