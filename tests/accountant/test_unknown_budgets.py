"""Clients whose budget did not arrive: what the certificate says of them, and what the ledger is charged."""

from __future__ import annotations

import math

import numpy as np
import pytest
import sqlalchemy as sa

from croupier import Budgets, certify
from croupier.accountant.mechanisms.registry import randomizer_of
from croupier.accountant.recorded_profile import RecordedProfile
from croupier.accountant.rounds.ledger import Ledger
from croupier.accountant.rounds.round_guarantee import certify_into
from croupier.accountant.spending import Entry
from croupier.protocol.codes import RefusalReason
from croupier.protocol.mechanisms.base import Mechanism
from croupier.protocol.mechanisms.choices import MultipleChoice
from croupier.protocol.mechanisms.gaussian import Gaussian
from croupier.protocol.mechanisms.hemisphere import Hemisphere
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.laplace import Laplace
from croupier.protocol.mechanisms.onebit import OneBit
from croupier.protocol.mechanisms.rr import RandomizedResponse
from croupier.protocol.mechanisms.vector_task import VectorTask
from croupier.protocol.names import Digest, RoundId
from croupier.protocol.questions import Question
from croupier.protocol.v1 import messages_pb2 as pb
from tests.support import make_kit
from tests.support.mechanisms import EXAMPLES
from tests.support.oracles.from_definitions import count_law
from tests.support.statements import parameters

MIXTURES = [
    RandomizedResponse(),
    KaryResponse(5),
    MultipleChoice(4),
    OneBit(0.0, 1.0),
    Hemisphere(VectorTask(3, 1.0, "m", bytes(12))),
]
NOISE = Laplace(low=0.0, high=1.0, lattice=100)


def certified(
    mechanism: Mechanism, *tiers: tuple[float, int], dishonest: int = 1, of_largest: float = 4.0
) -> tuple[pb.Certificate, int]:
    """Returns the certificate of a round in which one budget was lost, and how many entries the ledger has of it."""
    limit = pb.PrivacyLimit(total_epsilon=9.0, total_delta=1e-3)
    kit = make_kit(question=Question("q", mechanism), delta=1e-4, epsilon_max=4.0, privacy_limit=limit)
    kit.survey.questions[0].budget_grid[2].epsilon_max = of_largest
    terms = kit.terms
    message = pb.Certificate(delta=1e-4, unknown_budgets=1, dishonest=dishonest)
    entries = certify_into(message, terms, list(tiers))
    with sa.create_engine("sqlite://").begin() as connection:
        ledger = Ledger(connection)
        ledger.enter(RoundId("r"), Digest(b""), entries)
        ((_, _, kept),) = ledger.entered()
    assert max(entry.epsilon for entry in kept) == message.epsilon
    return message, len(kept)


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MIXTURES, ids=lambda mechanism: mechanism.kind)
def test_the_largest_budget_of_the_grid_speaks_for_all(mechanism: Mechanism) -> None:
    """The claim on which it rests, with numbers: what is certified of a victim grows with its own budget."""
    certificates = [
        certify([0.5] * 30 + [1.0] * 30 + [own], randomizer_of(mechanism), delta=1e-4, attack=False)
        for own in (0.1, 0.7, 2.0, 4.0)
    ]
    own = [next(tier.epsilon for tier in certificate.tiers if tier.count == 1) for certificate in certificates]
    assert own == sorted(own)
    message, entries = certified(mechanism, (0.5, 30), (1.0, 30))
    expected = certify(
        Budgets.from_tiers([(0.5, 30), (1.0, 30), (2.0, 1)]), randomizer_of(mechanism), delta=1e-4, dishonest=1
    )
    assert message.unknown_budget_epsilon == message.epsilon == expected.tiers[-1].epsilon
    assert entries == 3


def test_one_of_the_largest_budget_has_been_certified_already() -> None:
    message, entries = certified(RandomizedResponse(), (0.5, 30), (2.0, 30))
    assert message.unknown_budget_epsilon == message.tiers[-1].epsilon == message.epsilon
    assert entries == 2


@pytest.mark.slow
@pytest.mark.parametrize(("tiers", "least"), [(((2.0, 60),), 1.0), (((0.5, 60),), 1.0), (((0.5, 30), (1.0, 30)), 0.0)])
def test_with_noise_a_smaller_budget_may_show_more(tiers: tuple[tuple[float, int], ...], least: float) -> None:
    """Unused budgets below the largest are certified nothing but themselves: 1 in the first two cases."""
    message, entries = certified(NOISE, *tiers)
    largest = certify(
        Budgets.from_tiers([*tiers, (2.0, 1)]), randomizer_of(NOISE), delta=1e-4, dishonest=1, attack=False
    ).tiers[-1]
    assert message.unknown_budget_epsilon >= max(least, *(tier.epsilon for tier in message.tiers))
    assert message.unknown_budget_epsilon >= largest.epsilon or tiers[-1][0] == 2.0
    assert entries == len(tiers) + (tiers[-1][0] != 2.0)


@pytest.mark.parametrize(("spent", "refused"), [(1e-3, True), (1e-6, False), (1e-8, False)])
def test_a_budget_that_nobody_known_uses_is_certified_at_its_own_delta(spent: float, refused: bool) -> None:
    """Among 1,000 of 2, with 10^-3, one of 0.5 has (0.5, 10^-3) and no more: the count of reports above 11 tells."""
    noise = Question("q", Gaussian(low=0.0, high=1.0, lattice=100, local_delta=spent))
    kit = make_kit(question=noise, grid=(0.5, 2.0), epsilon_max=4.0)
    message = pb.Certificate(delta=1e-6, unknown_budgets=1)
    entries = certify_into(message, kit.terms, [(2.0, 1000)])
    assert max(entry.epsilon for entry in entries) == message.epsilon >= 0.5
    assert max(entry.delta for entry in entries) == max(spent, 1e-6)
    assert len(message.refusals) == refused
    if refused:
        assert parameters(message.refusals, RefusalReason.DELTA_ABOVE_LIMIT) == {"delta": 1e-3, "most": 1e-6}


@pytest.mark.parametrize("small", [0.1, 0.17])
def test_the_ledgers_curve_holds_for_a_client_of_an_unused_budget(small: float) -> None:
    """Its wide noise shows beside that of the others; the round's number is above its budget, the curve was not."""
    limit = pb.PrivacyLimit(total_epsilon=9.0, total_delta=1e-3)
    kit = make_kit(question=Question("q", NOISE), grid=(small, 2.0), epsilon_max=4.0, privacy_limit=limit)
    entries = certify_into(pb.Certificate(delta=1e-6, unknown_budgets=1), kit.terms, [(2.0, 2000)])
    assert entries[-1].epsilon > small
    kept = RecordedProfile([entry.profile for entry in entries])

    def chance(epsilon: float, steps: int) -> float:
        """Returns the chance of noise of at least this number of steps of the lattice."""
        ratio = math.exp(-epsilon / 100)
        return ratio**steps / (1 + ratio)

    # The others are at 0, the client at 0 or 1; how many reports are at 6 or above.
    low, high = (count_law([(chance(2.0, 600), 2000), (chance(small, 600 - value), 1)]) for value in (0, 100))
    for share in (0.0, 0.3, 0.6):
        gain = math.exp(share * small)
        assert float(np.maximum(high - gain * low, 0).sum()) - 1e-12 <= kept.delta(share * small).value


def test_a_client_of_a_tier_that_a_round_lacks_may_have_taken_part() -> None:
    small, large = (Entry(epsilon, 0.0, 10, epsilon / 4, 1e-6) for epsilon in (0.5, 2.0))
    with sa.create_engine("sqlite://").begin() as connection:
        ledger = Ledger(connection)
        ledger.enter(RoundId("complete"), Digest(b""), [large])
        ledger.enter(RoundId("both"), Digest(b""), [small, large], unknown=True)
        ledger.enter(RoundId("other"), Digest(b""), [large], unknown=True)
        assert ledger.unknown_rounds() == {"both", "other"}
        spent = {tier.tier: (tier.rounds, tier.guarantee) for tier in ledger.spent(1e-3)}
    rounds, guarantee = spent["local ε 0.5"]
    assert guarantee is not None
    assert rounds == 2
    assert guarantee.epsilon == pytest.approx(0.5 / 4 + 2.0 / 4, rel=0.01)
    assert spent["local ε 2"][0] == 3


def test_a_policy_for_a_budget_holds_for_a_client_that_may_have_it() -> None:
    """No known client uses local ε 2, and its limit is the one that the round breaks."""
    message, _ = certified(RandomizedResponse(), (0.5, 3), (1.0, 3), of_largest=0.1)
    assert parameters(message.refusals, RefusalReason.BUDGET_ABOVE_LIMIT)["local_epsilon"] == 2.0
    message, _ = certified(RandomizedResponse(), (0.5, 3), (1.0, 3))
    assert not message.refusals


@pytest.mark.parametrize("mechanism", [example.mechanism for example in EXAMPLES.values()], ids=EXAMPLES)
def test_every_kind_is_taken_for_noise_that_is_not_known_to_be_a_mixture(mechanism: Mechanism) -> None:
    mixtures = {example.kind for example in MIXTURES} | {"levels", "pgr"}  # of a level; two probabilities
    assert randomizer_of(mechanism).smaller_budgets_mix == (mechanism.kind in mixtures)
