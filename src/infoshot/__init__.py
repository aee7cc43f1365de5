"""InfoShot: label many samples from a handful of examples."""

from typing import TYPE_CHECKING, Any

from infoshot.core.errors import DataError, InfoshotError, InvalidArgumentError, ShapeError
from infoshot.core.types import FeatureTable, Solution, Status, TaskBatch, Trace
from infoshot.solvers import Prototype, TimAdm, TimAuto, TimGd, solve
from infoshot.version import __version__

if TYPE_CHECKING:
    from infoshot.estimator import TIMClassifier

__all__ = [
    "DataError",
    "FeatureTable",
    "InfoshotError",
    "InvalidArgumentError",
    "Prototype",
    "ShapeError",
    "Solution",
    "Status",
    "TIMClassifier",
    "TaskBatch",
    "TimAdm",
    "TimAuto",
    "TimGd",
    "Trace",
    "__version__",
    "solve",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - the class itself
    """Load the estimator, and with it scikit-learn, only when it is asked for."""
    if name == "TIMClassifier":
        from infoshot.estimator import TIMClassifier

        return TIMClassifier
    raise AttributeError(f"module 'infoshot' has no attribute '{name}'")
