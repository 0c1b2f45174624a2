"""Other libraries: data frames and OpenDP measurements in, rows for data frames out, and HTML for notebooks."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd
import polars as pl
import pytest
from opendp import combinators, domains, measurements, metrics, mod

import croupier
from croupier.protocol.statements import Statement, written_json
from tests.support.messages import naming

mod.enable_features("contrib")
QUICK: dict[str, Any] = {"delta": 1e-6, "bounds": "blanket", "attack": False}
FRAMES = pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
PEOPLE = {0.5: 900, 2.0: 100}


def tiers(budgets: croupier.Budgets) -> list[tuple[float, int, float]]:
    return [(tier.local_epsilon, tier.count, tier.local_delta) for tier in budgets.tiers]


@FRAMES
def test_budgets_from_a_data_frame(frame: Any) -> None:
    for columns in (
        {"epsilon": [2.0, 0.5], "count": [100, 900], "town": ["a", "b"]},
        {"epsilon": [0.5] * 900 + [2.0] * 100},
        {"local_epsilon": [0.5, 2.0], "epsilon": [0.01, 0.02], "count": [900, 100]},
    ):
        assert croupier.certify(frame(columns), "rr", **QUICK) == croupier.certify(PEOPLE, "rr", **QUICK)
    budgets = croupier.Budgets.from_frame(frame({"epsilon": [1], "delta": [1e-8], "count": [3]}))
    assert tiers(budgets) == [(1.0, 3, 1e-8)]


@FRAMES
@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"budget": [0.5]}, r"columns.*\['budget'\].*'epsilon'"),
        ({"epsilon": [0.5, None]}, "position 1: local epsilon is nan"),
        ({"epsilon": ["high"]}, "column 'epsilon' cannot be read"),
        ({"epsilon": [0.5], "count": [1.5]}, "count.*float64"),
        ({"epsilon": [0.5], "count": [0]}, "count is 0"),
        ({"epsilon": []}, "budgets are empty"),
        # Reproductions: these were one user a row, and people with a local epsilon of 1.
        ({"epsilon": [0.5, 2.0], "Users": [900, 100]}, "column 'Users' is not read: rename it 'count'"),
        ({"epsilon": [True, False]}, "'epsilon'"),
    ],
)
def test_a_data_frame_that_holds_no_budgets(frame: Any, columns: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        croupier.certify(frame(columns), "rr", **QUICK)


def test_names_of_columns_are_not_budgets() -> None:
    """They were, and the certificate said 0.2 of people with 3 and 4."""
    with pytest.raises(ValueError, match=naming("'epsilon'")):
        croupier.certify(pd.DataFrame([[3.0, 4.0]], columns=[0.1, 0.2]), "rr", **QUICK)


def test_counts_of_budgets_are_not_budgets() -> None:
    """Reproduction: value_counts() was taken for budgets of 900 and 100."""
    counts = pd.Series([0.5] * 900 + [2.0] * 100).value_counts()
    with pytest.raises(ValueError, match=naming("budgets", "series")):
        croupier.certify(counts, "rr", **QUICK)
    assert croupier.certify(counts.to_dict(), "rr", **QUICK) == croupier.certify(PEOPLE, "rr", **QUICK)


@FRAMES
def test_certificates_and_curves_as_data_frames(frame: Any) -> None:
    certificate = croupier.certify(PEOPLE, "rr", **QUICK)
    table = frame(certificate.rows())
    assert list(table["epsilon"]) == [tier.epsilon for tier in certificate.tiers]
    assert set(table["grade"]) == {"CERTIFIED"}
    assert croupier.certify(table, "rr", **QUICK) == certificate  # by its column local_epsilon
    curve = croupier.privacy_profile(PEOPLE, "rr", deltas=[1e-4, 1e-6])
    points = frame(curve.rows())
    assert list(points["delta"]) == [1e-4, 1e-6]
    assert all(low <= high for low, high in zip(points["lower_bound"], points["epsilon"], strict=True))


def test_budgets_as_opendp_states_them() -> None:
    flip = measurements.make_randomized_response_bool(prob=0.75)
    pick = measurements.make_randomized_response(categories=["a", "b", "c"], prob=0.7)
    noise = measurements.make_laplace(domains.atom_domain(T="i64"), metrics.absolute_distance(T="i64"), scale=2.0)
    budgets = croupier.Budgets.from_opendp([(flip, 10), (pick, 20)], d_in=1)
    assert tiers(budgets) == [(flip.map(1), 10, 0.0), (pick.map(1), 20, 0.0)]
    assert tiers(croupier.Budgets.from_opendp([(noise, 5)], d_in=3)) == [(1.5, 5, 0.0)]
    approximate = combinators.make_approximate(flip)
    assert tiers(croupier.Budgets.from_opendp([(approximate, 1)], d_in=1)) == [(flip.map(1), 1, 0.0)]
    gaussian = measurements.make_gaussian(domains.atom_domain(T="i64"), metrics.absolute_distance(T="i64"), scale=2.0)
    for measurement, measure in (
        (gaussian, "ZeroConcentratedDivergence"),
        (combinators.make_zCDP_to_approxDP(gaussian), "SmoothedMaxDivergence"),
    ):
        with pytest.raises(ValueError, match=naming(measure, "MaxDivergence")):
            croupier.Budgets.from_opendp([(measurement, 1)], d_in=1)


def test_what_a_notebook_shows_is_rounded_to_its_sound_side_and_escaped() -> None:
    certificate = croupier.certify(PEOPLE, "rr", delta=1e-6)
    html = certificate._repr_html_()
    (tier,) = re.findall(r"100 users of local ε 2</th><td[^>]*>([^<]*)</td>.*?>CERTIFIED<", html)
    assert html.count("LOWER_BOUND") == 1
    central = float(tier)
    assert certificate.epsilon <= central <= certificate.epsilon * 1.0001
    table = Statement.of(croupier.Assumption.RUNS_TABLE, label="<script>alert(1)</script>")
    document = certificate.to_json() | {"assumptions": written_json([table])}
    shown_again = croupier.Certificate.from_json(document)._repr_html_()
    assert "<script>" not in shown_again
    assert "&lt;script&gt;" in shown_again


def test_a_curve_is_a_drawing_and_a_table() -> None:
    curve = croupier.privacy_profile(PEOPLE, "rr", deltas=[1e-4, 1e-6])
    html = curve._repr_html_()
    assert "<summary>This holds if</summary>\n<ul><li>neighbouring data sets" in html
    assert '<svg class="curve"' in html
    assert html.count('<tr><th scope="row">') == 2
