"""New versions of the deployment file that one service has not signed, or that take long to parse."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from croupier.client.async_client import AsyncClient
from croupier.client.versions import newer_versions
from croupier.deploy.node.versions import VersionLog, VersionWatch
from croupier.deploy.version_files import signed_text, write_deployment
from croupier.operator.keys import make_deployment, signed_here
from croupier.protocol.deployment import DEPLOYMENT_FILE, Deployment, ServiceEntry, load_deployment
from croupier.protocol.toml_file import parse_toml
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.runtime.service_directory import load_secrets
from tests.support.arena import Arena, arena
from tests.support.messages import naming

pytestmark = pytest.mark.virtual_time
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


async def test_nobody_follows_a_version_that_one_service_has_not_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Deployment] = []

    async def show(*_: object) -> rpc.GetVersionsResponse:
        return rpc.GetVersionsResponse(versions=[signed_text(version).encode() for version in shown])

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


async def test_a_version_that_is_slow_to_parse_freezes_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reproduction: a key of 20,000 parts kept the event loops of services, gateways and clients busy for 13 s."""
    shown, parsing = list[bytes](), list[bool]()

    async def show(*_: object) -> rpc.GetVersionsResponse:
        return rpc.GetVersionsResponse(versions=shown)

    def parse(text: bytes, *how: Any) -> Any:
        parsing.append(threading.current_thread() is threading.main_thread())
        return parse_toml(text, *how)

    monkeypatch.setattr(VersionLog, "GetVersions", show)
    monkeypatch.setattr("croupier.client.versions.parse_toml", parse)
    async with arena(tmp_path / "d", 1) as at, at.operator.client_channel() as channel:
        for hostile, bounds in (
            ([b"x = 1\na" + b".a" * 20_000 + b" = 1\n"], ("line 2", "20,000", 32)),
            ([b"#" * 262_145], ("262,145", "262,144")),
            ([b"#" * 262_144] * 5, ("1,310,720", "1,048,576")),
        ):
            shown[:] = hostile
            with pytest.raises(ValueError, match=naming(*bounds)):
                await newer_versions(channel, at.deployment)
        file = tmp_path / DEPLOYMENT_FILE
        file.write_bytes(b"a" + b".a" * 20_000 + b" = 1\n")
        with pytest.raises(ValueError, match=naming("line 1", "20,000", 32)):
            load_deployment(file)
        file.write_bytes(b"".join(b"k%d = 1\n" % number for number in range(10_000)))
        with pytest.raises(ValueError, match="more") as wrong:
            load_deployment(file)
        assert len(str(wrong.value)) < 2000
    assert set(parsing) == {False}  # services ask each other meanwhile
