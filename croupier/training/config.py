"""What a training is to do: `TrainingSettings` of any model and data, and with both named, `TrainingConfig`.

Checked at construction. The fields of a `TrainingConfig` are the options of `croupier train`. Light on purpose:
neither torch nor data are loaded here. What only they can tell, such as a device that is missing or more clients than
examples, `training.runner` says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from croupier.deploy.local.budget_groups import parse_budget_groups

DATASETS = ("digits", "mnist")
FEATURES = ("pixels", "dct", "scattering", "pca")
"""What images can be put into."""
TABLE_FEATURES = ("columns", "standardized")
"""What the columns of a file of one's own can be put into."""
FITTED_FROM_USERS = "fitted by the caller"
FITTED_FEATURES = ("pca", "standardized", FITTED_FROM_USERS)
"""Features that look at the users' data, which no certificate covers."""
DEFAULT_BUDGETS = "2:1"
_TABLES = (".npz", ".csv", ".tsv", ".txt", ".xlsx", ".xlsm", ".parquet")
MODELS = ("softmax", "linear", "relu")
_MAX_LOCAL_EPSILON = 20.0
_LEARNING_RATES = {
    ("user", "batch"): 8.0,
    ("user", "sequential"): 0.01,
    ("record", "batch"): 2.0,
    ("record", "sequential"): 0.05,
}
NUMBER_LEARNING_RATES = {
    ("user", "batch"): 0.3,
    ("user", "sequential"): 0.01,
    ("record", "batch"): 0.3,
    ("record", "sequential"): 0.05,
}
"""Where targets are numbers. The squared error bends ten times as much as the cross-entropy: larger steps diverge."""


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


def is_table(data: Path | None) -> bool:
    """Returns whether data is a file of examples, by the ending of its name; else it is a directory of MNIST files."""
    return data is not None and data.suffix.lower() in _TABLES


def with_range(name: str, text: str) -> tuple[str, tuple[float, float] | None]:
    """Returns the name of a column, and its range if one is given.

    Args:
        name: of the option, for the error.
        text: NAME or NAME:LOW:HIGH.

    Raises:
        ValueError: the range is not finite, or empty.
    """
    parts = text.rsplit(":", 2)
    if len(parts) < 3:
        return text.strip(), None
    try:
        low, high = float(parts[1]), float(parts[2])
    except ValueError:
        return text.strip(), None  # a name with colons
    if not -math.inf < low < high < math.inf:
        raise ValueError(f"{name} is {text}; its range must be LOW:HIGH with LOW < HIGH")
    return parts[0].strip(), (low, high)


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
class TrainingSettings:
    """How a model is trained on shuffled, locally randomized gradients, in which all clients are played.

    Attributes:
        unit: what is protected: a "user" with one example, or one "record" of a client with many.
        clients: unit record: how many clients share the examples, at least 2.
        budgets: groups epsilon:share of the clients' local budgets per epoch; or one budget for each client, in the
            order of the examples (unit record: of the clients). 0 < epsilon <= 20.
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
        chosen_on_users: whether these settings were chosen by looking at some of the users' examples; the certificate
            then says that it does not cover the choice.
        simulate: no network: the same estimators and certificates, but the data lies with one party.
        resume: in a simulation: go on from the checkpoint in `out`. A training on a running deployment always does.
        directory: of a running deployment; None for one on loopback that ends with the training.
        hops: shufflers of the deployment on loopback.
        out: the directory for model.pt, training.json, training.png and the checkpoint.
        seed: of the initial parameters; in a simulation of batches and noise, too; 0 .. 2^63 - 1.
        device: where gradients are computed: "cpu", "cuda", ...; "auto": a GPU if there is one.

    Raises:
        ValueError: at construction, with the field, its value, and what it must be.
    """

    unit: str = "user"
    clients: int = 100
    budgets: str | Sequence[float] = DEFAULT_BUDGETS
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
    chosen_on_users: bool = False
    simulate: bool = False
    resume: bool = False
    directory: Path | None = None
    hops: int = 2
    out: Path = Path("out/train")
    seed: int = 0
    device: str = "auto"

    def __post_init__(self) -> None:
        """Checks the ranges, and what excludes what."""
        check_choice("unit", self.unit, ("user", "record"))
        check_choice("order", self.order, ("batch", "sequential"))
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
        epsilons = self.budgets
        if isinstance(epsilons, str):
            epsilons = [group.max_local_epsilon for group in parse_budget_groups(epsilons)]
        for epsilon in epsilons:
            _check_range("an epsilon in budgets", epsilon, 0 < epsilon <= _MAX_LOCAL_EPSILON, "0 < epsilon <= 20")
        self._check_mode(self.step_rule)

    def _check_mode(self, rule: StepRule) -> None:
        if self.sequential and self.batch_size:
            raise ValueError(f"batch_size is {self.batch_size}; it must be 0 in order sequential: one client a step")
        if self.simulate and self.directory is not None:
            raise ValueError(f"dir is {self.directory}; it must not be given for a simulation, which has no deployment")
        if self.resume and not self.simulate:
            raise ValueError(
                "resume is True; it must be False in a deployment: with a directory a training always goes on"
            )
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
    def step_rule(self) -> StepRule:
        """The steps, defaults filled in."""
        rate = _LEARNING_RATES[self.unit, self.order] if self.learning_rate is None else self.learning_rate
        averaging = self.averaging
        if averaging is None:
            averaging = 1.0 if self.sequential else 0.3
        return StepRule(rate, self.momentum, averaging=averaging)

    @property
    def budgets_in_words(self) -> str:
        """The local budgets, in a few words."""
        if isinstance(self.budgets, str):
            epsilons = [group.max_local_epsilon for group in parse_budget_groups(self.budgets)]
            if len(epsilons) <= 6:
                return f"budgets {self.budgets}"
        else:
            epsilons = sorted(set(self.budgets))
        if len(epsilons) == 1:
            return f"budget {epsilons[0]:g}"
        return f"budgets {min(epsilons):.2g} to {max(epsilons):.2g}, {len(epsilons)} groups"


@dataclass(frozen=True)
class TrainingConfig(TrainingSettings):
    """A training whose model and data are named: built in, or in files.

    Attributes:
        dataset: "digits" (1,797 small images, offline) or "mnist".
        data: a file of examples, .npz, .csv, .xlsx or .parquet, instead of `dataset`; mnist: the directory of the IDX
            files, which are downloaded if it is not given.
        target: of a file, the column or array of class labels; or NAME:LOW:HIGH, numbers in a range known beforehand,
            which are predicted with the least squared error; None: the array "y" of an .npz file.
        columns: of a file, which columns are features: NAME, or NAME:LOW:HIGH to take that range to -1..1; None: all
            but the target, as they are.
        features: of images "pixels", "dct" or "scattering" (which look at no data), or "pca"; of a file "columns", or
            "standardized". "pca" and "standardized" are fitted to the data, which no certificate covers. None for dct,
            or columns.
        model: "softmax" (classes), "linear" (numbers), "relu" (one hidden layer), or a Python file that defines
            model(inputs, outputs): the number of classes, or 1. None: softmax, or linear.
        watch: "validation" or "test": the examples that the model is measured on.
    """

    dataset: str = "digits"
    data: Path | None = None
    target: str | None = None
    columns: Sequence[str] | None = None
    features: str | None = None
    model: str | None = None
    watch: str = "validation"

    def __post_init__(self) -> None:
        """Checks the names, and what `TrainingSettings` checks."""
        check_choice("dataset", self.dataset, DATASETS)
        check_choice("features", self.feature_name, TABLE_FEATURES if self.own_data else FEATURES)
        check_choice("watch", self.watch, ("validation", "test"))
        check_model(self.model_or_default)
        self._check_data()
        if self.model in ("softmax", "linear") and self.model != self._default_model:
            kind = "are classes" if self.target_range is None else "are numbers"
            raise ValueError(
                f"model is {self.model!r}; it must be {self._default_model}, relu or a Python file: the targets {kind}"
            )
        super().__post_init__()

    def _check_data(self) -> None:
        if self.own_data:
            return
        for name, value in (("target", self.target), ("column", self.columns)):
            if value:
                raise ValueError(f"{name} is {value!r}; it must not be given without --data, a file of examples")
        if self.data is not None and self.dataset != "mnist":
            raise ValueError(
                f"data is {self.data}; it must be a file whose name ends in {', '.join(_TABLES)}, or with dataset "
                "mnist the directory of its IDX files"
            )

    @property
    def own_data(self) -> bool:
        """Whether the examples come from a file of one's own."""
        return is_table(self.data)

    @property
    def data_name(self) -> str:
        """The name of the data set, or of the file."""
        return self.data.stem if self.data is not None and self.own_data else self.dataset

    @property
    def feature_name(self) -> str:
        """The features, the default filled in."""
        return self.features or (TABLE_FEATURES[0] if self.own_data else "dct")

    @property
    def target_range(self) -> tuple[float, float] | None:
        """The range of the targets; None: they are classes."""
        return with_range("target", self.target)[1] if self.target else None

    @property
    def _default_model(self) -> str:
        return "softmax" if self.target_range is None else "linear"

    @property
    def model_or_default(self) -> str:
        """The model, the default filled in."""
        return self.model or self._default_model

    @property
    def model_name(self) -> str:
        """The model's name, without the path of its file."""
        return Path(self.model_or_default).stem
