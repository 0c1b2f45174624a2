"""Nothing acknowledged is ever lost or counted twice, whatever is killed when: drawn schedules, one oracle.

`CROUPIER_FAULT_SCHEDULES` and `CROUPIER_FAULT_PROCESS_SCHEDULES` say how many. Without `CROUPIER_FAULT_SEED` they are
always the same ones, so that a change is tested by what its predecessor was tested by; 'make faults' draws new ones.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from croupier.runtime.steps import StoreStep
from tests.faults.faulty_store import ACTIONS, Action
from tests.faults.footprint import Ceiling
from tests.faults.running import SEED_VARIABLE, Testimony, run_as_processes, run_in_memory, run_in_process
from tests.faults.schedules import (
    Close,
    Event,
    Expect,
    Fault,
    LinkFault,
    Pause,
    Repeat,
    Rotate,
    Schedule,
    Submit,
    Trouble,
    point_names,
    schedules,
    sequential_schedules,
    services,
)

NUMBER = int(os.environ.get("CROUPIER_FAULT_SCHEDULES", "6"))
PROCESS_NUMBER = int(os.environ.get("CROUPIER_FAULT_PROCESS_SCHEDULES", "1"))
SEED = os.environ.get(SEED_VARIABLE, "")
DRAWN = settings(
    deadline=None,
    database=None,
    derandomize=not SEED,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    phases=[Phase.generate, Phase.shrink],
)


class Progress:
    """Prints a line now and then, where a person waits for it."""

    def __init__(self, what: str, number: int) -> None:
        self._what, self._number, self._done, self._started = what, number, 0, 0.0

    def one_more(self) -> None:
        self._started = self._started or time.monotonic()
        self._done += 1
        if SEED and self._done % max(1, self._number // 50) == 0:
            passed_s = time.monotonic() - self._started
            sys.stdout.write(f"{self._done} of {self._number} schedules {self._what}, {passed_s:.0f} s\n")
            sys.stdout.flush()


IN_MEMORY = Progress("in memory", NUMBER)
HOP_NOISE = Progress("with hop noise", NUMBER // 5)
SEQUENTIAL = Progress("of sequential rounds", NUMBER // 10)
IN_PROCESS = Progress("in one process over TLS", NUMBER // 10)
AS_PROCESSES = Progress("with real processes", PROCESS_NUMBER)
WARM_UP = 10
CEILING = Ceiling(WARM_UP)
# Transactions that only a question, a start or the hour brings about.
UNNAMED = {
    StoreStep.PROBE,
    StoreStep.COUNT_ROUNDS,
    StoreStep.READ_STATUS,
    StoreStep.LIST_ROUNDS,
    StoreStep.READ_LEDGER_START,
    StoreStep.BEGIN_LEDGER,
    StoreStep.FIND_ROUND_FOR_CLIENT,
    StoreStep.READ_INCLUSION_LIST,
    StoreStep.FIND_OLD_ROUNDS,
    StoreStep.DELETE_PAGE,
    StoreStep.DELETE_OLD_ROUND,
    StoreStep.FIND_OVERDUE_ROUNDS,
    "look",
}


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """All schedules of this process together, with 'make faults', where nothing else runs in it.

    One that fails is kept, for its report. `test_leftovers` looks at a few schedules with every other test.
    """
    if not SEED:
        yield
        return
    # The last before counting begins is one over TLS: gRPC keeps descriptors of its own until it is not used any more.
    for run in (*[run_in_memory] * (WARM_UP - 1), run_in_process):
        run(Schedule(hops=1, steps=(Submit(2),)))
        CEILING.one_more()
    yield
    if not request.session.testsfailed:
        sys.stdout.write(CEILING.check() + "\n")


@seed(int(SEED or 0))
@settings(DRAWN, max_examples=NUMBER)
@given(schedules())
def test_what_is_acknowledged_is_counted_once(schedule: Schedule) -> None:
    run_in_memory(schedule)
    CEILING.one_more()
    IN_MEMORY.one_more()


@seed(int(SEED or 0))
@settings(DRAWN, max_examples=max(1, NUMBER // 10))
@given(schedules())
def test_what_is_acknowledged_is_counted_once_over_tls(schedule: Schedule) -> None:
    """A tenth as many with gRPC, TLS and real time in between."""
    run_in_process(schedule)
    CEILING.one_more()
    IN_PROCESS.one_more()


@pytest.mark.slow
@seed(int(SEED or 0))
@settings(DRAWN, max_examples=max(2, NUMBER // 10))
@given(sequential_schedules())
def test_every_answer_of_a_sequential_round_is_learnt_from_once(schedule: Schedule) -> None:
    """A tenth as many in which what was acknowledged is answers one after the other."""
    run_in_memory(schedule)
    CEILING.one_more()
    SEQUENTIAL.one_more()


@pytest.mark.slow
@seed(int(SEED or 0))
@settings(DRAWN, max_examples=max(2, NUMBER // 5))
@given(schedules(hop_noise=True))
def test_hops_show_one_draw_of_their_fakes_whatever_fails(schedule: Schedule) -> None:
    """A fifth as many in which every hop adds fakes: what is acknowledged is counted once beside them, too."""
    run_in_memory(schedule)
    CEILING.one_more()
    HOP_NOISE.one_more()


DRAWING = [(action, number) for number in range(2) for action in ACTIONS]
DRAWING_SWEPT = [pair for pair in DRAWING if SEED or ACTIONS.index(pair[0]) in (pair[1], 2 + pair[1])]


@pytest.mark.slow
@pytest.mark.parametrize(("action", "number"), DRAWING_SWEPT)
def test_every_commit_point_of_a_draw_once(action: Action, number: int) -> None:
    """Something happens at a commit point of the fakes of every hop and of their tickets, while a link is slow."""
    named = [(service, point_names(service, "hop noise")) for service in ("shuffler-1", "shuffler-2", "accountant")]
    faults = tuple(Fault(service, names[number], action, down=1) for service, names in named)
    over = tuple(Expect(name, state) for name, state in FINAL.items())
    slow = LinkFault(("shuffler-1", "accountant"), "stalled")
    healed = LinkFault(("shuffler-1", "accountant"), "open")
    steps: tuple[Event, ...] = (
        Submit(3, patiently=True),
        *faults,
        Close(patiently=True),  # hop 1 asks the accountant before it closes
        slow,
        Pause(80),
        healed,
        *over,
    )
    run_in_memory(Schedule(hops=2, steps=steps, hop_noise=True))
    CEILING.one_more()


@pytest.mark.slow
def test_a_sequential_round_survives_kills_rotation_cuts_and_a_full_disk() -> None:
    steps: tuple[Event, ...] = (
        Expect("shuffler-1", "SEQUENTIAL"),
        Fault("shuffler-1", StoreStep.KEEP_PROGRESS, "kill after", down=1),
        Pause(500),
        Fault("analyzer", StoreStep.LEARN_FROM_ANSWER, "lose the answer"),
        LinkFault(("shuffler-1", "shuffler-2"), "cut"),
        Rotate("analyzer"),
        LinkFault(("shuffler-1", "shuffler-2"), "open"),
        Fault("accountant", StoreStep.AMEND_LEDGER, "kill after", down=1),
        Trouble("accountant", disk_full=True),
        Rotate("shuffler-1"),
    )
    run_in_memory(Schedule(hops=2, steps=steps, sequential=True))


SWEEP = max(len(point_names(service)) for service in services(2))
FINAL = {"shuffler-1": "DELIVERED", "shuffler-2": "DELIVERED", "accountant": "RELEASED", "analyzer": "PUBLISHED"}


PAIRS = [(action, number) for number in range(SWEEP) for action in ACTIONS]
# With 'make faults' all of them; else at every point one, in turn.
SWEPT = [pair for pair in PAIRS if SEED or ACTIONS.index(pair[0]) == pair[1] % len(ACTIONS)]


@pytest.mark.slow
@pytest.mark.parametrize(("action", "number"), SWEPT)
def test_every_commit_point_once(action: Action, number: int) -> None:
    """Something happens at a commit point of every service, while the round is opened, and again until it is over."""
    named = [(service, point_names(service)) for service in services(2)]
    faults = tuple(Fault(service, names[number % len(names)], action) for service, names in named)
    over = tuple(Expect(service, state) for service, state in FINAL.items())
    steps: tuple[Event, ...] = (Submit(2, patiently=True), *faults, Submit(2), Repeat(0), Close(patiently=True), *over)
    run_in_memory(Schedule(hops=2, opening=faults, steps=steps))
    CEILING.one_more()


@pytest.mark.processes
@pytest.mark.xdist_group("fault processes")
@seed(int(SEED or 0))
@settings(DRAWN, max_examples=PROCESS_NUMBER)
@given(schedules())
def test_what_is_acknowledged_is_counted_once_by_real_processes(schedule: Schedule) -> None:
    run_as_processes(schedule)
    CEILING.one_more()
    AS_PROCESSES.one_more()


def test_every_transaction_of_a_round_can_be_a_commit_point() -> None:
    """Else the schedules would miss one that has been added or renamed."""
    batch = run_in_memory(Schedule(hops=2, steps=(Submit(3),)))
    sequential = run_in_memory(Schedule(hops=2, sequential=True))
    noisy = run_in_memory(Schedule(hops=2, steps=(Submit(3),), hop_noise=True))
    for service in services(2):
        assert met(batch, service) == set(point_names(service)), service
        more = set(point_names(service, "sequential"))
        assert more <= met(sequential, service) <= more | set(point_names(service)), service
        assert met(noisy, service) == {*point_names(service), *point_names(service, "hop noise")}, service


def met(testimony: Testimony, service: str) -> set[str]:
    lines = (line.split(" ") for line in testimony[service])
    return {place.replace("-", " ") for kind, place, _ in lines if kind == "point"} - UNNAMED


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.xdist_group("fault processes")
def test_a_hop_on_another_address_is_cut_off_in_mid_round_and_healed() -> None:
    around = (("shuffler-1", "shuffler-2"), ("shuffler-2", "shuffler-3"))
    run_as_processes(
        Schedule(
            hops=3,
            steps=(
                Submit(3, patiently=True),
                Submit(3, patiently=True),
                *(LinkFault(link, "cut") for link in around),
                Close(patiently=True),
                Expect("shuffler-1", "MIXED"),
                Pause(500),
                Expect("shuffler-2", "OPEN"),
                LinkFault(around[0], "open"),
                Expect("shuffler-2", "MIXED"),
                Expect("shuffler-3", "OPEN"),
                LinkFault(around[1], "open"),
                Expect("analyzer", "PUBLISHED"),
            ),
        ),
        hosts=("127.0.0.1", "127.0.0.2", "127.0.0.3"),
    )
