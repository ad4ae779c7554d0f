"""Tests of the HTTPS part of the harness: what it takes for an answer, counts and judges.

Certificates are made by openssl. Those with a load need `bench/build.sh tls` and are skipped, aloud, without it;
`cargo xtask suite https` builds it and runs them. Asserts nothing about time. bench/smoke.sh runs it.
"""

import json
import pathlib
import shutil
import ssl
import subprocess
import sys
import tempfile
import unittest

import answers
import certificates
import loads
import server as servers
import tls
import tls_tools
from test_bench import BIN, script

BUILT = all((BIN / name).exists() for name in ("tl", "peer-hyper-rustls"))
NOT_BUILT = "no tl and peer-hyper-rustls in target/peers/bin: bench/build.sh tls"

# An HTTPS server on $PORT, a thread a connection: what its arguments name is wrong. CERT KEY FAULT VERSION.
FAULTY = r"""
import email.utils, os, socket, ssl, sys, threading, time
cert, key, fault, version = sys.argv[1:]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(cert, key)
context.minimum_version = context.maximum_version = getattr(ssl.TLSVersion, version)
if fault == "tickets":
    context.num_tickets = 0
listener = socket.create_server(("127.0.0.1", int(os.environ["PORT"])), backlog=4096)
lock, count = threading.Lock(), 0
def serve(peer):
    global count
    try:
        s = context.wrap_socket(peer, server_side=True)
        keep = True
        while keep:
            data = b""
            while b"\r\n\r\n" not in data:
                piece = s.recv(4096)
                if not piece:
                    return
                data += piece
            keep = b"Connection: close" not in data
            with lock:
                count += 1
                failing = count > 4 and count % 20 == 0
            body = b'{"message":"Hello, World!"}'
            if failing and fault == "flip":
                body = body.replace(b"World", b"Wurld")
            if failing and fault == "close":
                return
            s.sendall(b"HTTP/1.1 200 OK\r\nServer: faulty\r\nDate: " + email.utils.formatdate(time.time(), usegmt=True).encode()
                      + b"\r\nContent-Type: application/json\r\nContent-Length: 27\r\n\r\n" + body)
        s.unwrap()
    except OSError:
        pass
    finally:
        peer.close()
while True:
    peer, _ = listener.accept()
    threading.Thread(target=serve, args=(peer,), daemon=True).start()
"""


class WithCertificates(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not shutil.which("openssl"):
            raise unittest.SkipTest("no openssl here: bench/install.sh tls")
        cls.folder = tempfile.TemporaryDirectory(prefix="test-tls-")
        cls.made = certificates.make(cls.folder.name)
        cls.context = answers.tls_context(cls.made.ca)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def ready(self, port):
        """Whether the server takes TLS connections, of whatever certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return bool(answers.ask(port, "/json", context))

    def faulty(self, fault="none", version="TLSv1_3", made=None):
        made = made or self.made
        return [sys.executable, "-c", FAULTY, str(made.cert), str(made.key), fault, version]


class Answers(WithCertificates):
    def test_a_right_one(self):
        with servers.Server(self.faulty(), ready=self.ready) as server:
            answers.check(server.port, "/json", tls=self.context)

    def test_a_certificate_of_another_authority(self):
        with tempfile.TemporaryDirectory() as folder:
            other = certificates.make(folder)
            with servers.Server(self.faulty(made=other), ready=self.ready) as server:
                with self.assertRaisesRegex(OSError, "certificate verify failed"):
                    answers.check(server.port, "/json", tls=self.context)

    def test_an_old_version(self):
        with servers.Server(self.faulty(version="TLSv1_2"), ready=self.ready) as server, self.assertRaises(OSError):
            answers.check(server.port, "/json", tls=self.context)

    def test_rsa_beside_it_is_of_the_same_authority(self):
        rsa = certificates.make(self.folder.name, "RSA-2048", "rsa")
        with servers.Server(self.faulty(made=rsa), ready=self.ready) as server:
            answers.check(server.port, "/json", tls=self.context)


class Loads(unittest.TestCase):
    def test_each_client_is_told(self):
        load = loads.Load("/json", connections=4, tls=loads.Tls("resumed", "ca.pem"), sources="127.0.0.2-127.0.0.3")
        self.assertEqual(loads.lean(load)[0], "tl")
        self.assertTrue(loads.only_lean(load))
        self.assertEqual(loads.tl_command("tl", load, 80, 1.0, 0.5),
                         ["tl", "-p", "80", "-m", "resumed", "-r", "/json", "-c", "4", "-d", "1.0", "-w", "0.5",
                          "-s", "127.0.0.2-127.0.0.3"])
        kept = loads.Load("/json", tls=loads.Tls("keep", "ca.pem"))
        self.assertFalse(loads.only_lean(kept))
        self.assertEqual(loads.bench_command("r", kept, 80, 1, 1, 0)[-3:], ["--ca", "ca.pem", "https://127.0.0.1:80/json"])

    def test_servers_run_the_cells_that_they_can(self):
        names = tls.subjects("ours", "before", certificates.Made("", "c", "k"))
        plain = [name for name in names if tls.fits(name, names[name], tls.Cell("plain", 1))]
        self.assertEqual(plain, ["plain-uring", "plain-epoll", "before-uring", "before-epoll"])
        self.assertNotIn("--cert", names["plain-uring"].command)
        self.assertEqual([n for n in names if tls.fits(n, names[n], tls.Cell("full", 4))],
                         ["ours-uring", "ours-epoll", "hyper-rustls", "nginx"])
        for bar in tls.BARS:
            self.assertLessEqual({bar.ours, bar.other}, set(names))


@unittest.skipUnless(BUILT, NOT_BUILT)
class LoadClient(WithCertificates):
    def client(self, mode, command=None, *options):
        """The lean client's figures: 8 connections."""
        command = command or [str(BIN / "peer-hyper-rustls"), str(self.made.cert), str(self.made.key)]
        with servers.Server(command, ready=self.ready) as server:
            arguments = [BIN / "tl", "-p", str(server.port), "-m", mode, "-r", "/json", "-c", "8", "-w", "0.2", "-d", "0.4",
                         *options]
            out = subprocess.run(arguments, check=True, capture_output=True, text=True, timeout=60).stdout
        return loads.lg_figures(out.splitlines()[-1])

    def test_each_mode(self):
        for mode in ("keep", "full", "resumed"):
            with self.subTest(mode):
                f = self.client(mode, None, "-s", "127.0.0.2-127.0.0.4")
                self.assertEqual((f["errs"], f["resumed"]), (0, f["n"] if mode == "resumed" else 0), f)

    def test_a_handshake_that_is_not_resumed_counts(self):
        self.assertGreater(self.client("resumed", self.faulty("tickets"))["mismatched"], 0)

    def test_wrong_content_and_lost_connections_count(self):
        for fault, key in (("flip", "mismatched"), ("close", "errs")):
            for mode in ("keep", "full"):
                with self.subTest(fault=fault, mode=mode):
                    # Of what is kept one answer in 16 is compared byte by byte, of what is not each.
                    f = self.client(mode, self.faulty(fault), "-d", "1.5")
                    self.assertGreater(f[key], 0, f)

    def test_what_speaks_no_tls_is_code_2(self):
        with servers.Server([str(BIN / "floor"), "epoll"]) as server:
            r = subprocess.run([BIN / "tl", "-p", str(server.port), "-m", "keep"], capture_output=True, text=True, timeout=60)
        self.assertEqual((r.returncode, r.stdout), (2, ""))
        self.assertRegex(r.stderr, r"^tl: .")

    def test_wrong_options_are_code_2(self):
        r = subprocess.run([BIN / "tl", "-p", "1", "-m", "half"], capture_output=True, text=True, timeout=60)
        self.assertEqual(r.returncode, 2)
        self.assertIn('-m: expected keep, full or resumed, found "half"', r.stderr)


@unittest.skipUnless(BUILT, NOT_BUILT)
class Comparison(unittest.TestCase):
    def compare(self, *options):
        """tls.py with a peer standing in for the product, behind its command line."""
        with tempfile.TemporaryDirectory() as folder:
            ours, raw = pathlib.Path(folder, "ours"), pathlib.Path(folder, "raw.jsonl")
            ours.write_text(f'#!/bin/sh\nexec "{BIN / "peer-hyper-rustls"}" "$9" "${{11}}"\n')
            ours.chmod(0o755)
            r = script("tls.py", "--ours", ours, "--pairs", 1, "--secs", 0.3, "--warm", 0.1, "--client-kind", "lg",
                       "--raw", raw, *options)
            return r, [json.loads(line) for line in raw.read_text().splitlines()] if raw.exists() else []

    def test_a_short_cell_of_everything(self):
        names = ["ours-uring", "ours-epoll", "hyper-rustls"]
        r, found = self.compare("--only", *names, "--conns", 16)
        self.assertIn(r.returncode, (0, 1), r.stderr)  # one pair may miss a bar
        expected = [(s, n) for s in ("keep-alive", "full", "resumed") for n in names]
        self.assertEqual(sorted((x["scenario"], x["server"]) for x in found), sorted(expected), r.stderr)
        for x in found:
            self.assertEqual(x["errs"], 0, x)
            self.assertGreater(x["us_per_message"], 0, x)
        for scenario in ("keep-alive", "full", "resumed"):
            self.assertIn(f"| ours-uring / hyper-rustls | {scenario} |", r.stdout)
        self.assertIn("no --before BINARY: plain HTTP is not measured", r.stderr)

    def test_plain_http_is_held_against_a_binary_from_before(self):
        with tempfile.TemporaryDirectory() as folder:
            plain = pathlib.Path(folder, "plain")
            plain.write_text(f'#!/bin/sh\nexec "{BIN / "floor"}" "$7-bare"\n')
            plain.chmod(0o755)
            r = script("tls.py", "--ours", plain, "--before", plain, "--scenario", "plain", "--conns", 16, "--pairs", 2,
                       "--secs", 0.3, "--warm", 0.1, "--client-kind", "lg",
                       "--only", "plain-uring", "plain-epoll", "before-uring", "before-epoll")
        self.assertIn(r.returncode, (0, 1), r.stderr)
        self.assertRegex(r.stdout, r"plain-uring / before-uring \| plain \| 16: .* \| unchanged \|")
        self.assertRegex(r.stdout, r"plain-epoll / before-epoll \| plain \| 16: .* \| unchanged \|")

    def test_an_unknown_server_is_told(self):
        r = script("tls.py", "--only", "iis")
        self.assertEqual(r.returncode, 2)
        self.assertRegex(r.stderr, "expected some of ours-uring .*, found iis")


class Findings(unittest.TestCase):
    """What testssl.sh says, sorted."""

    @staticmethod
    def finding(name, severity):
        return {"id": name, "severity": severity, "finding": "f"}

    def test_what_is_bad_is_allowed_by_name_or_wrong(self):
        found = [self.finding(*pair) for pair in (("SSLv3", "OK"), ("HSTS", "LOW"), ("engine_problem", "WARN"),
                                                  ("cert_revocation", "HIGH"), ("cert_revocation <cert#2>", "HIGH"),
                                                  ("cipher_order", "HIGH"), ("BREACH", "MEDIUM"), ("scanProblem", "FATAL"))]
        said = tls_tools.collect(found)
        self.assertEqual([f["id"] for f, _ in said["allowed"]], ["cert_revocation", "cert_revocation <cert#2>"])
        self.assertEqual([f["id"] for f in said["wrong"]], ["cipher_order", "BREACH", "scanProblem"])


class Tools(WithCertificates):
    def run_against(self, command, *options):
        return script("tls_tools.py", *options, "--", *command)

    @unittest.skipUnless(BUILT, NOT_BUILT)
    def test_sessions_renegotiation_and_versions(self):
        r = self.run_against([BIN / "peer-hyper-rustls", "$CERT", "$KEY"], "--only", "openssl", "--resumptions", 2)
        self.assertEqual(r.returncode, 0, r.stdout + r.stderr)
        self.assertIn("-tls1_2: one session resumed by 2 connections", r.stdout)
        self.assertIn("renegotiation is refused", r.stdout)

    @unittest.skipUnless(BUILT, NOT_BUILT)
    def test_handshakes_that_are_never_given_up_are_told(self):
        r = self.run_against([BIN / "peer-hyper-rustls", "$CERT", "$KEY"], "--only", "slow", "--connections", 30,
                             "--patience", 2, "--deadline", 60)
        self.assertEqual(r.returncode, 1, r.stdout + r.stderr)
        self.assertIn("expected slow handshakes to be given up within 2 s", r.stderr)

    def test_what_is_not_resumed_is_told(self):
        r = self.run_against([sys.executable, "-c", FAULTY, "$CERT", "$KEY", "tickets", "TLSv1_3"], "--only", "openssl")
        self.assertEqual(r.returncode, 1, r.stdout + r.stderr)
        self.assertIn("expected a new session (-tls1_2)", r.stderr)


if __name__ == "__main__":
    unittest.main()
