"""An accountant that refuses until a hop has drawn numbers of fakes that hide nothing: it must see one draw only.

For three and more values the number of fakes is drawn, and a request for tickets shows it. A party that could repeat
the draw could wait for an extreme one, which gives a report away: after N draws with N times the delta of the round.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from croupier.accountant.service.service import AccountantService
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.fake_law import FakeLaw
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.questions import Question
from croupier.protocol.tickets import BLINDED_BYTES
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.kinds import DocumentKind
from croupier.runtime.noise import draw_fakes
from croupier.runtime.setup import ServiceSetup
from croupier.runtime.steps import StoreStep
from croupier.runtime.transaction import Transaction
from croupier.shuffler.noise_ledger import NoiseLedger
from croupier.shuffler.service import ShufflerService
from tests.attacks.cheaters import instead
from tests.support import BIT, settings
from tests.support.arena import Arena, arena
from tests.support.messages import refuses

pytestmark = pytest.mark.virtual_time
PEOPLE = 6
NOISY = replace(settings(Question("letter", KaryResponse(k=4)), min_batch_size=2), hop_noise=1.0, budget_grid=(2.0,))

BITS = replace(NOISY, question=BIT)
HOPS = ("shuffler-1", "shuffler-2")


class SeesRequests(AccountantService):
    """It keeps every request of a hop for tickets of fakes, and refuses the first ones after it has read them."""

    refusals = 0

    def __init__(self, setup: ServiceSetup) -> None:
        super().__init__(setup)
        self.seen: list[tuple[str, bytes]] = []
        self.honest = self.desk.give_fakes
        instead(self.desk, give_fakes=self.give_fakes)

    async def give_fakes(self, terms: RoundTerms, hop: str, blinded: bytes) -> pb.GetFakeTicketsResponse:
        self.seen.append((hop, blinded))
        if len(self.seen) <= self.refusals:
            raise Refusal(Code.INTERNAL)
        return await self.honest(terms, hop, blinded)


class WaitsForAnExtremeDraw(SeesRequests):
    """It answers the first requests of a hop with an internal error."""

    refusals = 6


async def test_an_accountant_that_fails_again_and_again_sees_one_draw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws: list[list[int]] = []

    def draw(law: FakeLaw) -> list[int]:
        draws.append(draw_fakes(law))
        return draws[-1]

    monkeypatch.setattr("croupier.shuffler.fake_reports.draw_fakes", draw)
    async with arena(tmp_path, 1, {"accountant": WaitsForAnExtremeDraw}) as at:
        terms = await at.filled(NOISY, PEOPLE, max_local_epsilon=2.0)
        _, certificate = await at.finish(terms)
        accountant = at.service_as("accountant", WaitsForAnExtremeDraw)
        seen = accountant.seen
    assert certificate.granted
    assert len(seen) == WaitsForAnExtremeDraw.refusals + 1
    assert len(set(seen)) == 1
    assert len(draws) == 1


@pytest.mark.slow
async def test_a_hop_that_fails_a_hundred_times_adds_one_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Failures before and behind the commit of the draw, and before and behind the accountant's.

    A hop that has failed knows what its store holds, and nothing else, like one that was killed.
    """
    async with arena(tmp_path, 1) as at:
        terms = await at.operator.open_round(NOISY)
        accountant, hop = at.service("accountant"), at.service("shuffler-1")
        assert isinstance(accountant, AccountantService)
        assert isinstance(hop, ShufflerService)
        give, run = accountant.desk.give_fakes, hop.store.run
        seen: list[bytes] = []
        kept: list[str] = []

        async def give_fakes(terms: RoundTerms, hop: str, blinded: bytes) -> pb.GetFakeTicketsResponse:
            seen.append(blinded)
            if len(seen) % 2:
                raise Refusal(Code.INTERNAL)
            await give(terms, hop, blinded)
            raise Refusal(Code.INTERNAL)

        async def failing(name: str, work: Callable[[Transaction], Any]) -> Any:
            if name != StoreStep.KEEP_FAKES or len(kept) == 2:
                return await run(name, work)
            kept.append(name)
            if len(kept) == 2:
                await run(name, work)
            raise Refusal(Code.STORE_FAILED)

        instead(accountant.desk, give_fakes=give_fakes)
        monkeypatch.setattr(hop.store, "run", failing)
        for _ in range(100):
            with pytest.raises(Refusal):
                await hop.fakes.make(terms)
        instead(accountant.desk, give_fakes=give)
        fakes = await hop.fakes.make(terms)
        assert await accountant.desk.fake_tickets(terms) == [len(fakes)]
    assert len(seen) == 98
    assert len(set(seen)) == 1
    assert len(fakes) * BLINDED_BYTES == len(seen[0])


async def test_a_round_withdrawn_after_its_draw_counts_in_the_hops_ledger(
    tmp_path: Path,
) -> None:
    """Otherwise a party that withdraws rounds until a draw is extreme would pay for one draw and have any number."""
    async with arena(tmp_path, 1, {"accountant": WaitsForAnExtremeDraw}) as at:
        terms = await at.filled(NOISY, PEOPLE, max_local_epsilon=2.0)
        await at.operator.close_round(terms.round_id)
        accountant = at.service_as("accountant", WaitsForAnExtremeDraw)
        await at.until(lambda: bool(accountant.seen))
        assert await at.operator.withdraw(terms.round_id)
        spent = await at.look("shuffler-1", lambda tx: NoiseLedger(tx.connection).stated(None))
    assert spent.rounds == 1


async def kept_fakes(at: Arena, terms: RoundTerms) -> list[bytes | None]:
    """Returns what each hop keeps of its draw for a round."""
    stores = [at.service(name).store for name in HOPS]
    return [await store.run("look", lambda tx: tx.document(terms.round_id, DocumentKind.FAKES)) for store in stores]


async def rounds_spent(at: Arena) -> list[int]:
    """Returns how many rounds each hop's own ledger counts."""
    stores = [at.service(name).store for name in HOPS]
    return [(await store.run("look", lambda tx: NoiseLedger(tx.connection).stated(None))).rounds for store in stores]


async def test_fakes_of_two_values_are_made_before_the_close_from_one_draw(tmp_path: Path) -> None:
    """Their number is fixed, so a request for tickets shows nothing, also of a hop that starts again."""
    async with arena(tmp_path, 2, {"accountant": SeesRequests}) as at:
        accountant = at.service_as("accountant", SeesRequests)
        terms = await at.operator.open_round(BITS)
        assert terms.fakes is not None
        law = terms.fakes.law
        await at.until(lambda: len(accountant.seen) == 2)
        await at.inside.restart("shuffler-2")
        await at.until(lambda: len(accountant.seen) == 3)
        assert all(await kept_fakes(at, terms))
        await at.admit(terms, await at.seal(terms, PEOPLE, max_local_epsilon=2.0))
        _, certificate = await at.finish(terms)
    assert certificate.granted
    assert list(certificate.fake_tickets) == [law.most, law.most]
    assert {len(blinded) for _, blinded in accountant.seen} == {law.most * BLINDED_BYTES}
    assert len(set(accountant.seen)) == 2


async def test_a_withdrawn_round_keeps_no_early_fakes_and_costs_nothing(tmp_path: Path) -> None:
    async with arena(tmp_path, 2, {"accountant": SeesRequests}) as at:
        accountant = at.service_as("accountant", SeesRequests)
        terms = await at.operator.open_round(BITS)
        await at.until(lambda: len(accountant.seen) == 2)
        assert await rounds_spent(at) == [1, 1]
        assert await at.operator.withdraw(terms.round_id)
        assert await kept_fakes(at, terms) == [None, None]
        assert await rounds_spent(at) == [0, 0]


async def test_a_round_withdrawn_while_its_fakes_are_sealed_keeps_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The draw arrives at the store behind the withdrawal, which would leave it there for ever."""
    async with arena(tmp_path, 2) as at:
        hop = at.service_as("shuffler-1", ShufflerService)
        run, late = hop.store.run, list[Callable[[Transaction], Any]]()

        async def holding(name: str, work: Callable[[Transaction], Any]) -> Any:
            if name != StoreStep.KEEP_FAKES:
                return await run(name, work)
            late.append(work)
            raise Refusal(Code.STORE_FAILED)

        monkeypatch.setattr(hop.store, "run", holding)
        terms = await at.operator.open_round(BITS)
        await at.until(lambda: bool(late))
        assert await at.operator.withdraw(terms.round_id)
        with refuses(Code.WRONG_STATE):
            await run(StoreStep.KEEP_FAKES, late[0])
        assert (await kept_fakes(at, terms))[0] is None


async def test_a_number_of_fakes_that_is_drawn_is_not_shown_before_the_close(tmp_path: Path) -> None:
    async with arena(tmp_path, 2, {"accountant": SeesRequests}) as at:
        accountant = at.service_as("accountant", SeesRequests)
        terms = await at.filled(NOISY, PEOPLE, max_local_epsilon=2.0)
        assert await kept_fakes(at, terms) == [None, None]
        assert accountant.seen == []
        _, certificate = await at.finish(terms)
    assert certificate.granted
    assert len(accountant.seen) == 2
