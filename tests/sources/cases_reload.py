"""Changes of the configuration: only the source that is changed is restarted, and secrets are read from files and the environment."""

import re

import brokers
import rig
from cases import LOGS, OUTBOX

REDIS_PASSWORD, POSTGRES_PASSWORD = "from-a-file", "from-the-environment"


class Sources:
    """A node with a source of every kind, each with a setting that can be changed."""

    def __init__(self, case):
        kafka, nats = brokers.Kafka(case).start(), brokers.Nats(case).start()
        redis, postgres = brokers.Redis(case).start(), brokers.Postgres(case)
        kafka.topic("prices", 1)
        nats.stream("PRICES", "prices.>")
        redis.command("CONFIG", "SET", "requirepass", REDIS_PASSWORD)
        access = postgres.dir / "data/pg_hba.conf"
        access.write_text(f"host all ringmain all scram-sha-256\n{access.read_text()}")
        postgres.start()
        made = postgres.psql(OUTBOX.read_text() + f"create role ringmain superuser login password '{POSTGRES_PASSWORD}';")
        rig.check(made.returncode == 0, made.stderr)
        secret = case.file("redis.password", REDIS_PASSWORD + "\n")
        self.case, self.port, self.admin = case, rig.free_port(), rig.free_port()
        # Of each kind, its keys; `{0}` is what is changed.
        self.sources = {
            "kafka": f"servers: '{kafka.address}', topics: prices, in_flight: {{0}}",
            "jetstream": f"servers: '{nats.address}', stream: PRICES, in_flight: {{0}}",
            "redis_streams": f"servers: '{redis.address}', password: '${{{{file:{secret}}}}}', streams: orders, in_flight: {{0}}",
            "redis_pubsub": f"servers: '{redis.address}', password: '${{{{file:{secret}}}}}', channels: c{{0}}",
            "postgres": f"server: '{postgres.address}', database: postgres, user: ringmain, password: '${{{{env:SECRET}}}}', in_flight: {{0}}",
            "nats": f"servers: '{nats.address}', subjects: s{{0}}",
        }
        self.values = dict.fromkeys(self.sources, 100)
        self.process = case.gateway(self.text(), port=self.port, env={"SECRET": POSTGRES_PASSWORD})
        LOGS.append(("reload", self.process))

    def text(self):
        """Returns the configuration."""
        lines = [f"listen: 127.0.0.1:{self.port}", f"admin: {{address: 127.0.0.1:{self.admin}}}", "push:", "  anonymous: true"]
        lines += [f"  {kind}: {{of_{kind}: {{{keys.format(self.values[kind])}}}}}" for kind, keys in self.sources.items()]
        return "\n".join([*lines, "routes: {all: {rules: [{push: true}]}}", ""])

    def starts(self):
        """Returns how often each source has reported that it reads."""
        found = re.findall(r"INFO  (?:source|NATS) of_(\w+)(?: \(\w+\))?: (?:reading|subscribed|listens)", self.process.output())
        return {kind: found.count(kind) for kind in self.sources}

    def wait(self, wanted):
        """Waits until each source has started so often, and delivers."""
        rig.until(f"sources have started: {wanted}", lambda: self.starts() == wanted, 60, 0.05)
        rig.until("all sources deliver", lambda: rig.get(self.admin, "/readyz").status == 200, 60, 0.05)


def reload_sources(case, _):
    """A change of one source of each kind: it is restarted, and the others continue; an invalid file changes nothing."""
    node = Sources(case)
    wanted = dict.fromkeys(node.sources, 1)
    node.wait(wanted)
    for kind in node.sources:
        node.values[kind] += 1
        wanted[kind] += 1
        case.replace(node.process.config, node.text())
        node.wait(wanted)
    case.replace(node.process.config, node.text().replace("stream: PRICES", "streams: PRICES"))
    node.process.wait_output(r"expected one of the keys .*found `streams`")
    node.values["kafka"] += 1
    wanted["kafka"] += 1
    case.replace(node.process.config, node.text())
    node.wait(wanted)
    return {"sources": len(wanted), "restarts": sum(wanted.values()) - len(wanted)}


CASES = [reload_sources]
