#!/usr/bin/env python3
"""WebSocket and HTTPS as Chromium sees them: ws and wss echo, JSON over HTTPS, and pages of another origin refused.

    bench/install.sh browser && bench/browser.py -- target/release/ringmain run --listen '127.0.0.1:$PORT'

The server is started twice: as it is, and with `--tls-dev`. Chromium, driven by Playwright, is told of the key of that
certificate and of no other: see browser/browser.mjs, which does the rest.

Exit code: 0 all is well, 1 something is not, 2 could not be run.
"""

import argparse
import base64
import hashlib
import json
import pathlib
import shutil
import ssl
import subprocess
import sys

import answers
import server as servers

FOLDER = pathlib.Path(__file__).resolve().parent / "browser"
SECONDS = 180.0


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


def parse_arguments():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--chromium", default="chromium", help="the browser (chromium)")
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
            return subprocess.run(["node", str(FOLDER / "browser.mjs"), json.dumps(told)], timeout=SECONDS, check=False).returncode
    except (servers.ServerError, OSError, subprocess.SubprocessError) as e:
        print(f"could not be run: {e}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
