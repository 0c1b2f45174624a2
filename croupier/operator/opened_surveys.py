"""Surveys as the operator keeps them: their versions, and their rounds, which open, close and are withdrawn together.

`operator/surveys/NAME/` has for each version `vN.survey`, which never changes once services have signed a round of it,
and the signed rounds. Those of a wave are all signed before the first is opened, and kept there, so that the same call
continues an opening that was cut short. This file loads no numeric library, because the organisations that approve a
survey need it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import grpc.aio

from croupier.net.transport import TLS, Transport
from croupier.operator.keys import replace_secret, write_secret
from croupier.operator.operator import Operator
from croupier.protocol.deployment import OPERATOR
from croupier.protocol.errors import Code, CroupierError, Refusal
from croupier.protocol.manifest import RoundTerms, parse_terms
from croupier.protocol.names import RoundId
from croupier.protocol.schedules import Wave
from croupier.protocol.surveys import Survey, read_survey
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc

Tell = Callable[[str], None]


def survey_folder(directory: Path, survey_id: str = "") -> Path:
    """Returns the operator's folder of a survey, or of all surveys."""
    return directory / OPERATOR / "surveys" / survey_id


def kept_surveys(directory: Path) -> list[str]:
    """Returns the names of the surveys that were begun from this directory, the newest last."""
    files = survey_folder(directory).glob("*/v1.survey")
    return [file.parent.name for file in sorted(files, key=lambda file: file.stat().st_mtime)]


def kept_versions(directory: Path, survey_id: str) -> dict[Path, Survey]:
    """Returns all versions of a survey by their files, oldest first; none if it was not begun from this directory."""
    files = survey_folder(directory, survey_id).glob("v*.survey") if survey_id else []
    ordered = sorted(files, key=lambda file: int(file.stem[1:]))
    return {file: read_survey(bytes.fromhex(file.read_text())) for file in ordered}


def version_of_wave(versions: Sequence[Survey], number: int) -> Survey:
    """Returns the newest version that a wave belongs to, of versions with a schedule; ValueError if none has it."""
    for version in reversed(versions):
        if version.schedule and version.schedule.first_wave <= number <= version.schedule.last_wave:
            return version
    raise ValueError(f"survey {versions[0].survey_id!r} has no wave {number}")


def title_of(survey: Survey) -> str:
    """Returns the title of a survey, or its name where it has no texts of its own."""
    return survey.wordings[0].title if survey.wordings else survey.survey_id


def version_file(directory: Path, survey: Survey) -> Path:
    """Returns the file of a version of a survey."""
    number = survey.schedule.version if survey.schedule else 1
    return survey_folder(directory, survey.survey_id) / f"v{number}.survey"


def keep_survey(directory: Path, survey: Survey) -> None:
    """Writes a version of a survey; the same version again is harmless.

    A survey that is asked once replaces one that services have not signed; a survey with a schedule is fixed when it
    begins.

    Raises:
        ValueError: another survey of this name is fixed.
    """
    file = version_file(directory, survey)
    if file.exists() and (kept := read_survey(bytes.fromhex(file.read_text()))).hash != survey.hash:
        if kept.schedule or survey.schedule or was_opened(directory, kept):
            raise ValueError(
                f"survey {survey.survey_id!r} was opened with other terms; bring its file back to go on with it, or "
                "give the new survey another name"
            )
        file.unlink()
    if not file.exists():
        write_secret(file, survey.payload.hex())


def round_file(directory: Path, survey: Survey, place: int, wave: int = 0) -> Path:
    """Returns the file of a signed round."""
    return survey_folder(directory, survey.survey_id) / f"{survey.round_id(place, wave)}.signed"


def result_file(directory: Path, survey: Survey, place: int, wave: int = 0) -> Path:
    """Returns the file of the signed result of a round."""
    return survey_folder(directory, survey.survey_id) / "results" / f"{survey.round_id(place, wave)}.signed"


def signed_result_of(directory: Path, survey: Survey, place: int, wave: int) -> pb.Signed | None:
    """Returns the signed result of a round of a wave, verified when it was kept; None if there is none."""
    file = result_file(directory, survey, place, wave)
    return pb.Signed.FromString(bytes.fromhex(file.read_text())) if file.exists() else None


def rule_goes_on(directory: Path, survey: Survey, wave: int) -> bool:
    """Whether the result of a wave has led to a next wave, in a survey whose waves follow results."""
    results = [signed_result_of(directory, survey, place, wave) for place in range(len(survey.questions))]
    return all(each and pb.Publication.FromString(each.payload).HasField("rule_state") for each in results)


def _kept_round(file: Path) -> pb.SignedRound | None:
    return pb.SignedRound.FromString(bytes.fromhex(file.read_text())) if file.exists() else None


def kept_rounds(directory: Path, survey: Survey, wave: int = 0) -> list[RoundTerms]:
    """Returns the terms of all rounds of a wave that was opened from this directory, in order.

    Raises:
        ValueError: it was not, or not completely.
    """
    terms = []
    for place in range(len(survey.questions)):
        document = _kept_round(round_file(directory, survey, place, wave))
        if document is None:
            raise ValueError(
                f"{survey.round_id(place, wave)!r} is not open yet; 'croupier survey open' with the survey's file "
                "goes on"
            )
        terms.append(parse_terms(document))
    return terms


def was_opened(directory: Path, survey: Survey) -> bool:
    """Whether a round of this version was signed by all services."""
    folder = survey_folder(directory, survey.survey_id)
    rounds = (_kept_round(file) for file in folder.glob("*.signed"))
    return any(document is not None and document.survey == survey.payload for document in rounds)


def latest_result(directory: Path, survey: Survey, place: int, wave: int) -> pb.Signed | None:
    """Returns the signed result of a question in the latest wave before this one that has one; None if none has."""
    results = (signed_result_of(directory, survey, place, number) for number in range(wave - 1, 0, -1))
    return next((result for result in results if result is not None), None)


async def open_rounds(
    operator: Operator,
    directory: Path,
    survey: Survey,
    wave: Wave | None = None,
    tell: Tell = lambda _: None,
    state: pb.RuleState | None = None,
) -> list[RoundTerms]:
    """Opens the rounds of a survey, or of one of its waves, or those that an earlier call has not reached.

    Every round is signed and kept before the first one is opened. The survey is kept already (`keep_survey`).

    state: of a rule, where the latest result does not state all of it; see `Operator.sign_round`.

    Raises:
        Refusal, grpc.aio.AioRpcError: a service refuses, or is out of reach.
    """
    number = wave.number if wave else 0
    files = [round_file(directory, survey, place, number) for place in range(len(survey.questions))]
    if not was_opened(directory, survey):
        operator.require_approval(survey)
    opened: list[RoundTerms] = []
    try:
        documents = []
        for place, file in enumerate(files):
            # Services sign one manifest for a round, and make keys for none that is open: only with the file can an
            # opening that was cut short continue.
            document = _kept_round(file)
            if document is None:
                has_rule = survey.questions[place].rule is not None
                before = latest_result(directory, survey, place, number) if has_rule else None
                document = await operator.sign_round(survey, place, wave, before, state)
                replace_secret(file, document.SerializeToString().hex())
            documents.append(document)
        for document in documents:
            opened.append(await operator.open_signed(document))  # noqa: PERF401 (opened rounds count if one fails)
    except (CroupierError, grpc.aio.AioRpcError) as error:
        names = f" ({', '.join(terms.round_id for terms in opened)})" if opened else ""
        tell(
            f"{len(opened)} of the {len(files)} rounds of {survey.wave_name(number)!r} are open{names}; the same "
            f"command again goes on, and 'croupier survey close {survey.survey_id} --withdraw' gives the survey up"
        )
        if isinstance(error, Refusal) and error.code is Code.NOT_APPROVED:
            operator.require_approval(survey)
        raise
    return opened


async def close_rounds(
    directory: Path,
    rounds: Sequence[RoundId],
    transport: Transport = TLS,
    *,
    hold_at_risk: bool = True,
    end_sequential: bool = False,
) -> dict[RoundId, rpc.CloseResponse]:
    """Ends admission to rounds, and returns hop 1's reply for each; see `Operator.close_round`.

    The same call again is harmless.

    Raises:
        Refusal, grpc.aio.AioRpcError: hop 1 refuses, or is out of reach; further rounds are open then.
    """
    async with Operator(directory, transport) as operator:
        how = {"hold_at_risk": hold_at_risk, "end_sequential": end_sequential}
        return {round_id: await operator.close_round(round_id, **how) for round_id in rounds}


async def withdraw_rounds(
    directory: Path, rounds: Sequence[RoundId], transport: Transport = TLS
) -> dict[RoundId, dict[str, str]]:
    """Deletes rounds without a certificate at every service; returns the reply of each, by round."""
    async with Operator(directory, transport) as operator:
        return {round_id: await operator.withdraw(round_id) for round_id in rounds}
