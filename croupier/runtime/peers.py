"""Peers: who this service is, who calls it, and the channels on which it calls the other services."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

import grpc.aio
from google.protobuf.message import Message

from croupier.net.retrying import retrying
from croupier.net.tls import Context, caller_name
from croupier.protocol.approvals import approving_organisations, expiry_objection, with_expiry
from croupier.protocol.deployment import Deployment
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.identity import Identity, Pinned
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import RoundId
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.runtime.service_directory import Secrets
from croupier.runtime.setup import ServiceSetup
from croupier.runtime.waiting import WaitingRounds

T = TypeVar("T")


class Peers:
    """The deployment from one service's point of view. `replace` changes keys and pins while the service runs.

    Attributes:
        name: of this service.
        deployment: the deployment file in force.
        identity: signs in the name of this service.
        secrets: the keys in force.
        waiting: the rounds of this service that wait, for a peer or for something else.
    """

    def __init__(self, setup: ServiceSetup) -> None:
        self.name = setup.entry.name
        self.deployment = setup.deployment
        self.identity = Identity(self.name, setup.secrets.identity_key)
        self.secrets = setup.secrets
        self.waiting = WaitingRounds()
        self._transport = setup.transport
        self._metrics = setup.metrics
        self._clock = setup.clock
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._old_channels: list[grpc.aio.Channel] = []

    def require_caller(self, context: Context, allowed: Iterable[str]) -> str:
        """Returns the caller's name; raises Refusal NOT_YOUR_CALL unless its certificate is pinned for one of these."""
        name = caller_name(context, self.deployment)
        if name is None or name not in set(allowed):
            raise Refusal(Code.NOT_YOUR_CALL, f"{name or 'a client'} called")
        return name

    @property
    def version_in_force(self) -> rpc.VersionInForce:
        """The number and fingerprint of the deployment file that this service goes by."""
        return rpc.VersionInForce(number=self.deployment.version, fingerprint=self.deployment.fingerprint)

    def require_approval(
        self, proposal: bytes, approvals: Sequence[pb.Signature], expires_unix_s: int
    ) -> pb.ProposalApproved:
        """Returns the approvals of a proposal, which the organisations have signed with this expiry.

        Raises:
            Refusal: NOT_APPROVED if the organisations are fewer than the deployment file demands, or if the approvals
                have expired, or expire too late.
        """
        proposal = with_expiry(proposal, expires_unix_s)
        needed, approving = self.deployment.approvals, approving_organisations(self.deployment, proposal, approvals)
        if approving and (objection := expiry_objection(expires_unix_s, self._clock.now())):
            raise Refusal(Code.NOT_APPROVED, objection)
        if len(approving) < needed:
            raise Refusal(
                Code.NOT_APPROVED,
                f"{len(approving)} have ({', '.join(approving) or 'none'}), and this deployment needs {needed}",
            )
        return pb.ProposalApproved(proposal=proposal, signatures=approvals, organisations=approving)

    def pinned_at(self, terms: RoundTerms) -> Pinned:
        """Returns the identity keys that count for a round: keys change between rounds."""
        return self.deployment.pinned(terms.created_unix_s)

    def channel_to(self, name: str) -> grpc.aio.Channel:
        """Returns the channel to another service of the deployment, opened when it is first needed."""
        if name not in self._channels:
            self._channels[name] = self._transport.peer_channel(self.deployment.service(name), self.secrets)
        return self._channels[name]

    async def call_until_answered(
        self,
        round_id: RoundId,
        receiver: str,
        method: Callable[[grpc.aio.Channel], Callable[..., Awaitable[T]]],
        request: Message,
    ) -> T:
        """Calls a peer until it answers; meanwhile the round's status names the service that the round waits for.

        Args:
            round_id: the round that waits.
            receiver: the service that is called.
            method: of the receiver's stub on a channel; called before every attempt, because keys change meanwhile.
            request: the message, the same in every attempt.
        """

        def tell(error: grpc.aio.AioRpcError) -> None:
            self.waiting.wait(round_id, f"{receiver} does not answer: {error.code().name}")

        def call() -> Awaitable[T]:
            return method(self.channel_to(receiver))(request, timeout=60.0)

        answer = await retrying(call, give_up_after_s=float("inf"), on_failure=tell)
        self.waiting.go_on(round_id)
        self._metrics.sent(request.ByteSize())
        return answer

    def replace(self, deployment: Deployment, secrets: Secrets) -> None:
        """Goes on with the keys and pins of a new deployment file; calls under way end on their old channels."""
        self.deployment, self.secrets = deployment, secrets
        self.identity = Identity(self.name, secrets.identity_key)
        self._old_channels += self._channels.values()
        self._channels = {}

    async def close(self) -> None:
        """Closes all channels."""
        for channel in (*self._channels.values(), *self._old_channels):
            await channel.close()
