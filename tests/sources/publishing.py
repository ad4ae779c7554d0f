"""The cases of `ringmain bench push --publish-to`: its own records arrive, in order, from each broker."""

import json
import subprocess

import brokers
import rig
from cases import Node

CHANNELS, CLIENTS, EACH = 100, 20, 10
RATE = 2000


def publish(node, url, records):
    """Publishes so many records through a broker; returns the figures of the clients and of a plain consumer."""
    seconds = max(records // 10 // RATE, 1)
    done = subprocess.run([node.case.binary, "bench", "push", f"ws://127.0.0.1:{node.port}", "-c", str(CLIENTS), "--channels",
                           str(CHANNELS), "--each", str(EACH), "-r", str(RATE), "-d", f"{seconds}s", "-w", "1s", "--settle", "60s", "-q",
                           "--json", "--publish-to", url, "--plain-consumer"], capture_output=True, text=True, timeout=seconds + 180)
    rig.check(done.returncode == 0, f"bench push failed: {done.stderr[-500:]}")
    found = json.loads(done.stdout)
    published, deliveries, broker = found["published"], found["deliveries"], found["broker"]
    figures = {name: deliveries[name] for name in ("expected", "delivered", "lost", "doubled", "reordered", "misdelivered", "changed")}
    figures |= {"accepted": published["accepted"], "consumed": broker["to_consumer"]["count"]}
    rig.check(published["accepted"] == published["due"] == seconds * RATE == figures["consumed"], str(figures))
    rig.check(deliveries["delivered"] == deliveries["expected"] == published["due"] * CLIENTS * EACH // CHANNELS, str(figures))
    rig.check(not any(figures[name] for name in ("lost", "doubled", "reordered", "misdelivered", "changed")), str(figures))
    return figures


def bench_kafka(case, records):
    """bench push through Kafka: all records are acknowledged, and delivered once and in order."""
    broker = brokers.Kafka(case).start()
    broker.topic("bench", 4)
    node = Node(case, "a", f"  kafka: {{s: {{servers: '{broker.address}', topics: bench, start: latest}}}}\n").start()
    return publish(node, f"kafka://{broker.address}/bench", records)


def bench_jetstream(case, records):
    """bench push through JetStream: the same."""
    broker = brokers.Nats(case).start()
    broker.stream("BENCH", "bench.>")
    node = Node(case, "a", f"  jetstream: {{s: {{servers: '{broker.address}', stream: BENCH, channel: '{{2}}', start: latest}}}}\n").start()
    return publish(node, f"{broker.address}/bench.{{channel}}", records)


def bench_redis(case, records):
    """bench push through a Redis stream: the same."""
    broker = brokers.Redis(case).start()
    node = Node(case, "a", f"  redis_streams: {{s: {{servers: '{broker.address}', streams: bench}}}}\n").start()
    return publish(node, f"redis://{broker.address}/bench", records)


CASES = [bench_kafka, bench_jetstream, bench_redis]
