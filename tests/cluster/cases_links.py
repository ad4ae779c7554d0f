"""Cases of `cargo xtask suite cluster`: links between nodes that are cut, suspended and slow."""

import time

import rig
from cases_failures import crowd_of
from nodes import Cluster, Publisher, Refused, judge, settle

CUT_SECONDS = 6.0
SLOW_BYTES_PER_SECOND = 200_000


def split(case, cut):
    """Separates two nodes with `cut(relay)` for 6 s, while publications are sent to both and clients are connected to both."""
    cluster = Cluster(case, ("a", "b"), relayed=True).start()
    owned = cluster.owned_channels(6)
    channels = [channel for names in owned.values() for channel in names]
    crowd = crowd_of(case, cluster, channels)
    publishers = {name: Publisher(name, [cluster[name].port], channels, 120) for name in "ab"}
    for publisher in publishers.values():
        publisher.start()
    rig.until("publications of both arrive everywhere",
              lambda: crowd.behind({name: dict.fromkeys(channels, 20) for name in "ab"})[0] == 0, 20)
    before = {channel: cluster["a"].position(channel)[0] for channel in channels}
    begun = time.monotonic()
    for relay in cluster.between("a", "b"):
        cut(relay)
    rig.until("each half is alone", lambda: cluster["a"].linked() == cluster["b"].linked() == 1, 10)
    alone = time.monotonic() - begun

    def serves():
        # Of each publisher's newest numbers, those at its own half.
        wanted = {name: {channel: number + 5 for channel, number in numbers.items()} for name, numbers in start.items()}
        return all(number >= wanted[name][channel] for name in "ab" for client in crowd.clients if client.preferred == cluster[name].port
                   for channel, subscription in client.subscriptions.items() for number in [subscription.seen.get(name, (0, 0))[0]])

    start = {name: dict(publisher.numbers) for name, publisher in publishers.items()}
    rig.until("both halves deliver", serves, 10)
    serving = time.monotonic() - begun
    halves = {name: {channel: cluster[name].position(channel)[0] for channel in channels} for name in "ab"}
    while time.monotonic() < begun + CUT_SECONDS:
        time.sleep(0.05)
    restored = time.monotonic()
    for relay in cluster.between("a", "b"):
        relay.restore()
    cluster.wait_linked()
    linked = time.monotonic() - restored

    def agreed():
        try:
            found = [{channel: cluster[name].position(channel)[0] for channel in channels} for name in "ab"]
        except Refused:
            return None
        return found[0] if found[0] == found[1] else None

    after = rig.until("both nodes have the same epochs", agreed, 10, 0.1)
    met = time.monotonic() - restored
    settle([crowd], publishers.values())
    # A publication after the settlement reaches everyone.
    after = agreed() or after
    figures = judge([crowd], publishers.values())
    same = [channel for channel in channels if halves["a"][channel] == halves["b"][channel]]
    rig.check(not same, f"both halves had the same epoch of {same}")
    kept = {name: [channel for channel in channels if halves[name][channel] == before[channel]] for name in "ab"}
    rig.expect("channels whose owner kept its epoch", {name: sorted(owned[name]) for name in "ab"},
               {name: sorted(names) for name, names in kept.items()})
    old = [channel for channel in channels if after[channel] in (halves["a"][channel], halves["b"][channel])]
    told = {(index, channel) for at, index, channel, event in crowd.events(restored)
            if isinstance(event, dict) and event.get("subscribed") is False}
    wanted = {(index, channel) for index in range(len(crowd.clients)) for channel in channels}
    rig.check(not old, f"{len(old)} of {len(channels)} channels did not start a new epoch when the halves met: {old[:4]}; {figures}")
    rig.check(told >= wanted, f"{len(wanted - told)} of {len(wanted)} subscriptions were not notified: {sorted(wanted - told)[:4]}; {figures}")
    return figures | {"alone_after_s": round(alone, 2), "both_serve_after_s": round(serving, 2), "linked_after_s": round(linked, 2),
                      "same_epochs_after_s": round(met, 2)}


def split_suspended(case):
    """A link that drops everything without an end: both halves serve with their own epochs, and start new ones when they meet."""
    return split(case, lambda relay: relay.suspend())


def split_closed(case):
    """A link that is closed and refused: the same."""
    return split(case, lambda relay: relay.cut())


def link_restored_soon(case):
    """A link that is cut for less than 3 s: clients receive all publications, in the same epochs, without a notice."""
    cluster = Cluster(case, ("a", "b"), relayed=True).start()
    owned = cluster.owned_channels(6)
    channels = [channel for names in owned.values() for channel in names]
    crowd = crowd_of(case, cluster, channels)
    publisher = Publisher("a", [cluster["a"].port], owned["a"], 200)
    publisher.start()
    rig.until("publications arrive", lambda: crowd.behind({"a": dict.fromkeys(owned["a"], 10)})[0] == 0, 20)
    before = {channel: cluster["a"].position(channel)[0] for channel in owned["a"]}
    for count in range(3):
        relays = cluster.between("a", "b")
        for relay in relays:
            relay.cut() if count % 2 else relay.suspend()
        time.sleep(1.5)
        for relay in relays:
            relay.restore()
        cluster.wait_linked()
    settle([crowd], [publisher])
    figures = judge([crowd], [publisher])
    after = {channel: cluster["a"].position(channel)[0] for channel in owned["a"]}
    rig.expect("epochs", before, after)
    rig.check(not figures.get("unrecovered") and not figures.get("unacknowledged"), f"expected no notices and no errors: {figures}")
    return figures


def client_ahead_of_mirror(case):
    """A client moves to a node that has not received the newest publications yet: it continues at its position, without repeats."""
    cluster = Cluster(case, ("a", "b"), relayed=True).start()
    channel = cluster.owned_channels(1)["a"][0]
    a, b = cluster["a"], cluster["b"]
    stays, moves = crowd_of_node(case, b, [channel]), crowd_of_node(case, a, [channel])

    def publish(numbers):
        for number in numbers:
            a.api("publish", channel=channel, data={"p": "p", "s": number, "t": time.monotonic()})

    def arrived(crowds, number):
        rig.until(f"number {number} arrives", lambda: all(crowd.behind({"p": {channel: number}})[0] == 0 for crowd in crowds), 10)

    publish(range(1, 4))
    arrived([stays, moves], 3)
    begun = time.monotonic()
    for relay in cluster.between("a", "b"):
        relay.suspend()
    publish(range(4, 9))
    arrived([moves], 8)
    moves.move([b.port])
    rig.until("the clients have moved", lambda: all(client.state == "open" and client.port == b.port for client in moves.clients), 5)
    # Each has sent its subscription, and none has had the time to be refused.
    time.sleep(0.2)
    for relay in cluster.between("a", "b"):
        relay.restore()
    took = time.monotonic() - begun
    publish(range(9, 12))
    arrived([stays, moves], 11)
    report = moves.report()
    figures = {name: report[name] for name in ("recovered", "unrecovered", "repeated_with_notice", "repeat_count", "fault_count")}
    rig.check(took < 2.5, f"the link was down for {took:.1f} s")
    rig.check(figures == {"recovered": len(moves.clients), "unrecovered": 0, "repeated_with_notice": 0, "repeat_count": 0, "fault_count": 0},
              f"clients at offset 8 that moved to a node at offset 3: {figures}; {[event for event in moves.events(begun)][-12:]}")
    return figures


def slow_node(case):
    """A node behind 200 KB/s is behind and catches up or has a gap, which its clients are told; others are as fast as without it."""
    pair, other = frozenset(("a", "c")), frozenset(("b", "c"))
    cluster = Cluster(case, ("a", "b", "c"), relayed=True, rates={pair: SLOW_BYTES_PER_SECOND, other: SLOW_BYTES_PER_SECOND})
    cluster.start()
    channels = cluster.owned_channels(10)["a"]
    fast = crowd_of_node(case, cluster["b"], channels)
    slow = crowd_of_node(case, cluster["c"], channels)
    figures, publishers = {}, []
    # 40 KB/s of data, which the slow link carries; then 800 KB/s, which it does not.
    for name, rate, seconds in (("light", 20, 5), ("heavy", 400, 15)):
        publisher = Publisher(name, [cluster["a"].port], channels, rate, size=2000)
        publishers.append(publisher)
        for crowd in (fast, slow):
            crowd.mark()
        publisher.start()
        time.sleep(seconds)
        report = {"fast": fast.report(), "slow": slow.report()}
        figures[name] = {f"{who}_{figure}": report[who][figure] for who in report for figure in ("p50_ms", "p99_ms", "max_ms")}
        publisher.finish()
        if name == "light":
            settle([fast, slow], [publisher])
    settle([fast], publishers, 5)
    begun = time.monotonic()
    settle([slow], publishers, 60)
    figures["slow_is_whole_after_s"] = round(time.monotonic() - begun, 1)
    figures["of_fast"] = judge([fast], publishers)
    figures["of_slow"] = judge([slow], publishers)
    rig.check(not figures["of_fast"].get("unrecovered"), f"clients of the fast node had gaps: {figures}")
    rig.check(not figures["of_fast"].get("unacknowledged"), f"publications were refused: {figures}")
    light, heavy = figures["light"], figures["heavy"]
    rig.check(heavy["slow_p99_ms"] > 1000 or figures["of_slow"].get("unrecovered"), f"the link was not slow: {figures}")
    rig.check(heavy["fast_p99_ms"] <= 2 * light["fast_p99_ms"] + 100, f"the fast node became slower: {figures}")
    return figures


def crowd_of_node(case, node, channels):
    from crowd import Crowd
    crowd = Crowd([node.port], [(channels, None, node.port)] * 5, is_tracing=True)
    case.stack.callback(crowd.end)
    crowd.start()
    rig.until("all clients are subscribed", lambda: crowd.live()[0] == crowd.live()[1], 20)
    return crowd


CASES = [split_suspended, split_closed, link_restored_soon, client_ahead_of_mirror, slow_node]
