r"""Store the weights of a checkpoint in float16 (half the size) or in 8 bits (a quarter).

    python scripts/shrink_checkpoint.py runs/resnet18/best small --dtype float16
    python scripts/shrink_checkpoint.py runs/resnet18/best small --dtype int8

In 8 bits, every channel of a large convolution is rounded to 127 steps of its largest weight; all
other weights stay in float32. ``infoshot`` reads the result as any other checkpoint.
"""

import argparse
from pathlib import Path

import torch

from infoshot.backbones.checkpoints import load_checkpoint, save_checkpoint

_DTYPES = {"float16": torch.float16, "int8": torch.int8}


def main() -> None:
    """Convert the checkpoint that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--dtype", choices=_DTYPES, default="float16")
    arguments = parser.parse_args()
    checkpoint = load_checkpoint(arguments.source)
    save_checkpoint(
        arguments.target,
        checkpoint.backbone_name,
        checkpoint.backbone.state_dict(),
        class_names=checkpoint.class_names,
        config=checkpoint.config,
        classifier=checkpoint.classifier,
        system=checkpoint.system,
        epoch=checkpoint.epoch,
        chosen_as=checkpoint.chosen_as,
        dtype=_DTYPES[arguments.dtype],
    )


if __name__ == "__main__":
    main()
