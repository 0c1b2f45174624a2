"""Attacks on binary randomised response and on the mechanisms that reduce to it, by the bits of the other users.

A one-bit mean is attacked at the two ends of its interval, a hemisphere mechanism by the sign of each report's
projection on the victim's direction, with all others on that line: both are randomised response on a bit.
`event_tests` turns a count of ones into a lower bound.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from croupier.accountant.attacks.event_tests import CountTest, Population, Probability, Target, Witness
from croupier.accountant.numerics.binomial import Ints
from croupier.accountant.numerics.poisson_binomial import poisson_binomial

MAX_BLOCKS = 32
"""More tiers than this are put into this many blocks of neighbours."""
MAX_SPLITS = 64
"""Up to this many splits of the others into ones and zeros are all tested by default."""

Split = tuple[int, ...]


def keep_probability(local_epsilon: float) -> Probability:
    """Returns the probability that randomised response keeps its bit."""
    decay = math.exp(-local_epsilon)
    return Probability(1 / (1 + decay), decay / (1 + decay))


@dataclass(frozen=True, eq=False)
class BinaryAttacks:
    """Data sets are splits: the number of ones in each block of tiers, smallest budgets first."""

    population: Population
    noun: str = "bits"
    statistic: str = "count of ones"

    def defaults(self) -> Iterator[Split]:
        """Yields all zeros; for one or two tiers a grid of splits; for few users every split."""
        size = self._sizes()
        yield (0,) * size.size
        if math.prod(int(n) + 1 for n in size.tolist()) <= MAX_SPLITS:
            yield from itertools.product(*(range(int(n) + 1) for n in size.tolist()))
        elif size.size <= 2:
            parts = 8 if size.size == 1 else 2
            grid = [sorted({int(n) * part // parts for part in range(parts + 1)}) for n in size.tolist()]
            yield from itertools.product(*grid)

    def vary(self, data: Split, generator: np.random.Generator) -> Split:
        """Redraws the ones of one block, or changes them by a few users."""
        size = self._sizes()
        if size.size == 0:
            return data
        block = int(generator.integers(size.size))
        most, ones = int(size[block]), data[block]
        if generator.random() < 0.3:
            ones = int(generator.choice([0, most, int(generator.integers(most + 1))]))
        else:
            reach = max(1, int(most * 10 ** generator.uniform(-4, -0.5)))
            ones = min(most, max(0, ones + int(generator.integers(-reach, reach + 1))))
        return (*data[:block], ones, *data[block + 1 :])

    def test(self, data: Split, target: Target) -> Witness:
        """Returns the better of the counts of ones from above and from below."""
        population = self.population
        ones = self._ones(data)
        decay = np.exp(-population.others_epsilon)
        flip = decay / (1 + decay)
        if any(data):
            held = ones > 0
            probability = np.concatenate([flip, flip[held]])
            count = np.concatenate([population.others_count - ones, ones[held]])
            others, constant = poisson_binomial(probability, count, np.arange(probability.size) >= flip.size)
        else:
            others, constant = poisson_binomial(flip, population.others_count)
        keep = keep_probability(population.local_epsilon)
        witness = CountTest(others, constant, keep, keep.of_complement()).best_of_both(target)
        total = int(ones.sum())
        held_by = f"are 1 for {total:,} of them" if total else "are all 0"
        where = f" ({', '.join(f'{n:,}' for n in data)} by tier)" if total > 0 and len(data) > 1 else ""
        return Witness(
            witness.score, f"{population} whose {self.noun} {held_by}{where}; {self.statistic} {witness.event}"
        )

    def _starts(self) -> Ints:
        tiers = self.population.others_count.size
        return np.unique(np.linspace(0, tiers, min(tiers, MAX_BLOCKS) + 1).astype(np.int64))[:-1]

    def _sizes(self) -> Ints:
        if self.population.others_count.size == 0:
            return np.zeros(0, dtype=np.int64)
        return np.add.reduceat(self.population.others_count, self._starts())

    def _ones(self, data: Split) -> Ints:
        count = self.population.others_count
        if not any(data):
            return np.zeros(count.size, dtype=np.int64)
        starts = self._starts()
        block = np.searchsorted(starts, np.arange(count.size), side="right") - 1
        before = np.cumsum(count) - count
        within = before - before[starts][block]
        return np.clip(np.array(data, dtype=np.int64)[block] - within, 0, count)
