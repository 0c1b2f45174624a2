"""The roster: who may submit, and who has submitted in a round."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import sqlalchemy as sa

from croupier.protocol.names import Digest, PublicKey, RoundId
from croupier.runtime.database_tables import CLIENTS, INVITED, REVOKED, SUBMISSIONS
from croupier.runtime.rows.base import TableRows

_KEYS_AT_ONCE = 1000
"""The number of keys in one query; SQLite takes 32,766 parameters, PostgreSQL 65,535."""


class RosterRows(TableRows):
    """Clients and submissions."""

    def add_clients(self, client_keys: Iterable[PublicKey]) -> None:
        """Registers clients; registered ones are unchanged."""
        self._add(CLIENTS, client_keys)

    def client_keys(self) -> set[PublicKey]:
        """Returns the public keys of all registered clients, revoked ones among them."""
        return set(self._db.execute(sa.select(CLIENTS.c.client_key)).scalars())

    def add_invited(self, client_keys: Iterable[PublicKey], survey_hash: Digest, valid_until_unix_s: int) -> None:
        """Registers clients for the rounds of one survey; 0: for good. None of them may be registered so already."""
        self._add(INVITED, client_keys, survey_hash=survey_hash, valid_until_unix_s=valid_until_unix_s)

    def invited(self) -> dict[PublicKey, tuple[Digest, int]]:
        """Returns the clients of surveys by public key: the survey's hash, and when they expire (Unix s; 0: never)."""
        rows = self._db.execute(sa.select(INVITED))
        return {row.client_key: (row.survey_hash, row.valid_until_unix_s) for row in rows}

    def revoke(self, client_keys: Iterable[PublicKey]) -> None:
        """Adds client keys that are no longer admitted; none of them may be revoked already."""
        self._add(REVOKED, client_keys)

    def _add(self, table: sa.Table, client_keys: Iterable[PublicKey], **columns: object) -> None:
        rows = [{"client_key": key, **columns} for key in client_keys]
        if rows:
            self._db.execute(table.insert(), rows)

    def revoked(self) -> set[PublicKey]:
        """Returns all client keys that have been revoked."""
        return set(self._db.execute(sa.select(REVOKED)).scalars())

    def num_revoked(self) -> int:
        """Returns how many client keys have been revoked."""
        return self._db.execute(sa.select(sa.func.count()).select_from(REVOKED)).scalar_one()

    def add_submissions(self, round_id: RoundId, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Adds (client_key, envelope_hash) rows; a client that has a row already is an error."""
        self._db.execute(
            SUBMISSIONS.insert(),
            [{"round_id": round_id, "client_key": key, "envelope_hash": name} for key, name in rows],
        )

    def submission_hashes(
        self, round_id: RoundId, client_keys: Sequence[PublicKey] | None = None
    ) -> dict[PublicKey, Digest]:
        """Returns the envelope hash by client, of all clients who have submitted, or of the given ones."""
        here = sa.select(SUBMISSIONS.c.client_key, SUBMISSIONS.c.envelope_hash)
        here = here.where(SUBMISSIONS.c.round_id == round_id)
        if client_keys is None:
            return {row.client_key: row.envelope_hash for row in self._db.execute(here)}
        hashes: dict[PublicKey, Digest] = {}
        for start in range(0, len(client_keys), _KEYS_AT_ONCE):
            rows = self._db.execute(
                here.where(SUBMISSIONS.c.client_key.in_(client_keys[start : start + _KEYS_AT_ONCE]))
            )
            hashes |= {row.client_key: row.envelope_hash for row in rows}
        return hashes

    def num_answered(self, round_ids: Sequence[RoundId], client_keys: Sequence[PublicKey]) -> int:
        """Returns how many of these clients have submitted in at least one of these rounds."""
        answered: set[PublicKey] = set()
        here = sa.select(SUBMISSIONS.c.client_key).where(SUBMISSIONS.c.round_id.in_(round_ids))
        for start in range(0, len(client_keys), _KEYS_AT_ONCE):
            keys = client_keys[start : start + _KEYS_AT_ONCE]
            answered.update(self._db.execute(here.where(SUBMISSIONS.c.client_key.in_(keys))).scalars())
        return len(answered)

    def num_submissions(self, round_id: RoundId) -> int:
        """Returns how many clients have submitted in a round."""
        count = sa.select(sa.func.count()).select_from(SUBMISSIONS).where(SUBMISSIONS.c.round_id == round_id)
        return self._db.execute(count).scalar_one()
