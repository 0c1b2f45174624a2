"""Forecasts on the command line: what is offered, which omissions are said, and rounds that are held or refused."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

from croupier.cli.question_options import QuestionOptions
from croupier.client.submission import Participant, send
from croupier.console.app import make_app
from croupier.console.guard import Listening
from croupier.console.source import Source
from croupier.operator.operator import Operator
from croupier.operator.overview import overview
from croupier.operator.survey_file import SurveyFile
from croupier.operator.survey_plans import SurveyForecast, plan_survey, survey_from, with_budgets
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import RoundId
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.runtime.metrics import Metrics
from croupier.show.forecasts import (
    closing_lines,
    forecast_json,
    ledger_line,
    survey_forecast_json,
    survey_forecast_lines,
    survey_forecast_table,
)
from croupier.show.ledger import MOST_FORECAST, left_lines
from tests.support import in_process
from tests.support.clients import seal_all_of
from tests.support.command_line import Beside, answer, croupier, refused
from tests.support.gateways import get
from tests.support.messages import naming

WIDE = "0.1,0.25,0.5,1,2,4"
FEW = ("survey", "check", "one", "--min-batch-size", "20")


def asked(**options: Any) -> SurveyFile:
    return QuestionOptions(**{"min_batch_size": 20} | options).file("q", "q")


@pytest.mark.parametrize(
    "question",
    [{}, {"randomizer": "krr(k=4)"}, {"randomizer": "laplace", "low": 0.0, "high": 1.0}],
    ids=lambda question: question.get("randomizer", "rr"),
)
def test_the_default_grid_follows_from_limit_and_minimum(question: dict[str, Any]) -> None:
    """Reproduction: the form offered 4 by default, with which one person of twenty sank the round."""
    tops = []
    for people, limit in ((20, 0.3), (20, 1.0), (1000, 1.0)):
        fitting = with_budgets(asked(**question, min_batch_size=people, epsilon_max=limit), None)
        assert plan_survey(fitting, None).questions[0].budget_grid == fitting.budgets
        assert len(fitting.budgets) == 4
        assert limit * 0.99 <= fitting.budgets[-1] <= 4.0
        tops.append(fitting.budgets[-1])
    assert tops == sorted(tops)
    assert tops[0] < tops[-1]


def test_budgets_that_put_the_minimum_at_risk_are_refused_unless_they_are_wanted() -> None:
    with pytest.raises(ValueError, match=naming("budgets 2 and 4", "20 people", "at most 1 ")):
        plan_survey(asked(grid=WIDE), None)
    survey = plan_survey(asked(grid=WIDE), None, at_risk=True)
    assert survey.questions[0].budget_grid == (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
    # A limit of its own for the budget may allow it.
    plan_survey(asked(grid="0.1,0.25,0.5,1:1,2:2,4:4"), None)


def test_a_round_that_cannot_be_granted_is_refused_before_it_opens() -> None:
    hopeless = asked(grid="2,4", epsilon_max=0.5)
    for at_risk in (False, True):
        with pytest.raises(ValueError, match=naming("20 people", "at most 0.51")):
            plan_survey(hopeless, None, at_risk=at_risk)
    # With enough people it can be granted, and the operator may wait for them.
    assert plan_survey(hopeless, None, at_risk=True, expected=5000).questions[0].budget_grid == (2.0, 4.0)
    said = refused(*FEW, "--grid", "2,4", "--epsilon-max", "0.5")
    assert re.search(naming("epsilon", 2, "most 0.5"), said)
    assert re.search(naming("-1", 0), refused(*FEW, "--grid", "0.1", "--expected", "-1"))


@pytest.mark.slow
def test_a_forecast_needs_no_deployment(tmp_path: Path) -> None:
    here = ("--dir", str(tmp_path))
    forecasts = answer(*FEW, "--expected", "500", "--grid", "0.1,1", *here)["forecasts"]
    assert [forecast["people"] for forecast in forecasts] == [20, 500]
    assert all(forecast["granted"] and forecast["ledger"] is None for forecast in forecasts)
    assert forecasts[0]["epsilon"] > forecasts[1]["epsilon"] > 0
    risky, counted = answer(*FEW, "--grid", "0.1,1,4", "--at-risk", *here)["forecasts"], "counts exactly how many"
    assert [(forecast["granted"], forecast["exact_counts"]) for forecast in risky] == [(False, True)]
    assert counted in " ".join(croupier(*FEW, "--grid", "0.1,1,4", "--at-risk", *here).stdout.split())
    mixed = answer(*FEW, "--randomizer", "laplace", "--low", "0", "--high", "1", "--grid", "0.5,1", *here)
    assert mixed["forecasts"][0]["questions"][0]["range"] == 1


async def _crowd(operator: Operator, terms: RoundTerms, count: int, epsilon: float) -> None:
    sealed = await seal_all_of(operator, terms, [Participant(1, epsilon)] * count)
    named = {str(index): submission.submission for index, submission in enumerate(sealed)}
    async with operator.client_channel() as channel:
        assert set((await send(channel, terms.round_id, named)).values()) == {pb.SUBMISSION_CODE_ACCEPTED}


@pytest.mark.slow
async def test_rounds_at_risk_and_a_ledger_on_the_command_line(tmp_path: Path) -> None:
    """Over TLS, because the commands open their own connections."""
    place = tmp_path / "d"

    say, ask = Beside(place).say, Beside(place).ask

    limit = "[privacy_limit]\ntotal_epsilon = 1.5\ntotal_delta = 1e-3\nmax_rounds = 4\n"
    async with in_process(place, 1, limit) as inside, inside.operator() as operator:
        seen: list[tuple[float, float]] = []
        accountant: Any = inside.running["accountant"].service
        accountant.metrics.ledger = lambda most, remaining: seen.append((most, remaining))
        terms_of = ("--min-batch-size", "20", "--delta", "1e-4", "--epsilon-max", "1")
        opened = await ask("survey", "open", "bit", "--grid", "0.5,1,2", "--at-risk", "--expected", "300", *terms_of)
        assert opened["budgets"] == {"bit": [0.5, 1.0, 2.0]}
        assert [forecast["granted"] for forecast in opened["forecasts"]] == [False, True]
        round_id = opened["survey_id"]
        shown = await say("survey", "show", round_id)
        assert "over all rounds; after 0 rounds ε = 1.5 remains" in " ".join(shown.stdout.split())
        terms = await _terms(operator, round_id)
        await _crowd(operator, terms, 20, 0.5)
        now = (await ask("survey", "close", round_id, "--forecast", expect=3))["rounds"][round_id]
        assert (now["num_reports"], now["always_granted"]) == (20, False)
        held = await say("survey", "close", round_id, expect=3)
        assert held.stdout.startswith(f"{round_id}: OPEN (at risk: held), 20 answers\n")
        assert "no report" in " ".join(held.stdout.split())
        closed = (await ask("survey", "close", round_id, "--at-risk"))["rounds"][round_id]
        assert (closed["state"], closed["forecast"]) == ("CLOSED", None)
        result = await ask("survey", "results", round_id)
        assert result["certificate"]["granted"]

        left = await ask("ledger", "--forecast")
        assert 0 < left["ledger"]["remaining_epsilon"] < 1.5
        assert left["ledger"]["remaining_rounds"] == 3
        (more,) = left["more_rounds"]
        assert (more["like"], more["rounds"]) == (round_id, 3)
        assert seen[-1] == pytest.approx((1.5, left["ledger"]["remaining_epsilon"]))
        assert (await overview(operator, {})).get("ledger") == left["ledger"]
        async with Source(place) as source:
            page = await get(make_app(source, Listening()), "/", host="127.0.0.1:8780")
            assert "; after 1 round ε = " in page.body.decode()
        (listed,) = (await ask("status"))["rounds"]
        assert listed["round_id"] == round_id
        said = await say(
            "survey", "open", "costly", "--grid", "1.4", "--epsilon-max", "2", "--min-batch-size", "2", expect=2
        )
        assert re.search(naming("2 people"), " ".join(said.stderr.split()))
        assert re.search(naming("'croupier ledger --forecast'"), " ".join(said.stderr.split()))
        await ask("survey", "open", "next", "--grid", "0.1", *terms_of)
        beside = await ask("ledger", "--forecast")
        assert (beside["ledger"]["rounds"], beside["ledger"]["pending_rounds"]) == (1, 1)
        assert beside["ledger"]["remaining_epsilon"] < left["ledger"]["remaining_epsilon"]
        assert (beside["ledger"]["remaining_rounds"], beside["more_rounds"][0]["rounds"]) == (2, 2)


async def _terms(operator: Operator, round_id: str) -> RoundTerms:
    from croupier.client.round_checks import fetch_terms

    async with operator.client_channel() as channel:
        return await fetch_terms(channel, operator.deployment, RoundId(round_id))


def test_what_is_left_is_a_number_for_prometheus() -> None:
    numbers = Metrics()
    assert numbers.registry.get_sample_value("croupier_ledger_limit_epsilon") == 0
    numbers.ledger(2.0, 0.5)
    assert numbers.registry.get_sample_value("croupier_ledger_limit_epsilon") == 2
    assert numbers.registry.get_sample_value("croupier_ledger_remaining_epsilon") == 0.5


def test_without_a_limit_there_is_nothing_to_forecast_of_a_ledger(tmp_path: Path) -> None:
    from croupier.operator.keys import make_deployment

    make_deployment(tmp_path, "local", 1)
    assert re.search(naming("[privacy_limit]"), refused("ledger", "--forecast", "--dir", tmp_path))
    ledger: Any = {
        "total_epsilon": 2.0,
        "total_delta": 1e-6,
        "spent_epsilon": None,
        "remaining_epsilon": 0.0,
        "rounds": 1,
        "pending_rounds": 0,
        "remaining_rounds": 1,
        "budgets": {"epsilon": 1.0, "delta": 1e-6, "rounds": 1, "exact": 0},
    }
    assert re.search(naming("1 round ε = 0 remains", "1 more"), ledger_line(ledger))
    more: Any = [{"like": "r", "epsilon": 0.1, "rounds": MOST_FORECAST}]
    assert "at least 1,000 more rounds like r" in left_lines({"ledger": ledger, "more_rounds": more})[1]
    assert "No round" in left_lines({"ledger": ledger, "more_rounds": []})[1]


def test_what_stragglers_cost_is_said_before_a_round_is_closed() -> None:
    from croupier.accountant.rounds.account import Account
    from croupier.accountant.rounds.account import answer as accountant_says

    (terms,) = survey_from(asked(grid="0.5,1.5", min_batch_size=100), None).questions
    alone, late = (
        closing_lines(forecast_json(accountant_says(terms, 100, tickets, Account(), ())), RoundId("r"))
        for tickets in (101, 160)
    )
    assert re.search(naming("1 person"), alone[0])
    assert "is granted if" in alone[1]
    assert re.search(naming("60 people"), late[0])
    assert "At risk: with 100 reports" in late[1]
    assert "have tickets" in late[3]
    assert late[4] == "  croupier survey close r --at-risk"


def test_errors_of_a_survey_have_the_unit_of_their_question() -> None:
    """Reproduction: "error .99 to 10" of a question about minutes."""
    outcome = rpc.ForecastOutcome(epsilon=0.5, standard_error=0.02)
    response = rpc.ForecastResponse(num_reports=100, num_tickets=100, outcomes=[outcome])
    scales = {"waiting": (480.0, "minutes"), "pain": (10.0, "")}
    view = survey_forecast_json(100, dict.fromkeys(("waiting", "pain", "smokes"), response), (1.5, 3e-6), "", scales)
    table = survey_forecast_table([view])
    assert [row[table.columns.index("error")] for row in table.rows] == [
        "9.6 to 9.6 minutes",
        "0.2 to 0.2",
        "2 to 2 points",
    ]


def test_a_survey_of_which_a_question_has_no_bound_has_none_itself() -> None:
    """Reproduction: OverflowError: cannot convert Infinity to integer ratio."""
    bounded, unbounded = (
        rpc.ForecastResponse(outcomes=[rpc.ForecastOutcome(epsilon=epsilon)]) for epsilon in (0.1, math.inf)
    )
    assert SurveyForecast(9, {"a": bounded, "b": bounded, "c": bounded}, 1e-6).epsilon == 0.3
    survey = SurveyForecast(9, {"a": bounded, "b": unbounded}, 1e-6)
    view = survey_forecast_json(9, survey.questions, (survey.epsilon, survey.delta), survey.refusal, {})
    assert view["epsilon"] is None
    assert "no bound" in survey_forecast_lines([view])[0]
