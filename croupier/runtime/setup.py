"""Everything that a service is given from outside: its entry, its secrets, its store, its workers, the time."""

from __future__ import annotations

from dataclasses import dataclass, field

from croupier.net.transport import TLS, Transport
from croupier.protocol.deployment import Deployment, ServiceEntry
from croupier.runtime.clock import Clock, SystemClock
from croupier.runtime.metrics import Metrics
from croupier.runtime.rules import Rules
from croupier.runtime.service_directory import NoiseLimit, Secrets
from croupier.runtime.store import Store
from croupier.runtime.workers import WorkerPool


@dataclass(frozen=True)
class ServiceSetup:
    """What `deploy.node.serve`, or a test, makes for one service.

    Attributes:
        pool: runs the work that a client waits for, and all other work where there is no cluster.
        cluster: runs the work that a batch waits for: opening layers, checking tickets, searching for bounds and
            attacks.
        noise_limit: of a shuffler; see `ServiceSettings`.
        keep_days: how many days the data of a round is kept after its end.
        rules: which rounds the service signs.
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
        """How many seconds the data of a round is kept after its end."""
        return self.keep_days * 24 * 3600
