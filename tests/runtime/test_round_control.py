"""Round control: calls of the operator that arrive twice, or late."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from croupier.operator.round_settings import check_settings
from croupier.protocol.names import RoundId
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime.steps import StoreStep
from tests.support import settings
from tests.support.arena import arena


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("name", "end"), [("shuffler-1", pb.ROUND_STATE_DELIVERED), ("accountant", pb.ROUND_STATE_RELEASED)]
)
async def test_a_late_call_does_not_open_a_round_again(tmp_path: Path, name: str, end: pb.RoundState.ValueType) -> None:
    """Reproduction: of two calls at once, the later one set a round that was over back to OPEN."""
    async with arena(tmp_path, 1) as deployment:
        document = await deployment.operator.sign_round(
            check_settings(settings(), deployment.deployment, RoundId("twice")).survey
        )
        store = deployment.service(name).store
        run, held, goes_on = store.run, asyncio.Event(), asyncio.Event()

        async def waits(step: str, work: Callable[[Any], Any]) -> Any:
            if step is StoreStep.OPEN_ROUND and not held.is_set():
                held.set()
                await goes_on.wait()
            return await run(step, work)

        store.run = waits  # type: ignore[method-assign]
        control = stubs.RoundControlStub(deployment.operator.channel_to(name))
        late = control.Open(rpc.OpenRequest(round=document))
        await held.wait()
        terms = await deployment.operator.open_signed(document)
        await deployment.admit(terms, await deployment.seal(terms, 30))
        await deployment.finish(terms)
        await deployment.reached(name, terms, end)
        goes_on.set()
        await late
        row = await run("look", lambda tx: tx.round(terms.round_id))
        assert row.state == end
