"""The feature files of a report, and what is known of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from infoshot.core.checks import unknown_name
from infoshot.core.errors import InvalidArgumentError
from infoshot.core.types import FeatureTable
from infoshot.features import digest, read_features

DATASETS = {
    "mini-imagenet": "mini-ImageNet",
    "tiered-imagenet": "tiered-ImageNet",
    "cub": "CUB",
    "mini-to-cub": "mini-ImageNet to CUB",
    "folder": "own images",
}
BACKBONES = {
    "resnet10": "ResNet-10",
    "resnet12": "ResNet-12",
    "resnet18": "ResNet-18",
    "wrn28-10": "WRN28-10",
    "conv4": "Conv-4",
    "efficientnet-lite0": "EfficientNet-Lite0",
}


@dataclass(frozen=True)
class Source:
    """A feature file that is evaluated; data set and backbone are empty where they are unknown."""

    name: str
    digest: str
    dataset: str
    backbone: str


def read_sources(
    paths: Sequence[Path], datasets: Sequence[str], backbones: Sequence[str]
) -> list[tuple[Source, FeatureTable]]:
    """Read the files; data sets and backbones are named for each, or not at all: they say so."""
    for option, names, known in (
        ("dataset", datasets, DATASETS),
        ("backbone", backbones, BACKBONES),
    ):
        if names and len(names) != len(paths):
            raise InvalidArgumentError(
                f"--{option} must be given once for each feature file; got {len(names)} for "
                f"{len(paths)} files."
            )
        for name in names:
            if name not in known:
                raise InvalidArgumentError(unknown_name(option, name, known))
    loaded = []
    for number, path in enumerate(paths):
        table = read_features(path)
        said = table.provenance
        name = datasets[number] if datasets else said.get("dataset", "")
        backbone = backbones[number] if backbones else said.get("backbone", "")
        loaded.append((Source(path.name, digest(path), name, backbone), table))
    return loaded
