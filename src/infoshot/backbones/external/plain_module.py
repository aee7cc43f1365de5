"""Any ``torch.nn.Module`` that maps images to vectors as an encoder."""

import hashlib
import inspect
import re
from typing import final

from torch import Tensor, nn

from infoshot.backbones.backbone import Backbone, Encoder, InputSpec
from infoshot.backbones.external import external_checks
from infoshot.core.errors import InvalidArgumentError


@final
class PlainModule(Backbone):
    """A module of the user, and the images it expects.

    The module may say which images it expects by an attribute ``input_spec``, an
    :class:`InputSpec`. The default is that of the networks here: 84 pixels, ImageNet's mean and
    standard deviation.
    """

    def __init__(self, module: nn.Module, input_spec: InputSpec) -> None:
        super().__init__()
        self.module = module
        self.input_spec = input_spec

    def forward(self, images: Tensor) -> Tensor:
        """Apply the module."""
        return self.module(images)  # type: ignore[no-any-return]


def as_backbone(module: nn.Module, name: str) -> Backbone:
    """Wrap a module, and find out how many features it returns; a backbone stays as it is.

    Raises
    ------
    InvalidArgumentError
        If ``input_spec`` is not an :class:`InputSpec`.
    DataError
        If the module does not return one vector per image.
    """
    if isinstance(module, Backbone):
        return module
    spec = getattr(module, "input_spec", InputSpec())
    if not isinstance(spec, InputSpec):
        raise InvalidArgumentError(
            f"'{name}': input_spec must be an infoshot.InputSpec; got {type(spec).__name__}."
        )
    backbone, training = PlainModule(module, spec), module.training
    backbone.feature_dim = external_checks.feature_width(name, backbone.eval())
    return backbone.train(training)


def open_module(module: nn.Module, name: str | None = None) -> Encoder:
    """Use a module with the weights it has as an encoder.

    The digest covers the weights, the input, the layers and, where Python can find it, the source
    code of the classes, so that features are computed again after any of them changed.
    """
    own = module.module if isinstance(module, PlainModule) else module
    name = name or f"{type(own).__module__}:{type(own).__qualname__}"
    backbone = as_backbone(module, name).eval()
    classes = {type(part) for part in own.modules()}
    facts = {
        "classes": sorted(
            f"{kind.__module__}.{kind.__qualname__} {_source_digest(kind)}" for kind in classes
        ),
        "layers": re.sub(r" at 0x[0-9a-f]+", "", repr(own)),
        "input": vars(backbone.input_spec),
    }
    return Encoder(name, backbone, external_checks.network_digest(backbone, facts))


def _source_digest(kind: type) -> str:
    """Return the sha256 of the source code of a class; empty if it is PyTorch's or not found."""
    if kind.__module__.startswith("torch."):
        return ""
    try:
        return hashlib.sha256(inspect.getsource(kind).encode()).hexdigest()
    except (OSError, TypeError):  # typed at a prompt, or compiled
        return ""
