"""A case of `cargo xtask suite cluster` that draws failures: kills, suspensions, cut and slow links, planned ends and restarts, one after the
other and two at a time, while clients believe what they are told."""

import os
import random
import time

import rig
from cases_failures import crowd_of
from nodes import Cluster, Publisher, Refused, judge, settle

NAMES = ("a", "b", "c", "d")
SECONDS = {False: 40, True: 180}


class Chaos:
    """Draws and applies failures, and ends them."""

    def __init__(self, cluster, draw):
        self.cluster, self.draw, self.log = cluster, draw, []
        # What is to be undone: (when, what).
        self.pending = []
        self.busy = set()

    def step(self):
        kind = self.draw.choice(("kill", "suspend", "cut", "drop", "leave", "leave", "leave and kill", "join and kill", "flap"))
        free = [name for name in NAMES if name not in self.busy]
        if len(free) < 3:
            return
        node, lasts = self.cluster[free.pop(self.draw.randrange(len(free)))], self.draw.choice((0.3, 1.5, 2.5, 4.0, 6.0))
        other = self.draw.choice(free)
        relays = self.cluster.between(node.name, other)
        self.log.append(f"{kind} {node.name}{other if kind in ('cut', 'drop', 'flap') else ''} {lasts}")
        self.busy.add(node.name)
        if kind == "kill":
            node.kill()
            self.later(lasts, node.start, node.name)
        elif kind in ("leave and kill", "join and kill"):
            soon = self.draw.choice((0.02, 0.1, 0.3, 0.8))
            node.terminate() if kind == "leave and kill" else node.kill()
            if kind == "join and kill":
                node.start()
            self.later(soon, node.kill, None)
            self.later(soon + lasts, node.start, node.name)
        elif kind == "leave":
            node.terminate()
            self.later(lasts, lambda: self.restart(node), node.name)
        elif kind == "suspend":
            node.suspend()
            self.later(lasts, node.resume, node.name)
        elif kind in ("cut", "drop"):
            for relay in relays:
                relay.cut() if kind == "cut" else relay.suspend()
            self.later(lasts, lambda: [relay.restore() for relay in relays], node.name)
        else:
            # Again and again.
            for relay in relays:
                relay.cut()
                relay.restore()
            self.later(0.1, lambda: [relay.cut() or relay.restore() for relay in relays], node.name)

    def restart(self, node):
        rig.expect(f"the exit code of {node.name}", 0, node.process.wait(30))
        node.start()

    def later(self, seconds, undo, name):
        self.pending.append((time.monotonic() + seconds, undo, name))

    def undo(self, is_all=False):
        now = time.monotonic()
        for entry in sorted(self.pending, key=lambda each: each[0]):
            when, undo, name = entry
            if is_all or when <= now:
                self.pending.remove(entry)
                undo()
                self.busy.discard(name)


def chaos(case):
    """Failures drawn from a seed (CLUSTER_SEED): nothing lost, doubled or reordered without a notice; afterwards all nodes agree."""
    seed = int(os.environ.get("CLUSTER_SEED", random.randrange(1 << 32)))
    print(f"chaos: CLUSTER_SEED={seed}", flush=True)
    draw = random.Random(seed)
    cluster = Cluster(case, NAMES, relayed=True).start()
    channels = [f"c{number}" for number in range(24)]
    crowd = crowd_of(case, cluster, channels, each=4)
    ports = [node.port for node in cluster.nodes.values()]
    publishers = [Publisher(f"p{number}", ports[number:] + ports[:number], channels, 100) for number in range(3)]
    for publisher in publishers:
        publisher.start()
    state = Chaos(cluster, draw)
    deadline = time.monotonic() + SECONDS[case.is_full]
    try:
        while time.monotonic() < deadline:
            state.step()
            until = time.monotonic() + draw.choice((0.2, 1.0, 3.0, 5.0))
            while time.monotonic() < until:
                state.undo()
                time.sleep(0.05)
        while state.pending:
            state.undo(is_all=True)
        cluster.wait_linked(30)
        rig.until("all subscriptions are live", lambda: crowd.live()[0] == crowd.live()[1], 30)

        def agreed():
            try:
                found = [{channel: node.position(channel)[0] for channel in channels} for node in cluster.nodes.values()]
            except (Refused, OSError):
                return False
            return all(each == found[0] for each in found)

        rig.until("all nodes have the same epochs", agreed, 20, 0.1)
        settle([crowd], publishers, 30)
        members = {client.id for client in crowd.clients}
        for node in cluster.nodes.values():
            for channel in channels[:6]:
                rig.until(f"presence of {channel} at {node.name} is right",
                          lambda: set(node.api("presence", channel=channel)["presence"]) == members, 10, 0.2)
        figures = judge([crowd], publishers)
    except Exception as why:
        raise rig.Failed(f"CLUSTER_SEED={seed}: {why}; {', '.join(state.log)}") from why
    for name in ("closes", "by_port", "slowest"):
        figures.pop(name, None)
    return figures | {"seed": seed, "failures": len(state.log)}


CASES = [chaos]
