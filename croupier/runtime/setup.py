"""Everything that a service is given from outside: its entry, its secrets, its store, its workers, the time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from croupier.net.transport import TLS, Transport
from croupier.protocol.deployment import Deployment, ServiceEntry
from croupier.runtime.clock import Clock, SystemClock
from croupier.runtime.metrics import Metrics
from croupier.runtime.rules import Rules
from croupier.runtime.service_directory import NoiseLimit, Secrets
from croupier.runtime.store import Store
from croupier.runtime.workers import WorkerPool

T = TypeVar("T")


@dataclass(frozen=True)
class ServiceSetup:
    """The parts that `deploy.node.serve`, or a test, makes for one service.

    Attributes:
        pool: runs work for which a client waits, and all other work without a cluster.
        cluster: runs work for which a batch waits: opening layers, checking tickets, searching for bounds and attacks.
        noise_limit: of a shuffler; see `ServiceSettings`.
        keep_days: the number of days for which the data of a round is kept after its end.
        rules: for the rounds that the service signs.
    """

    entry: ServiceEntry
    deployment: Deployment
    secrets: Secrets
    store: Store
    pool: WorkerPool
    clock: Clock = field(default_factory=SystemClock)
    metrics: Metrics = field(default_factory=Metrics)
    transport: Transport = TLS
    keep_days: int = 30
    cluster: WorkerPool | None = None
    noise_limit: NoiseLimit | None = None
    rules: Rules = field(default_factory=Rules)

    @property
    def keep_s(self) -> int:
        """The number of seconds for which the data of a round is kept after its end."""
        return self.keep_days * 24 * 3600

    async def compute(self, work: Callable[..., T], *args: Any) -> T:
        """Returns the result of work that takes seconds: on the cluster, which pickles it, else in a thread."""
        if self.cluster is None:
            return await asyncio.to_thread(work, *args)
        return (await self.cluster.run(work, *args))[0]
