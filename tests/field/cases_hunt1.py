"""Relatives of the entries of the gateway, the attacks and the framework that hold: other places with the same mechanism."""

import base64
import hashlib
import json
import os
import re
import signal
import struct
import time

from cases_gateway_exchange import DATA, END_HEADERS, END_STREAM, HEADERS, RST, Frames, frame
from rig import check, connect, exchange, expect, field, free_port, get, read_head, response, until
from run import case

PASSWORD = "ada:$5$saltstring$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5\n"


@case("G3", "files that a configuration names vanish, are empty or halved, become directories: nothing changes")
def named_files(rig):
    origin, port, admin = rig.http_origin(), free_port(), free_port()
    files = {
        "pw": PASSWORD,
        "keys": f"till sha256:{'0' * 64}\n",
        "jwks.json": json.dumps({"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}),
        "secret": "s3cret\n",
    }
    for name, text in files.items():
        rig.file(name, text)
    process = rig.gateway(f"""
listen: 127.0.0.1:{port}
admin: {{address: 127.0.0.1:{admin}}}
upstreams: {{app: {{endpoints: 127.0.0.1:{origin}}}}}
jwt_providers: {{p: {{issuer: x, keys: jwks.json}}}}
routes:
  site:
    rules:
      - {{match: /basic, to: app, policies: {{basic: {{file: pw}}}}}}
      - {{match: /key, to: app, policies: {{api_keys: {{file: keys}}}}}}
      - {{match: /jwt, to: app, policies: {{jwt: {{provider: p}}}}}}
      - {{match: /, to: app, request_headers: {{set: {{x-secret: "${{file:secret}}"}}}}}}
""", port=port)

    def statuses():
        return [get(port, path).status for path in ("/basic", "/key", "/jwt", "/")]

    def successful():
        return re.search(r"(?m)^ringmain_config_last_reload_successful (\S+)$", get(admin, "/metrics").body.decode())[1]

    until("the administration answers", lambda: get(admin, "/healthz").status == 200)
    for name, text in files.items():
        path = rig.dir / name
        for what, act in [("removed", path.unlink), ("empty", lambda: path.write_text("")),
                          ("halved", lambda: path.write_text(text[:len(text) // 2])),
                          ("not text", lambda: path.write_bytes(b"\xff\xfe\x00" * 9)), ("a directory", path.mkdir)]:
            if what == "halved" and name in ("secret", "pw") or what == "empty" and name == "secret":
                continue
            if what == "a directory":
                path.unlink()
            act()
            os.kill(process.pid, signal.SIGHUP)
            until(f"{name} {what}: the reload is rejected", lambda: successful() == "0")
            expect(f"{name} {what}", [401, 401, 401, 200], statuses())
            if what == "a directory":
                path.rmdir()
            path.write_text(text)
            os.kill(process.pid, signal.SIGHUP)
            until(f"{name} restored after {what}", lambda: successful() == "1")


@case("G2", "a response that arrives after keep_alive, over HTTP/1.1 and HTTP/2, and a WebSocket that is silent for longer",
      shortened="keep_alive 1 s, a response after 2 s")
def responses_later_than_keep_alive(rig):
    def late(s):
        head, _ = read_head(s)
        if b"Upgrade" in head:
            key = field(head, "sec-websocket-key")
            accept = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
            s.sendall(f"HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n".encode())
            s.sendall(s.recv(100))
        else:
            time.sleep(2)
            s.sendall(response(200, b"late", "Connection: close"))

    origin, port = rig.origin(late), free_port()
    rig.gateway(f"listeners: {{w: {{address: '127.0.0.1:{port}', limits: {{keep_alive: 1s}}}}}}\nto: http://127.0.0.1:{origin}\n", port=port)
    with connect(port) as socket_, connect(port) as framed:
        upgrade = exchange(socket_, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
                                    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
        expect("the handshake", 101, upgrade.status)
        wire = Frames(framed, client=True)
        wire.request(1, "/", method="GET", flags=END_HEADERS | END_STREAM)
        expect("over HTTP/1.1", (200, b"late"), (lambda a: (a.status, a.body))(get(port)))
        expect("over HTTP/2", HEADERS, wire.next()[0])
        socket_.sendall(b"ping")
        expect("the WebSocket", b"ping", socket_.recv(10))


@case("A9", "a client that has the server reset its streams (WINDOW_UPDATE of 0, frames behind the end) is ended like one that resets them")
def made_you_reset(rig):
    connections = []

    def slow(s):
        connections.append(s)
        while s.recv(65536):
            pass

    origin, port = rig.origin(slow), free_port()
    rig.gateway(f"listen: 127.0.0.1:{port}\nto: http://127.0.0.1:{origin}\n", port=port)
    for what, tail in [("WINDOW_UPDATE of 0", lambda n: frame(8, 0, n, struct.pack(">I", 0))),
                       ("DATA behind the end", lambda n: frame(DATA, END_STREAM, n, b"x")),
                       ("RST_STREAM", lambda n: frame(RST, 0, n, struct.pack(">I", 8)))]:
        with connect(port) as s:
            wire, ended = Frames(s, client=True), False
            s.settimeout(10)
            try:
                for number in range(1, 8000, 2):
                    wire.request(number, "/x", method="GET", flags=END_HEADERS | END_STREAM)
                    wire.send(tail(number))
                while wire.next()[0] != 7:
                    pass
                ended = True
            except OSError:
                ended = True
            check(ended, f"{what}: the connection stays open")
    check(len(connections) < 1000, f"the origin had {len(connections)} connections")


@case("A17", "addresses in forms that parsers read differently are no address: leading zeros, hexadecimal, zones, lists in one element")
def odd_addresses(rig):
    origin, port = rig.http_origin(), free_port()
    rig.gateway(f"""
listeners: {{w: {{address: "127.0.0.1:{port}", client_address: {{trusted: 127.0.0.0/8}}}}}}
upstreams: {{o: {{endpoints: "127.0.0.1:{origin}"}}}}
routes: {{r: {{rules: [{{to: o, policies: {{addresses: {{deny: 10.0.0.0/8}}}}}}]}}}}
""", port=port)
    for value, status in [("10.1.1.1", 403), ("::ffff:10.1.1.1", 403), ("10.1.1.1:99", 403), ("192.0.2.1", 200), ("10.1.1.1, 192.0.2.1", 200),
                          ("010.1.1.1", 403), ("0x0a.1.1.1", 403), ("fe80::1%eth0", 403), ("", 403), ("192.0.2.1, unknown", 403)]:
        expect(f"X-Forwarded-For: {value}", status, get(port, "/", f"X-Forwarded-For: {value}").status)


@case("H0", "rows of the framework's list that hold: single bytes, absolute form, unread bodies, Expect")
def rows_that_hold(rig):
    seen = []

    def answer(head, body):
        seen.append((head, body))
        return response(200, b"ok")

    origin, port = rig.http_origin(answer), free_port()
    rig.gateway(f"listen: 127.0.0.1:{port}\nroutes: {{r: {{rules: [{{match: /o, to: 'http://127.0.0.1:{origin}'}}, {{match: /r, respond: 200}}]}}}}\n", port=port)
    with connect(port) as s:
        for byte in b"POST /o HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-T: 1\r\n\r\n":
            s.sendall(bytes([byte]))
        expect("a request in single bytes", 200, int(s.recv(100).split()[1]))
        expect("its body", b"abc", seen[-1][1])
    with connect(port) as s:
        expect("an absolute target", 200, exchange(s, b"GET http://other.example/o HTTP/1.1\r\nHost: localhost\r\n\r\n").status)
        expect("its host goes before Host", "other.example", field(seen[-1][0], "host"))
    with connect(port) as s:
        expect("a 404 with an unread body", 404, exchange(s, b"POST /no HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabcde").status)
        expect("the next request", 200, exchange(s, b"GET /r HTTP/1.1\r\nHost: a\r\n\r\n").status)
    with connect(port) as s:
        s.sendall(b"POST /o HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc")
        expect("Expect with the body at once", 200, exchange(s, b"").status)
    with connect(port) as s:
        s.sendall(b"POST /o HTTP/1.0\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc")
        head, _ = read_head(s)
        expect("no 100 for HTTP/1.0", b"200", head.split(b" ")[1])
