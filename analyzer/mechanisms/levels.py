"""`levels`: the mean from the sum of the levels, and the distribution, with quantiles (docs/levels.md).

A client rounds its number at random to one of the two levels around it, and reports the level as in `krr`. So one batch
has a mean, a histogram with its cumulative shares, and a standard deviation; quantiles follow from the cumulative
shares (`show.distribution`). Levels are counted 0 .. k-1 here; w_i is the weight of a report, 1 − kq_i.

The error of a sum of weights g_j over the reports needs moments of g over the people's levels, which are estimated:
    Var Σg(report_i) ≤ Σ (1 − w_i) U + w_i (1 − w_i) M + w_i² R,
U the variance of g at a uniform level, M the mean of (g − ḡ)² over the people's rounded numbers, and R the mean
variance of g by the rounding alone. For a population R is the variance of g over people and rounding.
"""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np

from croupier.analyzer.base import Batch, Floats
from croupier.analyzer.estimates import Estimate, Fakes, Value
from croupier.analyzer.intervals import SumLaw
from croupier.analyzer.laws import Laws, count_laws, uneven, weights_of
from croupier.analyzer.noised_tiers import TierErrors, TierNoise
from croupier.analyzer.scalars import ScalarEstimator, fakes_in_sum
from croupier.protocol.mechanisms.levels import Levels
from croupier.protocol.v1 import messages_pb2 as pb

_UPPER = 2.0
"""How many standard errors are added to an estimated moment before it enters a variance: intervals keep their level."""


def isotonic(values: Floats) -> Floats:
    """Returns the nearest sequence that never falls (least squares, equal weights): pool adjacent violators."""
    means: list[float] = []
    sizes: list[int] = []
    for value in values.tolist():
        means.append(value)
        sizes.append(1)
        while len(means) > 1 and means[-2] >= means[-1]:
            mean, size = means.pop(), sizes.pop()
            means[-1] = (means[-1] * sizes[-1] + mean * size) / (sizes[-1] + size)
            sizes[-1] += size
    return np.repeat(means, sizes)


def _shares(batch: Batch[Levels], hits: Floats) -> Floats:
    """Returns the unbiased shares of the levels, which add up to 1; what is not a client's report is a fake. (k,)."""
    k, counts = hits.size, batch.counts
    q, weights = weights_of(k, batch.epsilons)
    fakes = float(hits.sum() - counts.sum())
    return np.asarray((hits - fakes / k - float(q @ counts)) / float(weights @ counts))


def _smooth(shares: Floats) -> Floats:
    """Returns cumulative shares that never fall, within [0, 1]; the last is 1. (k,)."""
    raw = np.cumsum(shares)
    raw[-1] = 1.0
    smooth = np.clip(isotonic(raw), 0.0, 1.0)
    smooth[-1] = 1.0
    return smooth


def _variances(batch: Batch[Levels], g: Floats, possible: Floats) -> tuple[float, float]:
    """Returns the variance of Σg(report) for these people and for a population, from possible shares of the levels."""
    weights, counts = weights_of(g.size, batch.epsilons)[1], batch.counts
    around = g - g.mean()
    moment, mean = float(possible @ around**2), float(possible @ around)
    steps = np.abs(np.diff(g))
    nearest = np.maximum(np.append(steps, 0.0), np.append(0.0, steps))
    rounding = min(float(possible @ nearest**2) / 4, max(moment - mean**2, 0.0))
    spread = max(moment - mean**2, 0.0)
    base = float(((1 - weights) * (float((around**2).mean()) + weights * moment)) @ counts)
    squares = float(weights**2 @ counts)
    dealt = float(weights @ counts) ** 2 * uneven(weights, counts) * spread
    return base + squares * rounding + dealt, base + squares * spread


def _mean_laws(batch: Batch[Levels], hits: Floats) -> Laws:
    """Returns the laws of the sum of the reported levels, for the mean as a part of the range.

    hits: reports of each level, (k,), with all fakes.
    """
    k, counts = hits.size, batch.counts
    most, n = k - 1.0, float(counts.sum())
    weights = weights_of(k, batch.epsilons)[1]
    weight, positions = float(weights @ counts), np.arange(k, dtype=np.float64)
    raw = _shares(batch, hits)
    possible = np.diff(_smooth(raw), prepend=0.0)
    around = (positions - most / 2) ** 2
    error = math.sqrt(_variances(batch, around, possible)[1]) / weight
    moment = min(max(float(raw @ around), 0.0) + _UPPER * error, most**2 / 4)
    mean = min(max(float(raw @ positions), 0.0), most)
    # A person in a population of whom none is here is worth z²/n of the range (Agresti and Coull's correction).
    rare = 4 / n * most**2 / 4
    spread = min(max(moment - (mean - most / 2) ** 2, 0.25) + rare, most**2 / 4)
    base = (1 - weights) * ((k**2 - 1) / 12 + weights * moment)
    own, whole = (float((base + weights**2 * variance) @ counts) for variance in (0.25, spread))
    law = SumLaw(
        offset=float((1 - weights) @ counts) * most / 2,
        weight=weight * most,
        variance_at_0=own,
        variance_at_1=own,
        spread=(weight * most) ** 2 * uneven(weights, counts),
        step=most,
    )
    total = np.array([float(positions @ hits)])
    return Laws(total, law, replace(law, variance_at_0=max(own, whole), variance_at_1=max(own, whole), spread=0.0))


def distribution_of(batch: Batch[Levels], hits: Floats) -> pb.Distribution:
    """Returns shares, cumulative shares and standard deviation, each with its intervals by itself.

    hits: how many reports name each level, (k,), with all fakes.
    """
    k, counts, fakes = batch.mechanism.k, batch.counts, batch.fakes
    raw = _shares(batch, hits)
    smooth = _smooth(raw)
    indicators, below = np.eye(k), np.tri(k)
    weights = weights_of(k, batch.epsilons)[1]
    noise = None if batch.errors is None else TierNoise.of(batch.errors, weights, counts, 1.0)
    possible = np.diff(smooth, prepend=0.0)
    shares = _share_values(batch, hits, indicators, possible, noise)
    cumulative = _share_values(batch, hits, below[:-1], smooth[:-1], noise)
    everybody = Value(1.0, 1.0, 0.0, (1.0, 1.0), 0.0, (1.0, 1.0))
    weight = float(weights @ counts)
    columns = zip(batch.mechanism.levels, shares, [*cumulative, everybody], strict=True)
    return pb.Distribution(
        levels=[pb.Level(value=level, share=at.message(), cumulative=up_to.message()) for level, at, up_to in columns],
        standard_deviation=_standard_deviation(batch, raw, smooth, noise).message(),
        hop_influence=0.0 if fakes is None else fakes.influence / weight,
    )


def _share_values(
    batch: Batch[Levels], hits: Floats, chosen: Floats, possible: Floats, noise: TierNoise | None
) -> list[Value]:
    """Returns shares of people on sets of levels; a row of `chosen` is 1 for the levels of a set, else 0, (s, k)."""
    counts, fakes = batch.counts, batch.fakes
    totals = chosen @ hits
    laws = count_laws(totals, hits.size, batch.epsilons, counts, rounded=True, together=chosen.sum(axis=1))
    if fakes is not None:
        laws = laws.with_noise(*np.array([fakes_in_sum(fakes, row) for row in chosen]).T)
    if noise is not None:
        laws = noise.on(laws)
    estimates = laws.participants.estimate(totals)
    columns = [estimates, possible, laws.participants.standard_error(estimates)]
    sampling = np.sqrt(possible * (1 - possible) / float(counts.sum()))
    ends = []
    for law in (laws.participants, laws.population):
        low, high = law.interval(totals, batch.confidence)
        ends += [np.minimum(low, possible), np.maximum(high, possible)]
    return [
        Value(estimate, nearest, error, (low, high), drawn, (least, most))
        for estimate, nearest, error, low, high, drawn, least, most in zip(
            *(column.tolist() for column in (*columns, *ends[:2], sampling, *ends[2:])), strict=True
        )
    ]


def _standard_deviation(batch: Batch[Levels], raw: Floats, smooth: Floats, noise: TierNoise | None) -> Value:
    """Returns the standard deviation of the people's numbers.

    Rounding adds between 0 and a quarter of a squared step to their variance, which nobody sees: the estimate subtracts
    the middle, and the intervals allow for both ends.
    """
    mechanism, counts, fakes = batch.mechanism, batch.counts, batch.fakes
    k, most, n = mechanism.k, mechanism.k - 1.0, float(counts.sum())
    weight, positions = float(weights_of(k, batch.epsilons)[1] @ counts), np.arange(k, dtype=np.float64)
    possible = np.diff(smooth, prepend=0.0)
    mean = min(max(float(raw @ positions), 0.0), most)
    g = (positions - mean) ** 2
    of_mean, of_square = (np.array(_variances(batch, scores, possible)) for scores in (positions, g))
    if fakes is not None:
        of_mean, of_square = (
            variance + fakes_in_sum(fakes, scores)[1] for variance, scores in ((of_mean, positions), (of_square, g))
        )
    of_mean, of_square = of_mean / weight**2, of_square / weight**2
    bias = 0.0
    if noise is not None:  # the sum of the weights is wrong by some part, and so is every moment
        of_mean = of_mean + most**2 * noise.other_variance
        of_square = of_square + float(g.max()) ** 2 * (noise.variance / weight**2 + noise.other_variance)
        bias = float(g.max()) * noise.bias + (most * noise.bias) ** 2
    # The square of the estimated mean is too large by its variance, and varies by twice the square of that.
    variances, errors = float(raw @ g) + of_mean, np.sqrt(of_square + 2 * of_mean**2)
    z = NormalDist().inv_cdf((1 + batch.confidence) / 2)
    margins = z * errors + float(g.max()) * max(0.0, z**2 - 1) / 6 / weight + bias
    step = (mechanism.high - mechanism.low) / most

    def scaled(variance: float) -> float:
        return step * math.sqrt(min(max(variance, 0.0), most**2 / 4))

    estimate = scaled(float(variances[0]) - 1 / 8)
    ends = [
        (min(scaled(float(variance - margin) - 1 / 4), estimate), max(scaled(float(variance + margin)), estimate))
        for variance, margin in zip(variances, margins, strict=True)
    ]
    spread = float(possible @ g**2) - float(possible @ g) ** 2
    own, sampling = step**2 * float(errors[0]), step**2 * math.sqrt(max(spread, 0.0) / n)
    error, drawn = (
        min(variance / (2 * estimate) if estimate else math.inf, math.sqrt(variance)) for variance in (own, sampling)
    )
    return Value(estimate, estimate, error, ends[0], drawn, ends[1])


def _hits(batch: Batch[Levels]) -> Floats:
    return np.bincount(np.asarray(batch.reports, dtype=np.int64), minlength=batch.mechanism.k).astype(np.float64)


class _Levels(ScalarEstimator[Levels]):
    def estimate(self, batch: Batch[Levels]) -> Estimate:
        """The mean, and beside it the distribution that it is the mean of."""
        return replace(super().estimate(batch), distribution=distribution_of(batch, _hits(batch)))

    def with_noised_tiers(self, batch: Batch[Levels], laws: Laws, errors: TierErrors) -> Laws:
        """A uniform report stands for the middle of the range; the sum counts levels."""
        k = batch.mechanism.k
        return TierNoise.of(errors, weights_of(k, batch.epsilons)[1], batch.counts, 0.5).on(laws, k - 1.0)

    def laws(self, batch: Batch[Levels]) -> Laws:
        """The sum of the numbers of the levels."""
        return _mean_laws(batch, _hits(batch))

    def noise_of(self, mechanism: Levels, fakes: Fakes) -> tuple[float, float, float]:
        return fakes_in_sum(fakes, np.arange(mechanism.k))

    def influence_of(self, mechanism: Levels, fakes: Fakes) -> float:
        """Each report that a hop moves in a count, it can move from the first level to the last."""
        return fakes.influence * (mechanism.k - 1)


ESTIMATOR = _Levels()
