"""Faults of push sessions: large replies, the order of commands, positions, channels, formats, tokens."""

import time

import rig
from push_sessions_rig import Client, Closed, api, publish, serve, sign, SECRET
from rig import check, expect
from run import case

FULL = {"keep": {"publications": 200, "size": "16MiB", "time": "300s"}, "recovery": True, "presence": True,
        "history": True, "publish": True}
N = {"namespaces": {"n": FULL}}


def recovered(client, channels, publications):
    """Subscribes with `recover` to all channels in one message and counts what arrives of each, until all have all."""
    client.send(*[{"id": 100 + i, "subscribe": {"channel": channel, "recover": True}} for i, channel in enumerate(channels)])
    stands = {}
    while len(stands) < len(channels) or min(stands.values()) < publications:
        line = client.next()
        if "push" in line:
            channel = line["push"]["channel"]
            stands[channel] += 1
            expect(f"the offset behind the reply in {channel}", stands[channel], line["push"]["pub"]["offset"])
            continue
        channel = channels[line["id"] - 100]
        result = line.get("subscribe")
        check(result is not None, f"subscribe to {channel}: {line}")
        if not result.get("recovered"):
            # Bounded, and the client knows it: nothing more follows.
            stands[channel] = publications
            continue
        stands[channel] = len(result["publications"])
    return stands


@case("S1", "a recovery of any size arrives on one connection")
def large_recovery(r):
    port = serve(r, N)
    data = "x" * 20_000
    channels = [f"n:r{i}" for i in range(8)]
    for channel in channels:
        for _ in range(45):
            publish(port, channel, data)
    with Client(port, {}) as client:
        recovered(client, channels[:3], 45)
    with Client(port, {}) as client:
        recovered(client, channels, 45)
        expect("the reply behind it", {}, client.ask({"ping": {}})["ping"])


@case("S1", "a question whose answer is too large is an error, and the connection stays")
def large_answers(r):
    port = serve(r, N)
    for _ in range(110):
        publish(port, "n:h", "x" * 20_000)
    with Client(port, {}) as client:
        reply = client.ask({"history": {"channel": "n:h", "limit": 110}})
        check("error" in reply or len(reply["history"]["publications"]) > 0, f"history: {str(reply)[:200]}")
        if "error" in reply:
            expect("the error", 106, reply["error"]["code"])
        reply = client.ask({"history": {"channel": "n:h", "limit": 10}})
        expect("fewer publications", 10, len(reply["history"]["publications"]))


@case("S2", "subscribe, unsubscribe, subscribe are answered in this order, and end subscribed")
def order(r):
    port = serve(r, N)
    with Client(port, {}) as client:
        for number in range(60):
            channel = {"channel": f"n:x{number}"}
            client.send({"id": 2, "subscribe": channel}, {"id": 3, "unsubscribe": channel}, {"id": 4, "subscribe": channel})
            lines = [client.next() for _ in range(3)]
            expect(f"the order of replies in round {number}", [2, 3, 4], [line.get("id") for line in lines])
            check(not any("error" in line for line in lines), f"round {number}: {lines}")
        # Mixes, also across messages.
        for number in range(30):
            channel = {"channel": f"n:y{number}"}
            client.send({"id": 5, "publish": {**channel, "data": 1}}, {"id": 6, "unsubscribe": channel})
            client.send({"id": 7, "subscribe": channel}, {"id": 8, "publish": channel}, {"id": 9, "presence_stats": channel})
            client.send({"id": 10, "unsubscribe": channel}, {"id": 11, "presence_stats": channel})
            lines = [client.next() for _ in range(7)]
            expect(f"the order of replies in mix {number}", [5, 6, 7, 8, 9, 10, 11], [line.get("id") for line in lines])
            expect("the error of a publication without data", 107, lines[3]["error"]["code"])
            expect("clients", [1, 0], [lines[i]["presence_stats"]["num_clients"] for i in (4, 6)])


@case("S3", "channels that are not used make room")
def channels(r):
    port = serve(r, {**N, "limits": {"channels": 50, "subscriptions": 500}})
    with Client(port, {}) as client:
        for number in range(400):
            channel = {"channel": f"n:v{number}"}
            reply = client.ask({"subscribe": channel})
            check("subscribe" in reply, f"name {number}: {reply}")
            client.ask({"unsubscribe": channel})
        for number in range(20):
            reply = client.ask({"publish": {"channel": f"n:p{number}", "data": 1}})
            check("publish" in reply, f"a new channel: {reply}")


@case("S4", "a recovery is told the position that it was asked from")
def position(r):
    port = serve(r, {**N, "tokens": {"secret": SECRET}})
    for number in range(10):
        found = publish(port, "n:h", number)
    since = {"recover": True, "epoch": found["epoch"], "offset": 7}
    with Client(port, {}) as client:
        result = client.ask({"subscribe": {"channel": "n:h", **since}})["subscribe"]
        expect("publications", [8, 9, 10], [one["offset"] for one in result["publications"]])
        expect("recovered, offset", (True, 7), (result["recovered"], result["offset"]))
    with Client(port, {"token": sign({"sub": "7", "channels": ["n:h"]}), "subs": {"n:h": since}}) as client:
        result = client.connected["connect"]["subs"]["n:h"]
        expect("publications", [8, 9, 10], [one["offset"] for one in result["publications"]])
        expect("recovered, offset in connect.subs", (True, 7), (result["recovered"], result["offset"]))


def varint(number):
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def part(tag, payload):
    return varint(tag << 3 | 2) + varint(len(payload)) + payload


def protobuf(number, tag, payload):
    """A command in Protobuf: its number and one request, with its length before it."""
    command = varint(1 << 3) + varint(number) + part(tag, payload)
    return varint(len(command)) + command


@case("S5", "bytes that are not JSON are refused with 107 and end no JSON client")
def formats(r):
    port = serve(r, {"namespaces": {"n": FULL}})
    with Client(port, {}) as listener, Client(port, protobuf=True) as binary:
        check("subscribe" in listener.ask({"subscribe": {"channel": "n:b"}}), "it subscribes")
        binary.send_binary(protobuf(1, 4, b""))
        binary.message()
        binary.send_binary(protobuf(2, 7, part(1, b"n:b") + part(2, b"\x00\xff")))
        reply = binary.message()
        check(b"bad request" in reply, f"publish of bytes: {reply!r}")
        publish(port, "n:b", 1)
        expect("the next publication", 1, listener.next()["push"]["pub"]["data"])
        found = api(port, "publish", {"channel": "n:b", "b64data": "AP8="})
        expect("the API's error", 107, found.get("error", {}).get("code"))


@case("S5", "a subscription that JSON cannot carry is refused, and there is none")
def binary_history(r):
    # The old server takes bytes in any namespace and knows no such key.
    port = serve(r, {"namespaces": {"n": {**FULL, "data_format": "binary"}}})
    api(port, "publish", {"channel": "n:b", "b64data": "AP8="})
    with Client(port, {}) as client:
        for _ in range(2):
            reply = client.ask({"subscribe": {"channel": "n:b", "recover": True}})
            expect("the error", 108, reply.get("error", {}).get("code"))
    expect("clients", 0, api(port, "presence_stats", {"channel": "n:b"})["result"]["num_clients"])


@case("S6", "`history: false` and `recovery: false` protect the history")
def protected(r):
    secret = {**FULL, "history": False}
    port = serve(r, {"namespaces": {"r": secret, "n": {**secret, "recovery": False}, "o": {**FULL, "recovery": False}}})
    with Client(port, {}) as client:
        for name in ("r", "n", "o"):
            publish(port, f"{name}:a", "secret")
            result = client.ask({"subscribe": {"channel": f"{name}:a", "recover": True}})["subscribe"]
            check(not result.get("recovered") and not result.get("publications"), f"{name}: {result}")
            client.ask({"unsubscribe": {"channel": f"{name}:a"}})
        result = client.ask({"subscribe": {"channel": "n:a", "recover": True, "recoverable": True}})["subscribe"]
        check(not result.get("publications"), f"recoverable: {result}")


@case("S7", "a refreshed token with other channels sends the client away with 3010", shortened="tokens are refreshed at once")
def refreshed(r):
    port = serve(r, {**N, "tokens": {"secret": SECRET}})

    def token(channels):
        return sign({"sub": "7", "channels": channels, "exp": int(time.time()) + 600})

    for first, second, away in [(["n:a"], ["n:a"], False), (["n:a", "n:b"], ["n:a"], True), (["n:a"], ["n:a", "n:b"], True)]:
        with Client(port, {"token": token(first)}) as client:
            try:
                reply = client.ask({"refresh": {"token": token(second)}})
                check(not away and "refresh" in reply, f"{first} to {second}: expected 3010, found {reply}")
            except Closed as end:
                expect(f"the close of {first} to {second}", 3010 if away else None, end.code)


@case("S9", "JSON has the zeros and empty texts that SDKs read")
def zeros(r):
    port = serve(r, N)
    with Client(port, {}) as client:
        expect("presence_stats", {"num_clients": 0, "num_users": 0},
               client.ask({"presence_stats": {"channel": "n:z"}})["presence_stats"])
        expect("presence", {"presence": {}}, client.ask({"presence": {"channel": "n:z"}})["presence"])
        history = client.ask({"history": {"channel": "n:z", "limit": 5}})["history"]
        expect("history", ([], 0), (history.get("publications"), history.get("offset")))
        client.ask({"subscribe": {"channel": "n:z"}})
        present = client.ask({"presence": {"channel": "n:z"}})["presence"]["presence"]
        expect("the user of an anonymous client", [""], [info.get("user") for info in present.values()])
        client.send({"id": 90, "publish": {"channel": "n:z", "data": 1}})
        lines = [client.next(), client.next()]
        pushes = [line["push"]["pub"] for line in lines if "push" in line]
        expect("the publisher's user", [""], [pub["info"].get("user") for pub in pushes])


@case("P3", "an offset without an epoch is not recoverable")
def no_epoch(r):
    port = serve(r, N)
    for number in range(10):
        publish(port, "n:h", number)
    with Client(port, {}) as client:
        result = client.ask({"subscribe": {"channel": "n:h", "recover": True, "offset": 7}})["subscribe"]
        check(not result.get("recovered") and not result.get("publications"), f"{result}")
        expect("was_recovering, offset", (True, 10), (result.get("was_recovering"), result.get("offset")))


@case("A18", "user channels are parted at the last `#`")
def user_channels(r):
    port = serve(r, {"namespaces": {"personal": FULL}, "tokens": {"secret": SECRET}})
    with Client(port, {"token": sign({"sub": "7"})}) as client:
        for channel, allowed in [("personal:#7,8#", False), ("personal:#7#8", False), ("personal:#8#7", True),
                                 ("personal:#7", True), ("personal:a#8,7", True), ("personal:#8", False)]:
            reply = client.ask({"subscribe": {"channel": channel}})
            expect(f"subscribe to {channel}", None if allowed else 103, reply.get("error", {}).get("code"))
