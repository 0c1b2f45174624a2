"""Privacy profiles: certified upper bounds on delta as a function of epsilon.

A randomizer turns (victim, others) into `Curve`s.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, TypeVar

from croupier.accountant.numerics.binomial import Floats, Ints
from croupier.accountant.numerics.inversion import Inverse, smallest_epsilon
from croupier.accountant.privacy_curve import Bounded, Proof
from croupier.accountant.ranges import check_delta, check_epsilon
from croupier.accountant.witness import Witness
from croupier.protocol.codes import Method, ProofStep
from croupier.protocol.statements import Statement

Computed = TypeVar("Computed")

UNDERFLOW = 1e-290
"""Added to a delta above 0: more than the sum of all masses below 1e-300, which may have been rounded to 0."""


@dataclass(frozen=True)
class Victim:
    """The user whose value differs between neighbouring data sets: the local budget that its report spends.

    If one curve covers several users, local_epsilon and local_delta are the largest among them, so that every member is
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
    """The other users: arrays of shape (T,). The `dishonest` of them that hide the victim best do not count."""

    local_epsilon: Floats
    local_delta: Floats
    count: Ints
    dishonest: int
    _computed: dict[Hashable, Any] = field(init=False, default_factory=dict, repr=False)
    """See `once`. `dataclasses.replace` gives its result an empty cache, because values hold for these users only."""

    @property
    def honest(self) -> int:
        """The number of honest users among them."""
        return max(0, int(self.count.sum()) - self.dishonest)

    def once(self, key: Hashable, make: Callable[[Others], Computed]) -> Computed:
        """Returns make(self), computed only in the first call with this key."""
        if key not in self._computed:
            self._computed[key] = make(self)
        computed: Computed = self._computed[key]
        return computed


class BoundKind(StrEnum):
    """The bound that a curve is; the steps of a certificate use this name."""

    BLANKET = "blanket"
    EXCHANGE = "exchange"
    WORST_CASE = "worst case"
    HOP_NOISE = "hop noise"


class Curve(ABC):
    """A `PrivacyProfile` that is inverted and composed: one bound on the divergence of one group of victims."""

    proved_by: ClassVar[Method]
    """The method of a curve that does not combine others."""

    @property
    def kind(self) -> BoundKind:
        """The bound that the curve is, by the first method of its proof."""
        kinds = {
            Method.EXCHANGE: BoundKind.EXCHANGE,
            Method.WORST_CASE: BoundKind.WORST_CASE,
            Method.HOP_NOISE: BoundKind.HOP_NOISE,
        }
        return kinds.get(self.method[0].code, BoundKind.BLANKET)

    @property
    def no_bound(self) -> Statement[ProofStep] | None:
        """The reason why the curve bounds nothing; None if it is a bound."""
        return None

    @property
    def closed_divergence(self) -> float | None:
        """The integral of (p0 - p1)^2 / omega, which decides a closed form for many users; None for other curves."""
        return None

    @property
    def tolerance(self) -> float:
        """Relative width at which the search for epsilon stops: the sharpness of the bound, or wider to save time."""
        return 1e-6

    @property
    def method(self) -> Proof:
        """See `PrivacyProfile`."""
        return (Statement.of(self.proved_by),)

    @abstractmethod
    def delta(self, epsilon: float) -> Bounded:
        """See `PrivacyProfile`. Raises ValueError for a negative or non-finite epsilon."""

    @abstractmethod
    def guess(self, delta: float) -> float:
        """See `PrivacyProfile`."""

    @abstractmethod
    def explain(self) -> tuple[Statement[ProofStep], ...]:
        """See `PrivacyProfile`."""

    def witness(self, epsilon: float) -> Witness:
        """Returns the numbers for which `delta` proves its bound, or the name of the theorem alone."""
        return Witness(self.method[0].code)

    def repeat(self, epsilon: float, witness: Witness) -> Bounded:
        """Returns the bound that these numbers prove, without a search. Raises ValueError as `delta`."""
        return self.delta(epsilon)

    def smallest_epsilon(self, delta: float, ceiling: float, *, floor: float = 0.0) -> Inverse:
        """See the function `smallest_epsilon`. A slow curve need not look below `floor`."""
        return smallest_epsilon(self, delta, ceiling, self.tolerance)

    def to_compose(self, delta: float, ceiling: float) -> Curve | None:
        """Returns a form for composition and for the ledger that is quick at many points, or None.

        delta: about the delta of the composition. ceiling: the victim's local budget.
        """
        return self


@dataclass(frozen=True)
class NoAmplification(Curve):
    """The curve where shuffling adds nothing to the local budget: it bounds delta by 1 and says why."""

    proved_by: ClassVar[Method] = Method.LOCAL_BUDGET
    reason: Statement[ProofStep]

    @property
    def no_bound(self) -> Statement[ProofStep]:
        """See `Curve`."""
        return self.reason

    def delta(self, epsilon: float) -> Bounded:
        """Returns 1. Raises ValueError for a negative or non-finite epsilon."""
        check_epsilon(epsilon)
        return Bounded(1.0, 0.0)

    def guess(self, delta: float) -> float:
        """Returns infinity: no epsilon is enough."""
        return math.inf

    def explain(self) -> tuple[Statement[ProofStep], ...]:
        """Returns the reason."""
        return (self.reason,)

    def smallest_epsilon(self, delta: float, ceiling: float, *, floor: float = 0.0) -> Inverse:
        """Returns the ceiling: no smaller epsilon is enough."""
        return Inverse(ceiling, None, 0)

    def to_compose(self, delta: float, ceiling: float) -> None:
        """Returns None: there is nothing to compose."""
