"""What hop noise rests on: the divergence of the counts of one hop's fakes and a victim's report, in ball arithmetic.

As in `kernel`, every number is a ball, and `search` may be wrong without harm. The theorem is in docs/hop-noise.md,
section 2.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self, TypeVar

from flint import acb, arb, ctx

from croupier.accountant import kernel
from croupier.accountant.kernel import MOST_POINTS, Classes, Line, trapezoidal
from croupier.protocol.fake_law import FakeLaw

Ball = TypeVar("Ball", arb, acb)

LIKELY = 1e-36
"""Sums of rho that are less likely are left out, and charged with the largest value of all."""
MORE_PRECISE = 80
"""Further bits of precision: mass that is left out is one minus the rest."""


def precision_for(local_epsilon: float) -> int:
    """Returns the bits for a victim of this budget."""
    return kernel.precision_for(max(local_epsilon, 1e-300)) + MORE_PRECISE


@dataclass(frozen=True)
class FakeCount:
    """The number of one hop's fakes of one report value, N = c + Z.

    A report of the value multiplies the probability of a number by rho: 0 where N = 0, e^-a up to the middle c, e^a
    above it. It is recognised where N = 2c, which is as likely as 0.

    Attributes:
        rate: e^-a.
        edge, below, above: the probabilities of the three cases of rho.
    """

    law: FakeLaw
    rate: arb
    edge: arb
    below: arb
    above: arb

    @classmethod
    def of(cls, law: FakeLaw) -> Self:
        """Returns it for the fakes of a hop."""
        rate = (-1 / arb(law.scale)).exp()
        middle = (1 - rate) / (1 + rate - 2 * rate ** (law.radius + 1))
        edge = middle * rate**law.radius
        return cls(law, rate, edge, (1 + middle) / 2 - edge, (1 - middle) / 2)

    def shown(self, apart: Sequence[tuple[int, arb]]) -> arb:
        """Returns what a recognised report shows."""
        return self.edge * sum((n * d.max(arb(0)) for n, d in apart), arb(0))

    def losses(self, d: arb) -> list[tuple[arb, arb]]:
        """Returns the law of d rho: probabilities and values."""
        return [(self.edge, arb(0)), (self.below, d * self.rate), (self.above, d / self.rate)]


def apart(classes: Classes, epsilon: arb) -> list[tuple[int, arb]]:
    """Returns the number of report values of each class, with d = p0 - e^epsilon p1."""
    gain = epsilon.exp()
    return [(n, p0 - gain * p1) for n, p0, p1 in classes]


def coupled(classes: Classes) -> Classes:
    """Returns two classes that show at least as much: all that one value makes likelier, and all of the other one.

    The vector of all d_r is a mean of permutations of theirs, for every epsilon (docs/hop-noise.md, section 2).
    """
    t = sum((n * (p0 - p1).max(arb(0)) for n, p0, p1 in classes), arb(0))
    return (1, t, arb(0)), (1, 1 - t, arb(1))


def hop_noise(law: FakeLaw, classes: Classes, epsilon: arb) -> arb:
    """Returns the divergence that a victim shows among the fakes of one hop, by adding up: it is exact.

    With d_r and an independent rho_r for every report value r it is (docs/hop-noise.md, section 2)

        edge sum_r [d_r]_+ + E[ sum_r d_r rho_r ]_+ .

    Of two values the counts add up to a constant, and show one rho. Of more, the likely sums are added up, and those of
    the largest class as partial sums.
    """
    count, d = FakeCount.of(law), sorted(apart(classes, epsilon), key=lambda one: one[0])
    if law.is_paired:
        one, two = (d for n, d in d for _ in range(n))
        inside = (one + count.rate * two).max(arb(0)) + (count.rate * one + two).max(arb(0))
        return count.shown(d) + count.below * inside
    *others, (number, last) = d
    sums, rest = [_sums_of_rho(law, n, ctx.prec) for n, _ in others], _sums_of_rho(law, number, ctx.prec)
    inside = sum((n * one.max(arb(0)) for n, one in d), arb(0)) / count.rate  # at most
    inside *= sum((one.left_out for one in sums), rest.left_out)
    for atoms in itertools.product(*(one.atoms for one in sums)):
        start = sum((one * value for (_, one), (_, value) in zip(others, atoms, strict=True)), arb(0))
        inside += math.prod((chance for chance, _ in atoms), start=arb(1)) * rest.excess(start, last)
    return count.shown(d) + inside


def number_of_sums(law: FakeLaw, numbers: Sequence[int], *, one_by_one: bool = False) -> float:
    """Returns about how many numbers `hop_noise` adds up for classes of these sizes, or how many sums there are."""
    if law.is_paired:
        return 1.0
    edge, above = law.edge, 1 / (1 + math.exp(1 / law.scale))
    zeros = [min(n, 14 + n * edge + 13 * math.sqrt(n * edge)) + 1 for n in numbers]
    cells = [z * min(n / 2 + 1, 26 * math.sqrt(n * above) + 26) for z, n in zip(zeros, numbers, strict=True)]
    largest = max(range(len(numbers)), key=lambda place: numbers[place])
    whole = math.prod(cells)
    return whole if one_by_one else whole / cells[largest] * zeros[largest] + max(cells) / 100  # the law itself is kept


@dataclass(frozen=True)
class _SumsOfRho:
    """The law of a sum of independent rho, in rows of increasing values, without the mass that is left out.

    Of every row: the chances and the values, and the sums of both, and of their products, before each place.
    """

    rows: Sequence[tuple[Sequence[arb], Sequence[arb], Sequence[arb], Sequence[arb]]]
    left_out: arb

    @property
    def atoms(self) -> list[tuple[arb, arb]]:
        """The chances and the values."""
        return [atom for chances, values, *_ in self.rows for atom in zip(chances, values, strict=True)]

    def excess(self, start: arb, d: arb) -> arb:
        """Returns E[start + d S]_+ of this sum S: the chances and values that are positive, from partial sums.

        Where the sign changes is found in floats, and corrected while a sign is not the one expected, or not known.
        """
        if d.contains(0):  # at most [start]_+ and |d| S
            return sum((start.max(arb(0)) * mass[-1] + abs(d) * moment[-1] for _, _, mass, moment in self.rows), arb(0))
        total, turn = arb(0), float(-start / d)
        for chances, values, mass, moment in self.rows:
            low, high = float(values[0]), float(values[-1])
            part = (turn - low) / (high - low) if high > low else 0.5
            place = math.ceil(min(max(part, 0.0), 1.0) * (len(values) - 1)) if not math.isnan(part) else 0
            if d > 0:
                total += start * (mass[-1] - mass[place]) + d * (moment[-1] - moment[place])
            else:
                total += start * mass[place] + d * moment[place]
            sign = -1 if d > 0 else 1
            for places, expected in ((range(place, len(values)), -sign), (range(place - 1, -1, -1), sign)):
                for at in places:
                    value = start + d * values[at]
                    if expected * value >= 0:
                        break
                    total += chances[at] * (-expected * value).max(arb(0))
        return total


@lru_cache(maxsize=64)
def _sums_of_rho(law: FakeLaw, number: int, precision: int) -> _SumsOfRho:
    """Returns the law of the sum of this many, in the precision that is set, which is the last argument."""
    count, rows, likely = FakeCount.of(law), [], arb(0)
    high = float(count.above / (count.above + count.below))
    for zeros in range(number + 1):
        rest = number - zeros
        mode = min(rest, int((rest + 1) * high))
        numbers = ((zeros, count.edge), (mode, count.above), (rest - mode, count.below))
        log = arb(number + 1).lgamma() + sum((n * p.log() - arb(n + 1).lgamma() for n, p in numbers), arb(0))
        up, down = [log.exp()], [log.exp()]
        while mode + len(up) <= rest and up[-1] > LIKELY:
            at = mode + len(up)
            up.append(up[-1] * count.rate * (rest - at + 1) / at)
        while len(down) <= mode and down[-1] > LIKELY:
            at = mode - len(down)
            down.append(down[-1] * (at + 1) / (rest - at) / count.rate)
        chances, first = [*down[:0:-1], *up], mode - len(down) + 1
        values = [(rest - j) * count.rate + j / count.rate for j in range(first, first + len(chances))]
        mass = [*itertools.accumulate(chances, initial=arb(0))]
        moment = [*itertools.accumulate((p * v for p, v in zip(chances, values, strict=True)), initial=arb(0))]
        rows.append((chances, values, mass, moment))
        likely += mass[-1]
        if up[0] < LIKELY and zeros > number * law.edge:
            break
    return _SumsOfRho(rows, (1 - likely).max(arb(0)))


def hop_noise_along(law: FakeLaw, classes: Classes, epsilon: arb, line: Line) -> arb:
    """Returns a bound on `hop_noise`, for large classes.

    With S = sum_r d_r rho_r and G standard normal E[S]_+ <= E[S + sigma G]_+ (Jensen), which is inverted along
    Re z = theta > 0: it is 1/(2 pi) integral e^(z^2 sigma^2/2) prod_r E e^(z d_r rho_r)/z^2 du.
    """
    count, d = FakeCount.of(law), apart(classes, epsilon)
    theta, s2, laws = arb(line.theta), arb(line.sigma) ** 2, [(n, count.losses(one)) for n, one in d]
    # |E e^(zL)| changes by at most E |L - m| e^(theta L) per unit of u, for any m: here about the tilted mean.
    steepest = []
    for n, atoms in laws:
        phi = _transform(atoms, theta)
        mean = (sum((w * x * (theta * x).exp() for w, x in atoms), arb(0)) / phi).mid()
        steepest.append((n, atoms, phi, sum((w * abs(x - mean) * (theta * x).exp() for w, x in atoms), arb(0))))

    def product(z: Ball) -> Ball:
        total = z * 0 + 1
        for n, atoms in laws:
            total *= _transform(atoms, z) ** n
        return total

    def side(x: arb) -> arb:
        return (x * x * s2 / 2).exp() * product(x) / (x * x)

    def integrand(u: arb) -> arb:
        z = acb(theta, u)
        return ((z * z * s2 / 2).exp() * product(z) / (z * z)).real

    def most(fallen: arb, centre: arb | None, radius: arb) -> arb:
        if centre is None:
            return fallen * side(theta)
        z, height = acb(theta, centre), (theta * theta * s2 / 2).exp()
        for n, atoms, phi, steep in steepest:
            height *= (abs(_transform(atoms, z)) + radius * steep).min(phi) ** n
        return fallen * height / (theta * theta + (centre - radius) ** 2)

    if not line.end <= MOST_POINTS * line.step:  # also where one of them is not a number
        return count.shown(d) + side(theta) * theta / arb(1).exp()  # [S]_+ <= e^(theta S)/(e theta)
    return count.shown(d) + trapezoidal(line, integrand, most, side)


def _transform(atoms: Sequence[tuple[arb, arb]], z: Ball) -> Ball:
    total = z * 0
    for w, x in atoms:
        total += w * (z * x).exp()
    return total
