"""The position of a shuffler in the chain of a round."""

from __future__ import annotations

from croupier.protocol.errors import Code, Refusal
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import Lane
from croupier.protocol.v1 import messages_pb2 as pb

LANES: tuple[Lane, ...] = (pb.LANE_REPORT, pb.LANE_PARAMETER)
"""The two lanes behind hop 1."""


class ChainPosition:
    """Says for each round which hop a shuffler is, who delivers to it, and to whom it delivers."""

    lanes = LANES

    def __init__(self, name: str) -> None:
        self._name = name

    def hop(self, terms: RoundTerms) -> int:
        """Returns this shuffler's number in the chain, 1..k."""
        return terms.services.index(self._name) + 1

    def predecessor(self, terms: RoundTerms) -> str:
        """Returns the hop before this one.

        Raises:
            Refusal: NOT_YOUR_CALL at hop 1, which takes submissions and no deliveries.
        """
        hop = self.hop(terms)
        if hop == 1:
            raise Refusal(Code.NOT_YOUR_CALL, "hop 1 takes submissions, not deliveries")
        return terms.hops[hop - 2].service

    def receivers(self, terms: RoundTerms) -> dict[Lane, str]:
        """Returns the next service on each lane."""
        hop = self.hop(terms)
        if hop < terms.shared.num_hops:
            return dict.fromkeys(LANES, terms.hops[hop].service)
        return {
            pb.LANE_REPORT: terms.analyzer.service,
            pb.LANE_PARAMETER: terms.accountant.service,
        }
