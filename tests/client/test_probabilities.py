"""Exact probabilities, boundary draw by boundary draw, and statistics whose error rate is stated."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import pytest
from scipy.stats import chi2

import croupier.client.mechanisms.laplace
from croupier.client.randomizers import randomize
from croupier.client.thresholds import blanket_threshold, flip_threshold
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.laplace import Laplace
from croupier.protocol.mechanisms.levels import Levels
from croupier.protocol.mechanisms.onebit import OneBit
from croupier.protocol.mechanisms.pgr import ProjectiveResponse
from croupier.protocol.mechanisms.rr import RandomizedResponse
from croupier.protocol.questions import Question
from croupier.protocol.randomness import SystemRandom
from tests.support.scripted import Scripted

BIT = Question("bit", RandomizedResponse())
LETTER = Question("letter", KaryResponse(k=5))
MEAN = Question("mean", OneBit(low=-1.0, high=3.0))
ERROR_RATE = 1e-6
TOP = 2**64 - 1


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 7.3, 20.0])
@pytest.mark.parametrize("bit", [0, 1])
def test_exactly_the_draws_below_the_threshold_flip_a_bit(bit: int, epsilon: float) -> None:
    """The number of 64-bit draws that flip is the threshold itself, so the probability is exact."""
    threshold = flip_threshold(epsilon)
    for draw, expected in ((0, 1 - bit), (threshold - 1, 1 - bit), (threshold, bit), (TOP, bit)):
        assert randomize(BIT, bit, epsilon, Scripted(draw)) == expected


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 20.0])
def test_exactly_the_draws_below_the_threshold_are_blanket(epsilon: float) -> None:
    threshold = blanket_threshold(epsilon, 5)
    for letter in range(5):
        assert [randomize(LETTER, letter, epsilon, Scripted(threshold - 1, j)) for j in range(5)] == [0, 1, 2, 3, 4]
        assert randomize(LETTER, letter, epsilon, Scripted(threshold)) == letter
        assert randomize(LETTER, letter, epsilon, Scripted(TOP)) == letter


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 20.0])
def test_exactly_the_draws_below_the_threshold_are_any_point(epsilon: float) -> None:
    """K = 13 points, 4 on a hyperplane: the realised ratio of two points is at most e^ε, and next to it."""
    question, points, block = Question("word", ProjectiveResponse(k=9, q=3)), 13, 4
    threshold = blanket_threshold(epsilon, points, block)
    for category in range(9):
        anywhere = [randomize(question, category, epsilon, Scripted(threshold - 1, j)) for j in range(points)]
        assert anywhere == list(range(points))
        kept = Counter(randomize(question, category, epsilon, Scripted(threshold, j)) for j in range(8))
        assert sorted(kept.values()) == [2] * block
    uniform = Fraction(threshold, 2**64)
    ratio = 1 + (1 - uniform) / block / (uniform / points)
    assert 0 <= 1 - float(ratio) / math.exp(epsilon) < 1e-9


@pytest.mark.parametrize(("value", "share"), [(-1.0, 0), (0.0, Fraction(1, 4)), (2.5, Fraction(7, 8)), (3.0, 1)])
def test_stochastic_rounding_has_exactly_the_mean_of_the_value(value: float, share: Fraction) -> None:
    """Draws below share·2^64 round up; a second draw at the top flips nothing, and one below the threshold does."""
    ones, below = int(share * 2**64), flip_threshold(1.0) - 1
    assert [randomize(MEAN, value, 1.0, Scripted(draw, TOP)) for draw in (ones - 1, ones) if 0 <= draw <= TOP] == (
        [0] if ones == 0 else [1] if ones > TOP else [1, 0]
    )
    assert randomize(MEAN, value, 1.0, Scripted(TOP, below)) == (0 if ones > TOP else 1)


@pytest.mark.parametrize(
    ("value", "level", "share"), [(-1.0, 0, 0), (0.5, 1, Fraction(1, 2)), (2.0, 3, 0), (3.0, 4, 0)]
)
def test_a_number_is_rounded_to_a_level_beside_it_with_its_mean(value: float, level: int, share: Fraction) -> None:
    """Then the level is reported as a category: with a draw below the threshold a uniform one, else as it is."""
    question, up = Question("hours", Levels(-1.0, 3.0, 5)), int(share * 2**64)
    for draw, rounded in ((up - 1, level + 1), (up, level), (TOP, level)):
        if draw >= 0:
            assert randomize(question, value, 1.0, Scripted(draw, TOP)) == rounded
            assert randomize(question, value, 1.0, Scripted(draw, blanket_threshold(1.0, 5))) == rounded
            assert randomize(question, value, 1.0, Scripted(draw, blanket_threshold(1.0, 5) - 1, 2)) == 2


def pearson(seen: Counter[int], law: dict[int, float], draws: int) -> float:
    return sum((seen[cell] - draws * share) ** 2 / (draws * share) for cell, share in law.items())


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 10, 2**32 + 1, 2**63 + 1, 2**64 - 1, 2**64])
def test_every_residue_has_the_same_number_of_accepted_draws(bound: int) -> None:
    """The accepted draws are 0 .. limit − 1 with limit a multiple of the bound; the first rejected one is `limit`."""
    limit = 2**64 // bound * bound
    assert Scripted(limit - 1).below(bound) == bound - 1
    assert Scripted(0).below(bound) == 0
    if limit < 2**64:
        refused = Scripted(limit, TOP, limit - 1)
        assert refused.below(bound) == bound - 1
        assert refused.draws == []


@pytest.mark.parametrize("bound", [0, -1, 2**64 + 1])
def test_a_bound_without_draws_is_refused(bound: int) -> None:
    with pytest.raises(ValueError, match=f"bound is {bound}"):
        SystemRandom().below(bound)


def test_two_system_sources_share_nothing() -> None:
    first, second = SystemRandom(), SystemRandom()
    drawn = {source.bits64() for source in (first, second) for _ in range(1200)}  # past the end of a block
    assert len(drawn) == 2400
    assert all(0 <= draw <= TOP for draw in drawn)


@pytest.mark.parametrize("epsilon", [0.1, 0.3, 1.0, 7.7])
@pytest.mark.parametrize("lattice", [1, 3, 1000])
def test_the_laplace_scale_is_never_below_the_exact_one(
    epsilon: float, lattice: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scales: list[float] = []

    def recorded(kind: str, scale: float) -> object:
        assert kind == "laplace"
        scales.append(scale)
        return lambda position: position

    monkeypatch.setattr(croupier.client.mechanisms.laplace, "discrete_noise", recorded)
    question = Question("q", Laplace(low=0.0, high=2.0, lattice=lattice))
    assert randomize(question, 2.0, epsilon, SystemRandom()) == lattice
    assert randomize(question, 0.0, epsilon, SystemRandom()) == 0
    exact = Fraction(lattice) / Fraction(epsilon)
    assert exact <= Fraction(scales[0]) <= exact * (1 + Fraction(1, 2**50))


# As many draws as it takes to tell the wrong scales but for once in 10^9; more cells take more.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("lattice", "epsilon", "value", "draws"), [(1, 1.0, 0.0, 3_500), (8, 0.8, 0.75, 6_000), (50, 10.0, 1.0, 5_000)]
)
def test_laplace_reports_pass_a_chi_square_that_a_wrong_scale_fails(
    lattice: int, epsilon: float, value: float, draws: int
) -> None:
    question = Question("q", Laplace(low=0.0, high=1.0, lattice=lattice))
    centre = round(value * lattice)  # all values of this test lie on the lattice
    noise = [randomize(question, value, epsilon, SystemRandom()) - centre for _ in range(draws)]

    def law(scale: float) -> dict[int, float]:
        ratio = math.exp(-1 / scale)
        inner = {z: (1 - ratio) / (1 + ratio) * ratio ** abs(z) for z in range(-edge + 1, edge)}
        return inner | {side * edge: ratio**edge / (1 + ratio) for side in (-1, 1)}

    scale = lattice / epsilon
    edge = max(2, math.ceil(4 * scale))
    seen = Counter(max(-edge, min(edge, z)) for z in noise)
    critical = float(chi2.isf(ERROR_RATE, 2 * edge))
    assert sum(law(scale).values()) == pytest.approx(1.0)
    assert pearson(seen, law(scale), draws) < critical
    assert pearson(seen, law(scale * 1.25), draws) > critical
    assert pearson(seen, law(scale / 1.25), draws) > critical


@pytest.mark.parametrize(("lattice", "epsilon"), [(1 << 31, 1.0), (1 << 31, 0.1), (1 << 30, 0.5), (1 << 20, 0.001)])
def test_laplace_noise_of_the_finest_lattices_is_not_cut_off(lattice: int, epsilon: float) -> None:
    """A question may have 2^31 steps and a report 2^62: |noise| has mean `scale`, and no report piles up at an edge."""
    draws, scale = 1_000, lattice / epsilon
    question = Question("q", Laplace(low=0.0, high=1.0, lattice=lattice))
    for value in (0.0, 1.0):
        reports = [randomize(question, value, epsilon, SystemRandom()) for _ in range(draws)]
        assert Counter(reports).most_common(1)[0][1] <= 5
        # |noise|/scale is about Exp(1), so the mean of 1000 is normal: 5.5 standard errors happen once in 10^7.
        mean = sum(abs(report - value * lattice) for report in reports) / draws / scale
        assert abs(mean - 1) < 5.5 / math.sqrt(draws)
