"""The networks of this package on a CPU, run by ONNX Runtime.

It takes a third to a half of PyTorch's time (``perf/encoding.py``); features differ by rounding
only. A network is exported once for every size of its images and kept in the cache folder, in a
file with the digests of the weights and of its own content as name, so that a damaged or changed
file is noticed and made again. A cache that other users can write to is not used for networks.
Every export is compared with PyTorch before it is used.
"""

import hashlib
import importlib
import io
import json
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, final
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from infoshot.backbones import BACKBONES, Backbone, Encoder
from infoshot.core.atomic import write_atomically
from infoshot.core.cache_folder import check_access, default_cache_folder, make_inner_folder
from infoshot.core.errors import InfoshotError
from infoshot.core.pixels import Pixels
from infoshot.core.regular_file import read_regular
from infoshot.version import __version__

FOLDER = "networks"
_OPSET = 17
_LARGEST = 2**30  # bytes of a file
_LARGEST_DIFFERENCE = 1e-4  # relative, from PyTorch
_EXPORTED = frozenset(BACKBONES.values())

Forward = Callable[[NDArray[np.uint8]], NDArray[np.float32]]
"""Features of a batch of crops, ``(batch, height, width, 3)``; threads may share it."""


_Weights = tuple[str, int]  # their digest, and the size of the images
_sessions: WeakKeyDictionary[Backbone, dict[_Weights, Forward]] = WeakKeyDictionary()


class NotExportedError(Exception):
    """A network has to run by PyTorch; the message says why."""


def is_exportable(backbone: Backbone) -> bool:
    """Whether this is a network of this package."""
    return type(backbone) in _EXPORTED


def open_session(encoder: Encoder, crop: int) -> Forward:
    """Open a network of this package with ONNX Runtime, one thread per call.

    Parameters
    ----------
    encoder
        The network, on the CPU.
    crop
        Side of its images in pixels.

    Raises
    ------
    NotExportedError
        If the packages are missing, or the network cannot be exported.
    """
    try:
        runtime: Any = importlib.import_module("onnxruntime")
        importlib.import_module("onnx")
    except Exception as error:  # a package built for another system may raise anything
        raise NotExportedError("onnx and onnxruntime cannot be imported") from error
    sessions = _sessions.setdefault(encoder.backbone, {})
    if (encoder.digest, crop) in sessions:
        return sessions[encoder.digest, crop]
    kept = _Kept(encoder, crop)
    forward = _reopen(runtime, kept)
    if forward is None:
        try:
            content = _export(encoder.backbone, crop)
            forward = _start(runtime, content)
            _compare(encoder.backbone, forward, crop)
        except NotExportedError:
            raise
        except Exception as error:  # of many kinds
            raise NotExportedError(f"the export failed with {type(error).__name__}") from error
        kept.write(content)
    if encoder.digest:
        sessions[encoder.digest, crop] = forward
    return forward


def _reopen(runtime: Any, kept: "_Kept") -> Forward | None:  # noqa: ANN401
    """Open the file of an earlier export, if there is one that still works."""
    content = kept.read()
    with suppress(Exception):  # the file of another version
        return None if content is None else _start(runtime, content)
    return None


def _start(runtime: Any, content: bytes) -> Forward:  # noqa: ANN401
    """Start a session that computes each batch with one thread."""
    options = runtime.SessionOptions()
    options.log_severity_level = 4  # errors are raised instead
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # batches run in parallel
    session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return lambda crops: session.run(None, {"crops": crops})[0]


@final
class _OfCrops(nn.Module):
    """The features of uint8 crops ``(batch, height, width, 3)``."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, crops: Tensor) -> Tensor:
        images = crops.permute(0, 3, 1, 2).float() / 255
        return self.backbone(self.backbone.input_spec.normalise(images)).float()  # type: ignore[no-any-return]


def _export(backbone: Backbone, crop: int) -> bytes:
    file, example = io.BytesIO(), torch.zeros(1, crop, crop, 3, dtype=torch.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the tracer, about sizes that are constant here
        torch.onnx.export(
            _OfCrops(backbone).eval(),
            (example,),
            file,  # type: ignore[arg-type]  # its annotation names paths only
            dynamo=False,  # the other exporter needs one more package
            opset_version=_OPSET,
            input_names=["crops"],
            output_names=["features"],
            dynamic_axes={"crops": {0: "batch"}, "features": {0: "batch"}},
        )
    return file.getvalue()


def _compare(backbone: Backbone, forward: Forward, crop: int) -> None:
    """Raise if an export does not compute the features of PyTorch."""
    crops: Pixels = np.random.default_rng(0).integers(0, 256, (2, crop, crop, 3), np.uint8)
    with torch.inference_mode():
        expected = _OfCrops(backbone).eval()(torch.from_numpy(crops)).numpy()
    difference = np.linalg.norm(forward(crops) - expected)
    if not difference <= _LARGEST_DIFFERENCE * np.linalg.norm(expected):
        raise NotExportedError("the exported network gives other features")


class _Kept:
    """The file of an exported network in the cache folder, if there can be one."""

    def __init__(self, encoder: Encoder, crop: int) -> None:
        spec = encoder.backbone.input_spec
        facts = [encoder.backbone_name, encoder.digest, crop, spec.mean, spec.std, _OPSET]
        versions = [__version__, torch.__version__]
        self._key = _digest(json.dumps([*facts, *versions]).encode())
        self._folder: Path | None = None
        with suppress(InfoshotError):
            folder = default_cache_folder() / FOLDER
            if encoder.digest and not check_access(folder, warn=False):
                self._folder = folder

    def read(self) -> bytes | None:
        """Return the content; ``None`` if there is no file, or it is not what was written."""
        if self._folder is None:
            return None
        with suppress(OSError):
            for path in sorted(self._folder.glob(f"{self._key}-*.onnx")):
                content = None if path.is_symlink() else read_regular(path, _LARGEST)
                if content is not None and path.stem == f"{self._key}-{_digest(content)}":
                    return content
        return None

    def write(self, content: bytes) -> None:
        """Write the file; a cache that cannot be written to is no error."""
        if self._folder is not None:
            with suppress(InfoshotError, OSError):
                make_inner_folder(self._folder)
                write_atomically(self._folder / f"{self._key}-{_digest(content)}.onnx", content)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]
