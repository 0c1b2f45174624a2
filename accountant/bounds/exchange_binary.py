"""The exchange bound for bits and for what reduces to bits: rr, onebit, krr with two values, hemisphere.

The users of the smallest budgets are coins: each falls into the blanket, a fair bit, with probability 2q, and those
that do hide which slot is whose. All the others are hosts, in two kinds: a host agrees with the victim's first value or
not. The formulas are those of docs/exchange-bound.md, in forms without cancellation, with the error of every step. The
theorem itself, and the integral, are left to `exchange`. Not for the sequential order, where slots depend on history.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from accountant.bounds.exact_binary import bit_probabilities, shown_alone
from accountant.bounds.exchange import ExchangeProfile, log_mean, split_between
from accountant.bounds.profile import UNDERFLOW, Bounded, NoAmplification, Others, Victim, smallest_epsilon
from accountant.numerics.binomial import UNIT, Floats, Ints, binomial_pmf, pmf_error
from accountant.numerics.count_law import CountLaw, blanket_count
from accountant.numerics.gaussian import gaussian_epsilon

__all__ = ["ExchangeBinaryProfile", "exchange_binary_profile"]

MAX_TIERS, MAX_SPAN_TIERS = 16, 64
"""More budgets of hosts than this are rounded up into this many groups; the second where few victims speak for all."""
MAX_BUDGETS = 4096
"""More budgets of others than this are rounded up to this many before anything else."""
COIN_FACTORS = (0.0, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8)
"""Mean numbers of blanket users that are tried, in units of sqrt(sum of 2q)."""
MAX_BLANKET = 10_000
"""Mean number of blanket users beyond which more would gain less than 1e-4."""
COUNT_BUCKETS = 32
"""Into how many counts the law of the number of blanket users is rounded down."""
TUNING_TIERS = 6
"""Into how many groups the hosts' budgets are rounded up while the number of coins is chosen."""
TUNING_DELTA = 1e-6
"""For which delta the number of coins is chosen when no target is given."""


@dataclass(frozen=True, eq=False)
class _Signs:
    """The law of the mean of C fair signs, C = K + 1 slots, or one larger in convex order: atoms in [-1, 1]."""

    nodes: Floats
    log_mass: Floats
    relative_error: float
    """Of the masses."""
    blanket: CountLaw


@dataclass(frozen=True, eq=False)
class _Hosts:
    """keep, flip = p, q = e^v/(1+e^v), 1/(1+e^v) for each tier's budget v; count: users. float64 (T,)."""

    local_epsilon: Floats
    count: Floats
    flip: Floats = field(init=False)
    keep: Floats = field(init=False)
    variance: float = field(init=False)
    """The sum of p q over all hosts."""

    def __post_init__(self) -> None:
        keep, flip = bit_probabilities(self.local_epsilon)
        object.__setattr__(self, "keep", keep)
        object.__setattr__(self, "flip", flip)
        object.__setattr__(self, "variance", float((self.count * keep * flip).sum()))


@dataclass(frozen=True, eq=False)
class _BitProduct:
    """See `HostProduct`. With weights alpha = p q / V and lambda = p q / V, V the sum of p q over the hosts."""

    hosts_: _Hosts
    signs: _Signs
    drift: float
    """e^epsilon - 1."""
    gap: Floats
    """kappa (T, 2): p_v - e^epsilon q_v + (e^epsilon - 1) r, r = p for a host that agrees, q for one that does not."""

    @property
    def hosts(self) -> float:
        """See `HostProduct`."""
        return self.hosts_.variance

    @property
    def deviation(self) -> float:
        """See `HostProduct`."""
        return float(self.gap.max()) / math.sqrt(self.hosts_.variance)

    def at(self, theta: Floats) -> Floats:
        """See `HostProduct`."""
        exponent, _, _ = self._exponents(theta)
        factors: Floats = log_mean(exponent, self.signs.log_mass).max(-1)
        return self._shares @ factors

    def over(self, theta: float, edges: Floats, bulk: int) -> tuple[Floats, float]:
        """See `HostProduct`."""
        total, size = np.zeros(edges.size - 1), np.zeros(edges.size - 1)
        rounding = (64 + self.hosts_.count.size) * UNIT
        exponents, shifts, terms = self._exponents(np.array([theta]))
        if not math.isfinite(float(terms.max())):
            return np.full(edges.size - 1, math.inf), math.inf
        for tier, share in enumerate(self._shares.tolist()):
            drop = self._drop(tier, shifts[tier, 0], edges, rounding)
            factor = log_mean(exponents[tier, 0, :, None, :] + drop, self.signs.log_mass).max(0)
            total += share * factor
            size += share * np.abs(factor)
        error = float((terms * (4 + shifts.max((1, 2, 3))) * rounding).max())
        return total + size * (4 * rounding), error + self.signs.relative_error + UNIT * (self.signs.nodes.size + 32)

    def _drop(self, tier: int, shift: Floats, edges: Floats, rounding: float) -> Floats:
        """Upper bounds on ln(|phi(z A)| / phi(theta A)) / lambda over every cell, (2, L, J), for shift (2, J).

        |phi(z)|^2 / phi(theta)^2 = 1 - sin^2(r shift / 2) / cosh^2((shift +- v) / 2), both factors taken from below.
        """
        p, q, v = (float(x[tier]) for x in (self.hosts_.keep, self.hosts_.flip, self.hosts_.local_epsilon))
        height = 1 / np.cosh(np.minimum((shift + np.array([[v], [-v]])) / 2, 350.0)) ** 2
        height *= 1 - min(1.0, (4 + float(shift.max()) + v) * rounding)
        angle = (edges / 2)[None, :, None] * shift[:, None, :]
        sine = np.abs(np.sin(angle))
        sine -= angle * rounding
        np.maximum(sine, 0.0, out=sine)
        # As long as the angle is below a right one the sine is least at the left end of a cell.
        rising = int(np.searchsorted(edges, math.pi / max(float(shift.max()), 1e-300) * (1 - rounding)))
        least, far = sine[:, :-1], slice(max(rising - 1, 0), None)
        turns = np.floor(angle[:, far] / math.pi)
        beyond = np.minimum(sine[:, far][:, 1:], sine[:, far][:, :-1])
        beyond[turns[:, 1:] != turns[:, :-1]] = 0.0
        least[:, far] = beyond
        half_rate = self.hosts_.variance / (2 * p * q) * (1 - rounding)
        least *= least
        logarithm: Floats = np.log1p(-height[:, None, :] * least)
        return logarithm * half_rate

    @property
    def _shares(self) -> Floats:
        hosts = self.hosts_
        return hosts.count * hosts.keep * hosts.flip / hosts.variance

    def _exponents(self, theta: Floats) -> tuple[Floats, Floats, Floats]:
        """For each tier, theta (n,), both kinds of host and every value of A, T x n x 2 x J.

        Returns ln phi(theta A) / lambda; the shift theta A kappa / V; and the size of the terms of the former, (T,).
        """
        hosts = self.hosts_
        slots = 1 + np.tanh(hosts.local_epsilon / 2)[:, None] * self.signs.nodes  # (T, J)
        theta = theta[:, None, None]
        shift = theta * (self.gap[:, None, :, None] / hosts.variance) * slots[:, None, None, :]
        up = np.stack([hosts.keep, hosts.flip], axis=1)[:, None, :, None]
        down = up[:, :, ::-1]
        growth = up * _excess(shift * down) + down * _excess(-shift * up)
        gain = np.log1p(growth) * (hosts.variance / (hosts.keep * hosts.flip))[:, None, None, None]
        loss = self.drift * theta * slots[:, None, None, :]
        return gain - loss, shift, (gain + loss).max((1, 2, 3))


def _excess(t: Floats) -> Floats:
    """e^t - 1 - t >= 0, to 12 ulp: a series near 0, where the difference would cancel."""
    near = np.abs(t) < 0.5
    small = np.where(near, t, 0.0)
    series: Floats = np.ones_like(small)
    # The first term left out is below 0.5^15 / 17! of the first, or 1e-19.
    largest = float(np.abs(small).max(initial=0.0))
    terms = next((k for k in range(4, 16) if largest ** (k - 1) / math.factorial(k + 1) < 5e-20), 16)
    for k in range(terms, 2, -1):
        series = 1 + series * small / k
    excess: Floats = np.where(near, series * small * small / 2, np.expm1(t) - t)
    return excess


def _mean_sign(blanket: CountLaw) -> _Signs:
    """The law of the mean of K + 1 fair signs, K at least `blanket`; the mass lost there is given a single slot."""
    deviation = 1 / math.sqrt(blanket.mean + 1)
    half = np.arange(0.0, 8.0, 0.5) * deviation
    far = half[-1] * 1.25 ** np.arange(1, 1 + max(0, math.ceil(math.log(1 / half[-1]) / math.log(1.25))))
    half = np.append(np.concatenate([half, far])[np.concatenate([half, far]) < 1], 1.0)
    nodes = np.concatenate([-half[:0:-1], half])
    mass, spread = np.zeros(nodes.size), 0.0
    for count, weight in zip(blanket.counts.tolist(), blanket.mass.tolist(), strict=True):
        slots = count + 1
        reach = min(slots, math.ceil(19 * math.sqrt(slots)))
        ones = np.arange(max(0, slots // 2 - reach), min(slots, slots - slots // 2 + reach) + 1, dtype=np.int64)
        mass += split_between((2 * ones - slots) / slots, weight * binomial_pmf(ones, slots, 0.5), nodes)
        spread = max(spread, reach + 1.0)
    # What is beyond the reach (Hoeffding: below 2 e^-722) or underflows is put where it weighs most.
    edge = blanket.lost / 2 + 1e-290
    mass[[0, -1]] += edge
    # Each mass is a sum of that many positive numbers at most; its logarithm, at most 700 in size, is rounded once.
    relative = blanket.relative_error + pmf_error(spread) + UNIT * (2 * spread + blanket.counts.size + 1500)
    kept = mass > 0
    return _Signs(nodes[kept], np.log(mass[kept]), relative, blanket)


@dataclass(frozen=True, eq=False)
class ExchangeBinaryProfile(ExchangeProfile):
    """The exchange bound of a victim among hosts (one at least), its slots hidden by blanket users."""

    hosts: _Hosts
    signs: _Signs
    coins: int

    def guess(self, delta: float) -> float:
        """The Gaussian limit: mu^2 = tanh^2(v/2) / (sum of p q)."""
        return gaussian_epsilon(math.tanh(self.local_epsilon / 2) / math.sqrt(self.hosts.variance), delta)

    def explain(self) -> tuple[str, ...]:
        """One line per step."""
        hosts, law = self.hosts, self.signs.blanket
        return (
            f"hosts: {int(hosts.count.sum())} users in {hosts.count.size} tiers, each with all of its own randomness; "
            f"variance of their reports {hosts.variance:.6g}",
            f"blanket users among {self.coins} of the smallest budgets: {law.mean:.6g} on average, from "
            f"{law.counts[0]} to {law.counts[-1]}; mass given a single slot {law.lost:.3g}",
            f"law of the mean sign of the slots: {self.signs.nodes.size} atoms, relative error "
            f"{self.signs.relative_error:.3g}",
        )

    @property
    def _step(self) -> float:
        return 0.01 if self.hosts.count.size <= 4 else 0.04

    def _alone(self, epsilon: float) -> Bounded:
        """p_v - e^epsilon q_v, rounded up."""
        value = shown_alone(self.local_epsilon, epsilon)
        return Bounded(min(1.0, value + UNDERFLOW), min(1.0, value * 8 * UNIT + UNDERFLOW))

    def _product(self, epsilon: float) -> _BitProduct:
        decay, growth = math.exp(-self.local_epsilon), math.expm1(epsilon)
        head = -math.expm1(epsilon - self.local_epsilon) / (1 + decay)  # p_v - e^epsilon q_v
        gap = head + growth * np.stack([self.hosts.keep, self.hosts.flip], axis=1)
        return _BitProduct(self.hosts, self.signs, growth, gap)


def exchange_binary_profile(
    victim: Victim, others: Others, delta: float | None
) -> ExchangeBinaryProfile | NoAmplification:
    """The exchange bound for a victim among the others, or the reason why there is none.

    The f dishonest are the f of the smallest budgets, budgets of hosts are rounded up, and victims of a span are given
    its upper end: each is at least as bad as the truth, because randomised response with a smaller budget is a mixture
    of those with a larger one (docs/exchange-bound.md). delta decides how many users become coins.
    """
    epsilons, count = _honest(others)
    if epsilons.size == 0:
        return NoAmplification("no other honest client: the local budget is certified")
    target = TUNING_DELTA if delta is None else delta
    if target not in others.shared:
        coins = _best_coins(victim.local_epsilon, epsilons, count, target)
        others.shared[target] = dict(zip(epsilons.tolist(), coins.tolist(), strict=True))
    chosen = others.shared[target]
    coins = _not_all(
        np.array([min(chosen.get(e, 0), n) for e, n in zip(epsilons.tolist(), count.tolist(), strict=True)]), count
    )
    hosts = _Hosts(*_merged(epsilons, count - coins, MAX_TIERS if victim.span is None else MAX_SPAN_TIERS))
    key = (target, coins[coins > 0].tobytes(), epsilons[coins > 0].tobytes())
    if key not in others.shared:
        others.shared[key] = _signs_of(epsilons, coins, target)
    return ExchangeBinaryProfile(victim.local_epsilon, hosts, others.shared[key], int(coins.sum()))


def _best_coins(victim: float, epsilons: Floats, count: Ints, target: float) -> Ints:
    """How many of each budget become coins. Any number is sound; all are compared at one epsilon, near the answer."""
    chances = 2 * bit_probabilities(epsilons)[1] * count
    unit = math.sqrt(float(chances.sum()))
    choices = [_not_all(_coins(chances, count, min(factor * unit, MAX_BLANKET)), count) for factor in COIN_FACTORS]

    def curve_with(coins: Ints) -> ExchangeBinaryProfile:
        hosts = _Hosts(*_merged(epsilons, count - coins, TUNING_TIERS))
        return ExchangeBinaryProfile(victim, hosts, _signs_of(epsilons, coins, target), int(coins.sum()))

    middle = curve_with(choices[len(choices) // 2])
    point = smallest_epsilon(middle, target, victim, tolerance=0.02).epsilon
    point = min(point, 0.9 * victim)
    heights = [curve_with(coins).peak(point).height for coins in choices]
    return choices[int(np.argmin(heights))]


def _not_all(coins: Ints, count: Ints) -> Ints:
    """These coins, or none where there would be no host."""
    return coins if coins.sum() < count.sum() else np.zeros_like(count)


def _honest(others: Others) -> tuple[Floats, Ints]:
    """The budgets without the smallest ones, at most MAX_BUDGETS of them, rounded up."""
    if _honest not in others.rate_bins:
        others.rate_bins[_honest] = _honest_anew(others)
    found: tuple[Floats, Ints] = others.rate_bins[_honest]
    return found


def _honest_anew(others: Others) -> tuple[Floats, Ints]:
    epsilons, count = _without_smallest(others.local_epsilon, others.count, others.dishonest)
    if epsilons.size <= MAX_BUDGETS:
        return epsilons, count
    place = (epsilons - epsilons[0]) / max(float(epsilons[-1] - epsilons[0]), 1e-300) * MAX_BUDGETS
    group = place.astype(np.int64)  # increasing, as the budgets are
    last = np.flatnonzero(np.append(group[1:] != group[:-1], True))
    return epsilons[last], np.diff(np.concatenate([[0], np.cumsum(count)[last]]))


def _without_smallest(epsilons: Floats, count: Ints, remove: int) -> tuple[Floats, Ints]:
    order = np.argsort(epsilons, kind="stable")
    epsilons, count = epsilons[order], count[order]
    before = np.cumsum(count) - count
    left = count - np.clip(remove - before, 0, count)
    return epsilons[left > 0], left[left > 0]


def _coins(chances: Floats, count: Ints, wanted: float) -> Ints:
    """How many of each budget become coins: the smallest budgets first, until `wanted` blanket users are expected."""
    before = np.cumsum(chances) - chances
    share = np.clip((wanted - before) / chances, 0.0, 1.0)
    return np.minimum(np.ceil(share * count).astype(np.int64), count)


def _signs_of(epsilons: Floats, coins: Ints, delta: float) -> _Signs:
    used = coins > 0
    # Each chance takes at most four rounded operations.
    chance = 2 * bit_probabilities(epsilons[used])[1] * (1 - 8 * UNIT)
    tail = max(1e-250, min(1e-15, delta * delta * 1e-6))
    return _mean_sign(blanket_count(chance, coins[used], tail=tail).coarsened(COUNT_BUCKETS, tail, tail))


def _merged(epsilons: Floats, count: Ints, tiers: int) -> tuple[Floats, Floats]:
    """At most `tiers` budgets of users, every one rounded up: groups in which about the same is lost."""
    epsilons, count = epsilons[count > 0], count[count > 0]
    weights = count.astype(np.float64)
    if epsilons.size <= tiers:
        return epsilons, weights
    keep, flip = bit_probabilities(epsilons)
    value = keep * flip  # falls as the budget grows; a group loses about its users times its width
    share = (value[0] - value) / max(float(value[0] - value[-1]), 1e-16)  # all alike if they differ by rounding only
    bins = np.clip(share * 4096, 0, 4095).astype(np.int64)
    density = np.sqrt(np.bincount(bins, weights=weights, minlength=4096))
    before = np.cumsum(density) - density / 2
    group = np.minimum((before[bins] / density.sum() * tiers).astype(np.int64), tiers - 1)
    last = np.flatnonzero(np.append(group[1:] != group[:-1], True))
    total = np.diff(np.concatenate([[0.0], np.cumsum(weights)[last]]))
    return epsilons[last], total
