#!/usr/bin/env python3
"""Cargo profiles compared: time and CPU of a build from nothing, size with and without symbols, CPU per request.

    bench/profiles.py                               every variant, then rounds of requests; an hour or more
    bench/profiles.py --only fat thin-16 --pairs 6
    bench/profiles.py --keep                        binaries of an earlier run are not built again

Variants are the profile `release` with other values of `lto`, `codegen-units` and `debug`, set by cargo's variables, so that
Cargo.toml stays as it is. Each is built in a folder of its own below target/profiles, from nothing, with the registry's archives
at hand: run it once before without a clock, or `cargo fetch`. Let nothing else run meanwhile. Rounds of `ringmain bench` of the
first variant then measure every binary as server: JSON over 64 kept connections, and the same through the gateway.

Exit code: 0 measured, 1 a build or a run failed, 2 could not be run.
"""

import json
import os
import shutil
import subprocess
import sys
import time

import builds
import proxy
import runs
import server as servers
import symbols

FOLDER = servers.TARGET / "profiles"
CELLS = [builds.Cell(scenario, builds.CONNECTIONS) for scenario in ("server", "gateway")]
BUILT = FOLDER / "built.json"

# Values of cargo's variables CARGO_PROFILE_RELEASE_*.
VARIANTS = {
    "fat": {"LTO": "fat", "CODEGEN_UNITS": "1", "DEBUG": "line-tables-only"},
    "fat-16": {"LTO": "fat", "CODEGEN_UNITS": "16", "DEBUG": "line-tables-only"},
    "thin-1": {"LTO": "thin", "CODEGEN_UNITS": "1", "DEBUG": "line-tables-only"},
    "thin-16": {"LTO": "thin", "CODEGEN_UNITS": "16", "DEBUG": "line-tables-only"},
    "thin-16-bare": {"LTO": "thin", "CODEGEN_UNITS": "16", "DEBUG": "none"},
    "local-16": {"LTO": "false", "CODEGEN_UNITS": "16", "DEBUG": "line-tables-only"},
    "local-16-bare": {"LTO": "false", "CODEGEN_UNITS": "16", "DEBUG": "none"},
    "local-256-bare": {"LTO": "false", "CODEGEN_UNITS": "256", "DEBUG": "none"},
}


class Failed(Exception):
    """A build failed; the text says which."""


def binary(name):
    """Where a variant's binary is."""
    return FOLDER / name / "release" / "ringmain"


def build(name):
    """Builds a variant from nothing. Returns its figures."""
    shutil.rmtree(FOLDER / name, ignore_errors=True)
    env = {**os.environ, "CARGO_INCREMENTAL": "0", **{f"CARGO_PROFILE_RELEASE_{key}": value for key, value in VARIANTS[name].items()}}
    command = ["cargo", "build", "--release", "--locked", "--quiet", "--package", "ringmain-cli", "--target-dir", str(FOLDER / name)]
    started = time.monotonic()
    cargo = subprocess.Popen(command, cwd=servers.REPO, env=env)
    # Of cargo and of every process below it.
    _, status, used = os.wait4(cargo.pid, 0)
    took, cargo.returncode = time.monotonic() - started, os.waitstatus_to_exitcode(status)
    if cargo.returncode:
        raise Failed(f"{name}: cargo build failed")
    stripped, debug = symbols.split(binary(name), FOLDER / name / "package")
    figures = {
        "seconds": took,
        "cpu": used.ru_utime + used.ru_stime,
        # Of the largest process: the linker, or rustc with LTO.
        "peak_mb": used.ru_maxrss / 1024,
        "whole_mb": binary(name).stat().st_size / 1e6,
        "stripped_mb": stripped.stat().st_size / 1e6,
        "debug_mb": debug.stat().st_size / 1e6,
    }
    print(f"{name}: " + " ".join(f"{key}={value:.1f}" for key, value in figures.items()), file=sys.stderr, flush=True)
    return figures


def build_all(names, keep):
    """The figures of every variant's build; with `keep`, of an earlier run where its binary exists."""
    known = json.loads(BUILT.read_text()) if keep and BUILT.exists() else {}
    for name in names:
        if name not in known or not binary(name).exists():
            known[name] = build(name)
            BUILT.write_text(json.dumps(known, indent=1))
    return {name: known[name] for name in names}


def report(built, results, args):
    """Prints the table."""
    base = next(iter(built))
    lines = [f"## Cargo profiles: {args.pairs} interleaved rounds of {args.secs:g} s, engine {args.engine}", "",
             f"Linux {os.uname().release}, {os.cpu_count()} CPUs, {time.strftime('%Y-%m-%d')}."
             f" {subprocess.run(['rustc', '-V'], capture_output=True, text=True, check=True).stdout.strip()}.", "",
             "| variant | lto | units | debug | build s | CPU s | peak MB | binary MB | stripped MB | symbols MB |"
             + "".join(f" {cell.scenario} us | ratio (95 %) |" for cell in CELLS), "| --- |" + " --- |" * (9 + 2 * len(CELLS))]
    for name, figures in built.items():
        settings = VARIANTS[name]
        row = [name, settings["LTO"], settings["CODEGEN_UNITS"], settings["DEBUG"], *(f"{value:.0f}" for value in figures.values())]
        for cell in CELLS:
            row += (builds.columns(results, name, cell, base) + [""])[:2]
        lines.append("| " + " | ".join(row) + " |")
    runs.publish(lines + runs.doubts(results), args)


def parse_arguments():
    ap = runs.arguments(__doc__, pairs=8)
    ap.add_argument("--only", nargs="+", choices=list(VARIANTS), default=list(VARIANTS), help="(all)")
    ap.add_argument("--keep", action="store_true", help="keep the binaries of an earlier run")
    ap.add_argument("--engine", choices=("uring", "epoll"), default="uring", help="of the server (uring)")
    return runs.parse(ap)


def main():
    args = parse_arguments()
    FOLDER.mkdir(parents=True, exist_ok=True)
    try:
        built = build_all(args.only, args.keep)
        args.client = str(binary(args.only[0]))
        runs.take_places(args)
        with servers.Server([args.client, "run", "--listen", "127.0.0.1:$PORT"], cpu=args.load_cpu, ready=proxy.ready) as upstream:
            results = runs.rounds(lambda _: {cell: list(built) for cell in CELLS},
                                  lambda name, cell: builds.one_run(binary(name), cell, upstream, None, args), args)
    except (Failed, symbols.SymbolsError) as e:
        print(f"profiles.py: {e}", file=sys.stderr)
        return 1
    except (OSError, servers.ServerError) as e:
        print(f"profiles.py: could not be run: {e}", file=sys.stderr)
        return 2
    report(built, results, args)
    return 0 if runs.all_sound(results, len(built) * len(CELLS) * args.pairs) else 1


if __name__ == "__main__":
    sys.exit(main())
