"""A small hunt for certificates below the truth, with oracles that share no code with the accountant.

Few users: every data set of the others, every set of dishonest ones and every pair of the victim's values, in 60
digits. Many users (both sides of the thresholds at which tiers, rates and blanket weights are put into groups): one
count of reports whose two laws are multiplied out bit by bit, which no certificate may be below.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import mpmath
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from scipy.stats import norm

from croupier import (
    BinaryRandomizedResponse,
    Budgets,
    GaussianMechanism,
    HemisphereMechanism,
    KaryRandomizedResponse,
    LaplaceMechanism,
    OneBitMean,
    Randomizer,
    TableMechanism,
    certify,
)
from croupier.accountant.mechanisms.choices import MultipleChoice
from croupier.accountant.ranges import Linkage
from croupier.accountant.recorded_profile import RecordedProfile, profile_of
from croupier.protocol.hop_noise import HopNoise
from tests.support.drawn import drawn
from tests.support.oracles.from_definitions import (
    Table,
    count_law,
    one_option,
    response,
    sigma_of,
    worst_divergences,
)
from tests.support.oracles.hop_noise import batch_laws, fakes_array, hockey_stick


def worst(victim: Table, others: Sequence[Table], dishonest: int, epsilons: Sequence[float]) -> list[mpmath.mpf]:
    """The exact delta at each epsilon; the reports of the dishonest others are taken away."""
    gains = [mpmath.exp(mpmath.mpf(epsilon)) for epsilon in epsilons]
    honest = itertools.combinations(others, max(0, len(others) - dishonest))
    return list(map(max, *(worst_divergences(victim, left, gains) for left in honest), [0] * len(gains)))


def check_few(
    budgets: list[float],
    channels: Mapping[float, Table],
    randomizer: Randomizer,
    dishonest: int,
    linkage: Linkage,
    shares: Sequence[float],
    delta: float,
) -> None:
    for local in sorted(set(budgets)):
        others = list(budgets)
        others.remove(local)
        around = [channels[other] for other in others if linkage == "separate" or other == local]
        arguments = {"dishonest": dishonest, "linkage": linkage, "attack": False}
        epsilons, deltas = [share * local for share in shares], []
        for epsilon in epsilons:
            certificate = certify(budgets, randomizer, epsilon=epsilon, **arguments)  # type: ignore[arg-type]
            deltas.append(next(tier.delta for tier in certificate.tiers if tier.local_epsilon == local))
        certificate = certify(budgets, randomizer, delta=delta, **arguments)  # type: ignore[arg-type]
        tier = next(tier for tier in certificate.tiers if tier.local_epsilon == local)
        epsilons, deltas = [*epsilons, tier.epsilon], [*deltas, tier.delta]
        with mpmath.workdps(60):
            for truth, claimed in zip(worst(channels[local], around, dishonest, epsilons), deltas, strict=True):
                assert truth <= mpmath.mpf(claimed) * (1 + mpmath.mpf(10) ** -15)  # an ulp, where both are the same


LOCALS = [1e-16, 1e-13, 1e-6, 0.01, 0.5, 1.0, 2.0, 5.0, 20.0, 400.0]
settings_of_few = given(
    st.integers(2, 3),
    st.lists(st.sampled_from(LOCALS), min_size=1, max_size=5),
    st.integers(0, 3),
    st.sampled_from(["separate", "stratified"]),
    st.lists(st.sampled_from([0.0, 1e-6, 0.3, 0.9, 1 - 1e-9]), min_size=1, max_size=2, unique=True),
    st.sampled_from([0.3, 1e-2, 1e-5, 1e-12, 1e-17]),
)


@settings_of_few
@drawn(15)
@example(2, [1e-16, 1e-16, 400.0], 0, "separate", [0.3], 1e-17)
def test_few_users_of_randomised_response(
    letters: int, budgets: list[float], dishonest: int, linkage: Linkage, shares: list[float], delta: float
) -> None:
    with mpmath.workdps(60):
        channels = {local: response(mpmath.mpf(local), letters, mpmath.exp) for local in budgets}
    bits = [BinaryRandomizedResponse(), OneBitMean()] if letters == 2 else []
    for randomizer in [KaryRandomizedResponse(letters), *bits]:
        check_few(budgets, channels, randomizer, dishonest, linkage, shares, delta)


@settings_of_few
@drawn(12)
@example(2, [0.5, 2.0, 2.0], 0, "separate", [0.3, 0.9], 1e-2)
def test_few_users_who_choose_several_of_two_options(
    letters: int, budgets: list[float], dishonest: int, linkage: Linkage, shares: list[float], delta: float
) -> None:
    few = budgets[:3]  # of four sets for each of the others
    with mpmath.workdps(60):
        channels = {local: one_option(mpmath.mpf(local), 2, mpmath.exp) for local in few}
    check_few(few, channels, MultipleChoice(2), dishonest, linkage, shares, delta)


@settings_of_few
@drawn(12)
def test_few_users_of_tables(
    letters: int, budgets: list[float], dishonest: int, linkage: Linkage, shares: list[float], delta: float
) -> None:
    rng = np.random.default_rng(len(budgets) + letters)
    tables, channels = {}, {}
    for local in budgets:
        weights = np.exp(-local / 2 * rng.integers(0, 2, (2, letters)))
        tables[local] = weights / weights.sum(1, keepdims=True)  # shows as much as its budget, or less
        with mpmath.workdps(60):
            rows = [[mpmath.mpf(mass) for mass in row] for row in tables[local].tolist()]
            channels[local] = [[mass / sum(row) for mass in row] for row in rows]
    check_few(budgets, channels, TableMechanism(tables), dishonest, linkage, shares, delta)


def stick(first: np.ndarray, second: np.ndarray, epsilon: float) -> float:
    """The hockey-stick divergence of two laws of a count, a little below it."""
    return float(np.maximum(first - math.exp(epsilon) * second, 0).sum()) - 1e-13


def below_cut(randomizer: Randomizer, epsilon: float, value: float, cut: float) -> float:
    """Pr[report < cut] of a noisy value; of a bit, Pr[report = 0]."""
    if isinstance(randomizer, BinaryRandomizedResponse):
        return 1 / (1 + math.exp(-epsilon if value == 0 else epsilon))
    if isinstance(randomizer, LaplaceMechanism):
        distance = epsilon * (cut - value)
        return 0.5 * math.exp(distance) if distance < 0 else 1 - 0.5 * math.exp(-distance)
    raise TypeError(randomizer)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("randomizer", "tiers"),
    [(BinaryRandomizedResponse(), tiers) for tiers in (1, 2, 3, 32, 33)]
    + [(LaplaceMechanism(), tiers) for tiers in (1, 29, 33)],
)
def test_many_tiers_on_both_sides_of_the_thresholds(randomizer: Randomizer, tiers: int) -> None:
    rng = np.random.default_rng(tiers)
    locals_ = np.sort(np.exp(rng.uniform(math.log(0.05), math.log(3), tiers))).tolist()
    counts = rng.integers(1, 12, tiers).tolist()
    budgets = Budgets.from_tiers(list(zip(locals_, counts, strict=True)))
    check_many(budgets, randomizer, 1e-4, int(rng.integers(0, 4)), "separate")


@pytest.mark.slow
@pytest.mark.parametrize("tiers", [64, 65, 256, 257, 258])
@pytest.mark.parametrize("linkage", ["separate", "stratified"])
def test_very_many_tiers_of_bits_on_both_sides_of_the_thresholds(tiers: int, linkage: Linkage) -> None:
    rng = np.random.default_rng(tiers)
    budgets = Budgets.from_tiers([(0.5 + 0.01 * step, int(rng.integers(1, 4))) for step in range(tiers)])
    check_many(budgets, BinaryRandomizedResponse(), 1e-4, 0, linkage)


def check_many(budgets: Budgets, randomizer: Randomizer, delta: float, dishonest: int, linkage: Linkage) -> None:
    """Against the count of reports below a cut, the others all at one value; the dishonest have the least budgets."""
    certificate = certify(budgets, randomizer, delta=delta, dishonest=dishonest, linkage=linkage, attack=False)
    locals_ = budgets.local_epsilon.tolist()
    for victim in {0, len(locals_) // 2, len(locals_) - 1}:
        local = locals_[victim]
        tier = next(tier for tier in certificate.tiers if tier.local_epsilon >= local)
        left = budgets.count.copy()
        left[victim] -= 1
        if linkage == "stratified":
            left[np.arange(left.size) != victim] = 0
        for place in range(left.size):
            taken = min(int(left[place]), dishonest)
            left[place] -= taken
            dishonest -= taken
        for value, cut in ((0.0, 0.0), (1.0, 0.0), (1.0, -0.5), (0.0, 0.5)):
            shares = [(below_cut(randomizer, e, value, cut), int(n)) for e, n in zip(locals_, left, strict=True)]
            laws = [count_law([*shares, (below_cut(randomizer, local, own, cut), 1)]) for own in (0.0, 1.0)]
            for first, second in itertools.permutations(laws):
                assert stick(first, second, tier.epsilon) <= tier.delta


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1))
@drawn(1)
def test_small_budgets_of_noise_among_larger_ones(seed: int) -> None:
    """The whole way, for every victim: certificates, and the curves that are composed and recorded."""
    rng = np.random.default_rng(seed)
    least = float(np.exp(rng.uniform(math.log(0.05), math.log(0.8))))
    steps = rng.choice([1.05, 1.3, 2.0, 5.0], int(rng.integers(1, 4)))
    locals_ = (least * np.cumprod([1.0, *steps])).tolist()
    count = np.append(rng.integers(1, 200, steps.size), rng.integers(1_500, 4_000))
    dishonest, delta = int(rng.choice([0, 0, 1, 30])), float(rng.choice([1e-3, 1e-5, 1e-8]))
    tiers = list(zip(locals_, count.tolist(), strict=True))
    certificate = certify(Budgets.from_tiers(tiers), "laplace", delta=delta, dishonest=dishonest, attack=False)
    for place, tier in enumerate(certificate.tiers):
        own = tier.local_epsilon
        curve = tier.privacy_profile
        curves = [] if curve is None else [curve, RecordedProfile([profile_of(curve, max(tier.epsilon, 1e-6), own)])]
        at = [share * tier.epsilon for share in (0.3, 0.9, 1.0)]
        claims = [(epsilon, curve.delta(epsilon).value) for curve, epsilon in itertools.product(curves, at)]
        left = [n - (k == place) for k, (_, n) in enumerate(tiers)]
        gone = dishonest
        for k in rng.permutation(len(left)).tolist():  # any may be
            left[k], gone = max(0, left[k] - gone), max(0, gone - left[k])
        values, cut = rng.integers(0, 2, len(left)).tolist(), float(rng.choice([0.0, 0.5, 1.0, rng.uniform(-2, 3)]))
        shares = [
            (below_cut(LaplaceMechanism(), e, x, cut), n) for e, x, n in zip(locals_, values, left, strict=True) if n
        ]
        laws = [count_law([*shares, (below_cut(LaplaceMechanism(), own, value, cut), 1)]) for value in (0.0, 1.0)]
        for p, q in itertools.permutations(laws):
            for epsilon, claimed in [*claims, (tier.epsilon, tier.delta)]:
                assert stick(p, q, epsilon) <= claimed


@pytest.mark.slow
@pytest.mark.parametrize("tiers", [33])
def test_many_gaussian_tiers_with_their_own_local_deltas(tiers: int) -> None:
    """A noisy victim among louder ones, and a loud one among noisier ones."""
    others = [(1.0, 60, 10.0 ** -(2 + 0.1 * step)) for step in range(tiers - 1)]
    budgets = Budgets.from_tiers([*others, (1.0, 1, 1e-9)])
    certificate = certify(budgets, GaussianMechanism(), delta=1e-5, attack=False)
    tier = next(tier for tier in certificate.tiers if tier.local_delta >= 1e-9 and tier.local_epsilon >= 1.0)
    loud = np.array([sigma_of(1.0, spent) for _, _, spent in others])
    own = sigma_of(1.0, 1e-9)
    for cut in np.linspace(1, 30, 60).tolist():
        quiet = float((60 * norm.logcdf((cut - 0.0) / loud)).sum())
        low, high = (-math.expm1(quiet + float(norm.logcdf((cut - value) / own))) for value in (0.0, 1.0))
        assert high - math.exp(tier.epsilon) * low <= tier.delta * 1.01


def laws_of_ones(tiers: Sequence[tuple[float, int]], ones: Sequence[int], victim: float) -> list[np.ndarray]:
    """The laws of the number of ones for both values of the victim, ones[t] of the tiers[t] others holding a 1."""
    held = [(1 / (1 + math.exp(-e)), h) for (e, _), h in zip(tiers, ones, strict=True)]
    rest = [(1 / (1 + math.exp(e)), n - h) for (e, n), h in zip(tiers, ones, strict=True)]
    keep = 1 / (1 + math.exp(-victim))
    return [count_law([*held, *rest, (own, 1)]) for own in (keep, 1 - keep)]


@given(st.integers(0, 2**32 - 1))
@drawn(8)
@example(3)
@example(4)
def test_every_certified_curve_of_half_spheres(seed: int) -> None:
    """The whole way: certificates in both directions, rounds, and the curves that are composed and recorded.

    In one dimension a half sphere is a bit, and is not certified by the exact worst case of bits.
    """
    rng = np.random.default_rng(seed)
    few = bool(rng.integers(2))
    locals_ = np.unique(np.exp(rng.uniform(math.log(0.02), math.log(4), int(rng.integers(1, 4))))).tolist()
    tiers = [(e, int(rng.integers(1, 4) if few else rng.integers(40, 160))) for e in locals_]
    dishonest, delta = int(rng.integers(0, 3)), float(rng.choice([0.3, 1e-3, 1e-6, 1e-9]))
    linkage = str(rng.choice(["separate", "stratified"]))
    rounds = int(rng.integers(1, 3)) if few else 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "croupier.accountant.mechanisms.finite.LEAST_BLANKET", -math.inf
        )  # the exchange bound always has a say
        budgets, randomizer = Budgets.from_tiers(tiers), HemisphereMechanism(1)
        keys = {"dishonest": dishonest, "linkage": linkage, "attack": False, "rounds": rounds}
        certificate = certify(budgets, randomizer, delta=delta, **keys)  # type: ignore[arg-type]
        back = certify(budgets, randomizer, epsilon=certificate.epsilon * rng.random(), **keys)  # type: ignore[arg-type]
    for tier, other in zip(certificate.tiers, back.tiers, strict=True):
        own = tier.local_epsilon
        curve = tier.privacy_profile
        curves = [] if curve is None else [curve, RecordedProfile([profile_of(curve, max(tier.epsilon, 1e-6), own)])]
        at = [share * tier.epsilon for share in (0.0, 0.5, 1.0)]
        claims = [(epsilon, curve.delta(epsilon).value) for curve, epsilon in itertools.product(curves, at)]
        left = [(e, n - (e == own)) for e, n in tiers if linkage == "separate" or e == own]
        gone = dishonest
        around = []
        for e, n in left:  # the smallest budgets hide most
            around.append((e, max(0, n - gone)))
            gone = max(0, gone - n)
        corners = itertools.product(*((0, n // 2, n) for _, n in around))
        for ones in itertools.product(*(range(n + 1) for _, n in around)) if few else corners:
            laws = laws_of_ones(around, ones, own)
            for p, q in itertools.permutations(laws):
                for epsilon, claimed in claims:
                    assert stick(p, q, epsilon) <= claimed
                if rounds == 2:
                    p, q = (np.outer(law, law).ravel() for law in (p, q))
                assert stick(p, q, tier.epsilon) <= tier.delta
                assert stick(p, q, other.epsilon) <= other.delta


@pytest.mark.slow
@given(
    k=st.sampled_from([2, 3, 4]),
    noise=st.tuples(st.floats(0.3, 20), st.floats(1e-7, 1e-3)),
    budgets=st.lists(st.sampled_from([1e-6, 0.01, 0.5, 1.0, 2.0, 5.0, 8.0, 20.0]), min_size=1, max_size=5),
    hops=st.integers(1, 3),
    share=st.sampled_from([0.0, 0.3, 0.9, 1 - 1e-9]),
    delta=st.floats(1e-7, 0.3),
    strategy=st.lists(st.integers(0, 3), max_size=8),
)
@drawn(60)
def test_hop_noise_whatever_everybody_else_sends(
    k: int,
    noise: tuple[float, float],
    budgets: list[float],
    hops: int,
    share: float,
    delta: float,
    strategy: list[int],
) -> None:
    """All hops but one, all other clients, analyzer and accountant collude.

    What they choose is which messages reach the honest hop beside the victim's: of other clients, or made up by a hop.
    """
    law = HopNoise(*noise).law(k)
    assume((2 * law.radius + 10) ** k < 3_000_000)
    kind, kept = ("rr" if k == 2 else f"krr(k={k})"), [report % k for report in strategy]
    arguments = {"dishonest": len(budgets) - 1, "hop_noise": noise, "hops": hops, "attack": False}
    fakes = fakes_array(k, law.scale, law.radius)
    at_epsilon = certify(budgets, kind, epsilon=share * max(budgets), **arguments)  # type: ignore[arg-type]
    at_delta = certify(budgets, kind, delta=delta, **arguments)  # type: ignore[arg-type]
    for tier in (*at_epsilon.tiers, *at_delta.tiers):
        laws = batch_laws(fakes, kept, tier.local_epsilon)
        for first, second in itertools.permutations(laws, 2):
            assert hockey_stick(first, second, tier.epsilon) <= tier.delta * (1 + 1e-11) + 1e-13
