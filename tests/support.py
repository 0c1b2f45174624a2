"""What several tests need: terms of a round with real keys, and a whole deployment inside this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from deploy.node.serve import RunningService
from deploy.operator.keys import DEPLOYMENT_FILE, make_deployment
from deploy.operator.rounds import RoundSettings
from protocol.envelope import PROTOCOL_VERSION, KeyPair, generate_key_pair
from protocol.manifest import RoundTerms, canonical, parse_terms
from protocol.mechanisms import RandomizedResponse
from protocol.questions import Question
from protocol.v1 import messages_pb2 as pb
from runtime.service_directory import SETTINGS_FILE
from runtime.workers import WorkerPool

SUITE = "x25519-sha256-chacha20poly1305"
BIT = Question("bit", RandomizedResponse())
encode_report = BIT.mechanism.encode_report


@dataclass
class RoundKit:
    """A manifest together with the private keys behind it."""

    manifest: pb.Manifest
    keys: dict[str, KeyPair] = field(default_factory=dict)

    @property
    def terms(self) -> RoundTerms:
        return parse_terms(canonical(self.manifest))


def make_kit(hops: int = 2, question: Question = BIT, suite: str = SUITE, round_id: str = "round-1") -> RoundKit:
    names = [*(f"shuffler-{hop}" for hop in range(1, hops + 1)), "accountant", "analyzer"]
    keys = {name: generate_key_pair(suite) for name in [*names, "release"]}
    public = {name: pb.RoundKeys(round_id=round_id, service=name, public_key=keys[name].public) for name in names}
    public["accountant"].release_public_key = keys["release"].public
    manifest = pb.Manifest(
        protocol_version=PROTOCOL_VERSION,
        deployment="local",
        round_id=round_id,
        question=question.message(),
        budget_grid=[
            pb.LocalBudget(epsilon=epsilon, delta=question.mechanism.budget_delta) for epsilon in (0.5, 1.0, 2.0)
        ],
        min_batch_size=2,
        short_batch_policy=pb.SHORT_BATCH_POLICY_HOLD,
        delta=1e-6,
        epsilon_max=1.0,
        hpke_suite=suite,
        hops=[public[name] for name in names[:hops]],
        accountant=public["accountant"],
        analyzer=public["analyzer"],
    )
    return RoundKit(manifest, keys)


def settings(question: Question = BIT, *, min_batch_size: int = 20, epsilon_max: float = 4.0) -> RoundSettings:
    return RoundSettings(question, (0.5, 1.0, 2.0), min_batch_size=min_batch_size, epsilon_max=epsilon_max, delta=1e-4)


@dataclass
class InProcess:
    """All services of a deployment in this process, over real TLS on loopback; each can be stopped and started."""

    directory: Path
    running: dict[str, RunningService] = field(default_factory=dict)
    make_pool: Callable[[], WorkerPool] = lambda: WorkerPool(1)

    async def start(self, *names: str) -> None:
        for name in names:
            self.running[name] = RunningService(name, self.directory, pool=self.make_pool())
        await asyncio.gather(*(self.running[name].start() for name in names))

    async def stop(self, *names: str) -> None:
        await asyncio.gather(*(self.running.pop(name).stop() for name in names))


@asynccontextmanager
async def in_process(
    directory: Path,
    hops: int,
    more: str = "",
    settings_of: Callable[[str], str] = lambda _: "",
    make_pool: Callable[[], WorkerPool] = lambda: WorkerPool(1),
) -> AsyncIterator[InProcess]:
    """more: lines at the end of the deployment file; settings_of: the lines of a service's settings file."""
    deployment = make_deployment(directory, "local", hops)
    for name in deployment.chain:
        (directory / name / SETTINGS_FILE).write_text(settings_of(name), encoding="utf-8")
    with (directory / DEPLOYMENT_FILE).open("a", encoding="utf-8") as file:
        file.write(more)
    inside = InProcess(directory, make_pool=make_pool)
    await inside.start(*deployment.chain)
    try:
        yield inside
    finally:
        await inside.stop(*list(inside.running))
