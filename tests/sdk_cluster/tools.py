"""The SDKs, their tests and the programs of clients; fetched once into $SDK_CACHE (a folder of the user's cache), as tests/sdk/run.sh does."""

import json
import os
import pathlib
import re
import shutil
import subprocess

import rig

HERE = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path(os.environ.get("SDK_CACHE") or pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "ringmain-sdk")
# Its tests are not in the package of npm. CENTRIFUGE_JS names another repository, such as a clone.
JAVASCRIPT = os.environ.get("CENTRIFUGE_JS", "https://github.com/centrifugal/centrifuge-js")
JAVASCRIPT_TAG, JAVASCRIPT_COMMIT = "5.7.1", "c9e867858f703ef7e0b4c68e77004b36b3490214"
# What its tests use, in the versions of its yarn.lock.
JEST = ["jest@29.7.0", "ts-jest@29.4.11", "typescript@5.9.3", "ws@8.21.0", "eventsource@2.0.2", "undici@6.27.0", "events@3.3.0", "protobufjs@7.6.5",
        "@types/jest@29.5.14", "@types/node@20.19.41"]
FETCH_SECONDS = 900


def version(name):
    """Returns a version that tests/sdk/run.sh uses."""
    found = re.search(rf"(?m)^{name}=(\S+)$", (HERE.parent / "sdk/run.sh").read_text())
    rig.check(found, f"tests/sdk/run.sh has no version {name}")
    return found[1]


def run(*command, cwd=None):
    """Runs a command that fetches or builds; returns its output."""
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, timeout=FETCH_SECONDS,
                          env={**os.environ, "GOFLAGS": "-mod=mod"})
    rig.check(done.returncode == 0, f"{' '.join(map(str, command[:4]))}: {done.stdout[-500:]} {done.stderr[-1500:]}")
    return done.stdout


def once(name, make):
    """Returns the folder `name` of the cache, which `make` fills if it does not exist yet."""
    folder = CACHE / name
    if not folder.exists():
        fresh = CACHE / f"{name}.new"
        shutil.rmtree(fresh, ignore_errors=True)
        make(fresh)
        fresh.rename(folder)
    return folder


def clone(folder):
    run("git", "clone", "--quiet", JAVASCRIPT, folder)
    run("git", "checkout", "--quiet", JAVASCRIPT_COMMIT, cwd=folder)


def copy_module(folder):
    """Copies the source of the Go SDK, which has its tests."""
    listed = json.loads(run("go", "mod", "download", "-json", f"github.com/centrifugal/centrifuge-go@{version('go_sdk')}", cwd=CACHE))
    shutil.copytree(listed["Dir"], folder)
    run("chmod", "-R", "u+w", folder)


def install(packages):
    def make(folder):
        folder.mkdir()
        run("npm", "install", "--silent", "--no-save", "--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund", *packages, cwd=folder)
    return make


class Tools:
    """Folders and programs, by attribute; each is fetched or built when it is used first."""

    def __init__(self):
        for program in ("go", "node", "npm", "git", "redis-server"):
            rig.need(program)
        CACHE.mkdir(parents=True, exist_ok=True)

    @property
    def javascript(self):
        return once(f"centrifuge-js-{JAVASCRIPT_TAG}", clone)

    @property
    def jest(self):
        return once("jest-" + JEST[0].split("@")[1], install(JEST)) / "node_modules"

    @property
    def go(self):
        return once(f"go-{version('go_sdk')}", copy_module)

    @property
    def crowd_js(self):
        packages = [f"centrifuge@{version('npm_sdk')}", "ws@8", f"eventsource@{version('npm_eventsource')}"]
        folder = once(f"crowd-{version('npm_sdk')}", install(packages))
        return shutil.copy(HERE / "crowd.mjs", folder)

    @property
    def crowd_go(self):
        program = CACHE / "crowd-go"
        run("go", "build", "-o", program, ".", cwd=HERE / "crowd")
        return program
