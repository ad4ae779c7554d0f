"""Chromium without a window, controlled over a pipe (DevTools protocol), so that it may run in another network namespace.

Knows nothing about pages of the documentation. Standard library only.
"""

import base64
import fcntl
import json
import os
import select
import signal
import subprocess
import time

WIDTH = 1280
SECONDS = 30.0
# Above the descriptors 3 and 4, which Chromium reads and writes.
FREE_FD = 64


class BrowserError(Exception):
    """Chromium failed, or a page is not as expected; the text has the expected and the found value."""


class Browser:
    """A browser with one page. The caller closes it."""

    def __init__(self, program, folder, prefix=()):
        ours, theirs = os.pipe(), os.pipe()
        read_fd, write_fd = (fcntl.fcntl(fd, fcntl.F_DUPFD, FREE_FD) for fd in (ours[0], theirs[1]))
        # Root has no sandbox.
        flags = ["--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu", "--hide-scrollbars",
                 "--force-color-profile=srgb", f"--user-data-dir={folder}", *(["--no-sandbox"] if os.getuid() == 0 else []), "about:blank"]
        command = [*prefix, "bash", "-c", f'exec "$@" 3<&{read_fd} 4>&{write_fd}', "bash", program, *flags]
        self.log = open(os.path.join(folder, "chromium.log"), "wb")
        self.child = subprocess.Popen(command, pass_fds=(read_fd, write_fd), stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                      start_new_session=True)
        for fd in (ours[0], theirs[1], read_fd, write_fd):
            os.close(fd)
        self.writer, self.reader = ours[1], theirs[0]
        self.unread, self.number, self.session = b"", 0, None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def call(self, method, **parameters):
        """Returns the result of a call."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.writer, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + SECONDS
        while True:
            reply = self.receive(deadline)
            if reply.get("id") != self.number:
                continue
            if "error" in reply:
                raise BrowserError(f"{method}: {reply['error']}")
            return reply["result"]

    def receive(self, deadline):
        """Returns the next message."""
        while b"\0" not in self.unread:
            if not select.select([self.reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise BrowserError(f"no reply of Chromium within {SECONDS:g} s")
            received = os.read(self.reader, 1 << 16)
            if not received:
                raise BrowserError(f"Chromium has exited with {self.child.wait(5)}")
            self.unread += received
        message, _, self.unread = self.unread.partition(b"\0")
        return json.loads(message)

    def open(self, url):
        """Opens an address."""
        failure = self.call("Page.navigate", url=url).get("errorText")
        if failure:
            raise BrowserError(f"{url}: {failure}")

    def evaluate(self, script):
        """Returns the value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise BrowserError(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def text(self, selector):
        """Returns the text of the first element of a selector, or None."""
        return self.evaluate(f"document.querySelector({json.dumps(selector)})?.textContent.trim() ?? null")

    def screenshot(self, height, path):
        """Writes a picture of the top of the page, 1280 pixels wide."""
        self.call("Emulation.setDeviceMetricsOverride", width=WIDTH, height=height, deviceScaleFactor=1, mobile=False)
        # Fonts and transitions.
        self.evaluate("new Promise((done) => { setTimeout(done, 1500); })")
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png", optimizeForSpeed=False)["data"]))

    def close(self):
        """Ends Chromium."""
        os.close(self.writer)
        try:
            self.child.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(self.child.pid, signal.SIGKILL)
            self.child.wait()
        os.close(self.reader)
        self.log.close()
