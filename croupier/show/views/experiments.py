"""Experiments of papers, their findings and their plots."""

from __future__ import annotations

from typing import TypedDict

from croupier.protocol.certificate_views import JsonObject


class FigureView(TypedDict):
    """An experiment that can be run."""

    name: str
    paper: str
    title: str


class FindingView(TypedDict):
    """A claim of an experiment, and whether it holds."""

    claim: str
    verdict: str
    evidence: str


class LineView(TypedDict):
    """A line of a panel: its points, the points below an attack, and the ends of its band."""

    label: str
    role: str
    points: list[list[float]]
    below: list[list[float]]
    band: list[list[float]] | None


class PanelView(TypedDict):
    """A panel of an experiment's plot."""

    title: str
    x_label: str
    y_label: str
    log: str
    lines: list[LineView]


class FindingsView(FigureView):
    """A finished experiment: its findings, its numbers and its plot."""

    verdict: str
    reason: str
    findings: list[FindingView]
    size: str
    seed: int
    rows: list[JsonObject]
    panels: list[PanelView]
