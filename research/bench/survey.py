"""A survey of many simulated people through a gateway: how long it takes, and whether everybody is counted.

Every service is a process of its own, and so is the gateway. Each person opens an invitation, fetches and checks the
terms of all questions, and answers each one, as the participants' page does; `at_once` of them do so at
the same time. All come from one address, of which the gateway works on three calls at once.
"""

from __future__ import annotations

import asyncio
import csv
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from croupier.client.async_client import AsyncClient
from croupier.deploy.directory import read_deployment
from croupier.deploy.local.processes import temporary_deployment
from croupier.operator.invitations import People, invite_people, num_answered
from croupier.operator.opened_surveys import close_rounds
from croupier.operator.published_result import published_results
from croupier.operator.reports import together
from croupier.operator.survey_file import SurveyFile
from croupier.operator.survey_plans import open_survey
from croupier.protocol.names import JsonObject

_CHOICES = ("very", "quite", "a little", "hardly", "not at all")
_TRUE_SHARES = (0.3, 0.4, 0.15, 0.1, 0.05)


def _file(people: int, questions: int, budget: float) -> SurveyFile:
    asked = [
        {"name": f"q{number}", "question": f"Question {number}: how satisfied are you?", "choices": _CHOICES}
        for number in range(1, questions + 1)
    ]
    return SurveyFile.model_validate(
        {
            "name": "bench",
            "title": "A survey of simulated people",
            "consent": "Nobody is asked.",
            "budgets": [budget],
            "min_batch_size": people,
            "epsilon_max": min(20.0, budget),
            "questions": asked,
        }
    )


@contextmanager
def _gateway(directory: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "croupier.cli", "gateway", "--dir", str(directory), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            yield line[line.index("http") :].partition('"')[0].strip()
        finally:
            process.terminate()


def measure_survey(
    people: int, questions: int, at_once: int, budget: float, hops: int, note: Callable[[str], None]
) -> JsonObject:
    """Returns what a survey of simulated people has shown; "errors" are the distances of shares from the true ones.

    Args:
        people: how many are invited; all answer every question.
        questions: how many questions.
        at_once: how many people answer at the same time.
        budget: the ε of all answers of one person together.
        hops: the number of shufflers.
        note: called with a line on the progress now and then.
    """
    with temporary_deployment(hops) as local, _gateway(local.directory) as url:
        return asyncio.run(_measure(local.directory, url, people, questions, at_once, budget, note))


async def _measure(
    directory: Path, url: str, people: int, questions: int, at_once: int, budget: float, note: Callable[[str], None]
) -> JsonObject:
    survey = await open_survey(directory, _file(people, questions, budget))
    begun = time.perf_counter()
    labels = tuple((f"person {number}",) for number in range(1, people + 1))
    folder = directory / "invitations"
    await invite_people(directory, "bench", People(("label",), labels), folder, gateway=url, qr_codes=False)
    links = [row["link"] for row in csv.DictReader((folder / "links.csv").read_text().splitlines())]
    inviting_s = time.perf_counter() - begun

    source = random.Random(2026)  # noqa: S311 (whom a simulation asks)
    answers = [source.choices(_CHOICES, _TRUE_SHARES, k=questions) for _ in links]
    took: list[float] = []
    queue = list(zip(links, answers, strict=True))
    deployment = read_deployment(directory)

    async def answer_some() -> None:
        while queue:
            link, chosen = queue.pop()
            started = time.perf_counter()
            for asked, value in zip(await client.rounds_of(survey.survey_id), chosen, strict=True):
                await asked.submit(value, budget, person=link, invitation=link)
            took.append(time.perf_counter() - started)
            if len(took) % 100 == 0:
                note(f"{len(took):,} of {people:,} people have answered")

    begun = time.perf_counter()
    async with AsyncClient(deployment, directory=directory / "people", gateway=url) as client:
        await asyncio.gather(*(answer_some() for _ in range(at_once)))
    answering_s = time.perf_counter() - begun
    answered = await num_answered(directory, "bench")
    begun = time.perf_counter()
    await close_rounds(directory, survey.round_ids())
    results = await published_results(directory, "bench", 600.0)
    closing_s = time.perf_counter() - begun
    truths = [[column.count(choice) / people for choice in _CHOICES] for column in zip(*answers, strict=True)]
    values = [question.publication.values for question in results]
    return {
        "people": people,
        "questions": questions,
        "answered": answered,
        "counted": [question.publication.num_reports for question in results],
        "inviting_s": inviting_s,
        "answering_s": answering_s,
        "person_s": statistics.median(took),
        "person_99_s": statistics.quantiles(took, n=100)[98],
        "closing_s": closing_s,
        "epsilon_together": guarantee.epsilon if (guarantee := together(results)) else None,
        "errors": [
            value.estimate - true
            for estimates, truth in zip(values, truths, strict=True)
            for value, true in zip(estimates, truth, strict=True)
        ],
        "standard_errors": [value.standard_error for estimates in values for value in estimates],
    }


def survey_lines(measured: JsonObject) -> list[str]:
    """Returns the same for people."""
    within = sum(abs(e) <= 1.96 * s for e, s in zip(measured["errors"], measured["standard_errors"], strict=True))
    together = measured["epsilon_together"]
    return [
        f"{measured['people']:,} people, {measured['questions']} questions: {measured['answered']:,} have answered, "
        f"counted {', '.join(f'{count:,}' for count in measured['counted'])}",
        f"invitations {measured['inviting_s']:.1f} s; answers {measured['answering_s']:.0f} s, "
        f"{measured['people'] / measured['answering_s']:.1f} people a second; a person {measured['person_s']:.2f} s "
        f"(median), {measured['person_99_s']:.2f} s (99 %); close to results {measured['closing_s']:.1f} s",
        f"{within} of {len(measured['errors'])} shares within 1.96 standard errors of the truth; all results together: "
        + ("no certificate" if together is None else f"ε = {together:.4f}, CERTIFIED"),
    ]
