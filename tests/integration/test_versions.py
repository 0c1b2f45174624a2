"""Services and clients fetch newer versions of the deployment file, and follow those that all have signed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from croupier.client.async_client import AsyncClient
from croupier.client.versions import newer_versions
from croupier.deploy.directory import read_deployment
from croupier.deploy.node.versions import VersionWatch
from croupier.deploy.version_files import VERSIONS, install, write_deployment
from croupier.operator.keys import signed_here
from croupier.operator.rotation import activate, rotate
from croupier.protocol.deployment import DEPLOYMENT_FILE, Deployment
from croupier.runtime.service_directory import load_secrets
from tests.support import in_memory, settings
from tests.support.messages import naming

pytestmark = pytest.mark.virtual_time


async def test_a_client_with_the_oldest_file_follows_two_rotations(tmp_path: Path) -> None:
    """Before there were versions it said that a signature was wrong, until somebody brought a newer file."""
    async with in_memory(tmp_path / "d", 1) as inside:
        mine = tmp_path / "mine"
        mine.mkdir()
        shutil.copy(inside.directory / DEPLOYMENT_FILE, mine)
        for name in ("shuffler-1", "analyzer"):
            await inside.have_noticed(rotate(inside.directory, name))
            await inside.have_noticed(activate(inside.directory, name))
        async with inside.operator() as operator:
            terms = await operator.open_round(settings())
        async with AsyncClient(mine, transport=inside.transport) as client:
            # Its channel to hop 1 shows a certificate that it does not know; the accountant has the versions, too.
            assert (await client.round(terms.round_id)).id == terms.round_id
            assert client.deployment.version == 5
        assert read_deployment(mine) == read_deployment(inside.directory)


async def test_a_service_fetches_and_installs_what_all_have_signed(tmp_path: Path) -> None:
    async with in_memory(tmp_path / "d", 1) as inside:
        late = tmp_path / "late"
        late.mkdir()
        old = read_deployment(inside.directory)
        write_deployment(late, old)
        await inside.have_noticed(newest := rotate(inside.directory, "accountant"))
        replaced: list[Deployment] = []
        secrets = load_secrets(inside.directory / "analyzer")
        watch = VersionWatch(late, lambda entry: inside.transport.peer_channel(entry, secrets), replaced.append)
        accountant = newest.accountant
        assert await watch.ask(accountant, old)
        assert read_deployment(late) == newest
        assert sorted(file.name for file in (late / VERSIONS).iterdir()) == ["1.toml", "2.toml"]
        assert not await watch.ask(accountant, newest)
        # Where nothing can be written, as in a pod, the version is in force until a restart.
        shutil.rmtree(late)
        assert await watch.ask(accountant, old)
        assert replaced == [newest]


async def test_a_version_that_is_not_signed_is_not_shown(tmp_path: Path) -> None:
    async with in_memory(tmp_path / "d", 1) as inside:
        old = read_deployment(inside.directory)
        following = {"version": 2, "previous": old.fingerprint.hex(), "gateway": "https://gateway.example"}
        unsigned = old.model_copy(update={**following, "signatures": ()})
        with pytest.raises(ValueError, match=naming("shuffler-1, accountant, analyzer")):
            install(inside.directory, unsigned)
        async with inside.operator() as operator, operator.client_channel() as channel:
            assert await newer_versions(channel, old) == {}
            install(inside.directory, signed := signed_here(unsigned, [inside.directory]))
            await inside.have_noticed(signed)
            assert list((await newer_versions(channel, old)).values()) == [signed]
