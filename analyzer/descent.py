"""The steps of a training whose waves are a survey's (`protocol.rules.Descent`): float32, each operation rounded.

The operator's program takes the same steps, so that only their hash is published.
"""

from __future__ import annotations

import numpy as np

from croupier.analyzer import prefix_tree
from croupier.protocol.manifest import RoundTerms
from croupier.protocol.rules import Descent
from croupier.protocol.surveys import scheduled
from croupier.protocol.v1 import messages_pb2 as pb


def step(rule: Descent, before: pb.RuleState, gradient: bytes) -> pb.RuleState:
    """Returns the state after a step along a gradient, of as many float32 as the parameters."""
    parameters, velocity = np.frombuffer(before.parameters, dtype="<f4"), np.frombuffer(gradient, dtype="<f4")
    if before.velocity:
        velocity = np.float32(rule.momentum) * np.frombuffer(before.velocity, dtype="<f4") + velocity
    steps = before.steps + 1
    size = np.float32(rule.learning_rate / (steps**0.5 if rule.decaying else 1.0))
    return pb.RuleState(
        parameters=(parameters - size * velocity).astype("<f4").tobytes(),
        velocity=velocity.astype("<f4").tobytes() if rule.momentum else b"",
        steps=steps,
    )


def led_to(terms: RoundTerms, vector: bytes) -> pb.RuleState:
    """Returns the state to which the published vector of a wave has led: a gradient, or in sequential order parameters.

    Raises:
        ValueError: the wave is of no training, or the operator's program decides on its parameters.
    """
    rule, before = terms.rule, pb.Manifest.FromString(terms.payload).rule_state
    if not isinstance(rule, Descent) or rule.by_operator:
        raise ValueError(f"{terms.round_id!r} is of a survey whose rule states no steps")
    if terms.question.sequential is not None:
        return pb.RuleState(parameters=vector, steps=before.steps + 1)
    return step(rule, before, vector)


def follow_rule(publication: pb.Publication, terms: RoundTerms, certificate: pb.Certificate) -> None:
    """Writes into a result the state to which it has led, by its question's rule, if there is a further wave."""
    if isinstance(terms.rule, Descent):
        state = _published(publication.vector, terms, terms.rule)
    else:
        state = prefix_tree.next_state(publication, terms, certificate)
    if state is not None:
        publication.rule_state.CopyFrom(state)


def _published(vector: bytes, terms: RoundTerms, rule: Descent) -> pb.RuleState | None:
    if not vector or terms.wave is None or terms.wave.number == scheduled(terms.survey).last_wave:
        return None
    if rule.by_operator:
        return pb.RuleState(steps=pb.Manifest.FromString(terms.payload).rule_state.steps + 1)
    return rule.published(led_to(terms, vector))
