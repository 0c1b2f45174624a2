"""The independent checker: it proves what croupier certifies, refuses what was changed, and stays above the truth."""

from __future__ import annotations

import copy
import inspect
import json
import math
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import croupier_check
import pytest
from croupier_check import BIT, Mechanism, NotCovered, NotProved, check
from flint import arb

import croupier
from croupier.accountant import kernel
from croupier.protocol.tier_counts import BudgetPrivacy, TierCounts
from tests.support.oracles.from_definitions import worst_delta

Document = dict[str, Any]
Change = Callable[[Document], Document]
CERTIFIED = [
    ([(1.0, 10_000)], "krr(k=10)", {}),
    ([(0.1, 5400), (0.5, 3700), (1.0, 900)], "krr(k=4)", {"dishonest": 10}),
    ([(0.5, 9000), (2.0, 1000)], "rr", {"dishonest": 100}),
    pytest.param([(0.5, 3438), (1.0, 2355), (2.0, 573)], "onebit", {}, marks=pytest.mark.slow),
    ([(4.0, 100_000)], "rr", {"delta": 1e-9}),
    pytest.param([(1.0, 200)], "rr", {}, marks=pytest.mark.slow),
    ([(0.5, 2000), (1.0, 3000)], "levels(k=5)", {"linkage": "stratified"}),
    ([(2.0, 5000)], "pgr(k=100, q=5)", {}),
    pytest.param([(2.0, 5000), (3.0, 200)], "choices(k=4)", {}, marks=pytest.mark.slow),
    ([(1.0, 3000)], "hemisphere(d=20)", {}),
    ([(1.0, 3000)], "levels(k=9)", {"hop_noise": (0.1, 1e-6)}),
    ([(4.0, 30)], "choices(k=10)", {"hop_noise": (0.1, 1e-6)}),
    pytest.param([(4.0, 30)], "pgr(k=1000, q=5)", {"hop_noise": (0.1, 1e-6)}, marks=pytest.mark.slow),
    ([(2.0, 60)], "pgr(k=20, q=3)", {"hop_noise": (0.3, 1e-6)}),
    ([(1.0, 8000), (2.0, 3000)], "rr", {"hop_noise": (1.0, 1e-6), "hops": 3}),
    ([(0.5, 10), (1.0, 3)], "krr(k=3)", {}),
    pytest.param(
        [(0.5, 901), (1.0, 1), (2.0, 401)],
        "rr",
        {"counted_by": TierCounts(BudgetPrivacy()), "dishonest": 2},
        marks=pytest.mark.slow,
    ),
    ([(1.0, 1001), (2.0, 3001)], "krr(k=5)", {"counted_by": TierCounts(BudgetPrivacy(0.5, 1e-6))}),
    pytest.param([(1.0, 1_000_000), (2.0, 9_000_000)], "krr(k=16)", {}, marks=pytest.mark.slow),
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
    proved = f"PROVED: epsilon = {certificate['epsilon']} at delta = {certificate['delta']} for "
    assert check(certificate)[0].startswith(proved)
    for changed in changes(certificate):
        with pytest.raises(NotProved):
            check(changed)


def changes(certificate: Document) -> Iterator[Document]:
    """Yields certificates that say a little more than what was proved.

    With noised numbers croupier leaves out more of the others than the checker has to.
    """
    part = 1e-3 if certificate["budget_privacy"] is None else 0.02
    for number, tier in enumerate(certificate["tiers"]):
        if tier["epsilon"] == tier["local_epsilon"]:
            continue
        smaller = copy.deepcopy(certificate)
        smaller["tiers"][number]["epsilon"] *= 1 - part
        yield smaller
        rarer = copy.deepcopy(certificate)
        rarer["tiers"][number]["delta"] *= 1 - 100 * part if part < 0.01 else 0.5
        yield rarer
    lost = copy.deepcopy(certificate)
    del lost["tiers"][0]
    yield lost | {"tiers": lost["tiers"] or [certificate["tiers"][0] | {"count": 1}]}
    yield certificate | {"epsilon": certificate["epsilon"] * (1 - 1e-3)}
    yield certificate | {"everyone_else_colludes_epsilon": certificate["everyone_else_colludes_epsilon"] * (1 - 1e-3)}
    more, most = copy.deepcopy(certificate), 1.05 * certificate["everyone_else_colludes_epsilon"]
    for tier in more["tiers"]:
        tier["local_epsilon"] *= 1.05
    yield more | {"everyone_else_colludes_epsilon": most}


@pytest.mark.parametrize(("tiers", "kind"), [([(1.0, 10_000)], "rr"), ([(0.5, 400), (1.0, 90)], "krr(k=4)")])
def test_no_witness_proves_what_is_false(tiers: list[tuple[float, int]], kind: str) -> None:
    certificate = document(tiers, kind, {})
    assert "PROVED" in check(certificate)[0]
    false = copy.deepcopy(certificate)
    witness = false["tiers"][-1]["witness"]
    false["tiers"][-1]["epsilon"] *= 1 - 1e-3
    for part in witness["numbers"]:
        numbers = part["numbers"]
        for factor in (0.0, 0.1, 0.9, 1.1, 3.0, -1.0, 1e200):
            part["numbers"] = [factor * number for number in numbers]
            with pytest.raises((NotProved, ValueError)):
                check(false)
        part["numbers"] = numbers
    with pytest.raises((NotCovered, ValueError)):
        check(_with_witness(false, numbers=[]))
    for theorem in ("local-budget", "hop-noise", "worst-case", "blanket-closed-form", "exchange", "composed-losses"):
        with pytest.raises((NotProved, NotCovered, ValueError)):
            check(_with_witness(false, theorem=theorem))
    with pytest.raises(NotCovered, match="no witness"):
        check(certificate | {"tiers": [tier | {"witness": None} for tier in certificate["tiers"]]})


def _with_witness(certificate: Document, **changed: Any) -> Document:
    *others, last = certificate["tiers"]
    return certificate | {"tiers": [*others, last | {"witness": last["witness"] | changed}]}


MUTATED: list[tuple[Any, str, str]] = [
    (kernel.blanket, "return phi, slope / z + s2 * phi", "return phi, slope / z"),
    (kernel.blanket, "return phi, slope / z + s2 * phi", "return phi, slope / z - s2 * phi"),
    (kernel.trapezoidal, "total + 2 * integrand(centre)", "total + integrand(centre)"),
    (kernel.trapezoidal, "/ (2 * arb.pi())\n", "/ (4 * arb.pi())\n"),
    (kernel.blanket, "return (slope * sum((n * (1 - g + g * phi)", "return (slope * sum((n * (1 - g - g * phi)"),
    (kernel.small_blanket, "chance * excess / reports", "chance * excess / reports**2"),
    (kernel.FiniteLaw.gamma, "return self.points", "return 1.1 * self.points"),
    (kernel.FiniteLaw.losses, "gain = epsilon.exp()", "gain = (1.1 * epsilon).exp()"),
]


@pytest.mark.parametrize(("function", "right", "wrong"), MUTATED)
def test_a_defect_of_the_kernel_is_found(
    function: Any, right: str, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(right) == 1
    defective = dict(vars(kernel))
    exec(source.replace(right, wrong), defective)
    owner = kernel.FiniteLaw if "." in function.__qualname__ else kernel
    monkeypatch.setattr(owner, function.__name__, defective[function.__name__])
    tiers, delta = ([(1.0, 6)], 0.05) if function.__name__ == "small_blanket" else ([(1.0, 3000)], 1e-6)
    with pytest.raises(NotProved):
        check(document(tiers, "krr(k=3)", {"delta": delta}))


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


def with_tier(**changed: Any) -> Change:
    return lambda it: it | {"tiers": [it["tiers"][0] | changed], **{k: changed[k] for k in changed if k in it}}


def with_part(name: str, **changed: Any) -> Change:
    return lambda it: it | {name: it[name] | changed}


def with_assumption(code: str, **parameters: Any) -> Change:
    """Adds an assumption in front of the others, or gives another one of its kind these parameters."""

    def change(it: Document) -> Document:
        kept = [each for each in it["assumptions"] if each["code"] != code]
        if code.startswith("runs-"):
            kept = [each for each in kept if not each["code"].startswith("runs-")]
        return it | {"assumptions": [{"code": code, "parameters": parameters}, *kept]}

    return change


def in_turn(*changes: Change) -> Change:
    return lambda it: reduce(lambda document, change: change(document), changes, it)


def repeated(code: str, **parameters: Any) -> Change:
    return lambda it: it | {"assumptions": [{"code": code, "parameters": parameters}, *it["assumptions"]]}


LESS = with_tier(epsilon=1e-4)
FALSE: dict[str, Change] = {
    "rounds that subtract": in_turn(lambda it: it | {"rounds": -1}, with_tier(epsilon=0.0, delta=0.0)),
    "half a round": in_turn(lambda it: it | {"rounds": 0.5}, with_tier(epsilon=0.02)),
    "no round": lambda it: it | {"rounds": 0},
    "dishonest clients that help": in_turn(
        lambda it: it | {"dishonest": -(10**9)}, with_assumption("dishonest-clients", dishonest=-(10**9)), LESS
    ),
    "dishonest clients twice": repeated("dishonest-clients", dishonest=9000),
    "epsilon is NaN": lambda it: it | {"epsilon": math.nan},
    "delta is NaN": lambda it: it | {"delta": math.nan},
    "epsilon is infinite": lambda it: it | {"epsilon": math.inf},
    "epsilon is negative": in_turn(lambda it: it | {"num_users": 3}, with_tier(epsilon=-2.0, count=3, delta=0.9)),
    "delta is 2": with_tier(epsilon=0.0, delta=2.0),
    "a huge count": in_turn(lambda it: it | {"num_users": 10**400}, with_tier(count=10**400)),
    "a huge budget": with_tier(local_epsilon=1e300, epsilon=0.01),
    "a number in quotes": with_tier(epsilon="0.0001 +/- 5"),
    "krr(k=0)": in_turn(with_assumption("runs-krr", k=0), LESS),
    "krr(k=1e300)": in_turn(with_assumption("runs-krr", k=1e300), LESS),
    "pgr(q=-3)": in_turn(with_assumption("runs-pgr", k=100, q=-3), LESS),
    "pgr(q=0)": in_turn(with_assumption("runs-pgr", k=100, q=0), LESS),
    "pgr(q=1)": in_turn(with_assumption("runs-pgr", k=100, q=1), LESS),
    "pgr(q=6)": with_assumption("runs-pgr", k=10**15, q=6),
    "no certificate": lambda it: {"questions": []},
    "a certificate beside another one": lambda it: it | {"epsilon": 1e-9, "questions": [it]},
    "another randomizer": with_assumption("runs-krr", k=2),
    "a round with refusals": lambda it: it | {"granted": True, "refusals": [{"code": "limits-not-met"}]},
    "a refused round": lambda it: it | {"granted": False},
    "budgets that are not known": lambda it: it | {"unknown_budgets": 5, "unknown_budget_epsilon": 0.01},
    "budgets that are not known, and larger": in_turn(
        lambda it: it | {"unknown_budgets": 5, "unknown_budget_epsilon": it["epsilon"]},
        lambda it: it | {"everyone_else_colludes_epsilon": 2.0},
    ),
    "lost reports that are not counted": lambda it: (
        it | {"granted": True, "num_tickets": 20_000, "num_reports": 10_000, "invalid_budgets": 10_000}
    ),
    "noised counts": lambda it: it | {"budget_privacy": {"epsilon": 1.0, "delta": 1e-6}, "most_uncounted": 54},
    "budgets shown and not": repeated("budgets-shown"),
    "an unknown linkage": lambda it: it | {"linkage": "open"},
    "a part that is no guarantee": lambda it: it | {"everyone_else_colludes_epsilon": 0.001, "grade": "LOWER_BOUND"},
    "a local budget without a number": lambda it: it | {"everyone_else_colludes_epsilon": None},
}
FALSE_OF_HOPS: dict[str, Change] = {
    "rounds that are not composed": in_turn(
        lambda it: it | {"rounds": 10},
        with_tier(epsilon=10.0),
        with_part("one_honest_hop", epsilon=1.0, delta=0.0),
        lambda it: it | {"everyone_else_colludes_epsilon": 10.0},
    ),
    "another hop noise": with_assumption("one-honest-hop", epsilon=0.01, delta=1e-6, hops=1),
    "a budget that nobody uses": lambda it: it | {"everyone_else_colludes_epsilon": 8.0},
    "a negative epsilon of hops": in_turn(
        with_assumption("one-honest-hop", epsilon=-1.0, delta=1e-6, hops=3), lambda it: it | {"one_honest_hop": None}
    ),
    "no delta of hops": in_turn(
        with_assumption("one-honest-hop", epsilon=1.0, delta=0.0, hops=3), lambda it: it | {"one_honest_hop": None}
    ),
    "hemispheres cannot be faked": in_turn(
        with_assumption("runs-hemisphere", dimension=3), lambda it: it | {"one_honest_hop": None}
    ),
}


@pytest.mark.parametrize("name", [*FALSE, *FALSE_OF_HOPS])
def test_a_document_that_says_what_is_not_so_is_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if name in FALSE:
        changed = FALSE[name](document([(1.0, 10_000)], "rr", {}))
    else:
        changed = FALSE_OF_HOPS[name](document([(1.0, 3000)], "levels(k=9)", {"hop_noise": (1.0, 1e-6), "hops": 3}))
    file = tmp_path / "certificate.json"
    file.write_text(json.dumps(changed))
    assert croupier_check.main([str(file)]) in (1, 2)
    assert "\nPROVED" not in "\n" + capsys.readouterr().out


def test_a_key_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "certificate.json"
    file.write_text('{"epsilon": 0.001, ' + json.dumps(document([(1.0, 10_000)], "rr", {}))[1:])
    assert croupier_check.main([str(file)]) == 2


def test_a_proof_that_takes_long_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(croupier_check, "MOST_WORK", 1000)
    with pytest.raises(NotCovered, match="longer than about a minute"):
        check(document([(1.0, 10_000)], "rr", {}))


def test_a_certificate_that_joins_budgets_is_not_covered() -> None:
    certificate = document([(0.5, 5000), (1.0, 5000)], "rr", {})
    joined = [tier | {"up_to": True} for tier in certificate["tiers"]]
    with pytest.raises(NotCovered, match="join budgets"):
        check(certificate | {"tiers": joined})
    with pytest.raises(NotCovered, match="more than 100 tiers"):
        check(certificate | {"tiers": joined * 101})


def test_nan_is_larger_than_every_number() -> None:
    assert arb(1).max(arb("nan")).is_nan()


def test_a_round_is_proved_with_those_whose_budgets_are_not_known() -> None:
    certificate = document([(1.0, 4000)], "rr", {"dishonest": 7})
    of_round = certificate | {"granted": True, "num_tickets": 4007, "num_reports": 4000, "invalid_budgets": 0}
    of_round |= {"unknown_budgets": 7, "unknown_budget_epsilon": certificate["epsilon"]}
    of_round |= {"unknown_budget_witness": None}
    assert f"arrived: epsilon = {certificate['epsilon']} at delta = 1e-06, by exchange" in check(of_round)[2]
    for witness in (certificate["tiers"][0]["witness"], {"theorem": "local-budget", "numbers": []}):
        with pytest.raises(NotProved):
            check(of_round | {"unknown_budget_epsilon": 0.01, "unknown_budget_witness": witness, "delta": 1e-6})
    commitments = [{"payload": "0a20" + 32 * "ab", "signatures": []}]
    check(of_round | {"batch_digest": 32 * "ab", "commitments": commitments})
    with pytest.raises(NotProved, match="no hop has signed"):
        check(of_round | {"batch_digest": 32 * "cd", "commitments": commitments})


def test_rounds_that_are_added_up_are_proved() -> None:
    certificate = document([(1.0, 1000)], "krr(k=4)", {"rounds": 2, "delta": 1e-13})
    assert certificate["method"][-1]["code"] == "basic-composition"
    assert "1 tier(s) and 2 round(s)" in check(certificate)[0]
    for changed in (certificate | {"rounds": 3}, certificate | {"everyone_else_colludes_epsilon": 1.5}):
        with pytest.raises(NotProved):
            check(changed)


def test_several_questions_add_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certificates = [croupier.certify([(1.0, people)], "krr(k=4)", delta=1e-6, attack=False) for people in (500, 900)]
    questions = [{"result": {"certificate": certificate.to_json()}} for certificate in certificates]
    total = math.fsum(certificate.epsilon for certificate in certificates) * (1 + 1e-15)
    method = [{"code": "basic-composition", "parameters": {"rounds": 2}}]
    file = tmp_path / "results.json"
    for epsilon, proved in ((total, total), (total / 2, total)):
        together = {"epsilon": epsilon, "delta": 3e-6, "method": method}
        file.write_text(json.dumps({"questions": questions, "together": together}))
        assert croupier_check.main([str(file)]) == 0
        shown = capsys.readouterr().out.splitlines()[-2]
        found = re.fullmatch("PROVED: all together epsilon = ([^ ]+) at delta = .*", shown)
        assert found is not None
        assert float(found[1]) == pytest.approx(proved, rel=1e-14)
        assert ("Not checked" in shown) == (epsilon < total)


@pytest.mark.parametrize("others", [[1.0], [0.5, 2.0], [1.0, 1.0, 3.0], [0.3, 0.9, 2.0, 2.0]])
@pytest.mark.parametrize("victim", [0.4, 2.0])
def test_no_theorem_is_below_the_truth(victim: float, others: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(croupier_check, "MOST_VALUES", 2000)
    tiers = sorted(Counter(others).items())
    for epsilon in (0.0, 0.3):
        truth = worst_delta([victim, *others], 0, BIT.points, epsilon)
        v, e = arb(victim), arb(epsilon)
        enumerated = float(croupier_check.enumeration(v, tiers, e))
        assert truth * (1 - 1e-12) <= enumerated <= truth * (1 + 1e-9) + 1e-12
        bounds = [croupier_check.alone(BIT, v, e), croupier_check.blanket(BIT, v, tiers, e, 0.01, {})]
        for theta, sigma in ((0.3, 0.3), (1.0, 0.1), (3.0, 0.02)):
            place = {"theta": [theta], "sigma": [sigma]}
            bounds.append(croupier_check.blanket(BIT, v, tiers, e, 0.01, place | {"end": [6 / sigma]}))
            witnesses = [place | {"stages": stages} for stages in ([0.05, 0.1], [0.02])]
            bounds += [croupier_check.exchange(v, tiers, e, 0.01, witness) for witness in witnesses]
        assert not any(bound < truth * (1 - 1e-12) for bound in bounds)
        if len(others) < 4:
            three = Mechanism(3)
            truth = worst_delta([victim, *others], 0, three.points, epsilon)
            assert not croupier_check.blanket(three, v, tiers, e, 0.01, {}) < truth * (1 - 1e-12)


@pytest.mark.parametrize("theta", [0.3, 1.5])
def test_the_sum_over_all_counts_is_the_integral(theta: float) -> None:
    kind, v, others, epsilon = Mechanism(5), arb(1), [(0.5, 4), (1.0, 5)], arb(0.2)
    summed = croupier_check.blanket(kind, v, others, epsilon, 1e-4, {})
    place = {"theta": [theta], "sigma": [0.01], "end": [600.0]}
    integral = croupier_check.blanket(kind, v, others, epsilon, 1e-4, place)
    assert float(integral.upper()) == pytest.approx(float(summed.upper()), rel=1e-3)
    assert integral.upper() >= summed.lower()


def test_nobody_is_left_out_of_noised_numbers() -> None:
    """A tier of the largest budget in which nobody was counted may have people; its loss is not seen by the numbers."""
    certificate = document([(0.5, 201), (1.0, 1)], "rr", {"counted_by": TierCounts(BudgetPrivacy())})
    assert [tier["count"] for tier in certificate["tiers"]] == [200, 0]
    check(certificate)
    low = certificate["tiers"][0]
    with pytest.raises(NotProved, match="in no tier"):
        check(certificate | {"tiers": [low], "epsilon": low["epsilon"]})
    with pytest.raises(NotProved, match="budgets-noised"):
        check(certificate | {"budget_privacy": certificate["budget_privacy"] | {"epsilon": 0.5}})
