"""The round manifest: the public terms of one round, checked once and then carried as `RoundTerms`.

The bytes that services sign are the deterministic serialisation of the `Manifest` message, and `parse_terms` refuses
bytes that are not. Every layer of every envelope is bound to their hash. Signatures are `protocol.identity`'s.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError, Message

from croupier.protocol.deployment import Deployment, PrivacyLimit
from croupier.protocol.envelope import MAX_HOPS, PROTOCOL_VERSION, SUITES, check_public_key
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.hop_noise import RoundFakes
from croupier.protocol.identity import Kind, document_hash, verify_signed
from croupier.protocol.mechanisms import KINDS_WITH_FAKES
from croupier.protocol.mechanisms.base import Mechanism
from croupier.protocol.names import Digest, RoundId
from croupier.protocol.permanent import PermanentSeries
from croupier.protocol.questions import Question
from croupier.protocol.shown import check_shown
from croupier.protocol.surveys import Survey, check_survey_of
from croupier.protocol.tickets import TICKET_KEY_BYTES
from croupier.protocol.tier_counts import EXACT, TierCounts, counts_of
from croupier.protocol.v1 import messages_pb2 as pb

_MAX_DELTA = 0.1
_MAX_LOCAL_EPSILON = 20.0
_TINY_LOCAL_EPSILON = 1e-9  # reports made with less show nothing; the accountant's range begins far below
_MAX_GRID = 4096


def canonical(message: Message) -> bytes:
    """Returns the bytes of a document that is about to be signed."""
    return message.SerializeToString(deterministic=True)


def verify_manifest(document: pb.Signed, deployment: Deployment) -> int | None:
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
        manifest = pb.Manifest.FromString(document.payload)
    except DecodeError as error:
        raise Refusal(Code.BAD_MANIFEST, "the bytes are not a manifest") from error
    time = _time_of(manifest)
    verify_signed(Kind.MANIFEST, document, deployment.pinned(time), [keys.service for keys in _keys_in(manifest)])
    return time


def _keys_in(manifest: pb.Manifest) -> tuple[pb.RoundKeys, ...]:
    return (*manifest.hops, manifest.accountant, manifest.analyzer)


def _time_of(manifest: pb.Manifest) -> int | None:
    times = [keys.created_unix_s for keys in _keys_in(manifest)]
    return max(times) if all(times) else None


@dataclass(frozen=True, eq=False)
class RoundTerms:
    """A manifest that has passed every check that can be made without keys, read once by `parse_terms`.

    Attributes:
        payload: the canonical bytes that services sign.
        manifest: the message they encode; everything that a round rests on is in the other attributes.
        question: what is asked.
        survey: the survey that the round belongs to; None for a round by itself.
        hash: the SHA-256 that names this manifest, 32 bytes; see `document_hash`.
        round_id: the round's name, 1..128 bytes of UTF-8.
        deployment: the name of its deployment.
        suite: the name of the HPKE suite that everything in this round is sealed with.
        created_unix_s: the time of the round; see `verify_manifest`.
        hops, accountant, analyzer: the keys of the services for this round, the hops' in the order of the chain.
        delta: the central delta that is certified.
        epsilon_max: the most central epsilon that is granted for a local epsilon without a limit of its own.
        dishonest: against how many dishonest clients the round is certified.
        min_batch_size, max_batch_size: the fewest clients that are mixed, and the most that are admitted; 0: no limit.
        disposes_if_short: whether a round with too few clients is disposed of; otherwise it is held open.
        close_deadline_unix_s: when admission ends; 0: when the operator closes the round.
        collector_public_key: to which the result is sealed; empty where it is public.
        budget_grid: the local epsilons that clients may use, ascending.
        local_delta: the local delta of each of them; 0 where reports are epsilon-private by themselves.
        epsilon_max_of: the most central epsilon that is granted, for every local epsilon of the grid.
        privacy_limit: the lifetime policy that the accountant has to enforce; None where nothing is refused.
        counted_by: how the clients with each budget are counted. With one budget in the grid there is nothing to hide,
            and the count is exact.
        fakes: the fake reports of the hops; None where hops add none.
        permanent: the series of waves in which a client sends the same report; None where it draws a report for this
            round.
    """

    payload: bytes
    manifest: pb.Manifest
    question: Question
    survey: Survey | None
    hash: Digest
    round_id: RoundId
    deployment: str
    suite: str
    created_unix_s: int | None
    hops: tuple[pb.RoundKeys, ...]
    accountant: pb.RoundKeys
    analyzer: pb.RoundKeys
    delta: float
    epsilon_max: float
    dishonest: int
    min_batch_size: int
    max_batch_size: int
    disposes_if_short: bool
    close_deadline_unix_s: int
    collector_public_key: bytes
    budget_grid: tuple[float, ...]
    local_delta: float
    epsilon_max_of: Mapping[float, float]
    privacy_limit: PrivacyLimit | None
    counted_by: TierCounts
    fakes: RoundFakes | None
    permanent: PermanentSeries | None

    @property
    def shown_of_one(self) -> tuple[float, float]:
        """The (epsilon, delta) of any one client, whatever its budget, if one hop is honest and nobody else is."""
        if self.fakes is None:
            return self.budget_grid[-1], self.local_delta
        return self.fakes.noise.epsilon, self.fakes.noise.delta

    @property
    def num_hops(self) -> int:
        """The number of shufflers in the chain, k."""
        return len(self.hops)

    @property
    def services(self) -> tuple[str, ...]:
        """The names of the services that must sign, in the order of the chain."""
        return tuple(keys.service for keys in (*self.hops, self.accountant, self.analyzer))

    def check_place(self, deployment: Deployment) -> None:
        """Checks that the round is this deployment's: its name, its chain of services and its lifetime policy.

        Raises:
            Refusal: BAD_MANIFEST with what differs.
        """
        if self.deployment != deployment.name:
            raise Refusal(Code.BAD_MANIFEST, f"deployment is {self.deployment!r}, not {deployment.name!r}")
        if self.services != deployment.chain:
            raise Refusal(Code.BAD_MANIFEST, f"services are {self.services}, not {deployment.chain}")
        if self.privacy_limit != deployment.privacy_limit:
            raise Refusal(Code.BAD_MANIFEST, f"privacy_limit is {self.privacy_limit}, not {deployment.privacy_limit}")

    def keys_of(self, service: str) -> pb.RoundKeys:
        """Returns the round keys of one service.

        Raises:
            Refusal: BAD_MANIFEST if the service has no place in this round.
        """
        for keys in (*self.hops, self.accountant, self.analyzer):
            if keys.service == service:
                return keys
        raise Refusal(Code.BAD_MANIFEST, f"{service!r} is not part of round {self.round_id!r}")


def _check_number(name: str, value: float, low: float, high: float) -> None:
    if not (math.isfinite(value) and low < value <= high):
        raise ValueError(f"{name} is {value}; it must be {low:g} < {name} ≤ {high:g}")


def _check_grid(grid: Sequence[pb.LocalBudget], mechanism: Mechanism) -> None:
    if not 1 <= len(grid) <= _MAX_GRID:
        raise ValueError(f"budget_grid has {len(grid)} budgets; it must have 1..{_MAX_GRID}")
    for budget in grid:
        _check_number("a budget's epsilon", budget.epsilon, _TINY_LOCAL_EPSILON, _MAX_LOCAL_EPSILON)
        if budget.delta != mechanism.budget_delta:
            raise ValueError(
                f"a budget's delta is {budget.delta}; with this question it must be {mechanism.budget_delta:g}"
            )
        if budget.HasField("epsilon_max"):
            _check_number("a budget's epsilon_max", budget.epsilon_max, 0.0, _MAX_LOCAL_EPSILON)
        mechanism.check_budget(budget.epsilon)
    epsilons = [budget.epsilon for budget in grid]
    if any(a >= b for a, b in itertools.pairwise(epsilons)):
        raise ValueError(f"budget_grid is {epsilons}; it must be strictly ascending")


def _check(manifest: pb.Manifest, question: Question) -> None:
    if manifest.protocol_version != PROTOCOL_VERSION:
        raise ValueError(f"protocol_version is {manifest.protocol_version}; this software speaks {PROTOCOL_VERSION}")
    if not manifest.deployment:
        raise ValueError("deployment is empty")
    if not 1 <= len(manifest.round_id.encode()) <= 128:
        raise ValueError(f"round_id is {manifest.round_id!r}; it must have 1..128 bytes")
    check_shown("round_id", manifest.round_id)
    if manifest.hpke_suite not in SUITES:
        raise ValueError(f"hpke_suite is {manifest.hpke_suite!r}; it must be one of {', '.join(SUITES)}")
    if manifest.min_batch_size < 2:
        raise ValueError(f"min_batch_size is {manifest.min_batch_size}; it must be at least 2: one user cannot hide")
    if 0 < manifest.max_batch_size < manifest.min_batch_size:
        raise ValueError(
            f"max_batch_size is {manifest.max_batch_size}; it must be 0 (no limit) or at least min_batch_size, "
            f"{manifest.min_batch_size}"
        )
    if manifest.HasField("privacy_limit"):
        _check_number("privacy_limit.total_epsilon", manifest.privacy_limit.total_epsilon, 0.0, math.inf)
        _check_number("privacy_limit.total_delta", manifest.privacy_limit.total_delta, 0.0, _MAX_DELTA)
    if manifest.short_batch_policy not in (pb.SHORT_BATCH_POLICY_HOLD, pb.SHORT_BATCH_POLICY_DISPOSE):
        raise ValueError("short_batch_policy is missing or unknown; it must be HOLD or DISPOSE")
    _check_number("delta", manifest.delta, 0.0, _MAX_DELTA)
    _check_grid(manifest.budget_grid, question.mechanism)
    _check_number("epsilon_max", manifest.epsilon_max, 0.0, _MAX_LOCAL_EPSILON)
    if not 1 <= len(manifest.hops) <= MAX_HOPS:
        raise ValueError(f"hops has {len(manifest.hops)} shufflers; it must have 1..{MAX_HOPS}")
    everyone = _keys_in(manifest)
    for keys in everyone:
        if keys.round_id != manifest.round_id:
            raise ValueError(f"the keys of {keys.service!r} are for round {keys.round_id!r}, not {manifest.round_id!r}")
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
    if manifest.collector_public_key:
        if question.sequential is not None:
            raise ValueError("a sequential round shows every model to its clients; its result cannot have a collector")
        check_public_key(manifest.hpke_suite, manifest.collector_public_key)
        if manifest.collector_public_key in public:
            raise ValueError("the collector's key is a key of the round; a collector has its own")


def _series(manifest: pb.Manifest, question: Question, survey: Survey | None) -> PermanentSeries | None:
    """Returns the series of a permanent study that a round is a wave of.

    All waves of a study's question are one series while neither the question's terms nor the last wave's number
    change: with other ones the question is a new series with other reports.
    """
    wave = None if survey is None else survey.wave
    if survey is None or wave is None or not wave.study.permanent:
        return None
    if question.mechanism.num_report_values is None:
        raise ValueError(
            f"the study is permanent and asks a question of {question.mechanism.kind}; it must be one of "
            f"{', '.join(KINDS_WITH_FAKES)}: a report can be kept only where it has one of finitely many values"
        )
    place = survey.position_of(RoundId(manifest.round_id)) or 0
    study = wave.study
    named = f"{manifest.deployment}\0{study.study_id}\0{place}\0{study.last_wave}\0".encode()
    digest = hashlib.sha256(b"croupier/v1/permanent\0" + named + study.question_hashes[place])
    return PermanentSeries(study.last_wave, digest.hexdigest())


def _limit(manifest: pb.Manifest) -> PrivacyLimit | None:
    if not manifest.HasField("privacy_limit"):
        return None
    limit = manifest.privacy_limit
    return PrivacyLimit(
        total_epsilon=limit.total_epsilon,
        total_delta=limit.total_delta,
        max_rounds=limit.max_rounds,
        fixed_terms=limit.fixed_terms,
    )


def parse_terms(payload: bytes) -> RoundTerms:
    """Returns the terms that canonical manifest bytes state.

    Raises:
        Refusal: BAD_MANIFEST with the field, its value and what it must be.
    """
    try:
        manifest = pb.Manifest.FromString(payload)
    except DecodeError as error:
        raise Refusal(Code.BAD_MANIFEST, "the bytes are not a manifest") from error
    manifest.DiscardUnknownFields()  # terms that this software cannot read
    if canonical(manifest) != payload:
        raise Refusal(Code.BAD_MANIFEST, "the encoding is not canonical, or has fields that are unknown here")
    try:
        question = Question.read(manifest.question)
        _check(manifest, question)
        survey = check_survey_of(manifest)
        grid, counted_by = manifest.budget_grid, counts_of(manifest)
        return RoundTerms(
            payload,
            manifest,
            question,
            survey,
            hash=document_hash(Kind.MANIFEST, payload),
            round_id=RoundId(manifest.round_id),
            deployment=manifest.deployment,
            suite=manifest.hpke_suite,
            created_unix_s=_time_of(manifest),
            hops=tuple(manifest.hops),
            accountant=manifest.accountant,
            analyzer=manifest.analyzer,
            delta=manifest.delta,
            epsilon_max=manifest.epsilon_max,
            dishonest=manifest.dishonest,
            min_batch_size=manifest.min_batch_size,
            max_batch_size=manifest.max_batch_size,
            disposes_if_short=manifest.short_batch_policy == pb.SHORT_BATCH_POLICY_DISPOSE,
            close_deadline_unix_s=manifest.close_deadline_unix_s,
            collector_public_key=manifest.collector_public_key,
            budget_grid=tuple(budget.epsilon for budget in grid),
            local_delta=question.mechanism.budget_delta,
            epsilon_max_of={
                budget.epsilon: budget.epsilon_max if budget.HasField("epsilon_max") else manifest.epsilon_max
                for budget in grid
            },
            privacy_limit=_limit(manifest),
            counted_by=counted_by if len(grid) > 1 else EXACT,
            fakes=RoundFakes.of(manifest, question.mechanism),
            permanent=_series(manifest, question, survey),
        )
    except ValueError as error:
        raise Refusal(Code.BAD_MANIFEST, str(error)) from error


def state_name(state: pb.RoundState.ValueType) -> str:
    """Returns the state that a service says a round is in; UNKNOWN for one that the protocol does not have."""
    known = state in pb.RoundState.values()
    return pb.RoundState.Name(state).removeprefix("ROUND_STATE_") if known else "UNKNOWN"
