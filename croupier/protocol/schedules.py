"""Schedules: a survey that is asked again and again, in waves, with one consent.

The schedule is part of the survey (`protocol.surveys`), so that every service has signed it with the first round. Later
versions of a survey continue it, and change nothing that the first one has promised (`Survey.promises`). Whether a wave
opens when the calendar says so is the operator's to keep, and everybody's to see.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, Self, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from croupier.protocol.mechanisms.checks import check_positive
from croupier.protocol.names import Digest
from croupier.protocol.shown import check_shown
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.values import value_of

Period = Literal["once", "day", "week", "result"]
Results = Literal["public", "participants", "operator"]
MOST_WAVES = 4096
"""More than eleven years of days."""
RESULTS_TEXTS: dict[Results, str] = {
    "public": "The results are public.",
    "participants": "The results are sealed to the operator, who undertakes to give them to everybody who takes part.",
    "operator": "The results are sealed to the operator.",
}
"""Who reads the results, in a sentence; certificates are public in each case."""
DAYS: dict[Period, int] = {"day": 1, "week": 7}
"""The number of days between two waves, of the periods that have one."""
_BETWEEN_S = 2 * 3600
"""Seconds between the closing of a wave and the opening of the next one, at least: a day on which the clocks are set
forward has 23 hours, and the results of a wave are there before the next one opens."""
_MOST_OPEN_S = 366 * 86_400
_LOCAL_TIME = "%Y-%m-%dT%H:%M"
_MAX_DELTA = 0.1
PROMISED = ("total_epsilon", "total_delta", "permanent", "results")
"""What the first version of a survey fixes for all later ones: services sign, and clients answer, no other ones."""


@dataclass(frozen=True)
class Calendar:
    """When the waves of one version of a survey open, and for how long.

    Attributes:
        first: when the first wave of the version opens: a local time of `timezone`, in whole minutes, without a zone.
        every: "once"; "day" or "week": further waves open at the same local time; "result": each further wave opens
            once the wave before has its result. A local time that a change of the clocks skips is read as if the clocks
            had not changed yet, and one that occurs twice is the first of both.
        timezone: a name of the IANA time zone database, such as "Europe/Berlin".
        open_for_s: how long a wave takes answers, in seconds: at least 60, and 2 h less than the period at most.

    Raises:
        ValueError: at construction, with the value and what it must be.
    """

    first: datetime
    every: Period
    timezone: str
    open_for_s: int

    def __post_init__(self) -> None:
        if self.first.tzinfo is not None or self.first.second or self.first.microsecond:
            raise ValueError(f"first is {self.first}; it must be a local time in whole minutes, without a zone")
        if self.every not in get_args(Period):
            raise ValueError(f"every is {self.every!r}; it must be one of {', '.join(get_args(Period))}")
        if not re.fullmatch(r"[A-Za-z0-9_+/-]{1,64}", self.timezone):
            raise ValueError(f"timezone is {self.timezone!r}; it must be a name such as Europe/Berlin")
        most = DAYS[self.every] * 86_400 - _BETWEEN_S if self.every in DAYS else _MOST_OPEN_S
        if not 60 <= self.open_for_s <= most:
            raise ValueError(f"open_for is {self.open_for_s:,} s; it must be in 60..{most:,} s with every {self.every}")

    def opens(self, place: int) -> int:
        """Returns when the wave with this place in the version, from 0, opens: Unix seconds.

        Raises:
            ValueError: the time zone database of this machine does not have the time zone, or the wave follows a
                result.
        """
        if place and self.every == "result":
            raise ValueError(f"wave {place + 1} opens once wave {place} has its result; no calendar tells when")
        try:
            zone = ZoneInfo(self.timezone)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise ValueError(
                f"timezone is {self.timezone!r}; the time zone database of this machine does not have it"
            ) from error
        local = self.first + timedelta(days=DAYS.get(self.every, 0) * place)
        return int(local.replace(tzinfo=zone).timestamp())


@dataclass(frozen=True)
class Schedule:
    """The waves of one version of a survey.

    Attributes:
        version: from 1.
        previous_hash: the hash of the version before this one; None in version 1.
        change: what this version changes, for people to read; empty in version 1.
        calendar: when waves open.
        first_wave, last_wave: the waves of this version, both included; the numbers go on from version to version.
        total_epsilon, total_delta: the most that all waves of all versions together may cost one person, composed as
            the accountant composes rounds.
        permanent: whether a client randomizes an answer once, and sends the same report while the answer is the same.
        results: who reads the results.

    Raises:
        ValueError: at construction, with the value and what it must be.
    """

    version: int
    previous_hash: Digest | None
    change: str
    calendar: Calendar
    first_wave: int
    last_wave: int
    total_epsilon: float
    total_delta: float
    permanent: bool
    results: Results

    def __post_init__(self) -> None:
        if not 1 <= self.version < 2**31:
            raise ValueError(f"version is {self.version}; it must be at least 1")
        if (self.version > 1) != (self.previous_hash is not None):
            raise ValueError(f"version {self.version} must name the hash of the version before it, and version 1 none")
        if self.previous_hash is not None and len(self.previous_hash) != 32:
            raise ValueError(f"previous_hash has {len(self.previous_hash)} bytes; it must have 32")
        if len(self.change.encode()) > 1000 or bool(self.change) != (self.version > 1):
            raise ValueError("change must say in 1..1000 bytes what the version changes, and be empty in version 1")
        check_shown("change", self.change)
        if not 1 <= self.first_wave <= self.last_wave <= MOST_WAVES or (self.version == 1 and self.first_wave != 1):
            raise ValueError(
                f"the waves are {self.first_wave}..{self.last_wave}; they must be a range in 1..{MOST_WAVES}, from 1 "
                "in version 1"
            )
        if self.calendar.every == "once" and self.first_wave != self.last_wave:
            raise ValueError(f"the version has the waves {self.first_wave}..{self.last_wave}; with every once it has 1")
        check_positive("total_epsilon", self.total_epsilon)
        if not 0 < self.total_delta <= _MAX_DELTA:
            raise ValueError(f"total_delta is {self.total_delta}; it must be 0 < total_delta ≤ {_MAX_DELTA:g}")
        if self.results not in get_args(Results):
            raise ValueError(f"results is {self.results!r}; it must be one of {', '.join(get_args(Results))}")

    @classmethod
    def read(cls, message: pb.Schedule) -> Self:
        """Returns the schedule that a message states; the inverse of `message`.

        Raises:
            ValueError: a field that is missing or out of range, with its value and what it must be.
        """
        first = message.calendar.first
        if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d", first):
            raise ValueError(f"calendar.first is {first!r}; it must be a local time such as 2026-01-05T08:00")
        calendar = value_of(Calendar, message.calendar, first=datetime.strptime(first, _LOCAL_TIME))
        previous = Digest(message.previous_hash) if message.previous_hash else None
        return value_of(cls, message, calendar=calendar, previous_hash=previous)

    def message(self) -> pb.Schedule:
        """Returns the message of a schedule."""
        values, every = asdict(self), f"PERIOD_{self.calendar.every.upper()}"
        values["calendar"] |= {"first": self.calendar.first.strftime(_LOCAL_TIME), "every": every}
        return pb.Schedule(**values | {"results": f"RESULTS_{self.results.upper()}"})

    @classmethod
    def from_now(cls, every: Period, waves: int, total_epsilon: float, total_delta: float) -> Self:
        """Returns the schedule of waves that begin now; each stays open for 30 days, unless it is closed before."""
        begins = datetime.now(UTC).replace(second=0, microsecond=0, tzinfo=None)
        calendar = Calendar(begins, every, "UTC", 30 * 86_400)
        return cls(1, None, "", calendar, 1, waves, total_epsilon, total_delta, False, "public")

    @property
    def follows_results(self) -> bool:
        """Whether each wave opens once the wave before has its result, and not by the calendar."""
        return self.calendar.every == "result"

    def wave(self, number: int, opens_unix_s: int | None = None) -> Wave:
        """Returns a wave of this version with its times.

        opens_unix_s: of a wave that follows a result; by default the calendar tells.

        Raises:
            ValueError: the version has no wave with this number, this machine does not know the time zone, or no
                calendar tells the time.
        """
        self.check_wave(number)
        opens = self.calendar.opens(number - self.first_wave) if opens_unix_s is None else opens_unix_s
        return Wave(number, opens, opens + self.calendar.open_for_s)

    def waves(self) -> Iterator[Wave]:
        """Yields all waves of this version whose time the calendar tells, in order; raises as `wave`."""
        last = self.first_wave if self.follows_results else self.last_wave
        return (self.wave(number) for number in range(self.first_wave, last + 1))

    def stated_wave(self, number: int, opens_unix_s: int, closes_unix_s: int) -> Wave:
        """Returns a wave as a manifest states it, Unix seconds.

        Raises:
            ValueError: the version has no wave with this number, or its waves are open for another time.
        """
        self.check_wave(number)
        if closes_unix_s - opens_unix_s != self.calendar.open_for_s:
            raise ValueError(
                f"wave {number} is open from {opens_unix_s} to {closes_unix_s}; the calendar says for "
                f"{self.calendar.open_for_s} s"
            )
        return Wave(number, opens_unix_s, closes_unix_s)

    def check_wave(self, number: int) -> None:
        """Raises ValueError if the version has no wave with this number."""
        if not self.first_wave <= number <= self.last_wave:
            raise ValueError(
                f"the waves of version {self.version} are {self.first_wave}..{self.last_wave}, not {number}"
            )


@dataclass(frozen=True)
class Wave:
    """One wave of a survey.

    Attributes:
        number: from 1, over all versions.
        opens_unix_s: when it opens by the calendar, Unix seconds; it may open later.
        closes_unix_s: the deadline of its rounds, Unix seconds.
    """

    number: int
    opens_unix_s: int
    closes_unix_s: int

    @property
    def opens(self) -> datetime:
        """When it opens by the calendar, UTC."""
        return datetime.fromtimestamp(self.opens_unix_s, UTC)

    @property
    def closes(self) -> datetime:
        """When it closes, UTC."""
        return datetime.fromtimestamp(self.closes_unix_s, UTC)
