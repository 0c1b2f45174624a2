"""One person's answer to one round: who answers, with what, and how it went. `client.round_client` gives it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from croupier.client.limits import Limits
from croupier.client.outbox import Outbox, WantedReport
from croupier.client.submission import Participant, draw_report, value_key
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.mechanisms.base import Mechanism, ScalarMechanism
from croupier.protocol.mechanisms.choices import MultipleChoice
from croupier.protocol.names import NO_KEY, PrivateKey, PublicKey, RoundId
from croupier.protocol.questions import choose_budget

Given: TypeAlias = float | str | Collection[str]
"""An answer: a number, or text as people write it down, such as a category's name; with `choices` the names of the
chosen options."""
_NAMED = "person "
"""Begins the outbox's name of a person with a name; keys are hexadecimal."""
Enrol = Callable[[PublicKey], Awaitable[None]]
"""Registers a client's public key with the services; only an operator can."""

ALREADY_ANSWERED = "ALREADY_ANSWERED"
"""Replaces hop 1's code if hop 1 has acknowledged a submission of this user before, and nothing was sent now."""


@dataclass(frozen=True)
class Respondent:
    """The respondent of a round, with the credentials for the answer.

    Attributes:
        person: a constant name, if a program answers for several people; "" is the one person whose device this is.
        key: an enrolled Ed25519 key, 32 bytes; empty for the client's own.
        new_key: without a key, sign with a new one for this answer. Such a person cannot be told from the one who has
            answered the round from here before, so that an earlier answer is sent again.
        another_person: not the person who has answered the round from here before.
    """

    person: str = ""
    key: PrivateKey = field(default=NO_KEY, repr=False)
    new_key: bool = False
    another_person: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError for a named person without a key."""
        if self.person and not self.key:
            raise ValueError("key is missing; a person with a name needs a key or an invitation")

    @property
    def alone(self) -> bool:
        """Whether nobody else may have answered the round from here."""
        return not (self.person or self.another_person)

    def user(self, public_key: PublicKey, known: Collection[str]) -> str:
        """Returns the outbox's name for the person.

        Args:
            public_key: of the key that signs this answer.
            known: the names of those who have answered the round from here.
        """
        if self.person:
            return f"{_NAMED}{self.person}"
        if self.new_key and not self.key and self.alone and len(known) == 1:
            (user,) = known
            return user
        return public_key.hex()


def is_of_person(user: str, person: str) -> bool:
    """Returns whether a user of the outbox is this person; "" is everybody who has no name (`Respondent.person`)."""
    return user == f"{_NAMED}{person}" if person else not user.startswith(_NAMED)


@dataclass(frozen=True)
class AnswerOutcome:
    """The outcome of one user's submission.

    Attributes:
        round_id: of the round.
        code: hop 1's, or ALREADY_ANSWERED.
        local_epsilon, local_delta: the spending of the submission that counts.
        sealed_before: an earlier call made it, and value and budget of this one were not used.
    """

    round_id: RoundId
    code: str
    local_epsilon: float
    local_delta: float
    sealed_before: bool


def value_of(mechanism: Mechanism, given: Given) -> Any:
    """Returns the value of a person's answer in one of its forms.

    Raises:
        ValueError: it is outside the question's domain, or the question is for vectors.
    """
    if isinstance(mechanism, MultipleChoice) and isinstance(given, Collection) and not isinstance(given, str):
        return mechanism.value_of(given)
    if not isinstance(given, int | float) or not isinstance(mechanism, ScalarMechanism):
        return mechanism.parse_value(str(given))
    mechanism.check_value(given)
    return given


def with_kept_reports(
    outbox: Outbox,
    terms: RoundTerms,
    users: Mapping[str, Participant],
    person_of: Callable[[str], str] = str,
    limits: Limits | None = None,
) -> dict[str, Participant]:
    """Returns the users with the reports that are kept for their values in a permanent study.

    Args:
        outbox: keeps the reports.
        terms: of a round; if it is of no permanent study, the users are unchanged.
        users: by the outbox's names.
        person_of: returns the owner of a user's kept reports.
        limits: of the only user; see `Outbox.keep_reports`.

    Raises:
        LimitError: see `Outbox.keep_reports`.
    """
    if terms.permanent is None:
        return dict(users)
    wanted = {
        user: WantedReport(
            person_of(user), value_key(who.value), choose_budget(who.max_local_epsilon, terms.budget_grid)
        )
        for user, who in users.items()
    }
    wave = (terms.round_id, terms.permanent)
    kept = outbox.keep_reports(wave, wanted, lambda user, budget: draw_report(terms, users[user].value, budget), limits)
    return {
        user: replace(who, max_local_epsilon=kept[user][1], kept_report=kept[user][0]) for user, who in users.items()
    }
