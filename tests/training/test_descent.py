"""The steps of a training, which the analyzer computes as well."""

from __future__ import annotations

import pytest
import torch

from croupier.analyzer.descent import step
from croupier.protocol.rules import Descent as DescentRule
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.training.config import StepRule
from croupier.training.descent import Descent


def as_bytes(numbers: torch.Tensor) -> bytes:
    return numbers.numpy().astype("<f4").tobytes()


@pytest.mark.parametrize("decaying", [False, True])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_analyzer_takes_the_same_steps_to_the_bit(momentum: float, decaying: bool) -> None:
    source = torch.Generator().manual_seed(1)
    initial = torch.randn(1001, generator=source)
    descent = Descent(initial, StepRule(0.3, momentum, decaying))
    rule = DescentRule(bytes(32), 0.3, momentum, decaying)
    state = pb.RuleState(parameters=as_bytes(initial))
    for number in range(1, 31):
        gradient = 10 ** float(number % 5 - 2) * torch.randn(1001, generator=source)
        descent.step(gradient)
        state = step(rule, state, as_bytes(gradient))
        assert state.parameters == as_bytes(descent.parameters)
        assert state.velocity == (as_bytes(descent.state()["velocity"]) if momentum else b"")
        assert state.steps == number
