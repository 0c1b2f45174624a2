"""Binomial probabilities with a stated error: tails of fair coins, and windows that hold all but a bounded mass."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

__all__ = ["BETA_ERROR", "TAIL", "fair_tail", "fair_tails", "rounding", "window"]

Floats = npt.NDArray[np.float64]
# Relative error of one regularised incomplete beta function, generously; checked against mpmath in the tests.
BETA_ERROR = 1e-11
# Binomial mass that a window may leave out.
TAIL = 1e-22


def rounding(trials: Floats | float) -> Floats:
    """Returns a bound on the relative error of exp(log-gamma terms of about `trials`)."""
    return np.asarray(16 * np.finfo(np.float64).eps * (2 + trials) * np.log(2 + trials), dtype=np.float64)


def fair_tail(successes: Floats, trials: Floats) -> Floats:
    """Returns Pr[Bin(trials, ½) ≥ successes], elementwise, relative error below `BETA_ERROR`."""
    from scipy.special import betainc

    inner = (successes > 0) & (successes <= trials)
    safe_successes = np.where(inner, successes, 1.0)
    safe_trials = np.where(inner, trials, 1.0)
    values = np.asarray(betainc(safe_successes, safe_trials - safe_successes + 1, 0.5), dtype=np.float64)
    return np.where(inner, values, np.where(successes <= 0, 1.0, 0.0))


def fair_tails(c: Floats, first: Floats) -> tuple[Floats, Floats, Floats]:
    """Returns Pr[Bin(c, ½) ≥ a], Pr[Bin(c − 1, ½) ≥ a − 1] and a bound on their errors, along a run of c.

    `c` ascends by 1 and `first` (a ≥ 1) by 0 or 1 with it, so each tail differs from its neighbour by one probability:
    Pr[Bin(c+1) ≥ a] = Pr[Bin(c) ≥ a] + ½Pr[Bin(c) = a−1] and Pr[Bin(c+1) ≥ a+1] = Pr[Bin(c) ≥ a] − ½Pr[Bin(c) = a].
    """
    rises = np.diff(first) > 0
    term = 0.5 * fair_mass(c[:-1], np.where(rises, first[:-1], first[:-1] - 1))
    start = fair_tail(first[:1], c[:1])
    above = np.maximum(np.concatenate([start, start + np.cumsum(np.where(rises, -term, term))]), 0.0)
    relative = rounding(c)
    error = (relative + BETA_ERROR) * (np.concatenate([start, start + np.cumsum(term)]) + 1e-300)
    last = 0.5 * fair_mass(c - 1, first - 1)
    return above, above + last, error + relative * last


def fair_mass(trials: Floats, successes: Floats) -> Floats:
    """Returns Pr[Bin(trials, ½) = successes], 0 where that is impossible."""
    from scipy.special import gammaln

    possible = (successes >= 0) & (successes <= trials)
    j, n = np.where(possible, successes, 0.0), np.where(possible, trials, 0.0)
    return np.where(possible, np.exp(gammaln(n + 1) - gammaln(j + 1) - gammaln(n - j + 1) - n * np.log(2.0)), 0.0)


@lru_cache(maxsize=512)
def window(trials: int, probability: float) -> tuple[Floats, Floats, float]:
    """Returns counts, their probabilities under Bin(trials, p), and a bound on the mass outside.

    The window comes from Bernstein's inequality: Pr[|X − np| ≥ t] ≤ 2·exp(−t²/(2np(1−p) + 2t/3)).
    """
    from scipy.special import gammaln, xlog1py, xlogy

    if probability >= 1.0:
        return np.array([float(trials)]), np.array([1.0]), 0.0
    mean, exponent = trials * probability, np.log(2 / TAIL)
    reach = exponent / 3 + np.sqrt(exponent**2 / 9 + 2 * exponent * mean * (1 - probability))
    low, high = max(0, int(np.floor(mean - reach))), min(trials, int(np.ceil(mean + reach)))
    counts = np.arange(low, high + 1, dtype=np.float64)
    ways = gammaln(trials + 1) - gammaln(counts + 1) - gammaln(trials - counts + 1)
    mass = np.exp(ways + xlogy(counts, probability) + xlog1py(trials - counts, -probability))
    return counts, mass, TAIL
