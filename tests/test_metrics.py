import math

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.metrics import balanced_accuracy_score, f1_score, log_loss, roc_auc_score

from infoshot import ShapeError
from infoshot.metrics import (
    accuracy,
    auroc,
    calibration_bins,
    expected_calibration_error,
    macro_accuracy,
    macro_f1,
    mean_interval,
    negative_log_likelihood,
)


def test_accuracy_counts_the_most_probable_class():
    p = torch.tensor([[[0.7, 0.3], [0.4, 0.6]], [[0.1, 0.9], [0.2, 0.8]]])
    labels = torch.tensor([[0, 0], [1, 1]])
    assert accuracy(p, labels).tolist() == [0.5, 1.0]
    assert accuracy(p.log(), labels).tolist() == [0.5, 1.0]


def test_accuracy_refuses_labels_of_the_wrong_shape():
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


@pytest.fixture
def predictions():
    """Three tasks of 40 queries and four imbalanced classes, with some outliers."""
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(3, 40, 4, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 7, (3, 40), generator=generator).clamp(max=3)
    labels[:, ::5] = -1
    return logits.softmax(-1), labels


def test_macro_accuracy_equals_sklearn(predictions):
    p, labels = predictions
    for i, value in enumerate(macro_accuracy(p, labels)):
        known = labels[i] >= 0
        expected = balanced_accuracy_score(labels[i][known], p[i].argmax(-1)[known])
        assert value.item() == pytest.approx(expected)


def test_macro_accuracy_is_over_the_classes_that_occur():
    p = torch.eye(4)[[0, 0, 0, 1]].unsqueeze(0)
    assert macro_accuracy(p, torch.tensor([[0, 0, 0, 2]])).item() == pytest.approx(0.5)


def test_macro_f1_equals_sklearn(predictions):
    p, labels = predictions
    labels[0][labels[0] == 3] = 2  # class 3 is predicted but does not occur
    for i, value in enumerate(macro_f1(p, labels)):
        known = labels[i] >= 0
        true, predicted = labels[i][known].numpy(), p[i].argmax(-1)[known].numpy()
        expected = f1_score(true, predicted, labels=np.unique(true), average="macro")
        assert value.item() == pytest.approx(expected)
    assert not torch.isin(3, labels[0])


def test_macro_f1_of_a_class_that_is_never_predicted_is_0():
    p = torch.eye(3)[[0, 0, 0]].unsqueeze(0)
    assert macro_f1(p, torch.tensor([[0, 1, 1]])).item() == pytest.approx((0.5 + 0) / 2)
    assert macro_f1(p, torch.tensor([[0, 0, -1]])).item() == 1  # an outlier is no false positive


def test_likelihood_equals_sklearn(predictions):
    p, labels = predictions
    for i, value in enumerate(negative_log_likelihood(p, labels)):
        known = labels[i] >= 0
        expected = log_loss(labels[i][known], p[i][known], labels=[0, 1, 2, 3])
        assert value.item() == pytest.approx(expected)


def test_likelihood_of_a_true_class_with_probability_0_is_finite():
    p = torch.tensor([[[1.0, 0.0]]])
    value = negative_log_likelihood(p, torch.tensor([[1]])).item()
    assert 80 < value < 100


def test_calibration_error_equals_its_definition(predictions):
    p, labels = predictions
    total, error = 0, 0.0
    for b in range(15):
        inside = (p.amax(-1) > b / 15) & (p.amax(-1) <= (b + 1) / 15) & (labels >= 0)
        if inside.any():
            gap = p.amax(-1)[inside].mean() - (p.argmax(-1) == labels)[inside].double().mean()
            error += int(inside.sum()) * abs(float(gap))
            total += int(inside.sum())
    whole = calibration_bins(p, labels)
    assert expected_calibration_error(whole) == pytest.approx(error / total)
    parts = calibration_bins(p[:1], labels[:1]) + calibration_bins(p[1:], labels[1:])
    torch.testing.assert_close(parts, whole)


def test_calibration_error_of_certain_predictions_is_their_error_rate():
    p = torch.eye(3)[[0, 1, 2, 2]].unsqueeze(0)
    assert expected_calibration_error(calibration_bins(p, torch.tensor([[0, 1, 2, 2]]))) == 0
    assert expected_calibration_error(calibration_bins(p, torch.tensor([[1, 2, 0, 0]]))) == 1


def test_auroc_equals_sklearn_with_ties(predictions):
    p, labels = predictions
    scores, outlier = (1 - p.amax(-1)).mul(10).round(), labels < 0
    for i, value in enumerate(auroc(scores, outlier)):
        assert value.item() == pytest.approx(roc_auc_score(outlier[i], scores[i]))
    with pytest.raises(ShapeError, match=r"outlier must have shape \(3, 40\)"):
        auroc(scores, outlier[:2])
