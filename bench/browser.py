#!/usr/bin/env python3
"""WebSocket, HTTPS and the page of the gateway's administration as Chromium sees them.

    bench/install.sh browser && bench/browser.py -- target/release/ringmain run --listen '127.0.0.1:$PORT'

The server is started twice: as it is, and with `--tls-dev`. Chromium, driven by Playwright, is told of the key of that
certificate and of no other: see browser/browser.mjs, which does the rest (ws and wss echo, JSON over HTTPS, pages of another
origin refused). browser/ticker.mjs looks at the page of prices, by WebSocket and by server-sent events. Then the same program
serves browser/dashboard.yaml, and browser/dashboard.mjs looks at the page of its administration. With `--shots FOLDER` pictures
of both pages are put there. What one viewer of the administration's costs an idle gateway is measured beside it, unless
`--without-cost` says that the build or the machine is not one to measure: at most 1 % of a CPU.

Exit code: 0 all is well, 1 something is not, 2 could not be run.
"""

import argparse
import base64
import hashlib
import json
import pathlib
import shutil
import ssl
import socket
import subprocess
import sys
import time

import answers
import server as servers

FOLDER = pathlib.Path(__file__).resolve().parent / "browser"
SECONDS = 180.0
VIEWED_SECONDS = 8.0
VIEWED_PERCENT = 1.0


def speaks_tls(port):
    """Whether the server answers over TLS, with whatever certificate; OSError while nobody listens."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return answers.responds(port, "/json", context)


def key_hash(port):
    """What names the key of the server's certificate: SHA-256 of its SubjectPublicKeyInfo, in base64."""
    pem = ssl.get_server_certificate(("127.0.0.1", port))
    public = subprocess.run(["openssl", "x509", "-pubkey", "-noout"], input=pem.encode(), capture_output=True, check=True).stdout
    der = ssl.PEM_cert_to_DER_cert(public.decode().replace("PUBLIC KEY", "CERTIFICATE"))
    return base64.b64encode(hashlib.sha256(der).digest()).decode()


def viewed(server, admin):
    """CPU that the gateway takes while one viewer has the page open and nothing else happens, in percent of one."""
    with socket.create_connection(("127.0.0.1", admin), 5) as s:
        s.sendall(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        events = s.makefile("rb")
        # The history, then snapshots: the second one has all that the first has begun with.
        seen = 0
        while seen < 3:
            seen += events.readline().startswith(b"data: ")
        begun, before = time.monotonic(), server.cpu()[0]
        while time.monotonic() - begun < VIEWED_SECONDS:
            if not events.readline():
                raise servers.ServerError("the figures ended")
        return 100 * (server.cpu()[0] - before) / (time.monotonic() - begun)


def dashboard(program, chromium, shots, is_measured):
    """Whether the page of the administration is as it should be, and costs as little, if that is to be measured."""
    admin, later = servers.free_port(), servers.free_port()
    names = {"$ADMIN": str(admin), "$LATER": str(later)}

    def ready(port):
        return answers.ask(port, "/hello")[2] == b"hello" and answers.ask(admin, "/readyz")[0].endswith("200 OK")

    with servers.Server([program, "run", "$SETTINGS"], ready=ready, settings=FOLDER / "dashboard.yaml", names=names) as gateway:
        percent = 0.0
        if is_measured:
            percent = viewed(gateway, admin)
            print(f"a viewer costs an idle gateway {percent:.2f} % of a CPU")
        told = {"gateway": f"http://127.0.0.1:{gateway.port}", "admin": f"http://127.0.0.1:{admin}", "chromium": chromium,
                "shots": shots and str(pathlib.Path(shots).resolve())}
        code = subprocess.run(["node", str(FOLDER / "dashboard.mjs"), json.dumps(told)], timeout=SECONDS, check=False).returncode
    if percent > VIEWED_PERCENT:
        print(f"FAILED: expected at most {VIEWED_PERCENT:g} % of a CPU for a viewer", file=sys.stderr)
        return code or 1
    return code


def parse_arguments():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--chromium", default="chromium", help="the browser (chromium)")
    ap.add_argument("--shots", default="", help="a folder for pictures of the pages")
    ap.add_argument("--without-cost", action="store_true", help="what a viewer costs is not measured")
    ap.add_argument("command", nargs="+", help="the server; $PORT is replaced by the port")
    return ap.parse_args()


def main():
    arguments = parse_arguments()
    servers.end_on_signals()
    chromium = shutil.which(arguments.chromium)
    missing = [what for what, here in ((arguments.chromium, chromium), ("node", shutil.which("node")),
                                       ("openssl", shutil.which("openssl")),
                                       ("playwright-core", (FOLDER / "node_modules" / "playwright-core").exists())) if not here]
    if missing:
        print(f"not installed: {', '.join(missing)}: run bench/install.sh browser", file=sys.stderr)
        return 2
    try:
        with servers.Server(arguments.command, ready=lambda port: answers.responds(port, "/json")) as plain, \
                servers.Server([*arguments.command, "--tls-dev"], ready=speaks_tls) as secure:
            told = {"plain": f"http://127.0.0.1:{plain.port}", "secure": f"https://127.0.0.1:{secure.port}",
                    "spki": key_hash(secure.port), "chromium": chromium}
            code = subprocess.run(["node", str(FOLDER / "browser.mjs"), json.dumps(told)], timeout=SECONDS, check=False).returncode
            told = {"server": told["plain"], "chromium": chromium, "shots": arguments.shots}
            ticker = subprocess.run(["node", str(FOLDER / "ticker.mjs"), json.dumps(told)], timeout=SECONDS, check=False).returncode
            code = code or ticker
        return dashboard(arguments.command[0], chromium, arguments.shots, not arguments.without_cost) or code
    except (servers.ServerError, OSError, subprocess.SubprocessError) as e:
        print(f"could not be run: {e}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
