"""The examples under deploy/: rendered for one deployment of two hops, and compared with that by a test."""

from __future__ import annotations

from pathlib import Path

from croupier.deploy.render.compose import COMPOSE_FILE, compose_file, containerfile
from croupier.deploy.render.gateway import GATEWAY_UNIT_FILE, gateway_container, gateway_unit
from croupier.deploy.render.grafana import dashboard
from croupier.deploy.render.layout import Layout
from croupier.deploy.render.study import STUDY_UNIT_FILE, study_container, study_unit
from croupier.deploy.render.systemd import UNIT_FILE, unit

__all__ = ["EXAMPLE", "committed_files", "write_committed"]

EXAMPLE = Layout.of("clinic", ["croupier.example"] * 2, "croupier.example", "croupier.example")
"""All on one machine, as one tries it; who runs a real one has a host for each."""


def committed_files() -> dict[Path, str]:
    """Returns the content of every file that is rendered, by its path from the root of the repository."""
    files = {
        Path("systemd") / UNIT_FILE: unit(EXAMPLE.limits),
        Path("systemd") / GATEWAY_UNIT_FILE: gateway_unit(EXAMPLE.limits),
        Path("systemd") / STUDY_UNIT_FILE: study_unit(EXAMPLE.limits),
        Path("compose") / "Containerfile": containerfile(EXAMPLE),
        Path("compose") / COMPOSE_FILE: compose_file(
            EXAMPLE, EXAMPLE.places, gateway_container(EXAMPLE, optional=True) + study_container(EXAMPLE)
        ),
        Path("grafana") / "croupier.json": dashboard(),
    }
    return {Path("deploy") / path: text for path, text in files.items()}


def write_committed(root: Path) -> list[Path]:
    """Writes them below the root of the repository, and returns those that have changed."""
    changed = []
    for path, text in committed_files().items():
        file = root / path
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            changed.append(path)
    return changed
