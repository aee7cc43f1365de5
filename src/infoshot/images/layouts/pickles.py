"""The distributed pickles: ``mini-imagenet-cache-*.pkl`` and tiered's ``*_images_png.pkl``.

A pickle can run any code. Our unpickler builds arrays, lists, dicts, strings and numbers only, and
refuses everything else before it is executed.
"""

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from infoshot.core.errors import DataError
from infoshot.images.decoding import ArrayLocation, ImageRecord
from infoshot.images.layouts.found_images import FoundImages, claim_split
from infoshot.images.splits import SPLITS

_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy.core.multiarray", "scalar"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy.core.numeric", "_frombuffer"),
    ("numpy._core.numeric", "_frombuffer"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),  # protocol 2 writes bytes with it
    ("collections", "OrderedDict"),
}


class _DataUnpickler(pickle.Unpickler):
    """Reads arrays and plain containers only."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - a type or a function
        """Return one of the allowed constructors, or raise."""
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(
                f"it calls {module}.{name}; only arrays, lists, dicts, strings and numbers are "
                "allowed"
            )
        return super().find_class(module, name)


def read_pickle(path: Path) -> Any:  # noqa: ANN401 - whatever data the pickle holds
    """Read the data of a pickle file without executing code from it."""
    try:
        with path.open("rb") as file:
            return _DataUnpickler(file, encoding="latin1").load()
    except (pickle.UnpicklingError, EOFError, AttributeError, ImportError, IndexError) as error:
        raise DataError(f"{path}: not allowed, or not a complete pickle ({error}).") from error
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DataError(f"{path}: cannot be read ({error}).") from error


def find_mini_pickles(root: Path) -> FoundImages | None:
    """Find the images of ``mini-imagenet-cache-SPLIT.pkl``, the rows of an array."""
    paths = _present(root, "mini-imagenet-cache-{}.pkl")
    if not paths:
        return None
    records: list[ImageRecord] = []
    split_of_class: dict[str, str] = {}
    for split, path in paths.items():
        content = read_pickle(path)
        try:
            images, classes = content["image_data"], content["class_dict"]
            for class_name, rows in classes.items():
                claim_split(split_of_class, str(class_name), split, path)
                for row in rows:
                    location = ArrayLocation(f"{path}[{int(row)}]", images[int(row)])
                    records.append(ImageRecord(str(class_name), f"{int(row):08d}", location))
        except (KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
            raise DataError(
                f"{path}: must have image_data [N, H, W, 3] and class_dict (class to rows); "
                f"got something else ({error!r})."
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
        images, names = read_pickle(path), _tiered_labels(root, split)
        if len(images) != len(names):
            raise DataError(f"{path}: has {len(images)} images but {len(names)} labels.")
        for row, (image, name) in enumerate(zip(images, names, strict=True)):
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
    labels = read_pickle(path)
    try:
        numbers = np.asarray(labels["label_specific"]).astype(int)
        names = labels.get("label_specific_str")
        return [str(names[n]) if names is not None else f"{split} class {n}" for n in numbers]
    except (KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
        raise DataError(f"{path}: must be a dict with label_specific ({error!r}).") from error
