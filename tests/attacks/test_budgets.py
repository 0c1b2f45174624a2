"""Lying about the budget, and averaging over rounds or over retries."""

from __future__ import annotations

import dataclasses
import math
import sqlite3
import struct
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from croupier import BinaryRandomizedResponse, Budgets, certify
from croupier.accountant.rounds.found import BudgetsFound
from croupier.accountant.service.service import AccountantService
from croupier.client.outbox import Outbox
from croupier.client.submission import Participant, new_client_key, prepare_one
from croupier.deploy.local.users import Fleet
from croupier.protocol.certificates import refusals_of
from croupier.protocol.codes import Assumption, RefusalReason
from croupier.protocol.envelope import HOP_ACCOUNTANT, open_many
from croupier.protocol.errors import Code, Refusal
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import RoundId
from croupier.protocol.onion import BudgetRecord, Onion, decode_budget
from croupier.protocol.statements import Statement
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.kinds import KeyPurpose
from croupier.runtime.setup import ServiceSetup
from croupier.runtime.workers import WorkerPool
from tests.attacks import cheaters
from tests.support import BIT, make_kit, settings, sign_again
from tests.support.arena import Arena, arena
from tests.support.clients import crafted, seal_prepared, stranger, submissions_of, without_tickets
from tests.support.lanes import lane_in
from tests.support.statements import codes

pytestmark = pytest.mark.virtual_time
OFF_THE_GRID = [1e-9, 0.49999, 0.75, 2.0000001, 20.0, 1e300, -1.0, 0.0, math.inf, -math.inf, math.nan]


class BelievesEverybody(AccountantService):
    """An accountant without its defence: every positive number is a budget."""

    def __init__(self, setup: ServiceSetup) -> None:
        super().__init__(setup)
        cheaters.instead(self.check, budgets_with_tickets=self.budgets_with_tickets)

    async def budgets_with_tickets(self, terms: RoundTerms) -> BudgetsFound:
        label = Onion(terms).layer(pb.LANE_PARAMETER, HOP_ACCOUNTANT).label
        keys = await self.store.run("look", lambda tx: tx.keys(terms.round_id))
        ciphertexts = await lane_in(self, terms, pb.LANE_PARAMETER)
        opened = open_many(terms.shared.hpke_suite, keys[KeyPurpose.ENVELOPE].private, label, ciphertexts)
        records = [BudgetRecord.split(plain)[1] for plain in opened if plain is not None]
        return BudgetsFound(Counter(decode_budget(record.budget)[0] for record in records), 0, {})


async def test_a_budget_off_the_grid_counts_for_nothing(
    tmp_path: Path,
) -> None:
    async with arena(tmp_path, 2) as deployment:
        terms = await deployment.filled(settings(), 60, max_local_epsilon=2.0)
        for epsilon in OFF_THE_GRID:
            await deployment.admit(terms, await deployment.craft(terms, 1, epsilon))
        for delta in (0.1, math.nan, *struct.unpack(">d", b"\xff" * 8)):
            await deployment.admit(terms, await deployment.craft(terms, 1, 1.0, delta))
        _, certificate = await deployment.finish(terms)
        liars = len(OFF_THE_GRID) + 3
        assert (certificate.num_users, certificate.invalid_budgets, certificate.num_reports) == (60, liars, 60 + liars)
        assert (certificate.dishonest, certificate.unknown_budgets) == (0, 0)  # they count for nothing
        assert [(tier.local_epsilon, tier.count) for tier in certificate.tiers] == [(2.0, 60)]
        expected = certify(Budgets.from_tiers([(2.0, 60)]), BinaryRandomizedResponse(), delta=1e-4).epsilon
        assert certificate.epsilon == expected


@pytest.mark.slow
async def test_liars_below_the_floor_would_be_taken_for_a_crowd(tmp_path: Path) -> None:
    """They claim to add almost only noise, and send a constant: a certificate that counts them is a false one."""
    true = certify(Budgets.from_tiers([(2.0, 30)]), BinaryRandomizedResponse(), delta=1e-4).epsilon
    certified = []
    for accountant in (BelievesEverybody, AccountantService):
        async with arena(tmp_path / accountant.__name__, 1, {"accountant": accountant}) as deployment:
            terms = await deployment.filled(settings(), 30, max_local_epsilon=2.0)
            await deployment.admit(terms, await deployment.craft(terms, 1, 0.01, count=170))
            _, certificate = await deployment.finish(terms)
            certified.append(certificate.epsilon)
    assert certified[0] < true / 2
    assert certified[1] >= true


async def test_liars_within_the_grid_are_what_f_is_for(tmp_path: Path) -> None:
    """They claim the smallest budget, whose noise hides others best; f takes away just those that would hide best."""
    true = certify(Budgets.from_tiers([(2.0, 60)]), BinaryRandomizedResponse(), delta=1e-4).epsilon
    async with arena(tmp_path, 1) as deployment:
        certified = []
        for f in (0, 20):
            terms = await deployment.filled(dataclasses.replace(settings(), dishonest=f), 60, max_local_epsilon=2.0)
            await deployment.admit(terms, await deployment.craft(terms, 1, 0.5, count=20))
            _, certificate = await deployment.finish(terms)
            certified.append(certificate.epsilon)
        assert certified[0] < 0.9 * true
        assert certified[1] == pytest.approx(true, rel=1e-4)  # two upper bounds of one number


def test_an_honest_client_never_spends_more_than_its_maximum() -> None:
    terms = make_kit().terms
    for epsilon in (0.4999, 0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="max_local_epsilon is"):
            prepare_one(terms, Onion(terms), Participant(1, epsilon))


@pytest.mark.slow
async def test_the_ledger_stops_averaging_over_rounds(tmp_path: Path) -> None:
    """Without a limit every round is granted, with one they end; a restarted accountant has forgotten nothing.

    A limit that takes terms to be fixed admits at least as many, and every certificate says so.
    """
    granted: dict[str, list[bool]] = {}
    limited = "\n[privacy_limit]\ntotal_epsilon = 0.25\ntotal_delta = 3e-4\n"
    for name, limit in (("free", ""), ("limited", limited), ("fixed", f"{limited}fixed_terms = true\n")):
        granted[name] = []
        async with arena(tmp_path / name, 1, more=limit) as deployment:
            for number in range(3):
                terms = await deployment.filled(settings(), 150, round_id=RoundId(f"round-{number}"))
                publication, certificate = await deployment.finish(terms)
                assert bool(publication.values) is certificate.granted
                granted[name].append(certificate.granted)
                assert (Assumption.FIXED_TERMS in codes(certificate.assumptions)) is (
                    name == "fixed" and certificate.granted
                )
                if number == 1:
                    await deployment.inside.restart("accountant")
            if name == "limited":
                assert codes(certificate.refusals)[-1] == RefusalReason.LEDGER_LIMIT
                keys = await deployment.look("accountant", lambda tx: tx.keys(RoundId("round-2")))
                assert keys == {}
    assert granted["free"] == [True] * 3
    assert sum(granted["fixed"]) >= sum(granted["limited"])
    assert granted["limited"][0] is True
    assert granted["limited"][-1] is False
    assert granted["limited"] == sorted(granted["limited"], reverse=True)


@pytest.mark.slow
async def test_a_round_from_before_a_lower_limit_keeps_to_it(tmp_path: Path) -> None:
    """An operator opens a round, lowers the limit, promises that one to others, and closes the first round last."""
    async with arena(tmp_path, 1, more="\n[privacy_limit]\ntotal_epsilon = 5.0\ntotal_delta = 3e-4\n") as at:
        before = await at.filled(settings(), 150)
        file = at.inside.directory / "deployment.toml"
        file.write_text(file.read_text().replace("total_epsilon = 5.0", "total_epsilon = 0.25"))
        sign_again(at.inside.directory)
        names = list(at.inside.running)
        await at.inside.restart(*names)
        async with at.inside.operator() as operator, operator.client_channel() as channel:
            later = Arena(at.inside, operator, channel)
            promised = await operator.open_round(settings())
            await later.admit(promised, await later.seal(promised, 150))
            assert (await later.finish(promised))[1].granted
            _, certificate = await later.finish(before)
        assert not certificate.granted
        assert Statement.of(RefusalReason.LEDGER_LIMIT_NOW, epsilon=0.25, delta=3e-4) in refusals_of(certificate)


class LosesAnswers(cheaters.CheatingShuffler):
    """Takes every submission and says that it is not there, in the hope of a second, freshly randomized one."""

    async def Submit(self, request: pb.SubmitRequest, context: cheaters.Context) -> pb.SubmitResponse:  # noqa: N802
        self.bodies = [*getattr(self, "bodies", []), request.SerializeToString(deterministic=True)]
        answer = await super().Submit(request, context)
        if len(self.bodies) < 5:
            raise Refusal(Code.STORE_FAILED)
        return answer


async def test_a_hop_that_pretends_to_lose_a_submission_gets_the_same_bytes(tmp_path: Path) -> None:
    """Restarting the client changes nothing. Of one that randomizes again, the hop would have five coins, not one."""
    pool = WorkerPool(1)
    async with arena(tmp_path, 1, {"shuffler-1": LosesAnswers}) as deployment:
        terms = await deployment.operator.open_round(settings(BIT))
        victim = {"victim": Participant(1, 0.5)}
        for _ in range(2):
            outbox = Outbox(tmp_path / "outbox.db")
            async with deployment.operator.client_channel("accountant") as accountant:
                fleet = Fleet(deployment.channel, accountant, outbox, pool, deployment.operator.enrol)
                await fleet.answer(terms, victim)
            outbox.close()
            with closing(sqlite3.connect(tmp_path / "outbox.db")) as db, db:
                db.execute("UPDATE sealed SET acknowledged = 0")  # as if the client had died before it noted the answer
        hop = deployment.service_as("shuffler-1", LosesAnswers)
        assert len(hop.bodies) == 6
        assert len(set(hop.bodies)) == 1
        without_a_memory = {without_tickets(terms, victim["victim"]).submission for _ in range(5)}
        assert len(without_a_memory) == 5
    pool.close()


async def test_another_body_under_the_same_name_is_refused_for_ever(tmp_path: Path) -> None:
    async with arena(tmp_path, 1) as deployment:
        terms = await deployment.operator.open_round(settings())
        key = new_client_key()
        (first,) = submissions_of(await seal_prepared(deployment.operator, terms, [crafted(terms, 0, 0.5, key=key)]))
        second = stranger(terms, key)
        await deployment.admit(terms, [first, *await deployment.seal(terms, 25)])
        others = [stranger(terms, key) for _ in range(19)]
        codes = await deployment.submit(terms, [first, second, *others])
        assert codes == [pb.SUBMISSION_CODE_ACCEPTED, *[pb.SUBMISSION_CODE_ALREADY_EXISTS] * 20]
        await deployment.inside.restart("shuffler-1")
        assert await deployment.submit(terms, [second]) == [pb.SUBMISSION_CODE_ALREADY_EXISTS]
        publication, certificate = await deployment.finish(terms)
        assert (publication.num_reports, certificate.num_users) == (26, 26)
        assert [(tier.local_epsilon, tier.count) for tier in certificate.tiers] == [(0.5, 1), (1.0, 25)]
