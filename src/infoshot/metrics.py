"""Numbers per task, and their mean with a 95 % interval."""

import math

from torch import Tensor

from infoshot.errors import ShapeError


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
    if probabilities.shape[:2] != query_labels.shape:
        raise ShapeError(
            f"query_labels must have shape {tuple(probabilities.shape[:2])} like probabilities; "
            f"got {tuple(query_labels.shape)}."
        )
    right = (probabilities.argmax(-1) == query_labels).double()
    return right.sum(-1) / (query_labels >= 0).sum(-1)


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
    return mean, 1.96 * float(values.std()) / math.sqrt(len(values))
