"""Where the accountant computes bounds and attacks, which may take seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from croupier.runtime.setup import ServiceSetup

__all__ = ["Search"]

T = TypeVar("T")


class Search:
    """Computes on the cluster of the service, or in a thread where there is none."""

    def __init__(self, setup: ServiceSetup) -> None:
        self._cluster = setup.cluster

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        """Returns what `work` returns; on a cluster it and its arguments are pickled."""
        if self._cluster is None:
            return await asyncio.to_thread(work, *args)
        return (await self._cluster.run(work, *args))[0]
