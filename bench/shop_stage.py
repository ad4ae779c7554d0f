"""The shop of examples/shop.yaml in a folder of its own: its servers, its certificates, the gateway before them.

Must not know what a right answer is. Everything started here is ended here; ports are those that are free now.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import time

import asking
import programs
import server as servers

EXAMPLES = servers.REPO / "examples"
SHOP_NAME = "The Shop"
# How long is waited for what happens by itself; a file's change takes a quarter of a second, a health check 15 s.
GUARD_SECONDS = 90.0
# By the port that shop.yaml has for them: (kind, name).
BACKENDS = {
    3001: ("nginx", "pages"), 3002: ("http", "catalogue-a"), 3003: ("http", "catalogue-b"),
    3004: ("node", "cart-a"), 3005: ("node", "cart-b"), 3006: ("http", "search-a"), 3007: ("http", "search-b"),
    3016: ("http", "search-next"), 3008: ("mail", "mail"), 5432: ("tcp", "postgres"),
    "payment": ("https", "payment"), "admin": ("http", "admin"),
}


class Failed(Exception):
    """Something is not as it should be; the text says what was expected and found."""


def expect(what, wanted, found):
    """Failed unless what was found is what is wanted."""
    if found != wanted:
        raise Failed(f"expected {what}: {wanted!r}, found {found!r}")


def free_ports(keys):
    """A port of 127.0.0.1 for each key, all different."""
    with contextlib.ExitStack() as held:
        found = {}
        for key in keys:
            s = held.enter_context(socket.socket())
            s.bind(("127.0.0.1", 0))
            found[key] = s.getsockname()[1]
        return found


def places(text):
    """Every port that the file names, and that of the payment service, which has another's number."""
    return {int(port) for pair in re.findall(r"\d+\.\d+\.\d+\.\d+:(\d+)|\bport: (\d+)", text) for port in pair if port} | {"payment"}


def moved(text, ports, folder):
    """The file with other ports, on loopback alone, with its socket and its log in the folder."""
    text = text.replace("payment.internal:8443", f"localhost:{ports['payment']}")
    text = text.replace("/run/shop/admin.sock", f"{folder}/admin.sock").replace("to: stdout", f"to: {folder}/access.log")
    text = re.sub(r"\d+\.\d+\.\d+\.\d+:(\d+)", lambda m: f"127.0.0.1:{ports[int(m[1])]}", text)
    return re.sub(r"\bport: (\d+)", lambda m: f"port: {ports[int(m[1])]}", text)


def connects(address):
    """Whether somebody listens; OSError while nobody does."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family) as s:
        s.settimeout(1)
        s.connect(address)
        return True


def until(what, found, guard=GUARD_SECONDS):
    """The first true value of `found()`; Failed if there is none in time."""
    deadline = time.monotonic() + guard
    while True:
        with contextlib.suppress(OSError, asking.Broken):
            if value := found():
                return value
        if time.monotonic() > deadline:
            raise Failed(f"expected {what} within {guard:g} s")
        time.sleep(0.02)


class Shop:
    """The shop in a folder of its own. In a `with` block all of it runs."""

    def __init__(self, ours, folder):
        self.ours, self.folder = ours, pathlib.Path(folder)
        text = (EXAMPLES / "shop.yaml").read_text()
        self.ports = free_ports(places(text))
        shutil.copytree(EXAMPLES / "shop", self.folder / "shop")
        self.file = self.folder / "shop.yaml"
        self.file.write_text(moved(text, self.ports, self.folder))
        self.here = self.folder / "shop"
        self.running = {}

    def __enter__(self):
        try:
            self.make_certificates()
            self._run(["go", "build", "-o", self.folder / "backend", self.here / "backends" / "backend.go"])
            for key in BACKENDS:
                self.start(key)
            self.start_gateway()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in list(self.running):
            self.stop(name)

    def _run(self, words):
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
        if done.returncode:
            raise servers.ServerError(f"{words[0]}: {(done.stdout + done.stderr).strip()[-500:]}")

    def _start(self, name, command, ready, **options):
        os.environ["SHOP_NAME"] = SHOP_NAME
        found = servers.Server(list(map(str, command)), ready=ready, **options)
        self.running[name] = found.__enter__()

    def start(self, key):
        """Starts one of BACKENDS."""
        kind, name = BACKENDS[key]
        address = str(self.folder / "admin.sock") if key == "admin" else ("127.0.0.1", self.ports[key])
        options = {}
        if kind == "nginx":
            command = [programs.program("nginx"), "-c", "$SETTINGS", "-e", "stderr"]
            options = {"settings": self.here / "backends" / "nginx.conf", "names": {"$PAGES": f"127.0.0.1:{address[1]}"}}
        elif kind == "node":
            command = ["node", self.here / "backends" / "cart.js", name, *address]
        else:
            where = f"unix:{address}" if key == "admin" else f"127.0.0.1:{address[1]}"
            command = [self.folder / "backend", kind, name, where, self.here]
        self._start(name, command, lambda _: connects(address), **options)

    def start_gateway(self):
        self._start("gateway", [self.ours, "run", self.file], lambda _: self.admin("/readyz").status == 200)

    def make_certificates(self):
        """Makes them all, anew if there are such already."""
        self._run(["sh", self.here / "certificates.sh"])

    def stop(self, name):
        """Ends a server by its name."""
        self.running.pop(name).end()

    @property
    def gateway(self):
        return self.running["gateway"]

    def admin(self, path, method="GET", body=None):
        """Asks the administration."""
        return asking.ask(self.ports[9901], method, path, "localhost", body=body)

    def plain(self, target, host="shop.example"):
        return asking.ask(self.ports[8080], "GET", target, host)

    def tls(self, name="shop.example", client=None):
        """For a connection to the address with TLS: what is trusted, and the server's name."""
        own = "shop" if name in ("shop.example", "www.shop.example") else "wildcard"
        chain = (self.here / f"{client}.crt", self.here / f"{client}.key") if client else None
        return asking.trusting(self.here / f"{own}.crt", chain), name

    def connect(self, name="shop.example", client=None):
        return asking.Connection(self.ports[8443], self.tls(name, client))

    def ask(self, target, method="GET", headers=(), body=None, host="shop.example"):
        """One request over TLS on a connection of its own."""
        with self.connect(host) as connection:
            return connection.ask(method, target, host, headers, body)

    def backend(self, key, target="/control", method="GET"):
        """Asks a backend itself."""
        return asking.ask(self.ports[key], method, target, "backend").json()

    def logged(self, target):
        """The access log's line of a request, by its target, which no other request may have."""
        lines = map(json.loads, (self.folder / "access.log").read_text().splitlines())
        return next((line for line in lines if line.get("target") == target), None)
