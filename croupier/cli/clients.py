"""Commands of clients, and of those that play them: submit, limits, verify, canary."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated

from cyclopts import ArgumentCollection, Group, Parameter

from croupier.cli.console import (
    HERE,
    NOT_ACCEPTED,
    Argument,
    BudgetGroups,
    Directory,
    Gateway,
    Json,
    fail,
    note,
    note_left_out,
    progress_bar,
    progress_of,
    show,
    text_of,
)
from croupier.client.key_file import read_private_key
from croupier.client.limits import Limits, SpentHere, in_full, local_budget
from croupier.client.one_answer import ALREADY_ANSWERED, AnswerOutcome, Respondent
from croupier.deploy.directory import read_deployment
from croupier.deploy.local.budget_groups import GSPA_BUDGETS, parse_budget_groups
from croupier.deploy.local.clients import client_of, verify_directory
from croupier.deploy.local.fleet import submit_file
from croupier.deploy.local.population import PopulationFile, Rows
from croupier.deploy.local.sheets import open_table
from croupier.operator.canaries import check_canaries, send_canaries
from croupier.operator.roster import enrolling
from croupier.protocol.errors import Code, OtherPersonError
from croupier.protocol.names import NO_KEY, RoundId
from croupier.show.promises import Promises
from croupier.show.text import counted


def _check_together(arguments: ArgumentCollection) -> None:
    """Raises ValueError where an option was typed that another would have ignored."""
    typed = [argument.name for argument in arguments if any(token.source == "cli" for token in argument.tokens)]
    is_fleet = "--csv" in typed
    for field in fields(OneUser if is_fleet else FleetFile):
        option = f"--{field.name.replace('_', '-')}"
        if option in typed:
            whose = "one user, and --csv a fleet; give one of them" if is_fleet else "a fleet, which needs --csv"
            raise ValueError(f"{option} is for {whose}")
    for first, other in (("--value", "--value-file"), ("--budgets", "--epsilon-column")):
        if first in typed and other in typed:
            raise ValueError(f"{first} and {other} are both given; at most one of them can be")


_TOGETHER = Group("one user or a fleet", show=False, validator=_check_together)


@Parameter(name="*", group=("One user", _TOGETHER))
@dataclass(frozen=True)
class OneUser:
    """Options of 'submit' for one user."""

    value: Annotated[
        str | None,
        Parameter(
            env_var="CROUPIER_VALUE",
            help="One user's value: 0 or 1, a category, or a number. Other users of the machine can read a command "
            "line, and not its environment or --value-file.",
        ),
    ] = None
    value_file: Annotated[
        Path | None, Parameter(help="Read one user's value from this file; - for standard input.")
    ] = None
    epsilon: Annotated[
        float | None,
        Parameter(
            env_var="CROUPIER_EPSILON",
            help="One user's max_local_epsilon: the most to spend; the largest budget of the round up to it is used. "
            "See --value.",
        ),
    ] = None
    key: Annotated[Path | None, Parameter(help="One user's key, from 'keygen --client'; a new one if not given.")] = (
        None
    )
    another_person: Annotated[
        bool, Parameter(help="Not the person who has answered here in this round under another key.")
    ] = False
    enrol: Annotated[
        bool, Parameter(negative="--no-enrol", help="Also register the key, with the operator's certificate.")
    ] = False
    gateway: Gateway = ""


@Parameter(name="*", group=("A file of people", _TOGETHER))
@dataclass(frozen=True)
class FleetFile:
    """Options of 'submit' for a fleet."""

    csv: Annotated[Path | None, Parameter(help="A fleet: one user a row, all registered first.")] = None
    value_column: Annotated[str | None, Parameter(help="Fleet: the column of values.")] = None
    epsilon_column: Annotated[str | None, Parameter(help="Fleet: the column of each user's max_local_epsilon.")] = None
    id_column: Annotated[
        str | None,
        Parameter(help="Fleet: the column that names each row's person; else each row of each file is a person."),
    ] = None
    clamp: Annotated[bool, Parameter(help="Fleet: numbers outside the round's interval count as its nearer end.")] = (
        False
    )
    budgets: BudgetGroups = GSPA_BUDGETS
    limit: Annotated[int | None, Parameter(help="Fleet: how many rows to use, from the first; all if not given.")] = (
        None
    )
    where: Annotated[str | None, Parameter(help="Fleet: COLUMN=VALUE, only the rows that have this value there.")] = (
        None
    )


def submit(
    *,
    directory: Directory = HERE,
    round_id: Annotated[str, Parameter("--round", help="The round; the newest open one if not given.")] = "",
    user: OneUser = OneUser(),
    fleet: FleetFile = FleetFile(),
    as_json: Json = False,
) -> None:
    if fleet.csv is None:
        _submit_one(directory, round_id, user, as_json)
    else:
        _submit_fleet(directory, round_id, fleet, as_json)


def _submit_one(directory: Path, round_id: str, user: OneUser, as_json: bool) -> None:
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
    value = text_of(user.value_file) if user.value_file else user.value
    missing = [name for name, given in (("--value-file", value), ("--epsilon", user.epsilon)) if given is None]
    if value is None or user.epsilon is None:
        are = "is" if len(missing) == 1 else "are"
        raise ValueError(f"{' and '.join(missing)} {are} missing; one user needs a value and --epsilon, a fleet --csv")
    respondent = Respondent(
        key=read_private_key(user.key) if user.key else NO_KEY, new_key=True, another_person=user.another_person
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
        raise SystemExit(NOT_ACCEPTED)


def limits(
    *,
    directory: Directory = HERE,
    lifetime_epsilon: Annotated[
        float | None, Parameter(help="The most that the local epsilons of all rounds may add up to.")
    ] = None,
    lifetime_delta: Annotated[
        float | None, Parameter(help="The most that the local deltas of all rounds may add up to; 1e-5 if never set.")
    ] = None,
    max_rounds: Annotated[int | None, Parameter(help="The most rounds to answer.")] = None,
    max_local_epsilon: Annotated[
        float | None, Parameter(help="The most local epsilon for one round; default: none, with hop noise 8.")
    ] = None,
    max_local_delta: Annotated[
        float | None, Parameter(help="The most local delta for one round, 0 to 1e-3; 1e-5 if never set.")
    ] = None,
    epsilon_max: Annotated[float | None, Parameter(help="Answer no round whose --epsilon-max is larger.")] = None,
    min_batch_size: Annotated[int | None, Parameter(help="Answer no round whose --min-batch-size is smaller.")] = None,
    as_json: Json = False,
) -> None:
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
    round_id: Annotated[str, Argument(help="A closed round.")],
    /,
    *,
    directory: Directory = HERE,
    gateway: Gateway = "",
    as_json: Json = False,
) -> None:
    async def look() -> tuple[int, dict[str, list[str]]]:
        async with client_of(directory, gateway) as client:
            return await verify_directory(client, directory, RoundId(round_id))

    submitted, missing = asyncio.run(look())
    lines = [f"{name}: {len(users):,} of {submitted:,} missing" for name, users in missing.items()]
    show(as_json, {"submitted": submitted, "missing": missing}, "\n".join(lines))
    if any(missing.values()):
        raise SystemExit(NOT_ACCEPTED)


def canary(
    round_id: Annotated[str, Argument(help="An open round, or with --check a finished one.")],
    /,
    *,
    directory: Directory = HERE,
    count: Annotated[int, Parameter(help="How many, at least 1; the round's --dishonest must be as large.")] = 1,
    over: Annotated[
        float, Parameter(help="Seconds within which they come, each at a random time; clients come over some time.")
    ] = 60.0,
    check: Annotated[bool, Parameter(negative="--no-check", help="Look for them behind every hop.")] = False,
    as_json: Json = False,
) -> None:
    if not check:
        sent = asyncio.run(send_canaries(directory, RoundId(round_id), count, over_s=over))
        show(as_json, {"round_id": round_id, "canaries": sent}, f"canaries in round {round_id}: {sent:,}")
        return
    report = asyncio.run(check_canaries(directory, RoundId(round_id)))
    lines = [f"{name}: {count:,} of {report.sent:,} canaries missing" for name, count in report.missing.items()]
    show(as_json, {"canaries": report.sent, "missing": report.missing}, "\n".join(lines))
    if any(report.missing.values()):
        raise SystemExit(NOT_ACCEPTED)
