"""Cases of `cargo xtask suite cluster`: nodes that end as planned, by SIGTERM, one of them and all in turn."""

import time

import rig
from cases_failures import crowd_of
from nodes import Cluster, Publisher, judge, settle

NAMES = ("a", "b", "c")
STALL_MS = 1000
RATE = 240


def watched(crowd):
    """Returns the identifiers of the clients, which change with their connections."""
    return {client.index: client.id for client in crowd.clients}


def flickers(crowd, stayed, since):
    """Returns the joins and leaves of clients that have stayed connected."""
    return [(channel, kind, event[kind]["info"]["client"]) for _, _, channel, event in crowd.events(since) if isinstance(event, dict)
            for kind in ("join", "leave") if kind in event and event[kind]["info"]["client"] in stayed]


def planned_leave(case):
    """SIGTERM of an owner with clients: no gap, no new epoch, no refused publication, and none later than 1 s; history, idempotency keys and
    presence move as well."""
    cluster = Cluster(case, NAMES, channels="retention: {publications: 10000, size: 16MiB, time: 10m}, history: true, recovery: true, "
                                            "presence: true, join_leave: true").start()
    owned = cluster.owned_channels(8)
    channels = [channel for names in owned.values() for channel in names]
    crowd = crowd_of(case, cluster, channels)
    publisher = Publisher("p", [cluster["a"].port], channels, RATE)
    publisher.start()
    rig.until("publications arrive", lambda: crowd.behind({"p": dict.fromkeys(channels, 20)})[0] == 0, 20)
    keyed = {channel: cluster["a"].api("publish", channel=f"keyed-{channel}", data={}, idempotency_key="k") for channel in channels}
    before, clients = {channel: cluster["a"].position(channel)[0] for channel in channels}, watched(crowd)
    crowd.mark()
    begun = time.monotonic()
    cluster["c"].terminate()
    crowd.set_ports([cluster[name].port for name in "ab"])
    code = cluster["c"].process.wait(30)
    took = time.monotonic() - begun
    rig.until("the nodes left are linked", lambda: all(cluster[name].linked() == 2 for name in "ab"), 10)
    # Longer than a node is missed if it has not left.
    time.sleep(3.5)
    settle([crowd], [publisher])
    figures = judge([crowd], [publisher])
    after = {channel: cluster["a"].position(channel)[0] for channel in channels}
    changed = [channel for channel in channels if before[channel] != after[channel]]
    stayed = {name for index, name in watched(crowd).items() if clients[index] == name}
    again = flickers(crowd, stayed, begun)
    figures |= {"new_epochs": len(changed), "of": len(channels), "ended_after_s": round(took, 1), "stayed": len(stayed),
                "flickers": len(again)}
    rig.expect("the exit code", 0, code)
    check_planned(figures)
    rig.expect("clients that stayed connected", 10, len(stayed))
    rig.check(not again, f"clients that stayed have joined or left: {again[:4]}; {figures}")
    members = set(watched(crowd).values())
    for name in "ab":
        for channel in channels:
            rig.expect(f"presence of {channel} at {name}", members, set(cluster[name].api("presence", channel=channel)["presence"]))
            # All are retained: more than 1,000 are not returned at once.
            found = cluster[name].api("history", channel=channel, limit=1000)
            offsets = [each["offset"] for each in found["publications"]]
            rig.expect(f"the history of {channel} at {name}", list(range(1, min(found["offset"], 1000) + 1)), offsets)
    repeated = {channel: cluster["b"].api("publish", channel=f"keyed-{channel}", data={}, idempotency_key="k") for channel in channels}
    rig.expect("publications with the same keys", keyed, repeated)
    return figures


def check_planned(figures):
    rig.check(not figures["new_epochs"], f"channels started a new epoch: {figures}")
    rig.check(not figures.get("unrecovered"), f"clients had a gap: {figures}")
    rig.check(not figures.get("unacknowledged"), f"publications were refused: {figures}")
    rig.check(figures["max_ms"] <= STALL_MS, f"a publication was {figures['max_ms']} ms late: {figures}")
    return figures


def rolling_restart(case):
    """All nodes are restarted one after the other: the same; clients stay connected somewhere."""
    cluster = Cluster(case, NAMES).start()
    channels = [f"c{number}" for number in range(24)]
    crowd = crowd_of(case, cluster, channels)
    ports = {name: cluster[name].port for name in NAMES}
    publisher = Publisher("p", list(ports.values()), channels, RATE)
    publisher.start()
    rig.until("publications arrive", lambda: crowd.behind({"p": dict.fromkeys(channels, 10)})[0] == 0, 20)
    before = {channel: cluster["a"].position(channel)[0] for channel in channels}
    crowd.mark()
    times = []
    for name in NAMES:
        others = [cluster[other] for other in NAMES if other != name]
        # As a load balancer does: a node that ends gets no new connections.
        crowd.set_ports([node.port for node in others])
        publisher.ports = [node.port for node in others]
        begun = time.monotonic()
        cluster[name].terminate()
        rig.expect(f"the exit code of {name}", 0, cluster[name].process.wait(30))
        cluster[name].start()
        cluster.wait_linked()
        crowd.set_ports(ports.values())
        publisher.ports = list(ports.values())
        times.append(round(time.monotonic() - begun, 1))
        rig.until("all subscriptions are live", lambda: crowd.live()[0] == crowd.live()[1], 20)
    time.sleep(3.5)
    settle([crowd], [publisher])
    figures = judge([crowd], [publisher])
    after = {channel: cluster["a"].position(channel)[0] for channel in channels}
    figures |= {"new_epochs": sum(before[channel] != after[channel] for channel in channels), "of": len(channels), "restarts_s": times}
    return check_planned(figures)


def rolling_upgrade(case):
    """Nodes of an earlier build (`--previous`) are replaced one after the other: nothing lost or doubled without a notice, and the whole API
    works in between. Hand-overs need both sides, so channels may start new epochs."""
    if not case.previous:
        raise rig.Skipped("needs an earlier build: --previous BINARY")
    cluster = Cluster(case, NAMES, binary=case.previous).start()
    channels = [f"c{number}" for number in range(24)]
    crowd = crowd_of(case, cluster, channels)
    publisher = Publisher("p", [node.port for node in cluster.nodes.values()], channels, RATE)
    publisher.start()
    rig.until("publications arrive", lambda: crowd.behind({"p": dict.fromkeys(channels, 10)})[0] == 0, 20)
    for name in NAMES:
        others = [cluster[other].port for other in NAMES if other != name]
        crowd.set_ports(others)
        publisher.ports = others
        cluster[name].terminate()
        rig.expect(f"the exit code of {name}", 0, cluster[name].process.wait(30))
        cluster[name].binary = case.binary
        cluster[name].start()
        cluster.wait_linked()
        for node in cluster.nodes.values():
            for channel in channels[:4]:
                node.api("presence_stats", channel=channel)
                node.api("history", channel=channel, limit=10)
        crowd.set_ports([node.port for node in cluster.nodes.values()])
        rig.until("all subscriptions are live", lambda: crowd.live()[0] == crowd.live()[1], 20)
    settle([crowd], [publisher])
    return judge([crowd], [publisher])


CASES = [planned_leave, rolling_restart, rolling_upgrade]
