"""Throughput of a whole deployment against the number of users, and against the cryptography itself.

The floor is measured in the same run: the same number of HPKE seals and opens as the users' envelopes need, the same
work for their tickets and the same signatures, straight through the libraries on as many processes as there are cores,
with nothing around them, before the run and after it.
"""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import grpc.aio
from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric import x25519
from nacl.signing import SigningKey, VerifyKey

from croupier.client.submission import Participant, new_client_key
from croupier.deploy.local.fleet import fleet_of
from croupier.deploy.local.processes import temporary_deployment
from croupier.deploy.local.whole_round import RoundOutcome, play_round
from croupier.operator.operator import Operator
from croupier.operator.round_settings import RoundSettings
from croupier.protocol.envelope import overhead
from croupier.protocol.identity import public_key_of
from croupier.protocol.mechanisms.rr import RandomizedResponse
from croupier.protocol.names import JsonObject, PrivateKey, PublicKey
from croupier.protocol.onion import BUDGET_RECORD_BYTES
from croupier.protocol.questions import Question
from croupier.protocol.tickets import TICKET_BYTES, TicketIssuer, TicketRequest, collect_tickets
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.workers import WorkerPool, peak_memory_bytes

SUITE = "x25519-sha256-chacha20poly1305"
_PART, _SIGNED_BYTES = 250, 80
"""The most submissions per task of a worker, and the bytes of a message that the bench signs."""
_REGISTERED_AT_ONCE = 1000
"""The number of users that the bench registers in one call."""
_MOST_BARE = 20_000
"""For more users, the floor is measured with this many and scaled in proportion."""
_GRID, _SHARES = (0.5, 1.0, 2.0), (54, 37, 9)
"""The local budgets that the bench uses, and how many of 100 users draw each."""


def plain_sizes(hops: int) -> list[int]:
    """Returns the plaintext size of every layer of one user's onion."""
    extra = overhead(SUITE)
    innermost = RandomizedResponse().report_bytes
    report = [innermost + extra + TICKET_BYTES + layer * extra for layer in range(hops)]
    parameter = [TICKET_BYTES + BUDGET_RECORD_BYTES + layer * extra for layer in range(hops)]
    return [innermost, *report, *parameter, report[-1] + parameter[-1] + 2 * extra]


class _Costs(NamedTuple):
    """CPU seconds of the bare cryptography."""

    envelopes: float
    tickets_client: float
    tickets_accountant: float
    signatures: float


def _bare_cryptography(sizes: Sequence[int], parts: list[int]) -> list[_Costs]:
    """Does, part by part, what the envelopes, tickets and signatures of `sum(parts)` users need."""
    return [
        _Costs(_seal_and_open_part(sizes, users), *_tickets_part(users), _signatures_part(users)) for users in parts
    ]


def _tickets_part(users: int) -> tuple[float, float]:
    """Asks for, gives and checks one ticket of each lane for each of `users` users.

    Returns the CPU seconds of the clients and those of the accountant.
    """
    clients = accountant = 0.0
    for lane in (pb.LANE_REPORT, pb.LANE_PARAMETER):
        issuer, messages = TicketIssuer(os.urandom(32), lane), [os.urandom(32) for _ in range(users)]
        started = time.process_time()
        requests = [TicketRequest(message) for message in messages]
        asked = time.process_time()
        evaluated = issuer.evaluate([request.blinded for request in requests])
        given = time.process_time()
        tickets = collect_tickets(requests, evaluated, issuer.public_key)
        collected = time.process_time()
        if not all(issuer.is_valid(message, ticket) for message, ticket in zip(messages, tickets, strict=True)):
            raise RuntimeError("a ticket is not valid for its own message")
        clients += asked - started + collected - given
        accountant += given - asked + time.process_time() - collected
    return clients, accountant


def _signatures_part(users: int) -> float:
    """Signs as each of `users` clients, for hop 1 and for the accountant, and checks all. Returns the CPU seconds."""
    started = time.process_time()
    keys, messages = [SigningKey.generate() for _ in range(users)], [os.urandom(_SIGNED_BYTES) for _ in range(users)]
    for key, message in zip(keys, messages, strict=True):
        for _ in ("ticket request", "submission"):
            VerifyKey(bytes(key.verify_key)).verify(message, key.sign(message).signature)
    return time.process_time() - started


def _seal_and_open_part(sizes: Sequence[int], users: int) -> float:
    started = time.process_time()
    suite = hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.CHACHA20_POLY1305)
    key = x25519.X25519PrivateKey.generate()
    public, info = key.public_key(), bytes(100)
    for size in sizes:
        plaintext = bytes(size)
        for ciphertext in [suite.encrypt(plaintext, public, info=info) for _ in range(users)]:
            suite.decrypt(ciphertext, key, info=info)
    return time.process_time() - started


def _key_pairs(parts: list[int]) -> list[list[tuple[bytes, bytes]]]:
    """Returns fresh (private, public) keys for each part, which is a number of users."""
    return [[(key, public_key_of(key)) for key in (new_client_key() for _ in range(users))] for users in parts]


async def _known(keys: Sequence[bytes]) -> None:
    """Does nothing: the clients have been registered before the round."""


async def _registered(operator: Operator, pool: WorkerPool, users: int) -> list[bytes]:
    """Returns the private keys of `users` clients that have been registered, as people are once, before any round."""
    parts = [min(_REGISTERED_AT_ONCE, users - start) for start in range(0, users, _REGISTERED_AT_ONCE)]
    pairs, _ = await pool.map_chunks(_key_pairs, parts, chunk=1)
    for part in pairs:
        await operator.enrol([PublicKey(public) for _, public in part])
    return [private for part in pairs for private, _ in part]


async def _floor(pool: WorkerPool, users: int, hops: int) -> tuple[float, dict[str, float]]:
    """Returns the wall seconds that the bare cryptography of `users` users takes on all cores, and what it consists of.

    The latter: CPU seconds a user, by the names in `_Costs`.
    """
    played = min(users, _MOST_BARE)
    part = min(_PART, -(-played // pool.processes))
    parts = [min(part, played - start) for start in range(0, played, part)]
    started = time.perf_counter()
    costs, _ = await pool.map_chunks(partial(_bare_cryptography, plain_sizes(hops)), parts, chunk=1)
    wall_s = (time.perf_counter() - started) * users / played
    return wall_s, {name: sum(getattr(cost, name) for cost in costs) / played for name in _Costs._fields}


def processor_s(pid: int, without: Collection[int] = ()) -> tuple[float, float]:
    """Returns the CPU seconds of a process, and of its children that live but for `without`, so far (Linux; else 0)."""
    own = children = 0
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        ticks = int(fields[11]) + int(fields[12])
        if pid == int(status.parent.name):
            own += ticks
        elif pid == int(fields[1]) and int(status.parent.name) not in without:
            children += ticks
    second = os.sysconf("SC_CLK_TCK")
    return own / second, children / second


@dataclass(frozen=True)
class ResourceUse:
    """What has been used so far, by process: CPU seconds of it and of its workers, and the bytes of its database.

    SQLite gives nothing back, so a database is as large as it ever was; what is free in it serves the next round.
    """

    own_s: dict[str, float]
    workers_s: dict[str, float]
    disk: dict[str, int]
    free: dict[str, int]

    def since(self, before: ResourceUse) -> ResourceUse:
        """Returns what has been used since then."""
        return ResourceUse(
            {name: value - before.own_s[name] for name, value in self.own_s.items()},
            {name: value - before.workers_s[name] for name, value in self.workers_s.items()},
            {name: value - before.disk[name] + before.free[name] for name, value in self.disk.items()},
            self.free,
        )


async def _used(directory: Path, operator: Operator) -> ResourceUse:
    answers = [answer for answer in await operator.status() if not isinstance(answer, grpc.aio.AioRpcError)]
    services = {answer.service: answer.pid for answer in answers}
    spent = {name: processor_s(pid) for name, pid in services.items()}
    spent["fleet"] = processor_s(os.getpid(), without=services.values())
    databases = {name: directory / name / "rounds.db" for name in operator.deployment.chain}
    return ResourceUse(
        {name: own for name, (own, _) in spent.items()},
        {name: workers for name, (_, workers) in spent.items()},
        {name: file.stat().st_size for name, file in databases.items()},
        {name: free_bytes(file) for name, file in databases.items()},
    )


def free_bytes(database: Path) -> int:
    """Returns how much of a SQLite file holds nothing."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        pages, size = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("freelist_count", "page_size"))
    return int(pages * size)


def _row(
    users: int, outcome: RoundOutcome, floor_s: float, floor_cpu: dict[str, float], used: ResourceUse
) -> JsonObject:
    peaks = {service["service"]: service["peak_memory_bytes"] for service in outcome.services}
    sent = {service["service"]: service["rounds"][0]["bytes_sent"] for service in outcome.services}
    return {
        "users": users,
        "wall_s": outcome.wall_s,
        "close_s": outcome.close_s,
        "users_per_s": users / outcome.wall_s,
        "floor_s": floor_s,
        "ratio_to_floor": floor_s / outcome.wall_s,
        "floor_cpu_s_per_user": floor_cpu,
        "stages": {stage: {"wall_s": wall, "cpu_s": cpu} for stage, wall, cpu in outcome.stages()},
        "cpu_s": {name: used.own_s[name] + used.workers_s[name] for name in used.own_s},
        "own_cpu_s": used.own_s,
        "disk_bytes_per_user": sum(used.disk.values()) / users,
        "disk_bytes": used.disk,
        "wire_bytes_per_user": outcome.wire_bytes() / users,
        "sent_bytes": {**sent, "fleet": outcome.fleet.bytes_sent},
        "peak_memory_bytes": {**peaks, "fleet": peak_memory_bytes()},
        "epsilon": outcome.certificate.epsilon,
        "grade": outcome.certificate.grade,
    }


def median_row(rows: Sequence[JsonObject]) -> JsonObject:
    """Returns the row of the median ratio to the floor, the smaller of two, and the ratios of all rows."""
    ordered = sorted(rows, key=lambda row: row["ratio_to_floor"])
    return {
        **ordered[(len(ordered) - 1) // 2],
        "all_ratios_to_floor": [row["ratio_to_floor"] for row in ordered],
    }


def conditions(hops: int) -> JsonObject:
    """Returns what the rows of one table have in common."""
    return {"hops": hops, "cores": os.cpu_count(), "suite": SUITE}


def kept_rows(document: JsonObject, sizes: Sequence[int], hops: int) -> list[JsonObject]:
    """Returns the rows of an earlier document that need not be measured again; none under other conditions."""
    measured: JsonObject = {"hops": document["hops"], "cores": document["cores"], "suite": document["suite"]}
    if measured != conditions(hops):
        return []
    return [row for row in document["rows"] if row["users"] in sizes]


def seconds_left(rows: Sequence[JsonObject], sizes: Sequence[int]) -> float:
    """Returns how long the sizes that are not among the rows will take, if a user costs what it did in the last row."""
    done = {row["users"] for row in rows}
    left = [size for size in sizes if size not in done]
    last = rows[-1]
    whole, bare = last["wall_s"] / last["users"], last["floor_s"] / last["users"]
    return float(whole * sum(left) + 2 * bare * sum(min(size, _MOST_BARE) for size in left))


def measure_throughput(
    sizes: Sequence[int],
    hops: int,
    report: Callable[[JsonObject], None] = lambda row: None,
    progress: Callable[[int, int], None] = lambda done, users: None,
    times: int = 1,
) -> JsonObject:
    """Plays one binary round for each number of users on a deployment of its own, and returns all measurements.

    Args:
        sizes: numbers of users, each at least 2.
        hops: the number of shufflers.
        report: called with each row as soon as it is measured.
        progress: called with how many users of a size have submitted, and the size.
        times: how many rounds of each size; the row is that of the median ratio to the floor.

    Raises:
        ValueError: a size, the number of shufflers or `times` is out of range.
        RuntimeError: a round did not come to its end.
    """
    if min(sizes) < 2:
        raise ValueError(f"users is {min(sizes)}; it must be at least 2")
    if times < 1:
        raise ValueError(f"times is {times}; it must be at least 1")
    with temporary_deployment(hops) as local:
        return asyncio.run(_measure(local.directory, sizes, report, progress, times))


async def _measure(
    directory: Path,
    sizes: Sequence[int],
    report: Callable[[JsonObject], None],
    progress: Callable[[int, int], None],
    times: int,
) -> JsonObject:
    pool = WorkerPool()
    rows = []
    done = size = 0

    def submitted(more: int) -> None:
        nonlocal done
        done += more
        progress(done, size)

    async with Operator(directory) as operator, fleet_of(operator, directory, pool, _known) as fleet:
        hops = len(operator.deployment.shufflers)

        async def measure(users: int) -> JsonObject:
            nonlocal done, size
            done, size = 0, users
            values = random.choices((0, 1), k=users)  # noqa: S311 (a synthetic population)
            budgets = random.choices(_GRID, _SHARES, k=users)  # noqa: S311
            keys = await _registered(operator, pool, users)
            drawn = {
                str(i): Participant(*person)
                for i, person in enumerate(zip(values, budgets, map(PrivateKey, keys), strict=True))
            }
            floor_s, floor_cpu = await _floor(pool, users, hops)
            settings = RoundSettings(Question("bench", RandomizedResponse()), _GRID, epsilon_max=2.0, min_batch_size=2)
            before = await _used(directory, operator)
            outcome = await play_round(operator, directory, fleet, settings, drawn, submitted)
            used = (await _used(directory, operator)).since(before)
            floor_s = (floor_s + (await _floor(pool, users, hops))[0]) / 2
            if (counted := outcome.publication.num_reports) != users:
                raise RuntimeError(f"{users} users, {counted} counted: this measures something else")
            return _row(users, outcome, floor_s, floor_cpu, used)

        for users in sizes:
            rows.append(median_row([await measure(users) for _ in range(times)]))
            report(rows[-1])
    pool.close()
    return {**conditions(hops), "rows": rows}
