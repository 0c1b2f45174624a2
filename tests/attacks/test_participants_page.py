"""Attacks on a person who answers in a browser, by a gateway, a service or a network: the page sends nothing then.

They need a browser, because it is the page itself that has to notice.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext, Page, Route, expect

from croupier.deploy.page.participants import deployment_document, versions_document
from croupier.operator.keys import make_deployment, signed_here
from croupier.operator.opened_surveys import kept_rounds, withdraw_rounds
from croupier.protocol.deployment import Deployment
from croupier.protocol.envelope import generate_key_pair
from croupier.protocol.identity import Identity, Kind, canonical
from croupier.protocol.manifest import RoundTerms, one_survey, parse_terms
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.names import PrivateKey
from croupier.protocol.questions import Question
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.runtime.service_directory import load_secrets
from tests.support import settings
from tests.support.forged import forged_rounds, shows
from tests.support.gateways import PassOn, own_tickets, tickets_for_all
from tests.support.messages import naming
from tests.support.participants import Place, is_for_everybody, place
from tests.support.surveys import opened_survey

pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    async with place(tmp_path_factory.mktemp("page"), hops=1) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def terms(here: Place) -> AsyncIterator[RoundTerms]:
    opened = await here.at.operator.open_round(settings())
    here.gateway.seen.clear()
    yield opened
    here.gateway.instead.clear()
    await here.at.operator.withdraw(opened.round_id)


async def stops(page: Page) -> None:
    await expect(page.get_by_role("heading", name="This page stops here")).to_be_visible()
    await expect(page.get_by_text("No answer was sent.")).to_be_visible()


Change = Callable[[pb.Manifest, pb.Survey], object]


def forged(here: Place, change: Change, *, own_keys: bool) -> Callable[..., object]:
    """Replaces the signed round by another one, signed by the services themselves or with the attacker's keys."""

    async def instead(raw: bytes, pass_on: PassOn) -> bytes:
        answer = rpc.GetRoundResponse.FromString(await pass_on(raw))
        signed = answer.round.manifest
        manifest, survey = pb.Manifest.FromString(signed.payload), pb.Survey.FromString(answer.round.survey)
        change(manifest, survey)
        answer.round.survey = canonical(survey)
        manifest.survey_hash = hashlib.sha256(b"croupier/v1/survey\0" + answer.round.survey).digest()
        signed.payload = canonical(manifest)
        for signature in signed.signatures:
            secrets = load_secrets(here.at.inside.directory / signature.signer)
            key = os.urandom(32) if own_keys else secrets.identity_key
            signature.CopyFrom(Identity(signature.signer, PrivateKey(key)).sign(Kind.MANIFEST, signed.payload))
        return answer.SerializeToString()

    return instead


async def another_survey(raw: bytes, pass_on: PassOn) -> bytes:
    """Leaves the signed manifest as it is, beside a survey that nobody has signed."""
    answer = rpc.GetRoundResponse.FromString(await pass_on(raw))
    survey = pb.Survey.FromString(answer.round.survey)
    larger_budget(pb.Manifest(), survey)
    answer.round.survey = canonical(survey)
    return answer.SerializeToString()


def other_hop_key(manifest: pb.Manifest, survey: pb.Survey) -> None:
    manifest.hops[0].public_key = generate_key_pair(survey.hpke_suite).public


def larger_budget(_: pb.Manifest, survey: pb.Survey) -> None:
    survey.questions[0].budget_grid.add(epsilon=20.0)


def unknown_field(manifest: pb.Manifest, _: pb.Survey) -> None:
    manifest.MergeFromString(bytes.fromhex("a00601"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "own_keys"),
    [(other_hop_key, True), (larger_budget, True), (unknown_field, False), (None, False)],
)
async def test_the_page_refuses_terms_that_are_not_the_signed_ones(
    here: Place, terms: RoundTerms, change: Change | None, own_keys: bool
) -> None:
    """A hop's key or the budgets change under false signatures; or all services have signed what it cannot read."""
    instead = forged(here, change, own_keys=own_keys) if change else another_survey
    here.gateway.instead = {"GetRound": instead}  # type: ignore[dict-item]
    async with here.person() as context:
        page = await context.new_page()
        await page.goto(await here.invitation(terms))
        await stops(page)
        await is_for_everybody(page)
    assert set(here.called) == {"GetRound"}


@pytest.mark.slow
async def test_the_page_refuses_tickets_by_which_it_would_be_recognised(here: Place, terms: RoundTerms) -> None:
    """They are made with keys for this one person; what was sealed is sent later, with honest tickets."""

    async with here.person() as context:
        page = await context.new_page()
        await page.goto(await here.invitation(terms))
        here.gateway.instead = {"GetTickets": own_tickets}
        await page.get_by_role("radio", name="yes", exact=True).check()
        await page.get_by_role("button", name="Randomize, seal and send").click()
        await stops(page)
        assert "Submit" not in here.called
        here.gateway.instead.clear()
        await page.get_by_role("button", name="Try again").click()
        await expect(page.get_by_role("heading", name="Your answer is on its way")).to_be_visible()
    asked = [pb.GetTicketsRequest.FromString(raw) for method, raw in here.gateway.seen if method == "GetTickets"]
    assert len({request.requests[0].envelope for request in asked} - {b""}) == 1


@pytest.mark.slow
async def test_a_dishonest_accountant_gets_one_randomization_from_two_tabs(here: Place, terms: RoundTerms) -> None:
    """It gives tickets for any request of one person, and would learn twice as much from two answers."""

    async def tickets(raw: bytes, pass_on: PassOn) -> bytes:
        if not pb.GetTicketsRequest.FromString(raw).requests[0].envelope:  # whether the link admits
            return await pass_on(raw)
        return await tickets_for_all(here.at.inside.running["accountant"].service, raw)

    here.gateway.instead = {"GetTickets": tickets}
    async with here.person() as context:
        link = await here.invitation(terms)
        tabs = [await context.new_page() for _ in range(2)]
        for tab in tabs:
            await tab.goto(link)
            await tab.get_by_role("radio", name="yes", exact=True).check()
        for tab in tabs:
            await tab.get_by_role("button", name="Randomize, seal and send").click()
        for tab in tabs:
            await expect(tab.get_by_role("heading", name="Your answer is on its way")).to_be_visible()
    assert len({raw for method, raw in here.gateway.seen if method == "Submit"}) == 1


def version_after(before: Deployment, directory: Path, **changes: object) -> Deployment:
    """The next version, signed by all services."""
    following = {"version": before.version + 1, "previous": before.fingerprint.hex(), "signatures": ()}
    return signed_here(before.model_copy(update=following | changes), [directory])


def with_foreign_key(deployment: Deployment, directory: Path) -> Deployment:
    """Another deployment of the same name, made by strangers."""
    other = make_deployment(directory, deployment.name, 1)
    return version_after(deployment, directory, services=other.services)


def not_signed_by(version: Deployment, name: str) -> Deployment:
    return version.model_copy(
        update={"signatures": tuple(signature for signature in version.signatures if signature.signer != name)}
    )


@asynccontextmanager
async def showing(context: BrowserContext, *versions: Deployment) -> AsyncIterator[None]:
    """Has the gateway show these versions, of which the last is the newest."""
    documents = {"deployment": deployment_document(versions[-1]), "versions": versions_document(versions)}
    for name, document in documents.items():
        await context.route(f"**/{name}.json", partial(answer_with, document))
    yield
    for name in documents:
        await context.unroute(f"**/{name}.json")


async def answer_with(document: bytes, route: Route) -> None:
    await route.fulfill(body=document, content_type="application/json")


async def asks(page: Page, said: str) -> None:
    await expect(page.get_by_role("heading", name="The keys of this deployment have changed")).to_be_visible()
    await expect(page.get_by_role("alert")).to_contain_text(said)


async def may_answer(page: Page) -> None:
    await expect(page.get_by_role("button", name="Randomize, seal and send")).to_be_visible()


@pytest.mark.slow
async def test_the_page_follows_versions_that_all_have_signed_and_no_others(
    here: Place, terms: RoundTerms, tmp_path: Path
) -> None:
    """With an invitation of the first version: no question while the chain holds, nothing sent where it does not."""
    first = here.at.deployment
    second = version_after(first, here.at.inside.directory, gateway="https://gateway.example")
    third = version_after(second, here.at.inside.directory, gateway=None)
    strange = with_foreign_key(first, tmp_path / "strangers")
    async with here.person() as context:
        page = await context.new_page()
        link = await here.invitation(terms)
        for refused in (
            (first, not_signed_by(second, "analyzer")),
            (first, second.model_copy(update={"previous": "ab" * 32})),
            (first, third),  # the version between is left out
            (second,),
            (first, strange),
            (first, not_signed_by(second, "analyzer"), third),
        ):
            async with showing(context, *refused):
                await (page.goto(link) if page.url == "about:blank" else page.reload())
                await stops(page)
        assert here.called == []
        async with showing(context, first, second, third):
            await page.reload()
            await may_answer(page)
        async with showing(context, first, second):  # older than what was seen, whatever the invitation names
            await page.reload()
            await asks(page, "Version 2 of the deployment is shown, and this browser knows version 3")
            await is_for_everybody(page)
        strange = with_foreign_key(third, tmp_path / "others")
        for refused in ((third, strange), (strange,)):
            async with showing(context, *refused):
                await page.goto(here.page_url)
                await page.reload()
                await asks(page, "have not agreed to the keys")
        async with showing(context, first, second, third):
            await page.reload()
            await may_answer(page)


@pytest.mark.slow
@pytest.mark.parametrize("renamed", [False, True])
async def test_the_page_goes_on_with_other_keys_only_if_the_operator_confirms(
    here: Place, terms: RoundTerms, renamed: bool
) -> None:
    """Another deployment than the one of the last visit: of its name, where the chain is broken, or at its address."""
    directory = here.at.inside.directory
    other = version_after(here.at.deployment, directory, previous="ab" * 32)
    if renamed:
        other = version_after(here.at.deployment, directory, name="elsewhere")
    async with here.person() as context:
        page = await context.new_page()
        await page.goto(await here.invitation(terms))
        await may_answer(page)
        calls = len(here.gateway.seen)
        async with showing(context, other):
            await page.goto(here.page_url)
            await asks(page, "have not agreed to the keys")
            await is_for_everybody(page)
            assert len(here.gateway.seen) == calls
            await page.get_by_role("button", name="The operator has confirmed").click()
            await (stops if renamed else may_answer)(page)  # nobody has signed terms for the renamed one
        assert len(here.gateway.seen) > calls


async def test_a_question_is_shown_as_text_and_never_as_markup(here: Place) -> None:
    """The services refuse markup; a label of a category, which may have any letters, is not run either."""
    labels = ("<img src=x onerror=alert(1)>", "</script><script>alert(1)</script>")
    opened = await here.at.operator.open_round(settings(Question("mood", KaryResponse(2, labels))))
    async with here.person() as context:
        page = await context.new_page()
        await page.goto(await here.invitation(opened))
        await expect(page.get_by_role("radio", name=labels[0])).to_be_visible()
        await page.get_by_role("radio", name=labels[1]).check()
        assert await page.locator("main img, main script").count() == 0
    await here.at.operator.withdraw(opened.round_id)


async def test_rounds_of_two_surveys_are_no_survey_to_anybody(here: Place) -> None:
    """All services have signed the second round as one of another survey with the same name."""
    survey = await opened_survey(here.at, "two")
    rounds = kept_rounds(here.at.inside.directory, survey)
    other = forged_rounds(here.at, rounds, 0, lambda message: setattr(message, "min_batch_size", 4))
    here.gateway.seen.clear()
    here.gateway.instead = {"GetRound": shows({"two-2": other["two-2"]})}
    async with here.person() as context:
        page = await context.new_page()
        await page.goto(f"{here.page_url}#round=two-1")
        await stops(page)
    assert set(here.called) == {"GetRound"}
    second = parse_terms(rpc.GetRoundResponse.FromString(other["two-2"]).round)
    with pytest.raises(ValueError, match=naming("rounds", "survey")):
        one_survey([rounds[0], second, rounds[2]])
    here.gateway.instead.clear()
    await withdraw_rounds(here.at.inside.directory, survey.round_ids(), transport=here.at.inside.transport)
