"""Data sets, features and models from files: what they hold, and what is refused."""

from __future__ import annotations

import gzip
import struct
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from urllib.error import URLError

import numpy as np
import pytest
import torch

from croupier.training.datasets import load_dataset, with_features
from croupier.training.models import load_model
from tests.support.messages import naming


def idx(array: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_mnist(directory: Path) -> None:
    """As many images as MNIST has, but of 7 x 7 pixels: a file says how large they are."""
    rng = np.random.default_rng(1)
    for part, count in (("train", 60_000), ("t10k", 10_000)):
        images = np.zeros((count, 7, 7), dtype=np.uint8)
        images[:, 3, 5] = rng.integers(0, 256, count)
        labels = (np.arange(count) % 10).astype(np.uint8)
        (directory / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images), 1))
        (directory / f"{part}-labels-idx1-ubyte").write_bytes(idx(labels))


def test_digits_are_split_the_same_way_every_time() -> None:
    first, second = load_dataset("digits"), load_dataset("digits")
    assert [len(part) for part in (first.train, first.validation, first.test)] == [1297, 200, 300]
    assert torch.equal(first.train.features, second.train.features)
    assert first.train.features.shape[1] == 64
    assert 0 <= float(first.train.features.min()) < float(first.train.features.max()) <= 1


def test_mnist_is_read_from_idx_files_packed_or_not(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    dataset = load_dataset("mnist", tmp_path)
    assert [len(part) for part in (dataset.train, dataset.validation, dataset.test)] == [55_000, 5_000, 10_000]
    assert dataset.train.features.shape == (55_000, 49)
    assert dataset.test.targets[:12].tolist() == [*range(10), 0, 1]
    assert int((dataset.train.features.sum(dim=0) > 0).sum()) == 1
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(b"\0\0\x08\x01\0\0\0\x09nine")
    with pytest.raises(ValueError, match=naming("t10k-labels-idx1-ubyte")):
        load_dataset("mnist", tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(ValueError, match=naming("t10k-labels-idx1-ubyte", ".gz")):
        load_dataset("mnist", tmp_path)


def test_the_cosine_transform_is_one_and_does_not_look_at_the_data() -> None:
    digits = load_dataset("digits")
    changed = with_features(digits, "dct")
    # All 64 frequencies of an 8 x 8 image but the mean: an orthonormal change of coordinates, times 4/8.
    centred = digits.train.features - digits.train.features.mean(dim=1, keepdim=True)
    assert changed.train.features.shape == (1297, 63)
    assert torch.allclose(changed.train.features.norm(dim=1), centred.norm(dim=1) / 2, atol=1e-4)
    assert torch.equal(with_features(digits, "dct").test.features, changed.test.features)
    brighter = replace(digits, train=replace(digits.train, features=digits.train.features + 0.1))
    assert torch.allclose(with_features(brighter, "dct").train.features, changed.train.features, atol=1e-4)


def test_principal_components_are_those_of_the_training_data() -> None:
    features = with_features(load_dataset("digits"), "pca").train.features
    assert features.shape == (1297, 60)
    assert torch.allclose(features.mean(dim=0), torch.zeros(60), atol=1e-3)


def test_unknown_names_and_broken_model_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=naming("dataset", "'cifar'", "digits or mnist")):
        load_dataset("cifar")
    with pytest.raises(ValueError, match=naming("features", "'sift'")):
        with_features(load_dataset("digits"), "sift")
    with pytest.raises(ValueError, match=naming("model", "'transformer'", "softmax, linear, relu")):
        load_model("transformer", 4, 2)
    with pytest.raises(ValueError, match=naming("none.py")):
        load_model(str(tmp_path / "none.py"), 4, 2)
    file = tmp_path / "mine.py"
    file.write_text("colour = 'red'")
    with pytest.raises(ValueError, match=naming("model")):
        load_model(str(file), 4, 2)
    file.write_text("def model(inputs, classes): return 3")
    with pytest.raises(ValueError, match=naming("int", "torch.nn.Module")):
        load_model(str(file), 4, 2)


def test_a_model_may_come_from_a_file_with_its_own_loss(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import torch\n"
        "def model(inputs, classes): return torch.nn.Linear(inputs, classes, bias=False)\n"
        "def loss(outputs, targets): return (outputs[:, 0] - targets).square().mean()\n"
    )
    model = load_model(str(file), 4, 2)
    assert model.dimension == 8
    rows = model.per_example(torch.zeros(8), torch.ones(3, 4), torch.tensor([1, 0, 2]))
    assert rows[:, 0].tolist() == [-2.0, 0.0, -4.0]


def test_a_download_is_split_like_the_files_and_its_failure_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """What openml.org answers is made up here: nothing outside is asked by a test."""
    labels = np.arange(70_000) % 10
    pixels = np.zeros((70_000, 16))  # smaller images: no number of pixels is looked at
    pixels[:, 5] = 255.0
    answer = SimpleNamespace(data=pixels, target=labels.astype(str).astype(object))
    monkeypatch.setattr("sklearn.datasets.fetch_openml", lambda *_, **__: answer)
    dataset = load_dataset("mnist")
    assert [len(part) for part in (dataset.train, dataset.validation, dataset.test)] == [55_000, 5_000, 10_000]
    assert dataset.test.targets[:11].tolist() == [*range(10), 0]
    assert float(dataset.train.features.max()) == 1.0

    def offline(*_: object, **__: object) -> None:
        raise URLError("Name or service not known")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", offline)
    with pytest.raises(ValueError, match=naming("MNIST", "--data")):
        load_dataset("mnist")
