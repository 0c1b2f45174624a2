"""A gateway that sends a byte now and then, for ever: it holds no thread of a client, and no `close`.

It needs a socket and threads: what it held was a thread in a read, whose timeout every byte began again.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path
from threading import Event, Thread

import grpc.aio
import pytest

import croupier
from croupier.net.http_channel import exchange
from croupier.operator.keys import make_deployment
from tests.support.messages import naming

BEGINS = {
    "body": b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n",
    "headers": b"HTTP/1.1 200 OK\r\nX-Filler: ",
    "chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;",
}
_PATIENCE_S = 60.0


class Dripping:
    """Answers every connection with a beginning, and then one byte after the other."""

    def __init__(self, begins: bytes) -> None:
        self.begins = begins
        self.asked, self.left, self.stop = Event(), Event(), Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                connection.sendall(self.begins)
                self.asked.set()
                try:
                    while not self.stop.wait(0.002):
                        connection.sendall(b"a")
                except OSError:
                    self.left.set()

    def close(self) -> None:
        self.stop.set()
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(_PATIENCE_S)


@pytest.fixture(params=BEGINS)
def dripping(request: pytest.FixtureRequest) -> Iterator[Dripping]:
    server = Dripping(BEGINS[request.param])
    yield server
    server.close()


def test_a_call_that_took_too_long_leaves_no_thread_behind(dripping: Dripping) -> None:
    async def call() -> bool:
        with pytest.raises(grpc.aio.AioRpcError, match=naming("http://127.0.0.1", "0.05 s")):
            await exchange(dripping.url, b"", 0.05)
        left = await asyncio.to_thread(dripping.left.wait, 15)
        dripping.stop.set()
        return left

    assert asyncio.run(call())


def test_a_client_closes_while_a_gateway_drips(tmp_path: Path, dripping: Dripping) -> None:
    deployment = make_deployment(tmp_path, "local", 1)
    client = croupier.connect(deployment, directory=tmp_path / "client", gateway=dripping.url, patience_s=0)
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(client.round)
        assert dripping.asked.wait(_PATIENCE_S)
        closing = Thread(target=client.close, daemon=True)
        closing.start()
        closing.join(15)
        closed = not closing.is_alive()
        dripping.stop.set()
        with pytest.raises((CancelledError, asyncio.CancelledError)):
            call.result(_PATIENCE_S)
    assert closed
