"""A survey of one question by options, which stand for the lines of a survey's file (`operator.survey_file`)."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from croupier.cli.mechanism_options import HopNoiseOptions
from croupier.operator.survey_file import OFFERED, SurveyFile, survey_of_values
from croupier.protocol.collector import read_collector_key

_WORDING, _QUESTION, _PEOPLE = "The question as people read it", "The question and its randomizer", "People and time"
_PRIVACY = "Privacy"
_OF_THE_QUESTION = ("question", "title", "help_text", "unit", "randomizer", "low", "high", "several")
_OF_THE_SURVEY = (
    *("language", "delta", "epsilon_max", "dishonest", "min_batch_size", "max_batch_size"),
    *("budget_privacy", "budget_privacy_delta"),
)
_DEFAULTS = {name: field.default for name, field in SurveyFile.model_fields.items()}


@Parameter(name="*")
@dataclass(frozen=True)
class QuestionOptions:
    """The question, its budgets and its people; a field is the line of its name in the file."""

    question: Annotated[str, Parameter(group=_WORDING, help="The question as people read it.")] = ""
    choices: Annotated[
        str,
        Parameter(
            group=_WORDING,
            help="The answers as people read them, separated by semicolons: krr is then the default; with --randomizer "
            "rr the captions of 0 and 1.",
        ),
    ] = ""
    title: Annotated[str, Parameter(group=_WORDING, help="A heading above the question.")] = ""
    help_text: Annotated[str, Parameter(group=_WORDING, help="What helps people to answer.")] = ""
    unit: Annotated[str, Parameter(group=_WORDING, help="The unit of a number.")] = ""
    language: Annotated[str, Parameter(group=_WORDING, help="The language of these texts, such as de or pt-BR.")] = "en"
    randomizer: Annotated[
        str,
        Parameter(
            group=_QUESTION,
            help=f"{', '.join(OFFERED)}; parameters may follow, as in krr(k=5) or levels(k=13). Default: rr; with "
            "choices krr, with --low and --high onebit.",
        ),
    ] = ""
    low: Annotated[float | None, Parameter(group=_QUESTION, help="The low end of the range of a number.")] = None
    high: Annotated[float | None, Parameter(group=_QUESTION, help="The high end of the range of a number.")] = None
    several: Annotated[
        bool, Parameter(group=_QUESTION, help="A person may choose several of the choices, or none.")
    ] = False
    categories: Annotated[
        Path | None,
        Parameter(group=_QUESTION, help="Instead of --choices: a text file with an answer on each line, up to 65,536."),
    ] = None
    grid: Annotated[
        str,
        Parameter(
            group=_PRIVACY,
            help="The local epsilons that clients may use, separated by commas; 4:2 sets another --epsilon-max, 2, for "
            "clients with 4. Default: four budgets, up to the largest that --min-batch-size people can use without the "
            "risk of a refusal.",
        ),
    ] = ""
    delta: Annotated[float, Parameter(group=_PRIVACY, help="The central delta to certify at, 0 < delta <= 0.1.")] = (
        _DEFAULTS["delta"]
    )
    epsilon_max: Annotated[
        float, Parameter(group=_PRIVACY, help="Refuse to release above this certified epsilon of any client.")
    ] = _DEFAULTS["epsilon_max"]
    dishonest: Annotated[int, Parameter(group=_PRIVACY, help="Certify against this many dishonest clients.")] = (
        _DEFAULTS["dishonest"]
    )
    budget_privacy: Annotated[
        float | None,
        Parameter(
            group=_PRIVACY,
            help="The epsilon with which the counts in a certificate hide one person's budget, 0.001 to 20; 0: they "
            "are exact. Default: 1 if --min-batch-size is at least four times the people that such counts leave out, "
            "else 0.",
        ),
    ] = None
    budget_privacy_delta: Annotated[
        float | None, Parameter(group=_PRIVACY, help="The delta of --budget-privacy; default: 1e-6.")
    ] = None
    min_batch_size: Annotated[int, Parameter(group=_PEOPLE, help="Fewest clients that are mixed, at least 2.")] = (
        _DEFAULTS["min_batch_size"]
    )
    max_batch_size: Annotated[
        int, Parameter(group=_PEOPLE, help="Most clients that are admitted; 0: all registered ones.")
    ] = _DEFAULTS["max_batch_size"]
    close_after_s: Annotated[
        float, Parameter(group=_PEOPLE, help="Close automatically after this many seconds; 0: only by command.")
    ] = 0.0
    noise: HopNoiseOptions = HopNoiseOptions()
    collector: Annotated[
        Path | None, Parameter(help="Publish the result sealed to this public key (FILE.pub of 'keygen --collector').")
    ] = None

    def file(self, question_name: str, name: str) -> SurveyFile:
        """Returns the contents of a file with these lines; raises ValueError for options that do not fit."""
        if not 0 <= self.close_after_s < math.inf:
            raise ValueError(
                f"close_after_s is {self.close_after_s:g}; it must be a finite number > 0, or 0 for by hand"
            )
        question: dict[str, Any] = {line: getattr(self, line) for line in _OF_THE_QUESTION}
        question |= {
            "name": question_name,
            "choices": [choice.strip() for choice in self.choices.split(";") if self.choices],
        }
        if self.categories is not None:
            question["categories"] = str(self.categories)
        lines: dict[str, Any] = {line: getattr(self, line) for line in _OF_THE_SURVEY}
        lines |= asdict(self.noise)
        if self.close_after_s:
            lines["closes"] = datetime.now(UTC) + timedelta(seconds=self.close_after_s)
        if self.collector is not None:
            lines["hpke_suite"], _ = read_collector_key(self.collector.read_text(encoding="utf-8"))
        return survey_of_values({"name": name, **lines, **self._budgets(), "questions": [question]})

    def _budgets(self) -> dict[str, Any]:
        """Returns the budgets, ascending, and the limits of the ones that have their own; no line by default."""
        if not self.grid:
            return {}
        try:
            parts = [part.partition(":") for part in self.grid.split(",")]
            budgets = sorted(float(budget) for budget, _, _ in parts)
            limits = {float(budget): float(limit) for budget, colon, limit in parts if colon}
        except ValueError as error:
            raise ValueError(
                f"grid is {self.grid!r}; it must be numbers, or pairs such as 4:2, separated by commas"
            ) from error
        return {"budgets": budgets, "epsilon_max_of": limits}

    def sealed_to(self) -> bytes:
        """Returns the collector's public key; empty if there is none."""
        return (
            b"" if self.collector is None else read_collector_key(self.collector.read_text(encoding="utf-8"))[1].public
        )
