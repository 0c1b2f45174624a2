"""What the exchange bound of bits rests on: one integral, evaluated in ball arithmetic as in `kernel`.

For any number of budgets, by few points and with a bound on the second derivative between them; `exchange` has other
reports, by cells. Where the integral is evaluated comes from `search`: any choice is sound. The theorem and its proof
are in docs/paper, sections 1 to 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flint import arb

from croupier.accountant.kernel import BITS, Weights

CELL = 1e-3
"""A cell of an exchange bound beyond its points is halved until it has less than this part of the integral."""


@dataclass(frozen=True)
class Grid:
    """Where the integral of an exchange bound is evaluated. Any positive numbers are sound, if `ends` increase.

    Attributes:
        theta: the integral is along z = theta (1 + ir).
        sigma: the deviation of a Gaussian that is added to the sum.
        step: the distance of the points r = 0, step, 2 step, ...
        steps: how many there are beyond 0.
        far: from the last point to here the integrand is bounded cell by cell.
        ends: the times at which the stages of the hosts' clocks end.
    """

    theta: float
    sigma: float
    step: float
    steps: int
    far: float
    ends: tuple[float, ...]


@dataclass(frozen=True)
class Hosts:
    """People whose bits are flipped with probabilities between two: (part, end) for both, with the mean of all."""

    count: int
    flips: Sequence[tuple[arb, arb]]

    @classmethod
    def of(cls, budgets: Weights) -> Hosts:
        """Returns the people with these local budgets, which increase."""
        flips, people = [(1 / (1 + budget.exp()), n) for budget, n in budgets], sum(n for _, n in budgets)
        high, low = flips[0][0], flips[-1][0]
        if not high > low:
            return cls(people, [(arb(1), low)])
        part = (high - sum((n * q for q, n in flips), arb(0)) / people) / (high - low)
        return cls(people, [(part, low), (1 - part, high)])

    @property
    def weight(self) -> arb:
        """The weight of each: p q, or its harmonic mean."""
        return 1 / sum((part / (q * (1 - q)) for part, q in self.flips), arb(0))

    def after(self, rung: arb) -> Hosts:
        """Returns them without this part, which is a fair bit."""
        return Hosts(self.count, [(part, (q - rung / 2) / (1 - rung)) for part, q in self.flips])


def exchange(groups: Sequence[Hosts], v: arb, epsilon: arb, grid: Grid) -> arb:
    """Returns a bound on the divergence of a bit of the budget v > epsilon among those of hosts, for all of their data.

    It is at most the mean of E[Y]_+ over the stages of the first ring of the hosts' clocks, and what the victim's
    report shows alone if none has rung at the end (docs/paper, sections 1 and 2).
    """
    whole = sum((hosts.count * hosts.weight for hosts in groups), arb(0))
    alphas = [hosts.weight / whole for hosts in groups]
    shown, total, start = BITS.alone(v, epsilon), arb(0), arb(0)
    for end in map(arb, grid.ends):
        left = [hosts.after(-(-alpha * end).expm1()) for hosts, alpha in zip(groups, alphas, strict=True)]
        total += ((-start).exp() - (-end).exp()) * _excess(left, alphas, shown, epsilon.exp() - 1, grid)
        start = end
    return total + (-start).exp() * shown


def _excess(groups: Sequence[Hosts], alphas: Sequence[arb], shown: arb, drift: arb, grid: Grid) -> arb:
    """Returns a bound on E[Y]_+ in a stage, the larger factor of two kinds of hosts being taken everywhere.

    With b = 1 - q for a host that agrees, q for one that does not, and d = theta alpha (shown + drift b)/(b (1 - b)),

        ln |phi(theta (1 + ir))| = ln(b e^d + 1 - b) - b d - theta drift alpha + ln(1 - A sin^2(d r / 2)) / 2,

    A = 4 b (1 - b) e^d / (b e^d + 1 - b)^2, of which the second derivative is at least -A (d/2)^2 / cos^2(d r / 2), as
    it is for ln of sums. So the integrand's logarithm is in a cell [l, l + h] above its chord by at most
    K (r - l)(l + h - r)/2, K the sum of these, and the integral above the trapezoid by K h^2 e^(K h^2 / 8) / 12 of it.
    """
    theta, h, far = arb(grid.theta), arb(grid.step), arb(grid.far)
    rate, end = (theta * grid.sigma) ** 2, h * grid.steps
    factors, bend, widest = [], 2 + rate, arb(0)
    for hosts, alpha in zip(groups, alphas, strict=True):
        parts, most = [], arb(0)
        for part, q in hosts.flips:
            kinds = []
            for b, other in ((1 - q, q), (q, 1 - q)):
                d = theta * alpha * (shown + drift * b) / (b * other)
                mean = b * d.exp() + other
                swing = 2 * b * other * d.exp() / mean**2
                kinds.append((part * mean * (-b * d - theta * drift * alpha).exp(), swing, d))
                most, widest = most.max(swing * d * d / 2), widest.max(d)
            parts.append(kinds)
        factors.append((hosts.count, parts))
        bend += hosts.count * most

    def product(r: arb) -> arb:
        logarithm = arb(0)
        for count, parts in factors:
            values = (
                arb.max(*(scale * (1 - swing + swing * (d * r).cos()).upper().sqrt() for scale, swing, d in kinds))
                for kinds in parts
            )
            logarithm += count * sum(values, arb(0)).log()
        return logarithm.exp()

    def weight(r: arb) -> arb:
        return (-rate * r * r / 2).exp() / (1 + r * r)

    first = before = product(arb(0))
    total = first * (-rate * far * far / 2).exp() / far  # beyond, every factor is at most that of r = 0
    for j in range(1, grid.steps + 1):
        value = product(h * j) * weight(h * j)
        curved = bend * h * h / (widest * h * j / 2).cos() ** 2
        total += h * (before + value) / 2 * (1 + curved * (curved / 8).exp() / 12)
        before = value
    sound = widest * end < arb.pi() and end < far and all(q > 0 for hosts in groups for _, q in hosts.flips)
    if not (sound and total.is_finite()):
        return arb("inf")
    negligible, cells = CELL * total, [(end, far)]
    while cells:
        left, right = cells.pop()
        radius = (right - left) / 2
        upper = product(arb(left + radius, radius)) * weight(left) * 2 * radius
        if upper < negligible or radius < h:
            total += upper
        else:
            cells += [(left, left + radius), (left + radius, right)]
    return (rate / 2).exp() * total / (arb.pi() * theta)
