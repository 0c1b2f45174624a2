"""Tier counts that hide each person's budget: the noise's law, what depends on it alone, and that certificates hold.

The oracles enumerate all multisets of six people and three budgets; see docs/accounting.md, 7.2.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from croupier import Certificate, certify
from croupier.accountant.mechanisms.registry import randomizer_of
from croupier.accountant.rounds.forecast import forecast
from croupier.accountant.rounds.found import BudgetsFound
from croupier.accountant.rounds.ledger import Ledger
from croupier.accountant.rounds.round_guarantee import certify_into
from croupier.accountant.service.tier_counts import noised
from croupier.accountant.spending import BudgetsTold
from croupier.protocol.certificates import certificate_json
from croupier.protocol.codes import Assumption
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.mechanisms.base import Mechanism
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.laplace import Laplace
from croupier.protocol.mechanisms.rr import RandomizedResponse
from croupier.protocol.names import RoundId
from croupier.protocol.questions import Question
from croupier.protocol.tier_counts import EXACT, BudgetPrivacy, TierCounts
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.runtime.kinds import DocumentKind
from tests.support import make_kit
from tests.support.accounting import certified_round
from tests.support.messages import naming
from tests.support.oracles.exchange import worst_bits
from tests.support.oracles.hop_noise import truncated_laplace

GRID = (0.5, 1.0, 2.0)
PEOPLE = 6
STRONG = BudgetPrivacy(4.0, 1e-3)
"""So little noise that six people are not lost in it: at most 4 for a budget."""
Counts = tuple[int, ...]


def multisets(people: int = PEOPLE) -> list[Counts]:
    """All numbers of users of three budgets."""
    return [
        (first, second, people - first - second) for first in range(people + 1) for second in range(people + 1 - first)
    ]


def law_of_a_count(privacy: BudgetPrivacy, users: int) -> dict[int, float]:
    """The law of a tier's count, from its definition."""
    law = defaultdict[int, float](float)
    for shift, mass in truncated_laplace(2 / privacy.epsilon, privacy.radius).items():
        law[max(0, users - privacy.radius + shift)] += mass
    return dict(law)


def law_of_counts(privacy: BudgetPrivacy, users: Counts) -> dict[Counts, float]:
    """The joint law of all tiers' counts."""
    laws = [law_of_a_count(privacy, own).items() for own in users]
    return {
        tuple(count for count, _ in counts): math.prod(mass for _, mass in counts)
        for counts in itertools.product(*laws)
    }


def neighbours(users: Counts) -> Iterator[Counts]:
    """The multisets in which one person has another budget."""
    for left, to in itertools.permutations(range(len(users)), 2):
        if users[left]:
            changed = [*users]
            changed[left] -= 1
            changed[to] += 1
            yield tuple(changed)


@pytest.mark.parametrize("privacy", [STRONG, BudgetPrivacy(6.0, 1e-4), BudgetPrivacy(3.0, 1e-3)])
def test_counts_are_private_in_the_budget_of_one_person(privacy: BudgetPrivacy) -> None:
    """Over all multisets of six people and all neighbours, in both directions, exactly.

    Among many people all of the law's delta is reached; among few, half of it, because no count is below 0.
    """
    assert max(lost(privacy, users, other) for users in multisets() for other in neighbours(users)) == pytest.approx(
        privacy.law.delta / 2, rel=0.01
    )
    many = 3 * privacy.radius
    reached = lost(privacy, (many, many), (many - 1, many + 1))
    assert 0.999 * privacy.law.delta <= reached <= privacy.law.delta <= privacy.delta


def lost(privacy: BudgetPrivacy, users: Counts, other: Counts) -> float:
    """The delta at epsilon between the counts of two multisets; epsilon is rounded up by what floats lose."""
    law, gain = law_of_counts(privacy, other), math.exp(privacy.epsilon) * (1 + 1e-12)
    return math.fsum(max(0.0, mass - gain * law.get(at, 0.0)) for at, mass in law_of_counts(privacy, users).items())


def test_without_noise_two_counts_show_the_budget() -> None:
    """The defence taken away: exact counts of neighbours never agree."""
    assert all(other != users for users in multisets() for other in neighbours(users))


def test_the_default_leaves_27_people_out() -> None:
    privacy = BudgetPrivacy()
    assert (privacy.epsilon, privacy.delta, privacy.radius, TierCounts(privacy).most_uncounted) == (1.0, 1e-6, 27, 54)
    assert privacy.law.delta <= privacy.delta
    assert [privacy.counted(100, shift) for shift in (-27, 0, 27)] == [46, 73, 100]
    assert privacy.counted(20, 0) == 0


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 1e-6), (21.0, 1e-6), (1.0, 0.0), (1.0, 0.1), (math.nan, 1e-6)])
def test_a_budget_privacy_out_of_range_is_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(ValueError, match=naming("budget_privacy", "must be")):
        BudgetPrivacy(epsilon, delta)


def terms_of(mechanism: Mechanism | None = None, privacy: BudgetPrivacy | None = STRONG, **policy: Any) -> RoundTerms:
    policy = {"min_batch_size": 2, "epsilon_max": 4.0, "delta": 0.05} | policy
    if privacy is not None:
        policy["budget_privacy"] = pb.BudgetPrivacy(epsilon=privacy.epsilon, delta=privacy.delta)
    return make_kit(question=Question("q", mechanism or RandomizedResponse()), **policy).terms


class Documents:
    """A transaction's documents of one round, which outlive it."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def document(self, round_id: str, kind: DocumentKind, part: str = "") -> bytes | None:
        return self.kept.get(f"{round_id} {kind}")

    def put_document(self, round_id: str, kind: DocumentKind, document: bytes, part: str = "") -> None:
        self.kept[f"{round_id} {kind}"] = document


def published(terms: RoundTerms, users: Counts, counts: Counts, monkeypatch: pytest.MonkeyPatch) -> tuple[bytes, ...]:
    """Everything that leaves the accountant, where the noise is such that these numbers of users are counted."""
    radius = STRONG.radius
    shifts = [count - own + radius for own, count in zip(users, counts, strict=True)]
    monkeypatch.setattr(
        "croupier.accountant.service.tier_counts.truncated_laplace", lambda scale, most, size: shifts[:size]
    )
    exact = BudgetsFound(+Counter(dict(zip(GRID, users, strict=True))), 0, {})
    noised_counts = noised(Documents(), terms, exact)  # type: ignore[arg-type]
    message, entries = certified_round(terms, noised_counts, PEOPLE, PEOPLE)
    explained = json.dumps(certificate_json(message))
    return message.SerializeToString(deterministic=True), repr(entries).encode(), explained.encode()


def possible(users: Counts, counts: Counts) -> bool:
    """Returns whether some noise leads to these counts of these users."""
    return all(own - 2 * STRONG.radius <= count <= own for own, count in zip(users, counts, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("granted", [True, False], ids=["granted", "refused"])
def test_all_that_is_published_depends_on_the_counts_alone(monkeypatch: pytest.MonkeyPatch, granted: bool) -> None:
    """All multisets of six people: where the counts are equal, so is every byte; the exact counts differ."""
    terms = terms_of(epsilon_max=4.0 if granted else 0.01)
    for counts in ((0, 0, 0), (1, 0, 0), (0, 2, 1), (1, 1, 1), (3, 0, 2)):
        users = [multiset for multiset in multisets() if possible(multiset, counts)]
        assert len(users) > 1
        assert len({published(terms, user, counts, monkeypatch) for user in users}) == 1
    exact = terms_of(privacy=None, epsilon_max=4.0)
    told = {published(exact, users, users, monkeypatch) for users in multisets()}
    assert len(told) == len(multisets())


@pytest.mark.parametrize("counts", [(0, 0, 0), (1, 0, 0), (2, 1, 0), (1, 1, 1), (0, 0, 4), (3, 2, 1)])
@pytest.mark.parametrize("dishonest", [0, 1])
def test_a_certificate_of_counts_holds_for_whoever_is_not_counted(counts: Counts, dishonest: int) -> None:
    """By brute force: a person of any budget of the grid, counted or not, among all users that there can be.

    And the attack beside the certificate is on no fewer people than take part.
    """
    terms = terms_of(dishonest=dishonest)
    message = pb.Certificate(delta=0.05, dishonest=dishonest, num_users=PEOPLE)
    certify_into(message, terms, list(zip(GRID, counts, strict=True)))
    assert [(tier.local_epsilon, tier.count) for tier in message.tiers] == list(zip(GRID, counts, strict=True))
    assert (message.num_users, message.dishonest, message.most_uncounted) == (
        PEOPLE,
        dishonest,
        TierCounts(STRONG).most_uncounted,
    )
    for users in multisets():
        if not possible(users, counts):
            continue
        for place, tier in enumerate(message.tiers):
            budgets = [budget for budget, count in zip(GRID, users, strict=True) for _ in range(count)]
            if not users[place]:  # one more, whose budget did not arrive, and whom nobody counts
                budgets.append(GRID[place])
            delta = worst_bits(budgets, budgets.index(GRID[place]), tier.epsilon, dishonest)
            assert delta <= message.delta * (1 + 1e-9)
    if message.HasField("lower_bound_epsilon"):
        most = [
            (budget, count + TierCounts(STRONG).most_uncounted + 1) for budget, count in zip(GRID, counts, strict=True)
        ]
        weakest = certify(most, "rr", epsilon=message.lower_bound_epsilon, dishonest=dishonest)
        assert weakest.delta >= message.delta * (1 - 1e-9)


def test_without_the_victims_in_every_tier_a_certificate_would_be_false() -> None:
    """The defence taken away: of (1, 0, 4) a person of 2 would be certified less than holds for that person."""
    counted = certify({0.5: 1, 1.0: 1, 2.0: 5}, "rr", delta=0.05).epsilon  # with the victims as if they were there
    assert worst_bits([0.5, *[2.0] * 4], 4, counted) > 0.05
    message = pb.Certificate(delta=0.05, num_users=5)
    certify_into(message, terms_of(), [(0.5, 1), (2.0, 4)])
    assert worst_bits([0.5, *[2.0] * 4], 4, message.epsilon) <= 0.05


@pytest.mark.parametrize("mechanism", [RandomizedResponse(), KaryResponse(4), Laplace(0.0, 1.0)], ids=lambda m: m.kind)
def test_a_certificate_of_counts_is_read_back(mechanism: Mechanism) -> None:
    terms = terms_of(mechanism, BudgetPrivacy(), delta=1e-5)
    message = pb.Certificate(delta=1e-5, num_users=400, num_tickets=402, unknown_budgets=2, granted=True)
    message.round_id, message.linkage, message.rounds = "r", "separate", 1
    entries = certify_into(message, terms, [(0.5, 150), (2.0, 170)])
    assert [entry.count for entry in entries] == [150, 0, 170]
    assert message.epsilon == max(tier.epsilon for tier in message.tiers) == message.unknown_budget_epsilon
    certificate = Certificate.from_json(certificate_json(message))
    assert certificate.counted_by == TierCounts(BudgetPrivacy())
    assert certificate.num_users == 400
    assert [tier.count for tier in certificate.tiers] == [150, 0, 170]
    stated = [assumption for assumption in certificate.assumptions if assumption.code is Assumption.BUDGETS_NOISED]
    assert [dict(statement.parameters) for statement in stated] == [{"epsilon": 1.0, "delta": 1e-6, "most": 54}]
    assert not any(assumption.code is Assumption.BUDGETS_PUBLIC for assumption in certificate.assumptions)
    again = certify(
        certificate.budgets, randomizer_of(mechanism), delta=1e-5, counted_by=certificate.counted_by, attack=False
    )
    assert again.epsilon == pytest.approx(message.epsilon, rel=1e-9)


def test_a_certificate_without_enough_counted_users_is_the_local_budget() -> None:
    message = pb.Certificate(delta=1e-5, num_users=60)
    certify_into(message, terms_of(privacy=BudgetPrivacy(), delta=1e-5), [(0.5, 1)])
    assert [tier.epsilon for tier in message.tiers] == [*GRID]


def test_no_noise_makes_a_certificate_worse_than_forecast() -> None:
    for people in (200, 700):
        terms = terms_of(privacy=BudgetPrivacy(), delta=1e-5)
        said = forecast(terms, people)
        for users in ((people, 0, 0), (0, 0, people), (people // 2, 0, people - people // 2), (54, 54, people - 108)):
            counts = [(budget, max(0, own - 54)) for budget, own in zip(GRID, users, strict=True)]
            message = pb.Certificate(delta=1e-5, num_users=people)
            certify_into(message, terms, counts)
            assert message.epsilon <= said.worst.epsilon


def test_noise_is_drawn_once_and_kept_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second call, as after a crash, returns the counts of the first; of the noise nothing is stored."""
    documents, exact = Documents(), BudgetsFound(Counter({0.5: 100, 2.0: 90}), 3, {})
    terms = terms_of(privacy=BudgetPrivacy())
    first = noised(documents, terms, exact)  # type: ignore[arg-type]

    def never(*_: object) -> list[int]:
        raise AssertionError("the noise was drawn again")

    monkeypatch.setattr("croupier.accountant.service.tier_counts.truncated_laplace", never)
    assert noised(documents, terms, exact) == first  # type: ignore[arg-type]
    assert (first.on_grid, first.off_grid) == (190, 3)
    (kept,) = documents.kept.values()
    assert json.loads(kept) == [first.counts[budget] for budget in GRID]
    assert first.counts[1.0] == 0
    assert 46 <= first.counts[0.5] <= 100


def test_a_grid_of_one_budget_hides_nothing_and_counts_exactly() -> None:
    kit = make_kit(grid=(0.5,), budget_privacy=pb.BudgetPrivacy(epsilon=1.0, delta=1e-6))
    assert kit.terms.counted_by == EXACT


def told(costs: Iterable[tuple[float, float]], exact: int = 0) -> BudgetsTold:
    with sa.create_engine("sqlite://").begin() as connection:
        ledger = Ledger(connection)
        for number, cost in enumerate(costs):
            for _ in range(2):  # the same again
                ledger.disclose(RoundId(f"r{number}"))
                ledger.tell_budgets(RoundId(f"r{number}"), *cost)
        for number in range(exact):
            ledger.disclose(RoundId(f"e{number}"))
        return ledger.budgets_told()


def test_the_ledger_adds_up_what_certificates_tell_of_a_budget() -> None:
    assert told([]) == BudgetsTold()
    assert told([(0.1, 1e-6)] * 3) == BudgetsTold(0.3, 3e-6, 3, 0)
    assert told([(1.0, 1e-6), (0.0, 0.0), (0.5, 1e-7)], exact=2) == BudgetsTold(1.5, 1.1e-6, 2, 2)


def test_what_certificates_tell_of_a_budget_is_in_a_backup(tmp_path: Path) -> None:
    from croupier.operator.keys import make_deployment
    from croupier.operator.ledger import backup_ledger, budgets_told, restore_ledger
    from croupier.runtime.database import DEFAULT_TIMEOUTS, open_database
    from croupier.runtime.schema import create_tables

    for name in ("first", "second"):
        make_deployment(tmp_path / name, "same", 1)
        url = f"sqlite:///{tmp_path / name / 'accountant' / 'rounds.db'}"
        database = open_database(url, DEFAULT_TIMEOUTS)
        with database.begin() as connection:
            create_tables(connection, url)
            if name == "first":
                Ledger(connection).disclose(RoundId("r1"))
                Ledger(connection).tell_budgets(RoundId("r1"), 1.0, 1e-6)
                Ledger(connection).disclose(RoundId("r2"))
        database.close()
    backup_ledger(tmp_path / "first", tmp_path / "backup.json")
    restore_ledger(tmp_path / "second", tmp_path / "backup.json")
    assert budgets_told(tmp_path / "second") == BudgetsTold(1.0, 1e-6, 1, 1)
