"""Standard errors, in closed form, of hop noise and of what it is compared with, at the same central epsilon."""

from __future__ import annotations

import math

from croupier.accountant import plan
from croupier.protocol.calibration import unit_sigma
from croupier.protocol.hop_noise import HopNoise
from lab.experiments.figure import Point, Row

__all__ = ["LOCAL_EPSILON", "measure_hop_noise"]

LOCAL_EPSILON = 8.0
"""The local budget in rounds with both kinds of noise: the largest that a client agrees to unless its owner says so."""


def measure_hop_noise(point: Point) -> Row:
    """Returns the standard error of the share of a rare category for each way of getting it, "error:<way>".

    "people:<way>" is the same as a number of people, and "fakes" the mean number of fake reports of two hops.

    point: n people, k categories (2: a yes/no question, whose answer is one share), central epsilon and delta.
    A category that hardly anybody holds is the worst case for a histogram: all reports of it are noise.
    """
    n, k, epsilon, delta = point["n"], point["k"], point["epsilon"], point["delta"]
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
    return {"error": errors, "people": {way: n * error for way, error in errors.items()}, "fakes": 2 * law.mean_total}
