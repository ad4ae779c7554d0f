"""`cargo xtask suite field`: replays every entry of docs/field-faults.md against the binary, by the entry's own reproduction.

A case is a function of a module `cases_*.py` beside this file, marked `@case("G1", "title")`, that takes a `rig.Rig` and returns
nothing; it raises `rig.Failed` for a wrong value and `rig.Skipped` where a tool is missing. Cases run side by side in
threads; one that loads the machine or measures memory says `alone=True` and runs after the others by itself.
"""

import argparse
import concurrent.futures
import importlib
import pathlib
import sys
import time
import traceback

import rig

HERE = pathlib.Path(__file__).resolve().parent
CASES = []
# One name for the module that is started and the one that the case modules import.
sys.modules.setdefault("run", sys.modules[__name__])


def case(entry, title, alone=False, shortened=None):
    """Registers a case of an entry. `shortened`: how a wait of the entry was shortened, shown beside the title."""

    def register(function):
        CASES.append((entry, title, alone, shortened, function))
        return function

    return register


def run_case(binary, function):
    """Returns (outcome, text, seconds) of one case."""
    begun = time.monotonic()
    try:
        with rig.Rig(binary) as resources:
            function(resources)
        outcome, text = "ok", ""
    except rig.Skipped as reason:
        outcome, text = "skipped", str(reason)
    except rig.Failed as reason:
        outcome, text = "FAILED", str(reason)
    except Exception:
        outcome, text = "FAILED", traceback.format_exc(limit=-3)
    return outcome, text, time.monotonic() - begun


def key(row):
    entry = row[0]
    return entry[0], int("".join(c for c in entry[1:] if c.isdigit()) or 0), entry


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--binary", type=pathlib.Path, default=rig.REPO / "target" / "release" / "ringmain",
                        help="the program under test (default: the release build)")
    parser.add_argument("--only", default="", help="entries, separated by commas: G1,S4")
    parser.add_argument("--jobs", type=int, default=6, help="cases side by side (default: 6)")
    options = parser.parse_args()
    binary = options.binary.resolve()
    if not binary.exists():
        sys.exit(f"{binary} does not exist: build it with `cargo build --release -p ringmain-cli`, or name another with --binary")
    for path in sorted(HERE.glob("cases_*.py")):
        importlib.import_module(path.stem)
    only = {name for name in options.only.split(",") if name}
    chosen = sorted((row for row in CASES if not only or row[0] in only), key=key)
    if not chosen:
        sys.exit(f"no case has one of these entries: {options.only}")

    counts = {"ok": 0, "FAILED": 0, "skipped": 0}

    def report(row, result):
        outcome, text, seconds = result
        counts[outcome] += 1
        note = f" [shortened: {row[3]}]" if row[3] else ""
        print(f"{outcome:8}{row[0]:5}{row[1]}{note} ({seconds:.1f} s)", flush=True)
        if text:
            print("".join(f"        {line}\n" for line in text.splitlines()), end="", flush=True)

    begun = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        running = {pool.submit(run_case, binary, row[4]): row for row in chosen if not row[2]}
        for done in concurrent.futures.as_completed(running):
            report(running[done], done.result())
    for row in chosen:
        if row[2]:
            report(row, run_case(binary, row[4]))
    print(f"{time.monotonic() - begun:.0f} s, {len({row[0] for row in chosen})} entries")
    print(f"{counts['ok']} passed, {counts['FAILED']} failed, {counts['skipped']} skipped")
    sys.exit(1 if counts["FAILED"] else 0)


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    main()
