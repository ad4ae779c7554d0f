#!/usr/bin/env python3
"""The Helm chart in deploy/helm/ringmain, the plain manifests and the page of its values.

    python3 tests/kube/chart.py [BINARY]          # BINARY: checks the configurations of the chart with `ringmain check`
    python3 tests/kube/chart.py --write           # writes deploy/manifests and docs/reference/helm.md
    RINGMAIN_KUBE_RIG=FOLDER python3 tests/kube/chart.py BINARY    # also applies every object to an API server, without effects

Renders the chart with each file in its folder `ci`, and checks the output. Needs PyYAML, and Go with its module proxy unless HELM names a
helm; FOLDER has `up.sh`, `in.sh` and `down.sh`, as for faults.py.
"""

import argparse
import copy
import difflib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

try:
    import yaml
except ImportError:
    sys.exit("chart: expected the module yaml, found none (on Debian: python3-yaml)")

import chart_rights
import chart_values
from chart_values import CHART, ROOT

MANIFESTS = ROOT / "deploy/manifests"
GUIDE = ROOT / "docs/how-to/kubernetes-helm.md"
PLAIN = ("deployment", "daemonset", "push")
HELM = "v3.22.0"
# The oldest that Chart.yaml permits.
KUBERNETES = "1.30.0"

MANIFEST_HEAD = """# {about}
#
# Output of the Helm chart, see docs/how-to/kubernetes-helm.md: change deploy/helm/ringmain, then run
# python3 tests/kube/chart.py --write
"""

# Values that must be refused, and a part of the message.
REFUSED = [
    ("image: {repository: ''}", "image.repository is required"),
    ("replicaCount: 2", "additional properties 'replicaCount' not allowed"),
    ("replicas: two", "/replicas': got string, want integer"),
    ("kind: StatefulSet", "/kind': value must be one of 'Deployment', 'DaemonSet'"),
    ("gatewayAPI: {addresses: everywhere}", "gatewayAPI.addresses: expected `pod`, or a range"),
    ("gatewayAPI: {controllerName: ringmain}", "gatewayAPI.controllerName: expected a domain and a path"),
    ("gatewayAPI: {addresses: 10.97.0.0/16}", "the range 10.97.0.0/16 requires hostNetwork"),
    ("gatewayAPI: {enabled: false}", "nothing to serve"),
    ("config: {kubernetes: {controller: a/b}}", "config.kubernetes: set gatewayAPI instead"),
    ("config: {admin: {address: ':9901'}}", "config.admin.address: set ports instead"),
    ("config: {admin: {metrics: ':9902'}}", "config.admin.metrics: set ports instead"),
    ("config: {limits: {drain_delay: 5s}}", "config.limits.drain_delay: set shutdown.delay instead"),
    ("shutdown: {drain: 5, spread: 6}", "shutdown.spread must not exceed shutdown.drain"),
    ("config: {limits: {drain: 5s}}", "config.limits.drain: set shutdown.drain instead"),
    ("{existingConfigMap: edge, config: {access_log: stdout}}", "config has no effect with existingConfigMap"),
    ("config: {push: {cluster: {listen: ':7946'}}}", "config.push.cluster: set pushCluster instead"),
    ("{pushCluster: {name: live}, config: {push: {anonymous: true}}}", "pushCluster.tlsSecret is required"),
    ("pushCluster: {name: live, tlsSecret: live}", "pushCluster.name: config has no push"),
    ("{hostNetwork: true, pushCluster: {name: live, tlsSecret: live}}", "pushCluster is for Pods with a network of their own"),
    ("pushCluster: {log: redis}", "/pushCluster/log': got string, want object"),
    ("pushCluster: {rebalance: 1.2}", "/pushCluster/rebalance': got number, want object"),
    ("pushCluster: {role: owner}", "/pushCluster/role': value must be one of"),
    ("privilegedPorts: true", "privilegedPorts is for hostNetwork"),
    ("{hostNetwork: true, networkPolicy: {enabled: true}}", "no effect on Pods with hostNetwork"),
    ("{kind: DaemonSet, autoscaling: {enabled: true}}", "requires kind: Deployment"),
    ("autoscaling: {enabled: true, cpu: 0}", "requires a criterion"),
    ("autoscaling: {enabled: true, minReplicas: 5, maxReplicas: 4}", "must not exceed"),
    ("{autoscaling: {enabled: true}, resources: {requests: {cpu: null}}}", "requires resources.requests.cpu"),
    ("rbac: {allSecrets: true, secrets: [{namespace: shop}]}", "rbac.allSecrets includes rbac.secrets"),
    ("rbac: {allConfigMaps: true, configMaps: [{namespace: shop}]}", "rbac.allConfigMaps includes rbac.configMaps"),
    ("rbac: {secrets: [shop]}", "/rbac/secrets/0': got string, want object"),
    ("rbac: {secrets: [{namespace: shop, names: []}]}", "/rbac/secrets/0/names': minItems"),
    ("service: {ports: [{name: http, port: 70000}]}", "/service/ports/0/port': maximum"),
    ("service: {type: ExternalName}", "/service/type': value must be one of"),
    ("shutdown: {drain: 30s}", "/shutdown/drain': got string"),
    ("runAsUser: 0", "/runAsUser': minimum"),
    ("ioUring: {enabled: true, profile: /etc/ringmain.json}", "ioUring.profile: expected a path below"),
    ("podDisruptionBudget: {maxUnavailable: half}", "maxUnavailable"),
]


class Failed(Exception):
    """A check has failed."""


def expect(holds, why):
    if not holds:
        raise Failed(why)


def helm_program():
    """The path of helm, built from the module proxy once."""
    if os.environ.get("HELM"):
        return os.environ["HELM"]
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    folder = pathlib.Path(cache) / "ringmain-helm" / HELM
    if not (folder / "helm").exists():
        print(f"building helm {HELM}", file=sys.stderr)
        env = {"GOTOOLCHAIN": "auto", **os.environ, "GOBIN": str(folder)}
        done = subprocess.run(["go", "install", f"helm.sh/helm/v3/cmd/helm@{HELM}"], env=env, capture_output=True, text=True)
        expect(done.returncode == 0, f"go install helm: {done.stderr[-600:]}")
    return str(folder / "helm")


class Chart:
    """The chart, rendered by helm."""

    def __init__(self):
        self.helm = helm_program()

    def run(self, *args):
        return subprocess.run([self.helm, *args], capture_output=True, text=True)

    def template(self, *files):
        values = [word for file in files for word in ("-f", str(file))]
        return self.run("template", "ringmain", str(CHART), "-n", "ringmain", "--kube-version", KUBERNETES, *values)

    def text(self, *files):
        done = self.template(*files)
        expect(done.returncode == 0, f"helm template {' '.join(map(str, files))}: {done.stderr}")
        return done.stdout

    def objects(self, *files):
        return [document for document in yaml.safe_load_all(self.text(*files)) if document]


def value_sets():
    """The files with values, by name."""
    return {file.name.removesuffix("-values.yaml"): file for file in sorted((CHART / "ci").glob("*-values.yaml"))}


def by_kind(objects, kind):
    return [found for found in objects if found["kind"] == kind]


def only(objects, *kinds):
    found = [part for kind in kinds for part in by_kind(objects, kind)]
    expect(len(found) == 1, f"expected one of {kinds}, found {len(found)}")
    return found[0]


def lint(chart):
    """helm lint, for each file with values"""
    for name, file in value_sets().items():
        done = chart.run("lint", "--strict", str(CHART), "--kube-version", KUBERNETES, "-f", str(file))
        expect(done.returncode == 0, f"{name}: {done.stdout}{done.stderr}")


def documented(_):
    """Each value has a description, a type, and a file that sets it to something else"""
    chart_values.check()
    _, values, _ = chart_values.read()
    sets = [yaml.safe_load(file.read_text()) for file in value_sets().values()]

    def differs(tree, path, default):
        for key in path:
            if not isinstance(tree, dict) or key not in tree:
                return False
            tree = tree[key]
        return tree != default

    never = [path for path, default in chart_values.leaves(values) if not any(differs(tree, path, default) for tree in sets)]
    expect(not never, f"no file in ci sets {', '.join('.'.join(path) for path in never)}")


def refused(chart):
    """Values that are wrong are refused by a message that names them"""
    good = {"image": {"repository": "registry.example.com/ringmain"}}
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "values.yaml"
        for text, message in REFUSED:
            file.write_text(yaml.safe_dump({**copy.deepcopy(good), **yaml.safe_load(text)}))
            done = chart.template(file)
            expect(done.returncode != 0, f"accepted: {text}")
            expect(message in done.stderr, f"{text}: expected {message!r} in {done.stderr}")


def consistent(chart):
    """Ports, selectors, probes and times of the objects agree with each other"""
    logs = {}
    for name, file in value_sets().items():
        objects = chart.objects(file)
        identities = [(part["kind"], part["metadata"].get("namespace"), part["metadata"]["name"]) for part in objects]
        expect(len(identities) == len(set(identities)), f"{name}: an object twice in {identities}")
        workload = only(objects, "Deployment", "DaemonSet")
        template = workload["spec"]["template"]
        labels, pod = template["metadata"]["labels"], template["spec"]
        container = pod["containers"][0]
        numbers = {port["name"]: port["containerPort"] for port in container["ports"]}
        expect(len(numbers) == len(container["ports"]), f"{name}: names of ports are not unique")
        selectors = [workload["spec"]["selector"]["matchLabels"]]
        for kind in ("PodDisruptionBudget", "PodMonitor"):
            selectors += [part["spec"]["selector"]["matchLabels"] for part in by_kind(objects, kind)]
        selectors += [part["spec"]["podSelector"]["matchLabels"] for part in by_kind(objects, "NetworkPolicy")]
        for service in by_kind(objects, "Service"):
            selectors.append(service["spec"]["selector"])
            expect(all(port["targetPort"] in numbers for port in service["spec"]["ports"]), f"{name}: a port of the Service is none of the Pods")
        expect(all(selector.items() <= labels.items() for selector in selectors), f"{name}: a selector does not match the Pods")
        for policy in by_kind(objects, "NetworkPolicy"):
            ports = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
            expect(ports <= set(numbers.values()), f"{name}: a port of the NetworkPolicy is none of the Pods")
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            expect(container[kind]["httpGet"]["port"] == "metrics", f"{name}: {kind} is not at the probe listener")
        expect(container["readinessProbe"]["httpGet"]["path"] == "/readyz", f"{name}: readiness")
        expect(container["livenessProbe"]["httpGet"]["path"] == "/healthz", f"{name}: liveness depends on the API server")
        check_security(name, pod, container)
        if by_kind(objects, "ConfigMap"):
            config = yaml.safe_load(only(objects, "ConfigMap")["data"]["ringmain.yaml"])
            expect(config["admin"]["metrics"] == f":{numbers['metrics']}", f"{name}: the probes are not at the port of the configuration")
            times = {key: int(value.removesuffix("s")) for key, value in config["limits"].items() if key.startswith("drain")}
            expect(times.get("drain_spread", 0) <= times["drain"], f"{name}: the spread exceeds the drain")
            expect(pod["terminationGracePeriodSeconds"] > times["drain_delay"] + times["drain"], f"{name}: Pods are killed before their drain has ended")
            ready = container["readinessProbe"]
            expect(ready["periodSeconds"] * (ready["failureThreshold"] - 1) >= times["drain_delay"], f"{name}: Pods stop `serving` before their listeners close")
            cluster = config.get("push", {}).get("cluster")
            expect(("kubernetes" in config or cluster is not None) == pod["automountServiceAccountToken"], f"{name}: a token without use, or none")
            if cluster:
                check_push_cluster(name, objects, config, pod, numbers)
                logs.setdefault(cluster["nodes"]["kubernetes"]["service"], []).append(cluster.get("log"))
    for service, found in logs.items():
        expect(all(log == found[0] for log in found), f"releases of the cluster {service} have different logs: {found}")


def check_push_cluster(name, objects, config, pod, numbers):
    cluster = config["push"]["cluster"]
    _, values, _ = chart_values.read()
    values = values["pushCluster"] | yaml.safe_load(value_sets()[name].read_text())["pushCluster"]
    for key in ("log", "rebalance"):
        expect(cluster.get(key, {}) == values[key], f"{name}: {key} is {cluster.get(key)}, not that of the values")
    expect(cluster["listen"].endswith(f":{numbers['push-cluster']}"), f"{name}: nodes do not listen at the port of their links")
    folder = next(mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == "push-cluster")
    files = [*config["certificates"]["push-node"].values(), config["authorities"]["push-nodes"]]
    expect(all(file.startswith(folder + "/") for file in files), f"{name}: {files} are not in {folder}")
    for service in by_kind(objects, "Service"):
        if service["metadata"]["name"] == cluster["nodes"]["kubernetes"]["service"]:
            spec = service["spec"]
            named = [port["name"] for port in spec["ports"]]
            expect(named == [cluster["nodes"]["kubernetes"]["port"]], f"{name}: the port of links is none of {named}")
            expect(spec["clusterIP"] == "None" and spec["publishNotReadyAddresses"], f"{name}: nodes that drain would lose their links")


def check_security(name, pod, container):
    security = container["securityContext"]
    expect(security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"], f"{name}: {security}")
    expect(security["capabilities"]["drop"] == ["ALL"], f"{name}: capabilities {security['capabilities']}")
    if security["runAsNonRoot"]:
        expect(security["runAsUser"] > 0 and "add" not in security["capabilities"], f"{name}: {security}")
    else:
        expect(pod.get("hostNetwork") and security["capabilities"]["add"] == ["NET_BIND_SERVICE"], f"{name}: {security}")
    expect(pod["securityContext"]["seccompProfile"]["type"] in ("RuntimeDefault", "Localhost"), f"{name}: no seccomp profile")
    if pod.get("hostNetwork"):
        expect("sysctls" not in pod["securityContext"], f"{name}: sysctls of the node's network")


def guide(chart):
    """The values in the guide are accepted, and its files are those of the chart"""
    text = GUIDE.read_text()
    _, values, _ = chart_values.read()
    blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml fragment\n(.+?)```", text, re.S)]
    blocks = [block for block in blocks if block.keys() <= values.keys()]
    expect(len(blocks) >= 5, f"expected at least five blocks of values, found {len(blocks)}")
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "values.yaml"
        for block in blocks:
            file.write_text(yaml.safe_dump({**block, "image": {"repository": "registry.example.com/ringmain"}}))
            chart.objects(file)
    named = set(re.findall(r"ci/([a-z]+)-values.yaml", text))
    expect(named <= set(value_sets()), f"the guide names {named}")
    for value in re.findall(r"`((?:%s)\.[A-Za-z.]+)" % "|".join(values), text):
        path = tuple(value.split(".")) if not value.startswith("config.") else ("config",)
        if path[0] != "resources":
            chart_values.schema_of(chart_values.read()[2], path)


def versions(_):
    """The chart has the version of the program, and the guide its version of Kubernetes"""
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = re.search(r'\[workspace.package\]\nversion = "(.+)"', (ROOT / "Cargo.toml").read_text())[1]
    expect(about["version"] == about["appVersion"] == version, f"expected version {version}, found {about['version']}, {about['appVersion']}")
    minor = ".".join(KUBERNETES.split(".")[:2])
    expect(about["kubeVersion"].startswith(f">={minor}") and f"Kubernetes {minor} or later" in GUIDE.read_text(), "the least version of Kubernetes")


def typed(chart):
    """Every object has only fields of its type"""
    with tempfile.TemporaryDirectory() as folder:
        reader, file = pathlib.Path(folder) / "exports", pathlib.Path(folder) / "objects.yaml"
        done = subprocess.run(["go", "build", "-o", str(reader), "."], cwd=ROOT / "tests/exports", capture_output=True, text=True)
        expect(done.returncode == 0, f"go build tests/exports: {done.stderr[-600:]}")
        texts = {name: chart.text(values) for name, values in value_sets().items()}
        texts["seccomp/install.yaml"] = (ROOT / "deploy/seccomp/install.yaml").read_text()
        for name, text in texts.items():
            file.write_text(text)
            done = subprocess.run([str(reader), "objects", str(file)], capture_output=True, text=True)
            expect(done.returncode == 0, f"{name}: {done.stderr}")


def replaced(chart):
    """Pods are replaced for keys that only a start reads, and for no other"""
    def stamp(config):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "values.yaml"
            file.write_text(yaml.safe_dump({"image": {"repository": "r/ringmain"}, **config}))
            return only(chart.objects(file), "Deployment")["spec"]["template"]["metadata"]["annotations"]

    plain = stamp({})
    expect(stamp({"config": {"to": "http://app"}}) == plain, "a route replaces Pods")
    for part in ({"config": {"access_log": "stdout"}}, {"config": {"limits": {"connections": 9}}}, {"shutdown": {"drain": 9}},
                 {"ports": {"metrics": 9999}}, {"gatewayAPI": {"controllerName": "example.com/other"}}):
        expect(stamp(part) != plain, f"{part} does not replace Pods")

    def stamp_node(**values):
        return stamp({"config": {"push": {"anonymous": True}}, "pushCluster": {"name": "live", "tlsSecret": "live", **values}})

    for part in ({"log": {"redis": {"servers": "redis:6379"}}}, {"rebalance": {"rate": "1%"}}):
        expect(stamp_node(**part) != stamp_node(), f"{part} does not replace Pods")


def rights(chart):
    """Roles grant what crates/kube reads and writes, and nothing else"""
    sets = value_sets()
    chart_rights.check({name: chart.objects(file) for name, file in sets.items()})


def plain(text, about):
    """The output of helm as a file that is applied without it."""
    lines = [line for line in text.splitlines() if not re.match(r"# Source: |\s+(app.kubernetes.io/managed-by|helm.sh/chart): ", line)]
    return MANIFEST_HEAD.format(about=about) + "\n".join(lines) + "\n"


def generated(chart):
    """The contents of files that --write writes, by path."""
    files = {}
    for name in PLAIN:
        values = value_sets()[name]
        about = re.match(r"# (.+)", values.read_text())[1]
        files[MANIFESTS / f"{name}.yaml"] = plain(chart.text(values), about)
    files[chart_values.PAGE] = chart_values.page()
    return files


def current(chart):
    """deploy/manifests and docs/reference/helm.md are those of the chart"""
    for path, text in generated(chart).items():
        found = path.read_text() if path.exists() else ""
        diff = "\n".join(difflib.unified_diff(found.splitlines(), text.splitlines(), "committed", "generated", lineterm=""))
        expect(found == text, f"{path.relative_to(ROOT)} differs; run tests/kube/chart.py --write\n{diff[:2000]}")


def configurations(chart, binary):
    """`ringmain check` accepts the configuration of each ConfigMap, and the seccomp profile is the exported one"""
    env = {**os.environ, "POD_IP": "192.0.2.1", "POD_NAME": "live-0", "TOKEN_SECRET": "s" * 32, "ADMIN_TOKEN": "t" * 32, "API_KEY": "k",
           "REDIS_PASSWORD": "r"}
    with tempfile.TemporaryDirectory() as folder:
        key, chain = f"{folder}/tls.key", f"{folder}/tls.crt"
        request = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=node"]
        subprocess.run([*request, "-keyout", key, "-out", chain], check=True, capture_output=True)
        (pathlib.Path(folder) / "ca.crt").write_bytes(pathlib.Path(chain).read_bytes())
        for name, file in value_sets().items():
            for found in by_kind(chart.objects(file), "ConfigMap"):
                text = found["data"]["ringmain.yaml"].replace("/etc/ringmain-push", folder)
                done = subprocess.run([binary, "check", "-"], input=text, env=env, capture_output=True, text=True)
                expect(done.returncode == 0, f"{name}: {done.stdout}{done.stderr}")
    exported = subprocess.run([binary, "tune", "export", "--as", "seccomp"], check=True, capture_output=True, text=True).stdout
    expect((ROOT / "deploy/seccomp/ringmain.json").read_text() == exported, "deploy/seccomp/ringmain.json is not `ringmain tune export --as seccomp`")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary", nargs="?", type=pathlib.Path)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    chart = Chart()
    if args.write:
        for path, text in generated(chart).items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return 0
    checks = [(check, (chart,)) for check in (lint, documented, refused, guide, versions, typed, consistent, replaced, rights, current)]
    if args.binary:
        checks.append((configurations, (chart, args.binary.resolve())))
    folder = os.environ.get("RINGMAIN_KUBE_RIG")
    if folder:
        import chart_api

        checks.append((chart_api.accepted, (chart, {name: str(file) for name, file in value_sets().items()}, folder)))
    failures = 0
    for check, arguments in checks:
        try:
            check(*arguments)
            print(f"ok      {check.__doc__}")
        except (Failed, chart_values.Wrong, chart_rights.Wrong, AssertionError, RuntimeError) as error:
            failures += 1
            print(f"FAILED  {check.__doc__}: {error}")
    if not folder:
        print("not run: objects at an API server; RINGMAIN_KUBE_RIG is not set")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
