"""The client's durable memory: prepared reports, written before tickets are requested, then sealed submissions.

A retry asks for the same tickets and sends the identical bytes, also in a process that follows one that was killed. To
randomize again would spend the local budget again, so a user with a submission for a round never gets a second one, not
even when the bytes are forgotten, a month later. In a permanent study the report itself is kept, with its value, until
the person leaves the study. A prepared report, with all that ties it to its user, is destroyed in the transaction that
stores the submission. Only the file's owner can read it.
An answer's spending is counted here before it is randomized, and checked against the person's limits once more in the
transaction that stores it (`client.limits`).
"""

from __future__ import annotations

import errno
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sa

from croupier.accountant.numerics.decimals import sum_as_decimals
from croupier.client.limits import Limits, SpentHere, in_full
from croupier.client.submission import PreparedReport, SealedSubmission
from croupier.protocol.errors import LimitError, OtherPersonError
from croupier.protocol.names import NO_ROUND, RoundId
from croupier.protocol.onion import BUDGET_BYTES, BudgetRecord
from croupier.protocol.permanent import PermanentSeries
from croupier.protocol.tickets import BLIND_BYTES
from croupier.runtime.sqlite_log import overwrite_log
from croupier.runtime.tables import LARGE, table

Stored = TypeVar("Stored")

_metadata = sa.MetaData()
_table = partial(table, _metadata)
_submissions = _table(
    "sealed",
    {"round_id": str, "user": str},
    submission=bytes,
    inclusion_hashes=bytes,
    answer_key=bytes,
    local_epsilon=float,
    acknowledged=bool,
    kept_at_unix_s=LARGE,
    local_delta=float,
)
_attempts = _table("attempts", {"attempt": str}, round_id=str, local_epsilon=float, local_delta=float)
_prepared = _table(
    "prepared",
    {"round_id": str, "user": str},
    sealed=bytes,
    record=bytes,
    key=bytes,
    answer_key=bytes,
    blinds=bytes,
    kept_at_unix_s=LARGE,
)
_kept_reports = _table(  # one row for each different answer of a person to a question of a permanent study
    "kept_reports",
    {"person": str, "series": str, "value": str},  # of a study that was left, the value is a random name
    local_epsilon=float,
    report=bytes,  # of a study that was left: empty
)
_kept_waves = _table("kept_waves", {"round_id": str, "person": str}, series=str)
_VERSION = 1
"""The version of files that this croupier writes."""
KEPT_DAYS = 30
"""For so long sealed submissions and their inclusion hashes are kept, and can be sent again and looked for."""
_USERS_AT_ONCE = 1000
"""The most users in one query, as SQLite limits the parameters of a statement."""
_PATIENCE_S, _ERASE_PATIENCE_S = 5.0, 0.25
"""Seconds to wait for another process that holds the outbox, and for readers when its log is overwritten."""


class KeptSubmission(NamedTuple):
    """A stored submission.

    Attributes:
        submission: serialised; empty if it is forgotten.
        local_epsilon: its local budget.
        acknowledged: whether hop 1 has acknowledged it.
    """

    submission: bytes
    local_epsilon: float
    acknowledged: bool


class Outbox:
    """A SQLite file. Users are named by the caller: a key, or a file and its line."""

    def __init__(self, path: Path, now: Callable[[], float] = time.time) -> None:
        """Opens the file, or makes one, and forgets the bytes that are older than KEPT_DAYS.

        Raises:
            OSError: the file cannot be read or written, with its name; as any other method does.
            ValueError: a newer croupier has written it.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):  # to open and close a database gives up all locks of this process on it (POSIX)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        path.chmod(0o600)  # SQLite gives the files that it makes beside it the same mode
        self._path = path
        self._now = now
        self._turn = threading.Lock()
        # Parameters would show an answer's spending, and the key that signs it, with every error.
        self._engine = sa.create_engine(f"sqlite:///{path}", hide_parameters=True)
        sa.event.listen(self._engine, "connect", _configure)

        def name_the_file(failed: sa.engine.ExceptionContext) -> None:
            error = failed.sqlalchemy_exception  # a file that is damaged, or no database, is a DatabaseError
            if isinstance(error, sa.exc.OperationalError) or type(error) is sa.exc.DatabaseError:
                raise OSError(errno.EIO, f"it cannot be read or written: {failed.original_exception}", str(path))

        sa.event.listen(self._engine, "handle_error", name_the_file)
        try:
            self._check_version(path)
            self._delete_old()
        except BaseException:
            self._engine.dispose()
            raise

    def _check_version(self, path: Path) -> None:
        """Makes the tables if there are none. A newer version's tables are not touched."""
        with self._engine.begin() as db:
            db.exec_driver_sql("BEGIN IMMEDIATE").close()  # another process may be making them, too
            version = db.exec_driver_sql("PRAGMA user_version").scalar_one()
            if version > _VERSION:
                raise ValueError(
                    f"{path} is an outbox of version {version}, and this croupier knows versions up to {_VERSION}: a "
                    "newer croupier has written it; install that one again, and do not delete the file"
                )
            _metadata.create_all(db)
            if version < _VERSION:
                db.exec_driver_sql(f"PRAGMA user_version = {_VERSION}").close()

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        """Yields a transaction. Threads of this process take turns: SQLite lets one of several that wait starve."""
        with self._turn, self._engine.begin() as db:
            yield db

    def _delete_old(self) -> None:
        old = _submissions.c.kept_at_unix_s < self._now() - KEPT_DAYS * 86400
        old &= (_submissions.c.submission != b"") | (_submissions.c.inclusion_hashes != b"")
        with self._writing() as db:
            forgotten = db.execute(
                _submissions.update().where(old).values(submission=b"", inclusion_hashes=b"", answer_key=b"")
            ).rowcount
            forgotten += db.execute(
                _prepared.delete().where(_prepared.c.kept_at_unix_s < self._now() - KEPT_DAYS * 86400)
            ).rowcount
        if forgotten:
            self.overwrite_log()

    def pending(self, round_id: RoundId) -> dict[str, bytes]:
        """Returns the submissions that have not been acknowledged, by user."""
        return self._read(
            round_id, ~_submissions.c.acknowledged & (_submissions.c.submission != b""), _submissions.c.submission
        )

    def acknowledged(self, round_id: RoundId) -> dict[str, bytes]:
        """Returns the submissions that hop 1 has acknowledged, by user."""
        return self._read(round_id, _submissions.c.acknowledged, _submissions.c.submission)

    def inclusion_hashes(self, round_id: RoundId) -> dict[str, bytes]:
        """Returns the inclusion hashes of the acknowledged submissions, by user."""
        return self._read(
            round_id,
            _submissions.c.acknowledged & (_submissions.c.inclusion_hashes != b""),
            _submissions.c.inclusion_hashes,
        )

    def answer_keys(self, round_id: RoundId) -> dict[str, bytes]:
        """Returns the keys that sign the answers in a sequential round, by user."""
        return self._read(round_id, sa.true(), _submissions.c.answer_key)

    def kept(self, round_id: RoundId, user: str) -> KeptSubmission:
        """Returns a user's stored submission; raises KeyError if there was none."""
        row, columns = _submissions.c, [_submissions.c[name] for name in KeptSubmission._fields]
        with self._engine.connect() as db:
            stored = db.execute(sa.select(*columns).where(row.round_id == round_id, row.user == user)).one_or_none()
        if stored is None:
            raise KeyError(user)
        return KeptSubmission(*stored)

    def users(self, round_id: RoundId) -> set[str]:
        """Returns the users with a submission for the round, acknowledged or not, forgotten or not."""
        with self._engine.connect() as db:
            return _users_of(db, _submissions, round_id)

    def begun(self, round_id: RoundId) -> set[str]:
        """Returns the users with a submission or a prepared report for the round."""
        with self._engine.connect() as db:
            return _users_of(db, _submissions, round_id) | _users_of(db, _prepared, round_id)

    def prepared(self, round_id: RoundId) -> dict[str, PreparedReport]:
        """Returns the prepared reports of users whose submission is not sealed yet, by user."""
        with self._engine.connect() as db:
            rows = db.execute(sa.select(_prepared).where(_prepared.c.round_id == round_id))
            return {row.user: _as_prepared(row) for row in rows}

    def rounds_prepared(self) -> set[RoundId]:
        """Returns the rounds for which there are prepared reports."""
        with self._engine.connect() as db:
            return {RoundId(round_id) for round_id in db.execute(sa.select(_prepared.c.round_id)).scalars()}

    def _read(
        self,
        round_id: RoundId,
        where: sa.ColumnElement[bool],
        column: sa.ColumnElement[Stored],
    ) -> dict[str, Stored]:
        here = sa.select(_submissions.c.user, column)
        with self._engine.connect() as db:
            return {row[0]: row[1] for row in db.execute(here.where((_submissions.c.round_id == round_id) & where))}

    def begin(self, round_id: RoundId, local_epsilon: float, local_delta: float, limits: Limits) -> str:
        """Counts an attempt to answer, durably, before anything is randomized; returns its name.

        Several attempts at one round, those of other windows too, count as one: with the largest budget among them.

        Raises:
            LimitError: it would exceed the limits; it is not counted then.
        """
        attempt = secrets.token_hex(16)
        with self._writing() as db:  # the write first: it locks out another process that begins at the same time
            counted = {"local_epsilon": local_epsilon, "local_delta": local_delta}
            db.execute(_attempts.insert().values(attempt=attempt, round_id=round_id, **counted))
            limits.check_lifetime(_spent(db, without=round_id), _spent(db))
        return attempt

    def keep_reports(
        self,
        wave: Wave,
        wanted: Mapping[str, WantedReport],
        draw: Callable[[str, float], bytes],
        limits: Limits | None = None,
    ) -> dict[str, tuple[bytes, float]]:
        """Returns, for each user, the report of a value for every wave of its series, and the report's budget.

        A report is drawn and stored in one transaction at the first answer with its value. All values of a series have
        the budget of the first one. A person's spending in a series is the sum over the different values.

        Args:
            wave: the round and its series.
            wanted: the person, the value and the budget, by user.
            draw: returns a randomized report of a user with a budget.
            limits: of the only user; None for users who have no limits of their own.

        Raises:
            LimitError: it would exceed the limits, the series was begun with a larger budget, or it already has its
                full number of waves; nothing is stored.
        """
        with self._engine.begin() as db:  # the write first, as in `begin`
            for wanted_report in wanted.values():
                _join_wave(db, wave, wanted_report.person)
            before = None if limits is None else _spent(db, without=wave[0])
            kept = {
                user: _kept_report(db, wave, wanted_report, partial(draw, user))
                for user, wanted_report in wanted.items()
            }
            if limits is not None and before is not None:
                limits.check_lifetime(before, _spent(db))
        return kept

    def forget_reports(self, person: str, series: str) -> None:
        """Destroys the kept reports of a series, with their values; their spending still counts.

        Another answer to the question has new reports drawn, and spends their budgets on top.
        """
        mine = (_kept_reports.c.person == person) & (_kept_reports.c.series == series)
        with self._engine.begin() as db:
            kept = sa.select(_kept_reports.c.value).where(mine, _kept_reports.c.report != b"")
            for value in db.execute(kept).scalars().all():
                gone = {"value": f"left {secrets.token_hex(16)}", "report": b""}
                db.execute(_kept_reports.update().where(mine, _kept_reports.c.value == value).values(**gone))
        self.overwrite_log()

    def series_by_round(self, person: str) -> dict[RoundId, str]:
        """Returns the series of every round in which a person's report was one that is kept."""
        with self._engine.connect() as db:
            rounds = db.execute(sa.select(_kept_waves).where(_kept_waves.c.person == person))
            return {RoundId(row.round_id): row.series for row in rounds}

    def withdraw(self, attempt: str) -> None:
        """Ends an attempt: a stored submission counts for ever, and otherwise nothing of the attempt has left.

        An attempt whose process died is never withdrawn. It counts for ever.
        """
        with self._writing() as db:
            db.execute(_attempts.delete().where(_attempts.c.attempt == attempt))

    def spent_in_all(self) -> SpentHere:
        """Returns the spending of the rounds that were answered, or begun, from here."""
        with self._engine.connect() as db:
            return _spent(db)

    def prepare(
        self, round_id: RoundId, users: Mapping[str, PreparedReport], *, alone: bool = False, most: int | None = None
    ) -> dict[str, PreparedReport]:
        """Stores prepared reports durably, before the request for their tickets.

        Args:
            round_id: of the round.
            users: the prepared report of each.
            alone: no other user may have a submission or a prepared report for the round.
            most: the most users with a submission or a prepared report for the round, these included.

        Returns:
            The reports for which to request tickets, by user: the earlier report of a user who has one. A user with a
            submission for the round is left out.

        Raises:
            OtherPersonError: another user has begun; nothing is stored.
            ValueError: there would be more than `most`; nothing is stored.
        """
        rows = [
            {
                "round_id": round_id,
                "user": user,
                "kept_at_unix_s": int(self._now()),
                **prepared._asdict(),
                "record": prepared.record.budget + prepared.record.salt,
                "blinds": b"".join(prepared.blinds),
            }
            for user, prepared in users.items()
        ]
        if not rows:
            return {}
        stored: dict[str, PreparedReport] = {}
        with self._writing() as db:  # the write first, as in `begin`
            db.execute(_prepared.insert().prefix_with("OR IGNORE"), rows)
            if alone or most is not None:
                others = _num_users(db, round_id) - len(users)
                if alone and others:
                    raise other_person(round_id, others)
                if most is not None and others + len(users) > most:
                    raise ValueError(f"round {round_id!r} has {others} answers from here; there may be {most} at most")
            answered: set[str] = set()
            for these in _parts(list(users)):
                here = (_submissions.c.round_id == round_id) & _submissions.c.user.in_(these)
                answered.update(db.execute(sa.select(_submissions.c.user).where(here)).scalars())
            _delete_prepared(db, round_id, answered)
            for these in _parts(list(users.keys() - answered)):
                here = (_prepared.c.round_id == round_id) & _prepared.c.user.in_(these)
                stored |= {row.user: _as_prepared(row) for row in db.execute(sa.select(_prepared).where(here))}
        return {user: stored[user] for user in users if user in stored}

    def discard(self, round_id: RoundId, users: Iterable[str]) -> None:
        """Destroys the prepared reports of users who get no tickets."""
        with self._writing() as db:
            _delete_prepared(db, round_id, users)

    def keep(
        self,
        round_id: RoundId,
        submissions: Mapping[str, SealedSubmission],
        *,
        limits: Limits | None = None,
        alone: bool = False,
    ) -> None:
        """Stores new submissions durably, and destroys their prepared reports.

        Args:
            round_id: of the round.
            submissions: by user.
            limits: the user's own, which have to allow the submission beside everything stored or begun here.
            alone: no other user may have a submission for the round.

        Raises:
            sqlalchemy.exc.IntegrityError: a user has one already; nothing is stored.
            LimitError: it would exceed the limits; nothing is stored.
            OtherPersonError: another user has one; nothing is stored.
        """
        rows = [
            {
                "round_id": round_id,
                "user": user,
                "acknowledged": False,
                "kept_at_unix_s": int(self._now()),
                **sealed._asdict(),
            }
            for user, sealed in submissions.items()
        ]
        if not rows:
            return
        with self._writing() as db:  # the write first, as in `begin`
            db.execute(_submissions.insert(), rows)
            _delete_prepared(db, round_id, submissions)
            if alone:
                here = sa.select(sa.func.count()).where(_submissions.c.round_id == round_id)
                if others := db.execute(here).scalar_one() - len(rows):
                    raise other_person(round_id, others)
            if limits is not None:
                limits.check_lifetime(_spent(db, without=round_id), _spent(db))

    def acknowledge(self, round_id: RoundId, users: Iterable[str]) -> None:
        """Notes that hop 1 has the submissions of these users."""
        named = list(users)
        here = _submissions.c.round_id == round_id
        with self._writing() as db:
            for these in _parts(named):
                db.execute(_submissions.update().where(here, _submissions.c.user.in_(these)).values(acknowledged=True))

    def overwrite_log(self) -> None:
        """Overwrites deleted bytes in the log; another process that uses the file does it when it ends."""
        ignored = suppress(sqlite3.Error, sa.exc.DBAPIError, OSError)
        with ignored, self._turn, closing(self._engine.raw_connection()) as connection:
            overwrite_log(connection.driver_connection, self._path, _ERASE_PATIENCE_S)

    def close(self) -> None:
        """Closes the database; stored data stays. SQLite unlinks its log, which is overwritten before."""
        self.overwrite_log()
        self._engine.dispose()


Wave = tuple[RoundId, PermanentSeries]
"""A round, and the series that it belongs to."""


class WantedReport(NamedTuple):
    """The person and value of a report (text, equal for equal values), with the local epsilon."""

    person: str
    value: str
    local_epsilon: float


def _join_wave(db: sa.Connection, wave: Wave, person: str) -> None:
    """Notes that a person answers a wave. Raises LimitError for more waves than the series was fixed for."""
    round_id, series = wave
    row = {"round_id": round_id, "person": person, "series": series.name}
    db.execute(_kept_waves.insert().prefix_with("OR IGNORE"), row)
    mine = (_kept_waves.c.person == person) & (_kept_waves.c.series == series.name)
    if (number := db.execute(sa.select(sa.func.count()).where(mine)).scalar_one()) > series.waves:
        raise LimitError(
            f"round {round_id!r} would be wave {number:,} of a question that was fixed for {series.waves:,}; nothing "
            "was sent"
        )


def _kept_report(
    db: sa.Connection, wave: Wave, wanted: WantedReport, draw: Callable[[float], bytes]
) -> tuple[bytes, float]:
    series = wave[1].name
    mine = (_kept_reports.c.person == wanted.person) & (_kept_reports.c.series == series)
    kept = {row.value: row for row in db.execute(sa.select(_kept_reports).where(mine))}
    epsilon: float = next((row.local_epsilon for row in kept.values()), wanted.local_epsilon)
    if wanted.value in kept:
        report: bytes = kept[wanted.value].report
        return report, epsilon
    if epsilon > wanted.local_epsilon:
        raise LimitError(
            f"the question was answered with a local ε of {in_full(epsilon)} in earlier waves, and another answer "
            f"would spend as much again; at most {in_full(wanted.local_epsilon)} is allowed; nothing was sent"
        )
    report = draw(epsilon)
    row = {"value": wanted.value, "local_epsilon": epsilon, "report": report}
    db.execute(_kept_reports.insert().values(person=wanted.person, series=series, **row))
    return report, epsilon


def other_person(round_id: RoundId, others: int) -> OtherPersonError:
    """Returns the error if others have answered a round from here."""
    sealed = "an answer has" if others == 1 else f"{others:,} answers have"
    return OtherPersonError(
        f"for round {round_id!r} {sealed} been sealed here under another key; a person answers once, also "
        "with a new key"
    )


def _parts(users: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(users), _USERS_AT_ONCE):
        yield users[start : start + _USERS_AT_ONCE]


def _num_users(db: sa.Connection, round_id: RoundId) -> int:
    """Returns how many users have a submission or a prepared report for a round."""
    tables = (sa.select(table.c.user).where(table.c.round_id == round_id) for table in (_submissions, _prepared))
    counted: int = db.execute(sa.select(sa.func.count()).select_from(sa.union(*tables).subquery())).scalar_one()
    return counted


def _users_of(db: sa.Connection, table: sa.Table, round_id: RoundId) -> set[str]:
    return set(db.execute(sa.select(table.c.user).where(table.c.round_id == round_id)).scalars())


def _delete_prepared(db: sa.Connection, round_id: RoundId, users: Iterable[str]) -> None:
    for these in _parts(list(users)):
        db.execute(_prepared.delete().where((_prepared.c.round_id == round_id) & _prepared.c.user.in_(these)))


def _as_prepared(row: Any) -> PreparedReport:
    record = BudgetRecord(row.record[:BUDGET_BYTES], row.record[BUDGET_BYTES:])
    blinds = row.blinds[:BLIND_BYTES], row.blinds[BLIND_BYTES:]
    return PreparedReport(row.sealed, record, row.key, row.answer_key, blinds)


def _spent(db: sa.Connection, without: RoundId = NO_ROUND) -> SpentHere:
    """Returns the spending of all rounds, or of all but one. A person answers a round once, so the largest counts.

    The waves of a series with kept reports spend the sum over the different answers.
    """
    by_round: dict[str, tuple[float, float]] = {}
    for spending in (_submissions.c, _attempts.c):
        most = sa.select(spending.round_id, sa.func.max(spending.local_epsilon), sa.func.max(spending.local_delta))
        # The answers of a sequential round have rows of their own, whose spending the submission has counted.
        for round_id, epsilon, delta in db.execute(most.where(spending.local_epsilon > 0).group_by(spending.round_id)):
            before = by_round.get(round_id, (0.0, 0.0))
            by_round[round_id] = (max(before[0], epsilon), max(before[1], delta))
    for row in db.execute(sa.select(_kept_waves.c.round_id)):  # a wave spends nothing itself, and its number counts
        by_round[row.round_id] = (0.0, 0.0)
    by_round.pop(without, None)
    of_person: dict[tuple[str, str], list[float]] = {}
    for row in db.execute(sa.select(_kept_reports)):
        of_person.setdefault((row.series, row.person), []).append(row.local_epsilon)
    of_series: dict[str, float] = {}
    for (series, _), spent in of_person.items():
        of_series[series] = max(of_series.get(series, 0.0), sum_as_decimals(spent))
    epsilons, deltas = zip(*by_round.values(), strict=True) if by_round else ((), ())
    return SpentHere(sum_as_decimals([*epsilons, *of_series.values()]), sum_as_decimals(deltas), len(by_round))


def _configure(connection: sqlite3.Connection, _record: Any) -> None:
    for pragma in ("synchronous=FULL", "secure_delete=ON"):
        connection.execute(f"PRAGMA {pragma}").close()
    give_up = time.monotonic() + _PATIENCE_S
    while True:  # for this one SQLite does not wait itself while another process opens the file, too
        try:
            return connection.execute("PRAGMA journal_mode=WAL").close()
        except sqlite3.OperationalError:
            if time.monotonic() > give_up:
                raise
        time.sleep((1 + secrets.randbelow(9)) / 1000)
