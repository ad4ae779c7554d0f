"""Cases of request bodies through the gateway: live streams, slow uploads, early responses, and what one client may hold.

HTTP/2 is spoken by hand (RFC 9113, HPACK literals without Huffman), for the clients and origins here keep to no good manners.
"""

import contextlib
import json
import re
import socket
import struct
import threading
import time

from rig import check, connect, expect, field, get, read_head, response, until, free_port
from run import case

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST, SETTINGS, PING, GOAWAY, WINDOW = 0, 1, 3, 4, 6, 7, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def fields(*pairs):
    """Returns a header block of literal fields."""
    out = b""
    for name, value in pairs:
        name, value = name.encode(), value.encode()
        out += b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value
    return out


class Frames:
    """One HTTP/2 connection, either side: `next()` returns (kind, flags, stream, payload); PING and SETTINGS are answered."""

    def __init__(self, s, client):
        self.s, self.buffer, self.lock = s, b"", threading.Lock()
        if client:
            self.send(PREFACE + frame(SETTINGS, 0, 0))
        else:
            self.take(len(PREFACE))
            self.send(frame(SETTINGS, 0, 0))

    def send(self, data):
        with self.lock:
            self.s.sendall(data)

    def take(self, count):
        while len(self.buffer) < count:
            piece = self.s.recv(65536)
            if not piece:
                raise ConnectionError("the connection ended")
            self.buffer += piece
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    def next(self):
        while True:
            head = self.take(9)
            kind, flags, stream = head[3], head[4], struct.unpack(">I", head[5:])[0]
            payload = self.take(struct.unpack(">I", b"\0" + head[:3])[0])
            if kind == SETTINGS and not flags & ACK:
                self.send(frame(SETTINGS, ACK, 0))
            elif kind == PING and not flags & ACK:
                self.send(frame(PING, ACK, 0, payload))
            elif kind not in (SETTINGS, PING, WINDOW):
                return kind, flags, stream, payload

    def request(self, stream, path, *pairs, method="POST", flags=END_HEADERS):
        block = fields((":method", method), (":scheme", "http"), (":path", path), (":authority", "localhost"), *pairs)
        self.send(frame(HEADERS, flags, stream, block))


def echo_frames(s):
    """An HTTP/2 origin that returns each DATA frame as it arrives, and ends a stream with the client's end."""
    wire = Frames(s, client=False)
    while True:
        kind, flags, stream, payload = wire.next()
        if kind == HEADERS:
            wire.send(frame(HEADERS, END_HEADERS, stream, b"\x88" + fields(("content-type", "application/grpc"))))
        elif kind == DATA:
            wire.send(frame(WINDOW, 0, 0, struct.pack(">I", max(len(payload), 1))) + frame(DATA, 0, stream, payload))
        if kind in (HEADERS, DATA) and flags & END_STREAM:
            wire.send(frame(HEADERS, END_HEADERS | END_STREAM, stream, fields(("grpc-status", "0"))))


def echo_chunks(s):
    """An HTTP/1.1 origin that answers a chunked request at once and returns each piece of it as it arrives."""
    _, rest = read_head(s)
    s.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + rest)
    while piece := s.recv(65536):
        s.sendall(piece)


def silent(s):
    """Reads and says nothing."""
    while s.recv(1 << 20):
        pass


def simple(rig, origin, more="", rule=""):
    """Starts a gateway from one listener to one HTTP/1.1 origin; returns (its port, its process)."""
    port = free_port()
    process = rig.gateway(f"""
listeners: {{web: {{address: "127.0.0.1:{port}"}}}}
upstreams: {{o: {{endpoints: "127.0.0.1:{origin}"{more}}}}}
routes: {{r: {{rules: [{{to: o{rule}}}]}}}}
access_log: {{to: stdout}}
""", port=port)
    return port, process


def logged(process, path):
    """Returns the access log's record of a path, once it is there."""

    def probe():
        for line in process.output().splitlines():
            with contextlib.suppress(ValueError):
                record = json.loads(line)
                if record.get("target") == path:
                    return record
        return None

    return until(f"an access log record of {path}", probe)


@case("G1", "a gRPC stream with one byte now and then is not cut", shortened="a message each 0.4 s for 8 s")
def grpc_stream(rig):
    origin, port = rig.origin(echo_frames), free_port()
    rig.gateway(f"""
listeners: {{h: {{address: "127.0.0.1:{port}", protocol: h2c}}}}
upstreams: {{g: {{endpoints: "127.0.0.1:{origin}", protocol: http2}}}}
routes: {{r: {{rules: [{{match: {{grpc: t.v1.Echo}}, to: g}}]}}}}
""", port=port)
    with connect(port) as s:
        wire = Frames(s, client=True)
        wire.request(1, "/t.v1.Echo/Chat", ("content-type", "application/grpc"), ("te", "trailers"))
        wire.send(frame(DATA, 0, 1, b"\0\0\0\0\1x"))
        expect("the first frame", HEADERS, wire.next()[0])
        expect("its reply", DATA, wire.next()[0])
        for number in range(20):
            time.sleep(0.4)
            wire.send(frame(DATA, 0, 1, b"\0\0\0\0\1x"))
            expect(f"the frame behind message {number}", DATA, wire.next()[0])


@case("G1", "a live stream in chunks is not cut", shortened="a byte each 0.4 s for 8 s")
def chunked_stream(rig):
    port, _ = simple(rig, rig.origin(echo_chunks))
    with connect(port) as s:
        s.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
        head, rest = read_head(s)
        check(head and b" 200 " in head, f"expected a head with 200, found {head!r}")
        seen = rest
        for number in range(20):
            time.sleep(0.4)
            s.sendall(b"1\r\nx\r\n")
            while len(seen) < 6 * (number + 2):
                piece = s.recv(4096)
                check(piece, f"the stream was cut behind {number} messages")
                seen += piece


@case("G1", "a slow upload is cut with 408, a fault in log and metric")
def slow_upload(rig):
    port, process = simple(rig, rig.origin(silent))
    with connect(port) as s:
        s.sendall(b"POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n")
        over = threading.Event()

        def trickle():
            with contextlib.suppress(OSError):
                while not over.wait(0.25):
                    s.sendall(b"x" * 20)

        threading.Thread(target=trickle, daemon=True).start()
        head, _ = read_head(s)
        over.set()
        check(head and b" 408 " in head, f"expected 408, found {head!r}")
    expect("the fault in the log", "request_too_slow", logged(process, "/slow").get("fault"))


@case("G1", "the minimum rate is that of the request's listener")
def listeners_rate(rig):
    origin, strict, lax = rig.http_origin(), free_port(), free_port()
    rig.gateway(f"""
listeners:
  strict: {{address: "127.0.0.1:{strict}", limits: {{minimum_rate: 10KiB}}}}
  lax: {{address: "127.0.0.1:{lax}", limits: {{minimum_rate: 0B}}}}
upstreams: {{o: {{endpoints: "127.0.0.1:{origin}"}}}}
routes: {{r: {{rules: [{{to: o}}]}}}}
""", port=lax)
    statuses = {}

    def upload(port):
        with connect(port) as s, contextlib.suppress(OSError):
            s.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 40\r\n\r\n")
            reader = threading.Thread(target=lambda: statuses.__setitem__(port, (read_head(s)[0] or b"- none")[9:12]))
            reader.start()
            for _ in range(40):
                time.sleep(0.2)
                with contextlib.suppress(OSError):
                    s.sendall(b"x")
            reader.join(5)

    threads = [threading.Thread(target=upload, args=(port,)) for port in (strict, lax)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    expect("the status at the strict listener", b"408", statuses.get(strict))
    expect("the status at the lax listener", b"200", statuses.get(lax))


@case("G2", "an upload that flows is not idle", shortened="idle 1 s, 20 KB each 0.25 s for 3 s")
def flowing_upload(rig):
    port, _ = simple(rig, rig.http_origin(), rule=", timeouts: {idle: 1s}")
    with connect(port) as s:
        s.sendall(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 240000\r\n\r\n")
        with contextlib.suppress(OSError):
            for _ in range(12):
                time.sleep(0.25)
                s.sendall(b"x" * 20_000)
        head, _ = read_head(s)
        check(head and b" 200 " in head, f"expected 200, found {head!r}")


def early_origin(s):
    head, _ = read_head(s)
    if head is None:
        return
    time.sleep(0.3)
    s.sendall(response(413, b"too large"))
    time.sleep(8)


@case("G4", "the early response of an HTTP/1.1 upstream is relayed at once, on both engines")
def early_response(rig):
    for engine in ("uring", "epoll"):
        origin, port = rig.origin(early_origin), free_port()
        config = f"""
listeners: {{web: {{address: "127.0.0.1:{port}"}}}}
upstreams: {{o: {{endpoints: "127.0.0.1:{origin}"}}}}
routes: {{r: {{rules: [{{to: o}}]}}}}
"""
        process = rig.gateway(config, "--engine", engine, name=f"{engine}.yaml")
        try:
            process.wait_port(port)
        except Exception:
            if engine == "uring" and process.child.poll() is not None:
                continue
            raise
        with connect(port) as s:
            begun = time.monotonic()

            def upload(s=s):
                with contextlib.suppress(OSError):
                    s.sendall(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000\r\n\r\n" + b"x" * 10_000_000)

            threading.Thread(target=upload, daemon=True).start()
            head, rest = read_head(s)
            check(head and b" 413 " in head, f"{engine}: expected 413, found {head!r}")
            while len(rest) < 9:
                rest += s.recv(100)
            expect(f"{engine}: the body", b"too large", rest)
            seconds = time.monotonic() - begun
            check(seconds < 3, f"{engine}: expected the response within 3 s, found {seconds:.1f} s")
            expect(f"{engine}: Connection", "close", field(head, "connection"))
        process.end()


@case("A1", "one client's slow bodies leave places for everybody else")
def slow_bodies(rig):
    port, _ = simple(rig, rig.http_origin(), more=", pool: {connections: 16, pending: 64}, connect_timeout: 1s")
    over = threading.Event()

    def attack():
        with connect(port) as s, contextlib.suppress(OSError, ConnectionError):
            wire = Frames(s, client=True)
            streams = range(1, 2 * 32, 2)
            for stream in streams:
                wire.request(stream, "/", ("content-length", "100000"))
            while not over.wait(0.3):
                for stream in streams:
                    wire.send(frame(DATA, 0, stream, b"x" * 100))

    for _ in range(5):
        threading.Thread(target=attack, daemon=True).start()
    time.sleep(1.5)
    statuses = [get(port).status for _ in range(20)]
    over.set()
    expect("20 requests beside 160 slow ones", [200] * 20, statuses)


@case("A1", "one client's tunnels leave places for everybody else")
def many_tunnels(rig):
    def upgrade(s):
        head, _ = read_head(s)
        if head is None:
            return
        if field(head, "upgrade"):
            s.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
            silent(s)
        else:
            s.sendall(response(200, b"ok", "Connection: close"))

    port, _ = simple(rig, rig.origin(upgrade), more=", pool: {connections: 16, pending: 64}, connect_timeout: 1s")
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(connect(port)) for _ in range(24)]
        for s in sockets:
            s.sendall(b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
        time.sleep(1.5)
        expect("10 requests beside 24 WebSockets", [200] * 10, [get(port).status for _ in range(10)])


@case("A2", "a slow body is no endpoint's failure", shortened="per_try 1 s, bodies over 2.5 s")
def slow_body(rig):
    origins = [rig.http_origin() for _ in range(2)]
    port = free_port()
    process = rig.gateway(f"""
listeners: {{web: {{address: "127.0.0.1:{port}"}}}}
upstreams: {{o: {{endpoints: ["127.0.0.1:{origins[0]}", "127.0.0.1:{origins[1]}"], health: {{outliers: true}}}}}}
routes: {{r: {{rules: [{{to: o, timeouts: {{per_try: 1s}}}}]}}}}
""", port=port)
    statuses = []

    def upload():
        with connect(port) as s:
            s.sendall(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n")
            with contextlib.suppress(OSError):
                for _ in range(10):
                    time.sleep(0.25)
                    s.sendall(b"x" * 100)
            statuses.append(read_head(s)[0].split(b" ")[1])

    threads = [threading.Thread(target=upload) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(15)
    expect("the statuses of 12 slow uploads", [b"200"] * 12, statuses)
    check("passed over" not in process.output() and "ejected" not in process.output(), "an endpoint was ejected")


@case("A13", "gRPC-Web text in small pieces reaches an HTTP/1.1 upstream whole")
def small_pieces(rig):
    seen = []

    def answer(head, body):
        seen.append(body)
        return response(200, b"")

    port, _ = simple(rig, rig.http_origin(answer), rule=", grpc_web: true")
    with connect(port) as s:
        s.sendall(b"POST /a.B/C HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc-web-text\r\n"
                  b"Transfer-Encoding: chunked\r\n\r\n")
        for piece in (b"A", b"AAA", b"AGFiYw=="):
            s.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
            time.sleep(0.1)
        s.sendall(b"0\r\n\r\n")
        read_head(s)
    expect("the body", [b"\0\0\0\0abc"], seen)


@case("A14", "an HTTP/2 client that closes within bodies is 499 and no error")
def leaves(rig):
    port, process = simple(rig, rig.origin(silent))
    with connect(port) as s:
        wire = Frames(s, client=True)
        for stream in range(1, 41, 2):
            wire.request(stream, "/left")
            wire.send(frame(DATA, 0, stream, b"x"))
        time.sleep(0.5)
        s.shutdown(socket.SHUT_WR)
        until("20 records", lambda: process.output().count('"/left"') >= 20, 5)
    statuses = set(re.findall(r'"status":\s*(\d+)', process.output()))
    expect("the statuses in the access log", {"499"}, statuses)
    check("ERROR" not in process.output(), "an ERROR line: " + process.output()[:500])
