"""Invitations to a survey: used elsewhere, later, twice, or by a gateway that passes them on."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from croupier.client.async_client import AsyncClient
from croupier.client.submission import new_client_key
from croupier.deploy.gateway.app import make_app
from croupier.operator.canaries import send_canaries
from croupier.operator.invitations import (
    People,
    invite_people,
    num_answered,
    revoke_invitations,
)
from croupier.protocol.errors import Code
from croupier.protocol.identity import public_key_of
from croupier.protocol.invitations import Invitation
from tests.support import settings
from tests.support.gateways import reached_at
from tests.support.messages import naming, refuses
from tests.support.rounds import Table, table
from tests.support.surveys import links_of, opened_survey

ANSWERS: tuple[float | str, ...] = ("very", 1, 7)


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[Table]:
    async with table(tmp_path, 1) as deployment:
        yield deployment


async def test_an_invitation_admits_to_its_own_survey_alone(at: Table, tmp_path: Path) -> None:
    """Neither to a round by itself nor to another survey, whose hash gives another key; and the same key is refused."""
    survey, other = await opened_survey(at), await opened_survey(at, "play-2026")
    (link,) = await links_of(at, survey, tmp_path / "links", "Ada")
    own = Invitation.read(link).key(survey.hash)
    assert own != Invitation.read(link).key(other.hash)
    plain = await at.operator.open_round(settings())
    async with at.operator.client(tmp_path / "client") as client:
        for round_id in (other.round_id(0), plain.round_id):
            with refuses(Code.UNKNOWN_CLIENT):
                await (await client.round(round_id)).submit(1, 1.0, person="Ada", key=own)
        (first, *_) = await client.rounds_of(other.round_id(0))
        with refuses(Code.UNKNOWN_CLIENT):
            await first.submit("very", 1.0, person="Bob", invitation=link)
        for asked, value in zip(await client.rounds_of(survey.round_id(0)), ANSWERS, strict=True):
            assert (await asked.submit(value, 1.0, person="Eve", invitation=link)).local_epsilon in (0.6666, 0.6668)
        with refuses(Code.UNKNOWN_CLIENT):
            await (await client.round(plain.round_id)).submit(1, 1.0, invitation=link)


async def test_a_survey_with_a_list_admits_its_list_only(at: Table, tmp_path: Path) -> None:
    """No enrolled key, once there is a list."""
    survey = await opened_survey(at)
    where, how = at.inside.directory, at.inside.transport
    key = new_client_key()
    await at.operator.enrol([public_key_of(key)])
    async with at.operator.client(tmp_path / "client") as client:
        mood, *_ = await client.rounds_of()
        await mood.submit("very", 1.0, person="before", key=key)
        (link,) = await links_of(at, survey, tmp_path / "links", "Ada")
        with refuses(Code.UNKNOWN_CLIENT):
            await mood.submit("very", 1.0, person="own key", key=key)
        await mood.submit("very", 1.0, person="Ada", invitation=link)
        plain = await at.operator.open_round(settings())
        await (await client.round(plain.round_id)).submit(1, 1.0, person="own key", key=key)
    assert await num_answered(where, survey.survey_id, how) == 1


async def test_a_canary_is_on_the_list_of_a_survey_that_has_one(at: Table, tmp_path: Path) -> None:
    """And makes no list where there is none, which would keep everybody else out."""
    open_to_all = await opened_survey(at, dishonest=1)
    listed = await opened_survey(at, "play-2026", dishonest=1)
    await links_of(at, listed, tmp_path / "links", "Ada")
    for survey in (open_to_all, listed):
        round_id = survey.round_id(0)
        assert await send_canaries(at.inside.directory, round_id, 1, at.inside.transport) == 1
    async with at.operator.client(tmp_path / "client") as client:
        mood = await client.round(open_to_all.round_id(0))
        key = new_client_key()
        await at.operator.enrol([public_key_of(key)])
        await mood.submit("very", 1.0, key=key)


async def test_an_expired_invitation_gets_no_tickets(at: Table, tmp_path: Path) -> None:
    """By the accountant's clock, whatever the link says; who has tickets by then may still hand the answer in."""
    survey = await opened_survey(at)
    until = int(time.time()) + 3600
    early, late = await links_of(at, survey, tmp_path / "links", "Ada", "Bob", until=until)
    assert Invitation.read(early).until == until
    forever = late.replace(f"until={until}", "until=0")
    async with at.operator.client(tmp_path / "client") as client:
        asked = (await client.rounds_of())[1]
        at.inside.ahead_s["shuffler-1"] = 2 * 3600.0
        assert (await asked.submit(1, 1.0, person="Ada", invitation=early)).round_id == asked.id
        at.inside.ahead_s["accountant"] = 2 * 3600.0
        with refuses(Code.UNKNOWN_CLIENT):
            await asked.submit(1, 1.0, person="Bob", invitation=forever)


async def test_a_used_invitation_is_not_replaced(at: Table, tmp_path: Path) -> None:
    """With a second one the same person could answer twice; of a lost one that is unused the old link is dead."""
    survey = await opened_survey(at)
    where, how = at.inside.directory, at.inside.transport
    used, lost = await links_of(at, survey, tmp_path / "links", "Ada", "Bob")
    async with at.operator.client(tmp_path / "client") as client:
        asked = (await client.rounds_of())[0]
        await asked.submit("very", 1.0, person="Ada", invitation=used)
        assert await num_answered(where, survey.survey_id, how) == 1
        again: dict[str, Any] = {"gateway": "https://gateway.example", "qr_codes": False, "transport": how}
        again |= {"folder": tmp_path / "again", "reissue": True}
        with pytest.raises(ValueError, match=naming("'Ada'")):
            await invite_people(where, survey.survey_id, People.labelled(["Ada"]), **again)
        await invite_people(where, survey.survey_id, People.labelled(["Bob"]), **again)
        with refuses(Code.UNKNOWN_CLIENT):
            await asked.submit("very", 1.0, person="Bob", invitation=lost)
        fresh = (tmp_path / "again" / "links.csv").read_text().splitlines()[1].split(",")[1]
        await asked.submit("very", 1.0, person="Bob", invitation=fresh)
    assert await num_answered(where, survey.survey_id, how) == 2


@pytest.mark.parametrize("ended", ["revoked", "expired"])
async def test_who_has_answered_gets_no_second_invitation(at: Table, tmp_path: Path, ended: str) -> None:
    """Reproduction: after `revoke`, or once the first had expired, `invite` made a second link for Ada."""
    survey = await opened_survey(at)
    where, how = at.inside.directory, at.inside.transport
    used, unused = await links_of(at, survey, tmp_path / "links", "Ada", "Bob")
    async with at.operator.client(tmp_path / "client") as client:
        asked = (await client.rounds_of())[0]
        await asked.submit("very", 1.0, person="Ada", invitation=used)
        if ended == "revoked":
            await revoke_invitations(where, survey.survey_id, ["Ada", "Bob"], how)
        else:
            file = where / "operator" / "surveys" / survey.survey_id / "invitations.csv"
            header, *rows = (line.split(",") for line in file.read_text().splitlines())
            past = ([*row[:2], "2020-01-01T00:00:00Z", *row[3:]] for row in rows)
            file.write_text("".join(",".join(row) + "\n" for row in (header, *past)))
        with pytest.raises(ValueError, match=naming("'Ada'")):
            await links_of(at, survey, tmp_path / "again", "Ada")
        assert not (tmp_path / "again").exists()
        # A third person, and one whose first link was not used, get links; the first link is dead.
        fresh, _ = await links_of(at, survey, tmp_path / "again", "Bob", "Eve")
        with refuses(Code.UNKNOWN_CLIENT):
            await asked.submit("very", 1.0, person="Bob", invitation=unused)
        await asked.submit("very", 1.0, person="Bob", invitation=fresh)
    assert await num_answered(where, survey.survey_id, how) == 2


async def test_an_invitation_goes_through_a_gateway_unseen(at: Table, tmp_path: Path) -> None:
    """The gateway sees the public half and signatures, never the secret or the key."""
    survey = await opened_survey(at)
    (link,) = await links_of(at, survey, tmp_path / "links", "Ada")
    read = Invitation.read(link)
    app = make_app(at.inside.directory, at.inside.transport)
    seen: list[bytes] = []

    async def watched(scope, receive, send):  # type: ignore[no-untyped-def]
        async def listen():  # type: ignore[no-untyped-def]
            message = await receive()
            seen.append(message.get("body", b""))
            return message

        await app(scope, listen, send)

    with reached_at(watched) as url:
        async with AsyncClient(at.deployment, directory=tmp_path / "client", gateway=url) as client:
            for asked, value in zip(await client.rounds_of(), ANSWERS, strict=True):
                await asked.submit(value, 1.0, invitation=link)
    everything = b"".join(seen)
    assert everything
    for secret in (read.secret, read.key(survey.hash)):
        assert secret not in everything
    assert await num_answered(at.inside.directory, survey.survey_id, at.inside.transport) == 1
