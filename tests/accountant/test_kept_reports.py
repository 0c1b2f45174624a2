"""Permanent studies: certificates are about all waves together, hold no bound of the shuffle, and count once."""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from croupier import Assumption, Certificate, certify, compose, explain
from croupier.accountant.hop_fakes import HopFakes
from croupier.accountant.mechanisms.registry import randomizer_from_name
from croupier.accountant.rounds.account import Account
from croupier.accountant.rounds.found import BudgetsFound
from croupier.accountant.rounds.ledger import Ledger
from croupier.accountant.spending import Entry, Limit, total_of_rounds
from croupier.accountant.waves import WavesProfile
from croupier.protocol.certificates import assumptions_of, certificate_json
from croupier.protocol.hop_noise import HopNoise
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.laplace import Laplace
from croupier.protocol.names import Digest, RoundId
from croupier.protocol.permanent import PermanentSeries
from croupier.protocol.questions import Question
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.show.explanation import profile_around
from tests.support.accounting import certified_round
from tests.support.oracles.hop_noise import truncated_laplace
from tests.support.studies import kit_of_wave

SERIES = PermanentSeries(52, "5e" * 32)


def certified(terms: RoundTerms, budgets: dict[float, int]) -> tuple[pb.Certificate, list[Entry]]:
    people = sum(budgets.values())
    return certified_round(terms, BudgetsFound(Counter(budgets), 0, {}), people, people)


def joint_laws(k: int, noise: HopNoise, waves: int, local_epsilon: float) -> list[np.ndarray]:
    """The law of the honest hop's counts in all waves together for the values 0 and 1, from the definition."""
    law = noise.law(k)
    width = 2 * law.radius + 1
    z = np.array(list(truncated_laplace(law.scale, law.radius).values()))
    laws = []
    for report in range(k):
        wave = np.zeros((width + 1,) * (1 if k == 2 else k))
        if k == 2:  # the number of ones is enough: the number of messages is fixed
            wave[report : width + report] = z
        else:
            place = tuple(slice(int(b == report), width + int(b == report)) for b in range(k))
            wave[place] = functools.reduce(np.multiply.outer, [z] * k)
        laws.append(functools.reduce(np.multiply.outer, [wave.ravel()] * waves))
    true = math.exp(local_epsilon) / (math.exp(local_epsilon) + k - 1)
    other = (1 - true) / (k - 1)
    return [np.sum([(true if r == value else other) * law for r, law in enumerate(laws)], axis=0) for value in (0, 1)]


@pytest.mark.parametrize(
    ("k", "noise", "waves"), [(2, HopNoise(0.8, 1e-3), 3), (2, HopNoise(1.5, 1e-3), 4), (3, HopNoise(6, 1e-3), 2)]
)
@pytest.mark.parametrize("local_epsilon", [0.5, 2.0, 6.0])
def test_the_bound_of_all_waves_is_above_their_exact_divergence(
    k: int, noise: HopNoise, waves: int, local_epsilon: float
) -> None:
    p, q = joint_laws(k, noise, waves, local_epsilon)
    fakes = HopFakes(noise, 2, randomizer_from_name("rr" if k == 2 else f"krr(k={k})"))
    variation = fakes.curve(local_epsilon).total_variation
    curve = WavesProfile(noise.law(k), variation, waves, 1e-3)
    for epsilon in (0.0, 0.1, 0.3, 0.6, 1.0, 2.0):
        exact = float(np.maximum(p - math.exp(epsilon) * q, 0).sum())
        bound = min(curve.delta(epsilon).value, randomizer_bound(local_epsilon, epsilon))
        assert bound >= exact * (1 - 1e-12) - 1e-15
    assert curve.delta(0.0).value == pytest.approx(float(np.maximum(p - q, 0).sum()), abs=1e-3)  # nothing is given away


def randomizer_bound(local_epsilon: float, epsilon: float) -> float:
    return max(0.0, (math.exp(local_epsilon) - math.exp(epsilon)) / (math.exp(local_epsilon) + 1))


def test_without_hop_noise_it_is_the_local_budget() -> None:
    for waves, people in itertools.product((1, 2, 10_000), (2, 100_000)):
        certificate = certify({0.5: people, 1.0: people}, "rr", delta=1e-6, rounds=PermanentSeries(waves))
        assert [tier.epsilon for tier in certificate.tiers] == [0.5, 1.0]
        assert (certificate.epsilon, certificate.comparison, certificate.lower_bound) == (1.0, (), None)
        assert [assumption.code for assumption in certificate.assumptions] == [
            Assumption.REPLACE_ONE,
            Assumption("runs-rr"),
            Assumption.EVERYONE_ELSE_DISHONEST,
            Assumption.SAME_REPORT,
        ]


def test_with_hop_noise_it_grows_with_the_waves_up_to_the_local_budget() -> None:
    certificates = [
        certify({8.0: 1000}, "rr", delta=1e-6, hop_noise=(0.1, 1e-9), rounds=PermanentSeries(w))
        for w in (1, 4, 52, 4096)
    ]
    epsilons = [certificate.epsilon for certificate in certificates]
    assert epsilons == sorted(epsilons)
    assert epsilons[0] == pytest.approx(certify({8.0: 10}, "rr", delta=1e-6, hop_noise=(0.1, 1e-9)).epsilon, rel=0.02)
    assert epsilons[2] < 52 * 0.1
    assert epsilons[3] == 8.0
    assert all(
        Assumption.UNIFORM_ORDER not in {a.code for a in certificate.assumptions} for certificate in certificates
    )


@pytest.mark.parametrize("changes", [{"linkage": "stratified"}, {"randomizer": "laplace"}, {"adaptive_order": True}])
def test_what_is_not_proved_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="series of waves"):
        certify({1.0: 10}, changes.pop("randomizer", "rr"), delta=1e-6, rounds=PermanentSeries(3), **changes)
    with pytest.raises(ValueError, match="waves is 0"):
        PermanentSeries(0)


def test_a_series_counts_once_also_when_read_from_json() -> None:
    several = {1.0: 900, 2.0: 100}
    waves = [
        certify(several, "rr", delta=1e-6, rounds=SERIES),
        certify({1.0: 900}, "rr", delta=1e-6, rounds=SERIES),
    ]
    read = [Certificate.from_json(json.dumps(wave.to_json())) for wave in waves]
    assert read == waves
    other = certify({1.0: 1000}, "rr", delta=1e-6, rounds=PermanentSeries(52, "0e" * 32))
    planned = certify({1.0: 1000}, "rr", delta=1e-6, rounds=PermanentSeries(52))
    for fixed in (True, False):
        totals = [
            compose(certificates, delta=1e-5, fixed_terms=fixed).epsilon
            for certificates in (read[:1], read, [*read, other], [planned, planned, planned])
        ]
        assert totals == pytest.approx([2, 2, 3, 3], rel=1e-4)
    assert Assumption.SAME_REPORT in {assumption.code for assumption in compose(read, delta=1e-5).assumptions}
    longer = certify(several, "rr", delta=1e-6, rounds=PermanentSeries(53, SERIES.name))
    with pytest.raises(ValueError, match="series 5e5e5e5e5e5e differ"):
        compose([*waves, longer], delta=1e-5)


def test_a_certificate_that_assumes_both_is_refused() -> None:
    shuffled = certify({1.0: 1000}, "rr", delta=1e-6, attack=False).to_json()
    kept = certify({1.0: 1000}, "rr", delta=1e-6, rounds=SERIES).to_json()
    with pytest.raises(ValueError, match="same-report and uniform-order"):
        Certificate.from_json(shuffled | {"assumptions": [*shuffled["assumptions"], kept["assumptions"][-1]]})


@pytest.mark.parametrize("noise", [None, (0.1, 1e-9)])
def test_explanations_and_curves_claim_no_shuffle_either(noise: tuple[float, float] | None) -> None:
    certificate = certify({1.0: 1000, 8.0: 10}, "rr", delta=1e-6, rounds=SERIES, hop_noise=noise)
    assert profile_around(certificate).epsilon(1e-6) == pytest.approx(certificate.epsilon, rel=1e-6)
    better = [improvement.about.split(",")[0] for improvement in explain(certificate).improvements]
    assert "half of every local budget" in better
    assert "twice as many people" not in better  # they do not help


def test_rounds_of_permanent_studies_are_certified_without_shuffle() -> None:
    terms = kit_of_wave(1).terms
    message, entries = certified(terms, {0.5: 500, 1.0: 500})
    assert message.granted
    assert message.epsilon == 2.0  # of the largest budget of the grid: the accountant may leave out who used it
    series = terms.permanent
    assert series is not None
    assert [(entry.epsilon, entry.series) for entry in entries] == [(0.5, series.name), (1.0, series.name)]
    codes = {assumption.code for assumption in assumptions_of(message)}
    assert not codes & {Assumption.UNIFORM_ORDER, Assumption.GENUINE_ROSTER, Assumption.HONEST_ACCOUNTANT}
    read = Certificate.from_json(json.dumps(certificate_json(message)))
    assert read.series == series
    fresh, _ = certified(kit_of_wave(1, permanent=False).terms, {0.5: 500, 1.0: 500})
    assert fresh.epsilon < 0.3


def test_with_hop_noise_a_wave_states_what_all_of_them_show() -> None:
    noise = pb.HopNoise(epsilon=0.1, delta=1e-8)
    message, _ = certified(kit_of_wave(1, waves=20, hop_noise=noise, epsilon_max=6.0).terms, {2.0: 1000})
    assert message.granted
    alone = certify({2.0: 1}, "rr", delta=1e-6, hop_noise=(0.1, 1e-8), rounds=PermanentSeries(20)).one_honest_hop
    assert alone is not None
    assert message.one_honest_hop.epsilon == alone.epsilon == message.epsilon


def test_waves_are_one_series_until_terms_or_their_number_change() -> None:
    first, second = kit_of_wave(1).terms.permanent, kit_of_wave(3).terms.permanent
    assert first == second
    others = [
        kit_of_wave(1, waves=4),
        kit_of_wave(1, study_id="other"),
        kit_of_wave(1, epsilon_max=1.5),
        kit_of_wave(1, question=Question("bit", KaryResponse(2))),
    ]
    names = {other.terms.permanent and other.terms.permanent.name for other in others} | {first and first.name}
    assert len(names) == 5
    assert kit_of_wave(1, permanent=False).terms.permanent is None


def test_a_permanent_study_asks_only_what_can_be_kept() -> None:
    with pytest.raises(Exception, match="permanent"):
        assert kit_of_wave(1, question=Question("x", Laplace(0.0, 1.0))).terms


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(sa.create_engine("sqlite://").connect())


def test_the_ledger_counts_a_series_once(ledger: Ledger) -> None:
    for number in (1, 2, 3):
        _, entries = certified(kit_of_wave(number).terms, {1.0: 500, 2.0: 10})
        ledger.enter(RoundId(f"wellbeing-w{number}-1"), Digest(bytes(32)), entries)
    limit = Limit(3.0, 1e-5)
    _, another = certified(kit_of_wave(1, study_id="other").terms, {1.0: 500})
    _, shuffled = certified(kit_of_wave(1, permanent=False).terms, {1.0: 500})
    spent = [spending.guarantee for spending in ledger.spent(1e-5) if spending.guarantee is not None]
    assert [round(guarantee.epsilon, 6) for guarantee in spent] == [1.0, 2.0, 2.0]
    assert Assumption.ANSWERS_UNCHANGED in {assumption.code for assumption in spent[-1].assumptions}
    two = ledger.spent_in([RoundId("wellbeing-w1-1"), RoundId("wellbeing-w2-1")], 1e-5)
    assert two is not None
    assert two.epsilon == pytest.approx(2.0)
    assert ledger.refusal(RoundId("next"), another, limit) is None
    assert ledger.refusal(RoundId("next"), [*another], Limit(2.9, 1e-5)) is not None
    assert ledger.refusal(RoundId("next"), shuffled, limit) is None
    account = Account.of(ledger)
    more, remaining = account.asker([limit])(certified(kit_of_wave(2).terms, {1.0: 500, 2.0: 10})[1])
    assert (list(more), remaining) == ([], 1.0)
    by_themselves = [Entry(entry.local_epsilon, 0.0, 1, entry.epsilon, entry.delta) for entry in entries]
    apart = total_of_rounds([by_themselves] * 3, 1e-5, False)
    assert apart is not None
    assert apart.epsilon == 6.0
