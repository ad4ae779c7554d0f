"""Nodes are killed under clients of Centrifuge's SDKs: each client must receive each acknowledged publication exactly once, in order."""

import contextlib
import hashlib
import json
import queue
import subprocess
import threading
import time

import rig
from publisher import Publisher, errors_of
from stage import RETAINED, Stage

CHANNELS = {"plain": 6, "delta": 6, "tags": 6, "compact": 3}
OF_EACH = 3
KEPT = RETAINED % 1000
NAMESPACES = {"": KEPT, "plain": KEPT, "delta": f"{KEPT}, delta: fossil", "tags": f"{KEPT}, tags_filter: true",
              "compact": f"{KEPT}, compaction: true"}
# Publications of each channel before a kill, while the node is away, and after it is back.
BEFORE, AWAY, BACK = 10, 20, 10
PERIOD_SECONDS = 0.2
PUBLISHERS = 7
PUBLISH_SECONDS = 60.0
REPLY_SECONDS = 60.0
ARRIVE_SECONDS = 90.0
ROWS = 60
# By number: (SDK, transport, format, namespaces, clients). The npm SDK in Protobuf compares the numbers of compacted channels by
# identity, and they are objects where the package `long` is installed: those clients do not subscribe there.
GROUPS = [
    ("js", "websocket", "json", ("plain", "compact"), 30), ("js", "websocket", "protobuf", ("plain",), 30),
    ("js", "websocket", "json", ("delta",), 30), ("js", "websocket", "protobuf", ("delta",), 30),
    ("js", "websocket", "json", ("tags",), 30), ("js", "websocket", "protobuf", ("tags",), 30),
    ("js", "http_stream", "json", ("delta",), 10), ("js", "sse", "json", ("plain",), 10),
    ("go", "websocket", "json", ("plain", "compact"), 30), ("go", "websocket", "protobuf", ("plain", "compact"), 30),
    ("go", "websocket", "json", ("delta",), 30), ("go", "websocket", "protobuf", ("delta",), 30),
    ("go", "websocket", "json", ("tags",), 30), ("go", "websocket", "protobuf", ("tags",), 30),
]
# The numbers that pass the filters of crowd.mjs and crowd/main.go; each publication has the tags `kind` and `number`.
KINDS = "abc"
FILTERS = [lambda number: number % 3 == 0, lambda number: number % 3 == 1 or number > 50]


def clients_of(sdk):
    """Returns the clients of an SDK: transport, format, and subscriptions of [channel, option, filter]."""
    found = []
    for group_sdk, transport, encoding, namespaces, count in GROUPS:
        for index in range(count if group_sdk == sdk else 0):
            subscriptions = []
            for namespace in namespaces:
                for step in range(min(OF_EACH, CHANNELS[namespace])):
                    number = (index + step) % CHANNELS[namespace]
                    subscriptions.append([f"{namespace}:{number}", namespace, index % len(FILTERS) if namespace == "tags" else -1])
            found.append({"transport": transport, "format": encoding, "subscriptions": subscriptions})
    return found


def publication(channel, number):
    """Returns the data of a publication: little differs from the one before, and `sum` covers all."""
    rows = [f"row {row} of {channel}, Größe {(number + row) // 10}" for row in range(ROWS)]
    text = "\n".join(rows)
    return {"n": number, "text": text, "sum": hashlib.sha1(f"{channel}\n{number}\n{text}".encode()).hexdigest()}


class Clients:
    """A process of clients: reads its clients, then a request of each line, and writes a line for each."""

    def __init__(self, case, name, command, port):
        self.name, self.clients = name, clients_of(name)
        self.log = case.dir / f"{name}.log"
        with open(self.log, "wb") as errors:
            self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
        case.stack.callback(self.end)
        self.lines = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()
        self.send({"host": f"127.0.0.1:{port}", "clients": self.clients})
        self.subscriptions = [subscription for client in self.clients for subscription in client["subscriptions"]]

    def read(self):
        for line in self.child.stdout:
            self.lines.put(line)
        self.lines.put("")

    def send(self, message):
        self.child.stdin.write(json.dumps(message) + "\n")
        self.child.stdin.flush()

    def call(self, request):
        # A process that has ended does not read.
        with contextlib.suppress(queue.Empty, OSError):
            self.send(request)
            if line := self.lines.get(timeout=REPLY_SECONDS):
                return json.loads(line)
        raise rig.Failed(f"the clients of {self.name} do not respond: {self.log.read_text(errors='replace')[-1500:]}")

    def behind(self, numbers):
        """Returns how many subscriptions are not live, or lack a publication up to these numbers."""
        found = [index for index, (is_live, last) in enumerate(self.call("progress"))
                 if not is_live or last < last_match(self.subscriptions[index], numbers)]
        return len(found), [self.subscriptions[index] for index in found[:3]]

    def end(self):
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()


def matches(kind, number):
    return kind < 0 or FILTERS[kind](number)


def last_match(subscription, numbers):
    """Returns the last number that a subscription receives of those up to the channel's."""
    channel, _, kind = subscription
    return next((number for number in range(numbers.get(channel, 0), 0, -1) if matches(kind, number)), 0)


class Positions:
    """The positions of publications: the epoch of a channel does not change, and its offsets increase."""

    def __init__(self):
        self.by_channel = {}

    def check(self, channel, result):
        epoch, offset = self.by_channel.setdefault(channel, (result["epoch"], result["offset"] - 1))
        rig.check(result["epoch"] == epoch, f"{channel} has changed its epoch")
        rig.check(result["offset"] > offset, f"{channel}: the offset {result['offset']} after {offset}")
        self.by_channel[channel] = (epoch, result["offset"])


def fields(channel, number):
    """Returns those of the command that publishes a number."""
    return {"data": publication(channel, number), "tags": {"kind": KINDS[number % 3], "number": str(number)}}


def start_publishers(port, channels):
    """Starts publishers that send each publication again until it is acknowledged."""
    publishers = [Publisher(f"p{turn}", [port], part, len(part) / PERIOD_SECONDS, seconds=8, repeat_seconds=PUBLISH_SECONDS, fields=fields,
                            on_acknowledged=Positions().check) for turn, part in enumerate(channels[turn::PUBLISHERS] for turn in range(PUBLISHERS))]
    for publisher in publishers:
        publisher.start()
    return publishers


class Run:
    """The clients and publishers of a run."""

    def __init__(self, case, stage):
        self.clients = [Clients(case, "js", ["node", str(case.tools.crowd_js)], stage.port),
                        Clients(case, "go", [str(case.tools.crowd_go)], stage.port)]
        self.channels = [f"{namespace}:{number}" for namespace, count in CHANNELS.items() for number in range(count)]
        self.arrive({}, "all clients are subscribed")
        self.publishers = start_publishers(stage.port, self.channels)

    def numbers(self):
        return {channel: number for publisher in self.publishers for channel, number in publisher.numbers.items()}

    def until_published(self, more):
        """Waits until each channel has that many more acknowledged publications."""
        wanted = {channel: number + more for channel, number in self.numbers().items()}

        def probe():
            failures = [publisher.failure for publisher in self.publishers if publisher.failure]
            rig.check(not failures, str(failures[:1]))
            return all(number >= wanted[channel] for channel, number in self.numbers().items())
        rig.until(f"{more} more publications of each channel are acknowledged", probe, PUBLISH_SECONDS + more * PERIOD_SECONDS * 5, 0.05)

    def arrive(self, numbers, subject):
        """Waits until all subscriptions are live and have these numbers."""
        found = []

        def probe():
            found[:] = [clients.behind(numbers) for clients in self.clients]
            return not any(count for count, _ in found)
        try:
            rig.until(subject, probe, ARRIVE_SECONDS, 0.1)
        except rig.Failed as why:
            reports = [clients.call("report") for clients in self.clients]
            known = [(report["counts"], len(report["faults"]), report["faults"][:3]) for report in reports]
            raise rig.Failed(f"{why}; behind, by SDK: {found}; counts and faults: {known}") from None

    def finish(self):
        """Ends the publishers, waits for the rest, and returns what the clients have received."""
        for publisher in self.publishers:
            publisher.finish()
        self.arrive(self.numbers(), "the last publications arrive")
        return judge(self.clients, self.numbers(), self.publishers)


def judge(clients, numbers, publishers):
    """Compares the numbers that each subscription has received with those of its channel."""
    lost = doubled = delivered = 0
    faults, counts = [], {}
    for group in clients:
        report = group.call("report")
        faults += report["faults"]
        for name, count in report["counts"].items():
            counts[f"{group.name}_{name}"] = count
        rig.expect("subscriptions", len(group.subscriptions), len(report["numbers"]))
        for (channel, _, kind), received in zip(group.subscriptions, report["numbers"]):
            wanted = [number for number in range(1, numbers[channel] + 1) if matches(kind, number)]
            delivered += len(received)
            if received != wanted:
                lost += len(set(wanted) - set(received))
                doubled += len(received) - len(set(received))
                faults.append(f"{group.name} {channel} {kind}: lacks {sorted(set(wanted) - set(received))[:5]}, more than wanted "
                              f"{sorted(set(received) - set(wanted))[:5]}, {len(received)} of {len(wanted)}")
    figures = {"clients": sum(len(group.clients) for group in clients), "published": sum(numbers.values()), "delivered": delivered, "lost": lost,
               "doubled": doubled, **counts, "sent_again": dict(errors_of(publishers)), "slowest_publication_s": round(max(each.slowest for each in publishers), 2)}
    rig.check(not lost and not doubled and not faults, f"{figures}; {len(faults)} faults: {faults[:5]}")
    return figures


def run(case, roles, victims):
    """Kills each of `victims` in turn under several hundred clients, and starts it again."""
    stage = Stage(case, roles, NAMESPACES)
    running = Run(case, stage)
    for name in victims:
        running.until_published(BEFORE)
        running.arrive(running.numbers(), f"all arrives before {name} is killed")
        node = stage.cluster[name]
        held = node.clients() if node.role != "push-server" else None
        rig.check(held != 0, f"{name} has no clients")
        node.kill()
        running.until_published(AWAY)
        running.arrive(running.numbers(), f"all arrives while {name} is away")
        stage.restart(name)
        running.until_published(BACK)
    figures = running.finish()
    wanted = sum(1 for name in victims if stage.cluster[name].role != "push-server")
    rig.check(not wanted or figures["js_recovered"] > 0 and figures["go_recovered"] > 0, f"no client has recovered: {figures}")
    rig.check(figures["js_deltas"] > 0, f"no client has received a delta: {figures}")
    return figures


def nodes(case):
    """Two nodes that have clients and own channels."""
    return run(case, {"a": None, "b": None}, ["a", "b", "a"])


def roles(case):
    """Two push gateways, which have the clients, and two push servers, which own the channels."""
    named = {"g1": "push-gateway", "g2": "push-gateway", "s1": "push-server", "s2": "push-server"}
    return run(case, named, ["s1", "g1", "s2", "g2"])
