"""Registration: the operator enrols and revokes clients at the two roles that admit them, hop 1 and the accountant."""

from __future__ import annotations

from croupier.net.tls import Context
from croupier.protocol.deployment import OPERATOR
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.admission import Admission
from croupier.runtime.peers import Peers

__all__ = ["Registration"]


class Registration:
    """The operator's calls that change a roster."""

    def __init__(self, admission: Admission, peers: Peers) -> None:
        self._admission = admission
        self._peers = peers

    async def register(self, request: pb.RegisterClientsRequest, context: Context) -> pb.RegisterClientsResponse:
        """Registers clients' keys and one-use tokens.

        Raises:
            Refusal: NOT_YOUR_CALL (only the operator may), BAD_REQUEST (a key or hash of a wrong length, or a key of
                small order), STORE_FAILED.
        """
        self._peers.require_caller(context, [OPERATOR])
        number = await self._admission.register(request.client_keys, request.token_hashes)
        return pb.RegisterClientsResponse(registered=number)

    async def revoke(self, request: pb.RevokeClientsRequest, context: Context) -> pb.RevokeClientsResponse:
        """Revokes clients' keys and one-use tokens; repeating the call changes nothing.

        Raises:
            Refusal: NOT_YOUR_CALL (only the operator may), BAD_REQUEST (a key or hash of a wrong length),
                STORE_FAILED.
        """
        self._peers.require_caller(context, [OPERATOR])
        number = await self._admission.revoke(request.client_keys, request.token_hashes)
        return pb.RevokeClientsResponse(revoked=number)
