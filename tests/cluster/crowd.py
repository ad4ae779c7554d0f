"""Many clients of the Centrifuge protocol on one thread, each of which believes what it is told, as SDKs do.

A client subscribes to channels with recovery and remembers (epoch, offset) of each. It reconnects after a lost connection and after
disconnect codes below 3500, subscribes again after an unsubscribe code of 2500 or more, and recovers each time. A publication with an
offset that is not the next one, without a `recovered: false` before it, is a fault. Data is `{"p": publisher, "s": number, "t": time}`:
numbers count from 1 in each channel and publisher, so that gaps and repeats are noticed whatever the offsets are; `t` is when the
publication was due, on the host's monotonic clock.

The cases of scale use the program `crowd` of crates/testkit, which does the same with less CPU time. Standard library only; knows no right value.
"""

import heapq
import json
import os
import random
import select
import socket
import struct
import threading
import time

FAULTS_KEPT = 50
GAPS_KEPT = 20_000
# The first delay before a client reconnects is drawn from this range, later ones double its end. SDKs wait for 0.5 to 1 s.
RECONNECT_SECONDS = (0.02, 0.25)
RECONNECT_LIMIT_SECONDS = 4.0
HANDSHAKE_SECONDS = 20.0
RESUBSCRIBE_SECONDS = 0.1
LATENCY_BUCKETS = 10_000


class Subscription:
    """A channel of a client: its position, and the newest number of each publisher with the notices up to then."""

    __slots__ = ("channel", "epoch", "offset", "is_live", "notices", "seen")

    def __init__(self, channel):
        self.channel, self.epoch, self.offset, self.is_live, self.notices, self.seen = channel, None, 0, False, 0, {}


class Client:
    """One connection at a time."""

    __slots__ = ("index", "token", "subscriptions", "socket", "state", "inbound", "outbound", "fragments", "requests", "number",
                 "attempts", "port", "preferred", "life", "id")

    def __init__(self, index, channels, token, preferred):
        self.index, self.token, self.preferred = index, token, preferred
        self.subscriptions = {channel: Subscription(channel) for channel in channels}
        self.socket, self.state, self.port, self.id = None, "idle", None, None
        self.inbound, self.outbound, self.fragments = bytearray(), bytearray(), b""
        self.requests, self.number, self.attempts, self.life = {}, 1, 0, 0


class Crowd(threading.Thread):
    """The clients. `clients`: (channels, token, port) of each; a port of None is drawn from `ports` for each connection.

    `is_steady`: a client without a port of its own stays at its node while that accepts connections. `has_holes`: offsets are those of
    a log, which only increase.
    """

    def __init__(self, ports, clients, is_tracing=False, reconnects=True, connect_rate=2000, seed=1,
                 reconnect=RECONNECT_SECONDS, has_holes=False):
        super().__init__(daemon=True)
        self.has_holes = has_holes
        self.random, self.reconnect = random.Random(seed), reconnect
        self.ports, self.is_tracing, self.reconnects, self.connect_rate = list(ports), is_tracing, reconnects, connect_rate
        self.clients = [Client(index, *(list(client) + [None, None])[:3]) for index, client in enumerate(clients)]
        self.epoll, self.by_socket, self.timers, self.order = select.epoll(), {}, [], 0
        self.lock, self.is_over = threading.Lock(), False
        self.faults, self.fault_count, self.gaps, self.gap_count = [], 0, [], 0
        self.repeats, self.repeat_count, self.trace = [], 0, []
        self.counts = dict.fromkeys(("delivered", "recovered_publications", "recovered", "unrecovered", "notified", "connects",
                                     "refused", "errors", "missed_with_notice", "repeated_with_notice"), 0)
        self.closes, self.by_position = {}, {}
        self.latency, self.latency_max, self.slowest = [0] * LATENCY_BUCKETS, 0.0, None
        self.wake_read, self.wake_write = os.pipe()
        self.epoll.register(self.wake_read, select.EPOLLIN)
        now = time.monotonic()
        for index, client in enumerate(self.clients):
            self.at(now + index / connect_rate, self.connect, client, client.life)

    # The loop.

    def at(self, when, action, *arguments):
        self.order += 1
        heapq.heappush(self.timers, (when, self.order, action, arguments))

    def run(self):
        try:
            self.loop()
        except Exception as error:
            self.fault_count += 1
            self.faults.append(f"the clients have stopped: {error!r}")
            raise

    def loop(self):
        while not self.is_over:
            with self.lock:
                now = time.monotonic()
                while self.timers and self.timers[0][0] <= now:
                    _, _, action, arguments = heapq.heappop(self.timers)
                    action(*arguments)
                wait = min(self.timers[0][0] - now, 0.1) if self.timers else 0.1
            for descriptor, events in self.epoll.poll(max(wait, 0), 1024):
                with self.lock:
                    client = self.by_socket.get(descriptor)
                    if client is not None:
                        self.ready(client, events)
        with self.lock:
            for client in self.clients:
                if client.socket:
                    client.socket.close()
            self.epoll.close()

    def end(self):
        """Closes all connections."""
        self.is_over = True
        self.join(20)

    # Connections.

    def connect(self, client, life):
        if client.life != life or client.socket is not None:
            return
        client.life += 1
        # At its own node, but where that refuses connections at another one.
        is_own = client.preferred in self.ports and client.attempts % 2 == 0
        client.port = client.preferred if is_own else self.random.choice(self.ports)
        client.socket, client.state = socket.socket(), "connecting"
        client.inbound, client.outbound, client.fragments, client.requests = bytearray(), bytearray(), b"", {}
        client.socket.setblocking(False)
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.socket.connect_ex(("127.0.0.1", client.port))
        client.outbound += (b"GET /connection/websocket HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
        self.by_socket[client.socket.fileno()] = client
        self.epoll.register(client.socket, select.EPOLLIN | select.EPOLLOUT)
        self.at(time.monotonic() + HANDSHAKE_SECONDS, self.give_up, client, client.life)

    def give_up(self, client, life):
        if client.life == life and client.socket is not None and client.state != "open":
            self.close(client, "no response")

    def ready(self, client, events):
        try:
            if events & select.EPOLLOUT:
                self.flush(client)
            if events & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
                data = client.socket.recv(1 << 18)
                if not data:
                    return self.close(client, "end")
                client.inbound += data
                self.read(client)
        except BlockingIOError:
            pass
        except OSError as error:
            self.close(client, type(error).__name__)

    def flush(self, client):
        if client.outbound:
            sent = client.socket.send(client.outbound)
            del client.outbound[:sent]
        wanted = select.EPOLLIN | (select.EPOLLOUT if client.outbound else 0)
        self.epoll.modify(client.socket, wanted)

    def close(self, client, reason):
        """Forgets a connection. Codes from 3500 to 3999 and from 4500 end the client."""
        self.epoll.unregister(client.socket)
        del self.by_socket[client.socket.fileno()]
        client.socket.close()
        client.socket, was, client.state = None, client.state, "closed"
        client.life += 1
        for subscription in client.subscriptions.values():
            subscription.is_live = False
        if was == "connecting":
            self.counts["refused"] += 1
        else:
            self.closes[str(reason)] = self.closes.get(str(reason), 0) + 1
            self.note(client, "closed", reason)
        is_terminal = isinstance(reason, int) and (3500 <= reason < 4000 or reason >= 4500)
        if is_terminal or not self.reconnects:
            client.state = "ended"
            return
        low, high = self.reconnect
        limit = min(high * (1 << min(client.attempts, 6)), RECONNECT_LIMIT_SECONDS)
        client.attempts += 1
        self.at(time.monotonic() + self.random.uniform(low, limit), self.connect, client, client.life)

    def read(self, client):
        buffer = client.inbound
        if client.state == "connecting":
            end = buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(buffer[:end])
            del buffer[:end + 4]
            if b" 101 " not in head.split(b"\r\n", 1)[0]:
                return self.close(client, head.split(b"\r\n", 1)[0].decode())
            client.state = "greeting"
            self.send(client, {"id": 1, "connect": {"token": client.token} if client.token else {}})
        while len(buffer) >= 2:
            first, length, start = buffer[0], buffer[1] & 127, 2
            if length == 126:
                if len(buffer) < 4:
                    return
                length, start = struct.unpack_from(">H", buffer, 2)[0], 4
            elif length == 127:
                if len(buffer) < 10:
                    return
                length, start = struct.unpack_from(">Q", buffer, 2)[0], 10
            if len(buffer) < start + length:
                return
            data = bytes(buffer[start:start + length])
            del buffer[:start + length]
            operation = first & 15
            if operation == 8:
                return self.close(client, struct.unpack(">H", data[:2])[0] if len(data) >= 2 else "end")
            if operation == 9:
                self.frame(client, 10, data)
                continue
            if operation > 2:
                continue
            client.fragments += data
            if not first & 128:
                continue
            data, client.fragments = client.fragments, b""
            now = time.monotonic()
            for line in data.split(b"\n"):
                if line:
                    self.message(client, json.loads(line), now)
                    if client.socket is None:
                        return

    def send(self, client, *messages):
        self.frame(client, 1, b"\n".join(json.dumps(message).encode() for message in messages))

    def frame(self, client, operation, data):
        length = len(data)
        head = bytes([0x80 | operation])
        if length < 126:
            head += bytes([0x80 | length])
        elif length < 65536:
            head += bytes([0xFE]) + struct.pack(">H", length)
        else:
            head += bytes([0xFF]) + struct.pack(">Q", length)
        client.outbound += head + b"\0\0\0\0" + data
        try:
            self.flush(client)
        except BlockingIOError:
            self.epoll.modify(client.socket, select.EPOLLIN | select.EPOLLOUT)

    # The protocol.

    def message(self, client, message, now):
        if not message:
            return self.send(client, {})
        push = message.get("push")
        if push is not None:
            subscription = client.subscriptions.get(push.get("channel"))
            if "pub" in push:
                if subscription is None or not subscription.is_live:
                    return self.fault(client, push.get("channel"), "a publication without a subscription")
                return self.publication(client, subscription, push["pub"], now)
            if "unsubscribe" in push and subscription is not None:
                return self.unsubscribed(client, subscription, push["unsubscribe"].get("code", 0), now)
            if "disconnect" in push:
                return self.close(client, push["disconnect"]["code"])
            return self.note(client, push.get("channel"), push)
        number = message.get("id")
        if number == 1:
            if "error" in message:
                self.counts["errors"] += 1
                return self.close(client, f"error {message['error'].get('code')}")
            client.state, client.attempts, client.id = "open", 0, message["connect"].get("client")
            self.counts["connects"] += 1
            self.note(client, "connected", client.port)
            requests = [self.request(client, subscription) for subscription in client.subscriptions.values()]
            return self.send(client, *requests) if requests else None
        subscription = client.requests.pop(number, None)
        if subscription is None:
            return None
        if "error" in message:
            self.counts["errors"] += 1
            self.note(client, subscription.channel, message["error"])
            if not message["error"].get("temporary"):
                self.fault(client, subscription.channel, f"not subscribed: {message['error']}")
            return self.at(now + RESUBSCRIBE_SECONDS, self.subscribe, client, client.life, subscription)
        return self.subscribed(client, subscription, message["subscribe"], now)

    def request(self, client, subscription):
        client.number += 1
        client.requests[client.number] = subscription
        body = {"channel": subscription.channel, "recoverable": True, "positioned": True}
        if subscription.epoch is not None:
            body |= {"recover": True, "epoch": subscription.epoch, "offset": subscription.offset}
        return {"id": client.number, "subscribe": body}

    def subscribe(self, client, life, subscription):
        if client.life == life and client.state == "open":
            self.send(client, self.request(client, subscription))

    def unsubscribed(self, client, subscription, code, now):
        self.note(client, subscription.channel, {"unsubscribed": code})
        subscription.is_live = False
        if code >= 2500:
            self.counts["notified"] += 1
            self.at(now, self.subscribe, client, client.life, subscription)

    def subscribed(self, client, subscription, result, now):
        publications = result.get("publications", [])
        epoch, offset = result.get("epoch", ""), result.get("offset", 0)
        # JSON omits it where it is false.
        is_recovered = bool(result.get("recovered")) if subscription.epoch is not None else None
        if is_recovered is not None:
            if is_recovered:
                self.counts["recovered"] += 1
                self.counts["recovered_publications"] += len(publications)
                if epoch != subscription.epoch:
                    self.fault(client, subscription.channel, f"recovered, but in the epoch {epoch} instead of {subscription.epoch}")
            else:
                self.counts["unrecovered"] += 1
                subscription.notices += 1
                subscription.offset = publications[0].get("offset", 1) - 1 if publications else offset
        else:
            subscription.offset = publications[0].get("offset", 1) - 1 if publications else offset
        self.note(client, subscription.channel, {"subscribed": is_recovered, "epoch": epoch, "offset": offset,
                                                 "publications": len(publications)})
        subscription.epoch, subscription.is_live = epoch, True
        for publication in publications:
            self.publication(client, subscription, publication, now)
        # The position of a log also grows by publications of other channels; a missed one is noticed by the numbers.
        if not publications and offset > subscription.offset:
            if not self.has_holes:
                self.fault(client, subscription.channel, f"recovered at {offset} without the publications after {subscription.offset}")
            subscription.offset = offset

    def publication(self, client, subscription, publication, now):
        data, offset = publication["data"], publication.get("offset", 0)
        publisher, number = data["p"], data["s"]
        self.counts["delivered"] += 1
        if offset:
            if offset <= subscription.offset or not self.has_holes and offset != subscription.offset + 1:
                self.fault(client, subscription.channel, f"the offset {offset} after {subscription.offset}, number {number} of {publisher}")
            subscription.offset = offset
            position = (subscription.channel, subscription.epoch, offset)
            before = self.by_position.setdefault(position, (publisher, number))
            if before != (publisher, number):
                self.fault(client, subscription.channel, f"two publications at the offset {offset}: {before} and {(publisher, number)}")
        last, notices = subscription.seen.get(publisher, (0, 0))
        if number <= last:
            # A fault, unless the publisher does not know the outcome: it has sent the next one meanwhile.
            if notices != subscription.notices:
                self.counts["repeated_with_notice"] += 1
            else:
                self.repeat_count += 1
            if notices == subscription.notices and len(self.repeats) < GAPS_KEPT:
                self.repeats.append((subscription.channel, publisher, number, number))
            self.note(client, subscription.channel, {"repeated": number, "last": last})
        elif number > last + 1:
            if notices != subscription.notices:
                self.counts["missed_with_notice"] += number - last - 1
            else:
                self.gap_count += 1
                if len(self.gaps) < GAPS_KEPT:
                    self.gaps.append((subscription.channel, publisher, last + 1, number - 1))
        # Behind a notice, repeats are counted as such until something newer arrives.
        subscription.seen[publisher] = (max(number, last), notices if number <= last else subscription.notices)
        delay = now - data["t"]
        self.latency[min(int(delay * 1000), LATENCY_BUCKETS - 1)] += 1
        if delay > self.latency_max:
            self.latency_max, self.slowest = delay, (client.index, subscription.channel, number)
        if self.is_tracing:
            self.trace.append((now, client.index, subscription.channel, {"pub": (publisher, number), "offset": offset}))

    # What is reported.

    def fault(self, client, channel, text):
        self.fault_count += 1
        if len(self.faults) < FAULTS_KEPT:
            self.faults.append(f"client {client.index} at {client.port}, {channel}: {text}")
        self.note(client, channel, {"fault": text})

    def note(self, client, subject, event):
        if self.is_tracing:
            self.trace.append((time.monotonic(), client.index, subject, event))

    def mark(self):
        """Starts the latencies anew."""
        with self.lock:
            self.latency, self.latency_max, self.slowest = [0] * LATENCY_BUCKETS, 0.0, None

    def set_ports(self, ports):
        """Sets the ports for connections from now on."""
        with self.lock:
            self.ports = list(ports)

    def move(self, ports):
        """Closes all connections; the clients reconnect to one of these ports."""
        with self.lock:
            self.ports = list(ports)
            for client in self.clients:
                if client.socket is not None:
                    self.close(client, "moved")

    def live(self):
        """Returns how many subscriptions are live, of how many."""
        with self.lock:
            wanted = [subscription.is_live for client in self.clients if client.state != "ended"
                      for subscription in client.subscriptions.values()]
            return sum(wanted), len(wanted)

    def behind(self, counts, is_end=False):
        """Returns how many subscriptions lack the last number of one of {publisher: {channel: number}}, and some of them.

        `is_end`: nothing follows, so those that were notified since are not behind.
        """
        missing = []
        with self.lock:
            for publisher, channels in counts.items():
                for client in self.clients:
                    for subscription in client.subscriptions.values() if client.state != "ended" else ():
                        number, notices = subscription.seen.get(publisher, (0, 0))
                        last = channels.get(subscription.channel, 0)
                        if number < last and not (is_end and subscription.is_live and notices != subscription.notices):
                            missing.append((client.index, client.port, subscription.channel, publisher, number, last))
        return len(missing), missing[:3]

    def events(self, since=0.0):
        """Returns a copy of the trace."""
        with self.lock:
            return [event for event in self.trace if event[0] >= since]

    def report(self):
        """Returns the figures."""
        with self.lock:
            total, seen, high = sum(self.latency), 0, {}
            for percent in (50, 99):
                seen = 0
                for milliseconds, count in enumerate(self.latency):
                    seen += count
                    if seen >= total * percent / 100:
                        high[f"p{percent}_ms"] = milliseconds
                        break
            by_port = {}
            for client in self.clients:
                if client.state == "open":
                    by_port[str(client.port)] = by_port.get(str(client.port), 0) + 1
            return {**self.counts, "closes": dict(self.closes), "faults": list(self.faults), "fault_count": self.fault_count,
                    "gaps": list(self.gaps), "gap_count": self.gap_count, "repeats": list(self.repeats), "repeat_count": self.repeat_count,
                    "max_ms": round(self.latency_max * 1000, 1),
                    "slowest": self.slowest, "by_port": by_port, **high}
