"""InfoShot: label many samples from a handful of examples.

The main actions are functions: :func:`label`, :func:`predict`, :func:`bench`, :func:`reproduce`,
:func:`train`, :func:`extract`, :func:`solve_shards`. For features in memory there are the
scikit-learn estimator :class:`TIMClassifier` and :func:`solve` with one class per method.
"""

from typing import TYPE_CHECKING, Any

from infoshot.backbones import Encoder, InputSpec, open_encoder
from infoshot.benchmark import BenchResult, bench
from infoshot.core.errors import (
    DataError,
    InfoshotError,
    InvalidArgumentError,
    MissingDependencyError,
    ShapeError,
)
from infoshot.core.types import FeatureTable, ResultRow, Solution, Status, TaskBatch, Trace
from infoshot.features import read_features, write_features
from infoshot.features.api import extract, extract_shards
from infoshot.images.inspection import inspect_dataset
from infoshot.labelling import (
    ImageLabel,
    LabelResult,
    add_labels,
    audit,
    draw_audit,
    label,
    label_table,
    predict,
    suggest,
)
from infoshot.reproduction import Reproduction, reproduce
from infoshot.shards import ShardSummary, solve_shards
from infoshot.solvers import (
    METHODS,
    AlphaTim,
    Baseline,
    BaselinePlusPlus,
    BdCspn,
    LabelPropagation,
    LaplacianShot,
    Matching,
    Method,
    Oslo,
    Ostim,
    Paddle,
    Prototype,
    PtMap,
    SoftKMeans,
    Solver,
    State,
    TimAdm,
    TimAuto,
    TimGd,
    resolve_method,
    solve,
)
from infoshot.tasks import TaskSpec, sample_tasks
from infoshot.training import TrainConfig, TrainResult, train
from infoshot.version import __version__

if TYPE_CHECKING:
    from infoshot.estimator import TIMClassifier

__all__ = [
    "METHODS",
    "AlphaTim",
    "Baseline",
    "BaselinePlusPlus",
    "BdCspn",
    "BenchResult",
    "DataError",
    "Encoder",
    "FeatureTable",
    "ImageLabel",
    "InfoshotError",
    "InputSpec",
    "InvalidArgumentError",
    "LabelPropagation",
    "LabelResult",
    "LaplacianShot",
    "Matching",
    "Method",
    "MissingDependencyError",
    "Oslo",
    "Ostim",
    "Paddle",
    "Prototype",
    "PtMap",
    "Reproduction",
    "ResultRow",
    "ShapeError",
    "ShardSummary",
    "SoftKMeans",
    "Solution",
    "Solver",
    "State",
    "Status",
    "TIMClassifier",
    "TaskBatch",
    "TaskSpec",
    "TimAdm",
    "TimAuto",
    "TimGd",
    "Trace",
    "TrainConfig",
    "TrainResult",
    "__version__",
    "add_labels",
    "audit",
    "bench",
    "draw_audit",
    "extract",
    "extract_shards",
    "inspect_dataset",
    "label",
    "label_table",
    "open_encoder",
    "predict",
    "read_features",
    "reproduce",
    "resolve_method",
    "sample_tasks",
    "solve",
    "solve_shards",
    "suggest",
    "train",
    "write_features",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - the class itself
    """Import the estimator, and with it scikit-learn, only when it is used."""
    if name == "TIMClassifier":
        from infoshot.estimator import TIMClassifier

        return TIMClassifier
    raise AttributeError(f"module 'infoshot' has no attribute '{name}'")


def __dir__() -> list[str]:
    """List the public names."""
    return __all__
