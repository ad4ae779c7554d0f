"""Cases of `cargo xtask suite sources` whose fault is outside of the broker and of Ringmain: the link between them.

The broker is in a network namespace. Its link is taken down for eight seconds while records continue to be written beside the broker.
"""

import time

import brokers
import rig
from believer import Ledger
from cases import CHANNELS, OUTBOX, Node, arrived, clients, judge
from network import Network

DOWN_SECONDS = 8.0
# A source without a sign of its broker counts as not delivering after five seconds (limits::SILENT_AFTER); it is queried at intervals.
NOTICED_SECONDS = 7.5
# Connections are retried at most every three seconds, and may take as long as their time limit.
BACK_SECONDS = 10.0


def stall(case, node, network, producer, records, rate):
    """Takes the link down twice under load; nothing may be lost, doubled or reordered, and the node has to notice and return by itself."""
    believers = clients([node.port])
    ledger = Ledger(producer, CHANNELS)
    rate = min(rate, records // 45)
    noticed, back, failures = [], [], []

    def cut():
        try:
            network.cut()
            down = time.monotonic()
            rig.until("/readyz reports the silent broker", lambda: not node.is_ready(), NOTICED_SECONDS, 0.02)
            noticed.append(round(time.monotonic() - down, 2))
            time.sleep(max(0.0, down + DOWN_SECONDS - time.monotonic()))
            network.restore()
            up = time.monotonic()
            rig.until("the source delivers again", node.is_ready, BACK_SECONDS, 0.02)
            back.append(round(time.monotonic() - up, 2))
        except rig.Failed as why:
            failures.append(str(why))
            network.restore()

    ledger.write(records, rate, at={records // 9: cut, records * 5 // 9: cut})
    producer.finish()
    arrived(believers, ledger.counts, 60)
    rig.check(not failures, "; ".join(failures))
    rig.until("nothing is in flight", lambda: node.metrics().get("in_flight") == 0, 30)
    figures = judge(believers)
    never = sum(len(believer.missing(channel, ledger.counts[channel])) for believer in believers for channel in believer.channels)
    metrics = node.metrics()
    figures |= {"records": records, "never seen": never, "noticed after": noticed, "back after": back,
                "connects": int(metrics["connects_total"]), "repeated": int(metrics.get("repeated_total", 0))}
    rig.check(never == 0, f"publications that no client got: {figures}")
    rig.check(len(noticed) == len(back) == 2, f"the link was not down twice: {figures}")
    for believer in believers:
        believer.end()
    return figures


def kafka_stall(case, records):
    """Kafka behind a link that is down for 8 s, twice: noticed, 0 lost, order kept, no repeats."""
    network = Network(case)
    broker = brokers.Kafka(case, network=network).start()
    broker.topic("prices", 4)
    node = Node(case, "a", f"  kafka: {{prices: {{servers: '{broker.address}', topics: prices, group: suite}}}}\n").start()
    return stall(case, node, network, broker.producer("prices"), records, 2200)


def jetstream_stall(case, records):
    """JetStream, durable consumer, behind such a link: the same."""
    network = Network(case)
    broker = brokers.Nats(case, network=network).start()
    broker.stream("PRICES", "prices.>")
    source = f"  jetstream: {{prices: {{servers: '{broker.address}', stream: PRICES, channel: '{{2}}', durable: suite}}}}\n"
    node = Node(case, "a", source).start()
    return stall(case, node, network, broker.producer("prices."), records, 2200)


def jetstream_ordered_stall(case, records):
    """JetStream, ordered consumer, behind such a link: the same."""
    network = Network(case)
    broker = brokers.Nats(case, network=network).start()
    broker.stream("PRICES", "prices.>")
    source = f"  jetstream: {{prices: {{servers: '{broker.address}', stream: PRICES, channel: '{{2}}'}}}}\n"
    node = Node(case, "a", source).start()
    return stall(case, node, network, broker.producer("prices."), records, 2200)


def redis_streams_stall(case, records):
    """Redis Streams behind such a link: the same; entries that were read and not acknowledged are recognized by their identifiers."""
    network = Network(case)
    broker = brokers.Redis(case, network=network).start()
    source = f"  redis_streams: {{prices: {{servers: '{broker.address}', streams: prices, start: earliest}}}}\n"
    node = Node(case, "a", source).start()
    return stall(case, node, network, broker.producer("prices"), records, 2000)


def postgres_stall(case, records):
    """PostgreSQL outbox behind such a link: the same; rows that were published and not deleted are recognized by their identifiers."""
    network = Network(case)
    broker = brokers.Postgres(case, network=network).start()
    made = broker.psql(OUTBOX.read_text() + "\ncreate table suite_batches (id bigint primary key);")
    rig.check(made.returncode == 0, made.stderr)
    source = f"  postgres: {{outbox: {{server: '{broker.address}', database: postgres, user: suite, partitions: 4}}}}\n"
    node = Node(case, "a", source).start()
    return stall(case, node, network, broker.producer(""), records, 1500)


CASES = [kafka_stall, jetstream_stall, jetstream_ordered_stall, redis_streams_stall, postgres_stall]
