"""Labels that the estimator accepts, and scores of partly labelled rows."""

import datetime
import warnings

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.metrics import accuracy_score
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    PredefinedSplit,
    StratifiedKFold,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from infoshot import InvalidArgumentError, TIMClassifier


@pytest.fixture(scope="module")
def digits():
    """Twelve labelled digits of each class, 150 unlabelled ones."""
    X, truth = load_digits(return_X_y=True)
    y = np.full(len(truth), -1)
    for digit in range(10):
        y[np.flatnonzero(truth == digit)[:12]] = digit
    keep = np.flatnonzero(y >= 0).tolist() + np.flatnonzero(y < 0)[:150].tolist()
    return X[np.sort(keep)], y[np.sort(keep)]


def by_hand(classifier, X, y, folds):
    """Accuracy of each fold on its labelled rows."""
    scores = []
    for train, test in folds.split(X, y):
        fitted = classifier.fit(X[train], y[train])
        labelled = test[y[test] >= 0]
        scores.append(accuracy_score(y[labelled], fitted.predict(X[labelled])))
    return scores


def test_score_ignores_unlabelled_rows(digits):
    X, y = digits
    fitted, known = TIMClassifier(method="tim-adm").fit(X, y), y >= 0
    expected = accuracy_score(y[known], fitted.predict(X[known]))
    assert fitted.score(X, y) == fitted.score(X[known], y[known]) == expected > 0.8
    names = [f"digit {label}" if label >= 0 else None for label in y]
    by_name = TIMClassifier(method="tim-adm").fit(X, names)
    assert by_name.score(X, names) == expected
    objects = np.array([int(label) if label >= 0 else None for label in y], dtype=object)
    assert fitted.score(X, objects) == expected


def test_score_takes_weights_of_all_rows(digits):
    X, y = digits
    fitted, known = TIMClassifier(method="tim-adm").fit(X, y), y >= 0
    weights = np.where(y < 5, 1.0, 3.0)
    right = fitted.predict(X[known]) == y[known]
    expected = (right * weights[known]).sum() / weights[known].sum()
    assert fitted.score(X, y, sample_weight=weights) == pytest.approx(expected)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        fitted.score(X, y, sample_weight=weights[known])


@pytest.mark.parametrize(
    "folds", [StratifiedKFold(3), KFold(4, shuffle=True, random_state=0)], ids=["-1 a stratum", ""]
)
def test_cross_validation_scores_labelled_rows_only(digits, folds):
    X, y = digits
    classifier = TIMClassifier(method="tim-adm", n_steps=30)
    expected = by_hand(classifier, X, y, folds)
    np.testing.assert_allclose(cross_val_score(classifier, X, y, cv=folds), expected)
    assert min(expected) > 0.7
    pipeline = make_pipeline(FunctionTransformer(), classifier)
    np.testing.assert_allclose(cross_val_score(pipeline, X, y, cv=folds), expected)


def test_grid_search_scores_labelled_rows_only(digits):
    X, y = digits
    grid = {"method": ["prototype", "tim-auto"]}
    search = GridSearchCV(TIMClassifier(), grid, cv=3).fit(X, y)
    for parameters, mean in zip(
        search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True
    ):
        scores = by_hand(TIMClassifier(**parameters), X, y, StratifiedKFold(3))
        assert mean == pytest.approx(np.mean(scores))
    assert search.best_score_ > 0.7
    assert search.score(X, y) == search.best_estimator_.score(X[y >= 0], y[y >= 0])


def test_a_fold_without_labels_has_no_score(digits):
    X, y = digits
    unlabelled = np.flatnonzero(y == -1)
    with pytest.raises(InvalidArgumentError, match="all rows of y are unlabelled"):
        TIMClassifier().fit(X, y).score(X[unlabelled], y[unlabelled])
    fold = np.where(y == -1, 0, 1)
    fold[np.flatnonzero(y >= 0)[::3]] = 2
    fold[np.flatnonzero(y >= 0)[1::3]] = -1  # always in the training part
    classifier, folds = TIMClassifier(method="prototype"), PredefinedSplit(fold)
    with pytest.warns(UserWarning, match="all rows of y are unlabelled"):
        scores = cross_val_score(classifier, X, y, cv=folds)
    assert np.isnan(scores).tolist() == [True, False, False]
    with pytest.raises(InvalidArgumentError, match="all rows of y are unlabelled"):
        cross_val_score(classifier, X, y, cv=folds, error_score="raise")


def objects(*labels):
    """Labels as an array of objects, three of each."""
    array = np.empty(3 * len(labels), dtype=object)
    for i in range(len(array)):
        array[i] = labels[i % len(labels)]
    return array


SAVED = {
    "text": ["a", "b"] * 3,
    "text that is not valid Unicode": ["a\udc80", "b"] * 3,
    "NumPy text as objects": objects(np.str_("a"), np.str_("b")),
    "whole numbers": [-2, 7] * 3,
    "whole numbers as objects": objects(0, np.int8(1)),
    "large whole numbers": np.array([2**63, 1] * 3, dtype=np.uint64),
    "whole floats": np.array([0.0, 1.0] * 3, dtype=np.float16),
    "long floats": np.array([0, 1] * 3, dtype=np.longdouble),
    "another byte order": np.array([0, 1] * 3, dtype=">i4"),
    "booleans": [True, False] * 3,
    "booleans as objects": objects(True, False),
}
if hasattr(np.dtypes, "StringDType"):
    SAVED["text of any length"] = np.array(["a", "bb"] * 3, dtype=np.dtypes.StringDType())


@pytest.mark.parametrize("kind", SAVED)
def test_labels_that_fit_accepts_survive_saving(kind, tmp_path):
    X, y = np.random.default_rng(0).normal(size=(6, 4)), SAVED[kind]
    fitted = TIMClassifier(method="prototype").fit(X, y)
    assert set(fitted.classes_.tolist()) == set(np.asarray(y).tolist())
    fitted.save(tmp_path / "clf")
    loaded = TIMClassifier.load(tmp_path / "clf")
    assert loaded.classes_.dtype == fitted.classes_.dtype
    np.testing.assert_array_equal(loaded.classes_, fitted.classes_)
    np.testing.assert_array_equal(loaded.predict(X), fitted.predict(X))
    assert 0 <= loaded.score(X, y) <= 1


REFUSED = {
    "days": (np.array(["2020-01-01", "2021-01-01"] * 3, dtype="M8[D]"), "labels of the type datetime64"),
    "durations": (np.array([1, 2] * 3, dtype="m8[s]"), "labels of the type timedelta64"),
    "dates as objects": (objects(datetime.date(2020, 1, 1), datetime.date(2021, 1, 1)), "a label of the type date"),
    "tuples": (objects((1, 2), (3, 4)), "a label of the type tuple"),
    "arrays": (objects(np.zeros(1), np.ones(1)), "a label of the type ndarray"),
    "bytes": (np.array([b"a", b"b"] * 3), r"labels of the type \|S1"),
    "records": (np.array([(1,), (2,)] * 3, dtype=[("a", int)]), "labels of the type"),
    "huge numbers": (objects(2**70, 1), "whole numbers of more than 64 bits"),
    "a null character at the end": (objects("a", "a\0"), "a label that NumPy cannot hold unchanged"),
    "text and numbers": (objects(1, "a"), "y mixes text and numbers as labels, such as 'a' and 1"),
    "text and numbers in a list": ([1, "a"] * 3, "y mixes text and numbers as labels, such as 'a' and 1"),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_labels_that_cannot_be_saved_are_refused_at_fit(kind):
    y, message = REFUSED[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InvalidArgumentError, match=message):
            TIMClassifier(method="prototype").fit(np.eye(6), y)
