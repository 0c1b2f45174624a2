"""A discovery of frequent texts: the texts with their holders, and the waves that found them."""

from __future__ import annotations

from typing import TypedDict

from croupier.protocol.certificate_views import StatementView


class DiscoveredTextView(TypedDict):
    """A text, and the estimated number of people who hold it."""

    text: str
    holders: float


class WaveView(TypedDict):
    """A wave; a text that "found_from" of its people hold passed it with the promised probability."""

    categories: int
    reports: int
    threshold: int
    found_from: int | None
    kept: list[str]


class DiscoveryView(TypedDict):
    """A discovery, the most frequent text first; epsilon and delta are of one person over all waves.

    others: the estimated number of people whose text does not begin with a letter of the alphabet.
    """

    texts: list[DiscoveredTextView]
    found_from: int | None
    others: float
    epsilon: float
    delta: float
    grade: str
    assumptions: list[StatementView]
    waves: list[WaveView]
