"""The interface of a feature extractor: a network, its input, and its weights' digest."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from infoshot.core.errors import InvalidArgumentError

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
EPISODES = "episodes of "
"""Start of the recipe of a network that was trained as part of a few-shot system."""


@dataclass(frozen=True)
class InputSpec:
    """The images a network expects.

    The shorter side is scaled to ``resize`` pixels and the central square of ``crop`` pixels is
    cut out. Pixels between 0 and 1 are then normalised with ``mean`` and ``std`` per channel.

    Examples
    --------
    >>> from infoshot import InputSpec
    >>> spec = InputSpec()
    >>> spec.resize, spec.crop
    (96, 84)
    >>> spec.normalise(torch.zeros(1, 3, 84, 84)).shape
    torch.Size([1, 3, 84, 84])
    """

    crop: int = 84
    resize: int = 96
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD

    def normalise(self, images: Tensor) -> Tensor:
        """Normalise pixels between 0 and 1, shape ``(batch, 3, height, width)``."""
        mean, std = (images.new_tensor(values).view(1, 3, 1, 1) for values in (self.mean, self.std))
        return (images - mean) / std


class Backbone(nn.Module, ABC):
    """A network that maps images to feature vectors. It has no classifier.

    Examples
    --------
    >>> from infoshot.backbones import make_backbone
    >>> network = make_backbone("conv4").eval()
    >>> network(torch.zeros(1, 3, 84, 84)).shape[1] == network.feature_dim
    True
    """

    feature_dim: int
    input_spec: InputSpec
    thread_safe: bool = True  # whether several threads may call it at the same time

    def stages(self) -> tuple[nn.Module, ...]:
        """Return the consecutive parts of the network, for training that mixes their outputs."""
        return ()

    def maps(self, images: Tensor) -> Tensor:
        """Compute feature maps of normalised images: their spatial mean is the feature vector.

        Parameters
        ----------
        images
            Shape ``(batch, 3, height, width)``, normalised as ``input_spec`` says.

        Returns
        -------
        Shape ``(batch, feature_dim, height, width)``, with the height and width of the map.

        Raises
        ------
        InvalidArgumentError
            If the network gives vectors only, as plain modules and external encoders do.
        """
        raise InvalidArgumentError(
            f"the backbone must give feature maps, but {type(self).__name__} gives vectors only; "
            "use a network of this package, such as resnet12, or a Backbone that defines maps()."
        )

    @abstractmethod
    def forward(self, images: Tensor) -> Tensor:
        """Compute features of normalised images.

        Parameters
        ----------
        images
            Shape ``(batch, 3, height, width)``, normalised as ``input_spec`` says.

        Returns
        -------
        Shape ``(batch, feature_dim)``.
        """


@dataclass(frozen=True, eq=False)
class StoredSystem:
    """The head of a few-shot system, as a checkpoint holds it.

    Parameters
    ----------
    name
        Name of the system, such as ``protonet``.
    settings
        Hyperparameters of the head by name, as JSON values.
    tensors
        The ``state_dict`` of the head.
    digest
        The sha256 of the stored tensors; empty before they are stored.
    """

    name: str
    settings: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    digest: str = ""


@dataclass(frozen=True, eq=False)
class Encoder:
    """A frozen backbone with its weights, in evaluation mode.

    Parameters
    ----------
    backbone_name
        What to pass to :func:`infoshot.open_encoder` or ``make_backbone`` to get the same network.
    backbone
        The network.
    digest
        The sha256 of the weights, and of everything else that determines the features of an image.
    class_names, config
        The classes it was trained on and the training configuration, if they are known.
    classifier
        Weight and bias of the linear classifier it was trained with, or weight and scale of a
        cosine classifier, if they are known; rows are in the order of ``class_names``. Features do
        not depend on it.
    system
        The head of the few-shot system it was trained with, if it was. Features do not depend on
        it.
    epoch, chosen_as
        The number of epochs it was trained for, and whether it is the ``best`` on validation
        classes or the ``last`` of its training; ``None`` and empty if unknown.

    Examples
    --------
    >>> from infoshot import open_encoder
    >>> encoder = open_encoder("efficientnet-lite0")
    >>> encoder.backbone_name, encoder.backbone.feature_dim, encoder.backbone.input_spec.crop
    ('efficientnet-lite0', 1280, 224)
    """

    backbone_name: str
    backbone: Backbone
    digest: str
    class_names: tuple[str, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    classifier: Mapping[str, Tensor] | None = None
    epoch: int | None = None
    chosen_as: str = ""
    system: StoredSystem | None = None

    @property
    def trained_on(self) -> str:
        """The data set it was trained on; empty if unknown."""
        return str(self.config.get("dataset", ""))

    @property
    def recipe(self) -> str:
        """How its training differs from the smoothed cross-entropy of a linear classifier.

        Such as ``cosine fixed, margin -0.02`` or ``episodes of protonet``; empty if it does not,
        or if the training is unknown.
        """
        config = self.config
        if config.get("system"):
            return f"{EPISODES}{config['system']}"
        scaling = config.get("classifier_scaling", "learned")
        parts = {
            f"cosine {scaling}": config.get("classifier") == "cosine",
            f"margin {config.get('margin')}": bool(config.get("margin")),
            "rotation": bool(config.get("rotation_weight")),
            "mixup": bool(config.get("mixup")),
            "distilled": bool(config.get("teacher_sha256")),
        }
        unsmoothed = "not smoothed" if config.get("label_smoothing", 0.1) == 0 else ""
        return ", ".join(name for name, used in parts.items() if used) or unsmoothed

    def training_record(self) -> dict[str, str]:
        """Return what is known about the training, as text for the provenance of features."""
        epoch = "" if self.epoch is None else str(self.epoch)
        known = {
            "trained_on": self.trained_on,
            "recipe": self.recipe,
            "epoch": epoch,
            "checkpoint": self.chosen_as,
        }
        return {name: text for name, text in known.items() if text}


def weights_content(weights: Mapping[str, Tensor], dtype: torch.dtype = torch.float32) -> bytes:
    """Weights as the bytes of a safetensors file, floating-point tensors in ``dtype``."""
    return save(
        {
            name: value.detach()
            .to("cpu", dtype if value.is_floating_point() else value.dtype)
            .contiguous()
            for name, value in weights.items()
        }
    )


def weights_digest(backbone: Backbone) -> str:
    """Return the sha256 of the weights of a network."""
    return hashlib.sha256(weights_content(backbone.state_dict())).hexdigest()


def init_convolutions(network: nn.Module) -> None:
    """Initialise every convolution with Kaiming's normal distribution (fan out), as published."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
