"""The how-to guides of push (docs/how-to/push-*.md), each followed block by block, those of sources with a real broker.

Every fenced block of a page is run or compared, so that a page cannot differ from the program. The words after a block's language, which
are not rendered, say what is done with it:

    sh                    run to its end, which must be a success; exports last until the page ends
    sh terminal=NAME      started, and left running; a second block of the same name presses Ctrl-C there first
    sh download           run to its end where package registries can be reached
    sh instead=NAME       replaced by a function of the case: the suite has no container engine and no service manager
    sh stop=NAME          presses Ctrl-C in that terminal first
    sh poll               repeated until its output is that of the next block
    text                  the output of the block before: whole lines, in this order, with `…` for any text
    text terminal=NAME    the same, of that terminal, after the lines that were compared before
    yaml                  a part of the page's example file, without its comments; elsewhere the tests of crates/control check it
    LANGUAGE file=NAME    written to this file
    js, json, html        a part of a program, which is not run

A page is followed in a network namespace of its own, where brokers and Ringmain have the ports that the page names. Needs root.
"""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

import brokers
import rig

sys.path.insert(0, str(rig.REPO / "tests" / "support"))

import marked_page  # noqa: E402

PAGES = rig.REPO / "docs" / "how-to"
NATS_CLI_VERSION = "v0.5.1"
# Of an SDK that reconnects, at most: its delay doubles up to 20 s.
OUTPUT_SECONDS = 60


class Loopback:
    """A network namespace with a loopback interface alone: a `network` of brokers. It ends with the case."""

    host = "127.0.0.1"

    def __init__(self, case):
        rig.need("ip")
        if os.getuid() != 0:
            raise rig.Skipped("needs root, to make a network namespace")
        self.name = f"tutorial{os.getpid()}"
        made = subprocess.run(["ip", "netns", "add", self.name], capture_output=True, text=True)
        if made.returncode != 0:
            raise rig.Skipped(f"needs network namespaces: {made.stderr.strip()}")
        case.stack.callback(subprocess.run, ["ip", "netns", "delete", self.name], capture_output=True)
        subprocess.run(["ip", "-n", self.name, "link", "set", "lo", "up"], check=True, capture_output=True)

    def command(self):
        """Returns the words before a command that is to run inside."""
        return ["ip", "netns", "exec", self.name]


class Reader:
    """Follows a page as a reader does, with terminals that stay open."""

    def __init__(self, case, page, tools=None, instead=None):
        self.case, self.page, self.instead = case, PAGES / page, instead or {}
        self.network = Loopback(case)
        self.terminals, self.read = {}, {}
        self.last = ""
        self.example = ""
        self.dir = case.dir / "clone"
        self.programs = case.dir / "programs"
        self.dir.mkdir()
        self.programs.mkdir()
        for name in ("docs", "examples"):
            shutil.copytree(rig.REPO / name, self.dir / name)
        for name, program in {"ringmain": case.binary, **(tools or {})}.items():
            (self.programs / name).symlink_to(program)
        self.env = {**os.environ, "PATH": f"{self.programs}:{os.environ['PATH']}", "NO_COLOR": "1"}

    def follow(self):
        """Runs every block. Returns how many there were of each kind."""
        try:
            found = marked_page.steps_of(self.page)
        except marked_page.PageError as why:
            raise rig.Failed(str(why)) from None
        counts = {}
        for block, after in zip(found, [*found[1:], None]):
            kind = "file" if "file" in block.named else block.kind
            step = getattr(self, f"do_{kind}", None)
            rig.check(step, f"a block of `{block.kind}` is neither run nor compared: {self.page.name}:{block.line}")
            try:
                step(block, after)
            except rig.Failed as why:
                raise rig.Failed(f"{self.page.name}:{block.line}: {why}\n{self.outputs()}") from None
            counts[kind] = counts.get(kind, 0) + 1
        rig.check(counts.get("text", 0) > 1, f"{self.page.name} compares too little: {counts}")
        return counts

    def outputs(self):
        """Returns the ends of the outputs of all terminals."""
        ends = [(name, terminal.output()[-1500:]) for name, terminal in self.terminals.items()]
        return "\n".join(f"--- {name}\n{end}" for name, end in [*ends, ("last", self.last[-1500:])])

    def do_file(self, block, _):
        """Writes a file."""
        (self.dir / block.named["file"]).write_text(block.text + "\n")

    def do_yaml(self, block, _):
        """Compares a part of the example with the file that the page runs."""
        names = re.findall(r"ringmain run (examples/\S+)", self.page.read_text())
        if not names:
            return
        whole, part = plain((self.dir / names[0]).read_text()), plain(block.text)
        rig.check(f"\n{part}\n" in f"\n{whole}\n", f"{names[0]} does not contain this:\n{part}")

    def do_js(self, _, __):
        """A part of a program."""

    do_json = do_html = do_js

    def do_sh(self, block, after):
        """Runs commands."""
        words = block.named
        if "stop" in words:
            self.stop(words["stop"])
        if "instead" in words:
            self.instead[words["instead"]]()
        elif "terminal" in words:
            self.open(words["terminal"], block.text)
        elif "poll" in words:
            self.poll(block.text, after.text)
        else:
            self.run(block.text, inside="download" not in words)

    def do_text(self, block, _):
        """Compares the output of a terminal, or of the block before."""
        name = block.named.get("terminal")
        if name is None:
            rig.check(marked_page.match_lines(self.last, block.text), f"expected\n{block.text}\nfound\n{self.last}")
            return
        terminal = self.terminals[name]
        start = self.read[name]

        def probe():
            ended = terminal.child.poll() is not None
            end = marked_page.match_lines(terminal.output()[start:], block.text)
            rig.check(end or not ended, f"the command in the terminal {name} has exited with {terminal.child.returncode}")
            return end

        end = rig.until(f"in the terminal {name}:\n{block.text}\n", probe, OUTPUT_SECONDS)
        self.read[name] = start + end

    def poll(self, text, wanted):
        """Repeats commands until their output is that of the page."""
        def probe():
            with contextlib.suppress(rig.Failed):
                return marked_page.match_lines(self.run(text), wanted)

        rig.until(f"{text!r} has the output of the page", probe, OUTPUT_SECONDS, 0.2)

    def run(self, text, inside=True):
        """Runs commands to their end. Returns their output."""
        variables = self.case.dir / "variables"
        command = [*(self.network.command() if inside else []), "bash", "-e", "-o", "pipefail", "-c", f"{text}\nenv -0 > '{variables}'"]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  cwd=self.dir, env=self.env, timeout=120)
        except subprocess.TimeoutExpired as expired:
            raise rig.Failed(f"{text!r} does not end: {(expired.stdout or b'')[-1500:]!r}") from None
        self.last = done.stdout
        if done.returncode != 0 and not inside:
            raise rig.Skipped(f"{text!r} failed, without a package registry perhaps: {done.stdout[-300:]}")
        rig.check(done.returncode == 0, f"{text!r} exited with {done.returncode}:\n{done.stdout}")
        self.env = dict(pair.split("=", 1) for pair in variables.read_text().split("\0") if pair)
        return self.last

    def open(self, name, text):
        """Starts a command in a terminal, whose running one ends."""
        self.stop(name)
        with tempfile.NamedTemporaryFile("w", dir=self.case.dir, suffix=".sh", delete=False) as script:
            script.write(f"cd '{self.dir}'\n{text}\n")
        command = [*self.network.command(), "setsid", "bash", script.name]
        self.terminals[name] = self.case.start(*command[1:], command=command[0], env=self.env)
        self.read[name] = 0
        self.case.stack.callback(self.stop, name)

    def stop(self, name):
        """Presses Ctrl-C in a terminal, and waits for the end of its command."""
        terminal = self.terminals.get(name)
        if terminal is None or terminal.child.poll() is not None:
            return
        # `ip` and `setsid` are replaced by the shell, which leads a group of its own by then, as does its command.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(terminal.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                terminal.wait(10)
                return


def plain(text):
    """Returns a YAML text without comments and empty lines."""
    lines = [line.rstrip() for line in text.splitlines() if not line.lstrip().startswith("#")]
    return "\n".join(line for line in lines if line)


def nats_cli():
    """Returns the command line of NATS, built by Go once."""
    program = brokers.CACHE / f"nats-cli-{NATS_CLI_VERSION}" / "nats"
    if not program.exists():
        rig.need("go")
        done = subprocess.run(["go", "install", f"github.com/nats-io/natscli/nats@{NATS_CLI_VERSION}"], capture_output=True, text=True,
                              env={**os.environ, "GOBIN": str(program.parent)})
        if done.returncode != 0:
            raise rig.Skipped(f"the command line of NATS cannot be built: {done.stderr[-300:]}")
    return program


def nats_programs():
    """Returns the programs that the pages of NATS use."""
    return {"nats-server": brokers.nats_server(), "nats": nats_cli()}


def restart(broker):
    """Kills a broker, and starts it on what it had on the disk."""
    broker.kill()
    broker.start()


def tutorial_redis(case, _):
    """docs/how-to/push-redis.md."""
    rig.need("redis-server")
    return Reader(case, "push-redis.md").follow()


def tutorial_nats(case, _):
    """docs/how-to/push-nats.md."""
    return Reader(case, "push-nats.md", nats_programs()).follow()


def tutorial_jetstream(case, _):
    """docs/how-to/push-jetstream.md."""
    return Reader(case, "push-jetstream.md", nats_programs()).follow()


def tutorial_postgres(case, _):
    """docs/how-to/push-postgres.md."""
    reader = Reader(case, "push-postgres.md")
    broker = brokers.Postgres(case, reader.network, 5432)
    access = broker.dir / "data/pg_hba.conf"
    # As installed: the password is verified.
    access.write_text(f"host all ringmain all scram-sha-256\n{access.read_text()}")
    broker.start()
    rig.check(broker.psql("create role postgres superuser login").returncode == 0, "the superuser cannot be created")
    reader.instead["restart"] = lambda: restart(broker)
    return reader.follow()


def tutorial_kafka(case, _):
    """docs/how-to/push-kafka.md."""
    reader = Reader(case, "push-kafka.md")
    broker = brokers.Kafka(case, reader.network, 9092)
    # The tools of Kafka's distribution are scripts that start these classes.
    for name, program in {"kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
                          "kafka-console-producer.sh": "org.apache.kafka.tools.ConsoleProducer"}.items():
        script = reader.programs / name
        script.write_text(f"#!/bin/sh\nexec java -Xmx128m -XX:TieredStopAtLevel=1 -cp '{broker.jars}/*' {program} \"$@\"\n")
        script.chmod(0o755)
    reader.instead |= {"start": broker.start, "restart": lambda: restart(broker)}
    return reader.follow()


def guide(name):
    """Returns the case of a page that needs no broker."""
    def case_of_page(case, _):
        return Reader(case, f"{name}.md").follow()

    case_of_page.__name__ = f"guide_{name.removeprefix('push-').replace('-', '_')}"
    return case_of_page


GUIDES = ["push-connect", "push-authenticate", "push-channels", "push-publish", "push-presence", "push-recovery", "push-conflate",
          "push-proxy", "push-restart"]
CASES = [tutorial_kafka, tutorial_jetstream, tutorial_nats, tutorial_redis, tutorial_postgres, *map(guide, GUIDES)]
