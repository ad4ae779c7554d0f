"""Envoy and the gateway in front of the same authorization service and origin: the same requests, the same outcome.

Each request carries the response of the service in a header, so that one service gives both gateways the same decision. Compared are the
attributes that the service receives, the request at the origin, and the response of the client. Features in which the two differ on purpose
(docs/how-to/external-auth-grpc.md) are not drawn.
"""

import base64
import random
import sys

import common
import extensions_pb2 as pb
from common import PLAN

# Attributes that the gateway states and Envoy does not, or in another way: docs/how-to/external-auth-grpc.md.
OWN_ATTRIBUTES = {"x-request-id", "x-forwarded-proto", "x-forwarded-for", "x-forwarded-host", "x-envoy-internal", "transfer-encoding"}
LIMIT = 64


class Authorization(common.Service):
    """The authorization service: responds with the plan of the request."""

    def __init__(self):
        self.checks = {}
        super().__init__("envoy.service.auth.v3.Authorization", "Check", pb.CheckRequest, self.check)

    def check(self, request, context):
        plan = common.read_plan(request.attributes.request.http.headers[PLAN])
        self.checks[plan["id"]] = request.attributes
        common.abort_as_planned(plan, context)
        return pb.CheckResponse.FromString(base64.b64decode(plan["response"]))


def envoy_config(port, admin, service, origin, partial, raw):
    authz = {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthz",
        "grpc_service": {"envoy_grpc": {"cluster_name": "service"}, "timeout": "5s"},
        "transport_api_version": "V3",
        "with_request_body": {"max_request_bytes": LIMIT, "allow_partial_message": partial, "pack_as_bytes": raw},
        "status_on_error": {"code": "ServiceUnavailable"},
    }
    return common.envoy_config(port, admin, service, origin, "envoy.filters.http.ext_authz", authz)


def ringmain_config(port, service, origin, partial, raw):
    grpc_settings = {"partial_body": partial, "raw_body": raw}
    authz = {"to": f"h2c://127.0.0.1:{service}", "grpc": grpc_settings, "body": f"{LIMIT}B", "timeout": "5s"}
    rule = {"match": "/", "to": f"http://127.0.0.1:{origin}", "policies": {"authz": authz}}
    return {"listen": f"127.0.0.1:{port}", "routes": {"all": {"rules": [rule]}}}


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


def outcome(gateway, service, origin, number, drawn, message, abort):
    number, text = common.plan_text(gateway, number, message, abort)
    status, fields, body = gateway.ask(drawn, text)
    check = service.checks.pop(number, None)
    found = check and attributes(check)
    if found:
        found["headers"].pop(PLAN)
    seen = common.at_origin(origin.seen.pop(number, None))
    # The texts of local responses, and the fields that belong to these, are each gateway's own: a body that is too large, and failures
    # for which the service has no response.
    is_own = status == 413 or bool(abort) or (is_failure(message) and not message.error_response.body)
    own_fields = {"content-type", "retry-after"} if is_own or not has_text(message) else set()
    return {
        "attributes": found,
        "origin": seen,
        "status": status,
        "fields": common.values({name: found for name, found in fields.items() if name not in own_fields}),
        "body": b"" if is_own else body,
    }


def is_failure(message):
    return message.WhichOneof("http_response") == "error_response"


def has_text(message):
    which = message.WhichOneof("http_response")
    return which in ("denied_response", "error_response") and bool(getattr(message, which).body)


def run(args, partial, raw, seed):
    draw = random.Random(seed)
    service, origin, tally = Authorization(), common.Origin(), common.Tally()
    pair = common.Pair(
        args,
        lambda port, admin: envoy_config(port, admin, service.port, origin.server_port, partial, raw),
        lambda port: ringmain_config(port, service.port, origin.server_port, partial, raw),
    )
    try:
        for number in range(args.requests):
            drawn = request(draw)
            names = [name.lower() for name, _ in drawn[2]]
            message = response(draw, {name for name in names if names.count(name) == 1})
            abort = draw.choice(["UNAVAILABLE", "INTERNAL", "DEADLINE_EXCEEDED"]) if draw.randrange(20) == 0 else None
            results = [outcome(gateway, service, origin, number, drawn, message, abort) for gateway in pair.all]
            different = common.first_difference(results)
            if different:
                print(f"request {number} {drawn}\n{message}\n{different}:")
                print(f"  envoy    {results[0][different]}\n  ringmain {results[1][different]}")
            tally.add(results[1]["origin"], abort or is_failure(message), bool(different))
            if tally.counts["different"] > 9:
                break
    finally:
        pair.stop()
        service.server.stop(None)
        origin.shutdown()
    print(f"authz: partial_body: {partial}, raw_body: {raw}: {tally}")
    return tally.failures({"reached": args.requests // 3, "denied": args.requests // 10, "failed": args.requests // 20})


def main():
    args = common.arguments(250)
    failed = sum(
        run(args, partial, raw, args.seed + number)
        for number, (partial, raw) in enumerate([(False, False), (True, False), (True, True)])
    )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
