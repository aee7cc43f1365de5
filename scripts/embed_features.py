r"""Store a feature file with 8 or 4 bits per value and one scale per row.

    python scripts/embed_features.py mini_test_resnet18.safetensors \
        src/infoshot/assets/mini_test_resnet18.safetensors

The features must be non-negative, for example averages after a ReLU. With 8 bits each row is
rounded to 255 levels of its largest value, which moves a unit-length feature by 0.005 on average.
With 4 bits, see ``infoshot/features/four_bits.py``, it is 0.07.
"""

import argparse
import dataclasses
import json
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor

from infoshot.core.atomic import write_atomically
from infoshot.core.types import FeatureTable
from infoshot.features import digest, read_features
from infoshot.features.four_bits import pack


def main() -> None:
    """Parse the arguments, quantise the features and write them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--bits", type=int, choices=(8, 4), default=8)
    parser.add_argument(
        "--base-mean", type=Path, help="take it from this file, of the same network"
    )
    arguments = parser.parse_args()
    table = read_features(arguments.source)
    if arguments.base_mean is not None:
        table = _with_base_mean(parser, table, read_features(arguments.base_mean))
    if table.features.min() < 0 or table.base_mean is None:
        parser.error("the features must not be negative, and the file must have a base_mean")
    write_quantised(arguments.target, table, arguments.bits, source_sha256=digest(arguments.source))


def write_quantised(path: Path, table: FeatureTable, bits: int, *, source_sha256: str) -> None:
    """Write non-negative features with 8 or 4 bits per value, and the base statistics."""
    quantised, how = _quantise(table.features.float(), bits)
    tensors = {**quantised, "labels": table.labels}
    if table.base_mean is not None:
        tensors["base_mean"] = table.base_mean.float()
    if table.base_scatter is not None:
        tensors["base_scatter"] = table.base_scatter.half()
    metadata = {
        **table.provenance,
        "class_names": json.dumps(list(table.class_names)),
        "source_sha256": source_sha256,
        "quantised": how,
    }
    write_atomically(path, save(tensors, metadata=metadata))


def _with_base_mean(
    parser: argparse.ArgumentParser, table: FeatureTable, other: FeatureTable
) -> FeatureTable:
    """Return the table with the base mean of another one."""
    if table.provenance["weights_sha256"] != other.provenance["weights_sha256"]:
        parser.error("--base-mean must be features of the same network")
    return dataclasses.replace(table, base_mean=other.base_mean)


def _quantise(features: Tensor, bits: int) -> tuple[dict[str, Tensor], str]:
    """Return the tensors of the file, and how to read them."""
    if bits == 4:
        packed, scale = pack(features)
        how = "uint4, squares of sixteen steps times features_scale, one scale per row"
        return {"features_4bit": packed, "features_scale": scale}, how
    scale = features.amax(1) / 255
    rounded = (features / scale.unsqueeze(-1)).round().to(torch.uint8)
    how = "uint8 times features_scale, one scale per row"
    return {"features": rounded, "features_scale": scale}, how


if __name__ == "__main__":
    main()
