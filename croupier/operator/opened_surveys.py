"""Opened surveys: their rounds are opened, closed and withdrawn together.

The manifests of all rounds are signed before the first round is opened, and kept in `operator/surveys/NAME/`, so that
the same call continues an opening that was cut short. This file loads no numeric library, because the organisations
that approve a survey need it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import grpc.aio

from croupier.net.transport import TLS, Transport
from croupier.operator.keys import replace_secret
from croupier.operator.operator import Operator, kept_manifest
from croupier.protocol.deployment import OPERATOR
from croupier.protocol.errors import CroupierError
from croupier.protocol.manifest import RoundTerms, parse_terms
from croupier.protocol.names import RoundId
from croupier.protocol.surveys import Survey
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc

Tell = Callable[[str], None]


def round_of(survey_id: str, number: int) -> RoundId:
    """Returns the id of the round that asks a survey's question with this number, from 1."""
    return RoundId(f"{survey_id}-{number}")


def survey_folder(directory: Path, survey_id: str) -> Path:
    """Returns the operator's folder of a survey."""
    return directory / OPERATOR / "surveys" / survey_id


def kept_survey(directory: Path, survey_id: str = "") -> Survey:
    """Returns the description of a survey that was opened from this directory, the newest one if no id is given.

    Raises:
        ValueError: there is none.
    """
    if survey_id:
        files = [survey_folder(directory, survey_id) / "survey"]
    else:
        files = sorted((directory / OPERATOR / "surveys").glob("*/survey"), key=lambda file: file.stat().st_mtime)
    if not files or not files[-1].exists():
        what = f"survey {survey_id!r}" if survey_id else "any survey"
        raise ValueError(f"{directory} has not opened {what}; 'croupier survey open survey.toml' does")
    return Survey.read(pb.Survey.FromString(bytes.fromhex(files[-1].read_text())))


def kept_rounds(directory: Path, survey_id: str) -> list[RoundTerms]:
    """Returns the terms of all rounds of a survey that was opened from this directory, in order.

    Raises:
        ValueError: it was not, or not completely.
    """
    survey, folder = kept_survey(directory, survey_id), survey_folder(directory, survey_id)
    terms = []
    for survey_round in survey.rounds:
        document = kept_manifest(folder / f"{survey_round.round_id}.signed")
        if document is None:
            raise ValueError(
                f"{survey_round.round_id!r} is not open yet; 'croupier survey open' with the survey's file goes on"
            )
        terms.append(parse_terms(document.payload))
    return terms


async def open_rounds(
    operator: Operator,
    directory: Path,
    survey: Survey,
    rounds: Mapping[RoundId, pb.Manifest],
    tell: Tell = lambda _: None,
) -> list[RoundTerms]:
    """Opens rounds of a survey, given without keys, and those kept by an earlier call; returns their terms.

    Every manifest is kept before the first round is opened.

    Raises:
        ValueError: this directory has opened another survey of the same name, or a round does not have the name of its
            question's round.
        Refusal, grpc.aio.AioRpcError: a service refuses, or is out of reach.
    """
    folder = survey_folder(directory, survey.survey_id)
    files = {}
    for number, survey_round in enumerate(survey.rounds, start=1):
        if survey_round.round_id != (name := round_of(survey.survey_id, number)):
            raise ValueError(f"round {number} of {survey.survey_id!r} is {survey_round.round_id!r}, and not {name!r}")
        files[name] = folder / f"{name}.signed"
    described = survey.message().SerializeToString(deterministic=True)
    if not (folder / "survey").exists():
        replace_secret(folder / "survey", described.hex())
    if (folder / "survey").read_text() != described.hex():
        raise ValueError(
            f"survey {survey.survey_id!r} was opened with other terms; bring its file back to go on with it, or "
            "give the new survey another name"
        )
    operator.require_approval([terms for round_id, terms in rounds.items() if not files[round_id].exists()])
    opened: list[RoundTerms] = []
    try:
        documents = [
            await operator.sign_and_keep(rounds.get(round_id, pb.Manifest()), file)
            for round_id, file in files.items()
            if round_id in rounds or file.exists()
        ]
        for document in documents:
            opened.append(await operator.open_signed(document))  # noqa: PERF401 (opened rounds count if one fails)
    except (CroupierError, grpc.aio.AioRpcError):
        names = f" ({', '.join(terms.round_id for terms in opened)})" if opened else ""
        tell(
            f"{len(opened)} of the {len(files)} rounds of {survey.survey_id!r} are open{names}; the same "
            f"command again goes on, and 'croupier survey close {survey.survey_id} --withdraw' gives the survey up"
        )
        raise
    return opened


async def close_survey(
    directory: Path, survey: Survey, transport: Transport = TLS, *, hold_at_risk: bool = True
) -> dict[str, rpc.CloseResponse]:
    """Ends admission to all rounds, and returns hop 1's reply for each. The same call again is harmless.

    Args:
        directory: of the deployment.
        survey: to close.
        transport: to hop 1.
        hold_at_risk: leave a round open that some mixture of budgets would have refused.

    Raises:
        Refusal, grpc.aio.AioRpcError: hop 1 refuses, or is out of reach; further rounds are open then.
    """
    async with Operator(directory, transport) as operator:
        return {
            survey_round.round_id: await operator.close_round(survey_round.round_id, hold_at_risk=hold_at_risk)
            for survey_round in survey.rounds
        }


async def withdraw_survey(directory: Path, survey: Survey, transport: Transport = TLS) -> dict[str, dict[str, str]]:
    """Deletes all rounds without a certificate at every service; returns the reply of each, by round."""
    async with Operator(directory, transport) as operator:
        return {survey_round.round_id: await operator.withdraw(survey_round.round_id) for survey_round in survey.rounds}
