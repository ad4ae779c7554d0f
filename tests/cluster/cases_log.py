"""Cases of `cargo xtask suite cluster --log …`: nodes with a log behind their channels, owners and brokers that are killed or rolled back."""

import time

import logs
import rig
from crowd import Crowd
from nodes import Cluster, Publisher, judge, settle

NAMES = ("a", "b", "c")
CHANNELS = [f"c{number}" for number in range(32)]
# Publications a second, of a release build and of a debug build.
RATES = (1000, 300)
PROMOTED_SECONDS = 2.0


def start(case, keys, names=NAMES, each=3):
    """Starts nodes with this log, and clients of all channels at each."""
    cluster = Cluster(case, names, more=f", log: {{{keys}, partitions: {logs.PARTITIONS}}}").start()
    ports = [node.port for node in cluster.nodes.values()]
    crowd = Crowd(ports, [(CHANNELS, None, port) for port in ports for _ in range(each)], is_tracing=True, has_holes=True)
    case.stack.callback(crowd.end)
    rig.until("the nodes are ready", lambda: all(logs.ready(node) == 200 for node in cluster.nodes.values()), 30, 0.1)
    crowd.start()
    rig.until("all clients are subscribed", lambda: crowd.live()[0] == crowd.live()[1], 30)
    return cluster, crowd


def rate(case):
    return RATES[0] if case.is_full else RATES[1]


def publish(case, cluster, crowd, names=("a", "b")):
    """Starts a publisher at each of these nodes, and waits until publications arrive."""
    publishers = [Publisher(f"p{name}", [cluster[name].port], CHANNELS, rate(case) // len(names)) for name in names]
    for publisher in publishers:
        publisher.start()
    rig.until("publications arrive", lambda: crowd.behind({each.name_: dict.fromkeys(CHANNELS, 3) for each in publishers})[0] == 0, 20)
    return publishers


def wanted(case):
    return 100_000 if case.is_full else 4_000


def until_acknowledged(publishers, count, seconds=180):
    rig.until(f"{count} publications are acknowledged", lambda: sum(each.acknowledged for each in publishers) >= count, seconds, 0.1)


def epochs(node):
    return {channel: node.position(channel)[0] for channel in CHANNELS}


def told(crowd, since):
    """Returns the subscriptions that were told that they are not recovered."""
    return {(index, channel) for at, index, channel, event in crowd.events(since)
            if isinstance(event, dict) and event.get("subscribed") is False}


def single(case):
    redis = logs.Redis(case, "redis").start()
    return redis, f"redis: {{servers: '{redis.address}'}}"


def owner_killed(case, keys):
    """A node is killed: nothing is lost, all channels keep their epochs, and no client is told anything."""
    cluster, crowd = start(case, keys)
    publishers = publish(case, cluster, crowd)
    until_acknowledged(publishers, wanted(case) // 4)
    before, begun = epochs(cluster["a"]), time.monotonic()
    crowd.mark()
    cluster["c"].kill()
    crowd.set_ports([cluster[name].port for name in "ab"])
    until_acknowledged(publishers, wanted(case) // 2)
    settle([crowd], publishers)
    figures = judge([crowd], publishers)
    rig.expect("epochs", before, epochs(cluster["a"]))
    rig.check(not told(crowd, begun), f"clients were told that they are not recovered: {len(told(crowd, begun))}; {figures}")
    return figures


def leader_killed(case, broker):
    """The broker that leads is killed and started again: nothing that was acknowledged is lost, and nodes are ready again."""
    cluster, crowd = start(case, broker.keys())
    publishers = publish(case, cluster, crowd)
    until_acknowledged(publishers, wanted(case) // 4)
    before, readiness = epochs(cluster["a"]), logs.Readiness(cluster["a"])
    leader, begun = broker.leader(), time.monotonic()
    leader.kill()
    until_acknowledged(publishers, wanted(case) // 2)
    leader.process = leader.spawn()
    until_acknowledged(publishers, wanted(case))
    settle([crowd], publishers, 60)
    figures = judge([crowd], publishers)
    rig.until("all nodes are ready", lambda: readiness.status() == 200, 30)
    readiness.end()
    rig.expect("epochs", before, epochs(cluster["a"]))
    return figures | {"longest_outage_s": round(max((outage for each in publishers for outage in each.outages), default=0), 2),
                      "not_ready_s": readiness.red(begun)}


def redis_owner_killed(case):
    return owner_killed(case, single(case)[1])


def redis_killed(case):
    """Redis is killed and returns with all that it had acknowledged, but as another server: a new epoch, and clients are told."""
    redis, keys = single(case)
    cluster, crowd = start(case, keys)
    publishers = publish(case, cluster, crowd)
    until_acknowledged(publishers, wanted(case) // 4)
    before, readiness, begun = epochs(cluster["a"]), logs.Readiness(cluster["a"]), time.monotonic()
    redis.kill()
    rig.until("the nodes are not ready", lambda: readiness.status() == 503, 15)
    after = time.monotonic() - begun
    redis.start()
    rig.until("the nodes are ready", lambda: readiness.status() == 200, 15)
    until_acknowledged(publishers, wanted(case) // 2)
    settle([crowd], publishers)
    readiness.end()
    figures = judge([crowd], publishers)
    same = [channel for channel, epoch in epochs(cluster["a"]).items() if epoch == before[channel]]
    rig.check(not same, f"channels with the same epoch: {same}")
    missing = {(index, channel) for index in range(len(crowd.clients)) for channel in CHANNELS} - told(crowd, begun)
    rig.check(not missing, f"{len(missing)} subscriptions were not told; {figures}")
    return figures | {"not_ready_after_s": round(after, 2), "not_ready_s": readiness.red(begun)}


def redis_rollback(case):
    """Redis returns older than it was: all clients are told, and none is recovered falsely."""
    redis = logs.Redis(case, "redis", durable=False).start()
    cluster, crowd = start(case, f"redis: {{servers: '{redis.address}'}}")
    publishers = publish(case, cluster, crowd)
    until_acknowledged(publishers, wanted(case) // 8)
    redis.command("SAVE")
    until_acknowledged(publishers, wanted(case) // 4)
    for publisher in publishers:
        publisher.finish()
    begun = time.monotonic()
    redis.kill()
    redis.start()
    rig.until("all clients are told", lambda: len(told(crowd, begun)) == len(crowd.clients) * len(CHANNELS), 30, 0.1)
    after = time.monotonic() - begun
    more = [Publisher("q", [cluster["b"].port], CHANNELS, rate(case))]
    more[0].start()
    until_acknowledged(more, wanted(case) // 8)
    settle([crowd], more)
    # Two publications at one position, or a recovery in another epoch, are faults.
    figures = judge([crowd], publishers + more)
    return figures | {"told_after_s": round(after, 2)}


def redis_sentinel(case):
    """The master is killed: delivery is back at most 2 s after the promotion, and the nodes are not ready meanwhile."""
    master = logs.Redis(case, "master").start()
    replica = logs.Redis(case, "replica").start().replicate(master)
    sentinel = logs.Sentinel(case, "main", master).start()
    sentinel.wait_for_replica()
    cluster, crowd = start(case, f"redis: {{servers: '{sentinel.address}', sentinel: main}}")
    publishers = publish(case, cluster, crowd)
    until_acknowledged(publishers, wanted(case) // 8)
    readiness, begun = logs.Readiness(cluster["a"]), time.monotonic()
    master.kill()
    rig.until("the replica is promoted", replica.is_master, 60, 0.02)
    promoted = time.monotonic()

    def delivered():
        return any(isinstance(event, dict) and "pub" in event for _, _, _, event in crowd.events(promoted))
    rig.until("publications are delivered", delivered, 20, 0.02)
    back = time.monotonic() - promoted
    rig.until("the nodes are ready", lambda: readiness.status() == 200, 30)
    until_acknowledged(publishers, wanted(case) // 4)
    settle([crowd], publishers)
    readiness.end()
    figures = judge([crowd], publishers)
    figures |= {"promoted_after_s": round(promoted - begun, 2), "back_after_promotion_s": round(back, 2), "not_ready_s": readiness.red(begun)}
    rig.check(figures["not_ready_s"] > 0, f"the node was ready without a log; {figures}")
    rig.check(back <= PROMOTED_SECONDS, f"delivery is back {back:.2f} s after the promotion; {figures}")
    return figures


def redis_slots(case):
    """The slots of all partitions of a Redis Cluster move: nothing is lost, and all channels keep their epochs."""
    redis = logs.RedisCluster(case)
    servers = ", ".join(f"'{node.address}'" for node in redis.nodes)
    cluster, crowd = start(case, f"redis: {{servers: [{servers}], cluster: true}}")
    publishers = publish(case, cluster, crowd)
    before, begun = epochs(cluster["a"]), time.monotonic()
    for partition in range(logs.PARTITIONS):
        redis.move(redis.nodes[0].command("CLUSTER", "KEYSLOT", f"{{ringmain:{partition}}}"))
    until_acknowledged(publishers, wanted(case) // 4)
    settle([crowd], publishers)
    figures = judge([crowd], publishers)
    rig.expect("epochs", before, epochs(cluster["a"]))
    rig.check(not told(crowd, begun), f"clients were told that they are not recovered: {len(told(crowd, begun))}; {figures}")
    return figures


def jetstream_owner_killed(case):
    return owner_killed(case, logs.NatsCluster(case).keys())


def jetstream_leader_killed(case):
    return leader_killed(case, logs.NatsCluster(case))


def kafka_owner_killed(case):
    return owner_killed(case, logs.KafkaCluster(case).keys())


def kafka_leader_killed(case):
    return leader_killed(case, logs.KafkaCluster(case))


CASES = {
    "redis": [redis_owner_killed, redis_killed, redis_rollback, redis_sentinel, redis_slots],
    "jetstream": [jetstream_owner_killed, jetstream_leader_killed],
    "kafka": [kafka_owner_killed, kafka_leader_killed],
}
