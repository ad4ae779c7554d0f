"""A cluster of push nodes, with Redis as their log or without one, behind a gateway without affinity. Loopback only."""

import logs
import rig
from nodes import SECRET, Cluster, Node

KEY = "K"
PARTITIONS = 16
RETAINED = "retention: {publications: %d, size: 4MiB, time: 10m}, recovery: true, history: true, publish: true"


class PushNode(Node):
    """A node with namespaces: {name: options}, the name "" for channels without one."""

    def __init__(self, case, name, namespaces, **options):
        super().__init__(case, name, **options)
        self.namespaces = namespaces

    def config(self):
        role = f", role: {self.role}" if self.role else ""
        peers = ", ".join(f"'127.0.0.1:{port}'" for port in self.peers)
        listed = "".join(f"    {name}: {{{options}}}\n" for name, options in self.namespaces.items() if name)
        addresses = ", ".join(f"'{host}:{self.port}'" for host in dict.fromkeys(("127.0.0.1", self.host)))
        return (f"listen: [{addresses}]\nadmin: {{address: 127.0.0.1:{self.admin}, metrics: '{self.host}:{self.probes}'}}\n"
                f"limits: {{connections_per_address: off, {self.limits}}}\n"
                f"push:\n  anonymous: true\n  api_key: {KEY}\n  tokens: {{secret: '{SECRET}'}}\n"
                f"  channels: {{{self.namespaces['']}}}\n  namespaces:\n{listed}"
                f"  cluster: {{listen: '127.0.0.1:{self.link}', nodes: [{peers}], name: {self.name}{role}{self.more}}}\n"
                "routes: {all: {rules: [{push: true}]}}\n")


class Stage:
    """The nodes of `roles` ({name: role}), with a log in Redis or without, and a gateway in front of those that have clients."""

    def __init__(self, case, roles, namespaces, has_log=True):
        self.case, log = case, ""
        if has_log:
            redis = logs.Redis(case, "redis").start()
            log = f", log: {{redis: {{servers: '{redis.address}'}}, partitions: {PARTITIONS}}}"
        self.cluster = Cluster(case, roles, make=lambda case, name: PushNode(case, name, namespaces, role=roles[name], more=log))
        self.entries = [node for node in self.cluster.nodes.values() if node.role != "push-server"]
        probes = rig.free_port()
        for number, node in enumerate(self.entries, 2):
            node.host, node.probes = f"127.0.0.{number}", probes
        self.cluster.start()
        self.wait_ready()
        self.start_gateway(probes)

    def start_gateway(self, probes):
        """Starts the gateway: `round_robin`, so that a client that reconnects changes the node."""
        self.port = rig.free_port()
        endpoints = ", ".join(f"'{node.host}:{node.port}'" for node in self.entries)
        config = (f"listen: 127.0.0.1:{self.port}\nadmin: {{address: 127.0.0.1:{rig.free_port()}}}\n"
                  f"limits: {{connections_per_address: off}}\n"
                  f"upstreams:\n  push:\n    endpoints: [{endpoints}]\n    balance: round_robin\n"
                  f"    health: {{active: {{path: /readyz, every: 500ms, port: {probes}}}}}\n"
                  "    pool: {connections: 10000, requests: 10000, client_share: 100}\n"
                  "routes: {live: {rules: [{match: /, to: push, timeouts: {request: off, idle: off}}]}}\n")
        process = self.case.start("run", self.case.file("gateway.yaml", config), "--workers", 1)
        process.wait_port(self.port)
        self.case.processes["gateway"] = process

    def wait_ready(self):
        nodes = self.cluster.running()
        rig.until("all nodes are ready", lambda: all(logs.ready(node) == 200 for node in nodes), 30, 0.1)

    def restart(self, name):
        """Starts a killed node again, and waits until it belongs to the cluster and is ready."""
        self.cluster[name].start()
        self.cluster.wait_linked()
        self.wait_ready()
