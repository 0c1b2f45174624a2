"""The fake reports that a hop adds to a batch: drawn, sealed as clients seal theirs, and given tickets.

Which numbers are drawn is left to `runtime.noise`. The fakes of a round are drawn once: they and their blinds are
durable before the accountant is asked for their tickets, which shows how many they are. They are kept until the batch
in which they are hidden is durable, encrypted with a key that is derived from the round's private key. The accountant
evaluates blinded messages, so that it cannot tell a fake's ticket from a client's.

Reports of two values have a fixed number of fakes, and blinded messages are uniformly random. So a request for tickets
says nothing of such a draw, and a hop makes these fakes while the round is open: nobody waits for them after the close.
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
from croupier.protocol.envelope import HOP_RELEASE
from croupier.protocol.errors import Code, Refusal, TicketError
from croupier.protocol.fake_law import FakeLaw
from croupier.protocol.manifest import RoundTerms, parse_terms
from croupier.protocol.names import Digest, PrivateKey, RoundId
from croupier.protocol.onion import onion_of
from croupier.protocol.tickets import BLIND_BYTES, MAX_PER_BATCH, TicketRequest, collect_tickets, ticket_message
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.protocol.voprf import random_scalar
from croupier.runtime.kinds import DocumentKind, KeyPurpose
from croupier.runtime.noise import draw_fakes
from croupier.runtime.peers import Peers
from croupier.runtime.setup import ServiceSetup
from croupier.runtime.steps import StoreStep
from croupier.runtime.transaction import Transaction
from croupier.shuffler.noise_ledger import NoiseLedger
from croupier.shuffler.position import ChainPosition

_NONCE_BYTES = 12


class FakeReports:
    """Makes the fake reports of one hop."""

    def __init__(self, setup: ServiceSetup, peers: Peers, position: ChainPosition) -> None:
        self._store = setup.store
        self._pool = setup.pool
        self._peers = peers
        self._position = position
        self._made: dict[RoundId, list[bytes]] = {}  # early; a repeated attempt to mix makes them from the store

    async def make_early(self, terms: RoundTerms) -> None:
        """Makes the fakes of a round that is still open where their number is fixed.

        Raises:
            Refusal: see `make`.
        """
        if terms.fakes is not None and terms.fakes.law.is_paired:
            self._made[terms.round_id] = await self._make(terms, terms.fakes.law)

    def stop_round(self, round_id: RoundId) -> None:
        """Deletes from memory the fakes that were made early."""
        self._made.pop(round_id, None)

    async def make(self, terms: RoundTerms) -> list[bytes]:
        """Returns the fakes as this hop passes them on: the same draw in every call, also after a crash.

        Raises:
            Refusal: the accountant gives no tickets, or its answer does not verify under the key of the manifest; or
                the round has ended here.
        """
        if terms.fakes is None:
            return []
        made = self._made.pop(terms.round_id, None)
        return await self._make(terms, terms.fakes.law) if made is None else made

    async def _make(self, terms: RoundTerms, law: FakeLaw) -> list[bytes]:
        drawn = await self._drawn(terms, law)
        with_tickets = [*zip((sealed for sealed, _ in drawn), await self.tickets(terms, drawn), strict=True)]
        fakes, _ = await self._pool.map_chunks(
            partial(wrap_fakes, terms.unsigned, self._position.hop(terms)), with_tickets
        )
        return fakes

    async def _drawn(self, terms: RoundTerms, law: FakeLaw) -> list[tuple[bytes, bytes]]:
        """Returns the round's fakes under the release key, each with its blind; draws them if that has not been done.

        Nothing of a draw leaves before it is durable: a party that sees how many fakes there are, and could cause
        another draw, would wait for numbers that hide nothing. Where the number of fakes is drawn, the round counts in
        the hop's own ledger from then on, because the request for tickets shows the number; else once it is mixed.
        """
        private = await self._store.run(
            StoreStep.READ_FAKES, lambda tx: tx.keys(terms.round_id).get(KeyPurpose.ENVELOPE)
        )
        if private is None:
            raise Refusal(Code.WRONG_STATE, "the keys of the round are gone")
        cipher = _cipher(private.private)
        kept = await self._store.run(StoreStep.READ_FAKES, lambda tx: tx.document(terms.round_id, DocumentKind.FAKES))
        if kept is None:
            counts = await asyncio.to_thread(draw_fakes, law)
            law.check_counts(counts)
            values = [value for value, count in enumerate(counts) for _ in range(count)]
            sealed, _ = await self._pool.map_chunks(partial(seal_values, terms.unsigned), values)
            nonce = os.urandom(_NONCE_BYTES)
            with_blinds = b"".join(report + random_scalar() for report in sealed)
            drawn = nonce + cipher.encrypt(nonce, with_blinds, terms.hash)

            def keep(tx: Transaction) -> bytes:
                earlier = tx.document(terms.round_id, DocumentKind.FAKES)
                if earlier is not None:
                    return earlier
                if KeyPurpose.ENVELOPE not in tx.keys(terms.round_id):  # withdrawn while the fakes were sealed
                    raise Refusal(Code.WRONG_STATE, "the keys of the round are gone")
                tx.put_document(terms.round_id, DocumentKind.FAKES, drawn)
                if not law.is_paired:
                    NoiseLedger(tx.connection).leave(terms.round_id)
                return drawn

            kept = await self._store.run(StoreStep.KEEP_FAKES, keep)
        packed = cipher.decrypt(kept[:_NONCE_BYTES], kept[_NONCE_BYTES:], terms.hash)
        size = onion_of(terms).arriving_size(pb.LANE_REPORT, HOP_RELEASE)
        return [(fake[:size], fake[size:]) for fake in unpack(packed, size + BLIND_BYTES)] if packed else []

    @staticmethod
    def delete(tx: Transaction, round_id: RoundId) -> None:
        """Deletes the fakes of a round, once the batch in which they are hidden is durable."""
        tx.delete_documents(round_id, DocumentKind.FAKES)

    async def tickets(self, terms: RoundTerms, drawn: Sequence[tuple[bytes, bytes]]) -> list[bytes]:
        """Returns the tickets of fakes, in order; workers blind the messages, and check and unblind the answers."""
        accountant = terms.accountant
        requests, _ = await self._pool.map_chunks(partial(blind_fakes, terms.hash), drawn)
        answered: list[tuple[list[TicketRequest], bytes]] = []
        for start in range(0, len(requests), MAX_PER_BATCH):
            batch = requests[start : start + MAX_PER_BATCH]
            answer = await self._peers.call_until_answered(
                terms.round_id,
                accountant.service,
                lambda to: stubs.AccountantStub(to).GetFakeTickets,
                pb.GetFakeTicketsRequest(
                    round_id=terms.round_id, blinded=b"".join(request.blinded for request in batch)
                ),
            )
            answered.append((batch, answer.evaluations))
        collecting = (
            self._pool.run(collect_tickets, batch, evaluations, accountant.report_ticket_key)
            for batch, evaluations in answered
        )
        try:
            collected = await asyncio.gather(*collecting)
        except TicketError as error:  # a key of its own would tell fakes from clients' reports
            raise Refusal(Code.BAD_SIGNATURE, str(error)) from error
        return [ticket for tickets, _ in collected for ticket in tickets]


def seal_values(manifest: bytes, values: Sequence[int]) -> list[bytes]:
    """Returns a report of each value under the release key, as a client seals it; made for a worker process."""
    terms = _terms(manifest)
    onion, mechanism = onion_of(terms), terms.question.mechanism
    return [onion.seal_report(mechanism.encode_report(value)) for value in values]


def blind_fakes(manifest_hash: Digest, drawn: Sequence[tuple[bytes, bytes]]) -> list[TicketRequest]:
    """Returns the requests for tickets of sealed reports, each with its blind; made for a worker process."""
    return [
        TicketRequest(ticket_message(manifest_hash, pb.LANE_REPORT, hashlib.sha256(sealed).digest()), blind)
        for sealed, blind in drawn
    ]


def wrap_fakes(manifest: bytes, hop: int, with_tickets: Sequence[tuple[bytes, bytes]]) -> list[bytes]:
    """Returns what a hop passes on for sealed reports and their tickets; made for a worker process."""
    onion = onion_of(_terms(manifest))
    return [onion.wrap_fake(sealed, ticket, hop) for sealed, ticket in with_tickets]


@lru_cache(maxsize=4)
def _terms(manifest: bytes) -> RoundTerms:
    return parse_terms(manifest)


def _cipher(private_key: PrivateKey) -> ChaCha20Poly1305:
    return ChaCha20Poly1305(HKDF(SHA256(), 32, salt=None, info=b"croupier/v1/fakes").derive(private_key))
