"""What a gateway serves to participants, with which headers, and the links by which they are invited."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from starlette.types import ASGIApp

from croupier.deploy.directory import read_deployment
from croupier.deploy.gateway.app import make_app
from croupier.deploy.page import participants
from croupier.deploy.page.participants import page_hash, versions_document
from croupier.deploy.version_files import VERSIONS
from croupier.net.transport import TLS
from croupier.operator.keys import make_deployment
from croupier.operator.rotation import activate, rotate
from croupier.protocol.deployment import DEPLOYMENT_FILE
from croupier.protocol.identity import Kind, document_hash
from tests.support.command_line import answer
from tests.support.gateways import Tampering, ask, get
from tests.support.messages import naming
from tests.support.rounds import Table, table


@asynccontextmanager
async def served(tmp_path: Path, *origins: str) -> AsyncIterator[tuple[Table, Tampering, ASGIApp]]:
    async with table(tmp_path, 1) as at:
        gateway = Tampering(at.inside.transport)
        yield at, gateway, make_app(at.inside.directory, gateway.transport, origins)


async def test_the_page_and_the_keys_are_served_with_strict_headers(tmp_path: Path) -> None:
    async with served(tmp_path) as (at, gateway, app):
        page = await get(app, "/participate/")
        policy = page.headers["content-security-policy"]
        (script,) = re.findall(rb'<script type="module">(.*?)</script>', page.body, re.DOTALL)
        allowed = base64.b64encode(hashlib.sha256(script).digest()).decode()
        assert f"script-src 'sha256-{allowed}';" in policy
        for rule in ("default-src 'none'", "connect-src 'self'", "form-action 'none'", "frame-ancestors 'none'"):
            assert rule in policy
        assert "unsafe" not in policy
        assert page.headers["content-type"].startswith("text/html")
        assert page.headers["referrer-policy"] == "no-referrer"
        assert page.headers["x-content-type-options"] == "nosniff"
        file = await get(app, "/participate/participate.html")
        assert hashlib.sha256(file.body).hexdigest() == hashlib.sha256(page.body).hexdigest() == page_hash()
        assert file.headers["content-disposition"].startswith("attachment")
        document = await get(app, "/participate/deployment.json")
        read = json.loads(document.body)
        assert document_hash(Kind.DEPLOYMENT, read["statement"].encode()) == at.deployment.fingerprint
        assert {signature["signer"] for signature in read["signatures"]} == set(at.deployment.chain)
        assert (await get(app, "/participate", "GET")).headers["location"] == "/participate/"
        for path in ("/participate/..", "/participate/other", "/participate//"):
            assert (await get(app, path)).status == 404
        assert (await get(app, "/participate/", "POST")).status in (404, 405, 415)
        assert gateway.seen == []  # no service is asked


async def test_a_page_from_a_file_may_call_only_if_that_is_allowed(tmp_path: Path) -> None:
    async with served(tmp_path, "null") as (_, _, app):
        answered = await get(app, "/participate/deployment.json", origin="null")
        assert answered.headers["access-control-allow-origin"] == "null"
        other = await get(app, "/participate/deployment.json", origin="https://elsewhere.example")
        assert "access-control-allow-origin" not in other.headers
    with pytest.raises(ValueError, match=naming("'file:'", "https://survey.example")):
        make_app(tmp_path / "deployment", TLS, ["file:"])


async def test_as_many_versions_are_served_as_the_page_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = make_deployment(tmp_path / "d", "clinic", 1)
    versions = [first.model_copy(update={"version": number}) for number in range(1, 11)]
    whole = versions_document(versions)
    assert [json.loads(signed["statement"]).get("version", 1) for signed in json.loads(whole)["versions"]] == [
        *range(1, 11)
    ]
    monkeypatch.setattr(participants, "MOST_BYTES", len(whole) // 2)
    cut = versions_document(versions)
    assert len(whole) // 4 < len(cut) <= len(whole) // 2
    assert json.loads(cut)["versions"] == json.loads(whole)["versions"][-len(json.loads(cut)["versions"]) :]


async def shown_versions(app: ASGIApp) -> list[bytes]:
    """What the services have signed of each version that a gateway shows, oldest first."""
    read = json.loads((await get(app, "/participate/versions.json")).body)
    return [version["statement"].encode() for version in read["versions"]]


@pytest.mark.virtual_time
@pytest.mark.parametrize("writable", [True, False])
async def test_the_gateway_follows_a_rotation(tmp_path: Path, writable: bool) -> None:
    """It pins another certificate of hop 1 than the one that is shown after a rotation: no call would pass."""
    async with table(tmp_path, 1) as at:
        home, own = at.inside.directory, tmp_path / "gateway"
        own.mkdir()
        shutil.copy(home / DEPLOYMENT_FILE, own)
        if not writable:
            (own / VERSIONS).touch()  # versions cannot be kept there, as in a pod
        versions = [at.deployment]
        gateways = [make_app(own, at.inside.transport) for _ in range(2)]
        async with gateways[0].router.lifespan_context(gateways[0]):
            for step in (rotate, activate):
                versions.append(step(home, "shuffler-1"))
                for _ in range(200):
                    if len(await shown_versions(gateways[0])) == len(versions):
                        break
                    await asyncio.sleep(1)
            answers = [await ask(app, "/croupier.protocol.v1.Shuffler/GetRound") for app in gateways]
            assert [json.loads(answer.body)["message"].partition(":")[0] for answer in answers] == [
                "NO_OPEN_ROUND",
                "NOT_READY",
            ]
            assert await shown_versions(gateways[0]) == [version.statement for version in versions]
        assert (read_deployment(own) == versions[-1]) == writable


async def test_the_page_is_kept_and_its_hash_printed(tmp_path: Path) -> None:
    make_deployment(tmp_path / "d", "clinic", 1)
    said = answer("participant-page", tmp_path / "page.html", "--dir", tmp_path / "d")
    assert hashlib.sha256((tmp_path / "page.html").read_bytes()).hexdigest() == said["page_sha256"]
    assert said["deployment_fingerprint"] == read_deployment(tmp_path / "d").fingerprint.hex()
    assert said["signed_by_all"]
