"""Which mechanism for a mean: the remark of a certificate, and both of them beside a plan."""

from __future__ import annotations

import pytest

import croupier
from croupier.accountant.mechanism_choice import REMARKS
from croupier.protocol.codes import ProofStep
from croupier.protocol.statements import Statement


def remarks(budgets: list[tuple[float, int]], randomizer: str) -> list[Statement[ProofStep]]:
    certificate = croupier.certify(budgets, randomizer, delta=1e-6)
    return [step for tier in certificate.tiers for step in tier.steps if step.code in REMARKS]


@pytest.mark.parametrize(
    ("budgets", "randomizer", "better"),
    [
        ([(0.1, 9_000), (3.0, 1_000)], "laplace", (ProofStep.ONEBIT_IS_BETTER, 10)),
        ([(3.0, 10_000)], "onebit", (ProofStep.LAPLACE_IS_BETTER, 1.4)),
        ([(3.0, 10_000)], "laplace", None),
        ([(0.5, 10_000)], "onebit", None),
        ([(1.0, 10_000)], "rr", None),
    ],
)
def test_a_certificate_remarks_on_a_much_better_mechanism(
    budgets: list[tuple[float, int]], randomizer: str, better: tuple[ProofStep, float] | None
) -> None:
    remarked = remarks(budgets, randomizer)
    if better is None:
        assert remarked == []
    else:
        (said,) = remarked
        assert said.code == better[0]
        assert dict(said.parameters)["times"] == pytest.approx(better[1], rel=0.1)


@pytest.mark.slow
def test_a_plan_compares_both_for_a_mean() -> None:
    planned = croupier.plan("laplace", budgets=[(0.5, 1_000), (1.0, 9_000)], delta=1e-6)
    own, other = planned.for_a_mean
    assert (own.randomizer.name, other.randomizer.name) == ("laplace", "onebit")
    assert own.epsilon == planned.certificate.epsilon
    assert own.standard_error == planned.standard_error
    assert other.epsilon == croupier.certify([(0.5, 1_000), (1.0, 9_000)], "onebit", delta=1e-6).epsilon
    assert own.product > other.product
    assert croupier.plan("rr", budgets=[(1.0, 1_000)], delta=1e-6).for_a_mean == ()
