"""Cases of `cargo xtask suite cluster`: nodes that are added, ended and killed under load.

The full form has 20,000 clients and 20,000 deliveries a second, the quick one a tenth; `--clients` sets another number. Each client follows one channel; twenty clients share it.
"""

import contextlib
import random
import time
import urllib.request

import rig
from nodes import Cluster, Publisher, Remote, arrive, judge, settle, total

PER_CHANNEL = 20
PROCESSES = 4
PUBLISHERS = 4
PLANNED_MS, KILLED_MS = 1000, 4000
# So that those of a killed node do not all connect at once.
RECONNECT_SECONDS = [0.05, 0.5]
BALANCE = 1.15
BALANCED_SECONDS = 60
# All clients fit two nodes, and one that is left; the balancer has three seconds to notice one that ends.
LIMITS = "connections: 39000, connections_per_address: off, drain_delay: 3s, drain: 20s, drain_spread: 5s"
WORKERS = 2
REFUSALS = ("ringmain_requests_refused_total", "ringmain_faults_total", "ringmain_upstream_faults_total", "ringmain_upstream_refused_total",
            "ringmain_push_refused_total", "ringmain_responses_total{class=\"5xx\"}")


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
            self.crowds.append(Remote(case, ports=list(ports), clients=own, connect_rate=clients / 10 / PROCESSES,
                                      seed=process, reconnect=RECONNECT_SECONDS))
        self.wait_subscribed(90)
        # One publication a second in each channel.
        self.publishers = [Publisher(f"p{number}", api_ports[number % len(api_ports):] + api_ports[:number % len(api_ports)],
                                     self.channels[number::PUBLISHERS], len(self.channels[number::PUBLISHERS]))
                           for number in range(PUBLISHERS)]
        for publisher in self.publishers:
            publisher.start()
        self.phases, self.sums = {}, {}

    def wait_subscribed(self, seconds=60):
        try:
            rig.until("all clients are subscribed", lambda: sum(crowd.live()[0] for crowd in self.crowds) == self.clients, seconds, 0.2)
        except rig.Failed as why:
            figures = total(self.crowds)
            wanted = ("connects", "refused", "errors", "closes", "by_port", "faults")
            raise rig.Failed(f"{why}: {sum(crowd.live()[0] for crowd in self.crowds)} of {self.clients}, after the phases {list(self.phases)}; "
                             f"{ {name: figures.get(name) for name in wanted} }") from None

    def ports(self, ports, api_ports):
        for crowd in self.crowds:
            crowd.set_ports(ports)
        for publisher in self.publishers:
            publisher.ports = list(api_ports)

    def hold(self, seconds):
        """Lets the load run."""
        time.sleep(seconds)

    def caught_up(self, seconds=60):
        """Waits until each client has a publication of its channel that is as new as this call."""
        self.wait_subscribed(seconds)
        arrive(self.crowds, {publisher.name_: dict(publisher.numbers) for publisher in self.publishers}, seconds)

    def phase(self, name, seconds=3.0):
        """Ends a phase: records the latest publication since the last one."""
        self.caught_up()
        self.hold(seconds)
        figures = total(self.crowds)
        sums = {count: figures.get(count, 0) for count in ("unrecovered", "recovered", "connects")}
        self.phases[name] = {"max_ms": figures["max_ms"], "p99_ms": figures["p99_ms"],
                             **{count: value - self.sums.get(count, 0) for count, value in sums.items()}}
        self.sums = sums
        for crowd in self.crowds:
            crowd.mark()

    def end(self):
        settle(self.crowds, self.publishers, 30)
        return judge(self.crowds, self.publishers)


def spread(nodes):
    """Returns the clients of each node, and those of the fullest and the emptiest one as ratios to the mean."""
    counts = {node.name: node.clients() for node in nodes}
    mean = sum(counts.values()) / len(counts)
    return counts, max(counts.values()) / mean, min(counts.values()) / mean


def refusals(addresses):
    """Returns the counters of requests and connections that servers have refused, by server: {name: {metric: count}}. The servers that run."""
    found = {}
    for name, address in addresses.items():
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as reply:
            lines = [line.rsplit(" ", 1) for line in reply.read().decode().splitlines() if line.startswith(REFUSALS)]
            counts = {metric.removeprefix("ringmain_"): int(float(count)) for metric, count in lines if float(count) > 0}
            if counts:
                found[name] = counts
    return found


def balanced(nodes, seconds):
    """Waits for the clients to be spread; returns their numbers even if they are not."""
    with contextlib.suppress(rig.Failed):
        rig.until("the clients are spread", lambda: spread(nodes)[1] <= BALANCE, seconds, 0.5)
    counts, most, least = spread(nodes)
    return {"clients": counts, "of_mean": round(most, 3), "least_of_mean": round(least, 3)}


class Change:
    """A load, and the changes of nodes under it. `gateways` have clients, `servers` own channels; a node may be in both."""

    def __init__(self, case, cluster, gateways, rebalances, front=None):
        self.case, self.cluster, self.gateways, self.rebalances = case, cluster, list(gateways), rebalances
        self.front, self.front_admin = front or (None, None)
        self.spreads, self.refused, self.load = {}, {}, None
        self.without_channels = [name for name, node in cluster.nodes.items() if node.role == "push-gateway"]

    def start(self):
        self.load = Load(self.case, self.case.clients, *self.ports())
        self.phase("steady")

    def ports(self):
        """Returns the ports for clients, and those for publishers."""
        ports = [self.cluster[name].port for name in self.gateways]
        return ([self.front] if self.front else ports), ports

    def phase(self, name, seconds=3.0):
        """Ends a phase of the load, and records what was refused until then."""
        self.load.phase(name, seconds)
        addresses = {node.name: f"127.0.0.1:{node.admin}" for node in self.cluster.running()}
        if self.front_admin:
            addresses["front"] = f"127.0.0.1:{self.front_admin}"
        self.refused[name] = refusals(addresses)

    def aim(self):
        """Has clients and publishers use the gateways."""
        self.load.ports(*self.ports())

    def add(self, names, clients=True):
        for name in names:
            self.cluster[name].start()
        self.cluster.wait_linked()
        if clients:
            self.gateways += names
            self.aim()
        self.phase(f"{' and '.join(names)} added")
        self.record(f"{' and '.join(names)} added")

    def end(self, names):
        self.gateways = [name for name in self.gateways if name not in names]
        self.aim()
        for name in names:
            self.cluster[name].terminate()
        for name in names:
            rig.expect(f"the exit code of {name}", 0, self.cluster[name].process.wait(60))
        self.cluster.wait_linked()
        # Longer than nodes are missed if they have not left.
        self.phase(f"{' and '.join(names)} ended", 4)
        self.record(f"{' and '.join(names)} ended")

    def record(self, name):
        if self.rebalances:
            nodes = [self.cluster[gateway] for gateway in self.gateways]
            self.spreads[name] = balanced(nodes, BALANCED_SECONDS)
            self.phase(f"{name}, rebalanced")

    def kill(self, name):
        if name in self.gateways:
            self.gateways.remove(name)
        self.cluster[name].kill()
        self.aim()
        # Longer than it is missed.
        self.phase(f"{name} killed", 4)

    def finish(self):
        figures = self.load.end() | {"phases": self.load.phases, "spread": self.spreads, "refused": self.refused}
        planned = {name: phase["unrecovered"] for name, phase in self.load.phases.items() if "killed" not in name and phase["unrecovered"]}
        late = {name: phase["max_ms"] for name, phase in self.load.phases.items()
                if phase["max_ms"] > (KILLED_MS if "killed" in name else PLANNED_MS)}
        # A node that owns no channels takes none with it.
        planned |= {f"{name} killed": phase["unrecovered"] for name in self.without_channels
                    if (phase := self.load.phases.get(f"{name} killed")) and phase["unrecovered"]}
        uneven = {name: each["of_mean"] for name, each in self.spreads.items() if each["of_mean"] > BALANCE}
        rig.check(not planned, f"subscriptions were not recovered where no owner was killed: {planned}; {figures}")
        rig.check(not late, f"publications were late (ms): {late}; {figures}")
        rig.check(not uneven, f"clients per node differ: {uneven}; {figures}")
        return figures


def scale_all(case):
    """2 -> 4 -> 2 nodes with all tasks, then one killed: 0 lost, 0 doubled, at most 1 s of delay when planned and 4 s when killed."""
    cluster = Cluster(case, "abcd", limits=LIMITS, workers=WORKERS)
    for name in "ab":
        cluster[name].start()
    cluster.wait_linked()
    change = Change(case, cluster, "ab", rebalances=False)
    change.start()
    change.add(["c", "d"])
    change.end(["c", "d"])
    change.kill("b")
    return change.finish()


def front(case, gateways):
    """Starts a gateway in front of push gateways, which sends new clients to the less loaded ones; returns its port and its admin port."""
    port, admin = rig.free_port(), rig.free_port()
    probes = rig.free_port()
    for number, node in enumerate(gateways, 2):
        node.host, node.probes = f"127.0.0.{number}", probes
    endpoints = ", ".join(f"'{node.host}:{node.port}'" for node in gateways)
    config = (f"listen: 127.0.0.1:{port}\nadmin: {{address: 127.0.0.1:{admin}}}\nlimits: {{connections: 45000, connections_per_address: off}}\n"
              f"upstreams:\n  push:\n    endpoints: [{endpoints}]\n    balance: push\n"
              "    health: {active: {path: /readyz, every: 1s, port: %d}}\n    pool: {connections: 100000, requests: 100000, client_share: 100}\n"
              "routes: {live: {rules: [{match: /, to: push, timeouts: {request: off, idle: off}}]}}\n" % probes)
    # A worker has descriptors for twenty thousand connections; each client takes two.
    case.start("run", case.file("front.yaml", config), "--workers", 4).wait_port(port)
    return port, admin


def scale_roles(case):
    """2 -> 4 -> 2 push gateways and 2 -> 3 -> 2 push servers with rebalancing, behind a gateway that schedules by load, then a server and a
    gateway killed: the same, and clients per push gateway within 1.15 of the mean."""
    gateways, servers = ["g1", "g2", "g3", "g4"], ["s1", "s2", "s3"]
    # Twenty seconds for half of the clients, in place of minutes.
    cluster = Cluster(case, gateways + servers, limits=LIMITS, workers=WORKERS, more=", rebalance: {above: 1.1, until: 1.05, rate: 5%}")
    for name in cluster.nodes:
        cluster[name].role = "push-gateway" if name in gateways else "push-server"
    entrance = front(case, [cluster[name] for name in gateways])
    for name in ("s1", "s2", "g1", "g2"):
        cluster[name].start()
    cluster.wait_linked()
    change = Change(case, cluster, ["g1", "g2"], rebalances=True, front=entrance)
    change.start()
    change.add(["g3", "g4"])
    change.end(["g3", "g4"])
    change.add(["s3"], clients=False)
    change.end(["s3"])
    change.kill("s2")
    change.kill("g2")
    return change.finish()


CASES = [scale_all, scale_roles]
