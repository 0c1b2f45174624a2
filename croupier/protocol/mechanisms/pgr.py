"""`pgr`: one of many categories, reported as a point of its hyperplane in a projective space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from croupier.protocol.mechanisms.base import ANSWERS, Runs
from croupier.protocol.mechanisms.checks import check_count
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.projective import ProjectiveSpace, space_for


@dataclass(frozen=True)
class ProjectiveResponse(KaryResponse):
    """One of k categories; a point of its hyperplane is e^v times as likely to be reported as any other point.

    Projective geometry response (Feldman, Nelson, Nguyen, Talwar, ICML 2022). Its error does not grow with k.

    Attributes:
        k: the number of categories, 3 .. 2^16.
        labels: as in `KaryResponse`.
        q: the size of the field, a prime 2 .. 61; about 1 + e^v has the least error.
    """

    kind: ClassVar[str] = "pgr"
    runs: ClassVar[tuple[Runs, ...]] = (
        Runs(
            "runs-pgr",
            "every honest client runs projective geometry response about {k} categories over the field of {q} elements "
            "with its own local epsilon",
            ANSWERS,
            "sends one of very many numbers: with a probability that follows from {whose} budget one that fits {whose} "
            "answer, and otherwise any of them, all equally likely",
        ),
    )
    q: int = 3

    def __post_init__(self) -> None:
        check_count("k", self.k, 3, 1 << 16)
        super().__post_init__()
        space_for(self.k, self.q)

    @property
    def space(self) -> ProjectiveSpace:
        """The smallest space with a hyperplane for each category; category j has that of point j."""
        return space_for(self.k, self.q)

    @property
    def report_range(self) -> tuple[int, int]:
        """See `ScalarMechanism.report_range`: a point, by its number."""
        return 0, self.space.num_points - 1


MECHANISM = ProjectiveResponse
