"""A Service as kube-proxy serves it: connections to its ClusterIP are sent to ready endpoints by netfilter, in this network namespace."""

import json
import subprocess
import threading

# kube-proxy's default `minSyncPeriod`: here each change waits for all of it, its longest delay.
SYNC_S = 1.0
SERVICES = "10.96.0.0/16"


def nft(rules):
    done = subprocess.run(["nft", "-f", "-"], input=rules, text=True, capture_output=True)
    if done.returncode:
        raise RuntimeError(f"nft: {done.stderr}")


def selected(slices):
    """The addresses for new connections: of ready endpoints, without one of those that serve while they terminate."""
    endpoints = [end for piece in slices for end in piece["endpoints"] or []]

    def addresses(is_selected):
        return sorted({address for end in endpoints if is_selected(end["conditions"]) for address in end["addresses"]})

    return addresses(lambda state: state.get("ready")) or addresses(lambda state: state.get("serving") and state.get("terminating"))


class Service:
    """Follows the EndpointSlices of one Service until the end of the block. Connections that are open stay with their endpoint."""

    def __init__(self, rig, namespace, name, port):
        self.namespace, self.name, self.port = namespace, name, port
        self.address = rig.get("service", name, namespace)["spec"]["clusterIP"]
        self.slices, self.history = {}, []
        self.change, self.is_over = threading.Event(), False
        self.errors = []

    def __enter__(self):
        # Nodes have a default route; this namespace has none.
        subprocess.run(["ip", "route", "replace", SERVICES, "dev", "pods"], check=True)
        nft("add table ip rollout\nadd chain ip rollout endpoints\nadd chain ip rollout output { type nat hook output priority -100; }\n"
            f"add rule ip rollout output ip daddr {self.address} tcp dport {self.port} goto endpoints\n")
        base = f"/apis/discovery.k8s.io/v1/namespaces/{self.namespace}/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3D{self.name}"
        # Without a version the watch begins with all that exist.
        command = ["kubectl", "get", "--raw", f"{base}&watch=true&timeoutSeconds=3600"]
        self.watch = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.threads = [threading.Thread(target=run, daemon=True) for run in (self.read, self.write)]
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
            self.change.set()
        if not self.is_over:
            self.errors.append(RuntimeError("the watch of EndpointSlices has ended"))

    def write(self):
        stop = threading.Event()
        while not self.is_over:
            self.change.wait()
            stop.wait(SYNC_S)
            self.change.clear()
            chosen = selected(list(self.slices.values()))
            if self.history and self.history[-1] == chosen:
                continue
            targets = ", ".join(f"{number} : {address}" for number, address in enumerate(chosen))
            rule = f"add rule ip rollout endpoints dnat to numgen random mod {len(chosen)} map {{ {targets} }}\n" if chosen else ""
            try:
                nft(f"flush chain ip rollout endpoints\n{rule}")
            except RuntimeError as error:
                self.errors.append(error)
                return
            self.history.append(chosen)

    def __exit__(self, kind, *_):
        self.is_over = True
        self.watch.kill()
        self.watch.wait()
        self.change.set()
        for thread in self.threads:
            thread.join()
        nft("delete table ip rollout\n")
        if self.errors and kind is None:
            raise self.errors[0]
