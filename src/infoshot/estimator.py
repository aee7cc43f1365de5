"""``TIMClassifier``: the scikit-learn face of TIM. NumPy in, NumPy out."""

import json
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

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

from infoshot.atomic import write_atomically
from infoshot.checks import few_queries, numeric_tensor, one_of
from infoshot.errors import DataError, InvalidArgumentError, NonFiniteWarning
from infoshot.features import unit_length
from infoshot.solvers import Prototype, TimAdm, TimGd, solve
from infoshot.solvers.base import Solver
from infoshot.solvers.objective import log_posterior
from infoshot.types import Status, TaskBatch

Array = NDArray[Any]
_FORMAT = "infoshot.TIMClassifier/1"


class TIMClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classify many unlabelled samples from a few labelled ones, all of them together.

    Rows of ``X`` whose label is -1 (or ``None`` among string labels) are unlabelled. ``fit`` finds
    class weights that classify the labelled rows rightly and the unlabelled ones confidently and in
    balance: with as many rows of every class, or in the proportions of ``class_prior``. Without
    unlabelled rows it is the nearest-prototype classifier.

    Parameters that the chosen method does not have are not used.

    Parameters
    ----------
    method
        ``"tim-adm"`` (closed-form updates), ``"tim-gd"`` (gradient descent, slower) or
        ``"prototype"`` (nearest class mean: looks at every sample by itself).
    temperature
        Factor on the squared distance in the posterior; larger is sharper.
    cross_entropy_weight, marginal_entropy_weight, conditional_entropy_weight
        Weights of the three terms of the objective; the defaults are the published ones.
    class_prior
        Expected share of each class among the unlabelled rows, in the order of ``classes_``.
        ``None``: all equal.
    n_steps
        Most steps. ``None``: the published number, 150 for tim-adm and 1000 for tim-gd.
    learning_rate
        Step size of tim-gd; tim-adm has none.
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
    prototypes_ : ndarray of shape (n_classes, n_features)
        The learned class weights, which ``predict`` uses for new samples.
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
        method: Literal["tim-adm", "tim-gd", "prototype"] = "tim-adm",
        temperature: float = 15.0,
        cross_entropy_weight: float = 0.1,
        marginal_entropy_weight: float = 1.0,
        conditional_entropy_weight: float = 0.1,
        class_prior: Sequence[float] | None = None,
        n_steps: int | None = None,
        learning_rate: float = 1e-4,
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
        self.label_distributions_[unlabelled] = self._solve(
            z[~unlabelled], encoded, z[unlabelled], n_way
        )
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
        probabilities: Array = log_posterior(z, w, self.temperature)[0].exp().numpy()
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
            "feature_names": getattr(self, "feature_names_in_", np.array([])).tolist(),
        }
        tensors = {
            "prototypes": np.ascontiguousarray(self.prototypes_),
            "label_distributions": np.ascontiguousarray(self.label_distributions_),
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
        classifier.transduction_ = classifier.classes_[distributions.argmax(1)]
        return classifier

    def _solve(self, z_sup: Array, y_sup: Array, z_qry: Array, n_way: int) -> Array:
        """Find the class weights; return the probabilities of the unlabelled rows."""
        solver, n_qry = self._solver(), len(z_qry)
        solver.validate(n_way)
        if n_qry == 0:
            # Prototypes do not depend on the queries; any row can stand in for the missing ones.
            solver, z_qry = Prototype(temperature=self.temperature), z_sup[:1]
        elif self.method != "prototype" and (warning := few_queries(n_qry, n_way)):
            warnings.warn(warning, UserWarning, stacklevel=3)
        tasks = TaskBatch(
            numeric_tensor("X", z_sup).unsqueeze(0),
            torch.from_numpy(y_sup).unsqueeze(0),
            numeric_tensor("X", z_qry).unsqueeze(0),
            n_way,
        )
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
        posterior: Array = solution.probabilities[0, :n_qry].numpy()
        return posterior

    def _solver(self) -> Solver[Any]:
        """The solver with this estimator's parameters."""
        one_of("method", self.method, ("tim-adm", "tim-gd", "prototype"))
        if self.method == "prototype":
            return Prototype(temperature=self.temperature)
        settings: dict[str, Any] = {
            "temperature": self.temperature,
            "cross_entropy_weight": self.cross_entropy_weight,
            "marginal_entropy_weight": self.marginal_entropy_weight,
            "conditional_entropy_weight": self.conditional_entropy_weight,
            "class_prior": self.class_prior,
            "tolerance": self.tolerance,
        }
        if self.n_steps is not None:
            settings["n_steps"] = self.n_steps
        if self.method == "tim-gd":
            return TimGd(**settings, learning_rate=self.learning_rate)
        return TimAdm(**settings)

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
