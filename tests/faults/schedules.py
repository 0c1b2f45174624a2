"""Schedules: what clients, the operator and misfortune do during one round, and how hypothesis draws them.

A schedule is plain data that prints as the Python expression that makes it again. What the steps mean is `play`'s.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Literal

from hypothesis import strategies as st

from croupier.runtime.steps import Step
from tests.faults.faulty_store import ACTIONS, Action
from tests.faults.links import LinkState

__all__ = [
    "CLIENTS",
    "POINTS",
    "SEQUENTIAL_POINTS",
    "Close",
    "Different",
    "EndAsking",
    "Event",
    "Expect",
    "Fault",
    "Kill",
    "LinkFault",
    "Pause",
    "Repeat",
    "Restart",
    "Rotate",
    "Schedule",
    "Step",
    "Submit",
    "Tamper",
    "Trouble",
    "links",
    "point_names",
    "schedules",
    "sequential_schedules",
    "services",
]

CLIENTS = "clients"
_COMMON = (
    Step.PREPARE_ROUND,
    Step.READ_KEYS_TO_CHECK_TERMS,
    Step.KEEP_SIGNED_MANIFEST,
    Step.FIND_ROUND_TO_OPEN,
    Step.OPEN_ROUND,
    Step.READ_STATE,
    Step.END_UNOPENED_ROUNDS,
)
_LANES = (
    Step.FIND_UNOPENED_CHUNKS,
    Step.READ_KEYS_OF_RECORDS,
    Step.READ_RECORDS,
)
_ERASURE = (Step.SHRED_PAGE, Step.SHRED_LOG)
_RECEIVER = (
    Step.READ_TERMS,
    Step.TAKE_CHUNK,
    Step.FIND_ROUND_HANDED_OVER,
    Step.TAKE_OVER_BATCH,
    Step.MEASURE_RECEIVED_LANE,
    Step.READ_RECEIVED_CHUNK,
    Step.READ_KEYS_TO_OPEN,
    Step.KEEP_RECORDS,
    *_LANES,
    *_ERASURE,
)
_SHUFFLER = (
    Step.BEGIN_TO_MIX,
    Step.KEEP_MIXED_PART,
    Step.READ_EARLIER_COMMITMENTS,
    Step.KEEP_MIXED_BATCH,
    Step.READ_COMMITMENTS_TO_DELIVER,
    Step.MEASURE_LANE_TO_SEND,
    Step.READ_CHUNK_TO_SEND,
    Step.FINISH_DELIVERY,
)
_ADMISSION = (
    Step.READ_ROSTER,
    Step.REGISTER_CLIENTS,
    Step.READ_ADMITTED_CLIENTS,
    Step.ADMIT_SUBMISSIONS,
)
_HOP_1 = (
    Step.READ_TERMS,
    Step.READ_KEYS_TO_ADMIT,
    *_ADMISSION,
    Step.CLOSE_ADMISSION,
    *_LANES,
    *_ERASURE,
)
_ACCOUNTANT = (
    *_ADMISSION,
    Step.READ_TICKET_KEYS,
    Step.MEASURE_REPORT_TICKETS,
    Step.COUNT_TICKETS,
    Step.READ_COMMITMENTS,
    Step.ENTER_CERTIFICATE,
    Step.READ_CERTIFICATE_TO_GRANT,
    Step.READ_RELEASE_KEY,
    Step.FINISH_GRANT,
)
_ANALYZER = (
    Step.KEEP_OPENED_BATCH,
    Step.MEASURE_LANE_TO_SEND,
    Step.READ_CHUNK_TO_SEND,
    Step.READ_REPORTS_WITHOUT_TICKET,
    Step.KEEP_GRANT,
    Step.READ_CERTIFICATE,
    Step.READ_KEYS_TO_OPEN_REPORTS,
    Step.PUBLISH,
    Step.SHOW_RESULT,
)
POINTS: dict[str, tuple[Step, ...]] = {
    "first hop": (*_COMMON, *_HOP_1, *_SHUFFLER),
    "hop": (*_COMMON, *_RECEIVER, *_SHUFFLER),
    "accountant": (*_COMMON, *_RECEIVER, *_ACCOUNTANT),
    "analyzer": (*_COMMON, *_RECEIVER, *_ANALYZER),
}
"""Every transaction of a round, by role."""


SEQUENTIAL_POINTS: dict[str, tuple[Step, ...]] = {
    "first hop": (
        Step.FIND_WHO_MAY_ATTEND,
        Step.READ_STATE_FOR_STREAM,
        Step.READ_ORDER_AND_PROGRESS,
        Step.KEEP_PROGRESS,
        Step.KEEP_LAST_PROGRESS,
        Step.SIGN_SEQUENTIAL_REPORT,
        Step.READ_SEQUENTIAL_REPORT,
        Step.FINISH_SEQUENTIAL_PART,
    ),
    "hop": (
        Step.READ_KEYS_TO_RELAY,
        Step.KEEP_SEQUENTIAL_REPORT,
        Step.READ_SEQUENTIAL_REPORT,
        Step.FINISH_SEQUENTIAL_PART,
    ),
    "accountant": (
        Step.KEEP_SEQUENTIAL_REPORT,
        Step.READ_SEQUENTIAL_OUTCOME,
        Step.AMEND_LEDGER,
        Step.FINISH_LAST_CERTIFICATE,
        Step.SHOW_CERTIFICATE,
    ),
    "analyzer": (
        Step.BEGIN_SEQUENTIAL_PART,
        Step.FIND_ROUND_OF_ANSWER,
        Step.READ_ANSWER_KEYS,
        Step.LEARN_FROM_ANSWER,
        Step.READ_MODEL,
    ),
}
"""What a sequential round has besides."""


def point_names(service: str, *, sequential: bool = False) -> tuple[Step, ...]:
    """Returns the commit points of a service in a round, or those that only a sequential round has."""
    role = {"shuffler-1": "first hop", "accountant": "accountant", "analyzer": "analyzer"}
    return (SEQUENTIAL_POINTS if sequential else POINTS)[role.get(service, "hop")]


def services(hops: int) -> tuple[str, ...]:
    return (*(f"shuffler-{hop}" for hop in range(1, hops + 1)), "accountant", "analyzer")


def links(hops: int) -> tuple[tuple[str, str], ...]:
    """Returns (caller, callee) for every pair that talks during a round."""
    chain = [f"shuffler-{hop}" for hop in range(1, hops + 1)]
    ends = [(chain[-1], "analyzer"), (chain[-1], "accountant"), ("analyzer", "accountant"), ("accountant", "analyzer")]
    return ((CLIENTS, "accountant"), (CLIENTS, chain[0]), *itertools.pairwise(chain), *ends)


@dataclass(frozen=True)
class Submit:
    """New clients, all at once, each in a call of its own.

    With `hang_up_ms` they do not wait for the answer; patient ones try until they have one.
    """

    clients: int = 1
    hang_up_ms: int = 0
    patiently: bool = False


@dataclass(frozen=True)
class Repeat:
    """An earlier submission, byte for byte."""

    which: int


@dataclass(frozen=True)
class Different:
    """Another report of a client that has one."""

    which: int


@dataclass(frozen=True)
class Tamper:
    """An earlier submission with one bit flipped on the way."""

    which: int
    part: Literal["envelope", "signature"]
    bit: int


@dataclass(frozen=True)
class Close:
    """The operator closes the round; a patient one tries until hop 1 answers."""

    patiently: bool = False


@dataclass(frozen=True)
class EndAsking:
    """The operator ends the asking of a sequential round."""


@dataclass(frozen=True)
class Fault:
    """Something happens at a commit point of a service; a killed service comes back after `down` more steps."""

    service: str
    point: Step
    action: Action
    nth: int = 1
    down: int = 0

    def __post_init__(self) -> None:
        if self.point not in point_names(self.service) + point_names(self.service, sequential=True):
            raise ValueError(f"{self.point!r} must be a commit point of {self.service}, else nothing ever happens")


@dataclass(frozen=True)
class Kill:
    """`kill -9` now."""

    service: str
    down: int = 0


@dataclass(frozen=True)
class Restart:
    """A graceful stop and a start."""

    service: str


@dataclass(frozen=True)
class Rotate:
    """A service changes its identity and its TLS key; every service notices by itself, one sooner than another."""

    service: str


@dataclass(frozen=True)
class LinkFault:
    """What becomes of one link from now on."""

    link: tuple[str, str]
    state: LinkState
    delay_ms: int = 0


@dataclass(frozen=True)
class Trouble:
    """What is wrong with one service from now on: every transaction is late, the clock is off, the disk is full."""

    service: str
    delay_ms: int = 0
    clock_offset_s: int = 0
    disk_full: bool = False


@dataclass(frozen=True)
class Pause:
    """Time passes."""

    ms: int


@dataclass(frozen=True)
class Expect:
    """The round gets to this state in a service. Never drawn: under faults the moment is not known."""

    service: str
    state: str


Event = (
    Expect
    | Submit
    | Repeat
    | Different
    | Tamper
    | Close
    | EndAsking
    | Fault
    | Kill
    | Restart
    | Rotate
    | LinkFault
    | Trouble
    | Pause
)


@dataclass(frozen=True)
class Schedule:
    """One round. `opening` is wrong while it is opened; then the steps; then all is healed and the round is closed.

    Attributes:
        deadline: the round has a deadline (in half an hour), which `Trouble.clock_offset_s` can bring about.
        closed_by: who closes it in the end; "clock" needs a deadline.
        sequential: clients have submitted before the steps, and answer one after the other meanwhile.
    """

    hops: int = 2
    deadline: bool = False
    closed_by: Literal["operator", "clock"] = "operator"
    opening: tuple[Fault, ...] = ()
    steps: tuple[Event, ...] = ()
    sequential: bool = False


_INDEX = st.integers(0, 7)


_READING = frozenset(
    {
        Step.READ_KEYS_TO_CHECK_TERMS,
        Step.FIND_ROUND_TO_OPEN,
        Step.READ_STATUS,
        Step.READ_TERMS,
        Step.READ_STATE,
        Step.FIND_OVERDUE_ROUNDS,
        Step.FIND_OLD_ROUNDS,
        Step.FIND_ROUND_HANDED_OVER,
        Step.READ_RECEIVED_CHUNK,
        Step.FIND_UNOPENED_CHUNKS,
        Step.READ_KEYS_TO_OPEN,
        Step.READ_KEYS_OF_RECORDS,
        Step.READ_RECORDS,
        Step.READ_CHUNK_TO_SEND,
        Step.READ_ROSTER,
        Step.READ_ADMITTED_CLIENTS,
        Step.FIND_ROUND_FOR_CLIENT,
        Step.READ_KEYS_TO_ADMIT,
        Step.READ_EARLIER_COMMITMENTS,
        Step.READ_COMMITMENTS_TO_DELIVER,
        Step.READ_INCLUSION_LIST,
        Step.FIND_WHO_MAY_ATTEND,
        Step.READ_STATE_FOR_STREAM,
        Step.READ_ORDER_AND_PROGRESS,
        Step.READ_SEQUENTIAL_REPORT,
        Step.READ_KEYS_TO_RELAY,
        Step.READ_TICKET_KEYS,
        Step.READ_COMMITMENTS,
        Step.READ_CERTIFICATE_TO_GRANT,
        Step.READ_RELEASE_KEY,
        Step.READ_SEQUENTIAL_OUTCOME,
        Step.READ_CERTIFICATE,
        Step.READ_REPORTS_WITHOUT_TICKET,
        Step.READ_KEYS_TO_OPEN_REPORTS,
        Step.FIND_ROUND_OF_ANSWER,
        Step.READ_ANSWER_KEYS,
        Step.READ_MODEL,
    }
)
"""Steps that change nothing."""


def _points(service: str, sequential: bool) -> st.SearchStrategy[Step]:
    """Draws steps that change something more often than those that only read."""
    names = point_names(service) + (point_names(service, sequential=True) * 3 if sequential else ())
    return st.one_of(st.sampled_from([name for name in names if name not in _READING]), st.sampled_from(names))


def _faults(hops: int, sequential: bool = False) -> st.SearchStrategy[Fault]:
    return st.sampled_from(services(hops)).flatmap(
        lambda service: st.builds(
            Fault,
            st.just(service),
            _points(service, sequential),
            st.sampled_from(ACTIONS),
            nth=st.sampled_from((1, 1, 1, 2, 3)),
            down=st.integers(0, 3),
        )
    )


def _steps(hops: int) -> st.SearchStrategy[Event]:
    anyone = st.sampled_from(services(hops))
    part: st.SearchStrategy[Literal["envelope", "signature"]] = st.sampled_from(("envelope", "signature"))
    state: st.SearchStrategy[LinkState] = st.sampled_from(("open", "cut", "stalled"))
    trouble = st.builds(
        Trouble,
        anyone,
        delay_ms=st.sampled_from((0, 2, 10)),
        clock_offset_s=st.sampled_from((0, 3600, -3600)),
        disk_full=st.booleans(),
    )
    return st.one_of(
        st.builds(Submit, st.integers(1, 3)),
        st.builds(Submit, st.integers(1, 3), st.integers(0, 12)),
        st.builds(Repeat, _INDEX),
        st.builds(Different, _INDEX),
        st.builds(Tamper, _INDEX, part, st.integers(0, 4095)),
        _faults(hops),
        _faults(hops),
        st.builds(Close, st.booleans()),
        st.builds(Kill, anyone, st.integers(0, 3)),
        st.builds(Restart, anyone),
        st.builds(Rotate, anyone),
        st.builds(LinkFault, st.sampled_from(links(hops)), state, st.sampled_from((0, 0, 5, 30))),
        trouble,
        st.builds(Pause, st.sampled_from((5, 20, 80))),
    )


def schedules(max_steps: int = 14) -> st.SearchStrategy[Schedule]:
    """Returns a strategy for schedules over one, two or three hops."""
    ending: st.SearchStrategy[tuple[bool, Literal["operator", "clock"]]] = st.sampled_from(
        ((False, "operator"), (True, "operator"), (True, "clock"))
    )

    def steps(hops: int) -> st.SearchStrategy[list[Event]]:
        """Half of them close the round on the way, so that what follows meets it while it is mixed and certified."""
        some = st.lists(_steps(hops), max_size=max_steps // 2)
        closing: st.SearchStrategy[list[Event]] = st.builds(
            lambda before, faults, after: [*before, Submit(2), *faults, Close(), *after],
            some,
            st.lists(_faults(hops), max_size=3),
            some,
        )
        return st.one_of(st.lists(_steps(hops), max_size=max_steps), closing)

    return st.integers(1, 3).flatmap(
        lambda hops: st.builds(
            lambda end, opening, steps: Schedule(hops, end[0], end[1], tuple(opening), tuple(steps)),
            ending,
            st.lists(_faults(hops), max_size=1),
            steps(hops),
        )
    )


def sequential_schedules(max_steps: int = 10) -> st.SearchStrategy[Schedule]:
    """Returns a strategy for sequential rounds, which are attended, asked and ended while the steps are taken."""

    def steps(hops: int) -> st.SearchStrategy[list[Event]]:
        anyone = st.sampled_from(services(hops))
        state: st.SearchStrategy[LinkState] = st.sampled_from(("open", "cut", "stalled"))
        step: st.SearchStrategy[Event] = st.one_of(
            _faults(hops, sequential=True),
            _faults(hops, sequential=True),
            st.builds(Kill, anyone, st.integers(0, 3)),
            st.builds(Restart, anyone),
            st.builds(Rotate, anyone),
            st.builds(LinkFault, st.sampled_from(links(hops)), state, st.sampled_from((0, 0, 5, 30))),
            st.builds(Trouble, anyone, delay_ms=st.sampled_from((0, 2)), disk_full=st.booleans()),
            st.builds(Pause, st.sampled_from((50, 300, 1000))),
            st.sampled_from([EndAsking(), Pause(300), Pause(300)]),
        )
        return st.lists(step, min_size=1, max_size=max_steps)

    return st.integers(1, 2).flatmap(
        lambda hops: st.builds(
            lambda opening, steps: Schedule(hops, opening=tuple(opening), steps=tuple(steps), sequential=True),
            st.lists(_faults(hops), max_size=1),
            steps(hops),
        )
    )
