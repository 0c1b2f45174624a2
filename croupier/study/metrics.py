"""The Prometheus metrics of a study's process: its waves, and the number of waves that its limit still allows."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

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


@contextmanager
def study_metrics(directory: Path, study_id: str, listen: str) -> Iterator[Callable[[], None]]:
    """Serves the metrics of a study, and yields a function that reads them again after a step of its process.

    Args:
        directory: of the deployment.
        study_id: of the study.
        listen: HOST:PORT; empty: nothing is served.

    Raises:
        ValueError: the address is not one.
        ImportError: an address is given, and prometheus-client is not installed.
    """
    if not listen:
        yield lambda: None
        return
    host, _, port = listen.rpartition(":")
    if not (host and port.isdecimal()):
        raise ValueError(f"metrics is {listen!r}; it must be HOST:PORT")
    from prometheus_client import CollectorRegistry, Gauge, start_http_server

    registry, known = CollectorRegistry(), tuple[str, ...]()
    gauges = {name: Gauge(f"croupier_study_{name}", text, labels, registry=registry) for name, text, labels in GAUGES}

    def update() -> None:
        nonlocal known
        gauges["last_step_timestamp_seconds"].labels(study_id).set(time.time())
        state = study_state(directory, study_id)
        states = tuple(wave.state for wave in state.waves)
        if states == known:
            return
        known = states
        for name, number in Counter(states).items():
            gauges["waves"].labels(study_id, name).set(number)
        to_come = sum(wave.record is None or not wave.record.has_ended for wave in state.waves)
        gauges["waves_to_come"].labels(study_id).set(to_come)
        borne = waves_borne(state)
        if borne is not None:
            gauges["waves_borne"].labels(study_id).set(borne)

    server, thread = start_http_server(int(port), host.strip("[]"), registry)
    try:
        update()
        yield update
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
