"""Tests of the extensions part of the harness: the settings of each gateway, the table.

Starts no gateway. Asserts nothing about time. bench/smoke.sh runs it.
"""

import json
import pathlib
import tempfile
import types
import unittest

import extensions

CELL = extensions.Cell("closed-64", 64)


class Settings(unittest.TestCase):
    def test_each_kind_has_settings_whose_port_is_replaced(self):
        args = types.SimpleNamespace(ours="ringmain", edge="edge")
        with tempfile.TemporaryDirectory() as folder:
            known = extensions.subjects(args, 4242, 4343, folder)
            self.assertEqual(len(known), 2 * len(extensions.KINDS) - 1)
            for name, subject in known.items():
                text = subject.options["settings"].read_text()
                settings = json.loads(text.replace("$PORT", "8080"))
                self.assertIn("4242", text, name)
                self.assertTrue(settings)
            envoy = json.loads(pathlib.Path(folder, "ext-proc-envoy.yaml").read_text().replace("$PORT", "8080"))
        address = envoy["static_resources"]["listeners"][0]["address"]["socket_address"]
        self.assertEqual(address["port_value"], 8080)

    def test_every_kind_but_the_filter_has_its_filter_in_envoy(self):
        with_filters = [kind for kind in extensions.KINDS if extensions.envoy_filters(kind)]
        self.assertEqual(with_filters, ["authz-http", "authz-grpc", "rate-limit", "ext-proc"])


class Table(unittest.TestCase):
    def test_the_request_without_an_extension_is_taken_away(self):
        def figures(*values):
            return {CELL: {number: {"us_per_message": value} for number, value in enumerate(values)}}

        results = {"ours none": figures(10, 12), "ours ext-proc": figures(30, 34), "envoy none": figures(20, 20),
                   "envoy ext-proc": figures(96, 96)}
        self.assertEqual(extensions.added(results, "ours ext-proc", CELL), [20, 22])
        lines = extensions.table(results, CELL)
        self.assertIn("| ext-proc | 32.00 | 21.00 (20.50 to 21.50) | 96.00 | 76.00 (76.00 to 76.00) | 3.00 |", lines)
        self.assertIn("| filter |  |  |  |  |  |", lines)


if __name__ == "__main__":
    unittest.main()
