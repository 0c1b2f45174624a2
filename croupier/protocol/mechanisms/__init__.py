"""The mechanisms: one class for each kind of local randomizer, with its parameters, its values and its reports.

This package says what a kind is. Every class mirrors the message of its field in `Question.mechanism`
(proto/croupier/protocol/v1/messages.proto), field by field, and checks itself at construction. What a role does with a
kind is looked up in the role by the kind's name: in `client.randomizers`, `analyzer.estimators`,
`accountant.mechanisms.registry` and `accountant.attacks.lower_bound`. docs/add-a-mechanism.md adds one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from croupier.protocol.mechanisms.base import Mechanism, ScalarMechanism
from croupier.protocol.mechanisms.checks import MAX_LOCAL_DELTA
from croupier.protocol.mechanisms.gaussian import Gaussian
from croupier.protocol.mechanisms.gaussian_vector import MAX_RECORDS, GaussianVector
from croupier.protocol.mechanisms.hemisphere import Hemisphere
from croupier.protocol.mechanisms.interval import IntervalMechanism, LatticeMechanism
from croupier.protocol.mechanisms.kary_response import KaryResponse
from croupier.protocol.mechanisms.laplace import Laplace
from croupier.protocol.mechanisms.levels import MAX_LEVELS, Levels
from croupier.protocol.mechanisms.multiple_choice import MultipleChoice
from croupier.protocol.mechanisms.onebit import OneBit
from croupier.protocol.mechanisms.projective_response import ProjectiveResponse
from croupier.protocol.mechanisms.randomized_response import RandomizedResponse
from croupier.protocol.mechanisms.vector import VectorMechanism
from croupier.protocol.mechanisms.vector_task import MAX_DIMENSION, SequentialOrder, VectorTask

__all__ = [
    "MAX_DIMENSION",
    "MAX_LEVELS",
    "MAX_LOCAL_DELTA",
    "MAX_RECORDS",
    "MECHANISMS",
    "Gaussian",
    "GaussianVector",
    "Hemisphere",
    "IntervalMechanism",
    "KaryResponse",
    "Laplace",
    "LatticeMechanism",
    "Levels",
    "Mechanism",
    "MultipleChoice",
    "OneBit",
    "ProjectiveResponse",
    "RandomizedResponse",
    "ScalarMechanism",
    "SequentialOrder",
    "VectorMechanism",
    "VectorTask",
    "mechanism_from",
]

MECHANISMS: dict[str, type[Mechanism]] = {
    mechanism.kind: mechanism
    for mechanism in (
        RandomizedResponse,
        KaryResponse,
        ProjectiveResponse,
        MultipleChoice,
        OneBit,
        Levels,
        Laplace,
        Gaussian,
        Hemisphere,
        GaussianVector,
    )
}
"""Every kind, by its name."""


def mechanism_from(kind: str, parameters: Mapping[str, Any]) -> Mechanism:
    """Returns the mechanism of a kind with these parameters; a parameter that is None counts as not given.

    Raises:
        ValueError: an unknown kind, a parameter that is missing, unknown or out of range.
    """
    if kind not in MECHANISMS:
        raise ValueError(f"mechanism is {kind!r}; it must be one of {', '.join(MECHANISMS)}")
    known = {parameter.name: parameter for parameter in fields(MECHANISMS[kind])}
    given = {name: value for name, value in parameters.items() if value is not None}
    for name, value in given.items():
        if name not in known:
            raise ValueError(f"{name} is {value}, but {kind} has no {name}")
    for name, parameter in known.items():
        if name not in given and parameter.default is MISSING:
            raise ValueError(f"{name} is missing; {kind} needs it")
    return MECHANISMS[kind](**given)
