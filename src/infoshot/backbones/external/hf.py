"""Vision models of Hugging Face transformers: ViT, DeiT, DINOv2, DINOv3, CLIP, SigLIP.

Features are the image embedding of models that embed text and images (CLIP, SigLIP), the pooled
output of their vision towers, and the class token after the last normalisation of all others. Size,
mean and standard deviation come from the configuration of the image processor. Images are resized
and cropped as for every other encoder (shorter side, bilinear, central square), even if the
processor would squash them to a square or use bicubic interpolation. No code that comes with a
model is executed.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, final

from torch import Tensor, nn

from infoshot.backbones.backbone import Backbone, Encoder, InputSpec
from infoshot.backbones.external import external_checks
from infoshot.core.errors import DataError, InfoshotError

_EMBEDDING = ("clip", "siglip")
_POOLED = ("clip_vision_model", "siglip_vision_model")
_CLASS_TOKEN = ("vit", "deit", "dinov2", "dinov2_with_registers", "dinov3_vit")
_KNOWN = (*_CLASS_TOKEN, *_EMBEDDING, *_POOLED)


@final
class HfBackbone(Backbone):
    """A model of transformers that returns one of its outputs.

    ``source`` is the folder or the id that it was opened from.
    """

    def __init__(
        self, model: nn.Module, model_type: str, input_spec: InputSpec, source: str, is_local: bool
    ) -> None:
        super().__init__()
        self.model: Any = model
        self.model_type = model_type
        self.input_spec = input_spec
        self.source, self.is_local = source, is_local

    @property
    def embeds_text(self) -> bool:
        """Whether the model embeds text too; see ``text_tower.py``."""
        return self.model_type in _EMBEDDING

    def forward(self, images: Tensor) -> Tensor:
        """Return the embedding, the pooled output or the class token, by the type of the model."""
        if self.model_type in _EMBEDDING:
            return self.model.get_image_features(pixel_values=images).pooler_output  # type: ignore[no-any-return]
        out = self.model(pixel_values=images)
        return out.pooler_output if self.model_type in _POOLED else out.last_hidden_state[:, 0]  # type: ignore[no-any-return]


def open_hf(name: str) -> Encoder:
    """Open a folder written by ``save_pretrained``, or a model of the Hugging Face hub by its id.

    Raises
    ------
    DataError
        If the model does not exist, is damaged, or has a type that is not supported.
    """
    folder = Path(name).expanduser()
    local = folder.is_dir()
    source = str(folder) if local else name
    what = source if local else f"hf:{name}"
    with reading_hf(what, "vision model") as transformers:
        options = {"local_files_only": local}
        config = transformers.AutoConfig.from_pretrained(source, trust_remote_code=False, **options)
        if config.model_type not in _KNOWN:
            raise DataError(
                f"{what}: the model type {config.model_type} is not supported; these are: "
                f"{', '.join(_KNOWN)}."
            )
        mixin = transformers.ImageProcessingMixin  # the classes themselves may need torchvision
        spec = _input_spec(what, mixin.get_image_processor_dict(source, **options)[0])
        model, found = transformers.AutoModel.from_pretrained(
            source, config=config, trust_remote_code=False, output_loading_info=True, **options
        )
    vision = _vision(what, model, found["missing_keys"])
    backbone = HfBackbone(vision, config.model_type, spec, source, local)
    backbone.feature_dim = external_checks.feature_width(what, backbone.eval())
    about = {"input": vars(spec), "transformers_version": None}  # does not change the model
    digest = external_checks.network_digest(backbone, config.to_diff_dict() | about)
    return Encoder(f"hf:{folder.resolve().name if local else name}", backbone, digest)


@contextmanager
def reading_hf(what: str, part: str) -> Iterator[ModuleType]:
    """Give transformers, silenced, and turn its exceptions into one sentence."""
    (transformers,) = external_checks.packages("hf", "transformers")
    import huggingface_hub as hub

    logging = transformers.logging
    verbosity, shows_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    hub_verbosity = hub.utils.logging.get_verbosity()
    logging.set_verbosity_error()
    hub.utils.logging.set_verbosity(logging.get_verbosity())  # it reports every attempt
    logging.disable_progress_bar()
    try:
        yield transformers
    except InfoshotError:
        raise
    except Exception as error:  # of many kinds
        if isinstance(error.__cause__, hub.errors.LocalEntryNotFoundError):
            raise DataError(
                f"{what}: the Hugging Face hub cannot be reached, and this machine has no copy of "
                "the model; download it elsewhere, copy its folder to this machine and pass "
                "'hf:FOLDER' (docs/encoders.md)."
            ) from error
        raise DataError(
            f"{what}: transformers cannot read a {part} ({external_checks.reason(error)})."
        ) from error
    finally:
        logging.set_verbosity(verbosity)
        hub.utils.logging.set_verbosity(hub_verbosity)
        if shows_bars:
            logging.enable_progress_bar()


def _vision(what: str, model: Any, missing: Iterable[str]) -> nn.Module:  # noqa: ANN401
    """Return the part that encodes images, in float32; raise if weights are missing."""
    if model.config.model_type in _EMBEDDING:
        model.text_model = None  # images do not use it
    if model.config.model_type in _CLASS_TOKEN:
        model.pooler = None  # after the class token, often untrained
    absent = sorted(set(missing) & model.state_dict().keys())
    if absent:
        raise DataError(
            f"{what}: {len(absent)} of its weights are missing (such as '{absent[0]}')."
        )
    return model.float()  # type: ignore[no-any-return]


def _input_spec(what: str, processor: Mapping[str, Any]) -> InputSpec:
    """Read size, mean and standard deviation from the configuration of the image processor."""

    def value(name: str) -> tuple[str, Any]:
        return f"{what}: '{name}' of the image processor", processor.get(name)

    resize = crop = _side(*value("size"))
    if processor.get("do_center_crop", "crop_size" in processor):
        crop = _side(*value("crop_size"))
    subject, factor = value("rescale_factor")
    if processor.get("do_rescale") is False or not math.isclose(factor or 1 / 255, 1 / 255):
        raise DataError(f"{subject} must be 1/255; got {factor!r}.")
    if processor.get("do_normalize") is False:
        return InputSpec(crop, resize, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    mean, std = (
        external_checks.channels(*value("image_mean")),
        external_checks.scales(*value("image_std")),
    )
    return InputSpec(crop, resize, mean, std)


def _side(what: str, size: object) -> int:
    """Read the side of a square: a number, ``shortest_edge``, or height and width."""
    if isinstance(size, dict):
        sides = {size[name] for name in ("shortest_edge", "height", "width") if name in size}
        size = sides.pop() if len(sides) == 1 else size
    return external_checks.side(what, size)
