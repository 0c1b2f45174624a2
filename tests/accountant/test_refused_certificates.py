"""A refused certificate says what the round had to meet, and nothing that depends on the budgets."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from croupier.accountant.rounds import round_certificate
from croupier.accountant.rounds.found import BudgetsFound
from croupier.accountant.rounds.round_guarantee import certify_into
from croupier.protocol.certificates import certificate_json, refusals_of
from croupier.protocol.codes import RefusalReason
from croupier.protocol.mechanisms.base import Mechanism
from croupier.protocol.mechanisms.gaussian import Gaussian
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.laplace import Laplace
from croupier.protocol.mechanisms.rr import RandomizedResponse
from croupier.protocol.questions import Question
from croupier.protocol.statements import Statement
from croupier.protocol.v1 import messages_pb2 as pb
from tests.support import make_kit
from tests.support.accounting import certified_round
from tests.support.statements import parameters

GRID = (0.5, 1.0, 2.0)


def refused(
    budgets: Mapping[float, int],
    mechanism: Mechanism | None = None,
    *,
    off_grid: int = 0,
    reports: int = 60,
    tickets: int = 60,
    **policy: Any,
) -> pb.Certificate:
    """Returns the certificate of a round with these budgets, which has to be a refusal."""
    policy = {"min_batch_size": 20, "epsilon_max": 0.01, "delta": 1e-4} | policy
    kit = make_kit(question=Question("q", mechanism or RandomizedResponse()), **policy)
    message, _ = certified_round(kit.terms, BudgetsFound(Counter(budgets), off_grid, {}), reports, tickets)
    assert not message.granted
    assert math.isinf(message.epsilon)
    message.ClearField("manifest_hash")  # each round has keys of its own
    return message


@pytest.mark.parametrize(
    "mechanism", [RandomizedResponse(), KaryResponse(4), pytest.param(Laplace(0.0, 1.0), marks=pytest.mark.slow)]
)
def test_a_refusal_is_the_same_whatever_the_budgets(mechanism: Mechanism) -> None:
    """Reproduction: tiers, epsilon, an attack, and advice that was computed from the budgets."""
    lost = {"tickets": 70, "reports": 65}
    shown = [
        refused(budgets, mechanism, off_grid=off_grid, **lost)
        for budgets, off_grid in (
            ({1.0: 60}, 0),
            ({0.5: 59, 2.0: 1}, 0),
            ({0.5: 30, 1.0: 20, 2.0: 8}, 2),
            ({2.0: 20}, 40),
        )
    ]
    assert all(certificate == shown[0] for certificate in shown)
    assert (shown[0].num_users, shown[0].invalid_budgets, shown[0].unknown_budgets) == (0, 0, 10)


def test_the_document_of_a_refusal_is_strict_json() -> None:
    """Reproduction: its epsilon was Infinity, which JSON has no word for."""
    document = json.loads(json.dumps(certificate_json(refused({1.0: 60})), allow_nan=False))
    assert (document["granted"], document["epsilon"], document["tiers"]) == (False, None, [])


def test_too_few_budgets_are_refused_before_anything_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("this depends on the budgets")

    monkeypatch.setattr(round_certificate, "certify_into", never)
    few = refused({2.0: 18}, off_grid=1, epsilon_max=4.0)
    assert refusals_of(few) == (Statement.of(RefusalReason.TOO_FEW_BUDGETS, budgets=19, least=20),)
    assert few.unknown_budgets == 41
    both = refused({2.0: 1}, reports=19)
    assert refusals_of(both) == (
        Statement.of(RefusalReason.TOO_FEW_REPORTS, reports=19, least=20),
        Statement.of(RefusalReason.TOO_FEW_BUDGETS, budgets=1, least=20),
    )
    assert refusals_of(refused({}, off_grid=20)) == (Statement.of(RefusalReason.NO_BUDGET_ON_GRID),)


def test_a_refusal_names_every_limit_of_the_round_and_no_other() -> None:
    unmet = Statement.of(RefusalReason.LIMITS_NOT_MET)
    alone = refusals_of(refused({1.0: 60}))
    assert alone == (unmet, Statement.of(RefusalReason.EPSILON_LIMIT, most=0.01))
    limit = pb.PrivacyLimit(total_epsilon=1.0, total_delta=1e-3)
    several = refused({1.0: 60}, dishonest=4, privacy_limit=limit, reports=55, tickets=61)
    assert refusals_of(several) == (
        unmet,
        Statement.of(RefusalReason.EPSILON_LIMIT, most=0.01),
        Statement.of(RefusalReason.LEDGER_LIMIT, epsilon=1.0, delta=1e-3),
        Statement.of(RefusalReason.MESSAGES_LOST, tickets=61, reports=6, budgets=1),
    )
    noise = refusals_of(refused({1.0: 60}, Gaussian(0.0, 1.0, local_delta=1e-5), delta=1e-8))
    assert noise[1:] == (
        Statement.of(RefusalReason.DELTA_LIMIT, most=1e-8),
        Statement.of(RefusalReason.EPSILON_LIMIT, most=0.01),
    )


def test_the_last_certificate_of_answers_says_what_is_not_met() -> None:
    """Reproduction: the refusal said 'certified delta is 1e-05', and neither why nor what to do."""
    kit = make_kit(question=Question("q", Gaussian(0.0, 1.0, local_delta=1e-5)))
    kit.survey.delta = 1e-8
    message = pb.Certificate()
    certify_into(message, kit.terms, [(1.0, 5)])
    assert parameters(message.refusals, RefusalReason.DELTA_ABOVE_LIMIT) == {"delta": 1e-5, "most": 1e-8}
