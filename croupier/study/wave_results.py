"""The results of a study, as its process has stored them, verified again, wave by wave."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from croupier.accountant.certificate import Certificate
from croupier.accountant.guarantees import Guarantee
from croupier.accountant.rounds.forecast import highest_cost
from croupier.accountant.spending import Entry, total_of_rounds
from croupier.deploy.directory import read_deployment
from croupier.operator.keys import replace_secret
from croupier.operator.opened_surveys import result_file, rule_goes_on, title_of, version_of_wave
from croupier.operator.published_result import PublishedResult, open_published
from croupier.operator.reports import ReportRounds, check_sums, shown
from croupier.protocol.codes import Assumption
from croupier.protocol.manifest import parse_terms
from croupier.protocol.names import JsonObject, RoundId
from croupier.protocol.publications import read_publication
from croupier.protocol.rules import Descent
from croupier.protocol.schedules import Wave
from croupier.protocol.statements import Statement
from croupier.protocol.surveys import Survey, scheduled
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.show.published import publication_json
from croupier.show.report import WavesTogether
from croupier.show.study_results import differences_between, rows_of_result, rows_without_result
from croupier.study.journal import WaveRecord, read_journal, wave_records
from croupier.study.versions import begun_versions, collector_key_file, journal_file

_KEPT_OF_ENTRY = ("local_epsilon", "local_delta", "count", "epsilon", "delta", "profile", "series")
"""The fields of an accountant's entry that are kept in a file, in their order."""


@dataclass(frozen=True)
class PlayedWave:
    """A wave by the calendar, and its outcome.

    Attributes:
        wave: by the calendar of its version.
        survey: the version that it belongs to.
        record: its record in the journal; None before the wave.
        results: of each question by its name, in order, sealed ones opened; None without a result.
    """

    wave: Wave
    survey: Survey
    record: WaveRecord | None
    results: dict[str, PublishedResult | None]

    @property
    def state(self) -> str:
        """The state of the wave in a word: "to come", or the newest step of its journal."""
        return "to come" if self.record is None else self.record.step

    @property
    def why(self) -> str:
        """Why the wave was missed or the study has stopped before it; empty otherwise."""
        return "" if self.record is None else str(self.record.entries[-1].about.get("why", ""))


@dataclass(frozen=True)
class StudyState:
    """A study with all its waves.

    Attributes:
        versions: oldest first.
        waves: all, including future ones.
        costs: the accountant's largest entry for each granted round (`highest_cost`), by its id.
        together: the guarantee of all results so far for one person who took part in every wave with the largest
            budget; it holds because the limit of the study was fixed before the first wave. None before the first
            result.
    """

    versions: tuple[Survey, ...]
    waves: tuple[PlayedWave, ...]
    costs: Mapping[RoundId, tuple[Entry, ...]]
    together: Guarantee | None

    @property
    def by_results(self) -> bool:
        """Whether the question goes on by its rule."""
        return scheduled(self.versions[-1]).follows_results


def study_state(directory: Path, study_id: str) -> StudyState:
    """Returns a study with the stored results of every wave; sealed results are opened.

    Raises:
        ValueError: there is no such study, it is a training, or its files cannot be read.
        SignatureError: a result is not signed as it must be.
    """
    versions = begun_versions(directory, study_id)
    if isinstance(versions[0].questions[0].rule, Descent):
        raise ValueError(
            f"survey {study_id!r} is a training: its cost, and what that protects, is in its training.json"
        )
    records = wave_records(read_journal(journal_file(directory, study_id)))
    deployment = read_deployment(directory)
    waves = []
    costs: dict[RoundId, tuple[Entry, ...]] = {}
    assumed: dict[Statement[Assumption], None] = {}
    for number in range(1, scheduled(versions[-1]).last_wave + 1):
        survey = version_of_wave(versions, number)
        record, opens = records.get(number), None
        if scheduled(survey).follows_results and number > 1:
            if record is None or not rule_goes_on(directory, survey, number - 1):
                break
            opens = record.opens_unix_s
        wave = scheduled(survey).wave(number, opens)
        results: dict[str, PublishedResult | None] = {}
        for place, terms in enumerate(survey.questions):
            name, round_id = terms.question.name, survey.round_id(place, number)
            results[name] = None
            kept = result_file(directory, survey, place, number)
            if kept.exists():
                document = pb.Signed.FromString(bytes.fromhex(kept.read_text()))
                publication, certificate = read_publication(document, deployment, round_id)
                if publication.sealed_result:
                    publication = open_published(publication, collector_key_file(directory, study_id))
                results[name] = PublishedResult(publication, certificate, document.SerializeToString())
                if certificate.granted:
                    costs[round_id] = _kept_cost(kept.with_suffix(".cost"), publication, certificate)
                    assumed |= dict.fromkeys(Certificate.from_message(certificate).assumptions)
        waves.append(PlayedWave(wave, survey, record, results))
    last, together = scheduled(versions[-1]), None
    if costs:
        together = total_of_rounds([*costs.values()], last.total_delta, False)
    if together is not None:
        together = replace(together, assumptions=(*assumed, *together.assumptions))
        if last.follows_results:
            # The number of waves and their categories follow from answers: only the limit was fixed beforehand.
            together = replace(together, epsilon=last.total_epsilon, delta=last.total_delta)
    return StudyState(tuple(versions), tuple(waves), costs, together)


def _kept_cost(file: Path, publication: pb.Publication, certificate: pb.Certificate) -> tuple[Entry, ...]:
    """Returns the accountant's largest entry for a round of this size, from a file after the first computation."""
    try:
        return _read_cost(file)
    except (FileNotFoundError, ValueError, TypeError):  # there is none yet, or one of another version of croupier
        terms = parse_terms(publication.round)
        entries = highest_cost(terms, certificate.num_reports, certificate.num_tickets)
        replace_secret(file, json.dumps([[getattr(entry, name) for name in _KEPT_OF_ENTRY] for entry in entries]))
        return _read_cost(file)


def _read_cost(file: Path) -> tuple[Entry, ...]:
    return tuple(
        Entry(
            **dict(zip(_KEPT_OF_ENTRY, (*tier, tuple((float(e), float(d)) for e, d in profile), series), strict=True))
        )
        for *tier, profile, series in json.loads(file.read_text(encoding="utf-8"))
    )


def study_view(state: StudyState, against: Literal["previous", "first"] = "previous") -> JsonObject:
    """Returns a study with its numbers and the differences between its waves; against: see `differences_between`."""
    rows: list[JsonObject] = []
    for played in state.waves:
        opens = played.wave.opens_unix_s
        outcomes = {outcome["round_id"]: outcome["outcome"] for outcome in _outcomes(played)}
        asked = [] if state.by_results else played.results.items()  # far too many categories; see `study.discovery`
        for place, (question, result) in enumerate(asked):
            if result is not None:
                document = publication_json(result.publication, result.certificate)
                rows += rows_of_result(played.wave.number, opens, question, document)
            else:
                outcome = outcomes.get(played.survey.round_id(place, played.wave.number), played.state)
                rows += rows_without_result(played.wave.number, opens, question, outcome)
    last, together = state.versions[-1], state.together
    schedule = scheduled(last)
    return {
        "study_id": last.survey_id,
        "title": title_of(last),
        "questions": {
            terms.question.name: terms.question.wordings[0].question if terms.question.wordings else terms.question.name
            for terms in last.questions
        },
        "waves": [_wave_view(record) for record in state.waves],
        "rows": rows,
        "differences": [] if schedule.permanent else differences_between(rows, against),
        "together": None if together is None else together.to_json(),
        "total_epsilon": schedule.total_epsilon,
        "total_delta": schedule.total_delta,
    }


def waves_of_report(directory: Path, study_id: str, sums: Sequence[Sequence[str]] = ()) -> ReportRounds:
    """Returns all results of a study for a report, each question in all of its waves; sums: see `reports.collect`.

    Raises:
        ValueError: there is no result yet, the categories follow from results, or as `check_sums` and `study_state`.
    """
    state = study_state(directory, study_id)
    if state.by_results:
        raise ValueError(
            f"the categories of survey {study_id!r} follow from results; 'croupier survey results {study_id}' shows "
            "the texts that it has found"
        )
    rounds = [
        shown(result, None, sums, wave=played.wave.number)
        for name in dict.fromkeys(name for played in state.waves for name in played.results)
        for played in state.waves
        if (result := played.results.get(name))
    ]
    if not rounds:
        raise ValueError(f"survey {study_id!r} has no result yet; its process publishes each wave when it has closed")
    check_sums(rounds, sums)
    last, view = state.versions[-1], study_view(state)
    waves = WavesTogether(state.together, (view["total_epsilon"], view["total_delta"]), view["differences"])
    return ReportRounds(tuple(rounds), read_deployment(directory).name, False, last, waves)


def _outcomes(played: PlayedWave) -> list[JsonObject]:
    entry = None if played.record is None else played.record.last("published")
    return [] if entry is None else list(entry.about["outcomes"])


def _wave_view(played: PlayedWave) -> JsonObject:
    opened = None if played.record is None else played.record.last("opened")
    return {
        "number": played.wave.number,
        "version": scheduled(played.survey).version,
        "survey_id": played.survey.wave_name(played.wave.number),
        "opens_unix_s": played.wave.opens_unix_s,
        "closes_unix_s": played.wave.closes_unix_s,
        "state": played.state,
        "why": played.why,
        "late_s": None if opened is None else opened.about.get("late_s"),
    }
