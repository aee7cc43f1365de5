"""A trained few-shot system: a frozen backbone and a frozen head."""

from dataclasses import dataclass

import torch
from torch import Tensor

from infoshot.backbones import Encoder
from infoshot.training.episodic.head import Head


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
    """

    name: str
    encoder: Encoder
    head: Head
    digest: str

    @torch.no_grad()
    def log_posterior(self, z_sup: Tensor, y_sup: Tensor, z_qry: Tensor, n_way: int) -> Tensor:
        """Return log-probabilities of the queries, shape ``(task, query, class)``.

        Samples are what the head reads: vectors, maps or normalised images.
        """
        return self.head.log_posterior(z_sup, y_sup, z_qry, n_way)
