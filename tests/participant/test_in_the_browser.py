"""The participants' page in a real browser: one question, an answer that counts, refusals, limits, a file.

One browser and one deployment serve all of these tests; services, gateway and page are the real ones. Several tabs,
closed pages and further invitations are tested with surveys and studies, which go the same way.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from croupier.deploy.page.participants import page_hash
from croupier.operator.roster import Enrolment, enrol
from croupier.protocol.identity import Identity, Kind, canonical
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.mechanisms.choices import MultipleChoice
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.laplace import Laplace
from croupier.protocol.mechanisms.onebit import OneBit
from croupier.protocol.questions import Question
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.wordings import Wording
from croupier.runtime.service_directory import load_secrets
from tests.support import BIT, settings
from tests.support.gateways import PassOn
from tests.support.messages import naming
from tests.support.participants import Place, is_for_everybody, place, visit
from tests.support.rounds import people

pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.asyncio(loop_scope="module")]
ANSWERS = ("very", "quite", "not at all")
MOOD = Question(
    "mood",
    KaryResponse(3, ANSWERS),
    (
        Wording("en", "How satisfied are you?", "Your work", "Think of last week.", ANSWERS),
        Wording("de", "Wie zufrieden sind Sie?", choices=("sehr", "ziemlich", "gar nicht")),
    ),
)
SYMPTOMS = Question(
    "symptoms",
    MultipleChoice(3, ("fever", "cough", "rash")),
    (Wording("en", "Which of these did you have?", "Last week", choices=("a fever", "a cough", "a rash")),),
)
SLEEP = Question("sleep", OneBit(0.0, 24.0), (Wording("en", "How long did you sleep?", unit="hours"),))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    async with place(tmp_path_factory.mktemp("participant"), origins=("null",)) as running:
        yield running


async def opened(here: Place, question: Question = BIT, **changes: Any) -> RoundTerms:
    terms = await here.at.operator.open_round(replace(settings(question, min_batch_size=3), **changes))
    here.gateway.seen.clear()
    here.gateway.instead.clear()
    return terms


async def choose_and_send(page: Page, answer: str = "yes") -> None:
    await page.get_by_role("radio", name=answer, exact=True).check()
    await page.get_by_role("button", name="Randomize, seal and send").click()


async def counted(here: Place, terms: RoundTerms, expected: int) -> None:
    """Lets nine others answer and the round end, and checks the number of people that were counted."""
    await here.at.submit(terms, people(terms.question, 9, 4))
    publication, certificate = await here.at.finish(terms)
    assert publication.num_reports == certificate.num_users == expected + 9


@pytest.mark.slow
async def test_an_answer_is_given_by_keyboard_and_found_again(here: Place) -> None:
    terms = await opened(here, MOOD)
    link = await here.invitation(terms)
    async with here.person() as context:
        page = await visit(context, link)
        assert "invitation=" in link
        assert "invitation=" not in page.url
        await expect(page.get_by_text("Your work")).to_be_visible()
        await expect(page.get_by_role("radio", name="ε = 0.5")).to_be_checked()  # the most protection
        await page.get_by_text("Who sees what, and whom you trust for what").click()
        await expect(page.get_by_text("controls that server can change the page")).to_be_visible()
        await expect(page.get_by_text(here.at.deployment.fingerprint.hex()[:8])).to_be_visible()
        await expect(page.get_by_text("exactly how often each protection was chosen")).to_be_visible()
        await page.get_by_role("radio", name="very", exact=True).focus()
        for key in ("Space", "ArrowDown", "Tab", "ArrowDown"):
            await page.keyboard.press(key)
        await expect(page.get_by_role("radio", name="ε = 1")).to_be_checked()
        await expect(page.get_by_text("What is sent is your answer with a chance of 57.6%.")).to_be_visible()
        await is_for_everybody(page)
        await page.get_by_label("Language").select_option("de")
        await expect(page.get_by_role("heading", name="Wie zufrieden sind Sie?")).to_be_visible()
        await page.get_by_label("Sprache").select_option("en")
        await choose_and_send(page, "quite")
        await expect(page.get_by_role("heading", name="Your answer is on its way")).to_be_visible()
        await is_for_everybody(page)
        await page.get_by_role("button", name="Look for the result").click()
        await expect(page.get_by_text("There is no result yet")).to_be_visible()
        async with page.expect_download() as download:
            await page.get_by_role("button", name="Save the receipt").click()
        receipt = json.loads(await asyncio.to_thread((await (await download.value).path()).read_text))
        assert (receipt["round_id"], receipt["manifest_hash"]) == (terms.round_id, terms.hash.hex())
        assert not set(ANSWERS) & set(json.dumps(receipt).split('"'))

        await counted(here, terms, 1)
        await page.reload()
        await expect(page.get_by_role("heading", name="You have answered this question")).to_be_visible()
        await page.get_by_role("button", name="Look for the result").click()
        await expect(page.get_by_text("Every server that shuffles has passed on your answer.")).to_be_visible()
        await expect(page.get_by_text("share who answered “not at all”")).to_be_visible()
        await expect(page.get_by_text("10 people were counted. Certified for this result: ε =")).to_be_visible()
        await is_for_everybody(page)


@pytest.mark.slow
async def test_a_result_is_shown_by_its_range(here: Place) -> None:
    """Possible estimates as they are, an impossible one as its nearest end; a noisy one as an interval."""
    terms = await opened(here, MOOD)
    analyzer = Identity("analyzer", load_secrets(here.at.inside.directory / "analyzer").identity_key)
    wanted: list[tuple[float, float, float]] = []
    precision = pb.PRECISION_USABLE

    async def forge(raw: bytes, pass_on: PassOn) -> bytes:
        answer = rpc.GetResultResponse.FromString(await pass_on(raw))
        publication = pb.Publication.FromString(answer.publication.payload)
        publication.precision = precision
        for value, (estimate, low, high) in zip(publication.values, wanted, strict=True):
            value.estimate, value.projected = estimate, 0.25
            value.confidence_interval.low, value.confidence_interval.high = low, high
        answer.publication.CopyFrom(analyzer.signed(Kind.PUBLICATION, canonical(publication)))
        return answer.SerializeToString()

    async with here.person() as context:
        page = await visit(context, await here.invitation(terms))
        await choose_and_send(page, "quite")
        await counted(here, terms, 1)
        here.gateway.instead = {"GetResult": forge}
        wanted = [(-0.11, 0.0, 0.2), (0.36, 0.1, 0.6), (0.75, 0.5, 1.0)]
        await page.get_by_role("button", name="Look for the result").click()
        await expect(page.locator(".outcome .chance")).to_have_text(["0%", "36%", "75%"])
        await expect(page.locator(".outside")).to_have_text(re.compile(naming("-11%", "0%")))
        await expect(page.get_by_text("The bars reach from 0% to 100%.")).to_be_visible()
        widths = "(bars) => bars.map((bar) => Math.round((100 * bar.offsetWidth) / bar.parentElement.offsetWidth))"
        assert await page.locator(".outcome .filled").evaluate_all(widths) == [0, 36, 75]
        await is_for_everybody(page)
        wanted, precision = [(1.0, 0.4, 1.0), (0.36, 0.0, 1.0), (-0.36, 0.0, 0.1)], pb.PRECISION_HIDES_SHARES
        await page.reload()
        await page.get_by_role("button", name="Look for the result").click()
        await expect(page.locator(".outcome .range")).to_have_text(["40% to 100%", "0% to 100%", "0% to 10%"])
        await expect(page.locator(".outcome .chance")).to_have_count(0)
        await expect(page.get_by_text("so only 95% intervals are shown")).to_be_visible()
        await expect(page.locator(".halving")).to_have_count(0)
        await is_for_everybody(page)


@pytest.mark.slow
async def test_all_that_apply_are_ticked(here: Place) -> None:
    terms = await opened(here, SYMPTOMS)
    async with here.person() as context:
        page = await visit(context, await here.invitation(terms))
        await page.get_by_role("button", name="Randomize, seal and send").click()
        await expect(page.get_by_text("Choose an answer first.")).to_be_visible()
        none = page.get_by_role("checkbox", name="none of these")
        await none.check()
        for name in ("a fever", "a rash"):
            await page.get_by_role("checkbox", name=name).check()
        await expect(none).not_to_be_checked()
        said = "One of the 3 options, drawn at random now, and whether you chose it: truthfully with a chance of 62.2%"
        await expect(page.get_by_text(said)).to_be_visible()
        await is_for_everybody(page)
        await page.get_by_role("button", name="Randomize, seal and send").click()
        await expect(page.get_by_role("heading", name="Your answer is on its way")).to_be_visible()
        await counted(here, terms, 1)
        await page.get_by_role("button", name="Look for the result").click()
        await expect(page.get_by_text("share who answered “a rash”")).to_be_visible()


@pytest.mark.slow
async def test_a_number_is_answered_with_one_of_the_ends(here: Place) -> None:
    terms = await opened(here, SLEEP, hop_noise=1.0, budget_privacy=1.0)
    async with here.person() as context:
        page = await visit(context, await here.invitation(terms))
        await page.get_by_role("radio", name="ε = 2").check()
        await expect(page.get_by_text("If at least one of the servers that shuffle (2) is honest")).to_contain_text(
            "right at most 73.2% of the time, whatever all other servers and people do"
        )
        await expect(page.get_by_text("If none of them is honest")).to_contain_text("right at most 88.1% of the time")
        await page.get_by_text("Who sees what, and whom you trust for what").click()
        await expect(page.get_by_text("You need not trust any other server or person.")).to_be_visible()
        await expect(page.get_by_text("exactly how often each protection was chosen")).to_have_count(0)
        await page.get_by_role("button", name="Randomize, seal and send").click()
        await expect(page.get_by_role("alert")).to_have_text("The number must be from 0 to 24.")
        field = page.get_by_label("A number from 0 hours to 24 hours")
        for written, said in {
            "2,5": "Understood as 2.5 hours",
            "2.5": "Understood as 2.5 hours",
            "25": "The number must be from 0 to 24.",
            "1.000,5": "“1.000,5”",
        }.items():
            await field.fill("")
            await field.press_sequentially(
                written
            )  # key by key, as a field of the type "number" drops what it does not take
            await expect(page.get_by_role("status").filter(has_text=said)).to_be_visible()
        await page.get_by_role("button", name="Randomize, seal and send").click()
        await expect(page.get_by_role("alert")).to_contain_text("“1.000,5”")
        await field.fill("2,5")
        await page.get_by_label("Language").select_option("de")
        await page.get_by_label("Eine Zahl von 0 hours bis 24 hours").press_sequentially("2.5")
        await expect(page.locator(".understood")).to_contain_text("2,5 hours")
        await is_for_everybody(page)
        await page.get_by_label("Sprache").select_option("en")
        await page.get_by_role("radio", name="ε = 2").check()
        await field.fill("6,0")
        await expect(page.get_by_text("Not your number: only one of the two ends")).to_be_visible()
        await page.get_by_role("button", name="Randomize, seal and send").click()
        await expect(page.get_by_role("heading", name="Your answer is on its way")).to_be_visible()
        await counted(here, terms, 1)
        await page.get_by_role("button", name="Look for the result").click()
        await expect(page.get_by_text("One dishonest server could have moved a number by at most")).to_be_visible()


@pytest.mark.slow
async def test_who_declines_has_sent_nothing(here: Place) -> None:
    terms = await opened(here)
    async with here.person() as context:
        page = await visit(context, await here.invitation(terms))
        await page.get_by_role("radio", name="yes", exact=True).check()
        await page.get_by_role("button", name="I do not want to answer").click()
        await expect(page.get_by_role("heading", name="You have not answered")).to_be_visible()
        await is_for_everybody(page)
        kept = await page.evaluate(
            "new Promise(done => { indexedDB.open('croupier').onsuccess = ({target}) => {"
            "target.result.transaction('answers').objectStore('answers').count().onsuccess ="
            "({target}) => done(target.result) } })"
        )
    assert kept == 0
    assert set(here.called) == {"GetRound", "ask"}
    await here.at.operator.withdraw(terms.round_id)


@pytest.mark.slow
async def test_a_persons_own_limit_is_kept_to(here: Place) -> None:
    """By the form; and by the transaction that stores an answer, where another tab has answered another round since."""
    terms, other = [await opened(here) for _ in range(2)]
    async with here.person() as context:
        page = await visit(context, await here.invitation(terms))
        await page.get_by_text("My own limit").click()
        limit = page.get_by_label("The most that the ε of all answers from this browser may add up to.")
        await limit.fill("none")
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_text("must be a number greater than 0")).to_be_visible()
        await limit.fill("0.7")
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_role("radio", name="ε = 1")).to_be_disabled()
        tab = await visit(context, await here.invitation(other))
        await choose_and_send(page)
        await expect(page.get_by_role("heading", name="Your answer is on its way")).to_be_visible()
        await choose_and_send(tab)
        await expect(tab.get_by_role("alert")).to_contain_text("so far ε = 0.5, limit 0.7. Nothing was sent.")
        await tab.reload()
        await expect(tab.get_by_role("radio", name="ε = 0.5")).to_be_disabled()
        await expect(tab.get_by_text("adds up to ε = 0.5")).to_be_visible()
        await tab.get_by_role("button", name="Randomize, seal and send").click()
        await expect(tab.get_by_role("alert")).to_be_visible()
    assert here.called.count("GetTickets") == 1
    for round_terms in (terms, other):
        await here.at.operator.withdraw(round_terms.round_id)


@pytest.mark.slow
async def test_without_an_invitation_a_key_can_be_enrolled(here: Place) -> None:
    terms = await opened(here)
    async with here.person() as context:
        page = await visit(context, here.page_url)
        await expect(page.get_by_role("heading", name="You need an invitation")).to_be_visible()
        await is_for_everybody(page)
        key = (await page.locator("code").inner_text()).replace(" ", "")
        await enrol(here.at.inside.directory, [Enrolment(key)], here.at.inside.transport)
        page = await visit(context, here.page_url)
        await choose_and_send(page)
        await expect(page.get_by_role("heading", name="Your answer is on its way")).to_be_visible()
    await counted(here, terms, 1)


@pytest.mark.slow
async def test_what_the_page_cannot_answer_is_said(here: Place) -> None:
    async with here.person() as context:
        page = await visit(context, f"{here.page_url}#invitation=AAAA")
        await expect(page.get_by_text("The link of your invitation is incomplete.")).to_be_visible()
        page = await visit(context, here.page_url)
        await expect(page.get_by_role("heading", name="No question is open")).to_be_visible()
        terms = await opened(here, Question("noise", Laplace(0.0, 1.0)))
        page = await visit(context, here.page_url)
        await expect(page.get_by_role("heading", name="This question needs the program")).to_be_visible()
        await is_for_everybody(page)
        await here.at.operator.withdraw(terms.round_id)
        terms = await opened(here)
        link = await here.invitation(terms)
        await here.at.submit(terms, people(BIT, 3, 1))
        await here.at.finish(terms)
        page = await visit(context, link)
        await expect(page.get_by_role("heading", name="This question takes no more answers")).to_be_visible()


@pytest.mark.slow
async def test_the_page_answers_from_a_file_too(here: Place, tmp_path: Path) -> None:
    terms = await opened(here)
    _, _, fragment = (await here.invitation(terms)).partition("#")
    async with here.person() as context:
        page = await visit(context, f"{here.page_url}#{fragment}")
        async with page.expect_download() as download:
            await page.get_by_text("Who sees what, and whom you trust for what").click()
            await page.get_by_role("link", name="Save this page as a file").click()
        await (await download.value).save_as(file := tmp_path / "participate.html")
        assert hashlib.sha256(file.read_bytes()).hexdigest() == page_hash()
        page = await visit(context, f"{file.as_uri()}#{fragment}")
        await expect(page.get_by_role("heading", name="Where is the deployment?")).to_be_visible()
        await page.get_by_label("Address of the gateway").fill(here.url)
        await page.get_by_role("button", name="Go on").click()
        await expect(page.get_by_text("This page was opened from a file.")).to_be_attached()
        await choose_and_send(page)
        await expect(page.get_by_role("heading", name="Your answer is on its way")).to_be_visible()
    await counted(here, terms, 1)


@pytest.mark.slow
async def test_an_answer_that_never_arrived_is_noticed(here: Place) -> None:
    """A gateway that says ACCEPTED and passes nothing on is found out after the round."""
    terms = await opened(here)

    async def accept(_: bytes, __: PassOn) -> bytes:
        return pb.SubmitResponse(codes=[pb.SUBMISSION_CODE_ACCEPTED]).SerializeToString()

    async def say_nothing(_: bytes, __: PassOn) -> bytes:
        return pb.SubmitResponse().SerializeToString()

    async with here.person() as context:
        page = await visit(context, await here.invitation(terms))
        here.gateway.instead = {"Submit": say_nothing}
        await choose_and_send(page)
        await expect(page.get_by_role("heading", name="This page stops here")).to_be_visible()
        await expect(page.get_by_text("No answer was sent.")).to_have_count(0)  # it was, and to whom is not known
        here.gateway.instead = {"Submit": accept}
        await page.get_by_role("button", name="Try again").click()
        await expect(page.get_by_role("heading", name="Your answer is on its way")).to_be_visible()
        await counted(here, terms, 0)
        await page.get_by_role("button", name="Look for the result").click()
        await expect(page.get_by_text("Your answer was lost or replaced at shuffler-1 and shuffler-2.")).to_be_visible()
