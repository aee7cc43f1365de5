"""``TIMClassifier``: the scikit-learn face of TIM. NumPy in, NumPy out."""

import json
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from infoshot.core.atomic import write_atomically
from infoshot.core.checks import few_queries, numeric_tensor, one_of, unknown_name
from infoshot.core.errors import DataError, InvalidArgumentError, NonFiniteWarning
from infoshot.core.types import Status, TaskBatch
from infoshot.features import unit_length
from infoshot.solvers import METHODS, Prototype, Solver, solve

Array = NDArray[Any]
_FORMAT = "infoshot.TIMClassifier/2"


class TIMClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classify many unlabelled samples from a few labelled ones, all of them together.

    Rows of ``X`` whose label is -1 (or ``None`` among string labels) are unlabelled. ``fit`` finds
    class weights that classify the labelled rows rightly and the unlabelled ones confidently; how
    frequent the classes are among these it decides from the features, unless another method is
    chosen. Without unlabelled rows it is the nearest class mean (shrunken with ``tim-auto``).

    Every parameter but ``method`` and ``normalize`` is a setting of the method: ``None`` leaves the
    method's own default, a value for a setting that the method does not have is an error.

    Parameters
    ----------
    method
        ``"tim-auto"`` (for any class balance), ``"tim-adm"`` (expects equally frequent
        classes, or ``class_prior``), ``"prototype"`` (looks at every sample by itself), or any
        other method of ``infoshot methods`` that classifies new samples.
    temperature
        Factor on similarities in the posterior; larger is sharper.
    cross_entropy_weight, marginal_entropy_weight, conditional_entropy_weight
        Weights of the three terms of TIM's objective.
    class_prior
        Expected share of each class among the unlabelled rows, in the order of ``classes_``; for
        tim-adm and tim-gd. ``None``: all equal.
    n_steps
        Most steps.
    learning_rate
        Step size of the methods that descend on a gradient.
    tolerance
        Stop once no probability moved by more than this in a step. ``None``: run all steps.
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
        How little each unlabelled row belongs to any class, larger is stranger; NaN for labelled
        rows.
    note_ : str
        What the method decided about these rows and why, in words; empty if it says nothing.
    prototypes_ : ndarray of shape (n_classes, n_features)
        The learned class weights, which ``predict`` uses for new samples. ``tim-auto`` also
        looks at neighbours in ``fit``, so its ``transduction_`` can differ from what ``predict``
        says of the same rows.
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
        method: str = "tim-auto",
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
            Labels; -1, or ``None`` among strings, marks the unlabelled.
        """
        if y is None:
            raise InvalidArgumentError(
                "TIMClassifier requires y to be passed, but the target y is None."
            )
        z = self._features(validate_data(self, X, dtype=[np.float64, np.float32]))
        labels: Array = column_or_1d(_keeping_types(y), warn=True)
        check_consistent_length(z, labels)
        unlabelled = _is_unlabelled(labels)
        known = labels[~unlabelled]
        if known.dtype == object:
            known = np.array(known.tolist())
        check_classification_targets(known)
        self.classes_, encoded = np.unique(known, return_inverse=True)
        n_way = len(self.classes_)
        if n_way < 2:
            raise InvalidArgumentError(
                "TIMClassifier needs labelled samples of at least two classes; got "
                f"{n_way} class{'' if n_way == 1 else 'es'} (-1 and None mark the unlabelled)."
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
        """Probabilities of the classes for new samples, from the learned class weights.

        Returns
        -------
        ndarray of shape (n_samples, n_classes), in the order of ``classes_``.
        """
        check_is_fitted(self)
        features = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        w = numeric_tensor("prototypes_", self.prototypes_).unsqueeze(0)
        z = numeric_tensor("X", self._features(features)).to(w).unsqueeze(0)
        solver = self._solver().with_settings(temperature=self.temperature_)
        probabilities: Array = solver.classify(z, w)[0].exp().numpy()
        return probabilities

    def predict(self, X: ArrayLike) -> Array:
        """Most probable class of new samples, from the learned class weights."""
        probabilities = self.predict_proba(X)
        labels: Array = self.classes_[probabilities.argmax(1)]
        return labels

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted classifier as safetensors; :meth:`load` reads it back."""
        check_is_fitted(self)
        fitted = {
            "classes": self.classes_.tolist(),
            "classes_dtype": self.classes_.dtype.str,
            "n_iter": self.n_iter_,
            "note": self.note_,
            "temperature": self.temperature_,
            "feature_names": getattr(self, "feature_names_in_", np.array([])).tolist(),
        }
        tensors = {
            "prototypes": np.ascontiguousarray(self.prototypes_),
            "label_distributions": np.ascontiguousarray(self.label_distributions_),
            "outlier_scores": np.ascontiguousarray(self.outlier_scores_),
        }
        metadata = {
            "format": _FORMAT,
            "parameters": json.dumps(self.get_params(), default=_plain),
            "fitted": json.dumps(fitted),
        }
        write_atomically(path, save(tensors, metadata=metadata))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a classifier that :meth:`save` wrote."""
        if not Path(path).is_file():
            raise DataError(f"{path}: there is no such file.")
        try:
            with safe_open(path, framework="numpy") as file:
                metadata = dict(file.metadata() or {})
                if metadata.get("format") != _FORMAT or not {"fitted", "parameters"} <= set(
                    metadata
                ):
                    raise DataError(f"{path}: this file does not hold a saved TIMClassifier.")
                prototypes = file.get_tensor("prototypes")
                distributions = file.get_tensor("label_distributions")
                scores = file.get_tensor("outlier_scores")
        except SafetensorError as error:
            raise DataError(
                f"{path}: truncated, damaged or of another format ({error})."
            ) from error
        fitted = json.loads(metadata["fitted"])
        classifier = cls(**json.loads(metadata["parameters"]))
        classifier.prototypes_, classifier.n_iter_ = prototypes, fitted["n_iter"]
        classifier.classes_ = np.array(fitted["classes"], dtype=fitted["classes_dtype"])
        classifier.n_features_in_ = prototypes.shape[1]
        if fitted["feature_names"]:
            classifier.feature_names_in_ = np.array(fitted["feature_names"], dtype=object)
        classifier.label_distributions_ = distributions
        classifier.outlier_scores_, classifier.note_ = scores, fitted["note"]
        classifier.temperature_ = fitted["temperature"]
        classifier.transduction_ = classifier.classes_[distributions.argmax(1)]
        return classifier

    def _solve(self, z_sup: Array, y_sup: Array, z_qry: Array, n_way: int) -> tuple[Array, Array]:
        """Find the class weights; return probabilities and outlier scores of the unlabelled."""
        solver, n_qry = self._solver(), len(z_qry)
        solver.validate(n_way)
        method = METHODS[self.method]
        if n_qry == 0:
            z_qry = z_sup[:1]  # stands in for the missing queries
        elif method.expects_balance and (warning := few_queries(n_qry, n_way)):
            warnings.warn(warning, UserWarning, stacklevel=3)
        tasks = TaskBatch(
            numeric_tensor("X", z_sup).unsqueeze(0),
            torch.from_numpy(y_sup).unsqueeze(0),
            numeric_tensor("X", z_qry).unsqueeze(0),
            n_way,
        )
        if n_qry == 0 and method.transductive and solver.planned_steps(tasks) > 0:
            solver = Prototype()  # where every such method starts from
        with warnings.catch_warnings():
            warnings.simplefilter("error", NonFiniteWarning)
            try:
                solution = solve(solver, tasks)
            except NonFiniteWarning as error:
                raise InvalidArgumentError(
                    "X holds values so large that their squares overflow; scale the features first "
                    "(normalize=True does)."
                ) from error
        self.prototypes_ = solution.prototypes[0].numpy()
        self.n_iter_ = int(solution.n_steps[0])
        if solver.tolerance is not None and solution.status[0] != Status.CONVERGED:
            warnings.warn(
                f"{self.method} ran all {self.n_iter_} steps without reaching the tolerance "
                f"{self.tolerance}; allow more steps or a larger tolerance.",
                ConvergenceWarning,
                stacklevel=3,
            )
        self.temperature_ = float(solver.reporting_temperature(tasks))
        self.note_ = solution.notes[0] if solution.notes and n_qry else ""
        return (
            solution.probabilities[0, :n_qry].numpy(),
            solution.outlier_scores[0, :n_qry].numpy(),
        )

    def _solver(self) -> Solver[Any]:
        """The solver with this estimator's parameters."""
        allowed = [name for name, method in METHODS.items() if method.inductive]
        if not isinstance(self.method, str):
            raise InvalidArgumentError(f"method must be a name; got {self.method!r}.")
        if self.method in METHODS and self.method not in allowed:
            raise InvalidArgumentError(
                f"method '{self.method}' answers for its queries only, so it cannot be an "
                f"estimator; use 'infoshot solve --method {self.method}', or one of: "
                f"{', '.join(allowed)}."
            )
        if self.method not in allowed:
            raise InvalidArgumentError(unknown_name("method", self.method, allowed))
        method = METHODS[self.method]
        given = self.get_params(deep=False)
        settings = {
            name: value
            for name, value in given.items()
            if name not in ("method", "normalize") and value is not None
        }
        for name in settings:
            if name not in method.solver.settings():
                having = [other for other in allowed if name in METHODS[other].solver.settings()]
                raise InvalidArgumentError(
                    f"{name} is not a setting of the method '{self.method}'; these have it: "
                    f"{', '.join(having)}."
                )
        return method.solver.with_settings(**settings)

    def _features(self, X: Array) -> Array:
        """Rows as the solver takes them; rows without a direction stay zero."""
        one_of("normalize", self.normalize, (True, False))
        if not self.normalize:
            return X
        zero = ~X.any(axis=1)
        if zero.any():
            warnings.warn(
                f"{zero.sum()} rows of X are all zero, have no direction and stay zero "
                f"(the first is row {zero.argmax()}).",
                UserWarning,
                stacklevel=3,
            )
        scaled: Array = np.zeros_like(X)
        if not zero.all():
            scaled[~zero] = unit_length(torch.from_numpy(X[~zero])).numpy()
        return scaled


def _keeping_types(y: ArrayLike) -> ArrayLike:
    """A list of text with None, NaN or -1 in it as objects; NumPy would make text of all."""
    if isinstance(y, (list, tuple)) and any(isinstance(label, str) for label in y):
        return np.array(y, dtype=object)
    return y


def _plain(value: Any) -> Any:  # noqa: ANN401 - what JSON does not know
    """NumPy's and PyTorch's numbers and arrays as Python's."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise InvalidArgumentError(f"a parameter of type {type(value).__name__} cannot be saved.")


def _is_unlabelled(y: Array) -> Array:
    """Mask of the rows without a label: -1, or ``None`` and NaN among objects."""
    if y.dtype.kind in "USO":
        for marker in {"-1", "nan", "None", ""} & {label for label in y if isinstance(label, str)}:
            raise InvalidArgumentError(
                f"y holds the text '{marker}'; mark the unlabelled by None (in a list or an object "
                "array), or give the class another name."
            )
    if y.dtype.kind in "US":
        return np.zeros(len(y), dtype=bool)
    if y.dtype == object:
        return np.array([label is None or label != label or label == -1 for label in y], dtype=bool)
    mask: Array = y == -1
    return mask
