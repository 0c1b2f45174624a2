"""One transaction of a service: the rows of every subject, and the changes that concern several subjects at once.

The subjects are in `runtime.rows`, in SQL through SQLAlchemy, on `runtime.database_tables`. The roles give the bytes
meaning; `runtime.store` runs the transactions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from croupier.protocol.envelope import KeyPair
from croupier.protocol.names import RoundId
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.database import mark_for_shredding
from croupier.runtime.database_tables import CHUNKS, COSTS, DOCUMENTS, ENDS, ROUNDS, SUBMISSIONS
from croupier.runtime.kinds import DocumentKind, KeyPurpose
from croupier.runtime.rows.chunks import ChunkRows
from croupier.runtime.rows.documents import DocumentRows
from croupier.runtime.rows.keys import KeyRows
from croupier.runtime.rows.roster import RosterRows
from croupier.runtime.rows.rounds import RoundRows
from croupier.runtime.rows.surveys import SurveyRows


class Transaction(KeyRows, RoundRows, RosterRows, ChunkRows, DocumentRows, SurveyRows):
    """Everything that can be read and changed inside one transaction. No subject overrides a method of another."""

    def add_round(self, round_id: RoundId, suite: str, keys: Mapping[KeyPurpose, KeyPair]) -> None:
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

    def shred_round(self, round_id: RoundId) -> None:
        """Shreds the private keys and the ciphertexts of a round; hashes stay, so that repeats are recognised.

        Whatever the keys encrypt is lost with them; the ciphertexts are deleted by `shred_page`.
        """
        self.shred_keys(round_id)
        self.shred_ciphertexts(round_id)

    def delete_round(self, round_id: RoundId, kept: Collection[DocumentKind]) -> None:
        """Deletes the rows of a round, except its name, its state, and the documents of these kinds.

        This is one transaction; for a large round call `delete_admitted` until it returns False first.
        """
        self.shred_round(round_id)
        mark_for_shredding(self._db, round_id, "submissions", "documents")
        for table in (SUBMISSIONS, CHUNKS, COSTS, ENDS):
            self._db.execute(table.delete().where(table.c.round_id == round_id))
        others = (DOCUMENTS.c.round_id == round_id) & DOCUMENTS.c.kind.not_in(list(kept))
        self._db.execute(DOCUMENTS.delete().where(others))
        self.update_round(round_id, manifest=b"")
