"""``TIMClassifier``: the methods as a scikit-learn estimator. NumPy in, NumPy out."""

import dataclasses
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from infoshot.core.checks import few_queries, numeric_tensor, one_of
from infoshot.core.class_labels import keep_types, split_labels
from infoshot.core.errors import InvalidArgumentError, NonFiniteWarning
from infoshot.core.tensor_file import write_tensor_file
from infoshot.core.types import Status, TaskBatch
from infoshot.estimator_file import KIND, read_fitted
from infoshot.features import unit_length
from infoshot.solvers import (
    METHODS,
    Method,
    Prototype,
    Solver,
    method_facts,
    resolve_method,
    solve_with_retry,
    stored_method,
)

Array = NDArray[Any]


class TIMClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classify many unlabelled samples from a few labelled ones.

    Rows of ``X`` whose label is -1 (or ``None`` among string labels) are unlabelled. ``fit`` uses
    labelled and unlabelled rows together to find class weights that classify the labelled rows
    correctly and the unlabelled rows confidently. The default method estimates the class balance of
    the unlabelled rows from the features. Without unlabelled rows the classifier is the nearest
    class mean (shrunken with ``tim-auto``).

    Every parameter except ``method`` and ``normalize`` is a setting of the method: ``None`` keeps
    the default of the method; a value for a setting that the method does not have is an error.

    Parameters
    ----------
    method
        A name: ``"tim-auto"`` (any class balance), ``"tim-adm"`` (expects equally frequent classes,
        or ``class_prior``), ``"prototype"`` (classifies every sample independently), or any other
        method that classifies new samples. Also ``"package.module:Name"``, a ``Method``, a
        ``Solver`` instance or a ``Solver`` class, see ``infoshot.solvers.resolve_method``.
    temperature
        Factor on similarities in the posterior; larger is sharper.
    cross_entropy_weight, marginal_entropy_weight, conditional_entropy_weight
        Weights of the three terms of TIM's objective.
    class_prior
        Expected proportion of each class among the unlabelled rows, in the order of ``classes_``;
        for tim-adm and tim-gd. ``None``: all equal.
    n_steps
        Largest number of steps.
    learning_rate
        Step size of the methods that use gradient descent.
    tolerance
        Stop once no probability changes by more than this in a step. ``None``: run all steps.
    normalize
        Scale every row to unit length first. An all-zero row stays zero, with a warning.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels seen in ``fit``.
    transduction_ : ndarray of shape (n_samples,)
        A label for every row of ``X``; labelled rows keep theirs.
    label_distributions_ : ndarray of shape (n_samples, n_classes)
        Probabilities for every row of ``X``; labelled rows have all of it on their label.
    outlier_scores_ : ndarray of shape (n_samples,)
        How unlikely each unlabelled row belongs to any class, larger is less likely; NaN for
        labelled rows.
    note_ : str
        What the method decided about these rows and why, as text; empty if it has no note. It also
        says if the solve diverged and the rows were solved again with smaller steps.
    prototypes_ : ndarray of shape (n_classes, n_features)
        The learned class weights, which ``predict`` uses for new samples. ``tim-auto`` also uses
        the neighbours of each row in ``fit``, so ``transduction_`` and ``predict`` can differ for
        the same rows.
    temperature_ : float
        Factor on similarities in the probabilities of ``predict_proba``.
    n_iter_ : int
        Steps taken.

    Examples
    --------
    >>> import numpy as np
    >>> from infoshot import TIMClassifier
    >>> X = np.array([[1, 0], [0, 1], [0.9, 0.2], [0.8, 0.1], [0.7, 0.3],
    ...               [0.2, 0.9], [0.1, 0.8], [0.3, 0.7]])
    >>> TIMClassifier().fit(X, [0, 1, -1, -1, -1, -1, -1, -1]).transduction_
    array([0, 1, 0, 0, 0, 1, 1, 1])
    """

    def __init__(
        self,
        *,
        method: str | Method | Solver[Any] | type[Solver[Any]] = "tim-auto",
        temperature: float | None = None,
        cross_entropy_weight: float | None = None,
        marginal_entropy_weight: float | None = None,
        conditional_entropy_weight: float | None = None,
        class_prior: Sequence[float] | None = None,
        n_steps: int | None = None,
        learning_rate: float | None = None,
        tolerance: float | None = None,
        normalize: bool = True,
    ) -> None:
        self.method = method
        self.temperature = temperature
        self.cross_entropy_weight = cross_entropy_weight
        self.marginal_entropy_weight = marginal_entropy_weight
        self.conditional_entropy_weight = conditional_entropy_weight
        self.class_prior = class_prior
        self.n_steps = n_steps
        self.learning_rate = learning_rate
        self.tolerance = tolerance
        self.normalize = normalize

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from labelled and unlabelled rows together.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features of all samples.
        y : array-like of shape (n_samples,)
            Labels: text, whole numbers or booleans; -1, or ``None`` among strings, marks an
            unlabelled row.

        Returns
        -------
        The fitted classifier.

        Raises
        ------
        InvalidArgumentError
            If the method, a setting or the labels are not valid.
        """
        if y is None:
            raise InvalidArgumentError(
                "TIMClassifier requires y to be passed, but the target y is None."
            )
        z = self._features(validate_data(self, X, dtype=[np.float64, np.float32]))
        known, unlabelled = split_labels(column_or_1d(keep_types(y), warn=True))
        check_consistent_length(z, unlabelled)
        check_classification_targets(known)
        self.classes_, encoded = np.unique(known, return_inverse=True)
        n_way = len(self.classes_)
        if n_way < 2:
            raise InvalidArgumentError(
                "TIMClassifier needs labelled samples of at least two classes; got "
                f"{n_way} class{'' if n_way == 1 else 'es'} (-1 and None mark unlabelled samples)."
            )
        self.label_distributions_ = np.zeros((len(z), n_way), dtype=z.dtype)
        self.label_distributions_[np.flatnonzero(~unlabelled), encoded] = 1
        self.outlier_scores_ = np.full(len(z), np.nan, dtype=z.dtype)
        posterior, scores = self._solve(z[~unlabelled], encoded, z[unlabelled], n_way)
        self.label_distributions_[unlabelled] = posterior
        self.outlier_scores_[unlabelled] = scores
        self.transduction_ = self.classes_[self.label_distributions_.argmax(1)]
        return self

    def predict_proba(self, X: ArrayLike) -> Array:
        """Probabilities of the classes for new samples, given the learned class weights.

        Returns
        -------
        ndarray of shape (n_samples, n_classes), in the order of ``classes_``.
        """
        check_is_fitted(self)
        features = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        # Cloned memory is aligned, so that a loaded classifier rounds as the original does.
        w = numeric_tensor("prototypes_", self.prototypes_).unsqueeze(0).clone()
        z = numeric_tensor("X", self._features(features)).to(w).unsqueeze(0)
        solver = self._method().solver.at_temperature(self.temperature_)
        probabilities: Array = solver.classify(z, w)[0].exp().numpy()
        return probabilities

    def predict(self, X: ArrayLike) -> Array:
        """Most probable class of new samples, given the learned class weights."""
        probabilities = self.predict_proba(X)
        labels: Array = self.classes_[probabilities.argmax(1)]
        return labels

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Accuracy of ``predict`` on the labelled rows; unlabelled rows are ignored.

        So ``GridSearchCV`` and ``cross_val_score`` work on partly labelled data. With
        ``scoring="accuracy"`` instead of the default they would count -1 as a class.

        Parameters
        ----------
        X, y
            As in :meth:`fit`.
        sample_weight : array-like of shape (n_samples,)
            Weights of all rows. ``None``: all equal.

        Raises
        ------
        InvalidArgumentError
            If no row is labelled.
        """
        known, unlabelled = split_labels(column_or_1d(keep_types(y), warn=True))
        check_consistent_length(X, unlabelled, sample_weight)
        if not len(known):
            raise InvalidArgumentError(
                "all rows of y are unlabelled (-1 or None), so there is no accuracy to compute; "
                "in a cross-validation, use fewer folds or label more rows."
            )
        weights = None if sample_weight is None else column_or_1d(sample_weight)[~unlabelled]
        predicted = self.predict(X)[~unlabelled]
        return float(accuracy_score(known, predicted, sample_weight=weights))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted classifier as safetensors; :meth:`load` reads it.

        Raises
        ------
        InvalidArgumentError
            If the method is an object whose class cannot be imported again.
        """
        check_is_fitted(self)
        parameters = self.get_params(deep=False)
        if not isinstance(self.method, str):
            parameters["method"] = method_facts(resolve_method(self.method))
        facts = {
            "parameters": {name: _plain(value) for name, value in parameters.items()},
            "classes": self.classes_.tolist(),
            "classes_dtype": self.classes_.dtype.str,
            "n_iter": self.n_iter_,
            "note": self.note_,
            "temperature": self.temperature_,
            "feature_names": getattr(self, "feature_names_in_", np.array([])).tolist(),
        }
        fitted = {
            "prototypes": self.prototypes_,
            "label_distributions": self.label_distributions_,
            "outlier_scores": self.outlier_scores_,
        }
        tensors = {name: torch.from_numpy(value) for name, value in fitted.items()}
        write_tensor_file(Path(path), tensors, facts, kind=KIND)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a classifier that :meth:`save` wrote.

        A method that was passed as an object is loaded as a ``Method``.

        Raises
        ------
        DataError
            If the file is missing, damaged, or not a classifier.
        InvalidArgumentError
            If its method cannot be made here. A file never imports a module: import the module of
            a method that is not part of this package first.
        """
        fitted, facts, classes = read_fitted(Path(path), cls._get_param_names())
        parameters = facts["parameters"]
        parameters["method"] = stored_method(parameters["method"])
        classifier = cls(**parameters)
        classifier._method().solver.validate(len(classes))  # fails here, not in predict
        classifier.prototypes_ = fitted["prototypes"]
        classifier.label_distributions_ = fitted["label_distributions"]
        classifier.outlier_scores_ = fitted["outlier_scores"]
        classifier.n_iter_, classifier.note_ = facts["n_iter"], facts["note"]
        classifier.temperature_ = facts["temperature"]
        classifier.classes_ = classes
        classifier.n_features_in_ = classifier.prototypes_.shape[1]
        if facts["feature_names"]:
            classifier.feature_names_in_ = np.array(facts["feature_names"], dtype=object)
        best = classifier.label_distributions_.argmax(1)
        classifier.transduction_ = classifier.classes_[best]
        return classifier

    def _solve(self, z_sup: Array, y_sup: Array, z_qry: Array, n_way: int) -> tuple[Array, Array]:
        """Find the class weights; return probabilities and outlier scores of the unlabelled."""
        method, n_qry = self._method(), len(z_qry)
        solver = method.solver
        solver.validate(n_way)
        if n_qry == 0:
            z_qry = z_sup[:1]  # a placeholder, since a task needs a query
        elif method.expects_balance and (warning := few_queries(n_qry, n_way)):
            warnings.warn(warning, UserWarning, stacklevel=3)
        tasks = TaskBatch(
            numeric_tensor("X", z_sup).unsqueeze(0),
            torch.from_numpy(y_sup).unsqueeze(0),
            numeric_tensor("X", z_qry).unsqueeze(0),
            n_way,
        )
        if n_qry == 0 and method.transductive and solver.planned_steps(tasks) > 0:
            solver = Prototype()
        with warnings.catch_warnings():
            warnings.simplefilter("error", NonFiniteWarning)
            try:
                solution = solve_with_retry(solver, tasks)
            except NonFiniteWarning as error:
                raise InvalidArgumentError(
                    "X holds values so large that their squares overflow; scale the features first "
                    "(normalize=True does)."
                ) from error
        self.prototypes_ = solution.prototypes[0].numpy()
        self.n_iter_ = int(solution.n_steps[0])
        if solver.tolerance is not None and solution.status[0] != Status.CONVERGED:
            warnings.warn(
                f"{method.name} did not reach the tolerance {solver.tolerance} in {self.n_iter_} "
                "steps; raise n_steps or tolerance.",
                ConvergenceWarning,
                stacklevel=3,
            )
        self.temperature_ = float(solution.temperatures[0])
        self.note_ = solution.notes[0] if solution.notes and n_qry else ""
        return (
            solution.probabilities[0, :n_qry].numpy(),
            solution.outlier_scores[0, :n_qry].numpy(),
        )

    def _method(self) -> Method:
        """Return the method with this estimator's parameters as settings."""
        method = resolve_method(self.method)
        allowed = [name for name, other in METHODS.items() if other.inductive]
        if not method.inductive:
            raise InvalidArgumentError(
                f"method '{method.name}' classifies its queries only and leaves no class weights "
                f"for new samples; pass the task to infoshot.solve instead, or use one of: "
                f"{', '.join(allowed)}. A solver of your own sets inductive = True if its classify "
                "method labels new samples."
            )
        if self.normalize is True and method.preparation not in ("l2", "whitened"):
            raise InvalidArgumentError(
                f"method '{method.name}' needs the preparation '{method.preparation}', but "
                "normalize=True scales rows to unit length only; prepare X and pass "
                "normalize=False."
            )
        settings = {
            name: value
            for name, value in self.get_params(deep=False).items()
            if name not in ("method", "normalize") and value is not None
        }
        for name in settings:
            if name not in method.solver.settings():
                having = [other for other in allowed if name in METHODS[other].solver.settings()]
                raise InvalidArgumentError(
                    f"{name} is not a setting of the method '{method.name}'; these have it: "
                    f"{', '.join(having)}."
                )
        return dataclasses.replace(method, solver=method.solver.with_settings(**settings))

    def _features(self, X: Array) -> Array:
        """Rows scaled to unit length if asked for; all-zero rows stay zero."""
        one_of("normalize", self.normalize, (True, False))
        if not self.normalize:
            return X
        zero = ~X.any(axis=1)
        if zero.any():
            warnings.warn(
                f"{zero.sum()} rows of X are all zero and cannot be scaled to unit length; they "
                f"stay zero (the first is row {zero.argmax()}).",
                UserWarning,
                stacklevel=3,
            )
        scaled: Array = np.zeros_like(X)
        if not zero.all():
            scaled[~zero] = unit_length(torch.from_numpy(X[~zero])).numpy()
        return scaled


def _plain(value: Any) -> Any:  # noqa: ANN401 - a parameter of any type
    """Convert NumPy's and PyTorch's numbers and arrays to Python's."""
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value
