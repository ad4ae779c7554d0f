"""Relatives of the entries of push, product and `ringmain bench` that were found after them (docs/field-faults.md)."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time

import rig
from cases_push_transports import api, configuration
from rig import check, expect
from run import case
from websocket import Closed, Ws

SOCIAL = "n: {retention: {publications: 100, time: 300s}, recovery: true, presence: true, join_leave: true, history: true, publish: true}"


class Mortal:
    """An HTTP origin that answers for `life` seconds from its first request on, then closes everything and listens no more."""

    def __init__(self, r, life):
        self.life, self.began, self.open = life, None, []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = self.listener.getsockname()[1]
        r.stack.callback(self.end)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                s, _ = self.listener.accept()
                self.open.append(s)
                threading.Thread(target=self.serve, args=(s,), daemon=True).start()

    def serve(self, s):
        rest = b""
        with contextlib.suppress(OSError):
            while True:
                head, rest = rig.read_head(s, rest)
                if head is None:
                    return
                if self.began is None:
                    self.began = time.monotonic()
                    threading.Timer(self.life, self.end).start()
                s.sendall(rig.response(200, b"ok"))

    def end(self):
        # A blocked accept keeps the socket open unless it is shut down.
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for s in self.open:
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)
                s.close()


def bench(r, *args, seconds=40):
    return r.run("bench", *args, seconds=seconds)


@case("B1", "a server that dies midway misses the thresholds of a closed loop")
def dies_midway(r):
    server = Mortal(r, 1)
    done = bench(r, "-c", "8", "-d", "3s", "-w", "0s", "--rounds", "1", "--quiet", "--json", "--threshold", "errors<5%",
                 "--threshold", "p99<2s", f"http://127.0.0.1:{server.port}/")
    check(done.returncode == 1, f"expected exit code 1, found {done.returncode}:\n{done.stderr}")
    held = {one["threshold"]: one["held"] for one in json.loads(done.stdout)["run"]["thresholds"]}
    expect("thresholds", {"errors<5%": False, "p99<2s": False}, held)


@case("B1", "a number of requests that cannot be sent counts as never sent")
def given_up(r):
    server = Mortal(r, 0.5)
    done = bench(r, "-c", "4", "-n", "100000000", "-w", "0s", "--rounds", "1", "--quiet", "--json", "--connect-timeout", "1s",
                 "--threshold", "errors<5%", f"http://127.0.0.1:{server.port}/")
    check(done.returncode == 1, f"expected exit code 1, found {done.returncode}:\n{done.stderr}")
    counts = json.loads(done.stdout)["run"]["rounds"][0]["counts"]
    expect("sent and never sent", 100_000_000, counts["sent"] + counts["dropped"])


@case("B1", "a server that dies between rounds: the measured rounds are written, and the command fails")
def dies_between_rounds(r):
    server = Mortal(r, 1.5)
    result = r.dir / "result.json"
    done = bench(r, "-c", "4", "-d", "1s", "-w", "0s", "--rounds", "4", "--quiet", f"--json={result}", f"http://127.0.0.1:{server.port}/")
    check(done.returncode == 1, f"expected exit code 1, found {done.returncode}:\n{done.stderr}")
    check("round 3 of 4" in done.stderr or "round 2 of 4" in done.stderr, f"the round is not named: {done.stderr}")
    check(len(json.loads(result.read_text())["run"]["rounds"]) >= 1, "no round in the result")


@case("B1", "bench push fails without any delivery")
def deaf(r):
    port, other = rig.free_port(), rig.free_port()
    r.gateway(configuration(port), port=port, name="one.yaml")
    r.gateway(configuration(other), port=other, name="other.yaml")
    done = bench(r, "push", f"ws://127.0.0.1:{port}/connection/websocket", "--publish", f"http://127.0.0.1:{other}/api/publish",
                 "--api-key", "key", "-c", "2", "-d", "500ms", "-w", "0s", "--timeout", "2s", "-q")
    check(done.returncode == 1, f"expected exit code 1, found {done.returncode}:\n{done.stderr}")


@case("B3", "results have a JSON Schema")
def schema_of_results(r):
    done = bench(r, "schema", "--results")
    expect("exit code", 0, done.returncode)
    schema = json.loads(done.stdout)
    port = r.http_origin()
    done = bench(r, "-c", "2", "-n", "50", "-w", "0s", "--rounds", "1", "--quiet", "--json", f"http://127.0.0.1:{port}/")
    counts = json.loads(done.stdout)["run"]["rounds"][0]["counts"]
    expect("names of counts", set(schema["$defs"]["Counts"]["properties"]), set(counts))


@case("P5", "help that cannot be written is an error")
def help_to_a_full_disk(r):
    for word in ("--help", "--version"):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([r.binary, word], stdout=full, stderr=subprocess.PIPE, timeout=20)
        check(done.returncode != 0, f"{word}: exit code 0 although nothing was written")


@case("S5", "a client publishes null")
def null(r):
    port = rig.free_port()
    r.gateway(configuration(port), port=port)
    listener, client = Ws(port), Ws(port)
    listener.send({"id": 2, "subscribe": {"channel": "n:a"}})
    listener.reply(2)
    client.send({"id": 2, "publish": {"channel": "n:a", "data": None}})
    expect("the reply", {"id": 2, "publish": {}}, client.reply(2))
    listener.message()
    check('"data":null' in listener.text, f"expected null, found {listener.text}")
    client.send({"id": 3, "publish": {"channel": "n:a"}})
    expect("without data", 107, client.reply(3)["error"]["code"])


@case("P3", "a position of another life is not recovered in a channel that has only its last value to give, and none")
def cached(r):
    port = rig.free_port()
    r.gateway(configuration(port, namespaces="c: {retention: {publications: 1, time: 300s}, cache: true, recovery: true, history: true}"), port=port)
    client = Ws(port)
    for number, position in enumerate(({"offset": 4}, {"offset": 4, "epoch": "foreign"}, {"epoch": "foreign"}), 2):
        client.send({"id": number, "subscribe": {"channel": f"c:{number}", "recover": True, **position}})
        result = client.reply(number)["subscribe"]
        expect(f"recovered from {position}", False, result.get("recovered", False))


@case("S14", "a name that begins with a colon has no namespace")
def colon(r):
    port = rig.free_port()
    r.gateway(configuration(port), port=port)
    client = Ws(port)
    client.send({"id": 2, "subscribe": {"channel": ":x"}})
    check("subscribe" in client.reply(2), f"refused: {client.text}")


@case("S8", "members of channels are present at the new process until they connect there")
def members_move(r):
    port = rig.free_port()
    server = r.gateway(configuration(port, namespaces=SOCIAL, more="limits: {drain: 6s}"), port=port)
    clients = [Ws(port) for _ in range(6)]
    for client in clients:
        client.send({"id": 2, "subscribe": {"channel": "n:room"}})
        client.reply(2)
    server.signal(signal.SIGUSR2)
    match = server.wait_output(r"process (\d+) serves now")
    r.stack.callback(os.kill, int(match[1]), signal.SIGTERM)

    def stats():
        answer = api(port, "presence_stats", {"channel": "n:room"})
        return answer.json()["result"]["num_clients"] if answer.status == 200 else None

    expect("members right after the hand-over", 6, rig.until("the new process answers", stats))
    # Each is disconnected at its time, and reconnects.
    for client in clients:
        expect("close code", 3001, client.code())
        again = Ws(port)
        again.send({"id": 2, "subscribe": {"channel": "n:room"}})
        again.reply(2)
        expect("members while clients move", 6, stats())
        clients = [*clients, again]


@case("S8", "a client that asks the old process about a channel is sent to the new one")
def asked_of_the_old(r):
    port = rig.free_port()
    server = r.gateway(configuration(port, namespaces=SOCIAL, more="limits: {drain: 10s}"), port=port)
    clients = [Ws(port) for _ in range(4)]
    for client in clients:
        client.send({"id": 2, "subscribe": {"channel": "n:room"}})
        client.reply(2)
    server.signal(signal.SIGUSR2)
    match = server.wait_output(r"process (\d+) serves now")
    r.stack.callback(os.kill, int(match[1]), signal.SIGTERM)
    closed = []
    for client, command in zip(clients, ("presence", "presence_stats", "history", "subscribe")):
        with contextlib.suppress(OSError):
            client.send({"id": 3, command: {"channel": "n:other" if command == "subscribe" else "n:room"}})
        try:
            client.socket.settimeout(2)
            while True:
                message = client.message()
                if message.get("id") == 3:
                    closed.append(f"{command} answered")
                    break
        except Closed as end:
            closed.append(end.code)
        except TimeoutError:
            closed.append(f"{command}: nothing")
    expect("the end of clients of the old process", [3001] * 4, closed)
