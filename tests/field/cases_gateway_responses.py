"""Responses of the gateway and what operators see of them: G8, G12, G14 (parts), G11, G13."""

import json
import socket
import struct
import subprocess
import time

from rig import Failed, check, connect, expect, field, free_port, get, need, read_body, read_head, response, until
from run import case


def routes(*rules):
    return "routes: {all: {rules: [" + ", ".join(rules) + "]}}\n"


def start(r, *rules, listener="", upstreams="", **options):
    """Starts a gateway with these rules on a free port and returns (port, process). `listener`: more keys of the listener."""
    port = free_port()
    text = f"listeners: {{h: {{address: 127.0.0.1:{port}{listener}}}}}\n{routes(*rules)}"
    if upstreams:
        text += f"upstreams: {{{upstreams}}}\n"
    text += options.pop("more", "")
    process = r.gateway(text, port=port, **options)
    process.port = port
    return port, process


TRUSTED = ", client_address: {trusted: 127.0.0.0/8}"


@case("G8", "redirects of the gateway behind a trusted proxy name the URL that the client requested")
def redirects(r):
    (r.dir / "site" / "sub").mkdir(parents=True)
    rules = (
        "{match: /old, redirect: {prefix: /new}}",
        "{match: /away, redirect: {host: other.example}}",
        f"{{match: /files, files: {r.dir}/site}}",
    )
    port, _ = start(r, *rules, listener=TRUSTED)

    def location(target, *fields, host="shop.example"):
        return get(port, target, *fields, host=host).field("location")

    https = "X-Forwarded-Proto: https"
    expect("path alone", "https://shop.example/new/a?b", location("/old/a?b", https))
    expect("host alone", "https://other.example/away", location("/away", https))
    expect("a directory", "https://shop.example/files/sub/", location("/files/sub", https))
    expect("the port that was requested", "http://shop.example:81/new", location("/old", host="shop.example:81"))
    expect("no port was requested", "http://shop.example/new", location("/old"))
    expect("the proxy's port", "https://shop.example:8443/new", location("/old", https, "X-Forwarded-Port: 8443"))
    expect("the proxy's host", "https://shop.example/new", location("/old", https, "X-Forwarded-Host: shop.example", host="inside:21222"))
    expect("no host", "https://shop.example/new", location("/old", https, "X-Forwarded-Host: a/b@c"))
    # The client's own element is before that of the proxy next to it.
    forged = ("X-Forwarded-For: 6.6.6.6, 192.0.2.1", "X-Forwarded-Proto: http, https")
    expect("forged by the client", "https://shop.example/new", location("/old", *forged))
    other, _ = start(r, rules[0])
    expect("a peer that is not trusted", "http://shop.example/new", get(other, "/old", https, host="shop.example").field("location"))


@case("G8", "redirect_to_https does not redirect what a trusted proxy received over TLS")
def redirect_loop(r):
    port, _ = start(r, "{respond: 204}", listener=TRUSTED + ", redirect_to_https: true")
    expect("over TLS", 204, get(port, "/", "X-Forwarded-Proto: https").status)
    plain = get(port, "/a?b", "X-Forwarded-Proto: http", host="shop.example")
    expect("in the clear", (308, "https://shop.example/a?b"), (plain.status, plain.field("location")))


def count(answer, name):
    lines = answer.head.decode("latin-1").lower().split("\r\n")
    return sum(line.startswith(f"{name}:") for line in lines)


@case("G12", "header changes hold for the gateway's own responses, without doubled lines")
def own_responses(r):
    down = free_port()
    remove = "response_headers: {remove: server}"
    put = "response_headers: {set: {server: mine}}"
    rules = []
    for name, change in (("remove", remove), ("set", put)):
        rules += [
            f"{{match: /{name}/down, to: 'http://127.0.0.1:{down}', {change}}}",
            f"{{match: /{name}/respond, respond: 200, {change}}}",
            f"{{match: /{name}/redirect, redirect: {{path: /x}}, {change}}}",
            f"{{match: /{name}/files, files: {r.dir}, {change}}}",
        ]
    port, _ = start(r, *rules)
    for action, status in (("down", 503), ("respond", 200), ("redirect", 302), ("files/none", 404)):
        removed = get(port, f"/remove/{action}")
        expect(f"{action}: status", status, removed.status)
        expect(f"{action}: server removed", 0, count(removed, "server"))
        replaced = get(port, f"/set/{action}")
        expect(f"{action}: server set", (1, "mine"), (count(replaced, "server"), replaced.field("server")))
        expect(f"{action}: date", 1, count(replaced, "date"))


@case("G12", "fields can be set on successes only")
def successes_only(r):
    (r.dir / "app.js").write_text("1")
    by_status = "response_headers: {set: {x-frame-options: DENY}, by_status: {status: [2xx, 304], set: {cache-control: immutable}}}"
    origin = r.http_origin(lambda head, _: response(404 if b"/none" in head else 200, b"x"))
    rules = (
        f"{{match: /files, files: {r.dir}, {by_status}}}",
        f"{{match: /up, to: 'http://127.0.0.1:{origin}', {by_status}}}",
    )
    port, _ = start(r, *rules)
    for target, status, value in (
        ("/files/app.js", 200, "immutable"),
        ("/files/none.js", 404, None),
        ("/up/app.js", 200, "immutable"),
        ("/up/none.js", 404, None),
    ):
        answer = get(port, target)
        found = (answer.status, answer.field("cache-control"), answer.field("x-frame-options"))
        expect(target, (status, value, "DENY"), found)


@case("G14", "Date is added to upstream responses without one, once")
def date(r):
    bare = r.http_origin(lambda head, _: response(200, b"x"))
    dated = r.http_origin(lambda head, _: response(200, b"x", "Date: Sun, 06 Nov 1994 08:49:37 GMT"))
    port, _ = start(r, f"{{match: /bare, to: 'http://127.0.0.1:{bare}'}}", f"{{match: /dated, to: 'http://127.0.0.1:{dated}'}}")
    for target in ("/bare", "/bare/again"):
        answer = get(port, target)
        expect("a Date", 1, count(answer, "date"))
        moment = time.mktime(time.strptime(answer.field("date"), "%a, %d %b %Y %H:%M:%S GMT")) - time.timezone
        check(abs(time.time() - moment) < 60, f"Date: {answer.field('date')} is not now")
    answer = get(port, "/dated")
    expect("the upstream's Date", (1, "Sun, 06 Nov 1994 08:49:37 GMT"), (count(answer, "date"), answer.field("date")))


def put(s, length=1_000_000):
    s.sendall(f"PUT /u HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\nExpect: 100-continue\r\n\r\n".encode())


@case("G14", "Expect: 100-continue reaches the upstream, whose answer decides about the upload")
def expectation(r):
    seen = []

    def refuse(s):
        head, _ = read_head(s)
        seen.append(head)
        time.sleep(0.3)
        s.sendall(response(401, b"no"))
        s.settimeout(1)
        try:
            seen.append(s.recv(65536))
        except OSError:
            seen.append(b"")

    port, _ = start(r, f"{{to: 'http://127.0.0.1:{r.origin(refuse)}'}}")
    with connect(port) as s:
        put(s)
        head, _ = read_head(s)
        expect("the first response", b"HTTP/1.1 401", head[:12])
    expect("Expect at the upstream", "100-continue", field(seen[0], "expect"))
    until("the upstream has waited", lambda: len(seen) > 1)
    expect("body bytes at the upstream", b"", seen[1])

    def accept(s):
        head, rest = read_head(s)
        s.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        body, _ = read_body(s, head, rest)
        s.sendall(response(200, str(len(body)).encode()))

    port, _ = start(r, f"{{to: 'http://127.0.0.1:{r.origin(accept)}'}}", name="accept.yaml")
    with connect(port) as s:
        put(s)
        head, rest = read_head(s)
        expect("an interim response", b"HTTP/1.1 100", head[:12])
        s.sendall(b"x" * 1_000_000)
        head, rest = read_head(s, rest)
        expect("the response", (b"HTTP/1.1 200", b"1000000"), (head[:12], read_body(s, head, rest)[0]))


@case("G14", "an upstream that ignores Expect receives the body of a client that waits for 100", shortened="1 s is the gateway's own wait")
def expectation_ignored(r):
    origin = r.http_origin(lambda head, body: response(200, str(len(body)).encode()))
    port, _ = start(r, f"{{to: 'http://127.0.0.1:{origin}'}}")
    with connect(port) as s:
        put(s, 10)
        head, rest = read_head(s)
        expect("an interim response", b"HTTP/1.1 100", head[:12])
        s.sendall(b"0123456789")
        head, rest = read_head(s, rest)
        expect("the response", (b"HTTP/1.1 200", b"10"), (head[:12], read_body(s, head, rest)[0]))
    # A client that does not wait gets no 100 that it did not need.
    with connect(port) as s:
        s.sendall(b"PUT /u HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\nab")
        head, rest = read_head(s)
        if head.startswith(b"HTTP/1.1 100"):
            head, rest = read_head(s, rest)
        expect("the response", b"HTTP/1.1 200", head[:12])


@case("G14", "a policy that refuses answers before the upload")
def expectation_refused(r):
    origin = r.http_origin()
    policy = "policies: {addresses: {deny: 127.0.0.0/8}}"
    port, _ = start(r, f"{{to: 'http://127.0.0.1:{origin}', {policy}}}")
    with connect(port) as s:
        put(s)
        head, _ = read_head(s)
        expect("the first response", b"HTTP/1.1 403", head[:12])


LOG = "access_log: {to: access.log, format: json}\n"


def log_line(r, number=0):
    """Returns a line of the access log, once it is written."""

    def read():
        lines = (r.dir / "access.log").read_text().splitlines()
        return json.loads(lines[number]) if len(lines) > number else None

    return until("a line of the access log", read)


def raw(answer):
    """An origin's handler that answers a head with raw bytes."""

    def handle(s):
        if read_head(s)[0] is not None:
            s.sendall(answer)
            s.settimeout(5)
            s.recv(1)

    return handle


def broken_http2(s):
    """Answers the first stream with a field name in capital letters."""

    def frame(kind, flags, stream, payload=b""):
        return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload

    buffer = b""
    while b"SM\r\n\r\n" not in buffer:
        buffer += s.recv(65536)
    buffer = buffer.split(b"SM\r\n\r\n", 1)[1]
    s.sendall(frame(4, 0, 0))
    while True:
        while len(buffer) < 9 or len(buffer) < 9 + int.from_bytes(buffer[:3], "big"):
            piece = s.recv(65536)
            if not piece:
                return
            buffer += piece
        length, kind, flags = int.from_bytes(buffer[:3], "big"), buffer[3], buffer[4]
        if kind == 4 and not flags & 1:
            s.sendall(frame(4, 1, 0))
        elif kind == 1:
            stream = int.from_bytes(buffer[5:9], "big")
            s.sendall(frame(1, 4, stream, b"\x88\x00\x03X-A\x01b"))
        buffer = buffer[9 + length:]


@case("G11", "a rule that the upstream broke is named in the log and in the access log")
def broken_rules(r):
    doubled = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    chunk = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"

    def not_tls(s):
        s.recv(65536)
        s.sendall(b"HTTP/1.1 400 x\r\n\r\n")

    plain = r.origin(not_tls)
    rules = (
        f"{{match: /head, to: 'http://127.0.0.1:{r.origin(raw(doubled))}'}}",
        f"{{match: /body, to: 'http://127.0.0.1:{r.origin(raw(chunk))}'}}",
        "{match: /tls, to: secure}",
        "{match: /http2, to: framed}",
    )
    upstreams = (
        f"secure: {{endpoints: '127.0.0.1:{plain}', tls: {{server_name: a.example}}}}, "
        f"framed: {{endpoints: '127.0.0.1:{r.origin(broken_http2)}', protocol: http2}}"
    )
    port, process = start(r, *rules, upstreams=upstreams, more=LOG)
    for number, (target, fault, rule) in enumerate((
        ("/head", "garbage_head", "TransferEncoding"),
        ("/body", "garbage_body", "ChunkSize"),
        ("/tls", "tls_failed", None),
        ("/http2", "garbage_head", "FieldNameCase"),
    )):
        try:
            get(port, target)
        except (Failed, OSError, ValueError):
            pass
        line = log_line(r, number)
        expect(f"{target}: fault", fault, line.get("fault"))
        check(line.get("fault_rule"), f"{target}: no fault_rule in {line}")
        if rule:
            expect(f"{target}: rule", rule, line["fault_rule"])
        process.wait_output(r"upstream `.*" + line["fault_rule"] + ": ")


def metrics(port):
    """Returns {line without its value: value} of /metrics."""
    samples = {}
    for line in get(port, "/metrics").body.decode().splitlines():
        if line and not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            samples[name] = float(value)
    return samples


@case("G13", "a client that leaves is logged with route, rule, upstream and endpoint", shortened="the client leaves after 0.3 s")
def left(r):
    def handle(s):
        read_head(s)
        s.settimeout(10)
        s.recv(1)

    origin = r.origin(handle)
    port, _ = start(r, f"{{name: slow, to: 'http://127.0.0.1:{origin}'}}", more=LOG)
    for number, request in enumerate((b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n", b"POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx")):
        s = connect(port)
        s.sendall(request)
        time.sleep(0.3)
        # By a reset: a FIN alone leaves the client's other direction open.
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.close()
        line = log_line(r, number)
        found = {key: line.get(key) for key in ("status", "route", "rule", "endpoint")}
        expect("the line", {"status": 499, "route": "all", "rule": "slow", "endpoint": f"127.0.0.1:{origin}"}, found)
        check(line.get("upstream"), f"no upstream in {line}")


@case("G13", "a canary's error rate, endpoints, certificates and the process are in /metrics")
def canary(r):
    canary_port = r.http_origin(lambda head, _: response(int(head.split(b" ")[1][1:4]), b"x"))
    down = free_port()
    admin = free_port()
    rules = ("{match: /down, to: down}", "{to: canary}")
    upstreams = (
        f"canary: {{endpoints: '127.0.0.1:{canary_port}'}}, "
        f"down: {{endpoints: '127.0.0.1:{down}'}}"
    )
    port, _ = start(r, *rules, upstreams=upstreams, more=f"admin: {{address: 127.0.0.1:{admin}}}\n")
    until("the administration", lambda: metrics(admin))
    for target, status in (("/200", 200), ("/200", 200), ("/404", 404), ("/503", 503), ("/down", 503)):
        expect(target, status, get(port, target).status)
    found = metrics(admin)
    for code, count_of in ((200, 2), (404, 1), (503, 1)):
        expect(f"code {code}", count_of, found.get(f'ringmain_requests_total{{route="all",upstream="canary",code="{code}"}}'))
    duration = 'ringmain_request_duration_seconds_count{route="all",upstream="canary",class="5xx"}'
    expect("durations of errors", 1, found.get(duration))
    well, ill = f'upstream="canary",endpoint="127.0.0.1:{canary_port}"', f'upstream="down",endpoint="127.0.0.1:{down}"'
    expect("a healthy endpoint", 1, found.get(f"ringmain_endpoint_healthy{{{well}}}"))
    expect("an endpoint that refused the connection a moment ago", 0, found.get(f"ringmain_endpoint_healthy{{{ill}}}"))
    check(found.get(f"ringmain_endpoint_failures_total{{{ill}}}", 0) > 0, "no failures of the endpoint that is down")
    check(abs(time.time() - found["process_start_time_seconds"]) < 60, "process_start_time_seconds is not now")
    check(0 < found["process_open_fds"] < found["process_max_fds"], "process_open_fds")


@case("G13", "the expiry of certificates is in /metrics")
def expiry(r):
    key = [need("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30", "-subj", "/CN=a.example",
           "-addext", "subjectAltName=DNS:a.example", "-keyout", r.dir / "key.pem", "-out", r.dir / "cert.pem"]
    subprocess.run(key, check=True, capture_output=True)
    port, admin = free_port(), free_port()
    r.gateway(
        f"listeners: {{h: {{address: 127.0.0.1:{port}, tls: {{certificates: own}}}}}}\n"
        "certificates: {own: {chain: cert.pem, key: key.pem}}\n"
        f"routes: {{all: {{rules: [{{respond: 200}}]}}}}\nadmin: {{address: 127.0.0.1:{admin}}}\n",
        port=admin,
    )
    at = metrics(admin).get('ringmain_certificate_expiry_timestamp_seconds{certificate="own"}', 0)
    check(29 < (at - time.time()) / 86400 < 31, f"expected about 30 days from now, found {at}")


@case("G14", "the dashboard shows no -0, the broker that is down, and why an endpoint is unhealthy")
def dashboard(r):
    def teapot(s):
        while read_head(s)[0] is not None:
            s.sendall(response(418, b"x"))

    origin, admin, broker = r.origin(teapot), free_port(), free_port()
    check_ = "health: {active: {path: /healthz, every: 1s, unhealthy_after: 1}}"
    port, _ = start(
        r, "{match: /push, push: true}", "{to: up}", upstreams=f"up: {{endpoints: '127.0.0.1:{origin}', {check_}}}",
        more=f"admin: {{address: 127.0.0.1:{admin}}}\npush: {{nats: {{market: {{servers: 'nats://127.0.0.1:{broker}', subjects: 'a.>'}}}}}}\n",
    )

    def figures():
        with connect(admin) as s:
            s.sendall(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            text = b""
            documents = []
            while len(documents) < 2:
                received = s.recv(65536)
                check(received, f"the figures end: {text!r}")
                text += received
                documents = [line[6:] for line in text.split(b"\n") if line.startswith(b"data: ") and line.endswith(b"}")]
            return documents[1]

    def unhealthy():
        document = json.loads(figures())
        end = document["upstreams"][0]["endpoints"][0]
        return document if end["state"] == "unhealthy" else None

    document = until("an unhealthy endpoint", unhealthy)
    check(b"-0" not in figures(), "the figures have -0")
    why = document["upstreams"][0]["endpoints"][0]["why"]
    check("418" in why, f"expected the status of the health check's response, found {why!r}")
    expect("the broker", [("market", False)], [(it["name"], it["is_connected"]) for it in document["brokers"]])
    page = get(admin, "/", "Accept: text/html").body
    check(b"Nothing has gone wrong" not in page, "the page says that nothing has gone wrong")
