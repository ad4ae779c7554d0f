"""Cases of `cargo xtask suite cluster`: nodes that are added, ended and killed under load.

The full form has 20,000 clients and 20,000 deliveries a second, the quick one a tenth. Each client follows one channel; twenty clients share it.
"""

import random
import time

import rig
from nodes import Cluster, Node, Publisher, Remote, arrive, judge, settle, total

PER_CHANNEL = 20
PROCESSES = 4
PUBLISHERS = 4
PLANNED_MS, KILLED_MS = 1000, 4000
BALANCE = 1.15


class Load:
    """Clients in processes of their own, and publishers, each with its share of the channels."""

    def __init__(self, case, clients, ports, api_ports):
        self.clients = clients
        self.channels = [f"s{number}" for number in range(clients // PER_CHANNEL)]
        draw = random.Random(1)
        self.crowds = []
        for process in range(PROCESSES):
            own = [[[self.channels[number % len(self.channels)]], None, None] for number in range(process, clients, PROCESSES)]
            draw.shuffle(own)
            self.crowds.append(Remote(case, ports=list(ports), clients=own, connect_rate=clients / 10 / PROCESSES, seed=process))
        self.wait_subscribed(90)
        # One publication a second in each channel.
        self.publishers = [Publisher(f"p{number}", api_ports[number % len(api_ports):] + api_ports[:number % len(api_ports)],
                                     self.channels[number::PUBLISHERS], len(self.channels[number::PUBLISHERS]))
                           for number in range(PUBLISHERS)]
        for publisher in self.publishers:
            publisher.start()
        self.phases = {}

    def wait_subscribed(self, seconds=30):
        rig.until(f"{self.clients} clients are subscribed", lambda: sum(crowd.live()[0] for crowd in self.crowds) == self.clients, seconds, 0.2)

    def ports(self, ports, api_ports):
        for crowd in self.crowds:
            crowd.set_ports(ports)
        for publisher in self.publishers:
            publisher.ports = list(api_ports)

    def hold(self, seconds):
        """Lets the load run."""
        time.sleep(seconds)

    def caught_up(self, seconds=30):
        """Waits until each client has a publication of its channel that is as new as this call."""
        self.wait_subscribed(seconds)
        arrive(self.crowds, {publisher.name_: dict(publisher.numbers) for publisher in self.publishers}, seconds)

    def phase(self, name, seconds=3.0):
        """Ends a phase: records the latest publication since the last one."""
        self.caught_up()
        self.hold(seconds)
        figures = total(self.crowds)
        self.phases[name] = {"max_ms": figures["max_ms"], "p99_ms": figures["p99_ms"], "unrecovered": figures["unrecovered"],
                             "recovered": figures["recovered"]}
        for crowd in self.crowds:
            crowd.mark()

    def end(self):
        settle(self.crowds, self.publishers, 30)
        figures = judge(self.crowds, self.publishers)
        return figures


def clients_of(case):
    return 20_000 if case.is_full else 2_000


def spread(nodes):
    """Returns the clients of each node, and the largest deviation from the mean as a ratio."""
    counts = {node.name: node.clients() for node in nodes}
    mean = sum(counts.values()) / len(counts)
    return counts, max(max(counts.values()) / mean, mean / max(min(counts.values()), 1))


def balanced(nodes, seconds):
    try:
        rig.until("the clients are spread", lambda: spread(nodes)[1] <= BALANCE, seconds, 0.5)
    except rig.Failed:
        pass
    counts, ratio = spread(nodes)
    return {"clients": counts, "of_mean": round(ratio, 3)}


def scale(case, names, servers, roles, more=""):
    """Doubles the nodes with clients and halves them again, adds an owner and removes it, then kills an owner; all under load."""
    limits = "connections: 19000, drain: 20s, drain_spread: 5s"
    cluster = Cluster(case, [*names, *servers], limits=limits, more=more)
    for name, role in roles.items():
        cluster[name].role = role
    gateways, owners = names, [name for name in cluster.nodes if roles.get(name) != "push-gateway"]
    first = gateways[:2]
    for name in (*first, *servers[:2]):
        cluster[name].start()
    cluster.wait_linked()

    def ports(some):
        return [cluster[name].port for name in some]

    load = Load(case, clients_of(case), ports(first), ports(first))
    load.phase("steady")
    figures = {}
    for name in gateways[2:]:
        cluster[name].start()
    cluster.wait_linked()
    load.ports(ports(gateways), ports(first))
    load.phase("gateways added")
    figures["after 4 gateways"] = balanced([cluster[name] for name in gateways], 60 if more else 0)
    load.phase("rebalanced")
    load.ports(ports(first), ports(first))
    for name in gateways[2:]:
        cluster[name].terminate()
    for name in gateways[2:]:
        rig.expect(f"the exit code of {name}", 0, cluster[name].process.wait(60))
    cluster.wait_linked()
    load.phase("gateways ended", 4)
    figures["after 2 gateways"] = balanced([cluster[name] for name in first], 60 if more else 0)
    if len(servers) > 2:
        cluster[servers[2]].start()
        cluster.wait_linked()
        load.phase("server added")
        cluster[servers[2]].terminate()
        rig.expect(f"the exit code of {servers[2]}", 0, cluster[servers[2]].process.wait(60))
        cluster.wait_linked()
        load.phase("server ended", 4)
    planned = load.crowds and total(load.crowds)["unrecovered"]
    killed = servers[1] if servers else first[1]
    if not servers:
        load.ports(ports(first[:1]), ports(first[:1]))
    cluster[killed].kill()
    load.hold(4)
    load.phase("owner killed")
    figures |= load.end()
    figures |= {"phases": load.phases, "notices_of_planned": planned, "owners": len(owners)}
    late = {name: phase["max_ms"] for name, phase in load.phases.items() if phase["max_ms"] > (KILLED_MS if "killed" in name else PLANNED_MS)}
    rig.check(not planned, f"{planned} subscriptions were not recovered in planned changes: {figures}")
    rig.check(not late, f"publications were late: {late}; {figures}")
    if more:
        uneven = {name: value["of_mean"] for name, value in figures.items() if isinstance(value, dict) and value.get("of_mean", 1) > BALANCE}
        rig.check(not uneven, f"clients per node differ: {uneven}; {figures}")
    return figures


def scale_all(case):
    """2 -> 4 -> 2 nodes with all tasks, then one killed: 0 lost, 0 doubled, at most 1 s of delay when planned and 4 s when killed."""
    return scale(case, ("a", "b", "c", "d"), (), {})


CASES = [scale_all]
