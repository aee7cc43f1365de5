"""Trained systems with a tiny network and heads that all classify by the nearest class mean."""

import torch
from torch.nn.functional import normalize

from infoshot.backbones import Encoder, InputSpec, make_backbone
from infoshot.backbones.backbone import weights_digest
from infoshot.images.splits import published_split
from infoshot.solvers.objective import class_means, log_posterior
from infoshot.training.episodic.head import Head
from infoshot.training.episodic.trained_system import TrainedSystem

MINI = {
    split: [name for name, own in published_split("mini-imagenet").items() if own == split][:5]
    for split in ("train", "test")
}
BIRDS = [f"{number:03}.Bird" for number in range(1, 21)]  # five test classes by the rule of CUB


class Vectors(Head):
    """The method "prototype": unit length, nearest class mean."""

    def log_posterior(self, z_sup, y_sup, z_qry, n_way):
        z_sup, z_qry = normalize(z_sup, dim=-1), normalize(z_qry, dim=-1)
        return log_posterior(z_qry, class_means(z_sup, y_sup, n_way), 15.0)


class Maps(Vectors):
    """The same for the mean of each map."""

    reads = "maps"

    def log_posterior(self, z_sup, y_sup, z_qry, n_way):
        z_sup, z_qry = z_sup.mean((-1, -2)), z_qry.mean((-1, -2))
        return super().log_posterior(z_sup, y_sup, z_qry, n_way)


class Images(Vectors):
    """The same for images, which it passes through the network."""

    reads = "images"

    def attach(self, backbone):
        self.network = (backbone,)

    def log_posterior(self, z_sup, y_sup, z_qry, n_way):
        z_sup, z_qry = (
            self.network[0](z.flatten(0, 1)).unflatten(0, z.shape[:2]) for z in (z_sup, z_qry)
        )
        return super().log_posterior(z_sup, y_sup, z_qry, n_way)


def make_network(seed=0):
    """Return a network for images of 20 pixels."""
    torch.manual_seed(seed)
    backbone = make_backbone("conv4").eval()
    backbone.input_spec = InputSpec(crop=20, resize=24)
    return backbone


def make_system(name="feat", kind=Vectors, *, seed=0, shots=0, trained_on="mini-imagenet"):
    """Return a trained system around a network with random weights."""
    backbone = make_network(seed)
    config = {"dataset": trained_on, "system": name, "n_shot": shots}
    encoder = Encoder("conv4", backbone, weights_digest(backbone), config=config)
    head = kind(backbone.feature_dim, 5).eval()
    head.attach(backbone)
    return TrainedSystem(name, encoder, head, f"{name} {kind.__name__} {seed} {shots}")
