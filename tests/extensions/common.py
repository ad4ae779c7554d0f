"""The parts of the comparisons with Envoy that all extensions share: an origin, a service, the two gateways, and the comparison itself."""

import argparse
import base64
import http.client
import http.server
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent import futures

import grpc

# Headers that each gateway writes in its own way.
OWN_REQUEST = {
    "host", "via", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-request-id", "x-envoy-expected-rq-timeout-ms",
    "x-envoy-internal", "content-length", "transfer-encoding",
}
OWN_RESPONSE = {"date", "server", "via", "x-envoy-upstream-service-time", "content-length", "transfer-encoding", "connection"}
PLAN = "x-plan"


class Service:
    """A service with one unary method, which `respond(request, context)` implements."""

    def __init__(self, service, method, request, respond):
        self.server = grpc.server(futures.ThreadPoolExecutor(16))
        handler = grpc.unary_unary_rpc_method_handler(
            respond, request_deserializer=request.FromString, response_serializer=lambda message: message.SerializeToString()
        )
        self.server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {method: handler})])
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()


def abort_as_planned(plan, context):
    if "abort" in plan:
        context.abort(grpc.StatusCode[plan["abort"]], "as planned")


class Origin(http.server.ThreadingHTTPServer):
    """The origin: records each request and responds with headers that the service may change."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen = {}
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def respond(self):
        length = self.headers.get("content-length")
        body = b""
        if length is not None:
            body = self.rfile.read(int(length))
        elif "chunked" in self.headers.get("transfer-encoding", ""):
            while size := int(self.rfile.readline().split(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        plan = read_plan(self.headers[PLAN])
        fields = {}
        for name, value in self.headers.items():
            fields.setdefault(name.lower(), []).append(value)
        self.server.seen[plan["id"]] = (self.command, self.path, fields, body)
        self.send_response(200)
        self.send_header("x-here", "origin")
        self.send_header("content-length", "2")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(b"ok")

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = respond

    def log_message(self, *_):
        pass


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def envoy_cluster(name, port, http2):
    options = {"explicit_http_config": {"http2_protocol_options" if http2 else "http_protocol_options": {}}}
    kind = "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    address = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    return {
        "name": name,
        "type": "STATIC",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {"@type": kind, **options}
        },
    }


def envoy_config(port, admin, service, origin, name, filter_config, route_config=None):
    """Envoy with one filter before the router, its service at the cluster `service`."""
    router = {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}
    route = {"match": {"prefix": "/"}, "route": {"cluster": "origin"}}
    if route_config:
        route["typed_per_filter_config"] = {name: route_config}
    manager = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [
            {"name": name, "typed_config": filter_config},
            {"name": "envoy.filters.http.router", "typed_config": router},
        ],
    }
    listener = {
        "name": "in",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        ],
    }
    return {
        "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": admin}}},
        "static_resources": {
            "listeners": [listener],
            "clusters": [envoy_cluster("service", service, True), envoy_cluster("origin", origin, False)],
        },
    }


class Gateway:
    """A gateway with its own process."""

    def __init__(self, name, command, config, port, folder):
        self.name, self.port = name, port
        path = folder / f"{name}.yaml"
        # JSON is YAML.
        path.write_text(json.dumps(config))
        log = (folder / f"{name}.log").open("wb")
        self.process = subprocess.Popen([*command, str(path)], stdout=log, stderr=log)
        end = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                if time.monotonic() > end or self.process.poll() is not None:
                    sys.exit(f"{name} does not listen: {(folder / f'{name}.log').read_text()[-2000:]}")
                time.sleep(0.05)

    def stop(self):
        self.process.terminate()
        self.process.wait()

    def ask(self, request, plan):
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        method, path, fields, body, chunked = request
        client.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in [("host", "shop.example"), (PLAN, plan), *fields]:
            client.putheader(name, value)
        if chunked:
            client.putheader("transfer-encoding", "chunked")
        elif body is not None:
            client.putheader("content-length", str(len(body)))
        client.endheaders()
        if chunked:
            for at in range(0, len(body), 7):
                piece = body[at : at + 7]
                client.send(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            client.send(b"0\r\n\r\n")
        elif body:
            client.send(body)
        response = client.getresponse()
        fields = {}
        for name, value in response.getheaders():
            if name.lower() not in OWN_RESPONSE:
                fields.setdefault(name.lower(), []).append(value)
        outcome = (response.status, fields, response.read())
        client.close()
        return outcome


def sorted_query(path):
    """A path with its parameters in order: Envoy writes those that are set in the order of their names."""
    start, _, query = path.partition("?")
    return start, sorted(query.split("&"))


def values(fields):
    """Values by name, each list in one line: a list in several lines is the same list (RFC 9110 §5.3)."""
    return {name: ",".join(all_values).replace(", ", ",") for name, all_values in fields.items()}


def at_origin(seen):
    if seen is None:
        return None
    method, path, fields, body = seen
    fields = values({name: value for name, value in fields.items() if name not in OWN_REQUEST and name != PLAN})
    return method, sorted_query(path), fields, body


class Tally:
    """The outcomes of a run. One that denies nothing, or fails nothing, compares nothing."""

    def __init__(self):
        self.counts = {"requests": 0, "different": 0, "reached": 0, "denied": 0, "failed": 0}

    def add(self, reached, planned_failure, is_different):
        kind = "reached" if reached else "failed" if planned_failure else "denied"
        for name in ["requests", kind] + ["different"] * is_different:
            self.counts[name] += 1

    def failures(self, minimum):
        """The number of reasons for which the run is a failure."""
        missing = [name for name, least in minimum.items() if self.counts[name] < least]
        for name in missing:
            print(f"expected at least {minimum[name]} requests that are {name}, found {self.counts[name]}")
        return self.counts["different"] + len(missing)

    def __str__(self):
        return ", ".join(f"{count} {name}" for name, count in self.counts.items())


def plan_text(gateway, number, message, abort):
    plan = {"id": f"{gateway.name}-{number}", "response": base64.b64encode(message.SerializeToString()).decode()}
    if abort:
        plan["abort"] = abort
    return plan["id"], base64.b64encode(json.dumps(plan).encode()).decode()


def read_plan(text):
    return json.loads(base64.b64decode(text))


class Pair:
    """Envoy and the gateway, each in a process of its own."""

    def __init__(self, args, envoy_config, ringmain_config):
        """The configurations are functions of the ports that they listen on."""
        self.folder = tempfile.TemporaryDirectory()
        folder = pathlib.Path(self.folder.name)
        self.all = []
        ports = [free_port() for _ in range(3)]
        try:
            command = [args.envoy, "--concurrency", "1", "--log-level", "warning", "--disable-hot-restart", "-c"]
            self.all.append(Gateway("envoy", command, envoy_config(ports[0], ports[1]), ports[0], folder))
            command = [args.ringmain, "run", "-q"]
            self.all.append(Gateway("ringmain", command, ringmain_config(ports[2]), ports[2], folder))
        except BaseException:
            self.stop()
            raise

    def stop(self):
        for gateway in self.all:
            gateway.stop()
        self.folder.cleanup()


def first_difference(results):
    return next((part for part in results[0] if results[0][part] != results[1][part]), None)


def arguments(requests):
    parser = argparse.ArgumentParser()
    parser.add_argument("--envoy", required=True)
    parser.add_argument("--ringmain", required=True)
    parser.add_argument("--requests", type=int, default=requests)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()
