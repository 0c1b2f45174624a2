"""The divergence of hop noise added up, the same by an integral, and what the proof says of pairs of values."""

from __future__ import annotations

import math

import pytest
from flint import arb, ctx
from hypothesis import given, settings
from hypothesis import strategies as st

from croupier.accountant.bounds.hop_noise import HopNoiseProfile
from croupier.accountant.hop_kernel import coupled, hop_noise, hop_noise_along, precision_for
from croupier.accountant.kernel import Classes, FiniteLaw, Line
from croupier.protocol.fake_law import FakeLaw
from croupier.protocol.hop_noise import HopNoise

LAWS = (FiniteLaw(5), FiniteLaw(12, 6), FiniteLaw(13, 4, 1))
"""The laws of krr, choices and pgr."""


def exactly(law: FakeLaw, classes: Classes, epsilon: float) -> float:
    with ctx.workprec(precision_for(1.0)):
        return float(hop_noise(law, classes, arb(epsilon)))


@given(
    law=st.sampled_from(LAWS),
    noise=st.sampled_from([(0.2, 1e-6), (3.0, 1e-3), (12.0, 1e-4)]),
    epsilon=st.sampled_from([0.0, 0.05, 0.9]),
    theta=st.floats(0.1, 60.0),
    sigma=st.floats(0.02, 1.0),
    strip=st.floats(0.05, 0.99),
    step=st.floats(0.02, 0.5),
)
@settings(max_examples=8, deadline=None)
def test_every_line_bounds_the_sum(
    law: FiniteLaw, noise: tuple[float, float], epsilon: float, theta: float, sigma: float, strip: float, step: float
) -> None:
    fakes, classes = HopNoise(*noise).law(law.points), law.classes(arb(2.0))
    line = Line(theta, sigma / theta, step * theta, strip * theta, 6 * theta / sigma)
    with ctx.workprec(precision_for(2.0)):
        bound = hop_noise_along(fakes, classes, arb(epsilon), line)
        assert not bound.upper() < hop_noise(fakes, classes, arb(epsilon))


@pytest.mark.parametrize("law", LAWS[1:], ids=str)
@pytest.mark.parametrize("noise", [(0.2, 1e-6), (3.0, 1e-3)])
@pytest.mark.slow
def test_the_line_that_is_found_loses_little(
    law: FiniteLaw, noise: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = HopNoiseProfile(HopNoise(*noise).law(law.points), (law.classes(arb(2.0)),))
    exact = [profile.delta(epsilon).value for epsilon in (0.0, 0.05, 0.9)]
    least = profile.smallest_epsilon(1e-5, 2.0).epsilon
    monkeypatch.setattr("croupier.accountant.bounds.hop_noise.MOST_SUMS", 0.0)
    bounds = [profile.delta(epsilon).value for epsilon in (0.0, 0.05, 0.9)]
    assert all(one <= bound <= 1.02 * one for one, bound in zip(exact, bounds, strict=True))
    assert least <= profile.smallest_epsilon(1e-5, 2.0).epsilon * (1 + 1e-9) <= 1.01 * least


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.5, 1.9])
def test_sets_that_differ_in_fewer_options_and_smaller_budgets_show_less(epsilon: float) -> None:
    fakes, k, low = HopNoise(1.0, 1e-3).law(12), 6, 1 / (6 * (1 + math.exp(2.0)))
    high = low * math.exp(2.0)
    shown = []
    for differ in range(k + 1):
        same = k - differ
        each = [(differ, high, low), (differ, low, high), (same, high, high), (same, low, low)]
        shown.append(exactly(fakes, [(n, arb(p), arb(q)) for n, p, q in each if n], epsilon))
    assert shown == sorted(shown)
    for law in LAWS:
        of_points = HopNoise(1.0, 1e-3).law(law.points)
        of_budgets = [exactly(of_points, law.classes(arb(v)), epsilon) for v in (0.5, 1.0, 2.0, 4.0)]
        assert of_budgets == sorted(of_budgets)
        assert exactly(of_points, law.classes(arb(2.0)), epsilon) <= exactly(
            of_points, coupled(law.classes(arb(2.0))), epsilon
        )


def test_classes_of_many_values_are_those_of_few_with_values_that_show_nothing() -> None:
    """A class of probability 0 under both values changes nothing, however large."""
    fakes, classes = HopNoise(2.0, 1e-6).law(30_000), ((1, arb(0.7), arb(0.2)), (2, arb(0.15), arb(0.4)))
    for epsilon in (0.0, 0.4):
        alone = exactly(fakes, classes, epsilon)
        assert exactly(fakes, (*classes, (29_997, arb(0), arb(0))), epsilon) == pytest.approx(alone, rel=1e-20)
