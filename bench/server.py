"""One server process under test: its start, readiness, CPU time, memory and end.

Must not know what is measured or compared. Every process started here is ended here, by
its pid. Standard library only; Linux only.
"""

import os
import pathlib
import pwd
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

REPO = pathlib.Path(__file__).resolve().parent.parent
TARGET = REPO / (os.environ.get("CARGO_TARGET_DIR") or "target")
PEERS = pathlib.Path(os.environ.get("PEERS") or REPO / "target" / "peers")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
READY_SECONDS = 20.0
END_SECONDS = 5.0
TAIL_BYTES = 4096
# clock_gettime's id of another process's CPU time clock: the inverted pid, and kind 2
# (scheduled time: user + system in nanoseconds, ended threads included).
CPU_CLOCK_KIND = 2


class ServerError(Exception):
    """The server did not start, answer or survive; the text says which, with its last output."""


RESERVED = []


def free_port():
    """A port of 127.0.0.1 that no other socket is given as long as this process lives: it stays bound, but does not listen.

    Servers that set SO_REUSEADDR, as they all do, listen there all the same. A new one for every start: an io_uring server's
    listener outlives its process a little.
    """
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("127.0.0.1", 0))
    RESERVED.append(s)
    return s.getsockname()[1]


def end_on_signals():
    """Turns SIGTERM and SIGINT into SystemExit, so that `with Server(...)` ends its process."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGINT, lambda *_: sys.exit(130))


def prepare_child(cpu=None, descriptors=None):
    """What a child does before exec: go to `cpu`, accept a limit of `descriptors`."""

    def prepare():
        if cpu is not None:
            os.sched_setaffinity(0, {cpu})
        if descriptors is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

    return prepare


def echoes(port):
    """Whether an echo server answers on `port`; OSError while nobody listens."""
    with socket.create_connection(("127.0.0.1", port), 1) as s:
        s.sendall(b"ready?")
        return s.recv(64) == b"ready?"


class Server:
    """A server, running within a `with` block.

    `$PORT` in the command's arguments is replaced by the port, which is also in the
    environment as PORT; so are those of `names`, {name: what stands for it}. `cpu`: the only
    CPU it may use. `descriptors`: its RLIMIT_NOFILE.
    `ready`: a function of the port, true once the server answers, which may take `ready_seconds`. `settings`: a file whose
    copy, with `$PORT`, `$USER`, `$FOLDER` (a new one, removed at the end), `$HERE` (the
    file's own) and those of `names` replaced, stands for `$SETTINGS` in the command.
    """

    def __init__(self, command, cpu=None, descriptors=None, ready=echoes, settings=None, names=None, ready_seconds=READY_SECONDS):
        self.port = free_port()
        self.ready, self.ready_seconds = ready, ready_seconds
        self._tail = b""
        self._folder = tempfile.TemporaryDirectory(prefix="bench-")
        names = {"$PORT": str(self.port), **(names or {})}
        names["$SETTINGS"] = self._write_settings(settings, names)
        self.command = [_replaced(a, names) for a in command]
        try:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=dict(os.environ, PORT=str(self.port)),
                start_new_session=True,
                preexec_fn=prepare_child(cpu, descriptors),
            )
        except (OSError, subprocess.SubprocessError) as e:
            self._folder.cleanup()
            raise ServerError(f"cannot start {self.command[0]}: {e}") from e
        self._reader = threading.Thread(target=self._read_output, daemon=True)
        self._reader.start()

    def _write_settings(self, settings, more):
        """The path of the file for this run; empty if there is none."""
        if not settings:
            return ""
        names = {"$FOLDER": self._folder.name, "$HERE": str(pathlib.Path(settings).parent),
                 "$USER": pwd.getpwuid(os.getuid()).pw_name, **more}
        path = pathlib.Path(self._folder.name, pathlib.Path(settings).name)
        path.write_text(_replaced(pathlib.Path(settings).read_text(), names))
        return str(path)

    def __enter__(self):
        try:
            self._wait_ready()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_):
        self.end()

    def _wait_ready(self):
        deadline = time.monotonic() + self.ready_seconds
        while True:
            if self.process.poll() is not None:
                raise ServerError(f"exited with {self.process.returncode} at start: {self.last_output()}")
            try:
                if self.ready(self.port):
                    return
            except OSError:
                pass  # not listening yet
            if time.monotonic() > deadline:
                raise ServerError(f"no answer on port {self.port} within {self.ready_seconds:g} s: {self.last_output()}")
            time.sleep(0.02)

    def _read_output(self):
        """Keeps the pipe empty and the last of it in memory: a server that floods its log fills no disk."""
        while chunk := os.read(self.process.stdout.fileno(), 65536):
            self._tail = (self._tail + chunk)[-TAIL_BYTES:]

    def alive(self):
        """Whether the started process still runs."""
        return self.process.poll() is None

    def last_output(self, lines=5):
        """The end of what the server wrote to standard output and error, on one line."""
        if not self.alive():
            self._reader.join(1)  # what it wrote last may still be in the pipe
        text = self._tail.decode(errors="replace")
        return " / ".join(text.strip().splitlines()[-lines:]) or "(no output)"

    def pids(self):
        """The process and all its descendants."""
        children = {}
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                parent = _stat_fields(entry, 1)
                if parent:
                    children.setdefault(parent[0], []).append(int(entry))
        found, todo = [], [self.process.pid]
        while todo:
            pid = todo.pop()
            found.append(pid)
            todo += children.get(pid, [])
        return found

    def cpu(self):
        """CPU seconds so far: (user + system exactly, user, system), the latter two in ticks."""
        exact = user = system = 0.0
        for pid in self.pids():
            try:
                exact += time.clock_gettime_ns((~pid << 3) | CPU_CLOCK_KIND) / 1e9
            except OSError:
                continue  # a descendant that ended meanwhile
            u, s = _stat_fields(pid, 11, 12) or (0, 0)
            user += u / TICKS_PER_SECOND
            system += s / TICKS_PER_SECOND
        return exact, user, system

    def memory(self):
        """Resident bytes of the process tree: VmRSS, RssAnon (without files), VmHWM (the most ever)."""
        total = {"VmRSS": 0, "RssAnon": 0, "VmHWM": 0}
        for pid in self.pids():
            try:
                status = pathlib.Path(f"/proc/{pid}/status").read_text()
            except OSError:
                continue
            for key in total:
                m = re.search(rf"^{key}:\s+(\d+) kB", status, re.M)
                total[key] += int(m.group(1)) * 1024 if m else 0
        return total

    def end(self):
        """SIGTERM, and SIGKILL to what is left after END_SECONDS."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in self.pids() if self.alive() else []:
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass
            try:
                self.process.wait(END_SECONDS)
                break
            except subprocess.TimeoutExpired:
                continue
        self._reader.join(1)
        if not self._reader.is_alive():
            self.process.stdout.close()
        self._folder.cleanup()


def _replaced(text, names):
    for name, value in names.items():
        text = text.replace(name, value)
    return text


def _stat_fields(pid, *indices):
    """Numeric fields of /proc/PID/stat, counted from after the name; None if it has ended."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return [int(fields[i]) for i in indices]


def core_use(cpu):
    """(busy, stolen, total) seconds of one CPU since boot."""
    line = re.search(rf"^cpu{cpu} (.*)$", pathlib.Path("/proc/stat").read_text(), re.M)
    v = [int(x) / TICKS_PER_SECOND for x in line.group(1).split()[:8]]
    return sum(v) - v[3] - v[4] - v[7], v[7], sum(v)
