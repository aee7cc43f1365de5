r"""Entropy minimisation as published: fine-tuning from the logits of the base classifier.

The features of an image are the logits :math:`\ell(x)` of the network with the linear classifier of
base training, after a ReLU and scaled to unit length. A linear classifier of the task is put on
them,

.. math:: z_i = \frac{\mathrm{ReLU}(\ell(x_i))}{\|\mathrm{ReLU}(\ell(x_i))\|}, \qquad
          p_{ik} \propto \exp(w_k^\top z_i + b_k)

Start: :math:`w_k` is the mean of :math:`\mathrm{ReLU}(\ell(x_i))` over the support of class k,
scaled to unit length, and :math:`b_k = 0`.

Update: 25 epochs. An epoch is two steps of Adam with a learning rate of 5e-5 on all parameters (the
network, the base classifier, w and b): one on the cross-entropy of the support, then one on the
mean Shannon entropy of the queries. Support and queries each pass as one batch. Predictions are
those of the network in evaluation mode after the last step.

All of this is what the released code of the authors does on 5-way tasks with 15 queries per class.
Two things differ. They augment the images of the steps (flips, shifts by up to 4 pixels, brightness
and contrast); here the images are those of extraction, so that a task has one result. They split
more than 75 images into several passes; here a set is always one pass. A network that was trained
with a cosine classifier has no such logits and is refused.

Reference: G. S. Dhillon, P. Chaudhari, A. Ravichandran, S. Soatto. A Baseline for Few-Shot Image
Classification. ICLR 2020.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, normalize
from torch.nn.utils import skip_init

from infoshot.backbones import Backbone
from infoshot.core import checks
from infoshot.reproduction.adaptation import Adaptation, Predict
from infoshot.solvers.objective import class_means, conditional_entropy, support_cross_entropy


@dataclass(frozen=True, kw_only=True)
class EntMin(Adaptation):
    """Cross-entropy of the support and entropy of the queries, with the published defaults.

    Fine-tune a :class:`BaseLogits` with it. ``n_steps`` are epochs: each has two steps of Adam.

    Parameters
    ----------
    entropy_weight
        Weight of the entropy of the queries; Adam makes its scale almost irrelevant.
    """

    predicts_in_evaluation_mode: ClassVar[bool] = True
    entropy_weight: float = 1.0

    def validate(self) -> None:
        """Raise ``InvalidArgumentError`` if a number is not allowed."""
        super().validate()
        checks.positive("EntMin: entropy_weight", self.entropy_weight)

    def start(self, features: Tensor, y: Tensor, n_way: int) -> list[Tensor]:
        """Return the class means, scaled to unit length, and biases of 0."""
        (means,) = class_means(features.unsqueeze(0), y.unsqueeze(0), n_way)
        return [normalize(means, dim=-1), means.new_zeros(n_way)]

    def log_posterior(self, features: Tensor, classifier: Sequence[Tensor]) -> Tensor:
        """Return the posterior of the linear classifier."""
        logits = linear(normalize(features, dim=-1), *classifier)
        return torch.log_softmax(logits, dim=-1).unsqueeze(0)

    def losses(
        self, predict: Predict, x_sup: Tensor, y_sup: Tensor, x_qry: Tensor
    ) -> Iterator[Tensor]:
        """Yield the cross-entropy of the support, then the entropy of the queries."""
        (log_p_sup,) = predict(x_sup)
        yield support_cross_entropy(log_p_sup, y_sup).sum()
        (log_p_qry,) = predict(x_qry)
        yield self.entropy_weight * conditional_entropy(log_p_qry).sum()


class BaseLogits(Backbone):
    """A network with its base classifier: the features are the logits after a ReLU."""

    def __init__(self, backbone: Backbone, classifier: Mapping[str, Tensor]) -> None:
        super().__init__()
        n_classes, dim = classifier["weight"].shape
        like = next(backbone.parameters())
        self.backbone = backbone
        self.head = skip_init(nn.Linear, dim, n_classes, device=like.device, dtype=like.dtype)
        self.head.load_state_dict(dict(classifier))
        self.feature_dim, self.input_spec = n_classes, backbone.input_spec

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of the base classes, those below 0 replaced by 0."""
        return torch.relu(self.head(self.backbone(images)))
