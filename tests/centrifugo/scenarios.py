"""What both servers are sent. A scenario is a function of a `Side`, which records what it has seen with `side.see(…)`.

Owns no expectation: the other server is the expectation.
"""

import base64
import hashlib
import hmac
import json
import re
import socket
import struct
import time

import rig
from websocket import Closed, Ws

SECRET = "0123456789abcdef0123456789abcdef"
ALL = {}


def scenario(function):
    """Registers a scenario by the name of its function."""
    ALL[function.__name__] = function
    return function


def token(claims, secret=SECRET):
    """Returns a signed token (HS256)."""
    part = lambda value: base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")  # noqa: E731
    signed = part({"alg": "HS256", "typ": "JWT"}) + b"." + part(claims)
    return (signed + b"." + base64.urlsafe_b64encode(hmac.digest(secret.encode(), signed, hashlib.sha256)).rstrip(b"=")).decode()


class Side:
    """One server and what was seen of it. What is drawn by lot gets a name by its place of appearance."""

    DRAWN = {"epoch", "client", "session", "node", "uid"}
    LEFT_OUT = {"version", "name", "uptime", "time"}

    def __init__(self, port):
        self.port, self.seen, self.names, self.clients = port, [], {}, []

    def end(self):
        for client in self.clients:
            client.socket.close()

    def see(self, value):
        self.seen.append(self.mask(value))

    def mask(self, value, key=None):
        if isinstance(value, dict):
            masked = {}
            for k, v in value.items():
                if k in self.LEFT_OUT:
                    continue
                masked[self.names.get(k, k)] = self.mask(v, k)
            return masked
        if isinstance(value, list):
            return [self.mask(item, key) for item in value]
        if key in self.DRAWN and isinstance(value, str) and value:
            return self.names.setdefault(value, f"{key}-{sum(name.startswith(key) for name in self.names.values()) + 1}")
        if key == "ttl" and isinstance(value, int):
            return "about" if value > 5 else value
        return value

    def client(self, **options):
        client = Ws(self.port, **options)
        self.clients.append(client)
        return client

    def api(self, method, body, *fields, key="key"):
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        fields = (*fields, f"X-API-Key: {key}") if key else fields
        return rig.get(self.port, "/api" + ("/" + method if method else ""), *fields, method="POST", body=raw)

    def call(self, method, body, *fields, key="key"):
        """Calls the API and records status and JSON."""
        answer = self.api(method, body, *fields, key=key)
        try:
            found = [json.loads(line) for line in answer.body.splitlines() if line]
        except ValueError:
            found = "(no JSON)"
        self.see([answer.status, found if answer.status == 200 else "(refused)"])

    def ask(self, client, message):
        """Sends a command and records its reply."""
        try:
            client.send(message)
            self.see(client.reply(message["id"]))
        except (Closed, OSError) as end:
            self.see(["closed", getattr(end, "code", None)])

    def collect(self, client, count):
        """Records the next messages, as many as there are."""
        client.socket.settimeout(2)
        messages = []
        try:
            messages += [client.message() for _ in range(count)]
        except TimeoutError:
            messages.append("(nothing more)")
        self.see(messages)

    def refused(self, raw, connect=True):
        """Records what a raw message leads to: replies, and the code of the close."""
        client = self.client(connect=connect)
        client.send(raw=raw)
        messages = []
        client.socket.settimeout(2)
        try:
            while True:
                messages.append(client.message())
        except Closed as closed:
            self.see([messages, closed.code])
        except TimeoutError:
            self.see([messages, "open"])


def recover(number, channel, offset, epoch, **more):
    return {"id": number, "subscribe": {"channel": channel, "recover": True, "offset": offset, "epoch": epoch, **more}}


@scenario
def connecting(side):
    side.see(side.client().connected)
    for raw in (b'{"id":1,"connect":{}}\n{"id":2,"connect":{}}', b'{"id":1,"ping":{}}', b"nonsense", b"", b"[]",
                b'{"id":1,"subscribe":{"channel":"a"}}', b'{"connect":{}}', b'{"id":1,"connect":{"token":"x"}}',
                b'{"id":1,"connect":{"name":"js","version":"1.0"}}'):
        side.refused(raw, connect=False)


@scenario
def commands(side):
    for raw in (b'{"id":2}', b'{"id":2,"ping":{}}', b'{"subscribe":{"channel":"a"}}', b'{"id":2,"rpc":{"method":"x"}}',
                b'{"send":{"data":1}}', b'{"id":2,"subscribe":{}}', b'{"id":2,"publish":{"channel":"a"}}',
                b'{"id":2,"subscribe":{"channel":"nowhere:a"}}', b'{"id":2,"subscribe":{"channel":"closed:a"}}',
                b'{"id":2,"unsubscribe":{"channel":"a"}}', b'{"id":2,"history":{"channel":"a"}}',
                b'{"id":2,"presence":{"channel":"a"}}', b'{"id":2,"presence_stats":{"channel":"closed:a"}}',
                b'{"id":2,"refresh":{"token":"x"}}', b'{"id":2,"sub_refresh":{"channel":"a","token":"x"}}'):
        side.refused(raw)


@scenario
def subscribing(side):
    client = side.client()
    for number, channel in enumerate(("a", "kept:sub", "a", "room:a"), 2):
        side.ask(client, {"id": number, "subscribe": {"channel": channel}})
    side.collect(client, 1)
    side.ask(client, {"id": 9, "unsubscribe": {"channel": "a"}})
    side.ask(client, {"id": 10, "subscribe": {"channel": "a"}})


@scenario
def publishing(side):
    client, other = side.client(), side.client()
    for number, channel in ((2, "a"), (3, "kept:pub")):
        side.ask(client, {"id": number, "subscribe": {"channel": channel}})
    side.ask(other, {"id": 2, "publish": {"channel": "kept:pub", "data": {"x": 1}}})
    side.collect(client, 1)
    side.ask(other, {"id": 3, "publish": {"channel": "a", "data": [1, 2]}})
    side.collect(client, 1)
    side.ask(other, {"id": 4, "publish": {"channel": "room:x", "data": 1}})
    side.call("publish", {"channel": "kept:pub", "data": 3, "tags": {"k": "v"}})
    side.collect(client, 1)
    side.call("publish", {"channel": "kept:pub", "data": 4, "skip_history": True})
    side.collect(client, 1)


@scenario
def numbers_and_texts(side):
    client = side.client()
    side.ask(client, {"id": 2, "subscribe": {"channel": "kept:text"}})
    for data in (b"1.0", b"1e400", b"12345678901234567890", b"-0", b"0.1000", b'"\\u00e9\\ud83d\\ude00"', '"é😀"'.encode(), b'{ "b" : 1, "a":2 }',
                 b'{"a":1,"a":2}', b"null", b"false", b'""', b"[ ]", b'"<&>\\u2028"'):
        answer = side.api("publish", b'{"channel":"kept:text","data":' + data + b"}")
        side.see(answer.status)
        client.socket.settimeout(2)
        try:
            client.message()
            # To the byte: what is behind the data differs, and comes with an offset.
            side.see(re.search(r'"data":(.*),"offset":', client.text)[1])
        except TimeoutError:
            side.see("(nothing)")


@scenario
def recovering(side):
    for number in range(1, 11):
        side.api("publish", {"channel": "kept:rec", "data": number})
    epoch = side.api("history", {"channel": "kept:rec", "limit": 0}).json()["result"]["epoch"]
    for offset, life in ((7, epoch), (10, epoch), (0, epoch), (11, epoch), (1, epoch), (7, "foreign"), (0, "foreign"), (0, ""),
                         (10, "foreign"), (9, epoch)):
        client = side.client()
        side.ask(client, recover(2, "kept:rec", offset, life))
    client = side.client()
    side.ask(client, {"id": 2, "subscribe": {"channel": "kept:rec"}})


def apply_delta(source, delta):
    """Applies a delta in Fossil's format."""
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~"
    target, at = b"", 0

    def number():
        nonlocal at
        value = 0
        while chr(delta[at]) in digits:
            value, at = value * 64 + digits.index(chr(delta[at])), at + 1
        at += 1
        return value, delta[at - 1:at]

    length, _ = number()
    while True:
        count, kind = number()
        if kind == b";":
            assert len(target) == length
            return target
        if kind == b"@":
            offset, _ = number()
            target += source[offset:offset + count]
        else:
            target, at = target + delta[at:at + count], at + count


def decoded(publications, base=None):
    """Returns the kind, the offset and the data of publications in a subscription with deltas, of which one was received before."""
    found = []
    for publication in publications:
        data = publication["data"].encode()
        base = apply_delta(base, data) if publication.get("delta") else data
        found.append([bool(publication.get("delta")), publication["offset"], base.decode()])
    return found


@scenario
def deltas(side):
    def publish(number):
        side.api("publish", {"channel": "delta:a", "data": {"number": number, "text": "wörds " * 40, "again": number}})

    client, plain = side.client(), side.client()
    side.ask(client, {"id": 2, "subscribe": {"channel": "delta:a", "delta": "fossil"}})
    side.ask(plain, {"id": 2, "subscribe": {"channel": "delta:a"}})
    side.ask(plain, {"id": 3, "subscribe": {"channel": "kept:delta", "delta": "fossil"}})
    side.refused(b'{"id":2,"subscribe":{"channel":"delta:b","delta":"other"}}')
    for number in range(1, 5):
        publish(number)
    side.see(decoded([client.message()["push"]["pub"] for _ in range(4)]))
    side.see([plain.message()["push"]["pub"]["data"]["number"] for _ in range(4)])
    side.api("publish", {"channel": "delta:a", "data": "short"})
    message = client.message()["push"]["pub"]
    side.see([bool(message.get("delta")), message["data"]])
    epoch = side.api("history", {"channel": "delta:a", "limit": 0}).json()["result"]["epoch"]
    publish(6)
    back = side.client()
    back.send(recover(2, "delta:a", 1, epoch, delta="fossil"))
    result = back.reply(2)["subscribe"]
    publications = decoded(result.pop("publications"))
    side.see([result, publications])
    publish(7)
    side.see(decoded([back.message()["push"]["pub"]], publications[-1][2].encode()))


@scenario
def filters(side):
    leaf = lambda tag, comparison, value: {"key": tag, "cmp": comparison, "val": value}  # noqa: E731
    trees = [leaf("t", "eq", "x"), leaf("t", "neq", "x"), {"key": "t", "cmp": "in", "vals": ["x", ""]},
             {"key": "t", "cmp": "nin", "vals": ["x", ""]}, {"key": "t", "cmp": "ex"}, {"key": "t", "cmp": "nex"},
             leaf("t", "sw", "x"), leaf("t", "ew", "y"), leaf("t", "ct", "y"), leaf("n", "gt", "9"), leaf("n", "gte", "10.0"),
             leaf("n", "lt", "-0.5"), leaf("n", "lte", "1e3"), leaf("n", "lt", "x"), leaf("n", "gt", ".5"), leaf("n", "gt", "5."),
             leaf("n", "gt", "+1"), leaf("n", "lt", "-0"), leaf("n", "gte", "00010"),
             {"op": "and", "nodes": [leaf("t", "eq", "x"), leaf("n", "gt", "1")]},
             {"op": "or", "nodes": [leaf("t", "eq", "xy"), leaf("n", "gt", "1")]}, {"op": "not", "nodes": [leaf("t", "eq", "x")]}]
    clients = []
    for tree in trees:
        client = side.client()
        side.ask(client, {"id": 2, "subscribe": {"channel": "tagged:a", "tf": tree}})
        clients.append(client)
    for tags in ({}, {"t": "x"}, {"t": "xy"}, {"t": ""}, {"n": "10"}, {"n": "9.5", "t": "x"}, {"n": "-1"}, {"n": "ten"}, {"n": "1e1"},
                 {"n": "10."}, {"n": "+11"}, {"n": ".9"}, {"n": "10.000000000000000000000001"}):
        side.api("publish", {"channel": "tagged:a", "data": 1, "tags": tags})
    for tree, client in zip(trees, clients):
        # Publications are before the reply.
        client.send({"id": 3, "unsubscribe": {"channel": "tagged:a"}})
        offsets = []
        while "unsubscribe" not in (message := client.message()):
            offsets.append(message["push"]["pub"]["offset"])
        side.see([tree, offsets])
    epoch = side.api("history", {"channel": "tagged:a", "limit": 0}).json()["result"]["epoch"]
    client = side.client()
    client.send(recover(2, "tagged:a", 0, epoch, tf=leaf("t", "eq", "x")))
    result = client.reply(2)["subscribe"]
    side.see([publication["offset"] for publication in result["publications"]])
    for tree in ({}, {"op": "and"}, {"op": "nand", "nodes": [leaf("a", "eq", "b")]}, {"key": "a", "cmp": "eq"}, {"key": "a", "cmp": "ex", "val": "b"},
                 {"cmp": "eq", "val": "b"}, {"key": "a", "cmp": "in", "val": "b"}, {"op": "not", "nodes": []}, {"cmp": "ex"}):
        client = side.client()
        side.ask(client, {"id": 2, "subscribe": {"channel": "tagged:b", "tf": tree}})
    side.ask(side.client(), {"id": 2, "subscribe": {"channel": "kept:tf", "tf": leaf("a", "eq", "b")}})


@scenario
def history_pages(side):
    for number in range(1, 11):
        side.api("publish", {"channel": "kept:his", "data": number})
    epoch = side.api("history", {"channel": "kept:his", "limit": 0}).json()["result"]["epoch"]
    client = side.client()
    side.ask(client, {"id": 2, "subscribe": {"channel": "kept:his"}})
    since = lambda offset, life=None: {"offset": offset, "epoch": life or epoch}  # noqa: E731
    pages = [{}, {"limit": 3}, {"limit": -1}, {"limit": 100}, {"limit": 3, "reverse": True}, {"limit": -1, "reverse": True},
             {"limit": 3, "since": since(0)}, {"limit": 3, "since": since(4)}, {"limit": 3, "since": since(9)},
             {"limit": 3, "since": since(10)}, {"limit": 3, "since": since(11)}, {"limit": 3, "since": since(4, "x")},
             {"limit": 3, "since": since(4), "reverse": True}, {"limit": 3, "since": since(1), "reverse": True},
             {"limit": -1, "since": since(5)}, {"limit": -1, "since": since(5), "reverse": True}, {"limit": 0, "since": since(5)},
             {"since": since(5)}, {"limit": 3, "since": since(11), "reverse": True}]
    for number, page in enumerate(pages, 3):
        side.ask(client, {"id": number, "history": {"channel": "kept:his", **page}})
        side.call("history", {"channel": "kept:his", **page})


@scenario
def presence(side):
    first, second = side.client(), side.client()
    side.ask(first, {"id": 2, "subscribe": {"channel": "room:room"}})
    side.collect(first, 1)
    side.ask(second, {"id": 2, "subscribe": {"channel": "room:room"}})
    side.collect(first, 1)
    side.ask(first, {"id": 3, "presence_stats": {"channel": "room:room"}})
    side.call("presence_stats", {"channel": "room:room"})
    second.send({"id": 3, "unsubscribe": {"channel": "room:room"}})
    side.collect(first, 1)
    side.ask(first, {"id": 4, "presence": {"channel": "room:room"}})
    side.call("presence", {"channel": "room:room"})
    side.call("presence", {"channel": "kept:empty"})
    side.call("presence", {"channel": "a"})


@scenario
def tokens(side):
    now = int(time.time())
    for claims, secret in (({"sub": "7"}, SECRET), ({"sub": "7", "exp": now - 3600}, SECRET), ({"sub": "7"}, SECRET[::-1]),
                           ({"sub": "7", "exp": now + 3600, "info": {"name": "x"}}, SECRET), ({}, SECRET),
                           ({"sub": "7", "channels": ["kept:mine"]}, SECRET), ({"sub": "7", "channel": "a"}, SECRET)):
        raw = json.dumps({"id": 1, "connect": {"token": token(claims, secret)}}).encode()
        side.refused(raw, connect=False)
    client = side.client(connect=False)
    client.send({"id": 1, "connect": {"token": token({"sub": "7", "exp": now + 3600})}})
    side.see(client.reply(1))
    side.ask(client, {"id": 2, "refresh": {"token": token({"sub": "7", "exp": now + 7200})}})
    side.ask(client, {"id": 3, "subscribe": {"channel": "$secret"}})
    side.ask(client, {"id": 4, "subscribe": {"channel": "$secret", "token": token({"sub": "7", "channel": "$secret"})}})
    side.ask(client, {"id": 5, "subscribe": {"channel": "a", "token": token({"sub": "8", "channel": "a"})}})


@scenario
def programs(side):
    side.call("publish", {"channel": "kept:api", "data": {"x": 1}})
    side.call("publish", {"channel": "a", "data": 1})
    side.call("publish", {"channel": "kept:api", "data": 1, "idempotency_key": "k"})
    side.call("publish", {"channel": "kept:api", "data": 2, "idempotency_key": "k"})
    side.call("broadcast", {"channels": ["kept:api", "a", "nowhere:b"], "data": 1})
    side.call("history_remove", {"channel": "kept:api"})
    side.call("history", {"channel": "kept:api", "limit": 10})
    side.call("history", {"channel": "a", "limit": 10})
    side.call("channels", {})
    for method in ("subscribe", "unsubscribe"):
        side.call(method, {"user": "nobody", "channel": "a"})
    side.call("disconnect", {"user": "nobody"})
    side.call("refresh", {"user": "nobody"})
    side.call("publish", {"channel": "", "data": 1})
    side.call("publish", {"channel": "a"})
    side.call("publish", {"channel": "nowhere:a", "data": 1})
    side.call("publish", b"nonsense")
    side.call("nothing", {})
    side.call("publish", {"channel": "a", "data": 1}, key="wrong")
    side.call("publish", {"channel": "a", "data": 1}, key=None)
    side.call("publish", {"channel": "a", "data": 1}, "Authorization: apikey key", key=None)
    side.call("publish", {"channel": "nowhere:a", "data": 1}, "X-Centrifugo-Error-Mode: transport")


@scenario
def batches(side):
    publish = {"publish": {"channel": "kept:batch", "data": 1}}
    side.call("batch", {"commands": [publish, {"presence_stats": {"channel": "kept:batch"}}]})
    # What is carried out side by side has no order: one is enough to see its form.
    side.call("batch", {"commands": [publish], "parallel": True})
    side.call("batch", {"commands": [publish, {"unheard": {}}, publish]})
    side.call("batch", {"commands": [{}]})
    side.call("batch", {"commands": []})
    side.call("batch", {"commands": [{"publish": {"channel": "nowhere:a", "data": 1}}, publish]})


@scenario
def limits(side):
    side.refused(json.dumps({"id": 2, "publish": {"channel": "a", "data": "x" * 70_000}}).encode())
    side.refused(json.dumps({"id": 2, "publish": {"channel": "a", "data": "x" * 60_000}}).encode())
    side.refused(json.dumps({"id": 2, "subscribe": {"channel": "x" * 256}}).encode())
    side.refused(json.dumps({"id": 2, "subscribe": {"channel": "x" * 255}}).encode())


@scenario
def disconnecting(side):
    client = side.client(connect=False)
    client.send({"id": 1, "connect": {"token": token({"sub": "gone"})}})
    side.see(client.reply(1))
    side.ask(client, {"id": 2, "subscribe": {"channel": "kept:gone"}})
    side.api("subscribe", {"user": "gone", "channel": "kept:more"})
    side.collect(client, 1)
    side.api("unsubscribe", {"user": "gone", "channel": "kept:gone"})
    side.collect(client, 1)
    side.api("disconnect", {"user": "gone"})
    side.see(client.code())


@scenario
def event_streams(side):
    connect = "%7B%22subs%22:%7B%22kept:ev%22:%7B%7D%7D%7D"
    with rig.connect(side.port) as s:
        s.sendall(f"GET /connection/uni_sse?cf_connect={connect} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        head, rest = rig.read_head(s)
        side.see([int(head.split(b" ", 2)[1]), (rig.field(head, "content-type") or "").split(";")[0]])
        while b"\n\n" not in rest:
            rest += s.recv(65536)
        side.see(json.loads(re.search(rb"data: (\{.*\})", rest)[1]))


@scenario
def methods_and_params(side):
    side.call("", {"method": "publish", "params": {"channel": "kept:old", "data": 1}})
    side.call("", b'{"method":"publish","params":{"channel":"kept:old","data":1}}\n{"method":"presence_stats","params":{"channel":"kept:old"}}')


@scenario
def joining_and_leaving(side):
    observer = side.client()
    observer.send({"id": 2, "subscribe": {"channel": "room:many"}})
    observer.reply(2)
    clients = []
    for number in range(40):
        client = side.client()
        client.send({"id": 2, "subscribe": {"channel": "room:many"}})
        client.reply(2)
        clients.append(client)
    for number, client in enumerate(clients):
        if number % 4 == 0:
            client.send({"id": 3, "unsubscribe": {"channel": "room:many"}})
        elif number % 4 == 1:
            client.socket.sendall(b"\x88\x82\0\0\0\0\x03\xe8")
        elif number % 4 == 2:
            client.socket.close()
        else:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.socket.close()
    observer.socket.settimeout(5)
    kinds = {"join": 0, "leave": 0}
    try:
        while sum(kinds.values()) < 81:
            push = observer.message().get("push", {})
            for kind in kinds:
                kinds[kind] += kind in push
    except TimeoutError:
        pass
    side.see(kinds)
    side.call("presence_stats", {"channel": "room:many"})


@scenario
def tokens_that_expire(side):
    client = side.client(connect=False)
    client.send({"id": 1, "connect": {"token": token({"sub": "7", "exp": int(time.time()) + 3})}})
    side.see(client.reply(1)["connect"].get("expires"))
    side.ask(client, {"id": 2, "subscribe": {"channel": "kept:exp"}})
    for number in range(3, 6):
        time.sleep(1)
        client.send({"id": number, "refresh": {"token": token({"sub": "7", "exp": int(time.time()) + 3})}})
        side.see("error" in client.reply(number))
    side.api("publish", {"channel": "kept:exp", "data": 1})
    side.collect(client, 1)
