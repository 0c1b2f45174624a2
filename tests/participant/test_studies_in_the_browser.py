"""A study in a real browser: one consent and one link for all waves, what they reveal together, and leaving."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from croupier.operator.opened_surveys import keep_survey, kept_rounds, open_rounds
from croupier.operator.survey_plans import survey_from
from croupier.protocol.surveys import Survey, scheduled
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.study.versions import start_study
from tests.support.forged import forged_rounds, shows
from tests.support.gateways import PassOn
from tests.support.participants import Place, is_for_everybody, place
from tests.support.studies import study_file
from tests.support.surveys import links_of

pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.asyncio(loop_scope="module")]
SEND, SENT = "Randomize, seal and send all answers", "Your answers are on their way"
CALENDAR = {"first": "2030-01-01T08:00:00"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    async with place(tmp_path_factory.mktemp("studies")) as running:
        yield running


async def opened(here: Place, survey: Survey, number: int = 1) -> None:
    keep_survey(here.at.inside.directory, survey)
    await open_rounds(here.at.operator, here.at.inside.directory, survey, scheduled(survey).wave(number))


async def started(here: Place, name: str, **changes: object) -> Survey:
    """A study whose first wave is open."""
    survey = start_study(here.at.inside.directory, study_file(name, calendar=CALENDAR, **changes))
    await opened(here, survey)
    return survey


def second_version(message: pb.Survey, before: Survey) -> None:
    message.schedule.version, message.schedule.previous_hash, message.schedule.change = 2, before.hash, "More."


async def fill(page: Page, *, consents: bool) -> None:
    agree = page.get_by_label("I have read this and agree.")
    if consents:
        await agree.check()
    else:
        await expect(agree).to_have_count(0)
    for name in ("good", "yes"):
        await page.get_by_role("radio", name=name, exact=True).check()
    await page.get_by_role("button", name=SEND).click()


async def answer_all(page: Page, *, consents: bool) -> None:
    await fill(page, consents=consents)
    await expect(page.get_by_role("heading", name=SENT)).to_be_visible()


async def test_one_link_and_one_consent_are_for_all_waves(here: Place, tmp_path: Path) -> None:
    survey = await started(here, "diary")
    (link,) = await links_of(here.at, survey, tmp_path / "links", "ada", gateway=here.url)
    context = await here.browser.new_context(locale="en-GB")
    page = await context.new_page()
    await page.goto(link)
    await expect(page.get_by_text("This is wave 1 of 3 of a study.")).to_be_visible()
    await expect(
        page.get_by_text("All 3 waves of this version together, whatever all servers do: someone is right at most")
    ).to_be_visible()
    await answer_all(page, consents=True)
    await expect(page.get_by_text("The next wave opens about January 14, 2030")).to_be_visible()
    await opened(here, survey, 2)
    await page.goto("about:blank")
    await page.goto(link)
    await expect(page.get_by_text("This is wave 2 of 3 of a study.")).to_be_visible()
    await expect(page.get_by_text("You consented to this study on")).to_be_visible()
    await answer_all(page, consents=False)
    await page.get_by_role("button", name="Leave the study").click()
    await expect(page.get_by_role("heading", name="You have left the study")).to_be_visible()
    kept = await page.evaluate(
        """async () => {
          const done = (asked) => new Promise((resolve) => { asked.onsuccess = () => resolve(asked.result); });
          const db = await done(indexedDB.open("croupier"));
          const settings = await done(db.transaction("settings").objectStore("settings").getAll());
          return settings.map((one) => [one.invitations, one.consents]);
        }"""
    )
    assert kept == [[[], []]]
    await context.close()


@pytest.mark.slow
async def test_a_changed_study_is_consented_to_again(here: Place, tmp_path: Path) -> None:
    """Also by a person who was away when it changed before: wave 2 shows that version 3 follows version 1."""
    survey = await started(here, "changed")
    (link,) = await links_of(here.at, survey, tmp_path / "links", "ada", gateway=here.url)
    context = await here.browser.new_context(locale="en-GB")
    page = await context.new_page()
    await page.goto(link)
    await answer_all(page, consents=True)
    for number, budget in ((2, 0.5), (3, 0.75)):
        file = study_file("changed", calendar=CALENDAR, budgets=[budget])
        change = f"A budget of {budget}."
        survey = survey_from(file, here.at.deployment, before=survey, change=change, first_wave=number)
        await opened(here, survey, number)
    await page.goto("about:blank")
    await page.goto(link)
    said = "This study has changed since an earlier version: A budget of 0.75."
    await expect(page.get_by_text(said)).to_be_visible()
    await answer_all(page, consents=True)
    await context.close()


@pytest.mark.slow
@pytest.mark.parametrize("permanent", [True, False])
async def test_a_wave_is_answered_once_whatever_rounds_are_shown(here: Place, tmp_path: Path, permanent: bool) -> None:
    """Hop 1 shows wave 1 again as a wave of another version, signed by all services.

    Before an answer the page asks for consent again; after one there is nothing to answer.
    """
    survey = await started(here, f"again-{permanent}", permanent=permanent)
    (link,) = await links_of(here.at, survey, tmp_path / "links", "ada", gateway=here.url)
    rounds = kept_rounds(here.at.inside.directory, survey, 1)
    again = shows(forged_rounds(here.at, rounds, 1, lambda message: second_version(message, survey)))

    async def full(raw: bytes, pass_on: PassOn) -> bytes:
        (request,) = pb.GetTicketsRequest.FromString(raw).requests
        code = pb.SUBMISSION_CODE_ROUND_FULL if request.envelope else pb.SUBMISSION_CODE_ACCEPTED
        return pb.GetTicketsResponse(codes=[code]).SerializeToString()

    async with here.person() as context:
        page = await context.new_page()
        here.gateway.instead = {"GetTickets": full}
        await page.goto(link)
        await fill(page, consents=True)
        await expect(page.get_by_text("As many people have answered as can.")).to_be_visible()
        here.gateway.instead = {"GetTickets": full, "GetRound": again}
        await page.goto(here.page_url)
        await expect(page.get_by_label("I have read this and agree.")).to_be_visible()
        here.gateway.instead = {}
        await page.goto("about:blank")
        await page.goto(link)
        await answer_all(page, consents=False)
        here.gateway.seen.clear()
        here.gateway.instead = {"GetRound": again}
        await page.goto(here.page_url)
        await expect(page.get_by_role("heading", name="You have answered this survey")).to_be_visible()
        await expect(page.get_by_role("radio")).to_have_count(0)
        assert set(here.called) == {"GetRound"}
    here.gateway.instead = {}


@pytest.mark.slow
async def test_no_version_changes_what_was_promised(here: Place, tmp_path: Path) -> None:
    """A version with another limit, signed by all: the page asks nothing and sends nothing."""
    survey = await started(here, "promised")
    (link,) = await links_of(here.at, survey, tmp_path / "links", "ada", gateway=here.url)

    def change(message: pb.Survey) -> None:
        second_version(message, survey)
        message.schedule.total_epsilon = 60

    second = forged_rounds(here.at, kept_rounds(here.at.inside.directory, survey, 1), 2, change)
    async with here.person() as context:
        page = await context.new_page()
        await page.goto(link)
        await answer_all(page, consents=True)
        here.gateway.seen.clear()
        here.gateway.instead = {"GetRound": shows(second)}
        await page.goto("about:blank")
        await page.goto(link)
        await expect(page.get_by_text("This study was changed in a way that no version may")).to_be_visible()
        await page.get_by_text("Details").click()
        await expect(page.get_by_text("version 2 of the study changes totalEpsilon from 20 to 60")).to_be_visible()
        await is_for_everybody(page)
        assert set(here.called) == {"GetRound"}
    here.gateway.instead = {}


@pytest.mark.slow
async def test_another_link_is_another_person_only_if_they_say_so(here: Place, tmp_path: Path) -> None:
    """A new link is no new draw: what was sent and spent is kept by study; another person consents by themselves."""
    survey = await started(here, "links", permanent=True)
    ada, again, bob = await links_of(here.at, survey, tmp_path / "links", "ada", "again", "bob", gateway=here.url)
    async with here.person() as context:
        page = await context.new_page()
        await page.goto(ada)
        await answer_all(page, consents=True)
        kept = sorted(await page.evaluate(KEPT))
        await page.goto("about:blank")
        await page.goto(again)
        await page.get_by_role("button", name="It was me, on").click()
        await expect(page.get_by_role("heading", name="You have answered this survey")).to_be_visible()
        await opened(here, survey, 2)
        await page.goto("about:blank")
        await page.goto(again)
        await expect(page.get_by_role("heading", name="Someone has answered this question from here")).to_be_visible()
        await is_for_everybody(page)
        await page.get_by_role("button", name="It was me, on").click()
        await answer_all(page, consents=False)
        assert sorted(await page.evaluate(KEPT)) == kept
        await expect(page.get_by_text("adds up to ε = 1 at most")).to_be_visible()
        await page.goto("about:blank")
        await page.goto(bob)
        await page.get_by_role("button", name="I am another person").click()
        await answer_all(page, consents=True)
        assert len(await page.evaluate(KEPT)) == 2 * len(kept)
        await expect(page.get_by_text("adds up to ε = 1 at most")).to_be_visible()  # each person's own
        await page.goto("about:blank")
        await page.goto(bob)
        await expect(page.get_by_role("heading", name="You have answered this survey")).to_be_visible()
        await page.get_by_role("button", name="Leave the study").click()
        await expect(page.get_by_role("heading", name="You have left the study")).to_be_visible()
        assert [row for row in sorted(await page.evaluate(KEPT)) if row[3] != "undefined"] == kept


UNSENT = """async (answer) => {
  const done = (asked) => new Promise((resolve) => { asked.onsuccess = () => resolve(asked.result); });
  const store = (await done(indexedDB.open("croupier"))).transaction("answers", "readwrite").objectStore("answers");
  if (answer) await done(store.put({...(await done(store.getAll()))[0], ...answer}));
  return (await done(store.getAll())).map(({roundId, submission}) => [roundId, submission !== undefined]);
}"""


@pytest.mark.slow
async def test_a_study_is_left_by_its_whole_name(here: Place, tmp_path: Path) -> None:
    """The rounds of "near-walks" begin like those of "near"; "constructor" is a name like any other."""
    async with here.person() as context:
        page = await context.new_page()
        for name in ("constructor", "near"):
            survey = await started(here, name, permanent=True)
            (link,) = await links_of(here.at, survey, tmp_path / name, "ada", gateway=here.url)
            await page.goto("about:blank")
            await page.goto(link)
            await answer_all(page, consents=True)
        unsent = {"id": "other", "roundId": "near-walks-w1-1", "surveyId": "near-walks"}
        await page.evaluate(UNSENT, unsent | {"state": "sealed", "submission": [1]})
        await page.get_by_role("button", name="Leave the study").click()
        await expect(page.get_by_role("heading", name="You have left the study")).to_be_visible()
        assert ["near-walks-w1-1", True] in await page.evaluate(UNSENT)
        assert [row[3] for row in await page.evaluate(KEPT)].count("undefined") == 2


KEPT = """async () => {
  const done = (asked) => new Promise((resolve) => { asked.onsuccess = () => resolve(asked.result); });
  const db = await done(indexedDB.open("croupier"));
  const kept = await done(db.transaction("kept").objectStore("kept").getAll());
  return kept.map(({name, value, epsilon, report, isDrawn}) => [name, String(value), epsilon, String(report), isDrawn]);
}"""


@pytest.mark.slow
async def test_a_permanent_study_draws_noise_once_for_every_answer(here: Place, tmp_path: Path) -> None:
    """An unchanged answer costs nothing more, another one its budget again, and leaving destroys what is kept."""
    survey = await started(here, "kept", permanent=True, left_out="random")
    (link,) = await links_of(here.at, survey, tmp_path / "links", "ada", gateway=here.url)
    context = await here.browser.new_context(locale="en-GB")
    page = await context.new_page()
    await page.goto(link)
    await expect(page.get_by_text("This browser draws the noise of an answer once, keeps it")).to_be_visible()
    await page.get_by_label("I leave this question out.").nth(1).check()
    await page.get_by_label("I have read this and agree.").check()
    await page.get_by_role("radio", name="good", exact=True).check()
    await page.get_by_role("button", name=SEND).click()
    await expect(page.get_by_role("heading", name=SENT)).to_be_visible()
    after_first = sorted(await page.evaluate(KEPT))
    assert {row[0] for row in after_first} == {terms.permanent.name for terms in survey.questions if terms.permanent}
    assert [row[4] for row in after_first].count(True) == 1
    spent = await page.get_by_text("from this browser adds up to").text_content()

    async def answer_wave(number: int, mood: str) -> list[list[Any]]:
        await opened(here, survey, number)
        await page.goto("about:blank")
        await page.goto(link)
        await page.get_by_label("I leave this question out.").nth(1).check()
        await page.get_by_role("radio", name=mood, exact=True).check()
        await page.get_by_role("button", name=SEND).click()
        await expect(page.get_by_role("heading", name=SENT)).to_be_visible()
        return sorted(await page.evaluate(KEPT))

    assert await answer_wave(2, "good") == after_first
    assert await page.get_by_text("from this browser adds up to").text_content() == spent
    after_third = await answer_wave(3, "bad")
    assert len(after_third) == 3
    assert await page.get_by_text("from this browser adds up to").text_content() != spent
    await page.get_by_role("button", name="Leave the study").click()
    await expect(page.get_by_role("heading", name="You have left the study")).to_be_visible()
    left = await page.evaluate(KEPT)
    assert sorted(row[2] for row in left) == sorted(row[2] for row in after_third)
    assert all(str(row[1]).startswith("left ") and row[3] == "undefined" for row in left)
    await context.close()
