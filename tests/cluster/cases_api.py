"""Cases of `cargo xtask suite cluster`: the server API at any node reaches the clients and channels of all, over links with mutual TLS too."""

import subprocess
import time

import rig
from crowd import Crowd
from nodes import Cluster, Node, Refused, token

NAMES = ("a", "b", "c")


def connected(crowd):
    rig.until("all clients are subscribed", lambda: crowd.live()[0] == crowd.live()[1] and all(client.id for client in crowd.clients), 20)
    return crowd


def pushes(crowd, client, kind, since=0.0):
    """Returns the pushes of a kind that a client has received, with the channel."""
    return [(channel, event[kind]) for at, index, channel, event in crowd.events(since)
            if index == client and isinstance(event, dict) and kind in event]


def data(number, text="p"):
    return {"p": text, "s": number, "t": time.monotonic()}


def delivered(crowd, channel, number, text="p"):
    rig.until(f"all clients have number {number} of {channel}", lambda: crowd.behind({text: {channel: number}})[0] == 0, 10)


def check_api(cluster, crowd):
    """Calls each method at each node, with one client at each: users u0, u1, …, who subscribe to `news`."""
    nodes = list(cluster.nodes.values())
    count = len(nodes)
    offsets = []
    for number, node in enumerate(nodes, 1):
        offsets.append(node.api("publish", channel="news", data=data(number))["offset"])
        delivered(crowd, "news", number)
    rig.expect("the offsets of publications at each node", list(range(1, count + 1)), offsets)
    for number, node in enumerate(nodes, count + 1):
        responses = node.api("broadcast", channels=["news", "other"], data=data(number))["responses"]
        rig.check(all("result" in response for response in responses), f"broadcast at {node.name}: {responses}")
        delivered(crowd, "news", number)
    key = {"channel": "news", "idempotency_key": "once"}
    once = [node.api("publish", data=data(2 * count + 1), **key)["offset"] for node in nodes]
    rig.expect("the offsets of a publication that is repeated at each node", [2 * count + 1] * count, once)
    delivered(crowd, "news", 2 * count + 1)
    histories = [node.api("history", channel="news", limit=-1) for node in nodes]
    rig.check(all(history == histories[0] for history in histories), f"histories differ: {histories}")
    rig.expect("retained publications", 2 * count + 1, len(histories[0]["publications"]))
    for node in nodes:
        members = node.api("presence", channel="news")["presence"]
        rig.expect(f"presence at {node.name}", sorted(client.id for client in crowd.clients), sorted(members))
        rig.expect(f"users at {node.name}", [f"u{number}" for number in range(count)], sorted(member["user"] for member in members.values()))
        rig.expect(f"presence_stats at {node.name}", {"num_clients": count, "num_users": count}, node.api("presence_stats", channel="news"))
    nodes[1].api("history_remove", channel="news")
    for node in nodes:
        rig.expect(f"publications after history_remove, at {node.name}", [],
                   node.api("history", channel="news", limit=-1).get("publications", []))
    whole = {"num_nodes": count, "num_missing_nodes": 0}
    for number in range(count):
        far, user = nodes[(number + 1) % count], f"u{number}"
        since = time.monotonic()

        def reaches(method, clients=1, **more):
            rig.expect(f"{method} of {user} at {far.name}", {"num_clients": clients, **whole}, far.api(method, user=user, **more))

        reaches("subscribe", channel="granted")
        rig.until("the subscribe push", lambda: pushes(crowd, number, "subscribe", since), 5)
        rig.until("the member of granted", lambda: far.api("presence_stats", channel="granted")["num_clients"] == 1, 5)
        reaches("unsubscribe", channel="granted")
        rig.until("the unsubscribe push", lambda: pushes(crowd, number, "unsubscribe", since), 5)
        rig.until("no member of granted", lambda: far.api("presence_stats", channel="granted")["num_clients"] == 0, 5)
        reaches("refresh", expire_at=int(time.time()) + 3600)
        rig.until("the refresh push", lambda: pushes(crowd, number, "refresh", since), 5)
        reaches("disconnect")
        rig.until("the disconnect", lambda: crowd.report()["closes"].get("3503", 0) == number + 1, 5)
    rig.until("presence is empty at all nodes", lambda: all(node.api("presence_stats", channel="news")["num_clients"] == 0 for node in nodes), 5)
    return {"nodes": count}


def start(case, make=Node, names=NAMES, strangers=()):
    cluster = Cluster(case, names, make=make)
    for node in cluster.nodes.values():
        node.peers += [stranger.link for stranger in strangers]
    cluster.start()
    crowd = Crowd([], [(["news"], token(f"u{number}"), node.port) for number, node in enumerate(cluster.nodes.values())], is_tracing=True)
    crowd.ports = [node.port for node in cluster.nodes.values()]
    case.stack.callback(crowd.end)
    crowd.start()
    return cluster, connected(crowd)


def api_at_any_node(case):
    """Every method of the server API at any of three nodes reaches the clients and channels of all."""
    return check_api(*start(case))


def channels_and_info(case):
    """`channels` and `info` at any node describe all nodes."""
    cluster, crowd = start(case)
    nodes = list(cluster.nodes.values())
    for node in nodes:
        channels = node.api("channels", pattern="ne*")["channels"]
        rig.expect(f"channels at {node.name}", {"news": {"num_clients": len(nodes)}}, channels)
        found = node.api("info")["nodes"]
        rig.expect(f"clients by node at {node.name}", [1] * len(nodes), [each["num_clients"] for each in found])
        rig.expect(f"uids at {node.name}", len(nodes), len({each["uid"] for each in found}))
    return {"nodes": len(nodes)}


def disconnect_while_paused(case):
    """`disconnect` while a node is suspended reports that it is missing, within the time limit of calls, and reaches the others."""
    cluster, crowd = start(case)
    a, b, c = cluster.nodes.values()
    c.suspend()
    begun = time.monotonic()
    answer = a.api("disconnect", user="u1")
    took = time.monotonic() - begun
    c.resume()
    rig.expect("disconnect", {"num_clients": 1, "num_nodes": 2, "num_missing_nodes": 1}, answer)
    rig.check(took <= 4.6, f"disconnect took {took:.1f} s")
    cluster.wait_linked()
    rig.expect("disconnect of another user when all are back", {"num_clients": 1, "num_nodes": 3, "num_missing_nodes": 0},
               b.api("disconnect", user="u2"))
    return {"missing_reported_after_s": round(took, 2)}


def ready(node):
    """Returns the status of /readyz."""
    return rig.get(node.probes, "/readyz").status


def refusal(node):
    """Returns the error of a publication that has no owner."""
    try:
        node.api("publish", 10, channel="news", data={})
    except Refused as error:
        return str(error)
    raise rig.Failed("a push gateway without a push server has published")


def roles(case):
    """A push server refuses clients and owns the channels; push gateways serve clients, report that they are not ready without a push
    server, and take nothing with them when they are killed."""
    cluster = Cluster(case, ("g", "h", "s"))
    for name, role in (("g", "push-gateway"), ("h", "push-gateway"), ("s", "push-server")):
        cluster[name].role = role
    g, h, s = cluster.nodes.values()
    g.start()
    rig.until("a push gateway without a push server is not ready", lambda: ready(g) == 503, 10)
    rig.check("503" in refusal(g), "a push gateway without a push server has refused a publication, but not with 503")
    rig.expect("readiness of a push gateway without a push server", 503, ready(g))
    h.start()
    s.start()
    cluster.wait_linked()
    rig.until("the push gateways are ready", lambda: ready(g) == ready(h) == 200, 10)
    refused = rig.get(s.port, "/connection/websocket", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13",
                      "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==")
    rig.expect("a client of a push server", 503, refused.status)
    rig.check(b"push-server" in refused.body, f"the response does not name the role: {refused.body[:200]}")
    crowd = Crowd([g.port, h.port], [(["news"], None, node.port) for node in (g, h) for _ in range(5)], is_tracing=True)
    case.stack.callback(crowd.end)
    crowd.start()
    connected(crowd)
    for number, node in enumerate((g, h, s), 1):
        node.api("publish", channel="news", data=data(number))
        delivered(crowd, "news", number)
    # As behind a load balancer that takes the dead node out.
    crowd.set_ports([h.port])
    g.kill()
    rig.until("its clients are connected to the other one", lambda: crowd.report()["by_port"].get(str(h.port), 0) == 10, 10)
    h.api("publish", channel="news", data=data(4))
    delivered(crowd, "news", 4)
    report = crowd.report()
    rig.expect("subscriptions of the killed gateway's clients (recovered, not recovered, faults)", (5, 0, 0),
               (report["recovered"], report["unrecovered"], report["fault_count"]))
    return {"recovered": report["recovered"]}


class TlsNode(Node):
    """A node with mutual TLS; `authority` signs its certificate, `trusted` those of the others."""

    authority = "ca"

    def __init__(self, case, name, **options):
        super().__init__(case, name, **options)
        self.more = ", tls: {certificate: node, authorities: nodes, server_name: push.internal}"
        self.leaf = issue(case, self.authority, f"{name}-{self.authority}")

    def certificates(self):
        return (f"certificates: {{node: {{chain: '{self.leaf}.pem', key: '{self.leaf}.key'}}}}\n"
                f"authorities: {{nodes: '{self.case.dir / self.authority}.pem'}}\n")


class ForeignNode(TlsNode):
    authority = "foreign"


def openssl(*words):
    done = subprocess.run([rig.need("openssl"), *map(str, words)], capture_output=True, text=True)
    rig.check(done.returncode == 0, f"openssl {words[0]}: {done.stderr}")


def issue(case, authority, name):
    """Makes an authority and a certificate that it signs, in files of the case; returns the path without its ending."""
    ca, leaf = case.dir / authority, case.dir / name
    if not ca.with_suffix(".pem").exists():
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", 2, "-subj", f"/CN={authority}",
                "-keyout", f"{ca}.key", "-out", f"{ca}.pem")
    extensions = case.file(f"{name}.ext", "subjectAltName=DNS:push.internal\nextendedKeyUsage=serverAuth,clientAuth\n")
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}", "-keyout", f"{leaf}.key",
            "-out", f"{leaf}.csr")
    openssl("x509", "-req", "-in", f"{leaf}.csr", "-CA", f"{ca}.pem", "-CAkey", f"{ca}.key", "-CAcreateserial", "-days", 2, "-extfile",
            extensions, "-out", f"{leaf}.pem")
    return leaf


def mutual_tls(case):
    """Links with mutual TLS carry the whole API; a node whose certificate is of another authority, and one without TLS, are refused."""
    strangers = [ForeignNode(case, "foreign"), Node(case, "plain")]
    cluster, crowd = start(case, make=TlsNode, names=("a", "b"), strangers=strangers)
    for stranger in strangers:
        stranger.peers = [node.link for node in cluster.nodes.values()]
        stranger.start()
    # Each dials both nodes every 250 ms, and is dialed by them.
    strangers[0].process.wait_output(r"cluster: link to .*; retrying")
    until = time.monotonic() + 2
    attempts = 0
    while time.monotonic() < until:
        for node in (*cluster.nodes.values(), *strangers):
            wanted = 1 if node in strangers else 2
            rig.expect(f"the nodes of {node.name}", wanted, node.linked())
        attempts += 1
    figures = check_api(cluster, crowd)
    reason = [line for line in strangers[0].process.output().splitlines() if "retrying" in line][0]
    return figures | {"checks_of_membership": attempts, "foreign": reason.split("cluster: ")[-1][:120]}


CASES = [api_at_any_node, channels_and_info, disconnect_while_paused, roles, mutual_tls]
