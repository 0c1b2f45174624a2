"""Commands for people, and for those who play them: submit, verify, canaries."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deploy.cli.console import BAD_INPUT, HERE, NOT_ACCEPTED, Directory, Json, fail, run_async, show

__all__ = ["add_commands"]


def add_commands(app: typer.Typer) -> None:
    """Adds the commands of this module to the command line."""
    for command in (submit, verify, canary):
        app.command()(command)


def submit(
    directory: Directory = HERE,
    round_id: Annotated[str, typer.Option("--round", help="The round; the newest open one if not given.")] = "",
    value: Annotated[str | None, typer.Option(help="One user's value: 0 or 1, a letter, or a number.")] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="One user's wish: the most local epsilon to spend; the largest on the round's grid up to it is."
        ),
    ] = None,
    key: Annotated[
        Path | None, typer.Option(help="One user's key, from 'keygen --client'; a new one if not given.")
    ] = None,
    token: Annotated[
        str, typer.Option(help="One user's one-use token (64 hexadecimal digits), instead of a registered key.")
    ] = "",
    enrol: Annotated[bool, typer.Option(help="Also register the key, with the operator's certificate.")] = False,
    csv: Annotated[Path | None, typer.Option(help="A fleet: one user per row, all registered first.")] = None,
    value_column: Annotated[str | None, typer.Option(help="Fleet: the column of values.")] = None,
    epsilon_column: Annotated[str | None, typer.Option(help="Fleet: the column of wishes.")] = None,
    budgets: Annotated[
        str, typer.Option(help="Fleet: groups epsilon:share that wishes are drawn from; shares are relative.")
    ] = "0.5:54,1:37,2:9",
    limit: Annotated[int | None, typer.Option(help="Fleet: use the first so many rows.")] = None,
    as_json: Json = False,
) -> None:
    """Randomize, seal and submit: one user, or a fleet from a CSV file."""
    if csv is not None:
        _submit_fleet(directory, round_id, csv, value_column, epsilon_column, budgets, limit, as_json)
        return

    from deploy.local.one_user import submit_one
    from protocol.errors import Code

    async def send() -> tuple[str, str, float]:
        if value is None or epsilon is None:
            raise ValueError("value or epsilon is missing; one user needs --value and --epsilon, a fleet --csv")
        try:
            admits = bytes.fromhex(token)
        except ValueError as error:
            raise ValueError(f"token is {token!r}; 64 hexadecimal digits are expected") from error
        return await submit_one(directory, round_id, value, epsilon, key, token=admits, enrol=enrol)

    sent_to, code, spent = run_async(send())
    show(
        as_json,
        {"round_id": sent_to, "code": code, "local_epsilon": spent},
        f"{code} in round {sent_to}, local ε {spent:g}",
    )
    if code != "ACCEPTED":
        raise fail(NOT_ACCEPTED, Code[code].message)


def _submit_fleet(
    directory: Path,
    round_id: str,
    csv: Path,
    value_column: str | None,
    epsilon_column: str | None,
    budgets: str,
    limit: int | None,
    as_json: bool,
) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from client.submission import Participant
    from deploy.local.fleet import fleet_json, play_people
    from deploy.local.people import parse_wishes, read_people
    from protocol.manifest import RoundTerms

    if value_column is None:
        raise fail(BAD_INPUT, "value_column is missing; a fleet needs --value-column")
    rejected: dict[str, str] = {}
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(value_column)

        def read(terms: RoundTerms) -> dict[str, Participant]:
            people = read_people(
                csv, value_column, terms.question, parse_wishes(budgets), epsilon_column=epsilon_column, limit=limit
            )
            rejected.update(people.rejected)
            return people.users

        terms, report = run_async(
            play_people(directory, round_id, read, lambda done, total: bar.update(task, completed=done, total=total))
        )
    for reason in list(rejected.values())[:10]:
        Console(stderr=True, markup=False).print(f"left out: {reason}", highlight=False)
    document = {"round_id": terms.round_id, **fleet_json(report), "rejected": len(rejected)}
    codes = ", ".join(f"{count} {code.removeprefix('SUBMISSION_CODE_')}" for code, count in report.codes.items())
    show(as_json, document, f"round {terms.round_id}: {codes}; {len(rejected)} rows left out")
    if report.accepted != report.codes.total():
        raise typer.Exit(NOT_ACCEPTED)


def verify(
    round_id: Annotated[str, typer.Argument(help="A closed round.")], directory: Directory = HERE, as_json: Json = False
) -> None:
    """Check that hop 1 has passed on everything that was submitted from here."""
    from deploy.local.one_user import verify_inclusion

    submitted, missing = run_async(verify_inclusion(directory, round_id))
    show(as_json, {"submitted": submitted, "missing": missing}, f"{submitted} submitted, {len(missing)} missing")
    if missing:
        raise typer.Exit(NOT_ACCEPTED)


def canary(
    round_id: Annotated[str, typer.Argument(help="An open round, or with --check a finished one.")],
    directory: Directory = HERE,
    count: Annotated[int, typer.Option(help="How many, at least 1; the round's --dishonest has to be as large.")] = 1,
    check: Annotated[bool, typer.Option(help="Look for them behind every hop.")] = False,
    as_json: Json = False,
) -> None:
    """Play clients of your own, and find out whether a hop loses or replaces submissions."""
    from deploy.operator.canaries import check_canaries, send_canaries

    if not check:
        sent = run_async(send_canaries(directory, round_id, count))
        show(as_json, {"round_id": round_id, "canaries": sent}, f"canaries in round {round_id}: {sent}")
        return
    report = run_async(check_canaries(directory, round_id))
    lines = [f"{name}: {count} of {report.sent} canaries missing" for name, count in report.missing.items()]
    show(as_json, {"canaries": report.sent, "missing": report.missing}, "\n".join(lines))
    if any(report.missing.values()):
        raise typer.Exit(NOT_ACCEPTED)
