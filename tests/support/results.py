"""Published results as JSON documents, whose numbers a test chooses."""

from __future__ import annotations

from collections.abc import Sequence

from croupier import Budgets, certify
from croupier.protocol.names import JsonObject
from croupier.protocol.questions import Question
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.show.published import publication_json
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
    publication = pb.Publication(
        round_id=round_id,
        values=[
            pb.EstimatedValue(
                label=label,
                estimate=estimate,
                projected=estimate,
                standard_error=(own[1] - own[0]) / 4,
                confidence_interval=pb.Interval(low=own[0], high=own[1]),
                sampling_standard_error=0.01,
                population_interval=pb.Interval(low=whole[0], high=whole[1]),
            )
            for label, (estimate, own, whole) in zip([*question.mechanism.categories] or [""], numbers, strict=True)
        ],
        confidence_level=0.95,
        precision=pb.PRECISION_USABLE,
        num_reports=people,
    )
    return publication_json(publication, message) | {"asked": question_json(question)}
