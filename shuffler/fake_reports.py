"""The fake reports that a hop adds to a batch: drawn, sealed as clients seal theirs, and given tickets.

Which numbers are drawn is left to `shuffler.fakes`. The fakes of a round are made once: they are kept, encrypted with a
key that is derived from the round's private key, until the batch in which they are hidden is durable. The accountant
evaluates blinded messages, so that it cannot tell a fake's ticket from a client's, and gives each hop a limited number.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Sequence
from functools import lru_cache, partial

from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from croupier.protocol.batches import unpack
from croupier.protocol.envelope import HOP_ANALYZER
from croupier.protocol.errors import Code, Refusal, TicketError
from croupier.protocol.manifest import RoundTerms, parse_terms
from croupier.protocol.names import RoundId
from croupier.protocol.onion import onion_of, report_message
from croupier.protocol.tickets import MAX_PER_BATCH, TicketRequest, collect_tickets
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime.kinds import DocumentKind, KeyPurpose
from croupier.runtime.peers import Peers
from croupier.runtime.round_engine import RoundEngine
from croupier.runtime.setup import ServiceSetup
from croupier.runtime.steps import StoreStep
from croupier.runtime.transaction import Transaction
from croupier.shuffler.fakes import draw_fakes
from croupier.shuffler.position import ChainPosition

__all__ = ["FakeReports", "seal_values", "wrap_fakes"]

_NONCE_BYTES = 12


class FakeReports:
    """Makes the fake reports of one hop."""

    def __init__(self, setup: ServiceSetup, peers: Peers, engine: RoundEngine, position: ChainPosition) -> None:
        self._store = setup.store
        self._pool = setup.pool
        self._peers = peers
        self._engine = engine
        self._position = position

    async def make(self, terms: RoundTerms) -> list[bytes]:
        """Returns the fakes as this hop passes them on; the same call again, also after a crash, returns the same.

        A crash before they are kept has them drawn again, which nobody can notice: nothing of the first draw has left
        but blinded messages.

        Raises:
            Refusal: the accountant gives no tickets, or its answer does not verify under the key of the manifest; or
                the round has ended here.
        """
        if terms.fake_law is None:
            return []
        key = await self._store.run(StoreStep.READ_FAKES, lambda tx: tx.keys(terms.round_id).get(KeyPurpose.ENVELOPE))
        if key is None:
            raise Refusal(Code.WRONG_STATE, "the keys of the round are gone")
        cipher = _cipher(key.private)
        hop = self._position.hop(terms)
        kept = await self._store.run(StoreStep.READ_FAKES, lambda tx: tx.document(terms.round_id, DocumentKind.FAKES))
        if kept is not None:
            packed = cipher.decrypt(kept[:_NONCE_BYTES], kept[_NONCE_BYTES:], terms.hash)
            return (
                unpack(packed, onion_of(terms).arriving_size(pb.LANE_REPORT, _next_place(terms, hop))) if packed else []
            )
        counts = await asyncio.to_thread(draw_fakes, terms.fake_law)
        terms.fake_law.check_counts(counts)
        values = [value for value, count in enumerate(counts) for _ in range(count)]
        sealed, _ = await self._pool.map_chunks(partial(seal_values, terms.payload), values)
        with_tickets = [*zip(sealed, await self._tickets(terms, sealed), strict=True)]
        fakes, _ = await self._pool.map_chunks(partial(wrap_fakes, terms.payload, hop), with_tickets)
        nonce = os.urandom(_NONCE_BYTES)
        content = nonce + cipher.encrypt(nonce, b"".join(fakes), terms.hash)
        await self._store.run(
            StoreStep.KEEP_FAKES, lambda tx: tx.put_document(terms.round_id, DocumentKind.FAKES, content)
        )
        return fakes

    @staticmethod
    def delete(tx: Transaction, round_id: RoundId) -> None:
        """Deletes the fakes of a round, once the batch in which they are hidden is durable."""
        tx.delete_documents(round_id, DocumentKind.FAKES)

    async def _tickets(self, terms: RoundTerms, sealed: Sequence[bytes]) -> list[bytes]:
        accountant, tickets = terms.manifest.accountant, list[bytes]()
        for start in range(0, len(sealed), MAX_PER_BATCH):
            requests = await asyncio.to_thread(_blind, terms, sealed[start : start + MAX_PER_BATCH])
            answer = await self._engine.call_until_answered(
                terms.round_id,
                accountant.service,
                lambda to: stubs.AccountantStub(to).GetFakeTickets,
                pb.GetFakeTicketsRequest(
                    round_id=terms.round_id, blinded=b"".join(request.blinded for request in requests)
                ),
            )
            try:
                tickets += await asyncio.to_thread(
                    collect_tickets, requests, answer.evaluations, accountant.report_ticket_key
                )
            except TicketError as error:  # a key of its own would tell fakes from clients' reports
                raise Refusal(Code.BAD_SIGNATURE, str(error)) from error
        return tickets


def seal_values(manifest: bytes, values: Sequence[int]) -> list[bytes]:
    """Returns a report of each value under the release key, as a client seals it; made for a worker process."""
    terms = _terms(manifest)
    onion, mechanism = onion_of(terms), terms.question.mechanism
    return [onion.seal_report(mechanism.encode_report(value)) for value in values]


def wrap_fakes(manifest: bytes, hop: int, with_tickets: Sequence[tuple[bytes, bytes]]) -> list[bytes]:
    """Returns what a hop passes on for sealed reports and their tickets; made for a worker process."""
    onion = onion_of(_terms(manifest))
    return [onion.wrap_fake(sealed, ticket, hop) for sealed, ticket in with_tickets]


def _blind(terms: RoundTerms, sealed: Sequence[bytes]) -> list[TicketRequest]:
    return [TicketRequest(report_message(terms.hash, hashlib.sha256(one).digest())) for one in sealed]


@lru_cache(maxsize=4)
def _terms(manifest: bytes) -> RoundTerms:
    return parse_terms(manifest)


def _next_place(terms: RoundTerms, hop: int) -> int:
    """Returns the number of the layer behind a hop, by which `Onion` knows it."""
    return hop + 1 if hop < terms.num_hops else HOP_ANALYZER


def _cipher(private_key: bytes) -> ChaCha20Poly1305:
    return ChaCha20Poly1305(HKDF(SHA256(), 32, salt=None, info=b"croupier/v1/fakes").derive(private_key))
