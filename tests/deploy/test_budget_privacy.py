"""Budget privacy as an operator chooses it: the default, what is said where it is off, what a forecast says."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace

import pytest

from croupier.cli.question_options import QuestionOptions
from croupier.operator.round_settings import RoundSettings, check_settings
from croupier.operator.survey_plans import forecast_survey, plan_survey
from croupier.protocol.tier_counts import BudgetPrivacy
from croupier.show.documents import terms_json
from croupier.show.round_text import answering_sections
from tests.support import BIT
from tests.support.blocks import words_of
from tests.support.messages import naming

ROUND = RoundSettings(BIT, (0.5, 1.0, 2.0), min_batch_size=324)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, BudgetPrivacy(1.0, 1e-6)),
        ({"min_batch_size": 323}, None),
        ({"min_batch_size": 323, "budget_privacy": 1.0}, BudgetPrivacy(1.0, 1e-6)),
        ({"min_batch_size": 323, "budget_grid": (0.5, 2.0)}, BudgetPrivacy(1.0, 1e-6)),
        ({"budget_grid": (1.0,)}, None),
        ({"budget_privacy": 0.0}, None),
        ({"budget_privacy": 4.0, "budget_privacy_delta": 1e-5}, BudgetPrivacy(4.0, 1e-5)),
        ({"budget_privacy_delta": 1e-9}, None),  # 40 people of every budget
    ],
)
def test_counts_are_noised_by_default_where_a_batch_can_bear_it(
    changed: dict[str, object], expected: BudgetPrivacy | None
) -> None:
    chosen = replace(ROUND, **changed)  # type: ignore[arg-type]
    assert chosen.counted_by.privacy == expected
    assert check_settings(chosen).survey.message.HasField("budget_privacy") == (expected is not None)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"budget_privacy": 0.0, "budget_privacy_delta": 1e-6}, "budget_privacy_delta is 1e-06 with budget_privacy 0"),
        ({"budget_privacy": -1.0}, "budget_privacy epsilon is -1.0; it must be 0.001..20"),
        ({"budget_privacy_delta": 0.5}, "budget_privacy delta is 0.5; it must be 1e-12..0.001"),
    ],
)
def test_a_budget_privacy_that_cannot_be_is_refused(changed: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        check_settings(replace(ROUND, **changed))  # type: ignore[arg-type]


def test_a_round_that_noised_counts_would_have_refused_is_not_opened() -> None:
    small = QuestionOptions(grid="0.5,1,2", min_batch_size=150, epsilon_max=0.45)
    for chosen, is_said in ((small, False), (replace(small, budget_privacy=1.0), True)):
        with pytest.raises(ValueError, match="without that risk") as refused:
            plan_survey(chosen.file("bit", "bit"), None)
        assert ("or budget privacy 0" in str(refused.value)) is is_said


def test_it_is_said_that_counts_are_exact() -> None:
    for people, is_said in ((100, True), (324, False)):
        file = QuestionOptions(grid="0.5,1,2", min_batch_size=people, epsilon_max=4.0).file("bit", "bit")
        (forecast,) = asyncio.run(forecast_survey(None, file))
        assert forecast.exact_counts is is_said


def test_participants_are_told_what_the_counts_show() -> None:
    chain = ("hop", "accountant", "analyzer")
    noised = terms_json(check_settings(ROUND), chain)
    assert noised["budget_privacy"] == {"epsilon": 1.0, "delta": 1e-6, "most_uncounted": 54}
    exact = terms_json(check_settings(replace(ROUND, budget_privacy=0.0)), chain)
    assert exact["budget_privacy"] is None
    alone = terms_json(check_settings(replace(ROUND, budget_grid=(1.0,))), chain)  # which tells nothing of a person
    for terms, is_noised, is_exact in ((noised, True, False), (exact, False, True), (alone, False, False)):
        text = words_of(*answering_sections(terms | {"state": "OPEN"}, 0.0))
        assert bool(re.search(naming("54 people"), text)) is is_noised
        assert bool(re.search(naming("about yours", "73.11 %"), text)) is is_noised
        assert bool(re.search(naming("counts are exact", "compute your budget"), text)) is is_exact
