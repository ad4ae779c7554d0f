"""Envoy and the gateway in front of the same rate limit service and origin: the same requests, the same descriptors, the same outcome.

The first descriptor carries the response of the service, so that one service gives both gateways the same decision. Compared are the domain
and the descriptors that the service receives, the request at the origin, and the response of the client. Features in which the two differ
on purpose (docs/how-to/rate-limit-service.md) are not drawn.
"""

import base64
import random
import sys

import common
import extensions_pb2 as pb
from common import PLAN

NAME = "envoy.filters.http.ratelimit"


class Limiter(common.Service):
    """The rate limit service: responds with the plan of the request."""

    def __init__(self):
        self.asked = {}
        super().__init__(
            "envoy.service.ratelimit.v3.RateLimitService", "ShouldRateLimit", pb.RateLimitRequest, self.should_rate_limit
        )

    def should_rate_limit(self, request, context):
        first, *others = request.descriptors
        plan = common.read_plan(first.entries[0].value)
        descriptors = [
            ([(entry.key, entry.value) for entry in found.entries], found.hits_addend.value if found.HasField("hits_addend") else None)
            for found in others
            # Envoy sends a descriptor whose entries are all absent.
            if found.entries
        ]
        self.asked[plan["id"]] = (request.domain, request.hits_addend, descriptors)
        common.abort_as_planned(plan, context)
        return pb.RateLimitResponse.FromString(base64.b64decode(plan["response"]))


def entry(draw):
    """An entry of a descriptor, for each gateway: Envoy's action, and the gateway's."""
    kind = draw.randrange(9)
    absent = draw.randrange(2) == 0
    if kind == 0:
        key, value = draw.choice([None, "site"]), draw.choice(["a", "b c"])
        action = {"descriptor_value": value, **({"descriptor_key": key} if key else {})}
        return {"generic_key": action}, {"value": value, **({"key": key} if key else {})}
    if kind in (1, 2):
        header, key = draw.choice(["x-tenant", "X-User", "x-none"]), draw.choice(["one", "two"])
        action = {"header_name": header, "descriptor_key": key, "skip_if_absent": absent}
        return {"request_headers": action}, {"by": {"header": header}, "key": key, "optional": absent}
    if kind == 3:
        return {"remote_address": {}}, {"by": "source"}
    if kind == 4:
        v4, v6 = draw.choice([8, 24, 32, 20]), draw.choice([0, 48, 64, 128])
        action = {"v4_prefix_mask_len": v4, "v6_prefix_mask_len": v6}
        # The lengths of whole addresses are the default of the gateway, and then the value has none.
        if (v4, v6) == (32, 128):
            v4 = action["v4_prefix_mask_len"] = 31
        return {"masked_remote_address": action}, {"by": "source", "ipv4_prefix": v4, "ipv6_prefix": v6}
    if kind == 5:
        return {"request_headers": {"header_name": ":method", "descriptor_key": "m"}}, {"by": "method", "key": "m"}
    if kind == 6:
        return {"request_headers": {"header_name": ":path", "descriptor_key": "path"}}, {"by": "path"}
    name = draw.choice(["x-tenant", "x-debug"])
    theirs, ours = draw.choice(
        [
            ({"present_match": True}, {"present": True}),
            ({"string_match": {"exact": "one"}}, "one"),
            ({"string_match": {"safe_regex": {"regex": "t[a-z]+"}}}, {"regex": "t[a-z]+"}),
        ]
    )
    expect = draw.randrange(3) > 0
    action = {"descriptor_value": "yes", "expect_match": expect, "headers": [{"name": name, **theirs}]}
    mine = {"value": "yes", "headers": {name: ours}, **({} if expect else {"invert": True})}
    if draw.randrange(2):
        action["descriptor_key"] = mine["key"] = "debug"
    return {"header_value_match": action}, mine


def descriptors(draw):
    """The descriptors, for each gateway; the first one is the plan."""
    theirs = [{"actions": [{"request_headers": {"header_name": PLAN, "descriptor_key": "plan"}}]}]
    ours = [{"entries": [{"by": {"header": PLAN}, "key": "plan"}]}]
    for _ in range(draw.randrange(1, 7)):
        entries = [entry(draw) for _ in range(draw.randrange(1, 4))]
        limit, descriptor = {"actions": [found for found, _ in entries]}, {"entries": [found for _, found in entries]}
        if draw.randrange(3) == 0:
            hits = draw.choice([1, 2, 50])
            limit["hits_addend"] = {"number": hits}
            descriptor["hits"] = hits
        theirs.append(limit)
        ours.append(descriptor)
    return theirs, ours


def envoy_config(port, admin, service, origin, limits, headers, deny):
    config = {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit",
        "domain": "shop",
        "timeout": "5s",
        "failure_mode_deny": deny,
        "enable_x_ratelimit_headers": "DRAFT_VERSION_03" if headers else "OFF",
        "disable_x_envoy_ratelimited_header": True,
        "status_on_error": {"code": "ServiceUnavailable"},
        "rate_limit_service": {
            "grpc_service": {"envoy_grpc": {"cluster_name": "service"}, "timeout": "5s"},
            "transport_api_version": "V3",
        },
    }
    route = {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute",
        "rate_limits": limits,
    }
    return common.envoy_config(port, admin, service, origin, NAME, config, route)


def ringmain_config(port, service, origin, limits, headers, deny):
    limiter = {
        "to": f"h2c://127.0.0.1:{service}",
        "domain": "shop",
        "descriptors": limits,
        "timeout": "5s",
        "limit_headers": headers,
        "on_failure": "deny" if deny else "allow",
    }
    rule = {"match": "/", "to": f"http://127.0.0.1:{origin}", "policies": {"rate_limit_service": limiter}}
    listener = {"address": f"127.0.0.1:{port}", "client_address": {"trusted": "127.0.0.0/8"}}
    return {"listeners": {"in": listener}, "routes": {"all": {"rules": [rule]}}}


def header(draw, names):
    return pb.Header(key=draw.choice(names), value=draw.choice(["one", "two", "a, b"]))


def response(draw):
    """A decision of the service."""
    made = pb.RateLimitResponse(overall_code=draw.choice([1, 1, 2]))
    for _ in range(draw.randrange(4)):
        status = made.statuses.add(code=draw.choice([1, made.overall_code]), limit_remaining=draw.choice([0, 3, 7, 7]))
        if draw.randrange(4):
            status.current_limit.requests_per_unit = draw.choice([0, 1, 500])
            status.current_limit.unit = draw.choice([0, 1, 2, 3, 4])
            status.current_limit.name = draw.choice(["", "", "total"])
        if draw.randrange(4):
            status.duration_until_reset.seconds = draw.choice([0, 1, 3000])
    for _ in range(draw.randrange(3)):
        made.response_headers_to_add.append(header(draw, ["x-here", "X-Added", "x-more"]))
    for _ in range(draw.randrange(3)):
        # A header of the client is replaced: docs/how-to/rate-limit-service.md.
        made.request_headers_to_add.append(header(draw, ["x-plan-name", "X-Extra"]))
    if made.overall_code == 2:
        made.raw_body = draw.choice([b"", b"slow down", b"{}"])
        if draw.randrange(3) == 0:
            made.response_headers_to_add.append(pb.Header(key="content-type", value="application/json"))
    return made


def request(draw):
    method = draw.choice(["GET", "POST", "PUT", "DELETE"])
    path = draw.choice(["/", "/a", "/a/b.c", "/caf%C3%A9"])
    fields = [
        field
        for field in [("X-Tenant", "one"), ("x-tenant", "two"), ("x-user", "ada"), ("x-debug", "true")]
        if draw.randrange(2)
    ]
    if draw.randrange(4):
        fields.append(("x-forwarded-for", draw.choice(["192.0.2.7", "10.1.2.3", "2001:db8:1:2:3::7"])))
    body = b"abc" * draw.randrange(5) if method in ("POST", "PUT") else None
    return method, path, fields, body, bool(body) and draw.randrange(3) == 0


def outcome(gateway, service, origin, number, drawn, message, abort):
    number, text = common.plan_text(gateway, number, message, abort)
    status, fields, body = gateway.ask(drawn, text)
    seen = common.at_origin(origin.seen.pop(number, None))
    # The text of a response without one of the service, and the fields that belong to it, are each gateway's own; so is Retry-After.
    is_own = bool(abort) or not message.raw_body
    own_fields = {"retry-after"} | ({"content-type"} if is_own else set())
    return {
        "asked": service.asked.pop(number, None),
        "origin": seen,
        "status": status,
        "fields": common.values({name: found for name, found in fields.items() if name not in own_fields}),
        "body": b"" if is_own and seen is None else body,
    }


def run(args, seed, headers, deny):
    draw = random.Random(seed)
    theirs, ours = descriptors(draw)
    service, origin, tally = Limiter(), common.Origin(), common.Tally()
    pair = common.Pair(
        args,
        lambda port, admin: envoy_config(port, admin, service.port, origin.server_port, theirs, headers, deny),
        lambda port: ringmain_config(port, service.port, origin.server_port, ours, headers, deny),
    )
    try:
        for number in range(args.requests):
            drawn, message = request(draw), response(draw)
            abort = draw.choice(["UNAVAILABLE", "INTERNAL", "DEADLINE_EXCEEDED"]) if draw.randrange(10) == 0 else None
            results = [outcome(gateway, service, origin, number, drawn, message, abort) for gateway in pair.all]
            different = common.first_difference(results)
            if different:
                print(f"request {number} {drawn}\n{message}\nabort: {abort}, {different}:")
                print(f"  envoy    {results[0][different]}\n  ringmain {results[1][different]}")
            tally.add(results[1]["origin"], abort, bool(different))
            if tally.counts["different"] > 9:
                break
    finally:
        pair.stop()
        service.server.stop(None)
        origin.shutdown()
    print(f"rate limits: seed {seed}, limit_headers: {headers}, on_failure: {'deny' if deny else 'allow'}: {tally}")
    failed = args.requests // 20 if deny else 0
    return tally.failures({"reached": args.requests // 3, "denied": args.requests // 10, "failed": failed})


def main():
    args = common.arguments(100)
    failed = sum(
        run(args, args.seed + number, headers=number % 2 == 0, deny=number % 3 > 0) for number in range(6)
    )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
