"""What a training leaves behind: the model, its history with the cost of every epoch, and the certificate."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import torch

from croupier.accountant.guarantees import Grade
from croupier.protocol.documents import document_of, fields_of
from croupier.protocol.names import JsonObject
from croupier.protocol.rounding import round_up
from croupier.show.documents import write_json
from croupier.show.plots import plot_training
from croupier.training.privacy import Spending


@dataclass(frozen=True)
class EpochRecord:
    """Where the training stands after an epoch: how good the model is on the watched examples; see `Quality`."""

    epoch: int
    steps: int
    loss: float
    accuracy: float | None
    error: float | None = None

    @property
    def figure(self) -> float:
        """The accuracy, or the error where targets are numbers."""
        return cast(float, self.error if self.accuracy is None else self.accuracy)


@dataclass(frozen=True)
class NoiseComparison:
    """The length of the gradients of a training, beside the noise of the mean of all steps.

    The square of the length of an estimated gradient is on average that of the gradient, plus that of the noise, whose
    law is known; so the difference, summed over the steps, estimates the gradients' length from what is published.
    Noise that is longer than the gradient even after averaging leaves nothing to be learned.

    Attributes:
        signal: the length of the gradients, root mean square over the steps.
        noise: the length of the noise of the mean of all steps' gradients.
        measured: False if the gradients are too short to be told from zero: then they are about `signal` or shorter.
        epochs: with this many epochs both would be equal, if the gradients stayed as they are.
        epsilon: of these epochs; None where that was not computed.
        parameters: with gradients of the same length, a model with this many parameters would make both equal.
        clipping_norm: with this clipping norm the noise would be as long as the gradients are now.
        users: with this many clients both would be equal.
    """

    signal: float
    noise: float
    measured: bool
    epochs: int
    epsilon: float | None
    parameters: int
    clipping_norm: float
    users: int

    @classmethod
    def of(
        cls,
        squares: float,
        noise_squares: float,
        steps: int,
        dimension: int,
        *,
        epochs: int,
        users: int,
        clipping_norm: float,
    ) -> NoiseComparison:
        """Compares the estimated gradients with their noise.

        Args:
            squares: the sum over the steps of the squares of the lengths of the estimated gradients.
            noise_squares: the expected sum of the squares of the lengths of their noise, above 0.
            steps: the number of gradients.
            dimension: of the gradients.
            epochs: that they took.
            users: how many clients answered in each epoch.
            clipping_norm: of the gradients.
        """
        # The standard deviation of the sum of the squares of Gaussian noise.
        least = noise_squares * math.sqrt(2 / (dimension * steps))
        signal = math.sqrt(max(squares - noise_squares, least) / steps)
        noise = math.sqrt(noise_squares) / steps
        ratio = noise / signal
        return cls(
            signal=signal,
            noise=noise,
            measured=squares - noise_squares > least,
            epochs=math.ceil(epochs * ratio**2),
            epsilon=None,
            parameters=int(dimension / ratio**2),
            clipping_norm=clipping_norm / ratio,
            users=math.ceil(users * ratio**2),
        )


@dataclass
class TrainingOutcome:
    """Epoch by epoch: how good the model is, and what the training has cost so far.

    Attributes:
        title: what tells the training from others.
        setting: what was trained, as JSON; "mode" and "unit" say what an epsilon is of.
        basis: what the epsilon in each line rests on, in a few words.
        records: the epochs.
        spending: the cost after each epoch; None throughout where there is no noise.
        stopped: why the training ended before its last epoch; "" if it did not.
        noise_free: the accuracy, or error, after each epoch of the same training without noise, which no certificate
            covers; empty where it was not asked for.
        noise: the noise of all steps beside their gradients; None where there is no noise, and in order sequential.
        state_dict: the trained parameters, averaged as the settings say: what the module's `load_state_dict` takes.
    """

    title: str
    setting: JsonObject
    basis: str = ""
    records: list[EpochRecord] = field(default_factory=list)
    spending: list[Spending | None] = field(default_factory=list)
    stopped: str = ""
    noise_free: list[float] = field(default_factory=list)
    noise: NoiseComparison | None = None
    state_dict: dict[str, torch.Tensor] = field(default_factory=dict, repr=False)

    @property
    def simulated(self) -> bool:
        """Whether the run protected no user, because all of the data lay with one party."""
        return bool(self.setting["mode"] == "simulation")

    @property
    def quantity(self) -> str:
        """What the epsilon is of."""
        return "ε of one record" if self.setting["unit"] == "record" else "central ε"

    @property
    def _has_classes(self) -> bool:
        return any(record.accuracy is not None for record in self.records)

    def add(self, record: EpochRecord, spending: Spending | None) -> None:
        """Adds an epoch."""
        self.records.append(record)
        self.spending.append(spending)

    def end(self, record: EpochRecord, spending: Spending | None) -> None:
        """Adds an epoch that was not completed, or corrects what the last one has cost."""
        if self.records and self.records[-1].steps == record.steps:
            del self.records[-1], self.spending[-1]
        self.add(record, spending)

    def heading(self) -> str:
        """Returns the heading of the lines, which fit into 80 columns."""
        spent = self.spending[-1]
        above = f"each ε: for {self.basis};\nall assumptions stand at the end\n" if spent and self.basis else ""
        quantity = "" if spent is None else f"{self.quantity} at δ = {round_up(spent.delta)}"
        cost = "" if spent is None else f"  {quantity:<28}  if everyone else colludes"
        figure = "accuracy" if self._has_classes else "   error"
        return f"{above}epoch    loss  {figure}{cost}"

    def line(self) -> str:
        """Returns one line about the newest epoch, for below the heading."""
        record, spent = self.records[-1], self.spending[-1]
        cost = "not private"
        if spent is not None:
            worth = f"{round_up(spent.epsilon, 4)} {spent.grade}{', simulated' if self.simulated else ''}"
            cost = f"{worth:<28}  {round_up(spent.everyone_else_colludes, 4)}"
        figure = f"{record.error:8.4g}" if record.accuracy is None else f" {100 * record.accuracy:5.2f} %"
        return f"{record.epoch:5d}  {record.loss:6.4f}  {figure}  {cost}"

    def document(self) -> JsonObject:
        """Returns everything as JSON."""
        return {
            "title": self.title,
            "setting": self.setting,
            "stopped": self.stopped,
            "history": [
                fields_of(record)
                | {
                    "epsilon": None if spent is None else spent.epsilon,
                    "grade": None if spent is None else str(spent.grade),
                }
                for record, spent in zip(self.records, self.spending, strict=True)
            ],
            "noise_free_accuracy": self.noise_free if self._has_classes else [],
            "noise_free_error": [] if self._has_classes else self.noise_free,
            "noise": document_of(self.noise),
            "certificate": _certificate(self.spending[-1]) if self.spending else None,
        }

    def save(self, out: Path) -> None:
        """Writes model.pt (`state_dict`), training.json and training.png into a directory."""
        out.mkdir(parents=True, exist_ok=True)
        document = self.document()
        torch.save(self.state_dict, out / "model.pt")
        write_json(out / "training.json", document)
        plot_training([document], out / "training.png")


def _certificate(spent: Spending | None) -> JsonObject | None:
    """Returns the cost of a training as JSON; the published figure stands beside it with a grade of its own."""
    if spent is None:
        return None
    document = fields_of(spent)
    published = {"name": "GSPA Thm 5", "epsilon": document.pop("asymptotic"), "grade": str(Grade.ASYMPTOTIC)}
    return document | {"comparison": [published]}
