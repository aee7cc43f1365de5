"""Measure the base statistics of a network, for the package (see features/normalize.py).

infoshot extract --dataset mini-imagenet --root MINI --split train --dtype float32
    --backbone efficientnet-lite0 --out FOLDER/train_lite0.safetensors
python scripts/base_statistics.py FOLDER/train_lite0.safetensors

The file has the features of the images of the base classes. The statistics are written to
src/infoshot/assets/base-DIGEST.safetensors, where DIGEST is the start of the digest of the weights.
"""

import argparse
from pathlib import Path

import torch

from infoshot.core.tensor_file import write_tensor_file
from infoshot.features import read_features
from infoshot.features.base_classes import measure_scatter
from infoshot.features.normalize import KIND

ASSETS = Path(__file__).parents[1] / "src/infoshot/assets"
_KEPT = ("backbone", "weights_sha256", "transform", "dataset", "split", "split_sha256", "infoshot")


def main() -> None:
    """Read the features, measure, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("features", type=Path)
    table = read_features(parser.parse_args().features)
    scatter = measure_scatter(table.features, table.labels)
    if scatter is None:
        parser.error("images of the same class must differ")
    tensors = {"base_mean": table.features.double().mean(0).float(), "base_scatter": scatter.half()}
    facts = {name: table.provenance[name] for name in _KEPT}
    target = ASSETS / f"base-{facts['weights_sha256'][:16]}.safetensors"
    write_tensor_file(target, tensors, facts, kind=KIND)
    print(f"{target}: {len(scatter)} directions of {len(table.features):,} images")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
