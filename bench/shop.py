#!/usr/bin/env python3
"""examples/shop.yaml in front of real servers: nginx, a Go and a Node server, and for each feature a script of requests.

    cargo build && bench/shop.py --ours target/debug/ringmain
    bench/shop.py --only cart live         the cases with these words in their names
    bench/shop.py --list                   what there is

Everything is started here and ended here, on ports that are free now: the file is copied into a folder of its own with
these ports in it, beside certificates made for the run. Needs nginx, go, node and openssl (bench/install.sh shop).

Exit code: 0 every case is right, 1 one is not, 2 could not be run.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time

import asking
import server as servers
import shop_cases
from shop_stage import Failed, Shop

def run(shop, chosen):
    """Runs cases and tells of each. Returns how many are not right."""
    wrong = 0
    for name, script in chosen:
        started = time.monotonic()
        try:
            script(shop)
            said = f"ok      {name}"
        except (Failed, asking.Broken, OSError, servers.ServerError) as e:
            wrong += 1
            said = f"FAILED  {name}: {type(e).__name__}: {e}"
        print(f"{said}  ({time.monotonic() - started:.1f} s)", flush=True)
        if not shop.gateway.alive():
            print(f"the gateway ended: {shop.gateway.last_output()}", flush=True)
            return wrong + 1
    return wrong


def parse_arguments():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--ours", default=str(servers.TARGET / "release/ringmain"), help="the ringmain binary")
    ap.add_argument("--only", nargs="+", metavar="WORD", help="cases with one of these words in their names")
    ap.add_argument("--list", action="store_true", help="print the cases' names")
    return ap.parse_args()


def main():
    args = parse_arguments()
    chosen = [(name, script) for name, script in shop_cases.CASES if not args.only or any(word in name for word in args.only)]
    if args.list:
        print("\n".join(name for name, _ in chosen))
        return 0
    servers.end_on_signals()
    os.environ["PATH"] += ":/usr/sbin"
    missing = [name for name in ("nginx", "go", "node", "openssl", args.ours) if not shutil.which(name)]
    if missing or not chosen:
        print(f"shop.py: not here: {', '.join(missing) or 'a case with such a word'}: run bench/install.sh shop, cargo build"
              " --release, or --list", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="shop-") as folder:
        try:
            with Shop(args.ours, folder) as shop:
                wrong = run(shop, chosen)
        except servers.ServerError as e:
            print(f"shop.py: could not be run: {e}", file=sys.stderr)
            return 2
    print(f"{len(chosen) - wrong} of {len(chosen)} cases are right")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
