"""Rounds that honest services would not sign, signed by all of them: what a client must refuse by itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from croupier.protocol.identity import Identity, Kind, canonical
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.surveys import read_survey
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.runtime.service_directory import load_secrets
from tests.support.gateways import PassOn
from tests.support.rounds import Table


def forged_rounds(
    at: Table, rounds: Sequence[RoundTerms], number: int, change: Callable[[pb.Survey], object] = lambda _: None
) -> dict[str, bytes]:
    """Returns answers of GetRound about open rounds like these, in the order of the questions, by id.

    Args:
        at: whose services sign.
        rounds: all rounds of a wave.
        number: of the wave that they are then of.
        change: changes the survey.
    """
    message = pb.Survey.FromString(rounds[0].survey.payload)
    change(message)
    survey = read_survey(canonical(message))
    signers = [
        Identity(entry.name, load_secrets(at.inside.directory / entry.name).identity_key)
        for entry in at.deployment.services
    ]
    answers: dict[str, bytes] = {}
    for terms in rounds:
        manifest = pb.Manifest.FromString(terms.payload)
        manifest.survey_hash, manifest.wave = survey.hash, number
        round_id = survey.round_id(terms.place, number)
        for keys in (*manifest.hops, manifest.accountant, manifest.analyzer):
            keys.round_id = round_id
        payload = canonical(manifest)
        signed = pb.Signed(payload=payload, signatures=[signer.sign(Kind.MANIFEST, payload) for signer in signers])
        document = pb.SignedRound(manifest=signed, survey=survey.payload)
        answers[round_id] = rpc.GetRoundResponse(round=document, state=pb.ROUND_STATE_OPEN).SerializeToString()
    return answers


def shows(answers: dict[str, bytes]) -> Callable[[bytes, PassOn], Awaitable[bytes]]:
    """Returns a dishonest hop 1 that shows these rounds, the first one as the newest."""

    async def show(raw: bytes, pass_on: PassOn) -> bytes:
        round_id = rpc.GetRoundRequest.FromString(raw).round_id or next(iter(answers))
        return answers.get(round_id) or await pass_on(raw)

    return show
