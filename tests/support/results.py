"""Published results as JSON documents, whose numbers a test chooses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from croupier import Budgets, certify
from croupier.protocol.certificates import certificate_json
from croupier.protocol.names import JsonObject, RoundId
from croupier.protocol.questions import Question
from croupier.show.numbers import Precision
from croupier.show.question import question_json

Numbers = Sequence[tuple[float, tuple[float, float], tuple[float, float]]]


def result_of(
    question: Question,
    numbers: Numbers,
    people: int = 1000,
    round_id: str = "round-1",
    hop_noise: tuple[float, float] | None = None,
    tiers: Sequence[tuple[float, int]] = (),
) -> JsonObject:
    """Returns a document: each number is an estimate, its interval for the people, and that for their population."""
    kind = question.mechanism.kind
    name = f"krr(k={len(question.mechanism.categories)})" if kind == "krr" else kind
    certificate = certify(
        Budgets.from_tiers(tiers or [(1.0, people)]), name, delta=1e-6, attack=False, hop_noise=hop_noise
    )
    message = certificate.to_message()
    message.round_id, message.manifest_hash, message.granted = round_id, b"\1" * 32, True
    labels = [*question.mechanism.categories] or None

    def column(values: list[Any]) -> Any:
        return values if labels else values[0]

    return {
        "round_id": RoundId(round_id),
        "asked": question_json(question),
        "sealed": False,
        "labels": labels,
        "estimate": column([estimate for estimate, _, _ in numbers]),
        "projected": column([estimate for estimate, _, _ in numbers]),
        "standard_error": column([(own[1] - own[0]) / 4 for _, own, _ in numbers]),
        "confidence_interval": column([list(own) for _, own, _ in numbers]),
        "confidence_level": 0.95,
        "sampling_standard_error": column([0.01 for _ in numbers]),
        "population_interval": column([list(whole) for _, _, whole in numbers]),
        "precision": Precision.USABLE,
        "num_reports": people,
        "clamping": None,
        "hop_influence": None,
        "drops": {},
        "notes": [],
        "certificate": certificate_json(message),
    }
