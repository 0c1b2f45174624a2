"""The Prometheus metrics of a study's process: its waves, and the number of waves that its limit still allows."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any, Self

from croupier.accountant.numerics.roots import largest_allowed
from croupier.accountant.spending import Limit
from croupier.protocol.surveys import scheduled
from croupier.study.wave_results import StudyState, study_state

_MOST_WAVES = 1000
GAUGES = (
    ("waves", "Waves of the study by what has become of them.", ("study", "state")),
    ("waves_to_come", "Waves of the study that have not ended.", ("study",)),
    ("waves_borne", "How many more waves the limit of the study bears, at least.", ("study",)),
    ("last_step_timestamp_seconds", "When the process last did what was due.", ("study",)),
)
"""Name behind croupier_study_, help and labels of every gauge."""


def waves_borne(state: StudyState) -> int | None:
    """Returns how many more waves the limit of a study allows, each as costly as the costliest one so far.

    The cost of a wave is the accountant's largest entry for the same number of people, so that the ledger allows at
    least as many waves. None before the first result; at most 1,000.
    """
    of_waves = [
        [state.costs[round_id] for round_id in wave.survey.round_ids(wave.wave.number) if round_id in state.costs]
        for wave in state.waves
    ]
    played = [costs for costs in of_waves if costs]
    if not played:
        return None
    newest = state.versions[-1]
    schedule = scheduled(newest)
    limit = Limit(schedule.total_epsilon, schedule.total_delta, survey_id=newest.survey_id)
    spent = [entries for costs in played for entries in costs]
    costliest = max(played, key=lambda costs: sum(max(entry.epsilon for entry in entries) for entries in costs))

    return largest_allowed(lambda more: limit.allows([*spent, *costliest * more]), _MOST_WAVES)


class StudyMetrics:
    """Serves the metrics of one study while it is entered, if an address is given.

    Args:
        directory: of the deployment.
        study_id: of the study.
        listen: HOST:PORT; empty: nothing is served.

    Raises:
        ValueError: the address is not one.
        ImportError: an address is given, and prometheus-client is not installed.
    """

    def __init__(self, directory: Path, study_id: str, listen: str) -> None:
        self._directory, self._study_id = directory, study_id
        self._server: Any = None
        self._gauges: dict[str, Any] = {}
        self._known: tuple[str, ...] = ()
        host, _, port = listen.rpartition(":")
        if listen and not (host and port.isdecimal()):
            raise ValueError(f"metrics is {listen!r}; it must be HOST:PORT")
        self._where = (host.strip("[]"), int(port)) if listen else None

    def __enter__(self) -> Self:
        """Begins to serve."""
        if self._where is not None:
            from prometheus_client import CollectorRegistry, Gauge, start_http_server

            registry = CollectorRegistry()
            for name, text, labels in GAUGES:
                self._gauges[name] = Gauge(f"croupier_study_{name}", text, labels, registry=registry)
            host, port = self._where
            self._server, self._thread = start_http_server(port, host, registry)
            self.update()
        return self

    def __exit__(self, *_: object) -> None:
        """Ends serving."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()

    def update(self) -> None:
        """Reads the study again; called after every step of its process."""
        if not self._gauges:
            return
        self._gauges["last_step_timestamp_seconds"].labels(self._study_id).set(time.time())
        state = study_state(self._directory, self._study_id)
        states = tuple(wave.state for wave in state.waves)
        if states == self._known:
            return
        self._known = states
        for name, number in Counter(states).items():
            self._gauges["waves"].labels(self._study_id, name).set(number)
        to_come = sum(wave.record is None or not wave.record.has_ended for wave in state.waves)
        self._gauges["waves_to_come"].labels(self._study_id).set(to_come)
        borne = waves_borne(state)
        if borne is not None:
            self._gauges["waves_borne"].labels(self._study_id).set(borne)
