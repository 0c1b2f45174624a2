"""The client library on a deployment in memory: what an application sees when all is well, and when it is not."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import croupier
from croupier.client.key_file import PRIVATE, key_text
from croupier.client.limits import write_limits
from croupier.client.submission import SealedSubmission, new_client_key
from croupier.protocol.errors import Code
from croupier.protocol.identity import public_key_of
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.names import PublicKey, RoundId
from croupier.protocol.questions import Question
from croupier.protocol.v1 import messages_pb2 as pb
from tests.support import settings
from tests.support.messages import naming
from tests.support.rounds import QUESTIONS, Table, people, table

pytestmark = pytest.mark.virtual_time
Make = Callable[..., croupier.AsyncClient]


@asynccontextmanager
async def laid(tmp_path: Path, hops: int = 1) -> AsyncIterator[tuple[Table, Make]]:
    """A deployment, and what makes clients of it."""
    made: list[croupier.AsyncClient] = []
    async with table(tmp_path, hops) as here:

        def make(name: str = "device", **how: Any) -> croupier.AsyncClient:
            made.append(
                croupier.AsyncClient(
                    here.inside.directory, directory=tmp_path / name, transport=here.inside.transport, **how
                )
            )
            return made[-1]

        yield here, make
        for client in made:
            await client.close()


async def enrolled(here: Table, client: croupier.AsyncClient) -> croupier.AsyncClient:
    await here.operator.enrol([PublicKey(bytes.fromhex(client.public_key))])
    return client


async def num_admitted(here: Table, round_id: str) -> int:
    store = here.inside.running["shuffler-1"].service.store
    return int(await store.run("look", lambda tx: tx.num_submissions(RoundId(round_id))))


def refused(code: Code) -> Any:
    return pytest.raises(croupier.Refusal, check=lambda error: error.code is code)


async def test_an_answer_from_submission_to_result(tmp_path: Path) -> None:
    async with laid(tmp_path, hops=2) as (here, make):
        terms = await here.operator.open_round(settings())
        await here.submit(terms, people(QUESTIONS[0], 29, seed=1))
        async with await enrolled(here, make()) as client:
            asked = await client.round()
            assert (asked.id, asked.question, asked.state, asked.budgets) == (
                terms.round_id,
                "bit",
                "OPEN",
                (0.5, 1.0, 2.0),
            )
            assert asked.closes_at is None
            assert repr(asked) == f"AsyncClientRound({terms.round_id!r}, 'bit', OPEN)"
            receipt = await asked.submit(1, max_local_epsilon=1.7)
            assert receipt == croupier.Receipt(
                terms.round_id, "", 1.0, 0.0, sealed_before=False, promises=asked.promises(1.0)
            )
            for verified in (asked.verify, asked.result):
                with refused(Code.NOT_READY):
                    await verified()
            await here.operator.close_round(terms.round_id)
            result = await asked.result(wait_s=60)
            assert await asked.verify() == croupier.Inclusion(terms.round_id, 1, ("shuffler-1", "shuffler-2"))
            assert (await client.round(terms.round_id)).state != "OPEN"
        assert result.num_reports == 30
        (value,) = result.values
        assert value.confidence_interval[0] <= value.projected <= value.confidence_interval[1]
        assert result.guarantee.grade is croupier.Grade.CERTIFIED
        assert 0 < result.guarantee.epsilon < 2
        assert result.guarantee.assumptions
        explained = croupier.explain(result.document["certificate"])
        assert "30 people took part" in " ".join(line for section in explained.sections for line in section.paragraphs)


async def test_the_same_call_again_sends_what_was_sealed(tmp_path: Path) -> None:
    async with laid(tmp_path) as (here, make):
        terms = await here.operator.open_round(settings())
        client = await enrolled(here, make(patience_s=1))
        asked = await client.round()
        await here.inside.stop("shuffler-1")
        with pytest.raises(croupier.UnreachableError, match=naming("UNAVAILABLE")):
            await asked.submit(1, 1.0)
        sealed = client.outbox.pending(terms.round_id)
        with pytest.raises(croupier.UnreachableError):
            await client.round()
        await here.inside.start("shuffler-1")
        await client.close()
        again = make(patience_s=1)  # the device was switched off in between
        asked = await again.round(terms.round_id)
        first, second = await asked.submit(0, 2.0), await asked.submit(0, 2.0)
        assert (
            first
            == second
            == croupier.Receipt(terms.round_id, "", 1.0, 0.0, sealed_before=True, promises=asked.promises(1.0))
        )
        assert again.outbox.acknowledged(terms.round_id) == sealed
        assert await num_admitted(here, terms.round_id) == 1
        assert (again.spent.local_epsilon, again.spent.rounds) == (1.0, 1)


async def test_limits_of_the_person_and_of_the_application(tmp_path: Path) -> None:
    async with laid(tmp_path) as (here, make):
        client = await enrolled(here, make(limits=croupier.Limits(lifetime_epsilon=1.5, min_batch_size=2)))
        write_limits(tmp_path / "device" / "limits.toml", croupier.Limits(max_local_epsilon=1.0, min_batch_size=20))
        assert client.limits == croupier.Limits(lifetime_epsilon=1.5, max_local_epsilon=1.0, min_batch_size=20)
        await here.operator.open_round(settings())
        with pytest.raises(croupier.LimitError, match=naming("local ε", 2, 1)):
            await (await client.round()).submit(1, 2.0)
        await (await client.round()).submit(1, 1.0)
        await here.operator.open_round(settings(min_batch_size=19))
        with pytest.raises(croupier.LimitError, match=naming("min_batch_size", 19, 20)):
            await (await client.round()).submit(1, 1.0)
        last = await here.operator.open_round(settings())
        with pytest.raises(croupier.LimitError, match=naming(2, "1.5")):
            await (await client.round()).submit(1, 1.0)
        assert await num_admitted(here, last.round_id) == 0
        assert client.spent.local_epsilon == 1.0


async def test_several_people_answer_once_each(tmp_path: Path) -> None:
    async with laid(tmp_path) as (here, make):
        terms = await here.operator.open_round(settings())
        keys = [new_client_key() for _ in range(4)]
        await here.operator.enrol([public_key_of(key) for key in keys])
        client = await enrolled(here, make())
        asked = await client.round()
        twice = await asyncio.gather(*(asked.submit(1, 0.6, person="ada", key=keys[0]) for _ in range(2)))
        assert [(receipt.person, receipt.local_epsilon, receipt.sealed_before) for receipt in twice] == [
            ("ada", 0.5, False),
            ("ada", 0.5, True),
        ]
        await asked.submit("0", 1.0, person="grace", key=keys[1])
        assert (await asked.submit(0, 1.0, person="grace", key=keys[2])).sealed_before  # keys do not make a person
        with refused(Code.TICKETS_GIVEN):
            await asked.submit(1, 1.0, person="mallory", key=keys[0])
        with pytest.raises(ValueError, match=naming("key")):
            await asked.submit(1, 1.0, person="alan")
        for key in (b"", keys[3]):
            with pytest.raises(croupier.OtherPersonError, match=naming("2 answers", "person")):
                await asked.submit(1, 1.0, key=key)
        assert await num_admitted(here, terms.round_id) == 2


async def test_what_cannot_be_answered_costs_nothing(tmp_path: Path) -> None:
    async with laid(tmp_path) as (here, make):
        client = make()
        with refused(Code.NO_OPEN_ROUND):
            await client.round()
        with refused(Code.UNKNOWN_ROUND):
            await client.round("never")
        terms = await here.operator.open_round(settings(Question("mood", KaryResponse(2, ("good", "bad")))))
        asked = await client.round()
        for value, why in (("fine", "categories"), (2, r"must be 0\.\.1")):
            with pytest.raises(ValueError, match=why):
                await asked.submit(value, 1.0)
        with pytest.raises(ValueError, match="max_local_epsilon"):
            await asked.submit("bad", 0.1)
        with refused(Code.UNKNOWN_CLIENT):
            await asked.submit("bad", 1.0)
        with refused(Code.UNKNOWN_CLIENT):
            await asked.submit("bad", 1.0, key=new_client_key())
        assert client.spent.local_epsilon == 0
        assert (await (await enrolled(here, client)).round()).id == terms.round_id
        assert (await asked.submit("bad", 1.0)).local_epsilon == 1.0
        with pytest.raises(ValueError, match=naming("acknowledged")):
            await (await make("other").round()).verify()


async def test_a_closed_and_a_refused_round_and_an_answer_that_was_lost(tmp_path: Path) -> None:
    async with laid(tmp_path) as (here, make):
        terms = await here.operator.open_round(settings(min_batch_size=2, epsilon_max=1e-6))
        await here.submit(terms, people(QUESTIONS[0], 3, seed=2))
        client, late = await enrolled(here, make()), await enrolled(here, make("late"))
        asked = await client.round()
        await asked.submit(1, 1.0)
        await here.operator.close_round(terms.round_id)
        with refused(Code.ROUND_CLOSED):
            await (await late.round(terms.round_id)).submit(1, 1.0)
        with pytest.raises(croupier.NotCertifiedError, match=naming("accountant", "round")) as no:
            await asked.result(wait_s=60)
        assert no.value.reasons
        client.outbox.keep(terms.round_id, {"lost": SealedSubmission(pb.Submission().SerializeToString(), bytes(128))})
        client.outbox.acknowledge(terms.round_id, ["lost"])
        with pytest.raises(croupier.NotIncludedError, match="shuffler-1 lacks 1") as missing:
            await asked.verify()
        assert missing.value.missing == {"shuffler-1": ["lost"]}


async def test_the_key_is_made_once_and_is_its_owners(tmp_path: Path) -> None:
    async with laid(tmp_path) as (here, make):
        key = make().public_key
        file = tmp_path / "device" / "client.key"
        assert file.stat().st_mode & 0o077 == 0
        assert make().public_key == make("other", key_file=file).public_key == key
        file.write_text("")
        with pytest.raises(ValueError, match=naming("private key")):
            _ = make().public_key
        with pytest.raises(ValueError, match=naming("directory")):
            croupier.AsyncClient(here.deployment)
        assert croupier.AsyncClient(here.deployment, directory=tmp_path).deployment is here.deployment
    with pytest.raises(ValueError, match=naming("nowhere.toml")):
        croupier.connect(tmp_path / "nowhere.toml")


@pytest.mark.parametrize("no_links", [None, errno.EPERM, errno.EOPNOTSUPP])
async def test_half_a_key_is_never_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_links: int | None) -> None:
    """A program that ended while it wrote its key left a file with which no later one could begin.

    On a file system without hard links there was no key at all.
    """

    def refuse(_made: Path, _file: Path) -> None:
        assert no_links is not None
        raise OSError(no_links, os.strerror(no_links))

    if no_links is not None:
        monkeypatch.setattr(os, "link", refuse)

    def fail(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async with laid(tmp_path) as (_, make):
        with monkeypatch.context() as full:
            full.setattr(os, "fsync", fail)
            with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
                _ = make().public_key
        assert not list((tmp_path / "device").glob("client.key*"))
        keys = await asyncio.gather(
            *(asyncio.to_thread(getattr, client, "public_key") for client in (make(), make(), make()))
        )
        assert len(set(keys)) == 1
        (file,) = (tmp_path / "device").glob("client.key*")
        assert file.stat().st_mode & 0o777 == 0o600


async def test_without_hard_links_a_key_of_another_process_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has its name while this one is about to give it: after the look whether there is one."""
    theirs = key_text(PRIVATE, new_client_key())

    def refuse(_made: Path, file: Path) -> None:
        file.write_text(theirs, encoding="ascii")
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    async with laid(tmp_path) as (_, make):
        assert key_text(PRIVATE, make().private_key) == theirs
        assert len(list((tmp_path / "device").glob("client.key*"))) == 1


async def test_a_key_that_cannot_be_named_for_another_reason_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_made: Path, _file: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "link", refuse)
    async with laid(tmp_path) as (_, make):
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            _ = make().public_key
        assert not list((tmp_path / "device").glob("client.key*"))
