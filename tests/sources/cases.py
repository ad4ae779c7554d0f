"""The cases of `cargo xtask suite sources`: each source under load while its broker, its consumer and its network fail.

A case returns its figures; it raises rig.Failed if a publication is lost or doubled without a word, out of order, or falsely recovered.
"""

import contextlib
import json
import pathlib
import threading
import time
import urllib.error
import urllib.request

import brokers
import rig
from believer import Believer, Ledger

CHANNELS = [f"k{number}" for number in range(100)]
# The processes of the case's nodes: run.py prints the ends of their logs when the case fails.
LOGS = []
OUTBOX = rig.REPO / "docs" / "outbox.sql"


class Node:
    """A ringmain that can be killed and started again."""

    def __init__(self, case, name, sources, more="", flags=()):
        self.case, self.name, self.flags = case, name, flags
        self.port, self.admin = rig.free_port(), rig.free_port()
        self.config = (f"listen: 127.0.0.1:{self.port}\nadmin: {{address: 127.0.0.1:{self.admin}}}\npush:\n  anonymous: true\n"
                       "  channels: {retention: {publications: 5000, size: 4MiB, time: 10m}, history: true, recovery: true}\n"
                       f"{more}{sources}routes: {{all: {{rules: [{{push: true}}]}}}}\n")
        self.process = None

    def start(self, ready=True):
        self.process = self.case.gateway(self.config, *self.flags, port=self.port, name=f"{self.name}.yaml")
        LOGS.append((self.name, self.process))
        if ready:
            rig.until(f"{self.name} is ready", self.is_ready, 60, 0.05)
        return self

    def is_ready(self):
        with contextlib.suppress(urllib.error.URLError):
            return urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/readyz", timeout=5).status == 200
        return False

    def kill(self):
        self.process.child.kill()
        self.process.child.wait()

    def metrics(self, prefix="ringmain_push_source_"):
        """Returns the sums of the metrics with a prefix: those of sources."""
        text = urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/metrics", timeout=5).read().decode()
        sums = {}
        for line in text.splitlines():
            if line.startswith(prefix):
                name, value = line.split("{")[0].split(" ")[0].removeprefix(prefix), float(line.rsplit(" ", 1)[1])
                sums[name] = sums.get(name, 0) + value
        return sums


def arrived(believers, counts, seconds=120):
    """Waits until every channel's last publication has come to one of the clients that have the channel."""
    def probe():
        return all(any(believer.last(channel) >= count for believer in believers if channel in believer.channels)
                   for channel, count in counts.items())
    try:
        rig.until("the last publications arrive", probe, seconds, 0.05)
    except rig.Failed:
        behind = {channel: [believer.last(channel) for believer in believers] for channel, count in counts.items()
                  if not any(believer.last(channel) >= count for believer in believers)}
        raise rig.Failed(f"the last publications do not arrive: {dict(list(behind.items())[:5])}") from None


def judge(believers, allow_doubled=0):
    """Adds up what went wrong for the clients; raises rig.Failed if anything did."""
    total = {"lost": 0, "doubled": 0, "reordered": 0, "conflicts": 0}
    for believer in believers:
        for name, count in believer.verdict().items():
            total[name] += count
    figures = total | {name: sum(getattr(believer, name) for believer in believers)
                       for name in ("recovered", "unrecovered", "notified")}
    rig.check(total["lost"] == total["reordered"] == total["conflicts"] == 0 and total["doubled"] <= allow_doubled, str(figures))
    return figures


def clients(ports, count=4):
    """Connects clients that share the channels, and waits until all have subscribed."""
    believers = [Believer(ports, CHANNELS[start::count]) for start in range(count)]
    for believer in believers:
        rig.check(believer.ready.wait(30), "a client does not subscribe")
    return believers


def torture(case, broker, node, producer, records, rate, broker_down=3.0, whole=True):
    """Writes records while the broker is killed and comes back, the consumer is killed (-9), and the broker stops responding."""
    believers = clients([node.port])
    ledger = Ledger(producer, CHANNELS)
    # Long enough for one failure to be over before the next.
    rate = min(rate, records // 40)
    marks = {}

    def kill_broker():
        broker.kill()
        time.sleep(broker_down)
        broker.start()
        marks["broker back"] = time.monotonic()

    def kill_node():
        node.kill()
        node.start(ready=False)

    def stall():
        broker.stop_responding()
        time.sleep(8)
        broker.respond()

    began = time.monotonic()
    ledger.write(records, rate, at={records // 10: kill_broker, records // 2: kill_node, records * 2 // 3: stall})
    producer.finish()
    arrived(believers, ledger.counts)
    rig.until("nothing is in flight", lambda: node.metrics().get("in_flight") == 0, 30)
    figures = judge(believers)
    figures["records"] = records
    figures["seconds"] = round(time.monotonic() - began, 1)
    if whole:
        never = sum(len(believer.missing(channel, ledger.counts[channel])) for believer in believers for channel in believer.channels)
        figures["never seen"] = never
        rig.check(never == 0, f"publications that no client got: {figures}")
    figures["repeated"] = int(node.metrics().get("repeated_total", 0))
    for believer in believers:
        believer.end()
    return figures


def kafka(case, records):
    """Kafka: broker killed and back, consumer killed, broker stalled; 0 lost, order kept, no repeats."""
    broker = brokers.Kafka(case).start()
    broker.topic("prices", 4)
    node = Node(case, "a", f"  kafka: {{prices: {{servers: '{broker.address}', topics: prices, group: suite}}}}\n").start()
    return torture(case, broker, node, broker.producer("prices"), records, 5000)


def kafka_down_at_start(case, _):
    """Kafka is down when its killed consumer starts again, for longer than clients wait for logs: nothing lost, no repeats."""
    broker = brokers.Kafka(case).start()
    broker.topic("prices", 4)
    node = Node(case, "a", f"  kafka: {{prices: {{servers: '{broker.address}', topics: prices, group: suite}}}}\n").start()
    believers = clients([node.port])
    producer = broker.producer("prices")
    ledger = Ledger(producer, CHANNELS)
    ledger.write(10_000, 2000)
    # Records that are delivered and cannot be committed.
    rig.until("records are delivered", lambda: all(believer.last(believer.channels[0]) for believer in believers), 30)
    broker.kill()
    node.kill()
    node.start(ready=False)
    time.sleep(30)
    broker.start()
    ledger.write(10_000, 2000)
    producer.finish()
    arrived(believers, ledger.counts)
    figures = judge(believers)
    never = sum(len(believer.missing(channel, ledger.counts[channel])) for believer in believers for channel in believer.channels)
    figures |= {"never seen": never, "repeated": int(node.metrics().get("repeated_total", 0))}
    rig.check(never == 0, f"publications that no client got: {figures}")
    for believer in believers:
        believer.end()
    return figures


def kafka_rebalance(case, records):
    """Kafka, two members of a group: one is killed, the other takes over; clients of both get everything, in order."""
    broker = brokers.Kafka(case).start()
    broker.topic("prices", 4)
    source = f"  kafka: {{prices: {{servers: '{broker.address}', topics: prices, group: suite}}}}\n"
    one, two = Node(case, "one", source).start(), Node(case, "two", source)
    believers = clients([one.port])
    producer = broker.producer("prices")
    ledger = Ledger(producer, CHANNELS)
    others = []

    def join():
        # Its clients are there before it has partitions, and go to the other node when it is killed.
        two.start(ready=False)
        others.extend(clients([two.port, one.port]))

    ledger.write(records, min(5000, records // 30), at={records // 4: join, records * 3 // 4: two.kill})
    producer.finish()
    rig.until("both have taken all", lambda: one.metrics()["lag_records"] == 0 and one.metrics()["partitions"] == 4, 60, 0.1)
    time.sleep(1)
    seen = {channel: set() for channel in CHANNELS}
    for believer in believers + others:
        for channel, numbers in believer.seen.items():
            seen[channel] |= set(numbers)
    never = sum(len(set(range(1, ledger.counts[channel] + 1)) - numbers) for channel, numbers in seen.items())
    figures = judge(believers)
    figures |= {"records": records, "never seen": never, "by the second node": sum(len(n) for b in others for n in b.seen.values())}
    # A node that is killed takes what its sockets held with it; its clients are told that they did not recover on the other node, which
    # has its partitions some seconds later.
    for believer in believers + others:
        believer.end()
    return figures


def jetstream(case, records, durable=True):
    """JetStream, durable consumer: broker killed and back, consumer killed, broker stalled; 0 lost, order kept, no repeats."""
    broker = brokers.Nats(case).start()
    broker.stream("PRICES", "prices.>")
    more = ", durable: suite" if durable else ""
    source = f"  jetstream: {{prices: {{servers: '{broker.address}', stream: PRICES, channel: '{{2}}'{more}}}}}\n"
    node = Node(case, "a", source).start()
    return torture(case, broker, node, broker.producer("prices."), records, 5000)


def jetstream_ordered(case, records):
    """JetStream, ordered consumer: the same; what a killed node missed is read again from the stream."""
    return jetstream(case, records, durable=False)


def redis_streams(case, records):
    """Redis Streams with AOF, always synced: no repeats; clients of the killed consumer receive `recovered: false`."""
    broker = brokers.Redis(case).start()
    source = f"  redis_streams: {{prices: {{servers: '{broker.address}', streams: prices, start: earliest}}}}\n"
    node = Node(case, "a", source).start()
    return torture(case, broker, node, broker.producer("prices"), records, 4000, whole=False)


def postgres(case, records):
    """PostgreSQL outbox: no repeats; clients of the killed consumer receive `recovered: false`."""
    broker = brokers.Postgres(case).start()
    made = broker.psql(OUTBOX.read_text() + "\ncreate table suite_batches (id bigint primary key);")
    rig.check(made.returncode == 0, made.stderr)
    source = (f"  postgres: {{outbox: {{server: '{broker.address}', database: postgres, user: suite, partitions: 4}}}}\n")
    node = Node(case, "a", source).start()
    return torture(case, broker, node, broker.producer(""), records, 2500, whole=False)


def at_most_once(case, start, publish, source):
    """A source that delivers at most once: a gap is reported to positioned clients within a second of the reconnect, and counted."""
    node = Node(case, "a", source).start()
    believers = clients([node.port], 1)
    publish([(channel, json.dumps({"s": 1})) for channel in CHANNELS])
    arrived(believers, dict.fromkeys(CHANNELS, 1), 20)
    broker = start()
    before = believers[0].notified
    broker.kill()
    time.sleep(1)
    broker.start()
    rig.until("the node has reconnected", node.is_ready, 30, 0.01)
    ready = time.monotonic()
    rig.until("all clients were notified", lambda: believers[0].notified - before >= len(CHANNELS), 5, 0.01)
    late = max(believers[0].notices[before:]) - ready
    rig.check(late <= 1.0, f"notified {late:.2f} s after the reconnect")
    for believer in believers:
        believer.end()
    return {"notified after": round(late, 3), "notified": believers[0].notified - before}


def redis_pubsub(case, _):
    """Redis pub/sub: every gap is reported to positioned clients within a second."""
    broker = brokers.Redis(case, durable=False).start()

    def publish(records):
        connection = brokers.RedisConnection(broker)
        for channel, value in records:
            connection.command("PUBLISH", channel, value)

    source = f"  redis_pubsub: {{prices: {{servers: '{broker.address}', patterns: 'k*'}}}}\n"
    return at_most_once(case, lambda: broker, publish, source)


def core_nats(case, _):
    """Core NATS: every gap is reported to positioned clients within a second."""
    broker = brokers.Nats(case).start()

    def publish(records):
        connection = brokers.NatsConnection(broker)
        out = [f"PUB {channel} {len(value)}\r\n{value}\r\n" for channel, value in records]
        connection.socket.sendall("".join(out).encode() + b"PING\r\n")
        while connection.line() != b"PONG":
            pass

    source = f"  nats: {{prices: {{servers: '{broker.address}', subjects: '>'}}}}\n"
    return at_most_once(case, lambda: broker, publish, source)


def two_nodes(case, broker, source, producer, seconds=12):
    """Clients on two nodes that read the same log; node A is killed: all clients are back on B, nothing lost, nothing twice."""
    a, b = Node(case, "a", source).start(), Node(case, "b", source).start()
    on_a = [Believer([a.port, b.port], CHANNELS[start::10]) for start in range(10)]
    on_b = [Believer([b.port], CHANNELS[start::10]) for start in range(10)]
    for believer in on_a + on_b:
        rig.check(believer.ready.wait(30), "a client does not subscribe")
    ledger = Ledger(producer, CHANNELS)
    back = {}

    def kill():
        a.kill()
        killed = time.monotonic()
        for believer in on_a:
            believer.ready.clear()
        for believer in on_a:
            believer.ready.wait(30)
        back["seconds"] = round(time.monotonic() - killed, 2)

    records = 2000 * seconds
    ledger.write(records, 2000, at={records // 2: kill})
    producer.finish()
    arrived(on_a, ledger.counts, 60)
    arrived(on_b, ledger.counts, 60)
    figures = judge(on_a + on_b)
    conflicts = 0
    for one, other in zip(on_a, on_b):
        for place, number in one.by_place.items():
            conflicts += other.by_place.get(place, number) != number
    shared = sum(place in other.by_place for one, other in zip(on_a, on_b) for place in one.by_place)
    figures |= {"records": records, "back after": back.get("seconds"), "places of both nodes": shared, "conflicting places": conflicts,
                "unrecovered of A": sum(believer.unrecovered for believer in on_a)}
    rig.check(conflicts == 0 and shared > records // 4, f"the nodes' positions differ: {figures}")
    rig.check(figures["unrecovered of A"] == 0, f"clients of A did not recover: {figures}")
    for believer in on_a + on_b:
        believer.end()
    return figures


def kafka_two_nodes(case, _):
    """Two nodes on one Kafka topic, one is killed: its clients recover on the other, in the same number space."""
    broker = brokers.Kafka(case).start()
    broker.topic("prices", 4)
    return two_nodes(case, broker, f"  kafka: {{prices: {{servers: '{broker.address}', topics: prices}}}}\n", broker.producer("prices"))


def jetstream_two_nodes(case, _):
    """Two nodes on one JetStream stream, one is killed: its clients recover on the other, in the same number space."""
    broker = brokers.Nats(case).start()
    broker.stream("PRICES", "prices.>")
    source = f"  jetstream: {{prices: {{servers: '{broker.address}', stream: PRICES, channel: '{{2}}'}}}}\n"
    return two_nodes(case, broker, source, broker.producer("prices."))


def jetstream_rollback(case, _):
    """A JetStream store restored from an older copy: clients are notified, and nothing is falsely recovered."""
    broker = brokers.Nats(case).start()
    broker.stream("PRICES", "prices.>")
    source = f"  jetstream: {{prices: {{servers: '{broker.address}', stream: PRICES, channel: '{{2}}'}}}}\n"
    node = Node(case, "a", source).start()
    stays, leaves = Believer([node.port], CHANNELS[:5]), Believer([node.port], CHANNELS[:5])
    for believer in (stays, leaves):
        rig.check(believer.ready.wait(30), "a client does not subscribe")
    producer = broker.producer("prices.")
    first = Ledger(producer, CHANNELS[:5])
    first.write(50, 1000, 10)
    arrived([stays, leaves], first.counts, 20)
    broker.kill()
    copy = case.dir / "copy"
    broker.copy_store(copy)
    broker.start()
    rig.until("the node is ready", node.is_ready, 30)
    first.write(50, 1000, 10)
    arrived([stays, leaves], first.counts, 20)
    # One leaves with positions that the restored stream does not have yet.
    leaves.ports, port = [rig.free_port()], node.port
    restore(broker, copy)
    # Publications with the numbers of those that are lost: others.
    other = Ledger(broker.producer("prices."), CHANNELS[:5])
    other.counts = dict.fromkeys(CHANNELS[:5], 1000)
    other.write(100, 1000, 10)
    # 100 of the first life; then the 50 that the copy has, and 100 others.
    rig.until("all of the restored stream is published", lambda: node.metrics().get("published_total") == 250, 30)
    rig.until("the client that stayed is subscribed again", stays.ready.is_set, 30)
    leaves.ports = [port]
    rig.until("the client that left is back", leaves.ready.is_set, 30)
    time.sleep(0.5)
    figures = {"notified": stays.notified, "conflicts": len(stays.conflicts) + len(leaves.conflicts),
               "falsely recovered": falsely_recovered(leaves, other)}
    figures["falsely recovered"] += falsely_recovered(stays, other)
    rig.check(figures["conflicts"] == figures["falsely recovered"] == 0, str(figures))
    rig.check(stays.notified > 0, "the client that stayed was not notified")
    for believer in (stays, leaves):
        believer.end()
    return figures


def restore(broker, copy):
    """Puts an older copy in the place of a broker's store."""
    import shutil
    broker.kill()
    shutil.rmtree(broker.store)
    shutil.copytree(copy, broker.store)
    broker.start()


def falsely_recovered(believer, ledger):
    """Counts publications of the ledger that the client lacks although it was never told that something is missing."""
    count = 0
    for channel in believer.channels:
        wanted = set(range(1001, ledger.counts[channel] + 1))
        lacks = wanted - set(believer.seen[channel])
        if lacks and not believer.excused[channel]:
            count += len(lacks)
    return count


def kafka_recreated(case, _):
    """A Kafka topic deleted and created again: clients are notified, and nothing is falsely recovered."""
    broker = brokers.Kafka(case).start()
    broker.topic("prices", 2)
    node = Node(case, "a", f"  kafka: {{prices: {{servers: '{broker.address}', topics: prices}}}}\n").start()
    stays = Believer([node.port], CHANNELS[:5])
    rig.check(stays.ready.wait(30), "a client does not subscribe")
    producer = broker.producer("prices")
    first = Ledger(producer, CHANNELS[:5])
    first.write(100, 1000, 10)
    producer.finish()
    arrived([stays], first.counts, 20)
    broker.delete("prices")
    broker.topic("prices", 2)
    producer = broker.producer("prices")
    other = Ledger(producer, CHANNELS[:5])
    other.counts = dict.fromkeys(CHANNELS[:5], 1000)
    other.write(200, 1000, 10)
    producer.finish()
    arrived([stays], other.counts, 60)
    figures = {"notified": stays.notified, "conflicts": len(stays.conflicts), "falsely recovered": falsely_recovered(stays, other)}
    rig.check(figures["conflicts"] == figures["falsely recovered"] == 0, str(figures))
    # Receipts are collected a moment after clients have the publications.
    rig.until("300 publications, of both topics, are done", lambda: node.metrics()["published_total"] == 300, 5)
    rig.check(stays.notified > 0, "the client was not notified")
    stays.end()
    return figures


CASES = [kafka, kafka_down_at_start, kafka_rebalance, kafka_two_nodes, kafka_recreated, jetstream, jetstream_ordered, jetstream_two_nodes,
         jetstream_rollback, redis_streams, redis_pubsub, core_nats, postgres]
