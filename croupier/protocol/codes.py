"""The codes of everything that a certificate or a result states in words, each with its parameters.

Programs decide by codes and parameters; the sentences are in `texts`, and no program reads them. A code keeps its
meaning for ever, because it is signed and stored: a statement that means something else gets a new code.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from string import Formatter

from croupier.protocol.mechanisms import MECHANISMS, parameter_types
from croupier.protocol.mechanisms.base import Mechanism, Runs


def runs_by_code(mechanisms: Mapping[str, type[Mechanism]]) -> dict[str, tuple[str, Runs]]:
    """Returns what clients of each kind run, by code; raises ValueError where a kind has the words of another one."""
    found: dict[str, tuple[str, Runs]] = {}
    for kind, mechanism in mechanisms.items():
        for runs in mechanism.runs:
            if runs.code in found:
                raise ValueError(f"{kind} and {found[runs.code][0]} both have the code {runs.code}; each needs its own")
            found[runs.code] = kind, runs
    return found


RUNS = runs_by_code(MECHANISMS)
"""The assumptions that say all of what honest clients run: the kind of mechanism that each names, and its words.

Their parameters are those of the accountant's randomizer. A declared table is in no certificate: only its label is.
"""


class Assumption(StrEnum):
    """What a guarantee rests on. Every kind of mechanism adds what clients run, such as RUNS_RR for "runs-rr"."""

    _ignore_ = "members code"
    members = vars()

    REPLACE_ONE = "replace-one"
    RECORD_LEVEL = "record-level"
    PERSON_UNPROTECTED = "person-unprotected"
    RECORDS_PUBLIC = "records-public"
    TIERS_VISIBLE = "tiers-visible"
    for code in RUNS:
        members[code.upper().replace("-", "_")] = code
    RUNS_TABLE = "runs-table"
    UNIFORM_ORDER = "uniform-order"
    ONE_HONEST_HOP = "one-honest-hop"
    HONEST_FIRST_SHUFFLER = "honest-first-shuffler"
    CLIENTS_ANSWERED = "clients-answered"
    CLIENTS_WILL_ANSWER = "clients-will-answer"
    INDEPENDENT_ABSENCE = "independent-absence"
    UNWATCHED = "unwatched"
    ANSWER_PERIOD = "answer-period"
    DISHONEST_CLIENTS = "dishonest-clients"
    BUDGETS_PUBLIC = "budgets-public"
    BUDGETS_NOISED = "budgets-noised"
    INDEPENDENT_REPORTS = "independent-reports"
    ADAPTIVE_ORDER = "adaptive-order"
    BUDGETS_UNLINKED = "budgets-unlinked"
    BUDGETS_SHOWN = "budgets-shown"
    FRESH_SHUFFLES = "fresh-shuffles"
    FRESH_NOISE = "fresh-noise"
    SAME_REPORT = "same-report"
    ANSWERS_UNCHANGED = "answers-unchanged"
    FIXED_TERMS = "fixed-terms"
    DISJOINT_GROUPS = "disjoint-groups"
    TOTAL_BEFOREHAND = "total-beforehand"
    LOCAL_DELTAS_UNSPENT = "local-deltas-unspent"
    GENUINE_ROSTER = "genuine-roster"
    HONEST_ACCOUNTANT = "honest-accountant"
    EVERYONE_ELSE_DISHONEST = "everyone-else-dishonest"
    STEP_DISHONEST_USERS = "step-dishonest-users"
    DIFFERENT_USERS = "different-users"
    ONE_ANSWER_AN_EPOCH = "one-answer-an-epoch"
    CLIPPED_GRADIENTS = "clipped-gradients"
    NO_ONE_ELSE_TRUSTED = "no-one-else-trusted"
    FEATURES_WITHOUT_USERS = "features-without-users"
    FEATURES_FROM_USERS = "features-from-users"
    CHOSEN_WITHOUT_USERS = "chosen-without-users"
    CHOSEN_ON_USERS = "chosen-on-users"
    MEASURED_ON_OTHERS = "measured-on-others"
    MODEL_FILE_BLIND = "model-file-blind"
    SIMULATED = "simulated"


class Method(StrEnum):
    """How a guarantee was proved; several, in order, where one was built on another."""

    LOCAL_BUDGET = "local-budget"
    BLANKET_CLOSED_FORM = "blanket-closed-form"
    BLANKET_DENSITY = "blanket-density"
    EXCHANGE = "exchange"
    WORST_CASE = "worst-case"
    PUBLISHED = "published"
    WHOLE_RELEASE = "whole-release"
    STORED_PROFILE = "stored-profile"
    BASIC_COMPOSITION = "basic-composition"
    COMPOSED_LOSSES = "composed-losses"
    PRIVACY_FILTER = "privacy-filter"
    HOP_NOISE = "hop-noise"
    NO_ROUND = "no-round"
    ONE_RECORD = "one-record"
    TRAINING_HEMISPHERE = "training-hemisphere"
    TRAINING_GAUSSIAN = "training-gaussian"


class ProofStep(StrEnum):
    """One step on the way to a number, or why a bound was of no use."""

    NO_OTHERS = "no-others"
    LOCAL_IS_LEAST = "local-is-least"
    REPORTS_KEPT = "reports-kept"
    LENGTH_SHOWS_SIGMA = "length-shows-sigma"
    LENGTH_SHOWS_RECORD_SIGMA = "length-shows-record-sigma"
    NOISE_REACHES_FAR = "noise-reaches-far"
    NO_EXCHANGE_BOUND = "no-exchange-bound"
    EXCHANGE_NEEDS_BLANKET = "exchange-needs-blanket"
    EXCHANGE_BUDGET_LARGE = "exchange-budget-large"
    EXCHANGE_NO_SMALL_BUDGETS = "exchange-no-small-budgets"
    NOT_ASKED_FOR = "not-asked-for"
    TIME_OVER = "time-over"
    NOTHING_TO_GAIN = "nothing-to-gain"
    NO_LESS = "no-less"
    FOUND_EPSILON = "found-epsilon"
    FOUND_DELTA = "found-delta"
    REACHED = "reached"
    REACHED_OVER_ROUNDS = "reached-over-rounds"
    ROUNDS_ONLY_ADDED = "rounds-only-added"
    DELTAS_ONLY_ADDED = "deltas-only-added"
    ROUNDS_COMPOSED = "rounds-composed"
    SPLITS_ENUMERATED = "splits-enumerated"
    UNIFORM_BLANKET = "uniform-blanket"
    NO_BLANKET = "no-blanket"
    DENSITY_BLANKET = "density-blanket"
    TABLE_BLANKET = "table-blanket"
    BLANKET_WEIGHTS = "blanket-weights"
    BLANKET_MISSED = "blanket-missed"
    BLANKET_MESSAGES = "blanket-messages"
    BLANKET_REPORTS = "blanket-reports"
    RATES_COVERED = "rates-covered"
    BUDGETS_COVERED = "budgets-covered"
    HOSTS = "hosts"
    HOST_VARIANCE = "host-variance"
    CLOCKS = "clocks"
    ON_LATTICE = "on-lattice"
    FAKE_REPORTS = "fake-reports"
    FAKES_HIDE_LOSSES = "fakes-hide-losses"
    TWO_GROUPS = "two-groups"
    ANY_RELEASE = "any-release"
    STORED_TIERS = "stored-tiers"


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


class Note(StrEnum):
    """What a reader has to know beside an estimate, a guarantee or a published figure."""

    TIERS_SCALED = "tiers-scaled"
    OUTSIDE_RANGE = "outside-range"
    SOME_OUTSIDE_RANGE = "some-outside-range"
    DEPENDENT_BUDGETS = "dependent-budgets"
    TOO_FEW_TO_ESTIMATE = "too-few-to-estimate"
    EQUAL_BUDGETS = "equal-budgets"
    LARGEST_BUDGET = "largest-budget"
    LEFTOVER_REFUTED = "leftover-refuted"
    FAIR_BIT_CLONES = "fair-bit-clones"
    ERROR_UNBOUNDED = "error-unbounded"
    CLIP_LAPLACE = "clip-laplace"
    TESTING_ERROR = "testing-error"
    FORMULA_INVALID = "formula-invalid"
    IGNORES_SHOWN_BUDGETS = "ignores-shown-budgets"
    IGNORES_DISHONEST = "ignores-dishonest"
    LARGER_DELTA = "larger-delta"
    CURVE_RANGE = "curve-range"
    LARGE_DELTA = "large-delta"
    TIERS_NOT_AMPLIFIED = "tiers-not-amplified"


class RefusalReason(StrEnum):
    """Why the accountant refuses a round, and which limits it had to meet."""

    TOO_FEW_REPORTS = "too-few-reports"
    TOO_FEW_BUDGETS = "too-few-budgets"
    TOO_MANY_WITHOUT_TICKET = "too-many-without-ticket"
    NO_BUDGET_ON_GRID = "no-budget-on-grid"
    NOT_CERTIFIED = "not-certified"
    DELTA_ABOVE_LIMIT = "delta-above-limit"
    EPSILON_ABOVE_LIMIT = "epsilon-above-limit"
    BUDGET_ABOVE_LIMIT = "budget-above-limit"
    LIMITS_NOT_MET = "limits-not-met"
    DELTA_LIMIT = "delta-limit"
    EPSILON_LIMIT = "epsilon-limit"
    EPSILON_LIMITS = "epsilon-limits"
    LEDGER_LIMIT = "ledger-limit"
    SEQUENTIAL_LEDGER_LIMIT = "sequential-ledger-limit"
    LEDGER_LIMIT_NOW = "ledger-limit-now"
    STUDY_LIMIT = "study-limit"
    MESSAGES_LOST = "messages-lost"
    LEDGER_EXCEEDED = "ledger-exceeded"
    LEDGER_UNBOUNDED = "ledger-unbounded"
    STUDY_EXCEEDED = "study-exceeded"
    STUDY_UNBOUNDED = "study-unbounded"
    ROUNDS_SHOWN = "rounds-shown"


Code = Assumption | Method | ProofStep | Note | RefusalReason

Types = dict[str, type[int] | type[float] | type[str]]


def _parameters_of(kind: str, sentence: str) -> Types:
    """Returns the parameters that a sentence names: whole numbers, where the kind's message has no such parameter."""
    types = parameter_types(kind)
    return {
        name: types.get(name, int) for name in sorted({name for _, name, _, _ in Formatter().parse(sentence) if name})
    }


PARAMETERS: dict[Code, Types] = {
    **{
        Assumption(code): types for code, (kind, runs) in RUNS.items() if (types := _parameters_of(kind, runs.sentence))
    },
    Assumption.RUNS_TABLE: {"label": str},
    Assumption.ONE_HONEST_HOP: {"hops": int, "epsilon": float, "delta": float},
    Assumption.CLIENTS_ANSWERED: {"answered": int, "clients": int},
    Assumption.CLIENTS_WILL_ANSWER: {"least": int, "clients": int},
    Assumption.ANSWER_PERIOD: {"period_ms": int},
    Assumption.DISHONEST_CLIENTS: {"dishonest": int},
    Assumption.BUDGETS_NOISED: {"epsilon": float, "delta": float, "most": int},
    Assumption.FRESH_SHUFFLES: {"rounds": int},
    Assumption.FRESH_NOISE: {"rounds": int},
    Assumption.DISJOINT_GROUPS: {"groups": int},
    Assumption.SAME_REPORT: {"waves": int, "series": str},
    Assumption.GENUINE_ROSTER: {"dishonest": int},
    Assumption.STEP_DISHONEST_USERS: {"dishonest": int},
    Assumption.FEATURES_WITHOUT_USERS: {"features": str},
    Method.BASIC_COMPOSITION: {"rounds": int},
    Method.COMPOSED_LOSSES: {"rounds": int},
    Method.PRIVACY_FILTER: {"rounds": int},
    Method.TRAINING_HEMISPHERE: {"dimension": int},
    ProofStep.LENGTH_SHOWS_SIGMA: {"dimension": int},
    ProofStep.LENGTH_SHOWS_RECORD_SIGMA: {"dimension": int},
    ProofStep.NOISE_REACHES_FAR: {"reach": float, "most": float},
    ProofStep.REPORTS_KEPT: {"waves": int},
    ProofStep.NO_EXCHANGE_BOUND: {"randomizer": str},
    ProofStep.EXCHANGE_NEEDS_BLANKET: {"least": float},
    ProofStep.EXCHANGE_BUDGET_LARGE: {"local_epsilon": float, "most": float},
    ProofStep.NOT_ASKED_FOR: {"bound": str},
    ProofStep.TIME_OVER: {"bound": str},
    ProofStep.NOTHING_TO_GAIN: {"bound": str},
    ProofStep.NO_LESS: {"bound": str},
    ProofStep.FOUND_EPSILON: {"bound": str, "epsilon": float, "seconds": float},
    ProofStep.FOUND_DELTA: {"bound": str, "delta": float, "seconds": float},
    ProofStep.REACHED: {"epsilon": float, "delta": float, "slack": float, "evaluations": int},
    ProofStep.REACHED_OVER_ROUNDS: {"epsilon": float, "delta": float, "rounds": int},
    ProofStep.ROUNDS_ONLY_ADDED: {"most": int},
    ProofStep.DELTAS_ONLY_ADDED: {"least": float},
    ProofStep.ROUNDS_COMPOSED: {"rounds": int, "points": int, "infinity": float, "rounding": float},
    ProofStep.SPLITS_ENUMERATED: {"splits": int},
    ProofStep.UNIFORM_BLANKET: {"randomizer": str, "least": float, "most": float},
    ProofStep.NO_BLANKET: {"randomizer": str},
    ProofStep.DENSITY_BLANKET: {"randomizer": str, "reach": float},
    ProofStep.TABLE_BLANKET: {"label": str},
    ProofStep.BLANKET_WEIGHTS: {"least": float, "most": float},
    ProofStep.BLANKET_MISSED: {"mass": float},
    ProofStep.BLANKET_MESSAGES: {
        "mean": float,
        "counts": int,
        "first": int,
        "last": int,
        "lost": float,
        "relative_error": float,
    },
    ProofStep.BLANKET_REPORTS: {"mean": float},
    ProofStep.RATES_COVERED: {"least": float, "most": float},
    ProofStep.BUDGETS_COVERED: {"least": float, "most": float},
    ProofStep.HOSTS: {"users": int, "tiers": int},
    ProofStep.HOST_VARIANCE: {"variance": float},
    ProofStep.CLOCKS: {"horizon": float},
    ProofStep.ON_LATTICE: {"lattice": int, "added": float, "shown": int, "chance": float},
    ProofStep.FAKES_HIDE_LOSSES: {"hops": int, "fakes": int},
    ProofStep.FAKE_REPORTS: {"fakes": int, "unhidden": float, "variation": float},
    ProofStep.TWO_GROUPS: {
        "share": float,
        "distance": float,
        "core_users": int,
        "core_epsilon": float,
        "other_users": int,
        "other_epsilon": float,
    },
    ProofStep.ANY_RELEASE: {"epsilon": float, "delta": float},
    ProofStep.STORED_TIERS: {"tiers": int},
    Note.TIERS_SCALED: {"reports": int, "budgets": int},
    Note.OUTSIDE_RANGE: {"low": float, "high": float},
    Note.SOME_OUTSIDE_RANGE: {"outside": int, "estimates": int, "low": float, "high": float},
    Note.TOO_FEW_TO_ESTIMATE: {"reports": int, "least": int},
    Note.FORMULA_INVALID: {"why": str},
    Note.IGNORES_DISHONEST: {"dishonest": int},
    Note.LARGER_DELTA: {"delta": float, "certified": float},
    Note.CURVE_RANGE: {"least": float, "most": float},
    Note.LARGE_DELTA: {"delta": float, "people": int},
    Note.TIERS_NOT_AMPLIFIED: {"tiers": int, "of": int},
    RefusalReason.TOO_FEW_REPORTS: {"reports": int, "least": int},
    RefusalReason.TOO_FEW_BUDGETS: {"budgets": int, "least": int},
    RefusalReason.TOO_MANY_WITHOUT_TICKET: {"reports": int, "most": int},
    RefusalReason.NOT_CERTIFIED: {"grade": str},
    RefusalReason.DELTA_ABOVE_LIMIT: {"delta": float, "most": float},
    RefusalReason.EPSILON_ABOVE_LIMIT: {"epsilon": float, "most": float, "excess": float},
    RefusalReason.BUDGET_ABOVE_LIMIT: {"local_epsilon": float, "epsilon": float, "most": float, "excess": float},
    RefusalReason.DELTA_LIMIT: {"most": float},
    RefusalReason.EPSILON_LIMIT: {"most": float},
    RefusalReason.EPSILON_LIMITS: {"least": float, "most": float},
    RefusalReason.LEDGER_LIMIT: {"epsilon": float, "delta": float},
    RefusalReason.SEQUENTIAL_LEDGER_LIMIT: {"epsilon": float, "delta": float},
    RefusalReason.LEDGER_LIMIT_NOW: {"epsilon": float, "delta": float},
    RefusalReason.STUDY_LIMIT: {"epsilon": float, "delta": float},
    RefusalReason.MESSAGES_LOST: {"tickets": int, "reports": int, "budgets": int},
    RefusalReason.LEDGER_EXCEEDED: {
        "reached": float,
        "delta": float,
        "rounds": int,
        "most": float,
        "excess": float,
        "requested": float,
        "spent": float,
        "remaining": float,
    },
    RefusalReason.LEDGER_UNBOUNDED: {
        "delta": float,
        "rounds": int,
        "most": float,
        "requested": float,
        "remaining": float,
    },
    RefusalReason.STUDY_EXCEEDED: {
        "reached": float,
        "delta": float,
        "rounds": int,
        "most": float,
        "excess": float,
        "requested": float,
        "spent": float,
        "remaining": float,
    },
    RefusalReason.STUDY_UNBOUNDED: {
        "delta": float,
        "rounds": int,
        "most": float,
        "requested": float,
        "remaining": float,
    },
    RefusalReason.ROUNDS_SHOWN: {"rounds": int},
}
"""The parameters of each code and their types; a code that is not listed has none."""
