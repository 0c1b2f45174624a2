"""What a training leaves behind: the model, its history with the cost of every epoch, and the certificate."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch

from croupier.protocol.rounding import round_up
from croupier.protocol.statements import written_json
from croupier.show.documents import write_json
from croupier.show.plots import plot_training
from croupier.show.views import TrainingCertificateView, TrainingSettingView, TrainingView
from croupier.training.privacy import Spending

__all__ = ["EpochRecord", "TrainingOutcome"]


@dataclass(frozen=True)
class EpochRecord:
    """Where the training stands after an epoch: loss and accuracy on the examples that are watched."""

    epoch: int
    steps: int
    loss: float
    accuracy: float


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
        noise_free: the accuracy after each epoch of the same training without noise, which no certificate covers; empty
            where it was not asked for.
    """

    title: str
    setting: TrainingSettingView
    basis: str = ""
    records: list[EpochRecord] = field(default_factory=list)
    spending: list[Spending | None] = field(default_factory=list)
    stopped: str = ""
    noise_free: list[float] = field(default_factory=list)

    @property
    def simulated(self) -> bool:
        """Whether the run protected no user, because all of the data lay with one party."""
        return self.setting["mode"] == "simulation"

    @property
    def quantity(self) -> str:
        """What the epsilon is of."""
        return "ε of one record" if self.setting["unit"] == "record" else "central ε"

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
        return f"{above}epoch    loss  accuracy{cost}"

    def line(self) -> str:
        """Returns one line about the newest epoch, for below the heading."""
        record, spent = self.records[-1], self.spending[-1]
        cost = "not private"
        if spent is not None:
            worth = f"{round_up(spent.epsilon, 4)} {spent.grade}{', simulated' if self.simulated else ''}"
            cost = f"{worth:<28}  {round_up(spent.everyone_else_colludes, 4)}"
        return f"{record.epoch:5d}  {record.loss:6.4f}   {100 * record.accuracy:5.2f} %  {cost}"

    def document(self) -> TrainingView:
        """Returns everything as JSON."""
        return {
            "title": self.title,
            "setting": self.setting,
            "stopped": self.stopped,
            "history": [
                {
                    "epoch": record.epoch,
                    "steps": record.steps,
                    "loss": record.loss,
                    "accuracy": record.accuracy,
                    "epsilon": None if spent is None else spent.epsilon,
                    "grade": None if spent is None else str(spent.grade),
                }
                for record, spent in zip(self.records, self.spending, strict=True)
            ],
            "noise_free_accuracy": self.noise_free,
            "certificate": _certificate(self.spending[-1] if self.spending else None),
        }

    def save(self, out: Path, parameters: torch.Tensor) -> None:
        """Writes model.pt, training.json and training.png into a directory."""
        out.mkdir(parents=True, exist_ok=True)
        document = self.document()
        torch.save(parameters, out / "model.pt")
        write_json(out / "training.json", document)
        plot_training([document], out / "training.png")


def _certificate(spent: Spending | None) -> TrainingCertificateView | None:
    if spent is None:
        return None
    return {
        "epsilon": spent.epsilon,
        "delta": spent.delta,
        "grade": str(spent.grade),
        "method": written_json(spent.method),
        "assumptions": written_json(spent.assumptions),
        "everyone_else_colludes": spent.everyone_else_colludes,
        "tiers": [
            {"local_epsilon": local, "local_delta": spent.local_delta, "epsilon": epsilon}
            for local, epsilon in spent.tiers
        ],
        "comparison": [{"name": "GSPA Thm 5", "epsilon": spent.asymptotic, "grade": "ASYMPTOTIC"}],
    }
