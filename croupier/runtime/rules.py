"""The rules of a service: which rounds its organisation takes part in, whatever the operator asks.

They are in the service's own settings. A manifest needs the signature of every service, so a round that breaks the
rules of one of them does not begin.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Annotated

from pydantic import Field, model_validator

from croupier.protocol.deployment import Strict
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.mechanisms import MECHANISMS

_Hour = Annotated[int, Field(ge=0, le=24)]


class Rules(Strict):
    """The rules for the rounds that this service signs; without a line, anything is allowed.

    Attributes:
        epsilon_max: the largest ε that a round may promise anybody.
        total_epsilon_max: the largest `total_epsilon` of the privacy limit; a round without a privacy limit is not
            signed. The accountant enforces that limit over rounds.
        min_batch_size: the fewest clients that a round may be mixed with.
        randomizers: the kinds of mechanism that a round may use.
        approved_by: organisations that must all have approved a round (docs/three-organisations.md), by their names in
            the deployment file; a service without one is an organisation of its own name.
        hours: in which a round may be opened, UTC: [8, 18] is from 08:00 until before 18:00.
    """

    epsilon_max: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    total_epsilon_max: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    min_batch_size: Annotated[int, Field(ge=2)] | None = None
    randomizers: tuple[str, ...] | None = None
    approved_by: tuple[str, ...] = ()
    hours: tuple[_Hour, _Hour] | None = None

    @model_validator(mode="after")
    def _check(self) -> Rules:
        if unknown := sorted(set(self.randomizers or ()) - set(MECHANISMS)):
            raise ValueError(f"randomizers names {', '.join(unknown)}; there are {', '.join(MECHANISMS)}")
        if self.hours is not None and self.hours[0] >= self.hours[1]:
            raise ValueError(f"hours is {list(self.hours)}; the first must be before the second, both in 0..24")
        return self

    def objection(self, terms: RoundTerms, now_s: float, approved_by: Collection[str] = ()) -> str | None:
        """Returns the rule that a round breaks, with the value and the allowed range; None if it keeps all.

        Args:
            terms: of the round.
            now_s: the time, Unix seconds.
            approved_by: the organisations that have approved of the round.
        """
        epsilon = max(terms.epsilon_max_of.values())
        if self.epsilon_max is not None and epsilon > self.epsilon_max:
            return f"the round's epsilon_max is {epsilon:g}; at most {self.epsilon_max:g} is allowed"
        if self.total_epsilon_max is not None:
            if terms.survey.privacy_limit is None:
                return f"the deployment has no privacy limit; one of at most {self.total_epsilon_max:g} is needed"
            if (total := terms.survey.privacy_limit.total_epsilon) > self.total_epsilon_max:
                return f"the privacy limit's total_epsilon is {total:g}; at most {self.total_epsilon_max:g} is allowed"
        if self.min_batch_size is not None and terms.shared.min_batch_size < self.min_batch_size:
            return f"min_batch_size is {terms.shared.min_batch_size}; at least {self.min_batch_size} is needed"
        if self.randomizers is not None and (kind := terms.question.mechanism.kind) not in self.randomizers:
            return f"the randomizer is {kind}; allowed are {', '.join(self.randomizers) or 'none'}"
        if missing := [name for name in self.approved_by if name not in approved_by]:
            return f"the round is not approved by {', '.join(missing)}; its proposal needs their signature"
        if self.hours is not None:
            now = datetime.fromtimestamp(now_s, UTC)
            if not self.hours[0] <= now.hour < self.hours[1]:
                return f"it is {now:%H:%M} UTC; rounds are signed from {self.hours[0]}:00 until {self.hours[1]}:00 UTC"
        return None
