"""Cases of push: transports, the programs' API, hand-over, sources (docs/field-faults.md, S8, S10 to S15, P1, P2, P4)."""

import base64
import json
import os
import re
import signal
import socket
import threading
import time
import zlib

import rig
from rig import check, expect
from run import case
from websocket import Closed, Ws

NAMESPACE = "n: {retention: {publications: 100, time: 300s}, recovery: true, presence: true, history: true, publish: true}"


def configuration(port, push="", namespaces=NAMESPACE, more=""):
    return f"""
listen: 127.0.0.1:{port}
push:
  anonymous: true
  api_key: key
  namespaces: {{{namespaces}}}
{push}
{more}
routes:
  live: {{rules: [{{match: /, push: true}}]}}
"""


def api(port, method, body, *fields):
    """Calls the API and returns the Answer."""
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    path = "/api/" + method if method else "/api"
    return rig.get(port, path, "X-API-Key: key", *fields, method="POST", body=body)


def events(s, count, buffer=b""):
    """Reads events of a stream: (id or None, data); returns them with what is left."""
    found = []
    while len(found) < count:
        while b"\n\n" not in buffer:
            piece = s.recv(65536)
            if not piece:
                return found, buffer
            # Chunks are taken apart by their lines: no event has such a line.
            buffer += re.sub(rb"(?:^|\r\n)[0-9a-f]+\r\n", b"", piece)
        block, buffer = buffer.split(b"\n\n", 1)
        lines = block.replace(b"\r\n", b"").split(b"\n")
        data = b"".join(line[6:] for line in lines if line.startswith(b"data: "))
        ids = [line[4:].decode() for line in lines if line.startswith(b"id: ")]
        if data and data != b"{}":
            found.append((ids[-1] if ids else None, json.loads(data)))
    return found, buffer


@case("S8", "SIGUSR2 keeps history, epochs and idempotency keys; clients are sent away with 3001 and recover")
def hand_over_keeps_state(r):
    port = rig.free_port()
    server = r.gateway(configuration(port, namespaces=NAMESPACE.replace("publications: 100", "publications: 1000"), more="limits: {drain: 4s}"), port=port)
    client = Ws(port)
    client.send({"id": 2, "subscribe": {"channel": "n:a", "recoverable": True}})
    epoch = client.reply(2)["subscribe"]["epoch"]
    first = api(port, "publish", {"channel": "n:a", "data": 0, "idempotency_key": "k"}).json()["result"]
    expect("epoch", epoch, first["epoch"])
    answered, over = [], threading.Event()

    def publish():
        number = 0
        while not over.is_set():
            number += 1
            try:
                answer = api(port, "publish", {"channel": "n:a", "data": number})
                if answer.status == 200:
                    answered.append((number, answer.json()["result"]))
            except (OSError, rig.Failed):
                pass
            time.sleep(0.02)

    publisher = threading.Thread(target=publish)
    publisher.start()
    try:
        rig.until("publications", lambda: len(answered) > 10)
        server.signal(signal.SIGUSR2)
        heard, offset, code = [], 0, None
        try:
            while True:
                push = client.message().get("push", {})
                if "pub" in push:
                    heard.append(push["pub"]["data"])
                    offset = push["pub"].get("offset", offset)
        except Closed as closed:
            code = closed.code
        expect("close code", 3001, code)
        server.wait(20)
    finally:
        over.set()
        publisher.join()
    match = server.wait_output(r"process (\d+) serves now")
    r.stack.callback(os.kill, int(match[1]), signal.SIGTERM)
    again = Ws(port)
    again.send({"id": 2, "subscribe": {"channel": "n:a", "recover": True, "offset": offset, "epoch": epoch}})
    result = again.reply(2)["subscribe"]
    expect("recovered", True, result.get("recovered", False))
    expect("epoch after it", epoch, result["epoch"])
    heard += [publication["data"] for publication in result["publications"]]
    missing = [number for number, _ in answered if number not in heard]
    expect("publications that were answered 200 and are missing", [], missing)
    expect("doubled", len(set(heard)), len(heard))
    expect("epochs", {epoch}, {result["epoch"] for _, result in answered})
    repeated = api(port, "publish", {"channel": "n:a", "data": "again", "idempotency_key": "k"}).json()["result"]
    expect("the answer by the same key", first, repeated)


@case("S8", "clients are sent away one after the other when the process ends")
def sent_away_spread(r):
    port = rig.free_port()
    server = r.gateway(configuration(port, more="limits: {drain: 4s}"), port=port)
    clients = [Ws(port) for _ in range(20)]
    times, codes = [], []

    def wait(client):
        codes.append(client.code())
        times.append(time.monotonic())

    threads = [threading.Thread(target=wait, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    server.signal(signal.SIGTERM)
    for thread in threads:
        thread.join()
    expect("codes", {3001}, set(codes))
    span = max(times) - min(times)
    check(0.5 < span < 4, f"spread: expected over about 2 s of the 4 s of the drain time, found {span:.2f} s")


@case("S8", "a restart with a state folder keeps history and epochs, a crash or damage starts new epochs")
def restart_keeps_state(r):
    port = rig.free_port()
    text = configuration(port, push=f"  state_dir: {r.dir}/state")
    server = r.gateway(text, port=port)
    epochs = {}
    for number in range(5):
        epochs[number] = api(port, "publish", {"channel": "n:a", "data": number, "idempotency_key": "k4" if number == 4 else ""}).json()["result"]
    epoch = epochs[0]["epoch"]
    server.signal(signal.SIGTERM)
    server.wait()
    server = restarted(r, text, port)
    history = api(port, "history", {"channel": "n:a", "limit": -1}).json()["result"]
    expect("position", (5, epoch), (history["offset"], history["epoch"]))
    expect("history", list(range(5)), [publication["data"] for publication in history["publications"]])
    again = api(port, "publish", {"channel": "n:a", "data": 9, "idempotency_key": "k4"}).json()["result"]
    expect("the answer by the same key", epochs[4], again)
    # A crash: nothing was written, and what was read before is not used again.
    server.child.kill()
    server.wait()
    server = restarted(r, text, port)
    after = api(port, "publish", {"channel": "n:a", "data": 0}).json()["result"]
    expect("offset after a crash", 1, after["offset"])
    check(after["epoch"] != epoch, "a crash has to start a new epoch")
    server.signal(signal.SIGTERM)
    server.wait()
    path = r.dir / "state" / "push.state"
    damaged = bytearray(path.read_bytes())
    damaged[-20] ^= 1
    path.write_bytes(damaged)
    server = restarted(r, text, port)
    last = api(port, "publish", {"channel": "n:a", "data": 0}).json()["result"]
    check(last["epoch"] != after["epoch"], "damaged state has to start a new epoch")
    server.wait_output("damaged")


def restarted(r, text, port):
    """Starts the server at the port of one that was killed, and waits until it answers: the kernel may keep the old listener for a moment."""
    server = r.gateway(text, port=port)
    rig.until("an answer", lambda: api(port, "info", {}).status == 200)
    return server


class Nats:
    """A nats-server at a fixed port."""

    def __init__(self, r, port):
        self.process = r.start("-a", "127.0.0.1", "-p", port, command=rig.need("nats-server"))
        self.port = port
        self.process.wait_port(port)

    def publish(self, *messages):
        with rig.connect(self.port) as s:
            lines = [f"PUB {subject} {len(data)}\r\n{data}\r\n" for subject, data in messages]
            s.sendall(("CONNECT {\"verbose\":false}\r\n" + "".join(lines) + "PING\r\n").encode())
            got = b""
            while b"PONG" not in got:
                got += s.recv(65536)


@case("P2", "a restart of the broker gives its channels new epochs, and /readyz knows")
def broker_gap(r):
    port, admin, broker = rig.free_port(), rig.free_port(), rig.free_port()
    nats = Nats(r, broker)
    push = f"""  nats:
    feed: {{servers: 'nats://127.0.0.1:{broker}', subjects: n.>, channel: 'n:{{2}}'}}"""
    r.gateway(configuration(port, push=push, more=f"admin: {{address: '127.0.0.1:{admin}'}}"), port=port)
    rig.until("ready", lambda: rig.get(admin, "/readyz").status == 200)
    client = Ws(port)
    for number, channel in ((2, "n:a"), (3, "n:quiet")):
        client.send({"id": number, "subscribe": {"channel": channel, "positioned": True, "recoverable": True}})
        position = client.reply(number)["subscribe"]
        check(position.get("positioned"), f"{channel} is not positioned")
    nats.publish(("n.a", "1"))
    expect("publication", 1, client.message()["push"]["pub"]["data"])
    nats.process.end()
    rig.until("not ready", lambda: rig.get(admin, "/readyz").status == 503, 5)
    nats = Nats(r, broker)
    client.socket.settimeout(8)
    notified = set()
    try:
        while len(notified) < 2:
            push = client.message()["push"]
            expect("notification", 2500, push.get("unsubscribe", {}).get("code"))
            notified.add(push["channel"])
    except TimeoutError:
        raise rig.Failed(f"positioned clients: expected to be notified in n:a and n:quiet, found {notified}") from None
    client.send({"id": 4, "subscribe": {"channel": "n:a", "recover": True, "offset": 1, "epoch": position["epoch"]}})
    expect("recovered", False, client.reply(4)["subscribe"].get("recovered", False))
    rig.until("ready again", lambda: rig.get(admin, "/readyz").status == 200)


@case("S10", "an empty Sec-WebSocket-Protocol is none")
def empty_subprotocols(r):
    port = rig.free_port()
    r.gateway(configuration(port), port=port)
    for field in ("Sec-WebSocket-Protocol:", "Sec-WebSocket-Protocol: ", "Sec-WebSocket-Protocol: ,"):
        expect(f"status for `{field}`", 101, Ws(port, field, connect=False).status)
    socket_ = Ws(port, "Sec-WebSocket-Protocol: , centrifuge-json", connect=False)
    expect("subprotocol", "centrifuge-json", rig.field(socket_.head, "sec-websocket-protocol"))


@case("S11", "storm protection sends EventSource back with 200, retry and the end")
def storm(r):
    port = rig.free_port()
    r.gateway(configuration(port, push="  limits: {handshakes: 1}"), port=port)
    _waiting = [Ws(port, connect=False) for _ in range(64)]
    connect = json.dumps({"id": 1, "connect": {}}).replace(" ", "")
    for path in ("/connection/uni_sse", "/connection/sse?cf_connect=" + connect.replace('"', "%22")):
        answer = rig.get(port, path, "Accept: text/event-stream")
        expect(f"{path}: status", 200, answer.status)
        check(re.fullmatch(rb"retry: [1-5]000\n\n", answer.body), f"{path}: expected `retry:` and the end, found {answer.body!r}")
        expect("type", "text/event-stream", (answer.field("content-type") or "").split(";")[0])
    expect("http_stream", 503, rig.get(port, "/connection/http_stream", method="POST", body=connect.encode()).status)


@case("S12", "events carry positions, and EventSource recovers from the last one")
def event_ids(r):
    port = rig.free_port()
    r.gateway(configuration(port), port=port)
    connect = json.dumps({"subs": {"n:a": {}, "n:b c": {}}}).replace(" ", "%20").replace('"', "%22")
    request = f"GET /connection/uni_sse?cf_connect={connect} HTTP/1.1\r\nHost: localhost\r\n".encode()
    s = rig.connect(port)
    s.sendall(request + b"\r\n")
    _, rest = rig.read_head(s)
    first, rest = events(s, 1, re.sub(rb"(?:^|\r\n)[0-9a-f]+\r\n", b"", rest))
    check(first[0][0], "the first event has no id")
    api(port, "publish", {"channel": "n:a", "data": 1})
    api(port, "publish", {"channel": "n:b c", "data": 2})
    two, rest = events(s, 2, rest)
    last = two[-1][0]
    check(last, "an event with a publication has no id")
    s.close()
    api(port, "publish", {"channel": "n:a", "data": 3})
    api(port, "publish", {"channel": "n:b c", "data": 4})
    s = rig.connect(port)
    s.sendall(request + f"Last-Event-ID: {last}\r\n\r\n".encode())
    _, rest = rig.read_head(s)
    first, rest = events(s, 1, re.sub(rb"(?:^|\r\n)[0-9a-f]+\r\n", b"", rest))
    subs = first[0][1]["connect"]["subs"]
    found = {channel: [p["data"] for p in sub.get("publications", [])] for channel, sub in subs.items()}
    expect("recovered publications", {"n:a": [3], "n:b c": [4]}, found)
    expect("recovered", {True}, {sub.get("recovered", False) for sub in subs.values()})


@case("S12", "events pass nginx with buffering and gzip at once")
def through_nginx(r):
    port, front = rig.free_port(), rig.free_port()
    r.gateway(configuration(port), port=port)
    config = r.file("nginx.conf", f"""
daemon off; pid {r.dir}/nginx.pid; error_log stderr; worker_processes 1;
events {{}}
http {{
  access_log off; gzip on; gzip_min_length 1; gzip_types text/event-stream application/json;
  client_body_temp_path {r.dir}/a; proxy_temp_path {r.dir}/b; fastcgi_temp_path {r.dir}/c; uwsgi_temp_path {r.dir}/d; scgi_temp_path {r.dir}/e;
  server {{ listen 127.0.0.1:{front}; location / {{ proxy_pass http://127.0.0.1:{port}; proxy_http_version 1.1; proxy_buffering on; }} }}
}}
""")
    r.start("-c", config, "-p", r.dir, command=rig.need("nginx")).wait_port(front)
    connect = json.dumps({"subs": {"n:a": {}}}).replace(" ", "").replace('"', "%22")
    with rig.connect(front, 5) as s:
        s.sendall(f"GET /connection/uni_sse?cf_connect={connect} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n".encode())
        head, rest = rig.read_head(s)
        expect("encoding", "gzip", rig.field(head, "content-encoding"))
        inflate, text = zlib.decompressobj(31), b""

        def until(wanted):
            nonlocal rest, text
            while wanted not in text:
                while b"\r\n" not in rest or len(rest) < rest.index(b"\r\n") + 4 + int(rest.split(b"\r\n", 1)[0], 16):
                    piece = s.recv(65536)
                    check(piece, f"the stream has ended before {wanted!r}")
                    rest += piece
                size, rest = rest.split(b"\r\n", 1)
                text += inflate.decompress(rest[: int(size, 16)])
                rest = rest[int(size, 16) + 2:]

        until(b"connect")
        for number in range(3):
            begun = time.monotonic()
            api(port, "publish", {"channel": "n:a", "data": f"number {number}"})
            until(f"number {number}".encode())
            check(time.monotonic() - begun < 1, f"an event took {time.monotonic() - begun:.1f} s")


@case("S13", "POST /api takes method and params, one or many a body")
def method_and_params(r):
    port = rig.free_port()
    r.gateway(configuration(port), port=port)
    one = api(port, "", {"method": "publish", "params": {"channel": "n:a", "data": {"x": 1}}}, "Content-Type: application/json")
    expect("status", 200, one.status)
    expect("offset", 1, one.json()["result"]["offset"])
    commands = [{"method": "publish", "params": {"channel": "n:a", "data": 2}}, {"method": "nothing", "params": {}},
                {"method": "history", "params": {"channel": "n:a", "limit": 10}}, {"method": "info", "params": {}}]
    many = api(port, "", "\n".join(map(json.dumps, commands)).encode())
    lines = [json.loads(line) for line in many.body.splitlines()]
    expect("answers", 4, len(lines))
    expect("unknown method", 104, lines[1]["error"]["code"])
    expect("history", [{"x": 1}, 2], [publication["data"] for publication in lines[2]["result"]["publications"]])
    expect("without the key", 401, rig.get(port, "/api", method="POST", body=b"{}").status)


@case("S14", "limits are as the reference has them, documented and settable")
def limits(r):
    port = rig.free_port()
    r.gateway(configuration(port), port=port)
    client = Ws(port)
    client.send({"id": 2, "publish": {"channel": "n:a", "data": "x" * 70_000}})
    expect("a message of 70 kB", 1009, client.code())
    for number in range(100):
        api(port, "publish", {"channel": "n:k", "data": "x" * 20_000})
    history = api(port, "history", {"channel": "n:k", "limit": -1}).json()["result"]
    expect("publications that are kept", 100, len(history["publications"]))
    batch = {"commands": [{"publish": {"channel": "n:a", "data": 1}}, {"unheard": {}}, {"publish": {"nonsense": 1}},
                          {"presence_stats": {"channel": "n:a"}}]}
    answer = api(port, "batch", batch)
    expect("a batch with an unknown command", 200, answer.status)
    replies = answer.json()["replies"]
    check("result" not in answer.json() and "publish" in replies[0] and "presence_stats" in replies[3], f"found {replies}")
    expect("codes", [104, 107], [replies[1]["error"]["code"], replies[2]["error"]["code"]])


@case("S14", "message size, API bodies and pings are settable", shortened="pings every 4 s instead of 25 s")
def settable_limits(r):
    port = rig.free_port()
    push = "  limits: {message: 100KiB, api_body: 2MiB}\n  ping_interval: 4s\n  pong_timeout: 2s"
    r.gateway(configuration(port, push=push), port=port)
    client = Ws(port)
    expect("announced ping", 4, client.connected["connect"]["ping"])
    client.send({"id": 2, "publish": {"channel": "n:a", "data": "x" * 90_000}})
    check("publish" in client.reply(2), "a message of 90 kB is not taken")
    expect("an API body of 1.5 MiB", 200, api(port, "publish", {"channel": "n:a", "data": "x" * 1_500_000}).status)
    expect("an API body of 2.5 MiB", 413, api(port, "publish", {"channel": "n:a", "data": "x" * 2_500_000}).status)
    begun = time.monotonic()
    silent = Ws(port)
    silent.message = lambda: Ws.message(silent)
    silent.send = lambda *a, **k: None
    expect("a client that does not answer pings", 3012, silent.code())
    check(time.monotonic() - begun < 12, f"it took {time.monotonic() - begun:.1f} s")


def user_timeout(pid, port, own):
    """Returns TCP_USER_TIMEOUT, in milliseconds, of a process's connection from 127.0.0.1:own to its port."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    process = os.pidfd_open(pid)
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            if not os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
                continue
            fd = libc.syscall(438, process, int(name), 0)  # pidfd_getfd
            if fd < 0:
                raise rig.Skipped("needs the right to duplicate a child's descriptors (pidfd_getfd)")
            with socket.socket(fileno=fd) as s:
                try:
                    if s.family == socket.AF_INET and s.getpeername()[1] == own and s.getsockname()[1] == port:
                        return s.getsockopt(socket.IPPROTO_TCP, 18)
                except OSError:
                    continue
    finally:
        os.close(process)
    raise rig.Failed("the connection is not among the process's descriptors")


@case("S15", "the kernel gives up dead links of push after 40 s", shortened="the socket's timeout is read instead of waited for")
def dead_link(r):
    port = rig.free_port()
    server = r.gateway(configuration(port), "--engine", "epoll", port=port)
    for path in ("/connection/uni_sse", "/connection/websocket", "/connection/uni_websocket"):
        fields = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        with rig.connect(port) as s:
            s.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{fields if 'websocket' in path else ''}\r\n".encode())
            rig.read_head(s)
            expect(f"{path}: TCP_USER_TIMEOUT", 40_000, user_timeout(server.pid, port, s.getsockname()[1]))


@case("P1", "answers say how many connections were reached")
def reached(r):
    port = rig.free_port()
    secret = "0123456789abcdef0123456789abcdef"
    r.gateway(configuration(port, push=f"  tokens: {{secret: '{secret}'}}"), port=port)
    import hashlib
    import hmac

    def token(user):
        part = lambda value: base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")
        signed = part({"alg": "HS256", "typ": "JWT"}) + b"." + part({"sub": user})
        return (signed + b"." + base64.urlsafe_b64encode(hmac.digest(secret.encode(), signed, hashlib.sha256)).rstrip(b"=")).decode()

    clients = [Ws(port, connect=False) for _ in range(3)]
    for client in clients:
        client.send({"id": 1, "connect": {"token": token("7")}})
        client.reply(1)
    count = lambda method, **body: api(port, method, body).json()["result"].get("num_clients")
    expect("subscribe", 3, count("subscribe", user="7", channel="n:a"))
    expect("unsubscribe", 3, count("unsubscribe", user="7", channel="n:a"))
    expect("unsubscribe again", 0, count("unsubscribe", user="7", channel="n:a"))
    expect("refresh", 3, count("refresh", user="7", expire_at=int(time.time()) + 1000))
    expect("disconnect of another user", 0, count("disconnect", user="8"))
    expect("disconnect", 3, count("disconnect", user="7"))


@case("P4", "push.md names keys that exist")
def documented_keys(r):
    text = (rig.REPO / "docs" / "push.md").read_text()
    schema = json.loads(r.run("schema").stdout)
    names = set(re.findall(r'"([a-z_]+)": *\{', json.dumps(schema)))
    dotted = set(re.findall(r"`(limits|keep|rules|proxy|tokens|nats)\.([a-z_]+)`", text))
    wrong = sorted(f"{a}.{b}" for a, b in dotted if a == "rules" or b not in names)
    expect("keys that do not exist", [], wrong)
    check("JWKS by a URL)" not in text, "JWKS by URL is called missing beside the section that explains it")
