"""Tests of what shop.py, reload.py and routes.py stand on: how they read answers, move the file to other ports, find fault.

Needs nothing built; asserts nothing about time. bench/smoke.sh runs it.
"""

import contextlib
import io
import re
import socket
import threading
import unittest

import asking
import reload
import routes
import shop
import shop_cases
import shop_stage

FILE = shop_stage.EXAMPLES / "shop.yaml"


class Answering:
    """A server on a port of its own that answers one request, which ends with `end`, and keeps it."""

    def __init__(self, answer, end=b"\r\n\r\n"):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.answer, self.end, self.seen = answer, end, b""
        self.thread = threading.Thread(target=self.serve, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.listener.close()
        self.thread.join(asking.SECONDS)

    def serve(self):
        connection, _ = self.listener.accept()
        with connection:
            while not self.seen.endswith(self.end):
                self.seen += connection.recv(65536)
            connection.sendall(self.answer)


def asked(answer, method="GET", end=b"\r\n\r\n", **more):
    """What `asking.ask` makes of an answer, and what it sent."""
    with Answering(answer, end) as server:
        found = asking.ask(server.port, method, "/a?b", "host", **more)
    return found, server.seen


class Asking(unittest.TestCase):
    def test_a_request_as_it_leaves(self):
        answer, seen = asked(b"HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 2\r\n\r\nok", headers=[("X-One", "1"), ("X-One", "2")])
        self.assertEqual(seen, b"GET /a?b HTTP/1.1\r\nHost: host\r\nX-One: 1\r\nX-One: 2\r\n\r\n")
        self.assertEqual((answer.status, answer.field("a"), answer.field("c"), answer.body), (200, "b", None, b"ok"))

    def test_framings(self):
        head = b"HTTP/1.1 200 OK\r\n"
        for name, method, answer, body in (
                ("chunked", "GET", b"Transfer-Encoding: chunked\r\n\r\n2;x=y\r\nab\r\n1\r\nc\r\n0\r\nT: 1\r\n\r\n", b"abc"),
                ("until the end", "GET", b"\r\nabc", b"abc"), ("none", "HEAD", b"Content-Length: 3\r\n\r\n", b""),
                ("interim", "GET", b"\r\n".join([b"Content-Length: 0", b"", b""]), b"")):
            with self.subTest(name):
                first = b"HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n" if name == "interim" else b""
                self.assertEqual(asked(first + head + answer, method)[0].body, body)

    def test_fields_that_come_twice(self):
        answer, _ = asked(b"HTTP/1.1 204 No Content\r\nA: 1\r\na: 2\r\n\r\n")
        self.assertEqual((answer.status, answer.field("a"), answer.body), (204, "1, 2", b""))

    def test_what_is_no_answer(self):
        for answer in (b"", b"HTTP/1.1 200", b"SSH-2.0\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab"):
            with self.subTest(answer), self.assertRaises(asking.Broken):
                asked(answer)

    def test_bodies(self):
        ok = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
        self.assertIn(b"Content-Length: 3\r\n\r\nend", asked(ok, "POST", b"end", body=b"end")[1])
        self.assertIn(b"chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n", asked(ok, "POST", b"\n0\r\n\r\n", body=[b"ab", b"c"])[1])

    def test_messages_of_websockets(self):
        accepted = b"HTTP/1.1 101 Switching Protocols\r\n\r\n\x81\x02hi\x82\x7e\x01\x00" + bytes(256)
        with Answering(accepted) as server, asking.Connection(server.port) as connection:
            self.assertEqual(connection.upgrade("/", "host").status, 101)
            self.assertEqual([connection.message(), connection.message()], [(1, b"hi"), (2, bytes(256))])


class Stage(unittest.TestCase):
    def test_the_file_moves_as_a_whole(self):
        text = FILE.read_text()
        ports = {key: 40_000 + at for at, key in enumerate(sorted(shop_stage.places(text), key=str))}
        moved = shop_stage.moved(text, ports, "/folder")
        found = {int(port) for port in re.findall(r":(\d{4,5})\b", moved)} | {int(port) for port in re.findall(r"port: (\d+)", moved)}
        self.assertEqual(found - set(ports.values()), set())
        self.assertNotIn(" 0.0.0.0:", moved)
        self.assertNotIn("/run/", moved)

    def test_each_backend_is_in_the_file(self):
        missing = set(shop_stage.BACKENDS) - shop_stage.places(FILE.read_text()) - {"admin"}
        self.assertEqual(missing, set())

    def test_expectations(self):
        shop_stage.expect("one", 1, 1)
        with self.assertRaisesRegex(shop_stage.Failed, "expected one: 1, found 2"):
            shop_stage.expect("one", 1, 2)
        with self.assertRaisesRegex(shop_stage.Failed, "expected it within"):
            shop_stage.until("it", lambda: False, guard=0)

    def test_each_failure_is_told(self):
        def fails(_):
            raise shop_stage.Failed("expected this, found that")

        class Alive:
            class gateway:
                alive = staticmethod(lambda: True)

        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            wrong = shop.run(Alive, [("right", lambda _: None), ("wrong", fails)])
        self.assertEqual(wrong, 1)
        self.assertRegex(said.getvalue(), r"ok +right.*\nFAILED +wrong: Failed: expected this, found that")

    def test_cases_have_names_of_their_own(self):
        names = [name for name, _ in shop_cases.CASES]
        self.assertEqual(len(names), len(set(names)))


class Held(unittest.TestCase):
    def test_what_went_wrong_is_told_at_the_end(self):
        class Wrong(reload.Held):
            def hold(self):
                raise shop_stage.Failed("expected an echo")

        with self.assertRaisesRegex(shop_stage.Failed, "Wrong: Failed: expected an echo"):
            with reload.all_of([Wrong()]):
                pass


class Files(unittest.TestCase):
    def test_versions_differ_where_they_should(self):
        ports = dict.fromkeys(["plain", "secure", "admin", "one", "other", "live"], 1)
        texts = {reload.text_of(version, ports) for version in range(210)}
        self.assertEqual(len(texts), 210)
        ports = dict.fromkeys(["plain", "admin", "nobody"], 1)
        one, other = (routes.text_of(9, version, ports).splitlines() for version in (1, 2))
        self.assertEqual([(a, b) for a, b in zip(one, other) if a != b],
                         [tuple(f'      - {{match: {{path: {{exact: /status}}}}, respond: {{body: "4.{v}"}}}}' for v in (1, 2))])


if __name__ == "__main__":
    unittest.main()
