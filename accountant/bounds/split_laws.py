"""Laws above that of every host with Laplace noise, if the victim's difference is split into a core and tails.

The core is a share of the difference of the victim's two laws, constant in every cell of a grid; the tails are the
rest; a part of the mean is moved between them (docs/paper, section 6). A host may lie anywhere in an interval: its law
is below a mixture of the laws of a few places (L1 and T1 of section 5), whatever its budget. Each law is moved to a few
atoms with its mean kept, and is passed on by its moments. `two_groups` derives a bound from them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from croupier.accountant.bounds.laplace_laws import (
    AT_ONCE,
    Family,
    cell_mass,
    difference,
    places_of_hosts,
    two_atoms,
)
from croupier.accountant.numerics.binomial import UNIT, Floats, Ints

MOST_CANCELLED = 100.0
"""The largest ratio of the terms of D/R to their sum, each at its largest. Up to it their rounding stays far below the
allowance for it; beyond it no bound is given."""
MOST_EXPONENT = 300.0
"""The largest exponent of D/R that is evaluated, whose powers stay within the range of floats."""


@dataclass(frozen=True, eq=False)
class Distances:
    """Distances d between the victim's values, 0 and d, that represent all distances, each with its own ln E.

    Shapes (K,); a distance may occur several times. D = f_0 - e^log_gain f_d, f with the victim's rate. log_gain is
    ln(c E): a distance in a cell is covered by the cell's ends with E reduced by c.
    """

    victim: float
    distance: Floats
    log_gain: Floats
    nearest: Floats
    """Hosts lie in [nearest - 1, 1]: the least of the distances that this one represents."""

    @classmethod
    def at(cls, victim: float, distance: Floats, width: Floats, epsilon: float) -> Distances:
        """Returns these distances, each an end of cells that are at most this wide, (K,); hosts are on all of [-1, 1].

        "All distances", section 6: c = e^(-v^2 width^2/8). Differences of distances are rounded.
        """
        log_kept = -((victim * (width + UNIT)) ** 2) / 8 * (1 + 16 * UNIT)
        gain = (epsilon + log_kept) - 4 * UNIT * (epsilon + np.abs(log_kept))
        return cls(victim, distance, gain, np.maximum(0.0, distance - width))

    def take(self, which: Ints) -> Distances:
        """Returns the given distances, which may repeat."""
        return Distances(self.victim, *(x[which] for x in (self.distance, self.log_gain, self.nearest)))

    @property
    def hosts(self) -> tuple[Floats, Floats]:
        """The ends of the interval of all hosts, for every distance that this one represents: two arrays (K,)."""
        return self.nearest - 1, np.ones_like(self.nearest)


@dataclass(frozen=True, eq=False)
class Split:
    """D = D_1 + D_2 with D_1 = share D + moved psi, share and psi constant in each of C cells, from left to right.

    D_1 is the core, D_2 the tails. There are O + 1 cells on either side of [0, d], the last of them unbounded, and I
    between 0 and d. Raises ValueError for edges that do not increase from 0 (inside: to 1), a share outside [0, 1], a
    psi that is negative, 0 everywhere or not 0 in an unbounded cell, or shapes that do not fit.
    """

    inside: Floats
    """Edges from 0 to 1 in units of d, (I + 1,)."""
    outside: Floats
    """Edges from 0 on, by their distance from 0 and from d, (O + 1,)."""
    share: Floats
    """(C,)."""
    psi: Floats
    """In units of v/2, (C,)."""
    moved: Floats | float = 0.0
    """The amount of psi that is moved, possibly negative: one for each distance, (K,), or one for all."""

    def __post_init__(self) -> None:
        cells = self.inside.size - 1 + 2 * self.outside.size
        if self.share.shape != (cells,) or self.psi.shape != (cells,):
            raise ValueError(f"share and psi must have {cells} values, not {self.share.shape} and {self.psi.shape}")
        rising = all((np.diff(edges) > 0).all() and edges[0] == 0 for edges in (self.inside, self.outside))
        if not (rising and self.inside[-1] == 1):
            raise ValueError("the edges must increase from 0, those between the victim's values to 1")
        if not ((self.share >= 0) & (self.share <= 1)).all():
            raise ValueError(f"every share must be in [0, 1], not {self.share.min()} to {self.share.max()}")
        if not ((self.psi >= 0).all() and 0 < self.psi.sum() < math.inf and self.psi[0] == self.psi[-1] == 0):
            raise ValueError("psi must be at least 0, not 0 everywhere, and 0 in unbounded cells")

    def edges(self, distance: Floats) -> Floats:
        """Returns the edges of all cells for every distance, (K, C + 1)."""
        distance = distance[:, None]
        far = np.full(distance.shape, math.inf)
        left = np.broadcast_to(-self.outside[:0:-1], (distance.size, self.outside.size - 1))
        return np.concatenate([-far, left, distance * self.inside, distance + self.outside[1:], far], axis=1)

    @cached_property
    def _mass(self) -> tuple[float, float]:
        """The mass of psi in units of v/2: beyond [0, d], and between the values in units of d."""
        beyond, steps = self.outside.size, np.diff(self.outside)
        at = self.psi[1:beyond] @ steps[::-1] + self.psi[-beyond:-1] @ steps
        return float(at), float(np.diff(self.inside) @ self.psi[beyond:-beyond])

    def mass(self, at: Distances) -> Floats:
        """Returns Z, the mass of psi, (K,), to 16 ulp and one more of d for every cell between the values."""
        beyond, between = self._mass
        mass: Floats = at.victim / 2 * (beyond + between * at.distance)
        return mass

    def gamma(self, at: Distances, rate: float) -> Floats:
        """Returns gamma with R_host >= gamma psi/Z for all hosts of this rate, (K,); rounded down."""
        left, right = at.hosts
        edges, used = self.edges(at.distance), self.psi > 0
        away = np.maximum(edges[:, 1:] - left[:, None], right[:, None] - edges[:, :-1])[:, used]
        least = (np.exp(-rate * away) / self.psi[used]).min(1)
        gamma = self.mass(at) * (rate / at.victim) * least
        rounded: Floats = gamma * (1 - (128 + self.psi.size + 8 * rate * (2 + self.outside[-1])) * UNIT)
        return rounded

    def mean(self, at: Distances, *, tails: bool) -> tuple[Floats, Floats]:
        """Returns the mass of D_1, or of D_2 with `tails`, and a size of which its error is 16 ulp; both (K,)."""
        edges, x1, gain = self.edges(at.distance), at.distance[:, None], at.log_gain[:, None]
        low, high, zero = edges[:, :-1], edges[:, 1:], np.zeros_like(x1)
        width = -np.expm1(-at.victim * (high - low)) / 2
        of_cells = difference(at.victim, gain, low, high, zero, x1) * width
        away = np.maximum(np.maximum(low - x1, x1 - high), 0.0)
        terms = np.abs(of_cells) + (np.abs(gain) + at.victim * x1) * np.exp(gain - at.victim * away) * width
        share = 1 - self.share if tails else self.share
        moved = (-self.moved if tails else self.moved) * self.mass(at)
        sizes: Floats = (terms @ share + np.abs(moved)) * (4 + self.share.size / 16)
        return of_cells @ share + moved, sizes

    def family(self, at: Distances, rate: float, *, tails: bool) -> Family | None:
        """Returns the laws of D_1/R_host, or of D_2/R_host with `tails`, for every distance and place: K J laws.

        None if the part is 0, cancels so much that its rounding might matter, or is too large. Raises ValueError for a
        rate above the victim's, unless it is the core's and the whole core is in bounded cells.
        """
        v, (left, right) = at.victim, at.hosts
        if rate > v and (tails or self.share[0] > 0 or self.share[-1] > 0):
            raise ValueError(f"the rate must be at most the victim's where a cell is not bounded, not {rate}")
        if max(rate - v, 0.0) * self.outside[-1] + 2 * rate > MOST_EXPONENT:
            return None
        length = float((right - left).max()) * (1 + 8 * UNIT)
        unit, thin = np.array(places_of_hosts(rate, length)).T
        # The part that does not depend on `moved` is computed once: one row for every pair of a distance and a place.
        every = np.stack([at.distance, at.log_gain, left, right], axis=1)
        rows, which = np.unique(every, axis=0, return_inverse=True)
        x1, gain, left, right = np.repeat(rows, unit.size, axis=0).T[:, :, None]
        host = left + np.tile(unit, rows.shape[0])[:, None] * (right - left)
        cells = CutCells.of(self, v, rate, x1, gain, host, tails=tails)
        pair = (which.reshape(-1, 1) * unit.size + np.arange(unit.size)).ravel()
        moved = np.repeat(np.broadcast_to(-self.moved if tails else self.moved, at.distance.shape), unit.size)
        families, step = [], max(1, AT_ONCE // (2 * cells.mass.shape[1]))
        every = np.tile(thin, at.distance.size)
        for first in range(0, pair.size, step):
            part = slice(first, first + step)
            values, mass = cells.atoms(pair[part], moved[part, None])
            largest = np.abs(values).max(1)
            sizes = cells.terms[pair[part]] + np.abs(moved[part]) * cells.terms_of_psi[pair[part]]
            if not (sizes <= MOST_CANCELLED * largest).all() or float(largest.min()) == 0:
                return None
            families.append(Family.of(values, mass, every[part]))
        return Family(np.concatenate([f.scale for f in families]), np.concatenate([f.moments for f in families]))


@dataclass(frozen=True, eq=False)
class CutCells:
    """Bounds for P pairs of a distance and a host, whose place is one of the L + 1 edges: (P, L) unless stated.

    Within a cell 1/R is monotone. So is D/R, except for rates above the victim's between its values, where D/R is
    between the products of the ends of D and of 1/R.
    """

    least: Floats
    """The least share D/R; `most` is the largest."""
    most: Floats
    low_psi: Floats
    """psi/R."""
    high_psi: Floats
    mass: Floats
    """The mass of R; then the products for share D, and for psi."""
    product: Floats
    product_of_psi: Floats
    terms: Floats
    """The largest sizes of the terms of share D/R, and of psi/R; (P,)."""
    terms_of_psi: Floats

    @classmethod
    def of(
        cls, split: Split, v: float, rate: float, x1: Floats, gain: Floats, host: Floats, *, tails: bool
    ) -> CutCells:
        """Returns the cells for x1, gain and host of shape (P, 1)."""
        edges = split.edges(x1[:, 0])
        # The cell with the host is cut in two.
        after = (edges[:, 1:-1] <= host).sum(1)[:, None]
        edges = np.sort(np.concatenate([edges, host], axis=1), axis=1)
        cell = np.arange(split.share.size + 1)
        cell = cell - (cell > after)
        share, psi = (1 - split.share if tails else split.share)[cell], split.psi[cell]
        low, high, zero = edges[:, :-1], edges[:, 1:], np.zeros_like(x1)
        near = np.clip(edges, edges[:, 1:2], edges[:, -2:-1])
        plain = difference(v, gain, near, near, zero, x1)
        other = np.exp(gain - v * np.abs(x1 - near))
        inverse = v / rate * np.exp(rate * np.abs(near - host))
        # Beyond the last edges D/R decreases to 0 or is constant; for larger rates the share is 0 there.
        first, last = _lower(plain) * _lower(inverse), _upper(plain) * _upper(inverse)
        if rate != v:
            first[:, 0], last[:, -1] = 0.0, 0.0
        least, most = np.minimum(first, last), np.maximum(first, last)
        if rate > v:
            crossed = np.stack([_lower(plain) * _upper(inverse), _upper(plain) * _lower(inverse)])
            least, most = np.minimum(least, crossed.min(0)), np.maximum(most, crossed.max(0))
        terms = (np.abs(plain) + (np.abs(gain) + v * x1) * other) * inverse
        return cls(
            share * least,
            share * most,
            psi * _lower(inverse),
            psi * _upper(inverse),
            cell_mass(rate, host, edges),
            share * difference(v, gain, low, high, zero, x1) * -np.expm1(-v * (high - low)) / 2,
            psi * np.diff(near, axis=1) * v / 2,
            (_larger(terms) * share).max(1),
            (psi * _larger(inverse)).max(1),
        )

    def atoms(self, pair: Ints, moved: Floats) -> tuple[Floats, Floats]:
        """Returns values and masses, (F, 2 L), of laws larger than that of D_j/R for these pairs; moved: (F, 1)."""
        ends = [moved * x[pair] for x in (self.low_psi, self.high_psi)]
        low, high = self.least[pair] + np.minimum(*ends), self.most[pair] + np.maximum(*ends)
        return two_atoms(low, high, self.mass[pair], self.product[pair] + moved * self.product_of_psi[pair])


def _lower(values: Floats) -> Floats:
    """Returns the values at the lower end of every cell."""
    return values[:, :-1]


def _upper(values: Floats) -> Floats:
    """Returns the values at the upper end."""
    return values[:, 1:]


def _larger(values: Floats) -> Floats:
    """Returns the larger of both."""
    return np.maximum(_lower(values), _upper(values))
