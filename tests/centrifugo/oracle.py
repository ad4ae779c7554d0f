"""`cargo xtask suite centrifugo`: the same frames and calls sent to Centrifugo and to Ringmain, every difference explained or an error.

Both run with memory alone and equivalent configurations. A scenario (`scenarios.py`) returns what it has seen as JSON values; what is
drawn by lot is replaced by its place of appearance. `differences.py` lists what differs and why; a difference that is not listed
fails, and so does an entry that no longer applies.
"""

import argparse
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "field")]

import rig  # noqa: E402
import scenarios  # noqa: E402
from differences import DIFFERENCES  # noqa: E402

CENTRIFUGO = {
    "client": {
        "allow_anonymous_connect_without_token": True,
        "allowed_origins": ["*"],
        "token": {"hmac_secret_key": scenarios.SECRET},
    },
    "http_api": {"key": "key"},
    "http_stream": {"enabled": True},
    "sse": {"enabled": True},
    "uni_sse": {"enabled": True},
    "uni_http_stream": {"enabled": True},
    "uni_websocket": {"enabled": True},
    "log": {"level": "error"},
    "channel": {
        "without_namespace": {"allow_subscribe_for_client": True, "allow_subscribe_for_anonymous": True, "allow_publish_for_client": True,
                              "allow_publish_for_anonymous": True},
        "namespaces": [
            {
                "name": "kept", "history_size": 100, "history_ttl": "300s", "force_recovery": True, "force_positioning": True,
                "presence": True, "allow_subscribe_for_client": True, "allow_publish_for_client": True,
                "allow_history_for_client": True, "allow_presence_for_client": True, "allow_subscribe_for_anonymous": True,
                "allow_publish_for_anonymous": True, "allow_history_for_anonymous": True, "allow_presence_for_anonymous": True,
            },
            {"name": "room", "allow_subscribe_for_client": True, "presence": True, "join_leave": True, "force_push_join_leave": True,
             "allow_presence_for_client": True, "allow_subscribe_for_anonymous": True, "allow_presence_for_anonymous": True},
            {"name": "closed"},
            {"name": "delta", "history_size": 100, "history_ttl": "300s", "force_recovery": True, "allow_subscribe_for_client": True,
             "allow_subscribe_for_anonymous": True, "allowed_delta_types": ["fossil"], "delta_publish": True},
            {"name": "tagged", "history_size": 100, "history_ttl": "300s", "force_recovery": True, "allow_subscribe_for_client": True,
             "allow_subscribe_for_anonymous": True, "allow_tags_filter": True},
        ],
    },
}

RINGMAIN = f"""
listen: 127.0.0.1:PORT
push:
  anonymous: true
  api_key: key
  tokens: {{secret: '{scenarios.SECRET}'}}
  channels: {{publish: true}}
  namespaces:
    kept: {{retention: {{publications: 100, time: 300s}}, recovery: true, presence: true, history: true, publish: true}}
    room: {{presence: true, join_leave: true}}
    closed: {{listen: nobody}}
    delta: {{retention: {{publications: 100, time: 300s}}, recovery: true, delta: fossil}}
    tagged: {{retention: {{publications: 100, time: 300s}}, recovery: true, tags_filter: true}}
routes:
  live: {{rules: [{{match: /, push: true}}]}}
"""


def start_centrifugo(r, binary):
    port = rig.free_port()
    path = r.file("centrifugo.json", json.dumps(CENTRIFUGO))
    process = r.start("-c", path, "--http_server.address", "127.0.0.1", "--http_server.port", port, command=str(binary))
    process.wait_port(port)
    return port


def start_ringmain(r):
    port = rig.free_port()
    r.gateway(RINGMAIN.replace("PORT", str(port)), port=port)
    return port


def differences(path, left, right):
    """Yields (path, Centrifugo's value, Ringmain's value) of each difference."""
    if isinstance(left, dict) and isinstance(right, dict):
        for key in sorted({*left, *right}):
            yield from differences(f"{path}.{key}", left.get(key, "(none)"), right.get(key, "(none)"))
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for at, (a, b) in enumerate(zip(left, right)):
            yield from differences(f"{path}[{at}]", a, b)
    elif left != right or type(left) is not type(right):
        yield path, left, right


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--centrifugo", type=pathlib.Path, required=True, help="Centrifugo's binary")
    parser.add_argument("--binary", type=pathlib.Path, default=rig.REPO / "target" / "release" / "ringmain")
    parser.add_argument("--only", default="", help="scenarios, separated by commas")
    options = parser.parse_args()
    only = {name for name in options.only.split(",") if name}
    chosen = {name: run for name, run in scenarios.ALL.items() if not only or name in only}
    failed, unused, explained, steps = 0, {key for key in DIFFERENCES if key.split(".")[0].split("[")[0] in chosen}, 0, 0
    with rig.Rig(options.binary.resolve()) as r:
        ports = [start_centrifugo(r, options.centrifugo.resolve()), start_ringmain(r)]
        for name, run in chosen.items():
            seen = []
            for port in ports:
                side = scenarios.Side(port)
                try:
                    run(side)
                finally:
                    side.end()
                seen.append(side.seen)
            steps += len(seen[0])
            lines = []
            for path, ours, theirs in differences(name, *seen):
                key = next((key for key in DIFFERENCES if path == key or path.startswith((key + ".", key + "["))), None)
                if key is None:
                    lines.append(f"        {path}: Centrifugo {json.dumps(ours)}, Ringmain {json.dumps(theirs)}")
                else:
                    unused.discard(key)
                    explained += 1
            failed += len(lines)
            print(f"{'FAILED' if lines else 'ok':8}{name} ({len(seen[0])} observations)", flush=True)
            print("".join(line + "\n" for line in lines), end="", flush=True)
    for key in sorted(unused):
        failed += 1
        print(f"FAILED  differences.py: {key} does not differ any more")
    print(f"{len(chosen)} scenarios, {steps} observations, {explained} explained differences, {failed} others")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
