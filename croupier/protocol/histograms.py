"""The numbers of a published result, and the form of those of a histogram with many categories, which takes less space.

A message has at most 4 MiB. A number of a result by itself takes about 90 bytes and its label; a category of 65,536
takes 36 in columns, and its label is in the manifest, which is in the publication too.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from croupier.protocol.manifest import parse_terms
from croupier.protocol.v1 import messages_pb2 as pb

MOST_SINGLE = 4096
"""A histogram with more categories is published in columns."""


def columns_of(values: Sequence[pb.EstimatedValue]) -> pb.CategoryShares:
    """Returns the numbers of a histogram in columns: estimates as they are, ends of intervals rounded outwards."""
    return pb.CategoryShares(
        estimate=[value.estimate for value in values],
        projected=[value.projected for value in values],
        standard_error=[_up(value.standard_error) for value in values],
        low=[-_up(-value.confidence_interval.low) for value in values],
        high=[_up(value.confidence_interval.high) for value in values],
        sampling_standard_error=[_up(value.sampling_standard_error) for value in values],
        population_low=[-_up(-value.population_interval.low) for value in values],
        population_high=[_up(value.population_interval.high) for value in values],
    )


def values_of(publication: pb.Publication) -> list[pb.EstimatedValue]:
    """Returns the numbers of a result, whichever form they were published in; none if it is sealed or refused.

    Raises:
        ValueError: the columns have different lengths, or another one than the question of the manifest.
        Refusal: the manifest cannot be read.
    """
    if not publication.HasField("shares"):
        return list(publication.values)
    shares = publication.shares
    columns = (
        shares.estimate,
        shares.projected,
        shares.standard_error,
        shares.low,
        shares.high,
        shares.sampling_standard_error,
        shares.population_low,
        shares.population_high,
    )
    labels = parse_terms(publication.round).question.mechanism.categories
    return [
        pb.EstimatedValue(
            label=label,
            estimate=estimate,
            projected=projected,
            standard_error=error,
            confidence_interval=pb.Interval(low=low, high=high),
            sampling_standard_error=sampling,
            population_interval=pb.Interval(low=least, high=most),
        )
        for label, estimate, projected, error, low, high, sampling, least, most in zip(labels, *columns, strict=True)
    ]


def _up(value: float) -> float:
    """Returns the nearest single-precision number that is not below a finite value."""
    near: float = struct.unpack("<f", struct.pack("<f", value))[0]
    if near >= value:
        return near
    (bits,) = struct.unpack("<i", struct.pack("<f", near))
    above: float = struct.unpack("<f", struct.pack("<i", bits + 1 if near > 0 else bits - 1 if near < 0 else 1))[0]
    return above
