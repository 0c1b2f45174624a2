"""The privacy profile of a release at several deltas: certified from above and attacked from below.

It extends `certify` at one delta to many, and to those between: a curve to call, to invert, to compare and to plot.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Literal, Unpack

from croupier.accountant.budgets import AnyBudgets, as_budgets
from croupier.accountant.certificate import Certificate
from croupier.accountant.certification import certify
from croupier.accountant.drawable import Drawable
from croupier.accountant.guarantees import LowerBound
from croupier.accountant.mechanisms.base import Randomizer
from croupier.accountant.mechanisms.registry import as_randomizer
from croupier.accountant.numerics.binomial import UNIT
from croupier.accountant.numerics.chords import Chords, crossing
from croupier.accountant.ranges import check_delta, check_epsilon, outside
from croupier.accountant.recertification import at_other, can_be_repeated
from croupier.accountant.release import Conditions, RoundConditions, SettledConditions
from croupier.protocol.codes import Assumption, Note
from croupier.protocol.names import JsonObject
from croupier.protocol.notes import large_delta_notes
from croupier.protocol.permanent import PermanentSeries
from croupier.protocol.rounding import round_up
from croupier.protocol.statements import Statement

Node = tuple[float, float]
DRAWN = 4
"""Parts of a chord in a plot. The line is at most about 0.3 % above a chord between deltas of ratio 2."""
CLOSE = 1.05
"""A chord that is at most this many times above the divergence is not split; each split takes another certificate."""
MOST_BETWEEN = 300
"""The most points between the given ones: some five times as many as curves of 80 to 10^6 people take."""
LARGEST_EXPONENT = 700.0
"""The largest x for which e^x is a float."""
DELTAS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10)
"""The default deltas of a certified curve's points; each further point takes another certificate."""


@dataclass(frozen=True)
class ProfilePoint:
    """One delta: the certificate there, with its lower bound and the published figures.

    A larger local delta that is not amplified replaces the requested delta.
    """

    delta: float
    certificate: Certificate

    @property
    def epsilon(self) -> float:
        """The CERTIFIED epsilon: never below the truth."""
        return self.certificate.epsilon

    @property
    def lower_bound(self) -> LowerBound | None:
        """The LOWER_BOUND of an attack; None if no attack on this randomizer is known."""
        return self.certificate.lower_bound


@dataclass(frozen=True)
class CurveSpan:
    """An interval low <= epsilon <= high, possibly infinite, on which one of two curves is the lower one.

    lower: "first", "second", or "neither" if they are equal to nine digits.
    """

    low: float
    high: float
    lower: Literal["first", "second", "neither"]


@dataclass(frozen=True)
class CertifiedProfile(Drawable):
    """Points of a privacy profile in decreasing order of delta: epsilon does not decrease along it.

    `curve(epsilon)` is a delta, `curve.epsilon(delta)` an epsilon, both CERTIFIED under the assumptions of the points'
    certificates. Where no point is close they are certified on demand if the certificates hold all inputs; otherwise
    `notes` says so. Between points the divergence is convex in e^epsilon and does not increase, so it is below the
    chords between points above it. At e^epsilon = 0 it is 1; from the local budget on it is at most the local delta.

    `between` holds further certified (epsilon, delta) under the same assumptions, so close that chords are at most
    about 5 % above `certify`. It is empty if the deltas were given: such a curve is drawn as points.
    """

    randomizer: str
    points: tuple[ProfilePoint, ...]
    between: tuple[Node, ...] = field(default=(), repr=False)

    @property
    def assumptions(self) -> tuple[Statement[Assumption], ...]:
        """The assumptions of every point together. With hop noise one point may need fewer."""
        return tuple(dict.fromkeys(line for point in self.points for line in point.certificate.assumptions))

    def __call__(self, epsilon: float) -> float:
        """Returns the certified delta at an epsilon >= 0, rounded up. Raises ValueError for one outside that range."""
        check_epsilon(epsilon)
        value = self._chord(epsilon)
        known = self._is_known(epsilon, [point.epsilon for point in self.points])
        if value == 0 or known:
            return value
        nearest = min(self.points, key=lambda point: abs(point.epsilon - epsilon))
        again = at_other(nearest.certificate, epsilon=float(epsilon))
        return value if again is None else min(value, again.delta)

    def _is_known(self, place: float, certified: Sequence[float]) -> bool:
        """Says whether a chord is close to `certify` at an epsilon or delta; `certified`: those of the points."""
        return place in certified or (bool(self.between) and min(certified) <= place <= max(certified))

    def __str__(self) -> str:
        """Returns one line for people: every point, rounded to the sound side, with its grade."""
        points = ", ".join(
            f"{point.certificate.grade} ε = {round_up(point.epsilon)} at δ = {round_up(point.certificate.delta)}"
            for point in self.points
        )
        return f"{self.randomizer}: {points}"

    @property
    def notes(self) -> tuple[Statement[Note], ...]:
        """Notes for the reader: the smallest of its deltas that protects nobody, and the curve's range.

        The range is noted if the curve is far too large outside its points, because it cannot be certified there.
        """
        large = [large_delta_notes(point.certificate.delta, point.certificate.num_users) for point in self.points]
        smallest = [notes for notes in large if notes][-1:]
        if can_be_repeated(self.points[0].certificate):
            return sum(smallest, ())
        least, most = self.points[-1].certificate.delta, self.points[0].certificate.delta
        return (*sum(smallest, ()), Statement.of(Note.CURVE_RANGE, least=least, most=most))

    def _chord(self, epsilon: float) -> float:
        return min(1.0, self._chords.above(epsilon))

    def epsilon(self, delta: float) -> float:
        """Returns the least epsilon at which the curve is at most delta, rounded up by a few ulp.

        Raises ValueError for a delta outside [0, 1], or below the whole curve.
        """
        check_delta(delta)
        low, high = 0.0, float(self._chords.epsilons[-1])
        if self._chord(high) > delta:
            raise outside("delta", delta, f"at least {self._chord(high)!r}, the least of the curve")
        if self._chord(low) <= delta:
            return low
        while high - low > 4 * UNIT * high:
            middle = (low + high) / 2
            low, high = (low, middle) if self._chord(middle) <= delta else (middle, high)
        certificates = [point.certificate for point in self.points]
        if self._is_known(delta, [certificate.delta for certificate in certificates]):
            return high
        nearest = min(certificates, key=lambda certificate: abs(math.log(certificate.delta / max(delta, 1e-300))))
        again = at_other(nearest, delta=float(delta))
        return high if again is None or again.delta > delta else min(high, again.epsilon)

    def compare(self, other: CertifiedProfile) -> tuple[CurveSpan, ...]:
        """Returns which curve, this one ("first") or the other ("second"), is lower on each interval from epsilon = 0.

        The chords between certified points are compared, without further certificates. Both are upper bounds: of two
        certificates for one release the lower one may be used. For two releases the comparison shows which has the
        better guarantee, not which one reveals less.
        """
        ends = sorted({0.0, *self._chords.epsilons, *other._chords.epsilons})
        cuts = {*ends, math.inf}
        for left, right in itertools.pairwise(ends):  # chords on both sides: they cross at most once
            before, after = self._chord(left) - other._chord(left), self._chord(right) - other._chord(right)
            if before * after < 0:
                cuts.add(crossing(left, right, before / (before - after)))
        spans: list[CurveSpan] = []
        places = sorted(cuts)
        for left, right in itertools.pairwise(places):
            middle = right if math.isfinite(right) else left
            middle = (left + middle) / 2
            mine, theirs = self._chord(middle), other._chord(middle)
            lower: Literal["first", "second", "neither"] = "first" if mine < theirs else "second"
            if math.isclose(mine, theirs, rel_tol=1e-9):
                lower = "neither"
            if spans and spans[-1].lower == lower:
                left = spans.pop().low
            spans.append(CurveSpan(left, right, lower))
        return tuple(spans)

    def rows(self) -> list[JsonObject]:
        """Returns one dictionary for each point, for `pandas.DataFrame` and `polars.DataFrame`.

        "lower_bound" is the attack's epsilon, None if no attack is known.
        """
        return [
            {
                "delta": point.certificate.delta,
                "epsilon": point.epsilon,
                "grade": str(point.certificate.grade),
                "lower_bound": None if point.lower_bound is None else point.lower_bound.epsilon,
            }
            for point in self.points
        ]

    @cached_property
    def _chords(self) -> Chords:
        alone = self.points[0].certificate.everyone_else_colludes
        points = [(point.epsilon, point.certificate.delta) for point in self.points]
        certified = sorted([*points, *self.between, (alone.epsilon, alone.delta)])
        # The chord from (e^epsilon, delta) = (0, 1) to the first point, at epsilon = 0.
        first, delta = certified[0]
        nodes = {0.0: min(1.0, (delta - math.expm1(-first)) * (1 + 8 * UNIT))}
        least = 1.0
        for epsilon, delta in certified:
            least = min(least, delta)
            nodes[epsilon] = least
        return Chords(list(nodes), list(nodes.values()))


def certified_line(profile: CertifiedProfile) -> list[tuple[float, float]]:
    """Returns (epsilon, delta) from the first point of a curve to its last, to be joined on a logarithmic delta axis.

    Straight lines between points of the curve would be below it there, because the logarithm of a chord is concave. So
    each part of a chord is drawn as its tangents at both ends of the part, which are above it.
    """
    first, last = profile.points[0].epsilon, profile.points[-1].epsilon
    nodes = [first, *(epsilon for epsilon in profile._chords.epsilons if first < epsilon < last), last]
    line = [(first, profile._chord(first))]
    for left, right in itertools.pairwise(nodes):
        step = (right - left) / DRAWN
        # The chord decreases by `drop` e^(epsilon - right) for each unit of epsilon.
        drop = (profile._chord(left) - profile._chord(right)) / -math.expm1(left - right) if right > left else 0.0
        for part in range(DRAWN):
            start, end = left + part * step, right - (DRAWN - 1 - part) * step
            above, below = profile._chord(start), profile._chord(end)
            if not above > below > 0:
                line.append((end, below))
                continue
            flat, steep = (drop * math.exp(place - right) / delta for place, delta in ((start, above), (end, below)))
            fall = math.log(above / below)
            at = (steep * (end - start) - fall) / (steep - flat) if steep > flat else 0.0
            at = min(max(at, 0.0), end - start)
            line += [(start + at, above * math.exp(-flat * at) * (1 + 1e-12)), (end, below)]
    return line


def privacy_profile(
    budgets: AnyBudgets,
    randomizer: Randomizer | str,
    *,
    deltas: Sequence[float] | float | None = None,
    rounds: int | PermanentSeries = 1,
    **conditions: Unpack[Conditions],
) -> CertifiedProfile:
    """Returns the certificate at every one of `deltas`, or at the one; all other arguments are those of `certify`.

    Without `deltas` they are 1e-2, 1e-3, ..., 1e-10, and further points are certified between them until the curve is
    at most about 5 % above `certify`. With `deltas` there are no further points: what is asked of the curve between
    them is certified when it is asked.

    Raises:
        ValueError: as `certify`, or deltas is empty.
    """
    SettledConditions.of(conditions, Conditions)
    given = DELTAS if deltas is None else [float(deltas)] if isinstance(deltas, float | int) else list(deltas)
    if not given:
        raise ValueError("deltas is empty; it must hold at least one number in (0, 1)")
    return profile_at(given, budgets, randomizer, rounds, refine=deltas is None, **conditions)


def profile_at(
    deltas: Sequence[float],
    budgets: AnyBudgets,
    randomizer: Randomizer | str,
    rounds: int | PermanentSeries,
    *,
    refine: bool,
    **conditions: Unpack[RoundConditions],
) -> CertifiedProfile:
    """Returns the curve through these deltas; refine: with points between them, as in `privacy_profile`."""
    multiset = as_budgets(budgets)
    family = as_randomizer(randomizer)

    def certified(delta: float, *, alone: bool = False) -> Certificate:
        return certify(
            multiset,
            family,
            delta=delta,
            rounds=rounds,
            attack=not alone,
            compare_all=not alone,
            **conditions,
        )

    points = []
    for delta in sorted(deltas, reverse=True):
        certificate = certified(delta)
        points.append(ProfilePoint(max(delta, certificate.delta), certificate))
    local = points[0].certificate.everyone_else_colludes
    nodes = [(point.epsilon, point.certificate.delta) for point in points]
    whole = CertifiedProfile(family.name, tuple(points))
    if not refine:
        return whole
    between = _between(nodes, (local.epsilon, local.delta), partial(certified, alone=True), {*whole.assumptions})
    return replace(whole, between=tuple(between))


def _between(
    nodes: list[Node],
    local: Node,
    certified: Callable[[float], Certificate],
    assumptions: set[Statement[Assumption]],
) -> list[Node]:
    """Returns certified points between the first node and the last, until no chord is far above the divergence.

    Their assumptions are among the given ones.
    """
    between: list[Node] = []
    whole: set[tuple[Node, Node]] = set()
    while len(between) < MOST_BETWEEN:
        # At e^epsilon = 0 the divergence is 1; from the local budget on it is the local delta.
        line = [(-LARGEST_EXPONENT, 1.0), *sorted({*nodes, *between, local})]
        far = {
            (line[k], line[k + 1])
            for k in range(1, len(line) - 2)
            if line[k + 1][0] <= nodes[-1][0] and _excess(line[k - 1 : k + 3]) > CLOSE
        }
        if not far - whole:
            break
        for left, right in sorted(far - whole):
            certificate = certified(math.sqrt(left[1] * right[1]))
            inside = left[0] < certificate.epsilon < right[0] and right[1] < certificate.delta < left[1]
            if inside and assumptions.issuperset(certificate.assumptions):
                between.append((certificate.epsilon, certificate.delta))
            else:  # epsilon is the same on both sides, a local delta is not amplified, or there are more assumptions
                whole.add((left, right))
    return between


def _excess(nodes: Sequence[Node]) -> float:
    """Returns a bound on the ratio of the chord between the two middle nodes to the divergence; infinite if unknown.

    The divergence is convex in e^epsilon: if its nodes are exact, it is above the extended chords on both sides.
    """
    end = nodes[2][0]
    (x0, y0), (xa, ya), (xb, yb), (x1, y1) = ((math.expm1(min(e - end, LARGEST_EXPONENT)), y) for e, y in nodes)
    if not (xa < xb and ya > yb > 0):
        return 1.0
    if not (x0 < xa and xb < x1):
        return math.inf
    before, own, after = (ya - y0) / (xa - x0), (yb - ya) / (xb - xa), (y1 - yb) / (x1 - xb)
    if not before < own < after:
        return 1.0
    x = (yb - ya + before * xa - after * xb) / (before - after)  # where the two extended chords meet
    return (ya + own * (x - xa)) / max(ya + before * (x - xa), yb)
