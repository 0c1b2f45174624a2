"""A deployment behind a gateway that may be dishonest, and a browser with participants in it."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

from croupier.deploy.gateway.server import make_gateway
from croupier.deploy.listening import WebAddress
from croupier.deploy.page.participants import PAGE_PATH
from croupier.protocol.identity import public_key_of
from croupier.protocol.invitations import Invitation, new_secret
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.v1 import messages_pb2 as pb
from tests.support.gateways import Tampering, serving
from tests.support.rounds import Table, table

LOOKS = [
    ("light", 1200, None),
    ("dark", 390, {"runOnly": ["color-contrast"]}),  # the other rules do not depend on the theme
]
expect.set_options(timeout=60_000)  # others may be using the machine; nothing waits this long unless it fails


@dataclass
class Place:
    """A deployment, the gateway before it, and a browser."""

    at: Table
    gateway: Tampering
    browser: Browser
    url: str
    directory: Path
    made: int = 0
    requested: list[str] = field(default_factory=list)

    @property
    def page_url(self) -> str:
        return f"{self.url.rstrip('/')}{PAGE_PATH}"

    @property
    def seen(self) -> list[tuple[str, bytes]]:
        """Method and request of the calls since this list was cleared; "ask" whether a key may answer, for tickets."""

        def name(method: str, raw: bytes) -> str:
            asks = method == "GetTickets" and not pb.GetTicketsRequest.FromString(raw).requests[0].envelope
            return "ask" if asks else method

        return [(name(method, raw), raw) for method, raw in self.gateway.seen]

    @property
    def called(self) -> list[str]:
        """The methods that clients have called since this list was cleared."""
        return [method for method, _ in self.seen]

    async def invitation(self, terms: RoundTerms) -> str:
        """Returns the link of one person, to a survey that admits by invitation from then on."""
        invitation = Invitation(new_secret(), self.at.deployment.fingerprint, terms.round_id)
        invited = terms.survey.invitation_hash
        await self.at.operator.invite([public_key_of(invitation.key(invited))], invited, 0)
        self.at.listed.add(invited)
        return f"{self.page_url}#{invitation.fragment}"

    @asynccontextmanager
    async def person(self, **how: Any) -> AsyncIterator[BrowserContext]:
        """Yields a browser's profile; no page in it may complain, ask a third party for anything, or set a cookie."""
        context = await self.browser.new_context(**{"locale": "en-GB"} | how)
        context.set_default_timeout(60_000)
        said: list[str] = []

        def watch(page: Page) -> None:
            page.on("console", lambda message: said.append(message.text))
            page.on("pageerror", lambda error: said.append(str(error)))
            page.on("request", lambda request: self.requested.append(request.url))

        context.on("page", watch)
        yield context
        assert await context.cookies() == []
        await context.close()
        assert [message for message in said if "Failed to load resource" not in message] == []
        assert [url for url in self.requested if not url.startswith((self.url, "file:", "data:", "blob:"))] == []


@asynccontextmanager
async def place(
    directory: Path, hops: int = 2, origins: tuple[str, ...] = (), *, over_tls: bool = False
) -> AsyncIterator[Place]:
    """A deployment in memory, or over TLS for commands, which know no other way; and all that is before it."""
    async with table(directory, hops, over_tls=over_tls) as at, chromium() as browser:
        gateway = Tampering(at.inside.transport)
        server = make_gateway(at.inside.directory, WebAddress(), origins, gateway.transport)
        async with serving(server) as url:
            yield Place(at, gateway, browser, url, directory)


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Yields a browser; without one the test is skipped."""
    binary = shutil.which("chromium")
    if binary is None:
        pytest.skip("no browser: install the package 'chromium'")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=binary)
        yield browser
        await browser.close()


async def visit(context: BrowserContext, link: str) -> Page:
    page = await context.new_page()
    await page.goto(link)
    await expect(page.get_by_role("heading", level=1)).to_be_visible()
    return page


async def is_for_everybody(page: Page) -> None:
    """Both themes, a screen and a phone: no rule of axe is violated, and nothing is wider than the screen."""
    grounds = set()
    for scheme, width, rules in LOOKS:
        await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        await page.set_viewport_size({"width": width, "height": 800})
        violations = await Axe().run(page, options=rules)
        assert violations.violations_count == 0, violations.generate_report()
        assert await page.evaluate("document.documentElement.scrollWidth") <= width
        grounds.add(await page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(grounds) == 2
