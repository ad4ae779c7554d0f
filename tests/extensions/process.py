"""Envoy and the gateway in front of the same external processor and origin: the same requests, the same messages, the same outcome.

Each request carries the responses of the processor in a header, so that one service gives both gateways the same ones. Compared are the
messages that the processor receives, the request at the origin, and the response of the client. Features in which the two differ on purpose
(docs/how-to/ext-proc.md) are not drawn.
"""

import base64
import json
import random
import sys
from concurrent import futures

import common
import extensions_pb2 as pb
import grpc
from common import PLAN

NAME = "envoy.filters.http.ext_proc"
# Fields of messages that each gateway writes in its own way.
OWN = common.OWN_REQUEST | common.OWN_RESPONSE
PARTS = ["request_headers", "request_body", "response_headers", "response_body"]


class Processor:
    """The external processor: responds to each part with the plan of the request."""

    def __init__(self):
        self.seen = {}
        self.server = grpc.server(futures.ThreadPoolExecutor(32))
        handler = grpc.stream_stream_rpc_method_handler(
            self.process,
            request_deserializer=pb.ProcessingRequest.FromString,
            response_serializer=pb.ProcessingResponse.SerializeToString,
        )
        service = "envoy.service.ext_proc.v3.ExternalProcessor"
        self.server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {"Process": handler})])
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()

    def process(self, requests, context):
        plan = None
        for request in requests:
            part = request.WhichOneof("request")
            content = getattr(request, part)
            if part.endswith("_headers"):
                fields = {}
                for field in content.headers.headers:
                    fields.setdefault(field.key, []).append(field.raw_value.decode("latin-1"))
                if plan is None:
                    plan = common.read_plan(fields[PLAN][0])
                found = (common.values({n: v for n, v in fields.items() if n not in OWN and n != PLAN}), content.end_of_stream)
            else:
                found = content.body
            messages = self.seen.setdefault(plan["id"], [])
            # The pieces of a body are divided as they arrive.
            if messages and messages[-1][0] == part:
                messages[-1] = (part, messages[-1][1] + found)
            else:
                messages.append((part, found))
            if plan.get("abort") == part:
                context.abort(grpc.StatusCode[plan["status"]], "as planned")
            if plan.get("end") == part:
                return
            response = pb.ProcessingResponse.FromString(base64.b64decode(plan["parts"][part]))
            if part.endswith("_body") and response.WhichOneof("response") == part:
                change(getattr(response, part).response, plan["bodies"][part], content.body)
            yield response


def change(response, kind, body):
    """Adds the change of a body."""
    if kind == "upper":
        response.body_mutation.body = body.upper()
    elif kind == "set":
        response.body_mutation.body = b"another body"
    elif kind == "clear":
        response.body_mutation.clear_body = True


def envoy_config(port, admin, service, origin, mode):
    bodies = {"none": "NONE", "buffered": "BUFFERED", "streamed": "STREAMED"}
    config = {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor",
        "grpc_service": {"envoy_grpc": {"cluster_name": "service"}},
        "processing_mode": {
            "request_body_mode": bodies[mode["request_body"]],
            "response_body_mode": bodies[mode["response_body"]],
        },
        "message_timeout": "5s",
        "allow_mode_override": mode["override"],
        "failure_mode_allow": mode["allow"],
        "status_on_error": {"code": "ServiceUnavailable"},
    }
    return common.envoy_config(port, admin, service, origin, NAME, config)


def ringmain_config(port, service, origin, mode):
    processor = {
        "to": f"h2c://127.0.0.1:{service}",
        "request_body": mode["request_body"],
        "response_body": mode["response_body"],
        "message_timeout": "5s",
        "allow_mode_override": mode["override"],
        "on_failure": "allow" if mode["allow"] else "deny",
    }
    rule = {"match": "/", "to": f"http://127.0.0.1:{origin}", "policies": {"ext_proc": processor}}
    return {"listen": f"127.0.0.1:{port}", "routes": {"all": {"rules": [rule]}}}


def mutation(draw, names, made, resized):
    for name in draw.sample(names, draw.randrange(4)):
        value = draw.choice(["one", "two", "a, b"])
        # Envoy ignores `append_action`.
        option = pb.HeaderOption(header=pb.Header(key=name, raw_value=value.encode()), append_action=draw.choice([0, 2]))
        if draw.randrange(3) == 0:
            option.append_action = 0
            option.append.value = draw.randrange(2) == 0
            option.append.SetInParent()
        made.set_headers.append(option)
    made.remove_headers.extend(draw.sample(["x-old", "x-here", "authorization", "x-none"], draw.randrange(3)))
    if resized:
        # Envoy requires it if the length of a whole body changes.
        made.remove_headers.append("content-length")


def immediate(draw):
    made = pb.ProcessingResponse()
    response = made.immediate_response
    response.status.code = draw.choice([401, 403, 302, 200, 503])
    response.body = draw.choice([b"", b"no", b"<p>no</p>"])
    # Envoy removes the type of a response without a body.
    names = ["location", "x-why", *["content-type"] * bool(response.body)]
    for name in draw.sample(names, draw.randrange(3)):
        option = pb.HeaderOption(header=pb.Header(key=name, raw_value=b"v"), append_action=2)
        response.headers.set_headers.append(option)
    return made


def plan(draw, mode, has_body):
    """The responses to all parts of a request."""
    kinds = {"buffered": ["none", "upper", "set", "clear"], "streamed": ["none", "upper"], "none": ["none"]}
    bodies = {part: draw.choice(kinds[mode[part]]) for part in ("request_body", "response_body")}
    made = {"bodies": bodies, "parts": {}}
    immediate_at = draw.choice(PARTS) if draw.randrange(4) == 0 else None
    if immediate_at and mode.get(immediate_at) == "streamed":
        # The response may have started.
        immediate_at = "request_headers"
    for part in PARTS:
        response = pb.ProcessingResponse()
        found = getattr(response, part).response
        found.SetInParent()
        side = part.split("_")[0]
        names = ["x-user", "x-group", "x-old", "x-new"] if side == "request" else ["x-here", "x-added", "x-more"]
        resized = part.endswith("_headers") and bodies[f"{side}_body"] in ("set", "clear")
        if part.endswith("_headers") or mode[part] == "buffered":
            mutation(draw, names, found.header_mutation, resized)
        can_replace = part == "response_headers" or (part == "request_headers" and has_body)
        if can_replace and draw.randrange(8) == 0:
            found.status = 1
            found.body_mutation.body = b"a new body"
        if part == "request_headers" and draw.randrange(4) == 0:
            path = draw.choice(["/changed", "/changed?x=1"])
            found.header_mutation.set_headers.append(pb.HeaderOption(header=pb.Header(key=":path", raw_value=path.encode()), append_action=2))
        if part == "request_headers" and mode["override"] and draw.randrange(2):
            override = response.mode_override
            override.response_header_mode = draw.choice([0, 1, 2])
            override.request_body_mode = draw.choice([0, 2])
            override.response_body_mode = draw.choice([0, 2])
            override.SetInParent()
        if part == "response_headers" and draw.randrange(6) == 0:
            found.header_mutation.set_headers.append(pb.HeaderOption(header=pb.Header(key=":status", raw_value=b"203"), append_action=2))
        if part == immediate_at:
            response = immediate(draw)
        made["parts"][part] = base64.b64encode(response.SerializeToString()).decode()
    if draw.randrange(12) == 0:
        made["end"] = draw.choice(["request_headers", "response_headers"])
    elif draw.randrange(8) == 0:
        made["abort"] = draw.choice(["request_headers", "response_headers"])
        made["status"] = draw.choice(["UNAVAILABLE", "INTERNAL", "ABORTED"])
    return made


def request(draw):
    method = draw.choice(["GET", "POST", "PUT", "DELETE"])
    path = draw.choice(["/", "/a", "/a/b.c?d=e", "/caf%C3%A9"])
    fields = [
        field
        for field in [("x-user", "root"), ("X-Group", "a"), ("x-old", "0"), ("authorization", "Bearer t"), ("cookie", "a=b")]
        if draw.randrange(2)
    ]
    body = bytes(draw.choice(b"abc \n") for _ in range(draw.choice([1, 30, 5000]))) if method in ("POST", "PUT") else None
    return method, path, fields, body, bool(body) and draw.randrange(3) == 0


def outcome(gateway, service, origin, number, drawn, planned):
    number = f"{gateway.name}-{number}"
    text = base64.b64encode(json.dumps({"id": number, **planned}).encode()).decode()
    status, fields, body = gateway.ask(drawn, text)
    # A failure has a response of each gateway's own.
    is_own = status == 503 and "abort" in planned
    return {
        "messages": service.seen.pop(number, None),
        "origin": common.at_origin(origin.seen.pop(number, None)),
        "status": status,
        "fields": {} if is_own else common.values(fields),
        "body": b"" if is_own else body,
    }


MODES = [
    {"request_body": "none", "response_body": "none", "override": False, "allow": False},
    {"request_body": "buffered", "response_body": "none", "override": False, "allow": False},
    {"request_body": "none", "response_body": "buffered", "override": False, "allow": True},
    {"request_body": "buffered", "response_body": "buffered", "override": False, "allow": False},
    {"request_body": "streamed", "response_body": "streamed", "override": False, "allow": True},
    {"request_body": "none", "response_body": "none", "override": True, "allow": False},
]


def run(args, seed, mode):
    draw = random.Random(seed)
    service, origin, tally = Processor(), common.Origin(), common.Tally()
    pair = common.Pair(
        args,
        lambda port, admin: envoy_config(port, admin, service.port, origin.server_port, mode),
        lambda port: ringmain_config(port, service.port, origin.server_port, mode),
    )
    try:
        for number in range(args.requests):
            drawn = request(draw)
            planned = plan(draw, mode, drawn[3] is not None)
            results = [outcome(gateway, service, origin, number, drawn, planned) for gateway in pair.all]
            different = common.first_difference(results)
            if different:
                print(f"request {number} {drawn}")
                for part in PARTS:
                    print(part, pb.ProcessingResponse.FromString(base64.b64decode(planned["parts"][part])))
                print(planned["bodies"], planned.get("end"), planned.get("abort"))
                print(f"{different}:\n  envoy    {results[0][different]}\n  ringmain {results[1][different]}")
            tally.add(results[1]["origin"], "abort" in planned, bool(different))
            if tally.counts["different"] > 9:
                break
    finally:
        pair.stop()
        service.server.stop(None)
        origin.shutdown()
    print(f"external processing: {mode}: {tally}")
    failed = 0 if mode["allow"] else args.requests // 50
    return tally.failures({"reached": args.requests // 3, "denied": args.requests // 50, "failed": failed})


def main():
    args = common.arguments(100)
    failed = sum(run(args, args.seed + number, mode) for number, mode in enumerate(MODES))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
