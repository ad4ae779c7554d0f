#!/usr/bin/env python3
"""Runs the five tutorials of docs/tutorials from their own text, each in an empty folder, to the result that it promises.

    cargo build --release && tests/tutorials/run.py [--binary PATH] [--screenshots] [NAME ...]

A page is followed in a network namespace of its own, where programs have the ports that it names (reader.py explains the words of its
blocks). `ringmain` is the program of `--binary`; `cargo` uses this checkout in place of the published crate, and `git clone` copies it.
Exit code: 0 every page leads to its result, 1 a page does not, 2 a program is missing.
"""

import argparse
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time

import network
import reader as readers
from reader import marked_page

FOLDER = readers.REPO / "docs" / "tutorials"

# The name of each page, its result, and the programs that it needs besides `ringmain`.
TUTORIALS = {
    "json-api": ("a row in the database", ["cargo", "cc", "curl", "sqlite3"]),
    "gateway": ("a point in Prometheus's query API", ["curl", "openssl", "prometheus"]),
    "live-prices": ("a price in the DOM of Chromium", ["chromium", "nats-server", "python3"]),
    "find-the-limit": ("a report", ["chromium", "sysctl"]),
    "first-change": ("a failing test that passes after the change", ["cargo", "cc", "git"]),
}


def environment(folder, name, options):
    """Returns the variables of a reader's terminals. With `json-api` cargo takes the crate from this checkout."""
    programs = folder / "programs"
    programs.mkdir()
    (programs / "ringmain").symlink_to(options.binary)
    # A reader is root in the namespace, with or without `sudo` on this machine.
    (programs / "sudo").write_text('#!/bin/sh\nexec "$@"\n')
    (programs / "sudo").chmod(0o755)
    if name == "json-api":
        # Found by every cargo below.
        (folder / ".cargo").mkdir()
        (folder / ".cargo" / "config.toml").write_text(f'[patch.crates-io]\nringmain = {{ path = "{readers.REPO}" }}\n')
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("CARGO_TARGET_", "RINGMAIN_"))}
    if options.target:
        variables["CARGO_TARGET_DIR"] = str(options.target.resolve() / name)
    return variables | {
        "PATH": f"{programs}:{os.environ['PATH']}:/usr/sbin:/sbin", "NO_COLOR": "1", "CARGO_TERM_COLOR": "never", "CARGO_INCREMENTAL": "0",
        "GIT_AUTHOR_NAME": "You", "GIT_AUTHOR_EMAIL": "you@example.com", "GIT_COMMITTER_NAME": "You", "GIT_COMMITTER_EMAIL": "you@example.com",
        "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": f"url.file://{readers.REPO}.insteadOf",
        "GIT_CONFIG_VALUE_0": "https://github.com/ringmain/ringmain",
    }


def follow(name, options):
    """Follows a tutorial. Returns the number of its steps."""
    page = FOLDER / f"{name}.md"
    length = marked_page.words(page)
    if length > marked_page.WORDS:
        raise readers.Failed(f"{page.name} has {length} words: expected at most {marked_page.WORDS}")
    for program in TUTORIALS[name][1]:
        if not shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin"):
            raise readers.Skipped(f"needs `{program}`")
    with tempfile.TemporaryDirectory(prefix="tutorial-", dir=options.folder, ignore_cleanup_errors=True) as folder:
        folder = pathlib.Path(folder)
        net = network.Network()
        if not net.prefix:
            raise readers.Skipped("needs a network namespace: user namespaces, or root")
        reader = readers.Reader(page, folder, net.prefix, environment(folder, name, options), options.screenshots)
        reader.transcript = options.transcript
        try:
            return reader.follow()
        finally:
            reader.close()
            net.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--binary", type=pathlib.Path, default=readers.REPO / "target" / "release" / "ringmain",
                        help="the program under test (default: the release build)")
    parser.add_argument("--screenshots", action="store_true", help="write the pictures of the pages to docs/images")
    parser.add_argument("--transcript", type=argparse.FileType("w"), metavar="FILE", help="write each command and its output, to update the pages")
    parser.add_argument("--folder", type=pathlib.Path, help="where temporary folders are made; builds take 2 GB")
    parser.add_argument("--target", type=pathlib.Path, help="keep what cargo builds in this folder, for the next run (default: built from nothing)")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"tutorials (default: all): {', '.join(TUTORIALS)}")
    options = parser.parse_args()
    options.binary = options.binary.resolve()
    if unknown := set(options.names) - set(TUTORIALS):
        parser.error(f"unknown tutorials: {', '.join(sorted(unknown))}")
    if not options.binary.exists():
        print(f"{options.binary} does not exist: build it with `cargo build --release`, or name another with --binary", file=sys.stderr)
        return 2
    # The `finally` of `follow` ends what runs.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    counts = {"ok": 0, "FAILED": 0, "skipped": 0}
    for name in options.names or TUTORIALS:
        begun, text = time.monotonic(), ""
        try:
            outcome, detail = "ok", f"{follow(name, options)} steps, ends with {TUTORIALS[name][0]}"
        except readers.Skipped as why:
            outcome, detail = "skipped", str(why)
        except (readers.Failed, marked_page.PageError) as why:
            outcome, detail, text = "FAILED", f"expected {TUTORIALS[name][0]}", str(why)
        counts[outcome] += 1
        print(f"{outcome:8}{name:16}{detail} ({time.monotonic() - begun:.0f} s)", flush=True)
        for line in text.splitlines():
            print(f"        {line}", flush=True)
    print(f"{counts['ok']} passed, {counts['FAILED']} failed, {counts['skipped']} skipped")
    return 1 if counts["FAILED"] else 2 if counts["skipped"] else 0


if __name__ == "__main__":
    sys.exit(main())
