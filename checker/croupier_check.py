"""Proves the numbers of a certificate again, from nothing but the document: `python croupier_check.py FILE`.

This program shares no code with croupier. It reads the JSON that `croupier certify --json` or `croupier round result
--json` prints, takes the local budgets, the mechanism and the claimed (epsilon, delta) of every tier from it, and
proves every claim again in ball arithmetic (python-flint): each number below is an interval that contains the exact
value, so that no line has to say anything about rounding. Searches for parameters use floats; any parameter is sound,
and a bad one only fails to prove.

A claim is for a *victim*, one person with the local budget v, among *others*, and says

    H = integral of max(0, P0 - E P1) <= delta,   E = e^epsilon,

where P0 and P1 are the laws of the shuffled reports for two values of the victim, whatever the others' values are.
Five theorems are tried in turn. What is proved is printed; what is not proved is an error.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from pathlib import Path
from typing import Any

from flint import acb, arb, arb_poly, ctx

ctx.prec = 96
SMOOTHING = (0.002, 0.0005, 0.0001)
"""Standard deviation of the Gaussian that is added to a sum, as a part of the sum's own; tried in turn."""
SMOOTHED = 0.05
"""The square of that part for the exchange bound, times the sum of the variances of the others' bits."""
STAGES = 24
"""Pieces of the time until the first clock of a host rings; each is charged at its end."""
UNHEARD = 1e-9
"""The part of delta that is spent on the event that no clock rings."""
MOST_WORK = 4_000_000
"""Steps that the proof of one certificate may take, about 10 microseconds each; a longer one is not tried."""
MOST_SPLITS = 9_000_000
"""Coefficients of all laws of an enumeration that may be wanted; croupier has no larger one."""
MOST_TIERS = 100
"""Tiers that a certificate may have; croupier joins budgets where there are more than about 65."""
MOST_CELLS = 20_000
"""Cells that the tail of an integral may have; the last ones are charged as they are."""
MOST_SUMS = 600_000
"""Sums of the values of a hop's fakes that `added_sums` may add up."""
MOST_COUNTS = 400_000
"""Combinations of counts that `small_blanket` may add up."""


class NotCovered(Exception):
    """The document states something that this program has no theorem for."""


class NotProved(Exception):
    """A claim of the document that no theorem below proves."""


class Work:
    """The number of steps that the proof of one certificate may still take."""

    left = MOST_WORK


def spend(steps: int) -> None:
    """Counts steps. Raises NotCovered when all are spent."""
    Work.left -= steps
    if Work.left < 0:
        raise NotCovered("its proof takes longer than about a minute")


# ---------------------------------------------------------------------------------------------------- mechanisms


@dataclass(frozen=True)
class Mechanism:
    """A local randomizer whose report has one of finitely many values.

    A report of the value x is drawn from R(x), and every pair of values is told apart equally well. The blanket omega
    is uniform: R(x) >= gamma omega. Points of the report space fall into classes with the same R(x0), R(x1).

    Attributes:
        points: the number K of report values.
        inside: how many of them are likely under one value, s; a likely one is e^v times as probable as another.
        common: how many are likely under both of two values.
        is_bit: whether the divergence is that of a bit among bits (also half spaces, which have opposite points).
        counts_show_all: whether reports are bits themselves, so that all data sets can be enumerated.
        values: the number of report values that hop noise adds fakes of; None where it cannot.
    """

    name: str
    points: int
    inside: int
    common: int
    is_bit: bool = False
    counts_show_all: bool = False
    values: int | None = None

    def classes(self, v: arb) -> list[tuple[int, arb, arb]]:
        """Returns the number of points of each class, with their probabilities under two values of the victim."""
        low = 1 / (self.inside * v.exp() + self.points - self.inside)
        high, apart = v.exp() * low, self.inside - self.common
        neither = self.points - 2 * self.inside + self.common
        each = [(apart, high, low), (apart, low, high), (self.common, high, high), (neither, low, low)]
        return [one for one in each if one[0]]

    def gamma(self, v: arb) -> arb:
        """Returns the weight of the uniform blanket in every report of the budget v."""
        return self.points / (self.inside * v.exp() + self.points - self.inside)

    def variation(self, v: arb) -> arb:
        """Returns the total variation between the reports of two values."""
        return (self.inside - self.common) * (v.exp() - 1) / (self.inside * v.exp() + self.points - self.inside)


SHUFFLED = {"uniform-order", "independent-reports", "dishonest-clients"}
"""What the theorems about a shuffled batch assume, beside how budgets are counted and whether reports show them."""
HARMLESS = {"replace-one", "one-honest-hop", "fixed-terms", "honest-accountant", "genuine-roster"}
"""Assumptions that say what is claimed, or by which it holds of a round; no theorem here needs the absence of one."""

BIT = Mechanism("rr", 2, 1, 0, is_bit=True, counts_show_all=True, values=2)


def mechanism_of(assumptions: dict[str, dict[str, Any]]) -> Mechanism:
    """Returns the mechanism that the assumptions name."""
    runs = [(code, parameters) for code, parameters in assumptions.items() if code.startswith("runs-")]
    if len(runs) != 1:
        raise NotCovered(f"the assumptions name {len(runs)} mechanisms, not one")
    kind, parameters = runs[0][0].removeprefix("runs-"), runs[0][1]
    if kind in ("rr", "onebit"):
        return Mechanism(kind, 2, 1, 0, is_bit=True, counts_show_all=True, values=2)
    if kind in ("krr", "levels"):
        k = whole(parameters, "k", 2)
        return Mechanism(kind, k, 1, 0, is_bit=k == 2, counts_show_all=k == 2, values=k)
    if kind == "choices":
        return Mechanism(kind, 2, 1, 0, is_bit=True, values=2 * whole(parameters, "k", 1))
    if kind == "hemisphere":
        return Mechanism(kind, 2, 1, 0, is_bit=True)
    if kind == "pgr":
        k, q, t = whole(parameters, "k", 2), whole(parameters, "q", 2, 1000), 2
        if any(q % divisor == 0 for divisor in range(2, q)):
            raise NotCovered(f"pgr over {q} elements: {q} is not a prime")
        while (q**t - 1) // (q - 1) < k:
            t += 1
        points, inside, common = ((q**power - 1) // (q - 1) for power in (t, t - 1, t - 2))
        return Mechanism(kind, points, inside, common, values=points)
    raise NotCovered(f"mechanism {kind}: this program has no theorem for it")


# ---------------------------------------------------------------------------------------------------- the others


Others = list[tuple[float, int]]
"""The honest others: (local epsilon, how many), ascending."""


def honest_others(tiers: Others, victim: float, dishonest: int) -> Others:
    """Returns others who are honest and take part for certain: all that are counted but the victim and the dishonest.

    The dishonest are those of the smallest budgets. No other choice is worse, because a report of a smaller budget is
    a mixture of reports of a larger one: every bound below falls with the budgets of the others. With budget privacy
    no count is above the truth, so that these others take part, and a victim need not have been counted.
    """
    rest, left = [], dishonest
    for budget, count in sorted(tiers):
        count = max(0, count - (budget == victim))
        gone = min(left, count)
        left -= gone
        if count > gone:
            rest.append((budget, count - gone))
    return rest


# --------------------------------------------------------------------------------- 1. theorem: the local budget


def alone(mechanism: Mechanism, v: arb, epsilon: arb) -> arb:
    """Returns the divergence of the report by itself; 0 from the local budget on."""
    if epsilon >= v:
        return arb(0)
    return sum((n * positive(p0 - epsilon.exp() * p1) for n, p0, p1 in mechanism.classes(v)), arb(0))


def positive(x: arb) -> arb:
    """Returns an enclosure of max(0, x)."""
    return x.max(arb(0))


def largest(values: Iterable[arb]) -> arb:
    """Returns an upper bound on all of these; NaN if one of them is (Python's max may leave a NaN out)."""
    return reduce(arb.max, (value.upper() for value in values))


# ----------------------------------------------------------------------------------- 2. theorem: enumeration


def enumeration(v: arb, others: Others, epsilon: arb) -> arb:
    """Returns the largest divergence over all data sets, for reports that are bits.

    The number of ones is all that a batch shows. An other of budget b reports its bit with probability e^b/(1 + e^b);
    of every budget any number of people may hold a 1. Both values of the victim are covered: the mirror image of a
    data set is another one of those that are looked at. With X the number of the others' ones, the difference of the
    two laws at i ones is gain Pr[X = i-1] - loss Pr[X = i], loss >= 0. X is a sum of independent bits, so that Pr[X =
    i-1]/Pr[X = i] grows with i: below the first i (from above) where the difference is not positive none is.
    """
    people = sum(count for _, count in others)
    kept = v.exp() / (1 + v.exp())
    gain, loss = kept - epsilon.exp() * (1 - kept), epsilon.exp() * kept - (1 - kept)
    radius = math.ceil(math.sqrt(people * 40)) + 1
    beyond = gain * (-2 * arb(radius - 1) ** 2 / people).exp()  # Hoeffding: at most e^-80
    keeps = [(arb(budget).exp() / (1 + arb(budget).exp()), count) for budget, count in others]
    spend(splits(others))
    worst = arb(0)
    for ones in itertools.product(*(range(count + 1) for _, count in others)):
        law, mean = arb_poly([1]), arb(0)
        for held, (keep, count) in zip(ones, keeps, strict=True):
            law *= arb_poly([1 - keep, keep]) ** held * arb_poly([keep, 1 - keep]) ** (count - held)
            mean += held * keep + (count - held) * (1 - keep)
        total, i = beyond, min(people + 1, int(float(mean)) + 1 + radius)
        while i > 0 and not (difference := gain * law[i - 1] - loss * law[i]) <= 0:
            total, i = total + difference.upper(), i - 1
        worst = largest((worst, total))
    return worst


def splits(others: Others) -> int:
    """Returns the number of coefficients that `enumeration` computes."""
    return math.prod(count + 1 for _, count in others) * (sum(count for _, count in others) + 2)


# ------------------------------------------------------------------------------------- 3. theorem: the blanket


def blanket(mechanism: Mechanism, v: arb, others: Others, epsilon: arb, delta: float) -> arb:
    """Returns a bound on H by the common blanket, one contour integral.

    Everyone's report is a draw from omega with probability gamma_j and the rest is revealed. With L = (p0 - E p1)/omega
    under omega, phi(z) = E e^(zL), Pi(z) = prod_j (1 - gamma_j + gamma_j phi(z)), K the number of blanket reports of
    the others, and any theta > 0, sigma > 0, integer k >= 0, for z = theta + iu,

        H <= I1 + sigma^2/(k+1) I2 + sigma/sqrt(2 pi) Pr[K < k],
        I1 = 1/(2 pi) integral e^(z^2 sigma^2/2) phi'(z)/z Pi(z) du,  I2 the same with phi(z) in place of phi'(z)/z.

    Proof: H <= E_K[E[S_{K+1}]_+ / (K+1)] with S a sum of independent L (Balle et al. 2019, personal weights); a
    Gaussian of deviation sigma is added to S (Jensen); E[S 1{S + sigma G > 0}] = (K+1) E[L_1 1{...}] by
    exchangeability, and E[G 1{...}] = sigma f(0), f the density of S + sigma G; both are inverted along Re z = theta.
    """
    if (exact := small_blanket(mechanism, v, others, epsilon, delta)) is not None:
        return exact
    for smoothing in SMOOTHING:
        bound = smoothed_blanket(mechanism, v, others, epsilon, delta, smoothing)
        if not delta < bound <= (1 + 10 * smoothing) * delta:
            break
    return bound


def smoothed_blanket(mechanism: Mechanism, v: arb, others: Others, epsilon: arb, delta: float, smoothing: float) -> arb:
    """Returns the bound of `blanket` with a Gaussian of this deviation, relative to that of S."""
    atoms = atoms_of(mechanism, v, epsilon)
    weights = [(mechanism.gamma(arb(budget)), count) for budget, count in others]
    floats = [(float(w), float(x)) for w, x in atoms]
    mean_count = sum(float(g) * n for g, n in weights)
    deviation = math.sqrt(mean_count * sum(w * x * x for w, x in floats)) or 1.0
    sigma = smoothing * deviation

    def height(theta: float) -> float:
        phi = sum(w * math.exp(theta * x) for w, x in floats)
        product = sum(n * math.log1p(float(g) * (phi - 1)) for g, n in weights)
        return theta * theta * sigma * sigma / 2 + math.log(phi) + product - math.log(theta)

    theta = lowest(height, 3 / deviation)
    least = max(0, int(mean_count - math.sqrt(2 * mean_count * (18 - math.log(delta)))))
    t, s2 = arb(theta), arb(sigma) ** 2

    def integrand(u: acb, analytic: bool) -> acb:
        z = t + acb(0, 1) * u
        powers = [(w * (z * x).exp(), x) for w, x in atoms]
        phi, slope = sum((p for p, _ in powers), acb(0)), sum((p * x for p, x in powers), acb(0))
        product = sum((n * (1 - g + g * phi).log(analytic=analytic) for g, n in weights), acb(0))
        return (z * z * s2 / 2 + product).exp() * (slope / z + s2 / (least + 1) * phi)

    # Beyond `end` every factor is at most its value at u = 0 with absolute moments.
    phi = sum((w * (t * x).exp() for w, x in atoms), arb(0))
    moment = sum((w * abs(x) * (t * x).exp() for w, x in atoms), arb(0))
    product = sum((n * (1 - g + g * phi).log() for g, n in weights), arb(0))
    end = math.sqrt(2 * max(1.0, float(product + t * t * s2 / 2) - math.log(delta) + 16)) / sigma
    tail = ((t * t - arb(end) ** 2) * s2 / 2 + product).exp() / (s2 * end) * (moment / end + s2 / (least + 1) * phi)
    rare = few(weights, least) * arb(sigma) / (2 * arb.pi()).sqrt()
    return (integral(integrand, end, delta, len(atoms) + len(weights)) + tail) / arb.pi() + rare


def small_blanket(mechanism: Mechanism, v: arb, others: Others, epsilon: arb, delta: float) -> arb | None:
    """Returns the bound of `blanket` before any smoothing, E_K[E[S_{K+1}]_+ / (K+1)], by adding up all counts.

    Returns None where that takes too long. Counts above `most` are charged with the largest L, which exceeds E[S]_+/K.
    """
    weights = [(mechanism.gamma(arb(budget)), count) for budget, count in others]
    atoms = atoms_of(mechanism, v, epsilon)
    mean, people = sum(float(g) * n for g, n in weights), sum(n for _, n in weights)
    most = min(people, int(mean + 18 - math.log(delta) + math.sqrt(2 * mean * (18 - math.log(delta)))))
    if math.comb(most + 1 + len(atoms), len(atoms)) > MOST_COUNTS:
        return None
    spend(math.comb(most + 1 + len(atoms), len(atoms)))
    law = arb_poly([1])
    for weight, count in weights:
        power = arb_poly([1 - weight, weight])
        while count:
            if count % 2:
                law = arb_poly((law * power).coeffs()[: most + 1])
            power, count = arb_poly((power * power).coeffs()[: most + 1]), count // 2
    total = (1 - sum(law.coeffs(), arb(0))) * largest(x for _, x in atoms) if most < people else arb(0)
    for reports in range(1, most + 2):
        excess = arb(0)
        for counts in compositions(reports, len(atoms)):
            value = sum((n * x for n, (_, x) in zip(counts, atoms, strict=True)), arb(0))
            if not value <= 0:
                ways = math.factorial(reports) // math.prod(map(math.factorial, counts))
                mass = math.prod((w**n for n, (w, _) in zip(counts, atoms, strict=True)), start=arb(1))
                excess += value.upper() * ways * mass
        total += law[reports - 1] * excess / reports
    return total


def atoms_of(mechanism: Mechanism, v: arb, epsilon: arb) -> list[tuple[arb, arb]]:
    """Returns the law of L = (p0 - E p1)/omega under omega: probabilities and values."""
    return [
        (arb(number) / mechanism.points, (p0 - epsilon.exp() * p1) * mechanism.points)
        for number, p0, p1 in mechanism.classes(v)
    ]


def compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Yields all ways to write a number as an ordered sum of this many numbers >= 0."""
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in compositions(total - first, parts - 1):
            yield (first, *rest)


def few(weights: Sequence[tuple[arb, int]], least: int) -> arb:
    """Returns a bound on Pr[K < least] by Chernoff, K a sum of independent bits of these weights."""
    if least == 0:
        return arb(0)

    def exponent(x: float) -> float:
        return x * least + sum(n * math.log1p(float(g) * math.expm1(-x)) for g, n in weights)

    x = arb(lowest(exponent, 0.1))
    return (x * least + sum((n * (1 + g * ((-x).exp() - 1)).log() for g, n in weights), arb(0))).exp()


# ------------------------------------------------------------------------------------ 4. theorem: the exchange


@dataclass(frozen=True)
class Factor:
    """|phi(theta + iu)| = e^rest sqrt(1 - 2 c (1 - cos(k u))) for one host of one kind, in one stage."""

    rest: arb
    c: arb
    k: arb

    def log(self, u: Any, analytic: bool = False) -> Any:
        """Returns the logarithm, for a real u or its analytic continuation."""
        inside = 1 - 2 * self.c * (1 - (self.k * u).cos())
        return self.rest + (inside.log(analytic=analytic) if isinstance(u, acb) else inside.log()) / 2


@dataclass(frozen=True)
class Stage:
    """The factors of all tiers of hosts in one stage, for hosts that agree with the victim's first bit, or do not."""

    mass: arb
    tiers: list[tuple[int, Factor, Factor]]

    def log(self, u: Any, analytic: bool = False) -> Any:
        """Returns the logarithm of the product for hosts that all agree."""
        return sum((count * agree.log(u, analytic) for count, agree, _ in self.tiers), u * 0)

    def most(self, u: arb) -> arb:
        """Returns an upper bound on the logarithm, for every u in this interval and all data sets."""
        spend(2 * len(self.tiers))
        total = arb(0)
        for count, *kinds in self.tiers:
            heights = [f.rest + (1 - 2 * f.c * (1 - (f.k * u).cos())).upper().log() / 2 for f in kinds]
            total += count * largest(h.min(f.rest) for h, f in zip(heights, kinds, strict=True))
        return total

    def agreeing_is_worst(self, end: float) -> tuple[arb, float]:
        """Returns (m, u) such that hosts that agree have the largest product up to u, but for a factor of e^m.

        The derivative of log |phi| is -c k sin(ku)/(1 - 4c sin^2(ku/2)). Where k' <= k and c' k'^2 >= c k^2, concavity
        of the sine on [0, pi] gives c k sin(ku) <= c' k' sin(k'u) and c sin^2(ku/2) <= c' sin^2(k'u/2): up to u =
        pi/k the other kind falls faster, and exceeds this one by no more than at u = 0. Elsewhere cells compare both.
        """
        more, until = arb(0), end
        for count, agree, differ in self.tiers:
            if differ.k <= agree.k and differ.c * differ.k**2 >= agree.c * agree.k**2:
                more += count * positive(differ.rest - agree.rest)
                continue
            low, step = 0.0, until / 64
            while low < until and step > until / 10**5:
                spend(1)
                u = arb(low).union(arb(low + step))
                if agree.log(u) >= differ.log(u):
                    low, step = low + step, 2 * step
                else:
                    step /= 2
            until = min(until, low)
        return more.upper(), until


def stages_of(
    v: arb, others: Others, epsilon: arb, delta: float, theta: float, numbers: Sequence[int] = range(1, STAGES + 1)
) -> tuple[list[Stage], arb, float]:
    """Returns the stages at theta, the time until which the clocks run, and about the deviation of the sum."""
    spend(len(others) * len(numbers))
    gain = epsilon.exp()
    hosts = [(count, arb(budget).exp() / (1 + arb(budget).exp())) for budget, count in others]
    start = sum((count * p * (1 - p) for count, p in hosts), arb(0))
    horizon = min(-math.log(UNHEARD * delta), 0.45 * float(start))
    head = (v.exp() - gain) / (1 + v.exp())
    stages = []
    for number in numbers:
        before, until = (arb(horizon) * n**2 / STAGES**2 for n in (number - 1, number))
        spent = until / start / (1 + (1 - 2 * until / start).sqrt())
        after = [(count, p * (1 + spent * (1 - p))) for count, p in hosts]
        variance = sum((count * p * (1 - p) for count, p in after), arb(0))
        tiers = []
        for count, p in after:
            kinds = []
            for r in (p, 1 - p):
                k = (head + (gain - 1) * r) / variance
                up, down = r * (theta * k * (1 - r)).exp(), (1 - r) * (-theta * k * r).exp()
                rest = (up + down).log() - (gain - 1) * theta * p * (1 - p) / variance
                kinds.append(Factor(rest, up * down / (up + down) ** 2, k))
            tiers.append((count, kinds[0], kinds[1]))
        stages.append(Stage((-before).exp() - (-until).exp(), tiers))
    return stages, arb(horizon), float((head + (gain - 1)) / start.sqrt())


def exchange(v: arb, others: Others, epsilon: arb, delta: float) -> arb:
    """Returns a bound on H for bits by the exchange of the victim's report with a host's (docs/paper, Theorem 1).

    Every other is a host with a clock; the first whose clock rings, at the time t, reports a fair bit, and the victim
    may have reported in its place. With X_i = (p0 - E p1)/R_i under R_i, weights alpha_i in proportion to the variance
    of a host's bit, the residual R_i^t of randomised response with flip probability q' = q(1 - s p), s(1 - s) =
    t/(2 V0), and any theta > 0, sigma > 0,

        H <= sum over stages Pr[stage] 1/(2 pi) integral e^((theta^2 - u^2) sigma^2/2)/(theta^2 + u^2)
             prod_i |phi_i(theta + iu)| du + Pr[no clock rings] H0,

    where each tier's hosts agree or disagree with the victim's first bit, whichever is larger at u. As long as the
    agreeing ones are the worst the integrand is analytic; beyond, it is bounded cell by cell.
    """

    def height(theta: float) -> float:
        (stage,), _, _ = stages_of(v, others, epsilon, delta, theta, [STAGES // 2])
        return float(stage.log(arb(0))) - 2 * math.log(theta)

    _, _, deviation = stages_of(v, others, epsilon, delta, 1.0, [])
    theta = lowest(height, 3 / deviation)
    stages, horizon, _ = stages_of(v, others, epsilon, delta, theta)
    until = 3.14159 / max(float(a.k) for stage in stages for _, a, _ in stage.tiers)
    more = arb(0)
    for stage in stages:
        excess, until = stage.agreeing_is_worst(until)
        more = largest((more, excess))
    variance = (deviation / max(float(a.k) for _, a, _ in stages[0].tiers)) ** 2
    t2, s2 = arb(theta) ** 2, arb(deviation) ** 2 * SMOOTHED / variance

    def integrand(u: acb, analytic: bool) -> acb:
        total = sum((stage.mass * stage.log(u, analytic).exp() for stage in stages), acb(0))
        return ((t2 - u * u) * s2 / 2).exp() / (t2 + u * u) * total

    def most(low: float, high: float) -> arb:
        u = arb(low).union(arb(high))
        total = sum((stage.mass * stage.most(u).exp() for stage in stages), arb(0))
        return ((t2 - arb(low) ** 2) * s2 / 2).exp() / (t2 + arb(low) ** 2) * total

    bulk = integral(integrand, until, delta, len(stages) * len(others)) * more.exp()
    if bulk > 4 * delta:
        return arb("inf")  # what follows would take long, and could only add to it
    far = max(2 * until, (8 + math.sqrt(-2 * math.log(delta))) / float(s2) ** 0.5)
    at_rest = sum((stage.mass * stage.most(arb(0)).exp() for stage in stages), arb(0))
    tail = ((t2 - arb(far) ** 2) * s2 / 2).exp() / (s2 * arb(far) ** 3) * at_rest
    total = (bulk + cells(most, until, far, 2e-4 * delta) + tail) / arb.pi()
    return total + (-horizon).exp() * alone(BIT, v, epsilon)


def cells(most: Callable[[float, float], arb], start: float, end: float, allowed: float) -> arb:
    """Returns an upper bound on an integral from the largest value on cells; they are halved while one costs more."""
    done, waiting, left = arb(0), [(start, end)], MOST_CELLS
    while waiting:
        low, high = waiting.pop()
        cost, left = most(low, high) * (arb(high) - low), left - 1
        if cost < allowed or left < 0:
            done += cost
        else:
            waiting += [(low, (low + high) / 2), ((low + high) / 2, high)]
    return done


# ----------------------------------------------------------------------------------- 5. theorem: the hop's fakes


def fakes(mechanism: Mechanism, v: arb, epsilon: arb, delta: float, hop_epsilon: float, hop_delta: float) -> arb:
    """Returns what one honest hop guarantees by its fake reports, whatever everybody else does (docs/hop-noise.md).

    A hop adds c + Z fakes of every value, Z discrete Laplace with q = e^-a on |Z| <= c. A report of the value r
    multiplies the probability of a count of fakes by rho_r, independent over r: 0, q or 1/q with the probabilities
    edge, below and above; or it is recognised, with the probability edge. So with d_r = R(r|x) - E R(r|x')

        H = edge sum_r [d_r]_+ + E[S]_+,  S = sum_r d_r rho_r.

    Two values have counts with the sum 2c + 1, and E[S]_+ is below ([d_0 + q d_1]_+ + [q d_0 + d_1]_+). Few sums are
    added up; else E[S]_+ <= E[S + sigma G]_+ = 1/(2 pi) integral e^(z^2 sigma^2/2) E e^(zS)/z^2 du for z = theta + iu.
    With t the total variation, (t, 1 - t - E, 0, ...) majorizes d, and shows at least as much: the least counts.
    """
    values = mechanism.values
    assert values is not None
    a, c = law_of(values, hop_epsilon, hop_delta)
    q, gain, spread = (-a).exp(), epsilon.exp(), values // mechanism.points  # the bits of each of several options
    middle = (1 - q) / (1 + q - 2 * q ** (c + 1))  # Pr[Z = 0]
    edge, below, above = middle * q**c, (1 + middle) / 2 - middle * q**c, (1 - middle) / 2
    d = [(n * spread, (p0 - gain * p1) / spread) for n, p0, p1 in mechanism.classes(v)]
    shown = edge * sum((n * positive(x) for n, x in d), arb(0))
    if values == 2:
        (_, one), (_, two) = d
        return shown + below * (positive(one + q * two) + positive(q * one + two))
    t = mechanism.variation(v)
    coupled = [(1, t), (1, 1 - t - gain)]
    bound = edge * t + added_sums(coupled, (edge, below, above), q, math.inf)
    if bound <= delta:
        return bound
    exact = added_sums(d, (edge, below, above), q, MOST_SUMS)
    laws = [(n, [(edge, arb(0)), (below, x * q), (above, x / q)]) for n, x in d]

    def transform(z: Any) -> Any:
        total = z * 0 + 1
        for n, atoms in laws:
            total *= sum((w * (z * x).exp() for w, x in atoms), z * 0) ** n
        return total

    if exact.is_finite():
        return (shown + exact).min(bound)

    floats = [(n, [(float(w), float(x)) for w, x in atoms]) for n, atoms in laws]

    def height(theta: float) -> float:
        try:
            logs = (n * math.log(sum(w * math.exp(theta * x) for w, x in atoms)) for n, atoms in floats)
            return sum(logs) - 2 * math.log(theta)
        except OverflowError:
            return math.inf

    deviation = math.sqrt(sum(n * w * x * x for n, atoms in floats for w, x in atoms))
    theta = reduce(lambda near, _: lowest(height, near), range(4), 3 / deviation)
    sigma = 0.015 / theta
    s2, far = arb(sigma) ** 2, 22 - math.log(delta) - math.log(sigma)
    strips = [theta * part / 20 for part in range(1, 20)]
    step, strip = max((6.28 * s / max(1.0, max(height(theta - s), height(theta + s)) + far), s) for s in strips)
    points = math.ceil(math.sqrt(2 * max(1.0, height(theta) + far)) / sigma / step)
    spend(3 * len(laws) * points)

    def side(x: arb) -> arb:
        return (x * x * s2 / 2).exp() * transform(x) / (x * x)

    def integrand(u: arb) -> arb:
        z = acb(theta, u)
        return ((z * z * s2 / 2).exp() * transform(z) / (z * z)).real

    total = integrand(arb(0)) + 2 * sum((integrand(arb(step) * j) for j in range(1, points + 1)), arb(0))
    end = arb(step) * points
    tail = side(arb(theta)) * (-end * end * s2 / 2).exp() / (s2 * end)
    sides = (side(arb(theta) - strip) + side(arb(theta) + strip)) * (2 * arb.pi() / s2).sqrt()
    sides /= (2 * arb.pi() * strip / step).exp() - 1  # of the trapezoidal rule (Trefethen and Weideman 2014, 5.1)
    return (shown + (step * total + 2 * tail + sides) / (2 * arb.pi())).min(bound)


def added_sums(d: Sequence[tuple[int, arb]], cases: tuple[arb, arb, arb], q: arb, most: float) -> arb:
    """Returns E[S]_+ of `fakes` from all sums; unlikely ones are charged with the largest. Infinity for too many."""
    edge, _, above = cases
    windows = []
    for n, _ in d:
        zeros = min(n, int(14 + n * float(edge) + 14 * math.sqrt(n * float(edge))))
        mean, width = n * float(above), 14 * math.sqrt(n * float(above)) + 14
        windows.append((range(zeros + 1), range(max(0, int(mean - width)), min(n, int(mean + width)) + 1)))
    size = math.prod(len(zeros) * len(high) for zeros, high in windows)
    if size > most:
        return arb("inf")
    spend(size)
    laws, left = [], arb(0)
    logs = [case.log() for case in cases]
    for (n, x), (zeros, high) in zip(d, windows, strict=True):
        law = []
        for i, j in itertools.product(zeros, high):
            if (k := n - i - j) >= 0:
                ways = sum((arb(m + 1).lgamma() for m in (i, j, k)), arb(0))
                chance = (arb(n + 1).lgamma() - ways + i * logs[0] + j * logs[2] + k * logs[1]).exp()
                law.append((chance, x * (k * q + j / q)))
        left += 1 - sum((chance for chance, _ in law), arb(0))
        laws.append(law)
    total = left.upper() * sum((n * positive(x) for n, x in d), arb(0)) / q
    laws.sort(key=len)
    *others, largest_law = laws
    falling = all(value <= 0 for _, value in largest_law)
    for atoms in itertools.product(*others):
        chance, start = arb(1), arb(0)
        for w, x in atoms:
            chance, start = chance * w, start + x
        if not (falling and start <= 0):
            total += chance * sum((w * positive(start + x) for w, x in largest_law), arb(0))
    return total


def law_of(values: int, hop_epsilon: float, hop_delta: float) -> tuple[arb, int]:
    """Returns a, and the least radius c for which at most delta is recognised in one of the counts that change."""
    two = values == 2
    a = 1 / arb(scale_of(hop_epsilon if two else hop_epsilon / 2))
    q = (-a).exp()

    def edge(c: int) -> arb:
        return (1 - q) * q**c / (1 + q - 2 * q ** (c + 1))

    def unhidden(c: int) -> arb:
        return edge(c) if two else 2 * edge(c) - edge(c) ** 2

    low, high = 0, 1
    while not unhidden(high) <= hop_delta:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if unhidden(middle) <= hop_delta else (middle, high)
    return a, high


def scale_of(a: float) -> float:
    """Returns the least float that is at least 1/a: the scale that all services derive."""
    scale = 1 / a
    while Fraction(scale) * Fraction(a) < 1:
        scale = math.nextafter(scale, math.inf)
    return scale


# -------------------------------------------------------------------------------------------------------- tools


def integral(integrand: Callable[[acb, bool], acb], end: float, delta: float, steps: int) -> arb:
    """Returns the integral of the real part from 0 to `end`, with every error enclosed. One value takes `steps`."""

    def value(u: acb, analytic: bool) -> acb:
        Work.left -= steps  # FLINT's caller cannot be left by an exception
        return integrand(u, analytic) if Work.left >= 0 else acb("nan")

    result = acb.integral(value, 0, end, rel_tol=2.0**-20, abs_tol=delta * 1e-7, depth_limit=10**4).real
    spend(0)
    return result


def lowest(f: Callable[[float], float], start: float) -> float:
    """Returns about where a function of a positive number with one minimum is lowest; no proof rests on it."""

    def value(x: float) -> float:
        try:
            return f(math.exp(x))
        except (OverflowError, ValueError):
            return math.inf

    ratio, x = (math.sqrt(5) - 1) / 2, math.log(start)
    low, high = x - 4, x + 4
    a, b = high - ratio * (high - low), low + ratio * (high - low)
    fa, fb = value(a), value(b)
    while high - low > 0.01:
        if fa < fb:
            high, b, fb = b, a, fa
            a = high - ratio * (high - low)
            fa = value(a)
        else:
            low, a, fa = a, b, fb
            b = low + ratio * (high - low)
            fb = value(b)
    return math.exp((low + high) / 2)


# ------------------------------------------------------------------------------------------------- the document


def number(place: dict[str, Any], key: str, least: float, most: float) -> float:
    """Returns a number of the document. Raises ValueError for anything else, and outside of its range."""
    value = place[key]
    if type(value) not in (int, float) or not least <= value <= most:
        raise ValueError(f"{key} is {value!r}; it must be a number from {least} to {most}")
    return value  # type: ignore[no-any-return]


def whole(place: dict[str, Any], key: str, least: int, most: int = 2**64) -> int:
    """Returns a whole number of the document, as `number` does."""
    if type(place[key]) is not int:
        raise ValueError(f"{key} is {place[key]!r}; it must be a whole number")
    return int(number(place, key, least, most))


def read_json(text: bytes) -> Any:
    """Returns the value of a JSON text. Raises ValueError where a key is there twice, and for NaN and Infinity."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError(f"a key is there twice among {[key for key, _ in pairs]}")
        return dict(pairs)

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not a number of JSON")

    return json.loads(text, object_pairs_hook=once, parse_constant=refuse)


def stated_in(*parts: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns the assumptions of parts of a document with their parameters, which must be the same in all of them."""
    stated: dict[str, dict[str, Any]] = {}
    for part in parts:
        codes = [each["code"] for each in part["assumptions"]]
        for code, each in zip(codes, part["assumptions"], strict=True):
            if codes.count(code) > 1 or stated.setdefault(code, each["parameters"]) != each["parameters"]:
                raise NotProved(f"the document contradicts itself: the assumption {code!r} is there twice")
    return stated


@dataclass(frozen=True)
class Claim:
    """One (epsilon, delta) of the document, and the theorem that proves it."""

    what: str
    epsilon: float
    delta: float
    theorem: str

    def __str__(self) -> str:
        return f"{self.what}: epsilon = {self.epsilon} at delta = {self.delta}, by {self.theorem}"


@dataclass(frozen=True)
class Release:
    """What a document says about one release: who took part with which budgets, and what is assumed.

    Attributes:
        hop: the epsilon, the delta and the number of hops of hop noise; None without.
        joined: whether people of several budgets are in one tier, which states the largest.
    """

    mechanism: Mechanism
    tiers: Others
    dishonest: int
    stratified: bool
    hop: tuple[float, float, int] | None
    joined: bool
    rests_on_hop: bool
    is_shuffled: bool

    @classmethod
    def read(cls, document: dict[str, Any]) -> Release:
        """Returns the release of a document.

        Raises:
            NotCovered: the certificate has a part that this program has no theorem for.
            NotProved: the document contradicts itself.
        """
        parts = [document] if document["one_honest_hop"] is None else [document, document["one_honest_hop"]]
        joined = any(tier["up_to"] for tier in document["tiers"])
        for wrong, says in (
            (document["schema"] != 1, "it is not of version 1"),
            (
                not document["tiers"] or document.get("granted", True) is not True or document.get("refusals"),
                "it grants nothing",
            ),
            (document["rounds"] != 1, f"it is about {document['rounds']} rounds"),
            (document["linkage"] != "separate" and joined, "its tiers join budgets that reports show"),
            (len(document["tiers"]) > MOST_TIERS, f"it has more than {MOST_TIERS} tiers"),
            (document["linkage"] not in ("separate", "stratified"), f"its linkage is {document['linkage']!r}"),
            (document["grade"] != "CERTIFIED", f"its grade is {document['grade']!r}"),
        ):
            if wrong:
                raise NotCovered(f"this program has no theorem for it: {says}")
        assumptions, stated = stated_in(document), stated_in(*parts)
        stratified = document["linkage"] == "stratified"
        noised = document["budget_privacy"]
        counted = "budgets-public" if noised is None else "budgets-noised"
        needed = SHUFFLED | {counted, "budgets-shown" if stratified else "budgets-unlinked"}
        strange = {code for code in stated if not code.startswith("runs-")} - needed - HARMLESS
        if strange or "replace-one" not in assumptions:
            raise NotCovered(f"this program has no theorem for the assumptions {sorted(strange or assumptions)}")
        mechanism, hop = mechanism_of(stated), stated.get("one-honest-hop")
        if hop is not None and (mechanism.values is None or stratified):
            raise NotCovered(f"this program has no theorem for hop noise with {mechanism.name}, {document['linkage']}")
        return cls(
            mechanism,
            [
                (number(tier, "local_epsilon", 1e-16, 500), whole(tier, "count", int(noised is None)))
                for tier in document["tiers"]
            ],
            whole(document, "dishonest", 0),
            stratified,
            None
            if hop is None
            else (number(hop, "epsilon", 1e-3, 20), number(hop, "delta", 1e-12, 1e-3), whole(hop, "hops", 1)),
            joined,
            "one-honest-hop" in assumptions,
            needed <= assumptions.keys(),
        )

    def others(self, victim: float) -> Others:
        """Returns the honest others of a victim; lost reports that fakes could hide count as dishonest clients."""
        spend(len(self.tiers))
        seen = [one for one in self.tiers if one[0] == victim] if self.stratified else self.tiers
        hidden = 0
        if self.hop is not None and (values := self.mechanism.values) is not None:
            epsilon, delta, hops = self.hop
            hidden = hops * 2 * law_of(values, epsilon, delta)[1] * (1 if values == 2 else values)
        return honest_others(seen, victim, self.dishonest + hidden)

    def theorems(self, victim: float, e: arb, delta: float) -> Iterator[tuple[str, Callable[[], arb]]]:
        """Yields what may prove that a victim has (e, delta) under the assumptions, the quickest first."""
        v, mechanism = arb(victim), self.mechanism
        yield "the local budget", lambda: alone(mechanism, v, e)
        if self.hop is not None and self.rests_on_hop:
            hop_epsilon, hop_delta, _ = self.hop
            yield "the fake reports of one honest hop", lambda: fakes(mechanism, v, e, delta, hop_epsilon, hop_delta)
        if self.is_shuffled and e < v and delta > 1e-100 and (others := self.others(victim)):
            if mechanism.is_bit and sum(mechanism.gamma(arb(b)) * n for b, n in others) > 20:
                yield "the exchange of reports", lambda: exchange(v, others, e, delta)
            yield "the common blanket", lambda: blanket(mechanism, v, others, e, delta)
            if mechanism.counts_show_all and splits(others) <= MOST_SPLITS:
                yield "enumeration of all data sets", lambda: enumeration(v, others, e)

    def prove(self, what: str, victim: float, claim: dict[str, Any]) -> Claim:
        """Returns the claim with its proof.

        Raises:
            NotProved: none of the theorems proves it.
            NotCovered: the same, where the document does not say which budgets people have, or the proof takes long.
        """
        epsilon, delta = number(claim, "epsilon", 0, 1e6), number(claim, "delta", 0, 1)
        least, by = math.inf, "nothing"
        for theorem, bound in self.theorems(victim, arb(epsilon), delta):
            try:
                reached = bound()
            except (ArithmeticError, ValueError):  # a search in floats has overflowed
                continue
            if reached <= delta:
                return Claim(what, epsilon, delta, theorem)
            if reached.is_finite() and float(reached.upper()) < least:
                least, by = float(reached.upper()), theorem
        raise (NotCovered if self.joined else NotProved)(
            f"{what}: epsilon = {epsilon} at delta = {delta} is not proved; {by} proves delta = {least:.6g} or so"
        )


def contradictions(document: dict[str, Any], release: Release) -> Iterator[tuple[bool, str]]:
    """Yields what would make a document contradict itself, and whether it is so."""
    tiers, budgets = document["tiers"], [budget for budget, _ in release.tiers]
    people, stated = sum(count for _, count in release.tiers), stated_in(document)
    users, unknown = whole(document, "num_users", 1), document.get("unknown_budgets", 0)
    epsilons = [number(tier, "epsilon", 0, 1e6) for tier in tiers]
    if unknown:
        epsilons.append(number(document, "unknown_budget_epsilon", 0, 1e6))
    if "granted" in document and not release.is_shuffled and release.hop is not None:
        epsilons.append(number(document["one_honest_hop"], "epsilon", 0, 1e6))
    runs = next((code for code in stated if code.startswith("runs-")), "none")
    named = [runs.removeprefix("runs-"), *(str(value) for _, value in sorted(stated[runs].items()))]
    yield re.findall("^[a-z]+|[0-9]+", document["randomizer"]) != named, f"its randomizer is not {named}"
    yield len(set(budgets)) < len(budgets), "budgets repeat"
    yield any(tier["local_delta"] != 0 for tier in tiers), "a local delta is not 0"
    noised = document["budget_privacy"]
    yield people > users or (people < users and noised is None), f"the tiers have {people} people, not {users}"
    if noised is not None and "budgets-noised" in stated:
        says = {"epsilon": noised["epsilon"], "delta": noised["delta"], "most": document["most_uncounted"]}
        yield stated["budgets-noised"] != says, "budget_privacy is not that of budgets-noised"
    yield number(document, "epsilon", 0, 1e6) < max(epsilons), "epsilon is below that of some people"
    yield (
        number(document, "delta", 0, 1) < max(number(tier, "delta", 0, 1) for tier in tiers),
        "delta is below a tier's",
    )
    for code, parameters in stated.items():
        yield parameters.get("dishonest", 0) > release.dishonest, f"fewer dishonest clients than {code} says"
    if "num_tickets" in document:
        tickets, reports = whole(document, "num_tickets", 0), whole(document, "num_reports", 0)
        roster = stated.get("genuine-roster", {"dishonest": 0})
        yield release.dishonest < roster["dishonest"] + tickets - reports, "lost reports are not among the dishonest"
        yield unknown != tickets - users - whole(document, "invalid_budgets", 0), "some budgets are missing"


def check(document: dict[str, Any]) -> list[Claim]:
    """Returns everything that a certificate claims, with proofs.

    Raises:
        NotCovered, NotProved: see there.
        KeyError, TypeError, ValueError, AttributeError: it is not a certificate.
    """
    Work.left = MOST_WORK
    release = Release.read(document)
    everyone = {name: document[f"everyone_else_colludes_{name}"] for name in ("epsilon", "delta")}
    for wrong, says in contradictions(document, release):
        if wrong:
            raise NotProved(f"the document contradicts itself: {says}")
    claims = [
        release.prove(f"{count:,} people with local epsilon {budget}", budget, tier)
        for tier, (budget, count) in zip(document["tiers"], release.tiers, strict=True)
    ]
    # A person who is not counted has at most this budget, and reports a mixture of reports that have this budget.
    most = number(everyone, "epsilon", 0, 500)
    if most < max(budget for budget, _ in release.tiers):
        raise NotProved(f"everyone else colludes: epsilon = {most} is below a local budget")
    if document["budget_privacy"] is not None and most > max(budget for budget, _ in release.tiers):
        raise NotProved(f"people with local epsilon {most} are in no tier, and with noised numbers there may be some")
    if document.get("unknown_budgets"):
        if release.stratified:
            raise NotCovered("reports show their budgets, and some people's budgets are not known")
        claim = {"epsilon": document["unknown_budget_epsilon"], "delta": document["delta"]}
        claims.append(release.prove("people whose budget has not arrived", most, claim))
    nobody = replace(release, rests_on_hop=False, is_shuffled=False)
    claims.append(nobody.prove("everyone else colludes", most, everyone))
    if (hop := document["one_honest_hop"]) is not None:
        if release.hop is None:
            raise NotProved("one_honest_hop is given without the assumption one-honest-hop")
        claims.append(replace(nobody, rests_on_hop=True).prove("one honest hop", most, hop))
    return claims


def main(arguments: Sequence[str] | None = None) -> int:
    """Checks a file and prints what is proved.

    Returns 0; 1 where a claim is not proved, 2 where the document cannot be checked.
    """
    parser = argparse.ArgumentParser(description="Prove the numbers of a certificate of croupier again.")
    parser.add_argument("file", type=Path, help="a certificate: certify --json, round result --json or demo --json")
    try:
        read = read_json(parser.parse_args(arguments).file.read_bytes())
        whole_file = "questions" not in read
        documents = [read] if whole_file else [one["certificate"] for one in read["questions"]]
        documents = [one.get("certificate", one) for one in documents]
        proved = [(document, check(document)) for document in documents]
        if not proved:
            raise NotCovered("there is no certificate in it")
    except NotProved as error:
        print(f"NOT PROVED. {error}")
        return 1
    except NotCovered as error:
        print(f"Not checked. {error}")
        return 2
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        print(f"Not a certificate: {error!r}")
        return 2
    for document, claims in proved:
        print(*claims, sep="\n")
        print(f"PROVED: epsilon = {document['epsilon']} at delta = {document['delta']}, if its assumptions hold:")
        print(*(f"  {each['code']} {json.dumps(each['parameters'])}" for each in document["assumptions"]), sep="\n")
    if documents != [read]:
        print("Nothing else in the file is proved, such as what it says of all its questions together.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
