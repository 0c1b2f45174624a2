"""Commands of a person who takes part in studies: join, leave."""

from __future__ import annotations

import asyncio
import sys
import tomllib
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from croupier.accountant.numerics.decimals import sum_as_decimals
from croupier.cli.console import (
    HERE,
    NOT_ACCEPTED,
    Argument,
    Directory,
    Gateway,
    Json,
    agrees,
    fail,
    note,
    show,
    text_of,
)
from croupier.client.async_client import AsyncClient, ShownSurvey
from croupier.client.joined import JoinedSurvey, WaveRecord
from croupier.client.limits import in_full
from croupier.deploy.local.clients import client_of
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.surveys import scheduled
from croupier.show.promises import study_lines

Study = Annotated[str, Argument(help="The study's name.")]


def join(
    study: Annotated[str, Argument(help="The study's name; that of the newest open round if not given.")] = "",
    /,
    *,
    directory: Directory = HERE,
    answers: Annotated[
        Path | None, Parameter(help='Your answers, a TOML file: mood = "good". It is read again for every wave.')
    ] = None,
    epsilon: Annotated[
        float | None,
        Parameter(help="The most that the answers to one wave may spend together; the smallest choice if not given."),
    ] = None,
    invitation_file: Annotated[
        Path | None, Parameter(help="Read the link of your invitation from this file; - for standard input.")
    ] = None,
    yes: Annotated[bool, Parameter(help="Consent to what is shown without being asked.")] = False,
    follow: Annotated[
        bool, Parameter(help="Answer every wave until the study ends, and not only what is open now.")
    ] = False,
    listed: Annotated[
        bool,
        Parameter("--list", help="Instead: list the studies that were joined from here: consent, waves, the next one."),
    ] = False,
    gateway: Gateway = "",
    as_json: Json = False,
) -> None:
    if listed:
        _list_joined(directory, as_json)
        return
    link = text_of(invitation_file) if invitation_file else ""

    async def work() -> tuple[JoinedSurvey | None, list[WaveRecord]]:
        async with client_of(directory, gateway, patience_s=60.0) as client:
            study_id = await _consent(client, study, epsilon, link, yes=yes)
            records = []
            if answers is not None:
                waves = client.follow(study_id, lambda _: _answers(answers), until_end=follow)
                try:
                    async for record in waves:
                        records.append(record)
                        if not as_json:
                            note(_line(record))
                except Refusal as refusal:
                    if refusal.code is not Code.UNKNOWN_CLIENT:
                        raise
                    why = f"give an --invitation-file, or the operator your key to enrol: {client.public_key}"
                    raise Refusal(refusal.code, why) from refusal
            mine = [
                membership
                for membership in client.joined_surveys()
                if membership.version.survey_id == study_id and not membership.person
            ]
            return (mine[0] if mine else None), records

    mine, done = asyncio.run(work())
    if mine is None:
        show(as_json, {"study": study, "waves": [record.model_dump() for record in done]}, f"left {study}")
        return
    document = {
        "study": mine.version.survey_id,
        "hash": mine.consents[-1].hash,
        "waves": [record.model_dump() for record in done],
    }
    next_wave = "" if answers else "; give --answers FILE to answer"
    show(as_json, document, f"joined {mine.version.survey_id}, version {mine.consents[-1].version}{next_wave}")
    if any(record.state == "new version" for record in done):
        raise fail(NOT_ACCEPTED, "the study has a new description: 'croupier join' without --yes shows it and asks")


def _answers(file: Path) -> dict[str, float | str]:
    try:
        answers = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{file} cannot be read; it must be TOML with a line for each question: {error}") from error
    for name, value in answers.items():
        if not isinstance(value, int | float | str):
            raise ValueError(f"{file}: {name} is {value!r}; it must be a number or a text")
    return answers


async def _consent(client: AsyncClient, study_id: str, epsilon: float | None, link: str, *, yes: bool) -> str:
    """Joins the study unless its newest version was consented to before; returns its name.

    Raises:
        ValueError: the person does not consent, or there is nobody to ask.
    """
    shown = await client.survey(study_id)
    name = shown.survey.survey_id
    before = next(
        (
            membership
            for membership in client.joined_surveys()
            if membership.version.survey_id == name and not membership.person
        ),
        None,
    )
    if before is not None and before.version.hash == shown.survey.hash and epsilon is None and not link:
        return name
    smallest = sum_as_decimals(terms.budget_grid[0] for terms in shown.rounds)
    most = epsilon or (before.wave_epsilon if before else smallest)
    if before is not None and not yes and not sys.stdin.isatty():  # a service asks nobody; `follow` waits for consent
        note(f"study {name!r} has a new description: 'croupier join {name}' shows it and asks")
        return name
    for line in _told(shown, most, before):
        note(line)
    if not yes and not agrees("Do you consent?"):
        raise ValueError(f"study {name!r} was not joined; nothing was sent")
    client.join(shown, most, invitation=link)
    return name


def _told(shown: ShownSurvey, epsilon: float, before: JoinedSurvey | None) -> list[str]:
    survey, schedule = shown.survey, scheduled(shown.survey)
    texts = survey.wordings[0] if survey.wordings else None
    lines = [texts.title, texts.introduction, texts.consent] if texts else []
    if before is not None and before.version.hash != survey.hash:
        lines.append(f"Version {schedule.version} changes: {schedule.change}")
    lines += [f"  {terms.question.name}: {terms.question.mechanism.kind}" for terms in shown.rounds]
    lines += study_lines(shown.rounds, epsilon)
    lines.append(f"Version {schedule.version}, hash {survey.hash.hex()}")
    return [line for line in lines if line]


def _line(record: WaveRecord) -> str:
    said = f"wave {record.wave} of {record.study_id}: {record.state}"
    if record.change:
        said += f" ({record.change})"
    for answer in record.answers:
        said += f"; {answer.question}: {answer.state}" + (
            f", local ε {answer.local_epsilon:g}" if answer.local_epsilon else ""
        )
        said += f" ({answer.why})" if answer.why else ""
    return said


def leave(study: Study, /, *, directory: Directory = HERE, as_json: Json = False) -> None:
    async def work() -> tuple[JoinedSurvey, float]:
        async with client_of(directory) as client:
            return client.leave(study), client.spent.local_epsilon

    gone, spent = asyncio.run(work())
    answered = sum(wave.state == "answered" for wave in gone.waves.values())
    show(
        as_json,
        {"study": study, "answered": answered, "spent_local_epsilon": spent},
        f"left {study}; {answered} of its waves were answered. This device has spent a local ε of {in_full(spent)} in "
        "all, which stays counted",
    )


def _list_joined(directory: Path, as_json: bool) -> None:
    async def work() -> list[JoinedSurvey]:
        async with client_of(directory) as client:
            return client.joined_surveys()

    memberships = asyncio.run(work())
    lines, documents = [], []
    for membership in memberships:
        name, schedule, number = membership.version.survey_id, scheduled(membership.version), membership.next_wave
        opens, next_wave = None, "no further wave is announced"
        if membership.ended:
            number = schedule.last_wave + 1
        if schedule.follows_results and 1 < number <= schedule.last_wave:
            next_wave = f"wave {number} opens once wave {number - 1} has its result"
        elif number <= schedule.last_wave:
            opens = schedule.wave(number).opens
            next_wave = f"wave {number} opens {opens:%Y-%m-%d %H:%M} UTC"
        whose = f" ({membership.person})" if membership.person else ""
        consent = membership.consents[-1]
        lines.append(
            f"{name}{whose}: version {consent.version} ({consent.hash[:16]}…), joined {consent.at}; {next_wave}"
        )
        lines += [f"  {_line(record)}" for record in membership.waves.values()]
        documents.append(
            {
                "study": name,
                "person": membership.person,
                "consents": [given.model_dump() for given in membership.consents],
                "waves": [record.model_dump() for record in membership.waves.values()],
                "next_wave": number if opens else None,
                "next_opens": opens.isoformat() if opens else None,
            }
        )
    show(as_json, {"studies": documents}, *(lines or ["no study was joined from here"]))
