"""The feature files of a report, and what is known of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from infoshot.errors import InvalidArgumentError
from infoshot.features import digest, read_features
from infoshot.types import FeatureTable


@dataclass(frozen=True)
class Source:
    """A feature file that is evaluated; data set and backbone are empty where they are unknown."""

    name: str
    digest: str
    dataset: str
    backbone: str


def read_sources(
    paths: Sequence[Path], datasets: Sequence[str]
) -> list[tuple[Source, FeatureTable]]:
    """Read the files; ``datasets`` names their data sets, or is empty: what the files say."""
    if datasets and len(datasets) != len(paths):
        raise InvalidArgumentError(
            f"--dataset must be given once for each feature file; got {len(datasets)} for "
            f"{len(paths)} files."
        )
    loaded = []
    for number, path in enumerate(paths):
        table = read_features(path)
        known = table.provenance
        name = datasets[number] if datasets else known.get("dataset", "")
        loaded.append((Source(path.name, digest(path), name, known.get("backbone", "")), table))
    return loaded
