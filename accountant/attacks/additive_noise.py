"""Attacks on Laplace and Gaussian noise: count the reports between two cuts, and choose the cuts well.

The victim moves between 0 and 1 while the others all hold one value; a report lies between the cuts with a known
probability, so that the count is a sum of independent bits. Cuts are compared by a saddle-point approximation on a few
tiers that represent the others; `event_tests` turns the best of them into lower bounds. In R^d a report's distance from
the axis of all values shows its noise scale, which separates the tiers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from croupier.accountant.attacks.event_tests import (
    NO_WITNESS,
    CountTest,
    Population,
    Probability,
    Target,
    Witness,
    saddle_points,
)
from croupier.accountant.attacks.interval_probabilities import IntervalProbabilities
from croupier.accountant.attacks.merged_scales import Merging, merged_scales
from croupier.accountant.attacks.score_tests import MAX_LENGTH, MAX_ROWS, ScoreTest, scores_of_cells
from croupier.accountant.numerics.binomial import UNIT, Floats, Ints
from croupier.accountant.numerics.poisson_binomial import poisson_binomial

MAX_STAND_INS = 24
"""The number of tiers that represent the others while cuts are compared."""
FINALISTS = 2
"""The number of best cuts that are tested by default."""
STARTS = 6
"""The number of cuts of the coarse grid that are refined."""
FEW_SCALES, MAX_SCALES = 10_000, 20_000
"""Numbers of distinct noise scales. Above the first, neighbouring scales are merged for the sum of scores (on the line,
where the error of merging is known), and cuts are tried if merging fails. Above the second, noise on a lattice gets a
single cut."""
MOST_LEVELS, FINE_LEVELS = 100, 30_000
"""Levels of the scores; with more than MAX_ROWS scales, times sqrt(users), because sums of 30,000 values take a second.
At 10^7 users 9 levels would cost 2 per cent of epsilon."""
REACH = 12.0
"""Cells reach this number of the victim's noise scales beyond [0, 1]; half of the cells reach this number of the finest
noise scales."""
CELLS = 1_200
"""About the number of cells that have scores."""
LONGEST = 0.7
"""The part of the longest computable window that a plan uses, because windows are longer at a tilt."""
_HEIGHTS = np.geomspace(0.3, 25.0, 14)
_RING_TAILS = (None, 1e-2, 1e-5)


@dataclass(frozen=True)
class Cuts:
    """Attack that counts the reports between low and high (in R^d: along the axis), with all others at one value.

    ring: in R^d, the share of the victim's own reports that may be lost on each side by counting only reports whose
    distance from the axis fits the victim's noise; None counts them all.
    """

    low: float
    high: float
    others_at: float
    ring: float | None = None


@dataclass(frozen=True)
class Scores:
    """Attack that adds up scores 0..levels of reports, in about `cells` cells on [-reach, 1 + reach] and two beyond."""

    others_at: float
    reach: float
    cells: int
    levels: int


@dataclass(frozen=True, eq=False)
class AdditiveNoiseAttacks:
    """Data sets are `Cuts` or `Scores`. scales: float64 (T,), the others' noise scales, in the order of their tiers."""

    population: Population
    noise: IntervalProbabilities
    victim_scale: float
    scales: Floats
    target: Target
    dimension: int = 1

    def defaults(self) -> Iterator[Cuts | Scores]:
        """Yields the most promising cuts with the others at 1; their mirror images are as good."""
        rings = _RING_TAILS if self.dimension > 1 and self.scales.size else (None,)
        scored = self.scales.size > 0 and self._scored is not None
        if self.dimension > 1 or not (scored and self.scales.size > FEW_SCALES):
            for ring in rings:
                yield from self._promising(1.0, ring)
        if scored:
            levels = MOST_LEVELS
            if self.scales.size > MAX_ROWS:
                levels = int(np.clip(FINE_LEVELS / math.sqrt(self.population.others), 6, MOST_LEVELS))
            yield Scores(1.0, REACH * min(self.victim_scale, 30.0), CELLS, levels)

    def vary(self, data: Cuts | Scores, generator: np.random.Generator) -> Cuts | Scores:
        """Returns a cut moved by part of a noise scale, other cells for the scores, or another value of the others."""
        if isinstance(data, Scores):
            at = data.others_at
            if generator.random() < 0.3:
                at = self.noise.value(float(generator.choice([0.0, 1.0, 0.5, generator.random()])))
            reach = data.reach * math.exp(0.5 * generator.normal())
            return Scores(at, min(reach, 1e4), int(generator.integers(20, 500)), int(generator.integers(2, 100)))
        low, high, at, ring = data.low, data.high, data.others_at, data.ring
        unit = max(self.victim_scale, 0.1) * 10 ** generator.uniform(-3, 0)
        choice = generator.random()
        if choice < 0.15:
            at = self.noise.value(float(generator.choice([0.0, 1.0, 0.5, generator.random()])))
        elif choice < 0.25 and ring is not None:
            ring = float(10 ** generator.uniform(-8, -0.5))
        elif choice < 0.3:
            low, high = (-math.inf, high) if generator.random() < 0.5 else (low, math.inf)
        low = low if math.isinf(low) and generator.random() < 0.8 else max(low, -50.0) + unit * generator.normal()
        high = high if math.isinf(high) and generator.random() < 0.8 else min(high, 50.0) + unit * generator.normal()
        moved = Cuts(self.noise.cut(low), self.noise.cut(high), at, ring)
        return moved if moved.low < moved.high and math.isfinite(moved.high - moved.low + 1) else data

    def test(self, data: Cuts | Scores, target: Target) -> Witness:
        """Counts the reports between the cuts, from above and from below; or adds up their scores."""
        if isinstance(data, Scores):
            by_scores = self._by_scores(data, target)
            if by_scores.score > 0 or self.scales.size <= FEW_SCALES:
                return by_scores
            # The effect of merged scales was too large: use the best cut.
            return max(
                [by_scores, *(self.test(cuts, target) for cuts in self._promising(data.others_at, None)[:1])],
                key=lambda witness: witness.score,
            )
        low, high = np.array([data.low]), np.array([data.high])
        inside, outside = self._between(self.scales, data.others_at, low, high, data.ring)
        flipped = inside > 0.5
        probability = np.clip(np.where(flipped, outside, inside), 0.0, 0.5)
        others, constant = poisson_binomial(
            probability, self.population.others_count, flipped, self.noise.probability_error
        )
        probabilities = [self._victim(at, low, high, data.ring) for at in (0.0, 1.0)]
        few, many = sorted(probabilities, key=lambda probability: probability.event)
        witness = CountTest(others, constant, many, few, self.noise.probability_error).best_of_both(target)
        ring = "" if data.ring is None else f" whose distance from the axis fits the victim's (all but {data.ring:.2g})"
        at = "" if self.population.others == 0 else f" all at {data.others_at:g}"
        words = f"{self.population}{at}, moving between 0 and 1; count of reports{ring}"
        return Witness(witness.score, f"{words} in [{data.low:.6g}, {data.high:.6g}] {witness.event}")

    def _by_scores(self, data: Scores, target: Target) -> Witness:
        near = min(data.reach, REACH * min(self.victim_scale, float(self.scales.min())))
        inner = np.linspace(-near, 1 + near, data.cells // (1 if near == data.reach else 2) + 1).tolist()
        outer = np.linspace(-data.reach, 1 + data.reach, data.cells // 2 + 1).tolist()
        cuts = np.unique([-math.inf, *(self.noise.cut(place) for place in [*inner, *outer]), math.inf])
        first, second, others = self._laws(cuts, self._stand_ins[0], data.others_at)
        witness, aim, levels = NO_WITNESS, 0.0, data.levels
        for _ in range(2):  # the best scores depend on the epsilon that they prove
            test = None
            while levels > 1:
                score = scores_of_cells(first, second, others, self._stand_ins[1], levels, aim)
                test = None if score is None else self._score_test(cuts, score, data.others_at)
                if test is None or test.length < LONGEST * MAX_LENGTH:
                    break
                levels //= 2  # if nearly all scores are the largest or the least, few levels are enough
            witness = max(
                witness, NO_WITNESS if test is None else test.best(target), key=lambda candidate: candidate.score
            )
            aim = min(max(witness.score, 0.0) if target.epsilon is None else target.epsilon, 300.0)
            # The stronger test is for a victim at the others' value: with them at 1, Pr1 is the larger.
            aim = -aim if data.others_at > 0.5 else aim
        words = f"{self.population} all at {data.others_at:g}, moving between 0 and 1; sum of scores 0..{levels}"
        where = f"likelihood ratio in {cuts.size - 1} cells on [{-data.reach:.4g}, {1 + data.reach:.4g}]"
        return Witness(witness.score, f"{words} ({where}) {witness.event}")

    def _laws(self, cuts: Floats, scales: Floats, at: float) -> tuple[Floats, Floats, Floats]:
        """Returns the masses of the cells between cuts: the victim's at both values, (C,), and of scales, (T, C)."""
        own = np.array([self.victim_scale])
        first, second = (self.noise.between(own, x, cuts[:-1], cuts[1:])[0] for x in (0.0, 1.0))
        return first, second, self.noise.between(scales[:, None], at, cuts[:-1], cuts[1:])[0]

    @cached_property
    def _scored(self) -> tuple[Floats, Floats, Merging | None] | None:
        """The scales for the sum of scores, the users of each, and the effect of merging; None for no sum."""
        variation = self.noise.variation
        if self.scales.size <= (MAX_SCALES if variation is None else FEW_SCALES):
            return self.scales, self.population.others_count.astype(np.float64), None
        return None if variation is None else merged_scales(self.scales, self.population.others_count, variation)

    def _score_test(self, cuts: Floats, score: Ints, at: float) -> ScoreTest | None:
        """Returns the test; the cells cover the line, so laws are normalised and errors of their entries cancel."""
        if self._scored is None:
            return None
        scales, count, merged = self._scored
        new = np.flatnonzero(np.diff(score, prepend=-1))  # neighbouring cells of one score are one
        error = 2 * self.noise.probability_error + cuts.size * UNIT

        def added(law: Floats) -> Floats:
            total = np.zeros((*law.shape[:-1], int(score.max()) + 1))
            for cell, place in enumerate(score[new].tolist()):
                total[..., place] += law[..., cell]
            return np.asarray(total / total.sum(-1, keepdims=True))

        first, second, others = self._laws(np.append(cuts[new], math.inf), scales, at)
        return ScoreTest(added(first), added(second), added(others), count, error, merged)

    def _victim(self, at: float, low: Floats, high: Floats, ring: float | None) -> Probability:
        inside, outside = self._between(np.array([self.victim_scale]), at, low, high, ring)
        return Probability(float(inside[0]), float(outside[0]))

    def _between(
        self, scale: Floats, at: float, low: Floats, high: Floats, ring: float | None
    ) -> tuple[Floats, Floats]:
        inside, outside = self.noise.between(scale, at, low, high)
        if ring is None:
            return inside, outside
        kept, cut = self._ring(scale, ring)
        return inside * kept, outside + inside * cut

    def _ring(self, scale: Floats, tail: float) -> tuple[Floats, Floats]:
        """Returns the probability that a distance from the axis fits the victim's scale, and its complement."""
        from scipy.special import gammainc, gammaincc, gammainccinv, gammaincinv

        half = (self.dimension - 1) / 2
        ratio = (self.victim_scale / scale) ** 2
        low, high = gammaincinv(half, tail) * ratio, gammainccinv(half, tail) * ratio
        below, above = gammainc(half, low), gammaincc(half, high)
        # If both ends are on one side of the middle, the difference of the smaller tails keeps its digits.
        upper = gammaincc(half, low) - above
        lower = gammainc(half, high) - below
        return np.maximum(np.where(low > half, upper, lower), 0.0), np.clip(below + above, 0.0, 1.0)

    @cached_property
    def _stand_ins(self) -> tuple[Floats, Floats]:
        """A few scales with counts that represent the others in the choice of cuts."""
        count = self.population.others_count.astype(np.float64)
        if self.scales.size <= MAX_STAND_INS:
            return self.scales, count
        log = np.log(self.scales)
        width = max(float(log.max() - log.min()), 1e-9) / (MAX_STAND_INS - 1)
        label = ((log - log.min()) / width).astype(np.int64)
        total = np.bincount(label, weights=count)
        mean = np.bincount(label, weights=count * log) / np.maximum(total, 1e-300)
        return np.exp(mean[total > 0]), np.asarray(total[total > 0], dtype=np.float64)

    def _promising(self, at: float, ring: float | None) -> list[Cuts]:
        """Returns the finalists: the best cuts of a coarse grid, each moved to the best near it in ever finer steps."""
        low, high = _pairs(self._places()[None, :], self._places()[None, :])
        low, high = low[low < high], high[low < high]
        best = np.argsort(-self._promise(low, high, at, ring), kind="stable")[:STARTS]
        low, high = low[best], high[best]
        step, least = 0.5 * self.victim_scale, 0.02 * min(max(self.victim_scale, 0.02), 1.0)
        while step > least:
            moves = step * np.arange(-3, 4)
            lows, highs = _pairs(low[:, None] + moves, high[:, None] + moves)
            lows, highs = (np.array([self.noise.cut(x) for x in side.tolist()]) for side in (lows, highs))
            promise = np.full(lows.size, -np.inf)
            good = lows < highs
            promise[good] = self._promise(lows[good], highs[good], at, ring)
            chosen = promise.reshape(low.size, -1).argmax(1) + np.arange(low.size) * (lows.size // low.size)
            low, high, step = lows[chosen], highs[chosen], step / 3
        order = np.argsort(-self._promise(low, high, at, ring), kind="stable")
        distinct = dict.fromkeys(Cuts(float(low[index]), float(high[index]), at, ring) for index in order.tolist())
        return [cuts for cuts in distinct if cuts.low < cuts.high][: FINALISTS if self.scales.size <= FEW_SCALES else 1]

    def _places(self) -> Floats:
        """Returns the places of cuts: inside [0, 1], and beyond in units of the victim's and of the others' scales."""
        units = {self.victim_scale}
        if self.scales.size:
            units |= {float(self.scales.min()), float(np.median(self.scales))}
        beyond = [unit * factor for unit in units for factor in (0.1, 0.35, 1.0, 2.0, 3.5, 5.0, 8.0)]
        near = [self.victim_scale * factor for factor in (-1.0, -0.3, 0.3, 1.0)]
        places = [-math.inf, math.inf, 0.0, 0.15, 0.3, 0.5, 0.7, 0.85, 1.0, *near]
        places += [-x for x in beyond] + [1 + x for x in beyond] + [1 + x for x in near]
        return np.unique([self.noise.cut(place) for place in places])

    def _promise(self, low: Floats, high: Floats, at: float, ring: float | None) -> Floats:
        """Returns about the score of each pair of cuts, shape of low and high: (C,)."""
        scales, count = self._stand_ins
        inside, outside = self._between(scales[None, :], at, low[:, None], high[:, None], ring)
        victim = [self._between(np.array([self.victim_scale]), x, low, high, ring) for x in (0.0, 1.0)]
        many, few = np.maximum(victim[0][0], victim[1][0])[:, None], np.minimum(victim[0][0], victim[1][0])[:, None]
        not_many, not_few = (pick(victim[0][1], victim[1][1])[:, None] for pick in (np.minimum, np.maximum))
        variance = (inside * outside * count).sum(1)
        tilts = np.minimum(_HEIGHTS / np.sqrt(np.maximum(variance, 1e-6))[:, None], 25.0)
        scores = np.full(low.shape, -np.inf)
        for yes, no, first, second in ((inside, outside, many, few), (outside, inside, not_few, not_many)):
            grown, rest = yes[:, None, :] * np.exp(tilts)[:, :, None], no[:, None, :]
            total = np.maximum(grown + rest, 1e-300)
            value = (np.log(total) * count).sum(2)
            slope = (grown / total * count).sum(2)
            curvature = (grown * rest / total**2 * count).sum(2)
            probabilities = saddle_points(value, slope, curvature, tilts, first, second)
            scores = np.maximum(scores, self.target.score(*probabilities).max(1))
        return scores


def _pairs(first: Floats, second: Floats) -> tuple[Floats, Floats]:
    """Returns every combination within each row: (R, A) and (R, B) to two flat arrays of R * A * B, row after row."""
    shape = (first.shape[0], first.shape[1], second.shape[1])
    return np.broadcast_to(first[:, :, None], shape).ravel(), np.broadcast_to(second[:, None, :], shape).ravel()
