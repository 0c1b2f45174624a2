"""A ledger that is lost does not begin at zero in silence: of the accountant, and of a hop with a noise limit."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from croupier.accountant.service.service import AccountantService
from croupier.operator.ledger import backup_ledger, published_without_entry, restore_ledger
from croupier.operator.ledger_stores import new_ledger
from croupier.protocol.errors import Code
from croupier.protocol.names import RoundId
from tests.support import BIT, settings
from tests.support.messages import naming, refuses
from tests.support.rounds import Table, people, table

pytestmark = pytest.mark.virtual_time
NOISE_LIMIT = "[noise_limit]\nepsilon = 100\ndelta = 1e-2\n"


async def play(at: Table, name: str) -> None:
    terms = await at.operator.open_round(settings(), RoundId(name))
    await at.submit(terms, people(BIT, 60, seed=1))
    _, certificate = await at.finish(terms)
    assert certificate.granted


async def lose_store(at: Table, name: str) -> None:
    await at.inside.stop(name)
    for file in (at.inside.directory / name).glob("rounds.db*"):
        file.unlink()


async def starts(at: Table, name: str) -> None:
    """Starts a service; stops what has started of it where it refuses to start."""
    try:
        await at.inside.start(name)
    except ValueError:
        await at.inside.stop(name)
        raise


@pytest.mark.parametrize("name", ["accountant", "shuffler-1"])
async def test_a_lost_ledger_does_not_begin_at_zero(tmp_path: Path, name: str) -> None:
    """Reproduction: the accountant was ready with 0 rounds, while the analyzer showed certified results."""
    async with table(tmp_path, 1, settings_of=lambda hop: NOISE_LIMIT if hop == "shuffler-1" else "") as at:
        await at.inside.restart(name)  # nothing is certified yet
        await play(at, "first")
        await at.inside.restart(name)  # with its store
        await lose_store(at, name)
        with pytest.raises(ValueError, match=naming(name, "analyzer", "first", "--new-ledger", name)):
            await starts(at, name)
        await asyncio.to_thread(new_ledger, at.inside.directory, name)
        await at.inside.start(name)
        await at.inside.restart(name)
        await play(at, "second")


async def test_a_lost_ledger_of_a_later_version_does_not_begin_at_zero(tmp_path: Path) -> None:
    """A deployment that has changed may have had rounds, even if the analyzer does not answer or has lost them, too."""
    async with table(tmp_path, 1) as at:
        await lose_store(at, "accountant")
        await at.inside.stop("analyzer")
        await at.inside.start("accountant")
        service = at.inside.running["accountant"].service
        assert isinstance(service, AccountantService)
        service.peers.deployment = at.deployment.model_copy(update={"version": 2})
        with pytest.raises(ValueError, match=naming("accountant", "version 2", "--new-ledger")):
            await service.ledger_start.check_at_start()
        service.peers.deployment = at.deployment
        await at.inside.start("analyzer")


async def test_without_the_analyzers_word_nothing_is_signed(tmp_path: Path) -> None:
    async with table(tmp_path, 1) as at:
        await play(at, "first")
        await lose_store(at, "accountant")
        await at.inside.stop("analyzer")
        await at.inside.start("accountant")
        await at.inside.start("analyzer")
        with refuses(Code.BAD_MANIFEST, naming("accountant", "first", "--new-ledger")):
            await at.operator.open_round(settings(), RoundId("second"))


async def test_what_a_restored_ledger_lacks_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with table(tmp_path, 1) as at:
        directory, backup = at.inside.directory, tmp_path / "ledger.json"
        await play(at, "first")
        assert await asyncio.to_thread(backup_ledger, directory, backup) == 1
        assert await published_without_entry(directory, at.inside.transport) == []
        await play(at, "second")
        await lose_store(at, "accountant")
        assert await asyncio.to_thread(restore_ledger, directory, backup) == 1
        assert await published_without_entry(directory, at.inside.transport) == ["second"]
        with caplog.at_level(logging.ERROR):
            await at.inside.start("accountant")
        (record,) = [record for record in caplog.records if "published rounds" in record.getMessage()]
        assert "second" in record.getMessage()
        await at.inside.stop("analyzer")
        assert await published_without_entry(directory, at.inside.transport) is None


async def test_only_an_empty_ledger_is_declared_new(tmp_path: Path) -> None:
    async with table(tmp_path, 1) as at:
        await play(at, "first")
        await at.inside.stop("accountant")
        with pytest.raises(ValueError, match=naming("accountant", 1, "rounds")):
            await asyncio.to_thread(new_ledger, at.inside.directory, "accountant")
        with pytest.raises(ValueError, match="no ledger"):
            new_ledger(at.inside.directory, "analyzer")
        await at.inside.start("accountant")
