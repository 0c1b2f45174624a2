"""A survey whose waves find frequent texts: each wave asks about the beginnings that the wave before has kept."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from croupier.accountant.certification import certify
from croupier.accountant.guarantees import Grade
from croupier.client.submission import Participant
from croupier.operator.opened_surveys import signed_result_of
from croupier.operator.survey_file import SurveyFile
from croupier.operator.survey_plans import plan_survey, with_budgets
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.publications import read_publication
from croupier.protocol.rules import Prefixes
from croupier.study.discovery import discovered
from croupier.study.plans import plan_study
from croupier.study.versions import change_study, start_study
from croupier.study.wave_results import study_state, study_view
from tests.support.messages import naming
from tests.support.rounds import Table, table
from tests.support.studies import Played, killed_at_drawn_moments, study_file

DRINKS = ["tea"] * 12 + ["cup"] * 8
LISTED: dict[str, Any] = {"name": "drink", "question": "What do you drink?", "alphabet": "tecupa", "longest": 2}
FIRST = {"first": "2023-11-15T08:00:00", "every": "result", "on": None, "waves": 1, "timezone": "UTC"}


def discovery_file(calendar: dict[str, Any] | None = None, **changes: Any) -> SurveyFile:
    question = LISTED | {"missed": 0.2, "false_listed": 0.2} | changes.pop("question", {})
    values: dict[str, Any] = {
        "budgets": [7],
        "min_batch_size": 20,
        "epsilon_max": 7,
        "epsilon_total": 21,
        "hop_noise": 2.0,
    }
    return study_file(
        calendar=FIRST | {"open_for": "10 hours"} | (calendar or {}), **(values | changes), questions=[question]
    )


async def answer(at: Table, texts: list[str], terms: RoundTerms) -> None:
    parse = terms.question.mechanism.parse_value
    report = await at.submit(terms, [Participant(parse(text), 7.0) for text in texts])
    assert report.accepted == len(texts)


def begun(at: Table, texts: list[str] = DRINKS, **changes: Any) -> Played:
    file = discovery_file(**changes)
    start_study(at.inside.directory, file)
    return Played(at, file.name, partial(answer, at, texts))


@pytest.mark.virtual_time
async def test_each_wave_asks_what_the_result_before_has_led_to(tmp_path: Path) -> None:
    async with table(tmp_path, 1) as at:
        played = begun(at)
        await played.play()
        state = study_state(played.directory, "wellbeing")
        survey, *_ = state.versions
        found = discovered(state)
        assert found is not None
        assert {"te…", "cu…"} >= {text for text, _ in found.texts}
        assert found.guarantee.grade is Grade.CERTIFIED
        assert (found.guarantee.epsilon, found.guarantee.delta) == (21.0, 1e-3)
        kept: tuple[str, ...] = ("",)
        rule = survey.questions[0].rule
        assert isinstance(rule, Prefixes)
        assert [wave.record.step for wave in state.waves if wave.record] == ["published"] * len(found.levels)
        for number, level in enumerate(found.levels, 1):
            signed = signed_result_of(played.directory, survey, 0, number)
            assert signed is not None
            publication, _ = read_publication(signed, at.deployment)
            assert [value.label for value in publication.values] == [*rule.categories(kept)]
            kept = level.kept
            assert tuple(publication.rule_state.kept) == kept
            assert publication.HasField("rule_state") == bool(kept)
        assert study_view(state)["rows"] == []
        with pytest.raises(ValueError, match=naming("rule")):
            change_study(played.directory, discovery_file(title="Others"), "More.", played.clock.now())


@pytest.mark.slow
@pytest.mark.virtual_time
async def test_a_discovery_goes_on_wherever_its_process_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fifty times at drawn moments: no wave is asked twice, none differs from its rule, and no answer is lost."""
    async with table(tmp_path, 1) as at:
        played = begun(at)
        killed = await killed_at_drawn_moments(monkeypatch, played.play, times=50, moments=12)
        assert killed > 3
        found = discovered(study_state(played.directory, "wellbeing"))
        assert found is not None
        assert {level.reports for level in found.levels} == {20}
        opened = [record.last("open") for record in played.records().values()]
        assert len({entry.about["survey_id"] for entry in opened if entry}) == len(found.levels)


@pytest.mark.virtual_time
async def test_a_wave_with_too_few_people_ends_the_discovery(tmp_path: Path) -> None:
    async with table(tmp_path, 1) as at:
        played = begun(at, texts=DRINKS[:5])
        await played.play()
        assert {number: record.step for number, record in played.records().items()} == {1: "published"}
        assert discovered(study_state(played.directory, "wellbeing")) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"budgets": [1, 2]}, naming("one budget")),
        ({"permanent": True}, naming("permanent")),
        ({"results": "operator"}, naming("operator", "public")),
        ({"calendar": {"every": "day"}}, naming("rule", "3 waves")),
        ({"question": {"alphabet": ""}}, naming("no rule")),
        ({"question": {"alphabet": "tt"}}, naming("alphabet", "'tt'")),
        ({"calendar": {"waves": 3}}, naming("waves", 3, "result")),
    ],
)
def test_terms_that_a_rule_excludes_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan_survey(discovery_file(**changes), None)


@pytest.mark.slow
def test_a_budget_is_planned_for_the_dearest_wave() -> None:
    file = with_budgets(discovery_file(budgets=[], min_batch_size=200, epsilon_max=1.0, hop_noise=None), None)
    (budget,) = file.budgets
    (terms,) = plan_survey(file, None).questions
    assert terms.rule is not None
    epsilons = [
        certify({budget: 200}, f"krr(k={size})", delta=terms.shared.delta, attack=False).epsilon
        for size in terms.rule.sizes
    ]
    assert 0.9 < max(epsilons) <= 1.0
    plan = plan_study(discovery_file(min_batch_size=200, budgets=[3], hop_noise=None), None, 200)
    (tier,) = plan.tiers
    assert plan.waves == 3
    assert [total.waves for total in tier.totals] == [1, 3, 3]
