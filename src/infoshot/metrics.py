"""Numbers per task, and their mean with a 95 % interval."""

import math

import torch
from torch import Tensor

from infoshot.core.errors import ShapeError

_Z95 = 1.96


def accuracy(probabilities: Tensor, query_labels: Tensor) -> Tensor:
    """Share of queries whose most probable class is the true one, per task.

    Queries labelled -1 belong to no class and do not count.

    Parameters
    ----------
    probabilities
        Probabilities or their logarithms, shape ``(task, query, class)``.
    query_labels
        True classes, shape ``(task, query)``.

    Returns
    -------
    Accuracy between 0 and 1, shape ``(task,)``.
    """
    _check_shapes(probabilities, query_labels)
    right = (probabilities.argmax(-1) == query_labels).double()
    return right.sum(-1) / (query_labels >= 0).sum(-1)


def macro_accuracy(probabilities: Tensor, query_labels: Tensor) -> Tensor:
    """Accuracy of every class that occurs among the queries, averaged over them, per task.

    Under skewed query sets a method that ignores rare classes does well in :func:`accuracy` and
    badly here. Arguments and result are as there.
    """
    _check_shapes(probabilities, query_labels)
    n_way = probabilities.shape[-1]
    members = (
        query_labels.unsqueeze(-1) == torch.arange(n_way, device=query_labels.device)
    ).double()
    right = (probabilities.argmax(-1) == query_labels).double()
    sizes = members.sum(1)
    recalls = (members * right.unsqueeze(-1)).sum(1) / sizes.clamp(min=1)
    return recalls.sum(-1) / (sizes > 0).sum(-1)


def negative_log_likelihood(probabilities: Tensor, query_labels: Tensor) -> Tensor:
    """Mean of minus the logarithm of the true class's probability, per task, in nats.

    A probability of zero counts as the smallest one that the dtype can hold. Queries labelled -1
    do not count.
    """
    _check_shapes(probabilities, query_labels)
    known = query_labels >= 0
    true = probabilities.gather(-1, query_labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    smallest = torch.finfo(probabilities.dtype).tiny
    log_p = true.clamp(min=smallest).double().log() * known
    return -log_p.sum(-1) / known.sum(-1)


def calibration_bins(probabilities: Tensor, query_labels: Tensor, n_bins: int = 15) -> Tensor:
    """Sums that :func:`expected_calibration_error` needs, of all queries of all tasks together.

    Sums of several batches of tasks may be added up.

    Returns
    -------
    Number of queries, sum of confidences and number of right answers in each of ``n_bins`` equal
    ranges of the confidence, shape ``(n_bins, 3)``.
    """
    _check_shapes(probabilities, query_labels)
    known = query_labels >= 0
    confidence, answer = probabilities.max(-1)
    confidence, right = confidence[known].double(), (answer == query_labels)[known].double()
    number = (confidence * n_bins).ceil().long().clamp(1, n_bins) - 1
    rows = torch.stack((torch.ones_like(confidence), confidence, right), -1)
    return rows.new_zeros(n_bins, 3).index_add_(0, number, rows)


def expected_calibration_error(bins: Tensor) -> float:
    """Mean distance between confidence and accuracy, over bins weighted by their queries.

    C. Guo, G. Pleiss, Y. Sun, K. Q. Weinberger. On calibration of modern neural networks. ICML
    2017. Between 0 and 1.
    """
    count, confidence, right = bins.unbind(-1)
    return float((confidence - right).abs().sum() / count.sum())


def auroc(scores: Tensor, outlier: Tensor) -> Tensor:
    """Probability that a query of no class gets a higher score than one of the task's classes.

    The area under the receiver operating characteristic, per task; equal scores count half.

    Parameters
    ----------
    scores
        Higher for queries that look like outliers, shape ``(task, query)``.
    outlier
        Whether they are, boolean, shape ``(task, query)``; both kinds must occur in every task.
    """
    if scores.shape != outlier.shape:
        raise ShapeError(
            f"outlier must have shape {tuple(scores.shape)} like scores; "
            f"got {tuple(outlier.shape)}."
        )
    difference = scores.unsqueeze(-1) - scores.unsqueeze(-2)
    wins = (difference > 0).double() + 0.5 * (difference == 0).double()
    pairs = (outlier.unsqueeze(-1) & ~outlier.unsqueeze(-2)).double()
    return (wins * pairs).sum((-2, -1)) / pairs.sum((-2, -1))


def mean_interval(values: Tensor) -> tuple[float, float]:
    """Mean over tasks and half the width of its 95 % interval, 1.96 std / sqrt(n).

    The interval of a single value is not known and comes back as NaN.

    Examples
    --------
    >>> import torch
    >>> mean, half_width = mean_interval(torch.tensor([0.5, 0.7, 0.6, 0.6]))
    >>> f"{mean:.2f} ± {half_width:.2f}"
    '0.60 ± 0.08'
    """
    values = values.double()
    mean = float(values.mean())
    if len(values) < 2:
        return mean, math.nan
    return mean, _Z95 * float(values.std()) / math.sqrt(len(values))


def wilson_interval(n_right: int, n: int) -> tuple[float, float]:
    """Ends of the 95 % interval of a share, by Wilson's formula; 0 and 1 if nothing was counted.

    Unlike the mean plus or minus its error it stays between 0 and 1, and has a width where all or
    none are right.

    Examples
    --------
    >>> low, high = wilson_interval(90, 100)
    >>> round(low, 3), round(high, 3)
    (0.826, 0.945)
    """
    if n == 0:
        return 0.0, 1.0
    square = _Z95**2
    middle = (n_right + square / 2) / (n + square)
    half = _Z95 / (n + square) * math.sqrt(n_right * (n - n_right) / n + square / 4)
    return max(0.0, middle - half), min(1.0, middle + half)


def _check_shapes(probabilities: Tensor, query_labels: Tensor) -> None:
    if probabilities.shape[:2] != query_labels.shape:
        raise ShapeError(
            f"query_labels must have shape {tuple(probabilities.shape[:2])} like probabilities; "
            f"got {tuple(query_labels.shape)}."
        )
