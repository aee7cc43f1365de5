"""Features of single images, kept by what the image holds and by the encoder that saw it.

Every encoder has a folder, named by the digest of all its features depend on besides the image. In
it are parts: safetensors files with the sha256 of images and their features, named by the digest of
their own content, so that a damaged one is noticed. Parts appear whole or not at all and never
change; losing one only means that its images are seen again.
"""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from infoshot.core.atomic import make_folder, write_atomically
from infoshot.features.cache import cache_key

_MANY_PARTS = 8
_LONG_AGO = 3600.0  # seconds; younger ones may be of a process that is writing now
_LARGE = 2**27  # parts that hold as many bytes are not merged any more


class FeatureStore:
    """The features that one encoder has made so far.

    Parameters
    ----------
    folder
        Where all encoders keep theirs.
    encoder
        Everything the features depend on, besides the image.
    """

    def __init__(self, folder: Path, encoder: Mapping[str, str]) -> None:
        self.folder = folder / cache_key(encoder)[:32]
        self._about = {"encoder": json.dumps(dict(encoder), sort_keys=True)}

    def read(self, digests: Sequence[str]) -> dict[str, Tensor]:
        """Features of those images that are there, each of shape ``(feature_dim,)``."""
        wanted, found = set(digests), {}
        for path in sorted(self.folder.glob("part-*.safetensors")):
            part = _read(path)
            if part is None:
                continue
            names, features = part
            found.update({name: features[i] for i, name in enumerate(names) if name in wanted})
        return found

    def add(self, digests: Sequence[str], features: Tensor) -> None:
        """Keep features of images, shape ``(image, feature_dim)``, on the disk when it returns."""
        make_folder(self.folder)
        self._write(digests, features)

    def tidy(self) -> None:
        """Make one part of many small ones, and clear away what killed writers left long ago."""
        for leftover in self.folder.glob(".*.part"):
            if time.time() - leftover.stat().st_mtime > _LONG_AGO:
                leftover.unlink(missing_ok=True)
        small = [
            path for path in self.folder.glob("part-*.safetensors") if path.stat().st_size < _LARGE
        ]
        if len(small) < _MANY_PARTS:
            return
        parts = [part for path in small if (part := _read(path)) is not None]
        merged = {name: row for names, rows in parts for name, row in zip(names, rows, strict=True)}
        written = self._write(list(merged), torch.stack(list(merged.values()))) if merged else None
        for path in small:
            if path != written:
                path.unlink(missing_ok=True)

    def _write(self, digests: Sequence[str], features: Tensor) -> Path:
        names = torch.frombuffer(bytearray.fromhex("".join(digests)), dtype=torch.uint8)
        tensors = {"digests": names.view(-1, 32), "features": features.float().contiguous()}
        content = save(tensors, metadata=self._about)
        path = self.folder / f"part-{hashlib.sha256(content).hexdigest()[:32]}.safetensors"
        write_atomically(path, content)
        return path


def _read(path: Path) -> tuple[list[str], Tensor] | None:
    """Return the digests and features of a part, unless it is gone or damaged."""
    try:
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest()[:32] != path.stem.removeprefix("part-"):
            return None
        tensors = load(content)
        return [bytes(row).hex() for row in tensors["digests"].numpy()], tensors["features"]
    except (OSError, SafetensorError, KeyError):
        return None
