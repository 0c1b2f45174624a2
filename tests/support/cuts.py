"""Splits of Laplace noise, drawn at random, and what they are by their definition; for tests by quadrature."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from croupier.accountant.bounds import best_split as shares
from croupier.accountant.bounds.split_laws import Distances, Split

Floats = NDArray[np.float64]


def density(rate: float, centre: float, z: Floats) -> Floats:
    return rate / 2 * np.exp(-rate * np.abs(z - centre))


def grid(*marks: float, reach: float) -> tuple[Floats, Floats]:
    """Nodes and weights: cells between the marks, finer next to them, and as far beyond them as is said."""
    ends, fine = sorted(set(marks)), np.geomspace(1e-4, reach, 400)
    edges = [np.linspace(low, high, 401) for low, high in itertools.pairwise(ends)]
    edges += [mark + side * fine for mark in ends for side in (-1, 1)]
    cells = np.unique(np.concatenate([*edges, ends]))
    nodes, weights = np.polynomial.legendre.leggauss(4)
    middle, half = (cells[1:] + cells[:-1]) / 2, np.diff(cells) / 2
    return (middle[:, None] + half[:, None] * nodes).ravel(), (half[:, None] * weights).ravel()


def steps(at: Distances, cut: Split, z: Floats) -> tuple[Floats, Floats]:
    """The share of the core and psi at z, for the only distance, by their definition."""
    d = float(at.distance[0])
    edges = np.concatenate([-cut.outside[:0:-1], d * cut.inside, d + cut.outside[1:]])
    cell = np.searchsorted(edges, z, side="right")
    return cut.share[cell], at.victim / 2 * cut.psi[cell]


def parts(at: Distances, cut: Split, z: Floats) -> tuple[Floats, Floats]:
    """D_1 and D_2 of the only distance, by their definition."""
    v, d = at.victim, float(at.distance[0])
    all_of_it = density(v, 0.0, z) - math.exp(at.log_gain[0]) * density(v, d, z)
    share, psi = steps(at, cut, z)
    core = share * all_of_it + cut.moved * psi
    return core, all_of_it - core


def marks(at: Distances, cut: Split) -> list[float]:
    """The edges of all bounded cells."""
    d = float(at.distance[0])
    return [*(-cut.outside), *(d * cut.inside), *(d + cut.outside)]


def all_within(reach: float, scale: float) -> Split:
    """All of D up to this distance from the victim's values, in cells for rates of this sum; nothing beyond."""
    inside, outside = shares.grid(scale, reach)
    all_bounded = np.pad(np.ones(inside.size - 3 + 2 * outside.size), 1)
    return Split(inside, outside, all_bounded, all_bounded)


def drawn_split(rng: np.random.Generator) -> tuple[Distances, Split, float, bool]:
    """Two distances, one of them twice, a cut of each, a host's rate, and whether it hides the tails."""
    victim = float(np.exp(rng.uniform(math.log(0.1), math.log(6))))
    most = min(3.0, 0.8 * victim)
    epsilon = float(rng.choice([math.exp(rng.uniform(math.log(1e-9), math.log(most))), rng.uniform(0.05, 1) * most]))
    first, second = rng.permutation([rng.choice([1.0, rng.uniform(0.05, 1)]), rng.uniform(0.05, 1)])
    width = np.sqrt(8 * epsilon * rng.uniform(0, 0.5, 2)) / victim
    at = Distances.at(victim, np.array([first, second, first]), width[[0, 1, 0]], epsilon)
    tails = bool(rng.integers(2))
    rate = victim * float(rng.choice([1.0, rng.uniform(0.02, 1), *((rng.uniform(1, 4),) if not tails else ())]))
    middle, beyond = int(rng.integers(8, 30)), int(rng.integers(4, 25))
    reach = float(rng.choice([rng.uniform(0.02, 0.3), rng.uniform(0.3, 5)])) / victim
    outside = reach * np.sort(np.concatenate([[0.0, 1.0], rng.uniform(0, 1, beyond - 1)]))
    inside = np.linspace(0.0, 1.0, middle + 1)
    cells = middle + 2 * beyond
    share, psi = rng.uniform(0, 1, cells + 2), np.pad(rng.uniform(0, 1, cells) * (rng.random(cells) < 0.8), 1)
    psi[1 + beyond] = 1.0
    if rng.random() < 0.4:  # nothing but D, or none of it
        share[:] = rng.choice([0.0, 1.0])
    if rate > victim:
        share[[0, -1]] = 0.0
    size = float(rng.choice([epsilon, victim]))
    moved = size * rng.choice([0.0, rng.uniform(0, 0.3), rng.uniform(-0.3, 0), rng.uniform(-1, 1)], 3, replace=False)
    return at, Split(inside, outside, share, psi, moved), rate, tails


def row_of(at: Distances, cut: Split, row: int) -> tuple[Distances, Split]:
    """This distance alone."""
    index = np.array([row])
    return at.take(index), replace(cut, moved=float(np.broadcast_to(cut.moved, at.distance.shape)[row]))
