"""Rounds in which a client is a silo with many records, and one record is protected: Gaussian means of vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2

from croupier.accountant.numerics.gaussian import gaussian_epsilon
from croupier.client.submission import Participant, send
from croupier.protocol.calibration import unit_sigma
from croupier.protocol.codes import Assumption, Method, Note, RefusalReason
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.mechanisms.gaussian_vector import GaussianVector
from croupier.protocol.mechanisms.hemisphere import Hemisphere
from croupier.protocol.mechanisms.vector_task import VectorTask
from croupier.protocol.names import RoundId
from croupier.protocol.questions import Question
from croupier.protocol.v1 import messages_pb2 as pb
from tests.support import settings
from tests.support.clients import crafted, seal_prepared
from tests.support.rounds import Table, table
from tests.support.statements import codes, parameters

pytestmark = pytest.mark.virtual_time

DIMENSION, CLIPPING_NORM, RECORDS, DELTA = 60, 2.0, 25, 1e-5
TASK = VectorTask(DIMENSION, CLIPPING_NORM, "silo", bytes(4 * DIMENSION))
QUESTION = Question("silo", GaussianVector(vector=TASK, local_delta=DELTA, records_per_client=RECORDS))
Matrix = NDArray[np.float64]


def silos(count: int, seed: int) -> list[Matrix]:
    """The vectors of each silo's records, some of them longer than the clipping norm."""
    rng = np.random.default_rng(seed)
    centre = rng.normal(size=DIMENSION) / math.sqrt(DIMENSION)
    return [centre + 0.4 * rng.normal(size=(RECORDS + index % 3, DIMENSION)) for index in range(count)]


def true_mean(data: Sequence[Matrix]) -> Matrix:
    shares = [CLIPPING_NORM / np.maximum(CLIPPING_NORM, np.linalg.norm(rows, axis=1)) for rows in data]
    means = [(rows * share[:, None]).mean(axis=0) for rows, share in zip(data, shares, strict=True)]
    return np.asarray(np.mean(means, axis=0))


async def send_report(at: Table, terms: RoundTerms, report: bytes, epsilon: float) -> None:
    """Plays a client that sends what it likes."""
    (sealed,) = await seal_prepared(at.operator, terms, [crafted(terms, report, epsilon, DELTA)])
    codes = await send(at.channel, terms.round_id, {"one": sealed.submission})
    assert codes == {"one": pb.SUBMISSION_CODE_ACCEPTED}


def published(publication: pb.Publication) -> Matrix:
    return np.frombuffer(publication.vector, dtype="<f4").astype(np.float64)


def assert_close(publication: pb.Publication, truth: Matrix) -> None:
    """All coordinates together; fails by chance with a probability below 1e-6."""
    errors = (published(publication) - truth) / publication.vector_standard_error
    assert chi2.ppf(5e-7, DIMENSION) < float(errors @ errors) < chi2.ppf(1 - 5e-7, DIMENSION)


async def test_forty_silos_of_two_budgets_learn_their_mean_and_protect_a_record(tmp_path: Path) -> None:
    data = silos(40, seed=3)
    maxima = [0.7, 3.0] * 20  # the grid has 0.5, 1 and 2
    async with table(tmp_path, 2) as at:
        terms = await at.operator.open_round(settings(QUESTION))
        report = await at.submit(terms, [Participant(rows, most) for rows, most in zip(data, maxima, strict=True)])
        assert report.accepted == 40
        publication, certificate = await at.finish(terms)
    assert (publication.num_reports, list(publication.drops), list(publication.notes)) == (40, [], [])
    assert_close(publication, true_mean(data))
    sensitivity = 2 * CLIPPING_NORM / RECORDS
    variance = sum(20 * (sensitivity * unit_sigma(epsilon, DELTA)) ** 2 for epsilon in (0.5, 2.0))
    assert publication.vector_standard_error == pytest.approx(math.sqrt(variance) / 40, rel=2e-6)

    assert certificate.granted
    assert (certificate.grade, certificate.epsilon, certificate.delta) == ("CERTIFIED", 2.0, 1e-4)
    assert codes(certificate.method) == [Method.LOCAL_BUDGET, Method.ONE_RECORD]
    assert [(tier.local_epsilon, tier.local_delta, tier.count, tier.epsilon) for tier in certificate.tiers] == [
        (0.5, DELTA, 20, 0.5),
        (2.0, DELTA, 20, 2.0),
    ]
    assert certificate.everyone_else_colludes_epsilon == 2.0
    assert not certificate.HasField("lower_bound_epsilon")
    stated = codes(certificate.assumptions)
    for code in (
        Assumption.RECORD_LEVEL,
        Assumption.RECORDS_PUBLIC,
        Assumption.TIERS_VISIBLE,
        Assumption.PERSON_UNPROTECTED,
    ):
        assert code in stated
    assert parameters(certificate.assumptions, Assumption("runs-record-gaussian"))["records"] == 25
    assert Assumption.REPLACE_ONE not in stated
    assert [(row.name, row.grade) for row in certificate.comparison] == [("GSPA Thm 2", "ASYMPTOTIC")]
    assert 0 < certificate.comparison[0].epsilon < 2.0


async def test_reports_that_no_honest_silo_sends_are_dropped_and_counted(tmp_path: Path) -> None:
    """Too long, not a number, and infinite; the mean stays that of the others."""
    data = silos(40, seed=4)
    async with table(tmp_path, 1) as at:
        terms = await at.operator.open_round(settings(QUESTION))
        await at.submit(terms, [Participant(rows, 1.0) for rows in data])
        far, nowhere, endless = np.zeros((3, DIMENSION), dtype="<f4")
        far[0], nowhere[7], endless[9] = 1e6, math.nan, math.inf
        for bad in (far, nowhere, endless):
            await send_report(at, terms, bad.tobytes(), 1.0)
        publication, certificate = await at.finish(terms)
    assert (certificate.num_users, publication.num_reports) == (43, 40)
    assert [(drop.reason, drop.count) for drop in publication.drops] == [("malformed", 3)]
    assert parameters(publication.notes, Note.TIERS_SCALED) == {"reports": 40, "budgets": 43}
    assert_close(publication, true_mean(data))


@pytest.mark.slow
async def test_the_ledger_composes_rounds_of_silos_as_gaussian_mechanisms(tmp_path: Path) -> None:
    """By adding, a second round would reach epsilon 1 and delta 2e-4, of which 1e-4 are allowed."""
    mu = 1 / unit_sigma(0.5, DELTA)
    two, three = (gaussian_epsilon(math.sqrt(rounds) * mu, 1e-4) for rounds in (2, 3))
    limit = f"\n[privacy_limit]\ntotal_epsilon = {(two + three) / 2}\ntotal_delta = 1e-4\n"
    async with table(tmp_path, 1, limit) as at:
        granted = []
        for number in range(3):
            terms = await at.operator.open_round(settings(QUESTION), RoundId(f"silos-{number}"))
            await at.submit(terms, [Participant(rows, 0.5) for rows in silos(20, seed=number)])
            publication, certificate = await at.finish(terms)
            granted.append(certificate.granted)
    assert granted == [True, True, False]
    assert codes(certificate.refusals)[-1] == RefusalReason.LEDGER_LIMIT
    assert not publication.vector


async def test_dropped_reports_do_not_shrink_the_mean_of_unit_vectors(tmp_path: Path) -> None:
    """Their budgets are counted among those of the certificate; the estimate took them for reports."""
    task = VectorTask(2, 1.0, "arrow", bytes(8))
    async with table(tmp_path, 1) as at:
        terms = await at.operator.open_round(settings(Question("arrow", Hemisphere(vector=task))))
        await at.submit(terms, [Participant(np.array([1.0, 0.0]), 2.0)] * 60)
        liars = await seal_prepared(at.operator, terms, [crafted(terms, bytes(8), 2.0) for _ in range(60)])
        await send(at.channel, terms.round_id, {str(i): submission.submission for i, submission in enumerate(liars)})
        publication, certificate = await at.finish(terms)
    assert (certificate.num_users, publication.num_reports) == (120, 60)
    assert [(drop.reason, drop.count) for drop in publication.drops] == [("malformed", 60)]
    # 60 reports of one tier: 1 / (sqrt(2 * 60)) * pi/2 / tanh(1).
    expected = math.pi / 2 / math.tanh(1.0) / math.sqrt(2 * 60)
    assert publication.vector_standard_error == pytest.approx(expected, rel=1e-6)
