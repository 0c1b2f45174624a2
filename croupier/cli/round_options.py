"""The options of a round, as 'survey open' and 'survey check' take them: question, budgets, guarantee and batch."""

from __future__ import annotations

import math
import time
from dataclasses import MISSING, asdict, dataclass, fields, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from cyclopts import Parameter

from croupier.accountant.ranges import DEFAULT_DELTA
from croupier.cli.mechanism_options import HopNoiseOptions
from croupier.operator.round_settings import RoundSettings
from croupier.operator.wordings import read_categories, read_wordings
from croupier.protocol.collector import read_collector_key
from croupier.protocol.envelope import SUITES
from croupier.protocol.kinds import check_new, split_name
from croupier.protocol.mechanisms import MECHANISMS, mechanism_from, parameter_types, parameters_in
from croupier.protocol.mechanisms.base import Form
from croupier.protocol.names import PublicKey
from croupier.protocol.questions import Question
from croupier.protocol.wordings import Wording

EnumT = TypeVar("EnumT", bound=str)


@Parameter(name="*", group="The question as people read it")
@dataclass(frozen=True)
class WordingOptions:
    """The question as people read it."""

    question: Annotated[str, Parameter(help="The question as people read it.")] = ""
    choices: Annotated[
        str,
        Parameter(
            help="The answers as people read them, separated by semicolons: krr is then the default; with --randomizer "
            "rr the captions of 0 and 1."
        ),
    ] = ""
    title: Annotated[str, Parameter(help="A heading above the question.")] = ""
    help_text: Annotated[str, Parameter(help="What helps people to answer.")] = ""
    unit: Annotated[str, Parameter(help="The unit of a number.")] = ""
    language: Annotated[str, Parameter(help="The language of the options above, such as de or pt-BR.")] = "en"
    wording: Annotated[
        Path | None,
        Parameter(help="Instead of the options above: a TOML file with a table of the name wording for each language."),
    ] = None

    def wordings(self) -> tuple[Wording, ...]:
        """Returns the wordings; none if no option is given.

        Raises:
            ValueError: a field is out of range, or options are given beside a file or without a question.
        """
        names = ("question", "title", "help_text", "choices", "unit")
        given = [f"--{name.replace('_', '-')}" for name in names if getattr(self, name)]
        if self.wording is not None:
            if given:
                raise ValueError(f"--wording and {given[0]} are both given; write everything into the file")
            return read_wordings(self.wording)
        if not given:
            return ()
        if not self.question:
            raise ValueError(f"{given[0]} is given without --question; a wording needs the question itself")
        captions = tuple(caption.strip() for caption in self.choices.split(";")) if self.choices else ()
        return (Wording(self.language, self.question, self.title, self.help_text, captions, self.unit),)


# A vector's question carries the parameters of a model; 'croupier train' opens such rounds.
_OFFERED = {kind: mechanism for kind, mechanism in MECHANISMS.items() if mechanism.form is not Form.VECTOR}


def _option(name: str, number: type) -> Any:
    """Returns the annotation of the option for a parameter, with what each mechanism says of it."""
    described: dict[str, list[str]] = {}
    for kind, mechanism in _OFFERED.items():
        if name in (known := {each.name: each.default for each in fields(mechanism)}):
            default = "" if known[name] is MISSING else f"; default: {known[name]}"
            described.setdefault(f"{mechanism.describe(name)}{default}", []).append(kind)
    said = "; ".join(f"{', '.join(kinds)}: {text}" for text, kinds in described.items())
    return Annotated[number | None, Parameter(help=f"{said}.")]


if TYPE_CHECKING:

    @dataclass(frozen=True, init=False)
    class ParameterOptions:
        """The parameters of the mechanisms: an option for each field of their messages, but for the labels."""

        def __init__(self, **given: float) -> None: ...

else:
    _TYPES = {name: number for kind in _OFFERED for name, number in parameter_types(kind).items()}
    ParameterOptions = Parameter(name="*", group="The question and its randomizer")(
        make_dataclass(
            "ParameterOptions",
            [(name, _option(name, number), None) for name, number in _TYPES.items()],
            namespace={"__module__": __name__},  # cyclopts takes a class of the standard library for one value
            frozen=True,
        )
    )


@Parameter(name="*", group="The question and its randomizer")
@dataclass(frozen=True)
class QuestionOptions:
    """The randomizer of a round and its parameters."""

    randomizer: Annotated[
        str,
        Parameter(help=f"{', '.join(_OFFERED)}; parameters may follow, as in krr(k=5). Default: rr; with choices krr."),
    ] = ""
    labels: Annotated[str | None, Parameter(help="Answers to choose from: the categories, separated by commas.")] = None
    categories: Annotated[
        Path | None, Parameter(help="Instead: a text file with a category on each line, up to 65,536.")
    ] = None
    parameters: ParameterOptions = ParameterOptions()

    def question(self, name: str, wordings: tuple[Wording, ...] = ()) -> Question:
        """Returns the question of this name; the first wording's choices are the categories of krr.

        Raises:
            ValueError: the randomizer is unknown, or a parameter is missing, out of range or unknown to it.
        """
        captions = wordings[0].choices if wordings else ()
        written = self._labels()
        randomizer = self.randomizer or ("krr" if captions or self.categories else "rr")
        if split_name(randomizer)[0] not in _OFFERED:
            raise ValueError(
                f"randomizer is {randomizer!r}; it must be one of {', '.join(_OFFERED)}; for vectors: croupier train"
            )
        kind, named = parameters_in(randomizer)
        given = asdict(self.parameters)
        for parameter in named:
            check_new(parameter, kind, given.get(parameter))
        given |= named
        given["labels"] = written or (captions if "labels" in _OFFERED[kind].__dataclass_fields__ else ()) or None
        given["k"] = given["k"] or (given["labels"] and len(given["labels"]))
        return Question(name, mechanism_from(kind, given), wordings)

    def _labels(self) -> tuple[str, ...]:
        """Returns the categories that the options name; none where they name none."""
        if self.categories is None:
            return tuple(self.labels.split(",")) if self.labels else ()
        if self.labels:
            raise ValueError("--labels and --categories are both given; each names all categories")

        return read_categories(self.categories)


@Parameter(name="*", group="Privacy")
@dataclass(frozen=True)
class CertificateOptions:
    """The budgets that clients may use, and the guarantee that a round must reach."""

    grid: Annotated[
        str,
        Parameter(
            help="The local epsilons that clients may use, separated by commas; 4:2 sets another --epsilon-max, 2, for "
            "clients with 4. Default: four budgets, up to the largest that --min-batch-size people can use without the "
            "risk of a refusal."
        ),
    ] = ""
    delta: Annotated[float, Parameter(help="The central delta to certify at, 0 < delta <= 0.1.")] = DEFAULT_DELTA
    epsilon_max: Annotated[float, Parameter(help="Refuse to release above this certified epsilon of any client.")] = 1.0
    dishonest: Annotated[int, Parameter(help="Certify against this many dishonest clients.")] = 0
    budget_privacy: Annotated[
        float | None,
        Parameter(
            help="The epsilon with which the counts in a certificate hide one person's budget, 0.001 to 20; 0: they "
            "are exact. Default: 1 if --min-batch-size is at least four times the people that such counts leave out, "
            "else 0.",
            group="Privacy",
        ),
    ] = None
    budget_privacy_delta: Annotated[
        float | None, Parameter(help="The delta of --budget-privacy; default: 1e-6.", group="Privacy")
    ] = None

    def budgets(self) -> tuple[tuple[float, ...], dict[float, float]]:
        """Returns the local epsilons, ascending, and the epsilon_max of those that have their own; none by default.

        Raises:
            ValueError: the grid is not a list of numbers and pairs.
        """
        if not self.grid:
            return (), {}
        try:
            parts = [part.partition(":") for part in self.grid.split(",")]
            budgets = tuple(sorted(float(budget) for budget, _, _ in parts))
            return budgets, {float(budget): float(limit) for budget, colon, limit in parts if colon}
        except ValueError as error:
            raise ValueError(
                f"grid is {self.grid!r}; it must be numbers, or pairs such as 4:2, separated by commas"
            ) from error


@Parameter(name="*", group="People and time")
@dataclass(frozen=True)
class BatchOptions:
    """The numbers of clients that a round takes, and what happens with too few."""

    min_batch_size: Annotated[int, Parameter(help="Fewest clients that are mixed, at least 2.")] = 100
    max_batch_size: Annotated[int, Parameter(help="Most clients that are admitted; 0: all registered ones.")] = 0
    short_batch: Annotated[
        str, Parameter(help="With fewer than --min-batch-size: hold the round open, or dispose of it.")
    ] = "hold"


@Parameter(name="*")
@dataclass(frozen=True)
class EncryptionOptions:
    """How reports are encrypted, and for whom the result is."""

    suite: Annotated[str, Parameter(help="HPKE suite.")] = "x25519-sha256-chacha20poly1305"
    collector: Annotated[
        Path | None, Parameter(help="Publish the result sealed to this public key (FILE.pub of 'keygen --collector').")
    ] = None

    def collector_key(self) -> bytes:
        """Returns the collector's public key, empty if there is none.

        Raises:
            ValueError: the file is not a collector's key, or the key is of another suite.
        """
        if self.collector is None:
            return b""
        suite, key = read_collector_key(self.collector.read_text())
        if suite != self.suite:
            raise ValueError(f"the collector's key is of the suite {suite}, not {self.suite}; give --suite {suite}")
        return key.public


def settings_of(
    name: str,
    wording: WordingOptions,
    question: QuestionOptions,
    certificate: CertificateOptions,
    batch: BatchOptions,
    noise: HopNoiseOptions,
    encryption: EncryptionOptions,
    close_after_s: float,
) -> RoundSettings:
    """Returns the settings that options name.

    Raises:
        ValueError: an option is out of range.
    """
    if not 0 <= close_after_s < math.inf:
        raise ValueError(f"close_after_s is {close_after_s:g}; it must be a finite number > 0, or 0 for by hand")
    for option, number in (
        ("dishonest", certificate.dishonest),
        ("min_batch_size", batch.min_batch_size),
        ("max_batch_size", batch.max_batch_size),
    ):
        if not 0 <= number < 2**31:
            raise ValueError(f"{option} is {number}; it must be in 0..{2**31 - 1}")
    budgets, limits = certificate.budgets()
    given = asdict(certificate) | asdict(batch) | asdict(noise)
    del given["grid"], given["short_batch"]
    return RoundSettings(
        question.question(name, wording.wordings()),
        budgets,
        epsilon_max_of=limits,
        short_batch_policy=_one_of("short_batch", batch.short_batch, ("hold", "dispose")),
        hpke_suite=_one_of("suite", encryption.suite, SUITES),
        collector_public_key=PublicKey(encryption.collector_key()),
        close_deadline_unix_s=math.ceil(time.time() + close_after_s) if close_after_s else 0,
        **given,
    )


def _one_of(name: str, value: str, allowed: tuple[EnumT, ...]) -> EnumT:
    for known in allowed:
        if value == known:
            return known
    raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(allowed)}")
