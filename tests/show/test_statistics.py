"""A result in words: one sentence for each number with both intervals, differences of groups, and half of the error."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from croupier import BinaryRandomizedResponse, Budgets, certify, explain
from croupier.analyzer.estimators import estimate
from croupier.analyzer.scalars import project_on_simplex
from croupier.protocol.mechanisms.base import Mechanism
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.onebit import OneBit
from croupier.protocol.mechanisms.rr import RandomizedResponse
from croupier.protocol.questions import Question
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.protocol.wordings import Wording
from croupier.show.differences import differences
from croupier.show.halving import halving_lines
from croupier.show.numbers import Precision, numbers_of
from croupier.show.question import question_json
from croupier.show.statistics import statistic
from tests.support.messages import naming
from tests.support.results import result_of


def test_a_share_has_a_sentence_with_both_intervals() -> None:
    asked = Question("affair", RandomizedResponse(), (Wording("en", "Any affair?", choices=("No", "Yes, one")),))
    shown = statistic(result_of(asked, [(0.3138, (0.2826, 0.3451), (0.281, 0.3479))], people=6366))
    assert (shown.about, shown.title) == ("the share of people who answered “Yes, one”", "Any affair?")
    assert [shown.sentence(number) for number in shown.numbers] == [
        "An estimated 31.4 % answered “Yes, one”: 28.2 to 34.6 % of the 6,366 people who took part, and 28.1 to 34.8 % "
        "of a population that they are a random sample of (95 % intervals)."
    ]
    exact = statistic(result_of(asked, [(0.31384, (0.3126, 0.3151), (0.3121, 0.3156))], people=6366))
    assert "31.38 % answered “Yes, one”: 31.26 to 31.51 % of" in exact.sentence(exact.numbers[0])


def test_a_histogram_has_captions_in_their_order_and_language() -> None:
    asked = Question(
        "mood",
        KaryResponse(2, ("good", "bad")),
        (
            Wording("en", "How are you?", choices=("good", "bad")),
            Wording("de", "Wie geht es?", choices=("gut", "böse")),
        ),
    )
    document = result_of(asked, [(0.7, (0.6, 0.8), (0.5, 0.9)), (0.3, (0.2, 0.4), (0.1, 0.5))])
    assert [number.label for number in statistic(document).numbers] == ["good", "bad"]
    shown = statistic(document, "de")
    assert (shown.question, [number.label for number in shown.numbers]) == ("Wie geht es?", ["gut", "böse"])
    assert statistic(document, "fr").question == "How are you?"


def test_a_mean_has_its_unit_and_its_ends_are_rounded_outwards() -> None:
    asked = Question("years", OneBit(0.0, 25.0), (Wording("en", "How long?", unit="years"),))
    shown = statistic(result_of(asked, [(8.961, (8.1401, 9.7801), (8.1, 9.8))]))
    (number,) = shown.numbers
    assert shown.about == "the mean answer, of numbers from 0 to 25 years"
    assert shown.sentence(number).startswith("The estimated mean is 9.0 years: 8.1 to 9.8 years for the 1,000 people")
    moved = replace(number, estimate=-0.31, projected=0.0, participants=(0.0, 0.9))
    assert re.search(naming("−0.31"), shown.sentence(moved))


@pytest.mark.parametrize("damage", [{"values": 7}, {"values": [{}]}, {"num_reports": "many"}, {"asked": 3}])
def test_a_document_that_is_not_a_result_is_refused(damage: dict[str, Any]) -> None:
    document = result_of(Question("q", RandomizedResponse()), [(0.3, (0.2, 0.4), (0.1, 0.5))])
    with pytest.raises(ValueError, match=r"croupier survey results --json|many"):
        statistic(document | damage)
    document["values"][0]["population_interval"]["high"] = math.inf
    with pytest.raises(ValueError, match=naming("finite")):
        statistic(document)


def test_a_result_without_a_manifest_has_no_question() -> None:
    document = result_of(Question("q", RandomizedResponse()), [(0.3, (0.2, 0.4), (0.1, 0.5))])
    shown = statistic(document | {"asked": None})
    assert (shown.title, shown.about, shown.scale) == (document["round_id"], "the mean answer", None)
    assert re.search(naming("0.20", "0.40", "1,000 people", "95 %"), shown.sentence(shown.numbers[0]))


def test_a_difference_within_the_noise_is_said_to_be_unseen() -> None:
    asked = Question("q", RandomizedResponse())
    north, south, east = (
        statistic(result_of(asked, [(share, (share - 0.05, share + 0.05), (share - 0.1, share + 0.1))]), group=group)
        for group, share in (("North", 0.6), ("South", 0.4), ("East", 0.42))
    )
    first, second, third = differences([north, south, east])
    assert first.participants == pytest.approx((0.2 - 0.05 * math.sqrt(2), 0.2 + 0.05 * math.sqrt(2)))
    assert first.population == pytest.approx((0.2 - 0.1 * math.sqrt(2), 0.2 + 0.1 * math.sqrt(2)))
    assert re.search(naming("20 points", 12, "28 points", 5, "35 points", "95 %"), first.sentence(north))
    assert (first.is_seen, second.is_seen, third.is_seen) == (True, True, False)
    assert third.sentence(north).startswith("“yes”: no difference between South and East can be told from the noise:")


@pytest.mark.slow
def test_half_of_the_error_is_said_beside_every_result() -> None:
    document = result_of(Question("q", RandomizedResponse()), [(0.3, (0.2, 0.4), (0.1, 0.5))])
    (line,) = halving_lines(document)
    assert re.search(naming("4,000", "budgets"), line)
    assert "instead of 1)" in line
    assert halving_lines(document | {"sealed": True}) == []
    asked = "To halve the error: ask four times as many people, 4,000, with the same mix of budgets"
    grouped = Budgets.from_epsilons([0.5 + 0.001 * place for place in range(1000)])
    certificate = certify(grouped, "rr", delta=1e-6, attack=False)
    assert any(tier.grouped for tier in certificate.tiers)
    assert halving_lines(document | {"certificate": certificate.to_json()}) == [f"{asked}."]
    vectors = certify([1.0] * 1000, "hemisphere(d=20)", delta=1e-6, attack=False)
    (line,) = halving_lines(document | {"values": [], "certificate": vectors.to_json()})
    assert re.search(naming(asked, "ε 3.23 instead"), line)
    noisy = certify([1.0] * 1000, "rr", delta=1e-6, attack=False, hop_noise=(0.1, 1e-6), hops=2).to_json()
    (line,) = halving_lines(document | {"hop_influence": 0.001, "certificate": noisy})
    times, people = re.findall(r"ask ([\d.]+) times as many people, ([\d,]+), with", line)[0]
    assert 2 < float(times) < 4
    assert float(times) == pytest.approx(int(people.replace(",", "")) / 1000, abs=0.1)
    # A certificate that states no hop noise leaves open how much of the error is that of hops.
    assert "four times" in halving_lines(document | {"hop_influence": 0.001})[0]
    refused = document["certificate"] | {"granted": False}
    assert halving_lines(document | {"certificate": refused}) == []


@pytest.mark.slow
def test_explain_says_what_was_learned_first() -> None:
    """Reproduction: of a whole result only the certificate was explained."""
    asked: Mechanism = RandomizedResponse()
    question = Question("q", asked, (Wording("en", "Do you smoke?", choices=("no", "yes")),))
    document = result_of(question, [(0.3, (0.2, 0.4), (0.1, 0.5))])
    first, second, *_ = explain(document).sections
    assert first.title == "What was learned"
    assert first.paragraphs == (
        "“Do you smoke?” The round estimated the share of people who answered “yes”, from 1,000 answers.",
    )
    assert re.search(naming("30 %", 20, "40 %", "1,000 people"), first.points[0])
    assert second.title == "What someone can learn about one person"
    noisy, *_ = explain(document | {"precision": Precision.COVERS_RANGE}).sections
    assert re.search(naming("TOO NOISY", "USE"), noisy.paragraphs[1])
    alone = certify(Budgets.from_tiers([(1.0, 1000)]), BinaryRandomizedResponse(), delta=1e-6)
    assert explain(alone).sections[0].title == second.title
    assert question_json(question)["wordings"][0]["question"] == "Do you smoke?"


@pytest.mark.slow
def test_only_numbers_outside_their_range_are_said_to_be_impossible() -> None:
    """Reproduction: beside one negative share every sentence called its number impossible."""
    source = np.random.default_rng(8)
    called = 0
    for _ in range(60):
        k = int(source.integers(2, 7))
        asked = Question("q", KaryResponse(k))
        raw = source.normal(1 / k, source.choice([0.02, 0.2, 0.6]), k)
        raw += (1 - raw.sum()) / k
        document = result_of(asked, [(share, (0.0, 1.0), (0.0, 1.0)) for share in raw.tolist()])
        for value, possible in zip(document["values"], project_on_simplex(raw).tolist(), strict=True):
            value["projected"] = possible
        shown = statistic(document)
        impossible = {number.label for number in shown.numbers if "impossible" in shown.sentence(number)}
        assert impossible <= {str(place) for place, share in enumerate(raw) if not 0 <= share <= 1}
        for number, share in zip(shown.numbers, raw.tolist(), strict=True):
            assert number.shown == min(max(share, 0.0), 1.0)
            for stated in re.findall(r"to ([−\d.,]+) %, which is", shown.sentence(number)):
                assert not 0 <= float(stated.replace("−", "-")) <= 100
        sums = [each for each in numbers_of(document) if each.is_possible]
        assert [number.shown for number in sums] == [share for share in raw.tolist() if 0 <= share <= 1]
        called += len(impossible)
    assert called > 30


def test_a_number_outside_by_less_than_its_digits_is_not_impossible() -> None:
    (number,) = statistic(result_of(Question("q", RandomizedResponse()), [(0.0, (0.0, 0.3), (0.0, 0.3))])).numbers
    shown = statistic(result_of(Question("q", RandomizedResponse()), [(0.0, (0.0, 0.3), (0.0, 0.3))]))
    assert "impossible" not in shown.sentence(replace(number, estimate=-1e-4))
    assert "impossible" in shown.sentence(replace(number, estimate=-0.2))


@pytest.mark.parametrize(
    ("mechanism", "epsilon", "people", "hop_noise"),
    [
        (OneBit(0.0, 60.0), 0.5, 18, None),
        (OneBit(0.0, 60.0), 4.0, 4, None),
        (RandomizedResponse(), 1.0, 12, (0.3, 1e-6)),
        (KaryResponse(4), 1.0, 30, None),
    ],
)
def test_a_noisy_result_says_how_many_people_make_it_usable(
    mechanism: Any, epsilon: float, people: int, hop_noise: tuple[float, float] | None
) -> None:
    """Reproduction: 72 people were named for half of the error, where half of the interval is too long as well."""
    labels = getattr(mechanism, "categories", ())
    interval = (mechanism.low, mechanism.high) if isinstance(mechanism, OneBit) else (0.0, 1.0)
    numbers = [(interval[1] / max(len(labels), 1), interval, interval)] * max(len(labels), 1)
    document = result_of(Question("q", mechanism), numbers, people, tiers=[(epsilon, people)], hop_noise=hop_noise)
    document["precision"] = Precision.HIDES_SHARES if labels else Precision.COVERS_RANGE
    document["hop_influence"] = 0.01 if hop_noise else 0.0
    (line,) = halving_lines(document)
    needed = int(re.findall(r"([\d,]+) people", line)[0].replace(",", ""))
    assert needed > 1.2 * people
    assert "halve" not in line
    if hop_noise is None:
        source = np.random.default_rng(3)
        k = len(labels) or 2
        q = 1 / (math.expm1(epsilon) + k)
        for _ in range(40):
            values = source.integers(0, k, needed)
            sent = np.where(source.random(needed) < k * q, source.integers(0, k, needed), values)
            assert estimate(Question("q", mechanism), sent, [(epsilon, needed)]).precision == pb.PRECISION_USABLE


def test_nothing_is_advised_where_it_cannot_be_computed() -> None:
    document = result_of(Question("q", RandomizedResponse()), [(0.5, (0.0, 1.0), (0.0, 1.0))])
    document["precision"], document["hop_influence"] = Precision.COVERS_RANGE, 0.1
    assert halving_lines(document) == []  # the certificate does not state the hops' noise
