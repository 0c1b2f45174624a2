"""A client's own limits, which hold for any round, in a file beside its outbox.

They are checked before anything is randomized or sent. The lifetime's spending is in the outbox, durably: the sum of
the local budgets (ε, δ) of all rounds that were answered, or begun, from there. By basic composition the person has
(the sum of ε, the sum of δ)-local differential privacy over all of them, whatever everybody else does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from croupier.protocol.errors import LimitError
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.mechanisms.checks import MAX_LOCAL_DELTA
from croupier.protocol.toml_file import read_toml

LIMITS_FILE = "limits.toml"
DEFAULT_DELTA = 1e-5
"""The local and the lifetime delta that a client accepts unless its owner chooses others."""
_Epsilon = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Delta = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class SpentHere:
    """The sums of the local budgets of all rounds that were answered, or begun.

    Attributes:
        local_epsilon, local_delta: the sums.
        rounds: the number of rounds.
    """

    local_epsilon: float
    local_delta: float
    rounds: int


class Limits(BaseModel):
    """A client's own limits; None where the person set no limit. The limits of δ always hold.

    An ε is meaningless without its δ: with a δ of 0.1 every tenth report may be the answer itself, however small its ε.

    Attributes:
        lifetime_epsilon: the largest sum of the local epsilons of all rounds.
        lifetime_delta: the largest sum of the local deltas of all rounds; 1e-5 by default.
        max_rounds: the most rounds that are answered.
        max_local_epsilon: the largest local epsilon of one round; by default 8 with hop noise, which makes rounds with
            hardly any local noise useful: nothing else protects the person if no hop is honest.
        max_local_delta: the largest local delta of one round, 0 to 1e-3; 1e-5 by default.
        epsilon_max: the largest central epsilon that a round may allow clients with the answer's budget.
        min_batch_size: the least minimum batch size of a round.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    lifetime_epsilon: _Epsilon | None = None
    lifetime_delta: _Delta = DEFAULT_DELTA
    max_rounds: Annotated[int, Field(ge=1)] | None = None
    max_local_epsilon: _Epsilon | None = None
    max_local_delta: Annotated[_Delta, Field(le=MAX_LOCAL_DELTA)] = DEFAULT_DELTA
    epsilon_max: _Epsilon | None = None
    min_batch_size: Annotated[int, Field(ge=2)] | None = None

    def stricter(self, other: Limits) -> Limits:
        """Returns the limits that allow only what both allow; a limit in only one of them is kept."""
        mine, others = (limits.model_dump(exclude_unset=True, exclude_none=True) for limits in (self, other))
        both = {name: (mine[name], others[name]) for name in mine.keys() & others.keys()}
        strictest = {name: max(pair) if name == "min_batch_size" else min(pair) for name, pair in both.items()}
        return Limits(**(mine | others | strictest))

    def check_round(self, terms: RoundTerms, local_epsilon: float) -> None:
        """Raises LimitError, with value and limit, for a round that is not answered with this budget of its grid."""
        allowed, smallest = terms.epsilon_max_of[local_epsilon], terms.shared.min_batch_size
        if self.max_local_epsilon is not None and local_epsilon > self.max_local_epsilon:
            raise _beyond("the answer would spend a local ε of", local_epsilon, "at most", self.max_local_epsilon)
        accepted = None if terms.fakes is None else terms.fakes.accepted_local_epsilon
        if self.max_local_epsilon is None and accepted is not None and local_epsilon > accepted:
            raise LimitError(
                f"the answer would spend a local ε of {in_full(local_epsilon)}; with hop noise the limit is "
                f"{accepted:g} unless you set your own ('croupier limits --max-local-epsilon'): if no "
                "hop is honest, only your own noise protects you; nothing was sent"
            )
        if terms.local_delta > self.max_local_delta:
            raise _beyond("the answer would spend a local δ of", terms.local_delta, "at most", self.max_local_delta)
        if self.epsilon_max is not None and allowed > self.epsilon_max:
            raise _beyond("the round's epsilon_max for this answer is", allowed, "at most", self.epsilon_max)
        if self.min_batch_size is not None and smallest < self.min_batch_size:
            raise _beyond("the round's min_batch_size is", smallest, "at least", self.min_batch_size)

    def check_lifetime(self, before: SpentHere, after: SpentHere) -> None:
        """Raises LimitError, with value and limit, if one more answer would be too much."""
        so_far = f"after {{}} in {before.rounds} other rounds, the local {{}} would add up to"
        adds = before.local_epsilon < after.local_epsilon  # a report that is sent again adds none
        if self.lifetime_epsilon is not None and adds and after.local_epsilon > self.lifetime_epsilon:
            what = so_far.format(in_full(before.local_epsilon), "ε")
            raise _beyond(what, after.local_epsilon, "at most", self.lifetime_epsilon)
        if before.local_delta < after.local_delta > self.lifetime_delta:  # a round without a delta adds none
            what = so_far.format(in_full(before.local_delta), "δ")
            raise _beyond(what, after.local_delta, "at most", self.lifetime_delta)
        if self.max_rounds is not None and after.rounds > self.max_rounds:
            raise _beyond("the number of rounds answered would be", after.rounds, "at most", self.max_rounds)


def _beyond(what: str, value: float, bound: str, limit: float) -> LimitError:
    return LimitError(f"{what} {in_full(value)}; your own limit is {bound} {in_full(limit)}; nothing was sent")


def in_full(value: float) -> str:
    """Returns a number with all its digits, as people write it: 1, 0.1, 1.0000001."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def local_budget(epsilon: float, delta: float) -> str:
    """Returns a local budget as people read it: "local ε 1", or "local ε 1, δ 1e-06"."""
    return f"local ε {in_full(epsilon)}" + (f", δ {in_full(delta)}" if delta else "")


def read_limits(path: Path) -> Limits:
    """Returns the limits in a file; without one there are none.

    Raises:
        ValueError: naming the file and every line that is unknown or out of range.
    """
    try:
        return read_toml(path, Limits, "file of limits")
    except FileNotFoundError:
        return Limits()


def change_limits(path: Path, changes: Mapping[str, float | None]) -> None:
    """Changes those limits in a file that are given and not None.

    Raises:
        ValueError: a limit is out of range, or a line of the file is.
    """
    given = {name: value for name, value in changes.items() if value is not None}
    if not given:
        return
    before = read_limits(path).model_dump(exclude_unset=True)
    try:
        limits = Limits.model_validate(before | given)
    except ValidationError as error:
        (wrong, *_) = error.errors()
        must = wrong["msg"].replace("Input should", "it must")
        raise ValueError(f"{wrong['loc'][0]} is {wrong['input']}; {must}") from error
    write_limits(path, limits)


def write_limits(path: Path, limits: Limits) -> None:
    """Writes a file of limits, in place of an older one in a single step; only its owner reads it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    fresh.touch(mode=0o600)
    lines = [
        f"{name} = {value!r}\n" for name, value in limits.model_dump(exclude_unset=True, exclude_none=True).items()
    ]
    fresh.write_text("".join(lines), encoding="utf-8")
    fresh.replace(path)
