#!/usr/bin/env python3
"""Reverse proxies that clients ask by HTTP/2: Ringmain on io_uring and on epoll, HAProxy, nginx, h2o, Envoy; before an upstream of
HTTP/1.1 (h2-h1) and before one of HTTP/2 (h2-h2), both in the clear by prior knowledge.

    bench/install.sh proxy && bench/build.sh floor && cargo build --profile dist && bench/h2proxy.py --out h2proxy.md
    bench/h2proxy.py --only ours-uring haproxy --pairs 2 --secs 1
    bench/h2proxy.py --scenario h2-h2 --load 32x100

All have one route to one upstream, with connections that are kept, or shared. The proxy is alone on the first CPU; the client
(h2load, of nghttp2-client) and the upstream share the last: the floor on epoll for HTTP/1.1, Ringmain's own server on epoll for
HTTP/2, the same for all. Rounds are interleaved and ratios taken as in h2.py. The figure is CPU seconds per million requests of
the proxy's process tree; the upstream's are not in it.

nginx speaks HTTP/2 to upstreams from 1.29.4 on, h2o only over TLS: who does not is left out of h2-h2.

Exit code: 0 measured and every bar that could be judged is met, 1 a bar is missed, a run failed or h2load counted errors of ours,
2 could not be run.
"""

import functools
import os
import re
import shutil
import subprocess
import sys
import time

import comparison
import h2
import proxy
import runs
import server as servers
from comparison import Bar, Subject
from programs import program

SCENARIOS = {
    "h2-h1": "JSON through the proxy: HTTP/2 from the client, HTTP/1.1 to the upstream.",
    "h2-h2": "JSON through the proxy: HTTP/2 from the client and to the upstream.",
}
LOADS = ["32x100", "256x10"]
BASE = "haproxy"
# Below each of them; further below the one that costs the least.
BARS = [Bar(f"{scenario} {load}", "ours-uring", other, at_most)
        for scenario in SCENARIOS for load in LOADS
        for other, at_most in ((BASE, 0.80), ("envoy", 1.00), ("nginx", 1.00)) if (other, scenario) != ("nginx", "h2-h2")]
# From this one on it speaks HTTP/2 to upstreams.
NGINX = (1, 29, 4)


def subjects(ours, upstream, scenario, nginx=()):
    """Every proxy that can be compared, before `upstream`, a port: {name: Subject}. `nginx`: the version that is here."""
    is_h2 = scenario == "h2-h2"

    def peer(command, settings, **more):
        names = {"$UPSTREAM": str(upstream), **{f"${name}": value for name, value in more.items()}}
        return Subject("peer", command, {"settings": proxy.SETTINGS / settings, "names": names})

    known = {}
    for engine in ("uring", "epoll"):
        command = [ours, "run", "$SETTINGS", "--workers", "1", "--engine", engine]
        known[f"ours-{engine}"] = peer(command, "h2proxy-ringmain.yaml", PROTOCOL="http2" if is_h2 else "http1")._replace(kind="ours")
    known["haproxy"] = peer([program("haproxy"), "-db", "-f", "$SETTINGS"], "h2proxy-haproxy.cfg", PROTO="proto h2" if is_h2 else "")
    if not is_h2 or nginx >= NGINX:
        known["nginx"] = peer([program("nginx"), "-c", "$SETTINGS", "-e", "stderr"], "h2proxy-nginx.conf", VERSION="2" if is_h2 else "1.1")
    if not is_h2:
        known["h2o"] = peer([program("h2o"), "-c", "$SETTINGS"], "h2proxy-h2o.conf")
    envoy = proxy.subjects(ours, upstream)["envoy"].command
    known["envoy"] = peer(envoy, "h2proxy-envoy.yaml", PROTOCOL="http2_protocol_options" if is_h2 else "http_protocol_options")
    return known


def nginx_version(text):
    """The numbers of what `nginx -v` says; () if it says none."""
    found = re.search(r"nginx/(\d+)\.(\d+)\.(\d+)", text)
    return tuple(map(int, found.groups())) if found else ()


def nginx_here():
    """The version of the nginx that is here."""
    name = program("nginx")
    if not os.access(name, os.X_OK):
        return ()
    said = subprocess.run([name, "-v"], capture_output=True, text=True, timeout=20, check=False)
    return nginx_version(said.stdout + said.stderr)


def upstream_command(scenario, ours):
    """Who answers behind the proxies."""
    if scenario == "h2-h2":
        return [ours, "run", "--listen", "127.0.0.1:$PORT", "--workers", "1", "--engine", "epoll"]
    return [str(proxy.BIN / "floor"), "epoll-http"]


def parse_arguments():
    ap = runs.arguments(__doc__, pairs=8)
    names = subjects("", 0, "h2-h1")
    ap.add_argument("--only", nargs="+", metavar="PROXY", help="of: " + " ".join(names))
    ap.add_argument("--scenario", nargs="+", choices=list(SCENARIOS), default=list(SCENARIOS), help="(all)")
    ap.add_argument("--load", nargs="+", metavar="CxS", default=LOADS, help=f"connections x streams of each ({' '.join(LOADS)})")
    ap.add_argument("--peer-pairs", type=int, default=8, help="rounds in which peers run too (8)")
    args = runs.parse(ap)
    for load in args.load:
        if not re.fullmatch(r"[1-9]\d*x[1-9]\d*", load):
            ap.error(f"--load: expected CONNECTIONSxSTREAMS such as 32x100, found {load}")
    for name in args.only or []:
        if name not in names:
            ap.error(f"--only: expected some of {' '.join(names)}, found {name}")
    return args


def measured(scenario, args, nginx):
    """Runs all rounds of one scenario. Returns (results, runs planned, names left out)."""
    with servers.Server(upstream_command(scenario, args.ours), cpu=args.load_cpu, ready=proxy.ready) as upstream:
        known = subjects(args.ours, upstream.port, scenario, nginx)
        # Who cannot speak so is no error: it is compared where it can.
        only = [name for name in args.only if name in known] if args.only else None
        if only == []:
            return {}, 0, list(args.only)
        remedies = {"ours": "cargo build --profile dist (or name it with --ours)", "peer": "bench/install.sh proxy"}
        chosen, left_out = comparison.choose("h2proxy.py", known, only, remedies)
        cells = [h2.Cell(scenario, *map(int, load.split("x"))) for load in args.load]
        results, planned = comparison.run_rounds(chosen, cells, lambda *_: True, functools.partial(h2.one_run), args)
        return results, planned, left_out


def main():
    args = parse_arguments()
    for tool in ("h2load", "curl"):
        if not shutil.which(tool):
            print(f"h2proxy.py: no {tool} here: install nghttp2-client and curl", file=sys.stderr)
            return 2
    if "h2-h1" in args.scenario and not os.access(proxy.BIN / "floor", os.X_OK):
        print("h2proxy.py: no upstream: run bench/build.sh floor", file=sys.stderr)
        return 2
    runs.take_places(args)
    nginx, results, planned, left_out = nginx_here(), {}, 0, set()
    try:
        for scenario in args.scenario:
            found, count, missing = measured(scenario, args, nginx)
            planned, left_out = planned + count, left_out | set(missing)
            for name, by_cell in found.items():
                results.setdefault(name, {}).update(by_cell)
    except servers.ServerError as e:
        print(f"h2proxy.py: could not be run: {e}", file=sys.stderr)
        return 2
    lines = [f"## HTTP/2 through reverse proxies: {args.pairs} interleaved rounds of {args.secs:g} s, proxy on CPU {args.server_cpu},"
             f" client and upstream on CPU {args.load_cpu}", "",
             f"Linux {os.uname().release}, {os.cpu_count()} CPUs, {time.strftime('%Y-%m-%d')}. {proxy.versions()}.", ""]
    for scenario in args.scenario:
        for load in args.load:
            lines += h2.table(h2.Cell(scenario, *map(int, load.split("x"))), results, SCENARIOS, BASE)
    judged, missed = h2.bars(results, BARS)
    if left_out:
        judged += [f"Not here, so not compared: {', '.join(sorted(left_out))}.", ""]
    runs.publish(lines + judged, args)
    others = [name for name in results if not name.startswith("ours-")]
    return 0 if runs.all_sound(results, planned, others) and not missed else 1


if __name__ == "__main__":
    sys.exit(main())
