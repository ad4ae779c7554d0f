"""A client of the Centrifuge protocol that believes what it is told, and a ledger that knows what is true.

The client subscribes to channels with recovery, remembers (epoch, offset) as SDKs do, reconnects to the next of its servers when one
goes away, and notes every publication and what was promised about those it has missed.
"""

import collections
import json
import socket
import threading
import time

import rig
from websocket import Closed, Ws

ATTEMPT_SECONDS = 0.2


class Believer:
    """One connection at a time, with subscriptions to all `channels`. Publications are `{"s": number}`, counted by channel from 1."""

    def __init__(self, ports, channels):
        self.ports, self.channels = ports, channels
        self.turn = 0
        self.place = {}
        self.seen = collections.defaultdict(list)
        # Of each channel, the numbers up to which it cannot know what is missing: it was told so.
        self.forgiven = collections.defaultdict(int)
        self.excused = collections.defaultdict(list)
        self.recovered = self.unrecovered = self.notified = self.connects = 0
        self.by_place = {}
        self.conflicts = []
        self.ready = threading.Event()
        self.over = threading.Event()
        self.lock = threading.Lock()
        self.notices = []
        # By channel, what happened: the tail is shown where something went wrong.
        self.trace = collections.defaultdict(list)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.over.is_set():
            try:
                self.session(self.ports[self.turn % len(self.ports)])
            except (OSError, Closed, ValueError, rig.Failed):
                pass
            self.ready.clear()
            self.turn += 1
            time.sleep(ATTEMPT_SECONDS)

    def session(self, port):
        ws = Ws(port)
        if ws.status != 101:
            return
        self.connects += 1
        ws.socket.settimeout(0.5)
        number, asked = 1, {}
        due = {channel: 0.0 for channel in self.channels}

        def subscribe(channel):
            nonlocal number
            number += 1
            asked[number] = channel
            request = {"channel": channel, "recoverable": True, "positioned": True}
            if channel in self.place:
                epoch, offset = self.place[channel]
                request |= {"recover": True, "epoch": epoch, "offset": offset}
            ws.send({"id": number, "subscribe": request})

        while not self.over.is_set():
            now = time.monotonic()
            for channel, at in list(due.items()):
                if at <= now:
                    del due[channel]
                    subscribe(channel)
            if not due and not asked:
                self.ready.set()
            try:
                message = ws.message()
            except (socket.timeout, TimeoutError):
                continue
            with self.lock:
                if "push" in message:
                    push = message["push"]
                    channel = push["channel"]
                    if "pub" in push:
                        self.publication(channel, push["pub"])
                    if "unsubscribe" in push:
                        self.trace[channel].append(("unsubscribed", push["unsubscribe"].get("code")))
                        self.notified += 1
                        self.notices.append(time.monotonic())
                        due[channel] = 0.0
                elif "id" in message and message["id"] in asked:
                    channel = asked.pop(message["id"])
                    if "error" in message:
                        self.trace[channel].append(("error", message["error"].get("code")))
                        rig.check(message["error"].get("temporary"), f"{channel}: {message}")
                        due[channel] = now + 0.1
                    else:
                        self.subscribed(channel, message["subscribe"])
        ws.socket.close()

    def subscribed(self, channel, result):
        publications = result.get("publications", [])
        self.trace[channel].append(("subscribed", result.get("recovered"), result.get("epoch", "")[:4], result.get("offset"), len(publications)))
        if channel in self.place:
            if result.get("recovered"):
                self.recovered += 1
            else:
                self.unrecovered += 1
                self.excused[channel].append(len(self.seen[channel]))
        elif publications:
            self.excused[channel].append(0)
        self.place[channel] = (result.get("epoch", ""), result.get("offset", 0))
        for publication in publications:
            self.publication(channel, publication)
        offset = max(result.get("offset", 0), self.place[channel][1])
        self.place[channel] = (result.get("epoch", ""), offset)

    def publication(self, channel, publication):
        offset = publication.get("offset", 0)
        epoch = self.place[channel][0]
        number = publication["data"]["s"]
        self.trace[channel].append((offset, number))
        if offset:
            before = self.by_place.setdefault((channel, epoch, offset), number)
            if before != number:
                self.conflicts.append((channel, epoch, offset, before, number))
            self.place[channel] = (epoch, offset)
        self.seen[channel].append(number)

    def last(self, channel):
        with self.lock:
            return self.seen[channel][-1] if self.seen[channel] else 0

    def end(self):
        self.over.set()
        self.thread.join(10)

    def verdict(self):
        """Returns what went wrong: publications that are missing without a word, and those that came twice or out of order."""
        lost = doubled = reordered = 0
        with self.lock:
            for channel, numbers in self.seen.items():
                excused = set(self.excused[channel])
                known = set()
                last = None
                for index, number in enumerate(numbers):
                    if number in known:
                        doubled += 1
                    elif last is not None and number < last:
                        reordered += 1
                    if last is not None and number > last + 1 and index not in excused:
                        lost += len(set(range(last + 1, number)) - known)
                    known.add(number)
                    last = number if last is None else max(last, number)
        return {"lost": lost, "doubled": doubled, "reordered": reordered, "conflicts": len(self.conflicts)}

    def missing(self, channel, count):
        """Returns the numbers from 1 to `count` that never came."""
        with self.lock:
            return sorted(set(range(1, count + 1)) - set(self.seen[channel]))


class Ledger:
    """Numbers publications by channel and writes them with a producer at a rate."""

    def __init__(self, producer, channels):
        self.producer, self.channels = producer, channels
        self.counts = dict.fromkeys(channels, 0)
        self.sent = 0

    def write(self, records, rate, batch=100, at=None):
        """Writes so many records, `rate` a second. `at` maps counts of records to functions that are called once they are reached."""
        began = time.monotonic()
        events = sorted((at or {}).items())
        for start in range(0, records, batch):
            while events and events[0][0] <= start:
                threading.Thread(target=events.pop(0)[1], daemon=True).start()
            part = []
            for index in range(start, min(start + batch, records)):
                channel = self.channels[index % len(self.channels)]
                self.counts[channel] += 1
                part.append((channel, json.dumps({"s": self.counts[channel]})))
            self.producer.send(part)
            self.sent += len(part)
            pause = began + (start + batch) / rate - time.monotonic()
            if pause > 0:
                time.sleep(pause)
        for _, event in events:
            threading.Thread(target=event, daemon=True).start()
