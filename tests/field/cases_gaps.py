"""Cases of client certificates, misdirected requests, explanations, variables, queues and build paths."""

import contextlib
import json
import pathlib
import re
import ssl
import subprocess
import threading

import rig
from cases_configuration import certificate, client_certificate
from rig import REPO, check, expect, free_port
from run import case

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


def context(alpn=None):
    """Returns a client's TLS settings that trust anybody."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    if alpn:
        made.set_alpn_protocols(alpn)
    return made


def ends(s):
    """Whether the server ends the connection."""
    with contextlib.suppress(OSError):
        return s.recv(1) == b""
    return True


@case("G6", "`mode: unchecked` admits every client, and an invalid certificate proves nothing")
def unchecked(r):
    certificate(r, "one")
    client_certificate(r)
    certificate(r, "stranger", "clerk.example")
    seen = []
    origin = r.http_origin(lambda head, body: seen.append(head) or rig.response(200, b"ok"))
    port = free_port()
    to = f'to: "http://127.0.0.1:{origin}"'
    r.gateway(f"""\
listeners: {{s: {{address: 127.0.0.1:{port}, tls: {{certificates: c, clients: {{authorities: ca, mode: unchecked}}}}}}}}
certificates: {{c: {{chain: one.crt, key: one.key}}}}
authorities: {{ca: ca.crt}}
routes:
  r:
    rules:
      - {{match: /told, {to}, policies: {{client_certificate: {{verification: X-Client-Verify}}}}}}
      - {{match: /required, {to}, policies: {{client_certificate: {{required: true}}}}}}
      - {{match: /, {to}, policies: {{client_certificate: true}}}}
""", port=port)
    for shown, verification, plain, required in [(None, "none", None, 403), ("client", "verified", ":", 200), ("stranger", "unverified", None, 403)]:
        settings = context()
        if shown:
            settings.load_cert_chain(r.dir / f"{shown}.crt", r.dir / f"{shown}.key")
        with settings.wrap_socket(rig.connect(port)) as s:
            def ask(path, fields="", s=s):
                return rig.exchange(s, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n".encode()).status
            forged = "Client-Cert: :AAAA:\r\nX-Client-Verify: verified\r\n"
            expect(f"{shown}: a rule that asks for nothing", 200, ask("/", forged))
            expect(f"{shown}: told to it", plain, (rig.field(seen[-1], "client-cert") or "")[:1] or None)
            expect(f"{shown}: a rule that tells apart", 200, ask("/told", forged))
            expect(f"{shown}: X-Client-Verify", verification, rig.field(seen[-1], "x-client-verify"))
            expect(f"{shown}: a rule that requires one", required, ask("/required"))


@case("A12", "a certificate of an authority that a reload removes is not valid on open connections")
def authorities_replaced(r):
    certificate(r, "one")
    client_certificate(r)
    certificate(r, "other", "other.example")
    port = free_port()
    text = "listeners: {{s: {{address: 127.0.0.1:%d, tls: {{certificates: c{minimum}, clients: {{authorities: [{names}]}}}}}}}}\n" \
           "certificates: {{c: {{chain: one.crt, key: one.key}}}}\nauthorities: {{ca: ca.crt, other: other.crt}}\n" \
           "routes: {{r: {{rules: [{{respond: {{body: come in}}}}]}}}}\n" % port
    process = r.gateway(text.format(names="ca", minimum=""), port=port)
    settings = context()
    settings.load_cert_chain(r.dir / "client.crt", r.dir / "client.key")
    old_version = context()
    old_version.maximum_version = ssl.TLSVersion.TLSv1_2
    old_version.load_cert_chain(r.dir / "client.crt", r.dir / "client.key")

    def reload(**parts):
        count = len(re.findall("reloaded in|and live", process.output()))
        r.replace(process.config, text.format(**parts))
        rig.until("the reload", lambda: len(re.findall("reloaded in|and live", process.output())) > count)

    with settings.wrap_socket(rig.connect(port)) as one, old_version.wrap_socket(rig.connect(port)) as two:
        for s in (one, two):
            expect("before", 200, rig.exchange(s, REQUEST).status)
        reload(names="ca, other", minimum="")
        for s in (one, two):
            expect("with one more authority", 200, rig.exchange(s, REQUEST).status)
        reload(names="ca, other", minimum=", minimum: '1.3'")
        answer = rig.exchange(two, REQUEST)
        expect("by a version that is not spoken any more", (421, "close"), (answer.status, answer.field("connection")))
        expect("by a version that is", 200, rig.exchange(one, REQUEST).status)
        reload(names="other", minimum="")
        answer = rig.exchange(one, REQUEST)
        expect("without its authority", (421, "close"), (answer.status, answer.field("connection")))
        check(ends(one), "the connection stays open")


@case("A12", "421 over HTTP/1.1 closes the connection")
def misdirected_closes(r):
    certificate(r, "one")
    port = free_port()
    r.gateway(f"""\
listeners: {{s: {{address: 127.0.0.1:{port}, hosts: localhost, tls: {{certificates: c}}}}}}
certificates: {{c: {{chain: one.crt, key: one.key}}}}
routes: {{r: {{rules: [{{respond: 204}}]}}}}
""", port=port)
    with context().wrap_socket(rig.connect(port), server_hostname="localhost") as s:
        answer = rig.exchange(s, b"GET / HTTP/1.1\r\nHost: other.example\r\n\r\n")
        expect("another host", (421, "close"), (answer.status, answer.field("connection")))
        check(ends(s), "the connection stays open")


@case("A6", "`ringmain explain` judges requests as the gateway does")
def explained(r):
    port = free_port()
    for slashes in ("", "keep", "decode", "reject"):
        paths = f", escaped_slashes: {slashes}" if slashes else ""
        path = r.file(f"explain-{slashes}.yaml", f"""\
listeners: {{web: {{address: 127.0.0.1:{port}{paths}}}}}
routes:
  host: {{hosts: [a.example], rules: [{{match: /host, respond: {{status: 200, body: "host 1"}}}}]}}
  shop:
    rules:
      - {{match: /admin, respond: {{status: 200, body: "shop 1"}}, policies: {{addresses: {{allow: 127.0.0.0/8}}}}}}
      - {{match: {{path: /cart, method: PUT}}, respond: {{status: 200, body: "shop 2"}}, cors: {{origins: "https://a.example", methods: PUT}}}}
      - {{match: {{path: /cart, method: OPTIONS}}, respond: {{status: 200, body: "shop 3"}}}}
      - {{match: {{path: {{exact: /a/b}}}}, respond: {{status: 200, body: "shop 4"}}}}
      - {{match: {{path: /named, headers: {{host: a.example}}}}, respond: {{status: 200, body: "shop 5"}}}}
      - {{match: /, respond: {{status: 200, body: "shop 6"}}, cors: {{origins: "https://a.example", methods: PUT}}}}
""")
        process = r.start("run", path)
        process.wait_port(port)
        preflight = ("Origin: https://a.example", "Access-Control-Request-Method: PUT")
        for method, host, target, *fields in [
            ("GET", "x.example", "/admin/x"), ("GET", "x.example", "/admin%2fx"), ("GET", "x.example", "/admin%5cx"), ("GET", "x.example", "/%61dmin/x"),
            ("GET", "x.example", "//admin//x"), ("GET", "x.example", "/y/../admin"), ("GET", "x.example", "/y/%2e%2e/admin"), ("GET", "x.example", "/a%2Fb"),
            ("GET", "x.example", "/a/./b"), ("GET", "x.example", "/a/b/"), ("GET", "x.example", "/%zz"), ("GET", "x.example", "/a%00"), ("GET", "x.example", "/ä"),
            ("GET", "x.example", "/a b"), ("GET", "x.example", "/..%2fadmin"),
            ("GET", "A.Example", "/host"), ("GET", "a.example.", "/host"), ("GET", f"A.EXAMPLE.:{port}", "/host"), ("GET", "b.a.example", "/host"),
            ("GET", "a_b.example", "/host"), ("GET", "a.example", "/named"), ("GET", "x.example", "/named", "Host: a.example"),
            ("PUT", "x.example", "/cart"), ("OPTIONS", "x.example", "/cart"), ("OPTIONS", "x.example", "/cart", *preflight),
            ("OPTIONS", "x.example", "/nothing", *preflight), ("GET", "x.example", "/cart", *preflight), ("GET", "x.example", "/a/b?x=%2f"),
        ]:
            what = f"{slashes} {method} {host}{target} {fields}"
            url = f"http://{host.split(':')[0]}:{port}{target}"
            own = [] if any(field.startswith("Host:") for field in fields) else [f"Host: {host}"]
            said = r.run("explain", path, method, url, "--json", *[word for field in [*fields, *own] for word in ("-H", field)])
            head = "\r\n".join([f"{method} {target} HTTP/1.1", *own, *fields, "Connection: close", "", ""])
            with rig.connect(port) as s:
                found = rig.exchange(s, head.encode())
            if found.status in (400, 404):
                check(said.returncode == 1 and str(found.status) in said.stderr, f"{what}: the gateway answers {found.status}, explain {said.stdout} {said.stderr}")
                continue
            check(said.returncode == 0, f"{what}: the gateway answers {found.status} {found.body}, explain {said.stderr}")
            taken = json.loads(said.stdout)["taken"]
            rule = f"{taken['route']} {taken['rule']}"
            if found.field("access-control-allow-methods"):
                expect(f"{what}: a preflight", "shop 2" if "/cart" in target else "shop 6", rule)
            else:
                expect(what, found.body.decode(), rule)
        process.end()


@case("P5", "a variable that does not exist is the only error of its text, in every example")
def missing_variables(r):
    for path in sorted((REPO / "examples").glob("*.yaml")):
        text = path.read_text()
        lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
        names = set(re.findall(r"\$\{env:([A-Z_]+)\}", "\n".join(lines)))
        if not names:
            continue
        bare = {"PATH": "/usr/bin:/bin"}
        checked = subprocess.run([r.binary, "check", path], capture_output=True, text=True, timeout=rig.GUARD_SECONDS, env=bare, check=False)
        expect(f"{path.name}: exit code", 1, checked.returncode)
        about = [line for line in checked.stdout.splitlines() if " expected " in line]
        for line in about:
            check("in the environment" in line or ": expected a file" in line, f"{path.name}: an error that only follows: {line}")
        for name in names:
            check(f"the variable `{name}`" in checked.stdout, f"{path.name}: `{name}` is not named: {checked.stdout}")
    short = r.file("short.yaml", "listen: 127.0.0.1:1\npush: {tokens: {secret: short, algorithms: HS256}}\nroutes: {r: {rules: [{push: true}]}}\n")
    checked = r.run("check", short)
    check("found 5 bytes" in checked.stdout, f"the size is not told: {checked.stdout}")


@case("A1", "from half of `pool.pending` on, the queue is shared by clients")
def queue_shared(r):
    gate = threading.Event()

    def answer(head, body):
        gate.wait(rig.GUARD_SECONDS)
        return rig.response(200, b"ok")

    origin = r.http_origin(answer)
    port = free_port()
    pending = 64
    r.gateway(f"""\
listeners: {{web: {{address: 127.0.0.1:{port}, client_address: {{trusted: 127.0.0.0/8}}}}}}
upstreams: {{app: {{endpoints: 127.0.0.1:{origin}, connect_timeout: 20s, pool: {{connections: 1, pending: {pending}}}}}}}
routes: {{r: {{to: app}}}}
""", port=port)
    open_ = []

    def ask(client):
        s = rig.connect(port)
        open_.append(s)
        s.sendall(f"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {client}\r\nConnection: close\r\n\r\n".encode())
        return s

    def refused(s):
        s.settimeout(0.3)
        try:
            head, rest = rig.read_head(s)
        except TimeoutError:
            return None
        finally:
            s.settimeout(rig.GUARD_SECONDS)
        return rig.read_body(s, head, rest)[0].decode()

    # One has the connection, and half of the queue is for anybody; a quarter more counts on this client's account.
    shares = [refused(ask("192.0.2.1")) if number > pending // 2 + pending // 4 - 2 else ask("192.0.2.1") and None
              for number in range(1 + pending // 2 + pending // 4)]
    expect("the client's own share", [None] * len(shares), shares)
    expect("beyond it", "too many unfinished requests from this client\n", refused(ask("192.0.2.1")))
    other = ask("192.0.2.2")
    expect("another client", None, refused(other))
    gate.set()
    head, _ = rig.read_head(other)
    check(head is not None and b" 200 " in head, f"another client is not served: {head}")
    for s in open_:
        s.close()


@case("A19", "the release binary holds no path of the machine that built it", alone=True)
def build_paths(r):
    binary = pathlib.Path(r.binary).read_bytes()
    # Only builds with checks of overflow have this message.
    if b"attempt to add with overflow" in binary:
        raise rig.Skipped("needs a release build")
    home = str(pathlib.Path.home()).encode()
    for part in (b"/.cargo/", b"/.rustup/", home + b"/", str(REPO).encode()):
        # A path begins there, or is relative to a folder of ours: src/root/live.rs.
        begins = [] if part.startswith(b"/.") else [rb"(?<![\w.-])"]
        places = [match.start() for match in re.finditer(b"".join([*begins, re.escape(part)]), binary)]
        found = [re.sub(rb"[^\x21-\x7e].*", b"", binary[place:place + 160], flags=re.DOTALL) for place in places]
        check(not found, f"{len(found)} paths with {part.decode()}, such as {found[0].decode()}" if found else "")
