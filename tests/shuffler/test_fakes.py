"""The fakes of a hop follow the law that every service derives from the manifest."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from scipy.stats import chisquare

from croupier.protocol.fake_law import FakeLaw
from croupier.protocol.hop_noise import HopNoise
from croupier.runtime.noise import draw_fakes


def expected(law: FakeLaw, draws: int) -> dict[int, float]:
    weights = {z: math.exp(-abs(z) / law.scale) for z in range(-law.radius, law.radius + 1)}
    total = sum(weights.values())
    return {law.radius + z: draws * weight / total for z, weight in weights.items()}


def assert_fits(drawn: Counter[int], law: FakeLaw) -> None:
    wanted = expected(law, drawn.total())
    assert set(drawn) <= set(wanted)
    common = [count for count, mean in wanted.items() if mean >= 10]
    rare = [count for count in wanted if count not in common]
    seen = [drawn[count] for count in common] + [sum(drawn[count] for count in rare)]
    means = [wanted[count] for count in common] + [sum(wanted[count] for count in rare)]
    assert chisquare(seen, means).pvalue > 1e-7


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (3.0, 1e-3)])
def test_fakes_of_two_values_add_up_and_have_the_law(epsilon: float, delta: float) -> None:
    """At (3, 1e-3) one draw in thirty would be beyond the radius, and is drawn again."""
    law = HopNoise(epsilon, delta).law(2)
    draws = [draw_fakes(law) for _ in range(4_000)]
    for counts in draws:
        law.check_counts(counts)
    assert_fits(Counter(ones for _, ones in draws), law)


def test_fakes_of_many_values_have_the_law() -> None:
    law = HopNoise(0.5, 1e-6).law(20_000)
    counts = draw_fakes(law)
    law.check_counts(counts)
    assert_fits(Counter(counts), law)


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ([14, 13], "27 fakes; there must be 28"),
        ([29, -1], r"-1.*\[0.*28\]"),
        ([14, 14, 0], "3 counts.*2 values"),
    ],
)
def test_numbers_that_no_honest_hop_draws_are_refused(counts: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HopNoise(1.0, 1e-6).law(2).check_counts(counts)
