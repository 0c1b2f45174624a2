"""Certificates of rounds with hop noise: the least of three bounds, what each rests on, and all that uses them."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier import (
    Assumption,
    Budgets,
    Certificate,
    Method,
    ProofStep,
    TableMechanism,
    certify,
    compose,
    explain,
    plan,
    privacy_loss_distribution,
    privacy_profile,
)
from croupier.accountant.hop_fakes import HopFakes
from croupier.accountant.mechanisms.registry import randomizer_from_name
from croupier.accountant.round_cost import curve_points
from croupier.accountant.rounds.round_guarantee import certify_into
from croupier.protocol.certificates import assumptions_of, refusals_of
from croupier.protocol.codes import RefusalReason
from croupier.protocol.hop_noise import HopNoise
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.show.explanation import profile_around
from tests.support import make_kit
from tests.support.messages import naming
from tests.support.oracles.hop_noise import batch_laws, fakes_array, hockey_stick
from tests.support.statements import codes

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "hop_noise.json").read_text())["rows"]
DELTA = 1e-6
NOISE = (0.1, DELTA)
ONE_HOP = [Assumption.REPLACE_ONE, Assumption("runs-rr"), Assumption.ONE_HONEST_HOP]


def batches(k: int, local_epsilon: float, noise: tuple[float, float], known: tuple[int, ...]) -> list[np.ndarray]:
    """The laws of what leaves the honest hop for the victim's values 0 and 1; `known` are everybody else's reports."""
    law = HopNoise(*noise).law(k)
    return batch_laws(fakes_array(k, law.scale, law.radius), known, local_epsilon)[:2]


@pytest.mark.parametrize(
    ("kind", "noise", "local"),
    [
        ("rr", (2.0, 1e-3), 4.0),
        ("rr", (0.7, 1e-3), 3.0),
        ("krr(k=3)", (8.0, 1e-3), 6.0),
        ("krr(k=3)", (2.5, 1e-3), 2.0),
    ],
)
@pytest.mark.parametrize("target", [1e-3, 0.05])
def test_whatever_others_send_the_counts_keep_the_certificate(
    kind: str, noise: tuple[float, float], local: float, target: float
) -> None:
    """Everybody else colludes: their reports are known, whichever they are."""
    certificate = certify({local: 4}, kind, delta=target, hop_noise=noise, hops=2, dishonest=3)
    k, attack = (2 if kind == "rr" else 3), certificate.lower_bound
    assert attack is not None

    for known in itertools.combinations_with_replacement(range(k), 3):
        for law, other in itertools.permutations(batches(k, local, noise, known)):
            assert hockey_stick(law, other, certificate.epsilon) <= target * (1 + 1e-12)
            assert hockey_stick(law, other, attack.epsilon) >= target * (1 - 1e-12)


@pytest.mark.parametrize("row", VECTORS, ids=lambda row: f"{row['kind']}-{row['epsilon']}-{row['delta']}")
def test_one_person_alone_is_certified_what_the_specification_says(row: dict[str, Any]) -> None:
    kind = "rr" if row["kind"] == "two" else "krr(k=7)"
    certificate = certify({60.0: 1}, kind, delta=row["delta"], hop_noise=(row["epsilon"], row["delta"]), attack=False)
    assert 0.98 * row["epsilon"] < certificate.epsilon <= row["epsilon"]
    at = certify({60.0: 1}, kind, epsilon=row["epsilon"], hop_noise=(row["epsilon"], row["delta"]), attack=False)
    assert row["delta_exact"] * (1 - 1e-7) <= at.delta <= row["delta_exact"] * (1 + 1e-5)


def test_every_tier_has_the_least_bound_and_the_list_is_of_those_used() -> None:
    few, crowd, both = ({8.0: 5}, {0.5: 100_000}, {0.5: 30_000, 8.0: 5})
    hop = certify(few, "rr", delta=DELTA, hop_noise=NOISE)
    assert codes(hop.assumptions) == ONE_HOP
    assert hop.one_honest_hop is not None
    assert (hop.one_honest_hop.epsilon, hop.one_honest_hop.assumptions) == (hop.epsilon, hop.assumptions)

    shuffled = certify(crowd, "rr", delta=DELTA, hop_noise=NOISE)
    assert Assumption.ONE_HONEST_HOP not in codes(shuffled.assumptions)
    assert Assumption.DISHONEST_CLIENTS in codes(shuffled.assumptions)
    assert shuffled.one_honest_hop is not None
    assert shuffled.epsilon < shuffled.one_honest_hop.epsilon < NOISE[0]
    assert codes(shuffled.one_honest_hop.assumptions) == ONE_HOP

    mixed = certify(both, "rr", delta=DELTA, hop_noise=(0.04, DELTA))
    assert {Assumption.ONE_HONEST_HOP, Assumption.DISHONEST_CLIENTS} <= set(codes(mixed.assumptions))
    small, large = mixed.tiers
    assert small.epsilon < certify({0.5: 1}, "rr", delta=DELTA, hop_noise=(0.04, DELTA)).epsilon
    assert large.epsilon == certify({8.0: 1}, "rr", delta=DELTA, hop_noise=(0.04, DELTA)).epsilon
    assert mixed.lower_bound is None  # an attack on either assumption alone could refute the tier of the other one

    hidden = certify({0.05: 3}, "rr", delta=DELTA, hop_noise=(5.0, DELTA))  # the fakes hide more than nothing
    assert 0.049 < hidden.epsilon < 0.05
    assert (hidden.method[0].code, codes(hidden.assumptions)) == (Method.HOP_NOISE, ONE_HOP)


def test_the_bounds_of_the_shuffle_count_fakes_as_dishonest() -> None:
    crowd = {0.5: 100_000}
    for hops in (2, 3):
        certificate = certify(crowd, "rr", delta=DELTA, hop_noise=NOISE, hops=hops, dishonest=50)
        assert certificate.epsilon == certify(crowd, "rr", delta=DELTA, dishonest=50 + hops * 218).epsilon
        assert certificate.dishonest == 50
        (step,) = [step for step in certificate.tiers[0].steps if step.code is ProofStep.FAKES_HIDE_LOSSES]
        assert dict(step.parameters)["fakes"] == hops * 218


@pytest.mark.slow
@given(
    st.dictionaries(st.sampled_from([0.05, 0.5, 2.0, 8.0]), st.integers(1, 3000), min_size=1, max_size=3),
    st.sampled_from(["rr", "onebit", "krr(k=4)", "choices(k=2)", "levels(k=4)"]),
    st.floats(0.01, 3.0),
)
def test_hop_noise_is_at_most_every_bound_and_at_least_its_attack(
    budgets: dict[float, int], kind: str, epsilon: float
) -> None:
    certificate = certify(budgets, kind, delta=DELTA, hop_noise=(epsilon, 1e-8), bounds="blanket")
    law = HopNoise(epsilon, 1e-8).law(2 if kind in ("rr", "onebit") else 4)
    fakes = 2 * law.most
    without = certify(budgets, kind, delta=DELTA, bounds="blanket", dishonest=fakes, attack=False)
    assert certificate.one_honest_hop is not None
    assert certificate.epsilon <= min(without.epsilon, certificate.one_honest_hop.epsilon)
    assert certificate.one_honest_hop.epsilon <= min(max(budgets), epsilon) * (1 + 1e-12)
    certificate.check_not_refuted()
    attack = HopFakes(HopNoise(epsilon, 1e-8), 2, randomizer_from_name(kind)).attack(max(budgets), DELTA, None)
    assert attack is not None
    assert attack.epsilon <= certificate.one_honest_hop.epsilon


def test_a_table_is_certified_as_the_mechanism_that_it_is() -> None:
    kept = math.exp(2) / (math.exp(2) + 2)
    table = np.full((3, 3), (1 - kept) / 2) + np.eye(3) * (kept - (1 - kept) / 2)
    noise = (0.5, DELTA)
    declared = certify({2.0: 10}, TableMechanism({2.0: table}), delta=DELTA, hop_noise=noise)
    named = certify({2.0: 10}, "krr(k=3)", delta=DELTA, hop_noise=noise)
    assert declared.epsilon == pytest.approx(named.epsilon, rel=1e-9)
    assert declared.lower_bound is not None
    assert named.lower_bound is not None
    assert declared.lower_bound.epsilon == pytest.approx(named.lower_bound.epsilon, rel=1e-6)


def test_rounds_compose_by_the_losses_of_hop_noise() -> None:
    noise, budgets = (0.1, 1e-8), {8.0: 50}
    certificate = certify(budgets, "rr", delta=DELTA, hop_noise=noise)
    fifty = certify(budgets, "rr", delta=DELTA, hop_noise=noise, rounds=50)
    assert {Assumption.FRESH_NOISE, Assumption.FIXED_TERMS, Assumption.ONE_HONEST_HOP} <= set(codes(fifty.assumptions))
    assert Method.COMPOSED_LOSSES in codes(fifty.method)
    assert fifty.epsilon < 0.8 * 50 * certificate.epsilon
    together = compose([certificate] * 50, delta=DELTA, fixed_terms=True)
    assert together.epsilon == pytest.approx(fifty.epsilon, rel=2e-3)
    assert Assumption.DISHONEST_CLIENTS not in codes(together.assumptions)
    loss = privacy_loss_distribution(certificate)
    assert certificate.epsilon * 0.99 <= loss.get_epsilon_for_delta(DELTA) <= certificate.epsilon * 1.01


def test_a_privacy_filter_admits_rounds_by_the_losses_of_hop_noise() -> None:
    """A curve with mass at infinity was followed to the local budget, with one point for all of its finite losses."""
    certificate = certify({8.0: 50}, "rr", delta=DELTA, hop_noise=(0.1, 1e-10), attack=False)
    (tier,) = certificate.tiers
    assert tier.privacy_profile is not None
    points = curve_points(tier.privacy_profile, (8.0, 0.0), 1e-12)
    assert sum(0 < epsilon <= 0.1 for epsilon, _ in points) > 40
    hundred = compose([certificate] * 100, delta=DELTA)
    assert hundred.epsilon < 0.7 * 100 * certificate.epsilon


def test_curves_rest_on_what_their_points_rest_on() -> None:
    curve = privacy_profile({4.0: 5000}, "rr", deltas=[1e-3, DELTA, 1e-8], hop_noise=NOISE)
    used = set(codes(curve.assumptions))
    assert {Assumption.ONE_HONEST_HOP, Assumption.DISHONEST_CLIENTS} <= used
    alone = privacy_profile({4.0: 5}, "rr", hop_noise=NOISE)
    assert set(codes(alone.assumptions)) == set(ONE_HOP)


def test_a_curve_with_hop_noise_is_nowhere_below_the_truth() -> None:
    curve = privacy_profile({3.0: 2}, "rr", hop_noise=(0.7, 1e-3))
    first, second = batches(2, 3.0, (0.7, 1e-3), (0,))
    for epsilon in (0.0, 0.1, 0.3, 0.5, 0.6, 0.64, 0.66, 0.7, 1.0, 2.0, 2.9):
        assert hockey_stick(first, second, epsilon) <= curve(epsilon) * (1 + 1e-12)


def test_plans_include_the_error_of_fakes_and_stop_at_a_budget_of_8() -> None:
    planned = plan("rr", num_users=200, epsilon=0.1, delta=DELTA, hop_noise=NOISE)
    assert planned.certificate.epsilon <= 0.1
    assert planned.capped
    assert float(planned.budgets.local_epsilon[-1]) == pytest.approx(8.0)
    kept = math.tanh(4.0)
    exact = math.sqrt(2 * HopNoise(*NOISE).law(2).variance + 200 * (1 - kept**2) / 4) / (200 * kept)
    assert planned.standard_error == pytest.approx(exact)
    bins = plan("krr(k=5)", budgets={8.0: 1000}, delta=DELTA, hop_noise=NOISE)
    without = plan("krr(k=5)", budgets={8.0: 1000}, delta=DELTA)
    assert bins.standard_error is not None
    assert without.standard_error is not None
    added = bins.standard_error**2 - without.standard_error**2
    kept = math.expm1(8.0) / (math.exp(8.0) + 4)
    assert added == pytest.approx(2 * HopNoise(*NOISE).law(5).variance * 0.8 / (1000 * kept) ** 2)


@pytest.mark.parametrize(
    ("randomizer", "setting", "named"),
    [
        ("laplace", {"hop_noise": NOISE}, "rr.*krr.*onebit.*levels"),
        ("hemisphere(d=3)", {"hop_noise": NOISE}, "rr.*krr.*onebit.*levels"),
        ("rr", {"hop_noise": NOISE, "linkage": "stratified"}, "must be 'separate'"),
        ("rr", {"hop_noise": NOISE, "adaptive_order": True}, "answers in turns"),
        ("rr", {"hop_noise": NOISE, "hops": 0}, "hops is 0"),
        ("rr", {"hop_noise": 0.1}, "pair"),
        ("rr", {"hop_noise": ("0.1", DELTA)}, "pair"),
        ("rr", {"hop_noise": (float("nan"), DELTA)}, "pair"),
        ("rr", {"hop_noise": (50.0, DELTA)}, "epsilon.*50"),
        ("rr", {"hop_noise": (0.1, 0.5)}, "delta.*0.5"),
    ],
)
def test_hop_noise_that_no_hop_can_add_is_refused(randomizer: str, setting: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        certify({1.0: 100}, randomizer, delta=DELTA, **setting)


def test_both_written_forms_hold_the_guarantee_of_one_hop() -> None:
    certificate = certify({8.0: 5}, "krr(k=4)", delta=DELTA, hop_noise=NOISE, hops=3)
    document = certificate.to_json()
    assert Certificate.from_json(json.dumps(document)) == certificate
    assert Certificate.from_message(certificate.to_message()) == certificate
    assert dict(certificate.assumptions[-1].parameters) == {"hops": 3, "epsilon": 0.1, "delta": DELTA}
    without = {name: value for name, value in document.items() if name != "one_honest_hop"}
    with pytest.raises(ValueError, match=naming("one_honest_hop")):
        Certificate.from_json(without)
    assert document["one_honest_hop"] is not None
    document["one_honest_hop"]["assumptions"].pop()
    with pytest.raises(ValueError, match="one_honest_hop"):
        Certificate.from_json(document)


def test_an_explanation_says_what_holds_if_one_server_is_honest() -> None:
    said = explain(certify({4.0: 500}, "rr", delta=DELTA, hop_noise=NOISE).to_json())
    assert [section.title for section in said.sections][:3] == [
        "What someone can learn about one person",
        "If one server is honest",
        "If everyone else colludes",
    ]
    assert any("hop noise" in improvement.about for improvement in said.improvements)
    assert not any("twice as many" in improvement.about for improvement in said.improvements)
    curve = profile_around(certify({4.0: 500}, "rr", delta=DELTA, hop_noise=NOISE))
    assert curve(0.1) <= DELTA
    plain = explain(certify({4.0: 500}, "rr", delta=DELTA))
    assert "If one server is honest" not in [section.title for section in plain.sections]


def test_budgets_in_spans_have_the_hop_noise_of_their_largest() -> None:
    budgets = Budgets.from_tiers([(1 + place / 50, 2) for place in range(100)])
    certificate = certify(budgets, "rr", delta=DELTA, hop_noise=NOISE, attack=False)
    for tier in certificate.tiers:
        alone = certify({tier.local_epsilon: 1}, "rr", delta=DELTA, hop_noise=NOISE, attack=False)
        assert tier.epsilon == alone.epsilon


def test_a_lost_budget_brings_the_assumption_of_its_own_bound() -> None:
    """The known budget is hidden best by the crowd, a person with the largest one of the grid by hop noise."""
    for known, both in ((30_000, True), (30, False)):
        kit = make_kit(grid=(0.5, 8.0), hop_noise=pb.HopNoise(epsilon=0.04, delta=DELTA))
        message = pb.Certificate(delta=DELTA, num_tickets=known + 1, num_reports=known + 1, unknown_budgets=1)
        certify_into(message, kit.terms, [(0.5, known)])
        stated = set(codes(assumptions_of(message)))
        assert Assumption.ONE_HONEST_HOP in stated
        assert (Assumption.UNIFORM_ORDER in stated, Assumption.HONEST_ACCOUNTANT in stated) == (both, both)
        assert message.tiers[0].epsilon < message.unknown_budget_epsilon == message.epsilon <= 0.04
        assert message.epsilon == message.one_honest_hop.epsilon


def test_a_round_of_one_hop_is_certified_for_a_budget_that_nobody_used() -> None:
    """A dishonest accountant could leave it out: what rests on the hop alone must not rest on its counts."""
    kit = make_kit(grid=(1.0, 8.0), hop_noise=pb.HopNoise(epsilon=0.5, delta=DELTA))
    message = pb.Certificate(delta=DELTA, num_tickets=30, num_reports=30)
    certify_into(message, kit.terms, [(1.0, 30)])
    assert message.tiers[0].epsilon < message.epsilon == message.one_honest_hop.epsilon
    kit.survey.epsilon_max = (message.tiers[0].epsilon + message.epsilon) / 2
    refused = pb.Certificate(delta=DELTA, num_tickets=30, num_reports=30)
    certify_into(refused, kit.terms, [(1.0, 30)])
    assert [refusal.code for refusal in refusals_of(refused)] == [RefusalReason.EPSILON_ABOVE_LIMIT]
