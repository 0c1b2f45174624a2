"""The ledger: entered once, durable when acknowledged, and refusing what would be too much."""

from __future__ import annotations

import functools
import math
import operator
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache

import pytest
import sqlalchemy as sa

from croupier import BinaryRandomizedResponse, Budgets, certify
from croupier.accountant.certification import tier_profiles
from croupier.accountant.composition import ComposedProfile, Round
from croupier.accountant.guarantees import Guarantee
from croupier.accountant.mechanisms.gaussian_vector import RecordGaussian
from croupier.accountant.numerics.gaussian import gaussian_delta, gaussian_epsilon
from croupier.accountant.recorded_profile import PROFILE_POINTS, RecordedProfile, profile_of
from croupier.accountant.rounds.ledger import Ledger
from croupier.accountant.spending import ANY_TIER, Entry, Limit, total_of_rounds
from croupier.protocol.calibration import unit_sigma
from croupier.protocol.codes import Assumption, Method, RefusalReason
from croupier.protocol.names import Digest, RoundId
from croupier.protocol.statements import Statement
from tests.support.messages import naming
from tests.support.statements import codes

BUDGETS = Budgets.from_tiers([(0.5, 100), (1.0, 150), (1.5, 80)])
DELTA = 1e-6


@cache
@cache
def entries_of(*, profiles: bool = True) -> Sequence[Entry]:
    certificate = certify(BUDGETS, "rr", delta=DELTA, attack=False)
    curves = {
        v.local_epsilon: c for v, c in tier_profiles(BUDGETS, BinaryRandomizedResponse(), DELTA, adaptive_order=False)
    }
    entries = []
    for tier in certificate.tiers:
        curve = curves[tier.local_epsilon]
        assert curve is not None
        points = profile_of(curve, tier.epsilon, tier.local_epsilon) if profiles else ()
        entries.append(Entry(tier.local_epsilon, 0.0, tier.count, tier.epsilon, DELTA, points))
    return tuple(entries)


@pytest.fixture
def each_engine(database_url: str) -> Iterator[sa.Engine]:
    """One of each kind of database, for what is written and read."""
    opened = sa.create_engine(database_url)
    yield opened
    opened.dispose()


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    """In memory, for what is computed: a store of either kind returns every number to the last bit (test_store)."""
    opened = sa.create_engine("sqlite://")
    with opened.begin() as connection:
        yield Ledger(connection)
    opened.dispose()


def enter(ledger: Ledger, rounds: int, entries: Sequence[Entry]) -> None:
    for number in range(rounds):
        ledger.enter(RoundId(f"round-{number}"), Digest(bytes([number])), entries)


def worst_of(ledger: Ledger, delta: float, *, fixed_terms: bool = False) -> Guarantee:
    """Returns what a client of any tier has lost."""
    guarantee = ledger.spent(delta, fixed_terms=fixed_terms)[-1].guarantee
    assert guarantee is not None
    return guarantee


def test_an_empty_ledger_has_spent_nothing(each_engine: sa.Engine) -> None:
    with each_engine.begin() as connection:
        (spent,) = Ledger(connection).spent(1e-5)
    assert (spent.tier, spent.rounds) == (ANY_TIER, 0)
    assert spent.guarantee is not None
    assert spent.guarantee.epsilon == 0


def test_rounds_add_up_per_tier_and_for_the_worst_tier(ledger: Ledger) -> None:
    entries = entries_of()
    enter(ledger, 3, entries)
    spent = {tier.tier: tier for tier in ledger.spent(4 * DELTA)}
    fixed = {tier.tier: tier for tier in ledger.spent(4 * DELTA, fixed_terms=True)}
    assert list(spent) == ["local ε 0.5", "local ε 1", "local ε 1.5", ANY_TIER]
    whole = certify(BUDGETS, "rr", delta=4 * DELTA, rounds=3, attack=False)
    for entry, spending in zip(entries, spent.values(), strict=False):
        filtered, composed = spending.guarantee, fixed[spending.tier].guarantee
        assert spending.rounds == 3
        assert filtered is not None
        assert entry.epsilon < filtered.epsilon < 3 * entry.epsilon
        assert filtered.method == (Statement.of(Method.PRIVACY_FILTER, rounds=3),)
        assert codes(filtered.assumptions) == [Assumption.TOTAL_BEFOREHAND]
        assert composed is not None
        assert composed.method == (Statement.of(Method.COMPOSED_LOSSES, rounds=3),)
        assert codes(composed.assumptions) == [Assumption.FIXED_TERMS]
        direct = next(t.epsilon for t in whole.tiers if t.local_epsilon == entry.local_epsilon)
        assert direct * (1 - 1e-3) <= composed.epsilon <= direct * 1.1
        assert composed.epsilon <= filtered.epsilon <= direct * 1.3
        largest = filtered.epsilon
    assert worst_of(ledger, 4 * DELTA).epsilon == pytest.approx(largest, rel=1e-3)


def test_rounds_that_are_alike_are_composed_at_once(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reproduction: every round was taken by itself, and a thousand took half a minute whenever one was certified."""
    composed: list[int] = []

    def counted(rounds: Sequence[Round], target: float) -> ComposedProfile:
        composed.append(len(rounds))
        return ComposedProfile(rounds, target)

    monkeypatch.setattr("croupier.accountant.spending.ComposedProfile", counted)
    other = [replace(entry, profile=entry.profile[::2]) for entry in entries_of()]
    for number in range(12):
        ledger.enter(RoundId(f"round-{number}"), Digest(bytes([number])), other if number % 3 else entries_of())
    spent = worst_of(ledger, 20 * DELTA, fixed_terms=True)
    assert composed == [2, 2, 2, 2]
    whole = certify(BUDGETS, "rr", delta=20 * DELTA, rounds=12, attack=False)
    assert whole.epsilon * (1 - 1e-3) <= spent.epsilon <= whole.epsilon * 1.15


def test_without_profiles_the_ledger_adds(ledger: Ledger) -> None:
    entries = entries_of(profiles=False)
    enter(ledger, 2, entries)
    for fixed_terms, share in ((True, 1), (False, 4)):  # of delta a filter sets a quarter aside for what is added
        spent = worst_of(ledger, 2 * share * DELTA, fixed_terms=fixed_terms)
        assert codes(spent.method) == [Method.BASIC_COMPOSITION if fixed_terms else Method.PRIVACY_FILTER]
        assert spent.epsilon == pytest.approx(2 * entries[-1].epsilon)
        too_small = ledger.spent(1.5 * share * DELTA, fixed_terms=fixed_terms)[-1]
        assert too_small.guarantee is None  # the deltas do not fit
        assert too_small.enough_delta == 2 * share * DELTA
        assert ledger.spent(2 * share * DELTA, fixed_terms=fixed_terms)[-1].enough_delta is None


def test_rounds_of_which_only_epsilon_is_known_compose_with_the_others(ledger: Ledger) -> None:
    """Reproduction: one entry without a profile, such as of a sequential round, and all rounds were only added up."""
    enter(ledger, 30, entries_of())
    before = [worst_of(ledger, 1e-4, fixed_terms=fixed).epsilon for fixed in (True, False)]
    ledger.enter(RoundId("local"), Digest(b"local"), [Entry(0.2, 0.0, 50, 0.2, DELTA)])
    after = [worst_of(ledger, 1e-4, fixed_terms=fixed).epsilon for fixed in (True, False)]
    for less, more, most in zip(before, after, (0.2, 0.4), strict=True):  # a filter bounds the round by a Gaussian one
        assert less < more < less + most


@pytest.mark.parametrize(("epsilon", "rounds"), [(0.01, 60), (0.5, 30), (2.0, 5), (0.0, 3)])
def test_pairs_are_never_below_the_exact_product(ledger: Ledger, epsilon: float, rounds: int) -> None:
    """Randomised response with epsilon, or with probability delta the value itself: in rationals but for e^epsilon."""
    total, each = Fraction(1, 1000), Fraction(DELTA)
    enter(ledger, rounds, [Entry(3.0, 0.0, 50, epsilon, DELTA)])
    guarantee = worst_of(ledger, float(total), fixed_terms=True)
    assert guarantee.epsilon <= worst_of(ledger, float(total)).epsilon
    gain, reached = Fraction(math.exp(epsilon)), Fraction(math.exp(guarantee.epsilon))
    exact = Fraction(0)
    for kept in range(rounds + 1):
        ways = math.comb(rounds, kept)
        p, q = (gain**power / (1 + gain) ** rounds for power in (kept, rounds - kept))
        exact += ways * max(Fraction(0), p - reached * q)
    shown = 1 - (1 - each) ** rounds
    assert shown + (1 - shown) * exact <= total * (1 + Fraction(1, 10**12))
    assert guarantee.epsilon <= rounds * epsilon * (1 + 1e-12)
    if rounds >= 30:
        assert guarantee.epsilon < 0.75 * rounds * epsilon


def test_a_person_in_some_rounds_has_lost_what_these_cost(ledger: Ledger) -> None:
    cheap = entries_of(profiles=False)
    dear = [replace(entry, epsilon=entry.epsilon * 2) for entry in cheap]
    for name, entries in (("a", cheap), ("b", cheap), ("c", dear)):
        ledger.enter(RoundId(name), Digest(name.encode()), entries)
    worst = max(entry.epsilon for entry in cheap)
    a, b, c, missing = map(RoundId, "abcd")
    for rounds, factor in (([a], 1), ([a, b], 2), ([b, c, c], 3), ([], 0)):
        for share, fixed_terms in ((4, False), (1, True)):
            spent = ledger.spent_in(rounds, 3 * share * DELTA, fixed_terms=fixed_terms)
            assert spent is not None
            assert spent.epsilon == pytest.approx(factor * worst, rel=1e-4)
    assert ledger.spent_in([a, b], 1.5 * DELTA, fixed_terms=True) is None
    assert ledger.spent_in([a, b], 6 * DELTA) is None
    assert ledger.spent_in([a, b, c], 12 * DELTA) == worst_of(ledger, 12 * DELTA)
    with pytest.raises(ValueError, match=naming("d")):
        ledger.spent_in([a, missing], DELTA)


def test_the_ledger_says_at_which_delta_there_is_a_bound(ledger: Ledger) -> None:
    entries = [replace(entry, delta=0.7, profile=()) for entry in entries_of()]
    enter(ledger, 1, entries)
    added = ledger.spent(0.5, fixed_terms=True)[-1]
    assert (added.guarantee, added.enough_delta) == (None, 0.7)
    assert ledger.spent(0.5)[-1].guarantee is None
    enter(ledger, 2, entries)
    for fixed_terms in (True, False):
        hopeless = ledger.spent(0.5, fixed_terms=fixed_terms)[-1]
        assert (hopeless.guarantee, hopeless.enough_delta) == (None, None)


def test_a_stored_profile_is_never_below_the_curve_it_came_from() -> None:
    for (_, curve), entry in zip(
        tier_profiles(BUDGETS, BinaryRandomizedResponse(), DELTA, adaptive_order=False), entries_of(), strict=True
    ):
        assert curve is not None
        stored = RecordedProfile([entry.profile])
        for step in range(60):
            epsilon = step / 40 * entry.epsilon
            assert stored.delta(epsilon).value >= curve.delta(epsilon).value * (1 - 1e-9) - 1e-18
        assert stored.delta(entry.local_epsilon).value == 0


def test_the_same_round_twice_changes_nothing_but_another_one_is_refused(each_engine: sa.Engine) -> None:
    entries = entries_of(profiles=False)
    with each_engine.begin() as connection:
        ledger = Ledger(connection)
        ledger.enter(RoundId("a"), Digest(b"digest"), entries)
        ledger.enter(RoundId("a"), Digest(b"digest"), entries)
        assert ledger.spent(DELTA)[-1].rounds == 1
        with pytest.raises(ValueError, match=naming("'a'")):
            ledger.enter(RoundId("a"), Digest(b"other"), entries)
        with pytest.raises(ValueError, match=naming("'a'")):
            ledger.enter(RoundId("a"), Digest(b"digest"), entries[:1])


def test_refusals_say_what_was_requested_and_what_remains(each_engine: sa.Engine) -> None:
    entries = [replace(entry, delta=1e-14) for entry in entries_of(profiles=False)]  # so that losses are added
    top = entries[-1].epsilon
    limit = Limit(2.5 * top, 4e-13)
    with each_engine.begin() as connection:
        ledger = Ledger(connection)
        for name in ("a", "b"):
            assert ledger.refusal(RoundId(name), entries, limit) is None
            ledger.enter(RoundId(name), Digest(name.encode()), entries)
        assert ledger.refusal(RoundId("b"), entries, limit) is None  # entered already
        refusal = ledger.refusal(RoundId("c"), entries, limit)
    assert refusal is not None
    assert refusal.code is RefusalReason.LEDGER_EXCEEDED
    assert (refusal["requested"], refusal["spent"], refusal["rounds"]) == (top, pytest.approx(2 * top), 3)
    assert refusal["remaining"] == pytest.approx(limit.epsilon - 2 * top)
    assert refusal["remaining"] <= limit.epsilon - refusal["spent"] + 1e-15


def test_what_was_acknowledged_survives_a_kill(each_engine: sa.Engine, database_url: str) -> None:
    program = f"""
import sqlalchemy as sa, sys, time
from croupier.accountant.rounds.ledger import Entry, Ledger
engine = sa.create_engine({database_url!r})
with engine.begin() as connection:
    Ledger(connection).enter("kept", b"k", [Entry(1.0, 0.0, 10, 0.5, 1e-6)])
print("acknowledged", flush=True)
with engine.begin() as connection:
    Ledger(connection).enter("lost", b"l", [Entry(1.0, 0.0, 10, 0.5, 1e-6)])
    print("entered", flush=True)
    time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert [process.stdout.readline().strip() for _ in range(2)] == ["acknowledged", "entered"]
        os.kill(process.pid, signal.SIGKILL)
    with each_engine.connect() as connection:
        spent = Ledger(connection).spent(1e-5)
    assert spent[-1].rounds == 1


def test_the_end_of_a_round_is_not_refused_for_costing_less(each_engine: sa.Engine) -> None:
    """Reproduction: two local budgets of 1 were within 2; one of them amended to .99 at delta 1e-6 was refused."""
    reserved, limit = [Entry(1.0, 0.0, 12, 1.0, 1e-6)], Limit(2.0, 1e-6)
    dearer, cheaper = [Entry(1.0, 0.0, 12, 0.99, 1e-6)], [Entry(1.0, 0.0, 12, 0.5, 1e-14)]
    with each_engine.begin() as connection:
        ledger = Ledger(connection)
        for name in ("a", "b"):
            assert ledger.refusal(RoundId(name), reserved, limit) is None
            ledger.enter(RoundId(name), Digest(name.encode()), reserved)
        assert ledger.refusal(RoundId("a"), dearer, limit) is not None
        assert ledger.amendment(RoundId("a"), dearer, limit) == (reserved, None)
        assert ledger.amendment(RoundId("a"), cheaper, limit) == (cheaper, None)
        entries, refusal = ledger.amendment(RoundId("a"), dearer, Limit(1.5, 1e-6))
        assert entries == dearer
        assert refusal is not None


def test_concurrent_writers_do_not_lose_each_other(each_engine: sa.Engine) -> None:
    entry = Entry(1.0, 0.0, 10, 0.1, 1e-6)
    with each_engine.begin() as connection:
        Ledger(connection)

    def enter(number: int) -> None:
        with each_engine.begin() as connection:
            Ledger(connection).enter(RoundId(f"round-{number}"), Digest(b"x"), [entry])

    threads = [threading.Thread(target=enter, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with each_engine.connect() as connection:
        assert Ledger(connection).spent(1e-3)[-1].rounds == 12


def test_a_limit_is_a_filter_unless_terms_are_said_to_be_fixed(ledger: Ledger) -> None:
    """Rounds that may be chosen by results are fewer; their limit is what `spent` says, which was reached before."""
    entries, delta = entries_of(), 20 * DELTA
    enter(ledger, 12, entries)
    allowed = {}
    for fixed_terms in (False, True):
        allowed[fixed_terms] = epsilon = worst_of(ledger, delta, fixed_terms=fixed_terms).epsilon
        assert Limit(epsilon, delta, fixed_terms=fixed_terms).allows([entries] * 12)
        assert not Limit(epsilon * 0.999, delta, fixed_terms=fixed_terms).allows([entries] * 12)
    assert allowed[True] < allowed[False] < 1.2 * allowed[True]


@pytest.mark.parametrize("rounds", [52 * 50, 5_000])
def test_a_limit_admits_a_study_of_many_waves(rounds: int) -> None:
    """Reproduction: after 1,250 rounds only the sum of local budgets was admitted, here 3,900 and more."""
    entries = entries_of()
    spent = total_of_rounds([entries] * rounds, 1e-5, False)
    fixed = total_of_rounds([entries] * rounds, 1e-5, True)
    assert spent is not None
    assert fixed is not None
    assert fixed.epsilon < spent.epsilon < 1.25 * fixed.epsilon
    assert Limit(spent.epsilon, 1e-5).allows([entries] * rounds)
    assert not Limit(spent.epsilon, 1e-5).allows([entries] * (rounds + rounds // 50))


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Limit(-1.0, 1e-6), "epsilon is -1"),
        (lambda: Limit(1.0, 0.0), "delta is 0"),
        (lambda: Entry(1.0, 0.0, -1, 0.5, 1e-6), "count is -1"),
        (lambda: Entry(1.0, 0.0, 1, 0.5, 1e-6, ((0.1, 0.5), (0.1, 0.4))), "profile"),
        (lambda: Entry(1.0, 0.0, 1, 0.5, 1e-6, ((0.1, 0.5), (0.2, 0.6))), "profile"),
    ],
)
def test_bad_entries_are_refused(make: object, match: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=match):
        make()


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-5), (2.0, 1e-5), (1.0, 1e-9)])
@pytest.mark.parametrize("rounds", [1, 10, 50])
def test_records_lose_what_a_gaussian_mechanism_loses_over_many_rounds(
    ledger: Ledger, epsilon: float, delta: float, rounds: int
) -> None:
    """mu grows with the root of the rounds: never below that, and not a hundredth above."""
    profile = RecordGaussian(dimension=60, records=600).local_profile(epsilon, delta, PROFILE_POINTS)
    mu = 1 / unit_sigma(epsilon, delta)
    assert all(value >= gaussian_delta(mu, at) * (1 - 1e-12) for at, value in profile)
    enter(ledger, rounds, [Entry(epsilon, delta, 40, epsilon, 1e-5, profile)])
    exact = gaussian_epsilon(math.sqrt(rounds) * mu, 1e-5)
    for tier in ledger.spent(1e-5, fixed_terms=True):
        assert tier.guarantee is not None
        assert exact * (1 - 1e-9) <= tier.guarantee.epsilon <= min(1.01 * exact + 1e-9, rounds * epsilon)
    # A filter has three eighths of delta for what Gaussian variances admit.
    most = gaussian_epsilon(math.sqrt(rounds) * mu, 3.2e-6)
    assert exact * (1 - 1e-9) <= worst_of(ledger, 1e-5).epsilon <= max(1.01 * most, epsilon)


def test_silos_and_users_share_one_ledger(ledger: Ledger) -> None:
    """Each kind of round is composed with its own profile; both together spend more than either alone."""
    silo = RecordGaussian(dimension=60, records=600)
    loud = [Entry(v, 1e-6, 40, v, 1e-5, silo.local_profile(v, 1e-6, PROFILE_POINTS)) for v in (0.5, 2.0)]
    enter(ledger, 1, entries_of())
    before = worst_of(ledger, 1e-5, fixed_terms=True)
    ledger.enter(RoundId("silos"), Digest(bytes([1]) * 32), loud)
    after = worst_of(ledger, 1e-5, fixed_terms=True)
    alone = gaussian_epsilon(1 / unit_sigma(2.0, 1e-6), 1e-5)
    assert max(before.epsilon, alone) < after.epsilon < before.epsilon + alone


def test_what_is_about_one_record_does_not_read_like_what_is_about_a_user(each_engine: sa.Engine) -> None:
    silo = Entry(1.0, 1e-6, 10, 1.0, 1e-6)
    with each_engine.begin() as connection:
        ledger = Ledger(connection)
        ledger.enter(RoundId("users"), Digest(b"u" * 32), entries_of())
        ledger.enter(RoundId("records"), Digest(b"r" * 32), [silo], one_record=True)
        ledger.enter(RoundId("records"), Digest(b"r" * 32), [silo], one_record=True)
        ledger.amend(RoundId("records"), [silo])
        assert ledger.record_rounds() == {"records"}
        names = [tier.tier for tier in ledger.spent(1e-4)]
    assert names[0] == "local ε 0.5"
    assert "local ε 1, δ 1e-06; ONE RECORD only, in 1 of 1 rounds" in names
    assert names[-1] == f"{ANY_TIER}; ONE RECORD only, in 1 of 2 rounds"


def test_what_is_added_up_is_rounded_up(ledger: Ledger) -> None:
    """Reproduction: six times .1, added as floats, came to less than the exact sum, and was CERTIFIED."""
    small = replace(entries_of()[-1], epsilon=0.1, delta=1e-14, profile=())  # less than losses are composed at
    enter(ledger, 6, [small])
    assert functools.reduce(operator.add, [0.1] * 6) < 6 * Fraction(0.1)  # sum() compensates from Python 3.12 on
    assert sum([1e-14] * 6) < 6 * Fraction(1e-14)
    assert ledger.spent(math.nextafter(6e-14, 0.0), fixed_terms=True)[-1].guarantee is None
    spent = worst_of(ledger, 6e-14, fixed_terms=True)  # which is less than the deltas come to in floats
    assert Fraction(spent.epsilon) >= 6 * Fraction(0.1)
    assert Fraction(spent.delta) >= 6 * Fraction(1e-14)


@pytest.mark.parametrize(
    ("cost", "limit", "rounds"), [("0.1", "0.3", 3), ("0.1", "0.7", 7), ("0.05", "1.05", 21), ("1.1", "3.3", 3)]
)
def test_a_limit_is_met_exactly_in_decimals(ledger: Ledger, cost: str, limit: str, rounds: int) -> None:
    """Reproduction: in floats 0.1 three times is more than 0.3, by the last digit, and the third round was refused."""
    budget = float(cost)
    entries = [Entry(budget / 2, 0.0, 30, budget / 4, 1e-14), Entry(budget, 0.0, 20, budget, 1e-14)]
    assert Fraction(budget) * rounds > Fraction(float(limit))
    for number in range(rounds):
        assert ledger.refusal(RoundId(f"round-{number}"), entries, Limit(float(limit), 1e-12)) is None
        enter(ledger, number + 1, entries)
    assert Fraction(worst_of(ledger, 1e-12).epsilon) >= Fraction(budget) * rounds
    refusal = ledger.refusal(RoundId("more"), entries, Limit(float(limit), 1e-12))
    assert refusal is not None
    assert (refusal["excess"], refusal["remaining"]) == (float(cost), 0.0)
    assert ledger.refusal(RoundId("more"), entries, Limit(float(limit) * 2, 1e-12)) is None


@pytest.mark.parametrize(("each", "total", "rounds"), [("1e-8", "3e-8", 3), ("1e-13", "6e-13", 6)])
def test_deltas_that_were_written_as_decimals_add_up_to_the_limit(
    ledger: Ledger, each: str, total: str, rounds: int
) -> None:
    """Reproduction: 1e-8 three times is more than 3e-8 in floats, and what was left was no bound by adding."""
    entries = [Entry(0.5, 0.0, 20, 0.25, float(each))]
    added = Fraction(float(each)) * rounds
    assert added > Fraction(float(total))
    for number in range(rounds):
        assert ledger.refusal(RoundId(f"round-{number}"), entries, Limit(0.25 * rounds, 4 * float(total))) is None
        enter(ledger, number + 1, entries)
    assert ledger.refusal(RoundId("more"), entries, Limit(2.0, 4 * float(total))) is not None
    spent = worst_of(ledger, float(total), fixed_terms=True)
    assert spent.epsilon <= 0.25 * rounds
    assert added <= Fraction(spent.delta) <= float(total) * (1 + 3e-16)


def test_what_was_computed_is_added_as_it_is(ledger: Ledger) -> None:
    """A certified epsilon is no decimal that anyone wrote: it is the float, and nothing is taken off it."""
    entries = [Entry(2.0, 0.0, 20, 0.1, 1e-14)]  # the float above 1/10, amplified from 2
    enter(ledger, 2, entries)
    assert ledger.refusal(RoundId("c"), entries, Limit(0.3, 1e-12)) is not None
    assert ledger.refusal(RoundId("c"), entries, Limit(0.30000000000000004, 1e-12)) is None
