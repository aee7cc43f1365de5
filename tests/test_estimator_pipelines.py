"""``TIMClassifier`` in scikit-learn's pipelines, with its tables and its routing of metadata."""

import numpy as np
import pytest
import sklearn
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_validate
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from infoshot import TIMClassifier

NAMES = [f"pixel {n}" for n in range(64)]


@pytest.fixture(scope="module")
def digits():
    """Digits of which seven in ten are unlabelled."""
    X, y = load_digits(return_X_y=True)
    X, y = X[:300], y[:300].copy()
    y[np.random.default_rng(0).random(300) < 0.7] = -1
    return X, y


def scaled_tim(**settings):
    tim = TIMClassifier(method="tim-adm", n_steps=20, **settings)
    return Pipeline([("scale", StandardScaler()), ("tim", tim)])


def table(package, X):
    """Make a data frame of pandas or polars."""
    module = pytest.importorskip(package)
    return module.DataFrame(dict(zip(NAMES, X.T, strict=True)))


def test_a_pipeline_equals_its_steps(digits):
    X, y = digits
    pipeline, scaled = scaled_tim().fit(X, y), StandardScaler().fit_transform(X)
    alone = TIMClassifier(method="tim-adm", n_steps=20).fit(scaled, y)
    np.testing.assert_array_equal(pipeline["tim"].transduction_, alone.transduction_)
    np.testing.assert_array_equal(pipeline.predict_proba(X), alone.predict_proba(scaled))
    assert pipeline.score(X, y) == alone.score(scaled, y) > 0.9


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_tables_keep_their_column_names_through_set_output(digits, package, tmp_path):
    X, y = digits
    frame = table(package, X)
    pipeline = scaled_tim().set_output(transform=package).fit(frame, y)
    assert pipeline["tim"].feature_names_in_.tolist() == NAMES
    np.testing.assert_array_equal(pipeline.predict(frame), scaled_tim().fit(X, y).predict(X))
    with pytest.raises(ValueError, match="must be in the same order"):
        pipeline["tim"].predict(frame[NAMES[::-1]])
    pipeline["tim"].save(tmp_path / "tim.safetensors")
    again = TIMClassifier.load(tmp_path / "tim.safetensors")
    scaled = pipeline[:-1].transform(frame)
    np.testing.assert_array_equal(again.predict(scaled), pipeline.predict(frame))
    with pytest.raises(ValueError, match="must be in the same order"):
        again.predict(scaled[NAMES[::-1]])


def test_labels_come_from_a_column_of_pandas(digits):
    X, y = digits
    frame = table("pandas", X).assign(label=y)
    features = make_column_transformer((StandardScaler(), NAMES), remainder="drop")
    pipeline = make_pipeline(features, TIMClassifier(method="tim-adm", n_steps=20))
    fitted = pipeline.fit(frame, frame["label"])
    assert fitted.score(frame, frame["label"]) == scaled_tim().fit(X, y).score(X, y)


def test_text_labels_in_a_column_of_pandas_have_gaps(digits):
    X, y = digits
    pandas = pytest.importorskip("pandas")
    named = pandas.Series([f"digit {label}" if label >= 0 else None for label in y])
    by_name = scaled_tim().fit(X, named)
    by_number = scaled_tim().fit(X, y)["tim"].transduction_
    assert by_name["tim"].transduction_.tolist() == [f"digit {label}" for label in by_number]
    assert by_name.score(X, named) == scaled_tim().fit(X, y).score(X, y)


def test_grid_search_over_a_pipeline_scores_labelled_rows(digits):
    X, y = digits
    grid = {"tim__temperature": [1.0, 15.0], "scale__with_std": [True, False]}
    search = GridSearchCV(scaled_tim(), grid, cv=3, error_score="raise").fit(X, y)
    for number, (train, test) in enumerate(StratifiedKFold(3).split(X, y)):
        fitted = search.best_estimator_.fit(X[train], y[train])
        known = test[y[test] >= 0]
        right = np.mean(fitted.predict(X[known]) == y[known])
        scores = search.cv_results_[f"split{number}_test_score"]
        assert scores[search.best_index_] == pytest.approx(right)


def test_weights_of_rows_are_routed_to_the_score(digits):
    X, y = digits
    weights = np.random.default_rng(1).random(len(y))
    folds = StratifiedKFold(3)
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = scaled_tim()
        pipeline["tim"].set_score_request(sample_weight=True)
        pipeline["scale"].set_fit_request(sample_weight=False)
        routed = cross_validate(pipeline, X, y, cv=folds, params={"sample_weight": weights})
        with pytest.raises(TypeError, match="sample_weight"):
            pipeline.fit(X, y, sample_weight=weights)
    expected = []
    for train, test in folds.split(X, y):
        known = test[y[test] >= 0]
        right = scaled_tim().fit(X[train], y[train]).predict(X[known]) == y[known]
        expected.append(np.average(right, weights=weights[known]))
    np.testing.assert_allclose(routed["test_score"], expected)
