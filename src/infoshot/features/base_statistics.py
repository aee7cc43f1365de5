"""Mean and scatter of the base classes: those of a table, or those that come with the package.

The package has the statistics of three networks: EfficientNet-Lite0, the default encoder, Lite2,
and the ResNet-18 of the embedded features. They were measured on the 64 train classes of
mini-ImageNet by ``scripts/base_statistics.py``, and are found by the digest of the weights. So
features of these networks can be whitened wherever they come from.
"""

from functools import cache
from importlib import resources
from pathlib import Path

from infoshot.core.tensor_file import parse_tensors
from infoshot.core.types import BaseStatistics, FeatureTable

KIND = "base-statistics"  # of the files


def base_statistics(table: FeatureTable) -> BaseStatistics | None:
    """Return what is known about the base classes of the network of a table.

    Returns
    -------
    The mean and the scatter; ``None`` if one of them is unknown.
    """
    if table.base_mean is not None and table.base_scatter is not None:
        return BaseStatistics(table.base_mean, table.base_scatter)
    return find_statistics(table.provenance.get("weights_sha256", ""))


@cache
def find_statistics(weights_sha256: str) -> BaseStatistics | None:
    """Find the statistics of a network that come with the package, if there are any."""
    file = resources.files("infoshot") / "assets" / f"base-{weights_sha256[:16]}.safetensors"
    if not file.is_file():
        return None
    tensors, _ = parse_tensors(file.read_bytes(), kind=KIND, path=Path(str(file)))
    return BaseStatistics(tensors["base_mean"].float(), tensors["base_scatter"].float())
