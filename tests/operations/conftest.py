"""A deployment of processes that tests of operations share: each has rounds of its own, and leaves all services up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from croupier.deploy.local.processes import LocalDeployment
from croupier.operator.operator import Operator


@pytest.fixture(scope="package")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalDeployment]:
    """Two hops, all services as processes."""
    running = LocalDeployment(tmp_path_factory.mktemp("operations") / "deployment", 2)
    running.up(None, 1)
    yield running
    running.down()


@pytest.fixture
async def operator(local: LocalDeployment) -> AsyncIterator[Operator]:
    """Its operator."""
    async with Operator(local.directory) as operator:
        yield operator
