"""Encoders by what users call them."""

from pathlib import Path

from infoshot.backbones.checkpoints import Checkpoint, open_checkpoint


def open_encoder(spec: str) -> Checkpoint:
    """Read the encoder a user names."""
    folder = Path(spec)
    return open_checkpoint(folder, None) if folder.exists() else open_checkpoint(None, spec)
