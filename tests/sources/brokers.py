"""Real brokers for the cases of `cargo xtask suite sources`: Kafka, NATS with JetStream, Redis, PostgreSQL.

Each is started on loopback with data in the case's directory, can be killed as a machine that loses power would kill it, and started
again on what it had on the disk. A broker that the machine cannot have raises rig.Skipped. Standard library only.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

import rig

KAFKA_VERSION = "4.2.0"
NATS_VERSION = "v2.15.2"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "ringmain-suites"


class Broker:
    """A server process that can be killed and started again; on loopback, or in a network of its own (network.Network)."""

    def __init__(self, case, network=None):
        self.case, self.network = case, network
        self.host = network.host if network else "127.0.0.1"
        self.process = None

    def run(self, program, *args):
        """Starts a program where the broker is."""
        first, *rest = [*self.inside(), program, *args]
        return self.case.start(*rest, command=first)

    def inside(self):
        """Returns the words before a command that is to run where the broker is."""
        return self.network.command() if self.network else []

    def connect(self):
        """Opens a connection from where the broker is: the link to it may be down."""
        with self.network.entered() if self.network else contextlib.nullcontext():
            return socket.create_connection((self.host, self.port), 5)

    def start(self):
        """Starts the server and waits until it answers."""
        self.process = self.spawn()
        rig.until(f"{type(self).__name__} answers", self.answers, 120, 0.1)
        return self

    def kill(self):
        """Kills the server at once (SIGKILL)."""
        self.process.child.kill()
        self.process.child.wait()

    def stop_responding(self):
        """Suspends the server: connections stay open and nothing is answered."""
        os.kill(self.process.pid, signal.SIGSTOP)

    def respond(self):
        """Resumes a suspended server."""
        os.kill(self.process.pid, signal.SIGCONT)


class Kafka(Broker):
    """One node in KRaft mode, from the jars of Maven Central (downloaded once)."""

    def __init__(self, case, network=None, port=None):
        super().__init__(case, network)
        rig.need("java")
        rig.need("kcat")
        self.port, self.controller = port or rig.free_port(), rig.free_port()
        self.address = f"{self.host}:{self.port}"
        self.dir = case.dir / "kafka"
        self.jars = jars()
        self.settings = case.file("kafka/server.properties", "\n".join([
            "process.roles=broker,controller", "node.id=1", f"controller.quorum.voters=1@127.0.0.1:{self.controller}",
            f"listeners=PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{self.controller}",
            f"advertised.listeners=PLAINTEXT://{self.address}", "controller.listener.names=CONTROLLER",
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT", f"log.dirs={self.dir}/data",
            "auto.create.topics.enable=false", "offsets.topic.replication.factor=1", "offsets.topic.num.partitions=4",
            "transaction.state.log.replication.factor=1", "transaction.state.log.min.isr=1",
            "group.initial.rebalance.delay.ms=0", "log.cleaner.dedupe.buffer.size=16777216", ""]))
        self.java("kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(self.settings))

    def java(self, *args):
        subprocess.run([*self.inside(), "java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", f"{self.jars}/*", *args], check=True,
                       capture_output=True, timeout=120)

    def spawn(self):
        return self.run("java", "-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{self.jars}/*",
                        "kafka.Kafka", self.settings)

    def answers(self):
        return subprocess.run([*self.inside(), "kcat", "-L", "-b", self.address, "-m", "3"], capture_output=True).returncode == 0

    def topic(self, name, partitions):
        """Creates a topic."""
        self.java("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", self.address, "--create", "--topic", name,
                  "--partitions", str(partitions), "--replication-factor", "1")

    def delete(self, name):
        """Deletes a topic."""
        self.java("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", self.address, "--delete", "--topic", name)

    def producer(self, topic):
        """Returns a producer of (key, value) pairs: idempotent, acknowledged by all replicas, in order of each key."""
        return Lines([*self.inside(), "kcat", "-P", "-E", "-b", self.address, "-t", topic, "-K", "\t", "-X", "acks=all", "-X",
                      "enable.idempotence=true", "-X", "message.timeout.ms=120000", "-X", "linger.ms=2", "-X",
                      "reconnect.backoff.max.ms=500", "-X", "queue.buffering.max.messages=1000000"], "\t")


class Lines:
    """A program that reads records as lines of its standard input."""

    def __init__(self, command, separator):
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.separator = separator

    def send(self, records):
        for key, value in records:
            self.child.stdin.write(f"{key}{self.separator}{value}\n")
        self.child.stdin.flush()

    def finish(self):
        """Waits until the broker has acknowledged everything."""
        _, errors = self.child.communicate(timeout=180)
        rig.check(self.child.returncode == 0, f"the producer failed: {errors[-500:]}")


def jars():
    """Returns the directory with Kafka's jars, downloading them once."""
    found = CACHE / f"kafka-{KAFKA_VERSION}"
    if (found / ".complete").exists():
        return found
    rig.need("mvn")
    found.mkdir(parents=True, exist_ok=True)
    names = [("org.apache.kafka", "kafka_2.13", KAFKA_VERSION), ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
             ("org.slf4j", "slf4j-nop", "1.7.36")]
    needs = "".join(f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
                    for group, name, version in names)
    pom = found / "pom.xml"
    pom.write_text("<project xmlns='http://maven.apache.org/POM/4.0.0'><modelVersion>4.0.0</modelVersion><groupId>suite</groupId>"
                   f"<artifactId>kafka</artifactId><version>1</version><dependencies>{needs}</dependencies></project>")
    done = subprocess.run(["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={found}",
                           "-DincludeScope=runtime"], capture_output=True, text=True)
    if done.returncode != 0:
        raise rig.Skipped(f"Kafka's jars cannot be downloaded: {done.stdout[-300:]}")
    (found / ".complete").touch()
    return found


class Nats(Broker):
    """A nats-server with JetStream in a directory, built by Go once."""

    def __init__(self, case, sync="always", network=None):
        super().__init__(case, network)
        self.program = nats_server()
        self.port = rig.free_port()
        self.address = f"nats://{self.host}:{self.port}"
        self.store = case.dir / "jetstream"
        self.settings = case.file("nats.conf", f"listen: {self.host}:{self.port}\njetstream {{ store_dir: \"{self.store}\", "
                                  f"max_mem: 64MB, max_file: 1GB, sync_interval: {sync} }}\n")

    def spawn(self):
        return self.run(self.program, "-c", self.settings)

    def answers(self):
        connection = NatsConnection(self)
        connection.request("$JS.API.INFO", b"")
        connection.close()
        return True

    def stream(self, name, *subjects):
        """Creates a stream in files."""
        listed = ", ".join(f'"{subject}"' for subject in subjects)
        config = f'{{"name": "{name}", "subjects": [{listed}], "storage": "file", "num_replicas": 1}}'
        connection = NatsConnection(self)
        answer = connection.request(f"$JS.API.STREAM.CREATE.{name}", config.encode())
        connection.close()
        rig.check(b'"error"' not in answer, f"the stream was not created: {answer}")

    def copy_store(self, target):
        """Copies the files of a stopped server."""
        shutil.copytree(self.store, target)

    def producer(self, prefix):
        return NatsProducer(self, prefix)


class NatsConnection:
    """A connection of NATS's protocol with one inbox."""

    def __init__(self, server):
        self.socket = server.connect()
        self.buffer = b""
        self.line()
        self.inbox = f"_INBOX.suite{os.urandom(6).hex()}"
        self.socket.sendall(f'CONNECT {{"verbose":false,"headers":true}}\r\nSUB {self.inbox}.* 1\r\nPING\r\n'.encode())
        while self.line() != b"PONG":
            pass

    def close(self):
        self.socket.close()

    def fill(self):
        piece = self.socket.recv(1 << 18)
        if not piece:
            raise ConnectionError("the server has closed the connection")
        self.buffer += piece

    def line(self):
        while b"\r\n" not in self.buffer:
            self.fill()
        line, self.buffer = self.buffer.split(b"\r\n", 1)
        return line

    def message(self):
        """Returns the subject and the payload of the next message."""
        while True:
            line = self.line()
            if line == b"PING":
                self.socket.sendall(b"PONG\r\n")
            if line.startswith((b"MSG ", b"HMSG ")):
                words = line.split(b" ")
                size = int(words[-1])
                while len(self.buffer) < size + 2:
                    self.fill()
                payload, self.buffer = self.buffer[:size], self.buffer[size + 2:]
                return words[1], payload

    def request(self, subject, payload):
        """Publishes and returns the first answer."""
        self.socket.sendall(f"PUB {subject} {self.inbox}.0 {len(payload)}\r\n".encode() + payload + b"\r\n")
        return self.message()[1]


class NatsProducer:
    """Publishes into JetStream with message identifiers; everything that is not acknowledged is published again."""

    def __init__(self, server, prefix):
        self.server, self.prefix = server, prefix
        self.name = os.urandom(6).hex()
        self.connection, self.number, self.waiting = None, 0, {}

    def send(self, records):
        for key, value in records:
            self.number += 1
            self.waiting[self.number] = (key, value.encode())
        self.settle()

    def settle(self):
        """Publishes what waits, in order, until all of it is acknowledged."""
        deadline = time.monotonic() + 120
        while self.waiting:
            try:
                if self.connection is None:
                    self.connection = NatsConnection(self.server)
                out = []
                for number, (key, value) in sorted(self.waiting.items()):
                    header = f"NATS/1.0\r\nNats-Msg-Id: {self.name}-{number}\r\n\r\n".encode()
                    out.append(f"HPUB {self.prefix}{key} {self.connection.inbox}.{number} {len(header)} "
                               f"{len(header) + len(value)}\r\n".encode() + header + value + b"\r\n")
                self.connection.socket.sendall(b"".join(out))
                while self.waiting:
                    subject, payload = self.connection.message()
                    if b'"error"' in payload or payload.startswith(b"NATS/1.0 503"):
                        raise ConnectionError(payload)
                    self.waiting.pop(int(subject.rsplit(b".", 1)[1]), None)
            except OSError:
                self.connection = None
                rig.check(time.monotonic() < deadline, "JetStream does not acknowledge")
                time.sleep(0.1)

    def finish(self):
        self.settle()
        if self.connection:
            self.connection.close()


def nats_server():
    """Returns a nats-server that is new enough: the installed one, or one that Go builds once."""
    program = CACHE / f"nats-server-{NATS_VERSION}" / "nats-server"
    if program.exists():
        return str(program)
    if shutil.which("go") is None:
        raise rig.Skipped(f"needs nats-server {NATS_VERSION}, or Go to build it")
    done = subprocess.run(["go", "install", f"github.com/nats-io/nats-server/v2@{NATS_VERSION}"], capture_output=True, text=True,
                          env={**os.environ, "GOBIN": str(program.parent)})
    if done.returncode != 0:
        raise rig.Skipped(f"nats-server cannot be built: {done.stderr[-300:]}")
    return str(program)


class Redis(Broker):
    """A redis-server; with `durable`, every write is on the disk before it is answered."""

    def __init__(self, case, durable=True, network=None, directory="redis"):
        super().__init__(case, network)
        rig.need("redis-server")
        self.port = rig.free_port()
        self.address = f"{self.host}:{self.port}"
        self.durable = durable
        self.dir = case.dir / directory
        self.dir.mkdir()

    def spawn(self):
        more = ["--appendonly", "yes", "--appendfsync", "always"] if self.durable else ["--appendonly", "no"]
        return self.run("redis-server", "--port", self.port, "--bind", self.host, "--protected-mode", "no", "--save", "", "--dir",
                        self.dir, *more)

    def answers(self):
        return self.command("PING") == "PONG"

    def command(self, *words):
        """Sends one command on a connection of its own and returns the answer."""
        return RedisConnection(self).command(*words)

    def producer(self, stream):
        return RedisProducer(self, stream)


class RedisConnection:
    """A connection of Redis's protocol (RESP2)."""

    def __init__(self, server):
        self.socket = server.connect()
        self.file = self.socket.makefile("rb")

    def send(self, *commands):
        out = []
        for words in commands:
            words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
            out.append(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
        self.socket.sendall(b"".join(out))

    def command(self, *words):
        self.send(words)
        return self.reply()

    def reply(self):
        line = self.file.readline()
        if not line:
            raise ConnectionError("the server has closed the connection")
        kind, rest = line[:1], line[1:-2].decode()
        if kind == b"+":
            return rest
        if kind == b"-":
            raise OSError(rest)
        if kind == b":":
            return int(rest)
        if kind == b"$":
            if rest == "-1":
                return None
            return self.file.read(int(rest) + 2)[:-2].decode()
        return [self.reply() for _ in range(max(int(rest), 0))]


class RedisProducer:
    """Adds entries to a stream; the last batch is repeated, without doubling, after a connection that was lost."""

    def __init__(self, server, stream):
        self.server, self.stream = server, stream
        self.connection, self.last = None, 0

    def send(self, records):
        # Identifiers are chosen here, so that an entry whose answer was lost is not added twice.
        waiting = []
        for key, value in records:
            self.last = max(self.last + 1, time.time_ns() // 1000)
            waiting.append((f"{self.last // 1000}-{self.last % 1000}", key, value))
        deadline = time.monotonic() + 120
        while waiting:
            try:
                if self.connection is None:
                    self.connection = RedisConnection(self.server)
                self.connection.send(*(("XADD", self.stream, name, "channel", key, "data", value) for name, key, value in waiting))
                for _ in list(waiting):
                    try:
                        self.connection.reply()
                    except ConnectionError:
                        raise
                    except OSError as error:
                        # It was added before the connection was lost.
                        if "equal or smaller" not in str(error):
                            raise
                    waiting.pop(0)
            except OSError:
                self.connection = None
                rig.check(time.monotonic() < deadline, "Redis does not acknowledge")
                time.sleep(0.05)

    def finish(self):
        pass


class Postgres(Broker):
    """A PostgreSQL of Debian's packages, run as the user `postgres` where the suite is root."""

    def __init__(self, case, network=None, port=None):
        super().__init__(case, network)
        programs = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb"))
        if not programs:
            raise rig.Skipped("needs postgresql")
        self.programs = programs[-1].parent
        rig.need("psql")
        self.port = port or rig.free_port()
        self.address = f"{self.host}:{self.port}"
        self.dir = case.dir / "postgres"
        self.dir.mkdir()
        os.chmod(case.dir, 0o755)
        self.user = [] if os.getuid() else ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        if self.user:
            shutil.chown(self.dir, "postgres", "postgres")
        subprocess.run([*self.user, self.programs / "initdb", "-D", self.dir / "data", "-U", "suite", "--auth=trust", "-N"],
                       check=True, capture_output=True)
        with open(self.dir / "data/pg_hba.conf", "a") as access:
            access.write("host all all samenet trust\n")

    def spawn(self):
        return self.run(*self.user, self.programs / "postgres", "-D", self.dir / "data", "-p", self.port, "-k", self.dir, "-c",
                        f"listen_addresses={self.host}")

    def answers(self):
        return self.psql("select 1").returncode == 0

    def psql(self, text):
        return subprocess.run([*self.inside(), "psql", "-h", self.host, "-p", str(self.port), "-U", "suite", "-d", "postgres", "-v",
                               "ON_ERROR_STOP=1", "-qtA"], input=text, capture_output=True, text=True, timeout=60)

    def kill(self):
        # The postmaster's children end when it is gone.
        super().kill()

    def producer(self, _, partition_of=None):
        return PostgresProducer(self, partition_of or (lambda key: sum(key.encode()) % 4))


class PostgresProducer:
    """Inserts rows, a transaction a batch; a batch whose commit was not confirmed is inserted again unless it is there."""

    def __init__(self, server, partition_of):
        self.server, self.partition_of = server, partition_of
        # Batches of other producers have other numbers.
        self.batch = int.from_bytes(os.urandom(4), "big") << 24

    def send(self, records):
        self.batch += 1
        rows = ",".join(f"('{key}','{value}', {self.partition_of(key)})" for key, value in records)
        text = (f"begin; insert into suite_batches values ({self.batch}); "
                f"insert into ringmain_outbox (channel, data, partition) values {rows}; commit;")
        deadline = time.monotonic() + 120
        while True:
            done = self.server.psql(text)
            if done.returncode == 0 or "suite_batches_pkey" in done.stderr:
                return
            rig.check(time.monotonic() < deadline, f"PostgreSQL does not commit: {done.stderr[-300:]}")
            time.sleep(0.1)

    def finish(self):
        pass
