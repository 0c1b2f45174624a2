"""Published bounds, implemented for comparison: each with its grade, its reference and its validity range.

None of them opens a gate. Outside its validity range a bound raises `OutOfRangeError`, which names the range; it never
returns a number there. `compare` puts all of them beside an attack. Certified answers are left to `certify`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from accountant.binomial import Floats, binomial_pmf, half_tail
from accountant.blanket_count import CountLaw, blanket_count
from accountant.budgets import Budgets
from accountant.closed_forms import binary_delta
from accountant.curves import Bounded, smallest_epsilon
from accountant.gaussian import gaussian_epsilon
from accountant.randomizers import (
    BinaryRandomizedResponse,
    ClosedFormRandomizer,
    GaussianMechanism,
    KaryRandomizedResponse,
    LaplaceMechanism,
    Randomizer,
)
from accountant.results import Comparison, Grade, Status

__all__ = [
    "OutOfRangeError",
    "bbgn_bennett",
    "bbgn_hoeffding",
    "biswas_krr_delta",
    "compare",
    "echo",
    "efmrtt",
    "fmt22_closed_form",
    "fmt22_numeric",
    "gspa_asymptotic",
    "gspa_mu",
    "gspa_numeric",
    "leftover_clones",
    "leftover_clones_delta",
    "likelihood_test_clones",
]


class OutOfRangeError(ValueError):
    """The published bound says nothing at these parameters; the message names its validity range."""


def _need(holds: bool, value: str, valid: str) -> None:
    if not holds:
        raise OutOfRangeError(f"{value}; valid: {valid}")


def _uniform(budgets: Budgets) -> tuple[float, int]:
    """(local epsilon, n) of equal budgets without a local delta."""
    _need(budgets.num_tiers == 1, f"{budgets.num_tiers} different budgets", "equal budgets")
    _need(float(budgets.local_delta[0]) == 0, f"local delta {budgets.local_delta[0]:g}", "pure local budgets")
    return float(budgets.local_epsilon[0]), budgets.num_users


def _largest(budgets: Budgets) -> tuple[float, int]:
    """(largest local epsilon, n): personalised budgets, taken as if all had the largest."""
    _need(float(budgets.local_delta.max()) == 0, f"local delta {budgets.local_delta.max():g}", "pure local budgets")
    return float(budgets.local_epsilon[-1]), budgets.num_users


@dataclass(frozen=True, eq=False)
class _Function:
    """delta(epsilon) of a published formula, as something `smallest_epsilon` can search."""

    function: Callable[[float], float]
    ceiling: float
    method: str = "published"

    def delta(self, epsilon: float) -> Bounded:
        return Bounded(min(1.0, max(0.0, self.function(epsilon))), 0.0)

    def guess(self, delta: float) -> float:
        return self.ceiling / 8

    def explain(self) -> tuple[str, ...]:
        return ()


def _solve(delta_at: Callable[[float], float], delta: float, ceiling: float) -> float:
    """The upper end of a narrow bracket around the least epsilon <= ceiling with delta_at <= delta."""
    return smallest_epsilon(_Function(delta_at, ceiling), delta, ceiling, tolerance=1e-7).epsilon


# ------------------------------------------------------------------ equal budgets


def efmrtt(budgets: Budgets, delta: float) -> float:
    """12 eps0 sqrt(ln(1/delta)/n): Erlingsson et al. 2019, Theorem 7. Equal budgets, eps0 <= 1/2, n >= 1000."""
    local, n = _uniform(budgets)
    _need(local <= 0.5, f"local epsilon {local:g}", "local epsilon <= 1/2")
    _need(n >= 1000, f"{n} users", "at least 1000 users")
    _need(0 < delta <= 0.01, f"delta {delta:g}", "0 < delta <= 0.01")
    return 12 * local * math.sqrt(math.log(1 / delta) / n)


def _blanket(budgets: Budgets, randomizer: Randomizer) -> tuple[float, float, int]:
    """(gamma, local epsilon, n) of equal budgets; the blanket is the least density over the inputs."""
    local, n = _uniform(budgets)
    if isinstance(randomizer, ClosedFormRandomizer):
        return float(randomizer.gamma(np.array([local]))[0]), local, n
    _need(
        isinstance(randomizer, LaplaceMechanism), f"randomizer {randomizer.name}", "a pure randomizer of known blanket"
    )
    return math.exp(-local / 2) * (1 - 1e-12), local, n


def _over_counts(gamma: float, n: int, log_decay: float) -> float:
    """The mean of e^(log_decay * M)/(gamma n) with M ~ Bin(n, gamma)."""
    return math.exp(n * math.log1p(gamma * math.expm1(log_decay))) / (gamma * n)


def bbgn_hoeffding(budgets: Budgets, randomizer: Randomizer, delta: float) -> float:
    """Balle, Bell, Gascon, Nissim 2019: the privacy blanket with Hoeffding's inequality. Equal pure budgets.

    L lies in a range of length b = gamma (e^v - 1)(e^eps + 1), has mean -a = 1 - e^eps, and
    E[sum of m terms]_+ <= b^2/(4a) exp(-2 m a^2/b^2). Never below the truth.
    """
    gamma, local, n = _blanket(budgets, randomizer)

    def delta_at(epsilon: float) -> float:
        a = math.expm1(epsilon)
        b = gamma * math.expm1(local) * (math.exp(epsilon) + 1)
        return b * b / (4 * a) * _over_counts(gamma, n, -2 * (a / b) ** 2) if a > 0 else 1.0

    return _solve(delta_at, delta, local)


def bbgn_bennett(budgets: Budgets, randomizer: Randomizer, delta: float) -> float:
    """The same with Bennett's inequality: variance of L by Bhatia and Davis, or exact for k-RR. Equal pure budgets."""
    gamma, local, n = _blanket(budgets, randomizer)
    letters = randomizer.k if isinstance(randomizer, KaryRandomizedResponse) else None

    def delta_at(epsilon: float) -> float:
        a, gain = math.expm1(epsilon), math.exp(epsilon)
        if a <= 0:
            return 1.0
        largest, least = gamma * (math.exp(local) - gain), gamma * (1 - gain * math.exp(local))
        variance = (largest + a) * (-a - least)
        if letters is not None:
            rest = -gamma * a
            variance = (largest**2 + least**2 + (letters - 2) * rest**2) / letters - a * a
        above = largest + a
        u = above * a / variance
        rate = variance / above**2 * ((1 + u) * math.log1p(u) - u)
        return above / math.log1p(u) * _over_counts(gamma, n, -rate)

    return _solve(delta_at, delta, local)


# ------------------------------------------------------------------ clones


def fmt22_closed_form(budgets: Budgets, delta: float) -> float:
    """Feldman, McMillan, Talwar 2021, Theorem 3.1, at the largest local epsilon. eps0 <= ln(n/(16 ln(2/delta)))."""
    local, n = _largest(budgets)
    limit = n / (16 * math.log(2 / delta))
    _need(limit > 1 and local <= math.log(limit), f"local epsilon {local:g}", "at most ln(n/(16 ln(2/delta)))")
    root = 8 * math.sqrt(math.exp(local) * math.log(4 / delta) / n)
    return math.log1p(math.tanh(local / 2) * (root + 8 * math.exp(local) / n))


def _bit_clones(local: float, law: CountLaw, delta: float) -> float:
    """The clone pair: a bit of local budget `local` among M fair bits. Never below the pair's epsilon."""

    def delta_at(epsilon: float) -> float:
        value, error = binary_delta(local, epsilon, law.counts)
        return float(law.mass @ (value + error)) * (1 + law.relative_error) + law.lost

    return _solve(delta_at, delta, local)


def _law(gamma: Floats, count: np.ndarray[tuple[int, ...], np.dtype[np.int64]], delta: float) -> CountLaw:
    tail = max(1e-250, delta * 1e-9)
    law = blanket_count(gamma, count, tail=tail)
    return law.coarsened(1024, tail) if law.counts.size > 1024 else law


def fmt22_numeric(budgets: Budgets, delta: float) -> float:
    """The clone pair of the same paper, evaluated: C ~ Bin(n-1, e^-eps0) clones, at the largest local epsilon."""
    local, n = _largest(budgets)
    _need(n >= 2, f"{n} users", "at least 2 users")
    return _bit_clones(local, _law(np.array([math.exp(-local)]), np.array([n - 1]), delta), delta)


def leftover_clones_delta(alpha: float, local: float, n: int, epsilon: float) -> float:
    """delta of the pair with a leftover part (Feldman et al. 2023; Wang et al. 2022, "variation ratio").

    The victim shows its own value with probability alpha e^local, the other with alpha, and nothing otherwise, among
    C ~ Bin(n-1, 2 alpha) fair clones. Summed over t, the number of messages seen, with binomial tails; windows of 12
    standard deviations. 0 < alpha <= 1/(1 + e^local).
    """
    up, gain = math.exp(local), math.exp(epsilon)
    out = max(0.0, 1 - alpha * (up + 1))
    spread = 12 * math.sqrt(n * 2 * alpha * (1 - 2 * alpha)) + 12
    low, high = max(0, math.floor((n - 1) * 2 * alpha - spread)), min(n, math.ceil((n - 1) * 2 * alpha + spread) + 1)
    t = np.arange(low, high + 1, dtype=np.int64)
    nobody, inside = (out * binomial_pmf(t, n - 1, 2 * alpha), alpha * binomial_pmf(t - 1, n - 1, 2 * alpha))
    # With t seen, of which x show the victim's value: Bin(t, 1/2)(x) times const + slope x.
    size = np.maximum(t, 1)
    const = nobody * (1 - gain) + 2 * inside * (1 - gain * up)
    slope = 2 * inside * (up - 1) * (1 + gain) / size
    with np.errstate(divide="ignore", invalid="ignore"):
        first = np.where(slope > 0, np.floor(-const / slope) + 1, np.inf)
    first = np.clip(np.nan_to_num(first, posinf=float(n + 2)), 0, n + 2).astype(np.int64)
    at_least, one_less = half_tail(first, t), half_tail(first - 1, size - 1)
    return float(np.maximum(const * at_least + slope * t / 2 * one_less, 0.0).sum())


def leftover_clones(budgets: Budgets, randomizer: Randomizer, delta: float) -> float:
    """epsilon of that pair. Its total variation beta gives alpha = beta/(e^v - 1): k-RR, Laplace, or any pure one."""
    local, n = _largest(budgets)
    _need(n >= 2, f"{n} users", "at least 2 users")
    alpha = 1 / (1 + math.exp(local))
    if isinstance(randomizer, KaryRandomizedResponse):
        alpha = 1 / (math.exp(local) + randomizer.k - 1)
    elif isinstance(randomizer, LaplaceMechanism):
        alpha = -math.expm1(-local / 2) / math.expm1(local)
    return _solve(lambda epsilon: leftover_clones_delta(alpha, local, n, epsilon), delta, local)


# ------------------------------------------------------------------ personalised budgets


def _flips(budgets: Budgets) -> Floats:
    """p_i = (1 - delta_i)/(1 + e^epsilon_i)."""
    decay = np.exp(-budgets.local_epsilon)
    return np.asarray((1 - budgets.local_delta) * decay / (1 + decay))


def gspa_numeric(budgets: Budgets, delta: float) -> float:
    """GSPA Theorem 1: the bit of the largest budget among PB(2 p_i) clones, p_i = (1 - delta_i)/(1 + e^eps_i)."""
    _need(budgets.num_users >= 2, f"{budgets.num_users} users", "at least 2 users")
    count = budgets.count.copy()
    count[-1] -= 1
    kept = count > 0
    return _bit_clones(
        float(budgets.local_epsilon[-1]), _law(2 * _flips(budgets)[kept] * (1 - 1e-14), count[kept], delta), delta
    )


def gspa_mu(budgets: Budgets) -> float:
    """mu = sqrt(2 / (sum p_i - max p_i)) with p_i = (1 - delta_i)/(1 + e^epsilon_i).

    Raises OutOfRangeError for a single user.
    """
    p = _flips(budgets)
    rest = float(p @ budgets.count) - float(p.max())
    if budgets.num_users < 2 or not rest > 0:
        raise OutOfRangeError(f"{budgets.num_users} users; valid: at least two users, one of them with a finite budget")
    return math.sqrt(2 / rest)


def gspa_asymptotic(budgets: Budgets, delta: float) -> float:
    """GSPA Theorem 2: epsilon at delta of mu-GDP. ASYMPTOTIC: the constant of its C/sqrt(n) term is never given."""
    if not 0 < delta < 1:
        raise OutOfRangeError(f"delta is {delta!r}; valid: 0 < delta < 1")
    return gaussian_epsilon(gspa_mu(budgets), delta)


def echo(budgets: Budgets, delta: float) -> float:
    """Echo of neighbours (Liu 2023): clones with p_i = (eps_i/eps_v)(1-e^-eps_v)/(1-e^-eps_i) e^-max(eps_v, eps_i).

    The sum over the others is averaged over victims v; eps_v in front is the largest. Sum >= 16 ln(4/delta).
    """
    _largest(budgets)
    eps, count = budgets.local_epsilon, budgets.count.astype(np.float64)
    ratio = eps / -np.expm1(-eps)
    # For a victim of tier t: users up to t weigh ratio_i e^-eps_t / ratio_t, those above ratio_i e^-eps_i / ratio_t.
    below = np.cumsum(count * ratio) * np.exp(-eps)
    heavy = count * ratio * np.exp(-eps)
    above = heavy.sum() - np.cumsum(heavy)
    total = (below + above) / ratio - np.exp(-eps)
    mean = float(total @ count) / float(count.sum())
    log = math.log(4 / delta)
    _need(mean >= 16 * log, f"sum of p is {mean:.4g}", f"at least 16 ln(4/delta) = {16 * log:.4g}")
    return math.log1p(math.tanh(float(eps[-1]) / 2) * (8 * math.sqrt(log / mean) + 8 / mean))


def likelihood_test_clones(budgets: Budgets, randomizer: Randomizer, delta: float) -> float:
    """Liu et al. 2024: the error p_1 of a likelihood-ratio test taken as a mixture weight, 2 p_i as clone probability.

    Laplace: p = e^(-eps/2)/2. Bits: 1/(1+e^eps). Gaussian: Phi(-1/(2 sigma)). At the largest budget.
    """
    _need(budgets.num_users >= 2, f"{budgets.num_users} users", "at least 2 users")
    if isinstance(randomizer, BinaryRandomizedResponse):
        p = _flips(budgets)
    elif isinstance(randomizer, LaplaceMechanism):
        p = np.exp(-budgets.local_epsilon / 2) / 2
    else:
        _need(
            isinstance(randomizer, GaussianMechanism) and randomizer.dimension == 1,
            f"randomizer {randomizer.name}",
            "rr, onebit, laplace or gaussian",
        )
        from scipy.special import ndtr

        assert isinstance(randomizer, GaussianMechanism)
        p = ndtr(-np.sqrt(randomizer.rates(budgets.local_epsilon, budgets.local_delta) / 2))
    count = budgets.count.copy()
    count[-1] -= 1
    kept = count > 0
    weight = float(p[-1])
    return _bit_clones(math.log((1 - weight) / weight), _law(2 * p[kept] * (1 - 1e-14), count[kept], delta), delta)


def biswas_krr_delta(n: int, holders: int, k: int, local: float, epsilon: float, *, printed: bool) -> float:
    """Eq. (6) of Biswas, Jung, Palamidessi: delta of the count of x0, of which `holders` others hold x0.

    printed=True follows the printed v_s, which carries the factor (s-r) once too often; False their own definitions.
    Raises OutOfRangeError unless 0 <= holders <= n - 1, k >= 2.
    """
    _need(0 <= holders < n and k >= 2, f"n {n}, holders {holders}, k {k}", "0 <= holders < n, k >= 2")
    total = math.exp(local) + k - 1
    keep, other = math.exp(local) / total, 1 / total
    with_x0 = binomial_pmf(np.arange(holders + 1), holders, keep) if holders else np.ones(1)
    rest = n - 1 - holders
    without = binomial_pmf(np.arange(rest + 1), rest, other) if rest else np.ones(1)
    law = np.convolve(with_x0, without)
    pad = np.zeros(1)
    shifted, plain = np.concatenate([pad, law]), np.concatenate([law, pad])
    p = keep * shifted + (1 - keep) * plain
    q = other * shifted + (1 - other) * plain
    reported = other * shifted  # the victim, holding x1, reported x0
    if printed:
        weighted = np.convolve(with_x0, without * (np.arange(rest + 1) + 1)) / (n - holders)
        reported = other * np.concatenate([pad, weighted])
    least = (k - 1) / (math.exp(local) + k - 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = least + (math.exp(local) - least) * np.where(q > 0, reported / q, 0.0)
    over = ratio > math.exp(epsilon)
    return float(((1 - math.exp(epsilon) / np.where(over, ratio, 1.0)) * p)[over].sum())


# ------------------------------------------------------------------ the table

_GSPA = "Chen, Cao, Ge: A Generalized Shuffle Framework for Privacy Amplification, AAAI 2024"
_BBGN = "Balle, Bell, Gascon, Nissim: The Privacy Blanket of the Shuffle Model, CRYPTO 2019"
_FMT = "Feldman, McMillan, Talwar: Hiding Among the Clones, FOCS 2021, Theorem 3.1"


@dataclass(frozen=True)
class _Row:
    name: str
    reference: str
    epsilon: Callable[[Budgets, Randomizer, float], float]
    grade: Callable[[Budgets, Randomizer], Grade]
    note: str


def _always(grade: Grade) -> Callable[[Budgets, Randomizer], Grade]:
    return lambda budgets, randomizer: grade


def _one_family(budgets: Budgets, randomizer: Randomizer) -> Grade:
    # With different budgets a clone is drawn from its user's own randomizer. Where a smaller budget is a mixture of a
    # larger one with the blanket that is as good as a clone of the victim; for noise of different widths it is not.
    same = budgets.num_tiers == 1 or isinstance(randomizer, ClosedFormRandomizer)
    return Grade.CERTIFIED if same else Grade.HEURISTIC


def _bits_only(budgets: Budgets, randomizer: Randomizer) -> Grade:
    return Grade.CERTIFIED if isinstance(randomizer, BinaryRandomizedResponse) else Grade.HEURISTIC


def _no_bound(reason: str) -> Callable[[Budgets, Randomizer, float], float]:
    def refuse(budgets: Budgets, randomizer: Randomizer, delta: float) -> float:
        raise OutOfRangeError(reason.format(largest=float(budgets.local_epsilon[-1])))

    return refuse


_ROWS = (
    _Row(
        "EFMRTT19",
        "Erlingsson et al.: Amplification by Shuffling, SODA 2019, Theorem 7",
        lambda b, r, d: efmrtt(b, d),
        _always(Grade.CERTIFIED),
        "equal budgets only",
    ),
    _Row("BBGN19 Hoeffding", _BBGN, bbgn_hoeffding, _always(Grade.CERTIFIED), "equal budgets only"),
    _Row("BBGN19 Bennett", _BBGN, bbgn_bennett, _always(Grade.CERTIFIED), "equal budgets only"),
    _Row(
        "FMT22 closed form",
        _FMT,
        lambda b, r, d: fmt22_closed_form(b, d),
        _one_family,
        "every user taken at the largest budget",
    ),
    _Row(
        "FMT22 numeric",
        _FMT,
        lambda b, r, d: fmt22_numeric(b, d),
        _one_family,
        "every user taken at the largest budget",
    ),
    _Row(
        "FMT23 leftover clones",
        "Feldman, McMillan, Talwar: Stronger Privacy Amplification by Shuffling, SODA 2023; "
        "Wang et al.: Shuffle Model of DP by Variation Ratio, arXiv 2208.04591",
        leftover_clones,
        _always(Grade.HEURISTIC),
        "the leftover argument fails: refuted for k-RR, k >= 3",
    ),
    _Row(
        "GSPA Thm 1",
        f"{_GSPA}, Theorem 1",
        lambda b, r, d: gspa_numeric(b, d),
        _bits_only,
        "proved for randomizers whose clones are fair bits",
    ),
    _Row(
        "GSPA Thm 2",
        f"{_GSPA}, Theorem 2",
        lambda b, r, d: gspa_asymptotic(b, d),
        _always(Grade.ASYMPTOTIC),
        "the error at the actual n is not bounded by its theorem",
    ),
    _Row(
        "GSPA Def. 6",
        f"{_GSPA}, Definition 6",
        _no_bound(
            "it permutes the data and keeps the randomizers in place, so that budgets belong to positions and a "
            "person's own guarantee is the largest, {largest:g}; valid: budgets of positions"
        ),
        _always(Grade.HEURISTIC),
        "",
    ),
    _Row(
        "Echo",
        "Liu et al.: Echo of Neighbors, AAAI 2023",
        lambda b, r, d: echo(b, d),
        _always(Grade.HEURISTIC),
        "proved for its own Clip-Laplace randomizer only",
    ),
    _Row(
        "Liu 2024",
        "Liu, Liu, Xiong, Gu, Chen: personalised shuffle amplification, 2024",
        likelihood_test_clones,
        _always(Grade.HEURISTIC),
        "a testing error is not a mixture weight",
    ),
    _Row(
        "Biswas k-RR",
        "Biswas, Jung, Palamidessi: Tight Differential Privacy Guarantees for the Shuffle Model with k-RR, Eq. (6)",
        _no_bound("it depends on the private number of users who hold x0; valid: data that are public"),
        _always(Grade.HEURISTIC),
        "",
    ),
)


def compare(
    budgets: Budgets,
    randomizer: Randomizer,
    delta: float,
    *,
    attack: float | None = None,
    only: Sequence[str] | None = None,
) -> tuple[Comparison, ...]:
    """Every published bound at this delta, in the order of the table in docs/accounting.md.

    attack: the best known lower bound on epsilon, if there is one: what lies below it is refuted. only: names of rows.
    """
    rows = [row for row in _ROWS if only is None or row.name in only]
    return tuple(_compared(row, budgets, randomizer, delta, attack) for row in rows)


def _compared(row: _Row, budgets: Budgets, randomizer: Randomizer, delta: float, attack: float | None) -> Comparison:
    grade = row.grade(budgets, randomizer)
    try:
        epsilon = row.epsilon(budgets, randomizer, delta)
    except OutOfRangeError as error:
        return Comparison(row.name, None, grade, Status.OUT_OF_RANGE, row.reference, str(error))
    # Attacks and bounds are both rounded: what differs by rounding alone refutes nothing.
    refuted = attack is not None and epsilon < attack * (1 - 1e-6)
    status = Status.NOT_CHECKED if attack is None else Status.REFUTED if refuted else Status.VALID
    return Comparison(row.name, epsilon, grade, status, row.reference, row.note)
