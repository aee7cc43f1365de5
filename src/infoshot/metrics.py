"""Metrics per task, and their mean with a 95 % interval."""

import math

import torch
from torch import Tensor

from infoshot.core.errors import ShapeError

_Z95 = 1.96


def accuracy(probabilities: Tensor, query_labels: Tensor) -> Tensor:
    """Fraction of queries whose most probable class is the true one, per task.

    Queries labelled -1 belong to no class and are left out.

    Parameters
    ----------
    probabilities
        Probabilities or their logarithms, shape ``(task, query, class)``.
    query_labels
        True classes, shape ``(task, query)``.

    Returns
    -------
    Accuracy between 0 and 1, shape ``(task,)``.

    Examples
    --------
    >>> probabilities = torch.tensor([[[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]])
    >>> query_labels = torch.tensor([[0, 1, 1]])
    >>> accuracy(probabilities, query_labels)
    tensor([0.6667], dtype=torch.float64)
    """
    _check_shapes(probabilities, query_labels)
    right = (probabilities.argmax(-1) == query_labels).double()
    return right.sum(-1) / (query_labels >= 0).sum(-1)


def macro_accuracy(probabilities: Tensor, query_labels: Tensor) -> Tensor:
    """Mean accuracy of the classes that occur among the queries (balanced accuracy), per task.

    On imbalanced query sets a method that ignores rare classes scores high in :func:`accuracy` and
    low here. Parameters and return value are those of :func:`accuracy`.

    Examples
    --------
    >>> probabilities = torch.tensor([[[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]])
    >>> query_labels = torch.tensor([[0, 1, 1]])
    >>> macro_accuracy(probabilities, query_labels)  # (1 + 1/2) / 2
    tensor([0.7500], dtype=torch.float64)
    """
    _check_shapes(probabilities, query_labels)
    members = _one_hot(query_labels, probabilities.shape[-1])
    right = (probabilities.argmax(-1) == query_labels).double()
    sizes = members.sum(1)
    recalls = (members * right.unsqueeze(-1)).sum(1) / sizes.clamp(min=1)
    return recalls.sum(-1) / (sizes > 0).sum(-1)


def macro_f1(probabilities: Tensor, query_labels: Tensor) -> Tensor:
    r"""Mean F1 score of the classes that occur among the queries, per task.

    .. math:: F_1(k) = \frac{2 TP_k}{2 TP_k + FP_k + FN_k}

    Each query counts for its most probable class. Queries labelled -1 are left out, also as false
    positives. A class without queries is not in the mean, but predictions of it are errors of the
    classes that the queries belong to. This is scikit-learn's ``f1_score`` with
    ``average="macro"`` and ``labels`` set to the classes among the true labels.

    Parameters and return value are those of :func:`accuracy`.

    Examples
    --------
    >>> p = torch.eye(3)[[0, 0, 1, 2]].unsqueeze(0)
    >>> macro_f1(p, torch.tensor([[0, 0, 0, 1]]))  # (0.8 + 0) / 2
    tensor([0.4000], dtype=torch.float64)
    """
    _check_shapes(probabilities, query_labels)
    n_way = probabilities.shape[-1]
    true = _one_hot(query_labels, n_way)
    predicted = _one_hot(probabilities.argmax(-1), n_way) * (query_labels >= 0).unsqueeze(-1)
    n_true = true.sum(1)
    # 2 TP + FP + FN is the number of predictions plus the number of members of the class.
    scores = 2 * (true * predicted).sum(1) / (n_true + predicted.sum(1)).clamp(min=1)
    occurs = n_true > 0
    return (scores * occurs).sum(-1) / occurs.sum(-1)


def negative_log_likelihood(probabilities: Tensor, query_labels: Tensor) -> Tensor:
    """Mean negative log-probability of the true class, per task, in nats.

    A probability of zero counts as the smallest normal number of the dtype. Queries labelled -1 are
    left out.

    Examples
    --------
    >>> probabilities = torch.tensor([[[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]])
    >>> query_labels = torch.tensor([[0, 1, 1]])
    >>> negative_log_likelihood(probabilities, query_labels)
    tensor([0.4149], dtype=torch.float64)
    """
    _check_shapes(probabilities, query_labels)
    known = query_labels >= 0
    true = probabilities.gather(-1, query_labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    smallest = torch.finfo(probabilities.dtype).tiny
    log_p = true.clamp(min=smallest).double().log() * known
    return -log_p.sum(-1) / known.sum(-1)


def calibration_bins(probabilities: Tensor, query_labels: Tensor, n_bins: int = 15) -> Tensor:
    """Sums over all queries of all tasks that :func:`expected_calibration_error` needs.

    Sums of several batches of tasks can be added.

    Returns
    -------
    Number of queries, sum of confidences and number of correct predictions in each of ``n_bins``
    equal ranges of the confidence, shape ``(n_bins, 3)``.

    Examples
    --------
    >>> probabilities = torch.tensor([[[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]])
    >>> query_labels = torch.tensor([[0, 1, 1]])
    >>> calibration_bins(probabilities, query_labels, n_bins=2)  # all in the upper half
    tensor([[0.0000, 0.0000, 0.0000],
            [3.0000, 2.3000, 2.0000]], dtype=torch.float64)
    """
    _check_shapes(probabilities, query_labels)
    known = query_labels >= 0
    confidence, answer = probabilities.max(-1)
    confidence, right = confidence[known].double(), (answer == query_labels)[known].double()
    number = (confidence * n_bins).ceil().long().clamp(1, n_bins) - 1
    rows = torch.stack((torch.ones_like(confidence), confidence, right), -1)
    return rows.new_zeros(n_bins, 3).index_add_(0, number, rows)


def expected_calibration_error(bins: Tensor) -> float:
    """Mean absolute difference of confidence and accuracy over bins weighted by their queries.

    C. Guo, G. Pleiss, Y. Sun, K. Q. Weinberger. On calibration of modern neural networks. ICML
    2017. Between 0 and 1.

    Examples
    --------
    >>> probabilities = torch.tensor([[[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]])
    >>> query_labels = torch.tensor([[0, 1, 1]])
    >>> bins = calibration_bins(probabilities, query_labels, n_bins=2)
    >>> round(expected_calibration_error(bins), 3)
    0.1
    """
    count, confidence, right = bins.unbind(-1)
    return float((confidence - right).abs().sum() / count.sum())


def auroc(scores: Tensor, outlier: Tensor) -> Tensor:
    """Area under the receiver operating characteristic of outlier scores, per task.

    The probability that an outlier has a higher score than a query of the task's classes; equal
    scores count half.

    Parameters
    ----------
    scores
        Outlier scores, higher for likely outliers, shape ``(task, query)``.
    outlier
        Which queries are outliers, boolean, shape ``(task, query)``; both kinds must occur in every
        task.

    Examples
    --------
    >>> auroc(torch.tensor([[0.1, 0.4, 0.3, 0.9]]), torch.tensor([[False, False, True, True]]))
    tensor([0.7500], dtype=torch.float64)
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
    """Mean over tasks and half-width of its 95 % interval, 1.96 std / sqrt(n).

    The half-width for a single value is NaN.

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


def wilson_interval(n_right: float, n: float) -> tuple[float, float]:
    """Wilson's 95 % interval of a proportion; 0 and 1 if ``n`` is 0.

    Unlike the normal approximation it stays between 0 and 1 and has a width above 0 when all or
    none are correct. The numbers may be effective ones, of samples with weights.

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


def _one_hot(labels: Tensor, n_way: int) -> Tensor:
    """One-hot labels in float64; zeros for -1."""
    return (labels.unsqueeze(-1) == torch.arange(n_way, device=labels.device)).double()


def _check_shapes(probabilities: Tensor, query_labels: Tensor) -> None:
    if probabilities.shape[:2] != query_labels.shape:
        raise ShapeError(
            f"query_labels must have shape {tuple(probabilities.shape[:2])} like probabilities; "
            f"got {tuple(query_labels.shape)}."
        )
