"""A quantile search through whole rounds: everybody is in one group, and all rounds cost what one round costs."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pytest
from rich.console import Console

from croupier.accountant import Grade, certify, of_disjoint_groups
from croupier.analyzer.quantile_search import QuantileSearch
from croupier.client.submission import Participant
from croupier.deploy.local.quantiles import drawn_groups, search_with
from croupier.deploy.local.rounds import RoundOutcome
from croupier.operator.round_settings import RoundSettings
from croupier.protocol.codes import Assumption
from croupier.protocol.mechanisms import RandomizedResponse
from croupier.protocol.questions import Question
from croupier.protocol.statements import state
from croupier.show.quantile_search import quantile_json, quantile_sentence, steps_table
from tests.support.rounds import table

SETTINGS = RoundSettings(
    Question("income", RandomizedResponse()), (4.0,), min_batch_size=20, epsilon_max=4.0, delta=1e-4
)


@pytest.mark.asyncio
@pytest.mark.virtual_time
@pytest.mark.parametrize("hop_noise", [None, 1.0])
async def test_a_median_is_found_in_five_rounds(tmp_path: Path, hop_noise: float | None) -> None:
    """The median of 500 numbers up to 10^6 is about 30,000: an interval misses it once in a million searches."""
    source = random.Random(8)
    numbers = sorted(min(source.lognormvariate(10.3, 0.9), 1e6) for _ in range(500))
    people = {f"p{place}": Participant(number, 4.0) for place, number in enumerate(numbers)}
    seen: list[int] = []
    async with table(tmp_path, 2) as at:

        async def play(settings: RoundSettings, users: Mapping[str, Participant], _: object = None) -> RoundOutcome:
            terms = await at.operator.open_round(settings)
            report = await at.submit(terms, list(users.values()))
            publication, certificate = await at.finish(terms)
            return RoundOutcome(publication, certificate, report, [], 0.0, 0.0)

        search = QuantileSearch(0.5, 1.0, 1e6, 5, confidence=0.999999, logarithmic=True)
        settings = RoundSettings(
            SETTINGS.question, (4.0,), min_batch_size=20, epsilon_max=4.0, delta=1e-4, hop_noise=hop_noise
        )
        outcome = await search_with(play, search, people, settings, lambda step: seen.append(step.people))
    assert sum(seen) == 500
    assert outcome.quantile.interval[0] <= numbers[249] <= outcome.quantile.interval[1]
    assert len(set(outcome.rounds)) == 5
    assert outcome.guarantee.grade is Grade.CERTIFIED
    assert 0 < outcome.guarantee.epsilon < 4.0
    assert state(Assumption.DISJOINT_GROUPS, groups=5) in outcome.guarantee.assumptions
    document = quantile_json("income", outcome.quantile, outcome.guarantee, outcome.rounds)
    assert document["guarantee"]["epsilon"] == outcome.guarantee.epsilon
    console = Console(record=True, width=140)
    console.print(steps_table(document))
    assert f"{seen[0]:,}" in console.export_text()
    said = quantile_sentence(document)
    assert "median of income" in said
    assert "everybody was asked once" in said


def test_groups_are_disjoint_and_everybody_is_in_one() -> None:
    people = {f"p{place}": Participant(1.0, 1.0) for place in range(300)}
    groups = drawn_groups(people, 4)
    assert sorted(name for group in groups for name in group) == sorted(people)
    assert min(map(len, groups)) > 30
    with pytest.raises(ValueError, match="300 people in 16 groups"):
        drawn_groups(people, 16)


def test_disjoint_groups_cost_what_the_worst_one_costs() -> None:
    small, large = (certify([1.0] * n, "rr", delta=1e-6, attack=False) for n in (200, 1000))
    together = of_disjoint_groups([small, large])
    assert (together.epsilon, together.delta) == (small.epsilon, 1e-6)
    assert set(small.assumptions) < set(together.assumptions)
    assert together.assumptions[-1] == state(Assumption.DISJOINT_GROUPS, groups=2)
    with pytest.raises(ValueError, match="empty"):
        of_disjoint_groups([])
