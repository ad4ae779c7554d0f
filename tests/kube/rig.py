"""The rig of tests against a real API server: its processes, the administrator's access to it, and tools to wait with."""

import base64
import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.request

NAME = f"ringmain-faults-{os.getpid()}"
WITHIN = 30.0


class Rig:
    """The API server, and the administrator's access to it."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.state = pathlib.Path(tempfile.gettempdir()) / NAME
        self.env = {**os.environ, "RIG_NAME": NAME, "RIG_STATE": str(self.state)}
        for number, port in enumerate(["RIG_API_PORT", "RIG_ETCD_PORT", "RIG_ETCD_PEER_PORT"]):
            self.env.setdefault(port, str(free_port()))

    def run(self, script, *args, text=None):
        command = [str(self.folder / script), *args]
        done = subprocess.run(command, env=self.env, input=text, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout

    def kubectl(self, *args, text=None):
        return self.run("in.sh", "kubectl", *args, text=text)

    def apply(self, *objects, namespace="shop"):
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.kubectl("apply", "-n", namespace, "-f", "-", text=text)

    def tries_apply(self, *objects):
        """Returns whether the API server has accepted the objects."""
        try:
            self.apply(*objects)
        except RuntimeError:
            return False
        return True

    def get(self, kind, name, namespace="shop"):
        return json.loads(self.kubectl("get", kind, name, "-n", namespace, "-o", "json"))

    def is_ready(self):
        try:
            return self.kubectl("get", "--raw", "/readyz") == "ok"
        except RuntimeError:
            return False

    def part(self, program):
        """The pid of the rig's process `kube PROGRAM`."""
        root = children(int((self.state / "pid").read_text()))[0]
        return next(pid for pid in children(root) if words(pid)[1:2] == [program])

    def kill_server(self):
        """Kills the API server. The rig's first process, which would end all others, is stopped until the end of the rig."""
        os.kill(children(int((self.state / "pid").read_text()))[0], signal.SIGSTOP)
        pid = self.part("apiserver")
        command = ["env", "-C", os.readlink(f"/proc/{pid}/cwd"), *words(pid)]
        os.kill(pid, signal.SIGKILL)
        return command

    def start_server(self, command):
        """Starts the API server again, as a process of the rig."""
        with (self.state / "log" / "apiserver-again.log").open("w") as log:
            return subprocess.Popen([str(self.folder / "in.sh"), *command], env=self.env, stdout=log, stderr=log)


def children(pid):
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def words(pid):
    return pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]


class Admin:
    """Requests to the API server as the administrator, over one connection."""

    def __init__(self, rig):
        config = json.loads(rig.kubectl("config", "view", "--raw", "-o", "json"))
        self.headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
        self.connection = http.client.HTTPSConnection("127.0.0.1", int(rig.env["RIG_API_PORT"]), context=unverified(), timeout=20)

    def request(self, method, path, body=None):
        """Returns an object, or nothing if there is no such object."""
        form = "application/merge-patch+json" if method == "PATCH" else "application/json"
        self.connection.request(method, path, body and json.dumps(body), {**self.headers, "Content-Type": form})
        response = self.connection.getresponse()
        text = response.read()
        if response.status == 404:
            return None
        if response.status >= 300:
            raise AssertionError(f"{method} {path}: {response.status} {text.decode()}")
        return json.loads(text)


class Process:
    """A process whose CPU time and memory are read."""

    def __init__(self, command, log, env=None):
        self.log = log
        with log.open("w") as out:
            self.process = subprocess.Popen(command, env={**os.environ, **(env or {})}, stdout=out, stderr=out)

    def cpu(self):
        """CPU seconds of the process, user and system."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident(self):
        """Resident memory in MB."""
        lines = pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Repeated:
    """Calls functions again and again, each in a thread of its own, until the end of the block."""

    def __init__(self, *functions):
        self.is_over = threading.Event()
        self.errors = []
        self.threads = [threading.Thread(target=self.repeat, args=(function,)) for function in functions]

    def repeat(self, function):
        try:
            while not self.is_over.wait(0.02):
                function()
        except Exception as error:
            self.errors.append(error)

    def __enter__(self):
        for thread in self.threads:
            thread.start()

    def __exit__(self, kind, *_):
        self.is_over.set()
        for thread in self.threads:
            thread.join()
        if self.errors and kind is None:
            raise self.errors[0]


class Slices:
    """A process that is stopped for a part of the time, by turns, until the end of the block."""

    def __init__(self, pid, stopped, runs):
        self.turns = ((signal.SIGSTOP, stopped), (signal.SIGCONT, runs))
        self.pid = pid
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.is_over.is_set():
            for how, time_left in self.turns:
                os.kill(self.pid, how)
                self.is_over.wait(time_left)
        os.kill(self.pid, signal.SIGCONT)

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def status(url):
    """The status of a response, or the error in a word."""
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError as error:
        return type(error).__name__


def until(what, check, within=WITHIN):
    """Waits until `check` returns something true, and returns that."""
    end = time.monotonic() + within
    while True:
        found = check()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"not within {within} s: {what}")
        time.sleep(0.05)


def own_address():
    """An address of this host that is not of the loopback interface; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return probe.getsockname()[0]


def unverified():
    """Settings of a TLS client that accepts any certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def certificate(folder, name):
    """A Secret with a new certificate, and that certificate."""
    chain, key = folder / f"{name}.crt", folder / f"{name}.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    command += ["-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}.example", "-keyout", str(key), "-out", str(chain)]
    subprocess.run(command, check=True, capture_output=True)
    data = {"tls.crt": base64.b64encode(chain.read_bytes()).decode(), "tls.key": base64.b64encode(key.read_bytes()).decode()}
    secret = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": {"name": "cert"}, "data": data}
    return secret, ssl.PEM_cert_to_DER_cert(chain.read_text())


def presented(address):
    """The certificate that a TLS server presents; nothing if it does not."""
    try:
        with socket.create_connection((address, 18443), timeout=5) as plain, unverified().wrap_socket(plain) as secured:
            return secured.getpeercert(binary_form=True)
    except OSError:
        return None
