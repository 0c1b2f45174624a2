"""What a client's own limits are worth against services that lie, hold calls back, and ask for a large δ."""

from __future__ import annotations

import itertools
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

import croupier
from croupier.client.limits import Limits, SpentHere, write_limits
from croupier.client.round_checks import accept_manifest
from croupier.deploy.gateway.app import make_app
from croupier.protocol.errors import Code, Refusal, refusal_of
from croupier.protocol.identity import Kind
from croupier.protocol.mechanisms.gaussian import Gaussian
from croupier.protocol.names import PublicKey
from croupier.protocol.questions import Question
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from tests.support import RoundKit, altered, settings
from tests.support.arena import Arena, arena
from tests.support.gateways import PassOn, Tampering, reached_at, tickets_for_all
from tests.support.messages import naming

pytestmark = pytest.mark.virtual_time
GRANTED, NO_CODE = pb.SUBMISSION_CODE_ACCEPTED, 99
LIES: list[Any] = [pb.SUBMISSION_CODE_UNKNOWN_CLIENT, GRANTED, NO_CODE]


@pytest.mark.parametrize("held", ["GetTickets", "Submit"])
async def test_two_windows_together_keep_to_the_lifetime_limit(tmp_path: Path, held: str) -> None:
    """A lie in the second window took back the first one's place, which another round's answer was given: 2 of 1.

    A call of the first window is held back, before or behind the service's answer, while the person tries the same
    round in the second window, where the accountant lies, and then another round.
    """
    async with arena(tmp_path, 1) as at:
        gateway = Tampering(at.inside.transport)
        with reached_at(make_app(at.inside.directory, gateway.transport)) as url:
            for lie, answered in itertools.product(LIES if held == "GetTickets" else LIES[:1], (False, True)):
                place = tmp_path / f"person {lie} {answered}"
                write_limits(place / "limits.toml", Limits(lifetime_epsilon=1.0))
                windows = [
                    croupier.AsyncClient(at.inside.directory, directory=place, gateway=url, patience_s=1)
                    for _ in range(2)
                ]
                await interleave(at, gateway, held, answered, lie, *windows)
                for window in windows:
                    await window.close()


async def interleave(
    at: Arena,
    gateway: Tampering,
    held: str,
    answered: bool,
    lie: pb.SubmissionCode.ValueType,
    first: croupier.AsyncClient,
    second: croupier.AsyncClient,
) -> None:
    terms = [await at.operator.open_round(settings()) for _ in range(2)]
    await at.operator.enrol([PublicKey(bytes.fromhex(first.public_key))])
    gateway.seen.clear()

    async def lie_about_tickets(raw: bytes, pass_on: PassOn) -> bytes:
        if pb.GetTicketsRequest.FromString(raw).round_id != terms[0].round_id:
            return await pass_on(raw)
        if lie == GRANTED:
            return await tickets_for_all(at.service("accountant"), raw)
        return pb.GetTicketsResponse(codes=[lie]).SerializeToString()

    async def hold_back(raw: bytes, pass_on: PassOn) -> bytes:
        answer = await pass_on(raw) if answered else b""
        gateway.instead = {"GetTickets": lie_about_tickets}
        for asked in [await second.round(round_terms.round_id) for round_terms in terms]:
            with suppress(croupier.CroupierError):
                await asked.submit(1, 1.0)
        gateway.instead = {}
        return answer or await pass_on(raw)

    asked = await first.round(terms[0].round_id)
    gateway.instead = {held: hold_back}
    case = f"{held} is held back, answered: {answered}, and the accountant lies with {lie}"
    assert (await asked.submit(1, 1.0)).local_epsilon == 1.0, case
    assert first.spent == SpentHere(1.0, 0.0, 1), case
    assert [len(first.outbox.users(round_terms.round_id)) for round_terms in terms] == [1, 0], case
    assert len({raw for method, raw in gateway.seen if method == "Submit"}) == 1, case  # no second randomization
    store = at.service("shuffler-1").store
    admitted = [await store.run("look", lambda tx: tx.num_submissions(round_terms.round_id)) for round_terms in terms]  # noqa: B023
    assert admitted == [1, 0], case


def publishing(kit: RoundKit) -> None:
    (asked,) = kit.survey.questions
    asked.question.gaussian.local_delta = 0.1
    for budget in asked.budget_grid:
        budget.delta = 0.1


async def test_a_delta_with_which_answers_are_published_is_refused(tmp_path: Path) -> None:
    """600 rounds of (1e-8, 0.1) showed the value of a client whose limit was an ε of 0.001."""
    why = r"local_delta is 0\.1; it must be 1e-15\.\.0\.001"
    async with arena(tmp_path, 2) as at:
        question = Question("income", Gaussian(low=0.0, high=1.0, local_delta=1e-6))
        terms = await at.operator.open_round(settings(question))
        changed = altered(terms, publishing)
        payload = changed.manifest.payload
        request = rpc.SignRequest(manifest=payload, survey=changed.survey)
        for name in at.deployment.chain:
            with pytest.raises(grpc.aio.AioRpcError) as answer:
                await stubs.RoundControlStub(at.operator.channel_to(name)).Sign(request)
            refusal = refusal_of(answer.value)
            assert refusal is not None
            assert refusal.code is Code.BAD_MANIFEST
            assert "local_delta is 0.1; it must be 1e-15..0.001" in str(refusal)
        changed.manifest.signatures.extend(
            at.service(name).peers.identity.sign(Kind.MANIFEST, payload) for name in at.deployment.chain
        )
        for name in at.deployment.chain:
            with pytest.raises(grpc.aio.AioRpcError, match=why):
                await stubs.RoundControlStub(at.operator.channel_to(name)).Open(rpc.OpenRequest(round=changed))
        with pytest.raises(Refusal, match=why):
            accept_manifest(changed, at.deployment)


async def test_a_client_keeps_to_its_limits_of_delta(tmp_path: Path) -> None:
    """Also where it has set a limit of ε only: 1e-5 for one round and for all together."""
    async with arena(tmp_path, 1) as at:
        write_limits(tmp_path / "person" / "limits.toml", Limits(lifetime_epsilon=10.0))
        async with croupier.AsyncClient(
            at.inside.directory, directory=tmp_path / "person", transport=at.inside.transport
        ) as client:
            await at.operator.enrol([PublicKey(bytes.fromhex(client.public_key))])

            async def answer(delta: float) -> croupier.Receipt:
                question = Question("income", Gaussian(low=0.0, high=1.0, local_delta=delta))
                terms = await at.operator.open_round(settings(question))
                return await (await client.round(terms.round_id)).submit(1, 1.0)

            with pytest.raises(croupier.LimitError, match=naming("local δ", "2e-05", "1e-05")):
                await answer(2e-5)
            receipts = [await answer(4e-6) for _ in range(2)]
            assert [(receipt.local_epsilon, receipt.local_delta) for receipt in receipts] == [(1.0, 4e-6)] * 2
            with pytest.raises(croupier.LimitError, match=naming("8e-06", 2, "1.2e-05")):
                await answer(4e-6)
            assert (client.spent.local_epsilon, client.spent.local_delta, client.spent.rounds) == (2.0, 8e-6, 2)
