"""No certificate may be below an attack: exact lower bounds at real sizes, computed here from the definitions.

And the attacks of the library, on every kind of mechanism under every condition.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier import (
    BinaryRandomizedResponse,
    Budgets,
    KaryRandomizedResponse,
    Randomizer,
    TableMechanism,
    certify,
)
from croupier.protocol.permanent import PermanentSeries
from croupier.protocol.tier_counts import BudgetPrivacy, TierCounts
from tests.support.drawn import drawn
from tests.support.oracles.from_definitions import count_law

Floats = npt.NDArray[np.float64]


def attack_on_bits(tiers: list[tuple[float, int]], victim: float, epsilon: float) -> float:
    """Returns the exact divergence when the others all hold 0 and the reader counts the ones, both directions."""
    left = [(1 / (1 + math.exp(budget)), count - (budget == victim)) for budget, count in tiers]
    others = count_law(left)
    keep = 1 / (1 + math.exp(-victim))
    under_one, zero = (np.convolve(others, [1 - share, share]) for share in (keep, 1 - keep))
    ratio = math.exp(epsilon)
    return max(float(np.maximum(p - ratio * q, 0.0).sum()) for p, q in ((under_one, zero), (zero, under_one)))


POPULATIONS: list[list[tuple[float, int]]] = [
    [(4.0, 1000)],
    [(1.0, 800)],
    [(0.1, 30), (0.5, 500), (1.0, 300), (3.0, 20)],
    [(2.0, 99), (8.0, 1)],
    [(0.1, 999), (4.0, 1)],
    [(0.01, 5), (6.0, 300)],
]


@pytest.mark.parametrize("tiers", POPULATIONS, ids=str)
@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-2])
def test_no_tier_of_bits_is_certified_below_its_attack(tiers: list[tuple[float, int]], delta: float) -> None:
    certificate = certify(Budgets.from_tiers(tiers), BinaryRandomizedResponse(), delta=delta)
    for tier in certificate.tiers:
        assert attack_on_bits(tiers, tier.local_epsilon, tier.epsilon) <= delta * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [0.05, 0.2, 0.4])
@pytest.mark.parametrize("k", [3, 5])
def test_the_deltas_of_krr_are_nearly_attained(k: int, epsilon: float) -> None:
    """k-RR where the others hold a third category, at n = 60: the certificate is never below, for k = 3 hardly above.

    For k = 3 the counts of the victim's two categories are all that the reader sees; for k = 5 they are a part of it.
    """
    n, local = 60, 1.0
    keep = math.exp(local) / (math.exp(local) + k - 1)
    flip = (1 - keep) / (k - 1)
    # The counts of the victim's two categories among the others, one user at a time.
    law = np.zeros((n + 1, n + 1))
    law[0, 0] = 1.0

    def add(table: Floats, first: float, second: float) -> Floats:
        grown = table * (1 - first - second)
        grown[1:, :] += table[:-1, :] * first
        grown[:, 1:] += table[:, :-1] * second
        return grown

    for _ in range(n - 1):
        law = add(law, flip, flip)
    p, q = add(law, keep, flip), add(law, flip, keep)
    exact = float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())
    certified = certify([local] * n, KaryRandomizedResponse(k), epsilon=epsilon).delta
    assert exact > 1e-9
    assert exact * (1 - 1e-9) <= certified
    if k == 3:
        assert certified < 1.2 * exact


KINDS = (
    *("rr", "onebit", "krr(k=2)", "krr(k=3)", "krr(k=20)", "levels(k=4)", "choices(k=2)", "choices(k=12)"),
    *("pgr(k=7, q=2)", "pgr(k=300, q=5)", "laplace", "laplace(lattice=8)", "gaussian", "hemisphere(d=5)"),
    *("gaussian_vector(d=2, records=3)", "table"),
)
CONDITIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "dishonest": {"dishonest": 3},
    "stratified": {"linkage": "stratified"},
    "blanket": {"bounds": "blanket"},
    "in turns": {"adaptive_order": True},
    "rounds": {"rounds": 2},
    "budget privacy": {"counted_by": TierCounts(BudgetPrivacy(1.0, 1e-6))},
    "hop noise": {"hop_noise": (0.3, 1e-7)},
    "little hop noise": {"hop_noise": (5.0, 1e-3), "hops": 3},
    "rounds with hop noise": {"rounds": 3, "hop_noise": (1.0, 1e-5)},
    "one report in many waves": {"rounds": PermanentSeries(4, "s"), "hop_noise": (1.0, 1e-5)},
}
REFUSED = ("adaptive_order is true for", "hop_noise is given for", "rounds is a series of waves of")
"""How a condition is refused of which nothing is proved for a kind."""


def of_kind(kind: str, budgets: dict[float, int]) -> tuple[Budgets, Randomizer | str]:
    """Budgets and randomizer as the kind needs them."""
    spent = 1e-7 if kind.startswith("gaussian") else 0.0
    multiset = Budgets.from_tiers([(epsilon, count, spent) for epsilon, count in budgets.items()])
    if kind != "table":
        return multiset, kind
    weights = {epsilon: np.exp(-epsilon / 2.001 * np.array([[0, 1, 1, 0], [1, 0, 1, 0]])) for epsilon in budgets}
    return multiset, TableMechanism({epsilon: rows / rows.sum(1, keepdims=True) for epsilon, rows in weights.items()})


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("kind", KINDS)
@given(
    budgets=st.dictionaries(
        st.sampled_from([2.0, 0.05, 0.5, 1.0, 4.0, 8.0]), st.integers(3, 400), min_size=1, max_size=2
    ),
    sought=st.one_of(
        st.fixed_dictionaries({"delta": st.sampled_from([1e-3, 1e-9, 1e-6, 0.1])}),
        st.fixed_dictionaries({"epsilon": st.sampled_from([0.3, 0.0, 0.01, 2.0])}),
    ),
)
@drawn(1)
def test_no_certificate_is_below_the_attack_beside_it(
    kind: str, condition: str, budgets: dict[float, int], sought: dict[str, float]
) -> None:
    """A certificate that its own attack contradicts is not made: `certify` raises RuntimeError."""
    multiset, randomizer = of_kind(kind, budgets)
    try:
        certify(multiset, randomizer, **sought, **CONDITIONS[condition])  # type: ignore[arg-type]
    except ValueError as error:
        if not str(error).startswith(REFUSED):
            raise
