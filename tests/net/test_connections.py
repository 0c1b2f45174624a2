"""One address keeps its share of the connections and no more, whatever else the process has open."""

from __future__ import annotations

import asyncio
import fcntl
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from croupier.net.connections import ConnectionCloser, ConnectionWatch
from tests.support import BIT, settings
from tests.support.rounds import people, table

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_LOCK = """
import fcntl, sys
try:
    fcntl.lockf(open(sys.argv[1], "r+"), fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    print("locked")
"""


@asynccontextmanager
async def echoing() -> AsyncIterator[tuple[int, list[Ends]]]:
    """Yields the port of a server that says each line again, and its ends of the connections."""
    taken = list[Ends]()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken.append((reader, writer))
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], taken
    finally:
        server.close()
        await close_all(taken)


async def connect(port: int, address: str) -> Ends:
    """Connects from an address, and returns when the server has taken it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    assert await answers((reader, writer))
    return reader, writer


async def close_all(ends: Sequence[Ends]) -> None:
    for _, writer in ends:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def answers(ends: Ends) -> bool:
    """Returns whether the connection is still there."""
    reader, writer = ends
    writer.write(b"hello\n")
    return await reader.readline() == b"hello\n"


async def test_the_newest_connections_of_an_address_beyond_its_limit_are_ended() -> None:
    async with echoing() as (port, taken), echoing() as (other, _):
        watch = ConnectionWatch([port], limit=3)
        first = [await connect(port, "127.0.0.66") for _ in range(3)]
        elsewhere = [await connect(other, "127.0.0.66") for _ in range(5)]
        assert watch.look() == 0
        first[0][1].close()
        await taken[0][1].wait_closed()
        more = [await connect(port, "127.0.0.66") for _ in range(3)]
        honest = [await connect(port, f"127.0.0.{number}") for number in range(1, 6)]
        assert watch.look() == 2
        assert [await connection[0].readline() for connection in more[1:]] == [b"", b""]
        assert [await answers(connection) for connection in (*first[1:], more[0], *honest, *elsewhere)] == [True] * 13
        assert watch.look() == 0
        await close_all((*first, *more, *honest, *elsewhere))


def test_to_look_at_sockets_gives_up_no_lock(tmp_path: Path) -> None:
    """POSIX gives up a process's locks on a file when it closes any descriptor of it, and SQLite relies on them."""
    file = tmp_path / "rounds.db"
    with file.open("w") as held:
        fcntl.lockf(held, fcntl.LOCK_EX)
        ConnectionWatch([1], limit=1).look()
        process = subprocess.run([sys.executable, "-c", _LOCK, file], capture_output=True, text=True, check=True)
        assert process.stdout == "locked\n"


async def test_a_port_that_is_nearly_full_loses_those_of_who_has_most() -> None:
    """Four addresses, each with no more than its share, filled a port."""
    async with echoing() as (port, _):
        watch = ConnectionWatch([port], limit=100, most=8)
        client = await connect(port, "127.9.0.1")
        strangers = [await connect(port, f"127.1.0.{number}") for number in (1, 2, 3, 4) for _ in range(3)]
        assert watch.look() == 5
        late = await connect(port, "127.9.0.2")
        assert watch.look() == 1
        assert [await answers(connection) for connection in (client, late)] == [True, True]
        kept = [await answers(stranger) for stranger in strangers]
        assert sorted(sum(kept[at : at + 3]) for at in range(0, 12, 3)) == [1, 1, 2, 2]  # equal ones in any order
        await close_all((client, late, *strangers))


async def test_a_crowd_of_clients_may_fill_a_port() -> None:
    async with echoing() as (port, _):
        watch = ConnectionWatch([port], limit=100, most=8)
        crowd = [await connect(port, f"127.{number}.0.1") for number in range(1, 17)]
        assert watch.look() == 0
        await close_all(crowd)


async def test_the_connection_of_one_caller_is_ended_and_no_other() -> None:
    async with echoing() as (port, _):
        first, second = [await connect(port, "127.0.0.66") for _ in range(2)]
        close_connection = ConnectionCloser()
        close_connection(f"ipv4:127.0.0.66:{first[1].get_extra_info('sockname')[1]}")
        close_connection("unix:/run/croupier")  # not a TCP address
        assert await first[0].readline() == b""
        assert await answers(second)
        await close_all((first, second))


@pytest.mark.slow
async def test_a_service_keeps_a_stranger_from_its_connections(tmp_path: Path) -> None:
    """One address could hold all that the port takes with connections that say nothing."""
    async with table(tmp_path, 1, settings_of=lambda _: "max_connections_per_address = 4\n", over_tls=True) as at:
        terms = await at.operator.open_round(settings())
        host, _, port = (at.deployment.shufflers[0].public_address or "").rpartition(":")
        strangers = [await asyncio.open_connection(host, int(port), local_addr=("127.0.0.66", 0)) for _ in range(10)]
        ends = {asyncio.create_task(reader.read()) for reader, _ in strangers}
        while sum(service.done() for service in ends) < 6:
            await asyncio.wait([service for service in ends if not service.done()], return_when=asyncio.FIRST_COMPLETED)
        assert (await at.submit(terms, people(BIT, 5, seed=1))).accepted == 5
        assert len([service for service in ends if not service.done()]) == 4
        await close_all(strangers)
        await asyncio.gather(*ends)
