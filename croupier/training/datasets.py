"""Data sets for training: scikit-learn's digits (offline), MNIST from IDX files or downloaded; and their features.

Files of one's own are read by `table_files`. `dct` and `scattering` are transforms that do not depend on the data, so
they cost no privacy. `pca` is fitted to the training data, as GSPA does it, and what it shows is not accounted for:
results with it say so.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from croupier.training.config import DATASETS, FEATURES, check_choice
from croupier.training.scattering import scattering

_DCT_SIDE = 8
_PCA_COMPONENTS = 60
_SPLIT_SEED = 7
Array = NDArray[np.float32]


@dataclass(frozen=True)
class Examples(torch.utils.data.Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Examples in memory.

    Attributes:
        features: float32 (n, ...).
        targets: int64 (n,), class numbers from 0; or float32 (n,), numbers.
        unit: of targets that are numbers: what 1 stands for, in the unit of the data.
    """

    features: torch.Tensor
    targets: torch.Tensor
    unit: float = 1.0

    @property
    def has_classes(self) -> bool:
        """Whether the targets are classes, not numbers."""
        return not self.targets.dtype.is_floating_point

    def __len__(self) -> int:
        """Returns the number of examples."""
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the features and the target of an example."""
        return self.features[index], self.targets[index]

    def part(self, index: torch.Tensor | slice) -> Examples:
        """Returns some of the examples."""
        return replace(self, features=self.features[index], targets=self.targets[index])


@dataclass(frozen=True)
class Dataset:
    """Training, validation and test examples.

    Attributes:
        name: of the data set.
        train: the users' examples.
        validation: to choose settings on; they belong to no user.
        test: to look at once; they belong to no user.
        classes: how many; 0: the targets are numbers.
        side: of the images, which are side x side, in [0, 1] and flattened before `with_features`; 0: no images.
        features: their name.
        labels: of the classes, in the order of their numbers; () where they are numbers themselves.
    """

    name: str
    train: Examples
    validation: Examples
    test: Examples
    classes: int
    side: int
    features: str = "pixels"
    labels: tuple[str, ...] = ()


def load_dataset(name: str, data: Path | None = None) -> Dataset:
    """Returns a data set with a fixed split.

    digits: 1,297 / 200 / 300. mnist: 55,000 / 5,000 of the training files, and the 10,000 of the test files.

    Args:
        name: one of `DATASETS`.
        data: mnist: the directory of the four IDX files, gzipped or not; downloaded with scikit-learn if not given.

    Raises:
        ValueError: an unknown name, a missing or broken file.
    """
    check_choice("dataset", name, DATASETS)
    if name == "digits":
        return _digits()
    return _mnist_files(data) if data is not None else _mnist_download()


def _split(name: str, images: Array, labels: NDArray[np.int64], sizes: tuple[int, int, int], side: int) -> Dataset:
    first, second, third = (torch.arange(sum(sizes[:k]), sum(sizes[: k + 1])) for k in range(3))
    everything = Examples(torch.from_numpy(images), torch.from_numpy(labels))
    return Dataset(name, everything.part(first), everything.part(second), everything.part(third), 10, side)


def _digits() -> Dataset:
    from sklearn.datasets import load_digits

    raw = load_digits()
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(raw.target))
    images = (raw.data[order] / 16).astype(np.float32)
    return _split("digits", images, raw.target[order].astype(np.int64), (1297, 200, 300), 8)


def _mnist_files(directory: Path) -> Dataset:
    images = np.concatenate([_idx(directory, f"{part}-images-idx3-ubyte") for part in ("train", "t10k")])
    labels = np.concatenate([_idx(directory, f"{part}-labels-idx1-ubyte") for part in ("train", "t10k")])
    return _mnist(images.reshape(len(images), -1), labels)


def _idx(directory: Path, name: str) -> NDArray[np.uint8]:
    """Returns the array in an IDX file of unsigned bytes."""
    plain, packed = directory / name, directory / f"{name}.gz"
    if not plain.exists() and not packed.exists():
        raise ValueError(f"{plain} (or .gz) does not exist; --data is the directory of the four MNIST files")
    content = plain.read_bytes() if plain.exists() else gzip.decompress(packed.read_bytes())
    zero, kind, dimensions = struct.unpack(">HBB", content[:4])
    shape = struct.unpack(f">{dimensions}I", content[4 : 4 + 4 * dimensions])
    body = np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * dimensions)
    if zero or kind != 8 or body.size != int(np.prod(shape)):
        raise ValueError(f"{name} cannot be read; it must be a whole IDX file of unsigned bytes")
    return body.reshape(shape)


def _mnist_download() -> Dataset:
    from sklearn.datasets import fetch_openml

    try:
        raw = fetch_openml("mnist_784", version=1, as_frame=False)
    except OSError as error:
        raise ValueError(
            f"MNIST cannot be downloaded: {error}; give --data, a directory of its IDX files, or --dataset digits"
        ) from error
    return _mnist(raw.data, raw.target)


def _mnist(images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> Dataset:
    pixels = np.divide(images, 255, dtype=np.float32)  # in double precision it would take 440 MB
    return _split("mnist", pixels, labels.astype(np.int64), (55_000, 5_000, 10_000), 28)


def with_features(dataset: Dataset, features: str) -> Dataset:
    """Returns the data set with its images put into features.

    pixels: as they are. dct: the 63 lowest frequencies of the cosine transform. scattering: 120 combinations of
    wavelet moduli (`training.scattering`). pca: 60 principal components of the training images, whitened.

    Raises:
        ValueError: an unknown name.
    """
    check_choice("features", features, FEATURES)
    if features == "pixels":
        return dataset
    change: Callable[[torch.Tensor], torch.Tensor]
    if features == "dct":
        change = _dct(dataset.side)
    elif features == "scattering":
        change = partial(scattering, side=dataset.side)
    else:
        change = _pca(dataset.train.features)

    def changed(examples: Examples) -> Examples:
        return replace(examples, features=change(examples.features))

    return replace(
        dataset,
        train=changed(dataset.train),
        validation=changed(dataset.validation),
        test=changed(dataset.test),
        features=features,
    )


def _dct(side: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """The orthonormal cosine transform of side x side images, its lowest frequencies but the mean, times 4/side.

    The mean is much the same in all images, so that most of a gradient's length would go into it; a bias can do that.
    """
    place, frequency = np.arange(side), np.arange(min(_DCT_SIDE, side))[:, None]
    basis = np.sqrt(2 / side) * np.cos(np.pi * (place + 0.5) * frequency / side)
    basis[0] /= np.sqrt(2)
    both = torch.from_numpy(np.kron(basis, basis)[1:].T.astype(np.float32)) * (4 / side)
    return lambda images: images @ both


def _pca(train: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    from sklearn.decomposition import PCA

    fitted = PCA(_PCA_COMPONENTS, whiten=True, svd_solver="covariance_eigh").fit(train.numpy())
    return lambda images: torch.from_numpy(fitted.transform(images.numpy()).astype(np.float32))
