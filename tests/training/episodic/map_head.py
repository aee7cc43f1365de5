"""Heads of maps in tests on vectors, and random batch normalisation."""

import math

import torch
from torch import nn

from infoshot.training.episodic.head import Episodes, Head


class MapHead(Head):
    """Turns vectors into maps by a random matrix, and calls a head of maps."""

    def __init__(self, head: Head, n_features: int, shape: tuple[int, int, int]) -> None:
        super().__init__(n_features, head.n_base_classes)
        self.head, self.shape = head, shape
        generator = torch.Generator().manual_seed(0)
        matrix = torch.randn(n_features, math.prod(shape), generator=generator)
        self.register_buffer("matrix", matrix / n_features**0.5)

    def log_posterior(self, z_sup, y_sup, z_qry, n_way):
        return self.head.log_posterior(self.maps(z_sup), y_sup, self.maps(z_qry), n_way)

    def loss(self, episodes):
        z_sup, z_qry = self.maps(episodes.z_sup), self.maps(episodes.z_qry)
        y_sup, y_qry, classes = episodes.y_sup, episodes.y_qry, episodes.classes
        return self.head.loss(Episodes(z_sup, y_sup, z_qry, y_qry, classes))

    def maps(self, z):
        return (z @ self.matrix).unflatten(2, self.shape)


def map_episodes(shape: tuple[int, int, int]) -> Episodes:
    """Two tasks of 3 ways in float64, with 1, 3 and 2 shots, and 6 queries."""
    generator = torch.Generator().manual_seed(0)
    y_sup, y_qry = torch.tensor([[0, 1, 1, 1, 2, 2], [1, 2, 1, 0, 2, 1]]), torch.arange(3)
    z_sup, z_qry = (
        torch.randn(2, 6, *shape, generator=generator, dtype=torch.float64) for _ in range(2)
    )
    classes = torch.tensor([[4, 0, 7], [2, 3, 6]])
    return Episodes(z_sup, y_sup, z_qry, y_qry.repeat(2, 2), classes)


def randomise_norms(head: Head) -> Head:
    """Give all batch normalisations random weights and running statistics; in float64."""
    generator = torch.Generator().manual_seed(0)
    for module in head.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            for tensor in (module.weight.data, module.running_var):
                tensor.uniform_(0.5, 2, generator=generator)
            for tensor in (module.bias.data, module.running_mean):
                tensor.normal_(generator=generator)
    return head.double().eval()
