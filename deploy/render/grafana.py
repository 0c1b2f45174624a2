"""The Grafana dashboard: what the services count, in the order of an operator's questions at night.

Every number of `runtime.prometheus_metrics` is on it; tests compare the two, and every question with its answer in
docs/runbook.md. Nothing on it is about a round or a person, because no number is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from croupier.protocol.views import JsonObject

__all__ = ["ROWS", "Graph", "GraphRow", "dashboard"]

_HERE = 'job="croupier", instance=~"$instance"'
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH, _HEIGHT, _PER_ROW = 8, 8, 3
"""A panel's width and height in Grafana's grid of 24 columns, and the number of panels in a row."""


@dataclass(frozen=True)
class Graph:
    """One picture.

    Attributes:
        title: what it shows.
        says: how to read it, and where to go on reading.
        queries: PromQL, and the name of the line; HERE in it stands for the chosen services.
        unit: as Grafana calls it.
        kind: lines over time, one number per service, or the newest value of every series.
    """

    title: str
    says: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    kind: Literal["timeseries", "stat", "table"] = "timeseries"


@dataclass(frozen=True)
class GraphRow:
    """A question, and what answers it."""

    question: str
    panels: tuple[Graph, ...]


ROWS = (
    GraphRow(
        "Is anybody's privacy at risk?",
        (
            Graph(
                "Certificates",
                "Granted ones were within every limit. Refused by policy or ledger: nothing is published, and the "
                "reports can never be read. See 'A round is refused'.",
                (("sum by (outcome) (increase(croupier_certificates_total{HERE}[1h]))", "{{outcome}}"),),
            ),
            Graph(
                "Items left out of batches",
                "Broken clients, or tampering; at a hop behind hop 1 the hop before it is the suspect. Drops are "
                "charged in the certificate, so that they make it worse and never better. See 'Drops'.",
                (
                    (
                        "sum by (instance, lane, reason) (increase(croupier_drops_total{HERE}[1h])) > 0",
                        "{{instance}} {{lane}} {{reason}}",
                    ),
                    ("increase(croupier_invalid_budgets_total{HERE}[1h]) > 0", "{{instance}} budgets off the grid"),
                ),
            ),
            Graph(
                "Epsilon that the ledger has left",
                "Of the most that a person may lose over all rounds; nothing is shown without a limit. See 'A round is "
                "refused'.",
                (
                    (
                        "croupier_ledger_remaining_epsilon{HERE} and croupier_ledger_limit_epsilon{HERE} > 0",
                        "{{instance}}",
                    ),
                ),
            ),
            Graph(
                "Days until certificates expire",
                "An expired TLS certificate ends every call; it shows nothing to anyone. See 'Identity rotation'.",
                (
                    (
                        "(croupier_certificate_expiry_timestamp_seconds{HERE} - time()) / 86400",
                        "{{instance}}",
                    ),
                ),
                "d",
                "stat",
            ),
        ),
    ),
    GraphRow(
        "Has anything acknowledged been lost?",
        (
            Graph(
                "Ready",
                "1: serves, and has just written to its store. 0: acknowledges nothing, and loses nothing. See 'The "
                "store fails'.",
                (("croupier_ready{HERE}", "{{instance}}"), ('up{job="croupier"}', "{{instance}} answers")),
                kind="stat",
            ),
            Graph(
                "Transactions that the store failed",
                "What was in them was not acknowledged; clients hold it and send it again.",
                (("increase(croupier_store_failures_total{HERE}[10m])", "{{instance}}"),),
            ),
            Graph(
                "Submissions",
                "ACCEPTED is acknowledged, and on a disk. The other codes are answers to clients that were not "
                "admitted. See 'Submissions are refused'.",
                (("sum by (code) (rate(croupier_submissions_total{HERE}[5m])) > 0", "{{code}}"),),
                "reqps",
            ),
        ),
    ),
    GraphRow(
        "What is stuck, and why?",
        (
            Graph(
                "Rounds stuck",
                "waiting: tried again and again, 'croupier status' names the peer or the store. stopped: a problem; it "
                "cannot go on. See 'A round does not move'.",
                (
                    ("croupier_rounds_stuck{HERE} > 0", "{{instance}} {{cause}}"),
                    ("increase(croupier_rounds_stopped_total{HERE}[1h]) > 0", "{{instance}} stopped in this hour"),
                ),
            ),
            Graph(
                "Rounds by state",
                "OPEN takes submissions. CLOSED, MIXED and CERTIFIED are on their way.",
                (("sum by (state) (croupier_rounds{HERE}) > 0", "{{state}}"),),
            ),
            Graph(
                "What a stage takes, 95 of 100",
                "A stage that takes ever longer is what a round waits for.",
                (
                    (
                        "histogram_quantile(0.95, sum by (le, stage) (rate(croupier_stage_seconds_bucket{HERE}[15m])))",
                        "{{stage}}",
                    ),
                ),
                "s",
            ),
            Graph(
                "Submissions not answered yet",
                "They wait for a commit or a worker. A line that only rises: hop 1 needs more workers.",
                (("croupier_submissions_waiting{HERE}", "{{instance}}"),),
            ),
            Graph(
                "Calls refused",
                "By the code of the error catalogue. OVERLOADED: clients come again by themselves. INTERNAL: a fault, "
                "whose exception is in the log.",
                (("sum by (code) (rate(croupier_refusals_total{HERE}[5m])) > 0", "{{code}}"),),
                "reqps",
            ),
            Graph(
                "Bytes taken by the next services",
                "Zero while a round is CLOSED or MIXED: the next service does not take it.",
                (("rate(croupier_sent_bytes_total{HERE}[5m])", "{{instance}}"),),
                "Bps",
            ),
        ),
    ),
    GraphRow(
        "What do I do now?",
        (
            Graph(
                "Alerts that fire",
                "Each has a runbook in docs/runbook.md. None: nothing has to be done tonight.",
                (('ALERTS{alertname=~"Croupier.*", alertstate="firing"}', "{{alertname}} {{instance}}"),),
                kind="table",
            ),
            Graph(
                "Memory",
                "Of the service's own process; its workers come on top.",
                (("process_resident_memory_bytes{HERE}", "{{instance}}"),),
                "bytes",
            ),
            Graph(
                "Open files, of those allowed",
                "At 1 a service takes no more connections: raise LimitNOFILE.",
                (("process_open_fds{HERE} / process_max_fds{HERE}", "{{instance}}"),),
                "percentunit",
            ),
        ),
    ),
)


def dashboard() -> str:
    """Returns the dashboard as the JSON that Grafana imports."""
    panels: list[JsonObject] = []
    top = 0
    for row in ROWS:
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": row.question,
                "collapsed": False,
                "gridPos": {"h": 1, "w": _WIDTH * _PER_ROW, "x": 0, "y": top},
                "panels": [],
            }
        )
        top += 1
        for number, panel in enumerate(row.panels):
            place = {
                "h": _HEIGHT,
                "w": _WIDTH,
                "x": number % _PER_ROW * _WIDTH,
                "y": top + number // _PER_ROW * _HEIGHT,
            }
            panels.append(_panel(len(panels) + 1, panel, place))
        top += -(-len(row.panels) // _PER_ROW) * _HEIGHT
    document = {
        "uid": "croupier-operations",
        "title": "croupier: operations",
        "description": "The answers to these questions are in docs/runbook.md. Nothing is about a person.",
        "tags": ["croupier"],
        "timezone": "utc",
        "editable": True,
        "graphTooltip": 1,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "schemaVersion": 39,
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "label": "Prometheus", "query": "prometheus"},
                {
                    "name": "instance",
                    "type": "query",
                    "label": "Services",
                    "datasource": _SOURCE,
                    "query": 'label_values(croupier_ready{job="croupier"}, instance)',
                    "refresh": 2,
                    "multi": True,
                    "includeAll": True,
                    "current": {"text": "All", "value": "$__all"},
                },
            ]
        },
        "panels": panels,
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _panel(number: int, panel: Graph, place: dict[str, int]) -> JsonObject:
    shown: JsonObject = {"unit": panel.unit, "min": 0}
    options: JsonObject = {}
    if panel.kind == "timeseries":
        options = {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True}}
    elif panel.kind == "stat":
        options = {"colorMode": "value", "graphMode": "none", "reduceOptions": {"calcs": ["lastNotNull"]}}
    targets = [
        {
            "refId": chr(ord("A") + index),
            "datasource": _SOURCE,
            "expr": query.replace("HERE", _HERE),
            "legendFormat": legend,
            **({"instant": True, "format": "table"} if panel.kind == "table" else {}),
        }
        for index, (query, legend) in enumerate(panel.queries)
    ]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.says,
        "datasource": _SOURCE,
        "gridPos": place,
        "targets": targets,
        "fieldConfig": {"defaults": shown, "overrides": []},
        "options": options,
    }
