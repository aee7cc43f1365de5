"""The methods, and ``solve``, which runs them."""

from infoshot.solvers.alpha_tim import AlphaTim
from infoshot.solvers.loop import solve
from infoshot.solvers.method import ASSUMPTIONS, Method
from infoshot.solvers.registry import METHODS, method_by_name
from infoshot.solvers.resolve import (
    ENTRY_POINTS,
    method_facts,
    method_from_facts,
    resolve_method,
    stored_method,
)
from infoshot.solvers.retry import solve_with_retry
from infoshot.solvers.sizes import tasks_per_chunk
from infoshot.solvers.solver import Solver, State
from infoshot.solvers.tim_adm import TimAdm
from infoshot.solvers.tim_auto import TimAuto
from infoshot.solvers.tim_gd import TimGd
from infoshot.solvers.trace import StepEvent, StepHook

from infoshot.solvers.baselines import (  # isort: skip
    AlphaAm, Baseline, BaselinePlusPlus, BaselinePlusPlusSgd, BaselineSgd, Bavardage, BdCspn,
    LabelPropagation, LaplacianShot, LogisticRegression, Matching, MatchingT, MetaOpt, Oslo,
    Ostim, Paddle, Prototype, PrototypeT, PtMap, SoftKMeans,
)  # fmt: skip

__all__ = [
    "ASSUMPTIONS", "ENTRY_POINTS", "METHODS", "AlphaAm", "AlphaTim", "Baseline",
    "BaselinePlusPlus", "BaselinePlusPlusSgd", "BaselineSgd", "Bavardage", "BdCspn",
    "LabelPropagation", "LaplacianShot", "LogisticRegression", "Matching", "MatchingT",
    "MetaOpt", "Method", "Oslo", "Ostim", "Paddle", "Prototype", "PrototypeT",
    "PtMap", "SoftKMeans", "Solver", "State", "StepEvent", "StepHook", "TimAdm", "TimAuto",
    "TimGd", "method_by_name", "method_facts", "method_from_facts", "resolve_method", "solve",
    "solve_with_retry", "stored_method", "tasks_per_chunk",
]  # fmt: skip
