"""The accountant at the command line: certify, explain, curve, audit, plan. None of them needs a deployment."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from croupier import accountant
from croupier.accountant import Budgets, Certificate, LowerBound, Randomizer
from croupier.accountant.audit import audit as run_audit
from croupier.accountant.budgets import budgets_in_rows, read_budgets_csv
from croupier.accountant.mechanisms.rr import BinaryRandomizedResponse
from croupier.accountant.ranges import DEFAULT_DELTA, check_bounds, check_linkage
from croupier.accountant.recertification import fakes_of
from croupier.accountant.repetition import repeat
from croupier.cli.console import NOT_CERTIFIED, STANDARD_INPUT, Argument, Json, fail, note, progress_bar, show
from croupier.cli.mechanism_options import (
    HopsOptions,
    ObserverOptions,
    RandomizerName,
    SettingOptions,
    planned_randomizer,
)
from croupier.cli.planning import ErrorOptions, planned_for_error
from croupier.deploy.local.csv_columns import CsvFile
from croupier.deploy.local.sheets import open_table
from croupier.protocol.certificates import READABLE
from croupier.protocol.codes import NOT_AMPLIFIED, Method
from croupier.protocol.documents import document_of, read_json
from croupier.protocol.names import JsonObject
from croupier.protocol.rounding import round_down, round_up
from croupier.protocol.shown import sanitize_for_display
from croupier.protocol.statements import joined
from croupier.show.blocks import Block, Heading, Table
from croupier.show.certificate_tables import assumptions_line, certificate_table, comparison_notes, steps_table
from croupier.show.documents import plan_json
from croupier.show.explanation import explain as explained
from croupier.show.halving import halving_line
from croupier.show.plots import check_plot_file, plot_privacy_curve
from croupier.show.profile import curve_of, profile_blocks
from croupier.show.text import note_lines

_NOT_VERIFIED = "This explains what was read. It does not check who made it, or what was changed."
"""The last line of `explain` for a document, because anyone can write a document."""

BudgetFile = Annotated[
    Path,
    Argument(
        help="CSV or Excel with a column epsilon (of the local budgets), optionally count (of users; default 1); for "
        "gaussian also delta."
    ),
]


def _read_budgets(file: Path, randomizer: Randomizer) -> Budgets:
    """Returns the budgets in a CSV or Excel file; a note says what was assumed in order to read it.

    Raises:
        ValueError: a line that cannot be used, or no delta where the randomizer's budgets have one.
    """
    table = open_table(file)
    if isinstance(table, CsvFile) and not table.readings():  # the usual: millions of rows are read in seconds
        budgets = read_budgets_csv(file)
    else:
        columns = [table.column(name) for name in table.names]
        rows = ((int(cells[0][0]), [text for _, text in cells]) for cells in zip(*columns, strict=True))
        budgets = budgets_in_rows(str(file), table.names, rows)
        note(table.assumed)
    if randomizer.spends_local_delta and not (budgets.local_delta > 0).all():
        raise ValueError(
            f"{file}: a local_delta is 0; {randomizer.kind} spends one, so that the first line must be "
            "epsilon,delta,count, and each row have 0 < delta < 1, such as 0.5,1e-8,9000"
        )
    return budgets


@Parameter(name="*", group="Privacy")
@dataclass(frozen=True)
class TargetOptions:
    """What a certificate is made for: its delta, or its epsilon."""

    delta: Annotated[
        float | None,
        Parameter(
            help="Certify epsilon at this central delta, 0 < delta < 1; this or --epsilon. With --hop-noise: 1e-6."
        ),
    ] = None
    epsilon: Annotated[
        float | None, Parameter(help="Certify delta at this central epsilon, at least 0; this or --delta.")
    ] = None

    def delta_beside(self, noise: HopsOptions) -> float | None:
        """Returns the delta to certify at; None where epsilon is given. Raises ValueError if neither is given."""
        if self.delta is not None or self.epsilon is not None:
            return self.delta
        if not noise.is_given:
            raise ValueError(
                f"neither --delta nor --epsilon is given; give exactly one, such as --delta {DEFAULT_DELTA:g}"
            )
        return DEFAULT_DELTA


def certify(
    budgets: BudgetFile,
    /,
    *,
    randomizer: RandomizerName = "rr",
    target: TargetOptions = TargetOptions(),
    setting: SettingOptions = SettingOptions(),
    noise: HopsOptions = HopsOptions(),
    compare: Annotated[bool, Parameter(help="Every published bound, judged by the attack.")] = False,
    bounds: Annotated[
        str, Parameter(help="all: the least of every bound; blanket: the only one that holds in a sequential round.")
    ] = "all",
    explain: Annotated[bool, Parameter(help="Every step with its number; in plain words: explain.")] = False,
    as_json: Json = False,
) -> None:
    delta = target.delta_beside(noise)
    family = accountant.randomizer_from_name(randomizer)
    multiset = _read_budgets(budgets, family)
    with progress_bar(transient=True) as move:
        result = accountant.certify(
            multiset,
            family,
            delta=delta,
            epsilon=target.epsilon,
            rounds=setting.rounds,
            compare_all=compare,
            progress=lambda done, tiers: move(done, tiers, f"{done} of {tiers} tiers"),
            **noise.conditions(setting, delta) | {"bounds": check_bounds(bounds)},
        )
    document = result.to_json(steps=explain)
    show(as_json, document, *_certificate_tables(result, document, compare, explain))


def _certificate_tables(result: Certificate, document: JsonObject, compare: bool, explain: bool) -> list[Block | str]:
    said = NOT_AMPLIFIED if result.method[0].code is Method.LOCAL_BUDGET else ()
    tables: list[Block | str] = [certificate_table(document), *note_lines(document["notes"])]
    tables += [f"Remark: {step}." for step in result.tiers[-1].steps if step.code in said]
    if compare:
        tables += comparison_notes(result.comparison)
    if explain:
        tables += [steps_table(result), *(f"assumes: {line}" for line in result.assumptions)]
    return tables


def explain(
    certificate: Annotated[
        Path,
        Parameter(
            help="What 'certify --json', 'survey results --json' or 'demo --json' has printed; - for standard input."
        ),
    ],
    /,
    *,
    check: Annotated[bool, Parameter(help="Only prove its numbers again, for the witness of every tier.")] = False,
    as_json: Json = False,
) -> None:
    typed = certificate == STANDARD_INPUT
    printed = sys.stdin.buffer.read() if typed else certificate.read_bytes()
    if typed and not printed.strip():
        raise ValueError("standard input is empty; did the command before it fail?")
    try:
        document = read_json(printed)
    except ValueError as error:
        raise ValueError(f"{'<stdin>' if typed else certificate} cannot be read ({error}); {READABLE}") from error
    asked = document.get("questions") if isinstance(document, dict) else None
    if check:
        _show_proofs(asked if isinstance(asked, list) else [document], as_json)
        return
    if isinstance(asked, list) and asked and all(isinstance(question, dict) for question in asked):  # of a demo
        several = [(sanitize_for_display(str(question.get("name", ""))), explained(question)) for question in asked]
        documents = [{"name": name, **explanation.to_json()} for name, explanation in several]
        blocks: list[Block] = []
        for name, each in several:
            blocks += [Heading(name), *each.sections]
        show(as_json, {"questions": documents}, *blocks, _NOT_VERIFIED)
        return
    said = explained(document)
    show(as_json, said.to_json(), *said.sections, _NOT_VERIFIED)


def _show_proofs(documents: list[Any], as_json: bool) -> None:
    """Shows the delta that each tier's witness proves; exit code 5 if one is above the certificate's."""
    table = Table("local ε", "ε", "δ", "proved δ", title="The proofs of all tiers, repeated with their witnesses")
    rows: list[JsonObject] = []
    for document in documents:
        result = document.get("result", document) if isinstance(document, dict) else document
        certificate = result.get("certificate", result) if isinstance(result, dict) else result
        for tier, delta in repeat(Certificate.from_json(certificate)):
            shown = "not repeated: its witness names no theorem of one round" if delta is None else f"{delta:.9g}"
            table.row(round_up(tier.local_epsilon), round_up(tier.epsilon), f"{tier.delta:.9g}", shown)
            rows.append(
                {"local_epsilon": tier.local_epsilon, "epsilon": tier.epsilon, "delta": tier.delta, "proved": delta}
            )
    show(as_json, {"tiers": rows}, table)
    if any(row["proved"] is not None and row["proved"] > row["delta"] for row in rows):
        raise fail(NOT_CERTIFIED, "a witness proves less than the certificate says")


def curve(
    budgets: BudgetFile,
    /,
    *,
    randomizer: RandomizerName = "rr",
    setting: SettingOptions = SettingOptions(),
    noise: HopsOptions = HopsOptions(),
    out: Annotated[Path, Parameter(help="Where to draw it (PNG, SVG or PDF); its directory is made.")] = Path(
        "curve.png"
    ),
    as_json: Json = False,
) -> None:
    check_plot_file(out)
    family = accountant.randomizer_from_name(randomizer)
    profile = accountant.privacy_profile(
        _read_budgets(budgets, family), family, rounds=setting.rounds, **noise.conditions(setting)
    )
    certified = {point.certificate.delta: point.certificate for point in profile.points}
    points = [certificate.to_json() for certificate in certified.values()]
    plot_privacy_curve(curve_of(profile), out)
    document = {
        "randomizer": profile.randomizer,
        "points": points,
        "notes": document_of(profile.notes),
        "plot": str(out),
    }
    show(as_json, document, *profile_blocks(profile), f"drawn in {out}")


def audit(
    budgets: BudgetFile,
    /,
    *,
    randomizer: RandomizerName = "rr",
    delta: Annotated[float, Parameter(help="The central delta of the attack, 0 < delta < 1.")] = DEFAULT_DELTA,
    observer: ObserverOptions = ObserverOptions(),
    seconds: Annotated[float, Parameter(help="How many seconds to search for better attacks.")] = 20.0,
    as_json: Json = False,
) -> None:
    family = accountant.randomizer_from_name(randomizer)
    multiset = _read_budgets(budgets, family)
    started = time.monotonic()
    with progress_bar(transient=True) as move:

        def report(best: LowerBound, tried: int) -> None:
            move(time.monotonic() - started, seconds, f"{tried} tried, ε ≥ {round_down(best.epsilon)}")

        audited = run_audit(
            multiset,
            family,
            delta=delta,
            dishonest=observer.dishonest,
            linkage=check_linkage(observer.linkage),
            seconds=seconds,
            progress=report,
        )
    attack, certificate = audited.attack, audited.certificate
    line = f"LOWER_BOUND ε ≥ {round_down(attack.epsilon)} at δ = {round_down(attack.delta)}: {attack.attack}"
    close = f", {audited.ratio:.4f} times the attack" if audited.ratio is not None else ""
    certified = f"CERTIFIED ε = {round_up(certificate.epsilon)} at δ = {round_up(certificate.delta)}"
    assuming = assumptions_line(certificate.to_json())
    document = audited.document()
    notes = note_lines(document["certificate"]["notes"])
    show(as_json, document, line, f"{certified}{close}: {joined(certificate.method)}", assuming, *notes)


def plan(
    *,
    budgets: Annotated[Path | None, Parameter(help="CSV of budgets, or of their proportions.")] = None,
    randomizer: RandomizerName = "rr",
    users: Annotated[int | None, Parameter(help="How many users will take part.")] = None,
    epsilon: Annotated[float | None, Parameter(help="The central epsilon to stay below, over all rounds.")] = None,
    delta: Annotated[float, Parameter(help="The central delta, over all rounds, 0 < delta < 1.")] = DEFAULT_DELTA,
    setting: SettingOptions = SettingOptions(),
    noise: HopsOptions = HopsOptions(),
    accuracy: ErrorOptions = ErrorOptions(),
    as_json: Json = False,
) -> None:
    accuracy.check()
    conditions = noise.guarantee(noise.conditions(setting, delta))
    named = planned_randomizer(accuracy.name(randomizer))
    family = BinaryRandomizedResponse() if isinstance(named, str) else named  # all candidates are pure
    if accuracy.error is not None:
        if noise.is_given:
            raise ValueError("--hop-noise is given with --error; give --users or --budgets in place of --error")
        shape = None if budgets is None else _read_budgets(budgets, family)
        answer, lines = planned_for_error(
            accuracy, named, budgets=shape, users=users, epsilon=epsilon, delta=delta, setting=setting
        )
        show(as_json, answer, *lines)
        return
    if budgets is None and users is None:
        raise ValueError("neither --users nor --budgets is given; one of them is needed")
    if budgets is None and epsilon is None:
        raise ValueError(
            "--epsilon is not given; give the central epsilon to stay below, or --budgets to learn its accuracy"
        )
    if budgets is None and family.spends_local_delta:
        raise ValueError(
            f"{family.kind} spends a local delta; give --budgets FILE, whose first line is epsilon,delta,count"
        )
    shape = None if budgets is None else _read_budgets(budgets, family)
    with progress_bar(transient=True) as move:
        planned = accountant.plan(
            named,
            delta=delta,
            epsilon=epsilon,
            num_users=users,
            budgets=shape,
            rounds=setting.rounds,
            **conditions,
            progress=lambda tried, about: move(tried, about, f"{tried} of about {about} candidates"),
        )
    document = plan_json(planned)
    certified = planned.certificate
    chosen = accountant.randomizer_from_name(certified.randomizer) if isinstance(named, str) else named
    fakes = fakes_of(certified, chosen)
    better = [line] if (line := halving_line(planned.budgets, chosen, fakes)) else []
    if fakes:
        better.append(
            f"hops: about {fakes.law.mean_total:,} fake reports each, of the law that 'croupier survey open' takes as "
            f"--hop-noise {fakes.noise.epsilon!r} --hop-noise-delta {fakes.noise.delta!r}"
        )
    notes = note_lines(document["certificate"]["notes"])
    show(as_json, document, str(planned), certificate_table(document["certificate"]), *better, *notes)
