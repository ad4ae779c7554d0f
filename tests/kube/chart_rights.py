"""The rights of the chart, against the requests that crates/kube makes.

Kinds are read from the table in crates/kube/src/objects/kind.rs; the requests beside their lists and watches are listed here.
"""

import itertools
import re

import yaml

from chart_values import ROOT

GATEWAY, EXPERIMENTAL = "gateway.networking.k8s.io", "gateway.networking.x-k8s.io"

# Requests of the writer, the Lease and the recorder of Events (crates/kube/src/live).
OTHERS = {
    ("", "services", "get"), ("", "services", "create"), ("", "services", "patch"),
    ("events.k8s.io", "events", "create"), ("events.k8s.io", "events", "get"), ("events.k8s.io", "events", "patch"),
    ("coordination.k8s.io", "leases", "get"), ("coordination.k8s.io", "leases", "create"), ("coordination.k8s.io", "leases", "update"),
    (GATEWAY, "gateways/finalizers", "update"),
}


class Wrong(Exception):
    """A right too many, or one that is missing."""


def kinds():
    """Returns group and plural of each kind that the program reads."""
    text = (ROOT / "crates/kube/src/objects/kind.rs").read_text()
    table = text[text.index("const NAMES"):text.index("impl Kind")]
    constants = {name: value for name, value in re.findall(r'const (\w+): &str = "([^"]+)";', text)}
    rows = re.findall(r'Kind::\w+,\s*"\w+",\s*(?:"([^"]*)"|(\w+)),\s*"\w+",\s*"(\w+)"', table)
    found = [(constants[constant] if constant else group, plural) for group, constant, plural in rows]
    if len(found) != table.count("Kind::"):
        raise Wrong(f"kind.rs has {table.count('Kind::')} kinds, and {len(found)} could be read")
    return found


def requests():
    """Returns every (group, resource, verb) that the program requests."""
    wanted = set(OTHERS)
    for group, plural in kinds():
        wanted |= {(group, plural, "list"), (group, plural, "watch")}
        has_status = group == EXPERIMENTAL or (group == GATEWAY and plural != "referencegrants")
        if has_status:
            # An object is read again if its status was refused, or changed by others.
            wanted |= {(group, plural, "get"), (group, f"{plural}/status", "update")}
    return wanted


def granted(objects, kinds_of_roles=("ClusterRole", "Role")):
    """Returns every (group, resource, verb) that Roles grant, whatever the namespace and names."""
    rights = set()
    for role in objects:
        if role["kind"] in kinds_of_roles:
            for rule in role["rules"]:
                rights |= set(itertools.product(rule["apiGroups"], rule["resources"], rule["verbs"]))
    return rights


def expect_equal(found, wanted, name):
    if found != wanted:
        raise Wrong(f"{name}: missing {sorted(wanted - found)}, needless {sorted(found - wanted)}")


def check(sets):
    """Checks the objects of each file with values, by its name."""
    wanted = requests()
    references = {right for right in wanted if right[1] in ("secrets", "configmaps")}
    secrets = {right for right in references if right[1] == "secrets"}
    experimental = {right for right in wanted if right[0] == EXPERIMENTAL}
    expect_equal(granted(sets["deployment"]), wanted - experimental - references | secrets, "deployment")
    expect_equal(granted(sets["daemonset"]), wanted - experimental - references | secrets, "daemonset")
    expect_equal(granted(sets["node"]), wanted - experimental - references, "node")
    expect_equal(granted(sets["namespaces"]), wanted - experimental, "namespaces")
    # The label of the Node with the zone.
    nodes = {("", "nodes", "get")}
    expect_equal(granted(sets["every"]), wanted - secrets | nodes, "every")
    for name in ("push", "references"):
        expect_equal(granted(sets[name]), set(), name)
    # The nodes of a push cluster, in its namespace alone.
    slices = {right for right in wanted if right[1] == "endpointslices"}
    expect_equal(granted(sets["cluster"]), slices | nodes, "cluster")
    expect_equal(granted(sets["cluster"], ("ClusterRole",)), nodes, "cluster, in the whole cluster")
    expect_equal(granted(sets["clusterclients"]), slices, "clusterclients")
    # rights.yaml, which the suite `kube` runs with, permits as much.
    with_tests = granted(yaml.safe_load_all((ROOT / "tests/kube/rights.yaml").read_text()))
    if not wanted <= with_tests:
        raise Wrong(f"tests/kube/rights.yaml lacks {sorted(wanted - with_tests)}")
    cluster_wide = {name: granted(objects, ("ClusterRole",)) for name, objects in sets.items()}
    for name, rights in cluster_wide.items():
        if name != "daemonset" and rights & secrets:
            raise Wrong(f"{name}: Secrets of the whole cluster may be read")
        if any("*" in right for right in rights):
            raise Wrong(f"{name}: a wildcard")
    # With namespaces, only the status of the GatewayClass is written outside of them.
    writes = {right for right in cluster_wide["namespaces"] if right[2] not in ("list", "watch", "get")}
    expect_equal(writes, {(GATEWAY, "gatewayclasses/status", "update")}, "namespaces, in the whole cluster")
    namespaces = {role["metadata"]["namespace"] for role in sets["namespaces"] if role["kind"] == "Role"}
    if namespaces != {"ringmain", "default", "shop", "accounts"}:
        raise Wrong(f"namespaces: Roles in {namespaces}")
