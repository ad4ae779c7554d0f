"""Entries of the server, of files and of what clients see of both: H4 to H8, H11, G10, parts of G14 and A19."""

import json
import socket
import ssl
import struct
import subprocess
import time

import rig
from run import case

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
END_STREAM, END_HEADERS = 1, 4
STATIC_STATUS = {8: "200", 9: "204", 10: "206", 11: "304", 12: "400", 13: "404", 14: "500"}
DIGITS = {f"{code:05b}": str(code) for code in range(3)} | {f"{0b011001 + code:06b}": str(3 + code) for code in range(7)}


def literal(name, value):
    """Returns a field of HPACK: a literal without indexing, its texts as they are."""

    def text(octets):
        length = len(octets)
        if length < 127:
            return bytes([length]) + octets
        rest, out = length - 127, bytes([127])
        while rest >= 128:
            out, rest = out + bytes([rest & 127 | 128]), rest >> 7
        return out + bytes([rest]) + octets

    return b"\x00" + text(name.encode()) + text(value.encode())


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def status_of(block):
    """Returns the status of a response's header block, which is its first field."""
    first = block[0]
    if first & 0x80:
        return STATIC_STATUS.get(first & 0x7F, f"index {first & 0x7F}")
    length, octets = block[1] & 0x7F, block[2:2 + (block[1] & 0x7F)]
    if not block[1] & 0x80:
        return octets.decode()
    bits, found, code = "".join(f"{octet:08b}" for octet in octets), "", ""
    for bit in bits:
        code += bit
        if code in DIGITS:
            found, code = found + DIGITS[code], ""
    rig.check(length and len(found) == 3, f"a status of three digits, found {octets!r}")
    return found


def ask_h2(s, fields, stream=1, opening=True):
    """Sends a request without a body over HTTP/2; returns (status or what ended it, body)."""
    block = b"".join(literal(*field) for field in fields)
    hello = PREFACE + frame(4, 0, 0, b"") if opening else b""
    s.sendall(hello + frame(1, END_STREAM | END_HEADERS, stream, block))
    buffer, status, body = b"", None, b""

    def take(count):
        nonlocal buffer
        while len(buffer) < count:
            piece = s.recv(65536)
            if not piece:
                return None
            buffer += piece
        taken, buffer = buffer[:count], buffer[count:]
        return taken

    while True:
        head = take(9)
        if head is None:
            return "closed", body
        length, kind, flags = int.from_bytes(head[:3]), head[3], head[4]
        on = int.from_bytes(head[5:]) & 0x7FFFFFFF
        payload = take(length)
        if kind == 3 and on == stream and status is None:
            return f"RST_STREAM {int.from_bytes(payload)}", body
        if kind == 7:
            return f"GOAWAY {int.from_bytes(payload[4:8])}", body
        if kind == 1 and on == stream:
            status = status_of(payload)
        if kind == 0 and on == stream:
            body += payload
        if kind in (0, 1) and on == stream and flags & END_STREAM:
            return status, body


def request(path="/", authority="localhost", scheme="http", method="GET", more=()):
    return [(":method", method), (":scheme", scheme), (":path", path), (":authority", authority), *more]


def welcome(r, *flags):
    """Starts `ringmain` without a file; returns (port, process)."""
    port = rig.free_port()
    server = r.start("run", "--listen", f"127.0.0.1:{port}", *flags)
    server.wait_port(port)
    return port, server


def echo_fields(r):
    """Starts an origin that answers with the head that it received; returns its port."""
    return r.http_origin(lambda head, body: rig.response(200, head))


def gateway(r, rules, *flags):
    """Starts a gateway with one listener on these rules (YAML, a line each); returns (port, process)."""
    port = rig.free_port()
    lines = "".join(f"      - {rule}\n" for rule in rules)
    config = f"listeners: {{main: {{address: 127.0.0.1:{port}}}}}\nroutes:\n  main:\n    rules:\n{lines}"
    return port, r.gateway(config, *flags, port=port)


# H4: RFC 9113 §8.2.3.


def crumbs(count):
    return [("cookie", f"c{number:03}=0123456789") for number in range(count)]


def expect_cookie(body, count):
    found = rig.field(body, "cookie")
    rig.expect("cookie", "; ".join(value for _, value in crumbs(count)), found)


@case("H4", "120 and 180 cookie crumbs over HTTP/2 are one field, at the server and through the gateway")
def cookie_crumbs(r):
    port, _ = welcome(r)
    for count in (120, 180):
        with rig.connect(port) as s:
            rig.expect(f"{count} crumbs, server", "200", ask_h2(s, request("/json", more=crumbs(count)))[0])
    port, _ = gateway(r, [f"{{match: /, to: 'http://127.0.0.1:{echo_fields(r)}'}}"])
    with rig.connect(port) as s:
        status, body = ask_h2(s, request(more=crumbs(180)))
        rig.expect("180 crumbs, gateway", "200", status)
        expect_cookie(body, 180)


@case("H4", "other fields are still counted, and the bytes of cookies are bounded")
def cookie_bounds(r):
    port, _ = welcome(r)
    with rig.connect(port) as s:
        many = [(f"x-{number}", "1") for number in range(120)]
        rig.expect("120 other fields", "431", ask_h2(s, request("/json", more=many))[0])
    with rig.connect(port) as s:
        rig.expect("14 KB of cookies", "200", ask_h2(s, request("/json", more=[("cookie", "a" * 140)] * 90))[0])


# H5: RFC 9110 §15.3.6, §15.3.5, §15.4.5.


@case("H5", "205, 204 and 304 have no content, from the gateway itself and from upstreams, over both versions")
def no_content(r):
    def answer(head, body):
        status = int(head.split(b" ")[1].rsplit(b"/", 1)[1])
        return rig.response(status, b"") if status == 204 else rig.response(status, b"content")

    origin = r.http_origin(answer)
    port, _ = gateway(r, [
        "{match: /own, respond: {status: 205, body: content}}",
        f"{{match: /up, to: 'http://127.0.0.1:{origin}'}}",
    ])
    with rig.connect(port) as s:
        # One connection: bytes of content that was not announced would be taken for the next response.
        for target in ("/own", "/up/205", "/up/205", "/own"):
            s.sendall(f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            head, rest = rig.read_head(s)
            rig.expect(f"{target}: status", b"205", head.split(b" ")[1])
            rig.expect(f"{target}: length", "0", rig.field(head, "content-length"))
            rig.expect(f"{target}: what follows", b"", rest)
    for target in ("/own", "/up/205"):
        with rig.connect(port) as s:
            rig.expect(f"{target} over HTTP/2", ("205", b""), ask_h2(s, request(target)))


# H6: RFC 9113 §8.3.1.


@case("H6", "`:authority: a` with `host: a:80` is one origin, at the server and through the gateway")
def authority_and_host(r):
    served = [welcome(r)[0], gateway(r, [f"{{match: /, to: 'http://127.0.0.1:{echo_fields(r)}'}}"])[0]]
    for port in served:
        for scheme, authority, host, wanted in [
            ("http", "a", "a:80", "200"),
            ("http", "a:80", "A", "200"),
            ("https", "a", "a:443", "200"),
            ("http", "a", "a:443", "RST_STREAM 1"),
            ("http", "a", "b:80", "RST_STREAM 1"),
        ]:
            with rig.connect(port) as s:
                found = ask_h2(s, request("/", authority, scheme, more=[("host", host)]))[0]
                rig.expect(f"{scheme} {authority} {host}", wanted, found)


# H7


def plain(port, raw=b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"):
    """Sends plain HTTP; returns all that is received until the connection ends in order."""
    with rig.connect(port) as s:
        s.sendall(raw)
        received = b""
        while piece := s.recv(65536):
            received += piece
        return received


def expect_plain_answer(subject, received):
    rig.check(received.startswith(b"HTTP/1.1 400 "), f"{subject}: expected 400 in the clear, found {received[:60]!r}")
    rig.check(b"this port speaks TLS" in received, f"{subject}: expected the reason, found {received!r}")


@case("H7", "plain HTTP on a TLS port: 400 in the clear, and one line in the log for many")
def plain_on_tls(r):
    port, server = welcome(r, "--tls-dev")
    expect_plain_answer("server", plain(port))
    for _ in range(20):
        plain(port)
    # More than the kernel has received when the answer is sent: no reset may cost the client the answer.
    long = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 600000\r\n\r\n" + b"x" * 600_000
    expect_plain_answer("a body", plain(port, long))
    line = server.wait_output(r"(?m)^.*this port speaks TLS.*$")
    rig.check("plain HTTP" in line[0], line[0])
    lines = server.output().count("this port speaks TLS")
    rig.check(lines <= 4, f"expected a few lines for 22 requests, found {lines}")


def certificate(r):
    """Makes a certificate for localhost; returns the paths of chain and key."""
    chain, key = r.dir / "chain.pem", r.dir / "key.pem"
    subprocess.run([rig.need("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out",
                    chain], check=True, capture_output=True)
    return chain, key


@case("H7", "the same at the gateway: on listeners for HTTPS, for passthrough, and for both")
def plain_on_tls_gateway(r):
    chain, key = certificate(r)
    https, passed = rig.free_port(), rig.free_port()
    origin = r.http_origin()
    server = r.gateway(
        f"certificates: {{own: {{chain: {chain}, key: {key}}}}}\n"
        "listeners:\n"
        f"  web: {{address: 127.0.0.1:{https}, protocol: https, tls: {{certificates: own}}}}\n"
        f"  pass: {{address: 127.0.0.1:{passed}, protocol: tls_passthrough}}\n"
        f"routes: {{web: {{to: 'http://127.0.0.1:{origin}', listeners: web}}}}\n"
        f"streams: {{all: {{listeners: pass, to: 'http://127.0.0.1:{origin}'}}}}\n", port=https)
    expect_plain_answer("https", plain(https))
    expect_plain_answer("passthrough", plain(passed))
    rig.check("this port speaks TLS" in server.output(), "expected a log line")


# H8


@case("H8", "a server name that is no DNS name: the log says so")
def odd_names(r):
    port, server = welcome(r, "--tls-dev")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with rig.connect(port) as s:
        try:
            context.wrap_socket(s, server_hostname="*.x.com").close()
        except ssl.SSLError:
            pass
    server.wait_output(r"(?i)server name .*no DNS name")
    with rig.connect(port) as s, context.wrap_socket(s, server_hostname="unknown.example") as tls:
        tls.sendall(b"GET /json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        rig.check(tls.recv(100).startswith(b"HTTP/1.1 "), "another name: the default certificate")


# H11


@case("H11", "`Accept: text/html;q=0` is no wish for HTML")
def accept_quality(r):
    port, _ = welcome(r)
    for accept, kind in [
        ("text/html", "text/html"),
        ("text/html;q=0", "text/plain"),
        ("text/html; q=0.0, */*", "text/plain"),
        ("text/plain, text/html;q=0.5", "text/plain"),
        ("text/html,application/xhtml+xml,*/*;q=0.8", "text/html"),
        ("*/*", "text/plain"),
    ]:
        found = rig.get(port, "/", f"Accept: {accept}").field("content-type").split(";")[0]
        rig.expect(f"Accept: {accept}", kind, found)


# G10: RFC 9110 §13.2.2.


@case("G10", "files evaluate all preconditions, in the order of RFC 9110")
def preconditions(r):
    r.file("root/data.bin", bytes(range(256)) * 4)
    port, _ = gateway(r, [f"{{match: /, files: {r.dir / 'root'}}}"])
    whole = rig.get(port, "/data.bin")
    tag, date = whole.field("etag"), whole.field("last-modified")
    old, late = "Sun, 06 Nov 1994 08:49:37 GMT", "Fri, 06 Nov 2099 08:49:37 GMT"
    for fields, wanted in [
        ([f"If-Match: {tag}"], 200),
        (['If-Match: "zz"'], 412),
        (['If-Match: "zz"', "Range: bytes=100-109"], 412),
        ([f'If-Match: "zz", {tag}', "Range: bytes=100-109"], 206),
        ([f"If-Match: W/{tag}"], 412),
        (["If-Match: *"], 200),
        ([f"If-Unmodified-Since: {old}"], 412),
        ([f"If-Unmodified-Since: {date}"], 200),
        ([f"If-Match: {tag}", f"If-Unmodified-Since: {old}"], 200),
        ([f"If-None-Match: {tag}"], 304),
        ([f"If-None-Match: {tag}", 'If-Match: "zz"'], 412),
        ([f"If-Modified-Since: {late}"], 304),
        ([f"If-Modified-Since: {old}"], 200),
        ([f'If-None-Match: "zz"', f"If-Modified-Since: {late}"], 200),
        (["Range: bytes=1-2", f"If-Range: {tag}"], 206),
        (["Range: bytes=1-2", f"If-Range: {date}"], 206),
        (["Range: bytes=1-2", f"If-Range: W/{tag}"], 200),
        (["Range: bytes=1-2", f"If-Range: {late}"], 200),
    ]:
        for method in ("GET", "HEAD"):
            expected = 200 if method == "HEAD" and wanted == 206 else wanted
            found = rig.get(port, "/data.bin", *fields, method=method)
            rig.expect(f"{method} {fields}", expected, found.status)
            if found.status in (304, 412):
                rig.expect(f"{fields}: content", b"", found.body)


# G14


@case("G14", "files have the types that browsers and players expect, and the configuration adds more")
def media_types(r):
    kinds = {
        "vtt": "text/vtt", "m3u8": "application/vnd.apple.mpegurl", "ts": "video/mp2t", "m4a": "audio/mp4", "mov": "video/quicktime",
        "opus": "audio/ogg", "aac": "audio/aac", "flac": "audio/flac", "xhtml": "application/xhtml+xml",
        "rss": "application/rss+xml", "atom": "application/atom+xml", "bmp": "image/bmp", "tiff": "image/tiff", "js": "text/javascript",
        "css": "text/css", "html": "text/html", "mp4": "video/mp4", "none": "application/octet-stream",
    }
    for kind in [*kinds, "usdz"]:
        r.file(f"root/a.{kind}", "x")
    root = r.dir / "root"
    port, _ = gateway(r, [f"{{match: /, files: {root}}}"])
    for extension, kind in kinds.items():
        found = rig.get(port, f"/a.{extension}").field("content-type").split(";")[0]
        rig.expect(extension, kind, found)
    port, _ = gateway(r, [f"{{match: /, files: {{root: {root}, types: {{usdz: model/vnd.own+zip, html: text/x-own}}}}}}"])
    rig.expect("added", "model/vnd.own+zip", rig.get(port, "/a.usdz").field("content-type"))
    rig.expect("replaced", "text/x-own", rig.get(port, "/a.html").field("content-type"))


@case("G14", "the access log of `ringmain` keeps request line, request id and version of 413 and 414")
def refused_lines(r):
    log = r.dir / "access.log"
    port, _ = welcome(r, "--access-log", str(log), "--access-log-format", "json", "--body-limit", "1KiB")
    with rig.connect(port) as s:
        answer = rig.exchange(s, b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\n\r\n")
        rig.expect("too long a body", 413, answer.status)
    with rig.connect(port) as s:
        answer = rig.exchange(s, b"POST /echo?chunks HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1000\r\n" + b"x" * 4096)
        rig.expect("too long a body in chunks", 413, answer.status)
    with rig.connect(port) as s:
        answer = rig.exchange(s, b"GET /long?" + b"x" * 40_000 + b" HTTP/1.0\r\nHost: a\r\n\r\n")
        rig.expect("too long a target", 414, answer.status)
    lines = rig.until("three lines", lambda: (found := log.read_text().splitlines()) and len(found) == 3 and found)
    found = [json.loads(line) for line in lines]
    rig.expect("targets", [("GET", "/long?"), ("POST", "/echo"), ("POST", "/echo?chunks")],
               sorted((line.get("method"), line.get("target", "")[:12].split("x")[0]) for line in found))
    rig.expect("versions", True, all("version" in line or "protocol" in line for line in found))


# A19


@case("A19", "dot files are not served, `.well-known` is, and a key brings the rest back")
def dot_files(r):
    for name in (".env", ".git/config", "a/.htpasswd", ".well-known/security.txt", "index.html"):
        r.file(f"root/{name}", name)
    root = r.dir / "root"
    port, _ = gateway(r, [f"{{match: /, files: {root}}}"])
    for path in ("/.env", "/.git/config", "/a/.htpasswd", "/%2eenv", "/.git/", "/.well-known/../.env"):
        rig.expect(path, 404, rig.get(port, path).status)
    rig.expect("well-known", 200, rig.get(port, "/.well-known/security.txt").status)
    port, _ = gateway(r, [f"{{match: /, files: {{root: {root}, dot_files: true}}}}"])
    rig.expect("with the key", 200, rig.get(port, "/.env").status)


@case("A19", "the access log hides what the configuration declares to be a secret in queries, also after a reload")
def declared_secrets(r):
    log, port = r.dir / "access.log", rig.free_port()

    def config(name):
        return (f"access_log: {{to: {log}}}\nlisteners: {{main: {{address: 127.0.0.1:{port}}}}}\n"
                "routes:\n  main:\n    rules:\n"
                f"      - {{match: /, respond: 200, policies: {{api_keys: {{query: {name}, keys: "
                "{one: 'sha256:531854cef641648c7817441c3a04ae025e91d882aa1ac318057cba7e979b2140'}}}}\n")

    server = r.gateway(config("apikey"), port=port)
    rig.expect("with its key", 200, rig.get(port, "/?a=1&apikey=not-a-secret").status)
    rig.expect("elsewhere", 401, rig.get(port, "/none?other=not-a-secret").status)
    r.replace(server.config, config("other"))
    rig.until("the reload", lambda: rig.get(port, "/?apikey=not-a-secret").status == 401)
    rig.expect("with the new key", 200, rig.get(port, "/?other=not-a-secret").status)
    rig.until("lines", lambda: "other=***" in log.read_text(), seconds=5)
    text = log.read_text()
    rig.check("/?a=1&apikey=***" in text, f"expected the key to be hidden:\n{text}")
    rig.expect("keys that a configuration has declared", 1, text.count("not-a-secret"))
