"""Whole rounds with every service on PostgreSQL: in this process, and as processes that are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from croupier.deploy.local.processes import LocalDeployment
from croupier.protocol.names import RoundId
from croupier.runtime.service_directory import SETTINGS_FILE
from tests.support import BIT, settings
from tests.support.command_line import as_process
from tests.support.postgresql import Server
from tests.support.rounds import QUESTIONS, people, table

pytestmark = pytest.mark.virtual_time


def store_of(server: Server) -> str:
    return f'store = "{server.new_database()}"\n'


@pytest.mark.slow
async def test_a_round_is_answered_and_no_file_holds_it(tmp_path: Path, postgresql: Server) -> None:
    """The question with the shortest reports, and the one with the longest; test_rounds has every kind."""
    urls: dict[str, str] = {}

    def settings_of(name: str) -> str:
        urls[name] = store_of(postgresql)
        return urls[name]

    async with table(tmp_path, 2, settings_of=settings_of) as at:
        for question in (QUESTIONS[0], QUESTIONS[-1]):
            terms = await at.operator.open_round(settings(question))
            assert (await at.submit(terms, people(question, 30, seed=1))).accepted == 30
            publication, certificate = await at.finish(terms)
            assert (publication.num_reports, certificate.num_users, certificate.granted) == (30, 30, True)
            for name in at.deployment.chain:
                assert await at.inside.running[name].service.store.run("look", lambda tx: tx.keys(terms.round_id)) == {}  # noqa: B023
    assert not list((tmp_path / "deployment").glob("*/rounds.db*"))
    assert sorted(urls) == ["accountant", "analyzer", "shuffler-1", "shuffler-2"]


@pytest.mark.slow
async def test_every_service_restarts_and_loses_its_connection_within_rounds(
    tmp_path: Path, postgresql: Server
) -> None:
    """Two in each round; with SQLite the schedules of tests/faults do it."""
    urls: dict[str, str] = {}

    def settings_of(name: str) -> str:
        urls[name] = postgresql.new_database()
        return f'store = "{urls[name]}"\n'

    async with table(tmp_path, 2, settings_of=settings_of) as at:
        first, second, *others = at.deployment.chain
        for names in ((first, second), others):
            terms = await at.operator.open_round(settings(), RoundId(f"restart-{names[0]}"))
            assert (await at.submit(terms, people(BIT, 30, seed=1))).accepted == 30
            await at.inside.restart(*names)
            for url in urls.values():
                assert postgresql.disconnect(url)  # one, and perhaps one that was closed and whose process still ends
            await at.operator.close_round(terms.round_id)
            for url in urls.values():
                postgresql.disconnect(url)
            publication, certificate = await at.operator.result(terms.round_id, 60.0)
            assert (publication.num_reports, certificate.num_users) == (30, 30)


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.xdist_group("processes")
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_second_process_of_a_service_is_refused_and_the_first_goes_on(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    local = LocalDeployment(tmp_path / "deployment")
    if kind == "postgresql":
        settings_file = local.directory / "analyzer" / SETTINGS_FILE
        settings_file.write_text(store_of(request.getfixturevalue("postgresql")))
    local.up(["analyzer"], workers=1)
    done = as_process("serve", "analyzer", "--dir", local.directory, expect=2)
    assert "in use by another process" in done.stderr.replace("\n", " ")
    assert list(local.pids()) == ["analyzer"]
    assert local.down(kill=True) == ["analyzer"]
    assert list(local.up(["analyzer"], workers=1)) == ["analyzer"]
    local.down()
