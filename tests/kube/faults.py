"""Ringmain follows a real API server that is killed, slow, or behind a link that is cut, as two replicas, while rights, Secrets and
certificates change. docs/how-to/kubernetes-operations.md has the outcome of each fault.

    RINGMAIN_KUBE_RIG=FOLDER python3 tests/kube/faults.py target/release/ringmain [CASE...]

FOLDER has `up.sh`, `in.sh` and `down.sh`: `up.sh --api-only` starts an API server without Pods, `in.sh kubectl …` talks to it. It is started
as a rig of its own and ended afterwards; it keeps its state in RIG_STATE, with the process that started all others in the file `pid`.
Gateways have addresses of 127.97.0.0/16.
"""

import base64
import contextlib
import http.server
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import cuts
from rig import Admin, Repeated, Rig, Slices, certificate, free_port, own_address, presented, status, until

HERE = pathlib.Path(__file__).resolve().parent
POOL = "127.97.0.0/16"


class Link:
    """A link to the API server that can be cut: connections are closed, and further ones refused or left in silence."""

    def __init__(self, port):
        self.target = port
        self.is_cut = False
        self.pairs = set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            if self.is_cut:
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                client.close()
                continue
            pair = (client, server)
            self.pairs.add(pair)
            for source, sink in (pair, pair[::-1]):
                threading.Thread(target=self.pump, args=(source, sink, pair), daemon=True).start()

    def pump(self, source, sink, pair):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        self.close(pair)

    def close(self, pair):
        self.pairs.discard(pair)
        for end in pair:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut_once(self):
        for pair in list(self.pairs):
            self.close(pair)

    def cut(self):
        self.is_cut = True
        self.cut_once()

    def mend(self):
        self.is_cut = False


class Backend(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = f"{self.path}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Replica:
    """A process of ringmain that follows the API server over a link, by the ServiceAccount's token."""

    def __init__(self, binary, folder, name, link, token, authority):
        self.name = name
        self.admin = free_port()
        self.log = folder / f"{name}.log"
        kubeconfig = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": f"https://127.0.0.1:{link.port}", "certificate-authority-data": authority}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "ringmain"}}],
        }
        (folder / f"{name}.kubeconfig").write_text(json.dumps(kubeconfig))
        self.config = folder / f"{name}.yaml"
        self.text = f"kubernetes: {{addresses: {{pool: {POOL}}}}}\nadmin: {{address: '127.0.0.1:{self.admin}'}}\n"
        self.config.write_text(self.text)
        env = {**os.environ, "KUBECONFIG": str(folder / f"{name}.kubeconfig"), "POD_NAME": name}
        with self.log.open("w") as log:
            self.process = subprocess.Popen([binary, "run", str(self.config)], env=env, stdout=log, stderr=log)

    def is_ready(self):
        return status(f"http://127.0.0.1:{self.admin}/readyz") == 200

    def metric(self, name):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/metrics", timeout=5) as response:
            lines = response.read().decode().splitlines()
        return float(next(line for line in lines if line.startswith(f"ringmain_kubernetes_{name} ")).split()[1])

    def end(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(how)
        self.process.wait(timeout=20)


def route(name, path):
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": name},
        "spec": {
            "parentRefs": [{"name": "edge"}],
            "rules": [{"matches": [{"path": {"value": path}}], "backendRefs": [{"name": "web", "port": 80}]}],
        },
    }


def objects(port):
    gateway = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {"name": "edge"},
        "spec": {
            "gatewayClassName": "ringmain",
            "listeners": [
                {"name": "http", "port": 18080, "protocol": "HTTP"},
                {"name": "https", "port": 18443, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "cert"}]}},
            ],
        },
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"ports": [{"name": "http", "port": 80, "targetPort": port}]},
    }
    endpoints = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": port}],
        # An API server refuses endpoints of the loopback interface.
        "endpoints": [{"addresses": [own_address()], "conditions": {"ready": True}}],
    }
    return [gateway, service, endpoints, route("first", "/first")]


def condition(entries, kind):
    return next((entry["status"] for entry in entries if entry["type"] == kind), None)


class Faults:
    def __init__(self, rig, binary, folder):
        self.rig, self.folder = rig, folder
        self.link = Link(int(rig.env["RIG_API_PORT"]))
        backend = http.server.ThreadingHTTPServer(("0.0.0.0", 0), Backend)
        threading.Thread(target=backend.serve_forever, daemon=True).start()
        for namespace in ("ringmain", "shop"):
            rig.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}, namespace="default")
        rig.kubectl("apply", "-n", "ringmain", "-f", "-", text=(HERE / "rights.yaml").read_text())
        token = rig.kubectl("create", "token", "-n", "ringmain", "ringmain", "--duration", "1h").strip()
        cluster = json.loads(rig.kubectl("config", "view", "--raw", "-o", "json"))["clusters"][0]["cluster"]
        authority = cluster.get("certificate-authority-data")
        authority = authority or base64.b64encode(pathlib.Path(cluster["certificate-authority"]).read_bytes()).decode()
        self.start = lambda name, link=self.link, authority=authority: Replica(binary, folder, name, link, token, authority)
        self.port = backend.server_port
        self.replicas = []

    def first_light(self):
        """Gateway, route, Service and endpoints become responses and statuses."""
        self.secret, self.chain = certificate(self.folder, "one")
        self.rig.apply(self.secret, *objects(self.port))
        self.replicas.append(self.start("one"))
        until("ready", self.replicas[0].is_ready)
        gateway = until("programmed", lambda: self.programmed("True"))
        self.address = gateway["status"]["addresses"][0]["value"]
        assert self.served("first") == 200
        until("status of the route", lambda: self.accepted("first"))
        assert presented(self.address) == self.chain

    def idle(self):
        """Nothing changes, and nothing is written."""
        names = [("gateway", "edge"), ("httproute", "first")]
        versions = lambda: [self.rig.get(*name)["metadata"]["resourceVersion"] for name in names]
        before = versions()
        self.rig.apply(route("marker", "/marker"))
        until("a later write", lambda: self.accepted("marker"))
        # The marker counts to the Gateway's attached routes: that alone is written.
        assert versions()[1] == before[1]

    def watch_cut(self):
        """Watches continue from where they were cut."""
        for number in range(5):
            self.link.cut_once()
            self.rig.apply(route(f"cut-{number}", f"/cut-{number}"))
            until("served after a cut", lambda: self.served(f"cut-{number}") == 200)

    def server_gone(self):
        """An API server that is gone leaves what is served; changes of that time follow once it is back."""
        self.link.cut()
        self.rig.apply(route("meanwhile", "/meanwhile"))
        self.rig.kubectl("delete", "httproute", "-n", "shop", "cut-0")
        end = time.monotonic() + 14
        while time.monotonic() < end:
            assert self.served("first") == 200 and self.served("cut-0") == 200
            assert self.replicas[0].is_ready()
            time.sleep(0.2)
        self.link.mend()
        until("a route of that time", lambda: self.served("meanwhile") == 200)
        until("a deletion of that time", lambda: self.served("cut-0") == 404)
        until("the Lease again", lambda: self.accepted("meanwhile"))

    def server_killed(self):
        """An API server that is killed and started again leaves what is served; what changes afterwards is followed and reported."""
        command = self.rig.kill_server()
        for _ in range(10):
            assert self.served("first") == 200 and self.served("cut-1") == 200
            assert self.replicas[0].is_ready()
            time.sleep(0.2)
        until("watches that fail in the metrics", lambda: self.replicas[0].metric("failing_watches") > 0)
        self.rig.start_server(command)
        until("an API server that is ready", self.rig.is_ready)
        self.rig.apply(route("after-kill", "/after-kill"))
        self.rig.kubectl("delete", "httproute", "-n", "shop", "cut-1")
        until("a route afterwards", lambda: self.served("after-kill") == 200)
        until("a deletion afterwards", lambda: self.served("cut-1") == 404)
        until("its status", lambda: self.accepted("after-kill"))
        until("no more watches that fail", lambda: self.replicas[0].metric("failing_watches") == 0)

    def certificate_replaced(self):
        """A replaced certificate is presented to new connections."""
        secret, chain = certificate(self.folder, "two")
        self.rig.apply(secret)
        until("the new certificate", lambda: presented(self.address) == chain)

    def secret_deleted(self):
        """A Secret that is gone takes its listener along, not the others; the listener is back with it."""
        self.rig.kubectl("delete", "secret", "-n", "shop", "cert")
        until("ResolvedRefs false", lambda: self.resolved("https") == "False")
        assert self.served("first") == 200
        secret, chain = certificate(self.folder, "three")
        self.rig.apply(secret)
        until("the new certificate", lambda: presented(self.address) == chain)
        until("ResolvedRefs true", lambda: self.resolved("https") == "True")

    def file_beside(self):
        """A listener of the file takes precedence over one of a Gateway, whose status reports that; without it both are as before."""
        one = self.replicas[0]
        one.config.write_text(one.text + f"listeners: {{mine: {{address: '{self.address}:18080'}}}}\nto: http://127.0.0.1:{self.port}\n")
        until("the status of the listener", lambda: self.listener("http", "Programmed") == "False")
        one.config.write_text(one.text)
        until("the status of the listener again", lambda: self.listener("http", "Programmed") == "True")
        until("served again", lambda: self.served("first") == 200)

    def foreign_service(self):
        """A Service that has the name of a Gateway's own, and another owner, stays as it is."""
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "ringmain-other"},
            "spec": {"selector": {"app": "mine"}, "ports": [{"name": "db", "port": 5432}]},
        }
        gateway = {
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "Gateway",
            "metadata": {"name": "other"},
            "spec": {"gatewayClassName": "ringmain", "listeners": [{"name": "http", "port": 18081, "protocol": "HTTP"}]},
        }
        self.rig.apply(service)
        before = self.rig.get("service", "ringmain-other")
        self.rig.apply(gateway)
        log = self.replicas[0].log
        until("the refusal in the log", lambda: "Service shop/ringmain-other is not written" in log.read_text())
        assert self.rig.get("service", "ringmain-other") == before
        event = until("an Event of the Gateway", lambda: self.event("ServiceConflict"))
        assert event["type"] == "Warning" and event["reportingController"] == "ringmain.dev/gateway", event
        uid = self.rig.get("gateway", "other")["metadata"]["uid"]
        assert event["regarding"]["kind"] == "Gateway" and event["regarding"]["uid"] == uid, event
        assert "ringmain-other" in event["note"] and "series" not in event, event

    def right_taken(self):
        """Without the right to read Secrets their certificates are presented as before, and an Event of each names the right."""
        role = self.rig.get("clusterrole", "ringmain")
        for key in ("resourceVersion", "uid", "creationTimestamp"):
            role["metadata"].pop(key)
        self.rig.apply({**role, "rules": [rule for rule in role["rules"] if "secrets" not in rule["resources"]]})
        self.link.cut_once()
        event = until("an Event of the Secret", lambda: self.event("ReadForbidden"))
        secret = self.rig.get("secret", "cert")
        assert event["regarding"]["kind"] == "Secret" and event["regarding"]["uid"] == secret["metadata"]["uid"], event
        assert "ClusterRole" in event["note"] and base64.b64decode(secret["data"]["tls.key"]).decode() not in event["note"], event
        assert presented(self.address) and self.served("first") == 200
        self.rig.apply(role)
        until("no more failing watches", lambda: self.replicas[0].metric("failing_watches") == 0)

    def rights_taken(self):
        """Without rights everything is served as before; with them again, what has changed."""
        binding = self.rig.get("clusterrolebinding", "ringmain")
        self.rig.kubectl("delete", "clusterrolebinding", "ringmain")
        self.link.cut_once()
        log = self.replicas[0].log
        until("the missing right in the log", lambda: "403 Forbidden" in log.read_text())
        until("watches that fail in the metrics", lambda: self.replicas[0].metric("failing_watches") > 0)
        self.rig.apply(route("unseen", "/unseen"))
        assert self.served("first") == 200 and self.served("unseen") == 404
        for key in ("resourceVersion", "uid", "creationTimestamp"):
            binding["metadata"].pop(key)
        self.rig.apply(binding)
        until("the route of that time", lambda: self.served("unseen") == 200)
        until("no more of them", lambda: self.replicas[0].metric("failing_watches") == 0)
        assert self.replicas[0].metric("leader") == 1 and self.replicas[0].metric("synced") == 1

    def two_replicas(self):
        """Of two replicas one writes. When it is killed, the other one does."""
        self.replicas.append(self.start("two"))
        until("the second is ready", self.replicas[1].is_ready)
        holder = self.holder()
        assert holder.startswith("one_"), holder
        self.replicas[0].end(signal.SIGKILL)
        # Both would listen on one address, which the second opens once it is free.
        self.rig.apply(route("heir", "/heir"))
        until("served by the other one", lambda: self.served("heir") == 200)
        until("written by the other one", lambda: self.accepted("heir"))
        assert self.holder().startswith("two_")

    def leader_paused(self):
        """A holder that was stopped and continued no longer writes: another one has the Lease."""
        two, three = self.replicas[1], self.start("three")
        self.replicas.append(three)
        until("the third is ready", three.is_ready)
        two.process.send_signal(signal.SIGSTOP)
        until("the Lease of the third", lambda: self.holder().startswith("three_"))
        two.process.send_signal(signal.SIGCONT)
        until("the end in the log of the second", lambda: "this replica stops writing statuses" in two.log.read_text())
        three.end()
        until("the Lease of the second again", lambda: self.holder().startswith("two_"))

    def etcd_slow(self):
        """With an etcd that runs for a tenth of each second, every response of a Gateway is as before, all changes are served and
        reported, and two replicas never write at a time."""
        two, four = self.replicas[1], self.start("four")
        self.replicas.append(four)
        until("the fourth is ready", four.is_ready)
        writers, failures, names = [], [], [f"slow-{number}" for number in range(8)]
        leads = lambda replica: replica.metric("leader") == 1
        with Slices(self.rig.part("etcd"), stopped=0.9, runs=0.1), Repeated(self.traffic(failures), self.writers(writers, two, four)):
            for name in names:
                until(f"{name} is stored", lambda: self.rig.tries_apply(route(name, f"/{name}")), within=60)
            for name in names:
                until(f"{name} is served", lambda: self.served(name) == 200, within=60)
        for name in names:
            until(f"status of {name}", lambda: self.accepted(name))
        until("one holder of the Lease", lambda: leads(two) != leads(four))
        assert not failures, failures
        assert writers and 2 not in writers, writers
        four.end()
        until("the Lease of the second", lambda: self.holder().startswith("two_"))
        until("one writer", lambda: leads(two))

    def event_repeated(self):
        """The next leader finds again what the last one has reported, and continues the series of its Event."""
        series = lambda: self.event("ServiceConflict").get("series")
        assert until("a series", series, within=90)["count"] >= 2

    def traffic(self, failures):
        def request():
            response = self.served("first")
            if response != 200:
                failures.append(response)

        return request

    def writers(self, found, *replicas):
        """Counts the replicas that write, at one instant: the first one is counted only if it also does after the others were read."""

        def count():
            first, *others = replicas
            before = first.metric("leader")
            of_others = sum(other.metric("leader") for other in others)
            found.append(of_others + min(before, first.metric("leader")))

        return count

    def watch_cut_everywhere(self):
        """A watch that is cut before, within and after any of its events loses nothing."""
        self.proxy = cuts.Proxy(self.folder, int(self.rig.env["RIG_API_PORT"]))
        replica = self.start("cuts", self.proxy, self.proxy.authority)
        self.replicas.append(replica)
        until("ready", replica.is_ready)
        secrets = [certificate(self.folder, name) for name in ("even", "odd", "other")]
        print(f"   {cuts.run(self.proxy, Admin(self.rig), own_address(), self.port, secrets)}", flush=True)

    def unreadable(self):
        """An object that cannot be read is reported by an Event, others are served; so is this one once it can be read."""
        self.proxy.spoiled = "spoiled"
        self.rig.apply(route("spoiled", "/spoiled"), route("sound", "/sound"))
        event = until("an Event of the route", lambda: self.event("Unreadable"))
        uid = self.rig.get("httproute", "spoiled")["metadata"]["uid"]
        assert event["regarding"]["kind"] == "HTTPRoute" and event["regarding"]["uid"] == uid, event
        until("the other route", lambda: self.served("sound") == 200)
        assert self.served("spoiled") == 404
        self.proxy.spoiled = None
        self.rig.apply(route("spoiled", "/mended"))
        until("the route as it can be read", lambda: self.served("mended") == 200)
        until("its status", lambda: self.accepted("spoiled"))

    def released(self):
        """A replica that is shut down releases the Lease."""
        self.replicas[1].end()
        assert self.holder() == ""

    def programmed(self, wanted):
        gateway = self.rig.get("gateway", "edge")
        conditions = gateway.get("status", {}).get("conditions", [])
        return gateway if condition(conditions, "Programmed") == wanted else None

    def resolved(self, listener):
        return self.listener(listener, "ResolvedRefs")

    def listener(self, name, kind):
        entries = self.rig.get("gateway", "edge")["status"]["listeners"]
        return condition(next(entry for entry in entries if entry["name"] == name)["conditions"], kind)

    def event(self, reason):
        """The Event of a reason in the namespace, of which there is at most one."""
        found = json.loads(self.rig.kubectl("get", "events.events.k8s.io", "-n", "shop", "-o", "json"))["items"]
        found = [event for event in found if event["reason"] == reason]
        assert len(found) <= 1, found
        return found[0] if found else None

    def accepted(self, name):
        parents = self.rig.get("httproute", name).get("status", {}).get("parents", [])
        return any(condition(parent["conditions"], "Accepted") == "True" for parent in parents)

    def served(self, name):
        return status(f"http://{self.address}:18080/{name}")

    def holder(self):
        return self.rig.get("lease", "ringmain.dev-gateway", "ringmain")["spec"].get("holderIdentity", "")


CASES = [
    "first_light", "idle", "watch_cut", "server_gone", "server_killed", "certificate_replaced", "secret_deleted",
    "foreign_service", "file_beside", "right_taken", "rights_taken", "two_replicas", "leader_paused", "etcd_slow",
    "event_repeated", "released", "watch_cut_everywhere", "unreadable",
]


def main():
    rig = os.environ.get("RINGMAIN_KUBE_RIG")
    if not rig or len(sys.argv) < 2:
        sys.exit("RINGMAIN_KUBE_RIG=FOLDER faults.py BINARY [CASE...]: the folder of a rig with up.sh, in.sh and down.sh, and a binary with the feature kubernetes")
    rig = Rig(rig)
    rig.run("up.sh", "--api-only", "--fresh")
    faults = None
    with tempfile.TemporaryDirectory() as folder:
        try:
            faults = Faults(rig, os.path.abspath(sys.argv[1]), pathlib.Path(folder))
            for case in sys.argv[2:] or CASES:
                began = time.monotonic()
                getattr(faults, case)()
                print(f"ok {case} ({time.monotonic() - began:.1f} s)", flush=True)
        except BaseException:
            for replica in faults.replicas if faults else []:
                print(f"--- {replica.name}\n{replica.log.read_text()[-4000:]}", file=sys.stderr)
            raise
        finally:
            for replica in faults.replicas if faults else []:
                replica.end(signal.SIGKILL)
            rig.run("down.sh")


if __name__ == "__main__":
    main()
