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
from croupier.accountant.bounds.exchange_finite import FiniteExchange
from croupier.accountant.kernel import FiniteLaw
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


def exact(law: FiniteLaw, kind: int, v: float, epsilon: float, people: int) -> float:
    """The divergence among others of one kind: E[sum of X over all slots, the victim's too]_+ / people."""
    atoms = law.kinds(arb(v), arb(epsilon), arb(v), arb(0))[kind].atoms
    chance, value = (np.array([float(pair[k]) for pair in atoms]) for k in (0, 1))
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
    curve = FiniteExchange(law, v, np.array([v]), np.array([people - 1]), 1e-3)
    bound = curve.delta(epsilon).value
    kinds = law.kinds(arb(v), arb(epsilon), arb(v), arb(0))
    few = [place for place, kind in enumerate(kinds) if len(kind.atoms) <= 4]
    divergences = [exact(law, place, v, epsilon, people) for place in few]
    assert max(divergences) <= bound
    closer = (exact(law, place, v, epsilon * 0.93, people) for place in few)
    assert max(closer) > bound  # 7 % of epsilon, or less
    assert curve.estimate(epsilon) == pytest.approx(bound, rel=0.01)


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
