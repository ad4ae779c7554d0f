"""Whole configurations in README.md and below docs/ are valid, as `ringmain check` of the development build says.

A block of YAML with a listener is whole. Files that it names need not exist. bench/smoke.sh runs it.
"""

import os
import pathlib
import re
import subprocess
import tempfile
import textwrap
import unittest

import server as servers

ROOT = pathlib.Path(__file__).resolve().parent.parent
RINGMAIN = servers.TARGET / "debug/ringmain"
BLOCK = re.compile(r"^[ ]*```yaml\n(.*?)^[ ]*```$", re.M | re.S)
WHOLE = re.compile(r"^(listen|listeners|kubernetes):", re.M)

# Pages whose configurations need a program of the reader's: custom filters.
OF_PROGRAMS = {"docs/filters.md"}

# A value for each variable that a configuration reads: long enough for a key.
VALUE = "0123456789abcdef" * 4


def configurations(text):
    """Yields line and text of each whole configuration of a page."""
    for match in BLOCK.finditer(text):
        block = textwrap.dedent(match.group(1))
        if WHOLE.search(block):
            yield text[: match.start()].count("\n") + 2, block


def errors(block, folder):
    """Returns the errors of `ringmain check`, without warnings and those about missing files."""
    (folder / "page.yaml").write_text(block)
    variables = {name: VALUE for name in re.findall(r"\$\{env:(\w+)", block)}
    done = subprocess.run(
        [RINGMAIN, "check", "page.yaml"],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = (done.stdout + done.stderr).splitlines()
    ignored = (": valid: ", ": warning: ", "No such file or directory")
    return [line for line in lines if line.startswith("page.yaml:") and not any(text in line for text in ignored)]


class Pages(unittest.TestCase):
    def test_blocks_with_a_listener_are_whole(self):
        page = "# A\n\n```yaml\nlisten: :80\n```\n\n```yaml\nroutes: {}\n```\n- b\n\n  ```yaml\n  listen: :81\n  ```\n"
        self.assertEqual(list(configurations(page)), [(4, "listen: :80\n"), (13, "listen: :81\n")])

    @unittest.skipUnless(RINGMAIN.exists(), "not built")
    def test_configurations_are_valid(self):
        pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
        count, found = 0, []
        with tempfile.TemporaryDirectory(prefix="pages-") as name:
            for page in pages:
                path = str(page.relative_to(ROOT))
                if path in OF_PROGRAMS:
                    continue
                for line, block in configurations(page.read_text()):
                    count += 1
                    found += [f"{path}:{line}: {error}" for error in errors(block, pathlib.Path(name))]
        self.assertGreater(count, 5)
        self.assertEqual(found, [], "\n".join(found))


if __name__ == "__main__":
    unittest.main()
