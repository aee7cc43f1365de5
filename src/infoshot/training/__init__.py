"""Base training: a backbone and a classifier on the train classes, with the published recipe."""

from infoshot.training.api import TrainResult, train
from infoshot.training.base_training import run_epochs
from infoshot.training.config import TrainConfig
from infoshot.training.records import EpochRecord, best_epoch
from infoshot.training.training_images import TrainingImages, base_splits, load_training_images
from infoshot.training.validation import make_validation

__all__ = [
    "EpochRecord",
    "TrainConfig",
    "TrainResult",
    "TrainingImages",
    "base_splits",
    "best_epoch",
    "load_training_images",
    "make_validation",
    "run_epochs",
    "train",
]
