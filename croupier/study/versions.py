"""Studies as the operator keeps them: their versions, and the surveys that their waves are.

`operator/studies/NAME/` has for each version `vN.study`, its description as every wave states it, and `vN.json`, the
file that it was made from; and the key that opens results which are not public. A version never changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from croupier.deploy.directory import read_deployment
from croupier.operator.keys import alone, make_collector_key, write_secret
from croupier.operator.study_folders import described_versions, kept_studies, studies_folder
from croupier.operator.survey_plans import OfStudy, survey_terms, with_budgets
from croupier.protocol.collector import read_collector_key
from croupier.protocol.deployment import Deployment
from croupier.protocol.manifest import canonical
from croupier.protocol.names import Digest
from croupier.protocol.studies import Study, StudyPromises, study_question_hash, study_texts_hash
from croupier.protocol.surveys import Survey, SurveyRound
from croupier.study.file import StudyFile
from croupier.study.journal import read_journal, wave_records

_SUITE = "x25519-sha256-chacha20poly1305"


@dataclass(frozen=True)
class StudyVersion:
    """A version of a study, with the file that it was made from and the key that its results are sealed to."""

    study: Study
    file: StudyFile
    collector_public_key: bytes = b""

    def of_study(self, number: int) -> OfStudy:
        """Returns a wave of this version, to open its survey with."""
        return OfStudy(self.study.wave(number), self.collector_public_key)


def collector_key_file(directory: Path, study_id: str) -> Path:
    """Returns the file of the key that opens the results of a study which are not public."""
    return studies_folder(directory, study_id) / "collector.key"


def describe_study(
    file: StudyFile,
    deployment: Deployment | None,
    collector_public_key: bytes = b"",
    before: Study | None = None,
    change: str = "",
    first_wave: int = 1,
) -> StudyVersion:
    """Returns a version of a study in the form that its waves will state.

    Args:
        file: the questions and times; without budgets, those that put no question at risk are chosen.
        deployment: of the study; None: the hashes of the questions are of no deployment.
        collector_public_key: to which the results are sealed; empty for public results.
        before: the version before this one; None for the first one.
        change: a description of the change, for people.
        first_wave: the first wave of this version.

    Raises:
        ValueError: the terms of a round are invalid, or the version breaks the promises of the one before it.
    """
    budgets = with_budgets(file.survey(), deployment).budgets
    file = file.model_copy(update={"budgets": budgets})

    def described(texts_hash: Digest, question_hashes: tuple[Digest, ...]) -> Study:
        return Study(
            file.name,
            1 if before is None else before.version + 1,
            None if before is None else before.hash,
            change,
            file.calendar.calendar(),
            first_wave,
            first_wave + file.calendar.waves - 1,
            file.epsilon_total,
            file.delta_total,
            file.permanent,
            file.results,
            texts_hash,
            question_hashes,
        )

    blank = Digest(bytes(32))
    wave = described(blank, (blank,)).wave(first_wave)
    of_study = OfStudy(wave, collector_public_key)
    terms = [terms for _, terms in survey_terms(file.survey(wave), deployment, of_study).values()]
    texts = Survey(
        wave.survey_id,
        file.wordings(),
        tuple(SurveyRound(round_terms.round_id, blank) for round_terms in terms),
        file.left_out,
    )
    questions = tuple(study_question_hash(round_terms.manifest) for round_terms in terms)
    study = described(study_texts_hash(texts.message()), questions)
    if before is not None:
        StudyPromises.of(before, collector_public_key).check_kept(study, collector_public_key)
    return StudyVersion(study, file, collector_public_key)


def kept_versions(directory: Path, study_id: str) -> list[StudyVersion]:
    """Returns all versions of a study that was begun from this directory, oldest first.

    Raises:
        ValueError: there is no such study.
    """
    described, key = described_versions(directory, study_id), _public_key(directory, study_id)
    if not described:
        begun = ", ".join(kept_studies(directory)) or "none"
        raise ValueError(
            f"{directory} has begun no study {study_id!r} (begun: {begun}); 'croupier study run' begins one"
        )
    versions = []
    for file, study in described.items():
        source = StudyFile.model_validate_json(file.with_suffix(".json").read_text(encoding="utf-8"))
        versions.append(StudyVersion(study, source, b"" if study.results == "public" else key))
    return versions


def version_of_wave(versions: Sequence[StudyVersion], number: int) -> StudyVersion:
    """Returns the newest version that a wave belongs to; ValueError if no version has the wave."""
    for version in reversed(versions):
        if version.study.first_wave <= number <= version.study.last_wave:
            return version
    raise ValueError(f"study {versions[0].study.study_id!r} has no wave {number}")


def journal_file(directory: Path, study_id: str) -> Path:
    """Returns the journal of a study (`study.journal`)."""
    return studies_folder(directory, study_id) / "journal.jsonl"


def change_study(directory: Path, file: StudyFile, change: str, now: float) -> StudyVersion:
    """Makes a new version of a study, from the first wave on that is not due yet, and returns it.

    Waves that are open, or should be, keep the version that they have. Waves of the new version are opened by its
    calendar.

    Args:
        directory: of the deployment.
        file: of the study, changed.
        change: a description of the change, for people.
        now: Unix seconds.

    Raises:
        ValueError: nothing is changed, the first wave of the new calendar is in the past, the terms are invalid, or the
            version breaks the promises of the first one.
    """
    deployment = read_deployment(directory)
    with alone(studies_folder(directory, file.name)):
        versions = kept_versions(directory, file.name)
        last = versions[-1]
        begun = [number for number, record in wave_records(read_journal(journal_file(directory, file.name))).items()]
        numbers = range(1, last.study.last_wave + 1)
        due = [n for n in numbers if version_of_wave(versions, n).study.wave(n).opens_unix_s <= now]
        first_wave = max([0, *begun, *due]) + 1
        made = describe_study(file, deployment, last.collector_public_key, last.study, change, first_wave)
        if made.file == last.file:
            raise ValueError(f"the file says what version {last.study.version} of {file.name!r} says: nothing changes")
        if made.study.calendar.opens(0) <= now:
            raise ValueError(
                f"calendar.first is {made.study.calendar.first:%Y-%m-%d %H:%M}; the first wave of a new version, wave "
                f"{first_wave}, must be in the future"
            )
        _keep(directory, made)
        return made


def start_study(directory: Path, file: StudyFile) -> StudyVersion:
    """Fixes version 1 of a study, and returns it; the same call again returns the fixed version.

    Raises:
        ValueError: the terms are invalid, or the study was begun with other ones.
    """
    deployment = read_deployment(directory)
    with alone(studies_folder(directory, file.name)):
        key = b""
        if file.results != "public":
            if not collector_key_file(directory, file.name).exists():
                make_collector_key(collector_key_file(directory, file.name), _SUITE)
            key = _public_key(directory, file.name)
        made = describe_study(file, deployment, key)
        if (studies_folder(directory, file.name) / "v1.study").exists():
            versions = kept_versions(directory, file.name)
            if versions[0].study == made.study or versions[-1].file == made.file:
                return versions[-1]
            raise ValueError(
                f"study {file.name!r} was begun with other terms; 'croupier study change' makes a new version of it"
            )
        _keep(directory, made)
        return made


def _keep(directory: Path, version: StudyVersion) -> None:
    """Writes a version; the description last, without which the version does not exist."""
    folder, name = studies_folder(directory, version.study.study_id), f"v{version.study.version}"
    (folder / f"{name}.json").unlink(missing_ok=True)  # of an earlier try that ended before the description
    write_secret(folder / f"{name}.json", version.file.model_dump_json())
    write_secret(folder / f"{name}.study", canonical(version.study.message()).hex())


def _public_key(directory: Path, study_id: str) -> bytes:
    file = collector_key_file(directory, study_id)
    return read_collector_key(file.read_text(encoding="utf-8"))[1].public if file.exists() else b""
