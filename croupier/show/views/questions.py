"""Questions and the terms of rounds."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from croupier.protocol.certificate_views import BudgetPrivacyView, JsonObject, StatementView
from croupier.protocol.names import RoundId
from croupier.show.views.ledger import LedgerView


class BudgetView(TypedDict):
    """A budget of a round's grid, and the largest probability of a right guess of its user's answer.

    See `show.promises`; "released_right_at_most" is for a released round, under the certificate's assumptions.
    """

    epsilon: float
    delta: float
    epsilon_max: float
    released_right_at_most: float
    one_honest_right_at_most: float | None
    alone_right_at_most: float


class LimitView(TypedDict):
    """The most that one person may lose over all rounds of a deployment."""

    total_epsilon: float
    total_delta: float
    max_rounds: int
    fixed_terms: bool


class WordingView(TypedDict):
    """A question as people read it in one language: the fields of `protocol.wordings.Wording`."""

    language: str
    question: str
    title: str
    help_text: str
    choices: tuple[str, ...]
    unit: str
    low: str
    high: str


class HopNoiseView(TypedDict):
    """The guarantee of one honest hop's fake reports for anyone, and the mean number of fakes of a hop."""

    epsilon: float
    delta: float
    right_at_most: float
    fakes: int


class QuestionView(TypedDict):
    """A question: its name, how it is put to people, and the randomizer with its parameters."""

    question: str
    wordings: list[WordingView]
    randomizer: str
    parameters: JsonObject


class TermsView(QuestionView):
    """The terms of a round. "parameters" are the mechanism's; "state" is that at hop 1.

    With the keys of a service or the operator's one sees "ledger", and "approved_by": organisations by the service that
    has them on record.
    """

    round_id: RoundId
    deployment: str
    manifest_hash: str
    budgets: list[BudgetView]
    delta: float
    dishonest: int
    min_batch_size: int
    max_batch_size: int | None
    short_batch: str
    hop_noise: HopNoiseView | None
    budget_privacy: BudgetPrivacyView | None
    close_deadline_unix_s: int | None
    privacy_limit: LimitView | None
    sealed_to_collector: bool
    shufflers: list[str]
    accountant: str
    analyzer: str
    hpke_suite: str
    state: NotRequired[str]
    granted: NotRequired[bool | None]
    refusals: NotRequired[list[StatementView]]
    ledger: NotRequired[LedgerView | None]
    approved_by: NotRequired[dict[str, list[str]]]
