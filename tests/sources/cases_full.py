"""Cases of `cargo xtask suite sources` in which a worker takes nothing for ten seconds while records arrive for it.

One of two workers is suspended, so its queue fills up and stays full. Nothing may be dropped, and partitions whose channels belong to
the other worker have to continue meanwhile.
"""

import contextlib
import threading
import time

import brokers
import rig
from believer import Believer, Ledger
from cases import OUTBOX, Node, arrived, judge
from network import Suspended, thread_of

HELD_SECONDS = 10.0
HELD_RATE, FREE_RATE = 2000, 200
# Publications that a worker's queue has room for (limits::THREAD_QUEUE of push), and more than that.
QUEUE, IN_FLIGHT = 8192, 20_000
# Messages of the source itself in that queue: a report of its progress every 100 ms.
EVENTS = 200


def home_of(channel):
    """Returns the worker, of two, that owns a channel (`home_of` of the hub)."""
    mask = (1 << 64) - 1
    number = 0xcbf29ce484222325
    for byte in channel.encode():
        number = (number ^ byte) * 0x100000001b3 & mask
    number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9 & mask
    number = (number ^ number >> 27) * 0x94d049bb133111eb & mask
    return (number ^ number >> 31) >> 63


FREE, HELD = ([name for name in (f"h{number}" for number in range(100)) if home_of(name) == worker][:20] for worker in (0, 1))


def hold(case, source, free_producer, held_producer, held_batch=HELD_RATE // 10):
    """Suspends the worker of HELD for ten seconds under load."""
    node = Node(case, "a", source, flags=("--workers", "2")).start()
    # With so many, some are on either worker: connections are spread by a hash of their addresses.
    listeners = [Believer([node.port], FREE) for _ in range(16)]
    believers = [Believer([node.port], HELD[start::4]) for start in range(4)]
    for believer in listeners + believers:
        rig.check(believer.ready.wait(30), "a client does not subscribe")
    ledgers = [Ledger(free_producer, FREE), Ledger(held_producer, HELD)]
    seconds = HELD_SECONDS + 6
    writers = [threading.Thread(target=ledger.write, args=(int(rate * seconds), rate, batch), daemon=True)
               for ledger, rate, batch in zip(ledgers, (FREE_RATE, HELD_RATE), (FREE_RATE // 10, held_batch))]
    for writer in writers:
        writer.start()
    time.sleep(2)
    worker = Suspended(thread_of(node.process, "ringmain-1"))
    try:
        suspended = time.monotonic()
        time.sleep(HELD_SECONDS - 1)
        wanted = dict(ledgers[0].counts)
        rig.until("the other worker's channels continue",
                  lambda: any(all(listener.last(channel) >= count for channel, count in wanted.items()) for listener in listeners), 1)
        live = sum(all(listener.last(channel) >= count for channel, count in wanted.items()) for listener in listeners)
        while_held = node.metrics()
        written = sum(ledgers[1].counts.values())
        time.sleep(max(0.0, suspended + HELD_SECONDS - time.monotonic()))
    finally:
        worker.resume()
    for writer in writers:
        writer.join(60)
    for ledger in ledgers:
        ledger.producer.finish()
    resumed = time.monotonic()
    for believer in listeners:
        arrived([believer], ledgers[0].counts, 60)
    arrived(believers, ledgers[1].counts, 60)
    rig.until("nothing is in flight", lambda: node.metrics().get("in_flight") == 0, 30)
    everyone = listeners + believers
    figures = judge(everyone)
    sent = sum(ledger.sent for ledger in ledgers)
    with contextlib.suppress(rig.Failed):
        rig.until("all are counted", lambda: node.metrics()["published_total"] == sent, 5)
    metrics = node.metrics()
    figures |= {
        "records": sent, "written for the held worker": written,
        "in flight": int(while_held["in_flight"]), "paused": int(while_held["paused_partitions"]), "clients that went on": live,
        "published": int(metrics["published_total"]), "dead": int(metrics.get("dead_letters_total", 0)),
        "gaps": int(metrics.get("gaps_total", 0)), "caught up after": round(time.monotonic() - resumed, 1)}
    never = sum(len(believer.missing(channel, ledger.counts[channel])) for ledger, group in zip(ledgers, (listeners, believers))
                for believer in group for channel in believer.channels)
    figures["never seen"] = never
    rig.check(never == 0 and figures["dead"] == figures["gaps"] == 0, f"records were dropped: {figures}")
    rig.expect("publications", figures["records"], figures["published"])
    rig.check(figures["paused"] > 0, f"no partition was paused: {figures}")
    rig.check(while_held["in_flight"] >= QUEUE - EVENTS, f"the worker's queue was not full: {figures}")
    rig.check(0 < live < len(listeners), f"clients are expected on both workers: {figures}")
    for believer in everyone:
        believer.end()
    return figures


def kafka_full(case, _):
    """Kafka, a worker's queue full for 10 s: nothing dropped, the other partition continues."""
    broker = brokers.Kafka(case).start()
    for topic in ("free", "held"):
        broker.topic(topic, 1)
    source = f"  kafka: {{prices: {{servers: '{broker.address}', topics: [free, held], group: suite, in_flight: {IN_FLIGHT}}}}}\n"
    return hold(case, source, broker.producer("free"), broker.producer("held"))


def jetstream_full(case, _):
    """JetStream, durable consumers of two streams: the same."""
    broker = brokers.Nats(case, sync="2m").start()
    source = "  jetstream:\n"
    for name in ("free", "held"):
        broker.stream(name.upper(), f"{name}.>")
        source += (f"    {name}: {{servers: '{broker.address}', stream: {name.upper()}, channel: '{{2}}', durable: suite, "
                   f"in_flight: {IN_FLIGHT}}}\n")
    return hold(case, source, broker.producer("free."), broker.producer("held."))


def redis_streams_full(case, _):
    """Redis Streams, two streams of one source: the same."""
    broker = brokers.Redis(case).start()
    source = (f"  redis_streams: {{prices: {{servers: '{broker.address}', streams: [free, held], start: earliest, "
              f"in_flight: {IN_FLIGHT}}}}}\n")
    return hold(case, source, broker.producer("free"), broker.producer("held"))


def postgres_full(case, _):
    """PostgreSQL outbox, twelve partitions: the same.

    At most 1,000 rows of a partition are in flight, and no more are read until they are done: ten partitions fill the queue with the rows
    of one transaction.
    """
    broker = brokers.Postgres(case).start()
    made = broker.psql(OUTBOX.read_text() + "\ncreate table suite_batches (id bigint primary key);")
    rig.check(made.returncode == 0, made.stderr)
    source = (f"  postgres: {{outbox: {{server: '{broker.address}', database: postgres, user: suite, partitions: 12, "
              f"in_flight: {IN_FLIGHT}}}}}\n")
    return hold(case, source, broker.producer("", lambda key: FREE.index(key) % 2),
                broker.producer("", lambda key: 2 + HELD.index(key) % 10), held_batch=12_000)


CASES = [kafka_full, jetstream_full, redis_streams_full, postgres_full]
