"""Surveys: what people are asked and consent to, in the bytes that services sign; no key of a round is in them.

A survey has questions, each with the budgets that a person can choose from, and the terms that all its rounds share. It
is asked once, or in the waves of its schedule. A round (`protocol.manifest`) names the hash of its survey, so every
service that has signed one round has signed the terms of all: a person consents once, and what all rounds cost one
person may be composed as rounds of fixed terms.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import Literal

from croupier.protocol.deployment import Deployment, PrivacyLimit
from croupier.protocol.envelope import MAX_HOPS, PROTOCOL_VERSION, SUITES, check_public_key
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.hop_noise import RoundFakes
from croupier.protocol.identity import canonical, read_canonical
from croupier.protocol.mechanisms import KINDS_WITH_FAKES
from croupier.protocol.mechanisms.base import Mechanism
from croupier.protocol.names import Digest, RoundId
from croupier.protocol.permanent import PermanentSeries
from croupier.protocol.questions import Question
from croupier.protocol.rules import Rule, read_rule
from croupier.protocol.schedules import PROMISED, Schedule
from croupier.protocol.tier_counts import EXACT, TierCounts, counts_of
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.values import enum_name, value_of
from croupier.protocol.wordings import check_language, check_text, check_together

LeftOut = Literal["missing", "random"]
MOST_QUESTIONS = 64
_MAX_BYTES = {"title": 200, "introduction": 4000, "consent": 4000}
_MAX_DELTA = 0.1
_MAX_LOCAL_EPSILON = 20.0
_TINY_LOCAL_EPSILON = 1e-9  # reports made with less show nothing; the accountant's range begins far below
_MAX_GRID = 4096
WAVE_NAME = r"-w[0-9]+(?=-|$)"
"""The name of a wave in the name of a round."""


def is_round_of(survey_id: str, round_id: str) -> bool:
    """Whether a round has the name of one in a wave of a survey.

    No round of another survey has, because no survey's name has that of a wave in it.
    """
    return re.fullmatch(rf"{re.escape(survey_id)}-w[0-9]+-.*", round_id, re.DOTALL) is not None


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


@dataclass(frozen=True, eq=False)
class Survey:
    """A survey that has passed every check that can be made without a deployment, read once by `read_survey`.

    Attributes:
        payload: the canonical bytes, of which `hash` is.
        message: the message that they encode.
        hash: the SHA-256 that names this survey, 32 bytes.
        survey_id: unique within the deployment: 1 .. 64 of A-Z, a-z, 0-9, '-' and '_'.
        wordings: one for each language, the first for people who read none of them; none where the questions' texts
            are all that people see.
        left_out: what a client sends for a question that a person leaves out: nothing ("missing"), or an answer drawn
            uniformly, through the same randomizer ("random").
        privacy_limit: the lifetime policy that the accountant has to enforce; None where nothing is refused.
        schedule: its waves; None where it is asked once.
    """

    payload: bytes
    message: pb.Survey
    hash: Digest
    survey_id: str
    wordings: tuple[SurveyWording, ...]
    left_out: LeftOut
    privacy_limit: PrivacyLimit | None
    schedule: Schedule | None

    @cached_property
    def questions(self) -> tuple[QuestionTerms, ...]:
        """The terms of each question, in order."""
        return tuple(_question_terms(self, place) for place in range(len(self.message.questions)))

    @property
    def disposes_if_short(self) -> bool:
        """Whether a round with too few clients is disposed of; otherwise it is held open."""
        return self.message.short_batch_policy == pb.SHORT_BATCH_POLICY_DISPOSE

    @property
    def promises(self) -> Mapping[str, object] | None:
        """What later versions may not change: the key to which results are sealed, too; None without a schedule."""
        if self.schedule is None:
            return None
        promised = {name: getattr(self.schedule, name) for name in PROMISED}
        return promised | {"collector_public_key": self.message.collector_public_key}

    @property
    def invitation_hash(self) -> Digest:
        """The hash that invitations are bound to: of the survey, or of its name, for all waves of a schedule."""
        return self.hash if self.schedule is None else _hash(b"invitation-list", self.survey_id.encode())

    def wave_name(self, wave: int) -> str:
        """Returns the name of a wave, from 1, or of the survey for wave 0, with which the names of its rounds begin."""
        return f"{self.survey_id}-w{wave}" if wave else self.survey_id

    def round_id(self, place: int, wave: int = 0) -> RoundId:
        """Returns the name of the round that asks the question with this place, from 0, in a wave; 0: asked once."""
        if self.schedule is None and len(self.message.questions) == 1:
            return RoundId(self.survey_id)
        return RoundId(f"{self.wave_name(wave)}-{place + 1}")

    def round_ids(self, wave: int = 0) -> tuple[RoundId, ...]:
        """Returns the names of all rounds of a wave, in the order of the questions."""
        return tuple(self.round_id(place, wave) for place in range(len(self.message.questions)))

    def check_place(self, deployment: Deployment) -> None:
        """Checks that the survey is this deployment's: its name and its lifetime policy.

        Raises:
            Refusal: BAD_MANIFEST with what differs.
        """
        if self.message.deployment != deployment.name:
            raise Refusal(Code.BAD_MANIFEST, f"deployment is {self.message.deployment!r}, not {deployment.name!r}")
        if self.privacy_limit != deployment.privacy_limit:
            raise Refusal(Code.BAD_MANIFEST, f"privacy_limit is {self.privacy_limit}, not {deployment.privacy_limit}")

    def check_continued_by(self, newer: Survey, between: Iterable[Survey] = ()) -> None:
        """Checks that the hashes of previous versions lead from a newer one to this one, which keeps its promises.

        between: versions between the two, and any others, in any order.

        Raises:
            ValueError: they do not, or it does not.
        """
        versions = {version.hash: version.schedule for version in (newer, *between)}
        link: Digest | None = newer.hash
        while link != self.hash:
            schedule = None if link is None else versions.get(link)
            if schedule is None or newer.survey_id != self.survey_id or newer.promises is None:
                raise ValueError(
                    f"{newer.version_name} does not follow {self.version_name}, which you have consented to"
                )
            link = schedule.previous_hash
        self.check_promises_of(newer)

    def check_promises_of(self, newer: Survey) -> None:
        """Checks that another version of a survey with a schedule makes the promises of this one.

        Raises:
            ValueError: it does not, with the first promise that differs and both values.
        """
        for name, promised in (self.promises or {}).items():
            if (stated := (newer.promises or {}).get(name)) != promised:
                raise ValueError(
                    f"{name} is {_shown(stated)} in {newer.version_name}; it must stay {_shown(promised)}, as people "
                    "were promised: begin another survey"
                )

    @property
    def version_name(self) -> str:
        """The survey with its version, for people."""
        return (f"version {self.schedule.version} of " if self.schedule else "") + f"survey {self.survey_id!r}"


@dataclass(frozen=True, eq=False)
class QuestionTerms:
    """The terms of a question's rounds, without the keys of services.

    Attributes:
        survey: that the question is of.
        place: of the question in the survey, from 0.
        question: what is asked.
        budget_grid: the local epsilons that clients may use, ascending.
        local_delta: the local delta of each of them; 0 where reports are epsilon-private by themselves.
        epsilon_max_of: the most central epsilon that is granted, for every local epsilon of the grid.
        counted_by: how the clients with each budget are counted. With one budget in the grid there is nothing to hide,
            and the count is exact.
        fakes: the fake reports of the hops; None where hops add none.
        rule: how the question goes on by the results of earlier waves, `question` being that of the first wave; None
            where it stays the same.
        permanent: the series of waves in which a client sends the same report; None where it draws a report for this
            round.
    """

    survey: Survey
    place: int
    question: Question
    budget_grid: tuple[float, ...]
    local_delta: float
    epsilon_max_of: Mapping[float, float]
    counted_by: TierCounts
    fakes: RoundFakes | None
    rule: Rule | None
    permanent: PermanentSeries | None

    @property
    def round_id(self) -> RoundId:
        """The name of the question's round; with a schedule that in the first wave of this version."""
        return self.survey.round_id(self.place, self.survey.schedule.first_wave if self.survey.schedule else 0)

    @property
    def shown_of_one(self) -> tuple[float, float]:
        """The (epsilon, delta) of any one client, whatever its budget, if one hop is honest and nobody else is."""
        if self.fakes is None or self.fakes.noise.epsilon >= self.budget_grid[-1]:
            return self.budget_grid[-1], self.local_delta
        return self.fakes.noise.epsilon, self.fakes.noise.delta

    @property
    def shared(self) -> pb.Survey:
        """The terms that all rounds of the survey share, as its message states them."""
        return self.survey.message

    @property
    def close_deadline_unix_s(self) -> int:
        """When admission ends, Unix seconds; 0: when the operator closes the round."""
        return self.shared.close_deadline_unix_s


@lru_cache(maxsize=32)  # the rounds of a survey all come with it
def read_survey(payload: bytes) -> Survey:
    """Returns the survey that canonical bytes state.

    Raises:
        Refusal: BAD_MANIFEST with the field, its value and what it must be.
    """
    message = read_canonical(pb.Survey, payload)
    try:
        survey = Survey(
            payload,
            message,
            hash=_hash(b"survey", payload),
            survey_id=message.survey_id,
            wordings=tuple(value_of(SurveyWording, wording) for wording in message.wordings),
            left_out=enum_name(message.DESCRIPTOR.fields_by_name["left_out"], message.left_out),
            privacy_limit=_limit(message),
            schedule=Schedule.read(message.schedule) if message.HasField("schedule") else None,
        )
        _check(survey)
    except ValueError as error:
        raise Refusal(Code.BAD_MANIFEST, str(error)) from error
    return survey


def check_survey_id(survey_id: str, *, has_schedule: bool) -> None:
    """Raises ValueError for a name that no survey can have."""
    most = 40 if has_schedule else 64
    if not re.fullmatch(rf"[A-Za-z0-9_-]{{1,{most}}}", survey_id):
        raise ValueError(f"survey_id is {survey_id!r}; it must be 1..{most} of A-Z, a-z, 0-9, '-' and '_'")
    if named := re.search(WAVE_NAME, survey_id):
        raise ValueError(
            f"survey_id is {survey_id!r}; it must not have {named[0]!r}, by which the rounds of a wave of another "
            "survey are named"
        )


def _check(survey: Survey) -> None:
    message = survey.message
    if message.protocol_version != PROTOCOL_VERSION:
        raise ValueError(f"protocol_version is {message.protocol_version}; this software speaks {PROTOCOL_VERSION}")
    if not message.deployment:
        raise ValueError("deployment is empty")
    check_survey_id(survey.survey_id, has_schedule=survey.schedule is not None)
    check_together(survey.wordings)
    if message.hpke_suite not in SUITES:
        raise ValueError(f"hpke_suite is {message.hpke_suite!r}; it must be one of {', '.join(SUITES)}")
    if not 1 <= message.num_hops <= MAX_HOPS:
        raise ValueError(f"num_hops is {message.num_hops}; it must be 1..{MAX_HOPS}")
    if message.min_batch_size < 2:
        raise ValueError(f"min_batch_size is {message.min_batch_size}; it must be at least 2: one user cannot hide")
    if 0 < message.max_batch_size < message.min_batch_size:
        raise ValueError(
            f"max_batch_size is {message.max_batch_size}; it must be 0 (no limit) or at least min_batch_size, "
            f"{message.min_batch_size}"
        )
    if message.short_batch_policy not in (pb.SHORT_BATCH_POLICY_HOLD, pb.SHORT_BATCH_POLICY_DISPOSE):
        raise ValueError("short_batch_policy is missing or unknown; it must be HOLD or DISPOSE")
    _check_number("delta", message.delta, 0.0, _MAX_DELTA)
    if not 1 <= len(message.questions) <= MOST_QUESTIONS:
        raise ValueError(f"the survey has {len(message.questions)} questions; it must have 1..{MOST_QUESTIONS}")
    sizes = [len(terms.budget_grid) for terms in survey.questions]
    _check_number("epsilon_max", message.epsilon_max, 0.0, _MAX_LOCAL_EPSILON)  # after the budgets, which it may follow
    if any(a != b for a, b in itertools.pairwise(sizes)):
        raise ValueError(f"the questions of survey {survey.survey_id!r} have {sizes} budgets; all must have as many")
    if message.collector_public_key:
        if any(terms.question.sequential is not None for terms in survey.questions):
            raise ValueError("a sequential round shows every model to its clients; its result cannot have a collector")
        check_public_key(message.hpke_suite, message.collector_public_key)
    if survey.schedule is not None:
        if message.close_deadline_unix_s:
            raise ValueError(f"close_deadline_unix_s is {message.close_deadline_unix_s}; with a schedule it must be 0")
        if bool(message.collector_public_key) == (survey.schedule.results == "public"):
            raise ValueError(f"the results are for: {survey.schedule.results}; its rounds seal them for others")


def _check_number(name: str, value: float, low: float, high: float) -> None:
    if not (math.isfinite(value) and low < value <= high):
        raise ValueError(f"{name} is {value}; it must be {low:g} < {name} ≤ {high:g}")


def _check_grid(grid: Sequence[pb.LocalBudget], mechanism: Mechanism) -> None:
    if not 1 <= len(grid) <= _MAX_GRID:
        raise ValueError(f"budget_grid has {len(grid)} budgets; it must have 1..{_MAX_GRID}")
    for budget in grid:
        _check_number("a budget's epsilon", budget.epsilon, _TINY_LOCAL_EPSILON, _MAX_LOCAL_EPSILON)
        if budget.delta != mechanism.budget_delta:
            raise ValueError(
                f"a budget's delta is {budget.delta}; with this question it must be {mechanism.budget_delta:g}"
            )
        if budget.HasField("epsilon_max"):
            _check_number("a budget's epsilon_max", budget.epsilon_max, 0.0, _MAX_LOCAL_EPSILON)
        mechanism.check_budget(budget.epsilon)
    epsilons = [budget.epsilon for budget in grid]
    if any(a >= b for a, b in itertools.pairwise(epsilons)):
        raise ValueError(f"budget_grid is {epsilons}; it must be strictly ascending")


def _question_terms(survey: Survey, place: int) -> QuestionTerms:
    message, stated = survey.message, survey.message.questions[place]
    question = Question.read(stated.question)
    _check_grid(stated.budget_grid, question.mechanism)
    return QuestionTerms(
        survey,
        place,
        question,
        budget_grid=tuple(budget.epsilon for budget in stated.budget_grid),
        local_delta=question.mechanism.budget_delta,
        epsilon_max_of={
            budget.epsilon: budget.epsilon_max if budget.HasField("epsilon_max") else message.epsilon_max
            for budget in stated.budget_grid
        },
        counted_by=counts_of(message) if len(stated.budget_grid) > 1 else EXACT,
        fakes=RoundFakes.of(message, question.mechanism),
        rule=_rule(survey, stated, question),
        permanent=_series(survey, place, question),
    )


def _rule(survey: Survey, stated: pb.SurveyQuestion, question: Question) -> Rule | None:
    """Returns the rule of a question, after checking that the survey's waves follow results if it has one."""
    rule, schedule = read_rule(stated), survey.schedule
    follows = schedule is not None and schedule.calendar.every == "result"
    if rule is None:
        if follows:
            raise ValueError(
                f"question {question.name!r} has no rule; waves follow results only by the rule of a question"
            )
        if question.mechanism.task is not None and not question.mechanism.task.parameters:
            raise ValueError(f"question {question.name!r} has no parameters; without a rule it must state them")
        return None
    waves = schedule.last_wave if schedule is not None and follows and schedule.version == 1 else 0
    rule.check(question, waves, len(stated.budget_grid))
    if schedule is None or len(survey.message.questions) > 1 or schedule.permanent:
        raise ValueError(
            f"question {question.name!r} has a rule; it must be the only one of its survey, and not permanent"
        )
    if schedule.results != "public":
        raise ValueError(
            f"the results are for: {schedule.results}; with a rule they are public, because the next wave states them"
        )
    return rule


def _series(survey: Survey, place: int, question: Question) -> PermanentSeries | None:
    """Returns the series of waves in which clients send the same report.

    All waves of a question are one series while neither the question's terms nor the last wave's number change: with
    other ones the question is a new series with other reports.
    """
    if survey.schedule is None or not survey.schedule.permanent:
        return None
    if question.mechanism.num_report_values is None:
        raise ValueError(
            f"the survey is permanent and asks a question of {question.mechanism.kind}; it must be one of "
            f"{', '.join(KINDS_WITH_FAKES)}: a report can be kept only where it has one of finitely many values"
        )
    terms = pb.Survey()
    terms.CopyFrom(survey.message)
    for field in ("wordings", "questions", "left_out", "schedule"):
        terms.ClearField(field)
    terms.questions.append(survey.message.questions[place])
    named = f"{place}\0{survey.schedule.last_wave}\0".encode()
    digest = hashlib.sha256(b"croupier/v1/permanent\0" + named + canonical(terms))
    return PermanentSeries(survey.schedule.last_wave, digest.hexdigest())


def _limit(message: pb.Survey) -> PrivacyLimit | None:
    if not message.HasField("privacy_limit"):
        return None
    limit = message.privacy_limit
    _check_number("privacy_limit.total_epsilon", limit.total_epsilon, 0.0, math.inf)
    _check_number("privacy_limit.total_delta", limit.total_delta, 0.0, _MAX_DELTA)
    return PrivacyLimit.model_validate(limit, from_attributes=True)


def _hash(kind: bytes, payload: bytes) -> Digest:
    return Digest(hashlib.sha256(b"croupier/v1/" + kind + b"\0" + payload).digest())


def scheduled(survey: Survey) -> Schedule:
    """Returns the schedule of a survey; Refusal BAD_REQUEST for one that is asked once."""
    if survey.schedule is None:
        raise Refusal(Code.BAD_REQUEST, f"survey {survey.survey_id!r} is asked once; it has no further waves")
    return survey.schedule


def budgets_within(rounds: Sequence[QuestionTerms], most: float) -> tuple[float, ...]:
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


def _shown(value: object) -> str:
    return (value.hex() or "empty") if isinstance(value, bytes) else str(value)
