"""Cross tables from a CSV file and from a survey's file, through a round, as JSON, in the terminal and in sentences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from croupier.client.submission import Participant
from croupier.deploy.local.csv_columns import CsvFile
from croupier.deploy.local.demo_plan import questions_on
from croupier.operator.reports import collect
from croupier.operator.round_settings import RoundSettings
from croupier.operator.survey_file import read_survey_file
from croupier.protocol.crossed import crossed
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.names import JsonObject
from croupier.protocol.questions import Question
from croupier.show.cross_tables import add_computed, cross_table, has_table, share_model, sum_of
from croupier.show.published import publication_json
from croupier.show.report import ReportRound, report_of
from croupier.show.results import cross_table_lines, result_blocks
from tests.support.blocks import words_of
from tests.support.console import served
from tests.support.messages import naming
from tests.support.participants import chromium, is_for_everybody
from tests.support.rounds import Table, table

ROWS, COLUMNS = ("yes", "no"), ("good", "so-so", "bad")
PAIRS = Question("smokes_x_mood", KaryResponse(6, crossed(ROWS, COLUMNS)))
VALUES = [0] * 20 + [1] * 20 + [2] * 80 + [3] * 100 + [4] * 50 + [5] * 30
"""300 people: of smokers two thirds are in a bad mood, of the others a sixth."""
BAD = ["yes × bad", "no × bad"]
SURVEY = """
name = "health"
title = "Health"
consent = "I agree."
budgets = [1.0, 2.0]

[[questions]]
name = "smokes"
question = "Do you smoke?"
choices = ["yes", "no"]

[[questions]]
name = "mood"
question = "How are you?"
choices = ["good", "so-so", "bad"]

[[questions]]
name = "smokes_x_mood"
question = "Do you smoke, and how are you?"
cross = {cross}

[translations.de]
title = "Gesundheit"
consent = "Ja."
[translations.de.questions]
smokes = {{question = "Rauchen Sie?", choices = ["ja", "nein"]}}
mood = {{question = "Wie geht es?", choices = ["gut", "geht so", "schlecht"]}}
smokes_x_mood = {{question = "Rauchen Sie, und wie geht es?"}}
"""


async def asked(at: Table, question: Question = PAIRS) -> tuple[JsonObject, Any, Any]:
    """Returns the result of a round of 300 people, and its verified document."""
    terms = await at.operator.open_round(
        RoundSettings(question, (4.0,), min_batch_size=20, epsilon_max=4.0, delta=1e-4)
    )
    await at.submit(terms, [Participant(value, 4.0) for value in VALUES])
    publication, certificate = await at.finish(terms)
    return publication_json(publication, certificate), publication, certificate


@pytest.mark.slow
@pytest.mark.virtual_time
async def test_a_table_is_read_off_a_round(tmp_path: Path) -> None:
    async with table(tmp_path, 2) as at:
        _, publication, certificate = await asked(at)
    model = share_model(publication, certificate)
    cross = cross_table(model, PAIRS.name)
    assert cross["questions"] == ["smokes", "mood"]
    for row, (cells, margin) in enumerate(zip(cross["cells"], cross["row_shares"], strict=True)):
        assert sum(cells) == pytest.approx(margin["projected"])
        assert abs(margin["estimate"] - (0.4, 0.6)[row]) < 6 * margin["standard_error"]
    for column, margin in enumerate(cross["column_shares"]):
        assert sum(row[column] for row in cross["cells"]) == pytest.approx(margin["projected"])
    bad = cross["within_rows"][0][2]
    assert abs(bad["projected"] - 2 / 3) < 6 * bad["standard_error"]
    assert cross["independence"]["degrees"] == 2
    assert cross["independence"]["p_value"] < 1e-3
    lines = cross_table_lines(cross)
    assert any(line.startswith("mood “bad” is less common with smokes “no” than with “yes”") for line in lines)
    assert "depend on" in lines[-1]
    total = sum_of(model, ["yes × bad", "no × bad"])
    assert total["share"] == cross["column_shares"][2]
    result = {**publication_json(publication, certificate), "table": cross, "sums": [total]}
    text = words_of(*result_blocks(result))
    assert "100.0" in text
    assert "yes × bad or no × bad" in text
    with pytest.raises(ValueError, match="one of the categories"):
        sum_of(model, ["yes × perfect"])


@pytest.mark.slow
@pytest.mark.virtual_time
async def test_a_report_has_the_table_and_the_sums(tmp_path: Path) -> None:
    async with table(tmp_path, 2) as at:
        result, *document = await asked(at)
        plain, *other = await asked(at, Question("letter", KaryResponse(6)))
    add_computed(result, document[0], document[1], [BAD], table=has_table(result))
    assert not has_table(plain)
    with pytest.raises(ValueError, match="not pairs"):
        cross_table(share_model(*other), "letter")
    assert cross_table(share_model(*document), "bit")["questions"][0] == "rows"
    assert [each["categories"] for each in result["sums"]] == [BAD]
    page = report_of("Health", [ReportRound(json.loads(json.dumps(result)))])
    for share in result["table"]["within_rows"][0]:
        low, high = share["confidence_interval"].values()
        assert 0 <= low <= share["projected"] <= high <= 1
    for text in ("smokes and mood together", "mood among those who answered “yes”", "yes × bad or no × bad"):
        assert text in page
    assert "Smokes and mood depend on each other" in page
    assert page.count('class="scale"') == 4  # the question, the sum, and each of two rows
    result["table"]["within_rows"][0][0]["projected"] = float("nan")
    with pytest.raises(ValueError, match=r"the table or the sums of .* cannot be read"):
        report_of("Health", [ReportRound(result)])


@pytest.mark.slow
@pytest.mark.virtual_time
async def test_a_report_on_a_round_computes_its_table(tmp_path: Path) -> None:
    async with table(tmp_path, 2) as at:
        result, *_ = await asked(at)
        how = (at.inside.directory, 5.0, at.inside.transport, None, lambda _: None)
        collected = await collect([result["round_id"]], *how, [BAD])
        assert collected.rounds[0].result["table"]["rows"] == ["yes", "no"]
        assert collected.rounds[0].result["sums"][0]["categories"] == BAD
        with pytest.raises(ValueError, match=naming("sum", "maybe")):
            await collect([result["round_id"]], *how, [["maybe"]])


@pytest.mark.slow
async def test_the_console_shows_tables_and_sums(tmp_path: Path) -> None:
    async with table(tmp_path, 2) as at, served(at.inside.directory, at) as url, chromium() as browser:
        result, *document = await asked(at)
        page = await browser.new_page(viewport={"width": 1000, "height": 900})
        await page.goto(f"{url}rounds/{result['round_id']}")
        await page.get_by_role("heading", name="smokes and mood together").wait_for()
        await page.get_by_role("heading", name="mood among those who answered “no”").wait_for()
        await page.get_by_text("depend on each other: χ²").wait_for()
        await page.get_by_text("Add answers up").click()
        for label in BAD:
            await page.get_by_label(label, exact=True).check()
        await page.get_by_role("button", name="Show the share").click()
        add_computed(result, document[0], document[1], [BAD], table=False)
        await page.get_by_text(f"{100 * result['sums'][0]['share']['projected']:.1f} %", exact=True).first.wait_for()
        await page.get_by_role("heading", name="smokes and mood together").wait_for()
        await is_for_everybody(page)
        response = await page.goto(f"{url}rounds/{result['round_id']}?sum=6")
        assert response is not None
        assert response.status == 400


def test_two_columns_are_asked_as_one(tmp_path: Path) -> None:
    (path := tmp_path / "people.csv").write_text("smokes,mood\n1,good\n0,bad\n0,good\n1,so-so\n,good\n")
    file = CsvFile(path)
    ((asked),) = questions_on(file, ["smokes*mood"], None, None, ["good;so-so;bad"][:0])
    labels = asked.question.mechanism.categories
    assert asked.question.name == "smokes_x_mood"
    assert labels == crossed(("0", "1"), ("bad", "good", "so-so"))
    assert [text for _, text in file.column("smokes*mood")] == [labels[4], labels[0], labels[1], labels[5], ""]
    with pytest.raises(ValueError, match="has no column 'age'"):
        questions_on(file, ["smokes*age"], None, None, [])
    with pytest.raises(ValueError, match="of categories"):
        questions_on(file, ["smokes*mood"], 0.0, 1.0, [])


def test_a_survey_asks_two_questions_as_one(tmp_path: Path) -> None:
    (path := tmp_path / "survey.toml").write_text(SURVEY.format(cross='["smokes", "mood"]'))
    survey = read_survey_file(path)
    (question,) = survey.asked()
    assert question.mechanism == PAIRS.mechanism
    assert [wording.choices[:2] for wording in question.wordings] == [
        ("yes × good", "yes × so-so"),
        ("ja × gut", "ja × geht so"),
    ]
    assert survey.grids() == ((1.0, 2.0),)
    for wrong in ('["smokes", "smokes"]', '["smokes", "age"]', '["smokes", "smokes_x_mood"]'):
        path.write_text(SURVEY.format(cross=wrong))
        with pytest.raises(ValueError, match="two different questions"):
            read_survey_file(path)
