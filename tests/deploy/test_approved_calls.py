"""What organisations have approved of is carried out completely: surveys, invitations, canaries, revocations."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from croupier.operator.canaries import check_canaries, send_canaries
from croupier.operator.carry_out import carry_out
from croupier.operator.invitations import (
    People,
    invite_people,
    invited_people,
    num_answered,
    register_again,
    revoke_invitations,
)
from croupier.operator.opened_surveys import kept_rounds, kept_versions
from croupier.operator.proposals import VALID_S, read_actions
from croupier.operator.roster import enrolled
from croupier.operator.survey_plans import open_survey
from croupier.protocol.errors import Code
from croupier.protocol.names import RoundId
from croupier.protocol.surveys import scheduled
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.runtime.clock import SystemClock
from croupier.study.versions import change_study, start_study
from tests.support import settings
from tests.support.approvals import approve_file
from tests.support.messages import naming, refuses
from tests.support.rounds import Table, table
from tests.support.studies import open_wave, study_file
from tests.support.surveys import survey_file

pytestmark = pytest.mark.virtual_time
SURVEY = survey_file(
    budgets=[1],
    epsilon_max=1,
    questions=[{"name": name, "question": f"{name}?"} for name in ("remote", "office")],
    translations={},
)
"""Two questions that are quick to certify."""


@dataclass
class Deciding:
    """A deployment in which two organisations have to approve, and the proposals that were made so far."""

    at: Table
    known: set[Path] = field(default_factory=set)

    @property
    def home(self) -> Path:
        return self.at.inside.directory

    async def proposes(self, call: Awaitable[object]) -> Path:
        """Has the operator do what is not approved yet; returns the proposal that this writes."""
        with refuses(Code.NOT_APPROVED):
            await call
        (file,) = set((self.home / "operator" / "proposals").glob("*.toml")) - self.known
        self.known.add(file)
        return file

    async def decided(self, call: Awaitable[object]) -> list[str]:
        """The same, approved of and sent; the keys of all services are in one place here."""
        file = await self.proposes(call)
        approve_file(self.home, file, self.at.deployment)
        done = await carry_out(self.home, file, self.at.inside.transport)
        assert await carry_out(self.home, file, self.at.inside.transport) == done  # the same command again
        return done


@pytest.fixture
async def deciding(tmp_path: Path) -> AsyncIterator[Deciding]:
    async with table(tmp_path / "d", 2, approvals=2) as at:
        yield Deciding(at)


@pytest.mark.slow
async def test_a_survey_is_opened_and_answered(deciding: Deciding, tmp_path: Path) -> None:
    """Reproduction: after `proposal send`, `invite` said that the rounds were not open, and `survey open` failed."""
    home, transport = deciding.home, deciding.at.inside.transport
    file = SURVEY
    how: dict[str, Any] = {"gateway": "https://gateway.example", "qr_codes": False, "transport": transport}
    await deciding.decided(open_survey(home, file, transport))
    (survey,) = kept_versions(home, file.name).values()
    assert len(kept_rounds(home, survey)) == 2
    await open_survey(home, file, transport)  # the same command again
    people = People.labelled(["Ada", "Bob", "Eve", "Dan"])
    await deciding.decided(invite_people(home, file.name, people, tmp_path / "links", **how))
    links = [line.split(",")[1] for line in (tmp_path / "links" / "links.csv").read_text().splitlines()[1:]]

    await deciding.decided(revoke_invitations(home, file.name, ["Dan"], transport))
    assert [bool(person.revoked_at) for person in invited_people(home, file.name)] == [False, False, False, True]
    assert not enrolled(home)  # an invitation is in the survey's list alone
    eve = People.labelled(["Eve"])
    await deciding.decided(invite_people(home, file.name, eve, tmp_path / "again", reissue=True, **how))  # revoked
    await deciding.decided(invite_people(home, file.name, eve, tmp_path / "again", reissue=True, **how))  # a new one
    assert [person.label for person in invited_people(home, file.name) if person.is_good] == ["Ada", "Bob", "Eve"]
    again = (tmp_path / "again" / "links.csv").read_text().splitlines()[1].split(",")[1]
    for number, link in enumerate((*links[:2], again)):
        async with deciding.at.operator.client(tmp_path / f"client-{number}") as client:
            for joined, value in zip(await client.rounds_of(), (0, 1), strict=True):
                await joined.submit(value, 1.0, invitation=link)
    assert await num_answered(home, file.name, transport) == 3

    await deciding.decided(register_again(home, file.name, transport))  # one proposal for all of it
    assert await register_again(home, file.name, transport) == 3


async def test_an_opening_that_was_cut_short_goes_on(deciding: Deciding) -> None:
    home, inside, file = deciding.home, deciding.at.inside, SURVEY
    proposal = await deciding.proposes(open_survey(home, file, inside.transport))
    approve_file(home, proposal, deciding.at.deployment)
    await inside.stop("shuffler-1")  # which is opened last
    with pytest.raises(Exception, match="refused"):
        await carry_out(home, proposal, inside.transport)
    await inside.start("shuffler-1")
    await carry_out(home, proposal, inside.transport)
    (survey,) = kept_versions(home, file.name).values()
    assert len(kept_rounds(home, survey)) == 2


async def test_canaries_are_enrolled_together(deciding: Deciding) -> None:
    """Each canary asked for a proposal of its own."""
    home, at, transport = deciding.home, deciding.at, deciding.at.inside.transport
    terms = replace(settings(), dishonest=4, min_batch_size=3)
    await deciding.decided(at.operator.open_round(terms, RoundId("asked")))
    proposal = await deciding.proposes(send_canaries(home, RoundId("asked"), 3, transport))
    (action,) = read_actions(proposal).proposals()
    assert len(action.register.client_keys) == 3
    approve_file(home, proposal, at.deployment)
    await carry_out(home, proposal, transport)
    assert await send_canaries(home, RoundId("asked"), 3, transport) == 3
    await at.operator.close_round(RoundId("asked"))
    await at.operator.result(RoundId("asked"), 60.0)
    assert (await check_canaries(home, RoundId("asked"), transport)).missing == {"shuffler-1": 0, "shuffler-2": 0}


async def test_a_study_invites_before_its_first_wave_and_once_for_all_waves(tmp_path: Path) -> None:
    """Reproduction: `invite STUDY` asked to open a survey, which a study's operator cannot."""
    async with table(tmp_path / "d", 1) as at:
        home, transport = at.inside.directory, at.inside.transport
        how: dict[str, Any] = {"gateway": "https://gateway.example", "qr_codes": False, "transport": transport}
        with pytest.raises(ValueError, match=naming("'wellbeing'", "'croupier survey run")):
            await invite_people(home, "wellbeing", People.labelled(["Ada"]), tmp_path / "links", **how)
        file = study_file(calendar={"first": "2030-01-01T08:00:00"})
        version = start_study(home, file)
        assert await invite_people(home, file.name, People.labelled(["Ada"]), tmp_path / "links", **how) == 1
        assert "round=wellbeing-w1-1" in (tmp_path / "links" / "links.csv").read_text()
        assert await num_answered(home, file.name, transport) == 0
        await open_wave(at, version, 1)
        with pytest.raises(ValueError, match="'Ada'"):  # invited to the study already
            await invite_people(home, file.name, People.labelled(["Ada"]), tmp_path / "more", **how)
        link = (tmp_path / "links" / "links.csv").read_text().splitlines()[1].split(",")[1]
        async with at.operator.client(tmp_path / "client") as client:
            await (await client.rounds_of())[0].submit("good", 1.0, invitation=link)
        assert await num_answered(home, file.name, transport) == 1
        (ada,) = invited_people(home, file.name)
        assert ada.expires_at == f"{scheduled(version).wave(3).closes:%Y-%m-%dT%H:%M:%SZ}"


async def test_a_survey_with_a_schedule_is_approved_once(deciding: Deciding, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its later waves open when the approvals have expired and are gone, at services that have restarted."""
    home, at = deciding.home, deciding.at
    terms: dict[str, Any] = {"calendar": {"first": "2030-01-01T08:00:00"}, "budgets": [1], "min_batch_size": 3}
    file = study_file(questions=[{"name": "ill", "question": "Were you ill?"}], **terms)
    survey = start_study(home, file)
    proposal = await deciding.proposes(open_wave(at, survey, 1))
    approve_file(home, proposal, at.deployment)
    assert await carry_out(home, proposal, at.inside.transport) == [
        "approved: open the waves of version 1 of survey 'wellbeing', which 'croupier survey run' does in their time"
    ]
    assert not list((home / "operator" / "surveys" / "wellbeing").glob("*.signed"))  # waves open in their time
    await open_wave(at, survey, 1)

    proposal.unlink()
    week_later = SystemClock().now() + VALID_S + 3600
    monkeypatch.setattr(SystemClock, "now", lambda _: week_later)
    for name in at.deployment.chain:
        await at.inside.restart(name)
    (second,) = await open_wave(at, survey, 2)
    assert not list(proposal.parent.glob("*.toml"))
    for status in await at.operator.status(second.round_id):
        assert isinstance(status, rpc.StatusResponse)
        assert len(status.rounds[0].approved_by) >= 2
    # Another version of it is another survey.
    changed = change_study(home, file.model_copy(update={"title": "Other"}), "Another title.", 0.0)
    assert scheduled(changed).version == 2
    with refuses(Code.NOT_APPROVED):
        await open_wave(at, changed, 3)


async def test_a_survey_that_was_not_approved_can_be_changed_and_proposed_again(deciding: Deciding) -> None:
    home, transport = deciding.home, deciding.at.inside.transport
    await deciding.proposes(open_survey(home, SURVEY, transport))
    changed = SURVEY.model_copy(update={"title": "What we meant"})
    await deciding.decided(open_survey(home, changed, transport))
    (kept,) = kept_versions(home, SURVEY.name).values()
    assert kept.wordings[0].title == "What we meant"
    assert {terms.survey.hash for terms in kept_rounds(home, kept)} == {kept.hash}
    with pytest.raises(ValueError, match=naming("other terms")):  # now it is signed
        await open_survey(home, SURVEY, transport)
