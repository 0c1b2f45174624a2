"""Small tiers, merged upwards: no client is lost, the certificate holds for the exact ones, nothing tells them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from croupier import certify
from croupier.accountant.mechanisms.registry import randomizer_of
from croupier.accountant.rounds.ledger import Ledger
from croupier.accountant.rounds.round_guarantee import certify_into
from croupier.accountant.rounds.small_tiers import merge_small_tiers
from croupier.accountant.spending import ANY_TIER, Entry
from croupier.protocol.certificates import refusals_of
from croupier.protocol.codes import RefusalReason
from croupier.protocol.manifest import canonical, parse_terms
from croupier.protocol.mechanisms import KaryResponse, Mechanism, OneBit, RandomizedResponse
from croupier.protocol.names import Digest, RoundId
from croupier.protocol.questions import Question
from croupier.protocol.statements import state
from croupier.protocol.v1 import messages_pb2 as pb
from tests.support import make_kit
from tests.support.drawn import drawn
from tests.support.mechanisms import EXAMPLES

GRID = (0.37, 1.0, 2.0, 4.0)
KINDS = [RandomizedResponse(), KaryResponse(5), OneBit(0.0, 1.0)]
Tiers = Sequence[tuple[float, int]]
Floats = npt.NDArray[np.float64]


@drawn(200)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=12), st.integers(2, 15))
def test_counts_are_kept_and_no_shown_tier_is_small(counts: list[int], least: int) -> None:
    tiers = [(1.0 + own, count) for own, count in enumerate(counts)]
    shown = merge_small_tiers(tiers, least)
    assert sum(count for _, count in shown) == sum(counts)
    assert all(count >= least for _, count in shown[:-1])
    below = 0.0
    for local_epsilon, count in shown:
        own = [tier for tier in tiers if below < tier[0] <= local_epsilon]
        assert local_epsilon == own[-1][0]  # that of the largest, never less than anyone's
        assert count == sum(count for _, count in own)
        assert sum(count for _, count in own[:-1]) < least  # what estimates rely on
        below = local_epsilon
    if min(counts) >= least:
        assert shown == tiers


def worst_case(tiers: Tiers, own: float, epsilon: float, dishonest: int) -> float:
    """The largest delta of a victim with this budget over all bits of the others, in both directions, by enumeration.

    Of the others those with the smallest budgets are dishonest, and their reports known.
    """
    left, laws = dishonest, [np.ones(1)]
    for local_epsilon, count in tiers:
        honest = count - (local_epsilon == own)
        honest, left = max(0, honest - left), max(0, left - honest)
        p = 1 / (1 + math.exp(-local_epsilon))
        ones = [np.convolve(_binomial(k, p), _binomial(honest - k, 1 - p)) for k in range(honest + 1)]
        laws = [np.convolve(law, own_law) for law in laws for own_law in ones]
    others, p = np.array(laws), 1 / (1 + math.exp(-own))
    nothing = np.zeros((len(others), 1))
    as_one, as_zero = np.hstack([nothing, others]), np.hstack([others, nothing])
    first, second = p * as_one + (1 - p) * as_zero, (1 - p) * as_one + p * as_zero
    both = ((first, second), (second, first))
    return max(float(np.maximum(a - math.exp(epsilon) * b, 0).sum(axis=1).max()) for a, b in both)


def _binomial(n: int, p: float) -> Floats:
    return np.array([math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)])


@drawn(40)
@given(st.lists(st.integers(1, 7), min_size=2, max_size=4), st.integers(2, 8), st.integers(0, 2))
def test_bits_at_their_exact_budgets_are_no_worse_than_certified(counts: list[int], least: int, f: int) -> None:
    """Everybody, with the budget that was used, against the certificate of the tier that is shown, by brute force."""
    tiers = list(zip(GRID, counts, strict=False))
    merged = certify(merge_small_tiers(tiers, least), "rr", delta=1e-3, dishonest=f, attack=False)
    for own, _ in tiers:
        assert worst_case(tiers, own, merged.tier_of(own).epsilon, f) <= 1e-3 * (1 + 1e-9)


@drawn(40)
@given(
    st.sampled_from(("rr", "krr(k=3)", "krr(k=5)", "onebit")),
    st.lists(st.integers(1, 40), min_size=2, max_size=4),
    st.integers(2, 12),
    st.integers(0, 3),
)
def test_the_blanket_of_merged_tiers_is_the_thinner(name: str, counts: list[int], least: int, f: int) -> None:
    tiers = list(zip(GRID, counts, strict=False))
    exact, merged = (
        certify(tier, name, delta=1e-4, dishonest=f, attack=False, bounds="blanket")
        for tier in (tiers, merge_small_tiers(tiers, least))
    )
    for tier in exact.tiers:
        assert tier.epsilon <= merged.tier_of(tier.local_epsilon).epsilon * (1 + 1e-6)


def certified(
    mechanism: Mechanism, tiers: Tiers, *, merge: bool = True, epsilon_max: float = 4.0, unknown: int = 0
) -> tuple[pb.Certificate, list[Entry]]:
    manifest = make_kit(question=Question("q", mechanism)).manifest
    del manifest.budget_grid[:]
    manifest.budget_grid.extend(pb.LocalBudget(epsilon=epsilon) for epsilon in GRID)
    manifest.delta, manifest.epsilon_max, manifest.merge_small_tiers = 1e-4, epsilon_max, merge
    manifest.min_tier_size = 5 if merge else 0
    message = pb.Certificate(delta=1e-4, unknown_budgets=unknown, dishonest=unknown, num_users=sum(n for _, n in tiers))
    entries = certify_into(message, parse_terms(canonical(manifest)), tiers)
    return message, entries


@pytest.mark.parametrize(("epsilon_max", "unknown"), [(0.01, 0), (4.0, 2)])
@pytest.mark.parametrize("mechanism", KINDS, ids=lambda mechanism: mechanism.kind)
def test_nothing_tells_a_rare_budget(mechanism: Mechanism, epsilon_max: float, unknown: int) -> None:
    shown = []
    for rare in ((), ((0.37, 4),), ((1.0, 1),), ((0.37, 2), (1.0, 2))):
        tiers = (*rare, (2.0, 60 - sum(count for _, count in rare)))
        message, entries = certified(mechanism, tiers, epsilon_max=epsilon_max, unknown=unknown)
        assert [(tier.local_epsilon, tier.count) for tier in message.tiers] == [(2.0, 60)]
        assert bool(message.refusals) == (epsilon_max < 1)
        assert message.merged_below == 5
        assert message.randomizer == randomizer_of(mechanism).name
        assert not message.HasField("lower_bound_epsilon")  # the exact budgets might be attacked with less success
        shown.append((message, entries))
    assert all(certificate == shown[0] for certificate in shown)
    usual, _ = certified(mechanism, ((2.0, 60),), merge=False, unknown=unknown)
    assert (usual.epsilon, usual.merged_below) == (shown[0][0].epsilon, 0)


def test_the_largest_budget_has_none_to_be_merged_with() -> None:
    answers = []
    for tiers in (((1.0, 30), (4.0, 4)), ((0.37, 2), (1.0, 28), (2.0, 1), (4.0, 3))):
        message, entries = certified(RandomizedResponse(), tiers)
        assert not entries
        assert not message.tiers
        assert message.randomizer == "rr"
        assert math.isinf(message.epsilon)
        assert refusals_of(message) == (state(RefusalReason.RARE_BUDGET, least=5),)
        answers.append(message)
    assert answers[0] == answers[1]
    together, _ = certified(RandomizedResponse(), ((1.0, 30), (2.0, 1), (4.0, 4)))
    assert [(tier.local_epsilon, tier.count) for tier in together.tiers] == [(1.0, 30), (4.0, 5)]


def test_the_ledger_counts_every_client_in_the_worst_tier() -> None:
    _, merged = certified(RandomizedResponse(), ((0.37, 1), (1.0, 30), (4.0, 30)))
    _, usual = certified(RandomizedResponse(), ((0.37, 40),), merge=False)
    with sa.create_engine("sqlite://").begin() as connection:
        ledger = Ledger(connection)
        ledger.enter(RoundId("usual"), Digest(b""), usual)
        ledger.enter(RoundId("merged"), Digest(b""), merged, merged=True)
        ledger.enter(RoundId("merged"), Digest(b""), merged, merged=True)
        assert ledger.merged_rounds() == {"merged"}
        spent = {tier.tier: (tier.rounds, tier.guarantee) for tier in ledger.spent(1e-3)}
    # A client with the smallest budget was in both rounds, and in the second it stands among those of 1.
    assert set(spent) == {"local ε 0.37", ANY_TIER}
    assert spent["local ε 0.37"] == spent[ANY_TIER]
    assert spent[ANY_TIER][0] == 2


@pytest.mark.parametrize(
    "mechanism", [example.mechanism for example in EXAMPLES.values()], ids=lambda mechanism: mechanism.kind
)
def test_tiers_merge_only_where_a_smaller_budget_is_a_mixture(mechanism: Mechanism) -> None:
    """Amid other noise a rare budget has its local epsilon certified, which would name it."""
    assert not mechanism.tiers_merge or randomizer_of(mechanism).smaller_budgets_mix
    assert mechanism.tiers_merge == (mechanism.kind in ("rr", "krr", "onebit"))
