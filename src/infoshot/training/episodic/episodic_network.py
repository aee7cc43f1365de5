"""The network of episodic training: a backbone and the head of a system."""

from typing import final

import torch
from torch import Tensor

from infoshot.backbones import Backbone
from infoshot.training.episodic.episode_batches import EpisodeBatch
from infoshot.training.episodic.head import Episodes, Head
from infoshot.training.episodic.trained_system import read_images
from infoshot.training.problem import TrainedNetwork


@final
class EpisodicNetwork(TrainedNetwork):
    """A backbone with a head.

    Parameters
    ----------
    backbone, head
        The two parts; the head may keep the backbone, see ``Head.attach``.
    on_features
        Whether episodes hold features, so that the backbone is not used.
    """

    head: Head

    def __init__(self, backbone: Backbone, head: Head, *, on_features: bool = False) -> None:
        super().__init__()
        self.backbone, self.head, self.on_features = backbone, head, on_features
        self.uses_all_parameters = False  # as the exchange of gradients between processes requires
        self._read = read_images
        head.attach(backbone)

    def compile_backbone(self) -> None:
        """Compile what the backbone computes; heads are too different to compile."""
        self._read = torch.compile(read_images)

    def forward(self, batch: EpisodeBatch) -> tuple[Tensor, Tensor]:
        """Return the loss of a batch of episodes, and how many queries are classified correctly."""
        shape, n_sup = batch.samples.shape[:2], batch.y_sup.shape[1]
        z = self.encode(batch.samples.flatten(0, 1)).unflatten(0, shape)
        z_sup, z_qry = z[:, :n_sup], z[:, n_sup:]
        episodes = Episodes(z_sup, batch.y_sup, z_qry, batch.y_qry, batch.classes)
        loss, log_p = self.head.loss(episodes)
        if self.uses_all_parameters:
            used = (p for p in self.parameters() if p.requires_grad)
            loss = loss + 0 * sum(parameter.sum() for parameter in used)
        return loss, (log_p.argmax(-1) == batch.y_qry).sum()

    def encode(self, samples: Tensor) -> Tensor:
        """Return what the head reads of samples, in float32; the backbone uses bfloat16 on a GPU.

        Samples are normalised images ``(batch, 3, height, width)``, or features if the episodes
        hold features.
        """
        if self.on_features or self.head.reads == "images":
            return samples
        kind = samples.device.type
        with torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"):
            return self._read(self.backbone, self.head, samples).float()
