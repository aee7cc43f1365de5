"""The classes for training, validation and test: published lists, rules, and split files."""

import json
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from infoshot.core.errors import DataError
from infoshot.core.regular_file import read_regular

SPLITS = ("train", "val", "test")


def published_split(name: str) -> dict[str, str]:
    """Return the split of every class of a published list that is part of the package.

    Examples
    --------
    >>> split = published_split("mini-imagenet")
    >>> len(split), split["n01930112"]
    (100, 'test')
    """
    text = (resources.files("infoshot.images") / "class_splits" / f"{name}.json").read_text()
    return _by_class(json.loads(text)["classes"])


def cub_split(class_names: Iterable[str]) -> dict[str, str]:
    """Split CUB's classes by alphabetical number i: even to train, i % 4 = 1 to val, 3 to test.

    Examples
    --------
    >>> cub_split(["001.A", "002.B", "003.C", "004.D"])
    {'001.A': 'train', '002.B': 'val', '003.C': 'train', '004.D': 'test'}
    """
    rule = ("train", "val", "train", "test")
    return {name: rule[i % 4] for i, name in enumerate(sorted(set(class_names)))}


def read_split_file(path: Path) -> dict[str, str]:
    """Read the split of every class from ``{"train": [...], "val": [...], "test": [...]}``."""
    try:
        content = json.loads(read_regular(path))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: cannot be read as JSON ({error}).") from error
    content = content.get("classes", content) if isinstance(content, dict) else content
    lists = isinstance(content, dict) and all(isinstance(names, list) for names in content.values())
    if not lists or not content or not set(content) <= set(SPLITS):
        raise DataError(
            f'{path}: a split file is {{"train": [classes], "val": [classes], "test": [classes]}}.'
        )
    try:
        return _by_class(content)
    except ValueError as error:
        raise DataError(f"{path}: {error}") from error


def _by_class(classes: Mapping[str, Iterable[Any]]) -> dict[str, str]:
    split_of_class: dict[str, str] = {}
    for split, names in classes.items():
        for name in names:
            if split_of_class.setdefault(str(name), split) != split:
                raise ValueError(
                    f"a class must be in one split only; '{name}' is in "
                    f"{split_of_class[str(name)]} and {split}."
                )
    return split_of_class
