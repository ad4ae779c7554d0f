"""Follows a tutorial as a reader does: writes its files, runs its commands, compares their outputs, opens its pages in a browser.

    sh                       run to its end, which must be a success; exports and `cd` last until the page ends
    sh fails                 the same, but the command must fail
    sh terminal=NAME         started, and left running; a second block of the same name presses Ctrl-C there first
    sh stop=NAME             presses Ctrl-C in that terminal first
    sh download              run to its end where registries can be reached, with time for a build
    sh poll                  repeated until its output is that of the next block
    text                     the output of the block before: whole lines, in this order, with `…` for any text
    text terminal=NAME       the same, of that terminal, after the lines that were compared before
    text varies              the same, but the figures may be any
    LANGUAGE file=NAME       written to this file
    LANGUAGE append file=NAME        appended to this file
    LANGUAGE after=TEXT file=NAME    inserted into this file, behind the first line that contains the text
    diff apply               applied to the files that it names

    <!-- browser open URL -->                     or `file:NAME`, a file beside the page's others
    <!-- browser expect SELECTOR REGEX -->        waits until the text of the element matches as a whole
    <!-- browser screenshot NAME HEIGHT -->       written to docs/images when the caller wants screenshots

Any other block is an error: the page shows nothing that is neither run nor compared.
"""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import browser

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))

import marked_page  # noqa: E402

REPO = pathlib.Path(__file__).resolve().parent.parent.parent
INSTRUCTIONS = ("browser",)
IMAGES = REPO / "docs" / "images"
# For outputs and elements that a step waits for.
WAIT_SECONDS = 60
RUN_SECONDS = 300
# For builds that start with nothing.
BUILD_SECONDS = 1500


class Failed(Exception):
    """The program differs from the page; the text has both."""


class Skipped(Exception):
    """The machine lacks a program that the page needs; the text names it."""


def match(output, step):
    """Returns the position behind the lines of a block in an output, else None."""
    return marked_page.match_lines(output, step.text, "varies" in step.words)


class Terminal:
    """A command that runs beside others, and its output."""

    def __init__(self, command, log, **options):
        self.log, self.read = log, 0
        with open(log, "wb") as output:
            self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
                                          **options)

    def output(self):
        """Returns all of its output."""
        return self.log.read_text(errors="replace")

    def stop(self):
        """Presses Ctrl-C, and waits for the end."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            if self.child.poll() is not None:
                break
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.child.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.child.wait(15)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.child.pid, signal.SIGKILL)


class Reader:
    """Follows a page in a folder of its own. The caller closes it."""

    def __init__(self, page, folder, prefix, environment, screenshots=False):
        self.page, self.folder, self.prefix, self.screenshots = page, folder, prefix, screenshots
        self.work = folder / "work"
        self.work.mkdir()
        self.cwd, self.env = self.work, environment
        self.terminals, self.browser, self.last, self.count, self.transcript = {}, None, "", 0, None

    def follow(self):
        """Runs every step. Returns their number."""
        found = marked_page.steps_of(self.page, INSTRUCTIONS)
        for step, after in zip(found, [*found[1:], None]):
            try:
                self.do(step, after)
            except (Failed, browser.BrowserError) as why:
                raise Failed(f"{self.page.name}:{step.line}: {why}\n{self.outputs()}") from None
        return len(found)

    def close(self):
        """Ends all that runs."""
        if self.browser:
            self.browser.close()
        for terminal in self.terminals.values():
            terminal.stop()

    def outputs(self):
        """Returns the ends of all outputs."""
        ends = [(name, terminal.output()) for name, terminal in self.terminals.items()]
        return "\n".join(f"--- {name}\n{text[-1500:]}" for name, text in [*ends, ("last", self.last)])

    def do(self, step, after):
        """Runs one step."""
        if step.kind == "browser":
            self.browse(*step.words)
        elif step.kind == "diff":
            patch = self.folder / "patch"
            patch.write_text(step.text + "\n")
            self.run(f"git apply '{patch}'")
        elif "file" in step.named:
            self.write(step)
        elif step.kind == "sh":
            self.shell(step, after)
        elif step.kind == "text":
            self.compare(step)
        else:
            raise Failed(f"a block of `{step.kind}` is neither run, written nor compared")

    def write(self, step):
        """Writes a file, or a part of one."""
        path = self.cwd / step.named["file"]
        text = step.text + "\n"
        if "append" in step.words:
            text = path.read_text() + text
        elif "after" in step.named:
            lines = path.read_text().splitlines(keepends=True)
            at = next((i for i, line in enumerate(lines) if step.named["after"] in line), None)
            if at is None:
                raise Failed(f"{path.name} has no line with {step.named['after']!r}")
            text = "".join([*lines[:at + 1], text, *lines[at + 1:]])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def shell(self, step, after):
        """Runs commands, or starts them."""
        if "stop" in step.named:
            self.terminals[step.named["stop"]].stop()
        if "terminal" in step.named:
            self.start(step.named["terminal"], step.text)
        elif "poll" in step.words:
            self.wait(lambda: match(self.run(step.text, None), after) is not None, f"the output\n{after.text}", lambda: self.last)
        else:
            self.run(step.text, "fails" not in step.words, "download" in step.words)

    def compare(self, step):
        """Compares the output of a terminal, or of the block before."""
        name = step.named.get("terminal")
        if name is None:
            if match(self.last, step) is None:
                raise Failed(f"expected\n{step.text}\nfound\n{self.last}")
            return
        terminal = self.terminals[name]

        def probe():
            has_ended = terminal.child.poll() is not None
            end = match(terminal.output()[terminal.read:], step)
            if end is None and has_ended:
                raise Failed(f"the command in the terminal {name} has exited with {terminal.child.returncode}, without\n{step.text}")
            return end

        terminal.read += self.wait(probe, f"in the terminal {name}\n{step.text}", lambda: terminal.output()[terminal.read:])

    def wait(self, probe, wanted, found):
        """Returns the first result of a probe that is neither None nor False."""
        deadline = time.monotonic() + WAIT_SECONDS
        while (result := probe()) is None or result is False:
            if time.monotonic() > deadline:
                raise Failed(f"expected {wanted}\nfound\n{found()}")
            time.sleep(0.2)
        return result

    def run(self, text, is_success=True, is_download=False):
        """Runs commands to their end, and returns their output. With `is_success` None they may do either."""
        state = self.folder / "state"
        script = f"{text}\n{{ pwd; env -0; }} > '{state}'"
        command = [*([] if is_download else self.prefix), "bash", "-e", "-o", "pipefail", "-c", script]
        seconds = BUILD_SECONDS if is_download else RUN_SECONDS
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.cwd,
                                   env=self.env, start_new_session=True)
        try:
            self.last = process.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise Failed(f"{text!r} does not end within {seconds} s:\n{process.communicate()[0]}") from None
        if self.transcript:
            self.transcript.write(f"$ {text}\n{self.last}\n")
        if is_success is not None and (process.returncode == 0) != is_success:
            raise Failed(f"{text!r} exited with {process.returncode}:\n{self.last}")
        if process.returncode == 0:
            folder, _, variables = state.read_text().partition("\n")
            self.cwd = pathlib.Path(folder)
            self.env = dict(pair.split("=", 1) for pair in variables.split("\0") if pair)
        return self.last

    def start(self, name, text):
        """Starts commands in a terminal, whose running ones end."""
        if name in self.terminals:
            self.terminals[name].stop()
        self.count += 1
        self.terminals[name] = Terminal([*self.prefix, "bash", "-c", text], self.folder / f"terminal{self.count}.log", cwd=self.cwd, env=self.env)

    def browse(self, action, *words):
        """Opens an address, waits for a text, or takes a picture."""
        if self.browser is None:
            program = shutil.which("chromium") or shutil.which("google-chrome")
            if program is None:
                raise Skipped("needs Chromium")
            folder = self.folder / "chromium"
            folder.mkdir()
            self.browser = browser.Browser(program, folder, self.prefix)
        if action == "open":
            self.browser.open(re.sub(r"^file:(?!/)", f"file://{self.cwd}/", words[0]))
        elif action == "expect":
            selector, wanted = words

            def probe():
                self.last = f"{self.browser.text(selector)}"
                return re.fullmatch(wanted, self.last) is not None

            self.wait(probe, f"{wanted!r} at {selector!r}", lambda: self.last)
        elif action == "screenshot":
            name, height = words
            if self.screenshots:
                self.browser.screenshot(int(height), IMAGES / name)
        else:
            raise Failed(f"unknown instruction: browser {action}")
