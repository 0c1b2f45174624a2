"""Surveys as an operator has them: the file, opening with failures in between, closing and reading together."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from croupier.client.surveys import fetch_survey
from croupier.deploy.operator.rounds import Operator
from croupier.deploy.operator.survey_file import SurveyFile, read_survey_file
from croupier.deploy.operator.surveys import (
    close_survey,
    kept_rounds,
    kept_survey,
    open_survey,
    survey_results,
    withdraw_survey,
)
from croupier.protocol.codes import Assumption
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.hop_noise import HopNoise
from croupier.protocol.manifest import state_name
from croupier.protocol.mechanisms import KaryResponse, OneBit, RandomizedResponse
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.show.surveys import survey_json, survey_text
from tests.support import in_process, settings
from tests.support.command_line import answer, croupier
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
    assert [one.question for one in sleep.wordings] == ["How long did you sleep?", "Wie lange haben Sie geschlafen?"]
    assert file.grids() == ((0.25, 0.5, 1.5), (0.25, 0.5, 1.5), (0.5, 1.0, 3.0))
    assert [one.title for one in file.wordings()] == ["How we work", "Wie wir arbeiten"]
    thirds = read(tmp_path, SURVEY.replace("share = 2\n", ""))
    assert thirds.grids() == ((0.3333, 0.6666, 2.0), (0.3333, 0.6666, 2.0), (0.3334, 0.6668, 2.0))


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('name = "remote"', 'name = "mood"', "two questions have the name 'mood'"),
        ("budgets = [1, 2, 6]", "", "budgets is missing: give those of the whole survey, or question 'mood' its own"),
        ("share = 2", "budgets = [1]", "the survey has budgets, and question 'sleep', too"),
        ("[1, 2, 6]", "[2, 1]", r"budgets is \[2.0, 1.0\]; it must be ascending"),
        ("[1, 2, 6]", "[1, 0]", "budgets.1: it is 0; it must be greater than 0"),
        ("high = 24", "", "question 'sleep' has one of low and high; a number needs both"),
        ('consent = "I', 'consnt = "I', "consent: it is missing; consnt: there is no such line; did you mean consent"),
        ('title = "How', 'title = "<b>How', "no markup"),
        ("min_batch_size = 3", "min_batch_size = 1", "min_batch_size: it is 1; it must be greater than or equal to 2"),
        ("min_batch_size = 3", 'left_out = "no"', "left_out: it must be 'missing' or 'random'"),
        ("min_batch_size = 3", "closes = 2026-01-01T00:00:00", "closes: .*timezone"),
        ('"gar nicht"', '"gar nicht", "?"', "question 'mood': the wording in de has 4 choices; krr must have 3"),
        ("questions.remote", "questions.house", "translations.de must have the questions .*; check house, remote"),
    ],
)
def test_a_line_that_cannot_be_is_named(tmp_path: Path, before: str, after: str, said: str) -> None:
    assert before in SURVEY
    with pytest.raises(ValueError, match=said):
        read(tmp_path, SURVEY.replace(before, after, 1))


def test_a_question_that_no_round_can_ask_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"survey\.toml does not exist; 'croupier survey new"):
        read_survey_file(tmp_path / "survey.toml")
    own = SURVEY.replace("budgets = [1, 2, 6]\n", "").replace("share = 2\n", "")
    for number, name in enumerate(("mood", "remote", "sleep"), start=1):
        own = own.replace(f'name = "{name}"\n', f'name = "{name}"\nbudgets = [{number}, {number + 1}]\n')
    assert read(tmp_path, own).grids() == ((1.0, 2.0), (2.0, 3.0), (3.0, 4.0))
    with pytest.raises(ValueError, match="different numbers of budgets"):
        read(tmp_path, own.replace("budgets = [1, 2]", "budgets = [1]"))


@pytest.mark.asyncio
@pytest.mark.virtual_time
async def test_budgets_that_could_sink_a_question_are_refused(at: Table, tmp_path: Path) -> None:
    """At the minimum of people, by the choice of one of them; nothing is opened or kept then."""
    where, how = at.inside.directory, at.inside.transport
    file = read(tmp_path, SURVEY.replace("epsilon_max = 3", "epsilon_max = 2.9"))
    with pytest.raises(
        ValueError,
        match=r"question 'sleep' has the local budgets 3: with 3 .*at most 2\.9 \(5\.8 of the survey's\) is",
    ):
        await open_survey(where, file, how)
    with pytest.raises(ValueError, match="has not opened any survey"):
        kept_survey(where)


@pytest_asyncio.fixture
async def at(tmp_path: Path) -> AsyncIterator[Table]:
    async with table(tmp_path, 1) as found:
        yield found


@pytest.mark.asyncio
@pytest.mark.virtual_time
async def test_an_opening_that_was_cut_short_goes_on(
    at: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second round's opening reaches the accountant and not hop 1; the same call again opens what is missing."""
    said: list[str] = []
    file, where, how = read(tmp_path), at.inside.directory, at.inside.transport
    honest, opened = Operator.open_signed, []

    async def fail_once(self: Operator, document: pb.Signed) -> Any:
        opened.append(document)
        if len(opened) == 2:
            control = self._control("accountant")
            await control.Open(rpc.OpenRequest(manifest=document))
            raise Refusal(Code.OVERLOADED)
        return await honest(self, document)

    monkeypatch.setattr(Operator, "open_signed", fail_once)
    with pytest.raises(Refusal):
        await open_survey(where, file, how, said.append)
    (line,) = said
    assert "1 of the 3 rounds of 'work-2026' are open (work-2026-1); the same command again goes on" in line
    async with at.operator.client(tmp_path / "client") as client:
        with pytest.raises(Refusal, match="work-2026-2"):
            await fetch_survey(client, "work-2026-1")
        survey = await open_survey(where, file, how, said.append)
        assert await open_survey(where, file, how) == survey == kept_survey(where) == kept_survey(where, "work-2026")
        rounds = await fetch_survey(client)
        assert [one.id for one in rounds] == ["work-2026-1", "work-2026-2", "work-2026-3"]
    with pytest.raises(ValueError, match="was opened with other terms; bring its file back to go on with it, or give"):
        await open_survey(where, read(tmp_path, SURVEY.replace("[1, 2, 6]", "[1, 2, 5]")), how)
    document = survey_json([(one.terms, one.state) for one in rounds])
    assert [one["epsilon"] for one in document["budgets"]] == [1.0, 2.0, 6.0]
    assert document["one_honest_hop"] is None
    text = survey_text(document, 0.0).plain
    for expected in ("How we work", "of my own free will", "Do you work from home?", "0.25 + 0.25 + 0.5"):
        assert expected in text
    withdrawn = await withdraw_survey(where, survey, how)
    assert {state for states in withdrawn.values() for state in states.values()} == {"DISPOSED"}


@pytest.mark.asyncio
@pytest.mark.virtual_time
async def test_a_survey_with_hop_noise_states_the_sum_of_its_questions(at: Table, tmp_path: Path) -> None:
    where, how = at.inside.directory, at.inside.transport
    noisy = SURVEY.replace("delta = 1e-4", "delta = 1e-4\nhop_noise = 0.1\nhop_noise_delta = 1e-5")
    await open_survey(where, read(tmp_path, noisy), how)
    rounds = kept_rounds(where, "work-2026")
    assert [one.hop_noise for one in rounds] == [HopNoise(0.1, 1e-5)] * 3
    document = survey_json([(one, "OPEN") for one in rounds])
    honest = document["one_honest_hop"]
    assert (honest["epsilon"], honest["delta"]) == (0.3, 3e-5)
    assert honest["right_at_most"] == pytest.approx((math.exp(0.3) + 3e-5) / (math.exp(0.3) + 1))
    assert "all questions adds up to ε = 0.3 at δ = 3e-05" in " ".join(survey_text(document, 0.0).plain.split())


@pytest.mark.asyncio
@pytest.mark.virtual_time
async def test_what_all_questions_together_cost_is_the_sum(at: Table, tmp_path: Path) -> None:
    where, how = at.inside.directory, at.inside.transport
    survey = await open_survey(where, read(tmp_path), how)
    async with at.operator.client(tmp_path / "client") as client:
        for one in await fetch_survey(client):
            await at.submit(one.terms, people(one.terms.question, 40, 1))
    closed = await close_survey(where, survey, how)
    assert {(state_name(one.state), one.num_clients) for one in closed.values()} == {("CLOSED", 40)}
    assert closed.keys() == (await close_survey(where, survey, how)).keys()
    results = await survey_results(where, "work-2026", 60.0, how)
    assert results.survey == survey
    granted = [one.certificate for one in results.questions]
    together = results.together
    assert together is not None
    assert together.epsilon >= sum(one.epsilon for one in granted) * (1 - 1e-9)
    assert together.delta == pytest.approx(3e-4)
    assert Assumption.FIXED_TERMS in {one.code for one in together.assumptions}
    with pytest.raises(ValueError, match="has not opened survey 'other'"):
        kept_survey(where, "other")
    other = await at.operator.open_round(settings(min_batch_size=3), "plain-1")
    await at.submit(other, people(other.question, 5, 2))
    await at.finish(other)
    with pytest.raises(ValueError, match="round 'plain-1' is not of survey 'plain'"):
        await survey_results(where, "plain", 60.0, how)


@pytest.mark.asyncio
async def test_a_survey_from_the_command_line(tmp_path: Path) -> None:
    """Typed as an operator types it; services over TLS, as the commands know no other way."""
    place, file = tmp_path / "d", tmp_path / "survey.toml"
    typed = ["How we work", "", "", "The council asks.", "I agree.", "2,4", "3", "y"]
    typed += ["mood", "How satisfied are you?", "very; quite; not at all", "y"]
    typed += ["sleep", "How long did you sleep?", "", "y", "0", "24", "hours", "n", ""]
    said = croupier("survey", "new", file, typed="\n".join(typed))
    assert "opens it" in said.stdout
    assert "choose another file, or change it" in croupier("survey", "new", file, expect=2).stderr
    text = file.read_text().replace('name = "how-we-work"', 'name = "how-we-work"\nepsilon_max = 3\ndelta = 1e-3')
    file.write_text(text)
    assert read_survey_file(file).left_out == "random"

    async def ask(*arguments: str | Path, expect: int = 0) -> Any:
        return await asyncio.to_thread(answer, *arguments, "--dir", place, expect=expect)

    async with in_process(place, 1):
        forecast = await ask("survey", "forecast", file, "--expected", "30")
        assert [one["forecast"]["num_reports"] for one in forecast["questions"]] == [30, 30]
        said = await asyncio.to_thread(croupier, "survey", "forecast", file, "--dir", place)
        assert "mood: standard error" in said.stdout
        opened = await ask("survey", "open", file)
        assert opened["round_ids"] == ["how-we-work-1", "how-we-work-2"]
        shown = await ask("survey", "show", "how-we-work")
        assert [one["epsilon"] for one in shown["budgets"]] == [2.0, 4.0]
        assert shown["hash"] == opened["hash"]
        values = {"how-we-work-1": "quite", "how-we-work-2": "7"}
        for _ in range(3):
            for round_id, value in values.items():
                mine = ("submit", "--value", value, "--epsilon", "2", "--enrol", "--round", round_id)
                await ask(*mine, "--another-person")
        closed = await ask("survey", "close", "how-we-work")
        assert {one["num_clients"] for one in closed["rounds"].values()} == {3}
        results = await ask("survey", "results", "how-we-work")
        assert [one["result"]["num_reports"] for one in results["questions"]] == [3, 3]
        assert 3.9 < results["together"]["epsilon"] <= 4.0
        plain = await asyncio.to_thread(croupier, "survey", "results", "how-we-work", "--dir", place)
        assert "1. How satisfied are you? (3 answers)" in plain.stdout
        assert "All questions together" in plain.stdout
        assert json.loads(json.dumps(results)) == results
