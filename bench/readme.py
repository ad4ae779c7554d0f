#!/usr/bin/env python3
"""Runs the quick starts of README.md as they are written, and checks their output.

    bench/readme.py RINGMAIN HELLO     # the binary, and the example `hello`

Four things differ from the text: `cargo run --example hello` is the program HELLO, ports are free ones, rounds of `ringmain bench` are short,
and each server is awaited. Needs bash, curl and openssl.
"""

import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
README = ROOT / "README.md"

# Texts that the output of a quick start contains, by its title.
EXPECTED = {
    "An application": ["Hello, world!"],
    "A reverse proxy": ["HTTP/1.1 200 OK", "Hello, World!"],
    # In the reply to the subscription if the publication was first.
    "Push to browsers": ['"data":{"bid": 1.1034},"offset":1}', '{"result":{"offset":1,'],
    "Measure a server": ["requests/s", "closed loop", "open loop"],
    "Tune a host": ["STEP", "service    ringmain"],
}

SECONDS = 60

# Waits until something accepts connections on a port.
PREAMBLE = """
trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT
until_open() {
  for _ in $(seq 600); do
    if (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; then return; fi
    sleep 0.05
  done
  echo "port $1 is not open" >&2
  exit 1
}
"""


def quick_starts(text):
    """Returns title and lines of each quick start of a README."""
    section = text.split("\n## Quick starts\n", 1)[1].split("\n## ", 1)[0]
    found = re.findall(r"^\*\*(.+?)\*\*.*?\n```sh\n(.*?)```", section, re.M | re.S)
    return [(title, commands.splitlines()) for title, commands in found]


class Ports:
    """Free ports in place of those of the text."""

    def __init__(self):
        self.free = {}

    def replace(self, text):
        return re.sub(r"(?<=:)(3000|8080|9901)\b", lambda match: self.of(match.group(1)), text)

    def of(self, port):
        if port not in self.free:
            with socket.create_server(("127.0.0.1", 0)) as listener:
                self.free[port] = str(listener.getsockname()[1])
        return self.free[port]


def script(lines, ports, folder, hello):
    """Returns the shell script of a quick start."""
    commands = [PREAMBLE]
    for line in lines:
        command = ports.replace(line).replace("--port 8080", f"--port {ports.of('8080')}")
        command = command.replace("ringmain bench", "ringmain bench -d 300ms -w 100ms --timeout 20s")
        command = command.replace("cargo run --release --example hello", f"{hello} 127.0.0.1:{ports.of('8080')}")
        # The server without a file listens on its default port.
        command = re.sub(r"^ringmain &", f"ringmain --listen 127.0.0.1:{ports.of('8080')} &", command)
        commands.append(command)
        if line.endswith("&"):
            file = re.search(r"examples/\S+\.yaml", line)
            text = (folder / file.group()).read_text() if file else command
            port = re.search(r"^listen: \S+:(\d+)", text, re.M) or re.search(r"127\.0\.0\.1:(\d+)", text)
            commands.append(f"until_open {port.group(1)}")
    # Events that follow the last response.
    commands.append("sleep 2")
    return "\n".join(commands)


def run(title, lines, ringmain, hello):
    """Runs a quick start; returns its output."""
    ports = Ports()
    with tempfile.TemporaryDirectory(prefix="readme-") as name:
        folder = pathlib.Path(name)
        (folder / "examples").mkdir()
        (folder / "bin").mkdir()
        (folder / "bin/ringmain").symlink_to(pathlib.Path(ringmain).resolve())
        for file in (ROOT / "examples").glob("*.yaml"):
            (folder / "examples" / file.name).write_text(ports.replace(file.read_text()))
        path = f"{folder}/bin:{os.environ['PATH']}"
        text = script(lines, ports, folder, pathlib.Path(hello).resolve())
        done = subprocess.run(
            ["bash", "-c", text],
            cwd=folder,
            env={**os.environ, "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return done.stdout


def missing(ringmain, hello):
    """Yields each quick start whose output lacks something: title, text, output."""
    for title, lines in quick_starts(README.read_text()):
        output = run(title, lines, ringmain, hello)
        for text in EXPECTED[title]:
            if text not in output:
                yield title, text, output


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    failed = list(missing(*sys.argv[1:]))
    for title, text, output in failed:
        print(f"{title}: expected {text!r}; found\n{output}")
    print(f"{len(EXPECTED)} quick starts, {len({title for title, _, _ in failed})} failed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
