"""Any ``torch.nn.Module`` that maps images to vectors as an encoder."""

import hashlib
import inspect
import re
from types import CodeType
from typing import final

from torch import Tensor, nn

from infoshot.backbones.backbone import Backbone, Encoder, InputSpec
from infoshot.backbones.external import external_checks
from infoshot.core.errors import InvalidArgumentError


@final
class PlainModule(Backbone):
    """A module of the user, and the images it expects.

    It may store values between calls, for example in a hook, so that one thread calls it.

    The module may declare the images it expects in an attribute ``input_spec``, an
    :class:`InputSpec`. The default is that of the networks here: 84 pixels, ImageNet's mean and
    standard deviation.
    """

    thread_safe = False

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
    """Use a module, with its current weights, as an encoder.

    The digest covers the weights, the input, the layers with their plain attributes, and the code
    of their classes, so that features are computed again after any of them changed. The module is
    put into evaluation mode, and encoding moves it to the device.
    """
    own = module.module if isinstance(module, PlainModule) else module
    name = name or f"{type(own).__module__}:{type(own).__qualname__}"
    backbone = as_backbone(module, name).eval()
    classes = {type(part) for part in own.modules()}
    facts = {
        "classes": sorted(
            f"{kind.__module__}.{kind.__qualname__} {source_digest(kind)}" for kind in classes
        ),
        "layers": re.sub(r" at 0x[0-9a-f]+", "", repr(own)),
        "attributes": [_plain_attributes(part) for part in own.modules()],
        "input": vars(backbone.input_spec),
    }
    return Encoder(name, backbone, external_checks.network_digest(backbone, facts))


def source_digest(kind: type) -> str:
    """Return the sha256 of the code of a class; empty for classes of PyTorch."""
    if kind.__module__.startswith("torch."):
        return ""
    try:
        code = inspect.getsource(kind)
    except (OSError, TypeError):  # typed at a prompt
        functions = (value for value in vars(kind).values() if inspect.isfunction(value))
        code = repr([_code_facts(function.__code__) for function in functions])
    return hashlib.sha256(code.encode()).hexdigest()


def _code_facts(code: CodeType) -> list[object]:
    """Return what determines the result of compiled code."""
    constants = [_code_facts(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return [code.co_code.hex(), code.co_names, constants]


def _plain_attributes(module: nn.Module) -> dict[str, str]:
    """Return public attributes of a module that are numbers, texts or collections of them."""
    plain = (bool, int, float, str, tuple, list, dict, set, frozenset, type(None))
    return {
        name: repr(value)
        for name, value in sorted(vars(module).items())
        if not name.startswith("_") and name != "training" and isinstance(value, plain)
    }
