"""Studies: the surveys of the waves, and the promises of the first wave; kept for the life of the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa

from croupier.protocol.errors import Code, Refusal
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import RoundId
from croupier.protocol.studies import StudyPromises, StudyWave
from croupier.protocol.surveys import Survey
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.database_tables import ROUNDS, STUDIES, STUDY_ROUNDS
from croupier.runtime.rows.base import TableRows


class StudyRows(TableRows):
    """The rounds of studies that this service has signed: one for each wave and question.

    A round that was withdrawn before it was open here is not counted: its keys are destroyed, and nothing of it can be
    read at this service.
    """

    def sign_wave(self, terms: RoundTerms) -> None:
        """Enters a round that is about to be signed, if it is of a study; the same round again changes nothing.

        Raises:
            Refusal: CONFLICT if another survey has been signed as this wave, BAD_MANIFEST if the version changes a
                promise of the first wave.
        """
        survey = terms.survey
        if survey is None or survey.wave is None:
            return
        self._delete_never_opened(survey.wave.study.study_id)
        self._keep_promises(survey.wave, terms.collector_public_key)
        self.check_wave(survey, survey.wave)
        self._keep_wave(survey, survey.wave, terms)

    def _delete_never_opened(self, study_id: str) -> None:
        withdrawn = sa.select(ROUNDS.c.round_id).where(ROUNDS.c.state == int(pb.ROUND_STATE_DISPOSED))
        never = (STUDY_ROUNDS.c.study_id == study_id) & ~STUDY_ROUNDS.c.was_open
        self._db.execute(STUDY_ROUNDS.delete().where(never & STUDY_ROUNDS.c.round_id.in_(withdrawn)))
        left = sa.exists().where(STUDY_ROUNDS.c.study_id == STUDIES.c.study_id)
        self._db.execute(STUDIES.delete().where((STUDIES.c.study_id == study_id) & ~left))

    def _keep_promises(self, wave: StudyWave, collector_public_key: bytes) -> None:
        study = wave.study
        row = self._db.execute(sa.select(STUDIES).where(STUDIES.c.study_id == study.study_id)).one_or_none()
        if row is None:
            promises = asdict(StudyPromises.of(study, collector_public_key))
            self._db.execute(STUDIES.insert().values(study_id=study.study_id, **promises))
            return
        try:
            StudyPromises(*row[1:]).check_kept(study, collector_public_key)
        except ValueError as error:
            raise Refusal(Code.BAD_MANIFEST, str(error)) from error

    def check_wave(self, survey: Survey, wave: StudyWave) -> None:
        """Raises Refusal CONFLICT if another survey has been signed as this wave."""
        other = self._db.execute(
            sa.select(STUDY_ROUNDS.c.survey_hash).where(*_of_wave(wave), STUDY_ROUNDS.c.survey_hash != survey.hash)
        ).first()
        if other is not None:
            raise Refusal(
                Code.CONFLICT,
                f"wave {wave.number} of study {wave.study.study_id!r} is survey {survey.hash.hex()[:16]}… here; it "
                f"must be {other.survey_hash.hex()[:16]}…, which has been signed: a wave is asked once",
            )

    def _keep_wave(self, survey: Survey, wave: StudyWave, terms: RoundTerms) -> None:
        here = sa.select(STUDY_ROUNDS.c.round_id).where(STUDY_ROUNDS.c.round_id == terms.round_id)
        if self._db.execute(here).first() is None:
            self._db.execute(
                STUDY_ROUNDS.insert().values(
                    study_id=wave.study.study_id,
                    wave=wave.number,
                    question=survey.position_of(terms.round_id),
                    round_id=terms.round_id,
                    survey_hash=survey.hash,
                    series=terms.permanent.name if terms.permanent else "",
                    was_open=False,
                )
            )

    def open_wave(self, round_id: RoundId) -> None:
        """Notes that a round was open here, if it is of a study: from now on it counts for ever."""
        self._db.execute(STUDY_ROUNDS.update().where(STUDY_ROUNDS.c.round_id == round_id).values(was_open=True))

    def studies(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Returns the promises of all studies, and their rounds, for a backup: values by column."""
        promises, rounds = (self._db.execute(sa.select(table)).mappings().all() for table in (STUDIES, STUDY_ROUNDS))
        return [dict(row) for row in promises], [dict(row) for row in rounds]

    def restore_studies(self, promises: Sequence[dict[str, Any]], rounds: Sequence[dict[str, Any]]) -> None:
        """Enters the missing part of the result of `studies`; raises ValueError if a present part differs."""
        for table, rows in ((STUDIES, promises), (STUDY_ROUNDS, rounds)):
            for row in rows:
                key = [column == row[column.name] for column in table.primary_key.columns]
                kept = self._db.execute(sa.select(table).where(*key)).mappings().one_or_none()
                if kept is None:
                    self._db.execute(table.insert().values(**row))
                elif {**kept, "was_open": None} != {**row, "was_open": None}:
                    raise ValueError(f"study {row['study_id']!r} is here already, with other terms")

    def rounds_of_series(self, series: str) -> set[RoundId]:
        """Returns the rounds of a series that have been signed here, except those withdrawn before they were open."""
        withdrawn = sa.select(ROUNDS.c.round_id).where(ROUNDS.c.state == int(pb.ROUND_STATE_DISPOSED))
        counts = STUDY_ROUNDS.c.was_open | STUDY_ROUNDS.c.round_id.not_in(withdrawn)
        here = (STUDY_ROUNDS.c.series == series) & counts
        return set(self._db.execute(sa.select(STUDY_ROUNDS.c.round_id).where(here)).scalars())


def _of_wave(wave: StudyWave) -> tuple[sa.ColumnElement[bool], sa.ColumnElement[bool]]:
    return STUDY_ROUNDS.c.study_id == wave.study.study_id, STUDY_ROUNDS.c.wave == wave.number
