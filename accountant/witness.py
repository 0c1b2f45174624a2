"""The witness of a proof: the theorem, and the numbers for which it proves a tier's epsilon and delta."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from croupier.protocol.codes import Method
from croupier.protocol.v1 import messages_pb2 as pb


@dataclass(frozen=True)
class Witness:
    """With it the proof is repeated without a search. It guarantees nothing: any numbers prove the claim, or do not.

    Attributes:
        theorem: the last method of the proof.
        numbers: lists of finite numbers with their names, which docs/certificates.md explains.
    """

    theorem: Method
    numbers: tuple[tuple[str, tuple[float, ...]], ...] = ()

    def __post_init__(self) -> None:
        """Raises ValueError for a name that is there twice, or a number that is not finite."""
        if len(dict(self.numbers)) < len(self.numbers):
            raise ValueError(f"numbers have the names {[name for name, _ in self.numbers]}; each must be there once")
        if not all(math.isfinite(number) for _, numbers in self.numbers for number in numbers):
            raise ValueError(f"numbers are {self.numbers!r:.60}; they must be finite")

    @classmethod
    def of(cls, theorem: Method, numbers: Mapping[str, Sequence[float]]) -> Self:
        """Returns a witness of these numbers; of a list with one that is not finite nothing is kept."""
        return cls(
            theorem,
            tuple((name, tuple(several)) for name, several in numbers.items() if all(map(math.isfinite, several))),
        )

    def __getitem__(self, name: str) -> tuple[float, ...]:
        """The numbers of this name; none where the witness has none."""
        return dict(self.numbers).get(name, ())

    def to_message(self) -> pb.Witness:
        """Returns the message of the wire."""
        lists = [pb.NamedNumbers(name=name, numbers=numbers) for name, numbers in self.numbers]
        return pb.Witness(theorem=self.theorem, numbers=lists)

    @classmethod
    def from_message(cls, message: pb.Witness) -> Self:
        """Returns the witness of a message. Raises ValueError as the constructor, and for an unknown theorem."""
        if message.theorem not in {*Method}:
            raise ValueError(f"theorem is {message.theorem!r:.60}; it must be one of {', '.join(Method)}")
        return cls(Method(message.theorem), tuple((each.name, tuple(each.numbers)) for each in message.numbers))
