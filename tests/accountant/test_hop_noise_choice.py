"""The fewest fakes for a guarantee: it is proved, one report less of every value does not do, and plans use it."""

from __future__ import annotations

import pytest

from croupier import certify, plan
from croupier.accountant.hop_fakes import HopFakes
from croupier.accountant.hop_noise_choice import HopGuarantee, TooManyFakes, least_fakes
from croupier.accountant.mechanisms.registry import randomizer_from_name
from croupier.protocol.hop_noise import HopNoise


@pytest.mark.parametrize(
    ("kind", "epsilon", "local", "most"),
    [("choices(k=4)", 0.5, 4.0, 46 * 8), ("krr(k=300)", 1.0, 4.0, 2_100), ("pgr(k=7, q=2)", 1.0, 8.0, 25 * 7)],
)
def test_the_fewest_fakes_keep_what_was_asked_for(kind: str, epsilon: float, local: float, most: int) -> None:
    randomizer = randomizer_from_name(kind)
    noise = least_fakes(randomizer, HopGuarantee(epsilon, 1e-6, local))
    fakes = HopFakes(noise, 2, randomizer)
    reached = fakes.curve(local).smallest_epsilon(1e-6, local).epsilon
    assert 0.99 * epsilon < reached <= epsilon
    assert fakes.law.mean_total <= most < HopNoise(epsilon, 1e-6).law(fakes.law.num_values).mean_total


@pytest.mark.parametrize(("epsilon", "most"), [(0.3, 270_000), (1.05, 178_000)])
def test_65536_categories_take_a_thirtieth_of_the_fakes(epsilon: float, most: int) -> None:
    """The law of a report that is the value would take 8 million for epsilon 0.3; a hop adds a million at most."""
    law = {0.3: (9.7, 1e-6), 1.05: (13.8, 2.1e-6)}[epsilon]
    certificate = certify({4.0: 100}, "pgr(k=65536, q=3)", delta=1e-6, hop_noise=law, attack=False)
    assert certificate.one_honest_hop is not None
    assert certificate.epsilon == certificate.one_honest_hop.epsilon <= epsilon
    assert HopNoise(*law).law(88_573).mean_total <= most


def test_a_report_of_few_values_takes_the_law_of_the_values() -> None:
    for kind in ("rr", "levels(k=9)"):
        assert least_fakes(randomizer_from_name(kind), HopGuarantee(0.1, 1e-6)) == HopNoise(0.1, 1e-6)


def test_a_guarantee_that_takes_too_many_fakes_is_refused_and_other_candidates_are_planned() -> None:
    with pytest.raises(TooManyFakes, match="more than 1,000,000 fake reports"):
        least_fakes(randomizer_from_name("choices(k=5000)"), HopGuarantee(0.002, 1e-9, 8.0))


def test_a_plan_has_the_fewest_fakes() -> None:
    planned = plan("choices(k=4)", num_users=50, epsilon=1.0, delta=1e-6, hop_noise=HopGuarantee(1.0, 1e-6))
    hop = planned.certificate.one_honest_hop
    assert hop is not None
    assert 0.95 < hop.epsilon <= 1.0
    assert planned.capped
