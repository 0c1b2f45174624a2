"""Surveys in a real browser: people with invitations, each in a profile of their own, and all that befalls them."""

from __future__ import annotations

import asyncio
import csv
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext, Page, expect

from croupier.operator.invitations import revoke_invitations
from croupier.operator.opened_surveys import close_rounds, withdraw_rounds
from croupier.operator.published_result import published_results
from croupier.operator.reports import together
from croupier.protocol.surveys import Survey
from tests.support.command_line import Beside, croupier
from tests.support.gateways import PassOn
from tests.support.participants import Place, is_for_everybody, place, visit
from tests.support.rounds import people
from tests.support.surveys import CONSENT, links_of, opened_survey

pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.asyncio(loop_scope="module")]
SEND, DECLINE = "Randomize, seal and send all answers", "I do not want to answer"
SENT = "Your answers are on their way"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    async with place(tmp_path_factory.mktemp("surveys")) as running:
        yield running


async def opened(here: Place, name: str, **changes: object) -> Survey:
    survey = await opened_survey(here.at, name, **changes)
    here.gateway.seen.clear()
    here.gateway.instead.clear()
    return survey


async def invited(here: Place, survey: Survey, *labels: str, until: int = 0) -> list[str]:
    folder = here.directory / f"{survey.survey_id}-{'-'.join(labels)}"[:100]
    return await links_of(here.at, survey, folder, *labels, gateway=here.url, until=until)


async def fill(page: Page, mood: str = "very", remote: str = "yes", hours: str = "7") -> None:
    await page.get_by_label("I have read this and agree.").check()
    for name in (mood, remote):
        await page.get_by_role("radio", name=name, exact=True).check()
    await page.get_by_label("A number from 0 hours to 24 hours").fill(hours)
    for name in ("by bus", "perhaps"):  # of surveys with five questions
        choice = page.get_by_role("radio", name=name, exact=True)
        if await choice.count():
            await choice.check()


async def send(page: Page) -> None:
    await page.get_by_role("button", name=SEND).click()
    await expect(page.get_by_role("heading", name=SENT)).to_be_visible()


async def others_answer(here: Place, survey: Survey, count: int = 9) -> None:
    async with here.at.operator.client(here.directory / f"others-of-{survey.survey_id}") as client:
        for asked in await client.rounds_of(survey.round_ids()[0]):
            await here.at.submit(asked.terms, people(asked.terms.question, count, 4))


async def counted(here: Place, survey: Survey) -> list[int]:
    """Closes a survey, and returns how many people were counted at each question."""
    inside = here.at.inside
    await close_rounds(inside.directory, survey.round_ids(), transport=inside.transport)
    results = await published_results(inside.directory, survey.survey_id, 60.0, inside.transport)
    assert together(results) is not None
    return [question.publication.num_reports for question in results]


@pytest.mark.slow
async def test_a_survey_is_answered_by_keyboard(here: Place) -> None:
    """With Tab from the top of the page to the button: everything that has to be given is reached in its order."""
    survey = await opened(here, "keys")
    (link,) = await invited(here, survey, "Ada")
    async with here.person() as context:
        page = await visit(context, link)
        keyboard = page.keyboard
        for _ in range(40):  # more than there are fields
            await keyboard.press("Tab")
            kind, name = await page.evaluate("[document.activeElement.type, document.activeElement.name]")
            if name == "protection":
                await keyboard.press("ArrowDown")
            elif name == "consent" or kind == "radio":
                await keyboard.press("Space")
            elif kind == "text":
                await keyboard.type("7")
            elif kind == "submit":
                break
        await expect(page.get_by_role("radio", name="ε = 2 for all")).to_be_checked()
        await keyboard.press("Enter")
        await expect(page.get_by_role("heading", name=SENT)).to_be_visible()
    assert here.called.count("Submit") == len(survey.questions)
    await withdraw_rounds(here.at.inside.directory, survey.round_ids(), transport=here.at.inside.transport)


async def test_one_person_reads_answers_and_finds_the_results(here: Place) -> None:
    survey = await opened(here, "work", hop_noise=0.25)
    (link,) = await invited(here, survey, "Ada")
    async with here.person() as context:
        page = await visit(context, link)
        assert "invitation=" in link
        assert "invitation=" not in page.url
        await expect(page.get_by_role("heading", name="How we work")).to_be_visible()
        await expect(page.get_by_text(CONSENT)).to_be_visible()
        await page.get_by_role("button", name=SEND).click()
        await expect(page.get_by_role("alert")).to_contain_text("Tick that you agree")
        await page.get_by_label("I have read this and agree.").check()
        await page.get_by_role("button", name=SEND).click()
        await expect(page.get_by_role("alert")).to_contain_text("How satisfied are you? Choose an answer first.")
        await fill(page, hours="30")
        await page.get_by_role("button", name=SEND).click()
        await expect(page.get_by_role("alert")).to_contain_text("The number must be from 0 to 24.")
        await expect(page.get_by_role("radio", name="ε = 1 for all")).to_be_checked()
        await page.get_by_text("What this device will send").first.click()
        await expect(page.get_by_text("What is sent is your answer with a chance of 41.1%.")).to_be_visible()
        await expect(page.get_by_text("none of them")).to_contain_text("right at most 73.2% of the time")
        await page.get_by_role("radio", name="ε = 6 for all").check()
        await expect(page.get_by_text("servers that shuffle (2)")).to_contain_text("right at most 68% of the time")
        await expect(page.get_by_text("none of them")).to_contain_text("right at most 99.8% of the time")
        await expect(page.get_by_text("What is sent is your answer with a chance of 78.7%.")).to_be_visible()
        await page.get_by_text("Who sees what, and whom you trust for what").click()
        await expect(page.get_by_text("Nothing is sent for it, and the servers see that.").first).to_be_visible()
        await expect(page.get_by_text(survey.hash.hex()[:8])).to_be_visible()
        await is_for_everybody(page)
        await page.get_by_label("Language").select_option("de")
        await expect(page.get_by_role("heading", name="Wie zufrieden sind Sie?")).to_be_visible()
        await page.get_by_label("Sprache").select_option("en")
        await fill(page)
        await page.locator("[name=left-1]").check()
        await expect(page.get_by_text("Nothing will be sent for this question.")).to_be_attached()
        await send(page)
        await expect(page.get_by_text("Left out: 1")).to_be_visible()
        await is_for_everybody(page)
        async with page.expect_download() as download:
            await page.get_by_role("button", name="Save the receipt for all answers").click()
        receipts = json.loads(await asyncio.to_thread((await (await download.value).path()).read_text))
        assert [receipt["round_id"] for receipt in receipts] == ["work-1", "work-3"]
        assert not {"very", "7"} & set(json.dumps(receipts).split('"'))

        await others_answer(here, survey)
        assert await counted(here, survey) == [10, 9, 10]
        await page.reload()
        await expect(page.get_by_role("heading", name="You have answered this survey")).to_be_visible()
        await page.get_by_role("button", name="Look for the results").click()
        await expect(page.get_by_text("Every server that shuffles has passed on your answer.")).to_have_count(2)
        await expect(page.get_by_role("heading", name="How satisfied are you?")).to_be_visible()
        await expect(page.get_by_text("All certified results together reveal at most ε =")).to_be_visible()
        await is_for_everybody(page)


@pytest.mark.slow
async def test_a_question_left_out_can_be_hidden(here: Place) -> None:
    """With left_out = "random" an answer is drawn and sent: the gateway sees as many calls as of anybody."""
    survey = await opened(here, "hidden", left_out="random")
    (link,) = await invited(here, survey, "Ada")
    async with here.person() as context:
        page = await visit(context, link)
        await fill(page)
        await page.locator("[name=left-0]").check()
        await page.locator("[name=left-2]").check()
        await expect(page.get_by_text("so nobody sees that.").first).to_be_visible()
        await send(page)
        await expect(page.get_by_text("Left out:")).to_have_count(0)
    assert here.called.count("Submit") == 3
    await others_answer(here, survey)
    assert await counted(here, survey) == [10, 10, 10]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "call"), [("GetTickets", 2), ("Submit", 3)])
async def test_a_survey_goes_on_in_a_page_that_was_closed(here: Place, method: str, call: int) -> None:
    """It is closed before the answer to a call comes; what it sends later are the same bytes, and the rest."""
    survey = await opened(here, f"closed-{method}-{call}")
    arrived, closed, calls = asyncio.Event(), asyncio.Event(), 0

    async def hold(raw: bytes, pass_on: PassOn) -> bytes:
        nonlocal calls
        calls += 1
        answer = await pass_on(raw)
        if calls == call:
            arrived.set()
            await closed.wait()
        return answer

    (link,) = await invited(here, survey, "Ada")
    async with here.person() as context:
        page = await visit(context, link)
        here.gateway.instead = {method: hold}
        await fill(page)
        await page.get_by_role("button", name=SEND).click()
        await arrived.wait()
        await page.close()
        here.gateway.instead.clear()
        closed.set()
        page = await visit(context, here.page_url)
        await expect(page.get_by_role("heading", name=SENT)).to_be_visible()
    for name in ("GetTickets", "Submit"):
        assert len({raw for called, raw in here.seen if called == name}) == 3
    await others_answer(here, survey)
    assert await counted(here, survey) == [10, 10, 10]


@pytest.mark.slow
async def test_two_tabs_of_a_survey_send_one_set_of_answers(here: Place) -> None:
    """The second tab would answer what the first has left out: what was stored first is all that counts."""
    survey = await opened(here, "tabs")
    (link,) = await invited(here, survey, "Ada")
    async with here.person() as context:
        first, second = [await visit(context, link) for _ in range(2)]
        await fill(first)
        await fill(second, "quite", "no", "3")
        await first.locator("[name=left-1]").check()
        await send(first)
        await send(second)
        await expect(second.get_by_text("Left out: 1")).to_be_visible()
    assert len({raw for called, raw in here.seen if called == "Submit"}) == 2
    await others_answer(here, survey)
    assert await counted(here, survey) == [10, 9, 10]


@pytest.mark.slow
async def test_a_revoked_invitation_sends_and_keeps_nothing(here: Place) -> None:
    survey = await opened(here, "revoked")
    (link,) = await invited(here, survey, "Ada")
    await revoke_invitations(here.at.inside.directory, "revoked", ["Ada"], here.at.inside.transport)
    async with here.person() as context:
        page = await visit(context, link)
        await expect(page.get_by_text("Your invitation or key does not admit to this")).to_be_visible()
        await expect(page.get_by_text("No answer was sent.")).to_be_visible()
        await expect(page.get_by_role("radio")).to_have_count(0)  # it is said before the first question
    assert set(here.called) == {"GetRound", "ask"}
    await withdraw_rounds(here.at.inside.directory, survey.round_ids(), transport=here.at.inside.transport)


@pytest.mark.slow
async def test_a_link_opens_only_what_it_was_made_for(here: Place) -> None:
    """The key of a link belongs to one survey, whatever round is written behind it."""
    other, survey = await opened(here, "made-for-other"), await opened(here, "made-for")
    (link,) = await invited(here, survey, "Ada")
    of_other, elsewhere = await invited(here, other, "Ada", "Bob")
    async with here.person() as context:
        page = await visit(context, elsewhere.replace("round=made-for-other", "round=made-for"))
        await expect(page.get_by_text("Your invitation or key does not admit to this")).to_be_visible()
        await expect(page.get_by_role("radio")).to_have_count(0)
        await is_for_everybody(page)
        assert set(here.called) == {"GetRound", "ask"}
        page = await visit(context, link)
        await fill(page)
        await send(page)
        page = await visit(context, of_other)  # each invitation is kept with what it was made for
        await fill(page)
        await send(page)
        page = await visit(context, here.page_url)
        await expect(page.get_by_role("heading", name="You have answered this survey")).to_be_visible()
    for opened_here in (other, survey):
        await withdraw_rounds(here.at.inside.directory, opened_here.round_ids(), transport=here.at.inside.transport)


@pytest.mark.slow
async def test_an_earlier_use_and_a_full_quota_are_said_at_first(here: Place) -> None:
    survey = await opened(here, "quota", max_batch_size=3)
    used, late = await invited(here, survey, "Ada", "Bob")
    async with here.person() as context:
        page = await visit(context, used)
        await fill(page)
        await page.locator("[name=left-0]").check()  # of the first question nothing is known to the servers
        await send(page)
    async with here.person() as context:
        page = await visit(context, used)
        await expect(page.get_by_text("Somebody has already begun to answer with your invitation")).to_be_visible()
        await expect(page.get_by_role("radio")).to_have_count(0)
        await others_answer(here, survey, 3)
        page = await visit(context, late)
        await expect(page.get_by_text("As many people have answered as can.")).to_be_visible()
        await expect(page.get_by_role("radio")).to_have_count(0)
        await is_for_everybody(page)
    await withdraw_rounds(here.at.inside.directory, survey.round_ids(), transport=here.at.inside.transport)


async def usual(_: Place, context: BrowserContext, link: str) -> None:
    page = await visit(context, link)
    await fill(page)
    await send(page)


async def in_german(_: Place, context: BrowserContext, link: str) -> None:
    page = await visit(context, link)
    await page.get_by_label("Language").select_option("de")
    await page.get_by_label("Ich habe das gelesen und stimme zu.").check()
    for name in ("ziemlich", "nein", "mit dem Bus", "vielleicht"):
        await page.get_by_role("radio", name=name, exact=True).check()
    await page.get_by_label("Eine Zahl von 0 Stunden bis 24 Stunden").fill("8")
    await page.get_by_role("button", name="Alle Antworten zufällig verändern, versiegeln und senden").click()
    await expect(page.get_by_role("heading", name="Ihre Antworten sind unterwegs")).to_be_visible()


async def closes_the_tab(_: Place, context: BrowserContext, link: str) -> None:
    page = await visit(context, link)
    await fill(page)
    await page.get_by_role("button", name=SEND).click()
    await page.close()
    page = await visit(context, link)
    there = page.get_by_role("heading", name=SENT).or_(
        page.get_by_role("heading", name="You have answered this survey")
    )
    if await page.get_by_role("heading", name="How we work").is_visible():  # it was closed before anything was stored
        await fill(page)
        await page.get_by_role("button", name=SEND).click()
    await expect(there).to_be_visible()


async def two_tabs(_: Place, context: BrowserContext, link: str) -> None:
    first, second = [await visit(context, link) for _ in range(2)]
    for tab, mood in ((first, "very"), (second, "not at all")):
        await fill(tab, mood)
    await asyncio.gather(send(first), send(second))


async def declines(_: Place, context: BrowserContext, link: str) -> None:
    page = await visit(context, link)
    await page.get_by_role("button", name=DECLINE).click()
    await expect(page.get_by_role("heading", name="You have not answered")).to_be_visible()


async def wants_more_than_the_form_offers(_: Place, context: BrowserContext, link: str) -> None:
    """The form has no other budgets than the survey, and none above a person's own limit, also if tampered with."""
    page = await visit(context, link)
    await expect(page.get_by_role("radio", name="ε = 20 for all")).to_have_count(0)
    await page.get_by_text("My own limit").click()
    await page.get_by_label("all answers from this browser").fill("2")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("radio", name="ε = 4 for all")).to_be_disabled()
    await page.evaluate(
        "for (const one of document.querySelectorAll('[name=protection]')) { one.disabled = false; one.value = '3' }"
    )
    await page.get_by_role("radio", name="ε = 4 for all").check()
    await fill(page)
    await page.get_by_role("button", name=SEND).click()
    await expect(page.get_by_role("alert")).to_contain_text("limit 2. Nothing was sent.")
    await page.reload()
    await fill(page)
    await send(page)


async def leaves_one_out(_: Place, context: BrowserContext, link: str) -> None:
    page = await visit(context, link)
    await fill(page)
    await page.locator("[name=left-2]").check()
    await send(page)


async def comes_too_late(_: Place, context: BrowserContext, link: str) -> None:
    """The clock of this person's device is behind: the accountant's decides. With a right clock the page says it."""
    page = await visit(context, link)
    await expect(page.get_by_text("Your invitation or key does not admit to this")).to_be_visible()
    await expect(page.get_by_text("No answer was sent.")).to_be_visible()
    later = await context.new_page()
    await later.clock.set_fixed_time(datetime.now(UTC) + timedelta(hours=2))
    await later.goto(link)
    await expect(later.get_by_role("heading", name="This invitation has expired")).to_be_visible()
    await is_for_everybody(later)


Person = Callable[[Place, BrowserContext, str], Awaitable[None]]
WHO: list[Person] = [
    in_german,
    closes_the_tab,
    two_tabs,
    declines,
    wants_more_than_the_form_offers,
    leaves_one_out,
    comes_too_late,
    usual,
]
ASKED = ["The works council asks.", CONSENT]
QUESTIONS = {
    "mood": ["How satisfied are you?", "very; quite; not at all"],
    "remote": ["Do you work from home?", "", "n"],
    "sleep": ["How long did you sleep?", "", "y", "0", "24", "hours"],
    "way": ["How do you come to work?", "on foot; by bus; by car"],
    "again": ["Would you work here again?", "surely; perhaps; never"],
}
GERMAN = """
[translations.de]
title = "Wie wir arbeiten"
consent = "Ich antworte für mich und freiwillig."
questions.mood = {question = "Wie zufrieden sind Sie?", choices = ["sehr", "ziemlich", "gar nicht"]}
questions.remote = {question = "Arbeiten Sie zu Hause?"}
questions.sleep = {question = "Wie lange haben Sie geschlafen?", unit = "Stunden"}
questions.way = {question = "Wie kommen Sie zur Arbeit?", choices = ["zu Fuß", "mit dem Bus", "mit dem Auto"]}
questions.again = {question = "Würden Sie wieder hier arbeiten?", choices = ["sicher", "vielleicht", "nie"]}
"""


def typed_answers(least: int) -> str:
    """Returns what an analyst types for 'croupier survey new'; an empty line takes what is proposed."""
    lines = ["How we work", "", "", *ASKED, str(least), ""]
    for name, answers in QUESTIONS.items():
        lines += [name, *answers, "n" if name == "again" else "y"]
    return "\n".join([*lines, "", "", ""])


@pytest.mark.slow
@pytest.mark.parametrize("people", [8, 20])
async def test_a_survey_by_the_documented_commands(tmp_path: Path, people: int) -> None:
    """From the questions to the report, as docs/ask-people.md has it; what befalls one person disturbs no other.

    Services over TLS, because commands know no other way. Of all people, one declines, one comes too late by the
    accountant's clock, and one leaves a question out.
    """
    answered = people - 2

    async with place(tmp_path, over_tls=True) as here:
        ask = Beside(here.at.inside.directory).ask

        file, folder = tmp_path / "survey.toml", tmp_path / "invitations"
        new = partial(croupier, "survey", "new", file, typed=typed_answers(answered - 1))
        said = await asyncio.to_thread(new)
        assert "the noise hides" in " ".join(said.stdout.split())
        file.write_text(file.read_text() + GERMAN)
        opened = await ask("survey", "open", file)
        assert len(opened["round_ids"]) == 5
        assert opened["forecasts"][0]["granted"]
        who: list[Person] = [*WHO, *[usual] * (people - len(WHO))]
        late = who.index(comes_too_late)
        labels = {False: tmp_path / "people.csv", True: tmp_path / "late.csv"}
        for is_late, listed in labels.items():
            names = (f"person {number}" for number in range(people) if (number == late) is is_late)
            listed.write_text("\n".join(["label", *names, ""]))
        soon = f"{datetime.now(UTC) + timedelta(hours=1):%Y-%m-%dT%H:%M:%S}"
        for listed, more in ((labels[False], ()), (labels[True], ("--expires", soon))):
            out = ("--out", folder / listed.stem, "--no-qr", "--gateway", here.url)
            await ask("invite", "how-we-work", "--people", listed, *more, *out)
        links = [
            row["link"]
            for listed in labels.values()
            for row in csv.DictReader((folder / listed.stem / "links.csv").read_text().splitlines())
        ]
        links.insert(late, links.pop())
        here.at.inside.ahead_s["accountant"] = 7200
        waiting = asyncio.Semaphore(4)  # the machine has few cores

        async def play(person: Person, link: str) -> None:
            async with waiting, here.person() as context:
                await person(here, context, link)

        await asyncio.gather(*(play(person, link) for person, link in zip(who, links, strict=True)))
        assert (await ask("invite", "how-we-work", "--status"))["answered"] == answered
        assert all(
            forecast["always_granted"]
            for forecast in (await ask("survey", "close", "how-we-work", "--forecast"))["rounds"].values()
        )
        closed = await ask("survey", "close", "how-we-work")
        assert {round_document["state"] for round_document in closed["rounds"].values()} == {"CLOSED"}
        results = await ask("survey", "results", "how-we-work")
        counted = [answered, answered, answered - 1, answered, answered]
        assert [result["result"]["num_reports"] for result in results["questions"]] == counted
        report = tmp_path / "report.html"
        await ask("report", "how-we-work", "--out", report)
        async with here.person() as context:
            page = await context.new_page()
            await page.goto(report.as_uri())
            await expect(page.get_by_role("heading", level=1)).to_have_text("How we work")
            for number, (question, *_) in zip(counted, QUESTIONS.values(), strict=True):
                section = page.locator("section", has=page.get_by_role("heading", name=question))
                await expect(section.get_by_text(f"Answers counted: {number}.")).to_be_visible()
            await expect(page.get_by_text("To make it usable").first).to_be_visible()
            await is_for_everybody(page)
