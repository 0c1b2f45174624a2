"""The JSON document of a certificate, by its keys.

`certificates` writes and reads it. These types say which keys there are, so that mypy finds a misspelt one; the JSON
schema in `docs` says the same to other programs.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypeAlias, TypedDict, final

from croupier.protocol.names import RoundId
from croupier.protocol.texts import Value

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object whose keys are not known here: one of another program's format, or of a mechanism's own parameters."""


class StatementView(TypedDict):
    """A statement as a JSON object; nothing reads "text", which is the sentence for people."""

    code: str
    parameters: dict[str, Value]
    text: str


class BoundView(TypedDict):
    """A guarantee; epsilon and grade are None where nothing is proved."""

    epsilon: float | None
    delta: float
    grade: str | None
    method: list[StatementView]
    assumptions: list[StatementView]
    notes: list[StatementView]


class GuaranteeView(TypedDict):
    """A guarantee by itself: what `Guarantee.to_json` returns."""

    epsilon: float
    delta: float
    grade: str
    method: list[StatementView]
    assumptions: list[StatementView]
    notes: list[StatementView]


class PartView(TypedDict):
    """A guarantee beside that of the certificate: of one honest hop, or of the local budget where everyone colludes."""

    epsilon: float
    delta: float
    grade: Literal["CERTIFIED"]
    method: list[StatementView]
    assumptions: list[StatementView]


class TierView(TypedDict):
    """The people of one local budget, and their guarantee; "steps", where asked for, say how the number came about."""

    local_epsilon: float
    local_delta: float
    up_to: bool
    count: int
    epsilon: float
    delta: float
    steps: NotRequired[list[StatementView]]


class ComparisonView(TypedDict):
    """A published bound at the same setting; epsilon is None outside the bound's range."""

    name: str
    epsilon: float | None
    grade: str
    status: str
    reference: str
    notes: list[StatementView]


class LowerBoundView(TypedDict):
    """What an attack reaches: all three, or None for all three where no attack was run."""

    epsilon: float | None
    delta: float | None
    attack: str | None


class BudgetPrivacyView(TypedDict):
    """How well the counts of tiers hide one person's budget, and how many users of a budget are not counted at most."""

    epsilon: float
    delta: float
    most_uncounted: int


class CertificateFields(TypedDict):
    """The keys that every certificate has, with the same types."""

    delta: float
    grade: str
    method: list[StatementView]
    assumptions: list[StatementView]
    num_users: int
    dishonest: int
    numerical_slack: float
    tiers: list[TierView]
    notes: list[StatementView]
    one_honest_hop: PartView | None
    everyone_else_colludes: PartView
    comparison: list[ComparisonView]
    lower_bound: LowerBoundView
    randomizer: str
    linkage: str
    rounds: int
    budget_privacy: BudgetPrivacyView | None


@final
class CertificateView(CertificateFields):
    """A certificate of `croupier.certify`."""

    schema: int
    epsilon: float


class CommitmentView(TypedDict):
    """A signed list of a round's messages, and its signatures by the signer's name, in hexadecimal digits."""

    payload: str
    signatures: dict[str, str]


@final
class RoundCertificateView(CertificateFields):
    """What the accountant has signed about a round; epsilon is None if it was refused. Digests are in hexadecimal."""

    schema: int
    epsilon: float | None
    round_id: RoundId
    manifest_hash: str
    batch_digest: str
    granted: bool
    refusals: list[StatementView]
    num_tickets: int
    fake_tickets: list[int]
    num_reports: int
    num_answers: int | None
    reports_digest: str
    report_drops: dict[str, int]
    budget_drops: dict[str, int]
    invalid_budgets: int
    unknown_budgets: int
    unknown_budget_epsilon: float | None
    commitments: list[CommitmentView]


def proved_epsilon(certificate: CertificateView | RoundCertificateView) -> float:
    """Returns the epsilon of a certificate. Raises ValueError for a refused round, which has none."""
    if certificate["epsilon"] is None:
        raise ValueError("the accountant refused this round: it has no epsilon")
    return certificate["epsilon"]
