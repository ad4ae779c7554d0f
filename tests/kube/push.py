#!/usr/bin/env python3
"""A push cluster in Kubernetes, with Redis as its log, that is scaled, upgraded and drained: no publication may be lost or doubled.

    RINGMAIN_KUBE_RIG=FOLDER python3 tests/kube/push.py BINARY [CASE...] [--clients N]

The chart is installed twice with its own files of values: push servers, and push gateways that are linked to them over the headless Service. The
clients of tests/cluster/crowd.py connect to the Service of the gateways, and believe their server: each missed, repeated or reordered publication is counted.
Two publishers, one at each Service, number what they publish. A publication that is refused is repeated with its number and idempotency key until it
is acknowledged, so every number must arrive, once, in order, at each client of its channel.

In each case all clients recover, no connection is refused, and publishing fails with 503 or error 100 only, which a repetition resolves. Clients of
a Pod that ends are sent away, and connect again, spread over `shutdown.spread`: of ten equal parts of that time, none has more than 2.5 times its share.
In the case `control` they are sent away within a second, which must be noticed.

FOLDER has `up.sh`, `in.sh` and `down.sh` as for chart_rig.py, whose cluster has no kube-proxy: service.py replaces it. Needs root, ip, nft
(nftables), redis-server and what chart.py needs; BINARY has the features brokers and kubernetes.
"""

import argparse
import base64
import collections
import contextlib
import http.client
import itertools
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from chart import Chart, value_sets
from chart_rig import TOKEN
from chart_values import CHART, ROOT
from rig import Admin, Rig, until
from rollout import Inside
from service import Service

sys.path.append(str(ROOT / "tests/cluster"))

from crowd import Crowd  # noqa: E402
from publisher import Publisher, errors_of  # noqa: E402

WITHIN = 120.0
NAMESPACE = "live"
PORT = 8080
KEY = "K"
REDIS = ("10.98.0.1", 6379)
PER_CHANNEL = 20
DELAY_S, SPREAD_S = 5, 8
PARTS, MOST_OF_SHARE = 10, 2.5
# Fewer clients than these, and chance decides how many are in a part.
LEAST_CLIENTS = 100
# Of the clients of a Pod that ends: others may leave on their own until it sends them away.
LEAST_SENT = 0.9
# One of several delays of kube-proxy, and a hand-over: a publication that is refused for longer is a failure.
RESOLVED_S = 15.0
RESOLVABLE = {"503", "error 100"}

COMMON = f"""
pushCluster:
  address: 0.0.0.0
  log: {{redis: {{servers: "{REDIS[0]}:{REDIS[1]}"}}, partitions: 16}}
config:
  listen: ":{PORT}"
  limits: {{connections_per_address: "off"}}
  push: {{anonymous: true, api_key: "${{env:API_KEY}}"}}
env:
  - {{name: API_KEY, valueFrom: {{secretKeyRef: {{name: live, key: api-key}}}}}}
  - {{name: TOKEN_SECRET, valueFrom: {{secretKeyRef: {{name: live, key: token-secret}}}}}}
  - {{name: REDIS_PASSWORD, valueFrom: {{secretKeyRef: {{name: live, key: redis-password}}}}}}
service: {{type: ClusterIP, ports: [{{name: http, port: {PORT}}}]}}
shutdown: {{delay: {DELAY_S}, spread: {SPREAD_S}, drain: {SPREAD_S + 7}, margin: 15}}
autoscaling: {{enabled: false}}
replicas: 2
extraArgs: [--workers=1]
"""
# In the guide's values a new Pod has its share after minutes.
REBALANCE = "pushCluster: {rebalance: {above: 1.1, until: 1.05, rate: 5%}}"
# Releases of the chart, with the file of values and our own.
RELEASES = {"servers": ("cluster", None), "gateways": ("clusterclients", REBALANCE)}


class Clients(Crowd):
    """The clients, and their number of connections over time."""

    def __init__(self, channels, count):
        clients = [([channels[number % len(channels)]],) for number in range(count)]
        super().__init__([PORT], clients, connect_rate=200, reconnect=(0.05, 0.5), has_holes=True)
        self.samples = []

    def watch(self):
        while not self.is_over:
            with self.lock:
                # Those that `rebalance` has sent away are not of a Pod that ends.
                self.samples.append((time.monotonic(), self.counts["connects"] - self.closes.get("3011", 0)))
            time.sleep(0.1)


class Pod:
    def __init__(self, name):
        self.name, self.release, self.address, self.node = name, None, None, None
        self.is_ready, self.ends_at, self.is_gone = False, None, False
        # Times, clients, clients that were sent away since the start, and all disconnects since the start.
        self.samples = []

    def clients(self):
        return self.samples[-1][1] if self.samples else 0


class Pods:
    """The Pods of the namespace, followed until the end of the block, and the clients of each push gateway."""

    def __init__(self, rig):
        self.rig, self.by_name, self.available, self.is_over, self.errors = rig, {}, [], threading.Event(), []

    def __enter__(self):
        path = f"/api/v1/namespaces/{NAMESPACE}/pods?watch=true&timeoutSeconds=3600"
        self.watch = subprocess.Popen(["kubectl", "get", "--raw", path], stdout=subprocess.PIPE, text=True)
        self.threads = [threading.Thread(target=run, daemon=True) for run in (self.read, self.sample)]
        for thread in self.threads:
            thread.start()
        return self

    def read(self):
        for line in self.watch.stdout:
            event = json.loads(line)
            found = event["object"]
            name = found["metadata"]["name"]
            pod = self.by_name.get(name) or Pod(name)
            pod.release, pod.node = found["metadata"]["labels"]["app.kubernetes.io/instance"], found["spec"].get("nodeName")
            pod.address = found["status"].get("podIP")
            pod.is_ready = any(part["type"] == "Ready" and part["status"] == "True" for part in found["status"].get("conditions", []))
            if "deletionTimestamp" in found["metadata"]:
                pod.ends_at = pod.ends_at or time.monotonic()
            pod.is_gone = event["type"] == "DELETED"
            self.by_name[name] = pod
            self.available.append((time.monotonic(), {release: len(self.ready(release)) for release in RELEASES}))
        if not self.is_over.is_set():
            self.errors.append(RuntimeError("the watch of Pods has ended"))

    def all(self, release):
        """Returns those whose process may run."""
        return [pod for pod in list(self.by_name.values()) if pod.release == release and not pod.is_gone]

    def staying(self, release):
        return [pod for pod in self.all(release) if not pod.ends_at]

    def ready(self, release):
        return [pod for pod in self.staying(release) if pod.is_ready]

    def sample(self):
        while not self.is_over.wait(0.1):
            for pod in self.all("gateways"):
                # Not before its listener, nor after its end.
                with contextlib.suppress(OSError, http.client.HTTPException):
                    pod.samples.append((time.monotonic(), *self.figures(pod.address)))

    def figures(self, address):
        connection = http.client.HTTPConnection(address or "0.0.0.0", 9902, timeout=1)
        with contextlib.closing(connection):
            connection.request("GET", "/metrics")
            page = connection.getresponse().read().decode()
        return read_figures(page)

    def __exit__(self, kind, *_):
        self.is_over.set()
        self.watch.kill()
        self.watch.wait()
        for thread in self.threads:
            thread.join()
        if self.errors and kind is None:
            raise self.errors[0]


def read_figures(page):
    """Returns the clients, those that were sent away by a shutdown, and all that were disconnected, of a page of metrics."""
    clients = re.search(r"^ringmain_push_clients (\d+)", page, re.M)
    by_code = {code: int(count) for code, count in re.findall(r'^ringmain_push_disconnects_total\{code="(\d+)"\} (\d+)', page, re.M)}
    return int(clients[1]) if clients else 0, by_code.get("3001", 0), sum(by_code.values())


def parts(samples, start, length):
    """Returns by how much a count grows in each of ten parts of a time, and afterwards."""
    def at(moment):
        return next((count for when, count in reversed(samples) if when <= moment), samples[0][1])

    bounds = [at(start + length * part / PARTS) for part in range(PARTS + 1)]
    return [after - before for before, after in itertools.pairwise(bounds)], samples[-1][1] - bounds[-1]


class Drain:
    """The time in which a Pod that ends sends its clients away."""

    def __init__(self, pod):
        counts = [(when, sent) for when, _, sent, _ in pod.samples]
        self.name = pod.name
        # The clients at the time at which the Pod was to end, and those that were disconnected since.
        before = [sample for sample in pod.samples if sample[0] <= pod.ends_at] or pod.samples[:1]
        self.clients, closed = (before[-1][1], before[-1][3]) if before else (0, 0)
        self.disconnected = pod.samples[-1][3] - closed if before else 0
        self.total = counts[-1][1] if counts else 0
        self.start = max((when for when, sent in counts if sent == 0), default=counts[0][0] if counts else 0.0)
        self.end = next((when for when, sent in counts if sent == self.total), self.start)
        self.seconds = self.end - self.start
        # The start is known as exactly as samples are close, and so some of the clients are after the last part.
        self.parts, late = parts(counts, self.start, SPREAD_S) if counts else ([0], 0)
        self.parts[-1] += late

    def check(self, name):
        """Fails if clients were cut off without a disconnect, or were not sent away evenly over the time for it."""
        found = f"{name}: {self.name} had {self.clients} clients, has disconnected {self.disconnected}, {self.total} of them by its end"
        assert self.disconnected >= LEAST_SENT * self.clients, f"{found}: the others were cut off"
        if self.total < LEAST_CLIENTS:
            return
        assert abs(self.seconds - SPREAD_S) < 1, f"{found}: sent away over {self.seconds:.1f} s, expected {SPREAD_S} s"
        share = max(self.parts) * PARTS / self.total
        assert share <= MOST_OF_SHARE, f"{found}: not sent away evenly: {self.parts}"


def most_of_share(drains, samples):
    """Returns the most clients that have connected in a tenth of the time of drains, as a multiple of their share, for overlapping drains the sum."""
    length, most = SPREAD_S / PARTS, 0.0
    for start, others in ((drain.start, drains) for drain in drains):
        counts, _ = parts(samples, start, SPREAD_S)
        for part, count in enumerate(counts):
            # A client connects again up to half a second after its end.
            until_, from_ = start + (part + 1) * length, start + part * length - 0.6
            share = sum(other.total / PARTS for other in others if other.start < until_ and from_ < other.start + SPREAD_S)
            most = max(most, count / share)
    return most


class Case:
    """Clients and publishers, and the changes under them."""

    def __init__(self, args, rig, helm, folder, pods, addresses, number):
        self.args, self.rig, self.helm, self.folder, self.pods, self.admin = args, rig, helm, folder, pods, Admin(rig)
        channels = [f"c{number}-{channel}" for channel in range(args.clients // PER_CHANNEL)]
        self.crowd = Clients(channels, args.clients)
        # Retained connections move with the gateway that they are at, new ones go to any.
        self.publishers = [Publisher(f"p{place}", [PORT], channels, len(channels), host=address, seconds=6, repeat_seconds=RESOLVED_S,
                                     per_connection=100) for place, address in enumerate(addresses)]
        self.rows = []

    def start(self):
        self.crowd.start()
        threading.Thread(target=self.crowd.watch, daemon=True).start()
        self.live()
        for publisher in self.publishers:
            publisher.start()
        self.arrived()

    def live(self):
        until("all clients are subscribed", lambda: self.crowd.live() == (self.args.clients, self.args.clients), 60)

    def arrived(self, is_end=False):
        """Waits until each client has all that is published by now."""
        self.live()
        wanted = {publisher.name_: dict(publisher.numbers) for publisher in self.publishers}
        try:
            until("all publications arrive", lambda: self.crowd.behind(wanted, is_end)[0] == 0, 30)
        except AssertionError as why:
            raise AssertionError(f"{why}: {self.crowd.behind(wanted, is_end)}") from None

    @contextlib.contextmanager
    def step(self, name):
        """A change: at its end all is as before, and it is judged."""
        began, before, errors = time.monotonic(), self.crowd.report(), errors_of(self.publishers)
        self.crowd.mark()
        yield
        self.arrived()
        # Whatever follows late is of this change.
        time.sleep(2)
        after = self.crowd.report()
        drains = [Drain(pod) for pod in list(self.pods.by_name.values()) if pod.release == "gateways" and pod.ends_at and pod.ends_at >= began]
        large = [drain for drain in drains if drain.total >= LEAST_CLIENTS]
        sent = max((max(drain.parts) * PARTS / drain.total for drain in large), default=0.0)
        back = most_of_share(large, self.crowd.samples)
        row = {"step": name, "s": round(time.monotonic() - began, 1), "connects": after["connects"] - before["connects"],
               "refused": after["refused"] - before["refused"], "unrecovered": after["unrecovered"] - before["unrecovered"],
               "clients": [drain.clients for drain in drains], "sent away by": [drain.total for drain in drains], "in s": [round(drain.seconds, 1) for drain in drains],
               "sent of share": round(sent, 2), "back of share": round(back, 2), "latest ms": after["max_ms"], "p99 ms": after.get("p99_ms"),
               "publish": dict(errors_of(self.publishers, errors))}
        self.rows.append(row)
        print(json.dumps(row), flush=True)
        assert row["unrecovered"] == 0, f"{name}: clients have not recovered: {row}, {after['closes']}"
        assert row["refused"] == 0, f"{name}: connections were refused: {row}, {after['closes']}"
        for drain in drains:
            drain.check(name)
        assert back <= MOST_OF_SHARE, f"{name}: clients do not reconnect evenly: {row}"

    def scale(self, release, replicas):
        with self.step(f"{release} scaled to {replicas}"):
            self.set_replicas(release, replicas)
            if release == "gateways":
                self.balanced()

    def set_replicas(self, release, replicas):
        self.rig.kubectl("scale", f"deployment/{release}-ringmain", "-n", NAMESPACE, f"--replicas={replicas}")
        until(f"{replicas} Pods of {release}", lambda: len(self.pods.all(release)) == len(self.pods.ready(release)) == replicas, WITHIN)

    def balanced(self):
        """Waits until each gateway has its share of the clients."""
        def are_balanced():
            counts = [pod.clients() for pod in self.pods.ready("gateways")]
            return max(counts) <= 1.25 * sum(counts) / len(counts)

        until("clients are balanced", are_balanced, 60)

    def upgrade(self, release, revision, *values):
        with self.step(f"{release} upgraded"):
            old = self.pods.all(release)
            install(self.rig, self.helm, self.folder, "upgrade", release, "--set-string", f"podAnnotations.revision={revision}", *values)
            until(f"the old Pods of {release} have ended", lambda: all(pod.is_gone for pod in old), WITHIN)

    def drain(self, node):
        """Evicts all Pods of a node, as `kubectl drain` does, and also those that the rig, which has no scheduler, binds to it meanwhile."""
        with self.step(f"{node} drained"):
            began, refused = time.monotonic(), 0
            replicas = {release: len(self.pods.ready(release)) for release in RELEASES}
            self.admin.request("PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})

            def here():
                return [pod for release in RELEASES for pod in self.pods.all(release) if pod.node == node]

            assert here(), f"no Pod at {node}"
            while here():
                assert time.monotonic() < began + 2 * WITHIN, f"{[pod.name for pod in here()]} are at {node} still"
                for pod in here():
                    if not pod.ends_at and not self.evict(pod.name):
                        refused += 1
                time.sleep(1)
            self.admin.request("PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": None}})
            until("new Pods are ready", lambda: all(len(self.pods.ready(release)) == count for release, count in replicas.items()), WITHIN)
            least = {release: min(counts[release] for when, counts in self.pods.available if when >= began) for release in RELEASES}
            print(f"evictions refused: {refused}; of {replicas} Pods at least {least} were available", flush=True)
            assert all(least[release] >= replicas[release] - 1 for release in RELEASES), f"the PodDisruptionBudget is exceeded: {least}"

    def evict(self, name):
        """Returns whether the PodDisruptionBudget permits it."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": NAMESPACE}}
        try:
            self.admin.request("POST", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/eviction", body)
            return True
        except AssertionError as error:
            if ": 429 " not in str(error):
                raise
            return False

    def finish(self):
        """Ends the publishers, and returns what the clients have seen."""
        for publisher in self.publishers:
            publisher.finish()
        self.arrived(is_end=True)
        report = self.crowd.report()
        errors = errors_of(self.publishers)
        acknowledged = sum(publisher.acknowledged for publisher in self.publishers)
        longest = max(publisher.slowest for publisher in self.publishers)
        found = f"{acknowledged} publications, acknowledged after at most {longest:.2f} s, refused: {dict(errors)}; {report['delivered']} deliveries"
        print(f"{found}; lost {report['gap_count']}, doubled {report['repeat_count']}, closes: {report['closes']}", flush=True)
        wrong = {name: report[name] for name in ("gap_count", "repeat_count", "fault_count", "missed_with_notice", "repeated_with_notice") if report[name]}
        assert not wrong, f"{wrong}; lost (channel, publisher, from, to): {report['gaps'][:3]}; doubled: {report['repeats'][:3]}; {report['faults'][:3]}"
        assert set(errors) <= RESOLVABLE, f"publishing has failed with {dict(errors)}, expected no others than {RESOLVABLE}"
        assert acknowledged > 0 and report["delivered"] >= acknowledged * PER_CHANNEL, "clients have received less than was published"

    def end(self):
        for publisher in self.publishers:
            publisher.stopping.set()
        self.crowd.end()


def scale(case):
    """Push servers 2 to 3 to 2, push gateways 2 to 4 to 2"""
    case.scale("servers", 3)
    case.scale("servers", 2)
    case.scale("gateways", 4)
    case.scale("gateways", 2)


def upgrade(case):
    """A rolling upgrade of both Deployments"""
    case.upgrade("servers", 2)
    case.upgrade("gateways", 2)


def drain(case):
    """A node is drained by evictions, with two of four push gateways and one of two push servers or more"""
    case.scale("gateways", 4)
    case.drain("rig-a")
    case.scale("gateways", 2)


def control(case):
    """Push gateways that send their clients away within a second: it is noticed"""
    case.upgrade("gateways", 3, "--set", "shutdown.spread=1")
    try:
        case.upgrade("gateways", 4, "--set", "shutdown.spread=1")
    except AssertionError as error:
        assert "sent away over" in str(error), error
    else:
        raise AssertionError("clients that are sent away within a second are not noticed")


CASES = {"scale": scale, "upgrade": upgrade, "drain": drain, "control": control}


def install(rig, helm, folder, verb, release, *more):
    name, _ = RELEASES[release]
    files = [value_sets()[name], folder / "token.yaml", folder / "common.yaml", folder / f"{release}.yaml"]
    values = [word for file in files for word in ("-f", str(file))]
    rig.run("in.sh", helm, verb, release, str(CHART), "-n", NAMESPACE, *values, *more, "--wait", "--timeout", f"{WITHIN:.0f}s")


def certificates(folder):
    """Returns the Secret of the nodes: a certificate for both directions, and the authority that has issued it."""
    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    (folder / "node.ext").write_text("subjectAltName=DNS:live.internal\nextendedKeyUsage=serverAuth,clientAuth\n")
    openssl("req", "-x509", *key, "-days", "2", "-subj", "/CN=nodes", "-keyout", "ca.key", "-out", "ca.crt")
    openssl("req", *key, "-subj", "/CN=node", "-keyout", "tls.key", "-out", "node.csr")
    openssl("x509", "-req", "-in", "node.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "node.ext", "-out", "tls.crt")
    data = {name: base64.b64encode((folder / name).read_bytes()).decode() for name in ("tls.crt", "tls.key", "ca.crt")}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "live-nodes"}, "data": data}


@contextlib.contextmanager
def redis(folder, password):
    """A redis-server that Pods reach at the rig's own address."""
    (folder / "redis").mkdir()
    host, port = REDIS
    command = ["redis-server", "--bind", host, "--port", str(port), "--requirepass", password, "--save", "", "--appendonly", "yes"]
    with (folder / "redis.log").open("w") as log:
        child = subprocess.Popen([*command, "--dir", str(folder / "redis")], stdout=log, stderr=log)

    def accepts():
        with contextlib.suppress(OSError), socket.create_connection(REDIS, 1):
            return True

    try:
        until("Redis", accepts)
        yield
    finally:
        child.kill()
        child.wait()


def print_logs(rig):
    found = json.loads(rig.kubectl("get", "pods", "-n", NAMESPACE, "-o", "json"))["items"]
    for name in (pod["metadata"]["name"] for pod in found):
        with contextlib.suppress(RuntimeError):
            print(f"-- {name}\n{rig.kubectl('logs', '-n', NAMESPACE, name)[-3000:]}", file=sys.stderr)


def run_inside(args, helm):
    """Runs the cases, as a process of the rig."""
    rig = Inside(args.rig)
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name, text in (("token", TOKEN), ("common", COMMON), *((release, more or "{}") for release, (_, more) in RELEASES.items())):
            (folder / f"{name}.yaml").write_text(text)
        rig.kubectl("create", "namespace", NAMESPACE)
        password = "r" * 32
        stack.enter_context(redis(folder, password))
        secret = {"api-key": KEY, "token-secret": "s" * 32, "redis-password": password}
        rig.apply(certificates(folder), {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "live"}, "stringData": secret}, namespace=NAMESPACE)
        try:
            for release in RELEASES:
                install(rig, helm, folder, "install", release)
            return run_cases(args, rig, helm, folder)
        except (AssertionError, RuntimeError) as error:
            print(f"FAILED  {error}", flush=True)
            print_logs(rig)
            return 1


def run_cases(args, rig, helm, folder):
    failures = 0
    # Clients connect to the loopback interface.
    services = [Service(rig, NAMESPACE, f"{release}-ringmain", PORT, loopback=release == "gateways") for release in RELEASES]
    with contextlib.ExitStack() as stack:
        for service in services:
            stack.enter_context(service)
        pods = stack.enter_context(Pods(rig))
        until("endpoints of the Services", lambda: all(any(map(any, service.history)) for service in services))
        for number, name in enumerate(args.cases or CASES):
            print(f"-- {CASES[name].__doc__}", flush=True)
            case = Case(args, rig, helm, folder, pods, [service.address for service in services], number)
            try:
                case.start()
                CASES[name](case)
                case.finish()
                print(f"ok      {CASES[name].__doc__}", flush=True)
            except (AssertionError, RuntimeError) as error:
                failures += 1
                print(f"FAILED  {CASES[name].__doc__}: {error}", flush=True)
                print_logs(rig)
            finally:
                case.end()
    return 1 if failures else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=lambda path: str(pathlib.Path(path).resolve()), help="a binary with the features brokers and kubernetes")
    parser.add_argument("cases", nargs="*", help=", ".join(CASES))
    parser.add_argument("--clients", type=int, default=1200, help=f"a multiple of {PER_CHANNEL}")
    parser.add_argument("--helm", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.rig = os.environ.get("RINGMAIN_KUBE_RIG")
    if not args.rig or set(args.cases) - set(CASES) or args.clients % PER_CHANNEL:
        sys.exit("push: expected a binary, cases by their names, a multiple of 20 clients, and the folder of a rig in RINGMAIN_KUBE_RIG")
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
