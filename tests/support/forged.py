"""Waves that honest services would not sign, signed by all of them: what a client must refuse by itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from croupier.protocol.identity import Identity, Kind
from croupier.protocol.manifest import RoundTerms, canonical
from croupier.protocol.surveys import stated_terms_hash
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.runtime.service_directory import load_secrets
from tests.support.gateways import PassOn
from tests.support.rounds import Table


def forged_rounds(
    at: Table, rounds: Sequence[RoundTerms], name: str, change: Callable[[pb.StudyWave], object] = lambda _: None
) -> dict[str, bytes]:
    """Returns answers of GetRound about open rounds like these, in the order of the questions, by id.

    Args:
        at: whose services sign.
        rounds: all rounds of a wave.
        name: of the rounds: NAME-1, NAME-2, ...
        change: changes what the survey of each round says of the study and the wave.
    """
    manifests = [pb.Manifest.FromString(terms.manifest.SerializeToString()) for terms in rounds]
    for number, manifest in enumerate(manifests, start=1):
        manifest.round_id = f"{name}-{number}"
        for keys in (*manifest.hops, manifest.accountant, manifest.analyzer):
            keys.round_id = manifest.round_id
        change(manifest.survey.wave)
        manifest.survey.survey_id = f"{manifest.survey.wave.study.study_id}-w{manifest.survey.wave.number}"
    stated = [
        pb.SurveyRound(round_id=manifest.round_id, terms_hash=stated_terms_hash(manifest)) for manifest in manifests
    ]
    answers = {}
    for manifest in manifests:
        del manifest.survey.rounds[:]
        manifest.survey.rounds.extend(stated)
        payload = canonical(manifest)
        signers = [
            Identity(entry.name, load_secrets(at.inside.directory / entry.name).identity_key)
            for entry in at.deployment.services
        ]
        signed = pb.Signed(payload=payload, signatures=[signer.sign(Kind.MANIFEST, payload) for signer in signers])
        answers[manifest.round_id] = rpc.GetRoundResponse(
            manifest=signed, state=pb.ROUND_STATE_OPEN
        ).SerializeToString()
    return answers


def shows(answers: dict[str, bytes]) -> Callable[[bytes, PassOn], Awaitable[bytes]]:
    """Returns a dishonest hop 1 that shows these rounds, the first one as the newest."""

    async def show(raw: bytes, pass_on: PassOn) -> bytes:
        round_id = rpc.GetRoundRequest.FromString(raw).round_id or next(iter(answers))
        return answers.get(round_id) or await pass_on(raw)

    return show
