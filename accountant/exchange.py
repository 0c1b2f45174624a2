"""What the exchange bound of a finite report rests on: an integral over cells, evaluated in ball arithmetic.

As in `kernel`, every number is a ball that contains the exact value, and where the integral is evaluated comes from
floats: any choice is sound. The theorem and the mechanisms' lemmas are in docs/paper, sections 1 and 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flint import arb

from croupier.accountant.kernel import Atoms, FiniteLaw


@dataclass(frozen=True)
class Path:
    """Where the integral is evaluated, along z = theta (1 + ir). Any positive numbers are sound, if they increase.

    Attributes:
        theta: the part of z that is real.
        sigma: the deviation of a Gaussian that is added to the sum.
        edges: the ends of the cells of r; the first one begins at 0.
        ends: the times at which the stages of the hosts' clocks end.
    """

    theta: float
    sigma: float
    edges: Sequence[float]
    ends: Sequence[float]


@dataclass(frozen=True)
class Hosts:
    """People with one budget among whom a victim hides, whose clocks ring at the rate alpha.

    Attributes:
        count: how many they are.
        rate: alpha, in units in which the rates of all people add up to anything.
        budget: of each.
    """

    count: int
    rate: arb
    budget: arb


def exchange(law: FiniteLaw, groups: Sequence[Hosts], v: arb, epsilon: arb, path: Path) -> arb:
    """Returns a bound on the divergence of a victim's report among those of hosts, for all of their data.

    v: the victim's budget. The divergence is at most the mean of E[Y]_+ over the stages of the first ring of the hosts'
    clocks, and that of the victim's report alone if none has rung at the end.
    """
    rates = sum((hosts.count * hosts.rate for hosts in groups), arb(0))
    total, start = arb(0), arb(0)
    for end in map(arb, path.ends):
        factors = []
        for hosts in groups:
            alpha = hosts.rate / rates
            rung = -(-alpha * end).expm1()
            kinds = law.kinds(v, epsilon, hosts.budget, rung)
            factors.append((hosts.count, [_Kind(kind, alpha * path.theta) for kind in kinds]))
        total += ((-start).exp() - (-end).exp()) * _excess(factors, path)
        start = end
    return total + (-start).exp() * law.alone(v, epsilon)


class _Kind:
    """|E e^(w (1 + ir) X)|^2 as a function of r, for one law of X."""

    def __init__(self, law: Atoms, w: arb) -> None:
        """Makes the function, and the bound 2 b of minus its second derivative, over all r."""
        places = [w * value for _, value in law.atoms]
        self._terms = [(chance * place.exp(), place) for (chance, _), place in zip(law.atoms, places, strict=True)]
        first, second = (sum((weight * x**k for weight, x in self._terms), arb(0)) for k in (1, 2))
        whole = sum((weight for weight, _ in self._terms), arb(0))
        self.largest, self.bend = whole * whole, whole * second - first * first

    def square(self, r: arb) -> arb:
        """Returns the function."""
        waves = [(weight, (r * x).sin_cos()) for weight, x in self._terms]
        sine, cosine = (sum((weight * pair[k] for weight, pair in waves), arb(0)) for k in (0, 1))
        return sine * sine + cosine * cosine


def _excess(factors: Sequence[tuple[int, Sequence[_Kind]]], path: Path) -> arb:
    """Returns a bound on E[Y]_+ in a stage: 1/(pi theta) times the integral of its product over r, in cells.

    In a cell of width h a function of `_Kind` is at most the larger of its values at both ends and b h^2/4. Of several
    kinds of hosts the largest counts.
    """
    rate = (arb(path.theta) * path.sigma) ** 2

    def squares(r: arb) -> list[list[arb]]:
        return [[kind.square(r) for kind in kinds] for _, kinds in factors]

    def product(before: Sequence[Sequence[arb]], after: Sequence[Sequence[arb]], width: arb) -> arb:
        logarithm = arb(0)
        for (count, kinds), left, right in zip(factors, before, after, strict=True):
            most = arb(0)
            for kind, one, other in zip(kinds, left, right, strict=True):
                most = most.max((one.max(other) + kind.bend * width * width / 4).min(kind.largest))
            logarithm += count * most.log() / 2
        return logarithm.exp()

    first = before = squares(arb(0))
    total, start = arb(0), arb(0)
    for end in map(arb, path.edges):
        after, width = squares(end), end - start
        weight = (-rate * start * start / 2).exp() / (1 + start * start)
        total += product(before, after, width) * weight * width
        before, start = after, end
    total += product(first, first, arb(0)) * (-rate * start * start / 2).exp() / start
    return (rate / 2).exp() * total / (arb.pi() * path.theta)
