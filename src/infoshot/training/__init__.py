"""Training of networks: base training, and episodic training of few-shot systems."""

from infoshot.training.api import TrainResult, train
from infoshot.training.base_training import run_epochs
from infoshot.training.config import TrainConfig
from infoshot.training.episodic.episodic_config import EpisodicConfig
from infoshot.training.episodic.episodic_training import run_episodes
from infoshot.training.episodic.trained_system import TrainedSystem, is_system, load_system
from infoshot.training.records import EpochRecord, best_epoch
from infoshot.training.training_images import TrainingImages, base_splits, load_training_images
from infoshot.training.validation import make_validation

__all__ = [
    "EpisodicConfig",
    "EpochRecord",
    "TrainConfig",
    "TrainResult",
    "TrainedSystem",
    "TrainingImages",
    "base_splits",
    "best_epoch",
    "is_system",
    "load_system",
    "load_training_images",
    "make_validation",
    "run_episodes",
    "run_epochs",
    "train",
]
