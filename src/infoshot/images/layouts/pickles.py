"""The distributed pickles: ``mini-imagenet-cache-*.pkl`` and tiered's ``*_images_png.pkl``.

They are read as data; nothing in them is executed (:mod:`infoshot.core.plain_pickle`).
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from infoshot.core.errors import DataError
from infoshot.core.plain_pickle import read_plain_pickle
from infoshot.images.decoding import ArrayLocation, ImageRecord
from infoshot.images.layouts.found_images import FoundImages, claim_split
from infoshot.images.splits import SPLITS

_LONGEST_NAME = 1000
_FAILURES = (KeyError, TypeError, IndexError, ValueError, AttributeError, OverflowError)


def find_mini_pickles(root: Path) -> FoundImages | None:
    """Find the images of ``mini-imagenet-cache-SPLIT.pkl``, the rows of an array."""
    paths = _present(root, "mini-imagenet-cache-{}.pkl")
    if not paths:
        return None
    records: list[ImageRecord] = []
    split_of_class: dict[str, str] = {}
    for split, path in paths.items():
        content = read_plain_pickle(path)
        try:
            images, classes = content["image_data"], content["class_dict"]
            for class_name, row in _rows(classes, len(images)):
                claim_split(split_of_class, class_name, split, path)
                location = ArrayLocation(f"{path}[{row}]", _array(images[row]))
                records.append(ImageRecord(class_name, f"{row:08d}", location))
        except _FAILURES as error:
            raise DataError(
                f"{path}: must have image_data [N, H, W, 3] and class_dict (class to rows); "
                f"got something else ({_reason(error)})."
            ) from error
    return FoundImages("mini-imagenet-cache pickles", records, split_of_class)


def find_tiered_pickles(root: Path) -> FoundImages | None:
    """Find the images of ``SPLIT_images_png.pkl`` with the labels of ``SPLIT_labels.pkl``."""
    paths = _present(root, "{}_images_png.pkl")
    if not paths:
        return None
    records: list[ImageRecord] = []
    split_of_class: dict[str, str] = {}
    for split, path in paths.items():
        images, names = read_plain_pickle(path), _tiered_labels(root, split)
        if not isinstance(images, list | np.ndarray) or getattr(images, "ndim", 1) == 0:
            raise DataError(f"{path}: must be a list of images; got {type(images).__name__}.")
        if len(images) != len(names):
            raise DataError(f"{path}: has {len(images)} images but {len(names)} labels.")
        for row, (image, name) in enumerate(zip(images, names, strict=True)):
            if not isinstance(image, np.ndarray):
                raise DataError(f"{path}[{row}]: must be an array; got {type(image).__name__}.")
            claim_split(split_of_class, name, split, path)
            location = ArrayLocation(f"{path}[{row}]", np.ravel(image))
            records.append(ImageRecord(name, f"{row:08d}", location))
    return FoundImages("tiered-imagenet pickles", records, split_of_class)


def _present(root: Path, pattern: str) -> dict[str, Path]:
    """Existing files by split."""
    paths = {split: root / pattern.format(split) for split in SPLITS}
    return {split: path for split, path in paths.items() if path.is_file()}


def _tiered_labels(root: Path, split: str) -> list[str]:
    """Class name of each image; copies without names number the classes of each split from 0."""
    path = root / f"{split}_labels.pkl"
    if not path.is_file():
        raise DataError(f"{path}: there is no such file; it has the labels of the images.")
    labels = read_plain_pickle(path)
    try:
        numbers = [_number(n) for n in labels["label_specific"]]
        names = labels.get("label_specific_str")
        return [f"{split} class {n}" if names is None else _text(names[n]) for n in numbers]
    except _FAILURES as error:
        raise DataError(
            f"{path}: must be a dict with label_specific ({_reason(error)})."
        ) from error


def _rows(classes: Any, n_images: int) -> list[tuple[str, int]]:  # noqa: ANN401
    """Return class and row of every image; a row belongs to one class at most."""
    found = []
    seen = set()
    for class_name, rows in classes.items():
        for row in map(_number, rows):
            if row >= n_images or row in seen:
                raise ValueError("a row is not the number of an image, or is there twice")
            seen.add(row)
            found.append((_text(class_name), row))
    return found


def _number(value: object) -> int:
    """Return a label: a whole number from 0."""
    number = value.item() if isinstance(value, np.generic) else value
    if not isinstance(number, int | float) or number != int(number) or number < 0:
        raise ValueError("a label is not a whole number from 0")
    return int(number)


def _array(image: object) -> NDArray[Any]:
    if not isinstance(image, np.ndarray):
        raise TypeError("an image is not an array")
    return image


def _text(name: object) -> str:
    """Return the name of a class: a text, bytes or a number."""
    if isinstance(name, bytes):
        name = name.decode()
    if not isinstance(name, str | int | np.integer) or len(str(name)) > _LONGEST_NAME:
        raise TypeError("the name of a class is not a short text")
    return str(name)


def _reason(error: Exception) -> str:
    return repr(error).split("\\n", 1)[0][:200]
