"""Registration: the operator enrols and revokes clients at the two roles that admit them, hop 1 and the accountant."""

from __future__ import annotations

from croupier.net.tls import Context
from croupier.protocol.approvals import proposal_to_admit
from croupier.protocol.deployment import OPERATOR
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.names import Digest, PublicKey, RoundId
from croupier.protocol.surveys import MOST_QUESTIONS
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.admission import Admission
from croupier.runtime.service import RoundService


class AdmittingService(RoundService):
    """A role that admits clients, with the operator's calls that change its roster.

    Attributes:
        admission: decides who may submit.
    """

    admission: Admission

    @property
    def num_waiting_submissions(self) -> int:
        """The number of submissions that are not answered yet."""
        return self.admission.num_pending

    async def RegisterClients(self, request: pb.RegisterClientsRequest, context: Context) -> pb.RegisterClientsResponse:  # noqa: N802
        """Registers clients' keys, for every round or for those of one survey.

        Raises:
            Refusal: NOT_YOUR_CALL (only the operator may), NOT_APPROVED (too few organisations have signed the
                proposal), BAD_REQUEST (a key or hash of a wrong length, a key of small order), STORE_FAILED.
        """
        self.peers.require_caller(context, [OPERATOR])
        keys = self._approved_keys(request)
        scope = Digest(request.survey_hash), request.valid_until_unix_s
        registered = await self.admission.register(keys, scope if any(scope) else None)
        return pb.RegisterClientsResponse(registered=registered)

    async def RevokeClients(self, request: pb.RevokeClientsRequest, context: Context) -> pb.RevokeClientsResponse:  # noqa: N802
        """Revokes clients' keys; repeating the call changes nothing.

        Raises:
            Refusal: NOT_YOUR_CALL (only the operator may), NOT_APPROVED (too few organisations have signed the
                proposal), BAD_REQUEST (a key of a wrong length), STORE_FAILED.
        """
        self.peers.require_caller(context, [OPERATOR])
        keys = self._approved_keys(request)
        return pb.RevokeClientsResponse(revoked=await self.admission.revoke(keys))

    async def CountAnswered(self, request: pb.CountAnsweredRequest, context: Context) -> pb.CountAnsweredResponse:  # noqa: N802
        """Returns how many of these clients have answered at least one of these rounds.

        Raises:
            Refusal: NOT_YOUR_CALL (only the operator may), BAD_REQUEST (a key of a wrong length), STORE_FAILED.
        """
        self.peers.require_caller(context, [OPERATOR])
        if len(request.round_ids) > MOST_QUESTIONS:
            raise Refusal(Code.BAD_REQUEST, f"{len(request.round_ids)} rounds; a survey has at most {MOST_QUESTIONS}")
        round_ids = [RoundId(round_id) for round_id in request.round_ids]
        number = await self.admission.num_answered(round_ids, list(map(PublicKey, request.client_keys)))
        return pb.CountAnsweredResponse(answered=number)

    def _approved_keys(self, request: pb.RegisterClientsRequest | pb.RevokeClientsRequest) -> list[PublicKey]:
        """Returns the keys of a call whose approvals are enough; raises Refusal NOT_APPROVED."""
        proposal = proposal_to_admit(self.peers.deployment, request)
        self.peers.require_approval(proposal, request.approvals, request.approvals_expire_unix_s)
        return list(map(PublicKey, request.client_keys))
