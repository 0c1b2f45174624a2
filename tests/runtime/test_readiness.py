"""How long a service whose store is silent, or has much to do, says that it is ready."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from grpc_health.v1 import health_pb2

from croupier.runtime.health import Readiness
from croupier.runtime.metrics import Metrics
from croupier.runtime.store import Store
from tests.support.messages import naming

pytestmark = pytest.mark.virtual_time


class SlowStore:
    """Each of our transactions takes so long, and others end meanwhile at their own pace."""

    def __init__(self) -> None:
        self.on_failure: Callable[[], None] = lambda: None
        self.num_ended = 0
        self.takes_s = 0.01

    async def run(self, _name: str, _work: object) -> dict[Any, int]:
        await asyncio.sleep(self.takes_s)
        self.num_ended += 1
        return {}

    async def others(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            self.num_ended += 1


@asynccontextmanager
async def ready() -> AsyncIterator[tuple[SlowStore, Callable[[], Any]]]:
    store = SlowStore()
    readiness = Readiness(cast(Store, store), Metrics())

    async def answer() -> str:
        reply = await readiness.health.Check(health_pb2.HealthCheckRequest(), cast(Any, None))
        return health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status)

    await readiness.begin()
    await readiness.start()
    assert await answer() == "SERVING"
    try:
        yield store, answer
    finally:
        await readiness.stop()


async def test_a_silent_store_is_not_ready_within_seconds(caplog: pytest.LogCaptureFixture) -> None:
    """It was called ready for half a minute."""
    async with ready() as (store, answer):
        store.takes_s = 1000.0
        await asyncio.sleep(14.0)
        assert await answer() == "NOT_SERVING"
        await asyncio.sleep(100.0)
        store.takes_s = 0.01
        await asyncio.sleep(14.0)
        assert await answer() == "SERVING"
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert said == ["the store has ended no transaction in 10 s", "not ready", "not ready"]


async def test_a_store_that_has_much_to_do_is_ready_for_longer(caplog: pytest.LogCaptureFixture) -> None:
    async with ready() as (store, answer):
        others = asyncio.create_task(store.others(every_s=8.0))
        store.takes_s = 14.0  # of the two transactions of a probe
        for _ in range(20):
            await asyncio.sleep(5.0)
            assert await answer() == "SERVING"
        store.takes_s = 1000.0
        await asyncio.sleep(80.0)
        assert await answer() == "NOT_SERVING"
        others.cancel()
    assert re.search(naming("30 s"), caplog.text)
