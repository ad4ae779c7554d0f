"""B1 to B3: `ringmain bench` on servers that lose requests, refuse streams, or are reached by unusual URLs."""

import contextlib
import re
import threading

import rig
from run import case


def losing_origin(r, lost_of_hundred):
    """Starts an origin that never answers so many of a hundred requests; returns its port."""
    lock, count = threading.Lock(), [0]

    def answer(head, body):
        with lock:
            count[0] += 1
            number = count[0]
        if number % 100 < lost_of_hundred:
            threading.Event().wait(30)
            return None
        return rig.response(200, b"ok")

    return r.http_origin(answer)


def bench(r, *args, seconds=30):
    return r.run("bench", *args, seconds=seconds)


@case("B1", "a latency threshold fails while 5 % of the requests have no response")
def threshold(r):
    port = losing_origin(r, 5)
    done = bench(r, "-r", "100", "-c", "50", "-d", "2s", "-w", "0s", "--timeout", "1s", "--rounds", "1", "--quiet",
                 "--threshold", "response.p99<500ms", f"http://127.0.0.1:{port}/")
    rig.check(done.returncode != 0, f"expected a failure, found exit code 0:\n{done.stdout}{done.stderr}")
    rig.check("response.p99<500ms" in done.stderr, f"the threshold is not named:\n{done.stderr}")


@case("B1", "requests in flight at the end count in a threshold: 5 % without a response, the timeout behind the end")
def unfinished(r):
    port = losing_origin(r, 5)
    done = bench(r, "-c", "20", "-d", "2s", "-w", "0s", "--timeout", "30s", "--rounds", "1", "--quiet",
                 "--threshold", "errors<0.1%", f"http://127.0.0.1:{port}/")
    rig.check(done.returncode != 0, f"expected a failure, found exit code 0:\n{done.stdout}{done.stderr}")


@case("A19", "the API key of `bench push` and `feed` can be read from a file and from the environment")
def api_key(r):
    port, key = push_server(r), r.file("key", "right\n")
    done = bench_push(r, port, "--api-key-file", key)
    rig.check(done.returncode == 0, f"from a file: {done.returncode}: {done.stderr}")
    done = r.run("bench", "push", f"ws://127.0.0.1:{port}/live/connection/websocket", "-c", "2", "-d", "300ms", "-w", "0s", "--timeout", "2s",
                 env={"RINGMAIN_API_KEY": "right"})
    rig.check(done.returncode == 0, f"from the environment: {done.returncode}: {done.stderr}")
    done = r.run("feed", f"http://127.0.0.1:{port}/live/api/publish", "--api-key-file", key, "--rate", "50", "--duration", "300ms", "--channel",
                 "{symbol}")
    rig.check(done.returncode == 0, f"feed: {done.returncode}: {done.stderr}")


@case("B1", "a run without a single response exits with an error")
def silence(r):
    port = r.origin(lambda s: threading.Event().wait(20))
    done = bench(r, "-c", "4", "-d", "500ms", "-w", "0s", "--timeout", "10s", "--rounds", "1", "--quiet", f"http://127.0.0.1:{port}/")
    rig.check(done.returncode != 0, f"expected a failure, found exit code 0:\n{done.stdout}{done.stderr}")


@case("B1", "a server that answers everything keeps its thresholds")
def healthy(r):
    port = r.http_origin()
    done = bench(r, "-r", "100", "-c", "10", "-d", "1s", "-w", "0s", "--rounds", "1", "--quiet", "--threshold", "response.p99<900ms",
                 "--threshold", "errors<0.1%", f"http://127.0.0.1:{port}/")
    rig.expect("exit code", 0, done.returncode)


@case("B2", "streams that GOAWAY leaves unprocessed are sent again: nginx with default settings, no errors")
def goaway(r):
    nginx, port = rig.need("nginx"), rig.free_port()
    conf = r.file("nginx.conf", f"""
daemon off; master_process off; pid nginx.pid; error_log stderr;
events {{ worker_connections 512; }}
http {{
    access_log off; client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;
    server {{ listen 127.0.0.1:{port} http2; return 200 ok; }}
}}
""")
    server = r.start("-p", r.dir, "-c", conf, command=nginx)
    server.wait_port(port)
    done = bench(r, "--http2", "--streams", "100", "-c", "8", "-n", "60000", "-w", "0s", "--rounds", "1", "--json", "--quiet",
                 "--threshold", "errors<0.1%", f"http://127.0.0.1:{port}/", seconds=60)
    rig.check(done.returncode == 0, f"expected exit code 0, found {done.returncode}: {done.stderr}")
    broken = re.search(r'"broken":\s*\{([^}]*)\}', done.stdout)
    rig.check(broken and "GOAWAY" not in broken[1], f"GOAWAY counted as broken: {broken and broken[0]}")


@case("B3", "the progress line has no latency where there is no response")
def progress(r):
    port = r.origin(lambda s: threading.Event().wait(20))
    done = bench(r, "-c", "4", "-d", "2500ms", "-w", "0s", "--timeout", "10s", "--rounds", "1", f"http://127.0.0.1:{port}/")
    rig.check("p50 0" not in done.stderr, f"a latency of zero is shown:\n{done.stderr}")


@case("B3", "--ca accepts the server's own certificate, made by `openssl req -x509`")
def own_certificate(r):
    openssl = rig.need("openssl")
    key, chain, port = r.dir / "key.pem", r.dir / "cert.pem", rig.free_port()
    r.start("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", chain, "-days", "2",
            "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", command=openssl).wait()
    server = r.start("run", "--cert", chain, "--key", key, "--listen", f"127.0.0.1:{port}")
    server.wait_port(port)
    done = bench(r, "--ca", chain, "-c", "1", "-n", "10", "-w", "0s", "--rounds", "1", "--quiet", f"https://127.0.0.1:{port}/json")
    rig.check(done.returncode == 0, f"expected exit code 0, found {done.returncode}: {done.stderr}")
    other = bench(r, "-c", "1", "-n", "1", "-w", "0s", "--rounds", "1", "--quiet", "--connect-timeout", "2s", f"https://127.0.0.1:{port}/json")
    rig.check(other.returncode != 0, "a certificate that is not trusted was accepted")
    rig.check("OtherError" not in other.stderr, f"Rust debug text in the error: {other.stderr}")


def push_server(r):
    """Starts a push server behind /live; returns its port."""
    port = rig.free_port()
    r.gateway(f"""
listen: 127.0.0.1:{port}
push: {{anonymous: true, api_key: right}}
routes:
  live:
    rules:
      - {{match: /live, push: {{below: /live}}}}
""", port=port)
    return port


def bench_push(r, port, *args):
    return bench(r, "push", f"ws://127.0.0.1:{port}/live/connection/websocket", "-c", "2", "-d", "300ms", "-w", "0s", "--timeout", "2s",
                 "--connect-timeout", "5s", *args)


@case("B3", "bench push publishes behind the same path prefix as its clients connect, and its error names --publish")
def push_prefix(r):
    port = push_server(r)
    done = bench_push(r, port, "--api-key", "right")
    rig.check(done.returncode == 0, f"expected exit code 0, found {done.returncode}: {done.stderr}")
    done = bench_push(r, port, "--api-key", "wrong")
    rig.check(done.returncode != 0 and "--publish" in done.stderr, f"--publish is not named: {done.stderr}")


@case("B3", "--batch goes with --publish-as lines, --api-key with --idle, -n with -d")
def options(r):
    push = push_server(r)
    done = bench_push(r, push, "--publish-as", "lines", "--batch", "10", "--api-key", "right")
    rig.check("--batch goes with" not in done.stderr, done.stderr)
    done = bench_push(r, push, "--idle", "--api-key", "right")
    rig.check(done.returncode == 0, done.stderr)
    port = r.http_origin()
    done = bench(r, "-n", "20", "-d", "20s", "-c", "2", "-w", "0s", "--rounds", "1", "--quiet", f"http://127.0.0.1:{port}/")
    rig.check(done.returncode == 0, done.stderr)


@case("B3", "all addresses of a name are loaded")
def addresses(r):
    counts = {}
    hosts = r.file("hosts", "127.0.0.1 localhost\n127.0.0.1 field.test\n127.0.0.2 field.test\n")
    unshare = rig.need("unshare")
    port = rig.free_port()
    import socket

    def serve(address):
        listener = socket.create_server((address, port), backlog=64)
        r.stack.callback(listener.close)

        def accept():
            with contextlib.suppress(OSError):
                while True:
                    s, _ = listener.accept()
                    threading.Thread(target=answer, args=(s,), daemon=True).start()

        def answer(s):
            with contextlib.suppress(OSError), s:
                rest = b""
                while True:
                    head, rest = rig.read_head(s, rest)
                    if head is None:
                        return
                    counts[address] = counts.get(address, 0) + 1
                    s.sendall(rig.response(200, b"ok"))

        threading.Thread(target=accept, daemon=True).start()

    serve("127.0.0.1")
    serve("127.0.0.2")
    command = f"mount --bind {hosts} /etc/hosts && exec {r.binary} bench -c 4 -n 40 -w 0s --rounds 1 --quiet http://field.test:{port}/"
    done = r.start("-m", "sh", "-c", command, command=unshare)
    if done.wait(30) != 0 and "not permitted" in done.output():
        raise rig.Skipped("needs the right to make a mount namespace")
    rig.check(set(counts) == {"127.0.0.1", "127.0.0.2"}, f"requests by address: {counts}\n{done.output()}")
