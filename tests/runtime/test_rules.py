"""Rules of one service: a round that breaks one is not signed, and does not begin."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from croupier.protocol.errors import Code
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.v1 import services_pb2 as rpc
from croupier.runtime.rules import Rules
from croupier.runtime.service_directory import load_settings
from tests.support import in_memory, make_kit, settings
from tests.support.messages import naming, refuses

NOON_S = 12 * 3600


@pytest.mark.parametrize(
    ("rules", "objection"),
    [
        ({}, None),
        ({"epsilon_max": 1.0, "min_batch_size": 2, "randomizers": ["rr"], "hours": [12, 13]}, None),
        ({"epsilon_max": 0.5}, "the round's epsilon_max is 1; at most 0.5 is allowed"),
        ({"total_epsilon_max": 2.0}, "the deployment has no privacy limit; one of at most 2 is needed"),
        ({"min_batch_size": 500}, "min_batch_size is 2; at least 500 is needed"),
        ({"randomizers": ["laplace", "krr"]}, "the randomizer is rr; allowed are laplace, krr"),
        ({"hours": [8, 12]}, "it is 12:00 UTC; rounds are signed from 8:00 until 12:00 UTC"),
    ],
)
def test_a_rule_names_the_value_and_what_is_allowed(rules: dict[str, object], objection: str | None) -> None:
    assert Rules.model_validate(rules).objection(make_kit().terms, NOON_S) == objection


def test_the_total_of_the_privacy_limit_is_looked_at() -> None:
    kit = make_kit()
    kit.survey.privacy_limit.total_epsilon = 3.0
    kit.survey.privacy_limit.total_delta = 1e-5
    assert Rules(total_epsilon_max=3.0).objection(kit.terms, 0) is None
    said = Rules(total_epsilon_max=2.0).objection(kit.terms, 0)
    assert said is not None
    assert re.search(naming("total_epsilon", 3, "most 2"), said)


def test_one_budget_with_a_larger_limit_of_its_own_counts() -> None:
    kit = make_kit()
    kit.survey.questions[0].budget_grid[-1].epsilon_max = 4.0
    said = Rules(epsilon_max=2.0).objection(kit.terms, 0)
    assert said == "the round's epsilon_max is 4; at most 2 is allowed"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('randomizers = ["dice"]', "randomizers names dice; there are "),
        ("hours = [18, 8]", r"hours.*\[18.*8\]"),
        ("epsilon = 1.0", "rules.epsilon: "),
    ],
)
def test_rules_that_cannot_be_are_named(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "service.toml").write_text(f"[rules]\n{line}\n")
    with pytest.raises(ValueError, match=message):
        load_settings(tmp_path)


@pytest.mark.virtual_time
async def test_a_round_begins_nowhere_that_breaks_the_rules_of_one_service(tmp_path: Path) -> None:
    """Before, the last hop signed whatever the operator asked."""
    rules = {"shuffler-2": "[rules]\nmin_batch_size = 1000\n"}
    here = in_memory(tmp_path / "d", 2, settings_of=lambda name: rules.get(name, ""))
    async with here as inside, inside.operator() as operator:
        with refuses(Code.BAD_MANIFEST, naming("'shuffler-2'", "min_batch_size")):
            await operator.open_round(settings())
        answers = [answer for answer in await operator.status() if isinstance(answer, rpc.StatusResponse)]
        states = {round_.state for answer in answers for round_ in answer.rounds}
        assert states == {pb.ROUND_STATE_DISPOSED}  # the operator withdraws what was prepared
