#!/usr/bin/env python3
"""CPU of all processes for a publication that crosses from one node to another, beside the Go library centrifuge with Redis; the cost of a hop.

    bench/build.sh goredis && cargo build --profile dist && bench/cluster.py
    bench/cluster.py --rounds 1 --seconds 3 --cell crossing --binary target/release/ringmain
    bench/cluster.py --rounds 1 --cell hop --perf DIRECTORY
    bench/cluster.py --log redis

Turns are interleaved in one run; ratios are taken within a round, and their medians have the range over the rounds. Nodes have one worker (Go:
GOMAXPROCS=1); clients are those of `ringmain bench push --listen-only`, which check every delivery. 200 bytes a publication, 500 channels.
Publications are sent to the first node each 2 ms, several in a request: to /api/batch here, as lines to the peer. The cells:

    crossing    one client a channel at the second node, channels without history, and with 1,000 retained publications (`kept`): user and
                system time of both nodes, and of Redis
    hop         Ringmain alone, 1 and 20 clients a channel: a delivery by a process without a cluster (`single`), by the first of two nodes
                (`near`), and by the second (`far`)
    presence    the time after `kill -9` of a node until its clients are not present at the other

`--log redis` measures other cells, with a log in Redis behind the channels, which have 1,000 retained publications as those of the peer:

    log x1      one client a channel at one other node: user and system time of all nodes and of Redis
    log x3      the same with a client a channel at each of three other nodes

Standard library only. Exit code: 0 all bars met, 1 not, 2 could not be run.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

REPO = pathlib.Path(__file__).resolve().parent.parent
# This folder last: its http.py would hide the standard library's.
sys.path[:1] = [str(REPO / "tests/field"), str(REPO / "tests/cluster")]
sys.path.append(str(REPO / "bench"))

import http.client  # noqa: E402

import comparison  # noqa: E402
import server as servers  # noqa: E402
import nodes  # noqa: E402
import rig  # noqa: E402
import websocket  # noqa: E402

CHANNELS, SIZE, RUN = 500, 200, 7
PREFIX = "s"
TICK_SECONDS = 0.002
HISTORY = "retention: {publications: 1000, size: 1MiB, time: 10m}, history: true, recovery: true"
PRESENCE_LIMIT_SECONDS = 150
# With the number of nodes that a publication crosses to.
LOG_CELLS = {"log x1": 1, "log x3": 3}
# (cell, ratio): at most.
BARS = {("crossing", "of the peer"): 0.4, ("hop x1", "far of near"): 1.15, ("hop x20", "far of near"): 1.15, ("log x1", "of the peer"): 0.5,
        ("log x3", "of the peer"): 0.4, ("log x1 redis", "of the peer"): 0.3, ("log x3 redis", "of the peer"): 0.3}


class Node(nodes.Node):
    """A node of one worker; with `is_alone` it has no cluster."""

    is_alone = False

    def config(self):
        text = super().config()
        return text if not self.is_alone else "\n".join(line for line in text.split("\n") if not line.startswith("  cluster:"))


class Alone(Node):
    is_alone = True


def threads(pid):
    """Returns the CPU seconds of the threads of a process, by name; exact, unlike the ticks in `stat`."""
    found = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            name, used = (task / "comm").read_text().strip(), int((task / "schedstat").read_text().split()[0]) / 1e9
        except FileNotFoundError:
            continue
        name = name.rstrip("0123456789-/:")
        found[name] = found.get(name, 0.0) + used
    return found


def start_redis(case, port):
    """Starts a Redis that retains nothing on the disk; returns its process."""
    redis = case.start("--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", case.dir,
                       command=rig.need("redis-server"))
    redis.wait_port(port)
    return redis


class Ours:
    """Nodes of Ringmain, with `log` behind a Redis."""

    name = "ringmain"

    def __init__(self, case, count=2, history=False, presence=False, log=False):
        more, redis = "", None
        if log:
            port = rig.free_port()
            redis = start_redis(case, port)
            more = f", log: {{redis: {{servers: '127.0.0.1:{port}'}}}}"
        options = ", ".join(filter(None, [HISTORY if history else "", "presence: true" if presence else ""]))
        if count == 1:
            self.nodes = [Alone(case, "single", channels=options or "history: false").start()]
        else:
            cluster = nodes.Cluster(case, "abcd"[:count], make=Node, more=more, channels=options or "history: false").start()
            self.nodes = list(cluster.nodes.values())
        self.pids = {node.name: node.process.pid for node in self.nodes}
        if redis:
            self.pids["redis"] = redis.pid
        self.ports = [node.port for node in self.nodes]

    def request(self, publications):
        """Returns path and body."""
        commands = ",".join(f'{{"publish":{{"channel":"{channel}","data":{data}}}}}' for channel, data in publications)
        return "/api/batch", f'{{"parallel":true,"commands":[{commands}]}}'

    def accepted(self, body):
        """Returns how many publications were accepted."""
        return body.count(b'"publish"') if b'"error"' not in body else 0

    def kill(self):
        self.nodes[1].kill()


class Peer:
    """Nodes of centrifuge, and their Redis."""

    name = "centrifuge"

    def __init__(self, case, program, count=2, history=False, presence=False):
        redis, self.ports = rig.free_port(), [rig.free_port() for _ in range(count)]
        self.pids, self.processes = {"redis": start_redis(case, redis).pid}, []
        for name, port in zip("abcd", self.ports):
            process = case.start("-listen", f"127.0.0.1:{port}", "-redis", f"127.0.0.1:{redis}", f"-history={str(history).lower()}",
                                 f"-presence={str(presence).lower()}", command=program, env={"GOMAXPROCS": "1"})
            process.wait_port(port)
            self.processes.append(process)
            self.pids[name] = process.pid

    def request(self, publications):
        return "/publish", "\n".join(f"{channel} {data}" for channel, data in publications)

    def accepted(self, body):
        return None

    def kill(self):
        self.processes[1].child.kill()


def payload(channel, sequence):
    """Returns a publication of `bench push --listen-only`."""
    stamp = f'{{"b":"{RUN:08x}{channel:08x}{sequence:08x}{time.monotonic_ns():016x}'
    return stamp.ljust(SIZE - 2, "x") + '"}'


def publish(system, prefix, rate, seconds, sequences):
    """Publishes at a rate to the first node; returns how many publications were sent."""
    connection = http.client.HTTPConnection("127.0.0.1", system.ports[0], timeout=10)
    begun, sent = time.monotonic(), 0
    while (now := time.monotonic()) < begun + seconds:
        due = min(int((now - begun) * rate) - sent, CHANNELS)
        if due < rate * TICK_SECONDS:
            time.sleep(TICK_SECONDS / 4)
            continue
        publications = []
        for number in range(sent, sent + due):
            channel = number % CHANNELS
            sequences[channel] += 1
            publications.append((f"{prefix}{channel}", payload(channel, sequences[channel])))
        path, body = system.request(publications)
        connection.request("POST", path, body, {"X-API-Key": "K"})
        response = connection.getresponse()
        content = response.read()
        rig.check(response.status < 300 and system.accepted(content) in (None, due), f"{system.name}: {response.status} {content[:300]}")
        sent += due
    connection.close()
    return sent


class Clients:
    """A client a channel, or more, at one node, which check every delivery."""

    def __init__(self, case, port, each, seconds):
        self.results = case.dir / f"clients-{port}.json"
        self.port, self.wanted = port, CHANNELS * each
        self.process = subprocess.Popen([case.binary, "bench", "push", f"ws://127.0.0.1:{port}", "-c", str(self.wanted), "--channels",
                                         str(CHANNELS), "--prefix", PREFIX, f"--listen-only={RUN:08x}", "-s", str(SIZE), "-d",
                                         f"{seconds + 8}s", "-w", "0ms", "--settle", "2s", "-t", "1", "-q", f"--json={self.results}"],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        case.stack.callback(lambda: self.process.poll() is None and self.process.kill())

    def are_connected(self):
        return connections(self.port) >= self.wanted

    def check(self, name, wanted):
        """Waits for the end; so many deliveries must have arrived, none twice or changed."""
        _, errors = self.process.communicate(timeout=60)
        rig.check(self.results.exists(), f"the clients failed: {errors[-500:]}")
        found = json.loads(self.results.read_text())["deliveries"]
        wrong = {what: found[what] for what in ("lost", "doubled", "reordered", "misdelivered", "changed") if found.get(what)}
        rig.check(not wrong and found["delivered"] >= wanted, f"{name}: {wrong}, delivered {found['delivered']} of {wanted}")


def measure(case, system, ats, each, arguments, perf=None):
    """Publishes, with `each` clients a channel at the nodes `ats`; returns CPU microseconds of each process and thread for a publication."""
    seconds, sequences = arguments.seconds, [0] * CHANNELS
    rate = arguments.rate if each == 1 else arguments.rate // 10
    clients = [Clients(case, system.ports[at], each, seconds) for at in ats]
    rig.until("the clients are connected", lambda: all(some.are_connected() for some in clients), 30, 0.1)
    time.sleep(1)
    # So that channels exist, caches are filled, and subscriptions have their first publication. With a log for longer: after three seconds of
    # appends the owner of a partition does not read them back.
    publish(system, PREFIX, rate, 5 if arguments.log else 1.5, sequences)
    time.sleep(0.3)
    recorder = None
    if perf:
        recorder = subprocess.Popen(["perf", "record", "-q", "-g", "-F", "1999", "-p", ",".join(map(str, system.pids.values())), "-o", str(perf)])
    before = {name: threads(pid) for name, pid in system.pids.items()}
    sent = publish(system, PREFIX, rate, seconds, sequences)
    time.sleep(0.5)
    after = {name: threads(pid) for name, pid in system.pids.items()}
    if recorder:
        recorder.terminate()
        recorder.wait()
    for some in clients:
        some.check(system.name, sent * each)
    return {f"{process} {thread}": (used - before[process].get(thread, 0)) / sent * 1e6
            for process, parts in after.items() for thread, used in parts.items()
            if used - before[process].get(thread, 0) > 1e-3}


def connections(port):
    """Returns how many established connections a local port has."""
    wanted = f":{port:04X}"
    with open("/proc/net/tcp") as table:
        return sum(1 for line in table if line.split()[1].endswith(wanted) and line.split()[3] == "01")


def members(port, channel):
    """Returns how many clients a node reports as present, to a client of its own."""
    ws = websocket.Ws(port)
    ws.send({"id": 2, "subscribe": {"channel": channel}})
    ws.reply(2)
    ws.send({"id": 3, "presence": {"channel": channel}})
    found = ws.reply(3)
    ws.socket.close()
    return len(found["presence"]["presence"]) - 1


def presence(system):
    """Returns the seconds after a kill until clients of the killed node are not present any more."""
    clients = []
    for _ in range(10):
        ws = websocket.Ws(system.ports[1])
        ws.send({"id": 2, "subscribe": {"channel": "room"}})
        ws.reply(2)
        clients.append(ws)
    rig.until("all are present at the other node", lambda: members(system.ports[0], "room") == len(clients), 10)
    begun = time.monotonic()
    system.kill()
    rig.until("the clients of the killed node are gone", lambda: members(system.ports[0], "room") == 0, PRESENCE_LIMIT_SECONDS, 0.05)
    return time.monotonic() - begun


def total(parts, process=None):
    return sum(used for name, used in parts.items() if process is None or name.split(" ")[0] == process)


class Results:
    """Figures of turns, by cell and by what was measured, of each round."""

    def __init__(self):
        self.turns, self.parts = {}, {}

    def add(self, cell, name, parts):
        value = total(parts) if isinstance(parts, dict) else parts
        self.turns.setdefault((cell, name), []).append(value)
        if isinstance(parts, dict):
            for part, used in parts.items():
                self.parts.setdefault((cell, name), {}).setdefault(part, []).append(used)
        split = ", ".join(f"{part} {used:.1f}" for part, used in sorted(parts.items(), key=lambda each: -each[1]) if used >= 0.2) if isinstance(
            parts, dict) else ""
        print(f"{cell} {name}: {value:.2f}  {split}", flush=True)

    def ratio(self, cell, name, against):
        """Returns median, smallest and largest ratio within rounds."""
        ratios = [one / other for one, other in zip(self.turns[cell, name], self.turns[cell, against])]
        return statistics.median(ratios), min(ratios), max(ratios)


def run(arguments, results):
    for turn in range(arguments.rounds):
        last = turn == arguments.rounds - 1
        if "crossing" in arguments.cell:
            for cell, history in ("crossing", False), ("crossing kept", True):
                for make in turn_order(turn, [Ours, Peer] if arguments.peer else [Ours]):
                    with rig.Rig(arguments.binary) as case:
                        case.nodes = []
                        system = make(case, history=history) if make is Ours else make(case, arguments.peer, history=history)
                        perf = arguments.perf and last and f"{arguments.perf}/{cell.replace(' ', '-')}-{system.name}.data"
                        results.add(cell, system.name, measure(case, system, [1], 1, arguments, perf))
        if "hop" in arguments.cell:
            for each in arguments.each:
                for name, count, at in turn_order(turn, [("single", 1, 0), ("near", 2, 0), ("far", 2, 1)]):
                    with rig.Rig(arguments.binary) as case:
                        case.nodes = []
                        parts = measure(case, Ours(case, count), [at], each, arguments,
                                        arguments.perf and last and f"{arguments.perf}/hop-{each}-{name}.data")
                        results.add(f"hop x{each}", name, {part: used / each for part, used in parts.items()})
        for cell, others in LOG_CELLS.items():
            if cell in arguments.cell:
                for make in turn_order(turn, [Ours, Peer] if arguments.peer else [Ours]):
                    with rig.Rig(arguments.binary) as case:
                        case.nodes = []
                        system = (Ours(case, others + 1, history=True, log=True) if make is Ours else
                                  Peer(case, arguments.peer, others + 1, history=True))
                        perf = arguments.perf and last and f"{arguments.perf}/{cell.replace(' ', '-')}-{system.name}.data"
                        parts = measure(case, system, range(1, others + 1), 1, arguments, perf)
                        results.add(cell, system.name, parts)
                        results.add(f"{cell} redis", system.name, total(parts, "redis"))
        if "presence" in arguments.cell:
            for make in turn_order(turn, [Ours, Peer] if arguments.peer else [Ours]):
                with rig.Rig(arguments.binary) as case:
                    case.nodes = []
                    system = make(case, presence=True) if make is Ours else make(case, arguments.peer, presence=True)
                    results.add("presence (s)", system.name, presence(system))


def turn_order(turn, what):
    """Reverses each second round, so that no system is always first."""
    return what if turn % 2 == 0 else what[::-1]


def report(results):
    """Prints the table and the ratios; returns how many bars were missed."""
    print("\n| cell | | median | range |\n| --- | --- | --- | --- |")
    for (cell, name), values in results.turns.items():
        print(f"| {cell} | {name} | {statistics.median(values):.2f} | {min(values):.2f} to {max(values):.2f} |")
    for (cell, name), parts in results.parts.items():
        split = ", ".join(f"{part} {statistics.median(values):.2f}" for part, values in sorted(parts.items(), key=lambda each: -max(each[1]))
                          if max(values) >= 0.2)
        print(f"{cell} {name} by process and thread: {split}")
    missed = 0
    print()
    for cell in dict.fromkeys(cell for cell, _ in results.turns):
        names = [name for each, name in results.turns if each == cell]
        pairs = [("of the peer", "ringmain", "centrifuge"), ("far of single", "far", "single"), ("far of near", "far", "near"),
                 ("near of single", "near", "single")]
        for label, one, other in pairs:
            if one not in names or other not in names:
                continue
            middle, low, high = results.ratio(cell, one, other)
            bar = BARS.get((cell, label))
            missed += bar is not None and middle > bar
            verdict = "" if bar is None else f", bar {bar}: {'met' if middle <= bar else 'missed'}"
            print(f"{cell}, {label}: {middle:.3f} ({low:.3f} to {high:.3f}){verdict}")
    return missed


def versions(arguments):
    found = [f"Linux {os.uname().release}, {os.cpu_count()} CPUs, {time.strftime('%Y-%m-%d')}",
             subprocess.run([arguments.binary, "--version"], capture_output=True, text=True).stdout.split("\n")[0]]
    if arguments.peer:
        found += comparison.go_versions({"github.com/centrifugal/centrifuge"})
        redis = subprocess.run(["redis-server", "--version"], capture_output=True, text=True).stdout.split()
        found += [next((f"Redis {word[2:]}" for word in redis if word.startswith("v=")), "Redis")]
    return "; ".join(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=REPO / "target/dist/ringmain")
    parser.add_argument("--peer", metavar="PROGRAM", default=servers.PEERS / "bin/goredis", help="the built peers/goredis")
    parser.add_argument("--alone", action="store_true", help="measure Ringmain alone")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rate", type=int, default=10_000, help="publications a second; a tenth where a channel has 20 clients")
    parser.add_argument("--cell", nargs="+", choices=("crossing", "hop", "presence"), default=["crossing", "hop"])
    parser.add_argument("--each", nargs="+", type=int, default=[1, 20], help="clients a channel in the cell hop")
    parser.add_argument("--perf", metavar="DIRECTORY", help="record the nodes in the last round with perf")
    parser.add_argument("--log", choices=("redis",), help="measure the cells with a log in this broker")
    arguments = parser.parse_args()
    if arguments.log:
        arguments.cell = list(LOG_CELLS)
    arguments.binary = str(pathlib.Path(arguments.binary).resolve())
    arguments.peer = None if arguments.alone else str(pathlib.Path(arguments.peer).resolve())
    if arguments.peer and not os.access(arguments.peer, os.X_OK) and set(arguments.cell) != {"hop"}:
        parser.error(f"expected the program {arguments.peer}: bench/build.sh goredis, or --alone")
    results = Results()
    try:
        print(versions(arguments), flush=True)
        run(arguments, results)
    except (rig.Failed, rig.Skipped, OSError, subprocess.TimeoutExpired) as error:
        print(f"cluster.py: could not be run: {error}", file=sys.stderr)
        return 2
    return 1 if report(results) else 0


if __name__ == "__main__":
    sys.exit(main())
