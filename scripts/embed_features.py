r"""Store a feature file with 8 bits per value and one scale per row: half the size of float16.

    python scripts/embed_features.py mini_test_resnet18.safetensors \
        src/infoshot/assets/mini_test_resnet18.safetensors

The features must be non-negative, for example averages after a ReLU. Each row is rounded to 255
levels of its largest value. This moves a unit-length feature by 0.005 on average.
"""

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import save

from infoshot.core.atomic import write_atomically
from infoshot.features import digest, read_features


def main() -> None:
    """Parse the arguments, quantise the features and write them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    arguments = parser.parse_args()
    table = read_features(arguments.source)
    features = table.features.float()
    if features.min() < 0 or table.base_mean is None:
        parser.error("the features must not be negative, and the file must have a base_mean")
    scale = features.amax(1) / 255
    tensors = {
        "features": (features / scale.unsqueeze(-1)).round().to(torch.uint8),
        "features_scale": scale,
        "labels": table.labels,
        "base_mean": table.base_mean.float(),
    }
    metadata = {
        **table.provenance,
        "class_names": json.dumps(list(table.class_names)),
        "source_sha256": digest(arguments.source),
        "quantised": "uint8 times features_scale, one scale per row",
    }
    write_atomically(arguments.target, save(tensors, metadata=metadata))


if __name__ == "__main__":
    main()
