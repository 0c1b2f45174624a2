"""Commands of clients, and of those that play them: submit, limits, verify, canary."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from croupier.cli.console import (
    HERE,
    NOT_ACCEPTED,
    OPERATE,
    TAKE_PART,
    BudgetGroups,
    Directory,
    Gateway,
    Json,
    fail,
    note,
    note_left_out,
    plain_errors,
    progress_bar,
    progress_of,
    show,
    text_of,
)
from croupier.cli.option_groups import with_option_groups
from croupier.deploy.local.budget_groups import GSPA_BUDGETS
from croupier.protocol.names import NO_KEY, RoundId

if TYPE_CHECKING:
    from croupier.client.one_answer import AnswerOutcome
    from croupier.show.promises import Promises

_EITHER = (("value", "value_file"), ("budgets", "epsilon_column"))


def add_commands(app: typer.Typer) -> None:
    """Adds the commands of this module to the command line."""
    for command in (with_option_groups(submit), limits, verify):
        app.command(rich_help_panel=TAKE_PART)(command)
    app.command(rich_help_panel=OPERATE)(canary)


@dataclass(frozen=True)
class OneUser:
    """Options of 'submit' for one user."""

    value: Annotated[
        str | None,
        typer.Option(
            envvar="CROUPIER_VALUE",
            help="One user's value: 0 or 1, a category, or a number. Other users of the machine can read a command "
            "line, and not its environment or --value-file.",
        ),
    ] = None
    value_file: Annotated[
        typer.FileText | None, typer.Option(help="Read one user's value from this file; - for standard input.")
    ] = None
    epsilon: Annotated[
        float | None,
        typer.Option(
            envvar="CROUPIER_EPSILON",
            help="One user's max_local_epsilon: the most to spend; the largest budget of the round up to it is used. "
            "See --value.",
        ),
    ] = None
    key: Annotated[
        Path | None, typer.Option(help="One user's key, from 'keygen --client'; a new one if not given.")
    ] = None
    another_person: Annotated[
        bool,
        typer.Option("--another-person", help="Not the person who has answered here in this round under another key."),
    ] = False
    enrol: Annotated[bool, typer.Option(help="Also register the key, with the operator's certificate.")] = False
    gateway: Gateway = ""


@dataclass(frozen=True)
class FleetFile:
    """Options of 'submit' for a fleet."""

    csv: Annotated[Path | None, typer.Option(help="A fleet: one user a row, all registered first.")] = None
    value_column: Annotated[str | None, typer.Option(help="Fleet: the column of values.")] = None
    epsilon_column: Annotated[str | None, typer.Option(help="Fleet: the column of each user's max_local_epsilon.")] = (
        None
    )
    id_column: Annotated[
        str | None,
        typer.Option(help="Fleet: the column that names each row's person; else each row of each file is a person."),
    ] = None
    clamp: Annotated[
        bool, typer.Option("--clamp", help="Fleet: numbers outside the round's interval count as its nearer end.")
    ] = False
    budgets: BudgetGroups = GSPA_BUDGETS
    limit: Annotated[
        int | None, typer.Option(help="Fleet: how many rows to use, from the first; all if not given.")
    ] = None
    where: Annotated[
        str | None, typer.Option(help="Fleet: COLUMN=VALUE, only the rows that have this value there.")
    ] = None


def submit(
    context: typer.Context,
    directory: Directory = HERE,
    round_id: Annotated[str, typer.Option("--round", help="The round; the newest open one if not given.")] = "",
    *,
    user: OneUser,
    fleet: FleetFile,
    as_json: Json = False,
) -> None:
    """Randomize, seal and submit: one user, or a fleet from a CSV file."""
    with plain_errors():
        _check_together(context)
    if fleet.csv is None:
        _submit_one(directory, round_id, user, as_json)
    else:
        _submit_fleet(directory, round_id, fleet, as_json)


def _check_together(context: typer.Context) -> None:
    """Raises ValueError where an option was typed that another would have ignored."""
    sources = {param.name: context.get_parameter_source(param.name or "") for param in context.command.params}
    typed = [name for name, source in sources.items() if source and source.name == "COMMANDLINE"]
    is_fleet = "csv" in typed
    for option in fields(OneUser if is_fleet else FleetFile):
        if option.name in typed:
            whose = "one user, and --csv a fleet; give one of them" if is_fleet else "a fleet, which needs --csv"
            raise ValueError(f"--{option.name.replace('_', '-')} is for {whose}")
    for first, other in _EITHER:
        if first in typed and other in typed:
            names = " and ".join(f"--{name.replace('_', '-')}" for name in (first, other))
            raise ValueError(f"{names} are both given; at most one of them can be")


def _submit_one(directory: Path, round_id: str, user: OneUser, as_json: bool) -> None:
    with plain_errors():
        import asyncio

        from croupier.client.limits import local_budget
        from croupier.client.one_answer import ALREADY_ANSWERED
        from croupier.protocol.errors import Code

        done, promised = asyncio.run(_answer(directory, round_id, user))
    budget = local_budget(done.local_epsilon, done.local_delta)
    document = {
        "round_id": done.round_id,
        "code": done.code,
        "local_epsilon": done.local_epsilon,
        "local_delta": done.local_delta,
        "one_honest_right_at_most": promised.one_honest_hop,
        "alone_right_at_most": promised.no_honest_hop,
    }
    is_counted = done.code in ("ACCEPTED", ALREADY_ANSWERED)
    show(as_json, document, f"{done.code} in round {done.round_id}, {budget}", *(promised.lines if is_counted else ()))
    if done.code == ALREADY_ANSWERED:
        before = f"already answered with {budget}"
        raise fail(NOT_ACCEPTED, f"{before}; a person answers once, and what was given now was not used")
    if done.sealed_before:
        note(f"sent as it was sealed before, with {budget}; what was given now was not used")
    if done.code != "ACCEPTED":
        raise fail(NOT_ACCEPTED, f"{Code[done.code].message}{_way_out(done.code, has_key=user.key is not None)}")


async def _answer(directory: Path, round_id: str, user: OneUser) -> tuple[AnswerOutcome, Promises]:
    """Submits one user's value; returns its outcome, and what the round promises for it.

    Raises:
        ValueError: an option is missing or cannot be used; everything else as for `AsyncClientRound.answer`.
    """
    from croupier.client.key_file import read_private_key
    from croupier.client.one_answer import Respondent
    from croupier.deploy.local.clients import client_of
    from croupier.operator.roster import enrolling
    from croupier.protocol.errors import OtherPersonError

    value = text_of(user.value_file) if user.value_file else user.value
    missing = [name for name, given in (("--value-file", value), ("--epsilon", user.epsilon)) if given is None]
    if value is None or user.epsilon is None:
        are = "is" if len(missing) == 1 else "are"
        raise ValueError(f"{' and '.join(missing)} {are} missing; one user needs a value and --epsilon, a fleet --csv")
    respondent = Respondent(
        key=read_private_key(user.key) if user.key else NO_KEY,
        new_key=True,
        another_person=user.another_person,
    )
    enrol = enrolling(directory) if user.enrol else None  # without the operator's keys it ends here, with nothing spent
    async with client_of(directory, user.gateway, patience_s=60.0) as client:
        asked = await client.round(round_id)
        try:
            done = await asked.answer(value, user.epsilon, respondent, enrol)
            return done, asked.promises(done.local_epsilon)
        except OtherPersonError as error:
            raise OtherPersonError(f"{error}: for another person give --another-person") from error


def _way_out(code: str, *, has_key: bool) -> str:
    """Returns what a person can do who was not admitted."""
    if code == "UNKNOWN_CLIENT" and not has_key:
        return "; without --key a new one was made: give the key that is registered"
    if code == "UNKNOWN_CLIENT":
        return "; send the operator FILE.pub of 'croupier keygen --client' for 'croupier enrol'"
    return ""


def _submit_fleet(directory: Path, round_id: str, fleet: FleetFile, as_json: bool) -> None:
    with plain_errors():
        import asyncio

        from croupier.deploy.directory import read_deployment
        from croupier.deploy.local.budget_groups import parse_budget_groups
        from croupier.deploy.local.fleet import submit_file
        from croupier.deploy.local.population import PopulationFile, Rows
        from croupier.deploy.local.sheets import open_table

        if fleet.csv is None or fleet.value_column is None:
            raise ValueError("--value-column is missing; a fleet needs it")
        column = fleet.value_column
        rows = Rows.parse(fleet.where) if fleet.where else None
        file = PopulationFile(
            open_table(fleet.csv, fleet.limit),
            column,
            parse_budget_groups(fleet.budgets),
            epsilon_column=fleet.epsilon_column,
            id_column=fleet.id_column,
            clamp=fleet.clamp,
            where=rows,
        )
        file.csv.check([column, fleet.epsilon_column, fleet.id_column, rows.column if rows else None])
        read_deployment(directory)
        with progress_bar() as move:
            sent = asyncio.run(submit_file(directory, RoundId(round_id), file, progress_of(move, column)))
    note_left_out(sent.rejected)
    if file.csv.assumed:
        note(file.csv.assumed)
    show(as_json, sent.document(), sent.summary())
    if not sent.all_counted:
        raise typer.Exit(NOT_ACCEPTED)


def limits(
    directory: Directory = HERE,
    lifetime_epsilon: Annotated[
        float | None, typer.Option(help="The most that the local epsilons of all rounds may add up to.")
    ] = None,
    lifetime_delta: Annotated[
        float | None,
        typer.Option(help="The most that the local deltas of all rounds may add up to; 1e-5 if never set."),
    ] = None,
    max_rounds: Annotated[int | None, typer.Option(help="The most rounds to answer.")] = None,
    max_local_epsilon: Annotated[
        float | None, typer.Option(help="The most local epsilon for one round; default: none, with hop noise 8.")
    ] = None,
    max_local_delta: Annotated[
        float | None, typer.Option(help="The most local delta for one round, 0 to 1e-3; 1e-5 if never set.")
    ] = None,
    epsilon_max: Annotated[float | None, typer.Option(help="Answer no round whose --epsilon-max is larger.")] = None,
    min_batch_size: Annotated[
        int | None, typer.Option(help="Answer no round whose --min-batch-size is smaller.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show or set this client's own limits, which 'submit' keeps to before it randomizes or sends anything."""
    with plain_errors():
        import asyncio
        from dataclasses import asdict

        from croupier.client.limits import Limits, SpentHere, in_full, local_budget
        from croupier.deploy.local.clients import client_of
        from croupier.show.certificate_tables import counted

        async def change() -> tuple[Limits, SpentHere]:
            async with client_of(directory) as client:
                client.change_limits(
                    lifetime_epsilon=lifetime_epsilon,
                    lifetime_delta=lifetime_delta,
                    max_rounds=max_rounds,
                    max_local_epsilon=max_local_epsilon,
                    max_local_delta=max_local_delta,
                    epsilon_max=epsilon_max,
                    min_batch_size=min_batch_size,
                )
                return client.limits, client.spent

        kept, spent = asyncio.run(change())
    lines = [f"{name}: {'none' if value is None else in_full(value)}" for name, value in kept.model_dump().items()]
    budget = local_budget(spent.local_epsilon, spent.local_delta)
    lines.append(f"so far: {budget}, the sum over {counted(spent.rounds, 'round')}")
    show(as_json, {"limits": kept.model_dump(), "spent": asdict(spent)}, *lines)


def verify(
    round_id: Annotated[str, typer.Argument(help="A closed round.")],
    directory: Directory = HERE,
    gateway: Gateway = "",
    as_json: Json = False,
) -> None:
    """Check that every hop has passed on everything that was submitted from here."""
    with plain_errors():
        import asyncio

        from croupier.deploy.local.clients import client_of, verify_directory

        async def look() -> tuple[int, dict[str, list[str]]]:
            async with client_of(directory, gateway) as client:
                return await verify_directory(client, directory, RoundId(round_id))

        submitted, missing = asyncio.run(look())
    lines = [f"{name}: {len(users):,} of {submitted:,} missing" for name, users in missing.items()]
    show(as_json, {"submitted": submitted, "missing": missing}, "\n".join(lines))
    if any(missing.values()):
        raise typer.Exit(NOT_ACCEPTED)


def canary(
    round_id: Annotated[str, typer.Argument(help="An open round, or with --check a finished one.")],
    directory: Directory = HERE,
    count: Annotated[int, typer.Option(help="How many, at least 1; the round's --dishonest must be as large.")] = 1,
    over: Annotated[
        float, typer.Option(help="Seconds within which they come, each at a random time; clients come over some time.")
    ] = 60.0,
    check: Annotated[bool, typer.Option(help="Look for them behind every hop.")] = False,
    as_json: Json = False,
) -> None:
    """Play clients of your own, and find out whether a hop loses or replaces submissions."""
    with plain_errors():
        import asyncio

        from croupier.operator.canaries import check_canaries, send_canaries

        if not check:
            sent = asyncio.run(send_canaries(directory, RoundId(round_id), count, over_s=over))
            show(as_json, {"round_id": round_id, "canaries": sent}, f"canaries in round {round_id}: {sent:,}")
            return
        report = asyncio.run(check_canaries(directory, RoundId(round_id)))
    lines = [f"{name}: {count:,} of {report.sent:,} canaries missing" for name, count in report.missing.items()]
    show(as_json, {"canaries": report.sent, "missing": report.missing}, "\n".join(lines))
    if any(report.missing.values()):
        raise typer.Exit(NOT_ACCEPTED)
