#!/usr/bin/env python3
"""Delay of a record from the broker's acknowledgement to a client: Ringmain, a plain consumer of the same library, and Centrifugo.

    cargo build --release -p ringmain-cli --features brokers && bench/sources_delay.py kafka --centrifugo PATH

Real brokers (tests/sources/brokers.py) on loopback. `ringmain bench push --publish-to` publishes and is the clients; each channel has one
client. Rounds are interleaved; medians with the range. Standard library only.
"""

import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time

REPO = pathlib.Path(__file__).resolve().parent.parent
# In place of this folder, whose http.py would hide the standard library's.
sys.path[:1] = [str(REPO / "tests/field"), str(REPO / "tests/sources")]

import brokers  # noqa: E402
import rig  # noqa: E402

KEPT_MESSAGES = 100_000


class Kafka:
    """Topics with four partitions; the key is the channel."""

    def __init__(self, case):
        self.broker = brokers.Kafka(case).start()
        for topic in ("ringmain", "centrifugo", "plain"):
            self.broker.topic(topic, 4)

    def url(self, reader):
        return f"kafka://{self.broker.address}/{reader}"

    def source(self):
        return f"kafka: {{s: {{servers: '{self.broker.address}', topics: ringmain, start: latest}}}}"

    def consumer(self):
        return {"type": "kafka", "kafka": {"brokers": [self.broker.address], "topics": ["centrifugo"], "consumer_group": "centrifugo",
                                           "max_poll_records": 1000}}

    def clear(self, reader):
        """Kafka deletes by age: nothing to do for so few records."""


class JetStream:
    """Streams in files that keep the newest messages; the subject has the channel."""

    def __init__(self, case):
        self.broker = brokers.Nats(case, sync="2m").start()
        for reader in ("ringmain", "centrifugo", "plain"):
            config = {"name": reader, "subjects": [f"{reader}.>"], "storage": "file", "num_replicas": 1, "max_msgs": KEPT_MESSAGES}
            connection = brokers.NatsConnection(self.broker)
            answer = connection.request(f"$JS.API.STREAM.CREATE.{reader}", json.dumps(config).encode())
            connection.close()
            rig.check(b'"error"' not in answer, f"the stream was not created: {answer}")

    def url(self, reader):
        return f"{self.broker.address}/{reader}.{{channel}}"

    def source(self):
        return f"jetstream: {{s: {{servers: '{self.broker.address}', stream: ringmain, channel: '{{2}}', start: latest, durable: ringmain}}}}"

    def consumer(self):
        return {"type": "nats_jetstream", "nats_jetstream": {"url": self.broker.address, "stream_name": "centrifugo", "max_ack_pending": 10000,
                                                             "subjects": ["centrifugo.>"], "durable_consumer_name": "centrifugo"}}

    def clear(self, reader):
        """The stream drops old messages itself."""


class Redis:
    """Streams with every write on the disk before it is answered; the channel is a field."""

    def __init__(self, case):
        self.broker = brokers.Redis(case).start()

    def url(self, reader):
        return f"redis://{self.broker.address}/{reader}"

    def source(self):
        return f"redis_streams: {{s: {{servers: '{self.broker.address}', streams: ringmain}}}}"

    def consumer(self):
        return {"type": "redis_stream", "redis_stream": {"address": self.broker.address, "streams": ["centrifugo"], "payload_value": "data",
                                                         "consumer_group": "centrifugo"}}

    def clear(self, reader):
        self.broker.command("XTRIM", reader, "MAXLEN", 0)


KINDS = {"kafka": Kafka, "jetstream": JetStream, "redis": Redis}


def ringmain(case, source, name):
    """Starts a Ringmain with a source or without one; returns its process and its port."""
    port, admin = rig.free_port(), rig.free_port()
    config = (f"listen: 127.0.0.1:{port}\nadmin: {{address: 127.0.0.1:{admin}}}\npush:\n  anonymous: true\n  {source}\n"
              "routes: {all: {rules: [{push: true}]}}\n")
    process = case.gateway(config, port=port, name=f"{name}.yaml")
    rig.until("Ringmain is ready", lambda: rig.get(admin, "/readyz").status == 200, 60, 0.1)
    return process, port


def centrifugo(case, program, consumer):
    """Starts a Centrifugo that consumes commands; returns its process and its port."""
    port = rig.free_port()
    allowed = {"allow_subscribe_for_client": True, "allow_subscribe_for_anonymous": True}
    config = {"http_server": {"address": "127.0.0.1", "port": str(port)}, "log": {"level": "warn"},
              "client": {"insecure": True, "allowed_origins": ["*"]}, "channel": {"without_namespace": allowed},
              "consumers": [{"enabled": True, "name": "bench"} | consumer]}
    process = case.start("-c", case.file("centrifugo.json", json.dumps(config)), command=program)
    process.wait_port(port)
    return process, port


def busy_seconds():
    """Returns the CPU time of the whole machine that was not idle, in seconds."""
    fields = [int(field) for field in pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return (sum(fields[:8]) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid):
    """Returns the CPU time that a process has used, in seconds."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Bench:
    """Runs `ringmain bench push` with the options that all rounds share."""

    def __init__(self, binary, arguments, broker):
        self.binary, self.arguments, self.broker = binary, arguments, broker

    def used(self):
        """Returns the CPU time of the whole machine, of the broker, and of the load generator, in seconds."""
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return [time.monotonic(), busy_seconds(), cpu_seconds(self.broker.process.pid), children.ru_utime + children.ru_stime]

    def run(self, port, process, url, *more, clients=None):
        """Publishes and returns the figures of a run."""
        arguments = self.arguments
        count, each = (clients, 1) if clients else (arguments.clients, arguments.channels // arguments.clients)
        command = [str(self.binary), "bench", "push", f"ws://127.0.0.1:{port}", "-c", str(count), "--channels", str(arguments.channels),
                   "--each", str(each), "-r", str(arguments.rate), "-d", f"{arguments.seconds}s", "-w", "2s", "--settle", "5s", "-t", "1",
                   "-q", "--json", "--publish-to", url, "--server-pid", str(process.pid), *more]
        before = self.used()
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        span, *spent = [after - value for after, value in zip(self.used(), before)]
        spent = [value / span for value in spent]
        rig.check(done.stdout.startswith("{"), f"bench push failed: {done.stderr[-800:]}")
        return json.loads(done.stdout), spent


def row(document, spent, to="to_last_client"):
    """Returns the figures of a run, times in milliseconds."""
    broker, deliveries = document["broker"], document["deliveries"]
    # A server that is overloaded delivers nothing in time.
    nothing = {"p50_us": float("nan"), "p99_us": float("nan"), "count": 0}
    to = broker[to] or nothing
    server = document["server"]
    return {"p50": to["p50_us"] / 1000, "p99": to["p99_us"] / 1000, "ack p99": broker["acknowledged"]["p99_us"] / 1000,
            "machine cores": spent[0], "broker cores": spent[1], "load cores": spent[2],
            "server cores": server["cpu_s"] / document["plan"]["duration_s"], "lost": deliveries["lost"],
            "not accepted": document["published"]["due"] - document["published"]["accepted"]}


def plain(document, spent):
    """The same of the plain consumer of a run."""
    broker = document["broker"]
    figures = row(document, spent, "to_consumer")
    return figures | {"lost": broker["acknowledged"]["count"] - broker["to_consumer"]["count"], "server cores": float("nan")}


def print_table(rows, rates):
    """Prints medians with the range."""
    names = ["p50", "p99", "ack p99", "server cores", "broker cores", "load cores", "machine cores", "lost", "not accepted"]
    print("| " + " | ".join(["source", "records/s", "reader", *names]) + " |\n| " + " | ".join(["---"] * (len(names) + 3)) + " |")
    for (kind, reader), runs in rows.items():
        cells = []
        for name in names:
            values = [run[name] for run in runs]
            text = f"{statistics.median(values):.2f}".removesuffix(".00")
            if name in ("p50", "p99") and len(values) > 1:
                text += f" ({min(values):.2f} to {max(values):.2f})"
            cells.append(text)
        print("| " + " | ".join([kind, str(rates), reader, *cells]) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="+", choices=sorted(KINDS))
    parser.add_argument("--binary", default=REPO / "target/release/ringmain")
    parser.add_argument("--centrifugo", help="the program; left out without it")
    parser.add_argument("--rate", type=int, default=20_000)
    parser.add_argument("--channels", type=int, default=5000)
    parser.add_argument("--clients", type=int, default=500)
    parser.add_argument("--seconds", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--raw", help="a file that the documents of all runs are appended to, one a line")
    arguments = parser.parse_args()
    binary = pathlib.Path(arguments.binary).resolve()
    rows = {}
    for kind in arguments.kinds:
        with rig.Rig(binary) as case:
            broker = KINDS[kind](case)
            bench = Bench(binary, arguments, broker.broker)
            server = ringmain(case, broker.source(), "ringmain")
            idle = ringmain(case, "", "idle")
            peer = centrifugo(case, arguments.centrifugo, broker.consumer()) if arguments.centrifugo else None

            def measure(reader, name, target, *more, take=row, clients=None):
                process, port = target
                document, spent = bench.run(port, process, broker.url(name), *more, clients=clients)
                rows.setdefault((kind, reader), []).append(take(document, spent))
                broker.clear(name)
                if arguments.raw:
                    with open(arguments.raw, "a") as file:
                        file.write(json.dumps(document | {"source": kind, "reader": reader}) + "\n")
                return document, spent

            for _ in range(arguments.rounds):
                measure("Ringmain", "ringmain", server)
                measure("plain consumer alone", "plain", idle, "--plain-consumer", take=plain, clients=1)
                both = measure("Ringmain, with a plain consumer", "ringmain", server, "--plain-consumer")
                rows.setdefault((kind, "plain consumer beside Ringmain"), []).append(plain(*both))
                if peer:
                    measure("Centrifugo", "centrifugo", peer, "--record-format", "commands")
    print_table(rows, arguments.rate)


if __name__ == "__main__":
    main()
