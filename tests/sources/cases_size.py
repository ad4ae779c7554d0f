"""Cases of `cargo xtask suite sources` with 4,000 clients of `ringmain bench push` on two nodes, of which one is killed.

2,000 channels have one client of each node each, and 2,000 publications a second. `two_nodes_against_centrifuge` measures the time until
all clients of the killed node are connected and subscribed again, beside two nodes of the Go library centrifuge with Redis.
"""

import http.client
import json
import random
import statistics
import subprocess
import threading
import time

import brokers
import rig
from cases import Node

CLIENTS, CHANNEL_COUNT, RATE, SIZE = 4000, 2000, 2000, 200
# The node is killed so long after the clients have subscribed; publications continue for as long again.
KILL_SECONDS, SECONDS = 5, 14
RECONNECT = "10ms"
ROUNDS = 3
BAR = 0.7


def payload(run, channel, sequence):
    """Returns a publication of `bench push --listen-only`."""
    stamp = f'{{"b":"{run:08x}{channel:08x}{sequence:08x}{time.monotonic_ns():016x}'
    return stamp.ljust(SIZE - 2, "x") + '"}'


class Writer:
    """Writes to the channels in turn: once before it is started, so that they exist, and then until it is ended."""

    def __init__(self, producer, run):
        self.producer, self.run, self.sent = producer, run, 0
        while self.sent < CHANNEL_COUNT:
            self.send()
        self.is_over, self.failure = threading.Event(), None
        self.thread = threading.Thread(target=self.write, daemon=True)

    def send(self):
        numbers = range(self.sent, self.sent + RATE // 20)
        self.producer.send([(f"s{number % CHANNEL_COUNT}", payload(self.run, number % CHANNEL_COUNT, 1 + number // CHANNEL_COUNT))
                            for number in numbers])
        self.sent += len(numbers)

    def write(self):
        try:
            began, before = time.monotonic(), self.sent
            while not self.is_over.wait(max(0.0, began + (self.sent - before) / RATE - time.monotonic())):
                self.send()
            self.producer.finish()
        except (OSError, rig.Failed, http.client.HTTPException) as failure:
            self.failure = failure

    def end(self):
        self.is_over.set()
        self.thread.join(60)
        rig.check(self.failure is None and not self.thread.is_alive(), f"the producer failed: {self.failure}")


def fail_over(case, urls, victim, make_producer):
    """Connects the clients, writes to all channels, and kills the process `victim`. Returns the report of bench push."""
    run = random.randrange(1, 1 << 32)
    report = case.dir / f"report-{run}.json"
    writer = Writer(make_producer(), run)
    bench = case.start("bench", "push", *urls, "-c", CLIENTS, "--channels", CHANNEL_COUNT, "--prefix", "s", "--size", SIZE,
                       f"--listen-only={run:08x}", "--kill-server", f"{victim}@{KILL_SECONDS}s", "--reconnect", RECONNECT,
                       "--duration", f"{SECONDS}s", "--settle", "10s", "--threads", 2, f"--json={report}", "--quiet")
    # Most clients have connected by then; the others find more.
    time.sleep(2)
    writer.thread.start()
    # bench push ends after its duration; producers stop before, so that everything has arrived by then.
    time.sleep(SECONDS - 4)
    writer.end()
    rig.expect("the exit of bench push", 0, bench.wait(90))
    return json.loads(report.read_text()), writer.sent


def figures_of(report, sent):
    """Returns what the report says of the clients of the killed node."""
    deliveries, recovery = report["deliveries"], report["recovery"]
    return {
        "written": sent, "delivered": deliveries["delivered"], "lost": deliveries["lost"], "doubled": deliveries["doubled"],
        "reordered": deliveries["reordered"], "falsely recovered": deliveries["falsely_recovered"],
        "conflicting": deliveries["conflicting"], "compared": deliveries["positions_compared"],
        "cut": recovery["clients_cut"], "back": recovery["clients_back"], "all back after": recovery["all_back_s"],
        "resumed": recovery["subscriptions_resumed"], "recovered": recovery["subscriptions_recovered"],
        "at the end": [node["clients_at_end"] for node in report["nodes"]],
        "ended": {end["how"]: end["count"] for end in report["clients"]["disconnects"] + report["clients"]["unsubscribes"]}}


def is_whole(figures):
    """Returns whether nothing was lost, doubled or reordered, and all clients of the killed node recovered on the other."""
    faults = ("lost", "doubled", "reordered", "falsely recovered", "conflicting")
    return (not any(figures[name] for name in faults) and figures["all back after"] is not None
            and figures["cut"] == figures["back"] == CLIENTS // 2 and figures["resumed"] == figures["recovered"] >= CLIENTS // 2)


def ringmain_round(case, source, make_producer, number=0):
    """Kills one of two nodes of Ringmain that read the same log."""
    a, b = (Node(case, f"{name}{number}", source).start() for name in "ab")
    urls = [f"ws://127.0.0.1:{node.port}" for node in (a, b)]
    try:
        return figures_of(*fail_over(case, urls, a.process.pid, make_producer))
    finally:
        b.kill()


def at_size(case, source, make_producer):
    figures = ringmain_round(case, source, make_producer)
    rig.check(is_whole(figures), f"the clients of the killed node did not recover everything: {figures}")
    return figures


def kafka_at_size(case, _):
    """Two nodes on one Kafka topic, 2,000 clients each, one is killed: all back on the other, 0 lost, 0 doubled, all recovered."""
    broker = brokers.Kafka(case).start()
    broker.topic("prices", 4)
    return at_size(case, kafka_source(broker), lambda: broker.producer("prices"))


def jetstream_at_size(case, _):
    """Two nodes on one JetStream stream: the same."""
    broker = brokers.Nats(case, sync="2m").start()
    broker.stream("PRICES", "prices.>")
    return at_size(case, jetstream_source(broker), lambda: broker.producer("prices."))


def kafka_source(broker):
    return f"  kafka: {{prices: {{servers: '{broker.address}', topics: prices}}}}\n"


def jetstream_source(broker):
    return f"  jetstream: {{prices: {{servers: '{broker.address}', stream: PRICES, channel: '{{2}}'}}}}\n"


class LinesOverHttp:
    """Publishes through a node of centrifuge: lines of a channel, a space and the data."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def send(self, records):
        self.connection.request("POST", "/publish", "".join(f"{channel} {data}\n" for channel, data in records))
        response = self.connection.getresponse()
        rig.expect("the status of a publication", 200, response.status)
        response.read()

    def finish(self):
        self.connection.close()


def centrifuge():
    """Returns the program of bench/peers/goredis, which Go builds once for each version of its source."""
    rig.need("go")
    folder = rig.REPO / "bench" / "peers"
    program = brokers.CACHE / "goredis"
    program.parent.mkdir(parents=True, exist_ok=True)
    built = subprocess.run(["go", "build", "-o", program, "./goredis"], cwd=folder, capture_output=True, text=True)
    if built.returncode != 0:
        raise rig.Skipped(f"bench/peers/goredis cannot be built: {built.stderr[-300:]}")
    return str(program)


def centrifuge_round(case, program, redis):
    """The same with two nodes of centrifuge; publications go to the one that stays."""
    ports = [rig.free_port(), rig.free_port()]
    a, b = (case.start("-listen", f"127.0.0.1:{port}", "-redis", redis.address, command=program) for port in ports)
    for node, port in zip((a, b), ports):
        node.wait_port(port)
    try:
        urls = [f"ws://127.0.0.1:{port}" for port in ports]
        return figures_of(*fail_over(case, urls, a.pid, lambda: LinesOverHttp(ports[1])))
    finally:
        b.end()


def two_nodes_against_centrifuge(case, _):
    """The time until all clients are back, of Kafka and JetStream, against centrifuge with Redis: three interleaved rounds of each."""
    program = centrifuge()
    kafka = brokers.Kafka(case).start()
    nats = brokers.Nats(case, sync="2m").start()
    times, wholes = {}, {}
    for number in range(ROUNDS):
        topic = f"prices{number}"
        kafka.topic(topic, 4)
        nats.stream(f"PRICES{number}", f"p{number}.>")
        redis = brokers.Redis(case, durable=False, directory=f"redis{number}").start()
        sources = {
            "kafka": (f"  kafka: {{prices: {{servers: '{kafka.address}', topics: {topic}}}}}\n",
                      lambda topic=topic: kafka.producer(topic)),
            "jetstream": (f"  jetstream: {{prices: {{servers: '{nats.address}', stream: PRICES{number}, channel: '{{2}}'}}}}\n",
                          lambda number=number: nats.producer(f"p{number}."))}
        for name, (source, make_producer) in sources.items():
            note(name, ringmain_round(case, source, make_producer, f"{name}{number}"), times, wholes)
        note("centrifuge", centrifuge_round(case, program, redis), times, wholes)
        redis.kill()
    figures = {name: {"all back after": seconds, "median": statistics.median(seconds), "whole rounds": wholes[name]}
               for name, seconds in times.items()}
    bar = BAR * figures["centrifuge"]["median"]
    for name in ("kafka", "jetstream"):
        figures[name]["of centrifuge"] = round(figures[name]["median"] / figures["centrifuge"]["median"], 2)
        rig.check(wholes[name] == ROUNDS and figures[name]["median"] <= bar, f"the bar is {BAR}: {figures}")
    return figures


def note(name, figures, times, wholes):
    print(f"    {name}: {json.dumps(figures)}", flush=True)
    rig.check(figures["all back after"] is not None, f"{name}: clients did not come back: {figures}")
    times.setdefault(name, []).append(round(figures["all back after"], 3))
    wholes[name] = wholes.get(name, 0) + is_whole(figures)


CASES = [kafka_at_size, jetstream_at_size, two_nodes_against_centrifuge]
