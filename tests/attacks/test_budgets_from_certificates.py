"""Hop 1 loses budgets that it chooses, and looks in the certificate for the budget of one person.

It knows who sent which joint envelope, so it decides whose budgets reach the accountant; for all others it passes on
budgets of its own, which have no ticket. What hop 1 sees afterwards is the signed certificate, like everybody.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from scipy.stats import binom

from croupier.accountant.rounds.found import BudgetsFound
from croupier.accountant.rounds.ledger import Ledger
from croupier.accountant.service.tier_counts import noised
from croupier.accountant.spending import BudgetsTold
from croupier.client.submission import Participant, SealedSubmission
from croupier.operator.round_settings import RoundSettings
from croupier.protocol.codes import RefusalReason
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.names import Lane
from croupier.protocol.tier_counts import BudgetPrivacy
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.protocol.v1 import services_pb2_grpc as stubs
from croupier.runtime.setup import ServiceSetup
from tests.attacks import cheaters
from tests.support import make_kit, settings
from tests.support.arena import Arena, arena
from tests.support.clients import seal_all_of, submissions_of
from tests.support.statements import codes, parameters

pytestmark = pytest.mark.virtual_time
GRID = (0.5, 1.0, 2.0, 4.0)
CROWD = 64
"""One of these people uses a rare budget; six bits name that person."""


class ChoosesBudgets(cheaters.CheatingShuffler):
    """A first hop that passes on the budgets of some people; the others' it replaces by budgets without a ticket."""

    def __init__(self, setup: ServiceSetup) -> None:
        super().__init__(setup)
        self.passed_on: Collection[bytes] | None = None

    def tamper(self, terms: RoundTerms, lanes: cheaters.Lanes, drops: dict[Lane, dict[str, int]]) -> None:
        if self.passed_on is not None:
            batch = lanes[pb.LANE_PARAMETER]
            batch[:] = [
                sealed if hashlib.sha256(sealed).digest() in self.passed_on else cheaters.own_budget(terms, 1, GRID[0])
                for sealed in batch
            ]


def budget_of(sealed: SealedSubmission) -> bytes:
    """Returns the hash of the budget as hop 1 passes it on."""
    return sealed.inclusion_hashes[32:64]


async def ruined(
    at: Arena, chosen: RoundSettings, budgets: Sequence[float], passed_on: Collection[int] | None
) -> pb.Certificate:
    """Plays a round of people with these budgets, of which those at these indices reach the accountant; None: all."""
    terms = await at.operator.open_round(chosen)
    sealed = await seal_all_of(at.operator, terms, [Participant(1, budget) for budget in budgets])
    hop = at.service_as("shuffler-1", ChoosesBudgets)
    hop.passed_on = None if passed_on is None else {budget_of(sealed[index]) for index in passed_on}
    await at.admit(terms, submissions_of(sealed))
    publication, certificate = await at.finish(terms)
    assert bool(publication.values) is certificate.granted
    return certificate


def what_it_tells(certificate: pb.Certificate) -> bytes:
    """Returns the certificate without what differs in every round, whatever the budgets are."""
    told = pb.Certificate.FromString(certificate.SerializeToString())
    for field in ("round_id", "manifest_hash", "batch_digest", "reports_digest", "commitments"):
        told.ClearField(field)
    return told.SerializeToString(deterministic=True)


COLLUDERS = replace(settings(min_batch_size=5), budget_grid=GRID, dishonest=4)
"""Four clients of hop 1's own, which the round allows for, and one person: five budgets with a ticket."""


@pytest.mark.parametrize(
    ("chosen", "colluders", "epsilon_max"),
    [
        (replace(COLLUDERS, dishonest=0), (), 0.01),
        (replace(COLLUDERS, dishonest=0), (), 4.0),
        (COLLUDERS, (2.0,) * 4, 0.01),
    ],
    ids=[
        "alone in a round that is ruined",
        "alone in a round with any epsilon",
        "among colluders in a round that is ruined",
    ],
)
async def test_hop_1_reads_no_budget_that_it_isolates(
    tmp_path: Path, chosen: RoundSettings, colluders: Sequence[float], epsilon_max: float
) -> None:
    """Reproduction: "1 user of local ε 2", granted or not.

    In a ruined round two defences each suffice: too few budgets end the round before anything is computed, and a
    refused certificate shows nothing that was computed.
    """
    async with arena(tmp_path, 2, {"shuffler-1": ChoosesBudgets}) as at:
        told = set()
        for victim in (0.5, 2.0, 4.0):
            crowd = (1.0,) * 5
            certificate = await ruined(
                at,
                replace(chosen, epsilon_max=epsilon_max),
                (victim, *colluders, *crowd),
                range(1 + len(colluders)),
            )
            assert not certificate.granted
            assert certificate.unknown_budgets == len(crowd)
            told.add(what_it_tells(certificate))
    assert len(told) == 1


_LIMIT = "\n[privacy_limit]\ntotal_epsilon = 50.0\ntotal_delta = 1e-2\n"
OWNER = 0b101101
BUDGETS = [4.0 if index == OWNER else 0.5 for index in range(CROWD)]


def half(number: int) -> list[int]:
    """Returns the people in whose index this bit is set."""
    return [index for index in range(CROWD) if index >> number & 1]


@pytest.mark.slow
async def test_six_ruined_rounds_do_not_find_the_owner_of_a_rare_budget(tmp_path: Path) -> None:
    """Reproduction: half of 64 budgets in each, and the refused certificates said in which halves the rare one was."""
    async with arena(tmp_path, 1, {"shuffler-1": ChoosesBudgets}) as at:
        chosen = replace(settings(epsilon_max=0.01), budget_grid=GRID)
        told = {what_it_tells(await ruined(at, chosen, BUDGETS, half(number))) for number in range(6)}
    assert len(told) == 1


@pytest.mark.slow
async def test_rounds_that_hop_1_ruins_count_as_rounds_that_show_budgets(tmp_path: Path) -> None:
    """With a limit that allows any epsilon every granted round halves the suspects: only their number is limited."""
    limit = "\n[privacy_limit]\ntotal_epsilon = 50.0\ntotal_delta = 1e-2\nmax_rounds = 3\n"
    async with arena(tmp_path, 1, {"shuffler-1": ChoosesBudgets}, limit) as at:
        chosen = replace(settings(), budget_grid=GRID)
        refused = await ruined(at, replace(chosen, epsilon_max=0.01), BUDGETS, half(0))
        granted = [await ruined(at, chosen, BUDGETS, half(number)) for number in range(2)]
        withheld = await ruined(at, chosen, BUDGETS, half(2))
    shown = [any(tier.local_epsilon == 4.0 for tier in certificate.tiers) for certificate in granted]
    assert shown == [OWNER in half(number) for number in range(2)]
    assert all(certificate.unknown_budgets == CROWD // 2 for certificate in granted)  # everybody sees the loss
    assert [certificate.granted for certificate in (refused, withheld)] == [False, False]
    assert [list(certificate.tiers) for certificate in (refused, withheld)] == [[], []]
    assert parameters(withheld.refusals, RefusalReason.ROUNDS_SHOWN) == {"rounds": 3}


@pytest.mark.slow
async def test_withheld_rounds_count_as_rounds_that_show_budgets(tmp_path: Path) -> None:
    """A round that ends for too few budgets, before anything is computed, has told as much."""
    limit = "\n[privacy_limit]\ntotal_epsilon = 50.0\ntotal_delta = 1e-2\nmax_rounds = 1\n"
    budgets = (2.0, *(0.5,) * 9)
    async with arena(tmp_path, 1, {"shuffler-1": ChoosesBudgets}, limit) as at:
        chosen = replace(settings(min_batch_size=5), budget_grid=GRID)
        too_few = await ruined(at, chosen, budgets, range(1))
        one_more = await ruined(at, chosen, budgets, None)
    assert codes(too_few.refusals) == [RefusalReason.TOO_FEW_BUDGETS]
    assert codes(one_more.refusals) == [RefusalReason.ROUNDS_SHOWN]


async def test_a_budget_that_one_of_two_granted_rounds_lost_shows_as_lost(tmp_path: Path) -> None:
    """Two granted rounds of the same people tell the budget that hop 1 kept from one of them, and that it did so."""
    budgets = [2.0, *(0.5,) * 15, *(2.0,) * 14]
    async with arena(tmp_path, 2, {"shuffler-1": ChoosesBudgets}) as at:
        chosen = replace(settings(), budget_grid=GRID)
        whole = await ruined(at, chosen, budgets, None)
        without = await ruined(at, chosen, budgets, range(1, len(budgets)))
    counts = [{tier.local_epsilon: tier.count for tier in certificate.tiers} for certificate in (whole, without)]
    assert {budget: counts[0][budget] - counts[1][budget] for budget in counts[0]} == {0.5: 0, 2.0: 1}
    assert (whole.unknown_budgets, without.unknown_budgets) == (0, 1)


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon_max", "limit"), [(1.6, ""), (0.3, _LIMIT)], ids=["no limit", "all refused"])
async def test_what_is_said_of_a_held_round_depends_on_no_budget(
    tmp_path: Path, epsilon_max: float, limit: str
) -> None:
    """Hop 1 and the operator ask for forecasts, with any numbers, before and after the accountant has the budgets.

    With a limit a forecast says what the ledger has left, where a granted round shows its budgets, and a refused none.
    """
    chosen = replace(settings(epsilon_max=epsilon_max), budget_grid=GRID)
    async with arena(tmp_path, 2, more=limit) as at:
        hop = at.service("shuffler-1")
        told: list[list[bytes]] = []
        for budgets in ([0.5] * 20, [0.5] * 19 + [4.0], [4.0] * 20):
            terms = await at.operator.open_round(chosen)
            sealed = await seal_all_of(at.operator, terms, [Participant(1, budget) for budget in budgets])
            await at.admit(terms, submissions_of(sealed))
            closing = await at.operator.close_round(terms.round_id, hold_at_risk=True)
            assert closing.state == pb.ROUND_STATE_OPEN
            said = [closing.forecast]
            await at.operator.close_round(terms.round_id)
            await at.operator.result(terms.round_id, 60.0)
            stub = stubs.AccountantStub(hop.peers.channel_to("accountant"))
            asked = [rpc.ForecastRequest(round_id=terms.round_id, num_reports=number) for number in (1, 20, 500)]
            said += [await stub.Forecast(request) for request in asked]
            for forecast in said:
                forecast.ledger.ClearField("num_shown")  # one more with every round, whatever its budgets
                forecast.ledger.ClearField("num_exact")  # the same
            told.append([forecast.SerializeToString(deterministic=True) for forecast in said])
        assert told[0] == told[1] == told[2]


NOISED = replace(COLLUDERS, budget_privacy=1.0)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, 0.0], ids=["noised counts", "exact counts, the defence taken away"])
async def test_hop_1_isolates_one_person_among_colluders_in_a_granted_round(tmp_path: Path, epsilon: float) -> None:
    """Four colluders make up the smallest batch around the victim, and any epsilon is granted."""
    async with arena(tmp_path, 1, {"shuffler-1": ChoosesBudgets}) as at:
        told = []
        for victim in (0.5, 2.0, 4.0):
            people = (victim, *(1.0,) * 4, *(1.0,) * 5)
            certificate = await ruined(at, replace(NOISED, budget_privacy=epsilon), people, range(5))
            assert certificate.granted
            told.append({tier.local_epsilon: tier.count for tier in certificate.tiers})
    if epsilon:  # of each budget about 27 more are left out than there are
        assert told == [dict.fromkeys(GRID, 0)] * 3
    else:
        assert told == [{victim: 1, 1.0: 4} for victim in (0.5, 2.0, 4.0)]


@pytest.mark.slow
async def test_six_granted_rounds_do_not_find_the_owner_of_a_rare_budget(tmp_path: Path) -> None:
    """Half of 64 budgets in each; with exact counts these rounds show all six bits (the test above)."""
    async with arena(tmp_path, 1, {"shuffler-1": ChoosesBudgets}) as at:
        chosen = replace(settings(), budget_grid=GRID, budget_privacy=1.0)
        granted = [await ruined(at, chosen, BUDGETS, half(number)) for number in range(6)]
        ledger = await at.look("accountant", lambda tx: Ledger(tx.connection).budgets_told())
    assert all(certificate.granted for certificate in granted)
    assert [{tier.local_epsilon: tier.count for tier in certificate.tiers}[4.0] for certificate in granted] == [0] * 6
    assert ledger == BudgetsTold(6.0, 6e-6, 6, 0)


@pytest.mark.slow
def test_differences_over_50_rounds_find_no_more_than_they_compose_to() -> None:
    """Hop 1 knows the budgets of all others, and guesses by the likelihood of what the counts of 50 rounds are.

    Each count has one of two privacy losses, so the best success is that of telling two binomial laws apart.
    """
    privacy, rounds, victims, others = BudgetPrivacy(0.1, 1e-6), 50, 200, 600
    noised_by = pb.BudgetPrivacy(epsilon=privacy.epsilon, delta=privacy.delta)
    terms, right, right_by_exact_counts = make_kit(budget_privacy=noised_by).terms, 0, 0
    least, most = terms.budget_grid[0], terms.budget_grid[-1]
    mean = others + 0.5 - privacy.radius  # a larger count than this has the larger likelihood with one more user
    for number in range(victims):
        own, score = (least, most)[number % 2], 0
        exact = BudgetsFound(Counter({least: others, most: others}) + Counter([own]), 0, {})
        for _ in range(rounds):
            counts = noised(Forgets(), terms, exact).counts  # type: ignore[arg-type]
            score += (1 if counts[most] > mean else -1) - (1 if counts[least] > mean else -1)
        guess = most if score > 0 else least if score < 0 else secrets.choice((least, most))
        right += guess == own
        right_by_exact_counts += (most if exact.counts[most] > others else least) == own
    law = binom(2 * rounds, 1 / (1 + math.exp(-privacy.epsilon / 2)))
    allowed = float(law.sf(rounds) + law.pmf(rounds) / 2) + rounds * privacy.delta
    assert allowed < 0.62
    assert binom.sf(right - 1, victims, allowed) > 1e-6
    assert right_by_exact_counts == victims  # the defence taken away: one round is enough


class Forgets:
    """A transaction of a round of its own for every call."""

    def document(self, *_: object) -> None:
        return None

    def put_document(self, *_: object) -> None:
        pass
