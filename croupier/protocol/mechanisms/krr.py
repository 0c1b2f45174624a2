"""`krr`: randomised response about one of k categories."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from croupier.protocol.mechanisms.base import ANSWERS, Form, Runs, ScalarMechanism
from croupier.protocol.mechanisms.checks import check_count, parse_number
from croupier.protocol.shown import check_shown

OTHERS = "others"
"""The name of a category that takes every text that is not the name of another one."""
OPEN = "…"
"""Ends the name of a category that takes every text that begins like it; the longest such beginning counts."""
_MAX_CATEGORIES = 1 << 16  # a result holds all of them, and a message at most 4 MiB (protocol.histograms)
_MAX_LABEL_BYTES = 1 << 20


@dataclass(frozen=True)
class KaryResponse(ScalarMechanism):
    """One of k categories; each other one is reported with probability 1/(e^v+k-1).

    Attributes:
        k: the number of categories, 2 .. 2^16.
        labels: none, or the names of the k categories as they stand in people's data; 2^20 bytes at most together, and
            only characters that `protocol.shown` lets through.
    """

    kind: ClassVar[str] = "krr"
    form: ClassVar[Form] = Form.ONE_CHOICE
    takes_fakes: ClassVar[bool] = True
    runs: ClassVar[tuple[Runs, ...]] = (
        Runs(
            "runs-krr",
            "every honest client runs {k}-ary randomised response with its own local epsilon",
            ANSWERS,
            "sends {whose} true answer with a probability that follows from {whose} budget, and otherwise one of the "
            "others, all equally likely",
        ),
    )
    k: int
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", tuple(self.labels))
        check_count("k", self.k, 2, _MAX_CATEGORIES)
        if self.labels and (len(self.labels) != self.k or len(set(self.labels)) != self.k):
            raise ValueError(f"labels are {_shorten(self.labels)}; they must be {self.k} different names")
        size = sum(len(label.encode()) for label in self.labels)
        if size > _MAX_LABEL_BYTES:
            raise ValueError(f"labels have {size} bytes; together they must have at most {_MAX_LABEL_BYTES}")
        for label in self.labels:
            check_shown("a label", label)

    @property
    def categories(self) -> tuple[str, ...]:
        """The labels; without them, the categories' numbers."""
        return self.labels or tuple(str(category) for category in range(self.k))

    @property
    def report_range(self) -> tuple[int, int]:
        """See `ScalarMechanism.report_range`."""
        return 0, self.k - 1

    def check_value(self, value: float) -> None:
        """See `ScalarMechanism.check_value`."""
        if value not in range(self.k):
            raise ValueError(f"value is {value}; it must be 0..{self.k - 1}")

    def parse_value(self, text: str) -> int:
        """Returns the number of the category: the text's own, or the longest beginning of it (`OPEN`), or `OTHERS`.

        See `Mechanism.parse_value`.
        """
        written = text.strip()
        names, numbers = self._places
        beginnings = self._beginnings
        if beginnings:
            numbers = {}  # "1.0" is another text than "1"
            for length in range(len(written) + 1):
                place = beginnings.get(written[: len(written) - length])
                if written not in names and place is not None:
                    return place
        number = parse_number(written)  # "3.0" in a file is the category "3"
        category = names.get(written, None if math.isnan(number) else numbers.get(number))
        category = self._places[0].get(OTHERS) if category is None else category
        if category is None:
            raise ValueError(f"value is {written!r}; it must be one of the categories {_shorten(self.categories)}")
        return category

    @cached_property
    def _beginnings(self) -> dict[str, int]:
        """The number of each category whose name ends in `OPEN`, by the rest of its name."""
        return {name[: -len(OPEN)]: place for place, name in enumerate(self.labels) if name.endswith(OPEN)}

    @cached_property
    def _places(self) -> tuple[dict[str, int], dict[float, int]]:
        """The number of each category by its name, and by its name as a number, of equal ones the first."""
        categories = self.categories
        numbers = {parse_number(name): place for place, name in reversed(list(enumerate(categories)))}
        return {name: place for place, name in enumerate(categories)}, numbers


def _shorten(categories: Sequence[str]) -> str:
    shown = ", ".join(categories[:12])
    return shown if len(categories) <= 12 else f"{shown}, … ({len(categories)} in all)"


MECHANISM = KaryResponse
