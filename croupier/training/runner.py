"""Runs a training: one that a `TrainingConfig` names, for the command, or a program's own module and data.

    outcome = run_training(TrainingConfig(epochs=2, simulate=True))
    outcome.records[-1].accuracy, outcome.spending[-1].epsilon

    outcome = train(module, examples, held_out, TrainingSettings(epochs=2, simulate=True))
    module.load_state_dict(outcome.state_dict)

What an epoch does is left to `simulation` and `deployed`, what it costs to `privacy`. Here they are put together, and
the training is ended before it costs more than it may.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from croupier.client.gradients import Loss
from croupier.deploy.local.budget_groups import BudgetGroup, parse_budget_groups
from croupier.deploy.local.processes import temporary_deployment
from croupier.operator.round_settings import RoundSettings
from croupier.protocol.deployment import PrivacyLimit
from croupier.protocol.names import JsonObject
from croupier.protocol.questions import Question
from croupier.protocol.rounding import round_up
from croupier.runtime.workers import WorkerPool
from croupier.show.text import counted
from croupier.training.checkpoint import Checkpoint
from croupier.training.config import NUMBER_LEARNING_RATES, TrainingConfig, TrainingSettings
from croupier.training.datasets import Examples
from croupier.training.deployed import DeployedRun, NotGrantedError, Progress, SequentialRun, Silos
from croupier.training.descent import Descent, OptimizerFactory, ScheduleFactory, TorchDescent, evaluate
from croupier.training.outcome import EpochRecord, NoiseComparison, TrainingOutcome
from croupier.training.privacy import Batch, Conditions, SiloSpending, Spending, TrainingCost, UserSpending
from croupier.training.simulation import SimulatedTraining, shares_of, silo_epochs, user_epochs
from croupier.training.subject import Subject, subject_of_config, subject_of_module

_MOST_FORECAST_EPOCHS = 100_000


@dataclass(frozen=True)
class Reports:
    """Whom a training tells of its progress.

    Attributes:
        progress: called after every epoch with the outcome so far, first with the epochs of the checkpoint.
        within: in a deployment, called with how many clients have answered in this epoch, and how many there are.
        note: called with a sentence about what is done next, or what went wrong and did not stop the training.
    """

    progress: Callable[[TrainingOutcome], None] = lambda outcome: None
    within: Callable[[int, int], None] = lambda done, clients: None
    note: Callable[[str], None] = lambda line: None


def run_training(config: TrainingConfig, reports: Reports = Reports()) -> TrainingOutcome:
    """Trains what a configuration names, and leaves model, history and plot in `config.out`.

    A deployed training that was killed goes on from its checkpoint, where its deployment still runs. An event loop is
    started for it: call this from a thread of its own in a program that has one.

    Args:
        config: what to do.
        reports: whom to tell of it.

    Raises:
        ValueError: data, model, device or checkpoint cannot be used; or the limit does not allow one epoch.
        Refusal: a service refused a round.
        RuntimeError: the deployment on loopback did not start.
    """
    return _Training(subject_of_config(config, reports.note), config, reports).run()


def train(
    module: torch.nn.Module,
    examples: torch.utils.data.Dataset[Any],
    watched: torch.utils.data.Dataset[Any],
    settings: TrainingSettings,
    *,
    loss: Loss | None = None,
    optimizer: OptimizerFactory | None = None,
    schedule: ScheduleFactory | None = None,
    features: str = "given",
    reports: Reports = Reports(),
) -> TrainingOutcome:
    """Trains a module on the gradients of clients who hold the examples; all clients are played here.

    Every epoch each client answers once: with the gradient at the current parameters on their own example (or, unit
    record, examples), clipped and randomized. As `run_training`, in a simulation or through a deployment. The module
    itself is not changed: `module.load_state_dict(outcome.state_dict)` takes the result.

    Args:
        module: any whose loss on one example has a gradient: outputs (m, classes) for features (m, ...), or (m, 1) for
            targets that are numbers. Layers that mix examples, such as batch norm, are refused. Parameters without
            requires_grad stay as they are.
        examples: of the clients: (features, class number) each, or (features, number), best taken to -1..1.
        watched: examples that the model is measured on after each epoch. They are not protected.
        settings: budgets, epochs, clipping norm, where it runs, and the rest.
        loss: (outputs (1, classes), targets (1,)) -> a scalar. None: the cross-entropy, or `squared_error` for numbers.
        optimizer: called with the parameters, returns torch's optimizer, such as
            functools.partial(torch.optim.Adam, lr=0.01); None: the plain steps that the settings describe. What is kept
            is an exponential average of the parameters after its steps, unless `averaging` is 1.
        schedule: called with the optimizer, returns a schedule of torch.optim.lr_scheduler; it moves on after each
            step.
        features: what prepared the examples, in a few words, if that looked at no private data; `fitted by the caller`
            if it did, for example by standardizing them: then every epsilon is HEURISTIC.
        reports: whom to tell of it.

    Raises:
        ValueError: module, data, optimizer, settings or checkpoint cannot be used; or the limit does not allow one
            epoch.
        Refusal: a service refused a round.
        RuntimeError: the deployment on loopback did not start.
    """
    subject = subject_of_module(module, loss, examples, watched, settings, features)
    return _Training(replace(subject, optimizer=optimizer, schedule=schedule), settings, reports).run()


class _Training:
    """One training under way: what both modes need, and the epochs of each."""

    def __init__(self, subject: Subject, settings: TrainingSettings, reports: Reports) -> None:
        if settings.learning_rate is None and subject.optimizer is None and not subject.train.has_classes:
            settings = replace(settings, learning_rate=NUMBER_LEARNING_RATES[settings.unit, settings.order])
        self._subject, self._config, self._reports = subject, settings, reports
        self._answered = 0
        self._model = subject.model
        config, examples = settings, len(subject.train)
        self._silos = Silos(shares_of(examples, config.clients), config.delta) if config.unit == "record" else None
        self._count = examples if self._silos is None else config.clients
        self._epochs = config.epochs
        self._budgets = _assign(config.budgets, self._count) if config.private else None
        self._cost: TrainingCost | None = None
        self._epoch: tuple[Batch, ...] = ()
        self._sigmas = [0.0] * self._count
        descent = subject.descent(config)
        about = descent.about if isinstance(descent, TorchDescent) else None
        words = config.budgets_in_words if config.private else "no noise"
        self.outcome = TrainingOutcome(f"{subject.title}, {words}", self._setting(about))
        if self._budgets is not None:
            reports.note(f"planning for {self._count} clients that all answer, d = {self._model.dimension} …")
            self._epoch = _batches(self._budgets, config.batch_size or self._count)
            self._cost = self._new_cost(self._budgets)
            order = "hop 1 is honest" if config.sequential else "at least one shuffler keeps its order secret"
            trust = f"one user, {order}" if self._silos is None else "one RECORD of one client, no shuffler is trusted"
            self.outcome.basis = trust
            self._plan(self._cost)

    def run(self) -> TrainingOutcome:
        """Trains, and writes the outcome."""
        config = self._config
        descent = self.simulate() if config.simulate else self.deploy()
        if config.private and (config.simulate if config.baseline is None else config.baseline):
            self.outcome.noise_free = self.noise_free()
        self.outcome.state_dict = self._model.state_dict(descent.average)
        self.outcome.noise = self._noise(descent)
        self.outcome.save(config.out)
        return self.outcome

    def _noise(self, descent: Descent) -> NoiseComparison | None:
        """Compares the gradients with their noise, and says what as many epochs would cost as make them equal.

        None where there is no noise, or where a gradient is of one client, which says nothing about their mean.
        """
        if self._config.sequential or not (descent.noise and self.outcome.records and self._cost):
            return None
        done = self.outcome.records[-1].epoch
        noise = NoiseComparison.of(
            descent.squares,
            descent.noise,
            descent.steps,
            self._model.dimension,
            epochs=done,
            users=self._count,
            clipping_norm=self._config.clipping_norm,
        )
        if not done < noise.epochs <= _MOST_FORECAST_EPOCHS:
            return noise
        return replace(noise, epsilon=self._cost.after([self._epoch] * noise.epochs).epsilon)

    def _setting(self, optimizer: str | None) -> JsonObject:
        """Returns everything that may not change between two runs of one training, as JSON."""
        config, rule = self._config, self._config.step_rule
        budgets = config.budgets
        if not isinstance(budgets, str):
            digest = hashlib.sha256(np.asarray(budgets, dtype="<f8").tobytes()).hexdigest()
            budgets = f"{len(budgets)} budgets, SHA-256 {digest}"
        return {
            **self._subject.setting,
            "dimension": self._model.dimension,
            "unit": config.unit,
            "users": self._count,
            "budgets": budgets if config.private else None,
            "delta": config.delta,
            "clipping_norm": config.clipping_norm,
            "optimizer": optimizer,
            "learning_rate": rule.learning_rate,
            "momentum": rule.momentum,
            "averaging": rule.averaging,
            "order": config.order,
            "period_s": config.period_s if config.sequential and not config.simulate else None,
            "batch_size": 1 if config.sequential else config.batch_size or self._count,
            "seed": config.seed,
            "mode": "simulation" if config.simulate else "deployed",
        }

    def _new_cost(self, budgets: torch.Tensor) -> TrainingCost:
        config, subject = self._config, self._subject
        conditions = Conditions(
            subject.features,
            subject.own_code,
            config.sequential,
            simulated=config.simulate,
            chosen_on_users=config.chosen_on_users,
        )
        if self._silos is None:
            return UserSpending(self._model.dimension, config.delta, conditions)
        cost = SiloSpending([(epsilon, config.delta) for epsilon in budgets.tolist()], config.delta, conditions)
        sensitivity = 2 * config.clipping_norm / self._silos.records
        self._sigmas = [sensitivity * cost.noise(epsilon, config.delta) for epsilon in budgets.tolist()]
        return cost

    def _plan(self, cost: TrainingCost) -> None:
        """Takes only as many epochs as the limit allows if all clients answer.

        Raises:
            ValueError: the limit does not allow one epoch.
        """
        limit = self._config.epsilon_limit
        if not limit:
            return
        affordable = cost.epochs_within(self._epoch, limit, self._epochs)
        if not affordable:
            first = cost.after([self._epoch])
            raise ValueError(
                f"epsilon_limit is {limit:g}; it must be more than one epoch costs, {round_up(first.epsilon, 4)} "
                f"({first.grade} at δ {round_up(first.delta)})"
            )
        if affordable < self._epochs:
            following = cost.after([self._epoch] * (affordable + 1)).epsilon
            self._stop_after(affordable, following, "planned for all clients answering")
            self._epochs = affordable

    def _stop_after(self, epoch: int, following: float, basis: str) -> None:
        """Notes why the training stops after this epoch."""
        self.outcome.stopped = (
            f"stopped after {counted(epoch, 'epoch')}: with the next one the training would cost "
            f"{round_up(following, 4)} ({basis}), above the limit of {self._config.epsilon_limit:g}"
        )

    def _add(self, record: EpochRecord, spent: Spending | None) -> None:
        self.outcome.add(record, spent)
        self._reports.progress(self.outcome)
        self._answered = 0

    def _more_answered(self, more: int) -> None:
        self._answered += more
        self._reports.within(self._answered, self._count)

    def simulate(self) -> Descent:
        """Trains without a network, from the checkpoint where that is asked for, and returns where that has led."""
        config, at = self._config, self._start()
        checkpoint = Checkpoint(config.out / "simulation.pt", self.outcome.setting)
        saved = checkpoint.load(at.descent, tensors=("generator",)) if config.resume else None
        history = saved.history if saved else []
        if saved:
            at.generator.set_state(saved.tensors["generator"])
            at.epochs = len(history)
        for record in history:
            self._add(record, self._planned(record.epoch))
        config.out.mkdir(parents=True, exist_ok=True)
        for epoch, descent in self._simulated(at, self._epochs, self._budgets, self._sigmas):
            history.append(EpochRecord(epoch, descent.steps, *evaluate(self._model, descent.average, self._watched)))
            checkpoint.save(at.descent, history, tensors={"generator": at.generator.get_state()})
            self._add(history[-1], self._planned(epoch))
        return at.descent

    @property
    def _watched(self) -> Examples:
        return self._subject.watched

    def _start(self) -> SimulatedTraining:
        return SimulatedTraining(self._subject.descent(self._config), self._config.seed)

    def _planned(self, epoch: int) -> Spending | None:
        return None if self._cost is None else self._cost.after([self._epoch] * epoch)

    def noise_free(self) -> list[float]:
        """Trains as many epochs on clipped gradients without noise, and returns the accuracy, or error, after each."""
        epochs = len(self.outcome.records)
        self._reports.note(f"the same without noise, for comparison: {counted(epochs, 'epoch')} …")
        steps = self._simulated(self._start(), epochs, None, [0.0] * len(self._sigmas))
        return [
            EpochRecord(epoch, descent.steps, *evaluate(self._model, descent.average, self._watched)).figure
            for epoch, descent in steps
        ]

    def _simulated(
        self, at: SimulatedTraining, epochs: int, budgets: torch.Tensor | None, sigmas: list[float]
    ) -> Iterator[tuple[int, Descent]]:
        config, examples = self._config, self._subject.train
        if self._silos is None:
            return user_epochs(
                self._model,
                examples,
                budgets,
                config.clipping_norm,
                at,
                epochs,
                batch_size=config.batch_size,
                sequential=config.sequential,
            )
        clip = config.clipping_norm
        return silo_epochs(self._model, examples, sigmas, clip, at, epochs, sequential=config.sequential)

    def deploy(self) -> Descent:
        """Runs every step as a round, on a running deployment or on one of its own, and returns where that has led.

        The checkpoint lives as long as the deployment: beside the results, or in the directory that is deleted.
        """
        config = self._config
        if self._budgets is None or self._cost is None:
            raise ValueError("private is False; it must be True in a deployment")
        if config.directory is not None:
            return asyncio.run(self._deployed(config.directory, config.out, self._budgets, self._cost))
        limit = None
        # The ledger lets a sequential round begin only where its local budgets fit; there the limit is kept here alone.
        if config.epsilon_limit and not (config.sequential and config.unit == "user"):
            limit = PrivacyLimit(total_epsilon=config.epsilon_limit, total_delta=config.delta, fixed_terms=True)
        hops = counted(config.hops, "shuffler")
        self._reports.note(f"starting {hops}, the accountant and the analyzer, each in its own process, over TLS …")
        with temporary_deployment(config.hops, limit) as local:
            state = local.directory / "training"
            return asyncio.run(self._deployed(local.directory, state, self._budgets, self._cost))

    def _deployed_run(self, directory: Path, state: Path, budgets: torch.Tensor, pool: WorkerPool) -> DeployedRun:
        config, grid = self._config, tuple(torch.unique(budgets).tolist())
        # A sequential round is granted for the fewest answers that it may end with, so few may be missing.
        fewest = self._count * 9 // 10 if config.sequential else (config.batch_size or self._count) // 2

        def settings(question: Question) -> RoundSettings:
            return RoundSettings(question, grid, delta=config.delta, epsilon_max=20.0, min_batch_size=max(2, fewest))

        sequential = partial(SequentialRun, period_ms=round(1000 * config.period_s))
        return (sequential if config.sequential else DeployedRun)(
            directory=directory,
            out=state,
            model=self._model,
            name=self._subject.name,
            examples=self._subject.train,
            silos=self._silos,
            watched=self._watched,
            max_local_epsilons=budgets,
            clipping_norm=config.clipping_norm,
            rule=config.step_rule,
            settings=settings,
            pool=pool,
            setting=self.outcome.setting,
            batch_size=config.batch_size,
            begin=lambda model, rule: self._subject.descent(config),
            answered=self._more_answered,
        )

    async def _deployed(self, directory: Path, state: Path, budgets: torch.Tensor, cost: TrainingCost) -> Descent:
        """Takes the remaining epochs. What they have cost is composed from the certificates of their rounds."""
        pool = WorkerPool()
        run = self._deployed_run(directory, state, budgets, pool)
        steps = run.steps_per_epoch
        reached = run.resume()

        def spent(epoch: int | None = None) -> Spending:
            return cost.after(reached.epochs(steps)[:epoch], run.unreleased(reached))

        for record in reached.history:
            self._add(record, spent(record.epoch))
        try:
            if self._another(reached, steps, cost):
                await pool.warm()
            while self._another(reached, steps, cost):
                async for _ in run.steps(reached, (len(reached.history) + 1) * steps):
                    pass
                self._add(reached.history[-1], spent())
                self._note_missing(reached.epochs(steps)[-1])
        except NotGrantedError as error:
            self.outcome.stopped = f"the accountant refused the next step: {error}"
            if not reached.answered:
                raise ValueError(self.outcome.stopped) from error
            self.outcome.end(run.record(reached), spent())
        finally:
            pool.close()
        return reached.descent

    def _another(self, reached: Progress, steps: int, cost: TrainingCost) -> bool:
        """Whether there is an epoch to train, and one more like the last one would keep the limit."""
        done, limit = reached.epochs(steps), self._config.epsilon_limit
        if len(reached.history) >= self._epochs:
            return False
        if not (limit and reached.history):
            return True
        following = max(cost.after([*done, like]).epsilon for like in (self._epoch, done[-1]))
        if following > limit:
            self._stop_after(len(reached.history), following, "if as many answer as in the last one")
        return following <= limit

    def _note_missing(self, newest: Sequence[Batch]) -> None:
        missing = self._count - sum(number for batch in newest for _, number in batch.tiers)
        missing += sum(batch.dishonest for batch in newest)
        if missing:
            self._reports.note(f"{missing} of {self._count} clients have not answered, or count as if they had not")


def _assign(budgets: str | Sequence[float], count: int) -> torch.Tensor:
    """Returns the clients' local budgets, float64 (n,): those given, or groups in an order without meaning.

    Raises:
        ValueError: the number of given budgets is another than that of the clients.
    """
    if isinstance(budgets, str):
        return _in_proportion(parse_budget_groups(budgets), count)
    if len(budgets) != count:
        raise ValueError(f"budgets has {len(budgets)} values; it must be {count}, one for each client")
    return torch.tensor(list(budgets), dtype=torch.float64)


def _in_proportion(groups: Sequence[BudgetGroup], count: int) -> torch.Tensor:
    total, budgets, done = sum(group.share for group in groups), torch.empty(count, dtype=torch.float64), 0
    for index, group in enumerate(groups):
        share = sum(earlier.share for earlier in groups[: index + 1]) / total
        end = round(share * count)
        budgets[done:end] = group.max_local_epsilon
        done = end
    return budgets[torch.randperm(count, generator=torch.Generator().manual_seed(1))]


def _batches(budgets: torch.Tensor, size: int) -> tuple[Batch, ...]:
    """Returns every batch that an epoch may have if all answer: all clients, or the worst case of a random batch.

    Raises:
        ValueError: a step takes some of the clients, and their budgets differ.
    """
    values, counts = torch.unique(budgets, return_counts=True)
    if size >= len(budgets):
        return (Batch(tuple(zip(values.tolist(), counts.tolist(), strict=True))),)
    if len(values) > 1:
        raise ValueError(f"batch_size is {size}; it must be 0 with {len(values)} different budgets")
    batches = -(-len(budgets) // size)
    sizes = {len(budgets) // batches, -(-len(budgets) // batches)}
    return tuple(Batch(((float(values[0]), batch_size),)) for batch_size in sorted(sizes))
