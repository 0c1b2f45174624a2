"""The privacy curve: delta as a function of epsilon, certified from above and attacked from below.

What `certify` says at one point, for many; made for plots and for composing elsewhere. Drawing is left to the callers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from accountant.budgets import Budgets, as_budgets
from accountant.certification import certify
from accountant.mechanisms.randomizers import Randomizer, randomizer_from_name
from accountant.results import Certificate, LowerBound

__all__ = ["CurvePoint", "PrivacyCurve", "privacy_curve"]

DELTAS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10)


@dataclass(frozen=True)
class CurvePoint:
    """One delta: the certificate there, with its lower bound and the published figures."""

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
class PrivacyCurve:
    """delta(epsilon) at some points, in decreasing order of delta: epsilon does not decrease along it."""

    randomizer: str
    points: tuple[CurvePoint, ...]


def privacy_curve(
    budgets: Budgets | Iterable[float],
    randomizer: Randomizer | str,
    *,
    deltas: Sequence[float] = DELTAS,
    dishonest: int = 0,
    linkage: str = "separate",
    rounds: int = 1,
) -> PrivacyCurve:
    """The certificate at every one of `deltas` (each in (0, 1)). Raises ValueError as `certify` does, or if empty."""
    if not deltas:
        raise ValueError("deltas is empty; allowed is at least one number in (0, 1)")
    multiset = as_budgets(budgets)
    family = randomizer_from_name(randomizer) if isinstance(randomizer, str) else randomizer
    points = [
        CurvePoint(
            delta,
            certify(
                multiset,
                family,
                delta=delta,
                dishonest=dishonest,
                linkage=linkage,
                rounds=rounds,
                compare_all=True,
            ),
        )
        for delta in sorted(deltas, reverse=True)
    ]
    return PrivacyCurve(family.name, tuple(points))
