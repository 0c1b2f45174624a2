"""The manifest of a round: which question of which survey it asks, in which wave, with which keys.

The bytes that services sign are the deterministic serialisation of the `Manifest` message, and `parse_terms` refuses
bytes that are not, or whose survey has another hash. Every layer of every envelope is bound to their hash. Signatures
are `protocol.identity`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from google.protobuf.message import DecodeError

from croupier.protocol.deployment import Deployment
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.hop_noise import RoundFakes
from croupier.protocol.identity import Kind, document_hash, read_canonical, verify_signed
from croupier.protocol.names import Digest, RoundId
from croupier.protocol.questions import Question
from croupier.protocol.schedules import Wave
from croupier.protocol.surveys import QuestionTerms, Survey, read_survey
from croupier.protocol.tickets import TICKET_KEY_BYTES
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.values import names_of


def verify_manifest(document: pb.SignedRound, deployment: Deployment) -> int | None:
    """Returns the time of a round, after checking that every service that its manifest names has signed it.

    The time is the latest at which a service has made its keys (Unix seconds), None where one does not say it. Each
    service states its own time and signs a manifest only with it, so that only all services together can give a round
    an earlier time. Each signature must be by an identity that is believed at that time. What the terms are is not
    checked: see `parse_terms` and `RoundTerms.check_place`.

    Raises:
        SignatureError: a signature is missing, wrong, or by a signer that is not pinned.
        Refusal: BAD_MANIFEST if the payload is not a manifest.
    """
    try:
        manifest = pb.Manifest.FromString(document.manifest.payload)
    except DecodeError as error:
        raise Refusal(Code.BAD_MANIFEST, "the bytes are not a manifest") from error
    time = _time_of(manifest)
    pinned = deployment.pinned(time)
    verify_signed(Kind.MANIFEST, document.manifest, pinned, [keys.service for keys in _keys_in(manifest)])
    return time


def _keys_in(manifest: pb.Manifest) -> tuple[pb.RoundKeys, ...]:
    return (*manifest.hops, manifest.accountant, manifest.analyzer)


def _time_of(manifest: pb.Manifest) -> int | None:
    times = [keys.created_unix_s for keys in _keys_in(manifest)]
    return max(times) if all(times) else None


@dataclass(frozen=True, eq=False)
class RoundTerms(QuestionTerms):
    """A manifest with its survey that has passed every check that can be made without keys; see `parse_terms`.

    Attributes:
        question: what is asked; by a rule, in this wave.
        payload: the canonical bytes that services sign.
        hash: the SHA-256 that names this manifest, 32 bytes; see `document_hash`.
        wave: in which the question is asked; None where its survey is asked once.
        created_unix_s: the time of the round; see `verify_manifest`.
        hops, accountant, analyzer: the keys of the services for this round, the hops' in the order of the chain.
    """

    payload: bytes
    hash: Digest
    wave: Wave | None
    created_unix_s: int | None
    hops: tuple[pb.RoundKeys, ...]
    accountant: pb.RoundKeys
    analyzer: pb.RoundKeys

    @property
    def round_id(self) -> RoundId:
        """The round's name, which follows from its survey, its question and its wave."""
        return self.survey.round_id(self.place, self.wave.number if self.wave else 0)

    @property
    def close_deadline_unix_s(self) -> int:
        """When admission ends, Unix seconds; 0: when the operator closes the round."""
        return self.wave.closes_unix_s if self.wave else self.survey.message.close_deadline_unix_s

    @property
    def unsigned(self) -> bytes:
        """The bytes of a `SignedRound` without signatures, from which another process parses these terms."""
        return pb.SignedRound(manifest=pb.Signed(payload=self.payload), survey=self.survey.payload).SerializeToString()

    @property
    def services(self) -> tuple[str, ...]:
        """The names of the services that must sign, in the order of the chain."""
        return tuple(keys.service for keys in (*self.hops, self.accountant, self.analyzer))

    def check_place(self, deployment: Deployment) -> None:
        """Checks that the round is this deployment's: its name, its chain of services and its lifetime policy.

        Raises:
            Refusal: BAD_MANIFEST with what differs.
        """
        self.survey.check_place(deployment)
        if self.services != deployment.chain:
            raise Refusal(Code.BAD_MANIFEST, f"services are {self.services}, not {deployment.chain}")

    def keys_of(self, service: str) -> pb.RoundKeys:
        """Returns the round keys of one service.

        Raises:
            Refusal: BAD_MANIFEST if the service has no place in this round.
        """
        for keys in (*self.hops, self.accountant, self.analyzer):
            if keys.service == service:
                return keys
        raise Refusal(Code.BAD_MANIFEST, f"{service!r} is not part of round {self.round_id!r}")


def parse_terms(document: pb.SignedRound | bytes) -> RoundTerms:
    """Returns the terms of a round, whose signatures are not checked here; bytes are those of the message.

    Raises:
        Refusal: BAD_MANIFEST with the field, its value and what it must be.
    """
    if isinstance(document, bytes):
        document = pb.SignedRound.FromString(document)
    return with_survey(document.manifest.payload, read_survey(document.survey))


def with_survey(payload: bytes, survey: Survey) -> RoundTerms:
    """Returns the terms that a canonical manifest and its survey state; raises as `parse_terms`."""
    manifest = read_canonical(pb.Manifest, payload)
    if manifest.survey_hash != survey.hash:
        raise Refusal(
            Code.BAD_MANIFEST,
            f"the manifest is of survey {manifest.survey_hash.hex()[:16]}…, not of {survey.hash.hex()[:16]}…",
        )
    try:
        if manifest.question >= len(survey.questions):
            raise ValueError(f"question is {manifest.question}; the survey has {len(survey.questions)}, from 0")
        asked = survey.questions[manifest.question]
        wave, question = _wave(manifest, survey), _question(manifest, asked)
        stated = {field.name: getattr(asked, field.name) for field in fields(asked)}
        stated |= {"question": question, "fakes": RoundFakes.of(survey.message, question.mechanism)}
        terms = RoundTerms(
            **stated,
            payload=payload,
            hash=document_hash(Kind.MANIFEST, payload),
            wave=wave,
            created_unix_s=_time_of(manifest),
            hops=tuple(manifest.hops),
            accountant=manifest.accountant,
            analyzer=manifest.analyzer,
        )
        _check_keys(manifest, terms)
    except ValueError as error:
        raise Refusal(Code.BAD_MANIFEST, str(error)) from error
    return terms


def _question(manifest: pb.Manifest, asked: QuestionTerms) -> Question:
    """Returns the question of a round: that of the survey, or the one to which its rule has led."""
    state = manifest.rule_state if manifest.HasField("rule_state") else None
    if asked.rule is not None:
        return asked.rule.asked(asked.question, state, manifest.wave)
    if state is not None:
        raise ValueError(f"rule_state is stated; question {asked.question.name!r} has no rule")
    return asked.question


def _wave(manifest: pb.Manifest, survey: Survey) -> Wave | None:
    times = manifest.opens_unix_s, manifest.closes_unix_s
    if survey.schedule is not None:
        return survey.schedule.stated_wave(manifest.wave, *times)
    if manifest.wave or any(times):
        raise ValueError(f"wave is {manifest.wave}, open from {times[0]} to {times[1]}; without a schedule all are 0")
    return None


def _check_keys(manifest: pb.Manifest, terms: RoundTerms) -> None:
    if len(manifest.hops) != terms.shared.num_hops:
        raise ValueError(f"hops has {len(manifest.hops)} shufflers; the survey has {terms.shared.num_hops}")
    everyone = _keys_in(manifest)
    for keys in everyone:
        if keys.round_id != terms.round_id:
            raise ValueError(f"the keys of {keys.service!r} are for round {keys.round_id!r}, not {terms.round_id!r}")
        if not keys.public_key:
            raise ValueError(f"the public key of {keys.service!r} is missing")
    if len({keys.service for keys in everyone}) != len(everyone):
        raise ValueError("a service appears twice in the manifest")
    tickets = (manifest.accountant.report_ticket_key, manifest.accountant.parameter_ticket_key)
    if {len(key) for key in tickets} != {TICKET_KEY_BYTES} or tickets[0] == tickets[1]:
        raise ValueError(f"the accountant's two ticket keys must differ and have {TICKET_KEY_BYTES} bytes each")
    public = [keys.public_key for keys in everyone] + [manifest.accountant.release_public_key]
    if not manifest.accountant.release_public_key or len(set(public)) != len(public):
        raise ValueError("the release key is missing, or two round keys are equal")
    if terms.shared.collector_public_key and terms.shared.collector_public_key in public:
        raise ValueError("the collector's key is a key of the round; a collector has its own")


def one_survey(rounds: Sequence[RoundTerms]) -> Survey:
    """Returns the survey of which these are all rounds of one wave, in the order of its questions.

    Raises:
        ValueError: they are not.
    """
    survey = rounds[0].survey if rounds else None
    if survey is None or any((terms.survey.hash, terms.wave) != (survey.hash, rounds[0].wave) for terms in rounds):
        raise ValueError("the rounds are not of one survey, or of different waves")
    if [terms.place for terms in rounds] != list(range(len(survey.questions))):
        raise ValueError(f"survey {survey.survey_id!r} has other rounds, or in another order")
    return survey


def state_name(state: pb.RoundState.ValueType) -> str:
    """Returns the state that a service says a round is in; UNKNOWN for one that the protocol does not have."""
    return names_of(pb.RoundState.DESCRIPTOR).get(state, "UNKNOWN")
