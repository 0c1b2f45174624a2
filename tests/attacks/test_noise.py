"""Noise side channels: all noise is drawn from the operating system, and exactly."""

from __future__ import annotations

import ast
import math
import os
import random
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import croupier.client.submission
from croupier.client.randomizers import randomize
from croupier.operator.round_settings import RoundSettings
from croupier.protocol.mechanisms.gaussian import Gaussian
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.mechanisms.laplace import Laplace
from croupier.protocol.mechanisms.onebit import OneBit
from croupier.protocol.questions import Question
from croupier.protocol.randomness import RandomSource, SystemRandom, uniform_permutation
from tests.support.arena import arena
from tests.support.randomness import SeededRandom

HOUSE = Path(croupier.client.submission.__file__).parents[1]
PROTECTING = ("protocol", "net", "runtime", "client", "shuffler", "accountant", "analyzer")
QUESTIONS = [
    Question("letter", KaryResponse(k=64)),
    Question("mean", OneBit(low=0.0, high=1.0)),
    Question("lattice", Laplace(low=0.0, high=1.0, lattice=1 << 31)),
    Question("normal", Gaussian(low=0.0, high=1.0, lattice=1000, local_delta=1e-6)),
]


def reports(question: Question, source: RandomSource, count: int = 400) -> list[int]:
    return [randomize(question, 0, 0.5, source) for _ in range(count)]


def after_seeding(draw: Callable[[], list[int]]) -> tuple[list[int], list[int]]:
    """Returns what is drawn in two worlds in which the attacker has set every generator that can be set."""
    python, numpy = random.getstate(), np.random.get_state()
    worlds = []
    for _ in range(2):
        random.seed(1)
        np.random.seed(1)
        worlds.append(draw())
    random.setstate(python)
    np.random.set_state(numpy)
    return worlds[0], worlds[1]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.mechanism.kind)
def test_seeding_every_generator_of_the_process_predicts_no_report(question: Question) -> None:
    """400 reports come out alike by chance with a probability far below 1e-9."""
    drawn, other = after_seeding(lambda: reports(question, SystemRandom()))
    assert drawn != other
    drawn, other = after_seeding(lambda: reports(question, SeededRandom(1)))
    drawn_by_opendp = question.mechanism.kind in ("laplace", "gaussian")
    assert (drawn == other) is not drawn_by_opendp  # a seeded source would be predicted; OpenDP takes none from outside


def test_the_operating_system_is_the_only_source_of_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner predicts everything, so it must be the only source."""
    for question in QUESTIONS[:2]:
        worlds = []
        for _ in range(2):
            stream = random.Random(7)
            monkeypatch.setattr(os, "urandom", lambda count, stream=stream: stream.randbytes(count))
            worlds.append(reports(question, SystemRandom()))
        assert worlds[0] == worlds[1]


@pytest.mark.virtual_time
async def test_a_running_deployment_draws_from_the_operating_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[type] = []

    def watched_randomize(question: Question, value: float, epsilon: float, source: RandomSource) -> Any:
        used.append(type(source))
        return randomize(question, value, epsilon, source)

    def watched_permutation(count: int, source: RandomSource) -> list[int]:
        used.append(type(source))
        return uniform_permutation(count, source)

    monkeypatch.setattr("croupier.client.submission.randomize", watched_randomize)
    monkeypatch.setattr("croupier.shuffler.mixing.uniform_permutation", watched_permutation)
    async with arena(tmp_path, 2) as deployment:
        question = RoundSettings(QUESTIONS[0], (0.5, 1.0), min_batch_size=20, epsilon_max=4.0, delta=1e-4)
        terms = await deployment.filled(question, 20)
        await deployment.finish(terms)
    assert used == [SystemRandom] * (20 + 2 * 2)  # every report; both lanes at both hops


def names_used(text: str) -> set[str]:
    """Returns every dotted name and every import of a source text."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute):
            names.add(ast.unparse(node))
        elif isinstance(node, ast.Name):
            names.add(node.id)
    return names


def test_no_seeded_generator_can_reach_a_privacy_draw() -> None:
    """`random` spreads retries over time; numpy's generators serve the accountant's search for a stronger attack, whose
    result is a lower bound and releases nothing.
    """
    users: dict[str, set[str]] = {}
    for package in PROTECTING:
        for file in sorted((HOUSE / package).rglob("*.py")):
            text = file.read_text(encoding="utf-8")
            if "random" not in text and "default_rng" not in text:
                continue
            names = names_used(text)
            if "random" in names or any("default_rng" in n or "np.random" in n for n in names):
                users[str(file.relative_to(HOUSE))] = names
    searches = {name for name in users if name.startswith(("accountant/attacks/", "accountant/lower_bound.py"))}
    assert set(users) - searches == {"net/retrying.py"}
    assert {name for name in users["net/retrying.py"] if name.startswith("random.")} == {"random.uniform"}


def came_from(value: int, report: float, scale: float) -> bool:
    """Whether a textbook sampler, value ± scale·log(u) with u a multiple of 2^-53, can have made the report."""
    distance = abs(Fraction(report) - value)
    middle = round(math.exp(-float(distance) / scale) * 2**53)
    steps = range(max(1, middle - 64), min(2**53, middle + 64))
    return any(value + sign * scale * math.log(step * 2.0**-53) == report for step in steps for sign in (1, -1))


def test_the_low_bits_of_a_report_do_not_tell_the_value() -> None:
    """Mironov 2012: of floating-point Laplace noise they do. Reports here are integers, and any value can make any."""
    source = random.Random(11)
    scale = 2.0
    told, wrong = 0, 0
    for _ in range(300):
        report = 0 + source.choice((1, -1)) * scale * math.log(source.randrange(1, 2**53) * 2.0**-53)
        told += not came_from(1, report, scale)
        wrong += not came_from(0, report, scale)
    assert wrong == 0
    assert told > 60  # for many users the attacker is certain, whatever their epsilon
    lattice = Question("lattice", Laplace(low=0.0, high=1.0, lattice=4))
    seen = [{randomize(lattice, value, 2.0, SystemRandom()) for _ in range(2000)} for value in (0.0, 1.0)]
    assert all(isinstance(report, int) for reports in seen for report in reports)
    assert seen[0] & seen[1] >= set(range(-2, 7))  # each of them 2,000 times missing: below 1e-9
