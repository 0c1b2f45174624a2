"""`choices`: which of several options a person chooses, all that apply; one option's bit is reported."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from croupier.protocol.mechanisms.base import Form, Runs, ScalarMechanism
from croupier.protocol.mechanisms.checks import check_count
from croupier.protocol.shown import check_shown

NO_OPTION = "none"
"""How people write that they choose no option."""
_SEPARATOR = ";"
_MOST_OPTIONS = 32  # a set of options is an integer, which also JavaScript keeps exactly


@dataclass(frozen=True)
class MultipleChoice(ScalarMechanism):
    """A set of k options. One option is drawn, and whether it is in the set is reported by randomised response.

    A value is the integer whose bit j says whether option j is chosen; a report is 2j or 2j + 1, for the drawn option j
    and its bit. The whole local budget hides that bit, because nothing else of the set is used.

    Attributes:
        k: the number of options, 2 .. 32.
        labels: none, or the names of the k options as they stand in people's data, without ";" and not "none"; only
            characters that `protocol.shown` lets through.
    """

    kind: ClassVar[str] = "choices"
    form: ClassVar[Form] = Form.SEVERAL_CHOICES
    takes_fakes: ClassVar[bool] = True
    runs: ClassVar[tuple[Runs, ...]] = (
        Runs(
            "runs-choices",
            "every honest client draws one of {k} options, each equally likely, and runs binary randomised response "
            "about that option with its own local epsilon",
            "which of two sets of options a person chose",
            "draws one of the options, and sends whether it is among {whose} choices with a probability that follows "
            "from {whose} budget, and the opposite otherwise",
        ),
    )
    k: int
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", tuple(self.labels))
        check_count("k", self.k, 2, _MOST_OPTIONS)
        if self.labels and (len(self.labels) != self.k or len(set(self.labels)) != self.k):
            raise ValueError(f"labels are {', '.join(self.labels)}; they must be {self.k} different names")
        for label in self.labels:
            check_shown("a label", label)
            if _SEPARATOR in label or label != label.strip() or label in ("", NO_OPTION):
                raise ValueError(
                    f"a label is {label!r}; the name of an option must not be empty or {NO_OPTION!r}, contain "
                    f"{_SEPARATOR!r}, or begin or end with a space"
                )

    @property
    def categories(self) -> tuple[str, ...]:
        """The labels; without them, the options' numbers."""
        return self.labels or tuple(str(option) for option in range(self.k))

    @property
    def report_range(self) -> tuple[int, int]:
        """See `ScalarMechanism.report_range`."""
        return 0, 2 * self.k - 1

    def check_value(self, value: float) -> None:
        """See `ScalarMechanism.check_value`."""
        if not 0 <= value < 1 << self.k or value != int(value):
            raise ValueError(f"value is {value}; it must be a set of options, an integer 0..{(1 << self.k) - 1}")

    def value_of(self, options: Iterable[str]) -> int:
        """Returns the set of these options; raises ValueError for one that the question does not have."""
        chosen = 0
        for name in options:
            place = self._places.get(name.strip())
            if place is None:
                raise ValueError(f"an option is {name!r}; it must be one of {', '.join(self.categories)}")
            chosen |= 1 << place
        return chosen

    def parse_value(self, text: str) -> int:
        """Returns the set of the options that are named, separated by ";"; "none" is the empty set.

        See `Mechanism.parse_value`.
        """
        return 0 if text.strip() == NO_OPTION else self.value_of(text.split(_SEPARATOR))

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.categories)}


MECHANISM = MultipleChoice
