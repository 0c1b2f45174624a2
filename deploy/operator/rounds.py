"""The operator: opens and closes rounds, enrols clients, reads the state of all services.

The operator is trusted for availability only: it cannot change a manifest that services have signed, open a report, or
release a round. Manifests are assembled here and signed there.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

import grpc.aio
from google.protobuf.message import DecodeError

from croupier.accountant.ranges import DEFAULT_DELTA
from croupier.client.async_client import AsyncClient
from croupier.client.rounds import (
    accept_manifest,
    fetch_publication,
    fetch_round,
    fetch_signed_result,
    read_publication,
)
from croupier.deploy.directory import read_deployment
from croupier.deploy.operator.proposals import Approvals, Approved, ProposalFile
from croupier.net.retrying import retrying
from croupier.net.transport import TLS, Transport
from croupier.protocol.approvals import proposal_to_open, proposal_to_register, proposal_to_revoke
from croupier.protocol.budget_privacy import (
    DEFAULT_BUDGET_DELTA,
    DEFAULT_BUDGET_EPSILON,
    LEAST_PEOPLE,
    BudgetPrivacy,
    privacy_message,
)
from croupier.protocol.collector import open_result, read_collector_key
from croupier.protocol.deployment import OPERATOR, Deployment
from croupier.protocol.envelope import PROTOCOL_VERSION, SuiteName
from croupier.protocol.errors import Code, EnvelopeError, Refusal, refusal_of
from croupier.protocol.identity import Kind, read_signed
from croupier.protocol.manifest import RoundTerms, canonical, parse_terms, state_name
from croupier.protocol.names import NO_ROUND, Digest, PublicKey, RoundId
from croupier.protocol.questions import Question
from croupier.protocol.surveys import Survey
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime.service_directory import load_secrets

__all__ = [
    "Operator",
    "RoundSettings",
    "budget_privacy_of",
    "check_settings",
    "draft_manifest",
    "is_operators",
    "kept_result",
    "new_round_id",
    "open_published",
    "proposal_of",
    "published_result",
    "signed_result",
    "with_drawn_keys",
]

_PATIENCE_S = 20.0
"""Seconds after which a failing call to a service is not tried again."""
_PER_CALL = 50_000
"""The client keys that one call registers: 50,000 keys of 32 bytes, 1.6 MB of the 4 MiB of a message."""
_CLOSES_WITHIN_S = 5.0
"""Hop 1 looks at its clock several times a second, and closes a round that is due; clocks differ by seconds."""
_ANY_CHAIN = ("shuffler-1", "accountant", "analyzer")
_NO_COLLECTOR = PublicKey(b"")
"""The round has no collector: its result is published."""
_CHECKED = RoundId("checked")
"""The name of a round that is only checked."""
_SHORT_BATCH = {"hold": pb.SHORT_BATCH_POLICY_HOLD, "dispose": pb.SHORT_BATCH_POLICY_DISPOSE}


@dataclass(frozen=True)
class RoundSettings:
    """What the operator chooses for a round; `protocol.manifest` checks it.

    Attributes:
        question: what is asked.
        budget_grid: the local epsilons that clients may use, ascending.
        delta: the central delta that the certificate is for.
        epsilon_max: the round is refused if the certified central epsilon of any client is above it.
        epsilon_max_of: for clients with this local epsilon, instead of epsilon_max.
        dishonest: f, the number of dishonest clients to certify against.
        min_batch_size: the fewest clients whose reports are mixed.
        max_batch_size: further clients are refused; 0: all registered clients may take part.
        min_tier_size: the round is refused if a budget was used by fewer than min_tier_size + f clients; 0 or 1: never.
            One client can cause that. The refusal does not say which budget it was.
        small_tiers: "refuse" such a round, or "merge": count these clients with those of the next larger budget used.
            For rr, krr and onebit, without epsilon_max_of. Refused still if the largest budget used is rare.
        short_batch_policy: with fewer than `min_batch_size`: "hold" the round open, or "dispose" of it.
        close_deadline_unix_s: when the round closes by itself; from then on clients get no tickets, so that a held
            round waits for those that have them. 0: only the operator closes it.
        hpke_suite: of all envelopes.
        collector_public_key: of that suite: the result is published sealed to it; empty: the result is public.
        survey: the survey that the round is a question of; see `deploy.operator.surveys`.
        hop_noise: the epsilon that the fake reports of one honest hop guarantee; None: hops add no reports.
        hop_noise_delta: its delta; None: `delta`.
        budget_privacy: the epsilon with which tier counts hide one person's budget; 0: they are exact. None: 1, where
            there are several budgets and `min_batch_size` is at least `LEAST_PEOPLE` times the number of people that
            such counts leave out, and min_tier_size is not given; else 0. See `budget_privacy_of`.
        budget_privacy_delta: its delta; None: 1e-6.
    """

    question: Question
    budget_grid: tuple[float, ...]
    delta: float = DEFAULT_DELTA
    epsilon_max: float = 1.0
    epsilon_max_of: Mapping[float, float] = field(default_factory=dict)
    dishonest: int = 0
    min_batch_size: int = 100
    max_batch_size: int = 0
    min_tier_size: int = 0
    small_tiers: Literal["refuse", "merge"] = "refuse"
    short_batch_policy: Literal["hold", "dispose"] = "hold"
    close_deadline_unix_s: int = 0
    hpke_suite: SuiteName = "x25519-sha256-chacha20poly1305"
    collector_public_key: PublicKey = _NO_COLLECTOR
    survey: Survey | None = None
    hop_noise: float | None = None
    hop_noise_delta: float | None = None
    budget_privacy: float | None = None
    budget_privacy_delta: float | None = None


def is_operators(directory: Path) -> bool:
    """Whether the operator's keys are in a deployment's directory."""
    return (directory / OPERATOR / "identity.key").exists()


def sees_rounds(directory: Path) -> bool:
    """Whether a deployment's directory has the operator's keys or those of a service, which may see every round."""
    return is_operators(directory) or _keys_of_service(directory, read_deployment(directory)) is not None


def _keys_of_service(directory: Path, deployment: Deployment) -> Path | None:
    services = (directory / name for name in deployment.chain)
    return next((home for home in services if (home / "identity.key").exists()), None)


class Operator:
    """Calls all services with the operator's certificate. Use as an async context manager."""

    def __init__(self, directory: Path, transport: Transport = TLS, *, only_reads: bool = False) -> None:
        """Reads the deployment and the operator's secrets from the deployment's directory.

        Args:
            directory: of the deployment.
            transport: how services are reached.
            only_reads: whether the keys of a service that are here will do: with them one sees the state of all
                services, and changes nothing.

        Raises:
            ValueError: one of them is missing or cannot be used.
        """
        self.deployment = read_deployment(directory)
        self._transport = transport
        own = directory / OPERATOR
        if not is_operators(directory):
            here = _keys_of_service(directory, self.deployment) if only_reads else None
            if here is None:
                needed = "the operator's or those of a service" if only_reads else "the operator's"
                raise ValueError(f"{own} has no keys; this needs {needed}, and can only be done where they are")
            own = here
        self._secrets = load_secrets(own)
        self.approvals = Approvals(directory, self.deployment)

    async def __aenter__(self) -> Operator:
        """Opens a channel to every service."""
        peer = self._transport.peer_channel
        self._channels = {entry.name: peer(entry, self._secrets) for entry in self.deployment.services}
        self._analyzer = self.client_channel(self.deployment.analyzer.name)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Closes the channels."""
        for channel in (*self._channels.values(), self._analyzer):
            await channel.close()

    def channel_to(self, name: str) -> grpc.aio.Channel:
        """Returns the channel to one service."""
        return self._channels[name]

    def client(self, directory: Path) -> AsyncClient:
        """Returns a client of the same deployment, which keeps what it has sealed in this directory."""
        return AsyncClient(self.deployment, directory=directory, transport=self._transport)

    def client_channel(self, name: str = "") -> grpc.aio.Channel:
        """Returns a new channel as a client has it, to hop 1 if no service is named; ValueError if it takes none."""
        entry = self.deployment.service(name) if name else self.deployment.shufflers[0]
        return self._transport.public_channel(entry)

    def _control(self, name: str) -> stubs.RoundControlAsyncStub:
        return stubs.RoundControlStub(self._channels[name])

    async def open_round(self, settings: RoundSettings, round_id: RoundId = NO_ROUND) -> RoundTerms:
        """Collects round keys, has every service sign the manifest, opens the round, and returns its terms.

        Terms that cannot be are refused before a service hears of them. Where a service refuses or is out of reach, the
        round is withdrawn from the others, unless its id was given: a caller with an id may open that round later,
        within a day.

        Raises:
            ValueError: the terms cannot be.
            Refusal: a service does not accept them; nothing is open then.
            grpc.aio.AioRpcError: a service is out of reach.
        """
        fresh = new_round_id(settings)
        check_settings(settings, self.deployment, round_id or fresh)
        if round_id:
            return await self._open_round(settings, round_id)
        self.require_approval({RoundId(fresh): settings})
        try:
            return await self._open_round(settings, fresh)
        except (Refusal, grpc.aio.AioRpcError):
            await self.withdraw(fresh)
            raise

    def require_approval(self, rounds: Mapping[RoundId, RoundSettings]) -> None:
        """Checks that enough organisations approve of rounds; else writes one proposal for all of them.

        Raises:
            Refusal: NOT_APPROVED, with the name of the file.
        """
        self.approvals.of([proposal_of(settings, round_id, self.deployment) for round_id, settings in rounds.items()])

    def add_approvals(self, proposal: ProposalFile) -> None:
        """Takes the signatures of a proposal into account for what is done from here on."""
        self.approvals.add(proposal)

    async def open_proposed(self, open_round: bytes) -> RoundTerms:
        """Opens a round as it was proposed; the same call again is harmless.

        Args:
            open_round: the terms in the `Proposal`.

        Raises:
            Refusal, grpc.aio.AioRpcError: see `open_round`.
        """
        return await self.open_signed(await self._sign(pb.Manifest.FromString(open_round)))

    async def _open_round(self, settings: RoundSettings, round_id: RoundId) -> RoundTerms:
        return await self.open_signed(await self.sign_round(settings, round_id))

    async def sign_round(self, settings: RoundSettings, round_id: RoundId) -> pb.Signed:
        """Collects round keys, and returns the manifest with the signature of every service; nothing is open then.

        The same call again, also after a failure, gives the same manifest until the round is open somewhere.

        Raises:
            Refusal, grpc.aio.AioRpcError: see `open_round`.
        """
        return await self._sign(_terms(settings, round_id, self.deployment))

    async def _sign(self, terms: pb.Manifest) -> pb.Signed:
        """Returns the manifest of a round, given without keys, with keys and signatures; see `sign_round`."""
        (approved,) = self.approvals.of([proposal_to_open(terms)])
        chain = self.deployment.chain
        # None is under way any more when the failure of one is heard of.
        preparing = (self.prepare(name, RoundId(terms.round_id), terms.hpke_suite) for name in chain)
        made = dict(zip(chain, await asyncio.gather(*preparing, return_exceptions=True), strict=True))
        for answer in made.values():
            if isinstance(answer, BaseException):
                raise answer
        keys = {name: answer for name, answer in made.items() if isinstance(answer, pb.RoundKeys)}
        payload = _with_keys(terms, keys, chain)
        parse_terms(payload)
        signing = (self._have_signed(name, payload, approved) for name in chain)
        signatures = await asyncio.gather(*signing)
        return pb.Signed(payload=payload, signatures=signatures)

    async def open_signed(self, document: pb.Signed) -> RoundTerms:
        """Opens a round whose manifest every service has signed; the same call again is harmless.

        Raises:
            Refusal, grpc.aio.AioRpcError: see `open_round`; then the round may be open at some services.
        """
        for name in reversed(
            self.deployment.chain
        ):  # hop 1 last: when it admits clients, all services behind it are ready
            control, request = self._control(name), rpc.OpenRequest(manifest=document)
            await retrying(lambda: control.Open(request, timeout=20.0), give_up_after_s=_PATIENCE_S)  # noqa: B023
        return accept_manifest(document, self.deployment)

    async def prepare(self, name: str, round_id: RoundId, suite: str) -> pb.RoundKeys:
        """Returns the keys that a service has made for a round, after checking its signature."""
        request = rpc.PrepareRequest(round_id=round_id, hpke_suite=suite)
        answer = await retrying(lambda: self._control(name).Prepare(request, timeout=20.0), give_up_after_s=_PATIENCE_S)
        return read_signed(Kind.ROUND_KEYS, pb.RoundKeys, answer.round_keys, self.deployment.pinned(), [name])

    async def _have_signed(self, name: str, payload: bytes, approved: Approved) -> pb.Signature:
        request = rpc.SignRequest(
            manifest=payload, approvals=approved.signatures, approvals_expire_unix_s=approved.expires_unix_s
        )
        answer = await retrying(lambda: self._control(name).Sign(request, timeout=20.0), give_up_after_s=_PATIENCE_S)
        return answer.signature

    async def close_round(
        self, round_id: RoundId, *, end_sequential: bool = False, hold_at_risk: bool = False
    ) -> rpc.CloseResponse:
        """Ends admission at hop 1; the rest of the round runs without the operator.

        Args:
            round_id: of an open round, or of a sequential round in which clients are being asked.
            end_sequential: in a sequential round, ask no further client.
            hold_at_risk: leave the round open where some mixture of budgets would have it refused; the answer has the
                forecast.
        """
        control = self._control(self.deployment.shufflers[0].name)
        request = rpc.CloseRequest(round_id=round_id, end_sequential=end_sequential, hold_at_risk=hold_at_risk)
        return await retrying(lambda: control.Close(request, timeout=30.0), give_up_after_s=_PATIENCE_S)

    async def withdraw(self, round_id: RoundId) -> dict[str, str]:
        """Has every service delete a round that is not certified; returns what each said, hop 1 first."""

        async def ask(name: str) -> str:
            try:
                answer = await self._control(name).Withdraw(rpc.WithdrawRequest(round_id=round_id), timeout=60.0)
                return state_name(answer.state)
            except grpc.aio.AioRpcError as error:
                refusal = refusal_of(error)
                return str(refusal) if refusal else error.code().name

        return {name: await ask(name) for name in self.deployment.chain}

    async def enrol(self, client_keys: Sequence[PublicKey]) -> list[str]:
        """Registers clients' public keys with hop 1 and the accountant; returns the organisations that approve of it.

        Raises:
            Refusal: NOT_APPROVED, with the file that organisations have to sign; or a service refuses.
            grpc.aio.AioRpcError: a service is out of reach.
        """
        slices = range(0, len(client_keys), _PER_CALL)
        return await self.register(
            [pb.RegisterClientsRequest(client_keys=client_keys[start : start + _PER_CALL]) for start in slices]
        )

    async def invite(self, client_keys: Sequence[PublicKey], survey_hash: Digest, valid_until_unix_s: int) -> None:
        """Registers clients of one survey with hop 1 and the accountant; see `RegisterClientsRequest`."""
        requests = [
            pb.RegisterClientsRequest(
                client_keys=client_keys[start : start + _PER_CALL],
                survey_hash=survey_hash,
                valid_until_unix_s=valid_until_unix_s,
            )
            for start in range(0, len(client_keys), _PER_CALL)
        ]
        await self.register(requests)

    async def count_answered(self, round_ids: Sequence[str], client_keys: Sequence[PublicKey]) -> int:
        """Returns how many of these clients have answered at least one of these rounds, as hop 1 knows it."""
        hop_1 = stubs.ShufflerStub(self._channels[self.deployment.shufflers[0].name])
        answered = 0
        for start in range(0, len(client_keys), _PER_CALL):
            request = pb.CountAnsweredRequest(round_ids=round_ids, client_keys=client_keys[start : start + _PER_CALL])
            answer = await retrying(partial(hop_1.CountAnswered, request, timeout=60.0), give_up_after_s=_PATIENCE_S)
            answered += answer.answered
        return answered

    async def issue_tokens(self, count: int) -> list[bytes]:
        """Returns fresh one-use tokens, each of which admits one client to one round.

        Their hashes are registered with hop 1 and the accountant.
        """
        tokens = [secrets.token_bytes(32) for _ in range(count)]
        await self.register_tokens(tokens)
        return tokens

    async def register_tokens(self, tokens: Sequence[bytes]) -> None:
        """Registers the hashes of one-use tokens with hop 1 and the accountant; raises as `enrol` does."""
        hashes = [hashlib.sha256(token).digest() for token in tokens]
        slices = range(0, len(hashes), _PER_CALL)
        await self.register(
            [pb.RegisterClientsRequest(token_hashes=hashes[start : start + _PER_CALL]) for start in slices]
        )

    async def revoke(self, client_keys: Sequence[PublicKey], tokens: Sequence[bytes] = ()) -> dict[str, int]:
        """Revokes client keys and tokens for good; returns how many were not revoked before, by service.

        Raises:
            Refusal: BAD_REQUEST for a key of a wrong length.
            grpc.aio.AioRpcError: the accountant or hop 1 is out of reach; the same call again does the rest.
        """
        hashes = [hashlib.sha256(token).digest() for token in tokens]
        parts = [slice(start, start + _PER_CALL) for start in range(0, max(len(client_keys), len(hashes)), _PER_CALL)]
        return await self.carry_out_revocation(
            [pb.RevokeClientsRequest(client_keys=client_keys[part], token_hashes=hashes[part]) for part in parts]
        )

    async def carry_out_revocation(self, requests: Sequence[pb.RevokeClientsRequest]) -> dict[str, int]:
        """Carries out revocations that enough organisations approve of; see `revoke`."""
        actions = [proposal_to_revoke(self.deployment, request) for request in requests]
        for request, approved in zip(requests, self.approvals.of(actions), strict=True):
            request.approvals.extend(approved.signatures)
            request.approvals_expire_unix_s = approved.expires_unix_s
        revoked: dict[str, int] = {}
        # Hop 1 last: a client that has tickets may still use them until then.
        for name, admitting in self._admitting().items():
            revoked[name] = 0
            for request in requests:
                answer = await retrying(
                    partial(admitting.RevokeClients, request, timeout=60.0), give_up_after_s=_PATIENCE_S
                )
                revoked[name] += answer.revoked
        return revoked

    async def register(self, requests: Sequence[pb.RegisterClientsRequest]) -> list[str]:
        """Carries out registrations; returns the organisations that approve of all of them. Raises as `enrol` does."""
        approved = self.approvals.of([proposal_to_register(self.deployment, request) for request in requests])
        for request, approval in zip(requests, approved, strict=True):
            request.approvals.extend(approval.signatures)
            request.approvals_expire_unix_s = approval.expires_unix_s
            # Hop 1 last: a client that it knows can get tickets.
            for admitting in self._admitting().values():
                await retrying(partial(admitting.RegisterClients, request, timeout=60.0), give_up_after_s=_PATIENCE_S)
        return sorted(set.intersection(*(set(approval.organisations) for approval in approved))) if approved else []

    def _admitting(self) -> dict[str, stubs.AccountantAsyncStub | stubs.ShufflerAsyncStub]:
        """Returns the services that keep a roster of clients: the accountant, then hop 1."""
        accountant, hop_1 = self.deployment.accountant.name, self.deployment.shufflers[0].name
        return {
            accountant: stubs.AccountantStub(self._channels[accountant]),
            hop_1: stubs.ShufflerStub(self._channels[hop_1]),
        }

    async def status(self, round_id: RoundId = NO_ROUND) -> list[rpc.StatusResponse | grpc.aio.AioRpcError]:
        """Returns every service's answer in the order of the chain; an error stands for one that is out of reach."""

        async def ask(name: str) -> rpc.StatusResponse | grpc.aio.AioRpcError:
            try:
                return await self._control(name).Status(rpc.StatusRequest(round_id=round_id), timeout=5.0)
            except grpc.aio.AioRpcError as error:
                return error

        return list(await asyncio.gather(*(ask(name) for name in self.deployment.chain)))

    async def readiness(self) -> list[str]:
        """Returns SERVING, NOT_SERVING or UNREACHABLE for every service, in the order of the chain."""
        from grpc_health.v1 import health_pb2, health_pb2_grpc

        async def ask(name: str) -> str:
            try:
                stub: Any = health_pb2_grpc.HealthStub(self._channels[name])
                answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=5.0)
            except grpc.aio.AioRpcError:
                return "UNREACHABLE"
            return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)

        return list(await asyncio.gather(*(ask(name) for name in self.deployment.chain)))

    async def result(self, round_id: RoundId, patience_s: float) -> tuple[pb.Publication, pb.Certificate]:
        """Returns the verified publication and certificate, waiting up to `patience_s` for them."""
        return await fetch_publication(self._analyzer, self.deployment, round_id, patience_s)


def check_settings(
    settings: RoundSettings, deployment: Deployment | None = None, round_id: RoundId = _CHECKED
) -> RoundTerms:
    """Returns the terms of a round, with keys of no service, before any makes its own, or before there is a service.

    Args:
        settings: to check.
        deployment: whose round it is; without one, what depends on the deployment is not checked.
        round_id: the round's name.

    Raises:
        ValueError: naming the term, its value and what it must be.
    """
    try:
        return parse_terms(draft_manifest(settings, deployment, round_id))
    except Refusal as refusal:
        raise ValueError(refusal.hint) from refusal


def draft_manifest(settings: RoundSettings, deployment: Deployment | None, round_id: RoundId) -> bytes:
    """Returns the manifest that these settings would give, with keys that no service has made."""
    chain = deployment.chain if deployment else _ANY_CHAIN
    return with_drawn_keys(_terms(settings, round_id, deployment), chain)


def with_drawn_keys(terms: pb.Manifest, chain: Sequence[str]) -> bytes:
    """Returns a manifest for terms without keys, with keys that no service has made: enough to check the terms."""
    round_id = terms.round_id
    keys = {
        name: pb.RoundKeys(
            round_id=round_id,
            service=name,
            public_key=secrets.token_bytes(32),
            release_public_key=secrets.token_bytes(32),
            report_ticket_key=secrets.token_bytes(32),
            parameter_ticket_key=secrets.token_bytes(32),
        )
        for name in chain
    }
    return _with_keys(terms, keys, chain)


def proposal_of(settings: RoundSettings, round_id: RoundId, deployment: Deployment) -> bytes:
    """Returns the proposal to open a round with these settings; see `protocol.approvals`."""
    return proposal_to_open(_terms(settings, round_id, deployment))


def new_round_id(settings: RoundSettings) -> RoundId:
    """Returns a fresh name for a round: that of its question with a random end."""
    return RoundId(f"{settings.question.name}-{secrets.token_hex(6)}")


def _with_keys(terms: pb.Manifest, keys: Mapping[str, pb.RoundKeys], chain: Sequence[str]) -> bytes:
    """Returns the canonical manifest of a round, from its terms and the keys of all services."""
    *hops, accountant, analyzer = chain
    manifest = pb.Manifest(hops=[keys[name] for name in hops], accountant=keys[accountant], analyzer=keys[analyzer])
    manifest.MergeFrom(terms)
    return canonical(manifest)


def _terms(settings: RoundSettings, round_id: RoundId, deployment: Deployment | None) -> pb.Manifest:
    """Returns the manifest of a round without the keys of services."""
    limit = deployment.privacy_limit if deployment else None
    return pb.Manifest(
        protocol_version=PROTOCOL_VERSION,
        deployment=deployment.name if deployment else "any",
        round_id=round_id,
        question=settings.question.message(),
        budget_grid=[
            pb.LocalBudget(
                epsilon=epsilon,
                delta=settings.question.mechanism.budget_delta,
                epsilon_max=settings.epsilon_max_of.get(epsilon),
            )
            for epsilon in settings.budget_grid
        ],
        min_batch_size=settings.min_batch_size,
        short_batch_policy=_SHORT_BATCH[settings.short_batch_policy],
        close_deadline_unix_s=settings.close_deadline_unix_s,
        dishonest=settings.dishonest,
        delta=settings.delta,
        epsilon_max=settings.epsilon_max,
        hpke_suite=settings.hpke_suite,
        max_batch_size=settings.max_batch_size,
        min_tier_size=settings.min_tier_size,
        merge_small_tiers=settings.small_tiers == "merge",
        collector_public_key=settings.collector_public_key,
        privacy_limit=None if limit is None else pb.PrivacyLimit(**limit.model_dump()),
        survey=None if settings.survey is None else settings.survey.message(),
        hop_noise=_hop_noise(settings),
        budget_privacy=None if (privacy := budget_privacy_of(settings)) is None else privacy_message(privacy),
    )


def budget_privacy_of(settings: RoundSettings) -> BudgetPrivacy | None:
    """Returns how well the tier counts of a round hide one person's budget; None where they are exact.

    By default they are noised where the people that they leave out are few among the smallest batch. In a smaller round
    nearly nobody would be counted, and the round be refused.

    Raises:
        ValueError: epsilon or delta is out of range, or a delta is given for exact counts.
    """
    epsilon, delta = settings.budget_privacy, settings.budget_privacy_delta
    if epsilon == 0:
        if delta is not None:
            raise ValueError(f"budget_privacy_delta is {delta:g} with budget_privacy 0, which has none; leave it out")
        return None
    chosen = BudgetPrivacy(
        DEFAULT_BUDGET_EPSILON if epsilon is None else epsilon, DEFAULT_BUDGET_DELTA if delta is None else delta
    )
    if epsilon is not None:
        return chosen
    budgets, uses_tiers = len(settings.budget_grid), settings.min_tier_size > 1 or settings.small_tiers == "merge"
    affordable = settings.min_batch_size >= LEAST_PEOPLE * budgets * chosen.radius
    return chosen if budgets > 1 and affordable and not uses_tiers else None


def _hop_noise(settings: RoundSettings) -> pb.HopNoise | None:
    if settings.hop_noise is None:
        if settings.hop_noise_delta is not None:
            raise ValueError(f"hop_noise_delta is {settings.hop_noise_delta:g} without hop_noise; give both")
        return None
    delta = settings.delta if settings.hop_noise_delta is None else settings.hop_noise_delta
    return pb.HopNoise(epsilon=settings.hop_noise, delta=delta)


def open_published(publication: pb.Publication, key_file: Path) -> pb.Publication:
    """Returns a publication whose result is sealed, opened with the collector's key.

    Raises:
        ValueError: the result is not sealed, the file is not a collector's key, or it is another collector's.
    """
    if not publication.sealed_result:
        raise ValueError(f"the result of round {publication.round_id!r} is not sealed; it needs no collector's key")
    suite, key = read_collector_key(key_file.read_text(encoding="utf-8"))
    if not key.private:
        raise ValueError(f"{key_file} is the public half of a collector's key; the other half opens results")
    try:
        return open_result(publication, suite, key)
    except EnvelopeError as error:
        raise ValueError(f"the result of round {publication.round_id!r} is not sealed to {key_file}") from error


def kept_result(directory: Path, round_id: RoundId, file: Path) -> tuple[pb.Publication, pb.Certificate]:
    """Returns publication and certificate from a signed document that was kept, verified as if it had come just now.

    Raises:
        ValueError: the file is no such document.
        Refusal: it is of another round.
        SignatureError: publication or certificate are not signed as they must be.
    """
    deployment = read_deployment(directory)
    try:
        document = pb.Signed.FromString(file.read_bytes())
    except DecodeError as error:
        raise ValueError(
            f"{file} is not a signed document; download one from the round's page in the console"
        ) from error
    return read_publication(document, deployment, round_id)


async def published_result(
    directory: Path,
    round_id: RoundId,
    patience_s: float,
    transport: Transport = TLS,
    tell: Callable[[str], None] = lambda _: None,
) -> tuple[pb.Publication, pb.Certificate]:
    """Returns the verified publication and certificate of a round; see `signed_result`."""
    _, publication, certificate = await signed_result(directory, round_id, patience_s, transport, tell)
    return publication, certificate


def _verified(
    document: pb.Signed, deployment: Deployment, round_id: RoundId
) -> tuple[bytes, pb.Publication, pb.Certificate]:
    return document.SerializeToString(), *read_publication(document, deployment, round_id)


async def signed_result(
    directory: Path,
    round_id: RoundId,
    patience_s: float,
    transport: Transport = TLS,
    tell: Callable[[str], None] = lambda _: None,
) -> tuple[bytes, pb.Publication, pb.Certificate]:
    """Returns the result of a round: the document as the analyzer signed it, and what is in it, verified.

    It needs the public deployment file only.

    Args:
        directory: of the deployment.
        round_id: of the round.
        patience_s: how long to wait for the result.
        transport: how the analyzer is reached.
        tell: called once, with a sentence, when the analyzer has no result yet and it is waited for.

    Raises:
        Refusal: the round has no result after `patience_s`, or will have none by then: it takes answers still, is held,
            or was withdrawn.
        SignatureError: publication or certificate are not signed as they must be.
    """
    deployment = read_deployment(directory)
    told = False

    def wait(error: grpc.aio.AioRpcError) -> None:
        nonlocal told
        refusal = refusal_of(error)  # of calls that do not arrive `retrying` warns itself
        if refusal is not None and not told:
            tell(f"{refusal.hint or refusal}; waiting for up to {patience_s:g} s")
            told = True

    async with transport.public_channel(deployment.analyzer) as channel:
        try:
            return _verified(await fetch_signed_result(channel, round_id, 0.0), deployment, round_id)
        except Refusal as refusal:
            if refusal.code is not Code.NOT_READY:
                raise
        except grpc.aio.AioRpcError:
            pass  # it is tried again for as long as the caller waits
        async with transport.public_channel(deployment.shufflers[0]) as first:
            await _check_closed(first, deployment, round_id, patience_s)
        return _verified(await fetch_signed_result(channel, round_id, patience_s, wait), deployment, round_id)


async def _check_closed(first: grpc.aio.Channel, deployment: Deployment, round_id: RoundId, patience_s: float) -> None:
    """Raises Refusal where a result will not come while the caller waits: hop 1 takes answers still, or has none."""
    try:
        terms, state = await fetch_round(first, deployment, round_id, 0.0)
    except Refusal as refusal:
        if refusal.code is Code.WRONG_STATE:
            raise
        return
    except grpc.aio.AioRpcError:
        return
    deadline, least = terms.manifest.close_deadline_unix_s, terms.manifest.min_batch_size
    left_s = deadline - time.time()
    if state != pb.ROUND_STATE_OPEN or (deadline and -_CLOSES_WITHIN_S < left_s <= patience_s):
        return
    held = f"the round is held: fewer than {least:,} have answered, or some mixture of budgets would have it refused"
    operator = f"its operator sees which in 'croupier round list'; 'croupier round withdraw {round_id}' ends the round"
    if not deadline:
        why = f"it takes answers until its operator closes it ('croupier round close {round_id}'). "
        why += f"If that was done, {held}; {operator}"
    elif left_s > 0:
        why = f"it takes answers until {datetime.fromtimestamp(deadline, UTC):%Y-%m-%d %H:%M} UTC"
    else:
        why = f"its deadline has passed, but {held}. Clients that have tickets can still answer; {operator}"
    raise Refusal(Code.NOT_READY, f"round {round_id!r} is not published yet; {why}")
