"""The noise ledgers of the hops whose stores are on this machine; needs no numeric library, as a hop has none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from croupier.deploy.directory import read_deployment, store_url
from croupier.runtime.service_directory import load_settings
from croupier.runtime.sqlite_log import overwrite_log
from croupier.show.documents import noise_json
from croupier.show.views.rounds import NoiseSpentView
from croupier.shuffler.noise_ledger import kept_noise

__all__ = ["has_ledger", "hop_ledgers", "open_store"]

_ERASE_PATIENCE_S = 1.0
"""For a service that is writing; it overwrites the log itself."""


@contextmanager
def open_store(url: str) -> Iterator[sa.Connection]:
    """Yields a connection beside that of the running service.

    Where the service does not run, this connection is the last one, with which SQLite unlinks its log. After a crash
    destroyed keys are in there, so the log is overwritten before.

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


def hop_ledgers(directory: Path) -> dict[str, NoiseSpentView]:
    """Returns what the own ledger of every hop comes to whose store is here, by name (`shuffler.noise_ledger`)."""
    ledgers = {}
    for hop in read_deployment(directory).shufflers:
        own = directory / hop.name
        if _has_store(own):
            settings = load_settings(own)
            with open_store(store_url(settings, own)) as connection:
                ledgers[hop.name] = noise_json(kept_noise(connection, settings.noise_limit))
    return ledgers


def has_ledger(directory: Path) -> bool:
    """Returns whether the accountant's ledger is here."""
    return _has_store(directory / read_deployment(directory).accountant.name)


def _has_store(own: Path) -> bool:
    return load_settings(own).store != "sqlite" or (own / "rounds.db").exists()
