r"""A cosine classifier for base training: logits are scaled cosines of features and class weights.

.. math:: \ell_k = s_k \cos(f(x), w_k), \qquad
          \ell_y = s_y (\cos(f(x), w_y) - m) \text{ for the true class in the loss}

Learnt are the weights :math:`w_k` and, unless it is fixed, the scale: one for all classes or one
per class. The margin :math:`m` is subtracted from the true class's cosine in the loss only
(``losses.py``), as the papers define it. A positive margin pulls the images of a class together; a
negative one, as in Neg-cosine, lets them spread, which helps new classes. An image or a class
weight of length zero has the cosine 0. Cosines are computed in the precision of the weights, also
where the network computes in half precision, because the scale multiplies their rounding errors.

Published forms:

- S. Gidaris, N. Komodakis. Dynamic Few-Shot Visual Learning without Forgetting. CVPR 2018: one
  learned scale that starts at 10.
- W.-Y. Chen, Y.-C. Liu, Z. Kira, Y.-C. F. Wang, J.-B. Huang. A Closer Look at Few-shot
  Classification. ICLR 2019 (Baseline++): the released code learns a scale per class. It starts at 2
  times the length of the class's initial weights, about 1.2; here all start at the same value.
- B. Liu, Y. Cao, Y. Lin, Q. Li, Z. Zhang, M. Long, H. Hu. Negative Margin Matters: Understanding
  Margin in Few-shot Classification. ECCV 2020 (Neg-cosine): a fixed scale of 30.
"""

import math
from typing import Literal, final

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, normalize

Scaling = Literal["fixed", "learned", "per-class"]


@final
class CosineClassifier(nn.Module):
    """Scaled cosines of features and class weights.

    Parameters
    ----------
    dim, n_classes
        Width of the features and number of classes.
    scale
        The scale, or the one to start from.
    scaling
        ``"fixed"``, ``"learned"`` for one scale, or ``"per-class"`` for one of each class.
    """

    def __init__(
        self, dim: int, n_classes: int, scale: float = 10.0, scaling: Scaling = "learned"
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_classes, dim))
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))  # as a linear layer
        scales = torch.full((n_classes,) if scaling == "per-class" else (), float(scale))
        if scaling == "fixed":
            self.register_buffer("scale", scales)
        else:
            self.scale = nn.Parameter(scales)

    def forward(self, features: Tensor) -> Tensor:
        """Return the logits, shape ``(batch, class)``."""
        with torch.autocast(features.device.type, enabled=False):
            unit = normalize(features.to(self.weight.dtype), dim=-1)
            return self.scale * linear(unit, normalize(self.weight, dim=-1))
