"""Paired comparison: ratios of two servers by round, their median and its interval.

Plain functions over plain data: knows nothing of processes or of what the figures mean.
"""

import random
import statistics

RESAMPLES = 4000
SEED = 20_240_601


def paired_ratios(ours, other):
    """{cell: {round: ours / other}}, for the rounds that both measured in every cell.

    `ours` and `other`: {cell: {round: figure}}. A round in which one run failed is left out
    of all cells, so that each resampled round stands for the same stretch of time.
    """
    cells = sorted(set(ours) & set(other))
    common = set.intersection(*(set(ours[c]) & set(other[c]) for c in cells)) if cells else set()
    return {c: {r: ours[c][r] / other[c][r] for r in sorted(common)} for c in cells} if common else {}


def median_over_cells(ratios, rounds):
    """Median over cells of each cell's median over `rounds` (which may repeat)."""
    return statistics.median(statistics.median(cell[r] for r in rounds) for cell in ratios.values())


def interval(ratios, confidence=0.95, seed=SEED):
    """Bootstrap percentile interval of `median_over_cells`, resampling whole rounds."""
    rounds = list(next(iter(ratios.values())))
    generator = random.Random(seed)
    found = sorted(
        median_over_cells(ratios, generator.choices(rounds, k=len(rounds))) for _ in range(RESAMPLES)
    )
    tail = (1 - confidence) / 2
    return found[int(tail * RESAMPLES)], found[int((1 - tail) * RESAMPLES) - 1]
