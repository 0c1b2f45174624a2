"""What a blanket bound rests on: one contour integral, evaluated in ball arithmetic.

Every number here is a ball of python-flint, an interval that contains the exact value, so that no line has to say
anything about rounding. Where the integral is evaluated comes from `search` as floats: any choice is sound, and a poor
one only makes the bound larger. The theorem is in docs/numerics.md; `hop_kernel` is the same for hop noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from flint import acb, arb, arb_poly

from croupier.accountant.numerics.binomial import Floats

PRECISION = 80
"""Bits of a ball's middle. Budgets of 1e-16 lose half of them; with 64, epsilon of a billion people is larger."""
NEGLIGIBLE = 1e-9
"""A term of the integral's sum below this part of the first one is charged with its absolute value."""
MOST_POINTS = 20_000
"""With more points an integral is not evaluated, and only bounded by its value on the real axis."""

Weights = Sequence[tuple[arb, int]]
"""Weights of the blanket in the others' reports, and the numbers of people with them."""
Classes = Sequence[tuple[int, arb, arb]]
"""Report values in classes: how many, and the probability of each under two values of the victim."""


@dataclass(frozen=True)
class Line:
    """Where the integral is evaluated, along Re z = theta. Any positive numbers are sound, if strip < theta.

    Attributes:
        sigma: the deviation of a Gaussian that is added to each loss.
        step: the distance of the points at which the integrand is evaluated, about.
        strip: the integrand is bounded up to this distance from the line, for the error of the trapezoidal rule.
        end: where the points end.
    """

    theta: float
    sigma: float
    step: float
    strip: float
    end: float


class Losses(Protocol):
    """The law of L = (p0 - E p1)/omega under omega, E = e^epsilon, or a larger one in convex order."""

    def real(self, x: arb) -> tuple[arb, arb]:
        """Returns E e^(xL) and E |L| e^(xL)."""
        ...

    def at(self, z: acb) -> tuple[acb, acb]:
        """Returns E e^(zL) and E L e^(zL)."""
        ...


@dataclass(frozen=True)
class Atoms:
    """A law of a few values: probabilities and values."""

    atoms: Sequence[tuple[arb, arb]]

    def real(self, x: arb) -> tuple[arb, arb]:
        """See `Losses`."""
        powers = [(w * (x * loss).exp(), loss) for w, loss in self.atoms]
        return sum((p for p, _ in powers), arb(0)), sum((p * abs(loss) for p, loss in powers), arb(0))

    def at(self, z: acb) -> tuple[acb, acb]:
        """See `Losses`."""
        powers = [(w * (z * loss).exp(), loss) for w, loss in self.atoms]
        return sum((p for p, _ in powers), acb(0)), sum((p * loss for p, loss in powers), acb(0))


def on_ends(low: float, high: float, mean: float, mass: float) -> tuple[tuple[arb, arb], tuple[arb, arb]]:
    """Returns the largest law, in convex order, on a range with a mean: both ends, with their probabilities."""
    upper = arb(mass) * ((arb(mean) - low) / (arb(high) - low) if high > low else 1)
    return (mass - upper, arb(low)), (upper, arb(high))


class Lattice:
    """A law on the multiples of a power of 2: masses with a mean, all in units of it, on the two ends of ranges."""

    def __init__(self, low: Floats, high: Floats, mean: Floats, mass: Floats, step: float) -> None:
        """Makes the law. low < high: whole numbers; mean: within the range, exact or too large."""
        self.step, self.first = arb(step), int(low.min())
        masses = [arb(0)] * (int(high.max()) - self.first + 1)
        for left, right, centre, chance in zip(low.tolist(), high.tolist(), mean.tolist(), mass.tolist(), strict=True):
            (less, _), (more, _) = on_ends(left, right, centre, chance)
            masses[int(left) - self.first] += less
            masses[int(right) - self.first] += more
        self.masses = arb_poly(masses)
        self.moments = arb_poly([m * (self.first + k) for k, m in enumerate(masses)])
        self.absolute = arb_poly([m * abs(self.first + k) for k, m in enumerate(masses)])

    def real(self, x: arb) -> tuple[arb, arb]:
        """See `Losses`."""
        power, shift = (x * self.step).exp(), (x * self.step * self.first).exp()
        return self.masses(power) * shift, self.absolute(power) * shift * self.step

    def at(self, z: acb) -> tuple[acb, acb]:
        """See `Losses`."""
        power, shift = (z * self.step).exp(), (z * self.step * self.first).exp()
        return self.masses(power) * shift, self.moments(power) * shift * self.step


def blanket(losses: Losses, weights: Weights, line: Line) -> arb:
    """Returns a bound on the divergence that a victim shows, apart from outcomes that the blanket does not have.

    Everyone's report is a draw from omega with probability gamma_j and the rest is revealed. With L = (p0 - E p1)/omega
    under omega, G standard normal, any sigma, theta > 0, phi(z) = E e^(z (L + sigma G)) and z = theta + iu,

        H <= 1/(2 pi) integral phi'(z)/z prod_j (1 - gamma_j + gamma_j phi(z)) du.

    Proof: H <= E_K[E[S_(K+1)]_+/(K+1)], S a sum of independent L, K the number of the others' blanket reports (Balle et
    al. 2019, personal weights). A Gaussian is added to each L (Jensen); then E[S 1{S > 0}]/(K+1) = E[L_1 1{S > 0}] by
    exchangeability, which is inverted along Re z = theta.
    """
    theta, s2 = arb(line.theta), arb(line.sigma) ** 2

    def bounds(x: arb) -> tuple[arb, arb, arb]:
        """Returns phi, |phi'(z)/z| and the product for Re z = x, at most, all but phi without e^(-u^2 sigma^2/2)."""
        gaussian = (x * x * s2 / 2).exp()
        phi, slope = (gaussian * moment for moment in losses.real(x))
        return phi, slope / x + s2 * phi, sum((n * (1 - g + g * phi).log() for g, n in weights), arb(0)).exp()

    def transforms(u: arb) -> tuple[acb, acb]:
        """Returns phi(z) and phi'(z)/z."""
        z = acb(theta, u)
        gaussian = (z * z * s2 / 2).exp()
        phi, slope = (gaussian * moment for moment in losses.at(z))
        return phi, slope / z + s2 * phi

    def integrand(u: arb) -> arb:
        phi, slope = transforms(u)
        return (slope * sum((n * (1 - g + g * phi).log() for g, n in weights), acb(0)).exp()).real

    phi0, slope0, product0 = bounds(theta)
    if not line.end <= MOST_POINTS * line.step:  # also where one of them is not a number
        return phi0 * product0 / (theta * arb(1).exp())  # [S]_+ <= e^(theta S)/(e theta)
    # ln(1 - g + g x) is concave: |product| <= product0 e^(-pull (phi0 - |phi|))
    pull = sum((n * g / (1 - g + g * phi0) for g, n in weights), arb(0))
    steepest = (theta * theta * s2 / 2).exp() * losses.real(theta)[1]

    def most(fallen: arb, centre: arb | None, radius: arb) -> arb:
        phi = phi0
        if centre is not None:  # |E e^(zL)| changes by at most E |L| e^(theta L) per unit of u
            phi = abs(transforms(centre)[0]) * (centre * centre * s2 / 2).exp() + radius * steepest
        return slope0 * fallen * product0 * (-pull * (phi0 - phi * fallen)).exp()

    def side(x: arb) -> arb:
        _, slope, product = bounds(x)
        return slope * product

    return trapezoidal(line, integrand, most, side)


def trapezoidal(
    line: Line,
    integrand: Callable[[arb], arb],
    most: Callable[[arb, arb | None, arb], arb],
    side: Callable[[arb], arb],
) -> arb:
    """Returns an upper bound on 1/(2 pi) times an integral along a line, of a function that is analytic in the strip.

    The error of the trapezoidal rule with the step h is at most the integral of the absolute value along both edges of
    a strip of half width a by e^(2 pi a/h) - 1 (Trefethen and Weideman 2014, Theorem 5.1).

    Args:
        line: theta, sigma, h, a, and the end of the points.
        integrand: its real part at u, which is even.
        most: its absolute value, at most, where the Gaussian has fallen to at most the first argument, for u within the
            third of the second; for any u if that is None.
        side: its absolute value on Re z = x, at most, by e^(-u^2 sigma^2/2).
    """
    theta, s2, h, strip = arb(line.theta), arb(line.sigma) ** 2, arb(line.step), arb(line.strip)
    total = integrand(arb(0))
    negligible, j, block, points = NEGLIGIBLE * abs(total), 1, 1, math.ceil(line.end / line.step)
    while j <= points:
        block = min(block, points - j + 1)
        radius = h * (block - 1) / 2
        centre = h * j + radius
        height = block * most((-((h * j) ** 2) * s2 / 2).exp(), centre, radius)  # the Gaussian is largest at h j
        if height < negligible:
            total, j, block = total + 2 * height, j + block, 2 * block
        elif block > 1:
            block //= 2
        else:
            total, j = total + 2 * integrand(centre), j + 1
    end = h * points
    beyond = most((-end * end * s2 / 2).exp(), None, arb(0)) / (s2 * end)
    sides = (side(theta - strip) + side(theta + strip)) * (2 * arb.pi() / s2).sqrt()
    return (h * total + 2 * beyond + sides / ((2 * arb.pi() * strip / h).exp() - 1)) / (2 * arb.pi())


def small_blanket(losses: Atoms, weights: Weights) -> arb:
    """Returns the bound of `blanket` without any Gaussian, E_K[E[S_(K+1)]_+/(K+1)], by adding up all counts."""
    law, total = arb_poly([1]), arb(0)
    for weight, count in weights:
        law *= arb_poly([1 - weight, weight]) ** count
    for reports, chance in enumerate(law.coeffs(), 1):
        excess = arb(0)
        for counts in _compositions(reports, len(losses.atoms)):
            value = sum((n * loss for n, (_, loss) in zip(counts, losses.atoms, strict=True)), arb(0))
            if not value <= 0:
                ways = math.factorial(reports) // math.prod(map(math.factorial, counts))
                powers = (w**n for n, (w, _) in zip(counts, losses.atoms, strict=True))
                excess += value.max(arb(0)) * ways * math.prod(powers, start=arb(1))
        total += chance * excess / reports
    return total


def number_of_counts(losses: Atoms, weights: Weights) -> int:
    """Returns how many counts `small_blanket` adds up."""
    return math.comb(sum(n for _, n in weights) + 1 + len(losses.atoms), len(losses.atoms))


def _compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Yields all ways to write a number as an ordered sum of this many numbers >= 0."""
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in _compositions(total - first, parts - 1):
            yield (first, *rest)


def geometric_mean(weights: Weights) -> tuple[arb, int]:
    """Returns the geometric mean of weights, for all of their people.

    Of all weights with this product, equal ones make K least in stochastic order (Pledger and Proschan 1971), and the
    bound above is the mean of a function that falls with K.
    """
    people = sum(n for _, n in weights)
    return (sum((n * g.log() for g, n in weights), arb(0)) / people).exp(), people


@dataclass(frozen=True)
class FiniteLaw:
    """The law of a report that has one of finitely many values, any two of a victim's being told apart equally well.

    A report of the value x is drawn from R(x). The blanket omega is uniform: R(x) >= gamma omega.

    Attributes:
        points: the number of report values.
        inside: how many of them are likely under one value; a likely one is e^v times as probable as another.
        common: how many are likely under both of two values.
        third: of those likely under both of two values, how many are likely under a third one: this number or all.
    """

    points: int
    inside: int = 1
    common: int = 0
    third: int = 0

    @property
    def is_bit(self) -> bool:
        """Whether it is a bit, or one of two halves of the report space that are each other's opposites."""
        return self.points == 2 * self.inside and self.common == 0

    def _low(self, v: arb) -> arb:
        """The probability of a value that is not likely."""
        return 1 / (self.inside * v.exp() + self.points - self.inside)

    def classes(self, v: arb) -> Classes:
        """Returns the number of points of each class, with their probabilities under two values of the victim."""
        return [one for one in self._classes(v) if one[0]]

    def _classes(self, v: arb) -> list[tuple[int, arb, arb]]:
        low, apart = self._low(v), self.inside - self.common
        high, neither = v.exp() * low, self.points - 2 * self.inside + self.common
        return [(apart, high, low), (apart, low, high), (self.common, high, high), (neither, low, low)]

    def kinds(self, v: arb, epsilon: arb, budget: arb, rung: arb) -> list[Atoms]:
        """Returns the laws of X = D/R under R, for every place of another report's likely points R among the victim's.

        v: the victim's budget; budget: the other's, of whose report R a part `rung` of the blanket is taken away.
        """
        classes = self._classes(v)
        apart, third = self.inside - self.common, self.third
        places = {
            (apart, 0, self.common, 0),
            (0, apart, self.common, 0),
            (0, 0, self.common, apart),
            (self.common - third, self.common - third, third, apart - self.common + third),
        }
        low, gain = self._low(budget), epsilon.exp()
        chances = [(each - rung / self.points) / (1 - rung) for each in (budget.exp() * low, low)]
        laws = []
        for place in sorted(places):
            if all(0 <= likely <= size for likely, (size, _, _) in zip(place, classes, strict=True)):
                atoms: list[tuple[arb, arb]] = []
                for likely, (size, p0, p1) in zip(place, classes, strict=True):
                    numbers = zip((likely, size - likely), chances, strict=True)
                    atoms += [(n * chance, (p0 - gain * p1) / chance) for n, chance in numbers if n]
                laws.append(Atoms(atoms))
        return laws

    def gamma(self, v: arb) -> arb:
        """Returns the weight of the blanket in every report of the budget v."""
        return self.points * self._low(v)

    def losses(self, v: arb, epsilon: arb) -> Atoms:
        """Returns the law of L = (p0 - E p1)/omega under omega."""
        gain = epsilon.exp()
        return Atoms([(arb(n) / self.points, (p0 - gain * p1) * self.points) for n, p0, p1 in self.classes(v)])

    def alone(self, v: arb, epsilon: arb) -> arb:
        """Returns the divergence of the victim's report by itself; 0 from the local budget on."""
        if epsilon >= v:
            return arb(0)
        return sum((w * loss.max(arb(0)) for w, loss in self.losses(v, epsilon).atoms), arb(0))


BITS = FiniteLaw(2)


def above(ball: arb) -> float:
    """Returns a float that is at least the number in the ball; infinity if nothing is known of it."""
    end = float(ball.upper())
    if math.isnan(end):
        return math.inf
    return 0.0 if ball <= 0 else math.nextafter(end, math.inf)


def precision_for(local_epsilon: float) -> int:
    """Returns the bits for a victim of this budget: of a tiny one two probabilities differ by little."""
    return PRECISION - 2 * math.frexp(min(1.0, local_epsilon))[1]
