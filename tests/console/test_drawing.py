"""Where the lines of the drawings lie: on the scale of the question, and never better than what is certified."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import pytest

from croupier.accountant import privacy_profile
from croupier.console import drawing
from croupier.console.drawing import bars, curve, strips
from croupier.show.views.published_results import Precision
from croupier.show.views.questions import TermsView
from tests.support.messages import naming


def result(estimate: Any, projected: Any, interval: Any, labels: list[str] | None = None) -> Any:
    error = [0.1] * len(labels) if labels is not None else 0.1
    return {
        "labels": labels,
        "estimate": estimate,
        "projected": projected,
        "standard_error": error,
        "confidence_interval": interval,
        "population_interval": interval,
        "precision": Precision.USABLE,
        "confidence_level": 0.95,
    }


def terms(kind: str, **parameters: float) -> TermsView:
    return cast(TermsView, {"randomizer": kind, "parameters": parameters})


def test_a_share_lies_between_nothing_and_all() -> None:
    (row,) = strips(result(0.25, 0.25, [0.2, 0.3]), terms("rr"))
    assert (row["from"], row["at"], row["to"], row["scale"]) == (20.0, 25.0, 30.0, ("0.0 %", "100.0 %"))
    assert (row["label"], row["estimate"], row["interval"], row["possible"]) == (
        "said yes",
        "25.0 %",
        "20.0 % to 30.0 %",
        "",
    )


def test_an_impossible_estimate_is_drawn_in_its_interval() -> None:
    """Reproduction: the dot lay outside its own interval, and the scale was stretched to reach it."""
    first, second = strips(result([-0.25, 1.0], [0.0, 1.0], [[0.0, 0.1], [0.9, 1.0]], ["a", "b"]), terms("krr"))
    assert (first["at"], first["from"], first["to"], first["possible"]) == (0.0, 0.0, 10.0, "0.0 %")
    assert (first["estimate"], first["scale"]) == ("-25.0 %", ("0.0 %", "100.0 %"))
    assert (second["label"], second["at"], second["population"]) == ("b", 100.0, "90.0 % to 100.0 %")


def test_a_mean_lies_in_the_range_of_the_question_and_a_vector_nowhere() -> None:
    (row,) = strips(result(5.0, 5.0, [4.0, 6.0]), terms("laplace", low=0.0, high=20.0))
    assert (row["label"], row["estimate"], row["at"], row["scale"]) == ("mean", "5", 25.0, ("0", "20"))
    assert not row["noisy"]  # bold
    assert strips(result(5.0, 5.0, [0.0, 20.0]) | {"precision": Precision.COVERS_RANGE}, None)[0]["noisy"]
    (row,) = strips(result(5.0, 5.0, [5.0, 5.0]), None)  # the terms are deleted
    assert (row["label"], row["at"]) == ("estimate", 50.0)
    assert strips(result([], [], [], []), terms("hemisphere")) == []


def test_the_bars_of_a_tier_share_one_scale_and_round_up() -> None:
    tier = {"local_epsilon": 2.0, "local_delta": 0.0, "epsilon": 0.500001, "delta": 1e-6, "count": 1200, "up_to": False}
    certificate: Any = {"tiers": [tier]}
    (row,) = bars(certificate)
    assert (row["local_to"], row["central_to"]) == (100.0, 25.0)
    assert (row["people"], row["local"], row["central"]) == ("1,200", "2", "0.5001")
    (row,) = bars({"tiers": [tier | {"local_delta": 1e-6}]})  # type: ignore[typeddict-item]
    assert row["local"] == "2, local δ 1e-06"


def test_the_curve_goes_through_what_is_certified_and_above_it_between() -> None:
    profile = privacy_profile({0.5: 30, 1.0: 20}, "rr", deltas=(1e-2, 1e-4, 1e-6))
    drawing = curve(profile)
    points = [tuple(map(float, point.split(","))) for point in drawing["certified"].split()]
    tops = sorted(y for y, text in drawing["y_ticks"] if text in ("1e-2", "1e-4", "1e-6"))  # the largest delta first
    assert len(tops) == 3
    assert drawing["notes"] == []
    assert (points[0][1], points[-1][1]) == pytest.approx((tops[0], tops[-1]), abs=0.2)
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    middle_x, middle_y = points[len(points) // 4]
    (left, low), (right, high) = points[0], next(point for point in points if point[1] >= tops[1])
    straight = low + (high - low) * (middle_x - left) / (right - left)
    assert middle_y < straight  # a larger delta than a straight line on this scale would claim
    assert [row[0] for row in drawing["rows"]] == ["0.01", "0.0001", "1e-06"]
    assert all(float(attack) <= float(certified) for _, certified, attack in drawing["rows"])
    grades = {bound["grade"].split(",")[0] for bound in drawing["published"]}
    assert grades <= {"CERTIFIED", "ASYMPTOTIC", "HEURISTIC"}
    assert all(
        float(point.split(",")[0]) <= drawing["width"]
        for bound in drawing["published"]
        for point in bound["points"].split()
    )


def test_no_two_published_bounds_look_the_same_and_each_is_a_line() -> None:
    """Reproduction: the seventh looked like the first, a HEURISTIC line like a CERTIFIED one."""
    profile = privacy_profile({1.0: 1000}, "rr", deltas=[1e-2, 1e-4, 1e-6])
    published = curve(profile)["published"]
    (note,) = curve(profile)["notes"]
    assert re.search(naming("δ = 0.01", "1,000 people"), note)
    assert len(published) > 6
    assert len({bound["look"] for bound in published}) == len(published)
    assert all(len(bound["at"]) > 1 for bound in published)
    sheet = (Path(drawing.__file__).parent / "static" / "console.css").read_text()
    for bound in published:
        for name in bound["look"].split():
            assert f".{name} {{" in sheet


def test_a_curve_of_one_delta_is_drawn() -> None:
    """A local delta that is not amplified is that of every point."""
    drawn = curve(privacy_profile([(1.0, 2, 0.05)], "gaussian", deltas=[1e-2, 1e-6]))
    assert [row[0] for row in drawn["rows"]] == ["0.05", "0.05"]
