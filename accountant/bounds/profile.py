"""Privacy profiles: certified upper bounds on delta as a function of epsilon, and the search for epsilon on one.

A randomizer turns (victim, others) into `Curve`s, of which `smallest_epsilon` inverts any. `CountProfile` is the
blanket bound of every randomizer with a closed form: delta(m) averaged over the law of the blanket count.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Protocol, TypeVar

from croupier.accountant.numerics.binomial import UNIT, Floats, Ints
from croupier.accountant.numerics.count_law import CountLaw
from croupier.accountant.numerics.gaussian import gaussian_epsilon
from croupier.accountant.privacy_curve import Bounded, PrivacyProfile, Proof
from croupier.accountant.ranges import check_delta, check_epsilon, check_target_delta
from croupier.protocol.codes import Method, Step
from croupier.protocol.statements import Statement, state

__all__ = [
    "BoundKind",
    "Bounded",
    "CountProfile",
    "Curve",
    "Inverse",
    "Invertible",
    "NoAmplification",
    "Others",
    "PrivacyProfile",
    "Victim",
    "blanket_messages",
    "smallest_epsilon",
]

Computed = TypeVar("Computed")

UNDERFLOW = 1e-290
"""Added to a delta that is above 0: more than all the masses below 1e-300, which may have been taken for 0."""


@dataclass(frozen=True)
class Victim:
    """The user whose data changes: the local budget that its report spends.

    Where users are answered together, local_epsilon and local_delta are the largest among them, so that every member is
    (local_epsilon, local_delta)-private by itself, and `span` holds the (epsilon, delta) of two members: the one whose
    reports hide most and the one whose reports show most. A curve has to hold for every member.
    """

    local_epsilon: float
    local_delta: float = 0.0
    span: tuple[tuple[float, float], tuple[float, float]] | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for a budget outside its range."""
        check_epsilon(self.local_epsilon, "local_epsilon")
        check_delta(self.local_delta, "local_delta")
        if self.span is not None and any(e > self.local_epsilon or d > self.local_delta for e, d in self.span):
            raise ValueError(f"span is {self.span!r}; its members must be within the largest epsilon and delta")


@dataclass(frozen=True, eq=False)
class Others:
    """The other users: arrays of shape (T,). The `dishonest` of them that hide the victim best cannot be relied on."""

    local_epsilon: Floats
    local_delta: Floats
    count: Ints
    dishonest: int
    _computed: dict[Hashable, Any] = field(init=False, default_factory=dict, repr=False)
    """See `once`. `dataclasses.replace` gives its result an empty one: what was computed holds for these users only."""

    @property
    def honest(self) -> int:
        """How many of them can be relied on."""
        return max(0, int(self.count.sum()) - self.dishonest)

    def once(self, key: Hashable, make: Callable[[Others], Computed]) -> Computed:
        """Returns make(self), which is computed for the first call with this key only."""
        if key not in self._computed:
            self._computed[key] = make(self)
        computed: Computed = self._computed[key]
        return computed


class BoundKind(StrEnum):
    """Which bound a curve is; the steps of a certificate name it so."""

    BLANKET = "blanket"
    EXCHANGE = "exchange"
    WORST_CASE = "worst case"
    HOP_NOISE = "hop noise"


class Curve(ABC):
    """A `PrivacyProfile` that is inverted and composed: one bound on the divergence of one group of victims."""

    kind: ClassVar[BoundKind] = BoundKind.BLANKET

    @property
    def no_bound(self) -> Statement[Step] | None:
        """Why the curve bounds nothing; None where it is a bound."""
        return None

    @property
    def closed_divergence(self) -> float | None:
        """The integral of (p0 - p1)^2 / omega, by which a closed form behaves for many users; None for other curves."""
        return None

    @property
    def tolerance(self) -> float:
        """Relative width at which the search for epsilon stops: as narrow as the bound is sharp, or as time allows."""
        return 1e-6

    @property
    @abstractmethod
    def method(self) -> Proof:
        """See `PrivacyProfile`."""

    @abstractmethod
    def delta(self, epsilon: float) -> Bounded:
        """See `PrivacyProfile`. Raises ValueError for a negative or non-finite epsilon."""

    @abstractmethod
    def guess(self, delta: float) -> float:
        """See `PrivacyProfile`."""

    @abstractmethod
    def explain(self) -> tuple[Statement[Step], ...]:
        """See `PrivacyProfile`."""

    def smallest_epsilon(self, delta: float, ceiling: float, *, floor: float = 0.0) -> Inverse:
        """As the function `smallest_epsilon`. A curve that is slow need not look below `floor`."""
        return smallest_epsilon(self, delta, ceiling, self.tolerance)

    def to_compose(self, delta: float, ceiling: float) -> Curve | None:
        """Returns a form for composition and for the ledger that is quick at many points, or None.

        delta: about what will be asked for. ceiling: the victim's local budget.
        """
        return self


@dataclass(frozen=True)
class NoAmplification(Curve):
    """The curve where shuffling adds nothing to the local budget: it bounds delta by 1 and says why."""

    reason: Statement[Step]

    @property
    def no_bound(self) -> Statement[Step]:
        """See `Curve`."""
        return self.reason

    @property
    def method(self) -> Proof:
        """See `PrivacyProfile`."""
        return (state(Method.LOCAL_BUDGET),)

    def delta(self, epsilon: float) -> Bounded:
        """1. Raises ValueError for a negative or non-finite epsilon."""
        check_epsilon(epsilon)
        return Bounded(1.0, 0.0)

    def guess(self, delta: float) -> float:
        """Infinity: no epsilon is enough."""
        return math.inf

    def explain(self) -> tuple[Statement[Step], ...]:
        """The reason."""
        return (self.reason,)

    def smallest_epsilon(self, delta: float, ceiling: float, *, floor: float = 0.0) -> Inverse:
        """Nothing below the ceiling."""
        return Inverse(ceiling, None, 0)

    def to_compose(self, delta: float, ceiling: float) -> None:
        """None: there is nothing to compose."""


@dataclass(frozen=True, eq=False)
class CountProfile(Curve):
    """E[delta(M)] under `law`, as epsilon varies, plus everything that was cut or rounded.

    averaged(epsilon) returns that mean and a bound on its absolute error; delta(m) must be non-increasing in m.
    """

    law: CountLaw
    averaged: Callable[[float], tuple[float, float]]
    divergence: float
    """The integral of (p0 - p1)^2 / omega, for the first guess."""
    description: Statement[Step]
    local_epsilon: float
    """From there on delta is 0: the randomizers with a closed form are pure."""

    @property
    def closed_divergence(self) -> float:
        """See `Curve`."""
        return self.divergence

    @property
    def method(self) -> Proof:
        """See `PrivacyProfile`."""
        return (state(Method.BLANKET_CLOSED_FORM),)

    def delta(self, epsilon: float) -> Bounded:
        """See `PrivacyProfile`. Raises ValueError for a negative or non-finite epsilon."""
        check_epsilon(epsilon)
        if epsilon >= self.local_epsilon:
            return Bounded(0.0, 0.0)
        total, error = self.averaged(epsilon)
        relative = self.law.relative_error + self.law.counts.size * UNIT
        slack = (total + error) * relative + error + self.law.lost + UNDERFLOW
        return Bounded(min(1.0, total + slack), min(1.0, slack))

    def guess(self, delta: float) -> float:
        """The Gaussian limit: mu^2 = divergence / (mean blanket count + 1)."""
        mu = math.sqrt(self.divergence / (self.law.mean + 1))
        return gaussian_epsilon(mu, delta) if mu > 0 else 0.0

    def explain(self) -> tuple[Statement[Step], ...]:
        """See `PrivacyProfile`."""
        return (self.description, blanket_messages(self.law))


def blanket_messages(law: CountLaw) -> Statement[Step]:
    """Returns the step that states a law of the blanket count."""
    return state(
        Step.BLANKET_MESSAGES,
        mean=law.mean,
        counts=law.counts.size,
        first=law.counts[0],
        last=law.counts[-1],
        lost=law.lost,
        relative_error=law.relative_error,
    )


@dataclass(frozen=True)
class Inverse:
    """The epsilon found for a target delta: delta(epsilon) = reached <= target was evaluated, not extrapolated."""

    epsilon: float
    reached: Bounded | None
    evaluations: int


class Invertible(Protocol):
    """What `smallest_epsilon` asks of a curve."""

    def delta(self, epsilon: float) -> Bounded:
        """See `PrivacyProfile`."""
        ...

    def guess(self, delta: float) -> float:
        """See `PrivacyProfile`."""
        ...


def smallest_epsilon(profile: Invertible, delta: float, ceiling: float, tolerance: float = 1e-6) -> Inverse:
    """Returns the upper end of a bracket around the least epsilon with profile.delta(epsilon) <= delta.

    The profile's own guess, stretched so that it fits what was found there, is nearly right. Then, since
    sqrt(-2 ln delta(epsilon)) is nearly a straight line, secants on it converge in a few steps; bisection guards them.

    Args:
        profile: what is inverted.
        delta: target, in (0, 1).
        ceiling: an epsilon already known to be enough (the local budget); returned, with reached None, if none is
            found below it.
        tolerance: the bracket's relative width at which to stop, or a quarter of that of delta(epsilon) below its
            target: where delta is small it moves more than four times as fast as epsilon.

    Returns:
        The epsilon, with the bound that was evaluated there. Direction of error: never too small.

    Raises:
        ValueError: ceiling is not a finite number >= 0, or delta is outside (0, 1).
    """
    check_epsilon(ceiling, "ceiling")
    check_target_delta(delta)
    # A little below the target, so that the secants come to rest on the sound side.
    aim = delta * (1 - 2 * tolerance)
    low, low_height = 0.0, -1.0  # -1: delta(0) is not known
    high, high_height = ceiling, math.inf
    best: Bounded | None = None
    point = profile.guess(delta)
    if not 0 < point < ceiling:
        point = 0.0
    for evaluations in range(1, 200):
        bound = profile.delta(point)
        width = high - low
        if bound.value <= delta:
            high, high_height, best = point, _height(bound.value), bound
            if point == 0 or bound.value >= delta * (1 - 4 * tolerance):
                break
        else:
            low, low_height = point, _height(bound.value)
        if high - low <= tolerance * high + 1e-15:
            break
        if low_height < 0:
            point = 0.0
        elif best is None:
            most = high * (1 - tolerance / 2)
            point = _further(profile, low, bound.value, most, aim)
            if evaluations > 3:  # coming near from below: ever longer steps, as far above a bound may be of no use
                point = min(max(point, low * (1 + tolerance * 10.0 ** (evaluations - 4))), most)
        elif evaluations > 6 and high - low > width / 2:
            point = (low + high) / 2
        else:
            point = _between(low, low_height, high, high_height, _height(aim))
    return Inverse(high, best, evaluations)


def _height(delta: float) -> float:
    return math.inf if delta <= 0 else math.sqrt(max(0.0, -2 * math.log(delta)))


def _further(profile: Invertible, low: float, delta_at_low: float, most: float, aim: float) -> float:
    """Where the profile's guess, stretched so that it is right at `low`, reaches the aim; no further than `most`."""
    if low <= 0:
        return most / 2
    guessed = profile.guess(delta_at_low) if delta_at_low < 1 else 0.0
    stretched = low * profile.guess(aim) / guessed if guessed > 0 else math.inf
    return min(max(stretched, low * (1 + 1e-9)), 4 * low, most)


def _between(low: float, low_height: float, high: float, high_height: float, aim: float) -> float:
    middle = (low + high) / 2
    if high_height <= low_height or math.isinf(high_height):
        return middle
    point = low + (high - low) * (aim - low_height) / (high_height - low_height)
    margin = 1e-9 * (high - low)
    return min(max(point, low + margin), high - margin)
