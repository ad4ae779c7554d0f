"""A network of its own for a broker, with a link that a case takes down and up; and a worker thread that a case suspends.

Needs root, for `ip netns` and ptrace. Standard library only.
"""

import contextlib
import ctypes
import os
import pathlib
import random
import subprocess
import threading

import rig

CLONE_NEWNET = 0x40000000
PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
WALL = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
LIBC.ptrace.restype = ctypes.c_long


class Network:
    """A network namespace that is connected to the machine's by a pair of virtual interfaces. It ends with the case.

    While the link is down, packets of both sides are dropped: no reset and no end of a connection arrives. Producers that are started
    inside reach the broker all the same.
    """

    def __init__(self, case):
        rig.need("ip")
        if os.getuid() != 0:
            raise rig.Skipped("needs root, to make a network namespace")
        name = f"ringmain{os.getpid()}"
        self.name, self.outer, self.inner = name, f"rm{os.getpid()}a", f"rm{os.getpid()}b"
        # One of the 32,768 networks of four addresses in the range for benchmarks (RFC 2544).
        base = (198 << 24 | 18 << 16) + 4 * random.randrange(1 << 15)
        gateway, self.host = (".".join(str(address >> shift & 255) for shift in (24, 16, 8, 0)) for address in (base + 1, base + 2))
        made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
        if made.returncode != 0:
            raise rig.Skipped(f"needs network namespaces: {made.stderr.strip()}")
        # Its interfaces go with it.
        case.stack.callback(subprocess.run, ["ip", "netns", "delete", name], capture_output=True)
        self.ip("link", "add", self.outer, "type", "veth", "peer", "name", self.inner, "netns", name)
        self.ip("address", "add", f"{gateway}/30", "dev", self.outer)
        self.ip("link", "set", self.outer, "up")
        self.inside("address", "add", f"{self.host}/30", "dev", self.inner)
        self.inside("link", "set", self.inner, "up")
        self.inside("link", "set", "lo", "up")

    @staticmethod
    def ip(*words):
        done = subprocess.run(["ip", *words], capture_output=True, text=True)
        rig.check(done.returncode == 0, f"ip {' '.join(words)}: {done.stderr.strip()}")

    def inside(self, *words):
        self.ip("-n", self.name, *words)

    def command(self):
        """Returns the words before a command that is to run inside."""
        return ["ip", "netns", "exec", self.name]

    def cut(self):
        """Takes the broker's side of the link down."""
        self.inside("link", "set", self.inner, "down")

    def restore(self):
        """Takes it up again."""
        self.inside("link", "set", self.inner, "up")

    @contextlib.contextmanager
    def entered(self):
        """Opens the sockets of this thread inside."""
        with open(f"/proc/self/task/{threading.get_native_id()}/ns/net") as own, open(f"/run/netns/{self.name}") as other:
            enter(other)
            try:
                yield
            finally:
                enter(own)


def enter(namespace):
    if LIBC.setns(namespace.fileno(), CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def thread_of(process, name):
    """Returns the identifier of a process's thread."""
    found = [int(task.name) for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir()
             if (task / "comm").read_text().strip() == name]
    rig.expect(f"threads named {name}", 1, len(found))
    return found[0]


class Suspended:
    """A thread of another process that runs nothing until `resume`; the other threads of its process continue."""

    def __init__(self, thread):
        self.thread, self.failure = thread, None
        self.is_stopped, self.is_over = threading.Event(), threading.Event()
        # ptrace takes orders from the thread that attached only.
        self.tracer = threading.Thread(target=self.trace, daemon=True)
        self.tracer.start()
        rig.check(self.is_stopped.wait(10), "the thread was not suspended")
        if self.failure:
            raise rig.Skipped(f"needs ptrace: {os.strerror(self.failure)}")

    def trace(self):
        if LIBC.ptrace(PTRACE_SEIZE, self.thread, None, None) != 0:
            self.failure = ctypes.get_errno()
            return self.is_stopped.set()
        LIBC.ptrace(PTRACE_INTERRUPT, self.thread, None, None)
        os.waitpid(self.thread, WALL)
        self.is_stopped.set()
        self.is_over.wait()
        # Where the process was killed meanwhile, there is nothing to detach from.
        LIBC.ptrace(PTRACE_DETACH, self.thread, None, None)

    def resume(self):
        self.is_over.set()
        self.tracer.join(10)
