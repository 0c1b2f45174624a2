"""Runs a training that a `TrainingConfig` describes, simulated or through a deployment, for the command or any program.

    outcome = run_training(TrainingConfig(epochs=2, simulate=True))
    outcome.records[-1].accuracy, outcome.spending[-1].epsilon

What an epoch does is left to `simulation` and `deployed`, what it costs to `privacy`. Here they are put together, and
the training is ended before it costs more than it may.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import torch

from croupier.deploy.local.budget_groups import BudgetGroup
from croupier.deploy.local.processes import temporary_deployment
from croupier.deploy.operator.rounds import RoundSettings
from croupier.protocol.deployment import PrivacyLimit
from croupier.protocol.questions import Question
from croupier.protocol.rounding import round_up
from croupier.runtime.workers import WorkerPool
from croupier.show.tables import counted
from croupier.show.views import TrainingSettingView
from croupier.training.checkpoint import Progress
from croupier.training.config import TrainingConfig
from croupier.training.datasets import Examples, load_dataset, with_features
from croupier.training.deployed import DeployedRun, NotGrantedError, SequentialRun, Silos
from croupier.training.descent import Descent, evaluate
from croupier.training.models import load_model
from croupier.training.outcome import EpochRecord, TrainingOutcome
from croupier.training.privacy import Batch, Conditions, SiloSpending, Spending, TrainingCost, UserSpending
from croupier.training.simulation import shares_of, silo_epochs, user_epochs

__all__ = ["run_training"]


def run_training(
    config: TrainingConfig,
    *,
    progress: Callable[[TrainingOutcome], None] = lambda outcome: None,
    within: Callable[[int, int], None] = lambda done, clients: None,
    note: Callable[[str], None] = lambda line: None,
) -> TrainingOutcome:
    """Trains, and leaves model, history and plot in `config.out`.

    A deployed training that was killed goes on from its checkpoint, where its deployment still runs. An event loop is
    started for it: call this from a thread of its own in a program that has one.

    Args:
        config: what to do.
        progress: called after every epoch with the outcome so far, first with the epochs of the checkpoint.
        within: in a deployment, called with how many clients have answered in this epoch, and how many there are.
        note: called with a sentence about what is done next, or what went wrong and did not stop the training.

    Raises:
        ValueError: data, model, device or checkpoint cannot be used; or the limit does not allow one epoch.
        Refusal: a service refused a round.
        RuntimeError: the deployment on loopback did not start.
    """
    training = _Training(config, progress, within, note)
    parameters = training.simulate() if config.simulate else training.deploy()
    if config.private and (config.simulate if config.baseline is None else config.baseline):
        training.outcome.noise_free = training.noise_free()
    training.outcome.save(config.out, parameters)
    return training.outcome


class _Training:
    """One training under way: what both modes need, and the epochs of each."""

    def __init__(
        self,
        config: TrainingConfig,
        progress: Callable[[TrainingOutcome], None],
        within: Callable[[int, int], None],
        note: Callable[[str], None],
    ) -> None:
        self._config, self._progress, self._within, self._note = config, progress, within, note
        self._answered = 0
        device = _device(config.device)
        raw = load_dataset(config.dataset, config.data)
        self._dataset = with_features(raw, config.features)
        self._watched = self._dataset.test if config.watch == "test" else self._dataset.validation
        inputs, examples = self._dataset.train.features.shape[1], len(self._dataset.train)
        self._silos = Silos(shares_of(examples, config.clients), config.delta) if config.unit == "record" else None
        self._count = examples if self._silos is None else config.clients
        self._model = load_model(config.model, inputs, self._dataset.classes, config.seed, device)
        self._epochs = config.epochs
        self._budgets = _assign(config.budget_groups, self._count) if config.private else None
        self._cost: TrainingCost | None = None
        self._epoch: tuple[Batch, ...] = ()
        self._sigmas = [0.0] * self._count
        self.outcome = TrainingOutcome(config.title, self._setting(raw.train))
        if self._budgets is not None:
            self._note(f"planning for {self._count} clients that all answer, d = {self._model.dimension} …")
            self._epoch = _batches(self._budgets, config.batch_size or self._count)
            self._cost = self._new_cost(self._budgets)
            order = "hop 1 is honest" if config.sequential else "at least one shuffler keeps its order secret"
            trust = f"one user, {order}" if self._silos is None else "one RECORD of one client, no shuffler is trusted"
            self.outcome.basis = trust
            self._plan(self._cost)

    def _setting(self, examples: Examples) -> TrainingSettingView:
        """Returns everything that may not change between two runs of one training, as JSON."""
        config, rule = self._config, self._config.step_rule
        own_model = config.model.endswith(".py")
        return {
            "dataset": config.dataset,
            "examples_sha256": _digest(examples),
            "features": config.features,
            "model": config.model,
            "model_sha256": hashlib.sha256(Path(config.model).read_bytes()).hexdigest() if own_model else None,
            "dimension": self._model.dimension,
            "unit": config.unit,
            "users": self._count,
            "budgets": config.budgets if config.private else None,
            "delta": config.delta,
            "clipping_norm": config.clipping_norm,
            "learning_rate": rule.learning_rate,
            "momentum": rule.momentum,
            "averaging": rule.averaging,
            "order": config.order,
            "period_s": config.period_s if config.sequential and not config.simulate else None,
            "batch_size": 1 if config.sequential else config.batch_size or self._count,
            "seed": config.seed,
            "watched": config.watch,
            "mode": "simulation" if config.simulate else "deployed",
        }

    def _new_cost(self, budgets: torch.Tensor) -> TrainingCost:
        config = self._config
        own_model = config.model.endswith(".py")
        conditions = Conditions(config.features, own_model, config.sequential, simulated=config.simulate)
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
        self._progress(self.outcome)
        self._answered = 0

    def _more_answered(self, more: int) -> None:
        self._answered += more
        self._within(self._answered, self._count)

    def simulate(self) -> torch.Tensor:
        """Trains without a network, and returns the parameters."""
        done = self._model.initial
        for epoch, descent in self._simulated(self._epochs, self._budgets, self._sigmas):
            done = descent.average
            record = EpochRecord(epoch, descent.steps, *evaluate(self._model, done, self._watched))
            self._add(record, None if self._cost is None else self._cost.after([self._epoch] * epoch))
        return done

    def noise_free(self) -> list[float]:
        """Trains as many epochs on clipped gradients without noise, and returns the accuracy after each."""
        epochs = len(self.outcome.records)
        self._note(f"the same without noise, for comparison: {counted(epochs, 'epoch')} …")
        steps = self._simulated(epochs, None, [0.0] * len(self._sigmas))
        return [evaluate(self._model, descent.average, self._watched)[1] for _, descent in steps]

    def _simulated(
        self, epochs: int, budgets: torch.Tensor | None, sigmas: list[float]
    ) -> Iterator[tuple[int, Descent]]:
        config = self._config
        if self._silos is None:
            return user_epochs(
                self._model,
                self._dataset,
                budgets,
                config.clipping_norm,
                config.step_rule,
                epochs,
                batch_size=config.batch_size,
                sequential=config.sequential,
                seed=config.seed,
            )
        return silo_epochs(
            self._model,
            self._dataset,
            sigmas,
            config.clipping_norm,
            config.step_rule,
            epochs,
            sequential=config.sequential,
            seed=config.seed,
        )

    def deploy(self) -> torch.Tensor:
        """Runs every step as a round, on a running deployment or on one of its own, and returns the parameters.

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
        self._note(f"starting {hops}, the accountant and the analyzer, each in its own process, over TLS …")
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
            name=f"{config.features}-{config.model_name}"[:64],  # as long as a question's name may be
            examples=self._dataset.train,
            silos=self._silos,
            watched=self._watched,
            max_local_epsilons=budgets,
            clipping_norm=config.clipping_norm,
            rule=config.step_rule,
            settings=settings,
            pool=pool,
            setting=self.outcome.setting,
            batch_size=config.batch_size,
            answered=self._more_answered,
        )

    async def _deployed(self, directory: Path, state: Path, budgets: torch.Tensor, cost: TrainingCost) -> torch.Tensor:
        """Takes the remaining epochs. What they have cost is composed from the certificates of their rounds."""
        pool = WorkerPool()
        run = self._deployed_run(directory, state, budgets, pool)
        steps = run.steps_per_epoch
        reached = run.resume()

        def spent(epoch: int | None = None) -> Spending:
            return cost.after(reached.epochs(steps)[:epoch], reached.unreleased(steps))

        for record in reached.history:
            self._add(record, spent(record.epoch))
        try:
            if self._another(reached, steps, cost):
                await pool.warm()
            while self._another(reached, steps, cost):
                async for _ in run.steps(reached, (len(reached.history) + 1) * steps):
                    pass
                self._add(reached.history[-1], spent())
                self._note_missing(run, reached.epochs(steps)[-1])
        except NotGrantedError as error:
            self.outcome.stopped = f"the accountant refused the next step: {error}"
            if not reached.answered:
                raise ValueError(self.outcome.stopped) from error
            self.outcome.end(run.record(reached), spent())
        finally:
            pool.close()
        return reached.descent.average

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

    def _note_missing(self, run: DeployedRun, newest: Sequence[Batch]) -> None:
        missing = self._count - sum(number for batch in newest for _, number in batch.tiers)
        missing += sum(batch.dishonest for batch in newest)
        if missing:
            self._note(f"{missing} of {self._count} clients have not answered, or count as if they had not")
        for user, why in list(run.without_gradient.items())[:3]:
            self._note(f"client {user} had no gradient: {why}")


def _digest(examples: Examples) -> str:
    digest = hashlib.sha256()
    for one in (examples.features, examples.targets):
        digest.update(one.contiguous().numpy().data)
    return digest.hexdigest()


def _device(device: str) -> str:
    """Returns the name of the device to use; auto is the GPU where there is one.

    Raises:
        ValueError: the device cannot be used.
    """
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device is {device!r}; it must be a device of this machine: {error}") from error
    return device


def _assign(groups: Sequence[BudgetGroup], count: int) -> torch.Tensor:
    """Returns the clients' local budgets, float64 (n,): the groups in proportion, in an order without meaning."""
    total, budgets, done = sum(group.share for group in groups), torch.empty(count, dtype=torch.float64), 0
    for index, group in enumerate(groups):
        share = sum(one.share for one in groups[: index + 1]) / total
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
    return tuple(Batch(((float(values[0]), one),)) for one in sorted(sizes))
