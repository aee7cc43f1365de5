"""The cache of features: keyed by the content of an image and by everything else they depend on.

Every encoder has a folder named by the digest of its provenance. In it are parts: safetensors files
with the sha256 of images, their features, and the provenance. A part is named by the digest of its
content, so that a part that was damaged, changed, renamed or moved to another encoder is noticed
and ignored. Parts appear whole or not at all and never change, and a part is removed only after
another one with all its rows has been written, so that several processes may use one cache. If a
part is lost, its images are encoded again.

Whoever can write to the folder can add features that look valid. Folders are therefore created for
their owner only; see :meth:`FeatureCache.read` for folders that others can write to.
"""

import hashlib
import json
import os
import re
import stat
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from infoshot.core.atomic import write_atomically
from infoshot.core.cache_folder import check_access, make_inner_folder
from infoshot.core.errors import DataError
from infoshot.core.regular_file import read_regular

_MANY_PARTS = 8
_OLD = 3600.0  # seconds; younger temporary files may belong to a process that is writing
_LARGE = 2**26  # bytes; larger parts are not merged
_LARGEST = 2**30  # bytes; no part is as large
_PART = re.compile(r"part-[0-9a-f]{32}\.safetensors")
_TEMPORARY = re.compile(r"\.part-[0-9a-f]{32}\.safetensors\.[0-9a-f]{32}\.(infoshot-)?part")
Part = tuple[list[str], Tensor]
FeatureMemory = dict[str, dict[str, Tensor]]
"""Features by encoder and digest."""


class FeatureCache:
    """The features that one encoder has computed so far.

    Parameters
    ----------
    folder
        The folder that all encoders share.
    provenance
        Everything the features depend on besides the image, see ``encoder_provenance``.
    width
        Numbers per feature, if it is known.
    memory
        What was read, kept by the caller for the next object: images that are in it are not read
        from the disk again.
    """

    def __init__(
        self,
        folder: Path,
        provenance: Mapping[str, str],
        width: int | None = None,
        *,
        memory: FeatureMemory | None = None,
    ) -> None:
        self._encoder = json.dumps(dict(provenance), sort_keys=True)
        self.folder = folder / hashlib.sha256(self._encoder.encode()).hexdigest()[:32]
        self._known = set[str]()
        self._memory = None if memory is None else memory.setdefault(self._encoder, {})
        self._width = width
        self._stores, self._warned = True, False

    @property
    def n_cached(self) -> int:
        """Number of images that were found in the cache or added to it through this object."""
        return len(self._known)

    def read(self, digests: Sequence[str]) -> dict[str, Tensor]:
        """Return the features of those images that are cached, each of shape ``(dim,)``.

        Reads all parts. If another process merges parts meanwhile, the merged one is read too.

        Warns
        -----
        UserWarning
            Once, if the cache belongs to another user, or a group can write to it.

        Raises
        ------
        DataError
            If everyone can write to the cache, or it holds features of another width.
        """
        self._check_access()
        wanted, found, seen = set(digests), dict[str, Tensor](), set[Path]()
        if self._memory is not None and wanted - {""} <= self._memory.keys():
            return {name: self._memory[name] for name in wanted - {""}}
        vanished = True
        while vanished:
            vanished = False
            for path in sorted(set(self._list_files(_PART)) - seen):
                seen.add(path)
                part = self._read(path)
                if part is None:
                    vanished = vanished or not os.path.lexists(path)
                    continue
                self._check_width(part[1])
                for name, row in zip(*part, strict=True):
                    if name in wanted:
                        found[name] = row.clone()  # a view would keep the whole part in memory
        self._known |= found.keys()
        if self._memory is not None:
            self._memory.update(found)
        return found

    def add(self, digests: Sequence[str], features: Tensor) -> None:
        """Write the features of images, shape ``(image, dim)``, to the disk.

        Warns
        -----
        UserWarning
            Once, if the cache cannot be written to; nothing is stored from then on.

        Raises
        ------
        DataError
            As in :meth:`read`.
        """
        if not self._stores:
            return
        self._check_access()
        self._check_width(features)
        try:
            make_inner_folder(self.folder)
            self._write(digests, features)
        except DataError as error:
            self._stores = False
            warnings.warn(f"{error} New features are not cached.", UserWarning, stacklevel=2)
        else:
            self._known.update(digests)

    @contextmanager
    def open_writer(self, n_images: int) -> Iterator[Callable[[str, Tensor], None]]:
        """Add images one at a time, by digest and feature, as parts of ``n_images``.

        An interrupted process keeps all images that it has added; a note at the
        ``KeyboardInterrupt`` tells how many are cached. At the end parts are merged.
        """
        waiting: dict[str, Tensor] = {}

        def flush() -> None:
            if waiting:
                self.add(list(waiting), torch.stack(list(waiting.values())))
                waiting.clear()

        def add(digest: str, feature: Tensor) -> None:
            waiting[digest] = feature
            if len(waiting) >= n_images:
                flush()

        try:
            yield add
        except BaseException as stop:
            flush()
            if isinstance(stop, KeyboardInterrupt):
                stop.add_note(f"the features of {self.n_cached:,} images are cached")
            raise
        flush()
        self.merge_parts()

    def merge_parts(self) -> None:
        """Merge many small parts into few, and remove old temporary files of killed processes."""
        if not self._stores:
            return
        for path, facts in _regular_files(self._list_files(_TEMPORARY)):
            if time.time() - facts.st_mtime > _OLD:
                _remove(path)
        parts = _regular_files(self._list_files(_PART))
        small = sorted((facts.st_size, path) for path, facts in parts if facts.st_size < _LARGE)
        if len(small) < _MANY_PARTS:
            return
        for group in _group(small):
            with suppress(DataError):  # nothing is lost if the merged part cannot be written
                self._merge(group)

    def _merge(self, paths: Sequence[Path]) -> None:
        """Replace parts by one with all their rows; those that cannot be read stay."""
        parts = {path: part for path in paths if (part := self._read(path)) is not None}
        for _, rows in parts.values():
            self._check_width(rows)
        if len(parts) < 2:
            return
        # The order of rows, and the choice between two rows of one image, depend on the content
        # only. Two processes that merge at the same time would otherwise be able to remove the
        # part that the other one has just written.
        content = sorted(
            {
                (name, row.tobytes())
                for names, rows in parts.values()
                for name, row in zip(names, rows.numpy(), strict=True)
            },
            reverse=True,
        )
        merged = dict(content)
        rows = torch.frombuffer(bytearray(b"".join(merged.values())), dtype=torch.float32)
        written = self._write(list(merged), rows.view(len(merged), -1))
        for path in parts:
            if path != written:
                _remove(path)

    def _write(self, digests: Sequence[str], features: Tensor) -> Path:
        names = torch.frombuffer(bytearray.fromhex("".join(digests)), dtype=torch.uint8)
        tensors = {"digests": names.view(-1, 32), "features": features.float().contiguous()}
        content = save(tensors, metadata={"encoder": self._encoder})
        path = self.folder / f"part-{_digest(content)}.safetensors"
        write_atomically(path, content)
        return path

    def _read(self, path: Path) -> Part | None:
        """Read a part; ``None`` if it is missing, damaged, or of another encoder."""
        content = _read_regular_file(path)
        if content is None or _digest(content) != path.stem.removeprefix("part-"):
            return None
        try:
            tensors = load(content)
            names, rows = tensors["digests"], tensors["features"]
            # The library has checked the header: its length, then JSON.
            header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
            encoder = header["__metadata__"]["encoder"]
        except (SafetensorError, KeyError, ValueError, TypeError, RuntimeError):
            return None
        sound = (
            encoder == self._encoder
            and (names.dtype, rows.dtype) == (torch.uint8, torch.float32)
            and names.shape[1:] == (32,)
            and rows.ndim == 2
            and rows.numel() > 0
            and len(names) == len(rows)
            and bool(rows.isfinite().all())
        )
        return ([bytes(row).hex() for row in names.numpy()], rows) if sound else None

    def _list_files(self, form: re.Pattern[str]) -> list[Path]:
        """List what has a name of this form; empty if the folder does not exist yet."""
        try:
            return [path for path in self.folder.iterdir() if form.fullmatch(path.name)]
        except OSError:
            return []

    def _check_access(self) -> None:
        """Refuse a cache that everyone can write to; warn once of one that others can write to."""
        self._warned = check_access(self.folder, warn=not self._warned) or self._warned

    def _check_width(self, features: Tensor) -> None:
        width = features.shape[1]
        if self._width not in (None, width):
            raise DataError(
                f"{self.folder}: has features of {width} and of {self._width} numbers for one "
                "encoder; remove the folder."
            )
        self._width = width


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def _regular_files(paths: Sequence[Path]) -> Iterator[tuple[Path, os.stat_result]]:
    """Look up size and time of files; links, folders and what has been removed are left out."""
    for path in paths:
        with suppress(OSError):
            facts = path.lstat()
            if stat.S_ISREG(facts.st_mode):
                yield path, facts


def _group(small: Sequence[tuple[int, Path]]) -> Iterator[list[Path]]:
    """Split parts, the smallest first, into groups that are large together."""
    group, total = list[Path](), 0
    for size, path in small:
        group.append(path)
        total += size
        if total >= _LARGE:
            yield group
            group, total = [], 0
    yield group


def _read_regular_file(path: Path) -> bytes | None:
    """Read a file; ``None`` if it cannot be read, is too large, or is a link, pipe or device."""
    try:
        return None if path.is_symlink() else read_regular(path, _LARGEST)
    except OSError:
        return None


def _remove(path: Path) -> None:
    with suppress(OSError):  # another process has removed it, or it belongs to another user
        path.unlink()
