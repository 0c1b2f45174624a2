"""The independent checker: it proves what croupier certifies, refuses what was changed, and stays above the truth."""

from __future__ import annotations

import copy
import itertools
import json
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import croupier_check
import pytest
from croupier_check import BIT, Mechanism, NotCovered, NotProved, check
from flint import arb

import croupier

Document = dict[str, Any]
CERTIFIED = [
    ([(1.0, 10_000)], "krr(k=10)", {}),
    ([(0.1, 5400), (0.5, 3700), (1.0, 900)], "krr(k=4)", {"dishonest": 10}),
    ([(0.5, 9000), (2.0, 1000)], "rr", {"dishonest": 100}),
    ([(0.5, 3438), (1.0, 2355), (2.0, 573)], "onebit", {}),
    ([(4.0, 100_000)], "rr", {"delta": 1e-9}),
    ([(1.0, 200)], "rr", {}),  # all data sets are enumerated
    ([(0.5, 2000), (1.0, 3000)], "levels(k=5)", {"linkage": "stratified"}),
    ([(2.0, 5000)], "pgr(k=100, q=5)", {}),
    ([(2.0, 5000), (3.0, 200)], "choices(k=4)", {}),
    ([(1.0, 3000)], "hemisphere(d=20)", {}),
    ([(1.0, 3000)], "levels(k=9)", {"hop_noise": (0.1, 1e-6)}),
    ([(1.0, 8000), (2.0, 3000)], "rr", {"hop_noise": (1.0, 1e-6), "hops": 3}),
    ([(0.5, 10), (1.0, 3)], "krr(k=3)", {}),
    ([(1.0, 1_000_000), (2.0, 9_000_000)], "krr(k=16)", {}),
]


def document(tiers: list[tuple[float, int]], kind: str, conditions: dict[str, Any]) -> Document:
    asked = {"delta": 1e-6, **conditions}
    written: Document = json.loads(json.dumps(croupier.certify(tiers, kind, attack=False, **asked).to_json()))
    return written


@pytest.mark.parametrize(("tiers", "kind", "conditions"), CERTIFIED)
def test_what_croupier_certifies_is_proved_and_what_was_changed_is_not(
    tiers: list[tuple[float, int]], kind: str, conditions: dict[str, Any]
) -> None:
    certificate = document(tiers, kind, conditions)
    claims = check(certificate)
    assert [claim.epsilon for claim in claims][: len(tiers)] == [tier["epsilon"] for tier in certificate["tiers"]]
    for changed in changes(certificate):
        with pytest.raises(NotProved):
            check(changed)


def changes(certificate: Document) -> Iterator[Document]:
    """Yields certificates that say a little more than what was proved."""
    for number, tier in enumerate(certificate["tiers"]):
        if tier["epsilon"] == tier["local_epsilon"]:
            continue
        smaller = copy.deepcopy(certificate)
        smaller["tiers"][number]["epsilon"] *= 1 - 1e-3
        yield smaller
        rarer = copy.deepcopy(certificate)
        rarer["tiers"][number]["delta"] *= 0.9
        yield rarer
    lost = copy.deepcopy(certificate)
    del lost["tiers"][0]
    yield lost | {"tiers": lost["tiers"] or [certificate["tiers"][0] | {"count": 1}]}
    yield certificate | {"epsilon": certificate["epsilon"] * (1 - 1e-3)}
    alone = certificate["everyone_else_colludes"]
    yield certificate | {"everyone_else_colludes": alone | {"epsilon": alone["epsilon"] * (1 - 1e-3)}}


def test_a_theorem_is_used_only_where_its_assumptions_are_stated() -> None:
    certificate = document([(1.0, 10_000)], "rr", {})
    for code in ("uniform-order", "budgets-public", "independent-reports", "budgets-unlinked"):
        stated = [each for each in certificate["assumptions"] if each["code"] != code]
        with pytest.raises(NotProved):
            check(certificate | {"assumptions": stated})
    with pytest.raises(NotCovered, match="adaptive-order"):
        check(
            certificate | {"assumptions": [*certificate["assumptions"], {"code": "adaptive-order", "parameters": {}}]}
        )
    with pytest.raises(NotCovered, match="HEURISTIC"):
        check(certificate | {"grade": "HEURISTIC"})


def test_people_read_what_is_proved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "certificate.json"
    certificate = document([(1.0, 10_000)], "krr(k=10)", {})
    file.write_text(json.dumps(certificate))
    assert croupier_check.main([str(file)]) == 0
    shown = capsys.readouterr().out
    assert f"PROVED: epsilon = {certificate['epsilon']} at delta = 1e-06" in shown
    assert "uniform-order" in shown
    file.write_text(json.dumps(certificate | {"epsilon": 0.001}))
    assert croupier_check.main([str(file)]) == 1
    file.write_text(json.dumps(document([(1.0, 100)], "laplace", {})))
    assert croupier_check.main([str(file)]) == 2
    file.write_text("[]")
    assert croupier_check.main([str(file)]) == 2
    assert "PROVED" not in capsys.readouterr().out.replace("NOT PROVED", "")


def exact(kind: Mechanism, victim: float, others: list[float], epsilon: float) -> float:
    """Returns the largest divergence over all data sets, with every batch of reports written out."""
    k, values = kind.points, range(kind.points)

    def report(budget: float, value: int, said: int) -> float:
        return (math.exp(budget) if said == value else 1.0) / (math.exp(budget) + k - 1)

    worst = 0.0
    for data in itertools.product(values, repeat=len(others)):
        for pair in itertools.permutations(values, 2):
            laws: tuple[Counter[tuple[int, ...]], Counter[tuple[int, ...]]] = Counter(), Counter()
            for law, own in zip(laws, pair, strict=True):
                for said in itertools.product(values, repeat=len(others) + 1):
                    people = zip((victim, *others), (own, *data), said, strict=True)
                    law[tuple(sorted(said))] += math.prod(report(*person) for person in people)  # type: ignore[assignment]
            first, second = laws
            worst = max(worst, sum(max(0.0, first[b] - math.exp(epsilon) * second[b]) for b in first))
    return worst


@pytest.mark.parametrize("others", [[1.0], [0.5, 2.0], [1.0, 1.0, 3.0], [0.3, 0.9, 2.0, 2.0]])
@pytest.mark.parametrize("victim", [0.4, 2.0])
def test_no_theorem_is_below_the_truth(victim: float, others: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(croupier_check, "MOST_CELLS", 300)
    tiers = sorted(Counter(others).items())
    for epsilon in (0.0, 0.3):
        truth = exact(BIT, victim, others, epsilon)
        v, e = arb(victim), arb(epsilon)
        enumerated = float(croupier_check.enumeration(v, tiers, e))
        assert truth * (1 - 1e-12) <= enumerated <= truth * (1 + 1e-9) + 1e-12
        for bound in (
            croupier_check.exchange(v, tiers, e, 0.01),
            croupier_check.blanket(BIT, v, tiers, e, 0.01),
            croupier_check.smoothed_blanket(BIT, v, tiers, e, 0.01, 0.3),
            croupier_check.alone(BIT, v, e),
        ):
            assert not bound < truth * (1 - 1e-12)
        if len(others) < 4:
            three = Mechanism("krr", 3, 1, 0)
            assert not croupier_check.blanket(three, v, tiers, e, 0.01) < exact(three, victim, others, epsilon) * (
                1 - 1e-12
            )


def test_the_sum_over_all_counts_is_the_integral() -> None:
    kind, v, others, epsilon = Mechanism("krr", 5, 1, 0), arb(1), [(0.5, 30), (1.0, 40)], arb(0.2)
    summed = croupier_check.small_blanket(kind, v, others, epsilon, 1e-4)
    assert summed is not None
    smoothed = croupier_check.smoothed_blanket(kind, v, others, epsilon, 1e-4, 0.0005)
    assert float(smoothed.upper()) == pytest.approx(float(summed.upper()), rel=1e-3)
    assert smoothed.upper() >= summed.lower()
