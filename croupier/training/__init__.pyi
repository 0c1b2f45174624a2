from .config import StepRule as StepRule
from .config import TrainingConfig as TrainingConfig
from .config import TrainingSettings as TrainingSettings
from .datasets import Dataset as Dataset
from .datasets import Examples as Examples
from .datasets import load_dataset as load_dataset
from .datasets import with_features as with_features
from .models import squared_error as squared_error
from .outcome import EpochRecord as EpochRecord
from .outcome import NoiseComparison as NoiseComparison
from .outcome import TrainingOutcome as TrainingOutcome
from .privacy import Spending as Spending
from .runner import Reports as Reports
from .runner import run_training as run_training
from .runner import train as train
from .table_files import load_table as load_table

__all__ = [
    "Dataset",
    "EpochRecord",
    "Examples",
    "NoiseComparison",
    "Reports",
    "Spending",
    "StepRule",
    "TrainingConfig",
    "TrainingOutcome",
    "TrainingSettings",
    "load_dataset",
    "load_table",
    "run_training",
    "squared_error",
    "train",
    "with_features",
]
