"""Gradients example by example: as a plain loop and Opacus have them, clipped one by one, zero where not finite."""

from __future__ import annotations

import pytest
import torch

from croupier.client.gradients import FlatModel
from croupier.training.models import load_model
from tests.support.messages import naming

CROSS_ENTROPY = torch.nn.functional.cross_entropy


def examples(count: int = 7, inputs: int = 5, classes: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(count, inputs, generator=generator), torch.arange(count) % classes


class Convolutional(torch.nn.Module):
    """A module with more than lines in it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv1d(1, 2, 3)
        self.norm = torch.nn.LayerNorm(3)
        self.last = torch.nn.Linear(6, 3)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.norm(self.first(features.unsqueeze(1))))
        outputs: torch.Tensor = self.last(hidden.flatten(1))
        return outputs


@pytest.mark.parametrize("kind", ["linear", "convolutional"])
def test_they_are_those_of_a_plain_loop(kind: str) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        module = torch.nn.Linear(5, 3) if kind == "linear" else Convolutional()
    features, targets = examples()
    model = FlatModel(module, CROSS_ENTROPY)
    parameters = model.initial + 0.1
    gradients = model.per_example(parameters, features, targets)
    assert gradients.shape == (7, model.dimension)
    start = 0
    with torch.no_grad():
        for part in module.parameters():
            part.copy_(parameters[start : start + part.numel()].view(part.shape))
            start += part.numel()
    for row, example, target in zip(gradients, features, targets, strict=True):
        loss = CROSS_ENTROPY(module(example.unsqueeze(0)), target.unsqueeze(0))
        plain = torch.cat([part.reshape(-1) for part in torch.autograd.grad(loss, list(module.parameters()))])
        assert torch.allclose(row, plain, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["linear", "convolutional"])
def test_they_are_those_of_opacus(kind: str) -> None:
    """An oracle that shares nothing with torch.func: formulas per layer, from activations and backward hooks."""
    from opacus.grad_sample import GradSampleModule  # takes seconds

    with torch.random.fork_rng():
        torch.manual_seed(6)
        module = torch.nn.Linear(5, 3) if kind == "linear" else Convolutional()
    features, targets = examples(9)
    model = FlatModel(module, CROSS_ENTROPY)
    gradients = model.per_example(model.initial, features, targets)
    oracle = GradSampleModule(module, loss_reduction="sum")
    # Torch warns about backward hooks where no input asks for a gradient.
    outputs = oracle(features.clone().requires_grad_())
    torch.autograd.backward(torch.nn.functional.cross_entropy(outputs, targets, reduction="sum"))
    expected = torch.cat([part.grad_sample.reshape(len(features), -1) for part in oracle.parameters()], dim=1)
    assert gradients.shape == expected.shape == (9, model.dimension)
    assert torch.allclose(gradients, expected, rtol=1e-4, atol=1e-5)


def test_every_example_is_clipped_before_they_are_averaged() -> None:
    features, targets = examples()
    features[0] *= 1000
    model = FlatModel(torch.nn.Linear(5, 3), CROSS_ENTROPY)
    start = torch.zeros(model.dimension)  # where no example is classified already
    rows = model.per_example(start, features, targets)
    short = model.clipped(start, features, targets, 0.5)
    lengths = torch.linalg.vector_norm(rows, dim=1)
    assert float(lengths.max()) > 100
    expected = rows * torch.clamp(0.5 / lengths, max=1.0)[:, None]
    assert torch.allclose(short, expected, atol=1e-6)
    assert float(torch.linalg.vector_norm(short, dim=1).max()) <= 0.5 * (1 + 1e-6)
    mean = model.mean_clipped(start, features, targets, 0.5)
    assert torch.allclose(mean, expected.mean(dim=0), atol=1e-6)


def test_one_record_moves_the_mean_by_no_more_than_is_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    features, targets = examples(20)
    model = FlatModel(torch.nn.Linear(5, 3), CROSS_ENTROPY)
    monkeypatch.setattr("croupier.client.gradients.EXAMPLES_AT_ONCE", 6 * model.dimension)
    before = model.mean_clipped(torch.zeros(model.dimension), features, targets, 2.0)
    features[4], targets[4] = -1e4, (targets[4] + 1) % 3
    after = model.mean_clipped(torch.zeros(model.dimension), features, targets, 2.0)
    assert 0 < float(torch.linalg.vector_norm(after - before)) <= 2 * 2.0 / 20 * (1 + 1e-5)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, 3e38])
def test_a_gradient_that_is_not_finite_is_zero_and_moves_no_other_row(bad: float) -> None:
    """Whatever an example is, it moves the sum of the clipped rows by at most the clipping norm."""
    features, targets = examples()
    model = FlatModel(torch.nn.Linear(5, 3), CROSS_ENTROPY)
    parameters, norm = 1e3 * model.initial, 0.5  # with 3e38 the outputs overflow
    before = model.clipped(parameters, features, targets, norm)
    broken = features.clone()
    broken[2] = bad
    after = model.clipped(parameters, broken, targets, norm)
    others = [0, 1, 3, 4, 5, 6]
    assert torch.equal(after[others], before[others])
    assert torch.equal(after[2], torch.zeros(model.dimension))
    mean = model.mean_clipped(parameters, broken, targets, norm)
    assert torch.allclose(mean, before[others].sum(dim=0) / 7, atol=1e-6)
    with pytest.raises(ValueError, match=naming("(3,)", "(18,)")):
        model.per_example(torch.zeros(3), broken, targets)
    diverged = torch.where(torch.arange(model.dimension) < 2, torch.inf, parameters)
    with pytest.raises(ValueError, match=naming("2 of the 18", "smaller steps")):
        model.per_example(diverged, features, targets)


def test_what_cannot_be_used_is_refused() -> None:
    features, targets = examples()
    model = FlatModel(torch.nn.Linear(5, 3), CROSS_ENTROPY)
    with pytest.raises(ValueError, match=naming("(3,)", "(18,)")):
        model.per_example(torch.zeros(3), features, targets)
    with pytest.raises(ValueError, match="0 examples with 0 targets"):
        model.mean_clipped(model.initial, features[:0], targets[:0], 1.0)
    with pytest.raises(ValueError, match="7 examples with 3 targets"):
        model.per_example(model.initial, features, targets[:3])
    with pytest.raises(ValueError, match=naming("examples")):
        FlatModel(torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.BatchNorm1d(3)), CROSS_ENTROPY)
    with pytest.raises(ValueError, match="no parameters"):
        FlatModel(torch.nn.ReLU(), CROSS_ENTROPY)


def test_built_in_models_are_the_same_for_everybody() -> None:
    for name, dimension in (("softmax", 5 * 3 + 3), ("relu", 5 * 128 + 128 + 128 * 3 + 3)):
        first, second = (load_model(name, 5, 3, seed=4) for _ in range(2))
        assert first.dimension == dimension
        assert torch.equal(first.initial, second.initial)
