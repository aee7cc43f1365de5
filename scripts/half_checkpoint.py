r"""Store the weights of a checkpoint in float16, at half the size.

python scripts/half_checkpoint.py runs/resnet18/best results/resnet18/checkpoint
"""

import argparse
from pathlib import Path

import torch

from infoshot.backbones.checkpoints import load_checkpoint, save_checkpoint


def main() -> None:
    """Convert the checkpoint that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    arguments = parser.parse_args()
    checkpoint = load_checkpoint(arguments.source)
    save_checkpoint(
        arguments.target,
        checkpoint.backbone_name,
        checkpoint.backbone.state_dict(),
        class_names=checkpoint.class_names,
        config=checkpoint.config,
        dtype=torch.float16,
        classifier=checkpoint.classifier,
    )


if __name__ == "__main__":
    main()
