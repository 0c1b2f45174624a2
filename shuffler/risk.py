"""Before hop 1 closes a round: would the accountant grant it, whatever budgets of its grid people have used?

The answer depends on how many reports and tickets there are, on the round's terms and on the ledger, and on no budget.
So a round that is held back shows nothing that hop 1 and the operator do not see anyway.
"""

from __future__ import annotations

from collections.abc import Callable

import grpc
import grpc.aio

from croupier.protocol.errors import Code, Refusal, refusal_of
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import RoundId
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime.peers import Peers

_PATIENCE_S = 15.0
_ASKS_AGAIN_S = 30.0
"""A held round waits for at most this long after a round was withdrawn that the ledger was to bear first."""


def is_at_risk(forecast: rpc.ForecastResponse) -> bool:
    """Returns whether the accountant would refuse the round for some mixture of budgets."""
    return any(outcome.refusals for outcome in forecast.outcomes)


class RiskCheck:
    """Asks the accountant, and remembers for every round with how many reports it was last at risk, and when."""

    def __init__(self, peers: Peers, now: Callable[[], float]) -> None:
        self._peers = peers
        self._now = now
        self._at_risk: dict[RoundId, tuple[int, float]] = {}

    def stop_round(self, round_id: RoundId) -> None:
        """Deletes from memory what is kept of a round."""
        self._at_risk.pop(round_id, None)

    def was_at_risk(self, round_id: RoundId, num_reports: int) -> bool:
        """Whether the round was at risk with this number of reports, less than half a minute ago.

        After the deadline it usually still is: no ticket is taken back. But a round that was closed before it, and that
        the ledger was to bear as well, may have been withdrawn since.
        """
        reports, when = self._at_risk.get(round_id, (0, 0.0))
        return reports == num_reports and self._now() - when < _ASKS_AGAIN_S

    async def ask(self, terms: RoundTerms, num_reports: int, *, closes_anyway: bool = False) -> rpc.ForecastResponse:
        """Returns the accountant's forecast of a round with this number of reports.

        closes_anyway: the round is closed whatever the forecast is; the accountant counts it before others then.

        Raises:
            Refusal: the accountant's, or NOT_READY if it does not answer.
        """
        accountant = terms.accountant.service
        request = rpc.ForecastRequest(round_id=terms.round_id, num_reports=num_reports, closes_anyway=closes_anyway)
        try:
            stub = stubs.AccountantStub(self._peers.channel_to(accountant))
            forecast = await stub.Forecast(request, timeout=_PATIENCE_S)
        except grpc.aio.AioRpcError as error:
            why = f"{accountant} does not answer, which says whether the round can be closed without risk"
            raise refusal_of(error) or Refusal(Code.NOT_READY, why) from error
        if is_at_risk(forecast):
            self._at_risk[terms.round_id] = num_reports, self._now()
        return forecast
