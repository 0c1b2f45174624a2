"""Attacks on k-ary randomised response: the others at a third category, or, for few users, at any categories.

With many users `two_counts` reads the counts of the victim's two categories. With few, the whole histogram is
multiplied out and every outcome is used. Categories that no user holds have equal probabilities and are counted
together without loss.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from croupier.accountant.attacks.event_tests import CountTest, Population, Probability, Target, Witness, histogram_test
from croupier.accountant.attacks.two_counts import TwoCountTest
from croupier.accountant.numerics.binomial import Floats
from croupier.accountant.numerics.poisson_binomial import poisson_binomial

MAX_HISTOGRAM = 60_000
"""The largest table of cells in which histograms are multiplied out."""
FIRST_PLACEMENTS = 64
"""The number of placements of few users that are tested by default; a longer search tests the others."""
MAX_FEW = 8
"""The most other users whose placements are tested by default."""

Placement = tuple[tuple[int, ...], ...]
"""The numbers of users of each tier at each category: the victim's two, 0 and 1, and the categories 2 and 3."""


@dataclass(frozen=True, eq=False)
class KaryAttacks:
    """Data sets are placements; None means "all at a third category", read by counts. k >= 3."""

    population: Population
    k: int

    def defaults(self) -> Iterator[Placement | None]:
        """Yields all at a third category, and a few placements of few users."""
        yield None
        if self.population.others <= MAX_FEW and self._held() >= 3:
            yield from itertools.islice(self._placements(), FIRST_PLACEMENTS)

    def vary(self, data: Placement | None, generator: np.random.Generator) -> Placement | None:
        """Returns the placement with one user at another category, or unchanged if its table would be too large."""
        held = self._held()
        if held < 3 or self.population.others == 0:
            return data
        data = data or self._all_at_third()
        tier = int(generator.integers(len(data)))
        counts = np.array(data[tier])
        source = int(generator.choice(np.flatnonzero(counts)))
        moved = int(generator.integers(1, max(1, int(counts[source]) // 2) + 1))
        counts[source] -= moved
        counts[int(generator.integers(held))] += moved
        return (*data[:tier], tuple(counts.tolist()), *data[tier + 1 :])

    def test(self, data: Placement | None, target: Target) -> Witness:
        """Returns the best event by the counts of the victim's two categories for None, or by the whole histogram."""
        if data is None:
            return self._by_counts(target)
        population = self.population
        laws = self._laws(data)
        score = max(histogram_test(p, q, target, population.others + 1) for p, q in (laws, laws[::-1]))
        totals = [sum(column) for column in zip(*data, strict=True)]
        held = ", ".join(f"{n} at category {category}" for category, n in enumerate(totals) if n)
        return Witness(
            score, f"{population} ({held}), moving between categories 0 and 1 of {self.k}; the whole histogram"
        )

    def _by_counts(self, target: Target) -> Witness:
        population, k = self.population, self.k
        decay = np.exp(-population.others_epsilon)
        other = decay / (1 + (k - 1) * decay)
        pair, _ = poisson_binomial(2 * other, population.others_count)
        away, _ = poisson_binomial((k - 1) * other, population.others_count)
        witness = TwoCountTest(pair, away, population.local_epsilon, k).best(target)
        if witness.score == -math.inf:  # too many users for it: one of the two counts alone
            others, constant = poisson_binomial(other, population.others_count)
            own = math.exp(-population.local_epsilon)
            whole = 1 + (k - 1) * own
            keep, flip = (
                Probability(1 / whole, (k - 1) * own / whole),
                Probability(own / whole, (1 + (k - 2) * own) / whole),
            )
            witness = CountTest(others, constant, keep, flip).best_of_both(target)
            witness = Witness(witness.score, f"count of one of the victim's categories {witness.event}")
        return Witness(witness.score, f"{population} all holding a third of {k} categories; {witness.event}")

    def _held(self) -> int:
        """Returns how many categories may be held in a table that is small enough: 4, 3 or 0."""
        size = self.population.others + 2
        for held in (4, 3):
            if held <= self.k and size ** (min(self.k, held + 1) - 1) <= MAX_HISTOGRAM:
                return held
        return 0

    def _all_at_third(self) -> Placement:
        held = self._held()
        return tuple((0, 0, n, *(0,) * (held - 3)) for n in self.population.others_count.tolist())

    def _placements(self) -> Iterator[Placement]:
        return itertools.product(*(_compositions(n, self._held()) for n in self.population.others_count.tolist()))

    def _laws(self, data: Placement) -> tuple[Floats, Floats]:
        """Returns the laws of the histogram for the victim at category 0 and at 1, flat, over the same outcomes."""
        population, held = self.population, len(data[0]) if data else self._held()
        sizes = [1.0] * held + ([float(self.k - held)] if self.k > held else [])
        law = np.zeros((population.others + 2,) * (len(sizes) - 1))
        law[(0,) * law.ndim] = 1.0
        for epsilon, counts in zip(population.others_epsilon.tolist(), data, strict=True):
            for category, users in enumerate(counts):
                for _ in range(users):
                    law = self._with(law, epsilon, category, sizes)
        first, second = (self._with(law, population.local_epsilon, category, sizes).ravel() for category in (0, 1))
        return first, second

    def _with(self, law: Floats, local_epsilon: float, category: int, sizes: list[float]) -> Floats:
        """Returns the law with one more report; the last category, or all the others together, has no axis."""
        decay = math.exp(-local_epsilon)
        whole = 1 + (self.k - 1) * decay
        shares = [size * decay / whole for size in sizes]
        shares[category] = 1 / whole
        grown = law * shares[-1]
        for axis in range(law.ndim):
            to, start = [slice(None)] * law.ndim, [slice(None)] * law.ndim
            to[axis], start[axis] = slice(1, None), slice(None, -1)
            grown[tuple(to)] += law[tuple(start)] * shares[axis]
        return grown


def _compositions(total: int, parts: int) -> list[tuple[int, ...]]:
    """Returns all ways to write total as an ordered sum, by decreasing third part."""
    compositions = [counts for counts in itertools.product(range(total + 1), repeat=parts) if sum(counts) == total]
    return sorted(compositions, key=lambda counts: -counts[2])
