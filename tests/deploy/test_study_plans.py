"""The plan of a study: its numbers are those of the accountant's library, and what it finds holds."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from croupier.accountant.accuracy import margins
from croupier.accountant.budgets import Budgets
from croupier.accountant.certification import certify
from croupier.accountant.composed_certificates import ComposedRelease, compose, compose_releases
from croupier.accountant.guarantees import Grade
from croupier.operator.survey_file import SurveyFile
from croupier.protocol.names import JsonObject
from croupier.show.study_results import differences_between, study_csv
from croupier.study.plans import plan_study
from tests.support.messages import naming
from tests.support.studies import study_file
from tests.support.surveys import survey_file

QUESTIONS = [{"name": "ill", "question": "Were you ill?"}, {"name": "late", "question": "Were you late?"}]


def file(**changes: Any) -> SurveyFile:
    terms: dict[str, Any] = {
        "questions": QUESTIONS,
        "min_batch_size": 100,
        "epsilon_max": 2,
        "delta": 1e-6,
        "delta_total": 1e-5,
    }
    return study_file(calendar={"waves": 10}, **(terms | changes))


@pytest.mark.slow
def test_the_numbers_are_those_of_the_library() -> None:
    plan = plan_study(file(), None, 1000)
    assert ([tier.budget for tier in plan.tiers], plan.waves, plan.solved) == ([1.0, 2.0], 10, ())
    tier = plan.tiers[1]
    own = Budgets.from_tiers([(1.0, 1000)])
    certificate = certify(own, "rr", delta=1e-6, attack=False)
    assert [question.certificate.epsilon for question in tier.questions] == [certificate.epsilon] * 2
    assert tier.questions[0].margins == margins(own, "rr")
    wave, year, study = tier.totals
    assert (wave.waves, year.waves, study.waves) == (1, 10, 10)
    assert study.shuffle is not None
    assert study.shuffle.epsilon == pytest.approx(compose([certificate] * 20, delta=1e-5).epsilon)
    assert study.shuffle.epsilon < 20 * certificate.epsilon
    assert study.shuffle.grade is Grade.CERTIFIED
    assert wave.alone is not None
    assert 1.9 < wave.alone.epsilon <= 2.0  # two questions with local ε 1 each
    assert study.one_honest is None


def test_hop_noise_has_a_total_that_rests_on_one_hop() -> None:
    plan = plan_study(file(hop_noise=0.1, hop_noise_delta=1e-8), None, 1000)
    (*_, study) = plan.tiers[0].totals
    assert study.one_honest is not None
    assert 0 < study.one_honest.epsilon <= 2.0
    exact = margins(Budgets.from_tiers([(0.5, 1000)]), "rr")
    assert plan.tiers[0].questions[0].margins.participants > exact.participants


def test_a_permanent_study_costs_its_local_budgets_once() -> None:
    plan = plan_study(file(permanent=True), None, 1000)
    (wave, _, study) = plan.tiers[1].totals
    assert wave.shuffle is not None
    assert study.shuffle is not None
    assert study.alone is not None
    assert wave.shuffle.epsilon == study.shuffle.epsilon == pytest.approx(2.0, rel=1e-6)
    assert study.alone.epsilon == pytest.approx(2.0, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("given", [{"error": 0.1}, {"epsilon_total": 0.5}, {"error": 0.1, "epsilon_total": 0.5}])
def test_what_is_found_has_what_was_asked_for(given: dict[str, Any]) -> None:
    plan = plan_study(file(), None, 1000, **given)
    (tier,) = plan.tiers
    worst = max(question.margins.population for question in tier.questions)
    assert worst <= given.get("error", math.inf)
    total = tier.totals[-1].shuffle
    assert total is not None
    assert total.epsilon <= given.get("epsilon_total", math.inf)
    if "error" in given:
        smaller = plan_study(file(budgets=[0.98 * tier.budget]), None, 1000).tiers[0]
        assert max(question.margins.population for question in smaller.questions) > 0.1
    if plan.solved == ("budget", "waves"):
        assert tier.waves_borne == plan.waves
        more = plan_study(file(budgets=[tier.budget], epsilon_total=0.5), None, 1000, waves=plan.waves + 1)
        assert more.tiers[0].waves_borne == plan.waves


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"people": 50}, ("expected", "50", "100 people")),
        ({"error": 0.6}, ("error", "0.6", "0.5")),
        ({"epsilon_total": 0.0}, ("epsilon_total", "0", "> 0")),
        ({"error": 0.1, "epsilon_total": 1.0, "waves": 3}, ("error", "epsilon_total", "waves", "all given")),
        ({"error": 0.001}, ("1,000 people", "at best")),
        ({"error": 0.1, "epsilon_total": 0.001}, ("not even one wave",)),
    ],
)
def test_what_cannot_be_planned_is_said(given: dict[str, Any], named: tuple[str, ...]) -> None:
    people = given.pop("people", 1000)
    with pytest.raises(ValueError, match=naming(*named)):
        plan_study(file(), None, people, **given)


def test_a_survey_that_is_asked_once_has_no_plan() -> None:
    """Reproduction: the plan said that the limit ε = inf bears all 1 waves."""
    with pytest.raises(ValueError, match=naming("'work-2026'", "no [calendar]")):
        plan_study(survey_file(), None, 1000)


def test_releases_compose_to_less_than_their_sum() -> None:
    """1,000 times randomized response of 0.1 is about Gaussian with mu = tanh(0.05) 2 sqrt(1000) = 3.16, ε = 18.5."""
    local = certify({0.1: 10}, "rr", delta=1e-6, attack=False).everyone_else_colludes
    release = ComposedRelease(local, count=1000)
    total = compose_releases([release], delta=1e-5)
    assert total is not None
    assert 18.4 < total.epsilon < 25.0
    alone = compose_releases([replace(release, count=1)], delta=1e-5)
    assert alone is not None
    assert alone.epsilon <= 0.1
    assert alone.grade is Grade.CERTIFIED


def row(wave: int, estimate: float | None, error: float = 0.03) -> JsonObject:
    known = estimate is not None
    return {
        "wave": wave,
        "opens_unix_s": 0,
        "question": "ill",
        "value": "",
        "outcome": "granted" if known else "missed",
        "estimate": estimate,
        "standard_error": error if known else None,
        "low": estimate - 1.95996 * error if estimate is not None else None,
        "high": estimate + 1.95996 * error if estimate is not None else None,
        "uneven_standard_error": 0.0 if known else None,
        "sampling_standard_error": 0.04 if known else None,
        "population_low": estimate - 1.95996 * 0.05 if estimate is not None else None,
        "population_high": estimate + 1.95996 * 0.05 if estimate is not None else None,
        "level": 0.95,
        "range_low": 0.0,
        "range_high": 1.0,
        "epsilon": 0.1,
        "delta": 1e-6,
        "grade": "CERTIFIED",
        "n": 100,
    }


def test_differences_know_the_noise_and_the_sampling() -> None:
    rows = [row(1, 0.2), row(2, None), row(3, 0.3), row(4, 0.2)]
    first, second = differences_between(rows)
    assert (first["wave"], first["against"], second["wave"], second["against"]) == (3, 1, 4, 3)
    assert first["standard_error"] == pytest.approx(0.03 * math.sqrt(2))
    assert first["p_value"] == pytest.approx(0.0184, abs=1e-4)  # z = 2.357
    assert first["population_p_value"] == pytest.approx(0.2695, abs=1e-4)  # 0.1/√(2 · 0.03² + (2 · 0.04)²)
    assert first["low"] == pytest.approx(0.1 - 1.95996 * 0.042426, abs=1e-5)
    assert [difference["against"] for difference in differences_between(rows, "first")] == [1, 1]
    lines = study_csv(rows).splitlines()
    assert len(lines) == 5
    assert lines[2].startswith("2,0,ill,,missed,,")


def test_the_test_keeps_its_level() -> None:
    """Without a difference about 5 % of 8,000 p-values are below 0.05; 6 standard errors are 1.5 %."""
    import numpy as np

    source = np.random.default_rng(5)
    draws = 0.4 + 0.03 * source.standard_normal((8_000, 2))
    below = sum(differences_between([row(1, a), row(2, b)])[0]["p_value"] < 0.05 for a, b in draws.tolist())
    assert abs(below / 8_000 - 0.05) < 0.0147


def test_a_permanent_study_bears_the_waves_that_its_certificate_is_about() -> None:
    """The certificate of 10 waves says too little of 4,096, which cost the whole local budget."""
    one_question = file(questions=QUESTIONS[:1], hop_noise=0.1, hop_noise_delta=1e-12, permanent=True)
    plan = plan_study(one_question, None, 2000, error=0.045, epsilon_total=1.0)
    (tier,) = plan.tiers
    assert 1 < plan.waves < 100
    assert tier.waves_borne == plan.waves
    (*_, study) = tier.totals
    assert study.shuffle is not None
    assert study.shuffle.epsilon <= 1.0 < tier.budget
