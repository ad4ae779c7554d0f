"""Programs of others that are compared: where they are, and their versions for the head of a report.

Must not know the measurement. A program that `bench/peers.sh` or `bench/build.sh` has built into $PEERS/bin is preferred to
the distribution's of the same name, which is the older one.
"""

import os
import shutil
import subprocess

import server as servers

# The arguments with which each program prints its version.
ASK = {"nginx": ["-V"], "haproxy": ["-v"], "h2o": ["-v"], "node": ["-v"], "go": ["version"], "openssl": ["version"],
       "caddy": ["version"], "h2load": ["--version"], "wrk": ["-v"]}
ANSWER_SECONDS = 20.0


def program(name):
    """The path of a program; its bare name if there is none."""
    built = servers.PEERS / "bin" / name
    if os.access(built, os.X_OK):
        return str(built)
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin") or name


def version(name):
    """`NAME: VERSION`, with the OpenSSL it was built with and its origin; None if there is no such program."""
    path = program(name)
    if not os.access(path, os.X_OK):
        return None
    done = subprocess.run([path, *ASK[name]], capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines()]
    found = [lines[0] if lines else "unknown", *(line for line in lines if line.startswith("built with OpenSSL"))]
    if path.startswith(str(servers.PEERS)):
        found.append("built here")
    return f"{name}: {', '.join(found)}"


def versions(*names):
    """The versions of the programs that exist."""
    return [found for found in map(version, names) if found]
