"""Every defect that the schedules have found, as the shortest schedule that shows it. They stay."""

from __future__ import annotations

import pytest

from tests.faults.faulty_store import ERASE_LOG
from tests.faults.running import run_in_process
from tests.faults.schedules import Close, Fault, Pause, Repeat, Schedule, Submit, Trouble

REPRODUCTIONS = {
    # Two calls read the roster at the same time, and the one that came second overwrote what the first had added.
    "clients who enrol at the same moment are all known": Schedule(
        hops=1, steps=(Trouble("shuffler-1", delay_ms=10), Submit(3))
    ),
    # The driver of the round slept until the deadline.
    "the operator closes before the deadline": Schedule(hops=1, deadline=True),
    # The answer to a caller who had gone raised an error; everyone else in the group never got theirs.
    "a client that hangs up takes nobody else with it": Schedule(
        hops=1, steps=(Trouble("shuffler-1", delay_ms=10), Submit(2, 12), Submit(2), Submit(2, 15), Submit(2))
    ),
    # The read before the group's commit stood outside of what was caught: nobody in the group got an answer.
    "a store that fails before the first commit of a round": Schedule(
        hops=1, steps=(Fault("shuffler-1", "Admission._write.<locals>.<lambda>", "fail"), Submit(1))
    ),
    # Memory did not know what was durable, and every later group with this client broke on the primary key.
    "a commit whose success was never heard of": Schedule(
        hops=1,
        steps=(
            Fault("shuffler-1", "Admission._write.<locals>.write", "lose the answer"),
            Submit(1),
            Repeat(0),
        ),
    ),
    "an enrolment whose success was never heard of": Schedule(
        hops=1,
        steps=(Fault("shuffler-1", "Admission.register.<locals>.<lambda>", "lose the answer"), Submit(1), Repeat(0)),
    ),
    # The repeated call found the round open and forgot to watch its deadline.
    "a round that was opened without its operator hearing of it closes at its deadline": Schedule(
        hops=1,
        deadline=True,
        closed_by="clock",
        opening=(Fault("shuffler-1", "RoundService.Open.<locals>.<lambda>", "lose the answer", 2),),
    ),
    # A submission after the deadline closed the round, and nobody mixed it.
    "the deadline passes over too few clients, and then there are enough": Schedule(
        hops=1,
        deadline=True,
        closed_by="clock",
        steps=(Trouble("shuffler-1", clock_offset_s=3600), Pause(400), Submit(1), Submit(1), Submit(1)),
    ),
    # The round was final, so nobody came back to erase the write-ahead log.
    "a log that could not be erased": Schedule(
        hops=1, steps=(Submit(2), Fault("shuffler-1", ERASE_LOG, "fail"), Close(), Pause(200))
    ),
}


@pytest.mark.parametrize("name", REPRODUCTIONS)
def test_what_once_went_wrong_does_not_again(name: str) -> None:
    run_in_process(REPRODUCTIONS[name])
