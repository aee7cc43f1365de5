"""The pickles in circulation: ``mini-imagenet-cache-*.pkl`` and tiered's ``*_images_png.pkl``.

A pickle can run any code. These are read by an unpickler that builds arrays, lists, dicts, strings
and numbers, and refuses everything else before it is executed.
"""

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from infoshot.core.errors import DataError
from infoshot.images.decoding import ArrayLocation, ImageRecord
from infoshot.images.layouts.found import Found, claim_split

SPLITS = ("train", "val", "test")
_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy.core.multiarray", "scalar"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy.core.numeric", "_frombuffer"),
    ("numpy._core.numeric", "_frombuffer"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),  # how bytes are written by protocol 2
    ("collections", "OrderedDict"),
}


class _DataUnpickler(pickle.Unpickler):
    """Knows arrays and plain containers, nothing else."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - a type or a function
        """Return one of the few harmless constructors, or refuse."""
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(
                f"it wants to call {module}.{name}, and only arrays, lists, dicts, strings and "
                "numbers are read"
            )
        return super().find_class(module, name)


def read_pickle(path: Path) -> Any:  # noqa: ANN401 - whatever data the pickle holds
    """Data of a pickle file; nothing in it is executed."""
    try:
        with path.open("rb") as file:
            return _DataUnpickler(file, encoding="latin1").load()
    except (pickle.UnpicklingError, EOFError, AttributeError, ImportError, IndexError) as error:
        raise DataError(f"{path}: refused or not a whole pickle ({error}).") from error
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DataError(f"{path}: cannot be read ({error}).") from error


def find_mini_pickles(root: Path) -> Found | None:
    """Images of ``mini-imagenet-cache-SPLIT.pkl``: an array and the rows of every class."""
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
                f"{path}: must hold image_data [N, H, W, 3] and class_dict (class to rows); "
                f"got something else ({error!r})."
            ) from error
    return Found("mini-imagenet-cache pickles", records, split_of_class)


def find_tiered_pickles(root: Path) -> Found | None:
    """Images of ``SPLIT_images_png.pkl`` (encoded) with the labels of ``SPLIT_labels.pkl``."""
    paths = _present(root, "{}_images_png.pkl")
    if not paths:
        return None
    records: list[ImageRecord] = []
    split_of_class: dict[str, str] = {}
    for split, path in paths.items():
        images, names = read_pickle(path), _tiered_labels(root, split)
        if len(images) != len(names):
            raise DataError(f"{path}: has {len(images)} images, but its labels are {len(names)}.")
        for row, (image, name) in enumerate(zip(images, names, strict=True)):
            claim_split(split_of_class, name, split, path)
            location = ArrayLocation(f"{path}[{row}]", np.ravel(image))
            records.append(ImageRecord(name, f"{row:08d}", location))
    return Found("tiered-imagenet pickles", records, split_of_class)


def _present(root: Path, pattern: str) -> dict[str, Path]:
    """Files of the splits that are there, by split."""
    paths = {split: root / pattern.format(split) for split in SPLITS}
    return {split: path for split, path in paths.items() if path.is_file()}


def _tiered_labels(root: Path, split: str) -> list[str]:
    """Class names per image; in copies without names, which number each split anew, a number."""
    path = root / f"{split}_labels.pkl"
    if not path.is_file():
        raise DataError(f"{path}: there is no such file, and the images need it.")
    labels = read_pickle(path)
    try:
        numbers = np.asarray(labels["label_specific"]).astype(int)
        names = labels.get("label_specific_str")
        return [str(names[n]) if names is not None else f"{split} class {n}" for n in numbers]
    except (KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
        raise DataError(f"{path}: must be a dict with label_specific ({error!r}).") from error
