"""Any call of the public functions, over the whole ranges that they accept, ends in a result or in a stated refusal.

A stated refusal is a ValueError that says what the value must be. Any other error, and any warning, fails the test.
Whether the results are true is for the other tests of the hunt.
"""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from croupier import (
    Budgets,
    Certificate,
    Randomizer,
    TableMechanism,
    certify,
    compare,
    compose,
    explain,
    lower_bound,
    margins,
    plan,
    plan_for_error,
    privacy_loss_distribution,
    privacy_profile,
    randomizer_from_name,
    read_budgets_csv,
    right_at_most,
)
from croupier.accountant.audit import audit
from tests.support.drawn import drawn

REFUSAL = re.compile(
    r"must|at most|at least|it takes|not computed: |no attack on it is known|no shuffle has to keep|: give budgets="
    r"|reach both: allow a larger one"
)
"""What a refusal says after the value."""
MECHANISMS = (
    *("rr", "onebit", "hemisphere", "hemisphere(d=3)", "krr(k=2)", "krr(k=5)", "krr(k=65536)"),
    *("choices(k=2)", "choices(k=32)", "levels(k=13)", "pgr(k=7, q=2)"),
    *("laplace", "laplace(lattice=1)", "laplace(lattice=10)", "laplace(lattice=1000000)"),
    *("gaussian", "gaussian(lattice=1)", "gaussian(lattice=100)", "gaussian(d=3)"),
    *("gaussian_vector(d=2, records=3)", "table"),
)


def spread(rng: np.random.Generator, low: float, high: float) -> float:
    """A number whose logarithm is uniform; sometimes an end of the range."""
    if rng.random() < 0.05:
        return float(rng.choice([low, high]))
    return float(math.exp(rng.uniform(math.log(low), math.log(high))))


def drawn_budgets(rng: np.random.Generator, *, slow: bool) -> Budgets:
    """Few or many tiers, of few or many users, with budgets that are close to each other or as far as can be.

    slow: of Gaussian noise, for which many budgets, and far smaller ones than others, take minutes.
    """
    tiers = int(rng.choice([1, 2, 3, 4, 8, 9, 33, 70], p=[0.25, 0.25, 0.2, 0.12, 0.06, 0.04, 0.04, 0.04]))
    tiers = min(tiers, 4) if slow else tiers
    low, high = [(0.01, 5.0), (0.1, 30.0), (1.0, 40.0), (1e-100, 500.0)][int(rng.choice(4, p=[0.4, 0.3, 0.15, 0.15]))]
    low = max(low, 0.01) if slow else low
    most = 10.0 ** int(rng.integers(0, 7))
    rows = [(spread(rng, low, high), round(spread(rng, 1, most)), spread(rng, 1e-15, 0.1)) for _ in range(tiers)]
    if rng.random() < 0.3:  # budgets that are nearly equal
        rows += [(min(500.0, epsilon * (1 + spread(rng, 1e-15, 1))), count, delta) for epsilon, count, delta in rows]
    return Budgets.from_tiers(rows)


def drawn_table(rng: np.random.Generator, budgets: Budgets) -> Randomizer:
    """Tables that show as much as their budgets, or less."""
    tables = {}
    for local in budgets.local_epsilon.tolist():
        weights = np.exp(-local / 2.001 * rng.integers(0, 2, (2, 3)))
        tables[local] = weights / weights.sum(1, keepdims=True)
    return TableMechanism(tables)


def answer(call: Callable[..., Any], *arguments: Any, **keys: Any) -> Any:
    """What a call returns; None where it refuses."""
    try:
        return call(*arguments, **keys)
    except ValueError as error:
        refusal = error
    if not REFUSAL.search(str(refusal)):
        raise refusal
    return None


def drawn_hops(rng: np.random.Generator) -> dict[str, Any]:
    """Hop noise in one of three calls, in which what the others say of hops changes nothing."""
    noise = (spread(rng, 1e-3, 25), spread(rng, 1e-15, 0.5)) if rng.random() < 0.3 else None
    return {"hop_noise": noise, "hops": int(rng.choice([1, 2, 3, 40]))}


def certificate(rng: np.random.Generator, budgets: Budgets, mechanism: Randomizer | str) -> Certificate | None:
    """A certificate with drawn arguments, after what has to hold of every one."""
    sought = {"delta": spread(rng, 5e-324, 1 - 1e-16)} if rng.random() < 0.7 else {"epsilon": spread(rng, 1e-6, 600)}
    keys: dict[str, Any] = {
        **sought,
        "dishonest": int(rng.choice([0, 0, 1, 40, budgets.num_users])),
        "linkage": str(rng.choice(["separate", "separate", "stratified"])),
        "rounds": int(rng.choice([1, 1, 1, 2, 50, 2_000_000])),
        "bounds": str(rng.choice(["all", "all", "blanket"])),
        "adaptive_order": bool(rng.random() < 0.1),
        "attack": bool(rng.random() < 0.5),
        "compare_all": bool(rng.random() < 0.2),
        **drawn_hops(rng),
    }
    result: Certificate | None = answer(certify, budgets, mechanism, **keys)
    if result is not None:
        local = result.everyone_else_colludes.epsilon
        assert 0 <= result.epsilon <= max(local, keys.get("epsilon", 0.0)), (result, keys)
        assert 0 <= result.delta <= 1, (result, keys)
    return result


def check(seed: int) -> None:
    """One drawn call, and what can be asked about its result."""
    rng = np.random.default_rng(seed)
    kind = str(rng.choice(MECHANISMS))
    budgets = drawn_budgets(rng, slow=kind.startswith("gaussian"))
    mechanism: Randomizer | str = drawn_table(rng, budgets) if kind == "table" else kind
    dishonest = int(rng.choice([0, 0, 1, 40]))
    linkage = str(rng.choice(["separate", "stratified"]))
    delta = spread(rng, 5e-324 if rng.random() < 0.2 else 1e-12, 0.5)
    small = budgets.num_tiers <= 3
    asked = str(
        rng.choice(["certify", "profile", "plan", "compose", "explain", "audit"], p=[0.5, 0.1, 0.1, 0.1, 0.1, 0.1])
    )
    if asked == "profile":
        several = [1e-2, 1e-4, delta] if small else delta
        curve = answer(
            privacy_profile, budgets, mechanism, deltas=several, dishonest=dishonest, linkage=linkage, **drawn_hops(rng)
        )
        if curve is not None:
            assert 0 <= curve(spread(rng, 1e-6, 600)) <= 1
            assert answer(curve.epsilon, delta) is None or curve.rows()
            assert curve.compare(curve)
    elif asked == "plan" and small:
        target = {"epsilon": spread(rng, 1e-6, 100)}
        questions: list[dict[str, Any]] = [
            {"num_users": 1 + budgets.num_users // 2, "budgets": budgets, **target},
            {"num_users": budgets.num_users, **target},
            {"budgets": budgets, **target},
            {"budgets": budgets},
        ]
        keys = questions[int(rng.integers(len(questions)))]
        keys |= drawn_hops(rng)
        answer(plan, mechanism, delta=delta, dishonest=dishonest, linkage=linkage, bounds="blanket", **keys)
    elif asked == "audit":
        named = randomizer_from_name(kind) if isinstance(mechanism, str) else mechanism
        answer(audit, budgets, named, delta=delta, dishonest=dishonest, linkage=linkage, seconds=0.0)
        answer(lower_bound, budgets, mechanism, epsilon=spread(rng, 1e-6, 600), dishonest=dishonest, linkage=linkage)
    else:
        certified = certificate(rng, budgets, mechanism)
        if certified is not None and asked == "compose":
            answer(compose, [certified, certified], delta=delta, fixed_terms=bool(rng.random() < 0.5))
            answer(privacy_loss_distribution, certified, value_discretization_interval=1e-2)
        elif certified is not None and asked == "explain":
            assert answer(explain, certified) is None or str(explain(certified.to_json()))


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1))
@drawn(20)
@example(1)
@example(2)
@example(3)
@example(33554431)  # a curve beyond epsilon 709, where e^epsilon is no float
def test_every_call_ends_in_a_result_or_a_stated_refusal(seed: int) -> None:
    check(seed)


def drawn_cell(rng: np.random.Generator) -> str:
    """A field of a file of budgets as people write it, or as they should not."""
    number = spread(rng, 1e-110, 1e3)
    return str(rng.choice([f"{number:g}", f" {number:.3f}", str(int(number)), "", "nan", "-1", "x", '"1,5"', "1e400"]))


def drawn_file(rng: np.random.Generator) -> bytes:
    columns = list(rng.permutation(["epsilon", "delta", "count", "people"])[: int(rng.integers(1, 4))])
    plain = rng.random() < 0.5
    rows = [
        columns,
        *([f"{spread(rng, 0.01, 9):.3f}" if plain else drawn_cell(rng) for _ in columns] for _ in range(3)),
    ]
    text = str(rng.choice(["\n", "\r\n", "\n\n"])).join(",".join(row) for row in rows)
    return text.encode(str(rng.choice(["utf-8", "utf-8-sig", "utf-16"])))


def check_beside_certificates(seed: int) -> None:
    """One call of each function whose answer is not a certificate, or is one that was looked for."""
    rng = np.random.default_rng(seed)
    kind = str(rng.choice(MECHANISMS))
    budgets = drawn_budgets(rng, slow=kind.startswith("gaussian"))
    mechanism: Randomizer | str = drawn_table(rng, budgets) if kind == "table" else kind
    delta = spread(rng, 5e-324 if rng.random() < 0.2 else 1e-12, 0.5)
    guess = answer(right_at_most, spread(rng, 1e-300, 1e308), delta)
    assert guess is None or 0.5 <= guess <= 1
    expected = answer(margins, budgets, mechanism)
    assert expected is None or 0 <= expected.participants <= expected.population * (1 + 1e-9)
    figures = answer(compare, budgets, mechanism, delta, attack=spread(rng, 1e-6, 600) if rng.random() < 0.5 else None)
    assert all(figure.epsilon is None or figure.epsilon >= 0 for figure in figures or ())
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(drawn_file(rng))
        answer(read_budgets_csv, file.name)
    if budgets.num_tiers == 1 and kind in ("rr", "krr(k=5)", "onebit"):  # others take minutes
        asked: list[dict[str, Any]] = [
            {"epsilon": spread(rng, 1e-3, 20)},
            {"num_users": budgets.num_users},
            {"budgets": budgets},
        ]
        keys = asked[int(rng.integers(3))] | {"delta": delta, "dishonest": int(rng.choice([0, 40]))}
        answer(plan_for_error, mechanism, spread(rng, 0.01, 0.6), **keys)


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1))
@drawn(20)
@example(1)
def test_every_call_beside_certificates_ends_in_one_too(seed: int) -> None:
    check_beside_certificates(seed)


@pytest.mark.parametrize(
    ("tiers", "mechanism", "keys"),
    [
        # Hosts whose blanket is too small for the clocks of the two-group bound, without a bound of their own.
        ([(0.1, 40), (0.2, 40), (0.3, 40), (29.0, 1000)], "laplace", {"delta": 1e-3, "dishonest": 40}),
        ([(24.564155, 8174), (18.290972, 855), (2.156808, 203)], "laplace(lattice=10)", {"delta": 0.0014}),
        # More lattice steps than an integer holds.
        ([(1e-62, 1), (1e-13, 3)], "laplace(lattice=1)", {"delta": 1e-30}),
        # A mass above 0 whose quotient by a count underflows to 0.
        ([(0.1, 201), (0.105, 14), (0.11, 58)], "laplace", {"delta": 1e-320}),
        # One shell of the interval.
        ([(1.2, 5, 1e-11), (5.0, 34, 0.01)], "gaussian(lattice=1)", {"delta": 0.4}),
        # Cells that take more memory than there is.
        ([(1e-8, 100, 1e-15)], "gaussian", {"delta": 1e-6}),
    ],
)
def test_settings_that_ended_in_other_errors(tiers: list[Any], mechanism: str, keys: dict[str, Any]) -> None:
    certificate = certify(Budgets.from_tiers(tiers), mechanism, **keys)
    assert 0 <= certificate.epsilon <= certificate.everyone_else_colludes.epsilon
