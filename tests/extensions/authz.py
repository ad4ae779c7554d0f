"""Envoy and the gateway in front of the same authorization service and origin: the same requests, the same outcome.

Each request carries the response of the service in a header, so that one service gives both gateways the same decision. Compared are the
attributes that the service receives, the request at the origin, and the response of the client. Features in which the two differ on purpose
(docs/how-to/external-auth-grpc.md) are not drawn.
"""

import argparse
import base64
import http.client
import http.server
import json
import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent import futures

import authz_pb2 as pb
import grpc

# Headers that each gateway writes in its own way.
OWN_REQUEST = {
    "host", "via", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-request-id", "x-envoy-expected-rq-timeout-ms",
    "x-envoy-internal", "content-length", "transfer-encoding",
}
OWN_RESPONSE = {"date", "server", "via", "x-envoy-upstream-service-time", "content-length", "transfer-encoding", "connection"}
# Attributes that the gateway states and Envoy does not, or in another way: docs/how-to/external-auth-grpc.md.
OWN_ATTRIBUTES = {"x-request-id", "x-forwarded-proto", "x-forwarded-for", "x-forwarded-host", "x-envoy-internal", "transfer-encoding"}
LIMIT = 64
PLAN = "x-plan"


class Service:
    """The authorization service: responds with the plan of the request."""

    def __init__(self):
        self.checks = {}
        self.server = grpc.server(futures.ThreadPoolExecutor(16))
        handler = grpc.unary_unary_rpc_method_handler(
            self.check,
            request_deserializer=pb.CheckRequest.FromString,
            response_serializer=pb.CheckResponse.SerializeToString,
        )
        name = "envoy.service.auth.v3.Authorization"
        self.server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(name, {"Check": handler})])
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()

    def check(self, request, context):
        http_request = request.attributes.request.http
        plan = json.loads(base64.b64decode(http_request.headers[PLAN]))
        self.checks[plan["id"]] = request.attributes
        if "abort" in plan:
            context.abort(grpc.StatusCode[plan["abort"]], "as planned")
        return pb.CheckResponse.FromString(base64.b64decode(plan["response"]))


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
        plan = json.loads(base64.b64decode(self.headers[PLAN]))
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


def envoy_config(port, admin, service, origin, partial, raw):
    def cluster(name, port, http2):
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

    authz = {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthz",
        "grpc_service": {"envoy_grpc": {"cluster_name": "authz"}, "timeout": "5s"},
        "transport_api_version": "V3",
        "with_request_body": {"max_request_bytes": LIMIT, "allow_partial_message": partial, "pack_as_bytes": raw},
        "status_on_error": {"code": "ServiceUnavailable"},
    }
    router = {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}
    manager = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "route_config": {
            "virtual_hosts": [
                {"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]}
            ]
        },
        "http_filters": [
            {"name": "envoy.filters.http.ext_authz", "typed_config": authz},
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
            "clusters": [cluster("authz", service, True), cluster("origin", origin, False)],
        },
    }


def ringmain_config(port, service, origin, partial, raw):
    grpc_settings = {"partial_body": partial, "raw_body": raw}
    authz = {"to": f"h2c://127.0.0.1:{service}", "grpc": grpc_settings, "body": f"{LIMIT}B", "timeout": "5s"}
    rule = {"match": "/", "to": f"http://127.0.0.1:{origin}", "policies": {"authz": authz}}
    return {"listen": f"127.0.0.1:{port}", "routes": {"all": {"rules": [rule]}}}


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


NAMES = ["x-user", "x-group", "x-old", "authorization", "x-new"]


def option(draw, name, kinds):
    made = pb.HeaderOption(header=pb.Header(key=name, value=draw.choice(["one", "two", "a, b", "z"])))
    kind = draw.choice(kinds)
    if kind in (True, False):
        made.append.value = kind
        made.append.SetInParent()
    else:
        made.append_action = kind
    return made


def response(draw, present):
    """A decision of the service about a request with these headers."""
    kind = draw.randrange(10)
    made = pb.CheckResponse()
    if kind < 6:
        made.status.code = 0
        made.status.SetInParent()
        ok = made.ok_response
        ok.SetInParent()
        names = draw.sample(NAMES, draw.randrange(4))
        for name in names:
            # Envoy ignores `append_action` of request headers, and values that are to be appended to none; of several lines it appends to
            # the first.
            kinds = [0, False, True] if name in present else [0, False]
            ok.headers.append(option(draw, name, kinds))
        ok.headers_to_remove.extend(draw.sample(["x-old", "authorization", "x-none"], draw.randrange(3)))
        answers = draw.sample(["x-here", "x-added", "x-more"], draw.randrange(4))
        ok.response_headers_to_add.extend(option(draw, name, [True, False, 0, 1, 2, 3]) for name in answers)
        for name in draw.sample(["a", "b", "token"], draw.randrange(3)):
            ok.query_parameters_to_set.add(key=name, value=draw.choice(["1", "two", "x-y"]))
        ok.query_parameters_to_remove.extend(draw.sample(["secret", "c", "none"], draw.randrange(3)))
    elif kind < 8:
        made.status.code = 7
        denied = made.denied_response
        denied.SetInParent()
        if draw.randrange(4):
            denied.status.code = draw.choice([401, 403, 302, 404, 429, 503, 200])
        denied.body = draw.choice(["", "no", "<p>no</p>"])
        for name in draw.sample(["location", "www-authenticate", "x-why"], draw.randrange(3)):
            denied.headers.append(pb.HeaderOption(header=pb.Header(key=name, value="v"), append_action=2))
    elif kind == 8:
        made.status.code = draw.choice([3, 7, 13, 16])
    else:
        made.status.code = 13
        error = made.error_response
        error.SetInParent()
        if draw.randrange(2):
            error.status.code = draw.choice([500, 503])
        error.body = draw.choice(["", "why"])
    return made


def request(draw):
    method = draw.choice(["GET", "GET", "POST", "PUT", "DELETE"])
    query = "&".join(draw.sample(["a=1", "b=2", "c=3", "secret=x", "token=t"], draw.randrange(4)))
    path = draw.choice(["/", "/a", "/a/b.c", "/caf%C3%A9"]) + (f"?{query}" if query else "")
    fields = [
        field
        for field in [("x-user", "root"), ("X-Group", "a"), ("x-old", "0"), ("authorization", "Bearer t"), ("cookie", "a=b")]
        if draw.randrange(2)
    ]
    if draw.randrange(4) == 0:
        fields += [("x-group", "b")]
    body, chunked = None, False
    if method in ("POST", "PUT"):
        length = draw.choice([0, 1, 30, LIMIT - 1, LIMIT, LIMIT + 1, 500])
        body = bytes(draw.choice(b"abc \n") for _ in range(length))
        # At the limit Envoy cannot tell whether more follows.
        chunked = length not in (0, LIMIT) and draw.randrange(3) == 0
    return method, path, fields, body, chunked


def attributes(check):
    """The attributes that are compared."""
    found = check.request.http
    headers = {name: value for name, value in found.headers.items() if name not in OWN_ATTRIBUTES}
    return {
        "method": found.method,
        "path": found.path,
        "host": found.host,
        "scheme": found.scheme,
        "query": found.query,
        "protocol": found.protocol,
        "body": found.body.encode() + found.raw_body,
        "source": check.source.address.socket_address.address,
        "destination": check.destination.address.socket_address.address,
        "headers": headers,
    }


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
    fields = values({name: value for name, value in fields.items() if name not in OWN_REQUEST})
    return method, sorted_query(path), fields, body


def outcome(gateway, service, origin, number, drawn, message, abort=None):
    plan = {"id": f"{gateway.name}-{number}", "response": base64.b64encode(message.SerializeToString()).decode()}
    if abort:
        plan["abort"] = abort
    text = base64.b64encode(json.dumps(plan).encode()).decode()
    status, fields, body = gateway.ask(drawn, text)
    check = service.checks.pop(plan["id"], None)
    found = check and attributes(check)
    if found:
        found["headers"].pop(PLAN)
    seen = at_origin(origin.seen.pop(plan["id"], None))
    if seen:
        seen[2].pop(PLAN)
    # The text of a local response is each gateway's own.
    is_own = status == 413 or (status in (403, 503) and (abort or not has_text(message)))
    return {
        "attributes": found,
        "origin": seen,
        "status": status,
        "fields": {} if is_own else values({n: v for n, v in fields.items() if n not in ("content-type", "retry-after")}),
        "body": b"" if is_own else body,
    }


def has_text(message):
    which = message.WhichOneof("http_response")
    return which in ("denied_response", "error_response") and bool(getattr(message, which).body)


def run(args, partial, raw, seed):
    draw = random.Random(seed)
    service, origin = Service(), Origin()
    ports = [free_port() for _ in range(3)]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        envoy = Gateway(
            "envoy",
            [args.envoy, "--concurrency", "1", "--log-level", "warning", "--disable-hot-restart", "-c"],
            envoy_config(ports[0], ports[1], service.port, origin.server_port, partial, raw),
            ports[0],
            folder,
        )
        ours = None
        failed = 0
        try:
            ours = Gateway(
                "ringmain",
                [args.ringmain, "run", "-q"],
                ringmain_config(ports[2], service.port, origin.server_port, partial, raw),
                ports[2],
                folder,
            )
            for number in range(args.requests):
                drawn = request(draw)
                names = [name.lower() for name, _ in drawn[2]]
                message = response(draw, {name for name in names if names.count(name) == 1})
                abort = draw.choice(["UNAVAILABLE", "INTERNAL", "DEADLINE_EXCEEDED"]) if draw.randrange(20) == 0 else None
                results = [outcome(gateway, service, origin, number, drawn, message, abort) for gateway in (envoy, ours)]
                for part in results[0]:
                    if results[0][part] != results[1][part]:
                        failed += 1
                        print(f"request {number} {drawn}\n{message}\n{part}:\n  envoy    {results[0][part]}\n  ringmain {results[1][part]}")
                        break
                if failed > 9:
                    break
        finally:
            for gateway in (envoy, ours):
                if gateway:
                    gateway.stop()
            service.server.stop(None)
            origin.shutdown()
    print(f"partial_body: {partial}, raw_body: {raw}: {args.requests} requests, {failed} different")
    return failed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--envoy", required=True)
    parser.add_argument("--ringmain", required=True)
    parser.add_argument("--requests", type=int, default=250)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    failed = sum(
        run(args, partial, raw, args.seed + number)
        for number, (partial, raw) in enumerate([(False, False), (True, False), (True, True)])
    )
    sys.exit(1 if failed else 0)


main()
