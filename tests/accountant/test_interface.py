"""Every public function takes budgets and randomizers in every form, and refuses the rest with what they must be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest

from croupier import (
    BinaryRandomizedResponse,
    Budgets,
    Conditions,
    RoundConditions,
    TableMechanism,
    Tier,
    certify,
    compare,
    lower_bound,
    plan,
    privacy_profile,
    randomizer_from_name,
)
from croupier.accountant.mechanisms.registry import RANDOMIZERS
from croupier.accountant.release import SettledConditions
from croupier.protocol.codes import Assumption
from croupier.protocol.statements import Statement
from tests.support.messages import naming

Ask = Callable[[Any, Any], Any]
FUNCTIONS: dict[str, Ask] = {
    "certify": lambda budgets, randomizer: certify(budgets, randomizer, delta=1e-3).epsilon,
    "compare": lambda budgets, randomizer: [bound.epsilon for bound in compare(budgets, randomizer, 1e-3)],
    "lower_bound": lambda budgets, randomizer: lower_bound(budgets, randomizer, delta=1e-3).epsilon,
    "plan": lambda budgets, randomizer: plan(randomizer, budgets=budgets, delta=1e-3).certificate.epsilon,
    "privacy_profile": lambda budgets, randomizer: (
        privacy_profile(budgets, randomizer, deltas=[1e-3]).points[0].certificate.epsilon
    ),
}
everywhere = pytest.mark.parametrize("ask", FUNCTIONS.values(), ids=FUNCTIONS.keys())


@everywhere
def test_every_form_of_budgets_gives_the_same_answer(ask: Ask) -> None:
    """Reproduction: `certify({1.0: 1000}, …)` certified one user, and `compare(…, "rr", …)` was an AttributeError."""
    expected = ask(Budgets.from_tiers([(0.5, 20), (1.0, 30)]), BinaryRandomizedResponse())
    forms = (
        {0.5: 20, 1.0: 30},
        [(0.5, 20), (1.0, 30, 0.0)],
        [Tier(1.0, 30), [0.5, 20]],
        [0.5] * 20 + [1.0] * 30,
        (epsilon for epsilon in [0.5] * 20 + [1.0] * 30),
        np.repeat([0.5, 1.0], [20, 30]),
    )
    for form in forms:
        assert ask(form, "rr") == expected


@everywhere
@pytest.mark.parametrize(
    "budgets",
    [
        5,
        "0.5",
        {1.0: 2.5},
        {"a": 3},
        {-1.0: 5},
        {},
        [],
        ["a"],
        [None],
        [(1.0,)],
        [(1.0, 2), 3.0],
        [[[1.0]]],
        [True, "x"],
    ],
    ids=repr,
)
def test_what_no_budgets_are_is_refused_with_the_range(ask: Ask, budgets: Any) -> None:
    with pytest.raises(ValueError, match="must"):
        ask(budgets, "rr")


@everywhere
@pytest.mark.parametrize(
    "randomizer", ["exact", 5, None, BinaryRandomizedResponse, "krr", "krr(k=1)", "krr(k=x)", "rr(k=2)"]
)
def test_what_no_randomizer_is_is_refused_with_what_it_must_be(ask: Ask, randomizer: Any) -> None:
    with pytest.raises(ValueError, match=r"must be|needs it|has no"):
        ask({1.0: 10}, randomizer)


@pytest.mark.parametrize(
    "name", ["rr", "onebit", "laplace", "gaussian", "krr(k=5)", "hemisphere(d=3)", "gaussian(d=2)"]
)
def test_names_that_certificates_print_are_taken(name: str) -> None:
    assert randomizer_from_name(name).name == name
    budgets = [(1.0, 50, 1e-6 if name.startswith("gaussian") else 0.0)]
    certificate = certify(budgets, name, delta=1e-3, attack=False)
    assert certificate.randomizer == name


def test_a_parameter_is_given_once() -> None:
    assert randomizer_from_name("gaussian_vector(d=3, records=7)").name == "gaussian_vector(d=3, records=7)"
    with pytest.raises(ValueError, match=naming("k", "twice")):
        randomizer_from_name("krr(k=5)", k=5)


@dataclass(frozen=True)
class _Scaled(BinaryRandomizedResponse):
    """Parameters of every type that can be written in a name."""

    kind: ClassVar[str] = "scaled"
    scale: float
    steps: int | None = None
    label: str = "none"

    @property
    def statement(self) -> Statement[Assumption]:
        return BinaryRandomizedResponse().statement


def test_parameters_of_a_name_are_read_as_their_types(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reproduction: only whole numbers were read, so that no name was taken of a mechanism with another parameter."""
    monkeypatch.setitem(RANDOMIZERS, "scaled", _Scaled)
    name = "scaled(scale=0.5, steps=3, label=tall)"
    assert randomizer_from_name(name) == _Scaled(0.5, 3, "tall")
    assert certify({1.0: 50}, name, delta=1e-3, attack=False).randomizer == name
    for bad, message in [
        ("scaled(scale=wide)", "scale.*'wide'"),
        ("scaled(scale=1, steps=0.5)", "steps.*'0.5'"),
        ("scaled(scale=1, scale=2)", "scale is given twice"),
        ("scaled(steps=2)", r"scale is missing; scaled needs it, as in 'scaled\(scale=0.5\)'"),
        ("scaled(width=2)", "width is '2', but scaled has no width"),
        ("scaled(k)", "k is '', but scaled has no k"),
    ]:
        with pytest.raises(ValueError, match=message):
            randomizer_from_name(bad)


def test_a_table_may_be_nested_lists() -> None:
    """Reproduction: `TableMechanism({1.0: [[...], [...]]})` was an AttributeError."""
    keep = np.exp(1.0) / (1 + np.exp(1.0))
    rows = [[keep, 1 - keep], [1 - keep, keep]]
    listed, array = TableMechanism({1.0: rows}), TableMechanism({1.0: np.array(rows)})
    assert certify({1.0: 100}, listed, delta=1e-3).epsilon == certify({1.0: 100}, array, delta=1e-3).epsilon
    tables: Any
    for tables in (rows, {1.0: 5}, {1.0: [[0.5, 0.5], [1.0]]}, {1.0: [["a", "b"]]}, {"x": rows}, {}):
        with pytest.raises(ValueError, match="must"):
            TableMechanism(tables)


def test_numbers_of_numpy_are_numbers_and_texts_are_none() -> None:
    plain = certify({1.0: 100}, "rr", delta=1e-3, dishonest=3)
    assert certify({np.float64(1): np.int64(100)}, "rr", delta=np.float64(1e-3), dishonest=np.int64(3)) == plain  # type: ignore[arg-type]
    bad: Any
    for bad in ("0.1", None, [0.1], True, float("nan"), 2):
        with pytest.raises(ValueError, match=naming("delta")):
            certify({1.0: 100}, "rr", delta=bad)
        with pytest.raises(ValueError, match="must be"):
            compare({1.0: 100}, "rr", bad)


def test_the_name_of_a_file_is_no_budgets() -> None:
    with pytest.raises(ValueError, match=naming("budgets", "'budgets.csv'", "read_budgets_csv")):
        certify("budgets.csv", "rr", delta=1e-3)


def test_a_profile_may_be_asked_for_one_delta() -> None:
    """Reproduction: object of type 'float' has no len()."""
    profile = privacy_profile([1.0] * 20, "rr", deltas=1e-3)
    assert profile == privacy_profile([1.0] * 20, "rr", deltas=[1e-3])


def test_what_is_drawn_on_is_axes() -> None:
    """Reproduction: 'str' object has no attribute 'barh'."""
    for drawable in (certify([1.0] * 20, "rr", delta=1e-3), privacy_profile([1.0] * 20, "rr", deltas=1e-3)):
        with pytest.raises(ValueError, match=naming("axes", "'x.png'")):
            drawable.plot("x.png")


def test_no_time_is_less_than_none() -> None:
    """Reproduction: seconds=-1 was taken as 0, and left out bounds."""
    with pytest.raises(ValueError, match=naming("seconds", -1, ">= 0")):
        certify({1.0: 10}, "rr", delta=1e-6, seconds=-1)


def test_every_condition_has_a_default_and_a_wrong_name_is_refused() -> None:
    settled = {field.name for field in fields(SettledConditions)}
    assert RoundConditions.__annotations__.keys() == settled
    assert Conditions.__annotations__.keys() == settled - {"counted_by"}
    ask: Any
    for ask in (partial(certify, {1.0: 100}), partial(plan, budgets={1.0: 100}), partial(privacy_profile, {1.0: 100})):
        with pytest.raises(TypeError, match=naming("'dishonset'", "dishonest", "hops")):
            ask(randomizer="rr", dishonset=3)
    ask = partial(plan, "rr")  # which has no counts yet
    with pytest.raises(TypeError, match=naming("'counted_by'")):
        ask(budgets={1.0: 100}, counted_by=None)
