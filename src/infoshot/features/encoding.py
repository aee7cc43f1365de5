"""Pass batches of crops through a network, by PyTorch or by ONNX Runtime.

Batches always have the same size (the last one is padded with black images), and on a CPU every
batch runs on one core: threads that share a layer busy-wait for each other, which takes three times
as long when other processes use the cores.
"""

from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from infoshot.backbones import Backbone, Encoder, InputSpec
from infoshot.core.errors import DataError
from infoshot.core.interrupts import Deferred
from infoshot.core.parallel import map_chunks
from infoshot.core.pixels import Pixels
from infoshot.core.progress import SILENT, Progress
from infoshot.features.onnx_network import NotExportedError, is_exportable, open_session

Forward = Callable[[NDArray[np.uint8]], Tensor]
"""Features of a batch of crops, ``(batch, height, width, 3)``, on the CPU."""


def encode_batches(
    crops: Iterator[Pixels],
    encoder: Encoder,
    *,
    crop: int,
    batch_size: int,
    device: str = "cpu",
    progress: Progress = SILENT,
) -> Iterator[Tensor]:
    """Pass crops through the network as they arrive; yield rows ``(image, dim)`` on the CPU.

    On a CPU the networks of this package run by ONNX Runtime; if that is not possible, ``progress``
    says why.

    Parameters
    ----------
    crops
        The images.
    encoder
        The network.
    crop
        Side of the crops in pixels.
    batch_size
        Crops per forward pass.
    device, progress
        Where the network runs, and where messages go.

    Raises
    ------
    DataError
        If features are not finite.
    """
    forward, n_threads = _open_forward(encoder, crop, device, progress)

    def features(batch: list[Pixels]) -> Tensor:
        pixels = np.stack(batch)
        padding = np.zeros((batch_size - len(batch), *pixels.shape[1:]), pixels.dtype)
        return forward(np.concatenate((pixels, padding)))[: len(batch)]

    batches = iter(lambda: list(islice(crops, batch_size)), [])
    # Full float32 products, so that features do not depend on the device.
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        for rows in map_chunks(features, batches, n_threads, split_single=False):
            if not rows.isfinite().all():
                raise DataError(
                    f"the weights of this {encoder.backbone_name} give features that are not "
                    "finite."
                )
            yield rows.clone()  # an ordinary tensor, outside of inference mode


def encode_batch(backbone: Backbone, images: Tensor) -> Tensor:
    """Compute the features of a batch of uint8 crops ``(batch, 3, height, width)``, in float32."""
    return backbone(prepare_images(images, backbone.input_spec)).float()  # type: ignore[no-any-return]


def prepare_images(images: Tensor, spec: InputSpec) -> Tensor:
    """Turn uint8 crops into the input of a network: float32, normalised, channels last."""
    return spec.normalise((images.float() / 255).to(memory_format=torch.channels_last))


def _open_forward(
    encoder: Encoder, crop: int, device: str, progress: Progress
) -> tuple[Forward, int]:
    """Return the function that computes features, and how many threads may call it."""
    backbone, n_threads = encoder.backbone.eval(), torch.get_num_threads()
    if torch.device(device).type == "cpu" and is_exportable(backbone):
        try:
            backbone.to("cpu")
            with Deferred():
                session = open_session(encoder, crop)
        except NotExportedError as reason:
            progress.say(f"encoding by PyTorch, which is slower: {reason}")
        else:
            return lambda pixels: torch.from_numpy(session(pixels)), n_threads
    # Convolutions are several times faster with the channels last, on CPUs and on GPUs.
    backbone.to(device=torch.device(device), memory_format=torch.channels_last)  # type: ignore[call-overload]

    @torch.inference_mode()
    def forward(pixels: NDArray[np.uint8]) -> Tensor:
        images = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()
        return encode_batch(backbone, images.to(device)).cpu()

    on_cpu = all(weights.device.type == "cpu" for weights in backbone.parameters())
    return forward, n_threads if on_cpu and backbone.thread_safe else 1
