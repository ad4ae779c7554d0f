"""A Service as kube-proxy serves it: connections to its ClusterIP are sent to ready endpoints by netfilter, in this network namespace.

With `balancer_s` in front of it is a load balancer outside of the cluster, as with `externalTrafficPolicy: Local`: it selects among nodes that have
ready endpoints, and notices that many seconds late; a node sends connections to its own endpoints only.

With `loopback`, connections to 127.0.0.1 at the Service's port are sent to its endpoints, too, as kube-proxy does for ports of nodes.
"""

import json
import pathlib
import subprocess
import threading
import time

# kube-proxy's default `minSyncPeriod`: here each change waits for all of it, its longest delay.
SYNC_S = 1.0
SERVICES = "10.96.0.0/16"
TICK_S = 0.1


def nft(rules):
    done = subprocess.run(["nft", "-f", "-"], input=rules, text=True, capture_output=True)
    if done.returncode:
        raise RuntimeError(f"nft: {done.stderr}")


def is_ready(endpoint):
    return endpoint["conditions"].get("ready")


def selected(endpoints):
    """The addresses for new connections: of ready endpoints, without one of those that serve while they terminate."""
    def addresses(is_selected):
        return sorted({address for end in endpoints if is_selected(end) for address in end["addresses"]})

    return addresses(is_ready) or addresses(lambda end: end["conditions"].get("serving") and end["conditions"].get("terminating"))


class Service:
    """Follows the EndpointSlices of one Service until the end of the block. Connections that are open stay with their endpoint."""

    def __init__(self, rig, namespace, name, port, balancer_s=None, loopback=False):
        self.namespace, self.name, self.port, self.balancer_s, self.loopback = namespace, name, port, balancer_s, loopback
        self.table = f"ip service_{name.replace('-', '_')}"
        self.address = rig.get("service", name, namespace)["spec"]["clusterIP"]
        self.slices, self.changed_at = {}, None
        # Sets of nodes with ready endpoints, with the instant from which on they are known; and groups of endpoints in use.
        self.nodes, self.history = [], []
        self.is_over = threading.Event()
        self.errors = []

    def __enter__(self):
        # Nodes have a default route; this namespace has none.
        subprocess.run(["ip", "route", "replace", SERVICES, "dev", "pods"], check=True)
        # Connections without an endpoint are dropped, as by kube-proxy. A search for their neighbour would fail, and with it open connections.
        subprocess.run(["ip", "neigh", "replace", self.address, "lladdr", "02:00:00:00:00:01", "dev", "pods", "nud", "permanent"], check=True)
        nft(f"add table {self.table}\nadd chain {self.table} groups\nadd chain {self.table} output {{ type nat hook output priority -100; }}\n"
            f"add rule {self.table} output ip daddr {self.address} tcp dport {self.port} goto groups\n")
        if self.loopback:
            for device in ("all", "pods"):
                pathlib.Path(f"/proc/sys/net/ipv4/conf/{device}/route_localnet").write_text("1")
            nft(f"add rule {self.table} output ip daddr 127.0.0.1 tcp dport {self.port} goto groups\n"
                f"add chain {self.table} postrouting {{ type nat hook postrouting priority 100; }}\n"
                f"add rule {self.table} postrouting ip saddr 127.0.0.0/8 oifname pods masquerade\n")
        base = f"/apis/discovery.k8s.io/v1/namespaces/{self.namespace}/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3D{self.name}"
        # Without a version the watch begins with all that exist.
        command = ["kubectl", "get", "--raw", f"{base}&watch=true&timeoutSeconds=3600"]
        self.watch = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.threads = [threading.Thread(target=run, daemon=True) for run in (self.read, self.follow)]
        for thread in self.threads:
            thread.start()
        return self

    def read(self):
        for line in self.watch.stdout:
            event = json.loads(line)
            piece = event["object"]
            if event["type"] == "DELETED":
                self.slices.pop(piece["metadata"]["name"], None)
            elif event["type"] in ("ADDED", "MODIFIED"):
                self.slices[piece["metadata"]["name"]] = piece
            self.changed_at = self.changed_at or time.monotonic()
        if not self.is_over.is_set():
            self.errors.append(RuntimeError("the watch of EndpointSlices has ended"))

    def follow(self):
        endpoints = []
        while not self.is_over.wait(TICK_S):
            now = time.monotonic()
            if self.changed_at and now >= self.changed_at + SYNC_S:
                self.changed_at = None
                endpoints = [end for piece in list(self.slices.values()) for end in piece["endpoints"] or []]
                known_from = now + (self.balancer_s or 0) if self.nodes else now
                self.nodes.append((known_from, sorted({end["nodeName"] for end in endpoints if is_ready(end)})))
            groups = self.groups(endpoints, now)
            if not self.history or self.history[-1] != groups:
                try:
                    self.write(groups)
                except RuntimeError as error:
                    self.errors.append(error)
                    return
                self.history.append(groups)

    def groups(self, endpoints, now):
        """Addresses of endpoints, in groups of which one is drawn for a connection."""
        if self.balancer_s is None:
            return [selected(endpoints)]
        known = [nodes for known_from, nodes in self.nodes if known_from <= now]
        return [selected([end for end in endpoints if end["nodeName"] == node]) for node in (known[-1] if known else [])]

    def write(self, groups):
        rules = [f"flush chain {self.table} groups"]
        for number, addresses in enumerate(groups):
            rules += [f"add chain {self.table} group{number}", f"flush chain {self.table} group{number}"]
            if addresses:
                targets = ", ".join(f"{place} : {address}" for place, address in enumerate(addresses))
                rules.append(f"add rule {self.table} group{number} dnat to numgen random mod {len(addresses)} map {{ {targets} }}")
        if groups:
            targets = ", ".join(f"{number} : goto group{number}" for number in range(len(groups)))
            rules.append(f"add rule {self.table} groups numgen random mod {len(groups)} vmap {{ {targets} }}")
        nft("\n".join(rules) + "\n")

    def __exit__(self, kind, *_):
        self.is_over.set()
        self.watch.kill()
        self.watch.wait()
        for thread in self.threads:
            thread.join()
        nft(f"delete table {self.table}\n")
        if self.errors and kind is None:
            raise self.errors[0]
