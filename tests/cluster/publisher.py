"""A publisher of numbers through the HTTP API of push, for tests that count what each client receives."""

import collections
import http.client
import json
import threading
import time

# Publications that are refused after the end of the publisher are repeated for so long.
FINISH_SECONDS = 15.0


class Publication:
    """A publication that is due. `since`: the first attempt."""

    def __init__(self, channel, due):
        self.channel, self.due, self.since = channel, due, None


class Publisher(threading.Thread):
    """Publishes numbers into channels at a rate, in turn, over one connection to one of `ports`, independent of the responses.

    A publication whose outcome is not known, or that was refused, counts as unacknowledged; the next one of its channel is sent in its place
    with the time at which that one was due. Clients may miss an unacknowledged one. With `repeat_seconds` it is sent again instead, with its
    number and idempotency key, until it is acknowledged, which must be within that time: clients may miss none.
    """

    TICK_SECONDS = 0.02
    BATCH = 256

    def __init__(self, name, ports, channels, rate, *, host="127.0.0.1", size=0, seconds=4.5, repeat_seconds=None, per_connection=None, fields=None,
                 on_acknowledged=None):
        """`per_connection`: requests after which the connection is replaced. `fields(channel, number)`: those of the publish command in place of
        the data that crowd.py reads. `on_acknowledged(channel, result)` receives the result of each publication."""
        super().__init__(daemon=True)
        self.name_, self.ports, self.channels, self.rate, self.host, self.seconds = name, list(ports), list(channels), rate, host, seconds
        self.pad, self.repeat_seconds, self.per_connection = "x" * size, repeat_seconds, per_connection
        self.fields, self.on_acknowledged = fields, on_acknowledged
        # The last number of each channel: the last acknowledged one with `repeat_seconds`, else the last one that was sent.
        self.numbers = dict.fromkeys(self.channels, 0)
        self.acknowledged, self.unacknowledged, self.errors = 0, {}, collections.Counter()
        # Seconds: of each request, of each time in which all or some were refused, and of the slowest publication.
        self.responses, self.outages, self.slowest = [], [], 0.0
        self.stopping, self.failure = threading.Event(), None
        self.connection, self.requests, self.turn = None, 0, 0

    def run(self):
        try:
            self.publish()
        except Exception as why:  # noqa: BLE001 raised by `finish`
            self.failure = why
        self.close()

    def publish(self):
        begun, made, pending, refused_since = time.monotonic(), 0, [], None
        while True:
            now = time.monotonic()
            if not self.stopping.is_set():
                wanted = int((now - begun) * self.rate)
                pending += [Publication(self.channels[index % len(self.channels)], begun + index / self.rate) for index in range(made, wanted)]
                made = max(made, wanted)
            elif not pending:
                return
            batch, pending = self.next_batch(pending)
            if batch:
                refused = self.send(batch, now)
                if refused:
                    refused_since = refused_since or now
                    gives_up = self.stopping.is_set() and self.repeat_seconds is None and time.monotonic() - refused_since >= FINISH_SECONDS
                    pending = ([] if gives_up else refused) + pending
                elif refused_since is not None:
                    self.outages.append(time.monotonic() - refused_since)
                    refused_since = None
            time.sleep(self.TICK_SECONDS)

    def next_batch(self, pending):
        """Returns the oldest publications, at most one of each channel, and the others."""
        batch, rest, taken = [], [], set()
        for publication in pending:
            if len(batch) < self.BATCH and publication.channel not in taken:
                batch.append(publication)
                taken.add(publication.channel)
            else:
                rest.append(publication)
        return batch, rest

    def send(self, batch, now):
        """Returns the publications that are not acknowledged."""
        commands = []
        for publication in batch:
            publication.since = publication.since or now
            number = self.numbers[publication.channel] + 1
            commands.append({"publish": self.command(publication, number)})
            if self.repeat_seconds is None:
                self.numbers[publication.channel] = number
        replies = self.request(commands)
        refused = []
        for index, publication in enumerate(batch):
            reply = replies[index] if replies else {}
            if "error" in reply:
                self.errors[f"error {reply['error'].get('code')}"] += 1
            if "publish" in reply:
                self.acknowledge(publication, reply["publish"])
                continue
            if self.repeat_seconds is None:
                self.unacknowledged.setdefault(publication.channel, set()).add(self.numbers[publication.channel])
            elif time.monotonic() - publication.since > self.repeat_seconds:
                raise AssertionError(f"{self.name_}: {publication.channel} {self.numbers[publication.channel] + 1} is refused for more than "
                                     f"{self.repeat_seconds} s: {dict(self.errors)}")
            refused.append(publication)
        self.responses.append(time.monotonic() - now)
        return refused

    def command(self, publication, number):
        channel = publication.channel
        if self.fields:
            command = self.fields(channel, number)
        else:
            command = {"data": {"p": self.name_, "s": number, "t": round(publication.due, 4), **({"x": self.pad} if self.pad else {})}}
        if self.repeat_seconds is not None:
            command["idempotency_key"] = f"{self.name_}-{number}"
        return {"channel": channel, **command}

    def acknowledge(self, publication, result):
        self.acknowledged += 1
        self.slowest = max(self.slowest, time.monotonic() - publication.since)
        if self.repeat_seconds is not None:
            self.numbers[publication.channel] += 1
        if self.on_acknowledged:
            self.on_acknowledged(publication.channel, result)

    def request(self, commands):
        """Returns the replies, or None."""
        port = self.ports[self.turn % len(self.ports)]
        self.requests += 1
        if self.connection and (self.connection.port not in self.ports or (self.per_connection and self.requests % self.per_connection == 0)):
            self.close()
        try:
            self.connection = self.connection or http.client.HTTPConnection(self.host, port, timeout=self.seconds)
            self.connection.request("POST", "/api/batch", json.dumps({"commands": commands, "parallel": True}), {"X-API-Key": "K"})
            response = self.connection.getresponse()
            body = response.read()
            if response.status == 200:
                if response.getheader("Connection", "").lower() == "close":
                    self.close()
                return json.loads(body)["replies"]
            self.errors[str(response.status)] += 1
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.errors[type(error).__name__] += 1
        # The next attempt is at another server.
        self.close()
        self.turn += 1
        return None

    def close(self):
        if self.connection:
            self.connection.close()
        self.connection = None

    def finish(self):
        """Publishes what is due, and ends."""
        self.stopping.set()
        self.join(60 + (self.repeat_seconds or 0))
        if self.failure:
            raise self.failure
        if self.is_alive():
            raise AssertionError(f"the publisher {self.name_} does not end: {dict(self.errors)}")

    def excuses(self, channel, first, last):
        """Whether clients may miss all of these numbers."""
        missing = self.unacknowledged.get(channel, ())
        return all(number in missing for number in range(first, last + 1))

    def finals(self):
        """Returns the last acknowledged number of each channel."""
        found = {}
        for channel, number in self.numbers.items():
            missing = self.unacknowledged.get(channel, ())
            while number in missing:
                number -= 1
            found[channel] = number
        return found


def errors_of(publishers, since=None):
    """Returns how often each reason was the cause of a refusal, over all publishers; `since`: those of an earlier call."""
    return sum((publisher.errors.copy() for publisher in publishers), collections.Counter()) - collections.Counter(since or {})
