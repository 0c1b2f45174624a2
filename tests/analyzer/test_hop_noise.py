"""Estimates of rounds in which every hop added fake reports: unbiased, with intervals that keep their level."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binom

from croupier.analyzer.base import Batch
from croupier.analyzer.estimates import Fakes
from croupier.analyzer.estimators import ESTIMATORS, estimate
from croupier.analyzer.laws import Laws
from croupier.protocol.fake_law import FakeLaw
from croupier.protocol.hop_noise import HopNoise
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.onebit import OneBit
from croupier.protocol.mechanisms.rr import RandomizedResponse
from croupier.protocol.questions import Question
from croupier.runtime.noise import draw_fakes
from tests.analyzer.draws import Floats, least

ROUNDS = 10_000


def pmf(law: FakeLaw, hops: int) -> Floats:
    """The law of the sum of the hops' Z, from -hops * radius to hops * radius."""
    weights = np.exp(-np.abs(np.arange(-law.radius, law.radius + 1)) / law.scale)
    total = np.ones(1)
    for _ in range(hops):
        total = np.convolve(total, weights / weights.sum())
    return np.asarray(total)


def with_fakes(laws: Laws, fakes: Fakes) -> Laws:
    return laws.with_noise(fakes.mean, fakes.variance, fakes.fourth_cumulant)


def bit_laws(epsilon: float, n: int, fakes: Fakes) -> Laws:
    batch = Batch(RandomizedResponse(), np.zeros(n, int), [(epsilon, n)])
    laws: Laws = ESTIMATORS["rr"].laws(batch)  # type: ignore[attr-defined]
    return with_fakes(laws, fakes)


@pytest.mark.parametrize("hops", [1, 2, 3])
@pytest.mark.parametrize("noise", [0.1, 0.5, 2.0])
def test_shares_with_hop_noise_are_covered_at_their_level_exactly(hops: int, noise: float) -> None:
    """Every number of hits is weighed with its probability, where local noise is the larger and where it is not."""
    law = HopNoise(noise, 1e-6).law(2)
    fakes = Fakes(law, hops, total=2 * hops * law.radius, tickets=law.most)
    added = pmf(law, hops)
    for n, epsilon, level in itertools.product((3, 200, 2_000), (0.5, 4.0, 8.0), (0.8, 0.95, 0.99)):
        q = 1 / (1 + math.exp(epsilon))
        totals = np.arange(n + added.size, dtype=np.float64)
        low, high = bit_laws(epsilon, n, fakes).participants.interval(totals, level)
        for users in {0, n // 50, n // 3, n - n // 20, n}:
            hits = np.convolve(
                binom.pmf(np.arange(users + 1), users, 1 - q), binom.pmf(np.arange(n - users + 1), n - users, q)
            )
            chances = np.convolve(hits, added)
            share = users / n
            inside = (low <= share + 1e-12) & (share - 1e-12 <= high)
            assert chances[inside[: chances.size]].sum() >= level - 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("k", [3, 20])
def test_histograms_with_hop_noise_cover_over_ten_thousand_rounds(k: int) -> None:
    """Two hops; their fakes are known in all, not for each category."""
    n, epsilon, source = 1_000, 5.0, np.random.default_rng(35)
    law, hops = HopNoise(0.5, 1e-6).law(k), 2
    truth = np.array([0.6, 0.3, *([0.0] * (k - 3)), 0.1])
    counts = np.rint(truth * n).astype(int)
    q = 1 / (math.exp(epsilon) + k - 1)
    kept = source.binomial(counts, 1 - k * q, size=(ROUNDS, k))
    hits = kept + source.multinomial(n - kept.sum(axis=1), [1 / k] * k)
    noise = source.choice(np.arange(-law.radius, law.radius + 1), p=pmf(law, 1), size=(hops, ROUNDS, k)).sum(axis=0)
    laws = ESTIMATORS["krr"].laws(Batch(KaryResponse(k=k), np.zeros(n, int), [(epsilon, n)]))  # type: ignore[attr-defined]
    covered, values = np.zeros((ROUNDS, k), bool), np.zeros((ROUNDS, k))
    for number in range(ROUNDS):
        total = int(noise[number].sum()) + hops * law.mean_total
        law_of_sums = with_fakes(laws, Fakes(law, hops, total, law.most)).participants
        sums = (hits[number] + noise[number] + hops * law.radius).astype(float)
        low, high = law_of_sums.interval(sums, 0.95)
        covered[number] = (low <= counts / n) & (counts / n <= high)
        values[number] = law_of_sums.estimate(sums)
    assert covered.mean(axis=0).min() >= least(ROUNDS)
    errors = law_of_sums.standard_error(counts / n)
    assert np.all(np.abs(values.mean(axis=0) - counts / n) < 5 * errors / math.sqrt(ROUNDS))
    assert np.allclose(values.std(axis=0), errors, rtol=0.05)


@pytest.mark.parametrize(
    "mechanism", [RandomizedResponse(), OneBit(-2.0, 6.0), KaryResponse(k=5)], ids=lambda m: m.kind
)
def test_fakes_that_hops_draw_are_subtracted_again(mechanism: RandomizedResponse | OneBit | KaryResponse) -> None:
    """With hardly any local noise 50,000 people's answers come out to within five standard errors."""
    k = getattr(mechanism, "k", 2)
    law = HopNoise(0.1, 1e-6).law(k)
    draws = [draw_fakes(law) for _ in range(3)]
    people = [20_000, 30_000, *[0] * (k - 2)]
    counts = np.array(people) + np.sum(draws, axis=0)
    fakes = Fakes(law, 3, int(np.sum(draws)), law.most)
    result = estimate(Question("x", mechanism), np.repeat(np.arange(k), counts), [(19.0, sum(people))], fakes=fakes)
    truth = {"onebit": (-2.0 + 8 * 0.6,), "rr": (0.6,), "krr": (0.4, 0.6, 0.0, 0.0, 0.0)}[mechanism.kind]
    for value, error, expected in zip(result.values, result.standard_errors, truth, strict=True):
        assert abs(value - expected) < 5 * error
    width = 8 if mechanism.kind == "onebit" else 1
    assert result.hop_influence == pytest.approx(width * (law.radius if k == 2 else law.most) / 50_000, rel=1e-3)
    if mechanism.kind != "onebit":  # whose values are rounded at random, too
        assert result.standard_errors[0] == pytest.approx(math.sqrt(fakes.variance) / 50_000, rel=0.02)


def test_fakes_of_another_kind_of_report_are_refused() -> None:
    law = HopNoise(1.0, 1e-6).law(3)
    with pytest.raises(ValueError, match="fakes have 3 values; rr has 2"):
        estimate(Question("x", RandomizedResponse()), [0, 1] * 60, [(1.0, 2)], fakes=Fakes(law, 1, 118, law.most))
