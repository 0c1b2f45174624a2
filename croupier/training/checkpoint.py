"""How far a training has come, durably, and bound to what is trained and where.

Of a simulation it is written after every epoch. Through a deployment it is written after every step, so that a run
that was killed goes on: with the same clients, and with every certificate that has been paid for. The wave that was
under way is in the survey's journal (`study.journal`).
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

import torch

from croupier.protocol.deployment import Deployment
from croupier.protocol.names import RoundId
from croupier.training.descent import Descent
from croupier.training.outcome import EpochRecord
from croupier.training.privacy import Batch
from croupier.training.simulation import SimulatedTraining

_KEY_BYTES = 32
_UNREADABLE = (LookupError, TypeError, ValueError, AttributeError, RuntimeError, EOFError, pickle.UnpicklingError)
"""What torch and json raise for bytes that are something else."""


@dataclass
class Progress:
    """Where a training is.

    Attributes:
        descent: the parameters, and what the next step needs.
        keys: of the clients, 32 bytes each.
        survey_id: of the survey that the training is; empty before the first round.
        wave: the newest wave of the survey whose result was learnt, or that has none; 0 before it.
        answered: by round, in the order of the steps, the budgets that its certificate was granted for.
        history: the epochs that are complete.
    """

    descent: Descent
    keys: list[bytes]
    survey_id: str = ""
    wave: int = 0
    answered: dict[RoundId, Batch] = field(default_factory=dict)
    history: list[EpochRecord] = field(default_factory=list)

    def epochs(self, steps_per_epoch: int) -> list[tuple[Batch, ...]]:
        """Returns the batches by epoch; the last epoch may be incomplete."""
        batches = list(self.answered.values())
        return [tuple(batches[at : at + steps_per_epoch]) for at in range(0, len(batches), steps_per_epoch)]


class Checkpoint:
    """A file that belongs to one training in one deployment."""

    def __init__(self, file: Path, setting: Mapping[str, object], deployment: Deployment) -> None:
        """Binds a file, which need not exist, to a training.

        Args:
            file: the checkpoint.
            setting: what is trained, as JSON: everything that may not change between two runs of one training.
            deployment: where it is trained.
        """
        self._file = file
        self._setting: dict[str, object] = json.loads(json.dumps(dict(setting) | {"deployment": deployment.name}))
        self._identities = {name: [key.hex() for key in keys] for name, keys in deployment.identities.items()}

    def load(self, fresh: Progress) -> Progress:
        """Returns what was saved, or `fresh` if nothing was; the saved descent is put into the fresh one.

        Raises:
            ValueError: the file is of another training or deployment, naming what differs; or it cannot be read.
        """
        read = _read(self._file, self._setting, ("identities", "survey_id"))
        if read is None:
            return fresh
        stored, state = read
        identities = stored["identities"]
        # Identities may rotate, and what has retired stays listed: one key in common is the same service.
        if identities.keys() != self._identities.keys() or not all(
            set(keys) & set(self._identities[name]) for name, keys in identities.items()
        ):
            raise ValueError(
                f"{self._file} belongs to another deployment that is also called {self._setting['deployment']!r}; "
                "choose another --out"
            )
        fresh.descent.restore(state["descent"])
        raw = state["keys"].numpy().tobytes()
        return Progress(
            fresh.descent,
            [raw[at : at + _KEY_BYTES] for at in range(0, len(raw), _KEY_BYTES)],
            stored["survey_id"],
            stored["wave"],
            {
                RoundId(round_id): Batch(tuple((local, count) for local, count in tiers), *more)
                for round_id, tiers, *more in stored["answered"]
            },
            [EpochRecord(*record) for record in stored["history"]],
        )

    def save(self, progress: Progress) -> None:
        """Replaces the file."""
        about = {
            "setting": self._setting,
            "identities": self._identities,
            "survey_id": progress.survey_id,
            "wave": progress.wave,
            "answered": [
                (name, batch.tiers, batch.dishonest, batch.unknown) for name, batch in progress.answered.items()
            ],
            "history": _rows(progress.history),
        }
        keys = torch.frombuffer(bytearray(b"".join(progress.keys)), dtype=torch.uint8)
        _write(self._file, about, {"descent": progress.descent.state(), "keys": keys})


class SimulationCheckpoint:
    """A file that belongs to one simulated training."""

    def __init__(self, file: Path, setting: Mapping[str, object]) -> None:
        """Binds a file, which need not exist, to a training; see `Checkpoint`."""
        self._file = file
        self._setting: dict[str, object] = json.loads(json.dumps(dict(setting)))

    def load(self, at: SimulatedTraining) -> list[EpochRecord]:
        """Returns the epochs that are done, and puts the simulation where it was after them.

        Raises:
            ValueError: the file is of another training, naming what differs; or it cannot be read.
        """
        read = _read(self._file, self._setting, ("history",))
        if read is None:
            return []
        stored, state = read
        history = [EpochRecord(*record) for record in stored["history"]]
        at.descent.restore(state["descent"])
        at.generator.set_state(state["generator"])
        at.epochs = len(history)
        return history

    def save(self, at: SimulatedTraining, history: Sequence[EpochRecord]) -> None:
        """Replaces the file."""
        about = {"setting": self._setting, "history": _rows(history)}
        _write(self._file, about, {"descent": at.descent.state(), "generator": at.generator.get_state()})


def _rows(history: Sequence[EpochRecord]) -> list[tuple[int | float | None, ...]]:
    return [astuple(record) for record in history]


def _read(file: Path, setting: Mapping[str, object], names: Sequence[str]) -> tuple[dict[str, Any], Any] | None:
    """Returns what is written in a checkpoint, as JSON and in tensors; None if there is no file.

    Raises:
        ValueError: the file is of another training, naming what differs; it cannot be read, or lacks a name.
    """
    if not file.exists():
        return None
    try:
        state = torch.load(file, weights_only=True)
        stored = json.loads(state["about"])
        before, _, _ = stored["setting"], state["descent"]["noise"], [stored[name] for name in names]
    except _UNREADABLE as error:
        raise ValueError(
            f"{file} cannot be read; it must be a checkpoint of this version, or choose another --out"
        ) from error
    for name in sorted(before.keys() | setting.keys()):
        if before.get(name) != setting.get(name):
            raise ValueError(
                f"{name} is {setting.get(name)!r}, but {file} was begun with {before.get(name)!r}; go on with the "
                "same, or choose another --out"
            )
    return stored, state


def _write(file: Path, about: Mapping[str, object], state: Mapping[str, object]) -> None:
    fresh = file.with_suffix(".new")
    fresh.touch(mode=0o600)  # the clients' private keys may be in it
    torch.save({"about": json.dumps(about), **state}, fresh)
    fresh.replace(file)
