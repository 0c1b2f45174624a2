"""The privacy profile of a release at several deltas: certified from above and attacked from below.

What `certify` says at one delta, for many; made for plots and for composing elsewhere. Drawing is left to the callers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from accountant.budgets import AnyBudgets, as_budgets
from accountant.certification import certify
from accountant.mechanisms.base import Randomizer
from accountant.mechanisms.registry import as_randomizer
from accountant.results import Certificate, LowerBound

__all__ = ["CertifiedProfile", "ProfilePoint", "privacy_profile"]

DELTAS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10)


@dataclass(frozen=True)
class ProfilePoint:
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
class CertifiedProfile:
    """Points of a privacy profile in decreasing order of delta: epsilon does not decrease along it."""

    randomizer: str
    points: tuple[ProfilePoint, ...]


def privacy_profile(
    budgets: AnyBudgets,
    randomizer: Randomizer | str,
    *,
    deltas: Sequence[float] = DELTAS,
    dishonest: int = 0,
    linkage: str = "separate",
    rounds: int = 1,
) -> CertifiedProfile:
    """Returns the certificate at every one of `deltas`; all other arguments are those of `certify`.

    Raises:
        ValueError: as `certify`, or deltas is empty.
    """
    if not len(deltas):
        raise ValueError("deltas is empty; it must hold at least one number in (0, 1)")
    multiset = as_budgets(budgets)
    family = as_randomizer(randomizer)
    points = [
        ProfilePoint(
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
    return CertifiedProfile(family.name, tuple(points))
