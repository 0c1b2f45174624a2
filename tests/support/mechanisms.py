"""An example of every mechanism, for tests that every mechanism has to pass."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from croupier.protocol.mechanisms.base import Mechanism
from croupier.protocol.mechanisms.choices import MultipleChoice
from croupier.protocol.mechanisms.gaussian import Gaussian
from croupier.protocol.mechanisms.gaussian_vector import GaussianVector
from croupier.protocol.mechanisms.hemisphere import Hemisphere
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.laplace import Laplace
from croupier.protocol.mechanisms.levels import Levels
from croupier.protocol.mechanisms.onebit import OneBit
from croupier.protocol.mechanisms.pgr import ProjectiveResponse
from croupier.protocol.mechanisms.rr import RandomizedResponse
from croupier.protocol.mechanisms.vector_task import VectorTask

TASK = VectorTask(3, 2.0, "model", bytes(12))


@dataclass(frozen=True)
class Example:
    """A mechanism, values at both ends of its domain and outside, and the golden bytes of a question named "q"."""

    mechanism: Mechanism
    values: tuple[Any, ...]
    outside: tuple[Any, ...]
    golden: str
    text: str = ""
    """The last value as people write it."""


INTERVAL = ((-2.0, 6.0), (-2.1, 6.1, math.nan))


EXAMPLES = {
    "rr": Example(RandomizedResponse(), (0, 1), (2, -1, 0.5, math.nan), "0a01711200", "1"),
    "krr": Example(KaryResponse(3, ("a", "b", "c")), (0, 1, 2), (3, -1, 1.5), "0a01711a0b0803120161120162120163", "c"),
    "pgr": Example(
        ProjectiveResponse(3, ("a", "b", "c"), 2), (0, 1, 2), (3, -1, 1.5), "0a0171520d08031201611201621201631802", "c"
    ),
    "choices": Example(
        MultipleChoice(3, ("a", "b", "c")), (0, 7, 5), (8, -1, 1.5, math.nan), "0a01715a0b0803120161120162120163", "a;c"
    ),
    "onebit": Example(OneBit(-2.0, 6.0), *INTERVAL, "0a017122120900000000000000c0110000000000001840", "6.0"),
    "levels": Example(Levels(-2.0, 6.0, 5), *INTERVAL, "0a01714a140900000000000000c01100000000000018401805", "6.0"),
    "laplace": Example(
        Laplace(-2.0, 6.0, lattice=20), *INTERVAL, "0a01712a140900000000000000c01100000000000018401814", "6"
    ),
    "gaussian": Example(
        Gaussian(-2.0, 6.0, 1e-6, lattice=20),
        *INTERVAL,
        "0a0171321d0900000000000000c0110000000000001840198dedb5a0f7c6b03e2014",
        "6e0",
    ),
    "hemisphere": Example(
        Hemisphere(TASK),
        (np.array([2.0, 0.0, 0.0]), np.zeros(3)),
        (np.zeros(2), np.array([math.inf, 0, 0])),
        "0a01713a220a2008031100000000000000401a056d6f64656c220c000000000000000000000000",
    ),
    "gaussian_vector": Example(
        GaussianVector(TASK, 4, 1e-6),
        (np.tile([2.0, 0.0, 0.0], (4, 1)), np.zeros((5, 3))),
        (np.zeros((3, 3)), np.zeros((4, 2)), np.full((4, 3), math.nan)),
        "0a0171422d0a2008031100000000000000401a056d6f64656c220c0000000000000000000000001004198dedb5a0f7c6b03e",
    ),
}
