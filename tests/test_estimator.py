import pickle
import warnings
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

from infoshot import (
    DataError,
    InvalidArgumentError,
    Prototype,
    TaskBatch,
    TimAdm,
    TIMClassifier,
    solve,
)
from infoshot.solvers import METHODS, Method, Solver, resolve_method

EXPECTED_FAILURES = {
    # Its labels are -1 and 1, and -1 means unlabelled here, as in sklearn.semi_supervised.
    "check_classifiers_classes": "the check uses -1 as a class",
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # scikit-learn's own casts in two checks
@parametrize_with_checks(
    [TIMClassifier(), TIMClassifier(method="tim-adm"), TIMClassifier(method="tim-gd", n_steps=50)],
    expected_failed_checks=lambda _: EXPECTED_FAILURES,
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def digits():
    """Five labelled digits of each class, all others unlabelled."""
    X, truth = load_digits(return_X_y=True)
    y = np.full(len(truth), -1)
    for digit in range(10):
        y[np.flatnonzero(truth == digit)[:5]] = digit
    return X, y, truth


def test_labels_digits_better_than_prototypes(digits):
    X, y, truth = digits
    tim = TIMClassifier(method="tim-adm").fit(X, y)
    prototype = TIMClassifier(method="tim-adm").fit(X[y >= 0], y[y >= 0])
    unlabelled = y == -1
    transduced = accuracy_score(truth[unlabelled], tim.transduction_[unlabelled])
    assert transduced > accuracy_score(truth[unlabelled], prototype.predict(X[unlabelled])) + 0.02
    # New samples get the same probabilities as the same samples in the transduction.
    np.testing.assert_allclose(
        tim.predict_proba(X[unlabelled]), tim.label_distributions_[unlabelled], atol=1e-9
    )


def test_equals_the_solver_on_normalised_rows(digits):
    X, y, _ = digits
    z = torch.from_numpy(X / np.linalg.norm(X, axis=1, keepdims=True))
    sup, qry = z[y >= 0][None], z[y < 0][None]
    expected = solve(TimAdm(), TaskBatch(sup, torch.from_numpy(y[y >= 0])[None], qry, 10))
    fitted = TIMClassifier(method="tim-adm").fit(X, y)
    np.testing.assert_allclose(
        fitted.label_distributions_[y < 0], expected.probabilities[0], atol=1e-9
    )
    assert fitted.n_iter_ == 150


def test_labelled_rows_keep_their_label(digits):
    X, y, _ = digits
    fitted = TIMClassifier().fit(X, y)
    known = y >= 0
    assert (fitted.transduction_[known] == y[known]).all()
    assert (fitted.label_distributions_[known].max(1) == 1).all()
    np.testing.assert_allclose(fitted.label_distributions_.sum(1), 1)


def test_without_unlabelled_rows_it_equals_the_nearest_prototype(digits):
    X, y, _ = digits
    known = y >= 0
    z = X / np.linalg.norm(X, axis=1, keepdims=True)
    means = np.stack([z[known & (y == k)].mean(0) for k in range(10)])
    nearest = ((z[:, None] - means) ** 2).sum(-1).argmin(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = TIMClassifier(method="tim-adm").fit(X[known], y[known])
    assert (fitted.predict(X) == nearest).all()
    assert fitted.n_iter_ == 0
    np.testing.assert_allclose(fitted.prototypes_, means)


def test_string_labels_take_none_as_unlabelled(digits):
    X, y, _ = digits
    names = np.array([f"digit {label}" if label >= 0 else None for label in y], dtype=object)
    by_name, by_number = TIMClassifier().fit(X, names), TIMClassifier().fit(X, y)
    assert by_name.classes_.tolist() == [f"digit {k}" for k in range(10)]
    assert by_name.transduction_.tolist() == [f"digit {k}" for k in by_number.transduction_]
    assert TIMClassifier().fit(X.tolist(), list(names)).transduction_[0] == "digit 0"


def test_class_prior_changes_the_class_proportions(digits):
    X, y, _ = digits
    few = np.isin(y, [0, 1]) | (y == -1)
    uniform = TIMClassifier(method="tim-adm").fit(X[few], y[few])
    skewed = TIMClassifier(method="tim-adm", class_prior=[0.9, 0.1]).fit(X[few], y[few])
    assert (skewed.transduction_ == 0).sum() > (uniform.transduction_ == 0).sum() + 100


def test_few_unlabelled_rows_give_a_warning(digits):
    X, y, _ = digits
    known = np.flatnonzero(y >= 0)
    rows = np.concatenate([known, np.flatnonzero(y < 0)[:29]])
    with pytest.warns(UserWarning, match=r"29 unlabelled samples for 10 classes are fewer than three per class"):  # fmt: skip
        TIMClassifier(method="tim-adm").fit(X[rows], y[rows])
    few = rows[:60]
    assert TIMClassifier().fit(X[few], y[few]).note_.startswith("10 queries for 10 classes are too")


def test_running_out_of_steps_gives_a_warning(digits):
    X, y, _ = digits
    with pytest.warns(
        ConvergenceWarning, match=r"tim-adm did not reach the tolerance 1e-09 in 4 steps"
    ):
        fitted = TIMClassifier(method="tim-adm", n_steps=4, tolerance=1e-9).fit(X, y)
    assert fitted.n_iter_ == 4
    quick = TIMClassifier(method="tim-adm", n_steps=500, tolerance=0.05).fit(X, y)
    assert quick.n_iter_ < 100


def test_zero_rows_stay_zero_with_a_warning(digits):
    X, y, _ = digits
    X = X.copy()
    X[700] = 0
    with pytest.warns(UserWarning, match=r"1 rows of X are all zero.*first is row 700"):
        fitted = TIMClassifier().fit(X, y)
    assert np.isfinite(fitted.label_distributions_).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TIMClassifier(normalize=False).fit(X / 16, y)
    with pytest.warns(UserWarning, match="all zero"):
        assert np.isfinite(fitted.predict_proba(np.zeros((1, 64)))).all()


@pytest.mark.parametrize("kind", ["numbers", "strings"])
def test_saving_and_loading_keeps_the_predictions(digits, kind, tmp_path):
    X, y, _ = digits
    if kind == "strings":
        y = np.array([str(label) if label >= 0 else None for label in y], dtype=object)
    fitted = TIMClassifier(method="tim-adm", temperature=20.0, class_prior=np.ones(10)).fit(X, y)
    fitted.save(tmp_path / "clf.safetensors")
    loaded = TIMClassifier.load(tmp_path / "clf.safetensors")
    assert loaded.get_params()["temperature"] == 20.0
    for other in (loaded, pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(other.predict_proba(X), fitted.predict_proba(X))
        np.testing.assert_array_equal(other.predict(X), fitted.predict(X))
        np.testing.assert_array_equal(other.transduction_, fitted.transduction_)
        np.testing.assert_array_equal(other.classes_, fitted.classes_)
        assert other.n_iter_ == fitted.n_iter_
        assert other.n_features_in_ == 64


def test_loading_another_file_is_refused(tmp_path, embedded):
    path = tmp_path / "x.safetensors"
    with pytest.raises(DataError, match="there is no such file"):
        TIMClassifier.load(path)
    path.write_bytes(b"not safetensors at all")
    with pytest.raises(DataError, match="damaged, or not a TIMClassifier file"):
        TIMClassifier.load(path)
    from infoshot.features import write_features

    write_features(path, embedded)
    with pytest.raises(DataError, match="damaged, or not a TIMClassifier file"):
        TIMClassifier.load(path)


def test_saving_before_fitting_is_refused(tmp_path):
    with pytest.raises(NotFittedError):
        TIMClassifier().save(tmp_path / "x")


BAD = {
    "one class": ({}, [0, 0, -1, -1], "at least two classes; got 1 class "),
    "all unlabelled": ({}, [-1, -1, -1, -1], "at least two classes; got 0 classes"),
    "no method": ({"method": None}, [0, 1, -1, -1], "method must be a name, a Method, a Solver instance or a Solver class; got None"),
    "unknown method": ({"method": "tim"}, [0, 1, -1, -1], "Unknown method 'tim'"),
    "method without weights": ({"method": "pt-map"}, [0, 1, -1, -1], "method 'pt-map' classifies its queries only"),
    "setting of another method": ({"class_prior": [1, 1]}, [0, 1, -1, -1], "class_prior is not a setting of the method 'tim-auto'; these have it:"),
    "no steps": ({"n_steps": 0}, [0, 1, -1, -1], "n_steps must be a whole number of at least 1"),
    "negative temperature": ({"temperature": -1.0}, [0, 1, 0, 1], "temperature must be a finite number above 0"),
    "prior of wrong length": ({"method": "tim-adm", "class_prior": [1, 1, 1]}, [0, 1, -1, -1], "class_prior must hold one weight for each of the 2"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
@pytest.mark.filterwarnings("ignore:2 unlabelled samples")
def test_bad_arguments_get_one_clear_sentence(case):
    settings, y, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        TIMClassifier(**settings).fit(np.eye(4), y)


def test_works_inside_scikit_learn(digits):
    X, y, _ = digits
    known = y >= 0
    search = GridSearchCV(TIMClassifier(), {"temperature": [5.0, 15.0]}, cv=2)
    search.fit(X[known], y[known])
    assert search.best_score_ > 0.5
    assert clone(TIMClassifier(temperature=3.0)).temperature == 3.0


def test_error_is_also_a_value_error():
    with pytest.raises(InvalidArgumentError, match="requires y to be passed"):
        TIMClassifier().fit(np.eye(3), None)


@pytest.mark.parametrize("marker", [None, float("nan"), -1])
def test_lists_of_text_keep_their_markers(digits, marker):
    X, y, _ = digits
    names = [f"digit {label}" if label >= 0 else marker for label in y]
    fitted = TIMClassifier().fit(X, names)
    assert fitted.classes_.tolist() == [f"digit {k}" for k in range(10)]


@pytest.mark.parametrize("marker", ["-1", "nan", "None", ""])
@pytest.mark.parametrize("container", [np.array, list])
def test_markers_converted_to_text_are_refused(marker, container):
    with pytest.raises(
        InvalidArgumentError, match=rf"y holds the text '{marker}'; mark unlabelled"
    ):
        TIMClassifier().fit(np.eye(4), container(["a", "b", marker, marker]))


def test_prototype_method_classifies_every_row_independently(digits):
    X, y, _ = digits
    known = np.flatnonzero(y >= 0)
    rows = np.concatenate([known, [700]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alone = TIMClassifier(method="prototype").fit(X[rows], y[rows])
    together = TIMClassifier(method="prototype").fit(X, y)
    np.testing.assert_allclose(alone.label_distributions_[-1], together.label_distributions_[700])


def test_overflow_is_refused(digits):
    X, y, _ = digits
    with pytest.raises(InvalidArgumentError, match="so large that their squares overflow"):
        TIMClassifier(normalize=False).fit(X * 1e200, y)
    # Scaled to unit length, such values work.
    huge = TIMClassifier().fit(X * 1e200, y)
    assert (huge.transduction_ == TIMClassifier().fit(X, y).transduction_).all()


@pytest.mark.parametrize("classes", [np.int8, np.float32, bool, "<U8"])
def test_numpy_parameters_and_class_types_survive_saving(digits, classes, tmp_path):
    X, y, _ = digits
    few = np.isin(y, [0, 1])
    labels = y[few].astype(classes)
    fitted = TIMClassifier(n_steps=np.int64(20), temperature=np.float32(15)).fit(X[few], labels)
    fitted.save(tmp_path / "c")
    loaded = TIMClassifier.load(tmp_path / "c")
    assert loaded.classes_.dtype == fitted.classes_.dtype
    assert loaded.n_steps == 20
    np.testing.assert_array_equal(loaded.predict(X), fitted.predict(X))


def test_learning_rate_reaches_gradient_descent(digits):
    X, y, _ = digits
    slow, fast = (
        TIMClassifier(method="tim-gd", n_steps=20, learning_rate=rate).fit(X, y).prototypes_
        for rate in (1e-6, 1e-3)
    )
    start = TIMClassifier(method="prototype").fit(X, y).prototypes_
    assert np.abs(slow - start).max() < 1e-4 < np.abs(fast - start).max()


def test_prior_of_wrong_length_is_refused_without_unlabelled_rows():
    with pytest.raises(ValueError, match="class_prior must hold one weight for each of the 2"):
        TIMClassifier(method="tim-adm", class_prior=[1, 1, 1]).fit(np.eye(4), [0, 1, 0, 1])


INDUCTIVE = [name for name, method in METHODS.items() if method.inductive]


@pytest.mark.parametrize("method", INDUCTIVE)
def test_every_method_that_leaves_class_weights_can_be_chosen(digits, method, tmp_path):
    X, y, truth = digits
    normalize = METHODS[method].preparation == "l2"  # otherwise features as they are
    fitted = TIMClassifier(method=method, normalize=normalize).fit(X, y)
    new, old = slice(0, None, 7), y == -1
    assert accuracy_score(truth[new], fitted.predict(X[new])) > 0.7
    assert np.isfinite(fitted.outlier_scores_[old]).all()
    assert np.isnan(fitted.outlier_scores_[~old]).all()
    fitted.save(tmp_path / "clf")
    loaded = TIMClassifier.load(tmp_path / "clf")
    np.testing.assert_array_equal(loaded.predict_proba(X[new]), fitted.predict_proba(X[new]))
    np.testing.assert_array_equal(loaded.outlier_scores_, fitted.outlier_scores_)
    assert loaded.note_ == fitted.note_


def test_default_method_works_if_all_unlabelled_rows_are_of_one_class(digits):
    X, y, truth = digits
    rows = np.flatnonzero((y >= 0) | np.isin(truth, [3]))  # every unlabelled digit is a three
    unlabelled = y[rows] == -1

    def share_of_threes(method):
        fitted = TIMClassifier(method=method).fit(X[rows], y[rows])
        return (fitted.transduction_[unlabelled] == 3).mean(), fitted.note_

    auto, note = share_of_threes("tim-auto")
    assert auto > share_of_threes("prototype")[0]
    assert share_of_threes("tim-adm")[0] < 0.3 < 0.8 < auto
    assert "are estimated from the queries" in note


@pytest.mark.parametrize(
    "method",
    [
        "infoshot.solvers:TimAdm",
        TimAdm,
        TimAdm(),
        Method(name="mine", solver=TimAdm(), assumes=("balance",)),
        resolve_method("tim-adm"),
    ],
    ids=["reference", "class", "instance", "method", "registered"],
)
def test_a_method_can_be_given_as_an_object(digits, method, tmp_path):
    X, y, _ = digits
    expected = TIMClassifier(method="tim-adm", n_steps=20).fit(X, y)
    fitted = clone(TIMClassifier(method=method)).set_params(n_steps=20).fit(X, y)
    np.testing.assert_array_equal(fitted.label_distributions_, expected.label_distributions_)
    assert fitted.get_params()["method"] == method
    fitted.save(tmp_path / "clf")
    for other in (TIMClassifier.load(tmp_path / "clf"), pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(other.predict_proba(X), expected.predict_proba(X))
        assert clone(other).fit(X, y).n_iter_ == 20


def test_settings_of_a_solver_object_survive_saving(digits, tmp_path):
    X, y, _ = digits
    solver = TimAdm(n_steps=15, class_prior=(1,) * 10, form="feature")
    TIMClassifier(method=solver).fit(X, y).save(tmp_path / "clf")
    loaded = TIMClassifier.load(tmp_path / "clf").method
    assert loaded.name == "tim-adm"
    assert loaded.solver == TimAdm(n_steps=15, class_prior=[1] * 10, form="feature")


def test_methods_are_searched_like_any_parameter(digits):
    X, y, _ = digits
    known = y >= 0
    grid = {"method": ["prototype", Prototype(shrinkage=5.0), Prototype(shrinkage=1e6)]}
    search = GridSearchCV(TIMClassifier(), grid, cv=2).fit(X[known], y[known])
    assert search.best_params_["method"] in grid["method"][:2]


def test_a_solver_that_cannot_be_imported_again_is_not_saved(digits, tmp_path):
    @dataclass(frozen=True, kw_only=True)
    class Local(Solver):
        def init(self, task):
            return Prototype().init(task)

        def prototypes(self, task, state):
            return state.weights

    X, y, _ = digits
    fitted = TIMClassifier(method=Local()).fit(X, y)
    assert fitted.temperature_ == 1.0
    with pytest.raises(InvalidArgumentError, match=r"'local' cannot be saved: Local cannot be imp"):
        fitted.save(tmp_path / "clf")


def test_a_method_with_another_preparation_needs_prepared_rows(digits):
    X, y, _ = digits
    method = Method(name="mine", solver=Prototype(), preparation="power-l2")
    with pytest.raises(InvalidArgumentError, match=r"prepare X and pass normalize=False"):
        TIMClassifier(method=method).fit(X, y)
    roots = np.sqrt(X) / np.linalg.norm(np.sqrt(X), axis=1, keepdims=True)
    by_hand = TIMClassifier(method=method, normalize=False).fit(roots, y)
    np.testing.assert_allclose(
        by_hand.prototypes_, TIMClassifier(method="prototype").fit(np.sqrt(X), y).prototypes_
    )
