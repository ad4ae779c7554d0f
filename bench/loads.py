"""The load clients: what a load is, how each client is told of it, and what it says of it.

Four clients: `ringmain bench` (kind `bench`), the lean client/lg.c (`lg`), for HTTPS in its place the lean
client/tls (`tl`), and wrk. What they say
becomes a dictionary of figures with the same names for all: `n` answers in `secs`, `rps` a second;
`p50_us` and so on from the sending, `sched_p50_us` and so on from the schedule (fixed rates only);
`errs`, the sum of `lost`, `mismatched`, `connect_errs` and `silent`; `missed` left late and `unsent`
not at all (fixed rates only); `cpu`, seconds of the client; `resumed`, answers on resumed sessions (`tl` only).

Must not know of servers, of rounds or of what is concluded. Starts no process.
"""

import collections
import json
import math
import re

# A GET of `path`, or echoed messages of `bytes`. `rate`: messages a second by a schedule (None:
# closed loop). `pipeline`: messages in flight on a connection. `reconnect_every`: so many messages
# a connection. `sources`: FROM-TO addresses to dial from. `expect`: a text in each body. `websocket`: the echoed
# messages are WebSocket's, at `path`. `tls`: a `Tls`, for a GET over it. `headers`: [(name, value)] of each GET (`bench` only).
Load = collections.namedtuple("Load", "path bytes connections rate pipeline reconnect_every sources expect websocket tls headers",
                              defaults=(None, None, 64, None, 1, None, None, None, False, None, ()))
# `mode`: keep (connections are kept), full or resumed (a GET a connection, each with a handshake of that kind).
# `ca`: the authority of the server's certificate, a PEM file.
Tls = collections.namedtuple("Tls", "mode ca")

# An answer that takes longer is an error, and its connection is given up.
TIMEOUT_SECONDS = 1
QUANTILES = {"p50_us": "p50_us", "p99_us": "p99_us", "p999_us": "p99_9_us", "max_us": "max_us"}
UNITS_US = {"us": 1.0, "ms": 1e3, "s": 1e6, "m": 60e6, "h": 3600e6}


class ClientError(Exception):
    """A client said what is no measurement; the text says what was expected and found."""


def milliseconds(seconds):
    """A time as `ringmain bench` takes it: whole numbers with a unit."""
    return f"{round(seconds * 1000)}ms"


def bench_command(program, load, port, secs, warm, cpu, server_pid=None, engine="auto"):
    """`ringmain bench`: one round on one CPU, the document on standard output."""
    command = [program, "bench", "--json", "-q", "--rounds", "1", "-d", milliseconds(secs), "-w", milliseconds(warm),
               "-c", str(load.connections), "--cpus", str(cpu), "--threads", "1", "--engine", engine,
               "--timeout", f"{TIMEOUT_SECONDS}s"]
    if server_pid:
        command += ["--server-pid", str(server_pid)]
    if load.rate:
        command += ["-r", f"{load.rate:.0f}"]
    if load.pipeline > 1:
        command += ["-p", str(load.pipeline)]
    if load.reconnect_every:
        command += ["--reconnect-every", str(load.reconnect_every)]
    if load.sources:
        command += ["--source", load.sources]
    if load.bytes:
        target = f"ws://127.0.0.1:{port}{load.path}" if load.websocket else f"tcp://127.0.0.1:{port}"
        return command + ["--echo", str(load.bytes), target]
    if load.expect:
        command += ["--expect-status", "200", "--expect-body", load.expect]
    for name, value in load.headers:
        command += ["-H", f"{name}: {value}"]
    if load.tls:
        return command + ["--ca", str(load.tls.ca), f"https://127.0.0.1:{port}{load.path}"]
    return command + [f"http://127.0.0.1:{port}{load.path}"]


def lg_command(program, load, port, secs, warm):
    """The lean client."""
    command = [program, f"-p{port}", f"-d{secs}", f"-w{warm}", f"-c{load.connections}"]
    if load.websocket:
        command += [f"-W{load.bytes}", f"-r{load.path}"]
    else:
        command.append(f"-e{load.bytes}" if load.bytes else f"-r{load.path}")
    if load.rate:
        command.append(f"-R{load.rate}")
    if load.pipeline > 1:
        command.append(f"-P{load.pipeline}")
    if load.reconnect_every:
        command.append(f"-n{load.reconnect_every}")
    if load.sources:
        command.append(f"-s{load.sources}")
    return command


def tl_command(program, load, port, secs, warm):
    """The lean client of HTTPS, which does not look at the certificate."""
    command = [program, "-p", f"{port}", "-m", load.tls.mode, "-r", load.path, "-c", f"{load.connections}",
               "-d", f"{secs}", "-w", f"{warm}"]
    return command + (["-s", load.sources] if load.sources else [])


def lean(load):
    """The lean client for a load: its program's name and the function that makes its command line."""
    return ("tl", tl_command) if load.tls else ("lg", lg_command)


def only_lean(load):
    """Whether the lean client must make this load: it alone says which handshakes were resumed."""
    return bool(load.tls) and load.tls.mode != "keep"


def wrk_command(program, load, port, secs):
    """wrk: a closed loop, whole seconds, no warm-up."""
    return [program, "-t1", f"-c{load.connections}", f"-d{math.ceil(secs)}s", "--latency",
            f"http://127.0.0.1:{port}{load.path}"]


def bench_figures(text):
    """The figures of a document of `ringmain bench --json` with one round.

    Besides those of all clients: `doubts`, the kinds of its warnings; `server_us_per_message` and
    `server_cpu_secs` if it watched a server; `lag_p99_us` of a fixed rate, its own lateness.
    """
    try:
        document = json.loads(text)
        if (document["format"], document["version"], document["kind"]) != ("ringmain-bench", 1, "run"):
            raise ClientError(f"expected a document of a run, version 1, found {document['kind']}, version {document['version']}")
        return _of_run(document["run"])
    except (ValueError, KeyError, TypeError) as e:
        raise ClientError(f"expected a document of `ringmain bench --json`, found {text[:200]!r} ({e!r})") from e


def _of_run(run):
    if len(run["rounds"]) != 1:
        raise ClientError(f"expected one round, found {len(run['rounds'])}")
    found, = run["rounds"]
    counts = found["counts"]
    if not found["service"]:
        raise ClientError("nothing was answered: " + " / ".join(d["message"] for d in run["doubts"]))
    figures = {"rps": found["throughput_per_s"], "n": counts["answered"], "secs": found["elapsed_s"]}
    figures.update({name: found["service"][key] for name, key in QUANTILES.items()})
    if found["response"]:
        figures.update({f"sched_{name}": found["response"][key] for name, key in QUANTILES.items()})
        figures.update(missed=counts["late"], unsent=counts["dropped"])
    if found["lag"]:
        figures["lag_p99_us"] = found["lag"]["p99_us"]
    figures.update(lost=sum(counts["broken"].values()), mismatched=counts["unexpected"],
                   connect_errs=sum(counts["connect_errors"].values()), silent=counts["timeouts"])
    figures["errs"] = sum(figures[key] for key in ("lost", "mismatched", "connect_errs", "silent"))
    figures["cpu"] = found["client"]["cpu_s"]
    if found["server"]:
        figures["server_cpu_secs"] = found["server"]["cpu_s"]
        figures["server_us_per_message"] = found["server"]["cpu_us_per_answer"]
    figures["doubts"] = sorted({d["kind"] for d in run["doubts"] if d["severity"] == "warning"})
    return figures


def lg_figures(line):
    """The figures of the last line of lg or tl: they have them under these names."""
    try:
        figures = {key: float(value) for key, value in (pair.split("=") for pair in line.split())}
    except ValueError as e:
        raise ClientError(f"expected lg's line of figures, found {line[:200]!r}") from e
    if not figures.get("n"):
        raise ClientError(f"nothing was answered: {line.strip()!r}")
    return figures


def wrk_figures(text):
    """The figures of wrk's report, as far as it has them; it counts no CPU and no schedule."""
    total = re.search(r"(\d+) requests in ([\d.]+)(us|ms|s|m|h),", text)
    rate = re.search(r"^Requests/sec:\s+([\d.]+)", text, re.M)
    quantiles = {q: float(value) * UNITS_US[unit]
                 for q, value, unit in re.findall(r"^\s+(50|75|90|99)%\s+([\d.]+)(us|ms|s|m|h)\s*$", text, re.M)}
    if not total or not rate or not int(total[1]) or not {"50", "99"} <= set(quantiles):
        raise ClientError(f"expected wrk's report with latencies, found {text[-300:]!r}")
    longest = re.search(r"^\s+Latency\s+\S+\s+\S+\s+([\d.]+)(us|ms|s|m|h)\s", text, re.M)
    socket_errors = [int(n) for n in re.findall(r"(?:connect|read|write|timeout) (\d+)", text)]
    refused = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
    figures = {"n": int(total[1]), "secs": float(total[2]) * UNITS_US[total[3]] / 1e6, "rps": float(rate[1]),
               "p50_us": quantiles["50"], "p99_us": quantiles["99"],
               "errs": sum(socket_errors) + (int(refused[1]) if refused else 0)}
    if longest:
        figures["max_us"] = float(longest[1]) * UNITS_US[longest[2]]
    return figures
