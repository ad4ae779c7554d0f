"""Policies, health, paths and floods of the gateway: A3, A6, A8, A9, A15, A17, G5, G7."""

import base64
import contextlib
import re
import socket
import struct
import threading
import time

import rig
from run import case

ARGON2 = "$argon2id$v=19$m=65536,t=1,p=1$c29tZXNhbHRzb21lc2FsdA$3Bv1iv6vCyMlO/6yq1BuuNQ9xYVMJyaEySyj8dcvVfU"


def path_of(head):
    """Returns the request target of a raw head."""
    return head.split(b" ", 2)[1].decode("latin-1")


def authz_service(r):
    """Starts a service that fails one input, allows requests with credentials and refuses others. Returns its port."""

    def answer(head, body):
        if "poison" in (rig.field(head, "x-forwarded-uri") or ""):
            return rig.response(500)
        return rig.response(200 if rig.field(head, "authorization") else 401)

    return r.http_origin(answer)


def poisoned(r, on_failure):
    """Sends good, unauthorised and poisonous requests; returns the statuses of the first two kinds."""
    port, origin, service = rig.free_port(), r.http_origin(), authz_service(r)
    r.gateway(f"""
listen: 127.0.0.1:{port}
routes:
  all:
    rules:
      - match: /
        to: http://127.0.0.1:{origin}
        policies: {{authz: {{to: http://127.0.0.1:{service}, path: /verify, on_failure: {on_failure}}}}}
""", port=port)
    good, bad = [], []
    for _ in range(6):
        for _ in range(12):
            rig.get(port, "/poison")
        for _ in range(5):
            good.append(rig.get(port, "/", "Authorization: Bearer t").status)
            bad.append(rig.get(port, "/").status)
    return good, bad


@case("A3", "requests that make the authorization service fail change nothing for others: `deny`")
def authz_deny(r):
    good, bad = poisoned(r, "deny")
    rig.expect("requests with credentials", [200] * 30, good)
    rig.expect("requests without credentials", [401] * 30, bad)


@case("A3", "requests that make the authorization service fail let no others in: `allow`")
def authz_allow(r):
    good, bad = poisoned(r, "allow")
    rig.expect("requests with credentials", [200] * 30, good)
    rig.expect("requests without credentials", [401] * 30, bad)


@case("A3", "`allow` allows while no service responds, and not a moment longer")
def authz_down(r):
    port, origin, service = rig.free_port(), r.http_origin(), rig.free_port()
    r.gateway(f"""
listen: 127.0.0.1:{port}
routes:
  all:
    rules:
      - match: /
        to: http://127.0.0.1:{origin}
        policies: {{authz: {{to: http://127.0.0.1:{service}, path: /verify, on_failure: allow}}}}
""", port=port)
    rig.expect("without a service", [200] * 12, [rig.get(port).status for _ in range(12)])
    r.http_origin(lambda head, body: rig.response(401), port=service)
    rig.expect("with the service", [401] * 12, [rig.get(port).status for _ in range(12)])


@case("A3", "a Redis that fails switches no rate limit off")
def redis_down(r):
    port, redis = rig.free_port(), rig.free_port()
    r.gateway(f"""
listen: 127.0.0.1:{port}
routes:
  all:
    rules:
      - match: /
        respond: 200
        policies: {{rate_limit: {{requests: 5, per: 1h, by: source, redis: "http://127.0.0.1:{redis}"}}}}
""", port=port)
    rig.expect("statuses", [200] * 5 + [429] * 15, [rig.get(port).status for _ in range(20)])


GUARDED = """
listeners: {{web: {{address: 127.0.0.1:{port}{more}}}}}
routes:
  all:
    rules:
      - match: /admin
        to: http://127.0.0.1:{origin}
        policies: {{addresses: {{allow: 192.0.2.0/24}}}}
      - match: /
        to: http://127.0.0.1:{origin}
"""


def guarded(r, more=""):
    seen = []

    def answer(head, body):
        seen.append(path_of(head))
        return rig.response(200)

    port = rig.free_port()
    r.gateway(GUARDED.format(port=port, origin=r.http_origin(answer), more=more), port=port)
    return port, seen


@case("A6", "an escaped slash does not lead past a rule that guards a prefix")
def escaped_slash(r):
    port, seen = guarded(r)
    for path in ["/admin%2fx", "/admin%2Fx", "/admin%5cx", "/admin%5Cx", "/%2fadmin/x", "/a%5c..%5cadmin"]:
        rig.expect(path, 400, rig.get(port, path).status)
    rig.expect("paths at the origin", [], seen)
    rig.expect("/open", 200, rig.get(port, "/open").status)


@case("A6", "`escaped_slashes: decode` has escaped slashes match as slashes, and sends them so")
def escaped_slash_decoded(r):
    port, seen = guarded(r, ", escaped_slashes: decode")
    for path in ["/admin%2fx", "/admin%5cx", "/a%5c..%5cadmin"]:
        rig.expect(path, 403, rig.get(port, path).status)
    rig.expect("/a%2fb", 200, rig.get(port, "/a%2fb").status)
    rig.expect("paths at the origin", ["/a/b"], seen)


@case("G7", "an upstream receives the path as it arrived, also where a prefix is rewritten")
def path_as_it_arrived(r):
    seen = []

    def answer(head, body):
        seen.append(path_of(head))
        return rig.response(200)

    port, origin = rig.free_port(), r.http_origin(answer)
    r.gateway(f"""
listen: 127.0.0.1:{port}
routes:
  all:
    rules:
      - {{match: /cut, to: http://127.0.0.1:{origin}, rewrite: {{prefix: /new}}}}
      - {{match: /, to: http://127.0.0.1:{origin}}}
""", port=port)
    wanted = {
        "/thumb/300x200/https://img.example/a.jpg": "/thumb/300x200/https://img.example/a.jpg",
        "//a///b//": "//a///b//",
        "/%61%2fb%7e": "/%61%2fb%7e",
        "/cut/https://x//%41": "/new/https://x//%41",
        "/a//../b": "/b",
    }
    for path in wanted:
        rig.expect(path, 200, rig.get(port, path).status)
    rig.expect("paths at the origin", list(wanted.values()), seen)


def balanced(r, dead, upstream):
    """Starts a gateway to `dead` endpoints that refuse connections and one that lives; returns its port."""
    port, alive = rig.free_port(), r.http_origin()
    ends = ", ".join(f"127.0.0.1:{p}" for p in [rig.free_port() for _ in range(dead)] + [alive])
    r.gateway(f"""
listen: 127.0.0.1:{port}
upstreams: {{app: {{endpoints: [{ends}], balance: round_robin{upstream}}}}}
routes: {{all: {{rules: [{{match: /, to: app}}]}}}}
""", port=port)
    return port


@case("G5", "half of the endpoints dead: no request is sent to the dead", shortened="checks each 100 ms, for 1 s")
def dead_endpoints(r):
    port = balanced(r, 2, ", health: {active: {path: /healthz, every: 100ms, unhealthy_after: 1}}")
    time.sleep(1)
    rig.expect("statuses", [200] * 30, [rig.get(port).status for _ in range(30)])


@case("G5", "a connect failure continues with the next endpoint, without `retry` and health checks")
def connect_failure(r):
    port = balanced(r, 3, "")
    rig.expect("GET", [200] * 10, [rig.get(port).status for _ in range(10)])
    time.sleep(1.1)
    rig.expect("POST", [200] * 10, [rig.get(port, method="POST", body=b"x").status for _ in range(10)])


def basic(user, password):
    return "Authorization: Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@case("A8", "wrong passwords take bounded memory, and other clients' logins are answered", alone=True)
def wrong_passwords(r):
    r.file("pw", f"ada:{ARGON2}\n")
    port = rig.free_port()
    server = r.gateway(f"""
listeners:
  web: {{address: 127.0.0.1:{port}, client_address: {{trusted: 127.0.0.0/8}}}}
routes: {{all: {{rules: [{{match: /, respond: 200, policies: {{basic: {{file: pw}}}}}}]}}}}
""", "--workers", "2", port=port)
    over = threading.Event()

    def flood():
        number = 0
        while not over.is_set():
            number += 1
            with contextlib.suppress(OSError, rig.Failed):
                rig.get(port, "/", basic("ada", f"wrong{number}"), "X-Forwarded-For: 192.0.2.66")

    threads = [threading.Thread(target=flood, daemon=True) for _ in range(40)]
    for thread in threads:
        thread.start()
    peak, statuses = 0, []
    try:
        for number in range(4):
            answer = rig.get(port, "/", basic("ada", f"other{number}"), f"X-Forwarded-For: 198.51.100.{number}")
            statuses.append(answer.status)
            peak = max(peak, server.rss())
    finally:
        over.set()
    rig.expect("logins of others", [401] * 4, statuses)
    rig.check(peak < 420 << 20, f"resident memory: expected below 420 MiB, found {peak >> 20} MiB")


@case("A17", "a client whose address a trusted proxy does not say is not the proxy")
def unknown_client(r):
    port = rig.free_port()
    r.gateway(f"""
listeners:
  web: {{address: 127.0.0.1:{port}, client_address: {{trusted: 127.0.0.0/8}}}}
routes: {{all: {{rules: [{{match: /, respond: 200, policies: {{addresses: {{allow: 127.0.0.0/8}}}}}}]}}}}
""", port=port)
    for value in ["unknown", "x", "", "_hidden", "127.0.0.1, unknown"]:
        rig.expect(f"X-Forwarded-For: {value}", 403, rig.get(port, "/", f"X-Forwarded-For: {value}").status)
    rig.expect("X-Forwarded-For: 192.0.2.1", 403, rig.get(port, "/", "X-Forwarded-For: 192.0.2.1").status)
    rig.expect("the proxy itself", 200, rig.get(port).status)


@case("A15", "connections per address count IPv6 by its /64", shortened="2 connections instead of 1,024")
def ipv6_network(r):
    port = rig.free_port()
    r.gateway(f"""
listeners:
  web: {{address: 127.0.0.1:{port}, proxy_protocol: {{from: 127.0.0.0/8}}}}
routes: {{all: {{rules: [{{match: /, respond: 200}}]}}}}
""", "--per-address", "2", port=port)
    held, statuses = [], []
    for host in ["1", "2", "ffff:1", "ffff:ffff:ffff:ffff"]:
        s = rig.connect(port)
        held.append(s)
        source = socket.inet_pton(socket.AF_INET6, f"2001:db8:0:1::{host}" if host.count(":") < 3 else f"2001:db8:0:1:{host}")
        addresses = source + socket.inet_pton(socket.AF_INET6, "2001:db8::99") + struct.pack(">HH", 4000, port)
        header = b"\r\n\r\n\0\r\nQUIT\n\x21\x21" + struct.pack(">H", len(addresses)) + addresses
        statuses.append(rig.exchange(s, header + b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").status)
    for s in held:
        s.close()
    rig.expect("statuses of one /64", [200, 200, 503, 503], statuses)


def frame(kind, flags, stream, payload=b""):
    """Returns the bytes of an HTTP/2 frame."""
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def get_frame(stream, path):
    """Returns a HEADERS frame of a GET without a body."""
    text = path.encode()
    block = b"\x82\x86\x04" + bytes([len(text)]) + text + b"\x01\x01a"
    return frame(1, 5, stream, block)


@case("A9", "resets are not paid for by cheap requests", shortened="3 s instead of 8 s")
def rapid_reset(r):
    connections = []

    def slow(s):
        connections.append(s)
        while s.recv(65536):
            time.sleep(0.05)
            s.sendall(rig.response(200, b"late"))

    port, origin = rig.free_port(), r.origin(slow)
    r.gateway(f"""
listen: 127.0.0.1:{port}
routes:
  all:
    rules:
      - {{match: /cheap, respond: 200}}
      - {{match: /, to: http://127.0.0.1:{origin}}}
""", port=port)
    resets, stream, ended = 0, 1, threading.Event()
    with rig.connect(port) as s:
        s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0))

        def read():
            buffer = b""
            with contextlib.suppress(OSError):
                while piece := s.recv(65536):
                    buffer += piece
                    while len(buffer) >= 9 and len(buffer) >= 9 + int.from_bytes(buffer[:3], "big"):
                        if buffer[3] == 7:
                            ended.set()
                        buffer = buffer[9 + int.from_bytes(buffer[:3], "big"):]
            ended.set()

        threading.Thread(target=read, daemon=True).start()
        deadline = time.monotonic() + 3
        with contextlib.suppress(OSError):
            while not ended.is_set() and time.monotonic() < deadline:
                ids = range(stream, stream + 40, 4)
                s.sendall(b"".join(get_frame(i, "/cheap") + get_frame(i + 2, "/slow") for i in ids))
                time.sleep(0.01)
                s.sendall(b"".join(frame(3, 0, i + 2, struct.pack(">I", 8)) for i in ids))
                resets, stream = resets + 10, stream + 40
    rig.check(ended.is_set(), f"the connection is ended: it is not after {resets} resets")
    rig.check(resets <= 250, f"resets until the connection is ended: expected at most 250, found {resets}")
    rig.check(len(connections) <= 250, f"connections to the origin: expected at most 250, found {len(connections)}")
