"""Fixtures that several directories need, and the rule that in CI no test is skipped."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import json
import os
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

import grpc.aio
import pytest
from hypothesis import HealthCheck, settings

from croupier.deploy.operator.keys import PORTS_VARIABLE
from tests.support.postgresql import Server, postgresql_server
from tests.support.virtual_time import VirtualTimeLoop

settings.register_profile(
    "house", max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)  # no test times itself
settings.load_profile("house")

_NO_SKIPS = "CROUPIER_NO_SKIPS"
_PARTS, _FIRST_PORT, _PORTS_EACH = 16, 10_000, 1_400
"""The ports that deployments choose from, below those that systems choose themselves."""


HUNTED = (
    "tests/accountant/bounds/test_closed_forms.py::test_arbitrary_budgets_are_reported_in_close_groups",
    "tests/accountant/bounds/test_density_blanket.py::test_a_span_covers_every_victim_in_it",
    "tests/accountant/bounds/test_exchange_laplace.py::test_many_budgets_get_less_than_the_blanket",
    "tests/accountant/bounds/test_exchange_lattice.py::test_victims_that_are_answered_together",
    "tests/accountant/bounds/test_two_groups.py::test_between_the_attack_and_what_the_largest_victims_have[tiers1",
    "tests/accountant/bounds/test_two_groups.py::test_between_the_attack_and_what_the_largest_victims_have[tiers2",
    "tests/accountant/bounds/test_two_groups.py::test_between_the_attack_and_what_the_largest_victims_have[tiers3",
    "tests/accountant/bounds/test_two_groups.py::test_the_bound_is_just_above_a_data_set[tiers1",
    "tests/accountant/bounds/test_two_groups.py::test_the_whole_certificate_and_its_curves",
    "tests/accountant/test_certified_profile.py::test_a_curve_of_1000_people_is_within_5_percent_of_certify",
    "tests/accountant/test_composition.py::test_a_round_of_which_no_curve_says_anything_is_composed_by_adding",
    "tests/accountant/test_hunt.py::test_many_tiers_on_both_sides_of_the_thresholds[randomizer3-32",
    "tests/accountant/test_hunt.py::test_many_tiers_on_both_sides_of_the_thresholds[randomizer6-29",
    "tests/accountant/test_hunt.py::test_very_many_tiers_of_bits_on_both_sides_of_the_thresholds",
    "tests/accountant/test_planner.py::test_all_tiers_are_certified_once[krr(k=5)-30",
)
"""Long numerical tests that run in `make hunt`, or when their file is named: quicker tests cover the same code."""

LONG = (
    # In memory: tests/training/test_sequential_training.py; with processes: the same test in batches.
    "tests/training/test_command.py::test_silos_train_through_a_deployment[sequential",
    # A process on PostgreSQL: test_kill_minus_nine_keeps_what_was_committed... in tests/runtime/test_store.py; whole
    # rounds: test_every_service_restarts_and_loses_its_connection_within_rounds; killed services: test_processes.py.
    "tests/integration/test_postgresql.py::test_kill_minus_nine_loses_nothing",
    # The same with SQLite, and test_a_second_writer_is_refused_until_the_first_has_gone in tests/runtime/test_store.py.
    "tests/integration/test_postgresql.py::test_a_second_process_of_a_service_is_refused_and_the_first_goes_on[postgr",
    # The same with SQLite, and test_a_large_round_is_forgotten_in_pieces.
    "tests/runtime/test_store.py::test_a_hundred_megabytes_come_back_in_order_and_are_forgotten[postgresql",
)
"""Long tests of deployments that run in `make long`, or when their file is named: shorter tests cover the same."""


class Durations:
    """The seconds that each test took in earlier runs: the longest tests go first, those of a group as one.

    Otherwise a worker would begin a long test when the others have nothing left to do. They are in pytest's cache, and
    for a fresh checkout, those of the longest tests in `longest.json`. The order need not be exact: the file is written
    again (`python -m tests.longest`) when the tests at its top have changed.
    """

    NAME = "durations of earlier runs"
    KEY = "croupier/durations"
    LONGEST = Path(__file__).parent / "longest.json"

    def __init__(self, config: pytest.Config) -> None:
        self._cache = getattr(config, "cache", None)  # none with -p no:cacheprovider
        self._known: dict[str, float] = json.loads(self.LONGEST.read_text(encoding="utf-8"))
        if self._cache:
            self._known |= self._cache.get(self.KEY, {})
        self._seen: dict[str, float] = {}

    def sort(self, items: list[pytest.Item]) -> None:
        """Puts the longest first. A group stays as it was collected: what its files share is then made once."""
        blocks: dict[str, list[pytest.Item]] = {}
        for item in items:
            mark = item.get_closest_marker("xdist_group")
            blocks.setdefault(mark.args[0] if mark else item.nodeid, []).append(item)
        longest = sorted(blocks.values(), key=lambda block: -sum(self._known.get(one.nodeid, 0.0) for one in block))
        items[:] = [item for block in longest for item in block]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid.partition("@")[0]  # behind it xdist names the group
        self._seen[name] = round(self._seen.get(name, 0.0) + report.duration, 2)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Only where the reports of all workers arrive."""
        if self._cache and not hasattr(session.config, "workerinput"):
            self._cache.set(self.KEY, self._known | self._seen)


def pytest_configure(config: pytest.Config) -> None:
    """Deployments of several workers, and of several runs, are made at the same time: each has ports of its own.

    A service that a test stops and starts again finds its port free, whatever else is tested on the machine. The part
    is locked as long as the process lives. Programs that a test starts choose from the same part.

    gRPC's queue lives as long, too. It would be shut down whenever a garbage collection has taken its last user, which
    waits for operations of services that a test has killed, for ever where their loop is closed.
    """
    grpc.aio.init_grpc_aio()
    config.pluginmanager.register(Durations(config), Durations.NAME)
    for part in range(_PARTS):
        with ExitStack() as held, suppress(OSError):  # it is another process's, or another user's
            lock = held.enter_context((Path(tempfile.gettempdir()) / f"croupier-tests-ports-{part}.lock").open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            config.add_cleanup(held.pop_all().close)
            break
    else:
        return
    first = _FIRST_PORT + part * _PORTS_EACH
    os.environ[PORTS_VARIABLE] = f"{first}-{first + _PORTS_EACH - 1}"


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Puts tests in order, those that need a PostgreSQL server together: a worker has its own. Leaves out long ones."""
    if not config.option.file_or_dir:
        items[:] = [item for item in items if not item.nodeid.startswith(HUNTED + LONG)]
    for item in items:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        needs = (parameters.get("database_url"), *getattr(item, "fixturenames", ()))
        if "postgresql" in needs and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group("postgresql"))
    durations: Durations = config.pluginmanager.getplugin(Durations.NAME)
    durations.sort(items)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported stays: garbage collections would look at it again and again, a fifth of the time of it all."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """All that exists before the first test stays; no garbage collection has to look at it again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With CROUPIER_NO_SKIPS=1, as in `.ci/run`, a skipped test has failed: what it shows was not shown."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get(_NO_SKIPS) == "1":
        report.outcome = "failed"
        report.longrepr = f"skipped, which {_NO_SKIPS} does not allow: {report.longreprtext}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a module that skips itself as a whole."""
    report = yield
    if report.outcome == "skipped" and os.environ.get(_NO_SKIPS) == "1":
        report.outcome = "failed"
        report.longrepr = f"skipped, which {_NO_SKIPS} does not allow: {report.longreprtext}"
    return report


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """A test that is marked so has an event loop in which waiting takes no time."""
    virtual = item.get_closest_marker("virtual_time") is not None
    return {"virtual": VirtualTimeLoop} if virtual else {"real": asyncio.new_event_loop}


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    """A PostgreSQL server; see `tests.support.postgresql`."""
    with postgresql_server() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database: the test runs once on each kind that a store may have."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'rounds.db'}"
    server: Server = request.getfixturevalue("postgresql")
    return server.new_database()
