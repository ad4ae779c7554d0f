"""The chart's objects at a real API server: accepted without effects, then installed for their rights, upgraded and removed."""

import json

import yaml

from chart_values import CHART, ROOT
from rig import Rig, until

ACCOUNT = "system:serviceaccount:ringmain:ringmain"

# Requests with the rights of ci/namespaces-values.yaml, and whether they are permitted: verb, resource, name or none, namespace.
PERMITTED = [
    ("list", "httproutes.gateway.networking.k8s.io", None, "shop", True),
    ("watch", "httproutes.gateway.networking.k8s.io", None, "elsewhere", True),
    ("update", "httproutes.gateway.networking.k8s.io/status", "web", "shop", True),
    ("update", "httproutes.gateway.networking.k8s.io/status", "web", "elsewhere", False),
    ("update", "httproutes.gateway.networking.k8s.io", "web", "shop", False),
    ("update", "gatewayclasses.gateway.networking.k8s.io/status", "ringmain", None, True),
    ("update", "gatewayclasses.gateway.networking.k8s.io/status", "other", None, False),
    ("list", "secrets", "shop-certificate", "shop", True),
    ("watch", "secrets", "shop-certificate", "shop", True),
    ("list", "secrets", "other", "shop", False),
    ("list", "secrets", None, "shop", False),
    ("list", "secrets", None, None, False),
    ("get", "secrets", "shop-certificate", "shop", False),
    ("list", "configmaps", "internal-ca", "accounts", True),
    ("list", "configmaps", None, "accounts", False),
    ("patch", "services", "ringmain-web", "accounts", True),
    ("patch", "services", "ringmain-web", "elsewhere", False),
    ("delete", "services", "ringmain-web", "shop", False),
    ("create", "events.events.k8s.io", None, "default", True),
    ("create", "events.events.k8s.io", None, "elsewhere", False),
    ("update", "leases.coordination.k8s.io", "ringmain.dev-gateway", "ringmain", True),
    ("update", "leases.coordination.k8s.io", "other", "ringmain", False),
    ("list", "pods", None, "ringmain", False),
    ("get", "nodes", "one", None, False),
]

KINDS = ("clusterroles,clusterrolebindings,roles,rolebindings,deployments,daemonsets,services,configmaps,serviceaccounts,"
         "poddisruptionbudgets,horizontalpodautoscalers,networkpolicies,gatewayclasses,podmonitors")


def is_permitted(rig, verb, resource, name, namespace):
    """Returns whether the API server permits a request of the release's ServiceAccount. Lists and watches of one name select it by field."""
    resource, _, subresource = resource.partition("/")
    plural, _, group = resource.partition(".")
    attributes = {"verb": verb, "group": group, "version": "*", "resource": plural, "subresource": subresource}
    attributes.update({key: value for key, value in (("name", name), ("namespace", namespace)) if value})
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
              "spec": {"user": ACCOUNT, "resourceAttributes": attributes}}
    answer = json.loads(rig.kubectl("create", "--raw", "/apis/authorization.k8s.io/v1/subjectaccessreviews", "-f", "-", text=json.dumps(review)))
    return answer["status"]["allowed"]


def list_by_name(rig, name):
    """Returns whether the ServiceAccount can list a Secret by its name: sends the request, not a review."""
    path = f"/api/v1/namespaces/shop/secrets?fieldSelector=metadata.name%3D{name}"
    try:
        rig.kubectl("get", "--as", ACCOUNT, "--raw", path)
    except RuntimeError as error:
        if "forbidden" not in str(error).lower():
            raise
        return False
    return True


def left(rig):
    """Returns the objects with the label of the release."""
    found = rig.kubectl("get", KINDS, "-A", "-l", "app.kubernetes.io/instance=ringmain", "-o", "name").split()
    return sorted(found)


def dry_run(rig, text, name):
    """Checks that every object is accepted, without unknown fields. Returns their number."""
    done = rig.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", text=text)
    expected = sum(1 for part in yaml.safe_load_all(text) if part)
    accepted = [line for line in done.splitlines() if line.endswith("(server dry run)")]
    assert len(accepted) == expected, f"{name}: {expected} objects, of which {len(accepted)} were accepted: {done}"
    return expected


def admit_restricted(rig, chart, file):
    """Checks that a Pod of the values complies with the Pod Security level `restricted`."""
    workload = next(part for part in chart.objects(file) if part["kind"] in ("Deployment", "DaemonSet"))
    template = workload["spec"]["template"]
    if template["spec"].get("hostNetwork"):
        return
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "ringmain", "labels": template["metadata"]["labels"]}, "spec": template["spec"]}
    rig.kubectl("create", "--dry-run=server", "-n", "restricted", "-f", "-", text=json.dumps(pod))


def accepted(chart, sets, folder):
    """An API server accepts every object, and grants the rights of the smallest values and no others"""
    rig = Rig(folder)
    try:
        rig.run("up.sh", "--api-only")

        def helm(*args):
            return rig.run("in.sh", chart.helm, *args, "-n", "ringmain")

        for namespace in ("ringmain", "ringmain-seccomp", "shop", "accounts", "elsewhere"):
            rig.kubectl("create", "namespace", namespace)
        rig.kubectl("create", "namespace", "restricted")
        rig.kubectl("label", "namespace", "restricted", "pod-security.kubernetes.io/enforce=restricted")
        rig.kubectl("apply", "-f", str(ROOT / "tests/kube/podmonitor.yaml"))
        rig.kubectl("wait", "--for", "condition=Established", "--timeout", "60s", "crd/podmonitors.monitoring.coreos.com")
        count = 0
        for name, file in sets.items():
            count += dry_run(rig, chart.text(file), name)
            helm("install", "ringmain", str(CHART), "-f", file, "--dry-run=server")
            admit_restricted(rig, chart, file)
        for file in sorted((ROOT / "deploy/manifests").glob("*.yaml")):
            count += dry_run(rig, file.read_text(), file.name)
        dry_run(rig, (ROOT / "deploy/seccomp/install.yaml").read_text(), "seccomp/install.yaml")
        print(f"        {count} objects of {len(sets)} files with values and of deploy/manifests accepted")
        helm("install", "ringmain", str(CHART), "-f", sets["namespaces"])
        # The API server sees Roles by a watch.
        until("the rights of the values", lambda: is_permitted(rig, *PERMITTED[0][:-1]) and is_permitted(rig, "list", "secrets", "shop-certificate", "shop"))
        for *request, wanted in PERMITTED:
            assert is_permitted(rig, *request) == wanted, f"{request}: expected {'permitted' if wanted else 'refused'}"
        assert list_by_name(rig, "shop-certificate"), "the Secret that the values name may not be listed"
        assert not list_by_name(rig, "other"), "a Secret that the values do not name may be listed"
        helm("upgrade", "ringmain", str(CHART), "-f", sets["monitoring"])
        until("a right ends with the values that granted it", lambda: not is_permitted(rig, "list", "secrets", "shop-certificate", "shop"))
        assert any(name.startswith("podmonitor") for name in left(rig)), f"no PodMonitor in {left(rig)}"
        helm("uninstall", "ringmain", "--wait")
        until("nothing is left after uninstall", lambda: not left(rig))
    finally:
        rig.run("down.sh")
