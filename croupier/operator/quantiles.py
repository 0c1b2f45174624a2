"""Quantile searches through a deployment, kept where its operator's keys are: `operator/quantiles/NAME.json`."""

from __future__ import annotations

import json
from pathlib import Path

from croupier.protocol.deployment import OPERATOR
from croupier.show.quantile_search import read_search
from croupier.show.views.quantiles import SearchedQuantileView

__all__ = ["check_search_is_new", "keep_search", "kept_search", "kept_searches"]


def _file(directory: Path, name: str) -> Path:
    return directory / OPERATOR / "quantiles" / f"{name}.json"


def check_search_is_new(directory: Path, name: str) -> None:
    """Checks that the deployment has no search of this name.

    Raises:
        ValueError: it has one.
    """
    if (file := _file(directory, name)).exists():
        raise ValueError(f"{file} holds an earlier search of {name!r}; move it away, or rename the column")


def keep_search(directory: Path, document: SearchedQuantileView) -> None:
    """Writes a finished search for the console and for `croupier report`."""
    file = _file(directory, document["name"])
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(document, indent=1), encoding="utf-8")


def kept_searches(directory: Path) -> list[str]:
    """Returns the names of the kept searches, in the order of the alphabet."""
    return sorted(file.stem for file in _file(directory, "x").parent.glob("*.json"))


def kept_search(directory: Path, name: str) -> SearchedQuantileView:
    """Returns a kept search.

    Raises:
        ValueError: there is none of this name, or its file cannot be read.
    """
    if name not in kept_searches(directory):
        raise ValueError(f"no quantile search {name!r} was made from here")
    return read_search(json.loads(_file(directory, name).read_bytes()))
