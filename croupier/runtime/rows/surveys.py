"""Surveys whose rounds this service has signed, and these rounds: kept for the life of the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from croupier.protocol.errors import Code, Refusal
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import Digest, RoundId
from croupier.protocol.surveys import Survey, read_survey
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.database_tables import ROUNDS, SURVEY_ROUNDS, SURVEYS
from croupier.runtime.rows.base import TableRows


class SurveyRows(TableRows):
    """The rounds that this service has signed: one for each survey, wave and question.

    A round that was withdrawn before it was open here is not counted: its keys are destroyed, and nothing of it can be
    read at this service.
    """

    def sign_round(self, terms: RoundTerms, approvals: bytes) -> None:
        """Enters a round that is about to be signed, and its survey; the same round again changes nothing.

        approvals: of the survey, with which its later rounds are signed, too.

        Raises:
            Refusal: CONFLICT if another survey has been signed under this name for this wave, BAD_MANIFEST if the
                version changes a promise of an earlier one.
        """
        survey, wave = terms.survey, terms.wave.number if terms.wave else 0
        self._delete_never_opened(survey.survey_id)
        self._check_promises(survey)
        other = self._db.execute(
            sa.select(SURVEY_ROUNDS.c.survey_hash).where(
                SURVEY_ROUNDS.c.survey_id == survey.survey_id,
                SURVEY_ROUNDS.c.wave == wave,
                SURVEY_ROUNDS.c.survey_hash != survey.hash,
            )
        ).first()
        if other is not None:
            raise Refusal(
                Code.CONFLICT,
                f"{survey.wave_name(wave)!r} is of survey {survey.hash.hex()[:16]}… here; it must be of "
                f"{other.survey_hash.hex()[:16]}…, which has been signed: a survey and each of its waves is asked once",
            )
        if self.approvals_of(survey.hash) is None:
            values = {"survey_hash": survey.hash, "survey_id": survey.survey_id, "payload": survey.payload}
            self._db.execute(SURVEYS.insert().values(**values, approvals=approvals))
        else:
            signed = SURVEYS.update().where(SURVEYS.c.survey_hash == survey.hash)
            self._db.execute(signed.values(approvals=approvals))
        here = sa.select(SURVEY_ROUNDS.c.round_id).where(SURVEY_ROUNDS.c.round_id == terms.round_id)
        if self._db.execute(here).first() is None:
            self._db.execute(
                SURVEY_ROUNDS.insert().values(
                    survey_id=survey.survey_id,
                    wave=wave,
                    question=terms.place,
                    round_id=terms.round_id,
                    survey_hash=survey.hash,
                    was_open=False,
                )
            )

    def approvals_of(self, survey_hash: Digest) -> bytes | None:
        """Returns the approvals with which a round of a survey was last signed here; None if none was."""
        found = sa.select(SURVEYS.c.approvals).where(SURVEYS.c.survey_hash == survey_hash)
        return self._db.execute(found).scalar_one_or_none()

    def _delete_never_opened(self, survey_id: str) -> None:
        withdrawn = sa.select(ROUNDS.c.round_id).where(ROUNDS.c.state == int(pb.ROUND_STATE_DISPOSED))
        never = (SURVEY_ROUNDS.c.survey_id == survey_id) & ~SURVEY_ROUNDS.c.was_open
        self._db.execute(SURVEY_ROUNDS.delete().where(never & SURVEY_ROUNDS.c.round_id.in_(withdrawn)))
        left = sa.exists().where(SURVEY_ROUNDS.c.survey_hash == SURVEYS.c.survey_hash)
        self._db.execute(SURVEYS.delete().where((SURVEYS.c.survey_id == survey_id) & ~left))

    def _check_promises(self, survey: Survey) -> None:
        known = sa.select(SURVEYS.c.payload).where(SURVEYS.c.survey_id == survey.survey_id)
        payload = self._db.execute(known).scalars().first()
        if payload is None or payload == survey.payload:
            return
        first = read_survey(payload)
        if (first.schedule is None) != (survey.schedule is None):
            raise Refusal(Code.CONFLICT, f"survey {survey.survey_id!r} has been signed here, with other terms")
        try:
            first.check_promises_of(survey)
        except ValueError as error:
            raise Refusal(Code.BAD_MANIFEST, str(error)) from error

    def note_open(self, round_id: RoundId) -> None:
        """Notes that a round was open here: from now on it counts for ever."""
        self._db.execute(SURVEY_ROUNDS.update().where(SURVEY_ROUNDS.c.round_id == round_id).values(was_open=True))

    def signed_surveys(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Returns all surveys and their rounds, for a backup: values by column."""
        surveys, rounds = (self._db.execute(sa.select(table)).mappings().all() for table in (SURVEYS, SURVEY_ROUNDS))
        return [dict(row) for row in surveys], [dict(row) for row in rounds]

    def restore_surveys(self, surveys: Sequence[dict[str, Any]], rounds: Sequence[dict[str, Any]]) -> None:
        """Enters the missing part of the result of `signed_surveys`; ValueError if a present part differs."""
        for table, rows in ((SURVEYS, surveys), (SURVEY_ROUNDS, rounds)):
            for row in rows:
                key = [column == row[column.name] for column in table.primary_key.columns]
                kept = self._db.execute(sa.select(table).where(*key)).mappings().one_or_none()
                if kept is None:
                    self._db.execute(table.insert().values(**row))
                elif {**kept, "was_open": None} != {**row, "was_open": None}:
                    raise ValueError(f"survey {row['survey_id']!r} is here already, with other terms")
