"""A certificate in plain words: no percentage is too small, every line has a sentence, nothing poses as proved."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from croupier import GaussianMechanism, LaplaceMechanism, TableMechanism
from croupier.accountant.certificate import Certificate
from croupier.accountant.certification import certify
from croupier.accountant.certified_profile import DELTAS
from croupier.accountant.guessing import right_at_most
from croupier.accountant.mechanisms.base import Randomizer
from croupier.accountant.mechanisms.gaussian_vector import RecordGaussian
from croupier.accountant.mechanisms.registry import as_randomizer, stated_randomizer
from croupier.accountant.rounds.round_certificate import after_sequential
from croupier.protocol.certificates import assumptions_of, certificate_json
from croupier.protocol.codes import Assumption, RefusalReason
from croupier.protocol.mechanisms.hemisphere import Hemisphere
from croupier.protocol.mechanisms.rr import RandomizedResponse
from croupier.protocol.mechanisms.vector_task import SequentialOrder, VectorTask
from croupier.protocol.names import JsonObject
from croupier.protocol.questions import Question
from croupier.protocol.rounding import percent, round_down, round_up
from croupier.protocol.statements import Statement, messages_of, to_prose, written_json
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.show.explanation import Explanation, explain, profile_around
from tests.support import make_kit
from tests.support.accounting import draw_points_only
from tests.support.messages import naming
from tests.support.results import result_of
from tests.support.statements import codes, parameters

RANDOMIZERS: tuple[Randomizer, ...] = (
    *map(as_randomizer, ("rr", "krr(k=5)", "onebit", "hemisphere(d=3)", "laplace", "gaussian", "gaussian(d=2)")),
    LaplaceMechanism(lattice=20),
    GaussianMechanism(lattice=20),
    RecordGaussian(dimension=3, records=5),
)
BY_NAME = pytest.mark.parametrize("randomizer", RANDOMIZERS, ids=lambda randomizer: randomizer.statement.code)


def quick(randomizer: Randomizer, **how: Any) -> Certificate:
    budgets = [(0.5, 30, 1e-6), (1.0, 20, 1e-6)]
    return certify(budgets, randomizer, delta=1e-3, attack=False, bounds="blanket", **how)


def words(explained: Explanation, title: str = "") -> str:
    """The whole text, or that of one section."""
    lines = [
        line
        for section in explained.sections
        if title in section.title
        for line in (section.title, *section.paragraphs, *section.points)
    ]
    return "\n".join(lines)


@settings(max_examples=80, deadline=None)
@given(st.floats(0, 30), st.floats(0, 1))
def test_the_percentage_is_attained_and_never_below(epsilon: float, delta: float) -> None:
    """By the pair that shows the value with probability delta, and else the answer of randomised response."""
    with mpmath.workdps(60):
        large = mpmath.exp(mpmath.mpf(epsilon))
        lost = mpmath.mpf(delta)
        first = [lost, 0, (1 - lost) * large / (1 + large), (1 - lost) / (1 + large)]
        second = [0, lost, (1 - lost) / (1 + large), (1 - lost) * large / (1 + large)]
        best = (1 + sum(abs(p - q) for p, q in zip(first, second, strict=True)) / 2) / 2
        probability = right_at_most(epsilon, delta)
        assert best <= probability <= min(mpmath.mpf(1), best * (1 + mpmath.mpf(1e-14)))
        assert best * 100 <= mpmath.mpf(percent(probability).removesuffix(" %"))


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32), st.floats(0, 3))
def test_no_test_between_two_laws_is_right_more_often(seed: int, epsilon: float) -> None:
    p, q = np.random.default_rng(seed).dirichlet([0.3] * 6, size=2)
    delta = max(float(np.maximum(a - math.exp(epsilon) * b, 0).sum()) for a, b in ((p, q), (q, p)))
    best = 0.5 + 0.25 * float(np.abs(p - q).sum())
    assert best <= right_at_most(epsilon, min(1.0, delta)) * (1 + 1e-12)


def test_what_no_guarantee_is_has_no_percentage() -> None:
    for epsilon, delta in ((-1.0, 0.0), (math.inf, 0.0), (1.0, 1.5), (math.nan, 0.0)):
        with pytest.raises(ValueError, match="must be"):
            right_at_most(epsilon, delta)
    assert (right_at_most(500.0), right_at_most(1e9), right_at_most(0.0, 1.0)) == (1.0, 1.0, 1.0)


@BY_NAME
def test_what_people_run_is_read_back_from_the_assumptions(randomizer: Randomizer) -> None:
    certificate = certify([(1.0, 20, 1e-6)], randomizer, delta=1e-3, attack=False, bounds="blanket")
    assert stated_randomizer(certificate.assumptions) == randomizer
    assert stated_randomizer(Certificate.from_json(certificate.to_json()).assumptions) == randomizer


def test_what_rounds_assume_is_explained_too() -> None:
    task = VectorTask(2, 1.0, "line", bytes(8), SequentialOrder(500, 0.1))
    terms = make_kit(question=Question("model", Hemisphere(task))).terms
    first = pb.Certificate(round_id="round-1", num_users=40, num_tickets=40, num_reports=40, delta=terms.shared.delta)
    first.tiers.add(local_epsilon=1.0, count=40)
    message, _ = after_sequential(terms, first, 30)
    stated = assumptions_of(message)
    assert {Assumption.HONEST_ACCOUNTANT, Assumption.GENUINE_ROSTER, Assumption.ADAPTIVE_ORDER} <= set(codes(stated))
    assert parameters(stated, Assumption.CLIENTS_ANSWERED) == {"answered": 30, "clients": 40}
    document = certificate_json(message)
    assert document["randomizer"] == message.randomizer == "hemisphere(d=2)"
    explained = explain(document)
    assert all(to_prose(statement) in words(explained, "rests") for statement in stated)
    assert explained.improvements[0].epsilon < message.epsilon


@pytest.mark.parametrize("randomizer", [RANDOMIZERS[0], RANDOMIZERS[1], RANDOMIZERS[-3], RANDOMIZERS[-1]], ids=repr)
def test_what_would_help_is_what_the_accountant_certifies(randomizer: Randomizer) -> None:
    certificate = certify([(0.5, 30, 1e-6)], randomizer, delta=1e-3, dishonest=4, attack=False)
    explained = explain(certificate)
    changed = {
        "60": ((0.5, 60, 1e-6), 4),
        "half": ((0.25, 30, 1e-6), 4),
        "2 dishonest": ((0.5, 30, 1e-6), 2),
    }
    better = {improvement.about: improvement for improvement in explained.improvements}
    for about, (budget, dishonest) in changed.items():
        expected = certify([budget], randomizer, delta=certificate.delta, dishonest=dishonest, attack=False)
        improvements = [improvement for name, improvement in better.items() if about in name]
        if expected.epsilon < certificate.epsilon:
            assert [improvement.epsilon for improvement in improvements] == [expected.epsilon]
            assert f"(ε = {round_up(expected.epsilon)} CERTIFIED)" in words(explained, "better")
        else:
            assert not improvements
            assert "nothing is gained" in words(explained, "better")


def test_every_tier_and_both_trust_statements_are_said() -> None:
    certificate = certify({0.5: 900, 2.0: 100}, "rr", delta=1e-6, dishonest=10)
    explained = explain(certificate)
    assert [tier.epsilon for tier in explained.tiers] == [tier.epsilon for tier in certificate.tiers]
    text = words(explained)
    for tier in certificate.tiers:
        best = percent(right_at_most(tier.epsilon, tier.delta))
        assert f"{tier.count} people with local ε {tier.local_epsilon:g}: right at most {best}" in text
    alone = words(explained, "everyone else")
    assert f"right at most {percent(right_at_most(2.0))} of the time (ε = 2 CERTIFIED" in alone
    assert f"900 people with local ε 0.5: right at most {percent(right_at_most(0.5))}" in alone
    assert re.search(naming("most 10"), words(explained, "rests"))
    assert "promise nothing" in words(explained, "worth")


def test_an_explanation_is_a_text_whose_promise_is_rounded_up() -> None:
    """Reproduction: what the documentation printed was below the promise."""
    certificate = certify([1.0] * 10_000, "rr", delta=1e-6)
    explained = explain(certificate)
    promise = right_at_most(certificate.epsilon, certificate.delta)
    assert float(f"{100 * promise:.2f}") < 100 * promise
    assert str(explained.certified).startswith(f"everybody: right at most {percent(promise)} (ε = ")
    assert f"right at most {percent(promise)} of the time" in str(explained)
    lines = str(explained).splitlines()
    for section in explained.sections:
        assert {section.title, *section.paragraphs, *(f"  · {point}" for point in section.points)} <= set(lines)


def test_a_vector_is_not_called_a_number() -> None:
    """Reproduction: 'which of two numbers a person gave', of a person with three."""
    said = words(explain(quick(as_randomizer("gaussian(d=3)"))))
    assert "two vectors" in said
    assert "noise to the person's vector" in said
    assert "two numbers" not in said
    assert "two numbers" in words(explain(quick(as_randomizer("gaussian"))))


def test_what_promises_nothing_says_so() -> None:
    """Whatever is no guarantee stands with its grade, and without a percentage."""
    certificate = certify({4.0: 1000}, "rr", delta=1e-6, compare_all=True)
    explained = explain(certificate)
    assert certificate.lower_bound is not None
    attack = words(explained, "attack")
    assert f"no ε below {round_down(certificate.lower_bound.epsilon)} can be true" in attack
    assert re.search(naming("LOWER_BOUND"), attack)
    (worth,) = [section for section in explained.sections if section.title.endswith("worth")]
    assert {point.split(":")[0] for point in worth.points} == {
        bound.name for bound in certificate.comparison if bound.grade != "CERTIFIED" and bound.epsilon is not None
    }
    for point in worth.points:
        assert "no guarantee" in point
        assert "right at most" not in point
    assert any("GSPA Thm 2" in point and "refuted" in point for point in worth.points)
    for certified in (*explained.tiers, explained.everyone_else_colludes, *explained.improvements):
        assert certified.grade == "CERTIFIED"


def test_an_attack_at_another_delta_is_not_compared() -> None:
    by_epsilon = explain(certify({1.0: 50}, "rr", epsilon=0.3))
    assert "no δ below" in words(by_epsilon, "attack")
    assert "the certified δ smaller by more than" in words(by_epsilon, "attack")
    certificate = certify({1.0: 50}, "rr", delta=1e-3)
    assert certificate.lower_bound is not None
    other = replace(certificate, lower_bound=replace(certificate.lower_bound, delta=1e-4))
    assert "smaller by more than" not in words(explain(other), "attack")
    assert "No attack" in words(explain(replace(certificate, lower_bound=None)), "attack")


@pytest.mark.parametrize("changed", [("epsilon",), ("delta",), ("epsilon", "delta")], ids="+".join)
def test_a_document_that_its_own_attack_refutes_is_refused(changed: tuple[str, ...]) -> None:
    """Reproduction: an edited epsilon of .001 was called CERTIFIED, beside an attack that reaches .0568."""
    budgets = {0.5: 900, 2.0: 100}
    by_epsilon = changed == ("delta",)
    certificate = certify(budgets, "rr", epsilon=0.3) if by_epsilon else certify(budgets, "rr", delta=1e-6)
    document: Any = certificate.to_json()
    smaller = {name: document[name] / 9 for name in changed}
    edited = {**document, **smaller, "tiers": [{**tier, **smaller} for tier in document["tiers"]]}
    values = (edited["epsilon"], edited["delta"], document["lower_bound_epsilon"], document["lower_bound_delta"])
    said = naming(*(f"{value:g}" for value in values))
    for function in (explain, profile_around):
        for edited_document in (edited, {"certificate": edited}):
            with pytest.raises(ValueError, match=said):
                function(edited_document)
    explain(document)
    for name in ("epsilon", "delta"):
        explain({**edited, f"lower_bound_{name}": edited[name] / 2})


def test_no_percentage_has_an_exponent() -> None:
    """Reproduction: 'smaller by more than 1e+02 %'."""
    certificate = certify({1.0: 50}, "rr", delta=1e-3)
    assert certificate.lower_bound is not None
    weak = replace(certificate.lower_bound, epsilon=1e-4)
    assert "smaller than 0.0001." in words(explain(replace(certificate, lower_bound=weak)), "attack")
    close = replace(certificate.lower_bound, epsilon=certificate.epsilon * (1 - 1e-9))
    assert "by more than 0.01 %" in words(explain(replace(certificate, lower_bound=close)), "attack")


def test_an_attack_is_rounded_to_its_own_side() -> None:
    """At a larger delta, or a larger epsilon, less than what is said may be true."""
    at_delta = certify({1.0: 50}, "rr", delta=1e-3 / 3)
    assert re.search(naming("δ = 0.000333333 (LOWER_BOUND"), words(explain(at_delta), "attack"))
    at_epsilon = certify({1.0: 50}, "rr", epsilon=0.2 / 3)
    assert re.search(naming("ε = 0.0666666 (LOWER_BOUND"), words(explain(at_epsilon), "attack"))


def test_what_cannot_be_computed_is_left_out_with_the_reason() -> None:
    many = quick(as_randomizer("rr"))
    grouped = certify(np.linspace(0.1, 1.0, 60), "rr", delta=1e-3, attack=False)
    keep = 1 / (1 + math.exp(-1.0))
    table = certify({1.0: 20}, TableMechanism({1.0: [[keep, 1 - keep], [1 - keep, keep]]}), delta=1e-3, attack=False)
    lost = replace(many, delta=1.0)
    for certificate, why in (
        (grouped, "puts budgets together"),
        (table, "what people's devices run"),
        (lost, "δ is 1"),
    ):
        explained = explain(certificate)
        assert explained.improvements == ()
        assert why in words(explained, "better")
    assert "with local ε up to" in words(explain(grouped))
    assert explain(lost).certified.right_at_most == 1.0


def of_a_round(*, grouped: bool = False, **more: Any) -> JsonObject:
    certificate = certify({0.5: 40, 1.0: 20}, "krr(k=4)", delta=1e-3, dishonest=3)
    assert certificate.lower_bound is not None
    message = certificate.to_message()
    message.assumptions.extend(
        messages_of([Statement.of(Assumption.GENUINE_ROSTER, dishonest=3), Statement.of(Assumption.HONEST_ACCOUNTANT)])
    )
    message.everyone_else_colludes_epsilon = 2.0
    for tier in message.tiers:
        tier.up_to = grouped
    message.MergeFrom(pb.Certificate(round_id="r", granted=True, **more))
    return certificate_json(message)


def test_the_certificate_of_a_round_is_explained_alone_and_in_its_result() -> None:
    document = of_a_round()
    explained = explain(document)
    result = result_of(Question("q", RandomizedResponse()), [(0.3, (0.2, 0.4), (0.1, 0.5))])
    in_its_result = explain({**result, "certificate": document})
    assert (in_its_result.certified, in_its_result.improvements) == (explained.certified, explained.improvements)
    assert "two answers" in words(explained)
    assert "(ε = 2 CERTIFIED: the largest local" in words(explained)
    assert re.search(naming("most 3"), words(explained))
    assert len(explained.improvements) == 3
    assert re.search(naming("'croupier survey results", "--document FILE'"), words(explained, "worth"))
    assert "signed" not in words(explain(certify({1.0: 20}, "rr", delta=1e-3)))
    assert explained.certified.epsilon == document["epsilon"]


def test_what_is_left_is_also_said_of_the_budgets_that_were_used() -> None:
    """Reproduction: where all had a budget of 1, only that of 4, which nobody had, was spoken of."""
    document = of_a_round()
    (*_, largest) = document["tiers"]
    said = words(explain({**document, "tiers": [{**largest, "count": 60}]}), "colludes")
    assert "60 people with local ε 1: right at most 73.11 % (ε = 1 CERTIFIED)" in said


@pytest.mark.slow
def test_a_tier_of_gaussian_noise_is_said_with_its_local_delta() -> None:
    tiers = explain(certify([(0.5, 40, 1e-9), (1.0, 40, 1e-9)], "gaussian", delta=1e-4)).tiers
    assert [tier.about for tier in tiers] == [f"40 people with local ε {e}, local δ 1e-09" for e in (0.5, 1)]


def test_clients_whose_budget_is_unknown_or_grouped_are_said() -> None:
    unknown = explain(of_a_round(unknown_budgets=1, unknown_budget_epsilon=0.9))
    assert unknown.certified.epsilon == unknown.tiers[-1].epsilon == 0.9
    assert re.search(naming("1 person"), words(unknown))
    assert unknown.improvements == ()
    assert "40 people with local ε up to 0.5" in words(explain(of_a_round(grouped=True)))


def test_what_is_no_certificate_is_refused() -> None:
    certificate = certify({1.0: 20}, "rr", delta=1e-3).to_json()
    bad: Any
    for bad in ([], "x", {}, {"certificate": 3}, {"questions": []}, {**certificate, "tiers": 1.0}):
        with pytest.raises(
            ValueError,
            match=naming("'croupier certify --json'", "'croupier survey results --json'", "'croupier demo --json'"),
        ):
            explain(bad)
    for key in ("epsilon", "tiers", "assumptions"):
        with pytest.raises(ValueError, match=naming(key, "missing")):
            explain({name: value for name, value in certificate.items() if name != key})
        with pytest.raises(ValueError, match=naming(key, "missing")):
            explain({name: value for name, value in of_a_round().items() if name != key})
    with pytest.raises(ValueError, match="grade is"):
        explain({**certificate, "grade": "HEURISTIC"})
    reasons = written_json([Statement.of(RefusalReason.TOO_FEW_BUDGETS, budgets=3, least=7)])
    with pytest.raises(ValueError, match=naming(7)):
        explain({**of_a_round(), "granted": False, "refusals": reasons})


@pytest.mark.slow
def test_the_profile_around_a_round_is_that_of_its_people(monkeypatch: pytest.MonkeyPatch) -> None:
    draw_points_only(monkeypatch)
    profile = profile_around(of_a_round())
    assert [point.certificate.delta for point in profile.points] == list(DELTAS)
    last = profile.points[-1]
    alone = certify({0.5: 40, 1.0: 20}, "krr(k=4)", delta=DELTAS[-1], dishonest=3, compare_all=True)
    assert (last.epsilon, last.certificate.dishonest) == (alone.epsilon, 3)
    own = certify([(0.5, 30), (1.0, 20)], "rr", delta=3e-3)
    assert 1 <= profile_around(own.to_json()).epsilon(3e-3) / own.epsilon < 1 + 1e-12


def test_no_profile_is_made_of_less_than_the_certificate_says() -> None:
    in_order = quick(as_randomizer("hemisphere(d=3)"), adaptive_order=True)
    for certificate, why in (
        (of_a_round(unknown_budgets=1, unknown_budget_epsilon=0.9), "did not arrive"),
        (of_a_round(grouped=True), "puts budgets together"),
        (in_order, "one after the other"),
    ):
        with pytest.raises(ValueError, match=naming("privacy profile", why)):
            profile_around(certificate)


def test_an_attack_that_proves_nothing_is_not_made_a_limit_of_epsilon() -> None:
    attack = words(explain(certify({1.0: 50}, "rr", epsilon=600.0)), "attack")
    assert "no ε below" not in attack
    assert re.search(naming("δ", "0 can", "ε = 600"), attack)


@pytest.mark.parametrize(("delta", "warned"), [(0.5, True), (0.02, True), (0.0199, False), (1e-6, False)])
def test_a_delta_that_allows_to_show_a_person_is_called_so(delta: float, warned: bool) -> None:
    """Reproduction: of 10,000 people ε = 0 was CERTIFIED at δ = 0.999999, without a word."""
    said = str(explain(certify({1.0: 50}, "rr", delta=delta)))
    assert ("one person's answer in full" in said) is warned
