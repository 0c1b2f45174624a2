"""Takes the picture of docs/ask-people.md: `.venv/bin/python -m tests.participant.pictures`. Look at it afterwards."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

from tests.support.participants import place
from tests.support.surveys import links_of, opened_survey

DOCS = Path(__file__).parents[2] / "docs"


async def main(directory: Path) -> None:
    """Takes the page of a person who has answered the first of three questions."""
    async with place(directory) as here:
        survey = await opened_survey(here.at, budgets=[1, 2, 4])
        (link,) = await links_of(here.at, survey, directory / "links", "Ada", gateway=here.url)
        async with here.person(viewport={"width": 720, "height": 1720}) as context:
            page = await context.new_page()
            await page.goto(link)
            await page.get_by_label("I have read this and agree.").check()
            await page.get_by_role("radio", name="very", exact=True).check()
            await page.get_by_text("What this device will send").first.click()
            await page.get_by_text("What is sent is your answer with a chance of").first.wait_for()
            picture = Image.open(io.BytesIO(await page.screenshot()))
    picture.convert("RGB").quantize(64, dither=Image.Dither.NONE).save(DOCS / "ask-people.png", optimize=True)


if __name__ == "__main__":
    with TemporaryDirectory() as scratch:
        asyncio.run(main(Path(scratch)))
