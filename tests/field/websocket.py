"""A WebSocket client of the Centrifuge protocol in JSON, for cases of push and for the oracle (tests/centrifugo).

Knows no right value. Standard library only.
"""

import base64
import json
import os
import struct

import rig


class Closed(Exception):
    """The server has closed the socket: with this code, or None for no close frame."""

    def __init__(self, code):
        super().__init__(code)
        self.code = code


class Ws:
    """A WebSocket client of JSON messages."""

    def __init__(self, port, *fields, path="/connection/websocket", connect=True):
        self.socket = rig.connect(port)
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [f"GET {path} HTTP/1.1", "Host: localhost", "Connection: Upgrade", "Upgrade: websocket",
                 "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}", *fields]
        self.socket.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
        self.head, self.buffer = rig.read_head(self.socket)
        if self.head is None:
            raise Closed(None)
        self.status = int(self.head.split(b" ", 2)[1])
        # Lines that have arrived, and the last one that was returned.
        self.queue, self.text = [], ""
        if connect and self.status == 101:
            self.send({"id": 1, "connect": {}})
            self.connected = self.reply(1)

    def send(self, *messages, raw=None):
        data = raw if raw is not None else "\n".join(json.dumps(m) for m in messages).encode()
        length = len(data)
        head = bytes([0x81])
        if length < 126:
            head += bytes([0x80 | length])
        elif length < 65536:
            head += bytes([0xFE]) + struct.pack(">H", length)
        else:
            head += bytes([0xFF]) + struct.pack(">Q", length)
        self.socket.sendall(head + b"\0\0\0\0" + data)

    def _bytes(self, count):
        while len(self.buffer) < count:
            try:
                piece = self.socket.recv(1 << 20)
            except ConnectionError:
                raise Closed(None) from None
            if not piece:
                raise Closed(None)
            self.buffer += piece
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    def message(self):
        """Returns the next message; answers pings of the protocol."""
        while not self.queue:
            first, length = self._bytes(2)
            if length == 126:
                length = struct.unpack(">H", self._bytes(2))[0]
            elif length == 127:
                length = struct.unpack(">Q", self._bytes(8))[0]
            data = self._bytes(length)
            if first & 15 == 8:
                raise Closed(struct.unpack(">H", data[:2])[0] if data else None)
            if first & 15 in (1, 2):
                self.queue += [line for line in data.decode().split("\n") if line]
        self.text = self.queue.pop(0)
        message = json.loads(self.text)
        if message == {}:
            self.send({})
            return self.message()
        return message

    def reply(self, number):
        """Returns the reply of this number; pushes before it are dropped."""
        while True:
            message = self.message()
            if message.get("id") == number:
                return message

    def code(self):
        """Reads until the close and returns its code."""
        try:
            while True:
                self.message()
        except Closed as closed:
            return closed.code
