"""Fixtures that several directories need, and the rule that in CI no test is skipped."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import os
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

import grpc.aio
import pytest
from hypothesis import HealthCheck, settings

from croupier.operator.keys import PORTS_VARIABLE
from tests.support.postgresql import Server, postgresql_server
from tests.support.virtual_time import VirtualTimeLoop

settings.register_profile(
    "house", max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)  # no test times itself
settings.load_profile("house")

_NO_SKIPS = "CROUPIER_NO_SKIPS"
_PARTS, _FIRST_PORT, _PORTS_EACH = 16, 10_000, 1_400
"""The ports that deployments choose from, below those that systems choose themselves."""


def pytest_configure(config: pytest.Config) -> None:
    """Deployments of several workers, and of several runs, are made at the same time: each has ports of its own.

    A service that a test stops and starts again finds its port free, whatever else is tested on the machine. The part
    is locked as long as the process lives. Programs that a test starts choose from the same part.

    gRPC's queue lives as long, too. It would be shut down whenever a garbage collection has taken its last user, which
    waits for operations of services that a test has killed, for ever where their loop is closed.
    """
    grpc.aio.init_grpc_aio()
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
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts tests that need a PostgreSQL server together, since a worker has its own; those that take long go first.

    Otherwise a worker would begin a long test when the others have nothing left to do. Tests of a group stay together.
    """
    for item in items:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        needs = (parameters.get("database_url"), *getattr(item, "fixturenames", ()))
        if "postgresql" in needs and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group("postgresql"))
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        mark = item.get_closest_marker("xdist_group")
        groups.setdefault(mark.args[0] if mark else item.nodeid, []).append(item)
    first = sorted(groups.values(), key=lambda group: -len(group) - 1000 * _takes_long(group[0]))
    items[:] = [item for group in first for item in group]


def _takes_long(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) is not None for name in ("slow", "processes"))


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
    """Makes a failure of a module that skips itself as a whole."""
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
