"""SIGTERM: not ready, no new calls, commits finished, exit 0; what was acknowledged is there afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import grpc
import grpc.aio
import pytest

from croupier.client.submission import send
from croupier.deploy.local.processes import LocalDeployment
from croupier.deploy.node import serve
from croupier.operator.keys import free_addresses
from croupier.operator.operator import Operator
from croupier.protocol.errors import Refusal
from croupier.protocol.v1 import messages_pb2 as pb
from tests.operations.support import (
    PATIENCE_S,
    admin_health,
    deployed,
    health,
    seal,
    settings_of,
    submit,
    until,
    wait_until,
)
from tests.support import in_process, settings

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("processes")]
BATCH = 20


STARTS_AND_IS_KILLED = """
import os, signal, sys
from pathlib import Path
from croupier.deploy.local.processes import LocalDeployment
from croupier.operator.operator import Operator
LocalDeployment(Path(sys.argv[1]), 1, stays=sys.argv[2] == "stays").up(["analyzer"], 1)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.parametrize("stays", [False, True])
def test_services_end_with_the_process_that_started_them(tmp_path: Path, stays: bool) -> None:
    """Reproduction: tests and demonstrations that were killed left their services behind."""
    program = [sys.executable, "-c", STARTS_AND_IS_KILLED, str(tmp_path / "d"), "stays" if stays else "goes"]
    assert subprocess.run(program, check=False).returncode == -signal.SIGKILL
    local = LocalDeployment(tmp_path / "d")
    assert not stays or local.down() == ["analyzer"]
    wait_until(lambda: not local.pids())
    (*_, last) = (tmp_path / "d" / "analyzer" / "service.log").read_text().splitlines()
    assert json.loads(last)["event"] == "stopped"


def started_by(root: int) -> dict[int, tuple[int, str]]:
    """Returns (session, command) of every process that this one, or one of its children, has started, by its id."""
    listed: dict[int, tuple[int, int, str]] = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            _, parent, _, session, *_ = (place / "stat").read_text().rpartition(") ")[2].split()
            listed[int(place.name)] = int(parent), int(session), (place / "cmdline").read_text()
        except OSError:  # it has just ended
            continue
    processes = [root]
    for known in processes:
        processes += [process for process, (parent, *_) in listed.items() if parent == known]
    return {process: listed[process][1:] for process in processes[1:]}


@pytest.mark.slow
def test_ctrl_c_in_a_demonstration_leaves_no_process_behind(tmp_path: Path) -> None:
    """Its services, and the workers that seal for its participants, are processes of their own."""
    options = ["--users", "500", "--hops", "1", "--plot", str(tmp_path / "demo.png")]
    demo = subprocess.Popen(
        [sys.executable, "-m", "croupier.cli", "demo", *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C reaches all processes of a terminal's group
    )
    running: dict[int, tuple[int, str]] = {}

    def sealing() -> bool:
        """Whether there is a worker in the session; services have sessions of their own, and start first."""
        running.clear()
        running.update(started_by(demo.pid))
        assert demo.poll() is None
        return any(session == demo.pid and "spawn_main" in command for session, command in running.values())

    wait_until(sealing)
    assert sum("croupier.deploy.node" in command for _, command in running.values()) == 3
    os.killpg(demo.pid, signal.SIGINT)
    assert demo.wait(PATIENCE_S) == 130
    wait_until(lambda: not any(Path(f"/proc/{process}").exists() for process in running))


@pytest.mark.slow
async def test_sigterm_in_a_flood_loses_nothing_that_was_acknowledged(
    local: LocalDeployment, operator: Operator
) -> None:
    terms = await operator.open_round(settings(min_batch_size=20))
    people = await seal(operator, terms, 1000)
    names = list(people)
    batches = [names[start : start + BATCH] for start in range(0, len(names), BATCH)]
    acknowledged: set[str] = set()
    log = local.directory / "shuffler-1" / "service.log"
    under_way, serving, logged = asyncio.Event(), asyncio.Event(), log.stat().st_size

    async def flood(mine: list[list[str]]) -> None:
        for batch in mine:
            try:
                codes = await submit(operator, terms.round_id, {name: people[name] for name in batch})
            except (Refusal, grpc.aio.AioRpcError):
                return
            assert codes == {pb.SUBMISSION_CODE_ACCEPTED}
            acknowledged.update(batch)
            if len(acknowledged) >= 100:
                under_way.set()

    seen: list[str] = []

    async def watch() -> None:
        # One connection for all questions: a new one for each may take longer than the service takes to stop.
        admin = settings_of(local.directory, "shuffler-1").admin_listen or ""
        async with grpc.aio.insecure_channel(admin) as channel:
            while True:
                try:
                    seen.append(await health(channel))
                    serving.set()
                except grpc.aio.AioRpcError:
                    return

    process = local.children["shuffler-1"]
    async with asyncio.TaskGroup() as group:
        group.create_task(watch())
        await asyncio.wait_for(serving.wait(), PATIENCE_S)
        for start in range(10):
            group.create_task(flood(batches[start::10]))
        await asyncio.wait_for(under_way.wait(), PATIENCE_S)
        process.send_signal(signal.SIGTERM)
        code = await asyncio.to_thread(process.wait, PATIENCE_S)
    assert code == 0
    assert 100 <= len(acknowledged) < 1000
    assert list(dict.fromkeys(seen)) == ["SERVING", "NOT_SERVING"]

    await asyncio.to_thread(local.up, ["shuffler-1"], 1)
    rest = {name: people[name] for name in names if name not in acknowledged}
    assert await submit(operator, terms.round_id, rest) == {pb.SUBMISSION_CODE_ACCEPTED}
    await operator.close_round(terms.round_id)
    publication, _ = await operator.result(terms.round_id, PATIENCE_S)
    assert publication.num_reports == 1000
    assert b"exception" not in log.read_bytes()[logged:]


@pytest.mark.slow
async def test_what_was_acknowledged_before_sigterm_is_counted_afterwards(
    local: LocalDeployment, operator: Operator
) -> None:
    """Without anything being sent again."""
    terms = await operator.open_round(settings(min_batch_size=20))
    people = await seal(operator, terms, 100)
    assert await submit(operator, terms.round_id, people) == {pb.SUBMISSION_CODE_ACCEPTED}
    own = await asyncio.to_thread(modes, local.directory / "shuffler-1")
    assert {name for name, mode in own.items() if name.startswith("rounds.db") and mode & 0o077} == set()
    assert "rounds.db" in own
    process = local.children["shuffler-1"]
    process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(process.wait, PATIENCE_S) == 0
    await asyncio.to_thread(local.up, ["shuffler-1"], 1)
    assert (await operator.close_round(terms.round_id)).num_clients == 100
    publication, _ = await operator.result(terms.round_id, PATIENCE_S)
    assert publication.num_reports == 100


@pytest.mark.slow
async def test_what_waits_for_a_store_that_closes_is_told_to_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The admin ports were silent meanwhile: closing the store held up the whole process."""
    monkeypatch.setattr(serve, "GRACE_S", 0.1)
    (address,) = free_addresses(1)

    def settings_of(name: str) -> str:
        return f'admin_listen = "{address}"' if name == "shuffler-1" else ""

    async with in_process(tmp_path, 1, settings_of=settings_of) as inside, inside.operator() as operator:
        terms = await operator.open_round(settings())
        first, second = (
            {name: submission.SerializeToString()} for name, submission in (await seal(operator, terms, 2)).items()
        )
        async with operator.client_channel() as channel:
            assert set((await send(channel, terms.round_id, first)).values()) == {pb.SUBMISSION_CODE_ACCEPTED}
            running, held = inside.running.pop("shuffler-1"), threading.Event()
            holding = asyncio.create_task(running.store.run("hold", lambda _: held.wait(PATIENCE_S)))
            waiting = asyncio.create_task(send(channel, terms.round_id, second, patience_s=0.0))
            await until(lambda: running.service.num_waiting_submissions, 1)
            stopping = asyncio.create_task(running.stop())
            with pytest.raises(grpc.aio.AioRpcError) as told:
                await waiting
            assert told.value.code() is grpc.StatusCode.UNAVAILABLE
            assert await admin_health(tmp_path, "shuffler-1") == "NOT_SERVING"
            assert await admin_health(tmp_path, "shuffler-1", "live") == "SERVING"
            held.set()
            assert await holding
            await stopping
            await inside.start("shuffler-1")
            for request in (first, second):
                assert set((await send(channel, terms.round_id, request)).values()) == {pb.SUBMISSION_CODE_ACCEPTED}
        assert (await operator.close_round(terms.round_id)).num_clients == 2


@pytest.mark.slow
async def test_systemd_is_told_when_a_service_serves_and_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.settimeout(PATIENCE_S)
        supervisor.bind(str(tmp_path / "notify"))
        async with deployed(tmp_path, names=[]) as (local, _):
            monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
            await asyncio.to_thread(local.up, ["analyzer"], 1)
            assert supervisor.recv(100) == b"READY=1"
            await asyncio.to_thread(local.down, ["analyzer"])
            assert supervisor.recv(100) == b"STOPPING=1"


@pytest.mark.slow
async def test_sigterm_during_the_start_ends_with_exit_code_0(tmp_path: Path) -> None:
    async with deployed(tmp_path, names=[]) as (local, _):
        log = local.directory / "analyzer" / "service.log"
        process = local.spawn("analyzer", 1)
        await until(lambda: asyncio.to_thread(lambda: '"starting"' in log.read_text()))
        process.send_signal(signal.SIGTERM)
        output, _ = await asyncio.to_thread(process.communicate)
        assert (process.returncode, output) in ((0, ""), (0, '{"ready": "analyzer"}\n'))


def modes(directory: Path) -> dict[str, int]:
    return {file.name: file.stat().st_mode for file in directory.iterdir()}
