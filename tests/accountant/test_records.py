"""Certificates for one record of a client with many: local, and impossible to take for a user's."""

from __future__ import annotations

import pytest

from croupier import Budgets, certify
from croupier.accountant.guarantees import Grade
from croupier.accountant.mechanism_choice import standard_error
from croupier.accountant.mechanisms.gaussian_vector import RecordGaussian
from croupier.protocol.calibration import unit_sigma
from croupier.protocol.codes import Assumption, Method
from croupier.protocol.statements import Statement
from tests.support.statements import codes, parameters


@pytest.mark.parametrize("dimension", [1, 60])
def test_gaussian_means_of_records_are_certified_for_one_record(dimension: int) -> None:
    randomizer = RecordGaussian(dimension=dimension, records=600)
    certificate = certify(Budgets.from_tiers([(0.5, 20, 1e-5), (2.0, 80, 1e-5)]), randomizer, delta=1e-5)
    assert [(tier.local_epsilon, tier.epsilon) for tier in certificate.tiers] == [(0.5, 0.5), (2.0, 2.0)]
    assert (certificate.epsilon, certificate.delta, certificate.grade) == (2.0, 1e-5, Grade.CERTIFIED)
    local = certificate.everyone_else_colludes
    assert certificate.method == local.method
    assert codes(local.method) == [Method.LOCAL_BUDGET, Method.ONE_RECORD]
    assert (local.epsilon, local.delta) == (2.0, 1e-5)
    assert certificate.assumptions == randomizer.local_assumptions  # none about shufflers
    assert certificate.assumptions[0].code is Assumption.RECORD_LEVEL
    assert parameters(certificate.assumptions, Assumption("runs-record-gaussian"))["records"] == 600
    (gspa,) = certificate.comparison
    assert (gspa.name, gspa.grade) == ("GSPA Thm 2", Grade.ASYMPTOTIC)
    assert gspa.epsilon is not None
    assert certificate.lower_bound is None
    three = certify(Budgets.from_tiers([(0.5, 20, 1e-6)]), randomizer, delta=3e-6, rounds=3)
    assert (three.epsilon, three.delta) == (1.5, 3e-6)
    assert codes(three.method) == [Method.LOCAL_BUDGET, Method.BASIC_COMPOSITION, Method.ONE_RECORD]
    assert three.assumptions[-2:] == (
        Statement.of(Assumption.FRESH_NOISE, rounds=3),
        Statement.of(Assumption.FIXED_TERMS),
    )


def test_the_noise_of_means_of_records_falls_with_their_number() -> None:
    few, many = (RecordGaussian(dimension=5, records=count) for count in (10, 1000))
    budgets = Budgets.from_tiers([(1.0, 100, 1e-6)])
    assert standard_error(budgets, few) == pytest.approx(2 * unit_sigma(1.0, 1e-6) / 10 / 10, rel=1e-6)
    assert standard_error(budgets, many) == pytest.approx(standard_error(budgets, few) / 100, rel=1e-9)
    with pytest.raises(ValueError, match="dimension is 0"):
        RecordGaussian(dimension=0, records=1)
    with pytest.raises(ValueError, match="records is 0"):
        RecordGaussian(dimension=1, records=0)
