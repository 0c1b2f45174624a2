"""Scattering features that see no private data: wavelet moduli of an image, reduced by components of drawn strokes.

Complex Morlet wavelets of three widths in eight directions are convolved with the image, and their moduli averaged in
windows (the first order of a scattering transform). What is subtracted, and the components that are kept, come from
random strokes that this module draws from a fixed seed: they look like handwriting, and no person wrote them. So the
transform is a constant, the same for every data set and, up to rounding, on every machine; each image's features depend
on that image alone.
"""

from __future__ import annotations

import math
from functools import cache

import torch
from torch.nn.functional import conv2d, interpolate

COMPONENTS = 120
_SIDE, _WINDOWS, _DIRECTIONS = 28, 7, 8
_WAVELETS = ((0.8, 0.75 * math.pi, 7, 1), (1.6, 0.375 * math.pi, 11, 2), (3.2, 0.1875 * math.pi, 21, 4))
"""(width in pixels, frequency in radians a pixel, side of the filter, step between its places) of each scale."""
_WHITENING = 0.6
"""Components are divided by their standard deviation among the strokes to this power."""
_LENGTH = 3.0
"""The norm of every image's features; the bias of a linear model has 1."""
_STROKES, _SEED = 2_000, 2024
_AT_ONCE = 2_000


def scattering(images: torch.Tensor, side: int) -> torch.Tensor:
    """Returns the features of square images, float32 (n, 120), each row of length 3.

    Args:
        images: float32 (n, side * side), in [0, 1].
        side: images of another side than 28 are resized.
    """
    mean, components = _components()
    rows = []
    for part in torch.split(images, _AT_ONCE):
        square = part.reshape(-1, 1, side, side)
        if side != _SIDE:
            square = interpolate(square, (_SIDE, _SIDE), mode="bilinear", align_corners=False)
        rows.append(_to_length((moduli_of(square) - mean) @ components, _LENGTH))
    return torch.cat(rows)


def _to_length(rows: torch.Tensor, length: float) -> torch.Tensor:
    lengths = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    scaled: torch.Tensor = rows * (length / lengths.clamp(min=1e-6))
    return scaled


@cache
def _filters(width: float, frequency: float, side: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the real and imaginary parts of the wavelets of one width, float32 (8, 1, side, side), of unit energy."""
    place = torch.arange(side, dtype=torch.float64) - side // 2
    down, right = torch.meshgrid(place, place, indexing="ij")
    angle = (math.pi / _DIRECTIONS * torch.arange(_DIRECTIONS, dtype=torch.float64))[:, None, None]
    along = right * angle.cos() + down * angle.sin()
    across = down * angle.cos() - right * angle.sin()
    envelope = torch.exp(-(along**2 + (across / 2) ** 2) / (2 * width**2))
    wave = envelope * torch.exp(1j * frequency * along)
    # A wavelet does not see a constant.
    wave -= envelope * wave.sum((1, 2), keepdim=True) / envelope.sum((1, 2), keepdim=True)
    wave /= wave.abs().square().sum((1, 2), keepdim=True).sqrt()
    return wave.real.float()[:, None], wave.imag.float()[:, None]


def _windows(side: int) -> torch.Tensor:
    """Returns the weights of 7 Gaussian windows along a line of places, float32 (7, side); each sums to 1."""
    centre = (torch.arange(_WINDOWS) + 0.5) * side / _WINDOWS - 0.5
    distance = (torch.arange(side) - centre[:, None]) * _WINDOWS / side
    weights = torch.exp(-(distance**2) / (2 * 0.6**2))
    return weights / weights.sum(dim=1, keepdim=True)


def moduli_of(square: torch.Tensor) -> torch.Tensor:
    """Returns the averaged moduli of images (n, 1, 28, 28), float32 (n, 1176), each row of length 1."""
    features = []
    for width, frequency, side, step in _WAVELETS:
        parts = [
            conv2d(square, filter_, stride=step, padding=side // 2) for filter_ in _filters(width, frequency, side)
        ]
        modulus = torch.hypot(*parts)
        windows = _windows(modulus.shape[-1])
        features.append((windows @ modulus @ windows.T).flatten(1))
    return _to_length(torch.cat(features, dim=1), 1.0)


@cache
def _components() -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the strokes' mean (1176,), and the scaled components that they vary most along (1176, 120), float32."""
    moduli = moduli_of(_strokes()).double()
    mean = moduli.mean(dim=0)
    centred = moduli - mean
    values, vectors = torch.linalg.eigh(centred.T @ centred / len(moduli))
    values, vectors = values[-COMPONENTS:].flip(0), vectors[:, -COMPONENTS:].flip(1)
    # An eigenvector's sign is the library's choice: its largest entry is made positive.
    largest = vectors.abs().argmax(dim=0, keepdim=True)
    vectors = vectors * torch.sign(vectors.gather(0, largest))
    return mean.float(), (vectors * (values[0] / values) ** (_WHITENING / 2)).float()


def _strokes() -> torch.Tensor:
    """Returns drawings of one or two random cubic curves, some closed, about as large as a digit: (2000, 1, 28, 28)."""
    source = torch.Generator().manual_seed(_SEED)
    time = torch.linspace(0, 1, 24)
    curve = torch.stack([(1 - time) ** 3, 3 * time * (1 - time) ** 2, 3 * time**2 * (1 - time), time**3], dim=1)
    ends = torch.rand((_STROKES, 2, 4, 2), generator=source)
    closed = torch.rand((_STROKES, 2, 1), generator=source) < 0.3
    ends[:, :, 3] = torch.where(closed, ends[:, :, 0], ends[:, :, 3])
    single = torch.rand((_STROKES, 1, 1, 1), generator=source) < 0.5
    ends[:, 1:] = torch.where(single, ends[:, :1], ends[:, 1:])  # the second curve on the first
    points = (curve @ ends).flatten(1, 2)
    points -= points.amin(dim=1, keepdim=True)
    points *= 19 / points.amax(dim=(1, 2), keepdim=True)
    points += (_SIDE - 1) / 2 - points.mean(dim=1, keepdim=True)
    thickness = 1.7 + 0.6 * torch.rand((_STROKES, 1, 1), generator=source)
    place = torch.arange(_SIDE)
    drawn = []
    for batch, thick in zip(torch.split(points, 100), torch.split(thickness, 100), strict=True):
        down, right = batch[:, :, 0, None] - place, batch[:, :, 1, None] - place
        distance = (down[:, :, :, None] ** 2 + right[:, :, None, :] ** 2).amin(dim=1).sqrt()
        drawn.append((thick - distance).clamp(0, 1))
    return torch.cat(drawn)[:, None]
