"""The command `report`: answered questions as one page for people who were not there, in HTML or PDF."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from croupier.cli.console import HERE, Argument, Directory, Gateway, Json, note, show
from croupier.deploy.directory import client_transport
from croupier.operator.opened_surveys import kept_versions
from croupier.operator.reports import check_report_file, collect, write_report
from croupier.show.report import report_of
from croupier.study.wave_results import waves_of_report


@Parameter(name="*")
@dataclass(frozen=True)
class WordOptions:
    """What the report says beside the results of single answers."""

    title: Annotated[str, Parameter(help="The heading of the report; default: the survey's.")] = ""
    introduction: Annotated[
        str, Parameter(help="A paragraph below the heading, instead of the survey's introduction.")
    ] = ""
    language: Annotated[
        str, Parameter(help="The language of the page (en, de), and of the questions where they have several.")
    ] = ""
    sums: Annotated[
        list[str] | None,
        Parameter(
            "--sum",
            help="Add up these answers, separated by semicolons, in every round that has them; may be repeated.",
        ),
    ] = None


def report(
    *rounds: Annotated[
        str,
        Argument(
            "SURVEY|ROUND|FILE",
            required=True,
            help="A survey, alone if it has waves, or rounds of the deployment; or files "
            "that --json of 'survey results' or 'demo' has "
            "printed, in the order of the report. GROUP=ROUND names the people who were asked; the same question "
            "in several groups is compared.",
        ),
    ],
    directory: Directory = HERE,
    out: Annotated[
        Path, Parameter(help="The page: .html; or .pdf, which an installed Chromium or Chrome prints.")
    ] = Path("report.html"),
    words: WordOptions = WordOptions(),
    fixed_terms: Annotated[
        bool, Parameter(help="All rounds were planned before the first result; they cost less together.")
    ] = False,
    collector_key: Annotated[
        Path | None, Parameter(help="Open sealed results with this key, from 'keygen --collector'.")
    ] = None,
    wait_s: Annotated[float, Parameter(help="How many seconds to wait for each result.")] = 60.0,
    gateway: Gateway = "",
    as_json: Json = False,
) -> None:
    check_report_file(out)
    added = [text.split(";") for text in words.sums or []]
    if len(rounds) == 1 and any(survey.schedule for survey in kept_versions(directory, rounds[0]).values()):
        collected = waves_of_report(directory, rounds[0], added)
    else:
        collected = asyncio.run(
            collect([*rounds], directory, wait_s, client_transport(gateway), collector_key, note, added)
        )
    page = report_of(
        words.title or collected.title(words.language),
        collected.rounds,
        introduction=[words.introduction] if words.introduction else collected.introduction(words.language),
        verified=collected.deployment,
        language=words.language,
        fixed_terms=fixed_terms or collected.fixed_terms,
        waves=collected.waves,
    )
    write_report(page, out)
    ids = [report_round.result["round_id"] for report_round in collected.rounds]
    show(as_json, {"report": str(out), "rounds": ids, "verified": bool(collected.deployment)}, f"the report is {out}")
