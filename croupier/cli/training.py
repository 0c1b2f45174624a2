"""`croupier train`: the options of a `TrainingConfig`, and the table of its outcome."""

from __future__ import annotations

from dataclasses import fields, make_dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

from cyclopts import Parameter

from croupier.cli.console import Json, note, progress_bar, show
from croupier.operator.keys import check_hops
from croupier.show.training import training_assumptions, training_remark, training_table
from croupier.training.config import TrainingConfig

if TYPE_CHECKING:
    from croupier.training.outcome import TrainingOutcome


_DATA, _TRAINING, _PRIVACY, _OTHERS = "The data and the model", "The training", "Privacy", "Options"
_HELP = {
    _DATA: {
        "dataset": "digits (1,797 small images, offline) or mnist; without a file in --data.",
        "data": (
            "Your examples: .csv, .xlsx or .parquet, one a row, or .npz with arrays X and y; 70 % train, 15 % are "
            "for validation, 15 % for the test. mnist: directory of the IDX files, downloaded if absent."
        ),
        "target": (
            "Of --data: the column or array of class labels, or NAME:LOW:HIGH, numbers in a range known beforehand. "
            "Default: y of .npz."
        ),
        "columns": (
            "Of --data, a feature: NAME, or NAME:LOW:HIGH, a range known beforehand that becomes -1..1. Repeat it. "
            "Default: every column but the target, as it is."
        ),
        "features": (
            "Images: pixels, dct or scattering (which look at no data), or pca. --data: columns, or standardized. "
            "pca and standardized are fitted to the data, which no certificate covers. Default: dct, columns."
        ),
        "model": (
            "softmax (classes), linear (numbers), relu, or a Python file with model(inputs, outputs). Default: "
            "softmax, linear."
        ),
        "unit": "What is protected: a user with one example, or one record of a client with many.",
        "clients": "record: how many clients share the examples, at least 2.",
    },
    _TRAINING: {
        "private": "--no-private, with --simulate only: clipped gradients and no noise, for comparison.",
        "baseline": (
            "Train once more without noise, simulated, and draw how good it is, which nothing certifies. Default: "
            "with --simulate."
        ),
        "epochs": "At least 1. Every client answers once an epoch.",
        "batch_size": "Clients per step, each once an epoch; 0: all of them.",
        "order": "batch, or sequential: one client a step, in a secret order.",
        "clipping_norm": "Gradients that are longer are scaled down to this length, 1e-20..1e20.",
        "period_s": (
            "sequential, deployed: seconds of each client, 0.001..600; an epoch takes that long for each client."
        ),
        "learning_rate": "Above 0. Default: user 8, sequential 0.01; record 2, sequential 0.05.",
        "momentum": "What is kept of the last step, 0 <= momentum < 1; sequential, deployed: 0.",
        "averaging": (
            "Weight of the newest parameters in what is kept, above 0; 1: no average. Default: 0.3, sequential: 1."
        ),
    },
    _PRIVACY: {
        "budgets": (
            "Groups epsilon:share of the clients' local budgets per epoch; 0 < epsilon <= 20, shares are relative."
        ),
        "delta": "Of the whole training, 1e-12..0.1; record: of each local budget, too.",
        "epsilon_limit": "Stop before the training's epsilon at --delta exceeds this; 0: never.",
    },
    _OTHERS: {
        "chosen_on_users": "Say in the certificate that these options were chosen by looking at users' examples.",
        "simulate": "Without a network: the same estimators and certificates, but no user is protected.",
        "resume": "--simulate: go on from the checkpoint in --out; --dir always does.",
        "directory": "The directory of a running deployment; else one on loopback.",
        "hops": "Number of shufflers, 1..32.",
        "out": "For model.pt, training.json, training.png, checkpoint.",
        "watch": "validation, or test: what the model is measured on.",
        "seed": "simulation: of batches and noise; initial parameters always.",
        "device": "Where gradients are computed: cpu, cuda, …; auto: a GPU if any.",
    },
}
"""The help of each field of a `TrainingConfig`, by its group."""
_NAMES, _TYPES = {"columns": "--column", "directory": "--dir"}, {"columns": list[str] | None, "budgets": str}
"""The fields whose options have another name, or a type that can be typed."""


def _options() -> type[TrainingConfig]:
    """Returns a `TrainingConfig` whose fields are options of the command line."""
    types = get_type_hints(TrainingConfig) | _TYPES
    described = {name: (group, said) for group, helps in _HELP.items() for name, said in helps.items()}
    options: list[tuple[str, Any, Any]] = []
    for each in fields(TrainingConfig):
        group, said = described[each.name]
        negative = (
            f"--no-{each.name.replace('_', '-')}" if bool in {types[each.name], *get_args(types[each.name])} else ()
        )
        how = Parameter(_NAMES.get(each.name), group=group, help=said, negative=negative)
        options.append((each.name, Annotated[types[each.name], how], each.default))
    # cyclopts takes a class of the standard library for one value.
    made = make_dataclass(
        "TrainingOptions", options, bases=(TrainingConfig,), frozen=True, namespace={"__module__": __name__}
    )
    return Parameter(name="*")(made)


if TYPE_CHECKING:
    TrainingOptions = TrainingConfig
else:
    TrainingOptions = _options()


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
