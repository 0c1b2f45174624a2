"""`croupier discover`: frequent texts that no one has listed, one letter a wave."""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.table import Table

from croupier.cli.console import Hops, Json, note, show
from croupier.cli.mechanism_options import HopNoiseOption
from croupier.deploy.local.discovering import (
    DiscoveryResult,
    WaveTerms,
    discover,
    discover_among_participants,
    discover_deployed,
)
from croupier.deploy.local.processes import temporary_deployment
from croupier.deploy.local.sheets import open_table
from croupier.deploy.local.whole_round import players
from croupier.operator.operator import Operator
from croupier.protocol.rounding import round_up
from croupier.runtime.workers import WorkerPool
from croupier.study.discovery import DiscoverySettings


@Parameter(name="*", group="What is looked for")
@dataclass(frozen=True)
class SoughtOptions:
    """Options of 'discover': what is looked for."""

    alphabet: Annotated[
        str, Parameter(help="The letters of the texts: a text with any other, such as a capital, is never listed.")
    ]
    longest: Annotated[int, Parameter(help="Letters of the longest text, 1..64; a wave for each, and one more.")] = 10
    fewest: Annotated[
        int, Parameter(help="Texts that fewer people hold are listed with probability --false-listed at most.")
    ] = 1
    false_listed: Annotated[float, Parameter(help="Of all such texts together, 1e-9..0.5.")] = 0.05
    missed: Annotated[float, Parameter(help="Probability that a frequent text is missed, 1e-9..0.5.")] = 0.05
    groups: Annotated[
        bool, Parameter(help="--csv: each person answers one wave, which their device draws whatever the text is.")
    ] = False
    local_epsilon: Annotated[float, Parameter(help="Of each report, above 0 and at most 20.")] = 4.0
    noise: HopNoiseOption = HopNoiseOption()
    delta: Annotated[float, Parameter(help="Of all waves together.")] = 1e-6
    min_batch_size: Annotated[int, Parameter(help="The fewest people of a wave.")] = 100


@Parameter(name="*", group="Who answers")
@dataclass(frozen=True)
class AnswerOptions:
    """Options of 'discover': who answers, and where."""

    csv: Annotated[Path | None, Parameter(help="Play people from a file, one a row; else participants answer.")] = None
    value_column: Annotated[str, Parameter(help="The column of the texts.")] = "text"
    simulate: Annotated[bool, Parameter(help="--csv: without a deployment; nobody is protected.")] = False
    directory: Annotated[
        Path | None, Parameter("--dir", help="A running deployment; with --csv one on loopback if not given.")
    ] = None
    answer_for_s: Annotated[float, Parameter(help="Without --csv: how many seconds each wave is open.")] = 3600.0


def discover_texts(
    *,
    sought: SoughtOptions,
    answers: AnswerOptions = AnswerOptions(),
    name: Annotated[
        str, Parameter(help="Of the question that people see; with participants, the same name goes on.")
    ] = "discover",
    hops: Hops = 2,
    as_json: Json = False,
) -> None:
    discovered = _found(sought, answers, name, hops)
    show(as_json, discovered.document(), _table(discovered), *_lines(discovered, sought))


def _found(sought: SoughtOptions, answers: AnswerOptions, name: str, hops: int) -> DiscoveryResult:
    settings = DiscoverySettings(
        sought.alphabet, sought.longest, sought.fewest, sought.false_listed, sought.missed, sought.groups
    )
    terms = WaveTerms(name, sought.local_epsilon, sought.delta, sought.min_batch_size, **asdict(sought.noise))
    if answers.csv is None:
        if answers.directory is None or answers.simulate:
            raise ValueError("csv is not given; it must be, or --dir, a deployment whose participants answer")
        directory, seconds = answers.directory, answers.answer_for_s

        async def asked() -> DiscoveryResult:
            async with Operator(directory) as operator:
                return await discover_among_participants(
                    operator, directory, settings, terms, answer_for_s=seconds, note=note
                )

        return asyncio.run(asked())
    texts = [text.strip() for _, text in open_table(answers.csv).column(answers.value_column) if text.strip()]
    if answers.simulate:
        epsilon, delta, noise = sought.local_epsilon, sought.delta, asdict(sought.noise)
        return discover(texts, settings, local_epsilon=epsilon, delta=delta, hops=hops, **noise)

    async def played(directory: Path) -> DiscoveryResult:
        with closing(WorkerPool()) as pool:
            async with Operator(directory) as operator, players(operator, directory, pool) as play:
                return await discover_deployed(play, texts, settings, terms)

    if answers.directory is not None:
        return asyncio.run(played(answers.directory))
    with temporary_deployment(hops) as local:
        return asyncio.run(played(local.directory))


def _table(discovered: DiscoveryResult) -> Table:
    table = Table(title=f"{len(discovered.texts)} texts in {len(discovered.levels)} waves")
    table.add_column("text")
    table.add_column("people, estimated", justify="right")
    for text, holders in discovered.texts:
        table.add_row(text, f"{holders:,.0f}")
    return table


def _lines(discovered: DiscoveryResult, sought: SoughtOptions) -> list[str]:
    guarantee = discovered.guarantee
    sure = (
        f"No number of people is enough for a text to be listed with probability {1 - sought.missed:g}."
        if discovered.found is None
        else f"A text in the alphabet of at least {discovered.found:,} people is listed with probability "
        f"{1 - sought.missed:g} or more."
    )
    others = (
        f"The texts of about {discovered.others:,.0f} people (estimated) begin with a letter that is not in the "
        "alphabet: nothing is said about them."
    )
    few = f"A text of fewer than {sought.fewest:,} people is listed with probability {sought.false_listed:g} at most."
    cost = (
        f"One person, all waves: ε = {round_up(guarantee.epsilon, 4)} {guarantee.grade} "
        f"at δ = {round_up(guarantee.delta)}."
    )
    return [sure, others, few, cost, f"Assumed beside what each wave assumes: {guarantee.assumptions[-1]}."]
