"""A trained few-shot system: a frozen backbone and a frozen head, read from a checkpoint."""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from infoshot.backbones import Backbone, Encoder
from infoshot.backbones.checkpoints import load_checkpoint, system_name
from infoshot.backbones.external.plain_module import source_digest
from infoshot.core.errors import DataError
from infoshot.training.episodic.head import Head
from infoshot.training.episodic.registry import SYSTEMS, make_head


@dataclass(frozen=True, eq=False)
class TrainedSystem:
    """A few-shot system after its training, in evaluation mode.

    Parameters
    ----------
    name
        Name of the system, such as ``protonet``.
    encoder
        The backbone with its weights, and what is known about the training.
    head
        Classifies tasks from what the backbone computes.
    digest
        The sha256 of everything that determines a prediction: weights of the backbone and of the
        head, name and settings of the system.

    Examples
    --------
    >>> from infoshot.training import load_system
    >>> system = load_system("runs/protonet")
    >>> system.encode(torch.zeros(2, 3, 84, 84)).shape[0]
    2
    """

    name: str
    encoder: Encoder
    head: Head
    digest: str

    @property
    def backbone_digests(self) -> tuple[str, ...]:
        """Digests of the weights whose features the head reads.

        A frozen backbone has the weights it started from, which may be stored in another precision
        and have another digest.
        """
        config = self.encoder.config
        started_from = str(config.get("init_sha256", ""))
        frozen = config.get("backbone_rate") == 0 and started_from
        return (self.encoder.digest, started_from) if frozen else (self.encoder.digest,)

    @torch.no_grad()
    def encode(self, images: Tensor) -> Tensor:
        """Return what the head reads of normalised images ``(batch, 3, height, width)``.

        Vectors ``(batch, dim)``, maps ``(batch, dim, height, width)``, or the images themselves.
        """
        return read_images(self.encoder.backbone, self.head, images)

    @torch.no_grad()
    def log_posterior(self, z_sup: Tensor, y_sup: Tensor, z_qry: Tensor, n_way: int) -> Tensor:
        """Return log-probabilities of the queries, shape ``(task, query, class)``.

        Samples are what the head reads: vectors, maps or normalised images.
        """
        return self.head.log_posterior(z_sup, y_sup, z_qry, n_way)


def read_images(backbone: Backbone, head: Head, images: Tensor) -> Tensor:
    """Compute what a head reads of a batch of normalised images."""
    if head.reads == "images":
        return images
    return backbone.maps(images) if head.reads == "maps" else backbone(images)


def is_system(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder is a checkpoint, or a training run, of a few-shot system.

    Examples
    --------
    >>> is_system("runs/protonet"), is_system("runs/conv4")
    (True, False)
    """
    return bool(system_name(Path(folder)))


def load_system(folder: str | os.PathLike[str]) -> TrainedSystem:
    """Read a trained system from a checkpoint; a training run stands for its ``best`` one.

    Raises
    ------
    DataError
        If the checkpoint is missing, damaged, or holds no system.
    InvalidArgumentError
        If its system is unknown.

    Examples
    --------
    >>> system = load_system("runs/protonet")
    >>> system.name, system.encoder.backbone_name
    ('protonet', 'conv4')
    """
    encoder = load_checkpoint(Path(folder))
    stored = encoder.system
    if stored is None:
        raise DataError(
            f"{folder}: holds a backbone, not a few-shot system; train one with system=NAME."
        )
    dim, n_classes = encoder.backbone.feature_dim, len(encoder.class_names)
    head = make_head(stored.name, dim, n_classes, stored.settings)
    own = head.state_dict()
    wrong = sorted(own.keys() ^ stored.tensors.keys()) or sorted(
        name for name, value in own.items() if value.shape != stored.tensors[name].shape
    )
    if wrong:
        raise DataError(
            f"{folder}: its head is not one of {stored.name} with these settings (such as "
            f"'{wrong[0]}')."
        )
    head.load_state_dict(stored.tensors)
    head.attach(encoder.backbone)
    facts = [encoder.digest, stored.digest, stored.name, dict(stored.settings)]
    if stored.name not in SYSTEMS:  # a user's class: its source code determines predictions too
        facts.append(source_digest(type(head)))
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return TrainedSystem(stored.name, encoder, head.eval().requires_grad_(False), digest)
