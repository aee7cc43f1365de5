"""The loss of base training."""

from torch import Tensor
from torch.nn.functional import cross_entropy


def smoothed_cross_entropy(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    r"""Cross-entropy to targets of :math:`1 - \epsilon`, the rest spread over the other classes.

    .. math::
        -\frac1n \sum_i \Bigl[(1 - \epsilon) \log p_{i y_i}
            + \frac{\epsilon}{C - 1} \sum_{k \ne y_i} \log p_{ik}\Bigr]

    Parameters
    ----------
    logits
        Shape ``(sample, class)``.
    labels
        True classes, shape ``(sample,)``.
    smoothing
        :math:`\epsilon`, from 0 to below 1.
    """
    n_classes = logits.shape[1]
    # PyTorch spreads over all classes, the true one too: give it more, so that as much arrives.
    return cross_entropy(logits, labels, label_smoothing=smoothing * n_classes / (n_classes - 1))
