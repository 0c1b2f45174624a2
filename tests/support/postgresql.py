"""A PostgreSQL server for tests: a private one on a loopback port, or the one that CROUPIER_TEST_POSTGRESQL names.

The variable holds a SQLAlchemy URL of a role that may create databases, as in
postgresql+psycopg://tester:secret@localhost/postgres. Every test gets databases of its own.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from croupier.operator.keys import free_addresses

_START_S = 60.0


class Server:
    """A running server, reached as a role that may create databases."""

    def __init__(self, url: str) -> None:
        self.url = sa.make_url(url)

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """Runs one statement outside of any transaction and returns its rows, if it has any."""
        settings = self.url.translate_connect_args(username="user", database="dbname")
        with psycopg.connect(**settings, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def new_database(self, more: str = "") -> str:
        """Returns the URL of a fresh, empty database."""
        name = f"test_{secrets.token_hex(8)}"
        self.execute(f'CREATE DATABASE "{name}" {more}')
        return self.url.set(database=name).render_as_string(hide_password=False)

    def disconnect(self, url: str) -> int:
        """Ends every client's connection to a database from the server's side and returns how many there were."""
        clients = f"datname = '{sa.make_url(url).database}' AND backend_type = 'client backend'"
        return len(self.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {clients}"))


def _binaries() -> Path | None:
    """Where Debian and its kin keep them: not in the PATH."""
    for directory in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        if (directory / "initdb").exists():
            return directory
    path = shutil.which("initdb")
    return Path(path).parent if path else None


def _other_user() -> dict[str, Any]:
    """PostgreSQL refuses to run as root; its package brings a user."""
    if os.geteuid() != 0:
        return {}
    try:
        user = pwd.getpwnam("postgres")
    except KeyError:
        user = pwd.getpwnam("nobody")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


@contextmanager
def postgresql_server() -> Iterator[Server]:
    """Yields a server; skips the test, with the reason, where there is none to be had."""
    given = os.environ.get("CROUPIER_TEST_POSTGRESQL")
    if given:
        yield Server(given)
        return
    binaries = _binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL: install the package 'postgresql', or name a server in CROUPIER_TEST_POSTGRESQL")
    # Not below pytest's own directory, which only its owner may enter.
    directory = Path(tempfile.mkdtemp(prefix="croupier-postgresql-"))
    who = _other_user()
    if who:
        os.chown(directory, who["user"], who["group"])
    try:
        with _running(binaries, directory, who) as server:
            yield server
    finally:
        shutil.rmtree(directory)


@contextmanager
def _running(binaries: Path, directory: Path, who: dict[str, Any]) -> Iterator[Server]:
    password, port = secrets.token_hex(16), free_addresses(1)[0].rpartition(":")[2]
    (directory / "password").write_text(password)
    data, log = directory / "data", directory / "log"
    settings = ["-E", "UTF8", "--locale", "C.UTF-8", "-U", "tester", "-A", "scram-sha-256", "--no-sync"]
    subprocess.run(
        [binaries / "initdb", *settings, "--pwfile", directory / "password", data],
        check=True,
        stdout=subprocess.DEVNULL,
        cwd=directory,
        **who,
    )
    # When the tests are killed, their server ends with them.
    leash = ["setpriv", "--pdeathsig", "QUIT"] if shutil.which("setpriv") else []
    options = {"port": port, "listen_addresses": "127.0.0.1", "unix_socket_directories": "", "max_connections": 100}
    options |= {"fsync": "off"}  # the server itself is never killed before its tests have ended
    options |= {"autovacuum": "off"}  # it would look at the databases of all earlier tests, again and again
    arguments = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
    with log.open("w") as output:
        process = subprocess.Popen(
            [*leash, binaries / "postgres", "-D", data, *arguments], stdout=output, stderr=output, cwd=directory, **who
        )
    server = Server(f"postgresql+psycopg://tester:{password}@127.0.0.1:{port}/postgres")
    try:
        _wait_ready(server, process, log)
        yield server
    finally:
        process.send_signal(signal.SIGQUIT)  # at once; what it holds is not needed
        process.wait(30)


def _wait_ready(server: Server, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        try:
            server.execute("SELECT 1")
            return
        except psycopg.OperationalError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start:\n{log.read_text()[-2000:]}") from error
            time.sleep(0.1)
