"""Nodes of a cluster as processes: configuration, the server API, owners of channels, publishers. Loopback only."""

import base64
import contextlib
import hashlib
import hmac
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import time

import rig
from publisher import Publisher, errors_of  # noqa: F401 the cases take the class from here
from relay import Relay

SECRET = "0123456789abcdef0123456789abcdef"
API_SECONDS = 12.0
LINKED_SECONDS = 20.0
MASK = (1 << 64) - 1


def token(user):
    """Returns a connection token of a user (HS256)."""
    def part(value):
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")
    signed = part({"alg": "HS256", "typ": "JWT"}) + b"." + part({"sub": user})
    return (signed + b"." + base64.urlsafe_b64encode(hmac.digest(SECRET.encode(), signed, hashlib.sha256)).rstrip(b"=")).decode()


class Refused(Exception):
    """The server API has answered with an error, or another status than 200."""


class Node:
    """A `ringmain run` in a cluster, which can be killed, suspended, ended and started again."""

    def __init__(self, case, name, role=None, more="", channels=None, limits="drain: 5s, drain_spread: 1s", binary=None,
                 workers=1, host=None, probes=None):
        self.case, self.name, self.role, self.more, self.limits, self.binary = case, name, role, more, limits, binary
        self.workers = workers
        self.channels = channels or "retention: {publications: 1000, size: 4MiB, time: 10m}, history: true, recovery: true, presence: true"
        self.port, self.admin, self.link = (rig.free_port() for _ in range(3))
        # Another loopback address for a gateway in front, where /readyz is at the same port for all nodes.
        self.host, self.probes = host or "127.0.0.1", probes or rig.free_port()
        # The addresses of the other nodes, or of relays to them.
        self.peers, self.process, self.starts = [], None, 0

    def config(self):
        role = f", role: {self.role}" if self.role else ""
        peers = ", ".join(f"'127.0.0.1:{port}'" for port in self.peers)
        addresses = ", ".join(f"'{host}:{self.port}'" for host in dict.fromkeys(("127.0.0.1", self.host)))
        return (f"listen: [{addresses}]\nadmin: {{address: 127.0.0.1:{self.admin}, metrics: '{self.host}:{self.probes}'}}\n"
                f"limits: {{{self.limits}}}\n{self.certificates()}"
                f"push:\n  anonymous: true\n  api_key: K\n  tokens: {{secret: '{SECRET}'}}\n  channels: {{{self.channels}}}\n"
                f"  cluster: {{listen: '127.0.0.1:{self.link}', nodes: [{peers}], name: {self.name}{role}{self.more}}}\n"
                "routes: {all: {rules: [{push: true}]}}\n")

    def certificates(self):
        """Returns top-level keys for links with TLS."""
        return ""

    def start(self):
        self.starts += 1
        file = self.case.file(f"{self.name}-{self.starts}.yaml", self.config())
        self.process = self.case.start("run", file, "--workers", self.workers, command=self.binary)
        self.process.wait_port(self.port)
        self.case.nodes.append(self)
        return self

    def is_running(self):
        return self.process is not None and self.process.child.poll() is None

    def kill(self):
        self.process.child.kill()
        self.process.child.wait()

    def suspend(self):
        os.kill(self.process.pid, signal.SIGSTOP)

    def resume(self):
        os.kill(self.process.pid, signal.SIGCONT)

    def terminate(self):
        """Asks for a planned end, without waiting for it."""
        self.process.child.send_signal(signal.SIGTERM)

    def api(self, method, seconds=API_SECONDS, **parameters):
        """Calls the server API; returns `result`, or the whole response where it has none."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)
        with contextlib.closing(connection):
            connection.request("POST", f"/api/{method}", json.dumps(parameters), {"X-API-Key": "K", "Content-Type": "application/json"})
            reply = connection.getresponse()
            body = reply.read()
        if reply.status != 200:
            raise Refused(f"{method} at {self.name}: {reply.status} {body[:200]}")
        answer = json.loads(body)
        if "error" in answer:
            raise Refused(f"{method} at {self.name}: {answer['error']}")
        return answer.get("result", answer)

    def linked(self):
        """Returns how many nodes run a call, this one included."""
        with contextlib.suppress(Refused, OSError, ValueError, http.client.HTTPException):
            # A user that does not exist.
            result = self.api("refresh", 6, user="absent")
            return result["num_nodes"] - (1000 if result["num_missing_nodes"] else 0)
        return 0

    def position(self, channel):
        """Returns (epoch, offset) of a channel."""
        result = self.api("history", channel=channel)
        return result["epoch"], result["offset"]

    def clients(self):
        """Returns how many clients this node has."""
        nodes = self.api("info")["nodes"]
        own = [node for node in nodes if node.get("name") == self.name] or nodes
        return own[0]["num_clients"]

    def cpu_seconds(self):
        return cpu_seconds(self.process.pid)

    def uid_of(self, name):
        """Returns the identity that another node has had when it was linked last, as this one has logged it."""
        found = re.findall(rf"linked to the node {re.escape(name)} \(([0-9a-f]{{16}})\)", self.process.output())
        return int(found[-1], 16) if found else None


def cpu_seconds(pid):
    """Returns the CPU time of a process in seconds; exact, unlike the ticks in `stat`."""
    total = 0.0
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/schedstat") as file:
            total += int(file.read().split()[0]) / 1e9
    return total


class Cluster:
    """Nodes that know each other. With `relayed` each pair is linked through relays: `relays[(from, to)]`."""

    def __init__(self, case, names, relayed=False, rates=None, make=Node, **options):
        self.case, self.relays, self.relayed, self.rates = case, {}, relayed, rates or {}
        self.make, self.options = make, options
        self.nodes = {name: make(case, name, **options) for name in names}
        self.connect()

    def connect(self):
        """Gives each node the addresses of all."""
        for near, node in self.nodes.items():
            node.peers = [self.way(near, far) for far in self.nodes if far != near]

    def way(self, near, far):
        if not self.relayed:
            return self.nodes[far].link
        if (near, far) not in self.relays:
            relay = Relay(self.nodes[far].link, self.rates.get(frozenset((near, far))))
            self.relays[(near, far)] = relay
            self.case.stack.callback(relay.end)
        return self.relays[(near, far)].port

    def between(self, one, other):
        """Returns the relays of a pair."""
        return [self.relays[(one, other)], self.relays[(other, one)]]

    def start(self):
        for node in self.nodes.values():
            node.start()
        self.wait_linked()
        return self

    def __getitem__(self, name):
        return self.nodes[name]

    def running(self):
        return [node for node in self.nodes.values() if node.is_running()]

    def wait_linked(self, seconds=LINKED_SECONDS, nodes=None):
        """Waits until every running node reaches every other."""
        nodes = nodes if nodes is not None else self.running()
        rig.until(f"all of {len(nodes)} nodes are linked", lambda: all(node.linked() == len(nodes) for node in nodes), seconds, 0.1)

    def uids(self, names):
        """Returns the identities of these nodes; there are at least two, all linked."""
        found = {}
        for name in names:
            other = next(other for other in names if other != name)
            uid = self.nodes[other].uid_of(name)
            rig.check(uid is not None, f"{other} has logged no link to {name}")
            found[name] = uid
        return found

    def owned_channels(self, count, prefix="c", names=None):
        """Returns for each node the names of `count` channels that it owns."""
        names = names or [name for name, node in self.nodes.items() if node.role != "push-gateway"]
        everyone = [name for name, node in self.nodes.items() if node.is_running()]
        uids = {name: uid for name, uid in self.uids(everyone).items() if name in names}
        owned, number = {name: [] for name in names}, 0
        while any(len(channels) < count for channels in owned.values()):
            channel = f"{prefix}{number}"
            number += 1
            channels = owned[owner(channel, uids)]
            if len(channels) < count:
                channels.append(channel)
        return owned


def mix(number):
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & MASK
    return number ^ (number >> 31)


def owner(channel, uids):
    """Returns the name of a channel's owner among nodes of weight 1 (crates/cluster/src/member.rs)."""
    value = 0xCBF29CE484222325
    for byte in channel.encode():
        value = ((value ^ byte) * 0x100000001B3) & MASK
    value = mix(value)
    return max(uids, key=lambda name: (mix(value ^ mix(mix(uids[name]))), uids[name]))


class Remote:
    """Clients in a process of their own: the program `crowd` of crates/testkit."""

    def __init__(self, case, **setup):
        if not pathlib.Path(case.crowd).exists():
            raise rig.Failed(f"no program {case.crowd}: build it with `cargo build --release -p ringmain-testkit --bin crowd`, or name it with --crowd")
        self.child = subprocess.Popen([str(case.crowd)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        case.stack.callback(self.kill)
        self.child.stdin.write(json.dumps(setup) + "\n")
        self.child.stdin.flush()

    def call(self, name, *arguments):
        self.child.stdin.write(json.dumps([name, *arguments]) + "\n")
        self.child.stdin.flush()
        line = self.child.stdout.readline()
        rig.check(line, f"the process of clients has ended with {self.child.poll()}")
        return json.loads(line)

    def kill(self):
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()

    def __getattr__(self, name):
        return lambda *arguments: self.call(name, *arguments)


def total(crowds):
    """Returns the sums of the figures of crowds."""
    reports = [crowd.report() for crowd in crowds]
    figures = {}
    for report in reports:
        for name, value in report.items():
            if name in ("max_ms", "p50_ms", "p99_ms"):
                figures[name] = max(figures.get(name, 0), value)
            elif isinstance(value, dict):
                for key, count in value.items():
                    figures.setdefault(name, {})[key] = figures.get(name, {}).get(key, 0) + count
            elif isinstance(value, list) and name != "slowest":
                figures.setdefault(name, []).extend(value)
            elif isinstance(value, int):
                figures[name] = figures.get(name, 0) + value
    return figures


def settle(crowds, publishers, seconds=20.0):
    """Waits until every subscription has what is published by now, or something newer, then ends the publishers, and waits for the rest."""
    publishers = list(publishers)
    arrive(crowds, {publisher.name_: dict(publisher.numbers) for publisher in publishers if publisher.is_alive()}, seconds)
    for publisher in publishers:
        publisher.finish()
    arrive(crowds, {publisher.name_: publisher.finals() for publisher in publishers}, seconds, is_end=True)


def arrive(crowds, finals, seconds, is_end=False):
    """Waits until every subscription has these numbers, or newer ones."""
    found = None

    def probe():
        nonlocal found
        found = [crowd.behind(finals, is_end) for crowd in crowds]
        return all(count == 0 for count, _ in found)
    try:
        rig.until("the last publications arrive", probe, seconds, 0.1)
    except rig.Failed:
        raise rig.Failed(f"the last publications do not arrive: {sum(count for count, _ in found)} subscriptions lack them, such as "
                         f"(client, port, channel, publisher, last, wanted) {[some for _, some in found if some][:1]}") from None


def show(crowds, repeat):
    """Prints what the first client that has received a number twice has seen of the channel."""
    channel, publisher, number, _ = repeat
    for crowd in crowds:
        events = getattr(crowd, "trace", None)
        if not isinstance(events, list):
            continue
        at = next((index for index, event in enumerate(events) if isinstance(event[3], dict) and event[3].get("repeated") == number
                   and event[2] == channel), None)
        if at is None:
            continue
        client = events[at][1]
        seen = [event for event in events[:at + 40] if event[1] == client and event[2] in (channel, "closed", "connected")]
        first = next((index for index, event in enumerate(seen) if isinstance(event[3], dict) and event[3].get("pub") == (publisher, number)), 0)
        for moment, _, what, event in seen[max(first - 3, 0):]:
            print(f"    {moment:.3f} client {client} {what} {event}", flush=True)
        return


def judge(crowds, publishers):
    """Returns what clients have experienced; raises rig.Failed if anything was lost without a notice, doubled or reordered."""
    figures = total(crowds)
    by_name = {publisher.name_: publisher for publisher in publishers}
    lost = [gap for gap in figures.pop("gaps", []) if not by_name[gap[1]].excuses(gap[0], gap[2], gap[3])]
    doubled = [gap for gap in figures.pop("repeats", []) if not by_name[gap[1]].excuses(gap[0], gap[2], gap[3])]
    faults = figures.pop("faults", [])
    figures["lost"] = sum(last - first + 1 for _, _, first, last in lost)
    figures["acknowledged"] = sum(publisher.acknowledged for publisher in publishers)
    figures["unacknowledged"] = sum(len(numbers) for publisher in publishers for numbers in publisher.unacknowledged.values())
    if figures["unacknowledged"]:
        figures["publish_errors"] = dict(errors_of(publishers))
    figures["doubled"] = len(doubled)
    if doubled:
        show(crowds, doubled[0])
    # A notice explains what is missing, not what comes again.
    rig.check(not lost and not doubled and not figures["fault_count"] and not figures["repeated_with_notice"],
              f"{figures}; lost (channel, publisher, from, to): {lost[:3]}; doubled: {doubled[:3]}; faults: {faults[:3]}")
    return {name: value for name, value in figures.items() if value not in (0, {}, [])} | {"lost": 0, "doubled": 0}
