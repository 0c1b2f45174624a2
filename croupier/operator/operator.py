"""The operator: opens and closes rounds, enrols clients, reads the state of all services.

The operator is trusted for availability only: it cannot change a manifest that services have signed, open a report, or
release a round. Manifests are assembled in `round_settings`, and signed by the services; results are read in
`published_result`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import grpc.aio

from croupier.client.async_client import AsyncClient
from croupier.client.round_checks import accept_manifest, fetch_publication
from croupier.deploy.directory import read_deployment
from croupier.net.retrying import retrying
from croupier.net.transport import TLS, Transport
from croupier.operator.proposals import ActionApproval, Approvals
from croupier.operator.round_settings import RoundSettings, check_settings, fresh_name, manifest_of
from croupier.protocol.approvals import proposal_to_admit, proposal_to_ask
from croupier.protocol.deployment import OPERATOR, Deployment
from croupier.protocol.errors import Refusal, refusal_of
from croupier.protocol.identity import Kind, read_signed
from croupier.protocol.manifest import RoundTerms, state_name, with_survey
from croupier.protocol.names import NO_ROUND, Digest, PublicKey, RoundId
from croupier.protocol.schedules import Wave
from croupier.protocol.surveys import Survey
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime.service_directory import load_secrets

_PATIENCE_S = 20.0
"""Seconds after which a failing call to a service is not tried again."""
_Admission = pb.RegisterClientsRequest | pb.RevokeClientsRequest
_PER_CALL = 50_000
"""The client keys that one call registers: 50,000 keys of 32 bytes, 1.6 MB of the 4 MiB of a message."""


def registrations(
    client_keys: Sequence[PublicKey], survey_hash: bytes = b"", valid_until_unix_s: int = 0
) -> list[pb.RegisterClientsRequest]:
    """Returns the calls that register clients, of one survey if its hash is given; see `RegisterClientsRequest`."""
    return [
        pb.RegisterClientsRequest(
            client_keys=client_keys[start : start + _PER_CALL],
            survey_hash=survey_hash,
            valid_until_unix_s=valid_until_unix_s,
        )
        for start in range(0, len(client_keys), _PER_CALL)
    ]


def revocations(client_keys: Sequence[PublicKey]) -> list[pb.RevokeClientsRequest]:
    """Returns the calls that revoke client keys."""
    starts = range(0, len(client_keys), _PER_CALL)
    return [pb.RevokeClientsRequest(client_keys=client_keys[start : start + _PER_CALL]) for start in starts]


def is_operators(directory: Path) -> bool:
    """Whether the operator's keys are in a deployment's directory."""
    return (directory / OPERATOR / "identity.key").exists()


def sees_rounds(directory: Path) -> bool:
    """Says whether a deployment's directory has the operator's keys or a service's, which may see every round."""
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
        """Returns a client of the same deployment, with its sealed answers in this directory."""
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
        fresh = fresh_name(settings.question.name)
        survey = check_settings(settings, self.deployment, round_id or fresh).survey
        self.require_approval(survey)
        try:
            return await self.open_signed(await self.sign_round(survey))
        except (Refusal, grpc.aio.AioRpcError):
            if not round_id:
                await self.withdraw(fresh)
            raise

    def require_approval(self, survey: Survey) -> None:
        """Checks that enough organisations approve a survey; else writes the proposal.

        Raises:
            Refusal: NOT_APPROVED, with the name of the file.
        """
        self.approvals.of([proposal_to_ask(survey)])

    def require_approval_of(self, requests: Sequence[_Admission]) -> list[ActionApproval]:
        """Checks that enough organisations approve calls that belong together; else writes one proposal for all.

        Raises:
            Refusal: NOT_APPROVED, with the name of the file.
        """
        return self.approvals.of([proposal_to_admit(self.deployment, request) for request in requests])

    def _approved(self, requests: Sequence[_Admission]) -> list[ActionApproval]:
        """Adds the approvals of calls to them, and returns these."""
        approved = self.require_approval_of(requests)
        for request, approval in zip(requests, approved, strict=True):
            request.approvals.extend(approval.signatures)
            request.approvals_expire_unix_s = approval.expires_unix_s
        return approved

    async def sign_round(
        self,
        survey: Survey,
        place: int = 0,
        wave: Wave | None = None,
        before: pb.Signed | None = None,
        state: pb.RuleState | None = None,
    ) -> pb.SignedRound:
        """Collects keys for a question in a wave, and returns the round with the signature of every service.

        Nothing is open then. The same call again, also after a failure, gives the same manifest until the round is open
        somewhere.

        Args:
            survey: of the question.
            place: of the question in the survey.
            wave: None for a survey that is asked once.
            before: the latest signed result, where the question goes on by its rule.
            state: of the rule; by default the one that `before` states.

        Raises:
            Refusal, grpc.aio.AioRpcError: see `open_round`.
        """
        approved = self.approvals.valid(proposal_to_ask(survey))
        chain, round_id = self.deployment.chain, survey.round_id(place, wave.number if wave else 0)
        # None is under way any more when the failure of one is heard of.
        preparing = (self.prepare(name, round_id, survey.message.hpke_suite) for name in chain)
        made = dict(zip(chain, await asyncio.gather(*preparing, return_exceptions=True), strict=True))
        for answer in made.values():
            if isinstance(answer, BaseException):
                raise answer
        keys = {name: answer for name, answer in made.items() if isinstance(answer, pb.RoundKeys)}
        if state is None and before is not None:
            state = pb.Publication.FromString(before.payload).rule_state
        payload = manifest_of(survey, place, wave, keys, chain, state)
        with_survey(payload, survey)
        signing = (self._have_signed(name, payload, survey, approved, before) for name in chain)
        signatures = await asyncio.gather(*signing)
        return pb.SignedRound(manifest=pb.Signed(payload=payload, signatures=signatures), survey=survey.payload)

    async def open_signed(self, document: pb.SignedRound) -> RoundTerms:
        """Opens a round whose manifest every service has signed; the same call again is harmless.

        Raises:
            Refusal, grpc.aio.AioRpcError: see `open_round`; then the round may be open at some services.
        """
        for name in reversed(
            self.deployment.chain
        ):  # hop 1 last: when it admits clients, all services behind it are ready
            control, request = self._control(name), rpc.OpenRequest(round=document)
            await retrying(lambda: control.Open(request, timeout=20.0), give_up_after_s=_PATIENCE_S)  # noqa: B023
        return accept_manifest(document, self.deployment)

    async def prepare(self, name: str, round_id: RoundId, suite: str) -> pb.RoundKeys:
        """Returns the keys that a service has made for a round, after checking its signature."""
        request = rpc.PrepareRequest(round_id=round_id, hpke_suite=suite)
        answer = await retrying(lambda: self._control(name).Prepare(request, timeout=20.0), give_up_after_s=_PATIENCE_S)
        return read_signed(Kind.ROUND_KEYS, pb.RoundKeys, answer.round_keys, self.deployment.pinned(), [name])

    async def _have_signed(
        self, name: str, payload: bytes, survey: Survey, approved: ActionApproval, before: pb.Signed | None
    ) -> pb.Signature:
        request = rpc.SignRequest(
            manifest=payload,
            survey=survey.payload,
            approvals=approved.signatures,
            approvals_expire_unix_s=approved.expires_unix_s,
            before=before,
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
            hold_at_risk: leave the round open if some mixture of budgets would have it refused; the answer has the
                forecast.
        """
        control = self._control(self.deployment.shufflers[0].name)
        request = rpc.CloseRequest(round_id=round_id, end_sequential=end_sequential, hold_at_risk=hold_at_risk)
        return await retrying(lambda: control.Close(request, timeout=30.0), give_up_after_s=_PATIENCE_S)

    async def withdraw(self, round_id: RoundId) -> dict[str, str]:
        """Deletes a round that is not certified at every service; returns the reply of each, hop 1 first."""

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
        return await self.register(registrations(client_keys))

    async def invite(self, client_keys: Sequence[PublicKey], survey_hash: Digest, valid_until_unix_s: int) -> None:
        """Registers clients of one survey with hop 1 and the accountant; see `RegisterClientsRequest`."""
        await self.register(registrations(client_keys, survey_hash, valid_until_unix_s))

    async def count_answered(self, round_ids: Sequence[str], client_keys: Sequence[PublicKey]) -> int:
        """Returns how many of these clients have answered at least one of these rounds, according to hop 1."""
        hop_1 = stubs.ShufflerStub(self._channels[self.deployment.shufflers[0].name])
        answered = 0
        for start in range(0, len(client_keys) if round_ids else 0, _PER_CALL):
            request = pb.CountAnsweredRequest(round_ids=round_ids, client_keys=client_keys[start : start + _PER_CALL])
            answer = await retrying(partial(hop_1.CountAnswered, request, timeout=60.0), give_up_after_s=_PATIENCE_S)
            answered += answer.answered
        return answered

    async def revoke(self, client_keys: Sequence[PublicKey]) -> dict[str, int]:
        """Revokes client keys for good; returns how many were not revoked before, by service.

        Raises:
            Refusal: BAD_REQUEST for a key of a wrong length.
            grpc.aio.AioRpcError: the accountant or hop 1 is out of reach; the same call again does the rest.
        """
        return await self.carry_out_revocation(revocations(client_keys))

    async def carry_out_revocation(self, requests: Sequence[pb.RevokeClientsRequest]) -> dict[str, int]:
        """Carries out revocations that enough organisations approve of; see `revoke`."""
        self._approved(requests)
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
        approved = self._approved(requests)
        for request in requests:
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
        """Returns every service's answer in the order of the chain, or the error of one that is out of reach."""

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
