"""The cache of features: keyed by the content of an image and by everything else they depend on.

Every encoder has a folder named by the digest of its provenance. In it are parts: safetensors files
with the sha256 of images and their features, named by the digest of their own content, so that a
damaged part is noticed. Parts appear whole or not at all and never change, so that several
processes may use one cache. If a part is lost, its images are encoded again.
"""

import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from infoshot.core.atomic import make_folder, write_atomically
from infoshot.core.regular_file import read_regular

_MANY_PARTS = 8
_OLD = 3600.0  # seconds; younger temporary files may belong to a process that is writing
_LARGE = 2**27  # bytes; larger parts are not merged


def default_cache_folder() -> Path:
    """Return ``INFOSHOT_CACHE`` if it is set, else the user's cache folder."""
    if given := os.environ.get("INFOSHOT_CACHE"):
        return Path(given)
    from platformdirs import user_cache_path

    return user_cache_path("infoshot", appauthor=False)


class FeatureCache:
    """The features that one encoder has computed so far.

    Parameters
    ----------
    folder
        The folder that all encoders share.
    provenance
        Everything the features depend on besides the image, see ``encoder_provenance``.
    """

    def __init__(self, folder: Path, provenance: Mapping[str, str]) -> None:
        key = json.dumps(dict(provenance), sort_keys=True)
        self.folder = folder / hashlib.sha256(key.encode()).hexdigest()[:32]
        self._metadata = {"encoder": key}

    def read(self, digests: Sequence[str]) -> dict[str, Tensor]:
        """Return the features of those images that are cached, each of shape ``(dim,)``.

        Reads all parts. If another process merges parts meanwhile, the merged one is read too.
        """
        wanted, found, seen = set(digests), dict[str, Tensor](), set[Path]()
        vanished = True
        while vanished:
            vanished = False
            for path in sorted(set(self.folder.glob("part-*.safetensors")) - seen):
                seen.add(path)
                part = _read(path)
                if part is None:
                    vanished = vanished or not path.exists()
                    continue
                for name, row in zip(*part, strict=True):
                    if name in wanted:
                        found[name] = row.clone()  # a view would keep the whole part in memory
        return found

    def add(self, digests: Sequence[str], features: Tensor) -> None:
        """Write the features of images, shape ``(image, dim)``, to the disk."""
        make_folder(self.folder)
        self._write(digests, features)

    def merge_parts(self) -> None:
        """Merge many small parts into one, and remove old temporary files of killed processes."""
        for leftover in self.folder.glob(".*.part"):
            with suppress(FileNotFoundError):  # another process has renamed or removed it
                if time.time() - leftover.stat().st_mtime > _OLD:
                    leftover.unlink()
        small = []
        for path in self.folder.glob("part-*.safetensors"):
            with suppress(FileNotFoundError):
                if path.stat().st_size < _LARGE:
                    small.append(path)
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
        content = save(tensors, metadata=self._metadata)
        path = self.folder / f"part-{hashlib.sha256(content).hexdigest()[:32]}.safetensors"
        write_atomically(path, content)
        return path


def _read(path: Path) -> tuple[list[str], Tensor] | None:
    """Read the digests and features of a part; ``None`` if it is missing or damaged."""
    try:
        content = read_regular(path)
        if hashlib.sha256(content).hexdigest()[:32] != path.stem.removeprefix("part-"):
            return None
        tensors = load(content)
        return [bytes(row).hex() for row in tensors["digests"].numpy()], tensors["features"]
    except (OSError, SafetensorError, KeyError):
        return None
