"""Cross tables and sums of categories, as the console and a report show them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import async_playwright

from croupier.client.submission import Participant
from croupier.operator.reports import collect
from croupier.operator.round_settings import RoundSettings
from croupier.protocol.crossed import crossed
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.names import JsonObject
from croupier.protocol.questions import Question
from croupier.show.cross_tables import add_sums, add_table
from croupier.show.published import publication_json
from croupier.show.report import ReportRound, report_of
from tests.support.console import served
from tests.support.messages import naming
from tests.support.rounds import Table, table

PAIRS = Question("smokes_x_mood", KaryResponse(6, crossed(("yes", "no"), ("good", "so-so", "bad"))))
VALUES = [0] * 20 + [1] * 20 + [2] * 80 + [3] * 100 + [4] * 50 + [5] * 30
BAD = ["yes × bad", "no × bad"]


async def asked(at: Table, question: Question = PAIRS) -> tuple[JsonObject, Any, Any]:
    """Returns the result of a round of 300 people, and its verified document."""
    terms = await at.operator.open_round(
        RoundSettings(question, (4.0,), min_batch_size=20, epsilon_max=4.0, delta=1e-4)
    )
    await at.submit(terms, [Participant(value, 4.0) for value in VALUES])
    publication, certificate = await at.finish(terms)
    return publication_json(publication, certificate), publication, certificate


@pytest.mark.slow
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
    for share in result["table"]["within_rows"][0]:
        interval = share["confidence_interval"]
        assert 0 <= interval["low"] <= share["projected"] <= interval["high"] <= 1
    for text in ("smokes and mood together", "mood among those who answered “yes”", "yes × bad or no × bad"):
        assert text in page
    assert "Smokes and mood depend on each other" in page
    assert page.count('class="scale"') == 4  # the question, the sum, and each of two rows
    result["table"]["within_rows"][0][0]["projected"] = float("nan")
    with pytest.raises(ValueError, match=r"the table or the sums of .* cannot be read"):
        report_of("Health", [ReportRound(result)])


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.asyncio
async def test_the_console_shows_tables_and_sums(tmp_path: Path) -> None:
    binary = shutil.which("chromium")
    if binary is None:
        pytest.skip("no browser: install the package 'chromium'")
    async with table(tmp_path, 2) as at, served(at.inside.directory, at) as url, async_playwright() as playwright:
        result, *document = await asked(at)
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
        await browser.close()
