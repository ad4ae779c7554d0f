"""A TCP relay between two nodes, whose link a case cuts, suspends or slows down. Standard library only; loopback only."""

import contextlib
import socket
import threading
import time

PIECE_BYTES = 16 << 10
CHECK_SECONDS = 0.02


class Relay:
    """Forwards connections to a port.

    `cut()` closes them and refuses new ones; `suspend()` forwards nothing and closes nothing, like a network that drops packets;
    `restore()` ends both. `rate`: bytes a second in each direction of all connections, or None.
    """

    def __init__(self, target, rate=None):
        self.target, self.rate = target, rate
        self.is_cut = self.is_suspended = self.is_over = False
        self.connections, self.lock, self.forwarded = set(), threading.Lock(), [0, 0]
        self.free_at = [0.0, 0.0]
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while not self.is_over:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            if self.is_cut or self.is_over:
                near.close()
                continue
            threading.Thread(target=self.serve, args=(near,), daemon=True).start()

    def serve(self, near):
        while self.is_suspended and not self.is_over:
            time.sleep(CHECK_SECONDS)
        try:
            far = socket.create_connection(("127.0.0.1", self.target), 5)
        except OSError:
            return near.close()
        for end in (near, far):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.rate:
                # A link has no megabytes of buffers of its own.
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 << 10)
                end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
            end.settimeout(CHECK_SECONDS)
        pair = (near, far)
        with self.lock:
            self.connections.add(pair)
        threading.Thread(target=self.forward, args=(pair, near, far, 0), daemon=True).start()
        self.forward(pair, far, near, 1)

    def forward(self, pair, source, sink, direction):
        with contextlib.suppress(OSError):
            while not self.is_over:
                if self.is_suspended:
                    time.sleep(CHECK_SECONDS)
                    continue
                try:
                    data = source.recv(PIECE_BYTES)
                except (socket.timeout, TimeoutError):
                    continue
                if not data:
                    break
                self.pace(len(data), direction)
                while self.is_suspended and not self.is_over:
                    time.sleep(CHECK_SECONDS)
                while data:
                    try:
                        data = data[sink.send(data):]
                    except (socket.timeout, TimeoutError):
                        continue
        self.drop(pair)

    def pace(self, count, direction):
        with self.lock:
            self.forwarded[direction] += count
            if not self.rate:
                return
            begun = max(self.free_at[direction], time.monotonic())
            self.free_at[direction] = begun + count / self.rate
        time.sleep(max(self.free_at[direction] - time.monotonic(), 0))

    def drop(self, pair):
        with self.lock:
            self.connections.discard(pair)
        for end in pair:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def cut(self):
        self.is_cut = True
        for pair in list(self.connections):
            self.drop(pair)

    def suspend(self):
        self.is_suspended = True

    def restore(self):
        self.is_cut = self.is_suspended = False

    def end(self):
        self.is_over = True
        self.listener.close()
        for pair in list(self.connections):
            self.drop(pair)
