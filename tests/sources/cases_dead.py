"""Dead letters whose topic does not exist: they wait, and the records beside them are published."""

import subprocess
import time
import urllib.request

import brokers
import rig
from believer import Ledger
from cases import Node, arrived, clients, judge

CHANNELS = [f"k{number}" for number in range(100)]
# Dead letters with which a partition is not read, at the defaults of a source.
LIMIT = 256


def kafka_dead_letters(case, _):
    """Kafka, a group, and a topic of dead letters that is created late: nothing is lost, and good records do not wait for it."""
    broker = brokers.Kafka(case).start()
    broker.topic("prices", 2)
    source = f"  kafka: {{prices: {{servers: '{broker.address}', topics: prices, group: suite, dead_letters: dead}}}}\n"
    node = Node(case, "a", source).start()
    believers = clients([node.port])
    ledger = Ledger(broker.producer("prices"), CHANNELS)
    write_bad(broker, 1)
    rig.until("a dead letter waits", lambda: node.metrics().get("dead_letters_waiting") == 1, 30)
    ledger.write(1000, 1000)
    ledger.producer.finish()
    arrived(believers, ledger.counts, 30)
    rig.until("it is reported", lambda: node.metrics()["degraded"] == 1, 60)
    ready = urllib.request.urlopen(f"http://127.0.0.1:{node.admin}/readyz", timeout=5)
    rig.check(b"degraded" in ready.read(), "/readyz does not report the source")
    metrics = node.metrics()
    rig.check(metrics["paused_partitions"] == 0 and metrics["failures_total"] == 0, f"records wait for it: {metrics}")
    # The committed offset has not passed it, so the next process has it again.
    node.kill()
    node.start(ready=False)
    rig.until("the dead letter is read again", lambda: alive(node).get("dead_letters_waiting") == 1, 60)
    write_bad(broker, LIMIT - 1)
    rig.until("its partition is not read", lambda: node.metrics()["paused_partitions"] == 1, 60)
    ledger.producer = broker.producer("prices")
    ledger.write(1000, 1000)
    ledger.producer.finish()
    rig.until("the other partition is read", lambda: any(
        believer.last(channel) >= ledger.counts[channel] for believer in believers for channel in believer.channels), 30)
    waiting = node.metrics()["dead_letters_waiting"]
    broker.topic("dead", 1)
    began = time.monotonic()
    arrived(believers, ledger.counts, 60)
    rig.until("no dead letter waits", lambda: node.metrics()["dead_letters_waiting"] == 0, 60)
    rig.until("all is committed", lambda: node.metrics()["in_flight"] == node.metrics()["degraded"] == 0, 30)
    letters = read(broker, "dead")
    figures = judge(believers)
    figures |= {"records": ledger.sent, "waited": int(waiting), "dead letters": letters, "seconds after": round(time.monotonic() - began, 1)}
    rig.expect("dead letters", LIMIT, letters)
    for believer in believers:
        believer.end()
    return figures


def write_bad(broker, count):
    """Writes records that are no JSON, all in one partition."""
    producer = broker.producer("prices")
    producer.send([("bad", "{")] * count)
    # The program reads its input in blocks: it has sent all of them once it ends.
    producer.finish()


def alive(node):
    """Returns the metrics of a node that may not have started yet."""
    try:
        return node.metrics()
    except OSError:
        return {}


def read(broker, topic):
    """Returns the number of records of a topic."""
    done = subprocess.run([*broker.inside(), "kcat", "-C", "-e", "-q", "-b", broker.address, "-t", topic, "-f", "%h\n"],
                          capture_output=True, text=True, timeout=60)
    lines = done.stdout.split()
    rig.check(all("ringmain-reason=bad_format" in line for line in lines), f"unexpected headers: {lines[:3]}")
    return len(lines)


CASES = [kafka_dead_letters]
