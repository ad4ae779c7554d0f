"""Cases of the configuration: taken whole or not at all, one path for check, start and reload, half files, administration."""

import json
import os
import re
import signal
import stat
import time

import rig
from rig import check, expect, free_port, get, until
from run import case

PASSWORD = "ada:$5$saltstring$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5\n"

# Every section that a small site has; `{port}`, `{admin}` and `{origin}` are ports.
SITE = """\
listen: 127.0.0.1:{port}
admin: {{address: 127.0.0.1:{admin}}}
upstreams:
  app: {{endpoints: 127.0.0.1:{origin}}}
routes:
  site:
    rules:
      - match: /admin
        to: app
        policies: {{basic: {{file: pw}}}}
      - match: /
        to: app
"""


class Site:
    """A gateway on SITE, its file and its ports."""

    def __init__(self, r, text=SITE):
        self.rig, self.port, self.admin = r, free_port(), free_port()
        self.origin = r.http_origin()
        self.text = text.format(port=self.port, admin=self.admin, origin=self.origin)
        r.file("pw", PASSWORD)
        self.process = r.gateway(self.text, port=self.port)
        until("the administration answers", lambda: get(self.admin, "/healthz").status == 200)
        self.right()

    @property
    def file(self):
        return self.process.config

    def statuses(self):
        return [get(self.port, path).status for path in ("/", "/admin/x", "/admin")]

    def right(self):
        expect("/, /admin/x and /admin", [200, 401, 401], self.statuses())

    def metric(self, name):
        found = re.search(rf"(?m)^{name} (\S+)$", get(self.admin, "/metrics").body.decode())
        return float(found[1]) if found else None

    def reloads(self):
        text = get(self.admin, "/metrics").body.decode()
        return sum(float(n) for n in re.findall(r"(?m)^ringmain_config_reloads_total\{.*\} (\S+)$", text))

    def replace(self, text):
        """Replaces the file and waits until the gateway has read it."""
        before = self.reloads()
        self.rig.replace(self.file, text)
        until("the file is read", lambda: self.reloads() > before)

    def rejects(self, what, text):
        self.replace(text)
        try:
            self.right()
            rig.connect(self.port).close()
        except OSError as error:
            raise rig.Failed(f"{what}: {error}") from error
        except rig.Failed as failed:
            raise rig.Failed(f"{what}: {failed}") from failed
        expect(f"{what}: ringmain_config_last_reload_successful", 0.0, self.metric("ringmain_config_last_reload_successful"))
        config = json.loads(get(self.admin, "/config").body)
        expect(f"{what}: is_current", False, config["is_current"])
        check(config["wrong"], f"{what}: the administration shows no error")


def slips(text):
    """Single mistakes in a file, each with a name: keys misspelt and removed, values of another type."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        key = re.match(r"(\s*(?:- )?)([a-z_]+):(.*)", line)
        if not key or key[2] in ("app", "site"):
            continue
        changed = lambda new: "\n".join(lines[:number] + new + lines[number + 1:]) + "\n"
        yield f"line {number + 1}: `{key[2]}` misspelt", changed([f"{key[1]}{key[2]}x:{key[3]}"])
        yield f"line {number + 1}: `{key[2]}` with a list of nothing", changed([f"{key[1]}{key[2]}: [[]]"])
        if key[3].strip() and key[2] not in ("match", "policies", "admin"):
            yield f"line {number + 1}: `{key[2]}` without a value", changed([f"{key[1]}{key[2]}:"])


@case("G3", "a slip in a file that is saved while serving changes nothing")
def slip_while_serving(r):
    site = Site(r)
    for what, slip in [
        ("listn", site.text.replace("listen:", "listn:")),
        ("match: admin", site.text.replace("match: /admin", "match: admin")),
        ("upstreems", site.text.replace("upstreams:", "upstreems:")),
        ("an upstream that does not exist", site.text.replace("to: app", "to: ap", 1)),
        ("a password file that does not exist", site.text.replace("file: pw", "file: pv")),
        ("a policy misspelt", site.text.replace("policies:", "polices:")),
    ]:
        site.rejects(what, slip)
    site.replace(site.text.replace("match: /admin", "match: /adminx"))
    expect("ringmain_config_last_reload_successful", 1.0, site.metric("ringmain_config_last_reload_successful"))
    expect("the right file is served", 200, get(site.port, "/admin/x").status)
    check("keeping the previous configuration" in site.process.output(), "the log does not say that the file was rejected")


@case("G3", "every key misspelt, every value of another type: nothing changes, and the start refuses with 2")
def every_slip(r):
    site = Site(r)
    all_slips = list(slips(site.text))
    check(len(all_slips) > 20, "too few slips")
    for what, slip in all_slips:
        site.rejects(what, slip)
    for what, slip in all_slips[::6]:
        path = r.file("wrong.yaml", slip)
        expect(f"{what}: exit code of check", 1, r.run("check", path).returncode)
        started = r.start("run", path)
        expect(f"{what}: exit code of run", 2, started.wait())


@case("A4", "`{}`, a missing variable, a bad port, `route:`: nothing changes")
def mistakes(r):
    site = Site(r)
    for what, text in [
        ("{}", "{}\n"),
        ("an empty file", ""),
        ("a missing variable", site.text.replace("to: app", "to: ${env:NO_SUCH_VARIABLE}", 1)),
        ("a bad port", site.text.replace(f":{site.port}", ":99999")),
        ("route for routes", site.text.replace("routes:", "route:")),
        ("no YAML", "listen: [\n"),
        ("a list", "- a\n"),
        ("two documents", site.text + "---\n" + site.text),
    ]:
        site.rejects(what, text)
    os.remove(site.file)
    until("the missing file is noticed", lambda: "cannot read" in site.process.output())
    site.right()


@case("A4", "an address in use: nothing changes, and the next reload tries it again")
def address_in_use(r):
    import socket
    site = Site(r)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        other = taken.getsockname()[1]
        text = site.text.replace(f"listen: 127.0.0.1:{site.port}", f"listen: [127.0.0.1:{site.port}, 127.0.0.1:{other}]")
        site.rejects("an address in use", text.replace("match: /admin", "match: /other"))
    site.rig.replace(site.file, text)
    os.kill(site.process.pid, signal.SIGHUP)
    until("the new address serves", lambda: get(other, "/").status == 200)
    site.right()


@case("A5", "half a file is not served: SIGHUP, chmod, a change of a named file, remove-and-create")
def half_a_file(r):
    text = """\
listen: 127.0.0.1:{port}
admin: {{address: 127.0.0.1:{admin}}}
upstreams:
  app: {{endpoints: 127.0.0.1:{origin}}}
routes:
  site:
    rules:
      - match: /
        to: app
      - match: /admin
        to: app
        policies:
          basic: {{file: pw}}
"""
    site = Site(r, text)
    half = site.text[: site.text.index("        policies:")].encode()
    whole = site.text.encode()

    def guarded(what):
        for _ in range(6):
            expect(f"{what}: /admin/x while half of the file is there", 401, get(site.port, "/admin/x").status)
            time.sleep(0.05)

    def write(what, meanwhile, remove=False):
        if remove:
            os.remove(site.file)
        before = site.reloads()
        with open(site.file, "wb", buffering=0) as out:
            out.write(half)
            meanwhile()
            guarded(what)
            out.write(whole[len(half):] + f"# {what}\n".encode())
        until(f"{what}: the whole file is read", lambda: site.reloads() > before)
        expect(f"{what}: /admin/x", 401, get(site.port, "/admin/x").status)
        expect(f"{what}: successful", 1.0, site.metric("ringmain_config_last_reload_successful"))

    write("SIGHUP", lambda: os.kill(site.process.pid, signal.SIGHUP))
    write("chmod", lambda: os.chmod(site.file, stat.S_IRUSR | stat.S_IWUSR))
    write("a named file", lambda: r.file("pw", PASSWORD + "# more\n"))
    write("remove and create", lambda: None, remove=True)
    # A file that the configuration names, half written.
    users = site.file.with_name("pw")
    with open(users, "wb", buffering=0) as out:
        out.write(PASSWORD.encode()[:20])
        os.kill(site.process.pid, signal.SIGHUP)
        guarded("half a password file")
        out.write(PASSWORD.encode()[20:])
    until("successful", lambda: site.metric("ringmain_config_last_reload_successful") == 1.0)
    site.right()


def certificate(r, name, common="localhost"):
    openssl = rig.need("openssl")
    import subprocess
    subprocess.run([openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    "-subj", f"/CN={common}", "-addext", f"subjectAltName=DNS:{common},IP:127.0.0.1",
                    "-keyout", r.dir / f"{name}.key", "-out", r.dir / f"{name}.crt"], check=True, capture_output=True)


def client_certificate(r):
    """Makes `client.crt` with its key, issued by the authority in `ca.crt`."""
    import subprocess
    certificate(r, "ca", "authority.example")
    openssl = rig.need("openssl")
    r.file("client.ext", "subjectAltName=DNS:clerk.example\nextendedKeyUsage=clientAuth\n")
    for arguments in (
        ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=clerk.example",
         "-keyout", r.dir / "client.key", "-out", r.dir / "client.csr"],
        ["x509", "-req", "-in", r.dir / "client.csr", "-CA", r.dir / "ca.crt", "-CAkey", r.dir / "ca.key", "-days", "2",
         "-CAcreateserial", "-extfile", r.dir / "client.ext", "-out", r.dir / "client.crt"],
    ):
        subprocess.run([openssl, *arguments], check=True, capture_output=True)


@case("G6", "`Host` in request_headers.set does what rewrite.host does")
def host_header(r):
    seen = []
    origin = r.http_origin(lambda head, body: seen.append(rig.field(head, "host")) or rig.response(200, b"ok"))
    port = free_port()
    for spelling in ("Host", "host"):
        path = r.file(f"{spelling}.yaml", f"""\
listen: 127.0.0.1:{port}
routes:
  r: {{rules: [{{to: "http://127.0.0.1:{origin}", request_headers: {{set: {{{spelling}: "backend.example:81"}}}}}}]}}
""")
        expect("check", 0, r.run("check", path).returncode)
        process = r.start("run", path)
        process.wait_port(port)
        expect("status", 200, get(port, "/", host="front.example").status)
        expect("Host at the origin", "backend.example:81", seen[-1])
        process.end()
    for changes in ("remove: Host", "add: {Host: a}", "set: {Host: a b}"):
        path = r.file("wrong.yaml", f"""\
listen: 127.0.0.1:{port}
routes: {{r: {{rules: [{{to: "http://127.0.0.1:{origin}", request_headers: {{{changes}}}}}]}}}}
""")
        expect(f"check of {changes}", 1, r.run("check", path).returncode)
        expect(f"run of {changes}", 2, r.start("run", path).wait())


@case("G6", "check and run agree: clients unchecked, a key of another certificate, a log that cannot be opened")
def check_and_run(r):
    certificate(r, "one")
    certificate(r, "two")
    tls = "listeners: {{s: {{address: 127.0.0.1:{port}, tls: {{certificates: c{clients}}}}}}}\n" \
          "certificates: {{c: {{chain: one.crt, key: {key}.key}}}}\nauthorities: {{ca: two.crt}}\n" \
          "routes: {{r: {{rules: [{{respond: 204}}]}}}}\n{more}"
    for what, key, clients, more in [
        ("all right", "one", "", ""),
        ("unchecked", "one", ", clients: {authorities: ca, mode: unchecked}", ""),
        ("optional", "one", ", clients: {authorities: ca, mode: optional}", ""),
        ("another's key", "two", "", ""),
        ("a log in a directory that does not exist", "one", "", "access_log: /no/such/directory/a.log\n"),
        ("a log that is a directory", "one", "", f"access_log: {r.dir}\n"),
        ("a folder for state that is a file", "one", "", "push: {anonymous: true, state_dir: one.crt}\n"),
    ]:
        port = free_port()
        path = r.file("tls.yaml", tls.format(port=port, key=key, clients=clients, more=more))
        checked = r.run("check", path)
        process = r.start("run", path)
        if checked.returncode == 0:
            process.wait_port(port)
            process.end()
        else:
            expect(f"{what}: check says {checked.stdout!r}, run exits", 2, process.wait())
        if what in ("all right", "optional", "unchecked"):
            expect(what, 0, checked.returncode)
        else:
            expect(what, 1, checked.returncode)


@case("A10", "the administration refuses other hosts, and /config shows no secrets")
def administration(r):
    text = """\
listen: 127.0.0.1:{port}
admin: {{address: 127.0.0.1:{admin}}}
upstreams:
  app: {{endpoints: 127.0.0.1:{origin}}}
push:
  anonymous: true
  api_key: SECRET-0123456789
  tokens: {{secret: SECRET-0123456789-0123456789-0123456789}}
  proxy:
    connect: "http://127.0.0.1:{origin}/connect"
    own_headers: {{X-Sender: SECRET-own}}
routes:
  site:
    rules:
      - match: /admin
        to: app
        policies: {{basic: {{file: pw}}}}
      - match: /hash
        to: app
        policies: {{basic: {{users: {{ada: $5$saltstring$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5}}}}}}
      - match: /
        to: app
        request_headers: {{set: {{X-Auth-Key: SECRET-auth, X-Shared: "SECRET-shared"}}, add: {{X-Other: SECRET-other}}}}
"""
    site = Site(r, text)
    shown = get(site.admin, "/config").body.decode()
    check("SECRET" not in shown and "5B8vYY" not in shown, f"/config shows a secret: {shown}")
    check('"to":"app"' in shown.replace(" ", ""), f"/config does not show the rest: {shown}")
    for host, allowed in [("127.0.0.1", True), (f"127.0.0.1:{site.admin}", True), ("localhost", True), ("[::1]", True),
                          ("LOCALHOST:80", True), ("evil.example", False), ("localhost.evil.example", False),
                          ("127.0.0.1.nip.io", False), ("admin.internal", False)]:
        for path in ("/config", "/metrics", "/", "/live") if not allowed else ("/config", "/metrics", "/"):
            status = get(site.admin, path, host=host).status
            check((status == 200) == allowed, f"{path} for Host {host}: {status}")


@case("P7", "metrics and probes on a listener of their own, a token for what changes state")
def metrics_apart(r):
    port, admin, metrics = free_port(), free_port(), free_port()
    process = r.gateway(f"""\
listen: 127.0.0.1:{port}
admin: {{address: 127.0.0.1:{admin}, metrics: 127.0.0.1:{metrics}, token: let-me, hosts: gateway.internal}}
routes: {{r: {{rules: [{{respond: 204}}]}}}}
""", port=port)
    process.wait_port(metrics)
    for path in ("/metrics", "/healthz", "/readyz"):
        until(path, lambda: get(metrics, path, host="prometheus.internal").status == 200)
    for path in ("/config", "/live", "/log", "/", "/routes"):
        expect(path, 404, get(metrics, path).status)
    check(get(metrics, "/drain", method="POST").status in (404, 405), "the metrics listener drains")
    expect("a listed host", 200, get(admin, "/config", host="gateway.internal").status)
    expect("drain without the token", 401, get(admin, "/drain", method="POST").status)
    expect("drain with another token", 401, get(admin, "/drain", "Authorization: Bearer let-m", method="POST").status)
    expect("log without the token", 401, get(admin, "/log", method="PUT", body=b"debug").status)
    expect("still serving", 204, get(port, "/").status)
    expect("log with the token", 200, get(admin, "/log", "Authorization: Bearer let-me", method="PUT", body=b"debug").status)
    expect("drain with the token", 202, get(admin, "/drain", "Authorization: bearer let-me", method="POST").status)
    expect("exit code", 0, process.wait())


@case("P9", "the default body limit and the total time are keys of the file")
def limits_of_the_file(r):
    origin = r.http_origin(lambda head, body: (time.sleep(2) if b"/slow" in head else None) or rig.response(200, b"ok"))
    port = free_port()
    r.gateway(f"""\
listen: 127.0.0.1:{port}
limits: {{body: 1KiB, connections_per_address: 2, request_timeout: 300ms}}
routes:
  r:
    rules:
      - {{match: /, to: "http://127.0.0.1:{origin}"}}
      - {{match: /big, to: "http://127.0.0.1:{origin}", body: {{request: 1MiB}}, timeouts: {{request: 5s}}}}
""", port=port)
    expect("2 KiB", 413, get(port, "/", method="PUT", body=b"x" * 2048).status)
    expect("2 KiB where a rule says more", 200, get(port, "/big", method="PUT", body=b"x" * 2048).status)
    expect("a slow answer", 504, get(port, "/slow").status)
    expect("a slow answer where a rule says more", 200, get(port, "/big/slow").status)


@case("A19", "a FIFO, secrets in errors, private keys that everybody may read")
def trust_in_files(r):
    site = Site(r)
    os.mkfifo(r.dir / "fifo")
    slow = site.text.replace("to: app", "to: app\n        request_headers: {set: {X-Key: '${file:fifo}'}}", 1)
    site.rejects("a FIFO", slow)
    site.replace(site.text + "# again\n")
    expect("successful", 1.0, site.metric("ringmain_config_last_reload_successful"))
    checked = r.run("check", r.file("fifo.yaml", slow))
    expect("check of a FIFO", 1, checked.returncode)
    for what, text in [
        ("a header", 'listen: 127.0.0.1:1\nto: http://127.0.0.1:2\nroutes: {r: {to: http://127.0.0.1:2}}\n'
                     'push: {api_key: "SECRET key"}\n'),
        ("a list", 'listen: 127.0.0.1:1\nto: http://127.0.0.1:2\npush: {api_key: [SECRET, SECRET]}\n'),
        ("a short token secret", 'listen: 127.0.0.1:1\nto: http://127.0.0.1:2\npush: {tokens: {secret: SECRET}}\n'),
        ("a password for a hash", 'listen: 127.0.0.1:1\nroutes: {r: {to: http://127.0.0.1:2, '
                                  'policies: {basic: {users: {ada: SECRET}}}}}\n'),
        ("a header's value", 'listen: 127.0.0.1:1\nroutes: {r: {rules: [{to: http://127.0.0.1:2, '
                             'request_headers: {set: {Authorization: "SECRET\\n"}}}]}}\n'),
    ]:
        checked = r.run("check", r.file("secret.yaml", text))
        expect(f"{what}: exit code", 1, checked.returncode)
        check("SECRET" not in checked.stdout + checked.stderr, f"{what}: the secret is in {checked.stdout + checked.stderr}")
    certificate(r, "one")
    text = "listeners: {s: {address: 127.0.0.1:1, tls: {certificates: c}}}\n" \
           "certificates: {c: {chain: one.crt, key: one.key}}\nroutes: {r: {rules: [{respond: 204}]}}\n"
    path = r.file("key.yaml", text)
    for mode, warned in ((0o644, True), (0o600, False)):
        os.chmod(r.dir / "one.key", mode)
        checked = r.run("check", path)
        expect(f"mode {mode:o}: exit code", 0, checked.returncode)
        check(("one.key" in checked.stdout) == warned, f"mode {mode:o}: {checked.stdout}")


@case("A19", "`https://*.pages.example` takes no `https://evil.example\\.pages.example`")
def page_of_another_host(r):
    port = free_port()
    r.gateway(f"""\
listen: 127.0.0.1:{port}
push: {{anonymous: true, origins: "https://*.pages.example"}}
routes:
  p: {{rules: [{{match: /connection, push: true}}]}}
  c: {{rules: [{{match: /cors, respond: 200, cors: {{origins: "https://*.pages.example", credentials: true}}}}]}}
""", port=port)
    upgrade = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")

    def opened(origin):
        lines = ["GET /connection/websocket HTTP/1.1", "Host: push.example", f"Origin: {origin}", *upgrade]
        with rig.connect(port) as s:
            return rig.exchange(s, "\r\n".join(lines).encode() + b"\r\n\r\n").status

    expect("a page that may", 101, opened("https://a.pages.example"))
    for host in ("evil.example\\.pages.example", "evil.example%5c.pages.example", "evil.example/.pages.example",
                 "[evil.example].pages.example", "..pages.example", "evil.example;.pages.example"):
        expect(host, 403, opened(f"https://{host}"))
        answer = get(port, "/cors", f"Origin: https://{host}")
        expect(f"CORS for {host}", None, answer.field("access-control-allow-origin"))


@case("G14", "check warns of what no request reaches, and refuses patterns of other programs and shell variables")
def silent_check(r):
    certificate(r, "one")
    head = "listeners:\n  plain: {address: 127.0.0.1:1, redirect_to_https: true}\n" \
           "  secure: {address: 127.0.0.1:2, hosts: shop.example, tls: {certificates: c}}\n" \
           "certificates: {c: {chain: one.crt, key: one.key}}\n"
    for what, text, words in [
        ("ACME", head + "routes: {acme: {listeners: plain, rules: [{match: /.well-known/acme-challenge, respond: 200}]}}\n", ["acme", "plain"]),
        ("ACME at all", head + "routes: {acme: {rules: [{match: /.well-known/acme-challenge, respond: 200}]}}\n", ["acme", "plain"]),
        ("hosts", head + "routes: {r: {listeners: secure, hosts: other.example, rules: [{respond: 200}]}}\n", ["other.example", "secure"]),
        ("no routes", "listen: 127.0.0.1:1\n", ["no routes"]),
        ("a rule twice", "listen: 127.0.0.1:1\nroutes: {r: {rules: [{match: /a, respond: 200}, {match: /a, respond: 201}]}}\n", ["rule 2"]),
    ]:
        checked = r.run("check", r.file("warn.yaml", text))
        expect(f"{what}: exit code", 0, checked.returncode)
        check("warning" in checked.stdout and all(word in checked.stdout for word in words), f"{what}: {checked.stdout!r}")
    rule = "listen: 127.0.0.1:1\nroutes: {{r: {{rules: [{{match: {}, respond: 200}}]}}}}\n"
    for path, meant in [("/api/*", "`/api`"), ("/api/**", "`/api`"), ("'/users/{id}'", "/users/[^/]+"), ("'/users/{id}/x'", "/users/[^/]+/x"),
                        ("/users/:id", "/users/[^/]+"), ("'{path: {exact: \"/a/{b}\"}}'".strip("'"), "/a/[^/]+"), ("/*.php", "\\.php")]:
        checked = r.run("check", r.file("pattern.yaml", rule.format(path)))
        expect(f"{path}: exit code", 1, checked.returncode)
        check(meant in checked.stdout, f"{path}: {checked.stdout!r}")
    for text in ("push: {api_key: $API_KEY}\nto: http://127.0.0.1:2\n", "push: {tokens: {secret: $A_SECRET_OF_MORE_THAN_32_BYTES_WHICH_IS_LONG}}\nto: http://127.0.0.1:2\n",
                 "routes: {r: {rules: [{to: 'http://127.0.0.1:2', request_headers: {set: {Authorization: Bearer $TOKEN}}}]}}\n"):
        checked = r.run("check", r.file("shell.yaml", "listen: 127.0.0.1:1\n" + text))
        expect(f"{text}: exit code", 1, checked.returncode)
        check("${env:" in checked.stdout, f"{text}: {checked.stdout!r}")


@case("A12", "a client certificate that a reload demands is demanded of open connections")
def certificate_demanded(r):
    import ssl
    certificate(r, "one")
    client_certificate(r)
    port = free_port()
    text = "listeners: {{s: {{address: 127.0.0.1:%d, tls: {{certificates: c{clients}}}}}}}\n" \
           "certificates: {{c: {{chain: one.crt, key: one.key}}}}\nauthorities: {{ca: ca.crt}}\n" \
           "routes: {{r: {{rules: [{{respond: {{body: come in}}}}]}}}}\n" % port
    process = r.gateway(text.format(clients=""), port=port)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with context.wrap_socket(rig.connect(port)) as old:
        expect("before", 200, rig.exchange(old, request).status)
        session = old.session
        r.replace(process.config, text.format(clients=", clients: {authorities: ca}"))
        process.wait_output("reloaded in|live")
        expect("on the open connection", 421, rig.exchange(old, request).status)
    # A session from before does not stand for a certificate.
    try:
        with context.wrap_socket(rig.connect(port), session=session) as again:
            status = rig.exchange(again, request).status
        check(status != 200, "a resumed session is served without a certificate")
    except (OSError, rig.Failed):
        pass
    context.load_cert_chain(r.dir / "client.crt", r.dir / "client.key")
    with context.wrap_socket(rig.connect(port)) as new:
        expect("with a certificate", 200, rig.exchange(new, request).status)
