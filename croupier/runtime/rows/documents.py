"""Documents of a round: signed messages, lists, and other data that is written as a whole."""

from __future__ import annotations

import sqlalchemy as sa

from croupier.protocol.errors import Code, Refusal
from croupier.protocol.names import RoundId
from croupier.runtime.database import mark_for_shredding
from croupier.runtime.database_tables import DOCUMENTS
from croupier.runtime.kinds import DocumentKind
from croupier.runtime.rows.base import TableRows


class DocumentRows(TableRows):
    """Documents, by round, kind, and part for a kind with several documents."""

    def put_document(self, round_id: RoundId, kind: DocumentKind, content: bytes, part: str = "") -> None:
        """Adds a document that is written once; raises Refusal CONFLICT on different content."""
        existing = self.document(round_id, kind, part)
        if existing is None:
            self._db.execute(DOCUMENTS.insert().values(round_id=round_id, kind=_name(kind, part), content=content))
        elif existing != content:
            raise Refusal(Code.CONFLICT, f"{kind} of round {round_id!r}")

    def document(self, round_id: RoundId, kind: DocumentKind, part: str = "") -> bytes | None:
        """Returns a document of a round, or None if it was never written."""
        here = (DOCUMENTS.c.round_id == round_id) & (DOCUMENTS.c.kind == _name(kind, part))
        content: bytes | None = self._db.execute(sa.select(DOCUMENTS.c.content).where(here)).scalar_one_or_none()
        return content

    def documents(self, round_id: RoundId, kind: DocumentKind) -> dict[str, bytes]:
        """Returns the documents of a kind that has parts, by part."""
        is_part = DOCUMENTS.c.kind.startswith(f"{kind}-", autoescape=True)
        here = (DOCUMENTS.c.round_id == round_id) & is_part
        rows = self._db.execute(sa.select(DOCUMENTS.c.kind, DOCUMENTS.c.content).where(here))
        return {row.kind.removeprefix(f"{kind}-"): row.content for row in rows}

    def replace_document(self, round_id: RoundId, kind: DocumentKind, content: bytes) -> None:
        """Writes a document that changes in the course of a round."""
        mark_for_shredding(self._db, round_id, "documents")
        here = (DOCUMENTS.c.round_id == round_id) & (DOCUMENTS.c.kind == kind)
        if not self._db.execute(DOCUMENTS.update().where(here).values(content=content)).rowcount:
            self.put_document(round_id, kind, content)

    def delete_documents(self, round_id: RoundId, kind: DocumentKind) -> None:
        """Deletes the document of a kind with all its parts."""
        mark_for_shredding(self._db, round_id, "documents")
        is_part = DOCUMENTS.c.kind.startswith(f"{kind}-", autoescape=True)
        here = (DOCUMENTS.c.round_id == round_id) & ((DOCUMENTS.c.kind == kind) | is_part)
        self._db.execute(DOCUMENTS.delete().where(here))


def _name(kind: DocumentKind, part: str) -> str:
    return f"{kind}-{part}" if part else kind
