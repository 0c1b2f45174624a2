"""The readiness of a service, in gRPC's health protocol: SERVING while its store can be written.

A failed transaction changes the answer at once, and a store in which no transaction ends changes it soon. From then on
the store is probed every few seconds, and a probe as large as a call's worth of submissions changes the answer back.
The service name "" is readiness; "live" means only that the process answers, so that a supervisor does not restart a
service that waits for a disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from croupier.net.transport import listening_at, make_server
from croupier.protocol.errors import Refusal
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.metrics import Metrics
from croupier.runtime.steps import StoreStep
from croupier.runtime.store import Store

LIVE = "live"
_log = logging.getLogger(__name__)
_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
PROBE_EVERY_S = 3.0
_SILENT_S, _LONGEST_S = 10.0, 30.0  # silent: as long as the stores themselves wait for a lock
_SMALL, _LARGE = 64, 1024 * 1024  # while all is well a few bytes will do; a disk that was full must hold more


class _Health(health.aio.HealthServicer):
    """Answers Check. A Watch would hold a call open for ever, and a few hundred of them all calls of the service."""

    async def Check(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:  # noqa: N802
        """Answers as the library does, without its abort, which would keep the call in memory (see `net.guard`)."""
        if request.service in ("", LIVE):
            return await super().Check(request, context)
        context.set_code(grpc.StatusCode.NOT_FOUND)
        return health_pb2.HealthCheckResponse()

    async def Watch(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:  # noqa: N802
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "ask with Check")


class Readiness:
    """Follows one service's store, and updates health, metrics and the log."""

    def __init__(self, store: Store, metrics: Metrics, every_s: float = PROBE_EVERY_S) -> None:
        self._store = store
        self._metrics = metrics
        self._every_s = every_s
        self.health = _Health()
        self._ready = False
        self._failed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def add_to(self, server: grpc.aio.Server) -> None:
        """Offers gRPC's health protocol on a server."""
        health_pb2_grpc.add_HealthServicer_to_server(self.health, server)

    async def begin(self) -> None:
        """Lives, but is not ready."""
        await self.health.set("", _NOT_SERVING)
        await self.health.set(LIVE, _SERVING)

    async def start(self) -> None:
        """Probes once, and from then on until `stop`."""
        loop = asyncio.get_running_loop()

        def failed() -> None:  # called from the store's thread
            self._metrics.store_failed()
            loop.call_soon_threadsafe(self._failed.set)

        self._store.on_failure = failed
        await self._probe()
        self._task = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        """Turns the answer to NOT_SERVING for good."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._store.on_failure = lambda: None
        await self._set(ready=False)

    async def _follow(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._every_s):
                    await self._failed.wait()
                await self._set(ready=False)
                await asyncio.sleep(self._every_s)
                self._failed.clear()
            except TimeoutError:
                pass
            await self._probe()

    async def _probe(self) -> None:
        """Writes to the store, and reads the rounds for the metrics."""
        probe = asyncio.create_task(self._write_and_count(_SMALL if self._ready else _LARGE))
        try:
            await self._wait_for(probe)
            counts = probe.result()
        except Refusal:  # the store has logged why
            await self._set(ready=False)
            return
        except TimeoutError as error:
            if self._ready:
                _log.warning("%s", error)
            await self._set(ready=False)
            return
        except Exception:  # noqa: BLE001 (whatever it was, the store did not take the write)
            _log.exception("the probe of the store failed")
            await self._set(ready=False)
            return
        finally:
            probe.cancel()
        self._metrics.rounds(counts)
        await self._set(ready=True)

    async def _write_and_count(self, size: int) -> Mapping[tuple[pb.RoundState.ValueType, bool], int]:
        await self._store.run(StoreStep.PROBE, lambda tx: tx.probe(size))
        return await self._store.run(StoreStep.COUNT_ROUNDS, lambda tx: tx.round_counts())

    async def _wait_for(self, probe: asyncio.Task[Any]) -> None:
        """Waits until the probe has ended. It has its turn after others: while these end, it may take longer.

        Raises:
            TimeoutError: nothing in the store has ended for a while, or the probe has not for long.
        """
        begun = asyncio.get_running_loop().time()
        while asyncio.get_running_loop().time() < begun + _LONGEST_S:
            before = self._store.num_ended
            if (await asyncio.wait({probe}, timeout=_SILENT_S))[0]:
                return
            if self._store.num_ended == before:
                raise TimeoutError(f"the store has ended no transaction in {_SILENT_S:g} s")
        raise TimeoutError(f"the store has not taken a write in {_LONGEST_S:g} s")

    async def _set(self, *, ready: bool) -> None:
        if ready != self._ready:
            _log.log(logging.INFO if ready else logging.WARNING, "ready" if ready else "not ready")
        self._ready = ready
        self._metrics.ready(ready)
        await self.health.set("", _SERVING if ready else _NOT_SERVING)


def make_admin_server(readiness: Readiness, address: str, names: Sequence[str]) -> grpc.aio.Server:
    """Returns a plaintext server for health and reflection. It describes the named services and offers none of them."""
    server = make_server(64)
    readiness.add_to(server)
    reflection.enable_server_reflection([*names, health.SERVICE_NAME, reflection.SERVICE_NAME], server)
    with listening_at(address):
        server.add_insecure_port(address)
    return server
