"""Schedules: what clients, the operator and misfortune do during one round, and how hypothesis draws them.

A schedule is plain data that prints as the Python expression that makes it again. What the steps mean is `play`'s.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Literal

from hypothesis import strategies as st

from croupier.runtime.steps import StoreStep
from tests.faults.faulty_store import ACTIONS, Action
from tests.faults.links import LinkState

CLIENTS = "clients"
_COMMON = (
    StoreStep.PREPARE_ROUND,
    StoreStep.READ_KEYS_TO_CHECK_TERMS,
    StoreStep.READ_APPROVALS,
    StoreStep.KEEP_SIGNED_MANIFEST,
    StoreStep.FIND_ROUND_TO_OPEN,
    StoreStep.OPEN_ROUND,
    StoreStep.READ_STATE,
    StoreStep.END_UNOPENED_ROUNDS,
)
_LANES = (
    StoreStep.FIND_UNOPENED_CHUNKS,
    StoreStep.READ_KEYS_OF_RECORDS,
    StoreStep.READ_RECORDS,
)
_ERASURE = (StoreStep.SHRED_PAGE, StoreStep.SHRED_LOG)
_RECEIVER = (
    StoreStep.READ_TERMS,
    StoreStep.TAKE_CHUNK,
    StoreStep.FIND_ROUND_HANDED_OVER,
    StoreStep.TAKE_OVER_BATCH,
    StoreStep.MEASURE_RECEIVED_LANE,
    StoreStep.READ_RECEIVED_CHUNK,
    StoreStep.READ_KEYS_TO_OPEN,
    StoreStep.KEEP_RECORDS,
    *_LANES,
    *_ERASURE,
)
_SHUFFLER = (
    StoreStep.BEGIN_TO_MIX,
    StoreStep.KEEP_MIXED_PART,
    StoreStep.READ_EARLIER_COMMITMENTS,
    StoreStep.KEEP_MIXED_BATCH,
    StoreStep.READ_COMMITMENTS_TO_DELIVER,
    StoreStep.MEASURE_LANE_TO_SEND,
    StoreStep.READ_CHUNK_TO_SEND,
    StoreStep.FINISH_DELIVERY,
)
_ADMISSION = (
    StoreStep.READ_ROSTER,
    StoreStep.REGISTER_CLIENTS,
    StoreStep.READ_ADMITTED_CLIENTS,
    StoreStep.ADMIT_SUBMISSIONS,
)
_HOP_1 = (
    StoreStep.READ_TERMS,
    StoreStep.READ_KEYS_TO_ADMIT,
    *_ADMISSION,
    StoreStep.WATCH_DEADLINE,
    StoreStep.CLOSE_ADMISSION,
    *_LANES,
    *_ERASURE,
)
_ACCOUNTANT = (
    *_ADMISSION,
    StoreStep.READ_TICKET_KEYS,
    StoreStep.MEASURE_REPORT_TICKETS,
    StoreStep.COUNT_TICKETS,
    StoreStep.READ_COMMITMENTS,
    StoreStep.DRAW_TIER_COUNTS,
    StoreStep.ENTER_CERTIFICATE,
    StoreStep.READ_CERTIFICATE_TO_GRANT,
    StoreStep.READ_RELEASE_KEY,
    StoreStep.FINISH_GRANT,
)
_ANALYZER = (
    StoreStep.KEEP_OPENED_BATCH,
    StoreStep.MEASURE_LANE_TO_SEND,
    StoreStep.READ_CHUNK_TO_SEND,
    StoreStep.READ_REPORTS_WITHOUT_TICKET,
    StoreStep.KEEP_GRANT,
    StoreStep.READ_CERTIFICATE,
    StoreStep.READ_KEYS_TO_OPEN_REPORTS,
    StoreStep.PUBLISH,
    StoreStep.SHOW_RESULT,
)
POINTS: dict[str, tuple[StoreStep, ...]] = {
    "first hop": (*_COMMON, *_HOP_1, *_SHUFFLER),
    "hop": (*_COMMON, *_RECEIVER, *_SHUFFLER),
    "accountant": (*_COMMON, *_RECEIVER, *_ACCOUNTANT),
    "analyzer": (*_COMMON, *_RECEIVER, *_ANALYZER),
}
"""Every transaction of a round, by role."""


SEQUENTIAL_POINTS: dict[str, tuple[StoreStep, ...]] = {
    "first hop": (
        StoreStep.FIND_WHO_MAY_ATTEND,
        StoreStep.READ_STATE_FOR_STREAM,
        StoreStep.READ_ORDER_AND_PROGRESS,
        StoreStep.KEEP_PROGRESS,
        StoreStep.KEEP_LAST_PROGRESS,
        StoreStep.SIGN_SEQUENTIAL_REPORT,
        StoreStep.READ_SEQUENTIAL_REPORT,
        StoreStep.FINISH_SEQUENTIAL_PART,
    ),
    "hop": (
        StoreStep.READ_KEYS_TO_RELAY,
        StoreStep.KEEP_SEQUENTIAL_REPORT,
        StoreStep.READ_SEQUENTIAL_REPORT,
        StoreStep.FINISH_SEQUENTIAL_PART,
    ),
    "accountant": (
        StoreStep.KEEP_SEQUENTIAL_REPORT,
        StoreStep.READ_SEQUENTIAL_OUTCOME,
        StoreStep.AMEND_LEDGER,
        StoreStep.FINISH_LAST_CERTIFICATE,
        StoreStep.SHOW_CERTIFICATE,
    ),
    "analyzer": (
        StoreStep.BEGIN_SEQUENTIAL_PART,
        StoreStep.FIND_ROUND_OF_ANSWER,
        StoreStep.READ_ANSWER_KEYS,
        StoreStep.LEARN_FROM_ANSWER,
        StoreStep.READ_MODEL,
    ),
}
"""What a sequential round has besides."""
_FAKES = (StoreStep.READ_FAKES, StoreStep.KEEP_FAKES)
HOP_NOISE_POINTS: dict[str, tuple[StoreStep, ...]] = {
    "first hop": _FAKES,
    "hop": _FAKES,
    "accountant": (StoreStep.COUNT_FAKE_TICKETS, StoreStep.READ_FAKE_TICKETS),
    "analyzer": (),
}
"""What a round with hop noise has besides."""
Kind = Literal["every round", "sequential", "hop noise"]
_POINTS_OF: dict[Kind, dict[str, tuple[StoreStep, ...]]] = {
    "every round": POINTS,
    "sequential": SEQUENTIAL_POINTS,
    "hop noise": HOP_NOISE_POINTS,
}


def point_names(service: str, kind: Kind = "every round") -> tuple[StoreStep, ...]:
    """Returns the commit points of a service in every round, or those that only another kind of round has."""
    role = {"shuffler-1": "first hop", "accountant": "accountant", "analyzer": "analyzer"}
    return _POINTS_OF[kind][role.get(service, "hop")]


def services(hops: int) -> tuple[str, ...]:
    return (*(f"shuffler-{hop}" for hop in range(1, hops + 1)), "accountant", "analyzer")


def links(hops: int) -> tuple[tuple[str, str], ...]:
    """Returns (caller, callee) for every pair that talks during a round."""
    chain = [f"shuffler-{hop}" for hop in range(1, hops + 1)]
    ends = [(chain[-1], "analyzer"), ("analyzer", "accountant"), ("accountant", "analyzer")]
    to_accountant = [(hop, "accountant") for hop in chain]  # the last hop's batch, and tickets for fakes
    return ((CLIENTS, "accountant"), (CLIENTS, chain[0]), *itertools.pairwise(chain), *to_accountant, *ends)


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
    point: StoreStep
    action: Action
    nth: int = 1
    down: int = 0

    def __post_init__(self) -> None:
        if all(self.point not in point_names(self.service, kind) for kind in _POINTS_OF):
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
        at_risk: hop 1 holds the round at its deadline, because some other budgets would have it refused.
        hop_noise: every hop adds fakes; not over real processes, where their numbers are drawn.
    """

    hops: int = 2
    deadline: bool = False
    closed_by: Literal["operator", "clock"] = "operator"
    opening: tuple[Fault, ...] = ()
    steps: tuple[Event, ...] = ()
    sequential: bool = False
    at_risk: bool = False
    hop_noise: bool = False


_INDEX = st.integers(0, 7)


def _points(service: str, kind: Kind) -> st.SearchStrategy[StoreStep]:
    """Draws steps that change something, and those of the kind, more often than steps that only read."""
    names = point_names(service) + (point_names(service, kind) * 3 if kind != "every round" else ())
    changing = [name for name in names if not name.startswith(("read ", "find "))]
    return st.one_of(st.sampled_from(changing), st.sampled_from(names))


def _faults(hops: int, kind: Kind = "every round") -> st.SearchStrategy[Fault]:
    return st.sampled_from(services(hops)).flatmap(
        lambda service: st.builds(
            Fault,
            st.just(service),
            _points(service, kind),
            st.sampled_from(ACTIONS),
            nth=st.sampled_from((1, 1, 1, 2, 3)),
            down=st.integers(0, 3),
        )
    )


def _steps(hops: int, kind: Kind) -> st.SearchStrategy[Event]:
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
        _faults(hops, kind),
        _faults(hops, kind),
        st.builds(Close, st.booleans()),
        st.builds(Kill, anyone, st.integers(0, 3)),
        st.builds(Restart, anyone),
        st.builds(Rotate, anyone),
        st.builds(LinkFault, st.sampled_from(links(hops)), state, st.sampled_from((0, 0, 5, 30))),
        trouble,
        st.builds(Pause, st.sampled_from((5, 20, 80))),
    )


def schedules(max_steps: int = 14, *, hop_noise: bool = False) -> st.SearchStrategy[Schedule]:
    """Returns a strategy for schedules over one, two or three hops."""
    kind: Kind = "hop noise" if hop_noise else "every round"
    ending: st.SearchStrategy[tuple[bool, Literal["operator", "clock"]]] = st.sampled_from(
        ((False, "operator"), (True, "operator"), (True, "clock"))
    )

    def steps(hops: int) -> st.SearchStrategy[list[Event]]:
        """Half of them close the round on the way, so that what follows meets it while it is mixed and certified."""
        steps = st.lists(_steps(hops, kind), max_size=max_steps // 2)
        closing: st.SearchStrategy[list[Event]] = st.builds(
            lambda before, faults, after: [*before, Submit(2), *faults, Close(), *after],
            steps,
            st.lists(_faults(hops, kind), max_size=3),
            steps,
        )
        return st.one_of(st.lists(_steps(hops, kind), max_size=max_steps), closing)

    return st.integers(1, 3).flatmap(
        lambda hops: st.builds(
            lambda end, opening, steps: Schedule(
                hops, end[0], end[1], tuple(opening), tuple(steps), hop_noise=hop_noise
            ),
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
            _faults(hops, "sequential"),
            _faults(hops, "sequential"),
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
