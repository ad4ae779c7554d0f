#!/usr/bin/env python3
"""An upstream for trials: it responds with its name and the request that it received.

    python3 whoami.py 3000          # listens on 127.0.0.1:3000; its name is the port
    python3 whoami.py 3001 blue     # with a name

`?status=503` selects the status of the response, `?sleep=2` delays it by two seconds.
"""

import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

PORT = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
NAME = sys.argv[2] if len(sys.argv) > 2 else str(PORT)


class Whoami(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def respond(self):
        query = parse_qs(urlsplit(self.path).query)
        length = int(self.headers.get("content-length", 0))
        body = self.rfile.read(length)
        time.sleep(float(query.get("sleep", ["0"])[0]))
        lines = [f"{NAME}: {self.command} {self.path}"]
        lines += [f"{name.lower()}: {value}" for name, value in self.headers.items()]
        reply = "\n".join(lines).encode() + b"\n" + (b"\n" + body + b"\n" if body else b"")
        self.send_response(int(query.get("status", ["200"])[0]))
        self.send_header("content-type", "text/plain")
        self.send_header("content-length", str(len(reply)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = respond

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """A gateway that closes its connection early is no error."""


if __name__ == "__main__":
    Server(("127.0.0.1", PORT), Whoami).serve_forever()
