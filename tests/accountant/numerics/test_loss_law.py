"""Laws of privacy losses: those of dp-accounting, and sums over all outcomes where these can be counted."""

import itertools
import math

import numpy as np
import pytest
from dp_accounting.pld.pld_pmf import DensePLDPmf, create_pmf_pessimistic_connect_dots

from accountant.numerics.gaussian import gaussian_delta
from accountant.numerics.loss_law import LossLaw

EPSILONS = (-0.3, 0.0, 0.05, 0.31, 1.0, 2.5)


def gaussian_dots(mu: float, step: float, points: int) -> tuple[np.ndarray, np.ndarray]:
    above = np.array([gaussian_delta(mu, step * place) for place in range(points + 1)])
    grid = step * np.arange(1, points + 1)
    below = -np.expm1(-grid) + np.exp(-grid) * above[1:]
    return np.arange(-points, points + 1), np.concatenate([below[::-1], above])


def test_the_dots_are_its_profile_and_chords_lie_between_them() -> None:
    multiples, values = gaussian_dots(0.5, 0.05, 40)
    law = LossLaw.through(0.05, multiples, values)
    assert float(law.mass.sum()) + law.infinite == pytest.approx(1.0, abs=1e-14)
    for place, value in zip(multiples.tolist(), values.tolist(), strict=True):
        assert law.delta(0.05 * place) == pytest.approx(value, abs=1e-14)
    for epsilon in (0.0123, 0.377, 1.21):
        assert gaussian_delta(0.5, epsilon) < law.delta(epsilon) < gaussian_delta(0.5, epsilon) + 1e-3
    assert law.delta(5.0) == law.infinite == values[-1]


def test_sums_are_those_over_all_outcomes() -> None:
    mass = np.array([0.2, 0.0, 0.5, 0.25])
    law, other = LossLaw(0.1, -1, mass, 0.05), LossLaw(0.1, 2, np.array([0.4, 0.3]), 0.3)

    def exact(laws: list[LossLaw], epsilon: float) -> float:
        finite = math.prod(1 - one.infinite for one in laws)
        outcomes = itertools.product(*([(one.first + j, m) for j, m in enumerate(one.mass)] for one in laws))
        parts = [
            math.prod(m for _, m in outcome) * max(0.0, -math.expm1(epsilon - 0.1 * sum(place for place, _ in outcome)))
            for outcome in outcomes
        ]
        return 1 - finite + math.fsum(parts)

    for epsilon in EPSILONS:
        assert law.plus(other).delta(epsilon) == pytest.approx(exact([law, other], epsilon), abs=1e-15)
        assert law.times(5, 1e-15).delta(epsilon) == pytest.approx(exact([law] * 5, epsilon), abs=3e-15)


@pytest.mark.parametrize("count", [1, 2, 3, 50, 4000])
def test_it_is_the_law_that_dp_accounting_has(count: int) -> None:
    multiples, values = gaussian_dots(0.02, 0.002, 80)
    kept = np.sort(np.random.default_rng(3).choice(multiples.size, 60, replace=False))
    law = LossLaw.through(0.002, multiples[kept], values[kept])
    theirs = create_pmf_pessimistic_connect_dots(0.002, multiples[kept], values[kept]).to_dense_pmf()
    assert (law.first, law.infinite) == (theirs._lower_loss, theirs._infinity_mass)
    assert law.mass.tolist() == theirs._probs.tolist()
    sums, their_sums = law.times(count, 1e-15), theirs.self_compose(count, 1e-15)
    assert isinstance(their_sums, DensePLDPmf)
    both, their_both = sums.plus(law), their_sums.compose(theirs)
    for one, their_one in ((law, theirs), (sums, their_sums), (both, their_both)):
        assert (one.first, one.mass.size) == (their_one._lower_loss, their_one.size)
        assert one.infinite == pytest.approx(their_one._infinity_mass, rel=1e-12)
        for epsilon in EPSILONS:
            assert one.delta(epsilon) == pytest.approx(their_one.get_delta_for_epsilon(epsilon), abs=1e-15)


def test_what_is_cut_is_infinite() -> None:
    """A window of a few standard deviations: never below the exact delta, above it by what was cut at most."""
    law = LossLaw(0.01, -1, np.array([0.5, 0.0, 0.5]), 0.0)
    exact, cut = law.times(1000, 1e-15), law.times(1000, 1e-3)
    assert cut.mass.size < 400 < exact.mass.size
    for epsilon in EPSILONS:
        assert exact.delta(epsilon) - 2e-15 <= cut.delta(epsilon) <= exact.delta(epsilon) + 2.1e-3


def test_a_loss_that_is_always_infinite_stays_so() -> None:
    assert LossLaw(0.1, 0, np.zeros(1), 1.0).times(3, 1e-15).infinite == 1.0
