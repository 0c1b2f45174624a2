"""Central privacy after shuffling: certified, attacked, and as the published formulas say."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from croupier.accountant import Budgets, Randomizer, certify, compare, lower_bound, randomizer_from_name
from croupier.accountant.numerics.gaussian import gaussian_delta, gaussian_epsilon
from croupier.accountant.numerics.roots import root_between
from croupier.accountant.published import OutOfRangeError, gspa_mu, leftover_clones_delta, likelihood_test_clones
from croupier.protocol.statements import joined
from research.experiments.figure import Point, Row

_DRAWN = 1000
Floats = npt.NDArray[np.float64]


def _uniform(low: float, high: float) -> Callable[[np.random.Generator], Floats]:
    return lambda source: source.uniform(low, high, _DRAWN)


def _normal(mean: float, low: float, high: float) -> Callable[[np.random.Generator], Floats]:
    return lambda source: np.clip(source.normal(mean, 0.5, _DRAWN), low, high)


DISTRIBUTIONS: dict[str, Callable[[np.random.Generator], Floats]] = {
    "U(0.01, 1)": _uniform(0.01, 1.0),
    "U(0.01, 2)": _uniform(0.01, 2.0),
    "all 0.5": lambda _: np.full(_DRAWN, 0.5),
    "half 0.5, half 0.01": lambda _: np.repeat([0.5, 0.01], _DRAWN // 2),
    "U(0.5, 1)": _uniform(0.5, 1.0),
    "U(0.05, 1)": _uniform(0.05, 1.0),
    "N(0.8, 0.5) in [0.05, 1]": _normal(0.8, 0.05, 1.0),
    "U(0.5, 2)": _uniform(0.5, 2.0),
    "N(1.5, 0.5) in [0.5, 2]": _normal(1.5, 0.5, 2.0),
}
"""The papers' distributions of local budgets: each draws a thousand."""


def budgets_of(name: str, n: int, seed: int, *, local_delta: float = 0.0, step: float = 0.0) -> Budgets:
    """Returns n budgets: a thousand drawn ones, repeated, as GSPA does; rounded to multiples of `step` if it is given.

    Raises:
        ValueError: n is no multiple of 1000.
    """
    if n % _DRAWN:
        raise ValueError(f"n is {n}; it must be a multiple of {_DRAWN}")
    drawn = DISTRIBUTIONS[name](np.random.default_rng(seed))
    values, counts = np.unique(np.round(drawn / step) * step if step else drawn, return_counts=True)
    return Budgets(values, np.full(values.size, local_delta), counts * (n // _DRAWN))


def _at_largest(budgets: Budgets) -> Budgets:
    """Everyone with the largest budget: how bounds for equal budgets are used where budgets differ."""
    worst, spent = float(budgets.local_epsilon[-1]), float(budgets.local_delta[-1])
    return Budgets.from_tiers([(worst, budgets.num_users, spent)])


def measure_epsilon(point: Point) -> Row:
    """Returns epsilon at point["delta"]: "certified", "attack" and their "ratio" by mechanism, "published" by name.

    A published name that ends in " at max" is taken with everyone at the largest budget; "GSPA Thm 2, μ/√2" is the
    variant in which the figures of PSP show GSPA, "FMT23, local δ" FMT23 for approximate budgets.
    """
    budgets = _budgets(point)
    delta, seconds = point["delta"], point["attack_s"]
    certified, attacks, methods = {}, {}, {}
    for name in point["mechanisms"]:
        if name in point["certify"]:
            certificate = certify(budgets, name, delta=delta, attack=False)
            certified[name], methods[name] = certificate.epsilon, joined(certificate.method)
        attacks[name] = lower_bound(budgets, name, delta=delta, seconds=seconds).epsilon
    randomizer = randomizer_from_name(point["mechanisms"][-1])
    published = {name: _published(name, budgets, randomizer, delta) for name in point["published"]}
    ratios = {name: epsilon / attacks[name] for name, epsilon in certified.items() if attacks[name] > 0}
    return {"certified": certified, "attack": attacks, "ratio": ratios, "method": methods, "published": published}


def _budgets(point: Point) -> Budgets:
    if "tiers" in point:
        return Budgets.from_tiers(point["tiers"])
    local_delta, step = point.get("local_delta", 0.0), point.get("step", 0.0)
    return budgets_of(point["distribution"], point["n"], point["seed"], local_delta=local_delta, step=step)


def _published(name: str, budgets: Budgets, randomizer: Randomizer, delta: float) -> float | None:
    if name == "GSPA Thm 2, μ/√2":
        return gaussian_epsilon(gspa_mu(budgets) / math.sqrt(2), delta)
    if name == "FMT23, local δ":
        return _clones_epsilon(budgets, delta)
    bound = name.removesuffix(" at max")
    (row,) = compare(budgets if bound == name else _at_largest(budgets), randomizer, delta, only=[bound])
    return row.epsilon


def _clones_delta(budgets: Budgets, epsilon: float) -> float:
    """Returns delta of FMT23, everyone at the largest budget: a local delta d adds (e^eps + 1)(1 + e^-v/2) n d to it.

    Not a guarantee; what is added is Feldman, McMillan and Talwar's (2022); both give PSP's Table 2.
    """
    n, local, spent = budgets.num_users, float(budgets.local_epsilon[-1]), float(budgets.local_delta[-1])
    added = (math.exp(epsilon) + 1) * (1 + math.exp(-local) / 2) * n * spent
    return leftover_clones_delta(1 / (1 + math.exp(local)), local, n, epsilon) + added


def _clones_epsilon(budgets: Budgets, delta: float) -> float | None:
    most = float(budgets.local_epsilon[-1])
    if _clones_delta(budgets, most) > delta:
        return None
    return root_between(lambda epsilon: delta - _clones_delta(budgets, epsilon), 0.0, most)


def measure_delta(point: Point) -> Row:
    """Returns delta at point["epsilon"]: "certified" and "attack" by mechanism, and the published formulas'.

    The formula of Liu et al. is inverted by bisection of ln(delta), down to 1e-40.
    """
    budgets = _budgets(point)
    epsilon, seconds = point["epsilon"], point["attack_s"]
    certified, attacks, liu = {}, {}, {}
    for name in point["mechanisms"]:
        if name in point["certify"]:
            certified[name] = certify(budgets, name, epsilon=epsilon, attack=False).delta
        attacks[name] = lower_bound(budgets, name, epsilon=epsilon, seconds=seconds).delta
        liu[name] = _liu_delta(budgets, randomizer_from_name(name), epsilon)
    mu = gspa_mu(budgets)
    published = {
        "GSPA Thm 2": gaussian_delta(mu, epsilon),
        "GSPA Thm 2, μ/√2": gaussian_delta(mu / math.sqrt(2), epsilon),
        "FMT23, local δ": _clones_delta(budgets, epsilon),
        **{f"Liu 2024, {name}": delta for name, delta in liu.items()},
    }
    return {"certified": certified, "attack": attacks, "published": published}


def _liu_delta(budgets: Budgets, randomizer: Randomizer, epsilon: float) -> float:
    def room(log_delta: float) -> float:
        try:
            return epsilon - likelihood_test_clones(budgets, randomizer, math.exp(log_delta))
        except OutOfRangeError:
            return -math.inf

    return math.exp(root_between(room, math.log(1e-40), math.log(0.5), bits=17))


def measure_confusion(point: Point) -> Row:
    """Returns PSP's p0 and p1: how often a report of point["x"] with Laplace noise is taken for one of 0, or of 1.

    U0 is where the density around 0, with the largest budget, exceeds that around 1 and is at least that of the report
    itself; U1 is the same for 1. Integrated numerically, to three digits.
    """
    x, own, largest = point["x"], point["local_epsilon"], point["largest"]
    z = np.linspace(-20 / own, 1 + 20 / own, 400_001)
    report = own / 2 * np.exp(-own * np.abs(z - x))
    near_zero, near_one = (largest / 2 * np.exp(-largest * np.abs(z - end)) for end in (0.0, 1.0))
    step = float(z[1] - z[0])
    p0 = float(report[(report <= near_zero) & (near_one < near_zero)].sum()) * step
    p1 = float(report[(report <= near_one) & (near_zero < near_one)].sum()) * step
    return {"p0": p0, "p1": p1, "p": min(p0, p1)}
