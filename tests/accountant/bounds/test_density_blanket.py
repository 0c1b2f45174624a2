"""Randomizers with densities: cells, blankets and certificates, against sums from the definitions."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from croupier import Budgets, GaussianMechanism, KaryRandomizedResponse, LaplaceMechanism, TableMechanism
from croupier.accountant.bounds.density_blanket import LossPair, RateBins, best_blanket
from croupier.accountant.bounds.profile import Curve
from croupier.accountant.bounds.spans import SpanProfile
from croupier.accountant.lower_bound import lower_bound
from croupier.accountant.mechanisms.additive_noise import AdditiveNoise, GaussianNoise, LaplaceNoise, interval_cells
from croupier.accountant.privacy_curve import Bounded
from croupier.protocol.codes import Method, ProofStep
from croupier.protocol.statements import Statement
from tests.support.accounting import certify_without_attack as certify
from tests.support.messages import naming
from tests.support.oracles.from_definitions import VECTORS, count_law
from tests.support.statements import codes, parameters

Floats = NDArray[np.float64]
NOISES: list[tuple[AdditiveNoise, float]] = [
    (LaplaceNoise(), 0.7),
    (LaplaceNoise(1), 1.3),
    (LaplaceNoise(2), 0.7),
    (LaplaceNoise(7), 2.0),
    (LaplaceNoise(1000), 0.3),
    (GaussianNoise(), 0.4),
    (GaussianNoise(1), 0.3),
    (GaussianNoise(4), 0.05),
    (GaussianNoise(9), 6.0),
]


def point_masses(noise: AdditiveNoise, rate: float, reach: int) -> dict[int, float]:
    """Masses of a lattice noise at distance j steps, from the definition."""
    step = 1 / (noise.lattice or 1)
    power = 1 if isinstance(noise, LaplaceNoise) else 2
    weights = {j: math.exp(-rate * (abs(j) * step) ** power) for j in range(-reach, reach + 1)}
    total = math.fsum(weights.values())
    return {j: weight / total for j, weight in weights.items()}


@pytest.mark.parametrize(("noise", "rate"), NOISES, ids=str)
def test_cells_hold_all_of_the_victim(noise: AdditiveNoise, rate: float) -> None:
    cells = interval_cells(noise, rate, rate, noise.tail_at(1e-9, rate), 0.01)
    (pair,) = cells.pairs
    for mass in (pair.mass0, pair.mass1):
        assert 1 - 2 * pair.tail0 - 1e-9 <= mass.sum() <= 1 + 1e-9
    assert cells.width.sum() == pytest.approx(pair.width.sum())
    slack = 1 + 1e-9
    assert np.all(pair.low0 * pair.width <= pair.mass0 * slack + 1e-18)
    assert np.all(pair.high0 * pair.width * slack >= pair.mass0 - 1e-18)
    # No user's density is anywhere below the floor: the far end of the interval is the least favourable value.
    floor = np.exp(cells.log_floor(np.array([rate]))[0])
    assert np.all(floor[pair.cell] <= np.minimum(pair.low0, pair.low1) * slack)


@pytest.mark.parametrize(("noise", "rate"), [(n, r) for n, r in NOISES if n.lattice and n.lattice < 100], ids=str)
def test_lattice_masses_are_those_of_the_definition(noise: AdditiveNoise, rate: float) -> None:
    lattice, step = noise.lattice or 1, 1 / (noise.lattice or 1)
    exact = point_masses(noise, rate, 60 * lattice)
    for j in range(3 * lattice):
        mass = noise.mass(np.array([max(0.0, (j - 0.5) * step)]), np.array([(j + 0.5) * step]), rate)[0]
        assert mass == pytest.approx(exact[j] * (0.5 if j == 0 else 1), rel=1e-9, abs=1e-15)
        density = math.exp(float(noise.log_density(np.array([j * step]), np.array(rate))[0]))
        assert density * step == pytest.approx(exact[j], rel=1e-9)
    mean = math.fsum(mass * (j * step) ** 2 for j, mass in exact.items())
    assert noise.variance(rate) == pytest.approx(mean, rel=1e-9)


@pytest.mark.parametrize("lattice", [None, 3])
def test_moments_are_the_derivatives_of_the_partition(lattice: int | None) -> None:
    for noise in (LaplaceNoise(lattice), GaussianNoise(lattice)):
        for rate in (0.05, 0.8):
            h = 1e-3 * rate
            low, mid, high = (float(noise.log_partition(np.array(r))) for r in (rate - h, rate, rate + h))
            mean, variance = noise.moments(rate)
            assert mean == pytest.approx((low - high) / (2 * h), rel=1e-4)
            assert variance == pytest.approx((low - 2 * mid + high) / h**2, rel=1e-2)


# ------------------------------------------------------------------ certificates against data sets


def shuffled_law(parts: Sequence[Floats]) -> Floats:
    """The law of the reports in an order drawn at random: an array with one axis for every report."""
    law = functools.reduce(np.multiply.outer, parts)
    orders = list(itertools.permutations(range(law.ndim)))
    return np.asarray(sum(law.transpose(order) for order in orders) / len(orders))


def exact_deltas(
    noise: AdditiveNoise, rates: Sequence[float], victim: int, epsilons: Sequence[float], reach: int
) -> list[float]:
    """The largest divergences over all data sets on the lattice; beyond the reach nothing is added: lower bounds."""
    steps, gains, worst = noise.lattice or 1, np.exp(epsilons), np.zeros(len(epsilons))
    laws = [point_masses(noise, rate, 40 * steps) for rate in rates]

    def report(user: int, value: int) -> Floats:
        return np.array([laws[user].get(z - value, 0.0) for z in range(-reach, steps + reach + 1)])

    others = [user for user in range(len(rates)) if user != victim]
    for values in itertools.product(range(steps + 1), repeat=len(others)):
        rest = [report(user, value) for user, value in zip(others, values, strict=True)]
        seen = [shuffled_law([*rest, report(victim, x)]) for x in range(steps + 1)]
        for p, q in itertools.permutations(seen, 2):
            sticks = [np.maximum(p - gain * q, 0.0).sum() for gain in gains]
            worst = np.maximum(worst, sticks)
    return list(worst.tolist())


@pytest.mark.parametrize("lattice", [1, 2])
@pytest.mark.parametrize("budgets", [(1.0, 1.0), (0.5, 2.0, 2.0), (0.4, 1.0, 3.0), (4.0, 0.1)])
def test_no_data_set_is_worse_than_a_laplace_certificate(lattice: int, budgets: tuple[float, ...]) -> None:
    epsilons = (0.0, 0.2, 0.7)
    certificates = [certify(list(budgets), LaplaceMechanism(lattice), epsilon=epsilon) for epsilon in epsilons]
    for budget in set(budgets):
        worst = exact_deltas(LaplaceNoise(lattice), budgets, budgets.index(budget), epsilons, 6)
        for epsilon, certificate, least in zip(epsilons, certificates, worst, strict=True):
            (tier,) = (t for t in certificate.tiers if t.local_epsilon == budget)
            assert (least > 0) == (epsilon < budget)
            assert least <= tier.delta * (1 + 1e-9)


@pytest.mark.parametrize("lattice", [1, 2])
def test_no_data_set_is_worse_than_a_gaussian_certificate(lattice: int) -> None:
    budgets = [(1.0, 0.01), (0.5, 0.05), (2.0, 0.01)]
    epsilons, deltas = (np.array(column) for column in zip(*budgets, strict=True))
    rates = GaussianMechanism(lattice).rates(epsilons, deltas).tolist()
    tiers = [(budget[0], 1, budget[1]) for budget in budgets]
    certificates = [certify(Budgets.from_tiers(tiers), GaussianMechanism(lattice), epsilon=e) for e in (0.05, 0.3)]
    for victim, budget in enumerate(budgets):
        worst = exact_deltas(GaussianNoise(lattice), rates, victim, [0.05, 0.3], 6)
        for certificate, least in zip(certificates, worst, strict=True):
            (tier,) = (t for t in certificate.tiers if t.local_epsilon == budget[0])
            assert least <= tier.delta * (1 + 1e-9)


def interval_attack(
    tiers: Sequence[tuple[float, int]], epsilon: float, threshold: float, victim: float | None = None
) -> float:
    """Victim (one of the largest budget) at 0 or 1, all others at 1: the count of reports below the threshold."""

    def below(budget: float, value: float) -> float:
        distance = threshold - value
        tail = 0.5 * math.exp(-budget * abs(distance))
        return tail if distance < 0 else 1 - tail

    own = victim or max(budget for budget, _ in tiers)
    rest = count_law([(below(budget, 1.0), count - (budget == own)) for budget, count in tiers])
    p, q = (np.convolve(rest, [1 - below(own, x), below(own, x)]) for x in (0.0, 1.0))
    gain = math.exp(epsilon)
    return max(float(np.maximum(a - gain * b, 0).sum()) for a, b in ((p, q), (q, p)))


@pytest.mark.parametrize("row", VECTORS["laplace_large"], ids=str)
def test_laplace_agrees_with_the_vectors(row: dict[str, Any]) -> None:
    tiers = [(epsilon, count) for count, epsilon in row["tiers"]]
    certificate = certify(Budgets.from_tiers(tiers), LaplaceMechanism(), delta=row["delta"], bounds="blanket")
    assert certificate.epsilon <= float(row.get("epsilon") or row["epsilon_at_most"]) * 1.01
    assert certificate.epsilon >= row.get("attack", 0.0)
    if "epsilon" in row:  # equal budgets: the two-parameter blanket is as good as any that is known
        assert certificate.epsilon >= row["epsilon"] * 0.985
    if certificate.num_users <= 10_000:
        for threshold in (-0.5, 0.0, 0.5):
            assert interval_attack(tiers, certificate.epsilon, threshold) <= row["delta"]


def test_fine_lattices_come_to_the_line() -> None:
    line = certify([0.5] * 500 + [1.0] * 500, LaplaceMechanism(), delta=1e-6, bounds="blanket").epsilon
    fine = certify([0.5] * 500 + [1.0] * 500, LaplaceMechanism(100_000), delta=1e-6, bounds="blanket").epsilon
    assert fine == pytest.approx(line, rel=2e-3)


def shifted_pair(noise: AdditiveNoise, rate: float, values: tuple[float, float], reach: float) -> LossPair:
    """The densities of two values inside the interval, on pieces cut at mirrored places."""
    cells = interval_cells(noise, rate, rate, reach, 0.02)
    right = np.concatenate([[0.5], 0.5 + np.cumsum(cells.width / 2)])
    low, high = np.concatenate([1 - right[1:], right[:-1]]), np.concatenate([1 - right[:-1], right[1:]])

    def part(value: float) -> tuple[Floats, Floats, Floats]:
        inside, ends = (low < value) & (value < high), np.sort(np.abs([low - value, high - value]), axis=0)
        near, far = np.where(inside, 0.0, ends[0]), ends[1]
        mass = noise.mass(near, far, rate) + np.where(inside, noise.mass(np.zeros(near.size), ends[0], rate), 0.0)
        least, most = (np.exp(noise.log_density(distance, np.array(rate))) for distance in (far, near))
        return mass, least, most

    (mass0, low0, high0), (mass1, low1, high1) = (part(value) for value in values)
    cell = np.concatenate([np.arange(cells.width.size)] * 2)
    width = np.concatenate([cells.width, cells.width]) / 2
    return LossPair(cell, width, mass0, low0, high0, mass1, low1, high1, tail0=1 - float(mass0.sum()))


@pytest.mark.parametrize("noise", [LaplaceNoise(), GaussianNoise()], ids=str)
@pytest.mark.parametrize("epsilon", [0.02, 0.1])
def test_the_two_ends_are_the_worst_pair_of_values(noise: AdditiveNoise, epsilon: float) -> None:
    rate, reach = (1.0, 12.0) if isinstance(noise, LaplaceNoise) else (0.1, 9.0)
    cells = interval_cells(noise, rate, rate, reach, 0.02)
    rates = np.array([rate, 0.6 * rate])
    others = RateBins.of(rates, np.array([150, 150]), 0)
    curve = best_blanket(5.0, cells, cells, others, Statement.of(ProofStep.NO_BLANKET, randomizer="none"))
    ends = curve.delta(epsilon).value
    for values in [(0.0, 0.5), (0.25, 0.75), (0.0, 0.9), (0.9, 0.0), (1.0, 0.0), (0.5, 0.0), (0.4, 1.0), (0.6, 0.55)]:
        inner = shifted_pair(noise, rate, values, reach)
        changed = type(cells)(cells.width, cells.log_floor, (inner,), cells.shape, cells.pool)
        other = replace(curve, cells=changed)
        assert other.delta(epsilon).value <= ends * 1.002  # both are discretised, upwards


# ------------------------------------------------------------------ tables, spans, monotonicity


def krr_table(epsilon: float, k: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    table = np.full((k, k), 1 / (math.exp(epsilon) + k - 1))
    np.fill_diagonal(table, math.exp(epsilon) / (math.exp(epsilon) + k - 1))
    return table


@pytest.mark.parametrize("counts", [pytest.param((3, 1, 1), marks=pytest.mark.slow), (40, 50, 60), (600, 800, 600)])
def test_a_table_of_krr_agrees_with_the_closed_form(counts: tuple[int, int, int]) -> None:
    budgets = Budgets.from_tiers(list(zip((0.5, 1.0, 2.0), counts, strict=True)))
    table = TableMechanism({e: krr_table(e, 4) for e in (0.5, 1.0, 2.0)})
    for epsilon in (0.03, 0.2):
        closed = certify(budgets, KaryRandomizedResponse(4), epsilon=epsilon)
        blanket = certify(budgets, table, epsilon=epsilon, bounds="blanket")
        for ours, exact in zip(blanket.tiers, closed.tiers, strict=True):
            assert exact.delta * (1 - 1e-6) <= ours.delta <= exact.delta * 1.02 + 1e-12


def test_a_budget_without_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match=naming("0.7")):
        certify([0.7] * 5, TableMechanism({1.0: krr_table(1.0, 3)}), delta=1e-3)


class Falling(Curve):
    """A part of a span: the smaller the rates, the larger its delta."""

    proved_by = Method.BLANKET_DENSITY

    def __init__(self, low: float) -> None:
        self.low = low

    def delta(self, epsilon: float) -> Bounded:
        return Bounded(math.exp(-self.low - epsilon), 0.0)

    def guess(self, delta: float) -> float:
        return -math.log(delta) - self.low

    def explain(self) -> tuple[Statement[ProofStep], ...]:
        return ()


def span_of(least: float, most: float) -> SpanProfile:
    step = Statement.of(ProofStep.RATES_COVERED, least=least, most=most)
    part: Any = lambda low, high: Falling(low)  # noqa: E731
    leader: Any = Falling(most * 0.99)
    return SpanProfile(leader, least, most, 0.01, part, step, are_budgets=False)


@pytest.mark.parametrize(("most", "target"), [(2.0, 0.01), (2.0, 0.1), (2.0, 0.2), (4.0, 0.01)])
def test_the_delta_of_a_span_covers_all_of_it(most: float, target: float) -> None:
    """Not by the local budget: users of little budget are seen in the tails, last at six times the leader's epsilon."""
    span = span_of(1.0, most)
    assert span.delta(0.0).value >= Falling(1.0).delta(0.0).value
    solution, needed = span.smallest_epsilon(target, 100.0), Falling(1.0).guess(target)
    assert needed <= solution.epsilon < 1.01 * needed
    assert solution.reached is not None
    assert solution.reached.value <= target


@pytest.mark.slow
def test_a_span_covers_every_victim_in_it() -> None:
    rng = np.random.default_rng(5)
    budgets = np.sort(np.round(rng.uniform(0.4, 1.5, 140), 6))
    tiers = [(float(budget), 1) for budget in budgets]
    certificate = certify(budgets, LaplaceMechanism(), delta=1e-3, bounds="blanket")
    assert sum(tier.count for tier in certificate.tiers) == 140
    least = 0.0
    for tier in certificate.tiers:
        members = budgets[(budgets > least) & (budgets <= tier.local_epsilon)]
        assert members.size == tier.count
        assert tier.epsilon < members[0]
        if least == 0.0:
            attack = lower_bound(budgets, LaplaceMechanism(), victim=float(members[-1]), delta=1e-3)
            assert 0 < attack.epsilon <= tier.epsilon
        for member, threshold in itertools.product(members[::12].tolist(), (-1.0, -0.5, 0.0)):
            assert interval_attack(tiers, tier.epsilon, threshold, member) <= 1e-3
        least = tier.local_epsilon


@pytest.mark.parametrize("noise", [LaplaceNoise(), LaplaceNoise(20), GaussianNoise(), GaussianNoise(5)], ids=str)
def test_rates_between_two_are_a_mixture_up_to_the_remainder(noise: AdditiveNoise) -> None:
    low, high = 0.5, 0.6
    low_pair, high_pair = interval_cells(noise, low, high, 10.0, 0.01).pairs
    for rate in (0.5, 0.52, 0.55, 0.59, 0.6):
        (single,) = interval_cells(noise, rate, rate, 10.0, 0.01).pairs
        part = (high - rate) / (high - low)
        above = part * low_pair.mass0 + (1 - part) * high_pair.mass0
        below = part * low_pair.mass1 + (1 - part) * high_pair.mass1
        assert np.all(single.mass0 <= above * (1 + 1e-9) + 1e-15)
        assert np.all(single.mass1 >= below * (1 - 1e-9) - 1e-15)
        assert above.sum() < 1.02  # and the remainder is of second order


def test_rate_bins_lie_stochastically_below() -> None:
    rng = np.random.default_rng(2)
    rates = rng.uniform(0.1, 3.0, 500)
    crowd = RateBins.of(rates, np.ones(500, dtype=np.int64), 3)

    def weights(at: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Any:
        return -0.2 * at * at - 0.1  # concave in the rate, as ln gamma is

    law = np.cumsum(count_law([(float(g), n) for g, n in crowd.weights(weights)]))
    gamma = np.sort(np.exp(weights(rates)))[:-3]
    exact = np.cumsum(count_law([(float(g), 1) for g in gamma]))
    assert np.all(law >= exact - 1e-12)
    assert float(sum(g * n for g, n in crowd.weights(weights))) > 0.98 * gamma.sum()


@pytest.mark.parametrize("randomizer", [LaplaceMechanism(), LaplaceMechanism(10), GaussianMechanism()], ids=str)
def test_certificates_grow_and_fall_as_they_must(randomizer: LaplaceMechanism | GaussianMechanism) -> None:
    def epsilon(local: float, n: int, delta: float = 1e-5, dishonest: int = 0) -> float:
        tiers = Budgets.from_tiers([(local, n, 1e-7)])
        return certify(tiers, randomizer, delta=delta, dishonest=dishonest, bounds="blanket").epsilon

    small = 1 + 2e-3  # blankets are searched for, not solved for
    assert epsilon(1.0, 400) <= epsilon(1.0, 200) * small
    assert epsilon(0.5, 400) <= epsilon(1.0, 400) * small
    assert epsilon(1.0, 400, 1e-4) <= epsilon(1.0, 400, 1e-6) * small
    assert epsilon(1.0, 400) <= epsilon(1.0, 400, dishonest=40) * small
    assert epsilon(1.0, 400, dishonest=40) == pytest.approx(epsilon(1.0, 360), rel=2e-3)


def test_gaussian_noise_in_many_dimensions_is_not_amplified() -> None:
    certificate = certify(Budgets.from_tiers([(1.0, 1000, 1e-6)]), GaussianMechanism(dimension=60), delta=1e-6)
    assert (certificate.epsilon, codes(certificate.method)) == (1.0, [Method.LOCAL_BUDGET])
    assert certificate.everyone_else_colludes.delta == 1e-6
    assert parameters(certificate.tiers[0].steps, ProofStep.LENGTH_SHOWS_SIGMA) == {"dimension": 60}


def test_a_local_delta_above_the_target_is_not_hidden() -> None:
    """One user alone has its own (epsilon, delta), and no smaller delta."""
    certificate = certify(Budgets.from_tiers([(1.0, 1, 1e-3)]), GaussianMechanism(), delta=1e-6)
    assert (certificate.epsilon, certificate.delta) == (1.0, 1e-3)


def test_gaussian_users_without_a_local_delta_are_refused() -> None:
    with pytest.raises(ValueError, match=naming("local_delta is 0", "0 < local_delta < 1", "(1, 10, 1e-8)")):
        certify([1.0] * 10, GaussianMechanism(), delta=1e-6)
    assert certify(budgets=Budgets.from_tiers([(1, 10, 1e-8)]), randomizer=GaussianMechanism(), delta=1e-6).epsilon <= 1
