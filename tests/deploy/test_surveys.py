"""Surveys as an operator has them: the file, opening with failures in between, closing and reading together."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from croupier.accountant.numerics.decimals import as_decimal, sum_above, sum_as_decimals
from croupier.accountant.rounds.ledger import Ledger
from croupier.accountant.spending import Entry
from croupier.client.submission import Participant
from croupier.operator.opened_surveys import close_rounds, kept_rounds, kept_surveys, kept_versions, withdraw_rounds
from croupier.operator.operator import Operator
from croupier.operator.published_result import published_results
from croupier.operator.reports import together
from croupier.operator.survey_file import SurveyFile, read_survey_file
from croupier.operator.survey_plans import (
    forecast_closing,
    forecast_survey,
    open_survey,
    plan_survey,
    with_budgets,
)
from croupier.protocol.codes import Assumption
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.hop_noise import HopNoise
from croupier.protocol.manifest import state_name
from croupier.protocol.mechanisms.choices import MultipleChoice
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.laplace import Laplace
from croupier.protocol.mechanisms.onebit import OneBit
from croupier.protocol.mechanisms.pgr import ProjectiveResponse
from croupier.protocol.mechanisms.rr import RandomizedResponse
from croupier.protocol.names import Digest, RoundId
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.show.survey_description import survey_json, survey_sections
from tests.support import in_process, settings
from tests.support.blocks import shown as printed
from tests.support.command_line import Beside, croupier
from tests.support.messages import naming
from tests.support.rounds import Table, people, table

SURVEY = """\
name = "work-2026"
title = "How we work"
introduction = "The works council asks."
consent = "I answer for myself, of my own free will."
budgets = [1, 2, 6]
min_batch_size = 3
epsilon_max = 3
delta = 1e-4

[[questions]]
name = "mood"
question = "How satisfied are you?"
choices = ["very", "quite", "not at all"]

[[questions]]
name = "remote"
question = "Do you work from home?"

[[questions]]
name = "sleep"
question = "How long did you sleep?"
low = 0
high = 24
unit = "hours"
share = 2

[translations.de]
title = "Wie wir arbeiten"
consent = "Ich antworte für mich und freiwillig."
questions.mood = {question = "Wie zufrieden sind Sie?", choices = ["sehr", "ziemlich", "gar nicht"]}
questions.remote = {question = "Arbeiten Sie zu Hause?"}
questions.sleep = {question = "Wie lange haben Sie geschlafen?", unit = "Stunden"}
"""


def read(directory: Path, text: str = SURVEY) -> SurveyFile:
    file = directory / "survey.toml"
    file.write_text(text)
    return read_survey_file(file)


def test_a_file_states_questions_budgets_and_texts(tmp_path: Path) -> None:
    file = read(tmp_path)
    mood, remote, sleep = file.asked()
    assert mood.mechanism == KaryResponse(3, ("very", "quite", "not at all"))
    assert (remote.mechanism, sleep.mechanism) == (RandomizedResponse(), OneBit(0.0, 24.0))
    assert [wording.question for wording in sleep.wordings] == [
        "How long did you sleep?",
        "Wie lange haben Sie geschlafen?",
    ]
    assert file.grids() == ((0.25, 0.5, 1.5), (0.25, 0.5, 1.5), (0.5, 1.0, 3.0))
    assert [wording.title for wording in file.wordings()] == ["How we work", "Wie wir arbeiten"]
    thirds = read(tmp_path, SURVEY.replace("share = 2\n", ""))
    assert thirds.grids() == ((0.3333, 0.6666, 2.0), (0.3333, 0.6666, 2.0), (0.3334, 0.6668, 2.0))


def test_people_may_choose_several_answers(tmp_path: Path) -> None:
    several = SURVEY.replace('"not at all"]\n', '"not at all"]\nseveral = true\n', 1)
    mood, *_ = read(tmp_path, several).asked()
    assert mood.mechanism == MultipleChoice(3, ("very", "quite", "not at all"))
    with pytest.raises(ValueError, match=r"'mood'.*'quite; or so'"):
        read(tmp_path, several.replace('"quite"', '"quite; or so"'))


def test_a_question_names_any_mechanism_of_its_form(tmp_path: Path) -> None:
    named = SURVEY.replace("high = 24\n", 'high = 24\nrandomizer = "laplace(lattice=50)"\n', 1)
    named = named.replace('"not at all"]\n', '"not at all"]\nrandomizer = "pgr(q=2)"\n', 1)
    mood, *_, sleep = read(tmp_path, named).asked()
    assert mood.mechanism == ProjectiveResponse(3, ("very", "quite", "not at all"), 2)
    assert sleep.mechanism == Laplace(0.0, 24.0, lattice=50)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('name = "remote"', 'name = "mood"', "'mood'"),
        ("share = 2", "budgets = [1]", "survey.*'sleep'"),
        ("[1, 2, 6]", "[2, 1]", r"budgets.*\[2.0.*1.0\]"),
        ("[1, 2, 6]", "[1, 0]", "budgets.1: it is 0; it must be greater than 0"),
        ("high = 24", "", "'sleep'"),
        ("high = 24", "high = 24\nseveral = true", "'sleep'.*several.*choices"),
        ("high = 24", 'high = 24\nrandomizer = "pgr(q=3)"', r"'sleep'.*'pgr\(q=3\)'.*another form.*number"),
        ("high = 24", 'high = 24\nrandomizer = "laplace(steps=3)"', "'sleep'.*steps is 3, but laplace has no steps"),
        ("high = 24", 'high = 24\nrandomizer = "laplace(lattice=x)"', "'sleep'.*lattice is 'x'.*whole number"),
        ('consent = "I', 'consnt = "I', "consnt.*consent"),
        ('title = "How', 'title = "<b>How', "no markup"),
        ("min_batch_size = 3", "min_batch_size = 1", "min_batch_size: it is 1; it must be greater than or equal to 2"),
        ("min_batch_size = 3", 'left_out = "no"', "left_out: it must be 'missing' or 'random'"),
        ("min_batch_size = 3", "closes = 2026-01-01T00:00:00", "closes: .*timezone"),
        ('"gar nicht"', '"gar nicht", "?"', "question 'mood': the wording in de has 4 choices; krr must have 3"),
        ("questions.remote", "questions.house", "translations.de"),
    ],
)
def test_a_line_that_cannot_be_is_named(tmp_path: Path, before: str, after: str, said: str) -> None:
    assert before in SURVEY
    with pytest.raises(ValueError, match=said):
        read(tmp_path, SURVEY.replace(before, after, 1))


def test_a_question_that_no_round_can_ask_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=naming("survey.toml", "'croupier survey new")):
        read_survey_file(tmp_path / "survey.toml")
    own = SURVEY.replace("budgets = [1, 2, 6]\n", "").replace("share = 2\n", "")
    for number, name in enumerate(("mood", "remote", "sleep"), start=1):
        own = own.replace(f'name = "{name}"\n', f'name = "{name}"\nbudgets = [{number}, {number + 1}]\n')
    assert read(tmp_path, own).grids() == ((1.0, 2.0), (2.0, 3.0), (3.0, 4.0))
    with pytest.raises(ValueError, match=naming("budgets")):
        read(tmp_path, own.replace("budgets = [1, 2]", "budgets = [1]"))
    with pytest.raises(ValueError, match=naming("budgets", "'mood'")):
        read(tmp_path, own.replace("budgets = [1, 2]\n", ""))


FIVE = """\
name = "five"
title = "Five questions"
consent = "I agree."
min_batch_size = {people}
""" + "".join(
    f"""
[[questions]]
name = "q{number}"
question = "How is it?"
choices = ["1", "2", "3", "4", "5"]
"""
    for number in range(5)
)


def test_parts_of_a_budget_add_up_to_what_was_written() -> None:
    """Reproduction: five questions with 0.8 each were shown as ε = 4.001 together, and with 0.1 as 0.500001."""
    for part, whole in ((0.8, 4.0), (0.1, 0.5), (0.2, 1.0)):
        assert sum_above([part] * 5) > whole
        assert sum_as_decimals([part] * 5) == whole
    assert as_decimal(sum_as_decimals([1 / 3] * 3)) >= 3 * as_decimal(1 / 3)


@pytest.mark.slow
@pytest.mark.parametrize("people", [20, 100, 1000])
def test_budgets_that_are_not_given_fit_the_minimum(tmp_path: Path, people: int) -> None:
    """Reproduction: 'survey new' proposed 1,2,4 for any survey, and 'survey open' refused them."""
    file = read(tmp_path, FIVE.format(people=people))
    assert file.needs_budgets
    completed = with_budgets(file, None)
    assert len(completed.budgets) == 4
    assert 1.0 <= completed.budgets[-1] <= 4.0
    assert with_budgets(completed, None) is completed
    survey = plan_survey(completed, None)
    assert len(survey.questions) == 5
    for place, budget in enumerate(completed.budgets):
        assert sum(terms.budget_grid[place] for terms in survey.questions) == pytest.approx(budget)


def test_without_budgets_that_fit_nothing_is_planned(tmp_path: Path) -> None:
    file = read(tmp_path, FIVE.format(people=20).replace("min_batch", "epsilon_max = 1e-5\nmin_batch"))
    with pytest.raises(ValueError, match=naming("20 people")):
        with_budgets(file, None)


@pytest.mark.virtual_time
async def test_budgets_that_could_sink_a_question_are_refused(at: Table, tmp_path: Path) -> None:
    """At the minimum of people, by the choice of one of them; nothing is opened or kept then."""
    where, how = at.inside.directory, at.inside.transport
    file = read(tmp_path, SURVEY.replace("epsilon_max = 3", "epsilon_max = 2.9"))
    with pytest.raises(
        ValueError,
        match=naming("'sleep'", 3, 3, "2.9", "5.8"),
    ):
        await open_survey(where, file, how)
    assert kept_surveys(where) == []


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[Table]:
    async with table(tmp_path, 1) as deployment:
        yield deployment


def asked_for(refusal: str) -> tuple[float, ...]:
    """Returns what a refusal says is requested of the ledger, what remains in it, and the difference."""
    numbers = re.search(r"requested ε = ([\d.]+), remaining ([\d.]+), difference ([\d.]+), at δ = 0.001", refusal)
    assert numbers is not None, refusal
    return tuple(map(float, numbers.groups()))


LIMIT = "[privacy_limit]\ntotal_epsilon = {epsilon}\ntotal_delta = 1e-3\n"


@pytest.mark.slow
@pytest.mark.virtual_time
async def test_a_survey_whose_sum_the_ledger_cannot_bear_is_not_opened(tmp_path: Path) -> None:
    """Reproduction: each question fits the limit alone, all rounds opened, and the later ones were destroyed."""
    async with table(tmp_path, 1, LIMIT.format(epsilon=4.5)) as at:
        where, how = at.inside.directory, at.inside.transport
        file = read(tmp_path)
        least, expected = await forecast_survey(where, file, 300, how)
        assert (least.people, expected.people) == (3, 300)
        assert expected.refusal == ""
        assert [len(forecast.questions) for forecast in (least, expected)] == [3, 3]
        assert asked_for(least.refusal) == pytest.approx((6, 4.5, 1.5), rel=1e-3)
        assert re.search(naming("3 questions", "3 people"), least.refusal)
        with pytest.raises(ValueError, match=naming(3)):
            await open_survey(where, file, how)
        assert kept_surveys(where) == []
        fits = read(tmp_path, SURVEY.replace("[1, 2, 6]", "[1, 2]"))
        await open_survey(where, fits, how)
        # What is open counts, although nothing is in the ledger yet; the survey itself is not counted twice.
        assert (await forecast_survey(where, fits, 0, how))[0].refusal == ""
        second = read(tmp_path, SURVEY.replace("[1, 2, 6]", "[1, 3]").replace("work-2026", "again"))
        (forecast,) = await forecast_survey(where, second, 0, how)
        assert re.search(naming("3 people", "3 rounds"), forecast.refusal)
        assert asked_for(forecast.refusal) == pytest.approx((3, 2.5, 0.5), rel=1e-3)


@pytest.mark.slow
@pytest.mark.virtual_time
async def test_questions_that_the_ledger_cannot_bear_any_more_are_held(tmp_path: Path) -> None:
    """A round that was opened at risk has used up what the survey needs; no answer to the survey is destroyed."""
    async with table(tmp_path, 1, LIMIT.format(epsilon=4.5)) as at:
        where, how = at.inside.directory, at.inside.transport
        survey = await open_survey(where, read(tmp_path, SURVEY.replace("[1, 2, 6]", "[4]")), how)
        other = await at.operator.open_round(replace(settings(min_batch_size=3, epsilon_max=3), budget_grid=(2.5,)))
        await at.submit(other, [Participant(1, 2.5)] * 3)
        for terms in kept_rounds(where, survey):
            await at.submit(terms, [Participant(0, 4.0)] * 3)
        await at.finish(other)
        forecasts = await forecast_closing(where, survey.round_ids(), transport=how)
        assert [all(not outcome.refusals for outcome in forecasts[name].outcomes) for name in forecasts] == [
            True,
            False,
            False,
        ]
        closed = await close_rounds(where, survey.round_ids(), transport=how)
        assert [state_name(status.state) for status in closed.values()] == ["CLOSED", "OPEN", "OPEN"]
        assert [status.num_clients for status in closed.values()] == [3, 3, 3]
        publication, _ = await at.operator.result(RoundId("work-2026-1"), 60.0)
        assert publication.num_reports == 3
        assert list(await forecast_closing(where, survey.round_ids(), transport=how)) == ["work-2026-2", "work-2026-3"]


@pytest.mark.virtual_time
async def test_an_opening_that_was_cut_short_goes_on(
    at: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second round's opening reaches the accountant and not hop 1; the same call again opens what is missing."""
    said: list[str] = []
    file, where, how = read(tmp_path), at.inside.directory, at.inside.transport
    honest, opened = Operator.open_signed, []

    async def fail_once(self: Operator, document: pb.SignedRound) -> Any:
        opened.append(document)
        if len(opened) == 2:
            control = self._control("accountant")
            await control.Open(rpc.OpenRequest(round=document))
            raise Refusal(Code.OVERLOADED)
        return await honest(self, document)

    monkeypatch.setattr(Operator, "open_signed", fail_once)
    with pytest.raises(Refusal):
        await open_survey(where, file, how, said.append)
    (line,) = said
    assert re.search(naming(1, "3 rounds", "'work-2026'", "(work-2026-1)"), line)
    async with at.operator.client(tmp_path / "client") as client:
        with pytest.raises(Refusal, match="work-2026-2"):
            await client.rounds_of(RoundId("work-2026-1"))
        survey = await open_survey(where, file, how, said.append)
        again = (await open_survey(where, file, how), *kept_versions(where, "work-2026").values())
        assert {one.hash for one in again} == {survey.hash}
        rounds = await client.rounds_of()
        assert [terms.id for terms in rounds] == ["work-2026-1", "work-2026-2", "work-2026-3"]
    with pytest.raises(ValueError, match=naming("'work-2026'", "terms")):
        await open_survey(where, read(tmp_path, SURVEY.replace("[1, 2, 6]", "[1, 2, 5]")), how)
    document = survey_json([asked.terms for asked in rounds], states=["OPEN"] * 3)
    assert [budget["epsilon"] for budget in document["budgets"]] == [1.0, 2.0, 6.0]
    assert document["one_honest_hop"] is None
    text = printed(*survey_sections(document, 0.0))
    for expected in ("How we work", "of my own free will", "Do you work from home?", "0.25 + 0.25 + 0.5"):
        assert expected in text
    withdrawn = await withdraw_rounds(where, survey.round_ids(), transport=how)
    assert {state for states in withdrawn.values() for state in states.values()} == {"DISPOSED"}


@pytest.mark.virtual_time
async def test_the_round_of_a_single_question_has_the_name_of_the_survey(at: Table, tmp_path: Path) -> None:
    where, how = at.inside.directory, at.inside.transport
    single = SURVEY.partition("[[questions]]")[0] + '[[questions]]\nname = "remote"\nquestion = "From home?"\n'
    survey = await open_survey(where, read(tmp_path, single.replace("[1, 2, 6]", "[1]")), how)
    (terms,) = kept_rounds(where, survey)
    assert (terms.round_id, survey.round_ids()) == ("work-2026", ("work-2026",))
    async with at.operator.client(tmp_path / "client") as client:
        (asked,) = await client.rounds_of(RoundId("work-2026"))
        assert asked.terms.hash == terms.hash
    await at.submit(terms, [Participant(1, 1.0)] * 3)
    assert [*await close_rounds(where, survey.round_ids(), transport=how)] == ["work-2026"]
    results = await published_results(where, "work-2026", 60.0, how)
    assert [question.publication.num_reports for question in results] == [3]


@pytest.mark.virtual_time
async def test_a_survey_with_hop_noise_states_the_sum_of_its_questions(at: Table, tmp_path: Path) -> None:
    where, how = at.inside.directory, at.inside.transport
    noisy = SURVEY.replace("delta = 1e-4", "delta = 1e-4\nhop_noise = 0.1\nhop_noise_delta = 1e-5")
    survey = await open_survey(where, read(tmp_path, noisy), how)
    rounds = kept_rounds(where, survey)
    assert [terms.fakes and terms.fakes.noise for terms in rounds] == [HopNoise(0.1, 1e-5)] * 3
    document = survey_json(rounds, states=["OPEN"] * 3)
    honest = document["one_honest_hop"]
    assert honest is not None
    assert (honest["epsilon"], honest["delta"]) == (0.3, 3e-5)
    assert honest["right_at_most"] == pytest.approx((math.exp(0.3) + 3e-5) / (math.exp(0.3) + 1))
    assert re.search(naming("ε = 0.3", "δ = 3e-05"), " ".join(printed(*survey_sections(document, 0.0)).split()))


@pytest.mark.slow
@pytest.mark.virtual_time
async def test_what_all_questions_together_cost_is_the_sum(at: Table, tmp_path: Path) -> None:
    where, how = at.inside.directory, at.inside.transport
    survey = await open_survey(where, read(tmp_path), how)
    async with at.operator.client(tmp_path / "client") as client:
        for round_of_survey in await client.rounds_of():
            await at.submit(round_of_survey.terms, people(round_of_survey.terms.question, 40, 1))
    closed = await close_rounds(where, survey.round_ids(), transport=how)
    assert {(state_name(status.state), status.num_clients) for status in closed.values()} == {("CLOSED", 40)}
    assert closed.keys() == (await close_rounds(where, survey.round_ids(), transport=how)).keys()
    results = await published_results(where, "work-2026", 60.0, how)
    assert [question.terms.survey.hash for question in results] == [survey.hash] * 3
    granted = [question.certificate for question in results]
    guarantee = together(results)
    assert guarantee is not None
    assert guarantee.epsilon >= sum(certificate.epsilon for certificate in granted) * (1 - 1e-9)
    assert guarantee.delta == pytest.approx(3e-4)
    assert Assumption.FIXED_TERMS in {assumption.code for assumption in guarantee.assumptions}
    other = await at.operator.open_round(settings(min_batch_size=3), RoundId("plain-1"))
    await at.submit(other, people(other.question, 5, 2))
    await at.finish(other)
    with pytest.raises(Refusal, match=naming("'plain'")):
        await published_results(where, "plain", 60.0, how)


@pytest.mark.slow
async def test_a_survey_from_the_command_line(tmp_path: Path) -> None:
    """Typed as an operator types it; services over TLS, as the commands know no other way."""
    place, file = tmp_path / "d", tmp_path / "survey.toml"
    typed = ["How we work", "", "", "The council asks.", "I agree.", "3", "y"]
    typed += ["mood", "How satisfied are you?", "very; quite; not at all", "y"]
    typed += ["sleep", "How long did you sleep?", "", "y", "0", "24", "hours", "n", "n", "1,2", ""]
    said = await asyncio.to_thread(partial(croupier, "survey", "new", file, typed="\n".join(typed)))
    assert "opens it" in " ".join(said.stdout.split())
    assert "With 3 people, all questions together: at most ε = 2 " in " ".join(said.stdout.split())
    assert re.search(naming("3 people"), " ".join(said.stdout.split()))
    assert re.search(naming("0.25", "0.5", 1, 2, "budgets"), " ".join(said.stderr.split()))
    assert "choose another file, or change it" in croupier("survey", "new", file, expect=2).stderr
    text = file.read_text().replace('name = "how-we-work"', 'name = "how-we-work"\nepsilon_max = 3\ndelta = 1e-3')
    text = text.replace("budgets = [1.0, 2.0]", "budgets = [2, 4]")
    file.write_text(text)
    assert read_survey_file(file).left_out == "random"

    ask = Beside(place).ask

    async with in_process(place, 1, LIMIT.format(epsilon=4.5)) as inside:
        forecast = await ask("survey", "check", file, "--expected", "30")
        assert [(outcome["people"], outcome["granted"]) for outcome in forecast["forecasts"]] == [(3, True), (30, True)]
        least, expected = forecast["forecasts"]
        assert [question["forecast"]["num_reports"] for question in expected["questions"]] == [30, 30]
        assert 4.0 >= least["epsilon"] > expected["epsilon"] > 0
        assert least["ledger"]["remaining_epsilon"] == 4.5
        assert 0.4 < least["remaining_epsilon"] <= 0.5 < expected["remaining_epsilon"]
        said = await asyncio.to_thread(croupier, "survey", "check", file, "--dir", place)
        assert "mood" in said.stdout
        assert "With 3 people, all questions together: at most ε = " in " ".join(said.stdout.split())
        opened = await ask("survey", "open", file)
        assert opened["round_ids"] == ["how-we-work-1", "how-we-work-2"]
        shown = await ask("survey", "show", "how-we-work")
        assert [budget["epsilon"] for budget in shown["budgets"]] == [2.0, 4.0]
        assert shown["hash"] == opened["hash"]
        values = {"how-we-work-1": "quite", "how-we-work-2": "7"}
        for _ in range(3):
            for round_id, value in values.items():
                mine = ("submit", "--value", value, "--epsilon", "2", "--enrol", "--round", round_id)
                await ask(*mine, "--another-person")
        wrong = partial(croupier, "survey", "close", "how-we-work", "--forecast", "--at-risk", expect=2)
        assert "--forecast closes nothing" in (await asyncio.to_thread(wrong)).stderr
        now = await ask("survey", "close", "how-we-work", "--forecast")
        assert [closing["always_granted"] for closing in now["rounds"].values()] == [True, True]
        # The ledger has a round that nobody asked about when the survey was opened.
        store = inside.running["accountant"].service.store
        await store.run(
            "enter",
            lambda tx: Ledger(tx.connection).enter(
                RoundId("earlier"), Digest(b"d" * 32), [Entry(1.5, 0.0, 3, 1.5, 0.0)]
            ),
        )
        held = await ask("survey", "close", "how-we-work", "--forecast", expect=3)
        assert [closing["always_granted"] for closing in held["rounds"].values()] == [True, False]
        close = partial(croupier, "survey", "close", "how-we-work", "--dir", place, expect=3)
        said = await asyncio.to_thread(close)
        assert "how-we-work-2: OPEN (at risk: held), 3 answers" in said.stdout
        assert "the ledger would reach epsilon" in " ".join(said.stdout.split())
        assert "croupier survey close how-we-work-2 --at-risk" in said.stdout
        await store.run("forget", lambda tx: tx.connection.execute(sa.text("delete from ledger where count = 3")))
        closed = await ask("survey", "close", "how-we-work")
        assert {closing["num_clients"] for closing in closed["rounds"].values()} == {3}
        results = await ask("survey", "results", "how-we-work")
        assert [question["result"]["num_reports"] for question in results["questions"]] == [3, 3]
        assert 3.9 < results["together"]["epsilon"] <= 4.0
        plain = await asyncio.to_thread(croupier, "survey", "results", "how-we-work", "--dir", place)
        assert re.search(naming("How satisfied are you?", "counted: 3"), " ".join(plain.stdout.split()))
        assert "All questions together" in plain.stdout
        assert json.loads(json.dumps(results)) == results


def test_a_files_name_without_its_ending_opens_no_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would have opened a question of yes or no with the name of the survey."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "how-we-work.toml").write_text(SURVEY)
    for command in ("open", "check"):
        said = croupier("survey", command, "how-we-work", "--dir", str(tmp_path), expect=2).stderr
        assert re.search(naming("how-we-work.toml", "is a file here"), said)
