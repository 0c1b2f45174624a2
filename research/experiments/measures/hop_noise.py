"""Standard errors, in closed form, of hop noise and of what it is compared with, at the same central epsilon."""

from __future__ import annotations

import math

from croupier.accountant import Budgets, plan
from croupier.accountant.hop_fakes import HopFakes
from croupier.accountant.mechanism_choice import Mean, standard_error
from croupier.accountant.mechanisms.laplace import LaplaceMechanism
from croupier.accountant.mechanisms.levels import LevelsMean
from croupier.accountant.release import SettledConditions
from croupier.protocol.calibration import unit_sigma
from croupier.protocol.hop_noise import HopNoise
from croupier.protocol.mechanisms.levels import MAX_LEVELS
from research.experiments.figure import Point, Row

LOCAL_EPSILON = 8.0
"""The local budget in rounds with both kinds of noise: the largest that a client agrees to unless its owner says so."""


def measure_hop_noise(point: Point) -> Row:
    """Returns the standard error of one number for each way of getting it, "error:<way>".

    "people:<way>" is the same as a number of people, and "fakes" the mean number of fake reports of two hops.

    point: n people, k categories (2: a yes/no question, whose answer is one share; 0: a mean of numbers in [0, 1]),
    central epsilon and delta. A category that hardly anybody holds is the worst case for a histogram: all reports of
    it are noise. A mean has the least favourable numbers, and the levels with the least error.
    """
    n, k, epsilon, delta = point["n"], point["k"], point["epsilon"], point["delta"]
    if k == 0:
        return _measure_mean(n, epsilon, delta)
    mechanism = "rr" if k == 2 else f"krr(k={k})"
    law = HopNoise(epsilon, delta).law(k)
    known = 0.0 if k == 2 else 1 / k
    both = 1 if k == 2 else 2  # the number of counts that change when one person's value is replaced
    errors = {f"{hops} hops": math.sqrt(hops * law.variance * (1 - known)) / n for hops in (2, 3)}
    other = 1 / (math.exp(LOCAL_EPSILON) + k - 1)
    variance = 2 * law.variance * (1 - known) + n * other * (1 - other)
    errors["2 hops and local noise"] = math.sqrt(variance) / ((1 - k * other) * n)
    alone = 1 / (math.exp(epsilon) + k - 1)
    errors |= {
        "local": math.sqrt(alone * (1 - alone) / n) / (1 - k * alone),
        "shuffled": plan(mechanism, epsilon=epsilon, delta=delta, num_users=n).standard_error,
        "Laplace": math.sqrt(2) * both / (epsilon * n),
        "Gaussian": math.sqrt(both) * unit_sigma(epsilon, delta) / n,
    }
    return _row(n, errors, "histogram" if k > 2 else "share", k, 2 * law.mean_total)


def _measure_mean(n: int, epsilon: float, delta: float) -> Row:
    noise = HopNoise(epsilon, delta)
    shown = {hops: _best_without_local_noise(n, noise, hops) for hops in (2, 3)}
    errors = {f"{hops} hops": error / n for hops, (_, error) in shown.items()}
    budgets = Budgets.from_tiers([(LOCAL_EPSILON, n)])
    levels = Mean().best(budgets, SettledConditions(hop_noise=noise))
    fakes = HopFakes(noise, 2, levels)
    errors["2 hops and local noise"] = standard_error(budgets, levels, fakes.variance)
    alone = Budgets.from_tiers([(epsilon, n)])
    shuffled = plan("mean", epsilon=epsilon, delta=delta, num_users=n).standard_error
    if shuffled is None:
        raise ValueError("a plan for levels states no standard error")
    errors |= {
        "local": min(
            standard_error(alone, mechanism)
            for mechanism in (LaplaceMechanism(), Mean().best(alone, SettledConditions()))
        ),
        "shuffled": shuffled,
        "Laplace": math.sqrt(2) / (epsilon * n),
        "Gaussian": unit_sigma(epsilon, delta) / n,
    }
    k = shown[2][0]
    return _row(n, errors, "mean", k, 2 * noise.law(k).mean_total)


def _best_without_local_noise(n: int, noise: HopNoise, hops: int) -> tuple[int, float]:
    """Returns the levels with the least error of the sum of n numbers in [0, 1], and this error: rounding and fakes."""

    def variance(k: int) -> float:
        return n / (4 * (k - 1) ** 2) + HopFakes(noise, hops, LevelsMean(k)).variance

    best = min(range(2, MAX_LEVELS + 1), key=variance)
    return best, math.sqrt(variance(best))


def _row(n: int, errors: dict[str, float], about: str, k: int, fakes: int) -> Row:
    people = {way: n * error for way, error in errors.items()}
    return {"error": errors, "people": people, "fakes": fakes, "about": about, "values": k}
