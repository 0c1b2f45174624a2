"""Which mechanism for one of many categories: `krr`, or `pgr` with which field (docs/which-mechanism.md).

What the choice is certified is left to `planner`.
"""

from __future__ import annotations

import re

from croupier.accountant.budgets import Budgets
from croupier.accountant.hop_fakes import AnyHopNoise, HopFakes
from croupier.accountant.mechanism_choice import standard_error
from croupier.accountant.mechanisms.base import Randomizer
from croupier.accountant.mechanisms.kary import KaryRandomizedResponse
from croupier.accountant.mechanisms.projective import ProjectiveResponse
from croupier.protocol.projective import FIELDS, MAX_VECTORS, ProjectiveSpace

_NAME = re.compile(r"categories\(\s*k\s*=\s*(\d+)\s*\)")


def categories_in(randomizer: Randomizer | str) -> int | None:
    """Returns the k of "categories(k=…)", which leaves the mechanism open; None for any other randomizer."""
    named = _NAME.fullmatch(randomizer.strip()) if isinstance(randomizer, str) else None
    return None if named is None else int(named[1])


def first_of_categories(k: int) -> tuple[Randomizer, ...]:
    """Returns the candidates that a search begins with: their budgets for the same target lie far apart."""
    return KaryRandomizedResponse(k), *_projective(k)[:1]


def best_of_categories(k: int, budgets: Budgets, hop_noise: AnyHopNoise = None, hops: int = 2) -> Randomizer:
    """Returns what has the least standard error of a share for these budgets: `krr`, or `pgr` over any field.

    Raises:
        ValueError: hop noise or hops outside their ranges.
    """

    def error(randomizer: Randomizer) -> float:
        fakes = HopFakes.of(hop_noise, hops, randomizer, "separate", adaptive_order=False)
        return standard_error(budgets, randomizer, 0.0 if fakes is None else fakes.variance)

    return min((KaryRandomizedResponse(k), *_projective(k)), key=error)


def _projective(k: int) -> list[ProjectiveResponse]:
    """Returns `pgr` over every field whose space is not too large, and whose hyperplanes are more than points."""
    return [ProjectiveResponse(k, q) for q in FIELDS if k > q + 1 and _vectors(k, q) <= MAX_VECTORS]


def _vectors(k: int, q: int) -> int:
    t = 2
    while ProjectiveSpace(q, t).num_points < k:
        t += 1
    return int(q**t)
