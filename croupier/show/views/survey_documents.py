"""Surveys: their terms before people answer, their results together, and who is invited."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from croupier.protocol.certificate_views import GuaranteeView
from croupier.show.views.published_results import ResultView
from croupier.show.views.questions import TermsView, WordingView


class SurveyBudgetView(TypedDict):
    """A budget of all answers together, the budgets of each answer, and the largest probability of a right guess."""

    epsilon: float
    of_each: list[float]
    alone_right_at_most: float


class OneHonestHopView(TypedDict):
    """The guarantee of all answers together if one hop is honest."""

    epsilon: float
    delta: float
    right_at_most: float


class SurveyView(TypedDict):
    """A survey before it is answered; "wordings" are the fields of `protocol.surveys.SurveyWording` by language."""

    survey_id: str
    hash: str
    wordings: list[dict[str, str]]
    left_out: str
    budgets: list[SurveyBudgetView]
    one_honest_hop: OneHonestHopView | None
    questions: list[TermsView]


class SurveyQuestionView(TypedDict):
    """A question of a survey with its result."""

    name: str
    wordings: list[WordingView]
    result: ResultView


class SurveyResultsView(TypedDict):
    """The results of a survey; "together" is of a person who answered every question with the largest budget.

    It is None if a question was refused or there is no bound.
    """

    survey_id: str
    hash: str
    left_out: str
    wordings: list[dict[str, str]]
    questions: list[SurveyQuestionView]
    together: GuaranteeView | None


class InvitationsView(TypedDict):
    """The number of people invited to a survey; "remind" are the labels of those who have not answered."""

    survey_id: str
    made: int
    good: int
    revoked: int
    answered: int
    remind: NotRequired[list[str]]
