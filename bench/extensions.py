#!/usr/bin/env python3
"""What each interface for extensions costs a request, beside Envoy's for the same service.

    bench/install.sh proxy && bench/build.sh client floor && cargo build --profile dist
    cargo build --profile dist --example extensions && cargo build --profile dist -p ringmain-control --example edge
    bench/extensions.py --out extensions.md

The gateway, on io_uring, forwards requests to the floor: without an extension, with a filter in the gateway's own process
(`edge` with its filter `sign`, an HMAC of each request), with authorization over HTTP and over gRPC, with a rate limit
service, and with external processing of both heads. One process (examples/extensions.rs) has all services; each admits the
request and sets a header. Envoy does the same with its filters `ext_authz`, `ratelimit` and `ext_proc`, and none.

The gateway is alone on the first CPU; client, services and upstream share the last. Rounds are interleaved as in proxy.py.
The figure is CPU of the gateway a request; `added` is that less the CPU without an extension, of the same gateway in the
same round.

Exit code: 0 measured, 1 a run failed or a client counted errors, 2 could not be run.
"""

import collections
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

import answers
import asking
import comparison
import loads
import policies
import runs
import server as servers
from comparison import Subject

BIN = servers.PEERS / "bin"
PATH = "/json"
KEY = "a key that no other program shares with this one"
NONE = "none"
KINDS = [NONE, "filter", "authz-http", "authz-grpc", "rate-limit", "ext-proc"]

Cell = collections.namedtuple("Cell", "scenario connections")


def ringmain_policies(kind, service):
    """The policies of a kind."""
    http, h2c = f"http://127.0.0.1:{service}", f"h2c://127.0.0.1:{service}"
    return {
        NONE: {},
        "filter": {"filters": [{"name": "sign", "options": {"key": KEY}}]},
        "authz-http": {"authz": {"to": http, "path": "/verify", "upstream_headers": "x-user"}},
        "authz-grpc": {"authz": {"to": h2c, "grpc": True, "upstream_headers": "x-user"}},
        "rate-limit": {"rate_limit_service": {"to": h2c, "domain": "bench", "descriptors": {"entries": {"by": "source"}}}},
        "ext-proc": {"ext_proc": {"to": h2c}},
    }[kind]


def ringmain_settings(kind, upstream, service):
    rule = {"match": "/", "to": f"http://127.0.0.1:{upstream}", "policies": ringmain_policies(kind, service)}
    return {"listen": "127.0.0.1:$PORT", "routes": {"all": {"rules": [rule]}}}


def envoy_filters(kind):
    """Envoy's filters of a kind, before its router."""
    prefix = "type.googleapis.com/envoy.extensions.filters.http"
    grpc = {"envoy_grpc": {"cluster_name": "service"}, "timeout": "1s"}
    header = {"patterns": [{"exact": "x-user"}]}
    http = {"http_service": {"server_uri": {"uri": "http://service", "cluster": "service-http", "timeout": "1s"},
                             "path_prefix": "/verify?", "authorization_response": {"allowed_upstream_headers": header}}}
    limiter = {"domain": "bench", "timeout": "1s", "rate_limit_service": {"grpc_service": grpc, "transport_api_version": "V3"}}
    found = {
        "authz-http": ("ext_authz", {"@type": f"{prefix}.ext_authz.v3.ExtAuthz", **http}),
        "authz-grpc": ("ext_authz", {"@type": f"{prefix}.ext_authz.v3.ExtAuthz", "grpc_service": grpc, "transport_api_version": "V3"}),
        "rate-limit": ("ratelimit", {"@type": f"{prefix}.ratelimit.v3.RateLimit", **limiter}),
        "ext-proc": ("ext_proc", {"@type": f"{prefix}.ext_proc.v3.ExternalProcessor", "grpc_service": {"envoy_grpc": grpc["envoy_grpc"]},
                                  "message_timeout": "1s"}),
    }.get(kind)
    return [{"name": f"envoy.filters.http.{found[0]}", "typed_config": found[1]}] if found else []


def cluster(name, port, http2=False):
    kind = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    options = {"explicit_http_config": {"http2_protocol_options" if http2 else "http_protocol_options": {}}}
    address = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    return {
        "name": name, "type": "STATIC", "connect_timeout": "5s",
        "circuit_breakers": {"thresholds": [{"max_connections": 10000, "max_pending_requests": 10000, "max_requests": 10000}]},
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}]},
        "typed_extension_protocol_options": {kind: {"@type": f"type.googleapis.com/{kind}", **options}},
    }


def envoy_settings(kind, upstream, service):
    """Envoy's settings of a kind; `$PORT` is a number there, too."""
    prefix = "type.googleapis.com/envoy.extensions.filters"
    route = {"cluster": "origin", "timeout": "0s"}
    if kind == "rate-limit":
        route["rate_limits"] = [{"actions": [{"remote_address": {}}]}]
    router = {"@type": f"{prefix}.http.router.v3.Router", "suppress_envoy_headers": True, "dynamic_stats": False}
    manager = {
        "@type": f"{prefix}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "clients", "codec_type": "HTTP1", "generate_request_id": False,
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": route}]}]},
        "http_filters": [*envoy_filters(kind), {"name": "envoy.filters.http.router", "typed_config": router}],
    }
    listener = {
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": "$PORT"}},
        "filter_chains": [{"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}],
    }
    clusters = [cluster("origin", upstream), cluster("service", service, http2=True), cluster("service-http", service)]
    return {"static_resources": {"listeners": [listener], "clusters": clusters}}


def written(folder, name, settings):
    """A file with settings; a port is not a text in JSON."""
    path = pathlib.Path(folder) / name
    path.write_text(json.dumps(settings, indent=1).replace('"$PORT"', "$PORT"))
    return path


def envoy_program():
    return str(next((servers.PEERS / "envoy").glob("lib/python*/site-packages/envoy/_bin/envoy"), "envoy"))


def subjects(args, upstream, service, folder):
    """Each kind of each gateway: {name: Subject}."""
    known = {}
    for kind in KINDS:
        path = written(folder, f"{kind}-ringmain.yaml", ringmain_settings(kind, upstream, service))
        command = [args.ours, "run", "$SETTINGS", "--workers", "1", "--engine", "uring"]
        if kind == "filter":
            command = [args.edge, "$SETTINGS"]
        known[f"ours {kind}"] = Subject("ours", command, {"settings": path})
        if kind != "filter":
            path = written(folder, f"{kind}-envoy.yaml", envoy_settings(kind, upstream, service))
            command = [envoy_program(), "-c", "$SETTINGS", "--concurrency", "1", "--disable-hot-restart", "-l", "error"]
            known[f"envoy {kind}"] = Subject("peer", command, {"settings": path})
    return known


def ready(port):
    """Whether a gateway answers: its service may not be connected to yet."""
    try:
        return asking.ask(port, "GET", PATH, "localhost", []).status == 200
    except asking.Broken:
        return False


def check(server):
    """Raises ServerError unless the upstream's answer arrives."""
    try:
        answers.check(server.port, PATH, date_moves=False)
    except (answers.WrongAnswer, OSError) as e:
        raise servers.ServerError(f"{e}; the server: {server.last_output()}") from e


def one_run(subject, cell, args):
    load = loads.Load(PATH, connections=cell.connections, expect=answers.HELLO)
    return runs.measure(subject.command, load, args, check=check, ready=ready, **subject.options)


def added(results, name, cell):
    """Microseconds that an extension adds to a request, round by round."""
    bare = results.get(f"{name.split()[0]} {NONE}", {}).get(cell, {})
    own = results.get(name, {}).get(cell, {})
    return [own[number]["us_per_message"] - bare[number]["us_per_message"] for number in own if number in bare]


def table(results, cell):
    """What each extension costs, beside Envoy's."""
    lines = ["| extension | Ringmain us | added (quartiles) | Envoy us | added (quartiles) | Envoy / Ringmain |", "| --- |" + " --- |" * 5]
    for kind in KINDS:
        cells, medians = [], []
        for gateway in ("ours", "envoy"):
            name = f"{gateway} {kind}"
            found = [figures["us_per_message"] for figures in results.get(name, {}).get(cell, {}).values()]
            if not found:
                cells += ["", ""]
                continue
            medians.append(statistics.median(found))
            middle, low, high = policies.spread(added(results, name, cell) or [0.0])
            cells += [f"{medians[-1]:.2f}", "" if kind == NONE else f"{middle:.2f} ({low:.2f} to {high:.2f})"]
        ratio = f"{medians[1] / medians[0]:.2f}" if len(medians) == 2 else ""
        lines.append(f"| {kind} | " + " | ".join([*cells, ratio]) + " |")
    return [*lines, ""]


def parse_arguments():
    ap = runs.arguments(__doc__, pairs=10, secs=2)
    ap.add_argument("--only", nargs="+", metavar="NAME", help="such as `ours ext-proc`")
    ap.add_argument("--conns", nargs="+", type=int, metavar="N", default=[64], help="connections (64)")
    ap.add_argument("--peer-pairs", type=int, default=10, help="rounds in which Envoy runs too (10)")
    ap.add_argument("--edge", default=str(servers.TARGET / "dist/examples/edge"), help="the example of ringmain-control")
    ap.add_argument("--services", default=str(servers.TARGET / "dist/examples/extensions"), help="the example with the services")
    args = runs.parse(ap)
    if min(args.conns) < 1 or args.peer_pairs < 1:
        ap.error("expected numbers of at least 1")
    return args


def compare(args):
    """Runs all rounds and prints the report. Returns the exit code."""
    with (
        tempfile.TemporaryDirectory(prefix="extensions-") as folder,
        servers.Server([str(BIN / "floor"), "epoll-http"], cpu=args.load_cpu, ready=policies.answers_at_all) as upstream,
        servers.Server([args.services, "127.0.0.1:$PORT"], cpu=args.load_cpu, ready=policies.answers_at_all) as service,
    ):
        remedies = {"peer": "bench/install.sh proxy", "ours": "the builds that --help names"}
        known = subjects(args, upstream.port, service.port, folder)
        chosen, _ = comparison.choose("extensions.py", known, args.only, remedies)
        cells = [Cell(f"closed-{n}", n) for n in args.conns]
        results, planned = comparison.run_rounds(chosen, cells, lambda *_: True, one_run, args)
    lines = [f"## Interfaces for extensions: {args.pairs} interleaved rounds of {args.secs:g} s, gateway on CPU {args.server_cpu}", "",
             f"Linux {os.uname().release}, {os.cpu_count()} CPUs, {policies.processor()}, {time.strftime('%Y-%m-%d')}.", ""]
    for cell in cells:
        lines += [f"### {cell.connections} connections", "", *table(results, cell)]
    runs.publish(lines + runs.doubts(results), args)
    return 0 if runs.all_sound(results, planned) else 1


def main():
    args = parse_arguments()
    for program, remedy in ((str(BIN / "floor"), "bench/build.sh floor"), (args.services, "cargo build --profile dist --example extensions")):
        if not os.access(program, os.X_OK):
            print(f"extensions.py: no program at {program}: run {remedy}", file=sys.stderr)
            return 2
    runs.require_client("extensions.py", args)
    runs.take_places(args)
    try:
        return compare(args)
    except servers.ServerError as e:
        print(f"extensions.py: could not be run: {e}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
