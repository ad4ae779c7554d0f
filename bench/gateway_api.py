#!/usr/bin/env python3
"""A gateway under changes of its objects: the questions of gateway-api-bench, asked of a real API server.

    RINGMAIN_KUBE_RIG=FOLDER bench/gateway_api.py target/release/ringmain
    RINGMAIN_KUBE_RIG=FOLDER bench/gateway_api.py --only propagation,traffic --traefik TRAEFIK target/release/ringmain

FOLDER has `up.sh`, `in.sh` and `down.sh`: a real API server without Pods, started as a rig of its own for each gateway and ended
afterwards. Each binary is one gateway; `--traefik` adds Traefik, which has no ListenerSets. Load is that of the first binary's
`bench`. The tests, in this order:

    attached      routes are created and deleted while a watch reads `attachedRoutes` of the Gateway: versions of its status, and the
                  time from the last change to the right number
    propagation   one route more, again and again, beside a growing number: time until it serves
    change        one route moves between two backends under load: failed requests
    scale         all routes exist before the gateway starts: time to ready, memory, CPU; then writes to the API while nothing changes
    traffic       requests over kept connections, closed loop: requests a second, p99, CPU for a request
    listenersets  ListenerSets with a listener each: time until the last serves, memory
    failover      endpoints are removed and added under load, one EndpointSlice of two backends: failed requests
    churn         ten changes a second for `--churn` minutes, a route or an EndpointSlice of those that exist: memory; on request only

Wall time is from the API server's response to a change; CPU and memory are those of the whole gateway's process.

Exit code: 0 measured, 1 a change did not arrive, 2 could not be run.
"""

import argparse
import concurrent.futures
import itertools
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

REPO = pathlib.Path(__file__).resolve().parent.parent
# In place of this folder, whose `http.py` has the name of a module of Python.
sys.path[0] = str(REPO / "tests" / "kube")

import http.client  # noqa: E402

from rig import Admin, Process, Rig, free_port, own_address, status, until  # noqa: E402

TESTS = ["attached", "propagation", "change", "scale", "traffic", "listenersets", "failover"]
ON_REQUEST = ["churn"]
CHURN_RATE = 10
POOL = "127.98.0.0/16"
PORT = 18090
FIRST_LISTENER_PORT = 20000
WRITERS = 6
WITHIN = 60.0
GROUP = "/apis/gateway.networking.k8s.io/v1"
SPACE = f"{GROUP}/namespaces/bench"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/bench/endpointslices"


class Ringmain:
    """A binary of this project."""

    controller = "ringmain.dev/gateway"
    has_listener_sets = True

    def __init__(self, binary, engine=None):
        self.binary, self.engine = binary, engine
        self.name = " on ".join([pathlib.Path(binary).name, *([engine] if engine else [])])

    def start(self, folder, kubeconfig):
        admin = free_port()
        config = folder / "ringmain.yaml"
        config.write_text(f"kubernetes: {{addresses: {{pool: {POOL}}}}}\nadmin: {{address: '127.0.0.1:{admin}'}}\n")
        engine = ["--engine", self.engine] if self.engine else []
        process = Process([self.binary, "run", str(config), *engine], folder / "gateway.log", {"KUBECONFIG": str(kubeconfig)})
        until("ready", lambda: status(f"http://127.0.0.1:{admin}/readyz") == 200, within=120)
        return process


class Traefik:
    """Traefik, configured as the rig's anchor is."""

    controller = "traefik.io/gateway-controller"
    has_listener_sets = False
    name = "traefik"
    address = "127.98.0.1"

    def __init__(self, binary):
        self.binary = binary

    def start(self, folder, kubeconfig):
        ping = free_port()
        options = {
            "providers.providersthrottleduration": "50ms",
            "entrypoints.web.address": f"{self.address}:{PORT}",
            "entrypoints.ping.address": f"127.0.0.1:{ping}",
            "ping.entrypoint": "ping",
            "providers.kubernetesgateway": "true",
            "providers.kubernetesgateway.statusaddress.ip": self.address,
        }
        command = [self.binary, *(f"--{name}={value}" for name, value in options.items())]
        process = Process(command, folder / "gateway.log", {"KUBECONFIG": str(kubeconfig)})
        until("ready", lambda: status(f"http://127.0.0.1:{ping}/ping") == 200, within=120)
        return process


def route(name, service, gateway="edge"):
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": name},
        "spec": {
            "parentRefs": [{"name": gateway}] if isinstance(gateway, str) else [gateway],
            "hostnames": [f"{name}.example"],
            "rules": [{"backendRefs": [{"name": service, "port": 80}]}],
        },
    }


class Cluster:
    """The objects, and the gateway that follows them."""

    def __init__(self, rig, gateway, args, folder, kubeconfig):
        self.rig, self.gateway, self.args, self.folder, self.kubeconfig = rig, gateway, args, folder, kubeconfig
        self.admin = Admin(rig)
        # Two backends, each with its port as the body of responses.
        self.backends = [Process([args.load, "run", str(self.backend(port))], folder / f"backend-{port}.log") for port in self.ports()]
        self.process = None

    def ports(self):
        self.backend_ports = [free_port(), free_port()]
        return self.backend_ports

    def backend(self, port):
        text = f"listeners: {{web: {{address: '0.0.0.0:{port}'}}}}\nroutes: {{all: {{rules: [{{respond: {{status: 200, body: '{port}'}}}}]}}}}\n"
        path = self.folder / f"backend-{port}.yaml"
        path.write_text(text)
        return path

    def post(self, path, body, admin=None):
        return (admin or self.admin).request("POST", path, body)

    def prepare(self):
        self.post("/api/v1/namespaces", {"metadata": {"name": "bench"}})
        spec = {"controllerName": self.gateway.controller}
        self.post(f"{GROUP}/gatewayclasses", {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": {"name": "bench"}, "spec": spec})
        listener = {"name": "http", "port": PORT, "protocol": "HTTP"}
        spec = {"gatewayClassName": "bench", "listeners": [listener]}
        if self.gateway.has_listener_sets:
            spec["allowedListeners"] = {"namespaces": {"from": "Same"}}
        self.post(f"{SPACE}/gateways", {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": "edge"}, "spec": spec})
        for number, port in enumerate(self.backend_ports):
            self.add_service(f"fixed{number}", [port])
        self.add_service("both", self.backend_ports)

    def add_service(self, name, ports, admin=None):
        """A Service with one EndpointSlice for each port."""
        self.post("/api/v1/namespaces/bench/services", {"metadata": {"name": name}, "spec": {"ports": [{"name": "http", "port": 80}]}}, admin)
        for number, port in enumerate(ports):
            self.add_slice(name, number, port, admin)

    def add_slice(self, name, number, port, admin=None):
        labels = {"kubernetes.io/service-name": name}
        piece = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": f"{name}-{number}", "labels": labels}}
        piece |= {"addressType": "IPv4", "ports": [{"name": "http", "port": port}], "endpoints": [{"addresses": [own_address()], "conditions": {"ready": True, "serving": True, "terminating": False}}]}
        self.post(SLICES, piece, admin)

    def start(self):
        began = time.monotonic()
        self.process = self.gateway.start(self.folder, self.kubeconfig)
        return time.monotonic() - began

    def address(self):
        gateway = self.admin.request("GET", f"{SPACE}/gateways/edge")
        addresses = gateway.get("status", {}).get("addresses", [])
        return addresses and addresses[0]["value"]

    def in_parallel(self, numbers, function):
        """Calls `function(admin, number)` for all numbers, `WRITERS` at a time."""
        numbers = list(numbers)

        def work(part):
            admin = Admin(self.rig)
            for number in part:
                function(admin, number)

        with concurrent.futures.ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(work, [numbers[first::WRITERS] for first in range(WRITERS)]))

    def add_routes(self, names):
        self.in_parallel(names, lambda admin, name: self.post(f"{SPACE}/httproutes", route(name, "fixed0"), admin))

    def delete_routes(self, names):
        self.in_parallel(names, lambda admin, name: admin.request("DELETE", f"{SPACE}/httproutes/{name}"))

    def connect(self, port=PORT, address=None):
        return http.client.HTTPConnection(address or until("an address", self.address), port, timeout=5)

    def end(self):
        for process in [self.process, *self.backends]:
            if process:
                process.end()


def ask(client, host):
    """The body of a response, or nothing if the status is another one than 200."""
    try:
        client.request("GET", "/", headers={"Host": host})
        response = client.getresponse()
        body = response.read().decode()
    except OSError:
        client.close()
        return None
    return body if response.status == 200 else None


def wait(what, check, within=WITHIN):
    """Seconds until a check holds, tried again and again."""
    began = time.monotonic()
    while not check():
        if time.monotonic() - began > within:
            sys.exit(f"not within {within} s: {what}")
    return time.monotonic() - began


class Watch:
    """The versions of one object's status, read in a thread of its own."""

    def __init__(self, rig, path):
        admin = Admin(rig)
        self.versions, self.is_over = [], False
        query = f"{path}?watch=true&fieldSelector=metadata.name%3Dedge&timeoutSeconds=600"
        admin.connection.request("GET", query, headers=admin.headers)
        self.response, self.admin = admin.connection.getresponse(), admin
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        try:
            for line in self.response:
                event = json.loads(line)
                listeners = event["object"].get("status", {}).get("listeners", [])
                self.versions.append((time.monotonic(), listeners and listeners[0].get("attachedRoutes")))
        except (OSError, http.client.HTTPException):
            # The connection was closed, or nothing changed for its timeout.
            pass

    def end(self):
        self.admin.connection.sock.shutdown(socket.SHUT_RDWR)
        self.thread.join()

    def last(self):
        return self.versions[-1][1] if self.versions else None


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Load:
    """`ringmain bench` against one host of the gateway while a block runs."""

    def __init__(self, cluster, host, *options):
        url = f"http://{until('an address', cluster.address)}:{PORT}/"
        command = [cluster.args.load, "bench", url, "-H", f"Host: {host}", "--json", "--rounds", "1", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def report(self):
        out, err = self.process.communicate(timeout=600)
        if not out.strip():
            sys.exit(f"the load generator failed: {err}")
        return json.loads(out)


def counts_of(report):
    """Requests that ended, and those without a response or with another status than 200."""
    ended = failed = 0
    for one in report["run"]["rounds"]:
        counts = one["counts"]
        lost = counts["timeouts"] + sum(counts["broken"].values()) + sum(counts["connect_errors"].values())
        ended += counts["answered"] + lost
        failed += counts["answered"] - counts["statuses"].get("200", 0) + lost
    return ended, failed


def p99_of(report):
    """The 99th percentile of the response time in milliseconds."""
    one = report["run"]["rounds"][0]
    return (one["response"] or one["service"])["p99_us"] / 1000


def describe(report):
    return "{} requests, {} failed".format(*counts_of(report))


def test_attached(cluster):
    count = min(cluster.args.routes, 1000)
    names = [f"attached{number}" for number in range(count)]
    watch = Watch(cluster.rig, f"{SPACE}/gateways")
    time_of = []
    base = watch_base(watch)
    for change, expected in ((cluster.add_routes, base + count), (cluster.delete_routes, base)):
        change(names)
        time_of.append(wait(f"attachedRoutes {expected}", lambda: pause(0.002) and watch.last() == expected))
    watch.end()
    print(f"| attached | {count} routes created, then deleted: right after | {time_of[0]:.2f}, {time_of[1]:.2f} s; {len(watch.versions)} versions of the status |", flush=True)


def pause(seconds):
    time.sleep(seconds)
    return True


def watch_base(watch):
    wait("a status of the Gateway", lambda: pause(0.01) and watch.last() is not None)
    return watch.last()


def test_propagation(cluster):
    client = cluster.connect()
    seconds = []
    batch = max(1, cluster.args.routes // cluster.args.changes)
    for step in range(cluster.args.changes):
        cluster.add_routes([f"crowd{step}x{number}" for number in range(batch - 1)])
        name = f"probe{step}"
        cluster.post(f"{SPACE}/httproutes", route(name, "fixed0"))
        seconds.append(wait(f"route {name}", lambda: ask(client, f"{name}.example")))
    half = len(seconds) // 2
    for label, part in ((f"up to {batch * half} routes", seconds[:half]), (f"{batch * half} to {batch * len(seconds)} routes", seconds[half:])):
        ms = [1000 * value for value in part]
        print(f"| propagation | {label}: a new one serves after | {statistics.median(ms):.1f} ms, p99 {percentile(ms, 0.99):.1f}, at most {max(ms):.1f} |", flush=True)


def test_change(cluster):
    client = cluster.connect()
    cluster.post(f"{SPACE}/httproutes", route("moving", "fixed0"))
    wait("route moving", lambda: ask(client, "moving.example"))
    load = Load(cluster, "moving.example", "-c", "32", "-r", str(cluster.args.rate), "-d", f"{cluster.args.seconds}s")
    end = time.monotonic() + cluster.args.seconds - 1
    changes = 0
    while time.monotonic() < end:
        target = f"fixed{(changes + 1) % 2}"
        cluster.admin.request("PATCH", f"{SPACE}/httproutes/moving", {"spec": {"rules": route("moving", target)["spec"]["rules"]}})
        expected = str(cluster.backend_ports[(changes + 1) % 2])
        wait(f"route moving at {expected}", lambda: ask(client, "moving.example") == expected)
        changes += 1
    report = load.report()
    print(f"| change | {changes} moves of a route under {cluster.args.rate} requests a second | {describe(report)} |", flush=True)


def test_scale(cluster):
    cluster.process.end()
    ready = cluster.start()
    client = cluster.connect()
    cold = wait("a route after the start", lambda: ask(client, f"probe{cluster.args.changes - 1}.example"))
    time.sleep(1)
    resident = cluster.process.resident()
    routes = len(cluster.admin.request("GET", f"{SPACE}/httproutes")["items"])
    print(f"| scale | {routes} routes at the start: ready, serves | {ready:.2f} s, {ready + cold:.2f} s; {resident:.0f} MB resident |", flush=True)

    def versions():
        found = [cluster.admin.request("GET", f"{SPACE}/gateways/edge"), *cluster.admin.request("GET", f"{SPACE}/httproutes")["items"]]
        return [item["metadata"]["resourceVersion"] for item in found]

    until("all statuses", lambda: all(item.get("status", {}).get("parents") for item in cluster.admin.request("GET", f"{SPACE}/httproutes")["items"]), within=600)
    time.sleep(2)
    before, cpu = versions(), cluster.process.cpu()
    time.sleep(cluster.args.quiet)
    cpu, changed = cluster.process.cpu() - cpu, sum(first != second for first, second in zip(before, versions()))
    print(f"| scale | nothing changes for {cluster.args.quiet} s | {changed} objects written; CPU {1000 * cpu / cluster.args.quiet:.1f} ms a second |", flush=True)


def test_traffic(cluster):
    client = cluster.connect()
    if cluster.admin.request("GET", f"{SPACE}/httproutes/traffic") is None:
        cluster.post(f"{SPACE}/httproutes", route("traffic", "both"))
    wait("route traffic", lambda: ask(client, "traffic.example"))
    cpu = cluster.process.cpu()
    report = Load(cluster, "traffic.example", "-c", "64", "-d", f"{cluster.args.seconds}s").report()
    cpu = cluster.process.cpu() - cpu
    count, failed = counts_of(report)
    print(f"| traffic | 64 connections, closed loop | {count / cluster.args.seconds:.0f} requests a second; CPU {1e6 * cpu / count:.1f} us a request; p99 {p99_of(report):.2f} ms; {failed} failed |", flush=True)


def test_listenersets(cluster):
    if not cluster.gateway.has_listener_sets:
        print("| listenersets | not supported | |", flush=True)
        return
    count = cluster.args.listener_sets
    before = cluster.process.resident()

    def add(admin, number):
        name = f"set{number}"
        listener = {"name": "http", "port": PORT, "protocol": "HTTP", "hostname": f"{name}.sets.example"}
        spec = {"parentRef": {"name": "edge"}, "listeners": [listener]}
        body = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "ListenerSet", "metadata": {"name": name}, "spec": spec}
        cluster.post(f"{SPACE}/listenersets", body, admin)
        attached = route(name, "fixed0", {"group": "gateway.networking.k8s.io", "kind": "ListenerSet", "name": name})
        attached["spec"]["hostnames"] = [f"{name}.sets.example"]
        cluster.post(f"{SPACE}/httproutes", attached, admin)

    cluster.in_parallel(range(count), add)
    client = cluster.connect()
    seconds = wait("the last ListenerSet", lambda: ask(client, f"set{count - 1}.sets.example"))
    later = []
    for number in range(count, count + 20):
        add(cluster.admin, number)
        later.append(1000 * wait(f"ListenerSet {number}", lambda: ask(client, f"set{number}.sets.example")))
    print(f"| listenersets | {count} with a route each: the last serves; one more | {seconds:.2f} s; {statistics.median(later):.1f} ms, at most {max(later):.1f}; {cluster.process.resident() - before:.0f} MB more |", flush=True)


def test_failover(cluster):
    client = cluster.connect()
    if cluster.admin.request("GET", f"{SPACE}/httproutes/failover") is None:
        cluster.post(f"{SPACE}/httproutes", route("failover", "both"))
    wait("route failover", lambda: ask(client, "failover.example"))
    load = Load(cluster, "failover.example", "-c", "32", "-r", str(cluster.args.rate), "-d", f"{cluster.args.seconds}s")
    end = time.monotonic() + cluster.args.seconds - 1
    seconds, changes = [], itertools.count()
    while time.monotonic() < end:
        number = next(changes) % 2
        other = str(cluster.backend_ports[1 - number])
        cluster.admin.request("DELETE", f"{SLICES}/both-{number}")
        seconds.append(1000 * wait(f"only {other}", lambda: all(ask(client, "failover.example") == other for _ in range(8))))
        cluster.add_slice("both", number, cluster.backend_ports[number])
        wait("both", lambda: ask(client, "failover.example") == str(cluster.backend_ports[number]))
    report = load.report()
    print(f"| failover | {len(seconds)} endpoints removed and added under {cluster.args.rate} requests a second | {describe(report)}; without it after {statistics.median(seconds):.1f} ms, eight responses included |", flush=True)


def test_churn(cluster):
    names = [f"churn{number}" for number in range(min(cluster.args.routes, 500))]
    cluster.add_routes(names)
    client = cluster.connect()
    wait("the routes", lambda: ask(client, f"{names[-1]}.example"))
    began = time.monotonic()
    end, memory, changes, late = began + 60 * cluster.args.churn, [], 0, 0
    while time.monotonic() < end:
        name = names[changes % len(names)]
        if changes % 3 == 2:
            cluster.admin.request("PATCH", f"{SLICES}/both-0", {"ports": [{"name": "http", "port": cluster.backend_ports[changes % 2]}]})
        else:
            rules = route(name, f"fixed{changes // len(names) % 2}")["spec"]["rules"]
            cluster.admin.request("PATCH", f"{SPACE}/httproutes/{name}", {"spec": {"rules": rules, "hostnames": [f"{name}.example", f"v{changes}.example"]}})
        changes += 1
        ahead = began + changes / CHURN_RATE - time.monotonic()
        late += ahead < 0
        time.sleep(max(0.0, ahead))
        if changes % (6 * CHURN_RATE) == 0:
            memory.append(cluster.process.resident())
    # The first tenth fills caches.
    warm = memory[max(1, len(memory) // 10):] or memory
    third = max(1, len(warm) // 3)
    first, last = statistics.median(warm[:third]), statistics.median(warm[-third:])
    print(f"| churn | {changes} changes in {cluster.args.churn:g} minutes, {late} of them late | {first:.1f} MB in the first third, {last:.1f} in the last ({100 * (last / first - 1):+.1f} %), {min(warm):.1f} to {max(warm):.1f} |", flush=True)


def measure(gateway, args):
    rig = Rig(args.rig)
    rig.run("up.sh", "--api-only", "--fresh")
    cluster = None
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        try:
            kubeconfig = folder / "kubeconfig"
            kubeconfig.write_text(rig.kubectl("config", "view", "--raw", "--flatten", "-o", "json"))
            cluster = Cluster(rig, gateway, args, folder, kubeconfig)
            cluster.prepare()
            cluster.start()
            print(f"\n{gateway.name}\n\n| test | what | measured |\n| --- | --- | --- |", flush=True)
            for test in TESTS + ON_REQUEST:
                if test in args.only:
                    globals()[f"test_{test}"](cluster)
        finally:
            if cluster:
                cluster.end()
            rig.run("down.sh")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries", nargs="+", help="binaries of ringmain with the feature kubernetes")
    parser.add_argument("--traefik", help="a binary of Traefik")
    parser.add_argument("--engines", help="engines that each binary is run with, separated by commas: uring,epoll")
    parser.add_argument("--only", default=",".join(TESTS), type=lambda text: text.split(","), help="tests, separated by commas")
    parser.add_argument("--routes", type=int, default=5000)
    parser.add_argument("--changes", type=int, default=100, help="routes that are timed while their number grows")
    parser.add_argument("--listener-sets", type=int, default=1000)
    parser.add_argument("--rate", type=int, default=2000, help="requests a second beside changes")
    parser.add_argument("--seconds", type=int, default=20, help="duration of load")
    parser.add_argument("--churn", type=float, default=30, help="minutes of churn")
    parser.add_argument("--quiet", type=int, default=20, help="seconds without a change")
    args = parser.parse_args()
    args.rig = os.environ.get("RINGMAIN_KUBE_RIG")
    if not args.rig:
        print("RINGMAIN_KUBE_RIG=FOLDER: the folder of a rig with up.sh, in.sh and down.sh", file=sys.stderr)
        sys.exit(2)
    unknown = [test for test in args.only if test not in TESTS + ON_REQUEST]
    if unknown:
        parser.error(f"expected tests among {', '.join(TESTS + ON_REQUEST)}, found {', '.join(unknown)}")
    args.load = args.binaries[0]
    engines = args.engines.split(",") if args.engines else [None]
    ours = [Ringmain(binary, engine) for binary in args.binaries for engine in engines]
    for gateway in [*ours, *([Traefik(args.traefik)] if args.traefik else [])]:
        measure(gateway, args)


if __name__ == "__main__":
    main()
