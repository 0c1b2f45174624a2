"""`croupier bench`: throughput of a whole deployment against the number of users, and against the cryptography itself.

The floor is measured in the same run: the same number of HPKE seals and opens as the users' envelopes need, straight
through the library on as many processes as there are cores, with nothing around them.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric import x25519

from client.fleet import run_fleet
from client.outbox import Outbox
from client.submission import Participant
from deploy.local.fleet import fleet_json
from deploy.local.rounds import RoundOutcome, play_round
from deploy.operator.rounds import Operator, RoundSettings
from protocol.envelope import overhead
from protocol.manifest import RoundTerms
from protocol.mechanisms import RandomizedResponse
from protocol.onion import BUDGET_BYTES
from protocol.questions import Question
from runtime.transport import public_channel
from runtime.workers import WorkerPool, peak_memory_bytes

__all__ = ["bench"]

_SUITE = "x25519-sha256-chacha20poly1305"
_PART = 250
_WISHES = (0.5, 1.0, 2.0)


def _plain_sizes(hops: int) -> list[int]:
    """Returns the plaintext size of every layer of one user's onion."""
    extra = overhead(_SUITE)
    report = [RandomizedResponse().report_bytes + layer * extra for layer in range(hops + 1)]
    parameter = [BUDGET_BYTES + layer * extra for layer in range(hops)]
    return [*report, *parameter, report[-1] + parameter[-1] + 2 * extra]


def _seal_and_open(users: int, sizes: Sequence[int]) -> None:
    suite = hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.CHACHA20_POLY1305)
    key = x25519.X25519PrivateKey.generate()
    public, info = key.public_key(), bytes(100)
    for size in sizes:
        plaintext = bytes(size)
        for ciphertext in [suite.encrypt(plaintext, public, info=info) for _ in range(users)]:
            suite.decrypt(ciphertext, key, info=info)


async def _floor_s(pool: WorkerPool, users: int, hops: int) -> float:
    """Returns the wall seconds that the bare cryptography of `users` users takes on all cores."""
    part = min(_PART, -(-users // pool.processes))
    parts = [min(part, users - start) for start in range(0, users, part)]
    started = time.perf_counter()
    await pool.map_chunks(_each(_plain_sizes(hops)), parts, chunk=1)
    return time.perf_counter() - started


class _each:  # noqa: N801 (a picklable function)
    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes

    def __call__(self, parts: list[int]) -> list[None]:
        for users in parts:
            _seal_and_open(users, self._sizes)
        return [None] * len(parts)


def _row(users: int, outcome: RoundOutcome, floor_s: float) -> dict[str, Any]:
    peaks = {service["service"]: service["peak_memory_bytes"] for service in outcome.services}
    return {
        "users": users,
        "wall_s": outcome.wall_s,
        "users_per_s": users / outcome.wall_s,
        "floor_s": floor_s,
        "ratio_to_floor": floor_s / outcome.wall_s,
        "stages": {stage: {"wall_s": wall, "cpu_s": cpu} for stage, wall, cpu in outcome.stages()},
        "wire_bytes_per_user": outcome.wire_bytes() / users,
        "peak_memory_bytes": {**peaks, "fleet": peak_memory_bytes()},
        "epsilon": outcome.certificate.epsilon,
        "grade": outcome.certificate.grade,
    }


async def bench(directory: Path, sizes: Sequence[int], report: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Plays one binary round for each number of users on a running deployment and returns all measurements.

    Args:
        report: called with each row as soon as it is measured.
    """
    pool = WorkerPool()
    rows = []
    async with Operator(directory) as operator:
        hops = len(operator.deployment.shufflers)
        channel = public_channel(operator.deployment.shufflers[0])
        outbox = Outbox(directory / "fleet" / "outbox.db")
        await pool.warm()
        for users in sizes:
            values = random.choices((0, 1), k=users)  # noqa: S311 (synthetic people)
            wishes = random.choices(_WISHES, (54, 37, 9), k=users)  # noqa: S311
            people = {str(i): Participant(v, w) for i, (v, w) in enumerate(zip(values, wishes, strict=True))}

            async def fleet(terms: RoundTerms, people: dict[str, Participant] = people) -> dict[str, Any]:
                done = await run_fleet(channel, terms, people, outbox=outbox, pool=pool, enrol=operator.enrol)
                return fleet_json(done)

            floor_s = await _floor_s(pool, users, hops)
            settings = RoundSettings(
                Question("bench", RandomizedResponse()), _WISHES, epsilon_max=2.0, min_batch_size=2
            )
            outcome = await play_round(operator, settings, fleet)
            if outcome.fleet["accepted"] != users or outcome.publication.num_reports != users:
                raise RuntimeError(f"{users} users, {outcome.fleet['accepted']} accepted: this measures something else")
            rows.append(_row(users, outcome, floor_s))
            report(rows[-1])
        await channel.close()
    outbox.close()
    pool.close()
    return {"hops": hops, "cores": os.cpu_count(), "suite": _SUITE, "rows": rows}
