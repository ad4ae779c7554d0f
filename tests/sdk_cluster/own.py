"""The own tests of Centrifuge's SDKs for JavaScript and Go against a cluster behind a gateway, unchanged but for addresses and secrets."""

import base64
import hashlib
import hmac
import json
import os
import pathlib
import re
import shutil
import subprocess

import rig
from stage import KEY, RETAINED, SECRET, Stage

NODES = {"a": None, "b": None}
# The roles of the nodes, and whether they have a log.
TOPOLOGIES = {"nodes": (NODES, True),
              "roles": ({"g1": "push-gateway", "g2": "push-gateway", "s1": "push-server", "s2": "push-server"}, True),
              "without_log": (NODES, False)}
SUITE_SECONDS = 420

KEPT = RETAINED % 100
DELTA = f"{KEPT}, delta: fossil"
# As centrifugo_test.json of centrifuge-js; its other namespaces are of map and shared poll subscriptions.
JAVASCRIPT = {"": f"{DELTA}, presence: true", "delta": DELTA, "recovery": KEPT, "smallhistory": RETAINED % 2}
# As docker-compose.yml of centrifuge-go: presence is disabled, and its tests publish bytes that are not JSON.
GO = {"": f"{DELTA}, data_format: binary", "smallhistory": RETAINED % 2}

# Of centrifuge-js 5.7.1, left out as whole files.
FILES_LEFT_OUT = {
    "map.test.ts": "map subscriptions", "map.protobuf.test.ts": "map subscriptions",
    "shared_poll.test.ts": "shared poll subscriptions", "shared_poll.protobuf.test.ts": "shared poll subscriptions",
    "codec.bench.test.ts": "a benchmark of its codecs without a server",
}
# Left out by name: "map delta: …" in delta.test.ts, and "map: key removed automatically after TTL expires" in recovery.test.ts.
MAPS = re.compile(r"^map( delta)?: ")
# Skipped by the suites themselves.
SKIPPED = re.compile(r"map publish debounce|no websocket constructor|debounce")
# Without these the run has tested nothing.
REQUIRED = {
    "javascript": {"stream delta: successive publications decoded correctly", "stream delta: recovery after disconnect",
                   "stream delta: recovery after unsubscribe/resubscribe", "stream delta: many publications with small diffs",
                   "stream: recovery after disconnect delivers missed publications", "stream: recovery after unsubscribe/resubscribe",
                   "stream: unrecoverable position resubscribes without recovery", "getState is called when recovery fails (unrecoverable position)",
                   "same id is re-registered after reconnect", "http_stream: publish and receive message", "sse: publish and receive message"},
    "go": {"TestHandlePublishFossil", "TestGetStateNotCalledWhenRecoverySucceeds", "TestGetStateCalledAgainOnUnrecoverablePosition",
           "TestStress_ReconnectWithSubscriptions", "TestSubscribeRequestCarriesTagsFilter", "TestCompactionSameIDReRegisteredAfterReconnect"},
}


def sign_again(text):
    """Signs the tokens in a test's source with our secret: theirs (`secret`) is shorter than a server here accepts."""
    def renew(found):
        signed = found[1].encode()
        part = base64.urlsafe_b64encode(hmac.digest(SECRET.encode(), signed, hashlib.sha256)).rstrip(b"=").decode()
        return f"{found[1]}.{part}"
    return re.sub(r"\b(eyJ[\w-]+\.[\w-]+)\.[\w-]+", renew, text)


def at_gateway(folder, pattern, port):
    """Has the sources in a folder use the gateway."""
    count = 0
    for file in folder.glob(pattern):
        text = file.read_text()
        changed = sign_again(text.replace("localhost:8000", f"127.0.0.1:{port}").replace("test-api-key", KEY))
        count += changed != text
        file.write_text(changed)
    rig.check(count > 1, f"{count} sources in {folder} name a server")


def javascript(case, roles, has_log):
    """centrifuge-js: deltas, recovery, getState, compaction, and its tests of each transport in both formats."""
    stage = Stage(case, roles, JAVASCRIPT, has_log)
    tests = case.dir / "javascript"
    shutil.copytree(case.tools.javascript, tests, ignore=shutil.ignore_patterns(".git"))
    (tests / "node_modules").symlink_to(case.tools.jest)
    at_gateway(tests / "src", "*.test.ts", stage.port)
    left_out = "|".join(re.escape(name) for name in FILES_LEFT_OUT)
    result = case.dir / "javascript.json"
    done = subprocess.run(["node", "node_modules/jest/bin/jest.js", "--runInBand", "--forceExit", "--json", f"--outputFile={result}",
                           "--testPathIgnorePatterns", f"/({left_out})$", "--testNamePattern", f"^(?!{MAPS.pattern[1:]})"],
                          cwd=tests, capture_output=True, text=True, timeout=SUITE_SECONDS)
    rig.check(result.exists(), f"jest has no result: {done.stderr[-1500:]}")
    outcomes, messages = read_jest(json.loads(result.read_text()))
    figures = judge("javascript", outcomes, messages)
    rig.check(done.returncode == 0, f"jest has ended with {done.returncode}: {done.stderr[-1500:]}")
    return figures


def read_jest(result):
    """Returns the outcomes and messages of jest's tests by (file, title). Of several tests with the same title the worst outcome counts."""
    outcomes, messages = {}, {}
    for file in result["testResults"]:
        rig.check(file["assertionResults"], f"{file['name']} has no tests: {file['message'][-800:]}")
        for test in file["assertionResults"]:
            key = (pathlib.PurePath(file["name"]).name, test["title"])
            outcomes[key] = max(outcomes.get(key, "passed"), test["status"], key=badness)
            messages[key] = (messages.get(key, "") + "\n".join(test["failureMessages"]))[:600]
    return outcomes, messages


def badness(status):
    """Orders outcomes; one that is neither passed nor failed has tested nothing."""
    return {"passed": 0, "failed": 2}.get(status, 1)


def go(case, roles, has_log):
    """centrifuge-go: all of its tests."""
    stage = Stage(case, roles, GO, has_log)
    tests = case.dir / "go"
    shutil.copytree(case.tools.go, tests)
    at_gateway(tests, "*_test.go", stage.port)
    done = subprocess.run(["go", "test", "-count=1", "-json", f"-timeout={SUITE_SECONDS - 20}s", "."], cwd=tests, capture_output=True, text=True,
                          timeout=SUITE_SECONDS, env={**os.environ, "GOFLAGS": "-mod=mod"})
    outcomes, messages = {}, {}
    for line in done.stdout.splitlines():
        event = json.loads(line)
        name = event.get("Test")
        if name and event["Action"] in ("pass", "fail", "skip"):
            outcomes["", name] = {"pass": "passed", "fail": "failed", "skip": "pending"}[event["Action"]]
        elif name and event["Action"] == "output":
            messages["", name] = (messages.get(("", name), "") + event["Output"])[-600:]
    rig.check(outcomes, f"go test has no result: {done.stdout[-800:]} {done.stderr[-800:]}")
    figures = judge("go", outcomes, messages)
    rig.check(done.returncode == 0, f"go test has ended with {done.returncode}: {done.stdout[-800:]} {done.stderr[-800:]}")
    return figures


def judge(suite, outcomes, messages):
    """Each test must pass, but for those that are left out by name. Outcomes are by (file, title)."""
    failed = sorted(name for name, status in outcomes.items() if status == "failed")
    skipped = [name for name, status in outcomes.items() if status not in ("passed", "failed")]
    rig.check(not failed, f"{len(failed)} tests fail: {failed}\n" + "\n".join(messages[name] for name in failed))
    strange = sorted(name for name in skipped if not SKIPPED.search(name[1]) and not MAPS.search(name[1]))
    rig.check(not strange, f"tests are skipped: {strange}")
    passed = {title for (_, title), status in outcomes.items() if status == "passed"}
    missing = sorted(REQUIRED[suite] - passed)
    rig.check(not missing, f"tests that must pass are not in the suite: {missing}")
    return {"passed": len(outcomes) - len(skipped), "maps": sum(1 for _, title in skipped if MAPS.search(title)), "skipped": len(skipped)}
