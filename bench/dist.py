#!/usr/bin/env python3
"""Builds the ringmain binary for publication: profile `dist`, stripped, the symbols in a file of their own.

    bench/dist.py                   target/package/ringmain and target/package/ringmain.debug
    bench/dist.py --by-profile      the same by a profile of its own work (bench/by_profile.py): two builds, a minute of load

Packages install ringmain.debug beside the program, or below /usr/lib/debug by its build ID. `ringmain profile` finds it in both.

Exit code: 0 built, 1 a load or a build failed, 2 could not be run.
"""

import argparse
import subprocess
import sys

import by_profile
import server as servers
import symbols

PACKAGE = servers.TARGET / "package"


def build():
    """The binary of the profile `dist`."""
    command = ["cargo", "build", "--profile", "dist", "--locked", "--package", "ringmain-cli", "--features", by_profile.FEATURES]
    if subprocess.run(command, cwd=servers.REPO, check=False).returncode:
        raise by_profile.Failed("cargo build failed")
    return servers.TARGET / "dist" / "ringmain"


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--by-profile", action="store_true", help="use a profile of its own work")
    args = ap.parse_args()
    if args.by_profile:
        return by_profile.main([])
    try:
        for path in symbols.split(build(), PACKAGE):
            print(f"{path}  {path.stat().st_size / 1e6:.1f} MB")
    except (by_profile.Failed, symbols.SymbolsError) as e:
        print(f"dist.py: {e}", file=sys.stderr)
        return 1
    except OSError as e:
        print(f"dist.py: could not be run: {e}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
