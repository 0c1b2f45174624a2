"""The laws of sums of reports as functions of a share or a mean, for these users and for a population.

Every estimator states the law of its sum in this form; `analyzer.intervals` inverts it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from croupier.analyzer.intervals import SumLaw

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Laws:
    """The sums of a round's reports and their laws for a share or mean, as a part c of its range.

    Attributes:
        totals: the sums of the reports: one, or the number of hits of each category. Shape (k,).
        participants: the law of each sum, with c the truth of these users.
        population: the same with c the truth of a population of which these users are a random sample.
    """

    totals: Floats
    participants: SumLaw
    population: SumLaw

    def with_noise(self, mean: float | Floats, variance: float | Floats, fourth_cumulant: float | Floats) -> Laws:
        """Returns them for sums with added independent noise, whose skewness is 0."""
        added = mean, variance, fourth_cumulant
        return replace(
            self,
            participants=self.participants.with_noise(*added),
            population=self.population.with_noise(*added),
        )

    def widened(self, bias: float, variance: float) -> Laws:
        """Returns them with a bias of c, by clamped reports or noised tier counts, and a variance of c."""
        return replace(
            self,
            participants=self.participants.widened(bias, variance),
            population=self.population.widened(bias, variance),
        )


def uneven(weights: Floats, counts: Floats) -> float:
    """Returns Σ(w_i/Σw − 1/n)²·n/(n−1), the addition for uneven weights per unit of variance of the users' values."""
    n, total = float(counts.sum()), float(np.dot(weights, counts))
    if n < 2:
        return 0.0
    return float(np.dot(counts, (weights / total - 1 / n) ** 2)) * n / (n - 1)


def weights_of(categories: int, epsilons: Floats) -> tuple[Floats, Floats]:
    """Returns q and w = 1 − kq of each budget. Shape (T,) each."""
    q = 1 / (np.expm1(epsilons) + categories)
    return q, -np.expm1(-epsilons) * np.exp(epsilons) * q


def _sum(of_users: Floats, counts: Floats) -> float | Floats:
    total = of_users @ counts
    return float(total) if total.ndim == 0 else np.asarray(total)


def count_laws(
    hits: Floats, categories: int, epsilons: Floats, counts: Floats, *, rounded: bool, together: int | Floats = 1
) -> Laws:
    """Returns the laws of the numbers of reports of each category, or of each set of `together` categories.

    A report hits a category with probability π = q_i + w_i c, q_i = 1/(e^ε_i + k − 1), w_i = 1 − k q_i; m categories
    that count as one with m q_i + w_i c. c is 1 or 0 for a category, and in between for a value that is `rounded`
    first. For rounded values the variance is an upper bound: the more values differ, the larger is the addition for
    uneven weights, and the smaller that for rounding (docs/estimators.md).
    """
    each, weights = weights_of(categories, epsilons)
    q = np.multiply.outer(together, each)  # (T,), or (k, T) for sums of different numbers of categories
    return hit_laws(hits, q, weights, counts, rounded=rounded)


def hit_laws(hits: Floats, q: Floats, weights: Floats, counts: Floats, *, rounded: bool) -> Laws:
    """Returns the laws of the numbers of reports that hit each of several sets, like `count_laws`.

    Args:
        hits: of each set, (k,).
        q: the probability that a report of each budget hits a set at c = 0; (T,), or (k, T).
        weights: the increase of that probability from c = 0 to c = 1; (T,).
        counts: reports of each budget, (T,).
        rounded: whether c may be anything in between 0 and 1.
    """
    hit, total = q + weights, float(np.dot(weights, counts))
    bits = float(np.dot(weights**2, counts))  # π(1 − π) exceeds the line between its ends by w²c(1 − c)
    dealt = total**2 * uneven(weights, counts)
    population = SumLaw(
        offset=_sum(q, counts),
        weight=total,
        variance_at_0=_sum(q * (1 - q), counts),
        variance_at_1=_sum(hit * (1 - hit), counts),
        spread=bits,
    )
    return Laws(hits, replace(population, spread=max(bits, dealt) if rounded else dealt), population)
