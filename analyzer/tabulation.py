"""Sums of categories, cross tables, conditional shares and tests, from the published shares of one round.

Every number is a weighted sum of the shares of categories, Σ a_j c_j. Its estimate is the same sum of the estimates,
and its error follows from the law of Σ_j a_j 1{report hits j}, for these people and for a population, with the noise of
hops and of tier counts. So the published result is enough (docs/estimators.md, Tables).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import cast

import numpy as np
import numpy.typing as npt

from croupier.analyzer.differences import Interval, Reach, apart
from croupier.analyzer.estimates import Fakes, Value
from croupier.analyzer.estimators import ESTIMATORS
from croupier.analyzer.intervals import SumLaw
from croupier.analyzer.laws import Laws, uneven
from croupier.analyzer.mechanisms.krr import CategoryEstimator
from croupier.analyzer.noised_tiers import TierErrors, TierNoise
from croupier.analyzer.scalars import fakes_apart, fakes_in_sum
from croupier.protocol.mechanisms.krr import KaryResponse

Floats = npt.NDArray[np.float64]

_RATIOS = np.linspace(-1.0, 2.0, 15_001)
"""Conditional shares that are tested: intervals end at one of them, rounded outwards by one step.

Beyond [0, 1] for differences: 1 further is as much as any difference can be.
"""


@dataclass(frozen=True, eq=False)
class ShareModel:
    """The shares of a round's categories, and the accuracy of exact weighted sums of them.

    Attributes:
        mechanism: of a question about one choice of several.
        shares: unbiased estimates, (k,).
        possible: the nearest point of the simplex, (k,).
        epsilons, counts: the tiers, (T,); the counts add up to the clients' reports.
        confidence: of every interval.
        fakes: among the reports; None without hop noise.
        errors: of the counts; None if they are exact.
    """

    mechanism: KaryResponse
    shares: Floats
    possible: Floats
    epsilons: Floats
    counts: Floats
    confidence: float
    fakes: Fakes | None = None
    errors: TierErrors | None = None

    @cached_property
    def hit(self) -> tuple[Floats, Floats]:
        """How likely a report hits a category that is not the person's, and how much likelier the own one. (T,)."""
        return self._estimator.hit(self.mechanism, self.epsilons)

    @property
    def _estimator(self) -> CategoryEstimator[KaryResponse]:
        return cast("CategoryEstimator[KaryResponse]", ESTIMATORS[self.mechanism.kind])

    @property
    def weight(self) -> float:
        """The increase of the sum of a category's hits with its share."""
        return float(self.hit[1] @ self.counts)

    def _squares(self, a: Floats, b: Floats) -> tuple[Floats, Floats]:
        """Returns the mean of the product of two sums over a uniform report, and over reports that show category j.

        a, b: weights of the categories, (k,). The second has shape (k,).
        """
        product = self._on_reports(a) * self._on_reports(b)
        return np.asarray(product.mean()), self._estimator.of_categories(self.mechanism, product)

    def _on_reports(self, a: Floats) -> Floats:
        return self._estimator.on_reports(self.mechanism, a)

    def given(self, a: Floats, b: Floats) -> Floats:
        """Returns the covariance of two sums over all reports if everybody had category j, for every j. Shape (k,)."""
        anywhere, own = self._squares(a, b)
        other, weights = self.hit
        often = self._estimator.kept(self.mechanism, self.epsilons)
        covariance = np.zeros(a.size)
        for q, w, kept, count in zip(other, weights, often, self.counts, strict=True):
            means = (q * a.sum() + w * a) * (q * b.sum() + w * b)
            covariance += count * ((1 - kept) * anywhere + kept * own - means)
        return covariance

    def covariances(self, rows: Floats) -> tuple[Floats, Floats]:
        """Returns the covariances of the estimates of weighted sums of shares: for these people, for a population.

        rows: the weights of each sum, (r, k). Shapes (r, r).
        """
        own, whole = np.zeros((len(rows), len(rows))), np.zeros((len(rows), len(rows)))
        c, weights = self.possible, self.hit[1]
        means = rows @ c
        between = (rows * c) @ rows.T - np.outer(means, means)
        squared = float(weights**2 @ self.counts)
        for i, a in enumerate(rows):
            for j, b in enumerate(rows[: i + 1]):
                own[i, j] = own[j, i] = float(self.given(a, b) @ c)
        own, whole = own / self.weight**2, (own + squared * between) / self.weight**2
        own = own + between * uneven(weights, self.counts)
        added = self.added(rows)
        return own + added, whole + added

    def added(self, rows: Floats) -> Floats:
        """Returns the covariances that hops and noised tier counts add, (r, r)."""
        added = np.zeros((len(rows), len(rows)))
        if self.fakes is not None:
            apart = fakes_apart(self.fakes, np.array([self._on_reports(row) for row in rows]))
            added += self.fakes.hops * self.fakes.law.variance * apart @ apart.T
        added /= self.weight**2
        if (noise := self._noise) is not None:
            width = rows.max(axis=1) - rows.min(axis=1)
            added += np.outer(width, width) * (noise.variance / self.weight**2 + noise.other_variance + noise.bias**2)
        return added

    @cached_property
    def _noise(self) -> TierNoise | None:
        return None if self.errors is None else TierNoise.of(self.errors, self.hit[1], self.counts, 1.0)

    def total(self, chosen: Sequence[int]) -> Value:
        """Returns the share of the people with one of these categories, each named once, by an inverted score test.

        Raises:
            ValueError: no category, a category that there is not, or one that is named twice.
        """
        k = self.shares.size
        if not chosen or len(set(chosen)) < len(chosen) or not all(0 <= place < k for place in chosen):
            raise ValueError(f"categories are {list(chosen)}; they must be different numbers from 0 to {k - 1}")
        a = np.zeros(k)
        a[list(chosen)] = 1.0
        estimate, c = float(a @ self.shares), self.possible
        possible = float(a @ c)
        given = self.given(a, a)
        inside, outside = (_mean(given, c * part) for part in (a, 1 - a))
        weights = self.hit[1]
        points = self._on_reports(a)
        law = SumLaw(
            offset=0.0,
            weight=self.weight,
            variance_at_0=outside,
            variance_at_1=inside,
            spread=self.weight**2 * uneven(weights, self.counts),
            step=float(points.max() - points.min()),
        )
        seen, whole = np.array([estimate * self.weight]), replace(law, spread=float(weights**2 @ self.counts))
        laws = Laws(seen, law, whole)
        if self.fakes is not None:
            _, *noise = fakes_in_sum(self.fakes, points)
            laws = laws.with_noise(0.0, *noise)
        if self._noise is not None:
            laws = self._noise.on(laws)
        both = laws.participants, laws.population
        ends = [_reaching(*each.interval(seen, self.confidence), possible) for each in both]
        error = float(laws.participants.standard_error(np.array([possible]))[0])
        return Value(estimate, possible, error, ends[0], _sampling(possible, self.counts), ends[1])


def _mean(values: Floats, weights: Floats) -> float:
    """Returns the weighted mean; the largest value if no weight is above 0."""
    total = float(weights.sum())
    return float(values @ weights) / total if total > 0 else float(values.max())


def _sampling(share: float, counts: Floats) -> float:
    return math.sqrt(max(share * (1 - share), 0.0) / float(counts.sum()))


def _reaching(low: Floats, high: Floats, possible: float) -> tuple[float, float]:
    return min(float(low[0]), possible), max(float(high[0]), possible)


@dataclass(frozen=True)
class Independence:
    """A test of whether the two questions of a table are independent in the population.

    Attributes:
        statistic: the quadratic form of the differences between the cells and the products of their margins.
        degrees: of freedom of its law.
        p_value: how likely a statistic as large is if they are.
    """

    statistic: float
    degrees: int
    p_value: float


@dataclass(frozen=True, eq=False)
class CrossTable:
    """A table of two questions that were asked as one: its categories are the pairs, row by row.

    Attributes:
        model: of the pairs.
        rows, columns: the numbers of answers of the first and the second question.
    """

    model: ShareModel
    rows: int
    columns: int

    def __post_init__(self) -> None:
        if self.rows < 2 or self.columns < 2 or self.rows * self.columns != self.model.shares.size:
            raise ValueError(
                f"{self.model.shares.size} categories are not a table of {self.rows} rows and {self.columns} columns"
            )

    def row(self, row: int) -> Value:
        """Returns the share of the people with an answer to the first question."""
        return self.model.total([row * self.columns + column for column in range(self.columns)])

    def column(self, column: int) -> Value:
        """Returns the share of the people with an answer to the second question."""
        return self.model.total([row * self.columns + column for row in range(self.rows)])

    def within(self, row: int, column: int) -> Value:
        """Returns the share with an answer to the second question among the people with one to the first.

        The interval holds every share r for which the cell less r times its row cannot be told from 0 (Fieller 1954),
        by the variance of this difference at r: it is the whole range if the row cannot be told from an empty one. The
        projected value is the nearest end of the range to an estimate outside it.
        """
        value, _, _ = self._within(row, column)
        return value

    def _within(self, row: int, column: int) -> tuple[Value, Reach, Reach]:
        """Returns a share within a row, and its distances for these people and for a population."""
        sums = np.array([self._cell(row, column), self._row(row)])
        (cell, base), (likely, among) = sums @ self.model.shares, sums @ self.model.possible
        possible = float(likely / among) if among > 0 else 0.5
        estimate = float(cell / base) if base > 0 else possible
        gradient = np.array([1.0, -possible]) / max(float(among), self._least)
        error = math.sqrt(max(float(gradient @ self.model.covariances(sums)[0] @ gradient), 0.0))
        uncut = [
            self._fieller(float(cell), float(base), covariance)
            for covariance in self._variances(row, column, float(among))
        ]
        cut = min(max(estimate, 0.0), 1.0)
        own, whole = ((min(max(low, 0.0), cut), max(min(high, 1.0), cut)) for low, high in uncut)
        drawn = _sampling(possible, self.model.counts * max(float(among), self._least))
        value = Value(estimate, cut, error, own, drawn, whole)
        centre = min(max(estimate, float(_RATIOS[0])), float(_RATIOS[-1]))
        of_own, of_whole = (
            Reach(cut, cut, 1 - cut, known=False)
            if low <= 0 and high >= 1
            else Reach(centre, centre - low, high - centre)
            for low, high in uncut
        )
        return value, of_own, of_whole

    def difference(self, column: int, first: int, second: int) -> Value:
        """Returns the share within the first row less the share within the second row.

        The interval adds the distances to the ends of the two intervals as squares, with their correlation if that is
        negative (`analyzer.differences`). The ends are those before they are cut to [0, 1].
        """
        (share, *reaches), (other, *others) = (self._within(row, column) for row in (first, second))
        sums = np.array([self._cell(first, column), self._row(first), self._cell(second, column), self._row(second)])
        gradients = np.zeros((2, 4))
        for place, value in enumerate((share, other)):
            among = max(float(sums[2 * place + 1] @ self.model.possible), self._least)
            gradients[place, 2 * place : 2 * place + 2] = np.array([1.0, -value.projected]) / among
        covariances = [gradients @ covariance @ gradients.T for covariance in self.model.covariances(sums)]
        possible = share.projected - other.projected
        error = math.sqrt(max(float(covariances[0][0, 0] + covariances[0][1, 1] - 2 * covariances[0][0, 1]), 0.0))
        ends = []
        for reach, against, covariance in zip(reaches, others, covariances, strict=True):
            shared = -_correlation(covariance) * reach.longest * against.longest
            low, high = apart(reach, against, 1.0, shared)
            ends.append((min(low, possible), max(high, possible)))
        sampling = math.hypot(share.sampling_standard_error, other.sampling_standard_error)
        return Value(share.estimate - other.estimate, possible, error, ends[0], sampling, ends[1])

    def independence(self) -> Independence:
        """Returns a test of independence in the population, with the noise at the independent table that fits best.

        The covariance is that of Gaussian errors, with that of the product of the two margins' errors.
        """
        from scipy.stats import chi2

        model, shape = self.model, (self.rows, self.columns)
        cells = np.eye(model.shares.size)
        row_sums, column_sums = (np.array([self._row(row) for row in range(self.rows)]), self._columns())
        rows, columns = row_sums @ model.possible, column_sums @ model.possible
        independent = np.outer(rows, columns)
        _, covariance = replace(model, possible=independent.ravel()).covariances(cells)
        crossed = row_sums @ covariance @ column_sums.T
        products = np.kron(row_sums @ covariance @ row_sums.T, column_sums @ covariance @ column_sums.T)
        products += np.einsum("il,kj->ijkl", crossed, crossed).reshape(products.shape)
        apart = (model.shares.reshape(shape) - np.outer(row_sums @ model.shares, column_sums @ model.shares)).ravel()
        apart += crossed.ravel()  # a product of two margins has their covariance in its mean
        # The last row and column follow from the others: all of these differences add up to 0.
        jacobian = cells - np.array(
            [
                columns[column] * row_sums[row] + rows[row] * column_sums[column]
                for row in range(self.rows)
                for column in range(self.columns)
            ]
        )
        kept = np.arange(model.shares.size).reshape(shape)[:-1, :-1].ravel()
        spread = (jacobian @ covariance @ jacobian.T + products)[np.ix_(kept, kept)]
        statistic = float(apart[kept] @ np.linalg.lstsq(spread, apart[kept], rcond=1e-10)[0])
        degrees = kept.size
        return Independence(statistic, degrees, float(chi2.sf(statistic, degrees)))

    def _cell(self, row: int, column: int) -> Floats:
        return np.asarray(np.eye(self.model.shares.size)[row * self.columns + column])

    def _row(self, row: int) -> Floats:
        return np.repeat(np.arange(self.rows) == row, self.columns).astype(np.float64)

    def _columns(self) -> Floats:
        chosen = np.arange(self.columns)
        return np.array([np.tile(chosen == column, self.rows) for column in chosen], dtype=np.float64)

    @property
    def _least(self) -> float:
        """The share of half a person, below which a row is taken to have no people."""
        return 0.5 / max(self.model.weight, 1.0)

    def _variances(self, row: int, column: int, among: float) -> tuple[Floats, Floats]:
        """Returns the variance of cell - r row for every r of `_RATIOS`, if the nearest possible share is true.

        The other answers of the row keep their proportions. For these people, and for a population; shape (15001,).
        """
        model, cell, whole_row = self.model, self._cell(row, column), self._row(row)
        outside, inside, others = model.possible * (1 - whole_row), among * cell, model.possible * (whole_row - cell)
        others = among * others / others.sum() if others.sum() > 0 else among * (whole_row - cell) / (self.columns - 1)
        given = np.array([model.given(cell, cell), model.given(cell, whole_row), model.given(whole_row, whole_row)])
        powers = np.array([np.ones_like(_RATIOS), -2 * _RATIOS, _RATIOS**2])
        share = np.clip(_RATIOS, 0.0, 1.0)
        parts = np.array([np.ones_like(share), share, 1 - share])
        noise = np.einsum("ir,ij,jr->r", powers, given @ np.array([outside, inside, others]).T, parts)
        added = model.added(np.array([cell, whole_row]))
        fixed = powers.T @ np.array([added[0, 0], added[0, 1], added[1, 1]])
        between, weights = among * share * (1 - share), model.hit[1]
        own = noise / model.weight**2 + between * uneven(weights, model.counts)
        whole = (noise + float(weights**2 @ model.counts) * between) / model.weight**2
        return own + fixed, whole + fixed

    def _fieller(self, cell: float, base: float, variance: Floats) -> Interval:
        """Returns the lowest and the highest share of `_RATIOS` that the data do not reject; of all, if they do."""
        z = NormalDist().inv_cdf((1 + self.model.confidence) / 2)
        margin = (0.5 + max(0.0, z * z - 1) / 6) / self.model.weight
        kept = np.abs(cell - _RATIOS * base) <= margin + z * np.sqrt(np.maximum(variance, 0.0))
        step, ends = float(_RATIOS[1] - _RATIOS[0]), _RATIOS[kept] if kept.any() else _RATIOS
        return float(ends[0]) - step, float(ends[-1]) + step


def _correlation(covariance: Floats) -> float:
    """Returns the correlation of two estimates, or 0 if it is positive.

    A positive one shortens an interval, and with few people it is estimated at shares that are far from the true ones.
    """
    scale = math.sqrt(float(covariance[0, 0] * covariance[1, 1]))
    return float(np.clip(covariance[0, 1] / scale, -1.0, 0.0)) if scale > 0 else 0.0
