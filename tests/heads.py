"""Heads of a user and a small network, for tests that train few-shot systems."""

import torch

from infoshot import InputSpec, InvalidArgumentError
from infoshot.backbones import Backbone
from infoshot.solvers.objective import class_means
from infoshot.training.episodic.head import Head


class Nearest(Head):
    """Product with the nearest example, times a factor."""

    def __init__(self, dim, n_base_classes, *, factor=3.0, sizes=(1, 2)):
        super().__init__(dim, n_base_classes)
        if factor == 13:
            raise RuntimeError("unlucky")
        self.factor, self.sizes = torch.nn.Parameter(torch.tensor(float(factor))), sizes

    def log_posterior(self, z_sup, y_sup, z_qry, n_way):
        scores = z_qry @ z_sup.mT
        columns = [scores.masked_fill(y_sup.unsqueeze(1) != k, -1e9).amax(-1) for k in range(n_way)]
        return torch.log_softmax(self.factor * torch.stack(columns, -1), -1)


class Demanding(Nearest):
    """A head whose setting has no default."""

    def __init__(self, dim, n_base_classes, *, factor):
        super().__init__(dim, n_base_classes, factor=factor)


class MapHead(Head):
    """Nearest mean of the largest value of each map, after batch normalisation."""

    reads = "maps"

    def __init__(self, dim, n_base_classes):
        super().__init__(dim, n_base_classes)
        self.norm = torch.nn.BatchNorm2d(dim)

    def log_posterior(self, z_sup, y_sup, z_qry, n_way):
        maps = torch.cat((z_sup, z_qry), 1)
        z = self.norm(maps.flatten(0, 1)).amax((-1, -2)).unflatten(0, maps.shape[:2])
        means = class_means(z[:, : z_sup.shape[1]], y_sup, n_way)
        distances = torch.cdist(z[:, z_sup.shape[1] :], means)
        return torch.log_softmax(-distances.square(), -1)


class ImageHead(Head):
    """Nearest mean after the first convolution of TinyNet, which the head itself applies."""

    reads = "images"

    def attach(self, backbone):
        self._attached = (backbone,)

    def log_posterior(self, z_sup, y_sup, z_qry, n_way):
        images = torch.cat((z_sup, z_qry), 1)
        z = self._attached[0].layers[0](images.flatten(0, 1)).relu().mean((2, 3))
        z = z.unflatten(0, images.shape[:2])
        means = class_means(z[:, : z_sup.shape[1]], y_sup, n_way)
        return torch.log_softmax(-torch.cdist(z[:, z_sup.shape[1] :], means).square(), -1)


class Linear(Head):
    """Nearest mean after a learnt linear map, for a fixed number of classes."""

    def __init__(self, dim, n_base_classes, *, n_way=5):
        super().__init__(dim, n_base_classes)
        self.n_way, self.map = n_way, torch.nn.Linear(dim, dim, bias=False)

    def log_posterior(self, z_sup, y_sup, z_qry, n_way):
        if n_way != self.n_way:
            raise InvalidArgumentError(f"n_way must be {self.n_way}; got {n_way}.")
        means = class_means(self.map(z_sup), y_sup, n_way)
        return torch.log_softmax(-torch.cdist(self.map(z_qry), means).square(), -1)


class TinyNet(Backbone):
    """Two convolutions over 16 x 16 pixels, 16 features."""

    feature_dim = 16
    input_spec = InputSpec(crop=16, resize=18)

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, stride=2, bias=False),
            torch.nn.BatchNorm2d(8),
            torch.nn.ReLU(),
            torch.nn.Conv2d(8, 16, 3, bias=False),
            torch.nn.BatchNorm2d(16),
            torch.nn.ReLU(),
        )

    def maps(self, images):
        return self.layers(images)

    def forward(self, images):
        return self.maps(images).mean((2, 3))


class VectorNet(torch.nn.Module):
    """A module that is not a backbone and has no feature maps."""

    input_spec = InputSpec(crop=16, resize=18)

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 4)

    def forward(self, images):
        return self.layer(images.mean((2, 3)))


class BareNet(Backbone):
    """A convolution without bias and without batch normalisation."""

    feature_dim = 4
    input_spec = InputSpec(crop=16, resize=18)

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Conv2d(3, 4, 3, bias=False)

    def forward(self, images):
        return self.layer(images).relu().mean((2, 3))
