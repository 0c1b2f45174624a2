"""The counters of a service for the roles; `runtime.prometheus_metrics` keeps the numbers for Prometheus.

Nothing here takes a round, a client, a hash or a budget: numbers about those would outlive the protocol's own data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from croupier.protocol.errors import Code
from croupier.protocol.names import Lane
from croupier.protocol.v1 import messages_pb2 as pb


class Metrics:
    """Counts nothing. Every number is reported after the commit that made it true."""

    def submissions(self, codes: Iterable[pb.SubmissionCode.ValueType]) -> None:
        """Submissions were answered, each with a code."""

    def refusal(self, code: Code) -> None:
        """A call was refused, or failed (INTERNAL)."""

    def drops(self, lane: Lane, drops: Mapping[str, int]) -> None:
        """Items of a batch were left out, by reason."""

    def invalid_budgets(self, count: int) -> None:
        """Budgets of a batch were not on the grid."""

    def certificate(self, outcome: str) -> None:
        """A certificate was kept: "granted" or "refused"."""

    def ledger(self, most: float, remaining: float) -> None:
        """States the rest of the epsilon that a person may lose over all rounds."""

    def round_stopped(self) -> None:
        """A round cannot go on; its problem is in `croupier status`."""

    def stage(self, name: str, seconds: float) -> None:
        """A stage of a round took so long."""

    def sent(self, num_bytes: int) -> None:
        """A batch, or a part of one, was taken by the next service."""

    def store_failed(self) -> None:
        """A transaction failed because the database cannot be read or written. Called from the store's thread."""
