"""Relatives of the entries of the gateway, the attacks and the framework: other places with the same mechanism."""

import json
import threading

from rig import check, connect, exchange, expect, free_port, get, read_head, response, until
from run import case

REFUSAL = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 9\r\n\r\ntoo large"


def upload(port, size=8 << 20):
    """Sends an upload on a connection of its own while it reads; returns everything read, up to the end or a reset."""
    with connect(port) as s:
        def send():
            try:
                s.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size)
            except OSError:
                pass

        threading.Thread(target=send, daemon=True).start()
        read = b""
        try:
            while piece := s.recv(65536):
                read += piece
                if b"too large" in read:
                    break
        except OSError:
            pass
        return read


def refuse_and_close(s):
    """Reads the head, responds and closes at once: the kernel resets the connection for the bytes that were not read."""
    read_head(s)
    s.sendall(REFUSAL)


@case("G4", "the response of an upstream that closes with the upload unread is relayed, on both engines")
def refusal_before_a_reset(rig):
    origin = rig.origin(refuse_and_close)
    for engine in ("uring", "epoll"):
        port = free_port()
        rig.gateway(f"listen: 127.0.0.1:{port}\nto: http://127.0.0.1:{origin}\n", "--engine", engine, port=port,
                    name=f"{engine}.yaml")
        statuses = [upload(port)[9:12] for _ in range(12)]
        expect(f"statuses with {engine}", [b"413"] * 12, statuses)


@case("G4", "stream connections: bytes that an upstream sent before it reset the connection reach the client, TCP and terminated TLS")
def refusal_through_bytes(rig):
    origin, port = rig.origin(refuse_and_close), free_port()
    rig.gateway(f"""
listeners: {{t: {{address: "127.0.0.1:{port}", protocol: tcp}}}}
upstreams: {{o: {{endpoints: "127.0.0.1:{origin}"}}}}
streams: {{s: {{to: o}}}}
""", port=port)
    for number in range(12):
        check(b"too large" in upload(port), f"connection {number} was cut without the upstream's response")


@case("G5", "bytes that are passed on: every endpoint is tried, not three of them")
def dead_endpoints_of_bytes(rig):
    def hello(s):
        s.sendall(b"hi")
        s.recv(1)

    alive, port = rig.origin(hello), free_port()
    dead = ", ".join(f'"127.0.0.1:{free_port()}"' for _ in range(6))
    rig.gateway(f"""
listeners: {{t: {{address: "127.0.0.1:{port}", protocol: tcp}}}}
upstreams: {{o: {{balance: round_robin, endpoints: [{dead}, "127.0.0.1:{alive}"]}}}}
streams: {{s: {{to: o}}}}
""", port=port)
    for number in range(8):
        with connect(port) as s:
            expect(f"connection {number}", b"hi", s.recv(2))


EMPTY_LISTS = [
    "jwt_providers: {p: {issuer: i, keys: jwks.json, audience: []}}\nto: http://127.0.0.1:1",
    "jwt_providers: {p: {issuer: i, keys: jwks.json, algorithms: []}}\nto: http://127.0.0.1:1",
    "routes: {r: {hosts: [], to: 'http://127.0.0.1:1'}}",
    "routes: {r: {listeners: [], to: 'http://127.0.0.1:1'}}",
    "routes: {r: {rules: []}}\nto: http://127.0.0.1:1",
    "routes: {r: {rules: [{match: [], to: 'http://127.0.0.1:1'}]}}",
    "routes: {r: {to: 'http://127.0.0.1:1', policies: {addresses: {allow: [], deny: 10.0.0.0/8}}}}",
    "routes: {r: {rules: [{to: 'http://127.0.0.1:1', retry: {on: []}}]}}",
    "to: http://127.0.0.1:1\npush: {origins: []}",
]


@case("G3", "an empty list, as a template writes it, does not count as the default of its key")
def empty_lists(rig):
    rig.file("jwks.json", json.dumps({"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}))
    for text in EMPTY_LISTS:
        path = rig.file("c.yaml", f"listen: 127.0.0.1:{free_port()}\n{text}\n")
        found = rig.run("check", path)
        expect(f"exit code of check of {text!r}", 1, found.returncode)
        check("an empty list" in found.stdout + found.stderr, f"{text!r}: {found.stderr}")


@case("G6", "check refuses what run refuses, or what would answer every request with an error")
def nothing_would_pass(rig):
    port, admin = free_port(), free_port()
    for what, text in [
        ("no connections", f"listen: 127.0.0.1:{port}\nto: http://127.0.0.1:1\nlimits: {{connections: 0}}"),
        ("no upstream connections", f"listen: 127.0.0.1:{port}\nto: http://127.0.0.1:1\nlimits: {{upstream_connections: 0}}"),
        ("no headers", f"listeners: {{a: {{address: '127.0.0.1:{port}', limits: {{headers: 0}}}}}}\nto: http://127.0.0.1:1"),
        ("no time for a PROXY header", f"listeners: {{a: {{address: '127.0.0.1:{port}', proxy_protocol: {{from: 127.0.0.1, timeout: 0s}}}}}}\nto: http://127.0.0.1:1"),
        ("redirects to port 0", f"listeners: {{a: {{address: '127.0.0.1:{port}', redirect_to_https: {{port: 0}}}}}}"),
        ("a health check of port 0", f"listen: 127.0.0.1:{port}\nupstreams: {{a: {{endpoints: '127.0.0.1:1', health: {{active: {{port: 0}}}}}}}}\nto: a"),
        ("the administration at a listener's address", f"listen: 127.0.0.1:{port}\nto: http://127.0.0.1:1\nadmin: {{address: 127.0.0.1:{port}}}"),
        ("metrics at the administration's address", f"listen: 127.0.0.1:{port}\nto: http://127.0.0.1:1\nadmin: {{address: 127.0.0.1:{admin}, metrics: 127.0.0.1:{admin}}}"),
        ("nowhere to listen", "listen: []\nto: http://127.0.0.1:1"),
        ("half a password hash", f"listen: 127.0.0.1:{port}\nroutes: {{r: {{to: 'http://127.0.0.1:1', policies: {{basic: {{users: {{ada: $5$saltstring$5B8vY}}}}}}}}}}"),
    ]:
        path = rig.file("c.yaml", text + "\n")
        expect(f"exit code of check: {what}", 1, rig.run("check", path).returncode)
        expect(f"exit code of run: {what}", 2, rig.start("run", path).wait())


@case("G14", "patterns of other programs in paths are refused: <id>, $, [0-9], .+")
def patterns(rig):
    for path, is_right in [("/users/<id>", False), ("/admin$", False), ("/v[0-9]/x", False), ("/a.+", False), ("/*", False),
                           ("/Products(1)", True), ("/odata/$metadata", True), ("/c++", True)]:
        file = rig.file("c.yaml", f"listen: 127.0.0.1:{free_port()}\nroutes: {{r: {{rules: [{{match: '{path}', respond: 200}}]}}}}\n")
        expect(f"exit code of check of {path}", 0 if is_right else 1, rig.run("check", file).returncode)


@case("H7", "TLS, and any other binary protocol, on a port of plain HTTP: 400 at once, and a log line")
def tls_on_a_plain_port(rig):
    origin, port = rig.http_origin(), free_port()
    process = rig.gateway(f"listen: 127.0.0.1:{port}\nto: http://127.0.0.1:{origin}\n", port=port)
    for first in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(32)), b"\x80\x2e\x01\x03\x01", b"\x00\x01"):
        with connect(port, seconds=5) as s:
            s.sendall(first)
            try:
                head = s.recv(12)
            except TimeoutError:
                head = b"nothing within 5 s"
            expect(f"the response to {first[:5]!r}", b"HTTP/1.1 400", head)
    until("a log line", lambda: "TLS where plain HTTP is expected" in process.output())


@case("G14", "an upstream that refuses an expectation without reading the body gets no other client's request behind that body")
def body_behind_a_refused_expectation(rig):
    lines = []

    def refuse(s):
        rest = b""
        while True:
            head, rest = read_head(s, rest)
            if head is None:
                return
            lines.append(head.split(b"\r\n")[0])
            s.sendall(response(401, b"no"))

    origin, port = rig.origin(refuse), free_port()
    rig.gateway(f"listen: 127.0.0.1:{port}\nto: http://127.0.0.1:{origin}\n", "--workers", "1", port=port)
    for _ in range(3):
        with connect(port) as s:
            expect("the refusal", 401, exchange(s, b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nGET /").status)
        expect("another client's request", 401, get(port, "/other").status)
    expect("requests that the origin saw", [b"POST / HTTP/1.1", b"GET /other HTTP/1.1"] * 3, lines)
