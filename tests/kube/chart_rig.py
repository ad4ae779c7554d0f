#!/usr/bin/env python3
"""Installs the chart in a cluster whose Pods are real processes, and requests what its Gateways serve.

    RINGMAIN_KUBE_RIG=FOLDER python3 tests/kube/chart_rig.py BINARY

A Deployment with an address for each Pod serves an HTTPRoute, also over TLS with a certificate that one Role permits to read; a change of
routes keeps its Pods, and one of the shutdown replaces them. Then a DaemonSet in the network of a node serves a Gateway at an address of a
range. Prints the log of Ringmain's Pods after a failure.

FOLDER has `up.sh`, `in.sh` and `down.sh`: `up.sh` starts a cluster in a network of its own, whose addresses 10.97.0.0/16 are local, and runs the
program that RIG_IMAGES names for an image. Needs root, openssl and curl, and what chart.py needs.
"""

import json
import os
import pathlib
import sys
import tempfile

import yaml

from chart import Chart, value_sets
from chart_values import CHART
from rig import Rig, certificate, until

SHOP = "shop.example"
# Pods of the rig need some seconds for each step.
WITHIN = 120.0

# In the cluster, no admission adds the ServiceAccount's token to Pods.
TOKEN = """
volumes:
  - name: token
    projected:
      sources:
        - serviceAccountToken: {path: token, expirationSeconds: 3600}
        - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
        - downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}
volumeMounts:
  - {name: token, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
"""

BACKEND = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      containers:
        - name: shop
          image: echo-basic
          env:
            - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
            - {name: NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
---
apiVersion: v1
kind: Service
metadata: {name: shop}
spec:
  selector: {app: shop}
  ports: [{port: 80, targetPort: 3000}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web}
spec:
  gatewayClassName: ringmain
  listeners:
    - {name: http, port: 80, protocol: HTTP}
    - {name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop}
spec:
  parentRefs: [{name: web}]
  hostnames: [shop.example]
  rules: [{backendRefs: [{name: shop, port: 80}]}]
"""


class Cluster:
    """The cluster, and the release in it."""

    def __init__(self, rig, helm, folder):
        self.rig, self.helm, self.token = rig, helm, folder / "token.yaml"
        self.token.write_text(TOKEN)

    def release(self, verb, name, *values):
        """Installs or upgrades the release, and waits until its Pods are ready."""
        files = ("-f", str(value_sets()[name]), "-f", str(self.token))
        self.rig.run("in.sh", self.helm, verb, "ringmain", str(CHART), "-n", "ringmain", *files, *values, "--wait", "--timeout", f"{WITHIN:.0f}s")

    def uninstall(self):
        self.rig.run("in.sh", self.helm, "uninstall", "ringmain", "-n", "ringmain", "--wait", "--timeout", f"{WITHIN:.0f}s")
        until("no Pod is left", lambda: not self.pods(), WITHIN)

    def pods(self):
        """Returns the address of each Pod of the release by name, terminating ones included."""
        found = json.loads(self.rig.kubectl("get", "pods", "-n", "ringmain", "-o", "json"))["items"]
        return {pod["metadata"]["name"]: pod["status"].get("podIP") for pod in found}

    def serving(self):
        """Returns the names of Pods that are not terminating."""
        found = json.loads(self.rig.kubectl("get", "pods", "-n", "ringmain", "-o", "json"))["items"]
        return {pod["metadata"]["name"] for pod in found if "deletionTimestamp" not in pod["metadata"]}

    def status(self, url, *options):
        """Returns the status of a response, 0 without one."""
        try:
            return int(self.rig.run("in.sh", "curl", "-sk", "--noproxy", "*", "-m", "5", "-o", "/dev/null", "-w", "%{http_code}", *options, url))
        except RuntimeError:
            return 0

    def serves(self, address):
        """Waits until the route responds at an address, over HTTP and over TLS."""
        until(f"the route at {address}", lambda: self.status(f"http://{address}/", "-H", f"Host: {SHOP}") == 200, WITHIN)
        resolve = ("--resolve", f"{SHOP}:443:{address}")
        until(f"the route at {address} over TLS", lambda: self.status(f"https://{SHOP}/", *resolve) == 200, WITHIN)
        assert self.status(f"http://{address}/", "-H", "Host: other.example") == 404, "a host without a route"

    def gateway_address(self):
        gateway = self.rig.get("gateway", "web")
        conditions = {part["type"]: part["status"] for part in gateway["status"].get("conditions", [])}
        addresses = gateway["status"].get("addresses")
        return addresses and conditions.get("Programmed") == "True" and addresses[0]["value"]

    def logs(self):
        for name in self.pods():
            try:
                print(f"-- {name}\n{self.rig.kubectl('logs', '-n', 'ringmain', name)[-4000:]}", file=sys.stderr)
            except RuntimeError as error:
                print(f"-- {name}: {error}", file=sys.stderr)


def deployment(cluster):
    """A Deployment: every Pod serves the Gateway at its own address, through the ports of the Service"""
    # No load balancer has an address in the cluster, and helm would wait for it.
    plain = ("--set", "service.type=ClusterIP", "--set", "shutdown.delay=1")
    fast = (*plain, "--set", "shutdown.drain=5")
    cluster.release("install", "deployment", *fast)
    pods = cluster.pods()
    assert len(pods) == 2 and len(set(pods.values())) == 2, f"expected two Pods with addresses, found {pods}"
    for address in pods.values():
        cluster.serves(address)
        assert cluster.status(f"http://{address}:9902/readyz") == 200, "readiness at the probe listener"
        assert cluster.status(f"http://{address}:9901/") == 0, "the administration is not for others"
    assert until("an address in the status", cluster.gateway_address) in pods.values(), "the address of another Gateway"
    ready = json.loads(cluster.rig.kubectl("get", "endpointslices", "-n", "ringmain", "-l", "kubernetes.io/service-name=ringmain", "-o", "json"))
    endpoints = {address for part in ready["items"] for end in part["endpoints"] if end["conditions"]["ready"] for address in end["addresses"]}
    assert endpoints == set(pods.values()), f"the Service selects {endpoints}, not {pods}"
    cluster.release("upgrade", "deployment", *fast, "--set", "config.to=http://192.0.2.1:80", "--set", "config.listen=:8080")
    assert set(cluster.pods()) == set(pods), "a change of routes has replaced Pods"
    cluster.release("upgrade", "deployment", *plain, "--set", "shutdown.drain=6")
    until("all Pods are replaced", lambda: not cluster.serving() & set(pods) and len(cluster.serving()) == 2, WITHIN)
    until("old Pods have ended", lambda: len(cluster.pods()) == 2, WITHIN)
    for address in cluster.pods().values():
        cluster.serves(address)
    cluster.uninstall()


def daemonset(cluster):
    """A DaemonSet in the network of one node: the Gateway has an address of the range"""
    cluster.rig.kubectl("label", "node", "rig-a", "ringmain.dev/gateway=true")
    cluster.release("install", "daemonset", "--set", "shutdown.delay=0", "--set", "shutdown.drain=5")
    # Helm does not wait for it: one Pod may be unavailable.
    until("a Pod on the labelled node", lambda: len(cluster.pods()) == 1, WITHIN)
    # The status may have the address that a Pod of the Deployment has written.
    def address():
        found = cluster.gateway_address()
        return found and found.startswith("10.97.") and found

    cluster.serves(until("an address of the range", address, WITHIN))
    assert len(cluster.pods()) == 1, f"expected a Pod on the labelled node only, found {cluster.pods()}"
    cluster.uninstall()


def main():
    folder = os.environ.get("RINGMAIN_KUBE_RIG")
    if not folder or len(sys.argv) != 2:
        sys.exit("chart_rig: expected a binary, and the folder of a rig in RINGMAIN_KUBE_RIG")
    os.environ["RIG_IMAGES"] = f"ringmain={pathlib.Path(sys.argv[1]).resolve()}"
    rig = Rig(folder)
    failures = 0
    work = tempfile.TemporaryDirectory()
    cluster = Cluster(rig, Chart().helm, pathlib.Path(work.name))
    try:
        rig.run("up.sh")
        for namespace in ("ringmain", "shop"):
            rig.kubectl("create", "namespace", namespace)
        secret, _ = certificate(pathlib.Path(work.name), "shop")
        rig.apply(secret, *yaml.safe_load_all(BACKEND))
        for case in (deployment, daemonset):
            try:
                case(cluster)
                print(f"ok      {case.__doc__}")
            except (AssertionError, RuntimeError) as error:
                failures += 1
                print(f"FAILED  {case.__doc__}: {error}")
                cluster.logs()
    finally:
        rig.run("down.sh")
        work.cleanup()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
