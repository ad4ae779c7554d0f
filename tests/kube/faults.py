"""Ringmain follows a real API server through a link that is cut, as two replicas, while rights, Secrets and certificates change.

    RINGMAIN_KUBE_RIG=FOLDER python3 tests/kube/faults.py target/release/ringmain

FOLDER has `up.sh`, `in.sh` and `down.sh`: `up.sh --api-only` starts an API server without Pods, `in.sh kubectl …` talks to it. It is started
as a rig of its own and ended afterwards. Gateways have addresses of 127.97.0.0/16.
"""

import base64
import contextlib
import http.server
import json
import os
import pathlib
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
NAME = "ringmain-faults"
POOL = "127.97.0.0/16"
WITHIN = 30.0


class Rig:
    """The API server, and the administrator's access to it."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.env = {**os.environ, "RIG_NAME": NAME}
        for number, port in enumerate(["RIG_API_PORT", "RIG_ETCD_PORT", "RIG_ETCD_PEER_PORT"]):
            self.env.setdefault(port, str(free_port()))

    def run(self, script, *args, text=None):
        command = [str(self.folder / script), *args]
        done = subprocess.run(command, env=self.env, input=text, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout

    def kubectl(self, *args, text=None):
        return self.run("in.sh", "kubectl", *args, text=text)

    def apply(self, *objects, namespace="shop"):
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.kubectl("apply", "-n", namespace, "-f", "-", text=text)

    def get(self, kind, name, namespace="shop"):
        return json.loads(self.kubectl("get", kind, name, "-n", namespace, "-o", "json"))


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


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def status(url):
    """The status of a response, or the error in a word."""
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError as error:
        return type(error).__name__


def until(what, check, within=WITHIN):
    """Waits until `check` returns something true, and returns that."""
    end = time.monotonic() + within
    while True:
        found = check()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"not within {within} s: {what}")
        time.sleep(0.05)


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


def own_address():
    """An address of this host that is not of the loopback interface; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return probe.getsockname()[0]


def certificate(folder, name):
    """A Secret with a new certificate, and that certificate."""
    chain, key = folder / f"{name}.crt", folder / f"{name}.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    command += ["-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}.example", "-keyout", str(key), "-out", str(chain)]
    subprocess.run(command, check=True, capture_output=True)
    data = {"tls.crt": base64.b64encode(chain.read_bytes()).decode(), "tls.key": base64.b64encode(key.read_bytes()).decode()}
    secret = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": {"name": "cert"}, "data": data}
    return secret, ssl.PEM_cert_to_DER_cert(chain.read_text())


def presented(address):
    """The certificate that a TLS server presents; nothing if it does not."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((address, 18443), timeout=5) as plain, context.wrap_socket(plain) as secured:
            return secured.getpeercert(binary_form=True)
    except OSError:
        return None


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
        self.start = lambda name: Replica(binary, folder, name, self.link, token, authority)
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

    def accepted(self, name):
        parents = self.rig.get("httproute", name).get("status", {}).get("parents", [])
        return any(condition(parent["conditions"], "Accepted") == "True" for parent in parents)

    def served(self, name):
        return status(f"http://{self.address}:18080/{name}")

    def holder(self):
        return self.rig.get("lease", "ringmain.dev-gateway", "ringmain")["spec"].get("holderIdentity", "")


CASES = ["first_light", "idle", "watch_cut", "server_gone", "certificate_replaced", "secret_deleted", "foreign_service", "file_beside", "rights_taken", "two_replicas", "leader_paused", "released"]


def main():
    rig = os.environ.get("RINGMAIN_KUBE_RIG")
    if not rig or len(sys.argv) != 2:
        sys.exit("RINGMAIN_KUBE_RIG=FOLDER faults.py BINARY: the folder of a rig with up.sh, in.sh and down.sh, and a binary with the feature kubernetes")
    rig = Rig(rig)
    rig.run("up.sh", "--api-only", "--fresh")
    faults = None
    with tempfile.TemporaryDirectory() as folder:
        try:
            faults = Faults(rig, os.path.abspath(sys.argv[1]), pathlib.Path(folder))
            for case in CASES:
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
