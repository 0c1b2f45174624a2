"""What stands around a certificate's number in the terminal."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from croupier import Budgets, certify
from croupier.accountant.guarantees import Grade, Guarantee
from croupier.accountant.mechanisms.base import Randomizer
from croupier.accountant.mechanisms.gaussian_vector import RecordGaussian
from croupier.accountant.mechanisms.hemisphere import HemisphereMechanism
from croupier.accountant.mechanisms.laplace import LaplaceMechanism
from croupier.accountant.mechanisms.registry import as_randomizer
from croupier.accountant.spending import BudgetsTold, Spent
from croupier.deploy.local.demo import published_at_random
from croupier.deploy.local.fleet import FleetOutcome
from croupier.deploy.local.users import FleetReport
from croupier.protocol.certificates import certificate_json
from croupier.protocol.codes import Assumption, Method, Note
from croupier.protocol.names import RoundId
from croupier.protocol.rounding import round_up
from croupier.protocol.statements import Statement, joined, messages_of, written_json
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.show.certificate_tables import certificate_table
from croupier.show.demonstration import PLANNED, answers_blocks, composition_lines, privacy_cost_table
from croupier.show.documents import spent_json
from croupier.show.ledger import spent_blocks
from croupier.show.published import publication_json
from croupier.show.results import precision_line, remarks, result_blocks
from croupier.show.statistics import statistic
from croupier.show.text import counted
from tests.support.blocks import shown as printed
from tests.support.blocks import words_of
from tests.support.messages import naming
from tests.support.statements import codes

NOTHING = Guarantee(0.0, 0.0, Grade.CERTIFIED, (Statement.of(Method.NO_ROUND),))


def demo(*questions: Any, **more: Any) -> Any:
    """The document of a demonstration."""
    return {"questions": list(questions), **more}


def shown(certificate: Any) -> str:
    return printed(certificate_table(certificate), width=120)


@pytest.mark.parametrize(
    ("added", "expected"),
    [
        ([], "one shuffler's order secret, at most 3"),
        ([Statement.of(Assumption.HONEST_FIRST_SHUFFLER)], "an honest first shuffler, at most 3"),
        ([Statement.of(Assumption.GENUINE_ROSTER, dishonest=3)], "a genuine roster, at most 3"),
        ([Statement.of(Assumption.HONEST_ACCOUNTANT)], "an honest accountant, at most 3"),
    ],
)
def test_the_headline_says_which_parties_must_be_honest(added: list[Statement[Assumption]], expected: str) -> None:
    users = Budgets.from_tiers([(1.0, 100)])
    certificate = certify(users, HemisphereMechanism(dimension=3), delta=1e-3, dishonest=3).to_json()
    assert "one shuffler's order secret, no dishonest client " in shown(certificate | {"dishonest": 0})
    certificate["assumptions"] += written_json(added)
    assert expected in shown(certificate)


@pytest.mark.parametrize(
    "randomizer",
    [
        as_randomizer("rr"),
        as_randomizer("krr(k=3)"),
        LaplaceMechanism(lattice=100),
        HemisphereMechanism(dimension=3),
    ],
    ids=lambda case: str(case.kind),
)
def test_a_certificate_says_which_randomizer_it_is_for(randomizer: Randomizer) -> None:
    """It stood in --json alone, and of a round among its assumptions."""
    certificate = certify({1.0: 100}, randomizer, delta=1e-3)
    text = " ".join(shown(certificate.to_json()).split())
    assert f" {randomizer.name}: {joined(certificate.method)}; numerical slack" in text


def test_the_document_of_a_rounds_certificate_names_the_manifest() -> None:
    """It could not be told from it what had been asked under the round's name."""
    result = publication_json(pb.Publication(), pb.Certificate(schema=1, round_id="q", manifest_hash=b"\x01\xab"))
    assert result["certificate"]["manifest_hash"] == "01ab"


def test_budgets_that_are_answered_together_are_shown_up_to_the_largest() -> None:
    """Reproduction: "487 users of local ε 0.573513", of whom one had that budget and the others less."""
    many = certify([0.01 + 0.001 * index for index in range(100)], "rr", delta=1e-3).to_json()
    assert [tier["up_to"] for tier in many["tiers"]] == [True] * 4
    assert "25 users of local ε up to 0.109" in shown(many)
    assert "100 users of local ε 1 " in shown(certify({1.0: 100}, "rr", delta=1e-3).to_json())


def test_a_tier_is_shown_with_its_local_delta() -> None:
    """Reproduction: a Gaussian tier was "of local ε 1", and its local δ was in the JSON document alone."""
    document = certify([(1.0, 80, 1e-9)], "gaussian", delta=1e-4).to_json()
    assert "80 users of local ε 1, local δ 1e-09 " in " ".join(shown(document).split())


def test_large_numbers_are_grouped_wherever_people_read_them() -> None:
    """Reproduction: "10000 users" in tables, and 10,000 in sentences."""
    certificate = certify({0.5: 9000, 2.0: 1000}, "rr", delta=1e-6, dishonest=1000).to_json()
    text = " ".join(shown(certificate).split())
    for expected in ("9,000 users of local ε 0.5", "1,000 users of local ε 2", "at most 1,000 dishonest clients"):
        assert expected in text
    assert (counted(1, "round"), counted(12345, "round")) == ("1 round", "12,345 rounds")
    report = FleetReport(codes=Counter({"SUBMISSION_CODE_ACCEPTED": 10_000}))
    said = FleetOutcome(RoundId("r"), report, {}, 2000).summary()
    assert re.search(naming("round r", "10,000 rows 10,000 ACCEPTED", "2,000 values"), said)


def test_what_colluders_leave_is_of_the_largest_budget_allowed() -> None:
    """Reproduction: "everyone else colludes: 4", where nobody had used more than 1."""
    alone = certify({1.0: 100}, "rr", delta=1e-3).to_json()
    message = certify({1.0: 100}, "rr", delta=1e-3).to_message()
    message.round_id, message.granted, message.everyone_else_colludes_epsilon = "smokes", True, 4.0
    of_a_round = certificate_json(message)
    assert re.search(
        r"everyone else colludes \(largest budget allowed\) +│ +4 │ +98.21 % │ CERTIFIED", shown(of_a_round)
    )
    assert re.search(r"everyone else colludes +│ +1 │ +73.11 % │ CERTIFIED", shown(alone))


def test_a_result_whose_delta_protects_nobody_says_so() -> None:
    """Reproduction: `certify` and `explain` did, and `survey results` printed CERTIFIED without a word."""
    certificate = pb.Certificate(
        schema=1, round_id="q", epsilon=0.2, delta=0.05, grade="CERTIFIED", num_users=25, granted=True
    )
    (said,) = remarks([statistic(publication_json(pb.Publication(), certificate))])
    assert re.search(naming("δ = 0.05", "25 people"), said)
    certificate.delta = 1e-6
    assert not remarks([statistic(publication_json(pb.Publication(), certificate))])


def test_what_a_demonstration_cost_says_what_it_assumes() -> None:
    """Reproduction: CERTIFIED stood there without a shuffler or a dishonest client."""
    certificate = certify({1.0: 100}, "rr", delta=1e-3, dishonest=2).to_json()
    question = {"name": "smokes", "certificate": certificate, "users_per_s": 1.0}
    for questions, by_itself in (([question], False), ([question] * 2, True)):
        text = words_of(privacy_cost_table(demo(*questions)), width=120)
        assert re.search(naming("2 dishonest"), text)
        assert ("by itself" in text) == by_itself


@pytest.mark.slow
def test_every_tier_is_shown_with_its_delta_where_they_differ() -> None:
    """Reproduction: `certify --epsilon` printed the largest delta in the title, and none per tier."""
    certificate = certify({0.5: 100, 1.0: 100}, "rr", epsilon=0.2)
    document = certificate.to_json()
    small, large = (tier["delta"] for tier in document["tiers"])
    assert small < large == document["delta"]
    assert f"100 users of local ε 0.5, at δ = {round_up(small, 3)}" in shown(document)
    assert f"100 users of local ε 1, at δ = {round_up(large, 3)}" in shown(document)
    assert "at δ" not in shown(certify({0.5: 100, 1.0: 100}, "rr", delta=1e-3).to_json()).split("\n", 2)[2]


def test_a_ledger_without_a_bound_says_which_delta_gives_one() -> None:
    rows = [Spent("local ε 1", 2, None, 2.0000001e-6), Spent("local ε 2", 2, None), Spent("any tier", 0, NOTHING)]
    document = spent_json(rows, 1e-6, BudgetsTold(rounds=2, epsilon=2.0, delta=2e-6), fixed_terms=False)
    text = printed(*spent_blocks(document, fixed_terms=False), width=80)
    assert "no bound; δ = 2.01e-06 gives one" in text
    assert "│ no bound   " in text
    assert [row["enough_delta"] for row in document["spent"]] == [2.0000001e-6, None, None]
    assert [row["guarantee"] and row["guarantee"]["grade"] for row in document["spent"]] == [None, None, "CERTIFIED"]


def test_what_several_rounds_cost_together_is_said_with_what_it_rests_on() -> None:
    def cost(epsilon: float | None, delta: float) -> dict[str, Any]:
        return {"epsilon": epsilon, "delta": delta, "grade": None if epsilon is None else "CERTIFIED"}

    together: dict[str, Any] = {
        "group_by": None,
        "rounds": 1,
        "person": cost(1, 1e-6),
        "ledger_rounds": 1,
        "ledger": cost(1, 1e-6),
    }
    assert composition_lines(demo(together=together)) == []
    together |= {"rounds": 2, "ledger_rounds": 2, "person": cost(1.23456, 2e-6)}
    (said,) = composition_lines(demo(together=together))
    assert re.search(naming("ε 1.235", "δ = 2e-06", "CERTIFIED", PLANNED), said)
    together |= {"group_by": "site", "ledger_rounds": 6, "ledger": cost(None, 6e-6)}
    person, rests, ledger = composition_lines(demo(together=together))
    assert person.endswith(PLANNED)
    assert re.search(naming("2 rounds", "budgets", "ε 1.235"), person)
    assert "not their site" in rests
    assert "in one group" in rests
    assert ledger.endswith("in all 6 rounds it has no bound at δ = 6e-06.")


def test_the_headline_of_one_record_does_not_read_like_that_of_a_user() -> None:
    silos = Budgets.from_tiers([(1.0, 10, 1e-5)])
    text = shown(certify(silos, RecordGaussian(dimension=3, records=5), delta=1e-3).to_json())
    assert "one RECORD of one client" in text
    assert "shuffler" not in text


def published(**changed: Any) -> Any:
    """A published share of .3, as JSON."""
    certificate = pb.Certificate(
        schema=1, round_id="q", epsilon=0.2, delta=1e-6, grade="CERTIFIED", num_users=25, granted=True
    )
    publication = pb.Publication(confidence_level=0.95, precision=pb.PRECISION_USABLE)
    publication.values.add(
        estimate=0.3,
        projected=0.3,
        standard_error=0.05,
        confidence_interval=pb.Interval(low=0.2, high=0.4),
        population_interval=pb.Interval(low=0.15, high=0.45),
    )
    document = publication_json(publication, certificate)
    (value,) = document["values"]
    value |= {name: changed.pop(name) for name in value.keys() & changed.keys()}
    return document | changed


def test_a_result_has_intervals_for_its_people_and_for_their_population() -> None:
    """Reproduction: the table's interval was about these people only, and what a population adds stood in --json."""
    asked = {"column": "smokes", "name": "smokes", "truth": 0.31, "group": None}
    of_demo = words_of(*answers_blocks(demo(published(**asked))))
    assert re.search(naming("truth", "0.31", "0.30", "0.05"), of_demo)
    for text in (words_of(*result_blocks(published())), of_demo):
        assert "95 % interval: these people" in text
        assert "95 % interval: population" in text
        assert "0.20 to 0.40 │ 0.15 to 0.45" in text
        assert re.search(naming("95 %", "20 misses", "'population'"), text)


def test_a_result_that_is_too_noisy_is_said_to_be() -> None:
    """Reproduction: an estimate of -0.21 was printed like any other."""
    assert precision_line(statistic(published())) == ""
    said = precision_line(statistic(published(precision="COVERS_RANGE")))
    assert re.search(naming("TOO NOISY", "USE", "95 %"), said)
    said = precision_line(statistic(published(precision="HIDES_SHARES", standard_error=0.12, projected=0.2)))
    assert re.search(naming("TOO NOISY", "USE", "0.2"), said)
    # Reproduction: the interval of a category began at 0.26, and the sentence said that none could be told from absent.
    assert "absent" not in said
    said = precision_line(statistic(published(precision="HIDES_SHARES", confidence_interval={"low": 0.0, "high": 0.4})))
    assert "absent" in said
    noisy = published(precision="COVERS_RANGE", column="smokes", group=None, truth=0.3)
    assert re.search(naming("TOO NOISY", "USE"), words_of(*answers_blocks(demo(noisy))))


def test_a_demonstration_warns_of_nothing_that_cannot_be_so() -> None:
    """Budgets are drawn at random there, and the first page a newcomer sees is not about formulas of papers."""
    certificate = certify({1.0: 100}, "rr", delta=1e-3).to_json()
    question = {"name": "smokes", "certificate": certificate, "users_per_s": 1234.0}
    plain_table = words_of(privacy_cost_table(demo(question)))
    verbose = words_of(privacy_cost_table(demo(question), verbose=True))
    assert ("GSPA" in plain_table, "1,234" in plain_table) == (False, False)
    assert ("GSPA Thm 2 says (no guarantee)" in verbose, "1,234" in verbose) == (True, True)
    notes = [Statement.of(Note.DEPENDENT_BUDGETS), Statement.of(Note.TIERS_SCALED, reports=3, budgets=4)]
    publication = pb.Publication(notes=messages_of(notes))
    publication.values.add(estimate=0.5)
    document = published_at_random(publication, pb.Certificate(schema=1, round_id="q"))
    assert codes(document["notes"]) == [Note.TIERS_SCALED]
