"""What the numbers of a report come from, and what it stores about its feature files.

A report shows stored results of feature files that are not given. :class:`FeatureFile` has what
their cells depend on.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infoshot.core.text import escape_name
from infoshot.core.types import FeatureTable
from infoshot.features import digest, read_features
from infoshot.reproduction.paper import OWN_IMAGES, comparable_dataset
from infoshot.reproduction.paper_systems import PLAIN
from infoshot.reproduction.whole_network import NO_BASE_MEAN, network_identity


@dataclass(frozen=True)
class Source:
    """What numbers come from: a feature file, or a trained system with images.

    Attributes
    ----------
    name
        The name of the file, or of the folder of the training run.
    digest
        Identifies its content.
    dataset, backbone
        Empty where they are unknown.
    recipe
        How the training of the network differs from plain base training.
    images
        The sha256 of the images; empty if unknown. Sources of the same images have the same tasks.
    """

    name: str
    digest: str
    dataset: str
    backbone: str
    recipe: str = PLAIN  # reports of earlier versions lack the fields from here on
    images: str = ""

    @property
    def group(self) -> tuple[str, ...]:
        """What sources share that tables average.

        A file of own images, or without a data set or a backbone, is averaged with no other:
        nothing says that it can be compared with another one.
        """
        if self.dataset and self.backbone and self.dataset != OWN_IMAGES:
            return self.dataset, self.backbone, self.recipe
        return (self.digest,)


@dataclass(frozen=True)
class FeatureFile:
    """What a report stores about a feature file; files of earlier versions have the source only.

    Attributes
    ----------
    source
        Name, digest and origin.
    network
        The weights, the images and their size, see :func:`network_identity`; empty if the file
        does not record them.
    n_classes
        Number of classes; 0 if unknown.
    no_base_mean
        Why the file has no mean of the base classes; empty if it has one.
    """

    source: Source
    network: tuple[str, ...] = ()
    n_classes: int = 0
    no_base_mean: str = ""

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> "FeatureFile":
        """Read what :meth:`to_json` returned; raises ``TypeError`` or ``ValueError``."""
        rest = dict(entry)
        names = [field.name for field in dataclasses.fields(Source) if field.name in rest]
        source = Source(**{name: rest.pop(name) for name in names})
        return cls(source, **{**rest, "network": tuple(rest.get("network", ()))})

    def to_json(self) -> dict[str, Any]:
        """Return all fields, those of the source among them."""
        rest = dataclasses.asdict(self)
        return {**rest.pop("source"), **rest}

    def has_network_of(self, other: "FeatureFile") -> bool | None:
        """Whether both are of the same weights and images; ``None`` if that is not recorded."""
        if not (self.network and other.network):
            return None
        return self.network[:2] == other.network[:2]


Loaded = tuple[Source, FeatureTable]


def read_sources(
    paths: Sequence[Path], datasets: Sequence[str], backbones: Sequence[str]
) -> list[Loaded]:
    """Read feature files.

    ``datasets`` and ``backbones`` have one name per file, or are empty: then the provenance in the
    file decides.
    """
    loaded = []
    names = short_names(paths)
    for number, path in enumerate(paths):
        table = read_features(path)
        about = table.provenance
        recorded = comparable_dataset(about.get("dataset", ""), about.get("trained_on", ""))
        dataset = datasets[number] if datasets else recorded
        backbone = backbones[number] if backbones else about.get("backbone", "")
        recipe, images = about.get("recipe", PLAIN), about.get("split_sha256", "")
        source = Source(names[number], digest(path), dataset, backbone, recipe, images)
        loaded.append((source, table))
    return loaded


def short_names(paths: Sequence[Path]) -> list[str]:
    """Return file names, with as many folders as distinguish them."""
    for n_parts in range(1, max((len(path.parts) for path in paths), default=0) + 1):
        names = [escape_name(str(Path(*path.parts[-n_parts:]))) for path in paths]
        if len(set(names)) == len(paths):
            break
    return names if paths else []


def describe_file(source: Source, table: FeatureTable) -> FeatureFile:
    """Return what a report stores about a feature file."""
    about = table.provenance
    no_base_mean = about.get(NO_BASE_MEAN, "the feature file has no base_mean")
    return FeatureFile(
        source,
        network=network_identity(about),
        n_classes=len(table.labels[table.labels >= 0].unique()),
        no_base_mean=no_base_mean if table.base_mean is None else "",
    )


def merge_files(stored: Sequence[FeatureFile], given: Sequence[FeatureFile]) -> list[FeatureFile]:
    """Return stored and given files, each once, under the names that were given last.

    If a stored file has the name of another one that is given, part of its digest is added.
    """
    taken = {file.source.name: file.source.digest for file in given}
    by_digest = {file.source.digest: file for file in (*stored, *given)}
    return [
        _rename(file) if taken.get(file.source.name, digest) != digest else file
        for digest, file in by_digest.items()
    ]


def _rename(file: FeatureFile) -> FeatureFile:
    name = f"{file.source.name} ({file.source.digest[:8]})"
    return dataclasses.replace(file, source=dataclasses.replace(file.source, name=name))
