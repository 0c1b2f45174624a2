"""Attacks on k-ary randomised response: the others at a third letter, or, for few users, at any letters.

With many users `pair_game` reads the counts of the victim's letters. With few, the whole histogram is multiplied out
and every outcome is used: letters that nobody holds look alike and are counted together, which loses nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from accountant.attacks.event_tests import Bet, Chance, CountGame, Goal, Scene, histogram_game
from accountant.attacks.two_counts import PairGame
from accountant.numerics.binomial import Floats
from accountant.numerics.poisson_binomial import bit_sum

__all__ = ["LetterAttacks"]

MAX_HISTOGRAM = 60_000
"""Histograms are multiplied out where their table has at most this many cells."""
FIRST_PLACEMENTS = 64
"""That many placements of few users are played at once, the rest of them only in a longer search."""
MAX_FEW = 8
"""Up to this many other users, their placements are played at once."""

Placement = tuple[tuple[int, ...], ...]
"""For each tier of the others, how many of them hold each class: the victim's letters 0 and 1, letters 2 and 3."""


@dataclass(frozen=True, eq=False)
class LetterAttacks:
    """Data sets are placements; None stands for "all at a third letter", read by counts. k >= 3."""

    scene: Scene
    k: int

    def defaults(self) -> Iterator[Placement | None]:
        """All at a third letter, and a few placements of few users."""
        yield None
        if self.scene.others <= MAX_FEW and self._held() >= 3:
            yield from itertools.islice(self._placements(), FIRST_PLACEMENTS)

    def vary(self, data: Placement | None, generator: np.random.Generator) -> Placement | None:
        """One user moved to another letter; nothing to vary where the table would be too large."""
        held = self._held()
        if held < 3 or self.scene.others == 0:
            return data
        data = data or self._all_at_third()
        tier = int(generator.integers(len(data)))
        counts = np.array(data[tier])
        source = int(generator.choice(np.flatnonzero(counts)))
        moved = int(generator.integers(1, max(1, int(counts[source]) // 2) + 1))
        counts[source] -= moved
        counts[int(generator.integers(held))] += moved
        return (*data[:tier], tuple(counts.tolist()), *data[tier + 1 :])

    def play(self, data: Placement | None, goal: Goal) -> Bet:
        """The two counts of the victim's letters for None, otherwise the whole histogram."""
        if data is None:
            return self._by_counts(goal)
        scene = self.scene
        laws = self._laws(data)
        score = max(histogram_game(p, q, goal, scene.others + 1) for p, q in (laws, laws[::-1]))
        totals = [sum(column) for column in zip(*data, strict=True)]
        held = ", ".join(f"{n} at letter {letter}" for letter, n in enumerate(totals) if n)
        return Bet(score, f"{scene} ({held}), moving between letters 0 and 1 of {self.k}; the whole histogram")

    def _by_counts(self, goal: Goal) -> Bet:
        scene, k = self.scene, self.k
        decay = np.exp(-scene.others_epsilon)
        share = decay / (1 + (k - 1) * decay)
        pair, _ = bit_sum(2 * share, scene.others_count)
        away, _ = bit_sum((k - 1) * share, scene.others_count)
        bet = PairGame(pair, away, scene.local_epsilon, k).best(goal)
        if bet.score == -math.inf:  # too many users for it: one of the two counts alone
            one, constant = bit_sum(share, scene.others_count)
            own = math.exp(-scene.local_epsilon)
            whole = 1 + (k - 1) * own
            keep, flip = Chance(1 / whole, (k - 1) * own / whole), Chance(own / whole, (1 + (k - 2) * own) / whole)
            bet = CountGame(one, constant, keep, flip).best_of_both(goal)
            bet = Bet(bet.score, f"count of one of the victim's letters {bet.event}")
        return Bet(bet.score, f"{scene} who all hold a third of {k} letters; {bet.event}")

    def _held(self) -> int:
        """How many letters may be held in a table that is small enough: 4, 3 or 0."""
        size = self.scene.others + 2
        for held in (4, 3):
            if held <= self.k and size ** (min(self.k, held + 1) - 1) <= MAX_HISTOGRAM:
                return held
        return 0

    def _all_at_third(self) -> Placement:
        held = self._held()
        return tuple((0, 0, n, *(0,) * (held - 3)) for n in self.scene.others_count.tolist())

    def _placements(self) -> Iterator[Placement]:
        return itertools.product(*(_compositions(n, self._held()) for n in self.scene.others_count.tolist()))

    def _laws(self, data: Placement) -> tuple[Floats, Floats]:
        """The laws of the histogram, the victim at letter 0 and at letter 1: flat arrays over the same outcomes."""
        scene, held = self.scene, len(data[0]) if data else self._held()
        sizes = [1.0] * held + ([float(self.k - held)] if self.k > held else [])
        law = np.zeros((scene.others + 2,) * (len(sizes) - 1))
        law[(0,) * law.ndim] = 1.0
        for epsilon, counts in zip(scene.others_epsilon.tolist(), data, strict=True):
            for letter, users in enumerate(counts):
                for _ in range(users):
                    law = self._with(law, epsilon, letter, sizes)
        first, second = (self._with(law, scene.local_epsilon, letter, sizes).ravel() for letter in (0, 1))
        return first, second

    def _with(self, law: Floats, local_epsilon: float, letter: int, sizes: list[float]) -> Floats:
        """The law with one more report; the last class is the one that has no axis."""
        decay = math.exp(-local_epsilon)
        whole = 1 + (self.k - 1) * decay
        shares = [size * decay / whole for size in sizes]
        shares[letter] = 1 / whole
        grown = law * shares[-1]
        for axis in range(law.ndim):
            to, start = [slice(None)] * law.ndim, [slice(None)] * law.ndim
            to[axis], start[axis] = slice(1, None), slice(None, -1)
            grown[tuple(to)] += law[tuple(start)] * shares[axis]
        return grown


def _compositions(total: int, parts: int) -> list[tuple[int, ...]]:
    """All ways to write total as an ordered sum, those with much at the third place first."""
    found = [counts for counts in itertools.product(range(total + 1), repeat=parts) if sum(counts) == total]
    return sorted(found, key=lambda counts: -counts[2])
