"""Cases of `cargo xtask suite sources` with two nodes that share a source, of which one is killed and the other takes over.

A record is published by one node. Clients of both miss nothing without being notified, and receive each key's records in their order.
"""

import time

import brokers
import rig
from believer import Ledger
from cases import CHANNELS, OUTBOX, Node, clients, judge

def take_over(one, two, producer, records, rate, victim=1, allow_doubled=0):
    """Has `two` join at a quarter of the records, and kills one of the two at three quarters."""
    one.start()
    believers = clients([one.port, two.port])
    killed, left = (one, two)[victim], (two, one)[victim]
    ledger = Ledger(producer, CHANNELS)
    others, marks = [], {}

    def join():
        two.start(ready=False)
        # They go to the other node when theirs is killed.
        others.extend(clients([two.port, one.port]))

    def kill():
        marks["by the killed"] = int(killed.metrics().get("published_total", 0))
        killed.kill()

    rate = min(rate, records // 30)
    ledger.write(records, rate, at={records // 4: join, records * 3 // 4: kill})
    producer.finish()
    rig.until("the other node has taken all", lambda: is_done(left), 90, 0.1)
    time.sleep(1)
    seen = {channel: set() for channel in CHANNELS}
    for believer in believers + others:
        for channel, numbers in believer.seen.items():
            seen[channel] |= set(numbers)
    never = sum(len(set(range(1, ledger.counts[channel] + 1)) - numbers) for channel, numbers in seen.items())
    figures = judge(believers + others, allow_doubled)
    figures |= {"records": records, "by the killed node": marks.get("by the killed"), "by the other": int(left.metrics()["published_total"]),
                "never seen": never}
    rig.check(marks.get("by the killed", 0) > 0, f"the node that was killed had published nothing: {figures}")
    # Every channel's last record arrived: the node that is left publishes all of them.
    last = {channel: ledger.counts[channel] for channel in CHANNELS}
    missing = [channel for channel in CHANNELS if last[channel] not in seen[channel]]
    rig.check(not missing, f"the last records of {missing[:5]} did not arrive: {figures}")
    for believer in believers + others:
        believer.end()
    return figures


def is_done(node):
    metrics = node.metrics()
    return metrics.get("lag_records") == 0 and metrics.get("in_flight") == 0


def postgres_takeover(case, records):
    """PostgreSQL outbox, two nodes that share its partitions: one is killed, the other takes over."""
    broker = brokers.Postgres(case).start()
    made = broker.psql(OUTBOX.read_text() + "\ncreate table suite_batches (id bigint primary key);")
    rig.check(made.returncode == 0, made.stderr)
    source = f"  postgres: {{outbox: {{server: '{broker.address}', database: postgres, user: suite, partitions: 4}}}}\n"
    # Rows that the killed node had published and not deleted: its clients may get them again on the other node, in a new epoch.
    return take_over(Node(case, "one", source), Node(case, "two", source), broker.producer(""), records, 1500, allow_doubled=1000)


def redis_streams_takeover(case, records):
    """Redis Streams, two members of a group: the one that reads is killed, the other claims the entries that it had not acknowledged."""
    broker = brokers.Redis(case).start()
    nodes = [Node(case, name, f"  redis_streams: {{prices: {{servers: '{broker.address}', streams: prices, start: earliest, "
                              f"consumer: {name}}}}}\n") for name in ("one", "two")]
    return take_over(*nodes, broker.producer("prices"), records, 2000, victim=0, allow_doubled=1000)


def jetstream_takeover(case, records):
    """JetStream, two nodes with the same durable consumer: one is killed, the other takes over."""
    broker = brokers.Nats(case).start()
    broker.stream("PRICES", "prices.>")
    source = f"  jetstream: {{prices: {{servers: '{broker.address}', stream: PRICES, channel: '{{2}}', durable: suite}}}}\n"
    return take_over(Node(case, "one", source), Node(case, "two", source), broker.producer("prices."), records, 2000)


CASES = [postgres_takeover, redis_streams_takeover, jetstream_takeover]
