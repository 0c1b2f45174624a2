"""Scattering features: what a wavelet answers to, and that no image has a say in the features of another."""

from __future__ import annotations

import math

import pytest
import torch

from croupier.training.datasets import load_dataset
from croupier.training.scattering import COMPONENTS, moduli_of, scattering


def test_a_grating_is_seen_by_the_wavelet_of_its_width_and_direction() -> None:
    """The moduli are laid out by scale, direction and window; each grating is a wave of one scale in one direction."""
    place = torch.arange(28.0) - 13.5
    waves = []
    for scale in range(3):
        for direction in range(8):
            angle, frequency = math.pi * direction / 8, 0.75 * math.pi / 2**scale
            waves.append(
                0.5 + 0.5 * torch.cos(frequency * (place * math.cos(angle) + place[:, None] * math.sin(angle)))
            )
    moduli = moduli_of(torch.stack(waves)[:, None]).reshape(24, 24, 49)
    assert moduli.mean(dim=2).argmax(dim=1).tolist() == list(range(24))


@pytest.mark.slow
def test_an_image_without_anything_on_it_has_finite_features() -> None:
    coefficients = scattering(torch.stack([torch.zeros(784), torch.full((784,), 0.4)]), 28)
    assert torch.isfinite(coefficients).all()


@pytest.mark.slow
def test_the_features_of_an_image_depend_on_nothing_else() -> None:
    """Whatever the other images are: the same to the last bit at the same place, and to rounding anywhere."""
    images = load_dataset("digits").test.features[:40]
    all_of_them = scattering(images, 8)
    assert all_of_them.shape == (40, COMPONENTS)
    assert torch.allclose(torch.linalg.vector_norm(all_of_them, dim=1), torch.tensor(3.0))
    others = torch.cat([images[:1], torch.rand(39, 64, generator=torch.Generator().manual_seed(1))])
    assert torch.equal(scattering(others, 8)[0], all_of_them[0])
    alone = torch.cat([scattering(image[None], 8) for image in images[:5]])
    assert torch.allclose(alone, all_of_them[:5], atol=1e-4)


@pytest.mark.slow
def test_the_features_are_the_same_on_every_machine() -> None:
    """The clients of a deployment must mean the same by a parameter. The numbers are what this module once printed."""
    corner = torch.zeros(28, 28)
    corner[6:22, 9] = corner[21, 9:20] = 1.0
    coefficients = scattering(corner.reshape(1, -1), 28)[0, [0, 1, 2, 3, 40, 80, 119]]
    assert torch.allclose(
        coefficients, torch.tensor([0.1741, -0.3571, -0.1829, 0.4567, -0.0505, -0.2164, 0.3820]), atol=2e-3
    )
