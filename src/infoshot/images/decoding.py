"""Images: where their bytes are, the crop a network sees, and many of them in parallel.

Images come from files, members of tar archives, and arrays of pickles. Every feature is computed
from :func:`read_crop`, whichever command asks for it, so that an image and an encoder determine
the feature. Large JPEGs are decoded at half, a quarter or an eighth of their size while both sides
keep at least twice the pixels of the resized image: on 3200 x 2400 photos this is 4.7 times as
fast as decoding all pixels, and features keep a cosine of 0.9997 (``perf/decoding.py``). Smaller
images, such as those of mini-ImageNet and CUB, are decoded whole.

:func:`map_images` reads many images in parallel. For small images Pillow spends two thirds of the
time in Python, where threads wait for each other: on 16 cores, 2 threads decode 4,400 JPEGs of
84 x 84 pixels per second, 16 threads 2,400, and 8 processes 17,800. So processes decode large sets
where they can be forked, and threads the others.
"""

import ctypes
import hashlib
import multiprocessing
import os
import signal
import stat
import sys
import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from infoshot.core.errors import DataError
from infoshot.core.job_variables import local_size
from infoshot.core.pixels import Pixels, check_shape, decode
from infoshot.core.regular_file import open_regular, read_regular

EXTENSIONS = frozenset(
    ".jpg .jpeg .jpe .png .bmp .gif .webp .tif .tiff .ppm .pgm .pnm".split()  # noqa: SIM905
)
ImageT = TypeVar("ImageT")  # a record or a location
Result = TypeVar("Result")
_AT_ONCE = 32
_FEWEST_FOR_PROCESSES = 2000
_MOST_WORKERS = 16
_THREADS = 4
_PR_SET_PDEATHSIG = 1
_LARGEST_FILE = 2**30
DECODING = "JPEG from twice the size"  # as provenance records it


class Location(ABC):
    """Where the bytes or the pixels of an image are."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What to call it in messages."""

    @abstractmethod
    def content(self) -> bytes:
        """Read everything that determines the pixels, for digests and for decoding."""

    def pixels(self, at_least: int | None = None) -> Pixels:
        """Decode to RGB pixels, ``(height, width, 3)``; see :func:`decode`."""
        return self.decode(self.content(), at_least)

    def decode(self, content: bytes, at_least: int | None = None) -> Pixels:
        """Decode what :meth:`content` returned."""
        return decode(content, self.name, at_least=at_least)


def _check_size(name: str, n_bytes: int) -> None:
    if n_bytes > _LARGEST_FILE:
        raise DataError(f"{name}: too large for a photo ({n_bytes / 2**30:.1f} GB).")


@final
@dataclass(frozen=True)
class FileLocation(Location):
    """A file."""

    path: Path

    @property
    def name(self) -> str:
        """Return the path."""
        return str(self.path)

    def content(self) -> bytes:
        """Read the file. Pipes and devices are refused, since they may not end."""
        try:
            facts = self.path.stat()
            if not stat.S_ISREG(facts.st_mode):
                raise DataError(f"{self.name}: not a regular file.")
            _check_size(self.name, facts.st_size)
            return read_regular(self.path)
        except OSError as error:
            raise DataError(f"{self.name}: cannot be read ({error.strerror}).") from error
        except ValueError as error:  # a name that no file can have
            raise DataError(f"{self.name!r}: cannot be read ({error}).") from error


@final
@dataclass(frozen=True)
class SliceLocation(Location):
    """A byte range of a larger file: a member of an uncompressed tar archive."""

    path: Path
    member: str
    offset: int
    size: int

    @property
    def name(self) -> str:
        """Return archive and member."""
        return f"{self.path}:{self.member}"

    def content(self) -> bytes:
        """Read the byte range."""
        _check_size(self.name, self.size)
        try:
            with open_regular(self.path) as file:
                file.seek(self.offset)
                content = file.read(self.size)
        except OSError as error:
            raise DataError(f"{self.name}: cannot be read ({error.strerror}).") from error
        if len(content) < self.size:
            raise DataError(f"{self.name}: the archive is truncated inside this image.")
        return content


@final
@dataclass(frozen=True, eq=False)
class ArrayLocation(Location):
    """A row of an array in memory: pixels, or an encoded image if the row is flat."""

    source: str
    row: Any

    @property
    def name(self) -> str:
        """Return the file and the row."""
        return self.source

    def content(self) -> bytes:
        """Return the bytes of the row."""
        row = np.asarray(self.row)
        if row.dtype.kind not in "iu":
            raise self._wrong_pixels(row)
        return np.ascontiguousarray(row, dtype=np.uint8).tobytes()

    def decode(self, content: bytes, at_least: int | None = None) -> Pixels:
        """Return stored pixels as they are; decode an encoded image."""
        row = np.asarray(self.row)
        if row.ndim == 1:
            return decode(content, self.name, at_least=at_least)
        if row.ndim != 3 or row.shape[2] != 3 or row.dtype != np.uint8:
            raise self._wrong_pixels(row)
        try:
            check_shape(row.shape[1], row.shape[0])
        except ValueError as error:
            raise DataError(f"{self.name}: cannot be decoded ({error}).") from error
        return np.ascontiguousarray(row)

    def _wrong_pixels(self, row: NDArray[Any]) -> DataError:
        return DataError(
            f"{self.name}: pixels must be uint8 [height, width, 3]; "
            f"got {row.dtype} {list(row.shape)}."
        )


@dataclass(frozen=True, eq=False)
class ImageRecord:
    """One image of a data set: its class, its sort key, and where it is.

    ``key`` orders the images of a class the same way in every layout.
    """

    class_name: str
    key: str
    location: Location


def read_crop(location: Location, resize: int, crop: int) -> tuple[str, Pixels]:
    """Read an image as a network sees it: the only way from an image to the input of an encoder.

    Parameters
    ----------
    location
        Where the image is.
    resize, crop
        The shorter side is resized to ``resize`` pixels (bilinear), then the central square of
        ``crop`` pixels is cut out.

    Returns
    -------
    The sha256 of the content that was decoded, and the pixels, ``(crop, crop, 3)``.

    Raises
    ------
    DataError
        If the image cannot be read or decoded; the message starts with its name.
    """
    content = location.content()
    pixels = location.decode(content, at_least=2 * resize)
    return hashlib.sha256(content).hexdigest(), np.array(resize_and_crop(pixels, resize, crop))


def resize_and_crop(pixels: Pixels, resize: int, crop: int) -> Pixels:
    """Resize the shorter side to ``resize`` pixels and cut out the central square of ``crop``."""
    image = Image.fromarray(pixels)
    scale = resize / min(image.size)
    size = (max(crop, round(image.width * scale)), max(crop, round(image.height * scale)))
    if size != image.size:
        image = image.resize(size, Image.Resampling.BILINEAR)
    left, top = round((image.width - crop) / 2), round((image.height - crop) / 2)
    return np.asarray(image.crop((left, top, left + crop, top + crop)))


def is_image_name(name: str | os.PathLike[str]) -> bool:
    """Whether a file name has the extension of an image and is not hidden."""
    path = Path(name)
    return path.suffix.lower() in EXTENSIONS and not path.name.startswith(".")


def decode_workers() -> int:
    """Number of cores for decoding; the processes of one ``torchrun`` share the machine's."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return max(1, min(_MOST_WORKERS, cores // local_size()))


def map_images(
    work: Callable[[ImageT], Result], images: Sequence[ImageT], n_workers: int
) -> Iterator[Result]:
    """Apply ``work`` to every image and yield the results in order, computed a little ahead.

    Parameters
    ----------
    work
        Function of an image; must be picklable.
    images
        The images: records or locations; must be picklable.
    n_workers
        Number of threads or processes.
    """
    with _workers(n_workers, len(images)) as pool:
        ahead: deque[Future[list[Result]]] = deque()
        for start in range(0, len(images), _AT_ONCE):
            ahead.append(pool.submit(_work_on, work, images[start : start + _AT_ONCE]))
            if len(ahead) > 2 * n_workers:
                yield from ahead.popleft().result()
        while ahead:
            yield from ahead.popleft().result()


@contextmanager
def _workers(n_workers: int, n_images: int) -> Iterator[Executor]:
    # Warning filters apply to the whole process, so set them once, around all workers.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        forked = sys.platform == "linux" and n_workers > 1 and n_images >= _FEWEST_FOR_PROCESSES
        pool = _processes(n_workers) if forked else ThreadPoolExecutor(min(n_workers, _THREADS))
        try:
            with pool:
                try:
                    yield pool
                except BaseException:
                    pool.shutdown(cancel_futures=True)
                    raise
        except BrokenProcessPool as error:
            raise DataError(
                "a process that decoded images was killed; perhaps the machine ran out of memory."
            ) from error


def _processes(n_workers: int) -> Executor:
    """Fork processes; they only decode, so that threads of the parent do no harm."""
    Image.init()  # so that no worker has to import anything
    context = multiprocessing.get_context("fork")
    return ProcessPoolExecutor(n_workers, mp_context=context, initializer=_die_with_parent)


def _die_with_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops them
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _work_on(work: Callable[[ImageT], Result], images: Sequence[ImageT]) -> list[Result]:
    return [work(image) for image in images]
