"""Watches that are cut at each event of a sequence of changes: before it, in the middle of its line, and after it.

A proxy between a replica and the API server knows lines of watches. The replica must end up with the same responses and statuses as after
the sequence without cuts.
"""

import base64
import http.client
import http.server
import json
import socket
import ssl
import subprocess
import threading
import time
import urllib.parse

from rig import presented, unverified, until

NEAR, FAR = "cuts", "cuts-other"
CORE, GATEWAY, DISCOVERY = "/api/v1", "/apis/gateway.networking.k8s.io/v1", "/apis/discovery.k8s.io/v1"
PATHS = {
    "Service": (CORE, "services"),
    "Secret": (CORE, "secrets"),
    "EndpointSlice": (DISCOVERY, "endpointslices"),
    "Gateway": (GATEWAY, "gateways"),
    "HTTPRoute": (GATEWAY, "httproutes"),
    "ReferenceGrant": (GATEWAY, "referencegrants"),
}
PER_HOP = {"connection", "transfer-encoding", "content-length", "accept-encoding", "host"}
PLACES = ["before", "within", "after"]


class Cuts:
    """Numbers the events of the namespaces of the sequence, and chooses one to cut at.

    Events are either changes by the sequence, whose number is the same in each run, or echoes: a status that the replica has written.
    """

    def __init__(self):
        self.lock = threading.Lock()
        self.generations = {}
        self.begin(None)

    def begin(self, target):
        """Starts to count; `target` is the kind and number of the event to cut at."""
        with self.lock:
            self.counts = {"change": 0, "echo": 0}
            self.numbered = set()
            self.target, self.victim = target, None
            self.left = list(PLACES) if target else []

    def place(self, line):
        """Where to cut at this event, if at all."""
        event = json.loads(line)
        meta = event["object"].get("metadata", {})
        kind, name = event["object"].get("kind"), meta.get("name", "")
        is_ours = meta.get("namespace") in (NEAR, FAR) and not name.startswith("ringmain-")
        if event["type"] not in ("ADDED", "MODIFIED", "DELETED") or kind not in PATHS or not is_ours:
            return None
        key = (kind, meta["namespace"], name)
        with self.lock:
            version = (key, meta["resourceVersion"])
            if version not in self.numbered:
                self.number(event["type"], key, version, meta.get("generation"))
            if version == self.victim and self.left:
                return self.left.pop(0)
        return None

    def number(self, how, key, version, generation):
        self.numbered.add(version)
        is_echo = how == "MODIFIED" and generation is not None and self.generations.get(key) == generation
        self.generations[key] = generation
        sort = "echo" if is_echo else "change"
        self.counts[sort] += 1
        if self.target == (sort, self.counts[sort]):
            self.victim = version


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection of the replica, and one to the API server."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self):
        self.request = self.server.secured.wrap_socket(self.request, server_side=True)
        self.upstream = http.client.HTTPSConnection("127.0.0.1", self.server.target, context=unverified())
        super().setup()

    def forward(self):
        length = int(self.headers.get("Content-Length", 0))
        headers = {name: value for name, value in self.headers.items() if name.lower() not in PER_HOP}
        self.upstream.request(self.command, self.path, self.rfile.read(length) if length else None, headers)
        response = self.upstream.getresponse()
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        is_watch = query.get("watch") in (["true"], ["1"]) and response.status == 200
        self.send_response_only(response.status)
        for name, value in response.getheaders():
            if name.lower() not in PER_HOP:
                self.send_header(name, value)
        if is_watch:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.watch(response)
        else:
            body = response.read()
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_PATCH = forward

    def watch(self, response):
        while line := response.readline():
            place, line = self.server.cuts.place(line), self.server.spoil(line)
            if place == "within":
                self.chunk(line[: len(line) // 2])
            if place != "before" and place != "within":
                self.chunk(line)
            if place:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                self.upstream.close()
                return
        self.wfile.write(b"0\r\n\r\n")

    def chunk(self, data):
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def log_message(self, *_):
        pass


class Proxy(http.server.ThreadingHTTPServer):
    """A proxy in front of the API server, with a certificate of its own authority."""

    daemon_threads = True

    def __init__(self, folder, target):
        super().__init__(("127.0.0.1", 0), Handler)
        self.target, self.port = target, self.server_port
        self.cuts = Cuts()
        self.spoiled = None
        chain, key = folder / "proxy.crt", folder / "proxy.key"
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=proxy"]
        command += ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE", "-keyout", str(key), "-out", str(chain)]
        subprocess.run(command, check=True, capture_output=True)
        self.authority = base64.b64encode(chain.read_bytes()).decode()
        self.secured = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.secured.load_cert_chain(chain, key)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def spoil(self, line):
        """Changes the object named `spoiled` so that it does not have the form of its kind."""
        event = json.loads(line)
        if not self.spoiled or event["object"].get("metadata", {}).get("name") != self.spoiled:
            return line
        event["object"]["spec"] = "spoiled"
        return json.dumps(event).encode() + b"\n"

    def handle_error(self, *_):
        """A connection that the replica has closed."""


class Sequence:
    """Changes of objects of several kinds, which end in the same state each time they are made."""

    def __init__(self, admin, address, port, secrets):
        self.admin, self.address, self.port = admin, address, port
        self.secrets, self.chains = [secret for secret, _ in secrets], [chain for _, chain in secrets]

    def path(self, kind, namespace, name=None):
        base, plural = PATHS[kind]
        return f"{base}/namespaces/{namespace}/{plural}" + (f"/{name}" if name else "")

    def put(self, kind, name, namespace=NEAR, labels=None, **fields):
        """Creates an object, or changes the one that exists."""
        path = self.path(kind, namespace, name)
        if self.admin.request("PATCH", path, fields) is None:
            version = "/".join(PATHS[kind][0].split("/")[2:])
            metadata = {"name": name, **({"labels": labels} if labels else {})}
            self.admin.request("POST", self.path(kind, namespace), {"apiVersion": version, "kind": kind, "metadata": metadata, **fields})

    def delete(self, kind, name, namespace=NEAR):
        self.admin.request("DELETE", self.path(kind, namespace, name))

    def gateway(self, name, **ports):
        listeners = [{"name": listener, "port": port, "protocol": "HTTP"} for listener, port in ports.items()]
        if name == "edge":
            listeners.append({"name": "https", "port": 18443, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "cert"}]}})
        self.put("Gateway", name, spec={"gatewayClassName": "ringmain", "listeners": listeners})

    def route(self, name, path, service="near", namespace=None, parent="edge"):
        backend = {"name": service, "port": 80, **({"namespace": namespace} if namespace else {})}
        rules = [{"matches": [{"path": {"value": path}}], "backendRefs": [backend]}]
        self.put("HTTPRoute", name, spec={"parentRefs": [{"name": parent}], "rules": rules})

    def service(self, name, namespace=NEAR, port=80):
        self.put("Service", name, namespace, spec={"ports": [{"name": "http", "port": port}]})

    def slices(self, name, service, namespace=NEAR, is_ready=True):
        endpoints = [{"addresses": [self.address], "conditions": {"ready": is_ready}}]
        body = {"addressType": "IPv4", "ports": [{"name": "http", "port": self.port}], "endpoints": endpoints}
        self.put("EndpointSlice", name, namespace, {"kubernetes.io/service-name": service}, **body)

    def secret(self, which):
        secret = self.secrets[which]
        self.put("Secret", "cert", type=secret["type"], data=secret["data"])

    def grant(self, name):
        source = [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": NEAR}]
        self.put("ReferenceGrant", name, FAR, spec={"from": source, "to": [{"group": "", "kind": "Service"}]})

    def prepare(self):
        """The objects that stay: namespaces, a Gateway and its Secret."""
        for name in (NEAR, FAR):
            self.admin.request("POST", f"{CORE}/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self.secret(0)
        self.gateway("edge", http=18080)
        is_published = lambda: self.admin.request("GET", self.path("Gateway", NEAR, "edge")).get("status", {}).get("addresses")
        self.gateway_address = until("an address", is_published)[0]["value"]
        until("the certificate", lambda: presented(self.gateway_address) == self.chains[0])

    def replay(self, run):
        """Removes what the last run has left behind, and makes all changes. The state at its end differs in the number of the run alone."""
        for name in ("one", "far", "marker"):
            self.delete("HTTPRoute", name)
        self.delete("ReferenceGrant", "again", FAR)
        for name, namespace in (("near", NEAR), ("far", FAR)):
            self.delete("Service", name, namespace)
        for name, namespace in (("near-2", NEAR), ("far-1", FAR)):
            self.delete("EndpointSlice", name, namespace)
        self.gateway("edge", http=18080, extra=18081)
        self.service("near")
        self.slices("near-1", "near", is_ready=False)
        self.route("one", "/one")
        self.route("two", "/two")
        self.secret(2)
        self.service("far", FAR, port=81)
        self.slices("far-1", "far", FAR)
        self.route("far", "/far", "far", FAR)
        self.grant("first")
        self.route("one", "/uno")
        self.slices("near-1", "near")
        self.gateway("second", http=18080)
        self.route("three", "/three", parent="second")
        self.delete("HTTPRoute", "two")
        self.gateway("edge", http=18080)
        self.delete("Secret", "cert")
        self.secret(run % 2)
        self.service("far", FAR)
        self.delete("ReferenceGrant", "first", FAR)
        self.grant("again")
        self.delete("Gateway", "second")
        self.delete("HTTPRoute", "three")
        self.slices("near-2", "near")
        self.delete("EndpointSlice", "near-1")
        self.route("far", "/lejos", "far", FAR)
        self.route("marker", f"/run-{run}")

    def state(self, run):
        """The responses to requests, whether the certificate is that of the run, and all statuses."""
        paths = ["/one", "/uno", "/two", "/three", "/far", "/lejos", f"/run-{run - 1}", f"/run-{run}"]
        responses = [self.response(18080, path) for path in paths] + [self.response(18081, "/uno")]
        return responses, presented(self.gateway_address) == self.chains[run % 2], self.statuses()

    def response(self, port, path):
        connection = http.client.HTTPConnection(self.gateway_address, port, timeout=5)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            response.read()
            return response.status
        except OSError as error:
            return type(error).__name__
        finally:
            connection.close()

    def statuses(self):
        statuses = {}
        for kind in ("Gateway", "HTTPRoute"):
            for item in self.admin.request("GET", self.path(kind, NEAR))["items"]:
                statuses[f"{kind}/{item['metadata']['name']}"] = plain(item.get("status"), item["metadata"]["generation"])
        return statuses


def plain(status, generation):
    """A status without instants, and whether it is for the object as it is."""
    match status:
        case dict():
            entries = {name: plain(value, generation) for name, value in status.items() if name != "lastTransitionTime"}
            if "observedGeneration" in entries:
                entries["observedGeneration"] = entries["observedGeneration"] == generation
            return entries
        case list():
            return [plain(value, generation) for value in status]
        case _:
            return status


WITHOUT_CUTS = [404, 200, 404, 404, 404, 200, 404, 200, "ConnectionRefusedError"]


def settled(sequence, run):
    """The state after a run without cuts, once it stays."""
    until("responses without cuts", lambda: sequence.state(run)[:2] == (WITHOUT_CUTS, True))
    last = [None]

    def stays():
        before, last[0] = last[0], sequence.state(run)
        return before == last[0]

    return until("a state that stays", stays)


def run(proxy, admin, address, port, secrets):
    """Makes all changes with a cut at each event. Returns the figures."""
    sequence = Sequence(admin, address, port, secrets)
    sequence.prepare()
    sequence.replay(0)
    settled(sequence, 0)
    proxy.cuts.begin(None)
    sequence.replay(1)
    settled(sequence, 1)
    expected = sequence.state(1)
    counts = dict(proxy.cuts.counts)
    targets = [(sort, number + 1) for sort in ("change", "echo") for number in range(counts[sort])]
    made = {"change": 0, "echo": 0}
    for run, (sort, number) in enumerate(targets, 2):
        proxy.cuts.begin((sort, number))
        sequence.replay(run)
        found = [None]

        def is_same():
            found[0] = sequence.state(run)
            return found[0] == expected

        try:
            until(f"the state without cuts, after cuts at {sort} {number}", is_same, within=10)
            # Echoes depend on how many changes one translation takes up: there may be fewer.
            if sort == "change":
                until(f"cuts at {sort} {number}", lambda: not proxy.cuts.left)
        except AssertionError as error:
            raise AssertionError(f"{error}\nexpected {expected}\nfound    {found[0]}, cuts left: {proxy.cuts.left}") from None
        made[sort] += len(PLACES) - len(proxy.cuts.left)
    assert counts["change"] >= 20 and made["echo"] > 0, (counts, made)
    return f"{counts['change']} changes and {counts['echo']} statuses, {made['change']} and {made['echo']} cuts"
