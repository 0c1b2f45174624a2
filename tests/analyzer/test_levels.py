"""Numbers on ordered levels: mean, histogram, standard deviation and quantiles, unbiased and covered at their level."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import isotonic_regression

from croupier.analyzer.base import Batch
from croupier.analyzer.estimates import Estimate, Fakes
from croupier.analyzer.estimators import estimate
from croupier.analyzer.mechanisms.levels import distribution_of, isotonic
from croupier.protocol.hop_noise import HopNoise
from croupier.protocol.mechanisms.levels import Levels
from croupier.protocol.mechanisms.onebit import OneBit
from croupier.protocol.names import JsonObject
from croupier.protocol.questions import Question
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.noise import draw_fakes
from croupier.show.distribution import quantile
from croupier.show.published import publication_json
from tests.analyzer.draws import LEVEL, Floats, dealt, least, responses, with_fakes

QUANTILES = (0.1, 0.5, 0.9)
N = 400


@dataclass(frozen=True)
class Setting:
    """People's numbers on [0, 24], what they send them with, and the hop noise."""

    name: str
    k: int
    tiers: tuple[tuple[float, int], ...]
    values: str
    noise: float | None = None

    def numbers(self) -> Floats:
        """The numbers of the people, fixed: all rounds ask the same people."""
        source = np.random.default_rng(35)
        n = sum(count for _, count in self.tiers)
        if self.values == "whole":  # on the levels where k is 25
            return np.clip(np.rint(source.normal(7.5, 1.6, n)), 0, 24)
        if self.values == "skewed":
            return np.minimum(source.exponential(2.0, n), 24.0)
        if self.values == "ends":
            return np.where(source.random(n) < 0.9, 0.0, 24.0)
        return source.uniform(0, 24, n)


SETTINGS = [
    Setting("hours, one budget", 13, ((2.0, N),), "whole"),
    Setting("hours on their levels, three budgets", 25, ((1.0, 100), (3.0, 200), (6.0, 100)), "whole"),
    Setting("skewed, hop noise", 9, ((5.0, N),), "skewed", noise=1.0),
    Setting("hardly any local noise, hop noise", 5, ((8.0, N),), "uniform", noise=0.5),
    Setting("two levels and hop noise", 2, ((4.0, N),), "ends", noise=1.0),
    Setting("nearly all at one end", 9, ((8.0, N),), "ends"),
]


def one_round(setting: Setting, numbers: Floats, source: np.random.Generator) -> Estimate:
    """One batch of reports and its estimate; budgets are dealt to people at random."""
    n, k = numbers.size, setting.k
    position = numbers / 24 * (k - 1)
    floor = np.minimum(np.floor(position), k - 2)
    levels = (floor + (source.random(n) < position - floor)).astype(int)
    reports, fakes = responses(k, levels, dealt(setting.tiers, source), source), None
    if setting.noise is not None:
        reports, fakes = with_fakes(reports, HopNoise(setting.noise, 1e-6).law(k), 2, source)
    result: Estimate = estimate(Question("hours", Levels(0.0, 24.0, k)), reports, setting.tiers, LEVEL, fakes=fakes)
    return result


def quantile_of(numbers: Floats, q: float) -> float:
    """The smallest number that at least the part q of the people do not exceed."""
    return float(np.sort(numbers)[math.ceil(q * numbers.size - 1e-9) - 1])


def covered(setting: Setting, rounds: int, *, population: bool) -> tuple[dict[str, float], dict[str, float]]:
    """How often each interval has the truth in it, and how many of its standard errors each estimate is off."""
    source = np.random.default_rng(36)
    numbers = setting.numbers()
    k, n = setting.k, numbers.size
    position = numbers / 24 * (k - 1)
    hats = np.maximum(0.0, 1 - np.abs(position[:, None] - np.arange(k))).mean(axis=0)
    truth = {
        "mean": numbers.mean(),
        "deviation": numbers.std(),
        "share": hats[k // 3],
        "below": hats[: k // 3 + 1].sum(),
    }
    truth |= {f"{q:g}": quantile_of(numbers, q) for q in QUANTILES}
    inside = dict.fromkeys(truth, 0)
    values: dict[str, list[float]] = {name: [] for name in ("mean", "share", "below")}
    errors = dict.fromkeys(values, 0.0)
    for _ in range(rounds):
        asked = source.choice(numbers, n) if population else numbers
        result = one_round(setting, asked, source)
        assert result.distribution is not None
        document: Any = shown(result.distribution)
        which = "population_interval" if population else "confidence_interval"
        of_mean = result.population_intervals[0] if population else result.confidence_intervals[0]
        level_3 = result.distribution.levels[k // 3]
        share, below = level_3.share, level_3.cumulative
        level = document["levels"][k // 3]
        stated = {"deviation": document["standard_deviation"], "share": level["share"], "below": level["cumulative"]}
        stated |= {f"{q:g}": quantile(document, q) for q in QUANTILES}
        ends = {"mean": of_mean} | {name: (each[which]["low"], each[which]["high"]) for name, each in stated.items()}
        for name, (low, high) in ends.items():
            inside[name] += low - 1e-9 <= truth[name] <= high + 1e-9
        for name, value, error in (
            ("mean", result.values[0], result.standard_errors[0]),
            ("share", share.estimate, share.standard_error),
            ("below", below.estimate, below.standard_error),
        ):
            values[name].append(value)
            errors[name] += error / rounds
    off = {name: (np.mean(values[name]) - truth[name]) / (errors[name] or 1) for name in values}
    off |= {f"{name} error": float(np.std(values[name])) / (errors[name] or 1) for name in values}
    return {name: count / rounds for name, count in inside.items()}, off


@pytest.mark.parametrize("population", [False, True], ids=["these people", "population"])
@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_a_dose_of_rounds_is_covered(setting: Setting, population: bool) -> None:
    """Sixty rounds; `make long` has ten thousand: test_intervals_over_ten_thousand_rounds."""
    check(setting, 60, population)


@pytest.mark.slow
@pytest.mark.parametrize("population", [False, True], ids=["these people", "population"])
@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_intervals_over_ten_thousand_rounds(setting: Setting, population: bool) -> None:
    check(setting, 10_000, population)


def check(setting: Setting, rounds: int, population: bool) -> None:
    """Asserts coverage at the level, and unbiased estimates whose errors are no larger than stated."""
    inside, off = covered(setting, rounds, population=population)
    assert min(inside.values()) >= least(rounds), inside
    for name in ("mean", "share", "below"):
        if not population:
            assert abs(off[name]) < 5 / math.sqrt(rounds), off
            assert off[f"{name} error"] < 1 + 5 / math.sqrt(2 * rounds), off


def test_isotonic_is_the_least_squares_fit() -> None:
    """Compared with scipy's, which analyzers do not need."""
    source = np.random.default_rng(1)
    for size in (1, 2, 7, 40):
        values = source.normal(size=size) + np.linspace(0, 1, size)
        assert np.allclose(isotonic(values), isotonic_regression(values).x)


def test_two_levels_have_the_mean_of_onebit() -> None:
    """Both estimate the same mean from equal reports, and levels with an error of less than 10 % more."""
    reports = [1] * 130 + [0] * 270
    law = HopNoise(1.0, 1e-6).law(2)
    for fakes in (None, Fakes(law, 2, 2 * law.most, law.most)):
        sent = reports if fakes is None else [*reports, *[0, 1] * law.most]
        bits, levels = (
            estimate(Question("x", mechanism), sent, [(1.0, 300), (2.0, 100)], fakes=fakes)
            for mechanism in (OneBit(0.0, 10.0), Levels(0.0, 10.0, 2))
        )
        assert levels.values[0] == pytest.approx(bits.values[0])
        assert levels.hop_influence == pytest.approx(bits.hop_influence)
        assert bits.standard_errors[0] <= levels.standard_errors[0] * (1 + 1e-12) < 1.1 * bits.standard_errors[0]
        assert levels.distribution.levels[1].share.estimate == pytest.approx(bits.values[0] / 10)


def test_drawn_fakes_are_subtracted_and_one_hop_moves_the_mean_as_stated() -> None:
    """With hardly any local noise; then a hop puts all of its fakes on the last level."""
    law, k = HopNoise(0.5, 1e-6).law(5), 5
    people = np.array([10_000, 20_000, 10_000, 5_000, 5_000])
    question, tiers = Question("x", Levels(0.0, 8.0, k)), [(20.0, 50_000)]
    honest = np.array(draw_fakes(law))
    second = np.array(draw_fakes(law))
    truth = float(people @ np.arange(k)) / 50_000 * 2
    result = estimate(
        question,
        np.repeat(np.arange(k), people + honest + second),
        tiers,
        fakes=Fakes(law, 2, int((honest + second).sum()), law.most),
    )
    assert abs(result.values[0] - truth) < 5 * result.standard_errors[0]
    assert sum(level.share.estimate for level in result.distribution.levels) == pytest.approx(1)
    # The second hop puts its fakes on the last level, replaces as many reports on the first, and states no fakes.
    moved_people = people + np.array([-law.most, 0, 0, 0, law.most])
    fakes = Fakes(law, 2, int(honest.sum()), law.most)
    moved = estimate(question, np.repeat(np.arange(k), moved_people + honest), tiers, fakes=fakes)
    assert moved.distribution is not None
    assert 0.9 < (moved.values[0] - truth) / moved.hop_influence < 1.1
    assert 0.9 < (moved.distribution.levels[4].share.estimate - 0.1) / moved.distribution.hop_influence < 1.1


def test_smoothed_shares_are_possible_and_agree_with_each_other() -> None:
    """Cumulative shares never fall, shares are their differences, and quantiles rise with q."""
    distribution = one_round(SETTINGS[1], SETTINGS[1].numbers(), np.random.default_rng(2)).distribution
    assert distribution is not None
    smooth = [level.cumulative.projected for level in distribution.levels]
    assert smooth == sorted(smooth)
    assert smooth[0] >= 0
    assert smooth[-1] == 1.0
    assert np.allclose(np.diff(smooth, prepend=0.0), [level.share.projected for level in distribution.levels])
    assert any(level.share.estimate < 0 for level in distribution.levels)  # where smoothing has something to do
    document = shown(distribution)
    ascending = [quantile(document, q)["estimate"] for q in np.linspace(0.01, 0.99, 99)]
    assert ascending == sorted(ascending)
    for q in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match=r"q is .*above 0 and below 1"):
            quantile(document, q)


def test_the_page_says_how_exact_a_median_is() -> None:
    """The margins and lengths in docs/levels.md, from the mean counts of evenly spread numbers."""
    k, page = 13, (Path(__file__).parents[2] / "docs" / "levels.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\d,]+) \| (.*) \|$", page, re.MULTILINE)
    people = np.full(k, 1 / (k - 1))
    people[[0, -1]] /= 2
    assert len(rows) == 3
    for number, cells in rows:
        n, stated = float(number.replace(",", "")), []
        for epsilon in (1.0, 2.0, 4.0):
            blank = k / (math.exp(epsilon) + k - 1)
            hits = n * (blank / k + (1 - blank) * people)
            batch = Batch(Levels(0.0, 1.0, k), np.zeros(int(n), int), [(epsilon, int(n))], confidence=LEVEL)
            distribution = distribution_of(batch, hits)
            middle = distribution.levels[k // 2].cumulative.confidence_interval
            ends = quantile(shown(distribution), 0.5)["confidence_interval"]
            stated.append(f"± {50 * (middle.high - middle.low):.1f}, {100 * (ends['high'] - ends['low']):.0f} %")
        assert cells == " | ".join(stated)


def shown(distribution: pb.Distribution) -> JsonObject:
    publication = pb.Publication(distribution=distribution)
    document: JsonObject = publication_json(publication, pb.Certificate(granted=True, grade="CERTIFIED"))[
        "distribution"
    ]
    return document
