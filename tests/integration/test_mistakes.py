"""Mistakes of a new user, each on the real thing: one sentence at once, and nothing left behind."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import grpc.aio
import pytest

from croupier.deploy.directory import read_deployment
from croupier.deploy.local.processes import LocalDeployment
from croupier.deploy.version_files import write_deployment
from croupier.operator.keys import free_addresses, make_deployment
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.runtime.service_directory import SETTINGS_FILE
from tests.support import in_memory, in_process, settings, sign_again
from tests.support.command_line import as_process, croupier
from tests.support.messages import naming


@pytest.mark.virtual_time
async def test_a_round_that_is_refused_leaves_nothing_on_any_service(tmp_path: Path) -> None:
    """Reproduction: a PREPARED round stayed on every service."""
    async with in_memory(tmp_path / "d", 1) as inside, inside.operator() as operator:

        async def states() -> list[list[str]]:
            answers = [answer for answer in await operator.status() if isinstance(answer, rpc.StatusResponse)]
            return [[pb.RoundState.Name(row.state) for row in answer.rounds] for answer in answers]

        with pytest.raises(ValueError, match=naming("epsilon", "50.0")):
            await operator.open_round(replace(settings(), budget_grid=(1.0, 50.0)))
        assert await states() == [[], [], []]
        # What only a service can refuse, or whether it is there at all, shows when others have prepared already.
        theirs = inside.running["accountant"].service.peers
        theirs.deployment = theirs.deployment.model_copy(update={"name": "other"})
        with pytest.raises(Refusal, match=naming(Code.BAD_MANIFEST.message, "deployment", "'local'", "'other'")):
            await operator.open_round(settings())
        assert await states() == [["ROUND_STATE_DISPOSED"]] * 3
        await inside.stop("analyzer")
        with pytest.raises(grpc.aio.AioRpcError):
            await operator.open_round(settings())
        assert await states() == [["ROUND_STATE_DISPOSED"] * 2] * 2


async def test_a_server_with_another_certificate_is_named_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Reproduction: 33 silent seconds, and then the question whether the deployment was up."""
    async with in_process(tmp_path / "real", 1):
        make_deployment(tmp_path / "other", "local", 1)
        ours, theirs = read_deployment(tmp_path / "real"), read_deployment(tmp_path / "other")
        wrong = tuple(
            service.model_copy(update={"tls_certificate": other.tls_certificate})
            for service, other in zip(ours.services, theirs.services, strict=True)
        )
        write_deployment(tmp_path / "real", ours.model_copy(update={"services": wrong}))
        sign_again(tmp_path / "real")

        for arguments in (("submit", "--value", "1", "--epsilon", "1"), ("survey", "open", "q")):
            done = await asyncio.to_thread(croupier, *arguments, "--dir", tmp_path / "real", expect=4)
            said = " ".join(done.stderr.split())
            assert re.search(naming("127.0.0.1"), said)
            assert re.search(naming("deployment.toml"), said)
        assert "no answer yet" not in caplog.text  # nothing was tried again


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    make_deployment(tmp_path / "d", "local", 1)
    yield tmp_path / "d"
    LocalDeployment(tmp_path / "d").down()


def test_no_port_is_chosen_that_an_outgoing_connection_may_be_given() -> None:
    """Reproduction: one was, between the choice and the start of the service, which then did not start."""
    given = Path("/proc/sys/net/ipv4/ip_local_port_range")
    first = int(given.read_text().split()[0]) if given.exists() else 49152
    chosen = free_addresses(100)
    assert len(set(chosen)) == 100
    assert all(int(address.rpartition(":")[2]) < first for address in chosen)
    with pytest.raises(RuntimeError, match=naming(40000)):
        free_addresses(40_000)


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.xdist_group("processes")
def test_a_port_that_is_in_use_is_named(place: Path) -> None:
    """Reproduction: a traceback of gRPC's."""
    address = read_deployment(place).service("shuffler-1").address
    expected = pytest.raises(RuntimeError, match=naming("shuffler-1", address, "port"))
    with socket.create_server(("127.0.0.1", int(address.rpartition(":")[2]))), expected:
        LocalDeployment(place).up(["shuffler-1"])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (place / "analyzer" / SETTINGS_FILE).write_text(f'metrics_listen = "127.0.0.1:{port}"\n')
        said = " ".join(as_process("up", "--dir", place, expect=3).stderr.split())
    assert re.search(naming(f"127.0.0.1:{port}"), said)
    assert "Traceback" not in said


@pytest.mark.processes
@pytest.mark.xdist_group("processes")
@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("psycopg", "psycopg is not installed; it comes with 'croupier[postgresql]'"),
        ("grpc_health", "grpc_health is not installed; it comes with 'croupier[service]'"),
        ("scipy", "scipy is not installed; it comes with 'croupier[accountant]'"),
    ],
)
def test_a_library_that_is_missing_is_named(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str, message: str
) -> None:
    """Reproduction: `up` on the base install, and a store on PostgreSQL without its driver, ended with tracebacks."""
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "sitecustomize.py").write_text(f"import sys\nsys.modules[{missing!r}] = None\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'without'}:{':'.join(sys.path)}")
    if missing == "psycopg":
        store = json.dumps("postgresql+psycopg://nobody@127.0.0.1:1/none")
        (place / "accountant" / SETTINGS_FILE).write_text(f"store = {store}\n")
    with pytest.raises(RuntimeError, match=naming("accountant")) as refused:
        LocalDeployment(place).up(["accountant"])
    assert message in str(refused.value)
    assert "Traceback" not in str(refused.value)
