"""A role of the deployment: the round driver, the operator's calls and the deliveries in one gRPC service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from croupier.protocol.deployment import OPERATOR
from croupier.protocol.identity import Purpose
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.admission import Admission
from croupier.runtime.delivery import SEQUENTIAL_REPORT, Delivery
from croupier.runtime.round_control import RELEASE_KEY, RoundControl
from croupier.runtime.round_driver import ENVELOPE_KEY, ServiceSetup, Stopwatch
from croupier.runtime.tls import Context
from croupier.runtime.transaction import Transaction

__all__ = [
    "ENVELOPE_KEY",
    "RELEASE_KEY",
    "SEQUENTIAL_REPORT",
    "AdmittingService",
    "RoundService",
    "ServiceSetup",
    "Stopwatch",
]


class RoundService(RoundControl, Delivery):
    """What every role inherits. A role says which keys it has, which lanes come to it, and what to do next.

    Each call names the refusals that it gives. OVERLOADED, STORE_FAILED, NOT_READY (the caller's certificate has just
    been replaced) and INTERNAL can be the answer to any call.
    """


class AdmittingService(RoundService):
    """What hop 1 and the accountant share: each keeps its own roster of the clients that it serves."""

    admits: ClassVar[Purpose]
    """What clients sign their messages to this role for."""

    def __init__(self, setup: ServiceSetup) -> None:
        super().__init__(setup)
        self.admission = Admission(setup.store, setup.pool, self.admits, self.keep_envelopes)

    def keep_envelopes(
        self, tx: Transaction, terms: RoundTerms, envelopes: Sequence[bytes], records: Sequence[bytes]
    ) -> None:
        """Stores what is admitted, in the same transaction; the hash of each is kept in any case.

        Args:
            tx: the transaction.
            terms: of the round.
            envelopes: as they came.
            records: of all of them, or of none: what came of opening them.
        """

    @property
    def num_waiting_submissions(self) -> int:
        """See `RoundDriver.num_waiting_submissions`."""
        return self.admission.num_pending

    def on_deletion(self) -> None:
        """See `RoundDriver.on_deletion`: tokens forget whom they have admitted."""
        self.admission.read_again()

    def dismiss(self, round_id: str) -> None:
        """See `RoundDriver.dismiss`; admission forgets the round."""
        super().dismiss(round_id)
        self.admission.forget(round_id)

    async def RegisterClients(self, request: pb.RegisterClientsRequest, context: Context) -> pb.RegisterClientsResponse:  # noqa: N802
        """Registers clients' keys and one-use tokens.

        Raises:
            Refusal: NOT_YOUR_CALL (only the operator may), BAD_REQUEST (a key or hash of a wrong length, or a key of
                small order), STORE_FAILED.
        """
        self.require_caller(context, [OPERATOR])
        return pb.RegisterClientsResponse(
            registered=await self.admission.register(request.client_keys, request.token_hashes)
        )

    async def RevokeClients(self, request: pb.RevokeClientsRequest, context: Context) -> pb.RevokeClientsResponse:  # noqa: N802
        """Revokes clients' keys and one-use tokens, which are no longer admitted; repeating the call changes nothing.

        Raises:
            Refusal: NOT_YOUR_CALL (only the operator may), BAD_REQUEST (a key or hash of a wrong length), STORE_FAILED.
        """
        self.require_caller(context, [OPERATOR])
        return pb.RevokeClientsResponse(revoked=await self.admission.revoke(request.client_keys, request.token_hashes))
