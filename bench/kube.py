#!/usr/bin/env python3
"""The time from a change of an object to the response that it changes, in a cluster of thousands of routes.

    RINGMAIN_KUBE_RIG=FOLDER bench/kube.py target/release/ringmain                  5,000 routes
    RINGMAIN_KUBE_RIG=FOLDER bench/kube.py --routes 500 --changes 20 BEFORE AFTER   two binaries, in turns

FOLDER has `up.sh`, `in.sh` and `down.sh`: a real API server without Pods, started as a rig of its own and ended afterwards. Each
route has a Service and an EndpointSlice of its own. Each binary starts with all objects there, then routes and EndpointSlices are
changed one at a time. The figures are wall time from the API server's response to a change until the response to a request
shows it, and until the status of a changed route reports its generation; "route from watch" is the time from the event of the watch until
every worker serves the change, as the process reports it. CPU is that of the whole process. Between turns a binary is ended, so that
only one follows the cluster.

Exit code: 0 measured, 1 a change did not arrive, 2 could not be run.
"""

import argparse
import concurrent.futures
import itertools
import os
import pathlib
import statistics
import sys
import tempfile
import threading
import time

REPO = pathlib.Path(__file__).resolve().parent.parent
# In place of this folder, whose `http.py` has the name of a module of Python.
sys.path[0] = str(REPO / "tests" / "kube")

import http.client  # noqa: E402
import http.server  # noqa: E402
import urllib.request  # noqa: E402

from rig import Admin, Process, Rig, free_port, own_address, status, until  # noqa: E402

POOL = "127.98.0.0/16"
PORT = 18090
WRITERS = 6
WITHIN = 20.0
GATEWAY_API = "/apis/gateway.networking.k8s.io/v1/namespaces/scale"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/scale/endpointslices"


class Backend(http.server.BaseHTTPRequestHandler):
    """Responds with its port."""

    protocol_version = "HTTP/1.1"
    # Head and body are one write: the second of two would wait for the acknowledgement of the first.
    wbufsize = 1 << 16

    def do_GET(self):
        body = str(self.server.server_port).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Replica(Process):
    """A process of ringmain that follows the API server as the administrator of the rig."""

    def __init__(self, binary, folder, kubeconfig):
        self.admin = free_port()
        config = folder / f"config-{self.admin}.yaml"
        config.write_text(f"kubernetes: {{addresses: {{pool: {POOL}}}}}\nadmin: {{address: '127.0.0.1:{self.admin}'}}\n")
        self.began = time.monotonic()
        super().__init__([binary, "run", str(config)], folder / f"log-{self.admin}", {"KUBECONFIG": str(kubeconfig)})
        until("ready", lambda: status(f"http://127.0.0.1:{self.admin}/readyz") == 200, within=120)
        self.cold = time.monotonic() - self.began


def route(number, path):
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": f"r{number}"},
        "spec": {
            "parentRefs": [{"name": "edge"}],
            "hostnames": [f"h{number}.example"],
            "rules": [{"matches": [{"path": {"value": path}}], "backendRefs": [{"name": f"s{number}", "port": 80}]}],
        },
    }


def fill(rig, count, port):
    """Creates the objects: `WRITERS` at a time, each over a connection of its own."""
    admin = Admin(rig)
    admin.request("POST", "/api/v1/namespaces", {"metadata": {"name": "scale"}})
    kind = {"metadata": {"name": "ringmain"}, "spec": {"controllerName": "ringmain.dev/gateway"}}
    gateway_class = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", **kind}
    admin.request("POST", "/apis/gateway.networking.k8s.io/v1/gatewayclasses", gateway_class)
    listener = {"name": "http", "port": PORT, "protocol": "HTTP"}
    spec = {"gatewayClassName": "ringmain", "listeners": [listener]}
    gateway = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": "edge"}, "spec": spec}
    admin.request("POST", f"{GATEWAY_API}/gateways", gateway)
    address = own_address()

    def write(numbers):
        admin = Admin(rig)
        for number in numbers:
            spec = {"ports": [{"name": "http", "port": 80}]}
            admin.request("POST", "/api/v1/namespaces/scale/services", {"metadata": {"name": f"s{number}"}, "spec": spec})
            labels = {"kubernetes.io/service-name": f"s{number}"}
            piece = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": f"e{number}", "labels": labels}}
            piece |= {"addressType": "IPv4", "ports": [{"name": "http", "port": port}], "endpoints": [{"addresses": [address]}]}
            admin.request("POST", SLICES, piece)
            admin.request("POST", f"{GATEWAY_API}/httproutes", route(number, "/v0"))

    with concurrent.futures.ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(write, [range(first, count, WRITERS) for first in range(WRITERS)]))


class Turn:
    """One binary that follows the cluster while objects change."""

    def __init__(self, rig, replica, count, ports, serial):
        self.admin, self.replica, self.count, self.ports, self.serial = Admin(rig), replica, count, ports, serial
        self.address = until("an address", self.find_address)
        self.client = http.client.HTTPConnection(self.address, PORT, timeout=5)

    def are_reported(self):
        routes = self.admin.request("GET", f"{GATEWAY_API}/httproutes")["items"]
        is_missing = any(not route.get("status", {}).get("parents") for route in routes)
        if is_missing:
            time.sleep(2)
        return not is_missing

    def find_address(self):
        gateway = self.admin.request("GET", f"{GATEWAY_API}/gateways/edge")
        addresses = gateway.get("status", {}).get("addresses", [])
        return addresses and addresses[0]["value"]

    def ask(self, number, path):
        """The body of a response, or nothing if the status is another one than 200."""
        self.client.request("GET", path, headers={"Host": f"h{number}.example"})
        response = self.client.getresponse()
        body = response.read().decode()
        return body if response.status == 200 else None

    def wait(self, what, check):
        """Seconds until a check holds, tried again and again."""
        began = time.monotonic()
        while not check():
            if time.monotonic() - began > WITHIN:
                sys.exit(f"not within {WITHIN} s: {what}")
        return time.monotonic() - began

    def change_route(self, number):
        path = f"/v{next(self.serial)}"
        changed = self.admin.request("PATCH", f"{GATEWAY_API}/httproutes/r{number}", {"spec": {"rules": route(number, path)["spec"]["rules"]}})
        served = self.wait(f"route {number} at {path}", lambda: self.ask(number, path))
        generation = changed["metadata"]["generation"]

        def is_reported():
            found = self.admin.request("GET", f"{GATEWAY_API}/httproutes/r{number}")
            parents = found.get("status", {}).get("parents", [])
            return parents and all(condition["observedGeneration"] == generation for condition in parents[0]["conditions"])

        return served, served + self.wait(f"the status of route {number}", is_reported)

    def change_endpoints(self, number, path):
        last = self.ask(number, path)
        port = next(port for port in self.ports if str(port) != last)
        self.admin.request("PATCH", f"{SLICES}/e{number}", {"ports": [{"name": "http", "port": port}]})
        return self.wait(f"endpoint {port} of {number}", lambda: self.ask(number, path) == str(port))

    def delays(self):
        """The seconds from events of watches to the served changes so far; `None`: the binary does not report them."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.replica.admin}/metrics", timeout=5) as page:
            lines = page.read().decode().splitlines()
        found = [line.split()[-1] for line in lines if line.startswith("ringmain_kubernetes_delays_seconds_total")]
        return float(found[0]) if found else None

    def measure_delay(self, seconds, change):
        """Makes a change and adds the time that the process reports for it."""
        before = self.delays()
        result = change()
        if before is not None:
            seconds.append(self.delays() - before)
        return result

    def measure(self, changes):
        figures = {"route served": [], "route from watch": [], "status written": [], "endpoint served": [], "endpoint from watch": []}
        # The first binary writes all statuses, at most 50 a second.
        until("the statuses of all routes", self.are_reported, within=60 + self.count / 10)
        self.change_route(0)
        cpu = self.replica.cpu()
        step = max(1, self.count // changes)
        numbers = [(step * at) % self.count for at in range(changes)]
        for number in numbers:
            served, reported = self.measure_delay(figures["route from watch"], lambda: self.change_route(number))
            figures["route served"].append(served)
            figures["status written"].append(reported)
        routes, cpu = self.replica.cpu() - cpu, self.replica.cpu()
        for number in numbers:
            path = self.admin.request("GET", f"{GATEWAY_API}/httproutes/r{number}")["spec"]["rules"][0]["matches"][0]["path"]["value"]
            served = self.measure_delay(figures["endpoint from watch"], lambda: self.change_endpoints(number, path))
            figures["endpoint served"].append(served)
        endpoints = self.replica.cpu() - cpu
        return figures, routes / changes, endpoints / changes


def report(name, figures, cpu, cold, resident):
    """A row for each figure: median, 95th and 99th percentile and greatest, in milliseconds."""
    for label, seconds in figures.items():
        ordered = sorted(1000 * second for second in seconds)
        if ordered:
            p95, p99 = (ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in (0.95, 0.99))
            print(f"| {name} | {label} | **{statistics.median(ordered):.1f}** | {p95:.1f} | {p99:.1f} | {ordered[-1]:.1f} | {len(ordered)} |")
    print(f"{name}: ready after {', '.join(f'{second:.2f}' for second in cold)} s; resident {', '.join(f'{mb:.0f}' for mb in resident)} MB; "
          f"CPU for a changed route {1000 * statistics.median(cpu[0]):.1f} ms, for changed endpoints {1000 * statistics.median(cpu[1]):.1f} ms")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries", nargs="+", help="binaries with the feature kubernetes")
    parser.add_argument("--routes", type=int, default=5000)
    parser.add_argument("--changes", type=int, default=40, help="changes of each kind in a turn")
    parser.add_argument("--turns", type=int, default=3, help="turns of each binary")
    args = parser.parse_args()
    folder = os.environ.get("RINGMAIN_KUBE_RIG")
    if not folder:
        print("RINGMAIN_KUBE_RIG=FOLDER: the folder of a rig with up.sh, in.sh and down.sh", file=sys.stderr)
        sys.exit(2)
    backends = [http.server.ThreadingHTTPServer(("0.0.0.0", 0), Backend) for _ in range(2)]
    for backend in backends:
        threading.Thread(target=backend.serve_forever, daemon=True).start()
    ports = [backend.server_port for backend in backends]
    rig = Rig(folder)
    rig.run("up.sh", "--api-only", "--fresh")
    replica = None
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        try:
            kubeconfig = place / "kubeconfig"
            kubeconfig.write_text(rig.kubectl("config", "view", "--raw", "--flatten", "-o", "json"))
            began = time.monotonic()
            fill(rig, args.routes, ports[0])
            print(f"{args.routes} routes, Services and EndpointSlices written in {time.monotonic() - began:.0f} s", flush=True)
            serial = itertools.count(1)
            found = {binary: ({}, ([], []), [], []) for binary in args.binaries}
            for turn in range(args.turns):
                at = turn % len(args.binaries)
                for binary in args.binaries[at:] + args.binaries[:at]:
                    replica = Replica(binary, place, kubeconfig)
                    figures, cpu, cold, resident = found[binary]
                    cold.append(replica.cold)
                    measured, *costs = Turn(rig, replica, args.routes, ports, serial).measure(args.changes)
                    for label, seconds in measured.items():
                        figures.setdefault(label, []).extend(seconds)
                    for list_of, cost in zip(cpu, costs):
                        list_of.append(cost)
                    resident.append(replica.resident())
                    replica.end()
            print("\n| binary | change | **median ms** | p95 | p99 | greatest | changes |\n| --- | --- | --- | --- | --- | --- | --- |")
            for binary, (figures, cpu, cold, resident) in found.items():
                report(pathlib.Path(binary).name, figures, cpu, cold, resident)
        finally:
            if replica and replica.process.poll() is None:
                replica.process.kill()
            rig.run("down.sh")


if __name__ == "__main__":
    main()
