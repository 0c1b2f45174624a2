"""The numbers of one service for Prometheus, and the HTTP port that shows them.

Labels are codes, reasons, lanes, states and stages, from fixed sets. Nothing here takes a round, a client, a hash or a
budget: numbers about those would outlive the protocol's own data. Every number is reported after the commit that made
it true.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Mapping
from threading import Thread
from wsgiref.simple_server import WSGIServer

from cryptography import x509
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    start_http_server,
)

from croupier.net.transport import listening_at
from croupier.protocol.errors import Code
from croupier.protocol.manifest import state_name
from croupier.protocol.names import Lane
from croupier.protocol.v1 import messages_pb2 as pb

# These would publish when the first submission of a kind came.
disable_created_metrics()  # type: ignore[no-untyped-call]
_SECONDS = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800)


class Metrics:
    """Keeps the numbers in a registry of its own, so that several services fit into one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=self.registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, labels, registry=self.registry)

        self._submissions = counter("croupier_submissions", "Answers to single submissions, by code.", "code")
        self._refusals = counter(
            "croupier_refusals", "Calls refused or failed, by the code of `croupier/protocol/errors.py`.", "code"
        )
        self._drops = counter("croupier_drops", "Items left out of a batch, by reason.", "lane", "reason")
        self._invalid_budgets = counter("croupier_invalid_budgets", "Budgets off the grid in granted rounds.")
        self._certificates = counter("croupier_certificates", "Certificates, granted or refused.", "outcome")
        self._limit = gauge(
            "croupier_ledger_limit_epsilon", "The most that a person may lose over all rounds; 0: no limit."
        )
        self._remaining = gauge("croupier_ledger_remaining_epsilon", "What the ledger has left of its limit.")
        self._stopped = counter("croupier_rounds_stopped", "Rounds that met a problem and cannot go on.")
        self._stages = Histogram(
            "croupier_stage_seconds",
            "How long a stage took, in seconds.",
            ["stage"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._sent = counter("croupier_sent_bytes", "Bytes that the next services have taken.")
        self._store_failures = counter("croupier_store_failures", "Transactions that the store failed.")
        self._rounds = gauge("croupier_rounds", "Rounds in the store, by state.", "state")
        self._stuck = gauge("croupier_rounds_stuck", "Waiting: tried again and again. Stopped: final.", "cause")
        self._ready = gauge("croupier_ready", "1 while the service serves and its store can be written.")
        self._waiting = gauge("croupier_submissions_waiting", "Submissions that are not answered yet.")
        self._expiry = gauge("croupier_certificate_expiry_timestamp_seconds", "When the TLS certificate expires.")
        self._start_at_zero()
        ProcessCollector(registry=self.registry)

    def _start_at_zero(self) -> None:
        """Shows every series at once: Prometheus does not count the first appearance of a series as an increase."""
        for submission in pb.SubmissionCode.values()[1:]:
            self._submissions.labels(_submission(submission))
        for code in Code:
            self._refusals.labels(code.name)
        for lane in pb.Lane.values()[1:]:
            for reason in ("does-not-open", "malformed", "repeated"):
                self._drops.labels(_lane(lane), reason)
        for outcome in ("granted", "refused"):
            self._certificates.labels(outcome)
        for stage in ("admit", "open", "mix", "deliver", "certify", "analyze"):
            self._stages.labels(stage)
        for state in pb.RoundState.values()[1:]:
            self._rounds.labels(state_name(state))
        for cause in ("stopped", "waiting"):
            self._stuck.labels(cause)

    # ------------------------------------------------------------- counted by the roles

    def submissions(self, codes: Iterable[pb.SubmissionCode.ValueType]) -> None:
        """Submissions were answered, each with a code."""
        for code, count in collections.Counter(codes).items():
            self._submissions.labels(_submission(code)).inc(count)

    def refusal(self, code: Code) -> None:
        """A call was refused, or failed (INTERNAL)."""
        self._refusals.labels(code.name).inc()

    def drops(self, lane: Lane, drops: Mapping[str, int]) -> None:
        """Items of a batch were left out, by reason."""
        for reason, count in drops.items():
            self._drops.labels(_lane(lane), reason).inc(count)

    def invalid_budgets(self, count: int) -> None:
        """Budgets of a batch were not on the grid."""
        self._invalid_budgets.inc(count)

    def certificate(self, outcome: str) -> None:
        """A certificate was kept: "granted" or "refused"."""
        self._certificates.labels(outcome).inc()

    def ledger(self, most: float, remaining: float) -> None:
        """States the rest of the epsilon that a person may lose over all rounds."""
        self._limit.set(most)
        self._remaining.set(remaining)

    def round_stopped(self) -> None:
        """A round cannot go on; its problem is in `croupier status`."""
        self._stopped.inc()

    def stage(self, name: str, seconds: float) -> None:
        """A stage of a round took so long."""
        self._stages.labels(name).observe(seconds)

    def sent(self, num_bytes: int) -> None:
        """A batch, or a part of one, was taken by the next service."""
        self._sent.inc(num_bytes)

    def store_failed(self) -> None:
        """A transaction failed because the database cannot be read or written. Called from the store's thread."""
        self._store_failures.inc()

    # ------------------------------------------------------------- observed by the operator

    def rounds(self, counts: Mapping[tuple[pb.RoundState.ValueType, bool], int]) -> None:
        """Takes the number of rounds by state and by whether they have a problem."""
        for state in pb.RoundState.values()[1:]:
            self._rounds.labels(state_name(state)).set(counts.get((state, False), 0) + counts.get((state, True), 0))
        self._stuck.labels("stopped").set(sum(number for (_, troubled), number in counts.items() if troubled))

    def ready(self, is_ready: bool) -> None:
        """Takes whether the service serves."""
        self._ready.set(is_ready)

    def ask(self, waiting_submissions: Callable[[], int], waiting_rounds: Callable[[], int]) -> None:
        """Reads these numbers from their functions whenever metrics are collected."""
        self._waiting.set_function(waiting_submissions)
        self._stuck.labels("waiting").set_function(waiting_rounds)

    def certificate_of(self, pem: bytes) -> None:
        """Takes the TLS certificate."""
        self._expiry.set(x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp())


class MetricsPort:
    """Shows a registry over HTTP until it is closed."""

    def __init__(self, metrics: Metrics, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._server: WSGIServer
        self._thread: Thread
        with listening_at(address):
            self._server, self._thread = start_http_server(int(port), host, metrics.registry)

    def close(self) -> None:
        """Closes the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _lane(lane: Lane) -> str:
    return pb.Lane.Name(lane).removeprefix("LANE_").lower()


def _submission(code: pb.SubmissionCode.ValueType) -> str:
    return pb.SubmissionCode.Name(code).removeprefix("SUBMISSION_CODE_")
