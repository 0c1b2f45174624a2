"""The common parts of every role, and the gRPC calls that every role answers."""

from __future__ import annotations

from croupier.net.tls import Context
from croupier.protocol.deployment import OPERATOR, Deployment
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime.lane_opener import LaneOpener
from croupier.runtime.lane_receiver import LaneReceiver
from croupier.runtime.lane_sender import LaneSender
from croupier.runtime.peers import Peers
from croupier.runtime.position import Position
from croupier.runtime.retention import Retention
from croupier.runtime.round_control import RoundControl
from croupier.runtime.round_engine import RoundEngine
from croupier.runtime.service_directory import Secrets
from croupier.runtime.store import Store


class RoundService(stubs.RoundControlServicer, stubs.DeliveryServicer):
    """A role: independent parts, and calls that are passed to them.

    A role makes its parts, with its table of states for the engine, and defines its own calls. Each call names the
    refusals that it gives. OVERLOADED, STORE_FAILED, NOT_READY (the caller's certificate has just been replaced) and
    INTERNAL can be the answer to any call.

    Attributes:
        store: the durable state.
        peers: the other services, and this one's identity.
        position: of this role in the chain of a round.
        engine: drives each round through its states.
        control: answers the operator's calls.
        opener: opens lanes.
        receiver: takes lanes from the services before this one.
        sender: sends lanes to the next services.
        retention: deletes rounds whose time is over.
    """

    store: Store
    peers: Peers
    position: Position
    engine: RoundEngine
    control: RoundControl
    opener: LaneOpener
    receiver: LaneReceiver
    sender: LaneSender
    retention: Retention

    # ------------------------------------------------------------- life of the service

    async def start(self) -> None:
        """Drives on every round that an earlier run left unfinished."""
        await self.engine.start()
        self.retention.start()

    def replace(self, deployment: Deployment, secrets: Secrets) -> None:
        """Goes on with the keys and pins of a new deployment file."""
        self.peers.replace(deployment, secrets)

    def close_streams(self) -> None:
        """Ends the calls that last, before the server waits for those under way."""

    async def stop(self) -> None:
        """Stops all work; everything durable is unchanged."""
        await self.opener.stop()
        await self.retention.stop()
        await self.engine.stop()
        await self.peers.close()

    @property
    def num_waiting_submissions(self) -> int:
        """The number of submissions that are not answered yet; only roles that admit clients have any."""
        return 0

    # ------------------------------------------------------------- RoundControl

    async def Prepare(self, request: rpc.PrepareRequest, context: Context) -> rpc.PrepareResponse:  # noqa: N802
        """See `RoundControl.prepare`."""
        return await self.control.prepare(request, context)

    async def Sign(self, request: rpc.SignRequest, context: Context) -> rpc.SignResponse:  # noqa: N802
        """See `RoundControl.sign`."""
        return await self.control.sign(request, context)

    async def Open(self, request: rpc.OpenRequest, context: Context) -> rpc.OpenResponse:  # noqa: N802
        """See `RoundControl.open`."""
        return await self.control.open(request, context)

    async def Close(self, request: rpc.CloseRequest, context: Context) -> rpc.CloseResponse:  # noqa: N802
        """Ends admission; only hop 1 can.

        Raises:
            Refusal: NOT_YOUR_CALL (not the operator, or not hop 1).
        """
        self.peers.require_caller(context, [OPERATOR])
        raise Refusal(Code.NOT_YOUR_CALL, "only the first shuffler closes rounds")

    async def Withdraw(self, request: rpc.WithdrawRequest, context: Context) -> rpc.WithdrawResponse:  # noqa: N802
        """See `RoundControl.withdraw`."""
        return await self.control.withdraw(request, context)

    async def Status(self, request: rpc.StatusRequest, context: Context) -> rpc.StatusResponse:  # noqa: N802
        """See `RoundControl.status`."""
        return await self.control.status(request, context)

    # ------------------------------------------------------------- Delivery

    async def Deliver(self, request: pb.DeliverRequest, context: Context) -> pb.DeliverResponse:  # noqa: N802
        """See `LaneReceiver.deliver`."""
        return await self.receiver.deliver(request, context)

    async def HandOver(self, request: pb.HandOverRequest, context: Context) -> pb.HandOverResponse:  # noqa: N802
        """See `LaneReceiver.hand_over`."""
        return await self.receiver.hand_over(request, context)

    async def Relay(self, request: pb.RelayRequest, context: Context) -> pb.RelayResponse:  # noqa: N802
        """Passes one answer of a sequential round on; only hops behind the first and the analyzer do.

        Raises:
            Refusal: NOT_YOUR_CALL, always.
        """
        raise Refusal(Code.NOT_YOUR_CALL, f"{self.peers.name} takes no answers")

    async def EndSequential(self, request: pb.EndSequentialRequest, context: Context) -> pb.EndSequentialResponse:  # noqa: N802
        """See `LaneReceiver.end_sequential`."""
        return await self.receiver.end_sequential(request, context)
