#!/usr/bin/env python3
"""Tools of others against a server's TLS: testssl.sh, openssl s_client, curl; and handshakes that never end.

    bench/tls_tools.py -- target/release/ringmain run --listen '127.0.0.1:$PORT' --cert '$CERT' --key '$KEY' --workers 4
    bench/tls_tools.py --only openssl slow -- ...

The server must answer /plaintext, /json and POST /echo as `ringmain run` does; certificates are made for the run. Debian
and Ubuntu have the tools: `bench/install.sh tls`. One that is not there is an error, unless `--skip-missing`.

- testssl: no finding of MEDIUM or worse, but for those of FINDINGS_OF_THE_CERTIFICATE.
- openssl: sessions of TLS 1.2 and 1.3 are resumed by so many later connections that every worker had some; versions
  before 1.2, renegotiation and another authority's certificate are refused.
- curl: HTTPS with both versions, a connection that is kept, uploads of known length and in chunks.
- slow: connections that never end their handshake, silent, stopped halfway, and a byte at a time, while ordinary
  clients go on asking: each answer must come, within `--deadline`, and the slow ones must be gone after `--patience`.

Exit code: 0 all is well, 1 something is not, 2 could not be run.
"""

import argparse
import json
import pathlib
import re
import shutil
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import answers
import certificates
import server as servers
import tools
from tools import Failed, expect

PARTS = {"testssl": "testssl", "openssl": "openssl", "curl": "curl", "slow": None}
TESTSSL_SECONDS = 400.0
CLIENT_SECONDS = 20.0
PAUSE_SECONDS = 0.2  # between two bytes of a slow handshake
BAD = {"MEDIUM", "HIGH", "CRITICAL", "FATAL"}
GET = b"GET /plaintext HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
# A ClientHello's record and handshake headers, and what follows never comes.
HALF_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100)

# What testssl.sh must say of a certificate that an authority on this machine signed, whatever the server does.
FINDINGS_OF_THE_CERTIFICATE = {
    "cert_revocation": "an authority that lives for a minute lists nobody that it revoked",
}


def allowed(finding):
    """Why a finding is none of the server's, or None."""
    name = re.sub(r" <(hostCert|cert)#\d+>$", "", finding["id"])
    return FINDINGS_OF_THE_CERTIFICATE.get(name)


def testssl(server, made, options):
    """All of testssl.sh's checks, as JSON."""
    with tempfile.TemporaryDirectory(prefix="testssl-") as folder:
        report = pathlib.Path(folder, "report.json")
        words = ["testssl", "--quiet", "--color", "0", "--warnings", "batch", "--ip", "one", "--add-ca", str(made.ca),
                 "--jsonfile", str(report), f"localhost:{server.port}"]
        done = subprocess.run(words, capture_output=True, timeout=TESTSSL_SECONDS, check=False, text=True, errors="replace")
        if not report.exists():
            raise Failed(f"testssl wrote no report, exit code {done.returncode}: {(done.stdout + done.stderr)[-500:]}")
        text = report.read_text()
    found = json.loads(text)
    said = collect(found)
    expect("testssl.sh to look at protocols, ciphers and vulnerabilities", len(found) >= 50, f"{len(found)} findings")
    for finding, why in said["allowed"]:
        print(f"testssl: {finding['severity']} {finding['id']}: {finding['finding']}: allowed, {why}")
    wrong = [f"{f['severity']} {f['id']}: {f['finding']}" for f in said["wrong"]]
    expect("no finding of MEDIUM or worse", not wrong, "; ".join(wrong))
    lesser = ", ".join(f["id"] for f in found if f["severity"] in ("LOW", "WARN"))
    print(f"testssl: {len(found)} findings, none of MEDIUM or worse that is the server's; LOW or WARN: {lesser or 'none'}")


def collect(found):
    """Findings of MEDIUM or worse: those that are allowed, with the reason, and the others."""
    bad = [finding for finding in found if finding["severity"] in BAD]
    return {"allowed": [(f, allowed(f)) for f in bad if allowed(f)], "wrong": [f for f in bad if not allowed(f)]}


def s_client(server, made, *options, sent=GET):
    """One connection of `openssl s_client` that checks the certificate: (exit code, what it said)."""
    words = ["openssl", "s_client", "-connect", f"127.0.0.1:{server.port}", "-servername", "localhost", "-CAfile", str(made.ca),
             "-verify_return_error", "-verify_hostname", "localhost", *options]
    done = subprocess.run(words, input=sent, capture_output=True, timeout=CLIENT_SECONDS, check=False)
    return done.returncode, (done.stdout + done.stderr).decode(errors="replace")


def resumption(server, made, version, times):
    """A session of one connection is resumed by `times` others."""
    with tempfile.TemporaryDirectory(prefix="session-") as folder:
        session = str(pathlib.Path(folder, "session.pem"))
        code, text = s_client(server, made, version, "-ign_eof", "-sess_out", session)
        expect(f"a new session ({version})", code == 0 and "\nNew, TLSv1." in text and "Hello, World!" in text, text)
        for number in range(times):
            code, text = s_client(server, made, version, "-ign_eof", "-sess_in", session)
            right = code == 0 and "\nReused, TLSv1." in text and "Hello, World!" in text
            expect(f"the session to be resumed ({version}, connection {number + 1} of {times})", right, text)
    print(f"openssl s_client {version}: one session resumed by {times} connections")


def renegotiation(server, made):
    """A client that asks for renegotiation is refused, and others do not notice."""
    code, text = s_client(server, made, "-tls1_2", sent=b"R\n")
    refused = code != 0 and "RENEGOTIATING" in text and re.search(r"no renegotiation|unexpected message|closed|EOF|reset", text)
    expect("renegotiation to be refused", refused, text)
    code, text = s_client(server, made, "-tls1_2", "-ign_eof")
    expect("an answer after it", code == 0 and "Hello, World!" in text, text)
    print("openssl s_client: renegotiation is refused")


def old_versions(server, made):
    """SSL 3 is in no openssl any more; TLS 1.0 and 1.1 need its lowest level of security to be offered at all."""
    for version in ("-tls1", "-tls1_1"):
        code, text = s_client(server, made, version, "-cipher", "ALL:@SECLEVEL=0", "-ign_eof")
        # protocol_version or handshake_failure: a client that offers nothing later fails by both.
        refused = code != 0 and "Hello" not in text and re.search(r"SSL alert number (40|70)\b", text)
        expect(f"{version} to be refused by an alert", refused, text)
    print("openssl s_client: TLS 1.0 and 1.1 are refused by an alert")


def openssl(server, made, options):
    for version in ("-tls1_2", "-tls1_3"):
        resumption(server, made, version, options.resumptions)
    renegotiation(server, made)
    old_versions(server, made)
    with tempfile.TemporaryDirectory(prefix="other-") as folder:
        code, text = s_client(server, certificates.make(folder), "-tls1_3", "-ign_eof")
    expect("the client to refuse another authority's certificate, so that the check above means something",
           code != 0 and "unable to get local issuer" in text, text)


def curl(server, made, options):
    """Both versions, keep-alive, uploads."""
    base = f"https://localhost:{server.port}"
    tool = ["curl", "-sS", "--http1.1", "--max-time", "20", "--cacert", str(made.ca), "--resolve", f"localhost:{server.port}:127.0.0.1"]
    for flags, version in ((["--tls-max", "1.2"], "TLSv1.2"), (["--tlsv1.3"], "TLSv1.3")):
        text = tools.run([*tool, *flags, "-v", *[f"{base}/plaintext"] * 5])
        expect(f"{version}", f"SSL connection using {version}" in text, text)
        expect("http/1.1 by ALPN", re.search(r"ALPN[:,].*server accepted.*http/1\.1", text), text)
        expect("five answers", text.count("Hello, World!") == 5, text)
        expect("one connection for all", len(re.findall(r"Re-using existing connection", text)) == 4, text)
    text = tools.run([*tool, f"{base}/json"])
    expect("JSON", json.loads(text) == {"message": answers.HELLO}, text)
    with tempfile.TemporaryDirectory(prefix="tools-") as folder:
        sent, back = pathlib.Path(folder, "sent"), pathlib.Path(folder, "back")
        sent.write_bytes(bytes(i * 7 % 251 for i in range(tools.UPLOAD_BYTES)))
        for name, more in (("a known length", []), ("chunks", ["-H", "Transfer-Encoding: chunked"])):
            back.unlink(missing_ok=True)
            text = tools.run([*tool, "--data-binary", f"@{sent}", "-H", "Content-Type: application/octet-stream", "-H", "Expect:",
                              "-o", str(back), *more, f"{base}/echo"])
            expect(f"{tools.UPLOAD_BYTES} bytes back, sent with {name}", back.read_bytes() == sent.read_bytes(), text)
    print("curl: TLS 1.2 and 1.3, http/1.1 by ALPN, keep-alive, uploads of known length and in chunks: ok")


class SlowHandshakes(threading.Thread):
    """Connections that never end their handshake: a third says nothing, a third stops halfway, a third goes on by bytes."""

    def __init__(self, port, count):
        super().__init__(daemon=True)
        self._sockets = [socket.create_connection(("127.0.0.1", port), tools.ASK_SECONDS) for _ in range(count)]
        for s in self._sockets[1::3]:
            s.sendall(HALF_HELLO)
        self._over = threading.Event()

    def run(self):
        dribbling, at = self._sockets[2::3], 0
        while dribbling and not self._over.wait(PAUSE_SECONDS):
            byte = HALF_HELLO[at : at + 1] or b"\0"
            at += 1
            dribbling = [s for s in dribbling if self._sent(s, byte)]

    @staticmethod
    def _sent(s, byte):
        try:
            s.sendall(byte)
            return True
        except OSError:
            return False  # the server has hung up

    def end(self):
        self._over.set()
        self.join()
        for s in self._sockets:
            s.close()


def slow(server, made, options):
    context = answers.tls_context(made.ca)
    probes = [tools.Probe(server.port, keep, context) for keep in (True, False)]
    before, _, _ = server.cpu()
    slow_ones = SlowHandshakes(server.port, options.connections)
    begun = time.monotonic()
    for thread in (slow_ones, *probes):
        thread.start()
    held, left = 0, options.connections
    try:
        # The ordinary clients are two of those that stay.
        while left > 2 and time.monotonic() < begun + options.patience:
            time.sleep(0.2)
            left = tools.connections_left(server.port)
            held = max(held, left)
    finally:
        for thread in (*probes, slow_ones):
            thread.end()
    took, spent = time.monotonic() - begun, server.cpu()[0] - before
    expect("the server to live", server.alive(), server.last_output())
    spans = sorted(span for probe in probes for span in probe.spans)
    faults = [fault for probe in probes for fault in probe.faults]
    expect("ordinary clients answered", len(spans) >= 10 and not faults, f"{len(spans)} answers, {faults[:3]}")
    print(f"slow handshakes: {options.connections} begun, most held {held}, {left} left after {took:.1f} s;"
          f" {len(spans)} ordinary answers, median {statistics.median(spans) * 1000:.1f} ms,"
          f" p99 {spans[len(spans) * 99 // 100] * 1000:.1f} ms, most {spans[-1] * 1000:.1f} ms; {spent:.2f} s of CPU")
    expect(f"each answer within {options.deadline:g} s", spans[-1] <= options.deadline, f"{spans[-1]:.3f} s")
    expect(f"slow handshakes to be given up within {options.patience:g} s", left <= 2, f"{left} are left")


def ready(made):
    """Whether the server answers, as a function of its port; what is wrong with its certificate is said at once."""

    def probe(port):
        try:
            return answers.responds(port, "/plaintext", answers.tls_context(made.ca))
        except ssl.SSLCertVerificationError as e:
            raise servers.ServerError(f"a wrong certificate: {e}") from e

    return probe


def parse_arguments():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--connections", type=int, default=600, help="of slow handshakes (600)")
    ap.add_argument("--resumptions", type=int, default=64,
                    help="connections that resume a session (64: of four workers one is left out once in 25 million runs)")
    ap.add_argument("--deadline", type=float, default=1.0, help="seconds in which an ordinary answer must come (1)")
    ap.add_argument("--patience", type=float, default=30.0, help="seconds after which no slow handshake may be held (30)")
    ap.add_argument("--certificate", choices=list(certificates.KINDS), default="P-256", help="(P-256)")
    ap.add_argument("--only", choices=list(PARTS), nargs="+", help="not all of the parts")
    ap.add_argument("--skip-missing", action="store_true", help="leave out, with a word, what is not installed")
    ap.add_argument("command", nargs="+", help="the server; $PORT, $CERT and $KEY are replaced")
    return ap.parse_args()


def run_parts(options, parts):
    with tempfile.TemporaryDirectory(prefix="tls-tools-") as folder:
        made = certificates.make(folder, options.certificate)
        names = {"$CERT": str(made.cert), "$KEY": str(made.key)}
        descriptors = max(2 * options.connections + tools.OWN_DESCRIPTORS, 4096)
        with servers.Server(options.command, descriptors=descriptors, ready=ready(made), names=names) as server:
            for part in parts:
                {"testssl": testssl, "openssl": openssl, "curl": curl, "slow": slow}[part](server, made, options)


def main():
    options = parse_arguments()
    servers.end_on_signals()
    parts = [part for part in PARTS if not options.only or part in options.only]
    missing = [part for part in parts if PARTS[part] and not shutil.which(PARTS[part])]
    if missing and not options.skip_missing:
        print(f"not installed: {', '.join(missing)}; run bench/install.sh tls", file=sys.stderr)
        return 2
    for part in missing:
        print(f"{part}: SKIPPED, not installed")
        parts.remove(part)
    try:
        run_parts(options, parts)
    except (servers.ServerError, certificates.CertificateError) as e:
        print(f"could not be run: {e}", file=sys.stderr)
        return 2
    except (Failed, subprocess.TimeoutExpired) as e:
        print(f"FAILED: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
