"""Estimates from simulated reports, made by the analyzer's own estimators."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from croupier.accountant import certify
from croupier.accountant.ranges import Linkage
from croupier.analyzer.estimators import estimate
from croupier.protocol.calibration import unit_sigma
from croupier.protocol.mechanisms.interval import IntervalMechanism, LatticeMechanism
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.laplace import Laplace
from croupier.protocol.mechanisms.onebit import OneBit
from croupier.protocol.mechanisms.rr import RandomizedResponse
from croupier.protocol.questions import Question
from research.experiments.figure import Point, Row

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
GROUPS = (0.54, 0.37, 0.09)
"""Shares of conservative, moderate and liberal users (Acquisti and Grossklags 2005), as in GSPA."""
_QUESTIONS = {
    "mean": Question("mean", Laplace(20.0, 80.0)),
    "frequency": Question("frequency", RandomizedResponse()),
    "rr": Question("share", RandomizedResponse()),
    "onebit": Question("mean", OneBit(0.0, 1.0)),
    "laplace": Question("mean", Laplace(0.0, 1.0)),
    "krr(k=4)": Question("category", KaryResponse(4)),
}
_DELTA = 1e-6


def reports_of(question: Question, values: Floats, budgets: Floats, source: np.random.Generator) -> Ints:
    """Returns one report of each user, drawn from the definitions of the randomizers with a seeded generator.

    Args:
        question: rr, krr, onebit or laplace.
        values: the users' values, float64 (n,).
        budgets: their local epsilons, float64 (n,).
        source: for simulation only; clients take their randomness from the operating system.
    """
    mechanism, n = question.mechanism, len(values)
    if isinstance(mechanism, LatticeMechanism):
        position = (values - mechanism.low) / (mechanism.high - mechanism.low) * mechanism.lattice
        lattice = np.floor(position) + (source.random(n) < position - np.floor(position))
        p = -np.expm1(-budgets / mechanism.lattice)
        return (lattice + source.geometric(p) - source.geometric(p)).astype(np.int64)
    if isinstance(mechanism, OneBit):
        values = np.floor((values - mechanism.low) / (mechanism.high - mechanism.low) + source.random(n))
    k = len(mechanism.categories) or 2
    blanket = source.random(n) < k / (np.exp(budgets) + k - 1)
    return np.where(blanket, source.integers(0, k, n), values).astype(np.int64)


def _tiers(point: Point) -> list[tuple[float, int]]:
    """Returns (local epsilon, users) of the groups of a point, whose shares are rounded to users."""
    ends = [round(point["n"] * share) for share in np.cumsum(point["shares"])]
    return [(own, count) for own, count in zip(point["epsilons"], np.diff([0, *ends]).tolist(), strict=True) if count]


def measure_error(point: Point) -> Row:
    """Returns "mae", the mean absolute error over point["repeats"] rounds, and the "low" and "high" of its 95 % band.

    Question "mean": N(50, 10^2) cut to [20, 80], with Laplace noise; "frequency": bits, 70 % of them 1. Values are
    drawn again in each round, and dealt to the groups at random. Where point["deployed"] is given, the rounds go
    through a deployment of real processes, and their mean absolute error is "deployed".
    """
    source, question, n = np.random.default_rng(point["seed"]), _QUESTIONS[point["question"]], point["n"]
    tiers = _tiers(point)
    budgets = np.repeat([own for own, _ in tiers], [count for _, count in tiers])

    def draw() -> Floats:
        if point["question"] == "mean":
            return np.asarray(np.clip(source.normal(50.0, 10.0, n), 20.0, 80.0))
        return np.asarray(source.permutation(n) < round(0.7 * n), dtype=np.float64)

    if point.get("deployed"):
        from research.experiments.measures.deployment import deployed_errors

        errors = deployed_errors(question, [draw() for _ in range(point["repeats"])], budgets)
        return {"deployed": float(np.mean(errors))}
    errors = []
    for _ in range(point["repeats"]):
        values = draw()
        estimated = estimate(question, reports_of(question, values, budgets, source), tiers)
        errors.append(abs(estimated.values[0] - float(values.mean())))
    mean, half = float(np.mean(errors)), 1.96 * float(np.std(errors)) / math.sqrt(len(errors))
    return {"mae": mean, "low": mean - half, "high": mean + half}


def measure_utility(point: Point) -> Row:
    """Returns the root mean square error of a share or mean in [0, 1], and the "central" epsilon, CERTIFIED, it costs.

    "rmse" has it under the mechanism's name, and at the same central epsilon and delta that of the Gaussian mechanism
    and of Laplace noise at one trusted party, and of randomized response without a shuffle.
    """
    source, name, n = np.random.default_rng(point["seed"]), point["mechanism"], point["n"]
    question, tiers = _QUESTIONS[name], _tiers(point)
    budgets = np.repeat([own for own, _ in tiers], [count for _, count in tiers])
    central = certify(tiers, name, delta=_DELTA, attack=False).epsilon
    squares = []
    for _ in range(point["repeats"]):
        values: Floats = np.asarray(source.random(n))
        if not isinstance(question.mechanism, IntervalMechanism):
            values = np.floor(values + 0.3)
        truth = float(values.mean()) if name != "krr(k=4)" else 1 - float(values.mean())
        estimated = estimate(question, reports_of(question, values, budgets, source), tiers)
        squares.append((estimated.values[0] - truth) ** 2)
    # Randomized response of local epsilon e has a variance of about e^e/(e^e - 1)^2 for each user.
    alone = math.exp(central / 2) / math.expm1(central) / math.sqrt(n)
    return {
        "central": central,
        "rmse": {
            name: math.sqrt(float(np.mean(squares))),
            "Gaussian": unit_sigma(central, _DELTA) / n,
            "Laplace": math.sqrt(2) / (central * n),
            "local": alone,
        },
    }


def measure_dependence(point: Point) -> Row:
    """Returns the bias of the share of ones where groups differ in it by point["difference"], and its standard error.

    The most careful group has 0.3 + difference, the most liberal 0.3 - difference. "separate" is the shuffled estimate,
    "stratified" puts estimates by tier together with the true sizes of the tiers. "certified" has the central epsilon
    of both.
    """
    source, question = np.random.default_rng(point["seed"]), _QUESTIONS["rr"]
    tiers = _tiers(point)
    shares = [0.3 + point["difference"], 0.3, 0.3 - point["difference"]]
    n = sum(count for _, count in tiers)
    errors: dict[Linkage, list[float]] = {"separate": [], "stratified": []}
    for _ in range(point["repeats"]):
        values = [
            (source.permutation(count) < round(share * count)).astype(np.float64)
            for share, (_, count) in zip(shares, tiers, strict=True)
        ]
        reports = [
            reports_of(question, held, np.full(count, own), source)
            for held, (own, count) in zip(values, tiers, strict=True)
        ]
        truth = float(np.concatenate(values).mean())
        errors["separate"].append(estimate(question, np.concatenate(reports), tiers).values[0] - truth)
        parts = [
            estimate(question, part, [tier]).values[0] * tier[1] for part, tier in zip(reports, tiers, strict=True)
        ]
        errors["stratified"].append(sum(parts) / n - truth)
    certified = {
        linkage: certify(tiers, "rr", delta=_DELTA, linkage=linkage, attack=False).epsilon for linkage in errors
    }
    return {
        "certified": certified,
        "bias": {linkage: float(np.mean(samples)) for linkage, samples in errors.items()},
        "error": {linkage: float(np.std(samples)) / math.sqrt(len(samples)) for linkage, samples in errors.items()},
        "rmse": {linkage: math.sqrt(float(np.mean(np.square(samples)))) for linkage, samples in errors.items()},
    }
