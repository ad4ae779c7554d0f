#!/usr/bin/env python3
"""Requests under changes of routes and rolling restarts, of backends and of Ringmain itself: none may fail.

    RINGMAIN_KUBE_RIG=FOLDER python3 tests/kube/rollout.py BINARY [CASE...] [--requests N] [--changes N]

The chart is installed as a Deployment, with io_uring and with epoll, and as a DaemonSet, the latter also behind a load balancer outside of the
cluster. In each case four clients send 200,000 requests to its Service: over kept HTTP/1.1 connections, over HTTP/2, over a new connection
each, and over connections that are mostly idle; one of five is a POST. Meanwhile 1,000 changes of routes are applied, and backends and our own
Pods are restarted by `kubectl rollout restart`, again and again, at least twice. In the case `control` there is no `shutdown.delay`, and
requests must fail: otherwise failures could not be detected.

A request has failed if its connection was refused, reset or closed, if it had no response within 5 s, if status or body differ from the expected ones, or
if no connection was free to send it. Clients do not retry, apart from requests that an HTTP/2 server has declared unprocessed; these have a
column.

FOLDER has `up.sh`, `in.sh` and `down.sh` as for chart_rig.py, whose cluster has no kube-proxy: service.py replaces it. Needs root, ip, nft
(nftables) and what chart.py needs.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

import yaml

from chart import Chart
from chart_rig import Cluster
from rig import Admin, Rig, certificate, until
from service import Service

ROUTES = 10
GROUP = "/apis/gateway.networking.k8s.io/v1/namespaces/shop/httproutes"
WITHIN = 120.0
# Changes of routes a second, by several writers: each has routes of its own, and the API server shares its CPUs.
CHANGE_RATE = 8.0
WRITERS = 5

# Backends continue while gateways may still send requests to them: the kubelet sends SIGTERM at the same time as EndpointSlices change.
BACKEND = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: backend}
spec:
  replicas: 3
  selector: {matchLabels: {app: backend}}
  strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}
  template:
    metadata: {labels: {app: backend}}
    spec:
      terminationGracePeriodSeconds: 20
      containers:
        - name: backend
          image: echo-basic
          env:
            - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
            - {name: NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
          readinessProbe: {httpGet: {path: /, port: 3000}, periodSeconds: 1}
          lifecycle: {preStop: {sleep: {seconds: 5}}}
---
apiVersion: v1
kind: Service
metadata: {name: backend}
spec:
  selector: {app: backend}
  ports: [{port: 80, targetPort: 3000}]
"""
GATEWAY = """
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web}
spec:
  gatewayClassName: ringmain
  listeners: [{name: http, port: 80, protocol: HTTP}]
"""

# Share of the requests, requests a second at 200,000 in 150 s, and options of `ringmain bench`.
CLIENTS = {
    "HTTP/1.1, kept": (0.44, ["-c", "32"]),
    "HTTP/2": (0.44, ["-c", "8", "--http2", "--streams", "8"]),
    "HTTP/1.1, new connections": (0.10, ["-c", "64", "--reconnect-every", "1"]),
    "HTTP/1.1, idle for 4.8 s": (0.02, ["-c", "128"]),
}
TOTAL_RATE = 1333


def route(number, version):
    """One of the routes that are loaded: in turns at one Service, at the other, and at both, with its version as a header."""
    names = (["a"], ["b"], ["a", "b"])[version % 3]
    mark = {"type": "ResponseHeaderModifier", "responseHeaderModifier": {"set": [{"name": "X-Version", "value": str(version)}]}}
    match = {"path": {"type": "PathPrefix", "value": f"/r{number}"}}
    rules = [{"matches": [match], "filters": [mark], "backendRefs": [{"name": name, "port": 80} for name in names]}]
    if version % 4 == 1:
        rules.append({"matches": [{"path": {"value": f"/other{number}"}}], "backendRefs": [{"name": "a", "port": 80}]})
    spec = {"parentRefs": [{"name": "web"}], "hostnames": ["shop.example"], "rules": rules}
    return {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": f"r{number}"}, "spec": spec}


def scenario():
    """Requests of a client: all routes, four GETs for each POST, with what the backend's echo must have."""
    flows = []
    for number in range(ROUTES):
        for weight, request in ((4, {"path": f"/r{number}/get"}), (1, {"path": f"/r{number}/post", "method": "POST", "json": {"order": 7}})):
            checks = {"path": request["path"], "method": request.get("method", "GET"), "host": "shop.example", "namespace": "shop"}
            expected = [{"pointer": f"/{name}", "equals": value} for name, value in checks.items()]
            flows.append({"name": request["path"], "weight": weight, "steps": [{"request": request, "expect": {"status": 200, "json": expected}}]})
    return yaml.safe_dump({"defaults": {"headers": {"Host": "shop.example"}}, "flows": flows})


class Inside(Rig):
    """The rig, for a process within it."""

    def run(self, script, *args, text=None):
        assert script == "in.sh", f"{script} within the rig"
        done = subprocess.run(args, input=text, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(args)}: {done.stderr.strip()}")
        return done.stdout


class Client:
    """One `ringmain bench`."""

    def __init__(self, binary, name, address, total, file):
        share, options = CLIENTS[name]
        self.name, self.requests = name, round(total * share)
        rate = TOTAL_RATE * share
        command = [binary, "bench", "--scenario", str(file), f"http://{address}", "--rounds", "1", "--warmup", "0s", "--json", "--quiet"]
        command += ["-n", str(self.requests), "-d", "1h", "-r", f"{rate:.0f}", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def report(self):
        out, err = self.process.communicate(timeout=1800)
        try:
            return Counts(json.loads(out)["run"]["rounds"][0])
        except (ValueError, KeyError):
            raise RuntimeError(f"{self.name}: {err or out}") from None


class Counts:
    """The requests of a client, or of several."""

    NAMES = ("ended", "failed", "unexpected", "timeouts", "broken", "refused", "dropped", "unprocessed", "connects")

    def __init__(self, found=None):
        self.values, self.causes, self.p99_ms = dict.fromkeys(self.NAMES, 0), {}, None
        if not found:
            return
        counts = found["counts"]
        parts = {name: counts[name] or 0 for name in ("unexpected", "timeouts", "dropped", "unprocessed", "connects")}
        parts["broken"], parts["refused"] = sum(counts["broken"].values()), sum(counts["connect_errors"].values())
        parts["failed"] = sum(parts[name] for name in ("unexpected", "timeouts", "broken", "refused", "dropped"))
        parts["ended"] = counts["answered"] + parts["timeouts"] + parts["broken"] + parts["dropped"]
        self.values.update(parts)
        if parts["failed"]:
            self.causes = {name: counts[name] for name in ("statuses", "broken", "connect_errors", "first_errors") if counts.get(name)}
        self.p99_ms = found["response"]["p99_us"] / 1000

    def add(self, other):
        for name in self.NAMES:
            self.values[name] += other.values[name]

    def row(self, name):
        numbers = " | ".join(f"{self.values[key]:,}" for key in self.NAMES)
        return f"| {name} | {numbers} | {'' if self.p99_ms is None else f'{self.p99_ms:.1f}'} |"


class Loop(threading.Thread):
    """Repeats a function until `is_over`, and counts its calls; an error ends it."""

    def __init__(self, function, is_over):
        super().__init__(daemon=True)
        self.function, self.is_over, self.count, self.error = function, is_over, 0, None

    def run(self):
        try:
            while not self.is_over.is_set():
                self.function()
                self.count += 1
        except Exception as error:
            self.error = error


class Changes:
    """One of `WRITERS` that change the routes: those that are loaded, each in turn, and others that are created and deleted."""

    def __init__(self, rig, versions, total, is_over, first):
        self.admin, self.versions, self.is_over = Admin(rig), versions, is_over
        self.began, self.left = time.monotonic(), iter(range(first, total, WRITERS))
        self.count = 0

    def apply_next(self):
        change = next(self.left, None)
        due = None if change is None else max(0.0, self.began + change / CHANGE_RATE - time.monotonic())
        if self.is_over.wait(due):
            return
        name, number = f"extra{change // 20}", change % ROUTES
        if change % 20 == 9:
            extra = route(0, 0)
            extra["metadata"]["name"], extra["spec"]["hostnames"] = name, [f"{name}.example"]
            self.admin.request("POST", GROUP, extra)
        elif change % 20 == 19:
            self.admin.request("DELETE", f"{GROUP}/{name}")
        else:
            self.versions[number] += 1
            self.admin.request("PATCH", f"{GROUP}/r{number}", {"spec": route(number, self.versions[number])["spec"]})
        self.count += 1


class Case:
    """An installation of the chart under load."""

    def __init__(self, args, rig, cluster, folder):
        self.args, self.rig, self.cluster, self.folder = args, rig, cluster, folder
        self.versions = [0] * ROUTES
        self.balancer_s = None

    def install(self, kind, *values):
        values = ("--set", "service.type=ClusterIP", "--set", f"kind={kind}", *values)
        self.cluster.release("install", "deployment", *values)
        self.workload = f"{kind.lower()}/ringmain"
        self.rig.kubectl("rollout", "status", self.workload, "-n", "ringmain", "--timeout", f"{WITHIN:.0f}s")
        self.serve_versions()

    def serve_versions(self):
        """Waits until each Pod serves the last version of every route."""
        for name, address in self.cluster.pods().items():
            for number, version in enumerate(self.versions):
                url = f"http://{address}/r{number}/get"
                command = ["curl", "-s", "--noproxy", "*", "-m", "5", "-o", "/dev/null", "-w", "%header{x-version}", "-H", "Host: shop.example", url]
                until(f"version {version} of route {number} at {name}", lambda: self.try_run(command) == str(version), WITHIN)

    def try_run(self, command):
        return subprocess.run(command, capture_output=True, text=True).stdout

    def roll(self, workload, namespace, label):
        """Restarts a workload, and waits until its old Pods have ended."""
        self.rig.kubectl("rollout", "restart", workload, "-n", namespace)
        self.rig.kubectl("rollout", "status", workload, "-n", namespace, "--timeout", "300s")
        admin = Admin(self.rig)

        def have_ended():
            # A list every 0.2 s: the processes share few CPUs.
            time.sleep(0.15)
            pods = admin.request("GET", f"/api/v1/namespaces/{namespace}/pods?labelSelector={label}")["items"]
            return not any(pod["metadata"].get("deletionTimestamp") for pod in pods)

        until(f"the old Pods of {workload}", have_ended, WITHIN)

    def load(self, total):
        """Sends the requests under all changes. Returns the counts of all clients together."""
        file = self.folder / "scenario.yaml"
        file.write_text(scenario())
        is_over = threading.Event()
        with Service(self.rig, "ringmain", "ringmain", 80, self.balancer_s) as service:
            until("endpoints of the Service", lambda: any(map(any, service.history)))
            began = time.monotonic()
            clients = [Client(self.args.binary, name, f"{service.address}:80", total, file) for name in CLIENTS]
            loops = {
                "restarts of Ringmain": Loop(lambda: self.roll(self.workload, "ringmain", "app.kubernetes.io%2Fname%3Dringmain"), is_over),
                "restarts of backend a": Loop(lambda: self.roll("deployment/a", "shop", "app%3Da"), is_over),
                "restarts of backend b": Loop(lambda: self.roll("deployment/b", "shop", "app%3Db"), is_over),
            }
            writers = [Changes(self.rig, self.versions, self.args.changes, is_over, first) for first in range(WRITERS)]
            every = [*loops.values(), *(Loop(writer.apply_next, is_over) for writer in writers)]
            for loop in every:
                loop.start()
            try:
                found = [(client.name, client.report()) for client in clients]
                took = time.monotonic() - began
                # Of those that are under way at the end a part is not under load.
                restarts = {name: loop.count for name, loop in loops.items()}
                changes = sum(writer.count for writer in writers)
            finally:
                is_over.set()
                for client in clients:
                    client.process.poll() is None and client.process.kill()
                for loop in every:
                    loop.join(timeout=400)
        for loop in every:
            if loop.error:
                raise loop.error
        everything = Counts()
        print(f"| client | {' | '.join(Counts.NAMES)} | p99 ms |\n| --- |{' --- |' * (len(Counts.NAMES) + 1)}")
        for name, counts in found:
            everything.add(counts)
            print(counts.row(name))
            if counts.causes:
                print(json.dumps(counts.causes))
        print(everything.row("all"))
        counted = ", ".join(f"{count} {name}" for name, count in restarts.items())
        print(f"{took:.0f} s, {changes} changes of routes, {counted}; {len(service.history)} sets of ready endpoints", flush=True)
        for name, count in restarts.items():
            assert count >= 2, f"expected two {name} under load, found {count}"
        self.serve_versions()
        return everything.values | {"changes": changes}

    def expect_none(self):
        values = self.load(self.args.requests)
        assert values["changes"] == self.args.changes, f"{values['changes']} changes of routes while requests were sent, expected {self.args.changes}"
        assert values["failed"] == 0, f"{values['failed']} of {values['ended']} requests have failed"


def deployment_uring(case):
    """A Deployment with io_uring: no request fails"""
    case.install("Deployment", "--set", "extraArgs={--engine=uring}")
    case.expect_none()


def deployment_epoll(case):
    """A Deployment with epoll: no request fails"""
    case.install("Deployment", "--set", "extraArgs={--engine=epoll}")
    case.expect_none()


def daemonset(case):
    """A DaemonSet: no request fails"""
    case.install("DaemonSet")
    case.expect_none()


def balancer(case):
    """A DaemonSet behind a load balancer that notices the state of nodes 8 s late: no request fails"""
    # Each Pod is the only one of its node, which receives connections until 9 s after the Pod's deletion. The last of them have their first
    # request up to 4.8 s later, and must not be closed as idle at that instant.
    case.install("DaemonSet", "--set", "shutdown.delay=15")
    case.balancer_s = 8.0
    case.expect_none()


def control(case):
    """A Deployment without `shutdown.delay`: requests fail"""
    case.install("Deployment", "--set", "shutdown.delay=0")
    assert case.load(case.args.requests // 2)["failed"] > 0, "no request has failed without `shutdown.delay`"


CASES = {"deployment": deployment_uring, "epoll": deployment_epoll, "daemonset": daemonset, "balancer": balancer, "control": control}


def run_inside(args, helm):
    """Runs the cases, as a process of the rig."""
    rig = Inside(args.rig)
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        cluster = Cluster(rig, helm, folder)
        for namespace in ("ringmain", "shop"):
            rig.kubectl("create", "namespace", namespace)
        secret, _ = certificate(folder, "shop")
        backends = [part for name in ("a", "b") for part in yaml.safe_load_all(BACKEND.replace("backend", name))]
        rig.apply(secret, *backends, yaml.safe_load(GATEWAY))
        for name in args.cases or CASES:
            case = Case(args, rig, cluster, folder)
            print(f"-- {CASES[name].__doc__}", flush=True)
            try:
                rig.apply(*(route(number, 0) for number in range(ROUTES)))
                CASES[name](case)
                print(f"ok      {CASES[name].__doc__}", flush=True)
            except (AssertionError, RuntimeError) as error:
                failures += 1
                print(f"FAILED  {CASES[name].__doc__}: {error}", flush=True)
                cluster.logs()
            cluster.uninstall()
            rig.kubectl("delete", "httproutes", "--all", "-n", "shop")
    return 1 if failures else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=lambda path: str(pathlib.Path(path).resolve()), help="a binary with the feature kubernetes")
    parser.add_argument("cases", nargs="*", help=", ".join(CASES))
    parser.add_argument("--requests", type=int, default=200_000, help="requests of a case")
    parser.add_argument("--changes", type=int, default=1000, help="changes of routes of a case")
    parser.add_argument("--helm", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.rig = os.environ.get("RINGMAIN_KUBE_RIG")
    if not args.rig or set(args.cases) - set(CASES):
        sys.exit("rollout: expected a binary, cases by their names, and the folder of a rig in RINGMAIN_KUBE_RIG")
    if args.helm:
        return run_inside(args, args.helm)
    # An end from outside also ends the rig.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    os.environ["RIG_IMAGES"] = f"ringmain={args.binary}"
    rig = Rig(args.rig)
    helm = Chart().helm
    try:
        rig.run("up.sh")
        command = [str(rig.folder / "in.sh"), sys.executable, *sys.argv, "--helm", helm]
        return subprocess.run(command, env=rig.env).returncode
    finally:
        rig.run("down.sh")


if __name__ == "__main__":
    sys.exit(main())
