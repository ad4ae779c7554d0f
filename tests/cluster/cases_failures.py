"""Cases of `cargo xtask suite cluster`: nodes that are killed, and nodes that are suspended for a while."""

import threading
import time

import rig
from crowd import Crowd
from nodes import Cluster, Publisher, Refused, judge, settle, token

NAMES = ("a", "b", "c")
PRESENT_SECONDS = 3.5
EPOCH_SECONDS = 4.0


def watch(crowds):
    for crowd in crowds:
        crowd.start()
    rig.until("all clients are subscribed", lambda: all(crowd.live()[0] == crowd.live()[1] for crowd in crowds), 30)


def presence_after_kill(case):
    """The clients of a killed node are present nowhere after 3.5 s, the others remain present, and each left once."""
    return kill_present(case, 10, "join_leave: true, ")


def presence_of_many(case):
    """The same with 3,000 clients (900 in the quick form), more than fit a frame, without joins and leaves."""
    return kill_present(case, 1000 if case.is_full else 300, "")


def kill_present(case, each, more):
    options = "retention: {publications: 10}, history: true, recovery: true, presence: true"
    cluster = Cluster(case, NAMES, channels=f"{more}{options}", limits="connections_per_address: off, drain: 5s").start()
    owned = {name: channels[0] for name, channels in cluster.owned_channels(1).items()}
    channels = list(owned.values())
    crowds = {name: Crowd([node.port], [(channels, token(f"{name}{number}"), node.port) for number in range(each)], is_tracing=True,
                          reconnects=False, seed=1) for name, node in cluster.nodes.items()}
    for crowd in crowds.values():
        case.stack.callback(crowd.end)
    watch(crowds.values())
    nodes = [cluster["a"], cluster["b"]]
    ids = {name: {client.id for client in crowd.clients} for name, crowd in crowds.items()}
    everyone = set().union(*ids.values())
    for channel in channels:
        rig.until(f"all are present in {channel}", lambda: all(members(node, channel) == everyone for node in cluster.nodes.values()), 20)
    # A publication follows the joins that the owner knows.
    for channel in channels:
        nodes[0].api("publish", channel=channel, data={"p": "p", "s": 1, "t": time.monotonic()})
    rig.until("publications arrive", lambda: all(crowd.behind({"p": dict.fromkeys(channels, 1)})[0] == 0 for crowd in crowds.values()), 10)
    begun = time.monotonic()
    cluster["c"].kill()
    right, wrong_after, missing = {}, {}, {}
    left = everyone - ids["c"]
    deadline = begun + 10
    while time.monotonic() < deadline:
        for node in nodes:
            for name, channel in owned.items():
                key = (node.name, f"of {name}")
                try:
                    found = members(node, channel)
                except Refused:
                    found = None
                now = time.monotonic() - begun
                if found == left:
                    right.setdefault(key, now)
                else:
                    if key in right and now > PRESENT_SECONDS:
                        wrong_after[key] = now
                    right.pop(key, None)
                    if found is not None and left - found:
                        missing[key] = max(missing.get(key, 0), len(left - found))
        time.sleep(0.02)
    figures = {"right_after_s": {f"{owner} at {node}": round(at, 2) for (node, owner), at in right.items()},
               "absent_meanwhile": {f"{owner} at {node}": count for (node, owner), count in missing.items()}}
    late = [key for key in ((node.name, f"of {name}") for node in nodes for name in owned) if right.get(key, 99) > PRESENT_SECONDS]
    leaves = {}
    for name in "ab":
        for owner, channel in owned.items() if more else ():
            events = [(index, kind, event[kind]["info"]["client"]) for _, index, where, event in crowds[name].events(begun)
                      if where == channel and isinstance(event, dict) for kind in ("join", "leave") if kind in event]
            if owner == "c":
                # Its clients have subscribed again: whoever stays has joined last.
                last = {(index, client): kind for index, kind, client in events}
                wrong = [key for key, kind in last.items() if (kind == "leave") != (key[1] in ids["c"])]
                figures[f"pushes_of_c_at_{name}"] = {kind: sum(event[1] == kind for event in events) for kind in ("join", "leave")}
            else:
                wanted = sorted((index, "leave", client) for index in range(each) for client in ids["c"])
                wrong = [] if sorted(events) == wanted else [f"expected {len(wanted)} leaves, found {len(events)} pushes: {events[:2]}"]
            if wrong:
                leaves[f"{owner} at {name}"] = wrong[:3]
        rig.check(not late and not wrong_after and not leaves, f"late: {late}, wrong again: {wrong_after}, wrong pushes: {leaves}; {figures}")
    return figures


def members(node, channel):
    return set(node.api("presence", channel=channel)["presence"])


class EpochWatch(threading.Thread):
    """Notes when the epochs of channels change at a node."""

    def __init__(self, node, channels):
        super().__init__(daemon=True)
        self.node, self.channels, self.changes, self.over = node, channels, {}, threading.Event()
        self.before = {channel: node.position(channel)[0] for channel in channels}
        self.start()

    def run(self):
        current = dict(self.before)
        while not self.over.is_set():
            for channel in self.channels:
                try:
                    epoch = self.node.position(channel)[0]
                except (Refused, OSError, ValueError):
                    continue
                if epoch != current[channel]:
                    current[channel] = epoch
                    self.changes.setdefault(channel, []).append((time.monotonic(), epoch))
            time.sleep(0.02)

    def end(self):
        self.over.set()
        self.join(15)


def crowd_of(case, cluster, channels, each=5, **options):
    """Starts clients at each node that subscribe to all these channels and reconnect to any of the nodes."""
    ports = [node.port for node in cluster.nodes.values()]
    crowd = Crowd(ports, [(channels, None, port) for port in ports for _ in range(each)], is_tracing=True, **options)
    case.stack.callback(crowd.end)
    watch([crowd])
    return crowd


def first_delivery(crowd, channels, since, ports=None):
    """Returns how long after `since` the first publication arrived at the last client that is at one of these ports."""
    at = {}
    for moment, index, channel, event in crowd.events(since):
        if isinstance(event, dict) and "pub" in event and channel in channels:
            at.setdefault((index, channel), moment - since)
    return at


def owner_killed(case):
    """Each channel of a killed owner has a new epoch after at most 4 s, its clients are notified, and then publications arrive; the
    other channels lose nothing."""
    cluster = Cluster(case, NAMES).start()
    owned = cluster.owned_channels(4)
    channels = [channel for names in owned.values() for channel in names]
    crowd = crowd_of(case, cluster, channels)
    publisher = Publisher("p", [cluster["a"].port], channels, 120)
    publisher.start()
    rig.until("publications arrive", lambda: crowd.behind({"p": dict.fromkeys(channels, 20)})[0] == 0, 20)
    watched = EpochWatch(cluster["a"], owned["c"] + owned["a"])
    crowd.mark()
    begun = time.monotonic()
    cluster["c"].kill()
    rig.until("the channels of the killed owner have new epochs", lambda: all(channel in watched.changes for channel in owned["c"]), 10)
    rig.until("the nodes left are linked", lambda: all(cluster[name].linked() == 2 for name in "ab"), 10)
    settle([crowd], [publisher])
    watched.end()
    after = {channel: changes[0][0] - begun for channel, changes in watched.changes.items()}
    figures = judge([crowd], [publisher])
    figures["epochs_after_s"] = [round(min(after.values()), 2), round(max(after.values()), 2)]
    rig.expect("channels with a new epoch", sorted(owned["c"]), sorted(watched.changes))
    rig.check(all(len(changes) == 1 for changes in watched.changes.values()), f"more than one new epoch: {watched.changes}")
    rig.check(max(after.values()) <= EPOCH_SECONDS, f"new epochs after {max(after.values()):.1f} s; {figures}")
    # Clients of every other node have lost the channels of the killed owner, those of the killed one have moved as well.
    told = {(index, channel) for at, index, channel, event in crowd.events(begun)
            if isinstance(event, dict) and event.get("subscribed") is False}
    wanted = {(index, channel) for index in range(len(crowd.clients)) for channel in owned["c"]}
    rig.expect("subscriptions with `recovered: false`", sorted(wanted), sorted(told))
    kept = {(index, channel) for (index, channel) in told if channel not in owned["c"]}
    rig.check(not kept, f"subscriptions to other owners were not recovered: {len(kept)}")
    rig.check(figures["max_ms"] <= 1000 * EPOCH_SECONDS + 1000, f"a publication was {figures['max_ms']} ms late; {figures}")
    return figures


def owner_paused(case):
    """An owner that is suspended for 5 s has lost its channels; when it is back, all nodes agree on an epoch, its clients are notified, and
    nobody lacks a publication without a notice."""
    cluster = Cluster(case, NAMES).start()
    owned = cluster.owned_channels(4)
    channels = [channel for names in owned.values() for channel in names]
    crowd = crowd_of(case, cluster, channels)
    before = {channel: cluster["a"].position(channel)[0] for channel in channels}
    publishers = [Publisher("pa", [cluster["a"].port], channels, 120), Publisher("pc", [cluster["c"].port, cluster["b"].port], channels, 60)]
    for publisher in publishers:
        publisher.start()
    rig.until("publications arrive", lambda: crowd.behind({"pa": dict.fromkeys(channels, 20), "pc": dict.fromkeys(channels, 10)})[0] == 0, 20)
    begun = time.monotonic()
    cluster["c"].suspend()
    time.sleep(5)
    during = {channel: cluster["a"].position(channel)[0] for channel in channels}
    cluster["c"].resume()
    resumed = time.monotonic()
    cluster.wait_linked()
    linked = time.monotonic() - resumed

    def agreed():
        try:
            positions = [[node.position(channel)[0] for channel in channels] for node in cluster.nodes.values()]
        except Refused:
            return False
        return all(position == positions[0] for position in positions)

    rig.until("all nodes have the same epochs", agreed, 10, 0.1)
    agreed_after = time.monotonic() - resumed
    settle([crowd], publishers)
    figures = judge([crowd], publishers)
    changed = [channel for channel in channels if during[channel] != before[channel]]
    rig.expect("channels with a new epoch while the owner is suspended", sorted(owned["c"]), sorted(changed))
    at_c = [index for index, client in enumerate(crowd.clients) if client.preferred == cluster["c"].port]
    told = {(index, channel) for at, index, channel, event in crowd.events(begun)
            if isinstance(event, dict) and event.get("subscribed") is False}
    silent = [(index, channel) for index in at_c for channel in owned["c"] if (index, channel) not in told]
    rig.check(not silent, f"clients of the suspended node were not notified: {silent[:5]} of {len(silent)}; {figures}")
    return figures | {"linked_after_s": round(linked, 2), "same_epochs_after_s": round(agreed_after, 2)}


CASES = [presence_after_kill, presence_of_many, owner_killed, owner_paused]
