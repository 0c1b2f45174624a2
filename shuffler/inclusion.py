"""Inclusion lists: the sorted hashes of what a hop has passed on, in pages, for clients that look for their own.

A list is believed only if it is what the hop has committed to (`client.verification`).
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence

import grpc.aio

from croupier.net.tls import Context
from croupier.protocol.deployment import OPERATOR
from croupier.protocol.errors import Code, Refusal, refusal_of
from croupier.protocol.names import Lane, RoundId
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime.kinds import DocumentKind
from croupier.runtime.peers import Peers
from croupier.runtime.round_engine import RoundEngine
from croupier.runtime.setup import ServiceSetup
from croupier.runtime.steps import StoreStep
from croupier.runtime.transaction import Transaction
from croupier.shuffler.position import LANES, ChainPosition

_HASHES_PER_PAGE = 65536
_HASH_BYTES = 32
_LISTS_AT_ONCE = 4


class InclusionLists:
    """Answers clients that look for their own ciphertexts."""

    def __init__(self, setup: ServiceSetup, peers: Peers, engine: RoundEngine, position: ChainPosition) -> None:
        self._store = setup.store
        self._peers = peers
        self._engine = engine
        self._position = position
        self._fetching = asyncio.Semaphore(_LISTS_AT_ONCE)

    async def get(self, request: rpc.GetInclusionRequest, context: Context) -> rpc.GetInclusionResponse:
        """Returns a page of the sorted hashes of what a hop has passed on in one lane.

        Hop 1 fetches the lists of the others, which clients cannot reach.

        Raises:
            Refusal: UNKNOWN_ROUND, NOT_YOUR_CALL (behind hop 1 only the operator and hop 1 may), BAD_REQUEST (lane or
                hop), NOT_READY (the batch is not mixed yet, or the hop does not answer), WRONG_STATE (the round is not
                open yet, or deleted), OVERLOADED.
        """
        terms = await self._engine.terms(RoundId(request.round_id))
        own = self._position.hop(terms)
        if own != 1:
            self._peers.require_caller(context, [OPERATOR, terms.hops[0].service])
        if request.hop not in (0, own):
            if own != 1 or request.hop > terms.shared.num_hops:
                raise Refusal(Code.BAD_REQUEST, f"hop is {request.hop}; it must be in 1..{terms.shared.num_hops}")
            return await self._fetch_from(terms.hops[request.hop - 1].service, request)
        if request.lane not in LANES:
            raise Refusal(Code.BAD_REQUEST, f"lane is {request.lane}; it must be LANE_REPORT or LANE_PARAMETER")
        hashes, total = await self._store.run(
            StoreStep.READ_INCLUSION_LIST,
            lambda tx: read_inclusion_page(tx, terms.round_id, request.lane, request.offset),
        )
        if not total:
            raise Refusal(Code.NOT_READY, "the list is published when the batch is mixed")
        return rpc.GetInclusionResponse(hashes=hashes, total=total)

    async def _fetch_from(self, service: str, request: rpc.GetInclusionRequest) -> rpc.GetInclusionResponse:
        """Fetches a page from another hop; a few at once, so that strangers do not take the calls of a delivery."""
        if self._fetching.locked():
            raise Refusal(Code.OVERLOADED, "other lists are being fetched", retry_after_s=0.5)
        async with self._fetching:
            try:
                return await stubs.ShufflerStub(self._peers.channel_to(service)).GetInclusion(request, timeout=15.0)
            except grpc.aio.AioRpcError as error:
                raise refusal_of(error) or Refusal(Code.NOT_READY, f"{service} does not answer") from error


def put_inclusion_list(tx: Transaction, round_id: RoundId, lane: Lane, hashes: Sequence[bytes]) -> None:
    """Stores the sorted hashes of what was passed on in one lane."""
    tx.put_document(round_id, DocumentKind.PASSED_ON, struct.pack(">Q", len(hashes)), _part(lane))
    for page, start in enumerate(range(0, len(hashes), _HASHES_PER_PAGE)):
        content = b"".join(hashes[start : start + _HASHES_PER_PAGE])
        tx.put_document(round_id, DocumentKind.PASSED_ON, content, _part(lane, page))


def read_inclusion_page(tx: Transaction, round_id: RoundId, lane: Lane, offset: int) -> tuple[bytes, int]:
    """Returns the hashes from an offset to the end of its page, and how many the list has; 0 before it is stored."""
    page, within = divmod(offset, _HASHES_PER_PAGE)
    (total,) = struct.unpack(">Q", tx.document(round_id, DocumentKind.PASSED_ON, _part(lane)) or bytes(8))
    hashes = tx.document(round_id, DocumentKind.PASSED_ON, _part(lane, page)) or b""
    return hashes[_HASH_BYTES * within :], total


def _part(lane: Lane, page: int | None = None) -> str:
    return f"{lane}" if page is None else f"{lane}-{page}"
