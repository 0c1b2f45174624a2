"""A client that dies at any moment around its tickets goes on with the same blinded messages, and counts once."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from croupier.client import round_client
from croupier.client.async_client import AsyncClient
from croupier.client.one_answer import AnswerOutcome, Respondent
from croupier.client.outbox import Outbox
from croupier.client.submission import Participant, new_client_key
from croupier.deploy.local.users import Fleet
from croupier.protocol.identity import public_key_of
from croupier.protocol.names import PrivateKey, PublicKey, RoundId
from croupier.protocol.v1 import messages_pb2 as pb
from tests.support import Threads, in_process, settings
from tests.support.rounds import Table, table

KILLS = 200


class Killed(BaseException):
    """The end of a process: nothing catches it."""


@contextmanager
def dying(where: object, name: str, *, first: bool) -> Iterator[None]:
    """Has a process die when it calls a function, or when the function has returned."""
    function: Callable[..., Any] = getattr(where, name)

    def die(*arguments: Any, **how: Any) -> Any:
        if first:
            raise Killed
        function(*arguments, **how)
        raise Killed

    async def die_later(*arguments: Any, **how: Any) -> Any:
        if not first:
            await function(*arguments, **how)
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(where, name, die_later if asyncio.iscoroutinefunction(function) else die)
        patch.setattr(Outbox, "withdraw", lambda *_: None)  # nothing runs after a death
        with pytest.raises((Killed, BaseExceptionGroup)):
            yield


POINTS = [
    (Outbox, "prepare", True),
    (Outbox, "prepare", False),
    (round_client, "seal_prepared", True),
    (round_client, "seal_prepared", False),
    (Outbox, "keep", False),
    (round_client, "send", False),
]


@pytest.mark.virtual_time
async def test_a_person_whose_client_dies_around_its_tickets_counts_once(tmp_path: Path) -> None:
    """Whatever the person answers afterwards, the prepared report is used; also where the next call has a new key."""
    async with table(tmp_path, 1) as here:
        terms = await here.operator.open_round(settings(min_batch_size=2))
        seen = blinded_messages(here)
        for number, (where, name, first) in enumerate(POINTS):
            key = b"" if number % 2 else new_client_key()
            with dying(where, name, first=first):
                await once(here, tmp_path / str(number), terms.round_id, 1, key)
            again = await once(here, tmp_path / str(number), terms.round_id, 0, key)
            assert again.code == "ACCEPTED"
            assert again.sealed_before is (name != "prepare" or not first)
            assert (await once(here, tmp_path / str(number), terms.round_id, 0, key)).code == "ALREADY_ANSWERED"
            assert not prepared(tmp_path / str(number), terms.round_id)
        publication, certificate = await here.finish(terms)
    assert certificate.num_tickets == publication.num_reports == certificate.num_users == len(POINTS)
    assert certificate.dishonest == 0
    assert len(set(seen)) == len(POINTS)
    assert len(seen) == len(POINTS) + 1  # the one that died after it had its tickets has asked twice


def blinded_messages(here: Table) -> list[bytes]:
    """Returns a list that gets what each client asks tickets for."""
    seen: list[bytes] = []
    desk = here.inside.running["accountant"].service.desk  # type: ignore[attr-defined]
    give = desk.give

    async def give_and_note(request: pb.GetTicketsRequest) -> pb.GetTicketsResponse:
        seen.extend(request.envelope for request in request.requests)
        answer: pb.GetTicketsResponse = await give(request)
        return answer

    desk.give = give_and_note
    return seen


async def once(here: Table, device: Path, round_id: str, value: int, key: bytes) -> AnswerOutcome:
    """Answers as a process of its own would: with a client of its own on the files of a device."""

    async def enrol(public_key: bytes) -> None:
        await here.operator.enrol([PublicKey(public_key)])

    async with AsyncClient(here.inside.directory, directory=device, transport=here.inside.transport) as client:
        asked = await client.round(round_id)
        return await asked.answer(value, 1.0, Respondent(key=PrivateKey(key), new_key=not key), enrol)


def prepared(device: Path, round_id: str) -> set[str]:
    """Returns the users of a device whose reports are prepared and not sealed."""
    outbox = Outbox(device / "outbox.db")
    users = set(outbox.prepared(RoundId(round_id)))
    outbox.close()
    return users


@pytest.mark.virtual_time
@pytest.mark.parametrize("point", [("get_tickets", True), ("get_tickets", False), ("seal_all", False)])
async def test_a_fleet_that_dies_around_its_tickets_goes_on(tmp_path: Path, point: tuple[str, bool]) -> None:
    from croupier.deploy.local import users as fleet

    async with table(tmp_path, 1) as here:
        terms = await here.operator.open_round(settings(min_batch_size=2))
        people = {str(number): Participant(number % 2, 1.0) for number in range(6)}

        async def play() -> None:
            outbox = Outbox(tmp_path / "fleet.db")
            try:
                async with here.operator.client_channel() as channel:
                    mine = Fleet(channel, here.accountant, outbox, Threads(), here.operator.enrol)
                    await mine.answer(terms, people)
            finally:
                outbox.close()

        with dying(fleet, point[0], first=point[1]):
            await play()
        await play()
        publication, certificate = await here.finish(terms)
    assert certificate.num_tickets == publication.num_reports == len(people)


# ---------------------------------------------------------------- real processes


def answer_and_die(directory: Path, device: Path, round_id: str, person: tuple[str, bytes], life_s: float) -> None:
    """Answers, in a process of its own, that is killed after a while, if it still lives."""

    async def answer() -> str:
        async with AsyncClient(directory, directory=device) as client:
            asked = await client.round(round_id)
            if life_s:
                timer = Timer(life_s, os.kill, (os.getpid(), signal.SIGKILL))
                timer.daemon = True
                timer.start()
            started = time.monotonic()
            code = (await asked.answer(1, 1.0, Respondent(person=person[0], key=PrivateKey(person[1])))).code
            (device / "seconds").write_text(str(time.monotonic() - started))
            return code

    code = asyncio.run(answer())
    if code not in ("ACCEPTED", "ALREADY_ANSWERED"):
        raise SystemExit(code)


@pytest.mark.slow
async def test_clients_killed_two_hundred_times_count_once_each(tmp_path: Path) -> None:
    """Real processes, killed at drawn moments: what SQLite has on disk then, and no exception handler, decides.

    The first answers undisturbed; the others live up to as long as the longest answer took.
    """
    spawn = multiprocessing.get_context("forkserver")
    spawn.set_forkserver_preload(["tests.client.test_crashes"])
    kills = people = between = 0
    longest_s = 0.0
    async with in_process(tmp_path / "deployment", 1) as inside, inside.operator() as operator:
        terms = await operator.open_round(settings(min_batch_size=2))
        while kills < KILLS:
            person = str(people), new_client_key()
            await operator.enrol([public_key_of(person[1])])
            people += 1
            while True:
                life_s = random.uniform(0.0, longest_s) if kills < KILLS else 0.0
                arguments = (inside.directory, tmp_path / "device", terms.round_id, person, life_s)
                client = spawn.Process(target=answer_and_die, args=arguments)
                client.start()
                await asyncio.to_thread(client.join)
                assert client.exitcode in (0, -signal.SIGKILL)
                if not client.exitcode:
                    longest_s = max(longest_s, float((tmp_path / "device" / "seconds").read_text()))
                    break
                kills += 1
                between += f"person {person[0]}" in prepared(tmp_path / "device", terms.round_id)
        await operator.close_round(terms.round_id)
        publication, certificate = await operator.result(terms.round_id, 60.0)
    assert between  # some died with a report prepared, and no submission
    assert certificate.granted
    assert certificate.num_tickets == publication.num_reports == certificate.num_users == people
    assert certificate.dishonest == 0
