"""Real brokers as the log behind the channels of a cluster: one server, or several with a leader that can be killed. Loopback only."""

import contextlib
import http.client
import json
import pathlib
import subprocess
import sys
import threading
import time

import rig

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "sources"))

import brokers  # noqa: E402

PARTITIONS = 16
# The default of the key `topic`.
TOPIC = "ringmain-log"


class Redis(brokers.Redis):
    """A redis-server with more settings."""

    def __init__(self, case, directory, *more, durable=True):
        super().__init__(case, durable=durable, directory=directory)
        self.more = more

    def spawn(self):
        durable = ["--appendonly", "yes", "--appendfsync", "always"] if self.durable else ["--appendonly", "no"]
        return self.run("redis-server", "--port", self.port, "--bind", self.host, "--protected-mode", "no", "--save", "", "--dir", self.dir,
                        *durable, *self.more)

    def replicate(self, master):
        """Makes this server a replica, and waits until it is connected."""
        self.command("REPLICAOF", master.host, master.port)
        rig.until("the replica is connected", lambda: self.command("ROLE")[3] == "connected", 30)
        return self

    def is_master(self):
        with contextlib.suppress(OSError, ConnectionError):
            return self.command("ROLE")[0] == "master"
        return False


class Sentinel(Redis):
    """A Sentinel of one master, which fails over within two seconds or so."""

    def __init__(self, case, name, master):
        super().__init__(case, "sentinel", durable=False)
        self.file = case.file("sentinel/sentinel.conf", f"port {self.port}\nsentinel monitor {name} {master.host} {master.port} 1\n"
                              f"sentinel down-after-milliseconds {name} 1000\nsentinel failover-timeout {name} 3000\n")
        self.name = name

    def spawn(self):
        return self.run("redis-server", self.file, "--sentinel", "--bind", self.host, "--protected-mode", "no")

    def wait_for_replica(self):
        rig.until("the Sentinel knows the replica", lambda: len(self.command("SENTINEL", "replicas", self.name)) == 1, 30)


class RedisCluster:
    """Three masters with a third of the slots each."""

    def __init__(self, case):
        self.nodes = []
        for index in range(3):
            bus = rig.free_port()
            self.nodes.append(Redis(case, f"redis{index}", "--cluster-enabled", "yes", "--cluster-port", bus, "--cluster-node-timeout",
                                    "3000").start())
            self.nodes[-1].bus = bus
        bounds = [0, 5461, 10923, 16384]
        for index, node in enumerate(self.nodes):
            node.command("CLUSTER", "ADDSLOTSRANGE", bounds[index], bounds[index + 1] - 1)
            node.id = node.command("CLUSTER", "MYID")
        for node in self.nodes[1:]:
            self.nodes[0].command("CLUSTER", "MEET", node.host, node.port, node.bus)
        rig.until("the cluster is whole", lambda: all("cluster_state:ok" in node.command("CLUSTER", "INFO") for node in self.nodes), 30)

    def owner(self, slot):
        """Returns the node that has a slot."""
        for first, last, master, *_ in self.nodes[0].command("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(node for node in self.nodes if node.port == master[1])
        raise rig.Failed(f"no node has the slot {slot}")

    def move(self, slot):
        """Moves a slot with all its keys to the next node."""
        source = self.owner(slot)
        target = self.nodes[(self.nodes.index(source) + 1) % len(self.nodes)]
        target.command("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
        while keys := source.command("CLUSTER", "GETKEYSINSLOT", slot, 10):
            source.command("MIGRATE", target.host, target.port, "", 0, 5000, "KEYS", *keys)
        for node in (target, source, *self.nodes):
            node.command("CLUSTER", "SETSLOT", slot, "NODE", target.id)


class NatsCluster:
    """Three nats-servers with JetStream."""

    def __init__(self, case):
        self.nodes = [brokers.Nats(case) for _ in range(3)]
        routes = {node: rig.free_port() for node in self.nodes}
        listed = ", ".join(f"nats://127.0.0.1:{port}" for port in routes.values())
        for index, node in enumerate(self.nodes):
            node.name = f"n{index}"
            node.settings = case.file(
                f"nats{index}.conf", f"server_name: {node.name}\nlisten: {node.host}:{node.port}\njetstream {{ store_dir: \"{case.dir}/js{index}\", "
                f"max_mem: 64MB, max_file: 1GB }}\ncluster {{ name: suite, listen: 127.0.0.1:{routes[node]}, routes: [{listed}] }}\n")
        for node in self.nodes:
            node.process = node.spawn()
        rig.until("the cluster has a leader", self.has_leader, 60, 0.2)

    def has_leader(self):
        with contextlib.suppress(OSError):
            connection = brokers.NatsConnection(self.nodes[0])
            with contextlib.closing(connection):
                connection.socket.settimeout(1)
                return b'"error"' not in connection.request("$JS.API.INFO", b"")
        return False

    def keys(self):
        servers = ", ".join(f"'nats://{node.host}:{node.port}'" for node in self.nodes)
        return f"jetstream: {{servers: [{servers}], replicas: 3}}"

    def leader(self):
        """Returns the leader of the stream."""
        connection = brokers.NatsConnection(self.nodes[0])
        with contextlib.closing(connection):
            info = json.loads(connection.request("$JS.API.STREAM.INFO.RINGMAIN", b""))
        return next(node for node in self.nodes if node.name == info["cluster"]["leader"])


class KafkaNode(brokers.Kafka):
    """One of three brokers in KRaft mode, each of which is also a controller."""

    def __init__(self, case, index, controllers):
        brokers.Broker.__init__(self, case)
        rig.need("java")
        rig.need("kcat")
        self.port, self.controller, self.index = rig.free_port(), controllers[index], index
        self.address = f"{self.host}:{self.port}"
        self.jars = brokers.jars()
        voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in enumerate(controllers, 1))
        self.settings = case.file(f"kafka{index}/server.properties", "\n".join([
            "process.roles=broker,controller", f"node.id={index + 1}", f"controller.quorum.voters={voters}",
            f"listeners=PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{self.controller}",
            f"advertised.listeners=PLAINTEXT://{self.address}", "controller.listener.names=CONTROLLER",
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT", f"log.dirs={case.dir}/kafka{index}/data",
            "auto.create.topics.enable=false", "default.replication.factor=3", "offsets.topic.replication.factor=3",
            "offsets.topic.num.partitions=1", "transaction.state.log.replication.factor=3", "transaction.state.log.num.partitions=1",
            "log.cleaner.dedupe.buffer.size=16777216", "num.network.threads=2", "num.io.threads=2", ""]))
        self.java("kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(self.settings))


class KafkaCluster:
    """Three brokers."""

    def __init__(self, case):
        controllers = [rig.free_port() for _ in range(3)]
        self.nodes = [KafkaNode(case, index, controllers) for index in range(3)]
        for node in self.nodes:
            node.process = node.spawn()
        for node in self.nodes:
            rig.until("the brokers answer", node.answers, 120, 0.3)

    def keys(self):
        servers = ", ".join(f"'{node.address}'" for node in self.nodes)
        return f"kafka: {{servers: [{servers}], replicas: 3}}"

    def leader(self):
        """Returns the broker that leads most partitions of the topic."""
        listed = subprocess.run(["kcat", "-L", "-J", "-t", TOPIC, "-b", self.nodes[0].address], capture_output=True, text=True, timeout=30)
        partitions = json.loads(listed.stdout)["topics"][0]["partitions"]
        leaders = [partition["leader"] for partition in partitions]
        return self.nodes[max(set(leaders), key=leaders.count) - 1]


def ready(node):
    """Returns the status of a node's /readyz, or None."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        connection = http.client.HTTPConnection(node.host, node.probes, timeout=2)
        with contextlib.closing(connection):
            connection.request("GET", "/readyz")
            return connection.getresponse().status
    return None


class Readiness(threading.Thread):
    """Notes when a node is ready."""

    def __init__(self, node):
        super().__init__(daemon=True)
        self.node, self.over, self.changes = node, threading.Event(), []
        self.start()

    def run(self):
        while not self.over.is_set():
            status = self.status()
            if not self.changes or self.changes[-1][1] != status:
                self.changes.append((time.monotonic(), status))
            time.sleep(0.05)

    def status(self):
        return ready(self.node)

    def end(self):
        self.over.set()
        self.join(5)

    def red(self, since):
        """Returns for how many seconds the node was not ready since then."""
        times = [at for at, _ in self.changes] + [time.monotonic()]
        spans = [(max(at, since), end) for (at, status), end in zip(self.changes, times[1:]) if status != 200]
        return round(sum(max(end - at, 0) for at, end in spans), 2)
