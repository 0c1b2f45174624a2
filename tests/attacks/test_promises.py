"""Promises to clients, collectors and operators that do not rest on the good will of the one who asks.

A client keeps to its own limits, a result has one reader, a key that was lost ends, and a round does.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from croupier.client.limits import Limits, SpentHere, write_limits
from croupier.client.one_answer import Respondent
from croupier.client.outbox import Outbox
from croupier.client.submission import Participant, new_client_key, prepare_one
from croupier.client.tickets import get_tickets
from croupier.deploy.local.clients import client_of
from croupier.operator.roster import enrolling
from croupier.operator.round_settings import RoundSettings
from croupier.protocol.collector import collector_key_lines, open_result, read_collector_key
from croupier.protocol.envelope import KeyPair
from croupier.protocol.errors import EnvelopeError, OtherPersonError
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import PublicKey
from croupier.protocol.onion import Onion
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from tests.support import SUITE, settings
from tests.support.arena import Arena, arena
from tests.support.clients import seal_prepared, stranger, submissions_of
from tests.support.clocks import DAY_S
from tests.support.messages import naming

pytestmark = pytest.mark.virtual_time
UNKNOWN, ACCEPTED = pb.SUBMISSION_CODE_UNKNOWN_CLIENT, pb.SUBMISSION_CODE_ACCEPTED


# ---------------------------------------------------------------- more than a client agreed to


async def answer(deployment: Arena, terms: RoundTerms, epsilon: float = 1.0, *, enrol: bool = True) -> str:
    """The person of this device answers, as `croupier submit --enrol` does; returns the services' code."""
    inside = deployment.inside
    enrols = enrolling(inside.directory, inside.transport) if enrol else None
    async with client_of(inside.directory, transport=inside.transport) as client:
        asked = await client.round(terms.round_id)
        return (await asked.answer("1", epsilon, Respondent(new_key=True), enrols)).code


async def spent_here(directory: Path) -> SpentHere:
    async with client_of(directory) as client:
        return client.spent


@contextmanager
def what_is_randomized() -> Iterator[list[Any]]:
    """Counts the reports that this process randomizes."""
    made: list[Any] = []

    def counted(*arguments: Any) -> Any:
        made.append(arguments)
        return prepare_one(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("croupier.client.round_client.prepare_one", counted)
        yield made


async def test_a_client_keeps_to_its_own_limits_whatever_a_round_asks(tmp_path: Path) -> None:
    async with arena(tmp_path, 1) as deployment:
        directory = deployment.inside.directory
        limits = Limits(lifetime_epsilon=2.0, max_local_epsilon=1.0, epsilon_max=4.0, min_batch_size=20)
        write_limits(directory / "client" / "limits.toml", limits)
        for epsilon, greedy, why in (
            (1.0, settings(epsilon_max=5.0), "epsilon_max.*5.*4"),
            (1.0, settings(min_batch_size=2), "min_batch_size.*2.*20"),
            (2.0, settings(), "ε.*2.*1"),
        ):
            terms = await deployment.operator.open_round(greedy)
            with what_is_randomized() as made, pytest.raises(ValueError, match=why):
                await answer(deployment, terms, epsilon)
            assert made == []
            for name in ("shuffler-1", "accountant"):  # nobody has heard of the client, not even for its enrolment
                store = deployment.service(name).store
                assert await store.run("look", lambda tx: tx.num_submissions(terms.round_id)) == 0  # noqa: B023
                assert await store.run("look", lambda tx: tx.client_keys()) == set()
        for _ in range(2):
            assert await answer(deployment, await deployment.operator.open_round(settings())) == "ACCEPTED"
        third = await deployment.operator.open_round(settings())
        with pytest.raises(ValueError, match=naming(2, 2, "2.5")):
            await answer(deployment, third, 0.5)


async def test_an_answer_counts_once_when_the_client_dies_or_sends_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with arena(tmp_path, 1) as deployment:
        directory = deployment.inside.directory
        write_limits(directory / "client" / "limits.toml", Limits(lifetime_epsilon=1.0))
        first = await deployment.operator.open_round(settings())
        other = await deployment.operator.open_round(settings())

        async def die(*_: Any) -> Any:
            raise RuntimeError("killed")

        for step in ("seal_prepared", "send"):
            with monkeypatch.context() as patch:
                patch.setattr(f"croupier.client.round_client.{step}", die)
                patch.setattr(Outbox, "withdraw", lambda *_: None)  # nothing runs after a death
                with pytest.raises(RuntimeError, match="killed"):
                    await answer(deployment, first)
            assert (await spent_here(directory)).local_epsilon == 1.0
            with pytest.raises(ValueError, match=naming(2, 1)):
                await answer(deployment, other)
        assert [await answer(deployment, first) for _ in range(2)] == ["ACCEPTED", "ALREADY_ANSWERED"]
        spent = await spent_here(directory)
        assert (spent.local_epsilon, spent.rounds) == (1.0, 1)


async def test_a_client_that_is_not_admitted_has_spent_nothing(tmp_path: Path) -> None:
    async with arena(tmp_path, 1) as deployment:
        terms = await deployment.operator.open_round(settings())
        assert await answer(deployment, terms, enrol=False) == "UNKNOWN_CLIENT"
        assert (await spent_here(deployment.inside.directory)).local_epsilon == 0.0


async def test_one_person_in_several_processes_at_once_answers_once(tmp_path: Path) -> None:
    """Each process looked for other answers before any had sealed one, and of four all were counted."""
    async with arena(tmp_path, 1) as deployment:
        terms = await deployment.operator.open_round(settings())
        answers = (answer(deployment, terms) for _ in range(4))
        done = await asyncio.gather(*answers, return_exceptions=True)
        refused = [code for code in done if code != "ACCEPTED"]
        assert len(refused) == 3
        for error in refused:
            assert isinstance(error, OtherPersonError)
            assert "answers once" in str(error)
        store = deployment.service("shuffler-1").store
        assert await store.run("look", lambda tx: tx.num_submissions(terms.round_id)) == 1
        assert (await spent_here(deployment.inside.directory)).local_epsilon == 1.0
        assert await answer(deployment, terms) == "ALREADY_ANSWERED"


# ---------------------------------------------------------------- a result with one reader


def everything_in(directory: Path) -> bytes:
    return b"".join(file.read_bytes() for file in directory.rglob("*") if file.is_file())


async def test_no_disk_and_no_reader_but_the_collector_sees_the_result(tmp_path: Path) -> None:
    """Without a collector, a round's result is in the analyzer's files: that shows that the search works."""
    secret, _ = collector_key_lines(SUITE)
    _, key = read_collector_key(secret)
    _, other = read_collector_key(collector_key_lines(SUITE)[0])
    async with arena(tmp_path, 1) as deployment:
        held_numbers = []
        for collector in (key.public, PublicKey(b"")):
            terms = await deployment.filled(replace(settings(), collector_public_key=collector), 31)
            publication, certificate = await deployment.finish(terms)
            assert certificate.granted
            assert publication.num_reports == 31
            opened = open_result(publication, SUITE, key) if collector else publication
            (value,) = opened.values
            assert value.standard_error > 0
            assert bool(publication.values) is not bool(collector)
            numbers = (value.estimate, value.standard_error, value.confidence_interval.low)
            held = everything_in(tmp_path)
            held_numbers.append([struct.pack("<d", number) in held for number in numbers if number not in (0.0, 1.0)])
            if collector:
                for reader in (other, deployment_key(terms)):
                    with pytest.raises(EnvelopeError):
                        open_result(publication, SUITE, reader)
        assert not any(held_numbers[0])
        assert all(held_numbers[1])
        assert len(held_numbers[1]) >= 2


def deployment_key(terms: RoundTerms) -> KeyPair:
    """Returns a pair with the collector's public half, and a private one that a service could have made."""
    _, pair = read_collector_key(collector_key_lines(SUITE)[0])
    return replace(pair, public=PublicKey(terms.shared.collector_public_key))


# ---------------------------------------------------------------- keys that are lost or stolen


async def test_a_revoked_client_is_a_stranger_to_every_service_at_once(tmp_path: Path) -> None:
    async with arena(tmp_path, 1) as deployment:
        operator, key = deployment.operator, new_client_key()
        before, terms = await operator.open_round(settings()), await operator.open_round(settings())
        thief = prepare_one(terms, Onion(terms), Participant(1, 1.0, key))
        (earlier,) = submissions_of(await seal_prepared(operator, before, [thief]))  # enrols the key
        assert await operator.revoke([thief.client_key]) == {"accountant": 1, "shuffler-1": 1}
        assert await operator.revoke([thief.client_key]) == {"accountant": 0, "shuffler-1": 0}
        await operator.enrol([thief.client_key])  # does not bring it back
        for _ in range(2):
            async with operator.client_channel("accountant") as accountant:
                refused = (await get_tickets(accountant, terms, {"thief": thief})).refused
            assert refused == {"thief": UNKNOWN}
            assert await deployment.submit(before, [earlier, stranger(before)], enrol=False) == [UNKNOWN, UNKNOWN]
            for name in ("shuffler-1", "accountant"):  # it is durable
                await deployment.inside.restart(name)
        told = {
            answer.service: answer.num_revoked
            for answer in await operator.status()
            if isinstance(answer, rpc.StatusResponse)
        }
        assert told == {"shuffler-1": 1, "accountant": 1, "analyzer": 0}


async def test_revocation_leaves_acknowledged_clients_in_their_round(tmp_path: Path) -> None:
    """Else an operator could take away those around a victim, after they have come."""
    async with arena(tmp_path, 1) as deployment:
        terms = await deployment.operator.open_round(settings())
        crowd = await deployment.seal(terms, 25)
        await deployment.admit(terms, crowd)
        await deployment.operator.revoke([PublicKey(member.client_key) for member in crowd[1:]])
        publication, certificate = await deployment.finish(terms)
        assert (publication.num_reports, certificate.num_users, certificate.dishonest) == (25, 25, 0)


# ---------------------------------------------------------------- rounds that are over


def pass_time(deployment: Arena, seconds: float) -> None:
    for name in deployment.inside.running:
        deployment.inside.ahead_s[name] += seconds


def due_in(deployment: Arena, seconds: float, **changes: Any) -> RoundSettings:
    now = deployment.inside.clock.now() + deployment.inside.ahead_s["shuffler-1"]
    return replace(settings(**changes), close_deadline_unix_s=int(now + seconds))


async def test_after_its_deadline_a_round_gives_no_tickets_and_takes_no_reports(tmp_path: Path) -> None:
    async with arena(tmp_path, 1) as deployment:
        terms = await deployment.operator.open_round(due_in(deployment, 3600))
        late = await deployment.seal(terms, 1)
        await deployment.admit(terms, await deployment.seal(terms, 25))
        pass_time(deployment, 3601)
        assert await deployment.submit(terms, late) == [pb.SUBMISSION_CODE_ROUND_CLOSED]
        asking = prepare_one(terms, Onion(terms), Participant(1, 1.0))
        await deployment.operator.enrol([asking.client_key])
        async with deployment.operator.client_channel("accountant") as accountant:
            refused = (await get_tickets(accountant, terms, {"late": asking})).refused
        assert refused == {"late": pb.SUBMISSION_CODE_ROUND_CLOSED}
        publication, _ = await deployment.operator.result(terms.round_id, 60.0)
        assert publication.num_reports == 25


async def test_a_held_round_waits_for_those_that_have_tickets(tmp_path: Path) -> None:
    async with arena(tmp_path, 1) as deployment:
        terms = await deployment.operator.open_round(due_in(deployment, 3600, min_batch_size=26))
        late = await deployment.seal(terms, 1)
        await deployment.admit(terms, await deployment.seal(terms, 25))
        pass_time(deployment, 3601)
        assert (await deployment.operator.close_round(terms.round_id)).state == pb.ROUND_STATE_OPEN
        with pytest.raises(AssertionError, match=f"'0': {pb.SUBMISSION_CODE_ROUND_CLOSED}"):
            await deployment.seal(terms, 1)
        assert await deployment.submit(terms, late) == [pb.SUBMISSION_CODE_ACCEPTED]
        await deployment.operator.close_round(terms.round_id)
        publication, _ = await deployment.operator.result(terms.round_id, 60.0)
        assert publication.num_reports == 26


async def test_what_waits_for_ever_is_deleted_in_the_end(tmp_path: Path) -> None:
    """A held round keeps sealed reports and their keys, at services that nothing else reminds of it."""
    async with arena(tmp_path, 2) as deployment:
        terms = await deployment.operator.open_round(due_in(deployment, 3600, min_batch_size=100))
        endless = await deployment.operator.open_round(settings(min_batch_size=100))  # it has no deadline
        crowd = await deployment.seal(terms, 20)
        await deployment.admit(terms, crowd)

        async def states() -> set[pb.RoundState.ValueType]:
            for running in deployment.inside.running.values():
                await running.service.retention.delete_expired()
            answers = await deployment.operator.status(terms.round_id)
            return {answer.rounds[0].state for answer in answers if not isinstance(answer, grpc.aio.AioRpcError)}

        pass_time(deployment, 3600 + 29.9 * DAY_S)
        assert await states() == {pb.ROUND_STATE_OPEN}
        pass_time(deployment, 0.2 * DAY_S)
        assert await states() == {pb.ROUND_STATE_DISPOSED}
        held = everything_in(deployment.inside.directory)
        assert not any(member.envelope[:32] in held or member.envelope[-32:] in held for member in crowd)
        for name in deployment.deployment.chain:
            store = deployment.service(name).store
            assert await store.run("look", lambda tx: tx.keys(terms.round_id)) == {}
            assert await store.run("look", lambda tx: tx.keys(endless.round_id)) != {}
