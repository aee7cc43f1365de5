"""Models of timm with pretrained weights. Features are the input of their classifier."""

import difflib
import math
from typing import Any, final

from torch import Tensor, nn

from infoshot.backbones.backbone import Backbone, Encoder, InputSpec
from infoshot.backbones.external import external_checks
from infoshot.core.errors import DataError, InvalidArgumentError


@final
class TimmBackbone(Backbone):
    """A model of timm without its classifier."""

    def __init__(self, model: nn.Module, input_spec: InputSpec) -> None:
        super().__init__()
        self.model = model
        self.input_spec = input_spec

    def forward(self, images: Tensor) -> Tensor:
        """Pooled output of the model."""
        return self.model(images)  # type: ignore[no-any-return]


def open_timm(name: str) -> Encoder:
    """Open a model by its name; timm downloads its weights if it has not cached them.

    Raises
    ------
    InvalidArgumentError
        If timm has no model of that name.
    DataError
        If its weights cannot be loaded, or it does not accept square images.
    """
    (timm,) = external_checks.packages("timm", "timm")
    architecture = name.partition(".")[0]
    if ":" not in name and not timm.is_model(architecture):
        near = difflib.get_close_matches(architecture, timm.list_models(), n=1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise InvalidArgumentError(f"Unknown timm model '{name}'.{hint}")
    what = f"timm:{name}"
    try:
        model = timm.create_model(name, pretrained=True, num_classes=0)
    except Exception as error:  # of many kinds
        raise DataError(
            f"{what}: timm cannot open it ({external_checks.reason(error)})."
        ) from error
    spec = _input_spec(what, timm.data.resolve_model_data_config(model))
    backbone = TimmBackbone(model.float(), spec)
    backbone.feature_dim = external_checks.feature_width(what, backbone.eval())
    facts = {"model": name, "input": vars(spec)}
    return Encoder(what, backbone, external_checks.network_digest(backbone, facts))


def _input_spec(what: str, config: dict[str, Any]) -> InputSpec:
    """Use the transform of timm's own evaluation: the crop is a share of the resized image."""
    n_channels, height, width = config["input_size"]
    if n_channels != 3 or height != width:
        raise DataError(f"{what}: must take square colour images; takes {config['input_size']}.")
    return InputSpec(
        crop=height,
        resize=math.floor(height / config["crop_pct"]),
        mean=external_checks.channels(f"{what}: mean", config["mean"]),
        std=external_checks.scales(f"{what}: std", config["std"]),
    )
