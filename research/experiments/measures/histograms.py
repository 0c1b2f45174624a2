"""k-ary randomized response: the published delta beside the exact one, and histograms beside the Gaussian mechanism."""

from __future__ import annotations

import gzip
import math
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from croupier.accountant import Budgets, KaryRandomizedResponse, certify, lower_bound
from croupier.analyzer.estimators import estimate
from croupier.analyzer.scalars import project_on_simplex
from croupier.protocol.calibration import unit_sigma
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.questions import Question
from research.experiments.figure import Point, Row
from research.experiments.measures.estimation import reports_of
from research.experiments.measures.krr_counts import biswas_krr_delta

BOXES = {"San Francisco": (37.75, 37.81, -122.45, -122.39), "Paris": (48.84, 48.88, 2.29, 2.37)}
"""Least and largest latitude and longitude: the north of one city, a part of the other. The paper gives no numbers."""
DELTA = 1e-6
_MOST_EQ6 = 10_000
Floats = npt.NDArray[np.float64]


def measure_krr_delta(point: Point) -> Row:
    """Returns delta at point["epsilon"] of the paper's Eq. (6), "printed" and by its "definitions", and the exact one.

    The paper's depends on how many others hold x0; "certified" and "attack" are over all data sets.
    """
    n, k, local, epsilon = point["n"], point["k"], point["local"], point["epsilon"]
    budgets, krr = Budgets.from_tiers([(local, n)]), KaryRandomizedResponse(k)
    return {
        "printed": biswas_krr_delta(n, point["holders"], k, local, epsilon, printed=True),
        "definitions": biswas_krr_delta(n, point["holders"], k, local, epsilon, printed=False),
        "certified": {"krr": certify(budgets, krr, epsilon=epsilon, attack=False).delta},
        "attack": {"krr": lower_bound(budgets, krr, epsilon=epsilon, seconds=point["attack_s"]).delta},
    }


def measure_histogram(point: Point) -> Row:
    """Returns how far estimated shares are from the users' true ones, over point["repeats"] rounds.

    "tv" has the mean total variation of "shuffle" (the reports as they are), "shuffle+INV" (the analyzer's estimate),
    and of Gaussian noise on the true histogram at the certified central epsilon of the shuffle and at point["epsilon"],
    all at delta 1e-6 and all but the first put on the simplex; "one" has the mean error of the share of point["place"].
    Shares of point["place"] in the last round are in "shares". "eq6" is the paper's delta for those who hold it, as
    printed, at point["epsilon"]; None for more users than its sums are fast for.
    """
    source = np.random.default_rng(point["seed"])
    k, n, local = point["k"], point["n"], point["local"]
    values = _values(point, source)
    truth = np.bincount(values, minlength=k) / n
    certified = _certified_epsilon(n, k, local)
    question, place = Question("place", KaryResponse(k)), point["place"]
    errors: dict[str, list[float]] = {}
    ones: dict[str, list[float]] = {}
    shares: dict[str, float] = {"original": float(truth[place])}
    for _ in range(point["repeats"]):
        reports = reports_of(question, values.astype(np.float64), np.full(n, local), source)
        estimates = {
            "shuffle": np.bincount(reports, minlength=k) / n,
            "shuffle+INV": np.array(estimate(question, reports, [(local, n)]).projected),
        }
        for name, epsilon in (("Gaussian", certified), ("Gaussian, their ε", point["epsilon"])):
            # Replacing one user moves two counts by one: sensitivity sqrt(2).
            noise = source.normal(0.0, math.sqrt(2) * unit_sigma(epsilon, DELTA), k)
            estimates[name] = project_on_simplex(truth + noise / n)
        for name, estimated in estimates.items():
            errors.setdefault(name, []).append(float(np.abs(estimated - truth).sum()) / 2)
            ones.setdefault(name, []).append(float(abs(estimated[place] - truth[place])))
            shares[name] = float(estimated[place])
    return {
        "certified": {"krr": certified},
        "eq6": _eq6(n, round(truth[place] * n), k, local, point["epsilon"]) if n <= _MOST_EQ6 else None,
        "tv": {name: float(np.mean(all_)) for name, all_ in errors.items()},
        "one": {name: float(np.mean(all_)) for name, all_ in ones.items()},
        "shares": shares,
    }


def _eq6(n: int, holders: int, k: int, local: float, epsilon: float) -> float:
    return biswas_krr_delta(n, min(holders, n - 1), k, local, epsilon, printed=True)


@cache
def _certified_epsilon(n: int, k: int, local: float) -> float:
    return certify(Budgets.from_tiers([(local, n)]), KaryRandomizedResponse(k), delta=DELTA, attack=False).epsilon


def _values(point: Point, source: np.random.Generator) -> npt.NDArray[np.int64]:
    """Returns the users' categories, int64 (n,)."""
    k, n = point["k"], point["n"]
    if point["population"] == "normal":
        # N(0, 2) in k cells of equal width between -3 and 3 standard deviations.
        edges = np.linspace(-3, 3, k + 1)[1:-1] * 2
        return np.asarray(np.digitize(source.normal(0.0, 2.0, n), edges), dtype=np.int64)
    if point["checkins"] is None:
        weights = 1 / np.arange(1, k + 1)
        order = np.random.default_rng(point["seed"]).permutation(k)
        return np.asarray(order[source.choice(k, n, p=weights / weights.sum())], dtype=np.int64)
    places = read_checkins(Path(point["checkins"]), BOXES[point["population"]], math.isqrt(k))
    return np.asarray(places[source.integers(0, len(places), n)])


@cache
def read_checkins(file: Path, box: tuple[float, float, float, float], side: int) -> npt.NDArray[np.int64]:
    """Returns the cell, 0 .. side^2 - 1, of every check-in of a file that lies in a box.

    Args:
        file: SNAP's Gowalla format, gzipped or not: user, time, latitude, longitude, place, parted by tabs.
        box: least and largest latitude and longitude.
        side: the box is cut into side x side cells.

    Raises:
        ValueError: a line that is no check-in, or none in the box.
    """
    south, north, west, east = box
    cells = []
    with gzip.open(file, "rt", encoding="utf-8") if file.suffix == ".gz" else file.open(encoding="utf-8") as lines:
        for number, (latitude, longitude) in enumerate(_places(file, lines), 1):
            if not (math.isfinite(latitude) and math.isfinite(longitude)):
                raise ValueError(f"{file}, line {number}: a place must have finite coordinates")
            if south <= latitude < north and west <= longitude < east:
                row, column = (latitude - south) / (north - south), (longitude - west) / (east - west)
                cells.append(int(row * side) * side + int(column * side))
    if not cells:
        raise ValueError(f"{file} has no check-in in {box}; it must have one at least")
    return np.array(cells, dtype=np.int64)


def _places(file: Path, lines: Iterable[str]) -> Iterable[tuple[float, float]]:
    for number, line in enumerate(lines, 1):
        parts = line.split("\t")
        try:
            _, _, latitude, longitude, _ = parts
            yield float(latitude), float(longitude)
        except ValueError as error:
            raise ValueError(
                f"{file}, line {number} is no check-in; it must be user, time, latitude, longitude and place"
            ) from error
