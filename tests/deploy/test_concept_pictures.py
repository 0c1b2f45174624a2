"""The pictures of docs/concepts.md are those that the command draws, and their numbers are the page's."""

from __future__ import annotations

import math
from pathlib import Path

import croupier
from research.concept_pictures import LOCAL_EPSILON, PEOPLE, write_pictures

DOCS = Path(__file__).parents[2] / "docs"


def test_the_committed_pictures_are_those_that_are_drawn(tmp_path: Path) -> None:
    for drawn in write_pictures(tmp_path):
        committed = DOCS / "concepts" / drawn.name
        assert committed.read_text(encoding="utf-8") == drawn.read_text(encoding="utf-8")


def test_the_page_states_the_certificates_that_are_computed() -> None:
    page = (DOCS / "concepts.md").read_text(encoding="utf-8")
    certificate = croupier.certify({LOCAL_EPSILON: PEOPLE}, "rr", delta=1e-6)
    assert certificate.lower_bound is not None
    for epsilon in (certificate.epsilon, certificate.lower_bound.epsilon):
        assert f"{epsilon:.4f}" == "0.1266"
    assert "both are 0.1266" in page
    assert f"{math.exp(certificate.epsilon):.3f}" in page
    assert f"{100 / (1 + math.exp(-certificate.epsilon)):.1f} %" in page
    assert f"{croupier.certify({LOCAL_EPSILON: 10_000}, 'rr', delta=1e-6).epsilon:.3f}" in page
