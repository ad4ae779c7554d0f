"""Which program is taken, its version, and symbols in a file of their own.

Needs gcc; starts nothing that listens. bench/smoke.sh runs it.
"""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest
from unittest import mock

import programs
import server as servers
import symbols


class Programs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="programs-")
        self.addCleanup(folder.cleanup)
        self.peers = pathlib.Path(folder.name)
        (self.peers / "bin").mkdir()
        self.enterContext(mock.patch.object(servers, "PEERS", self.peers))

    def add(self, name, text):
        path = self.peers / "bin" / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    def test_a_program_built_here_is_preferred(self):
        self.assertEqual(programs.program("no-such-program"), "no-such-program")
        self.assertEqual(programs.program("sh"), shutil.which("sh"))
        path = self.add("sh", "exit")
        self.assertEqual(programs.program("sh"), path)

    def test_versions_name_the_origin(self):
        self.add("nginx", "exec >&2; echo 'nginx version: nginx/1.26.3'; echo 'built with OpenSSL 3.5.1'; echo more")
        self.assertEqual(programs.version("nginx"), "nginx: nginx version: nginx/1.26.3, built with OpenSSL 3.5.1, built here")
        with mock.patch.dict(os.environ, PATH=""), mock.patch.object(programs, "program", lambda name: name):
            self.assertEqual(programs.versions("haproxy"), [])


class Symbols(unittest.TestCase):
    def test_a_program_runs_without_its_symbols_and_names_their_file(self):
        with tempfile.TemporaryDirectory(prefix="symbols-") as name:
            folder = pathlib.Path(name)
            (folder / "p.c").write_text("int a_function_to_be_found(void) { return 7; }\nint main(void) { return a_function_to_be_found(); }\n")
            subprocess.run(["gcc", "-g", "-o", str(folder / "p"), str(folder / "p.c")], check=True)
            whole = (folder / "p").read_bytes()
            stripped, debug = symbols.split(folder / "p", folder / "out")
            self.assertEqual(subprocess.run([stripped], check=False).returncode, 7)
            self.assertIn(b"p.debug\0", stripped.read_bytes())
            self.assertNotIn(b"a_function_to_be_found", stripped.read_bytes())
            self.assertIn(b"a_function_to_be_found", debug.read_bytes())
            self.assertLess(stripped.stat().st_size, len(whole))
            self.assertEqual(sorted(path.name for path in (folder / "out").iterdir()), ["p", "p.debug"])
            self.assertEqual((folder / "p").read_bytes(), whole)


if __name__ == "__main__":
    unittest.main()
