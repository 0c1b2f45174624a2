"""Many clients at once, each with a connection of its own, against hop 1: how long they wait, what is refused or lost.

A client comes from an address of its own (127.x.y.z), opens a TLS connection that it shares with no other, reads and
checks the manifest, submits, and hangs up. Submissions are sealed beforehand. Clients share the machine with hop 1: a
handshake and a call cost them about as much as the service, so the service alone is faster than what is measured here.
Peers that say nothing, say a byte at a time, or vanish in the middle of a message can be among them.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import grpc.aio

from croupier.client.round_checks import accept_manifest, fetch_publication
from croupier.client.submission import Participant, SealedSubmission, prepare_all, seal_all
from croupier.client.tickets import get_tickets
from croupier.client.verification import missing_by_hop
from croupier.deploy.directory import read_deployment
from croupier.deploy.local.processes import LocalDeployment, temporary_deployment
from croupier.deploy.local.throughput import processor_s
from croupier.net.channels import public_channel
from croupier.net.retrying import retrying
from croupier.operator.operator import Operator
from croupier.operator.round_settings import RoundSettings
from croupier.protocol.deployment import Deployment, ServiceEntry
from croupier.protocol.errors import Refusal, refusal_of
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.mechanisms.rr import RandomizedResponse
from croupier.protocol.names import JsonObject, RoundId
from croupier.protocol.questions import Question
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime.workers import WorkerPool
from research.bench.http2 import UNVERIFIED, Caller

SHARES = (0.5, 0.9, 0.99, 1.0)
"""The shares of the clients whose longest wait is measured."""
_PATIENCE_S, _CALL_S = 600.0, 60.0
_PART, _PARTS_AT_ONCE = 200, 4
_LOOK_S, _SAY_S = 0.25, 10.0
_AGAIN_S, _BYTE_S, _GONE_S = 0.2, 0.5, 120.0
_HALF_A_MESSAGE = 8192


@dataclass
class LoadSample:
    """What clients have seen: the lists have an entry for each client that was answered.

    Attributes:
        first_s: seconds until the manifest was there: connecting, TLS, and all attempts.
        submit_s: from then to the answer to the submission, all attempts.
        codes: hop 1's answers, by the client's number.
        failures: attempts that failed and were repeated, by the refusal's code or else gRPC's.
        gave_up: clients without an answer, by the same.
        connections: how many were opened, those of bad peers left out.
        wall_s: seconds until the last client had its answer or had given up.
    """

    first_s: list[float] = field(default_factory=list)
    submit_s: list[float] = field(default_factory=list)
    codes: dict[int, pb.SubmissionCode.ValueType] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    gave_up: Counter[str] = field(default_factory=Counter)
    connections: int = 0
    wall_s: float = 0.0

    def add(self, other: LoadSample) -> None:
        """Takes in what clients of another process have seen."""
        self.first_s += other.first_s
        self.submit_s += other.submit_s
        self.codes |= other.codes
        self.failures += other.failures
        self.gave_up += other.gave_up
        self.connections += other.connections
        self.wall_s = max(self.wall_s, other.wall_s)


def _kind(error: grpc.aio.AioRpcError | Refusal) -> str:
    if isinstance(error, Refusal):
        return error.code.name
    refusal = refusal_of(error)
    return refusal.code.name if refusal else f"gRPC {error.code().name}"


# ------------------------------------------------------------- one process of clients


@asynccontextmanager
async def relay(entry: ServiceEntry, addresses: Iterable[str]) -> AsyncIterator[ServiceEntry]:
    """Yields the service as it is reached from other addresses: each connection to it comes from the next of them.

    gRPC's client cannot be told an address of its own. TLS goes through.
    """
    others, forwarding = iter(addresses), set[asyncio.Task[None]]()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()

    async def forward(near_reader: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            far_reader, far = await asyncio.open_connection(*_where(entry), local_addr=(next(others), 0))
            with closing(far):  # also where a pump is cancelled before it begins
                await asyncio.gather(pump(near_reader, far), pump(far_reader, near))

    def accept(near_reader: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(forward(near_reader, near))
        forwarding.add(task)
        task.add_done_callback(forwarding.discard)
        task.add_done_callback(lambda _: near.close())

    server = await asyncio.start_server(accept, "127.0.0.1", 0, backlog=4096)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield entry.model_copy(update={"public_address": address})
    finally:
        server.close()
        for task in (left := list(forwarding)):
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


def _where(entry: ServiceEntry) -> tuple[str, int]:
    host, _, port = (entry.public_address or "").rpartition(":")
    return host, int(port)


def _addresses(network: int) -> Iterator[str]:
    """Yields 127.network.0.1, 127.network.0.2 and so on, over and over."""
    return (f"127.{network}.{index // 250}.{index % 250 + 1}" for index in itertools.cycle(range(250 * 250)))


async def simulated_clients(
    deployment: Deployment,
    round_id: RoundId,
    submissions: Mapping[int, bytes],
    at_once: int,
    bad: int = 0,
    network: int = 1,
) -> LoadSample:
    """Plays clients and bad peers in this process, and returns when every client has its answer, or has given up.

    Args:
        deployment: whose first shuffler they call.
        round_id: of the round.
        submissions: what each client submits, by its number.
        at_once: the number of clients that have a connection at the same time.
        bad: the number of bad peers; they connect again whenever they are cut off.
        network: 1..126: clients come from 127.network.x.y, bad peers from 127.(network + 126).x.y.
    """
    entry, seen, turn = deployment.shufflers[0], LoadSample(), asyncio.Semaphore(at_once)

    def counted() -> Iterator[str]:
        for address in _addresses(network):
            seen.connections += 1
            yield address

    async def client(number: int, raw: bytes) -> None:
        request = pb.SubmitRequest(round_id=round_id, submissions=[pb.Submission.FromString(raw)])
        again = partial(
            retrying, give_up_after_s=_PATIENCE_S, on_failure=lambda error: seen.failures.update([_kind(error)])
        )
        # Channels to one address share their connection, unless they are told not to.
        async with turn, public_channel(there, [("grpc.use_local_subchannel_pool", 1)]) as channel:
            stub = stubs.ShufflerStub(channel)
            started = time.perf_counter()
            try:
                response = await again(lambda: stub.GetRound(rpc.GetRoundRequest(round_id=round_id), timeout=_CALL_S))
                accept_manifest(response.round, deployment)
                read = time.perf_counter()
                (code,) = (await again(lambda: stub.Submit(request, timeout=_CALL_S))).codes
            except (Refusal, grpc.aio.AioRpcError) as error:
                seen.gave_up[_kind(error)] += 1
                return
            seen.first_s.append(read - started)
            seen.submit_s.append(time.perf_counter() - read)
            seen.codes[number] = code

    async with relay(entry, counted()) as there:
        kinds = itertools.cycle((_silent, _byte_by_byte, _vanished))
        strangers = zip(itertools.islice(kinds, bad), _addresses(network + 126), strict=False)
        peers = [asyncio.create_task(_again_and_again(kind, entry, address)) for kind, address in strangers]
        began = time.perf_counter()
        try:
            await asyncio.gather(*(client(number, raw) for number, raw in submissions.items()))
            seen.wall_s = time.perf_counter() - began
        finally:
            for peer in peers:
                peer.cancel()
            await asyncio.gather(*peers, return_exceptions=True)
    return seen


def _process(directory: Path, round_id: RoundId, *how: Any) -> LoadSample:
    return asyncio.run(simulated_clients(read_deployment(directory), round_id, *how))


# ------------------------------------------------------------- bad peers


async def _silent(entry: ServiceEntry, address: str) -> None:
    """Connects and says nothing."""
    reader, writer = await asyncio.open_connection(*_where(entry), local_addr=(address, 0))
    with closing(writer):
        await reader.read()


async def _byte_by_byte(entry: ServiceEntry, address: str) -> None:
    """Says the beginning of a handshake, a byte at a time."""
    _, writer = await asyncio.open_connection(*_where(entry), local_addr=(address, 0))
    with closing(writer):
        for byte in bytes.fromhex("16030100c8010000c40303") + bytes(189):
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(_BYTE_S)


async def _vanished(entry: ServiceEntry, address: str) -> None:
    """Says half of a submission, and then nothing: it does not even answer the service's pings."""
    reader, writer = await asyncio.open_connection(*_where(entry), local_addr=(address, 0), ssl=UNVERIFIED)
    with closing(writer):
        caller = Caller(reader, writer, entry.name)
        caller.greet(0)
        caller.begin(caller.call("Shuffler/Submit"), 2 * _HALF_A_MESSAGE, bytes(_HALF_A_MESSAGE))
        await writer.drain()
        await asyncio.sleep(_GONE_S)


async def _again_and_again(kind: Callable[[ServiceEntry, str], Any], entry: ServiceEntry, address: str) -> None:
    me = asyncio.current_task()
    while me and not me.cancelling():  # what a closing connection raises may take the place of the cancellation
        with suppress(OSError):
            await kind(entry, address)
        await asyncio.sleep(_AGAIN_S)


# ------------------------------------------------------------- the measurement


def measure_load(
    clients: int,
    at_once: int,
    bad: Sequence[int],
    processes: int = 2,
    hops: int = 1,
    times: int = 1,
    say: Callable[[str], None] = lambda line: None,
    report: Callable[[JsonObject], None] = lambda row: None,
) -> JsonObject:
    """Plays rounds for each number of bad peers, in turn, on one deployment, and returns all measurements.

    Times are by the share of clients that waited at most as long.

    Args:
        clients: at least 2.
        at_once: the number of clients that have a connection at the same time.
        bad: how many peers are bad ones, for each round.
        processes: over which clients and bad peers are spread.
        hops: the number of shufflers.
        times: how many rounds for each number of bad peers, in turn, so that other work here affects all alike.
        say: called with a line of progress now and then.
        report: called with each row as soon as it is measured.

    Raises:
        ValueError: a number is out of range.
    """
    if times < 1:
        raise ValueError(f"times is {times}; it must be at least 1")
    if clients < 2:
        raise ValueError(f"clients is {clients}; it must be at least 2")
    if not 1 <= processes <= min(at_once, 126):
        raise ValueError(f"processes is {processes} and at-once is {at_once}; they must be in 1..126 and 1..at-once")
    rows = []
    with temporary_deployment(hops) as local:
        for number in [*bad] * times:
            rows.append(asyncio.run(_measure(local, clients, at_once, number, processes, say)))
            report(rows[-1])
    return {"hops": hops, "processes": processes, "rows": rows}


async def _measure(
    local: LocalDeployment, clients: int, at_once: int, bad: int, processes: int, say: Callable[[str], None]
) -> JsonObject:
    pool = WorkerPool(processes)
    await pool.warm()
    try:
        async with Operator(local.directory) as operator:
            settings = RoundSettings(Question("load", RandomizedResponse()), (1.0,), epsilon_max=1.0, min_batch_size=2)
            terms = await operator.open_round(settings)
            sealed = await _seal(operator, terms, clients, pool, say)
            pid = local.pids()[operator.deployment.shufflers[0].name]
            watch = _Watch(pid, _where(operator.deployment.shufflers[0])[1])
            before, used_s, started = watch.memory(), sum(processor_s(pid)), time.perf_counter()
            watching = asyncio.create_task(watch.run(lambda: _progress(operator, terms, watch, started, say)))
            seen = LoadSample()
            for part, _ in await asyncio.gather(
                *(
                    pool.run(
                        _process,
                        local.directory,
                        terms.round_id,
                        {n: client.submission for n, client in enumerate(sealed) if n % processes == process},
                        at_once // processes,
                        len(range(process, bad, processes)),
                        1 + process,
                    )
                    for process in range(processes)
                )
            ):
                seen.add(part)
            used_s = sum(processor_s(pid)) - used_s
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            acknowledged = {n for n, code in seen.codes.items() if code == pb.SUBMISSION_CODE_ACCEPTED}
            return {
                "clients": clients,
                "at_once": at_once,
                "bad": bad,
                "wall_s": seen.wall_s,
                "cpu_s": used_s,
                "first_s": _quantiles(seen.first_s),
                "submit_s": _quantiles(seen.submit_s),
                "all_s": _quantiles([sum(pair) for pair in zip(seen.first_s, seen.submit_s, strict=True)]),
                "connections": seen.connections,
                "most_connections": watch.most_connections,
                "memory_before_bytes": before,
                "memory_bytes": watch.most_memory,
                "failures": dict(seen.failures),
                "gave_up": dict(seen.gave_up),
                "acknowledged": len(acknowledged),
                "lost": await _lost(operator, terms, {str(n): sealed[n].inclusion_hashes for n in acknowledged}),
            }
    finally:
        pool.close()


async def _seal(
    operator: Operator, terms: RoundTerms, number: int, pool: WorkerPool, say: Callable[[str], None]
) -> list[SealedSubmission]:
    """Returns the submissions of `count` clients with keys of their own, who are enrolled and have their tickets."""
    turn, done = asyncio.Semaphore(_PARTS_AT_ONCE), 0

    async def part(size: int) -> list[SealedSubmission]:
        nonlocal done
        async with turn:
            prepared, _ = await pool.run(prepare_all, terms.unsigned, [Participant(n % 2, 1.0) for n in range(size)])
            await operator.enrol([prepared_answer.client_key for prepared_answer in prepared])
            given = await get_tickets(accountant, terms, {str(n): answer for n, answer in enumerate(prepared)})
            pairs = [(answer, given.granted[str(n)]) for n, answer in enumerate(prepared)]
            sealed, _ = await pool.run(seal_all, terms.unsigned, pairs)
            done += size
            if done * 10 // number > (done - size) * 10 // number:
                say(f"{done:,} of {number:,} submissions sealed")
            return sealed

    async with operator.client_channel(operator.deployment.accountant.name) as accountant:
        parts = await asyncio.gather(*(part(min(_PART, number - start)) for start in range(0, number, _PART)))
    return [answer for answers in parts for answer in answers]


async def _lost(operator: Operator, terms: RoundTerms, hashes_of: Mapping[str, bytes]) -> int:
    """Closes the round, and returns how many of these a hop has not passed on."""
    await operator.close_round(terms.round_id)
    async with operator.client_channel() as hop, operator.client_channel(operator.deployment.analyzer.name) as analyzer:
        _, certificate = await fetch_publication(analyzer, operator.deployment, terms.round_id, _PATIENCE_S)
        missing = await missing_by_hop(hop, terms, certificate, operator.deployment, hashes_of)
    return len(set().union(*missing.values()))


async def _progress(
    operator: Operator, terms: RoundTerms, watch: _Watch, started: float, say: Callable[[str], None]
) -> None:
    (first, *_) = await operator.status(terms.round_id)
    if not isinstance(first, grpc.aio.AioRpcError):
        admitted, since = first.rounds[0].num_items, time.perf_counter() - started
        say(f"{since:.0f} s: {admitted:,} admitted, {watch.connections:,} connections")


class _Watch:
    """Looks at hop 1 from outside: resident memory and open connections, now and at most (Linux; else 0)."""

    def __init__(self, pid: int, port: int) -> None:
        self._pid, self._port = pid, f"{port:04X}"
        self.connections = self.most_connections = self.most_memory = 0

    def memory(self) -> int:
        """Returns the resident memory of the process."""
        with suppress(OSError):
            for line in Path(f"/proc/{self._pid}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) * 1024
        return 0

    async def run(self, say: Callable[[], Any]) -> None:
        """Looks until it is cancelled."""
        for look in itertools.count():
            self.most_memory = max(self.most_memory, self.memory())
            self.connections = await asyncio.to_thread(self._established)
            self.most_connections = max(self.most_connections, self.connections)
            if look % (_SAY_S // _LOOK_S) == 0:
                await say()
            await asyncio.sleep(_LOOK_S)

    def _established(self) -> int:
        rows: list[list[str]] = []
        for kind in ("tcp", "tcp6"):
            with suppress(OSError):
                rows += [line.split() for line in Path(f"/proc/{self._pid}/net/{kind}").read_text().splitlines()[1:]]
        return sum(row[1].endswith(f":{self._port}") and row[3] == "01" for row in rows)


def _quantiles(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {str(share): ordered[max(0, -int(-share * len(ordered) // 1) - 1)] for share in SHARES if ordered}


def load_lines(document: JsonObject) -> list[str]:
    """Returns a Markdown table of `measure_load`: a column for each number of bad peers, and ratios to the first one.

    Of several rounds each number is the median, with the least and the most in brackets.
    """
    groups: dict[tuple[int, int, int], list[JsonObject]] = {}
    for row in document["rows"]:
        groups.setdefault((row["clients"], row["at_once"], row["bad"]), []).append(row)
    columns = list(groups.values())

    def line(name: str, cell: Callable[[Sequence[JsonObject]], str], ratio: str = "") -> str:
        return f"| {' | '.join([name, *(cell(rows) for rows in columns), *([ratio] if len(columns) > 1 else [])])} |"

    def measured(name: str, measure: Callable[[JsonObject], float], form: str, compared: bool = True) -> str:
        def cell(rows: Sequence[JsonObject]) -> str:
            values = [measure(row) for row in rows]
            spread = f" ({min(values):{form}}-{max(values):{form}})" if len(values) > 1 else ""
            return f"{statistics.median(values):{form}}{spread}"

        medians = [statistics.median(measure(row) for row in rows) for rows in columns]
        ratios = ", ".join(f"{median / medians[0]:.2f}" for median in medians[1:]) if compared and medians[0] else ""
        return line(name, cell, ratios)

    def quantile(key: Literal["first_s", "submit_s"], share: float) -> Callable[[JsonObject], float]:
        return lambda row: row[key][str(share)]

    def waits(name: str, key: Literal["first_s", "submit_s"]) -> list[str]:
        shares = [(f"{100 * share:g} %" if share < 1 else "all", share) for share in SHARES]
        return [measured(f"{name}: {label}", quantile(key, share), ".2f") for label, share in shares]

    def counts(key: Literal["failures", "gave_up"]) -> Callable[[Sequence[JsonObject]], str]:
        def cell(rows: Sequence[JsonObject]) -> str:
            total: Counter[str] = Counter()
            for row in rows:
                total.update(row[key])
            return ", ".join(f"{count:,} {kind}" for kind, count in sorted(total.items())) or "none"

        return cell

    def total(key: Literal["connections", "acknowledged", "lost"]) -> Callable[[Sequence[JsonObject]], str]:
        return lambda rows: f"{sum(row[key] for row in rows):,}"

    return [
        line("clients", lambda rows: f"{rows[0]['clients']:,}", "ratio to the first"),
        "|---" * (len(columns) + 1 + (len(columns) > 1)) + "|",
        line("of them at the same time", lambda rows: f"{rows[0]['at_once']:,}"),
        line("bad peers beside them", lambda rows: f"{rows[0]['bad']:,}"),
        line("rounds, in turn with those of the other columns", lambda rows: str(len(rows))),
        *waits("seconds to connect and get the manifest", "first_s"),
        *waits("seconds to submit", "submit_s"),
        measured("clients a second", lambda row: row["clients"] / row["wall_s"], ",.0f"),
        measured("hop 1, CPU ms a client", lambda row: 1000 * row["cpu_s"] / row["clients"], ".1f"),
        measured("hop 1, memory before, MB", lambda row: row["memory_before_bytes"] / 1e6, ",.0f", compared=False),
        measured("hop 1, memory at most, MB", lambda row: row["memory_bytes"] / 1e6, ",.0f", compared=False),
        measured("connections open at once, at most", lambda row: row["most_connections"], ",.0f", compared=False),
        line("connections of clients in all", total("connections")),
        line("attempts that failed and were repeated", counts("failures")),
        line("clients that gave up", counts("gave_up")),
        line("acknowledged", total("acknowledged")),
        line("acknowledged and lost", total("lost")),
    ]
