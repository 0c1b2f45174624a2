"""What one transaction of a service can read and change: rounds, their keys, who is admitted, batches and documents.

In SQL through SQLAlchemy, on `runtime.tables`. Private keys are wrapped with the service's storage key. What the bytes
mean is the business of the roles; how transactions run is `runtime.store`'s.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from croupier.protocol.envelope import KeyPair
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.names import PrivateKey, PublicKey
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.database import note_taken
from croupier.runtime.tables import (
    CHUNKS,
    CLIENTS,
    COSTS,
    DOCUMENTS,
    ENDS,
    FORGETTING,
    KEYS,
    OPENED,
    PREPARED,
    PROBE,
    REVOKED,
    ROUNDS,
    SUBMISSIONS,
    TOKENS,
)

__all__ = ["Place", "RoundRow", "Transaction"]

_KEYS_AT_ONCE = 1000
_PAGE_BYTES, _ROWS_PER_PAGE = 1024 * 1024, 2000
_PIECE_BYTES, _ROWS_PER_PIECE = 4 * 1024 * 1024, 2000
"""So much is forgotten in one transaction: for a tenth of a second or less others wait for it."""
_ADMITTED_PER_PIECE = 10_000
Place = tuple[str, str, int, int]
"""Round, direction, lane and index of a chunk."""
_OPEN_END = 0
"""The number of chunks of a lane that grows until it is closed."""


@dataclass(frozen=True)
class RoundRow:
    """A round as this service knows it. `manifest` is a serialised Signed, empty until the round opens."""

    round_id: str
    suite: str
    state: pb.RoundState.ValueType
    manifest: bytes
    problem: str
    bytes_sent: int


class Transaction:
    """What can be read and changed inside one transaction."""

    def __init__(self, connection: sa.Connection, wrapping_key: bytes) -> None:
        self._db = connection
        self._cipher = ChaCha20Poly1305(wrapping_key)

    @property
    def connection(self) -> sa.Connection:
        """For a room with tables of its own, which have to change in the same transaction."""
        return self._db

    # ------------------------------------------------------------- rounds

    def find_round(self, round_id: str) -> RoundRow | None:
        """Returns the round, or None if this service has never heard of it."""
        rows = self._select_rounds(ROUNDS.c.round_id == round_id)
        return rows[0] if rows else None

    def round(self, round_id: str) -> RoundRow:
        """Returns the round; raises Refusal UNKNOWN_ROUND if this service has never heard of it."""
        row = self.find_round(round_id)
        if row is None:
            raise Refusal(Code.UNKNOWN_ROUND, repr(round_id))
        return row

    def rounds(self, limit: int | None = None) -> list[RoundRow]:
        """Returns all rounds, or so many, newest first."""
        return self._select_rounds(sa.true(), limit)

    def newest_open_round(self) -> RoundRow | None:
        """Returns the newest round that takes submissions, or None."""
        rows = self._select_rounds(ROUNDS.c.state == pb.ROUND_STATE_OPEN, 1)
        return rows[0] if rows else None

    def _select_rounds(self, where: sa.ColumnElement[bool], limit: int | None = None) -> list[RoundRow]:
        rows = self._db.execute(sa.select(ROUNDS).where(where).order_by(ROUNDS.c.serial.desc()).limit(limit))
        return [RoundRow(r.round_id, r.suite, r.state, r.manifest, r.problem, r.bytes_sent) for r in rows]

    def add_round(self, round_id: str, suite: str, keys: Mapping[str, KeyPair]) -> None:
        """Adds a round that is PREPARED, with its key pairs, private halves wrapped."""
        self._db.execute(
            ROUNDS.insert().values(
                round_id=round_id,
                suite=suite,
                state=pb.ROUND_STATE_PREPARED,
                manifest=b"",
                problem="",
                bytes_sent=0,
            )
        )
        for purpose, pair in keys.items():
            self.put_key(round_id, purpose, pair)

    def update_round(self, round_id: str, **values: Any) -> None:
        """Sets columns of a round: state, manifest, problem, bytes_sent.

        Raises:
            Refusal: WRONG_STATE for another state of a round that is disposed of: its keys are gone.
        """
        here = ROUNDS.c.round_id == round_id
        if values.get("state", pb.ROUND_STATE_DISPOSED) != pb.ROUND_STATE_DISPOSED:
            here &= ROUNDS.c.state != pb.ROUND_STATE_DISPOSED
        if not self._db.execute(ROUNDS.update().where(here).values(**values)).rowcount:
            raise Refusal(Code.WRONG_STATE, f"round {round_id!r} has ended here")

    def add_cost(self, round_id: str, stage: str, wall_s: float, cpu_s: float) -> None:
        """Adds to what a stage has cost so far."""
        here = (COSTS.c.round_id == round_id) & (COSTS.c.stage == stage)
        changed = self._db.execute(
            COSTS.update().where(here).values(wall_s=COSTS.c.wall_s + wall_s, cpu_s=COSTS.c.cpu_s + cpu_s)
        )
        if not changed.rowcount:
            self._db.execute(COSTS.insert().values(round_id=round_id, stage=stage, wall_s=wall_s, cpu_s=cpu_s))

    def costs(self, round_id: str) -> list[pb.StageCost]:
        """Returns what each stage has cost so far."""
        rows = self._db.execute(sa.select(COSTS).where(COSTS.c.round_id == round_id))
        return [pb.StageCost(stage=row.stage, wall_s=row.wall_s, cpu_s=row.cpu_s) for row in rows]

    def round_counts(self) -> dict[tuple[pb.RoundState.ValueType, bool], int]:
        """Returns the number of rounds by state and by whether they have a problem."""
        troubled = ROUNDS.c.problem != ""
        counts = sa.select(ROUNDS.c.state, troubled.label("troubled"), sa.func.count().label("number"))
        rows = self._db.execute(counts.group_by(ROUNDS.c.state, troubled))
        return {(row.state, bool(row.troubled)): row.number for row in rows}

    def probe(self, num_bytes: int) -> None:
        """Writes that many bytes over those of the last probe: only a write shows that the store can be written."""
        self._db.execute(PROBE.delete())
        self._db.execute(PROBE.insert().values(serial=1, content=os.urandom(num_bytes)))

    # ------------------------------------------------------------- keys

    def put_key(self, round_id: str, purpose: str, pair: KeyPair) -> None:
        """Adds a key pair of a round, its private half wrapped."""
        nonce = os.urandom(12)
        wrapped = nonce + self._cipher.encrypt(nonce, pair.private, f"{round_id}\0{purpose}".encode())
        self._db.execute(
            KEYS.insert().values(round_id=round_id, purpose=purpose, public=pair.public, wrapped_private=wrapped)
        )

    def keys(self, round_id: str) -> dict[str, KeyPair]:
        """Returns the key pairs of a round by purpose; empty once they are destroyed."""
        pairs: dict[str, KeyPair] = {}
        for row in self._db.execute(sa.select(KEYS).where(KEYS.c.round_id == round_id)):
            nonce, body = row.wrapped_private[:12], row.wrapped_private[12:]
            private = self._cipher.decrypt(nonce, body, f"{round_id}\0{row.purpose}".encode())
            pairs[row.purpose] = KeyPair(PublicKey(row.public), PrivateKey(private))
        return pairs

    def destroy_keys(self, round_id: str) -> None:
        """Deletes the private keys of a round."""
        note_taken(self._db, round_id, "round_keys")
        self._db.execute(KEYS.delete().where(KEYS.c.round_id == round_id))

    # ------------------------------------------------------------- admission

    def add_clients(self, client_keys: Iterable[bytes]) -> None:
        """Registers clients; those that are registered already stay."""
        rows = [{"client_key": key} for key in client_keys]
        if rows:
            self._db.execute(CLIENTS.insert(), rows)

    def client_keys(self) -> set[bytes]:
        """Returns the public keys of all registered clients, revoked ones among them."""
        return set(self._db.execute(sa.select(CLIENTS.c.client_key)).scalars())

    def revoke(self, keys_and_hashes: Iterable[bytes]) -> None:
        """Notes client keys and hashes of tokens that are no longer admitted; none of them may stand there already."""
        rows = [{"key_or_hash": one} for one in keys_and_hashes]
        if rows:
            self._db.execute(REVOKED.insert(), rows)

    def revoked(self) -> set[bytes]:
        """Returns all client keys and hashes of tokens that have been revoked."""
        return set(self._db.execute(sa.select(REVOKED)).scalars())

    def num_revoked(self) -> int:
        """Returns how many client keys and hashes of tokens have been revoked."""
        return self._db.execute(sa.select(sa.func.count()).select_from(REVOKED)).scalar_one()

    def add_tokens(self, token_hashes: Iterable[bytes]) -> None:
        """Adds hashes of one-use tokens; tokens that are known already stay as they are."""
        rows = [{"token_hash": token_hash} for token_hash in token_hashes]
        if rows:
            self._db.execute(TOKENS.insert(), rows)

    def tokens(self) -> dict[bytes, tuple[bytes, str] | None]:
        """Returns every token's hash with the (client_key, round_id) that it has admitted, None while unused.

        Where the round has been deleted, both are empty.
        """
        rows = self._db.execute(sa.select(TOKENS))
        return {row.token_hash: None if row.client_key is None else (row.client_key, row.round_id) for row in rows}

    def spend_token(self, token_hash: bytes, client_key: bytes, round_id: str) -> None:
        """Notes what a token has admitted; raises Refusal TOKEN_USED if it was not free."""
        free = (TOKENS.c.token_hash == token_hash) & TOKENS.c.client_key.is_(None)
        changed = self._db.execute(TOKENS.update().where(free).values(client_key=client_key, round_id=round_id))
        if not changed.rowcount:
            raise Refusal(Code.TOKEN_USED)

    def add_submissions(self, round_id: str, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Adds (client_key, envelope_hash) rows; a client that stands there already is an error."""
        self._db.execute(
            SUBMISSIONS.insert(),
            [{"round_id": round_id, "client_key": key, "envelope_hash": name} for key, name in rows],
        )

    def submission_hashes(self, round_id: str, client_keys: Sequence[bytes] | None = None) -> dict[bytes, bytes]:
        """Returns the envelope hash by client, of all who have submitted or of these."""
        here = sa.select(SUBMISSIONS.c.client_key, SUBMISSIONS.c.envelope_hash)
        here = here.where(SUBMISSIONS.c.round_id == round_id)
        if client_keys is None:
            return {row.client_key: row.envelope_hash for row in self._db.execute(here)}
        found: dict[bytes, bytes] = {}
        for start in range(0, len(client_keys), _KEYS_AT_ONCE):
            rows = self._db.execute(
                here.where(SUBMISSIONS.c.client_key.in_(client_keys[start : start + _KEYS_AT_ONCE]))
            )
            found |= {row.client_key: row.envelope_hash for row in rows}
        return found

    def num_submissions(self, round_id: str) -> int:
        """Returns how many clients have submitted in a round."""
        count = sa.select(sa.func.count()).select_from(SUBMISSIONS).where(SUBMISSIONS.c.round_id == round_id)
        return self._db.execute(count).scalar_one()

    # ------------------------------------------------------------- batches

    def put_chunk(
        self, round_id: str, direction: str, lane: int, chunk_index: int, chunk_count: int, ciphertexts: bytes
    ) -> bool:
        """Adds a chunk, and returns whether it is new; the same again changes nothing, even after it was forgotten.

        Raises:
            Refusal: CONFLICT if the chunk exists with different content or the batch with a different length.
        """
        here = _of(round_id, direction, lane)
        counts = set(self._db.execute(sa.select(CHUNKS.c.chunk_count).where(here).limit(1)).scalars())
        known = self._db.execute(sa.select(CHUNKS.c.digest).where(here & (CHUNKS.c.chunk_index == chunk_index)))
        existing = known.scalar_one_or_none()
        chunk_digest = hashlib.sha256(ciphertexts).digest()
        if counts - {chunk_count} or (existing is not None and existing != chunk_digest):
            raise Refusal(Code.CONFLICT, f"chunk {chunk_index} of {chunk_count} in lane {lane}")
        if existing is None:
            self._db.execute(
                CHUNKS.insert().values(
                    round_id=round_id,
                    direction=direction,
                    lane=lane,
                    chunk_index=chunk_index,
                    chunk_count=chunk_count,
                    digest=chunk_digest,
                    ciphertexts=ciphertexts,
                )
            )
        return existing is None

    def next_chunk_index(self, round_id: str, lane: int) -> int:
        """Returns the index of the next chunk of an incoming lane, or of what came of opening one."""
        places = (
            (CHUNKS.c.chunk_index, _of(round_id, "in", lane)),
            (OPENED.c.chunk_index, (OPENED.c.round_id == round_id) & (OPENED.c.lane == lane)),
        )
        newest = [self._db.execute(sa.select(sa.func.max(index)).where(here)).scalar_one() for index, here in places]
        return max((index + 1 for index in newest if index is not None), default=0)

    def append_chunk(self, round_id: str, lane: int, ciphertexts: bytes) -> None:
        """Adds a chunk behind the others of an incoming lane that grows until it is closed."""
        self._db.execute(
            CHUNKS.insert().values(
                round_id=round_id,
                direction="in",
                lane=lane,
                chunk_index=self.next_chunk_index(round_id, lane),
                chunk_count=_OPEN_END,
                digest=hashlib.sha256(ciphertexts).digest(),
                ciphertexts=ciphertexts,
            )
        )

    def num_bytes(self, round_id: str, direction: str, lane: int) -> int:
        """Returns how much has come, or is to be sent, in a lane."""
        total = sa.select(sa.func.coalesce(sa.func.sum(sa.func.length(CHUNKS.c.ciphertexts)), 0))
        return int(self._db.execute(total.where(_of(round_id, direction, lane))).scalar_one())

    def num_chunks(self, round_id: str, direction: str, lane: int) -> int | None:
        """Returns how many chunks a complete batch has, or None while one is missing, and after it was forgotten."""
        here = sa.select(sa.func.count(CHUNKS.c.ciphertexts), sa.func.max(CHUNKS.c.chunk_count))
        present, expected = self._db.execute(here.where(_of(round_id, direction, lane) & _kept(round_id))).one()
        return present if present and present == expected else None

    def chunk(self, round_id: str, direction: str, lane: int, chunk_index: int) -> bytes:
        """Returns one chunk, empty if it is not there or was forgotten."""
        here = _of(round_id, direction, lane) & (CHUNKS.c.chunk_index == chunk_index) & _kept(round_id)
        return self._db.execute(sa.select(CHUNKS.c.ciphertexts).where(here)).scalar_one_or_none() or b""

    def drop_output(self, round_id: str) -> None:
        """Deletes what was to be sent, before anything of it has been."""
        note_taken(self._db, round_id, "chunks")
        self._db.execute(CHUNKS.delete().where((CHUNKS.c.round_id == round_id) & (CHUNKS.c.direction == "out")))

    # ------------------------------------------------------------- what has been opened

    # What is looked for here has bounds on both sides: else PostgreSQL, which knows nothing yet of a table that grows
    # fast, may look at all of a lane for each page.

    def unopened(self, round_id: str, lane: int, after: int | None) -> list[tuple[int, bytes]]:
        """Returns (index, chunk) of the next incoming chunks that are not opened, in order, a page of them.

        They are behind an index; with None behind the last that is opened, which is found at once in a long lane.
        """
        opened = (OPENED.c.round_id == round_id) & (OPENED.c.lane == lane)
        if after is None:
            last = self._db.execute(sa.select(sa.func.max(OPENED.c.chunk_index)).where(opened)).scalar_one()
            after = -1 if last is None else last
        index = CHUNKS.c.chunk_index
        here = _of(round_id, "in", lane) & CHUNKS.c.ciphertexts.is_not(None) & _kept(round_id)
        while (window := self._window(index, here, after)) is not None:
            there = sorted(self._db.execute(sa.select(index).where(here & index.between(*window))).scalars())
            known = self._opened_in(round_id, lane, window)
            first = next((one for one in there if one not in known), None)
            if first is not None:
                end = next((one for one in there if one > first and one in known), window[1] + 1)
                return self._page(index, CHUNKS.c.ciphertexts, here & index.between(first, end - 1))
            after = window[1]
        return []

    def put_opened(self, round_id: str, lane: int, opened: Collection[tuple[int, bytes]]) -> None:
        """Keeps what came of opening incoming chunks, once each, unless a chunk has been forgotten meanwhile."""
        if not opened:
            return
        window = min(index for index, _ in opened), max(index for index, _ in opened)
        here = _of(round_id, "in", lane) & CHUNKS.c.ciphertexts.is_not(None) & _kept(round_id)
        here &= CHUNKS.c.chunk_index.between(*window)
        there = set(self._db.execute(sa.select(CHUNKS.c.chunk_index).where(here)).scalars())
        new = there - self._opened_in(round_id, lane, window)
        rows = [
            {"round_id": round_id, "lane": lane, "chunk_index": index, "content": content}
            for index, content in opened
            if index in new
        ]
        if rows:
            self._db.execute(OPENED.insert(), rows)

    def append_opened(self, round_id: str, lane: int, index: int, content: bytes) -> None:
        """Keeps what came of opening items that are not kept themselves."""
        self._db.execute(OPENED.insert().values(round_id=round_id, lane=lane, chunk_index=index, content=content))

    def opened(self, round_id: str, lane: int, after: int) -> list[tuple[int, bytes]]:
        """Returns (index, content) of what was opened behind an index, in order, a page of them."""
        here = (OPENED.c.round_id == round_id) & (OPENED.c.lane == lane) & _kept(round_id)
        window = self._window(OPENED.c.chunk_index, here, after)
        if window is None:
            return []
        return self._page(OPENED.c.chunk_index, OPENED.c.content, here & OPENED.c.chunk_index.between(*window))

    def _opened_in(self, round_id: str, lane: int, window: tuple[int, int]) -> set[int]:
        """Returns which chunks between two, both of them among these, are opened."""
        here = (OPENED.c.round_id == round_id) & (OPENED.c.lane == lane) & OPENED.c.chunk_index.between(*window)
        return set(self._db.execute(sa.select(OPENED.c.chunk_index).where(here)).scalars())

    def _window(self, index: sa.Column[int], here: sa.ColumnElement[bool], after: int) -> tuple[int, int] | None:
        """Returns the first and last index of so many behind one in which there is a row; None behind the last row."""
        window = after + 1, after + _ROWS_PER_PAGE
        if self._db.execute(sa.select(index).where(here & index.between(*window)).limit(1)).first() is not None:
            return window
        nearest = self._db.execute(sa.select(sa.func.min(index)).where(here & (index > after))).scalar_one()
        return None if nearest is None else (nearest, nearest + _ROWS_PER_PAGE - 1)

    def _page(
        self, index: sa.Column[int], content: sa.Column[Any], where: sa.ColumnElement[bool]
    ) -> list[tuple[int, bytes]]:
        """Returns (index, content) of the first rows that come to a page, at least one of them."""
        page: list[tuple[int, bytes]] = []
        left = _PAGE_BYTES
        query = sa.select(index, content).where(where).order_by(index).execution_options(stream_results=True)
        with self._db.execute(query) as rows:
            for number, body in rows:
                page.append((number, body))
                left -= len(body)
                if left <= 0:
                    break
        return page

    # ------------------------------------------------------------- documents

    def put_document(self, round_id: str, kind: str, content: bytes) -> None:
        """Adds a document that is written once; raises Refusal CONFLICT on different content."""
        existing = self.document(round_id, kind)
        if existing is None:
            self._db.execute(DOCUMENTS.insert().values(round_id=round_id, kind=kind, content=content))
        elif existing != content:
            raise Refusal(Code.CONFLICT, f"{kind} of round {round_id!r}")

    def document(self, round_id: str, kind: str) -> bytes | None:
        """Returns a document of a round, or None if it was never written."""
        here = (DOCUMENTS.c.round_id == round_id) & (DOCUMENTS.c.kind == kind)
        content: bytes | None = self._db.execute(sa.select(DOCUMENTS.c.content).where(here)).scalar_one_or_none()
        return content

    def replace_document(self, round_id: str, kind: str, content: bytes) -> None:
        """Writes a document that changes in the course of a round."""
        note_taken(self._db, round_id, "documents")
        here = (DOCUMENTS.c.round_id == round_id) & (DOCUMENTS.c.kind == kind)
        if not self._db.execute(DOCUMENTS.update().where(here).values(content=content)).rowcount:
            self.put_document(round_id, kind, content)

    def drop_documents(self, round_id: str, kind: str) -> None:
        """Deletes the documents of a round whose kinds begin so."""
        note_taken(self._db, round_id, "documents")
        begins = DOCUMENTS.c.kind.startswith(kind, autoescape=True)
        self._db.execute(DOCUMENTS.delete().where((DOCUMENTS.c.round_id == round_id) & begins))

    # ------------------------------------------------------------- forgetting

    def forget(self, round_id: str) -> None:
        """Destroys the round's private keys and forgets its ciphertexts; hashes stay, so that repeats are recognised.

        What keys have closed is lost with them; what the ciphertexts leave in the tables is `forget_piece`'s.
        """
        self.destroy_keys(round_id)
        self.forget_ciphertexts(round_id)

    def forget_ciphertexts(self, round_id: str) -> None:
        """The same of the ciphertexts alone: nothing here returns them any more, and `forget_piece` takes them out."""
        if round_id not in self.forgetting():
            self._db.execute(FORGETTING.insert().values(round_id=round_id))

    def forgetting(self) -> set[str]:
        """Returns the rounds of which ciphertexts that are forgotten may still be in the tables."""
        return set(self._db.execute(sa.select(FORGETTING.c.round_id)).scalars())

    def forget_piece(self, after: Place | None = None) -> Place | None:
        """Takes out of the tables a piece of what is forgotten; returns behind what the next one is, None after all.

        A large round in one transaction would keep all others waiting. After an interruption None begins again.
        """
        after = after or self._first_forgotten()
        if after is None:
            return None
        round_id, *place = after
        note_taken(self._db, round_id, "chunks", "opened")
        here, index = OPENED.c.round_id == round_id, (OPENED.c.lane, OPENED.c.chunk_index)
        last, left = self._end_of_piece(index, OPENED.c.content, here, _PIECE_BYTES)
        if last is not None:
            self._db.execute(OPENED.delete().where(here & (sa.tuple_(*index) <= sa.tuple_(*last))))
        if not left:
            return after
        columns = (CHUNKS.c.direction, CHUNKS.c.lane, CHUNKS.c.chunk_index)
        here = (CHUNKS.c.round_id == round_id) & (sa.tuple_(*columns) > sa.tuple_(*place))
        here &= CHUNKS.c.ciphertexts.is_not(None)
        last, left = self._end_of_piece(columns, CHUNKS.c.ciphertexts, here, left)
        if last is not None:
            until = sa.tuple_(*columns) <= sa.tuple_(*last)
            self._db.execute(CHUNKS.update().where(here & until).values(ciphertexts=None))
            if not left:
                return round_id, *last
        self._db.execute(FORGETTING.delete().where(FORGETTING.c.round_id == round_id))
        return self._first_forgotten()

    def _first_forgotten(self) -> Place | None:
        first = self._db.execute(sa.select(sa.func.min(FORGETTING.c.round_id))).scalar_one()
        return None if first is None else (first, "", -1, -1)

    def _end_of_piece(
        self, place: tuple[sa.Column[Any], ...], content: sa.Column[Any], where: sa.ColumnElement[bool], left: int
    ) -> tuple[tuple[Any, ...] | None, int]:
        """Returns the last of the first rows that come to a piece, if there are any, and how many bytes more it takes.

        0 means that there may be more rows. The row that fills the piece belongs to it.
        """
        rows = sa.select(*place, sa.func.length(content)).where(where).order_by(*place).limit(_ROWS_PER_PIECE)
        found = self._db.execute(rows).all()
        for row in found:
            left -= row[-1]
            if left <= 0:
                return tuple(row[:-1]), 0
        return tuple(found[-1][:-1]) if found else None, 0 if len(found) == _ROWS_PER_PIECE else left

    # ------------------------------------------------------------- retention

    def note_ends(self, final: Iterable[pb.RoundState.ValueType], now_s: int) -> None:
        """Writes down when rounds have ended, for those of which that is new."""
        known = sa.select(ENDS.c.round_id)
        ended = ROUNDS.c.state.in_(list(final)) | (ROUNDS.c.problem != "")
        fresh = sa.select(ROUNDS.c.round_id, sa.literal(now_s))
        fresh = fresh.where(ended & (ROUNDS.c.manifest != b"") & ROUNDS.c.round_id.not_in(known))
        self._db.execute(ENDS.insert().from_select(["round_id", "unix_s"], fresh))

    def ends(self, last_s: int | None = None) -> dict[str, int]:
        """Returns when rounds have ended of which something is kept, all or those that ended until then."""
        until = sa.true() if last_s is None else ENDS.c.unix_s <= last_s
        return {row.round_id: row.unix_s for row in self._db.execute(sa.select(ENDS).where(until))}

    def never_opened(self, now_s: int, last_s: int) -> list[str]:
        """Returns the rounds that were prepared until `last_s` and never opened; notes new ones as prepared now."""
        prepared = sa.select(ROUNDS.c.round_id).where(ROUNDS.c.state == pb.ROUND_STATE_PREPARED)
        self._db.execute(PREPARED.delete().where(PREPARED.c.round_id.not_in(prepared)))
        fresh = sa.select(ROUNDS.c.round_id, sa.literal(now_s)).where(ROUNDS.c.state == pb.ROUND_STATE_PREPARED)
        fresh = fresh.where(ROUNDS.c.round_id.not_in(sa.select(PREPARED.c.round_id)))
        self._db.execute(PREPARED.insert().from_select(["round_id", "unix_s"], fresh))
        old = sa.select(PREPARED.c.round_id).where(PREPARED.c.unix_s <= last_s)
        return list(self._db.execute(old).scalars())

    def delete_admitted(self, round_id: str) -> bool:
        """Deletes some of those whom an ended round has admitted, and returns whether there may be more of them."""
        note_taken(self._db, round_id, "submissions")
        here, client = SUBMISSIONS.c.round_id == round_id, SUBMISSIONS.c.client_key
        some = sa.select(client).where(here).limit(_ADMITTED_PER_PIECE)
        deleted = self._db.execute(SUBMISSIONS.delete().where(here & client.in_(some)))
        return deleted.rowcount == _ADMITTED_PER_PIECE

    def delete_round(self, round_id: str, kept: Collection[str]) -> None:
        """Deletes all that is known of a round but its name, its state, and the documents of these kinds.

        In one transaction: of a large round `delete_admitted` deletes most before.
        """
        self.forget(round_id)
        note_taken(self._db, round_id, "submissions", "documents", "tokens")
        for table in (SUBMISSIONS, CHUNKS, COSTS, ENDS):
            self._db.execute(table.delete().where(table.c.round_id == round_id))
        others = (DOCUMENTS.c.round_id == round_id) & DOCUMENTS.c.kind.not_in(list(kept))
        self._db.execute(DOCUMENTS.delete().where(others))
        self._db.execute(TOKENS.update().where(TOKENS.c.round_id == round_id).values(client_key=b"", round_id=""))
        self.update_round(round_id, manifest=b"")


def _kept(round_id: str) -> sa.ColumnElement[bool]:
    """Says that a round's ciphertexts are not forgotten."""
    return ~sa.exists().where(FORGETTING.c.round_id == round_id)


def _of(round_id: str, direction: str, lane: int) -> sa.ColumnElement[bool]:
    return (CHUNKS.c.round_id == round_id) & (CHUNKS.c.direction == direction) & (CHUNKS.c.lane == lane)
