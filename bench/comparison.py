"""What the comparisons of HTTP, HTTPS and WebSocket have in common: who takes part, the tables, the bars.

Must not know of protocols. A cell is a named tuple; results are those of `runs.rounds`.
"""

import collections
import os
import re
import statistics
import sys

import runs
import server as servers

# `kind`: ours, before (a binary of ours from before a change) or peer. `options`: of `servers.Server`.
Subject = collections.namedtuple("Subject", "kind command options", defaults=({},))
# CPU of `ours` by that of `other`, over the cells that `scenario` names. `at_most` None: the interval must reach 1 or
# less, which is all that "unchanged" can mean of two measurements.
Bar = collections.namedtuple("Bar", "scenario ours other at_most")
# Kinds of others: they may be missing, and run in --peer-pairs of the rounds. `loop`: a raw loop on a runtime.
OTHERS = ("peer", "loop")


def choose(program, known, only, remedies):
    """The servers to run and the names of the peers left out, or an error that says what to do.

    `remedies`: {kind: what makes its program}.
    """
    for name in only or []:
        if name not in known:
            print(f"{program}: --only: expected some of {' '.join(known)}, found {name}", file=sys.stderr)
            raise SystemExit(2)
    chosen, left_out = {}, []
    for name in only or known:
        subject = known[name]
        if os.access(subject.command[0], os.X_OK):
            chosen[name] = subject
        elif subject.kind in OTHERS and not only:
            left_out.append(name)
            print(f"{program}: {name}: no program at {subject.command[0]}: left out", file=sys.stderr)
        else:
            print(f"{program}: {name}: no program at {subject.command[0]}: run {remedies[subject.kind]}", file=sys.stderr)
            raise SystemExit(2)
    return chosen, left_out


def run_rounds(chosen, cells, fits, one_run, args):
    """Others in --peer-pairs of the rounds, evenly spread, the rest in each. Returns (results in the order chosen, runs planned)."""

    def plan(number):
        others = runs.evenly(number, args.peer_pairs, args.pairs)
        names = [n for n, s in chosen.items() if others or s.kind not in OTHERS] or list(chosen)
        found = {cell: [n for n in names if fits(n, chosen[n], cell)] for cell in cells}
        return {cell: names for cell, names in found.items() if names}

    results = runs.rounds(plan, lambda name, cell: one_run(chosen[name], cell, args), args)
    planned = sum(len(names) for number in range(args.pairs) for names in plan(number).values())
    return {name: results[name] for name in chosen if name in results}, planned


def within(found, scenario):
    """A server's cells of one scenario."""
    return {cell: by_round for cell, by_round in found.items() if cell.scenario == scenario}


def ratio_text(results, name, base, cell):
    """Its CPU by the base's in one cell, with the interval."""
    if base not in results or name == base:
        return ""
    found = runs.compare({cell: results[name].get(cell, {})}, {cell: results[base].get(cell, {})})
    return f"{found[1]:.3f} ({found[2]:.3f} to {found[3]:.3f})" if found else ""


def cell_table(title, about, cell, results, chosen, base):
    """One cell: every server's medians, the least CPU first."""
    lines = [f"### {title}", "", about, "",
             f"| server | kind | **CPU us each** | least | by {base} (95 %) | of it user | a second | p50 us | p99 us |"
             " peak MB | server CPU | client CPU | errors | runs |", "| --- |" + " --- |" * 13]
    rows = []
    for name, by_cell in results.items():
        found = list(by_cell.get(cell, {}).values())
        if found:
            rows.append((runs.medians(found)["us_per_message"], name, found))
        elif cell in by_cell:
            lines.append(f"| {name} | {chosen[name].kind} | failed |" + " |" * 10 + " 0 |")
    for cost, name, found in sorted(rows, key=lambda row: row[:2]):
        m = runs.medians(found)
        lines.append(
            f"| {name} | {chosen[name].kind} | **{cost:.2f}** | {min(r['us_per_message'] for r in found):.2f} |"
            f" {ratio_text(results, name, base, cell)} | {m['user_share']:.0%} | {m['rps']:,.0f} | {m['p50_us']:,.0f} |"
            f" {m['p99_us']:,.0f} | {m['peak_bytes'] / 1e6:.1f} | {m['server_cpu']:.0%} | {m['load_core']:.0%} |"
            f" {sum(r['errs'] for r in found):.0f} | {len(found)} |")
    return lines + [""]


def judge(bar, value, low, high):
    """(is it met, what is said of it)."""
    if bar.at_most is not None:
        return value <= bar.at_most, runs.verdict(value, low, high, bar.at_most)
    if low > 1:
        return False, "**missed**"
    return True, "met" if high >= 1 else "met: it has become less"


def bar_table(bars, results, left_out):
    """All bars: (lines of the report, number of bars missed). What was not measured is said."""
    lines = ["### Bars", "", "| CPU each | scenario | by cell | median over them | 95 % interval | pairs | bar | |",
             "| --- |" + " --- |" * 7]
    unjudged, missed = [], 0
    for bar in bars:
        pair = [within(results.get(name, {}), bar.scenario) for name in (bar.ours, bar.other)]
        found = runs.compare(*pair) if all(pair) else None
        if not found:
            unjudged.append(f"{bar.ours} / {bar.other} ({bar.scenario})")
            continue
        ratios, value, low, high = found
        met, text = judge(bar, value, low, high)
        missed += not met
        by_cell = ", ".join(f"{c.connections}: {statistics.median(r.values()):.3f}" for c, r in ratios.items())
        wanted = "unchanged" if bar.at_most is None else f"<= {bar.at_most:.2f}"
        lines.append(f"| {bar.ours} / {bar.other} | {bar.scenario} | {by_cell} | **{value:.3f}** | {low:.3f} to {high:.3f} |"
                     f" {len(next(iter(ratios.values())))} | {wanted} | {text} |")
    if len(unjudged) == len(bars):
        lines = ["### Bars"]
    if unjudged:
        lines += ["", f"Not judged, since not both were measured: {', '.join(unjudged)}."]
    if left_out:
        lines += ["", f"Not here, so not compared: {', '.join(left_out)}."]
    return lines + [""], missed


def locked_versions(names):
    """Versions of these crates in the peers' lock file, those that it has."""
    lock = (servers.REPO / "bench" / "peers" / "rust" / "Cargo.lock").read_text().split("[[package]]")
    found = []
    for package in lock:
        fields = dict(line.split(" = ", 1) for line in package.splitlines() if " = " in line)
        if fields.get("name", "").strip('"') in names:
            found.append(f"{fields['name']} {fields['version']}".replace('"', ""))
    return found


def go_versions(names):
    """Versions of these modules in the peers' go.mod, those that it has."""
    text = (servers.REPO / "bench" / "peers" / "go.mod").read_text()
    return [f"{name} {version}" for name, version in re.findall(r"^\s*(?:require )?(\S+) (v\S+)$", text, re.M) if name in names]
