"""The privacy profile of a release at several deltas: certified from above and attacked from below.

What `certify` says at one delta, for many, and between them: a curve to call, to invert, to compare and to plot.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from io import StringIO
from typing import Any, Literal

from accountant.budgets import AnyBudgets, as_budgets
from accountant.certification import certify
from accountant.mechanisms.base import Randomizer
from accountant.mechanisms.registry import as_randomizer
from accountant.numerics.binomial import UNIT
from accountant.numerics.chords import Chords, crossing
from accountant.ranges import check_delta, check_epsilon, outside
from accountant.results import Certificate, Grade, LowerBound, round_down, round_up
from accountant.rich_display import folded_list, html_table

__all__ = ["CertifiedProfile", "CurveSpan", "ProfilePoint", "privacy_profile"]

DRAWN = 200
"""Points of a curve in a plot."""
DELTAS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10)


@dataclass(frozen=True)
class ProfilePoint:
    """One delta: the certificate there, with its lower bound and the published figures.

    Where a local delta is larger than what was asked for, and not amplified, it is that one.
    """

    delta: float
    certificate: Certificate

    @property
    def epsilon(self) -> float:
        """CERTIFIED: never below the truth."""
        return self.certificate.epsilon

    @property
    def lower_bound(self) -> LowerBound | None:
        """LOWER_BOUND: an attack; None where none is known for this randomizer."""
        return self.certificate.lower_bound


@dataclass(frozen=True)
class CurveSpan:
    """Where one of two curves is the lower one: for low <= epsilon <= high, which may be infinite.

    lower: "first", "second", or "neither" where they are equal to nine digits.
    """

    low: float
    high: float
    lower: Literal["first", "second", "neither"]


@dataclass(frozen=True)
class CertifiedProfile:
    """Points of a privacy profile in decreasing order of delta: epsilon does not decrease along it.

    `curve(epsilon)` is a delta, `curve.epsilon(delta)` an epsilon, both CERTIFIED under the assumptions of the points'
    certificates: the divergence is convex in e^epsilon and does not increase, so that it is below the chords between
    points that it is below. At e^epsilon = 0 it is 1; from the local budget on it is at most the local delta.
    """

    randomizer: str
    points: tuple[ProfilePoint, ...]

    def __call__(self, epsilon: float) -> float:
        """The certified delta at an epsilon >= 0, rounded up. Raises ValueError for one outside that range."""
        check_epsilon(epsilon)
        return min(1.0, self._chords.above(epsilon))

    def __str__(self) -> str:
        """One line for people: every point, rounded to the sound side, with its grade."""
        points = ", ".join(
            f"{one.certificate.grade} ε = {round_up(one.epsilon)} at δ = {round_up(one.certificate.delta)}"
            for one in self.points
        )
        return f"{self.randomizer}: {points}"

    def epsilon(self, delta: float) -> float:
        """The least epsilon at which the curve is at most delta, rounded up to the next float but a few.

        Raises ValueError for a delta outside [0, 1], or below all that is certified.
        """
        check_delta(delta)
        low, high = 0.0, float(self._chords.epsilons[-1])
        if self(high) > delta:
            raise outside("delta", delta, f"at least {self(high)!r}, the least of the curve")
        if self(low) <= delta:
            return low
        while high - low > 4 * UNIT * high:
            middle = (low + high) / 2
            low, high = (low, middle) if self(middle) <= delta else (middle, high)
        return high

    def compare(self, other: CertifiedProfile) -> tuple[CurveSpan, ...]:
        """Which of the two curves, this one ("first") or the other ("second"), is lower where, from epsilon = 0 on.

        Both are upper bounds: of two certificates for one release the lower one may be used. Of two releases it tells
        which has the better guarantee, not which one reveals less.
        """
        ends = sorted({0.0, *self._chords.epsilons, *other._chords.epsilons})
        cuts = {*ends, math.inf}
        for left, right in itertools.pairwise(ends):  # chords on both sides: they cross at most once
            before, after = self(left) - other(left), self(right) - other(right)
            if before * after < 0:
                cuts.add(crossing(left, right, before / (before - after)))
        spans: list[CurveSpan] = []
        places = sorted(cuts)
        for left, right in itertools.pairwise(places):
            middle = right if math.isfinite(right) else left
            middle = (left + middle) / 2
            mine, theirs = self(middle), other(middle)
            lower: Literal["first", "second", "neither"] = "first" if mine < theirs else "second"
            if math.isclose(mine, theirs, rel_tol=1e-9):
                lower = "neither"
            if spans and spans[-1].lower == lower:
                left = spans.pop().low
            spans.append(CurveSpan(left, right, lower))
        return tuple(spans)

    def plot(self, axes: Any = None) -> Any:
        """Draws delta against epsilon with its attacks, on matplotlib axes (None: new ones), and returns the axes.

        Raises ImportError without matplotlib, which the extra `plots` brings. `axes.figure.savefig(path)` saves it.
        """
        from accountant.drawing import draw_curve

        certified = [(one.epsilon, one.certificate.delta) for one in self.points]
        attacks = [(one.lower_bound.epsilon, one.lower_bound.delta) for one in self.points if one.lower_bound]
        return draw_curve(self.randomizer, certified, certified_line(self), attacks, axes)

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary for each point: what `pandas.DataFrame` and `polars.DataFrame` take."""
        return [
            {
                "delta": one.certificate.delta,
                "epsilon": one.epsilon,
                "grade": str(one.certificate.grade),
                "lower_bound": None if one.lower_bound is None else one.lower_bound.epsilon,
            }
            for one in self.points
        ]

    def _repr_html_(self) -> str:
        """For notebooks: the plot, where matplotlib is there, the points as a table, and what they assume."""
        rows = [
            {
                "δ": round_up(one.certificate.delta),
                f"ε, {one.certificate.grade}": round_up(one.epsilon),
                f"attack, {Grade.LOWER_BOUND}": round_down(one.lower_bound.epsilon) if one.lower_bound else "none",
            }
            for one in self.points
        ]
        table = html_table(f"{self.randomizer}: what the shuffled batch reveals", rows)
        table += folded_list("This holds if", self.points[0].certificate.assumptions)
        try:
            figure = self.plot().figure
        except ImportError:
            return table
        drawn = StringIO()
        figure.savefig(drawn, format="svg")
        return drawn.getvalue()[drawn.getvalue().index("<svg") :] + table

    @cached_property
    def _chords(self) -> Chords:
        alone = self.points[0].certificate.everyone_else_colludes
        found = sorted([(one.epsilon, one.certificate.delta) for one in self.points] + [(alone.epsilon, alone.delta)])
        # The chord from (e^epsilon, delta) = (0, 1) to the first point, at epsilon = 0.
        first, delta = found[0]
        nodes = {0.0: min(1.0, (delta - math.expm1(-first)) * (1 + 8 * UNIT))}
        least = 1.0
        for epsilon, delta in found:
            least = min(least, delta)
            nodes[epsilon] = least
        return Chords(list(nodes), list(nodes.values()))


def certified_line(profile: CertifiedProfile) -> list[tuple[float, float]]:
    """Returns many (epsilon, delta) of a curve, from its first point to its last, to be joined by straight lines.

    The points alone must not be, where delta is drawn on a logarithmic scale: between them less is certified.
    """
    first, last = profile.points[0].epsilon, profile.points[-1].epsilon
    line = [first + (last - first) * step / DRAWN for step in range(DRAWN)]
    return [(epsilon, profile(epsilon)) for epsilon in (*line, last)]


def privacy_profile(
    budgets: AnyBudgets,
    randomizer: Randomizer | str,
    *,
    deltas: Sequence[float] | float = DELTAS,
    dishonest: int = 0,
    linkage: str = "separate",
    rounds: int = 1,
) -> CertifiedProfile:
    """Returns the certificate at every one of `deltas`, or at the one; all other arguments are those of `certify`.

    Raises:
        ValueError: as `certify`, or deltas is empty.
    """
    several = [float(deltas)] if isinstance(deltas, float | int) else list(deltas)
    if not several:
        raise ValueError("deltas is empty; it must hold at least one number in (0, 1)")
    multiset = as_budgets(budgets)
    family = as_randomizer(randomizer)
    points = []
    for delta in sorted(several, reverse=True):
        found = certify(
            multiset, family, delta=delta, dishonest=dishonest, linkage=linkage, rounds=rounds, compare_all=True
        )
        points.append(ProfilePoint(max(delta, found.delta), found))
    return CertifiedProfile(family.name, tuple(points))
