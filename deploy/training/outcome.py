"""What a training leaves behind: the model, its history with the cost of every epoch, the certificate, and the plot."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from accountant.results import round_up
from deploy.render import counted
from deploy.training.privacy import Spending

__all__ = ["EpochRecord", "Outcome", "plot"]


@dataclass(frozen=True)
class EpochRecord:
    """Where the training stands after an epoch: loss and accuracy on the examples that are watched."""

    epoch: int
    steps: int
    loss: float
    accuracy: float


@dataclass
class Outcome:
    """Epoch by epoch: how good, and what it has cost. spending is None throughout where there is no noise."""

    title: str
    setting: dict[str, Any]
    records: list[EpochRecord] = field(default_factory=list)
    spending: list[Spending | None] = field(default_factory=list)
    stopped: str = ""

    @property
    def simulated(self) -> bool:
        """Whether nobody was protected, because all of the data lay with one party."""
        return self.setting.get("mode") == "simulation"

    @property
    def quantity(self) -> str:
        """What the epsilon is of."""
        return "ε of one record" if self.setting.get("unit") == "record" else "central ε"

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
        """Returns what stands above the lines; they fit into 80 columns."""
        spent = self.spending[-1]
        cost = "" if spent is None else f"  {self._at(spent):<28}  if everyone else colludes"
        return f"epoch    loss  accuracy{cost}"

    def line(self) -> str:
        """Returns one line about the newest epoch, for below the heading."""
        record, spent = self.records[-1], self.spending[-1]
        cost = "not private"
        if spent is not None:
            worth = f"{round_up(spent.epsilon, 4)} {spent.grade}{', simulated' if self.simulated else ''}"
            cost = f"{worth:<28}  {round_up(spent.everyone_else_colludes, 4)}"
        return f"{record.epoch:5d}  {record.loss:6.4f}   {100 * record.accuracy:5.2f} %  {cost}"

    def _at(self, spent: Spending) -> str:
        return f"{self.quantity} at δ = {round_up(spent.delta)}"

    def document(self) -> dict[str, Any]:
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
            "certificate": _certificate(self.spending[-1] if self.spending else None),
        }

    def save(self, out: Path, parameters: torch.Tensor) -> None:
        """Writes model.pt, training.json and training.png into a directory."""
        out.mkdir(parents=True, exist_ok=True)
        torch.save(parameters, out / "model.pt")
        (out / "training.json").write_text(json.dumps(self.document(), indent=1), encoding="utf-8")
        plot([self], out / "training.png")

    def table(self) -> Table:
        """Returns the last epoch and its cost by local budget, with what it rests on below.

        Raises:
            ValueError: there is no epoch.
        """
        if not self.records:
            raise ValueError("no epoch has been trained; there is nothing to show")
        last, spent = self.records[-1], self.spending[-1]
        done = f"{counted(last.epoch, 'epoch')}, {counted(last.steps, 'step')}: accuracy {100 * last.accuracy:.2f} %"
        table = Table(title=f"{self.title}{', simulated' if self.simulated else ''}\n{done}")
        for heading in ("statement", self.quantity if spent is None else self._at(spent), "grade"):
            table.add_column(heading, justify="right" if "ε" in heading else "left")
        if spent is None:
            table.add_row("no noise", "∞", "not private")
            return table
        for local, epsilon in _few(spent.tiers):
            table.add_row(f"clients of local ε {round_up(local)} per epoch", round_up(epsilon, 4), str(spent.grade))
        table.add_row("if everyone else colludes", round_up(spent.everyone_else_colludes, 4), str(spent.grade))
        if spent.asymptotic is not None:
            table.add_row("GSPA Thm 5 (no guarantee)", round_up(spent.asymptotic, 4), "ASYMPTOTIC")
        return table

    def basis(self) -> str:
        """Returns what the central epsilon rests on, a line each; "" where there is none."""
        spent = self.spending[-1] if self.spending else None
        if spent is None:
            return ""
        return "\n".join(
            [f"At δ {round_up(spent.delta)}, assuming that", *(f"  · {line}" for line in spent.assumptions)]
        )


def _few(tiers: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    return tiers if len(tiers) <= 8 else [*tiers[:4], *tiers[-4:]]


def _certificate(spent: Spending | None) -> dict[str, Any] | None:
    if spent is None:
        return None
    return {
        "epsilon": spent.epsilon,
        "delta": spent.delta,
        "grade": str(spent.grade),
        "method": spent.method,
        "assumptions": list(spent.assumptions),
        "everyone_else_colludes": spent.everyone_else_colludes,
        "tiers": [{"local_epsilon": local, "epsilon": epsilon} for local, epsilon in spent.tiers],
        "comparison": [{"name": "GSPA Thm 5", "epsilon": spent.asymptotic, "grade": "ASYMPTOTIC"}],
    }


def plot(outcomes: Sequence[Outcome], file: Path) -> None:
    """Draws accuracy against epochs, and against the central epsilon, with its grade and whether it was simulated."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, (by_epoch, by_epsilon) = pyplot.subplots(1, 2, figsize=(11, 4.2), constrained_layout=True)
    for outcome in outcomes:
        accuracy = [100 * record.accuracy for record in outcome.records]
        (drawn,) = by_epoch.plot([record.epoch for record in outcome.records], accuracy, label=outcome.title)
        spent = [one.epsilon for one in outcome.spending if one is not None]
        if spent:
            by_epsilon.plot(spent, accuracy[-len(spent) :], color=drawn.get_color(), label=outcome.title)
    by_epoch.set(xlabel="epoch", ylabel="accuracy, %", title="accuracy against epoch")
    grades = sorted({str(one.grade) for outcome in outcomes for one in outcome.spending if one is not None})
    quantity = " or ".join(sorted({outcome.quantity for outcome in outcomes}))
    # A plot travels without its page: a simulation says here, too, that it protected nobody.
    simulated = ["simulated"] if any(outcome.simulated for outcome in outcomes) else []
    by_epsilon.set(
        xlabel=", ".join([quantity, *([" or ".join(grades)] if grades else []), *simulated]),
        ylabel="accuracy, %",
        title="accuracy against what it costs",
    )
    by_epsilon.set_xscale("log")
    for axes in (by_epoch, by_epsilon):
        axes.grid(alpha=0.3)
        if axes.lines:
            axes.legend(fontsize="small")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=130)
    pyplot.close(figure)
