"""The attack on hop noise against the divergence of all counts, multiplied out from the definition."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from croupier import TableMechanism, certify, randomizer_from_name
from croupier.accountant.attacks import hop_noise
from croupier.accountant.attacks.hop_noise import attack_on_hop_noise
from croupier.accountant.bounds.hop_noise import HopNoiseProfile
from croupier.accountant.mechanisms.base import Randomizer
from croupier.accountant.numerics.inversion import Inverse
from croupier.accountant.privacy_curve import Bounded
from croupier.protocol.fake_law import FakeLaw
from tests.support.oracles.from_definitions import Table, one_option, response
from tests.support.oracles.hop_noise import fakes_array, truncated_laplace


def lines(local: float) -> Table:
    """The seven lines of the Fano plane, as differences of {0, 1, 3} modulo 7."""
    odds = math.exp(local)
    rows = [[odds if (point - line) % 7 in (0, 1, 3) else 1.0 for point in range(7)] for line in range(7)]
    return [[mass / sum(row) for mass in row] for row in rows]


TABLE = [[0.5, 0.3, 0.2], [0.2, 0.3, 0.5], [0.4, 0.35, 0.25]]
CHANNELS: dict[str, Callable[[float], Table]] = {
    "rr": partial(response, k=2),
    "onebit": partial(response, k=2),
    "krr(k=2)": partial(response, k=2),
    "krr(k=4)": partial(response, k=4),
    "levels(k=3)": partial(response, k=3),
    "choices(k=2)": partial(one_option, k=2),
    "choices(k=3)": partial(one_option, k=3),
    "pgr(k=7, q=2)": lines,
}
CASES: dict[str, tuple[Randomizer, Callable[[float], Table]]] = {
    **{name: (randomizer_from_name(name), channel) for name, channel in CHANNELS.items()},
    "table": (TableMechanism(dict.fromkeys((1.5, 4.0), TABLE)), lambda _: TABLE),
    "constant table": (TableMechanism({local: [[0.5, 0.5]] * 2 for local in (1.5, 4.0)}), lambda _: [[0.5, 0.5]] * 2),
}


def exact(channel: Table, scale: float, radius: int, epsilon: float) -> float:
    """The largest divergence of the counts of one hop's fakes and the report, over all pairs of answers."""
    k = len(channel[0])
    fakes = fakes_array(k, scale, radius)
    width = fakes.shape[0]
    of_report = []
    for report in range(k):
        counts = np.zeros((width + 1,) * k)
        counts[tuple(slice(place == report, width + (place == report)) for place in range(k))] = fakes
        of_report.append(counts)
    laws = [sum(share * counts for share, counts in zip(row, of_report, strict=True)) for row in channel]
    return max(
        float(np.maximum(first - math.exp(epsilon) * second, 0.0).sum())
        for first, second in itertools.permutations(laws, 2)
    )


@pytest.mark.parametrize("local", [1.5, 4.0])
@pytest.mark.parametrize("case", CASES)
def test_bound_and_attack_are_the_divergence_of_all_counts(case: str, local: float) -> None:
    randomizer, channel = CASES[case]
    k = len(channel(local)[0])
    radius = 1 if k > 4 else 2
    for scale in (0.4, 2.0):
        edge = truncated_laplace(scale, radius)[radius]
        law = FakeLaw(k, scale, radius, edge, edge if k == 2 else 2 * edge - edge**2)
        pairs = randomizer.report_pairs(local)
        assert all(sum(number for number, _, _ in reports) == k for reports in pairs)
        bound = HopNoiseProfile(law, pairs)
        floats = [tuple((n, float(p), float(q)) for n, p, q in reports) for reports in pairs]
        for epsilon in (0.0, 0.3, 1.2):
            truth = exact(channel(local), scale, radius, epsilon)
            assert bound.delta(epsilon).value == pytest.approx(truth, rel=1e-12, abs=1e-15)
            attack = max(attack_on_hop_noise(law, reports, epsilon=epsilon).delta for reports in floats)
            assert truth - 1e-8 <= attack <= truth + 1e-15
            if truth:
                back = max(attack_on_hop_noise(law, reports, delta=truth).epsilon for reports in floats)
                assert epsilon - 1e-6 <= back <= epsilon * (1 + 1e-9) + 1e-15


def test_groups_in_less_detail_prove_less_and_nearly_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of 10 values, of zeros apart and not, in steps, and with a group that is not looked at."""
    law = FakeLaw(30, 1.5, 12, edge := truncated_laplace(1.5, 12)[12], 2 * edge)
    reports = ((10, 0.08, 0.02), (10, 0.02, 0.08), (10, 0.0, 0.0))
    most = attack_on_hop_noise(law, reports, delta=1e-4).epsilon
    for name, value, least in (("MAX_TRINOMIAL", 0, 0.999), ("MAX_OUTCOMES_OF_GROUP", 6, 0.8), ("MAX_OUTCOMES", 1, 0)):
        monkeypatch.setattr(hop_noise, name, value)
        less = attack_on_hop_noise(law, reports, delta=1e-4).epsilon
        assert least * most <= less <= most
        most = less


@pytest.mark.parametrize(
    ("kind", "local", "noise", "delta", "truth"),
    [  # The attack was once that on krr for every kind, and reached 4.20459 and 0.0732 in the first and the last row.
        ("choices(k=3)", 4.0, (5.0, 1e-3), 1e-3, (3.5587, 3.5588)),
        ("choices(k=10)", 2.0, (0.1, 1e-6), 1e-6, (0.0590, 0.0593)),
        ("pgr(k=1000, q=5)", 4.0, (0.1, 1e-6), 1e-6, (0.006, 0.00705)),
    ],
)
def test_the_attack_is_that_on_the_mechanism(
    kind: str, local: float, noise: tuple[float, float], delta: float, truth: tuple[float, float]
) -> None:
    certificate = certify({local: 3}, kind, delta=delta, hop_noise=noise)
    assert certificate.lower_bound is not None
    assert truth[0] <= certificate.lower_bound.epsilon <= truth[1]
    assert certificate.lower_bound.epsilon <= certificate.epsilon


@given(
    kind=st.sampled_from(["rr", "onebit", "krr(k=3)", "krr(k=20)", "levels(k=6)", "choices(k=3)", "choices(k=8)"]),
    local=st.floats(0.1, 8.0),
    epsilon=st.floats(0.02, 12.0),
    delta=st.sampled_from([1e-9, 1e-6, 1e-4]),
    target=st.sampled_from([1e-8, 1e-6, 1e-3]),
)
@settings(max_examples=40)
def test_the_certificate_is_the_attack(kind: str, local: float, epsilon: float, delta: float, target: float) -> None:
    certificate = certify({local: 3}, kind, delta=target, hop_noise=(epsilon, delta))
    assert certificate.one_honest_hop is not None
    if certificate.lower_bound is not None:
        assert certificate.lower_bound.epsilon <= certificate.one_honest_hop.epsilon
        assert certificate.lower_bound.epsilon == pytest.approx(certificate.one_honest_hop.epsilon, rel=1e-6, abs=1e-6)


def test_a_certificate_that_its_own_attack_contradicts_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is raised is not bad input: a service answers INTERNAL."""
    monkeypatch.setattr(
        "croupier.accountant.bounds.hop_noise.HopNoiseProfile.smallest_epsilon",
        lambda self, delta, ceiling, floor: Inverse(0.5, Bounded(delta, 0.0), 1),
    )
    keys: dict[str, Any] = {"delta": 1e-3, "hop_noise": (1.0, 1e-3)}
    with pytest.raises(RuntimeError, match="defect of croupier"):
        certify({2.0: 3}, "choices(k=3)", **keys)
    assert certify({2.0: 3}, "choices(k=3)", attack=False, **keys).lower_bound is None
