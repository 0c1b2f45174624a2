"""The accountant's ledger from outside: the spending, a backup while the service runs, a restore before it starts.

A backup holds the costs of granted rounds, and the surveys and rounds that were signed. It holds nothing else of the
accountant's database: round keys in it would outlive their round.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, replace
from pathlib import Path

import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict, ValidationError

from croupier.accountant.guarantees import Guarantee
from croupier.accountant.numerics.roots import largest_allowed
from croupier.accountant.rounds.account import PENDING, Account
from croupier.accountant.rounds.forecast import highest_cost
from croupier.accountant.rounds.ledger import Ledger
from croupier.accountant.rounds.round_entries import as_limit
from croupier.accountant.spending import BudgetsTold, Entry, Spent
from croupier.deploy.directory import read_deployment, store_url
from croupier.net.transport import TLS, Transport
from croupier.operator.ledger_stores import give_store_to_owner, open_store
from croupier.operator.operator import Operator
from croupier.protocol.manifest import parse_terms
from croupier.protocol.names import Digest, JsonObject, RoundId
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.runtime.database import DEFAULT_TIMEOUTS, open_database
from croupier.runtime.database_tables import SURVEYS
from croupier.runtime.ledger_start import missing_rounds
from croupier.runtime.rows.rounds import RoundRows
from croupier.runtime.rows.surveys import SurveyRows
from croupier.runtime.schema import create_tables
from croupier.runtime.service_directory import load_settings
from croupier.show.forecasts import ledger_json
from croupier.show.ledger import MOST_FORECAST


class _Round(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    round_id: RoundId
    batch_digest: str
    entries: tuple[JsonObject, ...]
    one_record: bool = False
    unknown: bool = False


class _Survey(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_bytes="hex", val_json_bytes="hex")
    survey_hash: bytes
    survey_id: str
    payload: bytes
    approvals: bytes


class _SurveyRound(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_bytes="hex", val_json_bytes="hex")
    survey_id: str
    wave: int
    question: int
    round_id: RoundId
    survey_hash: bytes
    was_open: bool


class _Backup(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    deployment: str
    rounds: tuple[_Round, ...]
    shown: tuple[str, ...] = ()
    budget_costs: dict[str, tuple[float, float]] = {}
    surveys: tuple[_Survey, ...] = ()
    survey_rounds: tuple[_SurveyRound, ...] = ()


def _url(directory: Path) -> tuple[str, str]:
    """Returns the deployment's name and the location of its accountant's store."""
    deployment = read_deployment(directory)
    own = directory / deployment.accountant.name
    return deployment.name, store_url(load_settings(own), own)


def backup_ledger(directory: Path, file: Path) -> int:
    """Writes the ledger to a new file and returns how many rounds are in it.

    Raises:
        ValueError: the file exists, or the ledger does not.
    """
    name, url = _url(directory)
    with open_store(url) as connection:
        ledger = Ledger(connection)
        entered = ledger.entered()  # first: rounds entered meanwhile come with the data that is read below
        of_records, unknown = ledger.record_rounds(), ledger.unknown_rounds()
        rounds = [
            {
                "round_id": round_id,
                "batch_digest": digest.hex(),
                "entries": [_values(entry) for entry in entries],
                "one_record": round_id in of_records,
                "unknown": round_id in unknown,
            }
            for round_id, digest, entries in entered
        ]
        shown = sorted(ledger.disclosed_rounds())
        budget_costs = dict(sorted(ledger.budget_costs().items()))
        has_surveys = sa.inspect(connection).has_table(SURVEYS.name)
        surveys, survey_rounds = SurveyRows(connection).signed_surveys() if has_surveys else ([], [])
    if file.exists():
        raise ValueError(f"{file} exists; a backup does not replace another")
    if not file.parent.is_dir():
        raise ValueError(f"{file.parent} is not a directory; {file.name} needs one to be written to")
    part = file.with_name(f"{file.name}.part")
    document = {
        "deployment": name,
        "rounds": rounds,
        "shown": shown,
        "budget_costs": budget_costs,
        "surveys": [_Survey(**survey).model_dump(mode="json") for survey in surveys],
        "survey_rounds": [_SurveyRound(**survey_round).model_dump(mode="json") for survey_round in survey_rounds],
    }
    part.write_text(json.dumps(document) + "\n", encoding="utf-8")
    part.replace(file)
    return len(rounds)


def restore_ledger(directory: Path, file: Path) -> int:
    """Enters the rounds of a backup that the ledger does not have, and returns how many it has then.

    The accountant must not be running. If the ledger has a round already, with another cost, nothing is changed.

    Raises:
        ValueError: the file is not a backup of this deployment, contradicts the ledger, the accountant runs, or a newer
            croupier has written its store.
    """
    name, url = _url(directory)
    try:
        backup = _Backup.model_validate_json(file.read_text(encoding="utf-8"))
        rounds = [
            (backup_round, bytes.fromhex(backup_round.batch_digest), [_entry(entry) for entry in backup_round.entries])
            for backup_round in backup.rounds
        ]
    except ValidationError as error:
        (wrong, *_) = error.errors()  # as a text it is many lines
        why = ": ".join([*map(str, wrong["loc"]), wrong["msg"]])
        raise ValueError(f"{file} cannot be read; it must be a backup of a ledger: {why}") from error
    except (ValueError, TypeError) as error:
        raise ValueError(f"{file} cannot be read; it must be a backup of a ledger: {error}") from error
    if backup.deployment != name:
        raise ValueError(f"{file} is a backup of deployment {backup.deployment!r}; it must be of {name!r}")
    database = open_database(url, DEFAULT_TIMEOUTS)
    try:
        with database.begin() as connection:
            create_tables(connection, sa.make_url(url).render_as_string())
            ledger = Ledger(connection)
            for kept, digest, entries in rounds:
                ledger.enter(
                    kept.round_id,
                    Digest(digest),
                    entries,
                    one_record=kept.one_record,
                    unknown=kept.unknown,
                )
            for round_id in backup.shown:
                ledger.disclose(RoundId(round_id))
            surveys, survey_rounds = (
                [row.model_dump() for row in rows] for rows in (backup.surveys, backup.survey_rounds)
            )
            SurveyRows(connection).restore_surveys(surveys, survey_rounds)
            RoundRows(connection).begin_ledger()
            for round_id, cost in backup.budget_costs.items():
                ledger.tell_budgets(RoundId(round_id), *cost)
            return len(ledger.entered())
    finally:
        database.close()
        give_store_to_owner(directory / read_deployment(directory).accountant.name)


async def published_without_entry(directory: Path, transport: Transport = TLS) -> list[RoundId] | None:
    """Returns the published rounds that the ledger does not have, of the analyzer's newest.

    None if the analyzer does not answer, or if no keys can be read here with which it could be asked.

    Raises:
        ValueError: the ledger does not exist.
    """
    with open_store(_url(directory)[1]) as connection:
        known = Ledger(connection).disclosed_rounds()
    try:
        asking = Operator(directory, transport, only_reads=True)
    except ValueError:
        return None
    async with asking as operator:
        *_, analyzer = await operator.status()
    return missing_rounds(analyzer, known) if isinstance(analyzer, rpc.StatusResponse) else None


def _values(entry: Entry) -> JsonObject:
    """Returns the fields that the ledger keeps of an entry; the inverse of `_entry`."""
    left_out = ("privacy_profile", "grouped", "steps", "witness")
    return {name: value for name, value in asdict(entry).items() if name not in left_out}


def _entry(values: JsonObject) -> Entry:
    profile = tuple((float(epsilon), float(delta)) for epsilon, delta in values["profile"])
    return Entry(**(values | {"profile": profile}))


def spent_in(
    directory: Path, round_ids: Collection[RoundId], delta: float, *, fixed_terms: bool = False
) -> Guarantee | None:
    """Returns the loss of a person in these rounds and in no others; see `Ledger.spent_in`."""
    with open_store(_url(directory)[1]) as connection:
        return Ledger(connection).spent_in(round_ids, delta, fixed_terms=fixed_terms)


def rounds_left(directory: Path) -> JsonObject:
    """Returns the rest of the deployment's limit in the ledger, and the number of further rounds like earlier ones.

    Rounds that are open count with their smallest batch.

    Raises:
        ValueError: the deployment has no limit, or the ledger does not exist.
    """
    deployment = read_deployment(directory)
    if deployment.privacy_limit is None:
        raise ValueError(f"deployment.toml in {directory} has no [privacy_limit], so the ledger refuses no round")
    limit = as_limit(deployment.privacy_limit)
    with open_store(_url(directory)[1]) as connection:
        ledger = Ledger(connection)
        account, entered = Account.of(ledger), ledger.entered()
        open_rounds = RoundRows(connection).rounds_in(*PENDING)
    terms = [parse_terms(row.manifest) for row in open_rounds]
    account = replace(
        account, pending=tuple(highest_cost(round_terms, round_terms.shared.min_batch_size) for round_terms in terms)
    )
    left = ledger_json(account.state(limit))
    alike: dict[str, list[Entry]] = {}
    if entered:
        last = entered[-1]
        costliest = max(entered, key=lambda row: max(entry.epsilon for entry in row[2]))
        # Further waves of a series cost nothing, so the number is of further questions like it.
        alike = {
            round_id: [replace(entry, series="") for entry in entries] for round_id, _, entries in (last, costliest)
        }
    most = MOST_FORECAST if left["remaining_rounds"] is None else min(MOST_FORECAST, left["remaining_rounds"])
    return {
        "ledger": left,
        "more_rounds": [
            {
                "like": round_id,
                "epsilon": max(entry.epsilon for entry in entries),
                "rounds": largest_allowed(lambda more: limit.allows([*account.committed, *[entries] * more]), most),  # noqa: B023
            }
            for round_id, entries in alike.items()
        ],
    }


def budgets_told(directory: Path) -> BudgetsTold:
    """Returns the information on one person's budget in all certificates; ValueError without a ledger."""
    with open_store(_url(directory)[1]) as connection:
        return Ledger(connection).budgets_told()


def spent(directory: Path, delta: float, *, fixed_terms: bool = False) -> tuple[Spent, ...]:
    """Returns the spending at a total delta, per tier and for the worst tier of every round; see `Ledger.spent`.

    Raises:
        ValueError: delta is out of range, or the ledger does not exist.
    """
    if not 0 < delta < 1:
        raise ValueError(f"delta is {delta:g}; it must be 0 < delta < 1")
    with open_store(_url(directory)[1]) as connection:
        return Ledger(connection).spent(delta, fixed_terms=fixed_terms)
