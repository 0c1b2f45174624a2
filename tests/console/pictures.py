"""Takes the pictures of docs/console.md: `.venv/bin/python -m tests.console.pictures`. Look at each of them afterwards.

Three rounds of the demonstration's questions among 2,000 people, two of them finished, in a deployment in memory.
"""

from __future__ import annotations

import asyncio
import csv
import io
import random
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from playwright.async_api import Browser

from croupier.client.submission import Participant
from croupier.deploy.local.demo_plan import SURVEY, SURVEY_QUESTIONS
from croupier.operator.round_settings import RoundSettings
from tests.support.console import served
from tests.support.participants import chromium
from tests.support.rounds import Table, table

DOCS = Path(__file__).parents[2] / "docs"
PEOPLE, HERE = 2000, 64
BUDGETS = random.Random(1).choices((0.5, 1.0, 2.0), (0.54, 0.37, 0.09), k=PEOPLE)


async def played(at: Table) -> list[str]:
    """Returns the names of the three rounds; the last one is open, with the answers of the first people."""
    names: list[str] = []
    with SURVEY.open(encoding="utf-8") as file:
        rows = random.Random(2).sample(list(csv.DictReader(file)), PEOPLE)
    for asked in SURVEY_QUESTIONS:
        values = [asked.question.mechanism.parse_value(row[asked.column]) for row in rows]
        settings = RoundSettings(asked.question, (0.5, 1.0, 2.0), min_batch_size=100, epsilon_max=0.5, delta=1e-6)
        terms = await at.operator.open_round(settings)
        names.append(terms.round_id)
        users = [Participant(value, budget) for value, budget in zip(values, BUDGETS, strict=True)]
        if len(names) < len(SURVEY_QUESTIONS):
            await at.submit(terms, users)
            await at.finish(terms)
        else:
            await at.submit(terms, users[:HERE])
    return names


async def take(browser: Browser, url: str, name: str, theme: str, size: tuple[int, int], ready: str) -> None:
    """Takes the picture of a page, from where `ready` begins if the page is longer than a phone."""
    page = await browser.new_page(
        color_scheme=theme,  # type: ignore[arg-type]
        viewport={"width": size[0], "height": size[1]},
    )
    await page.goto(url)
    heading = page.get_by_text(ready, exact=True).first
    await heading.wait_for(timeout=120_000)
    for what in ("The certificate in words", "The profile"):
        await page.get_by_text(f"{what} is being worked out").wait_for(state="hidden", timeout=120_000)
    if name == "profile":
        await heading.evaluate("heading => window.scrollTo(0, heading.getBoundingClientRect().top + scrollY)")
    picture = Image.open(io.BytesIO(await page.screenshot()))
    picture.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(DOCS / f"console-{name}.png", optimize=True)
    await page.close()


async def main(directory: Path) -> None:
    async with table(directory, 2) as at, served(at.inside.directory, at) as url, chromium() as browser:
        _, finished, opened = await played(at)
        await take(browser, url, "overview", "light", (1200, 560), "Rounds")
        await take(browser, f"{url}rounds/{opened}", "round", "dark", (1200, 620), "Stage by stage")
        await take(browser, f"{url}rounds/{finished}", "result", "light", (1200, 1080), "What was learned")
        await take(browser, f"{url}rounds/{finished}", "profile", "dark", (390, 700), "The privacy profile")


if __name__ == "__main__":
    with TemporaryDirectory() as scratch:
        asyncio.run(main(Path(scratch)))
