"""All services but one lead people to a deployment of their own: nobody follows without the last one's signature."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import pytest

from croupier.client import versions
from croupier.client.async_client import AsyncClient
from croupier.deploy.node.versions import VersionLog, VersionWatch
from croupier.deploy.operator.keys import make_deployment, signed_here
from croupier.deploy.version_files import deployment_text, write_deployment
from croupier.protocol.deployment import DEPLOYMENT_FILE, Deployment, ServiceEntry, load_deployment
from croupier.protocol.toml_file import parse_toml
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.runtime.service_directory import load_secrets
from tests.support.arena import Arena, arena
from tests.support.messages import naming

VICTIM = "shuffler-1"


def forged(at: Arena, strangers: Path, keys: list[Path]) -> Deployment:
    """The next version, in which the honest hop is one of the attackers', signed with these keys."""
    ours, theirs = at.deployment, make_deployment(strangers, "local", 1)
    before, other = ours.service(VICTIM), theirs.service(VICTIM)
    retired = ({"identity": before.identity, "valid_until": "2026-01-01T00:00:00Z"},)
    entry = ServiceEntry.model_validate({**other.model_dump(), "retired_identities": retired})
    services = tuple(entry if service.name == VICTIM else service for service in ours.services)
    following = {"version": 2, "previous": ours.fingerprint.hex(), "signatures": ()}
    return signed_here(ours.model_copy(update={"services": services, **following}), keys, ours)


@pytest.mark.asyncio
@pytest.mark.virtual_time
async def test_versions_that_a_service_shows_stop_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Reproduction: a key of 20,000 parts in one answer stopped services, gateways and clients for 13 s."""
    shown = [f"a{'.a' * 20_000} = 1".encode(), b"never parsed"]
    threads: list[int] = []

    async def show(*_: object) -> rpc.GetVersionsResponse:
        return rpc.GetVersionsResponse(versions=shown)

    def parse(text: bytes, *arguments: Any) -> Any:
        threads.append(threading.get_ident())
        assert text != shown[1]
        return parse_toml(text, *arguments)

    monkeypatch.setattr(VersionLog, "GetVersions", show)
    monkeypatch.setattr(versions, "parse_toml", parse)
    async with arena(tmp_path / "d", 1) as at:
        secrets = load_secrets(at.inside.directory / "analyzer")
        watch = VersionWatch(tmp_path, lambda entry: at.inside.transport.peer_channel(entry, secrets), lambda _: None)
        assert not await watch.ask(at.deployment.accountant, at.deployment)
        assert threads
        assert threading.get_ident() not in threads
        assert re.search(naming("accountant", "line 1", 16), caplog.text)
        # A list ends at the first entry that is wrong: 300,000 errors would be counted in one call.
        shown[0] = b"services = [" + b"{}, " * 1000 + b"]"
        with pytest.raises(ValueError, match=naming("services.0.name")) as refused:
            await AsyncClient(at.inside.directory, transport=at.inside.transport).follow_versions()
        assert "services.1" not in str(refused.value)
        assert "more" not in str(refused.value)


@pytest.mark.asyncio
@pytest.mark.virtual_time
async def test_nobody_follows_a_version_that_one_service_has_not_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Deployment] = []

    async def show(*_: object) -> rpc.GetVersionsResponse:
        return rpc.GetVersionsResponse(versions=[deployment_text(version).encode() for version in shown])

    monkeypatch.setattr(VersionLog, "GetVersions", show)
    async with arena(tmp_path / "d", 1) as at:
        home, mine = at.inside.directory, tmp_path / "mine"
        mine.mkdir()
        write_deployment(mine, at.deployment)
        colluding = tmp_path / "colluding"
        colluding.mkdir()
        for name in ("accountant", "analyzer"):
            (colluding / name).symlink_to(home / name)
        shown[:] = [forged(at, tmp_path / "strangers", [colluding, tmp_path / "strangers"])]
        assert shown[0].not_signed_by() == []  # by those that it names
        secrets, followed = load_secrets(home / "analyzer"), list[Deployment]()
        watch = VersionWatch(mine, lambda entry: at.inside.transport.peer_channel(entry, secrets), followed.append)
        assert not await watch.ask(at.deployment.accountant, at.deployment)
        assert followed == []
        async with AsyncClient(mine, transport=at.inside.transport) as client:
            with pytest.raises(ValueError, match=naming("shuffler-1")):
                await client.follow_versions()
            assert load_deployment(mine / DEPLOYMENT_FILE) == at.deployment
            # With the signature of the victim, too, it is followed: that check alone stops it.
            shown[:] = [forged(at, tmp_path / "others", [home, tmp_path / "others"])]
            assert await client.follow_versions()
            assert load_deployment(mine / DEPLOYMENT_FILE) == shown[0]
