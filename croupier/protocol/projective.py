"""Projective spaces over a prime field: the sets of reports that mechanism `pgr` gives to its categories.

The points of a space are the lines through the origin of the vectors of `t` numbers modulo a prime `q`. Each point has
a hyperplane, the points that are orthogonal to it. All hyperplanes have equally many points, and so has what any two of
them share: no two categories are easier to tell apart than any others. Clients, analyzer and accountant read the sizes
here; the numbering of points is part of the protocol (docs/another-language.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

FIELDS = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61)
"""The sizes of fields: about 1 + e^v has the least error at a local budget v, so that 61 serves budgets of about 4."""
MAX_VECTORS = 1 << 22
"""The most vectors of a space: the analyzer transforms an array of them, 64 MiB."""


@dataclass(frozen=True)
class ProjectiveSpace:
    """The projective space of dimension t - 1 over the field of q elements.

    A point is numbered by the vector on its line whose first number that is not 0 is 1: with m numbers after that 1,
    the point's number is (q^m - 1)/(q - 1) plus those m numbers read as digits, the first as the highest.

    Attributes:
        q: one of `FIELDS`.
        t: numbers in a vector, at least 2.
    """

    q: int
    t: int

    @property
    def num_points(self) -> int:
        """How many points there are, and how many hyperplanes: (q^t - 1)/(q - 1)."""
        return int(self.q**self.t - 1) // (self.q - 1)

    @property
    def block(self) -> int:
        """How many points each hyperplane has."""
        return int(self.q ** (self.t - 1) - 1) // (self.q - 1)

    @property
    def common(self) -> int:
        """How many points any two hyperplanes share."""
        return int(self.q ** (self.t - 2) - 1) // (self.q - 1)

    @property
    def third(self) -> int:
        """How many points any three share that do not share all points of two: (q^(t-3) - 1)/(q - 1), or 0."""
        return int(self.q ** (self.t - 3) - 1) // (self.q - 1) if self.t > 2 else 0

    @property
    def apart(self) -> int:
        """How many points of a hyperplane are not on any one other: q^(t - 2)."""
        return self.block - self.common

    def vector(self, point: int) -> tuple[int, ...]:
        """Returns the vector of a point, whose number is 0 .. num_points - 1."""
        after = 0
        while point >= self.q**after:
            point -= self.q**after
            after += 1
        return (0,) * (self.t - 1 - after) + (1,) + self._digits(point, after)

    def number(self, vector: tuple[int, ...]) -> int:
        """Returns the number of the point on whose line a vector lies; the vector is not 0."""
        first = next(place for place, entry in enumerate(vector) if entry)
        inverse = pow(vector[first], -1, self.q)
        number = 0
        for entry in vector[first + 1 :]:
            number = number * self.q + entry * inverse % self.q
        return number + int(self.q ** (self.t - 1 - first) - 1) // (self.q - 1)

    def on_hyperplane(self, point: int, drawn: int) -> int:
        """Returns a point on the hyperplane of `point`, each one for equally many `drawn` in 1 .. q^(t-1) - 1."""
        normal = self.vector(point)
        pivot = normal.index(1)
        free = self._digits(drawn, self.t - 1)
        others = normal[:pivot] + normal[pivot + 1 :]
        solved = -sum(a * b for a, b in zip(others, free, strict=True)) % self.q
        return self.number((*free[:pivot], solved, *free[pivot:]))

    def _digits(self, number: int, places: int) -> tuple[int, ...]:
        return tuple(number // self.q**place % self.q for place in reversed(range(places)))


@lru_cache(maxsize=256)
def space_for(k: int, q: int) -> ProjectiveSpace:
    """Returns the smallest space over a field of q elements with a hyperplane for each of k categories.

    Raises:
        ValueError: q is not one of `FIELDS`, or the space has more than `MAX_VECTORS` vectors.
    """
    if q not in FIELDS:
        raise ValueError(f"q is {q}; it must be one of {', '.join(map(str, FIELDS))}")
    t = 2
    while ProjectiveSpace(q, t).num_points < k:
        t += 1
    if q**t > MAX_VECTORS:
        raise ValueError(
            f"q is {q} with {k:,} categories, which takes {q**t:,} vectors; at most {MAX_VECTORS:,}: lower q"
        )
    return ProjectiveSpace(q, t)
