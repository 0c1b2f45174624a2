"""Every kind of mechanism in every role: declared, answered, counted, certified, attacked, documented, consistently."""

from __future__ import annotations

import math
from dataclasses import fields

import numpy as np
import pytest

from croupier.accountant.budgets import Budgets
from croupier.accountant.certification import certify
from croupier.accountant.guarantees import Grade
from croupier.accountant.lower_bound import is_attackable, lower_bound
from croupier.accountant.mechanism_choice import standard_error
from croupier.accountant.mechanisms.registry import RANDOMIZERS as ACCOUNTED
from croupier.accountant.mechanisms.registry import randomizer_from_name, randomizer_of, stated_randomizer
from croupier.analyzer.estimators import ESTIMATORS, decoder, estimate
from croupier.client.randomizers import RANDOMIZERS, randomize
from croupier.protocol.kinds import of_every_kind
from croupier.protocol.mechanisms import MECHANISMS
from croupier.protocol.mechanisms.base import Form, ScalarMechanism
from croupier.protocol.mechanisms.choices import MultipleChoice
from croupier.protocol.questions import Question
from croupier.protocol.randomness import SystemRandom
from croupier.protocol.texts import describe_device_step
from croupier.protocol.v1 import messages_pb2 as pb
from tests.support.mechanisms import EXAMPLES, TASK, Example

KINDS = sorted(MECHANISMS)


@pytest.fixture(params=KINDS)
def example(request: pytest.FixtureRequest) -> Example:
    return EXAMPLES[request.param]


@pytest.mark.parametrize(
    "registry",
    [EXAMPLES, RANDOMIZERS, ESTIMATORS, ACCOUNTED],
    ids=["examples", "client", "analyzer", "accountant"],
)
def test_every_role_knows_every_kind(registry: dict[str, object]) -> None:
    assert sorted(registry) == KINDS


def test_a_role_without_a_module_for_a_kind_is_named() -> None:
    with pytest.raises(ImportError, match=r"croupier\.protocol\.rr has no MECHANISM; each role has a module"):
        of_every_kind("croupier.protocol", "MECHANISM")
    with pytest.raises(ImportError, match=r"croupier\.client\.mechanisms\.rr has no ESTIMATOR"):
        of_every_kind("croupier.client.mechanisms", "ESTIMATOR")


def test_the_kinds_are_the_fields_of_the_oneof_and_mirror_their_messages() -> None:
    declared = pb.Question.DESCRIPTOR.oneofs_by_name["mechanism"].fields
    assert sorted(oneof_field.name for oneof_field in declared) == KINDS
    for oneof_field in declared:
        assert MECHANISMS[oneof_field.name].kind == oneof_field.name
        assert oneof_field.message_type is not None
        assert {parameter.name for parameter in fields(MECHANISMS[oneof_field.name])} == set(
            oneof_field.message_type.fields_by_name
        )


def test_the_encoding_is_golden_and_is_read_back(example: Example) -> None:
    question = Question("q", example.mechanism)
    message = question.message()
    assert Question.read(message) == question
    assert message.SerializeToString(deterministic=True).hex() == example.golden


def test_values_are_reported_in_the_stated_size_and_range(example: Example) -> None:
    mechanism = example.mechanism
    for epsilon in (0.5, 20.0):
        for value in (*example.values, RANDOMIZERS[mechanism.kind].any_value(mechanism)):
            report = randomize(Question("q", mechanism), value, epsilon, SystemRandom())
            plaintext = mechanism.encode_report(report)
            assert len(plaintext) == mechanism.report_bytes
            decoded = decoder(Question("q", mechanism), 0.5)(plaintext)
            assert mechanism.encode_report(decoded) == plaintext


def test_values_outside_the_domain_are_refused(example: Example) -> None:
    for value in example.outside:
        with pytest.raises(ValueError, match=r"must|takes|finite"):
            randomize(Question("q", example.mechanism), value, 1.0, SystemRandom())


def test_the_analyzer_refuses_what_no_client_sends(example: Example) -> None:
    mechanism = example.mechanism
    decode = decoder(Question("q", mechanism), 0.5)
    good = mechanism.report_bytes
    wrong = [b"", bytes(good - 1), bytes(good + 1)]
    if isinstance(mechanism, ScalarMechanism):
        low, high = mechanism.report_range
        wrong += [mechanism.encode_report(low - 1), mechanism.encode_report(high + 1)]
    else:
        wrong += [mechanism.encode_report(np.full(TASK.dimension, number)) for number in (math.nan, math.inf, 1e30)]
    for plaintext in wrong:
        with pytest.raises(ValueError, match="report"):
            decode(plaintext)


def test_what_people_run_is_read_back_from_a_certificate(example: Example) -> None:
    randomizer = randomizer_of(example.mechanism)
    assert stated_randomizer([randomizer.statement]) == randomizer
    assert describe_device_step(example.mechanism.kind, "your", records=4)


def test_what_clients_report_is_estimated_and_certified(example: Example) -> None:
    """Half of the clients have the first value and half the last; an estimate is within 7 of its standard errors."""
    question = Question("q", example.mechanism)
    decode, users = decoder(question, 1.0), 400
    values = [example.values[0]] * (users // 2) + [example.values[-1]] * (users // 2)
    sent = [question.mechanism.encode_report(randomize(question, value, 1.0, SystemRandom())) for value in values]
    answer = estimate(question, [decode(plaintext) for plaintext in sent], [(1.0, users)])
    publication = pb.Publication()
    answer.publish(publication)
    if question.mechanism.task is not None:
        estimated, error = np.frombuffer(publication.vector, dtype="<f4"), publication.vector_standard_error
        truth = np.mean([np.atleast_2d(value).mean(axis=0) for value in values], axis=0)
        width = TASK.clipping_norm
    else:
        estimated = np.array([value.estimate for value in publication.values])
        error = max(value.standard_error for value in publication.values)
        categories = len(question.mechanism.categories)
        truth = np.array([values.count(category) / users for category in range(categories)] or [np.mean(values)])
        if isinstance(question.mechanism, MultipleChoice):
            truth = np.array([np.mean([value >> option & 1 for value in values]) for option in range(categories)])
        width = max(example.values) - min(example.values) if not categories else 1.0
    assert np.abs(estimated - truth).max() < 7 * error
    budgets = Budgets.from_tiers([(1.0, users, question.mechanism.budget_delta)])
    randomizer = randomizer_of(question.mechanism)
    certificate = certify(budgets, randomizer, delta=1e-6, attack=False)
    assert certificate.grade is Grade.CERTIFIED
    assert 0 < certificate.epsilon <= 1.0
    # What the planner promises is what the analyzer states: the same noise, seen from two roles.
    assert 0.9 < error / (width * standard_error(budgets, randomizer)) < 1.2


def test_the_accountant_describes_what_the_clients_run(example: Example) -> None:
    mechanism, randomizer = example.mechanism, randomizer_of(example.mechanism)
    assert randomizer.kind == mechanism.kind
    assert randomizer.statement
    assert randomizer.num_report_values == mechanism.num_report_values
    assert randomizer.spends_local_delta == (mechanism.budget_delta > 0)
    # The name that a certificate prints is one that `certify` takes; a lattice is left out of it.
    named = randomizer_from_name(randomizer.name)
    assert (named.kind, named.name) == (randomizer.kind, randomizer.name)
    for name in ("k", "lattice"):
        assert getattr(randomizer, name, None) == getattr(mechanism, name, None)
    if mechanism.task is not None:
        assert vars(randomizer)["dimension"] == mechanism.task.dimension


def test_an_attack_is_there_and_stays_below_the_certificate(example: Example) -> None:
    randomizer = randomizer_of(example.mechanism)
    budgets = Budgets.from_tiers([(1.0, 200, example.mechanism.budget_delta)])
    certified = certify(budgets, randomizer, delta=1e-4, attack=False).epsilon
    if is_attackable(randomizer):
        assert 0 < lower_bound(budgets, randomizer, delta=1e-4).epsilon <= certified
    else:
        assert randomizer.no_attack
        with pytest.raises(ValueError, match=randomizer.no_attack):
            lower_bound(budgets, randomizer, delta=1e-4)


def test_every_parameter_is_described_and_a_value_can_be_written(example: Example) -> None:
    if example.mechanism.form is not Form.VECTOR:
        assert all(example.mechanism.describe(field.name) for field in fields(example.mechanism))
        assert example.mechanism.parse_value(example.text) == example.values[-1]
    else:
        with pytest.raises(ValueError, match="croupier train"):
            example.mechanism.parse_value("1")
