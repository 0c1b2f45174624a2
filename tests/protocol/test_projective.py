"""Projective spaces: every hyperplane is as large as any other, any two share as much, and points are drawn evenly."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from croupier.protocol.mechanisms.pgr import ProjectiveResponse
from croupier.protocol.projective import FIELDS, ProjectiveSpace, space_for


@pytest.mark.parametrize(("q", "t"), [(2, 2), (2, 4), (3, 3), (5, 3), (7, 2)])
def test_hyperplanes_are_alike_in_pairs(q: int, t: int) -> None:
    space = ProjectiveSpace(q, t)
    vectors = np.array([space.vector(point) for point in range(space.num_points)])
    assert [space.number(tuple(vector)) for vector in vectors.tolist()] == list(range(space.num_points))
    assert [space.number(tuple(vector)) for vector in (vectors * (q - 1) % q).tolist()] == list(range(len(vectors)))
    on = (vectors @ vectors.T % q == 0).astype(int)
    shared = on @ on.T
    assert set(np.diag(shared).tolist()) == {space.block}
    assert set(shared[~np.eye(len(on), dtype=bool)].tolist()) == {space.common}
    for point in range(space.num_points):
        drawn = Counter(space.on_hyperplane(point, number) for number in range(1, q ** (t - 1)))
        assert set(drawn) == set(np.flatnonzero(on[point]).tolist())
        assert len(set(drawn.values())) == 1


def test_the_golden_numbers_of_points() -> None:
    """Part of the protocol: clients in other languages number points like this."""
    space = ProjectiveSpace(3, 3)
    assert [space.vector(point) for point in (0, 1, 2, 3, 4, 12)] == [
        (0, 0, 1),
        (0, 1, 0),
        (0, 1, 1),
        (0, 1, 2),
        (1, 0, 0),
        (1, 2, 2),
    ]
    assert [space.on_hyperplane(2, number) for number in range(1, 9)] == [3, 3, 4, 11, 9, 4, 9, 11]


def test_the_smallest_space_with_enough_points_is_taken() -> None:
    for k, q in ((3, 2), (4, 3), (1024, 3), (1024, 31), (65_536, 2)):
        space = space_for(k, q)
        assert space.num_points >= k
        assert space.t == 2 or ProjectiveSpace(q, space.t - 1).num_points < k
    assert all(space_for(1024, q).num_points >= 1024 for q in FIELDS)


@pytest.mark.parametrize(
    ("k", "q", "why"), [(2, 2, "k is 2"), (3, 4, "q is 4"), (3, 0, "q is 0"), (65_536, 61, "13,845,841 vectors")]
)
def test_a_space_that_cannot_be_used_is_refused(k: int, q: int, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        ProjectiveResponse(k=k, q=q)
