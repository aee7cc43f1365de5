"""Methods that classify queries from a support set, and the loop that runs them."""

from infoshot.solvers.baselines.prototype import Prototype
from infoshot.solvers.loop import solve, tasks_per_chunk
from infoshot.solvers.registry import (
    ASSUMPTIONS,
    METHODS,
    Method,
    Preparation,
    method_by_name,
    resolve_method,
)
from infoshot.solvers.solver import Solver, State
from infoshot.solvers.tim_adm import TimAdm
from infoshot.solvers.tim_auto import TimAuto
from infoshot.solvers.tim_gd import TimGd
from infoshot.solvers.trace import StepEvent, StepHook

__all__ = [
    "ASSUMPTIONS",
    "METHODS",
    "Method",
    "Preparation",
    "Prototype",
    "Solver",
    "State",
    "StepEvent",
    "StepHook",
    "TimAdm",
    "TimAuto",
    "TimGd",
    "method_by_name",
    "resolve_method",
    "solve",
    "tasks_per_chunk",
]
