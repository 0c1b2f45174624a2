"""The key pairs of rounds; private halves are wrapped with the storage key of the service."""

from __future__ import annotations

import os
from contextlib import suppress

import sqlalchemy as sa
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from croupier.protocol.envelope import KeyPair
from croupier.protocol.names import PrivateKey, PublicKey, RoundId, StorageKey
from croupier.runtime.database import mark_for_shredding
from croupier.runtime.database_tables import KEYS
from croupier.runtime.kinds import KeyPurpose
from croupier.runtime.rows.base import TableRows


class KeyRows(TableRows):
    """The key pairs of rounds, by purpose."""

    def __init__(self, connection: sa.Connection, wrapping_key: StorageKey) -> None:
        super().__init__(connection)
        self._cipher = ChaCha20Poly1305(wrapping_key)

    def put_key(self, round_id: RoundId, purpose: KeyPurpose, pair: KeyPair) -> None:
        """Adds a key pair of a round, its private half wrapped."""
        nonce = os.urandom(12)
        wrapped = nonce + self._cipher.encrypt(nonce, pair.private, f"{round_id}\0{purpose}".encode())
        self._db.execute(
            KEYS.insert().values(round_id=round_id, purpose=purpose, public=pair.public, wrapped_private=wrapped)
        )

    def keys(self, round_id: RoundId) -> dict[KeyPurpose, KeyPair]:
        """Returns the key pairs of a round by purpose; empty once they are shredded."""
        pairs: dict[KeyPurpose, KeyPair] = {}
        for row in self._db.execute(sa.select(KEYS).where(KEYS.c.round_id == round_id)):
            nonce, body = row.wrapped_private[:12], row.wrapped_private[12:]
            private = self._cipher.decrypt(nonce, body, f"{round_id}\0{row.purpose}".encode())
            pairs[KeyPurpose(row.purpose)] = KeyPair(PublicKey(row.public), PrivateKey(private))
        return pairs

    def wrap_again(self, wrapping_key: StorageKey) -> None:
        """Wraps all private halves with another storage key; those that already use it are unchanged.

        Raises:
            ValueError: a private half is wrapped with neither key.
        """
        cipher = ChaCha20Poly1305(wrapping_key)
        for row in self._db.execute(sa.select(KEYS)).all():
            nonce, body = row.wrapped_private[:12], row.wrapped_private[12:]
            label = f"{row.round_id}\0{row.purpose}".encode()
            with suppress(InvalidTag):
                cipher.decrypt(nonce, body, label)
                continue
            try:
                private = self._cipher.decrypt(nonce, body, label)
            except InvalidTag:
                raise ValueError(f"a key of round {row.round_id!r} is wrapped with another storage key") from None
            nonce = os.urandom(12)
            wrapped = nonce + cipher.encrypt(nonce, private, label)
            this = (KEYS.c.round_id == row.round_id) & (KEYS.c.purpose == row.purpose)
            self._db.execute(KEYS.update().where(this).values(wrapped_private=wrapped))

    def shred_keys(self, round_id: RoundId) -> None:
        """Shreds the private keys of a round."""
        mark_for_shredding(self._db, round_id, "round_keys")
        self._db.execute(KEYS.delete().where(KEYS.c.round_id == round_id))
