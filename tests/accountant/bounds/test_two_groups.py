"""The exchange bound in two groups: its theorem in exact rationals, chords, data sets and attacks."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from croupier import Budgets, certify
from croupier.accountant.bounds import noise_sums, two_groups
from croupier.accountant.bounds.best_split import HostGroup, best_split
from croupier.accountant.bounds.exchange_laplace import (
    ExchangeLaplaceProfile,
    exchange_laplace_profile,
    gamma_of,
)
from croupier.accountant.bounds.group_choice import two_group_profile
from croupier.accountant.bounds.noise_sums import NoiseSums
from croupier.accountant.bounds.profile import Others, Victim
from croupier.accountant.bounds.split_laws import Distances, Split
from croupier.accountant.bounds.two_groups import GroupSums, TwoGroupProfile, covering
from croupier.accountant.lower_bound import lower_bound
from croupier.accountant.numerics.clock_stages import stages
from croupier.accountant.ranges import LINKAGES
from tests.support.cuts import all_within, density, grid
from tests.support.drawn import drawn
from tests.support.histograms import histogram, letters

Floats = NDArray[np.float64]
Tiers = list[tuple[float, int]]


def others_of(tiers: Tiers, victim: float, dishonest: int = 0) -> Others:
    """All users but one of the victim's budget."""
    count = np.array([n - (e == victim) for e, n in tiers], dtype=np.int64)
    return Others(np.array([e for e, _ in tiers]), np.zeros(len(tiers)), count, dishonest)


def curve_among(tiers: Tiers, victim: float, delta: float | None, dishonest: int = 0) -> TwoGroupProfile | None:
    others = others_of(tiers, victim, dishonest)
    own = exchange_laplace_profile(Victim(victim), others, delta)
    return two_group_profile(own, Victim(victim), others, delta)


def rational(rng: np.random.Generator, least: int = 1) -> list[Fraction]:
    """A law on three letters."""
    parts = rng.integers(least, 10, 3) + np.array([0, 0, 1 - least])
    return [Fraction(int(part), int(parts.sum())) for part in parts]


@given(st.integers(0, 2**32 - 1))
@drawn(20)
def test_the_theorem_in_exact_rationals(seed: int) -> None:
    """Two hosts in either group, three letters, any signed measures: M D is the image of the slotted measure.

    By enumeration, whichever group gives omega; omega may vanish on a letter. Then the chords, as they are used.
    """
    rng = np.random.default_rng(seed)
    omega, other = rational(rng, int(rng.integers(2))), rational(rng)
    second_gives = bool(rng.integers(2))
    given_by = (other, omega) if second_gives else (omega, other)
    laws = [[rational(rng) for _ in range(2)] for _ in range(2)]
    alpha = [[Fraction(int(x), 7), 1 - Fraction(int(x), 7)] for x in rng.integers(1, 7, 2)]
    parts = [[Fraction(int(x), 10) for x in rng.integers(-20, 21, 3)] for _ in range(2)]
    whole = [a + b for a, b in zip(*parts, strict=True)]
    words = list(itertools.product(range(3), repeat=5))
    true: defaultdict[tuple[int, ...], Fraction] = defaultdict(Fraction)
    for first, second in itertools.product(range(2), repeat=2):
        rung = [[given_by[g] if k == (first, second)[g] else laws[g][k] for k in range(2)] for g in range(2)]
        for word in words:
            chance = alpha[0][first] * alpha[1][second] * whole[word[4]]
            for law, letter in zip((*rung[0], *rung[1]), word, strict=False):
                chance *= law[letter]
            true[tuple(sorted(word))] += chance

    def ratio(group: int, parts: list[Fraction], word: tuple[int, ...]) -> Fraction:
        places = word[2 * group : 2 * group + 2]
        return sum(
            (a * parts[y] / law[y] for a, law, y in zip(alpha[group], laws[group], places, strict=True)), Fraction()
        )

    slotted: defaultdict[tuple[int, ...], Fraction] = defaultdict(Fraction)
    positive = Fraction()
    for word in words:
        reference = given_by[0 if second_gives else 1][word[4]]
        for law, letter in zip((*laws[0], *laws[1]), word, strict=False):
            reference *= law[letter]
        u_one, a_one, u_two, a_two = (
            ratio(*arguments, word) for arguments in ((0, parts[0]), (0, omega), (1, parts[1]), (1, omega))
        )
        mass = reference * (u_one * a_two + a_one * u_two)
        slotted[tuple(sorted(word))] += mass
        positive += max(mass, Fraction())
    assert all(true[word] == slotted[word] for word in {*true, *slotted})
    assert sum((max(mass, Fraction()) for mass in true.values()), Fraction()) <= positive

    def mean(group: int, parts: list[Fraction]) -> float:
        total = Fraction()
        for pair in itertools.product(range(3), repeat=2):
            chance = laws[group][0][pair[0]] * laws[group][1][pair[1]]
            total += chance * max(Fraction(), ratio(group, parts, (*pair, *pair)))
        return float(total)

    knots, unit = sorted({Fraction(int(k), 10) for k in rng.integers(-60, 60, 6)}), float(rng.uniform(0.2, 1))
    heights = [mean(0, [a + s * o for a, o in zip(parts[0], omega, strict=True)]) for s in knots]
    corners = [mean(1, [a - s * o for a, o in zip(parts[1], omega, strict=True)]) for s in knots]
    above = np.array(heights) + rng.choice([0.0, 0.1, 0.4], len(heights))
    places = np.array([float(s) / unit for s in knots])
    assert float(positive) <= two_groups.chord_bound(places, unit, above, np.array(corners)) * (1 + 1e-12)


@given(st.integers(0, 2**32 - 1))
@drawn(40)
def test_chords_are_exact_for_a_broken_line(seed: int) -> None:
    """Where Phi is one, of any slopes up to 1, with breaks at the knots, nothing is lost, and no corner left out."""
    rng = np.random.default_rng(seed)
    knots = np.sort(rng.uniform(-3, 3, 7))
    rises = np.concatenate([np.sort(rng.uniform(0, 1, 6)), [1.0]])
    steps = np.diff(rises, prepend=0.0)
    base = float(rng.uniform(0, 1))
    a, u, chance = rng.uniform(0.1, 2, 9), rng.normal(size=9) * 3, rng.dirichlet(np.ones(9))
    a /= a @ chance
    phi = base + (steps * np.maximum(u[:, None] / a[:, None] - knots, 0)).sum(1)
    true = float((a * phi) @ chance)
    heights = base + (steps * np.maximum(knots[:, None] - knots, 0)).sum(1)
    corners = np.maximum(u[:, None] - knots * a[:, None], 0).T @ chance
    mass = float(rng.uniform(0.1, 1))
    bound = two_groups.chord_bound(knots / mass, mass, heights, corners)
    assert true <= bound * (1 + 1e-12)
    assert bound == pytest.approx(true, rel=1e-9)
    # A knot that is too high is not used, whether before or between others.
    for k in (0, 3):
        higher = heights + 5.0 * (np.arange(7) == k)
        assert true <= two_groups.chord_bound(knots / mass, mass, higher, corners) * (1 + 1e-12)
    third = knots == knots[2]
    assert two_groups.chord_bound(knots / mass, mass, np.where(third, math.inf, heights), corners) == math.inf
    assert two_groups.chord_bound(knots / mass, mass, heights, np.where(third, math.nan, corners)) == math.inf


@pytest.mark.slow
@pytest.mark.parametrize(("victim", "core", "tails"), [(20.0, 25.0, 10.0), (29.0, 30.0, 1.0), (3.0, 30.0, 1.0)])
def test_cuts_with_budgets_of_twenty_and_more(victim: float, core: float, tails: float) -> None:
    """The core of such hosts is so narrow that no cell beyond the victim's values holds any of it."""
    groups = group([core], [1000.0]), group([tails], [1000.0])
    for distance in (1.0, 0.1):
        deviation, split = best_split(victim, distance, 0.1, groups)
        assert 0 < deviation < math.inf
        curve = TwoGroupProfile(victim, *groups, split, 1e-6, deviation)
        assert curve.bound(0.9 * victim) > 0


def group(rates: list[float], count: list[float]) -> HostGroup:
    return HostGroup(np.array(rates), np.array(count))


def part_of(share: float, reach: float, scale: float) -> Split:
    """This share of D up to a distance, and a psi that falls."""
    split = all_within(reach, scale)
    falling = np.minimum(1, 2 - np.linspace(-1, 1, split.psi.size) ** 2)
    return replace(split, share=share * split.share, psi=split.psi * falling)


def test_one_set_of_clocks_in_either_group() -> None:
    """Weights are equal at all knots and add up to 1; a host's residual law agrees with its definition; and silence."""
    core, tails = group([0.9, 1.0], [300.0, 200.0]), group([0.3, 0.5], [400.0, 300.0])
    curve = TwoGroupProfile(1.0, core, tails, part_of(0.8, 0.5, 2.0), 1e-6)
    at = Distances.at(1.0, np.array([1.0, 0.3]), np.array([0.02, 0.1]), 0.05)
    for hosts, is_tails in ((core, False), (tails, True)):
        clocks = GroupSums.of(curve, hosts, at, curve.split, tails=is_tails).clocks
        assert clocks.weights @ hosts.count == pytest.approx(np.ones(2), abs=1e-12)
        for row in range(2):
            gamma = gamma_of(hosts.rates)
            if is_tails:
                gamma = np.array([curve.split.gamma(at, e)[row] for e in hosts.rates.tolist()])
            until = -math.log(clocks.silent[row])
            most = gamma @ hosts.count * noise_sums.LONGEST
            assert until == pytest.approx(min(-math.log(1e-9) - math.log(1e-6), most))
            ends, log_mass = stages(until)
            assert np.exp(clocks.log_mass[row]) == pytest.approx(np.exp(log_mass))
            rung = 1 - np.exp(-clocks.weights[row, :, None] * ends)
            left = (1 - rung / gamma[:, None]) / (1 - rung)
            assert (clocks.left[row] <= left).all()
            assert clocks.left[row] == pytest.approx(left, rel=1e-12)


def test_what_is_asked_of_the_two_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """At every knot the two parts add up to D, with one set of weights; and silence of either group is charged."""
    seen: list[NoiseSums] = []
    answers = iter([2.0, 3.0])

    def answered(rows: NoiseSums, step: float) -> Floats:
        seen.append(rows)
        return np.full(rows.mean.size, next(answers))

    monkeypatch.setattr(NoiseSums, "positive_parts", answered)
    core, tails = group([1.0], [25.0]), group([0.3, 0.5], [15.0, 15.0])
    curve = TwoGroupProfile(1.0, core, tails, part_of(0.8, 0.5, 2.0), 1e-30, knots=5)
    at = Distances.at(1.0, np.array([1.0, 0.5]), np.array([0.02, 0.02]), 0.05)
    bounds = curve.bounds(at)
    first, second = seen
    assert (len(first.families), len(second.families)) == (1, 2)
    assert (first.mean + second.mean).reshape(2, 5) == pytest.approx(
        np.repeat(-np.expm1(at.log_gain)[:, None], 5, axis=1)
    )
    assert (np.diff(first.mean.reshape(2, 5)) > 0).all()  # knots increase
    for rows in seen:
        assert (np.diff(rows.weights.reshape(2, 5, -1), axis=1) == 0).all()
        assert (np.diff(rows.left.reshape(2, 5, -1), axis=1) == 0).all()
    # Phi is 2 everywhere, so that the only corner is the last, and counts in full.
    groups = ((core, False), (tails, True))
    silent = [GroupSums.of(curve, hosts, at, curve.split, tails=of_tails).clocks.silent for hosts, of_tails in groups]
    z, width = grid(0.0, 1.0, reach=60.0)
    for row in range(2):
        d, gain = float(at.distance[row]), math.exp(at.log_gain[row])
        alone = float(np.maximum(density(1.0, 0.0, z) - gain * density(1.0, d, z), 0) @ width)
        lost = (silent[0][row] + silent[1][row]) * alone
        assert min(silent[0][row], silent[1][row]) * alone > 1e-6
        assert bounds[row] >= 5 + lost * (1 - 1e-4)
        assert bounds[row] == pytest.approx(5 + lost, rel=1e-6)


@given(st.integers(0, 2**32 - 1))
@drawn(12)
def test_every_pair_of_values_is_covered_by_two_distances(seed: int) -> None:
    """f_0 - E f_d is pointwise below a mean of the two ends' differences, and the hosts are in their intervals."""
    rng = np.random.default_rng(seed)
    victim = float(np.exp(rng.uniform(math.log(0.05), math.log(5))))
    epsilon = victim * float(np.exp(rng.uniform(math.log(1e-3), 0)))
    steep = victim * float(rng.uniform(1, 4))
    cover = covering(victim, epsilon, steep)
    if cover is None:
        assert steep > 5 * math.sqrt(epsilon)
        return
    ends = cover.distance
    assert ends.size <= two_groups.MOST_DISTANCES
    assert ends[0] == 1
    assert ends[-1] <= epsilon / victim
    assert (cover.log_gain > 0).all()
    d = float(rng.uniform(epsilon / victim, 1))
    upper = int(np.flatnonzero(ends >= d)[-1])
    lower = upper + 1
    z = np.unique(np.concatenate([np.linspace(-3, 4, 2_001), ends[[upper, lower]], [0.0, d]]))
    h = ends[upper] - ends[lower]
    share = math.sinh(victim * (d - ends[lower])) / math.sinh(victim * h)
    rest = math.sinh(victim * (ends[upper] - d)) / math.sinh(victim * h)
    share = share / (share + rest)
    least = sum(
        part * (density(victim, 0.0, z) - math.exp(cover.log_gain[k]) * density(victim, float(ends[k]), z))
        for part, k in ((share, upper), (1 - share, lower))
    )
    assert (density(victim, 0.0, z) - math.exp(epsilon) * density(victim, d, z) <= least + 1e-12 * victim).all()
    for k in (upper, lower):
        assert cover.nearest[k] <= d


def drawn_curve(rng: np.random.Generator, users: int, delta: float) -> tuple[TwoGroupProfile, Tiers]:
    """A curve with a cut and groups that are drawn, and the others that are honest."""
    larger = bool(rng.integers(3))
    victim = float(rng.uniform(0.3, 1.2) if larger else rng.uniform(0.8, 2.5))
    tiers: Tiers = [
        (victim * float(rng.uniform(0.1, 0.6)), int(rng.integers(users // 8, users // 2))),
        (victim * float(rng.uniform(0.7, 0.95)), int(rng.integers(0, users // 4))),
        (victim, int(rng.integers(users // 8, users // 3))),
    ]
    if larger:
        tiers.append((victim * float(rng.uniform(1.05, 2.2)), int(rng.integers(users // 2, users))))
        tiers.append((victim * float(rng.uniform(2.3, 3)), int(rng.integers(0, users // 4))))
    tiers = [(e, n) for e, n in tiers if n]
    rates, count = [e for e, _ in tiers], [float(n) for _, n in tiers]
    small = sum(e <= victim for e in rates)
    low = int(rng.integers(1, min(small, len(tiers) - 1) + 1))
    top = len(tiers) if rng.random() < 0.7 else int(rng.integers(low + 1, len(tiers) + 1))
    radius = float(rng.choice([rng.uniform(0.02, 0.3), rng.uniform(0.3, 5)])) / victim
    scale = victim + rates[top - 1]
    split = part_of(float(rng.choice([1.0, rng.uniform(0.6, 1), rng.uniform(0.1, 0.6)])), radius, scale)
    core, tails = group(rates[low:top], count[low:top]), group(rates[:low], count[:low])
    return TwoGroupProfile(victim, core, tails, split, delta), tiers


def useful(curve: TwoGroupProfile, delta: float) -> float:
    """About the epsilon at which section 6 gives this delta."""
    low, high = 0.0, curve.local_epsilon
    for _ in range(6):
        middle = (low + high) / 2
        low, high = (low, middle) if curve.bound(middle) <= delta else (middle, high)
    return high


def score_divergence(first: Floats, second: Floats, others: list[tuple[Floats, int]], gain: float) -> float:
    """The divergence of a sum of whole scores; each law is over scores 0, 1, ...; by Fourier sums."""
    size = 1 << math.ceil(math.log2(sum(n for _, n in others) * (first.size - 1) + first.size))
    crowd = np.prod([np.fft.rfft(law, size) ** n for law, n in others], axis=0)
    laws = [np.fft.irfft(crowd * np.fft.rfft(law, size), size) for law in (first, second)]
    return float(np.maximum(laws[0] - gain * laws[1], 0).sum())


def scored(rate: float, centre: float, cuts: Floats, score: NDArray[np.int64], levels: int) -> Floats:
    t = cuts - centre
    below = np.where(t < 0, 0.5 * np.exp(-rate * np.abs(t)), 1 - 0.5 * np.exp(-rate * np.abs(t)))
    return summed(score, np.diff(np.concatenate([[0.0], below, [1.0]])), levels)


def summed(score: NDArray[np.int64], law: Floats, levels: int) -> Floats:
    """The law of the score."""
    return np.bincount(score, weights=law, minlength=levels + 1).astype(np.float64)


def score_test(
    others: Tiers,
    at: Sequence[float],
    pair: tuple[float, float],
    victim: float,
    epsilon: float,
    cuts: Floats,
    levels: int,
) -> float:
    """Returns the result of the sum of scores that is the best test for data with every tier at its place."""
    gain, plain = math.exp(epsilon), np.arange(cuts.size + 1)
    own = [scored(victim, x, cuts, plain, cuts.size) for x in pair]
    crowd = sum(n * scored(e, x, cuts, plain, cuts.size) for (e, n), x in zip(others, at, strict=True))
    statistic = (own[0] - gain * own[1]) / crowd
    low, high = statistic.min(), statistic.max()
    score = np.rint((statistic - low) / (high - low) * levels).astype(np.int64)
    laws = [summed(score, law, levels) for law in own]
    around = [(scored(e, x, cuts, score, levels), n) for (e, n), x in zip(others, at, strict=True)]
    return score_divergence(laws[0], laws[1], around, gain)


def worst_scores(
    others: Tiers, victim: float, epsilon: float, cells: int, levels: int, pairs: tuple[tuple[float, float], ...]
) -> float:
    """The largest divergence, of data with every tier at an end, of the sum of scores that is the best test for them.

    Scores are a post-processing of the shuffled reports.
    """
    cuts, ends = np.linspace(-4 / victim, 1 + 4 / victim, cells), itertools.product((0.0, 1.0), repeat=len(others))
    tried = itertools.product(list(ends), pairs)
    return max(score_test(others, at, pair, victim, epsilon, cuts, levels) for at, pair in tried)


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1))
@drawn(2)
def test_no_data_set_of_some_hundred_users_is_worse(seed: int) -> None:
    rng = np.random.default_rng(seed)
    delta = float(rng.choice([1e-1, 1e-2, 1e-4]))
    curve, tiers = drawn_curve(rng, 1_200, delta)
    epsilon = useful(curve, delta) * float(rng.uniform(0.9, 1))
    worst = worst_scores(tiers, curve.local_epsilon, epsilon, 120, 30, ((0.0, 1.0), (1.0, 0.0), (0.1, 0.8)))
    assert worst <= curve.bound(epsilon) + 1e-12


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tiers", "victim", "delta", "most"),
    [
        ([(0.3, 300), (0.5, 900)], 0.3, 1e-3, 1.25),
        ([(0.3, 600), (0.5, 1_200)], 0.3, 1e-6, 1.35),
    ],
)
def test_the_bound_is_just_above_a_data_set(tiers: Tiers, victim: float, delta: float, most: float) -> None:
    """So that a mistake of a quarter of delta is noticed."""
    curve = curve_among(tiers, victim, delta)
    assert curve is not None
    epsilon = epsilon_of(curve, delta)
    others = [(e, n - (e == victim)) for e, n in tiers]
    worst = worst_scores(others, victim, epsilon, 300, 120, ((0.0, 1.0),))
    assert worst <= curve.bound(epsilon) <= most * worst


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1))
@drawn(2)
def test_no_data_set_of_three_letters_is_worse(seed: int) -> None:
    """Reports shown in three categories, every histogram enumerated; values and cuts anywhere."""
    rng = np.random.default_rng(seed)
    delta = float(rng.choice([0.2, 0.05, 1e-2]))
    curve, tiers = drawn_curve(rng, 90, delta)
    victim, rates = curve.local_epsilon, np.repeat([e for e, _ in tiers], [n for _, n in tiers])
    epsilons = [useful(curve, delta), float(rng.uniform(0.02, 0.5)) * victim]
    bounds = [curve.bound(epsilon) for epsilon in epsilons]
    for _ in range(6):
        pair = rng.permutation([0.0, 1.0]) if rng.random() < 0.7 else rng.uniform(0, 1, 2)
        values = rng.choice([np.zeros(rates.size), np.ones(rates.size), rng.uniform(0, 1, rates.size)])
        cuts = np.sort(rng.choice([pair[0], pair[1], 0.5, rng.uniform(-1, 2)], 2, replace=False))
        laws = [histogram(letters(np.append(rates, victim), np.append(values, own), cuts)) for own in pair]
        for epsilon, bound in zip(epsilons, bounds, strict=True):
            assert float(np.maximum(laws[0] - math.exp(epsilon) * laws[1], 0).sum()) * (1 - 1e-10) <= bound


def epsilon_of(curve: TwoGroupProfile, delta: float) -> float:
    return curve.smallest_epsilon(delta, curve.local_epsilon).epsilon


MOSTLY_LARGER = [
    ([(0.3, 100_000), (0.5, 900_000)], 0.3, 1e-6, 0.00087),
    ([(0.05, 500), (1.0, 500), (2.0, 9_000)], 1.0, 1e-6, 0.058),
    ([(1.0, 20_000), (3.0, 980_000)], 1.0, 1e-6, 0.0107),
    ([(0.25, 3_000), (0.5, 10_000), (1.0, 87_000)], 0.25, 1e-9, 0.0101),
]


@pytest.mark.slow
@pytest.mark.parametrize(("tiers", "victim", "delta", "most"), MOSTLY_LARGER)
def test_between_the_attack_and_what_the_largest_victims_have(
    tiers: Tiers, victim: float, delta: float, most: float
) -> None:
    """Among the smaller budgets alone they had 2 to 2.5 times what the attack proves for the largest."""
    curve = curve_among(tiers, victim, delta)
    assert curve is not None
    epsilon, attack = epsilon_of(curve, delta), lower_bound(Budgets.from_tiers(tiers), "laplace", delta=delta)
    own = lower_bound(Budgets.from_tiers(tiers), "laplace", victim=victim, delta=delta).epsilon
    assert own <= epsilon <= most
    assert epsilon <= 1.01 * attack.epsilon
    own_bound = exchange_laplace_profile(Victim(victim), others_of(tiers, victim), delta)
    assert isinstance(own_bound, ExchangeLaplaceProfile)
    assert own_bound.delta(1.5 * epsilon).value > delta
    chords = curve.to_compose(delta, victim)
    assert chords is not None
    for share in (0.3, 0.7):  # a curve of many points is as sound
        assert chords.delta(share * epsilon).value >= curve.delta(share * epsilon).value * (1 - 1e-9)


@pytest.mark.slow
def test_a_victim_with_few_like_it() -> None:
    """Near its values the larger budgets give what is needed there; by those of its own kind alone it has .089."""
    tiers = [(0.242, 95), (0.79, 185), (2.68, 20_700)]
    curve = curve_among(tiers, 0.242, 1e-6)
    assert curve is not None
    attack = lower_bound(Budgets.from_tiers(tiers), "laplace", victim=0.242, delta=1e-6).epsilon
    assert attack <= epsilon_of(curve, 1e-6) < 0.0665


def assert_hosts_of(curve: TwoGroupProfile, rates: Floats, count: Floats) -> None:
    """Every user of either group is one of these, at most once."""
    held = np.array([curve.core.count[curve.core.rates == e].sum() for e in rates])
    held += [curve.tails.count[curve.tails.rates == e].sum() for e in rates]
    assert (held == count).all()


@pytest.mark.slow
@pytest.mark.parametrize(("delta", "users", "most", "dishonest"), [(1e-12, 10_000, 1.1, 200), (1e-3, 500, 2.0, 0)])
def test_no_attack_is_better(delta: float, users: int, most: float, dishonest: int) -> None:
    tiers, victim = [(0.3, users), (0.5, 9 * users)], 0.3
    curve = curve_among(tiers, victim, delta, dishonest)
    assert curve is not None
    left = [n - dishonest - (e == victim) for e, n in tiers]
    assert_hosts_of(curve, np.array([e for e, _ in tiers]), np.array(left))
    attack = lower_bound(Budgets.from_tiers(tiers), "laplace", victim=victim, delta=delta, dishonest=dishonest)
    assert attack.epsilon <= epsilon_of(curve, delta) <= most * attack.epsilon


@pytest.mark.slow
def test_where_it_is_used() -> None:
    """Both sides of each threshold: larger budgets, what the largest has, eight budgets, spans and what can be used."""
    larger = [(0.5 + 0.001 * k, 10_000) for k in range(8)]
    assert curve_among([(0.3, 1_000), *larger[:7]], 0.3, 1e-6) is not None
    assert curve_among([(0.3, 1_000), *larger], 0.3, 1e-6) is None  # nine budgets
    assert curve_among([(0.3, 1_000), (0.5, 9_000)], 0.5, 1e-6) is None  # nobody has more
    assert curve_among([(0.3, 9_000), (0.5, 1_000)], 0.3, 1e-6) is None  # it has less than the largest anyway
    assert curve_among([(0.3, 1_000), (0.5, 9_000)], 0.3, 1e-6, dishonest=9_000) is None
    assert curve_among([(0.3, 1_000), (31.0, 9_000)], 0.3, 1e-6) is None
    assert curve_among([(30.5, 1_000), (31.0, 9_000)], 30.5, 1e-6) is None
    assert curve_among([(0.05, 50_000), (3.0, 50_000)], 3.0, 1e-6) is None  # however different they are
    assert curve_among([(0.45, 1), (0.5, 900_000)], 0.45, 1e-6) is None  # no host hides its tails
    for number, kept in ((4, True), (5, False)):  # curves of many points have up to four budgets
        few = curve_among([(0.3, 1_000), *larger[: number - 1]], 0.3, 1e-6)
        assert few is not None
        assert (few.to_compose(1e-6, 0.3) is not None) == kept
    silent = curve_among([(0.3, 3), (0.5, 9_000)], 0.3, 1e-6)  # clocks may stay silent: it is of no use
    assert silent is not None
    assert silent.delta(0.2).value > 1e-3
    span, many = Victim(0.3, 0.0, ((0.29, 0.0), (0.3, 0.0))), others_of([(0.3, 1_000), (0.5, 9_000)], 0.3)
    assert two_group_profile(exchange_laplace_profile(span, many, 1e-6), span, many, 1e-6) is None


@pytest.mark.slow
def test_what_it_claims_where_it_is_of_no_use() -> None:
    curve = curve_among([(0.3, 1_000), (0.5, 9_000)], 0.3, 1e-6)
    assert curve is not None
    assert covering(0.3, 0.0, 0.5) is None
    assert covering(0.3, 0.3, 0.5) is None
    assert curve.bound(0.0) == math.inf
    assert curve.bound(1e-9) == math.inf  # too many distances
    assert curve.delta(0.3).value == curve.delta(0.4).value == 0
    for epsilon in (0.0, 1e-9, 0.01, 0.1, 0.2999999):
        bound = curve.delta(epsilon)
        assert 0 < bound.value <= -math.expm1((epsilon - 0.3) / 2) * (1 + 1e-12)
        assert 0 <= bound.slack <= bound.value
    with pytest.raises(ValueError, match="epsilon"):
        curve.delta(-0.1)


@pytest.mark.slow
def test_the_whole_certificate_and_its_curves() -> None:
    """One round, several, and what is recorded; settings without larger budgets are as before."""
    tiers = [(0.3, 10_000), (0.5, 90_000)]
    certificate = certify(tiers, "laplace", delta=1e-6)
    assert certificate.lower_bound is not None
    assert certificate.lower_bound.epsilon <= certificate.epsilon <= 1.02 * certificate.lower_bound.epsilon
    small = certificate.tiers[0]
    assert small.epsilon < certificate.epsilon
    assert small.privacy_profile is not None
    assert small.privacy_profile.delta(1.15 * small.epsilon).value <= 1e-6
    twice = certify(tiers, "laplace", delta=1e-6, rounds=2, attack=False)
    assert twice.epsilon <= 1.6 * certificate.epsilon
    back = certify(tiers, "laplace", epsilon=certificate.epsilon, attack=False)
    assert back.delta <= 1.01e-6
    for linkage in LINKAGES:
        held = certify(tiers, "laplace", delta=1e-6, linkage=linkage, attack=False).tiers[0]
        assert held.local_epsilon == 0.3
        assert (held.epsilon < 0.004) == (linkage == "separate")
