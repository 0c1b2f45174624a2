"""The pages in a real browser: a round watched from open to published, errors, the way to answer, both themes.

One browser and one deployment serve all of these tests. After each step that shows something new the accessibility
rules of axe are run on it, in the light and in the dark theme, on a screen's width and on a phone's.
"""

from __future__ import annotations

import asyncio
import csv
import io
import json
import logging
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from croupier.client.submission import Participant
from croupier.operator.opened_surveys import withdraw_rounds
from croupier.operator.published_result import kept_result
from croupier.protocol.deployment import DEPLOYMENT_FILE
from croupier.protocol.errors import Code
from croupier.protocol.mechanisms.onebit import OneBit
from croupier.protocol.names import PublicKey, RoundId
from croupier.protocol.questions import Question
from croupier.show.published import publication_json
from tests.support import BIT, settings
from tests.support.console import served
from tests.support.participants import chromium, is_for_everybody
from tests.support.rounds import Table, people, table
from tests.support.surveys import links_of, opened_survey

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser"), pytest.mark.asyncio(loop_scope="module")]
SECRET = 7.6543219
expect.set_options(timeout=120_000)  # others may be using the machine; nothing waits this long unless it fails
HOURS = Question("hours", OneBit(low=0.0, high=10.0))


@dataclass
class Place:
    """A deployment, its console, and a browser."""

    at: Table
    browser: Browser
    url: str

    @asynccontextmanager
    async def page(self, path: str = "", **how: Any) -> AsyncIterator[Page]:
        """Yields a page; what the browser complains of fails the test, such as a violated policy."""
        page = await self.browser.new_page(**how)
        page.set_default_timeout(120_000)
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        await page.goto(self.url + path)
        yield page
        assert await page.context.cookies() == []
        await page.context.close()
        assert [message for message in said if "status of 404" not in message and "status of 422" not in message] == []


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    async with (
        table(tmp_path_factory.mktemp("console"), 2) as at,
        served(at.inside.directory, at) as url,
        chromium() as browser,
    ):
        yield Place(at, browser, url)


async def fetch(url: str, data: bytes | None = None, **headers: str) -> tuple[int, bytes]:
    def call() -> tuple[int, bytes]:
        try:
            with urlopen(Request(url, data, headers)) as answer:
                return answer.status, answer.read()
        except HTTPError as error:
            return error.code, error.read()

    return await asyncio.to_thread(call)


async def test_a_round_is_watched_from_open_to_published(place: Place) -> None:
    terms = await place.at.operator.open_round(settings())
    async with place.page(f"rounds/{terms.round_id}") as page:
        await expect(page.get_by_text("0 of at least 20 answers")).to_be_visible()
        await expect(page.get_by_text("20 more answers needed before anything is read")).to_be_visible()
        button = page.get_by_role("link", name="Answer this round")
        await button.focus()
        await place.at.submit(terms, people(BIT, 12, 1))
        await expect(page.get_by_text("12 of at least 20 answers")).to_be_visible()
        await expect(page.get_by_text("answers/s: enough in about")).to_be_visible()
        await expect(page.get_by_role("progressbar")).to_have_js_property("value", 12)
        await expect(button).to_be_focused()
        await is_for_everybody(page)
        users = [Participant(1, 0.5)] * 5 + [Participant(0, 2.0)] * 7
        await place.at.submit(terms, [*people(BIT, 12, 1), *users])
        await expect(page.get_by_text("enough have answered")).to_be_visible()
        publication, certificate = await place.at.finish(terms)

        await expect(page.get_by_role("heading", name="What was learned")).to_be_visible()
        await expect(page.get_by_role("status")).to_have_text(f"round {terms.round_id}: PUBLISHED")
        await expect(page).to_have_title("bit, result · croupier")
        result = publication_json(publication, certificate)
        await expect(page.get_by_text("of the 24 people who took part")).to_be_visible()
        alone = page.locator("tr", has_text="everyone else colludes (largest budget allowed)")
        await expect(alone.locator("td")).to_have_text(["2", "88.08 %", "CERTIFIED"])
        await expect(page.get_by_text("24 people took part. Suppose someone sees the published")).to_be_visible()
        await expect(page.locator("polyline.certified")).to_be_visible()
        for details in await page.locator("details").all():
            await details.evaluate("one => one.open = true")
        await expect(page.get_by_text("reports/s").first).to_be_visible()
        await is_for_everybody(page)

        shown = json.loads((await fetch(f"{place.url}rounds/{terms.round_id}/result.json"))[1])
        assert shown == json.loads(json.dumps(result))
        async with page.expect_download() as download:
            await page.get_by_role("link", name="The signed document").click()
        kept = place.at.inside.directory.parent / (await download.value).suggested_filename
        await (await download.value).save_as(kept)
        assert kept.name == f"{terms.round_id}.signed"
        assert kept_result(place.at.inside.directory, terms.round_id, kept)[:2] == (publication, certificate)
        _, table_of = await fetch(f"{place.url}rounds/{terms.round_id}/result.csv")
        (row,) = csv.DictReader(io.StringIO(table_of.decode()))
        assert (float(row["estimate"]), float(row["epsilon"]), row["grade"]) == (
            result["values"][0]["estimate"],
            certificate.epsilon,
            "CERTIFIED",
        )
        await page.get_by_role("link", name="The ledger").click()
        of_any = page.locator("tr", has_text="any tier").locator("td")
        await expect(of_any).to_have_text(["1", "no bound; δ = 0.0001 gives one"])
        await expect(page.get_by_text("rests on what the certificates of these rounds assume")).to_be_visible()
        await page.get_by_label("Total δ").fill("1e-3")
        await page.get_by_role("button").click()
        await expect(page.locator("tr", has_text="local ε 0.5")).to_contain_text("CERTIFIED")
        await is_for_everybody(page)


async def test_the_overview_follows_the_services(place: Place) -> None:
    async with place.page() as page:
        cards = page.get_by_role("listitem").filter(has_text="peak memory")
        await expect(cards).to_have_count(4)
        await expect(cards.first).to_contain_text("0 days old, 824 left")
        await place.at.inside.stop("analyzer")
        await expect(page.get_by_text("UNREACHABLE")).to_be_visible()
        await is_for_everybody(page)
        await place.at.inside.start("analyzer")
        await expect(page.get_by_text("UNREACHABLE")).to_have_count(0)
        await place.at.operator.open_round(settings(min_batch_size=7), RoundId("newest"))
        await expect(page.get_by_text("0 reports, 7 needed")).to_be_visible()
        await place.at.inside.stop("shuffler-1")
        await expect(page.get_by_text("unknown how many reports, 7 needed")).to_be_visible()
        await place.at.inside.start("shuffler-1")
        await expect(page.get_by_text("0 reports, 7 needed")).to_be_visible()


async def test_errors_and_refused_rounds_are_pages_with_a_sentence(place: Place) -> None:
    terms = await place.at.operator.open_round(settings(epsilon_max=0.01))
    await place.at.submit(terms, people(BIT, 20, 2))
    await place.at.finish(terms)
    async with place.page("rounds/never") as page:
        await expect(page.get_by_role("alert")).to_have_text(f"{Code.UNKNOWN_ROUND.message}: 'never'")
        await is_for_everybody(page)
        await page.goto(f"{place.url}rounds/{terms.round_id}")
        await expect(page.get_by_text("the certified epsilon must be at most 0.01")).to_be_visible()
        assert "CERTIFIED" not in await page.inner_text("main")
        await page.goto(f"{place.url}ledger?delta=7")
        await expect(page.get_by_role("alert")).to_have_text("delta is 7; it must be in (0, 1)")
    assert (await fetch(f"{place.url}no/such/page"))[0] == 404


async def test_an_answer_is_given_on_the_participants_page(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """The console serves it, as a gateway; the answer is in no file and no log."""
    caplog.set_level(logging.DEBUG)
    terms = await place.at.operator.open_round(settings(HOURS, min_batch_size=3))
    async with place.page(f"rounds/{terms.round_id}") as page:
        await page.get_by_role("link", name="Answer this round").click()
        await expect(page.get_by_role("heading", name="You need an invitation")).to_be_visible()
        assert page.url == f"{place.url}participate/#round={terms.round_id}"
        await page.get_by_role("heading", name="Your key").wait_for()
        key = (await page.locator("h2 + p").inner_text()).replace(" ", "")
        await place.at.operator.enrol([PublicKey(bytes.fromhex(key))])
        await page.reload()
        await page.get_by_label("A number from 0 to 10").fill(str(SECRET))
        await page.get_by_role("radio", name="ε = 1").check()
        await page.get_by_role("button", name="Randomize, seal and send").click()
        await expect(page.get_by_role("heading", name="Your answer is on its way")).to_be_visible()
        await place.at.submit(terms, people(HOURS, 3, 3))
        await place.at.finish(terms)
        await page.goto(f"{place.url}rounds/{terms.round_id}")
        await page.get_by_role("link", name="Was my answer included?").click()
        await page.get_by_role("button", name="Look for the result").click()
        await expect(page.get_by_text("Every server that shuffles has passed on your answer.")).to_be_visible()
    files = [file for file in place.at.inside.directory.rglob("*") if file.is_file()]
    assert [file for file in files if str(SECRET).encode() in file.read_bytes()] == []
    assert str(SECRET) not in caplog.text


async def test_a_survey_is_answered_in_ones_own_language(place: Place, tmp_path: Path) -> None:
    survey = await opened_survey(place.at, "work")
    (link,) = await links_of(place.at, survey, tmp_path / "links", "Ada", gateway=place.url)
    async with place.page(link.removeprefix(place.url), locale="de-AT") as page:
        await expect(page.get_by_role("heading", name="Wie zufrieden sind Sie?")).to_be_visible()
        await page.locator("[name=consent]").check()
        await page.locator("[name=answer-0]").first.check()
        for left in ("left-1", "left-2"):
            await page.locator(f"[name={left}]").check()
        await page.locator("form button.primary").click()
        await expect(page.locator(".receipt")).to_be_visible()
    await withdraw_rounds(place.at.inside.directory, survey.round_ids(), transport=place.at.inside.transport)


async def test_a_page_without_the_operators_keys_and_without_a_script(place: Place, tmp_path: Path) -> None:
    terms = await place.at.operator.open_round(settings())
    own = tmp_path / "participant"
    own.mkdir()
    shutil.copy(place.at.inside.directory / DEPLOYMENT_FILE, own)
    async with served(own, place.at) as url, place.page(java_script_enabled=False) as page:
        await page.goto(url)
        await page.get_by_role("link", name="bit").click()
        await expect(page.get_by_text("Nothing is read before at least 20 people have answered.")).to_be_visible()
        await expect(page.get_by_role("link", name="Answer this round")).to_be_visible()
        await expect(page.get_by_role("button")).to_have_count(0)
        assert (await fetch(f"{url}events"))[0] == 404
    await place.at.operator.withdraw(terms.round_id)
