#!/usr/bin/env python3
"""`cargo xtask suite guides`: runs the guides of the gateway, docs/how-to/, by their own text, and compares the output.

    tests/guides/run.py                      # all pages, against target/release/ringmain
    tests/guides/run.py cors jwt             # some pages
    tests/guides/run.py --write cors         # writes the output into the page

A page runs in a network and a PID namespace of its own, so that its ports are free, in an empty folder with examples/whoami.py. A block
of YAML that is a whole configuration is written to `ringmain.yaml` and checked; the commands of a block of `console` are those after `$ `
(continued after `> `), and the lines behind each are its output. Numbers, dates, hashes and the order of the lines may differ. Marks that
renderers do not show:

    <!-- setup: COMMAND -->     runs a command that the page does not show
    ```js file=token.js         writes the block to a file
    ```yaml fragment            is a part of a configuration
    ```console as-written       is not run

Needs root, curl, openssl, node 20 or later, redis-server and systemd-analyze.
"""

import argparse
import difflib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))

import marked_page  # noqa: E402

PAGES = ROOT / "docs/how-to"
NAMES = """
    reverse-proxy https load-balancing retries-and-timeouts canary mirroring cors websockets-and-grpc
    tcp-and-tls-passthrough static-files rate-limits concurrency-and-load-shedding jwt api-keys basic-auth external-auth
    access-log process-log metrics reload-and-upgrade fault-injection systemd container troubleshooting migrate-from-nginx
    migrate-from-traefik migrate-from-caddy
""".split()

# Seconds after a command, and after one that starts a process in the background; the limit for a command; attempts at a page.
SETTLE, START, LIMIT, ATTEMPTS = 0.6, 2.5, 60.0, 3
# A configuration is reloaded by then.
RELOAD = 0.6
INSTRUCTIONS = ("setup",)


class Shell:
    """A bash whose standard output and error are one stream, as in a terminal."""

    def __init__(self, folder, programs):
        env = dict(os.environ, PATH=f"{programs}:{os.environ['PATH']}", PYTHONUNBUFFERED="1")
        self.process = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=env,
            start_new_session=True,
        )
        self.output = bytearray()
        self.lock = threading.Lock()
        self.commands = 0
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        while piece := os.read(self.process.stdout.fileno(), 65536):
            with self.lock:
                self.output.extend(piece)

    def text(self):
        with self.lock:
            return bytes(self.output).decode("utf-8", "replace")

    def run(self, command):
        """Returns the output of a command, and that of processes in the background meanwhile."""
        self.commands += 1
        mark = f"__end_{self.commands}__"
        with self.lock:
            self.output.clear()
        self.process.stdin.write(f"{command}\necho; echo {mark}\n".encode())
        self.process.stdin.flush()
        deadline = time.monotonic() + LIMIT
        while mark not in self.text():
            if time.monotonic() > deadline:
                raise TimeoutError(command)
            time.sleep(0.02)
        time.sleep(START if command.rstrip().endswith(("&", "& done")) else SETTLE)
        before, after = self.text().replace("\r", "").split(mark + "\n", 1)
        return (before.rstrip("\n") + "\n" + after).strip("\n")

    def close(self):
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                return
            time.sleep(0.3)


def is_whole(text):
    """Returns true if a configuration has a listener."""
    return re.search(r"^(listen|listeners|kubernetes):", text, re.M) is not None


def run_page(name, source, folder, programs):
    """Runs a page and returns it with the real output, and the errors of its configurations."""
    shutil.copy(ROOT / "examples/whoami.py", folder)
    shell = Shell(folder, programs)
    lines, result, errors, copied = source.split("\n"), [], [], 0
    try:
        for step in marked_page.steps(name, source, INSTRUCTIONS):
            if not step.is_block:
                shell.run(step.rest)
                continue
            result += lines[copied : step.line]
            body, text = step.lines, step.text + "\n"
            if file := step.named.get("file"):
                (folder / file).write_text(text)
            elif step.kind == "yaml" and not step.words and is_whole(text):
                # The check opens logs.
                text = text.replace("/var/log/ringmain/", "").replace("/var/log/", "")
                (folder / "ringmain.yaml").write_text(text)
                time.sleep(RELOAD)
                if ": valid: " not in (said := shell.run("ringmain check ringmain.yaml")):
                    errors.append(f"line {step.line + 1}: {said}")
            elif step.kind == "console" and not step.words:
                body = run_commands(shell, body)
            result += [step.indent + line if line else line for line in body]
            copied = step.end - 1
        result += lines[copied:]
    finally:
        shell.close()
    return "\n".join(result), errors


def run_commands(shell, lines):
    result, at = [], 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if not line.startswith("$ "):
            continue
        command = [line[2:]]
        result.append(line)
        while at < len(lines) and lines[at].startswith("> "):
            command.append(lines[at][2:])
            result.append(lines[at])
            at += 1
        output = shell.run("\n".join(command))
        result += output.split("\n") if output else []
    return result


def masked(text):
    """Returns the lines of a page without the parts that differ between runs."""
    rules = [
        (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"),
        (r"engine:? uring .*|kernel: .*", "ENGINE"),
        (r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d+ \w+ \d+ [\d:]+ GMT", "DATE"),
        (r"\b[0-9a-f]{10,}(-[0-9a-f]+)?\b", "HEX"),
        (r"\$6\$\S+", "HASH"),
        (r"\d+(\.\d+)?(µs|ms|s)?\b", "N"),
        (r" +", " "),
    ]
    for rule, word in rules:
        text = re.sub(rule, word, text)
    # Processes in the background write meanwhile: the lines of an output have no order.
    result, output, is_console = [], [], False
    for line in text.split("\n"):
        if line.strip().startswith("```"):
            is_console = line.strip() == "```console"
        elif is_console and not line.startswith(("$ ", "> ")):
            output.append(line)
            continue
        result += [*sorted(output), line]
        output = []
    return result


def difference(before, after):
    return list(difflib.unified_diff(masked(before), masked(after), "page", "output", lineterm="", n=1))


def attempt(name, programs, write):
    page = PAGES / f"{name}.md"
    source = page.read_text()
    with tempfile.TemporaryDirectory(prefix="guide-") as folder:
        try:
            result, errors = run_page(page.name, source, pathlib.Path(folder), programs)
        except marked_page.PageError as why:
            return [str(why)]
    if write and not errors:
        page.write_text(result)
    elif not write:
        errors += difference(source, result)
    return errors


def inside(name, programs, write):
    """Runs one page; this process is alone in its namespaces."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    errors = []
    for _ in range(ATTEMPTS):
        errors = attempt(name, programs, write)
        if not errors:
            break
    print(f"{name}: {'passed' if not errors else 'FAILED'}", flush=True)
    print("\n".join(errors), end="\n" if errors else "", flush=True)
    return not errors


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", metavar="PAGE")
    parser.add_argument("--write", action="store_true", help="write the output into the pages")
    parser.add_argument("--ringmain", type=pathlib.Path, default=ROOT / "target/release/ringmain")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        sys.exit(0 if inside(options.pages[0], options.ringmain.parent, options.write) else 1)
    failed = []
    with tempfile.TemporaryDirectory(prefix="guides-") as programs:
        program = pathlib.Path(programs) / "ringmain"
        program.symlink_to(options.ringmain.resolve(strict=True))
        for name in options.pages or NAMES:
            command = [sys.executable, __file__, "--inside", "--ringmain", str(program), name]
            command += ["--write"] if options.write else []
            if subprocess.run(["unshare", "-n", "-p", "-f", "--mount-proc", *command], check=False).returncode:
                failed.append(name)
    print(f"guides: {len(failed)} failed: {' '.join(failed)}" if failed else "guides: passed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
