"""Vision models in the layout of Hugging Face: ViT, DeiT, DINOv2, DINOv3, CLIP, SigLIP.

Features are the embedding of the image where text and images share one (CLIP, SigLIP), the pooled
output where there is only their vision tower, and the class token after the last normalisation
elsewhere. Sizes, mean and scale are those of the image processor's configuration. Images are scaled
and cropped as ours always are (shorter side, bilinear, middle square), also where the processor
would squeeze them into a square or scale them bicubically. No code that comes with a model is run.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, final

from torch import Tensor, nn

from infoshot.backbones.backbone import Backbone, InputSpec
from infoshot.backbones.checkpoints import Checkpoint
from infoshot.backbones.external import checked
from infoshot.core.errors import DataError, InfoshotError

_EMBEDDING = ("clip", "siglip")
_POOLED = ("clip_vision_model", "siglip_vision_model")
_CLASS_TOKEN = ("vit", "deit", "dinov2", "dinov2_with_registers", "dinov3_vit")
_KNOWN = (*_CLASS_TOKEN, *_EMBEDDING, *_POOLED)


@final
class HfBackbone(Backbone):
    """A model of transformers, and which of its outputs is taken."""

    def __init__(self, model: nn.Module, model_type: str, input_spec: InputSpec) -> None:
        super().__init__()
        self.model: Any = model
        self.model_type = model_type
        self.input_spec = input_spec

    def forward(self, images: Tensor) -> Tensor:
        """Embedding, pooled output or class token, whichever the kind of model has."""
        if self.model_type in _EMBEDDING:
            return self.model.get_image_features(pixel_values=images).pooler_output  # type: ignore[no-any-return]
        out = self.model(pixel_values=images)
        return out.pooler_output if self.model_type in _POOLED else out.last_hidden_state[:, 0]  # type: ignore[no-any-return]


def open_hf(name: str) -> Checkpoint:
    """Open a folder written by ``save_pretrained``, or a model of the hub by its id.

    Raises
    ------
    DataError
        If there is no such model, it is damaged, or of a kind that is not known here.
    """
    (transformers,) = checked.packages("hf", "transformers")
    folder = Path(name).expanduser()
    local = folder.is_dir()
    source = str(folder) if local else name
    what = source if local else f"hf:{name}"
    with _reading(transformers, what):
        options = {"local_files_only": local}
        config = transformers.AutoConfig.from_pretrained(source, trust_remote_code=False, **options)
        if config.model_type not in _KNOWN:
            raise DataError(
                f"{what}: a model of type {config.model_type}; known: {', '.join(_KNOWN)}."
            )
        mixin = transformers.ImageProcessingMixin  # the classes themselves may need torchvision
        spec = _input_spec(what, mixin.get_image_processor_dict(source, **options)[0])
        model, found = transformers.AutoModel.from_pretrained(
            source, config=config, trust_remote_code=False, output_loading_info=True, **options
        )
    backbone = HfBackbone(_vision(what, model, found["missing_keys"]), config.model_type, spec)
    backbone.feature_dim = checked.feature_width(what, backbone.eval())
    about = {"input": vars(spec), "transformers_version": None}  # another version, the same model
    digest = checked.weights_digest(backbone, config.to_diff_dict() | about)
    return Checkpoint(f"hf:{folder.resolve().name if local else name}", backbone, digest)


@contextmanager
def _reading(transformers: ModuleType, what: str) -> Iterator[None]:
    """Keep transformers silent, and make one sentence of whatever it raises."""
    logging = transformers.logging
    verbosity, shows_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    except InfoshotError:
        raise
    except Exception as error:  # of many kinds
        raise DataError(
            f"{what}: transformers can read no vision model there ({checked.reason(error)})."
        ) from error
    finally:
        logging.set_verbosity(verbosity)
        if shows_bars:
            logging.enable_progress_bar()


def _vision(what: str, model: Any, missing: Iterable[str]) -> nn.Module:  # noqa: ANN401
    """Return the parts that images pass through, in float32, all of them with weights."""
    if model.config.model_type in _EMBEDDING:
        model.text_model = None  # no image passes through it
    if model.config.model_type in _CLASS_TOKEN:
        model.pooler = None  # behind the class token, and often with random weights
    absent = sorted(set(missing) & model.state_dict().keys())
    if absent:
        raise DataError(
            f"{what}: {len(absent)} of its weights are missing (such as '{absent[0]}')."
        )
    return model.float()  # type: ignore[no-any-return]


def _input_spec(what: str, processor: Mapping[str, Any]) -> InputSpec:
    """Sizes, mean and scale as the image processor states them."""

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
    mean, std = checked.channels(*value("image_mean")), checked.scales(*value("image_std"))
    return InputSpec(crop, resize, mean, std)


def _side(what: str, size: object) -> int:
    """Side of a square, written as a number, as ``shortest_edge``, or as height and width."""
    if isinstance(size, dict):
        sides = {size[name] for name in ("shortest_edge", "height", "width") if name in size}
        size = sides.pop() if len(sides) == 1 else size
    return checked.side(what, size)
