"""For each feature of examples/shop.yaml a script of requests, in the order in which they are run: shop.py runs them.

Must not start processes but through `shop_stage.Shop`. A script that returns is right; Failed, asking.Broken and OSError say
what is not.
"""

import contextlib
import socket
import ssl
import subprocess
import threading
import uuid

import asking
import shop_stage as stage
from shop_stage import Failed, expect

CASES = []


def case(name):
    """Puts a script on the list."""

    def put(script):
        CASES.append((name, script))
        return script

    return put


def common_name(connection):
    """Of the certificate that a server has shown."""
    return dict(pair for part in connection.socket.getpeercert()["subject"] for pair in part)["commonName"]


def ended(connection):
    """Whether nothing comes but the end."""
    return connection.rest() == b""


@case("check and explain: the file is right, and says where a request goes")
def check_and_explain(shop):
    words = [[shop.ours, "check", str(shop.file)],
             [shop.ours, "explain", str(shop.file), "POST", f"https://shop.example:{shop.ports[8443]}/cart"]]
    said = [subprocess.run(line, capture_output=True, text=True, check=False) for line in words]
    expect("exit codes 0", [0, 0], [done.returncode for done in said])
    expect("the rule `cart`", True, "cart" in said[1].stdout)


@case("listener plain: redirect to https, with the port and the query")
def redirect_to_https(shop):
    answer = shop.plain("/cart?a=1")
    expect("308 to the same URL", (308, f"https://shop.example:{shop.ports[8443]}/cart?a=1"),
           (answer.status, answer.field("location")))


@case("listener secure: SNI chooses the certificate")
def sni(shop):
    for name, wanted in (("shop.example", "shop"), ("www.shop.example", "shop"), ("tenant.shop.example", "wildcard")):
        with shop.connect(name) as connection:
            expect(f"the certificate for {name}", wanted, common_name(connection))
            expect("http/1.1 by ALPN", "http/1.1", connection.socket.selected_alpn_protocol())


@case("listener secure: TLS 1.2 is spoken, and nothing older")
def versions(shop):
    for version, is_spoken in ((ssl.TLSVersion.TLSv1_2, True), (ssl.TLSVersion.TLSv1_1, False)):
        context, name = shop.tls()
        context.set_ciphers("DEFAULT:@SECLEVEL=0")
        context.minimum_version = context.maximum_version = version
        try:
            with asking.Connection(shop.ports[8443], (context, name)) as connection:
                found = connection.ask("GET", "/robots.txt", name).status == 200
        except ssl.SSLError:
            found = False
        expect(f"{version.name} spoken", is_spoken, found)


@case("listener staff: only with a certificate of the staff's authority, sent on over a Unix socket")
def client_certificates(shop):
    name = "staff.shop.example"
    with shop.connect(name, "member") as connection:
        answer = connection.ask("GET", "/desk", name)
        expect("the answer from the Unix socket", (200, "admin"), (answer.status, answer.json()["server"]))
    with shop.connect(name) as connection:
        expect("no entrance without a certificate", 403, connection.ask("GET", "/desk", name).status)
    try:
        with shop.connect(name, "mail") as connection:
            found = connection.ask("GET", "/desk", name).status
    except (OSError, asking.Broken):
        found = "refused"
    expect("another authority's certificate", "refused", found)


@case("421 for a host of another listener than the handshake's")
def misdirected(shop):
    for own, other in (("shop.example", "staff.shop.example"), ("staff.shop.example", "shop.example")):
        with shop.connect(own, "member") as connection:
            expect(f"{other} on a connection for {own}", 421, connection.ask("GET", "/", other).status)
    with shop.connect("shop.example") as connection:
        expect("another host of the same listener", 204, connection.ask("GET", "/status", "tenant.shop.example").status)


@case("listener balanced: PROXY protocol 1 and 2 say who the client is, and nobody comes in without")
def proxy_protocol_in(shop):
    port = shop.ports[8081]
    second = (b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + socket.inet_aton("203.0.113.8") + socket.inet_aton("10.0.0.1")
              + (40000).to_bytes(2, "big") + (443).to_bytes(2, "big"))
    for client, header in (("203.0.113.7", b"PROXY TCP4 203.0.113.7 10.0.0.1 40000 443\r\n"), ("203.0.113.8", second)):
        answer = asking.ask(port, "GET", "/catalogue/1", "shop.example", first=header)
        expect("the client of the header", [client], answer.json()["headers"]["X-Forwarded-For"])
    with asking.Connection(port) as connection:
        connection.send(b"GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n")
        expect("no answer without a header", True, ended(connection))


@case("client address: a client that nobody trusts says nothing of itself, and of the connection")
def spoofed_headers(shop):
    claims = [("X-Forwarded-For", "10.9.9.9"), ("X-Forwarded-Proto", "http"), ("X-Forwarded-Host", "evil"),
              ("Forwarded", "for=10.9.9.9"), ("Connection", "x-secret, keep-alive"), ("X-Secret", "1"), ("Keep-Alive", "5"),
              ("TE", "gzip"), ("Proxy-Connection", "x")]
    found = shop.ask("/catalogue/1", headers=claims).json()["headers"]
    expect("the truth", (["127.0.0.1"], ["https"], ["shop.example"]),
           tuple(found.get(name) for name in ("X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host")))
    passed = {"Connection", "X-Secret", "Keep-Alive", "Te", "Proxy-Connection"} & set(found)
    expect("nothing of one hop on the next", set(), passed)
    expect("no other Forwarded", None, found.get("Forwarded"))


@case("requests that two servers could read differently are refused")
def smuggling(shop):
    for text in ("POST / HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                 "GET / HTTP/1.1\r\nHost: shop.example\r\nHost: evil\r\n\r\n",
                 "GET / HTTP/1.1\r\nHost : shop.example\r\n\r\n"):
        with shop.connect() as connection:
            connection.send(text.encode())
            answer = connection.answer()
            expect(f"400 to {text[:40]!r}", (400, True), (answer.status, ended(connection)))


@case("limits: a head above 32 KiB is refused")
def large_head(shop):
    expect("431", 431, shop.ask("/", headers=[("X-Large", "x" * 40_000)]).status)
    expect("a large one that fits", 200, shop.ask("/", headers=[("X-Large", "x" * 8000)]).status)


@case("route canonical: www goes to the one host, whatever is asked for")
def canonical(shop):
    for target in ("/", "/cart?a=1"):
        answer = shop.ask(target, host="www.shop.example")
        expect("the other host, and the rest as it was", (301, f"https://shop.example:{shop.ports[8443]}{target}"),
               (answer.status, answer.field("location")))


def not_found(shop):
    """What the rule for everything else answers in place of a 404."""
    return (shop.here / "not-found.html").read_bytes()


@case("rule catalogue: prefix rewritten, headers set and removed both ways")
def catalogue(shop):
    answer = shop.ask("/catalogue/7?x=1", headers=[("X-Internal-User", "root"), ("X-Shop", "another")])
    found = answer.json()
    expect("the path in place of the prefix", "/v1/items/7?x=1", found["url"])
    expect("request headers", ([stage.SHOP_NAME], None),
           (found["headers"].get("X-Shop"), found["headers"].get("X-Internal-User")))
    expect("response headers", ("max-age=60", None), (answer.field("cache-control"), answer.field("server")))
    expect("whole segments only", (404, not_found(shop)), shop.ask("/catalogues")[::2])


@case("paths are normalised before they are matched, and sent on in that form")
def normalised(shop):
    expect("dots and escapes", "/v1/items/7", shop.ask("/x/../catalogue/./a/%2e%2e/7").json()["url"])
    expect("an escaped letter", b"User-agent: *\nDisallow: /cart\n", shop.ask("/%72obots.txt").body)
    expect("no way above the root", 400, shop.ask("/../../etc/passwd").status // 100 * 100)


@case("rule bulk: by method and header, or by query, and with 20 MiB of body")
def bulk(shop):
    kind = ("Content-Type", "application/x-ndjson")
    found = shop.ask("/catalogue", "POST", [kind], (b"x" * 65_536 for _ in range(320))).json()
    expect("the bulk rule, with all of the body", ("/catalogue", 20 << 20), (found["url"], found["bytes"]))
    expect("by query", "/catalogue?bulk=1", shop.ask("/catalogue?bulk=1").json()["url"])
    found = shop.ask("/catalogue", "POST", [("Content-Type", "text/plain")], b"x").json()
    expect("another type", "/v1/items", found["url"])
    answer = shop.ask("/catalogue", "POST", [("Content-Type", "text/plain"), ("Content-Length", str(17 << 20))])
    expect("the default limit of other bodies", 413, answer.status)


@case("retry: 503 is tried again, a connection that breaks too")
def retry(shop):
    key = uuid.uuid4().hex
    answer = shop.ask(f"/catalogue/1?status=503&once={key}")
    expect("the answer of another try", 200, answer.status)
    target = f"/catalogue/{key}?reset=1"
    expect("what is left after all tries", 502, shop.ask(target).status)
    line = stage.until("a line of the log", lambda: shop.logged(target))
    expect("three tries, and their end in the log", (3, "closed_before_head"), (line["tries"], line["fault"]))
    expect("a POST is not done twice", 503, shop.ask(f"/catalogue/1?status=503&once=post-{key}", "POST", body=b"x").status)


@case("timeouts: a try may take 3 s")
def timeouts(shop):
    expect("504", 504, shop.ask("/catalogue/1?wait=30s").status)


@case("rule cart: a client stays with the server that has its cart")
def affinity(shop):
    first = shop.ask("/cart", "POST", body=b"a book")
    cookie = first.field("set-cookie") or ""
    expect("a cookie for a week", True, cookie.startswith("cart=") and "Max-Age=604800" in cookie and "HttpOnly" in cookie)
    own = ("Cookie", cookie.partition(";")[0])
    found = [shop.ask("/cart", headers=[own]).json() for _ in range(12)]
    expect("one server", {first.json()["server"]}, {account["server"] for account in found})
    servers = {shop.ask("/cart").json()["server"] for _ in range(40)}
    expect("new clients at both", {"cart-a", "cart-b"}, servers)


@case("rule cart: a body above 1 MiB is refused")
def cart_limit(shop):
    expect("413", 413, shop.ask("/cart", "POST", body=b"x" * (2 << 20)).status)
    expect("413, chunked", 413, shop.ask("/cart", "POST", body=(b"x" * 65_536 for _ in range(32))).status)


@case("rule search: a tenth to the next version, marked; by exact path and method")
def split(shop):
    before = shop.backend(3016)["canary"]
    servers = []
    with shop.connect() as connection:
        for number in range(400):
            servers.append(connection.ask("GET", f"/search?q={number}", "shop.example").json()["server"])
    share = servers.count("search-next")
    expect("about a tenth of 400 at the next version", True, 10 <= share <= 90)
    expect("each of them marked", share, shop.backend(3016)["canary"] - before)
    expect("one other", 1, len(set(servers) - {"search-next"}))
    for target, method in (("/search/more", "GET"), ("/search", "PUT")):
        expect(f"{method} {target} not searched", (404, not_found(shop)), shop.ask(target, method)[::2])


@case("rule search: the same path always at the same endpoint (maglev)")
def maglev(shop):
    servers = {shop.ask("/search?q=1").json()["server"] for _ in range(60)}
    expect("one of the two, and the next version", 1, len(servers - {"search-next"}))


@case("rule search: some requests are copied to the next version")
def mirror(shop):
    before = shop.backend(3016)
    with shop.connect() as connection:
        for number in range(400):
            connection.ask("GET", f"/search?copied={number}", "shop.example")

    def copied():
        now = shop.backend(3016)
        return now["seen"] - before["seen"] - (now["canary"] - before["canary"])

    stage.until("copies at the next version", lambda: copied() > 0, 10)
    expect("about a tenth of 400", True, 10 <= copied() <= 90)


@case("rule live: WebSocket both ways, and the close")
def websocket(shop):
    with shop.connect() as connection:
        answer = connection.upgrade("/live", "shop.example")
        expect("101 with the right accept", (101, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
               (answer.status, answer.field("sec-websocket-accept")))
        expect("a greeting by the server", (1, answer.field("x-backend").encode()), connection.message())
        for opcode, payload in ((1, b"hello"), (2, bytes(range(256)) * 250)):
            connection.send_message(payload, opcode)
            expect("the message back", (opcode, payload), connection.message())
        connection.send_message(b"\x03\xe8", 8)
        expect("the close", (8, b"\x03\xe8"), connection.message())
        expect("the end", True, ended(connection))


@case("rule live: no other protocol is switched to")
def other_upgrades(shop):
    answer = shop.ask("/live", headers=[("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"), ("HTTP2-Settings", "")])
    expect("an ordinary answer", 200, answer.status)
    expect("no word of it at the server", set(), {"upgrade", "connection", "http2-settings"} & set(answer.json()["headers"])
           - ({"connection"} if answer.json()["headers"].get("connection") == "keep-alive" else set()))


@case("rule pay: TLS both ways by a name, and another host")
def mutual_tls(shop):
    found = shop.ask("/pay/1").json()
    expect("its host, and our certificate", ("payment.internal", "gateway"), (found["host"], found["client"]))


@case("rule product pages: an expression, of the whole path")
def expression(shop):
    key = uuid.uuid4().hex
    for target, rule in ((f"/p/42-{key}", "product pages"), (f"/p/x-{key}", "everything else"),
                         (f"/p/42-{key}/more", "everything else")):
        shop.ask(target)
        expect(f"the rule of {target}", rule, stage.until("a line of the log", lambda t=target: shop.logged(t))["rule"])


@case("rule assets: files, kept for an hour, in part, and only once")
def files(shop):
    answer = shop.ask("/assets/shop.css")
    whole = (shop.here / "assets" / "shop.css").read_bytes()
    expect("the file", (200, whole, True), (answer.status, answer.body, answer.field("content-type").startswith("text/css")))
    expect("an hour", "max-age=3600", answer.field("cache-control"))
    tag = answer.field("etag")
    expect("304 to whoever has it", (304, b""), shop.ask("/assets/shop.css", headers=[("If-None-Match", tag)])[::2])
    part = shop.ask("/assets/shop.css", headers=[("Range", "bytes=2-5")])
    expect("a part", (206, whole[2:6]), (part.status, part.body))
    expect("no body for HEAD", (200, str(len(whole))),
           (lambda a: (a.status, a.field("content-length")))(shop.ask("/assets/shop.css", "HEAD")))
    for target in ("/assets/none.css", "/assets/%2e%2e%2fnot-found.html", "/assets/..%2fshop.key"):
        expect(f"nothing at {target}", True, shop.ask(target).status in (400, 404))
    expect("405 to what changes", 405, shop.ask("/assets/shop.css", "DELETE").status)


@case("rule application: paths that are no file get the page that routes in the browser")
def fallback(shop):
    page = (shop.here / "app" / "index.html").read_bytes()
    for target in ("/app/", "/app/orders/7"):
        answer = shop.ask(target)
        expect(f"the page at {target}", (200, page), (answer.status, answer.body))


@case("rule robots: an answer of the gateway's own")
def direct(shop):
    expect("the text", (200, b"User-agent: *\nDisallow: /cart\n"), shop.ask("/robots.txt")[::2])


@case("rule everything else: the upstream's errors get the shop's pages, with their status")
def error_pages(shop):
    answer = shop.ask("/nothing-here")
    expect("404 with the page", (404, not_found(shop)), (answer.status, answer.body))
    expect("HTML", True, (answer.field("content-type") or "").startswith("text/html"))
    expect("502 with the text", (502, True), (lambda a: (a.status, b"closed for a moment" in a.body))(shop.ask("/broken")))


@case("route tenants: any host below the shop's")
def tenants(shop):
    expect("204", (204, b""), shop.ask("/status", host="tenant.shop.example")[::2])
    expect("the host as it came", b"the shop of tenant.shop.example\n", shop.ask("/", host="tenant.shop.example").body)


@case("listener passthrough: TLS to the mail server, which is told of the client by PROXY protocol")
def passthrough(shop):
    context = asking.trusting(shop.here / "mail.crt")
    with asking.Connection(shop.ports[9443], (context, "mail.shop.example")) as connection:
        expect("the mail server's own certificate", "mail", common_name(connection))
        client = "{}:{}".format(*connection.socket.getsockname())
        expect("a greeting by the client's name", f"220 mail.shop.example for {client}".encode(), connection.until(b"\r\n"))
        connection.send(b"EHLO client\r\n")
        expect("an answer", b"250 EHLO client", connection.until(b"\r\n"))
    with contextlib.suppress(OSError, asking.Broken):
        asking.Connection(shop.ports[9443], (context, "shop.example")).__exit__()
        raise Failed("expected no handshake for a host that nobody has, found one")


@case("listener database: bytes both ways, and each way ends by itself")
def tcp(shop):
    with asking.Connection(shop.ports[5433]) as connection:
        data = b"select " * 40_000
        sender = threading.Thread(target=connection.send, args=(data,))
        sender.start()
        expect("all bytes, from the database", data.upper(), connection.take(len(data)))
        sender.join()
        connection.socket.shutdown(socket.SHUT_WR)
        expect("its last words", b"BYE\n", connection.rest())


@case("admin: health, routes, upstreams, metrics, the file without secrets")
def admin(shop):
    expect("well and ready", [200, 200], [shop.admin(path).status for path in ("/healthz", "/readyz")])
    expect("no problems", [], shop.admin("/routes").json()["problems"])
    names = {upstream["name"] for upstream in shop.admin("/upstreams").json()["upstreams"]}
    expect("all upstreams", True, {"catalogue", "cart", "payment", "admin", "mail"} <= names)
    metrics = shop.admin("/metrics").body.decode()
    expect("requests by route", True, 'route="shop"' in metrics)
    expect("what a secret is called, not what it is", True, b"${env:SHOP_NAME}" in shop.admin("/config").body)


@case("access log: who asked, which rule took it, who answered")
def access_log(shop):
    target = f"/catalogue/{uuid.uuid4().hex}"
    endpoint = shop.ask(target).json()["server"]
    line = stage.until("a line of the log", lambda: shop.logged(target))
    expect("the line", ("127.0.0.1", "GET", 200, "shop", "catalogue", "catalogue", 1),
           tuple(line.get(key) for key in ("remote", "method", "status", "route", "rule", "upstream", "tries")))
    port = shop.ports[3002 if endpoint == "catalogue-a" else 3003]
    expect("its endpoint", f"127.0.0.1:{port}", line["endpoint"])


def endpoint(shop, upstream, key):
    """What the administration says of one endpoint."""
    found = next(u for u in shop.admin("/upstreams").json()["upstreams"] if u["name"] == upstream)
    return next(e for e in found["endpoints"] if e["address"] == f"127.0.0.1:{shop.ports[key]}")


@case("active health: who is not well gets no requests, and gets them again")
def active_health(shop):
    shop.backend(3003, "/control?healthy=false", "POST")
    stage.until("catalogue-b found ill", lambda: endpoint(shop, "catalogue", 3003)["health"] == "unhealthy")
    servers = {shop.ask("/catalogue/1").json()["server"] for _ in range(40)}
    expect("the other one", {"catalogue-a"}, servers)
    shop.backend(3003, "/control?healthy=true", "POST")
    stage.until("catalogue-b found well", lambda: endpoint(shop, "catalogue", 3003)["health"] == "healthy")
    stage.until("its requests", lambda: shop.ask("/catalogue/1").json()["server"] == "catalogue-b")


@case("outliers: who answers badly five times in a row is left out, but never more than half")
def outliers(shop):
    with shop.connect() as connection:
        for number in range(60):
            connection.ask("GET", f"/catalogue/{number}?status=500", "shop.example")
    servers = {shop.ask("/catalogue/1").json()["server"] for _ in range(40)}
    expect("one of two left out", 1, len(servers))


@case("an upstream that is gone: the shop's own page with 503, and all is well when it is back")
def closed(shop):
    shop.stop("pages")
    answer = shop.ask("/")
    expect("503 with the text", (503, True), (answer.status, b"closed for a moment" in answer.body))
    shop.start(3001)
    expect("back", 200, shop.ask("/").status)


@case("reload: a change is live, a broken file changes nothing, and an open WebSocket does not notice")
def reload(shop):
    text = shop.file.read_text()
    with shop.connect() as live:
        live.upgrade("/live", "shop.example")
        live.message()
        shop.file.write_text(text.replace("Disallow: /cart", "Disallow: /nothing"))
        stage.until("the new answer", lambda: b"/nothing" in shop.ask("/robots.txt").body)
        shop.file.write_text("listeners: [")
        stage.until("the broken file told of", lambda: "goes on serving" in shop.gateway.last_output(20))
        expect("what served", True, b"/nothing" in shop.ask("/robots.txt").body)
        shop.file.write_text(text)
        stage.until("the old answer", lambda: b"/cart" in shop.ask("/robots.txt").body)
        live.send_message(b"still here")
        expect("the message back", (1, b"still here"), live.message())


@case("reload: certificates that are replaced are shown to new connections")
def certificates(shop):
    def shown():
        with shop.connect() as connection:
            return connection.socket.getpeercert(True)

    before = shown()
    shop.make_certificates()
    stage.until("the new certificate", lambda: shown() != before)
    expect("requests", 200, shop.ask("/robots.txt").status)


@case("drain: what is under way is answered, and the process ends with 0")
def drain(shop):
    with shop.connect() as connection:
        connection.begin("GET", "/catalogue/1?wait=2s", "shop.example")
        stage.until("the request under way", lambda: sum(
            endpoint(shop, "catalogue", key)["requests"] for key in (3002, 3003)))
        shop.gateway.process.terminate()
        expect("the answer", 200, connection.answer().status)
    expect("exit code 0", 0, shop.gateway.process.wait(asking.SECONDS))
    shop.start_gateway()
