"""Fixtures that several directories need, and the rule that in CI no test is skipped."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.postgresql import Server, postgresql_server

_NO_SKIPS = "CROUPIER_NO_SKIPS"


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


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    """A PostgreSQL server; see `tests.postgresql`."""
    with postgresql_server() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database: the test runs once on each kind that a store may have."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'rounds.db'}"
    server: Server = request.getfixturevalue("postgresql")
    return server.new_database()
