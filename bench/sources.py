#!/usr/bin/env python3
"""CPU of the server for a record of each source with nobody listening, against core NATS of the same run.

    cargo build --profile dist -p ringmain-cli --features brokers && bench/sources.py

Real brokers (tests/sources/brokers.py) on loopback; rounds are interleaved; medians with the range. Several binaries are compared in the
same run: each has topics, streams and a table of its own. Standard library only.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import threading
import time

REPO = pathlib.Path(__file__).resolve().parent.parent
# In place of this folder, whose http.py would hide the standard library's.
sys.path[:1] = [str(REPO / "tests/field"), str(REPO / "tests/sources")]

import brokers  # noqa: E402
import cases  # noqa: E402
import rig  # noqa: E402
import urllib.request  # noqa: E402

CHANNELS = [f"k{number}" for number in range(1000)]


def cpu_seconds(pid):
    """Returns the CPU time that a process has used, and that of its thread of sources, in seconds."""
    total, own = 0.0, 0.0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        # Exact, unlike the ticks in `stat`.
        used = int((task / "schedstat").read_text().split()[0]) / 1e9
        total += used
        if (task / "comm").read_text().startswith(("ringmain-source", "ringmain-nats")):
            own += used
    return total, own


class CoreNats:
    """Publishes into core NATS; a PONG says that the server has it."""

    def __init__(self, server, prefix):
        self.connection = brokers.NatsConnection(server)
        self.prefix = prefix

    def send(self, records):
        out = [f"PUB {self.prefix}{key} {len(value)}\r\n{value}\r\n" for key, value in records]
        self.connection.socket.sendall("".join(out).encode())

    def finish(self):
        self.connection.socket.sendall(b"PING\r\n")
        while self.connection.line() != b"PONG":
            pass


class Rows:
    """Inserts rows into an outbox table on one connection, a transaction a batch."""

    def __init__(self, server, schema):
        self.schema = schema
        self.child = subprocess.Popen(["psql", "-h", "127.0.0.1", "-p", str(server.port), "-U", "suite", "-d", "postgres", "-v",
                                       "ON_ERROR_STOP=1", "-qtA"], stdin=subprocess.PIPE, text=True)

    def send(self, records):
        rows = ",".join(f"('{key}','{value}',{sum(key.encode()) % 4})" for key, value in records)
        self.child.stdin.write(f"insert into {self.schema}.ringmain_outbox (channel, data, partition) values {rows};\n")
        self.child.stdin.flush()

    def finish(self):
        self.child.stdin.close()
        rig.check(self.child.wait(180) == 0, "psql failed")


class Library:
    """A process that reads a source with the client library alone (crates/sources/examples/client_floor.rs)."""

    def __init__(self, program, kind, address, name):
        self.process = subprocess.Popen([program, kind, address, name], stdout=subprocess.PIPE, text=True)
        self.count = 0
        threading.Thread(target=self.follow, daemon=True).start()

    def follow(self):
        for line in self.process.stdout:
            self.count = int(line)


def kinds(case, wanted, names):
    """Yields, for each broker that is wanted, its name, and by each of `names` what that reads: the configuration of the source, a function
    that makes a producer, and the arguments of a `Library`, if there is one."""
    if {"nats", "jetstream", "jetstream_durable"} & wanted:
        nats = brokers.Nats(case).start()
        address = nats.address
    if "nats" in wanted:
        yield "nats", {n: (f"  nats: {{s: {{servers: '{address}', subjects: 'core{n}.>', channel: '{{2}}'}}}}\n",
                           lambda n=n: CoreNats(nats, f"core{n}."), None) for n in names}
    for kind, more in ("jetstream", "start: latest"), ("jetstream_durable", "durable: bench"):
        if kind in wanted:
            for n in names:
                nats.stream(f"{kind}{n}", f"{kind}{n}.>")
            yield kind, {n: (f"  jetstream: {{s: {{servers: '{address}', stream: {kind}{n}, channel: '{{2}}', {more}}}}}\n",
                             lambda n=n, kind=kind: nats.producer(f"{kind}{n}."),
                             (kind, address, f"{kind}{n}") if kind == "jetstream" else None) for n in names}
    if {"kafka", "kafka_group"} & wanted:
        kafka = brokers.Kafka(case).start()
    for kind, more in ("kafka", "start: latest"), ("kafka_group", "group: bench"):
        if kind in wanted:
            for n in names:
                kafka.topic(f"{kind}{n}", 4)
            yield kind, {n: (f"  kafka: {{s: {{servers: '{kafka.address}', topics: {kind}{n}, {more}}}}}\n",
                             lambda n=n, kind=kind: kafka.producer(f"{kind}{n}"),
                             (kind, kafka.address, f"{kind}{n}") if kind == "kafka" else None) for n in names}
    if "redis_streams" in wanted:
        redis = brokers.Redis(case).start()
        yield "redis_streams", {n: (f"  redis_streams: {{s: {{servers: '{redis.address}', streams: bench{n}}}}}\n",
                                    lambda n=n: redis.producer(f"bench{n}"),
                                    ("redis_streams", redis.address, f"bench{n}")) for n in names}
    if "postgres" in wanted:
        postgres = brokers.Postgres(case).start()
        for n in names:
            made = postgres.psql(f"create schema s{n}; set search_path = s{n};\n" + cases.OUTBOX.read_text())
            rig.check(made.returncode == 0, made.stderr)
        yield "postgres", {n: (f"  postgres: {{s: {{server: '{postgres.address}', database: postgres, user: suite, partitions: 4, "
                               f"table: s{n}.ringmain_outbox}}}}\n", lambda n=n: Rows(postgres, f"s{n}"), None) for n in names}


def published(node, kind):
    """Returns how many records were published, or read by a `Library`."""
    if isinstance(node, Library):
        return node.count
    if kind != "nats":
        return node.metrics().get("published_total", 0)
    text = urllib.request.urlopen(f"http://127.0.0.1:{node.admin}/metrics", timeout=5).read().decode()
    lines = [line for line in text.splitlines() if line.startswith("ringmain_push_nats_hand_over_seconds_count")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def read_any(library, producer):
    """Publishes a record; returns whether the library has read one."""
    once = producer()
    once.send([("k0", "0")])
    once.finish()
    time.sleep(0.2)
    return library.count > 0


def measure(node, kind, producer, records, rate):
    """Publishes at a rate; returns the CPU microseconds of the server for each record, and those of its thread of sources."""
    before, value = published(node, kind), json.dumps({"s": 1, "text": "x" * 180})
    # A producer that is still connecting would publish all at once when it has. Some of these wait in the buffer of its input.
    producer.send([(key, value) for key in CHANNELS[:200]])
    rig.until("the first records are published", lambda: published(node, kind) >= before + 100, 60, 0.05)
    before, cpu, began = before + 200, cpu_seconds(node.process.pid), time.monotonic()
    for start in range(0, records, 200):
        producer.send([(CHANNELS[(start + index) % len(CHANNELS)], value) for index in range(200)])
        pause = began + (start + 200) / rate - time.monotonic()
        if pause > 0:
            time.sleep(pause)
    producer.finish()
    rig.until("all records are published", lambda: published(node, kind) >= before + records, 60, 0.05)
    return [(after - before) / records * 1e6 for before, after in zip(cpu, cpu_seconds(node.process.pid))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", action="append", help="compared with the others in the same run")
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--rate", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sources", nargs="+", default=["jetstream", "jetstream_durable", "kafka", "kafka_group", "redis_streams",
                                                         "postgres"])
    parser.add_argument("--library", help="the built example client_floor: measured as well")
    parser.add_argument("--perf", help="record the last round of each source with perf, into files of this directory")
    arguments = parser.parse_args()
    binaries = [pathlib.Path(binary).resolve() for binary in arguments.binary or [REPO / "target/dist/ringmain"]]
    figures = {}
    with rig.Rig(binaries[0]) as case:
        started = []
        names = [*range(len(binaries)), *(["library"] if arguments.library else [])]
        for kind, sources in kinds(case, {"nats", *arguments.sources}, names):
            for number, (config, producer, library) in sources.items():
                if number != "library":
                    case.binary = str(binaries[number])
                    node = cases.Node(case, f"{kind}{number}", config).start()
                elif library:
                    node = Library(arguments.library, *library)
                    rig.until("the library has connected", lambda: node.process.poll() is None and read_any(node, producer), 60, 0.2)
                else:
                    continue
                measure(node, kind, producer(), 2000, arguments.rate)
                started.append(((kind, number), node, producer))
        for turn in range(arguments.rounds):
            for (kind, number), node, producer in started:
                recorder = None
                if arguments.perf and turn == arguments.rounds - 1:
                    recorder = subprocess.Popen(["perf", "record", "-q", "-g", "-F", "2000", "-p", str(node.process.pid), "-o",
                                                 f"{arguments.perf}/{kind}-{number}.data"])
                figures.setdefault((kind, number), []).append(measure(node, kind, producer(), arguments.records, arguments.rate))
                if recorder:
                    recorder.terminate()
                    recorder.wait()
        for _, node, _ in started:
            if isinstance(node, Library):
                node.process.kill()
    print(f"{arguments.records} records of 200 bytes at {arguments.rate}/s, 1,000 channels, nobody listens; {os.uname().release}, "
          f"{os.cpu_count()} CPUs\n\n| source | binary | CPU us/record | thread of the source | of core NATS |\n"
          "| --- | --- | --- | --- | --- |")
    for (kind, number), values in figures.items():
        totals, owns = zip(*values)
        base = statistics.median(total for total, _ in figures["nats", 0 if number == "library" else number])
        print(f"| {kind} | {number} | {statistics.median(totals):.2f} ({min(totals):.2f} to {max(totals):.2f}) | "
              f"{statistics.median(owns):.2f} | {statistics.median(totals) / base:.2f} |")


if __name__ == "__main__":
    main()
