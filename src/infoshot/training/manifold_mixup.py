r"""Manifold mixup: a step mixes images, or the maps of a random stage of the network, in pairs.

.. math:: x_i \leftarrow \lambda x_i + (1 - \lambda) x_{\pi(i)}, \qquad
          \lambda \sim \mathrm{Beta}(a, a)

with a random permutation :math:`\pi`; the loss mixes the labels in the same way.

V. Verma, A. Lamb, C. Beckham, A. Najafi, I. Mitliagkas, D. Lopez-Paz, Y. Bengio. Manifold Mixup.
ICML 2019. For few-shot learning: P. Mangla, M. Singh, A. Sinha, N. Kumari, V. Balasubramanian,
B. Krishnamurthy. Charting the Right Manifold. WACV 2020.
"""

from functools import partial

import torch
from torch import Tensor, nn
from torch.distributions import Beta

from infoshot.backbones import Backbone


class ManifoldMixup:
    """Mixes the input of a backbone, or the output of one of its stages except the last.

    Every place is always mixed, all but one with a share of 1, so that a compiled network does the
    same operations in each step. While ``active`` is False all shares are 1. Random numbers are
    those of PyTorch's global generator.

    Parameters
    ----------
    backbone
        The network; hooks are added to its stages, which do nothing in evaluation mode.
    concentration
        Parameter a of the Beta distribution.
    device
        Device of the network.
    """

    def __init__(self, backbone: Backbone, concentration: float, device: str) -> None:
        stages = backbone.stages()[:-1]
        parameter = torch.tensor(float(concentration))
        self._beta = Beta(parameter, parameter)
        self._shares = torch.ones(1 + len(stages), device=device)
        self._order = torch.empty(0, dtype=torch.int64, device=device)
        self.active = True
        for place, stage in enumerate(stages, start=1):
            stage.register_forward_hook(partial(self._mix_output, place))

    def draw(self, n_mixed: int, n_images: int) -> Tensor:
        """Draw place, share and pairs of a step; the first ``n_mixed`` images are mixed.

        Returns
        -------
        The share of each image in its own mixture, a scalar; its partner is in ``partners``.
        """
        if len(self._order) != n_images:
            self._order = torch.arange(n_images, device=self._order.device)
        self._order[:n_mixed] = torch.randperm(n_mixed).to(self._order.device)
        place = int(torch.randint(len(self._shares), ()))
        self._shares.fill_(1)
        if self.active:
            self._shares[place] = self._beta.sample()
        return self._shares[place]

    @property
    def partners(self) -> Tensor:
        """Number of the image that each image is mixed with."""
        return self._order

    def mix_input(self, images: Tensor) -> Tensor:
        """Mix the images themselves, if that is the place of this step."""
        return self._mix(0, images)

    def _mix_output(self, place: int, stage: nn.Module, inputs: object, output: Tensor) -> Tensor:
        return self._mix(place, output) if stage.training else output

    def _mix(self, place: int, x: Tensor) -> Tensor:
        return torch.lerp(x[self._order], x, self._shares[place].to(x.dtype))
