r"""The loss of a training step.

It is the cross-entropy with label smoothing of every image. Settings add to it:

- *margin*, for a cosine classifier: the logit of the true class is :math:`s (\cos - m)` instead of
  :math:`s \cos`, see ``cosine_classifier.py``. Accuracies and a teacher see logits without it.
- *mixup*: the images are mixed in pairs, see ``manifold_mixup.py``, and the loss is
  :math:`\lambda \ell(y_i) + (1 - \lambda) \ell(y_{\pi(i)})`.
- *rotation prediction*: a copy of the batch, a quarter each turned by 0, 90, 180 and 270 degrees,
  adds its cross-entropy and that of a second classifier for the angle. (S. Gidaris, A. Bursuc,
  N. Komodakis, P. Perez, M. Cord. Boosting Few-Shot Visual Learning with Self-Supervision. ICCV
  2019.)
- *distillation*: a share of the loss is the Kullback-Leibler divergence from the predictions of a
  teacher, both softened by a temperature T, times T squared. (Y. Tian, Y. Wang, D. Krishnan,
  J. Tenenbaum, P. Isola. Rethinking Few-Shot Image Classification. ECCV 2020.)
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div, log_softmax, one_hot

from infoshot.training.config import TrainConfig
from infoshot.training.manifold_mixup import ManifoldMixup

# Images to logits of the classes, and of the angles if rotations are predicted.
Network = Callable[[Tensor], tuple[Tensor, Tensor | None]]


@dataclass(frozen=True, eq=False)
class TrainingLoss:
    """Computes the loss of a batch.

    Parameters
    ----------
    config
        Weights of the terms.
    smoothing
        Label smoothing as PyTorch counts it.
    mixup
        Mixes the images, if they are to be mixed.
    teacher
        The network to learn from, if any.
    """

    config: TrainConfig
    smoothing: float
    mixup: ManifoldMixup | None = None
    teacher: Network | None = None

    def __call__(self, network: Network, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss, and how many images are classified correctly.

        With rotation prediction the turned images count, otherwise the images as they are, mixed
        ones by their own labels.
        """
        n = len(x)
        inputs, turns = x, None
        if self.config.rotation_weight:
            turned, turns = turn_quarters(x)
            inputs = torch.cat((x, turned)).contiguous(memory_format=torch.channels_last)
        share = None
        if self.mixup is not None:
            share = self.mixup.draw(n, len(inputs))
            inputs = self.mixup.mix_input(inputs)
        logits, angles = _in_half_precision(network, inputs)
        loss = self._class_loss(logits[:n], y, share)
        if self.teacher is not None:
            loss = self._distill(loss, logits[:n], x)
        if turns is not None and angles is not None:
            of_angles = cross_entropy(angles[n:], turns)
            loss = loss + self._cross_entropy(logits[n:], y)
            loss = loss + self.config.rotation_weight * of_angles
        return loss, (logits[-n:].argmax(1) == y).sum()

    def _class_loss(self, logits: Tensor, y: Tensor, share: Tensor | None) -> Tensor:
        loss = self._cross_entropy(logits, y)
        if share is None or self.mixup is None:
            return loss
        other = self._cross_entropy(logits, y[self.mixup.partners[: len(y)]])
        return torch.lerp(other, loss, share)

    def _cross_entropy(self, logits: Tensor, y: Tensor) -> Tensor:
        if self.config.margin:
            margin = self.config.classifier_scale * self.config.margin
            logits = logits - margin * one_hot(y, logits.shape[1])
        return cross_entropy(logits, y, label_smoothing=self.smoothing)

    def _distill(self, loss: Tensor, logits: Tensor, x: Tensor) -> Tensor:
        assert self.teacher is not None
        with torch.no_grad():
            taught, _ = _in_half_precision(self.teacher, x)
        temperature, weight = self.config.distillation_temperature, self.config.distillation_weight
        divergence = kl_div(
            log_softmax(logits / temperature, 1),
            log_softmax(taught / temperature, 1),
            log_target=True,
            reduction="batchmean",
        )
        return (1 - weight) * loss + weight * temperature**2 * divergence


def turn_quarters(x: Tensor) -> tuple[Tensor, Tensor]:
    """Turn the i-th quarter of a batch by i times 90 degrees; return it and i of each image."""
    quarters = x.tensor_split(4)
    turned = torch.cat([part.rot90(i, (2, 3)) for i, part in enumerate(quarters)])
    return turned, torch.cat([torch.full((len(q),), i) for i, q in enumerate(quarters)]).to(
        x.device
    )


def _in_half_precision(network: Network, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """Apply a network, in bfloat16 on a GPU; the logits are float32."""
    kind = x.device.type
    with torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"):
        logits, angles = network(x)
    return logits.float(), None if angles is None else angles.float()
