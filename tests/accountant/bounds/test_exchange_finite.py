"""The exchange bound for sets of likely values: the kinds of hosts, the stages of the clocks, and exact divergences."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable

import numpy as np
import pytest
from flint import arb

import croupier
from croupier.accountant import TableMechanism
from croupier.accountant.bounds.exchange_finite import FiniteExchange
from croupier.accountant.bounds.profile import Others, Victim
from croupier.accountant.exchange import LikelySets, Path, exchange
from croupier.accountant.kernel import Atoms
from croupier.accountant.mechanisms.pgr import ProjectiveResponse
from croupier.accountant.numerics.binomial import Floats
from croupier.protocol.projective import ProjectiveSpace

Law = dict[float, float]
GAIN = math.exp(0.3)


def hyperplanes(space: ProjectiveSpace) -> list[set[int]]:
    vectors = np.array([space.vector(point) for point in range(space.num_points)])
    return [set(np.flatnonzero(vectors @ normal % space.q == 0).tolist()) for normal in vectors]


def chances(space: ProjectiveSpace, likely: set[int], v: float, rung: float = 0.0) -> Floats:
    """The law of a report, less a part `rung` of the uniform blanket."""
    weight = np.array([math.exp(v) if point in likely else 1.0 for point in range(space.num_points)])
    return np.asarray((weight / weight.sum() - rung / space.num_points) / (1 - rung))


def law_of_x(space: ProjectiveSpace, victim: tuple[set[int], set[int]], host: Floats, v: float) -> Law:
    first, second = (chances(space, likely, v) for likely in victim)
    return counted(host.tolist(), ((first - GAIN * second) / host).tolist())


def counted(chances: Iterable[float], values: Iterable[float]) -> Law:
    """The probability of each value, rounded."""
    law: dict[float, float] = defaultdict(float)
    for chance, value in zip(chances, values, strict=True):
        law[round(value, 9)] += chance
    return {value: round(chance, 9) for value, chance in law.items()}


@pytest.mark.parametrize(("q", "t"), [(2, 3), (3, 3), (2, 4), (3, 4)])
@pytest.mark.parametrize("rung", [0.0, 0.05])
def test_every_report_is_of_one_of_the_kinds_and_every_kind_is_some_reports(q: int, t: int, rung: float) -> None:
    space, own, other = ProjectiveSpace(q, t), 1.3, 0.9
    law = ProjectiveResponse(space.num_points, q).law
    kinds = [
        counted((float(chance) for chance, _ in kind.atoms), (float(value) for _, value in kind.atoms))
        for kind in law.kinds(arb(own), arb(GAIN).log(), arb(other), arb(rung))
    ]
    planes = hyperplanes(space)
    found = [law_of_x(space, (planes[0], planes[1]), chances(space, plane, other, rung), own) for plane in planes]
    assert all(law in kinds for law in found)
    assert all(kind in found for kind in kinds)


def test_an_earlier_stage_is_below_a_mixture_of_reports_in_a_later_one() -> None:
    """In convex order: a report that has given away less is one that has given away more, or a draw of the blanket."""
    space, v = ProjectiveSpace(2, 4), 2.0
    planes = hyperplanes(space)
    first, second = (chances(space, planes[k], v) for k in (0, 1))
    difference = first - GAIN * second
    early, late = 0.01, 0.06
    kept = (1 - late) / (1 - early)
    for plane in (planes[0], planes[1], planes[2], planes[-1]):
        report = chances(space, plane, v, early)
        mixture = [(kept, plane), *(((1 - kept) / len(planes), each) for each in planes)]
        for place in np.linspace(-3, 3, 41):
            own = float(np.maximum(difference - place * report, 0).sum())
            mixed = sum(
                part * float(np.maximum(difference - place * chances(space, each, v, late), 0).sum())
                for part, each in mixture
            )
            assert own <= mixed + 1e-12


def exact(kind: Atoms, people: int) -> float:
    """The divergence among others of one kind: E[sum of X over all slots, the victim's too]_+ / people."""
    chance, value = (np.array([float(pair[k]) for pair in kind.atoms if pair[0] != 0]) for k in (0, 1))
    logs = np.array([math.lgamma(n + 1) for n in range(people + 1)])
    total = 0.0
    for head in itertools.product(range(people + 1), repeat=chance.size - 2):
        rest = people - sum(head)
        if rest < 0:
            continue
        last = np.arange(rest + 1)
        counts = np.stack([*(np.full(rest + 1, n) for n in head), last, rest - last])
        weight = np.exp(logs[people] - logs[counts].sum(axis=0) + counts.T @ np.log(chance))
        total += float(weight @ np.maximum(value @ counts, 0.0))
    return total / people


@pytest.mark.parametrize(("v", "epsilon"), [(1.5, 0.6), (2.0, 0.8)])
def test_the_bound_is_above_the_exact_divergence_for_every_kind_and_close_to_the_largest(
    v: float, epsilon: float
) -> None:
    people = 90
    law = ProjectiveResponse(7, 2).law
    curve = FiniteExchange.among(v, [LikelySets(law, arb(v), [arb(v)])], np.array([people - 1]), 1e-3)
    bound = curve.delta(epsilon).value

    def largest(epsilon: float) -> float:
        kinds = law.kinds(arb(v), arb(epsilon), arb(v), arb(0))
        return max(exact(kind, people) for kind in kinds if len(kind.atoms) <= 4)

    assert largest(epsilon) <= bound < largest(epsilon * 0.93)  # 7 % of epsilon, or less
    assert curve.estimate(epsilon) == pytest.approx(bound, rel=0.01)


def test_clocks_that_take_more_than_the_blanket_prove_nothing() -> None:
    reports = LikelySets(ProjectiveResponse(7, 2).law, arb(2), [arb(2)])
    for end, proves in ((10.0, True), (60.0, False)):
        path = Path(5.0, 0.01, [0.01 * step for step in range(1, 400)], [end])
        assert exchange(reports, [100], [1.0], arb(0.5), path).is_finite() is proves


@pytest.mark.parametrize("budgets", [[(2.0, 300)], [(4.0, 1_000)], [(0.5, 200), (2.0, 300), (4.0, 100)]])
def test_few_people_with_projective_response_are_certified_near_the_attack(budgets: list[tuple[float, int]]) -> None:
    certificate = croupier.certify(budgets, "pgr(k=50, q=3)", delta=1e-6)
    blanket = croupier.certify(budgets, "pgr(k=50, q=3)", delta=1e-6, bounds="blanket")
    assert certificate.lower_bound is not None
    assert certificate.lower_bound.epsilon <= certificate.epsilon <= 1.05 * certificate.lower_bound.epsilon
    assert certificate.epsilon < blanket.epsilon


@pytest.mark.slow
def test_a_group_of_budgets_is_rounded_up() -> None:
    """Twenty budgets are certified no better than the truth, and no worse than if all had the largest."""
    spread = [(1.0 + step / 20, 40) for step in range(20)]
    certificate = croupier.certify(spread, "pgr(k=20, q=3)", delta=1e-6)
    largest = croupier.certify([(1.0 + 19 / 20, 800)], "pgr(k=20, q=3)", delta=1e-6, attack=False)
    assert certificate.lower_bound is not None
    assert certificate.lower_bound.epsilon <= certificate.epsilon <= largest.epsilon


def test_a_table_is_certified_above_the_exact_divergence_of_every_pair_and_kind_of_others() -> None:
    people, table = 150, [[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.25, 0.25, 0.5]]
    mechanism = TableMechanism({1.0: table}, label="three")
    curve = mechanism.exchange_profile(Victim(1.0), Others(np.ones(1), np.zeros(1), np.array([people - 1]), 0), 1e-4)
    assert isinstance(curve, FiniteExchange)
    assert len(curve.pairs) == 6
    for epsilon in (0.1, 0.3):
        divergences = [
            exact(kind, people) for pair in curve.pairs for kind in pair.reports.kinds(arb(epsilon), 0, arb(0))
        ]
        assert max(divergences) <= curve.delta(epsilon).value
        assert curve.estimate(epsilon) == pytest.approx(curve.delta(epsilon).value, rel=0.01)


def test_a_table_of_bits_is_certified_as_randomised_response() -> None:
    keep = 1 / (1 + math.exp(-1))
    mechanism = TableMechanism({1.0: [[keep, 1 - keep], [1 - keep, keep]]})
    budgets = [(1.0, 10_000)]
    as_table = croupier.certify(budgets, mechanism, delta=1e-6, attack=False).epsilon
    assert as_table == pytest.approx(croupier.certify(budgets, "rr", delta=1e-6, attack=False).epsilon, rel=3e-3)


def test_dishonest_users_of_a_table_are_left_out_of_every_budget() -> None:
    keep = [1 / (1 + math.exp(-v)) for v in (0.5, 1.0)]
    mechanism = TableMechanism({v: [[p, 1 - p], [1 - p, p]] for v, p in zip((0.5, 1.0), keep, strict=True)})
    others = Others(np.array([0.5, 1.0]), np.zeros(2), np.array([400, 30]), 50)
    curve = mechanism.exchange_profile(Victim(1.0), others, 1e-6)
    assert isinstance(curve, FiniteExchange)
    assert [pair.count.tolist() for pair in curve.pairs] == [[350]]  # both orders of the rows are alike
