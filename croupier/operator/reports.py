"""The contents of a report: verified results of a deployment, or results in files; and its page as a file."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from croupier.accountant.certificate import Certificate
from croupier.accountant.composed_certificates import compose
from croupier.accountant.guarantees import Guarantee
from croupier.deploy.directory import read_deployment
from croupier.net.transport import Transport
from croupier.operator.published_result import PublishedResult, open_published, published_results
from croupier.protocol.names import JsonObject
from croupier.protocol.surveys import Survey, SurveyWording
from croupier.show.cross_tables import add_computed, has_table
from croupier.show.language import say, speaking
from croupier.show.numbers import labels_of
from croupier.show.published import publication_json
from croupier.show.report import ReportRound, WavesTogether
from croupier.show.survey_description import LEFT_OUT_TEXTS

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
_PRINTED_WITHIN_S = 120.0
"""Seconds in which the browser must print a report."""
_READABLE = "it must be what --json of 'croupier survey results' or 'croupier demo' printed"


@dataclass(frozen=True)
class ReportRounds:
    """The rounds of a report.

    Attributes:
        rounds: in the requested order.
        deployment: the name of the deployment whose keys every signature was verified with; "" if one is from a file.
        fixed_terms: they are one survey or one demonstration, whose terms were fixed before the first result.
        survey: the only survey among them, if there is nothing else.
        waves: of a survey with a calendar.
    """

    rounds: tuple[ReportRound, ...]
    deployment: str
    fixed_terms: bool
    survey: Survey | None
    waves: WavesTogether | None = None

    def title(self, language: str) -> str:
        """Returns the survey's title in a language, or a general one."""
        with speaking(language):
            return say("What people answered") if self.survey is None else _wording(self.survey, language).title

    def introduction(self, language: str) -> list[str]:
        """Returns the survey's introduction in a language, and the meaning of questions that people left out."""
        if self.survey is None:
            return []
        about = _wording(self.survey, language).introduction
        with speaking(language):
            return [*([about] if about else []), say(LEFT_OUT_TEXTS[self.survey.left_out])]


def _wording(survey: Survey, language: str) -> SurveyWording:
    return next(
        (wording for wording in survey.wordings if wording.language.lower() == language.lower()), survey.wordings[0]
    )


def together(results: Sequence[PublishedResult]) -> Guarantee | None:
    """Returns the guarantee for a person who answered every question with the largest budget; None without results.

    The survey fixes all terms before the first round opens.
    """
    granted = [Certificate.from_message(each.certificate) for each in results if each.certificate.granted]
    return compose(granted, fixed_terms=True) if granted else None


async def collect(
    asked: Sequence[str],
    directory: Path,
    patience_s: float,
    transport: Transport,
    collector_key: Path | None,
    tell: Callable[[str], None],
    sums: Sequence[Sequence[str]] = (),
) -> ReportRounds:
    """Returns the rounds of a report.

    Args:
        asked: each a survey or a round of the deployment, or a JSON file; optionally after GROUP=.
        directory: of the deployment; not read if there are only files.
        patience_s: the time to wait for each result.
        transport: to the analyzer.
        collector_key: opens sealed results; None leaves them sealed.
        tell: called with a sentence before a wait for a result.
        sums: answers that are added up in every round whose question has all of them.

    Raises:
        ValueError: a file is not a result, there is no request, or no round has the answers of a sum.
        Refusal, SignatureError: as `published_results`.
    """
    rounds: list[ReportRound] = []
    survey, is_demonstration = None, False
    from_files = False
    for group, name, file in map(_split, asked):
        if file is not None:
            further, is_demonstration = _read(file, group)
            from_files = True
        else:
            published = await published_results(directory, name, patience_s, transport, tell)
            first = published[0].terms.survey
            survey = first if first.wordings and first.survey_id == name else None
            further = [shown(each, collector_key, sums, group) for each in published]
        rounds += further
    check_sums(rounds, sums)
    alone = len(asked) == 1
    return ReportRounds(
        tuple(rounds),
        "" if from_files else read_deployment(directory).name,
        alone and (is_demonstration or survey is not None),
        survey if alone else None,
    )


def check_sums(rounds: Sequence[ReportRound], sums: Sequence[Sequence[str]]) -> None:
    """Raises ValueError if no round has all answers of a sum."""
    for categories in sums:
        if not any(set(categories) <= {*labels_of(report_round.result)} for report_round in rounds):
            raise ValueError(f"sum is {'; '.join(categories)}; no round of the report has all of these answers")


def shown(
    published: PublishedResult,
    collector_key: Path | None,
    sums: Sequence[Sequence[str]],
    group: str = "",
    wave: int = 0,
) -> ReportRound:
    """Returns a verified result with its cross table, if it has one, and the sums."""
    publication, certificate, signed = published
    if publication.sealed_result and collector_key is not None:
        publication = open_published(publication, collector_key)
    result = publication_json(publication, certificate)
    mine = [categories for categories in sums if set(categories) <= {*labels_of(result)}]
    add_computed(result, publication, certificate, mine, table=has_table(result))
    return ReportRound(result, group, signed, wave)


def _split(text: str) -> tuple[str, str, Path | None]:
    """Returns group, round and file of "GROUP=ROUND" or "GROUP=FILE.json"; the group is "" if there is none."""
    group, equals, name = text.partition("=")
    if not equals or Path(text).is_file():
        group, name = "", text
    file = Path(name)
    return group.strip(), name, file if file.suffix == ".json" or file.is_file() else None


def _read(file: Path, group: str) -> tuple[list[ReportRound], bool]:
    """Returns the results in a file, and whether it is of a demonstration."""
    try:
        document = json.loads(file.read_bytes())
    except ValueError as error:
        raise ValueError(f"{file} cannot be read ({error}); {_READABLE}") from error
    several = document.get("questions") if isinstance(document, dict) else None
    results: list[JsonObject] = several if isinstance(several, list) else [document]
    for result in results:
        if not (
            isinstance(result, dict)
            and isinstance(result.get("certificate"), dict)
            and "granted" in result["certificate"]
        ):
            raise ValueError(f"{file} is not a result; {_READABLE}")
    rounds = [ReportRound(result, group or str(result.get("group") or "")) for result in results]
    return rounds, several is not None


def check_report_file(out: Path) -> None:
    """Checks that a report can be written to a file, before anything is collected for it.

    Raises:
        ValueError: its name has another ending than .html or .pdf, or no browser is installed that prints a PDF.
    """
    if out.suffix.lower() not in (".html", ".pdf"):
        raise ValueError(f"out is {out}; its name must end in .html or .pdf")
    if out.suffix.lower() == ".pdf" and _browser() is None:
        raise ValueError(
            f"out is {out}, and no Chromium or Chrome was found that prints a PDF: install one, or write .html and "
            "print it from a browser"
        )


def write_report(page: str, out: Path) -> None:
    """Writes a page as HTML, or as the PDF that a browser prints of it.

    Raises:
        RuntimeError: the browser has not printed it.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.suffix.lower() == ".html":
        out.write_text(page, encoding="utf-8")
        return
    with tempfile.TemporaryDirectory() as folder:
        html = Path(folder) / "report.html"
        html.write_text(page, encoding="utf-8")
        print_page(html, out)


def _browser() -> str | None:
    return next((path for name in _BROWSERS if (path := shutil.which(name))), None)


def print_page(html: Path, out: Path) -> None:
    """Prints an HTML file as a PDF with an installed browser, which has a profile of its own and no network to ask.

    Raises:
        RuntimeError: there is no browser, or it has not printed the file.
    """
    browser = _browser()
    if browser is None:
        raise RuntimeError("no Chromium or Chrome was found")
    with tempfile.TemporaryDirectory() as profile:
        options = ["--headless", "--disable-gpu", "--no-first-run", f"--user-data-dir={profile}"]
        # The browser's sandbox does not start for root. The page has no script.
        options += ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        options += ["--no-pdf-header-footer", f"--print-to-pdf={out.absolute()}", html.absolute().as_uri()]
        before = out.stat().st_mtime_ns if out.exists() else None
        done = subprocess.run(
            [browser, *options], capture_output=True, text=True, timeout=_PRINTED_WITHIN_S, check=False
        )
    if not out.exists() or out.stat().st_mtime_ns == before:
        raise RuntimeError(
            f"{browser} has not printed {out} (exit code {done.returncode}): {done.stderr[-500:].strip()}"
        )
