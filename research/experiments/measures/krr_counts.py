"""Biswas, Jung, Palamidessi: delta of the count of one category under k-RR, as printed and as defined.

A heuristic twice over: it needs the private number of users in the category, and it looks at one count only.
"""

from __future__ import annotations

import math

import numpy as np

from croupier.accountant.numerics.binomial import Floats, binomial_pmf
from croupier.accountant.published.validity import need


def biswas_krr_delta(n: int, holders: int, k: int, local: float, epsilon: float, *, printed: bool) -> float:
    """Returns Eq. (6), delta at epsilon of the count of x0 when the victim changes x0 to x1; `holders` others hold x0.

    printed=True follows the printed v_s, in which (s-r) C(n-1-n_x0, s-1-r) stands where (n-n_x0) C(n-1-n_x0, s-1-r)
    belongs; printed=False follows their own definitions, P[s] and P'[s] being the laws of the count. n counts the
    victim. Good to about ten digits; takes a time of order n^2.
    Raises OutOfRangeError unless 0 <= holders < n, k >= 2, local > 0 and epsilon >= 0.
    """
    need(0 <= holders < n and k >= 2, f"n {n}, holders {holders}, k {k}", "0 <= holders < n, k >= 2")
    need(0 < local <= 500 and epsilon >= 0, f"local {local:g}, epsilon {epsilon:g}", "0 < local <= 500, epsilon >= 0")
    total = math.exp(local) + k - 1
    keep, other = math.exp(local) / total, 1 / total
    with_x0, without = _count(holders, keep), _count(n - 1 - holders, other)
    rest, pad = np.convolve(with_x0, without), np.zeros(1)
    one_more, same = np.concatenate([pad, rest]), np.concatenate([rest, pad])
    p = keep * one_more + (1 - keep) * same
    q = other * one_more + (1 - other) * same
    if not printed:
        return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())
    # In terms of laws: sum over r of (s-r) Pr[r of the holders, s-1-r of the rest, and the victim holding x1, show x0].
    weighted = np.convolve(with_x0, without * np.arange(1, without.size + 1)) / (n - holders)
    shown = other * np.concatenate([pad, weighted])
    least = (k - 1) / (math.exp(local) + k - 2)
    ratio = least + (math.exp(local) - least) * np.divide(shown, q, out=np.zeros_like(q), where=q > 0)
    over = ratio > math.exp(epsilon)
    return float(((1 - math.exp(epsilon) / ratio[over]) * p[over]).sum())


def _count(n: int, chance: float) -> Floats:
    return binomial_pmf(np.arange(n + 1), n, chance) if n else np.ones(1)
