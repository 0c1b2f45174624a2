"""Hop noise: its error against that of local, shuffled and central mechanisms, for crowds of any size."""

from __future__ import annotations

import math
from collections.abc import Sequence

from research.experiments.figure import Column, Figure, Finding, Line, Panel, Point, Row, Settings, Size
from research.experiments.measures.hop_noise import LOCAL_EPSILON, measure_hop_noise

_CATEGORIES = (2, 16, 0, 1024, 65_536)
"""0: a mean."""


def _points(settings: Settings) -> list[Point]:
    quick = settings.size is Size.QUICK
    return [
        {"k": k, "epsilon": epsilon, "n": n, "delta": 1e-6}
        for k in (_CATEGORIES[:3] if quick else _CATEGORIES)
        for epsilon in ((0.1,) if quick else (0.1, 0.5, 1.0))
        for n in ((100, 10_000) if quick else (100, 1_000, 10_000, 100_000, 1_000_000))
    ]


def _span(ratios: Sequence[float]) -> str:
    low, high = (f"{ratio:.0f}" if ratio >= 100 else f"{ratio:.2g}" for ratio in (min(ratios), max(ratios)))
    return f"{low} to {high}"


def _findings(rows: Sequence[Row]) -> list[Finding]:
    counts = [row for row in rows if row["about"] != "mean"]

    def ratios(first: str, second: str, *about: str, least: int = 0) -> list[float]:
        wanted = [row["error"] for row in rows if row["about"] in about and row["n"] >= least]
        return [error[first] / error[second] for error in wanted]

    both = ("share", "histogram")
    laplace = ratios("2 hops", "Laplace", *both)
    shares, categories = ratios("shuffled", "2 hops", "share"), ratios("shuffled", "2 hops", "histogram")
    gaussian, few = ratios("shuffled", "Gaussian", *both, least=1000), ratios("shuffled", "Gaussian", *both)
    local = ratios("2 hops and local noise", "2 hops", *both)
    cheap = [ratio for ratio, row in zip(local, counts, strict=True) if row["k"] <= 16 and row["n"] <= 10_000]
    means, small = ratios("2 hops", "Laplace", "mean"), ratios("2 hops", "Laplace", "mean", least=10_000)
    shuffled, of_local = ratios("shuffled", "2 hops", "mean"), ratios("local", "2 hops", "mean")
    cost = ratios("2 hops and local noise", "2 hops", "mean")
    return [
        Finding.whether(
            "with two hops the error is that of the central Laplace mechanism once per hop",
            max(laplace) < 1.01 * math.sqrt(2),
            f"Without local noise it is at most {max(laplace):.4f} times the error of the central Laplace mechanism.",
        ),
        Finding.whether(
            "for a share it is smaller than that of the shuffle at its best local budget, for any crowd",
            min(shares) > 1,
            f"The shuffle alone has {_span(shares)} times the error for a share, and {_span(categories)} times for a "
            "category of a histogram.",
        ),
        Finding.whether(
            "the shuffle at its best local budget has about the error of the central Gaussian mechanism",
            max(gaussian) < 1.25,
            f"{_span(gaussian)} times from 1,000 people on, up to {max(few):.2g} times for 100.",
        ),
        Finding.whether(
            f"local noise of ε = {LOCAL_EPSILON:g} on top costs little",
            max(local) < 1.25,
            f"{_span(cheap)} times the error up to 16 categories and 10,000 people; up to {max(local):.2g} times in "
            f"all: with 65,536 categories a report of local ε = {LOCAL_EPSILON:g} is true in 4 % of all cases only.",
        ),
        Finding.whether(
            "for a mean on levels the error of two hops is that of the central Laplace mechanism once per hop",
            max(means) < 1.01 * math.sqrt(2),
            f"It is {_span(means)} times that error, {_span(small)} times from 10,000 people on: a number is rounded "
            "to a level, and every level has fakes of its own.",
        ),
        Finding.whether(
            "for a mean it is smaller than that of the shuffle at its best local budget, for any crowd",
            min(shuffled) > 1,
            f"The shuffle alone, on its best number of levels, has {_span(shuffled)} times the error, local noise "
            f"{_span(of_local)} times. Local noise of ε = {LOCAL_EPSILON:g} on top costs {_span(cost)} times.",
        ),
    ]


_LINES = (
    Line("local", "people:local", "other 4"),
    Line("shuffled, best local ε, CERTIFIED", "people:shuffled", "other 1"),
    Line("hop noise, 2 hops, CERTIFIED", "people:2 hops", "certified"),
    Line("hop noise, 3 hops, CERTIFIED", "people:3 hops", "other 2"),
    Line(f"2 hops, and local ε = {LOCAL_EPSILON:g}", "people:2 hops and local noise", "other 3"),
    Line("central Gaussian", "people:Gaussian", "other 5"),
    Line("central Laplace", "people:Laplace", "other 6"),
)

_TITLES = {0: "a mean", 2: "a share"}

FIGURES = (
    Figure(
        "hop-noise",
        "croupier",
        "error against the size of the crowd: local, shuffled, hop noise, central",
        "Standard errors in closed form, δ = 1e−6. Hop noise is without local noise and with it; the shuffle has the "
        "largest local budget that keeps the same central ε. The share is that of a category that hardly anybody "
        "holds; a mean has a range of 1, the least favourable numbers, and the levels with the least error. The "
        "certificate of hop noise needs one honest hop, the others also need the crowd, the roster and the accountant, "
        "or a trusted party.",
        measure_hop_noise,
        _points,
        _findings,
        (
            Column("of", "about"),
            Column("categories or levels", "values", 6),
            Column("central ε", "epsilon"),
            Column("n", "n", 8),
            Column("fakes of 2 hops", "fakes", 8),
            Column("hop noise, 2 hops", "error:2 hops", 3),
            Column("3 hops", "error:3 hops", 3),
            Column(f"2 hops, local ε = {LOCAL_EPSILON:g}", "error:2 hops and local noise", 3),
            Column("shuffled", "error:shuffled", 3),
            Column("local", "error:local", 3),
            Column("central Gaussian", "error:Gaussian", 3),
            Column("central Laplace", "error:Laplace", 3),
        ),
        tuple(
            Panel(
                f"{_TITLES.get(k) or f'a histogram, k = {k:,}'}, ε = {epsilon:g}",
                "n",
                "people n",
                "standard error, in people",
                _LINES,
                {"k": k, "epsilon": epsilon},
            )
            for k, epsilon in ((2, 0.1), (2, 1.0), (16, 0.1), (1024, 0.1), (0, 0.1), (0, 1.0))
        ),
    ),
)
