#!/usr/bin/env python3
"""Builds the ringmain binary by a profile of its own work (PGO), as packages should have it.

    bench/by_profile.py                        target/package/ringmain and its symbols, target/package/ringmain.debug
    bench/by_profile.py --secs 1 --keep        shorter loads; the profile stays in target/by-profile/data
    bench/by_profile.py --profile-only         target/by-profile/merged.profdata alone, which `cargo xtask dist --by-profile` builds with

Three steps: a build that counts, loads of every kind on it (plain and pipelined HTTP, TLS kept and with handshakes,
WebSocket echo, the gateway before a server, a file of many routes), made by the same binary's `ringmain bench`; then
the build that uses the counts. Which code is hot is learned, not which input: figures by bench/*.py are made with other
clients. Takes two builds of the profile `dist` and a minute of load.

Needs llvm-profdata of rustc's LLVM (`rustc -vV` names it): the component llvm-tools of rustup, or a package such as
llvm-22, whose programs are looked for in /usr/lib/llvm-NN/bin.

Exit code: 0 built, 1 a load or a build failed, 2 could not be run.
"""

import argparse
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile

import certificates
import routes
import server as servers
import symbols

FOLDER = servers.TARGET / "by-profile"
PACKAGE = servers.TARGET / "package"
DATA = FOLDER / "data"
MERGED = FOLDER / "merged.profdata"
# Optional parts of the program that packages have.
FEATURES = "brokers,kubernetes"
CONNECTIONS = 64
ROUTES = 2000
PROXY = servers.REPO / "bench" / "peers" / "settings" / "proxy-ringmain.yaml"


class Failed(Exception):
    """A step did not do; the text says which."""


def told_by_rustc(name):
    """What `rustc -vV` says of `name`."""
    told = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True).stdout
    return re.search(rf"^{name}: (\S+)", told, re.M)[1]


def profdata():
    """The program that merges profiles, of the LLVM that rustc has."""
    major, host = told_by_rustc("LLVM version").split(".")[0], told_by_rustc("host")
    root = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True).stdout.strip()
    places = [pathlib.Path(root, "lib/rustlib", host, "bin/llvm-profdata"), pathlib.Path(f"/usr/lib/llvm-{major}/bin/llvm-profdata")]
    for place in places:
        if place.exists():
            return place
    found = shutil.which(f"llvm-profdata-{major}")
    if not found:
        raise Failed(f"expected llvm-profdata of LLVM {major}, found none: rustup component add llvm-tools, or apt-get install llvm-{major}")
    return found


def build(flags, target):
    """The binary for publication, built with more flags for rustc, which macros and build scripts do not get."""
    host = told_by_rustc("host")
    flags = f"{os.environ.get('RUSTFLAGS', '')} {flags}".strip()
    command = ["cargo", "build", "--profile", "dist", "--locked", "--package", "ringmain-cli", "--features", FEATURES,
               "--target", host, "--target-dir", str(target)]
    if subprocess.run(command, cwd=servers.REPO, env=dict(os.environ, RUSTFLAGS=flags)).returncode:
        raise Failed("cargo build failed")
    return target / host / "dist" / "ringmain"


def serving(ours, *more, settings=None):
    """A server of ours; the load shares the machine with it, so nothing is pinned."""
    where = ["$SETTINGS"] if settings else ["--listen", "127.0.0.1:$PORT"]
    command = [str(ours), "run", *where, "--workers", "1", "--max-queue-delay", "1h", *more]
    return servers.Server(command, settings=settings, ready=listens)


def listens(port):
    """Whether something listens on `port`."""
    with socket.create_connection(("127.0.0.1", port), 1):
        return True


def load(args, ours, url, *more):
    """One load, which must be answered without an error."""
    command = [str(ours), "bench", url, "-c", str(CONNECTIONS), "-d", f"{args.secs:g}s", "-w", "0s", "--rounds", "1", *more]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"{' '.join(command)}: {done.stdout[-500:]} {done.stderr[-500:]}")


def train(args, ours):
    """Every kind of work that the binary is for, on io_uring and, more shortly, on epoll."""
    with tempfile.TemporaryDirectory(prefix="by-profile-") as folder:
        made = certificates.make(folder)
        tls = ["--cert", str(made.cert), "--key", str(made.key)]
        trust = ["--ca", str(made.ca)]
        for engine in ("uring", "epoll"):
            with serving(ours, "--engine", engine) as server:
                at = f"127.0.0.1:{server.port}"
                load(args, ours, f"http://{at}/json")
                load(args, ours, f"http://{at}/plaintext", "-p", "16")
                load(args, ours, f"http://{at}/json", "--reconnect-every", "10")
                load(args, ours, f"ws://{at}/ws")
                with serving(ours, "--engine", engine, settings=proxy_file(server.port, folder)) as proxy:
                    load(args, ours, f"http://127.0.0.1:{proxy.port}/json")
            with serving(ours, "--engine", engine, *tls) as server:
                load(args, ours, f"https://localhost:{server.port}/json", *trust)
                load(args, ours, f"https://localhost:{server.port}/json", "--reconnect-every", "1", *trust)
        many = pathlib.Path(folder, "many.yaml")
        many.write_text(routes.text_of(ROUTES, 0, {"plain": 8080, "admin": 8081, "nobody": 8082}))
        if subprocess.run([str(ours), "check", str(many)], capture_output=True).returncode:
            raise Failed("ringmain check does not take the file of many routes")


def proxy_file(upstream, folder):
    """The gateway's file, before that upstream."""
    path = pathlib.Path(folder, "proxy.yaml")
    path.write_text(PROXY.read_text().replace("$UPSTREAM", str(upstream)))
    return path


def main(arguments=None):
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--secs", type=float, default=3, help="of each load (3)")
    ap.add_argument("--keep", action="store_true", help="the raw profiles, too")
    ap.add_argument("--profile-only", action="store_true", help="end after the profile is written")
    args = ap.parse_args(arguments)
    servers.end_on_signals()
    try:
        merge = profdata()
        shutil.rmtree(DATA, ignore_errors=True)
        counting = build(f"-Cprofile-generate={DATA}", FOLDER / "counting")
        train(args, counting)
        raw = [str(path) for path in DATA.glob("*.profraw")]
        subprocess.run([str(merge), "merge", "-o", str(MERGED), *raw], check=True)
        if not args.keep:
            shutil.rmtree(DATA)
        if args.profile_only:
            print(MERGED)
            return 0
        stripped, debug = symbols.split(build(f"-Cprofile-use={MERGED}", FOLDER / "using"), PACKAGE)
    except (Failed, symbols.SymbolsError, subprocess.CalledProcessError, certificates.CertificateError, servers.ServerError) as e:
        print(f"by_profile.py: {e}", file=sys.stderr)
        return 1
    except OSError as e:
        print(f"by_profile.py: could not be run: {e}", file=sys.stderr)
        return 2
    print(stripped, debug, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
