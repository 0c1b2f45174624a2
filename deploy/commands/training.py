"""`croupier train`: the options, and what is done with them. Torch is imported when the command runs."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deploy.console import Json, plain_errors, show

if TYPE_CHECKING:
    import torch

    from client.gradients import FlatModel
    from deploy.training.datasets import Dataset
    from deploy.training.descent import StepRule
    from deploy.training.outcome import Outcome
    from deploy.training.privacy import UserSpending

__all__ = ["add_commands"]


def add_commands(app: typer.Typer) -> None:
    """Adds `train` and `sgd-results` to the command line."""
    app.command()(train)
    app.command("sgd-results")(sgd_results)


def sgd_results(
    data: Annotated[Path | None, typer.Option(help="Directory of MNIST's IDX files; downloaded if absent.")] = None,
    page: Annotated[Path, typer.Option(help="The page whose tables are written anew.")] = Path("docs/sgd.md"),
    out: Annotated[Path, typer.Option(help="For sgd.json.")] = Path("out"),
    epochs: Annotated[int, typer.Option(help="Fewer than the settings have, for a look.")] = 0,
    as_json: Json = False,
) -> None:
    """Repeat every row of docs/sgd.md: the paper's experiment, and 60,000 users with certified central epsilon."""
    with plain_errors():
        from rich.console import Console

        from deploy.training.results import write_page

        say = Console(stderr=True)
        outcomes = write_page(page, out, data, lambda line: say.print(line, highlight=False), epochs)
        show(as_json, {"rows": [one.document() for one in outcomes]}, f"{page}, {out / 'sgd.json'}")


def train(
    dataset: Annotated[str, typer.Option(help="digits (offline) or mnist.")] = "digits",
    data: Annotated[Path | None, typer.Option(help="mnist: directory of the IDX files; downloaded if absent.")] = None,
    features: Annotated[str, typer.Option(help="pixels, dct (public) or pca (fitted, not accounted).")] = "dct",
    model: Annotated[
        str, typer.Option(help="softmax, relu, or a Python file with model(inputs, classes).")
    ] = "softmax",
    budgets: Annotated[str, typer.Option(help="Groups epsilon:share of the users' local budgets per epoch.")] = "2:1",
    private: Annotated[bool, typer.Option(help="Without: clipped gradients and no noise, for comparison.")] = True,
    epochs: Annotated[int, typer.Option(help="Every user answers once an epoch.")] = 20,
    batch_size: Annotated[int, typer.Option(help="Users per step, each once an epoch; 0: all of them.")] = 0,
    order: Annotated[str, typer.Option(help="batch, or sequential: one user a step, in a secret order.")] = "batch",
    clipping_norm: Annotated[float, typer.Option(help="Every gradient is scaled down to this length.")] = 1.0,
    learning_rate: Annotated[float, typer.Option()] = 8.0,
    momentum: Annotated[float, typer.Option()] = 0.0,
    averaging: Annotated[
        float, typer.Option(help="Weight of the newest parameters in what is kept; 1: no average.")
    ] = 0.3,
    delta: Annotated[float, typer.Option(help="Of the whole training.")] = 1e-5,
    epsilon_limit: Annotated[
        float, typer.Option(help="Stop before the certified epsilon exceeds this; 0: never.")
    ] = 0.0,
    simulate: Annotated[bool, typer.Option(help="Without a network: the same estimators and certificates.")] = False,
    directory: Annotated[Path | None, typer.Option("--dir", help="A running deployment; else one on loopback.")] = None,
    hops: Annotated[int, typer.Option(help="Shufflers of the deployment on loopback.")] = 2,
    out: Annotated[Path, typer.Option(help="For model.pt, training.json, training.png, checkpoint.")] = Path(
        "out/train"
    ),
    watch: Annotated[str, typer.Option(help="validation, or test: what accuracy is measured on.")] = "validation",
    seed: Annotated[int, typer.Option(help="simulation: of batches and noise; initial parameters always.")] = 0,
    device: Annotated[str, typer.Option(help="Where gradients are computed: cpu, cuda, …")] = "cpu",
    as_json: Json = False,
) -> None:
    """Train a model on shuffled, locally randomized gradients; show accuracy and certified epsilon epoch by epoch."""
    with plain_errors():
        import torch
        from rich.console import Console

        from deploy.training.datasets import load_dataset, with_features
        from deploy.training.descent import StepRule
        from deploy.training.models import load_model
        from deploy.training.outcome import Outcome
        from deploy.training.privacy import UserSpending

        _check_device(device)
        if watch not in ("validation", "test"):
            raise ValueError(f"watch is {watch!r}; allowed are validation and test")
        if order not in ("batch", "sequential"):
            raise ValueError(f"order is {order!r}; allowed are batch and sequential")
        if order == "sequential" and (batch_size or not simulate):
            raise ValueError("order is 'sequential'; that has no batch_size, and there is only --simulate for it")
        if epochs < 1:
            raise ValueError(f"epochs is {epochs}; allowed is at least 1")
        say = Console(stderr=True)
        examples = with_features(load_dataset(dataset, data), features)
        inputs, count = examples.train.features.shape[1], len(examples.train)
        flat = load_model(model, inputs, examples.classes, seed, device)
        wishes = _wishes(budgets, count) if private else None
        rule = StepRule(learning_rate, momentum, averaging=averaging)
        title = f"{dataset}, {Path(model).stem}, {f'budgets {budgets}' if private else 'no noise'}"
        setting = {
            "dataset": dataset,
            "features": features,
            "model": model,
            "dimension": flat.dimension,
            "users": count,
            "budgets": budgets if private else None,
            "clipping_norm": clipping_norm,
            "learning_rate": learning_rate,
            "momentum": momentum,
            "averaging": averaging,
            "order": order,
            "batch_size": 1 if order == "sequential" else batch_size or count,
            "watched": watch,
            "mode": "simulation" if simulate else "deployed",
        }
        outcome = Outcome(title, setting)
        spending = None
        if wishes is not None:
            say.print(f"certifying one epoch of {count} users, d = {flat.dimension} …")
            # In a secret order every user of the epoch hides every other (docs/accounting.md, 2.1): one batch of all.
            spending = UserSpending(_batches(wishes, batch_size or count), flat.dimension, delta)
            epochs = _within(spending, epsilon_limit, epochs, outcome)
        run = _Run(
            examples, flat, Path(model).stem, wishes, clipping_norm, rule, epochs, watch, spending, outcome, say.print
        )
        if simulate:
            parameters = _simulate(run, 1 if order == "sequential" else batch_size, seed)
        else:
            if wishes is None:
                raise ValueError("a deployed run has noise; without it there is only --simulate")
            parameters = _deploy(run, directory, hops, out, delta, epsilon_limit, batch_size)
        outcome.save(out, parameters)
        torch.set_grad_enabled(True)
        stopped = [outcome.stopped] if outcome.stopped else []
        show(as_json, outcome.document(), outcome.table(), *stopped, f"{out / 'training.png'}, {out / 'model.pt'}")


class _Run:
    """What both modes need."""

    def __init__(
        self,
        examples: Dataset,
        model: FlatModel,
        name: str,
        wishes: torch.Tensor | None,
        clipping_norm: float,
        rule: StepRule,
        epochs: int,
        watched: str,
        spending: UserSpending | None,
        outcome: Outcome,
        say: Any,
    ) -> None:
        self.examples, self.model, self.name, self.wishes = examples, model, name, wishes
        self.clipping_norm, self.rule, self.epochs, self.watched = clipping_norm, rule, epochs, watched
        self.spending, self.outcome, self.say = spending, outcome, say

    def note(self, epoch: int, steps: int, parameters: torch.Tensor) -> None:
        """Evaluates, and shows a line about the epoch."""
        from deploy.training.descent import evaluate
        from deploy.training.outcome import EpochRecord

        loss, accuracy = evaluate(self.model, parameters, getattr(self.examples, self.watched))
        spent = None if self.spending is None else self.spending.after(epoch)
        self.outcome.add(EpochRecord(epoch, steps, loss, accuracy), spent)
        self.say(self.outcome.line(), highlight=False)


def _check_device(device: str) -> None:
    import torch

    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device is {device!r}, which is not here: {error}") from error


def _wishes(budgets: str, count: int) -> torch.Tensor:
    """Returns the users' local budgets, float64 (n,): the groups in proportion, in an order without meaning."""
    import torch

    from deploy.people import parse_wishes

    groups = parse_wishes(budgets)
    for group in groups:
        if not 0 < group.epsilon <= 20 or group.share <= 0:
            raise ValueError(f"budgets has the group {group.epsilon:g}:{group.share:g}; allowed is 0 < epsilon ≤ 20")
    total, wishes, done = sum(group.share for group in groups), torch.empty(count, dtype=torch.float64), 0
    for index, group in enumerate(groups):
        share = sum(one.share for one in groups[: index + 1]) / total
        end = round(share * count)
        wishes[done:end] = group.epsilon
        done = end
    return wishes[torch.randperm(count, generator=torch.Generator().manual_seed(1))]


def _batches(wishes: torch.Tensor, size: int) -> list[Any]:
    """Returns the budgets of every batch that an epoch may have: all users, or the worst case of a random batch."""
    import torch

    from accountant.budgets import Budgets

    if size < len(wishes):
        values = torch.unique(wishes)
        if len(values) > 1:
            raise ValueError(f"batch_size is {size} with {len(values)} different budgets; allowed is one budget, or 0")
        batches = -(-len(wishes) // size)
        sizes = {len(wishes) // batches, -(-len(wishes) // batches)}
        return [Budgets.from_tiers([(float(values[0]), one)]) for one in sizes]
    values, counts = torch.unique(wishes, return_counts=True)
    return [Budgets.from_tiers(list(zip(values.tolist(), counts.tolist(), strict=True)))]


def _within(spending: UserSpending, limit: float, epochs: int, outcome: Outcome) -> int:
    if not limit:
        return epochs
    allowed = spending.epochs_within(limit, epochs)
    if not allowed:
        first = spending.after(1).epsilon
        raise ValueError(f"epsilon_limit is {limit:g}; one epoch costs {first:.4g} already, so nothing can be trained")
    if allowed < epochs:
        following = spending.after(allowed + 1).epsilon
        outcome.stopped = (
            f"stopped after {allowed} epochs: the next one would cost {following:.4g}, allowed is {limit:g}"
        )
    return allowed


def _simulate(run: _Run, batch_size: int, seed: int) -> torch.Tensor:
    from deploy.training.simulation import user_epochs

    done = run.model.initial
    for record, descent in user_epochs(
        run.model,
        run.examples,
        run.wishes,
        run.clipping_norm,
        run.rule,
        run.epochs,
        batch_size=batch_size,
        seed=seed,
    ):
        run.note(record, descent.steps, descent.average)
        done = descent.average
    return done


def _deploy(
    run: _Run, directory: Path | None, hops: int, out: Path, delta: float, epsilon_limit: float, batch_size: int
) -> torch.Tensor:
    """Runs every step as a round, on a running deployment or on one of its own."""
    from deploy.keygen import DEPLOYMENT_FILE, write_deployment
    from deploy.local import LocalDeployment
    from protocol.deployment import PrivacyLimit

    if directory is not None:
        return asyncio.run(_steps(run, directory, out, delta, batch_size))
    with tempfile.TemporaryDirectory(prefix="croupier-") as scratch:
        local = LocalDeployment(Path(scratch) / "deployment", hops)
        if epsilon_limit:
            limit = PrivacyLimit(total_epsilon=epsilon_limit, total_delta=delta)
            limited = local.deployment.model_copy(update={"privacy_limit": limit})
            write_deployment(local.directory / DEPLOYMENT_FILE, limited)
        run.say(f"starting {hops} shufflers, the accountant and the analyzer, each in its own process, over TLS …")
        try:
            local.up()
            return asyncio.run(_steps(run, local.directory, out, delta, batch_size))
        finally:
            local.down()


async def _steps(run: _Run, directory: Path, out: Path, delta: float, batch_size: int) -> torch.Tensor:
    import torch

    from deploy.operator import RoundSettings
    from deploy.training.deployed import DeployedRun, NotGrantedError
    from protocol.questions import Question
    from protocol.workers import WorkerPool

    wishes = run.wishes if run.wishes is not None else torch.empty(0)
    grid = tuple(torch.unique(wishes).tolist())

    def settings(question: Question) -> RoundSettings:
        return RoundSettings(
            question, grid, delta=delta, epsilon_max=20.0, min_batch_size=max(2, (batch_size or len(wishes)) // 2)
        )

    pool = WorkerPool()
    await pool.warm()
    deployed = DeployedRun(
        directory,
        out,
        run.model,
        run.name,
        run.examples.train,
        wishes,
        run.clipping_norm,
        run.rule,
        settings,
        pool,
        batch_size,
    )
    done = run.model.initial
    try:
        async for report in deployed.steps(run.epochs * deployed.steps_per_epoch):
            done = report.descent.average
            if report.step % deployed.steps_per_epoch == 0:
                run.note(report.step // deployed.steps_per_epoch, report.step, done)
    except NotGrantedError as error:
        run.outcome.stopped = f"the accountant refused the next step: {error}"
        if not run.outcome.records:
            raise ValueError(run.outcome.stopped) from error
    finally:
        pool.close()
    return done
