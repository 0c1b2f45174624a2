"""Cross tables, sums of categories and quantile searches, as the console and a report show them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import async_playwright

from croupier.analyzer.quantile_search import QuantileSearch
from croupier.client.submission import Participant
from croupier.deploy.local.quantiles import search_with
from croupier.deploy.local.rounds import RoundOutcome
from croupier.operator.quantiles import check_search_is_new, keep_search, kept_search, kept_searches
from croupier.operator.reports import collect
from croupier.operator.round_settings import RoundSettings
from croupier.protocol.crossed import crossed
from croupier.protocol.mechanisms import KaryResponse
from croupier.protocol.questions import Question
from croupier.show.cross_tables import add_sums, add_table, within_numbers
from croupier.show.published import publication_json
from croupier.show.quantile_search import quantile_json, read_search
from croupier.show.report import ReportRound, report_of
from croupier.show.views.quantiles import SearchedQuantileView
from croupier.show.views.results import ResultView
from tests.support.console import served
from tests.support.messages import naming
from tests.support.rounds import Table, table

PAIRS = Question("smokes_x_mood", KaryResponse(6, crossed(("yes", "no"), ("good", "so-so", "bad"))))
VALUES = [0] * 20 + [1] * 20 + [2] * 80 + [3] * 100 + [4] * 50 + [5] * 30
BAD = ["yes × bad", "no × bad"]
SEARCH: SearchedQuantileView = {
    "name": "income",
    "q": 0.5,
    "estimate": 30_000.0,
    "interval": [10_000.0, 50_000.0],
    "confidence_level": 0.95,
    "steps": [
        {
            "round_id": "b",
            "threshold": 50_000.0,
            "share": 1.04,
            "standard_error": 0.1,
            "interval": [0.8, 1.0],
            "people": 40,
        },
        {
            "round_id": "a",
            "threshold": 10_000.0,
            "share": 0.2,
            "standard_error": 0.1,
            "interval": [0.1, 0.4],
            "people": 50,
        },
    ],
    "guarantee": {"epsilon": 0.7, "delta": 1e-6, "grade": "CERTIFIED", "method": [], "assumptions": [], "notes": []},
}


async def asked(at: Table, question: Question = PAIRS) -> tuple[ResultView, Any, Any]:
    """Returns the result of a round of 300 people, and its verified document."""
    terms = await at.operator.open_round(
        RoundSettings(question, (4.0,), min_batch_size=20, epsilon_max=4.0, delta=1e-4)
    )
    await at.submit(terms, [Participant(value, 4.0) for value in VALUES])
    publication, certificate = await at.finish(terms)
    return publication_json(publication, certificate), publication, certificate


@pytest.mark.asyncio
@pytest.mark.virtual_time
async def test_a_report_has_the_table_and_the_sums(tmp_path: Path) -> None:
    async with table(tmp_path, 2) as at:
        result, *document = await asked(at)
        plain, *other = await asked(at, Question("letter", KaryResponse(6)))
    add_table(result, *document)
    add_sums(result, document[0], document[1], [BAD, ["a", "b"]])
    add_table(plain, *other)
    add_sums(plain, other[0], other[1], [BAD])
    assert "table" not in plain
    assert "sums" not in plain
    assert [each["categories"] for each in result["sums"]] == [BAD]
    page = report_of("Health", [ReportRound(json.loads(json.dumps(result)))])
    (_, smokers), _ = within_numbers(result["table"])
    for number in smokers:
        assert 0 <= number.interval[0] <= number.projected <= number.interval[1] <= 1
    for text in ("smokes and mood together", "mood among those who answered “yes”", "yes × bad or no × bad"):
        assert text in page
    assert "Smokes and mood depend on each other" in page
    assert page.count('class="scale"') == 4  # the question, the sum, and each of two rows
    result["table"]["within_rows"][0][0]["projected"] = float("nan")
    with pytest.raises(ValueError, match=r"the table or the sums of .* cannot be read"):
        report_of("Health", [ReportRound(result)])


@pytest.mark.asyncio
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


@pytest.mark.asyncio
async def test_a_report_shows_a_search_from_a_file(tmp_path: Path) -> None:
    (file := tmp_path / "search.json").write_text(json.dumps(SEARCH))
    collected = await collect([str(file)], tmp_path, 1.0, None, None, lambda _: None)  # type: ignore[arg-type]
    page = report_of("Income", collected.rounds, searches=collected.searches, verified=collected.deployment)
    assert page.index("at most 10000") < page.index("at most 50000")
    assert "ε = 0.7 at δ = 1e-06" in page
    assert "signatures were not checked" in page


@pytest.mark.parametrize(
    "wrong", [{"q": "half"}, {"estimate": float("nan")}, {"steps": [{}]}, {"guarantee": {"epsilon": None}}]
)
def test_a_file_that_is_not_a_search_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not a quantile search"):
        read_search({**SEARCH, **wrong})


def test_a_kept_search_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "operator").mkdir()
    assert kept_searches(tmp_path) == []
    check_search_is_new(tmp_path, "income")
    keep_search(tmp_path, SEARCH)
    assert kept_searches(tmp_path) == ["income"]
    assert kept_search(tmp_path, "income") == SEARCH
    with pytest.raises(ValueError, match="earlier search of 'income'"):
        check_search_is_new(tmp_path, "income")
    with pytest.raises(ValueError, match=r"no quantile search '\.\./x'"):
        kept_search(tmp_path, "../x")


@pytest.mark.asyncio
async def test_the_console_shows_tables_sums_and_searches(tmp_path: Path) -> None:
    binary = shutil.which("chromium")
    if binary is None:
        pytest.skip("no browser: install the package 'chromium'")
    async with table(tmp_path, 2) as at, served(at.inside.directory, at) as url, async_playwright() as playwright:
        result, *document = await asked(at)

        async def play(settings: RoundSettings, users: Mapping[str, Participant], _: object = None) -> RoundOutcome:
            terms = await at.operator.open_round(settings)
            report = await at.submit(terms, list(users.values()))
            return RoundOutcome(*await at.finish(terms), report, [], 0.0, 0.0)

        people = {f"p{place}": Participant(1000.0 * place, 4.0) for place in range(120)}
        settings = RoundSettings(PAIRS, (4.0,), min_batch_size=20, epsilon_max=4.0, delta=1e-4)
        searched = await search_with(play, QuantileSearch(0.5, 1.0, 1e5, 3), people, settings)
        keep_search(
            at.inside.directory, quantile_json("income", searched.quantile, searched.guarantee, searched.rounds)
        )
        browser = await playwright.chromium.launch(executable_path=binary)
        page = await browser.new_page(viewport={"width": 1000, "height": 900})
        await page.goto(f"{url}rounds/{result['round_id']}")
        await page.get_by_role("heading", name="smokes and mood together").wait_for()
        await page.get_by_role("heading", name="mood among those who answered “no”").wait_for()
        await page.get_by_text("depend on each other: χ²").wait_for()
        await page.get_by_text("Add answers up").click()
        for label in BAD:
            await page.get_by_label(label, exact=True).check()
        await page.get_by_role("button", name="Show the share").click()
        add_sums(result, document[0], document[1], [BAD])
        await page.get_by_text(f"{100 * result['sums'][0]['share']['projected']:.1f} %", exact=True).first.wait_for()
        await page.get_by_role("heading", name="smokes and mood together").wait_for()
        for scheme, width in (("light", 1000), ("dark", 390)):
            await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            await page.set_viewport_size({"width": width, "height": 800})
            violations = await Axe().run(page)
            assert violations.violations_count == 0, violations.generate_report()
            assert await page.evaluate("document.documentElement.scrollWidth") <= width
            await page.screenshot(path=tmp_path / f"table-{scheme}.png", full_page=True)
        response = await page.goto(f"{url}rounds/{result['round_id']}?sum=6")
        assert response is not None
        assert response.status == 400
        await page.goto(url)
        await page.get_by_role("link", name="Quantiles").click()
        await page.get_by_role("link", name="income").click()
        await page.get_by_text("The estimated median of income is").wait_for()
        assert await page.locator(".strips li").count() == 3
        violations = await Axe().run(page)
        assert violations.violations_count == 0, violations.generate_report()
        await page.screenshot(path=tmp_path / "quantile.png", full_page=True)
        await browser.close()
