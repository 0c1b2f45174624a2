"""How far a training has come, durably, and bound to what is trained.

It is written after every epoch of a simulation, and after every step through a deployment. The wave that is under way
there is in the journal of the training's survey (`study.journal`), and its results are kept beside it.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import torch

from croupier.training.descent import Descent
from croupier.training.outcome import EpochRecord

_UNREADABLE = (LookupError, TypeError, ValueError, AttributeError, RuntimeError, EOFError, pickle.UnpicklingError)
"""What torch and json raise for bytes that are something else."""


@dataclass(frozen=True)
class Saved:
    """What a checkpoint has beside the descent.

    Attributes:
        history: the epochs that are complete.
        about: further values, as JSON.
        tensors: further tensors.
    """

    history: list[EpochRecord]
    about: Mapping[str, Any]
    tensors: Mapping[str, torch.Tensor]


class Checkpoint:
    """A file that belongs to one training."""

    def __init__(self, file: Path, setting: Mapping[str, object]) -> None:
        """Binds a file, which need not exist, to a training.

        Args:
            file: the checkpoint.
            setting: what is trained, as JSON: everything that may not change between two runs of one training.
        """
        self.file = file
        self._setting: dict[str, object] = json.loads(json.dumps(dict(setting)))

    def load(self, descent: Descent, about: Sequence[str] = (), tensors: Sequence[str] = ()) -> Saved | None:
        """Returns what was saved, and puts the saved descent into a fresh one; None if nothing was saved.

        Raises:
            ValueError: the file is of another training, naming what differs; it cannot be read, or lacks a name.
        """
        if not self.file.exists():
            return None
        try:
            state = torch.load(self.file, weights_only=True)
            stored = json.loads(state["about"])
            before, kept = stored["setting"], state["descent"]
            saved = Saved(
                [EpochRecord(*record) for record in stored["history"]],
                {name: stored[name] for name in about},
                {name: state[name] for name in tensors},
            )
        except _UNREADABLE as error:
            raise ValueError(
                f"{self.file} cannot be read; it must be a checkpoint of this version, or choose another --out"
            ) from error
        for name in sorted(before.keys() | self._setting.keys()):
            if before.get(name) != self._setting.get(name):
                raise ValueError(
                    f"{name} is {self._setting.get(name)!r}, but {self.file} was begun with {before.get(name)!r}; go "
                    "on with the same, or choose another --out"
                )
        descent.restore(kept)
        return saved

    def save(
        self,
        descent: Descent,
        history: Sequence[EpochRecord],
        about: Mapping[str, object] = {},
        tensors: Mapping[str, torch.Tensor] = {},
    ) -> None:
        """Replaces the file."""
        stored = {"setting": self._setting, "history": [astuple(record) for record in history], **about}
        fresh = self.file.with_suffix(".new")
        fresh.touch(mode=0o600)  # the clients' private keys may be in it
        torch.save({"about": json.dumps(stored), "descent": descent.state(), **tensors}, fresh)
        fresh.replace(self.file)
