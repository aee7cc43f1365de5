"""What a training run learns: a network, its batches, its loss and its validation.

The loop in ``epochs.py`` trains any ``TrainingProblem``. ``base_training.py`` and
``episodic/episodic_training.py`` define the two kinds.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from infoshot.backbones import Backbone
from infoshot.distributed import Ranks
from infoshot.training.curve import CurveLabels
from infoshot.training.run_config import RunConfig

BatchT = TypeVar("BatchT")
_BACKBONE = "backbone."  # prefix of its tensors among those of the network


class TrainedNetwork(nn.Module, ABC):
    """A backbone with what is trained on top of it, in ``head``."""

    backbone: Backbone
    head: nn.Module


@dataclass(frozen=True, eq=False)
class StepLoss:
    """The loss of a step in this process.

    Parameters
    ----------
    loss
        Mean over the samples, a scalar.
    n_correct
        How many samples are classified correctly, a scalar.
    n_samples
        Number of samples that are classified.
    n_units
        Number of images or episodes, as the progress counts them.
    """

    loss: Tensor
    n_correct: Tensor
    n_samples: int
    n_units: int


class TrainingProblem(ABC, Generic[BatchT]):
    """What is trained, for the loop.

    Parameters
    ----------
    config
        The settings.
    ranks
        The processes.
    network
        Everything that learns, on the device.
    about
        All that determines the run besides the settings, as JSON values: a run whose folder holds
        other values is refused.
    class_names
        The train classes.
    labels
        What the lines of the learning curve are.
    """

    unit: str  # what the progress counts

    def __init__(
        self,
        config: RunConfig,
        ranks: Ranks,
        network: TrainedNetwork,
        *,
        about: Mapping[str, Any],
        class_names: tuple[str, ...],
        labels: CurveLabels,
    ) -> None:
        self.config, self.ranks, self.network = config, ranks, network
        self.about = {**config.to_json(), **about}
        self.class_names, self.labels = class_names, labels
        self.network.to(device=torch.device(ranks.device), memory_format=torch.channels_last)  # type: ignore[call-overload]

    @property
    @abstractmethod
    def units_per_epoch(self) -> int:
        """Images or episodes of an epoch, over all processes."""

    @property
    @abstractmethod
    def images_per_epoch(self) -> int:
        """Images that pass through the network in an epoch, over all processes."""

    @abstractmethod
    def make_optimizer(self) -> torch.optim.Optimizer:
        """Return the optimizer of the parameters that learn."""

    @abstractmethod
    def connect(self, *, compile: bool) -> None:
        """Prepare batches and network, together with the other processes, before the first step."""

    @abstractmethod
    def batches(self, epoch: int) -> Iterator[BatchT]:
        """Yield the batches of an epoch, counted from 0; the share of this process."""

    @abstractmethod
    def loss(self, batch: BatchT) -> StepLoss:
        """Return the loss of a batch, to be minimised."""

    @abstractmethod
    def validate(self) -> tuple[float | None, float | None]:
        """Return the accuracy on validation classes and its 95 % half-width, in percent."""

    def train_mode(self) -> None:
        """Put the network into training mode."""
        self.network.train()

    def backbone_weights(self) -> Mapping[str, Tensor]:
        """Return the weights of the backbone, as checkpoints store them."""
        return self.network.backbone.state_dict()

    def other_weights(self) -> dict[str, Tensor]:
        """Return what resuming needs besides the weights of the backbone and the optimizer."""
        state = self.network.state_dict()
        return {name: value for name, value in state.items() if not name.startswith(_BACKBONE)}

    def load_weights(self, backbone: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> None:
        """Restore the weights of an interrupted run; ``others`` may hold more tensors."""
        self.network.backbone.load_state_dict(backbone)
        known = {name: others[name] for name in self.network.state_dict() if name in others}
        self.network.load_state_dict(known, strict=False)

    def system(self) -> tuple[str, Mapping[str, Any]] | None:
        """Return name and head settings of the few-shot system; ``None``: ``head`` is linear."""
        return None
