"""InfoShot: label many samples from a handful of examples.

The main actions are functions: :func:`label`, :func:`review`, :func:`predict`, :func:`bench`,
:func:`reproduce`, :func:`train`, :func:`extract`, :func:`solve_shards`. For features in memory
there are the scikit-learn estimator :class:`TIMClassifier` and :func:`solve` with one class per
method.

A name is imported when it is used first, and PyTorch with it. So the command line can handle an
interrupt, show its help and check its arguments before PyTorch is loaded.
"""

from infoshot.version import __version__

TYPE_CHECKING = False  # not from typing, which takes longer to import than this module
if TYPE_CHECKING:  # for type checkers and editors; a test compares it with the table below
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
    from infoshot.estimator import TIMClassifier
    from infoshot.features import read_features, write_features
    from infoshot.features.api import extract, extract_shards
    from infoshot.images.inspection import inspect_dataset
    from infoshot.integrations import LabelStudioModel, label_fiftyone
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
    from infoshot.reviewing.api import Review, review
    from infoshot.shards import ShardSummary, solve_shards
    from infoshot.solvers import (
        METHODS,
        AlphaAm,
        AlphaTim,
        Baseline,
        BaselinePlusPlus,
        BaselinePlusPlusSgd,
        BaselineSgd,
        Bavardage,
        BdCspn,
        LabelPropagation,
        LaplacianShot,
        LogisticRegression,
        Matching,
        MatchingT,
        MetaOpt,
        Method,
        Oslo,
        Ostim,
        Paddle,
        Prototype,
        PrototypeT,
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

__all__ = [
    "METHODS",
    "AlphaAm",
    "AlphaTim",
    "Baseline",
    "BaselinePlusPlus",
    "BaselinePlusPlusSgd",
    "BaselineSgd",
    "Bavardage",
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
    "LabelStudioModel",
    "LaplacianShot",
    "LogisticRegression",
    "Matching",
    "MatchingT",
    "MetaOpt",
    "Method",
    "MissingDependencyError",
    "Oslo",
    "Ostim",
    "Paddle",
    "Prototype",
    "PrototypeT",
    "PtMap",
    "Reproduction",
    "ResultRow",
    "Review",
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
    "label_fiftyone",
    "label_table",
    "open_encoder",
    "predict",
    "read_features",
    "reproduce",
    "resolve_method",
    "review",
    "sample_tasks",
    "solve",
    "solve_shards",
    "suggest",
    "train",
    "write_features",
]

# The module of every public name.
_NAMES = {
    "backbones": "Encoder InputSpec open_encoder",
    "benchmark": "BenchResult bench",
    "core.errors": (
        "DataError InfoshotError InvalidArgumentError MissingDependencyError ShapeError"
    ),
    "core.types": "FeatureTable ResultRow Solution Status TaskBatch Trace",
    "estimator": "TIMClassifier",
    "features": "read_features write_features",
    "features.api": "extract extract_shards",
    "images.inspection": "inspect_dataset",
    "integrations": "LabelStudioModel label_fiftyone",
    "labelling": (
        "ImageLabel LabelResult add_labels audit draw_audit label label_table predict suggest"
    ),
    "reproduction": "Reproduction reproduce",
    "reviewing.api": "Review review",
    "shards": "ShardSummary solve_shards",
    "solvers": (
        "METHODS AlphaAm AlphaTim Baseline BaselinePlusPlus BaselinePlusPlusSgd BaselineSgd "
        "Bavardage BdCspn LabelPropagation LaplacianShot LogisticRegression Matching MatchingT "
        "MetaOpt Method Oslo Ostim Paddle Prototype PrototypeT PtMap SoftKMeans Solver State "
        "TimAdm TimAuto TimGd resolve_method solve"
    ),
    "tasks": "TaskSpec sample_tasks",
    "training": "TrainConfig TrainResult train",
}
_MODULES = {name: f"infoshot.{module}" for module, text in _NAMES.items() for name in text.split()}
_PACKAGES = {module.partition(".")[0] for module in _NAMES} | {"distributed", "metrics", "report"}


def __getattr__(name: str) -> object:
    """Import a public name, or a package of ours, when it is used first."""
    from importlib import import_module

    if name in _MODULES:
        value = getattr(import_module(_MODULES[name]), name)
    elif name in _PACKAGES:
        value = import_module(f"infoshot.{name}")
    else:
        raise AttributeError(f"module 'infoshot' has no attribute '{name}'")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names."""
    return __all__
