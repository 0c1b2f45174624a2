"""Runs the accountant's searches for bounds and attacks, which can take seconds, outside the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from croupier.runtime.setup import ServiceSetup

T = TypeVar("T")


class Search:
    """Computes on the service's cluster, or in a thread if the service has no cluster."""

    def __init__(self, setup: ServiceSetup) -> None:
        self._cluster = setup.cluster

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        """Returns the result of `work`; on a cluster it and its arguments are pickled."""
        if self._cluster is None:
            return await asyncio.to_thread(work, *args)
        return (await self._cluster.run(work, *args))[0]
