"""Surveys: rounds that are opened and closed together, under one description that every manifest of them holds.

The description names each round with a hash of its terms without keys. So every service that signs one manifest of a
survey has signed the terms of all its rounds, before the first of them is opened: a person consents once, to all of
them, and what all rounds cost one person may be composed as rounds of fixed terms.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from functools import cached_property
from typing import Literal, Protocol, Self

from croupier.protocol.names import Digest, RoundId
from croupier.protocol.studies import StudyWave, check_wave_of
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.wordings import check_language, check_text

LeftOut = Literal["missing", "random"]
MOST_QUESTIONS = 64
_LEFT_OUT: dict[LeftOut, pb.LeftOut.ValueType] = {"missing": pb.LEFT_OUT_MISSING, "random": pb.LEFT_OUT_RANDOM}
_MAX_BYTES = {"title": 200, "introduction": 4000, "consent": 4000}
_MAX_WORDINGS = 32
_MAX_BYTES_TOGETHER = 1 << 16
_KEYS = ("hops", "accountant", "analyzer", "survey")


@dataclass(frozen=True)
class SurveyWording:
    """How a survey is put to people, in one language.

    Attributes:
        language: a language tag (BCP 47), such as "en" or "de-CH".
        title: a heading, 1 .. 200 bytes of UTF-8.
        consent: what a person agrees to who answers, 1 .. 4000 bytes.
        introduction: who asks, and what for, at most 4000 bytes; may be empty.

    Raises:
        ValueError: at construction, with the text and what it must be.
    """

    language: str
    title: str
    consent: str
    introduction: str = ""

    def __post_init__(self) -> None:
        check_language(self.language)
        for name, most in _MAX_BYTES.items():
            check_text(name, getattr(self, name), most)
        for name in ("title", "consent"):
            if not getattr(self, name):
                raise ValueError(f"{name} is empty; a survey needs one in every language")


@dataclass(frozen=True)
class SurveyRound:
    """A question of a survey: its round, and the hash of the round's terms; see `stated_terms_hash`."""

    round_id: RoundId
    terms_hash: Digest


@dataclass(frozen=True)
class Survey:
    """The description of a survey.

    Attributes:
        survey_id: unique within the deployment: 1 .. 64 of A-Z, a-z, 0-9, '-' and '_'.
        wordings: one for each language, the first for people who read none of them.
        rounds: in the order of the questions.
        left_out: what a client sends for a question that a person leaves out: nothing ("missing"), or an answer drawn
            uniformly, through the same randomizer ("random").
        wave: the wave of a study that the survey is; None for a survey by itself.

    Raises:
        ValueError: at construction, with what is wrong and what it must be.
    """

    survey_id: str
    wordings: tuple[SurveyWording, ...]
    rounds: tuple[SurveyRound, ...]
    left_out: LeftOut = "missing"
    wave: StudyWave | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", self.survey_id):
            raise ValueError(f"survey_id is {self.survey_id!r}; it must be 1..64 of A-Z, a-z, 0-9, '-' and '_'")
        languages = [wording.language.lower() for wording in self.wordings]
        if not languages or len(set(languages)) != len(languages):
            raise ValueError(f"the survey's languages are {', '.join(languages)}; it needs one wording in each")
        size = sum(len("".join(asdict(wording).values()).encode()) for wording in self.wordings)
        if len(languages) > _MAX_WORDINGS or size > _MAX_BYTES_TOGETHER:
            raise ValueError(
                f"the survey has {len(languages)} wordings of {size} bytes; at most {_MAX_WORDINGS}, of "
                f"{_MAX_BYTES_TOGETHER} bytes together, are allowed"
            )
        ids = [survey_round.round_id for survey_round in self.rounds]
        if not 1 <= len(ids) <= MOST_QUESTIONS or len(set(ids)) != len(ids):
            raise ValueError(f"the survey has {len(ids)} rounds; it must have 1..{MOST_QUESTIONS}, each once")
        for survey_round in self.rounds:
            if len(survey_round.terms_hash) != 32:
                raise ValueError(
                    f"the hash of the terms of {survey_round.round_id!r} has {len(survey_round.terms_hash)} bytes, "
                    "not 32"
                )
        if self.left_out not in _LEFT_OUT:
            raise ValueError(f"left_out is {self.left_out!r}; it must be one of {', '.join(_LEFT_OUT)}")

    @classmethod
    def read(cls, message: pb.Survey) -> Self:
        """Returns the description that a message states; the inverse of `message`.

        Raises:
            ValueError: a field that is missing or out of range, with its value and what it must be.
        """
        left_out: LeftOut | None = next((name for name, value in _LEFT_OUT.items() if value == message.left_out), None)
        if left_out is None:
            raise ValueError("left_out is missing or unknown; it must be MISSING or RANDOM")
        wordings = [
            SurveyWording(wording.language, wording.title, wording.consent, wording.introduction)
            for wording in message.wordings
        ]
        rounds = [
            SurveyRound(RoundId(survey_round.round_id), Digest(survey_round.terms_hash))
            for survey_round in message.rounds
        ]
        wave = StudyWave.read(message.wave) if message.HasField("wave") else None
        return cls(message.survey_id, tuple(wordings), tuple(rounds), left_out, wave)

    def message(self) -> pb.Survey:
        """Returns the message of a description."""
        return pb.Survey(
            survey_id=self.survey_id,
            wordings=[pb.SurveyWording(**asdict(wording)) for wording in self.wordings],
            rounds=[pb.SurveyRound(**asdict(survey_round)) for survey_round in self.rounds],
            left_out=_LEFT_OUT[self.left_out],
            wave=None if self.wave is None else self.wave.message(),
        )

    @cached_property
    def hash(self) -> Digest:
        """The SHA-256 that names this description, 32 bytes."""
        return _hash(b"survey", self.message().SerializeToString(deterministic=True))

    @property
    def invitation_hash(self) -> Digest:
        """What invitations are bound to: this description, or the study that the survey is a wave of."""
        return self.hash if self.wave is None else self.wave.study.invitation_hash

    def position_of(self, round_id: RoundId) -> int | None:
        """Returns the place of a round among the questions, from 0; None for a round that is not of this survey."""
        return next((position for position, terms in enumerate(self.rounds) if terms.round_id == round_id), None)


class _Terms(Protocol):
    """The terms of a round; see `manifest.RoundTerms`, which knows this module."""

    @property
    def round_id(self) -> RoundId: ...
    @property
    def survey(self) -> Survey | None: ...
    @property
    def budget_grid(self) -> tuple[float, ...]: ...
    @property
    def close_deadline_unix_s(self) -> int: ...


def _hash(kind: bytes, payload: bytes) -> Digest:
    return Digest(hashlib.sha256(b"croupier/v1/" + kind + b"\0" + payload).digest())


def stated_terms_hash(manifest: pb.Manifest) -> Digest:
    """Returns the hash by which a survey names the terms of a round: all of its manifest but the keys and the survey.

    Keys are made when a round is opened, and cannot be named before.
    """
    terms = pb.Manifest()
    terms.CopyFrom(manifest)
    for field in _KEYS:
        terms.ClearField(field)  # type: ignore[arg-type]
    return _hash(b"survey-round", terms.SerializeToString(deterministic=True))


def check_survey_of(manifest: pb.Manifest) -> Survey | None:
    """Returns the survey of a round, after checking that it names the round with these terms; None without one.

    Raises:
        ValueError: the description is not valid, or is not about this round.
    """
    if not manifest.HasField("survey"):
        return None
    survey = Survey.read(manifest.survey)
    at = survey.position_of(RoundId(manifest.round_id))
    if at is None:
        raise ValueError(f"survey {survey.survey_id!r} has no round {manifest.round_id!r}")
    if survey.rounds[at].terms_hash != stated_terms_hash(manifest):
        raise ValueError(f"survey {survey.survey_id!r} states other terms for round {manifest.round_id!r}")
    check_wave_of(manifest, at)
    return survey


def budgets_within(rounds: Sequence[_Terms], most: float) -> tuple[float, ...]:
    """Returns the largest budgets that add up to at most this, at the same place in the grid of each round.

    Budgets are decimals as people write them, so that 0.1 three times is within 0.3.

    Raises:
        ValueError: the smallest budgets add up to more, with their sum.
    """
    choices = list(zip(*(terms.budget_grid for terms in rounds), strict=True))
    sums = [sum(Decimal(repr(epsilon)) for epsilon in choice) for choice in choices]
    within = [choice for choice, total in zip(choices, sums, strict=True) if total <= Decimal(repr(most))]
    if not within:
        raise ValueError(
            f"the most to spend is ε = {most:g}; it must be at least {float(sums[0]):g}, the smallest choice"
        )
    return within[-1]


def rounds_together(rounds: Sequence[_Terms]) -> Survey:
    """Returns the survey of which these are all rounds, in the order of its questions.

    Raises:
        ValueError: they are not all rounds of one survey, or differ in the number of budgets or in the deadline.
    """
    survey = rounds[0].survey if rounds else None
    if survey is None or any(terms.survey != survey for terms in rounds):
        raise ValueError("the rounds are not of one survey")
    if [terms.round_id for terms in rounds] != [survey_round.round_id for survey_round in survey.rounds]:
        raise ValueError(f"survey {survey.survey_id!r} has other rounds, or in another order")
    for name, values in (
        ("numbers of budgets", [len(terms.budget_grid) for terms in rounds]),
        ("deadlines", [terms.close_deadline_unix_s for terms in rounds]),
    ):
        if any(a != b for a, b in itertools.pairwise(values)):
            raise ValueError(f"the rounds of survey {survey.survey_id!r} have the {name} {values}; all must be equal")
    return survey
