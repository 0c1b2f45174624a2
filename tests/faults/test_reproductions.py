"""Every defect that the schedules have found, as the shortest schedule that shows it. They stay."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from croupier.runtime.steps import StoreStep
from tests.faults.running import run_in_process
from tests.faults.schedules import (
    Close,
    Expect,
    Fault,
    Kill,
    LinkFault,
    Pause,
    Repeat,
    Rotate,
    Schedule,
    Submit,
    Trouble,
    services,
)

REPRODUCTIONS: dict[str, Schedule] = {
    # Two calls read the roster at the same time, and the one that came second overwrote what the first had added.
    "clients who enrol at the same moment are all known": Schedule(
        hops=1, steps=(Trouble("shuffler-1", delay_ms=10), Submit(3))
    ),
    # The driver of the round slept until the deadline.
    "the operator closes before the deadline": Schedule(hops=1, deadline=True),
    # The answer to a caller who had gone raised an error; everyone else in the group never got theirs.
    "a client that hangs up takes no other with it": Schedule(
        hops=1, steps=(Trouble("shuffler-1", delay_ms=10), Submit(2, 12), Submit(2), Submit(2, 15), Submit(2))
    ),
    # The read before the group's commit stood outside of what was caught: no client of the group got an answer.
    "a store that fails before the first commit of a round": Schedule(
        hops=1, steps=(Fault("shuffler-1", StoreStep.READ_ADMITTED_CLIENTS, "fail"), Submit(1))
    ),
    # Memory did not know what was durable, and every later group with this client broke on the primary key.
    "a commit whose success was never heard of": Schedule(
        hops=1,
        steps=(
            Fault("shuffler-1", StoreStep.ADMIT_SUBMISSIONS, "lose the answer"),
            Submit(1),
            Repeat(0),
        ),
    ),
    "an enrolment whose success was never heard of": Schedule(
        hops=1,
        steps=(Fault("shuffler-1", StoreStep.REGISTER_CLIENTS, "lose the answer"), Submit(1), Repeat(0)),
    ),
    # The repeated call found the round open and forgot to watch its deadline.
    "a round that was opened without its operator hearing of it closes at its deadline": Schedule(
        hops=1,
        deadline=True,
        closed_by="clock",
        opening=(Fault("shuffler-1", StoreStep.OPEN_ROUND, "lose the answer", 1),),
    ),
    # One person of twenty chose a large budget, and every answer was destroyed.
    "a round at risk is held at its deadline, through kills, until its operator closes it": Schedule(
        deadline=True,
        at_risk=True,
        steps=(
            Submit(3, patiently=True),
            Trouble("shuffler-1", clock_offset_s=3600),
            Pause(600),
            Expect("shuffler-1", "OPEN"),
            Kill("accountant"),
            Kill("shuffler-1"),
            Pause(600),
            Expect("shuffler-1", "OPEN"),
            Repeat(0),
            Fault("shuffler-1", StoreStep.CLOSE_ADMISSION, "lose the answer"),
            Close(patiently=True),
        ),
    ),
    # A submission after the deadline closed the round, and it was never mixed.
    "the deadline passes over too few clients, and then there are enough": Schedule(
        hops=1,
        deadline=True,
        closed_by="clock",
        steps=(Trouble("shuffler-1", clock_offset_s=3600), Pause(400), Submit(1), Submit(1), Submit(1)),
    ),
    # The round was final, so the write-ahead log was never erased.
    "a log that could not be erased": Schedule(
        hops=1, steps=(Submit(2), Fault("shuffler-1", StoreStep.SHRED_LOG, "fail"), Close(), Pause(200))
    ),
    # The wait for the analyzer kept the channel of before: keys destroyed, the ledger charged, nothing published.
    "everybody's keys change while the accountant waits for the analyzer": Schedule(
        hops=1,
        steps=(
            Submit(2, patiently=True),
            LinkFault(("accountant", "analyzer"), "cut"),
            Close(patiently=True),
            Expect("accountant", "CERTIFIED"),
            *(Rotate(service) for service in services(1)),
        ),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REPRODUCTIONS)
def test_what_once_went_wrong_does_not_again(name: str) -> None:
    run_in_process(REPRODUCTIONS[name])


_POOL = """
import asyncio, multiprocessing, sys, time
from croupier.runtime.workers import WorkerPool

if __name__ == "__main__":
    pool = WorkerPool(2)
    asyncio.run(pool.warm())
    print(*(child.pid for child in multiprocessing.active_children()), flush=True)
    time.sleep(600)
"""


def test_the_workers_of_a_killed_service_end_too(tmp_path: Path) -> None:
    """They waited for work for ever, held the service's standard output, and its readers waited with them."""
    program = tmp_path / "pool.py"
    program.write_text(_POOL)
    with subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        workers = service.stdout.readline().split()
        assert len(workers) == 2
        service.kill()
        with selectors.DefaultSelector() as selector:  # the end of the pipe comes when the last holder has gone
            selector.register(service.stdout, selectors.EVENT_READ)
            ended = bool(selector.select(30.0))
        for worker in workers if not ended else ():
            os.kill(int(worker), signal.SIGKILL)
        assert ended
        assert service.stdout.read() == ""
