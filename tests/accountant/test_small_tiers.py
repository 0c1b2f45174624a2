"""Small tiers that are merged upwards in what is shown: nobody is lost, no promise shrinks, and nothing tells them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from accountant.mechanisms.registry import randomizer_of
from accountant.service.ledger import ANY_TIER, Entry, Ledger
from accountant.service.round_certificate import certify_into
from accountant.service.small_tiers import merge_small_tiers
from protocol.manifest import canonical, parse_terms
from protocol.mechanisms import KaryResponse, Mechanism, OneBit, RandomizedResponse
from protocol.questions import Question
from protocol.v1 import messages_pb2 as pb
from tests.support import make_kit
from tests.support.drawn import drawn
from tests.test_mechanisms_contract import EXAMPLES

GRID = (0.37, 1.0, 2.0, 4.0)
KINDS = [RandomizedResponse(), KaryResponse(5), OneBit(0.0, 1.0)]
Tiers = Sequence[tuple[float, int]]


@drawn(200)
@given(
    st.lists(st.tuples(st.integers(1, 12), st.floats(0.0, 1.0)), min_size=1, max_size=12),
    st.integers(2, 15),
)
def test_counts_are_kept_and_every_promise_holds(drawn_tiers: list[tuple[int, float]], least: int) -> None:
    tiers = [
        pb.Tier(local_epsilon=1.0 + own, local_delta=epsilon / 10, count=count, epsilon=epsilon)
        for own, (count, epsilon) in enumerate(drawn_tiers)
    ]
    before = [tier.SerializeToString() for tier in tiers]
    shown = merge_small_tiers(tiers, least)
    assert [tier.SerializeToString() for tier in tiers] == before
    assert sum(tier.count for tier in shown) == sum(tier.count for tier in tiers)
    assert all(tier.count >= least for tier in shown[:-1])
    below = 0.0
    for one in shown:
        own = [tier for tier in tiers if below < tier.local_epsilon <= one.local_epsilon]
        assert one.local_epsilon == own[-1].local_epsilon  # that of the largest, never less than anyone's
        assert one.count == sum(tier.count for tier in own)
        assert one.epsilon == max(tier.epsilon for tier in own)
        assert one.local_delta == max(tier.local_delta for tier in own)
        assert sum(tier.count for tier in own[:-1]) < least  # what estimates rely on
        below = one.local_epsilon
    if all(tier.count >= least for tier in tiers):
        assert shown == tiers


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


@pytest.mark.parametrize("mechanism", KINDS, ids=lambda one: one.kind)
def test_what_is_certified_is_about_the_exact_tiers(mechanism: Mechanism) -> None:
    tiers = ((0.37, 1), (1.0, 30), (2.0, 3), (4.0, 30))
    exact, entries = certified(mechanism, tiers, merge=False)
    shown, same = certified(mechanism, tiers)
    assert entries == same
    assert [(entry.local_epsilon, entry.count) for entry in entries] == list(tiers)
    assert shown.epsilon == exact.epsilon
    assert [(tier.local_epsilon, tier.count) for tier in shown.tiers] == [(1.0, 31), (4.0, 33)]
    assert [tier.epsilon for tier in shown.tiers] == [exact.tiers[1].epsilon, exact.tiers[3].epsilon]
    assert shown.numerical_slack >= exact.numerical_slack
    assert (shown.merged_below, exact.merged_below) == (5, 0)
    assert exact.comparison
    assert not shown.comparison


@pytest.mark.parametrize(("epsilon_max", "unknown"), [(0.01, 0), (4.0, 2)])
@pytest.mark.parametrize("mechanism", KINDS, ids=lambda one: one.kind)
def test_nothing_but_the_digits_of_epsilon_tells_a_rare_budget(
    mechanism: Mechanism, epsilon_max: float, unknown: int
) -> None:
    shown, digits = [], set()
    for rare in ((), ((0.37, 4),), ((1.0, 1),), ((0.37, 2), (1.0, 2))):
        tiers = (*rare, (2.0, 60 - sum(count for _, count in rare)))
        message, _ = certified(mechanism, tiers, epsilon_max=epsilon_max, unknown=unknown)
        assert [(tier.local_epsilon, tier.count) for tier in message.tiers] == [(2.0, 60)]
        assert bool(message.refusals) == (epsilon_max < 1)
        digits.add(message.epsilon)
        message.epsilon = message.tiers[0].epsilon = 0.0
        message.ClearField("unknown_budget_epsilon")
        refusals = [re.sub(r"\d\.\d+", "NUMBER", line) for line in message.refusals]
        del message.refusals[:]
        shown.append((message, refusals))
        assert not message.HasField("lower_bound_epsilon")
    assert all(one == shown[0] for one in shown)
    assert len(digits) > 1  # by which whoever certifies all candidates finds the one, as the threat model says


def test_the_largest_budget_has_none_to_be_merged_with() -> None:
    answers = []
    for tiers in (((1.0, 30), (4.0, 4)), ((0.37, 2), (1.0, 28), (2.0, 1), (4.0, 3))):
        message, entries = certified(RandomizedResponse(), tiers)
        assert not entries
        assert not message.tiers
        assert math.isinf(message.epsilon)
        assert message.refusals == [
            "a budget was used by fewer than 5 clients, the smallest number that may be shown; "
            "which one, and how many they are, is not said"
        ]
        answers.append(message)
    assert answers[0] == answers[1]
    together, _ = certified(RandomizedResponse(), ((1.0, 30), (2.0, 1), (4.0, 4)))
    assert [(tier.local_epsilon, tier.count) for tier in together.tiers] == [(1.0, 30), (4.0, 5)]


def test_the_ledger_shows_no_tier_of_such_a_round() -> None:
    rare, entries = ((0.37, 1), (1.0, 30)), {}
    for merge in (False, True):
        _, entries[merge] = certified(RandomizedResponse(), rare, merge=merge)
    _, usual = certified(RandomizedResponse(), ((1.0, 40),), merge=False)
    spent = {}
    for merge in (False, True):
        with sa.create_engine("sqlite://").begin() as connection:
            ledger = Ledger(connection)
            ledger.enter("usual", b"", usual)
            ledger.enter("rare", b"", entries[merge], merged=merge)
            ledger.enter("rare", b"", entries[merge], merged=merge)
            assert ledger.merged_rounds() == ({"rare"} if merge else set())
            assert ledger.entered()[1][2] == entries[False]
            spent[merge] = {one.tier: (one.rounds, one.guarantee) for one in ledger.spent(1e-3)}
    assert set(spent[False]) == {"local ε 0.37", "local ε 1", ANY_TIER}
    assert set(spent[True]) == {"local ε 1", ANY_TIER}
    assert spent[True][ANY_TIER] == spent[False][ANY_TIER]
    for found, exact in zip(spent[True]["local ε 1"], spent[False]["local ε 1"], strict=True):
        assert found == exact  # of its clients the larger budget loses most, in both rounds


@pytest.mark.parametrize("mechanism", [one.mechanism for one in EXAMPLES.values()], ids=lambda one: one.kind)
def test_tiers_merge_only_where_a_smaller_budget_is_a_mixture(mechanism: Mechanism) -> None:
    """Amid other noise a rare budget has its local epsilon certified, which would name it."""
    assert not mechanism.tiers_merge or randomizer_of(mechanism).smaller_budgets_mix
    assert mechanism.tiers_merge == (mechanism.kind in ("rr", "krr", "onebit"))
