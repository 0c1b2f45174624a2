"""`croupier train`: the options of a `TrainingConfig`, and the table of its outcome."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from croupier.cli.console import Hops, Json, note, progress_bar, show
from croupier.operator.keys import check_hops
from croupier.show.training import training_assumptions, training_remark, training_table
from croupier.training.config import DEFAULT_BUDGETS, TrainingConfig

if TYPE_CHECKING:
    from croupier.training.outcome import TrainingOutcome


_DATA, _TRAINING, _PRIVACY = "The data and the model", "The training", "Privacy"


@Parameter(name="*")
@dataclass(frozen=True)
class TrainingOptions(TrainingConfig):
    """A `TrainingConfig` whose fields are options of the command line."""

    dataset: Annotated[
        str, Parameter(group=_DATA, help="digits (1,797 small images, offline) or mnist; without a file in --data.")
    ] = TrainingConfig.dataset
    data: Annotated[
        Path | None,
        Parameter(
            group=_DATA,
            help="Your examples: .csv, .xlsx or .parquet, one a row, or .npz with arrays X and y; 70 % train, 15 % are "
            "for validation, 15 % for the test. mnist: directory of the IDX files, downloaded if absent.",
        ),
    ] = TrainingConfig.data
    target: Annotated[
        str | None,
        Parameter(
            group=_DATA,
            help="Of --data: the column or array of class labels, or NAME:LOW:HIGH, numbers in a range known "
            "beforehand. Default: y of .npz.",
        ),
    ] = TrainingConfig.target
    columns: Annotated[
        list[str] | None,
        Parameter(
            "--column",
            group=_DATA,
            help="Of --data, a feature: NAME, or NAME:LOW:HIGH, a range known beforehand that becomes -1..1. "
            "Repeat it. Default: every column but the target, as it is.",
        ),
    ] = None
    features: Annotated[
        str | None,
        Parameter(
            group=_DATA,
            help="Images: pixels, dct or scattering (which look at no data), or pca. --data: columns, or standardized. "
            "pca and standardized are fitted to the data, which no certificate covers. Default: dct, columns.",
        ),
    ] = TrainingConfig.features
    model: Annotated[
        str | None,
        Parameter(
            group=_DATA,
            help="softmax (classes), linear (numbers), relu, or a Python file with model(inputs, outputs). Default: "
            "softmax, linear.",
        ),
    ] = TrainingConfig.model
    unit: Annotated[
        str,
        Parameter(group=_DATA, help="What is protected: a user with one example, or one record of a client with many."),
    ] = TrainingConfig.unit
    clients: Annotated[int, Parameter(group=_DATA, help="record: how many clients share the examples, at least 2.")] = (
        TrainingConfig.clients
    )
    budgets: Annotated[
        str,
        Parameter(
            group=_PRIVACY,
            help="Groups epsilon:share of the clients' local budgets per epoch; 0 < epsilon <= 20, "
            "shares are relative.",
        ),
    ] = DEFAULT_BUDGETS
    private: Annotated[
        bool,
        Parameter(
            group=_TRAINING,
            negative="--no-private",
            help="--no-private, with --simulate only: clipped gradients and no noise, for comparison.",
        ),
    ] = TrainingConfig.private
    baseline: Annotated[
        bool | None,
        Parameter(
            group=_TRAINING,
            negative="--no-baseline",
            help="Train once more without noise, simulated, and draw how good it is, which nothing certifies. "
            "Default: with --simulate.",
        ),
    ] = TrainingConfig.baseline
    epochs: Annotated[int, Parameter(group=_TRAINING, help="At least 1. Every client answers once an epoch.")] = (
        TrainingConfig.epochs
    )
    batch_size: Annotated[
        int, Parameter(group=_TRAINING, help="Clients per step, each once an epoch; 0: all of them.")
    ] = TrainingConfig.batch_size
    order: Annotated[
        str, Parameter(group=_TRAINING, help="batch, or sequential: one client a step, in a secret order.")
    ] = TrainingConfig.order
    clipping_norm: Annotated[
        float, Parameter(group=_TRAINING, help="Gradients that are longer are scaled down to this length, 1e-20..1e20.")
    ] = TrainingConfig.clipping_norm
    period_s: Annotated[
        float,
        Parameter(
            group=_TRAINING,
            help="sequential, deployed: seconds of each client, 0.001..600; an epoch takes that long for each client.",
        ),
    ] = TrainingConfig.period_s
    learning_rate: Annotated[
        float | None,
        Parameter(group=_TRAINING, help="Above 0. Default: user 8, sequential 0.01; record 2, sequential 0.05."),
    ] = TrainingConfig.learning_rate
    momentum: Annotated[
        float,
        Parameter(group=_TRAINING, help="What is kept of the last step, 0 <= momentum < 1; sequential, deployed: 0."),
    ] = TrainingConfig.momentum
    averaging: Annotated[
        float | None,
        Parameter(
            group=_TRAINING,
            help="Weight of the newest parameters in what is kept, above 0; 1: no average. Default: "
            "0.3, sequential: 1.",
        ),
    ] = TrainingConfig.averaging
    delta: Annotated[
        float, Parameter(group=_PRIVACY, help="Of the whole training, 1e-12..0.1; record: of each local budget, too.")
    ] = TrainingConfig.delta
    epsilon_limit: Annotated[
        float, Parameter(group=_PRIVACY, help="Stop before the training's epsilon at --delta exceeds this; 0: never.")
    ] = TrainingConfig.epsilon_limit
    chosen_on_users: Annotated[
        bool,
        Parameter(
            negative="--no-chosen-on-users",
            help="Say in the certificate that these options were chosen by looking at users' examples.",
        ),
    ] = TrainingConfig.chosen_on_users
    simulate: Annotated[
        bool,
        Parameter(
            negative="--no-simulate",
            help="Without a network: the same estimators and certificates, but no user is protected.",
        ),
    ] = TrainingConfig.simulate
    resume: Annotated[
        bool,
        Parameter(negative="--no-resume", help="--simulate: go on from the checkpoint in --out; --dir always does."),
    ] = TrainingConfig.resume
    directory: Annotated[
        Path | None, Parameter("--dir", help="The directory of a running deployment; else one on loopback.")
    ] = TrainingConfig.directory
    hops: Hops = TrainingConfig.hops
    out: Annotated[Path, Parameter(help="For model.pt, training.json, training.png, checkpoint.")] = TrainingConfig.out
    watch: Annotated[str, Parameter(help="validation, or test: what the model is measured on.")] = TrainingConfig.watch
    seed: Annotated[int, Parameter(help="simulation: of batches and noise; initial parameters always.")] = (
        TrainingConfig.seed
    )
    device: Annotated[str, Parameter(help="Where gradients are computed: cpu, cuda, …; auto: a GPU if any.")] = (
        TrainingConfig.device
    )


def train(*, config: TrainingOptions = TrainingOptions(), as_json: Json = False) -> None:
    from croupier.training.runner import Reports, run_training

    check_hops(config.hops)
    with progress_bar(transient=True) as move:
        reports = Reports(
            _note_epoch, lambda done, clients: move(done, clients, f"{done:,} of {clients:,} clients"), note
        )
        outcome = run_training(config, reports)
    result = outcome.document()
    below = [
        result["stopped"],
        training_remark(result),
        training_assumptions(result),
        f"{config.out / 'training.png'}, {config.out / 'model.pt'}",
    ]
    show(as_json, result, training_table(result), *(line for line in below if line))


def _note_epoch(outcome: TrainingOutcome) -> None:
    if len(outcome.records) == 1:
        note(outcome.heading())
    note(outcome.line())
