import math

import numpy as np
import pytest
import torch
from scipy import stats

from infoshot import ShapeError
from infoshot.metrics import accuracy, mean_interval


def test_accuracy_counts_the_most_probable_class():
    p = torch.tensor([[[0.7, 0.3], [0.4, 0.6]], [[0.1, 0.9], [0.2, 0.8]]])
    labels = torch.tensor([[0, 0], [1, 1]])
    assert accuracy(p, labels).tolist() == [0.5, 1.0]
    assert accuracy(p.log(), labels).tolist() == [0.5, 1.0]


def test_accuracy_refuses_labels_of_another_shape():
    with pytest.raises(ShapeError, match=r"query_labels must have shape \(2, 3\).*got \(3, 2\)"):
        accuracy(torch.rand(2, 3, 4), torch.zeros(3, 2))


def test_interval_equals_scipy():
    values = torch.from_numpy(np.random.default_rng(0).uniform(size=400))
    mean, half = mean_interval(values)
    low, high = stats.norm.interval(0.95, loc=values.mean(), scale=stats.sem(values))
    assert mean == pytest.approx((low + high) / 2)
    assert half == pytest.approx((high - low) / 2, rel=1e-4)


def test_interval_of_one_value_is_unknown():
    mean, half = mean_interval(torch.tensor([0.5]))
    assert mean == 0.5
    assert math.isnan(half)
