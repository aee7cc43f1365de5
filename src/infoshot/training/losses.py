"""The loss of base training."""

from torch import Tensor


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
    log_p = logits.log_softmax(1)
    true = log_p.gather(1, labels.unsqueeze(1)).squeeze(1)
    others = (log_p.sum(1) - true) / (logits.shape[1] - 1)
    return -((1 - smoothing) * true + smoothing * others).mean()
