"""The accountant's commands, as a person with a file of budgets would use them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from croupier.accountant.mechanisms.registry import RANDOMIZERS
from croupier.client.thresholds import MAX_LOCAL_EPSILON
from croupier.protocol.certificates import alone_in
from croupier.protocol.codes import Assumption, Method, Note, ProofStep
from croupier.protocol.rounding import percent, round_down, round_up
from croupier.show.explanation import explain
from research.bench.certificates import TIMED_CASES, time_case
from tests.support.accounting import draw_points_only
from tests.support.command_line import invoke
from tests.support.messages import naming
from tests.support.sheets import write_book
from tests.support.statements import codes, parameters

PNG = b"\x89PNG"
DIRECTIONS = ("--randomizer", "hemisphere(d=60)")
"""Quicker than bits, whose worst case is searched for."""


def run(*arguments: object, expect: int = 0, typed: str | bytes = "") -> str:
    result = invoke(*arguments, typed=typed)
    assert result.exit_code == expect, result.stderr
    return result.stdout if expect == 0 else result.stderr.replace("\n", " ")


def answer(*arguments: object) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(run(*arguments, "--json"))
    return document


@pytest.fixture
def budgets(tmp_path: Path) -> Path:
    path = tmp_path / "budgets.csv"
    path.write_text("epsilon,count\n0.1,540\n0.5,370\n1.0,90\n")
    return path


@pytest.fixture
def even(tmp_path: Path) -> Path:
    path = tmp_path / "even.csv"
    path.write_text("epsilon,count\n4.0,1000\n")
    return path


@pytest.fixture
def points_only(monkeypatch: pytest.MonkeyPatch) -> None:
    draw_points_only(monkeypatch)


@pytest.mark.parametrize(
    ("arguments", "low", "high"),
    [
        (("rr",), 0.08, 0.15),
        (("krr(k=10)",), 0.05, 0.12),
        (("laplace",), 0.1, 0.2),
        (("laplace(lattice=100)",), 0.1, 0.2),
        (("hemisphere(d=60)",), 0.08, 0.15),
    ],
)
def test_certify_knows_every_randomizer(budgets: Path, arguments: tuple[Any, ...], low: float, high: float) -> None:
    result = answer("certify", budgets, "--delta", "1e-6", "--randomizer", *arguments)
    assert low < result["lower_bound_epsilon"] <= result["epsilon"] < high
    assert "victim of local ε 1" in result["lower_bound_attack"]
    assert (result["grade"], result["num_users"]) == ("CERTIFIED", 1000)


def test_two_tiers_of_bits_are_certified_within_a_hundredth_of_the_attack(tmp_path: Path) -> None:
    path = tmp_path / "mixed.csv"
    path.write_text("epsilon,count\n0.5,9000\n2,1000\n")
    result = answer("certify", path, "--delta", "1e-6", "--compare")
    assert 0.056874 <= result["epsilon"] <= 0.0575
    blanket = answer("certify", path, "--delta", "1e-6", "--bounds", "blanket")
    assert 0.0640 <= blanket["epsilon"] <= 0.0641


def test_budgets_are_read_as_spreadsheets_write_them(tmp_path: Path, budgets: Path) -> None:
    how = (*DIRECTIONS, "--delta", "1e-6")
    plain = answer("certify", budgets, *how)
    semicolons = tmp_path / "semicolons.csv"
    semicolons.write_bytes("epsilon;count\r\n0,1;540\r\n0,5;370\r\n1;90\r\n".encode("utf-16"))
    book = write_book(tmp_path / "budgets.xlsx", [("epsilon", "count"), (0.1, 540), (0.5, 370), (1, 90)])
    for file in (semicolons, book):
        assert answer("certify", file, *how) == plain
    said = invoke("certify", semicolons, *how).stderr
    assert re.search(naming("UTF-16", "epsilon"), " ".join(said.split()))
    semicolons.write_text("epsilon;count\n0,1;540\n0,5;many\n")
    assert re.search(naming("line 3", "'many'"), run("certify", semicolons, *how, expect=2))


@pytest.mark.slow
def test_gaussian_budgets_need_their_delta(tmp_path: Path, budgets: Path) -> None:
    path = tmp_path / "gaussian.csv"
    path.write_text("epsilon,delta,count\n1.0,1e-6,1000\n")
    result = answer("certify", path, "--delta", "1e-5", "--randomizer", "gaussian")
    assert 0 < result["lower_bound_epsilon"] <= result["epsilon"] < 0.1
    assert alone_in(result) == {"epsilon": 1.0, "delta": 1e-6}
    table = run("certify", path, "--delta", "1e-5", "--randomizer", "gaussian")
    assert re.search(r"everyone else colludes, at its .*\n│ local δ = 1e-06 ", table)
    path.write_text("epsilon,delta,count\n1.0,5.000000000000001e-08,1000\n")  # as a sum that is rounded up can be
    assert "5.01e-08" in run("certify", path, "--delta", "1e-5", "--randomizer", "gaussian")
    assert "local_delta is 0" in run("certify", budgets, "--delta", "1e-5", "--randomizer", "gaussian", expect=2)


def test_compare_judges_every_published_bound(even: Path) -> None:
    result = answer("certify", even, "--delta", "1e-6", "--compare")
    status = {bound["name"]: bound["status"] for bound in result["comparison"]}
    assert len(status) == 12
    assert status["GSPA Thm 2"] == "refuted"
    assert status["GSPA Thm 1"] == "valid"
    assert status["EFMRTT19"] == "out of range"
    shown = run("certify", even, "--delta", "1e-6", "--compare")
    assert "refuted" in shown
    assert "LOWER_BOUND" in shown


def test_certify_says_why_nothing_is_gained(tmp_path: Path, budgets: Path) -> None:
    """Reproduction: the reason was among the steps of --explain only."""
    (path := tmp_path / "gaussian.csv").write_text("epsilon,delta,count\n1,1e-6,1000\n")
    vectors = ("--randomizer", "gaussian(d=3)", "--delta", "1e-5")
    said = " ".join(run("certify", path, *vectors).split())
    assert re.search(naming("3 dimensions"), said)
    (path := tmp_path / "few.csv").write_text("epsilon,count\n5,2\n")
    said = run("certify", path, "--delta", "1e-9", *DIRECTIONS)
    assert "Note: nothing less than the local budget could be proved" in " ".join(said.split())
    assert "Remark: no amplification: no bound gives less" in " ".join(said.split())
    assert "nothing less" not in run("certify", budgets, "--delta", "1e-6", *DIRECTIONS)


def test_every_randomizer_that_an_error_names_is_in_the_help(budgets: Path) -> None:
    said = run("certify", budgets, "--delta", "1e-6", "--randomizer", "foo", expect=2)
    named = said.partition("it must be one of ")[2].strip()
    kinds = re.findall(r"(\w+)(?:\([^)]*\))?(?:, |$)", named)
    assert len(kinds) == len(RANDOMIZERS)
    for command in ("certify", "curve", "audit", "plan"):
        shown = " ".join(re.sub("[│─]", "", run(command, "--help")).split())
        assert all(kind in shown for kind in kinds)


def test_explain_lists_the_steps(budgets: Path) -> None:
    tiers = answer("certify", budgets, "--delta", "1e-6", "--randomizer", "laplace", "--explain")["steps"]
    steps = codes(step for tier in tiers for step in tier)
    for code in (ProofStep.BLANKET_WEIGHTS, ProofStep.BLANKET_REPORTS, ProofStep.BLANKET_MISSED, ProofStep.REACHED):
        assert code in steps
    assert "this number" in run("certify", budgets, "--delta", "1e-6", "--explain")


@pytest.mark.slow
def test_explain_says_a_certificate_in_plain_words(budgets: Path, tmp_path: Path) -> None:
    printed = run("certify", budgets, "--delta", "1e-6", "--explain", "--json")
    file = tmp_path / "certificate.json"
    file.write_text(printed)
    said = run("explain", file)
    assert said == run("explain", "-", typed=printed)
    assert max(map(len, said.splitlines())) <= 80
    result = answer("explain", file)
    assert result == explain(json.loads(printed)).to_json()
    for section in result["sections"]:
        for line in (section["title"], *section["paragraphs"], *section["points"]):
            assert line in " ".join(said.split())
    assert f"right at most {percent(result['certified']['right_at_most'])} of the time" in " ".join(said.split())
    assert not re.search(r"\d\n *%|[εδ=≥]\n", said)
    assert said.endswith("\nThis explains what was read. It does not check who made it, or what was changed.\n")


@pytest.mark.slow
def test_every_question_of_a_demo_is_explained(budgets: Path) -> None:
    """Reproduction: 'croupier demo --json | croupier explain -' said that this is not a certificate."""
    document = answer("certify", budgets, *DIRECTIONS, "--delta", "1e-6")
    demo = {
        "questions": [{"name": name, "certificate": document} for name in ("smokes", "mood\x1b[2J")],
        "together": {},
    }
    alone, said = run("explain", "-", typed=json.dumps(document)), run("explain", "-", typed=json.dumps(demo))
    assert said.count(alone.partition("\nThis explains")[0].strip()) == 2
    assert "\nsmokes\n" in said
    assert "\x1b" not in said
    questions = json.loads(run("explain", "-", "--json", typed=json.dumps(demo)))["questions"]
    assert [question["certified"] for question in questions] == [explain(document).to_json()["certified"]] * 2
    refused = {"questions": [{"name": "smokes", "certificate": 1}]}
    assert "not a certificate" in run("explain", "-", typed=json.dumps(refused), expect=2)


def test_a_certificate_that_its_own_attack_refutes_is_not_explained(budgets: Path) -> None:
    """Reproduction: it was explained as CERTIFIED."""
    document = answer("certify", budgets, *DIRECTIONS, "--delta", "1e-6")
    reached = document["lower_bound_epsilon"]
    edited = document | {"epsilon": 0.001, "tiers": [tier | {"epsilon": 0.001} for tier in document["tiers"]]}
    said = run("explain", "-", typed=json.dumps(edited), expect=2)
    assert re.search(naming("ε = 0.001", "δ = 1e-06"), said)
    assert re.search(naming("ε", f"{reached:g} can", "δ = 1e-06"), said)


def test_what_cannot_be_explained_is_named(budgets: Path, tmp_path: Path) -> None:
    assert "budgets.csv cannot be read" in run("explain", budgets, expect=2)
    assert "<stdin> cannot be read" in (said := run("explain", "-", typed=b"\xff{}", expect=2))
    assert re.search(
        naming("'croupier certify --json'", "'croupier survey results --json'", "'croupier demo --json'"), said
    )
    # Reproduction: after a command that had failed, a second error that had nothing to do with it.
    assert "standard input is empty" in run("explain", "-", expect=2)
    assert "not a certificate" in run("explain", "-", typed="[1]", expect=2)
    assert "missing.json" in run("explain", tmp_path / "missing.json", expect=2)


@pytest.mark.slow
def test_rounds_and_linkage(budgets: Path) -> None:
    result = answer("certify", budgets, *DIRECTIONS, "--delta", "1e-6")["epsilon"]
    five = answer("certify", budgets, *DIRECTIONS, "--delta", "1e-6", "--rounds", 5)
    assert result < five["epsilon"] < 5 * result
    assert parameters(five["method"], Method.COMPOSED_LOSSES) == {"rounds": 5}
    assert answer("certify", budgets, *DIRECTIONS, "--delta", "1e-6", "--linkage", "stratified")["epsilon"] > 2 * result


@pytest.mark.slow
def test_curve_draws_what_it_prints(budgets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plot = tmp_path / "curve.png"
    result = answer("curve", budgets, *DIRECTIONS, "--out", plot)
    assert plot.read_bytes().startswith(PNG)
    epsilons = [point["epsilon"] for point in result["points"]]
    assert epsilons == sorted(epsilons)
    for point in result["points"]:
        assert point["lower_bound_epsilon"] <= point["epsilon"]
    draw_points_only(monkeypatch)
    assert "drawn in" in run("curve", budgets, *DIRECTIONS, "--out", plot)


def test_audit_searches_and_never_passes_the_certificate(even: Path) -> None:
    result = answer("audit", even, "--seconds", "0.5")
    assert result["lower_bound"]["epsilon"] == pytest.approx(1.69101, rel=1e-4)
    assert 1 <= result["ratio"] < 1.02
    # Reproduction: the certified epsilon stood there without its delta.
    assert "CERTIFIED ε = 1.69" in (shown := " ".join(run("audit", even, "--seconds", "0").split()))
    assert shown.count("at δ = 1e-06") == 2


def test_audit_is_at_the_local_delta_where_that_is_not_amplified(tmp_path: Path) -> None:
    """It compared (1, 10^-3) with an attack at 10^-6, and said that croupier is wrong."""
    two = tmp_path / "two.csv"
    two.write_text("epsilon,delta,count\n1,0.001,2\n")
    shown = " ".join(run("audit", two, "--randomizer", "gaussian", "--seconds", "0").split())
    assert "CERTIFIED ε = 1 at δ = 0.001" in shown
    assert shown.count("at δ = 0.001") == 2


@pytest.mark.slow
def test_plan_answers_what_is_left_open(budgets: Path) -> None:
    local = answer("plan", "--users", 1000, "--epsilon", 0.3)
    assert local["goal"] == "local budgets"
    assert 0.29 < local["certificate"]["epsilon"] <= 0.3
    users = answer("plan", "--budgets", budgets, "--epsilon", 0.05)
    assert users["goal"] == "number of users"
    assert users["certificate"]["epsilon"] <= 0.05
    accuracy = answer("plan", "--budgets", budgets)
    assert accuracy["goal"] == "accuracy"
    assert 0.02 < accuracy["standard_error"] < 0.2
    assert "standard error" in run("plan", "--budgets", budgets)


def test_plan_says_where_the_most_that_a_client_accepts_is_the_limit() -> None:
    """Reproduction: a local budget of 20 looked as if the target allowed no larger one."""
    arguments = ("plan", "--users", 100, "--epsilon", 100, "--randomizer", "hemisphere(d=3)")
    said = " ".join(run(*arguments).split())
    assert re.search(naming(f"ε {MAX_LOCAL_EPSILON:g} ({MAX_LOCAL_EPSILON:g}"), said)
    assert "a client accepts" not in run("plan", "--users", 100, "--epsilon", 0.5, *arguments[5:])
    assert f"up to {MAX_LOCAL_EPSILON:g}, the most that a client accepts" in " ".join(run("plan", "--help").split())


def test_tightness_writes_its_table(tmp_path: Path) -> None:
    out = tmp_path / "tightness.md"
    (row,) = answer("research", "tightness", "--seconds", 0, "--cases", 1, "--out", out)["rows"]
    assert 1 <= row["ratio"] < 1.02
    assert round_up(row["certified"]) in out.read_text()


@pytest.mark.slow
def test_timed_cases_are_certified_and_attacked() -> None:
    (row,) = [time_case(case) for case in TIMED_CASES if case.name == "rr, 10^4 users"]
    assert row["attack_epsilon"] is not None
    assert 0 < row["attack_epsilon"] <= row["epsilon"] < 0.1
    assert row["share_of_target"] == pytest.approx(row["processor_s"] / row["target_s"])
    assert row["peak_memory_bytes"] > 10**7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("certify", "BUDGETS", "--delta", "1e-6", "--randomizer", "rr(lattice=5)"), "rr has no lattice"),
        (("certify", "BUDGETS", "--delta", "1e-6", "--randomizer", "laplace(lattice=0)"), "lattice is 0"),
        (("certify", "BUDGETS", "--delta", "1e-6", "--linkage", "loose"), "linkage is 'loose'"),
        (("certify", "BUDGETS", "--delta", "1e-6", "--rounds", 0), "rounds is 0"),
        (("certify", "BUDGETS", "--delta", "1e-6", "--dishonest", -1), "dishonest is -1"),
        (("certify", "BUDGETS", "--delta", "1e-6", "--randomizer", "krr"), "k is missing"),
        (("certify", "BUDGETS", "--delta", 2), "delta is 2.0; it must be"),
        (("plan",), "neither --users nor --budgets"),
        (("plan", "--epsilon", 0.1), "neither --users nor --budgets"),
        (("plan", "--users", 10, "--epsilon", -1), "epsilon is -1"),
        (("audit", "BUDGETS", "--delta", 0), "delta is 0"),
        (("audit", "BUDGETS", "--seconds", -1), "seconds is -1"),
        (("curve", "missing.csv"), "missing.csv"),
    ],
)
def test_bad_input_is_named(budgets: Path, arguments: tuple[Any, ...], message: str) -> None:
    assert message in run(*(budgets if a == "BUDGETS" else a for a in arguments), expect=2)


@pytest.mark.slow
@pytest.mark.usefixtures("points_only")
def test_no_epsilon_is_shown_at_a_delta_that_it_is_not_certified_at(tmp_path: Path) -> None:
    """Reproduction: 'audit' wrote CERTIFIED at the delta that was asked for, and not at the noise's own, larger one."""
    path = tmp_path / "gaussian.csv"
    path.write_text("epsilon,delta,count\n1,1e-5,3\n")
    of_noise = (path, "--randomizer", "gaussian")
    said = " ".join(run("audit", *of_noise, "--delta", "1e-8", "--seconds", 0.1).split())
    assert "CERTIFIED ε = 1 at δ = 1e-05" in said
    assert "at δ = 1e-05: " in said
    assert "1e-08" not in said
    result = answer("audit", *of_noise, "--delta", "1e-8", "--seconds", 0.1)
    assert result["lower_bound"]["delta"] == result["certificate"]["delta"] == 1e-5
    points = answer("curve", *of_noise, "--out", tmp_path / "curve.png")["points"]
    assert [point["delta"] for point in points] == [1e-2, 1e-3, 1e-4, 1e-5]
    assert all(point["lower_bound_delta"] == point["delta"] for point in points)


def test_beside_a_delta_the_attack_is_one_on_delta(budgets: Path) -> None:
    """Reproduction: 'certify --epsilon 0.05' showed '≥ 0.05 LOWER_BOUND', below a δ that the attack does not reach."""
    result = answer("certify", budgets, "--epsilon", "0.05")
    shown = run("certify", budgets, "--epsilon", "0.05")
    assert f"attack: δ ≥ {round_down(result['lower_bound_delta'], 3)} at ε = 0.05" in shown
    assert "│ ≥" not in shown


def test_a_delta_that_guarantees_nothing_is_not_shown_without_a_word(budgets: Path) -> None:
    shown = " ".join(run("certify", budgets, "--delta", "0.5").split())
    assert re.search(naming("δ = 0.5", "1,000 people"), shown)
    assert "Note" not in run("certify", budgets, "--delta", "1e-6")
    assert "Note: δ = 0.5" in " ".join(run("audit", budgets, "--delta", "0.5", "--seconds", 0).split())
    assert "Note: δ = 0.5" in " ".join(run("plan", "--users", 9, "--epsilon", 0.1, "--delta", 0.5).split())


@pytest.mark.slow
@pytest.mark.usefixtures("points_only")
def test_a_curve_says_which_of_its_deltas_protect_nobody(budgets: Path, tmp_path: Path) -> None:
    """Reproduction: "0.01 │ 0 │" stood in a table of CERTIFIED figures for 1,000 people, without a word."""
    large = " ".join(run("curve", budgets, "--out", tmp_path / "curve.png").split())
    assert "Note: δ = 0.001 is not below 1/1,000" in large
    notes = answer("curve", budgets, "--out", tmp_path / "curve.png")["notes"]
    assert parameters(notes, Note.LARGE_DELTA) == {"delta": 1e-3, "people": 1000}
    (tmp_path / "few.csv").write_text("epsilon\n1\n2\n")
    few = " ".join(run("curve", tmp_path / "few.csv", "--out", tmp_path / "curve.png").split())
    assert "Note" not in few


@pytest.mark.slow
@pytest.mark.usefixtures("points_only")
def test_a_certified_number_in_a_line_or_curve_says_what_it_assumes(budgets: Path, tmp_path: Path) -> None:
    """Reproduction: `audit` and `curve` printed CERTIFIED, and neither a shuffler nor a dishonest client."""
    assuming = "assuming: one shuffler's order secret, at most 7 dishonest clients"
    asked = (budgets, "--dishonest", 7)
    assert assuming in " ".join(run("audit", *asked, "--seconds", 0).split())
    drawn = " ".join(run("curve", *asked, "--out", tmp_path / "curve.png").split())
    assert re.search(naming("one shuffler", "most 7"), drawn)
    certificate = answer("audit", *asked, "--seconds", 0)["certificate"]
    assert certificate["method"]
    assert parameters(certificate["assumptions"], Assumption.DISHONEST_CLIENTS) == {"dishonest": 7}


@pytest.mark.slow
def test_hop_noise_is_certified_planned_and_drawn(even: Path, tmp_path: Path) -> None:
    result = answer("certify", even, "--hop-noise", 0.1)
    assert (result["delta"], result["epsilon"] <= 0.1) == (1e-6, True)
    assert result["one_honest_hop"]["epsilon"] == result["epsilon"]
    assert [assumption["code"] for assumption in result["assumptions"]][-1] == Assumption.ONE_HONEST_HOP
    shown = run("certify", even, "--hop-noise", 0.1, "--hops", 3)
    assert "one honest hop" in shown
    rounds = answer("certify", even, "--hop-noise", 0.1, "--rounds", 10, "--delta", 1e-5)
    assert parameters(rounds["assumptions"], Assumption.ONE_HONEST_HOP)["delta"] == 1e-5 / 10
    planned = run("plan", "--users", 200, "--epsilon", 0.1, "--hop-noise", 0.1)
    assert "(8 is the most that a client accepts)" in planned
    drawn = run("curve", even, "--hop-noise", 0.1, "--out", tmp_path / "curve.png")
    assert "shufflers is honest" in " ".join(drawn.split())


def test_hop_noise_outside_its_range_is_refused_in_a_sentence(even: Path) -> None:
    assert "must be 0.001..20" in run("certify", even, "--hop-noise", 30, expect=2)
    assert "without hop_noise" in run("certify", even, "--delta", 1e-6, "--hop-noise-delta", 1e-6, expect=2)
    refused = run("certify", even, "--delta", 1e-6, "--hop-noise", 0.1, "--randomizer", "laplace", expect=2)
    assert "rr, krr, onebit" in refused
