"""Proves the numbers of a certificate again, from nothing but the document: `python croupier_check.py FILE`.

This program shares no code with croupier. It takes the local budgets, the mechanism and the claimed (epsilon, delta)
of every tier from the JSON that croupier prints, and proves every claim again in ball arithmetic (python-flint): each
number below is an interval that contains the exact value, so that no line has to say anything about rounding.

A claim is for a *victim*, one person with the local budget v, among *others*, and says

    H = integral of max(0, P0 - E P1) <= delta,   E = e^epsilon,

where P0 and P1 are the laws of the shuffled reports for two values of the victim, whatever the others' values are.
A tier's *witness* names one of the five theorems below, and the numbers at which its integral is evaluated. Nothing is
believed of it: whatever it says, a theorem proves the claim for these numbers, or does not.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from flint import acb, arb, arb_poly, ctx

ctx.prec = 96
MOST_WORK = 10_000_000  # steps of the proof of a tier, about 10 microseconds each; a longer one is not tried
MOST_TIERS = 100  # tiers of a certificate, and stages of a witness; croupier joins more than 32 budgets
PIECES = 32  # of an integral in which the kinds of hosts take turns; each is charged for both
MOST_VALUES = 20_000  # values of an integrand, or cells of its tail; the rest is enclosed as it is
MOST_SUMS = 300_000  # sums of the values of fakes that are added up; more of them are an integral


class NotProved(Exception):
    """A claim of the document that the theorem it names does not prove, or a contradiction."""


class NotCovered(Exception):
    """The document states something that this program has no theorem for."""


def affordable(steps: int) -> None:
    """Raises NotCovered for more steps than are tried."""
    if steps > MOST_WORK:
        raise NotCovered("its proof takes longer than about a minute")


def positive(x: arb) -> arb:
    """Returns an enclosure of max(0, x)."""
    return x.max(arb(0))


@dataclass(frozen=True)
class Mechanism:
    """A local randomizer whose report has one of finitely many values, any two of a person being told apart equally.

    A report of the value x is drawn from R(x). The blanket omega is uniform: R(x) >= gamma omega. There are `points`
    values of a report; `inside` of them are likely under one value, e^v times as probable as another, and `common`
    under both of two values. Hop noise adds fakes of `fakes` values; None where it cannot.
    """

    points: int
    inside: int = 1
    common: int = 0
    fakes: int | None = None

    def low(self, v: arb) -> arb:
        """Returns the probability of a report value that is not likely."""
        return 1 / (self.inside * v.exp() + self.points - self.inside)

    def classes(self, v: arb) -> list[tuple[int, arb, arb]]:
        """Returns numbers of report values that are alike, and their probabilities under two values of the victim."""
        low, apart = self.low(v), self.inside - self.common
        high, neither = v.exp() * low, self.points - 2 * self.inside + self.common
        each = [(apart, high, low), (apart, low, high), (self.common, high, high), (neither, low, low)]
        return [one for one in each if one[0]]

    def gamma(self, v: arb) -> arb:
        """Returns the weight of the uniform blanket in every report of the budget v."""
        return self.points * self.low(v)


BIT = Mechanism(2, fakes=2)


def mechanism_of(kind: str, parameters: dict[str, Any]) -> Mechanism:
    """Returns the mechanism of an assumption. Raises NotCovered for another one."""
    if kind in ("rr", "onebit", "hemisphere"):
        return Mechanism(2) if kind == "hemisphere" else BIT
    if kind in ("krr", "levels"):
        k = whole(parameters, "k", 2)
        return Mechanism(k, fakes=k)
    if kind == "choices":
        return Mechanism(2, fakes=2 * whole(parameters, "k", 1))
    if kind == "pgr":
        k, q = whole(parameters, "k", 2), whole(parameters, "q", 2, 1000)
        if any(q % divisor == 0 for divisor in range(2, q)):
            raise NotCovered(f"pgr over {q} elements: {q} is not a prime")
        t = next(t for t in itertools.count(2) if (q**t - 1) // (q - 1) >= k)
        points, inside, common = ((q**power - 1) // (q - 1) for power in (t, t - 1, t - 2))
        return Mechanism(points, inside, common, fakes=points)
    raise NotCovered(f"mechanism {kind}: this program has no theorem for it")


Others = list[tuple[float, int]]  # (local epsilon, how many), ascending
Witness = dict[str, list[float]]  # numbers by their names


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


def integral(integrand: Callable[[acb, bool], acb], start: float, end: Any, delta: float) -> arb:
    """Returns the integral of the real part from `start` to `end`, with every error enclosed."""
    return acb.integral(integrand, start, end, rel_tol=1e-10, abs_tol=delta * 1e-10, eval_limit=MOST_VALUES).real


def alone(mechanism: Mechanism, v: arb, epsilon: arb) -> arb:
    """Theorem 1 (local-budget): Returns the divergence of the report by itself; 0 from the local budget on."""
    parts = [n * positive(p0 - epsilon.exp() * p1) for n, p0, p1 in mechanism.classes(v)]
    return arb(0) if epsilon >= v else sum(parts, arb(0))


def enumeration(v: arb, others: Others, epsilon: arb) -> arb:
    """Theorem 2 (worst-case): Returns the largest divergence over all data sets, for reports that are bits.

    The number of ones is all that a batch shows. An other of budget b reports its bit with probability e^b/(1 + e^b);
    of every budget any number of people may hold a 1. Both values of the victim are covered: the mirror image of a
    data set is another one of those that are looked at. With X the number of the others' ones, the difference of the
    two laws at i ones is gain Pr[X = i-1] - loss Pr[X = i], loss >= 0. X is a sum of independent bits, so that Pr[X =
    i-1]/Pr[X = i] grows with i: below the first i (from above) where the difference is not positive none is.
    """
    people, kept = sum(count for _, count in others), v.exp() / (1 + v.exp())
    gain, loss = kept - epsilon.exp() * (1 - kept), epsilon.exp() * kept - (1 - kept)
    radius = math.ceil(math.sqrt(people * 40)) + 1
    beyond = gain * (-2 * arb(radius - 1) ** 2 / people).exp()  # Hoeffding: at most e^-80
    affordable(math.prod(count + 1 for _, count in others) * (people + 2))

    keeps, worst = [(arb(budget).exp() / (1 + arb(budget).exp()), count) for budget, count in others], arb(0)
    laws = [[arb_poly([1 - p, p]) ** h * arb_poly([p, 1 - p]) ** (n - h) for h in range(n + 1)] for p, n in keeps]
    for law in (math.prod(parts, start=arb_poly([1])) for parts in itertools.product(*laws)):
        total, i = beyond, min(people + 1, int(float(law.derivative()(arb(1)))) + 1 + radius)
        while i > 0 and not (difference := gain * law[i - 1] - loss * law[i]) <= 0:
            total, i = total + difference.upper(), i - 1
        worst = worst.max(total.upper())
    return worst


def blanket(mechanism: Mechanism, v: arb, others: Others, epsilon: arb, delta: float, witness: Witness) -> arb:
    """Theorem 3 (blanket-closed-form): Returns a bound on H by the common blanket, one contour integral.

    Everyone's report is a draw from omega with probability gamma_j and the rest is revealed. With L = (p0 - E p1)/omega
    under omega, G standard normal, phi(z) = E e^(z (L + sigma G)), and any theta, sigma > 0, for z = theta + iu,

        H <= 1/(2 pi) integral phi'(z)/z prod_j (1 - gamma_j + gamma_j phi(z)) du.

    Proof: H <= E_K[E[S]_+ / (K+1)] with K the number of the others' blanket reports, S a sum of K+1 independent L
    (Balle et al. 2019, personal weights). A Gaussian of deviation sigma is added to each L (Jensen); then E[S 1{S > 0}]
    = (K+1) E[L_1 1{S > 0}] by exchangeability, which is inverted along Re z = theta. Without theta all K are added up.
    """
    weights = [(mechanism.gamma(arb(budget)), count) for budget, count in others]
    k, gain = arb(mechanism.points), epsilon.exp()
    atoms = [(n / k, (p0 - gain * p1) * k) for n, p0, p1 in mechanism.classes(v)]
    if "theta" not in witness:
        return counted_blanket(atoms, weights)
    theta, sigma, end = place_of(witness, "theta", "sigma", "end")
    s2 = sigma**2

    def integrand(u: acb, analytic: bool) -> acb:
        z = theta + acb(0, 1) * u
        gaussian = (z * z * s2 / 2).exp()
        powers = [(w * (z * x).exp(), x) for w, x in atoms]
        phi, slope = (gaussian * sum(terms, acb(0)) for terms in ((p for p, _ in powers), (p * x for p, x in powers)))
        product = sum((n * (1 - g + g * phi).log(analytic=analytic) for g, n in weights), acb(0))
        return product.exp() * (slope / z + s2 * phi)

    # Beyond `end` every factor is at most its value on the real axis, with absolute moments and the Gaussian's fall.
    gaussian, fallen = (theta * theta * s2 / 2).exp(), (-end * end * s2 / 2).exp()
    phi = gaussian * sum((w * (theta * x).exp() for w, x in atoms), arb(0))
    slope = gaussian * sum((w * abs(x) * (theta * x).exp() for w, x in atoms), arb(0)) / theta + s2 * phi
    most, rest = (sum((n * (1 - g + g * phi * f).log() for g, n in weights), arb(0)).exp() for f in (1, fallen))
    if (crude := phi * most / (theta * arb(1).exp())) <= delta:
        return crude  # E[S]_+ <= E[e^(theta S)]/(e theta)
    return (integral(integrand, 0.0, end, delta) + slope * rest * fallen / (s2 * end)) / arb.pi()


def counted_blanket(atoms: Sequence[tuple[arb, arb]], weights: Sequence[tuple[arb, int]]) -> arb:
    """Returns the bound of `blanket` without any Gaussian, E_K[E[S]_+ / (K+1)], by adding up all counts."""
    people = sum(count for _, count in weights)
    affordable(math.comb(people + 1 + len(atoms), len(atoms)))
    law, total = math.prod((arb_poly([1 - g, g]) ** n for g, n in weights), start=arb_poly([1])), arb(0)
    for reports in range(1, people + 2):
        for drawn in itertools.combinations_with_replacement(range(len(atoms)), reports):
            counts = [drawn.count(atom) for atom in range(len(atoms))]
            value = positive(sum((n * x for n, (_, x) in zip(counts, atoms, strict=True)), arb(0)))
            ways = math.factorial(reports) // math.prod(map(math.factorial, counts))
            mass = math.prod((w**n for n, (w, _) in zip(counts, atoms, strict=True)), start=arb(1))
            total += law[reports - 1] * value * ways * mass / reports
    return total


@dataclass(frozen=True)
class Factor:
    """|phi(theta + iu)| = e^rest sqrt(1 - 2 c (1 - cos(k u))) for one host, in one stage."""

    rest: arb
    c: arb
    k: arb

    def log(self, u: acb, analytic: bool) -> acb:
        """Returns the logarithm for a real u, or its analytic continuation."""
        return self.rest + (1 - 2 * self.c * (1 - (self.k * u).cos())).log(analytic=analytic) / 2

    def most(self, u: arb) -> arb:
        """Returns an upper bound on the logarithm for every u in this interval."""
        inside = (1 - 2 * self.c * (1 - (self.k * u).cos())).upper()
        return self.rest + inside.max(arb(1e-300)).min(arb(1)).log() / 2

    def above(self, other: Factor, low: float, high: float) -> Factor:
        """Returns a factor that is above both of them from u = low to high, up to pi/k for the larger k.

        The derivative of log |phi| is -c k sin(ku)/(1 - 4c sin^2(ku/2)). Where k' <= k and c' k'^2 >= c k^2, concavity
        of the sine on [0, pi] gives c k sin(ku) <= c' k' sin(k'u) and c sin^2(ku/2) <= c' sin^2(k'u/2): `slow` falls
        less than both, and the other factor exceeds it most at `low`, and stays below it most at `high`.
        """
        k = self.k.max(other.k)
        slow = Factor(self.rest, (self.c * self.k**2).min(other.c * other.k**2) / k**2, k)
        at_low, at_high = (other.log(acb(u), False).real - slow.log(acb(u), False).real for u in (low, high))
        if positive(-at_high) < positive(at_low):
            return Factor(other.rest + positive(-at_high), other.c, other.k)
        return Factor(slow.rest + positive(at_low), slow.c, k)


def stages_of(v: arb, others: Others, epsilon: arb, theta: arb, ends: list[float]) -> Iterator[tuple[arb, list[Any]]]:
    """Yields the chance of each stage; for each tier of hosts their number, and the factors of both kinds."""
    gain, head = epsilon.exp(), (v.exp() - epsilon.exp()) / (1 + v.exp())
    hosts = [(count, 1 / (1 + arb(budget).exp())) for budget, count in others]
    variance = sum((count * q * (1 - q) for count, q in hosts), arb(0))
    for before, until in itertools.pairwise([arb(0), *map(arb, ends)]):
        tiers: list[tuple[Any, ...]] = []
        for count, q in hosts:
            alpha = q * (1 - q) / variance
            rung = 1 - (-alpha * until).exp()
            left, kinds = (q - rung / 2) / (1 - rung), []
            for r in (1 - left, left):
                k = alpha * (head + (gain - 1) * r) / (r * (1 - r))
                up, down = r * (theta * k * (1 - r)).exp(), (1 - r) * (-theta * k * r).exp()
                kinds.append(Factor((up + down).log() - (gain - 1) * theta * alpha, up * down / (up + down) ** 2, k))
            tiers.append((count, *kinds))
        yield (-before).exp() - (-until).exp(), tiers


def exchange(v: arb, others: Others, epsilon: arb, delta: float, witness: Witness) -> arb:
    """Theorem 4 (exchange): Returns a bound on H for bits by the exchange of the victim's report with a host's.

    It is Theorem 1 of docs/paper. Every other is a host with a clock; the first whose clock rings, at the time t,
    reports a fair bit, and the victim may have reported in its place. With X_i = (p0 - E p1)/R_i under R_i, rates
    alpha_i in proportion to the variance of a host's bit, which is flipped with the probability (q - s/2)/(1 - s),
    s = 1 - e^(-alpha_i t), if its clock has not rung by t, and any theta, sigma > 0 and stages of the time,

        H <= sum over stages Pr[stage] 1/(2 pi) integral e^((theta^2 - u^2) sigma^2/2)/(theta^2 + u^2)
             prod_i |phi_i(theta + iu)| du + Pr[no clock rings] H0,

    where each tier's hosts are of the kind whose factor is larger at u: up to pi/k that is at most an analytic factor,
    and beyond it the integrand is bounded cell by cell.
    """
    (theta, sigma), ends = place_of(witness, "theta", "sigma"), witness.get("stages", [])
    if not 0 < len(ends) <= MOST_TIERS or [0.0, *ends] != sorted({0.0, *ends}):
        raise NotProved(f"the stages of the witness are {ends}; they must be increasing times")
    affordable(MOST_VALUES * len(ends) * len(others))
    stages = list(stages_of(v, others, epsilon, theta, ends))
    until = 3.14159 / max(float(kind.k) for _, tiers in stages for _, *kinds in tiers for kind in kinds)

    def weight(u: Any) -> Any:
        return ((theta**2 - u * u) * sigma**2 / 2).exp() / (theta**2 + u * u)

    def part(low: float, high: float) -> arb:
        above = [(mass, [(n, one.above(other, low, high)) for n, one, other in tiers]) for mass, tiers in stages]

        def integrand(u: acb, analytic: bool) -> acb:
            logs = [(mass, sum((n * factor.log(u, analytic) for n, factor in tiers), acb(0))) for mass, tiers in above]
            return acb(weight(u)) * sum((mass * log.exp() for mass, log in logs), acb(0))

        return integral(integrand, low, high, delta)

    def product(u: arb) -> arb:
        logs = [(mass, sum((n * a.most(u).max(d.most(u)) for n, a, d in tiers), arb(0))) for mass, tiers in stages]
        return arb(sum((mass * log.exp() for mass, log in logs), arb(0)).upper())

    bulk, edges = arb(0), [until * (n / PIECES) ** 2 for n in range(PIECES + 1)]
    for low, high in itertools.pairwise(edges):
        bulk += part(low, high)
        if not bulk < 4 * delta:
            return arb("inf")  # what follows would take long, and could only add to it
    far = max(2 * until, (8 + math.sqrt(-2 * math.log(delta))) / float(sigma))
    beyond = cells(lambda low, high: weight(arb(low)) * product(arb(low).union(arb(high))), until, far, 2e-4 * delta)
    tail = weight(arb(far)) * product(arb(0)) / (sigma**2 * far)
    return arb((bulk + beyond + tail) / arb.pi() + (-arb(ends[-1])).exp() * alone(BIT, v, epsilon))


def cells(most: Callable[[float, float], arb], start: float, end: float, allowed: float) -> arb:
    """Returns an upper bound on an integral from the largest value on cells; they are halved while one costs more."""
    done, waiting, left = arb(0), [(start, end)], MOST_VALUES
    while waiting:
        low, high = waiting.pop()
        cost, left = most(low, high) * (arb(high) - low), left - 1
        if cost < allowed or left < 0:
            done += cost
        else:
            waiting += [(low, (low + high) / 2), ((low + high) / 2, high)]
    return done


def fakes(mechanism: Mechanism, v: arb, epsilon: arb, delta: float, hop: tuple[float, float]) -> arb:
    """Theorem 5 (hop-noise): Returns what the fakes of one honest hop guarantee, whatever everybody else does.

    See docs/hop-noise.md. A hop adds c + Z fakes of every value, Z discrete Laplace with q = e^-a on |Z| <= c. A report
    of the value r multiplies the probability of a count of fakes by rho_r, independent over r: 0, q or 1/q with the
    probabilities edge, below and above; or it is recognised, with the probability edge: d_r = R(r|x) - E R(r|x') and

        H = edge sum_r [d_r]_+ + E[S]_+,  S = sum_r d_r rho_r.

    Two values have counts with the sum 2c + 1, and E[S]_+ is below ([d_0 + q d_1]_+ + [q d_0 + d_1]_+). Few sums are
    added up; else E[S]_+ <= E[S + sigma G]_+ = 1/(2 pi) integral e^(z^2 sigma^2/2) E e^(zS)/z^2 du for z = theta + iu.
    With t the total variation, (t, 1 - t - E, 0, ...) majorizes d, and shows at least as much: the least counts.
    """
    values = mechanism.fakes or 0
    a, c = law_of(values, *hop)
    q, gain, spread = (-a).exp(), epsilon.exp(), values // mechanism.points  # the bits of each of several options
    middle = (1 - q) / (1 + q - 2 * q ** (c + 1))  # Pr[Z = 0]
    cases = edge, below, above = middle * q**c, (1 + middle) / 2 - middle * q**c, (1 - middle) / 2
    d = [(n * spread, (p0 - gain * p1) / spread) for n, p0, p1 in mechanism.classes(v)]
    shown = edge * sum((n * positive(x) for n, x in d), arb(0))
    if values == 2:
        (_, one), (_, two) = d
        return shown + below * (positive(one + q * two) + positive(q * one + two))
    t = alone(mechanism, v, arb(0))
    bound = edge * t + added_sums([(1, t), (1, 1 - t - gain)], cases, q)
    if bound <= delta:
        return bound
    exact = added_sums(d, cases, q)
    if exact.is_finite():
        return (shown + exact).min(bound)
    laws = [(n, [(edge, arb(0)), (below, x * q), (above, x / q)]) for n, x in d]
    floats = [(n, [(float(w), float(x)) for w, x in atoms]) for n, atoms in laws]

    def height(theta: float) -> float:
        logs = (n * math.log(sum(w * math.exp(min(theta * x, 600)) for w, x in atoms)) for n, atoms in floats)
        return sum(logs) - 2 * math.log(theta)

    theta = 3 / math.sqrt(sum(n * w * x * x for n, atoms in floats for w, x in atoms))
    for reach in (2.0, 0.5, 0.1, 0.02):
        theta = min((theta * math.exp(reach * k / 9) for k in range(-9, 10)), key=height)
    sigma, far = 0.015 / theta, 22 - math.log(delta) + math.log(theta / 0.015)
    sides = {s: max(height(theta - s), height(theta + s)) for s in (theta * part / 20 for part in range(1, 20))}
    step, strip = max((6.28 * s / max(1.0, most + far), s) for s, most in sides.items())
    points = math.ceil(math.sqrt(2 * max(1.0, height(theta) + far)) / sigma / step)
    affordable(3 * len(laws) * points)

    def value(z: Any) -> Any:
        factors = [sum((w * (z * x).exp() for w, x in atoms), z * 0) ** n for n, atoms in laws]
        return (z * z * arb(sigma) ** 2 / 2).exp() * math.prod(factors, start=z * 0 + 1) / (z * z)

    total = sum((value(acb(theta, arb(step) * j)).real * (2 if j else 1) for j in range(points + 1)), arb(0))
    s2, end = arb(sigma) ** 2, arb(step) * points
    tail = value(arb(theta)) * (-end * end * s2 / 2).exp() / (s2 * end)
    edges = (value(arb(theta) - strip) + value(arb(theta) + strip)) * (2 * arb.pi() / s2).sqrt()
    edges /= (2 * arb.pi() * strip / step).exp() - 1  # of the trapezoidal rule (Trefethen and Weideman 2014, 5.1)
    return (shown + (step * total + 2 * tail + edges) / (2 * arb.pi())).min(bound)


def added_sums(d: Sequence[tuple[int, arb]], cases: tuple[arb, arb, arb], q: arb) -> arb:
    """Returns E[S]_+ of `fakes` from all sums, unlikely ones charged with the largest; infinity if there are many."""
    edge, _, above = map(float, cases)
    logs, laws, left = [case.log() for case in cases], [], arb(0)
    for n, x in d:
        zeros = min(n, int(14 + n * edge + 14 * math.sqrt(n * edge)))
        mean, width, law = n * above, 14 * math.sqrt(n * above) + 14, []
        for i, j in itertools.product(
            range(zeros + 1), range(max(0, int(mean - width)), min(n, int(mean + width)) + 1)
        ):
            if (k := n - i - j) >= 0:
                ways = arb(n + 1).lgamma() - sum((arb(m + 1).lgamma() for m in (i, j, k)), arb(0))
                law.append(((ways + i * logs[0] + j * logs[2] + k * logs[1]).exp(), x * (k * q + j / q)))
        left += 1 - sum((chance for chance, _ in law), arb(0))
        laws.append(law)
    if math.prod(map(len, laws)) > MOST_SUMS:
        return arb("inf")
    *others, largest = sorted(laws, key=len)
    falling, total = all(x <= 0 for _, x in largest), left.upper() * sum((n * positive(x) for n, x in d), arb(0)) / q
    for atoms in itertools.product(*others):
        start = sum((x for _, x in atoms), arb(0))
        if not (falling and start <= 0):
            total += math.prod((w for w, _ in atoms), start=arb(1)) * sum(
                (w * positive(start + x) for w, x in largest), arb(0)
            )
    return total


def law_of(values: int, hop_epsilon: float, hop_delta: float) -> tuple[arb, int]:
    """Returns a, and the least radius c >= 1 for which at most delta is recognised in one of the counts that change."""
    two = values == 2
    a, most = 1 / arb(scale_of(hop_epsilon if two else hop_epsilon / 2)), arb(hop_delta)
    q, most = (-a).exp(), most if two else 1 - (1 - most).sqrt()
    radius = ((most * (1 + q) / (1 - q + 2 * most * q)).log() / q.log()).ceil().unique_fmpz()
    if radius is None:
        raise NotCovered("the radius of the fakes is too close to the next one")
    return a, max(1, int(radius))


def scale_of(a: float) -> float:
    """Returns the least float that is at least 1/a: the scale that all services derive."""
    scale = 1 / a
    while Fraction(scale) * Fraction(a) < 1:
        scale = math.nextafter(scale, math.inf)
    return scale


def number(place: dict[str, Any], key: str, least: float, most: float = 2**64, kinds: Any = (float, int)) -> Any:
    """Returns a number of the document. Raises ValueError for anything else, and outside of its range."""
    if type(place[key]) not in kinds or not least <= place[key] <= most:
        raise ValueError(f"{key} is {place[key]!r:.60}; it must be {kinds[-1].__name__} from {least} to {most}")
    return place[key]


whole = partial(number, kinds=(int,))


def place_of(witness: Witness, *names: str) -> list[arb]:
    """Returns numbers of a witness. Raises ValueError unless each is one number above 0."""
    return [arb(number({name: one}, name, 5e-324, 1e300)) for name in names for (one,) in [witness.get(name, [0])]]


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


def share(total: float, rounds: int) -> float:
    """Returns the largest float that is at most one round's part of a total."""
    part = total / rounds
    return part if Fraction(part) * rounds <= Fraction(total) else math.nextafter(part, 0)


LOCAL, FAKES = {"theorem": "local-budget", "numbers": []}, {"theorem": "hop-noise", "numbers": []}
SHUFFLED = {"uniform-order", "independent-reports", "dishonest-clients"}
"""What the theorems about a shuffled batch assume, beside how budgets are counted and whether reports show them."""
HARMLESS = {"replace-one", "one-honest-hop", "fixed-terms", "honest-accountant", "genuine-roster", "fresh-shuffles"}
"""Assumptions that say what is claimed, or by which it holds of a round; no theorem here needs the absence of one."""


class Release:
    """What a certificate says about its releases: who took part with which budgets, and what is assumed."""

    def __init__(self, document: dict[str, Any]) -> None:
        """Reads a certificate. Raises NotCovered for a part that this program has no theorem for."""
        hops = [document["one_honest_hop"]] if document["one_honest_hop"] else []
        self.assumptions, stated = stated_in(document), stated_in(document, *hops)
        runs = [code for code in stated if code.startswith("runs-")]
        self.linkage, self.noised = document["linkage"], document["budget_privacy"]
        counted = "budgets-public" if self.noised is None else "budgets-noised"
        self.needed = SHUFFLED | {counted, "budgets-unlinked" if self.linkage == "separate" else "budgets-shown"}
        strange = {*stated} - {*runs} - self.needed - HARMLESS
        granted = document.get("granted", True) is True and not document.get("refusals") and document["tiers"]
        grades = {value for key, value in document.items() if key == "grade" or key.endswith("_grade")}
        for wrong, says in (
            (document["schema"] != 1, "it is not of version 1"),
            (not granted, "it grants nothing"),
            (self.linkage not in ("separate", "stratified"), f"its linkage is {self.linkage!r}"),
            (len(document["tiers"]) > MOST_TIERS, f"it has more than {MOST_TIERS} tiers"),
            (any(tier["up_to"] for tier in document["tiers"]), "its tiers join budgets, and it does not say which"),
            (grades != {"CERTIFIED"}, f"its grades are {grades}"),
            (strange or len(runs) != 1, f"it assumes {sorted(strange or runs)}"),
            ("replace-one" not in self.assumptions, "it does not say of which neighbours it is"),
        ):
            if wrong:
                raise NotCovered(f"this program has no theorem for it: {says}")
        kind, parameters = runs[0].removeprefix("runs-"), stated[runs[0]]
        self.stated, self.runs = stated, [kind, *(str(value) for _, value in sorted(parameters.items()))]
        self.mechanism = mechanism_of(kind, parameters)
        tiers, least = document["tiers"], int(self.noised is None)
        self.tiers = [(number(each, "local_epsilon", 1e-16, 500), whole(each, "count", least)) for each in tiers]
        self.dishonest, self.rounds = whole(document, "dishonest", 0), whole(document, "rounds", 1)
        self.fakes: tuple[float, float] | None = None
        self.hidden = 0  # lost reports that fakes could hide
        if (hop := stated.get("one-honest-hop")) is not None:
            if (values := self.mechanism.fakes) is None or self.linkage != "separate":
                raise NotCovered(f"this program has no theorem for hop noise with {kind}, {self.linkage}")
            self.fakes = number(hop, "epsilon", 1e-3, 20), number(hop, "delta", 1e-12, 1e-3)
            self.hidden = whole(hop, "hops", 1) * 2 * law_of(values, *self.fakes)[1] * (1 if values == 2 else values)

    def bound(self, victim: float, epsilon: float, delta: float, theorem: str, witness: Witness) -> arb:
        """Returns what a theorem proves for one round."""
        mechanism, v, e = self.mechanism, arb(victim), arb(epsilon)
        if epsilon >= victim or theorem == "local-budget" or delta == 0:
            return alone(mechanism, v, e)
        if theorem == "hop-noise" and self.fakes is not None:
            return fakes(mechanism, v, e, delta, self.fakes).min(alone(mechanism, v, e))
        seen = [one for one in self.tiers if one[0] == victim or self.linkage == "separate"]
        others = honest_others(seen, victim, self.dishonest + self.hidden)
        if theorem == "blanket-closed-form":
            return blanket(mechanism, v, others, e, delta, witness)
        if theorem == "exchange" and mechanism.points == 2:
            return exchange(v, others, e, delta, witness)
        if theorem == "worst-case" and mechanism == BIT:
            return enumeration(v, others, e)
        raise NotCovered(f"this program does not cover {theorem} of {self.runs[0]}")

    def prove(self, who: str, victim: float, claim: dict[str, Any], witness: Any, stated: Iterable[str]) -> str:
        """Returns the name of the theorem that proves a claim under what is stated; the witness names it."""
        if witness is None:
            raise NotCovered(f"{who}: there is no witness; a newer croupier makes one")
        theorem, numbers = witness["theorem"], {part["name"]: part["numbers"] for part in witness["numbers"]}
        epsilon, delta = number(claim, "epsilon", 0, 1e6), number(claim, "delta", 0, 1)
        needed = {"local-budget": set(), "hop-noise": {"one-honest-hop"}}.get(theorem, self.needed)
        in_round = share(epsilon, self.rounds)
        if in_round < victim and (missing := needed - {*stated}):
            raise NotProved(f"{who}: {theorem} needs the assumptions {sorted(missing)}")
        reached = self.bound(victim, in_round, share(delta, self.rounds), theorem, numbers) * self.rounds
        if not reached <= delta:
            proved = f"{theorem} proves delta = {float(reached.upper()):.6g} or so"
            raise NotProved(f"{who}: epsilon = {epsilon} at delta = {delta} is not proved; {proved}")
        return str(theorem)

    def contradictions(self, document: dict[str, Any]) -> Iterator[tuple[bool, str]]:
        """Yields what would make a certificate contradict itself, and whether it is so."""
        budgets, noised, unknown = [one for one, _ in self.tiers], self.noised, document.get("unknown_budgets", 0)
        people, users = sum(count for _, count in self.tiers), whole(document, "num_users", 1)
        most = number(document, "everyone_else_colludes_epsilon", 0, 1e6)
        epsilons, deltas = ([number(tier, name, 0, 1e6) for tier in document["tiers"]] for name in ("epsilon", "delta"))
        if unknown:
            epsilons.append(number(document, "unknown_budget_epsilon", 0, 1e6))
        if "granted" in document and self.fakes is not None and not self.needed <= self.assumptions.keys():
            epsilons.append(number(document["one_honest_hop"], "epsilon", 0, 1e6))
        yield re.findall("^[a-z]+|[0-9]+", document["randomizer"]) != self.runs, f"its randomizer is not {self.runs}"
        yield len(set(budgets)) < len(budgets), "budgets repeat"
        yield any(tier["local_delta"] != 0 for tier in document["tiers"]), "a local delta is not 0"
        yield people > users or (people < users and noised is None), f"the tiers have {people} people, not {users}"
        if noised is not None and "budgets-noised" in self.stated:
            says = {"epsilon": noised["epsilon"], "delta": noised["delta"], "most": document["most_uncounted"]}
            yield self.stated["budgets-noised"] != says, "budget_privacy is not that of budgets-noised"
        yield number(document, "epsilon", 0, 1e6) < max(epsilons), "epsilon is below that of some people"
        yield number(document, "delta", 0, 1) < max(deltas), "delta is below that of a tier"
        # A person who is not counted has at most this budget, and reports a mixture of reports that have this budget.
        yield share(most, self.rounds) < max(budgets), f"everyone else colludes: {most} is below a local budget"
        yield noised is not None and most > max(budgets), f"people with local epsilon {most} are in no tier"
        for code, parameters in self.stated.items():
            yield parameters.get("dishonest", 0) > self.dishonest, f"fewer dishonest clients than {code} says"
        if "num_tickets" in document:
            tickets, reports = whole(document, "num_tickets", 0), whole(document, "num_reports", 0)
            lost = self.stated.get("genuine-roster", {"dishonest": 0})["dishonest"] + tickets - reports
            yield self.dishonest < lost, "lost reports are not among the dishonest"
            yield unknown != tickets - users - whole(document, "invalid_budgets", 0), "some budgets are missing"
            yield bool(unknown) and self.linkage != "separate", "reports show budgets, and some are not known"
        if commitments := document.get("commitments"):
            signed = any(document["batch_digest"] in commitment["payload"] for commitment in commitments)
            yield not signed, "no hop has signed its batch_digest"


def check(document: dict[str, Any]) -> list[str]:
    """Returns lines on everything that a certificate claims, all of which is proved. Raises NotCovered, NotProved."""
    release = Release(document)
    for wrong, says in release.contradictions(document):
        if wrong:
            raise NotProved(f"the document contradicts itself: {says}")
    tiers, delta, stated = document["tiers"], document["delta"], release.assumptions
    by = {
        release.prove(f"{count:,} people with local epsilon {budget}", budget, tier, tier["witness"], stated)
        for tier, (budget, count) in zip(tiers, release.tiers, strict=True)
    }
    lines = [
        f"PROVED: epsilon = {document['epsilon']} at delta = {delta} for {document['num_users']:,} people, by "
        f"{', '.join(sorted(by))} in {len(tiers)} tier(s) and {release.rounds} round(s)"
    ]
    everyone = {name: document[f"everyone_else_colludes_{name}"] for name in ("epsilon", "delta")}
    most = share(everyone["epsilon"], release.rounds)
    further: list[tuple[str, Any, Any, Iterable[str]]] = [("everyone else colludes", everyone, LOCAL, ())]
    if document.get("unknown_budgets"):
        claim = {"epsilon": document["unknown_budget_epsilon"], "delta": delta}
        witness = document["unknown_budget_witness"] or max(tiers, key=lambda tier: tier["local_epsilon"])["witness"]
        further.append(("a person's budget has not arrived", claim, witness, stated))
    if document["one_honest_hop"] is not None:
        further.append(("one hop is honest", document["one_honest_hop"], FAKES, stated_in(document["one_honest_hop"])))
    for when, claim, witness, assumed in further:
        by_theorem = release.prove(when, most, claim, witness, assumed)
        lines.append(f"if {when}: epsilon = {claim['epsilon']} at delta = {claim['delta']}, by {by_theorem}")
    given = (code + json.dumps(parameters) * bool(parameters) for code, parameters in stated.items())
    return [*lines, f"all of it if the assumptions hold: {', '.join(given)}"]


def together(claim: dict[str, Any], certificates: list[dict[str, Any]]) -> str:
    """Returns a line on the releases of a survey together: epsilons and deltas add up if their terms were fixed."""
    sums = {name: sum(Fraction(one[name]) for one in certificates) for name in ("epsilon", "delta")}
    less = any(Fraction(claim[name]) < total for name, total in sums.items())
    epsilon, delta = (math.nextafter(float(total), math.inf) if less else claim[name] for name, total in sums.items())
    more = ". Not checked: any less" if less else ""
    return f"PROVED: all together epsilon = {epsilon} at delta = {delta}, with fixed terms{more}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Checks a file and prints what is proved. Returns 0; 1 for what is not proved, 2 for what cannot be checked."""
    parser = argparse.ArgumentParser(description="Prove the numbers of a certificate of croupier again.")
    parser.add_argument("file", type=Path, help="what certify --json, survey results --json or demo --json has printed")
    try:
        read = read_json(parser.parse_args(arguments).file.read_bytes())
        documents = [read.get("certificate", read)]
        if "questions" in read:
            documents = [one.get("result", one)["certificate"] for one in read["questions"]]
        proved = [line for document in documents for line in check(document)]
        if read.get("together", {}).get("method"):
            proved.append(together(read["together"], documents))
        if not proved:
            raise NotCovered("there is no certificate in it")
    except (NotProved, NotCovered) as error:
        covered = isinstance(error, NotProved)
        print(f"{'NOT PROVED' if covered else 'Not checked'}. {error}")
        return 1 if covered else 2
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        print(f"Not a certificate: {error!r}")
        return 2
    print(*proved, *["Nothing else in the file is proved."] * (documents != [read]), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
