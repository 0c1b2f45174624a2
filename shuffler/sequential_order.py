"""The sequential order at hop 1: clients are asked one after the other, in an order that only hop 1 knows.

The order is that of a keyed hash of the clients' keys, under a key that is stored wrapped and destroyed with the
round's: what has been drawn once is the same after a restart. An answer is durable before it is passed on, so that a
crash can repeat its passing on, which changes nothing, but not lose it. Why a sequential epoch has the certificate of a
batch of the clients that answer: docs/bounds.md, 2.1.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from collections.abc import Awaitable, Callable, Iterable

from croupier.protocol.envelope import KeyPair, open_many
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import PrivateKey, PublicKey
from croupier.protocol.onion import onion_of
from croupier.protocol.randomness import RandomSource
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.kinds import DocumentKind, KeyPurpose
from croupier.runtime.steps import StoreStep
from croupier.runtime.store import Store
from croupier.runtime.transaction import Transaction
from croupier.shuffler.attendance import Attendance

_RETURN_S = 10.0  # longer than a client waits between two attempts (net.retrying)
Relay = Callable[[bytes], Awaitable[pb.RelayResponse]]


def new_order_key(source: RandomSource) -> KeyPair:
    """Returns a fresh key for `secret_order`; it has no public half."""
    return KeyPair(PublicKey(b""), PrivateKey(source.block(32)))


def secret_order(clients: Iterable[PublicKey], key: PrivateKey) -> list[PublicKey]:
    """Returns the clients in an order that is uniformly random to every party without the key (HMAC-SHA256)."""
    return sorted(clients, key=lambda client: hmac.digest(key, client, "sha256"))


async def ask_in_order(
    terms: RoundTerms, store: Store, attendance: Attendance, certificate: pb.Signed, relay: Relay
) -> pb.SequentialReport:
    """Asks one client after the other until all were asked, the operator ends it, or too many did not answer.

    Starts when min_batch_size clients attend. Goes on where an earlier run stopped: once as many attend as still
    have to answer, and the remaining ones have had time to reconnect.

    Args:
        terms: of a sequential round.
        store: hop 1's, where every answer is durable before it is passed on.
        attendance: the streams of the clients that attend.
        certificate: the granted one, which clients check before they answer.
        relay: passes an answer on that hop 1 has opened, and returns what the analyzer made of it, which is signed.
    """
    sequential, round_id, needed = terms.question.sequential, terms.round_id, terms.shared.min_batch_size
    if sequential is None:
        raise ValueError(f"round {round_id!r} is not sequential")

    def read(tx: Transaction) -> tuple[dict[KeyPurpose, KeyPair], list[PublicKey], pb.SequentialProgress, bool]:
        progress = pb.SequentialProgress.FromString(tx.document(round_id, DocumentKind.SEQUENTIAL_PROGRESS) or b"")
        ended = tx.document(round_id, DocumentKind.SEQUENTIAL_ENDED) is not None
        return tx.keys(round_id), list(tx.submission_hashes(round_id)), progress, ended

    keys, clients, progress, ended = await store.run(StoreStep.READ_ORDER_AND_PROGRESS, read)
    order = secret_order(clients, keys[KeyPurpose.ORDER].private)
    layer = onion_of(terms).layer(pb.LANE_ANSWER, 1)

    async def turn_of(client: PublicKey) -> bytes:
        """Returns the client's answer, opened, when its time is over; nothing if there is none that opens."""
        over = asyncio.get_running_loop().time() + sequential.period_ms / 1000
        model = progress.model if progress.HasField("model") else None
        envelope = await attendance.ask(round_id, client, model, certificate, sequential.period_ms / 1000)
        await asyncio.sleep(over - asyncio.get_running_loop().time())
        if envelope is None or len(envelope) != layer.sealed_size:
            return b""
        (opened,) = open_many(terms.shared.hpke_suite, keys[KeyPurpose.ENVELOPE].private, layer.label, [envelope])
        return opened or b""

    def goes_on() -> bool:
        if progress.pending:
            return True
        in_time = not attendance.has_ended(round_id)
        return in_time and progress.position < len(order) and progress.num_skipped <= len(order) - needed

    def save(tx: Transaction) -> None:
        tx.replace_document(round_id, DocumentKind.SEQUENTIAL_PROGRESS, progress.SerializeToString())

    if ended:
        await attendance.end(round_id)
    done = progress.position + bool(progress.pending)
    left, more = order[done:], needed - progress.num_answers - bool(progress.pending)
    await attendance.gathered(round_id, left, more)
    if done:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(attendance.gathered(round_id, left, len(left)), _RETURN_S)
    while goes_on():
        if not progress.pending:
            progress.pending = await turn_of(order[progress.position])
            await store.run(StoreStep.KEEP_PROGRESS, save)
        learnt = False
        if progress.pending:
            response = await relay(progress.pending)
            if response.HasField("model"):
                # Not `response.learnt`: two clients may have sent the same answer, which is learnt from once.
                learnt = pb.Model.FromString(response.model.payload).num_answers > progress.num_answers
                progress.model.CopyFrom(response.model)
        progress.num_answers += learnt
        progress.num_skipped += not learnt
        progress.position += 1
        progress.pending = b""
    await store.run(StoreStep.KEEP_LAST_PROGRESS, save)
    return pb.SequentialReport(
        round_id=round_id,
        manifest_hash=terms.hash,
        num_answers=progress.num_answers,
        num_skipped=progress.num_skipped,
    )
