"""Cases of the engine's entries: memory of slow readers and of bodies, turns of the loop, slow and silent clients."""

import contextlib
import re
import selectors
import socket
import struct
import threading
import time

from rig import Failed, check, connect, expect, field, free_port, get, read_body, read_head, response, until
from run import case

MIB = 1 << 20


class Pusher:
    """An origin in one thread: answers each request with `size` bytes, as fast as they are taken."""

    def __init__(self, rig, size, send_buffer=None):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.listener.setblocking(False)
        self.port = self.listener.getsockname()[1]
        self.body = memoryview(bytes(size))
        self.head = f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n".encode()
        self.send_buffer = send_buffer
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()
        rig.stack.callback(self.end)

    def end(self):
        self.over.set()
        self.thread.join(3)

    def serve(self):
        poll = selectors.DefaultSelector()
        poll.register(self.listener, selectors.EVENT_READ, None)
        while not self.over.is_set():
            for key, _ in poll.select(0.1):
                if key.data is None:
                    with contextlib.suppress(BlockingIOError):
                        while True:
                            s, _ = self.listener.accept()
                            s.setblocking(False)
                            if self.send_buffer:
                                s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.send_buffer)
                            poll.register(s, selectors.EVENT_READ, [0])
                    continue
                s, state = key.fileobj, key.data
                try:
                    if state[0] == 0:
                        if not s.recv(65536):
                            raise OSError("closed")
                        s.send(self.head)
                        poll.modify(s, selectors.EVENT_WRITE, state)
                    state[0] += s.send(self.body[state[0]:state[0] + 4 * MIB])
                except BlockingIOError:
                    pass
                except OSError:
                    poll.unregister(s)
                    s.close()
        for key in list(poll.get_map().values()):
            key.fileobj.close()


def steady(process, seconds=20.0):
    """Returns the resident memory once it has not grown by more than 1 % within 1.2 s."""
    deadline = time.monotonic() + seconds
    seen = [process.rss()]
    while time.monotonic() < deadline:
        time.sleep(0.3)
        seen.append(process.rss())
        if len(seen) > 4 and seen[-1] <= seen[-5] * 1.01:
            break
    return max(seen)


def stalled(rig, engine, clients, send_buffer=None):
    """Returns resident bytes: of the idle gateway, with stalled downloads, and after their clients have left."""
    origin = Pusher(rig, 50 * MIB, send_buffer)
    port = free_port()
    server = rig.gateway(f"""
listen: 127.0.0.1:{port}
to: http://127.0.0.1:{origin.port}
""", "--engine", engine, "--workers", "1", port=port, name=f"{engine}.yaml")
    get_idle = server.rss()
    readers = []
    for _ in range(clients):
        s = connect(port, receive_buffer=4096)
        s.sendall(b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n")
        readers.append(s)
    full = steady(server)
    for s in readers:
        s.close()
    deadline = time.monotonic() + 8
    after = server.rss()
    while time.monotonic() < deadline and after > get_idle + 24 * MIB:
        time.sleep(0.2)
        after = server.rss()
    origin.end()
    server.end()
    return get_idle, full, after


@case("G9", "memory of 200 stalled downloads: io_uring within twice of epoll's, given back", alone=True)
def stalled_downloads(rig):
    _, epoll, _ = stalled(rig, "epoll", 200)
    idle, uring, after = stalled(rig, "uring", 200)
    text = f"idle {idle // MIB} MiB, epoll {epoll // MIB} MiB, uring {uring // MIB} MiB, after {after // MIB} MiB"
    check(uring <= 2 * epoll, f"expected at most twice epoll's memory, found {text}")
    check(after <= idle + 24 * MIB, f"expected memory given back, found {text}")


@case("G9", "2,000 stalled downloads stay below the limit of the process", alone=True)
def many_stalled_downloads(rig):
    # engine::limits::HELD_BYTES, doubled for allocators and what a connection holds beyond its mark.
    bound = 256 * MIB
    idle, full, after = stalled(rig, "uring", 2000, send_buffer=65536)
    text = f"idle {idle // MIB} MiB, with 2,000 clients {full // MIB} MiB, after {after // MIB} MiB"
    check(full <= bound, f"expected at most {bound // MIB} MiB, found {text}")
    check(after <= idle + 40 * MIB, f"expected memory given back, found {text}")


@case("A19", "what one slow reader of an HTTP/1.1 upstream makes the gateway hold", alone=True)
def one_slow_reader(rig):
    clients = 100
    idle, full, _ = stalled(rig, "uring", clients)
    each = (full - idle) // clients
    # 128 KiB by the documents, and as much again for the receipt under way, buffers that grew, and the records.
    check(each <= 384 << 10, f"expected at most 384 KiB a stalled download, found {each >> 10} KiB")


# HTTP/2, as much of it as these cases need.

DATA, HEADERS, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 4, 6, 7, 8, 9
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind, flags, stream, payload=b""):
    """Returns the bytes of a frame."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name, value):
    """Returns a field of a header block, spelled out."""
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def request_block(method, path, *fields):
    """Returns a header block."""
    pseudo = ((b":method", method), (b":scheme", b"http"), (b":authority", b"a"), (b":path", path))
    return b"".join(literal(name, value) for name, value in (*pseudo, *fields))


class Http2:
    """A client's connection; a thread reads frames and keeps count of windows, statuses and the end."""

    def __init__(self, port):
        self.s = connect(port, 30)
        self.s.sendall(PREFACE + frame(SETTINGS, 0, 0))
        self.lock = threading.Condition()
        self.window, self.windows, self.initial = 65535, {}, 65535
        self.headers, self.ended_at, self.settled = {}, None, False
        threading.Thread(target=self.read, daemon=True).start()
        with self.lock:
            check(self.lock.wait_for(lambda: self.settled, 10), "no SETTINGS within 10 s")

    def read(self):
        buffer = b""
        with contextlib.suppress(OSError):
            while True:
                while len(buffer) < 9 or len(buffer) < 9 + int.from_bytes(buffer[:3], "big"):
                    piece = self.s.recv(65536)
                    if not piece:
                        raise OSError("closed")
                    buffer += piece
                size, kind, flags = int.from_bytes(buffer[:3], "big"), buffer[3], buffer[4]
                stream = int.from_bytes(buffer[5:9], "big") & 0x7FFFFFFF
                payload, buffer = buffer[9:9 + size], buffer[9 + size:]
                self.heard(kind, flags, stream, payload)
        with self.lock:
            self.ended_at = self.ended_at or time.monotonic()
            self.lock.notify_all()

    def heard(self, kind, flags, stream, payload):
        with self.lock:
            if kind == SETTINGS and not flags & 1:
                for at in range(0, len(payload), 6):
                    name, value = struct.unpack(">HI", payload[at:at + 6])
                    if name == 4:
                        self.initial = value
                self.s.sendall(frame(SETTINGS, 1, 0))
                self.settled = True
            elif kind == WINDOW_UPDATE:
                step = int.from_bytes(payload, "big")
                if stream:
                    self.windows[stream] = self.windows.get(stream, 0) + step
                else:
                    self.window += step
            elif kind == HEADERS:
                self.headers[stream] = payload
            elif kind == GOAWAY:
                self.ended_at = self.ended_at or time.monotonic()
            self.lock.notify_all()

    def send(self, stream, body, end):
        """Sends a body within the windows; gives up once the stream is answered or the connection ended."""
        sent = 0
        while sent < len(body):
            with self.lock:
                def room():
                    return min(16384, self.window, self.initial + self.windows.get(stream, 0))
                if not self.lock.wait_for(lambda: room() > 0 or stream in self.headers or self.ended_at, 10):
                    raise Failed("no window within 10 s")
                if stream in self.headers or self.ended_at:
                    return
                size = min(room(), len(body) - sent)
                self.window -= size
                self.windows[stream] = self.windows.get(stream, 0) - size
            last = sent + size == len(body)
            self.s.sendall(frame(DATA, 1 if end and last else 0, stream, bytes(body[sent:sent + size])))
            sent += size

    def ends_within(self, seconds):
        """Waits for GOAWAY or the end; returns whether it came."""
        with self.lock:
            return self.lock.wait_for(lambda: self.ended_at is not None, seconds)


def serve(rig, *flags):
    """Starts the binary's own server; returns it and its port."""
    port = free_port()
    server = rig.start("run", "--listen", f"127.0.0.1:{port}", "--workers", "1", *flags)
    server.wait_port(port)
    return server, port


@case("A7", "bodies that are collected on HTTP/2 streams have a budget, given back", alone=True)
def collected_bodies(rig):
    server, port = serve(rig)
    idle = server.rss()
    body = memoryview(bytes(960_000))
    connections = [Http2(port) for _ in range(2)]
    for http2 in connections:
        for number in range(240):
            stream = 2 * number + 1
            length = str(len(body)).encode()
            block = request_block(b"POST", b"/echo", (b"content-length", length))
            http2.s.sendall(frame(HEADERS, 4, stream, block))
            http2.send(stream, body[:-1], end=False)
    full = server.rss()
    refused = sum(len(http2.headers) for http2 in connections)
    check(full - idle <= 96 * MIB, f"expected at most 96 MiB, found {(full - idle) // MIB} MiB more than idle")
    check(refused > 300, f"expected most of 480 streams refused, found {refused}")
    answer = get(port, "/echo", method="POST", body=b"still served")
    expect("a small body meanwhile", (200, b"still served"), (answer.status, answer.body))
    for http2 in connections:
        http2.s.close()
    deadline = time.monotonic() + 10
    while server.rss() > idle + 24 * MIB:
        check(time.monotonic() < deadline, f"expected memory given back, found {(server.rss() - idle) // MIB} MiB more than idle")
        time.sleep(0.2)


@case("A7", "bodies that are collected on HTTP/1.1 connections have the same budget", alone=True)
def collected_bodies_http1(rig):
    server, port = serve(rig)
    idle = server.rss()
    head = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 960000\r\n\r\n"
    sockets = []
    for _ in range(200):
        s = connect(port)
        s.setblocking(False)
        sockets.append([s, memoryview(head + bytes(959_999)), 0])
    deadline = time.monotonic() + 20
    while any(state[2] < len(state[1]) for state in sockets) and time.monotonic() < deadline:
        moved = False
        for state in sockets:
            with contextlib.suppress(BlockingIOError):
                try:
                    sent = state[0].send(state[1][state[2]:])
                except ConnectionError:
                    sent = len(state[1]) - state[2]
                state[2] += sent
                moved |= sent > 0
        if not moved:
            time.sleep(0.01)
    full = steady(server, 5)
    # The budget of 64 MiB, twice: a body that grows is copied, and the allocator has not returned the smaller buffers yet.
    check(full - idle <= 128 * MIB, f"expected at most 128 MiB, found {(full - idle) // MIB} MiB more than idle")
    for state in sockets:
        state[0].close()
    until("memory given back", lambda: server.rss() <= idle + 24 * MIB, 10)


@case("A16", "a head in parts ends with header_timeout, with and without another stream", shortened="header_timeout 1 s")
def head_in_parts(rig):
    _, port = serve(rig, "--header-timeout", "1s")
    for busy in (False, True):
        http2 = Http2(port)
        first = 1
        if busy:
            # A body that is uploaded at a rate that is enough.
            block = request_block(b"POST", b"/echo", (b"content-length", b"900000"))
            http2.s.sendall(frame(HEADERS, 4, 1, block) + frame(DATA, 0, 1, bytes(1000)))
            first = 3
        begun = time.monotonic()
        http2.s.sendall(frame(HEADERS, 1, first, request_block(b"GET", b"/")))
        number = 0
        while not http2.ends_within(0.8):
            check(time.monotonic() < begun + 5.5, f"expected an end after about 1 s, found none within 5.5 s (busy: {busy})")
            number += 1
            with contextlib.suppress(OSError):
                http2.s.sendall(frame(CONTINUATION, 0, first, literal(b"x-%d" % number, b"y")))
        check(time.monotonic() >= begun + 0.7, "the head's time was up too early")


@case("A16", "a client that only pings ends with idle_timeout", shortened="idle_timeout 2 s")
def only_pings(rig):
    _, port = serve(rig, "--idle-timeout", "2s")
    http2 = Http2(port)
    begun = time.monotonic()
    http2.s.sendall(frame(HEADERS, 5, 1, request_block(b"GET", b"/")))
    while not http2.ends_within(0.3):
        check(time.monotonic() < begun + 7, "expected an end after about 2 s, found none within 7 s")
        with contextlib.suppress(OSError):
            http2.s.sendall(frame(PING, 0, 0, b"12345678"))
    check(time.monotonic() >= begun + 1.5, "idle_timeout was up too early")


@case("H9", "a reader that pauses is cut by one figure, at the server and at the gateway")
def paused_reader(rig):
    figure = 20.0
    origin = Pusher(rig, 50 * MIB)
    gateway = free_port()
    rig.gateway(f"""
listen: 127.0.0.1:{gateway}
to: http://127.0.0.1:{origin.port}
""", port=gateway)
    files = free_port()
    rig.file("site/big.bin", bytes(50 * MIB))
    rig.gateway(f"""
listen: 127.0.0.1:{files}
routes:
  files: {{rules: [{{match: /, files: {rig.dir}/site}}]}}
""", port=files, name="files.yaml")
    results = {}

    def read(name, port):
        s = connect(port, 60, receive_buffer=65536)
        s.sendall(b"GET /big.bin HTTP/1.1\r\nHost: a\r\n\r\n")
        got = 0
        while got < 10 * MIB:
            got += len(s.recv(65536))
        begun = time.monotonic()
        # Errors are reported without reading: a reset sets SO_ERROR.
        while time.monotonic() < begun + 40:
            if s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                break
            time.sleep(0.1)
        results[name] = time.monotonic() - begun

    readers = [threading.Thread(target=read, args=pair) for pair in (("gateway", gateway), ("files", files))]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    for name, seconds in results.items():
        check(figure - 1.5 <= seconds <= figure + 4, f"{name}: expected the cut after {figure:.0f} s, found {seconds:.1f} s")
