"""Rounds in which clients answer one after the other: which answer, which count, what survives, which are kept out."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from croupier import Budgets, certify
from croupier.accountant.mechanisms.hemisphere import HemisphereMechanism
from croupier.accountant.rounds.round_guarantee import certify_into
from croupier.client.randomizers import randomize
from croupier.protocol.certificates import method_of
from croupier.protocol.codes import Assumption, RefusalReason
from croupier.protocol.mechanisms.hemisphere import Hemisphere
from croupier.protocol.names import PrivateKey, PublicKey
from croupier.protocol.questions import Question
from croupier.protocol.randomness import RandomSource
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.shuffler.attendance import MAX_ATTENDANCES
from croupier.shuffler.sequential_order import secret_order
from tests.support import make_kit
from tests.support.sequential import DIMENSION, Person, gathered, laid, num_present, people, settings, task
from tests.support.statements import codes
from tests.support.virtual_time import virtual_loop

pytestmark = pytest.mark.virtual_time


def certified(tiers: list[tuple[float, int]], dishonest: int) -> float:
    return certify(
        Budgets.from_tiers(tiers),
        HemisphereMechanism(dimension=DIMENSION),
        delta=1e-3,
        dishonest=dishonest,
        adaptive_order=True,
    ).epsilon


@pytest.mark.slow
@pytest.mark.parametrize("hops", [1, 3])
async def test_each_client_answers_once_about_the_model_of_those_before(tmp_path: Path, hops: int) -> None:
    async with gathered(tmp_path, 12, hops=hops) as (table, group, terms):
        taken = await table.take(terms, group)
        publication, certificate = await table.result(terms)
        assert taken.answered == set(group)
        assert (taken.report.num_answers, taken.report.num_skipped) == (12, 0)
        assert [len(person.asked) for person in group.values()] == [1] * 12
        models = [person.asked[0] for person in group.values()]
        assert len(set(models)) == 12  # each saw the model after another number of steps
        assert np.zeros(DIMENSION, dtype="<f4").tobytes() in models
        assert publication.vector not in models
        length = np.linalg.norm(np.frombuffer(publication.vector, dtype="<f4"))
        assert 0 < length < 12 * 0.01 * 4  # twelve steps, each of the same length
        assert certificate.num_answers == publication.num_reports == 12
        assert certificate.epsilon == certified([(2.0, 6), (4.0, 6)], 0)
        assert Assumption.HONEST_FIRST_SHUFFLER in codes(certificate.assumptions)
        assert Assumption.UNIFORM_ORDER not in codes(certificate.assumptions)
        for name in table.inside.running:
            keys = await table.inside.running[name].service.store.run("look", lambda tx: tx.keys(terms.round_id))
            assert keys == {}


async def test_an_answer_spends_what_was_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It spent what the caller named when it was asked, however little had been submitted, counted and certified."""
    spent = []

    def noted(question: Question, value: Any, epsilon: float, source: RandomSource) -> Any:
        spent.append(epsilon)
        return randomize(question, value, epsilon, source)

    async with gathered(tmp_path) as (table, group, terms):
        monkeypatch.setattr("croupier.client.submission.randomize", noted)
        for person in group.values():
            person.max_local_epsilon = 4.0
        await table.take(terms, group)
    assert sorted(spent) == [2.0] * 4 + [4.0] * 4


@pytest.mark.slow
async def test_a_vanished_client_is_skipped_and_adds_no_cover(tmp_path: Path) -> None:
    async with gathered(tmp_path, 12) as (table, group, terms):
        there = dict(list(group.items())[:9])
        taken = await table.take(terms, there)
        publication, certificate = await table.result(terms)
        assert (taken.report.num_answers, taken.report.num_skipped) == (9, 3)
        assert (certificate.num_users, certificate.num_answers, certificate.dishonest) == (12, 9, 3)
        assert publication.num_reports == 9
        assert certificate.epsilon == certified([(2.0, 6), (4.0, 6)], 3) > certified([(2.0, 6), (4.0, 6)], 0)
        assert Assumption.INDEPENDENT_ABSENCE in codes(certificate.assumptions)
        # Someone who knows who is absent when would know more of the order: the ledger keeps the local budgets.
        assert await table.charged() == [2.0, 4.0]


async def test_no_client_is_asked_in_a_round_that_is_not_granted(tmp_path: Path) -> None:
    async with laid(tmp_path) as table:
        group = people(12)
        # It is judged for the fewest that may answer, of whom 4 are missing, and not for more.
        limit = certified([(2.0, 6), (4.0, 6)], 3)
        assert limit < certified([(2.0, 6), (4.0, 6)], 4)
        terms = await table.gather(group, settings(task(), epsilon_max=limit))
        taken = await table.take(terms, group)
        publication, certificate = await table.result(terms)
        assert not certificate.granted
        assert not publication.vector
        assert not taken.answered
        assert [person.asked for person in group.values()] == [[]] * 12


async def test_when_too_many_are_missing_nothing_is_published(tmp_path: Path) -> None:
    async with laid(tmp_path) as table:
        group = people(14)
        limit = certified([(2.0, 7), (4.0, 7)], 6)
        terms = await table.gather(group, settings(task(), epsilon_max=limit))
        silent, *others = list(group)[:8]

        loop = virtual_loop()

        def sleeps(_: bytes) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
            loop.sleep_in_thread(2.0)
            return np.zeros(DIMENSION)

        asleep = {
            silent: Person(group[silent].point, group[silent].max_local_epsilon, group[silent].key, gradient=sleeps)
        }
        report = (
            await asyncio.gather(table.take(terms, {name: group[name] for name in others}), table.take(terms, asleep))
        )[0].report
        publication, certificate = await table.result(terms)
        assert report.num_skipped == 7 or report.num_answers == 7
        assert certificate.num_answers == report.num_answers
        assert certificate.epsilon == certified([(2.0, 7), (4.0, 7)], 14 - report.num_answers) > limit
        assert not certificate.granted
        assert codes(certificate.refusals) == [RefusalReason.EPSILON_ABOVE_LIMIT]
        assert not publication.vector
        # What has been learnt has been spent.
        # Someone who knows who is absent when would know more of the order: the ledger keeps the local budgets.
        assert await table.charged() == [2.0, 4.0]


async def test_who_has_no_gradient_answers_as_if_it_were_zero(tmp_path: Path) -> None:
    async with gathered(tmp_path, 12) as (table, group, terms):

        def broken(_: bytes) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
            raise RuntimeError("no data here")

        group["user 3"].gradient = broken
        group["user 4"].gradient = lambda _: np.full(DIMENSION, np.nan)
        group["user 5"].gradient = lambda _: np.zeros(DIMENSION + 1)
        taken = await table.take(terms, group)
        assert taken.report.num_answers == 12
        assert taken.without_gradient == {
            "user 3": "no data here",
            "user 4": "3 of the vector's 3 entries are not finite numbers",
            "user 5": "the gradient has 4 entries; this round takes 3",
        }


async def test_the_operator_may_end_the_asking(tmp_path: Path) -> None:
    async with gathered(tmp_path, 12, chosen=settings(task(), needed=2)) as (table, group, terms):
        first_answered, several = asyncio.Event(), asyncio.Event()

        def progress(_: int) -> None:
            (several if first_answered.is_set() else first_answered).set()

        taking = asyncio.create_task(table.take(terms, group, progress=progress))
        await asyncio.wait_for(first_answered.wait(), 60)
        assert (await table.operator.close_round(terms.round_id)).state == pb.ROUND_STATE_SEQUENTIAL
        await asyncio.wait_for(several.wait(), 60)  # to close again has changed nothing
        await table.operator.close_round(terms.round_id, end_sequential=True)
        taken = await taking
        _, certificate = await table.result(terms)
        assert 2 <= taken.report.num_answers < 12
        assert taken.report.num_skipped == 0
        assert certificate.dishonest == 12 - taken.report.num_answers


async def test_the_order_is_that_of_a_secret_key_and_uniform() -> None:
    clients = [bytes([index]) * 32 for index in range(4)]
    orders = {
        tuple(secret_order(list(map(PublicKey, clients)), PrivateKey(bytes([key % 256, key // 256]) * 16)))
        for key in range(400)
    }
    assert len(orders) == 24
    assert secret_order(list(map(PublicKey, clients)), PrivateKey(bytes(32))) == secret_order(
        list(map(PublicKey, clients[::-1])), PrivateKey(bytes(32))
    )


@pytest.mark.slow
async def test_a_gateway_attends_for_more_users_than_fit_a_message(tmp_path: Path) -> None:
    count = MAX_ATTENDANCES + 3
    chosen = settings(task(period_ms=1), needed=count)
    async with gathered(tmp_path, count, chosen, hops=1) as (table, group, terms):
        taking = asyncio.create_task(table.take(terms, group))
        while num_present(table.first, terms.round_id) < len(group):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        await table.operator.close_round(terms.round_id, end_sequential=True)
        await taking
        await table.result(terms)


TIERS = [(0.5, 9000), (2.0, 1000)]


@pytest.mark.parametrize("epsilon_max", [1.0, 0.05])
@pytest.mark.parametrize("is_sequential", [True, False])
def test_a_sequential_round_keeps_the_blanket_and_a_batch_does_not(is_sequential: bool, epsilon_max: float) -> None:
    question = task()
    mechanism = question.mechanism
    assert isinstance(mechanism, Hemisphere)
    if not is_sequential:
        question = Question("batch", replace(mechanism, vector=replace(mechanism.vector, sequential=None)))
    kit = make_kit(question=question, epsilon_max=epsilon_max)
    message = pb.Certificate(num_users=10_000)
    entries = certify_into(message, kit.terms, TIERS)
    randomizer = HemisphereMechanism(dimension=DIMENSION)
    expected, blanket = (
        certify(Budgets.from_tiers(TIERS), randomizer, delta=1e-6, attack=False, bounds=bounds)
        for bounds in ("blanket" if is_sequential else "all", "blanket")
    )
    assert message.epsilon == expected.epsilon == max(entry.epsilon for entry in entries)
    assert method_of(message) == expected.method
    assert (message.epsilon == blanket.epsilon) == is_sequential
    # What would have been granted is said by the same bound.
    assert len(message.refusals) == (epsilon_max < 0.1)
