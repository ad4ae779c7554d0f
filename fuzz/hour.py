#!/usr/bin/env python3
"""What came of an hour of libFuzzer, from its log: called by `hour.sh`, which describes what is asked for."""

import os
import pathlib
import re
import subprocess
import sys

PROJECT = str(pathlib.Path(__file__).resolve().parent.parent)
# Whose code an edge is in, as it is printed.
OURS, TARGET, PEERS = "our own code", "the target's own checks", "readers compared with"


def owner(chain):
    """Whose an edge is, by its source files from the innermost inlined function outwards."""
    for path in chain:
        if path.startswith(PROJECT + "/fuzz/"):
            return TARGET
        if path.startswith(PROJECT + "/"):
            return OURS
        if "/registry/src/" in path:
            return PEERS
    return OURS


def owners(binary, addresses):
    """By address of the program: whose code it is."""
    if not addresses:
        return {}
    told = subprocess.run(
        ["addr2line", "-a", "-i", "-e", binary], input="\n".join(addresses), capture_output=True, text=True, check=True
    )
    chains = {}
    for line in told.stdout.splitlines():
        if line.startswith("0x"):
            chain = chains.setdefault(int(line, 16), [])
        else:
            chain.append(line)
    return {address: owner(chains[int(address, 16)]) for address in addresses}


def main():
    target, log, used, quiet, budget, artifacts, binary = sys.argv[1:]
    used, quiet, budget = int(used), int(quiet), int(budget)
    runs = total = features = corpus = last_feature = 0
    found_at = {}
    base = 0
    for line in open(log, errors="replace"):
        stamp, _, rest = line.partition(" ")
        if edge := re.match(r"\s*NEW_PC: (0x[0-9a-f]+)", rest):
            found_at.setdefault(hex(int(edge[1], 16) - base), int(stamp))
        elif placed := re.match(r"BASE: (0x[0-9a-f]+)", rest):
            base = int(placed[1], 16)
        elif status := re.match(r"#(\d+)\s+\w+\s+cov: \d+ ft: (\d+)(?: corp: (\d+))?", rest):
            runs = max(runs, int(status[1]))
            corpus = int(status[3] or corpus)
            if int(status[2]) > features:
                features, last_feature = int(status[2]), int(stamp)
        elif final := re.match(r"stat::number_of_executed_units:\s+(\d+)", rest):
            total += int(final[1])
    print(f"{target}: {max(total, runs)} runs in {used} s of CPU time;")
    print(f"  {features} features, the last new one at {last_feature} s; {corpus} inputs in the corpus")
    whose = owners(binary, sorted(found_at))
    last = {}
    for name in (OURS, TARGET, PEERS):
        stamps = [stamp for address, stamp in found_at.items() if whose[address] == name]
        last[name] = max(stamps, default=0)
        print(f"  {len(stamps):5} new edges of {name}, the last at {last[name]} s")
    print(f"  to keep them: fuzz/min.sh {target}")
    findings = [name for name in sorted(os.listdir(artifacts)) if not name.startswith("slow-unit-")]
    if findings:
        print(f"  FOUND {len(findings)}: {', '.join(os.path.join(artifacts, name) for name in findings)}")
    else:
        print("  no law was broken")
    calm = used >= budget - 5 and used - last[OURS] >= quiet
    if not calm:
        print(f"  NOT DONE: {budget} s of CPU time, and no new edge of ours in the last {quiet} s, are asked for")
    return 1 if findings or not calm else 0


if __name__ == "__main__":
    sys.exit(main())
