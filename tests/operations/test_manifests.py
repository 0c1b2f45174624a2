"""The examples under deploy/ are right: systemd by its own checker, alerts and the dashboard against what the services
really show. What they say about croupier itself is read with the real loaders."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from croupier.operator.keys import make_deployment
from croupier.runtime.metrics import Metrics
from croupier.study.metrics import GAUGES
from tests.support.command_line import croupier
from tests.support.messages import naming

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "systemd" / "croupier@.service"
STUDY_UNIT = DEPLOY / "systemd" / "croupier-study@.service"
GATEWAY_UNIT = DEPLOY / "systemd" / "croupier-gateway.service"
JOIN_UNIT = DEPLOY / "systemd" / "croupier-join@.service"
DOCS = DEPLOY.parent / "docs"
RUNBOOK = DOCS / "runbook.md"


# ------------------------------------------------------------- systemd


def directives() -> dict[str, list[str]]:
    arguments: dict[str, list[str]] = {}
    for line in UNIT.read_text().splitlines():
        if line and not line.startswith(("#", "[")):
            name, _, value = line.partition("=")
            arguments.setdefault(name, []).append(value)
    return arguments


def test_the_unit_is_hardened_and_gets_its_key_as_a_credential() -> None:
    lines = directives()
    expected = {
        "ExecStart": "/opt/croupier/bin/croupier serve %i --dir /var/lib/croupier",
        "LoadCredential": "storage-key:/etc/croupier/%i.storage-key",
        "StateDirectory": "croupier croupier/%i",
        "NoNewPrivileges": "yes",
        "ProtectSystem": "strict",
        "ProtectHome": "yes",
        "CapabilityBoundingSet": "",
        "LimitCORE": "0",
        "Type": "notify",
        "KillMode": "mixed",
    }
    assert {name: lines[name] for name in expected} == {name: [value] for name, value in expected.items()}
    assert 'storage_key = "file:/run/credentials/croupier@shuffler-1.service/storage-key"' in UNIT.read_text()


def test_units_name_pages_that_are_there() -> None:
    """In a comment: Documentation= named files that nothing installs."""
    for file in (UNIT, GATEWAY_UNIT, JOIN_UNIT):
        named = re.findall(r"docs/[a-z-]+\.md", file.read_text())
        assert named
        assert all((DEPLOY.parent / page).is_file() for page in named)
        assert "Documentation=" not in file.read_text()


@pytest.mark.parametrize(
    ("unit", "says"),
    [
        (UNIT, ("ExecStart=/opt/croupier/bin/croupier serve %i",)),
        (  # a limit that is reached, or a file that cannot be read, is not tried again
            STUDY_UNIT,
            (
                "ExecStart=/opt/croupier/bin/croupier survey run /var/lib/croupier-operator/%i.toml --dir",
                "RestartPreventExitStatus=2 3\n",
            ),
        ),
        (  # on loopback, with the deployment file and no key
            GATEWAY_UNIT,
            (
                "ExecStart=/opt/croupier/bin/croupier gateway --dir %d --listen 127.0.0.1:8790\n",
                "LoadCredential=deployment.toml:/etc/croupier-gateway/deployment.toml\n",
                "DynamicUser=yes\n",
            ),
        ),
    ],
    ids=lambda given: given.name if isinstance(given, Path) else "",
)
def test_systemd_finds_nothing_wrong_with_a_unit(unit: Path, says: tuple[str, ...], tmp_path: Path) -> None:
    """What systemd says of it is asked where systemd is installed."""
    text = unit.read_text()
    assert all(line in text for line in says)
    assert ("storage-key" in text) == (unit == UNIT)
    if shutil.which("systemd-analyze") is None:
        return
    file = tmp_path / unit.name.replace("@", "@shuffler-1")
    file.write_text(text.replace("/opt/croupier/bin/croupier", sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", str(file)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    exposure = ["systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager", str(file)]
    subprocess.run(exposure, capture_output=True, check=True)
    file.write_text(file.read_text().replace("NoNewPrivileges", "NoNewPrivilege"))
    done = subprocess.run(["systemd-analyze", "verify", str(file)], capture_output=True, text=True, check=False)
    assert "NoNewPrivilege" in done.stderr


# ------------------------------------------------------------- Prometheus


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def shown() -> dict[str, dict[str, set[str]]]:
    """Returns the names of all series that a fresh service shows, with the values of their labels."""
    labels_of: dict[str, dict[str, set[str]]] = {}
    for family in Metrics().registry.collect():
        for sample in family.samples:
            labels = labels_of.setdefault(sample.name, {})
            for name, value in sample.labels.items():
                labels.setdefault(name, set()).add(value)
    return labels_of


OF_STUDIES = {f"croupier_study_{name}": {"study": {"wellbeing"}} for name, _, _ in GAUGES}
"""What the process of a study shows; tests/deploy/test_study_runs.py reads it there."""


def selectors(expression: str) -> list[Any]:
    """Returns every selector of series in an expression."""
    nodes: list[Any] = []

    def visit(node: Any) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            nodes.append(node)

    promql_parser.walk(promql_parser.parse(expression), visit)
    return nodes


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_every_alert_is_about_something_that_the_services_show(rule: dict[str, Any]) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert re.fullmatch(r"\d+[mh]", rule.get("for", "1m"))
    series = shown() | OF_STUDIES | {"up": {"job": {"croupier"}}}
    selected = selectors(rule["expr"])
    assert selected
    for selector in selected:
        assert selector.name in series, f"{selector.name} is shown by no service"
        for matcher in selector.matchers.matchers:
            values = matcher.value.split("|")
            assert set(values) <= series[selector.name][matcher.name], f"{selector.name} never has {matcher}"


def anchors(page: Path) -> set[str]:
    """Returns the headings of a page, as a link names them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\s-]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_the_runbook_of_every_alert_is_a_heading_of_its_page() -> None:
    for rule in rules():
        page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert anchor in anchors(DEPLOY.parent / page)


ON_CALL = {
    *(
        "doctor",
        "ledger",
        "plan",
        "survey results",
        "survey show",
        "rotate",
        "status",
        "survey check",
        "verify",
    ),
}
"""Commands that need a service's own key at most; `tests/integration/test_four_organisations.py` runs some so."""


def test_the_runbook_marks_what_needs_the_operators_key(tmp_path: Path) -> None:
    """The person on call at another organisation has the key of one service."""
    make_deployment(tmp_path, "local", 1)
    shutil.rmtree(tmp_path / "operator")
    text = RUNBOOK.read_text()
    arguments = {"canary": ["r", "--check"], "enrol": ["--revoke", "00" * 32], "survey close": ["r"]}
    pattern = r"`croupier ((?:survey )?[a-z]+)[^`]*`"
    assert {match[1] for match in re.finditer(pattern, text)} <= {*ON_CALL, *arguments}
    for command, more in arguments.items():
        said = croupier(*command.split(), *more, "--dir", tmp_path, expect=2).stderr
        assert re.search(naming("operator"), said)
        steps = [line for line in text.splitlines() if f"`croupier {command}" in line]
        assert steps
        assert all("(operator)" in line for line in steps), steps
    for rule in rules():
        named = re.findall(r"'croupier ((?:survey )?[a-z]+)", rule["annotations"]["description"])
        assert set(named) <= ON_CALL


# ------------------------------------------------------------- Grafana


PANELS = json.loads((DEPLOY / "grafana" / "croupier.json").read_text())["panels"]
QUERIES = [
    (panel["title"], target["expr"].replace("$instance", "a"))
    for panel in PANELS
    for target in panel.get("targets", [])
]


@pytest.mark.parametrize(("title", "query"), QUERIES)
def test_every_panel_asks_for_what_the_services_show(title: str, query: str) -> None:
    series = shown() | {"up": {}, "ALERTS": {}}
    for selector in (selected := selectors(query)):
        assert selector.name in series, f"{title!r} asks for {selector.name}, which no service shows"
    for label in re.findall(r"by \(([^)]*)\)", query):
        for name in label.replace(" ", "").split(","):
            of_services = {"instance"} | {label for selector in selected for label in series[selector.name]}
            assert name in of_services, f"{title!r} groups by {name}, a label that it has not"


def test_every_number_that_the_services_show_is_on_the_dashboard() -> None:
    asked = {selector.name for _, query in QUERIES for selector in selectors(query)}
    counted = {name for name in shown() if name.startswith("croupier_")} - {
        "croupier_stage_seconds_count",
        "croupier_stage_seconds_sum",
    }
    assert counted <= asked


def test_the_dashboard_meets_grafanas_own_model() -> None:
    """Its model drops fields that it does not know; then something of the dashboard is missing in what comes back."""
    register_default_plugins()
    ours = json.loads((DEPLOY / "grafana" / "croupier.json").read_text())
    assert missing_in(json.loads(JSONEncoder().encode(Dashboard.from_json(ours))), ours) == []
    ours["panels"][1]["fieldConfig"]["defaults"]["unti"] = "d"
    ours["tempalting"] = {}
    back = json.loads(JSONEncoder().encode(Dashboard.from_json(ours)))
    assert missing_in(back, ours) == [".tempalting", ".panels.1.fieldConfig.defaults.unti"]


def missing_in(back: Any, ours: Any, where: str = "") -> list[str]:
    """Returns the places at which something of ours did not come back as it was, those further up first."""
    if isinstance(ours, dict) and isinstance(back, dict):
        lost = [f"{where}.{name}" for name in ours if name not in back]
        kept = [name for name in ours if name in back]
        return lost + [loss for name in kept for loss in missing_in(back[name], ours[name], f"{where}.{name}")]
    if isinstance(ours, list) and isinstance(back, list) and len(ours) == len(back):
        pairs = enumerate(zip(back, ours, strict=True))
        return [loss for number, (theirs, own) in pairs for loss in missing_in(theirs, own, f"{where}.{number}")]
    return [] if ours == back else [where]


def test_panels_have_places_and_runbooks_of_their_own() -> None:
    board = json.loads((DEPLOY / "grafana" / "croupier.json").read_text())
    cells = [
        (panel["gridPos"]["x"] + right, panel["gridPos"]["y"] + down)
        for panel in board["panels"]
        for right in range(panel["gridPos"]["w"])
        for down in range(panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(column for column, _ in cells) == 23
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    pages = RUNBOOK.read_text() + (DOCS / "backup.md").read_text()
    headings = re.findall(r"^#+ (.*)$", pages, re.MULTILINE)
    for panel in board["panels"]:
        for heading in re.findall(r"See '([^']+)'", panel.get("description", "")):
            assert heading in headings


def test_the_questions_of_the_dashboard_are_answered_in_the_playbook() -> None:
    text = RUNBOOK.read_text()
    night = text[text.index("## At three in the morning") : text.index("## Incidents")]
    assert re.findall(r"^### (.*)$", night, re.MULTILINE) == [
        panel["title"] for panel in PANELS if panel["type"] == "row"
    ]
    assert all(len(answer.split()) > 30 for answer in re.split(r"^### .*$", night, flags=re.MULTILINE)[1:])


def test_every_alert_has_its_own_name_and_promtool_sees_them_fire() -> None:
    """Where Prometheus is installed."""
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names))
    fire = Path(__file__).parent / "alerts_test.yml"
    tested = set(re.findall(r"Croupier\w+", fire.read_text()))
    assert tested <= set(names)
    if shutil.which("promtool"):
        subprocess.run(["promtool", "check", "rules", str(DEPLOY / "prometheus" / "alerts.yml")], check=True)
        subprocess.run(["promtool", "test", "rules", str(fire)], check=True)
