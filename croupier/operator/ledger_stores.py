"""The stores of ledgers on this machine: the noise ledger of each hop, and the start of ledgers at zero.

A machine with a hop alone has no numeric library; only the accountant's own ledger needs them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from croupier.deploy.directory import read_deployment, store_url
from croupier.deploy.version_files import give_to_owner
from croupier.protocol.documents import document_of
from croupier.protocol.names import JsonObject
from croupier.runtime.database import DEFAULT_TIMEOUTS, open_database
from croupier.runtime.rows.rounds import RoundRows
from croupier.runtime.schema import create_tables
from croupier.runtime.service_directory import load_settings
from croupier.runtime.sqlite_log import overwrite_log
from croupier.shuffler.noise_ledger import NoiseLedger, kept_noise

_ERASE_PATIENCE_S = 1.0
"""For a service that is writing; it overwrites the log itself."""


@contextmanager
def open_store(url: str) -> Iterator[sa.Connection]:
    """Yields a connection beside that of the running service.

    If the service does not run, this connection is the last one, with which SQLite unlinks its log. After a crash the
    log may contain destroyed keys, so it is overwritten before.

    Raises:
        ValueError: the ledger does not exist.
    """
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    file = engine.url.database or ""
    is_sqlite = engine.dialect.name == "sqlite"
    if is_sqlite and not Path(file).exists():
        raise ValueError(f"{file} does not exist; run this where the accountant's directory is")
    with engine.connect() as connection:
        try:
            yield connection
        finally:
            connection.rollback()
            if is_sqlite:
                overwrite_log(connection.connection.driver_connection, Path(file), _ERASE_PATIENCE_S)


def hop_ledgers(directory: Path) -> dict[str, JsonObject]:
    """Returns the total of every hop's own ledger whose store is here, by name (`shuffler.noise_ledger`)."""
    ledgers = {}
    for hop in read_deployment(directory).shufflers:
        own = directory / hop.name
        if _has_store(own):
            settings = load_settings(own)
            with open_store(store_url(settings, own)) as connection:
                ledgers[hop.name] = document_of(kept_noise(connection, settings.noise_limit))
    return ledgers


def has_ledger(directory: Path) -> bool:
    """Returns whether the accountant's ledger is here."""
    return _has_store(directory / read_deployment(directory).accountant.name)


def _has_store(own: Path) -> bool:
    return load_settings(own).store != "sqlite" or (own / "rounds.db").exists()


def new_ledger(directory: Path, name: str) -> None:
    """Notes in the store of the accountant or a hop that its ledger begins at zero. The service must not be running.

    Raises:
        ValueError: the service has no ledger, its ledger has rounds, or it runs.
    """
    entry = read_deployment(directory).service(name)
    if entry.role == "analyzer":
        raise ValueError(f"{name} is the analyzer, which has no ledger; name the accountant or a hop")
    url = store_url(load_settings(directory / name), directory / name)
    database = open_database(url, DEFAULT_TIMEOUTS)
    try:
        with database.begin() as connection:
            create_tables(connection, sa.make_url(url).render_as_string())
            is_accountant = entry.role == "accountant"
            if is_accountant:
                from croupier.accountant.rounds.ledger import Ledger  # needs numeric libraries, which no hop has

                known = Ledger(connection).disclosed_rounds()
            else:
                known = NoiseLedger(connection).rounds()
            if known:
                raise ValueError(f"the ledger of {name} has {len(known)} rounds; only an empty one can be begun")
            RoundRows(connection).begin_ledger()
    finally:
        database.close()
        give_store_to_owner(directory / name)


def give_store_to_owner(own: Path) -> None:
    """Gives the store in a service's folder, which root may have made, to the folder's owner, who has to open it."""
    for made in own.glob("rounds.db*"):
        made.chmod(0o600)
        give_to_owner(made)
