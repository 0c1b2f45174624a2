"""What a training is to do: `TrainingConfig`, checked at construction. The fields are the options of `croupier train`.

Light on purpose: neither torch nor data are loaded here. What only they can tell, such as a device that is missing or
more clients than examples, `training.runner` says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from croupier.deploy.local.budget_groups import BudgetGroup, parse_budget_groups

__all__ = ["DATASETS", "FEATURES", "MODELS", "StepRule", "TrainingConfig", "check_choice", "check_model"]

DATASETS = ("digits", "mnist")
FEATURES = ("pixels", "dct", "scattering", "pca")
MODELS = ("softmax", "relu")
_MAX_LOCAL_EPSILON = 20.0
_LEARNING_RATES = {
    ("user", "batch"): 8.0,
    ("user", "sequential"): 0.01,
    ("record", "batch"): 2.0,
    ("record", "sequential"): 0.05,
}


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Checks that a value is one of the choices.

    Raises:
        ValueError: it is not.
    """
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; it must be {', '.join(choices[:-1])} or {choices[-1]}")


def check_model(model: str) -> None:
    """Checks that a model is built in, or named by a path that ends in .py.

    Raises:
        ValueError: it is neither.
    """
    if model not in MODELS and not model.endswith(".py"):
        raise ValueError(f"model is {model!r}; it must be {', '.join(MODELS)} or a Python file")


def _check_range(name: str, value: float, holds: bool, must: str) -> None:
    if not holds:
        raise ValueError(f"{name} is {value:g}; it must be {must}")


@dataclass(frozen=True)
class StepRule:
    """Stochastic gradient descent with momentum.

    Attributes:
        learning_rate: the step size, 0 < learning_rate <= 1e6.
        momentum: what is kept of the last step, 0 <= momentum < 1.
        decaying: whether the step size falls as 1/sqrt(step).
        averaging: the weight of the newest parameters in the exponential average that is evaluated, 0 < averaging <= 1;
            1: no average.
    """

    learning_rate: float
    momentum: float = 0.0
    decaying: bool = False
    averaging: float = 1.0

    def __post_init__(self) -> None:
        """Checks the ranges."""
        rate, momentum, averaging = self.learning_rate, self.momentum, self.averaging
        _check_range("learning_rate", rate, 0 < rate <= 1e6, "0 < learning_rate <= 1e6")
        _check_range("momentum", momentum, 0 <= momentum < 1, "0 <= momentum < 1")
        _check_range("averaging", averaging, 0 < averaging <= 1, "0 < averaging <= 1")


@dataclass(frozen=True)
class TrainingConfig:
    """A training on shuffled, locally randomized gradients, in which all clients are played.

    Attributes:
        dataset: "digits" (1,797 small images, offline) or "mnist".
        data: mnist: the directory of the IDX files; downloaded if not given.
        features: "pixels", "dct" or "scattering" (which look at no data), or "pca" (fitted to the data, which no
            certificate covers).
        model: "softmax", "relu", or a Python file that defines model(inputs, classes).
        unit: what is protected: a "user" with one example, or one "record" of a client with many.
        clients: unit record: how many clients share the examples, at least 2.
        budgets: groups epsilon:share of the clients' local budgets per epoch; 0 < epsilon <= 20.
        private: False for clipped gradients without noise; in a simulation only.
        baseline: whether the same training without noise is run as well, simulated, for the plot; no certificate covers
            its accuracy. None: in a simulation only.
        epochs: at least 1; every client answers once an epoch.
        batch_size: clients per step; 0: all of them.
        order: "batch", or "sequential": one client a step, in a secret order.
        clipping_norm: longer gradients are scaled down to this length, 1e-20 .. 1e20.
        period_s: order sequential in a deployment: seconds that each client has, 0.001 .. 600.
        learning_rate: None for the default of the unit and the order.
        momentum: see `StepRule`; 0 for order sequential in a deployment.
        averaging: see `StepRule`; None for the default of the order; 1 for order sequential in a deployment.
        delta: of the whole training, 1e-12 .. 0.1; unit record: of each local budget, too.
        epsilon_limit: stop before the training's epsilon at `delta` exceeds this; 0: never.
        simulate: no network: the same estimators and certificates, but the data lies with one party.
        directory: of a running deployment; None for one on loopback that ends with the training.
        hops: shufflers of the deployment on loopback.
        out: the directory for model.pt, training.json, training.png and the checkpoint.
        watch: "validation" or "test": the examples that loss and accuracy are measured on.
        seed: of the initial parameters; in a simulation of batches and noise, too; 0 .. 2^63 - 1.
        device: where gradients are computed: "cpu", "cuda", ...; "auto": a GPU if there is one.

    Raises:
        ValueError: at construction, with the field, its value, and what it must be.
    """

    dataset: str = "digits"
    data: Path | None = None
    features: str = "dct"
    model: str = "softmax"
    unit: str = "user"
    clients: int = 100
    budgets: str = "2:1"
    private: bool = True
    baseline: bool | None = None
    epochs: int = 20
    batch_size: int = 0
    order: str = "batch"
    clipping_norm: float = 1.0
    period_s: float = 0.1
    learning_rate: float | None = None
    momentum: float = 0.0
    averaging: float | None = None
    delta: float = 1e-5
    epsilon_limit: float = 0.0
    simulate: bool = False
    directory: Path | None = None
    hops: int = 2
    out: Path = Path("out/train")
    watch: str = "validation"
    seed: int = 0
    device: str = "auto"

    def __post_init__(self) -> None:
        """Checks the ranges, and what excludes what."""
        check_choice("dataset", self.dataset, DATASETS)
        check_choice("features", self.features, FEATURES)
        check_choice("unit", self.unit, ("user", "record"))
        check_choice("order", self.order, ("batch", "sequential"))
        check_choice("watch", self.watch, ("validation", "test"))
        check_model(self.model)
        for name, holds, must in (
            ("clients", self.clients >= 2, "at least 2"),
            ("epochs", self.epochs >= 1, "at least 1"),
            ("batch_size", self.batch_size >= 0, "at least 1, or 0 for all clients"),
            ("clipping_norm", 1e-20 <= self.clipping_norm <= 1e20, "in 1e-20..1e20"),
            ("period_s", 0.001 <= self.period_s <= 600, "in 0.001..600 seconds"),
            ("delta", 1e-12 <= self.delta <= 0.1, "in 1e-12..0.1"),
            ("epsilon_limit", 0 <= self.epsilon_limit < math.inf, "a finite number > 0, or 0 for no limit"),
            ("seed", 0 <= self.seed < 1 << 63, "in 0..2^63 - 1"),
        ):
            _check_range(name, getattr(self, name), holds, must)
        for group in self.budget_groups:
            epsilon = group.max_local_epsilon
            _check_range(
                "the epsilon of a group in budgets", epsilon, epsilon <= _MAX_LOCAL_EPSILON, "0 < epsilon <= 20"
            )
        self._check_mode(self.step_rule)

    def _check_mode(self, rule: StepRule) -> None:
        if self.sequential and self.batch_size:
            raise ValueError(f"batch_size is {self.batch_size}; it must be 0 in order sequential: one client a step")
        if self.simulate and self.directory is not None:
            raise ValueError(f"dir is {self.directory}; it must not be given for a simulation, which has no deployment")
        if not (self.simulate or self.private):
            raise ValueError(
                "private is False; it must be True in a deployment: only a simulation can do without noise"
            )
        if self.sequential and not self.simulate and (rule.momentum, rule.averaging) != (0, 1):
            raise ValueError(
                f"momentum is {rule.momentum:g} and averaging {rule.averaging:g}; they must be 0 and 1 in order "
                "sequential: the analyzer of a deployment takes plain steps"
            )

    @property
    def sequential(self) -> bool:
        """Whether one client answers a step."""
        return self.order == "sequential"

    @property
    def budget_groups(self) -> tuple[BudgetGroup, ...]:
        """The groups in `budgets`."""
        return parse_budget_groups(self.budgets)

    @property
    def step_rule(self) -> StepRule:
        """The steps, defaults filled in."""
        rate = _LEARNING_RATES[self.unit, self.order] if self.learning_rate is None else self.learning_rate
        averaging = self.averaging
        if averaging is None:
            averaging = 1.0 if self.sequential else 0.3
        return StepRule(rate, self.momentum, averaging=averaging)

    @property
    def model_name(self) -> str:
        """The model's name, without the path of its file."""
        return Path(self.model).stem

    @property
    def title(self) -> str:
        """What tells this training from others, in a few words."""
        groups = [group.max_local_epsilon for group in self.budget_groups]
        budgets = self.budgets if len(groups) <= 6 else f"{min(groups):.2g} to {max(groups):.2g}, {len(groups)} groups"
        return f"{self.dataset}, {self.model_name}, {f'budgets {budgets}' if self.private else 'no noise'}"
