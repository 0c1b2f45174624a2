"""What the tests of operations share: admin ports of real processes, a disk that is full, a search for secrets."""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import os
import resource
import sys
import time
import urllib.request
import venv
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families

from croupier.client.submission import Participant, send
from croupier.deploy.local.processes import LocalDeployment
from croupier.net.channels import public_channel
from croupier.operator.operator import Operator
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import RoundId
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.service_directory import ServiceSettings, load_settings
from tests.support.clients import seal_all_of, submissions_of

PIECE = 12
PATIENCE_S = 60.0


def bare_environment(home: Path) -> Path:
    """Makes a Python environment with the libraries of this one, and returns its site-packages: nothing is ours."""
    venv.create(home, with_pip=False)
    (site,) = home.glob("lib/python*/site-packages")
    (site / "libraries.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    return site


def elsewhere(**more: str) -> dict[str, str]:
    """The environment variables without this repository on Python's path."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | more


async def until(look: Callable[[], object], expected: object = True) -> None:
    """Looks again and again, until what is seen is what is expected."""
    deadline = time.monotonic() + PATIENCE_S
    while (await seen if inspect.isawaitable(seen := look()) else seen) != expected:
        assert time.monotonic() < deadline, "it never came true"
        await asyncio.sleep(0.1)


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)


@asynccontextmanager
async def deployed(
    directory: Path, hops: int = 1, names: Sequence[str] | None = None
) -> AsyncIterator[tuple[LocalDeployment, Operator]]:
    """A deployment of processes. names: of the services that are started; all if not given."""
    local = LocalDeployment(directory / "deployment", hops)
    try:
        if names is None:
            await asyncio.to_thread(local.up, None, 1)
        for name in names or ():
            await asyncio.to_thread(local.up, [name], 1)
        async with Operator(local.directory) as operator:
            yield local, operator
    finally:
        await asyncio.to_thread(local.down)


async def seal(operator: Operator, terms: RoundTerms, count: int) -> dict[str, pb.Submission]:
    """Returns the submissions of people who are enrolled."""
    users = [Participant(number % 2, 1.0) for number in range(count)]
    submissions = submissions_of(await seal_all_of(operator, terms, users))
    return {str(number): submission for number, submission in enumerate(submissions)}


async def submit(operator: Operator, round_id: str, submissions: dict[str, pb.Submission]) -> set[int]:
    raw = {name: submission.SerializeToString() for name, submission in submissions.items()}
    async with public_channel(operator.deployment.shufflers[0]) as channel:
        return set((await send(channel, RoundId(round_id), raw, patience_s=0)).values())


def settings_of(directory: Path, service: str) -> ServiceSettings:
    return load_settings(directory / service)


def scrape_text(directory: Path, service: str) -> str:
    address = settings_of(directory, service).metrics_listen
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
        return text


def scrape(directory: Path, service: str) -> dict[tuple[str, ...], float]:
    """Returns the samples: name and label values (in the order of the labels' names) → value."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(scrape_text(directory, service))
        for sample in family.samples
    }


def scrape_all(operator: Operator, directory: Path) -> list[dict[tuple[str, ...], float]]:
    """Returns the samples of every service, in the order of the chain."""
    return [scrape(directory, name) for name in operator.deployment.chain]


def grown(now: dict[tuple[str, ...], float], before: dict[tuple[str, ...], float]) -> dict[tuple[str, ...], float]:
    """Returns by how much samples of one service have grown: other tests have counted before."""
    return {key: value - before.get(key, 0.0) for key, value in now.items()}


async def health(channel: grpc.aio.Channel, service: str = "") -> str:
    stub: Any = health_pb2_grpc.HealthStub(channel)
    answer = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=10)
    return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)


async def admin_health(directory: Path, service: str, asked: str = "") -> str:
    """Asks at the admin port."""
    async with grpc.aio.insecure_channel(settings_of(directory, service).admin_listen or "") as channel:
        return await health(channel, asked)


@contextmanager
def full_disk(pid: int, num_bytes: int = 64 * 1024) -> Iterator[None]:
    """No file of the process can grow beyond `num_bytes` bytes."""
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


async def status_of(operator: Operator, service: str, round_id: str) -> pb.RoundStatus:
    answers = await operator.status(RoundId(round_id))
    answer = answers[operator.deployment.chain.index(service)]
    if isinstance(answer, grpc.aio.AioRpcError):
        raise answer
    return answer.rounds[0]


def spellings(secret: bytes) -> set[bytes]:
    """Returns how pieces of a secret look in a text: raw, hexadecimal, base64 at each alignment, as Python prints."""
    forms: set[bytes] = set()
    for start in {0, max(0, len(secret) // 2 - PIECE // 2), max(0, len(secret) - PIECE)}:
        piece = secret[start : start + PIECE]
        printed = repr(piece)[2:-1]
        forms |= {piece, piece.hex().encode(), piece.hex().upper().encode(), printed.encode()}
        forms.add(json.dumps(printed)[1:-1].encode())
        forms.add(json.dumps(piece.decode("latin-1"))[1:-1].encode())
        for shift in range(3):
            # Characters that depend on what stands before and after the piece are left out.
            for encode in (base64.b64encode, base64.urlsafe_b64encode):
                whole = encode(bytes(shift) + piece)
                forms.add(whole[-(-8 * shift // 6) : (shift + PIECE) * 8 // 6])
    return forms


def leaks(text: bytes, secrets: Iterable[bytes]) -> list[bytes]:
    """Returns the spellings of secrets that stand in a text."""
    return [spelling for secret in secrets for spelling in spellings(secret) if spelling in text]
