"""The codes of everything that a certificate or a result states in words, each with its parameters and their types.

Programs decide by codes and parameters; the sentences are in `texts`, and no program reads them. A code keeps its
meaning for ever, because it is signed and stored: a statement that means something else gets a new code.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from string import Formatter
from types import MappingProxyType
from typing import Self

from croupier.protocol.mechanisms import MECHANISMS, parameter_types
from croupier.protocol.mechanisms.base import Mechanism, Runs

Types = Mapping[str, type[int] | type[float] | type[str]]


def runs_by_code(mechanisms: Mapping[str, type[Mechanism]]) -> dict[str, tuple[str, Runs]]:
    """Returns what clients of each kind run, by code; raises ValueError where a kind has the words of another one."""
    found: dict[str, tuple[str, Runs]] = {}
    for kind, mechanism in mechanisms.items():
        for runs in mechanism.runs:
            if runs.code in found:
                raise ValueError(f"{kind} and {found[runs.code][0]} both have the code {runs.code}; each needs its own")
            found[runs.code] = kind, runs
    return found


def _parameters_of(kind: str, sentence: str) -> Types:
    """Returns the parameters that a sentence names: whole numbers, where the kind's message has no such parameter."""
    types = parameter_types(kind)
    return {
        name: types.get(name, int) for name in sorted({name for _, name, _, _ in Formatter().parse(sentence) if name})
    }


class Code(StrEnum):
    """A code, with the names of its parameters and their types."""

    parameters: Types

    def __new__(cls, code: str, parameters: Types = MappingProxyType({})) -> Self:
        """Returns the member with this code."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.parameters = parameters
        return member


RUNS = runs_by_code(MECHANISMS)
"""The assumptions that say all of what honest clients run: the kind of mechanism that each names, and its words.

Their parameters are those of the accountant's randomizer. A declared table is in no certificate: only its label is.
"""


class Assumption(Code):
    """What a guarantee rests on. Every kind of mechanism adds what clients run, such as RUNS_RR for "runs-rr"."""

    _ignore_ = "members code kind runs"
    members = vars()

    REPLACE_ONE = "replace-one"
    RECORD_LEVEL = "record-level"
    PERSON_UNPROTECTED = "person-unprotected"
    RECORDS_PUBLIC = "records-public"
    TIERS_VISIBLE = "tiers-visible"
    for code, (kind, runs) in RUNS.items():
        members[code.upper().replace("-", "_")] = code, _parameters_of(kind, runs.sentence)
    RUNS_TABLE = "runs-table", {"label": str}
    UNIFORM_ORDER = "uniform-order"
    ONE_HONEST_HOP = "one-honest-hop", {"hops": int, "epsilon": float, "delta": float}
    HONEST_FIRST_SHUFFLER = "honest-first-shuffler"
    CLIENTS_ANSWERED = "clients-answered", {"answered": int, "clients": int}
    CLIENTS_WILL_ANSWER = "clients-will-answer", {"least": int, "clients": int}
    INDEPENDENT_ABSENCE = "independent-absence"
    UNWATCHED = "unwatched"
    ANSWER_PERIOD = "answer-period", {"period_ms": int}
    DISHONEST_CLIENTS = "dishonest-clients", {"dishonest": int}
    BUDGETS_PUBLIC = "budgets-public"
    BUDGETS_NOISED = "budgets-noised", {"epsilon": float, "delta": float, "most": int}
    INDEPENDENT_REPORTS = "independent-reports"
    ADAPTIVE_ORDER = "adaptive-order"
    BUDGETS_UNLINKED = "budgets-unlinked"
    BUDGETS_SHOWN = "budgets-shown"
    FRESH_SHUFFLES = "fresh-shuffles", {"rounds": int}
    FRESH_NOISE = "fresh-noise", {"rounds": int}
    SAME_REPORT = "same-report", {"waves": int, "series": str}
    ANSWERS_UNCHANGED = "answers-unchanged"
    FIXED_TERMS = "fixed-terms"
    DISJOINT_GROUPS = "disjoint-groups", {"groups": int}
    TOTAL_BEFOREHAND = "total-beforehand"
    LOCAL_DELTAS_UNSPENT = "local-deltas-unspent"
    GENUINE_ROSTER = "genuine-roster", {"dishonest": int}
    HONEST_ACCOUNTANT = "honest-accountant"
    EVERYONE_ELSE_DISHONEST = "everyone-else-dishonest"
    STEP_DISHONEST_USERS = "step-dishonest-users", {"dishonest": int}
    DIFFERENT_USERS = "different-users"
    ONE_ANSWER_AN_EPOCH = "one-answer-an-epoch"
    CLIPPED_GRADIENTS = "clipped-gradients"
    NO_ONE_ELSE_TRUSTED = "no-one-else-trusted"
    FEATURES_WITHOUT_USERS = "features-without-users", {"features": str}
    FEATURES_FROM_USERS = "features-from-users"
    CHOSEN_WITHOUT_USERS = "chosen-without-users"
    CHOSEN_ON_USERS = "chosen-on-users"
    MEASURED_ON_OTHERS = "measured-on-others"
    MODEL_FILE_BLIND = "model-file-blind"
    SIMULATED = "simulated"


class Method(Code):
    """How a guarantee was proved; several, in order, where one was built on another."""

    LOCAL_BUDGET = "local-budget"
    BLANKET_CLOSED_FORM = "blanket-closed-form"
    BLANKET_DENSITY = "blanket-density"
    EXCHANGE = "exchange"
    WORST_CASE = "worst-case"
    PUBLISHED = "published"
    WHOLE_RELEASE = "whole-release"
    STORED_PROFILE = "stored-profile"
    BASIC_COMPOSITION = "basic-composition", {"rounds": int}
    COMPOSED_LOSSES = "composed-losses", {"rounds": int}
    PRIVACY_FILTER = "privacy-filter", {"rounds": int}
    HOP_NOISE = "hop-noise"
    NO_ROUND = "no-round"
    ONE_RECORD = "one-record"
    TRAINING_HEMISPHERE = "training-hemisphere", {"dimension": int}
    TRAINING_GAUSSIAN = "training-gaussian"


class ProofStep(Code):
    """One step on the way to a number, or why a bound was of no use."""

    NO_OTHERS = "no-others"
    LOCAL_IS_LEAST = "local-is-least"
    REPORTS_KEPT = "reports-kept", {"waves": int}
    LENGTH_SHOWS_SIGMA = "length-shows-sigma", {"dimension": int}
    LENGTH_SHOWS_RECORD_SIGMA = "length-shows-record-sigma", {"dimension": int}
    NOISE_REACHES_FAR = "noise-reaches-far", {"reach": float, "most": float}
    NO_EXCHANGE_BOUND = "no-exchange-bound", {"randomizer": str}
    EXCHANGE_NEEDS_BLANKET = "exchange-needs-blanket", {"least": float}
    EXCHANGE_BUDGET_LARGE = "exchange-budget-large", {"local_epsilon": float, "most": float}
    EXCHANGE_NO_SMALL_BUDGETS = "exchange-no-small-budgets"
    NOT_ASKED_FOR = "not-asked-for", {"bound": str}
    TIME_OVER = "time-over", {"bound": str}
    NOTHING_TO_GAIN = "nothing-to-gain", {"bound": str}
    NO_LESS = "no-less", {"bound": str}
    FOUND_EPSILON = "found-epsilon", {"bound": str, "epsilon": float, "seconds": float}
    FOUND_DELTA = "found-delta", {"bound": str, "delta": float, "seconds": float}
    REACHED = "reached", {"epsilon": float, "delta": float, "slack": float, "evaluations": int}
    REACHED_OVER_ROUNDS = "reached-over-rounds", {"epsilon": float, "delta": float, "rounds": int}
    ROUNDS_ONLY_ADDED = "rounds-only-added", {"most": int}
    DELTAS_ONLY_ADDED = "deltas-only-added", {"least": float}
    ROUNDS_COMPOSED = "rounds-composed", {"rounds": int, "points": int, "infinity": float, "rounding": float}
    SPLITS_ENUMERATED = "splits-enumerated", {"splits": int}
    UNIFORM_BLANKET = "uniform-blanket", {"randomizer": str, "least": float, "most": float}
    NO_BLANKET = "no-blanket", {"randomizer": str}
    DENSITY_BLANKET = "density-blanket", {"randomizer": str, "reach": float}
    TABLE_BLANKET = "table-blanket", {"label": str}
    BLANKET_WEIGHTS = "blanket-weights", {"least": float, "most": float}
    BLANKET_MISSED = "blanket-missed", {"mass": float}
    BLANKET_MESSAGES = (
        "blanket-messages",
        {"mean": float, "counts": int, "first": int, "last": int, "lost": float, "relative_error": float},
    )
    BLANKET_REPORTS = "blanket-reports", {"mean": float}
    RATES_COVERED = "rates-covered", {"least": float, "most": float}
    BUDGETS_COVERED = "budgets-covered", {"least": float, "most": float}
    HOSTS = "hosts", {"users": int, "tiers": int}
    HOST_VARIANCE = "host-variance", {"variance": float}
    CLOCKS = "clocks", {"horizon": float}
    ON_LATTICE = "on-lattice", {"lattice": int, "added": float, "shown": int, "chance": float}
    FAKE_REPORTS = "fake-reports", {"fakes": int, "unhidden": float, "variation": float}
    FAKES_HIDE_LOSSES = "fakes-hide-losses", {"hops": int, "fakes": int}
    TWO_GROUPS = (
        "two-groups",
        {
            "share": float,
            "distance": float,
            "core_users": int,
            "core_epsilon": float,
            "other_users": int,
            "other_epsilon": float,
        },
    )
    ANY_RELEASE = "any-release", {"epsilon": float, "delta": float}
    STORED_TIERS = "stored-tiers", {"tiers": int}


NOT_AMPLIFIED = frozenset(
    {
        ProofStep.NO_OTHERS,
        ProofStep.REPORTS_KEPT,
        ProofStep.LENGTH_SHOWS_SIGMA,
        ProofStep.LENGTH_SHOWS_RECORD_SIGMA,
        ProofStep.NOISE_REACHES_FAR,
        ProofStep.LOCAL_IS_LEAST,
    }
)
"""The steps that say why a certificate is the local budget."""


class Note(Code):
    """What a reader has to know beside an estimate, a guarantee or a published figure."""

    TIERS_SCALED = "tiers-scaled", {"reports": int, "budgets": int}
    OUTSIDE_RANGE = "outside-range", {"low": float, "high": float}
    SOME_OUTSIDE_RANGE = "some-outside-range", {"outside": int, "estimates": int, "low": float, "high": float}
    DEPENDENT_BUDGETS = "dependent-budgets"
    TOO_FEW_TO_ESTIMATE = "too-few-to-estimate", {"reports": int, "least": int}
    EQUAL_BUDGETS = "equal-budgets"
    LARGEST_BUDGET = "largest-budget"
    LEFTOVER_REFUTED = "leftover-refuted"
    FAIR_BIT_CLONES = "fair-bit-clones"
    ERROR_UNBOUNDED = "error-unbounded"
    CLIP_LAPLACE = "clip-laplace"
    TESTING_ERROR = "testing-error"
    FORMULA_INVALID = "formula-invalid", {"why": str}
    IGNORES_SHOWN_BUDGETS = "ignores-shown-budgets"
    IGNORES_DISHONEST = "ignores-dishonest", {"dishonest": int}
    LARGER_DELTA = "larger-delta", {"delta": float, "certified": float}
    CURVE_RANGE = "curve-range", {"least": float, "most": float}
    LARGE_DELTA = "large-delta", {"delta": float, "people": int}
    TIERS_NOT_AMPLIFIED = "tiers-not-amplified", {"tiers": int, "of": int}


_UNBOUNDED = {"delta": float, "rounds": int, "most": float, "requested": float, "remaining": float}
_EXCEEDED = {**_UNBOUNDED, "reached": float, "excess": float, "spent": float}


class RefusalReason(Code):
    """Why the accountant refuses a round, and which limits it had to meet."""

    TOO_FEW_REPORTS = "too-few-reports", {"reports": int, "least": int}
    TOO_FEW_BUDGETS = "too-few-budgets", {"budgets": int, "least": int}
    TOO_MANY_WITHOUT_TICKET = "too-many-without-ticket", {"reports": int, "most": int}
    NO_BUDGET_ON_GRID = "no-budget-on-grid"
    NOT_CERTIFIED = "not-certified", {"grade": str}
    DELTA_ABOVE_LIMIT = "delta-above-limit", {"delta": float, "most": float}
    EPSILON_ABOVE_LIMIT = "epsilon-above-limit", {"epsilon": float, "most": float, "excess": float}
    BUDGET_ABOVE_LIMIT = (
        "budget-above-limit",
        {"local_epsilon": float, "epsilon": float, "most": float, "excess": float},
    )
    LIMITS_NOT_MET = "limits-not-met"
    DELTA_LIMIT = "delta-limit", {"most": float}
    EPSILON_LIMIT = "epsilon-limit", {"most": float}
    EPSILON_LIMITS = "epsilon-limits", {"least": float, "most": float}
    LEDGER_LIMIT = "ledger-limit", {"epsilon": float, "delta": float}
    SEQUENTIAL_LEDGER_LIMIT = "sequential-ledger-limit", {"epsilon": float, "delta": float}
    LEDGER_LIMIT_NOW = "ledger-limit-now", {"epsilon": float, "delta": float}
    STUDY_LIMIT = "study-limit", {"epsilon": float, "delta": float}
    MESSAGES_LOST = "messages-lost", {"tickets": int, "reports": int, "budgets": int}
    LEDGER_EXCEEDED = "ledger-exceeded", _EXCEEDED
    LEDGER_UNBOUNDED = "ledger-unbounded", _UNBOUNDED
    STUDY_EXCEEDED = "study-exceeded", _EXCEEDED
    STUDY_UNBOUNDED = "study-unbounded", _UNBOUNDED
    ROUNDS_SHOWN = "rounds-shown", {"rounds": int}
