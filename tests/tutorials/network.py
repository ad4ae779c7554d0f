"""A network namespace with a loopback interface alone, in which a tutorial has the ports that it names.

Works without root where the kernel permits user namespaces. Linux; standard library and util-linux's `unshare` and `nsenter`.
"""

import os
import subprocess
import sys

# Brings the loopback interface up (SIOCGIFFLAGS, SIOCSIFFLAGS with IFF_UP), says so, and holds the namespace until its input ends.
HOLDER = """
import fcntl, socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    request = struct.pack("16sH14x", b"lo", 0)
    flags = struct.unpack("16sH14x", fcntl.ioctl(s, 0x8913, request))[1]
    fcntl.ioctl(s, 0x8914, struct.pack("16sH14x", b"lo", flags | 1))
print("up", flush=True)
sys.stdin.read()
"""


class Network:
    """A namespace, which the caller closes. `prefix` are the words before a command that is to run inside; empty: none could be made."""

    def __init__(self):
        is_root = os.getuid() == 0
        flags = ["--net"] if is_root else ["--user", "--map-root-user", "--net"]
        self.child = subprocess.Popen(["unshare", *flags, sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True)
        self.prefix = []
        if self.child.stdout.readline() == "up\n":
            user = [] if is_root else ["--user", "--preserve-credentials"]
            self.prefix = ["nsenter", f"--target={self.child.pid}", "--net", *user, "--"]

    def close(self):
        """Ends the process that holds the namespace."""
        self.child.stdin.close()
        self.child.wait(5)
        self.child.stdout.close()
        self.child.stderr.close()
