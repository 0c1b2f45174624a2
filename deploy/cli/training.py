"""`croupier train`: the options, and what is done with them. Torch is imported when the command runs."""

from __future__ import annotations

import asyncio
import hashlib
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deploy.cli.console import Json, plain_errors, show

if TYPE_CHECKING:
    import torch

    from client.gradients import FlatModel
    from deploy.training.datasets import Dataset, Examples
    from deploy.training.deployed import Silos
    from deploy.training.descent import StepRule
    from deploy.training.outcome import EpochRecord, Outcome
    from deploy.training.privacy import Batch, Spending, TrainingCost

__all__ = ["add_commands"]


_RATES = {
    ("user", "batch"): 8.0,
    ("user", "sequential"): 0.01,
    ("record", "batch"): 2.0,
    ("record", "sequential"): 0.05,
}


def add_commands(app: typer.Typer) -> None:
    """Adds `train`, `sgd-results` and `bench-training` to the command line."""
    app.command()(train)
    app.command("sgd-results")(sgd_results)
    app.command("bench-training")(bench_training)


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

        from deploy.training.datasets import load_dataset
        from deploy.training.results import write_page

        say, dataset = Console(stderr=True, markup=False), load_dataset("mnist", data)
        outcomes = write_page(page, out, dataset, lambda line: say.print(line, highlight=False), epochs)
        show(as_json, {"rows": [one.document() for one in outcomes]}, f"{page}, {out / 'sgd.json'}")


def bench_training(
    epochs: Annotated[int, typer.Option(help="Measured through the deployment; ten times as many simulated.")] = 5,
    hops: Annotated[int, typer.Option(help="Shufflers of the deployment on loopback.")] = 2,
    as_json: Json = False,
) -> None:
    """Measure an epoch of the digits through a deployment on loopback, and the same epoch simulated."""
    with plain_errors():
        from rich.console import Console

        from deploy.bench.training import bench
        from deploy.local.processes import LocalDeployment

        if epochs < 1:
            raise ValueError(f"epochs is {epochs}; allowed is at least 1")
        say = Console(stderr=True, markup=False)
        with tempfile.TemporaryDirectory(prefix="croupier-") as scratch:
            local = LocalDeployment(Path(scratch) / "deployment", hops)
            try:
                local.up()
                found = asyncio.run(
                    bench(local.directory, Path(scratch) / "training", epochs, lambda line: say.print(line))
                )
            finally:
                local.down()
        show(
            as_json,
            found,
            f"{found['users']} users, d = {found['dimension']}: an epoch takes {found['deployed_s_per_epoch']:.2f} s "
            f"deployed and {found['simulated_s_per_epoch']:.4f} s simulated, {found['ratio']:.0f} times faster",
        )


def train(
    dataset: Annotated[str, typer.Option(help="digits (1,797 small images, offline) or mnist.")] = "digits",
    data: Annotated[Path | None, typer.Option(help="mnist: directory of the IDX files; downloaded if absent.")] = None,
    features: Annotated[
        str,
        typer.Option(
            help="pixels, dct (looks at no data), or pca (fitted to the data, which no certificate covers: HEURISTIC)."
        ),
    ] = "dct",
    model: Annotated[
        str, typer.Option(help="softmax, relu, or a Python file with model(inputs, classes).")
    ] = "softmax",
    unit: Annotated[
        str, typer.Option(help="What is protected: user (who has one example), or record (of a client with many).")
    ] = "user",
    clients: Annotated[int, typer.Option(help="record: how many clients share the examples, at least 2.")] = 100,
    budgets: Annotated[
        str,
        typer.Option(
            help="Groups epsilon:share of the clients' local budgets per epoch; 0 < epsilon ≤ 20, shares are relative."
        ),
    ] = "2:1",
    private: Annotated[
        bool, typer.Option(help="--no-private, with --simulate only: clipped gradients and no noise, for comparison.")
    ] = True,
    epochs: Annotated[int, typer.Option(help="At least 1. Every client answers once an epoch.")] = 20,
    batch_size: Annotated[int, typer.Option(help="Clients per step, each once an epoch; 0: all of them.")] = 0,
    order: Annotated[str, typer.Option(help="batch, or sequential: one client a step, in a secret order.")] = "batch",
    clipping_norm: Annotated[
        float, typer.Option(help="Gradients that are longer are scaled down to this length, 1e-20..1e20.")
    ] = 1.0,
    turn_s: Annotated[
        float,
        typer.Option(help="sequential, deployed: seconds of each client, 0.001..600; an epoch takes as many for each."),
    ] = 0.1,
    learning_rate: Annotated[
        float | None, typer.Option(help="Above 0. Default: user 8, sequential 0.01; record 2, sequential 0.05.")
    ] = None,
    momentum: Annotated[
        float, typer.Option(help="What is kept of the last step, 0 ≤ momentum < 1; sequential, deployed: 0.")
    ] = 0.0,
    averaging: Annotated[
        float | None,
        typer.Option(
            help="Weight of the newest parameters in what is kept, above 0; 1: no average. Default: 0.3, sequential: 1."
        ),
    ] = None,
    delta: Annotated[
        float, typer.Option(help="Of the whole training, 1e-12..0.1; record: of each local budget, too.")
    ] = 1e-5,
    epsilon_limit: Annotated[
        float, typer.Option(help="Stop before the training's epsilon at --delta exceeds this; 0: never.")
    ] = 0.0,
    simulate: Annotated[
        bool, typer.Option(help="Without a network: the same estimators and certificates; protects nobody.")
    ] = False,
    directory: Annotated[
        Path | None, typer.Option("--dir", help="The directory of a running deployment; else one on loopback.")
    ] = None,
    hops: Annotated[int, typer.Option(help="Shufflers of the deployment on loopback.")] = 2,
    out: Annotated[Path, typer.Option(help="For model.pt, training.json, training.png, checkpoint.")] = Path(
        "out/train"
    ),
    watch: Annotated[str, typer.Option(help="validation, or test: what accuracy is measured on.")] = "validation",
    seed: Annotated[int, typer.Option(help="simulation: of batches and noise; initial parameters always.")] = 0,
    device: Annotated[
        str, typer.Option(help="Where gradients are computed: cpu, cuda, …; auto: a GPU if any.")
    ] = "auto",
    as_json: Json = False,
) -> None:
    """Train a model on shuffled, locally randomized gradients, with all clients played here; show what it costs."""
    with plain_errors():
        from rich.console import Console

        from deploy.training.datasets import load_dataset, with_features
        from deploy.training.deployed import Silos
        from deploy.training.descent import StepRule
        from deploy.training.models import load_model
        from deploy.training.outcome import Outcome
        from deploy.training.privacy import Conditions, SiloSpending, UserSpending
        from deploy.training.simulation import shares_of

        device = _device(device)
        if watch not in ("validation", "test"):
            raise ValueError(f"watch is {watch!r}; allowed are validation and test")
        if unit not in ("user", "record"):
            raise ValueError(f"unit is {unit!r}; allowed are user and record")
        if order not in ("batch", "sequential"):
            raise ValueError(f"order is {order!r}; allowed are batch and sequential")
        sequential = order == "sequential"
        if sequential and batch_size:
            raise ValueError(f"batch_size is {batch_size}; order sequential has none: one user answers a step")
        if not 0.001 <= turn_s <= 600:
            raise ValueError(f"turn_s is {turn_s:g}; allowed are 0.001..600 seconds")
        if learning_rate is None:
            learning_rate = _RATES[unit, order]
        if averaging is None:
            averaging = 1.0 if sequential else 0.3
        if epochs < 1:
            raise ValueError(f"epochs is {epochs}; allowed is at least 1")
        if batch_size < 0:
            raise ValueError(f"batch_size is {batch_size}; allowed is at least 1, or 0 for all clients")
        if not 1e-20 <= clipping_norm <= 1e20:
            raise ValueError(f"clipping_norm is {clipping_norm:g}; allowed are 1e-20..1e20")
        if not 1e-12 <= delta <= 0.1:
            raise ValueError(f"delta is {delta:g}; allowed are 1e-12..0.1")
        if not 0 <= epsilon_limit < math.inf:
            raise ValueError(
                f"epsilon_limit is {epsilon_limit:g}; allowed are finite numbers above 0, or 0 for no limit"
            )
        if simulate and directory is not None:
            raise ValueError(f"dir is {directory}, but a simulation uses no deployment; allowed is --dir or --simulate")
        if unit == "record" and clients < 2:
            raise ValueError(f"clients is {clients}; allowed is at least 2")
        if not (simulate or private):
            raise ValueError("a deployed run has noise; without it there is only --simulate")
        say = Console(stderr=True, markup=False)
        raw = load_dataset(dataset, data)
        examples = with_features(raw, features)
        inputs = examples.train.features.shape[1]
        silos = Silos(shares_of(len(examples.train), clients), delta) if unit == "record" else None
        count = len(examples.train) if silos is None else clients
        flat = load_model(model, inputs, examples.classes, seed, device)
        wishes = _wishes(budgets, count) if private else None
        rule = StepRule(learning_rate, momentum, averaging=averaging)
        title = f"{dataset}, {Path(model).stem}, {f'budgets {budgets}' if private else 'no noise'}"
        # Everything that may not change between two runs of one training.
        setting = {
            "dataset": dataset,
            "examples_sha256": _digest(raw.train),
            "features": features,
            "model": model,
            "model_sha256": hashlib.sha256(Path(model).read_bytes()).hexdigest() if model.endswith(".py") else None,
            "dimension": flat.dimension,
            "unit": unit,
            "users": count,
            "budgets": budgets if private else None,
            "delta": delta,
            "clipping_norm": clipping_norm,
            "learning_rate": learning_rate,
            "momentum": momentum,
            "averaging": averaging,
            "order": order,
            "turn_s": turn_s if sequential and not simulate else None,
            "batch_size": 1 if sequential else batch_size or count,
            "seed": seed,
            "watched": watch,
            "mode": "simulation" if simulate else "deployed",
        }
        run = _Run(
            examples=examples,
            model=flat,
            name=Path(model).stem,
            wishes=wishes,
            silos=silos,
            clipping_norm=clipping_norm,
            rule=rule,
            epochs=epochs,
            batch_size=batch_size,
            sequential=sequential,
            turn_s=turn_s,
            seed=seed,
            watched=watch,
            epsilon_limit=epsilon_limit,
            outcome=Outcome(title, setting),
            say=say.print,
        )
        if wishes is not None:
            conditions = Conditions(features, model.endswith(".py"), sequential, simulate)
            say.print(f"planning for {count} clients who all answer, d = {flat.dimension} …")
            cost: TrainingCost = UserSpending(flat.dimension, delta, conditions)
            if silos is not None:
                cost = SiloSpending([(wish, delta) for wish in wishes.tolist()], delta, conditions)
            run.plan(cost, _batches(wishes, batch_size or count))
        parameters = _simulate(run) if simulate else _deploy(run, directory, hops, out)
        run.outcome.save(out, parameters)
        stopped = [run.outcome.stopped] if run.outcome.stopped else []
        below = [*stopped, run.outcome.basis(), f"{out / 'training.png'}, {out / 'model.pt'}"]
        show(as_json, run.outcome.document(), run.outcome.table(), *(line for line in below if line))


@dataclass
class _Run:
    """What both modes need. wishes: None for no noise; then there is no spending."""

    examples: Dataset
    model: FlatModel
    name: str
    wishes: torch.Tensor | None
    silos: Silos | None
    clipping_norm: float
    rule: StepRule
    epochs: int
    batch_size: int
    sequential: bool
    turn_s: float
    seed: int
    watched: str
    epsilon_limit: float
    outcome: Outcome
    say: Any
    spending: TrainingCost | None = None
    planned_epoch: tuple[Batch, ...] = ()

    def plan(self, spending: TrainingCost, epoch: Sequence[Batch]) -> None:
        """Takes only as many epochs as the limit would allow if everybody answers.

        Raises:
            ValueError: the limit allows not even one.
        """
        self.spending, self.planned_epoch = spending, tuple(epoch)
        limit = self.epsilon_limit
        if not limit:
            return
        allowed = spending.epochs_within(epoch, limit, self.epochs)
        if not allowed:
            first = spending.after([epoch])
            raise ValueError(
                f"epsilon_limit is {limit:g}; one epoch costs {first.epsilon:.4g} ({first.grade} at δ {first.delta:g}) "
                "already, so nothing can be trained"
            )
        if allowed < self.epochs:
            self.stop_after(allowed, spending.after([epoch] * (allowed + 1)).epsilon, "planned for everyone answering")
            self.epochs = allowed

    def stop_after(self, epoch: int, following: float, basis: str) -> None:
        """Says why there is no further epoch."""
        from deploy.render import counted

        self.outcome.stopped = (
            f"stopped after {counted(epoch, 'epoch')}: with the next one the training would cost {following:.4g} "
            f"({basis}), allowed is {self.epsilon_limit:g}"
        )

    def watch(self) -> Examples:
        """Returns the examples that loss and accuracy are measured on."""
        examples: Examples = getattr(self.examples, self.watched)
        return examples

    def note(self, record: EpochRecord, spent: Spending | None) -> None:
        """Keeps an epoch, and shows a line about it; before the first one, what the number in the line rests on."""
        if self.spending is not None and not self.outcome.records:
            order = self.spending.conditions.order.partition(":")[0]
            basis = f"one user, {order}" if self.silos is None else "one RECORD of one client, no shuffler is trusted"
            self.say(f"each ε: for {basis};\nall assumptions stand at the end", highlight=False)
        self.outcome.add(record, spent)
        if len(self.outcome.records) == 1:
            self.say(self.outcome.heading(), highlight=False)
        self.say(self.outcome.line(), highlight=False)


def _digest(examples: Examples) -> str:
    digest = hashlib.sha256()
    for one in (examples.features, examples.targets):
        digest.update(one.contiguous().numpy().data)
    return digest.hexdigest()


def _device(device: str) -> str:
    """Returns the name of the device to use; auto is the GPU where there is one.

    Raises:
        ValueError: it is not here.
    """
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device is {device!r}, which is not here: {error}") from error
    return device


def _wishes(budgets: str, count: int) -> torch.Tensor:
    """Returns the users' local budgets, float64 (n,): the groups in proportion, in an order without meaning."""
    import torch

    from deploy.local.people import parse_wishes

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


def _batches(wishes: torch.Tensor, size: int) -> tuple[Batch, ...]:
    """Returns every batch that an epoch may have if all answer: all users, or the worst case of a random batch."""
    import torch

    from deploy.training.privacy import Batch

    values, counts = torch.unique(wishes, return_counts=True)
    if size >= len(wishes):
        return (Batch(tuple(zip(values.tolist(), counts.tolist(), strict=True))),)
    if len(values) > 1:
        raise ValueError(f"batch_size is {size} with {len(values)} different budgets; allowed is one budget, or 0")
    batches = -(-len(wishes) // size)
    sizes = {len(wishes) // batches, -(-len(wishes) // batches)}
    return tuple(Batch(((float(values[0]), one),)) for one in sorted(sizes))


def _sigmas(run: _Run) -> list[float]:
    """Returns the noise of each silo, as in a deployed run."""
    from deploy.training.privacy import SiloSpending

    if run.silos is None or not isinstance(run.spending, SiloSpending) or run.wishes is None:
        return [0.0] * (len(run.silos.shares) if run.silos else 0)
    sensitivity = 2 * run.clipping_norm / run.silos.records
    return [sensitivity * run.spending.noise(wish, run.silos.local_delta) for wish in run.wishes.tolist()]


def _simulate(run: _Run) -> torch.Tensor:
    from deploy.training.descent import evaluate
    from deploy.training.outcome import EpochRecord
    from deploy.training.simulation import silo_epochs, user_epochs

    done = run.model.initial
    if run.silos is None:
        steps = user_epochs(
            run.model,
            run.examples,
            run.wishes,
            run.clipping_norm,
            run.rule,
            run.epochs,
            batch_size=run.batch_size,
            sequential=run.sequential,
            seed=run.seed,
        )
    else:
        steps = silo_epochs(
            run.model,
            run.examples,
            _sigmas(run),
            run.clipping_norm,
            run.rule,
            run.epochs,
            sequential=run.sequential,
            seed=run.seed,
        )
    for epoch, descent in steps:
        done = descent.average
        record = EpochRecord(epoch, descent.steps, *evaluate(run.model, done, run.watch()))
        run.note(record, None if run.spending is None else run.spending.after([run.planned_epoch] * epoch))
    return done


def _deploy(run: _Run, directory: Path | None, hops: int, out: Path) -> torch.Tensor:
    """Runs every step as a round, on a running deployment or on one of its own, which ends with the run.

    The checkpoint lives as long as the deployment: beside the results, or in the directory that is deleted.
    """
    from deploy.local.processes import LocalDeployment
    from deploy.operator.keys import DEPLOYMENT_FILE, write_deployment
    from protocol.deployment import PrivacyLimit

    if directory is not None:
        return asyncio.run(_steps(run, directory, out))
    with tempfile.TemporaryDirectory(prefix="croupier-") as scratch:
        local = LocalDeployment(Path(scratch) / "deployment", hops)
        if run.epsilon_limit and run.spending is not None:
            limit = PrivacyLimit(total_epsilon=run.epsilon_limit, total_delta=run.spending.delta)
            limited = local.deployment.model_copy(update={"privacy_limit": limit})
            write_deployment(local.directory / DEPLOYMENT_FILE, limited)
        run.say(f"starting {hops} shufflers, the accountant and the analyzer, each in its own process, over TLS …")
        try:
            local.up()
            return asyncio.run(_steps(run, local.directory, Path(scratch) / "training"))
        finally:
            local.down()


async def _steps(run: _Run, directory: Path, state: Path) -> torch.Tensor:
    """Takes the epochs that are left. What they have cost is composed from the certificates of their rounds."""
    import torch

    from deploy.operator.rounds import RoundSettings
    from deploy.training.deployed import DeployedRun, NotGrantedError, TurnsRun
    from protocol.questions import Question
    from runtime.workers import WorkerPool

    if run.wishes is None or run.spending is None:
        raise ValueError("a deployed run has noise; without it there is only --simulate")
    grid, spending, count = tuple(torch.unique(run.wishes).tolist()), run.spending, len(run.wishes)

    def settings(question: Question) -> RoundSettings:
        return RoundSettings(
            question,
            grid,
            delta=spending.delta,
            epsilon_max=20.0,
            # In turns the round is granted for the fewest who may answer, so few may be missing.
            min_batch_size=max(2, count * 9 // 10 if run.sequential else (run.batch_size or count) // 2),
        )

    pool = WorkerPool()
    in_turns = partial(TurnsRun, period_ms=round(1000 * run.turn_s))
    deployed = (in_turns if run.sequential else DeployedRun)(
        directory=directory,
        out=state,
        model=run.model,
        name=run.name,
        examples=run.examples.train,
        silos=run.silos,
        watched=run.watch(),
        wishes=run.wishes,
        clipping_norm=run.clipping_norm,
        rule=run.rule,
        settings=settings,
        pool=pool,
        setting=run.outcome.setting,
        batch_size=run.batch_size,
    )
    steps = deployed.steps_per_epoch
    progress = deployed.resume()

    def spent(epoch: int | None = None) -> Spending:
        return spending.after(progress.epochs(steps)[:epoch], progress.unreleased(steps))

    for record in progress.history:
        run.note(record, spent(record.epoch))

    def another() -> bool:
        """Whether there is an epoch to train, and one more like the last one would keep the limit."""
        done = progress.epochs(steps)
        if len(progress.history) >= run.epochs:
            return False
        if not (run.epsilon_limit and progress.history):
            return True
        following = spending.after([*done, run.planned_epoch]).epsilon
        following = max(following, spending.after([*done, done[-1]]).epsilon)
        if following > run.epsilon_limit:
            run.stop_after(len(progress.history), following, "if as many answer as in the last one")
        return following <= run.epsilon_limit

    try:
        if another():
            await pool.warm()
        while another():
            async for _ in deployed.steps(progress, (len(progress.history) + 1) * steps):
                pass
            run.note(progress.history[-1], spent())
            newest = progress.epochs(steps)[-1]
            missing = count - sum(number for batch in newest for _, number in batch.tiers)
            missing += sum(batch.dishonest for batch in newest)
            if missing:
                run.say(f"{missing} of {count} clients have not answered, or count as if they had not", highlight=False)
            for user, why in list(deployed.without_gradient.items())[:3]:
                run.say(f"client {user} had no gradient: {why}", highlight=False)
    except NotGrantedError as error:
        run.outcome.stopped = f"the accountant refused the next step: {error}"
        if not progress.answered:
            raise ValueError(run.outcome.stopped) from error
        run.outcome.end(deployed.record(progress), spent())
    finally:
        pool.close()
    return progress.descent.average
