"""Which mechanism for a mean: the remark of a certificate, and both of them beside a plan."""

from __future__ import annotations

import pytest

import croupier
from croupier.accountant.mechanism_choice import REMARK


def remarks(budgets: list[tuple[float, int]], randomizer: str) -> list[str]:
    found = croupier.certify(budgets, randomizer, delta=1e-6)
    return [step.removeprefix(REMARK) for step in found.steps if step.startswith(REMARK)]


@pytest.mark.parametrize(
    ("budgets", "randomizer", "better"),
    [
        ([(0.1, 9_000), (3.0, 1_000)], "laplace", "onebit is 10"),
        ([(3.0, 10_000)], "onebit", "laplace is 1.4"),
        ([(3.0, 10_000)], "laplace", None),
        ([(0.5, 10_000)], "onebit", None),
        ([(1.0, 10_000)], "rr", None),
    ],
)
def test_a_certificate_remarks_on_a_much_better_mechanism(
    budgets: list[tuple[float, int]], randomizer: str, better: str | None
) -> None:
    found = remarks(budgets, randomizer)
    if better is None:
        assert found == []
    else:
        (said,) = found
        assert better in said
        assert ("budgets do not depend on answers" in said) == (randomizer == "laplace")


def test_a_plan_compares_both_for_a_mean() -> None:
    found = croupier.plan("laplace", budgets=[(0.5, 1_000), (1.0, 9_000)], delta=1e-6)
    own, other = found.for_a_mean
    assert (own.randomizer.name, other.randomizer.name) == ("laplace", "onebit")
    assert own.epsilon == found.certificate.epsilon
    assert own.standard_error == found.standard_error
    assert other.epsilon == croupier.certify([(0.5, 1_000), (1.0, 9_000)], "onebit", delta=1e-6).epsilon
    assert own.product > other.product
    assert croupier.plan("rr", budgets=[(1.0, 1_000)], delta=1e-6).for_a_mean == ()
