"""The quick starts of README.md work as written, with the development build.

Needs `ringmain` and the example `hello` (`cargo test --workspace --no-run` builds both), bash, curl, openssl. bench/smoke.sh runs it.
"""

import unittest

import readme
import server as servers

RINGMAIN = servers.TARGET / "debug/ringmain"
HELLO = servers.TARGET / "debug/examples/hello"


class Readme(unittest.TestCase):
    def test_each_quick_start_has_expectations(self):
        titles = [title for title, _ in readme.quick_starts(readme.README.read_text())]
        self.assertEqual(titles, list(readme.EXPECTED))
        for _, lines in readme.quick_starts(readme.README.read_text()):
            self.assertLessEqual(len(lines), 3)

    def test_ports_are_replaced_once(self):
        ports = readme.Ports()
        text = ports.replace("127.0.0.1:8080 :3000/x 18080:80801")
        self.assertEqual(text, f"127.0.0.1:{ports.of('8080')} :{ports.of('3000')}/x 18080:80801")

    @unittest.skipUnless(RINGMAIN.exists() and HELLO.exists(), "not built")
    def test_quick_starts_work(self):
        for title, text, output in readme.missing(RINGMAIN, HELLO):
            self.fail(f"{title}: expected {text!r}; found\n{output}")


if __name__ == "__main__":
    unittest.main()
