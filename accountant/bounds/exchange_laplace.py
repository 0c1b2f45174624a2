"""The exchange bound for Laplace noise on values in [0, 1]: all pairs of values, all data, personal budgets.

The users of the smallest budgets are coins for the common blanket omega, proportional to e^(-a max(z, 1-z)); all the
others whose budget is at most the victim's are hosts, with all of their own noise. The lemmas that reduce all data to
a few laws per budget, T1 to T4, L1 and L2, are in docs/exchange-bound.md. Laws are put on few atoms with the mean kept,
which makes them larger in convex order; masses are sums of positive numbers. The theorem is in `exchange`.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from accountant.bounds.exchange import ExchangeProfile, log_mean, split_between
from accountant.bounds.profile import Bounded, NoAmplification, Others, Victim
from accountant.numerics.binomial import UNIT, Floats, Ints
from accountant.numerics.count_law import CountLaw, blanket_count
from accountant.numerics.gaussian import gaussian_epsilon

Complexes = NDArray[np.complex128]

__all__ = ["ExchangeLaplaceProfile", "exchange_laplace_profile"]

MAX_LOCAL_EPSILON = 30.0
"""Above it likelihood ratios leave the range in which they are evaluated; there is nothing to gain either."""
MAX_TIERS = 8
"""Budgets of the others up to which this bound is offered."""
END_CELL, WIDEST_CELL = 0.05, 0.125
"""Positions of a host between the victim's two values: the first and last cell, in units of 1/budget; the widest."""
OUTSIDE_COST, MOST_OUTSIDE_COST = 0.0005, 0.3
"""By what part hosts that are not between them may have a larger second moment; more at large budgets, up to this."""
MIDDLE_CELLS, TAIL_CELLS = 48, 24
"""Cells of z on which the likelihood ratio is put on its end values."""
LATTICE = 32
"""Cells of the lattice on which one slot's likelihood ratio is added up."""
LONGEST = 512
"""Lattices longer than this are made twice as coarse."""
COUNT_BUCKETS = 16
"""Into how many counts the law of the number of blanket users is rounded down."""
COIN_FACTORS = (0.0, 0.5, 1.0, 2.0, 4.0, 7.0, 10.0, 14.0, 20.0)
"""Mean numbers of blanket users that are tried, in units of the square root of their largest possible number."""
TUNING_DELTA = 1e-6
"""For which delta the number of coins is chosen when no target is given."""
STILL = 0.02
"""Added to the standard deviation of A where exponents are chosen by it."""
MAX_TERMS = 40
"""Of the power series of phi; what is left out is added."""
NEAR, STRIDE = 0.3, 4
"""Laws whose product is within e^NEAR of the largest at u = 0 are evaluated in every cell, others in one of STRIDE."""
INEXACT = 1e-12
"""Relative to the largest |X|, more than the rounding of every value of X, and of its mean over a cell."""


@dataclass(frozen=True, eq=False)
class _Family:
    """The thinned laws of X for one budget, F of them, by their moments.

    phi(w) = 1 - (e^epsilon - 1) w + sum_k moments[f, k] (w scale[f])^k / k!, k = 2 ... MAX_TERMS. |X| <= scale, and
    moments are of X/scale.
    """

    scale: Floats
    moments: Floats

    def only(self, members: Ints) -> _Family:
        """These laws of it."""
        return _Family(self.scale[members], self.moments[members])

    @property
    def variance(self) -> float:
        """The largest second moment."""
        return float((self.scale**2 * self.moments[:, 0]).max())


@dataclass(frozen=True, eq=False)
class _Slots:
    """The law of A, or one larger in convex order. values, log_mass: (J,); relative error of the masses."""

    values: Floats
    log_mass: Floats
    relative_error: float

    @property
    def deviation(self) -> float:
        """The standard deviation of A."""
        return math.sqrt(float(np.exp(self.log_mass) @ (self.values - 1) ** 2))


@dataclass(frozen=True, eq=False)
class _NoiseProduct:
    """See `HostProduct`. weights: alpha, of each host, proportional to 1/variance; exponents: its lambda."""

    families: tuple[_Family, ...]
    slots: tuple[_Slots, ...]
    count: Floats
    weights: Floats
    exponents: Floats
    drift: float

    @property
    def deviation(self) -> float:
        """See `HostProduct`."""
        return math.sqrt(
            sum(n * w * w * f.variance for n, w, f in zip(self.count, self.weights, self.families, strict=True))
        )

    @property
    def hosts(self) -> float:
        """See `HostProduct`."""
        return float(1 / self.weights.max()) / 4

    def at(self, theta: Floats) -> Floats:
        """See `HostProduct`."""
        total = np.zeros(theta.shape)
        for family, slots, weight, exponent, share in self._tiers():
            # The few laws that are largest for some values of A are enough to know where to look.
            some = slots.values[np.unique(np.linspace(slots.values.size // 3, slots.values.size - 1, 6).astype(int))]
            at_some = self._log_squared(family, np.asarray(theta[:, None, None] * weight * some, dtype=np.complex128))
            largest = np.unique(np.argsort(at_some, axis=-2)[:, -2:])
            z: Complexes = np.asarray(theta[:, None, None] * (weight * slots.values), dtype=np.complex128)
            squared = self._log_squared(family.only(largest), z)
            total += share * log_mean(squared / (2 * exponent), slots.log_mass).max(-1)
        return total

    def over(self, theta: float, edges: Floats, bulk: int) -> tuple[Floats, float]:
        """See `HostProduct`. Beyond the bulk the value at its last edge serves."""
        cells = edges.size - 1
        total, size, error = np.zeros(cells), np.zeros(cells), 0.0
        for family, slots, weight, exponent, share in self._tiers():
            z: Complexes = np.asarray(theta * (weight * slots.values[:, None, None]), dtype=np.complex128)
            at_rest = self._log_squared(family, z)[..., 0].T  # (F, J)
            height = log_mean(at_rest / (2 * exponent), slots.log_mass)
            near = share * (height.max() - height) < NEAR
            factor = np.full(cells, -math.inf)
            for which, stride in ((near, 1), (~near, STRIDE)):
                for part in np.array_split(np.flatnonzero(which), max(1, int(which.sum()) // 8)):
                    if part.size:
                        value = self._falling(
                            family.only(part), theta * weight * slots.values, edges, bulk, stride, at_rest[part]
                        )
                        factor = np.maximum(factor, log_mean(value / (2 * exponent), slots.log_mass).max(0))
            total += share * factor
            size += share * np.abs(factor)
            error += share * slots.relative_error
        return total + size * (128 * UNIT), error + UNIT * 8192

    def _falling(
        self, family: _Family, scales: Floats, edges: Floats, bulk: int, stride: int, at_rest: Floats
    ) -> Floats:
        """Upper bounds on ln |phi(w (1 + ir))|^2 over every cell of r, for w in scales (J,): (F, L, J).

        It falls while the range of w r X is at most pi: the value at an earlier edge serves, one of every `stride` of
        the first `bulk`. Further out it is at most `at_rest`, (F, J), that at r = 0.
        """
        cells = edges.size - 1
        left = np.minimum(np.arange(cells), bulk - 1) // stride
        value = np.empty((family.scale.size, cells, scales.size))
        for place, w in enumerate(scales.tolist()):
            # |phi|^2 = E e^{w (X + X')} cos(w r (X - X'))
            last = math.pi / (2 * max(w, 1e-300) * family.scale) * (1 - 1e-9)
            squared = self._log_squared(family, w * (1 + 1j * edges[None, :bulk:stride]))
            falling = edges[None, 1:] <= last[:, None]
            value[:, :, place] = np.where(falling, squared[:, left], at_rest[:, place, None])
        return value

    def _tiers(self) -> zip[tuple[_Family, _Slots, float, float, float]]:
        """The last: the sum of the exponents of a tier. All of these add up to 1."""
        shares = (self.count * self.exponents).tolist()
        return zip(self.families, self.slots, self.weights.tolist(), self.exponents.tolist(), shares, strict=True)

    def _log_squared(self, family: _Family, z: Complexes) -> Floats:
        """Upper bounds on ln |phi(z)|^2, rounding and the terms left out included: z (..., 1, L) gives (..., F, L)."""
        ratio = z * family.scale[:, None]
        size = np.abs(ratio)
        second = family.moments[:, :1]
        largest = min(float(size.max()), 8.0)
        terms = 4
        while terms < MAX_TERMS and 2 * largest ** (terms - 1) / math.factorial(terms + 1) > 1e-14:
            terms += 1
        total = np.zeros(ratio.shape, dtype=np.complex128)
        for k in range(terms, 1, -1):
            total = total * ratio + family.moments[:, k - 2 : k - 1] / math.factorial(k)
        change = total * ratio * ratio - self.drift * z
        growth = np.exp(size) * second
        inexact = INEXACT / np.sqrt(second) * (self.drift * np.abs(z) + growth * size * size)
        inexact += growth * size ** (terms + 1) / math.factorial(terms + 1)
        squared = 2 * change.real + change.real**2 + change.imag**2
        squared += 2 * inexact * (1 + np.abs(change)) + inexact * inexact
        logarithm: Floats = np.log1p(np.maximum(squared, -1 + 1e-15))
        return logarithm


def _mass(rate: float, centre: float, edges: Floats) -> Floats:
    """The Laplace mass of each cell between consecutive edges (the outer two may be infinite); centre is an edge."""
    low, high = edges[:-1], edges[1:]
    right = low >= centre
    near = np.where(right, low - centre, centre - high)
    whole: Floats = 0.5 * np.exp(-rate * near) * -np.expm1(-rate * (high - low))
    return whole


def _cells(slow: float, fast: float, breaks: list[float]) -> Floats:
    """Edges of cells for laws that are smooth between the breaks and decay at these rates outside them."""
    tail = np.union1d(np.linspace(0.0, 8.0, TAIL_CELLS) / fast, np.linspace(0.0, 9.0, TAIL_CELLS) / slow)
    breaks = sorted(set(breaks))
    parts = [np.array([-math.inf]), breaks[0] - tail[:0:-1]]
    for low, high in itertools.pairwise(breaks):
        pieces = max(4, math.ceil(MIDDLE_CELLS * (high - low) / max(breaks[-1] - breaks[0], 1e-300)))
        parts.append(np.linspace(low, high, pieces + 1)[:-1])
    parts.append(breaks[-1] + tail)
    parts.append(np.array([math.inf]))
    return np.concatenate(parts)


def _on_ends(ends: Floats, mass: Floats, product: Floats) -> tuple[Floats, Floats]:
    """Atoms on the end values of every cell, with the cell's mass and with its mean, product / mass, kept.

    ends: (L+1,), monotone values at the edges; the value within a cell is between those of its ends.
    """
    low, high = ends[:-1], ends[1:]
    mean = np.divide(product, mass, out=np.zeros_like(mass), where=mass > 0)
    width = np.where(high == low, 1.0, high - low)
    upper = np.clip((mean - low) / width, 0.0, 1.0)
    return np.concatenate([low, high]), np.concatenate([mass * (1 - upper), mass * upper])


def _ratio_atoms(
    victim: float, epsilon: float, rate: float, x0: float, x1: float, host: float
) -> tuple[Floats, Floats]:
    """X = (R_x0 - e^epsilon R_x1)/R_host under R_host, R_host of the given rate <= victim: values and masses, (L,)."""
    edges = _cells(rate, victim, [x0, host, x1])
    inner = edges[1:-1]
    ends = victim / rate * np.exp(rate * np.abs(inner - host)) * _difference(victim, epsilon, inner, inner, x0, x1)
    outer = ends[[0, -1]] if rate == victim else np.zeros(2)  # the limits: constant, or 0
    ends = np.concatenate([outer[:1], ends, outer[1:]])
    low, high = edges[:-1], edges[1:]
    product = 0.5 * -np.expm1(-victim * (high - low)) * _difference(victim, epsilon, low, high, x0, x1)
    return _on_ends(ends, _mass(rate, host, edges), product)


def _difference(victim: float, epsilon: float, low: Floats, high: Floats, x0: float, x1: float) -> Floats:
    """e^(-v d0) - e^(epsilon - v d1), d0 and d1 the distances of x0 and x1 from [low, high]: without cancellation."""
    near, other = (np.maximum(np.maximum(low - x, x - high), 0.0) for x in (x0, x1))
    left, right = high <= x0, low >= x1
    further = np.where(left, x1 - x0, np.where(right, x0 - x1, other - near))
    return np.exp(-victim * near) * -np.expm1(epsilon - victim * further)


Place = tuple[float, float, float]
"""The victim's two values and a host's."""


@lru_cache(maxsize=64)
def _family(victim: float, epsilon: float, rate: float) -> _Family:
    """T3: every host of this budget, whatever its value and the victim's, is below a mixture of these laws."""
    laws = [_thinned(victim, epsilon, rate, place, thin) for place, thin in _members(victim, epsilon, rate)]
    return _Family(np.array([scale for scale, _ in laws]), np.array([moments for _, moments in laws]))


def _members(victim: float, epsilon: float, rate: float) -> list[tuple[Place, float]]:
    """The places and the thinning of T3's laws."""
    cells = _positions(rate)
    cost = [1 / math.cosh(rate * (right - left) / 2) for left, right in itertools.pairwise(cells)]
    found: list[tuple[Place, float]] = []
    for x, before, after in zip(cells, [1.0, *cost], [*cost, 1.0], strict=True):
        found.append(((0.0, 1.0, x), min(before, after)))
    cost_outside = min(OUTSIDE_COST * max(1.0, rate) ** 2.5, MOST_OUTSIDE_COST)
    most = (1 + cost_outside) * max(_second(victim, epsilon, rate, place) / thin for place, thin in found)
    first = 0.0
    while first < 1 and victim * (1 - first) > epsilon * (1 - 1e-12):
        outside: tuple[Place, Place] = (first, 1.0, first), (0.0, 1 - first, 1 - first)
        # As far as leaves the second moment about the largest of those above; any edge is sound.
        room = most / max(_second(victim, epsilon, rate, place) for place in outside)
        edge = min(1.0, max(math.log(room) / rate, first + max(cost_outside, 0.125 * first) / max(1.0, rate)))
        found.extend((place, math.exp(-rate * edge)) for place in outside)
        first = edge
    return found


def _positions(rate: float) -> list[float]:
    """0 = z_0 < ... < z_J = 1, symmetric: close to each other near the ends, where a host is at its worst."""
    half = [0.0]
    while half[-1] < 0.5:
        half.append(min(0.5, half[-1] + min(WIDEST_CELL, END_CELL / rate + 0.35 * half[-1])))
    return [*half, *(1 - x for x in half[-2::-1])]


def _second(victim: float, epsilon: float, rate: float, place: Place) -> float:
    values, mass = _ratio_atoms(victim, epsilon, rate, *place)
    return max(float(mass @ values**2), 1e-300)


def _thinned(victim: float, epsilon: float, rate: float, place: Place, thin: float) -> tuple[float, Floats]:
    """The law of X for the pair and the host at `place`, thinned (T1): its largest value, its moments in that unit."""
    values, mass = _ratio_atoms(victim, epsilon, rate, *place)
    thin *= 1 - 8 * UNIT
    largest = float(np.abs(values).max()) / thin * (1 + 8 * UNIT)
    unit = values / (thin * largest)
    powers = np.cumprod(np.broadcast_to(unit, (MAX_TERMS, unit.size)), axis=0)[1:]
    return largest, thin * (powers @ mass)


def _slots(coin_rate: float, rate: float, blanket: CountLaw) -> _Slots:
    """The law of A for hosts of this budget, K + 1 slots with K at least `blanket`. T4: coin_rate <= rate."""
    edges = _cells(coin_rate, rate, [0.0, 0.5])
    inner = edges[1:-1]
    ends = rate / coin_rate * np.exp(coin_rate * np.abs(inner - 0.5) - rate * np.abs(inner))
    outer = ends[[0, -1]] if rate == coin_rate else np.zeros(2)
    ends = np.concatenate([outer[:1], ends, outer[1:]])
    values, mass = _on_ends(ends, _mass(coin_rate, 0.5, edges), _mass(rate, 0.0, edges))
    low, high = float(values.min()), float(values.max()) * (1 + 4 * UNIT)
    lattice = np.linspace(low, high, LATTICE + 1)
    one = split_between(values, mass, lattice)
    width = (high - low) / LATTICE
    found = []
    for count, weight in zip(blanket.counts.tolist(), blanket.mass.tolist(), strict=True):
        law, level = _power(one, count + 1)
        places = low + width * 2**level * np.arange(law.size) / (count + 1)
        found.append((places, weight * law))
    deviation = math.sqrt(max(float(((values - 1) ** 2) @ mass), 1e-300) / (blanket.mean + 1))
    bottom, top = min(float(v[0]) for v, _ in found), max(float(v[-1]) for v, _ in found)
    nodes = _nodes(1.0, deviation, bottom, top)
    total = np.zeros(nodes.size)
    for places, law in found:
        total += split_between(places, law, nodes)
    kept = total > 0
    # One convolution adds at most LONGEST + 2 ulp, and every copy of the slot brings its own error with it.
    rounding = 2 * UNIT * (LONGEST + 64) * (int(blanket.counts[-1]) + 2)
    return _Slots(nodes[kept], np.log(total[kept]), blanket.relative_error + rounding)


def _nodes(middle: float, deviation: float, bottom: float, top: float) -> Floats:
    half = np.arange(0.0, 8.0, 0.5) * deviation
    far = half[-1] * 1.25 ** np.arange(1, 60)
    reach = np.concatenate([half, far])
    nodes = np.concatenate([middle - reach[:0:-1], middle + reach])
    inside = nodes[(nodes > bottom + 1e-3 * deviation) & (nodes < top - 1e-3 * deviation)]
    return np.concatenate([[bottom], inside, [top]])


def _power(one: Floats, count: int) -> tuple[Floats, int]:
    """The law of the sum of `count` copies, or one larger in convex order, on a lattice 2^level times as coarse."""
    result: tuple[Floats, int] | None = None
    square = (one, 0)
    while True:
        if count & 1:
            result = square if result is None else _added(result, square)
        count >>= 1
        if count == 0:
            break
        square = _added(square, square)
    assert result is not None
    return result


def _added(left: tuple[Floats, int], right: tuple[Floats, int]) -> tuple[Floats, int]:
    while left[1] < right[1]:
        left = _halved(left)
    while right[1] < left[1]:
        right = _halved(right)
    total = (np.convolve(left[0], right[0]), left[1])
    while total[0].size > LONGEST:
        total = _halved(total)
    return total


def _halved(law: tuple[Floats, int]) -> tuple[Floats, int]:
    """Every second place goes half to each of its neighbours: the mean is kept."""
    mass, level = law
    if mass.size % 2 == 0:
        mass = np.append(mass, 0.0)
    kept = mass[0::2].copy()
    kept[:-1] += mass[1::2] / 2
    kept[1:] += mass[1::2] / 2
    return kept, level + 1


@dataclass(frozen=True, eq=False)
class ExchangeLaplaceProfile(ExchangeProfile):
    """The exchange bound of a victim with Laplace noise."""

    rates: Floats
    """Budgets of the hosts, (T,)."""
    count: Floats
    slots: tuple[_Slots, ...]
    blanket: CountLaw
    coins: int

    def guess(self, delta: float) -> float:
        """The Gaussian limit, as if all hosts were the worst at epsilon = 0."""
        return gaussian_epsilon(self._product(0.0).deviation, delta)

    def explain(self) -> tuple[str, ...]:
        """One line per step."""
        law = self.blanket
        return (
            f"hosts: {int(self.count.sum())} users in {self.count.size} tiers, each with all of its own noise",
            f"blanket users among {self.coins} of the smallest budgets: {law.mean:.6g} on average, from "
            f"{law.counts[0]} to {law.counts[-1]}; mass cut and added to delta {law.lost:.3g}",
        )

    @property
    def _step(self) -> float:
        return 0.012 if self.count.size == 1 else 0.03

    @property
    def _lost(self) -> float:
        return self.blanket.lost * (1 + 8 * UNIT)

    def _alone(self, epsilon: float) -> Bounded:
        """1 - e^((epsilon - v)/2), rounded up."""
        value = min(1.0, -math.expm1((epsilon - self.local_epsilon) / 2) * (1 + 8 * UNIT) + 5e-324)
        return Bounded(value, min(value, value * 8 * UNIT + 5e-324))

    def _product(self, epsilon: float) -> _NoiseProduct:
        families = tuple(_family(self.local_epsilon, epsilon, rate) for rate in self.rates.tolist())
        precision = np.array([1 / family.variance for family in families])
        weights = precision / float(self.count @ precision)
        # Of Hoelder's exponents those cost least that follow how much a tier's own A moves the whole.
        moves = weights * np.array([slots.deviation + STILL for slots in self.slots])
        exponents = moves / float(self.count @ moves)
        return _NoiseProduct(families, self.slots, self.count, weights, exponents, math.expm1(epsilon))


def exchange_laplace_profile(
    victim: Victim, others: Others, delta: float | None
) -> ExchangeLaplaceProfile | NoAmplification:
    """The exchange bound for a victim among the others, or the reason why there is none.

    The f dishonest may be any: f users of every budget are left out. Hosts are those whose budget is at most the
    victim's; larger ones are given away. delta decides how many become coins.
    """
    if victim.span is not None:
        return NoAmplification("victims of different budgets: the exchange bound for noise is proved for one at a time")
    if others.count.size > MAX_TIERS:
        return NoAmplification(f"{others.count.size} budgets; the exchange bound for noise takes at most {MAX_TIERS}")
    if victim.local_epsilon > MAX_LOCAL_EPSILON:
        return NoAmplification(f"local epsilon {victim.local_epsilon:g} is above {MAX_LOCAL_EPSILON:g}")
    order = np.argsort(others.local_epsilon, kind="stable")
    rates, count = others.local_epsilon[order], np.maximum(others.count[order] - others.dishonest, 0)
    used = (count > 0) & (rates <= victim.local_epsilon)
    rates, count = rates[used], count[used]
    if rates.size == 0:
        return NoAmplification("no other honest client with a budget as small as the victim's")
    target = TUNING_DELTA if delta is None else delta
    chances = np.exp(-rates / 2) * count  # at a = e_i: enough to choose by
    before = np.cumsum(chances) - chances
    choices: list[Ints] = []
    for factor in COIN_FACTORS:
        share = np.clip((factor * math.sqrt(float(chances.sum())) - before) / chances, 0.0, 1.0)
        coins = np.minimum(np.ceil(share * count).astype(np.int64), count)
        if coins.sum() < count.sum() and not any((coins == other).all() for other in choices):
            choices.append(coins)
    curves = [_profile_of(victim.local_epsilon, rates, count, coins, target) for coins in choices]
    point = min(1.1 * curves[len(curves) // 2].guess(target), 0.9 * victim.local_epsilon)  # near the answer
    return min(curves, key=lambda curve: curve.peak(point).height)


def _profile_of(victim: float, rates: Floats, count: Ints, coins: Ints, delta: float) -> ExchangeLaplaceProfile:
    used, left = coins > 0, count - coins
    coin_rate = float(rates[used].max()) if used.any() else float(rates[0])
    # Each chance takes at most five rounded operations.
    chance = rates[used] / coin_rate * np.exp(-rates[used] / 2) * (1 - 16 * UNIT)
    tail = max(1e-250, min(1e-4, delta * 1e-4))
    law = blanket_count(chance, coins[used], tail=tail).coarsened(COUNT_BUCKETS, tail, tail)
    hosts = rates[left > 0]
    slots = tuple(_slots(coin_rate, rate, law) for rate in hosts.tolist())
    return ExchangeLaplaceProfile(victim, hosts, left[left > 0].astype(np.float64), slots, law, int(coins.sum()))
